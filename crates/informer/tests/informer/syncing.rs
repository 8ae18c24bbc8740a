//! Has it synced, and if not, why: R24–R26.

use std::sync::Arc;
use std::time::Duration;

use masthead_core::Status;
use masthead_informer::{Factory, FactorySettings, Startup, SyncError, Timeouts};
use masthead_reflector::{Class, Failure, Phase};
use parking_lot::Mutex;
use tokio::time::{Instant, sleep};

use crate::world::{Thing, World};

fn forbidden() -> Failure {
    Status::of_response(403, b"").into()
}

#[tokio::test(start_paused = true)]
async fn r25_the_report_says_how_far_it_is_and_what_to_do() {
    let world = World::new(1);
    world.refuse(Some(Failure::Refused("nobody there".into())));
    let factory = Factory::new(world.clone());
    let informer = factory.informer::<Thing>().build().unwrap();
    let errors = Arc::new(Mutex::new(Vec::new()));
    factory.start();
    sleep(Duration::from_secs(5)).await;
    let report = factory.report();
    let it = &report.resources[0];
    assert_eq!(it.report.phase, Phase::Failed);
    assert_eq!(it.report.last_error.as_ref().unwrap().class, Class::Refused);
    assert!(it.report.attempts >= 2 && it.report.next_try.is_some());
    assert!(report.to_string().starts_with("things.test: failed"), "{report}");
    assert!(it.advice().is_some());
    errors.lock().push(it.report.errors.of(Class::Refused));
    assert!(errors.lock()[0] >= 2);
    world.refuse(None);
    informer.wait_for_sync().await.unwrap();
    assert!(factory.report().is_complete());
}

#[tokio::test(start_paused = true)]
async fn r26_a_wait_fails_at_once_where_the_server_says_no_and_the_reflector_goes_on() {
    let world = World::new(2);
    world.refuse(Some(forbidden()));
    let factory = Factory::new(world.clone());
    let informer = factory.informer::<Thing>().build().unwrap();
    factory.start();
    let began = Instant::now();
    let error = factory.wait_for_sync().await.unwrap_err();
    assert!(began.elapsed() < Duration::from_secs(1));
    assert!(matches!(error, SyncError::Refused { .. }), "{error}");
    assert!(error.to_string().contains("Grant list and watch"), "{error}");
    assert_eq!(error.report().missing().count(), 1);
    world.refuse(None);
    // Rights came later.
    while !informer.has_synced() {
        sleep(Duration::from_secs(1)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn r26_what_is_optional_may_be_missing_and_the_report_says_so() {
    let (good, bad) = (World::new(3), World::new(4));
    good.put("a/n", 1, "");
    bad.refuse(Some(forbidden()));
    let factory = Factory::new(Both { good, bad });
    let present = factory.informer::<Thing>().namespace("good").build().unwrap();
    let _missing = factory.informer::<Thing>().namespace("bad").optional().build().unwrap();
    factory.start();
    let report = factory.wait_for_sync().await.unwrap();
    assert!(!report.is_complete());
    assert_eq!(
        report.missing().map(|it| it.namespace.as_deref()).collect::<Vec<_>>(),
        [Some("bad")]
    );
    assert!(present.has_synced());
}

#[tokio::test(start_paused = true)]
async fn r26_a_wait_has_an_end_where_the_server_says_nothing() {
    let world = World::new(5);
    world.refuse(Some(Failure::Refused("nobody there".into())));
    let factory = Factory::new(world.clone());
    let short = Duration::from_secs(7);
    let _informer = factory.informer::<Thing>().sync_timeout(short).build().unwrap();
    factory.start();
    let began = Instant::now();
    let error = factory.wait_for_sync().await.unwrap_err();
    assert_eq!(began.elapsed().as_secs(), 7);
    let SyncError::TimedOut { after, what, .. } = &error else { panic!("{error}") };
    assert!(*after == short && what.contains("refused"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn r26_what_is_critical_comes_first() {
    let (good, bad) = (World::new(6), World::new(7));
    bad.refuse(Some(Failure::Refused("not yet".into())));
    let settings = FactorySettings { startup: Startup::After, ..FactorySettings::default() };
    let factory =
        Factory::with_settings(Both { good: good.clone(), bad: bad.clone() }, settings).unwrap();
    let critical = factory.informer::<Thing>().namespace("bad").critical().build().unwrap();
    let rest = factory.informer::<Thing>().namespace("good").build().unwrap();
    factory.start();
    sleep(Duration::from_secs(20)).await;
    assert_eq!((good.requests(), critical.has_synced()), ((0, 0), false));
    bad.refuse(None);
    factory.wait_for_sync().await.unwrap();
    assert!(critical.has_synced() && rest.has_synced());
}

#[tokio::test(start_paused = true)]
async fn the_error_callback_is_called_while_it_does_not_sync() {
    let world = World::new(8);
    world.refuse(Some(forbidden()));
    let factory = Factory::new(world);
    let told = Arc::new(Mutex::new(Vec::new()));
    let hears = told.clone();
    factory.on_error(move |it| hears.lock().push(it.report.last_error.as_ref().unwrap().class));
    let _informer = factory.informer::<Thing>().build().unwrap();
    factory.start();
    sleep(Duration::from_secs(10)).await;
    assert!(told.lock().len() >= 3 && told.lock().iter().all(|class| *class == Class::Forbidden));
}

#[tokio::test(start_paused = true)]
async fn a_stopped_factory_asks_nothing_and_goes_on_from_where_it_was() {
    let world = World::new(9);
    world.put("a/n", 1, "");
    let factory = Factory::new(world.clone());
    let informer = factory.informer::<Thing>().build().unwrap();
    factory.start();
    factory.wait_for_sync().await.unwrap();
    factory.stop().await;
    let (lists, watches) = world.requests();
    world.put("a/n", 2, "");
    sleep(Duration::from_secs(600)).await;
    assert_eq!(world.requests(), (lists, watches));
    assert_eq!(informer.lister().get_str("a/n").unwrap().decode().unwrap().value, 1);
    factory.start();
    factory.start();
    let revision = masthead_core::Revision(world.rv());
    informer.wait_for(revision, Duration::from_secs(60)).await.unwrap();
    assert_eq!(world.requests(), (lists, watches + 1), "a watch and no list");
}

#[test]
fn r27_a_factory_refuses_time_outs_that_are_out_of_order() {
    let timeouts = Timeouts { connect: Duration::from_secs(40), ..Timeouts::default() };
    let settings = FactorySettings { timeouts, ..FactorySettings::default() };
    assert!(Factory::with_settings(World::new(10), settings).is_err());
}

/// Two servers behind one connector: the namespace `bad` is on the second.
struct Both {
    good: World,
    bad: World,
}

impl masthead_informer::Connector for Both {
    fn source(
        &self,
        wanted: &masthead_informer::Wanted,
        pack: masthead_informer::Pack,
    ) -> Result<Arc<dyn masthead_reflector::Source>, masthead_upstream::SourceError> {
        let bad = wanted.namespace.as_deref() == Some("bad");
        let mut wanted = wanted.clone();
        wanted.namespace = None;
        (if bad { &self.bad } else { &self.good }).source(&wanted, pack)
    }

    fn memory(&self) -> masthead_reflector::ServerMemory {
        self.good.memory()
    }
}

#[tokio::test(start_paused = true)]
async fn r25_the_last_bytes_of_an_answer_are_counted() {
    let world = World::new(11);
    world.put("a/n", 1, "");
    world.set_streaming(false);
    let factory = Factory::new(world);
    let informer = factory.informer::<Thing>().build().unwrap();
    factory.start();
    informer.wait_for_sync().await.unwrap();
    // 100 for the refusal to stream, 100 for the page.
    assert_eq!((informer.reports()[0].bytes, informer.reports()[0].pages), (200, 1));
}
