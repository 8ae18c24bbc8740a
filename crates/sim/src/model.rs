//! The authoritative log, folded the obvious way.
//!
//! `State(r)` is the log folded up to `r`. The projection of a query over `(a, b]` is what a
//! perfect watch with that query would say about those revisions. Everything here is a direct
//! transcription of these two sentences, so that it can be trusted as an oracle.

use std::collections::BTreeMap;

use crate::history::{Commit, CommitOp, FrameType, Scope};
use crate::selector::{FieldSelector, LabelSelector};

/// What a request looks at: where, and which of what is there.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Query {
    scope: Scope,
    labels: LabelSelector,
    fields: FieldSelector,
}

impl Query {
    /// Everything in `scope` that both selectors select.
    pub fn new(scope: Scope, labels: &str, fields: &str) -> Result<Self, String> {
        let labels = LabelSelector::parse(labels)?;
        Ok(Self { scope, labels, fields: FieldSelector::parse(fields)? })
    }

    /// Where it looks.
    pub fn scope(&self) -> &Scope {
        &self.scope
    }

    /// Whether the object that `commit` leaves behind is selected. A deletion leaves none.
    pub fn selects(&self, commit: &Commit) -> bool {
        commit.op != CommitOp::Delete
            && self.scope.covers(&commit.key)
            && self.labels.matches(&commit.labels)
            && self.fields.matches_with(|field| field_of(commit, field))
    }
}

/// The value of a selectable field, with the two that every object has.
pub fn field_of<'a>(commit: &'a Commit, field: &str) -> Option<&'a str> {
    let (namespace, name) = commit.key.split_once('/').unwrap_or(("", &commit.key));
    match field {
        "metadata.name" => Some(name),
        "metadata.namespace" => Some(namespace),
        other => commit.fields.get(other).map(String::as_str),
    }
}

/// What a perfect watch says about one commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event<'a> {
    /// Never a bookmark.
    pub kind: FrameType,
    /// The commit that caused it; its revision is the event's.
    pub commit: &'a Commit,
    /// The commit whose content it carries: the cause itself, or for `DELETED` the one before.
    pub object: &'a Commit,
}

/// All commits, in the order of their revisions.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Log {
    commits: Vec<Commit>,
    /// For each key the places of its commits.
    chains: BTreeMap<String, Vec<usize>>,
}

impl Log {
    /// Appends a commit. One whose revision is not above the last is refused with `false`.
    pub fn push(&mut self, commit: Commit) -> bool {
        if commit.rv <= self.last_rv() {
            return false;
        }
        let chain = self.chains.entry(commit.key.clone()).or_default();
        chain.push(self.commits.len());
        self.commits.push(commit);
        true
    }

    /// The commits, oldest first.
    pub fn commits(&self) -> &[Commit] {
        &self.commits
    }

    /// The revision of the newest commit; 0 without any.
    pub fn last_rv(&self) -> u64 {
        self.commits.last().map_or(0, |commit| commit.rv)
    }

    /// The commit with this revision.
    pub fn commit(&self, rv: u64) -> Option<&Commit> {
        let place = self.commits.binary_search_by_key(&rv, |commit| commit.rv);
        place.ok().map(|place| &self.commits[place])
    }

    /// The commits of one key with revisions in `(after, upto]`, oldest first.
    pub fn of_key(&self, key: &str, after: u64, upto: u64) -> impl Iterator<Item = &Commit> {
        let chain = self.chains.get(key).map_or(&[][..], Vec::as_slice);
        let from = chain.partition_point(|&place| self.commits[place].rv <= after);
        let to = chain.partition_point(|&place| self.commits[place].rv <= upto);
        let places = chain.get(from..to).unwrap_or_default();
        places.iter().map(|&place| &self.commits[place])
    }

    /// The newest commit of `key` at or before `rv`, also if it is a deletion.
    pub fn newest(&self, key: &str, rv: u64) -> Option<&Commit> {
        let chain = self.chains.get(key)?;
        let count = chain.partition_point(|&place| self.commits[place].rv <= rv);
        count.checked_sub(1).map(|last| &self.commits[chain[last]])
    }

    /// The object under `key` in `State(rv)`.
    pub fn object_at(&self, key: &str, rv: u64) -> Option<&Commit> {
        self.newest(key, rv).filter(|commit| commit.op != CommitOp::Delete)
    }

    /// `State(rv)`: the last commit of every key that exists then.
    pub fn state_at(&self, rv: u64) -> BTreeMap<&str, &Commit> {
        self.select(&Query::default(), rv)
    }

    /// What `query` sees of `State(rv)`.
    pub fn select(&self, query: &Query, rv: u64) -> BTreeMap<&str, &Commit> {
        let seen = |key| self.object_at(key, rv).filter(|commit| query.selects(commit));
        match query.scope() {
            Scope::Name(key) => {
                seen(key).map(|commit| (commit.key.as_str(), commit)).into_iter().collect()
            }
            _ => self.chains.keys().filter_map(|key| Some((key.as_str(), seen(key)?))).collect(),
        }
    }

    /// What a perfect watch of `query` says about the revisions in `(after, upto]`.
    pub fn proj(&self, query: &Query, after: u64, upto: u64) -> Vec<Event<'_>> {
        let from = self.commits.partition_point(|commit| commit.rv <= after);
        let to = self.commits.partition_point(|commit| commit.rv <= upto);
        let range = self.commits.get(from..to).unwrap_or_default();
        let covered = range.iter().filter(|commit| query.scope().covers(&commit.key));
        covered.filter_map(|commit| self.event(query, commit)).collect()
    }

    fn event<'a>(&'a self, query: &Query, commit: &'a Commit) -> Option<Event<'a>> {
        let before = self.newest(&commit.key, commit.rv - 1).filter(|before| query.selects(before));
        let (kind, object) = match (before, query.selects(commit)) {
            (None, false) => return None,
            (None, true) => (FrameType::Added, commit),
            (Some(_), true) => (FrameType::Modified, commit),
            (Some(before), false) => (FrameType::Deleted, before),
        };
        Some(Event { kind, commit, object })
    }
}

impl FromIterator<Commit> for Log {
    /// Commits whose revision is not above the one before are left out.
    fn from_iter<I: IntoIterator<Item = Commit>>(commits: I) -> Self {
        let mut log = Self::default();
        for commit in commits {
            log.push(commit);
        }
        log
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn commit(rv: u64, key: &str, op: CommitOp, app: &str) -> Commit {
        Commit {
            rv,
            t: 0,
            key: key.into(),
            uid: key.into(),
            op,
            hash: rv,
            labels: BTreeMap::from([("app".to_owned(), app.to_owned())]),
            fields: BTreeMap::new(),
        }
    }

    fn log() -> Log {
        [
            commit(1, "a/x", CommitOp::Create, "web"),
            commit(2, "ab/x", CommitOp::Create, "web"),
            commit(4, "a/x", CommitOp::Update, "web"),
            commit(5, "a/x", CommitOp::Update, "db"),
            commit(6, "a/x", CommitOp::Update, "web"),
            commit(8, "a/x", CommitOp::Delete, ""),
        ]
        .into_iter()
        .collect()
    }

    #[test]
    fn a_state_is_the_log_folded() {
        let log = log();
        let keys = |rv| log.state_at(rv).into_keys().collect::<Vec<_>>();
        assert!(keys(0).is_empty());
        assert_eq!(keys(3), ["a/x", "ab/x"]);
        assert_eq!(log.state_at(7)["a/x"].rv, 6);
        assert_eq!(keys(8), ["ab/x"]);
    }

    #[test]
    fn a_projection_maps_each_commit_by_before_and_now() {
        use FrameType::{Added, Deleted, Modified};
        let log = log();
        let query = Query::new(Scope::Namespace("a".into()), "app=web", "").unwrap();
        let seen: Vec<_> = log
            .proj(&query, 0, 8)
            .iter()
            .map(|event| (event.commit.rv, event.kind, event.object.hash))
            .collect();
        assert_eq!(
            seen,
            [(1, Added, 1), (4, Modified, 4), (5, Deleted, 4), (6, Added, 6), (8, Deleted, 6)]
        );
        assert_eq!(log.proj(&query, 4, 6).len(), 2);
        assert!(log.proj(&query, 6, 4).is_empty());
    }

    #[test]
    fn names_and_namespaces_are_fields_of_every_object() {
        let log = log();
        let query = Query::new(Scope::All, "", "metadata.namespace=ab,metadata.name=x").unwrap();
        assert_eq!(log.select(&query, 9).into_keys().collect::<Vec<_>>(), ["ab/x"]);
    }

    #[test]
    fn a_revision_that_does_not_rise_is_refused() {
        let mut log = log();
        assert!(!log.push(commit(8, "b/y", CommitOp::Create, "")));
        assert_eq!(log.commits().len(), 6);
    }
}
