//! One leads, at most.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures_util::FutureExt;
use masthead_controller::{LeaderElection, Leadership};
use tokio::time::{Instant, advance, sleep};
use tokio_util::sync::CancellationToken;

use crate::world::{Dice, Link, World};

const LEASE: &str = "default/lock";

fn direct() -> Link {
    Box::new(|| (Duration::ZERO, Duration::ZERO))
}

/// A link that takes nothing while it is cut.
fn cut_by(cut: &Arc<AtomicBool>) -> Link {
    let cut = cut.clone();
    let never = Duration::from_secs(1_000_000);
    Box::new(move || if cut.load(Ordering::Relaxed) { (never, never) } else { direct()() })
}

fn campaign(world: &World, identity: &str, link: Link) -> (Leadership, CancellationToken) {
    let stop = CancellationToken::new();
    let client = world.client(link);
    let election = LeaderElection::new(client, "default", "lock", identity);
    let (leadership, run) = election.campaign(stop.clone());
    tokio::spawn(run);
    (leadership, stop)
}

async fn gained(leadership: &Leadership) -> Instant {
    leadership.gained().await;
    Instant::now()
}

#[tokio::test(start_paused = true)]
async fn a_leader_that_cannot_renew_stops_before_its_lease_can_be_taken() {
    let (world, cut) = (World::new(), Arc::new(AtomicBool::new(false)));
    let (first, _) = campaign(&world, "first", cut_by(&cut));
    first.gained().await;
    let (second, _) = campaign(&world, "second", direct());
    sleep(Duration::from_secs(60)).await;
    assert!(first.is_leading() && !second.is_leading(), "it renews");
    cut.store(true, Ordering::Relaxed);
    let was_cut = Instant::now();
    let lost = async {
        first.lost().await;
        Instant::now()
    };
    let (lost, gained) = tokio::join!(lost, gained(&second));
    assert!(lost - was_cut <= Duration::from_secs(10));
    assert!(gained - lost >= Duration::from_secs(3), "{:?}", gained - lost);
    assert!(gained - was_cut <= Duration::from_secs(18));
    assert_eq!((first.term(), second.term().unwrap().transitions), (None, 1));
    cut.store(false, Ordering::Relaxed);
    sleep(Duration::from_secs(60)).await;
    assert!(!first.is_leading() && second.is_leading(), "who comes back has to wait");
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_is_given_back_is_taken_at_the_next_try() {
    let world = World::new();
    let (first, stop) = campaign(&world, "first", direct());
    first.gained().await;
    let (second, _) = campaign(&world, "second", direct());
    sleep(Duration::from_secs(5)).await;
    let began = Instant::now();
    stop.cancel();
    first.lost().await;
    second.gained().await;
    assert!(began.elapsed() <= Duration::from_secs(2));
    let lease = world.get("leases", LEASE).unwrap();
    assert_eq!(lease["spec"]["holderIdentity"], "second");
}

#[tokio::test(start_paused = true)]
async fn a_leader_that_was_asleep_does_not_lead_when_it_wakes_whatever_its_timers_say() {
    let world = World::new();
    let (leadership, _) = campaign(&world, "it", direct());
    leadership.gained().await;
    let mut lost = pin!(leadership.lost());
    assert_eq!(lost.as_mut().now_or_never(), None);
    // The clock goes on, and nothing else does.
    assert_eq!(advance(Duration::from_secs(60)).now_or_never(), None);
    assert_eq!(lost.as_mut().now_or_never(), Some(()));
}

#[tokio::test(start_paused = true)]
async fn a_term_is_lost_also_if_the_same_one_leads_again() {
    let (world, cut) = (World::new(), Arc::new(AtomicBool::new(false)));
    let (first, _) = campaign(&world, "first", cut_by(&cut));
    first.gained().await;
    let mut lost = pin!(first.lost());
    assert_eq!(lost.as_mut().now_or_never(), None);
    cut.store(true, Ordering::Relaxed);
    let (second, stop) = campaign(&world, "second", direct());
    second.gained().await;
    stop.cancel();
    cut.store(false, Ordering::Relaxed);
    first.gained().await;
    assert_eq!(first.term().unwrap().transitions, 2);
    assert_eq!(lost.as_mut().now_or_never(), Some(()));
}

/// A link on which some take long and some never arrive.
fn unsteady(mut dice: Dice) -> Link {
    let mut bad = 0;
    Box::new(move || {
        if dice.below(15) == 0 {
            bad = dice.below(12);
        }
        let mut delay = || {
            let worst = if bad > 0 { 9_000 } else { 30 };
            Duration::from_millis(dice.below(worst))
        };
        let delays = (delay(), delay());
        bad = u64::saturating_sub(bad, 1);
        delays
    })
}

/// Three candidates on unsteady links; says how often the lead changed.
async fn live(seed: u64) -> Result<i32, String> {
    let world = World::new();
    let mut dice = Dice::new(seed);
    let candidates: Vec<_> = ["a", "b", "c"]
        .into_iter()
        .map(|name| campaign(&world, name, unsteady(Dice::new(dice.below(u64::MAX)))))
        .collect();
    for _ in 0..6_000 {
        sleep(Duration::from_millis(50)).await;
        let leading = candidates.iter().filter(|it| it.0.is_leading()).count();
        if leading > 1 {
            return Err(format!("{leading} leaders"));
        }
    }
    let lease = world.get("leases", LEASE).unwrap();
    Ok(i32::try_from(lease["spec"]["leaseTransitions"].as_i64().unwrap()).unwrap())
}

fn lived(seed: u64) -> Result<i32, String> {
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
    runtime.unwrap().block_on(live(seed))
}

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

#[test]
fn there_are_never_two_leaders_however_slow_the_links_are() {
    let seeds = match number("MASTHEAD_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..number("MASTHEAD_SEEDS").unwrap_or(60),
    };
    let mut changes = 0;
    for seed in seeds {
        changes += lived(seed).unwrap_or_else(|wrong| {
            panic!("seed {seed}: {wrong}\nreplay: MASTHEAD_SEED={seed} cargo test -p masthead-controller --test controller")
        });
    }
    assert!(changes > 0, "nobody ever lost the lead");
}

#[cfg(planted)]
#[test]
fn planted_bugs_are_caught() {
    use masthead_core::planted;
    for bug in ["leads_from_the_answer", "takes_a_lease_that_holds"] {
        let caught = planted::with(bug, || {
            let caught = (0..1_000).find_map(|seed| Some((seed, lived(seed).err()?)));
            assert!(planted::reached(), "{bug} was never reached");
            caught
        });
        let (seed, how) = caught.expect(bug);
        println!("{bug}: by {seed}: {how}");
    }
}
