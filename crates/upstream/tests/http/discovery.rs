//! What a server serves, in both forms of discovery; documents by path.

use masthead_upstream::Settings;

use crate::script::{Script, run, soon};

const AGGREGATED: &str = r#"{"kind":"APIGroupDiscoveryList","apiVersion":"apidiscovery.k8s.io/v2","metadata":{},"items":[
  {"metadata":{"name":"apps","creationTimestamp":null},"versions":[{"version":"v1","resources":[
    {"resource":"deployments","responseKind":{"group":"apps","version":"v1","kind":"Deployment"},
     "scope":"Namespaced","singularResource":"deployment","verbs":["list","watch"],"shortNames":["deploy"],
     "categories":["all"],"subresources":[{"subresource":"scale","verbs":["get"]}]}]},
    {"version":"v1beta1"}]}]}"#;

#[test]
fn w29_aggregated_discovery_is_used_where_it_is_offered() {
    run(async {
        let mut server = Script::start();
        let upstream = server.upstream(Settings::default()).await;
        let finding = tokio::spawn(async move { upstream.find("deploy").await });
        let asked = server.next().await;
        assert_eq!(asked.path, "/api");
        let accept =
            "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json";
        assert_eq!(asked.headers["accept"], accept);
        let kind = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
        let nothing = r#"{"kind":"APIGroupDiscoveryList","items":null}"#;
        asked.answer(200, &[("content-type", kind)]).send(nothing);
        server.next().await.answer(200, &[("content-type", kind)]).send(AGGREGATED);
        let found = soon(finding).await.unwrap().unwrap();
        assert_eq!(format!("{:?}", found.resource), "apps/v1/deployments");
        assert_eq!((found.singular.as_str(), found.preferred), ("deployment", true));
        assert_eq!(
            (found.short_names, found.categories),
            (vec!["deploy".into()], vec!["all".into()])
        );
        assert!(server.is_quiet());
    });
}

#[test]
fn w29_plain_discovery_is_used_otherwise_and_a_group_that_is_down_is_left_out() {
    run(async {
        let mut server = Script::start();
        let upstream = server.upstream(Settings::default()).await;
        let discovering = tokio::spawn(async move { upstream.discover().await });
        for (path, code, body) in [
            ("/api", 200, r#"{"kind":"APIVersions","versions":["v1"]}"#),
            (
                "/apis",
                200,
                r#"{"kind":"APIGroupList","groups":[{"name":"metrics.k8s.io","versions":[{"version":"v1"}]},
                {"name":"apps","versions":[{"version":"v1"}],"preferredVersion":{"version":"v1"}}]}"#,
            ),
            (
                "/api/v1",
                200,
                r#"{"resources":[{"name":"pods","kind":"Pod","namespaced":true,"shortNames":["po"],"verbs":["list"]},
                {"name":"pods/log","kind":"Pod","namespaced":true,"verbs":["get"]}]}"#,
            ),
            ("/apis/metrics.k8s.io/v1", 503, ""),
            (
                "/apis/apps/v1",
                200,
                r#"{"resources":[{"name":"deployments","kind":"Deployment","namespaced":true,"verbs":null}]}"#,
            ),
        ] {
            let asked = server.next().await;
            assert_eq!(asked.path, path);
            asked.say(code, body);
        }
        let found = soon(discovering).await.unwrap().unwrap();
        let names: Vec<_> = found.iter().map(|it| it.resource.to_string()).collect();
        assert_eq!(names, ["pods", "deployments.apps"]);
        assert_eq!(found[0].resource.fields().len(), 8);
    });
}

#[test]
fn documents_are_fetched_and_posted_below_the_prefix_of_the_server() {
    run(async {
        let mut server = Script::start();
        let mut config = server.config();
        config.cluster_url = format!("http://{}/k8s/c-1/", server.address).parse().unwrap();
        let upstream = masthead_upstream::Upstream::from_config(config, Settings::default());
        let upstream = upstream.await.unwrap();
        let review = {
            let upstream = upstream.clone();
            tokio::spawn(async move { upstream.post("/apis/x", r#"{"a":1}"#).await })
        };
        let asked = server.next().await;
        assert_eq!((asked.method.as_str(), asked.path.as_str()), ("POST", "/k8s/c-1/apis/x"));
        assert_eq!(
            (&asked.body[..], &asked.headers["content-type"]),
            (&br#"{"a":1}"#[..], &http::HeaderValue::from_static("application/json"))
        );
        asked.say(201, r#"{"b":2}"#);
        assert_eq!(soon(review).await.unwrap().unwrap(), r#"{"b":2}"#);
        assert!(upstream.get("no path").await.is_err());
    });
}
