//! Controllers beside a server that is killed: they converge, one at a time acts, and none on a cache that is
//! older than what it wrote.

mod fleets;
mod judge;
mod log;
mod manager;
mod record;
mod replica;

use std::collections::BTreeSet;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::http::Client;
use crate::server::Server;
use fleets::identity;
use record::{Event, Line, Record};
use replica::{Orders, Replica};

const FLEETS: &str = "/apis/ship.example/v1/namespaces/default/fleets";
const SHIPS: &str = "/api/v1/namespaces/default/configmaps";
const LEASE: &str = "/apis/coordination.k8s.io/v1/namespaces/default/leases/fleets";
const FLEET_COUNT: u64 = 6;
/// How long anything may take.
const PATIENCE: Duration = Duration::from_secs(60);

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

/// Asks until there is an answer.
fn ask(client: &Client, method: &str, path: &str, body: &Value) -> (u16, Value) {
    let deadline = Instant::now() + PATIENCE;
    let body = if body.is_null() { String::new() } else { body.to_string() };
    loop {
        match client.ask(method, path, &body) {
            Ok(answer) => return answer,
            Err(error) if Instant::now() > deadline => panic!("{error}"),
            Err(_) => thread::sleep(Duration::from_millis(20)),
        }
    }
}

/// The ships that there should be, those that the server has, and their versions.
fn state(client: &Client) -> (Vec<String>, Vec<String>, Vec<String>) {
    let items = |path: &str| match ask(client, "GET", path, &Value::Null).1["items"].take() {
        Value::Array(items) => items,
        other => panic!("{other}"),
    };
    let text = |it: &Value| it.as_str().unwrap_or_default().to_owned();
    let (ships, fleets) = (items(SHIPS), items(FLEETS));
    let wanted = fleets.iter().flat_map(|fleet| {
        let meta = &fleet["metadata"];
        let count = fleet["spec"]["replicas"].as_u64().unwrap();
        (0..count).map(move |n| format!("{}-{n} of {}", text(&meta["name"]), text(&meta["uid"])))
    });
    let there = ships.iter().map(|ship| {
        let meta = &ship["metadata"];
        format!("{} of {}", text(&meta["name"]), text(&meta["ownerReferences"][0]["uid"]))
    });
    let (mut wanted, mut there): (Vec<_>, Vec<_>) = (wanted.collect(), there.collect());
    wanted.sort();
    there.sort();
    let versions = ships.iter().map(|it| text(&it["metadata"]["resourceVersion"]));
    (wanted, there, versions.collect())
}

/// I4: it converges, and stays so.
fn rest(client: &Client) {
    let deadline = Instant::now() + PATIENCE;
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

/// A server, replicas of a controller, and what is done to them.
struct World<'a> {
    directory: &'a Path,
    /// None while it is down.
    server: Option<Server>,
    client: Client,
    record: Record,
    replicas: Vec<Replica>,
    /// Replicas that were ever started.
    started: u64,
    dice: u64,
}

impl<'a> World<'a> {
    fn start(directory: &'a Path) -> Self {
        let server = start(directory, "127.0.0.1:0");
        let client = Client { address: server.address, token: server.token.clone() };
        let definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
        assert_eq!(ask(&client, "POST", definitions, &definition()).0, 201);
        for number in 0..FLEET_COUNT {
            let name = format!("fleet-{number}");
            let body = json!({"apiVersion": "ship.example/v1", "kind": "Fleet",
                "metadata": {"name": name}, "spec": {"replicas": 3}});
            assert_eq!(ask(&client, "POST", FLEETS, &body).0, 201);
        }
        let (record, dice) = (Record::open(&directory.join("record")), 0);
        let server = Some(server);
        let mut world =
            Self { directory, server, client, record, replicas: Vec::new(), started: 0, dice };
        (0..3).for_each(|_| world.add_replica());
        world
    }

    fn add_replica(&mut self) {
        let Client { address: server, token } = self.client.clone();
        let orders =
            Orders { number: self.started, server, token, record: self.record.path().to_owned() };
        self.replicas.push(Replica::start(&orders));
        self.started += 1;
    }

    fn below(&mut self, end: u64) -> u64 {
        self.dice = self.dice.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.dice;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % end
    }

    /// Changes what is wanted, or takes away what is there.
    fn torment(&mut self) {
        thread::sleep(Duration::from_millis(20 + self.below(100)));
        if self.below(4) == 0 {
            let fleet = format!("{FLEETS}/fleet-{}", self.below(FLEET_COUNT));
            let patch = json!({"spec": {"replicas": self.below(6)}});
            ask(&self.client, "PATCH", &fleet, &patch);
            return;
        }
        let (_, there, _) = state(&self.client);
        if !there.is_empty() {
            let at = usize::try_from(self.below(there.len() as u64)).unwrap();
            let name = there[at].split(' ').next().unwrap();
            ask(&self.client, "DELETE", &format!("{SHIPS}/{name}"), &Value::Null);
        }
    }

    /// Torments until something is there.
    fn until<T>(&mut self, what: &str, find: impl Fn(&Self) -> Option<T>) -> T {
        let deadline = Instant::now() + PATIENCE;
        loop {
            if let Some(found) = find(self) {
                return found;
            }
            assert!(Instant::now() < deadline, "{what}: not in {PATIENCE:?}");
            self.torment();
        }
    }

    /// The place of the replica that holds the lease.
    fn leader(&self) -> Option<usize> {
        let lease = ask(&self.client, "GET", LEASE, &Value::Null).1;
        let holder = lease["spec"]["holderIdentity"].as_str()?;
        self.replicas.iter().position(|it| identity(it.number) == holder)
    }

    fn kill_server(&mut self) {
        self.server.take().unwrap().kill();
        self.server = Some(start(self.directory, &self.client.address.to_string()));
    }

    fn kill_leader(&mut self) {
        let leader = self.until("a leader", Self::leader);
        self.replicas.remove(leader).kill(&self.record);
        self.add_replica();
    }

    /// So that the lease runs out while there is nobody to be asked for it.
    fn kill_leader_and_server(&mut self) {
        self.kill_leader();
        self.kill_server();
    }

    /// Puts the leader to sleep with a write that it was about to do, until another has taken over.
    fn put_leader_to_sleep(&mut self) {
        let (at, number, reconcile) = loop {
            let at = self.until("a leader", Self::leader);
            let number = self.replicas[at].number;
            let since = self.record.lines().len();
            self.replicas[at].tell("hold");
            let found = self.until("a reconcile that is held", |it| {
                let held = held(&it.record.lines(), number, since).map(Some);
                // It may lose the lead meanwhile.
                held.or((it.leader().is_some_and(|leader| leader != at)).then_some(None))
            });
            match found {
                Some(reconcile) => break (at, number, reconcile),
                None => self.replicas[at].tell("go"),
            }
        };
        let sleeper = self.replicas[at].put_to_sleep(&self.record);
        self.until("another leader that acts", |it| {
            let lines = it.record.lines();
            let since = lines.iter().rposition(|it| it.event == Event::Asleep)?;
            lines[since..].iter().find(|it| it.event == Event::Acts).map(drop)
        });
        // When it wakes, nothing keeps it from writing but that it does not lead any more.
        self.replicas[at].tell("go");
        self.record.note(number, None, Event::Awake);
        drop(sleeper);
        self.until("the end of what was held", |it| {
            let ends = Line { replica: number, reconcile: Some(reconcile), event: Event::Ends };
            it.record.lines().contains(&ends).then_some(())
        });
    }
}

fn start(directory: &Path, listen: &str) -> Server {
    Server::start_on(directory, listen, &["--insecure-http", "--keep-age", "5h"])
}

/// A reconcile that would write now if nothing of its replica were held, as it is since a line.
fn held(lines: &[Line], replica: u64, since: usize) -> Option<u64> {
    let mine = |it: &&Line| it.replica == replica;
    lines[since..].iter().filter(mine).find(|it| it.event == Event::Held)?;
    let mut stand = BTreeSet::new();
    for line in lines.iter().filter(mine) {
        match line.event {
            Event::Means => stand.extend(line.reconcile),
            Event::Acts | Event::Ends => stand.retain(|it| Some(*it) != line.reconcile),
            _ => {}
        }
    }
    stand.first().copied()
}

#[test]
fn controllers_converge_beside_a_server_that_is_killed_and_one_at_a_time_acts() {
    let directory = tempfile::tempdir().unwrap();
    let mut world = World::start(directory.path());
    rest(&world.client);
    let faults = [
        World::kill_server,
        World::kill_leader,
        World::put_leader_to_sleep,
        World::kill_leader_and_server,
        World::put_leader_to_sleep,
    ];
    for fault in faults {
        world.until("a leader", World::leader);
        (0..12).for_each(|_| world.torment());
        fault(&mut world);
    }
    world.replicas.iter_mut().for_each(|it| it.tell("calm"));
    rest(&world.client);

    let World { server, record, replicas, .. } = world;
    drop(replicas);
    assert!(server.unwrap().terminate().success());
    let (lines, log) = (record.lines(), log::read(&directory.path().join("store")));
    let count = |event| lines.iter().filter(|it| it.event == event).count();
    let (acts, panics) = (count(Event::Acts), count(Event::Panics));
    println!("{} lines, {acts} writes, {panics} panics, {} commits", lines.len(), log.len());
    assert!(acts > 50 && panics > 0, "the run was too quiet to show anything");
    let wrong = [judge::judge(&lines), judge::judge_log(&log)].concat();
    if !wrong.is_empty() {
        let kept = std::env::temp_dir().join(format!("masthead-record-{}", std::process::id()));
        std::fs::copy(record.path(), &kept).unwrap();
        panic!("{} times wrong, record in {}:\n{}", wrong.len(), kept.display(), wrong.join("\n"));
    }
}
