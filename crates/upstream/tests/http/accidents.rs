//! Known accidents of list-and-watch clients, over real sockets: a driver and a cache behind the source.

use masthead_cache::{Cache, Config};
use masthead_core::Revision;
use masthead_reflector::{Driver, Report, ServerMemory, Settings, Start, Strategy};
use masthead_upstream::HttpVersion;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::script::{Asked, Script, bookmark, both, event, list, pod, pods, soon};

struct Running {
    cache: Cache,
    report: watch::Receiver<Report>,
    driving: JoinHandle<std::convert::Infallible>,
}

impl Drop for Running {
    fn drop(&mut self) {
        self.driving.abort();
    }
}

impl Running {
    async fn start(server: &Script, http: HttpVersion, strategy: Strategy, start: Start) -> Self {
        let settings = masthead_upstream::Settings { http, ..Default::default() };
        let upstream = server.upstream(settings).await;
        Self::on(pods(&upstream), upstream.memory(), strategy, start)
    }

    fn on(
        source: impl masthead_reflector::Source + 'static,
        memory: ServerMemory,
        strategy: Strategy,
        start: Start,
    ) -> Self {
        let (writer, cache) = Cache::new(Config::default());
        let settings = Settings { strategy, ..Settings::default() };
        let driver = Driver::starting(source, writer, settings, memory, start, 1);
        let report = driver.report();
        Self { cache, report, driving: tokio::spawn(driver.run()) }
    }

    async fn until(&mut self, right: impl FnMut(&Report) -> bool) -> Report {
        soon(self.report.wait_for(right)).await.unwrap().clone()
    }

    async fn at(&self, revision: u64) {
        soon(self.cache.wait_for(Revision(revision))).await;
    }
}

const GONE: &str =
    r#"{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Expired","code":410}"#;

/// The next request, which must be a list (without a resource version) or a watch from there.
async fn asked(server: &mut Script, watch_from: Option<&str>) -> Asked {
    let asked = server.next().await;
    assert_eq!(asked.is_watch(), watch_from.is_some(), "{}", asked.query);
    assert_eq!(asked.param("resourceVersion"), watch_from, "{}", asked.query);
    asked
}

#[test]
fn kubernetes_133810_no_client_stays_on_an_expired_revision_for_ever() {
    both(async |http| {
        let mut server = Script::start();
        let mut running = Running::start(&server, http, Strategy::Pages, Start::Empty).await;
        let stuck = asked(&mut server, None).await;
        let connection = stuck.connection;
        stuck.say(200, list(100, &[pod("a", 90)]));
        asked(&mut server, Some("100")).await.say(410, GONE);
        // The list leads straight back: it is refused, and another server asked.
        asked(&mut server, None).await.say(200, list(100, &[pod("a", 90)]));
        let other = asked(&mut server, None).await;
        assert_ne!(other.connection, connection, "another way may lead to another server");
        assert_eq!(running.until(|it| it.relists.older == 1).await.relists.expired, 1);
        other.say(200, list(200, &[pod("a", 190)]));
        let _open = asked(&mut server, Some("200")).await.open();
        running.at(200).await;
    });
}

#[test]
fn kubernetes_59848_a_stale_server_does_not_take_a_client_back_in_time() {
    both(async |http| {
        let mut server = Script::start();
        let start = Start::NotBefore(Revision(100));
        let mut running = Running::start(&server, http, Strategy::Pages, start).await;
        asked(&mut server, None).await.say(200, list(40, &[pod("old", 30)]));
        running.until(|it| it.relists.older == 1).await;
        assert!(!running.cache.is_ready(), "nothing of the past is shown");
        asked(&mut server, None).await.say(200, list(105, &[pod("a", 90)]));
        let _open = asked(&mut server, Some("105")).await.open();
        running.at(105).await;
        assert!(running.cache.snapshot().get_str("shop/old").is_none());
        assert_eq!(running.report.borrow().rewinds, 0);
    });
}

#[test]
fn kubernetes_107133_very_short_watches_of_a_quiet_resource_lead_to_no_loop() {
    both(async |http| {
        let mut server = Script::start();
        let start = Start::At("200".into());
        let mut running = Running::start(&server, http, Strategy::Pages, start).await;
        for _ in 0..3 {
            drop(asked(&mut server, Some("200")).await.open());
        }
        // One list for three watches, and it asks for no revision that the server may not have.
        asked(&mut server, None).await.say(200, list(200, &[]));
        let open = asked(&mut server, Some("200")).await.open();
        open.send(bookmark(201, false));
        running.at(201).await;
        assert_eq!(running.until(|_| true).await.relists.short_watches, 1);
        assert!(server.is_quiet());
    });
}

#[test]
fn r02_a_server_without_streaming_lists_is_asked_for_pages_and_remembered() {
    both(async |http| {
        for code in [400, 422] {
            let mut server = Script::start();
            let settings = masthead_upstream::Settings { http, ..Default::default() };
            let upstream = server.upstream(settings).await;
            let start = |upstream: &masthead_upstream::Upstream| {
                Running::on(pods(upstream), upstream.memory(), Strategy::Streaming, Start::Empty)
            };
            let mut first = start(&upstream);
            let asked_first = asked_streaming(&mut server).await;
            asked_first.say(code, r#"{"kind":"Status","apiVersion":"v1","reason":"Invalid"}"#);
            asked(&mut server, None).await.say(200, list(9, &[]));
            let _open = asked(&mut server, Some("9")).await.open();
            first.until(|it| it.synced).await;
            let mut second = start(&upstream);
            asked(&mut server, None).await.say(200, list(9, &[]));
            let _open = asked(&mut server, Some("9")).await.open();
            second.until(|it| it.synced).await;
        }
    });
}

async fn asked_streaming(server: &mut Script) -> Asked {
    let asked = server.next().await;
    assert_eq!(asked.param("sendInitialEvents"), Some("true"), "{}", asked.query);
    asked
}

#[test]
fn r02_a_stream_that_breaks_after_progress_is_followed_by_pages() {
    both(async |http| {
        let mut server = Script::start();
        let mut running = Running::start(&server, http, Strategy::Streaming, Start::Empty).await;
        let sending = asked_streaming(&mut server).await.open();
        sending.send(event("ADDED", &pod("gone", 3)));
        running.until(|it| it.bytes > 0).await;
        sending.cut();
        asked(&mut server, None).await.say(200, list(9, &[pod("a", 4)]));
        let open = asked(&mut server, Some("9")).await.open();
        running.at(9).await;
        assert!(running.cache.snapshot().get_str("shop/gone").is_none());
        // An end that is due costs nothing: the watch goes on from where it was.
        open.send(event("MODIFIED", &pod("a", 12)));
        running.at(12).await;
        drop(open);
        let _open = asked(&mut server, Some("12")).await.open();
    });
}
