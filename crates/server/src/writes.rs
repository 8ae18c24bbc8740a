//! Writes: read the newest state, decide what becomes of it, store that on condition that it is
//! still the newest (W32–W39).

use std::sync::Arc;
use std::time::Duration;

use masthead_core::{
    Freshness, ListOptions, Object, ObjectKey, Reason, Revision, Status, StatusCause,
};
use masthead_store::{CommitError, Committed, Condition, Requirement, Store, Write};
use serde_json::Value;

use crate::authz::Authorized;
use crate::catalog::Catalog;
use crate::definitions;
use crate::document::{self, Members};
use crate::feed::stored_object;
use crate::limits::{DELETE_GROUP, GENERATE_NAME_MAX, NAME_TRIES, WRITE_TRIES};
use crate::meta;
use crate::packing::whole;
use crate::patch::Patch;
use crate::prepare::{self, Outcome, Stamp, meta_text};
use crate::reads::Reads;
use crate::resources::Kind;
use crate::route::{Subresource, Target};
use crate::scale;

/// Namespaces that Kubernetes lets nobody delete.
const PERMANENT_NAMESPACES: [&str; 3] = ["default", "kube-public", "kube-system"];

/// Writes to the store.
pub(crate) struct Writes {
    reads: Arc<Reads>,
    store: Arc<dyn Store>,
    catalog: Arc<Catalog>,
    event_ttl: Duration,
}

/// What became of an object.
#[derive(Debug)]
pub(crate) enum Changed {
    /// It is what it was.
    Kept(Object),
    /// It is this now.
    Put(Object),
    /// It is gone, and this was its last state.
    Deleted(Object),
}

impl Changed {
    pub(crate) fn object(&self) -> &Object {
        match self {
            Self::Kept(object) | Self::Put(object) | Self::Deleted(object) => object,
        }
    }
}

/// What must hold of an object for it to be deleted (W35).
#[derive(Clone, Default, Debug)]
pub(crate) struct Preconditions {
    uid: Option<String>,
    version: Option<String>,
}

/// The options of a delete, from its body.
#[derive(Clone, Default, Debug)]
pub(crate) struct DeleteOptions {
    pub(crate) preconditions: Preconditions,
    pub(crate) dry_run: bool,
}

impl DeleteOptions {
    /// Reads a body, which may be missing.
    pub(crate) fn read(members: &Members) -> Result<Self, Status> {
        meta::check_delete_options(members)?;
        if let Some(kind) = members.get("kind").and_then(Value::as_str)
            && !matches!(kind, "" | "DeleteOptions")
        {
            let why = format!("the body of a delete is a DeleteOptions and not a {kind}");
            return Err(Status::bad_request(why));
        }
        let conditions = members.get("preconditions").cloned().unwrap_or_default();
        let text = |name: &str| conditions[name].as_str().map(str::to_owned);
        let dry_run = members.get("dryRun").and_then(Value::as_array).into_iter().flatten();
        let mut dry = false;
        for word in dry_run {
            dry |= crate::params::dry_run(word.as_str())?;
        }
        let preconditions = Preconditions { uid: text("uid"), version: text("resourceVersion") };
        Ok(Self { preconditions, dry_run: dry })
    }
}

impl Preconditions {
    fn check(&self, kind: &Kind, current: &Members) -> Result<(), Status> {
        let parts =
            [("UID", "uid", &self.uid), ("ResourceVersion", "resourceVersion", &self.version)];
        for (word, name, wanted) in parts {
            let has = meta_text(current, name);
            if let Some(wanted) = wanted
                && wanted != has
            {
                let why = format!(
                    "Precondition failed: {word} in precondition: {wanted}, {word} in object \
                     meta: {has}"
                );
                let name = meta_text(current, "name");
                return Err(Status::conflict_because(&kind.resource, name, why));
            }
        }
        Ok(())
    }
}

impl Writes {
    pub(crate) fn new(
        reads: Arc<Reads>,
        store: Arc<dyn Store>,
        catalog: Arc<Catalog>,
        event_ttl: Duration,
    ) -> Self {
        Self { reads, store, catalog, event_ttl }
    }

    /// How long an object of a kind stays.
    fn ttl(&self, kind: &Kind) -> Option<Duration> {
        let event = matches!(kind.resource.group(), "" | "events.k8s.io")
            && kind.resource.plural() == "events";
        event.then_some(self.event_ttl)
    }

    /// How long events stay after they were last written.
    pub(crate) fn event_ttl(&self) -> Duration {
        self.event_ttl
    }

    /// Whether events have to be deleted when their time is over: the store does not see to it.
    pub(crate) fn has_to_expire(&self) -> bool {
        !self.store.removes_expired()
    }

    /// Deletes objects that are still at these revisions, whatever holds them.
    pub(crate) async fn delete_at(
        &self,
        kind: &Kind,
        objects: &[(ObjectKey, Revision)],
    ) -> Vec<Result<(), CommitError>> {
        let delete = |(key, revision): &(ObjectKey, Revision)| {
            Write::delete((&kind.resource).into(), key.clone(), Condition::At(*revision))
        };
        let results = self.store.commit(objects.iter().map(delete).collect()).await;
        results.into_iter().map(|result| result.map(|_| ())).collect()
    }

    /// Stores a new object.
    pub(crate) async fn create(
        &self,
        proof: &Authorized<Target>,
        mut members: Members,
        dry_run: bool,
    ) -> Result<Object, Status> {
        let kind = &*proof.kind;
        prepare::check_type(kind, &proof.namespace, &mut members)?;
        self.parents(kind, &proof.namespace, Freshness::Cached).await?;
        let name = meta_text(&members, "name").to_owned();
        let base = meta_text(&members, "generateName").to_owned();
        if name.is_empty() && base.is_empty() {
            let cause = StatusCause::required("metadata.name", "name or generateName is required");
            let resource = &kind.resource;
            return Err(Status::invalid(resource.group(), resource.kind(), "", vec![cause]));
        }
        let tries = if name.is_empty() { NAME_TRIES } else { 1 };
        for _ in 0..tries {
            let mut members = members.clone();
            if name.is_empty() {
                let generated = generate_name(&base)?;
                prepare::metadata_mut(&mut members)?.insert("name".to_owned(), generated.into());
            }
            let members = prepare::create(kind, members, &stamp())?;
            match self.store_below_parents(kind, &proof.namespace, &members, dry_run).await {
                Err(Creating::Taken) => {}
                Err(Creating::Refused(status)) => return Err(status),
                Ok(object) => return Ok(object),
            }
        }
        let name = if name.is_empty() { base } else { name };
        Err(Status::already_exists(&kind.resource, &name))
    }

    /// Stores a new object on condition that its parents are what they were when they were looked at. If
    /// one has changed meanwhile, they are looked at again.
    async fn store_below_parents(
        &self,
        kind: &Kind,
        namespace: &str,
        members: &Members,
        dry_run: bool,
    ) -> Result<Object, Creating> {
        let object = document::object(kind, members)?;
        if dry_run {
            return self.dry_create(kind, members).await;
        }
        let mut fresh = Freshness::Cached;
        for _ in 0..WRITE_TRIES {
            let requires = self.parents(kind, namespace, fresh).await?;
            let write = Write::put((&kind.resource).into(), object.clone(), Condition::Absent);
            let write = write.with_ttl(self.ttl(kind)).with_requirements(requires);
            match self.commit(write).await {
                Ok(committed) => return Ok(value_of(kind, &committed)?),
                Err(CommitError::Conflict { .. }) => return Err(Creating::Taken),
                Err(CommitError::Superseded) => fresh = Freshness::MostRecent,
                Err(error) => return Err(refusal(&error).into()),
            }
        }
        let why = "its namespace or its definition changes too often; try again";
        Err(Status::too_many_requests(why, 1).into())
    }

    /// What [`Writes::store_below_parents`] would have answered.
    async fn dry_create(&self, kind: &Kind, members: &Members) -> Result<Object, Creating> {
        let mut members = members.clone();
        prepare::metadata_mut(&mut members)?.shift_remove("resourceVersion");
        let object = document::object(kind, &members)?;
        let key = object.key();
        let scope = Authorized::internal(&Arc::new(kind.clone()), key.namespace(), key.name());
        let there = self.reads.find(&scope, Freshness::MostRecent).await?;
        if there.is_some() { Err(Creating::Taken) } else { Ok(object) }
    }

    /// What a new object needs, and that has to stay for it to be stored: its namespace (W32b), and of a
    /// custom resource the definition (W39). One that is being deleted takes nothing new. The store checks
    /// them again with the write, so nothing is created that the end of either does not see.
    async fn parents(
        &self,
        kind: &Kind,
        namespace: &str,
        fresh: Freshness,
    ) -> Result<Vec<Requirement>, Status> {
        let mut parents = Vec::new();
        let kinds = self.catalog.now();
        if kind.custom {
            let definitions =
                kinds.stored(definitions::GROUP, "customresourcedefinitions").expect("is built in");
            let name = kind.resource.to_string();
            let found = self.parent(definitions, &name, fresh).await?;
            let found = found.ok_or_else(Status::no_such_path)?;
            if found.deletion_timestamp().is_some() {
                let why = "create not allowed while custom resource definition is terminating";
                return Err(Status::with(405, Reason::MethodNotAllowed, why));
            }
            parents.push(requirement(definitions, &found));
        }
        if kind.namespaced() {
            let namespaces = kinds.stored("", "namespaces").expect("is built in");
            let Some(found) = self.parent(namespaces, namespace, fresh).await? else {
                return Err(Status::not_found(&namespaces.resource, namespace));
            };
            if found.deletion_timestamp().is_some() {
                let why = format!(
                    "unable to create new content in namespace {namespace} because it is being \
                     terminated"
                );
                return Err(Status::forbidden(&kind.resource, "", why));
            }
            parents.push(requirement(namespaces, &found));
        }
        Ok(parents)
    }

    /// A parent by its name. One that the cache does not have may be new.
    async fn parent(
        &self,
        kind: &Arc<Kind>,
        name: &str,
        fresh: Freshness,
    ) -> Result<Option<Object>, Status> {
        let scope = Authorized::internal(kind, "", name);
        match self.reads.find(&scope, fresh).await? {
            None if fresh == Freshness::Cached => {
                self.reads.find(&scope, Freshness::MostRecent).await
            }
            found => Ok(found),
        }
    }

    /// Replaces an object, or the part of it that the subresource names.
    pub(crate) async fn update(
        &self,
        proof: &Authorized<Target>,
        mut members: Members,
        dry_run: bool,
    ) -> Result<Changed, Status> {
        let kind = &*proof.kind;
        check_type(proof, &mut members)?;
        let name = meta_text(&members, "name");
        if name != proof.name && !name.is_empty() {
            let why = format!(
                "the name of the object ({name}) does not match the name on the URL ({})",
                proof.name
            );
            return Err(Status::bad_request(why));
        }
        let name = proof.name.as_str();
        prepare::metadata_mut(&mut members)?.insert("name".to_owned(), name.into());
        let version = meta_text(&members, "resourceVersion");
        if !kind.unconditional_update && matches!(version, "" | "0") {
            let why = "must be specified for an update";
            let cause = StatusCause::invalid("metadata.resourceVersion", version, why);
            let resource = &kind.resource;
            return Err(Status::invalid(resource.group(), resource.kind(), name, vec![cause]));
        }
        let stamp = stamp();
        self.change(proof, dry_run, |current| becomes(proof, current, members.clone(), &stamp))
            .await
    }

    /// Patches an object, or the part of it that the subresource names. A conflict with somebody
    /// else's write is tried again here (W36).
    pub(crate) async fn patch(
        &self,
        proof: &Authorized<Target>,
        patch: &Patch,
        dry_run: bool,
    ) -> Result<Changed, Status> {
        let stamp = stamp();
        self.change(proof, dry_run, |current| {
            let scale = proof.kind.scale.as_ref();
            let shown = match (proof.subresource, scale) {
                (Some(Subresource::Scale), Some(scale)) => scale::of(scale, current),
                _ => current.clone(),
            };
            let mut patched = patch.apply(&shown)?;
            check_type(proof, &mut patched)?;
            if meta_text(&patched, "name") != proof.name {
                return Err(Status::bad_request("a patch must not change metadata.name"));
            }
            becomes(proof, current, patched, &stamp)
        })
        .await
    }

    /// Deletes an object, or marks it for those who hold it.
    pub(crate) async fn delete(
        &self,
        proof: &Authorized<Target>,
        options: &DeleteOptions,
    ) -> Result<Changed, Status> {
        let is_namespace = proof.kind.is("", "namespaces");
        if is_namespace && PERMANENT_NAMESPACES.contains(&proof.name.as_str()) {
            let why = "this namespace may not be deleted";
            return Err(Status::forbidden(&proof.kind.resource, &proof.name, why));
        }
        let stamp = stamp();
        let deleted = self.change(proof, options.dry_run, |current| {
            options.preconditions.check(&proof.kind, current)?;
            prepare::delete(&proof.kind, current, &stamp)
        });
        let deleted = deleted.await?;
        if is_namespace || proof.kind.is(definitions::GROUP, "customresourcedefinitions") {
            // A client that has the answer finds that nothing more can be made in it. If this takes too
            // long, it is deleted all the same.
            let _ = self.reads.find(proof, Freshness::MostRecent).await;
        }
        Ok(deleted)
    }

    /// Deletes what a list would show; the objects as they were.
    pub(crate) async fn delete_collection(
        &self,
        proof: &Authorized<Target>,
        list: &ListOptions,
        options: &DeleteOptions,
    ) -> Result<Vec<Object>, Status> {
        let kind = &proof.kind;
        let objects = self.reads.list(proof, list).await?.objects;
        if options.dry_run {
            return objects.iter().map(whole).collect();
        }
        let stamp = stamp();
        let mut deleted = Vec::with_capacity(objects.len());
        for group in objects.chunks(DELETE_GROUP) {
            let mut writes = Vec::with_capacity(group.len());
            let mut held = Vec::new();
            for object in group {
                let current = document::members(object)?;
                options.preconditions.check(kind, &current)?;
                match prepare::delete(kind, &current, &stamp)? {
                    Outcome::Delete => {
                        let condition = Condition::At(object.revision());
                        let name = (&kind.resource).into();
                        writes.push(Write::delete(name, object.key().clone(), condition));
                    }
                    _ => held.push(object),
                }
            }
            let keys: Vec<_> = writes.iter().map(|write| write.key.clone()).collect();
            let results = self.store.commit(writes).await;
            for (key, result) in keys.iter().zip(results) {
                match result {
                    Ok(committed) => deleted.push(value_of(kind, &committed)?),
                    Err(CommitError::Conflict { .. }) => {
                        let scope = Authorized::internal(kind, key.namespace(), key.name());
                        deleted.extend(gone_is_fine(self.delete(&scope, options).await)?);
                    }
                    Err(error) => return Err(refusal(&error)),
                }
            }
            for object in held {
                let key = object.key();
                let scope = Authorized::internal(kind, key.namespace(), key.name());
                deleted.extend(gone_is_fine(self.delete(&scope, options).await)?);
            }
        }
        Ok(deleted)
    }

    /// Reads, decides, stores; again if somebody was faster.
    pub(crate) async fn change(
        &self,
        proof: &Authorized<Target>,
        dry_run: bool,
        decide: impl Fn(&Members) -> Result<Outcome, Status>,
    ) -> Result<Changed, Status> {
        let kind = &*proof.kind;
        for _ in 0..WRITE_TRIES {
            let current = self.reads.get(proof, Freshness::MostRecent).await?;
            let outcome = decide(&document::members(&current)?)?;
            let condition = Condition::At(current.revision());
            let name = (&kind.resource).into();
            let write = match outcome {
                Outcome::Unchanged => return Ok(Changed::Kept(current)),
                Outcome::Delete if dry_run => return Ok(Changed::Deleted(current)),
                Outcome::Delete => Write::delete(name, current.key().clone(), condition),
                Outcome::Put(members) => {
                    let object = document::object(kind, &members)?;
                    if dry_run {
                        return Ok(Changed::Put(object));
                    }
                    Write::put(name, object, condition).with_ttl(self.ttl(kind))
                }
            };
            let deletes = matches!(write.op, masthead_store::Op::Delete);
            match self.commit(write).await {
                Ok(committed) => {
                    let object = value_of(kind, &committed)?;
                    return Ok(if deletes {
                        Changed::Deleted(object)
                    } else {
                        Changed::Put(object)
                    });
                }
                Err(CommitError::Conflict { .. }) => {}
                Err(error) => return Err(refusal(&error)),
            }
        }
        Err(Status::conflict(&kind.resource, &proof.name))
    }

    async fn commit(&self, write: Write) -> Result<Committed, CommitError> {
        let mut results = self.store.commit(vec![write]).await;
        results.pop().expect("one result for one write")
    }
}

/// Checks the type of an object in an update, which for `scale` is another than the resource's.
fn check_type(proof: &Authorized<Target>, members: &mut Members) -> Result<(), Status> {
    if proof.subresource == Some(Subresource::Scale) {
        return meta::check_object("Scale", "v1", members);
    }
    prepare::check_type(&proof.kind, &proof.namespace, members)
}

/// What an update or a patch makes of the object, by subresource.
fn becomes(
    proof: &Authorized<Target>,
    current: &Members,
    mut new: Members,
    stamp: &Stamp,
) -> Result<Outcome, Status> {
    let kind = &*proof.kind;
    match (proof.subresource, &kind.scale) {
        (None, _) => prepare::update(kind, current, new, stamp),
        (Some(Subresource::Status), _) => prepare::update_status(kind, current, &mut new),
        (Some(Subresource::Finalize), _) => prepare::finalize(kind, current, &new),
        (Some(Subresource::Scale), Some(scale)) => {
            let scaled = scale::apply(kind, scale, current, &new)?;
            prepare::update(kind, current, scaled, stamp)
        }
        (Some(Subresource::Scale), None) => Err(Status::no_such_path()),
    }
}

/// A parent at the revision at which it was looked at.
fn requirement(kind: &Kind, parent: &Object) -> Requirement {
    let resource = (&kind.resource).into();
    Requirement { resource, key: parent.key().clone(), revision: parent.revision() }
}

/// Why an object was not created.
enum Creating {
    Taken,
    Refused(Status),
}

impl From<Status> for Creating {
    fn from(status: Status) -> Self {
        Self::Refused(status)
    }
}

fn gone_is_fine(result: Result<Changed, Status>) -> Result<Option<Object>, Status> {
    match result {
        Ok(changed) => Ok(Some(changed.object().clone())),
        Err(status) if status.code() == 404 => Ok(None),
        Err(status) => Err(status),
    }
}

fn value_of(kind: &Kind, committed: &Committed) -> Result<Object, Status> {
    stored_object(&kind.resource, kind.custom, &committed.value).map_err(Status::internal)
}

/// The answer to a write that the store did not take, conflicts aside.
fn refusal(error: &CommitError) -> Status {
    match error {
        CommitError::Busy => Status::too_many_requests(error, 1),
        CommitError::Unknown { .. } => Status::timeout(error, 1),
        CommitError::TooLarge { .. } => {
            Status::with(413, Reason::RequestEntityTooLarge, error.to_string())
        }
        _ => Status::unavailable(error),
    }
}

fn stamp() -> Stamp {
    let now = jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
    Stamp { now, uid: uuid::Uuid::new_v4().to_string() }
}

/// The base, cut, and five characters that form no words (W34).
fn generate_name(base: &str) -> Result<String, Status> {
    const ALPHABET: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";
    let mut random = [0_u8; 5];
    getrandom::fill(&mut random).map_err(|_| Status::unavailable("no randomness"))?;
    let cut = base.char_indices().nth(GENERATE_NAME_MAX).map_or(base.len(), |(at, _)| at);
    let mut name = base[..cut].to_owned();
    name.extend(random.map(|byte| char::from(ALPHABET[usize::from(byte) % ALPHABET.len()])));
    Ok(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn w34_generated_names_are_cut_to_58_characters_and_get_5() {
        let long = generate_name(&"a".repeat(80)).expect("there is randomness");
        assert_eq!(long.len(), 63);
        let short = generate_name("web-").expect("there is randomness");
        assert!(short.starts_with("web-") && short.len() == 9, "{short}");
        assert_ne!(short, generate_name("web-").expect("there is randomness"));
    }
}
