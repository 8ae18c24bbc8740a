//! Random lives of a factory, its handlers and its listers: judged by the checker, and each handler by
//! what it was told.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use masthead_cache::HistoryLimits;
use masthead_core::Selectors;
use masthead_informer::{
    Entry, Event, Factory, FactorySettings, HandlerHandle, HandlerOptions, Index, Informer,
    Representation,
};
use masthead_reflector::Strategy;
use masthead_sim::history::{self, Call};
use masthead_sim::{History, Record, check, seeds};
use parking_lot::Mutex;
use tokio::time::{Instant, sleep};

use crate::world::{Dice, Thing, World, things};

/// Seeds of an ordinary run. `MASTHEAD_SEED` runs one, `MASTHEAD_SEEDS` another number of them.
const SEEDS: u64 = 5_000;
/// The informer, as the history calls it.
const NAME: &str = "c";

/// What a handler is like.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Temper {
    Quick,
    /// Takes up to so many milliseconds for each call.
    Slow(u64),
    /// Every so many calls.
    Panics(u64),
}

/// What a handler has been told, and what was wrong with it.
#[derive(Default)]
struct Told {
    keys: BTreeMap<String, (u64, String)>,
    heard: Vec<String>,
    wrong: Vec<String>,
    resyncs: u64,
    missed: u64,
}

impl Told {
    fn hear(&mut self, event: &Event<Thing>) {
        let key = event.key().to_string();
        self.heard.push(key.clone());
        let version = |entry: &Entry<Thing>| (entry.revision().0, entry.uid().to_owned());
        let before = self.keys.get(&key).cloned();
        let mut wrong = |what: &str| self.wrong.push(format!("{what}: {event:?}, had {before:?}"));
        match event {
            Event::Added { object, .. } => {
                if before.is_some() {
                    wrong("added twice");
                }
                self.keys.insert(key, version(object));
            }
            Event::Updated { old, new, resync } => {
                if before.is_none()
                    || old.as_ref().map(version).is_some_and(|old| Some(old) != before)
                {
                    wrong("updated from something else");
                }
                if before
                    .as_ref()
                    .is_some_and(|(rv, uid)| *rv > new.revision().0 || *uid != new.uid())
                {
                    wrong("went back or became another");
                }
                if *resync && before != Some(version(new)) {
                    wrong("a resync with news");
                }
                self.resyncs += u64::from(*resync);
                self.missed += u64::from(old.is_none());
                self.keys.insert(key, version(new));
            }
            Event::Deleted { last, .. } => {
                let last = last.entry().map(|entry| entry.uid().to_owned());
                if before.as_ref().is_none_or(|(_, uid)| last.is_some_and(|last| last != *uid)) {
                    wrong("deleted what was not there");
                }
                self.keys.remove(&key);
            }
        }
        if let Some(entry) = event.entry()
            && entry.decode().is_err()
        {
            self.wrong.push(format!("{entry:?} cannot be read"));
        }
    }
}

/// One run.
struct Life {
    world: World,
    began: Instant,
    history: Arc<Mutex<History>>,
    shown: BTreeMap<String, u64>,
    synced: bool,
    /// Keys that are there from the beginning to the end.
    stable: Vec<String>,
}

impl Life {
    fn now(&self) -> u64 {
        u64::try_from(self.began.elapsed().as_millis()).unwrap()
    }

    fn push(&self, record: impl Into<Record>) {
        self.history.lock().push(record);
    }

    fn write(&self, dice: &mut Dice) {
        let namespace = ["a", "ab", "b"][usize::try_from(dice.below(3)).unwrap()];
        let key = format!("{namespace}/n{}", dice.below(6));
        let labels = ["app=x", "app=y", ""][usize::try_from(dice.below(3)).unwrap()];
        let commit = if dice.chance(25) {
            self.world.delete(&key)
        } else {
            Some(self.world.put(&key, dice.below(100), labels))
        };
        if let Some(mut commit) = commit {
            commit.t = self.now();
            self.push(commit);
        }
    }

    /// Writes down how the cache looks, and compares its indexes with it (I5).
    fn look(&mut self, informer: &Informer<Thing>) -> Result<(), String> {
        let state = informer.lister();
        let t = self.now();
        let cached: BTreeMap<_, _> =
            state.iter().map(|it| (it.key().to_string(), it.revision().0)).collect();
        let gone = self.shown.keys().filter(|key| !cached.contains_key(*key)).cloned();
        let gone: Vec<_> = gone.map(|key| (key, None)).collect();
        let news = cached.iter().filter(|(key, rv)| self.shown.get(*key) != Some(*rv));
        let news: Vec<_> = news.map(|(key, rv)| (key.clone(), Some(*rv))).collect();
        for (key, rv) in gone.into_iter().chain(news) {
            self.push(history::Cache { iid: NAME.to_owned(), generation: 0, t, key, rv });
        }
        self.shown = cached;
        if informer.has_synced() && !self.synced {
            self.synced = true;
            let rv = state.revision().0;
            self.push(history::Synced { iid: NAME.to_owned(), hid: None, rv, t });
        }
        let mut indexed: Vec<_> =
            state.by_index("app", "x").unwrap().map(|it| it.key().clone()).collect();
        indexed.sort();
        let matching = state.iter().filter(|it| it.label("app") == Some("x"));
        let matching: Vec<_> = matching.map(|it| it.key().clone()).collect();
        if indexed == matching { Ok(()) } else { Err(format!("I5: {indexed:?}, {matching:?}")) }
    }
}

/// A handler of the run, and what it should know in the end.
struct Listener {
    name: &'static str,
    told: Arc<Mutex<Told>>,
    handle: Arc<HandlerHandle>,
    expects: fn(&Entry<Thing>) -> bool,
    doubts: Doubts,
}

/// Revisions of keys for which a filter panicked: they may be seen, too.
type Doubts = Arc<Mutex<BTreeSet<(String, u64)>>>;

/// A filter that panics at each of so many calls, whatever it is asked, and writes down for what.
fn doubting(every: u64) -> (HandlerOptions<Thing>, Doubts) {
    let (doubts, calls) = (Doubts::default(), AtomicU64::new(0));
    let notes = doubts.clone();
    let filter = move |entry: &Entry<Thing>| {
        if calls.fetch_add(1, Ordering::Relaxed) % every == every - 1 {
            notes.lock().insert((entry.key().to_string(), entry.revision().0));
            // A panic that is not printed.
            std::panic::resume_unwind(Box::new("as it was told to"));
        }
        is_even(entry)
    };
    (HandlerOptions::default().filter(filter), doubts)
}

fn listen(
    life: &Life,
    informer: &Informer<Thing>,
    name: &'static str,
    options: HandlerOptions<Thing>,
    temper: Temper,
    expects: fn(&Entry<Thing>) -> bool,
    recorded: bool,
) -> Listener {
    let told = Arc::new(Mutex::new(Told::default()));
    let (hears, history, began) = (told.clone(), life.history.clone(), life.began);
    let mut dice = Dice::new(name.len() as u64);
    let mut calls = 0;
    let handler = move |event: Event<Thing>| {
        let (hears, history) = (hears.clone(), history.clone());
        let pause = if let Temper::Slow(most) = temper { dice.below(most) } else { 0 };
        calls += 1;
        let panics = matches!(temper, Temper::Panics(every) if calls % every == 0);
        async move {
            if pause > 0 {
                sleep(Duration::from_millis(pause)).await;
            }
            hears.lock().hear(&event);
            if recorded {
                let t = u64::try_from(began.elapsed().as_millis()).unwrap();
                history.lock().push(record(name, &event, t));
            }
            if panics {
                // A panic that is not printed.
                std::panic::resume_unwind(Box::new("as it was told to"));
            }
        }
    };
    let handle = Arc::new(informer.add_handler(&options.named(name), handler).unwrap());
    let (says, hears, stable) = (handle.clone(), told.clone(), life.stable.clone());
    tokio::spawn(async move {
        says.synced().await;
        let mut told = hears.lock();
        if !stable.iter().all(|key| told.heard.contains(key)) {
            let wrong = format!("I6: synced and has not heard of all of {stable:?}");
            told.wrong.push(wrong);
        }
    });
    Listener { name, told, handle, expects, doubts: Doubts::default() }
}

fn record(hid: &str, event: &Event<Thing>, t: u64) -> history::Handler {
    let rv = |entry: &Entry<Thing>| entry.revision().0;
    let (call, old_rv, new_rv) = match event {
        Event::Added { object, .. } => (Call::Add, None, Some(rv(object))),
        Event::Updated { old, new, .. } => (Call::Update, old.as_ref().map(rv), Some(rv(new))),
        Event::Deleted { .. } => (Call::Delete, None, None),
    };
    let (iid, hid, key) = (NAME.to_owned(), hid.to_owned(), event.key().to_string());
    history::Handler { iid, hid, call, key, old_rv, new_rv, t }
}

fn anything(_: &Entry<Thing>) -> bool {
    true
}

fn is_x(entry: &Entry<Thing>) -> bool {
    entry.label("app") == Some("x")
}

fn is_even(entry: &Entry<Thing>) -> bool {
    entry.decode().is_ok_and(|thing| thing.value.is_multiple_of(2))
}

fn factory(world: &World, dice: &mut Dice) -> Factory {
    let strategy = if dice.chance(50) { Strategy::Streaming } else { Strategy::Pages };
    // Some have no patience with those who are slow.
    let pinned_bytes = if dice.chance(40) { 0 } else { usize::MAX };
    let settings =
        FactorySettings { strategy, pinned_bytes, seed: dice.roll(), ..FactorySettings::default() };
    Factory::with_settings(world.clone(), settings).unwrap()
}

fn informer(factory: &Factory, dice: &mut Dice) -> Informer<Thing> {
    let representations = [Representation::Raw, Representation::Typed, Representation::Compact];
    let representation = representations[usize::try_from(dice.below(3)).unwrap()];
    let changes = usize::try_from(2 + dice.below(12)).unwrap();
    let builder = factory.informer::<Thing>().representation(representation);
    let history = HistoryLimits { changes, ..HistoryLimits::default() };
    let builder = builder.history(history).index(Index::label("app", "app"));
    let builder = if dice.chance(25) {
        builder.namespace("a").namespace("ab").namespace("b")
    } else {
        builder
    };
    builder.build().unwrap()
}

impl masthead_informer::Kind for Thing {
    fn resource() -> masthead_core::Resource {
        things()
    }
}

/// Lives a seed; says what was wrong.
pub(crate) fn live(seed: u64) -> Result<(), String> {
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
    runtime.unwrap().block_on(live_on(seed))
}

/// A world with things in it, and what is written down of its beginning.
fn begin(seed: u64, dice: &mut Dice) -> Life {
    let world = World::new(seed);
    world.set_streaming(dice.chance(70));
    let history = Arc::new(Mutex::new(History::default()));
    let (began, shown, stable) = (Instant::now(), BTreeMap::new(), Vec::new());
    let mut life = Life { world, began, history, shown, synced: false, stable };
    for n in 0..dice.below(4) {
        life.push(life.world.put(&format!("a/stable{n}"), 2, "app=x"));
    }
    life.stable = life.world.state().into_keys().collect();
    for _ in 0..dice.below(12) {
        life.write(dice);
    }
    let (iid, scope, t) = (NAME.to_owned(), history::Scope::All, 0);
    let (selector, fields, generation, who, saved) = (String::new(), String::new(), 0, None, None);
    life.push(history::Informer { iid, generation, who, scope, selector, fields, saved, t });
    life.push(history::Fault { t, kind: "chaos".to_owned(), on: true, target: None });
    life
}

/// Handlers of every temper.
fn crowd(life: &Life, informer: &Informer<Thing>, dice: &mut Dice) -> Vec<Listener> {
    let all = HandlerOptions::<Thing>::default;
    let selectors = Selectors { labels: "app=x".parse().unwrap(), ..Selectors::default() };
    let resync = all().resync(Duration::from_millis(500 + dice.below(3000)));
    let (slow, panics) = (Temper::Slow(1 + dice.below(1500)), Temper::Panics(1 + dice.below(5)));
    let short = Temper::Slow(200);
    let (doubting, doubts) = doubting(1 + dice.below(5));
    let doubting = listen(life, informer, "doubts", doubting, short, is_even, false);
    vec![
        Listener { doubts, ..doubting },
        listen(life, informer, "quick", all(), Temper::Quick, anything, true),
        listen(life, informer, "slow", all(), slow, anything, false),
        listen(life, informer, "panics", all(), panics, anything, true),
        listen(life, informer, "selects", all().select(selectors), short, is_x, false),
        listen(life, informer, "filters", all().filter(is_even), short, is_even, false),
        listen(life, informer, "resyncs", resync, Temper::Slow(100), anything, false),
    ]
}

async fn live_on(seed: u64) -> Result<(), String> {
    let mut dice = Dice::new(seed);
    let mut life = begin(seed, &mut dice);
    let world = life.world.clone();
    let factory = factory(&world, &mut dice);
    let informer = informer(&factory, &mut dice);
    world.set_faults(dice.below(30));
    let mut listeners = crowd(&life, &informer, &mut dice);
    factory.start();
    let steps = 20 + dice.below(60);
    let (late, compacts, restarts) = (dice.below(steps), dice.below(20), dice.below(4));
    for step in 0..steps {
        sleep(Duration::from_millis(dice.below(400))).await;
        for _ in 0..dice.below(4) {
            life.write(&mut dice);
        }
        if dice.chance(compacts) {
            world.compact();
        }
        if step == late {
            let (options, temper) = (HandlerOptions::default(), Temper::Slow(50));
            listeners.push(listen(&life, &informer, "late", options, temper, anything, false));
        }
        if dice.chance(restarts) {
            factory.stop().await;
            life.write(&mut dice);
            factory.start();
        }
        life.look(&informer)?;
    }
    world.set_faults(0);
    let t = life.now();
    life.push(history::Fault { t, kind: "chaos".to_owned(), on: false, target: None });
    rest(&mut life, &informer, &listeners).await?;
    life.push(history::RunEnd { t: life.now() });
    judge(&life, &informer, &listeners)
}

/// As long as I4 has, and until the slowest is through.
async fn rest(
    life: &mut Life,
    informer: &Informer<Thing>,
    listeners: &[Listener],
) -> Result<(), String> {
    let behind = |it: &Listener| it.name != "resyncs" && it.handle.report().lag_events > 0;
    for turn in 0..2_000 {
        if turn > 200 && !listeners.iter().any(behind) {
            break;
        }
        sleep(Duration::from_millis(250)).await;
        life.look(informer)?;
    }
    Ok(())
}

fn judge(life: &Life, informer: &Informer<Thing>, listeners: &[Listener]) -> Result<(), String> {
    let mut wrong = String::new();
    let state = life.world.state();
    if life.shown != state {
        let _ = writeln!(wrong, "I4: cache {:?}, server {state:?}", life.shown);
    }
    if let Some(what) = life.world.listed_without_reason() {
        let _ = writeln!(wrong, "I7: {what}");
    }
    for Listener { name, told, handle, expects, doubts } in listeners {
        let (told, doubts) = (told.lock(), doubts.lock());
        for what in told.wrong.iter().take(3) {
            let _ = writeln!(wrong, "I3: {name}: {what}");
        }
        let expected: BTreeMap<_, _> = informer
            .lister()
            .iter()
            .filter(|it| {
                expects(it)
                    || told.keys.contains_key(it.key().as_str()) && {
                        doubts.contains(&(it.key().to_string(), it.revision().0))
                    }
            })
            .map(|it| (it.key().to_string(), (it.revision().0, it.uid().to_owned())))
            .collect();
        if told.keys != expected {
            let _ = writeln!(wrong, "I3: {name} knows {:?}, there is {expected:?}", told.keys);
        }
        if !handle.report().synced {
            let _ = writeln!(wrong, "I6: {name} is not synced");
        }
        if handle.report().lag_events > 0 && *name != "resyncs" {
            let _ = writeln!(wrong, "{name} is behind: {:?}", handle.report());
        }
    }
    for violation in check(&life.history.lock()).iter().take(5) {
        let _ = writeln!(wrong, "{violation}");
    }
    if wrong.is_empty() { Ok(()) } else { Err(wrong) }
}

#[test]
fn factories_handlers_and_listers_keep_their_word_in_random_lives() {
    let test = "-p masthead-informer --test informer random";
    if let Err(wrong) = seeds::judge(SEEDS, test, live) {
        panic!("\n{wrong}");
    }
}
