//! A controller of all config maps that says what they hold: `cargo run --example minimal`.
#![expect(clippy::print_stdout, reason = "an example shows what it does")]

use std::error::Error;

use k8s_openapi::api::core::v1::ConfigMap;
use masthead_controller::{Action, Context, Controller, Manager};
use masthead_informer::Factory;
use masthead_informer::upstream::{Settings, Upstream};
use tokio_util::sync::CancellationToken;

pub(crate) async fn run(server: Upstream, stop: CancellationToken) -> Result<(), Box<dyn Error>> {
    let factory = Factory::new(server);
    let maps = Controller::<ConfigMap>::new(&factory, "maps")?;
    // Called for every map that is there, and whenever one comes, changes or goes; never twice at once for
    // the same one, and again with backoff after an error or a panic.
    let maps = maps.reconcile(async |context: Context<ConfigMap>| {
        let Some(map) = context.object() else {
            println!("{} is gone", context.key());
            return Ok(Action::Done);
        };
        let entries = map.decode()?.data.iter().flatten().count();
        println!("{} has {entries} entries ({})", context.key(), context.trigger());
        Ok(Action::Done)
    });
    Manager::new(&factory).with(maps).run(stop).await?;
    Ok(())
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let stop = CancellationToken::new();
    let signalled = stop.clone();
    tokio::spawn(async move {
        let _ = tokio::signal::ctrl_c().await;
        signalled.cancel();
    });
    run(Upstream::infer(Settings::default()).await?, stop).await
}
