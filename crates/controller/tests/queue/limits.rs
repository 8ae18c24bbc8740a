//! The bounds of the queue, at N and at N + 1.

use std::time::Duration;

use masthead_controller::limits::{
    AGING_TURNS, AGING_TURNS_MIN, QUEUE_KEYS_MAX, RETRIES_BURST, RETRIES_PER_SECOND,
};
use masthead_controller::queue::{
    Add, Limiter, Machine, Moment, Next, Priority, Refused, Settings, TokenBucket,
};

const NOW: Moment = Moment::START;

#[test]
fn a_queue_knows_as_many_keys_as_it_may_and_not_one_more() {
    let mut machine: Machine<usize> = Machine::new(Settings::default());
    for key in 0..QUEUE_KEYS_MAX {
        machine.add(key, Add::default(), NOW).unwrap();
    }
    let refused = machine.add(QUEUE_KEYS_MAX, Add::default(), NOW);
    assert_eq!(refused, Err(Refused::Full { capacity: QUEUE_KEYS_MAX }));
    assert_eq!((machine.known(), machine.figures(NOW).refused), (QUEUE_KEYS_MAX, 1));
}

/// How many others go before the one key of low priority.
fn turns_before_a_low_one(settings: Settings<u32>) -> u32 {
    let mut machine = Machine::new(settings);
    machine.add(u32::MAX, Priority::Low.into(), NOW).unwrap();
    for key in 0..100 {
        machine.add(key, Add::default(), NOW).unwrap();
    }
    let taken = |machine: &mut Machine<u32>| match machine.take(NOW) {
        Next::Work(taken) => taken.key,
        other => panic!("there is work: {other:?}"),
    };
    (0..=100).find(|_| taken(&mut machine) == u32::MAX).unwrap()
}

#[test]
fn r30_a_priority_is_passed_over_as_often_as_it_may_be_and_not_once_more() {
    assert_eq!(turns_before_a_low_one(Settings::default()), AGING_TURNS);
    let with = |turns| turns_before_a_low_one(Settings::default().aging(turns));
    assert_eq!(with(0), AGING_TURNS_MIN);
    assert_eq!(with(AGING_TURNS_MIN), AGING_TURNS_MIN);
    assert_eq!(with(AGING_TURNS_MIN + 1), AGING_TURNS_MIN + 1);
}

#[test]
fn r29_as_many_retries_as_may_come_at_once_do_and_the_next_waits_for_its_token() {
    let mut bucket = TokenBucket::default();
    let mut delay = || Limiter::<u8>::delay(&mut bucket, &0, 0, NOW);
    assert!((0..RETRIES_BURST).all(|_| delay() == Duration::ZERO));
    assert_eq!(delay(), Duration::from_secs(1) / RETRIES_PER_SECOND);
}
