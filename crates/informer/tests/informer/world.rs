//! A server in memory: a log, pages and watches, delays and faults. All of it follows from a seed.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures_util::stream::unfold;
use masthead_core::{Object, Resource, Scope, Status};
use masthead_informer::{Connector, Pack, Packed, Wanted};
use masthead_reflector::{
    BoxFuture, Events, Failure, ListAt, ListRequest, Meter, Page, Recovery, ServerMemory, Source,
    WatchFrom, WatchItem, WatchRequest,
};
use masthead_sim::history::{Commit, CommitOp};
use masthead_upstream::SourceError;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use tokio::sync::watch;
use tokio::time::{Instant, sleep, sleep_until, timeout_at};

/// What the worlds are made of.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub(crate) struct Thing {
    pub(crate) value: u64,
}

pub(crate) fn things() -> Resource {
    Resource::new("test", "v1", "things", "Thing", Scope::Namespaced)
}

/// Numbers that follow from a seed.
#[derive(Clone, Debug)]
pub(crate) struct Dice(u64);

impl Dice {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed.wrapping_add(0x9e37_79b9_7f4a_7c15))
    }

    pub(crate) fn roll(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub(crate) fn below(&mut self, end: u64) -> u64 {
        self.roll() % end.max(1)
    }

    pub(crate) fn chance(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }
}

/// The server. Clones are the same one.
#[derive(Clone)]
pub(crate) struct World(Arc<Mutex<Inner>>);

struct Inner {
    commits: Vec<(Commit, Object)>,
    state: BTreeMap<String, Object>,
    rv: u64,
    oldest: u64,
    dice: Dice,
    /// Out of a hundred requests and batches.
    faults: u64,
    changed: watch::Sender<u64>,
    lists: u64,
    watches: u64,
    /// Lists that there was a reason for: a beginning, a list that failed, a watch that expired.
    owed: u64,
    /// Watches that said nothing: three in a row are a reason for a list (R11).
    silent: u64,
    /// Up to where watches expired: a list that is no newer is a reason for another (R9).
    expired: u64,
    streaming: bool,
    refusal: Option<Failure>,
}

impl World {
    pub(crate) fn new(seed: u64) -> Self {
        Self(Arc::new(Mutex::new(Inner {
            commits: Vec::new(),
            state: BTreeMap::new(),
            rv: 1,
            oldest: 1,
            dice: Dice::new(seed),
            faults: 0,
            changed: watch::Sender::new(1),
            lists: 0,
            watches: 0,
            owed: 0,
            silent: 0,
            expired: 0,
            streaming: true,
            refusal: None,
        })))
    }

    pub(crate) fn set_faults(&self, percent: u64) {
        self.0.lock().faults = percent;
    }

    pub(crate) fn set_streaming(&self, streaming: bool) {
        self.0.lock().streaming = streaming;
    }

    /// Every request is answered so; none ends it.
    pub(crate) fn refuse(&self, refusal: Option<Failure>) {
        self.0.lock().refusal = refusal;
    }

    /// Lists, streamed or paged, and watches that were asked for.
    pub(crate) fn requests(&self) -> (u64, u64) {
        let it = self.0.lock();
        (it.lists, it.watches)
    }

    /// Says which resource was listed more often than there were reasons for (I7).
    pub(crate) fn listed_without_reason(&self) -> Option<String> {
        let Inner { lists, owed, silent, .. } = *self.0.lock();
        let wrong = lists > owed + silent / 3;
        wrong.then(|| format!("{lists} lists, {owed} reasons, {silent} silent watches"))
    }

    pub(crate) fn rv(&self) -> u64 {
        self.0.lock().rv
    }

    pub(crate) fn compact(&self) {
        let mut it = self.0.lock();
        it.oldest = it.rv;
    }

    /// Puts an object, new or with other content.
    pub(crate) fn put(&self, key: &str, value: u64, labels: &str) -> Commit {
        let mut it = self.0.lock();
        it.rv += 1;
        let (namespace, name) = key.split_once('/').unwrap();
        let old = it.state.get(key).map(|object| object.uid().to_owned());
        let uid = old.clone().unwrap_or_else(|| format!("u{}", it.rv));
        let rv = it.rv;
        let labels_json: BTreeMap<&str, &str> =
            labels.split(',').filter_map(|pair| pair.split_once('=')).collect();
        let body = serde_json::json!({
            "kind": "Thing", "apiVersion": "test/v1", "value": value,
            "metadata": {"name": name, "namespace": namespace, "uid": uid, "resourceVersion": rv.to_string(), "labels": labels_json},
        });
        let object = Object::parse(&things(), body.to_string().into()).unwrap();
        it.state.insert(key.to_owned(), object.clone());
        let op = if old.is_some() { CommitOp::Update } else { CommitOp::Create };
        let labels = labels_json.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
        it.commit(
            Commit {
                rv,
                t: 0,
                key: key.to_owned(),
                uid,
                op,
                hash: value,
                labels,
                fields: BTreeMap::new(),
            },
            object,
        )
    }

    pub(crate) fn delete(&self, key: &str) -> Option<Commit> {
        let mut it = self.0.lock();
        let last = it.state.remove(key)?;
        it.rv += 1;
        let last = last.with_revision(masthead_core::Revision(it.rv));
        let commit = Commit {
            rv: it.rv,
            t: 0,
            key: key.to_owned(),
            uid: last.uid().to_owned(),
            op: CommitOp::Delete,
            hash: 0,
            labels: BTreeMap::new(),
            fields: BTreeMap::new(),
        };
        Some(it.commit(commit, last))
    }

    /// Keys with their revisions.
    pub(crate) fn state(&self) -> BTreeMap<String, u64> {
        let it = self.0.lock();
        it.state.iter().map(|(key, object)| (key.clone(), object.revision().0)).collect()
    }
}

impl Inner {
    fn commit(&mut self, commit: Commit, object: Object) -> Commit {
        self.commits.push((commit.clone(), object));
        self.changed.send_replace(self.rv);
        commit
    }

    fn state_at(&self, rv: u64) -> BTreeMap<String, Object> {
        let mut state = BTreeMap::new();
        for (commit, object) in self.commits.iter().filter(|(commit, _)| commit.rv <= rv) {
            if commit.op == CommitOp::Delete {
                state.remove(&commit.key);
            } else {
                state.insert(commit.key.clone(), object.clone());
            }
        }
        state
    }

    fn count_failed_watch(&mut self, from: u64, expired: bool) {
        if expired {
            self.owed += 1;
            self.expired = self.expired.max(from);
        }
        self.silent += 1;
    }

    fn fault(&mut self) -> Option<Failure> {
        if let Some(refusal) = &self.refusal {
            return Some(refusal.clone());
        }
        if !self.dice.chance(self.faults) {
            return None;
        }
        let code = [429, 500, 503, 504, 410][usize::try_from(self.dice.below(5)).unwrap()];
        Some(match self.dice.below(4) {
            0 => Failure::Refused("no".to_owned()),
            1 => Failure::Reset("cut".to_owned()),
            2 => Failure::Decode("cut off".to_owned()),
            _ => Status::of_response(code, b"").into(),
        })
    }
}

impl Connector for World {
    fn source(&self, wanted: &Wanted, pack: Pack) -> Result<Arc<dyn Source>, SourceError> {
        self.0.lock().owed += 1;
        let source = WorldSource { world: self.clone(), wanted: wanted.clone() };
        Ok(Arc::new(Packed::new(source, pack)))
    }

    fn memory(&self) -> ServerMemory {
        ServerMemory::new()
    }
}

/// A list that is under way: unless it is done, there is reason for another.
struct Listing {
    world: World,
    done: bool,
}

impl Drop for Listing {
    fn drop(&mut self) {
        self.world.0.lock().owed += u64::from(!self.done);
    }
}

struct WorldSource {
    world: World,
    wanted: Wanted,
}

fn sees(wanted: &Wanted, object: &Object) -> bool {
    let namespace = wanted.namespace.as_deref();
    namespace.is_none_or(|it| it == object.key().namespace()) && wanted.selectors.matches(object)
}

impl Source for WorldSource {
    fn list(&self, request: ListRequest, meter: Meter) -> BoxFuture<Result<Page, Failure>> {
        let (world, wanted) = (self.world.clone(), self.wanted.clone());
        Box::pin(async move {
            let mut listing = Listing { world: world.clone(), done: false };
            let delay = {
                let mut it = world.0.lock();
                it.lists += u64::from(!matches!(request.at, ListAt::Continue(_)));
                Duration::from_millis(it.dice.below(40))
            };
            sleep(delay).await;
            meter.add(100);
            let mut it = world.0.lock();
            if let Some(failure) = it.fault() {
                return Err(failure);
            }
            let (rv, after) = match &request.at {
                ListAt::Continue(token) => {
                    let (rv, after) = token.split_once('|').unwrap();
                    (rv.parse().unwrap(), Some(after.to_owned()))
                }
                ListAt::Exact(rv) => (rv.parse().unwrap(), None),
                _ => (it.rv, None),
            };
            if rv < it.oldest {
                return Err(Status::of_response(410, b"").into());
            }
            let state = it.state_at(rv);
            let behind =
                state.into_iter().filter(|(key, _)| after.as_ref().is_none_or(|it| key > it));
            let mut objects =
                behind.map(|(_, object)| object).filter(|object| sees(&wanted, object));
            let page: Vec<_> = objects.by_ref().take(request.limit).collect();
            let left = objects.count();
            let token = page.last().filter(|_| left > 0).map(|last| format!("{rv}|{}", last.key()));
            listing.done = rv > it.expired;
            Ok(Page {
                objects: page,
                resource_version: rv.to_string(),
                continue_token: token.unwrap_or_default(),
                remaining: Some(left as u64),
                skipped: 0,
            })
        })
    }

    fn watch(&self, request: WatchRequest, meter: Meter) -> BoxFuture<Result<Events, Failure>> {
        let (world, wanted) = (self.world.clone(), self.wanted.clone());
        Box::pin(async move {
            let initial = request.initial_events();
            let listing = initial.then(|| Listing { world: world.clone(), done: false });
            let delay = {
                let mut it = world.0.lock();
                it.lists += u64::from(initial);
                it.watches += 1;
                Duration::from_millis(it.dice.below(40))
            };
            sleep(delay).await;
            meter.add(100);
            let mut it = world.0.lock();
            if initial && !it.streaming {
                return Err(Status::of_response(422, b"").into());
            }
            let (from, mut first) = match &request.from {
                WatchFrom::State { .. } => {
                    let objects = it.state.values().filter(|object| sees(&wanted, object));
                    (it.rv, objects.cloned().map(WatchItem::Added).collect())
                }
                WatchFrom::After(from) => (from.parse().unwrap(), Vec::new()),
            };
            let gone = (from < it.oldest).then(|| Status::of_response(410, b"").into());
            if let Some(failure) = it.fault().or(gone) {
                it.count_failed_watch(from, failure.recovery() == Recovery::Relist);
                return Err(failure);
            }
            if initial {
                let resource_version = from.to_string();
                first.push(WatchItem::Bookmark { resource_version, initial_events_end: true });
            }
            let end = Instant::now() + request.timeout;
            let changed = it.changed.subscribe();
            drop(it);
            let world = world.clone();
            let (silent, over) = (!initial, false);
            let stream = Stream { world, wanted, from, first, listing, end, changed, silent, over };
            Ok(Box::pin(unfold(stream, Stream::step)) as Events)
        })
    }
}

struct Stream {
    world: World,
    wanted: Wanted,
    from: u64,
    first: Vec<WatchItem>,
    /// The state that it begins with.
    listing: Option<Listing>,
    end: Instant,
    changed: watch::Receiver<u64>,
    silent: bool,
    over: bool,
}

impl Drop for Stream {
    fn drop(&mut self) {
        self.world.0.lock().silent += u64::from(self.silent);
    }
}

impl Stream {
    async fn step(mut self) -> Option<(Result<Vec<WatchItem>, Failure>, Self)> {
        if self.over {
            return None;
        }
        if !self.first.is_empty() {
            let expired = self.world.0.lock().expired;
            self.listing.iter_mut().for_each(|listing| listing.done = self.from > expired);
            return Some((Ok(std::mem::take(&mut self.first)), self));
        }
        let from = self.from;
        let news = timeout_at(self.end, self.changed.wait_for(|rv| *rv > from)).await.is_ok();
        if !news {
            return None;
        }
        let pause = self.world.0.lock().dice.below(30);
        sleep_until(Instant::now() + Duration::from_millis(pause)).await;
        let items = self.news();
        self.over = items.is_err();
        Some((items, self))
    }

    fn news(&mut self) -> Result<Vec<WatchItem>, Failure> {
        let world = self.world.clone();
        let mut it = world.0.lock();
        let faults = it.faults / 2;
        if it.dice.chance(faults) {
            return Err(if it.dice.chance(50) {
                Failure::Ended
            } else {
                Failure::Reset("cut".into())
            });
        }
        if self.from < it.oldest {
            let status = Status::of_response(410, b"");
            it.count_failed_watch(self.from, true);
            self.over = true;
            return Ok(vec![WatchItem::Error(status)]);
        }
        let mut items = Vec::new();
        let mut seen = it.state_at(self.from);
        for (commit, object) in it.commits.iter().filter(|(commit, _)| commit.rv > self.from) {
            let was = seen.get(&commit.key).filter(|old| sees(&self.wanted, old)).cloned();
            let is = commit.op != CommitOp::Delete && sees(&self.wanted, object);
            items.extend(match (was, is) {
                (None, true) => Some(WatchItem::Added(object.clone())),
                (Some(_), true) => Some(WatchItem::Modified(object.clone())),
                (Some(old), false) if commit.op == CommitOp::Delete => {
                    drop(old);
                    Some(WatchItem::Deleted(object.clone()))
                }
                (Some(old), false) => {
                    Some(WatchItem::Deleted(old.with_revision(masthead_core::Revision(commit.rv))))
                }
                (None, false) => None,
            });
            if commit.op == CommitOp::Delete {
                seen.remove(&commit.key);
            } else {
                seen.insert(commit.key.clone(), object.clone());
            }
        }
        self.silent = false;
        self.from = it.rv;
        items.push(WatchItem::Bookmark {
            resource_version: it.rv.to_string(),
            initial_events_end: false,
        });
        Ok(items)
    }
}
