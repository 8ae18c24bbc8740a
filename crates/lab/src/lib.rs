//! Real programs for tests: gets or builds them, starts them, and ends them whatever happens.
//!
//! Not published, and only ever a dependency of tests and xtask: everything here panics where a test would.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail like tests")]

mod cluster;
mod debian;
mod etcd;
mod ports;
mod program;
mod proxy;
mod valgrind;

pub use cluster::EtcdCluster;
pub use etcd::{Etcd, EtcdOptions};
pub use ports::free_port;
pub use program::Version;
pub use proxy::{Mode, Proxy};
pub use valgrind::valgrind;
