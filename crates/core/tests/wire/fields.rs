//! Field selectors (W27).

use masthead_core::{FieldSelector, Object, Resource, Scope, SelectableField};
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::fixture;

fn resource(name: &str) -> Resource {
    match name {
        "pods" => Resource::pods(),
        "configmaps" => Resource::new("", "v1", "configmaps", "ConfigMap", Scope::Namespaced),
        "nodes" => Resource::new("", "v1", "nodes", "Node", Scope::Cluster)
            .with_fields(vec![SelectableField::at("spec.unschedulable").or("false")]),
        other => panic!("no resource {other:?}"),
    }
}

#[test]
fn w27_selectors_read_and_match_as_in_kubernetes() {
    fixture::run("field_selectors.txt", |directive, input| {
        let (directive, resource) =
            directive.split_once(' ').map(|(d, r)| (d, self::resource(r))).unwrap();
        match directive {
            "parse" => match FieldSelector::parse(input, &resource) {
                Ok(selector) if selector.is_everything() => "everything".to_owned(),
                Ok(selector) => {
                    let again = FieldSelector::parse(&selector.to_string(), &resource);
                    assert_eq!(again.as_ref(), Ok(&selector), "{input}");
                    selector.to_string()
                }
                Err(error) => format!("error: {error}"),
            },
            "match" => {
                let (selector, objects) = input.split_once('\n').unwrap();
                let selector = FieldSelector::parse(selector, &resource).unwrap();
                let answer = |line: &str| {
                    let object = Object::parse(&resource, line.to_owned().into()).unwrap();
                    if selector.matches(&object) { "yes" } else { "no" }
                };
                objects.lines().map(answer).collect::<Vec<_>>().join("\n")
            }
            other => panic!("no directive {other:?}"),
        }
    });
}

#[test]
fn equalities_are_what_an_index_can_look_up() {
    let pods = Resource::pods();
    let text = "spec.nodeName=n,status.phase!=Failed,metadata.namespace==a,metadata.name!=b";
    let selector = FieldSelector::parse(text, &pods).unwrap();
    let node = pods.field_index("spec.nodeName").unwrap();
    assert_eq!(selector.equalities().collect::<Vec<_>>(), [(node, "n")]);
    assert_eq!((selector.namespace(), selector.name()), (Some("a"), None));
}

/// Where a pod's field is, and what it is if absent; looked up in a decoded value.
const FIELDS: [(&str, &str, &str); 4] = [
    ("metadata.name", "/metadata/name", ""),
    ("metadata.namespace", "/metadata/namespace", ""),
    ("spec.nodeName", "/spec/nodeName", ""),
    ("spec.hostNetwork", "/spec/hostNetwork", "false"),
];

fn naive(pod: &Value, (field, negated, value): &(usize, bool, String)) -> bool {
    let (_, pointer, default) = FIELDS[*field];
    let found = match pod.pointer(pointer) {
        None | Some(Value::Null) => default.to_owned(),
        Some(Value::String(text)) => text.clone(),
        Some(other) => other.to_string(),
    };
    (found == *value) != *negated
}

fn term() -> impl Strategy<Value = (usize, bool, String)> {
    (0..FIELDS.len(), any::<bool>(), "[ab]|true|false||[\\\\,=]a?")
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn selectors_agree_with_a_naive_matcher(
        terms in prop::collection::vec(term(), 0..4),
        node in prop::option::of("[ab]?|[\\\\,=]a?"),
        host in prop::option::of(any::<bool>()),
        (name, namespace) in ("[ab]", "[ab]"),
        doubled in any::<bool>(),
    ) {
        let pod = json!({
            "metadata": {"name": name, "namespace": namespace},
            "spec": {"nodeName": node, "hostNetwork": host},
        });
        let write = |(field, negated, value): &(usize, bool, String)| {
            let operator = if *negated { "!=" } else if doubled { "==" } else { "=" };
            let mut escaped = value.replace('\\', "\\\\");
            escaped = escaped.replace(',', "\\,").replace('=', "\\=");
            format!("{}{operator}{escaped}", FIELDS[*field].0)
        };
        let text = terms.iter().map(write).collect::<Vec<_>>().join(",");
        let pods = Resource::pods();
        let selector = FieldSelector::parse(&text, &pods).unwrap();
        let again = FieldSelector::parse(&selector.to_string(), &pods).unwrap();
        prop_assert_eq!(&again, &selector);
        let object = Object::parse(&pods, pod.to_string().into()).unwrap();
        let expected = terms.iter().all(|term| naive(&pod, term));
        prop_assert_eq!(selector.matches(&object), expected, "{} on {}", text, pod);
    }

    #[test]
    fn any_text_is_refused_or_comes_back(
        text in r"(metadata\.name|spec\.nodeName|[a,=!\\]){0,12}",
    ) {
        let pods = Resource::pods();
        if let Ok(selector) = FieldSelector::parse(&text, &pods) {
            let again = FieldSelector::parse(&selector.to_string(), &pods);
            prop_assert_eq!(again, Ok(selector), "{}", text);
        }
    }
}
