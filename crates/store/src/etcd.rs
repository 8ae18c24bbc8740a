//! A store in an etcd cluster. Any number of servers may use one: revisions are etcd's.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use futures_util::stream::{self, StreamExt as _};
use masthead_core::{ObjectKey, Revision};
use parking_lot::Mutex;
use tokio::sync::{Notify, mpsc, oneshot, watch};
use tokio::task::AbortHandle;
use tracing::{error, info, warn};

use crate::ledger::admit;
use crate::limits::{
    ETCD_COMMIT_PARALLEL, ETCD_CURRENT_WAITING_MAX, ETCD_PAGE_BYTES, ETCD_PAGE_VALUES,
    ETCD_REPLAY_REVISIONS_MAX,
};
use crate::{
    BoxFuture, CommitError, Committed, Events, Health, Range, RangePage, ResourceName, Store,
    StoreError, Value, Write,
};
use cluster::{Cluster, Fault};
use layout::Layout;
use leases::Leases;
use messages::{Answer, CompactionRequest, MemberListRequest, RangeRequest, RangeResponse};

mod cluster;
mod compaction;
mod following;
mod layout;
mod leases;
mod messages;
mod probe;
mod room;
mod settings;
mod stamp;
mod writing;

pub use settings::EtcdSettings;

/// Objects in an etcd cluster, under one prefix.
///
/// Each write is a transaction of its own; writes of one call to different objects go side by side,
/// and so do calls: only what concerns one object of one call is in order.
pub struct EtcdStore {
    shared: Arc<Shared>,
    tasks: Vec<AbortHandle>,
}

/// Why a cluster cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EtcdError {
    /// The settings make no sense.
    #[error("etcd is not described as it has to be: {0}")]
    Settings(String),
    /// The cluster does not answer, or refuses.
    #[error("etcd cannot be used; is it running, and are endpoints, certificates and user right?")]
    Unusable(#[source] StoreError),
}

pub(crate) struct Shared {
    cluster: Cluster,
    layout: Layout,
    leases: Leases,
    /// As far as it is known; etcd does not tell when somebody compacts.
    oldest: AtomicU64,
    /// The newest revision that was seen.
    newest: AtomicU64,
    /// Etcd is not what it was, and watches have not been told yet.
    suspect: AtomicBool,
    /// Where watches are to get to.
    goal: watch::Sender<Goal>,
    currents: mpsc::Sender<oneshot::Sender<Result<Revision, StoreError>>>,
    /// Why writes are refused.
    full: Mutex<Option<Arc<str>>>,
    /// Notified when writes begin to be refused.
    filled: Notify,
    /// Bytes of a value on the last page.
    value_bytes: AtomicUsize,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct Goal {
    /// How often etcd was found to have gone back.
    epoch: u64,
    revision: Revision,
    /// There is no store any more.
    closed: bool,
}

impl EtcdStore {
    /// Connects, and finds out from where on there is history.
    pub async fn open(settings: EtcdSettings) -> Result<Self, EtcdError> {
        let cluster = Cluster::new(&settings).map_err(|it| EtcdError::Settings(it.what))?;
        let (currents, asked) = mpsc::channel(ETCD_CURRENT_WAITING_MAX);
        let shared = Arc::new(Shared {
            cluster,
            layout: Layout::new(&settings.prefix),
            leases: Leases::default(),
            oldest: AtomicU64::new(0),
            newest: AtomicU64::new(0),
            suspect: AtomicBool::new(false),
            goal: watch::Sender::default(),
            currents,
            full: Mutex::default(),
            filled: Notify::new(),
            value_bytes: AtomicUsize::new(ETCD_PAGE_BYTES / 64),
        });
        let current = shared.read_current().await.map_err(EtcdError::Unusable)?;
        shared.find_oldest(current).await.map_err(EtcdError::Unusable)?;
        shared.look_around().await;
        let tasks = vec![
            tokio::spawn(answer_currents(shared.clone(), asked)).abort_handle(),
            tokio::spawn(compaction::run(shared.clone(), settings.keep_age)).abort_handle(),
            tokio::spawn(room::run(shared.clone())).abort_handle(),
        ];
        Ok(Self { shared, tasks })
    }
}

impl Drop for EtcdStore {
    fn drop(&mut self) {
        self.tasks.iter().for_each(AbortHandle::abort);
        self.shared.goal.send_modify(|goal| goal.closed = true);
    }
}

impl Store for EtcdStore {
    /// As the cluster agrees on it. One question is under way at a time, and answers everybody who
    /// was waiting when it was asked.
    fn current(&self) -> BoxFuture<Result<Revision, StoreError>> {
        let shared = self.shared.clone();
        Box::pin(async move { shared.current().await })
    }

    fn oldest(&self) -> Revision {
        Revision(self.shared.oldest.load(Ordering::Acquire))
    }

    fn get(
        &self,
        resource: &ResourceName,
        key: &ObjectKey,
    ) -> BoxFuture<Result<Option<Value>, StoreError>> {
        let (shared, key) = (self.shared.clone(), key.clone());
        let request =
            RangeRequest { key: shared.layout.object(resource, &key), ..RangeRequest::default() };
        Box::pin(async move {
            let answer = shared.ask(request).await?;
            let value = |kv: &messages::KeyValue| {
                stamp::stamped(&key, &kv.value, revision(kv.mod_revision))
            };
            Ok(answer.kvs.first().map(value))
        })
    }

    fn range(&self, range: Range) -> BoxFuture<Result<RangePage, StoreError>> {
        let shared = self.shared.clone();
        Box::pin(async move { shared.range(range).await })
    }

    fn commit(&self, writes: Vec<Write>) -> BoxFuture<Vec<Result<Committed, CommitError>>> {
        if let Err(error) = admit(&writes) {
            let results = writes.iter().map(|_| Err(error.clone())).collect();
            return Box::pin(async { results });
        }
        let (shared, count) = (self.shared.clone(), writes.len());
        // A task of its own: whoever asks may go away.
        let done = tokio::spawn(async move { shared.commit(writes).await });
        Box::pin(async move {
            done.await.unwrap_or_else(|_| (0..count).map(|_| Err(CommitError::Closed)).collect())
        })
    }

    fn watch(&self, from: Revision) -> Result<Events, StoreError> {
        let oldest = self.oldest();
        if from < oldest {
            return Err(StoreError::Expired { asked: from, oldest });
        }
        Ok(following::follow(self.shared.clone(), from))
    }

    fn compact(&self, before: Revision) -> BoxFuture<Result<Revision, StoreError>> {
        let shared = self.shared.clone();
        Box::pin(async move { shared.compact(before).await })
    }

    fn epoch(&self) -> u64 {
        self.shared.goal.borrow().epoch
    }

    fn removes_expired(&self) -> bool {
        true
    }

    fn health(&self) -> Health {
        match &*self.shared.full.lock() {
            Some(why) => Health::ReadOnly { why: why.clone() },
            None => Health::Writable,
        }
    }
}

/// Answers all who wait with one question.
async fn answer_currents(
    shared: Arc<Shared>,
    mut asked: mpsc::Receiver<oneshot::Sender<Result<Revision, StoreError>>>,
) {
    let mut waiting = Vec::new();
    while asked.recv_many(&mut waiting, ETCD_CURRENT_WAITING_MAX).await > 0 {
        let current = shared.read_current().await;
        for answer in waiting.drain(..) {
            // Who has gone does not mind.
            let _ = answer.send(current.clone());
        }
    }
}

impl Shared {
    async fn current(&self) -> Result<Revision, StoreError> {
        let (answer, answered) = oneshot::channel();
        self.currents.try_send(answer).map_err(|_| StoreError::Busy)?;
        answered.await.map_err(|_| StoreError::Closed)?
    }

    /// The revision of the cluster; watches are told to get there.
    async fn read_current(&self) -> Result<Revision, StoreError> {
        if self.suspect.load(Ordering::Acquire) {
            return Err(self.rewind().await);
        }
        let known = self.newest.load(Ordering::Acquire);
        let current = match self.ask_current().await {
            Ok(current) => current,
            Err(fault @ Fault::Stranger { .. }) => return Err(self.suspect(&fault).await),
            Err(fault) => return Err(fault.into()),
        };
        if current.0 < known {
            let why = format!("revision {current} comes after {known}");
            return Err(self.suspect(&why).await);
        }
        self.saw(current);
        self.goal.send_if_modified(|goal| {
            let moved = current > goal.revision;
            goal.revision = goal.revision.max(current);
            moved
        });
        Ok(current)
    }

    async fn ask_current(&self) -> Result<Revision, Fault> {
        let key = self.layout.own("now");
        let request = RangeRequest { key, count_only: true, ..RangeRequest::default() };
        Ok(head(&self.cluster.ask(request).await?))
    }

    fn saw(&self, revision: Revision) {
        self.newest.fetch_max(revision.0, Ordering::AcqRel);
    }

    fn forget(&self, before: Revision) {
        self.oldest.fetch_max(before.0, Ordering::AcqRel);
    }

    /// What is there now is not what was there.
    async fn suspect(&self, why: &impl std::fmt::Display) -> StoreError {
        error!(%why, "etcd went back or was replaced: all watches end and everything is read anew");
        self.suspect.store(true, Ordering::Release);
        self.rewind().await
    }

    /// Begins anew. If etcd goes away meanwhile, that is tried again before anything else.
    async fn rewind(&self) -> StoreError {
        self.cluster.forget();
        let current = match self.ask_current().await {
            Ok(current) => current,
            Err(fault) => return fault.into(),
        };
        self.oldest.store(0, Ordering::Release);
        if let Err(error) = self.find_oldest(current).await {
            return error;
        }
        self.leases.forget();
        self.newest.store(current.0, Ordering::Release);
        self.goal.send_modify(|goal| {
            (goal.epoch, goal.revision) = (goal.epoch + 1, current);
        });
        self.suspect.store(false, Ordering::Release);
        StoreError::Rewound
    }

    /// Something that may be asked twice.
    async fn ask<C: messages::Call>(&self, call: C) -> Result<C::Answer, StoreError> {
        let answer = self.cluster.ask(call).await.map_err(StoreError::from)?;
        self.saw(head(&answer));
        Ok(answer)
    }

    async fn range(&self, range: Range) -> Result<RangePage, StoreError> {
        let Range { resource, after, limit, at } = range;
        let oldest = Revision(self.oldest.load(Ordering::Acquire));
        if at < oldest {
            return Err(StoreError::Expired { asked: at, oldest });
        }
        let keys = match &after {
            Some(key) => self.layout.after(&resource, key),
            None => self.layout.resource(&resource),
        };
        let fit = ETCD_PAGE_BYTES / self.value_bytes.load(Ordering::Relaxed).max(1);
        let limit = limit.min(fit).clamp(1, ETCD_PAGE_VALUES);
        let request = RangeRequest {
            key: keys.start,
            range_end: keys.end,
            limit: i64::try_from(limit).unwrap_or(i64::MAX),
            revision: i64::try_from(at.0).unwrap_or(i64::MAX),
            ..RangeRequest::default()
        };
        match self.cluster.ask(request).await {
            Ok(answer) => Ok(self.page(&answer)),
            Err(fault) if fault.is_compacted() => {
                self.find_compacted().await?;
                let oldest = Revision(self.oldest.load(Ordering::Acquire));
                Err(StoreError::Expired { asked: at, oldest })
            }
            Err(fault) => {
                let current = self.current().await?;
                if at > current {
                    return Err(StoreError::Future { asked: at, current });
                }
                Err(fault.into())
            }
        }
    }

    fn page(&self, answer: &RangeResponse) -> RangePage {
        let mut page = RangePage { values: Vec::with_capacity(answer.kvs.len()), next: None };
        let mut bytes = 0;
        for kv in &answer.kvs {
            bytes += kv.value.len();
            let Some(key) = self.layout.key(&kv.key) else { continue };
            page.values.push(stamp::stamped(&key, &kv.value, revision(kv.mod_revision)));
            page.next = Some(key).filter(|_| answer.more);
        }
        if let Some(mean) = bytes.checked_div(answer.kvs.len()) {
            self.value_bytes.store(mean, Ordering::Relaxed);
        }
        page
    }

    /// Writes to one object go in order, others side by side.
    async fn commit(&self, writes: Vec<Write>) -> Vec<Result<Committed, CommitError>> {
        let count = writes.len();
        // A write that requires an object sees what the earlier writes of the call made of it.
        let in_turn = writes.iter().any(|write| !write.requires.is_empty());
        let mut chains: Vec<Vec<(usize, Write)>> = Vec::with_capacity(count);
        for (at, write) in writes.into_iter().enumerate() {
            let same = |chain: &&mut Vec<(usize, Write)>| {
                let first = &chain[0].1;
                in_turn || first.key == write.key && first.resource == write.resource
            };
            // Calls of more than a few writes are deletions of different objects: no need to hash.
            match chains.iter_mut().find(same) {
                Some(chain) => chain.push((at, write)),
                None => chains.push(vec![(at, write)]),
            }
        }
        let chains = chains.into_iter().map(|chain| async move {
            let mut results = Vec::with_capacity(chain.len());
            for (at, write) in chain {
                results.push((at, self.write(&write).await));
            }
            results
        });
        let done: Vec<_> =
            stream::iter(chains).buffer_unordered(ETCD_COMMIT_PARALLEL).collect().await;
        let mut results: Vec<_> = (0..count).map(|_| Err(CommitError::Closed)).collect();
        done.into_iter().flatten().for_each(|(at, result)| results[at] = result);
        results
    }

    async fn compact(&self, before: Revision) -> Result<Revision, StoreError> {
        let target = before.min(self.current().await?);
        let request = CompactionRequest { revision: i64::try_from(target.0).unwrap_or(i64::MAX) };
        match self.cluster.ask(request).await {
            Ok(_) => self.forget(target),
            // Somebody else was there before.
            Err(fault) if fault.is_compacted() => self.find_compacted().await?,
            Err(fault) => return Err(fault.into()),
        }
        Ok(Revision(self.oldest.load(Ordering::Acquire)))
    }

    /// Where history begins for us: at the last compaction, but not too far back.
    async fn find_oldest(&self, current: Revision) -> Result<(), StoreError> {
        self.find_compacted().await?;
        self.forget(Revision(current.0.saturating_sub(ETCD_REPLAY_REVISIONS_MAX)));
        Ok(())
    }

    /// Says what a person would want to know of the cluster.
    async fn look_around(&self) {
        let Ok(list) = self.cluster.ask(MemberListRequest {}).await else { return };
        let names: Vec<_> = list.members.iter().map(|it| it.name.as_str()).collect();
        info!(members = names.join(", "), endpoints = self.cluster.len(), "connected to etcd");
        if self.cluster.len() < names.len() {
            warn!(
                members = names.len(),
                endpoints = self.cluster.len(),
                "not all etcd members are named as endpoints: if those fail, so does this server"
            );
        }
    }

    /// Writes are refused, or are taken again.
    fn set_full(&self, why: Option<&str>) {
        let mut full = self.full.lock();
        match (&*full, why) {
            (None, Some(why)) => error!(why, "etcd is full: the server is read-only"),
            (Some(_), None) => info!("etcd takes writes again"),
            _ => return,
        }
        *full = why.map(Into::into);
        drop(full);
        self.filled.notify_one();
    }
}

/// The revision of an answer.
fn head(answer: &impl Answer) -> Revision {
    revision(answer.header().map_or(0, |header| header.revision))
}

/// A revision as etcd writes it.
fn revision(number: i64) -> Revision {
    Revision(u64::try_from(number).unwrap_or(0))
}

impl From<Fault> for StoreError {
    fn from(fault: Fault) -> Self {
        if fault.is_busy() {
            return Self::Busy;
        }
        Self::Unavailable(Arc::new(fault))
    }
}

impl std::fmt::Debug for EtcdStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("EtcdStore").field("oldest", &self.oldest()).finish_non_exhaustive()
    }
}
