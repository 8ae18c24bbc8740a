//! How the simulated servers serve watches.

use std::collections::VecDeque;

use masthead_core::Status;
use masthead_reflector::{Failure, WatchFrom, WatchItem, WatchRequest};

use super::store::{LogEntry, Store, Version};
use crate::history::{self, FrameType};

/// A watch as its server sees it.
#[derive(Debug)]
#[expect(clippy::struct_excessive_bools, reason = "independent faults, any of which may be on")]
pub(super) struct Stream {
    pub sid: String,
    /// Which of the two servers.
    pub server: usize,
    /// Everything up to here was sent.
    pub position: u64,
    /// The position lies in the future: nothing may be said that is not beyond it.
    future: bool,
    /// Initial events that are still to be sent.
    initial: Option<VecDeque<Version>>,
    /// The initial events break off when so many are left.
    pub cut_at: Option<usize>,
    /// Nothing is sent before this time.
    pub stalled_until: u64,
    /// Nothing is sent any more.
    pub half_open: bool,
    pub pump_due: bool,
    /// The client has its answer.
    pub granted: bool,
}

/// Why a stream ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Ending {
    Eof,
    TimeOver,
    Reset,
    Truncated,
    /// 410 as an `ERROR` event.
    Expired,
}

pub(super) fn request_record(
    sid: &str,
    who: &str,
    request: &WatchRequest,
    (oldest, current): (u64, u64),
    t0: u64,
) -> history::Open {
    history::Open {
        sid: sid.to_owned(),
        who: who.to_owned(),
        scope: history::Scope::All,
        selector: String::new(),
        fields: String::new(),
        from: request.resource_version().parse().ok(),
        initial: request.initial_events(),
        bookmarks: true,
        oldest: Some(oldest),
        current: Some(current),
        injected: false,
        t0,
    }
}

impl Stream {
    /// A watch on a server that is at `current`, and whose freshest state is of `latest`.
    pub(super) fn new(
        store: &Store,
        sid: String,
        server: usize,
        request: &WatchRequest,
        (current, latest): (u64, u64),
    ) -> Self {
        let (position, initial) = match &request.from {
            WatchFrom::State { cached } => {
                let rv = if *cached { current } else { latest };
                (rv, Some(store.state(rv).cloned().collect()))
            }
            WatchFrom::After(rv) => (rv.parse().unwrap_or(0), None),
        };
        Self {
            sid,
            server,
            position,
            future: position > current,
            initial,
            cut_at: None,
            stalled_until: 0,
            half_open: false,
            pump_due: false,
            granted: false,
        }
    }

    /// What the stream says next, up to `current`; at most `most` of the initial events.
    pub(super) fn next(&mut self, store: &Store, current: u64, most: usize) -> Vec<Said> {
        match self.initial.take() {
            Some(mut state) => {
                let left = state.len().saturating_sub(self.cut_at.unwrap_or(0));
                let said: Vec<_> = state.drain(..most.min(left)).map(Said::added).collect();
                self.initial = Some(state);
                said
            }
            None => self.follow(store, current),
        }
    }

    /// Number of initial events that are still to be sent; none once the state has been sent.
    pub(super) fn initial_left(&self) -> Option<usize> {
        self.initial.as_ref().map(VecDeque::len)
    }

    /// The bookmark that ends the state, with what happened meanwhile if `late`.
    pub(super) fn end_of_state(&mut self, store: &Store, current: u64, late: bool) -> Vec<Said> {
        self.initial = None;
        let mut said = if late { self.follow(store, current) } else { Vec::new() };
        said.push(Said::Bookmark { rv: self.position, initial_end: true });
        said
    }

    fn follow(&mut self, store: &Store, current: u64) -> Vec<Said> {
        let changes = store.changes(self.position, current);
        self.position = changes.last().map_or(self.position, |last| last.version.rv);
        changes.iter().cloned().map(Said::Change).collect()
    }

    /// A bookmark, if one may be said now.
    pub(super) fn bookmark(&mut self, current: u64) -> Option<Said> {
        let ready = if self.future { current > self.position } else { current >= self.position };
        if self.initial.is_some() || !ready {
            return None;
        }
        self.position = current;
        Some(Said::Bookmark { rv: current, initial_end: false })
    }
}

/// A line of a watch.
#[derive(Clone, Debug)]
pub(super) enum Said {
    Change(LogEntry),
    Bookmark { rv: u64, initial_end: bool },
}

impl Said {
    fn added(version: Version) -> Self {
        Self::Change(LogEntry { kind: FrameType::Added, version })
    }

    pub(super) fn item(&self) -> WatchItem {
        match self {
            Self::Change(LogEntry { kind, version }) => {
                let object = version.object.clone();
                match kind {
                    FrameType::Added => WatchItem::Added(object),
                    FrameType::Deleted => WatchItem::Deleted(object),
                    FrameType::Modified | FrameType::Bookmark => WatchItem::Modified(object),
                }
            }
            Self::Bookmark { rv, initial_end } => WatchItem::Bookmark {
                resource_version: rv.to_string(),
                initial_events_end: *initial_end,
            },
        }
    }

    pub(super) fn frame(&self, sid: &str, t: u64) -> history::Frame {
        let sid = sid.to_owned();
        match self {
            Self::Change(LogEntry { kind, version }) => history::Frame {
                sid,
                kind: *kind,
                key: version.object.key().to_string(),
                uid: version.uid.clone(),
                rv: version.rv,
                hash: version.hash,
                initial_end: false,
                t,
            },
            Self::Bookmark { rv, initial_end } => history::Frame {
                sid,
                kind: FrameType::Bookmark,
                key: String::new(),
                uid: String::new(),
                rv: *rv,
                hash: 0,
                initial_end: *initial_end,
                t,
            },
        }
    }
}

impl Ending {
    pub(super) fn record(self, sid: &str, t: u64) -> history::End {
        let (reason, code) = match self {
            Self::Eof => ("eof", None),
            Self::TimeOver => ("timeout", None),
            Self::Reset => ("reset", None),
            Self::Truncated => ("truncated", None),
            Self::Expired => ("expired", Some(410)),
        };
        end(sid, reason, code, true, t)
    }

    /// How the client learns of it: an error event, a failure, or the plain end.
    pub(super) fn told(self) -> Result<Option<WatchItem>, Failure> {
        match self {
            Self::Eof | Self::TimeOver => Ok(None),
            Self::Reset => Err(Failure::Reset("by peer".into())),
            Self::Truncated => Err(Failure::Decode("end of text".into())),
            Self::Expired => Ok(Some(WatchItem::Error(Status::of_response(410, b"")))),
        }
    }
}

pub(super) fn end(
    sid: &str,
    reason: &str,
    code: Option<u16>,
    injected: bool,
    t: u64,
) -> history::End {
    let (sid, reason) = (sid.to_owned(), reason.to_owned());
    history::End { sid, reason, code, retry_after_ms: None, oldest: None, injected, t }
}
