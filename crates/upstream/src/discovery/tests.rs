//! Names of resources as people type them.

use super::*;

fn served(group: &str, version: &str, plural: &str, kind: &str, short: &[&str]) -> Served {
    Served {
        resource: resource(group, version, plural, kind, true),
        singular: kind.to_lowercase(),
        short_names: short.iter().map(|it| (*it).to_owned()).collect(),
        verbs: vec!["list".into(), "watch".into()],
        categories: Vec::new(),
        preferred: version == "v1",
    }
}

fn world() -> Vec<Served> {
    vec![
        served("", "v1", "pods", "Pod", &["po"]),
        served("", "v1", "events", "Event", &["ev"]),
        served("events.k8s.io", "v1", "events", "Event", &["ev"]),
        served("apps", "v1beta1", "deployments", "Deployment", &["deploy"]),
        served("apps", "v1", "deployments", "Deployment", &["deploy"]),
        served("a.example", "v1", "things", "Thing", &[]),
        served("b.example", "v2", "things", "Thing", &[]),
    ]
}

fn found(name: &str) -> String {
    match pick(name, &world()) {
        Ok(it) => format!("{:?}", it.resource),
        Err(error) => error.to_string(),
    }
}

#[test]
fn a_name_is_read_as_kubectl_reads_it() {
    for name in ["pods", "po", "pod", "Pod", "PODS"] {
        assert_eq!(found(name), "v1/pods", "{name}");
    }
    for name in ["deploy", "deployments.apps", "deployments.v1.apps"] {
        assert_eq!(found(name), "apps/v1/deployments", "{name}");
    }
    assert_eq!(found("deployments.v1beta1.apps"), "apps/v1beta1/deployments");
    assert_eq!(found("events"), "v1/events", "the core group comes first");
    assert_eq!(found("events.events.k8s.io"), "events.k8s.io/v1/events");
    assert_eq!(found("things.b.example"), "b.example/v2/things");
    assert_eq!(pick("po", &world()).unwrap().resource.fields().len(), 8);
}

#[test]
fn what_is_not_found_is_an_error_that_helps() {
    let ambiguous =
        "\"things\" may be any of things.a.example, things.b.example: name the group too";
    assert_eq!(found("things"), ambiguous);
    let near = "the server has no resource \"deploymnt\": did you mean deployments.apps?";
    assert_eq!(found("deploymnt"), near);
    assert!(found("pods.v2").contains("did you mean pods?"), "{}", found("pods.v2"));
    assert!(found("zebras").ends_with("`kubectl api-resources` lists what it has"));
}

#[test]
fn letters_are_counted() {
    for (a, b, n) in [("", "", 0), ("pod", "pods", 1), ("abc", "", 3), ("kitten", "sitting", 3)] {
        assert_eq!((distance(a, b), distance(b, a)), (n, n), "{a} {b}");
    }
}
