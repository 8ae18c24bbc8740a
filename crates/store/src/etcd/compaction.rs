//! Dropping old history, by one of the servers.
//!
//! A key holds the revision at which the last turn was taken. Whoever finds it unchanged after the
//! time that history is kept may take the next turn, and only one can: it puts the present revision
//! there on condition that nobody did, and drops what is before the one that it found. So everything
//! is kept for at least that time and at most twice as long, and nobody has to hold a lease.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use masthead_core::Revision;
use tokio::time::sleep;
use tracing::{debug, warn};

use super::messages::{
    Against, Compare, Is, Of, Operation, PutRequest, RangeRequest, RequestOp, TxnRequest,
};
use super::{Shared, head};
use crate::StoreError;

/// What the last turn left behind.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
struct Turn {
    /// When the key was written; zero if it is not there.
    modified: i64,
    /// What was the present then.
    revision: Revision,
}

/// Takes turns with the other servers, for as long as it is polled.
pub(super) async fn run(shared: Arc<Shared>, keep: Duration) {
    let mut seen = last_turn(&shared).await.ok();
    loop {
        sleep(keep).await;
        match take_turn(&shared, seen).await {
            Ok(turn) => seen = Some(turn),
            Err(error) => warn!(%error, "history could not be compacted; trying again later"),
        }
    }
}

/// Compacts if nobody did since `seen`. The turn that is the last one now.
async fn take_turn(shared: &Shared, seen: Option<Turn>) -> Result<Turn, StoreError> {
    let last = last_turn(shared).await?;
    if last.modified != 0 && seen != Some(last) {
        return Ok(last);
    }
    let revision = shared.current().await?;
    let put = PutRequest { key: key(shared), value: revision.to_string().into(), lease: 0 };
    let unchanged = Compare {
        result: Is::Equal.into(),
        target: Of::Modified.into(),
        key: key(shared),
        against: Some(Against::Modified(last.modified)),
    };
    let turn = TxnRequest {
        compare: vec![unchanged],
        success: vec![RequestOp { operation: Some(Operation::Put(put)) }],
        failure: Vec::new(),
    };
    // If the answer is lost, the key is found changed, and the next turn is taken later.
    let answer = shared.cluster.call(turn).await?;
    if !answer.succeeded {
        return last_turn(shared).await;
    }
    if last.modified != 0 {
        let oldest = shared.compact(last.revision).await?;
        debug!(%oldest, "history compacted");
    }
    let modified = i64::try_from(head(&answer).0).unwrap_or(i64::MAX);
    Ok(Turn { modified, revision })
}

async fn last_turn(shared: &Shared) -> Result<Turn, StoreError> {
    let request = RangeRequest { key: key(shared), ..RangeRequest::default() };
    let answer = shared.ask(request).await?;
    let turn = answer.kvs.first().map(|kv| {
        let text = std::str::from_utf8(&kv.value).unwrap_or_default();
        // What is no number compacts nothing.
        Turn { modified: kv.mod_revision, revision: text.parse().unwrap_or_default() }
    });
    Ok(turn.unwrap_or_default())
}

fn key(shared: &Shared) -> Bytes {
    shared.layout.own("compaction")
}
