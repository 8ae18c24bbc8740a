//! Whatever is done to a store, it says what the model says.

use std::env;
use std::future::ready;

use masthead_lab::Version;
use proptest::test_runner::{Config, TestRunner};

use crate::lab::{Lab, block_on};
use crate::script::{run, steps};

/// `MASTHEAD_CASES` for more.
fn check<L: Future<Output = Lab>>(default: u32, lab: impl Fn() -> L) {
    let cases = env::var("MASTHEAD_CASES").ok().and_then(|text| text.parse().ok());
    let config =
        Config { cases: cases.unwrap_or(default), failure_persistence: None, ..Config::default() };
    let run = |steps: Vec<_>| {
        block_on(async { run(lab().await, &steps).await });
        Ok(())
    };
    TestRunner::new(config).run(&steps(), run).map_err(|error| error.to_string()).unwrap();
}

#[test]
fn the_memory_store_does_what_the_model_does() {
    check(1000, || ready(Lab::memory()));
}

#[test]
fn the_embedded_store_does_what_the_model_does() {
    check(60, || ready(Lab::embedded()));
}

#[test]
fn a_cramped_embedded_store_does_what_the_model_does() {
    check(250, || ready(Lab::cramped()));
}

#[test]
fn the_etcd_store_does_what_the_model_does() {
    check(20, || Lab::etcd(Version::Current));
}

#[test]
fn the_etcd_store_does_what_the_model_does_on_3_4() {
    check(20, || Lab::etcd(Version::Debian34));
}
