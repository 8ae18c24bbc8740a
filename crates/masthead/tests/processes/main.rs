//! Real processes: `masthead serve` under kill -9, and the clients that people use.

#![expect(clippy::unwrap_used, reason = "a test fails where it stands")]

mod controller;
mod crash;
mod examples;
mod follower;
mod http;
mod informer;
mod kube_rs;
mod kubectl;
mod python;
mod serve;
mod server;
mod stalled;
mod sync;
mod watch;
