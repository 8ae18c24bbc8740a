//! What streams say: initial events, changes, bookmarks.

use std::collections::BTreeMap;

use masthead_core::{Mutation, Object, ObjectKey, Time, planted};

use super::pages::cost;
use super::{Pending, Reflector, State, Then};
use crate::limits::{INITIAL_EVENT_BYTES, RELIST_PAUSE, SILENT_WATCHES_CAP};
use crate::{Failure, Output, RequestId, Settings, WatchItem};

impl Reflector {
    /// Events of a stream, in order. All changes among them go out as one batch.
    pub fn handle_events(&mut self, id: RequestId, items: Vec<WatchItem>, now: Time) {
        if !self.is_current(id) {
            return;
        }
        if let Some(pending) = self.state.pending_mut() {
            (pending.open, pending.heard) = (true, now);
        }
        let stream = self.pending();
        for item in items {
            // One of them may have ended the stream: what follows it is void.
            if self.pending() != stream {
                break;
            }
            self.item(item, now);
        }
        self.flush();
    }

    fn item(&mut self, item: WatchItem, now: Time) {
        match item {
            WatchItem::Skipped => {
                self.report.skipped += 1;
                self.came(INITIAL_EVENT_BYTES, now);
            }
            WatchItem::Error(status) => {
                self.cancel();
                self.fail(&Failure::Status(status), now);
            }
            item => {
                self.report.skipped += u64::from(matches!(item, WatchItem::DeletedUnread(_)));
                self.silent_watches = 0;
                match &mut self.state {
                    State::Streaming { pending, consistent, staged, bytes, .. } => {
                        pending.items += 1;
                        let consistent = *consistent;
                        let more = item.object().map_or(0, cost).max(INITIAL_EVENT_BYTES);
                        match stage(staged, bytes, item) {
                            Some(version) => self.end_of_state(&version, consistent, now),
                            None => self.came(more, now),
                        }
                    }
                    State::Watching { pending } => {
                        pending.items += 1;
                        self.follow(item);
                    }
                    State::Waiting { .. } | State::Paging { .. } => {}
                }
            }
        }
    }

    /// Counts what initial events bring, also what others replaced, and gives up a state that has no end.
    fn came(&mut self, more: usize, now: Time) {
        let State::Streaming { came, .. } = &mut self.state else { return };
        *came = came.saturating_add(more);
        let limit = self.settings.list_bytes_max;
        if *came > limit && !planted::on("endless_state_gathered") {
            self.cancel();
            self.fail(&Failure::TooLarge { limit }, now);
        }
    }

    pub(super) fn cancel(&mut self) {
        if let Some(id) = self.pending() {
            self.emit(Output::Cancel { id });
        }
    }

    /// The bookmark that ends the initial events: the list is whole, and its stream goes on.
    fn end_of_state(&mut self, version: &str, consistent: bool, now: Time) {
        let State::Streaming { pending, .. } = &self.state else { return };
        let pending = *pending;
        if !self.may_apply_stream(version, consistent, now) {
            return;
        }
        self.bookmarks = true;
        let watching = State::Watching { pending };
        if let State::Streaming { staged, .. } = std::mem::replace(&mut self.state, watching) {
            self.whole(staged.into_values().collect(), version, now);
        }
    }

    fn may_apply_stream(&mut self, version: &str, consistent: bool, now: Time) -> bool {
        let id = self.pending();
        let may = self.may_apply(version, consistent, now);
        if let (false, Some(id)) = (may, id) {
            self.emit(Output::Cancel { id });
        }
        may
    }

    fn follow(&mut self, item: WatchItem) {
        if self.take(item)
            && let Some(pending) = self.state.pending_mut()
        {
            pending.news = true;
            if let Some(hurried) = &mut self.hurried {
                hurried.news = true;
            }
        }
    }

    /// Takes in a change or a bookmark; false if it was not news.
    fn take(&mut self, item: WatchItem) -> bool {
        match item {
            WatchItem::Added(object) => self.put(object, true),
            WatchItem::Modified(object) => self.put(object, false),
            WatchItem::Deleted(object) => self.delete(&object, Some(object.clone())),
            WatchItem::DeletedUnread(object) => self.delete(&object, None),
            WatchItem::Bookmark { resource_version, .. } => {
                self.bookmarks = true;
                let Some(revision) = self.marks.bookmark(&resource_version) else { return false };
                self.emit(Output::Bookmark(revision));
                true
            }
            WatchItem::Error(_) | WatchItem::Skipped => false,
        }
    }

    fn put(&mut self, object: Object, added: bool) -> bool {
        let Some(revision) = self.marks.event(&object, added) else { return self.stale() };
        self.batch.push(Mutation::Put { revision, object });
        true
    }

    fn delete(&mut self, object: &Object, last: Option<Object>) -> bool {
        let Some(revision) = self.marks.event(object, false) else { return self.stale() };
        self.batch.push(Mutation::Delete { revision, key: object.key().clone(), last });
        true
    }

    fn stale(&mut self) -> bool {
        self.report.stale += 1;
        false
    }

    /// A watch lived too long or was silent too long: its connection is dead, or its server waits for
    /// a revision that it no longer knows of.
    pub(super) fn watch_stopped(&mut self, now: Time) {
        let State::Watching { pending } = &self.state else { return };
        let pending = *pending;
        self.cancel();
        self.short_watches = 0;
        self.again_at_once(&pending, now);
    }

    /// Watches from where the last watch stopped, unless there is no such place, or too many watches
    /// in a row have not said a word.
    pub(super) fn again_at_once(&mut self, last: &Pending, now: Time) {
        if !self.marks.resumable() {
            self.count(|relists| relists.unversioned += 1);
            return self.relist(now);
        }
        if self.silent_too_often(last, now) {
            self.count(|relists| relists.silent += 1);
            return self.relist(now);
        }
        self.watch(now);
    }

    /// A server that was restored from a backup waits in silence for the revision that it had given
    /// out before (R11: never a silent hang). So silence is a reason to look, but less and less of
    /// one where the server has never sent a bookmark and there may just be nothing to say.
    fn silent_too_often(&mut self, last: &Pending, now: Time) -> bool {
        let silent = last.items == 0 && now.since(last.asked) >= self.settings.watch_silence;
        self.silent_watches = if silent { self.silent_watches + 1 } else { 0 };
        if self.silent_watches < self.patience {
            return false;
        }
        self.silent_watches = 0;
        if !self.bookmarks {
            self.patience = (2 * self.patience).min(SILENT_WATCHES_CAP);
        }
        true
    }

    /// Lists at once, but not twice in a row: after a list that was begun at once, the next one waits with
    /// the backoff if nothing was learned since, and for [`RELIST_PAUSE`] if events came. A server can send
    /// one event before each 410.
    pub(super) fn relist(&mut self, now: Time) {
        let Some(hurried) = self.hurried.take().filter(|last| !last.is_over(now, &self.settings))
        else {
            self.hurried = Some(Hurried { at: now, news: false });
            return self.list(now);
        };
        if hurried.news && planted::on("relists_after_events_not_paced") {
            return self.list(now);
        }
        if !hurried.news {
            return self.wait(None, Then::List, now);
        }
        let until = hurried.at + RELIST_PAUSE;
        self.hurried = Some(Hurried { at: until, news: false });
        self.state = State::Waiting { until, then: Then::List };
    }
}

/// A list that was begun without a wait.
#[derive(Clone, Copy, Debug)]
pub(super) struct Hurried {
    at: Time,
    /// Whether a watch had news since.
    pub(super) news: bool,
}

impl Hurried {
    /// Returns `true` if the next list may begin at once, too.
    fn is_over(&self, now: Time, settings: &Settings) -> bool {
        let pause = if self.news { RELIST_PAUSE } else { settings.pace.calm };
        now.since(self.at) >= pause
    }
}

/// Takes in one initial event. The bookmark that ends them gives the list's resource version; other
/// bookmarks mean nothing before it (R12).
fn stage(
    staged: &mut BTreeMap<ObjectKey, Object>,
    bytes: &mut usize,
    item: WatchItem,
) -> Option<String> {
    let gone = match item {
        WatchItem::Added(object) | WatchItem::Modified(object) => {
            *bytes += cost(&object);
            staged.insert(object.key().clone(), object)
        }
        WatchItem::Deleted(_) if planted::on("initial_delete_ignored") => None,
        WatchItem::Deleted(object) | WatchItem::DeletedUnread(object) => {
            staged.remove(object.key())
        }
        WatchItem::Bookmark { resource_version, initial_events_end: true } => {
            return Some(resource_version);
        }
        _ => None,
    };
    *bytes -= gone.as_ref().map_or(0, cost);
    None
}
