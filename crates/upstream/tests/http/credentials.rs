//! Who we say we are.

use std::os::unix::fs::PermissionsExt;

use masthead_reflector::Class;
use masthead_upstream::kube_client::Config;
use masthead_upstream::{HttpVersion, Settings, Upstream, UpstreamError};

use crate::script::{Script, both, first_page, list, listing, pods, run, soon};

fn bearer(asked: &crate::script::Asked) -> String {
    asked.headers.get("authorization").map_or("", |it| it.to_str().unwrap()).to_owned()
}

#[test]
fn r26_credentials_are_loaded_again_once_when_the_server_does_not_know_them() {
    both(async |http| {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("token");
        std::fs::write(&file, "old").unwrap();
        let mut server = Script::start();
        let mut config = server.config();
        config.auth_info.token_file = Some(file.to_str().unwrap().to_owned());
        let settings = Settings { http, ..Settings::default() };
        let source = pods(&Upstream::from_config(config, settings).await.unwrap());

        std::fs::write(&file, "new").unwrap();
        let page = listing(&source, first_page());
        let asked = server.next().await;
        assert_eq!(bearer(&asked), "Bearer old");
        asked.say(401, "");
        let asked = server.next().await;
        assert_eq!(bearer(&asked), "Bearer new");
        asked.say(200, list(9, &[]));
        page.await.unwrap().unwrap();

        // Twice is enough: the second no is reported.
        let page = listing(&source, first_page());
        server.next().await.say(401, "");
        server.next().await.say(401, "");
        assert_eq!(soon(page).await.unwrap().unwrap_err().class(), Class::Unauthorized);
        assert!(server.is_quiet());
    });
}

#[test]
fn a_token_of_the_kubeconfig_itself_has_nothing_to_be_loaded_from() {
    run(async {
        let mut server = Script::start();
        let directory = tempfile::tempdir().unwrap();
        let kubeconfig = directory.path().join("config");
        let text = format!(
            "apiVersion: v1\nkind: Config\ncurrent-context: a\ncontexts:\n- name: a\n  context: \
             {{cluster: c, user: u, namespace: shop}}\n- name: b\n  context: {{cluster: c, user: \
             v}}\nclusters:\n- name: c\n  cluster: {{server: 'http://{}'}}\nusers:\n- name: u\n  \
             user: {{token: t1}}\n- name: v\n  user: {{token: t2, as: somebody}}\n",
            server.address
        );
        std::fs::write(&kubeconfig, text).unwrap();
        let of = async |context| {
            let file = Some(kubeconfig.as_path());
            Upstream::from_kubeconfig(file, context, Settings::default()).await
        };
        let upstream = of(None).await.unwrap();
        assert_eq!(upstream.default_namespace(), "shop");
        let page = listing(&pods(&upstream), first_page());
        let asked = server.next().await;
        assert_eq!(bearer(&asked), "Bearer t1");
        asked.say(401, "");
        assert_eq!(soon(page).await.unwrap().unwrap_err().class(), Class::Unauthorized);

        let page = listing(&pods(&of(Some("b")).await.unwrap()), first_page());
        let asked = server.next().await;
        assert_eq!(bearer(&asked), "Bearer t2");
        assert_eq!(asked.headers["impersonate-user"], "somebody");
        asked.say(200, list(9, &[]));
        page.await.unwrap().unwrap();

        let error = of(Some("nowhere")).await.unwrap_err();
        assert!(error.to_string().contains("kubectl config view"), "{error}");
        let wrong = Settings { user_agent: "\n".into(), ..Settings::default() };
        let error = Upstream::from_config(Config::new("http://a".parse().unwrap()), wrong).await;
        assert!(matches!(error, Err(UpstreamError::Settings(_))));
    });
}

#[test]
fn a_plugin_is_run_again_when_the_server_does_not_know_its_token() {
    run(async {
        let directory = tempfile::tempdir().unwrap();
        let (plugin, runs) = (directory.path().join("plugin"), directory.path().join("runs"));
        let token = r#"{"kind":"ExecCredential","apiVersion":"client.authentication.k8s.io/v1","status":{"token":"t'$n'","expirationTimestamp":"2100-01-01T00:00:00Z"}}"#;
        let script = format!(
            "#!/bin/sh\necho x >> {runs}\nn=$(wc -l < {runs} | tr -d ' ')\necho '{token}'\n",
            runs = runs.display()
        );
        std::fs::write(&plugin, script).unwrap();
        std::fs::set_permissions(&plugin, std::fs::Permissions::from_mode(0o700)).unwrap();
        let mut server = Script::start();
        let mut config = server.config();
        let exec = format!(
            r#"{{"apiVersion":"client.authentication.k8s.io/v1","command":{:?},"interactiveMode":"Never"}}"#,
            plugin.to_str().unwrap()
        );
        config.auth_info.exec = Some(serde_json::from_str(&exec).unwrap());
        let settings = Settings { http: HttpVersion::Http1, ..Settings::default() };
        let source = pods(&Upstream::from_config(config, settings).await.unwrap());
        let page = listing(&source, first_page());
        let asked = server.next().await;
        let first = bearer(&asked);
        assert!(first.starts_with("Bearer t"), "{first}");
        asked.say(401, "");
        let asked = server.next().await;
        assert_ne!(bearer(&asked), first);
        asked.say(200, list(9, &[]));
        page.await.unwrap().unwrap();
    });
}
