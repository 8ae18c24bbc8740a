//! The history, sorted by what it is about, so that each rule reads only what concerns it.

use std::collections::BTreeMap;

use super::clock::Clock;
use super::{Epoch, Findings, Rule};
use crate::history::{
    End, Frame, FrameType, Gauge, Informer, List, ListResp, Open, Record, Scope, Write,
};
use crate::model::{Event, Log, Query};
use crate::recorder::History;

/// Everything about one history.
pub(super) struct Case<'a> {
    epochs: &'a [Epoch],
    views: BTreeMap<(usize, Asked<'a>), View<'a>>,
    /// Acknowledged revisions of each epoch, see [`Case::acknowledged_before`].
    acknowledged: Vec<Vec<(u64, u64)>>,
    pub clock: Clock<'a>,
    pub streams: BTreeMap<&'a str, Stream<'a>>,
    pub lists: Vec<Listing<'a>>,
    pub writes: Vec<(usize, &'a Write)>,
    pub gauges: Vec<(usize, &'a Gauge)>,
    /// Commits and restores: what makes the log.
    pub world: Vec<(usize, &'a Record)>,
    pub informers: BTreeMap<&'a str, InformerLines<'a>>,
    /// The requests and answers of each client, in order.
    pub traffic: BTreeMap<&'a str, Vec<(usize, &'a Record)>>,
}

/// A query as the request spelled it.
pub(super) type Asked<'a> = (&'a Scope, &'a str, &'a str);

/// A query, and all that a perfect watch would ever say about it.
pub(super) struct View<'a> {
    pub query: Query,
    pub events: Vec<Event<'a>>,
}

impl<'a> View<'a> {
    /// The events after revision `after`.
    pub(super) fn after(&self, after: u64) -> &[Event<'a>] {
        &self.events[self.events.partition_point(|event| event.commit.rv <= after)..]
    }
}

/// One watch with all that happened on it.
pub(super) struct Stream<'a> {
    pub line: usize,
    pub epoch: usize,
    pub open: &'a Open,
    pub frames: Vec<(usize, &'a Frame)>,
    pub end: Option<(usize, &'a End)>,
}

impl<'a> Stream<'a> {
    pub(super) fn asked(&self) -> Asked<'a> {
        (&self.open.scope, &self.open.selector, &self.open.fields)
    }

    /// The names that a fault may use for it.
    pub(super) fn names(&self) -> [&'a str; 2] {
        [&self.open.who, &self.open.sid]
    }

    /// The resource version to resume from, if the watch was to resume.
    pub(super) fn resumes(&self) -> Option<u64> {
        self.open.from.filter(|from| *from > 0 && !self.open.initial)
    }

    /// The server refused or had to refuse to resume: `from` lay before its window.
    pub(super) fn below_window(&self) -> bool {
        self.resumes().zip(self.open.oldest).is_some_and(|(from, oldest)| from < oldest)
    }

    /// When the stream ended with a reason.
    pub(super) fn ended(&self) -> Option<u64> {
        self.end.filter(|(_, end)| !end.reason.is_empty()).map(|(_, end)| end.t)
    }

    /// Until when something was expected of it.
    pub(super) fn alive_until(&self, clock: &Clock<'_>) -> u64 {
        self.ended().unwrap_or(clock.end)
    }
}

/// A list request, and its answer if one came.
pub(super) struct Listing<'a> {
    pub epoch: usize,
    pub list: &'a List,
    pub answer: Option<(usize, &'a ListResp)>,
}

impl<'a> Listing<'a> {
    pub(super) fn asked(&self) -> Asked<'a> {
        (&self.list.scope, &self.list.selector, &self.list.fields)
    }
}

/// The records of one informer, in order.
pub(super) struct InformerLines<'a> {
    pub iid: &'a str,
    pub lines: Vec<(usize, &'a Record)>,
    /// The `who` of its requests.
    pub who: &'a str,
}

impl<'a> Case<'a> {
    pub(super) fn new(history: &'a History, epochs: &'a [Epoch], findings: &mut Findings) -> Self {
        let end = history.records().filter_map(Record::time).max().unwrap_or(0);
        let faults = history.records().filter_map(|record| match record {
            Record::Fault(fault) => Some(fault),
            _ => None,
        });
        let mut case = Self {
            epochs,
            views: BTreeMap::new(),
            acknowledged: vec![Vec::new(); epochs.len()],
            clock: Clock::new(faults, end),
            streams: BTreeMap::new(),
            lists: Vec::new(),
            writes: Vec::new(),
            gauges: Vec::new(),
            world: Vec::new(),
            informers: BTreeMap::new(),
            traffic: BTreeMap::new(),
        };
        let mut list_ids = BTreeMap::new();
        for line in history.lines() {
            case.sort_in(line.number, &line.record, &mut list_ids, findings);
        }
        case.acknowledged.iter_mut().for_each(running_max);
        case.fold_views(findings);
        case
    }

    fn sort_in(
        &mut self,
        line: usize,
        record: &'a Record,
        list_ids: &mut BTreeMap<&'a str, usize>,
        findings: &mut Findings,
    ) {
        match record {
            Record::Open(open) => self.sort_in_open(line, record, open, findings),
            Record::Frame(frame) => self.sort_in_frame(line, record, frame, findings),
            Record::End(end) => {
                if let Some(stream) = self.streams.get_mut(end.sid.as_str()) {
                    stream.end.get_or_insert((line, end));
                    self.traffic.entry(&stream.open.who).or_default().push((line, record));
                }
            }
            Record::List(list) => {
                list_ids.insert(&list.id, self.lists.len());
                let epoch = self.epoch_of(line);
                self.lists.push(Listing { epoch, list, answer: None });
                self.traffic.entry(&list.who).or_default().push((line, record));
            }
            Record::ListResp(answer) => match list_ids.get(answer.id.as_str()) {
                Some(&place) => {
                    let listing = &mut self.lists[place];
                    listing.answer = Some((line, answer));
                    self.traffic.entry(&listing.list.who).or_default().push((line, record));
                }
                None => findings.add(Rule::L1, line, &answer.id, "answers a list nobody asked for"),
            },
            Record::Write(write) => {
                let epoch = self.epoch_of(line);
                self.acknowledged[epoch].extend(write.acknowledged());
                self.writes.push((line, write));
            }
            Record::Gauge(gauge) => self.gauges.push((line, gauge)),
            Record::Commit(_) => self.world.push((line, record)),
            Record::Restart(restart) if restart.restored => self.world.push((line, record)),
            other => self.sort_in_informer(line, other),
        }
    }

    fn sort_in_open(
        &mut self,
        line: usize,
        record: &'a Record,
        open: &'a Open,
        findings: &mut Findings,
    ) {
        if self.streams.contains_key(open.sid.as_str()) {
            findings.add(Rule::S3, line, &open.sid, "the stream was opened before");
            return;
        }
        let epoch = self.epoch_of(line);
        let stream = Stream { line, epoch, open, frames: Vec::new(), end: None };
        self.streams.insert(&open.sid, stream);
        self.traffic.entry(&open.who).or_default().push((line, record));
    }

    fn sort_in_frame(
        &mut self,
        line: usize,
        record: &'a Record,
        frame: &'a Frame,
        findings: &mut Findings,
    ) {
        match self.streams.get_mut(frame.sid.as_str()) {
            Some(stream) if stream.end.is_none() => {
                stream.frames.push((line, frame));
                self.traffic.entry(&stream.open.who).or_default().push((line, record));
            }
            Some(stream) if stream.open.injected => {}
            Some(_) => findings.add(Rule::S3, line, &frame.sid, "a frame after the end"),
            None => findings.add(Rule::S3, line, &frame.sid, "a frame on a stream never opened"),
        }
    }

    fn sort_in_informer(&mut self, line: usize, record: &'a Record) {
        let iid = match record {
            Record::Informer(it) => &it.iid,
            Record::Stopped(it) => &it.iid,
            Record::Registered(it) => &it.iid,
            Record::Cache(it) => &it.iid,
            Record::Handler(it) => &it.iid,
            Record::Synced(it) => &it.iid,
            Record::Relisted(it) => &it.iid,
            Record::Rewound(it) => &it.iid,
            Record::Index(it) => &it.iid,
            _ => return,
        };
        let of = self.informers.entry(iid).or_insert_with(|| InformerLines {
            iid,
            lines: Vec::new(),
            who: iid,
        });
        of.lines.push((line, record));
        if let Record::Informer(Informer { who: Some(who), .. }) = record {
            of.who = who;
        }
    }

    /// Folds the log once for every query that a watch asked.
    fn fold_views(&mut self, findings: &mut Findings) {
        for stream in self.streams.values() {
            let id = (stream.epoch, stream.asked());
            if self.views.contains_key(&id) {
                continue;
            }
            let (scope, labels, fields) = stream.asked();
            match Query::new(scope.clone(), labels, fields) {
                Ok(query) => {
                    let events = self.epochs[stream.epoch].log.proj(&query, 0, u64::MAX);
                    self.views.insert(id, View { query, events });
                }
                Err(text) if stream.frames.is_empty() => drop(text),
                Err(text) => findings.add(Rule::S1, stream.line, &stream.open.sid, text),
            }
        }
    }

    /// Which epoch a line lies in.
    pub(super) fn epoch_of(&self, line: usize) -> usize {
        self.epochs.partition_point(|epoch| epoch.line <= line) - 1
    }

    pub(super) fn log(&self, epoch: usize) -> &'a Log {
        &self.epochs[epoch].log
    }

    /// The log that was in force at a line.
    pub(super) fn log_at(&self, line: usize) -> &'a Log {
        self.log(self.epoch_of(line))
    }

    /// The epochs' first lines with their logs.
    pub(super) fn epochs(&self) -> impl Iterator<Item = (usize, &'a Log)> {
        self.epochs.iter().map(|epoch| (epoch.line, &epoch.log))
    }

    pub(super) fn view(&self, stream: &Stream<'a>) -> Option<&View<'a>> {
        self.views.get(&(stream.epoch, stream.asked()))
    }

    /// The highest revision whose write was acknowledged strictly before `t`, in the same epoch.
    /// Within one millisecond nothing is known about before and after.
    pub(super) fn acknowledged_before(&self, epoch: usize, t: u64) -> u64 {
        let writes = &self.acknowledged[epoch];
        let count = writes.partition_point(|(at, _)| *at < t);
        count.checked_sub(1).map_or(0, |last| writes[last].1)
    }
}

/// Sorts by time and replaces each revision by the highest so far.
fn running_max(pairs: &mut Vec<(u64, u64)>) {
    pairs.sort_unstable();
    let mut highest = 0;
    for (_, rv) in pairs {
        highest = highest.max(*rv);
        *rv = highest;
    }
}

/// Whether a frame is about an object.
pub(super) fn is_event(frame: &Frame) -> bool {
    frame.kind != FrameType::Bookmark
}
