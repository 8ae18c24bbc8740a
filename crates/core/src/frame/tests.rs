//! Frames and list envelopes: slices that share the body, and the way back.

use std::sync::Arc;

use serde_json::{Value, json};

use super::*;
use crate::Scope;
use crate::limits::JSON_DEPTH_MAX;

fn pod(name: &str, rv: Option<u64>) -> Object {
    let rv = rv.map_or(String::new(), |rv| format!("\"resourceVersion\":\"{rv}\","));
    let body = format!(
        r#"{{"kind":"Pod","apiVersion":"v1","metadata":{{"name":"{name}",{rv}"namespace":"shop","labels":{{"a":"b"}}}},"spec":{{"nodeName":"n"}}}}"#
    );
    Object::parse(&Resource::pods(), body.into()).unwrap()
}

fn read(frame: &Frame) -> Value {
    let line = frame.to_bytes();
    assert_eq!(line.len(), frame.len());
    assert_eq!(memchr::memchr_iter(b'\n', &line).count(), 1, "one line");
    assert_eq!(frame.clone().into_iter().collect::<Vec<_>>().concat(), line);
    serde_json::from_slice(&line).unwrap()
}

fn shares_the_body(pieces: &[Bytes], object: &Object) -> bool {
    let body = object.body().as_ptr_range();
    pieces.iter().any(|piece| body.contains(&piece.as_ptr()) && piece.len() > 30)
}

#[test]
fn w18_an_event_carries_its_own_revision() {
    for rv in [Some(7), Some(123_456), None] {
        let object = pod("web", rv);
        for revision in [7, 8, u64::MAX] {
            let revision = Revision(revision);
            let frame = Frame::event(EventType::Deleted, &object, revision, Projection::Whole);
            let mut expected: Value = serde_json::from_slice(object.body()).unwrap();
            expected["metadata"]["resourceVersion"] = json!(revision.to_string());
            assert_eq!(read(&frame), json!({"type": "DELETED", "object": expected}));
            assert!(shares_the_body(frame.pieces(), &object), "the body is not copied");

            let partial = Frame::event(EventType::Added, &object, revision, Projection::Metadata);
            let expected = json!({
                "kind": "PartialObjectMetadata",
                "apiVersion": "meta.k8s.io/v1",
                "metadata": expected["metadata"],
            });
            assert_eq!(read(&partial), json!({"type": "ADDED", "object": expected}));
            assert!(shares_the_body(partial.pieces(), &object), "the metadata is not copied");
        }
    }
}

#[test]
fn an_event_at_the_objects_revision_is_three_pieces() {
    for projection in [Projection::Whole, Projection::Metadata] {
        let frame = Frame::event(EventType::Added, &pod("a", Some(5)), Revision(5), projection);
        assert_eq!(frame.pieces().len(), 3);
    }
}

#[test]
fn all_types_are_written_as_they_are_read() {
    use EventType::{Added, Bookmark, Deleted, Error, Modified};
    for event in [Added, Modified, Deleted, Bookmark, Error] {
        for projection in [Projection::Whole, Projection::Metadata] {
            let frame = Frame::event(event, &pod("a", Some(5)), Revision(6), projection);
            assert_eq!(read(&frame)["type"], event.as_str());
            let line = frame.to_bytes();
            assert_eq!(WatchLine::split(&line).unwrap().event, event);
        }
    }
}

#[test]
fn w20_a_bookmark_is_an_empty_object_of_the_kind() {
    let frame = Frame::bookmark(&Resource::pods(), Revision(9), false, Projection::Whole);
    let object = json!({"kind": "Pod", "apiVersion": "v1", "metadata": {"resourceVersion": "9"}});
    assert_eq!(read(&frame), json!({"type": "BOOKMARK", "object": object}));
}

#[test]
fn w21_the_initial_events_end_is_an_annotation() {
    for (end, projection) in [(true, Projection::Whole), (false, Projection::Metadata)] {
        let frame = Frame::bookmark(&Resource::pods(), Revision(9), end, projection);
        let annotation = &read(&frame)["object"]["metadata"]["annotations"][INITIAL_EVENTS_END];
        assert_eq!(annotation, &if end { json!("true") } else { Value::Null });
        let line = frame.to_bytes();
        let split = WatchLine::split(&line).unwrap();
        let read = Bookmark::parse(&line[split.object]).unwrap();
        assert_eq!(read, Bookmark { resource_version: "9".into(), initial_events_end: end });
    }
}

#[test]
fn w14_an_error_event_holds_the_status() {
    let status = Status::too_old_resource_version(Revision(1), Revision(5));
    let frame = Frame::error(&status);
    assert_eq!(read(&frame)["object"]["code"], 410);
    let line = frame.to_bytes();
    let split = WatchLine::split(&line).unwrap();
    assert_eq!(Status::parse(&line[split.object]), Some(status));
}

#[test]
fn a_list_reads_back_as_what_went_in() {
    let names = ["a", "b", "c"];
    for count in 0..=names.len() {
        for projection in [Projection::Whole, Projection::Metadata] {
            let objects: Vec<_> = names[..count].iter().map(|name| pod(name, Some(3))).collect();
            let meta = ListMeta {
                revision: Revision(40),
                continue_token: if count == 2 { "abc".into() } else { String::new() },
                remaining: (count == 2).then_some(5),
            };
            let list = ListBody::new(&Resource::pods(), &meta, objects.clone(), projection);
            let (bytes, chunks) = (list.bytes(), list.len());
            let pieces: Vec<_> = list.collect();
            assert_eq!((pieces.len(), pieces.concat().len()), (chunks, bytes));
            let copied = !objects.iter().all(|object| shares_the_body(&pieces, object));
            assert!(!copied, "bodies are not copied");

            let text = pieces.concat();
            let value: Value = serde_json::from_slice(&text).unwrap();
            let kind = match projection {
                Projection::Whole => "PodList",
                Projection::Metadata => "PartialObjectMetadataList",
            };
            assert_eq!(
                (&value["kind"], &value["metadata"]["resourceVersion"]),
                (&json!(kind), &json!("40"))
            );
            let page = ListPage::split(&text).unwrap();
            assert_eq!((page.kind.as_str(), page.resource_version.as_str()), (kind, "40"));
            assert_eq!(
                (page.continue_token, page.remaining),
                (meta.continue_token, meta.remaining)
            );
            for (at, object) in objects.iter().enumerate() {
                let item: Value = serde_json::from_slice(&text[page.items[at].clone()]).unwrap();
                let whole: Value = serde_json::from_slice(object.body()).unwrap();
                assert_eq!(item["metadata"], whole["metadata"]);
                assert_eq!(item == whole, projection == Projection::Whole);
            }
            assert_eq!(page.items.len(), count);
        }
    }
}

#[test]
fn sizes_are_known_at_every_step() {
    for count in 0..4 {
        let objects = vec![pod("a", Some(3)); count];
        let mut list =
            ListBody::new(&Resource::pods(), &ListMeta::default(), objects, Projection::Whole);
        let mut left = list.len();
        while list.next().is_some() {
            left -= 1;
            assert_eq!(list.len(), left);
        }
        assert_eq!(left, 0);
    }
}

#[test]
fn pages_may_have_white_space_any_order_and_nulls() {
    let text = br#" { "items" : [ { "a" : 1 } , {} ] , "extra":[1,{}],
        "metadata" : {"continue":"\u0061b","remainingItemCount":3,"resourceVersion":"9","selfLink":null},
        "apiVersion":"v1", "kind":"PodList" }
        "#;
    let page = ListPage::split(text).unwrap();
    assert_eq!((page.kind.as_str(), page.resource_version.as_str()), ("PodList", "9"));
    assert_eq!((page.continue_token.as_str(), page.remaining), ("ab", Some(3)));
    assert_eq!(&text[page.items[0].clone()], br#"{ "a" : 1 }"#);
    let empty = ListPage::split(br#"{"items":null,"metadata":null,"kind":null}"#).unwrap();
    assert_eq!(empty, ListPage::default());
    let line = WatchLine::split(b"\t{\"object\":{} , \"x\":0,\"type\" : \"ERROR\"}\r\n").unwrap();
    assert_eq!(line, WatchLine { event: EventType::Error, object: 11..13 });
}

#[test]
fn what_is_no_page_or_line_is_refused_with_the_reason() {
    let json = |what, at| SplitError::Json { what, at };
    for (text, error) in [
        (&b""[..], json("expected an object", 0)),
        (b"{}", SplitError::Missing { member: "items" }),
        (b"{\"items\":{}}", json("expected an array", 9)),
        (b"{\"items\":[1]}", json("expected an object", 10)),
        (b"{\"items\":[]} x", json("text after the value", 13)),
        (b"{\"items\":[],\"kind\":1}", json("expected a string", 19)),
        (b"{\"items\":[{}", json("expected ',' or ']'", 12)),
        (b"{\"items\":\"\xff\"}", SplitError::Utf8 { at: 10 }),
    ] {
        assert_eq!(ListPage::split(text), Err(error), "{}", String::from_utf8_lossy(text));
    }
    for (text, error) in [
        ("{}", SplitError::Missing { member: "type" }),
        (r#"{"type":"ADDED"}"#, SplitError::Missing { member: "object" }),
        (r#"{"type":"added","object":{}}"#, SplitError::EventType { found: "added".into() }),
        (r#"{"type":"ADDED","object":[]}"#, json("expected an object", 25)),
        (r#"{"type":"ADDED","object":{"#, json("expected a key", 26)),
    ] {
        assert_eq!(WatchLine::split(text.as_bytes()), Err(error), "{text}");
    }
    let missing = SplitError::Missing { member: "metadata.resourceVersion" };
    assert_eq!(Bookmark::parse(br#"{"metadata":null}"#), Err(missing));
}

#[test]
fn the_deepest_object_also_fits_into_lists_and_lines() {
    let deep = |n: usize| {
        let (open, close) = ("[".repeat(n), "]".repeat(n));
        format!(r#"{{"metadata":{{"name":"a","namespace":"b"}},"x":{open}{close}}}"#)
    };
    let deepest = deep(JSON_DEPTH_MAX - 1);
    assert!(Object::parse(&Resource::pods(), deepest.clone().into()).is_ok());
    let page = |item: &str| format!("{{\"items\":[{item}]}}");
    let line = |item: &str| format!("{{\"type\":\"ADDED\",\"object\":{item}}}");
    assert!(ListPage::split(page(&deepest).as_bytes()).is_ok());
    assert!(WatchLine::split(line(&deepest).as_bytes()).is_ok());
    let deeper = deep(JSON_DEPTH_MAX);
    assert!(ListPage::split(page(&deeper).as_bytes()).is_err());
    assert!(WatchLine::split(line(&deeper).as_bytes()).is_err());
}

#[test]
fn every_cut_of_a_page_or_line_is_an_error() {
    let objects = vec![pod("a", Some(3)); 2];
    let meta = ListMeta::default();
    let list = ListBody::new(&Resource::pods(), &meta, objects, Projection::Metadata);
    let page = list.collect::<Vec<_>>().concat();
    for cut in 0..page.len() {
        assert!(ListPage::split(&page[..cut]).is_err(), "cut at {cut}");
    }
    let frame = Frame::event(EventType::Added, &pod("a", None), Revision(1), Projection::Whole);
    let line = frame.to_bytes();
    for cut in 0..line.len() - 1 {
        assert!(WatchLine::split(&line[..cut]).is_err(), "cut at {cut}");
    }
}

#[test]
fn odd_kinds_are_escaped() {
    let odd = Resource::new("x\"y", "v1", "things", "Th\\ing", Scope::Cluster);
    let frame = Frame::bookmark(&odd, Revision(1), true, Projection::Whole);
    assert_eq!(read(&frame)["object"]["apiVersion"], "x\"y/v1");
    let list = ListBody::new(&odd, &ListMeta::default(), Vec::new(), Projection::Whole);
    let value: Value = serde_json::from_slice(&list.collect::<Vec<_>>().concat()).unwrap();
    assert_eq!(value["kind"], "Th\\ingList");
}

/// Gives back what was held as its own body.
fn open(object: &Object) -> Option<Object> {
    match object.content::<Bytes>() {
        Some(body) => object.with_body(Bytes::clone(&body)),
        None => (!object.is_held()).then(|| object.clone()),
    }
}

#[test]
fn a_list_of_held_objects_is_the_list_of_those_that_they_were() {
    let plain: Vec<_> = [("a", Some(3)), ("b", None), ("c", Some(12))]
        .map(|(name, version)| pod(name, version))
        .into();
    let mut held = plain.clone();
    for object in &mut held[..2] {
        *object = object.held_as(Arc::new(object.body().clone()), 1, 1);
    }
    let (resource, meta) = (Resource::pods(), ListMeta::default());
    for projection in [Projection::Whole, Projection::Metadata] {
        for count in 0..=3 {
            let list = ListBody::new(&resource, &meta, plain[..count].to_vec(), projection);
            let opening =
                || ListBody::opening(&resource, &meta, held[..count].to_vec(), projection, open);
            assert_eq!((opening().bytes(), opening().len()), (list.bytes(), list.len()));
            let slices: Vec<_> = list.collect();
            assert_eq!(opening().collect::<Vec<_>>(), slices);
            for skipped in 0..=count {
                let mut list = opening();
                list.next();
                list.skip_items(skipped);
                assert!(list.eq(slices[1 + 2 * skipped..].iter().cloned()), "{skipped} of {count}");
            }
        }
    }
}

#[test]
fn a_list_ends_where_an_object_cannot_be_opened() {
    let broken = pod("b", Some(1)).held_as(Arc::new(()), 1, 1);
    let objects = vec![pod("a", Some(1)), broken, pod("c", Some(1))];
    let (resource, meta) = (Resource::pods(), ListMeta::default());
    let mut list = ListBody::opening(&resource, &meta, objects, Projection::Whole, open);
    assert_eq!(list.by_ref().take(3).count(), 3);
    assert!(!list.is_broken());
    assert_eq!((list.next(), list.next()), (None, None));
    assert!(list.is_broken());
}

#[test]
fn a_body_that_is_another_is_not_taken() {
    let plain = pod("a", Some(1));
    let held = plain.held_as(Arc::new(()), 1, 1);
    assert!(held.with_body(plain.body().clone()).is_some());
    assert!(held.with_body(plain.body().slice(1..)).is_none());
    assert!(held.with_body(vec![0xff; plain.body().len()].into()).is_none());
    assert!(plain.with_body(plain.body().clone()).is_none(), "is not held");
}
