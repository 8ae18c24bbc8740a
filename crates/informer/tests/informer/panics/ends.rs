//! Tasks that end although nothing told them to.

use super::*;

#[tokio::test(start_paused = true)]
async fn a_handler_whose_destructor_panics_can_be_removed() {
    struct Bomb;
    impl Drop for Bomb {
        fn drop(&mut self) {
            panic!("bomb");
        }
    }
    let (logs, _guard) = Logs::begin();
    let world = World::new(9);
    let factory = Factory::new(world.clone());
    let informer = factory.informer::<Thing>().build().unwrap();
    let bomb = Bomb;
    let handler = move |_: Event<Thing>| {
        let _ = &bomb;
        async {}
    };
    let options = HandlerOptions::default().named("mine");
    let handle = informer.add_handler(&options, handler).unwrap();
    factory.start();
    informer.wait_for_sync().await.unwrap();
    handle.remove();
    sleep(Duration::from_secs(1)).await;
    assert_logged(&logs, &["destructor panicked", "handler mine of things.test", "bomb"], 1);
    assert_well(&factory);
}

/// A bug that ends what fills the cache: here, of a destructor that the cache calls.
async fn reflector_panics() {
    let (logs, _guard) = Logs::begin();
    let world = World::new(10);
    let factory = Factory::new(world.clone());
    let told = Arc::new(Mutex::new(Vec::new()));
    let hears = told.clone();
    factory.on_error(move |it| hears.lock().push(it.to_string()));
    let history = HistoryLimits { changes: 0, ..HistoryLimits::default() };
    let builder = factory.informer::<Fussy>().representation(Representation::Typed);
    let informer = builder.history(history).build().unwrap();
    world.put("x/a", 666, "");
    factory.start();
    factory.wait_for_sync().await.unwrap();
    assert_well(&factory);
    DROPS.with(|drops| drops.store(666, Ordering::Relaxed));
    let mut ended = None;
    for n in 1..100 {
        world.put("x/a", n, "");
        ended = timeout(Duration::from_secs(1), factory.task_ended()).await.ok();
        if ended.is_some() {
            break;
        }
    }
    DROPS.with(|drops| drops.store(0, Ordering::Relaxed));
    let ended = ended.expect("the old state is dropped some time");
    let text = "reflector of things.test ended unexpectedly: it panicked: dropped 666";
    assert_eq!(ended.to_string(), text);
    assert_logged(&logs, &["task=reflector of things.test", "it panicked: dropped 666"], 1);
    let report = factory.report();
    assert!(!report.is_complete() && report.to_string().contains(text), "{report}");
    let it = &report.resources[0];
    assert_eq!(it.report.ended.as_deref(), Some("it panicked: dropped 666"));
    assert!(it.to_string().contains("Restart the program"), "{it}");
    let error = factory.wait_for_sync().await.unwrap_err();
    assert!(matches!(&error, SyncError::Ended { what, .. } if what.contains("666")), "{error}");
    sleep(Duration::from_secs(1)).await;
    assert!(told.lock().last().is_some_and(|it| it.contains("666")), "the callback is called");
    assert_metric(&factory, "ended", "", 1);
    assert!(metrics(&factory).contains("masthead_informer_tasks_ended 1"));
    // What is left can be read, stopped and started, and stays as it is.
    assert!(!informer.lister().is_empty());
    factory.stop().await;
    factory.start();
    sleep(Duration::from_secs(5)).await;
    assert!(!factory.report().is_complete());
}

#[test]
fn a_reflector_that_panics_is_an_error_that_is_seen() {
    on_paused_clock(reflector_panics());
}

/// Tests of the tests, and of what only a planted bug can bring about.
#[cfg(planted)]
mod planted {
    use std::panic::{AssertUnwindSafe, catch_unwind};

    use masthead_core::planted;

    use super::*;

    #[test]
    fn planted_a_filter_panic_that_hides_the_object_is_caught() {
        planted::with("filter_panic_hides_the_object", || {
            let caught = catch_unwind(|| on_paused_clock(filter_panics(Panics::Every))).is_err();
            assert!(planted::reached() && caught);
        });
    }

    async fn handler_ends() {
        let (logs, _guard) = Logs::begin();
        let world = World::new(13);
        let factory = Factory::new(world.clone());
        let informer = factory.informer::<Thing>().build().unwrap();
        let handler = |_: Event<Thing>| async { panic!("once") };
        let options = HandlerOptions::default().named("mine");
        let handle = informer.add_handler(&options, handler).unwrap();
        world.put("x/a", 1, "");
        factory.start();
        let ended = timeout(Duration::from_secs(60), factory.task_ended()).await.unwrap();
        assert_eq!(&*ended.task, "handler mine of things.test");
        assert_eq!(handle.report().ended, Some(ended.reason.clone()));
        assert_eq!(factory.report().ended, [ended]);
        assert_logged(&logs, &["task=handler mine of things.test", "it returned before"], 1);
    }

    #[test]
    fn planted_a_handler_that_ends_is_an_error_that_is_seen() {
        planted::with("panic_ends_handler", || on_paused_clock(handler_ends()));
    }

    async fn housekeeping_panics() {
        let (logs, _guard) = Logs::begin();
        let factory = Factory::new(World::new(14));
        factory.start();
        let ended = timeout(Duration::from_secs(60), factory.task_ended()).await.unwrap();
        let text = "housekeeping ended unexpectedly: it panicked: as planted";
        assert_eq!(ended.to_string(), text);
        assert!(factory.report().to_string().contains(text));
        assert_logged(&logs, &["task=housekeeping", "as planted"], 1);
    }

    #[test]
    fn planted_housekeeping_that_panics_is_an_error_that_is_seen() {
        planted::with("housekeeping_panics", || on_paused_clock(housekeeping_panics()));
    }

    #[test]
    fn planted_an_end_that_is_not_noted_is_caught() {
        planted::with("task_end_not_noted", || {
            let test = || on_paused_clock(reflector_panics());
            let caught = catch_unwind(AssertUnwindSafe(test)).is_err();
            assert!(planted::reached() && caught);
        });
    }
}
