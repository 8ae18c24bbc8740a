//! What every store has to do, run on each of them.
#![allow(clippy::unwrap_used, reason = "helpers of tests fail like tests")]

mod groups;
mod lab;
mod model;
mod property;
mod reading;
mod script;
mod watches;
