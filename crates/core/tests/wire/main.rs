//! The grammar and the answers of lists and watches, against text fixtures, tables and naive
//! models.

#![allow(clippy::unwrap_used, reason = "helpers of tests may unwrap as tests do")]

mod fields;
mod fixture;
mod frames;
mod labels;
mod options;
mod shards;
mod statuses;
