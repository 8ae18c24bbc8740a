//! Functions of the user that panic: at the first call, at a later one, at every one. All the rest goes on, the
//! log and the snapshot have each of them, and nothing is red that is well.

use std::fmt;
use std::future::{pending, ready};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures_util::stream;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use masthead_controller::queue::{Moment, Settings};
use masthead_controller::{
    Action, Context, Controller, ControllerHandle, Predicate, ReconcileError, RunError,
};
use masthead_core::ObjectKey;
use masthead_informer::{Entry, Factory, Index, Informer};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::task::JoinHandle;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use crate::logs::Logs;
use crate::world::World;

mod ends;

/// Which calls of a function panic.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Panics {
    First,
    Third,
    Every,
}

impl Panics {
    const ALL: [Self; 3] = [Self::First, Self::Third, Self::Every];

    /// Something to be called first in a function: panics where this says so, with a count.
    fn fuse(self) -> Fuse {
        Fuse { at: self, calls: Arc::default(), panics: Arc::default() }
    }
}

#[derive(Clone)]
struct Fuse {
    at: Panics,
    calls: Arc<AtomicU64>,
    panics: Arc<AtomicU64>,
}

impl Fuse {
    fn call(&self) {
        let call = self.calls.fetch_add(1, Ordering::Relaxed);
        let panics = match self.at {
            Panics::First => call == 0,
            Panics::Third => call == 2,
            Panics::Every => true,
        };
        if panics {
            self.panics.fetch_add(1, Ordering::Relaxed);
            panic!("fuse {call}");
        }
    }

    fn panics(&self) -> u64 {
        self.panics.load(Ordering::Relaxed)
    }

    fn calls(&self) -> u64 {
        self.calls.load(Ordering::Relaxed)
    }
}

fn on_paused_clock<T>(test: impl Future<Output = T>) -> T {
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    runtime.enable_time().start_paused(true).build().unwrap().block_on(test)
}

const MAPS: &str = "configmaps";
const SECRETS: &str = "secrets";

/// A controller of maps in a world.
struct Life {
    world: World,
    factory: Factory,
    logs: Logs,
    _logging: tracing::subscriber::DefaultGuard,
    seen: Arc<Mutex<Vec<String>>>,
    stop: CancellationToken,
}

/// A controller that runs.
struct Running {
    handle: ControllerHandle,
    task: JoinHandle<Result<(), RunError>>,
}

impl Life {
    fn new() -> Self {
        let (world, (logs, logging)) = (World::new(), Logs::begin());
        let factory = world.factory();
        let (seen, stop) = (Arc::default(), CancellationToken::new());
        Self { world, factory, logs, _logging: logging, seen, stop }
    }

    fn controller(&self) -> Controller<ConfigMap> {
        Controller::new(&self.factory, "maps").unwrap().workers(1)
    }

    fn secrets(&self) -> Informer<Secret> {
        self.factory.informer().build().unwrap()
    }

    fn map(&self, name: &str, object: Value) {
        self.world.put(MAPS, &format!("default/{name}"), object);
    }

    fn secret(&self, name: &str, object: Value) {
        self.world.put(SECRETS, &format!("default/{name}"), object);
    }

    /// Writes down every reconcile.
    fn run(&self, controller: Controller<ConfigMap>) -> Running {
        self.run_with(controller, |_| ready(Ok(Action::Done)))
    }

    /// Writes down every reconcile, then does what a function says.
    fn run_with<F>(
        &self,
        controller: Controller<ConfigMap>,
        then: impl Fn(Context<ConfigMap>) -> F + Send + Sync + 'static,
    ) -> Running
    where
        F: Future<Output = Result<Action, ReconcileError>> + Send + 'static,
    {
        let seen = self.seen.clone();
        let runner = controller.reconcile(move |context: Context<ConfigMap>| {
            seen.lock().push(context.key().name().to_owned());
            then(context)
        });
        let handle = runner.handle();
        self.factory.start();
        Running { handle, task: tokio::spawn(runner.run(self.stop.clone())) }
    }

    /// What was reconciled since it was asked last.
    async fn news(&self) -> String {
        sleep(Duration::from_secs(1)).await;
        std::mem::take(&mut *self.seen.lock()).concat()
    }

    fn assert_logged(&self, words: &[&str], count: u64) {
        assert_eq!(self.logs.count(words) as u64, count, "{words:?} in\n{}", self.logs.text());
    }

    /// Nothing ended, and a stop ends it well.
    async fn assert_well(&self, running: Running) {
        let Running { handle, task } = running;
        assert_eq!(handle.snapshot().ended, None);
        assert!(!task.is_finished());
        let report = self.factory.report();
        assert!(report.is_complete() && report.ended.is_empty(), "{report}");
        self.stop.cancel();
        task.await.unwrap().unwrap();
        assert_eq!(handle.snapshot().ended, None);
        self.assert_logged(&["ended unexpectedly"], 0);
    }
}

fn labelled(value: u64) -> Value {
    json!({"metadata": {"labels": {"x": value.to_string()}}})
}

async fn predicate_panics(panics: Panics) {
    let life = Life::new();
    let fuse = panics.fuse();
    let burning = fuse.clone();
    let predicate = Predicate::new(move |_: &Entry<ConfigMap>, _: &Entry<ConfigMap>| {
        burning.call();
        false
    });
    life.map("a", json!({}));
    let running = life.run(life.controller().when(predicate.or(Predicate::labels())));
    assert_eq!(life.news().await, "a");
    let mut seen = String::new();
    for n in 0..4 {
        // Nothing of it matters, unless the predicate panics.
        life.map("a", json!({"data": {"n": n.to_string()}}));
        seen += &life.news().await;
    }
    let times = if panics == Panics::Every { 4 } else { 1 };
    assert_eq!((seen, fuse.panics()), ("a".repeat(times), times as u64), "{panics:?}");
    life.map("a", labelled(1));
    assert_eq!(life.news().await, "a", "all other changes are heard of");
    life.map("b", json!({}));
    assert_eq!(life.news().await, "b");
    assert_eq!(running.handle.snapshot().panics.predicates, fuse.panics());
    let words = ["controller=maps", "key=default/a", "function=predicate", "panic=fuse"];
    life.assert_logged(&words, fuse.panics());
    life.assert_well(running).await;
}

#[test]
fn a_change_for_which_the_predicate_panics_matters() {
    for panics in Panics::ALL {
        on_paused_clock(predicate_panics(panics));
    }
}

async fn mapper_panics(panics: Panics) {
    let life = Life::new();
    let (secrets, fuse) = (life.secrets(), panics.fuse());
    let burning = fuse.clone();
    let map = move |secret: &Entry<Secret>| {
        burning.call();
        vec![ObjectKey::new("default", secret.name()).unwrap()]
    };
    let running = life.run(life.controller().watches(&secrets, map));
    assert_eq!(life.news().await, "");
    let mut seen = Vec::new();
    for name in ["a", "b", "c", "d"] {
        life.secret(name, json!({}));
        seen.push(life.news().await);
    }
    let expected = match panics {
        Panics::First => ["", "b", "c", "d"],
        Panics::Third => ["a", "b", "", "d"],
        Panics::Every => ["", "", "", ""],
    };
    assert_eq!(seen, expected);
    life.map("own", json!({}));
    assert_eq!(life.news().await, "own");
    let expected = if panics == Panics::Every { 4 } else { 1 };
    assert_eq!(fuse.panics(), expected);
    assert_eq!(running.handle.snapshot().panics.mappers, expected);
    let words = ["controller=maps", "key=default/", "function=mapper", "panic=fuse"];
    life.assert_logged(&words, expected);
    life.assert_well(running).await;
}

#[test]
fn a_state_for_which_a_mapper_panics_has_no_keys() {
    for panics in Panics::ALL {
        on_paused_clock(mapper_panics(panics));
    }
}

#[tokio::test(start_paused = true)]
async fn the_keys_of_the_other_state_are_used_if_a_mapper_panics() {
    let life = Life::new();
    let secrets = life.secrets();
    let map = |secret: &Entry<Secret>| {
        let target = secret.label("target").unwrap().to_owned();
        assert!(target != "bad", "bad target");
        vec![ObjectKey::new("default", &target).unwrap()]
    };
    let target = |name: &str| json!({"metadata": {"labels": {"target": name}}});
    let running = life.run(life.controller().watches(&secrets, map));
    for (state, reconciled) in [("a", "a"), ("bad", "a"), ("b", "b"), ("c", "cb")] {
        life.secret("s", target(state));
        assert_eq!(life.news().await, reconciled, "{state}");
    }
    life.assert_logged(&["key=default/s", "function=mapper", "bad target"], 2);
    assert_eq!(running.handle.snapshot().panics.mappers, 2);
    life.assert_well(running).await;
}

#[tokio::test(start_paused = true)]
async fn an_index_function_that_panics_leaves_out_its_object_and_no_other() {
    let life = Life::new();
    for name in ["a", "b"] {
        life.map(name, json!({"data": {"secret": "default/s", name: "here"}}));
    }
    let secrets = life.secrets();
    let index = Index::by("secret", |map: &ConfigMap, values| {
        let data = map.data.as_ref().unwrap();
        assert!(!data.contains_key("a"), "not this one");
        values.extend(data.get("secret").map(String::as_str));
    });
    let maps = life.factory.informer::<ConfigMap>().index(index).build().unwrap();
    let controller = Controller::of("maps", maps).workers(1).watches_index(&secrets, "secret");
    let running = life.run(controller.watches_index(&secrets, "no such index"));
    assert_eq!(life.news().await, "ab");
    for _ in 0..3 {
        life.secret("s", json!({}));
        assert_eq!(life.news().await, "b");
    }
    life.map("a", json!({"data": {"secret": "default/s"}}));
    assert_eq!(life.news().await, "a");
    life.secret("s", json!({}));
    let both = life.news().await;
    assert!(both == "ab" || both == "ba", "{both}");
    let report = life.factory.report();
    let panics: u64 = report.resources.iter().map(|it| it.panics.indexes).sum();
    assert_eq!(panics, 1);
    life.assert_logged(&["configmaps", "key=default/a", "function=index", "not this one"], 1);
    life.assert_logged(&["controller=maps", "no such index"], 1);
    life.assert_well(running).await;
}

/// How a reconcile panics.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Where {
    BeforeTheFuture,
    InTheFuture,
    InTheTextOfItsError,
}

#[derive(Debug)]
struct Unspeakable(Fuse);

impl fmt::Display for Unspeakable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.call();
        f.write_str("spoken")
    }
}

impl fmt::Debug for Fuse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Fuse")
    }
}

impl std::error::Error for Unspeakable {}

async fn reconcile_panics(panics: Panics, place: Where) {
    let life = Life::new();
    let fuse = panics.fuse();
    let burning = fuse.clone();
    for name in ["a", "b", "c", "d"] {
        life.map(name, json!({}));
    }
    let queue = Settings::default().limiter(|_: &ObjectKey, _, _| Duration::from_secs(3600));
    let running = life.run_with(life.controller().queue(queue), move |_| {
        if place == Where::BeforeTheFuture {
            burning.call();
        }
        let burning = burning.clone();
        async move {
            match place {
                Where::BeforeTheFuture => {}
                Where::InTheFuture => burning.call(),
                Where::InTheTextOfItsError => return Err(Unspeakable(burning).into()),
            }
            Ok(Action::Done)
        }
    });
    assert_eq!(life.news().await, "abcd");
    let expected = if panics == Panics::Every { 4 } else { 1 };
    assert_eq!(fuse.panics(), expected, "{panics:?} {place:?}");
    assert_eq!(running.handle.snapshot().panics.reconciles, expected);
    let again = running.handle.snapshot().queue.delayed.len() as u64;
    let failed = if place == Where::InTheTextOfItsError { 4 } else { expected };
    assert_eq!(again, failed, "what failed is tried again");
    let words = ["controller=maps", "key=default/", "function=reconcile", "panic=fuse"];
    life.assert_logged(&words, expected);
    life.assert_well(running).await;
}

#[test]
fn a_reconcile_that_panics_is_tried_again_and_the_log_has_its_text() {
    for place in [Where::BeforeTheFuture, Where::InTheFuture, Where::InTheTextOfItsError] {
        for panics in Panics::ALL {
            on_paused_clock(reconcile_panics(panics, place));
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_destructor_that_panics_when_a_reconcile_is_cancelled_ends_no_worker() {
    struct Bomb;
    impl Drop for Bomb {
        fn drop(&mut self) {
            panic!("bomb");
        }
    }
    let life = Life::new();
    life.map("a", json!({}));
    let controller = life.controller().timeout(Duration::from_millis(10));
    let running = life.run_with(controller, |context| async move {
        if context.key().name() == "a" && context.attempt() == 1 {
            let _bomb = Bomb;
            pending::<()>().await;
        }
        Ok(Action::Done)
    });
    assert_eq!(life.news().await, "aa", "it is tried again");
    life.map("b", json!({}));
    assert_eq!(life.news().await, "b");
    assert_eq!(running.handle.snapshot().panics.reconciles, 1);
    life.assert_logged(&["controller=maps", "key=default/a", "panic=bomb"], 1);
    life.assert_well(running).await;
}

/// Keys wait as by default, and none is lost.
async fn limiter_panics(panics: Panics) {
    let life = Life::new();
    let fuse = panics.fuse();
    let burning = fuse.clone();
    let limiter = move |_: &ObjectKey, _: u32, _: Moment| {
        burning.call();
        Duration::from_millis(50)
    };
    life.map("a", json!({}));
    let controller = life.controller().queue(Settings::default().limiter(limiter));
    let running = life.run_with(controller, |context| {
        ready(if context.attempt() < 5 {
            Err(ReconcileError::retry("not yet"))
        } else {
            Ok(Action::Done)
        })
    });
    assert_eq!(life.news().await, "aaaaa");
    assert_eq!(fuse.calls(), 4);
    let expected = if panics == Panics::Every { 4 } else { 1 };
    assert_eq!(running.handle.snapshot().panics.limiters, expected);
    assert_eq!(running.handle.queue().figures().panics, expected);
    life.assert_logged(&["controller=maps", "key=default/a", "function=limiter", "fuse"], expected);
    life.assert_well(running).await;
}

#[test]
fn r29_a_key_whose_limiter_panics_waits_as_by_default() {
    for panics in Panics::ALL {
        on_paused_clock(limiter_panics(panics));
    }
}

async fn class_panics(panics: Panics) {
    let life = Life::new();
    let fuse = panics.fuse();
    let burning = fuse.clone();
    let class = move |key: &ObjectKey| {
        burning.call();
        key.name().to_owned()
    };
    for name in ["a", "b", "c", "d"] {
        life.map(name, json!({}));
    }
    let running = life.run(life.controller().queue(Settings::default().fair_by(class)));
    let mut seen: Vec<_> = life.news().await.chars().collect();
    seen.sort_unstable();
    assert_eq!(seen, ['a', 'b', 'c', 'd'], "none is lost");
    life.map("a", json!({}));
    assert_eq!(life.news().await, "a");
    let expected = if panics == Panics::Every { 5 } else { 1 };
    assert_eq!((fuse.calls(), fuse.panics()), (5, expected));
    assert_eq!(running.handle.snapshot().panics.classes, expected);
    let words = ["controller=maps", "key=default/", "function=class", "panic=fuse"];
    life.assert_logged(&words, expected);
    life.assert_well(running).await;
}

#[test]
fn r30_a_key_whose_class_panics_has_its_turn() {
    for panics in Panics::ALL {
        on_paused_clock(class_panics(panics));
    }
}

/// A queue without a controller says it in the log and in its figures.
#[tokio::test(start_paused = true)]
async fn the_functions_of_a_queue_of_its_own_are_contained_too() {
    let (logs, _logging) = Logs::begin();
    let settings = Settings::default().fair_by(|key: &u8| {
        assert!(*key != 1, "not one");
        *key
    });
    let queue = masthead_controller::queue::WorkQueue::new(settings);
    for key in 0..3 {
        queue.add(key).unwrap();
    }
    let mut seen = Vec::new();
    for _ in 0..3 {
        seen.push(*queue.next().await.unwrap());
    }
    seen.sort_unstable();
    assert_eq!((seen, queue.figures().panics), (vec![0, 1, 2], 1));
    assert_eq!(logs.count(&["function=Class", "not one"]), 1, "{}", logs.text());
}

#[cfg(planted)]
#[test]
fn planted_a_swallowed_panic_of_a_predicate_is_caught() {
    use masthead_core::planted;
    planted::with("predicate_panic_hides_the_change", || {
        for panics in Panics::ALL {
            let caught =
                std::panic::catch_unwind(|| on_paused_clock(predicate_panics(panics))).is_err();
            assert!(planted::reached() && caught, "{panics:?}");
        }
    });
}

/// A stream of keys.
fn keys(names: &'static [&'static str]) -> impl stream::Stream<Item = ObjectKey> + Unpin + Send {
    stream::iter(names.iter().map(|name| ObjectKey::new("default", name).unwrap()))
}
