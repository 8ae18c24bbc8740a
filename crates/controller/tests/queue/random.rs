//! Random scripts, played to the machine and to the model.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use masthead_controller::queue::{
    Exponential, Machine, MaxOf, Moment, Next, Priority, Settings, Taken, TokenBucket,
};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};

use crate::model::{AGING, BASE_MS, BURST, Key, MAX_MS, Model, TOKEN_MS, class};

#[derive(Clone, Debug)]
enum Step {
    Add(Key, Priority),
    AddAfter(Key, u64, Priority),
    Retry(Key),
    Forget(Key),
    Take,
    /// The n-th of those in flight.
    Done(usize),
    Pass(u64),
    Shutdown,
    Abort,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let key = 0_u8..12;
    let priority = prop_oneof![
        2 => Just(Priority::Low), 2 => Just(Priority::Normal), 1 => Just(Priority::High)
    ];
    let step = prop_oneof![
        30 => (key.clone(), priority.clone()).prop_map(|(key, it)| Step::Add(key, it)),
        8 => (key.clone(), 0_u64..60, priority).prop_map(|(key, ms, it)| Step::AddAfter(key, ms, it)),
        12 => key.clone().prop_map(Step::Retry),
        4 => key.prop_map(Step::Forget),
        40 => Just(Step::Take),
        30 => (0_usize..8).prop_map(Step::Done),
        15 => (1_u64..40).prop_map(Step::Pass),
        1 => prop_oneof![3 => Just(Step::Shutdown), 1 => Just(Step::Abort)],
    ];
    proptest::collection::vec(step, 0..200)
}

/// A queue whose keys are in three classes, with little patience.
fn machine() -> Machine<Key> {
    let (base, max) = (Duration::from_millis(BASE_MS), Duration::from_millis(MAX_MS));
    let bucket = TokenBucket::new(1000 / TOKEN_MS, BURST);
    let limiter = MaxOf::none().and(Exponential { base, max }).and(bucket);
    Machine::new(Settings::default().aging(AGING).limiter(limiter).fair_by(|key| class(*key)))
}

/// The bounds of R30, seen from outside: who was passed over, and how often.
#[derive(Default)]
struct Bounds {
    /// For each waiting key its priority, and the turns that others of another priority had since one of
    /// its own had one.
    levels: BTreeMap<Key, Priority>,
    passed: BTreeMap<Priority, u32>,
    /// For each priority and class that wait, the other classes of that priority that had a turn.
    classes: BTreeMap<(Priority, u8), BTreeSet<u8>>,
}

impl Bounds {
    fn wait(&mut self, key: Key, priority: Priority) {
        let level = self.levels.entry(key).or_insert(priority);
        *level = (*level).max(priority);
        self.forget_the_absent();
    }

    fn turn(&mut self, key: Key) -> Result<(), String> {
        let level = self.levels.remove(&key).ok_or(format!("{key} was not waiting"))?;
        let others: BTreeSet<_> = self.levels.values().copied().filter(|it| *it != level).collect();
        self.passed.insert(level, 0);
        for other in others {
            let passed = self.passed.entry(other).or_default();
            *passed += 1;
            if *passed > AGING + 2 {
                return Err(format!("{other:?} was passed over {passed} times"));
            }
        }
        let waiting: BTreeSet<_> =
            self.levels.iter().map(|(key, level)| (*level, class(*key))).collect();
        self.classes.insert((level, class(key)), BTreeSet::new());
        for (_, other) in waiting.into_iter().filter(|it| it.0 == level && it.1 != class(key)) {
            if !self.classes.entry((level, other)).or_default().insert(class(key)) {
                return Err(format!("class {} had two turns before {other}", class(key)));
            }
        }
        self.forget_the_absent();
        Ok(())
    }

    /// Who does not wait is not passed over.
    fn forget_the_absent(&mut self) {
        let levels = &self.levels;
        self.passed.retain(|level, _| levels.values().any(|it| it == level));
        self.classes.retain(|waits, _| levels.iter().any(|(key, it)| (*it, class(*key)) == *waits));
    }
}

struct World {
    machine: Machine<Key>,
    model: Model,
    flights: Vec<Taken<Key>>,
    bounds: Bounds,
}

impl World {
    fn now(&self) -> Moment {
        Moment::after(Duration::from_millis(self.model.now))
    }

    fn step(&mut self, step: &Step) -> Result<(), String> {
        let now = self.now();
        match *step {
            Step::Add(key, priority) => {
                let added = self.machine.add(key, priority.into(), now);
                self.model.add(key, priority);
                check("refused", added.is_err(), self.model.closed)?;
            }
            Step::AddAfter(key, ms, priority) => {
                let delay = Duration::from_millis(ms);
                let _ = self.machine.add_after(key, delay, priority.into(), now);
                self.model.add_after(key, ms, priority);
            }
            Step::Retry(key) => {
                let _ = self.machine.add_rate_limited(key, Priority::Normal.into(), now);
                self.model.add_rate_limited(key);
            }
            Step::Forget(key) => {
                self.machine.forget(&key);
                self.model.forget(key);
            }
            Step::Take => drop(self.take()?),
            Step::Done(at) if !self.flights.is_empty() => {
                let taken = self.flights.remove(at % self.flights.len());
                self.machine.done(&taken, now);
                self.model.done(taken.key);
            }
            Step::Done(_) => {}
            Step::Pass(ms) => self.model.now += ms,
            Step::Shutdown => {
                self.machine.shutdown();
                self.model.shutdown();
            }
            Step::Abort => {
                self.machine.abort();
                self.model.abort();
                self.bounds = Bounds::default();
            }
        }
        self.compare()
    }

    fn take(&mut self) -> Result<bool, String> {
        let expected = self.model.take();
        let next = self.machine.take(self.now());
        match next {
            Next::Work(taken) => {
                let key = taken.key;
                if self.flights.iter().any(|other| other.key == key) {
                    return Err(format!("two workers on {key}"));
                }
                self.flights.push(taken);
                check("taken", Some(key), expected)?;
                self.watch();
                self.bounds.turn(key)?;
                Ok(true)
            }
            Next::Wait(due) => {
                check("taken", None, expected)?;
                check("over", false, self.model.is_over())?;
                let first = self.model.delays().first().map(|(_, left)| self.now() + *left);
                check("next due", due, first)?;
                Ok(false)
            }
            Next::Ended => {
                check("taken", None, expected)?;
                check("over", true, self.model.is_over()).map(|()| false)
            }
        }
    }

    /// Tells the bounds who waits.
    fn watch(&mut self) {
        for (key, priority) in self.model.came() {
            self.bounds.wait(key, priority);
        }
    }

    fn compare(&mut self) -> Result<(), String> {
        self.watch();
        let snapshot = self.machine.snapshot(self.now());
        check("length", self.machine.len(), self.model.len())?;
        check("waiting", snapshot.waiting.len(), self.model.len())?;
        check("delayed", snapshot.delayed, self.model.delays())?;
        let working: BTreeSet<Key> = snapshot.working.iter().map(|(key, _)| *key).collect();
        check("working", working, self.model.working.keys().copied().collect())?;
        for key in 0..12 {
            check("requeues", self.machine.requeues(&key), self.model.requeues(key))?;
        }
        Ok(())
    }

    /// Everything that was asked for is handed out in the end, and then nothing is left.
    fn finish(mut self) -> Result<(), String> {
        self.model.now += 10_000;
        for _ in 0..1_000 {
            let took = self.take()?;
            if let Some(taken) = self.flights.pop() {
                self.machine.done(&taken, self.now());
                self.model.done(taken.key);
            } else if !took {
                break;
            }
        }
        (0..12).for_each(|key| self.machine.forget(&key));
        check("left", (self.machine.len(), self.machine.known()), (0, 0))?;
        check("still delayed", self.machine.next_due(), None)?;
        self.machine.shutdown();
        check("drained", self.machine.is_drained(), true)
    }
}

#[expect(clippy::needless_pass_by_value, reason = "values are written where they are compared")]
fn check<T: PartialEq + std::fmt::Debug>(what: &str, ours: T, expected: T) -> Result<(), String> {
    if ours == expected { Ok(()) } else { Err(format!("{what}: {ours:?}, expected {expected:?}")) }
}

fn judge(steps: &[Step]) -> Result<(), String> {
    let (machine, model) = (machine(), Model::default());
    let mut world = World { machine, model, flights: Vec::new(), bounds: Bounds::default() };
    steps.iter().try_for_each(|step| world.step(step))?;
    world.finish()
}

fn cases() -> u32 {
    std::env::var("MASTHEAD_CASES").ok().and_then(|n| n.parse().ok()).unwrap_or(4_000)
}

/// R28–R31: nothing is lost and nothing is done twice, in the right order and at the right time.
#[test]
fn whatever_is_asked_for_is_worked_on_in_its_turn_and_by_one_worker() {
    let config = Config {
        cases: cases(),
        failure_persistence: None,
        max_shrink_iters: 20_000,
        ..Config::default()
    };
    let judged =
        TestRunner::new(config).run(&steps(), |steps| judge(&steps).map_err(TestCaseError::fail));
    if let Err(error) = judged {
        panic!("{error}");
    }
}

#[cfg(planted)]
#[test]
fn planted_bugs_are_caught() {
    use masthead_core::planted;
    use proptest::test_runner::{RngAlgorithm, TestRng};

    const BUGS: [&str; 9] = [
        "add_while_working_lost",
        "class_keeps_its_turn",
        "delays_keep_the_later",
        "early_attempts_count",
        "failures_outlive_forget",
        "more_urgent_is_ignored",
        "nobody_ages",
        "shutdown_loses_the_last",
        "two_workers_on_a_key",
    ];
    for bug in BUGS {
        let config = Config {
            cases: 1_000,
            failure_persistence: None,
            max_shrink_iters: 2_000,
            ..Config::default()
        };
        let rng = TestRng::deterministic_rng(RngAlgorithm::ChaCha);
        let hook = std::panic::take_hook();
        std::panic::set_hook(Box::new(|_| {}));
        let caught = planted::with(bug, || {
            let caught = TestRunner::new_with_rng(config, rng)
                .run(&steps(), |steps| judge(&steps).map_err(TestCaseError::fail));
            assert!(planted::reached(), "{bug} was never reached");
            caught
        });
        std::panic::set_hook(hook);
        let error = caught.expect_err(bug).to_string();
        println!("{bug}: {}", error.lines().next().unwrap_or_default());
    }
}
