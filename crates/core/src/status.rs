//! API errors as they stand on the wire.

use std::borrow::Cow;
use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

mod make;
mod parts;
mod reason;

pub use make::cache_retry_seconds;
pub use parts::{StatusCause, StatusDetails};
pub use reason::Reason;

use crate::limits::{BODY_BYTES_MAX, QUOTED_ANSWER_BYTES_MAX};
use parts::{Meta, or_default};

/// The answer to a request that failed (and to some that succeeded), as Kubernetes writes it.
///
/// Constructors are named for the situation and write what kube-apiserver writes. A status read
/// from a server keeps what it does not know, so that it can be passed on.
///
/// ```
/// use masthead_core::{Resource, Status};
///
/// let status = Status::not_found(&Resource::pods(), "web");
/// assert_eq!((status.code(), status.message()), (404, r#"pods "web" not found"#));
/// assert!(status.to_json().ends_with(r#""details":{"name":"web","kind":"pods"},"code":404}"#));
/// ```
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Status(Box<Body>);

/// On the heap, since errors are rare and results should stay small.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Body {
    kind: Cow<'static, str>,
    api_version: Cow<'static, str>,
    #[serde(default, deserialize_with = "or_default")]
    metadata: Meta,
    #[serde(default, deserialize_with = "or_default", skip_serializing_if = "str::is_empty")]
    status: Cow<'static, str>,
    #[serde(default, deserialize_with = "or_default", skip_serializing_if = "String::is_empty")]
    message: String,
    #[serde(default, deserialize_with = "or_default", skip_serializing_if = "Reason::is_unknown")]
    reason: Reason,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    details: Option<StatusDetails>,
    #[serde(default, skip_serializing_if = "is_zero")]
    code: u16,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes references")]
fn is_zero(code: &u16) -> bool {
    *code == 0
}

impl Status {
    /// Reads a status; none if the text is something else.
    pub fn parse(text: &[u8]) -> Option<Self> {
        if text.len() > BODY_BYTES_MAX {
            return None;
        }
        let status: Self = serde_json::from_slice(text).ok()?;
        let version = status.0.api_version.as_ref();
        (status.0.kind == "Status" && matches!(version, "v1" | "meta.k8s.io/v1")).then_some(status)
    }

    /// The status of an answer with this HTTP status code. What is no `Status` (a proxy's page, an
    /// empty body) becomes one that quotes the beginning of it.
    pub fn of_response(code: u16, body: &[u8]) -> Self {
        if let Some(mut status) = Self::parse(body) {
            if status.0.code == 0 {
                status.0.code = code;
            }
            return status;
        }
        let cut = &body[..body.len().min(QUOTED_ANSWER_BYTES_MAX)];
        let text = String::from_utf8_lossy(cut);
        let message = match text.trim() {
            "" => format!("the server answered {code} and said no more"),
            text => format!("the server answered {code}: {text}"),
        };
        Self::failure(code, Reason::of_code(code), message)
    }

    /// The HTTP status code.
    pub fn code(&self) -> u16 {
        match self.0.code {
            0 if self.is_success() => 200,
            0 => 500,
            code => code,
        }
    }

    /// The machine's word for what happened.
    pub fn reason(&self) -> &Reason {
        &self.0.reason
    }

    /// The sentence for people.
    pub fn message(&self) -> &str {
        &self.0.message
    }

    /// Which object, and causes one by one, where there is more to say.
    pub fn details(&self) -> Option<&StatusDetails> {
        self.0.details.as_ref()
    }

    /// Returns `true` if the status is a success.
    pub fn is_success(&self) -> bool {
        self.0.status == "Success"
    }

    /// How long the server asks to wait before the next try.
    pub fn retry_after(&self) -> Option<Duration> {
        let seconds = self.0.details.as_ref()?.retry_after_seconds;
        (seconds > 0).then(|| Duration::from_secs(seconds.into()))
    }

    /// The token to go on with after an expired one (W12); empty if there is none.
    pub fn continue_token(&self) -> &str {
        &self.0.metadata.continue_token
    }

    /// Returns `true` if the requested history is gone, so that only a new list helps.
    pub fn is_expired(&self) -> bool {
        self.code() == 410 || matches!(self.0.reason, Reason::Expired | Reason::Gone)
    }

    /// Returns `true` if the server has not reached the requested revision (W16).
    pub fn is_too_large_resource_version(&self) -> bool {
        let causes = self.0.details.iter().flat_map(|details| &details.causes);
        // Servers before 1.16 have no cause and only the sentence.
        causes.into_iter().any(|cause| cause.reason == parts::TOO_LARGE)
            || (self.0.reason == Reason::Timeout
                && self.0.message.contains("Too large resource version"))
    }

    /// As JSON, in kube-apiserver's order of members.
    pub fn to_json(&self) -> String {
        serde_json::to_string(self).expect("a status has string keys only")
    }

    /// The same with what a `Retry-After` header said, unless the status itself says so.
    pub fn with_retry_after(mut self, seconds: u32) -> Self {
        let details = self.0.details.get_or_insert_default();
        if details.retry_after_seconds == 0 {
            details.retry_after_seconds = seconds;
        }
        self
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.message(), self.reason().as_str()) {
            ("", "") => write!(f, "status {}", self.code()),
            ("", reason) => f.write_str(reason),
            (message, _) => f.write_str(message),
        }
    }
}

impl std::error::Error for Status {}
