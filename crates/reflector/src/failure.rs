//! What can go wrong with a request, and the one opinion on what to do about it.

use std::fmt;
use std::time::Duration;

use masthead_core::Status;

/// Why a request, or a stream that had begun, came to nothing.
///
/// ```
/// use masthead_core::Status;
/// use masthead_reflector::{Class, Failure, Recovery};
///
/// let gone = Failure::from(Status::of_response(410, b""));
/// assert_eq!((gone.class(), gone.recovery()), (Class::Expired, Recovery::Relist));
/// assert_eq!(Failure::Refused("no route".into()).recovery(), Recovery::Backoff { at_least: None });
/// ```
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Failure {
    /// The server said no: as the HTTP answer, or as the `ERROR` event of a stream.
    #[error(transparent)]
    Status(#[from] Status),
    /// Nobody could be reached.
    #[error("connection refused: {0}")]
    Refused(String),
    /// Somebody was reached, and the two do not trust each other.
    #[error("TLS handshake failed: {0}")]
    Tls(String),
    /// Nothing came for too long.
    #[error("timed out {}", if *.progress { "after some bytes" } else { "without a single byte" })]
    TimedOut {
        /// Whether anything had arrived before.
        progress: bool,
    },
    /// The connection broke.
    #[error("connection lost: {0}")]
    Reset(String),
    /// The stream came to its end where it was not due.
    #[error("stream ended")]
    Ended,
    /// What came is no answer: cut off, not JSON, another shape.
    #[error("answer cannot be read: {0}")]
    Decode(String),
    /// The reader of a stream was too slow for the others and was cut off.
    #[error("fell too far behind its stream and was cut off")]
    CutOff,
    /// The keys of a list do not rise: the server repeats pages, or mixes them up. Going on would never
    /// come to an end, or lose objects.
    #[error("the list has {key} after {after}: its keys do not rise")]
    Unordered {
        /// The key that stands in the wrong place.
        key: String,
        /// The key before it.
        after: String,
    },
    /// A list holds more than a list may ([`Settings::list_bytes_max`](crate::Settings::list_bytes_max)).
    #[error("the list is larger than {limit} bytes")]
    TooLarge {
        /// The limit.
        limit: usize,
    },
    /// The source panicked.
    #[error("the source panicked: {0}")]
    Panicked(String),
    /// A list that is older than what has been seen (R10).
    #[error("list is at {list}, {seen} was seen before")]
    Older {
        /// The list's resource version.
        list: String,
        /// Where this reflector has been.
        seen: String,
    },
    /// A list that leads straight back to the revision that had just expired (R9).
    #[error("{expired} expired, and the list answers with {list}")]
    Loop {
        /// The list's resource version.
        list: String,
        /// From where the watch was refused.
        expired: String,
    },
}

/// What a failure is, for people and metrics.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[non_exhaustive]
pub enum Class {
    /// Not known who we are.
    Unauthorized,
    /// Known and not allowed.
    Forbidden,
    /// No such resource.
    NotFound,
    /// The history asked for is gone.
    Expired,
    /// Not one byte in time.
    TimedOutSilent,
    /// It began and then stopped.
    TimedOutProgress,
    /// The server has too much to do.
    Overloaded,
    /// The server failed.
    Server,
    /// The server does not take the question.
    Rejected,
    /// Nobody there.
    Refused,
    /// No trust.
    Tls,
    /// The connection broke or ended early.
    Broken,
    /// Not readable.
    Decode,
    /// Older than what was seen, or leading back to what had expired.
    RvLoop,
    /// A list whose keys do not rise.
    Unordered,
    /// A list that is larger than a list may be.
    TooLarge,
    /// The code that asks the server panicked.
    Panicked,
}

/// What to do next. Where "again" continues from is the state's business: the same page of a list,
/// the last revision of a watch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Recovery {
    /// Again, and at once as long as that makes progress.
    Resume,
    /// Again, after a wait.
    Backoff {
        /// The server asked for at least this.
        at_least: Option<Duration>,
    },
    /// Only a new, consistent list helps (R8).
    Relist,
    /// The server will not take this question: ask in another way.
    Reconsider,
}

impl Failure {
    /// The failure that an HTTP answer other than 2xx is.
    pub fn from_response(code: u16, body: &[u8], retry_after_seconds: Option<u32>) -> Self {
        let status = Status::of_response(code, body);
        Self::Status(match retry_after_seconds {
            Some(seconds) => status.with_retry_after(seconds),
            None => status,
        })
    }

    /// Its class.
    pub fn class(&self) -> Class {
        match self {
            Self::Status(status) => class_of(status),
            Self::Refused(_) => Class::Refused,
            Self::Tls(_) => Class::Tls,
            Self::TimedOut { progress: false } => Class::TimedOutSilent,
            Self::TimedOut { progress: true } => Class::TimedOutProgress,
            Self::Reset(_) | Self::Ended => Class::Broken,
            Self::Decode(_) => Class::Decode,
            Self::CutOff => Class::Overloaded,
            Self::Older { .. } | Self::Loop { .. } => Class::RvLoop,
            Self::Unordered { .. } => Class::Unordered,
            Self::TooLarge { .. } => Class::TooLarge,
            Self::Panicked(_) => Class::Panicked,
        }
    }

    /// What to do about it.
    pub fn recovery(&self) -> Recovery {
        match self {
            Self::Status(status) => recovery_of(status),
            Self::Refused(_)
            | Self::Tls(_)
            | Self::Older { .. }
            | Self::Loop { .. }
            | Self::Panicked(_) => Recovery::Backoff { at_least: None },
            // The same page again would be as wrong.
            Self::Unordered { .. } | Self::TooLarge { .. } => Recovery::Reconsider,
            Self::TimedOut { .. }
            | Self::Reset(_)
            | Self::Ended
            | Self::Decode(_)
            | Self::CutOff => Recovery::Resume,
        }
    }

    /// The token with which an expired list goes on at a newer revision (W12), if there is one.
    pub fn fresh_token(&self) -> Option<&str> {
        match self {
            Self::Status(status) => Some(status.continue_token()).filter(|it| !it.is_empty()),
            _ => None,
        }
    }
}

fn class_of(status: &Status) -> Class {
    if status.is_expired() || status.is_too_large_resource_version() {
        return Class::Expired;
    }
    match status.code() {
        401 => Class::Unauthorized,
        403 => Class::Forbidden,
        404 => Class::NotFound,
        408 | 504 => Class::TimedOutSilent,
        429 | 503 => Class::Overloaded,
        400..=499 | 501 => Class::Rejected,
        _ => Class::Server,
    }
}

fn recovery_of(status: &Status) -> Recovery {
    match class_of(status) {
        Class::Expired => Recovery::Relist,
        Class::Rejected => Recovery::Reconsider,
        _ => Recovery::Backoff { at_least: status.retry_after() },
    }
}

impl Class {
    /// All of them.
    pub const ALL: [Self; 17] = [
        Self::Unauthorized,
        Self::Forbidden,
        Self::NotFound,
        Self::Expired,
        Self::TimedOutSilent,
        Self::TimedOutProgress,
        Self::Overloaded,
        Self::Server,
        Self::Rejected,
        Self::Refused,
        Self::Tls,
        Self::Broken,
        Self::Decode,
        Self::RvLoop,
        Self::Unordered,
        Self::TooLarge,
        Self::Panicked,
    ];

    /// Returns `true` for time-outs.
    pub const fn is_time_out(self) -> bool {
        matches!(self, Self::TimedOutSilent | Self::TimedOutProgress)
    }

    /// Returns `true` if the server refused, and asking again does not help by itself: the credentials,
    /// a right, the resource or the request has to change first.
    pub const fn is_refusal(self) -> bool {
        matches!(self, Self::Unauthorized | Self::Forbidden | Self::NotFound | Self::Rejected)
    }

    /// One word or two, as in metrics and tables.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Unauthorized => "unauthorized",
            Self::Forbidden => "forbidden",
            Self::NotFound => "not found",
            Self::Expired => "expired",
            Self::TimedOutSilent => "timed out with 0 bytes",
            Self::TimedOutProgress => "timed out after progress",
            Self::Overloaded => "overloaded",
            Self::Server => "server error",
            Self::Rejected => "rejected",
            Self::Refused => "refused",
            Self::Tls => "TLS",
            Self::Broken => "broken",
            Self::Decode => "decode",
            Self::RvLoop => "RV loop",
            Self::Unordered => "unordered",
            Self::TooLarge => "too large",
            Self::Panicked => "panicked",
        }
    }

    /// What a person can do about it (R25).
    pub const fn advice(self) -> &'static str {
        match self {
            Self::Unauthorized => "Check the credentials: the server does not know who is asking.",
            Self::Forbidden => "Grant list and watch on this resource to the account that asks.",
            Self::NotFound => {
                "Check that the resource is served: a custom resource needs its definition first."
            }
            Self::Expired => "Nothing to do: the list is read again.",
            Self::TimedOutSilent => {
                "Check the way to the server and its load: the request got no answer at all."
            }
            Self::TimedOutProgress => {
                "The answer began and stopped: smaller pages are tried; check bandwidth and proxies."
            }
            Self::Overloaded => "The server asks for patience: waiting as long as it says.",
            Self::Server => "Look at the server's log: it failed to answer.",
            Self::Rejected => "The server does not take this request: compare its version.",
            Self::Refused => "Check address, port and that the server is running.",
            Self::Tls => {
                "Check the certificate authority and the server's name in its certificate."
            }
            Self::Broken => "Nothing to do unless it repeats: the connection is made again.",
            Self::Decode => "Check for a proxy that cuts or changes answers.",
            Self::RvLoop => {
                "A server answers with an older state than was seen: one of several may lag, or it \
                 was restored from a backup."
            }
            Self::Unordered => {
                "The server repeats or mixes up the pages of its list: look for a proxy that caches \
                 answers, or an aggregated API that ignores continue tokens."
            }
            Self::TooLarge => {
                "The list is larger than allowed, or never ends: narrow it by namespace or selector, \
                 hold objects compact, or raise the limit for lists."
            }
            Self::Panicked => {
                "Look at this program's log and report the bug: its own code failed, not the server."
            }
        }
    }
}

impl fmt::Display for Class {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use masthead_core::{Resource, Revision};

    use super::*;

    fn judged(failure: impl Into<Failure>) -> (Class, Recovery) {
        let failure = failure.into();
        (failure.class(), failure.recovery())
    }

    const LATER: Recovery = Recovery::Backoff { at_least: None };

    #[test]
    fn r07_what_a_failure_is_and_what_it_calls_for() {
        let of = |code| Failure::from_response(code, b"", None);
        assert_eq!(judged(of(401)), (Class::Unauthorized, LATER));
        assert_eq!(judged(of(403)), (Class::Forbidden, LATER));
        assert_eq!(judged(of(404)), (Class::NotFound, LATER));
        assert_eq!(judged(of(429)), (Class::Overloaded, LATER));
        assert_eq!(judged(of(500)), (Class::Server, LATER));
        assert_eq!(judged(of(503)), (Class::Overloaded, LATER));
        assert_eq!(judged(of(504)), (Class::TimedOutSilent, LATER));
        assert_eq!(judged(of(422)), (Class::Rejected, Recovery::Reconsider));
        assert_eq!(judged(Failure::Ended), (Class::Broken, Recovery::Resume));
        assert_eq!(judged(Failure::Panicked("no".into())), (Class::Panicked, LATER));
        let silent = Failure::TimedOut { progress: false };
        assert_eq!(judged(silent), (Class::TimedOutSilent, Recovery::Resume));
        let cut = Failure::Decode("end of text".into());
        assert_eq!(judged(cut), (Class::Decode, Recovery::Resume));
    }

    #[test]
    fn r08_expired_and_too_large_are_one_matter() {
        assert_eq!(judged(Failure::from_response(410, b"", None)).1, Recovery::Relist);
        let future = Status::too_large_resource_version(Revision(9), Revision(5));
        assert_eq!(judged(future), (Class::Expired, Recovery::Relist));
    }

    #[test]
    fn r07_retry_after_comes_from_the_header_or_the_status() {
        let asked = |failure: Failure| match failure.recovery() {
            Recovery::Backoff { at_least } => at_least.map(|it| it.as_secs()),
            other => panic!("{other:?}"),
        };
        assert_eq!(asked(Failure::from_response(429, b"", Some(7))), Some(7));
        assert_eq!(asked(Status::too_many_requests("later", 3).into()), Some(3));
        assert_eq!(asked(Status::forbidden(&Resource::pods(), "", "no").into()), None);
    }

    #[test]
    fn r25_every_class_says_what_to_do() {
        for class in Class::ALL {
            assert!(class.advice().ends_with('.'), "{class}");
        }
    }
}
