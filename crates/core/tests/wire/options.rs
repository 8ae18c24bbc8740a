//! What lists and watches ask for (W1–W9): every combination of parameters against a table.

use std::fmt::Write;
use std::time::Duration;

use masthead_core::{
    ContinueToken, Freshness, ListAt, ListOptions, ObjectKey, Query, Resource, Revision, Status,
    WatchFrom, WatchOptions,
};

use crate::fixture;

const LIMITS: [&str; 3] = ["-", "0", "5"];
const TOKENS: [&str; 3] = ["-", "good", "bad"];
const VERSIONS: [&str; 4] = ["-", "0", "7", "x"];
const MATCHES: [&str; 4] = ["-", "Exact", "NotOlderThan", "Bogus"];
const FLAGS: [&str; 3] = ["-", "true", "false"];

/// What is wrong with a combination; all rows that fit count, in this order.
///
/// verb, continue, version, match, initial events, cause
const REFUSED: &str = r#"
list  *        -   Exact|NotOlderThan|Bogus *          resourceVersionMatch: Forbidden: resourceVersionMatch is forbidden unless resourceVersion is provided
list  good|bad *   Exact|NotOlderThan|Bogus *          resourceVersionMatch: Forbidden: resourceVersionMatch is forbidden when continue is provided
list  *        *   Bogus                    *          resourceVersionMatch: Unsupported value: "Bogus": supported values: "Exact", "NotOlderThan", ""
list  *        0   Exact                    *          resourceVersionMatch: Forbidden: resourceVersionMatch "exact" is forbidden for resourceVersion "0"
list  *        *   *                        true|false sendInitialEvents: Forbidden: sendInitialEvents is forbidden for list
watch *        *   -|Exact|Bogus            true|false resourceVersionMatch: Forbidden: sendInitialEvents requires setting resourceVersionMatch to NotOlderThan
watch *        *   Exact|NotOlderThan|Bogus -          resourceVersionMatch: Forbidden: resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided
watch *        *   Exact                    *          resourceVersionMatch: Unsupported value: "Exact": supported values: "NotOlderThan"
watch *        *   Bogus                    *          resourceVersionMatch: Unsupported value: "Bogus": supported values: "NotOlderThan"
watch good|bad *   Exact|NotOlderThan|Bogus *          resourceVersionMatch: Forbidden: resourceVersionMatch is forbidden when continue is provided
watch good|bad -|0 -                        -          resourceVersionMatch: Forbidden: resourceVersionMatch is forbidden when continue is provided
watch *        x   *                        *          resourceVersion: Invalid value: "x": must be a decimal number
"#;

/// What a combination means that is not refused; the first row that fits counts.
///
/// verb, limit, continue, version, match, initial events, meaning
const MEANING: &str = "
list  *   good|bad 7|x *            *     400 specifying resource version is not allowed when using continue
list  *   bad      *   *            *     400 continue key is not valid: it is not one that this server gave out
list  *   good     *   *            *     the rest
list  *   -        -   *            *     most recent
list  *   -        0   *            *     cached
list  *   -        x   *            *     400 invalid resource version: \"x\" is no decimal number
list  *   -        7   Exact        *     exactly 7
list  5   -        7   -            *     exactly 7
list  -|0 -        7   -            *     not older than 7
list  *   -        7   NotOlderThan *     not older than 7
watch *   *        -   -            -     state, most recent
watch *   *        0   -            -     state, cached
watch *   *        7   -            -     after 7
watch *   *        -   NotOlderThan true  state, most recent
watch *   *        0   NotOlderThan true  state, cached
watch *   *        7   NotOlderThan true  state, not older than 7
watch *   *        -   NotOlderThan false now, most recent
watch *   *        0   NotOlderThan false now, cached
watch *   *        7   NotOlderThan false after 7
";

fn fits<'t>(row: &'t str, values: &[&str]) -> Option<&'t str> {
    let mut rest = row;
    for value in values {
        let (pattern, behind) = rest.trim_start().split_once(' ').unwrap();
        rest = behind;
        if pattern != "*" && !pattern.split('|').any(|it| it == *value) {
            return None;
        }
    }
    Some(rest.trim_start())
}

fn rows(table: &str) -> impl Iterator<Item = &str> {
    table.lines().filter(|line| !line.is_empty())
}

fn good_token() -> ContinueToken {
    ContinueToken::after(&ObjectKey::new("shop", "web").unwrap(), Some(Revision(3)))
}

fn described(query: &Query) -> String {
    let fresh = |fresh: &Freshness| match fresh {
        Freshness::MostRecent => "most recent".to_owned(),
        Freshness::Cached => "cached".to_owned(),
        Freshness::NotOlderThan(revision) => format!("not older than {revision}"),
    };
    match query {
        Query::List(list) => match &list.at {
            ListAt::MostRecent => "most recent".to_owned(),
            ListAt::Cached => "cached".to_owned(),
            ListAt::NotOlderThan(revision) => format!("not older than {revision}"),
            ListAt::Exact(revision) => format!("exactly {revision}"),
            ListAt::Continue(token) => {
                assert_eq!(token, &good_token());
                "the rest".to_owned()
            }
        },
        Query::Watch(watch) => match &watch.from {
            WatchFrom::State { fresh: at, .. } => format!("state, {}", fresh(at)),
            WatchFrom::Now(at) => format!("now, {}", fresh(at)),
            WatchFrom::After(revision) => format!("after {revision}"),
        },
    }
}

fn checked(verb: &str, [limit, token, version, matching, initial]: [&str; 5]) {
    let mut query = format!("watch={}", verb == "watch");
    let good = good_token().encode("shop");
    for (name, value) in [
        ("limit", limit),
        ("continue", if token == "good" { &good } else { token }),
        ("resourceVersion", version),
        ("resourceVersionMatch", matching),
        ("sendInitialEvents", initial),
    ] {
        if value != "-" {
            write!(query, "&{name}={value}").unwrap();
        }
    }
    let found = Query::parse(&query, &Resource::pods(), "shop");
    let values = [verb, token, version, matching, initial];
    let causes: Vec<_> = rows(REFUSED).filter_map(|row| fits(row, &values)).collect();
    if !causes.is_empty() {
        let refused = found.expect_err(&query);
        let sentences = match causes.as_slice() {
            [only] => (*only).to_owned(),
            several => format!("[{}]", several.join(", ")),
        };
        let message = format!("ListOptions.meta.k8s.io \"\" is invalid: {sentences}");
        assert_eq!((refused.code(), refused.message()), (422, message.as_str()), "{query}");
        let details = refused.details().unwrap();
        assert_eq!((details.kind.as_str(), details.group.as_str()), ("ListOptions", "meta.k8s.io"));
        assert_eq!(details.causes.len(), causes.len());
        return;
    }
    let values = [verb, limit, token, version, matching, initial];
    let meaning = rows(MEANING).find_map(|row| fits(row, &values)).expect(&query);
    match found {
        Err(refused) => {
            assert_eq!(format!("{} {}", refused.code(), refused.message()), meaning, "{query}");
        }
        Ok(found) => {
            assert_eq!(described(&found), meaning, "{query}");
            if let Query::List(list) = found {
                let paged = limit == "5" && meaning != "cached";
                assert_eq!(list.limit.map(usize::from), paged.then_some(5), "{query}");
            }
        }
    }
}

#[test]
fn w7_w9_every_combination_means_what_the_table_says() {
    let mut count = 0;
    for verb in ["list", "watch"] {
        for limit in LIMITS {
            for token in TOKENS {
                for version in VERSIONS {
                    for matching in MATCHES {
                        for flag in FLAGS {
                            checked(verb, [limit, token, version, matching, flag]);
                            count += 1;
                        }
                    }
                }
            }
        }
    }
    assert_eq!(count, 2 * 3 * 3 * 4 * 4 * 3);
}

#[test]
fn queries_are_read_as_kubernetes_reads_them() {
    fixture::run("queries.txt", |directive, input| {
        let (resource, namespace) = directive.split_once(' ').unwrap_or((directive, ""));
        let resource = match resource {
            "pods" => Resource::pods(),
            other => panic!("no resource {other:?}"),
        };
        match Query::parse(input, &resource, namespace) {
            Ok(query @ Query::List(_)) => {
                assert!(!Query::is_watch(input));
                let Query::List(list) = &query else { unreachable!() };
                let ListOptions { selectors, limit, timeout, .. } = list;
                let at = match &list.at {
                    ListAt::Continue(token) => format!("{token:?}"),
                    _ => described(&query),
                };
                format!("list {at}\n{selectors:?}\nlimit {limit:?} timeout {timeout:?}")
            }
            Ok(Query::Watch(watch)) => {
                assert!(Query::is_watch(input));
                let WatchOptions { selectors, from, bookmarks, timeout } = watch;
                format!("watch {from:?}\n{selectors:?}\nbookmarks {bookmarks} timeout {timeout:?}")
            }
            Err(status) => format!("{} {}", status.code(), status.message()),
        }
    });
}

#[test]
fn w21_the_end_of_initial_events_is_marked_only_with_bookmarks() {
    let pods = Resource::pods();
    let marked = |query: &str| match WatchOptions::from_query(query, &pods).unwrap().from {
        WatchFrom::State { initial_events_end, .. } => initial_events_end,
        other => panic!("{other:?}"),
    };
    let asked = "sendInitialEvents=true&resourceVersionMatch=NotOlderThan";
    assert!(!marked(asked));
    assert!(marked(&format!("{asked}&allowWatchBookmarks=1")));
    assert!(marked("allowWatchBookmarks=true"), "the default is the same request");
}

#[test]
fn w3_a_watch_heeds_only_the_seconds() {
    let pods = Resource::pods();
    let watch = |query: &str| WatchOptions::from_query(query, &pods).unwrap().timeout;
    assert_eq!(watch("timeout=5s"), None);
    assert_eq!(watch("timeoutSeconds=0&timeout=nonsense"), None);
    assert_eq!(watch("timeoutSeconds=7&timeout=5s"), Some(Duration::from_secs(7)));
    let list = |query: &str| ListOptions::from_query(query, &pods, "").unwrap().timeout;
    assert_eq!(list("timeout=5s&timeoutSeconds=7"), Some(Duration::from_secs(5)));
    let refused = ListOptions::from_query("timeout=nonsense", &pods, "").err();
    assert_eq!(refused.as_ref().map(Status::code), Some(400));
}

#[test]
fn the_old_watch_paths_need_no_parameter() {
    let pods = Resource::pods();
    let watch = WatchOptions::from_query("resourceVersion=7", &pods).unwrap();
    assert_eq!(watch.from, WatchFrom::After(Revision(7)));
}
