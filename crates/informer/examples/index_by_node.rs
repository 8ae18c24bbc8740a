//! How many pods and containers each node has, from an index: `cargo run --example index_by_node`.
#![expect(clippy::print_stdout, reason = "an example shows what it does")]

use std::error::Error;

use k8s_openapi::api::core::v1::{Node, Pod};
use masthead_informer::upstream::{Settings, Upstream};
use masthead_informer::{Factory, Index};

pub(crate) async fn run(server: Upstream) -> Result<(), Box<dyn Error>> {
    let factory = Factory::new(server);
    let nodes = factory.informer::<Node>().build()?;
    // A field's index is found without decoding the object.
    let by_node = Index::field("node", "spec.nodeName");
    let pods = factory.informer::<Pod>().index(by_node).build()?;
    factory.start();
    factory.wait_for_sync().await?;

    // All reads of a lister see the same moment, whatever comes in meanwhile.
    let state = pods.lister();
    for node in nodes.lister().iter() {
        let (mut count, mut containers) = (0, 0);
        for pod in state.by_index("node", node.name())? {
            count += 1;
            containers += pod.decode()?.spec.as_ref().map_or(0, |spec| spec.containers.len());
        }
        println!("{}: {count} pods, {containers} containers", node.name());
    }
    println!("{} pods wait for a node", state.by_index("node", "")?.count());
    Ok(())
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    run(Upstream::infer(Settings::default()).await?).await
}
