//! How far a reflector is, and if not further, why (R25).

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use masthead_core::{Revision, Time};

use crate::{Class, Failure};

/// What a reflector is doing.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum Phase {
    /// Nothing has come yet.
    #[default]
    Connecting,
    /// Reading a list in pages.
    Listing {
        /// Objects so far.
        objects: u64,
        /// How many it may become, if the server told.
        about: Option<u64>,
    },
    /// Reading a list as initial events.
    Streaming {
        /// Objects so far.
        objects: u64,
    },
    /// Following changes.
    Synced,
    /// Waiting after a failure.
    Failed,
}

impl fmt::Display for Phase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Connecting => f.write_str("connecting"),
            Self::Listing { objects, about: Some(about) } => {
                write!(f, "listing {objects} of ~{about}")
            }
            Self::Listing { objects, about: None } => write!(f, "listing {objects}"),
            Self::Streaming { objects } => write!(f, "streaming {objects}"),
            Self::Synced => f.write_str("synced"),
            Self::Failed => f.write_str("failed"),
        }
    }
}

/// The last thing that went wrong.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LastError {
    /// What sort of thing.
    pub class: Class,
    /// In words.
    pub text: Arc<str>,
    /// When.
    pub at: Time,
}

/// Why lists were read after the first, by cause.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Relists {
    /// The history was gone (R8).
    pub expired: u32,
    /// Watches that ended as soon as they began (R7).
    pub short_watches: u32,
    /// A list, or the watch's question, was refused for what it was.
    pub rejected: u32,
    /// A list was older than what had been seen (R10), or led back to what had expired (R9).
    pub older: u32,
    /// The watch ended and there was no revision to go on from (R12).
    pub unversioned: u32,
    /// Watches stayed silent though their server sends bookmarks.
    pub silent: u32,
}

/// How often what sort of thing went wrong.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Errors([u32; Class::ALL.len()]);

impl Errors {
    /// So many of this class.
    pub fn of(&self, class: Class) -> u32 {
        self.0[class as usize]
    }

    /// So many of each class that there was.
    pub fn iter(&self) -> impl Iterator<Item = (Class, u32)> + '_ {
        Class::ALL.into_iter().map(|class| (class, self.of(class))).filter(|(_, count)| *count > 0)
    }

    /// So many.
    pub fn total(&self) -> u64 {
        self.0.iter().copied().map(u64::from).sum()
    }
}

/// A source that went back in time (R11).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Rewound {
    /// How far this reflector had been.
    pub from: Revision,
    /// Where the source was then.
    pub to: Revision,
    /// When it was noticed.
    pub at: Time,
}

/// Figures of one reflector. Cheap to copy: a few words and a shared text.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Report {
    /// What it is doing.
    pub phase: Phase,
    /// Has the first list been applied whole (R24)? Stays so during later lists and failures.
    pub synced: bool,
    /// How far it has come. Not the source's own numbers if `opaque`.
    pub revision: Revision,
    /// Objects in the last list that was applied.
    pub objects: u64,
    /// Bytes received.
    pub bytes: u64,
    /// Pages received.
    pub pages: u64,
    /// Lists that were begun.
    pub attempts: u32,
    /// From the start to the first sync, or to now.
    pub elapsed: Duration,
    /// What went wrong last. Stays when all is well again; see `at`.
    pub last_error: Option<LastError>,
    /// What went wrong so far, by class.
    pub errors: Errors,
    /// When the next request leaves, while waiting.
    pub next_try: Option<Time>,
    /// The source's resource versions are no decimal numbers: nothing is known about their order,
    /// older answers cannot be told from newer ones (R10).
    pub opaque: bool,
    /// Lists after the first, by cause.
    pub relists: Relists,
    /// The last time that the source went back.
    pub rewound: Option<Rewound>,
    /// How often it did.
    pub rewinds: u32,
    /// Objects of another kind or unreadable, or whose transform panicked (R13).
    pub skipped: u64,
    /// Events that were not newer than what was known.
    pub stale: u64,
    /// Answers to requests that were over.
    pub late: u64,
    /// Why nothing follows the source any more, although nothing stopped it. The cache stays as it is.
    pub ended: Option<Arc<str>>,
}

impl Report {
    pub(crate) fn failed(&mut self, failure: &Failure, now: Time) {
        let text = failure.to_string().into();
        self.errors.0[failure.class() as usize] += 1;
        self.last_error = Some(LastError { class: failure.class(), text, at: now });
    }

    /// What a person can do about the last error; none if all is well.
    pub fn advice(&self) -> Option<&'static str> {
        if self.ended.is_some() {
            return Some("Restart the program and report the bug: its own code failed.");
        }
        let troubled = !self.synced || self.next_try.is_some();
        self.last_error.as_ref().filter(|_| troubled).map(|error| error.class.advice())
    }
}

impl fmt::Display for Report {
    /// One line for logs and tables.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, {} objects, {} bytes", self.phase, self.objects, self.bytes)?;
        if let Some(error) = &self.last_error {
            write!(f, ", last error {}: {}", error.class, error.text)?;
        }
        if self.opaque {
            f.write_str(", order of versions unknown")?;
        }
        if let Some(ended) = &self.ended { write!(f, ", ended: {ended}") } else { Ok(()) }
    }
}
