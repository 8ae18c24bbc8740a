//! The client's side: what an informer cached, told and answered.
//!
//! The records of one informer stand in the history in the order in which things happened to it.

use serde::{Deserialize, Serialize};

use super::{Scope, is_off};

/// An informer begins a life. A history without this record has an informer that looks at
/// everything, makes its requests under its own name and was there from the start.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Informer {
    /// The informer.
    pub iid: String,
    /// Which life this is. A restart has a higher number; the cache begins empty.
    #[serde(default, rename = "gen")]
    pub generation: u64,
    /// The `who` of its requests. Left out: the informer's own name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub who: Option<String>,
    /// Where it looks.
    #[serde(default)]
    pub scope: Scope,
    /// Label selector; empty selects all.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub selector: String,
    /// Field selector; empty selects all.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub fields: String,
    /// The high-water mark that the life before saved and this one honours.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub saved: Option<u64>,
    /// When it began.
    pub t: u64,
}

/// The informer stopped, or its process died. Nothing is expected of it until its next life.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stopped {
    /// The informer.
    pub iid: String,
    /// When.
    pub t: u64,
}

/// The cache changed at one key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cache {
    /// The informer.
    pub iid: String,
    /// The life it happened in. A record of an earlier life is ignored.
    #[serde(default, rename = "gen")]
    pub generation: u64,
    /// When.
    pub t: u64,
    /// The key.
    pub key: String,
    /// The revision of the version that is cached now. Left out: the key is absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rv: Option<u64>,
}

/// A handler returned from a call. One that panicked in it counts as returned.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Handler {
    /// The informer.
    pub iid: String,
    /// The handler, unique in its informer.
    pub hid: String,
    /// Which call.
    pub call: Call,
    /// The object's key.
    pub key: String,
    /// The revision of the version before, if the call carried one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub old_rv: Option<u64>,
    /// The revision of the version now; none on deletes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub new_rv: Option<u64>,
    /// When it returned.
    pub t: u64,
}

/// Which of a handler's calls was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Call {
    /// A key came.
    Add,
    /// A key changed, or a resync repeats it.
    Update,
    /// A key went.
    Delete,
}

/// A handler was added or removed. Without this record a handler is known from its first call on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Registered {
    /// The informer.
    pub iid: String,
    /// The handler.
    pub hid: String,
    /// Removed instead of added.
    #[serde(default, skip_serializing_if = "is_off")]
    pub removed: bool,
    /// When.
    pub t: u64,
}

/// The informer says: all that was there at `rv` has reached my handlers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Synced {
    /// The informer.
    pub iid: String,
    /// Only this handler speaks. Left out: all of those registered so far.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hid: Option<String>,
    /// The revision of the list that was applied whole.
    pub rv: u64,
    /// When.
    pub t: u64,
}

/// A list was applied whole, by pages or as a stream. It stands after the changes it made.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Relisted {
    /// The informer.
    pub iid: String,
    /// The list's revision.
    pub rv: u64,
    /// When.
    pub t: u64,
}

/// The informer told its user that the source went back in time. It stands before the changes
/// that follow from it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rewound {
    /// The informer.
    pub iid: String,
    /// The revision that the source went back to.
    pub rv: u64,
    /// When.
    pub t: u64,
}

/// One read of an index.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct IndexRead {
    /// The informer.
    pub iid: String,
    /// When.
    pub t: u64,
    /// What is indexed: `namespace`, `label:<key>` and `field:<name>` are recomputed by the
    /// checker; of any other index only the versions of its answer are judged.
    pub index: String,
    /// The value that was looked up.
    pub value: String,
    /// The answer: keys with the revisions of the versions that were seen.
    #[serde(default)]
    pub items: Vec<(String, u64)>,
    /// All that was cached in the snapshot that was read. Left out: what the [`Cache`] records up
    /// to here add up to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cached: Option<Vec<(String, u64)>>,
}
