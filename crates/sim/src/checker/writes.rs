//! K1 and K2: one order that explains every answer, and nothing lost.
//!
//! Every success has its own revision, so the order need not be searched for: it is the order of
//! revisions. What is left is to replay it.

use std::collections::BTreeMap;

use super::case::Case;
use super::{Findings, Rule};
use crate::history::{Commit, CommitOp, Write, WriteOp};
use crate::model::Log;

pub(super) fn check(case: &Case<'_>, findings: &mut Findings) {
    let mut epochs = BTreeMap::<usize, Vec<(usize, &Write)>>::new();
    for (line, write) in &case.writes {
        epochs.entry(case.epoch_of(*line)).or_default().push((*line, write));
    }
    for (epoch, writes) in epochs {
        let bounds = Bounds::new(case, epoch, &writes);
        let mut owners = BTreeMap::new();
        for (line, write) in writes {
            let verdict = Verdict { log: case.log(epoch), bounds: &bounds, line, write };
            match write.acknowledged() {
                Some((_, rv)) if write.noop => verdict.found_unchanged(rv, findings),
                Some((_, rv)) => {
                    if let Some(other) = owners.insert(rv, line) {
                        let text = format!("revision {rv} is also the answer on line {other}");
                        findings.add(Rule::K1, line, &write.who, text);
                    }
                    verdict.succeeded(rv, findings);
                }
                None => verdict.refused(findings),
            }
        }
    }
}

/// Between which revisions a write with given times must lie.
struct Bounds<'a, 'b> {
    case: &'b Case<'a>,
    epoch: usize,
    /// By the time a write began, the lowest revision of those that began then or later.
    begun: Vec<(u64, u64)>,
}

impl<'a, 'b> Bounds<'a, 'b> {
    fn new(case: &'b Case<'a>, epoch: usize, writes: &[(usize, &Write)]) -> Self {
        let changed = writes.iter().filter(|(_, write)| !write.noop);
        let mut begun: Vec<_> = changed
            .filter_map(|(_, write)| write.acknowledged().map(|(_, rv)| (write.t0, rv)))
            .collect();
        begun.sort_unstable();
        let mut lowest = u64::MAX;
        for (_, rv) in begun.iter_mut().rev() {
            lowest = lowest.min(*rv);
            *rv = lowest;
        }
        Self { case, epoch, begun }
    }

    /// All writes that were answered before `t` are at or below this revision.
    fn floor(&self, t: u64) -> u64 {
        self.case.acknowledged_before(self.epoch, t)
    }

    /// All writes that began after `t` are above this revision.
    fn ceiling(&self, t: u64) -> u64 {
        let later = self.begun.partition_point(|(at, _)| *at <= t);
        self.begun.get(later).map_or(u64::MAX, |(_, rv)| rv - 1)
    }
}

/// One write under judgement.
struct Verdict<'a> {
    log: &'a Log,
    bounds: &'a Bounds<'a, 'a>,
    line: usize,
    write: &'a Write,
}

impl Verdict<'_> {
    fn add(&self, rule: Rule, text: String, findings: &mut Findings) {
        findings.add(rule, self.line, &self.write.who, text);
    }

    fn succeeded(&self, rv: u64, findings: &mut Findings) {
        let Write { key, t0, op, .. } = self.write;
        let floor = self.bounds.floor(*t0);
        if rv <= floor {
            let text = format!("revision {rv}, but {floor} was acknowledged before it began");
            self.add(Rule::K1, text, findings);
        }
        let Some(commit) = self.log.commit(rv) else {
            self.add(Rule::K2, format!("revision {rv} is not in the log"), findings);
            return;
        };
        let creates = commit.op == CommitOp::Create;
        if commit.key != *key || creates != (*op == WriteOp::Create) {
            let text = format!("revision {rv} is {:?} of {}", commit.op, commit.key);
            self.add(Rule::K1, text, findings);
        } else if !self.holds(self.log.object_at(key, rv - 1)) {
            let text = format!("succeeded at {rv}, though its condition did not hold");
            self.add(Rule::K1, text, findings);
        }
    }

    /// A write that changed nothing is a read of the version that it names.
    fn found_unchanged(&self, rv: u64, findings: &mut Findings) {
        let Write { key, t0, .. } = self.write;
        let version = self.log.object_at(key, rv).filter(|object| object.rv == rv);
        let newer = self.log.of_key(key, rv, self.bounds.floor(*t0)).next();
        if version.is_none() {
            self.add(Rule::K2, format!("revision {rv} of {key} is not in the log"), findings);
        } else if !self.holds(version) {
            self.add(Rule::K1, format!("revision {rv} is not what it demanded"), findings);
        } else if let Some(newer) = newer {
            let text = format!("found revision {rv}, but {} was already there", newer.rv);
            self.add(Rule::K1, text, findings);
        }
    }

    /// A conflict, an existing key or a missing one must have been real at some moment between
    /// the request and the answer.
    fn refused(&self, findings: &mut Findings) {
        let Write { key, t0, op, .. } = self.write;
        let (Some(t1), Some(code)) = (self.write.t1, self.write.code) else { return };
        // A create that finds no namespace is a 404 and says nothing about the key.
        if code != 409 && (code != 404 || *op == WriteOp::Create) {
            return;
        }
        let (floor, ceiling) = (self.bounds.floor(*t0), self.bounds.ceiling(t1));
        let begin = self.log.object_at(key, floor);
        let later = self.log.of_key(key, floor, ceiling);
        let mut states = later.map(|it| Some(it).filter(|it| it.op != CommitOp::Delete));
        if self.holds(begin) && states.all(|state| self.holds(state)) {
            self.add(Rule::K1, format!("{code}, though its condition held all along"), findings);
        }
    }

    /// Whether the write's condition holds for what is there.
    fn holds(&self, object: Option<&Commit>) -> bool {
        let Write { op, precond, .. } = self.write;
        match (op, object) {
            (WriteOp::Create, object) => object.is_none(),
            (_, None) => false,
            (_, Some(object)) => {
                precond.rv.is_none_or(|rv| rv == object.rv)
                    && precond.uid.as_ref().is_none_or(|uid| *uid == object.uid)
            }
        }
    }
}
