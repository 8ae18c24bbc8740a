//! Label and field selectors, as naive as they can be.
//!
//! This is an oracle: it shares no code with any other crate, works on whole strings, and favours
//! the shape of the grammar over speed. The grammar is Kubernetes' own, with its corners: `in ()`
//! holds the empty value, `a=` compares with the empty value, the words `in` and `notin` are
//! operators only after a key.

mod syntax;

use std::collections::BTreeMap;

use syntax::{Token, label_key, label_value, tokens};

/// A parsed label selector: all of its terms must hold.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LabelSelector {
    terms: Vec<LabelTerm>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct LabelTerm {
    key: String,
    test: LabelTest,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum LabelTest {
    Exists,
    Absent,
    /// `=`, `==` and `in`.
    In(Vec<String>),
    /// `!=` and `notin`.
    NotIn(Vec<String>),
    Above(i64),
    Below(i64),
}

impl LabelSelector {
    /// Reads a selector. The empty one selects everything.
    pub fn parse(text: &str) -> Result<Self, String> {
        let tokens = tokens(text);
        let mut rest = tokens.as_slice();
        let mut terms = Vec::new();
        if rest.is_empty() {
            return Ok(Self::default());
        }
        loop {
            terms.push(label_term(&mut rest)?);
            match rest {
                [] => return Ok(Self { terms }),
                [Token::Comma, tail @ ..] => rest = tail,
                [other, ..] => return Err(format!("found {other}, expected `,` or the end")),
            }
        }
    }

    /// Whether an object with these labels is selected.
    pub fn matches(&self, labels: &BTreeMap<String, String>) -> bool {
        self.terms.iter().all(|term| {
            let value = labels.get(&term.key);
            let number = value.and_then(|value| value.parse::<i64>().ok());
            match &term.test {
                LabelTest::Exists => value.is_some(),
                LabelTest::Absent => value.is_none(),
                LabelTest::In(wanted) => value.is_some_and(|value| wanted.contains(value)),
                LabelTest::NotIn(refused) => value.is_none_or(|value| !refused.contains(value)),
                LabelTest::Above(bound) => number.is_some_and(|number| number > *bound),
                LabelTest::Below(bound) => number.is_some_and(|number| number < *bound),
            }
        })
    }
}

/// Takes one term off the front: `k`, `!k`, or a key, an operator and what it compares with.
fn label_term(rest: &mut &[Token]) -> Result<LabelTerm, String> {
    let negated = take(rest, &Token::Not);
    let key = match take_word(rest) {
        Some(word) => label_key(word)?,
        None => return Err(format!("found {}, expected a key", shown(rest))),
    };
    if negated {
        return Ok(LabelTerm { key, test: LabelTest::Absent });
    }
    let Some((operator, tail)) = rest.split_first() else {
        return Ok(LabelTerm { key, test: LabelTest::Exists });
    };
    if *operator == Token::Comma {
        return Ok(LabelTerm { key, test: LabelTest::Exists });
    }
    *rest = tail;
    let test = match operator {
        Token::Equal | Token::DoubleEqual => LabelTest::In(vec![exact_value(rest)?]),
        Token::NotEqual => LabelTest::NotIn(vec![exact_value(rest)?]),
        Token::Above => LabelTest::Above(integer(&exact_value(rest)?)?),
        Token::Below => LabelTest::Below(integer(&exact_value(rest)?)?),
        Token::Word(word) if word == "in" => LabelTest::In(value_set(rest)?),
        Token::Word(word) if word == "notin" => LabelTest::NotIn(value_set(rest)?),
        other => return Err(format!("found {other}, expected an operator")),
    };
    Ok(LabelTerm { key, test })
}

/// The value after `=` and its kind. Nothing there means the empty value.
fn exact_value(rest: &mut &[Token]) -> Result<String, String> {
    match rest.first() {
        None | Some(Token::Comma) => Ok(String::new()),
        Some(_) => match take_word(rest) {
            Some(word) => label_value(word),
            None => Err(format!("found {}, expected a value", shown(rest))),
        },
    }
}

/// `(a, b)` after `in`. An empty place is the empty value, so `()` and `(a,)` hold it.
fn value_set(rest: &mut &[Token]) -> Result<Vec<String>, String> {
    if !take(rest, &Token::OpenParen) {
        return Err(format!("found {}, expected `(`", shown(rest)));
    }
    let mut values = Vec::new();
    loop {
        values.push(take_word(rest).map_or(Ok(String::new()), label_value)?);
        if take(rest, &Token::CloseParen) {
            return Ok(values);
        }
        if !take(rest, &Token::Comma) {
            return Err(format!("found {}, expected `,` or `)`", shown(rest)));
        }
    }
}

fn integer(text: &str) -> Result<i64, String> {
    text.parse().map_err(|_| format!("`{text}` is no integer"))
}

/// Takes `token` off the front if it is there.
fn take(rest: &mut &[Token], token: &Token) -> bool {
    match rest.split_first() {
        Some((first, tail)) if first == token => {
            *rest = tail;
            true
        }
        _ => false,
    }
}

fn take_word<'a>(rest: &mut &'a [Token]) -> Option<&'a str> {
    match rest.split_first() {
        Some((Token::Word(word), tail)) => {
            *rest = tail;
            Some(word)
        }
        _ => None,
    }
}

fn shown(rest: &[Token]) -> String {
    rest.first().map_or("the end".to_owned(), ToString::to_string)
}

/// A parsed field selector: all of its terms must hold.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FieldSelector {
    terms: Vec<FieldTerm>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct FieldTerm {
    field: String,
    equal: bool,
    value: String,
}

impl FieldSelector {
    /// Reads a selector. The empty one selects everything; blanks are part of names and values.
    pub fn parse(text: &str) -> Result<Self, String> {
        let parts = split_unescaped(text);
        let terms = parts.iter().filter(|part| !part.is_empty()).map(|part| field_term(part));
        Ok(Self { terms: terms.collect::<Result<_, _>>()? })
    }

    /// Whether an object with these fields is selected. A field that is not there is empty.
    pub fn matches(&self, fields: &BTreeMap<String, String>) -> bool {
        self.matches_with(|field| fields.get(field).map(String::as_str))
    }

    /// The same for fields that are looked up.
    pub(crate) fn matches_with<'a>(&self, lookup: impl Fn(&str) -> Option<&'a str>) -> bool {
        self.terms
            .iter()
            .all(|term| (lookup(&term.field).unwrap_or_default() == term.value) == term.equal)
    }
}

/// Cuts at commas that no backslash stands before.
fn split_unescaped(text: &str) -> Vec<String> {
    let mut parts = vec![String::new()];
    let mut escaped = false;
    for character in text.chars() {
        if character == ',' && !escaped {
            parts.push(String::new());
        } else if let Some(part) = parts.last_mut() {
            part.push(character);
        }
        escaped = character == '\\' && !escaped;
    }
    parts
}

/// The first operator in the term counts; the name before it knows no escapes.
fn field_term(term: &str) -> Result<FieldTerm, String> {
    let (at, operator) = term
        .char_indices()
        .find_map(|(at, _)| {
            let found = ["!=", "==", "="].into_iter().find(|op| term[at..].starts_with(op));
            found.map(|operator| (at, operator))
        })
        .ok_or_else(|| format!("`{term}` has no operator"))?;
    let value = unescape(&term[at + operator.len()..])?;
    Ok(FieldTerm { field: term[..at].to_owned(), equal: operator != "!=", value })
}

fn unescape(text: &str) -> Result<String, String> {
    let mut value = String::new();
    let mut characters = text.chars();
    while let Some(character) = characters.next() {
        match character {
            '\\' => match characters.next() {
                Some(escaped @ ('\\' | ',' | '=')) => value.push(escaped),
                _ => return Err(format!("`{text}` has an escape other than `\\\\`, `\\,`, `\\=`")),
            },
            ',' | '=' => return Err(format!("`{text}` has a bare `{character}`")),
            other => value.push(other),
        }
    }
    Ok(value)
}

#[cfg(test)]
mod tests;
