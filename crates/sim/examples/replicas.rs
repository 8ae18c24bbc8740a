//! What several servers on one etcd make of a load, by simulation: `cargo run -p masthead-sim --example replicas`.
//!
//! Queues with what `docs/replicas.md` says things cost, on machines of four processors: each update is written,
//! sent to every server by the etcd member that it follows, taken in, and delivered to the watches that it concerns.
//! It shows what the sums on that page do not: where things wait for each other.
#![expect(clippy::print_stdout, reason = "an example shows what it does")]

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Nanoseconds.
type Time = u64;

const MICROSECOND: Time = 1_000;
const MILLISECOND: Time = 1_000_000;
const SECOND: Time = 1_000_000_000;

/// etcd: an update, and telling one server of it; until it is on disk in two places.
const WRITE: Time = 1_100 * MICROSECOND;
const TELL: Time = 50 * MICROSECOND;
const DISK: Time = 2 * MILLISECOND;
/// A server: taking in an update, and a delivery.
const TAKE_IN: Time = 130 * MICROSECOND;
const DELIVER: Time = 10 * MICROSECOND;
/// A server: a client that comes back on a connection of its own; at most, as the test that measures it has
/// the clients on the same processors.
const COME_BACK: Time = 900 * MICROSECOND;
/// Clients that lost their server come back between these.
const BACK: (Time, Time) = (800 * MILLISECOND, 1_600 * MILLISECOND);
/// A server that was alone is there again after this.
const RESTART: Time = 3 * SECOND;
/// A pod as it is and as it was, at 10 Gbit/s.
const ON_THE_WIRE: Time = 2 * 9_400 * 8 / 10;
const LATENCY: Time = 100 * MICROSECOND;
const MEMBERS: usize = 3;
const PROCESSORS: usize = 4;
const WATCHES: u64 = 1_000_000;
/// How long it is watched.
const LENGTH: Time = 10 * SECOND;

/// Takes what comes in its order, so many at a time.
struct Queue {
    free: BinaryHeap<Reverse<Time>>,
    busy: Time,
}

impl Queue {
    fn new(width: usize) -> Self {
        Self { free: vec![Reverse(0); width].into(), busy: 0 }
    }

    /// When something is done that comes at this time.
    fn serve(&mut self, at: Time, cost: Time) -> Time {
        let Reverse(free) = self.free.pop().unwrap_or(Reverse(0));
        let done = at.max(free) + cost;
        self.free.push(Reverse(done));
        self.busy += cost;
        done
    }
}

/// A number that looks random (splitmix64).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit
    }
}

struct Outcome {
    delays: Vec<Time>,
    /// Of the busiest member and server: hundredths of what they have.
    etcd: Time,
    wire: Time,
    server: Time,
}

/// What happens next, to the update that was made at a time.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Step {
    Write,
    Tell { server: usize },
    Send { server: usize },
    TakeIn { server: usize },
    Deliver { server: usize },
}

/// Everything that is to come, the next first: when, of the update made when, what.
type Agenda = BinaryHeap<Reverse<(Time, Time, Step)>>;

struct World {
    /// Of each member: its processors and its wire.
    etcd: Vec<(Queue, Queue)>,
    servers: Vec<Queue>,
    /// Watches that an update reaches.
    reach: u64,
    delays: Vec<Time>,
}

impl World {
    fn new(servers: usize, reach: u64) -> Self {
        let member = |_| (Queue::new(PROCESSORS), Queue::new(1));
        let etcd = (0..MEMBERS).map(member).collect();
        let servers = (0..servers).map(|_| Queue::new(PROCESSORS)).collect();
        Self { etcd, servers, reach, delays: Vec::new() }
    }

    fn step(&mut self, agenda: &mut Agenda, now: Time, made: Time, step: Step) {
        let mut then = |at, step| agenda.push(Reverse((at, made, step)));
        match step {
            Step::Write => {
                let written = self.etcd[0].0.serve(now, WRITE) + DISK;
                (0..self.servers.len()).for_each(|server| then(written, Step::Tell { server }));
            }
            Step::Tell { server } => {
                then(self.etcd[server % MEMBERS].0.serve(now, TELL), Step::Send { server });
            }
            Step::Send { server } => {
                let sent = self.etcd[server % MEMBERS].1.serve(now, ON_THE_WIRE) + LATENCY;
                then(sent, Step::TakeIn { server });
            }
            Step::TakeIn { server } => {
                then(self.servers[server].serve(now, TAKE_IN), Step::Deliver { server });
            }
            Step::Deliver { server } => {
                let all = self.servers.len() as u64;
                // Some servers have one more of them, each time others.
                let more = (server as u64 + made / MICROSECOND) % all < self.reach % all;
                for _ in 0..self.reach / all + u64::from(more) {
                    self.delays.push(self.servers[server].serve(now, DELIVER) - made);
                }
            }
        }
    }
}

/// So many updates a second, each of which reaches so many watches.
fn run(servers: usize, updates: u64, reach: u64) -> Outcome {
    let (mut random, mut world) = (Random(7), World::new(servers, reach));
    let (mut agenda, mut at) = (Agenda::new(), 0);
    while at < LENGTH {
        agenda.push(Reverse((at, at, Step::Write)));
        // Not even: between nothing and twice the mean.
        at += random.below(2 * SECOND / updates + 1);
    }
    while let Some(Reverse((now, made, step))) = agenda.pop() {
        world.step(&mut agenda, now, made, step);
    }
    world.delays.sort_unstable();
    let share = |busy: Time, width: usize| busy * 100 / (LENGTH * width as u64);
    let most = |all: &mut dyn Iterator<Item = Time>| all.max().unwrap_or(0);
    Outcome {
        etcd: most(&mut world.etcd.iter().map(|it| share(it.0.busy, PROCESSORS))),
        wire: most(&mut world.etcd.iter().map(|it| share(it.1.busy, 1))),
        server: most(&mut world.servers.iter().map(|it| share(it.busy, PROCESSORS))),
        delays: world.delays,
    }
}

/// One server is killed: until the last of its watches is back on another, or on itself if it was alone.
fn kill(servers: usize) -> Time {
    let mut random = Random(7);
    let others = servers.saturating_sub(1).max(1);
    let mut fleet: Vec<_> = (0..others).map(|_| Queue::new(PROCESSORS)).collect();
    let ready = if servers == 1 { RESTART } else { 0 };
    let mut back: Vec<_> = (0..WATCHES / servers as u64)
        .map(|_| (BACK.0 + random.below(BACK.1 - BACK.0)).max(ready))
        .collect();
    back.sort_unstable();
    let came =
        back.into_iter().enumerate().map(|(at, time)| fleet[at % others].serve(time, COME_BACK));
    came.max().unwrap_or(0)
}

fn main() {
    println!(
        "| servers | updates/s | reach | p50 ms | p99 ms | etcd % | its wire % | a server % | back s |"
    );
    println!("|---|---|---|---|---|---|---|---|---|");
    for (updates, reach) in [(500, 10), (50, 10_000), (1, 1_000_000)] {
        for servers in [1, 10, 100] {
            let it = run(servers, updates, reach);
            let quantile = |share: usize| {
                let delay = it.delays.get(it.delays.len() * share / 100).copied().unwrap_or(0);
                format!("{}.{}", delay / MILLISECOND, delay % MILLISECOND / (100 * MICROSECOND))
            };
            let (p50, p99, back) = (quantile(50), quantile(99), kill(servers));
            let back = format!("{}.{}", back / SECOND, back % SECOND / (100 * MILLISECOND));
            let (etcd, wire, server) = (it.etcd, it.wire, it.server);
            println!(
                "| {servers} | {updates} | {reach} | {p50} | {p99} | {etcd} | {wire} | {server} | {back} |"
            );
        }
    }
}
