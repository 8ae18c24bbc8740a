//! One stream compared with its projection, frame by frame: S2, S3, S4, S6.

use super::case::{Case, Stream, View, is_event};
use super::watches::Future;
use super::{Findings, Rule};
use crate::history::Frame;
use crate::model::Event;

/// Where a stream begins to follow the log.
#[derive(Clone, Copy)]
pub(super) struct Start {
    /// Everything up to this revision is known to the client.
    pub rv: u64,
    /// The first frame after that.
    pub frame: usize,
    /// When it was there.
    pub ready: u64,
    pub future: Future,
}

/// What a stream delivered of what it owed.
pub(super) struct Walk<'a> {
    pub start: Start,
    /// The events after the start, as far as the stream got or lived.
    pub expected: &'a [Event<'a>],
    /// When each of them arrived first.
    pub delivered: Vec<Option<u64>>,
    /// The highest revision that the stream has promised or shown.
    pub position: u64,
    last_event: u64,
    last_bookmark: Option<u64>,
    /// All before this place was delivered.
    complete: usize,
}

impl<'a> Walk<'a> {
    pub(super) fn new(
        case: &Case<'_>,
        stream: &Stream<'_>,
        view: &'a View<'_>,
        start: Start,
        findings: &mut Findings,
    ) -> Self {
        let reached = stream.frames.iter().map(|(_, frame)| frame.rv).max().unwrap_or(0);
        let until = stream.alive_until(&case.clock);
        let expected = view.after(start.rv);
        let owed =
            expected.partition_point(|event| event.commit.rv <= reached || event.commit.t <= until);
        let expected = &expected[..owed];
        let mut walk = Self {
            start,
            expected,
            delivered: vec![None; expected.len()],
            position: start.rv,
            last_event: 0,
            last_bookmark: None,
            complete: 0,
        };
        for (line, frame) in &stream.frames[start.frame..] {
            let mut add = |rule, text: String| findings.add(rule, *line, &frame.sid, text);
            if is_event(frame) {
                walk.event(frame, &mut add);
            } else {
                walk.bookmark(frame.rv, &mut add);
            }
            walk.position = walk.position.max(frame.rv);
        }
        walk.gaps(stream, findings);
        walk
    }

    fn event(&mut self, frame: &Frame, add: &mut impl FnMut(Rule, String)) {
        let rv = frame.rv;
        if rv <= self.last_event {
            add(Rule::S2, format!("revision {rv} after {}", self.last_event));
        }
        self.last_event = self.last_event.max(rv);
        if let Some(bookmark) = self.last_bookmark.filter(|bookmark| rv <= *bookmark) {
            add(Rule::S4, format!("revision {rv} after the bookmark {bookmark}"));
        }
        let place = self.expected.binary_search_by_key(&rv, |event| event.commit.rv);
        match place {
            Ok(place) => {
                if let Some(text) = difference(frame, &self.expected[place]) {
                    add(Rule::S3, text);
                }
                self.delivered[place].get_or_insert(frame.t);
            }
            Err(_) if rv <= self.start.rv => {
                let rule = self.early_rule();
                add(rule, format!("revision {rv}, not above {}", self.start.rv));
            }
            Err(_) => add(Rule::S3, format!("{} has no event at revision {rv}", frame.key)),
        }
    }

    fn bookmark(&mut self, rv: u64, add: &mut impl FnMut(Rule, String)) {
        let from = self.start.rv;
        if rv < from || (rv == from && self.start.future == Future::Certain) {
            let rule = if self.start.future == Future::No { Rule::S4 } else { Rule::S6 };
            add(rule, format!("bookmark {rv}, the watch is from {from}"));
            return;
        }
        let before = self.last_event.max(self.last_bookmark.unwrap_or(0));
        if rv < before {
            add(Rule::S4, format!("bookmark {rv} after revision {before}"));
        }
        while self.delivered.get(self.complete).is_some_and(Option::is_some) {
            self.complete += 1;
        }
        if let Some(missing) = self.expected.get(self.complete)
            && missing.commit.rv <= rv
        {
            add(Rule::S4, format!("bookmark {rv} before revision {}", missing.commit.rv));
        }
        self.last_bookmark = self.last_bookmark.max(Some(rv));
    }

    /// S3: up to where the stream got, nothing is left out.
    fn gaps(&self, stream: &Stream<'_>, findings: &mut Findings) {
        let owed = self.expected.partition_point(|event| event.commit.rv <= self.position);
        let missing = self.expected.iter().zip(&self.delivered).take(owed);
        let mut missing = missing.filter(|(_, at)| at.is_none()).map(|(event, _)| event);
        if let (Some(first), Some((line, _))) = (missing.next(), stream.frames.last()) {
            let (rv, more) = (first.commit.rv, missing.count());
            let text = format!("revision {rv} of {} is missing, and {more} more", first.commit.key);
            findings.add(Rule::S3, *line, &stream.open.sid, text);
        }
    }

    fn early_rule(&self) -> Rule {
        if self.start.future == Future::No { Rule::S3 } else { Rule::S6 }
    }
}

/// How a frame differs from the event with its revision.
fn difference(frame: &Frame, event: &Event<'_>) -> Option<String> {
    let Event { kind, commit, object } = event;
    let rv = frame.rv;
    if frame.key != commit.key {
        Some(format!("revision {rv} is about {} and not {}", commit.key, frame.key))
    } else if frame.kind != *kind {
        Some(format!("revision {rv} is {kind:?} and not {:?}", frame.kind))
    } else if frame.uid != object.uid {
        Some(format!("revision {rv} has uid {} and not {}", object.uid, frame.uid))
    } else if frame.hash != object.hash {
        Some(format!("revision {rv} has other content"))
    } else {
        None
    }
}
