//! Telling people what was done to an object.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::api::events::v1::{Event, EventSeries};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};
use kube_client::api::{Patch, PatchParams, PostParams};
use kube_client::{Api, Client, Error};
use parking_lot::Mutex;
use serde_json::json;
use tokio::time::Instant;

use crate::limits::{
    EVENT_INTERVAL, EVENT_NOTE_BYTES_MAX, EVENT_SERIES_IDLE, EVENT_SERIES_MAX, EVENTS_BURST,
};

/// Whether an event reports something normal or a problem.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum EventKind {
    /// Yes.
    Normal,
    /// No.
    Warning,
}

/// Records events. What happens to an object again and again is one event with a count, and an object of
/// which there are too many has to wait. Clones are the same recorder.
#[derive(Clone)]
pub struct Recorder {
    client: Client,
    controller: String,
    instance: String,
    state: Arc<Mutex<State>>,
}

#[derive(Default)]
struct State {
    series: HashMap<SeriesKey, Series>,
    /// Events of an object that were left, and since when.
    budgets: HashMap<String, (u32, Instant)>,
    dropped: u64,
}

/// What makes two events the same.
#[derive(Clone, PartialEq, Eq, Hash)]
struct SeriesKey {
    regarding: String,
    kind: EventKind,
    reason: String,
    action: String,
}

struct Series {
    name: String,
    count: i32,
    last: Instant,
}

/// What is to be written.
enum Decision {
    New,
    Again { name: String, count: i32 },
    Drop,
}

impl Recorder {
    /// A recorder of a controller; the instance tells its processes apart.
    pub fn new(client: Client, controller: &str, instance: &str) -> Self {
        let (controller, instance) = (controller.to_owned(), instance.to_owned());
        Self { client, controller, instance, state: Arc::default() }
    }

    /// Records that something was done to an object: a reason and an action for machines (`ScaledUp`,
    /// `Scaling`), a note for people.
    pub async fn record(
        &self,
        regarding: &ObjectReference,
        kind: EventKind,
        reason: &str,
        action: &str,
        note: &str,
    ) -> Result<(), Error> {
        let uid = regarding.uid.as_deref().unwrap_or_default();
        let name = regarding.name.as_deref().unwrap_or_default();
        let namespace = regarding.namespace.as_deref().unwrap_or("default");
        let (reason, action) = (reason.to_owned(), action.to_owned());
        let key =
            SeriesKey { regarding: format!("{namespace}/{name}/{uid}"), kind, reason, action };
        let events: Api<Event> = Api::namespaced(self.client.clone(), namespace);
        let decision = self.state.lock().decide(&key, Instant::now());
        match decision {
            Decision::Drop => return Ok(()),
            Decision::New => {}
            Decision::Again { name, count } => return again(&events, &name, count).await,
        }
        let event = self.event(regarding, &key, namespace, note);
        let name = events.create(&PostParams::default(), &event).await?.metadata.name;
        self.state.lock().began(key, name.unwrap_or_default(), Instant::now());
        Ok(())
    }

    /// Events that were not written, because there were too many of their object.
    pub fn dropped(&self) -> u64 {
        self.state.lock().dropped
    }

    fn event(
        &self,
        regarding: &ObjectReference,
        key: &SeriesKey,
        namespace: &str,
        note: &str,
    ) -> Event {
        let now = Timestamp::now();
        let name = regarding.name.as_deref().unwrap_or_default();
        let end = note.floor_char_boundary(EVENT_NOTE_BYTES_MAX);
        Event {
            metadata: ObjectMeta {
                name: Some(format!("{name}.{:x}", now.as_nanosecond())),
                namespace: Some(namespace.to_owned()),
                ..ObjectMeta::default()
            },
            event_time: Some(MicroTime(now)),
            regarding: Some(regarding.clone()),
            type_: Some(format!("{:?}", key.kind)),
            reason: Some(key.reason.clone()),
            action: Some(key.action.clone()),
            note: Some(note[..end].to_owned()),
            reporting_controller: Some(self.controller.clone()),
            reporting_instance: Some(self.instance.clone()),
            ..Event::default()
        }
    }
}

/// Counts one more of a series.
async fn again(events: &Api<Event>, name: &str, count: i32) -> Result<(), Error> {
    let last_observed_time = MicroTime(Timestamp::now());
    let patch = json!({"series": EventSeries { count, last_observed_time }});
    events.patch(name, &PatchParams::default(), &Patch::Merge(patch)).await.map(drop)
}

impl State {
    fn decide(&mut self, key: &SeriesKey, now: Instant) -> Decision {
        self.series.retain(|_, series| now - series.last < EVENT_SERIES_IDLE);
        let full = EVENT_INTERVAL * EVENTS_BURST;
        self.budgets.retain(|_, (left, at)| *left < EVENTS_BURST && now - *at < full);
        if !self.may(&key.regarding, now) {
            self.dropped += 1;
            return Decision::Drop;
        }
        match self.series.get_mut(key) {
            None => Decision::New,
            Some(series) => {
                series.count = series.count.saturating_add(1);
                series.last = now;
                Decision::Again { name: series.name.clone(), count: series.count }
            }
        }
    }

    /// Takes one of what an object may have.
    fn may(&mut self, object: &str, now: Instant) -> bool {
        if self.budgets.len() >= EVENT_SERIES_MAX && !self.budgets.contains_key(object) {
            return false;
        }
        let (left, at) = self.budgets.entry(object.to_owned()).or_insert((EVENTS_BURST, now));
        while *left < EVENTS_BURST && now - *at >= EVENT_INTERVAL {
            *left += 1;
            *at += EVENT_INTERVAL;
        }
        if *left == EVENTS_BURST {
            *at = now;
        }
        let may = *left > 0;
        *left = left.saturating_sub(1);
        may
    }

    fn began(&mut self, key: SeriesKey, name: String, now: Instant) {
        if self.series.len() < EVENT_SERIES_MAX {
            self.series.insert(key, Series { name, count: 1, last: now });
        }
    }
}

impl fmt::Debug for Recorder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Recorder").field("controller", &self.controller).finish_non_exhaustive()
    }
}
