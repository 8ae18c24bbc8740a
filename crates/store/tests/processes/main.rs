//! Stores in processes that come to a bad end.
#![allow(clippy::unwrap_used, reason = "helpers of tests fail like tests")]

mod child;
mod crash;
mod full_disk;
