//! Statuses, named for the situation.

use std::borrow::Cow;
use std::fmt::Display;

use super::{Body, Meta, Reason, Status, StatusCause, StatusDetails, parts};
use crate::limits::BODY_BYTES_MAX;
use crate::{Resource, Revision};

const STALE: &str = "the object has been modified; please apply your changes to the latest version \
                     and try again";
const OLD_TOKEN: &str =
    "The provided continue parameter is too old to display a consistent list result. You ";
const RESTART: &str = "must start a new list without the continue parameter.";
const RESTART_OR_GO_ON: &str = "can start a new list without the continue parameter, or use the \
                                continue token in this response to retrieve the remainder of the \
                                results. Continuing with the provided token results in an \
                                inconsistent list - objects that were created, modified, or \
                                deleted between the time the first chunk was returned and now may \
                                show up in the list.";

/// How many seconds a client should wait for a cache that has been down for so long (W17): short at
/// first, since most starts are quick, then ever longer.
pub fn cache_retry_seconds(seconds_down: f64) -> u32 {
    let wait = (0.06 * seconds_down).exp().clamp(1.0, 30.0);
    // Not a number goes to the shortest wait.
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "1 to 30")]
    let whole = wait as u32;
    whole.max(1)
}

impl Status {
    pub(super) fn failure(code: u16, reason: Reason, message: impl Into<String>) -> Self {
        Self::new("Failure", code, reason, message.into(), None)
    }

    fn new(
        status: &'static str,
        code: u16,
        reason: Reason,
        message: String,
        details: Option<StatusDetails>,
    ) -> Self {
        Self(Box::new(Body {
            kind: Cow::Borrowed("Status"),
            api_version: Cow::Borrowed("v1"),
            metadata: Meta::default(),
            status: Cow::Borrowed(status),
            message,
            reason,
            details,
            code,
        }))
    }

    /// A failure about an object of a resource; the name may be empty.
    fn about(
        code: u16,
        reason: Reason,
        resource: &Resource,
        name: &str,
        message: impl Into<String>,
    ) -> Self {
        let mut status = Self::failure(code, reason, message);
        status.0.details = Some(StatusDetails {
            name: name.to_owned(),
            group: resource.group().to_owned(),
            kind: resource.plural().to_owned(),
            ..StatusDetails::default()
        });
        status
    }

    fn with_details(mut self, details: StatusDetails) -> Self {
        self.0.details = Some(details);
        self
    }

    /// A failure that has no constructor of its own.
    pub fn with(code: u16, reason: Reason, message: impl Into<String>) -> Self {
        Self::failure(code, reason, message)
    }

    /// 400: a parameter, a selector or a body that cannot be understood.
    pub fn bad_request(what: impl Display) -> Self {
        Self::failure(400, Reason::BadRequest, what.to_string())
    }

    /// 401: no or wrong credentials. Says no more than that.
    pub fn unauthorized() -> Self {
        Self::failure(401, Reason::Unauthorized, "Unauthorized")
    }

    /// 403: not this user, not this verb, not here. The name is empty for whole collections.
    pub fn forbidden(resource: &Resource, name: &str, why: impl Display) -> Self {
        let object = if name.is_empty() { String::new() } else { format!(" {name:?}") };
        let message = format!("{resource}{object} is forbidden: {why}");
        Self::about(403, Reason::Forbidden, resource, name, message)
    }

    /// 404: no object of that name (W33).
    pub fn not_found(resource: &Resource, name: &str) -> Self {
        let message = format!("{resource} {name:?} not found");
        Self::about(404, Reason::NotFound, resource, name, message)
    }

    /// 404: nothing is served under that path.
    pub fn no_such_path() -> Self {
        Self::failure(404, Reason::NotFound, "the server could not find the requested resource")
            .with_details(StatusDetails::default())
    }

    /// 405: the resource has no such verb.
    pub fn method_not_allowed(resource: &Resource, verb: &str) -> Self {
        let message = format!("{verb} is not supported on resources of kind \"{resource}\"");
        Self::about(405, Reason::MethodNotAllowed, resource, "", message)
    }

    /// 406: none of the encodings that the client takes (W23).
    pub fn not_acceptable(served: &[&str]) -> Self {
        let served = served.join(", ");
        let message = format!("only the following media types are accepted: {served}");
        Self::failure(406, Reason::NotAcceptable, message)
    }

    /// 409: the name is taken (W33).
    pub fn already_exists(resource: &Resource, name: &str) -> Self {
        let message = format!("{resource} {name:?} already exists");
        Self::about(409, Reason::AlreadyExists, resource, name, message)
    }

    /// 409: an update of a version that is no longer the latest (W33).
    pub fn conflict(resource: &Resource, name: &str) -> Self {
        Self::conflict_because(resource, name, STALE)
    }

    /// 409: a precondition that does not hold.
    pub fn conflict_because(resource: &Resource, name: &str, why: impl Display) -> Self {
        let message = format!("Operation cannot be fulfilled on {resource} {name:?}: {why}");
        Self::about(409, Reason::Conflict, resource, name, message)
    }

    /// 410: a watch from before the kept history (W15).
    pub fn too_old_resource_version(asked: Revision, oldest: Revision) -> Self {
        Self::expired(format!("too old resource version: {asked} ({oldest})"))
    }

    /// 410: an exact list of a moment that is no longer kept (W7).
    pub fn list_expired() -> Self {
        Self::expired("The resourceVersion for the provided list is too old.")
    }

    /// 410: a page of a list that is no longer kept, with a token to go on from there at a newer
    /// revision (W12), or without one.
    pub fn continue_expired(fresh_token: Option<String>) -> Self {
        let advice = if fresh_token.is_some() { RESTART_OR_GO_ON } else { RESTART };
        let mut status = Self::expired(format!("{OLD_TOKEN}{advice}"));
        status.0.metadata.continue_token = fresh_token.unwrap_or_default();
        status
    }

    fn expired(message: impl Into<String>) -> Self {
        Self::failure(410, Reason::Expired, message)
    }

    /// 413: a body above the limit (W38).
    pub fn request_too_large() -> Self {
        let message = format!("Request entity too large: limit is {BODY_BYTES_MAX}");
        Self::failure(413, Reason::RequestEntityTooLarge, message)
    }

    /// 415: a body in a format that is not read (W23).
    pub fn unsupported_media_type(accepted: &[&str]) -> Self {
        let accepted = accepted.join(", ");
        let message = format!(
            "the body of the request was in an unknown format - accepted media types include: \
             {accepted}"
        );
        Self::failure(415, Reason::UnsupportedMediaType, message)
    }

    /// 422: something of this group and kind breaks rules. One cause for each.
    pub fn invalid(group: &str, kind: &str, name: &str, causes: Vec<StatusCause>) -> Self {
        let dot = if group.is_empty() { "" } else { "." };
        let subject = format!("{kind}{dot}{group} {name:?} is invalid");
        let mut sentences: Vec<String> = Vec::with_capacity(causes.len());
        for cause in &causes {
            let sentence = cause.sentence();
            if !sentences.contains(&sentence) {
                sentences.push(sentence);
            }
        }
        let message = match sentences.as_slice() {
            [] => subject,
            [only] => format!("{subject}: {only}"),
            several => format!("{subject}: [{}]", several.join(", ")),
        };
        let (name, group, kind) = (name.to_owned(), group.to_owned(), kind.to_owned());
        let details = StatusDetails { name, group, kind, causes, ..StatusDetails::default() };
        Self::failure(422, Reason::Invalid, message).with_details(details)
    }

    /// 422: list and watch parameters that do not go together.
    pub fn invalid_options(causes: Vec<StatusCause>) -> Self {
        Self::invalid("meta.k8s.io", "ListOptions", "", causes)
    }

    /// 429: not now.
    pub fn too_many_requests(message: impl Display, retry_after_seconds: u32) -> Self {
        Self::failure(429, Reason::TooManyRequests, message.to_string())
            .with_details(StatusDetails { retry_after_seconds, ..StatusDetails::default() })
    }

    /// 429: the cache that would answer is not there yet, or not any more (W17).
    pub fn cache_not_ready(seconds_down: f64) -> Self {
        Self::too_many_requests("storage is (re)initializing", cache_retry_seconds(seconds_down))
    }

    /// 500: a fault of ours. The text reaches the client: no secrets, no paths.
    pub fn internal(what: impl Display) -> Self {
        let cause = StatusCause { message: what.to_string(), ..StatusCause::default() };
        Self::failure(500, Reason::InternalError, format!("Internal error occurred: {what}"))
            .with_details(StatusDetails { causes: vec![cause], ..StatusDetails::default() })
    }

    /// 503: shutting down, or something below is.
    pub fn unavailable(why: impl Display) -> Self {
        Self::failure(503, Reason::ServiceUnavailable, why.to_string())
    }

    /// 504: it took longer than the client or the server allows.
    pub fn timeout(what: impl Display, retry_after_seconds: u32) -> Self {
        Self::failure(504, Reason::Timeout, format!("Timeout: {what}"))
            .with_details(StatusDetails { retry_after_seconds, ..StatusDetails::default() })
    }

    /// 504: a revision from the future that was not reached in time (W16).
    pub fn too_large_resource_version(asked: Revision, current: Revision) -> Self {
        let what = format!("Too large resource version: {asked}, current: {current}");
        let cause = StatusCause {
            reason: parts::TOO_LARGE.to_owned(),
            message: "Too large resource version".to_owned(),
            field: String::new(),
        };
        let causes = vec![cause];
        Self::timeout(what, 1).with_details(StatusDetails {
            causes,
            retry_after_seconds: 1,
            ..StatusDetails::default()
        })
    }

    /// 200: what a delete answers when the object is gone at once.
    pub fn deleted(resource: &Resource, name: &str, uid: &str) -> Self {
        let details = StatusDetails {
            name: name.to_owned(),
            group: resource.group().to_owned(),
            kind: resource.plural().to_owned(),
            uid: uid.to_owned(),
            ..StatusDetails::default()
        };
        Self::new("Success", 0, Reason::Unknown, String::new(), Some(details))
    }
}
