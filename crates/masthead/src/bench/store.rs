//! The embedded store alone: durable creations, opening, reading back.

use std::fs::{self, File};
use std::future::poll_fn;
use std::io::{Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use anyhow::Context as _;
use clap::Args;
use masthead_core::{Object, Resource, Revision, Scope};
use masthead_store::{
    CommitError, Condition, EmbeddedStore, Range, ResourceName, Settings, Store, Write,
};
use tokio::runtime::Runtime;
use tokio::task::JoinSet;

use super::place::Place;
use super::report::{Figure, Findings, number};
use super::{Common, pods};

mod bare;

use bare::BareLog;

/// Who creates at the same time.
const WRITERS: u32 = 64;
/// Bytes of an object that is created.
const OBJECT_BYTES: usize = 4096;
/// Values of one page, as a server reads them when it starts.
const PAGE: usize = 1000;
/// Writes of one call while the store is filled.
const FILL: u32 = 250;

#[derive(Args)]
pub(crate) struct StoreArguments {
    /// Objects that are created, and pods that are read back
    #[arg(long, default_value_t = 100_000, value_parser = clap::value_parser!(u32).range(1_000..=1_000_000))]
    pods: u32,
    /// Rounds of creations; the best counts, for the store and for the bare log
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=20))]
    rounds: u32,
    /// Where to measure; everything is removed afterwards
    #[arg(long, default_value_os_t = std::env::temp_dir())]
    dir: PathBuf,
    #[command(flatten)]
    common: Common,
}

/// Nanoseconds a creation, milliseconds for the rest.
#[derive(Default)]
struct Measured {
    create: f64,
    bare: f64,
    /// The same groups written by one thread for nobody.
    groups_alone: f64,
    /// Creations that one sync covers: ours, the bare log's.
    group: (f64, f64),
    /// With everything in the log, with everything in the base.
    open: (f64, f64),
    range: f64,
    replay: f64,
    file: f64,
    bytes: u64,
}

pub(super) fn run(arguments: &StoreArguments) -> anyhow::Result<()> {
    let measured = measure(arguments)?;
    let params = [
        ("pods", arguments.pods.into()),
        ("rounds", arguments.rounds.into()),
        ("writers", WRITERS.into()),
        ("object_bytes", OBJECT_BYTES as u64),
        ("page", PAGE as u64),
    ];
    let mut found = Findings::new("store", &params);
    (found.figures, found.notes) = (measured.figures(), measured.notes());
    found.show(arguments.common.output);
    Ok(())
}

fn measure(arguments: &StoreArguments) -> anyhow::Result<Measured> {
    let place = Place::new(&arguments.dir)?;
    let runtime = Runtime::new()?;
    let mut it = Measured {
        create: f64::INFINITY,
        bare: f64::INFINITY,
        groups_alone: f64::INFINITY,
        ..Measured::default()
    };
    // Side by side: what the machine does meanwhile hits both.
    for round in 0..arguments.rounds {
        let objects = objects(arguments.pods);
        runtime.block_on(it.create(&place, round, &objects))?;
        runtime.block_on(it.create_bare(&place, &objects))?;
        it.write_groups(&place, arguments.pods)?;
    }
    runtime.block_on(it.read_back(&place, arguments.pods))?;
    Ok(it)
}

impl Measured {
    /// Creations by many at a time, each waiting for its answer.
    async fn create(
        &mut self,
        place: &Place,
        round: u32,
        objects: &Arc<Vec<Object>>,
    ) -> anyhow::Result<()> {
        let dir = place.path(&format!("created-{round}"));
        let store = Arc::new(EmbeddedStore::open(&dir, Settings::default())?);
        let leases = ResourceName::from(&lease());
        let start = Instant::now();
        let mut writers = JoinSet::new();
        for writer in 0..WRITERS {
            let (store, objects, leases) = (store.clone(), objects.clone(), leases.clone());
            writers.spawn(async move {
                for object in objects.iter().skip(writer as usize).step_by(WRITERS as usize) {
                    let write = Write::put(leases.clone(), object.clone(), Condition::Absent);
                    store.commit(vec![write]).await.remove(0)?;
                }
                Ok::<_, CommitError>(())
            });
        }
        while let Some(done) = writers.join_next().await {
            done??;
        }
        let each = nanoseconds_each(start, objects.len());
        if each < self.create {
            self.create = each;
            self.group.0 = number(objects.len() as u64) / number(store.groups());
        }
        drop(store);
        Ok(fs::remove_dir_all(dir)?)
    }

    /// The same with a log that knows nothing of objects.
    async fn create_bare(
        &mut self,
        place: &Place,
        objects: &Arc<Vec<Object>>,
    ) -> anyhow::Result<()> {
        let path = place.path("bare");
        let log = Arc::new(BareLog::open(&path)?);
        let start = Instant::now();
        let mut writers = JoinSet::new();
        for writer in 0..WRITERS {
            let (log, objects) = (log.clone(), objects.clone());
            writers.spawn(async move {
                for object in objects.iter().skip(writer as usize).step_by(WRITERS as usize) {
                    log.append(object.body().clone()).await?;
                }
                anyhow::Ok(())
            });
        }
        while let Some(done) = writers.join_next().await {
            done??;
        }
        let each = nanoseconds_each(start, objects.len());
        if each < self.bare {
            self.bare = each;
            self.group.1 = number(objects.len() as u64) / number(log.groups());
        }
        drop(log);
        Ok(fs::remove_file(path)?)
    }

    /// The store's groups, without anybody who waits for them.
    fn write_groups(&mut self, place: &Place, objects: u32) -> anyhow::Result<()> {
        let path = place.path("groups");
        let mut file = File::create(&path)?;
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "small and positive"
        )]
        let group = self.group.0.round() as u32;
        let records = vec![b'x'; group as usize * OBJECT_BYTES];
        let start = Instant::now();
        for _ in 0..objects / group {
            file.write_all(&records)?;
            file.sync_data()?;
        }
        let written = (objects / group * group) as usize;
        self.groups_alone = self.groups_alone.min(nanoseconds_each(start, written));
        Ok(fs::remove_file(path)?)
    }

    /// Opens a store of pods and reads it as a server does: the state at the oldest revision, and in
    /// another run everything from the log.
    async fn read_back(&mut self, place: &Place, pods: u32) -> anyhow::Result<()> {
        let dir = place.path("pods");
        let store = EmbeddedStore::open(&dir, Settings::default())?;
        self.bytes = fill(&store, pods).await?;
        drop(store);
        let start = Instant::now();
        let store = EmbeddedStore::open(&dir, Settings::default())?;
        self.open.0 = milliseconds(start);
        self.replay = replay(&store).await?;
        store.compact(Revision::MAX).await?;
        drop(store);
        let start = Instant::now();
        let store = EmbeddedStore::open(&dir, Settings::default())?;
        self.open.1 = milliseconds(start);
        let start = Instant::now();
        let bytes = read_pages(&store, store.oldest()).await?;
        self.range = milliseconds(start);
        anyhow::ensure!(bytes == self.bytes, "{bytes} bytes were read of {}", self.bytes);
        drop(store);
        fs::remove_dir_all(dir)?;
        self.file = read_file(&place.path("file"), self.bytes)?;
        Ok(())
    }

    fn figures(&self) -> Vec<Figure> {
        let create = |against, theirs| {
            Figure::new(
                "durable creation, 4 KB, 64 writers",
                self.create,
                "ns",
                (against, Some(theirs)),
                1.25,
            )
        };
        let read = |name, ours, limit| Figure::new(name, ours, "ms", ("limit", Some(limit)), 1.0);
        let share = number(self.bytes) / 946.4e6;
        vec![
            create("bare log", self.bare),
            Figure::new(
                "the same, nobody waiting for the bare log",
                self.create,
                "ns",
                ("its groups", Some(self.groups_alone)),
                f64::INFINITY,
            ),
            read("open a store of pods, all in the log", self.open.0, 100.0),
            read("open a store of pods, all in the base", self.open.1, 100.0),
            read("read all pods at the oldest revision", self.range, 1200.0 * share),
            Figure::new(
                "the same, against reading a file",
                self.range,
                "ms",
                ("plain file", Some(self.file)),
                f64::INFINITY,
            ),
            read("replay all pods from the log", self.replay, 1200.0 * share),
        ]
    }

    fn notes(&self) -> Vec<String> {
        let (ours, bare) = self.group;
        vec![
            format!(
                "{:.0} creations a second, {:.0} % of a bare log's; a sync covers {ours:.0} of them, of the bare log {bare:.0}",
                1e9 / self.create,
                100.0 * self.bare / self.create
            ),
            format!("{:.0} MB of pods were read in pages of {PAGE}", number(self.bytes) / 1e6),
        ]
    }
}

fn lease() -> Resource {
    Resource::new("coordination.k8s.io", "v1", "leases", "Lease", Scope::Namespaced)
}

fn objects(count: u32) -> Arc<Vec<Object>> {
    let resource = lease();
    Arc::new((0..count).map(|i| object(&resource, i)).collect())
}

/// Object `i`, of 4 KB.
fn object(resource: &Resource, i: u32) -> Object {
    let head = format!(
        r#"{{"kind":"Lease","apiVersion":"coordination.k8s.io/v1","metadata":{{"name":"lease-{i:07}","namespace":"team-{:02}"}},"spec":{{"holderIdentity":""#,
        i % 40
    );
    let mut body = head.into_bytes();
    let mut at = i;
    while body.len() < OBJECT_BYTES - 3 {
        at = at.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        body.push(b'a' + (at >> 24) as u8 % 26);
    }
    body.extend_from_slice(b"\"}}");
    Object::parse(resource, body.into()).expect("it is valid")
}

/// Fills a store with pods; gives the bytes of their bodies.
pub(super) async fn fill(store: &EmbeddedStore, count: u32) -> anyhow::Result<u64> {
    let (resource, mut bytes) = (Resource::pods(), 0);
    for first in (0..count).step_by(FILL as usize) {
        let pods = (first..count.min(first + FILL)).map(|i| pods::pod(&resource, i, 1, 0));
        let writes = pods.map(|pod| Write::put((&resource).into(), pod, Condition::Absent));
        for result in store.commit(writes.collect()).await {
            bytes += result?.value.body().len() as u64;
        }
    }
    Ok(bytes)
}

async fn read_pages(store: &EmbeddedStore, at: Revision) -> anyhow::Result<u64> {
    let (mut after, mut bytes) = (None, 0);
    loop {
        let range = Range { resource: (&Resource::pods()).into(), after, limit: PAGE, at };
        let page = store.range(range).await?;
        bytes += page.values.iter().map(|value| value.body().len() as u64).sum::<u64>();
        after = page.next;
        if after.is_none() {
            return Ok(bytes);
        }
    }
}

/// Milliseconds for everything that the log has.
async fn replay(store: &EmbeddedStore) -> anyhow::Result<f64> {
    let (start, current) = (Instant::now(), store.current().await?);
    let mut watch = store.watch(store.oldest())?;
    let mut position = store.oldest();
    while position < current {
        let batch =
            poll_fn(|cx| watch.as_mut().poll_next(cx)).await.context("it does not end")??;
        position = batch.reached;
    }
    Ok(milliseconds(start))
}

/// Milliseconds for so many bytes of a file that was written just now.
fn read_file(path: &Path, bytes: u64) -> anyhow::Result<f64> {
    let mut file = File::create(path)?;
    let mut buffer = vec![b'x'; 1024 * 1024];
    let mut left = usize::try_from(bytes)?;
    while left > 0 {
        let part = left.min(buffer.len());
        file.write_all(&buffer[..part])?;
        left -= part;
    }
    file.sync_all()?;
    let (mut file, start) = (File::open(path)?, Instant::now());
    while file.read(&mut buffer)? > 0 {}
    let read = milliseconds(start);
    fs::remove_file(path)?;
    Ok(read)
}

fn nanoseconds_each(start: Instant, count: usize) -> f64 {
    start.elapsed().as_secs_f64() * 1e9 / number(count as u64)
}

fn milliseconds(start: Instant) -> f64 {
    start.elapsed().as_secs_f64() * 1e3
}
