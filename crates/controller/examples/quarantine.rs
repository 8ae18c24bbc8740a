//! What cannot go well is not tried again and again: `cargo run --example quarantine`.
#![expect(clippy::print_stdout, reason = "an example shows what it does")]

use std::error::Error;
use std::time::Duration;

use k8s_openapi::api::core::v1::ConfigMap;
use masthead_controller::{Action, Context, Controller, Manager, Quarantined, ReconcileError};
use masthead_informer::Factory;
use masthead_informer::upstream::{Settings, Upstream};
use tokio_util::sync::CancellationToken;

/// Runs until something is in quarantine.
pub(crate) async fn run(server: Upstream) -> Result<Vec<Quarantined>, Box<dyn Error>> {
    let factory = Factory::new(server);
    let maps = Controller::<ConfigMap>::new(&factory, "limits")?;
    let maps = maps.reconcile(async |context: Context<ConfigMap>| {
        let Some(map) = context.object() else { return Ok(Action::Done) };
        let map = map.decode()?;
        let limit = map.data.as_ref().and_then(|data| data.get("limit"));
        // No number of tries makes a number of it: only a change of the map does.
        let limit: Option<u32> =
            limit.map(|it| it.parse()).transpose().map_err(ReconcileError::terminal)?;
        println!("{}: {limit:?}", context.key());
        Ok(Action::Done)
    });
    let (handle, stop) = (maps.handle(), CancellationToken::new());
    let running = tokio::spawn(Manager::new(&factory).with(maps).run(stop.clone()));
    let mut every = tokio::time::interval(Duration::from_millis(100));
    while handle.quarantined().is_empty() && !running.is_finished() {
        every.tick().await;
    }
    let held = handle.quarantined();
    for it in &held {
        println!("{} is left alone: {}", it.key, it.error);
        // Whoever knows better has it looked at once more.
        handle.release(&it.key);
    }
    stop.cancel();
    running.await??;
    Ok(held)
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    run(Upstream::infer(Settings::default()).await?).await.map(drop)
}
