//! `/statz`: resources, memory, watches and the store in one document.

use masthead_core::Revision;
use masthead_store::Health;
use serde_json::{Value, json};

use crate::app::App;
use crate::metrics::resident_bytes;

impl App {
    /// What the server has and does, for people and their tools.
    pub(crate) fn statistics(&self) -> Value {
        let all = self.reads.statistics();
        let newest = all.iter().map(|it| it.revision).max().unwrap_or(Revision::ZERO);
        let resources: Vec<_> = all
            .iter()
            .map(|it| {
                json!({
                    "resource": it.resource.as_str(), "version": it.version, "ready": it.ready,
                    "objects": it.memory.objects, "bytes": it.memory.total(),
                    "bodyBytes": it.memory.bodies, "wholeBytes": it.memory.whole,
                    "historyBytes": it.memory.history,
                    "pinnedBytes": it.memory.pinned,
                    "revision": it.revision.to_string(), "oldest": it.oldest.to_string(),
                    "lag": newest.0.saturating_sub(it.revision.0),
                    "watches": it.watches, "eventsSent": it.counters.events.get(),
                    "watchesTerminated": it.counters.terminated.get(),
                })
            })
            .collect();
        let store = match self.store.health() {
            Health::Writable => json!({"writable": true}),
            Health::ReadOnly { why } => json!({"writable": false, "why": &*why}),
        };
        json!({
            "revision": newest.to_string(),
            "watches": self.flights.watches(),
            "responseBytesInFlight": self.flights.bytes(),
            "zippedBytes": self.pieces.bytes(),
            "residentBytes": resident_bytes(),
            "uptimeSeconds": self.began.elapsed().as_secs(),
            "store": store,
            "taskPanics": self.tasks.first_panics(),
            "resources": resources,
        })
    }
}
