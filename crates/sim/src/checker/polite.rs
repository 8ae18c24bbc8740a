//! I7: a client lists only with reason, waits before it tries again, and does try again.
//!
//! The rule is about one client with one backoff; its requests are followed in the order of the
//! history. One list is owed to the start, to each 410 (or other answer that ends a watch for
//! good), to three very short watches in a row and to a rewind. Lists that are older than what
//! the client has seen do not count: it has to refuse them.

use std::collections::BTreeMap;

use super::case::{Case, InformerLines};
use super::{Findings, Rule};
use crate::history::{End, Frame, List, ListResp, Match, Open, Record};
use crate::limits::{
    BACKOFF_MS_MAX, BACKOFF_MS_MIN, BACKOFF_RESET_MS, RETRY_EARLY_MS_MAX, RETRY_LATE_MS_MAX,
    SHORT_WATCH_MS, SHORT_WATCHES_TO_RELIST,
};

pub(super) fn check(case: &Case<'_>, informer: &InformerLines<'_>, findings: &mut Findings) {
    let Some(traffic) = case.traffic.get(informer.who) else { return };
    let mut lines: Vec<_> = traffic.iter().chain(&informer.lines).collect();
    lines.sort_unstable_by_key(|(line, _)| *line);
    let mut client = Client::new(case, informer);
    for (line, record) in lines {
        client.handle(*line, record, findings);
    }
    if let Some(wait) = &client.wait
        && case.clock.due(wait.since, wait.most, &client.names()).is_some()
    {
        findings.add(Rule::I7, wait.line, informer.iid, "failed and never tried again");
    }
}

/// One client as its requests show it.
struct Client<'a, 'b> {
    case: &'b Case<'a>,
    informer: &'b InformerLines<'a>,
    watches: BTreeMap<&'a str, Watch<'a>>,
    lists: BTreeMap<&'a str, &'a List>,
    /// A list is owed.
    may_list: bool,
    /// The highest revision seen.
    seen: u64,
    /// The revision that the last 410 was for: a list must be above it.
    expired: Option<u64>,
    /// Failures that every client has to count.
    failures: Streak,
    /// Whatever a client may have counted as a failure: it may wait longer for it.
    troubles: Streak,
    short_watches: u32,
    wait: Option<Wait>,
}

struct Watch<'a> {
    open: &'a Open,
    position: u64,
    frames: usize,
    /// Its initial events are over, or it never had any.
    follows: bool,
}

/// Failures that are not far apart.
#[derive(Default)]
struct Streak {
    length: u32,
    last: Option<u64>,
}

impl Streak {
    fn add(&mut self, t: u64) {
        let again = self.last.is_some_and(|before| t.saturating_sub(before) < BACKOFF_RESET_MS);
        self.length = if again { self.length.saturating_add(1) } else { 1 };
        self.last = Some(t);
    }

    /// The wait that the last of them calls for, before jitter.
    fn base(&self) -> u64 {
        // 800 ms doubled six times is above the cap already.
        (BACKOFF_MS_MIN << self.length.saturating_sub(1).min(6)).min(BACKOFF_MS_MAX)
    }
}

/// What is expected between a failure and the next request.
struct Wait {
    line: usize,
    since: u64,
    least: u64,
    most: u64,
}

impl<'a, 'b> Client<'a, 'b> {
    fn new(case: &'b Case<'a>, informer: &'b InformerLines<'a>) -> Self {
        Self {
            case,
            informer,
            watches: BTreeMap::new(),
            lists: BTreeMap::new(),
            may_list: true,
            seen: 0,
            expired: None,
            failures: Streak::default(),
            troubles: Streak::default(),
            short_watches: 0,
            wait: None,
        }
    }

    fn names(&self) -> [&'a str; 2] {
        [self.informer.iid, self.informer.who]
    }

    fn handle(&mut self, line: usize, record: &'a Record, findings: &mut Findings) {
        match record {
            Record::Informer(born) => {
                *self = Self::new(self.case, self.informer);
                self.seen = born.saved.unwrap_or(0);
            }
            Record::Stopped(_) => self.wait = None,
            Record::Rewound(_) => {
                (self.may_list, self.seen, self.expired, self.wait) = (true, 0, None, None);
            }
            Record::List(list) => {
                self.lists.insert(&list.id, list);
                self.request(line, list.t0, findings);
            }
            Record::Open(open) => {
                let position = open.from.unwrap_or(0);
                let follows = !open.initial;
                if follows {
                    self.reached(position);
                }
                let watch = Watch { open, position, frames: 0, follows };
                self.watches.insert(&open.sid, watch);
                self.request(line, open.t0, findings);
            }
            Record::ListResp(answer) => self.answer(line, answer, findings),
            Record::Frame(frame) => self.frame(line, frame, findings),
            Record::End(end) => self.end(line, end),
            _ => {}
        }
    }

    fn request(&mut self, line: usize, t0: u64, findings: &mut Findings) {
        let Some(wait) = self.wait.take() else { return };
        let waited = t0.saturating_sub(wait.since);
        if waited + RETRY_EARLY_MS_MAX < wait.least {
            let text = format!("tried again after {waited} ms, {} were due", wait.least);
            findings.add(Rule::I7, line, self.informer.iid, text);
        } else if t0 > self.case.clock.deadline(wait.since, wait.most, &self.names()) {
            let text = format!("tried again after {waited} ms, at most {} were due", wait.most);
            findings.add(Rule::I7, line, self.informer.iid, text);
        }
    }

    fn answer(&mut self, line: usize, answer: &ListResp, findings: &mut Findings) {
        let Some(list) = self.lists.remove(answer.id.as_str()) else { return };
        let first_page = list.token.is_none();
        match answer.code {
            // An exact list fills in what a 410 in the middle of the pages left open.
            200 if first_page && list.matching != Some(Match::Exact) => {
                let list = (answer.rv, answer.token.is_none());
                self.listed(line, answer.t1, list, findings);
            }
            200 => {}
            code => {
                self.may_list |= !first_page || code == 410;
                if calls_for_backoff(Some(code), &answer.reason) {
                    self.failed(line, answer.t1, answer.retry_after_ms);
                } else {
                    self.troubles.add(answer.t1);
                }
            }
        }
    }

    fn frame(&mut self, line: usize, frame: &Frame, findings: &mut Findings) {
        let Some(watch) = self.watches.get_mut(frame.sid.as_str()) else { return };
        watch.frames += 1;
        watch.position = watch.position.max(frame.rv);
        if frame.initial_end {
            watch.follows = true;
            self.listed(line, frame.t, (frame.rv, true), findings);
        } else if watch.follows {
            self.seen = self.seen.max(frame.rv);
        }
    }

    /// A list, or a stream's initial events, arrived.
    fn listed(&mut self, line: usize, t: u64, (rv, whole): (u64, bool), findings: &mut Findings) {
        if rv < self.seen || self.expired.is_some_and(|expired| rv <= expired) {
            self.failed(line, t, None);
            return;
        }
        if !self.may_list {
            findings.add(Rule::I7, line, self.informer.iid, "listed again without a reason");
        }
        self.may_list = false;
        // Of a list in pages only the next watch tells whether it was applied.
        if whole {
            self.reached(rv);
        }
    }

    /// The client has everything up to `rv`.
    fn reached(&mut self, rv: u64) {
        self.seen = self.seen.max(rv);
        self.expired = self.expired.filter(|expired| *expired >= rv);
    }

    fn end(&mut self, line: usize, end: &End) {
        let Some(watch) = self.watches.remove(end.sid.as_str()) else { return };
        let Watch { open, position, frames, .. } = watch;
        let calm = matches!(end.code, None | Some(200)) && end.reason != "refused";
        let short = calm
            && frames == 0
            && end.reason != "closed"
            && end.t.saturating_sub(open.t0) < SHORT_WATCH_MS;
        self.short_watches = if short { self.short_watches + 1 } else { 0 };
        if self.short_watches == SHORT_WATCHES_TO_RELIST {
            (self.may_list, self.short_watches) = (true, 0);
        }
        if end.code == Some(410) {
            self.expired = Some(position);
        }
        if short || calls_for_backoff(end.code, &end.reason) {
            self.failed(line, end.t, end.retry_after_ms);
        } else {
            self.may_list |= !calm;
            self.troubles.add(end.t);
        }
    }

    fn failed(&mut self, line: usize, t: u64, retry_after_ms: Option<u64>) {
        self.failures.add(t);
        self.troubles.add(t);
        let least = retry_after_ms.unwrap_or(self.failures.base());
        let most = 2 * self.troubles.base().max(least) + RETRY_LATE_MS_MAX;
        self.wait = Some(Wait { line, since: t, least, most });
    }
}

/// Answers after which a client has to wait before it asks again.
fn calls_for_backoff(code: Option<u16>, reason: &str) -> bool {
    match code {
        None | Some(0) => reason == "refused",
        Some(code) => matches!(code, 403 | 404 | 429 | 500 | 502 | 503),
    }
}
