//! Two handlers of one cache, one of which sees only a part: `cargo run --example two_handlers`.
#![expect(clippy::print_stdout, reason = "an example shows what it does")]

use std::error::Error;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use k8s_openapi::api::core::v1::Pod;
use masthead_core::Selectors;
use masthead_informer::upstream::{Settings, Upstream};
use masthead_informer::{Event, Factory, HandlerOptions};

/// A handler that counts its calls.
fn counting(calls: &Arc<AtomicUsize>) -> impl FnMut(Event<Pod>) -> std::future::Ready<()> + use<> {
    let calls = calls.clone();
    move |_| {
        calls.fetch_add(1, Ordering::Relaxed);
        std::future::ready(())
    }
}

pub(crate) async fn run(server: Upstream) -> Result<(), Box<dyn Error>> {
    let factory = Factory::new(server);
    let pods = factory.informer::<Pod>().build()?;
    let (all, web) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));

    let every = HandlerOptions::default().named("every pod");
    let every = pods.add_handler(&every, counting(&all))?;
    // What comes to match is added to this one, what no longer does is deleted from it.
    let selectors = Selectors { labels: "app=web".parse()?, ..Selectors::default() };
    let some = HandlerOptions::default().named("web pods").select(selectors);
    let some = pods.add_handler(&some, counting(&web))?;

    factory.start();
    factory.wait_for_sync().await?;
    // The cache has synced; a handler has when it returned from all that was there.
    every.synced().await;
    some.synced().await;
    let (all, web) = (all.load(Ordering::Relaxed), web.load(Ordering::Relaxed));
    println!("one list, one watch, one cache: {all} pods, {web} of them app=web");
    Ok(())
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    run(Upstream::infer(Settings::default()).await?).await
}
