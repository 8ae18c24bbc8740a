//! Heads of objects: they hold what the body says, and refuse what is no object.

use proptest::prelude::*;

use super::*;
use crate::SelectableField;
use crate::limits::{
    COMMON_AT, COMMON_BYTES_MAX, COMMON_STRINGS_MAX, JSON_DEPTH_MAX, LABELS_MAX, OWNERS_MAX,
};

const POD: &str = r#"{"kind":"Pod","apiVersion":"v1","metadata":{"name":"web","namespace":"shop","uid":"u-1","resourceVersion":"41","labels":{"app":"web","tier":"front"},"ownerReferences":[{"apiVersion":"apps/v1","kind":"ReplicaSet","name":"rs","uid":"o-1"},{"apiVersion":"apps/v1","kind":"ReplicaSet","name":"rs2","uid":"o-2","controller":true}],"deletionTimestamp":"2026-06-01T00:00:00Z"},"spec":{"nodeName":"n-1","hostNetwork":true},"status":{"phase":"Running"}}"#;

fn pod(body: &str) -> Result<Object, ParseError> {
    Object::parse(&Resource::pods(), Bytes::copy_from_slice(body.as_bytes()))
}

fn field<'a>(object: &'a Object, label: &str) -> Option<&'a str> {
    object.field(Resource::pods().field_index(label).unwrap())
}

#[test]
fn the_head_holds_what_the_body_says() {
    let pod = pod(POD).unwrap();
    assert_eq!(pod.key().as_str(), "shop/web");
    assert_eq!((pod.uid(), pod.revision(), pod.resource_version()), ("u-1", Revision(41), "41"));
    assert_eq!(pod.labels().collect::<Vec<_>>(), [("app", "web"), ("tier", "front")]);
    assert_eq!((pod.label("tier"), pod.label("none")), (Some("front"), None));
    assert_eq!(pod.deletion_timestamp(), Some("2026-06-01T00:00:00Z"));
    assert_eq!(field(&pod, "spec.nodeName"), Some("n-1"));
    assert_eq!(field(&pod, "spec.hostNetwork"), Some("true"));
    assert_eq!(field(&pod, "status.podIP"), None);
    let owners: Vec<_> = pod.owners().map(|o| (o.name, o.uid, o.controller)).collect();
    assert_eq!(owners, [("rs", "o-1", false), ("rs2", "o-2", true)]);
    assert!(pod.metadata().starts_with(b"{\"name\"") && pod.metadata().ends_with(b"Z\"}"));
}

#[test]
fn escapes_in_the_head_are_read_as_what_they_mean() {
    let pod = pod(&POD.replace("\"front\"", "\"fr\\u006fnt\"").replace("n-1", "n\\/1")).unwrap();
    assert_eq!(pod.label("tier"), Some("front"));
    assert_eq!(field(&pod, "spec.nodeName"), Some("n/1"));
    let later = pod.with_revision(Revision(1_000_000));
    assert_eq!((later.resource_version(), later.label("tier")), ("1000000", Some("front")));
    assert_eq!(field(&later, "spec.nodeName"), Some("n/1"));
}

#[test]
fn nulls_are_absent_and_the_last_duplicate_counts() {
    let body = r#"{"kind":"Pod","apiVersion":"v1","metadata":{"name":"a","namespace":"b","labels":null,"ownerReferences":null,"deletionTimestamp":null,"labels":{"x":"1","x":"2"}},"spec":{"nodeName":null}}"#;
    let pod = pod(body).unwrap();
    assert_eq!((pod.label("x"), pod.deletion_timestamp()), (Some("2"), None));
    assert_eq!((field(&pod, "spec.nodeName"), pod.resource_version()), (None, ""));
}

#[test]
fn a_field_with_two_paths_takes_the_first_that_has_a_value() {
    let source = SelectableField {
        label: "source".into(),
        paths: vec!["source.component".into(), "reportingComponent".into()],
        default: String::new(),
    };
    let events =
        Resource::new("", "v1", "events", "Event", Scope::Namespaced).with_fields(vec![source]);
    for (body, expected) in [
        (r#""source":{"component":"kubelet"},"reportingComponent":"x""#, Some("kubelet")),
        (r#""reportingComponent":"x","source":{"component":"kubelet"}"#, Some("kubelet")),
        (r#""reportingComponent":"x","source":{"component":""}"#, Some("x")),
        (r#""source":{"component":""},"reportingComponent":"x""#, Some("x")),
        (r#""source":{}"#, None),
    ] {
        let body = format!(r#"{{"metadata":{{"name":"e","namespace":"n"}},{body}}}"#);
        let event = Object::parse(&events, body.clone().into()).unwrap();
        assert_eq!(event.field(0), expected, "{body}");
    }
}

#[test]
fn list_items_get_their_kind_and_do_not_share_the_page() {
    let item = r#" {"metadata":{"name":"web","namespace":"shop"}}"#;
    let taken = Object::from_list_item(&Resource::pods(), item.as_bytes()).unwrap();
    let text = str::from_utf8(taken.body()).unwrap();
    assert_eq!(
        text.trim(),
        r#"{"kind":"Pod","apiVersion":"v1","metadata":{"name":"web","namespace":"shop"}}"#
    );
    let whole = Object::from_list_item(&Resource::pods(), POD.as_bytes()).unwrap();
    assert_eq!(whole.body(), POD);
    let escaped = POD.replacen("\"app\":\"web\"", "\"app\":\"w\\u0065b\"", 1);
    for text in [POD, &escaped] {
        let item = text.replacen(r#""kind":"Pod","apiVersion":"v1","#, "", 1);
        let taken = Object::from_list_item(&Resource::pods(), item.as_bytes()).unwrap();
        let read = pod(text).unwrap();
        assert_eq!((taken.body(), taken.key(), taken.uid()), (read.body(), read.key(), read.uid()));
        assert_eq!(taken.metadata(), read.metadata());
        assert_eq!(taken.deletion_timestamp(), read.deletion_timestamp());
        assert!(taken.labels().eq(read.labels()) && taken.owners().eq(read.owners()));
        assert_eq!(field(&taken, "spec.nodeName"), Some("n-1"));
        assert_eq!(field(&taken, "spec.schedulerName"), field(&read, "spec.schedulerName"));
        let later = Revision(77);
        assert_eq!(taken.with_revision(later).body(), read.with_revision(later).body());
    }
}

#[test]
fn malformed_objects_are_refused_with_the_reason() {
    let cases = [
        ("", "expected an object"),
        ("[]", "expected an object"),
        ("{}", "no metadata"),
        (r#"{"metadata":{"name":"a","namespace":"b"}"#, "expected ',' or '}'"),
        (r#"{"metadata":{"name":"a","namespace":"b"}} x"#, "text after the value"),
        (r#"{"metadata":{"name":7,"namespace":"b"}}"#, "expected a string"),
        (r#"{"metadata":{"name":"a","labels":{"x":1}}}"#, "expected a string"),
        (r#"{"metadata":{"name":"a","resourceVersion":1}}"#, "expected a string"),
        (r#"{"metadata":{"name":"\ud800","namespace":"b"}}"#, "escapes name no character"),
        (r#"{"metadata":null}"#, "expected an object"),
    ];
    for (body, reason) in cases {
        match pod(body) {
            Err(ParseError::Json { what, .. }) => assert_eq!(what, reason, "{body}"),
            other => panic!("{body}: {other:?}"),
        }
    }
    let kind = r#"{"kind":"Node","apiVersion":"v1","metadata":{"name":"a","namespace":"b"}}"#;
    assert!(matches!(pod(kind), Err(ParseError::WrongKind { .. })));
    assert!(matches!(pod(r#"{"metadata":{"namespace":"b"}}"#), Err(ParseError::Key(_))));
    assert!(matches!(pod(r#"{"metadata":{"name":"b"}}"#), Err(ParseError::Scope { .. })));
    let utf8 = Object::parse(&Resource::pods(), Bytes::from_static(b"{\"a\":\"\xff\"}"));
    assert!(matches!(utf8, Err(ParseError::Utf8 { at: 6 })));
}

#[test]
fn limits_hold_at_n_and_break_at_n_plus_one() {
    let labels = |n: usize| (0..n).map(|i| format!("\"l{i}\":\"\"")).collect::<Vec<_>>().join(",");
    let owners = |n: usize| vec!["{\"uid\":\"u\"}"; n].join(",");
    let body = |l, o| {
        let (l, o) = (labels(l), owners(o));
        format!(
            r#"{{"metadata":{{"name":"a","namespace":"b","labels":{{{l}}},"ownerReferences":[{o}]}}}}"#
        )
    };
    assert!(pod(&body(LABELS_MAX, OWNERS_MAX)).is_ok());
    assert!(matches!(pod(&body(LABELS_MAX + 1, 0)), Err(ParseError::TooLarge { .. })));
    assert!(matches!(pod(&body(0, OWNERS_MAX + 1)), Err(ParseError::TooLarge { .. })));
    let deep = |n: usize| {
        let (open, close) = ("[".repeat(n), "]".repeat(n));
        format!(r#"{{"metadata":{{"name":"a","namespace":"b"}},"x":{open}{close}}}"#)
    };
    assert!(pod(&deep(JSON_DEPTH_MAX - 1)).is_ok());
    assert!(matches!(pod(&deep(JSON_DEPTH_MAX)), Err(ParseError::Json { .. })));
}

#[test]
fn debug_shows_no_content() {
    assert_eq!(format!("{:?}", pod(POD).unwrap()), "shop/web@41");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    /// Splicing equals writing the body with the other revision and parsing that.
    #[test]
    fn a_spliced_revision_reads_like_a_parsed_one(
        first in prop::option::of(0_u64..u64::MAX),
        second in 0_u64..u64::MAX,
        third in 0_u64..2000,
        labels_last in any::<bool>(),
    ) {
        let rv = |rv: Option<u64>| rv.map_or(String::new(), |rv| format!("\"resourceVersion\":\"{rv}\","));
        let (a, b) = (r#""labels":{"app":"web"},"#, r#""uid":"u-9","#);
        let body = |at| {
            let (front, back) = if labels_last { (b, a) } else { (a, b) };
            let rv = rv(at);
            // Without one the member is added first, so put it first there to compare bytes.
            let (rv, front) = if first.is_none() { (front, rv.as_str()) } else { (rv.as_str(), front) };
            format!(r#"{{"kind":"Pod","apiVersion":"v1","metadata":{{{front}{rv}{back}"name":"x","namespace":"y"}},"spec":{{"nodeName":"n"}}}}"#)
        };
        let object = pod(&body(first)).unwrap();
        for at in [second, third] {
            let spliced = object.with_revision(Revision(second)).with_revision(Revision(at));
            let parsed = pod(&body(Some(at))).unwrap();
            prop_assert_eq!(spliced.body(), parsed.body());
            prop_assert_eq!(spliced.revision(), Revision(at));
            prop_assert_eq!(spliced.resource_version(), parsed.resource_version());
            prop_assert_eq!(spliced.uid(), "u-9");
            prop_assert_eq!(spliced.label("app"), Some("web"));
            prop_assert_eq!(field(&spliced, "spec.nodeName"), Some("n"));
            prop_assert_eq!(spliced.metadata(), parsed.metadata());
        }
    }

    /// Any cut of a body is an error, never a panic.
    #[test]
    fn a_cut_body_is_refused(cut in 0..POD.len()) {
        prop_assert!(pod(&POD[..cut]).is_err());
    }

    /// Any single byte changed gives an object or an error, never a panic.
    #[test]
    fn a_damaged_body_never_panics(at in 0..POD.len(), byte in any::<u8>()) {
        let mut body = POD.as_bytes().to_vec();
        body[at] = byte;
        if let Ok(object) = Object::parse(&Resource::pods(), body.into()) {
            let _ = (object.labels().count(), object.owners().count(), object.uid());
        }
    }
}

#[test]
fn of_two_metadata_the_last_counts_alone() {
    let first =
        r#""metadata":{"name":"a","namespace":"b","resourceVersion":"1","labels":{"x":"y"}}"#;
    let both = |last: &str| format!(r#"{{{first},"metadata":{last}}}"#);
    assert!(matches!(pod(&both("{}")), Err(ParseError::Key(_))), "the last has no name");
    let pod = pod(&both(r#"{"name":"c","namespace":"d"}"#)).unwrap();
    assert_eq!((pod.key().as_str(), pod.resource_version(), pod.label("x")), ("d/c", "", None));
    let later = pod.with_revision(Revision(5));
    let read: serde_json::Value = serde_json::from_slice(later.body()).unwrap();
    assert_eq!(read["metadata"]["resourceVersion"], "5");
}

#[test]
fn an_object_that_is_held_in_another_form_keeps_its_head() {
    let escaped = POD.replacen("\"labels\":{", "\"labels\":{\"quoted\":\"a\\\"b\",", 1);
    for plain in [pod(POD).unwrap(), pod(&escaped).unwrap()] {
        let held = plain.held_as(std::sync::Arc::new(7_u32), 4, 0xfeed_u64);
        assert_eq!(held.content::<u32>().as_deref(), Some(&7));
        assert_eq!((held.content::<u64>(), plain.content::<u32>()), (None, None));
        assert_eq!((held.is_held(), plain.is_held()), (true, false));
        assert_eq!((held.key(), held.uid()), (plain.key(), plain.uid()));
        assert_eq!(held.resource_version(), plain.resource_version());
        assert_eq!(held.revision(), plain.revision());
        assert_eq!(held.deletion_timestamp(), plain.deletion_timestamp());
        assert!(held.labels().eq(plain.labels()) && held.owners().eq(plain.owners()));
        for at in 0..Resource::pods().fields().len() {
            assert_eq!(held.field(at), plain.field(at));
        }
        assert_eq!(held.body_bytes(), held.body().len() + 4);
        let later = held.with_created(Revision(1)).with_revision(Revision(99));
        assert_eq!((later.resource_version(), later.uid()), ("99", plain.uid()));
        assert_eq!(later.content::<u32>().as_deref(), Some(&7));
        let read: serde_json::Value = serde_json::from_slice(later.body()).unwrap();
        assert_eq!(read["metadata"]["resourceVersion"], "99");
    }
}

#[test]
fn of_a_body_that_is_not_here_the_digest_tells_whether_it_is_the_same() {
    let plain = pod(POD).unwrap();
    let held = |digest: u64| plain.held_as(std::sync::Arc::new(()), 0, digest);
    assert_eq!(held(1).body(), held(1).body());
    assert_ne!(held(1).body(), held(2).body());
    assert_eq!((held(1).has_digest(1), held(1).has_digest(2)), (true, false));
    assert!(!plain.has_digest(1));
}

#[test]
fn heads_whose_strings_are_common_say_the_same_and_take_less() {
    let mut common = CommonStrings::default();
    let last = *COMMON_AT.last().unwrap();
    let mut sizes = Vec::new();
    for n in 0..=last {
        let own = POD.replacen("\"labels\":{", &format!("\"labels\":{{\"own\":\"v{n}\","), 1);
        let plain = pod(&own).unwrap();
        let held = plain.held_with(std::sync::Arc::new(n), 8, n as u64, &mut common);
        assert!(held.labels().eq(plain.labels()) && held.owners().eq(plain.owners()));
        assert_eq!(held.label("own"), Some(format!("v{n}").as_str()));
        assert_eq!((held.uid(), held.resource_version()), (plain.uid(), plain.resource_version()));
        assert_eq!(held.deletion_timestamp(), plain.deletion_timestamp());
        for at in 0..Resource::pods().fields().len() {
            assert_eq!(held.field(at), plain.field(at));
        }
        let later = held.with_revision(Revision(99));
        assert_eq!((later.resource_version(), later.label("own")), ("99", held.label("own")));
        sizes.push(held.head_bytes());
    }
    assert!(sizes[last] + 20 < sizes[0], "{} and {}", sizes[0], sizes[last]);
}

#[test]
fn a_string_within_another_is_held_once() {
    let sizes = ["web-5d9f", "db-77c01"].map(|owner| {
        let labels = format!(r#""labels":{{"whole":"web-5d9f-x7","part":"{owner}","#);
        let plain = pod(&POD.replacen("\"labels\":{", &labels, 1)).unwrap();
        let held = plain.held_as(std::sync::Arc::new(()), 0, 1);
        assert!(held.labels().eq(plain.labels()), "{owner}");
        held.head_bytes()
    });
    assert_eq!(sizes[0] + "web-5d9f".len(), sizes[1]);
}

#[test]
fn common_strings_hold_at_their_limit_and_not_above_it() {
    let mut common = CommonStrings::default();
    let long = "x".repeat(COMMON_BYTES_MAX / 2 - 1);
    let strings = [format!("a{long}"), format!("b{long}"), "c".to_owned()];
    for _ in 0..COMMON_AT[0] {
        common.see(strings.iter().map(String::as_str));
    }
    assert!(common.place(&strings[0]).is_some() && common.place(&strings[1]).is_some());
    assert_eq!(common.place("c"), None, "there is no room for one byte more");
    let mut common = CommonStrings::default();
    let numbers: Vec<_> = (0..=COMMON_STRINGS_MAX).map(|n| format!("{n:06}")).collect();
    for _ in 0..COMMON_AT[0] {
        common.see(numbers.iter().map(String::as_str));
    }
    assert!(common.place(&numbers[0]).is_some());
    assert_eq!(common.place(&numbers[COMMON_STRINGS_MAX]), None, "it was not counted");
}

#[test]
fn a_body_of_another_version_is_read_with_only_its_api_version_changed() {
    let v2 = Resource::new("ship.example", "v2", "sails", "Sail", Scope::Namespaced);
    let body = |kind: &str, version: &str| {
        format!(
            r#"{{"metadata":{{"name":"a","namespace":"b"}},"spec":{{"apiVersion":"x"}},"apiVersion":"{version}","kind":"{kind}"}}"#
        )
    };
    let read = |text: String| Object::parse_version(&v2, &text.into());
    let expected = body("Sail", "ship.example/v2");
    for version in ["ship.example/v2", "ship.example/v1", "ship.example/v1alpha1"] {
        assert_eq!(read(body("Sail", version)).unwrap().body_text(), expected, "{version}");
    }
    for (kind, version) in
        [("Mast", "ship.example/v1"), ("Sail", "boat.example/v1"), ("Sail", "v1")]
    {
        let error = read(body(kind, version)).unwrap_err();
        assert!(matches!(error, ParseError::WrongKind { .. }), "{kind} {version}");
    }
    let twice = body("Sail", "ship.example/v1").replace('}', r#","apiVersion":"v3"}"#);
    assert!(read(twice).is_err());
}
