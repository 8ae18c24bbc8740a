//! The one thread that writes the log: decide, write, sync, publish, answer.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use masthead_core::Time;

use super::keeper::Bell;
use super::log::LogWriter;
use super::queue::{Answers, Queue, Submission};
use super::record;
use super::shared::Shared;
use super::window::Line;
use crate::ledger::{self, Entry, Group};
use crate::limits::ENCODE_BUFFER_BYTES;
use crate::{CommitError, Health, Write};

pub(crate) struct Committer {
    pub(crate) shared: Arc<Shared>,
    pub(crate) queue: Arc<Queue>,
    pub(crate) log: LogWriter,
    pub(crate) keeper: Arc<Bell>,
    /// The records of a group, used again for the next.
    pub(crate) buffer: Vec<u8>,
}

impl Committer {
    /// Works until the queue is closed.
    pub(crate) fn run(mut self) {
        while let Some(group) = self.queue.take() {
            self.commit(group);
        }
    }

    fn commit(&mut self, mut submissions: Vec<Submission>) {
        let counts: Vec<_> = submissions.iter().map(|it| it.writes.len()).collect();
        let writes = submissions.iter_mut().flat_map(|it| std::mem::take(&mut it.writes)).collect();
        let mut answers = self.carry_out(writes).into_iter();
        for (submission, count) in submissions.into_iter().zip(counts) {
            // Whoever is no longer there does not want to know.
            let _ = submission.answer.send(answers.by_ref().take(count).collect());
        }
    }

    fn carry_out(&mut self, writes: Vec<Write>) -> Answers {
        let count = writes.len();
        if let Health::ReadOnly { why } = self.shared.health() {
            return vec![Err(CommitError::ReadOnly { why }); count];
        }
        let Group { results, entries } =
            ledger::decide(self.shared.tail.current(), writes, &*self.shared);
        if entries.is_empty() {
            return results;
        }
        match self.append(&entries) {
            Ok(lines) => {
                self.publish(lines, entries);
                results
            }
            // Of all of them: a conflict may be one with a write that did not happen.
            Err(error) => {
                let why = self.shared.fail(&format!("writing the log failed: {error}"));
                vec![Err(CommitError::ReadOnly { why }); count]
            }
        }
    }

    /// Makes entries durable.
    fn append(&mut self, entries: &[Entry]) -> io::Result<Vec<Line>> {
        let heads = self.encode(entries);
        let (segment, start) = self.log.append(entries[0].event.revision, &self.buffer)?;
        self.shared.groups.fetch_add(1, Ordering::Relaxed);
        self.buffer.clear();
        self.buffer.shrink_to(ENCODE_BUFFER_BYTES);
        let mut at = start;
        let lines = heads.into_iter().map(|head| {
            let line = Line { at, segment: segment.clone(), head };
            at += line.head.bytes as u64;
            line
        });
        Ok(lines.collect())
    }

    fn encode(&mut self, entries: &[Entry]) -> Vec<record::Head> {
        let (mut history, time) = {
            let window = self.shared.window.read();
            (window.history(), window.time().max(self.now()))
        };
        self.buffer.clear();
        let heads = entries.iter().map(|entry| {
            history += entry.history_bytes;
            record::encode(&mut self.buffer, &entry.event, time, history)
        });
        heads.collect()
    }

    /// Shows what is durable: to reads and watches at the same moment.
    fn publish(&self, lines: Vec<Line>, entries: Vec<Entry>) {
        let mut window = self.shared.window.write();
        for line in lines {
            window.push(line);
        }
        self.shared.tail.publish(entries.into_iter().map(|entry| entry.event));
        let surplus = window.surplus(self.now(), &self.shared.settings).is_some();
        let behind = window.overflows();
        drop(window);
        if surplus {
            self.queue.hold_up(behind);
            self.keeper.ring();
        }
    }

    fn now(&self) -> Time {
        self.shared.settings.clock.now()
    }
}

impl Drop for Committer {
    /// Also after a panic: nobody may wait for a committer that is gone.
    fn drop(&mut self) {
        self.queue.close();
    }
}
