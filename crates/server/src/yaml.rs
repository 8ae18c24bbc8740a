//! Reading YAML as Kubernetes reads it (W32a).
//!
//! Kubernetes reads YAML 1.1: `0644` is 420 and `yes` is true. Libraries for YAML 1.2 read both
//! differently, so this one takes the parser's events and resolves plain scalars itself. What Kubernetes
//! makes of them is recorded in `yaml/kubernetes.tsv`.

use std::borrow::Cow;
use std::collections::HashMap;
use std::fmt::Write as _;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use granit_parser::{Event, Parser, ScalarStyle, Tag};
use serde_json::{Number, Value};

use crate::document::{Document, Members};
use crate::limits::{DUPLICATES_MAX, JSON_DEPTH_MAX, JSON_VALUES_MAX, YAML_COPIED_BYTES_MAX};

/// The namespace of the tags that YAML defines, which `!!` stands for.
const CORE_TAGS: &str = "tag:yaml.org,2002:";

/// A key or a value.
struct Node {
    value: Value,
    /// Whether this is the key `<<`, whose value is merged into the map.
    is_merge: bool,
    /// The anchor that the node defines, 0 for none.
    anchor: usize,
}

/// A list or a map whose end has not come.
struct Collection {
    anchor: usize,
    content: Content,
}

enum Content {
    List(Vec<Value>),
    Map {
        members: Members,
        /// The key whose value comes next.
        key: Option<Key>,
    },
}

enum Key {
    Merge,
    Name(String),
}

/// What an anchor stands for.
struct Anchored {
    value: Value,
    size: Size,
}

/// How large a value is.
#[derive(Clone, Copy)]
struct Size {
    /// Keys and values.
    values: usize,
    /// Bytes of its texts.
    bytes: usize,
    /// Levels of lists and maps.
    depth: usize,
}

#[derive(Default)]
struct Builder {
    open: Vec<Collection>,
    anchors: HashMap<usize, Anchored>,
    duplicates: Vec<String>,
    /// Keys and values so far, those that anchors keep and aliases repeat included.
    values: usize,
    /// Bytes of text that anchors keep and aliases repeat.
    copied_bytes: usize,
    root: Option<Value>,
}

/// Reads the one document of a text. No document at all is null.
pub(crate) fn read(text: &str) -> Result<Document, String> {
    let mut builder = Builder::default();
    let mut documents = 0;
    for event in Parser::new_from_str(text) {
        let (event, _) = event.map_err(|error| error.to_string())?;
        if matches!(event, Event::DocumentStart(..)) {
            documents += 1;
        }
        if documents > 1 {
            return Err("it has more than one YAML document".to_owned());
        }
        builder.handle(event)?;
    }
    let value = builder.root.unwrap_or_default();
    Ok(Document { value, duplicates: builder.duplicates, values: builder.values })
}

impl Builder {
    fn handle(&mut self, event: Event<'_>) -> Result<(), String> {
        match event {
            Event::Scalar(text, style, anchor, tag) => {
                self.count_values(1)?;
                let is_plain = style == ScalarStyle::Plain;
                let is_merge = is_plain && tag.is_none() && text == "<<";
                let value = resolve(text, is_plain, tag.as_deref())?;
                self.add(Node { value, is_merge, anchor })
            }
            Event::Alias(anchor) => self.repeat(anchor),
            Event::SequenceStart(_, anchor, _) => self.begin(anchor, Content::List(Vec::new())),
            Event::MappingStart(_, anchor, _) => {
                self.begin(anchor, Content::Map { members: Members::new(), key: None })
            }
            Event::SequenceEnd | Event::MappingEnd => self.end(),
            _ => Ok(()),
        }
    }

    fn count_values(&mut self, values: usize) -> Result<(), String> {
        self.values += values;
        if self.values > JSON_VALUES_MAX {
            return Err(format!("it has more than {JSON_VALUES_MAX} keys and values"));
        }
        Ok(())
    }

    /// Counts a copy of a value before it is made.
    fn count_copy(&mut self, size: Size) -> Result<(), String> {
        self.copied_bytes += size.bytes;
        if self.copied_bytes > YAML_COPIED_BYTES_MAX {
            let limit = YAML_COPIED_BYTES_MAX;
            return Err(format!("its anchors and aliases repeat more than {limit} bytes"));
        }
        self.count_values(size.values)
    }

    fn repeat(&mut self, anchor: usize) -> Result<(), String> {
        let known = self.anchors.get(&anchor);
        let size = known.map(|known| known.size).ok_or("an anchor's value contains itself")?;
        if size.depth + self.open.len() > JSON_DEPTH_MAX {
            return Err(too_deep());
        }
        self.count_copy(size)?;
        let value = self.anchors[&anchor].value.clone();
        self.add(Node { value, is_merge: false, anchor: 0 })
    }

    fn begin(&mut self, anchor: usize, content: Content) -> Result<(), String> {
        if self.open.len() >= JSON_DEPTH_MAX {
            return Err(too_deep());
        }
        self.count_values(1)?;
        self.open.push(Collection { anchor, content });
        Ok(())
    }

    fn end(&mut self) -> Result<(), String> {
        let Collection { anchor, content } = self.open.pop().expect("the parser pairs both ends");
        let value = match content {
            Content::List(items) => Value::Array(items),
            Content::Map { members, .. } => Value::Object(members),
        };
        self.add(Node { value, is_merge: false, anchor })
    }

    /// Adds a whole node to the collection that is open.
    fn add(&mut self, node: Node) -> Result<(), String> {
        if node.anchor != 0 {
            let size = size(&node.value);
            self.count_copy(size)?;
            self.anchors.insert(node.anchor, Anchored { value: node.value.clone(), size });
        }
        let Some(mut collection) = self.open.pop() else {
            self.root = Some(node.value);
            return Ok(());
        };
        match &mut collection.content {
            Content::List(items) => items.push(node.value),
            Content::Map { key: key @ None, .. } if node.is_merge => *key = Some(Key::Merge),
            Content::Map { key: key @ None, .. } => *key = Some(Key::Name(name(&node.value)?)),
            Content::Map { members, key } => match key.take() {
                Some(Key::Name(name)) => {
                    if members.contains_key(&name) && self.duplicates.len() < DUPLICATES_MAX {
                        self.duplicates.push(path(&self.open, &name));
                    }
                    members.insert(name, node.value);
                }
                _ => merge(members, node.value)?,
            },
        }
        self.open.push(collection);
        Ok(())
    }
}

fn too_deep() -> String {
    format!("it nests more than {JSON_DEPTH_MAX} levels deep")
}

fn size(value: &Value) -> Size {
    let mut sum = Size { values: 1, bytes: 0, depth: 0 };
    let mut add = |part: &Value| {
        let part = size(part);
        sum.values += part.values;
        sum.bytes += part.bytes;
        sum.depth = sum.depth.max(part.depth + 1);
    };
    match value {
        Value::Array(items) => items.iter().for_each(add),
        Value::Object(members) => {
            members.values().for_each(&mut add);
            sum.values += members.len();
            sum.bytes += members.keys().map(String::len).sum::<usize>();
        }
        Value::String(text) => sum.bytes += text.len(),
        _ => {}
    }
    sum
}

/// The path of a member of the map that is in the innermost of these collections.
fn path(open: &[Collection], last: &str) -> String {
    let mut path = String::new();
    for collection in open {
        match &collection.content {
            Content::List(items) => {
                write!(path, "[{}]", items.len()).expect("a text takes what is written");
            }
            Content::Map { key: Some(Key::Name(name)), .. } => push_member(&mut path, name),
            Content::Map { .. } => push_member(&mut path, "<<"),
        }
    }
    push_member(&mut path, last);
    path
}

fn push_member(path: &mut String, name: &str) {
    if !path.is_empty() {
        path.push('.');
    }
    path.push_str(name);
}

/// Merges the value of a key `<<`: a map, or maps of which the first has precedence.
fn merge(members: &mut Members, value: Value) -> Result<(), String> {
    let maps = match value {
        Value::Array(maps) => maps,
        map => vec![map],
    };
    for map in maps.into_iter().rev() {
        let Value::Object(map) = map else {
            return Err("the value of a key << is not a map or a list of maps".to_owned());
        };
        members.extend(map);
    }
    Ok(())
}

/// The text of a key.
fn name(key: &Value) -> Result<String, String> {
    match key {
        Value::String(text) => Ok(text.clone()),
        Value::Number(number) if number.is_f64() => {
            Ok(float_name(number.as_f64().expect("is a float")))
        }
        Value::Number(number) if !number.is_i64() => {
            Err(format!("a key of a map is the number {number}, which is too large"))
        }
        Value::Number(_) | Value::Bool(_) => Ok(key.to_string()),
        Value::Null | Value::Array(_) | Value::Object(_) => {
            Err("a key of a map is not a text, a number or a boolean".to_owned())
        }
    }
}

/// A float as a key, with the seven digits that Kubernetes keeps of it.
fn float_name(float: f64) -> String {
    #[expect(clippy::cast_possible_truncation, reason = "Kubernetes writes it so")]
    let short = float as f32;
    let scientific = format!("{short:e}");
    let (digits, exponent) = scientific.split_once('e').expect("has an exponent");
    let exponent: i32 = exponent.parse().expect("is a number");
    if (-4..6).contains(&exponent) {
        return short.to_string();
    }
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{digits}e{sign}{:02}", exponent.abs())
}

/// The value of a scalar.
fn resolve(text: Cow<'_, str>, is_plain: bool, tag: Option<&Tag>) -> Result<Value, String> {
    let Some(tag) = tag else {
        return if is_plain { plain(&text) } else { Ok(text.into_owned().into()) };
    };
    let core = tag.handle().strip_prefix(CORE_TAGS).filter(|rest| rest.is_empty());
    let name = core.map_or("", |_| tag.suffix());
    let fits: fn(&Value) -> bool = match name {
        "null" => Value::is_null,
        "bool" => Value::is_boolean,
        "int" => |value| value.is_i64() || value.is_u64(),
        "float" => Value::is_number,
        "binary" => return binary(&text),
        _ => return Ok(text.into_owned().into()),
    };
    let value = plain(&text)?;
    if !fits(&value) {
        return Err(format!("{text:?} cannot be read as a !!{name}"));
    }
    Ok(value)
}

fn binary(text: &str) -> Result<Value, String> {
    let digits: String = text.split_ascii_whitespace().collect();
    let bytes = STANDARD.decode(digits).map_err(|error| format!("a !!binary value: {error}"))?;
    Ok(String::from_utf8_lossy(&bytes).into_owned().into())
}

/// The value of a scalar without quotes.
fn plain(text: &str) -> Result<Value, String> {
    Ok(match text {
        "" | "~" | "null" | "Null" | "NULL" => Value::Null,
        "y" | "Y" | "yes" | "Yes" | "YES" | "true" | "True" | "TRUE" | "on" | "On" | "ON" => {
            true.into()
        }
        "n" | "N" | "no" | "No" | "NO" | "false" | "False" | "FALSE" | "off" | "Off" | "OFF" => {
            false.into()
        }
        _ => match text.as_bytes()[0] {
            b'+' | b'-' | b'.' | b'0'..=b'9' => number(text)?,
            _ => text.into(),
        },
    })
}

/// The value of a plain scalar that begins like a number.
fn number(text: &str) -> Result<Value, String> {
    let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
    if let ".inf" | ".Inf" | ".INF" | ".nan" | ".NaN" | ".NAN" = unsigned {
        return Err(format!("{text} cannot be a value: JSON has no such number"));
    }
    let digits = text.replace('_', "");
    if !text.starts_with('.')
        && let Some(integer) = integer(&digits)
    {
        return Ok(Value::Number(integer));
    }
    let is_separated = !text.starts_with('.') || underscores_separate_digits(text);
    let float = (is_separated && is_float(&digits)).then(|| digits.parse::<f64>().ok()).flatten();
    Ok(match float.filter(|float| float.is_finite()) {
        Some(float) => whole_or_float(float),
        None => text.into(),
    })
}

/// Returns `true` if each underscore stands between two digits.
fn underscores_separate_digits(text: &str) -> bool {
    let is_digit = |part: Option<char>| part.is_some_and(|char| char.is_ascii_digit());
    let parts: Vec<&str> = text.split('_').collect();
    parts
        .windows(2)
        .all(|pair| is_digit(pair[0].chars().next_back()) && is_digit(pair[1].chars().next()))
}

/// An integer as Go reads it: decimal, or with a prefix that gives another base.
fn integer(text: &str) -> Option<Number> {
    let is_negative = text.starts_with('-');
    let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
    let (base, digits) = match unsigned.as_bytes() {
        [b'0', b'x' | b'X', ..] => (16, &unsigned[2..]),
        [b'0', b'o' | b'O', ..] => (8, &unsigned[2..]),
        [b'0', b'b' | b'B', ..] => (2, &unsigned[2..]),
        [b'0', _, ..] => (8, &unsigned[1..]),
        _ => (10, unsigned),
    };
    // A sign may stand only in front of the prefix.
    if !digits.starts_with(|first: char| first.is_ascii_hexdigit()) {
        return None;
    }
    let value = u64::from_str_radix(digits, base).ok()?;
    if is_negative {
        return 0_i64.checked_sub_unsigned(value).map(Number::from);
    }
    Some(value.into())
}

/// Returns `true` if the text is a decimal number with an optional fraction and exponent.
fn is_float(text: &str) -> bool {
    let text = text.strip_prefix(['+', '-']).unwrap_or(text);
    let (mantissa, exponent) = match text.split_once(['e', 'E']) {
        Some((mantissa, exponent)) => (mantissa, Some(exponent)),
        None => (text, None),
    };
    let all_digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let has_digits = !(whole.is_empty() && fraction.is_empty());
    let exponent_fits = exponent.is_none_or(|exponent| {
        let digits = exponent.strip_prefix(['+', '-']).unwrap_or(exponent);
        !digits.is_empty() && all_digits(digits)
    });
    has_digits && all_digits(whole) && all_digits(fraction) && exponent_fits
}

/// JSON has one kind of number: a float without a fraction is written as an integer.
fn whole_or_float(float: f64) -> Value {
    const EXACT: f64 = 9_007_199_254_740_992.0;
    if float.fract() == 0.0 && float.abs() <= EXACT {
        #[expect(clippy::cast_possible_truncation, reason = "is a whole number within 2^53")]
        return Value::from(float as i64);
    }
    Value::from(float)
}

#[cfg(test)]
mod tests;
