//! Waiting for caches, and saying why one is missing: `cargo run --example wait_with_report`.
#![expect(clippy::print_stdout, reason = "an example shows what it does")]

use std::error::Error;
use std::time::Duration;

use k8s_openapi::api::core::v1::{Node, Pod};
use masthead_core::{Resource, Scope};
use masthead_informer::upstream::{Settings, Upstream};
use masthead_informer::{Factory, FactorySettings, Startup, SyncReport};

pub(crate) async fn run(server: Upstream) -> Result<SyncReport, Box<dyn Error>> {
    let startup = Startup::After;
    let settings = FactorySettings { startup, ..FactorySettings::default() };
    let factory = Factory::with_settings(server, settings)?;
    // Nodes first; pods when those are there; this one whenever somebody defines it.
    let nodes = factory.informer::<Node>().critical().build()?;
    let pods = factory.informer::<Pod>().sync_timeout(Duration::from_secs(60)).build()?;
    let backups = Resource::new("example.com", "v1", "backups", "Backup", Scope::Namespaced);
    let backups = factory.dynamic(&backups).optional().build()?;
    factory.on_error(|resource| println!("not well: {resource}"));
    factory.start();

    let report = match factory.wait_for_sync().await {
        Ok(report) => report,
        // What has synced can be used all the same.
        Err(error) => error.report().clone(),
    };
    println!("{} nodes, {} pods", nodes.lister().len(), pods.lister().len());
    for missing in report.missing() {
        let advice = missing.advice().unwrap_or("Wait longer.");
        println!("{} has not synced. {advice}", missing.resource);
    }
    assert_eq!(backups.has_synced(), report.is_complete());
    Ok(report)
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    run(Upstream::infer(Settings::default()).await?).await.map(drop)
}
