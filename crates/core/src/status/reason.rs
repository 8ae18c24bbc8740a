//! The machine-readable reasons.

use serde::{Deserialize, Serialize};

macro_rules! reasons {
    ($($(#[$doc:meta])+ $name:ident,)+) => {
        /// Why a request failed, in Kubernetes' words.
        #[derive(Clone, PartialEq, Eq, Hash, Default, Debug, Serialize, Deserialize)]
        #[serde(from = "String", into = "String")]
        #[non_exhaustive]
        pub enum Reason {
            $($(#[$doc])+ $name,)+
            /// None given.
            #[default]
            Unknown,
            /// A word that this version does not know, kept as it is.
            Other(String),
        }

        impl Reason {
            /// As on the wire; empty if none is given.
            pub fn as_str(&self) -> &str {
                match self {
                    $(Self::$name => stringify!($name),)+
                    Self::Unknown => "",
                    Self::Other(word) => word,
                }
            }
        }

        impl From<String> for Reason {
            fn from(word: String) -> Self {
                match word.as_str() {
                    $(stringify!($name) => Self::$name,)+
                    "" => Self::Unknown,
                    _ => Self::Other(word),
                }
            }
        }
    };
}

reasons! {
    /// 400: the request makes no sense.
    BadRequest,
    /// 401: nobody knows who asks.
    Unauthorized,
    /// 403: the one who asks may not.
    Forbidden,
    /// 404: no such object or resource.
    NotFound,
    /// 405: the resource has no such verb.
    MethodNotAllowed,
    /// 406: no encoding that the client takes.
    NotAcceptable,
    /// 409: the name is taken.
    AlreadyExists,
    /// 409: the object is not what the client thought.
    Conflict,
    /// 410: gone for good.
    Gone,
    /// 410: the history asked for is no longer kept.
    Expired,
    /// 413: the body is too large.
    RequestEntityTooLarge,
    /// 415: the body is in an unknown format.
    UnsupportedMediaType,
    /// 422: the request breaks a rule; details say which.
    Invalid,
    /// 429: later, please.
    TooManyRequests,
    /// 500: a fault of the server.
    InternalError,
    /// 500: the server gave up for now.
    ServerTimeout,
    /// 503: the server is not able to serve.
    ServiceUnavailable,
    /// 504: it took too long.
    Timeout,
}

impl Reason {
    /// Returns `true` if no reason is given.
    pub fn is_unknown(&self) -> bool {
        *self == Self::Unknown
    }

    /// What an HTTP status code alone says.
    pub(super) fn of_code(code: u16) -> Self {
        match code {
            400 => Self::BadRequest,
            401 => Self::Unauthorized,
            403 => Self::Forbidden,
            404 => Self::NotFound,
            405 => Self::MethodNotAllowed,
            406 => Self::NotAcceptable,
            409 => Self::Conflict,
            410 => Self::Gone,
            413 => Self::RequestEntityTooLarge,
            415 => Self::UnsupportedMediaType,
            422 => Self::Invalid,
            429 => Self::TooManyRequests,
            500 => Self::InternalError,
            503 => Self::ServiceUnavailable,
            504 => Self::Timeout,
            _ => Self::Unknown,
        }
    }
}

impl From<Reason> for String {
    fn from(reason: Reason) -> Self {
        match reason {
            Reason::Other(word) => word,
            known => known.as_str().to_owned(),
        }
    }
}
