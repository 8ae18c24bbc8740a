//! API errors: the exact JSON of each, and what is read from other servers' (W14–W17, W33).

use masthead_core::limits::QUOTED_ANSWER_BYTES_MAX;
use masthead_core::{Reason, Resource, Revision, Scope, Status, StatusCause, cache_retry_seconds};
use proptest::prelude::*;

use crate::fixture;

/// A status for the name of a constructor and its arguments.
fn make(name: &str, arguments: &[&str]) -> Status {
    let resource = |at: usize| match arguments[at] {
        "pods" => Resource::pods(),
        "deployments" => {
            Resource::new("apps", "v1", "deployments", "Deployment", Scope::Namespaced)
        }
        other => panic!("no resource {other:?}"),
    };
    let text = |at: usize| arguments.get(at).copied().unwrap_or_default();
    let revision = |at: usize| Revision(text(at).parse().unwrap());
    match name {
        "bad_request" => Status::bad_request(text(0)),
        "unauthorized" => Status::unauthorized(),
        "forbidden" => Status::forbidden(&resource(0), text(1), text(2)),
        "not_found" => Status::not_found(&resource(0), text(1)),
        "no_such_path" => Status::no_such_path(),
        "method_not_allowed" => Status::method_not_allowed(&resource(0), text(1)),
        "not_acceptable" => Status::not_acceptable(arguments),
        "already_exists" => Status::already_exists(&resource(0), text(1)),
        "conflict" => Status::conflict(&resource(0), text(1)),
        "conflict_because" => Status::conflict_because(&resource(0), text(1), text(2)),
        "too_old_resource_version" => Status::too_old_resource_version(revision(0), revision(1)),
        "list_expired" => Status::list_expired(),
        "continue_expired" => Status::continue_expired(arguments.first().map(|&it| it.to_owned())),
        "request_too_large" => Status::request_too_large(),
        "unsupported_media_type" => Status::unsupported_media_type(arguments),
        "invalid" => Status::invalid(
            text(0),
            text(1),
            text(2),
            vec![
                StatusCause::required("spec.containers", ""),
                StatusCause::invalid("metadata.name", "A", "must be lower case"),
            ],
        ),
        "invalid_options" => {
            let why = "sendInitialEvents is forbidden for list";
            Status::invalid_options(vec![StatusCause::forbidden("sendInitialEvents", why)])
        }
        "too_many_requests" => Status::too_many_requests(text(0), text(1).parse().unwrap()),
        "cache_not_ready" => Status::cache_not_ready(text(0).parse().unwrap()),
        "internal" => Status::internal(text(0)),
        "unavailable" => Status::unavailable(text(0)),
        "timeout" => Status::timeout(text(0), text(1).parse().unwrap()),
        "too_large_resource_version" => {
            Status::too_large_resource_version(revision(0), revision(1))
        }
        "deleted" => Status::deleted(&resource(0), text(1), text(2)),
        other => panic!("no constructor {other:?}"),
    }
}

#[test]
fn statuses_are_what_kube_apiserver_writes() {
    fixture::run("statuses.txt", |directive, input| {
        if let Some(code) = directive.strip_prefix("read ") {
            let status = Status::of_response(code.parse().unwrap(), input.as_bytes());
            let token = status.continue_token();
            return format!(
                "{} {:?}: {status}\nretry after {:?}, expired {}, too large {}, token {token:?}",
                status.code(),
                status.reason(),
                status.retry_after(),
                status.is_expired(),
                status.is_too_large_resource_version(),
            );
        }
        let status = make(directive, &input.lines().collect::<Vec<_>>());
        let json = status.to_json();
        assert_eq!(Status::parse(json.as_bytes()), Some(status), "{json}");
        json
    });
}

#[test]
fn w17_the_wait_grows_with_the_time_down() {
    for (down, wait) in
        [(0.0, 1), (11.0, 1), (12.0, 2), (30.0, 6), (56.6, 29), (57.0, 30), (1e9, 30), (-5.0, 1)]
    {
        assert_eq!(cache_retry_seconds(down), wait, "{down}");
    }
    assert_eq!(cache_retry_seconds(f64::NAN), 1);
}

#[test]
fn answers_are_quoted_up_to_the_limit() {
    let message = |n: usize| Status::of_response(502, "x".repeat(n).as_bytes()).message().len();
    let most = message(QUOTED_ANSWER_BYTES_MAX);
    assert_eq!(message(QUOTED_ANSWER_BYTES_MAX - 1), most - 1);
    assert_eq!(message(QUOTED_ANSWER_BYTES_MAX + 1), most);
}

#[test]
fn errors_are_one_word_in_a_result() {
    assert_eq!(size_of::<Result<(), Status>>(), size_of::<usize>());
}

#[test]
fn an_unknown_reason_is_kept() {
    let json = r#"{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","reason":"Teapot","code":418}"#;
    let status = Status::parse(json.as_bytes()).unwrap();
    assert_eq!(status.reason(), &Reason::Other("Teapot".into()));
    assert_eq!(status.to_json(), json);
}

#[test]
fn what_is_no_status_is_none() {
    for text in ["", "{}", "null", r#"{"kind":"Pod","apiVersion":"v1"}"#, r#"{"kind":"Status"}"#] {
        assert_eq!(Status::parse(text.as_bytes()), None, "{text}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn any_answer_becomes_a_status(
        code in 100_u16..600,
        body in prop::collection::vec(any::<u8>(), 0..60),
    ) {
        let status = Status::of_response(code, &body);
        prop_assert_eq!(status.code(), code);
        prop_assert_eq!(Status::parse(status.to_json().as_bytes()), Some(status));
    }
}
