//! Whatever is done to a store, it says what the model says.

use std::env;

use proptest::test_runner::{Config, TestRunner};

use crate::lab::{Lab, block_on};
use crate::script::{run, steps};

/// `MASTHEAD_CASES` for more.
fn check(default: u32, lab: fn() -> Lab) {
    let cases = env::var("MASTHEAD_CASES").ok().and_then(|text| text.parse().ok());
    let config =
        Config { cases: cases.unwrap_or(default), failure_persistence: None, ..Config::default() };
    let run = |steps: Vec<_>| {
        block_on(run(lab(), &steps));
        Ok(())
    };
    TestRunner::new(config).run(&steps(), run).map_err(|error| error.to_string()).unwrap();
}

#[test]
fn the_memory_store_does_what_the_model_does() {
    check(1000, Lab::memory);
}

#[test]
fn the_embedded_store_does_what_the_model_does() {
    check(60, Lab::embedded);
}

#[test]
fn a_cramped_embedded_store_does_what_the_model_does() {
    check(250, Lab::cramped);
}
