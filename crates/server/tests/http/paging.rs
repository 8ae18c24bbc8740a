//! W10–W12: paging.

use serde_json::{Value, json};

use crate::rules;
use crate::world::{MAPS, World, everywhere_with, names, short_history, version};

async fn fill(world: &World, names: &[&str]) {
    for name in names {
        world.set(name, "1").await;
    }
}

fn token(list: &Value) -> &str {
    list["metadata"]["continue"].as_str().unwrap()
}

rules! {
    async fn w10_a_token_is_base64url_of_version_revision_and_start(world) {
        use base64::Engine;
        fill(world, &["a", "b"]).await;
        for (path, start) in [(MAPS, "a\0"), ("/api/v1/configmaps", "shop/a\0")] {
            let list = world.get(&format!("{path}?limit=1")).await.ok();
            let bytes = base64::engine::general_purpose::URL_SAFE_NO_PAD.decode(token(&list));
            let content: Value = serde_json::from_slice(&bytes.unwrap()).unwrap();
            let expected = json!({"v": "meta.k8s.io/v1", "rv": version(&list), "start": start});
            assert_eq!(content, expected, "{path}");
        }
    }

    async fn w10_a_start_that_climbs_out_of_its_prefix_is_refused(world) {
        use base64::Engine;
        fill(world, &["a"]).await;
        for start in ["../secrets/x", "a/../../b", "other/a", "", "/a"] {
            let content = json!({"v": "meta.k8s.io/v1", "rv": 5, "start": start}).to_string();
            let token = base64::engine::general_purpose::URL_SAFE_NO_PAD.encode(content);
            world.get(&format!("{MAPS}?continue={token}")).await.fails(400, "BadRequest");
        }
    }

    async fn w11_pages_show_one_revision_in_the_order_of_names(world) {
        fill(world, &["d", "b", "a", "c", "e"]).await;
        let first = world.get(&format!("{MAPS}?limit=2")).await.ok();
        assert_eq!((names(&first), &first["metadata"]["remainingItemCount"]), (vec!["a", "b"], &json!(3)));
        world.set("c", "2").await;
        world.delete(&format!("{MAPS}/d")).await.ok();
        world.set("f", "1").await;
        let path = format!("{MAPS}?limit=2&continue={}", token(&first));
        let second = world.get(&path).await.ok();
        assert_eq!((names(&second), version(&second)), (vec!["c", "d"], version(&first)));
        assert_eq!(second["items"][0]["data"]["value"], "1", "as it was at the first page");
        assert_eq!(second["metadata"]["remainingItemCount"], 1);
        let last = world.get(&format!("{MAPS}?limit=2&continue={}", token(&second))).await.ok();
        assert_eq!(names(&last), ["e"]);
        assert!(last["metadata"].get("continue").is_none());
        assert!(last["metadata"].get("remainingItemCount").is_none());
    }

    async fn w11_with_selectors_pages_are_full_and_nothing_is_counted(world) {
        for number in 0..6 {
            let labels = json!({"even": if number % 2 == 0 { "yes" } else { "no" }});
            let body = json!({"metadata": {"name": format!("m{number}"), "labels": labels}});
            world.post(MAPS, &body).await.ok();
        }
        let path = format!("{MAPS}?labelSelector=even%3Dyes&limit=2");
        let first = world.get(&path).await.ok();
        assert_eq!(names(&first), ["m0", "m2"]);
        assert!(first["metadata"].get("remainingItemCount").is_none());
        let last = world.get(&format!("{path}&continue={}", token(&first))).await.ok();
        assert_eq!(names(&last), ["m4"]);
        assert!(last["metadata"].get("continue").is_none());
    }

    async fn w12_a_token_without_a_revision_goes_on_at_a_newer_one_that_then_stays(world) {
        use base64::Engine;
        fill(world, &["a", "b", "c", "d"]).await;
        let content = json!({"v": "meta.k8s.io/v1", "rv": -1, "start": "a\0"}).to_string();
        let fresh = base64::engine::general_purpose::URL_SAFE_NO_PAD.encode(content);
        let first = world.get(&format!("{MAPS}?limit=1&continue={fresh}")).await.ok();
        assert_eq!(names(&first), ["b"]);
        world.set("c", "2").await;
        let second = world.get(&format!("{MAPS}?limit=1&continue={}", token(&first))).await.ok();
        assert_eq!((names(&second), version(&second)), (vec!["c"], version(&first)));
        assert_eq!(second["items"][0]["data"]["value"], "1");
    }
}

#[test]
fn w12_an_expired_token_comes_with_a_fresh_one_that_goes_on() {
    everywhere_with(short_history(), &async |world: &World| {
        fill(world, &["a", "b", "c"]).await;
        let first = world.get(&format!("{MAPS}?limit=1")).await.ok();
        for round in 0..20 {
            world.set("c", &format!("again {round}")).await;
        }
        let path = format!("{MAPS}?limit=1&continue={}", token(&first));
        let status = world.get(&path).await.fails(410, "Expired");
        let fresh = token(&status);
        let second = world.get(&format!("{MAPS}?limit=1&continue={fresh}")).await.ok();
        assert_eq!(names(&second), ["b"]);
        assert!(version(&second) > version(&first));
        let third = world.get(&format!("{MAPS}?limit=1&continue={}", token(&second))).await.ok();
        assert_eq!((names(&third), version(&third)), (vec!["c"], version(&second)));
    });
}
