//! Real processes: `masthead serve` under kill -9, and the clients that people use.

#![expect(clippy::unwrap_used, reason = "a test fails where it stands")]

use std::sync::{Mutex, MutexGuard, PoisonError};

mod controller;
mod crash;
mod examples;
mod follower;
mod full_disk;
mod greedy;
mod http;
mod informer;
mod kube_rs;
mod kubectl;
mod load;
mod python;
mod replicas;
mod serve;
mod server;
mod slow;
mod stalled;
mod sync;
mod watch;

/// Held by a test that keeps the whole machine busy: two of them side by side would measure each other.
pub(crate) fn alone() -> MutexGuard<'static, ()> {
    static BUSY: Mutex<()> = Mutex::new(());
    BUSY.lock().unwrap_or_else(PoisonError::into_inner)
}
