//! Those who reconcile.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use masthead_core::{ObjectKey, Panic, Revision, contain_future, planted};
use masthead_informer::Informer;
use serde::de::DeserializeOwned;
use tokio::time::{Instant, timeout};
use tracing::{Instrument, info, info_span, warn};

use super::metrics::Counts;
use super::panics::{UserCalls, UserFunction};
use super::quarantine::Quarantine;
use super::reconcile::{Reads, Write, Writes, caught_up};
use super::{Action, Context, ReconcileError};
use crate::leader::Leadership;
use crate::limits::PARKED_MAX;
use crate::queue::{Add, Trigger, Work, WorkQueue};

/// What became of a reconcile.
#[derive(Debug)]
pub(super) enum Outcome {
    Done,
    After(Duration),
    Failed(String),
    Terminal(String),
    Panicked,
    TimedOut,
    /// The lease ran out before it was done.
    Fenced,
}

impl Outcome {
    fn of(result: Result<Action, ReconcileError>) -> Self {
        match result {
            Ok(Action::Done) => Self::Done,
            Ok(Action::RequeueAfter(delay)) => Self::After(delay),
            Err(ReconcileError::Retry(error)) => Self::Failed(error.to_string()),
            Err(ReconcileError::Terminal(error)) => Self::Terminal(error.to_string()),
        }
    }
}

/// What the workers of a controller share.
pub(super) struct Shared<K, R> {
    pub(super) name: String,
    pub(super) informer: Informer<K>,
    pub(super) reads: Arc<[Arc<dyn Reads>]>,
    pub(super) reconcile: R,
    pub(super) queue: WorkQueue<ObjectKey>,
    pub(super) quarantine: Arc<Quarantine>,
    pub(super) counts: Arc<Counts>,
    pub(super) calls: UserCalls,
    pub(super) timeout: Duration,
    pub(super) leadership: Leadership,
}

impl<K, R, F> Shared<K, R>
where
    K: DeserializeOwned + Send + Sync + 'static,
    R: Fn(Context<K>) -> F + Send + Sync,
    F: Future<Output = Result<Action, ReconcileError>> + Send,
{
    /// One worker, until the queue ends. A key that wrote is parked: it stays in work, and so out of the
    /// queue, until the caches have what it wrote; the worker goes on with others meanwhile.
    pub(super) async fn work(&self) {
        let mut parked = FuturesUnordered::new();
        let mut done = None;
        loop {
            let work = tokio::select! {
                Some(()) = parked.next(), if !parked.is_empty() => continue,
                work = self.next(done.take()) => work,
            };
            let Some(work) = work else { return };
            assert!(!planted::on("worker_panics"), "as planted");
            let writes = Writes::default();
            {
                let mut attempt = pin!(self.attempt(&work, &writes));
                loop {
                    tokio::select! {
                        () = &mut attempt => break,
                        Some(()) = parked.next(), if !parked.is_empty() => {}
                    }
                }
            }
            let writes = std::mem::take(&mut *writes.lock());
            if writes.is_empty() {
                done = Some(work);
            } else {
                parked.push(self.park(work, writes));
            }
        }
    }

    /// The next key, while it leads. It is done with the one before.
    async fn next<'a>(
        &'a self,
        mut done: Option<Work<'a, ObjectKey>>,
    ) -> Option<Work<'a, ObjectKey>> {
        loop {
            // Nobody else waits for a key because this one waits for the lease.
            let closed = async {
                done = None;
                self.queue.closed().await;
            };
            tokio::select! {
                // Who leads does not wait for the end here, and so is not woken whenever it could be.
                biased;
                () = self.leadership.gained() => {}
                () = closed => {}
            }
            let work = match done.take() {
                Some(done) => done.next().await?,
                None => self.queue.next().await?,
            };
            if self.leadership.is_leading() {
                return Some(work);
            }
            // The lease ran out while there was nothing to do.
            let _ = self.queue.add_with(work.key().clone(), again(&work));
        }
    }

    async fn park(&self, work: Work<'_, ObjectKey>, writes: Vec<Write>) {
        if !caught_up(self.reads.clone(), writes, PARKED_MAX).await {
            self.counts.parked_too_long();
            let (controller, key) = (&self.name, work.key());
            warn!(controller, %key, "what it wrote did not come back in time");
        }
    }

    async fn attempt(&self, work: &Work<'_, ObjectKey>, writes: &Writes) {
        let key = work.key();
        let object = self.informer.get(key);
        let revision = object.as_ref().map(masthead_informer::Entry::revision);
        if self.quarantine.holds(key, revision) {
            return;
        }
        let (trigger, attempt) = (work.trigger(), work.failures() + 1);
        let span = info_span!("reconcile", controller = self.name, %key, %trigger, attempt);
        let (reads, writes) = (self.reads.clone(), writes.clone());
        let written = writes.clone();
        let term = self.leadership.term();
        let context = Context { key: key.clone(), object, trigger, attempt, term, reads, writes };
        async {
            let began = Instant::now();
            self.counts.begin();
            let outcome = self.outcome(key, context).await;
            self.counts.end(&outcome, began.elapsed());
            let newest =
                written.lock().iter().filter(|it| it.cache == 0).map(|it| it.revision).max();
            self.follow_up(work, outcome, revision.max(newest));
        }
        .instrument(span)
        .await;
    }

    async fn outcome(&self, key: &ObjectKey, context: Context<K>) -> Outcome {
        let term = context.term;
        // All that is code of the user: what makes the future, the future, its destructor, the text of its error.
        let call = async { Outcome::of((self.reconcile)(context).await) };
        let report = |panic: &Panic| self.calls.report(UserFunction::Reconcile, Some(key), panic);
        let call = contain_future(call, report);
        let outcome = tokio::select! {
            biased;
            () = self.leadership.end_of(term) => return Outcome::Fenced,
            outcome = timeout(self.timeout, call) => outcome,
        };
        match outcome {
            Err(_) => Outcome::TimedOut,
            Ok(Ok(outcome)) => outcome,
            Ok(Err(panic)) => {
                report(&panic);
                Outcome::Panicked
            }
        }
    }

    /// What follows. A queue that was shut down takes nothing, and nothing has to follow then.
    fn follow_up(&self, work: &Work<'_, ObjectKey>, outcome: Outcome, judged: Option<Revision>) {
        let key = work.key();
        match &outcome {
            Outcome::Failed(error) => warn!(error, "failed: will be tried again"),
            Outcome::Panicked => warn!("panicked: will be tried again"),
            Outcome::TimedOut => warn!(after = ?self.timeout, "timed out: will be tried again"),
            Outcome::Terminal(error) => warn!(error, "failed: quarantined until it changes"),
            Outcome::Fenced => info!("cancelled: no longer the leader"),
            Outcome::Done | Outcome::After(_) => {}
        }
        let _ = match outcome {
            Outcome::Failed(_) | Outcome::Panicked | Outcome::TimedOut => {
                self.queue.add_rate_limited(key.clone())
            }
            Outcome::Fenced => self.queue.add_with(key.clone(), again(work)),
            Outcome::Done => {
                self.queue.forget(key);
                Ok(())
            }
            Outcome::After(delay) => {
                self.queue.forget(key);
                let add = Add { trigger: Trigger("requeue"), ..Add::default() };
                self.queue.add_after_with(key.clone(), delay, add)
            }
            Outcome::Terminal(error) => {
                self.queue.forget(key);
                self.quarantine.hold(key, error, judged);
                Ok(())
            }
        };
    }
}

fn again(work: &Work<'_, ObjectKey>) -> Add {
    Add { trigger: work.trigger(), ..Add::default() }
}
