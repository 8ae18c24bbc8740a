//! Noticing that a full etcd takes writes again, also when nobody sends any.
//!
//! A server that says that it cannot be written to is sent no writes, by which it would notice.

use std::sync::Arc;

use bytes::Bytes;
use tokio::time::sleep;

use super::Shared;
use super::messages::{Operation, PutRequest, RequestOp, TxnRequest};
use crate::limits::ROOM_CHECK_EVERY;

/// Writes a key of its own from time to time while etcd is full, for as long as it is polled.
pub(super) async fn run(shared: Arc<Shared>) {
    loop {
        shared.filled.notified().await;
        while shared.full.lock().is_some() {
            sleep(ROOM_CHECK_EVERY).await;
            if shared.cluster.call(probe(&shared)).await.is_ok() {
                shared.set_full(None);
            }
        }
    }
}

fn probe(shared: &Shared) -> TxnRequest {
    let put = PutRequest { key: shared.layout.own("room"), value: Bytes::new(), lease: 0 };
    let put = RequestOp { operation: Some(Operation::Put(put)) };
    TxnRequest { compare: Vec::new(), success: vec![put], failure: Vec::new() }
}
