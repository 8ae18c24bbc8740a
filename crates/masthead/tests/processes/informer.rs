//! An informer beside a server that is killed, cut off and made to forget.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::ConfigMap;
use masthead_informer::upstream::{Settings, Upstream, kube_client};
use masthead_informer::{Event, Factory, HandlerOptions, Informer};
use parking_lot::Mutex;
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

use crate::http::Client;
use crate::server::Server;

pub(crate) const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const KEYS: u64 = 20;
const LASTS: Duration = Duration::from_secs(30);

/// Writes until it is told to stop; a server that is down is no reason to.
fn churn(client: &Client, done: &AtomicBool, written: &AtomicU64) {
    for turn in 0_u64.. {
        if done.load(Ordering::Relaxed) {
            return;
        }
        let name = format!("m{}", turn.wrapping_mul(7) % KEYS);
        let body = format!(r#"{{"metadata":{{"name":"{name}"}},"data":{{"turn":"{turn}"}}}}"#);
        let path = format!("{MAPS}/{name}");
        let answer = match turn % 10 {
            3 => client.ask("DELETE", &path, ""),
            _ => match client.ask("PUT", &path, &body) {
                Ok((404, _)) => client.ask("POST", MAPS, &body),
                other => other,
            },
        };
        if let Ok((200 | 201, _)) = answer {
            written.fetch_add(1, Ordering::Relaxed);
        } else {
            // Down for a moment: not at full speed against a closed door.
            thread::sleep(Duration::from_millis(5));
        }
    }
}

/// A way to the server on which every connection is cut when the number moves.
async fn link(server: SocketAddr, cuts: watch::Sender<u64>) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((mut client, _)) = listener.accept().await {
            let mut cut = cuts.subscribe();
            tokio::spawn(async move {
                let Ok(mut server) = TcpStream::connect(server).await else { return };
                tokio::select! {
                    _ = cut.changed() => {}
                    _ = copy_bidirectional(&mut client, &mut server) => {}
                }
            });
        }
    });
    address
}

/// What a handler was told, and what was wrong with it.
#[derive(Default)]
pub(crate) struct Told {
    pub(crate) keys: BTreeMap<String, (String, String)>,
    pub(crate) wrong: Vec<String>,
    pub(crate) events: u64,
}

impl Told {
    pub(crate) fn hear(&mut self, event: &Event<ConfigMap>) {
        self.events += 1;
        let key = event.key().to_string();
        let version = |it: &masthead_informer::Entry<ConfigMap>| {
            (it.uid().to_owned(), it.resource_version().to_owned())
        };
        let before = self.keys.get(&key).cloned();
        let right = match event {
            Event::Added { object, .. } => {
                self.keys.insert(key, version(object));
                before.is_none()
            }
            Event::Updated { old, new, .. } => {
                self.keys.insert(key, version(new));
                let number = |it: &(String, String)| it.1.parse::<u64>().unwrap();
                let grows = before.as_ref().is_some_and(|it| number(it) < number(&version(new)));
                grows && old.as_ref().map(version) == before && before.unwrap().0 == new.uid()
            }
            Event::Deleted { .. } => self.keys.remove(&key).is_some(),
        };
        if !right {
            self.wrong.push(format!("{event:?}"));
        }
    }
}

async fn upstream(address: SocketAddr, token: &str) -> Upstream {
    let mut config = kube_client::Config::new(format!("http://{address}").parse().unwrap());
    config.auth_info.token = Some(token.to_owned().into());
    Upstream::from_config(config, Settings::default()).await.unwrap()
}

/// A synced informer, and what its handler is told.
pub(crate) async fn synced(
    address: SocketAddr,
    token: &str,
) -> (Factory, Informer<ConfigMap>, Arc<Mutex<Told>>) {
    let factory = Factory::new(upstream(address, token).await);
    let informer = factory.informer::<ConfigMap>().namespace("default").build().unwrap();
    let told = Arc::new(Mutex::new(Told::default()));
    let hears = told.clone();
    let handler = move |event: Event<ConfigMap>| {
        hears.lock().hear(&event);
        async {}
    };
    informer.add_handler(&HandlerOptions::default(), handler).unwrap();
    factory.start();
    factory.wait_for_sync().await.unwrap();
    (factory, informer, told)
}

/// Kills the server now and then, and cuts its connections more often.
fn torment(directory: &Path, mut server: Server, cuts: &watch::Sender<u64>) -> (Server, u64) {
    let (began, listen, mut kills) = (Instant::now(), server.address.to_string(), 0);
    while began.elapsed() < LASTS {
        for _ in 0..3 {
            thread::sleep(Duration::from_millis(700));
            cuts.send_modify(|cuts| *cuts += 1);
        }
        server.kill();
        kills += 1;
        server = start(directory, &listen);
    }
    (server, kills)
}

fn start(directory: &Path, listen: &str) -> Server {
    Server::start_on(directory, listen, &["--insecure-http", "--keep-age", "100ms"])
}

/// The server's own word on what there is.
pub(crate) fn listed(client: &Client) -> (BTreeMap<String, (String, String)>, u64) {
    let (code, list) = client.ask("GET", MAPS, "").unwrap();
    assert_eq!(code, 200);
    let text =
        |it: &serde_json::Value, name: &str| it["metadata"][name].as_str().unwrap().to_owned();
    let items = list["items"].as_array().unwrap().iter().map(|it| {
        let key = format!("{}/{}", text(it, "namespace"), text(it, "name"));
        (key, (text(it, "uid"), text(it, "resourceVersion")))
    });
    (items.collect(), text(&list, "resourceVersion").parse().unwrap())
}

pub(crate) fn cached(informer: &Informer<ConfigMap>) -> BTreeMap<String, (String, String)> {
    let state = informer.lister();
    let entries = state
        .namespace("default")
        .map(|it| (it.key().to_string(), (it.uid().to_owned(), it.resource_version().to_owned())));
    entries.collect()
}

#[test]
fn an_informer_keeps_its_word_beside_a_server_that_is_killed_cut_off_and_forgetful() {
    let _alone = crate::alone();
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    let runtime = runtime.unwrap();
    let directory = tempfile::tempdir().unwrap();
    let server = start(directory.path(), "127.0.0.1:0");
    let client = Client { address: server.address, token: server.token.clone() };
    let cuts = watch::Sender::new(0);
    let (factory, informer, told) = runtime.block_on(async {
        let link = link(server.address, cuts.clone()).await;
        synced(link, &client.token).await
    });
    let (done, written) = (AtomicBool::new(false), AtomicU64::new(0));
    let (server, kills) = thread::scope(|scope| {
        let churning = scope.spawn(|| churn(&client, &done, &written));
        let tormented = torment(directory.path(), server, &cuts);
        done.store(true, Ordering::Relaxed);
        churning.join().unwrap();
        tormented
    });

    let (state, revision) = listed(&client);
    let revision = masthead_core::Revision(revision);
    let there = runtime.block_on(informer.wait_for(revision, Duration::from_secs(60)));
    there.unwrap_or_else(|error| panic!("{error}\n{}", factory.report()));
    assert_eq!(cached(&informer), state);
    let deadline = Instant::now() + Duration::from_secs(60);
    while told.lock().keys != state && Instant::now() < deadline {
        thread::yield_now();
    }
    let told = told.lock();
    assert_eq!(told.keys, state);
    assert_eq!(told.wrong, Vec::<String>::new());
    let report = &informer.reports()[0];
    let (written, relists) = (written.load(Ordering::Relaxed), report.relists);
    assert!(
        written > 1_000 && kills >= 5 && told.events > 500,
        "{written} {kills} {}",
        told.events
    );
    assert!(report.attempts <= 1 + relists.expired, "at most one list for a 410: {report:?}");
    assert!(report.errors.total() > kills, "{report:?}");
    drop(server);
}
