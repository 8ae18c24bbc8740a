//! Frames and lists through the public surface: what one side writes the other side reads.

use masthead_core::{
    EventType, Frame, ListBody, ListMeta, ListPage, Object, Projection, Resource, Revision,
    WatchLine,
};
use proptest::prelude::*;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn what_is_written_is_read_back(
        names in prop::collection::vec("[a-z]{1,8}", 0..6),
        own in prop::option::of(1_u64..2000),
        at in 1_u64..2000,
        partial in any::<bool>(),
        odd in "\\PC{0,12}|[\"\\\\\u{0}-\u{20}]{0,4}",
    ) {
        let pods = Resource::pods();
        let projection = if partial { Projection::Metadata } else { Projection::Whole };
        let make = |name: &String| {
            let mut body = serde_json::json!({
                "kind": "Pod", "apiVersion": "v1",
                "metadata": {"name": name, "namespace": "n", "labels": {"odd": odd}},
                "spec": {"nodeName": odd},
            });
            if let Some(own) = own {
                body["metadata"]["resourceVersion"] = own.to_string().into();
            }
            Object::parse(&pods, body.to_string().into()).unwrap()
        };
        let objects: Vec<Object> = names.iter().map(make).collect();
        for object in &objects {
            let frame = Frame::event(EventType::Modified, object, Revision(at), projection);
            let line = frame.to_bytes();
            let split = WatchLine::split(&line).unwrap();
            let shown: serde_json::Value = serde_json::from_slice(&line[split.object]).unwrap();
            let stored = object.with_revision(Revision(at));
            let whole: serde_json::Value = serde_json::from_slice(stored.body()).unwrap();
            prop_assert_eq!(&shown["metadata"], &whole["metadata"]);
            prop_assert_eq!(shown.get("spec").is_some(), !partial);
        }
        let meta = ListMeta { revision: Revision(at), ..ListMeta::default() };
        let list = ListBody::new(&pods, &meta, objects.clone(), projection);
        let bytes = list.bytes();
        let text = list.collect::<Vec<_>>().concat();
        prop_assert_eq!(text.len(), bytes);
        let page = ListPage::split(&text).unwrap();
        prop_assert_eq!(page.items.len(), objects.len());
        if !partial {
            for (range, object) in page.items.into_iter().zip(&objects) {
                prop_assert_eq!(&text[range], &object.body()[..]);
            }
        }
    }

    /// Any byte changed gives a page or an error, never a panic.
    #[test]
    fn damage_never_panics(at in 0_usize..200, byte in any::<u8>()) {
        let page = br#"{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"9","continue":"a","remainingItemCount":3},"items":[{"a":{"b":[1,"\u0041"]}},{}]}"#;
        let mut page = page.to_vec();
        let at = at % page.len();
        page[at] = byte;
        if let Ok(found) = ListPage::split(&page) {
            for range in found.items {
                prop_assert_eq!(page[range.start], b'{');
            }
        }
        let mut line = br#"{"type":"ADDED","object":{"metadata":{"name":"a"}}}"#.to_vec();
        let at = at % line.len();
        line[at] = byte;
        if let Ok(found) = WatchLine::split(&line) {
            prop_assert_eq!(line[found.object.start], b'{');
        }
    }
}
