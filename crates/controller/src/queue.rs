//! A work queue: keys that wait to be worked on, each of them once.
//!
//! ```
//! use masthead_controller::queue::{Priority, Settings, WorkQueue};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let queue = WorkQueue::new(Settings::default());
//! queue.add("team/web")?;
//! queue.add("team/web")?; // One key, once.
//! queue.add_with("team/db", Priority::High)?;
//!
//! let work = queue.next().await.expect("two keys wait");
//! assert_eq!(*work, "team/db");
//! queue.add("team/db")?; // Not before this one is done.
//! drop(work);
//! assert_eq!(queue.len(), 2);
//! # Ok(())
//! # }
//! ```
//!
//! [`Machine`] is the queue without a clock and without waiting; [`WorkQueue`] puts it behind one lock, on
//! tokio's clock.
//!
//! **Invariant:** never two workers on one key. What is asked for while a key is worked on is remembered,
//! and the key waits again when it is done, also if the worker panicked or was cancelled (R28).
//!
//! **Invariant:** nothing that was accepted is lost, but by [`WorkQueue::shutdown`] what is delayed and by
//! [`WorkQueue::abort`] what waits.
//!
//! **Invariant:** a wake-up is never lost. Whoever leaves a key to somebody else wakes somebody: who adds
//! one, who takes one and leaves others, also such as are delayed, who is done with one that was asked for
//! meanwhile, and who stops waiting.

mod figures;
mod limiter;
mod list;
mod machine;
mod metrics;
mod moment;
mod settings;
mod state;
mod turns;
mod work;

use std::fmt;
use std::future::poll_fn;
use std::hash::{BuildHasher, Hash};
use std::sync::Arc;
use std::task::{Poll, Waker};
use std::time::Duration;

use foldhash::fast::RandomState;
use masthead_core::planted;

pub use figures::{Figures, Histogram};
pub use limiter::{Exponential, Limiter, MaxOf, TokenBucket};
pub use machine::{Machine, Next, Taken};
pub use metrics::QueueMetrics;
pub use moment::Moment;
#[cfg(not(shuttle))]
pub(crate) use settings::QueueFunction;
pub use settings::{Add, Priority, Refused, Settings, Trigger};
pub use work::Work;

use crate::sync::{Clock, Mutex};
use state::State;
use work::Waiting;

/// What can be queued. Keys are cloned for those who work on them, so they should be cheap to clone.
pub trait Key: Clone + Eq + Hash + Send + 'static {}

impl<K: Clone + Eq + Hash + Send + 'static> Key for K {}

/// Everything in a queue at one moment.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Snapshot<K> {
    /// Keys that wait and for how long they have, by priority and class.
    pub waiting: Vec<(K, Duration)>,
    /// Keys that are delayed and for how long they will be, the shortest first.
    pub delayed: Vec<(K, Duration)>,
    /// Keys that are worked on and for how long they have been, the longest first.
    pub working: Vec<(K, Duration)>,
}

/// A queue that is shared. Clones are the same one.
pub struct WorkQueue<K>(Arc<Shared<K>>);

struct Shared<K> {
    clock: Clock,
    hasher: RandomState,
    state: Mutex<State<K>>,
}

impl<K: Key> WorkQueue<K> {
    /// An empty queue.
    pub fn new(settings: Settings<K>) -> Self {
        let machine = Machine::new(settings);
        let (clock, hasher) = (Clock::start(), machine.hasher());
        Self(Arc::new(Shared { clock, hasher, state: Mutex::new(State::new(machine)) }))
    }

    /// Has a key worked on.
    pub fn add(&self, key: K) -> Result<(), Refused> {
        self.add_with(key, Add::default())
    }

    /// The same, with a priority or a reason.
    pub fn add_with(&self, key: K, add: impl Into<Add>) -> Result<(), Refused> {
        let (add, hash) = (add.into(), self.0.hasher.hash_one(&key));
        self.adding(|machine| machine.add_hashed(key, hash, add, || self.0.clock.now()))
    }

    /// Has a key worked on after a while. Of several delays the one that ends first counts (R29).
    pub fn add_after(&self, key: K, delay: Duration) -> Result<(), Refused> {
        self.add_after_with(key, delay, Add { trigger: Trigger("delay"), ..Add::default() })
    }

    /// The same, with a priority or a reason.
    pub fn add_after_with(
        &self,
        key: K,
        delay: Duration,
        add: impl Into<Add>,
    ) -> Result<(), Refused> {
        let (add, now) = (add.into(), self.0.clock.now());
        self.adding(|machine| machine.add_after(key, delay, add, now))
    }

    /// Has a key that failed worked on once more, after as long as the limiter says. Only attempts that
    /// were due count as failures (R29).
    pub fn add_rate_limited(&self, key: K) -> Result<(), Refused> {
        let add = Add { trigger: Trigger("retry"), ..Add::default() };
        let now = self.0.clock.now();
        self.adding(|machine| machine.add_rate_limited(key, add, now))
    }

    /// Forgets a key's failures.
    pub fn forget(&self, key: &K) {
        let mut state = self.0.state.lock();
        state.machine.forget(key);
        let others = std::mem::take(&mut state.others);
        drop(state);
        others.into_iter().for_each(Waker::wake);
    }

    /// The next key to work on; none when the queue was shut down and nothing is left. The key is done when
    /// what is returned is dropped. To stop waiting is safe at any time.
    pub async fn next(&self) -> Option<Work<'_, K>> {
        match self.take() {
            Next::Work(taken) => Some(Work::new(taken, self)),
            Next::Wait(_) => Waiting::new(self).await,
            Next::Ended => None,
        }
    }

    /// Takes the next key. Who leaves others wakes somebody for them.
    fn take(&self) -> Next<K> {
        let now = self.0.clock.now();
        let mut state = self.0.state.lock();
        let next = state.machine.take(now);
        let wake = state.wake_worker();
        drop(state);
        wake.into_iter().for_each(Waker::wake);
        next
    }

    /// Is done with a key, does something more with the lock held, and wakes whom that concerns: the key may
    /// wait again, others may, and whoever waits for the end may have to be told.
    #[inline]
    fn finish<T>(&self, taken: &Taken<K>, more: impl FnOnce(&mut Machine<K>, Moment) -> T) -> T {
        let now = self.0.clock.now();
        let mut state = self.0.state.lock();
        state.machine.done(taken, now);
        let more = more(&mut state.machine, now);
        if state.nobody_waits() {
            return more;
        }
        let workers = match state.machine.is_shut_down() {
            true => state.all_workers(),
            false if planted::on("done_wakes_nobody") => Vec::new(),
            false => state.wake_worker().into_iter().collect(),
        };
        let nobody = planted::on("done_tells_no_others");
        let others = if nobody { Vec::new() } else { std::mem::take(&mut state.others) };
        drop(state);
        workers.into_iter().chain(others).for_each(Waker::wake);
        more
    }

    /// How many keys wait.
    pub fn len(&self) -> usize {
        self.0.state.lock().machine.len()
    }

    /// Returns `true` if no key waits.
    pub fn is_empty(&self) -> bool {
        self.0.state.lock().machine.is_empty()
    }

    /// How often a key has failed.
    pub fn requeues(&self, key: &K) -> u32 {
        self.0.state.lock().machine.requeues(key)
    }

    /// Takes nothing new from now on. What waits is still handed out, what is delayed is dropped (R31).
    pub fn shutdown(&self) {
        self.changing(Machine::shutdown);
    }

    /// The same, and waits until all of it is done.
    pub async fn shutdown_and_drain(&self) {
        self.shutdown();
        self.until(Machine::is_drained).await;
    }

    /// The same as [`WorkQueue::shutdown`], but what waits is dropped too. What is worked on goes on.
    pub fn abort(&self) {
        self.changing(Machine::abort);
    }

    /// Waits until there is room for one more key, or the queue is shut down.
    pub async fn room(&self) {
        self.until(|machine| machine.has_room() || machine.is_shut_down()).await;
    }

    /// Waits until it is shut down.
    pub async fn closed(&self) {
        self.until(Machine::is_shut_down).await;
    }

    /// Whether it was shut down.
    #[cfg(not(shuttle))]
    pub(crate) fn is_shut_down(&self) -> bool {
        self.0.state.lock().machine.is_shut_down()
    }

    /// Everything there is, as data.
    pub fn snapshot(&self) -> Snapshot<K> {
        self.0.state.lock().machine.snapshot(self.0.clock.now())
    }

    /// The figures.
    pub fn figures(&self) -> Figures {
        self.0.state.lock().machine.figures(self.0.clock.now())
    }

    /// Adds something, and wakes a worker if there is something new for it: a key, or an earlier moment to
    /// wake up at. To ask once more for what waits is no news.
    fn adding(
        &self,
        add: impl FnOnce(&mut Machine<K>) -> Result<(), Refused>,
    ) -> Result<(), Refused> {
        let mut state = self.0.state.lock();
        let before = (state.machine.len(), state.machine.next_due());
        let added = add(&mut state.machine);
        let news = before != (state.machine.len(), state.machine.next_due());
        let wake =
            if news && !planted::on("adds_wake_nobody") { state.wake_worker() } else { None };
        drop(state);
        wake.into_iter().for_each(Waker::wake);
        added
    }

    /// Changes something that anybody may wait for.
    fn changing(&self, change: impl FnOnce(&mut Machine<K>)) {
        let mut state = self.0.state.lock();
        change(&mut state.machine);
        let workers = state.all_workers();
        let others = std::mem::take(&mut state.others);
        drop(state);
        workers.into_iter().chain(others).for_each(Waker::wake);
    }

    async fn until(&self, holds: impl Fn(&Machine<K>) -> bool) {
        poll_fn(|cx| {
            let mut state = self.0.state.lock();
            if holds(&state.machine) {
                return Poll::Ready(());
            }
            state.others.retain(|other| !other.will_wake(cx.waker()));
            state.others.push(cx.waker().clone());
            Poll::Pending
        })
        .await;
    }
}

impl<K> Clone for WorkQueue<K> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<K> fmt::Debug for WorkQueue<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WorkQueue").finish_non_exhaustive()
    }
}
