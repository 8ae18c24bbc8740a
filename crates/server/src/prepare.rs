//! What a write makes of an object, without any I/O: who owns which field, what counts as a change,
//! when an object goes (W22, W32–W37).

use masthead_core::{Status, StatusCause};
use serde_json::{Value, json};

use crate::definitions;
use crate::document::{Members, canonical};
use crate::meta;
use crate::resources::Kind;
use crate::validate;

/// What the server puts into an object; handed in, so that nothing here reads a clock.
#[derive(Clone, Debug)]
pub(crate) struct Stamp {
    /// Now, in whole seconds, as Kubernetes writes it.
    pub(crate) now: String,
    /// The uid of an object that is created.
    pub(crate) uid: String,
}

/// What is to become of a stored object.
#[derive(Clone, PartialEq, Debug)]
pub(crate) enum Outcome {
    /// Nothing: the write changes nothing (W22).
    Unchanged,
    /// It becomes this.
    Put(Members),
    /// It goes.
    Delete,
}

/// The finalizer that keeps a definition until its objects are gone, as in Kubernetes.
const CRD_FINALIZER: &str = "customresourcecleanup.apiextensions.k8s.io";

/// Members of `metadata` that only the server writes.
const OWN_METADATA: [&str; 6] = [
    "uid",
    "resourceVersion",
    "generation",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
];

/// The `metadata` of an object, made if it is missing.
pub(crate) fn metadata_mut(members: &mut Members) -> Result<&mut Members, Status> {
    let metadata = members.entry("metadata").or_insert_with(|| json!({}));
    if metadata.is_null() {
        *metadata = json!({});
    }
    metadata.as_object_mut().ok_or_else(|| Status::bad_request("metadata is not an object"))
}

fn metadata(members: &Members) -> Option<&Members> {
    members.get("metadata")?.as_object()
}

/// A text member of `metadata`; empty if it is missing.
pub(crate) fn meta_text<'a>(members: &'a Members, name: &str) -> &'a str {
    metadata(members).and_then(|it| it.get(name)).and_then(Value::as_str).unwrap_or_default()
}

fn meta_list<'a>(members: &'a Members, name: &str) -> &'a [Value] {
    let list = metadata(members).and_then(|it| it.get(name)).and_then(Value::as_array);
    list.map_or(&[], Vec::as_slice)
}

/// Checks that an object is of the kind that the URL names, and in its namespace.
pub(crate) fn check_type(
    kind: &Kind,
    namespace: &str,
    members: &mut Members,
) -> Result<(), Status> {
    let resource = &kind.resource;
    let expected = [("apiVersion", resource.api_version()), ("kind", resource.kind())];
    for (name, right) in expected {
        match members.get(name) {
            None | Some(Value::Null) => {}
            Some(Value::String(given)) if given.is_empty() || given == right => {}
            Some(given) => {
                let why = format!(
                    "the {name} of the object ({given}) does not match the one of the request \
                     (\"{right}\")"
                );
                return Err(Status::bad_request(why));
            }
        }
    }
    meta::check_object(resource.kind(), resource.version(), members)?;
    let metadata = metadata_mut(members)?;
    let given = metadata.get("namespace").and_then(Value::as_str).unwrap_or_default();
    if !given.is_empty() && given != namespace {
        let why = "the namespace of the provided object does not match the namespace sent on the \
                   request";
        return Err(Status::bad_request(why));
    }
    if kind.namespaced() {
        metadata.insert("namespace".to_owned(), namespace.into());
    } else {
        metadata.shift_remove("namespace");
    }
    Ok(())
}

/// A new object, ready to be stored. It has a name by now.
pub(crate) fn create(kind: &Kind, mut members: Members, stamp: &Stamp) -> Result<Members, Status> {
    if !meta_text(&members, "resourceVersion").is_empty() {
        let why = "resourceVersion should not be set on objects to be created";
        return Err(Status::bad_request(why));
    }
    let metadata = metadata_mut(&mut members)?;
    for name in OWN_METADATA {
        metadata.shift_remove(name);
    }
    metadata.shift_remove("selfLink");
    metadata.insert("uid".to_owned(), stamp.uid.as_str().into());
    metadata.insert("resourceVersion".to_owned(), "0".into());
    if kind.generation || kind.custom {
        metadata.insert("generation".to_owned(), 1.into());
    }
    metadata.insert("creationTimestamp".to_owned(), stamp.now.as_str().into());
    // Nodes tell of themselves when they join.
    if kind.status && !kind.is("", "nodes") {
        members.shift_remove("status");
    }
    set_defaults(kind, &mut members, stamp)?;
    let members = canonical(kind, members);
    validate::metadata(kind, metadata_of(&members))?;
    Ok(members)
}

fn metadata_of(canonical: &Members) -> &Members {
    metadata(canonical).expect("the stored form has metadata")
}

/// What selectors and clients rely on (W32b).
fn set_defaults(kind: &Kind, members: &mut Members, stamp: &Stamp) -> Result<(), Status> {
    if kind.is("", "pods") {
        let spec = child(members, "spec")?;
        for (name, value) in [("restartPolicy", "Always"), ("schedulerName", "default-scheduler")] {
            let empty = spec.get(name).is_none_or(|it| it.is_null() || it == "");
            if empty {
                spec.insert(name.to_owned(), value.into());
            }
        }
        members.insert("status".to_owned(), json!({"phase": "Pending"}));
    } else if kind.is("", "namespaces") {
        child(members, "spec")?.insert("finalizers".to_owned(), json!(["kubernetes"]));
        members.insert("status".to_owned(), json!({"phase": "Active"}));
        let name = meta_text(members, "name").to_owned();
        let labels = child(metadata_mut(members)?, "labels")?;
        labels.insert("kubernetes.io/metadata.name".to_owned(), name.into());
    } else if kind.is(definitions::GROUP, "customresourcedefinitions") {
        definitions::establish(members, None, &stamp.now)?;
        hold_definition(members)?;
    }
    Ok(())
}

/// Adds the finalizer that keeps a definition for as long as it has objects. Clients cannot take it off:
/// what is stored under a definition that is gone could not be read, listed or deleted any more.
fn hold_definition(members: &mut Members) -> Result<(), Status> {
    let finalizers = metadata_mut(members)?.entry("finalizers").or_insert_with(|| json!([]));
    if finalizers.is_null() {
        *finalizers = json!([]);
    }
    if let Some(list) = finalizers.as_array_mut()
        && !list.iter().any(|finalizer| finalizer == CRD_FINALIZER)
    {
        list.push(CRD_FINALIZER.into());
    }
    Ok(())
}

/// Takes that finalizer off a definition whose objects are gone.
pub(crate) fn release_definition(kind: &Kind, current: &Members) -> Result<Outcome, Status> {
    let mut new = current.clone();
    let finalizers = metadata_mut(&mut new)?.get_mut("finalizers");
    if let Some(list) = finalizers.and_then(Value::as_array_mut) {
        list.retain(|finalizer| finalizer != CRD_FINALIZER);
    }
    finish(kind, current, new)
}

/// A member that is an object, made if it is missing.
pub(crate) fn child<'a>(members: &'a mut Members, name: &str) -> Result<&'a mut Members, Status> {
    let value = members.entry(name).or_insert_with(|| json!({}));
    if value.is_null() {
        *value = json!({});
    }
    value.as_object_mut().ok_or_else(|| Status::bad_request(format!("{name} is not an object")))
}

/// What an update of the object makes of it. The type has been checked.
pub(crate) fn update(
    kind: &Kind,
    current: &Members,
    mut new: Members,
    stamp: &Stamp,
) -> Result<Outcome, Status> {
    keep_identity(kind, current, &mut new)?;
    if kind.status {
        match current.get("status") {
            Some(status) => new.insert("status".to_owned(), status.clone()),
            None => new.shift_remove("status"),
        };
    }
    if kind.is("", "namespaces") {
        // Only `finalize` touches them.
        let finalizers = current.get("spec").and_then(|it| it.get("finalizers")).cloned();
        child(&mut new, "spec")?.insert("finalizers".to_owned(), finalizers.unwrap_or_default());
    }
    if kind.is(definitions::GROUP, "customresourcedefinitions") {
        definitions::establish(&mut new, Some(current), &stamp.now)?;
        hold_definition(&mut new)?;
    }
    finish(kind, current, new)
}

/// What an update of `status` makes of it: nothing but the status changes (W37).
pub(crate) fn update_status(
    kind: &Kind,
    current: &Members,
    new: &mut Members,
) -> Result<Outcome, Status> {
    check_precondition(kind, current, new)?;
    let mut changed = current.clone();
    match new.shift_remove("status") {
        Some(status) => changed.insert("status".to_owned(), status),
        None => changed.shift_remove("status"),
    };
    if kind.is(definitions::GROUP, "customresourcedefinitions") {
        definitions::check_status(&changed)?;
    }
    finish(kind, current, changed)
}

/// What `finalize` makes of a namespace: its `spec.finalizers` become these.
pub(crate) fn finalize(kind: &Kind, current: &Members, new: &Members) -> Result<Outcome, Status> {
    check_precondition(kind, current, new)?;
    let mut changed = current.clone();
    let finalizers = new.get("spec").and_then(|it| it.get("finalizers")).cloned();
    child(&mut changed, "spec")?.insert("finalizers".to_owned(), finalizers.unwrap_or_default());
    finish(kind, current, changed)
}

/// The resource version and uid that a client names are those of the object (W33).
fn check_precondition(kind: &Kind, current: &Members, new: &Members) -> Result<(), Status> {
    let name = meta_text(current, "name");
    let version = meta_text(new, "resourceVersion");
    if !matches!(version, "" | "0") && version != meta_text(current, "resourceVersion") {
        return Err(Status::conflict(&kind.resource, name));
    }
    let (given, uid) = (meta_text(new, "uid"), meta_text(current, "uid"));
    if !given.is_empty() && given != uid {
        let why =
            format!("Precondition failed: UID in precondition: {given}, UID in object meta: {uid}");
        return Err(Status::conflict_because(&kind.resource, name, why));
    }
    Ok(())
}

/// Carries over what clients cannot change.
fn keep_identity(kind: &Kind, current: &Members, new: &mut Members) -> Result<(), Status> {
    check_precondition(kind, current, new)?;
    let old = metadata_of(current);
    let metadata = metadata_mut(new)?;
    metadata.shift_remove("selfLink");
    for name in OWN_METADATA {
        match old.get(name) {
            Some(value) => metadata.insert(name.to_owned(), value.clone()),
            None => metadata.shift_remove(name),
        };
    }
    if is_deleting(current) {
        let before = meta_list(current, "finalizers");
        let added = meta_list(new, "finalizers").iter().find(|it| !before.contains(it));
        if let Some(added) = added {
            let why = format!(
                "no new finalizers can be added if the object is being deleted, found new \
                 finalizers {added}"
            );
            let cause = StatusCause::forbidden("metadata.finalizers", &why);
            let resource = &kind.resource;
            let name = meta_text(current, "name");
            return Err(Status::invalid(resource.group(), resource.kind(), name, vec![cause]));
        }
    }
    Ok(())
}

fn is_deleting(members: &Members) -> bool {
    !meta_text(members, "deletionTimestamp").is_empty()
}

/// Returns `true` if finalizers still hold an object that is being deleted.
fn is_held(kind: &Kind, members: &Members) -> bool {
    let spec = members.get("spec").and_then(|it| it.get("finalizers")).and_then(Value::as_array);
    let by_content = kind.is("", "namespaces") && spec.is_some_and(|it| !it.is_empty());
    by_content || !meta_list(members, "finalizers").is_empty()
}

/// Compares, counts the generation, and sees whether the object's time has come.
fn finish(kind: &Kind, current: &Members, new: Members) -> Result<Outcome, Status> {
    let mut new = canonical(kind, new);
    validate::metadata(kind, metadata_of(&new))?;
    if is_deleting(&new) && !is_held(kind, &new) {
        return Ok(Outcome::Delete);
    }
    if same(current, &new) {
        return Ok(Outcome::Unchanged);
    }
    if (kind.generation || kind.custom) && specification_differs(kind, current, &new) {
        count_generation(&mut new)?;
    }
    Ok(Outcome::Put(new))
}

fn count_generation(members: &mut Members) -> Result<(), Status> {
    let metadata = metadata_mut(members)?;
    let generation = metadata.get("generation").and_then(Value::as_i64).unwrap_or(0);
    metadata.insert("generation".to_owned(), (generation + 1).into());
    Ok(())
}

/// The same, the times of field managers aside (W22).
fn same(one: &Members, other: &Members) -> bool {
    let timeless = |members: &Members| {
        let managers = meta_list(members, "managedFields").iter().cloned();
        let managers = managers.map(|mut manager| {
            manager.as_object_mut().and_then(|it| it.shift_remove("time"));
            manager
        });
        managers.collect::<Vec<_>>()
    };
    let rest = |members: &Members| {
        let mut metadata = metadata(members).cloned().unwrap_or_default();
        metadata.shift_remove("managedFields");
        metadata
    };
    let others = |members: &Members| members.iter().filter(|it| it.0 != "metadata").count();
    others(one) == others(other)
        && one.iter().all(|(name, value)| name == "metadata" || other.get(name) == Some(value))
        && rest(one) == rest(other)
        && timeless(one) == timeless(other)
}

/// Has anything changed that a controller acts on? Of a custom resource without a status of its own
/// that is everything but the metadata.
fn specification_differs(kind: &Kind, one: &Members, other: &Members) -> bool {
    let counts = |name: &str| name != "metadata" && !(kind.status && name == "status");
    let within = |from: &Members, to: &Members| {
        from.iter().all(|(name, value)| !counts(name) || to.get(name) == Some(value))
    };
    !within(one, other) || !within(other, one)
}

/// What a delete makes of an object (W35).
pub(crate) fn delete(kind: &Kind, current: &Members, stamp: &Stamp) -> Result<Outcome, Status> {
    let is_definition = kind.is(definitions::GROUP, "customresourcedefinitions");
    if !is_held(kind, current) && !is_definition {
        return Ok(Outcome::Delete);
    }
    if is_deleting(current) {
        return Ok(Outcome::Unchanged);
    }
    let mut new = current.clone();
    if is_definition {
        hold_definition(&mut new)?;
    }
    let metadata = metadata_mut(&mut new)?;
    metadata.insert("deletionTimestamp".to_owned(), stamp.now.as_str().into());
    metadata.insert("deletionGracePeriodSeconds".to_owned(), 0.into());
    if kind.generation || kind.custom {
        count_generation(&mut new)?;
    }
    if kind.is("", "namespaces") {
        child(&mut new, "status")?.insert("phase".to_owned(), "Terminating".into());
    }
    Ok(Outcome::Put(canonical(kind, new)))
}

#[cfg(test)]
mod tests;
