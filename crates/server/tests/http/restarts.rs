//! What a server makes of what the one before it left.

use masthead_server::Limits;
use serde_json::json;

use crate::definitions::{DEFINITIONS, SAILS, definition, sail};
use crate::world::{MAPS, World, names, run, version};

#[test]
fn custom_resources_are_served_after_a_restart_and_their_watches_go_on() {
    run(async {
        let (mut world, server) = World::limited(Limits::default(), false).await;
        world.post(DEFINITIONS, &definition()).await.ok();
        let first = world.post(SAILS, &sail("main", "red")).await.ok();
        world.post(SAILS, &sail("jib", "white")).await.ok();
        let server = world.restart(server).await;
        assert_eq!(names(&world.get(SAILS).await.ok()), ["jib", "main"]);
        let from = version(&first);
        let mut watch = world.watch(&format!("{SAILS}?watch=true&resourceVersion={from}")).await;
        assert!(watch.short().await.starts_with("ADDED jib@"));
        world.post(SAILS, &sail("spinnaker", "blue")).await.ok();
        assert!(watch.short().await.starts_with("ADDED spinnaker@"));
        server.shutdown().await;
    });
}

#[test]
fn what_was_deleted_long_ago_and_is_there_again_stays() {
    run(async {
        let (mut world, server) = World::limited(Limits::default(), false).await;
        let (namespace, old) = ("/api/v1/namespaces/shop", "/apis/ship.example/v1");
        world.post(DEFINITIONS, &definition()).await.ok();
        let definition_path = format!("{DEFINITIONS}/sails.ship.example");
        for path in [namespace, &definition_path] {
            world.delete(path).await.ok();
            world.until(path, |answer| answer.code == 404).await;
        }
        world.until(old, |answer| answer.code == 404).await;
        world.namespace("shop").await;
        world.post(DEFINITIONS, &definition()).await.ok();
        world.set("kept", "1").await;
        world.post(SAILS, &sail("kept", "red")).await.ok();
        let server = world.restart(server).await;
        // Whatever housekeeping does, it does before it has a namespace made and emptied.
        world.namespace("other").await;
        let maps = "/api/v1/namespaces/other/configmaps";
        world.post(maps, &json!({"metadata": {"name": "a"}})).await.ok();
        world.delete("/api/v1/namespaces/other").await.ok();
        world.until("/api/v1/namespaces/other", |answer| answer.code == 404).await;
        assert_eq!(names(&world.get(MAPS).await.ok()), ["kept"]);
        assert_eq!(names(&world.get(SAILS).await.ok()), ["kept"]);
        server.shutdown().await;
    });
}
