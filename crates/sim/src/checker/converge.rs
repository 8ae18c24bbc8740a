//! I4: when the world is quiet, the cache becomes a mirror of it and stays one.

use std::collections::{BTreeMap, BTreeSet};

use super::case::{Case, InformerLines};
use super::clock::Window;
use super::life::Life;
use super::{Findings, Rule};
use crate::history::Record;
use crate::limits::CONVERGE_MS_MAX;
use crate::model::Query;

pub(super) fn check(
    case: &Case<'_>,
    informer: &InformerLines<'_>,
    lives: &[Life<'_>],
    findings: &mut Findings,
) {
    for life in lives {
        let caches = life.lines.iter().any(|(_, it)| matches!(it, Record::Cache(_)));
        let said_so = life.lines.iter().any(|(_, it)| matches!(it, Record::Informer(_)));
        if caches || said_so {
            mirrored(case, informer, life, findings);
        }
    }
}

fn mirrored(
    case: &Case<'_>,
    informer: &InformerLines<'_>,
    life: &Life<'_>,
    findings: &mut Findings,
) {
    let mut windows = quiet_windows(case, informer, life).into_iter().peekable();
    if windows.peek().is_none() {
        return;
    }
    let own = life.lines.iter().filter(|(_, record)| matches!(record, Record::Cache(_)));
    let mut changes: Vec<_> = case.world.iter().chain(own).collect();
    changes.sort_by_key(|(_, record)| record.time());
    let mut mirror = Mirror::default();
    let mut last_line = life.lines.first().map_or(0, |(line, _)| *line);
    for (place, (line, record)) in changes.iter().enumerate() {
        mirror.apply(case, &life.query, *line, record);
        if matches!(record, Record::Cache(_)) {
            last_line = *line;
        }
        // The state now holds until just before the next change.
        let from = record.time().unwrap_or(0);
        let to = changes.get(place + 1).and_then(|(_, next)| next.time()).unwrap_or(u64::MAX);
        while windows.next_if(|window| window.to < from).is_some() {}
        let quiet = windows.peek().is_some_and(|window| window.from < to && from <= window.to);
        if let (true, true, Some(key)) = (quiet, from < to, mirror.differing.first()) {
            let text = format!("{key} is {}, though all was quiet", mirror.seen(key));
            findings.add(Rule::I4, last_line, informer.iid, text);
            windows.next();
        }
    }
}

/// When the cache must be a mirror: after a time without changes and faults, until the next.
fn quiet_windows(case: &Case<'_>, informer: &InformerLines<'_>, life: &Life<'_>) -> Vec<Window> {
    let names = [informer.iid, informer.who];
    let end = life.over.min(case.clock.end);
    let changes = case.world.iter().filter_map(|(_, record)| record.time());
    let mut times: BTreeSet<_> = changes.filter(|t| *t > life.began && *t < end).collect();
    times.insert(life.began);
    times.insert(end);
    let times: Vec<_> = times.into_iter().collect();
    let mut windows = Vec::new();
    for pair in times.windows(2) {
        let (last, next) = (pair[0], pair[1]);
        let from = case.clock.deadline(last, CONVERGE_MS_MAX, &names);
        let until = next.min(case.clock.next_fault(from, &names));
        if from < until {
            windows.push(Window { from, to: until - 1 });
        }
    }
    windows
}

/// The world as a query sees it, next to the cache.
#[derive(Default)]
struct Mirror<'a> {
    world: BTreeMap<&'a str, u64>,
    cached: BTreeMap<&'a str, u64>,
    differing: BTreeSet<&'a str>,
}

impl<'a> Mirror<'a> {
    fn apply(&mut self, case: &Case<'a>, query: &Query, line: usize, record: &'a Record) {
        match record {
            Record::Commit(commit) => {
                let rv = Some(commit.rv).filter(|_| query.selects(commit));
                set(&mut self.world, &commit.key, rv);
                self.compare(&commit.key);
            }
            Record::Restart(restart) => {
                let state = case.log_at(line).select(query, restart.rv);
                self.world = state.into_iter().map(|(key, commit)| (key, commit.rv)).collect();
                let all: BTreeSet<_> =
                    self.world.keys().chain(self.cached.keys()).copied().collect();
                self.differing.clear();
                for key in all {
                    self.compare(key);
                }
            }
            Record::Cache(change) => {
                set(&mut self.cached, &change.key, change.rv);
                self.compare(&change.key);
            }
            _ => {}
        }
    }

    fn compare(&mut self, key: &'a str) {
        if self.world.get(key) == self.cached.get(key) {
            self.differing.remove(key);
        } else {
            self.differing.insert(key);
        }
    }

    fn seen(&self, key: &str) -> String {
        let shown = |rv: Option<&u64>| rv.map_or("absent".to_owned(), |rv| format!("at {rv}"));
        let (cached, world) = (self.cached.get(key), self.world.get(key));
        format!("{} in the cache and {} in the world", shown(cached), shown(world))
    }
}

fn set<'a>(map: &mut BTreeMap<&'a str, u64>, key: &'a str, rv: Option<u64>) {
    match rv {
        Some(rv) => map.insert(key, rv),
        None => map.remove(key),
    };
}
