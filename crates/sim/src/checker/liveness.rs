//! S9: a stream may be ended, but it may not be stuck.

use super::case::{Case, Stream};
use super::walk::Walk;
use super::watches::Future;
use super::{Findings, Rule};
use crate::limits::{BOOKMARK_MS_MAX, DELIVERY_MS_MAX};

pub(super) fn check(
    case: &Case<'_>,
    stream: &Stream<'_>,
    walk: &Walk<'_>,
    findings: &mut Findings,
) {
    in_time(case, stream, walk, findings);
    if stream.open.bookmarks {
        never_silent(case, stream, walk, findings);
    }
}

/// Each match arrives in time. One that is missing in the middle is S3's; here belongs what comes
/// late and what does not come at all.
fn in_time(case: &Case<'_>, stream: &Stream<'_>, walk: &Walk<'_>, findings: &mut Findings) {
    let names = stream.names();
    let alive = stream.alive_until(&case.clock);
    for (event, at) in walk.expected.iter().zip(&walk.delivered) {
        let rv = event.commit.rv;
        let begin = event.commit.t.max(walk.start.ready);
        let deadline = case.clock.deadline(begin, DELIVERY_MS_MAX, &names);
        let late = match at {
            Some(at) if *at > deadline => format!("came {} ms late", at - deadline),
            None if rv > walk.position && deadline < alive => "never came".to_owned(),
            _ => continue,
        };
        let text = format!("revision {rv} of {} {late}", event.commit.key);
        findings.add(Rule::S9, last_line(stream), &stream.open.sid, text);
        return;
    }
}

/// A stream with bookmarks is never quiet for long, once it has nothing to wait for.
fn never_silent(case: &Case<'_>, stream: &Stream<'_>, walk: &Walk<'_>, findings: &mut Findings) {
    let names = stream.names();
    let alive = stream.alive_until(&case.clock);
    let Some(mut since) = idle_from(case, stream, walk) else { return };
    let frames = stream.frames[walk.start.frame..].iter().map(|(_, frame)| frame.t);
    for next in frames.chain([alive]) {
        if case.clock.deadline(since, BOOKMARK_MS_MAX, &names) < next {
            let text = format!("no bookmark since {since} ms");
            findings.add(Rule::S9, last_line(stream), &stream.open.sid, text);
            return;
        }
        since = since.max(next);
    }
}

/// From when on bookmarks are due: not before the store has reached the revision asked for.
fn idle_from(case: &Case<'_>, stream: &Stream<'_>, walk: &Walk<'_>) -> Option<u64> {
    if walk.start.future == Future::No {
        return Some(walk.start.ready);
    }
    let commits = case.log(stream.epoch).commits();
    let reached = commits.get(commits.partition_point(|commit| commit.rv < walk.start.rv))?;
    Some(reached.t.max(walk.start.ready))
}

fn last_line(stream: &Stream<'_>) -> usize {
    stream.frames.last().map_or(stream.line, |(line, _)| *line)
}
