//! A server in memory: one log of all objects, which informers watch after a while, and an API over it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures_util::stream::unfold;
use http::{Method, Request, Response};
use kube_client::Client;
use kube_client::client::Body;
use masthead_core::{Object, Resource, Revision, Scope};
use masthead_informer::upstream::SourceError;
use masthead_informer::{Connector, Factory, FactorySettings, Pack, Packed, Wanted};
use masthead_reflector::{
    BoxFuture, Events, Failure, ListRequest, Meter, Page, ServerMemory, Source, Strategy,
    WatchFrom, WatchItem, WatchRequest,
};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::time::sleep;
use tower::service_fn;

/// Numbers that follow from a seed.
#[derive(Clone, Debug)]
pub(crate) struct Dice(u64);

impl Dice {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(crate) fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % end.max(1)
    }
}

/// The server. Clones are the same one.
#[derive(Clone)]
pub(crate) struct World(Arc<Mutex<Inner>>);

struct Inner {
    rv: u64,
    /// By plural, then by `namespace/name`.
    state: BTreeMap<String, BTreeMap<String, Value>>,
    log: Vec<(u64, String, bool, Value)>,
    changed: watch::Sender<u64>,
    /// How long after a change its watches hear of it.
    lag: Duration,
    /// Whether watches get bookmarks for revisions at which nothing of theirs happened.
    bookmarks: bool,
}

impl World {
    pub(crate) fn new() -> Self {
        let (state, log, changed) = (BTreeMap::new(), Vec::new(), watch::Sender::new(1));
        Self(Arc::new(Mutex::new(Inner {
            rv: 1,
            state,
            log,
            changed,
            lag: Duration::ZERO,
            bookmarks: true,
        })))
    }

    pub(crate) fn set_lag(&self, lag: Duration) {
        self.0.lock().lag = lag;
    }

    pub(crate) fn without_bookmarks(&self) {
        self.0.lock().bookmarks = false;
    }

    pub(crate) fn factory(&self) -> Factory {
        let settings = FactorySettings { strategy: Strategy::Pages, ..FactorySettings::default() };
        Factory::with_settings(self.clone(), settings).unwrap()
    }

    /// Puts an object, and says at which revision.
    pub(crate) fn put(&self, plural: &str, key: &str, mut object: Value) -> u64 {
        let mut it = self.0.lock();
        it.rv += 1;
        let rv = it.rv;
        let (namespace, name) = key.split_once('/').unwrap();
        let old = it.state.get(plural).and_then(|all| all.get(key));
        let uid = old.map_or_else(|| json!(format!("u{rv}")), |it| it["metadata"]["uid"].clone());
        let metadata = &mut object["metadata"];
        metadata["name"] = json!(name);
        metadata["namespace"] = json!(namespace);
        metadata["uid"] = uid;
        metadata["resourceVersion"] = json!(rv.to_string());
        it.state.entry(plural.to_owned()).or_default().insert(key.to_owned(), object.clone());
        it.log.push((rv, plural.to_owned(), true, object));
        it.changed.send_replace(rv);
        rv
    }

    pub(crate) fn delete(&self, plural: &str, key: &str) {
        let mut it = self.0.lock();
        let Some(last) = it.state.get_mut(plural).and_then(|all| all.remove(key)) else { return };
        it.rv += 1;
        let rv = it.rv;
        it.log.push((rv, plural.to_owned(), false, last));
        it.changed.send_replace(rv);
    }

    pub(crate) fn get(&self, plural: &str, key: &str) -> Option<Value> {
        self.0.lock().state.get(plural)?.get(key).cloned()
    }

    pub(crate) fn all(&self, plural: &str) -> Vec<Value> {
        let it = self.0.lock();
        it.state.get(plural).map(|all| all.values().cloned().collect()).unwrap_or_default()
    }

    /// A client that calls a function before its request arrives and before its answer does.
    pub(crate) fn client(&self, link: Link) -> Client {
        let (world, link) = (self.clone(), Arc::new(Mutex::new(link)));
        let service = service_fn(move |request: Request<Body>| {
            let (world, link) = (world.clone(), link.clone());
            async move {
                let delays = (link.lock())();
                sleep(delays.0).await;
                let (head, body) = request.into_parts();
                let body = body.collect_bytes().await.unwrap();
                let path = head.uri.path().to_owned();
                let (code, answer) = world.answer(&head.method, &path, &body);
                sleep(delays.1).await;
                let response = Response::builder().status(code).body(Body::from(answer));
                Ok::<_, tower::BoxError>(response.unwrap())
            }
        });
        Client::new(service, "default")
    }

    fn answer(&self, method: &Method, path: &str, body: &[u8]) -> (u16, Vec<u8>) {
        let tail = path.split_once("/namespaces/").unwrap().1;
        let mut parts = tail.split('/');
        let (namespace, plural) = (parts.next().unwrap(), parts.next().unwrap());
        let sent: Value = serde_json::from_slice(body).unwrap_or_default();
        let name = parts.next().or(sent["metadata"]["name"].as_str()).unwrap().to_owned();
        let key = format!("{namespace}/{name}");
        let old = self.get(plural, &key);
        let version = &sent["metadata"]["resourceVersion"];
        let other =
            |old: &Value| !version.is_null() && *version != old["metadata"]["resourceVersion"];
        let put = |object| {
            self.put(plural, &key, object);
            (200, self.get(plural, &key).unwrap().to_string().into_bytes())
        };
        match (method.as_str(), old) {
            ("GET", Some(old)) => (200, old.to_string().into_bytes()),
            ("PUT" | "PATCH", Some(old)) if other(&old) => refusal(409),
            ("POST", None) | ("PUT", Some(_)) => put(sent),
            ("PATCH", Some(mut old)) => {
                merge(&mut old, &sent);
                put(old)
            }
            ("POST", Some(_)) => refusal(409),
            _ => refusal(404),
        }
    }
}

/// Delays of a request and of its answer.
pub(crate) type Link = Box<dyn FnMut() -> (Duration, Duration) + Send>;

fn refusal(code: u16) -> (u16, Vec<u8>) {
    let reason = if code == 409 { "Conflict" } else { "NotFound" };
    let status = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code,
        "reason": reason, "message": reason, "metadata": {}});
    (code, status.to_string().into_bytes())
}

fn merge(into: &mut Value, patch: &Value) {
    match patch {
        Value::Object(members) => {
            for (name, member) in members {
                merge(&mut into[name.as_str()], member);
            }
        }
        other => *into = other.clone(),
    }
}

impl Connector for World {
    fn source(&self, wanted: &Wanted, pack: Pack) -> Result<Arc<dyn Source>, SourceError> {
        let source = WorldSource { world: self.clone(), wanted: wanted.clone() };
        Ok(Arc::new(Packed::new(source, pack)))
    }

    fn memory(&self) -> ServerMemory {
        ServerMemory::new()
    }
}

struct WorldSource {
    world: World,
    wanted: Wanted,
}

/// Returns `true` if an object is selected.
fn is_wanted(wanted: &Wanted, object: &Object) -> bool {
    let namespace = wanted.namespace.as_deref();
    namespace.is_none_or(|it| it == object.key().namespace()) && wanted.selectors.matches(object)
}

fn parse(resource: &Resource, object: &Value) -> Object {
    let mut object = object.clone();
    object["kind"] = json!(resource.kind());
    object["apiVersion"] = json!(resource.api_version());
    Object::parse(resource, object.to_string().into()).unwrap()
}

impl Source for WorldSource {
    fn list(&self, _: ListRequest, _: Meter) -> BoxFuture<Result<Page, Failure>> {
        let it = self.world.0.lock();
        let resource = &self.wanted.resource;
        let all = it.state.get(resource.plural());
        let objects = all.into_iter().flat_map(BTreeMap::values);
        let objects = objects.map(|object| parse(resource, object));
        let page = Page {
            objects: objects.filter(|object| is_wanted(&self.wanted, object)).collect(),
            resource_version: it.rv.to_string(),
            continue_token: String::new(),
            remaining: Some(0),
            skipped: 0,
        };
        Box::pin(async move { Ok(page) })
    }

    fn watch(&self, request: WatchRequest, _: Meter) -> BoxFuture<Result<Events, Failure>> {
        let WatchFrom::After(from) = &request.from else { unreachable!("lists come in pages") };
        let from: u64 = from.parse().unwrap();
        let changed = self.world.0.lock().changed.subscribe();
        let start = (self.world.clone(), self.wanted.clone(), from, changed);
        let events = unfold(start, async |(world, wanted, from, mut changed)| {
            changed.wait_for(|rv| *rv > from).await.ok()?;
            let lag = world.0.lock().lag;
            sleep(lag).await;
            let (items, rv) = world.since(&wanted, from);
            Some((Ok(items), (world, wanted, rv, changed)))
        });
        Box::pin(async move { Ok(Box::pin(events) as Events) })
    }
}

impl World {
    /// What happened to what is wanted, and a bookmark for all that did.
    fn since(&self, wanted: &Wanted, from: u64) -> (Vec<WatchItem>, u64) {
        let (it, resource) = (self.0.lock(), &wanted.resource);
        let news =
            it.log.iter().filter(|(rv, plural, ..)| *rv > from && plural == resource.plural());
        let item = |(rv, _, there, object): &(u64, String, bool, Value)| {
            let object = parse(resource, object).with_revision(Revision(*rv));
            let item = if *there { WatchItem::Modified } else { WatchItem::Deleted };
            is_wanted(wanted, &object).then(|| item(object))
        };
        let mut items: Vec<_> = news.filter_map(item).collect();
        let resource_version = it.rv.to_string();
        if it.bookmarks {
            items.push(WatchItem::Bookmark { resource_version, initial_events_end: false });
        }
        (items, it.rv)
    }
}

/// A resource of the core group.
pub(crate) fn core(plural: &str, kind: &str) -> Resource {
    Resource::new("", "v1", plural, kind, Scope::Namespaced)
}
