//! The server's log, as its store has it on disk.

use std::path::Path;

use futures_util::StreamExt;
use masthead_core::{Resource, Revision, Scope};
use masthead_store::{EmbeddedStore, Event, EventKind, Settings, Store};
use serde_json::Value;

use super::fleets::{MADE_BY, TERM};
use super::judge::{Commit, Leader};

/// Who held the lease and who made ships, in the order of revisions.
pub(super) fn read(store: &Path) -> Vec<Commit> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let store = EmbeddedStore::open(store, Settings::default()).unwrap();
        let current = store.current().await.unwrap();
        let (mut log, mut reached) = (Vec::new(), Revision(1));
        let mut events = store.watch(reached).unwrap();
        while reached < current {
            let batch = events.next().await.unwrap().unwrap();
            log.extend(batch.events.iter().filter_map(commit));
            reached = batch.reached;
        }
        log
    })
}

fn commit(event: &Event) -> Option<Commit> {
    let body = |group: &str, plural: &str, kind: &str| -> Value {
        let resource = Resource::new(group, "v1", plural, kind, Scope::Namespaced);
        serde_json::from_slice(event.value.object(&resource).unwrap().body()).unwrap()
    };
    match event.resource.as_str() {
        "leases.coordination.k8s.io" => {
            let spec = body("coordination.k8s.io", "leases", "Lease")["spec"].take();
            let replica = spec["holderIdentity"].as_str().unwrap().to_owned();
            let term = spec["leaseTransitions"].as_i64().unwrap();
            Some(Commit::Lease(Leader { replica, term: i32::try_from(term).unwrap() }))
        }
        "configmaps" if event.kind == EventKind::Added => {
            let annotations = body("", "configmaps", "ConfigMap")["metadata"]["annotations"].take();
            // Others have config maps, too.
            let replica = annotations[MADE_BY].as_str()?.to_owned();
            let term = annotations[TERM].as_str().unwrap().parse().unwrap();
            Some(Commit::Ship(Leader { replica, term }))
        }
        _ => None,
    }
}
