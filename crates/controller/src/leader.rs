//! One of several acts: leader election by a Lease.

use std::fmt;
use std::future::poll_fn;
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};
use kube_client::api::PostParams;
use kube_client::{Api, Client, Error};
use masthead_core::planted;
use tokio::sync::watch;
use tokio::time::{Instant, sleep, sleep_until, timeout};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use crate::limits::{LEASE_DURATION, RENEW_DEADLINE, RETRY_PERIOD};

/// A time for which somebody leads.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Term {
    /// How often the lease had changed hands when it was taken: of two leaders the later has the larger
    /// number, so it can be given to those who have to tell them apart.
    pub transitions: i32,
    until: Instant,
}

/// Whether one leads. It ends by itself, without anybody being told, at the moment until which the lease
/// was renewed.
#[derive(Clone, Debug)]
pub struct Leadership(Option<watch::Receiver<Option<Term>>>);

impl Leadership {
    /// Of somebody who is alone.
    pub fn always() -> Self {
        Self(None)
    }

    /// Returns `true` while this process leads.
    pub fn is_leading(&self) -> bool {
        self.0.is_none() || self.term().is_some()
    }

    /// The term, while one leads.
    pub fn term(&self) -> Option<Term> {
        let term = *self.0.as_ref()?.borrow();
        term.filter(|it| Instant::now() < it.until)
    }

    /// Waits until one leads.
    pub async fn gained(&self) {
        let Some(mut terms) = self.0.clone() else { return };
        loop {
            terms.mark_unchanged();
            if self.is_leading() {
                return;
            }
            if terms.changed().await.is_err() {
                return std::future::pending().await;
            }
        }
    }

    /// Waits until the campaign is over, and with it every chance to lead.
    pub(crate) async fn abandoned(&self) {
        let Some(mut terms) = self.0.clone() else { return std::future::pending().await };
        while terms.changed().await.is_ok() {}
    }

    /// Waits until one does not.
    pub async fn lost(&self) {
        self.end_of(self.term()).await;
    }

    /// Waits until a term is over, also if another of the same leader has begun.
    pub(crate) async fn end_of(&self, term: Option<Term>) {
        let Some(mut terms) = self.0.clone() else { return std::future::pending().await };
        let goes_on =
            || self.term().filter(|now| Some(now.transitions) == term.map(|it| it.transitions));
        let mut waiting = pin!(async {
            while let Some(term) = goes_on() {
                tokio::select! {
                    () = sleep_until(term.until) => {}
                    changed = terms.changed() => if changed.is_err() {
                        return sleep_until(term.until).await;
                    },
                }
            }
        });
        // Who was asleep may be polled before its timers: what counts is the clock.
        poll_fn(|cx| if goes_on().is_none() { Poll::Ready(()) } else { waiting.as_mut().poll(cx) })
            .await;
    }
}

/// Takes part in an election.
///
/// Who leads renews the lease; who does not waits until it has not been renewed for its duration, measured
/// by its own clock from when it saw the last renewal. A leader stops to act `renew_deadline` after it began
/// the last renewal that succeeded, which is earlier on any clock that runs at about the same speed: so there
/// are never two, whatever the clocks show.
#[derive(Clone)]
#[must_use]
pub struct LeaderElection {
    leases: Api<Lease>,
    name: String,
    identity: String,
    lease_duration: Duration,
    renew_deadline: Duration,
    retry_period: Duration,
}

/// A lease as it was last seen to change.
struct Seen {
    version: Option<String>,
    at: Instant,
}

impl LeaderElection {
    /// For a lease in a namespace. The identity has to be another one for each process, for example the
    /// name of its pod.
    pub fn new(client: Client, namespace: &str, name: &str, identity: &str) -> Self {
        Self {
            leases: Api::namespaced(client, namespace),
            name: name.to_owned(),
            identity: identity.to_owned(),
            lease_duration: LEASE_DURATION,
            renew_deadline: RENEW_DEADLINE,
            retry_period: RETRY_PERIOD,
        }
    }

    /// How long the lease holds, how long a leader acts after a renewal, and how often it tries. Each is
    /// made shorter than the one before if it is not, and the first is a whole number of seconds.
    pub fn timing(mut self, lease: Duration, renew: Duration, retry: Duration) -> Self {
        let seconds = lease.as_secs() + u64::from(lease.subsec_nanos() > 0);
        self.lease_duration = Duration::from_secs(seconds.max(1));
        self.renew_deadline = renew.min(self.lease_duration * 4 / 5);
        self.retry_period = retry.min(self.renew_deadline / 2);
        self
    }

    /// Takes part until it is stopped, and then gives the lease back: stop it after those who act. What is
    /// returned second has to be polled.
    pub fn campaign(
        self,
        stop: CancellationToken,
    ) -> (Leadership, impl Future<Output = ()> + Send) {
        let (terms, leadership) = watch::channel(None);
        (Leadership(Some(leadership)), self.run(terms, stop))
    }

    async fn run(self, terms: watch::Sender<Option<Term>>, stop: CancellationToken) {
        let mut seen = Seen { version: None, at: Instant::now() };
        loop {
            let began = Instant::now();
            let held = timeout(self.renew_deadline, self.try_hold(&mut seen)).await;
            self.follow(&terms, began, held);
            tokio::select! {
                () = stop.cancelled() => break,
                () = sleep(self.retry_period) => {}
            }
        }
        if terms.send_replace(None).is_some()
            && !matches!(timeout(self.renew_deadline, self.release()).await, Ok(Ok(())))
        {
            warn!(lease = self.name, "could not be given back: it will run out");
        }
    }

    fn follow(
        &self,
        terms: &watch::Sender<Option<Term>>,
        began: Instant,
        held: Result<Result<Option<i32>, Error>, tokio::time::error::Elapsed>,
    ) {
        let before = *terms.borrow();
        let from = if planted::on("leads_from_the_answer") { Instant::now() } else { began };
        match held {
            Ok(Ok(Some(transitions))) => {
                if before.is_none() {
                    info!(lease = self.name, identity = self.identity, transitions, "leads");
                }
                terms.send_replace(Some(Term { transitions, until: from + self.renew_deadline }));
                return;
            }
            // Somebody else has it.
            Ok(Ok(None)) => drop(terms.send_replace(None)),
            Ok(Err(error)) => warn!(lease = self.name, %error, "could not be read or renewed"),
            Err(_) => warn!(lease = self.name, "could not be read or renewed in time"),
        }
        if before.is_some_and(|it| Instant::now() >= it.until) {
            terms.send_replace(None);
        }
        if before.is_some() && terms.borrow().is_none() {
            warn!(lease = self.name, identity = self.identity, "leads no longer");
        }
    }

    /// Takes or renews the lease if it may; the number of transitions if it has it.
    async fn try_hold(&self, seen: &mut Seen) -> Result<Option<i32>, Error> {
        let Some(lease) = self.leases.get_opt(&self.name).await? else {
            let lease = self.lease(None, 0);
            return decided(self.leases.create(&PostParams::default(), &lease).await);
        };
        if seen.version != lease.metadata.resource_version {
            *seen = Seen { version: lease.metadata.resource_version.clone(), at: Instant::now() };
        }
        let spec = lease.spec.clone().unwrap_or_default();
        let transitions = spec.lease_transitions.unwrap_or_default();
        let holder = spec.holder_identity.as_deref().unwrap_or_default();
        let duration = u64::try_from(spec.lease_duration_seconds.unwrap_or_default());
        let duration = Duration::from_secs(duration.unwrap_or_default());
        let free = holder.is_empty() || seen.at.elapsed() >= duration;
        if holder != self.identity && !free && !planted::on("takes_a_lease_that_holds") {
            return Ok(None);
        }
        let transitions = transitions + i32::from(holder != self.identity);
        let mine = self.lease(Some(lease), transitions);
        let written = self.leases.replace(&self.name, &PostParams::default(), &mine).await;
        decided(written)
    }

    /// The lease as it is to be: new, or what was read with this holder.
    fn lease(&self, read: Option<Lease>, transitions: i32) -> Lease {
        let now = Some(MicroTime(Timestamp::now()));
        let mut lease = read.unwrap_or_else(|| Lease {
            metadata: ObjectMeta { name: Some(self.name.clone()), ..ObjectMeta::default() },
            ..Lease::default()
        });
        let before = lease.spec.take().unwrap_or_default();
        let same = before.holder_identity.as_deref() == Some(&self.identity);
        lease.spec = Some(LeaseSpec {
            acquire_time: if same { before.acquire_time.clone() } else { now.clone() },
            renew_time: now,
            holder_identity: Some(self.identity.clone()),
            lease_duration_seconds: i32::try_from(self.lease_duration.as_secs()).ok(),
            lease_transitions: Some(transitions),
            ..before
        });
        lease
    }

    /// Gives the lease back, if it is still ours.
    async fn release(&self) -> Result<(), Error> {
        let Some(mut lease) = self.leases.get_opt(&self.name).await? else { return Ok(()) };
        let Some(spec) = &mut lease.spec else { return Ok(()) };
        if spec.holder_identity.as_deref() != Some(&self.identity) {
            return Ok(());
        }
        spec.holder_identity = Some(String::new());
        decided(self.leases.replace(&self.name, &PostParams::default(), &lease).await).map(drop)
    }
}

/// Somebody who was faster is no error.
fn decided(written: Result<Lease, Error>) -> Result<Option<i32>, Error> {
    match written {
        Ok(lease) => Ok(Some(lease.spec.and_then(|it| it.lease_transitions).unwrap_or_default())),
        Err(Error::Api(status)) if status.code == 409 => Ok(None),
        Err(error) => Err(error),
    }
}

impl fmt::Debug for LeaderElection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut all = f.debug_struct("LeaderElection");
        all.field("name", &self.name).field("identity", &self.identity).finish_non_exhaustive()
    }
}
