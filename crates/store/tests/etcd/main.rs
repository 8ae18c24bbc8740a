//! What only an etcd cluster does: answers that are lost, members that go, a past that comes back.
#![allow(clippy::unwrap_used, reason = "helpers of tests fail like tests")]

mod access;
mod lab;
mod links;
mod lives;
mod members;
mod reads;
