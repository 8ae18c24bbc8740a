//! Informers over real HTTP.
#![expect(clippy::unwrap_used, reason = "a test that fails says so")]

mod many;
mod proxy;
mod server;
mod slow_link;
