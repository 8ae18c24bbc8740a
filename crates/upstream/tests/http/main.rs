//! Lists and watches over real sockets: against servers that do as a test tells them, and against
//! Masthead's own.

#![allow(clippy::unwrap_used, reason = "helpers of tests may panic, as tests may")]

mod accidents;
mod connections;
mod credentials;
mod discovery;
mod lists;
mod real;
mod script;
mod watches;
