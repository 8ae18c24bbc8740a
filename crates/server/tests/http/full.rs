//! A store that takes no writes for a time.

use std::sync::Arc;

use masthead_server::Limits;
use serde_json::json;

use crate::held::HeldStore;
use crate::world::{MAPS, World, names, run, version};

const WHY: &str = "writing the log in /data/store failed: no room; free space on its disk";

#[test]
fn while_the_store_is_full_writes_are_refused_with_the_reason_and_readiness_fails() {
    run(async {
        let store = Arc::new(HeldStore::default());
        let (world, server) = World::on(store.clone(), Limits::default()).await;
        world.namespace("shop").await;
        let kept = version(&world.set("kept", "1").await);
        let mut watch = world.watch(&format!("{MAPS}?watch=true&resourceVersion={kept}")).await;
        let writable = async |value: &str| {
            let line = format!("masthead_store_writable {value}\n");
            let metrics = world.get("/metrics").await.text();
            assert!(metrics.contains(&line), "{metrics}");
        };
        assert_eq!(world.get("/readyz").await.code, 200);
        writable("1").await;

        store.set_full(Some(WHY));
        let body = json!({"metadata": {"name": "refused"}});
        let path = format!("{MAPS}/kept");
        let change = json!({"data": {"value": "2"}});
        for answer in [
            world.post(MAPS, &body).await,
            world.put(&path, &json!({"metadata": {"name": "kept"}})).await,
            world.patch(&path, "merge-patch", &change).await,
            world.delete(&path).await,
            world.delete(MAPS).await,
        ] {
            let status = answer.fails(503, "ServiceUnavailable");
            let message = status["message"].as_str().unwrap();
            assert!(message.contains(WHY) && message.contains("out of space"), "{message}");
        }
        let ready = world.get("/readyz").await;
        assert_eq!(ready.code, 503);
        assert!(ready.text().contains("[-]writable failed: "), "{}", ready.text());
        assert!(!ready.text().contains("/data/store"), "anybody may ask this: {}", ready.text());
        assert_eq!(world.get("/livez").await.code, 200, "a restart would not help");
        let statistics = world.get("/statz").await.ok();
        assert_eq!(statistics["store"], json!({"writable": false, "why": WHY}));
        writable("0").await;
        assert_eq!(names(&world.get(MAPS).await.ok()), ["kept"], "reads go on");

        store.set_full(None);
        assert_eq!(world.get("/readyz").await.code, 200);
        writable("1").await;
        let made = version(&world.set("made", "1").await);
        assert_eq!(watch.short().await, format!("ADDED made@{made}"), "watches went on");
        server.shutdown().await;
    });
}
