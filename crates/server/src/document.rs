//! Bodies of writes: from JSON or YAML into values, and into the form that is stored (W32a).

use std::fmt;

use bytes::Bytes;
use masthead_core::{Object, Status};
use serde::de::{DeserializeSeed, Error, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::{Map, Value};

use crate::limits::{DUPLICATES_MAX, JSON_DEPTH_MAX, JSON_VALUES_MAX};
use crate::packing::whole;
use crate::resources::Kind;
use crate::yaml;

/// The members of a JSON object, in their order.
pub(crate) type Members = Map<String, Value>;

/// How a body is written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Format {
    Json,
    Yaml,
}

/// A body that has been read. Of a member that stands twice the last counts.
#[derive(Debug)]
pub(crate) struct Document {
    pub(crate) value: Value,
    /// Members that stand twice, by their path.
    pub(crate) duplicates: Vec<String>,
    /// Number of keys and values, those included that YAML's anchors and aliases repeat.
    pub(crate) values: usize,
}

impl Document {
    pub(crate) fn read(body: &[u8], format: Format) -> Result<Self, Status> {
        let unreadable = |what: &dyn fmt::Display| {
            Status::bad_request(format!("the body of the request cannot be read: {what}"))
        };
        match format {
            Format::Json => serde_json::from_slice(body).map_err(|error| unreadable(&error)),
            Format::Yaml => {
                let text = std::str::from_utf8(body).map_err(|error| unreadable(&error))?;
                yaml::read(text).map_err(|error| unreadable(&error))
            }
        }
    }

    /// As an API object.
    pub(crate) fn into_members(self) -> Result<Members, Status> {
        match self.value {
            Value::Object(members) => Ok(members),
            _ => Err(Status::bad_request("the body of the request is not an object")),
        }
    }
}

impl<'de> Deserialize<'de> for Document {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut noted = Noted::default();
        let node = Node { depth: 0, path: Path::Root, noted: &mut noted };
        let value = node.deserialize(deserializer)?;
        Ok(Self { value, duplicates: noted.duplicates, values: noted.values })
    }
}

/// Where in the document a value is; costs nothing unless somebody asks.
enum Path<'a> {
    Root,
    Member(&'a Path<'a>, &'a str),
    Item(&'a Path<'a>, usize),
}

impl fmt::Display for Path<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Root => Ok(()),
            Self::Member(Self::Root, name) => f.write_str(name),
            Self::Member(parent, name) => write!(f, "{parent}.{name}"),
            Self::Item(parent, number) => write!(f, "{parent}[{number}]"),
        }
    }
}

struct Node<'a> {
    depth: usize,
    path: Path<'a>,
    noted: &'a mut Noted,
}

/// What is noted about a whole document while it is read.
#[derive(Default)]
struct Noted {
    /// Members that stand twice.
    duplicates: Vec<String>,
    /// Keys and values that were read.
    values: usize,
}

impl<'de> DeserializeSeed<'de> for Node<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        if self.depth > JSON_DEPTH_MAX {
            return Err(D::Error::custom(format_args!(
                "it nests more than {JSON_DEPTH_MAX} levels deep"
            )));
        }
        self.noted.values += 1;
        if self.noted.values > JSON_VALUES_MAX {
            return Err(D::Error::custom(format_args!(
                "it has more than {JSON_VALUES_MAX} keys and values"
            )));
        }
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Node<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<Value, E> {
        let number = serde_json::Number::from_f64(value);
        number.map(Value::Number).ok_or_else(|| E::custom("a number is not finite"))
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_string<E>(self, value: String) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_none<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let mut values = Vec::new();
        loop {
            let path = Path::Item(&self.path, values.len());
            let node = Node { depth: self.depth + 1, path, noted: self.noted };
            match items.next_element_seed(node)? {
                Some(value) => values.push(value),
                None => return Ok(Value::Array(values)),
            }
        }
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Value, A::Error> {
        let mut values = Map::new();
        while let Some(name) = members.next_key::<String>()? {
            let path = Path::Member(&self.path, &name);
            self.noted.values += 1;
            if values.contains_key(&name) && self.noted.duplicates.len() < DUPLICATES_MAX {
                self.noted.duplicates.push(path.to_string());
            }
            let node = Node { depth: self.depth + 1, path, noted: self.noted };
            let value = members.next_value_seed(node)?;
            values.insert(name, value);
        }
        Ok(Value::Object(values))
    }
}

/// The members of `metadata` that come first, in this order; others follow as they were.
const METADATA_ORDER: [&str; 9] = [
    "name",
    "generateName",
    "namespace",
    "uid",
    "resourceVersion",
    "generation",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
];

/// The form that is stored: `apiVersion`, `kind`, `metadata` first, and no nulls where a typed
/// decoder would not see them. A custom resource's own nulls stay, since its schema may give them a
/// meaning.
pub(crate) fn canonical(kind: &Kind, mut members: Members) -> Members {
    let resource = &kind.resource;
    let mut result = Members::new();
    result.insert("apiVersion".to_owned(), resource.api_version().into());
    result.insert("kind".to_owned(), resource.kind().into());
    let mut metadata = match members.shift_remove("metadata") {
        Some(Value::Object(metadata)) => metadata,
        _ => Members::new(),
    };
    let mut ordered = Members::new();
    for name in METADATA_ORDER {
        if let Some(value) = metadata.shift_remove(name) {
            ordered.insert(name.to_owned(), value);
        }
    }
    ordered.extend(metadata);
    let mut metadata = Value::Object(ordered);
    drop_nulls(&mut metadata);
    result.insert("metadata".to_owned(), metadata);
    members.retain(|name, _| name != "apiVersion" && name != "kind");
    for (name, mut value) in members {
        if !kind.custom {
            drop_nulls(&mut value);
        }
        if kind.custom || !value.is_null() {
            result.insert(name, value);
        }
    }
    result
}

fn drop_nulls(value: &mut Value) {
    match value {
        Value::Object(members) => {
            members.retain(|_, value| !value.is_null());
            members.values_mut().for_each(drop_nulls);
        }
        Value::Array(items) => items.iter_mut().for_each(drop_nulls),
        _ => {}
    }
}

/// The object that these members are, in stored form and without its revision.
pub(crate) fn object(kind: &Kind, members: &Members) -> Result<Object, Status> {
    let body = serde_json::to_vec(members).expect("values with text keys are JSON");
    Object::parse(&kind.resource, Bytes::from(body)).map_err(Status::bad_request)
}

/// The members of a stored object.
pub(crate) fn members(object: &Object) -> Result<Members, Status> {
    serde_json::from_slice(whole(object)?.body()).map_err(|error| {
        Status::internal(format!("the stored object {} cannot be read: {error}", object.key()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalog::Catalog;

    fn read(text: &str, format: Format) -> Result<Document, String> {
        Document::read(text.as_bytes(), format).map_err(|status| status.message().to_owned())
    }

    #[test]
    fn json_and_yaml_are_the_same_document() {
        let json = read(r#"{"a":{"b":[1,"x",null,true,1.5]}}"#, Format::Json).expect("is JSON");
        let yaml = "a:\n  b:\n  - 1\n  - x\n  - null\n  - true\n  - 1.5\n";
        assert_eq!(json.value, read(yaml, Format::Yaml).expect("is YAML").value);
    }

    #[test]
    fn w32a_members_that_stand_twice_are_named_by_their_path() {
        let text = r#"{"a":1,"b":[{"c":{"d":1,"d":2}}],"a":3}"#;
        let document = read(text, Format::Json).expect("is JSON");
        assert_eq!(document.duplicates, ["b[0].c.d", "a"]);
        assert_eq!(document.value["a"], 3);
    }

    #[test]
    fn depth_is_bounded_at_its_limit() {
        let nested = |levels: usize| format!("{}{}", "[".repeat(levels), "]".repeat(levels));
        assert!(read(&nested(JSON_DEPTH_MAX + 1), Format::Json).is_ok());
        let refused = read(&nested(JSON_DEPTH_MAX + 2), Format::Json).expect_err("is too deep");
        assert!(refused.contains("64 levels"), "{refused}");
        assert!(read(&"[".repeat(100_000), Format::Yaml).is_err());
    }

    #[test]
    fn values_are_bounded_at_their_limit() {
        let array = |values: usize| format!("[{}1]", "1,".repeat(values - 2));
        assert!(read(&array(JSON_VALUES_MAX), Format::Json).is_ok());
        let refused = read(&array(JSON_VALUES_MAX + 1), Format::Json).expect_err("is too much");
        assert!(refused.contains("500000 keys and values"), "{refused}");
        let map = |members: usize| {
            let members: Vec<_> = (0..members).map(|number| format!("\"{number}\":1")).collect();
            format!("{{{}}}", members.join(","))
        };
        assert!(read(&map(JSON_VALUES_MAX / 2 - 1), Format::Json).is_ok());
        assert!(read(&map(JSON_VALUES_MAX / 2), Format::Json).is_err());
    }

    #[test]
    fn what_is_no_document_is_refused_with_its_place() {
        for text in ["", "{", "{]", "nul", "{\"a\":1}x", "\u{0}"] {
            assert!(read(text, Format::Json).is_err(), "{text:?}");
        }
        assert!(Document::read(b"\xff", Format::Yaml).is_err());
        assert!(read("7", Format::Json).expect("is JSON").into_members().is_err());
    }

    #[test]
    fn w32a_the_stored_form_begins_with_the_type_and_has_no_nulls() {
        let kinds = Catalog::new().now();
        let pods = kinds.find("", "v1", "pods").expect("is built in");
        let text = r#"{"spec":{"x":null,"y":[null]},"metadata":{"labels":{"a":"b"},
            "creationTimestamp":null,"name":"n"},"status":null,"kind":"Pod"}"#;
        let given = read(text, Format::Json).expect("is JSON").into_members().expect("is one");
        let stored = serde_json::to_string(&canonical(pods, given)).expect("is JSON");
        assert_eq!(
            stored,
            r#"{"apiVersion":"v1","kind":"Pod","metadata":{"name":"n","labels":{"a":"b"}},"spec":{"y":[null]}}"#
        );
    }
}
