//! S8: watches that ask the same are told the same.
//!
//! Unlike S3 this needs no log: the streams are compared with each other. Events of all streams
//! of a group are put together, and each stream must hold all of those that lie in its range.

use std::collections::BTreeMap;

use super::case::{Case, Stream, is_event};
use super::{Findings, Rule};
use crate::history::FrameType;

/// What two watches have to agree about.
type Said<'a> = (u64, FrameType, &'a str, &'a str, u64);

/// One stream's part in its group.
struct Voice<'a> {
    sid: &'a str,
    line: usize,
    from: u64,
    upto: u64,
    said: Vec<Said<'a>>,
}

pub(super) fn check(case: &Case<'_>, findings: &mut Findings) {
    let mut groups = BTreeMap::<_, Vec<Voice<'_>>>::new();
    for stream in case.streams.values().filter(|stream| !stream.open.injected) {
        groups.entry((stream.epoch, stream.asked())).or_default().extend(voice(stream));
    }
    for voices in groups.into_values().filter(|voices| voices.len() > 1) {
        let mut all: Vec<_> = voices.iter().flat_map(|voice| voice.said.iter().copied()).collect();
        all.sort_unstable();
        all.dedup();
        let missed = voices.iter().filter_map(|voice| Some((first_missed(&all, voice)?, voice)));
        if let Some((event, voice)) = missed.min_by_key(|(event, _)| *event) {
            let (rv, kind, key, ..) = event;
            let text = format!("another watch was told {kind:?} {key} at revision {rv}");
            findings.add(Rule::S8, voice.line, voice.sid, text);
        }
    }
}

/// A stream whose beginning is known, and that said something.
fn voice<'a>(stream: &Stream<'a>) -> Option<Voice<'a>> {
    let mark = stream.frames.iter().position(|(_, frame)| frame.initial_end);
    let (from, first) = match (stream.resumes(), mark) {
        (Some(from), _) => (from, 0),
        (None, Some(mark)) => (stream.frames[mark].1.rv, mark + 1),
        (None, None) => return None,
    };
    let frames = stream.frames.get(first..)?;
    let (line, _) = frames.last()?;
    let upto = frames.iter().map(|(_, frame)| frame.rv).max()?;
    let events = frames.iter().map(|(_, frame)| *frame).filter(|frame| is_event(frame));
    let mut said: Vec<Said<'a>> = events
        .map(|frame| (frame.rv, frame.kind, frame.key.as_str(), frame.uid.as_str(), frame.hash))
        .collect();
    said.sort_unstable();
    said.dedup();
    Some(Voice { sid: &stream.open.sid, line: *line, from, upto, said })
}

/// The first of all events that the stream should have but does not.
fn first_missed<'a>(all: &[Said<'a>], voice: &Voice<'a>) -> Option<Said<'a>> {
    let begin = all.partition_point(|event| event.0 <= voice.from);
    let end = all.partition_point(|event| event.0 <= voice.upto);
    let mut own = voice.said.iter().skip_while(|event| event.0 <= voice.from).peekable();
    let due = all.get(begin..end).unwrap_or_default();
    due.iter().find(|event| own.next_if_eq(event).is_none()).copied()
}
