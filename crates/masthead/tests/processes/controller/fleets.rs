//! The controller: fleets want so many ships, and it writes down what it does about that.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use kube::api::{DeleteParams, DynamicObject, PostParams, Preconditions};
use masthead_controller::queue::{Exponential, Settings as QueueSettings};
use masthead_controller::{Action, Context, Controller, LeaderElection, Manager, ReconcileError};
use masthead_core::{Resource, Scope};
use masthead_informer::upstream::kube_client::{Api, Client, Config};
use masthead_informer::upstream::{Settings, Upstream};
use masthead_informer::{Factory, Index, Informer};
use tokio::sync::RwLock;
use tokio_util::sync::CancellationToken;

use super::record::{Event, Record};
use super::replica::Orders;

/// Annotations that say who made a ship, and in which term.
pub(super) const MADE_BY: &str = "ship.example/made-by";
pub(super) const TERM: &str = "ship.example/term";

/// One replica's controller.
pub(super) struct Fleets {
    replica: u64,
    record: Arc<Record>,
    /// Whoever writes stands in it: who has it closed knows that nobody does.
    gate: Arc<RwLock<()>>,
    calm: Arc<AtomicBool>,
    reconciles: AtomicU64,
}

/// One reconcile in the record, however it ends.
struct Noted<'a> {
    fleets: &'a Fleets,
    number: u64,
}

impl Noted<'_> {
    fn note(&self, event: Event) {
        self.fleets.record.note(self.fleets.replica, Some(self.number), event);
    }

    /// Writes something.
    async fn act<T>(&self, write: impl Future<Output = kube::Result<T>>) -> kube::Result<T> {
        self.note(Event::Means);
        let _passes = self.fleets.gate.read().await;
        self.note(Event::Acts);
        write.await
    }
}

impl Drop for Noted<'_> {
    fn drop(&mut self) {
        self.note(Event::Ends);
    }
}

impl Fleets {
    pub(super) fn new(
        replica: u64,
        record: &Arc<Record>,
        gate: &Arc<RwLock<()>>,
        calm: &Arc<AtomicBool>,
    ) -> Arc<Self> {
        let (record, gate, calm) = (record.clone(), gate.clone(), calm.clone());
        Arc::new(Self { replica, record, gate, calm, reconciles: AtomicU64::new(0) })
    }

    async fn reconcile(
        &self,
        it: Context<DynamicObject>,
        ships: &Informer<ConfigMap>,
        client: &Client,
    ) -> Result<Action, ReconcileError> {
        let noted = Noted { fleets: self, number: self.reconciles.fetch_add(1, Ordering::Relaxed) };
        let (state, term) = (ships.lister(), it.term().unwrap().transitions);
        let (key, cache) = (it.key().to_string(), state.revision().0);
        noted.note(Event::Begins { term, key, cache });
        self.stumble(&noted).await;
        let api: Api<ConfigMap> = Api::namespaced(client.clone(), "default");
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
                let this =
                    Preconditions { uid: Some(ship.uid().to_owned()), resource_version: None };
                let this = DeleteParams::default().preconditions(this);
                noted.act(api.delete(ship.name(), &this)).await?;
            }
        }
        for name in names.iter().filter(|name| mine.iter().all(|it| it.name() != name.as_str())) {
            let ship = self.ship(&it, name, &uid);
            let made = noted.act(api.create(&PostParams::default(), &ship)).await?;
            it.wrote(&made);
            let revision = made.metadata.resource_version.unwrap().parse().unwrap();
            noted.note(Event::Wrote { revision });
        }
        Ok(Action::Done)
    }

    /// Every tenth reconcile panics and two of ten are slow, unless it is calm.
    async fn stumble(&self, noted: &Noted<'_>) {
        match noted.number % 10 {
            _ if self.calm.load(Ordering::Relaxed) => {}
            5 => {
                noted.note(Event::Panics);
                // A panic that is not printed.
                std::panic::resume_unwind(Box::new("as it was told to"));
            }
            2 | 8 => tokio::time::sleep(Duration::from_millis(300)).await,
            _ => {}
        }
    }

    /// A child of a fleet.
    fn ship(&self, it: &Context<DynamicObject>, name: &str, uid: &str) -> ConfigMap {
        let owner = OwnerReference {
            api_version: "ship.example/v1".to_owned(),
            kind: "Fleet".to_owned(),
            name: it.key().name().to_owned(),
            uid: uid.to_owned(),
            controller: Some(true),
            ..OwnerReference::default()
        };
        let labels = BTreeMap::from([("fleet".to_owned(), it.key().name().to_owned())]);
        let annotations = BTreeMap::from([
            (MADE_BY.to_owned(), identity(self.replica)),
            (TERM.to_owned(), it.term().unwrap().transitions.to_string()),
        ]);
        let metadata = ObjectMeta {
            name: Some(name.to_owned()),
            labels: Some(labels),
            annotations: Some(annotations),
            owner_references: Some(vec![owner]),
            ..ObjectMeta::default()
        };
        ConfigMap { metadata, ..ConfigMap::default() }
    }
}

/// What a replica is called in the lease.
pub(super) fn identity(replica: u64) -> String {
    format!("replica-{replica}")
}

/// Runs the controller; a manager that ends by itself is started again, as a pod would be.
pub(super) async fn run(orders: Orders, fleets: Arc<Fleets>) {
    let mut config = Config::new(format!("http://{}", orders.server).parse().unwrap());
    config.auth_info.token = Some(orders.token.into());
    config.default_retry = false;
    let client = Client::try_from(config.clone()).unwrap();
    loop {
        let upstream = Upstream::from_config(config.clone(), Settings::default()).await.unwrap();
        let _ = manager(upstream, &client, &fleets).run(CancellationToken::new()).await;
    }
}

fn manager(upstream: Upstream, client: &Client, fleets: &Arc<Fleets>) -> Manager {
    let factory = Factory::new(upstream);
    // By the fleet that they are labelled with.
    let index = Index::by_entry("fleet", |ship, values| {
        if let Some(fleet) = ship.label("fleet") {
            values.push(&format!("default/{fleet}"));
        }
        Ok(())
    });
    let ships = factory.informer::<ConfigMap>().index(index).build().unwrap();
    let kind = Resource::new("ship.example", "v1", "fleets", "Fleet", Scope::Namespaced);
    let limiter = Exponential { base: Duration::from_millis(5), max: Duration::from_secs(1) };
    let shared = Arc::new((fleets.clone(), ships.clone(), client.clone()));
    let controller = Controller::of("fleets", factory.dynamic(&kind).build().unwrap())
        .queue(QueueSettings::default().limiter(limiter))
        .owns(&ships)
        .timeout(Duration::from_secs(10))
        .reconcile(move |it| {
            let shared = shared.clone();
            async move { shared.0.reconcile(it, &shared.1, &shared.2).await }
        });
    let identity = identity(fleets.replica);
    let election = LeaderElection::new(client.clone(), "default", "fleets", &identity).timing(
        Duration::from_secs(4),
        Duration::from_secs(2),
        Duration::from_millis(300),
    );
    Manager::new(&factory).with(controller).elected(election)
}
