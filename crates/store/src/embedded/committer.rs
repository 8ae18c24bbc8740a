//! The one thread that writes the log: write, sync, show, answer.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::Receiver;

use parking_lot::Mutex;

use super::decider::Prepared;
use super::keeper::Bell;
use super::log::LogWriter;
use super::queue::Queue;
use super::record::Head;
use super::shared::Shared;
use super::window::Line;
use crate::ledger::Entry;
use crate::limits::ENCODE_BUFFER_BYTES;
use crate::{CommitError, Health};

pub(crate) struct Committer {
    pub(crate) shared: Arc<Shared>,
    pub(crate) groups: Receiver<Prepared>,
    pub(crate) log: LogWriter,
    pub(crate) queue: Arc<Queue>,
    pub(crate) keeper: Arc<Bell>,
    /// Where a buffer goes that can be used again.
    pub(crate) spare: Arc<Mutex<Vec<u8>>>,
}

impl Committer {
    /// Works until the decider is gone.
    pub(crate) fn run(mut self) {
        while let Ok(group) = self.groups.recv() {
            self.commit(group);
        }
    }

    fn commit(&mut self, group: Prepared) {
        let Prepared { mut submissions, mut answers, entries, heads, records } = group;
        // Of a group that fails all writes do: a conflict may be one with a write that did not
        // happen. So may those of the group that was decided meanwhile.
        if let Err(failure) = self.carry_out(entries, heads, &records) {
            answers.fill_with(|| Err(failure.clone()));
        }
        let mut answers = answers.into_iter();
        for submission in submissions.drain(..) {
            let own = answers.by_ref().take(submission.count).collect();
            // Whoever is no longer there does not want to know.
            let _ = submission.answer.send(own);
        }
        self.give_back(records);
    }

    fn carry_out(
        &mut self,
        entries: Vec<Entry>,
        heads: Vec<Head>,
        records: &[u8],
    ) -> Result<(), CommitError> {
        if let Health::ReadOnly { why } = self.shared.health() {
            return Err(CommitError::ReadOnly { why });
        }
        if !entries.is_empty() {
            let lines = self.append(heads, records).map_err(|error| {
                let why = self.shared.fail(&format!("writing the log failed: {error}"));
                CommitError::ReadOnly { why }
            })?;
            self.show(lines, entries);
        }
        Ok(())
    }

    /// Makes records durable; says where they are.
    fn append(&mut self, heads: Vec<Head>, records: &[u8]) -> io::Result<Vec<Line>> {
        let (segment, mut at) = self.log.append(heads[0].revision, records)?;
        self.shared.groups.fetch_add(1, Ordering::Relaxed);
        let lines = heads.into_iter().map(|head| {
            let line = Line { at, segment: segment.clone(), head };
            at += line.head.bytes as u64;
            line
        });
        Ok(lines.collect())
    }

    /// Shows what is durable: to reads and watches at the same moment.
    fn show(&self, lines: Vec<Line>, entries: Vec<Entry>) {
        let mut window = self.shared.window.write();
        for line in lines {
            window.push(line);
        }
        self.shared.tail.publish(entries.into_iter().map(|entry| entry.event));
        let now = self.shared.settings.clock.now();
        let surplus = window.surplus(now, &self.shared.settings).is_some();
        let behind = window.overflows();
        drop(window);
        if surplus {
            self.queue.hold_up(behind);
            self.keeper.ring();
        }
    }

    fn give_back(&self, mut buffer: Vec<u8>) {
        buffer.clear();
        buffer.shrink_to(ENCODE_BUFFER_BYTES);
        *self.spare.lock() = buffer;
    }
}
