//! How the simulated servers answer lists.

use masthead_core::{ContinueToken, Revision, Status};
use masthead_reflector::{Failure, ListAt, ListRequest, Page};

use super::plan::ListFault;
use super::store::{Store, Version};
use crate::history::{self, Item, Match};

/// An answer on its way: what the client gets and what the history says.
#[derive(Clone, Debug)]
pub(super) struct Answer {
    pub result: Result<Page, Failure>,
    pub record: history::ListResp,
}

pub(super) fn request_record(
    id: String,
    who: &str,
    request: &ListRequest,
    t0: u64,
) -> history::List {
    let rv = request.at.resource_version();
    history::List {
        id,
        who: who.to_owned(),
        scope: history::Scope::All,
        selector: String::new(),
        fields: String::new(),
        rv: rv.and_then(|rv| rv.parse().ok()),
        matching: request.at.resource_version_match().map(|_| Match::Exact),
        limit: request.limit as u64,
        token: request.at.continue_token().map(str::to_owned),
        t0,
    }
}

/// The answer of a server that is at `current`, and whose consistent lists are of `latest`.
pub(super) fn answer(
    store: &Store,
    request: &ListRequest,
    (current, latest): (u64, u64),
    offers_fresh_token: bool,
) -> Answer {
    let (rv, start, limit) = match &request.at {
        ListAt::Latest => (latest, None, request.limit),
        ListAt::Cached => (current, None, usize::MAX),
        ListAt::Exact(rv) => (rv.parse().unwrap_or(0), None, request.limit),
        ListAt::Continue(token) => {
            let token = ContinueToken::decode(token, "").expect("tokens come from this server");
            let rv = token.revision().map_or(latest, |rv| rv.0);
            (rv, Some(token), request.limit)
        }
    };
    if rv < store.oldest && matches!(request.at, ListAt::Exact(_) | ListAt::Continue(_)) {
        let fresh = start.filter(|_| offers_fresh_token);
        return expired(fresh.as_ref());
    }
    if rv > store.rv {
        let (rv, now) = (Revision(rv), Revision(store.rv));
        return failed(Status::too_large_resource_version(rv, now).into(), 504, None);
    }
    page(store, rv, start.as_ref().map_or("", ContinueToken::start), limit)
}

fn page(store: &Store, rv: u64, start: &str, limit: usize) -> Answer {
    let mut rest = store.state(rv).filter(|it| it.object.key().as_str() >= start);
    let versions: Vec<&Version> = rest.by_ref().take(limit).collect();
    let more = rest.count() as u64;
    let token = versions
        .last()
        .filter(|_| more > 0)
        .map(|last| ContinueToken::after(last.object.key(), Some(Revision(rv))).encode(""));
    let objects = versions.iter().map(|version| version.object.clone()).collect();
    let items: Vec<Item> = versions.iter().map(|version| version.item()).collect();
    let page = Page {
        objects,
        resource_version: rv.to_string(),
        continue_token: token.clone().unwrap_or_default(),
        remaining: (more > 0).then_some(more),
        skipped: 0,
    };
    let record = history::ListResp { code: 200, rv, items, token, ..empty() };
    Answer { result: Ok(page), record }
}

/// 410, with the token that goes on at a newer revision where there is one (W12).
pub(super) fn expired(fresh_after: Option<&ContinueToken>) -> Answer {
    let token = fresh_after.and_then(|token| {
        let last = token.start().trim_end_matches('\0');
        let (namespace, name) = last.split_once('/')?;
        let last = masthead_core::ObjectKey::new(namespace, name).ok()?;
        Some(ContinueToken::after(&last, None).encode(""))
    });
    let body = format!(
        r#"{{"kind":"Status","apiVersion":"v1","metadata":{{"continue":"{}"}},"status":"Failure","reason":"Expired","code":410}}"#,
        token.as_deref().unwrap_or_default()
    );
    let mut answer = failed(Failure::from_response(410, body.as_bytes(), None), 410, None);
    answer.record.token = token;
    answer
}

fn failed(failure: Failure, code: u16, retry_after: Option<u32>) -> Answer {
    let retry_after_ms = retry_after.map(|seconds| u64::from(seconds) * 1000);
    let record = history::ListResp { code, retry_after_ms, ..empty() };
    Answer { result: Err(failure), record }
}

fn lost(failure: Failure, reason: &str) -> Answer {
    let record = history::ListResp { reason: reason.to_owned(), ..empty() };
    Answer { result: Err(failure), record }
}

/// What becomes of a good answer when something goes wrong; none if it never comes.
pub(super) fn spoil(good: Answer, fault: ListFault, request: &ListRequest) -> Option<Answer> {
    let mut answer = match fault {
        ListFault::Refused => lost(Failure::Refused("nobody there".into()), "refused"),
        ListFault::Code(code, after) => {
            failed(Failure::from_response(code, b"", after), code, after)
        }
        ListFault::TooLate(_) => failed(Failure::from_response(500, b"", None), 500, None),
        ListFault::Hang => return None,
        ListFault::Truncated => lost(Failure::Decode("end of text".into()), "truncated"),
        ListFault::Reset => lost(Failure::Reset("by peer".into()), "reset"),
        ListFault::Expired => match &request.at {
            ListAt::Continue(token) => expired(ContinueToken::decode(token, "").ok().as_ref()),
            ListAt::Exact(_) => expired(None),
            _ => return Some(good),
        },
        ListFault::Slow(_) | ListFault::Twice => return Some(good),
    };
    answer.record.injected = true;
    Some(answer)
}

pub(super) fn empty() -> history::ListResp {
    history::ListResp {
        id: String::new(),
        code: 0,
        reason: String::new(),
        rv: 0,
        items: Vec::new(),
        token: None,
        retry_after_ms: None,
        injected: false,
        t1: 0,
    }
}
