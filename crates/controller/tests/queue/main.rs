//! The work queue: its machine against a naive model on virtual time, and the queue itself on tokio's
//! paused clock.

mod model;
mod random;
mod shared;
