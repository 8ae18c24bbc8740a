//! The controller of `masthead bench controller` with kube-rs: each deployment has a config map, and its status
//! says that this was seen to. The server is the one of `$KUBECONFIG`.

use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt as _;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{ObjectMeta, Patch, PatchParams, PostParams};
use kube::runtime::controller::{Action, Config};
use kube::runtime::reflector::{ObjectRef, Store};
use kube::runtime::{Controller, WatchStreamExt as _, reflector, watcher};
use kube::{Api, Client, Error, Resource as _, ResourceExt as _};

const WORKERS: u16 = 8;

struct Context {
    client: Client,
    maps: Store<ConfigMap>,
}

async fn reconcile(deployment: Arc<Deployment>, context: Arc<Context>) -> Result<Action, Error> {
    let name = deployment.name_any();
    let namespace = deployment.namespace().unwrap_or_default();
    if context.maps.get(&ObjectRef::new(&name).within(&namespace)).is_none() {
        create(&deployment, &name, Api::namespaced(context.client.clone(), &namespace)).await?;
    }
    let observed = deployment.status.as_ref().and_then(|status| status.observed_generation);
    if observed != deployment.metadata.generation {
        let api: Api<Deployment> = Api::namespaced(context.client.clone(), &namespace);
        let generation = deployment.metadata.generation;
        let status =
            serde_json::json!({"status": {"observedGeneration": generation, "replicas": 1}});
        api.patch_status(&name, &PatchParams::default(), &Patch::Merge(status)).await?;
    }
    Ok(Action::await_change())
}

async fn create(deployment: &Deployment, name: &str, api: Api<ConfigMap>) -> Result<(), Error> {
    let metadata = ObjectMeta {
        name: Some(name.to_owned()),
        owner_references: deployment.controller_owner_ref(&()).map(|owner| vec![owner]),
        ..ObjectMeta::default()
    };
    let map = ConfigMap { metadata, ..ConfigMap::default() };
    match api.create(&PostParams::default(), &map).await {
        // The cache may not have it yet.
        Err(Error::Api(error)) if error.is_already_exists() => Ok(()),
        created => created.map(drop),
    }
}

fn failed(_: Arc<Deployment>, _: &Error, _: Arc<Context>) -> Action {
    Action::requeue(Duration::from_secs(1))
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let client = Client::try_default().await?;
    let (maps, writer) = reflector::store();
    let stream = watcher(Api::<ConfigMap>::all(client.clone()), watcher::Config::default());
    let stream = stream.default_backoff().reflect(writer).touched_objects();
    Controller::new(Api::<Deployment>::all(client.clone()), watcher::Config::default())
        .owns_stream(stream)
        .with_config(Config::default().concurrency(WORKERS))
        .shutdown_on_signal()
        .run(reconcile, failed, Arc::new(Context { client, maps }))
        .for_each(|_| async {})
        .await;
    Ok(())
}
