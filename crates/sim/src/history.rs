//! What a history is made of: one [`Record`] a line, as JSON.
//!
//! Times are milliseconds of one clock, revisions are the store's counter, keys are
//! `namespace/name` (or just `name` for objects outside namespaces). Readers ignore fields they do
//! not know and keep unknown records as [`Record::Other`], so that old and new versions can read
//! each other's histories.
//!
//! A run with a clock of its own should close its history with [`RunEnd`]: rules with a deadline
//! are judged only where the deadline lies before the last time in the history.

mod informer;
mod scope;
mod server;

use serde::{Deserialize, Serialize};

pub use informer::{
    Cache, Call, Handler, IndexRead, Informer, Registered, Relisted, Rewound, Stopped, Synced,
};
pub use scope::Scope;
pub use server::{
    Commit, CommitOp, End, Frame, FrameType, Item, List, ListResp, Match, Open, Precondition,
    Restart, Write, WriteOp,
};

/// One line of a history. The tag is the field `rec`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "rec", rename_all = "snake_case")]
pub enum Record {
    /// A change in the authoritative log.
    Commit(Commit),
    /// A list request left its client.
    List(List),
    /// The answer to a list request.
    ListResp(ListResp),
    /// A watch was asked for.
    Open(Open),
    /// An event or bookmark arrived on a watch.
    Frame(Frame),
    /// A watch ended, or was never granted.
    End(End),
    /// An informer's cache changed at one key.
    Cache(Cache),
    /// A handler returned from a call.
    Handler(Handler),
    /// An informer, or one of its handlers, reported that it is in sync.
    Synced(Synced),
    /// A write with its answer, if one came.
    Write(Write),
    /// A permission was given or taken.
    Grant(Grant),
    /// A fault began or ended.
    Fault(Fault),
    /// A size next to its bound.
    Gauge(Gauge),
    /// An informer began a life.
    Informer(Informer),
    /// An informer stopped or its process died.
    Stopped(Stopped),
    /// A handler was added or removed.
    Registered(Registered),
    /// A whole list was applied to a cache.
    Relisted(Relisted),
    /// An informer announced that its source went back in time.
    Rewound(Rewound),
    /// An index was read.
    Index(IndexRead),
    /// The store came back after a crash or from a backup.
    Restart(Restart),
    /// The run is over.
    RunEnd(RunEnd),
    /// A record of a kind this version does not know. It is skipped.
    #[serde(other)]
    Other,
}

/// A permission as the authorizer sees it. No rule of this crate judges it yet: it is in the
/// history for the rules about security.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Grant {
    /// When the authorizer begins to answer so.
    pub t: u64,
    /// The client that is spoken of.
    pub who: String,
    /// `list`, `watch`, `get`, `create` and so on.
    pub verb: String,
    /// What the permission covers.
    pub scope: Scope,
    /// Given or taken.
    pub allow: bool,
}

/// A fault switched on or off. Windows of one kind and target do not nest: a second `on` is
/// ignored. A fault that is never switched off lasts for ever.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fault {
    /// When it was switched.
    pub t: u64,
    /// Its name, such as `partition` or `stall`. Kinds that begin with `stall` and have a target
    /// are the stalled readers of S10.
    pub kind: String,
    /// Begins (`true`) or ends.
    pub on: bool,
    /// The client (`who`), stream (`sid`) or informer (`iid`) that it hits. Leave it out when
    /// anybody might notice: deadlines of those who are hit wait for its end, all others go on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target: Option<String>,
}

/// A measured size and the bound that it must respect.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Gauge {
    /// When it was measured.
    pub t: u64,
    /// What was measured, such as `queue.depth` or `relist.bytes`.
    pub name: String,
    /// The size.
    pub value: u64,
    /// Its bound at that moment. For memory during a relist this is 2.2 times the live set.
    pub cap: u64,
    /// The server's stream that it belongs to: the gauge is judged by S10, and by I8 otherwise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sid: Option<String>,
    /// The informer that it belongs to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub iid: Option<String>,
}

/// The last time of a run. It gives the deadlines of the last events something to be judged by.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunEnd {
    /// When the run ended.
    pub t: u64,
}

impl Record {
    /// The latest time that the record speaks of, if it has one.
    pub fn time(&self) -> Option<u64> {
        Some(match self {
            Self::Commit(it) => it.t,
            Self::List(it) => it.t0,
            Self::ListResp(it) => it.t1,
            Self::Open(it) => it.t0,
            Self::Frame(it) => it.t,
            Self::End(it) => it.t,
            Self::Cache(it) => it.t,
            Self::Handler(it) => it.t,
            Self::Synced(it) => it.t,
            Self::Write(it) => it.t1.unwrap_or(it.t0),
            Self::Grant(it) => it.t,
            Self::Fault(it) => it.t,
            Self::Gauge(it) => it.t,
            Self::Informer(it) => it.t,
            Self::Stopped(it) => it.t,
            Self::Registered(it) => it.t,
            Self::Relisted(it) => it.t,
            Self::Rewound(it) => it.t,
            Self::Index(it) => it.t,
            Self::Restart(it) => it.t,
            Self::RunEnd(it) => it.t,
            Self::Other => return None,
        })
    }
}

macro_rules! into_record {
    ($($variant:ident($inner:ty)),* $(,)?) => {
        $(impl From<$inner> for Record {
            fn from(inner: $inner) -> Self {
                Self::$variant(inner)
            }
        })*
    };
}

into_record! {
    Commit(Commit), List(List), ListResp(ListResp), Open(Open), Frame(Frame), End(End),
    Cache(Cache), Handler(Handler), Synced(Synced), Write(Write), Grant(Grant), Fault(Fault),
    Gauge(Gauge), Informer(Informer), Stopped(Stopped), Registered(Registered),
    Relisted(Relisted), Rewound(Rewound), Index(IndexRead), Restart(Restart), RunEnd(RunEnd),
}

/// For `skip_serializing_if`: a flag that is off is left out of the line.
#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_off(flag: &bool) -> bool {
    !*flag
}
