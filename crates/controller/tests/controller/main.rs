//! Controllers and elections against servers in memory, on virtual time.
#![expect(clippy::unwrap_used, reason = "a test that fails says so")]

mod electing;
mod helping;
mod limits;
mod logs;
mod panics;
mod running;
mod spans;
mod world;
