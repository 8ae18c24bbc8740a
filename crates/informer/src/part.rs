//! One reflector and one cache, shared by all who ask for the same.

use std::any::TypeId;
use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};

use futures_util::FutureExt;
use masthead_cache::{Cache, Config, HistoryLimits, Index, Writer};
use masthead_core::{Object, Panic, Resource, Time};
use masthead_reflector::{Driver, Report, Settings, Source, Start};
use parking_lot::Mutex;
use tokio::sync::{oneshot, watch};
use tokio::task::JoinHandle;

use crate::connector::{Connector, Wanted};
use crate::entry::Reading;
use crate::representation::Packer;
use crate::saved::{self, Saved};
use crate::subscriber::Subscriber;
use crate::tasks::{TaskEnded, Tasks};
use crate::user_calls::UserFunction;
use crate::{HandlerReport, Representation, ResourceReport};

/// What makes two parts the same.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct PartKey {
    /// Group, version, plural.
    pub(crate) resource: (String, String, String),
    pub(crate) fields: Vec<String>,
    pub(crate) namespace: Option<String>,
    pub(crate) selectors: [String; 3],
    pub(crate) representation: Representation,
    pub(crate) held_type: Option<TypeId>,
    pub(crate) projection: crate::Projection,
    pub(crate) transform: Option<usize>,
}

/// How much a part is needed. Of several who ask, the strongest word counts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Demand {
    pub(crate) required: bool,
    pub(crate) critical: bool,
    pub(crate) sync_timeout: Option<std::time::Duration>,
}

/// One reflector and one cache.
pub(crate) struct Part {
    pub(crate) wanted: Wanted,
    pub(crate) cache: Cache,
    pub(crate) reading: Arc<Reading>,
    demand: Mutex<Demand>,
    connector: Arc<dyn Connector>,
    source: Arc<dyn Source>,
    settings: Settings,
    report: watch::Sender<Report>,
    seed: u64,
    run: Mutex<Run>,
    readers: Mutex<Vec<Arc<Subscriber>>>,
    saved: Option<PathBuf>,
    pub(crate) tasks: Arc<Tasks>,
    /// Taken by the first start.
    on_error: Mutex<Option<OnError>>,
}

/// Whether the reflector runs.
enum Run {
    Stopped(Writer),
    /// The writer comes back when the driver ends. Dropping the sender ends it.
    Running(oneshot::Sender<()>, JoinHandle<Option<Writer>>),
    /// On the way from running to stopped. `again` says that a start was requested meanwhile.
    Stopping {
        again: bool,
    },
    /// The driver ended unexpectedly, and the writer is lost.
    Ended,
}

/// What a part is made of.
pub(crate) struct Plan {
    pub(crate) wanted: Wanted,
    pub(crate) packer: Packer,
    pub(crate) history: HistoryLimits,
    pub(crate) indexes: Vec<Index>,
    pub(crate) settings: Settings,
    pub(crate) demand: Demand,
    pub(crate) saved: Option<PathBuf>,
    pub(crate) reading: Arc<Reading>,
    /// Zero: one of its own.
    pub(crate) seed: u64,
    pub(crate) on_error: Option<OnError>,
}

/// Is told of every resource that something went wrong with.
pub(crate) type OnError = Arc<dyn Fn(&ResourceReport) + Send + Sync>;

impl Part {
    pub(crate) fn new(
        plan: Plan,
        connector: &Arc<dyn Connector>,
        tasks: &Arc<Tasks>,
    ) -> Result<Arc<Self>, masthead_upstream::SourceError> {
        let Plan { wanted, packer, history, mut indexes, settings, .. } = plan;
        let Plan { demand, saved, reading, seed, on_error, .. } = plan;
        indexes.insert(0, Index::owner());
        let seed = if seed == 0 { RandomState::new().hash_one(0) } else { seed };
        let (mut writer, cache) = Cache::new(Config { history, indexes, seed, lane: None });
        if let Some(path) = &saved {
            let pack = |object| packer.pack_changed(object, &cache);
            restore(path, &wanted, pack, &mut writer);
        }
        let known = cache.clone();
        let source =
            connector.source(&wanted, Arc::new(move |object| packer.pack(object, &known)))?;
        Ok(Arc::new(Self {
            wanted,
            cache,
            reading,
            demand: Mutex::new(demand),
            connector: connector.clone(),
            source,
            settings,
            report: watch::Sender::new(Report::default()),
            seed,
            run: Mutex::new(Run::Stopped(writer)),
            readers: Mutex::default(),
            saved,
            tasks: tasks.clone(),
            on_error: Mutex::new(on_error),
        }))
    }

    pub(crate) fn resource(&self) -> &Resource {
        &self.wanted.resource
    }

    pub(crate) fn demand(&self) -> Demand {
        *self.demand.lock()
    }

    /// Somebody else needs it too.
    pub(crate) fn demand_also(&self, other: Demand) {
        let mut demand = self.demand.lock();
        demand.required |= other.required;
        demand.critical |= other.critical;
        demand.sync_timeout = other.sync_timeout.max(demand.sync_timeout);
    }

    pub(crate) fn report(&self) -> watch::Receiver<Report> {
        self.report.subscribe()
    }

    /// Begins, or goes on where it was stopped. Does nothing if it runs.
    pub(crate) fn start(self: &Arc<Self>) {
        let mut run = self.run.lock();
        *run = match std::mem::replace(&mut *run, Run::Stopping { again: true }) {
            Run::Stopped(writer) => {
                let (stop, stopped) = oneshot::channel::<()>();
                let driver = self.driver(writer).run_until(async {
                    let _ = stopped.await;
                });
                if let Some(on_error) = self.on_error.lock().take() {
                    let (part, report) = (Arc::downgrade(self), self.report());
                    let name = format!("error callback of {}", self.resource());
                    let telling = tell_errors(part, report, on_error).map(Some);
                    self.tasks.spawn(name, telling, |_| ());
                }
                Run::Running(stop, self.spawn_driver(driver))
            }
            Run::Stopping { .. } => Run::Stopping { again: true },
            as_it_was @ (Run::Running(..) | Run::Ended) => as_it_was,
        };
    }

    /// Spawns the driver. If it ends unexpectedly, the report says so.
    fn spawn_driver(
        &self,
        driver: impl Future<Output = Writer> + Send + 'static,
    ) -> JoinHandle<Option<Writer>> {
        let report = self.report.clone();
        self.tasks.spawn(self.task_name(), driver.map(Some), move |ended| {
            report.send_modify(|report| report.ended = Some(ended.reason.clone()));
        })
    }

    /// What the task that fills the cache is called.
    fn task_name(&self) -> String {
        format!("reflector of {}", self.resource())
    }

    /// Waits until the driver ends unexpectedly.
    pub(crate) async fn ended(&self) -> TaskEnded {
        let mut report = self.report();
        let ended = report.wait_for(|report| report.ended.is_some()).await;
        let reason = ended.expect("the sender is held with `self`").ended.clone();
        TaskEnded::new(&self.task_name(), &reason.unwrap_or_default())
    }

    fn driver(&self, writer: Writer) -> Driver<Arc<dyn Source>> {
        let resumes = self.cache.is_ready() && !self.report.borrow().opaque;
        let start = match self.cache.revision() {
            // Everything up to here is there: only what follows is needed.
            revision if resumes => Start::At(revision.to_string()),
            _ => Start::Empty,
        };
        let (source, memory) = (self.source.clone(), self.connector.memory());
        let settings = self.settings.clone();
        let driver = Driver::starting(source, writer, settings, memory, start, self.seed);
        driver.with_report(self.report.clone()).named(&self.resource().to_string())
    }

    /// Ends the reflector; the cache stays as it is.
    pub(crate) async fn stop(self: &Arc<Self>) {
        let Some((stop, driver)) = self.begin_stop() else { return };
        drop(stop);
        // The end of a driver was logged when it came; a cancelled one ended with its runtime.
        let Some(writer) = driver.await.ok().flatten() else {
            *self.run.lock() = Run::Ended;
            return;
        };
        let before = std::mem::replace(&mut *self.run.lock(), Run::Stopped(writer));
        let part = self.clone();
        // A large cache takes a while, and others are on this thread.
        saving(tokio::task::spawn_blocking(move || part.save())).await;
        if matches!(before, Run::Stopping { again: true }) {
            self.start();
        }
    }

    /// What has to end, if it runs.
    fn begin_stop(&self) -> Option<(oneshot::Sender<()>, JoinHandle<Option<Writer>>)> {
        let mut run = self.run.lock();
        match std::mem::replace(&mut *run, Run::Stopping { again: false }) {
            Run::Running(stop, driver) => Some((stop, driver)),
            Run::Stopping { .. } => None,
            as_it_was @ (Run::Stopped(_) | Run::Ended) => {
                *run = as_it_was;
                None
            }
        }
    }

    pub(crate) fn add_reader(&self, subscriber: &Arc<Subscriber>) {
        self.readers.lock().push(subscriber.clone());
    }

    pub(crate) fn remove_reader(&self, subscriber: &Arc<Subscriber>) {
        self.readers.lock().retain(|other| !Arc::ptr_eq(other, subscriber));
    }

    pub(crate) fn readers(&self) -> Vec<HandlerReport> {
        self.readers.lock().iter().map(|reader| reader.report()).collect()
    }

    /// If readers make the cache keep too much, the one that is behind the most loses its place (R20).
    pub(crate) fn bound_pins(&self, bytes_max: usize) {
        if self.cache.memory().pinned <= bytes_max {
            return;
        }
        let readers = self.readers.lock().clone();
        let places = readers.iter().filter_map(|reader| Some((reader.keeps()?, reader)));
        if let Some((revision, reader)) = places.min_by_key(|(revision, _)| *revision) {
            tracing::warn!(?reader, %revision, resource = %self.resource(), "handler is stalled");
            reader.lose_place();
        }
    }

    /// Writes the cache to where it is to be found by the next run.
    pub(crate) fn save(&self) {
        let Some(path) = &self.saved else { return };
        let (opaque, ended) = {
            let report = self.report.borrow();
            (report.opaque, report.ended.is_some())
        };
        if !self.cache.is_ready() || opaque || ended {
            return;
        }
        let saved = Saved { wanted: &self.wanted, snapshot: self.cache.snapshot() };
        if let Err(error) = saved.write(path) {
            tracing::warn!(path = %path.display(), %error, "cache was not saved");
        }
    }
}

/// Waits until a cache is saved.
pub(crate) async fn saving(task: JoinHandle<()>) {
    if let Err(error) = task.await
        && let Ok(payload) = error.try_into_panic()
    {
        tracing::error!(panic = %Panic::of_payload(payload), "cache was not saved");
    }
}

/// Calls back when something new went wrong, for as long as there is the part.
async fn tell_errors(part: Weak<Part>, mut report: watch::Receiver<Report>, on_error: OnError) {
    let errors = |report: &Report| (report.errors.total(), report.ended.is_some());
    let mut told = errors(&report.borrow_and_update());
    loop {
        told = match report.wait_for(|report| errors(report) != told).await {
            Ok(now) => errors(&now),
            Err(_) => return,
        };
        let Some(part) = part.upgrade() else { return };
        let report = ResourceReport::of(&part);
        let call = || on_error(&report);
        // A panic was logged and counted, and it is called again at the next error.
        let _ = part.reading.calls().contain(UserFunction::ErrorCallback, None, call);
    }
}

/// Fills a cache from a file, if there is one that fits.
fn restore(path: &Path, wanted: &Wanted, pack: impl Fn(Object) -> Object, writer: &mut Writer) {
    match saved::read(path, wanted) {
        Ok(Some((objects, revision))) => {
            let objects = objects.into_iter().map(pack).collect();
            let filled = writer.replace(objects, revision, Time(0));
            filled.expect("an empty cache takes any list");
        }
        Ok(None) => {}
        Err(error) => {
            tracing::warn!(path = %path.display(), %error, "saved cache is not used");
        }
    }
}

impl fmt::Debug for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Part").field("wanted", &self.wanted).finish_non_exhaustive()
    }
}

/// Those parts of a factory that somebody still holds.
#[derive(Default, Debug)]
pub(crate) struct Parts(Vec<(PartKey, Weak<Part>)>);

impl Parts {
    pub(crate) fn find(&mut self, key: &PartKey) -> Option<Arc<Part>> {
        self.0.retain(|(_, part)| part.strong_count() > 0);
        let found = self.0.iter().find(|(other, _)| other == key);
        found.and_then(|(_, part)| part.upgrade())
    }

    pub(crate) fn add(&mut self, key: PartKey, part: &Arc<Part>) {
        self.0.push((key, Arc::downgrade(part)));
    }

    pub(crate) fn all(&self) -> Vec<Arc<Part>> {
        self.0.iter().filter_map(|(_, part)| part.upgrade()).collect()
    }
}
