//! Three servers on three etcd members, with a balancer in front and everything going wrong.

use std::thread;
use std::time::Duration;

use masthead_lab::{Mode, Proxy};
use masthead_sim::history::RunEnd;

use crate::load::{Load, judge};

mod informers;
mod log;
mod storm;
mod world;

use informers::Informers;
use log::Log;
use world::World;

const WRITERS: usize = 6;
const WATCHES: usize = 200;
/// Those who were hit by the last fault have this long to notice, before everything is due in time.
const AFTERMATH: Duration = Duration::from_secs(5);
/// How long everything has to come in time at the end.
const CALM: Duration = Duration::from_secs(3);
/// Of a hundred watches, so many may have to list again.
const RELISTS_MAX: u64 = 5;

/// Runs a load through faults and judges what was seen of it.
#[expect(clippy::print_stdout, reason = "how much a run has shown")]
fn survive(options: &world::Options, torment: impl FnOnce(&mut World)) -> (u64, usize) {
    let _alone = crate::alone();
    let mut world = World::start(options);
    let from = world.revision();
    let log = Log::follow(&world.etcd.endpoints(), from, &world.read);
    let load = Load::start(world.client(), WRITERS, WATCHES, from);
    let informers = Informers::start(&world.client());
    log.set_clock(load.run.clone());
    load.run.fault("chaos", true);
    torment(&mut world);
    world.heal();
    thread::sleep(AFTERMATH);
    load.run.fault("chaos", false);
    thread::sleep(CALM);
    load.settle(20);
    load.run.record(RunEnd { t: load.run.now() });
    let relists = load.run.relists();
    let seen = load.finish();
    informers.judge(&world.client());
    let (acknowledged, opened) = judge(log.finish(), seen);
    println!("{acknowledged} writes acknowledged, {opened} watches opened, {relists} listed again");
    assert!(acknowledged > 200 && opened >= WATCHES, "too quiet to show anything");
    (relists, opened)
}

fn few_relist((relists, opened): (u64, usize)) {
    let most = opened as u64 * RELISTS_MAX / 100;
    assert!(relists <= most, "{relists} of {opened} watches had to list again");
}

/// How often each fault comes; `MASTHEAD_ROUNDS` for more.
fn rounds() -> usize {
    std::env::var("MASTHEAD_ROUNDS").map_or(1, |it| it.parse().unwrap())
}

/// Not a wait: the time between two faults.
fn pause() {
    thread::sleep(Duration::from_millis(1500));
}

#[test]
fn nothing_is_lost_when_servers_and_etcd_members_are_killed() {
    few_relist(survive(&world::Options::default(), |world| {
        for round in 0..3 * rounds() {
            world.kill_replica(round % 3);
            pause();
            world.start_replica(round % 3);
            world.etcd.members[(round + 1) % 3].kill();
            pause();
            world.etcd.members[(round + 1) % 3].restart();
            if let Some(leader) = world.etcd.leader() {
                world.etcd.members[leader].kill();
                pause();
                world.etcd.members[leader].restart();
            }
        }
    }));
}

#[test]
fn nothing_is_lost_when_servers_are_stopped_and_links_are_cut() {
    few_relist(survive(&world::Options::default(), |world| {
        for round in 0..rounds() {
            for (replica, mode) in
                [Mode::Refuse, Mode::LoseAnswers, Mode::LoseRequests].iter().enumerate()
            {
                let replica = (replica + round) % 3;
                world.links[replica].iter().for_each(|link| link.set(*mode));
                pause();
                world.links[replica].iter().for_each(|link| link.set(Mode::Pass));
                world.links[replica].iter().for_each(Proxy::cut);
                pause();
            }
            let sleeper = world.replica(round % 3);
            sleeper.signal("STOP");
            thread::sleep(Duration::from_secs(10));
            sleeper.signal("CONT");
        }
    }));
}

#[test]
fn nothing_is_lost_when_history_is_compacted_all_the_time_and_etcd_is_full() {
    let options = world::Options { quota_bytes: Some(32 * 1024 * 1024) };
    survive(&options, |world| {
        let compacting = world.compact_every(Duration::from_millis(100));
        for round in 0..3 * rounds() {
            world.kill_replica(round % 3);
            pause();
            world.start_replica(round % 3);
        }
        world.fill();
        let (code, status) = world.write_large();
        assert_eq!(code, 503, "{status}");
        assert!(status.to_string().contains("out of space"), "{status}");
        let (code, _) = world.client().ask("GET", "/api/v1/configmaps", "").unwrap();
        assert_eq!(code, 200, "reads go on");
        world.make_room();
        drop(compacting);
    });
}
