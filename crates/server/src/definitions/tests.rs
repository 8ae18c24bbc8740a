//! Definitions by themselves: what they define, and what is refused.

use super::*;

fn definition(change: impl FnOnce(&mut Value)) -> Members {
    let mut value = json!({
        "metadata": {"name": "sails.ship.example"},
        "spec": {
            "group": "ship.example", "scope": "Namespaced",
            "names": {"plural": "sails", "kind": "Sail", "shortNames": ["sl"]},
            "versions": [{"name": "v1", "served": true, "storage": true,
                "selectableFields": [{"jsonPath": ".spec.colour"}],
                "subresources": {"status": {}}}],
        },
    });
    change(&mut value);
    value.as_object().expect("is an object").clone()
}

fn version(name: &str, served: bool, storage: bool) -> Value {
    json!({"name": name, "served": served, "storage": storage})
}

#[test]
fn w39_a_definition_names_a_resource_with_its_fields_and_subresources() {
    let kinds = read(&definition(|_| {})).expect("is whole");
    let [kind] = &*kinds else { panic!("{kinds:?}") };
    assert_eq!(format!("{:?}", kind.resource), "ship.example/v1/sails");
    assert_eq!(kind.resource.fields()[0].label, "spec.colour");
    assert!(kind.status && kind.scale.is_none() && kind.custom && kind.namespaced());
    assert_eq!((kind.singular.as_str(), &*kind.short_names), ("sail", &["sl".to_owned()][..]));
}

#[test]
fn w39_every_served_version_is_a_kind_and_the_stored_one_is_always_there() {
    let members = definition(|it| {
        it["spec"]["versions"] = json!([
            version("v1", true, false),
            version("v2", false, true),
            version("v3", false, false)
        ]);
    });
    let kinds = read(&members).expect("is whole");
    let seen: Vec<_> =
        kinds.iter().map(|it| (it.resource.version(), it.served, it.storage)).collect();
    assert_eq!(seen, [("v2", false, true), ("v1", true, false)]);
}

#[test]
fn w39_it_is_established_at_once() {
    let mut members = definition(|_| {});
    establish(&mut members, None, "2030-01-01T00:00:00Z").expect("is whole");
    assert_eq!(members["status"]["conditions"][1]["type"], "Established");
    assert_eq!(members["status"]["acceptedNames"]["listKind"], "SailList");
    let old = members.clone();
    establish(&mut members, Some(&old), "2031-01-01T00:00:00Z").expect("is whole");
    let since = &members["status"]["conditions"][1]["lastTransitionTime"];
    assert_eq!(since, "2030-01-01T00:00:00Z", "an update is no transition");
}

#[test]
fn w39_a_version_that_was_stored_stays_in_the_status_and_in_the_definition() {
    let mut old = definition(|_| {});
    establish(&mut old, None, "2030-01-01T00:00:00Z").expect("is whole");
    let mut new = definition(|it| {
        it["spec"]["versions"] = json!([version("v1", true, false), version("v2", true, true)]);
    });
    establish(&mut new, Some(&old), "2030-01-01T00:00:00Z").expect("keeps v1");
    assert_eq!(new["status"]["storedVersions"], json!(["v1", "v2"]));
    let mut gone = definition(|it| it["spec"]["versions"] = json!([version("v2", true, true)]));
    let refused = establish(&mut gone, Some(&new), "2030-01-01T00:00:00Z").expect_err("v1 is gone");
    assert!(refused.message().contains("status.storedVersions[0]"), "{}", refused.message());
    new["status"]["storedVersions"] = json!(["v2"]);
    establish(&mut gone, Some(&new), "2030-01-01T00:00:00Z").expect("was migrated");
}

type Change = fn(&mut Value);

fn assert_refused(members: &mut Members, old: Option<&Members>, field: &str) {
    let Err(status) = establish(members, old, "2030-01-01T00:00:00Z") else {
        panic!("{field} was accepted: {members:?}");
    };
    assert_eq!(status.code(), 422);
    assert!(status.message().contains(field), "{field}: {}", status.message());
}

#[test]
fn what_is_missing_or_wrong_is_named() {
    let wrong: [(Change, &str); 21] = [
        (|it| it["metadata"]["name"] = "x".into(), "metadata.name"),
        (|it| it["spec"]["group"] = "ship".into(), "spec.group"),
        (|it| it["spec"]["group"] = "Ship.example".into(), "spec.group"),
        (|it| it["spec"]["group"] = "apps.k8s.io".into(), "api-approved.kubernetes.io"),
        (|it| it["spec"]["scope"] = "Galaxy".into(), "spec.scope"),
        (|it| it["spec"]["versions"] = json!([]), "spec.versions"),
        (|it| it["spec"]["versions"][0]["name"] = "../v1".into(), "spec.versions[0].name"),
        (|it| it["spec"]["versions"][0]["name"] = "".into(), "spec.versions[0].name"),
        (|it| it["spec"]["versions"][0]["name"] = "v".repeat(64).into(), "spec.versions[0].name"),
        (|it| it["spec"]["versions"][0]["served"] = "yes".into(), "spec.versions[0].served"),
        (|it| it["spec"]["versions"][0]["storage"] = false.into(), "exactly one version"),
        (
            |it| {
                it["spec"]["versions"] =
                    json!([version("v1", true, true), version("v2", true, true)]);
            },
            "exactly one version",
        ),
        (
            |it| {
                it["spec"]["versions"] =
                    json!([version("v1", true, true), version("v1", true, false)]);
            },
            "unique version names",
        ),
        (|it| it["spec"]["names"] = json!({}), "spec.names.plural"),
        (|it| it["spec"]["names"]["plural"] = "Sails".into(), "spec.names.plural"),
        (|it| it["spec"]["names"]["plural"] = "a/b".into(), "spec.names.plural"),
        (|it| it["spec"]["names"]["plural"] = "s.ails".into(), "spec.names.plural"),
        (|it| it["spec"]["names"]["kind"] = "a b".into(), "spec.names.kind"),
        (|it| it["spec"]["names"]["listKind"] = "Sail".into(), "spec.names.listKind"),
        (|it| it["spec"]["names"]["singular"] = 7.into(), "spec.names.singular"),
        (|it| it["spec"]["names"]["shortNames"] = json!(["a b"]), "spec.names.shortNames[0]"),
    ];
    for (change, field) in wrong {
        assert_refused(&mut definition(change), None, field);
    }
    let approved = |it: &mut Value| {
        it["metadata"] = json!({"name": "sails.x.k8s.io",
            "annotations": {"api-approved.kubernetes.io": "https://example.test/1"}});
        it["spec"]["group"] = "x.k8s.io".into();
    };
    establish(&mut definition(approved), None, "2030-01-01T00:00:00Z").expect("is approved");
}

#[test]
fn where_objects_are_stored_cannot_be_changed() {
    let mut old = definition(|_| {});
    establish(&mut old, None, "2030-01-01T00:00:00Z").expect("is whole");
    let changes: [(Change, &str); 4] = [
        (|it| it["spec"]["scope"] = "Cluster".into(), "spec.scope"),
        (|it| it["spec"]["names"]["kind"] = "Mast".into(), "spec.names.kind"),
        (|it| it["spec"]["group"] = "boat.example".into(), "spec.group"),
        (|it| it["spec"]["names"]["plural"] = "masts".into(), "spec.names.plural"),
    ];
    for (change, field) in changes {
        assert_refused(&mut definition(change), Some(&old), field);
    }
}
