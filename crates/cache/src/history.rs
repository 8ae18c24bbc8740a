//! The history window's storage: a ring of segments, shared by all readers.

use std::ops::{Deref, Range};

use masthead_core::{Change, Object, Revision};

use crate::limits::RING_MIN;
use crate::sync::{Arc, ArcCell, Loaded};
use crate::version::{Seq, Version};

/// One change: the version that it made, and the one before. Both are held, so that whoever has the
/// segment reads them whole, whatever the writer cuts meanwhile.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub(crate) version: Arc<Version>,
    pub(crate) older: Option<Arc<Version>>,
}

impl Entry {
    /// The state that was visible before.
    pub(crate) fn before(&self) -> Option<&Object> {
        self.older.as_deref().and_then(Version::live)
    }

    pub(crate) fn change(&self) -> Change {
        Change {
            revision: self.version.revision,
            before: self.before().cloned(),
            after: self.version.live().cloned(),
            cause: self.version.cause,
        }
    }
}

/// Changes that were published together. Never changed once it is made.
#[derive(Debug)]
pub(crate) struct Segment {
    number: u64,
    pub(crate) first: Seq,
    pub(crate) entries: Box<[Entry]>,
}

impl Segment {
    pub(crate) fn new(number: u64, entries: Box<[Entry]>) -> Self {
        let first = entries.first().expect("a segment has changes").version.seq;
        Self { number, first, entries }
    }

    /// The same changes as other nodes.
    pub(crate) fn with(&self, entries: Box<[Entry]>) -> Self {
        Self::new(self.number, entries)
    }

    /// The sequence number behind its last change.
    pub(crate) fn end(&self) -> Seq {
        self.first + self.entries.len() as u64
    }

    pub(crate) fn get(&self, seq: Seq) -> Option<&Entry> {
        let at = usize::try_from(seq.checked_sub(self.first)?).ok()?;
        self.entries.get(at)
    }

    /// The changes from a sequence number to before another.
    pub(crate) fn between(&self, from: Seq, end: Seq) -> &[Entry] {
        let place = |seq: Seq| {
            let within = seq.clamp(self.first, self.end()) - self.first;
            usize::try_from(within).expect("clamped to the segment")
        };
        &self.entries[place(from)..place(end)]
    }

    fn last_revision(&self) -> Revision {
        self.entries.last().map_or(Revision::ZERO, |entry| entry.version.revision)
    }
}

/// Segments by number, each at its number modulo the size. A reader checks what it finds: a segment
/// that is not the one it asked for has been overtaken.
#[derive(Debug)]
pub(crate) struct Ring {
    cells: Box<[ArcCell<Segment>]>,
}

impl Ring {
    pub(crate) fn new(size: usize) -> Self {
        let size = size.next_power_of_two().max(RING_MIN);
        Self { cells: (0..size).map(|_| ArcCell::new(None)).collect() }
    }

    pub(crate) fn len(&self) -> usize {
        self.cells.len()
    }

    fn cell(&self, number: u64) -> &ArcCell<Segment> {
        #[expect(clippy::cast_possible_truncation, reason = "masked to the ring's size")]
        &self.cells[number as usize & (self.cells.len() - 1)]
    }

    pub(crate) fn get(&self, number: u64) -> Option<Standing> {
        let found = self.cell(number).load();
        let is_it = found.as_ref().is_some_and(|segment| segment.number == number);
        is_it.then(|| Standing(found))
    }

    pub(crate) fn put(&self, segment: Arc<Segment>) {
        self.cell(segment.number).set(Some(segment));
    }

    pub(crate) fn clear(&self, number: u64) {
        self.cell(number).set(None);
    }
}

/// A segment of a ring, for a look. It stays whole when the ring goes on; its count is not touched, which
/// all readers on all cores would otherwise take turns at.
pub(crate) struct Standing(Loaded<Arc<Segment>>);

impl Deref for Standing {
    type Target = Segment;

    fn deref(&self) -> &Segment {
        self.0.as_ref().expect("made of a segment that is there")
    }
}

/// The segments that one view can see.
pub(crate) struct History {
    pub(crate) ring: Loaded<Arc<Ring>>,
    pub(crate) numbers: Range<u64>,
}

impl History {
    fn get(&self, number: u64) -> Option<Standing> {
        self.ring.as_ref().expect("there is always a ring").get(number)
    }

    /// The segment that has a change, or `None` if it was overtaken. Most readers are near the head,
    /// so the search begins there.
    pub(crate) fn segment_of(&self, seq: Seq) -> Option<Standing> {
        let newest = self.get(self.numbers.end.checked_sub(1)?)?;
        if newest.first <= seq {
            return Some(newest).filter(|segment| seq < segment.end());
        }
        let number = self.lowest(|segment| segment.end() > seq)?;
        self.get(number).filter(|segment| segment.first <= seq)
    }

    /// The segment after another, unless that was the last.
    pub(crate) fn after(&self, segment: &Segment) -> Option<Standing> {
        self.get(segment.number + 1)
    }

    /// The first change from `from` on that is above a revision, or `end` if there is none; `None` if a
    /// segment was overtaken during the search. Revisions never fall within the range.
    pub(crate) fn first_after(&self, from: Seq, end: Seq, revision: Revision) -> Option<Seq> {
        if from == end {
            return Some(end);
        }
        let number =
            self.lowest(|segment| segment.end() > from && segment.last_revision() > revision)?;
        if number == self.numbers.end {
            return Some(end);
        }
        let segment = self.get(number)?;
        let within = segment.entries.partition_point(|Entry { version, .. }| {
            version.seq < from || version.revision <= revision
        });
        Some(segment.first + within as u64)
    }

    /// The lowest number for which `is_it` holds; it holds for all above. `None` if overtaken.
    fn lowest(&self, is_it: impl Fn(&Segment) -> bool) -> Option<u64> {
        let Range { start: mut low, end: mut high } = self.numbers;
        while low < high {
            let middle = low + (high - low) / 2;
            if is_it(&*self.get(middle)?) {
                high = middle;
            } else {
                low = middle + 1;
            }
        }
        Some(low)
    }
}
