//! Waiting for a revision.

use std::pin::pin;
use std::task::{Context, Poll};

use masthead_cache::{Cache, Config, Lane, Progress};
use masthead_core::{Revision, Time};

use crate::{Wakes, cache, keeping, pod, poll, put};

#[test]
fn waiting_for_a_revision_ends_when_it_is_there_by_change_or_by_bookmark() {
    let (mut writer, cache) = cache(keeping(10));
    let (wakeups, waker) = Wakes::new();
    assert_eq!(poll(cache.wait_for(Revision(1)), &waker), Poll::Ready(()));
    let (mut change, mut bookmark) =
        (pin!(cache.wait_for(Revision(3))), pin!(cache.wait_for(Revision(5))));
    let mut cx = Context::from_waker(&waker);
    assert!(change.as_mut().poll(&mut cx).is_pending());
    assert!(bookmark.as_mut().poll(&mut cx).is_pending());
    writer.apply([put(pod("a", "", 2))], Time(0));
    assert_eq!(wakeups.count(), 0, "not there yet");
    writer.apply([put(pod("a", "", 4))], Time(0));
    assert_eq!(wakeups.count(), 1);
    assert_eq!(change.as_mut().poll(&mut cx), Poll::Ready(()));
    writer.bookmark(Revision(5), Time(0));
    assert_eq!(wakeups.count(), 2);
    assert_eq!(bookmark.as_mut().poll(&mut cx), Poll::Ready(()));
}

#[test]
fn a_wait_that_was_given_up_leaves_nothing_behind() {
    let (mut writer, cache) = cache(keeping(10));
    let (wakeups, waker) = Wakes::new();
    assert!(poll(cache.wait_for(Revision(3)), &waker).is_pending());
    writer.apply([put(pod("a", "", 4))], Time(0));
    assert_eq!(wakeups.count(), 0);
}

#[test]
fn a_write_to_one_resource_moves_what_the_caches_of_others_promise() {
    let progress = Progress::new();
    let (pods_lane, secrets_lane) = (Lane::new(&progress), Lane::new(&progress));
    let config =
        |lane: &std::sync::Arc<Lane>| Config { lane: Some(lane.clone()), ..Config::default() };
    let (mut pods_writer, pods) = Cache::new(config(&pods_lane));
    let (mut secrets_writer, secrets) = Cache::new(config(&secrets_lane));
    for (writer, lane) in [(&mut pods_writer, &pods_lane), (&mut secrets_writer, &secrets_lane)] {
        writer.replace(Vec::new(), Revision(10), Time(0)).unwrap();
        lane.route(Revision(10));
    }
    let (wakeups, waker) = Wakes::new();
    let mut wait = pin!(secrets.wait_for(Revision(11)));
    let mut cx = Context::from_waker(&waker);
    assert!(wait.as_mut().poll(&mut cx).is_pending());
    // A change of pods is handed out: secrets have nothing to wait for, pods have.
    pods_lane.route(Revision(11));
    progress.advance(Revision(11));
    assert_eq!((secrets.revision(), pods.revision()), (Revision(11), Revision(10)));
    assert_eq!(secrets.snapshot().revision(), Revision(11));
    assert_eq!(wakeups.count(), 1);
    assert_eq!(wait.as_mut().poll(&mut cx), Poll::Ready(()));
    pods_writer.apply([put(pod("a", "", 11))], Time(0));
    assert_eq!(pods.revision(), Revision(11));
    // A lane whose stream broke promises no more than its cache has.
    secrets_lane.suspend();
    progress.advance(Revision(12));
    assert_eq!((secrets.revision(), pods.revision()), (Revision(10), Revision(12)));
}

#[test]
fn a_wait_ends_when_the_cache_applies_the_last_change_that_it_was_behind() {
    let progress = Progress::new();
    let lane = Lane::new(&progress);
    let config = Config { lane: Some(lane.clone()), ..Config::default() };
    let (mut writer, cache) = Cache::new(config);
    writer.replace(Vec::new(), Revision(10), Time(0)).unwrap();
    lane.route(Revision(10));
    // A change of this cache at 11 and one of another at 12 are handed out together.
    lane.route(Revision(11));
    progress.advance(Revision(12));
    let (wakeups, waker) = Wakes::new();
    let mut wait = pin!(cache.wait_for(Revision(12)));
    let mut cx = Context::from_waker(&waker);
    assert!(wait.as_mut().poll(&mut cx).is_pending(), "11 has not been applied");
    writer.apply([put(pod("a", "", 11))], Time(1));
    assert_eq!((cache.revision(), wakeups.count()), (Revision(12), 1), "nobody else wakes it");
    assert!(wait.as_mut().poll(&mut cx).is_ready());
}
