//! The messages of etcd's API that are needed, field by field as its protocol numbers them.
//!
//! Fields that nobody here reads are left out: a decoder passes over them.

use bytes::Bytes;
use prost::{Enumeration, Message, Oneof};

/// A call that has one answer.
pub(crate) trait Call: Message + Clone + 'static {
    /// Service and method.
    const PATH: &'static str;
    type Answer: Answer;
}

/// What etcd says first in every answer.
pub(crate) trait Answer: Message + Default + 'static {
    fn header(&self) -> Option<&Header>;
}

macro_rules! calls {
    ($($request:ident => $answer:ident, $path:literal;)*) => {$(
        impl Call for $request {
            const PATH: &'static str = concat!("/etcdserverpb.", $path);
            type Answer = $answer;
        }
        impl Answer for $answer {
            fn header(&self) -> Option<&Header> {
                self.header.as_ref()
            }
        }
    )*};
}

calls! {
    RangeRequest => RangeResponse, "KV/Range";
    TxnRequest => TxnResponse, "KV/Txn";
    CompactionRequest => CompactionResponse, "KV/Compact";
    LeaseGrantRequest => LeaseGrantResponse, "Lease/LeaseGrant";
    StatusRequest => StatusResponse, "Maintenance/Status";
    MemberListRequest => MemberListResponse, "Cluster/MemberList";
    AuthenticateRequest => AuthenticateResponse, "Auth/Authenticate";
}

/// The stream that all watches of a client go over.
pub(crate) const WATCH_PATH: &str = "/etcdserverpb.Watch/Watch";

#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub(crate) struct Header {
    #[prost(uint64, tag = "1")]
    pub(crate) cluster_id: u64,
    #[prost(int64, tag = "3")]
    pub(crate) revision: i64,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub(crate) struct KeyValue {
    #[prost(bytes = "bytes", tag = "1")]
    pub(crate) key: Bytes,
    #[prost(int64, tag = "2")]
    pub(crate) create_revision: i64,
    #[prost(int64, tag = "3")]
    pub(crate) mod_revision: i64,
    #[prost(bytes = "bytes", tag = "5")]
    pub(crate) value: Bytes,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub(crate) struct RangeRequest {
    #[prost(bytes = "bytes", tag = "1")]
    pub(crate) key: Bytes,
    #[prost(bytes = "bytes", tag = "2")]
    pub(crate) range_end: Bytes,
    #[prost(int64, tag = "3")]
    pub(crate) limit: i64,
    #[prost(int64, tag = "4")]
    pub(crate) revision: i64,
    #[prost(bool, tag = "8")]
    pub(crate) keys_only: bool,
    #[prost(bool, tag = "9")]
    pub(crate) count_only: bool,
    #[prost(int64, tag = "10")]
    pub(crate) min_mod_revision: i64,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub(crate) struct RangeResponse {
    #[prost(message, optional, tag = "1")]
    pub(crate) header: Option<Header>,
    #[prost(message, repeated, tag = "2")]
    pub(crate) kvs: Vec<KeyValue>,
    #[prost(bool, tag = "3")]
    pub(crate) more: bool,
    /// Of all keys in the range, whatever the filters.
    #[prost(int64, tag = "4")]
    pub(crate) count: i64,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub(crate) struct PutRequest {
    #[prost(bytes = "bytes", tag = "1")]
    pub(crate) key: Bytes,
    #[prost(bytes = "bytes", tag = "2")]
    pub(crate) value: Bytes,
    #[prost(int64, tag = "3")]
    pub(crate) lease: i64,
}

#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub(crate) struct PutResponse {}

#[derive(Clone, PartialEq, Eq, Message)]
pub(crate) struct DeleteRangeRequest {
    #[prost(bytes = "bytes", tag = "1")]
    pub(crate) key: Bytes,
    #[prost(bool, tag = "3")]
    pub(crate) prev_kv: bool,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub(crate) struct DeleteRangeResponse {
    #[prost(message, repeated, tag = "3")]
    pub(crate) prev_kvs: Vec<KeyValue>,
}

/// One operation of a transaction.
#[derive(Clone, PartialEq, Eq, Message)]
pub(crate) struct RequestOp {
    #[prost(oneof = "Operation", tags = "1, 2, 3")]
    pub(crate) operation: Option<Operation>,
}

#[derive(Clone, PartialEq, Eq, Oneof)]
pub(crate) enum Operation {
    #[prost(message, tag = "1")]
    Range(RangeRequest),
    #[prost(message, tag = "2")]
    Put(PutRequest),
    #[prost(message, tag = "3")]
    Delete(DeleteRangeRequest),
}

#[derive(Clone, PartialEq, Eq, Message)]
pub(crate) struct ResponseOp {
    #[prost(oneof = "Operated", tags = "1, 2, 3")]
    pub(crate) operated: Option<Operated>,
}

#[derive(Clone, PartialEq, Eq, Oneof)]
pub(crate) enum Operated {
    #[prost(message, tag = "1")]
    Range(RangeResponse),
    #[prost(message, tag = "2")]
    Put(PutResponse),
    #[prost(message, tag = "3")]
    Delete(DeleteRangeResponse),
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Enumeration)]
#[repr(i32)]
pub(crate) enum Is {
    Equal = 0,
    Greater = 1,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Enumeration)]
#[repr(i32)]
pub(crate) enum Of {
    Created = 1,
    Modified = 2,
}

/// One condition of a transaction.
#[derive(Clone, PartialEq, Eq, Message)]
pub(crate) struct Compare {
    #[prost(enumeration = "Is", tag = "1")]
    pub(crate) result: i32,
    #[prost(enumeration = "Of", tag = "2")]
    pub(crate) target: i32,
    #[prost(bytes = "bytes", tag = "3")]
    pub(crate) key: Bytes,
    #[prost(oneof = "Against", tags = "5, 6")]
    pub(crate) against: Option<Against>,
}

#[derive(Clone, Copy, PartialEq, Eq, Oneof)]
pub(crate) enum Against {
    #[prost(int64, tag = "5")]
    Created(i64),
    #[prost(int64, tag = "6")]
    Modified(i64),
}

#[derive(Clone, PartialEq, Eq, Message)]
pub(crate) struct TxnRequest {
    #[prost(message, repeated, tag = "1")]
    pub(crate) compare: Vec<Compare>,
    #[prost(message, repeated, tag = "2")]
    pub(crate) success: Vec<RequestOp>,
    #[prost(message, repeated, tag = "3")]
    pub(crate) failure: Vec<RequestOp>,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub(crate) struct TxnResponse {
    #[prost(message, optional, tag = "1")]
    pub(crate) header: Option<Header>,
    #[prost(bool, tag = "2")]
    pub(crate) succeeded: bool,
    #[prost(message, repeated, tag = "3")]
    pub(crate) responses: Vec<ResponseOp>,
}

#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub(crate) struct CompactionRequest {
    #[prost(int64, tag = "1")]
    pub(crate) revision: i64,
}

#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub(crate) struct CompactionResponse {
    #[prost(message, optional, tag = "1")]
    pub(crate) header: Option<Header>,
}

#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub(crate) struct LeaseGrantRequest {
    #[prost(int64, tag = "1")]
    pub(crate) ttl_seconds: i64,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub(crate) struct LeaseGrantResponse {
    #[prost(message, optional, tag = "1")]
    pub(crate) header: Option<Header>,
    #[prost(int64, tag = "2")]
    pub(crate) id: i64,
}

#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub(crate) struct StatusRequest {}

#[derive(Clone, PartialEq, Eq, Message)]
pub(crate) struct StatusResponse {
    #[prost(message, optional, tag = "1")]
    pub(crate) header: Option<Header>,
    #[prost(string, tag = "2")]
    pub(crate) version: String,
}

#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub(crate) struct MemberListRequest {}

#[derive(Clone, PartialEq, Eq, Message)]
pub(crate) struct MemberListResponse {
    #[prost(message, optional, tag = "1")]
    pub(crate) header: Option<Header>,
    #[prost(message, repeated, tag = "2")]
    pub(crate) members: Vec<Member>,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub(crate) struct Member {
    #[prost(string, tag = "2")]
    pub(crate) name: String,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub(crate) struct AuthenticateRequest {
    #[prost(string, tag = "1")]
    pub(crate) name: String,
    #[prost(string, tag = "2")]
    pub(crate) password: String,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub(crate) struct AuthenticateResponse {
    #[prost(message, optional, tag = "1")]
    pub(crate) header: Option<Header>,
    #[prost(string, tag = "2")]
    pub(crate) token: String,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub(crate) struct WatchRequest {
    #[prost(oneof = "Watching", tags = "1, 3")]
    pub(crate) request: Option<Watching>,
}

#[derive(Clone, PartialEq, Eq, Oneof)]
pub(crate) enum Watching {
    #[prost(message, tag = "1")]
    Create(WatchCreateRequest),
    #[prost(message, tag = "3")]
    Progress(WatchProgressRequest),
}

#[derive(Clone, PartialEq, Eq, Message)]
pub(crate) struct WatchCreateRequest {
    #[prost(bytes = "bytes", tag = "1")]
    pub(crate) key: Bytes,
    #[prost(bytes = "bytes", tag = "2")]
    pub(crate) range_end: Bytes,
    #[prost(int64, tag = "3")]
    pub(crate) start_revision: i64,
    #[prost(bool, tag = "6")]
    pub(crate) prev_kv: bool,
    #[prost(bool, tag = "8")]
    pub(crate) fragment: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub(crate) struct WatchProgressRequest {}

#[derive(Clone, PartialEq, Eq, Message)]
pub(crate) struct WatchResponse {
    #[prost(message, optional, tag = "1")]
    pub(crate) header: Option<Header>,
    #[prost(bool, tag = "3")]
    pub(crate) created: bool,
    #[prost(bool, tag = "4")]
    pub(crate) canceled: bool,
    #[prost(int64, tag = "5")]
    pub(crate) compact_revision: i64,
    #[prost(string, tag = "6")]
    pub(crate) cancel_reason: String,
    #[prost(bool, tag = "7")]
    pub(crate) fragment: bool,
    #[prost(message, repeated, tag = "11")]
    pub(crate) events: Vec<WatchEvent>,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub(crate) struct WatchEvent {
    #[prost(enumeration = "Happened", tag = "1")]
    pub(crate) happened: i32,
    #[prost(message, optional, tag = "2")]
    pub(crate) kv: Option<KeyValue>,
    #[prost(message, optional, tag = "3")]
    pub(crate) prev_kv: Option<KeyValue>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Enumeration)]
#[repr(i32)]
pub(crate) enum Happened {
    Put = 0,
    Delete = 1,
}
