//! Each config map labelled `copies` has that many secrets, whatever happens to them:
//! `cargo run --example owns`.

use std::error::Error;

use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use masthead_controller::{Action, Context, Controller, Manager, ReconcileError};
use masthead_informer::upstream::kube_client::api::PostParams;
use masthead_informer::upstream::kube_client::{Api, Client};
use masthead_informer::upstream::{Settings, Upstream};
use masthead_informer::{Factory, Informer};
use tokio_util::sync::CancellationToken;

type Reconciled = Result<Action, ReconcileError>;

async fn copy(it: Context<ConfigMap>, there: Informer<Secret>, client: Client) -> Reconciled {
    let Some(map) = it.object() else { return Ok(Action::Done) };
    let copies: u32 =
        map.label("copies").unwrap_or("0").parse().map_err(ReconcileError::terminal)?;
    let secrets: Api<Secret> = Api::namespaced(client, map.namespace());
    for number in 0..copies {
        let name = format!("{}-{number}", map.name());
        if there.lister().get_str(&format!("{}/{name}", map.namespace())).is_some() {
            continue;
        }
        let owner = OwnerReference {
            api_version: "v1".to_owned(),
            kind: "ConfigMap".to_owned(),
            name: map.name().to_owned(),
            uid: map.uid().to_owned(),
            controller: Some(true),
            ..OwnerReference::default()
        };
        let owner_references = Some(vec![owner]);
        let metadata = ObjectMeta { name: Some(name), owner_references, ..ObjectMeta::default() };
        let secret = Secret { metadata, ..Secret::default() };
        // The next reconcile of this map begins when the cache has it.
        it.wrote(&secrets.create(&PostParams::default(), &secret).await?);
    }
    Ok(Action::Done)
}

pub(crate) async fn run(
    server: Upstream,
    client: Client,
    stop: CancellationToken,
) -> Result<(), Box<dyn Error>> {
    let factory = Factory::new(server);
    let secrets = factory.informer::<Secret>().build()?;
    let maps = Controller::<ConfigMap>::new(&factory, "copies")?.owns(&secrets);
    let maps = maps.reconcile(move |it| copy(it, secrets.clone(), client.clone()));
    Ok(Manager::new(&factory).with(maps).run(stop).await?)
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let server = Upstream::infer(Settings::default()).await?;
    run(server, Client::try_default().await?, CancellationToken::new()).await
}
