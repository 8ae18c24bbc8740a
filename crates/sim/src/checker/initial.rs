//! S7: a stream that begins with the present state.
//!
//! With a mark the state's revision is known, and what stands before the mark is folded. Without
//! one (bookmarks were not asked for) the revision is inferred: the stream is right if there is
//! *any* revision that explains it.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hash, Hasher};

use super::case::{Case, Stream, View, is_event};
use super::walk::Start;
use super::watches::Future;
use super::{Findings, Rule};
use crate::history::{Frame, FrameType};
use crate::limits::{BOOKMARK_MS_MAX, DELIVERY_MS_MAX};
use crate::model::Event;

/// A version of an object: uid, revision, content.
pub(super) type Version<'a> = (&'a str, u64, u64);

/// Judges the initial events. What follows them begins where the answer says; there is none if
/// the stream ended before.
pub(super) fn check(
    case: &Case<'_>,
    stream: &Stream<'_>,
    view: &View<'_>,
    findings: &mut Findings,
) -> Option<Start> {
    let mark = stream.frames.iter().position(|(_, frame)| frame.initial_end);
    let start = match mark {
        Some(mark) => Some(marked(case, stream, view, mark, findings)),
        None if stream.open.bookmarks => {
            broken_off(case, stream, BOOKMARK_MS_MAX, findings);
            None
        }
        None => unmarked(case, stream, view, findings),
    };
    no_mark_expected(stream, mark.map_or(0, |mark| mark + 1), findings);
    start
}

/// The mark stands on no frame from `first` on.
pub(super) fn no_mark_expected(stream: &Stream<'_>, first: usize, findings: &mut Findings) {
    let rest = &stream.frames[first..];
    if let Some((line, _)) = rest.iter().find(|(_, frame)| frame.initial_end) {
        findings.add(Rule::S7, *line, &stream.open.sid, "a mark where none is due");
    }
}

/// The lowest revision that the state may have.
fn freshness(case: &Case<'_>, stream: &Stream<'_>) -> u64 {
    let newest = || case.acknowledged_before(stream.epoch, stream.open.t0);
    stream.open.from.unwrap_or_else(newest)
}

fn marked(
    case: &Case<'_>,
    stream: &Stream<'_>,
    view: &View<'_>,
    mark: usize,
    findings: &mut Findings,
) -> Start {
    let (line, frame) = stream.frames[mark];
    let rv = frame.rv;
    let found = fold(&stream.frames[..mark], findings);
    let state = case.log(stream.epoch).select(&view.query, rv);
    let state = state.into_iter().map(|(key, it)| (key, (it.uid.as_str(), it.rv, it.hash)));
    if let Some(text) = first_difference(&found, &state.collect()) {
        findings.add(Rule::S7, line, &frame.sid, format!("{text} at revision {rv}"));
    }
    let least = freshness(case, stream);
    if rv < least {
        let text = format!("the state is of revision {rv}, {least} was due");
        findings.add(Rule::S7, line, &frame.sid, text);
    }
    Start { rv, frame: mark + 1, ready: frame.t, future: Future::No }
}

/// Folds what stands before the mark: the state itself, and changes that already followed it.
fn fold<'a>(
    frames: &[(usize, &'a Frame)],
    findings: &mut Findings,
) -> BTreeMap<&'a str, Version<'a>> {
    let mut state = BTreeMap::new();
    let mut seen = BTreeSet::new();
    for (line, frame) in frames {
        let key = frame.key.as_str();
        if !is_event(frame) {
            findings.add(Rule::S7, *line, &frame.sid, "a bookmark before the mark");
            continue;
        }
        if !seen.insert((key, frame.rv)) {
            let text = format!("{key} came twice with revision {}", frame.rv);
            findings.add(Rule::S2, *line, &frame.sid, text);
            continue;
        }
        let before = match frame.kind {
            FrameType::Deleted => state.remove(key),
            _ => state.insert(key, (frame.uid.as_str(), frame.rv, frame.hash)),
        };
        if before.is_some() != (frame.kind != FrameType::Added) {
            let text = format!("{:?} does not fit what came before of {key}", frame.kind);
            findings.add(Rule::S7, *line, &frame.sid, text);
        }
    }
    state
}

/// The first key, if any, at which two states differ.
pub(super) fn first_difference(
    found: &BTreeMap<&str, Version<'_>>,
    state: &BTreeMap<&str, Version<'_>>,
) -> Option<String> {
    let missing = state.iter().find(|(key, version)| found.get(*key) != Some(version));
    let extra = found.keys().find(|key| !state.contains_key(*key));
    match (missing, extra) {
        (Some((key, _)), _) if !found.contains_key(key) => Some(format!("{key} is missing")),
        (Some((key, _)), _) => Some(format!("{key} is another version")),
        (None, Some(key)) => Some(format!("{key} is too many")),
        (None, None) => None,
    }
}

/// Without mark and without a state that fits: each frame must be a version that exists, and the
/// stream must be over before the rest was due.
fn broken_off(case: &Case<'_>, stream: &Stream<'_>, budget: u64, findings: &mut Findings) {
    let log = case.log(stream.epoch);
    for (line, frame) in &stream.frames {
        let real = log.commit(frame.rv).is_some_and(|commit| {
            commit.key == frame.key
                && (frame.kind == FrameType::Deleted
                    || (commit.uid == frame.uid && commit.hash == frame.hash))
        });
        if !real {
            let text = format!("{} never was as revision {} says", frame.key, frame.rv);
            findings.add(Rule::S7, *line, &frame.sid, text);
        }
    }
    let due = case.clock.due(stream.open.t0, budget, &stream.names());
    if due.is_some_and(|due| due < stream.alive_until(&case.clock)) {
        let line = stream.frames.last().map_or(stream.line, |(line, _)| *line);
        findings.add(Rule::S7, line, &stream.open.sid, "the initial events do not end");
    }
}

/// Finds the revision whose state the first frames are.
///
/// If the state is the first `k` frames, all of them are `ADDED` and the next frame is above its
/// revision. Nothing lies between that revision and the next frame, so the revision just below
/// the next frame explains the stream as well as any. That leaves one candidate for each `k`, and
/// a sum over hashes tells at once whether it fits.
fn unmarked(
    case: &Case<'_>,
    stream: &Stream<'_>,
    view: &View<'_>,
    findings: &mut Findings,
) -> Option<Start> {
    let states = StateSums::new(&view.events);
    let least = freshness(case, stream);
    let mut sum = 0_u64;
    let mut highest = 0;
    let mut best = None;
    for count in 0..=stream.frames.len() {
        let next = stream.frames.get(count).map(|(_, frame)| *frame);
        let before = next.map_or(u64::MAX, |frame| frame.rv.saturating_sub(1));
        let explained = states.newest_with(sum, highest, before);
        best = explained.filter(|rv| *rv >= least).map(|rv| (rv, count)).or(best);
        match next {
            Some(frame) if frame.kind == FrameType::Added => {
                let version = (frame.uid.as_str(), frame.rv, frame.hash);
                sum = sum.wrapping_add(hash_of(&frame.key, version));
                highest = highest.max(frame.rv);
            }
            _ => break,
        }
    }
    let Some((rv, frame)) = best else {
        broken_off(case, stream, DELIVERY_MS_MAX, findings);
        if let Some((line, _)) = stream.frames.iter().find(|(_, it)| it.kind != FrameType::Added) {
            findings.add(Rule::S7, *line, &stream.open.sid, "no state explains what came before");
        }
        return None;
    };
    // At the end of the stream any later revision fits; the least of them promises least.
    let rv = if rv == u64::MAX { states.last().max(highest).max(least) } else { rv };
    Some(Start { rv, frame, ready: stream.open.t0, future: Future::No })
}

/// The sum of the hashes of all objects of a query's state, from each of its events on.
struct StateSums {
    /// Revision and sum, beginning with the empty state.
    sums: Vec<(u64, u64)>,
}

impl StateSums {
    fn new(events: &[Event<'_>]) -> Self {
        let mut sums = vec![(0, 0_u64)];
        let mut present = BTreeMap::new();
        let mut sum = 0_u64;
        for Event { kind, commit, .. } in events {
            let key = commit.key.as_str();
            if let Some(before) = present.remove(key) {
                sum = sum.wrapping_sub(before);
            }
            if *kind != FrameType::Deleted {
                let hash = hash_of(key, (&commit.uid, commit.rv, commit.hash));
                present.insert(key, hash);
                sum = sum.wrapping_add(hash);
            }
            sums.push((commit.rv, sum));
        }
        Self { sums }
    }

    /// The revision of the last state.
    fn last(&self) -> u64 {
        self.sums.last().map_or(0, |(rv, _)| *rv)
    }

    /// The highest revision up to `upto` whose state has this sum, if it is `from` or higher.
    fn newest_with(&self, sum: u64, from: u64, upto: u64) -> Option<u64> {
        let end = self.sums.partition_point(|(rv, _)| *rv <= upto);
        if self.sums[..end].last().is_some_and(|(_, found)| *found == sum) {
            return Some(upto).filter(|rv| *rv >= from);
        }
        // Only at the end of the stream is there a choice: the state may be an earlier one, and
        // what followed has not been sent yet.
        if upto != u64::MAX {
            return None;
        }
        let older = self.sums[..end].windows(2).rev().take_while(|pair| pair[1].0 > from);
        older.filter(|pair| pair[0].1 == sum).map(|pair| pair[1].0 - 1).next()
    }
}

fn hash_of(key: &str, version: Version<'_>) -> u64 {
    let mut hasher = DefaultHasher::new();
    (key, version).hash(&mut hasher);
    hasher.finish()
}
