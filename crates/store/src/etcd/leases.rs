//! Objects that go by themselves: they hang on a lease that is never renewed.

use std::time::Duration;

use tokio::sync::Mutex;
use tokio::time::Instant;

use super::Shared;
use super::cluster::Fault;
use super::messages::LeaseGrantRequest;
use crate::limits::{ETCD_LEASE_OBJECTS_MAX, ETCD_LEASE_REUSE_PART};

/// The lease that new objects are put on. Several share one, as each costs etcd as much as an object.
#[derive(Default)]
pub(super) struct Leases {
    /// Held while a new one is asked for, so that everybody gets that one.
    recent: Mutex<Option<Lease>>,
}

struct Lease {
    id: i64,
    ttl: Duration,
    since: Instant,
    objects: usize,
}

impl Leases {
    /// The leases are not there any more.
    pub(super) fn forget(&self) {
        if let Ok(mut recent) = self.recent.try_lock() {
            *recent = None;
        }
    }
}

impl Shared {
    /// A lease that lasts at least so long, and at most a part of [`ETCD_LEASE_REUSE_PART`] longer.
    pub(super) async fn lease(&self, ttl: Duration) -> Result<i64, Fault> {
        let mut recent = self.leases.recent.lock().await;
        if let Some(lease) = &mut *recent
            && lease.ttl == ttl
            && lease.since.elapsed() < ttl / ETCD_LEASE_REUSE_PART
            && lease.objects < ETCD_LEASE_OBJECTS_MAX
        {
            lease.objects += 1;
            return Ok(lease.id);
        }
        let since = Instant::now();
        let seconds = (ttl + ttl / ETCD_LEASE_REUSE_PART).as_secs_f64().ceil();
        #[expect(clippy::cast_possible_truncation, reason = "saturates")]
        let ttl_seconds = seconds as i64;
        let id = self.cluster.ask(LeaseGrantRequest { ttl_seconds }).await?.id;
        *recent = Some(Lease { id, ttl, since, objects: 1 });
        Ok(id)
    }
}
