//! Events that go when their time is over, for stores that do not see to it.
//!
//! [`Deadlines`] does no I/O and reads no clock: what is written and how late it is are parameters.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use masthead_cache::Event;
use masthead_core::{EventType, ObjectKey, Revision, Time};
use masthead_store::CommitError;
use serde_json::Value;
use tokio::time::{Instant, sleep_until};
use tracing::warn;

use crate::document::{self, Members};
use crate::housekeeping::{Follower, Housekeeping};
use crate::limits::{DELETE_GROUP, HOUSEKEEPING_RETRY, HOUSEKEEPING_RETRY_MAX};
use crate::resources::Kind;

/// When objects are to be deleted: a time to live after they were last written.
///
/// It holds one deadline for each object that it was told of and that was not removed since, so it is bounded by
/// what the cache holds.
struct Deadlines {
    ttl: Duration,
    objects: HashMap<ObjectKey, Deadline>,
    /// The same by time.
    order: BTreeSet<(Time, ObjectKey)>,
    /// Counts the states that were read.
    state: u64,
}

#[derive(Clone, Copy)]
struct Deadline {
    at: Time,
    /// The revision that is to be deleted. An object that was written again is another one.
    revision: Revision,
    /// The last state that had it.
    state: u64,
}

impl Deadlines {
    fn new(ttl: Duration) -> Self {
        Self { ttl, objects: HashMap::new(), order: BTreeSet::new(), state: 0 }
    }

    /// Begins a state: what [`Deadlines::put_listed`] does not put there before [`Deadlines::end_state`] is gone.
    fn begin_state(&mut self) {
        self.state += 1;
    }

    /// Puts an object of a state there, which was written at a time as far as can be told. If it is known already, so
    /// is when it was written.
    fn put_listed(&mut self, key: &ObjectKey, revision: Revision, written: Time) {
        match self.objects.get_mut(key) {
            Some(known) if known.revision == revision => known.state = self.state,
            _ => self.put(key, revision, written),
        }
    }

    /// Ends a state.
    fn end_state(&mut self) {
        let state = self.state;
        let gone = |(key, deadline): (&ObjectKey, &Deadline)| {
            (deadline.state < state).then(|| key.clone())
        };
        let gone: Vec<_> = self.objects.iter().filter_map(gone).collect();
        for key in gone {
            self.remove(&key);
        }
    }

    /// Takes note that an object was written.
    fn put(&mut self, key: &ObjectKey, revision: Revision, written: Time) {
        self.set(key.clone(), Deadline { at: written + self.ttl, revision, state: self.state });
    }

    /// Takes note that an object is gone.
    fn remove(&mut self, key: &ObjectKey) {
        if let Some(Deadline { at, .. }) = self.objects.remove(key) {
            self.order.remove(&(at, key.clone()));
        }
    }

    /// The next deadline.
    fn next(&self) -> Option<Time> {
        self.order.first().map(|(at, _)| *at)
    }

    /// Up to `most` objects whose deadline has come. They stay here until something else is known of them.
    fn due(&self, now: Time, most: usize) -> Vec<(ObjectKey, Revision)> {
        let due = self.order.iter().take_while(|(at, _)| *at <= now).take(most);
        due.map(|(_, key)| (key.clone(), self.objects[key].revision)).collect()
    }

    /// Takes note that a revision of an object is not there any more.
    fn forget(&mut self, key: &ObjectKey, revision: Revision) {
        if self.objects.get(key).is_some_and(|known| known.revision == revision) {
            self.remove(key);
        }
    }

    /// Puts the deadline of a revision of an object off.
    fn put_off(&mut self, key: &ObjectKey, revision: Revision, until: Time) {
        match self.objects.get(key) {
            Some(known) if known.revision == revision => {
                let deadline = Deadline { at: until, ..*known };
                self.set(key.clone(), deadline);
            }
            _ => {}
        }
    }

    fn set(&mut self, key: ObjectKey, deadline: Deadline) {
        self.remove(&key);
        self.order.insert((deadline.at, key.clone()));
        self.objects.insert(key, deadline);
    }
}

/// The wall clock as it was at the beginning, and what has passed since: it does not jump.
#[derive(Clone, Copy)]
struct Clock {
    began: Instant,
    began_at: Time,
}

impl Clock {
    fn start() -> Self {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Self { began: Instant::now(), began_at: Time(0) + since }
    }

    fn now(self) -> Time {
        self.began_at + self.began.elapsed()
    }

    /// The instant of a time; one in the past is the beginning, and one that is too far away the end of time.
    fn instant(self, time: Time) -> Option<Instant> {
        self.began.checked_add(time.since(self.began_at))
    }
}

/// Deletes the events of one resource when their time is over.
struct Expiry<'a> {
    housekeeping: &'a Housekeeping,
    kind: &'a Arc<Kind>,
    deadlines: Deadlines,
    clock: Clock,
    /// Nothing is deleted before, as the store has refused it.
    not_before: Time,
    wait: Duration,
}

impl Housekeeping {
    /// Deletes the events of a group when their time is over, for as long as it runs.
    pub(crate) async fn expire_events(&self, group: &str) {
        let scope = self.scope(group, "events", "");
        let mut expiry = Expiry::new(self, &scope.kind);
        let mut follower = Follower::new(&self.reads, &scope);
        let mut begins = 0;
        loop {
            tokio::select! {
                batch = follower.next() => if batch.is_none() { return },
                () = expiry.wake() => {
                    expiry.delete_due().await;
                    continue;
                }
            }
            if begins != follower.begins() {
                begins = follower.begins();
                expiry.deadlines.begin_state();
            }
            let batch = follower.batch();
            batch.events.iter().for_each(|event| expiry.take(event));
            if batch.initial_end.is_some() {
                expiry.deadlines.end_state();
            }
        }
    }
}

impl<'a> Expiry<'a> {
    fn new(housekeeping: &'a Housekeeping, kind: &'a Arc<Kind>) -> Self {
        let deadlines = Deadlines::new(housekeeping.writes.event_ttl());
        let (clock, wait) = (Clock::start(), HOUSEKEEPING_RETRY);
        Self { housekeeping, kind, deadlines, clock, not_before: Time(0), wait }
    }

    /// Resolves when something is due.
    async fn wake(&self) {
        let next = self.deadlines.next().map(|at| at.max(self.not_before));
        match next.and_then(|at| self.clock.instant(at)) {
            Some(at) => sleep_until(at).await,
            None => std::future::pending().await,
        }
    }

    fn take(&mut self, event: &Event) {
        let (key, revision, now) = (event.object.key(), event.object.revision(), self.clock.now());
        match event.kind {
            EventType::Deleted => self.deadlines.remove(key),
            _ if event.initial => {
                // When it was written last is not known after a restart.
                let written = document::members(&event.object).ok();
                let written = written.and_then(|members| latest_time(&members)).unwrap_or(now);
                self.deadlines.put_listed(key, revision, written.min(now));
            }
            _ => self.deadlines.put(key, revision, now),
        }
    }

    async fn delete_due(&mut self) {
        let now = self.clock.now();
        let due = self.deadlines.due(now, DELETE_GROUP);
        let results = self.housekeeping.writes.delete_at(self.kind, &due).await;
        let mut refused = None;
        for ((key, revision), result) in due.iter().zip(results) {
            match result {
                // One that was written again comes from the cache, with its new deadline.
                Ok(()) | Err(CommitError::Conflict { .. }) => {
                    self.deadlines.forget(key, *revision);
                }
                Err(error @ CommitError::Unreadable(_)) => {
                    warn!(event = %key, %error, "an event whose time is over cannot be deleted");
                    self.deadlines.put_off(key, *revision, now + HOUSEKEEPING_RETRY_MAX);
                }
                Err(error) => refused = Some(error),
            }
        }
        self.pace(refused.as_ref());
    }

    /// Waits after a refusal, longer each time.
    fn pace(&mut self, refused: Option<&CommitError>) {
        let Some(error) = refused else {
            self.wait = HOUSEKEEPING_RETRY;
            return;
        };
        if self.wait == HOUSEKEEPING_RETRY {
            warn!(%error, "events whose time is over cannot be deleted for now");
        }
        self.not_before = self.clock.now() + self.wait;
        self.wait = (self.wait * 2).min(HOUSEKEEPING_RETRY_MAX);
    }
}

/// The latest time that an event names as one at which something was written of it.
fn latest_time(event: &Members) -> Option<Time> {
    let named = [
        event.get("metadata").and_then(|metadata| metadata.get("creationTimestamp")),
        event.get("firstTimestamp"),
        event.get("lastTimestamp"),
        event.get("deprecatedFirstTimestamp"),
        event.get("deprecatedLastTimestamp"),
        event.get("eventTime"),
        event.get("series").and_then(|series| series.get("lastObservedTime")),
    ];
    named.into_iter().flatten().filter_map(time).max()
}

fn time(value: &Value) -> Option<Time> {
    let timestamp: jiff::Timestamp = value.as_str()?.parse().ok()?;
    u64::try_from(timestamp.as_millisecond()).ok().map(Time)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use serde_json::json;

    use super::*;
    use crate::random::Random;

    const TTL: Duration = Duration::from_millis(20);

    fn key(n: usize) -> ObjectKey {
        ObjectKey::new("shop", &format!("event-{n}")).expect("is a key")
    }

    /// The same, looked through from the beginning each time.
    #[derive(Default)]
    struct Naive {
        objects: BTreeMap<ObjectKey, (Time, Revision)>,
        listed: Option<Vec<ObjectKey>>,
    }

    impl Naive {
        fn due(&self, now: Time, most: usize) -> Vec<(ObjectKey, Revision)> {
            let mut due: Vec<_> = self.objects.iter().filter(|(_, (at, _))| *at <= now).collect();
            due.sort_by_key(|(key, (at, _))| (*at, (*key).clone()));
            due.into_iter()
                .take(most)
                .map(|(key, (_, revision))| (key.clone(), *revision))
                .collect()
        }

        fn next(&self) -> Option<Time> {
            self.objects.values().map(|(at, _)| *at).min()
        }
    }

    /// Does one thing to both, and compares them.
    fn step(random: &mut Random, now: &mut Time, deadlines: &mut Deadlines, naive: &mut Naive) {
        *now = *now + Duration::from_millis(random.below(6) as u64);
        let (key, revision) = (key(random.below(12)), Revision(random.below(3) as u64));
        let same = |naive: &Naive| naive.objects.get(&key).is_some_and(|it| it.1 == revision);
        match random.below(8) {
            0 | 1 => {
                deadlines.put(&key, revision, *now);
                naive.objects.insert(key.clone(), (*now + TTL, revision));
                naive.listed.iter_mut().for_each(|listed| listed.push(key.clone()));
            }
            2 => {
                deadlines.remove(&key);
                naive.objects.remove(&key);
            }
            3 => {
                deadlines.forget(&key, revision);
                if same(naive) {
                    naive.objects.remove(&key);
                }
            }
            4 => {
                let until = *now + Duration::from_millis(random.below(30) as u64);
                deadlines.put_off(&key, revision, until);
                if same(naive) {
                    naive.objects.insert(key.clone(), (until, revision));
                }
            }
            5 => {
                deadlines.begin_state();
                naive.listed = Some(Vec::new());
            }
            6 if naive.listed.is_some() => {
                let written = Time(now.0 - random.below(15) as u64);
                deadlines.put_listed(&key, revision, written);
                if !same(naive) {
                    naive.objects.insert(key.clone(), (written + TTL, revision));
                }
                naive.listed.iter_mut().for_each(|listed| listed.push(key.clone()));
            }
            _ => {
                if let Some(listed) = naive.listed.take() {
                    deadlines.end_state();
                    naive.objects.retain(|key, _| listed.contains(key));
                }
            }
        }
        let most = random.below(8);
        assert_eq!(deadlines.due(*now, most), naive.due(*now, most));
        assert_eq!(deadlines.next(), naive.next());
        assert_eq!(deadlines.order.len(), deadlines.objects.len(), "one deadline an object");
        assert_eq!(deadlines.objects.len(), naive.objects.len());
    }

    #[test]
    fn deadlines_are_what_a_naive_model_says() {
        for seed in 1..=200 {
            let mut random = Random::new(seed);
            let (mut deadlines, mut naive) = (Deadlines::new(TTL), Naive::default());
            let mut now = Time(1_000_000);
            for _ in 0..200 {
                step(&mut random, &mut now, &mut deadlines, &mut naive);
            }
        }
    }

    #[test]
    fn an_object_is_due_at_its_time_and_not_before_and_lives_on_when_it_is_written_again() {
        let mut deadlines = Deadlines::new(TTL);
        deadlines.put(&key(1), Revision(5), Time(100));
        assert_eq!(deadlines.due(Time(119), 9), []);
        assert_eq!(deadlines.due(Time(120), 9), [(key(1), Revision(5))]);
        assert_eq!(deadlines.due(Time(120), 0), []);
        deadlines.put(&key(1), Revision(6), Time(110));
        deadlines.forget(&key(1), Revision(5));
        assert_eq!(deadlines.due(Time(129), 9), []);
        assert_eq!(deadlines.due(Time(130), 9), [(key(1), Revision(6))]);
    }

    #[test]
    fn the_latest_of_the_times_of_an_event_counts() {
        let of = |event: Value| latest_time(event.as_object().expect("is an object"));
        let created = json!({"metadata": {"creationTimestamp": "1970-01-01T00:00:01Z"}});
        assert_eq!(of(created), Some(Time(1000)));
        for event in [
            json!({"lastTimestamp": "1970-01-01T00:00:03Z", "firstTimestamp": "1970-01-01T00:00:01Z"}),
            json!({"eventTime": "1970-01-01T00:00:03.000000Z", "lastTimestamp": null}),
            json!({"deprecatedLastTimestamp": "1970-01-01T00:00:03Z"}),
            json!({"series": {"count": 2, "lastObservedTime": "1970-01-01T00:00:03.000000Z"}}),
        ] {
            let mut members = event.as_object().expect("is an object").clone();
            members.insert(
                "metadata".to_owned(),
                json!({"creationTimestamp": "1970-01-01T00:00:02Z"}),
            );
            assert_eq!(latest_time(&members), Some(Time(3000)), "{event}");
        }
        for none in [json!({}), json!({"eventTime": "soon"}), json!({"eventTime": 5})] {
            assert_eq!(of(none), None);
        }
    }
}
