//! L4: a list at r and a watch from r add up to every later state.

use std::collections::BTreeMap;

use super::case::{Asked, Case, Stream, is_event};
use super::initial::first_difference;
use super::lists::{Whole, whole_lists};
use super::{Findings, Rule};
use crate::history::FrameType;

pub(super) fn check(case: &Case<'_>, findings: &mut Findings) {
    let lists = whole_lists(case);
    let mut by_end = BTreeMap::<(usize, &str, Asked<'_>, u64), Vec<&Whole<'_>>>::new();
    for whole in &lists {
        let list = whole.list;
        let asked = (&list.scope, list.selector.as_str(), list.fields.as_str());
        by_end.entry((whole.epoch, &list.who, asked, whole.rv)).or_default().push(whole);
    }
    for stream in case.streams.values().filter(|stream| !stream.open.injected) {
        let Some(from) = stream.resumes().filter(|_| !stream.below_window()) else { continue };
        let end = (stream.epoch, stream.open.who.as_str(), stream.asked(), from);
        let before = by_end.get(&end).into_iter().flatten();
        if let Some(whole) = before.rev().find(|whole| whole.line < stream.line) {
            adds_up(case, whole, stream, findings);
        }
    }
}

fn adds_up(case: &Case<'_>, whole: &Whole<'_>, stream: &Stream<'_>, findings: &mut Findings) {
    let (Some((line, _)), Some(view)) = (stream.frames.last(), case.view(stream)) else { return };
    let items = whole.items.iter();
    let mut folded: BTreeMap<_, _> =
        items.map(|it| (it.key.as_str(), (it.uid.as_str(), it.rv, it.hash))).collect();
    let mut upto = whole.rv;
    for (_, frame) in &stream.frames {
        upto = upto.max(frame.rv);
        if frame.kind == FrameType::Deleted {
            folded.remove(frame.key.as_str());
        } else if is_event(frame) {
            folded.insert(&frame.key, (&frame.uid, frame.rv, frame.hash));
        }
    }
    let state = case.log(stream.epoch).select(&view.query, upto).into_iter();
    let state = state.map(|(key, it)| (key, (it.uid.as_str(), it.rv, it.hash))).collect();
    if let Some(text) = first_difference(&folded, &state) {
        let text = format!("with the list {} up to revision {upto}: {text}", whole.list.id);
        findings.add(Rule::L4, *line, &stream.open.sid, text);
    }
}
