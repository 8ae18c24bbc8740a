//! Several of these may run, and one acts: `cargo run --example leader -- first`.
#![expect(clippy::print_stdout, reason = "an example shows what it does")]

use std::error::Error;

use k8s_openapi::api::core::v1::ConfigMap;
use masthead_controller::{Action, Context, Controller, LeaderElection, Manager};
use masthead_informer::Factory;
use masthead_informer::upstream::kube_client::Client;
use masthead_informer::upstream::{Settings, Upstream};
use tokio_util::sync::CancellationToken;

pub(crate) async fn run(
    server: Upstream,
    client: Client,
    identity: &str,
    stop: CancellationToken,
) -> Result<(), Box<dyn Error>> {
    let factory = Factory::new(server);
    let me = identity.to_owned();
    let maps = Controller::<ConfigMap>::new(&factory, "maps")?;
    let maps = maps.reconcile(move |context: Context<ConfigMap>| {
        println!("{me} looks at {}", context.key());
        std::future::ready(Ok(Action::Done))
    });
    // Caches and queues are warm before it leads; when it cannot renew its lease, what it does is cancelled
    // before anybody else can have it; when it stops, it gives the lease back.
    let election = LeaderElection::new(client, "default", "maps", identity);
    Manager::new(&factory).with(maps).elected(election).run(stop).await?;
    Ok(())
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let identity = std::env::args().nth(1).unwrap_or_else(|| "somebody".to_owned());
    let server = Upstream::infer(Settings::default()).await?;
    run(server, Client::try_default().await?, &identity, CancellationToken::new()).await
}
