//! The cells of an object.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use masthead_core::Resource;
use masthead_informer::Event;
use masthead_informer::upstream::kube_client::core::DynamicObject;
use serde::Deserialize;

use super::pods;
use crate::client::units;

/// What is not known.
const UNKNOWN: &str = "<unknown>";

/// Which columns a resource has.
pub(super) struct Columns {
    namespace: bool,
    pods: bool,
    wide: bool,
}

/// The one thing that every object has and that is not in its head.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Born {
    metadata: Metadata,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Metadata {
    creation_timestamp: Option<Timestamp>,
}

impl Columns {
    pub(super) fn new(resource: &Resource, namespace: bool, wide: bool) -> Self {
        Self { namespace, pods: *resource == Resource::pods(), wide }
    }

    pub(super) fn head(&self) -> Vec<String> {
        let mut head = Vec::new();
        head.extend(self.namespace.then_some("NAMESPACE"));
        head.push("NAME");
        if self.pods {
            head.extend(["READY", "STATUS", "RESTARTS"]);
        }
        head.push("AGE");
        if self.pods && self.wide {
            head.extend(["IP", "NODE"]);
        }
        head.into_iter().map(str::to_owned).collect()
    }

    pub(super) fn row(&self, event: &Event<DynamicObject>, now: Timestamp) -> Vec<String> {
        let body = event.entry().and_then(|entry| entry.json().ok()).unwrap_or_default();
        let key = event.key();
        let mut row = Vec::new();
        row.extend(self.namespace.then(|| key.namespace().to_owned()));
        row.push(key.name().to_owned());
        let pod = self.pods.then(|| serde_json::from_slice::<Pod>(&body).unwrap_or_default());
        if let Some(pod) = &pod {
            row.extend(pods::cells(pod, now));
        }
        let born = serde_json::from_slice::<Born>(&body).ok();
        let born = born.and_then(|it| it.metadata.creation_timestamp);
        row.push(born.map_or_else(|| UNKNOWN.to_owned(), |it| units::age(since(it, now))));
        if let Some(pod) = pod.filter(|_| self.wide) {
            row.extend(pods::wide_cells(pod));
        }
        row
    }
}

/// The time from one moment to a later one.
pub(super) fn since(then: Timestamp, now: Timestamp) -> Duration {
    Duration::try_from(now.duration_since(then)).unwrap_or_default()
}
