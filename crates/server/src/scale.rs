//! The `scale` subresource: an object's number of replicas by another name (W37).

use masthead_core::{Status, StatusCause};
use serde_json::{Value, json};

use crate::document::Members;
use crate::prepare::meta_text;
use crate::resources::{Kind, Scale};

/// The `Scale` of an object.
pub(crate) fn of(scale: &Scale, members: &Members) -> Members {
    let meta = |name: &str| members.get("metadata").map_or(Value::Null, |it| it[name].clone());
    let number = |path: &str| at(members, path).and_then(Value::as_i64).unwrap_or(0);
    let mut result = json!({
        "kind": "Scale",
        "apiVersion": "autoscaling/v1",
        "metadata": {
            "name": meta("name"), "namespace": meta("namespace"), "uid": meta("uid"),
            "resourceVersion": meta("resourceVersion"),
            "creationTimestamp": meta("creationTimestamp"),
        },
        "spec": {"replicas": number(&scale.spec_replicas)},
        "status": {"replicas": number(&scale.status_replicas)},
    });
    let selector = scale.label_selector.as_deref().and_then(|path| at(members, path));
    if let Some(selector) = selector.and_then(selector_text) {
        result["status"]["selector"] = selector.into();
    }
    match result {
        Value::Object(members) => members,
        _ => unreachable!("made as an object above"),
    }
}

/// The object with the replicas that a `Scale` asks for.
pub(crate) fn apply(
    kind: &Kind,
    scale: &Scale,
    current: &Members,
    asked: &Members,
) -> Result<Members, Status> {
    let name = meta_text(current, "name");
    let replicas = &asked.get("spec").unwrap_or(&Value::Null)["replicas"];
    let replicas = if replicas.is_null() { Some(0) } else { replicas.as_i64() };
    let Some(replicas) = replicas.filter(|it| (0..=i64::from(i32::MAX)).contains(it)) else {
        let why = "must be greater than or equal to 0";
        let cause = StatusCause::invalid("spec.replicas", "", why);
        return Err(Status::invalid("autoscaling", "Scale", name, vec![cause]));
    };
    let version = meta_text(asked, "resourceVersion");
    if !matches!(version, "" | "0") && version != meta_text(current, "resourceVersion") {
        return Err(Status::conflict(&kind.resource, name));
    }
    let mut changed = current.clone();
    set(&mut changed, &scale.spec_replicas, replicas.into());
    Ok(changed)
}

fn steps(path: &str) -> impl Iterator<Item = &str> {
    path.split('.').filter(|step| !step.is_empty())
}

fn at<'a>(members: &'a Members, path: &str) -> Option<&'a Value> {
    let mut steps = steps(path);
    let mut value = members.get(steps.next()?)?;
    for step in steps {
        value = value.get(step)?;
    }
    Some(value)
}

fn set(members: &mut Members, path: &str, value: Value) {
    let steps: Vec<_> = steps(path).collect();
    let Some((last, parents)) = steps.split_last() else { return };
    let mut members = members;
    for step in parents {
        let child = members.entry(*step).or_insert_with(|| json!({}));
        if !child.is_object() {
            *child = json!({});
        }
        members = child.as_object_mut().expect("was made one");
    }
    members.insert((*last).to_owned(), value);
}

/// A label selector as text, from its text, its map or its `matchLabels`.
fn selector_text(selector: &Value) -> Option<String> {
    if let Some(text) = selector.as_str() {
        return Some(text.to_owned());
    }
    let labels = selector.get("matchLabels").unwrap_or(selector).as_object()?;
    let mut terms: Vec<_> = labels
        .iter()
        .filter_map(|(key, value)| Some(format!("{key}={}", value.as_str()?)))
        .collect();
    terms.sort();
    Some(terms.join(","))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalog::Catalog;

    #[test]
    fn w37_a_scale_shows_and_sets_the_replicas_of_its_object() {
        let kinds = Catalog::new().now();
        let kind = kinds.find("apps", "v1", "deployments").expect("is built in");
        let scale = kind.scale.as_ref().expect("has one");
        let object = json!({"metadata": {"name": "web", "resourceVersion": "7"},
            "spec": {"replicas": 3, "selector": {"matchLabels": {"b": "2", "a": "1"}}},
            "status": {"replicas": 2}});
        let object = object.as_object().expect("is one");
        let shown = of(scale, object);
        assert_eq!(
            (&shown["spec"]["replicas"], &shown["status"]["replicas"]),
            (&json!(3), &json!(2))
        );
        assert_eq!(shown["status"]["selector"], "a=1,b=2");
        let asked = |value: Value| value.as_object().expect("is one").clone();
        let changed = apply(kind, scale, object, &asked(json!({"spec": {"replicas": 5}})));
        assert_eq!(changed.expect("applies")["spec"]["replicas"], 5);
        let negative = apply(kind, scale, object, &asked(json!({"spec": {"replicas": -1}})));
        assert_eq!(negative.expect_err("is negative").code(), 422);
        let outdated = json!({"metadata": {"resourceVersion": "6"}, "spec": {"replicas": 1}});
        assert_eq!(apply(kind, scale, object, &asked(outdated)).expect_err("is stale").code(), 409);
    }
}
