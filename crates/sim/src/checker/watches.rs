//! S1 to S6: what one watch may say, and where it must begin.

use super::case::{Case, Stream, View, is_event};
use super::walk::{Start, Walk};
use super::{Findings, Rule, initial, liveness};
use crate::history::{Frame, FrameType};
use crate::limits::DELIVERY_MS_MAX;
use crate::model::Log;

pub(super) fn check(case: &Case<'_>, findings: &mut Findings) {
    for stream in case.streams.values().filter(|stream| !stream.open.injected) {
        let Some(view) = case.view(stream) else { continue };
        for (line, frame) in &stream.frames {
            filter(case.log(stream.epoch), view, *line, frame, findings);
        }
        if stream.below_window() {
            refused(case, stream, findings);
            continue;
        }
        let Some(start) = start(case, stream, view, findings) else { continue };
        let walk = Walk::new(case, stream, view, start, findings);
        begins_at_the_next_event(stream, &walk, findings);
        ends_rightly(stream, &walk, findings);
        liveness::check(case, stream, &walk, findings);
    }
}

/// S1: in scope, and selected now (or, for a deletion, just before). A revision that the log does
/// not have for this key is left to S3 and S7.
fn filter(log: &Log, view: &View<'_>, line: usize, frame: &Frame, findings: &mut Findings) {
    if !is_event(frame) {
        return;
    }
    let mut add = |text: String| findings.add(Rule::S1, line, &frame.sid, text);
    let Frame { key, rv, .. } = frame;
    if !view.query.scope().covers(key) {
        add(format!("{key} is not in {}", view.query.scope()));
        return;
    }
    let Some(commit) = log.commit(*rv).filter(|commit| commit.key == *key) else { return };
    let selected = match frame.kind {
        FrameType::Deleted => log.newest(key, rv - 1).is_some_and(|it| view.query.selects(it)),
        _ => view.query.selects(commit),
    };
    if !selected {
        let when = if frame.kind == FrameType::Deleted { "before" } else { "at" };
        add(format!("{key} is not selected {when} revision {rv}"));
    }
}

/// S5 below the window: 410 and nothing else.
fn refused(case: &Case<'_>, stream: &Stream<'_>, findings: &mut Findings) {
    let sid = &stream.open.sid;
    if let Some((line, frame)) = stream.frames.first() {
        let text = format!("resumed below its window, revision {} came", frame.rv);
        findings.add(Rule::S5, *line, sid, text);
        return;
    }
    match stream.end {
        // Without a code the connection died: no answer is no wrong answer.
        Some((line, end)) if end.code.is_some_and(|code| code == 200) => {
            findings.add(Rule::S5, line, sid, "ended well below the window, not with 410");
        }
        None if case.clock.due(stream.open.t0, DELIVERY_MS_MAX, &stream.names()).is_some() => {
            findings.add(Rule::S5, stream.line, sid, "kept open below the window, not refused");
        }
        _ => {}
    }
}

/// Where the projection begins that the stream has to follow: its place in the frames and its
/// revision.
fn start(
    case: &Case<'_>,
    stream: &Stream<'_>,
    view: &View<'_>,
    findings: &mut Findings,
) -> Option<Start> {
    if stream.open.initial {
        return initial::check(case, stream, view, findings);
    }
    initial::no_mark_expected(stream, 0, findings);
    if let Some(rv) = stream.resumes() {
        let future = future(case, stream, rv);
        return Some(Start { rv, frame: 0, ready: stream.open.t0, future });
    }
    // "From now on": where now was shows in the first frame only.
    let (_, first) = stream.frames.first()?;
    let rv = if is_event(first) { first.rv.saturating_sub(1) } else { first.rv };
    Some(Start { rv, frame: 0, ready: first.t, future: Future::No })
}

/// Whether `from` lay ahead of the store when the watch was opened.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Future {
    No,
    /// By the log: the counter may have been moved further by changes to other resources.
    Likely,
    /// By the server's own word.
    Certain,
}

fn future(case: &Case<'_>, stream: &Stream<'_>, from: u64) -> Future {
    match stream.open.current {
        Some(current) if from > current => Future::Certain,
        Some(_) => Future::No,
        None => {
            let commits = case.log(stream.epoch).commits();
            let there = commits.partition_point(|commit| commit.rv < from);
            let reached = commits.get(there).is_some_and(|commit| commit.t <= stream.open.t0);
            if reached { Future::No } else { Future::Likely }
        }
    }
}

/// S5 within the window: what comes first is the least revision above `from`.
fn begins_at_the_next_event(stream: &Stream<'_>, walk: &Walk<'_>, findings: &mut Findings) {
    if stream.resumes().is_none() {
        return;
    }
    let first = stream.frames.iter().find(|(_, frame)| is_event(frame));
    let (Some((line, frame)), Some(expected)) = (first, walk.expected.first()) else { return };
    if walk.delivered[0].is_none() && frame.rv > expected.commit.rv {
        let text = format!("resumes with {} and not with {}", frame.rv, expected.commit.rv);
        findings.add(Rule::S5, *line, &stream.open.sid, text);
    }
}

/// S5: 410 only below the window. S6: a revision of the future is no reason to end.
fn ends_rightly(stream: &Stream<'_>, walk: &Walk<'_>, findings: &mut Findings) {
    let Some((line, end)) = stream.end.filter(|(_, end)| !end.injected) else { return };
    let at_open = stream.open.oldest.filter(|_| stream.frames.is_empty());
    let known = stream.resumes().is_some() || stream.open.bookmarks;
    if let (Some(410), Some(oldest)) = (end.code, end.oldest.or(at_open))
        && known
        && walk.position >= oldest
    {
        let text = format!("410 at revision {}, kept from {oldest} on", walk.position);
        findings.add(Rule::S5, line, &stream.open.sid, text);
    }
    if end.code == Some(504) && walk.start.future != Future::No {
        let text = format!("504 for revision {} instead of waiting", walk.start.rv);
        findings.add(Rule::S6, line, &stream.open.sid, text);
    }
}
