//! W23–W25: encodings.

use std::io::Read;

use http::Method;
use serde_json::{Value, json};

use crate::rules;
use crate::world::{MAPS, names};

const METADATA: &str = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1";
const METADATA_LIST: &str = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1";

rules! {
    async fn w23_accept_clauses_are_tried_in_order_and_nothing_fitting_is_406(world) {
        world.set("a", "1").await;
        let ask = async |accept: &str| {
            world.ask(Method::GET, &format!("{MAPS}/a"), &[("accept", accept)], "").await
        };
        for accept in ["application/json", "*/*", "application/vnd.kubernetes.protobuf,application/json"] {
            let answer = ask(accept).await;
            assert_eq!((answer.code, answer.header("content-type")), (200, "application/json"));
        }
        let refused = ask("text/html").await.fails(406, "NotAcceptable");
        assert!(refused["message"].as_str().unwrap().contains("application/json"));
        let yaml = ask("application/yaml").await;
        assert_eq!(yaml.header("content-type"), "application/yaml");
        assert!(yaml.text().contains("value: \"1\"") || yaml.text().contains("value: '1'"), "{}", yaml.text());
        let headers = [("accept", "application/yaml")];
        let path = format!("{MAPS}?watch=true");
        world.ask(Method::GET, &path, &headers, "").await.fails(406, "NotAcceptable");
    }

    async fn w23_a_body_of_an_unknown_type_is_415(world) {
        let headers = [("content-type", "text/plain")];
        let answer = world.ask(Method::POST, MAPS, &headers, "hello").await;
        answer.fails(415, "UnsupportedMediaType");
    }

    async fn w23_bodies_may_be_yaml_and_lists_too(world) {
        let headers = [("content-type", "application/yaml")];
        let body = "metadata:\n  name: yam\ndata:\n  k: v\n";
        let made = world.ask(Method::POST, MAPS, &headers, body).await.ok();
        assert_eq!(made["data"]["k"], "v");
        let list = world.ask(Method::GET, MAPS, &[("accept", "application/yaml")], "").await;
        assert!(list.text().contains("kind: ConfigMapList"), "{}", list.text());
    }

    async fn metadata_alone_is_shown_where_it_is_asked_for(world) {
        world.set("a", "1").await;
        let one = world.ask(Method::GET, &format!("{MAPS}/a"), &[("accept", METADATA)], "").await.ok();
        assert_eq!((&one["kind"], &one["apiVersion"]), (&json!("PartialObjectMetadata"), &json!("meta.k8s.io/v1")));
        assert_eq!((&one["metadata"]["name"], one.get("data")), (&json!("a"), None));
        let list = world.ask(Method::GET, MAPS, &[("accept", METADATA_LIST)], "").await.ok();
        assert_eq!(list["kind"], "PartialObjectMetadataList");
        assert_eq!((names(&list), list["items"][0].get("data")), (vec!["a"], None));
        let mut watch = world.watch_as(&format!("{MAPS}?watch=true"), &[("accept", METADATA)]).await;
        let event = watch.next().await.unwrap();
        assert_eq!(event["object"]["kind"], "PartialObjectMetadata");
        assert_eq!(event["object"].get("data"), None);
    }

    async fn w24_large_bodies_are_compressed_where_the_client_asks(world) {
        for number in 0..20 {
            world.set(&format!("m{number:02}"), &"x".repeat(10_000)).await;
        }
        let plain = world.get(MAPS).await;
        assert_eq!(plain.header("content-encoding"), "");
        let zipped = world.ask(Method::GET, MAPS, &[("accept-encoding", "gzip")], "").await;
        assert_eq!(zipped.header("content-encoding"), "gzip");
        assert!(zipped.header("vary").contains("Accept-Encoding"));
        let mut text = Vec::new();
        flate2::read::GzDecoder::new(&*zipped.body).read_to_end(&mut text).unwrap();
        let list: Value = serde_json::from_slice(&text).unwrap();
        assert_eq!(list, plain.json());
        for (name, value) in [("m07", "y"), ("m20", "z")] {
            world.set(name, value).await;
            let zipped = world.ask(Method::GET, MAPS, &[("accept-encoding", "gzip")], "").await;
            let mut text = Vec::new();
            flate2::read::GzDecoder::new(&*zipped.body).read_to_end(&mut text).unwrap();
            let list: Value = serde_json::from_slice(&text).unwrap();
            assert_eq!(list, world.get(MAPS).await.json(), "what is kept is not what has changed");
        }
        let small = format!("{MAPS}/m00");
        let small = world.ask(Method::GET, &small, &[("accept-encoding", "gzip")], "").await;
        assert_eq!(small.header("content-encoding"), "", "not worth it");
    }

    async fn w25_both_versions_of_http_are_served_on_one_port(world) {
        let answer = world.get("/version").await;
        assert_eq!(answer.ok()["major"], "1");
    }

    async fn w25_large_lists_arrive_whole_side_by_side(world) {
        // From less than is held as a slice to more than fits into some frames.
        let sizes = [1, 500, 1_500, 16_000, 17_000, 120_000];
        let value = |number: usize| number.to_string().repeat(sizes[number % sizes.len()]);
        for number in 0..42 {
            world.set(&format!("m{number:02}"), &value(number)).await;
        }
        let lists = futures_util::future::join_all((0..3).map(|_| world.get(MAPS))).await;
        for list in lists {
            let list = list.ok();
            let values: Vec<_> = list["items"].as_array().unwrap().iter().map(|it| &it["data"]["value"]).collect();
            assert_eq!(values.len(), 42);
            assert!(values.iter().enumerate().all(|(number, it)| **it == value(number)));
        }
    }
}
