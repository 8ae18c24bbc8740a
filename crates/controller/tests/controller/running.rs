//! Controllers on virtual time.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use masthead_controller::{
    Action, Context, Controller, ControllerHandle, LeaderElection, Manager, Predicate,
    ReconcileError,
};
use masthead_core::{ObjectKey, Revision};
use masthead_informer::{Factory, Index, Representation};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;

use crate::world::{World, core};

const MAPS: &str = "configmaps";
const SECRETS: &str = "secrets";

/// What was reconciled: when, which, why, and which try.
type Seen = Arc<Mutex<Vec<(u128, String, &'static str, u32)>>>;

struct Life {
    world: World,
    factory: Factory,
    seen: Seen,
    began: Instant,
    stop: CancellationToken,
}

impl Life {
    fn new() -> Self {
        let world = World::new();
        let (factory, seen, stop) = (world.factory(), Seen::default(), CancellationToken::new());
        Self { world, factory, seen, began: Instant::now(), stop }
    }

    fn controller(&self) -> Controller<ConfigMap> {
        Controller::new(&self.factory, "maps").unwrap()
    }

    fn map(&self, name: &str, object: Value) -> u64 {
        self.world.put(MAPS, &format!("default/{name}"), object)
    }

    /// Writes down every reconcile, then does what a function says.
    fn run<F>(
        &self,
        controller: Controller<ConfigMap>,
        then: impl Fn(Context<ConfigMap>) -> F + Clone + Send + Sync + 'static,
    ) -> ControllerHandle
    where
        F: Future<Output = Result<Action, ReconcileError>> + Send + 'static,
    {
        let (seen, began) = (self.seen.clone(), self.began);
        let runner = controller.reconcile(move |context: Context<ConfigMap>| {
            let at = began.elapsed().as_millis();
            let (name, trigger) = (context.key().name().to_owned(), context.trigger().0);
            seen.lock().push((at, name, trigger, context.attempt()));
            then(context)
        });
        let (handle, stop, factory) = (runner.handle(), self.stop.clone(), self.factory.clone());
        tokio::spawn(async move {
            factory.start();
            runner.run(stop).await
        });
        handle
    }

    /// What was reconciled since it was asked last, without the times.
    async fn news(&self) -> Vec<(String, &'static str, u32)> {
        sleep(Duration::from_millis(100)).await;
        let seen = std::mem::take(&mut *self.seen.lock());
        seen.into_iter().map(|(_, name, trigger, attempt)| (name, trigger, attempt)).collect()
    }
}

fn news(name: &str, trigger: &'static str, attempt: u32) -> (String, &'static str, u32) {
    (name.to_owned(), trigger, attempt)
}

async fn done(_: Context<ConfigMap>) -> Result<Action, ReconcileError> {
    Ok(Action::Done)
}

#[tokio::test(start_paused = true)]
async fn what_is_there_what_changes_and_what_goes_is_reconciled() {
    let life = Life::new();
    life.map("a", json!({}));
    life.run(life.controller().workers(1), done);
    assert_eq!(life.news().await, [news("a", "initial", 1)]);
    life.map("a", json!({"data": {"x": "1"}}));
    life.map("b", json!({}));
    assert_eq!(life.news().await, [news("a", "updated", 1), news("b", "added", 1)]);
    life.world.delete(MAPS, "default/a");
    assert_eq!(life.news().await, [news("a", "deleted", 1)]);
}

#[tokio::test(start_paused = true)]
async fn changes_around_an_object_are_changes_of_it() {
    let life = Life::new();
    life.map("a", json!({"data": {"secret": "default/s"}}));
    life.map("b", json!({}));
    let secrets = life.factory.informer::<Secret>().build().unwrap();
    let index = Index::by("secret", |map: &ConfigMap, values| {
        values.extend(
            map.data.iter().flatten().filter(|it| it.0 == "secret").map(|it| it.1.as_str()),
        );
    });
    let maps = life.factory.informer::<ConfigMap>().index(index).build().unwrap();
    let keys = Box::pin(futures_util::stream::unfold((), async |()| {
        sleep(Duration::from_secs(100)).await;
        Some((ObjectKey::new("default", "b").unwrap(), ()))
    }));
    let controller = Controller::of("maps", maps).workers(1).triggered_by(keys).owns(&secrets);
    let controller = controller.watches_index(&secrets, "secret").watches(&secrets, |secret| {
        let named = secret.label("map");
        named.map(|name| ObjectKey::new("default", name).unwrap()).into_iter().collect()
    });
    life.run(controller, done);
    assert_eq!(life.news().await.len(), 2);
    let owner = json!([{"apiVersion": "v1", "kind": "ConfigMap", "name": "a", "uid": "u2", "controller": true}]);
    life.world.put(SECRETS, "default/owned", json!({"metadata": {"ownerReferences": owner}}));
    assert_eq!(life.news().await, [news("a", "owned", 1)]);
    life.world.delete(SECRETS, "default/owned");
    assert_eq!(life.news().await, [news("a", "owned", 1)]);
    life.world.put(SECRETS, "default/s", json!({}));
    assert_eq!(life.news().await, [news("a", "indexed", 1)]);
    life.world.put(SECRETS, "default/l", json!({"metadata": {"labels": {"map": "a"}}}));
    assert_eq!(life.news().await, [news("a", "watched", 1)]);
    // It concerned one and concerns another: both hear of it.
    life.world.put(SECRETS, "default/l", json!({"metadata": {"labels": {"map": "b"}}}));
    assert_eq!(life.news().await, [news("b", "watched", 1), news("a", "watched", 1)]);
    sleep(Duration::from_secs(100)).await;
    assert_eq!(life.news().await, [news("b", "trigger", 1)]);
}

#[tokio::test(start_paused = true)]
async fn updates_that_do_not_matter_are_not_reconciled() {
    let life = Life::new();
    let object = |generation, label, note| json!({"metadata": {"generation": generation, "labels": {"l": label}, "annotations": {"n": note}}});
    life.map("a", object(1, "x", "x"));
    let matters = Predicate::generation().or(Predicate::labels());
    life.run(life.controller().when(matters), done);
    assert_eq!(life.news().await.len(), 1);
    life.map("a", object(1, "x", "y"));
    assert_eq!(life.news().await, []);
    life.map("a", object(1, "y", "y"));
    assert_eq!(life.news().await.len(), 1);
    life.map("a", object(2, "y", "y"));
    assert_eq!(life.news().await.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn no_change_of_an_annotation_is_missed_however_objects_are_held() {
    for (how, filters) in [
        (Representation::Raw, true),
        (Representation::Compact, true),
        // Only the head of a decoded object is known: everything matters.
        (Representation::Typed, false),
    ] {
        let life = Life::new();
        let object =
            |label, note| json!({"metadata": {"labels": {"l": label}, "annotations": {"n": note}}});
        life.map("a", object("x", "x"));
        let maps = life.factory.informer::<ConfigMap>().representation(how).build().unwrap();
        life.run(Controller::of("maps", maps).when(Predicate::annotations()), done);
        assert_eq!(life.news().await.len(), 1);
        life.map("a", object("x", "y"));
        assert_eq!(life.news().await.len(), 1, "{how:?}: an annotation changed");
        life.map("a", object("y", "y"));
        assert_eq!(life.news().await.is_empty(), filters, "{how:?}: only a label changed");
        life.stop.cancel();
    }
}

#[tokio::test(start_paused = true)]
async fn what_fails_panics_or_hangs_is_tried_again_with_backoff() {
    let life = Life::new();
    life.map("a", json!({}));
    let tries = Arc::new(AtomicU32::new(0));
    let controller =
        life.controller().timeout(Duration::from_secs(3)).resync(Duration::from_secs(9));
    life.run(controller, move |_| {
        let turn = tries.fetch_add(1, Ordering::Relaxed);
        async move {
            match turn {
                0 => Err(ReconcileError::retry("no")),
                // A panic that is not printed.
                1 => std::panic::resume_unwind(Box::new("as it was told to")),
                2 => std::future::pending().await,
                3 => Ok(Action::RequeueAfter(Duration::from_secs(4))),
                _ => Ok(Action::Done),
            }
        }
    });
    sleep(Duration::from_millis(8_500)).await;
    let seen = life.seen.lock().clone();
    let told: Vec<_> =
        seen.iter().map(|(at, _, trigger, attempt)| (*at, *trigger, *attempt)).collect();
    let start = told[0].0;
    let expected = [
        (0, "initial", 1),
        (5, "retry", 2),
        (15, "retry", 3),
        (3_035, "retry", 4),
        (7_035, "requeue", 1),
    ];
    assert_eq!(told, expected.map(|(at, trigger, attempt)| (start + at, trigger, attempt)));
}

#[tokio::test(start_paused = true)]
async fn what_cannot_go_well_is_quarantined_until_it_changes_or_is_released() {
    let life = Life::new();
    life.map("a", json!({}));
    let secrets = life.factory.informer::<Secret>().build().unwrap();
    let controller =
        life.controller().watches(&secrets, |_| vec![ObjectKey::new("default", "a").unwrap()]);
    let world = life.world.clone();
    let handle = life.run(controller, move |context| {
        let world = world.clone();
        async move {
            if context.object().unwrap().label("fine").is_some() {
                return Ok(Action::Done);
            }
            // It says so in the object, which is no reason to look at it once more.
            let rv = world.put(MAPS, "default/a", json!({"data": {"error": "no such thing"}}));
            context.wrote_at(&core(MAPS, "ConfigMap"), Revision(rv));
            Err(ReconcileError::terminal("no such thing"))
        }
    });
    assert_eq!(life.news().await, [news("a", "initial", 1)]);
    life.world.put(SECRETS, "default/s", json!({}));
    assert_eq!(life.news().await, [], "nothing else brings it back");
    let held = handle.snapshot().quarantined;
    assert_eq!((held[0].key.as_str(), held[0].error.as_str()), ("default/a", "no such thing"));
    assert!(handle.release(&held[0].key) && !handle.release(&ObjectKey::new("", "b").unwrap()));
    assert_eq!(life.news().await, [news("a", "released", 1)]);
    assert_eq!(handle.quarantined().len(), 1);
    life.map("a", json!({"metadata": {"labels": {"fine": "yes"}}}));
    assert_eq!(life.news().await, [news("a", "updated", 1)]);
    assert_eq!(handle.quarantined(), []);
}

/// Its next turn comes when the cache has what it wrote, not before, and not after a backoff.
#[tokio::test(start_paused = true)]
async fn r33_a_key_that_wrote_is_parked_until_the_cache_has_it() {
    let life = Life::new();
    life.map("a", json!({}));
    life.map("b", json!({}));
    let secrets = life.factory.informer::<Secret>().build().unwrap();
    let (world, cache) = (life.world.clone(), secrets.clone());
    let counts = Arc::new(Mutex::new(Vec::new()));
    let told = counts.clone();
    let controller = life.controller().workers(1).owns(&secrets);
    let handle = life.run(controller, move |context| {
        let name = context.key().name().to_owned();
        if name == "a" {
            let there = cache.lister().len();
            told.lock().push(there);
            let rv = world.put(SECRETS, &format!("default/s{there}"), json!({}));
            context.wrote_at(&core(SECRETS, "Secret"), Revision(rv));
        }
        std::future::ready(Ok(Action::Done))
    });
    assert_eq!(life.news().await.len(), 2);
    assert_eq!(*counts.lock(), [0]);
    life.world.set_lag(Duration::from_secs(20));
    let a = ObjectKey::new("default", "a").unwrap();
    handle.queue().add(a.clone()).unwrap();
    sleep(Duration::from_millis(1)).await;
    for _ in 0..5 {
        handle.queue().add(a.clone()).unwrap();
        handle.queue().add(ObjectKey::new("default", "b").unwrap()).unwrap();
        sleep(Duration::from_secs(1)).await;
    }
    assert_eq!(*counts.lock(), [0, 1], "it is parked");
    let others = life.news().await.iter().filter(|it| it.0 == "b").count();
    assert_eq!(others, 5, "its worker is not");
    sleep(Duration::from_secs(30)).await;
    assert_eq!(*counts.lock(), [0, 1, 2], "it has seen what it wrote");
}

/// A controller that reads the secrets labelled `app=x` of two namespaces. Says how long a key
/// that wrote a secret, which the caches hear of after 20 s, is parked; no bookmark helps.
async fn parked_for(namespace: &'static str, app: &'static str) -> Duration {
    let life = Life::new();
    life.map("a", json!({}));
    let secrets = life.factory.informer::<Secret>().labels("app=x");
    let secrets = secrets.namespace("one").namespace("two").build().unwrap();
    let world = life.world.clone();
    let handle = life.run(life.controller().owns(&secrets), move |context| {
        if context.trigger().0 == "add" && context.attempt() == 1 {
            let labels = json!({"metadata": {"labels": {"app": app}}});
            let key = format!("{namespace}/s");
            world.put(SECRETS, &key, labels);
            let secret = serde_json::from_value(world.get(SECRETS, &key).unwrap()).unwrap();
            context.wrote::<Secret>(&secret);
        }
        std::future::ready(Ok(Action::Done))
    });
    assert_eq!(life.news().await.len(), 1);
    life.world.without_bookmarks();
    life.world.set_lag(Duration::from_secs(20));
    let a = ObjectKey::new("default", "a").unwrap();
    handle.queue().add(a.clone()).unwrap();
    assert_eq!(life.news().await.len(), 1);
    let began = Instant::now();
    handle.queue().add(a).unwrap();
    while life.news().await.is_empty() {}
    began.elapsed()
}

#[tokio::test(start_paused = true)]
async fn r33_a_key_is_parked_only_for_caches_that_can_have_what_it_wrote() {
    let second = Duration::from_secs(1);
    let parked = parked_for("one", "x").await;
    assert!(parked > 19 * second, "until the cache has it: {parked:?}");
    assert!(parked < 21 * second, "not for the other namespace, which hears nothing: {parked:?}");
    for (namespace, app) in [("three", "x"), ("one", "y")] {
        let parked = parked_for(namespace, app).await;
        assert!(parked < second, "no cache can have it: {namespace}, {app}, {parked:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn r33_what_never_comes_back_is_waited_for_until_the_deadline() {
    let life = Life::new();
    life.map("a", json!({}));
    let handle = life.run(life.controller(), move |context| {
        context.wrote_at(&core(MAPS, "ConfigMap"), Revision(1_000_000));
        // Nothing is waited for where nothing is read.
        context.wrote_at(&core("pods", "Pod"), Revision(2_000_000));
        std::future::ready(Ok(Action::Done))
    });
    assert_eq!(life.news().await.len(), 1);
    handle.queue().add(ObjectKey::new("default", "a").unwrap()).unwrap();
    sleep(Duration::from_secs(74)).await;
    assert_eq!(life.news().await, []);
    sleep(Duration::from_secs(1)).await;
    assert_eq!(life.news().await.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_stop_lets_finish_what_is_under_way_and_begins_nothing() {
    let life = Life::new();
    life.map("a", json!({}));
    life.map("b", json!({}));
    let finished = Arc::new(AtomicU32::new(0));
    let counts = finished.clone();
    let runner = life.controller().workers(1).reconcile(move |_| {
        let counts = counts.clone();
        async move {
            sleep(Duration::from_secs(10)).await;
            counts.fetch_add(1, Ordering::Relaxed);
            Ok(Action::Done)
        }
    });
    life.factory.start();
    let running = tokio::spawn(runner.run(life.stop.clone()));
    sleep(Duration::from_secs(1)).await;
    life.stop.cancel();
    timeout(Duration::from_secs(10), running).await.unwrap().unwrap().unwrap();
    assert_eq!(finished.load(Ordering::Relaxed), 1);
}

/// Two managers with one lease; the leader's link is cut while it reconciles.
#[tokio::test(start_paused = true)]
async fn only_the_leader_reconciles_and_a_fenced_one_is_cancelled() {
    let world = World::new();
    world.put(MAPS, "default/a", json!({}));
    let acting: Arc<Mutex<Vec<(&'static str, i32)>>> = Arc::default();
    let cut = Arc::new(std::sync::atomic::AtomicBool::new(false));
    let stop = CancellationToken::new();
    let start = |name: &'static str, cut: Option<Arc<std::sync::atomic::AtomicBool>>| {
        let never = Duration::from_secs(1_000_000);
        let link = move || {
            let gone = cut.as_ref().is_some_and(|it| it.load(Ordering::Relaxed));
            if gone { (never, never) } else { (Duration::ZERO, Duration::ZERO) }
        };
        let (factory, acting) = (world.factory(), acting.clone());
        let controller = Controller::<ConfigMap>::new(&factory, "maps").unwrap();
        let runner = controller.reconcile(move |it| {
            let acting = acting.clone();
            async move {
                struct Leaves(Arc<Mutex<Vec<(&'static str, i32)>>>, &'static str);
                impl Drop for Leaves {
                    fn drop(&mut self) {
                        self.0.lock().retain(|it| it.0 != self.1);
                    }
                }
                acting.lock().push((name, it.term().unwrap().transitions));
                let _leaves = Leaves(acting.clone(), name);
                sleep(Duration::from_secs(60)).await;
                Ok(Action::Done)
            }
        });
        let election = LeaderElection::new(world.client(Box::new(link)), "default", "lock", name);
        let manager = Manager::new(&factory).with(runner).elected(election);
        tokio::spawn(manager.run(stop.clone()))
    };
    let first = start("first", Some(cut.clone()));
    sleep(Duration::from_secs(5)).await;
    let second = start("second", None);
    sleep(Duration::from_secs(25)).await;
    assert_eq!(*acting.lock(), [("first", 0)]);
    cut.store(true, Ordering::Relaxed);
    sleep(Duration::from_secs(11)).await;
    assert_eq!(*acting.lock(), [], "it stopped before its lease ran out");
    sleep(Duration::from_secs(10)).await;
    assert_eq!(*acting.lock(), [("second", 1)]);
    cut.store(false, Ordering::Relaxed);
    stop.cancel();
    first.await.unwrap().unwrap();
    second.await.unwrap().unwrap();
    assert_eq!(*acting.lock(), []);
    assert_eq!(world.get("leases", "default/lock").unwrap()["spec"]["holderIdentity"], "");
}
