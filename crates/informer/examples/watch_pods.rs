//! The events of all pods as a stream, until five were seen: `cargo run --example watch_pods`.
#![expect(clippy::print_stdout, reason = "an example shows what it does")]

use std::error::Error;

use futures_util::StreamExt;
use k8s_openapi::api::core::v1::Pod;
use masthead_informer::upstream::{Settings, Upstream};
use masthead_informer::{Event, Factory, HandlerOptions};

const EVENTS: usize = 5;

pub(crate) async fn run(server: Upstream) -> Result<(), Box<dyn Error>> {
    let factory = Factory::new(server);
    let pods = factory.informer::<Pod>().build()?;
    factory.start();

    // However slowly it is read, it holds up nobody; however often the connection is lost, each pod
    // is added, updated and deleted in this order.
    let mut events = pods.events(&HandlerOptions::default())?.take(EVENTS);
    while let Some(event) = events.next().await {
        match event {
            Event::Added { object, initial: true } => println!("{} is there", object.key()),
            Event::Added { object, .. } => println!("{} was added", object.key()),
            Event::Updated { old, new, .. } => {
                let before = old
                    .map_or("an unknown version".to_owned(), |it| it.resource_version().to_owned());
                println!("{} went from {before} to {}", new.key(), new.resource_version());
            }
            Event::Deleted { key, cause, .. } => println!("{key} is gone: {cause:?}"),
        }
    }
    Ok(())
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    run(Upstream::infer(Settings::default()).await?).await
}
