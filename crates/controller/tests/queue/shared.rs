//! The shared queue on tokio's paused clock.

use std::sync::Arc;
use std::time::Duration;

use masthead_controller::queue::{
    Exponential, Priority, QueueMetrics, Refused, Settings, Trigger, Work, WorkQueue,
};
use masthead_core::ObjectKey;
use tokio::time::{Instant, sleep, timeout};

fn queue() -> WorkQueue<&'static str> {
    WorkQueue::new(Settings::default())
}

async fn now_or_never<K: masthead_controller::queue::Key>(
    queue: &WorkQueue<K>,
) -> Option<Work<'_, K>> {
    timeout(Duration::ZERO, queue.next()).await.ok().flatten()
}

#[tokio::test(start_paused = true)]
async fn r28_a_key_is_handed_out_once_and_again_when_it_was_asked_for_meanwhile() {
    let queue = queue();
    queue.add("a").unwrap();
    queue.add("a").unwrap();
    let work = queue.next().await.unwrap();
    assert_eq!((*work.key(), work.trigger(), queue.len()), ("a", Trigger("add"), 0));
    queue.add("a").unwrap();
    queue.add("a").unwrap();
    assert!(now_or_never(&queue).await.is_none(), "never two workers on a key");
    drop(work);
    drop(queue.next().await.unwrap());
    assert!(now_or_never(&queue).await.is_none());
}

#[tokio::test(start_paused = true)]
async fn r28_who_is_done_and_takes_the_next_is_done_also_if_it_has_to_wait_or_stops_waiting() {
    let queue = queue();
    queue.add("a").unwrap();
    queue.add("b").unwrap();
    let work = queue.next().await.unwrap().next().await.unwrap();
    assert_eq!((*work.key(), queue.snapshot().working.len()), ("b", 1));
    queue.add("b").unwrap();
    let work = work.next().await.unwrap();
    assert_eq!((*work.key(), queue.len()), ("b", 0), "it was asked for meanwhile");
    assert!(timeout(Duration::from_secs(1), work.next()).await.is_err(), "nothing is left");
    assert!(queue.snapshot().working.is_empty());
    queue.add("b").unwrap();
    let work = queue.next().await.unwrap();
    queue.shutdown();
    assert!(work.next().await.is_none());
    queue.shutdown_and_drain().await;
}

#[tokio::test(start_paused = true)]
async fn r28_a_key_is_done_when_its_worker_panics_or_is_cancelled() {
    let queue = queue();
    queue.add("a").unwrap();
    let mine = queue.clone();
    let panics = tokio::spawn(async move {
        let _work = mine.next().await;
        // A panic that is not printed.
        std::panic::resume_unwind(Box::new("as it was told to"));
    });
    assert!(panics.await.unwrap_err().is_panic());
    queue.add("a").unwrap();
    let mine = queue.clone();
    let forever = async move {
        let _work = mine.next().await;
        std::future::pending::<()>().await;
    };
    assert!(timeout(Duration::from_secs(1), forever).await.is_err());
    assert!(queue.snapshot().working.is_empty());
    queue.add("a").unwrap();
    assert!(now_or_never(&queue).await.is_some());
}

#[tokio::test(start_paused = true)]
async fn r29_a_waiting_worker_wakes_for_what_is_delayed_and_for_what_is_delayed_less() {
    let queue = queue();
    let began = Instant::now();
    let mine = queue.clone();
    let worker = tokio::spawn(async move {
        let mut seen = Vec::new();
        while let Some(work) = mine.next().await {
            seen.push((*work.key(), began.elapsed().as_millis()));
        }
        seen
    });
    queue.add_after("late", Duration::from_millis(500)).unwrap();
    sleep(Duration::from_millis(10)).await;
    queue.add_after("early", Duration::from_millis(90)).unwrap();
    queue.add_after("late", Duration::from_millis(190)).unwrap();
    queue.add_after("early", Duration::from_millis(900)).unwrap();
    sleep(Duration::from_secs(2)).await;
    queue.shutdown();
    assert_eq!(worker.await.unwrap(), [("early", 100), ("late", 200)]);
}

/// Two workers that wait, and two keys that are delayed: the one who takes the first has the only timer.
async fn when_two_idle_workers_begin() -> Vec<(&'static str, u128)> {
    let queue = queue();
    let began = Instant::now();
    let worker = || {
        let queue = queue.clone();
        // Tasks of their own: nobody is looked after because another one is.
        tokio::spawn(async move {
            let work = queue.next().await.unwrap();
            let at = began.elapsed().as_millis();
            sleep(Duration::from_secs(1)).await;
            (*work.key(), at)
        })
    };
    let workers = [worker(), worker()];
    sleep(Duration::from_millis(1)).await;
    queue.add_after("first", Duration::from_millis(99)).unwrap();
    queue.add_after("second", Duration::from_millis(199)).unwrap();
    let mut begins = Vec::new();
    for worker in workers {
        begins.push(worker.await.unwrap());
    }
    begins.sort_unstable();
    begins
}

#[tokio::test(start_paused = true)]
async fn r29_what_is_delayed_is_not_late_while_a_worker_has_nothing_to_do() {
    assert_eq!(when_two_idle_workers_begin().await, [("first", 100), ("second", 200)]);
}

#[cfg(planted)]
#[test]
fn planted_lateness_is_caught() {
    use masthead_core::planted;
    let late = planted::with("delayed_left_to_nobody", || {
        let runtime = tokio::runtime::Builder::new_current_thread();
        let runtime = { runtime }.enable_time().start_paused(true).build().unwrap();
        let begins = runtime.block_on(when_two_idle_workers_begin());
        assert!(planted::reached());
        begins
    });
    assert_ne!(late, [("first", 100), ("second", 200)]);
}

/// The one that was woken for an earlier moment, and alone knows of it, goes away.
#[tokio::test(start_paused = true)]
async fn a_worker_that_stops_waiting_leaves_its_wake_up_to_another() {
    let queue = queue();
    let mine = queue.clone();
    let first = tokio::spawn(async move { mine.next().await.map(|work| *work) });
    sleep(Duration::from_millis(1)).await;
    let mine = queue.clone();
    let second = tokio::spawn(async move { mine.next().await.map(|work| *work) });
    sleep(Duration::from_millis(1)).await;
    queue.add_after("a", Duration::from_millis(100)).unwrap();
    sleep(Duration::from_millis(1)).await;
    first.abort();
    let seen = timeout(Duration::from_millis(200), second).await.unwrap().unwrap();
    assert_eq!(seen, Some("a"));
}

#[tokio::test(start_paused = true)]
async fn r29_backoff_is_exact_and_early_attempts_do_not_count() {
    let limiter = Exponential { base: Duration::from_secs(1), max: Duration::from_secs(100) };
    let queue: WorkQueue<&str> = WorkQueue::new(Settings::default().limiter(limiter));
    let began = Instant::now();
    queue.add("a").unwrap();
    for (failures, second) in [(0, 0), (1, 1), (2, 3), (3, 7)] {
        let work = queue.next().await.unwrap();
        assert_eq!((work.failures(), began.elapsed().as_secs()), (failures, second));
        queue.add_rate_limited(*work).unwrap();
    }
    assert_eq!(queue.requeues(&"a"), 4);
    // Events that come while it is backing off are worked on, and change nothing about the backoff.
    for _ in 0..5 {
        queue.add("a").unwrap();
        let work = queue.next().await.unwrap();
        assert_eq!(began.elapsed().as_secs(), 7);
        queue.add_rate_limited(*work).unwrap();
    }
    assert_eq!(queue.requeues(&"a"), 4);
    let work = queue.next().await.unwrap();
    assert_eq!((began.elapsed().as_secs(), work.trigger()), (15, Trigger("retry")));
    queue.forget(&work);
    assert_eq!(queue.requeues(&"a"), 0);
}

#[tokio::test(start_paused = true)]
async fn r30_priorities_go_first_and_low_ones_still_have_their_turns() {
    let queue: WorkQueue<u32> = WorkQueue::new(Settings::default().aging(3));
    for key in 0..4 {
        queue.add_with(100 + key, Priority::Low).unwrap();
    }
    for key in 0..12 {
        queue.add(key).unwrap();
    }
    let mut order = Vec::new();
    while let Some(work) = now_or_never(&queue).await {
        order.push(*work);
    }
    assert_eq!(order, [0, 1, 2, 100, 3, 4, 5, 101, 6, 7, 8, 102, 9, 10, 11, 103]);
}

#[tokio::test(start_paused = true)]
async fn r30_namespaces_have_fair_shares() {
    let key = |namespace: &str, name: u32| ObjectKey::new(namespace, &format!("n{name}")).unwrap();
    let queue = WorkQueue::new(Settings::default().fair_by_namespace());
    for name in 0..100 {
        queue.add(key("large", name)).unwrap();
    }
    queue.add(key("small", 0)).unwrap();
    queue.add(key("small", 1)).unwrap();
    let mut order = Vec::new();
    for _ in 0..5 {
        order.push(queue.next().await.unwrap().namespace().to_owned());
    }
    assert_eq!(order, ["large", "small", "large", "small", "large"]);
}

#[tokio::test(start_paused = true)]
async fn r31_a_shut_down_queue_hands_out_what_waits_and_drains() {
    let queue = queue();
    queue.add("working").unwrap();
    let work = queue.next().await.unwrap();
    queue.add("waiting").unwrap();
    queue.add("working").unwrap();
    queue.add_after("delayed", Duration::from_secs(1)).unwrap();
    let mine = queue.clone();
    let drained = tokio::spawn(async move { mine.shutdown_and_drain().await });
    sleep(Duration::from_secs(2)).await;
    assert_eq!(queue.add("new"), Err(Refused::ShutDown));
    assert_eq!(*queue.next().await.unwrap(), "waiting");
    let mine = queue.clone();
    // What is worked on is to be worked on again, so that this one has to wait.
    let last = tokio::spawn(async move { mine.next().await.map(|work| *work) });
    sleep(Duration::from_secs(1)).await;
    assert!(!drained.is_finished() && !last.is_finished());
    drop(work);
    assert_eq!(last.await.unwrap(), Some("working"));
    drained.await.unwrap();
    assert!(queue.next().await.is_none());
}

#[tokio::test(start_paused = true)]
async fn r31_an_aborted_queue_drops_what_waits() {
    let queue = queue();
    queue.add("working").unwrap();
    let work = queue.next().await.unwrap();
    queue.add("working").unwrap();
    queue.add("waiting").unwrap();
    queue.abort();
    assert!(queue.next().await.is_none());
    drop(work);
    assert!(queue.next().await.is_none());
    queue.shutdown_and_drain().await;
}

#[tokio::test(start_paused = true)]
async fn a_full_queue_says_so_and_has_room_again() {
    let queue: WorkQueue<u32> = WorkQueue::new(Settings::default().capacity(2));
    queue.add(1).unwrap();
    queue.add_after(2, Duration::from_secs(9)).unwrap();
    assert_eq!(queue.add(3), Err(Refused::Full { capacity: 2 }));
    assert_eq!(queue.add(1), Ok(()), "what it knows it still takes");
    let mine = queue.clone();
    let room = tokio::spawn(async move { mine.room().await });
    sleep(Duration::from_secs(1)).await;
    assert!(!room.is_finished());
    let work = queue.next().await.unwrap();
    queue.add_rate_limited(*work).unwrap();
    drop(work);
    drop(queue.next().await.unwrap());
    // The first is there only for its failure now, which is forgotten for another.
    room.await.unwrap();
    queue.add(3).unwrap();
    assert_eq!(queue.requeues(&1), 0);
    let figures = queue.figures();
    assert_eq!((figures.refused, figures.forgotten), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn r32_figures_have_their_usual_names() {
    let queue = Arc::new(queue());
    queue.add("a").unwrap();
    sleep(Duration::from_millis(50)).await;
    let work = queue.next().await.unwrap();
    queue.add("a").unwrap();
    queue.add("b").unwrap();
    queue.add_rate_limited("c").unwrap();
    sleep(Duration::from_secs(2)).await;
    let metrics = QueueMetrics::default();
    metrics.add("things", &queue);
    let mut registry = prometheus_client::registry::Registry::default();
    registry.register_collector(Box::new(metrics));
    let text = || {
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
        text
    };
    let running = text();
    for line in [
        r#"workqueue_depth{name="things"} 1"#,
        r#"workqueue_delayed{name="things"} 1"#,
        r#"workqueue_adds_total{name="things"} 3"#,
        r#"workqueue_retries_total{name="things"} 1"#,
        r#"workqueue_queue_duration_seconds_count{name="things"} 1"#,
        r#"workqueue_queue_duration_seconds_bucket{le="0.01",name="things"} 0"#,
        r#"workqueue_queue_duration_seconds_bucket{le="0.1",name="things"} 1"#,
        r#"workqueue_unfinished_work_seconds{name="things"} 2"#,
        r#"workqueue_longest_running_processor_seconds{name="things"} 2"#,
        r#"workqueue_work_duration_seconds_count{name="things"} 0"#,
    ] {
        assert!(running.contains(line), "{line} is not in\n{running}");
    }
    drop(work);
    assert!(text().contains(r#"workqueue_work_duration_seconds_sum{name="things"} 2."#));
}
