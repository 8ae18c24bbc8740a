//! What the machine asks for and what it is told.

use std::fmt;
use std::time::Duration;

use masthead_core::{Mutation, Object, Revision, Status};

/// A request, by number. An answer that carries the number of a request that is over is dropped.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct RequestId(pub(crate) u64);

impl fmt::Display for RequestId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The moment that a list shows, in the words of the wire (W7). What cannot be combined cannot be
/// said.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ListAt {
    /// Most recent: the resource version is left out.
    Latest,
    /// Whatever is cached: resource version `0`. The server ignores the page size.
    Cached,
    /// Exactly this resource version.
    Exact(String),
    /// The page that this token names. It goes alone, without a resource version (R3).
    Continue(String),
}

impl ListAt {
    /// `resourceVersion`; none where it is left out.
    pub fn resource_version(&self) -> Option<&str> {
        match self {
            Self::Latest | Self::Continue(_) => None,
            Self::Cached => Some("0"),
            Self::Exact(version) => Some(version),
        }
    }

    /// `resourceVersionMatch`; none where it is left out.
    pub fn resource_version_match(&self) -> Option<&'static str> {
        matches!(self, Self::Exact(_)).then_some("Exact")
    }

    /// `continue`; none where it is left out.
    pub fn continue_token(&self) -> Option<&str> {
        match self {
            Self::Continue(token) => Some(token),
            _ => None,
        }
    }
}

/// One page of a list.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ListRequest {
    /// Which moment, and which page of it.
    pub at: ListAt,
    /// At most so many objects.
    pub limit: usize,
    /// Bytes of memory that the page's objects may hold. A source that reads more gives the page up with
    /// [`Failure::TooLarge`](crate::Failure::TooLarge) instead of gathering it.
    pub bytes_max: usize,
    /// The server that answered last is behind: ask another one, if there is another (R10).
    pub elsewhere: bool,
}

/// Where a watch begins.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum WatchFrom {
    /// With the state as initial events and the bookmark that ends them (R2): `sendInitialEvents`
    /// and `resourceVersionMatch=NotOlderThan`.
    State {
        /// Whatever is cached instead of the most recent state: resource version `0`.
        cached: bool,
    },
    /// With what happens after this resource version. Empty where the source's lists have none:
    /// such a watch begins with the state, as events that look like any other (R12).
    After(String),
}

/// A watch. Bookmarks are always asked for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct WatchRequest {
    /// Where it begins.
    pub from: WatchFrom,
    /// How long the server should keep it: `timeoutSeconds`.
    pub timeout: Duration,
    /// As for [`ListRequest::elsewhere`].
    pub elsewhere: bool,
}

impl WatchRequest {
    /// `resourceVersion`, with the empty text for "most recent".
    pub fn resource_version(&self) -> &str {
        match &self.from {
            WatchFrom::State { cached: false } => "",
            WatchFrom::State { cached: true } => "0",
            WatchFrom::After(version) => version,
        }
    }

    /// Returns `true` if the watch begins with the state and a mark for its end.
    pub fn initial_events(&self) -> bool {
        matches!(self.from, WatchFrom::State { .. })
    }
}

/// A page that arrived, with its objects read.
#[derive(Clone, Default, Debug)]
pub struct Page {
    /// The objects, in the server's order.
    pub objects: Vec<Object>,
    /// The list's resource version as it stands there.
    pub resource_version: String,
    /// The token for the next page; empty on the last.
    pub continue_token: String,
    /// How many more there are, if the server told.
    pub remaining: Option<u64>,
    /// Items that are of another kind or cannot be read, or whose transform panicked (R13).
    pub skipped: usize,
}

/// One line of a watch, read.
#[derive(Clone, Debug)]
pub enum WatchItem {
    /// The object came into view.
    Added(Object),
    /// The object changed.
    Modified(Object),
    /// The object left, and this is its last state with the revision at which it left.
    Deleted(Object),
    /// The object left, and its last state cannot be held: only its key and its revision count. It is also
    /// counted as skipped (R13).
    DeletedUnread(Object),
    /// Nothing up to here has not been sent.
    Bookmark {
        /// As it stands there.
        resource_version: String,
        /// Whether the bookmark ends the initial events.
        initial_events_end: bool,
    },
    /// The server ends the stream.
    Error(Status),
    /// An event whose object is of another kind or cannot be read, or whose transform panicked (R13).
    Skipped,
}

impl WatchItem {
    /// The object that the event is about, if it is about one.
    pub(crate) fn object(&self) -> Option<&Object> {
        match self {
            Self::Added(object)
            | Self::Modified(object)
            | Self::Deleted(object)
            | Self::DeletedUnread(object) => Some(object),
            Self::Bookmark { .. } | Self::Error(_) | Self::Skipped => None,
        }
    }
}

/// What is to be done. The order is the order in which it is to be done.
#[derive(Clone, Debug)]
pub enum Output {
    /// Ask for a page. The answer goes to [`handle_page`](crate::Reflector::handle_page) or
    /// [`handle_failure`](crate::Reflector::handle_failure).
    List {
        /// To be handed back with the answer.
        id: RequestId,
        /// What to ask for.
        request: ListRequest,
    },
    /// Open a watch. What comes of it goes to the `handle_*` methods until it ends.
    Watch {
        /// To be handed back with everything that comes.
        id: RequestId,
        /// What to ask for.
        request: WatchRequest,
    },
    /// The request is of no use any more: drop it. What still comes of it is ignored.
    Cancel {
        /// Which one.
        id: RequestId,
    },
    /// Changes, in order.
    Apply(Vec<Mutation>),
    /// A list is whole: the cache becomes exactly this (R14).
    Replace {
        /// All objects.
        objects: Vec<Object>,
        /// Of when.
        revision: Revision,
    },
    /// The source went back in time, and what the cache knows from later is void (R11). Comes
    /// before anything older is applied; an [`Output::Rewind`] follows when its list is whole.
    Rewound {
        /// How far this reflector had been.
        from: Revision,
        /// Where the source is now.
        to: Revision,
    },
    /// As [`Output::Replace`], for the list after [`Output::Rewound`].
    Rewind {
        /// All objects.
        objects: Vec<Object>,
        /// Of when.
        revision: Revision,
    },
    /// Everything up to here has been told.
    Bookmark(Revision),
}
