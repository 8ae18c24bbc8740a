//! The store's log and the server's side: lists, watches, writes.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{Scope, is_off};

/// One change in the authoritative log. It is written down once the change is durable, and the
/// commits stand in the history in the order of the log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Commit {
    /// The revision that the store gave it: one counter, strictly increasing.
    pub rv: u64,
    /// When it became durable. Left out (0): it was there before the run began.
    #[serde(default)]
    pub t: u64,
    /// The object's key.
    pub key: String,
    /// The object's uid.
    pub uid: String,
    /// What happened to the key.
    pub op: CommitOp,
    /// A hash of the content without its resource version. For a delete: of the last content.
    pub hash: u64,
    /// The labels after the change. A delete needs none.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// The selectable fields after the change. `metadata.name` and `metadata.namespace` are known
    /// from the key and may be left out.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub fields: BTreeMap<String, String>,
}

/// What a commit does to its key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CommitOp {
    /// The key was absent and now is there.
    Create,
    /// The key was there and has new content.
    Update,
    /// The key is gone.
    Delete,
}

/// A list request, as it left the client.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct List {
    /// Pairs the request with its [`ListResp`].
    pub id: String,
    /// The client. Requests of one stream of work share it: I7 judges one `who` as one backoff.
    pub who: String,
    /// Where it looks.
    pub scope: Scope,
    /// Label selector; empty selects all.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub selector: String,
    /// Field selector; empty selects all.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub fields: String,
    /// The resource version asked for. Left out: the empty string, "most recent".
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rv: Option<u64>,
    /// How that version is meant.
    #[serde(default, rename = "match", skip_serializing_if = "Option::is_none")]
    pub matching: Option<Match>,
    /// Page size; 0 is none.
    #[serde(default)]
    pub limit: u64,
    /// The token that was sent along, on any page but the first.
    #[serde(default, rename = "continue", skip_serializing_if = "Option::is_none")]
    pub token: Option<String>,
    /// When the request left.
    pub t0: u64,
}

/// The request's `resourceVersionMatch`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Match {
    /// The state at exactly that revision.
    Exact,
    /// The state at that revision or a later one.
    NotOlderThan,
}

/// The answer to a list request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ListResp {
    /// The request's id.
    pub id: String,
    /// HTTP status, or 0 when no answer came.
    pub code: u16,
    /// Why none came. When nobody could be dialled it says `refused`, which calls for a backoff.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reason: String,
    /// The list's resource version. Meaningful with code 200.
    #[serde(default)]
    pub rv: u64,
    /// The objects of this page.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub items: Vec<Item>,
    /// The token for the next page; with code 410 the one that continues at a newer revision.
    #[serde(default, rename = "continue", skip_serializing_if = "Option::is_none")]
    pub token: Option<String>,
    /// The server's `Retry-After`, in milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_after_ms: Option<u64>,
    /// Made up by the fault script (a refusal, a lagging server): the server rules do not judge
    /// it. What the client makes of it is judged all the same.
    #[serde(default, skip_serializing_if = "is_off")]
    pub injected: bool,
    /// When the answer was complete.
    pub t1: u64,
}

/// One object of a list: `[key, uid, rv, hash]` in a history.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(from = "(String, String, u64, u64)", into = "(String, String, u64, u64)")]
pub struct Item {
    /// The object's key.
    pub key: String,
    /// The object's uid.
    pub uid: String,
    /// The object's own resource version.
    pub rv: u64,
    /// A hash of the content without its resource version.
    pub hash: u64,
}

impl From<(String, String, u64, u64)> for Item {
    fn from((key, uid, rv, hash): (String, String, u64, u64)) -> Self {
        Self { key, uid, rv, hash }
    }
}

impl From<Item> for (String, String, u64, u64) {
    fn from(item: Item) -> Self {
        (item.key, item.uid, item.rv, item.hash)
    }
}

/// A watch request. Its frames and its end carry the same `sid`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Open {
    /// The stream, unique in the history.
    pub sid: String,
    /// The client.
    pub who: String,
    /// Where it looks.
    pub scope: Scope,
    /// Label selector; empty selects all.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub selector: String,
    /// Field selector; empty selects all.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub fields: String,
    /// The resource version asked for. Left out: the empty string, "most recent".
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<u64>,
    /// The stream begins with the present state, whether asked for or by the default for
    /// resource versions "" and "0".
    #[serde(default, skip_serializing_if = "is_off")]
    pub initial: bool,
    /// Bookmarks were asked for.
    #[serde(default, skip_serializing_if = "is_off")]
    pub bookmarks: bool,
    /// The lowest revision that could be resumed from when the server decided about this request:
    /// every change after it was still kept. Needed to judge refusals.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub oldest: Option<u64>,
    /// The server's newest revision when it decided about this request. Without it the log tells
    /// only roughly whether `from` lay in the future.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub current: Option<u64>,
    /// The stream comes from a server that the fault script made lie: the server rules do not
    /// judge it. What the client makes of it is judged all the same.
    #[serde(default, skip_serializing_if = "is_off")]
    pub injected: bool,
    /// When the request left.
    pub t0: u64,
}

/// One event or bookmark of a watch, as it arrived. Errors are not frames: see [`End`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Frame {
    /// The stream.
    pub sid: String,
    /// What the frame says.
    #[serde(rename = "type")]
    pub kind: FrameType,
    /// The object's key; empty on bookmarks.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub key: String,
    /// The object's uid; empty on bookmarks.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub uid: String,
    /// The object's resource version, which for a deletion is that of the deletion.
    pub rv: u64,
    /// A hash of the content without its resource version; 0 on bookmarks.
    #[serde(default)]
    pub hash: u64,
    /// The bookmark carries the mark for the end of the initial events.
    #[serde(default, skip_serializing_if = "is_off")]
    pub initial_end: bool,
    /// When it arrived.
    pub t: u64,
}

/// The type of a watch event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum FrameType {
    /// The object came into sight.
    Added,
    /// The object changed and stays in sight.
    Modified,
    /// The object went out of sight, and this is its content before.
    Deleted,
    /// Everything up to this revision was sent.
    Bookmark,
}

/// The end of a watch, also of one that was refused.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct End {
    /// The stream.
    pub sid: String,
    /// Why, as the client was told or saw, such as `timeout`, `eof` or `expired`. Two words have a
    /// meaning for I7: `refused`, nobody could be dialled, and `closed`, the client ended it
    /// itself. Empty: the stream was just gone, which excuses nothing.
    pub reason: String,
    /// The HTTP status of the refusal or the code of the ERROR event, if there was one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<u16>,
    /// The server's `Retry-After`, in milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_after_ms: Option<u64>,
    /// The lowest revision that could be resumed from when the server ended the stream.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub oldest: Option<u64>,
    /// Made up by the fault script: whether it was justified is not judged.
    #[serde(default, skip_serializing_if = "is_off")]
    pub injected: bool,
    /// When it ended.
    pub t: u64,
}

/// A write and what its client learned of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Write {
    /// The client.
    pub who: String,
    /// What was asked for.
    pub op: WriteOp,
    /// The object's key.
    pub key: String,
    /// What the client demanded of the object before the write.
    #[serde(default, skip_serializing_if = "Precondition::is_none")]
    pub precond: Precondition,
    /// When the request left.
    pub t0: u64,
    /// When the answer came. Left out: no answer came.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub t1: Option<u64>,
    /// HTTP status of the answer. Left out: unknown, the write may have happened or not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<u16>,
    /// The revision of a success.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rv: Option<u64>,
    /// The write succeeded and changed nothing: `rv` is that of the version it found.
    #[serde(default, skip_serializing_if = "is_off")]
    pub noop: bool,
}

/// What a write asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WriteOp {
    /// Make a new object. The key must be absent.
    Create,
    /// Replace or patch an object. The key must be there.
    Update,
    /// Remove an object, or begin to. The key must be there.
    Delete,
}

/// What must hold just before a write, next to what its operation demands.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Precondition {
    /// The object's resource version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rv: Option<u64>,
    /// The object's uid.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uid: Option<String>,
}

impl Precondition {
    /// Nothing is demanded.
    pub fn is_none(&self) -> bool {
        self.rv.is_none() && self.uid.is_none()
    }
}

impl Write {
    /// When the success was acknowledged and at which revision; `None` for anything else.
    pub fn acknowledged(&self) -> Option<(u64, u64)> {
        match (self.t1, self.code, self.rv) {
            (Some(at), Some(200..=299), Some(rv)) => Some((at, rv)),
            _ => None,
        }
    }
}

/// The store came back, and its log ends at `rv`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Restart {
    /// When it came back.
    pub t: u64,
    /// The newest revision that it has.
    pub rv: u64,
    /// It was restored from a backup on purpose. What was committed after `rv` is undone, the
    /// counter may go back, and a new epoch of the log begins: requests are judged by the log of
    /// the epoch they were made in.
    #[serde(default, skip_serializing_if = "is_off")]
    pub restored: bool,
}
