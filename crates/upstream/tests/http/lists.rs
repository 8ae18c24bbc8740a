//! Lists: what is asked, and what is made of the answer.

use std::future::poll_fn;
use std::io::Write;
use std::task::Poll;

use flate2::Compression;
use flate2::write::GzEncoder;
use masthead_core::{Resource, Selectors};
use masthead_reflector::{Class, Failure, ListAt, ListRequest, Meter, Recovery, Source};
use masthead_upstream::{Namespaces, Representation, Settings};

use crate::script::{Script, both, first_page, list, listing, pod, run, soon};

fn member(text: &str) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(text.as_bytes()).unwrap();
    encoder.finish().unwrap()
}

#[test]
fn r03_pages_are_asked_for_by_token_and_hold_what_the_server_sent() {
    both(async |http| {
        let mut server = Script::start();
        let source = server.pods(http).await;
        let page = listing(&source, first_page());
        let asked = server.next().await;
        assert_eq!((asked.path.as_str(), asked.query.as_str()), ("/api/v1/pods", "limit=500"));
        asked.say(
            200,
            r#"{"metadata":{"resourceVersion":"9","continue":"a/b=","remainingItemCount":7},"items":[
               {"metadata":{"name":"a","namespace":"shop","resourceVersion":"3"}},{"kind":"Node"}]}"#,
        );
        let page = page.await.unwrap().unwrap();
        assert_eq!(
            (page.continue_token.as_str(), page.remaining, page.skipped),
            ("a/b=", Some(7), 1)
        );
        let body = str::from_utf8(page.objects[0].body()).unwrap();
        assert!(body.starts_with(r#"{"kind":"Pod","apiVersion":"v1","metadata""#), "{body}");

        let at = ListAt::Continue(page.continue_token);
        let next = listing(&source, ListRequest { at, ..first_page() });
        let asked = server.next().await;
        assert_eq!(asked.query, "limit=500&continue=a%2Fb%3D");
        asked.say(200, list(9, &[]));
        assert_eq!(next.await.unwrap().unwrap().continue_token, "");
    });
}

#[test]
fn scope_selectors_and_representation_are_sent() {
    run(async {
        let mut server = Script::start();
        let upstream = server.upstream(Settings::default()).await;
        let deployments = Resource::new(
            "apps",
            "v1",
            "deployments",
            "Deployment",
            masthead_core::Scope::Namespaced,
        );
        let selectors = Selectors { labels: "app=web".parse().unwrap(), ..Selectors::default() };
        let shop = Namespaces::One("shop".into());
        let source =
            upstream.source(&deployments, &shop, &selectors, Representation::Metadata).unwrap();
        let page = listing(&source, first_page());
        let asked = server.next().await;
        assert_eq!(asked.path, "/apis/apps/v1/namespaces/shop/deployments");
        assert_eq!(asked.param("labelSelector"), Some("app%3Dweb"));
        let accept = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1";
        assert_eq!(asked.headers["accept"], accept);
        assert!(asked.headers["user-agent"].to_str().unwrap().starts_with("masthead/"));
        let partial = pod("a", 3)
            .replace(r#""Pod""#, r#""PartialObjectMetadata""#)
            .replace(r#""v1""#, r#""meta.k8s.io/v1""#);
        asked.say(200, list(9, &[partial]));
        let page = page.await.unwrap().unwrap();
        assert_eq!((page.objects.len(), page.skipped), (1, 0));
        let nodes = Resource::new("", "v1", "nodes", "Node", masthead_core::Scope::Cluster);
        let refused = upstream.source(&nodes, &shop, &Selectors::default(), Representation::Full);
        assert!(refused.unwrap_err().to_string().contains("ask for all namespaces"));
    });
}

#[test]
fn r04_a_list_is_read_while_it_arrives() {
    both(async |http| {
        let mut server = Script::start();
        let source = server.pods(http).await;
        // What the transform sees has been read, and the meter shows what has come.
        let (seen, mut reads) = tokio::sync::mpsc::unbounded_channel();
        let source = source.with_transform(move |object| {
            seen.send(format!("{object:?}")).unwrap();
            object
        });
        let page = listing(&source, first_page());
        let sending = server.next().await.open();
        sending.send(r#"{"metadata":{"resourceVersion":"9"},"items":["#);
        for number in 0..5 {
            let comma = if number > 0 { "," } else { "" };
            sending.send(format!("{comma}{}", pod(&format!("p{number}"), number)));
            let read = soon(reads.recv()).await.unwrap();
            assert_eq!(read, format!("shop/p{number}@{number}"), "before the next one is sent");
        }
        sending.send("]}");
        drop(sending);
        assert_eq!(page.await.unwrap().unwrap().objects.len(), 5);
    });
}

/// Sends a body in these pieces, broken off or not, and gives back what the list makes of it.
async fn answered(
    http: masthead_upstream::HttpVersion,
    headers: Headers<'_>,
    pieces: Vec<Vec<u8>>,
    cut: bool,
) -> Result<masthead_reflector::Page, Failure> {
    let mut server = Script::start();
    let settings = Settings { http, gzip: true, ..Settings::default() };
    let source = crate::script::pods(&server.upstream(settings).await);
    let page = listing(&source, first_page());
    let asked = server.next().await;
    assert_eq!(asked.headers["accept-encoding"], "gzip");
    let sending = asked.answer(200, headers);
    for piece in pieces {
        sending.send(piece);
    }
    if cut {
        sending.cut();
    } else {
        drop(sending);
    }
    soon(page).await.unwrap()
}

type Headers<'a> = &'a [(&'a str, &'a str)];

const GZIP: [(&str, &str); 2] =
    [("content-type", "application/json"), ("content-encoding", "gzip")];
const JSON: [(&str, &str); 1] = [("content-type", "application/json;charset=utf-8")];

#[test]
fn gzip_with_one_member_a_flush_is_one_list() {
    both(async |http| {
        let text = list(9, &[pod("a", 3), pod("b", 4)]);
        let members = text.as_bytes().chunks(50).map(|it| member(str::from_utf8(it).unwrap()));
        let page = answered(http, &GZIP, members.collect(), false).await.unwrap();
        assert_eq!((page.objects.len(), page.resource_version.as_str()), (2, "9"));
    });
}

#[test]
fn a_bomb_is_given_up_when_an_item_is_too_long() {
    run(async {
        let text = format!(r#"{{"items":[{{"a":"{}"#, "x".repeat(80 * 1024 * 1024));
        let pieces = vec![member(&text)];
        let failed = answered(masthead_upstream::HttpVersion::Http1, &GZIP, pieces, false).await;
        let failure = failed.unwrap_err();
        assert_eq!(
            failure.to_string(),
            "answer cannot be read: an item is longer than 67108864 bytes"
        );
    });
}

#[test]
fn what_cannot_be_read_is_a_failure_of_its_class() {
    both(async |http| {
        let whole = list(9, &[pod("a", 3)]);
        let half = whole.as_bytes()[..whole.len() / 2].to_vec();
        let packed = member(&whole);
        let html: Headers = &[("content-type", "text/html")];
        let brotli: Headers = &[("content-encoding", "br")];
        let cases: [(&str, Headers, Vec<u8>); 7] = [
            ("cut off", &JSON, half.clone()),
            ("gzip", &GZIP, packed[..packed.len() - 4].to_vec()),
            ("gzip", &GZIP, whole.clone().into_bytes()),
            ("not JSON", html, b"<html>".to_vec()),
            ("packed as", brotli, b"x".to_vec()),
            ("UTF-8", &JSON, b"{\"items\":[{\"a\":\"\xff\"}]}".to_vec()),
            ("no member", &JSON, br#"{"kind":"Status"}"#.to_vec()),
        ];
        for (why, headers, body) in cases {
            let failure = answered(http, headers, vec![body], false).await.unwrap_err();
            assert_eq!(failure.class(), Class::Decode, "{why}: {failure}");
            assert!(failure.to_string().contains(why), "{why}: {failure}");
        }
        let failure = answered(http, &JSON, vec![half], true).await.unwrap_err();
        assert_eq!(failure.class(), Class::Broken, "{failure}");
    });
}

#[test]
fn r13_an_object_that_is_nested_too_deeply_is_skipped_and_the_list_goes_on() {
    both(async |http| {
        let deep = format!(r#"{{"a":{}{}}}"#, "[".repeat(99), "]".repeat(99));
        let body = list(9, &[pod("a", 3), deep, pod("b", 4)]).into_bytes();
        let page = answered(http, &JSON, vec![body], false).await.unwrap();
        assert_eq!((page.objects.len(), page.skipped), (2, 1));
    });
}

#[test]
fn r07_what_a_server_says_no_with_is_classified() {
    both(async |http| {
        let mut server = Script::start();
        let source = server.pods(http).await;
        let expired = r#"{"kind":"Status","apiVersion":"v1","metadata":{"continue":"fresh"},
            "status":"Failure","reason":"Expired","message":"too old","code":410}"#;
        for (code, headers, body, class) in [
            (410, &[][..], expired, Class::Expired),
            (429, &[("retry-after", "7")], "", Class::Overloaded),
            (503, &[("retry-after", "7")], "", Class::Overloaded),
            (500, &[], "oops", Class::Server),
            (401, &[], "", Class::Unauthorized),
            (403, &[], "", Class::Forbidden),
            (404, &[], "", Class::NotFound),
            (406, &[], "", Class::Rejected),
            (302, &[("location", "https://login.example")], "", Class::Server),
        ] {
            let page = listing(&source, first_page());
            let sending = server.next().await.answer(code, headers);
            sending.send(body);
            drop(sending);
            let failure = page.await.unwrap().unwrap_err();
            assert_eq!(failure.class(), class, "{code}");
            if code == 410 {
                assert_eq!(failure.fresh_token(), Some("fresh"));
            }
            if class == Class::Overloaded {
                let at_least = Some(std::time::Duration::from_secs(7));
                assert_eq!(failure.recovery(), Recovery::Backoff { at_least });
            }
        }
    });
}

#[test]
fn every_byte_is_metered_when_it_arrives() {
    both(async |http| {
        let mut server = Script::start();
        let source = server.pods(http).await;
        let (writer, _cache) = masthead_cache::Cache::new(masthead_cache::Config::default());
        let settings = masthead_reflector::Settings {
            strategy: masthead_reflector::Strategy::Pages,
            ..masthead_reflector::Settings::default()
        };
        let memory = masthead_reflector::ServerMemory::new();
        let driver = masthead_reflector::Driver::new(source, writer, settings, memory, 1);
        let mut report = driver.report();
        let driving = tokio::spawn(driver.run());
        let sending = server.next().await.open();
        let mut sent = 0;
        for piece in [r#"{"items":["#, r#"{"a":"#, "1}"] {
            sending.send(piece);
            sent += piece.len() as u64;
            soon(report.wait_for(|it| it.bytes == sent)).await.unwrap();
        }
        driving.abort();
        sending.abandoned().await;
    });
}

#[test]
fn a_dropped_list_lets_go_of_its_request() {
    both(async |http| {
        let mut server = Script::start();
        let source = server.pods(http).await;
        let mut page = source.list(first_page(), Meter::default());
        let asked = {
            let polling = poll_fn(|cx| {
                assert!(page.as_mut().poll(cx).is_pending());
                Poll::<()>::Pending
            });
            tokio::select! { asked = server.next() => asked, () = polling => unreachable!() }
        };
        let sending = asked.open();
        drop(page);
        sending.abandoned().await;
    });
}
