//! Writes: one transaction each, and what became of one whose answer was lost.
//!
//! Every transaction has a fence in its conditions: a key that does not exist. If the answer does not
//! come, the fence is put up and the object read in one step. From then on the transaction cannot
//! happen any more if it has not happened already, so what is read there is the last word.

use bytes::Bytes;
use masthead_core::Revision;
use tracing::warn;
use uuid::Uuid;

use super::cluster::Fault;
use super::messages::{
    Against, Compare, DeleteRangeRequest, Is, KeyValue, Of, Operated, Operation, PutRequest,
    RangeRequest, RequestOp, TxnRequest, TxnResponse,
};
use super::{Shared, head, revision, stamp};
use crate::limits::{ETCD_FENCE_TTL, ETCD_OBJECT_BYTES_MAX, ETCD_WALK_BACK_MAX, ETCD_WRITE_TRIES};
use crate::{CommitError, Committed, Condition, Op, Requirement, StoreError, Write};

/// What became of a write whose answer was lost.
enum Fate {
    Happened(Committed),
    /// It did not, and will not.
    Never,
    Unknown,
}

impl Shared {
    /// Carries out one write.
    pub(super) async fn write(&self, write: &Write) -> Result<Committed, CommitError> {
        let key = self.layout.object(&write.resource, &write.key);
        let operation = self.operation(write, &key).await?;
        for _ in 0..ETCD_WRITE_TRIES {
            let fence = self.layout.own(&format!("fences/{}", Uuid::new_v4()));
            let required = self.required(write);
            let txn = transaction(write.condition, &key, required, &fence, operation.clone());
            let why = match self.cluster.call(txn).await {
                Ok(answer) => {
                    self.saw(head(&answer));
                    return self.decided(write, &answer);
                }
                Err(Fault::Lost(why)) => why,
                Err(fault) => return Err(self.refused(&fault)),
            };
            let fate = self.settle(write, &key, &fence, &operation).await;
            warn!(%why, key = %write.key, "the answer to a write was lost");
            match fate {
                Ok(Fate::Happened(committed)) => return Ok(committed),
                Ok(Fate::Never) => {}
                Ok(Fate::Unknown) => return Err(CommitError::Unknown { why: why.into() }),
                Err(error) => {
                    let why = format!("{why}; then: {error}");
                    return Err(CommitError::Unknown { why: why.into() });
                }
            }
        }
        Err(CommitError::Unavailable { why: "etcd lost it each time; it did not happen".into() })
    }

    async fn operation(&self, write: &Write, key: &Bytes) -> Result<Operation, CommitError> {
        let key = key.clone();
        let Op::Put(object) = &write.op else {
            return Ok(Operation::Delete(DeleteRangeRequest { key, prev_kv: true }));
        };
        let value = stamp::unstamped(object);
        if value.len() > ETCD_OBJECT_BYTES_MAX {
            let limit = ETCD_OBJECT_BYTES_MAX;
            return Err(CommitError::TooLarge { what: "bytes an object in etcd", limit });
        }
        let lease = match write.ttl {
            Some(ttl) => self.lease(ttl).await.map_err(|fault| self.refused(&fault))?,
            None => 0,
        };
        Ok(Operation::Put(PutRequest { key, value, lease }))
    }

    /// The comparisons that hold as long as the required objects have not changed.
    fn required(&self, write: &Write) -> Vec<Compare> {
        let compare = |required: &Requirement| {
            let key = self.layout.object(&required.resource, &required.key);
            modified(&key, Is::Equal, required.revision)
        };
        write.requires.iter().map(compare).collect()
    }

    /// What a transaction did.
    fn decided(&self, write: &Write, answer: &TxnResponse) -> Result<Committed, CommitError> {
        let at = head(answer);
        let operated = answer.responses.first().and_then(|it| it.operated.as_ref());
        let conflict = |kv: Option<&KeyValue>| {
            let current = kv.map(|kv| revision(kv.mod_revision));
            // The object is as it has to be, so it was another one that was not.
            if !write.requires.is_empty() && write.condition.holds(current) {
                return Err(CommitError::Superseded);
            }
            Err(CommitError::Conflict { current })
        };
        match (&write.op, operated) {
            (_, Some(Operated::Range(found))) => conflict(found.kvs.first()),
            (Op::Put(object), _) => {
                self.set_full(None);
                Ok(Committed { revision: at, value: object.with_revision(at).into() })
            }
            (Op::Delete, Some(Operated::Delete(deleted))) => match deleted.prev_kvs.first() {
                Some(last) => {
                    let value = stamp::stamped(&write.key, &last.value, at);
                    Ok(Committed { revision: at, value })
                }
                None => conflict(None),
            },
            (Op::Delete, _) => conflict(None),
        }
    }

    /// Puts up the fence and looks what is there.
    async fn settle(
        &self,
        write: &Write,
        key: &Bytes,
        fence: &Bytes,
        operation: &Operation,
    ) -> Result<Fate, StoreError> {
        let lease = self.lease(ETCD_FENCE_TTL).await?;
        let put = PutRequest { key: fence.clone(), value: Bytes::new(), lease };
        let txn = TxnRequest {
            compare: vec![absent(fence)],
            success: vec![op(Operation::Put(put)), op(read(key))],
            failure: vec![op(read(key))],
        };
        let answer = self.ask(txn).await?;
        let found = answer.responses.iter().find_map(|it| match &it.operated {
            Some(Operated::Range(found)) => Some(found.kvs.first().cloned()),
            _ => None,
        });
        let found = found.flatten();
        let expected = match write.condition {
            Condition::At(revision) => Some(revision),
            _ => None,
        };
        let (Operation::Put(PutRequest { value, .. }), Op::Put(object)) = (operation, &write.op)
        else {
            // Who deleted it cannot be told; that nobody did, can.
            let there = found.is_some_and(|kv| Some(revision(kv.mod_revision)) == expected);
            return Ok(if there { Fate::Never } else { Fate::Unknown });
        };
        let mut state = found;
        for _ in 0..ETCD_WALK_BACK_MAX {
            let Some(kv) = state else { return Ok(Fate::Unknown) };
            let at = revision(kv.mod_revision);
            if expected.is_some_and(|expected| at <= expected) {
                return Ok(Fate::Never);
            }
            if kv.value == *value {
                let value = object.with_revision(at).into();
                return Ok(Fate::Happened(Committed { revision: at, value }));
            }
            state = self.before(key, kv.mod_revision).await?;
        }
        Ok(Fate::Unknown)
    }

    /// The object as it was before a revision.
    async fn before(&self, key: &Bytes, at: i64) -> Result<Option<KeyValue>, StoreError> {
        let request =
            RangeRequest { key: key.clone(), revision: at - 1, ..RangeRequest::default() };
        Ok(self.ask(request).await?.kvs.into_iter().next())
    }

    /// Why a write did not happen.
    fn refused(&self, fault: &Fault) -> CommitError {
        if fault.is_full() {
            let why = "etcd's quota is used up: compact and defragment it or raise the quota, then \
                       disarm the alarm (etcdctl alarm disarm)";
            self.set_full(Some(why));
            return CommitError::Full { why: why.into() };
        }
        if fault.is_busy() {
            return CommitError::Busy;
        }
        if fault.is_unleased() {
            self.leases.forget();
        }
        if fault.is_too_large() {
            let limit = ETCD_OBJECT_BYTES_MAX;
            return CommitError::TooLarge { what: "bytes an object in etcd", limit };
        }
        CommitError::Unavailable { why: fault.to_string().into() }
    }
}

fn modified(key: &Bytes, result: Is, revision: Revision) -> Compare {
    Compare {
        result: result.into(),
        target: Of::Modified.into(),
        key: key.clone(),
        against: Some(Against::Modified(i64::try_from(revision.0).unwrap_or(i64::MAX))),
    }
}

fn transaction(
    condition: Condition,
    key: &Bytes,
    required: Vec<Compare>,
    fence: &Bytes,
    operation: Operation,
) -> TxnRequest {
    let mut compare = vec![absent(fence)];
    compare.extend(required);
    compare.extend(match condition {
        Condition::Any => None,
        Condition::Absent => Some(absent(key)),
        Condition::Present => Some(modified(key, Is::Greater, Revision::ZERO)),
        // etcd has zero for what is not there; nothing that is there can have it.
        Condition::At(Revision::ZERO) => Some(modified(key, Is::Greater, Revision::MAX)),
        Condition::At(revision) => Some(modified(key, Is::Equal, revision)),
    });
    TxnRequest { compare, success: vec![op(operation)], failure: vec![op(read(key))] }
}

fn absent(key: &Bytes) -> Compare {
    Compare {
        result: Is::Equal.into(),
        target: Of::Created.into(),
        key: key.clone(),
        against: Some(Against::Created(0)),
    }
}

fn read(key: &Bytes) -> Operation {
    Operation::Range(RangeRequest { key: key.clone(), ..RangeRequest::default() })
}

fn op(operation: Operation) -> RequestOp {
    RequestOp { operation: Some(operation) }
}
