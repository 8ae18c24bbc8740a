//! Decoding into vectors that are as large as what is in them.
//!
//! A decoder of JSON does not know how long an array is before it has read it, so its vectors grow:
//! room for four elements where there is one, and a container of a pod has more than a kilobyte. For a
//! value that stays in memory that is a waste of several kilobytes; copying it once more to be rid of
//! that costs as much as half of its decoding. Here the elements of all arrays are counted first,
//! which is a small part of it, and every vector is told how many will come.

use serde::de::DeserializeOwned;

use counts::Counts;
use told::Told;

mod counts;
mod told;

/// Decodes a document.
pub(crate) fn decode<K: DeserializeOwned>(text: &str) -> serde_json::Result<K> {
    let counts = Counts::of(text);
    let mut document = serde_json::Deserializer::from_str(text);
    let value = K::deserialize(Told::new(&mut document, &counts))?;
    document.end()?;
    Ok(value)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use serde::Deserialize;
    use serde_json::{Value, json};

    use super::*;

    #[derive(Deserialize, PartialEq, Debug)]
    #[serde(rename_all = "camelCase")]
    struct Everything {
        flag: bool,
        small: i8,
        large: u64,
        ratio: f64,
        name: String,
        letter: char,
        nothing: (),
        absent: Option<Vec<u8>>,
        present: Option<Vec<u8>>,
        pair: (u8, String),
        plain: Choice,
        one: Choice,
        many: Choice,
        fields: Choice,
        wrapped: Wrapped,
        map: BTreeMap<String, Vec<i32>>,
        nested: Vec<Vec<String>>,
        any: Value,
    }

    #[derive(Deserialize, PartialEq, Debug)]
    #[serde(rename_all = "camelCase")]
    enum Choice {
        Plain,
        One(Vec<u8>),
        Many(u8, Vec<u8>),
        Fields { list: Vec<u8> },
    }

    #[derive(Deserialize, PartialEq, Debug)]
    struct Wrapped(Vec<String>);

    fn everything() -> Value {
        json!({
            "flag": true, "small": -3, "large": u64::MAX, "ratio": 0.5, "name": "a [\"b\", c]",
            "letter": "x", "nothing": null, "absent": null, "present": [1, 2, 3],
            "unknown": {"deep": [[1], [2, 3]]}, "pair": [7, "seven"], "plain": "plain",
            "one": {"one": [1]}, "many": {"many": [1, [2, 3]]}, "fields": {"fields": {"list": []}},
            "wrapped": ["\\", "]"], "map": {"a": [1], "b": [], "c": [1, 2]},
            "nested": [["a", "b"], [], ["c"]], "any": [1, [2, {"x": [3, 4, 5]}]],
        })
    }

    #[test]
    fn it_decodes_what_the_usual_decoder_does() {
        let text = everything().to_string();
        let usual: Everything = serde_json::from_str(&text).unwrap();
        assert_eq!(decode::<Everything>(&text).unwrap(), usual);
        assert_eq!(decode::<Value>(&text).unwrap(), everything());
    }

    #[test]
    fn what_is_wrong_is_said_as_by_the_usual_decoder() {
        for text in ["{", "[1,2", r#"{"flag": 1}"#, "[1] x", "", "]"] {
            let usual = serde_json::from_str::<Everything>(text).unwrap_err();
            let ours = decode::<Everything>(text).unwrap_err();
            assert_eq!(ours.to_string(), usual.to_string(), "{text}");
        }
    }

    #[test]
    fn vectors_have_room_for_what_is_in_them_and_not_for_more() {
        let decoded: Everything = decode(&everything().to_string()).unwrap();
        let present = decoded.present.unwrap();
        assert_eq!(present.capacity(), 3);
        assert_eq!(decoded.wrapped.0.capacity(), 2);
        assert_eq!(decoded.map.values().map(Vec::capacity).collect::<Vec<_>>(), [1, 0, 2]);
        assert_eq!(decoded.nested.capacity(), 3);
        assert_eq!(decoded.nested.iter().map(Vec::capacity).collect::<Vec<_>>(), [2, 0, 1]);
        let usual: Vec<u64> = serde_json::from_str("[1]").unwrap();
        assert_eq!(usual.capacity(), 4, "then all this is not needed any more");
    }
}
