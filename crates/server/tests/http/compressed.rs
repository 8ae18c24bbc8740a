//! Caches that hold bodies compressed show what others show, byte for byte.

use std::io::Read as _;

use http::Method;
use masthead_server::limits::COMPRESSED_BYTES_MIN;
use masthead_server::{Config, Limits};
use serde_json::{Value, json};

use crate::world::{MAPS, Place, World, config, names, run, version};

const METADATA: &str = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1";
/// More than the first dictionary is made of.
const COUNT: usize = 40;

/// A config map whose body is held compressed, but for the first, which is too small.
fn map(number: usize) -> Value {
    let text = format!("ünder \"way\" {number} ").repeat(number * 16);
    json!({"metadata": {"name": format!("map-{number:03}")}, "data": {"text": text}})
}

/// Two servers on one store, the second with compressed bodies; both stop with what is dropped.
async fn pair(http2: bool) -> [(World, masthead_server::Server); 2] {
    let (plain, server) = World::of("plain", config(Limits::default()), Place::Memory, http2).await;
    plain.namespace("shop").await;
    for number in 0..COUNT {
        plain.post(MAPS, &map(number)).await.ok();
    }
    let compress_bodies = Some(COMPRESSED_BYTES_MIN);
    let config = Config { compress_bodies, ..config(Limits::default()) };
    let (held, other) = World::beside(&plain, config).await;
    [(plain, server), (held, other)]
}

async fn everywhere(test: impl AsyncFn(&World, &World)) {
    for http2 in [false, true] {
        let [(plain, one), (held, other)] = pair(http2).await;
        test(&plain, &held).await;
        one.shutdown().await;
        other.shutdown().await;
    }
}

#[test]
fn lists_pages_and_single_objects_are_the_same_in_every_encoding() {
    run(everywhere(async |plain, held| {
        let paths = [
            MAPS.to_owned(),
            format!("{MAPS}?limit=7"),
            format!("{MAPS}/map-000"),
            format!("{MAPS}/map-039"),
            format!("{MAPS}?fieldSelector=metadata.name%3Dmap-020"),
        ];
        for path in &paths {
            for accept in ["application/json", METADATA, "application/yaml"] {
                let headers = [("accept", accept)];
                let ask = async |world: &World| world.ask(Method::GET, path, &headers, "").await;
                let (one, other) = (ask(plain).await, ask(held).await);
                assert_eq!((one.code, &one.body), (200, &other.body), "{path} as {accept}");
                let length = |it: &crate::world::Answer| it.header("content-length").to_owned();
                assert_eq!(length(&one), length(&other), "{path} as {accept}");
            }
        }
    }));
}

#[test]
fn a_gzip_list_is_the_same_the_first_time_and_when_its_pieces_are_known() {
    run(everywhere(async |plain, held| {
        let expected = plain.get(MAPS).await.body;
        for _ in 0..2 {
            let answer = held.ask(Method::GET, MAPS, &[("accept-encoding", "gzip")], "").await;
            assert_eq!(answer.header("content-encoding"), "gzip");
            let mut text = Vec::new();
            flate2::read::GzDecoder::new(&answer.body[..]).read_to_end(&mut text).unwrap();
            assert!(text == expected);
        }
    }));
}

#[test]
fn watches_see_the_same_events_from_the_state_and_from_the_past() {
    run(everywhere(async |plain, held| {
        let from = version(&plain.get(MAPS).await.ok());
        let last = format!("{MAPS}/map-039");
        let labels = json!({"metadata": {"labels": {"a": "b"}}});
        plain.patch(&last, "merge-patch", &labels).await.ok();
        held.patch(&last, "merge-patch", &json!({"data": {"more": "x"}})).await.ok();
        held.delete(&last).await.ok();
        plain.delete(&format!("{MAPS}/map-000")).await.ok();
        let initial =
            "sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true";
        let queries = [(format!("resourceVersion={from}"), 4), (initial.to_owned(), COUNT - 2 + 1)];
        for (query, count) in queries {
            for accept in ["application/json", METADATA] {
                let path = format!("{MAPS}?watch=true&{query}");
                let headers = [("accept", accept)];
                let mut one = plain.watch_as(&path, &headers).await;
                let mut other = held.watch_as(&path, &headers).await;
                for at in 0..count {
                    let event = one.next().await.unwrap();
                    assert_eq!(event, other.next().await.unwrap(), "event {at} of {path}");
                }
            }
        }
    }));
}

#[test]
fn many_watches_are_sent_one_event() {
    run(everywhere(async |plain, held| {
        let from = version(&plain.get(MAPS).await.ok());
        let mut watches = Vec::new();
        for _ in 0..20 {
            watches.push(held.watch(&format!("{MAPS}?watch=true&resourceVersion={from}")).await);
        }
        let changed = json!({"data": {"more": "x"}});
        let changed = held.patch(&format!("{MAPS}/map-030"), "merge-patch", &changed).await.ok();
        for watch in &mut watches {
            assert_eq!(watch.next().await.unwrap()["object"], changed);
        }
    }));
}

#[test]
fn a_collection_is_deleted_and_shown_as_it_was() {
    run(everywhere(async |_, held| {
        let dry = held.delete(&format!("{MAPS}?dryRun=All")).await.ok();
        assert_eq!(dry["items"].as_array().unwrap().len(), COUNT);
        assert_eq!(dry["items"][39]["data"], map(39)["data"]);
        let gone = held.delete(MAPS).await.ok();
        assert_eq!(gone["items"][39]["data"], map(39)["data"]);
        assert_eq!(names(&held.get(MAPS).await.ok()), Vec::<&str>::new());
    }));
}

#[test]
fn a_watch_goes_on_after_a_restart() {
    run(async {
        let [(_plain, one), (mut held, server)] = pair(false).await;
        let from = version(&held.get(&format!("{MAPS}/map-037")).await.ok());
        let before = held.get(MAPS).await;
        let server = held.restart(server).await;
        assert_eq!(held.get(MAPS).await.body, before.body);
        let mut watch = held.watch(&format!("{MAPS}?watch=true&resourceVersion={from}")).await;
        for number in [38, 39] {
            let event = watch.next().await.unwrap();
            assert_eq!(
                (&event["type"], &event["object"]["data"]),
                (&json!("ADDED"), &map(number)["data"])
            );
        }
        one.shutdown().await;
        server.shutdown().await;
    });
}

#[test]
fn the_statistics_tell_what_is_held_and_what_it_would_be_as_json() {
    run(everywhere(async |plain, held| {
        let maps = async |world: &World| {
            let all = world.get("/statz").await.ok();
            let all = all["resources"].as_array().unwrap().clone();
            all.into_iter().find(|it| it["resource"] == "configmaps").unwrap()
        };
        let (plain, held) = (maps(plain).await, maps(held).await);
        assert_eq!(plain["bodyBytes"], plain["wholeBytes"]);
        assert_eq!(plain["wholeBytes"], held["wholeBytes"]);
        assert!(10 * held["bodyBytes"].as_u64().unwrap() < held["wholeBytes"].as_u64().unwrap());
    }));
}
