//! A resource that is known only at run time: `cargo run --example dynamic -- crontabs.example.com`.
#![expect(clippy::print_stdout, reason = "an example shows what it does")]

use std::error::Error;

use masthead_informer::upstream::{Settings, Upstream};
use masthead_informer::{Factory, Representation};

pub(crate) async fn run(server: Upstream, name: &str) -> Result<(), Box<dyn Error>> {
    // Whatever kubectl would understand; a misspelt name is answered with what comes near.
    let found = server.find(name).await?;
    let factory = Factory::new(server);
    let objects = factory.dynamic(&found.resource);
    // Compressed in memory with a dictionary of its kind, and read like any other.
    let objects = objects.representation(Representation::Compact).build()?;
    factory.start();
    let report = factory.wait_for_sync().await?;

    for entry in objects.lister().iter() {
        let object = entry.decode()?;
        let members = object.data.as_object().map_or(0, serde_json::Map::len);
        println!("{} has {members} members beside its metadata", entry.key());
    }
    print!("{report}");
    Ok(())
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let name = std::env::args().nth(1);
    let server = Upstream::infer(Settings::default()).await?;
    run(server, name.as_deref().unwrap_or("configmaps")).await
}
