//! YAML as Kubernetes reads it: recorded readings, limits, duplicate keys.

use std::fmt::Write as _;

use super::*;

/// Differences from Kubernetes that are meant: a text, and whether it is accepted here.
const MEANT: [(&str, bool); 4] = [
    // The end of a document that is empty.
    ("...\n", true),
    // A tab in front of the first key of a document misleads nobody.
    ("\ta: b\n", true),
    // The second document would be dropped in silence.
    ("a: 1\n---\nb: 2\n", false),
    // A key that is null or not finite: an empty name says no more than an error.
    (".inf: i\n", false),
];

#[test]
fn w32a_yaml_is_read_as_kubernetes_reads_it() {
    let mut wrong = String::new();
    for line in include_str!("kubernetes.tsv").lines().filter(|line| !line.starts_with('#')) {
        let (text, expected) = line.split_once('\t').unwrap();
        let text: String = serde_json::from_str::<String>(text).unwrap() + "\n";
        let read = read(&text);
        if let Some((_, is_accepted)) = MEANT.iter().find(|(meant, _)| *meant == text) {
            assert_eq!(read.is_ok(), *is_accepted, "{text:?}");
            continue;
        }
        let is_right = match (&read, expected) {
            (Err(_), "error") => true,
            (Ok(document), expected) if expected != "error" => {
                same(&document.value, &serde_json::from_str(expected).unwrap())
            }
            _ => false,
        };
        if !is_right {
            let read = read.map(|document| document.value.to_string());
            writeln!(wrong, "{text:?}: {read:?}, expected {expected}").unwrap();
        }
    }
    assert!(wrong.is_empty(), "\n{wrong}");
}

/// Compares values. Large floats are equal if they are the same float, however they are written.
fn same(left: &Value, right: &Value) -> bool {
    match (left, right) {
        (Value::Object(left), Value::Object(right)) => {
            left.len() == right.len()
                && left.iter().all(|(key, value)| right.get(key).is_some_and(|it| same(value, it)))
        }
        (Value::Array(left), Value::Array(right)) => {
            left.len() == right.len() && left.iter().zip(right).all(|(a, b)| same(a, b))
        }
        (Value::Number(left), Value::Number(right)) if left.is_f64() || right.is_f64() => {
            left.as_f64() == right.as_f64()
        }
        _ => left == right,
    }
}

#[test]
fn keys_that_stand_twice_are_reported_with_their_path() {
    let document = read("a:\n- b: {c: 1, c: 2}\n  d: 1\n- d: 1\n  d: 2\n").unwrap();
    assert_eq!(document.duplicates, ["a[0].b.c", "a[1].d"]);
    assert_eq!(document.value.to_string(), r#"{"a":[{"b":{"c":2},"d":1},{"d":2}]}"#);
}

#[test]
fn what_aliases_repeat_is_bounded_at_its_limit() {
    let text = "x".repeat(YAML_COPIED_BYTES_MAX / 4);
    // The anchor keeps one copy.
    let aliases = |n: usize| format!("a: &a {text}\nb: [{}]\n", "*a,".repeat(n));
    assert!(read(&aliases(3)).is_ok());
    assert!(read(&aliases(4)).is_err());
}

#[test]
fn values_that_aliases_repeat_are_bounded() {
    let mut text = "a0: &a0 [1,1,1,1,1,1,1,1,1,1]\n".to_owned();
    for level in 1..12 {
        let aliases = format!("*a{},", level - 1).repeat(10);
        writeln!(text, "a{level}: &a{level} [{aliases}]").unwrap();
    }
    let refused = read(&text).unwrap_err();
    assert!(refused.contains("keys and values"), "{refused}");
}

#[test]
fn nested_anchors_do_not_multiply_what_they_hold() {
    let open: Vec<_> = (0..60).map(|level| format!("&a{level} [")).collect();
    let open = open.concat();
    let text = format!("{open}{}{}", "1,".repeat(100_000), "]".repeat(60));
    let refused = read(&text).unwrap_err();
    assert!(refused.contains("keys and values"), "{refused}");
}

#[test]
fn levels_are_bounded_at_their_limit_also_through_aliases() {
    let nested = |levels: usize| format!("{}1{}", "[".repeat(levels), "]".repeat(levels));
    assert!(read(&nested(JSON_DEPTH_MAX)).is_ok());
    assert!(read(&nested(JSON_DEPTH_MAX + 1)).is_err());
    let half = nested(JSON_DEPTH_MAX / 2 - 2);
    let through_alias = |levels: usize| {
        format!("a: &a {half}\nb: {}*a{}\n", "[".repeat(levels), "]".repeat(levels))
    };
    assert!(read(&through_alias(JSON_DEPTH_MAX / 2)).is_ok());
    assert!(read(&through_alias(JSON_DEPTH_MAX / 2 + 10)).is_err());
}
