//! Lists that arrive in parts: whatever the parts are, the items are those of the whole text.

use proptest::prelude::*;
use serde_json::{Map, Value, json};

use super::*;

/// The items and the envelope of a list that arrives in chunks which end at these places.
fn split(text: &[u8], ends: &[usize]) -> Result<(Vec<Vec<u8>>, ListPage), Failure> {
    let mut splitter = Splitter::new();
    let mut items = Vec::new();
    let mut take = |item: &[u8]| {
        items.push(item.to_vec());
        Ok(())
    };
    let mut start = 0;
    for &end in ends.iter().chain([&text.len()]) {
        splitter.feed(&text[start..end], &mut take)?;
        start = end;
    }
    splitter.finish().map(|page| (items, page))
}

fn fails(text: &str) -> String {
    let every: Vec<usize> = (0..text.len()).collect();
    let at_once = split(text.as_bytes(), &[]).unwrap_err().to_string();
    assert_eq!(split(text.as_bytes(), &every).unwrap_err().to_string(), at_once);
    at_once
}

#[test]
fn items_come_out_before_the_list_is_over() {
    let mut splitter = Splitter::new();
    let mut items = Vec::new();
    for chunk in [r#"{"items":[{"a":1},{"b""#, r":[2]}", r#",{"c":"}"}"#] {
        splitter
            .feed(chunk.as_bytes(), |item| {
                items.push(String::from_utf8(item.to_vec()).unwrap());
                Ok(())
            })
            .unwrap();
    }
    assert_eq!(items, [r#"{"a":1}"#, r#"{"b":[2]}"#, r#"{"c":"}"}"#]);
}

#[test]
fn what_the_list_says_of_itself_may_stand_before_and_behind_the_items() {
    let before = r#"{"kind":"L","metadata":{"resourceVersion":"9"},"items":[{}]}"#;
    let behind = r#" {"items" : [ {} ] , "metadata":{"resourceVersion":"9"}, "kind":"L"} "#;
    for text in [before, behind] {
        let (items, page) = split(text.as_bytes(), &[]).unwrap();
        assert_eq!((items.len(), page.resource_version.as_str(), &*page.kind), (1, "9", "L"));
    }
}

#[test]
fn only_the_member_items_of_the_list_itself_counts() {
    let text = r#"{"a":{"items":[1]},"x\"items":[2],"s":"\"items\":[","items":[{"items":[3]}]}"#;
    let every: Vec<usize> = (0..text.len()).collect();
    let (items, _) = split(text.as_bytes(), &every).unwrap();
    assert_eq!(items, [br#"{"items":[3]}"#]);
    assert!(split(br#"{"items":null}"#, &[]).unwrap().0.is_empty());
}

#[test]
fn what_is_no_list_is_a_failure_and_no_panic() {
    for (text, why) in [
        ("", "expected an object"),
        ("<html>", "expected an object"),
        (r#"{"kind":"Status"}"#, "no member"),
        (r#"{"items":[{}"#, "cut off"),
        (r#"{"items":[{"a":"#, "cut off"),
        (r#"{"items":[{}]"#, "expected"),
        (r#"{"items":[{},]}"#, "not objects"),
        (r#"{"items":[{}{}]}"#, "not objects"),
        (r#"{"items":[1]}"#, "not objects"),
        (r#"{"items":[]}}"#, "after the value"),
        (r#"{"items":[],"items":[]}"#, "twice"),
        ("}}}}]]]]", "expected an object"),
    ] {
        let failure = fails(text);
        assert!(failure.contains(why), "{text}: {failure}");
    }
}

#[test]
fn limits_hold_at_n_and_break_at_n_plus_one() {
    for (chunk, length, holds) in [(100, 10, true), (100, 11, false), (1, 10, true), (1, 11, false)]
    {
        let item = format!("{{{}}}", " ".repeat(length - 2));
        let text = format!(r#"{{"items":[{item}]}}"#);
        let mut splitter = Splitter::with_item_bytes_max(10);
        let mut chunks = text.as_bytes().chunks(chunk);
        let fed = chunks.try_for_each(|chunk| splitter.feed(chunk, |_| Ok(())));
        assert_eq!(fed.is_ok(), holds, "{chunk} {length}");
    }
    let around = |n: usize| {
        let rest = r#"{"a":"","items":[]}"#.len();
        format!(r#"{{"a":"{}","items":[]}}"#, "x".repeat(n - rest))
    };
    assert!(split(around(ENVELOPE_BYTES_MAX).as_bytes(), &[]).is_ok());
    assert!(split(around(ENVELOPE_BYTES_MAX + 1).as_bytes(), &[]).is_err());
}

fn value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Into::into),
        any::<i64>().prop_map(Into::into),
        "\\PC{0,12}|[\"\\\\{}\\[\\],:\u{0}-\u{20}]{0,8}".prop_map(Into::into),
    ];
    leaf.prop_recursive(4, 24, 5, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..5).prop_map(Into::into),
            object(inner).prop_map(Into::into),
        ]
    })
}

fn object(inner: impl Strategy<Value = Value>) -> impl Strategy<Value = Map<String, Value>> {
    let key = prop_oneof!["[a-z\"\\\\{\\[:]{0,6}", Just("items".to_owned())];
    prop::collection::vec((key, inner), 0..5).prop_map(|members| members.into_iter().collect())
}

/// A list, printed in one of two ways.
fn list() -> impl Strategy<Value = String> {
    let items = prop::collection::vec(object(value()), 0..6);
    (object(value()), items, any::<bool>()).prop_map(|(mut list, items, pretty)| {
        list.remove("metadata");
        list.remove("kind");
        list.insert("metadata".into(), json!({"resourceVersion": "7", "continue": "t\"\\"}));
        list.insert("items".into(), items.into());
        if pretty { serde_json::to_string_pretty(&list) } else { serde_json::to_string(&list) }
            .unwrap()
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    #[test]
    fn it_agrees_with_serde_json_wherever_the_chunks_end(
        text in list(),
        ends in prop::collection::vec(any::<prop::sample::Index>(), 0..8),
    ) {
        let mut ends: Vec<_> = ends.iter().map(|end| end.index(text.len() + 1)).collect();
        ends.sort_unstable();
        let (items, page) = split(text.as_bytes(), &ends).unwrap();
        let parsed: Value = serde_json::from_str(&text).unwrap();
        let ours: Vec<Value> =
            items.iter().map(|item| serde_json::from_slice(item).unwrap()).collect();
        prop_assert_eq!(&Value::from(ours), &parsed["items"]);
        prop_assert_eq!(page.continue_token, "t\"\\");
        prop_assert_eq!(page.resource_version, "7");
    }

    #[test]
    fn what_core_refuses_it_refuses_and_what_it_takes_core_takes(
        text in list(),
        at in any::<prop::sample::Index>(),
        byte in prop::sample::select(b"\"\\{}[],: x1\xff".to_vec()),
    ) {
        let mut bytes = text.into_bytes();
        let at = at.index(bytes.len());
        bytes[at] = byte;
        let theirs = ListPage::split(&bytes);
        let ours = split(&bytes, &[at]).and_then(|(items, page)| {
            // What takes the items parses them.
            let whole = [b"{\"items\":[".to_vec(), items.join(&b','), b"]}".to_vec()].concat();
            ListPage::split(&whole).map_err(|error| Failure::Decode(error.to_string()))?;
            Ok((items, page))
        });
        match (theirs, ours) {
            (Ok(theirs), Ok((items, page))) => {
                let cut: Vec<_> = theirs.items.iter().map(|at| bytes[at.clone()].to_vec()).collect();
                prop_assert_eq!(cut, items);
                prop_assert_eq!(theirs.resource_version, page.resource_version);
            }
            (Err(_), Err(_)) => {}
            (theirs, ours) => prop_assert!(false, "core {theirs:?}, here {ours:?}"),
        }
    }
}
