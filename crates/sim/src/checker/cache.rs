//! I1, I2, I5: what is cached is real, is not older than it was, and is indexed.

use std::collections::BTreeMap;

use super::case::{Case, InformerLines};
use super::life::Life;
use super::{Findings, Rule};
use crate::history::{Commit, CommitOp, IndexRead, Record};
use crate::model::{Log, Query, field_of};

pub(super) fn check(
    case: &Case<'_>,
    informer: &InformerLines<'_>,
    lives: &[Life<'_>],
    findings: &mut Findings,
) {
    let mut marks = Marks::default();
    for life in lives {
        marks.reborn(life.saved);
        replay(case, informer.iid, life, &mut marks, findings);
    }
}

/// How new each key has been seen.
#[derive(Default)]
struct Marks<'a> {
    keys: BTreeMap<&'a str, u64>,
    /// The highest of all, lists included.
    all: u64,
}

impl<'a> Marks<'a> {
    /// Only a saved mark binds the next life, and only up to itself.
    fn reborn(&mut self, saved: Option<u64>) {
        self.all = saved.unwrap_or(0);
        self.keys.retain(|_, rv| *rv <= self.all);
    }

    fn rewind(&mut self) {
        self.reborn(None);
    }

    /// Takes note of a version; answers with the newer one that was seen before, if any.
    fn see(&mut self, key: &'a str, rv: u64) -> Option<u64> {
        self.all = self.all.max(rv);
        let mark = self.keys.entry(key).or_insert(rv);
        let before = *mark;
        *mark = before.max(rv);
        Some(before).filter(|before| *before > rv)
    }
}

fn replay<'a>(
    case: &Case<'_>,
    iid: &str,
    life: &Life<'a>,
    marks: &mut Marks<'a>,
    findings: &mut Findings,
) {
    let mut cached = BTreeMap::new();
    let mut listed = None;
    for (line, record) in &life.lines {
        let mut add = |rule, text: String| findings.add(rule, *line, iid, text);
        match record {
            Record::Cache(change) => {
                let Some(rv) = change.rv else {
                    cached.remove(change.key.as_str());
                    continue;
                };
                cached.insert(change.key.as_str(), rv);
                if let Some(before) = marks.see(&change.key, rv) {
                    add(Rule::I1, format!("{} fell from {before} to {rv}", change.key));
                }
                if let Some(at) = listed.filter(|at| is_ghost(case, life, &change.key, rv, *at)) {
                    add(Rule::I2, format!("{} at {rv} is a ghost since {at}", change.key));
                }
            }
            Record::Relisted(list) => {
                if list.rv < marks.all {
                    add(Rule::I1, format!("a list of {} after {} was seen", list.rv, marks.all));
                }
                marks.all = marks.all.max(list.rv);
                listed = Some(list.rv);
                no_ghosts(case, life, &cached, list.rv, &mut add);
            }
            Record::Synced(synced) => {
                listed = listed.or(Some(synced.rv));
                no_ghosts(case, life, &cached, synced.rv, &mut add);
            }
            Record::Rewound(_) => {
                marks.rewind();
                listed = None;
            }
            Record::Index(read) => {
                if let Some(text) = wrong_index(case, read, &cached) {
                    add(Rule::I5, text);
                }
            }
            _ => {}
        }
    }
}

/// I2 for all that is cached, once a list of revision `at` was applied.
fn no_ghosts(
    case: &Case<'_>,
    life: &Life<'_>,
    cached: &BTreeMap<&str, u64>,
    at: u64,
    add: &mut impl FnMut(Rule, String),
) {
    let ghost = cached.iter().find(|(key, rv)| is_ghost(case, life, key, **rv, at));
    if let Some((key, rv)) = ghost {
        add(Rule::I2, format!("{key} at {rv} is not in the state of {at}, nor written later"));
    }
}

/// No version like this, or the key is neither in `State(at)` nor written later. After a restore
/// what was true in either log is accepted: an informer may not know yet.
fn is_ghost(case: &Case<'_>, life: &Life<'_>, key: &str, rv: u64, at: u64) -> bool {
    !case
        .epochs()
        .any(|(_, log)| version(log, key, rv).is_some() && belongs(log, &life.query, key, at))
}

fn belongs(log: &Log, query: &Query, key: &str, at: u64) -> bool {
    log.object_at(key, at).is_some_and(|object| query.selects(object))
        || log.of_key(key, at, u64::MAX).any(|commit| query.selects(commit))
}

/// The object that `key` was at exactly this revision.
fn version<'a>(log: &'a Log, key: &str, rv: u64) -> Option<&'a Commit> {
    log.commit(rv).filter(|commit| commit.key == key && commit.op != CommitOp::Delete)
}

/// I5: what a scan over the same snapshot would find, and nothing from another version.
fn wrong_index(case: &Case<'_>, read: &IndexRead, folded: &BTreeMap<&str, u64>) -> Option<String> {
    let of_read: Option<BTreeMap<&str, u64>> =
        read.cached.as_ref().map(|all| all.iter().map(|(key, rv)| (key.as_str(), *rv)).collect());
    let cached = of_read.as_ref().unwrap_or(folded);
    let found: BTreeMap<&str, u64> =
        read.items.iter().map(|(key, rv)| (key.as_str(), *rv)).collect();
    let other = found.iter().find(|(key, rv)| cached.get(*key) != Some(rv));
    if let Some((key, rv)) = other {
        return Some(format!("{} gave {key} at {rv}, the cache does not have it", read.index));
    }
    for (key, rv) in cached {
        let object = case.epochs().find_map(|(_, log)| version(log, key, *rv));
        let Some(expected) = object.and_then(|object| indexed_under(object, read)) else {
            continue;
        };
        if expected != found.contains_key(key) {
            let verb = if expected { "lacks" } else { "holds" };
            return Some(format!("{}={} {verb} {key}", read.index, read.value));
        }
    }
    None
}

/// Whether the object stands under the value that was read; `None` for indexes not known here.
fn indexed_under(object: &Commit, read: &IndexRead) -> Option<bool> {
    let value = match read.index.split_once(':') {
        None if read.index == "namespace" => field_of(object, "metadata.namespace"),
        Some(("label", key)) => object.labels.get(key).map(String::as_str),
        Some(("field", field)) => field_of(object, field),
        _ => return None,
    };
    Some(value == Some(read.value.as_str()))
}
