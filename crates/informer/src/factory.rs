//! The one place that informers come from.

use std::fmt;
use std::sync::{Arc, OnceLock, Weak};

use futures_util::FutureExt;
use kube_core::DynamicObject;
use kube_core::metadata::PartialObjectMeta;
use masthead_core::{Resource, planted};
use masthead_reflector::SettingsError;
use masthead_upstream::SourceError;
use parking_lot::Mutex;
use tokio::task::AbortHandle;
use tokio::time::Instant;

use crate::connector::Connector;
use crate::kind::Kind;
use crate::limits::HOUSEKEEPING;
use crate::options::InformerBuilder;
use crate::part::{Demand, OnError, Part, PartKey, Parts, Plan, saving};
use crate::report::{ResourceReport, SyncError, SyncReport, wait};
use crate::settings::{FactorySettings, Startup};
use crate::tasks::{TaskEnded, Tasks};

/// Makes informers that share: whoever asks for the same resource, selectors, namespaces and
/// representation gets the same cache and the same watch.
///
/// Cheap to clone. When the last clone and everything made by it is gone, so are its watches.
#[derive(Clone)]
pub struct Factory(Arc<Inner>);

struct Inner {
    connector: Arc<dyn Connector>,
    settings: FactorySettings,
    on_error: OnceLock<OnError>,
    tasks: Arc<Tasks>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    parts: Parts,
    started: bool,
    housekeeping: Option<AbortHandle>,
}

impl Drop for State {
    fn drop(&mut self) {
        if let Some(housekeeping) = &self.housekeeping {
            housekeeping.abort();
        }
    }
}

impl Factory {
    /// A factory with the usual settings.
    pub fn new(connector: impl Connector) -> Self {
        Self::of(connector, FactorySettings::default())
    }

    /// The same with settings of one's own.
    pub fn with_settings(
        connector: impl Connector,
        settings: FactorySettings,
    ) -> Result<Self, SettingsError> {
        settings.validate()?;
        Ok(Self::of(connector, settings))
    }

    fn of(connector: impl Connector, settings: FactorySettings) -> Self {
        let (connector, state) = (Arc::new(connector), Mutex::default());
        let (on_error, tasks) = (OnceLock::new(), Arc::default());
        Self(Arc::new(Inner { connector, settings, on_error, tasks, state }))
    }

    /// Has a function called when something goes wrong with a resource, with how far it is and why.
    /// Errors that follow each other closely may come as one. To be set before informers are made; only
    /// the first call counts. A call that panics is logged and counted, and the next follows.
    pub fn on_error(&self, callback: impl Fn(&ResourceReport) + Send + Sync + 'static) {
        let _ = self.0.on_error.set(Arc::new(callback));
    }

    /// An informer of a type.
    pub fn informer<K: Kind>(&self) -> InformerBuilder<K> {
        InformerBuilder::new(self.clone(), K::resource(), false)
    }

    /// An informer of a resource that is known only at run time: see
    /// [`Upstream::find`](masthead_upstream::Upstream::find).
    pub fn dynamic(&self, resource: &Resource) -> InformerBuilder<DynamicObject> {
        InformerBuilder::new(self.clone(), resource.clone(), false)
    }

    /// An informer of a resource's metadata: the server sends nothing else.
    pub fn metadata(&self, resource: &Resource) -> InformerBuilder<PartialObjectMeta> {
        InformerBuilder::new(self.clone(), resource.clone(), true)
    }

    /// Starts everything that was made, and from now on what will be. After a stop it goes on where it
    /// was.
    pub fn start(&self) {
        let parts = {
            let mut state = self.0.state.lock();
            state.started = true;
            if state.housekeeping.is_none() {
                let factory = Arc::downgrade(&self.0);
                let keeping = keep_house(factory).map(Some);
                let keeping = self.0.tasks.spawn("housekeeping".to_owned(), keeping, |_| ());
                state.housekeeping = Some(keeping.abort_handle());
            }
            state.parts.all()
        };
        let later = self.0.settings.startup == Startup::After;
        let (first, rest): (Vec<_>, Vec<_>) =
            parts.into_iter().partition(|part| !later || part.demand().critical);
        for part in &first {
            part.start();
        }
        if !rest.is_empty() {
            let factory = Arc::downgrade(&self.0);
            let timeouts = self.0.settings.timeouts;
            let starting = async move {
                // What is critical was given its time, whether or not it has synced.
                let _ = wait(&first, &timeouts).await;
                if factory.upgrade().is_some_and(|inner| inner.state.lock().started) {
                    for part in rest {
                        part.start();
                    }
                }
                Some(())
            };
            self.0.tasks.spawn("start of what is not critical".to_owned(), starting, |_| ());
        }
    }

    /// Ends all watches and saves what is to be saved. The caches stay readable.
    pub async fn stop(&self) {
        let parts = {
            let mut state = self.0.state.lock();
            state.started = false;
            state.parts.all()
        };
        for part in parts {
            part.stop().await;
        }
    }

    /// How far everything is.
    pub fn report(&self) -> SyncReport {
        SyncReport { ended: self.0.tasks.ended(), ..SyncReport::of(&self.parts()) }
    }

    /// Waits until a task of this factory ends although nothing told it to, for example because of a bug in it:
    /// what follows a resource, a handler's task, or the factory's housekeeping. Returns the first that did.
    /// Whoever runs informers without a manager waits for this, too: what ended is not started again.
    pub async fn task_ended(&self) -> TaskEnded {
        self.0.tasks.first_ended().await
    }

    /// Waits until everything that is required has synced. Fails at once where the server says no, and
    /// in time where it says nothing; either way with a report that says why, and caches that can be used
    /// as far as they are.
    pub async fn wait_for_sync(&self) -> Result<SyncReport, SyncError> {
        self.wait_for(&self.parts()).await
    }

    pub(crate) async fn wait_for(&self, parts: &[Arc<Part>]) -> Result<SyncReport, SyncError> {
        wait(parts, &self.0.settings.timeouts).await
    }

    pub(crate) fn reflector_settings(&self) -> masthead_reflector::Settings {
        self.0.settings.reflector()
    }

    pub(crate) fn seed(&self) -> u64 {
        self.0.settings.seed
    }

    pub(crate) fn error_callback(&self) -> Option<OnError> {
        self.0.on_error.get().cloned()
    }

    pub(crate) fn parts(&self) -> Vec<Arc<Part>> {
        self.0.state.lock().parts.all()
    }

    /// The part that there is, or a new one.
    pub(crate) fn part(
        &self,
        key: PartKey,
        plan: impl FnOnce() -> Plan,
        demand: Demand,
    ) -> Result<Arc<Part>, SourceError> {
        let mut state = self.0.state.lock();
        if let Some(part) = state.parts.find(&key) {
            part.demand_also(demand);
            return Ok(part);
        }
        let part = Part::new(plan(), &self.0.connector, &self.0.tasks)?;
        state.parts.add(key, &part);
        if state.started {
            part.start();
        }
        Ok(part)
    }
}

/// What has to be done now and then, for as long as there is a factory.
async fn keep_house(factory: Weak<Inner>) {
    let mut saved = Instant::now();
    loop {
        tokio::time::sleep(HOUSEKEEPING).await;
        let Some(inner) = factory.upgrade() else { return };
        assert!(!planted::on("housekeeping_panics"), "as planted");
        let parts = inner.state.lock().parts.all();
        for part in &parts {
            part.bound_pins(inner.settings.pinned_bytes);
        }
        if saved.elapsed() >= inner.settings.save_interval {
            saved = Instant::now();
            // Files are written where waiting for a disk holds nobody up.
            let save = move || parts.iter().for_each(|it| it.save());
            saving(tokio::task::spawn_blocking(save)).await;
        }
    }
}

impl fmt::Debug for Factory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Factory").field("parts", &self.parts()).finish_non_exhaustive()
    }
}
