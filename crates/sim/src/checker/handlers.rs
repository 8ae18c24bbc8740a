//! I3 and I6: what handlers are told.

use std::collections::{BTreeMap, BTreeSet};

use super::case::{Case, InformerLines};
use super::life::Life;
use super::{Findings, Rule};
use crate::history::{Call, Handler, Record, Synced};
use crate::limits::HANDLER_MS_MAX;
use crate::model::{Log, Query};

/// What one handler knows.
struct Told<'a> {
    since: u64,
    removed: bool,
    /// The versions it was told last, of the keys that are there for it.
    keys: BTreeMap<&'a str, Version>,
    /// Every key it ever heard of.
    heard: BTreeSet<&'a str>,
}

#[derive(Clone, Copy)]
struct Version {
    rv: u64,
    /// The source went back since: the next version may be older.
    may_fall: bool,
}

type Handlers<'a> = BTreeMap<&'a str, Told<'a>>;

pub(super) fn check(
    case: &Case<'_>,
    informer: &InformerLines<'_>,
    lives: &[Life<'_>],
    findings: &mut Findings,
) {
    for life in lives {
        let (handlers, cached) = replay(case, informer.iid, life, findings);
        if life.over == u64::MAX {
            at_rest(case, informer, &handlers, &cached, findings);
        }
    }
}

/// A key's last cached revision, and when and where it got it.
type Cached<'a> = BTreeMap<&'a str, (Option<u64>, u64, usize)>;

fn replay<'a>(
    case: &Case<'_>,
    iid: &str,
    life: &Life<'a>,
    findings: &mut Findings,
) -> (Handlers<'a>, Cached<'a>) {
    let mut handlers = Handlers::new();
    let mut cached = Cached::new();
    for (line, record) in &life.lines {
        match record {
            Record::Registered(it) => {
                let told = handler(&mut handlers, &it.hid, it.t);
                told.removed = it.removed;
            }
            Record::Cache(it) => {
                cached.insert(it.key.as_str(), (it.rv, it.t, *line));
            }
            Record::Handler(it) => {
                let told = handler(&mut handlers, &it.hid, it.t);
                if let Some(text) = told.call(it) {
                    findings.add(Rule::I3, *line, iid, format!("{} {text}", it.hid));
                }
            }
            Record::Rewound(_) => {
                let versions = handlers.values_mut().flat_map(|told| told.keys.values_mut());
                versions.for_each(|version| version.may_fall = true);
            }
            Record::Synced(it) => {
                if let Some(text) =
                    too_early(case.log_at(*line), &life.query, it, &handlers, &cached)
                {
                    findings.add(Rule::I6, *line, iid, text);
                }
            }
            _ => {}
        }
    }
    (handlers, cached)
}

fn handler<'b, 'a>(handlers: &'b mut Handlers<'a>, hid: &'a str, t: u64) -> &'b mut Told<'a> {
    handlers.entry(hid).or_insert_with(|| Told {
        since: t,
        removed: false,
        keys: BTreeMap::new(),
        heard: BTreeSet::new(),
    })
}

impl<'a> Told<'a> {
    /// One letter of the word; what is wrong with it, if anything.
    fn call(&mut self, call: &'a Handler) -> Option<String> {
        let key = call.key.as_str();
        self.heard.insert(key);
        let new = Version { rv: call.new_rv.unwrap_or(0), may_fall: false };
        let before = match call.call {
            Call::Delete => self.keys.remove(key),
            _ => self.keys.insert(key, new),
        };
        match (call.call, before) {
            (Call::Add, None) | (Call::Delete, Some(_)) => None,
            (Call::Add, Some(_)) => Some(format!("got an add for {key}, which it had")),
            (_, None) => Some(format!("got {:?} for {key}, which it had not", call.call)),
            (Call::Update, Some(before)) => {
                if call.old_rv.is_some_and(|old| old != before.rv) {
                    Some(format!("was told of {key} at {}, the update says otherwise", before.rv))
                } else if new.rv < before.rv && !before.may_fall {
                    Some(format!("saw {key} fall from {} to {}", before.rv, new.rv))
                } else {
                    None
                }
            }
        }
    }
}

/// I6: an initial object that is not cached yet, or that a handler has not heard of, although it
/// has been there all along.
fn too_early(
    log: &Log,
    query: &Query,
    synced: &Synced,
    handlers: &Handlers<'_>,
    cached: &Cached<'_>,
) -> Option<String> {
    let waited_for: Vec<_> = match &synced.hid {
        Some(hid) => vec![(hid.as_str(), handlers.get(hid.as_str()))],
        None => handlers.iter().map(|(hid, told)| (*hid, Some(told))).collect(),
    };
    let state = log.select(query, synced.rv);
    // One that went out of sight later may have been left out on the way.
    let stayed = state
        .into_keys()
        .filter(|key| log.of_key(key, synced.rv, u64::MAX).all(|commit| query.selects(commit)));
    // A history that writes down handlers only is judged by them.
    let judged = !cached.is_empty() || handlers.is_empty();
    for key in stayed {
        if judged && !cached.contains_key(key) {
            return Some(format!("in sync at {}, but {key} is not cached", synced.rv));
        }
        let deaf = waited_for
            .iter()
            .find(|(_, told)| !told.is_some_and(|told| told.removed || told.heard.contains(key)));
        if let Some((hid, _)) = deaf {
            return Some(format!("in sync at {}, but {hid} has not heard of {key}", synced.rv));
        }
    }
    None
}

/// I3 at rest: once a key's last change is old enough, each handler has heard of it.
fn at_rest(
    case: &Case<'_>,
    informer: &InformerLines<'_>,
    handlers: &Handlers<'_>,
    cached: &Cached<'_>,
    findings: &mut Findings,
) {
    let last_line = informer.lines.last().map_or(0, |(line, _)| *line);
    for (hid, told) in handlers.iter().filter(|(_, told)| !told.removed) {
        let names = [informer.iid, informer.who, hid];
        let keys: BTreeSet<_> = cached.keys().chain(told.keys.keys()).collect();
        for key in keys {
            let (rv, t, line) = cached.get(key).copied().unwrap_or((None, 0, last_line));
            let knows = told.keys.get(key).map(|version| version.rv);
            let due = case.clock.due(t.max(told.since), HANDLER_MS_MAX, &names);
            if knows != rv && due.is_some() {
                let text = format!("{hid} has {key} at {knows:?}, the cache at {rv:?}");
                findings.add(Rule::I3, line, informer.iid, text);
            }
        }
    }
}
