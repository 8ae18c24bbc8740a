//! The shared queue under many interleavings, with the production code: `--cfg shuttle` swaps its lock for
//! one whose every step is a point to switch threads.
#![cfg(shuttle)]
#![allow(clippy::unwrap_used, reason = "helpers of tests fail like tests")]

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::{Context, Waker};

use masthead_controller::queue::{Settings, WorkQueue};
use shuttle::future::block_on;
use shuttle::thread;

type Queue = WorkQueue<usize>;

/// Two random schedulers: one that switches anywhere, one that looks for bugs of few switches.
fn everywhere(body: impl Fn() + Send + Sync + Clone + 'static) {
    const SCHEDULES: usize = 2_000;
    shuttle::check_random(body.clone(), SCHEDULES);
    shuttle::check_pct(body, SCHEDULES, 3);
}

fn queue() -> Queue {
    WorkQueue::new(Settings::default())
}

/// Works until the queue ends, being done with a key before it asks for the next one or together with
/// that. `busy` says who works on which key.
fn work(queue: &Queue, together: bool, busy: &[AtomicBool], done: &[AtomicUsize]) {
    let mut next = block_on(queue.next());
    while let Some(work) = next {
        assert!(!busy[*work].swap(true, Ordering::SeqCst), "two workers on {}", *work);
        thread::yield_now();
        done[*work].fetch_add(1, Ordering::SeqCst);
        assert!(busy[*work].swap(false, Ordering::SeqCst));
        next = if together {
            block_on(work.next())
        } else {
            drop(work);
            block_on(queue.next())
        };
    }
}

/// Every add is followed by work that begins after it, and never two workers have one key.
fn nothing_is_lost_and_nothing_done_twice_at_once() {
    let queue = queue();
    let busy: Arc<[AtomicBool; 2]> = Arc::default();
    let done: Arc<[AtomicUsize; 2]> = Arc::default();
    let workers: Vec<_> = (0..2)
        .map(|at| {
            let (queue, busy, done) = (queue.clone(), busy.clone(), done.clone());
            thread::spawn(move || work(&queue, at == 0, &*busy, &*done))
        })
        .collect();
    for key in [0, 1, 0] {
        let before = done[key].load(Ordering::SeqCst);
        queue.add(key).unwrap();
        thread::yield_now();
        // At most one that was under way, and one that began after.
        assert!(done[key].load(Ordering::SeqCst) <= before + 2);
    }
    block_on(queue.shutdown_and_drain());
    assert!(done.iter().all(|done| done.load(Ordering::SeqCst) >= 1), "{done:?}");
    for worker in workers {
        worker.join().unwrap();
    }
}

/// One that is woken and goes away at the same time wakes another: otherwise shuttle sees a deadlock.
fn no_wake_up_is_lost_with_a_cancelled_worker() {
    let queue = queue();
    let mine = queue.clone();
    let cancelled = thread::spawn(move || {
        let mut next = pin!(mine.next());
        let mut cx = Context::from_waker(Waker::noop());
        if next.as_mut().poll(&mut cx).is_ready() {
            // It had the key; somebody has to bring it back.
            mine.add(0).unwrap();
        }
        thread::yield_now();
    });
    let mine = queue.clone();
    let worker = thread::spawn(move || block_on(mine.next()).map(|work| *work));
    queue.add(0).unwrap();
    cancelled.join().unwrap();
    assert_eq!(worker.join().unwrap(), Some(0));
}

/// A key that was asked for while it was worked on, by one who then goes away, comes to who waits.
fn what_waits_again_is_seen() {
    let queue = queue();
    queue.add(0).unwrap();
    let work = block_on(queue.next());
    let mine = queue.clone();
    let waiter = thread::spawn(move || block_on(mine.next()).map(|work| *work));
    queue.add(0).unwrap();
    drop(work);
    assert_eq!(waiter.join().unwrap(), Some(0));
}

/// The same if that one takes the next key in the same step: each of the two gets one.
fn what_waits_again_is_seen_when_its_worker_takes_another() {
    let queue = queue();
    queue.add(0).unwrap();
    let work = block_on(queue.next());
    let mine = queue.clone();
    let waiter = thread::spawn(move || block_on(mine.next()).map(|work| *work));
    queue.add(1).unwrap();
    queue.add(0).unwrap();
    let next = work.and_then(|work| block_on(work.next()));
    let keys = [next.map(|work| *work), waiter.join().unwrap()];
    assert!(keys == [Some(0), Some(1)] || keys == [Some(1), Some(0)], "{keys:?}");
}

/// All who wait hear that it is over.
fn the_end_reaches_everybody() {
    let queue = queue();
    let waiters: Vec<_> = (0..2)
        .map(|_| {
            let queue = queue.clone();
            thread::spawn(move || block_on(queue.next()).is_none())
        })
        .collect();
    queue.shutdown();
    for waiter in waiters {
        assert!(waiter.join().unwrap());
    }
}

/// Who waits for room gets it when a key is done.
fn room_is_seen() {
    let queue: Queue = WorkQueue::new(Settings::default().capacity(1));
    queue.add(0).unwrap();
    let mine = queue.clone();
    let producer = thread::spawn(move || {
        block_on(mine.room());
        mine.add(1).unwrap();
    });
    assert_eq!(block_on(queue.next()).map(|work| *work), Some(0));
    assert_eq!(block_on(queue.next()).map(|work| *work), Some(1));
    producer.join().unwrap();
}

macro_rules! under_all_interleavings {
    ($($name:ident),* $(,)?) => {
        mod interleaved {
            $(#[test]
            fn $name() {
                super::everywhere(super::$name);
            })*
        }
    };
}

under_all_interleavings! {
    nothing_is_lost_and_nothing_done_twice_at_once,
    no_wake_up_is_lost_with_a_cancelled_worker,
    what_waits_again_is_seen,
    what_waits_again_is_seen_when_its_worker_takes_another,
    the_end_reaches_everybody,
    room_is_seen,
}

/// Planted races are found.
#[cfg(planted)]
#[test]
fn planted_races_are_caught() {
    use masthead_core::planted;
    let races: [(&'static str, fn()); 5] = [
        ("cancelled_worker_keeps_its_wakeup", no_wake_up_is_lost_with_a_cancelled_worker),
        ("done_wakes_nobody", what_waits_again_is_seen),
        ("done_tells_no_others", nothing_is_lost_and_nothing_done_twice_at_once),
        ("adds_wake_nobody", room_is_seen),
        ("two_workers_on_a_key", nothing_is_lost_and_nothing_done_twice_at_once),
    ];
    for (bug, body) in races {
        let hook = std::panic::take_hook();
        std::panic::set_hook(Box::new(|_| {}));
        let caught = planted::with(bug, || {
            let caught = std::panic::catch_unwind(|| everywhere(body));
            assert!(planted::reached(), "{bug}: its line was never executed");
            caught
        });
        std::panic::set_hook(hook);
        let panic = caught.expect_err(bug);
        let text = panic.downcast_ref::<String>().map_or("", String::as_str);
        println!("{bug}: caught: {}", text.lines().next().unwrap_or_default());
    }
}
