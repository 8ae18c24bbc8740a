//! Informers against servers in memory, on virtual time.
#![expect(clippy::unwrap_used, reason = "a test that fails says so")]

mod handlers;
mod logs;
mod panics;
#[cfg(planted)]
mod planted;
mod random;
mod sharing;
mod syncing;
mod warm;
mod world;
