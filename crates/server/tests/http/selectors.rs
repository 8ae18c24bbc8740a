//! W26–W28: selectors.

use serde_json::json;

use crate::rules;
use crate::world::{MAPS, PODS, names, pod};

rules! {
    async fn w26_label_selectors_have_their_whole_grammar(world) {
        for (name, labels) in [
            ("a", json!({"app": "web", "n": "5"})),
            ("b", json!({"app": "db", "n": "10"})),
            ("c", json!({"tier": "front"})),
        ] {
            world.post(MAPS, &json!({"metadata": {"name": name, "labels": labels}})).await.ok();
        }
        let table: [(&str, &[&str]); 13] = [
            ("app", &["a", "b"]),
            ("!app", &["c"]),
            ("app%3Dweb", &["a"]),
            ("app%3D%3Dweb", &["a"]),
            ("app!%3Dweb", &["b", "c"]),
            ("app%20in%20(web,db)", &["a", "b"]),
            ("app%20notin%20(web)", &["b", "c"]),
            ("n%3E5", &["b"]),
            ("n%3C10", &["a"]),
            ("app,n%3E5", &["b"]),
            ("app%3Dweb,tier", &[]),
            ("", &["a", "b", "c"]),
            ("app%3D", &[]),
        ];
        for (selector, expected) in table {
            let list = world.get(&format!("{MAPS}?labelSelector={selector}")).await.ok();
            assert_eq!(names(&list), expected, "{selector}");
        }
    }

    async fn w27_field_selectors_name_the_fields_of_their_kind(world) {
        let mut on_a = pod("p", &json!({}));
        on_a["spec"]["nodeName"] = "node-a".into();
        on_a["spec"]["restartPolicy"] = "Never".into();
        world.post(PODS, &on_a).await.ok();
        world.post(PODS, &pod("q", &json!({}))).await.ok();
        let table: [(&str, &[&str]); 9] = [
            ("metadata.name%3Dp", &["p"]),
            ("metadata.name!%3Dp", &["q"]),
            ("metadata.namespace%3Dshop", &["p", "q"]),
            ("spec.nodeName%3Dnode-a", &["p"]),
            ("spec.nodeName%3D", &["q"]),
            ("spec.restartPolicy%3D%3DAlways", &["q"]),
            ("status.phase%3DPending,spec.nodeName!%3Dnode-a", &["q"]),
            ("spec.hostNetwork%3Dfalse", &["p", "q"]),
            ("spec.schedulerName%3Ddefault-scheduler", &["p", "q"]),
        ];
        for (selector, expected) in table {
            let list = world.get(&format!("{PODS}?fieldSelector={selector}")).await.ok();
            assert_eq!(names(&list), expected, "{selector}");
        }
        let unknown = world.get(&format!("{PODS}?fieldSelector=spec.colour%3Dred")).await;
        let status = unknown.fails(400, "BadRequest");
        assert!(status["message"].as_str().unwrap().contains("field label not supported: spec.colour"));
        let secret = json!({"metadata": {"name": "s"}, "type": "Opaque"});
        world.post("/api/v1/namespaces/shop/secrets", &secret).await.ok();
        let path = "/api/v1/secrets?fieldSelector=type%3DOpaque";
        assert_eq!(names(&world.get(path).await.ok()), ["s"]);
        let active = "/api/v1/namespaces?fieldSelector=status.phase%3DActive";
        assert!(names(&world.get(active).await.ok()).contains(&"shop"));
    }

    async fn w28_shards_divide_the_objects_without_loss_or_overlap(world) {
        for number in 0..16 {
            world.set(&format!("m{number:02}"), "1").await;
        }
        let half = |from: &str, to: &str| {
            format!("{MAPS}?shardSelector=shardRange(object.metadata.uid,%27{from}%27,%27{to}%27)")
        };
        let middle = "0x8000000000000000";
        let low = world.get(&half("0x0", middle)).await.ok();
        let high = world.get(&half(middle, "0x10000000000000000")).await.ok();
        let mut all: Vec<_> = names(&low).into_iter().chain(names(&high)).collect();
        all.sort_unstable();
        let whole = world.get(MAPS).await.ok();
        assert_eq!(all, names(&whole));
        assert!(!names(&low).is_empty() && !names(&high).is_empty(), "16 uids fall on both sides");
    }
}
