//! The one way to change a cache.

use std::task::Waker;

use masthead_core::{Cause, Change, Mutation, Object, Revision, Time, planted};

use crate::Cache;
use crate::history::Entry;
use crate::limits::LOOK_AHEAD;
use crate::shared::Shared;
use crate::sync::{Arc, Ordering};
use crate::version::{Seq, Step, Version};
use crate::window::State;

/// Changes a cache. There is one for each cache, and it is not cloned: see [`Cache::new`].
#[derive(Debug)]
pub struct Writer {
    shared: std::sync::Arc<Shared>,
}

/// What became of a batch.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Applied {
    /// Changes that were taken in.
    pub changes: usize,
    /// Mutations that were not news: older than the cache, or deletes of what it does not have.
    pub ignored: usize,
}

/// A list that is older than what the cache has seen was refused (R10).
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("a list at revision {list} is older than the cache at {cache}")]
pub struct OlderThanCache {
    /// The list's revision.
    pub list: Revision,
    /// The cache's.
    pub cache: Revision,
}

impl Writer {
    pub(crate) fn new(shared: std::sync::Arc<Shared>) -> Self {
        Self { shared }
    }

    /// The readers' side.
    pub fn cache(&self) -> Cache {
        Cache { shared: self.shared.clone() }
    }

    /// Takes in changes in the order of their revisions; readers see all of them at once or none.
    pub fn apply(&mut self, batch: impl IntoIterator<Item = Mutation>, now: Time) -> Applied {
        let mut applied = Applied::default();
        self.change(now, |state, shared| {
            if planted::on("torn_publish") {
                publish_early(state, shared);
            }
            let (mut batch, mut ahead) = (batch.into_iter(), std::mem::take(&mut state.ahead));
            loop {
                ahead.extend(batch.by_ref().take(LOOK_AHEAD));
                if ahead.is_empty() {
                    break;
                }
                state.look_ahead(&ahead);
                for mutation in ahead.drain(..) {
                    let taken = apply_one(state, mutation);
                    applied.changes += usize::from(taken);
                    applied.ignored += usize::from(!taken);
                }
            }
            state.ahead = ahead;
            false
        });
        applied
    }

    /// Makes the cache hold exactly these objects, as a list at `revision` gave them, and says what is
    /// different (R14): an object with the same revision stays the same object, a newer one replaces
    /// it, an absent one is deleted with its last known state, a changed uid is both (R15).
    ///
    /// Unless nothing happened between, the history before it is no longer connected to what follows:
    /// readers that asked for every change end, the others get the difference.
    pub fn replace(
        &mut self,
        objects: Vec<Object>,
        revision: Revision,
        now: Time,
    ) -> Result<Vec<Change>, OlderThanCache> {
        let cache = self.shared.state.lock().revision;
        if revision < cache && !planted::on("older_list_accepted") {
            return Err(OlderThanCache { list: revision, cache });
        }
        Ok(self.bridge(objects, revision, now, false))
    }

    /// As [`Writer::replace`], for a source that really went back (R11): what the cache knew from
    /// later is given up.
    pub fn rewind(&mut self, objects: Vec<Object>, revision: Revision, now: Time) -> Vec<Change> {
        self.bridge(objects, revision, now, true)
    }

    fn bridge(
        &mut self,
        objects: Vec<Object>,
        revision: Revision,
        now: Time,
        back: bool,
    ) -> Vec<Change> {
        let mut difference = Vec::new();
        self.change(now, |state, _| {
            let first = state.epoch == 0;
            let before = state.head;
            let old: Vec<Arc<Version>> =
                if first { Vec::new() } else { state.live_versions().collect() };
            let mut listed = vec![false; old.len()];
            for object in objects {
                let older = state.find(object.key());
                if let Some(at) = older.as_ref().and_then(|older| position(&old, older)) {
                    listed[at] = true;
                }
                if older.as_ref().is_some_and(|older| !is_news(older, &object, back)) {
                    continue;
                }
                state.push(older, object, Step { revision, gone: false, cause: Cause::Relist });
                if first {
                    state.forget_newest();
                }
            }
            for version in old.iter().zip(&listed).filter(|(_, listed)| !**listed).map(|(v, _)| v) {
                if planted::on("missed_tombstone") {
                    continue;
                }
                let object = version.object.clone();
                state.push(
                    Some(version.clone()),
                    object,
                    Step { revision, gone: true, cause: Cause::Relist },
                );
            }
            difference.extend(state.unsealed.iter().map(Entry::change));
            if first || back || revision > state.revision || before < state.head {
                state.set_barrier(revision);
                return true;
            }
            false
        });
        difference
    }

    /// The source has told everything up to here. Wakes those who wait for a revision, not the cursors.
    pub fn bookmark(&mut self, revision: Revision, now: Time) {
        self.change(now, |state, _| {
            if state.epoch > 0 {
                state.revision = state.revision.max(revision);
            }
            false
        });
    }

    /// Lets time pass: drops what is older than the window's age.
    pub fn tick(&mut self, now: Time) {
        self.change(now, |_, _| false);
    }

    /// Changes the state, publishes it, tells the readers, and cuts what is out of reach. `change` says
    /// whether all readers are concerned.
    fn change(&mut self, now: Time, change: impl FnOnce(&mut State, &Shared) -> bool) {
        update(&self.shared, Some(now), change);
    }
}

/// The publication protocol. The order is what readers rely on: the ring, then the slots, then the view,
/// then marks, then the settled revision, and only then is anything cut.
pub(crate) fn update(
    shared: &Shared,
    now: Option<Time>,
    change: impl FnOnce(&mut State, &Shared) -> bool,
) {
    // Allocates only if somebody is to be woken.
    let mut wakers = Vec::new();
    {
        let mut state = shared.state.lock();
        let everyone = change(&mut state, shared);
        let segments = state.seal();
        if let Some(now) = now {
            let first = first_of(&state, segments);
            state.bound(now, || shared.interests.lock().first_unread().min(first));
        }
        let view = state.view();
        let last = shared.publish(view);
        mark(shared, &state, segments, everyone, &mut wakers);
        shared.settle(state.revision);
        state.cut(last);
        shared.gauges.store(&state.memory());
    }
    // Woken outside the locks: a waker may do anything.
    wakers.into_iter().for_each(Waker::wake);
    // Its own change may have been all that kept it from promising what the others have.
    shared.progress.wake(shared.revision());
}

/// The first change of the newest segments, or the one that comes next.
fn first_of(state: &State, segments: usize) -> Seq {
    state.newest_changes(segments).next().map_or(state.head + 1, |it| it.version.seq)
}

/// Marks the readers of the newest segments, or everyone.
fn mark(shared: &Shared, state: &State, segments: usize, everyone: bool, wakers: &mut Vec<Waker>) {
    let mut interests = shared.interests.lock();
    if everyone {
        interests.mark_all(first_of(state, segments).min(state.head), wakers);
    } else if interests.len() > 0 {
        state.newest_changes(segments).for_each(|entry| interests.mark(entry, wakers));
    }
}

fn apply_one(state: &mut State, mutation: Mutation) -> bool {
    let revision = mutation.revision();
    if revision < state.revision {
        return false;
    }
    let older = state.find(mutation.key());
    if older.as_ref().is_some_and(|older| older.revision >= revision) {
        return false;
    }
    match (mutation, older) {
        (Mutation::Put { object, .. }, older) => {
            state.push(older, object, Step { revision, gone: false, cause: Cause::Watch });
        }
        (Mutation::Delete { last, .. }, Some(older)) if !older.gone => {
            let last = last.unwrap_or_else(|| older.object.clone());
            state.push(Some(older), last, Step { revision, gone: true, cause: Cause::Watch });
        }
        (Mutation::Delete { .. }, _) => {
            state.revision = revision;
            return false;
        }
    }
    true
}

/// Returns `true` if a listed object differs from what the cache has under its key.
fn is_news(older: &Version, object: &Object, back: bool) -> bool {
    if older.gone || older.object.uid() != object.uid() {
        return true;
    }
    let (had, has) = (older.object.revision(), object.revision());
    if has.is_zero() {
        // Not a number: all that can be said is whether it is the same.
        return older.object.resource_version() != object.resource_version()
            || (object.resource_version().is_empty() && older.object.body() != object.body());
    }
    // A source that went back gives the same numbers out again, for other content.
    has > had || (back && (has != had || older.object.body() != object.body()))
}

fn position(old: &[Arc<Version>], version: &Version) -> Option<usize> {
    old.binary_search_by(|other| other.key().cmp(version.key())).ok()
}

/// A planted bug: publishes sequence numbers whose versions are not there yet.
fn publish_early(state: &mut State, shared: &Shared) {
    let mut view = state.view();
    view.seq += 2;
    let last = shared.publish(view);
    last.exact.fetch_min(0, Ordering::SeqCst);
}
