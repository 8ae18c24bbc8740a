//! What etcd has no call for, found out by other means.

use masthead_core::Revision;
use tokio::time::timeout;

use super::messages::{RangeRequest, WatchCreateRequest};
use super::{Shared, revision};
use crate::StoreError;
use crate::limits::ETCD_PATIENCE;

impl Shared {
    /// Finds out up to where the history was compacted.
    pub(super) async fn find_compacted(&self) -> Result<(), StoreError> {
        let request =
            RangeRequest { key: self.layout.own("probe"), revision: 1, ..RangeRequest::default() };
        match self.cluster.ask(request).await {
            Ok(_) => self.forget(Revision(1)),
            Err(fault) if fault.is_compacted() => {
                let silent = || StoreError::unavailable("etcd does not say what it has compacted");
                let found = timeout(ETCD_PATIENCE, self.ask_compacted()).await;
                self.forget(found.map_err(|_| silent())??);
            }
            Err(fault) => return Err(fault.into()),
        }
        Ok(())
    }

    /// Did nothing happen below the prefix after one revision and up to another? No key was changed in
    /// between if none at the end has a revision from there, and as many are there as before.
    pub(super) async fn is_quiet(
        &self,
        after: Revision,
        until: Revision,
    ) -> Result<bool, StoreError> {
        let keys = self.layout.all();
        let number = |revision: Revision| i64::try_from(revision.0).unwrap_or(i64::MAX);
        let changed = RangeRequest {
            key: keys.start,
            range_end: keys.end,
            limit: 1,
            revision: number(until),
            keys_only: true,
            min_mod_revision: number(after).saturating_add(1),
            ..RangeRequest::default()
        };
        let before = RangeRequest {
            revision: number(after),
            count_only: true,
            min_mod_revision: 0,
            ..changed.clone()
        };
        let changed = self.cluster.ask(changed).await?;
        if !changed.kvs.is_empty() {
            return Ok(false);
        }
        Ok(self.cluster.ask(before).await?.count == changed.count)
    }

    /// There is no call that says so, but a watch from before it is told.
    async fn ask_compacted(&self) -> Result<Revision, StoreError> {
        let key = self.layout.own("probe");
        let create = WatchCreateRequest { key, start_revision: 1, ..WatchCreateRequest::default() };
        let mut stream = self.cluster.watch(create).await?;
        loop {
            let response = stream.responses.message().await;
            match response.map_err(StoreError::unavailable)? {
                Some(response) if response.compact_revision > 0 => {
                    return Ok(revision(response.compact_revision));
                }
                Some(response) if response.canceled => {
                    return Err(StoreError::unavailable(response.cancel_reason));
                }
                Some(_) => {}
                None => return Err(StoreError::unavailable("etcd ended the stream")),
            }
        }
    }
}
