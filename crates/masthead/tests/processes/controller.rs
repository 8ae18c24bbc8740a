//! Controllers beside a server that is killed: they converge, one at a time acts, and none on a cache that is
//! older than what it wrote.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use kube::api::DynamicObject;
use masthead_controller::queue::{Exponential, Settings as QueueSettings};
use masthead_controller::{Action, Context, Controller, LeaderElection, Manager, ReconcileError};
use masthead_core::{ObjectKey, Resource, Revision, Scope};
use masthead_informer::upstream::kube_client::{Api, Client as KubeClient, Config};
use masthead_informer::upstream::{Settings, Upstream};
use masthead_informer::{Factory, Index, Informer};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::runtime::Runtime;
use tokio_util::sync::CancellationToken;

use crate::http::Client;
use crate::server::{Server, masthead};

const FLEETS: &str = "/apis/ship.example/v1/namespaces/default/fleets";
const SHIPS: &str = "/api/v1/namespaces/default/configmaps";
const FLEET_COUNT: u64 = 6;
/// How long the torment lasts, and how long everything may take to come to rest after it.
const LASTS: Duration = Duration::from_secs(18);
const RESTS: Duration = Duration::from_secs(90);

fn fleets() -> Resource {
    Resource::new("ship.example", "v1", "fleets", "Fleet", Scope::Namespaced)
}

fn definition() -> Value {
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "fleets.ship.example"},
        "spec": {"group": "ship.example", "scope": "Namespaced",
            "names": {"plural": "fleets", "singular": "fleet", "kind": "Fleet"},
            "versions": [{"name": "v1", "served": true, "storage": true,
                "schema": {"openAPIV3Schema": {"type": "object"}}, "subresources": {"status": {}}}]},
    })
}

/// Numbers for chaos.
#[derive(Debug, Default)]
struct Dice(AtomicU64);

impl Dice {
    fn below(&self, end: u64) -> u64 {
        let mut z = self.0.fetch_add(0x9e37_79b9_7f4a_7c15, Ordering::Relaxed);
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % end
    }
}

/// What all replicas write down.
#[derive(Default)]
struct Book {
    dice: Dice,
    calm: std::sync::atomic::AtomicBool,
    /// Reconciles under way, by replica. A replica that was killed is none any more.
    acting: Mutex<BTreeMap<u64, u64>>,
    reconciles: AtomicU64,
    panics: AtomicU64,
    wrong: Mutex<Vec<String>>,
}

/// One reconcile in the book, however it ends.
struct Entered(Arc<Book>, u64);

impl Entered {
    fn new(book: &Arc<Book>, replica: u64) -> Self {
        book.reconciles.fetch_add(1, Ordering::Relaxed);
        let mut acting = book.acting.lock();
        *acting.entry(replica).or_default() += 1;
        if acting.values().filter(|count| **count > 0).count() > 1 {
            book.wrong.lock().push(format!("two leaders act: {acting:?}"));
        }
        Self(book.clone(), replica)
    }
}

impl Drop for Entered {
    fn drop(&mut self) {
        if let Some(count) = self.0.acting.lock().get_mut(&self.1) {
            *count -= 1;
        }
    }
}

/// What a replica's reconciles share.
struct Fleets {
    replica: u64,
    book: Arc<Book>,
    ships: Informer<ConfigMap>,
    client: KubeClient,
    /// What was written last for each fleet.
    written: Mutex<BTreeMap<ObjectKey, Revision>>,
}

impl Fleets {
    async fn reconcile(&self, it: Context<DynamicObject>) -> Result<Action, ReconcileError> {
        let _entered = Entered::new(&self.book, self.replica);
        let state = self.ships.lister();
        let written = self.written.lock().get(it.key()).copied().unwrap_or_default();
        if state.revision() < written {
            let wrong = format!("{}: cache at {}, wrote {written}", it.key(), state.revision());
            self.book.wrong.lock().push(wrong);
        }
        let calm = self.book.calm.load(Ordering::Relaxed);
        match self.book.dice.below(20) {
            0 if !calm => {
                self.book.panics.fetch_add(1, Ordering::Relaxed);
                // A panic that is not printed.
                std::panic::resume_unwind(Box::new("as it was told to"));
            }
            1 | 2 if !calm => tokio::time::sleep(Duration::from_millis(300)).await,
            _ => {}
        }
        let api: Api<ConfigMap> = Api::namespaced(self.client.clone(), "default");
        let fleet = it.object().filter(|fleet| fleet.deletion_timestamp().is_none());
        let uid = fleet.map(|fleet| fleet.uid().to_owned()).unwrap_or_default();
        let wanted = match fleet {
            Some(fleet) => fleet.decode()?.data["spec"]["replicas"].as_u64().unwrap_or_default(),
            None => 0,
        };
        let mine: Vec<_> = state.by_index("fleet", it.key().as_str())?.collect();
        let name = |number| format!("{}-{number}", it.key().name());
        let names: Vec<_> = (0..wanted).map(name).collect();
        for ship in &mine {
            let stays = names.iter().any(|name| name == ship.name());
            if !stays || ship.owners().all(|owner| owner.uid != uid) {
                api.delete(ship.name(), &kube::api::DeleteParams::default()).await?;
            }
        }
        for name in names.iter().filter(|name| mine.iter().all(|it| it.name() != name.as_str())) {
            let made =
                api.create(&kube::api::PostParams::default(), &ship(&it, name, &uid)).await?;
            it.wrote(&made);
            let revision = made.metadata.resource_version.unwrap().parse().unwrap();
            self.written.lock().insert(it.key().clone(), Revision(revision));
        }
        Ok(Action::Done)
    }
}

/// A child of a fleet.
fn ship(it: &Context<DynamicObject>, name: &str, uid: &str) -> ConfigMap {
    let owner = OwnerReference {
        api_version: "ship.example/v1".to_owned(),
        kind: "Fleet".to_owned(),
        name: it.key().name().to_owned(),
        uid: uid.to_owned(),
        controller: Some(true),
        ..OwnerReference::default()
    };
    let labels = BTreeMap::from([("fleet".to_owned(), it.key().name().to_owned())]);
    let metadata = ObjectMeta {
        name: Some(name.to_owned()),
        labels: Some(labels),
        owner_references: Some(vec![owner]),
        ..ObjectMeta::default()
    };
    ConfigMap { metadata, ..ConfigMap::default() }
}

/// A process of the controller, but for the process: nothing of it goes on after it was killed.
struct Replica {
    number: u64,
    runtime: Runtime,
}

impl Replica {
    fn start(number: u64, server: SocketAddr, token: &str, book: &Arc<Book>) -> Self {
        let mut runtime = tokio::runtime::Builder::new_multi_thread();
        let runtime = runtime.worker_threads(1).enable_all().build().unwrap();
        let (token, book) = (token.to_owned(), book.clone());
        runtime.spawn(async move { replica(number, server, &token, book).await });
        Self { number, runtime }
    }

    /// As when its machine goes: no lease is given back, no request is finished.
    fn kill(self, book: &Book) {
        self.runtime.shutdown_background();
        book.acting.lock().remove(&self.number);
    }
}

async fn replica(number: u64, server: SocketAddr, token: &str, book: Arc<Book>) {
    let mut config = Config::new(format!("http://{server}").parse().unwrap());
    config.auth_info.token = Some(token.to_owned().into());
    config.default_retry = false;
    let client = KubeClient::try_from(config.clone()).unwrap();
    loop {
        let upstream = Upstream::from_config(config.clone(), Settings::default()).await.unwrap();
        let factory = Factory::new(upstream);
        // By the fleet that they are labelled with.
        let index = Index::by_entry("fleet", |ship, values| {
            if let Some(fleet) = ship.label("fleet") {
                values.push(&format!("default/{fleet}"));
            }
            Ok(())
        });
        let ships = factory.informer::<ConfigMap>().index(index).build().unwrap();
        let (client, book, written) = (client.clone(), book.clone(), Mutex::default());
        let leases = client.clone();
        let shared =
            Arc::new(Fleets { replica: number, book, ships: ships.clone(), client, written });
        let informer = factory.dynamic(&fleets()).build().unwrap();
        let limiter = Exponential { base: Duration::from_millis(5), max: Duration::from_secs(1) };
        let controller = Controller::of("fleets", informer)
            .queue(QueueSettings::default().limiter(limiter))
            .owns(&ships)
            .timeout(Duration::from_secs(10))
            .reconcile(move |it| {
                let shared = shared.clone();
                async move { shared.reconcile(it).await }
            });
        let identity = format!("replica-{number}");
        let election = LeaderElection::new(leases, "default", "fleets", &identity).timing(
            Duration::from_secs(5),
            Duration::from_millis(2_500),
            Duration::from_millis(300),
        );
        let manager = Manager::new(&factory).with(controller).elected(election);
        // A pod would be started again.
        let _ = manager.run(CancellationToken::new()).await;
    }
}

fn start(directory: &Path, listen: &str) -> Server {
    Server::start_on(directory, listen, &["--insecure-http"])
}

/// Asks until there is an answer.
fn ask(client: &Client, method: &str, path: &str, body: &Value) -> (u16, Value) {
    let deadline = Instant::now() + RESTS;
    let body = if body.is_null() { String::new() } else { body.to_string() };
    loop {
        match client.ask(method, path, &body) {
            Ok(answer) => return answer,
            Err(error) if Instant::now() > deadline => panic!("{error}"),
            Err(_) => thread::sleep(Duration::from_millis(20)),
        }
    }
}

fn scale(client: &Client, fleet: u64, replicas: u64) {
    let patch = json!({"spec": {"replicas": replicas}});
    ask(client, "PATCH", &format!("{FLEETS}/fleet-{fleet}"), &patch);
}

/// The ships of each fleet as the server has them, what they should be, and at which revision.
fn state(client: &Client) -> (Vec<String>, Vec<String>, String) {
    let ships = ask(client, "GET", SHIPS, &Value::Null).1;
    let fleets = ask(client, "GET", FLEETS, &Value::Null).1;
    let text = |it: &Value| it.as_str().unwrap_or_default().to_owned();
    let wanted = fleets["items"].as_array().unwrap().iter().flat_map(|fleet| {
        let meta = fleet["metadata"].clone();
        let count = fleet["spec"]["replicas"].as_u64().unwrap();
        (0..count).map(move |n| format!("{}-{n} of {}", text(&meta["name"]), text(&meta["uid"])))
    });
    let there = ships["items"].as_array().unwrap().iter().map(|ship| {
        let meta = &ship["metadata"];
        format!("{} of {}", text(&meta["name"]), text(&meta["ownerReferences"][0]["uid"]))
    });
    let (mut wanted, mut there): (Vec<_>, Vec<_>) = (wanted.collect(), there.collect());
    wanted.sort();
    there.sort();
    let versions = ships["items"].as_array().unwrap().iter();
    let versions: Vec<_> = versions.map(|it| text(&it["metadata"]["resourceVersion"])).collect();
    (wanted, there, versions.join(" "))
}

/// Takes away one ship.
fn sink_one(client: &Client, book: &Book) {
    let (_, there, _) = state(client);
    if !there.is_empty() {
        let at = usize::try_from(book.dice.below(there.len() as u64)).unwrap();
        let name = there[at].split(' ').next().unwrap();
        ask(client, "DELETE", &format!("{SHIPS}/{name}"), &Value::Null);
    }
}

/// Changes what is wanted, takes away what is there, and kills who leads and who serves.
fn torment(
    directory: &Path,
    mut server: Server,
    client: &Client,
    mut replicas: Vec<Replica>,
    book: &Arc<Book>,
) -> (Server, Vec<Replica>) {
    let (began, listen) = (Instant::now(), server.address.to_string());
    let (mut servers, mut leaders, mut number) = (0, 0, 3);
    while began.elapsed() < LASTS {
        thread::sleep(Duration::from_millis(20 + book.dice.below(150)));
        if book.dice.below(4) == 0 {
            scale(client, book.dice.below(FLEET_COUNT), book.dice.below(6));
        } else {
            sink_one(client, book);
        }
        // Twice each, one after the other.
        let due = LASTS / 5;
        if began.elapsed() > due * (2 * servers + 1) && servers < 2 {
            server.kill();
            servers += 1;
            server = start(directory, &listen);
        }
        if began.elapsed() > due * (2 * leaders + 2) && leaders < 2 {
            let lease = "/apis/coordination.k8s.io/v1/namespaces/default/leases/fleets";
            let lease = ask(client, "GET", lease, &Value::Null).1;
            let holder = lease["spec"]["holderIdentity"].as_str().unwrap_or_default().to_owned();
            if let Some(at) =
                replicas.iter().position(|it| format!("replica-{}", it.number) == holder)
            {
                replicas.remove(at).kill(book);
                leaders += 1;
                replicas.push(Replica::start(number, client.address, &client.token, book));
                number += 1;
            }
        }
    }
    (server, replicas)
}

/// I4: it converges, and stays so.
fn rest(client: &Client) {
    let deadline = Instant::now() + RESTS;
    loop {
        let (wanted, there, versions) = state(client);
        if wanted == there {
            thread::sleep(Duration::from_secs(1));
            if state(client).2 == versions {
                return;
            }
        }
        assert!(Instant::now() < deadline, "wanted {wanted:?}, there {there:?}");
        thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn controllers_converge_beside_a_server_that_is_killed_and_one_at_a_time_acts() {
    let directory = tempfile::tempdir().unwrap();
    let server = start(directory.path(), "127.0.0.1:0");
    let client = Client { address: server.address, token: server.token.clone() };
    let definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    assert_eq!(ask(&client, "POST", definitions, &definition()).0, 201);
    for number in 0..FLEET_COUNT {
        let name = format!("fleet-{number}");
        let body = json!({"apiVersion": "ship.example/v1", "kind": "Fleet",
            "metadata": {"name": name}, "spec": {"replicas": 3}});
        assert_eq!(ask(&client, "POST", FLEETS, &body).0, 201);
    }
    let book = Arc::new(Book::default());
    let replicas: Vec<_> =
        (0..3).map(|it| Replica::start(it, server.address, &client.token, &book)).collect();
    rest(&client);
    let (server, replicas) = torment(directory.path(), server, &client, replicas, &book);
    book.calm.store(true, Ordering::Relaxed);
    rest(&client);
    for replica in replicas {
        replica.kill(&book);
    }
    assert_eq!(*book.wrong.lock(), Vec::<String>::new());
    let (reconciles, panics) =
        (book.reconciles.load(Ordering::Relaxed), book.panics.load(Ordering::Relaxed));
    assert!(reconciles > 20 && panics > 0, "{reconciles} reconciles, {panics} panics");
    drop(server);
}

/// What a manager says of itself; nothing if nobody answers.
fn told(address: SocketAddr, path: &str) -> String {
    let mut answer = String::new();
    if let Ok(mut stream) = TcpStream::connect(address) {
        let head = format!("GET {path} HTTP/1.1\r\nhost: it\r\nconnection: close\r\n\r\n");
        let _ = stream.write_all(head.as_bytes());
        let _ = stream.read_to_string(&mut answer);
    }
    answer
}

#[test]
fn a_manager_says_how_it_is_and_what_it_does() {
    let directory = tempfile::tempdir().unwrap();
    let server = start(directory.path(), "127.0.0.1:0");
    let client = Client { address: server.address, token: server.token.clone() };
    assert_eq!(ask(&client, "POST", SHIPS, &json!({"metadata": {"name": "it"}})).0, 201);
    let mut config = Config::new(format!("http://{}", server.address).parse().unwrap());
    config.auth_info.token = Some(server.token.clone().into());
    let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let runtime = Runtime::new().unwrap();
    let stop = CancellationToken::new();
    let manager = runtime.block_on(async {
        let upstream = Upstream::from_config(config, Settings::default()).await.unwrap();
        let factory = Factory::new(upstream);
        let maps = Controller::<ConfigMap>::new(&factory, "maps").unwrap();
        let maps = maps.reconcile(async |_: Context<ConfigMap>| Ok(Action::Done));
        Manager::new(&factory).with(maps).listen(address)
    });
    let running = runtime.spawn(manager.run(stop.clone()));
    let deadline = Instant::now() + RESTS;
    let done = "controller_runtime_reconcile_total{controller=\"maps\",result=\"success\"} 1";
    while !told(address, "/metrics").contains(done) {
        assert!(Instant::now() < deadline, "{}", told(address, "/metrics"));
        thread::sleep(Duration::from_millis(20));
    }
    assert!(told(address, "/readyz").starts_with("HTTP/1.1 200"));
    assert!(told(address, "/healthz").starts_with("HTTP/1.1 200"));
    assert!(told(address, "/nope").starts_with("HTTP/1.1 404"));
    let metrics = told(address, "/metrics");
    assert!(metrics.contains("content-type: application/openmetrics-text"), "{metrics}");
    for name in ["workqueue_depth", "workqueue_adds_total", "workqueue_queue_duration_seconds"] {
        assert!(metrics.contains(name), "{name} in {metrics}");
    }
    stop.cancel();
    runtime.block_on(running).unwrap().unwrap();
}

/// A controller in a process of its own, which does not outlive the test.
struct Controlling(Child);

impl Drop for Controlling {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_manager_that_is_told_to_stop_comes_to_a_good_end() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start(directory.path(), &["--insecure-http", "--store=memory"]);
    let client = Client { address: server.address, token: server.token.clone() };
    for signal in ["TERM", "INT"] {
        let mut command = masthead(&["bench", "controller-child"]);
        command.env("KUBECONFIG", &server.kubeconfig).stdin(Stdio::null());
        let mut controlling = Controlling(command.spawn().unwrap());
        // It runs: a deployment gets its config map.
        let name = format!("told-{}", signal.to_lowercase());
        let labels = json!({"app": name});
        let deployment = json!({"metadata": {"name": name}, "spec": {
            "selector": {"matchLabels": labels}, "template": {"metadata": {"labels": labels},
            "spec": {"containers": [{"name": "main", "image": "registry.example/main:1"}]}}}});
        let path = "/apis/apps/v1/namespaces/default/deployments";
        assert_eq!(ask(&client, "POST", path, &deployment).0, 201);
        let deadline = Instant::now() + RESTS;
        while ask(&client, "GET", &format!("{SHIPS}/{name}"), &Value::Null).0 != 200 {
            assert!(Instant::now() < deadline, "the controller does nothing");
            thread::sleep(Duration::from_millis(20));
        }
        let pid = controlling.0.id().to_string();
        assert!(Command::new("kill").args(["-s", signal, &pid]).status().unwrap().success());
        let ended = loop {
            if let Some(ended) = controlling.0.try_wait().unwrap() {
                break ended;
            }
            assert!(Instant::now() < deadline, "it goes on after {signal}");
            thread::sleep(Duration::from_millis(20));
        };
        assert!(ended.success(), "{signal}: {ended}");
    }
}
