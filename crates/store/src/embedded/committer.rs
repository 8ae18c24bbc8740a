//! The one thread that writes the log: write, sync, show, answer.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::failure::WriteError;
use super::handover::{Handover, Part};
use super::keeper::Bell;
use super::log::LogWriter;
use super::queue::Queue;
use super::shared::Shared;
use super::window::Line;
use crate::CommitError;

pub(crate) struct Committer {
    pub(crate) shared: Arc<Shared>,
    pub(crate) queue: Arc<Queue>,
    pub(crate) handover: Arc<Handover>,
    pub(crate) log: LogWriter,
    pub(crate) keeper: Arc<Bell>,
    /// Why a group was refused the last time, which is why decisions were discarded.
    pub(crate) refused: Option<CommitError>,
}

impl Committer {
    /// Works until nothing is handed over any more.
    pub(crate) fn run(mut self) {
        while let Some(group) = self.handover.take() {
            self.commit(group);
        }
    }

    fn commit(&mut self, group: Vec<Part>) {
        let round = self.handover.round();
        let (mut current, discarded): (Vec<_>, Vec<_>) =
            group.into_iter().partition(|part| part.round == round);
        if let Some(why) = self.refused.clone() {
            answer(discarded, Some(&why));
        }
        let failure = self.carry_out(&mut current).err();
        if let Some(failure) = &failure {
            self.handover.discard();
            self.refused = Some(failure.clone());
        }
        answer(current, failure.as_ref());
    }

    fn carry_out(&mut self, group: &mut [Part]) -> Result<(), CommitError> {
        self.shared.check_writable()?;
        let lines = self.append(group).map_err(|error| {
            let refusal = self.shared.fail_write("writing the log", &error);
            // It looks whether there is room again.
            self.keeper.ring();
            refusal
        })?;
        if !lines.is_empty() {
            self.show(lines, group);
        }
        Ok(())
    }

    /// Makes records durable; says where they are.
    fn append(&mut self, group: &mut [Part]) -> Result<Vec<Line>, WriteError> {
        let first = group.iter().find_map(Part::first_revision);
        let last = group.iter().rev().find_map(Part::last_revision);
        // There may be nothing but conflicts.
        let Some(revisions) = first.zip(last) else { return Ok(Vec::new()) };
        let records = group.iter().map(|part| &part.records[..]);
        let (segment, mut at) = self.log.append(revisions, records)?;
        self.shared.groups.fetch_add(1, Ordering::Relaxed);
        let heads = group.iter_mut().flat_map(|part| std::mem::take(&mut part.heads));
        let lines = heads.map(|head| {
            let line = Line { at, segment: segment.clone(), head };
            at += line.head.bytes as u64;
            line
        });
        Ok(lines.collect())
    }

    /// Shows what is durable: to reads and watches at the same moment.
    fn show(&self, lines: Vec<Line>, group: &mut [Part]) {
        let entries = group.iter_mut().flat_map(|part| std::mem::take(&mut part.entries));
        let mut window = self.shared.window.write();
        for line in lines {
            window.push(line);
        }
        self.shared.tail.publish(entries.map(|entry| entry.event));
        let now = self.shared.settings.clock.now();
        let surplus = window.surplus(now, &self.shared.settings).is_some();
        let behind = window.overflows();
        drop(window);
        if surplus {
            self.queue.hold_up(behind);
            self.keeper.ring();
        }
    }
}

/// Answers the writes of parts. A failure is that of all of them, also of those that lost: a conflict may be one
/// with a write that did not happen.
fn answer(parts: Vec<Part>, failure: Option<&CommitError>) {
    for mut part in parts {
        if let Some(failure) = failure {
            part.answers.fill_with(|| Err(failure.clone()));
        }
        let mut answers = part.answers.into_iter();
        for submission in part.submissions {
            let own = answers.by_ref().take(submission.count).collect();
            // Whoever is no longer there does not want to know.
            let _ = submission.answer.send(own);
        }
    }
}

impl Drop for Committer {
    /// Also after a panic: nobody may wait for somebody who is gone.
    fn drop(&mut self) {
        self.handover.close();
    }
}
