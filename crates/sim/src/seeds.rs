//! Many runs, each from its seed.

use std::num::NonZero;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::thread;

/// Bad seeds that are told of, for each processor.
const TOLD: usize = 4;

/// Judges a run for each seed below `count`, on all processors, and says of some bad ones what was wrong
/// and how to see them again: `MASTHEAD_SEED` judges that one seed, `MASTHEAD_SEEDS` another number of
/// them. A run that panics is a bad one. `test` is how cargo finds the test, for example `-p it --test it`.
pub fn judge(
    count: u64,
    test: &str,
    judge: impl Fn(u64) -> Result<(), String> + Sync,
) -> Result<(), String> {
    let seeds = match number("MASTHEAD_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..number("MASTHEAD_SEEDS").unwrap_or(count),
    };
    let judged = |seed: u64| {
        let judged = catch_unwind(AssertUnwindSafe(|| judge(seed)));
        let wrong = judged.unwrap_or_else(|_| Err("it panics".to_owned())).err()?;
        Some(format!("seed {seed}: {wrong}\nreplay: MASTHEAD_SEED={seed} cargo test {test}"))
    };
    let threads = thread::available_parallelism().map_or(1, NonZero::get);
    let bad: Vec<String> = thread::scope(|scope| {
        let mine = |first| seeds.clone().skip(first).step_by(threads).filter_map(judged);
        let worker = |first| scope.spawn(move || mine(first).take(TOLD).collect::<Vec<_>>());
        let workers: Vec<_> = (0..threads).map(worker).collect();
        workers.into_iter().flat_map(|worker| worker.join().unwrap_or_default()).collect()
    });
    if bad.is_empty() { Ok(()) } else { Err(bad.join("\n")) }
}

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::sync::Mutex;

    use super::*;

    #[test]
    fn every_seed_is_judged_and_bad_ones_are_told() {
        let seen = Mutex::new(BTreeSet::new());
        let told = judge(100, "-p it", |seed| {
            seen.lock().unwrap().insert(seed);
            if seed == 7 { Err("odd".to_owned()) } else { Ok(()) }
        });
        if number("MASTHEAD_SEED").or(number("MASTHEAD_SEEDS")).is_none() {
            assert_eq!(seen.into_inner().unwrap(), (0..100).collect());
            let expected = "seed 7: odd\nreplay: MASTHEAD_SEED=7 cargo test -p it";
            assert_eq!(told, Err(expected.to_owned()));
        }
    }
}
