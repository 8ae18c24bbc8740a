//! The controller of the comparison with our own crates: each deployment has a config map, and its status says
//! that this was seen to. The server is the one of `$KUBECONFIG`.

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::ConfigMap;
use masthead_controller::{Action, Context, Controller, Manager, ReconcileError, patch_status};
use masthead_informer::upstream::kube_client::api::{ObjectMeta, PostParams};
use masthead_informer::upstream::kube_client::{Api, Client, Resource as _};
use masthead_informer::upstream::{Settings, Upstream};
use masthead_informer::{Factory, Informer};
use serde_json::json;

const WORKERS: usize = 8;

async fn reconcile(
    it: Context<Deployment>,
    maps: Informer<ConfigMap>,
    client: Client,
) -> Result<Action, ReconcileError> {
    let Some(found) = it.object() else { return Ok(Action::Done) };
    let deployment = found.decode()?;
    if maps.get(it.key()).is_none() {
        let metadata = ObjectMeta {
            name: Some(found.name().to_owned()),
            owner_references: deployment.controller_owner_ref(&()).map(|owner| vec![owner]),
            ..ObjectMeta::default()
        };
        let map = ConfigMap { metadata, ..ConfigMap::default() };
        let api = Api::<ConfigMap>::namespaced(client.clone(), found.namespace());
        it.wrote(&api.create(&PostParams::default(), &map).await?);
    }
    let generation = deployment.metadata.generation;
    let observed = deployment.status.as_ref().and_then(|status| status.observed_generation);
    if observed != generation {
        let api = Api::<Deployment>::namespaced(client, found.namespace());
        let status = json!({"observedGeneration": generation, "replicas": 1});
        it.wrote(&patch_status(&api, &*deployment, status).await?);
    }
    Ok(Action::Done)
}

pub(super) async fn run() -> anyhow::Result<()> {
    let factory = Factory::new(Upstream::infer(Settings::default()).await?);
    let client = Client::try_default().await?;
    let maps = factory.informer::<ConfigMap>().build()?;
    let controller = Controller::<Deployment>::new(&factory, "deployments")?;
    let controller = controller.owns(&maps).workers(WORKERS);
    let controller = controller.reconcile(move |it| reconcile(it, maps.clone(), client.clone()));
    Ok(Manager::new(&factory).with(controller).run_until_signalled().await?)
}
