//! What is where in the log: an index of the kept history, in memory.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Bound;
use std::sync::Arc;

use masthead_core::{ObjectKey, Revision, Time};

use super::log::Segment;
use super::record::Head;
use crate::ledger::Slot;
use crate::limits::{LOG_BYTES_MAX, WINDOW_LINES_MAX};
use crate::{EventKind, ResourceName, Settings};

/// One record of the log, and where it is.
#[derive(Clone)]
pub(crate) struct Line {
    pub(crate) head: Head,
    pub(crate) segment: Arc<Segment>,
    pub(crate) at: u64,
}

impl Line {
    pub(crate) fn live(&self) -> bool {
        self.head.kind != EventKind::Deleted
    }

    pub(crate) fn body_bytes(&self) -> usize {
        self.head.bytes - self.head.body_at
    }
}

type Version = (ObjectKey, Reverse<Revision>);

/// All changes after the base.
pub(crate) struct Window {
    /// The revision of the base: lines are those after it, without a gap.
    oldest: Revision,
    /// What [`Head::history`] was there.
    history: u64,
    lines: VecDeque<Line>,
    /// The same by object, newest first.
    versions: BTreeMap<ResourceName, BTreeSet<Version>>,
    bytes: u64,
}

impl Window {
    pub(crate) fn new(oldest: Revision, history: u64) -> Self {
        let (lines, versions) = (VecDeque::new(), BTreeMap::new());
        Self { oldest, history, lines, versions, bytes: 0 }
    }

    pub(crate) fn oldest(&self) -> Revision {
        self.oldest
    }

    pub(crate) fn current(&self) -> Revision {
        Revision(self.oldest.0 + self.lines.len() as u64)
    }

    /// Bytes of history made up to the newest change.
    pub(crate) fn history(&self) -> u64 {
        self.lines.back().map_or(self.history, |line| line.head.history)
    }

    /// Time of the newest change.
    pub(crate) fn time(&self) -> Time {
        self.lines.back().map_or(Time(0), |line| line.head.time)
    }

    pub(crate) fn push(&mut self, mut line: Line) {
        assert_eq!(line.head.revision, self.current().next(), "the log has no gaps");
        self.bytes += line.head.bytes as u64;
        let slot = &mut line.head.slot;
        // Lines share the names of their resources, wherever they come from.
        if let Some((name, _)) = self.versions.get_key_value(&slot.resource) {
            slot.resource = name.clone();
        }
        let versions = self.versions.entry(slot.resource.clone()).or_default();
        versions.insert((slot.key.clone(), Reverse(line.head.revision)));
        self.lines.push_back(line);
    }

    /// Drops the lines up to a revision: the base has them.
    pub(crate) fn drop_up_to(&mut self, oldest: Revision) {
        while self.oldest < oldest {
            let line = self.lines.pop_front().expect("the base is not ahead of the log");
            self.bytes -= line.head.bytes as u64;
            self.history = line.head.history;
            self.oldest = line.head.revision;
            self.drop_version(line.head);
        }
    }

    fn drop_version(&mut self, head: Head) {
        let versions = self.versions.get_mut(&head.slot.resource).expect("versions are lines");
        versions.remove(&(head.slot.key, Reverse(head.revision)));
        if versions.is_empty() {
            self.versions.remove(&head.slot.resource);
        }
    }

    /// The lines after a revision that is not older than the window.
    pub(crate) fn after(&self, revision: Revision) -> impl Iterator<Item = &Line> {
        let skip = usize::try_from(revision.0 - self.oldest.0).unwrap_or(usize::MAX);
        self.lines.range(skip.min(self.lines.len())..)
    }

    /// The last change of an object up to a revision, if it is in the window.
    pub(crate) fn last(&self, slot: &Slot, at: Revision) -> Option<&Line> {
        self.last_of(self.versions.get(&slot.resource)?, &slot.key, at)
    }

    /// The first object of a resource behind a key that the window knows something of up to a
    /// revision, and what it knows last.
    pub(crate) fn next(
        &self,
        resource: &ResourceName,
        after: Option<&ObjectKey>,
        at: Revision,
    ) -> Option<&Line> {
        let versions = self.versions.get(resource)?;
        let mut after = after;
        loop {
            // Of one object the oldest version is the last one.
            let behind = after.map(|key| (key.clone(), Reverse(Revision::ZERO)));
            let from = behind.map_or(Bound::Unbounded, Bound::Excluded);
            let (key, _) = versions.range((from, Bound::Unbounded)).next()?;
            if let Some(line) = self.last_of(versions, key, at) {
                return Some(line);
            }
            after = Some(key);
        }
    }

    fn last_of(
        &self,
        versions: &BTreeSet<Version>,
        key: &ObjectKey,
        at: Revision,
    ) -> Option<&Line> {
        let (found, Reverse(revision)) = versions.range((key.clone(), Reverse(at))..).next()?;
        (found == key).then(|| self.line(*revision))
    }

    fn line(&self, revision: Revision) -> &Line {
        self.after(Revision(revision.0 - 1)).next().expect("versions are lines")
    }

    /// Up to where history should go by now; none if nothing has to.
    pub(crate) fn surplus(&self, now: Time, settings: &Settings) -> Option<Revision> {
        let too_old =
            self.lines.partition_point(|line| now.since(line.head.time) >= settings.keep_age);
        let count = too_old.max(self.over_bytes(settings)).max(self.over_size());
        (count > 0).then(|| Revision(self.oldest.0 + count as u64))
    }

    /// So many lines have to go for the superseded bytes. A bound that was passed is undercut by an
    /// eighth, so that it is not passed again by the next write.
    fn over_bytes(&self, settings: &Settings) -> usize {
        let (all, keep) = (self.history(), settings.keep_bytes);
        if all - self.history <= keep {
            return 0;
        }
        let kept = |line: &Line| all - line.head.history <= keep - keep / 8;
        (self.lines.partition_point(|line| !kept(line)) + 1).min(self.lines.len())
    }

    /// So many lines have to go because there are too many, or too many bytes in them.
    fn over_size(&self) -> usize {
        let full = |lines: usize, bytes: u64, eighths: u64| {
            lines as u64 > WINDOW_LINES_MAX as u64 / 8 * eighths
                || bytes > LOG_BYTES_MAX / 8 * eighths
        };
        if !full(self.lines.len(), self.bytes, 8) {
            return 0;
        }
        let mut bytes = self.bytes;
        let gone = self.lines.iter().enumerate().take_while(|(at, line)| {
            let more = full(self.lines.len() - at, bytes, 7);
            bytes -= line.head.bytes as u64;
            more
        });
        gone.count()
    }

    /// Returns `true` if the window is so far over its bounds that writers have to wait.
    pub(crate) fn overflows(&self) -> bool {
        self.lines.len() > 2 * WINDOW_LINES_MAX || self.bytes > 2 * LOG_BYTES_MAX
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Lines(Window, Arc<Segment>);

    impl Lines {
        fn new() -> Self {
            let dir = tempfile::tempdir().unwrap();
            let segment = Segment::open(&dir.path().join("log"), Revision(2)).unwrap();
            Self(Window::new(Revision(1), 0), Arc::new(segment))
        }

        fn push(&mut self, bytes: u64) {
            let (revision, time) = (self.0.current().next(), Time(0));
            let key = ObjectKey::new("shop", &format!("n{}", revision.0 % 1000)).unwrap();
            let slot = Slot { resource: ResourceName::stored("pods"), key };
            let (kind, bytes) = (EventKind::Modified, usize::try_from(bytes).unwrap());
            let (history, synced, body_at) = (0, Revision(1), 0);
            let head = Head { slot, revision, kind, time, history, synced, body_at, bytes };
            self.0.push(Line { head, segment: self.1.clone(), at: 0 });
        }

        fn surplus(&self) -> Option<Revision> {
            self.0.surplus(Time(0), &Settings::default())
        }
    }

    #[test]
    fn so_many_lines_are_kept_and_of_one_more_an_eighth_goes() {
        let mut lines = Lines::new();
        for _ in 0..WINDOW_LINES_MAX {
            lines.push(1);
        }
        assert_eq!(lines.surplus(), None);
        lines.push(1);
        assert_eq!(lines.surplus(), Some(Revision(WINDOW_LINES_MAX as u64 / 8 + 2)));
        for _ in 0..WINDOW_LINES_MAX - 1 {
            lines.push(1);
        }
        assert!(!lines.0.overflows());
        lines.push(1);
        assert!(lines.0.overflows());
    }

    #[test]
    fn so_many_bytes_are_kept_and_of_one_more_an_eighth_goes() {
        let mut lines = Lines::new();
        for _ in 0..8 {
            lines.push(LOG_BYTES_MAX / 8);
        }
        assert_eq!(lines.surplus(), None);
        lines.push(1);
        assert_eq!(lines.surplus(), Some(Revision(3)), "two lines of 128 MiB");
        lines.push(LOG_BYTES_MAX - 1);
        assert!(!lines.0.overflows());
        lines.push(1);
        assert!(lines.0.overflows());
    }

    #[test]
    fn what_is_dropped_leaves_nothing_behind() {
        let mut lines = Lines::new();
        for _ in 0..2500 {
            lines.push(10);
        }
        lines.0.drop_up_to(Revision(2501));
        let Window { oldest, lines, versions, bytes, .. } = lines.0;
        assert_eq!((oldest, lines.len(), versions.len(), bytes), (Revision(2501), 0, 0, 0));
    }
}
