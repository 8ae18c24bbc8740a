//! A simulated world: API servers over one authoritative log, faults, and a reflector in it.
//!
//! Time is virtual and every choice follows from the seed, so a run can be repeated exactly. The
//! machine and the cache are the real ones; what they do is written down as a [`History`] for the
//! [checker](crate::check). At the end of every run the faults stop, and the cache has to become a
//! mirror of the log.
//!
//! ```
//! let run = masthead_sim::world::run(7);
//! assert_eq!(masthead_sim::check(&run.history), []);
//! assert_eq!(run.history, masthead_sim::world::run(7).history);
//! ```

mod client;
mod lists;
mod plan;
mod serve;
mod store;
mod streams;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

use masthead_core::Time;
use masthead_reflector::{Output, Report};

use crate::History;
use crate::dice::Dice;
use crate::history;
use client::{CallId, Client};
use lists::Answer;
use plan::Plan;
use store::Store;
use streams::{Ending, Stream};

/// Name of the one client.
const CLIENT: &str = "c";
/// How long the world is watched after the last fault: I4 has 35 s.
const CALM_MS: u64 = 60_000;
/// A run that is not over by then hangs: two silent watches and three waits are eight minutes.
const RUN_MS_MAX: u64 = 3_600_000;

/// What came of a run.
#[derive(Debug)]
pub struct Run {
    /// Everything that happened.
    pub history: History,
    /// How the client sees itself at the end.
    pub report: Report,
    /// The world came to rest. If not, the client hangs on something that it should have noticed.
    pub settled: bool,
}

/// Runs the world of a seed from its beginning to its end.
pub fn run(seed: u64) -> Run {
    let mut world = World::new(seed);
    let settled = world.live();
    let report = world.client.machine.report(world.now);
    world.history.push(history::RunEnd { t: world.now.0 });
    Run { history: world.history, report, settled }
}

#[derive(Debug)]
struct World {
    now: Time,
    dice: Dice,
    plan: Plan,
    store: Store,
    /// How far the second server is.
    second_at: u64,
    last_server: usize,
    client: Client,
    lists: BTreeMap<CallId, ListCall>,
    streams: BTreeMap<CallId, Stream>,
    queue: BinaryHeap<Reverse<(u64, u64)>>,
    happenings: BTreeMap<u64, Happening>,
    next_happening: u64,
    /// Faults may happen.
    wild: bool,
    /// The store went back, and the client may not know.
    restored: bool,
    /// The revision of the pages that the client has gathered.
    paged_at: u64,
    calls: u64,
    history: History,
}

/// A list that is under way.
#[derive(Debug)]
struct ListCall {
    id: String,
}

#[derive(Debug)]
enum Happening {
    Write,
    Compact,
    Lag,
    Restore,
    RestartClient,
    Calm,
    Bytes(CallId, u64),
    Answer(CallId, Box<Answer>),
    Granted(CallId),
    Refused(CallId, Box<(masthead_reflector::Failure, history::End)>),
    Pump(CallId),
    Bookmark(CallId),
    End(CallId, Ending),
    /// Events of a stream that is over.
    Late(CallId, Vec<masthead_reflector::WatchItem>),
}

impl World {
    fn new(seed: u64) -> Self {
        let mut dice = Dice::new(seed);
        let plan = Plan::draw(&mut dice);
        let mut history = History::default();
        let mut store = Store::new();
        for _ in 0..plan.objects {
            let key = key(dice.between(1, plan.keys));
            history.push(store.write(&key, dice.roll(), 0));
        }
        let settings = plan.settings.clone();
        let client = Client::born(0, settings, None, seed, Time(0), &mut history);
        let mut world = Self {
            now: Time(0),
            dice,
            second_at: store.rv,
            plan,
            store,
            last_server: 0,
            client,
            lists: BTreeMap::new(),
            streams: BTreeMap::new(),
            queue: BinaryHeap::new(),
            happenings: BTreeMap::new(),
            next_happening: 0,
            wild: true,
            restored: false,
            paged_at: 0,
            calls: 0,
            history,
        };
        world.fault("chaos", true, None);
        world.arrange();
        world
    }

    /// Puts what the plan says into the queue.
    fn arrange(&mut self) {
        let plan = self.plan.clone();
        self.after(plan.calm_at, Happening::Calm);
        self.after(1, Happening::Write);
        if let Some(every) = plan.compact_ms {
            self.after(every, Happening::Compact);
        }
        if plan.lag.is_some() {
            self.after(1, Happening::Lag);
        }
        if let Some(at) = plan.restore_at {
            self.after(at, Happening::Restore);
        }
        if let Some(at) = plan.restart_at {
            self.after(at, Happening::RestartClient);
        }
    }

    /// Lives until all has been calm for a while; false if that never happens.
    fn live(&mut self) -> bool {
        let mut calm_since = None;
        self.perform();
        loop {
            let due = self.queue.peek().map(|Reverse((t, _))| *t);
            let timeout = self.client.machine.poll_timeout().map(|t| t.0.max(self.now.0));
            let Some(next) = due.into_iter().chain(timeout).min() else { return false };
            if calm_since.is_some_and(|since| next > since + CALM_MS) {
                self.now = Time(self.now.0.max(calm_since.unwrap_or(0) + CALM_MS));
                return true;
            }
            if next > RUN_MS_MAX {
                return false;
            }
            self.now = Time(next);
            if due == Some(next) {
                self.happen();
            } else {
                self.client.machine.handle_timeout(self.now);
            }
            self.perform();
            calm_since = self.settled().then_some(calm_since.unwrap_or(next));
        }
    }

    /// All faults are over, also those that outlive the rest.
    fn settled(&mut self) -> bool {
        if self.restored && !self.client_is_ahead() {
            self.restored = false;
            self.fault("restored", false, None);
        }
        let stuck = self.streams.values().any(|stream| stream.half_open);
        !self.wild && !self.restored && !stuck
    }

    /// Returns `true` if the client knows, or holds pages of, a revision that the store has lost.
    fn client_is_ahead(&self) -> bool {
        self.client.machine.report(self.now).revision.0.max(self.paged_at) > self.store.rv
    }

    fn after(&mut self, ms: u64, happening: Happening) {
        self.next_happening += 1;
        self.queue.push(Reverse((self.now.0 + ms, self.next_happening)));
        self.happenings.insert(self.next_happening, happening);
    }

    fn fault(&mut self, kind: &str, on: bool, target: Option<&str>) {
        let (kind, target) = (kind.to_owned(), target.map(str::to_owned));
        self.history.push(history::Fault { t: self.now.0, kind, on, target });
    }

    fn happen(&mut self) {
        let Some(Reverse((_, number))) = self.queue.pop() else { return };
        let Some(happening) = self.happenings.remove(&number) else { return };
        match happening {
            Happening::Write => self.write(),
            Happening::Compact => self.compact(),
            Happening::Lag => self.lag(),
            Happening::Restore => self.restore(),
            Happening::RestartClient => self.restart_client(),
            Happening::Calm => self.calm(),
            Happening::Bytes(call, bytes) => {
                if self.lists.contains_key(&call) {
                    self.client.machine.handle_bytes(call.1, bytes, self.now);
                }
            }
            Happening::Answer(call, answer) => self.deliver(call, *answer),
            Happening::Granted(call) => self.granted(call),
            Happening::Refused(call, refusal) => self.refused(call, *refusal),
            Happening::Pump(call) => self.pump(call),
            Happening::Bookmark(call) => self.bookmark(call),
            Happening::End(call, ending) => self.end_stream(call, ending),
            Happening::Late(call, items) => {
                if call.0 == self.client.generation {
                    self.client.machine.handle_events(call.1, items, self.now);
                }
            }
        }
    }

    /// Does what the machine says, until it says nothing more.
    fn perform(&mut self) {
        while let Some(output) = self.client.machine.poll_output() {
            match self.client.perform(output, self.now, &mut self.history) {
                Some(Output::List { id, request }) => self.list(self.client.call(id), &request),
                Some(Output::Watch { id, request }) => self.watch(self.client.call(id), &request),
                Some(Output::Cancel { id }) => self.cancel(self.client.call(id)),
                _ => {}
            }
        }
        self.client.weigh(self.store.peak_bytes, self.now, &mut self.history);
    }

    fn write(&mut self) {
        if !self.wild {
            return;
        }
        let next = self.dice.skewed(1, self.plan.write_ms_max);
        self.after(next, Happening::Write);
        // A store that grows past what it lost before anybody noticed cannot be told from one that
        // never lost anything: no client can be right then.
        if self.client_is_ahead() {
            return;
        }
        if self.dice.chance(30) {
            let count = self.dice.between(1, 5);
            self.store.write_elsewhere(count);
            return;
        }
        let key = key(self.dice.between(1, self.plan.keys));
        let commit = self.store.write(&key, self.dice.roll(), self.now.0);
        self.history.push(commit);
        self.pump_all();
    }

    fn compact(&mut self) {
        if self.wild {
            self.store.compact(self.plan.keep);
            self.after(self.plan.compact_ms.unwrap_or(1_000), Happening::Compact);
        }
    }

    /// The second server catches up to another distance.
    fn lag(&mut self) {
        let lag = match self.plan.lag {
            Some(most) if self.wild => self.dice.between(0, most),
            _ => 0,
        };
        self.second_at = self.second_at.max(self.store.rv.saturating_sub(lag)).min(self.store.rv);
        self.pump_all();
        if self.wild {
            let next = self.dice.between(100, 10_000);
            self.after(next, Happening::Lag);
        }
    }

    /// The store comes back as it was some revisions ago.
    fn restore(&mut self) {
        if !self.wild || self.restored {
            return;
        }
        let back = self.dice.skewed(1, 60).min(self.store.rv - 1);
        let rv = self.store.rv - back;
        self.reset_lists();
        let calls: Vec<_> = self.streams.keys().copied().collect();
        for call in calls {
            self.end_stream(call, Ending::Reset);
        }
        self.store.restore(rv);
        self.second_at = self.second_at.min(rv);
        self.history.push(history::Restart { t: self.now.0, rv, restored: true });
        self.fault("restored", true, None);
        self.restored = true;
    }

    /// Every list under way loses its connection.
    fn reset_lists(&mut self) {
        let calls: Vec<_> = self.lists.keys().copied().collect();
        for call in calls {
            let reset = masthead_reflector::Failure::Reset("by peer".into());
            let record = history::ListResp { reason: "reset".to_owned(), ..lists::empty() };
            self.deliver(call, Answer { result: Err(reset), record });
        }
    }

    fn restart_client(&mut self) {
        if !self.wild {
            return;
        }
        let mark = self.client.machine.report(self.now).revision.0;
        let calls: Vec<_> = self.lists.keys().chain(self.streams.keys()).copied().collect();
        for call in calls {
            self.cancel(call);
        }
        self.history.push(history::Stopped { iid: CLIENT.to_owned(), t: self.now.0 });
        let saved = Some(mark).filter(|mark| self.plan.saves_mark && *mark > 0);
        let (generation, settings) = (self.client.generation + 1, self.plan.settings.clone());
        let seed = self.dice.roll();
        let history = &mut self.history;
        self.client = Client::born(generation, settings, saved, seed, self.now, history);
    }

    /// The faults stop: what hangs is cut, what stalls flows again, who lags catches up.
    fn calm(&mut self) {
        self.wild = false;
        self.fault("chaos", false, None);
        self.second_at = self.store.rv;
        self.reset_lists();
        for stream in self.streams.values_mut() {
            stream.cut_at = None;
            if stream.stalled_until < u64::MAX {
                (stream.stalled_until, stream.pump_due) = (0, false);
            }
        }
        self.pump_all();
    }
}

/// Keys in two namespaces whose names begin alike.
fn key(number: u64) -> String {
    format!("{}/n{number}", ["a", "a-b"][usize::from(number.is_multiple_of(3))])
}
