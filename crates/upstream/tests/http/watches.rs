//! Watches: what is asked, and what is made of the stream.

use std::time::Duration;

use masthead_reflector::{Class, Meter, Source, WatchFrom, WatchRequest};
use masthead_upstream::{Settings, Upstream};

use crate::script::{
    Script, after, bookmark, both, event, next, pod, pods, run, short, soon, watching,
};

#[test]
fn events_come_as_they_are_sent_and_the_end_is_the_end() {
    both(async |http| {
        let mut server = Script::start();
        let source = server.pods(http).await;
        let opening = watching(&source, 7);
        let asked = server.next().await;
        let query = "watch=true&allowWatchBookmarks=true&timeoutSeconds=300&resourceVersion=7";
        assert_eq!((asked.path.as_str(), asked.query.as_str()), ("/api/v1/pods", query));
        let sending = asked.open();
        let mut events = soon(opening).await.unwrap().expect("open before the first event");
        let line = event("ADDED", &pod("a", 8));
        let (head, tail) = line.split_at(40);
        sending.send(format!("{line}{head}"));
        assert_eq!(short(&next(&mut events).await.unwrap().unwrap()), "+shop/a@8");
        sending.send(format!("{tail}{}", bookmark(9, false)));
        assert_eq!(short(&next(&mut events).await.unwrap().unwrap()), "+shop/a@8 @9");
        sending.send(
            [event("DELETED", &pod("a", 10)), event("MODIFIED", "{\"kind\":\"Node\"}")].concat(),
        );
        assert_eq!(short(&next(&mut events).await.unwrap().unwrap()), "-shop/a@10 ?");
        drop(sending);
        assert!(next(&mut events).await.is_none());
    });
}

#[test]
fn w21_the_initial_events_end_with_their_bookmark() {
    both(async |http| {
        let mut server = Script::start();
        let source = server.pods(http).await;
        let from = WatchFrom::State { cached: false };
        let request = WatchRequest { from, ..after(0) };
        let opening = tokio::spawn(source.watch(request, Meter::default()));
        let asked = server.next().await;
        assert_eq!(asked.param("sendInitialEvents"), Some("true"));
        assert_eq!(asked.param("resourceVersionMatch"), Some("NotOlderThan"));
        assert_eq!(asked.param("resourceVersion"), None);
        let sending = asked.open();
        let mut events = soon(opening).await.unwrap().unwrap();
        sending.send([event("ADDED", &pod("a", 3)), bookmark(9, true)].concat());
        assert_eq!(short(&next(&mut events).await.unwrap().unwrap()), "+shop/a@3 end@9");
    });
}

#[test]
fn r08_410_is_the_same_as_a_status_and_as_an_event() {
    both(async |http| {
        let mut server = Script::start();
        let source = server.pods(http).await;
        let gone = r#"{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Expired","code":410}"#;
        let refused = watching(&source, 7);
        server.next().await.say(410, gone);
        let failure = soon(refused).await.unwrap().err().expect("refused");
        assert_eq!(failure.class(), Class::Expired);

        let opening = watching(&source, 7);
        let sending = server.next().await.open();
        let mut events = soon(opening).await.unwrap().unwrap();
        sending.send(event("ERROR", gone));
        assert_eq!(short(&next(&mut events).await.unwrap().unwrap()), "!410");
    });
}

#[test]
fn what_came_before_a_break_is_told_before_the_break() {
    both(async |http| {
        let mut server = Script::start();
        let source = server.pods(http).await;
        for broken in ["{\"type\":\"ADDED\",\"obj\n", "\u{0}\n", "[]\n"] {
            let opening = watching(&source, 7);
            let sending = server.next().await.open();
            let mut events = soon(opening).await.unwrap().unwrap();
            sending.send([event("ADDED", &pod("a", 8)).as_str(), broken].concat());
            assert_eq!(short(&next(&mut events).await.unwrap().unwrap()), "+shop/a@8");
            let failure = next(&mut events).await.unwrap().unwrap_err();
            assert_eq!(failure.class(), Class::Decode, "{failure}");
            assert!(next(&mut events).await.is_none(), "an error is the last item");
        }
    });
}

#[test]
fn a_last_line_that_is_cut_off_is_a_failure_and_a_stream_that_breaks_is_another() {
    both(async |http| {
        let mut server = Script::start();
        let source = server.pods(http).await;
        for (cut, class) in [(false, Class::Decode), (true, Class::Broken)] {
            let opening = watching(&source, 7);
            let sending = server.next().await.open();
            let mut events = soon(opening).await.unwrap().unwrap();
            sending.send(event("ADDED", &pod("a", 8)));
            assert!(next(&mut events).await.unwrap().is_ok());
            sending.send("{\"type\":");
            if cut {
                sending.cut();
            } else {
                drop(sending);
            }
            assert_eq!(next(&mut events).await.unwrap().unwrap_err().class(), class);
        }
    });
}

#[test]
fn a_dropped_watch_lets_go_of_its_stream() {
    both(async |http| {
        let mut server = Script::start();
        let source = server.pods(http).await;
        let opening = watching(&source, 7);
        let sending = server.next().await.open();
        let events = soon(opening).await.unwrap().unwrap();
        drop(events);
        sending.abandoned().await;
    });
}

#[test]
fn a_peer_that_says_nothing_any_more_is_noticed() {
    run(async {
        // Takes the connection and reads nothing, so that no ping is answered.
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let accepting = tokio::spawn(async move {
            let (_connection, _) = listener.accept().await.unwrap();
            std::future::pending::<()>().await;
        });
        let settings = Settings {
            http: masthead_upstream::HttpVersion::Http2,
            ping_interval: Duration::from_millis(100),
            ping_timeout: Duration::from_millis(100),
            ..Settings::default()
        };
        let config = masthead_upstream::kube_client::Config::new(url.parse().unwrap());
        let source = pods(&Upstream::from_config(config, settings).await.unwrap());
        let failure = soon(watching(&source, 7)).await.unwrap().err().expect("noticed");
        assert!(failure.class().is_time_out(), "{failure}");
        accepting.abort();
    });
}

#[test]
fn a_ready_client_is_asked_as_a_service() {
    run(async {
        let mut server = Script::start();
        let mut config = server.config();
        config.default_retry = false;
        let client = masthead_upstream::kube_client::Client::try_from(config).unwrap();
        let upstream = Upstream::from_client(client, &Settings::default()).unwrap();
        let source = pods(&upstream);
        let opening = watching(&source, 7);
        let asked = server.next().await;
        assert_eq!(asked.headers["accept-encoding"], "identity");
        assert!(asked.headers["user-agent"].to_str().unwrap().starts_with("masthead/"));
        let sending = asked.open();
        let mut events = soon(opening).await.unwrap().unwrap();
        sending.send(event("ADDED", &pod("a", 8)));
        assert_eq!(short(&next(&mut events).await.unwrap().unwrap()), "+shop/a@8");
        let address = server.kill().await;
        let failure = next(&mut events).await.unwrap().unwrap_err();
        assert_eq!(failure.class(), Class::Broken, "{failure}");
        let failure = soon(watching(&source, 8)).await.unwrap().err().expect("nobody there");
        assert_eq!(failure.class(), Class::Refused, "{failure}");
        let mut server = Script::start_at(address, None);
        let opening = watching(&source, 8);
        let _open = server.next().await.open();
        assert!(soon(opening).await.unwrap().is_ok());
    });
}
