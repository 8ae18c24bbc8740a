//! Walks the written histories: each says on its first line which rules it breaks, or `ok`.
//!
//! A fixture is a history in short: a line is the record's name and its fields as `name=value`; a
//! bare word is a flag that is on. `#` begins a comment. The set of rules that the checker names
//! must be exactly the set on the first line.

#![allow(clippy::unwrap_used, reason = "a test may fail by panicking, also in its helpers")]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use masthead_sim::{History, Record, Rule, check};
use serde_json::{Map, Value, json};

#[test]
fn every_written_history_breaks_the_rules_it_names_and_no_others() {
    let mut wrong = Vec::new();
    for (name, text) in fixtures() {
        let found = check(&parse(&name, &text));
        let rules: BTreeSet<Rule> = found.iter().map(|violation| violation.rule).collect();
        if rules != expected(&name, &text) {
            let found: Vec<_> = found.iter().map(|it| format!("\n    {it}")).collect();
            wrong.push(format!("{name}: found {rules:?}{}", found.concat()));
        }
    }
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}

#[test]
fn every_rule_has_a_history_that_keeps_it_and_one_that_breaks_it() {
    let fixtures = fixtures();
    for rule in Rule::ALL {
        let prefix = format!("{}_", rule.to_string().to_lowercase());
        let of_rule = || fixtures.iter().filter(|(name, _)| name.starts_with(&prefix));
        let broken = of_rule().any(|(name, text)| expected(name, text).contains(&rule));
        assert!(broken, "no history named {prefix}… breaks {rule}");
        assert!(of_rule().any(|(name, text)| expected(name, text).is_empty()), "none keeps {rule}");
    }
}

#[test]
fn a_written_history_survives_the_way_through_json() {
    for (name, text) in fixtures() {
        let history = parse(&name, &text);
        let mut bytes = Vec::new();
        history.write(&mut bytes).unwrap();
        let again = History::read(bytes.as_slice()).unwrap();
        assert!(history.records().eq(again.records()), "{name}");
    }
}

fn fixtures() -> BTreeMap<String, String> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/histories");
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let named = |path: &Path| path.file_name().unwrap().to_str().unwrap().to_owned();
    entries.map(|path| (named(&path), fs::read_to_string(&path).unwrap())).collect()
}

fn expected(name: &str, text: &str) -> BTreeSet<Rule> {
    let first = text.lines().next().unwrap_or_default();
    let rules = first.strip_prefix("# expect: ");
    let rules = rules.unwrap_or_else(|| panic!("{name} does not begin with `# expect: `"));
    let rules = rules.split_whitespace().filter(|rule| *rule != "ok");
    rules.map(|rule| rule.parse().unwrap_or_else(|text| panic!("{name}: {text}"))).collect()
}

/// Lines of the history keep their numbers, so that a violation points into the fixture.
fn parse(name: &str, text: &str) -> History {
    let lines = text.lines().enumerate().map(|(index, line)| {
        let line = line.split('#').next().unwrap_or_default();
        if line.trim().is_empty() {
            return String::new();
        }
        let record = record(line);
        serde_json::from_value::<Record>(record.clone())
            .unwrap_or_else(|error| panic!("{name}:{}: {error} in {record}", index + 1));
        record.to_string()
    });
    lines.collect::<Vec<_>>().join("\n").parse().unwrap()
}

fn record(line: &str) -> Value {
    let mut words = words(line).into_iter();
    let kind = words.next().unwrap();
    let mut object = Map::from_iter([("rec".to_owned(), json!(kind))]);
    for word in words {
        let (field, value) = match word.split_once('=') {
            Some((field, text)) => (field, value(&kind, field, text)),
            None if word == "off" => ("on", json!(false)),
            None => (word.as_str(), json!(true)),
        };
        object.insert(field.to_owned(), value);
    }
    Value::Object(object)
}

/// Cuts at blanks, but not inside of double quotes.
fn words(line: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut quoted = false;
    for character in line.chars() {
        match character {
            '"' => quoted = !quoted,
            ' ' if !quoted => words.push(String::new()),
            other => words.last_mut().unwrap().push(other),
        }
    }
    words.retain(|word| !word.is_empty());
    words
}

/// Fields whose values are numbers, whatever record they stand in.
const NUMBERS: &str = "rv t t0 t1 hash from limit oldest current value cap gen old_rv new_rv code \
    retry_after_ms saved";

fn value(record: &str, field: &str, text: &str) -> Value {
    let number = |text: &str| json!(text.parse::<u64>().unwrap());
    let parts = || text.split(',').filter(|part| !part.is_empty());
    match (record, field) {
        ("index", "value") => json!(text),
        ("commit", "labels" | "fields") => {
            parts().map(|part| part.split_once(':').unwrap()).map(own).collect()
        }
        ("list_resp", "items") => parts().map(item).collect(),
        ("index", "items" | "cached") => parts()
            .map(|part| part.split_once(':').unwrap())
            .map(|(k, rv)| json!([k, number(rv)]))
            .collect(),
        ("write", "precond") => match text.split_once(':').unwrap() {
            ("rv", rv) => json!({ "rv": number(rv) }),
            (name, text) => json!({ name: text }),
        },
        (_, field) if NUMBERS.split_whitespace().any(|name| name == field) => number(text),
        _ => json!(text),
    }
}

fn own((key, value): (&str, &str)) -> (String, Value) {
    (key.to_owned(), json!(value))
}

/// `key:uid:rv:hash`
fn item(text: &str) -> Value {
    let parts: Vec<_> = text.split(':').collect();
    let number = |place: usize| parts[place].parse::<u64>().unwrap();
    json!([parts[0], parts[1], number(2), number(3)])
}
