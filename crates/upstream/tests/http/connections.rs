//! Which request goes on which connection, and what happens when one goes away.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use masthead_reflector::{Class, Events, ListRequest};
use masthead_upstream::kube_client::Config;
use masthead_upstream::{HttpVersion, Settings, Upstream};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::script::{
    Script, bookmark, both, event, first_page, list, listing, next, pod, pods, run, short, soon,
    tls, watching,
};

#[test]
fn watches_fill_a_connection_with_80_streams_and_then_the_next() {
    run(async {
        let mut server = Script::start();
        let source = server.pods(HttpVersion::Http2).await;
        let opening: Vec<_> = (0..100).map(|_| watching(&source, 7)).collect();
        let mut streams = BTreeMap::<usize, usize>::new();
        let mut open = Vec::new();
        for _ in 0..100 {
            let asked = server.next().await;
            *streams.entry(asked.connection).or_default() += 1;
            open.push(asked.open());
        }
        assert_eq!(streams, BTreeMap::from([(0, 80), (1, 20)]));
        // A place that becomes free is used before a new one is looked for.
        let mut events: Vec<Events> = Vec::new();
        for opening in opening {
            events.push(soon(opening).await.unwrap().unwrap());
        }
        drop(events);
        let opening = watching(&source, 7);
        let asked = server.next().await;
        assert!(asked.connection < 2);
        let _open = asked.open();
        assert!(soon(opening).await.unwrap().is_ok());
    });
}

#[test]
fn the_streams_of_a_connection_are_a_setting() {
    run(async {
        let mut server = Script::start();
        let http = HttpVersion::Http2;
        let settings = Settings { http, streams_per_connection: 2, ..Settings::default() };
        let source = pods(&server.upstream(settings).await);
        let _opening: Vec<_> = (0..5).map(|_| watching(&source, 7)).collect();
        let mut streams = vec![0; 3];
        let mut open = Vec::new();
        for _ in 0..5 {
            let asked = server.next().await;
            streams[asked.connection] += 1;
            open.push(asked.open());
        }
        assert_eq!(streams, [2, 2, 1]);
    });
}

#[test]
fn lists_and_watches_share_no_connection_and_each_is_used_again() {
    both(async |http| {
        let mut server = Script::start();
        let source = server.pods(http).await;
        let mut used = Vec::new();
        for _ in 0..3 {
            let page = listing(&source, first_page());
            let asked = server.next().await;
            used.push(asked.connection);
            asked.say(200, list(9, &[]));
            page.await.unwrap().unwrap();
            let opening = watching(&source, 9);
            let asked = server.next().await;
            used.push(asked.connection);
            let sending = asked.open();
            let mut events = soon(opening).await.unwrap().unwrap();
            drop(sending);
            assert!(next(&mut events).await.is_none());
        }
        assert_eq!(used, [0, 1, 0, 1, 0, 1]);
    });
}

#[test]
fn r10_elsewhere_is_another_connection() {
    both(async |http| {
        let mut server = Script::start();
        let source = server.pods(http).await;
        for (elsewhere, connection) in [(false, 0), (false, 0), (true, 1), (false, 1)] {
            let page = listing(&source, ListRequest { elsewhere, ..first_page() });
            let asked = server.next().await;
            assert_eq!(asked.connection, connection);
            asked.say(200, list(9, &[]));
            page.await.unwrap().unwrap();
        }
    });
}

#[test]
fn a_server_that_goes_away_is_refused_and_found_again_on_the_same_port() {
    both(async |http| {
        let mut server = Script::start();
        let source = server.pods(http).await;
        let page = listing(&source, first_page());
        server.next().await.say(200, list(9, &[]));
        page.await.unwrap().unwrap();
        let opening = watching(&source, 9);
        let _sending = server.next().await.open();
        let mut events = soon(opening).await.unwrap().unwrap();

        let address = server.kill().await;
        let failure = next(&mut events).await.unwrap().unwrap_err();
        assert_eq!(failure.class(), Class::Broken, "{failure}");
        let failure = listing(&source, first_page()).await.unwrap().unwrap_err();
        assert_eq!(failure.class(), Class::Refused, "{failure}");

        let mut server = Script::start_at(address, None);
        let opening = watching(&source, 9);
        let sending = server.next().await.open();
        sending.send(event("ADDED", &pod("a", 10)));
        let mut events = soon(opening).await.unwrap().unwrap();
        assert_eq!(short(&next(&mut events).await.unwrap().unwrap()), "+shop/a@10");
    });
}

#[test]
fn a_kept_connection_that_died_unnoticed_costs_no_failure() {
    both(async |http| {
        let mut server = Script::start();
        let source = server.pods(http).await;
        let page = listing(&source, first_page());
        server.next().await.say(200, list(9, &[]));
        page.await.unwrap().unwrap();
        let mut server = Script::start_at(server.kill().await, None);
        // The client may or may not have heard by now that its connection is gone.
        let page = listing(&source, first_page());
        server.next().await.say(200, list(10, &[]));
        assert_eq!(page.await.unwrap().unwrap().resource_version, "10");
    });
}

#[test]
fn a_proxy_that_cuts_idle_streams_costs_a_resumption_each() {
    both(async |http| {
        let mut server = Script::start();
        let source = server.pods(http).await;
        for version in [7, 8, 9] {
            let opening = watching(&source, version);
            let asked = server.next().await;
            assert_eq!(asked.param("resourceVersion"), Some(&*version.to_string()));
            let sending = asked.open();
            let mut events = soon(opening).await.unwrap().unwrap();
            sending.send(bookmark(version + 1, false));
            assert!(next(&mut events).await.unwrap().is_ok());
            sending.cut();
            let failure = next(&mut events).await.unwrap().unwrap_err();
            assert_eq!(failure.recovery(), masthead_reflector::Recovery::Resume, "{failure}");
        }
    });
}

#[test]
fn a_connection_that_is_not_made_in_time_is_a_refusal() {
    run(async {
        // A TLS server that says nothing.
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("https://{}", listener.local_addr().unwrap());
        let connect_timeout = Duration::from_millis(300);
        let settings = Settings { connect_timeout, ..Settings::default() };
        let upstream = Upstream::from_config(Config::new(url.parse().unwrap()), settings);
        let source = pods(&upstream.await.unwrap());
        // Many who wait for the same connection fail with it, and not one after the other.
        let began = Instant::now();
        let all: Vec<_> = (0..50).map(|_| watching(&source, 7)).collect();
        for opening in all {
            let failure = opening.await.unwrap().err().expect("nobody answers");
            assert_eq!(failure.class(), Class::Refused, "{failure}");
        }
        assert!(began.elapsed() < 20 * connect_timeout, "{:?}", began.elapsed());
    });
}

#[test]
fn a_name_that_is_nobodys_is_a_refusal() {
    run(async {
        let config = Config::new("http://nobody.invalid:1".parse().unwrap());
        let upstream = Upstream::from_config(config, Settings::default()).await.unwrap();
        let failure = upstream.get("/version").await.unwrap_err();
        assert_eq!(failure.class(), Class::Refused, "{failure}");
    });
}

#[test]
fn tls_speaks_http_2_where_both_can_and_refuses_a_stranger() {
    run(async {
        let directory = tempfile::tempdir().unwrap();
        let (acceptor, ca) = tls(directory.path());
        let mut server = Script::start_at("127.0.0.1:0".parse().unwrap(), Some(acceptor));
        let url = format!("https://{}", server.address);
        let stranger = Config::new(url.parse().unwrap());
        let mut config = stranger.clone();
        let der = CertificateDer::pem_slice_iter(ca.as_bytes());
        config.root_cert = Some(der.map(|it| it.unwrap().to_vec()).collect());

        for (http, version) in [
            (HttpVersion::Auto, http::Version::HTTP_2),
            (HttpVersion::Http1, http::Version::HTTP_11),
            (HttpVersion::Http2, http::Version::HTTP_2),
        ] {
            let settings = Settings { http, ..Settings::default() };
            let upstream = Upstream::from_config(config.clone(), settings).await.unwrap();
            let source = pods(&upstream);
            let page = listing(&source, first_page());
            let asked = server.next().await;
            assert_eq!(asked.version, version);
            asked.say(200, list(9, &[]));
            page.await.unwrap().unwrap();
        }

        let upstream = Upstream::from_config(stranger.clone(), Settings::default()).await.unwrap();
        let failure = upstream.get("/version").await.unwrap_err();
        assert_eq!(failure.class(), Class::Tls, "{failure}");
        let mut careless = stranger;
        careless.accept_invalid_certs = true;
        let upstream = Upstream::from_config(careless, Settings::default()).await.unwrap();
        let page = listing(&pods(&upstream), first_page());
        server.next().await.say(200, list(9, &[]));
        page.await.unwrap().unwrap();
    });
}

#[test]
fn a_proxy_is_asked_for_a_tunnel() {
    run(async {
        let mut server = Script::start();
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let mut config = server.config();
        let proxy = format!("http://me:pw@{}", listener.local_addr().unwrap());
        config.proxy_url = Some(proxy.parse().unwrap());
        let address = server.address;
        let proxying = tokio::spawn(async move {
            let (mut client, _) = listener.accept().await.unwrap();
            let mut asked = Vec::new();
            while !asked.ends_with(b"\r\n\r\n") {
                asked.push(client.read_u8().await.unwrap());
            }
            client.write_all(b"HTTP/1.1 200 Connection established\r\n\r\n").await.unwrap();
            let mut server = tokio::net::TcpStream::connect(address).await.unwrap();
            let _ = tokio::io::copy_bidirectional(&mut client, &mut server).await;
            String::from_utf8(asked).unwrap()
        });
        let upstream = Upstream::from_config(config, Settings::default()).await.unwrap();
        let page = listing(&pods(&upstream), first_page());
        server.next().await.say(200, list(9, &[]));
        page.await.unwrap().unwrap();
        drop(upstream);
        let asked = soon(proxying).await.unwrap();
        assert!(asked.starts_with(&format!("CONNECT {address} HTTP/1.1\r\n")), "{asked}");
        assert!(asked.contains("Proxy-Authorization: Basic bWU6cHc=\r\n"), "{asked}");
    });
}

#[test]
fn a_pace_holds_back_what_comes_too_fast() {
    run(async {
        let mut server = Script::start();
        let settings = Settings { requests_per_second: 20, burst: 1, ..Settings::default() };
        let source = pods(&server.upstream(settings).await);
        let began = Instant::now();
        for _ in 0..5 {
            let page = listing(&source, first_page());
            server.next().await.say(200, list(9, &[]));
            page.await.unwrap().unwrap();
        }
        assert!(began.elapsed() >= Duration::from_millis(190), "{:?}", began.elapsed());
    });
}
