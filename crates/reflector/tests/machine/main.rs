//! The machine, rule by rule, against known accidents of other clients, and in a simulated world.

#![allow(clippy::unwrap_used, reason = "helpers of tests may panic, as tests may")]

mod accidents;
mod fixture;
#[cfg(planted)]
mod planted;
mod rules;
mod worlds;
