//! The work queue: its machine against a naive model on virtual time, and the queue itself on tokio's
//! paused clock.
#![expect(clippy::unwrap_used, reason = "a test that fails says so")]

mod limits;
mod model;
mod random;
mod shared;
