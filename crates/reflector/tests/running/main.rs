//! The driver and the multiplexer, on tokio's paused clock.

#![allow(clippy::unwrap_used, reason = "helpers of tests may panic, as tests may")]

use std::future::Future;
use std::time::Duration;

use masthead_core::{Object, Resource, Scope};

mod driver;
mod mux;
mod panics;
mod store;

/// Runs a test on a clock that jumps ahead whenever everybody waits.
fn on_paused_clock<T>(test: impl Future<Output = T>) -> T {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    builder.enable_time().start_paused(true).build().unwrap().block_on(test)
}

/// Lets everything happen that can happen within so many milliseconds.
async fn pass_ms(ms: u64) {
    tokio::time::sleep(Duration::from_millis(ms)).await;
}

fn things() -> Resource {
    Resource::new("test", "v1", "things", "Thing", Scope::Cluster)
}

fn object(resource: &Resource, name: &str, version: &str) -> Object {
    let body =
        format!(r#"{{"metadata":{{"name":"{name}","uid":"u","resourceVersion":"{version}"}}}}"#);
    Object::parse(resource, body.into()).unwrap()
}
