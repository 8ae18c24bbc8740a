//! The cache alone, at 100,000 pods with two indexes.

use std::collections::HashMap;
use std::hint::black_box;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use masthead_cache::{
    Batch, Cache, Config, Cursor, From, Gaps, HistoryLimits, Index, Interest, Memory, Writer,
};
use masthead_core::{LabelSelector, Mutation, Object, Resource, Revision, Selectors, Time};

use super::report::{Figure, Findings, number};
use super::{CacheArguments, machine, peers, pods};

/// Changes in one call of `apply`, as a busy watch delivers them.
const BATCH: u32 = 100;
/// History kept while updates are measured: what falls out of it is freed inside the measurement.
const HISTORY: usize = 10_000;
/// Few and many cursors, each on another value of one label.
const FEW: u32 = 1_000;
const MANY: u32 = 100_000;
/// Updates measured in each round, and at a time: few enough to be made beforehand. The best time
/// counts, for the peer as well.
const UPDATES: u32 = 50_000;
const AT_A_TIME: u32 = 5_000;
/// Passes over all keys in each round of reads, for the peer as well. One takes a hundredth of a second,
/// in which a neighbour on the machine may have most of the processor's cache: together a second a round.
const READ_PASSES: u32 = 100;

/// Nanoseconds, but for the bytes.
struct Measured {
    memory: Memory,
    /// Resident bytes that filling the cache cost.
    resident: f64,
    same: f64,
    changed: f64,
    alone: f64,
    beside_reader: f64,
    beside_other: f64,
    get: f64,
    snapshot: f64,
    pipeline: f64,
    few: f64,
    many: f64,
    cursor_bytes: f64,
}

pub(super) fn run(arguments: &CacheArguments) -> anyhow::Result<()> {
    let peer = arguments.common.peer(|| peers::client_go(arguments.pods, arguments.rounds))?;
    let measured = measure(arguments)?;
    let params = [
        ("pods", arguments.pods.into()),
        ("rounds", arguments.rounds.into()),
        ("batch", BATCH.into()),
    ];
    let mut found = Findings::new("cache", &params);
    (found.figures, found.notes) = (figures(&measured, peer.as_ref()), vec![measured.note()]);
    found.show(arguments.common.output);
    Ok(())
}

fn measure(arguments: &CacheArguments) -> anyhow::Result<Measured> {
    let before = machine::resident();
    let mut bench = Bench::filled(arguments.pods);
    let memory = bench.cache.memory();
    let resident = number(machine::resident() - before);
    let rounds = arguments.rounds;
    let mut best = |measure: &mut dyn FnMut(&mut Bench) -> f64| {
        (0..rounds).map(|_| measure(&mut bench)).fold(f64::INFINITY, f64::min)
    };
    let keys = keys(arguments.pods, arguments.pods);
    let get = best(&mut |bench| bench.gets(&keys));
    let snapshot = best(&mut |bench| bench.snapshots());
    let same = best(&mut |bench| bench.updates(false));
    let changed = best(&mut |bench| bench.updates(true));
    // Side by side: what the machine does meanwhile hits both.
    let (mut alone, mut beside_reader, mut beside_other) = (f64::MAX, f64::MAX, f64::MAX);
    for _ in 0..rounds {
        alone = alone.min(bench.updates(false));
        beside_reader = beside_reader.min(bench.updates_beside_a_reader());
        beside_other = beside_other.min(bench.updates_beside_another_map());
    }
    let mut best = |measure: &mut dyn FnMut(&mut Bench) -> f64| {
        (0..rounds).map(|_| measure(&mut bench)).fold(f64::INFINITY, f64::min)
    };
    let pipeline = best(&mut Bench::pipeline);
    let (few, few_bytes) = bench.fan(FEW, rounds)?;
    let (many, many_bytes) = bench.fan(MANY, rounds)?;
    let cursor_bytes = few_bytes.max(many_bytes);
    Ok(Measured {
        memory,
        resident,
        same,
        changed,
        alone,
        beside_reader,
        beside_other,
        get,
        snapshot,
        pipeline,
        few,
        many,
        cursor_bytes,
    })
}

fn figures(it: &Measured, peer: Option<&peers::Figures>) -> Vec<Figure> {
    let bytes = |name, ours, limit| Figure::new(name, ours, "B", ("limit", Some(limit)), 1.0);
    let against_peer = |name, ours, key: &str, at_most| {
        let theirs = peer.and_then(|peer| peer.get(key).copied());
        Figure::new(name, ours, "ns", ("client-go", theirs), at_most)
    };
    let objects = number(it.memory.objects as u64);
    let beyond = number((it.memory.total() - it.memory.bodies) as u64) / objects;
    vec![
        bytes("memory an object beyond its body", beyond, 700.0),
        bytes("memory a waiting cursor", it.cursor_bytes, 256.0),
        against_peer("update, index values stay, batches of 100", it.same, "update_same", 1.0),
        against_peer(
            "update, an index value changes, batches of 100",
            it.changed,
            "update_changed",
            2.5,
        ),
        against_peer("get by key", it.get, "get", 1.0),
        against_peer("change to cache, two indexes, one reader", it.pipeline, "pipeline", 0.5),
        Figure::new("snapshot", it.snapshot, "ns", ("limit", Some(1000.0)), 1.0),
        Figure::new(
            "one change, 100,000 cursors on other values",
            it.many,
            "ns",
            ("1,000 cursors", Some(it.few)),
            2.0,
        ),
        Figure::new(
            "update with a reader at full speed",
            it.beside_reader,
            "ns",
            ("no reader", Some(it.alone)),
            1.1,
        ),
        Figure::new(
            "the same, beside a reader of a map of its own",
            it.beside_reader,
            "ns",
            ("other map", Some(it.beside_other)),
            1.1,
        ),
    ]
}

impl Measured {
    fn note(&self) -> String {
        let objects = number(self.memory.objects as u64);
        let accounted = number(self.memory.total() as u64) / objects;
        let resident = self.resident / objects;
        format!(
            "{} pods of {} bytes; an object costs {accounted:.0} bytes by accounting and {resident:.0} resident: \
             allocator slack {:.0}",
            self.memory.objects,
            self.memory.bodies / self.memory.objects,
            resident - accounted
        )
    }
}

/// Nanoseconds for each of `n`.
fn each(elapsed: Duration, n: u32) -> f64 {
    elapsed.as_secs_f64() * 1e9 / f64::from(n)
}

struct Bench {
    resource: Resource,
    writer: Writer,
    cache: Cache,
    pods: u32,
    revision: u64,
    /// How far pods have moved between nodes.
    moves: u32,
}

impl Bench {
    fn filled(pods: u32) -> Self {
        let resource = Resource::pods();
        let node = resource.field_index("spec.nodeName").expect("pods have it");
        let by_node = Index::new("node", move |pod, values| {
            values.extend(pod.field(node));
            Ok(())
        });
        let history = HistoryLimits { changes: HISTORY, ..HistoryLimits::default() };
        let config =
            Config { history, indexes: vec![Index::owner(), by_node], ..Config::default() };
        let (mut writer, cache) = Cache::new(config);
        let objects = (0..pods).map(|i| pods::pod(&resource, i, u64::from(i) + 1, 0)).collect();
        let revision = u64::from(pods);
        writer.replace(objects, Revision(revision), Time(0)).expect("the first list");
        Self { resource, writer, cache, pods, revision, moves: 0 }
    }

    /// New states of pods spread over all keys, in batches; `first` counts updates.
    fn batches(&mut self, first: u32) -> Vec<Vec<Mutation>> {
        let starts = (first..first + AT_A_TIME).step_by(BATCH as usize);
        starts
            .map(|start| {
                let updates = (start..start + BATCH).map(|at| {
                    self.revision += 1;
                    let i = at.wrapping_mul(7919) % self.pods;
                    let object = pods::pod(&self.resource, i, self.revision, self.moves);
                    Mutation::Put { revision: Revision(self.revision), object }
                });
                updates.collect()
            })
            .collect()
    }

    /// Runs `measure` on one round's updates, some at a time, and gives the best time.
    fn best_of_round(&mut self, measure: impl Fn(&mut Self, Vec<Vec<Mutation>>)) -> f64 {
        let mut best = f64::INFINITY;
        for first in (0..UPDATES.min(self.pods)).step_by(AT_A_TIME as usize) {
            let batches = self.batches(first);
            let start = Instant::now();
            measure(self, batches);
            best = best.min(each(start.elapsed(), AT_A_TIME));
        }
        best
    }

    fn apply(&mut self, batches: Vec<Vec<Mutation>>) {
        for batch in batches {
            self.writer.apply(batch, Time(0));
        }
    }

    fn updates(&mut self, moving: bool) -> f64 {
        self.moves += u32::from(moving);
        self.best_of_round(Self::apply)
    }

    fn updates_beside_a_reader(&mut self) -> f64 {
        let cache = self.cache.clone();
        let keys = keys(self.pods, 1024);
        self.updates_beside(move || {
            let snapshot = cache.snapshot();
            for key in &keys {
                black_box(snapshot.read(key, std::ptr::from_ref));
            }
        })
    }

    /// What a busy neighbour costs on this machine whatever it reads: the floor for the above.
    fn updates_beside_another_map(&mut self) -> f64 {
        let keys = keys(self.pods, 1024);
        let map: HashMap<String, u32> = (0..self.pods).map(|i| (pods::key(i), i)).collect();
        self.updates_beside(move || {
            for key in &keys {
                black_box(map.get(key));
            }
        })
    }

    fn updates_beside(&mut self, neighbour: impl Fn() + Send + Sync) -> f64 {
        let (stop, rounds) = (AtomicBool::new(false), AtomicU64::new(0));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    neighbour();
                    rounds.fetch_add(1, Ordering::Relaxed);
                }
            });
            while rounds.load(Ordering::Relaxed) == 0 {
                std::thread::yield_now();
            }
            let each = self.updates(false);
            stop.store(true, Ordering::Relaxed);
            each
        })
    }

    /// Point reads, all over the keys; the best time, as everywhere.
    fn gets(&self, keys: &[String]) -> f64 {
        let snapshot = self.cache.snapshot();
        let time = |keys: &[String]| {
            let start = Instant::now();
            for key in keys {
                assert!(
                    snapshot.read(key, |object| black_box(std::ptr::from_ref(object))).is_some()
                );
            }
            each(start.elapsed(), AT_A_TIME)
        };
        let passes = (0..READ_PASSES).flat_map(|_| keys.chunks_exact(AT_A_TIME as usize));
        passes.map(time).fold(f64::INFINITY, f64::min)
    }

    fn snapshots(&self) -> f64 {
        let count = 1_000_000;
        let start = Instant::now();
        for _ in 0..count {
            black_box(self.cache.snapshot());
        }
        each(start.elapsed(), count)
    }

    /// One thread applies changes, another reads every one.
    fn pipeline(&mut self) -> f64 {
        self.best_of_round(|bench, batches| {
            let from = From::After(bench.cache.revision());
            let subscribed = bench.cache.subscribe(Interest::all(), from, Gaps::Bridge);
            let mut cursor = subscribed.expect("it begins at the head");
            std::thread::scope(|scope| {
                scope.spawn(move || read_updates(&mut cursor));
                bench.apply(batches);
            });
        })
    }

    /// The cost of one change, alone in its batch, with `count` cursors of which one is concerned; and
    /// the bytes of a cursor.
    fn fan(&mut self, count: u32, rounds: u32) -> anyhow::Result<(f64, f64)> {
        let mut cursors: Vec<Cursor> =
            (0..count).map(|i| self.follow(i)).collect::<anyhow::Result<_>>()?;
        let bytes: usize = cursors.iter().map(Cursor::bytes).sum();
        let mut best = f64::INFINITY;
        let mut batch = Batch::default();
        for _ in 0..rounds {
            let objects: Vec<Object> = (0..AT_A_TIME)
                .map(|at| {
                    self.revision += 1;
                    // Pods of which each has a cursor in both cases.
                    let i = at.wrapping_mul(7919) % FEW;
                    pods::pod(&self.resource, i, self.revision, self.moves)
                })
                .collect();
            let start = Instant::now();
            for object in objects {
                let revision = object.revision();
                self.writer.apply([Mutation::Put { revision, object }], Time(0));
            }
            best = best.min(each(start.elapsed(), AT_A_TIME));
            for cursor in &mut cursors[..FEW as usize] {
                anyhow::ensure!(cursor.try_read(&mut batch, 1024)?, "a cursor was not told");
                while cursor.try_read(&mut batch, 1024)? {}
            }
        }
        Ok((best, number(bytes as u64) / f64::from(count)))
    }

    /// Follows the one pod that has a certain value of a label.
    fn follow(&self, i: u32) -> anyhow::Result<Cursor> {
        let labels = LabelSelector::parse(&format!("{}={}", pods::UNIQUE_LABEL, pods::name(i)))?;
        let interest = Interest::all().with(Selectors { labels, ..Selectors::default() });
        Ok(self.cache.subscribe(interest, From::After(self.cache.revision()), Gaps::End)?)
    }
}

fn read_updates(cursor: &mut Cursor) {
    let mut batch = Batch::default();
    let mut seen = 0;
    while seen < AT_A_TIME as usize {
        if cursor.try_read(&mut batch, 1024).expect("the window is larger than the lag") {
            seen += batch.events.iter().filter(|event| black_box(event).old.is_some()).count();
        } else {
            std::hint::spin_loop();
        }
    }
}

/// Keys of `count` pods in a scattered order.
fn keys(pods: u32, count: u32) -> Vec<String> {
    let scattered = (0..count).map(|at| at.wrapping_mul(7919) % pods);
    scattered.map(pods::key).collect()
}
