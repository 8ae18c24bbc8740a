//! The log, folded the obvious way.

use std::collections::BTreeMap;

use masthead_core::{ObjectKey, Revision};
use masthead_store::{Condition, EventKind};

use crate::lab::{body, keys, resources};

/// One change. Resources and keys are positions in the lab's lists.
#[derive(Clone, Debug)]
pub(crate) struct Line {
    pub(crate) revision: Revision,
    pub(crate) resource: usize,
    pub(crate) key: usize,
    pub(crate) kind: EventKind,
    /// Of a delete, the last state.
    pub(crate) text: String,
}

impl Line {
    pub(crate) fn body(&self) -> String {
        body(&resources()[self.resource], &keys()[self.key], &self.text, Some(self.revision))
    }
}

pub(crate) struct Model {
    pub(crate) log: Vec<Line>,
    pub(crate) oldest: Revision,
}

impl Model {
    pub(crate) fn new() -> Self {
        Self { log: Vec::new(), oldest: Revision(1) }
    }

    pub(crate) fn current(&self) -> Revision {
        Revision(1 + self.log.len() as u64)
    }

    /// The live objects of a resource at a revision, in the order of their keys.
    pub(crate) fn state(&self, resource: usize, at: Revision) -> BTreeMap<ObjectKey, &Line> {
        let mut state = BTreeMap::new();
        for line in self.log.iter().filter(|line| line.resource == resource && line.revision <= at)
        {
            let key = keys()[line.key].clone();
            match line.kind {
                EventKind::Deleted => state.remove(&key),
                _ => state.insert(key, line),
            };
        }
        state
    }

    pub(crate) fn revision_of(&self, resource: usize, key: usize) -> Option<Revision> {
        let state = self.state(resource, Revision::MAX);
        state.get(&keys()[key]).map(|line| line.revision)
    }

    /// A write; `None` deletes. The error is what the conflict has to say.
    pub(crate) fn write(
        &mut self,
        (resource, key): (usize, usize),
        condition: Condition,
        text: Option<&str>,
    ) -> Result<Revision, Option<Revision>> {
        let state = self.state(resource, Revision::MAX);
        let before = state.get(&keys()[key]).map(|line| (line.revision, line.text.clone()));
        let current = before.as_ref().map(|(revision, _)| *revision);
        let met = match condition {
            Condition::Any => true,
            Condition::Absent => current.is_none(),
            Condition::Present => current.is_some(),
            Condition::At(revision) => current == Some(revision),
        };
        let (kind, text) = match (text, before) {
            _ if !met => return Err(current),
            (Some(text), None) => (EventKind::Added, text.to_owned()),
            (Some(text), Some(_)) => (EventKind::Modified, text.to_owned()),
            (None, Some((_, last))) => (EventKind::Deleted, last),
            (None, None) => return Err(None),
        };
        let revision = self.current().next();
        self.log.push(Line { revision, resource, key, kind, text });
        Ok(revision)
    }
}
