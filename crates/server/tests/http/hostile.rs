//! Hostile input over real sockets: each has a defined answer, and nobody else notices.

use http::Method;
use masthead_server::Limits;
use serde_json::json;

use crate::world::{MAPS, TOKEN, World, run};

/// The status code of a raw answer; 0 if the server only closed the connection.
fn code(answer: &str) -> u16 {
    answer.strip_prefix("HTTP/1.1 ").and_then(|it| it.get(..3)?.parse().ok()).unwrap_or(0)
}

/// Runs a test beside a watch, which must be alive and told of a change at the end.
fn beside_a_watch(test: &impl AsyncFn(&World)) {
    run(async {
        let (world, server) = World::limited(Limits::default(), false).await;
        let mut watch = world
            .watch(&format!("{MAPS}?watch=true&resourceVersion={}", world.revision().await))
            .await;
        test(&world).await;
        let path = "/statz";
        let calm = |it: &serde_json::Value| it["responseBytesInFlight"] == 0 && it["watches"] == 1;
        world.until(path, |answer| calm(&answer.json())).await;
        world.set("after", "1").await;
        while !watch.short().await.starts_with("ADDED after@") {}
        server.shutdown().await;
    });
}

#[test]
fn requests_that_are_no_http_are_refused() {
    beside_a_watch(&async |world: &World| {
        let authorized =
            format!("host: x\r\nauthorization: Bearer {TOKEN}\r\nconnection: close\r\n");
        let table: [(&str, String); 10] = [
            ("garbage", "\u{1}\u{2}\u{3}garbage\r\n\r\n".to_owned()),
            ("no version", "GET /version\r\n\r\n".to_owned()),
            ("a version of the future", format!("GET /version HTTP/9.9\r\n{authorized}\r\n")),
            (
                "a header without a name",
                format!("GET /version HTTP/1.1\r\n: x\r\n{authorized}\r\n"),
            ),
            (
                "a header with a control character",
                format!("GET /version HTTP/1.1\r\nx: a\u{0}b\r\n{authorized}\r\n"),
            ),
            ("a space in the path", format!("GET /api /v1 HTTP/1.1\r\n{authorized}\r\n")),
            (
                "two lengths",
                format!(
                    "POST {MAPS} HTTP/1.1\r\ncontent-length: 2\r\ncontent-length: 5\r\n{authorized}\r\n{{}}abc"
                ),
            ),
            (
                "a length that is no number",
                format!("POST {MAPS} HTTP/1.1\r\ncontent-length: x\r\n{authorized}\r\n{{}}"),
            ),
            (
                "an encoding that is not known",
                format!("POST {MAPS} HTTP/1.1\r\ntransfer-encoding: x\r\n{authorized}\r\n{{}}"),
            ),
            (
                "chunks that are none",
                format!(
                    "POST {MAPS} HTTP/1.1\r\ntransfer-encoding: chunked\r\n{authorized}\r\nzz\r\n"
                ),
            ),
        ];
        for (what, request) in table {
            let answer = world.raw(request.as_bytes()).await;
            let code = code(&answer);
            assert!(code == 0 || (400..500).contains(&code), "{what}: {answer}");
        }
        let many = "x: y\r\n".repeat(500);
        let answer =
            world.raw(format!("GET /version HTTP/1.1\r\n{many}{authorized}\r\n").as_bytes()).await;
        assert_eq!(code(&answer), 431, "{answer}");
        let smuggled = format!(
            "POST {MAPS} HTTP/1.1\r\ncontent-length: 5\r\ntransfer-encoding: chunked\r\n{authorized}\r\n0\r\n\r\n\
             DELETE {MAPS} HTTP/1.1\r\n{authorized}\r\n"
        );
        world.set("kept", "1").await;
        world.raw(smuggled.as_bytes()).await;
        assert_eq!(world.get(&format!("{MAPS}/kept")).await.code, 200, "nothing was smuggled in");
    });
}

#[test]
fn paths_that_mean_two_things_are_refused_before_anything_is_read() {
    beside_a_watch(&async |world: &World| {
        for path in [
            "/api/v1/namespaces/shop/../kube-system/secrets",
            "/api/v1/namespaces/shop/%2e%2e/secrets",
            "/api/v1/namespaces/shop%2fsecrets",
            "/api/v1//secrets",
            "/api/v1/namespaces/%ff/secrets",
            "/api/v1/namespaces/a%00b/secrets",
        ] {
            world.get(path).await.fails(400, "BadRequest");
        }
        for path in
            ["/api/v1/secretz", "/api/v1/secrets/x", "/api/v1/namespaces/shop/nodes", "/apis", "/x"]
        {
            let code = world.ask(Method::POST, path, &[], "{}").await.code;
            assert!(matches!(code, 404 | 405), "{path}: {code}");
        }
    });
}

#[test]
fn bodies_that_are_no_objects_are_refused() {
    beside_a_watch(&async |world: &World| {
        let deep = |levels: usize| {
            format!(
                r#"{{"metadata":{{"name":"d"}},"data":{}1{}}}"#,
                r#"{"a":"#.repeat(levels),
                "}".repeat(levels)
            )
        };
        let deepest = deep(100_000);
        let bodies: [&[u8]; 14] = [
            b"",
            b"{",
            b"null",
            b"7",
            b"[]",
            b"\"x\"",
            b"{\"metadata\":{\"name\":\"a\"}}trailing",
            b"\xef\xbb\xbf{}",
            b"{\"metadata\":{\"name\":\"\xff\"}}",
            b"{\"metadata\":{\"name\":\"\\ud800\"}}",
            b"{\"metadata\":{\"name\":7}}",
            b"{\"metadata\":{\"name\":\"a\"},\"data\":{\"n\":1e999}}",
            b"{\"metadata\":{\"labels\":[]}}",
            deepest.as_bytes(),
        ];
        for body in bodies {
            let answer = world.ask(Method::POST, MAPS, &[], body.to_vec()).await;
            let shown = String::from_utf8_lossy(&body[..body.len().min(60)]).into_owned();
            assert!(matches!(answer.code, 400 | 422), "{shown}: {} {}", answer.code, answer.text());
        }
        let laughs = "a: &a [x,x,x,x,x,x,x,x,x]\nb: &b [*a,*a,*a,*a,*a,*a,*a,*a,*a]\n\
                      c: &c [*b,*b,*b,*b,*b,*b,*b,*b,*b]\nd: &d [*c,*c,*c,*c,*c,*c,*c,*c,*c]\n\
                      e: &e [*d,*d,*d,*d,*d,*d,*d,*d,*d]\nf: &f [*e,*e,*e,*e,*e,*e,*e,*e,*e]\n\
                      g: &g [*f,*f,*f,*f,*f,*f,*f,*f,*f]\nh: [*g,*g,*g,*g,*g,*g,*g,*g,*g]\n";
        let headers = [("content-type", "application/yaml")];
        world.ask(Method::POST, MAPS, &headers, laughs).await.fails(400, "BadRequest");
        let patch = json!([{"op": "copy", "from": "", "path": "/data"}]);
        world.set("p", "1").await;
        let code = world.patch(&format!("{MAPS}/p"), "json-patch", &patch).await.code;
        assert!(code < 500, "{code}");
    });
}

#[test]
fn selectors_versions_and_tokens_that_make_no_sense_are_refused() {
    beside_a_watch(&async |world: &World| {
        let long = format!("labelSelector={}", "a,".repeat(20_000));
        for query in [
            "labelSelector=((((((",
            "labelSelector=a%20in",
            "labelSelector=a%20in%20(b",
            "labelSelector=%00",
            "labelSelector=a%3D%3D%3Db",
            "fieldSelector=metadata.name",
            "fieldSelector=%3D%3D",
            "shardSelector=shardRange(x,%270x0%27,%270x1%27)",
            "resourceVersion=18446744073709551616",
            "resourceVersion=0x10",
            "resourceVersion=%20%201",
            "limit=99999999999999999999",
            "continue=%2F%2F%2F",
            "timeoutSeconds=-1x",
            &long,
        ] {
            for watch in ["", "&watch=true"] {
                let answer =
                    world.ask(Method::GET, &format!("{MAPS}?{query}{watch}"), &[], "").await;
                let shown = &query[..query.len().min(40)];
                assert!(matches!(answer.code, 400 | 414 | 422), "{shown}{watch}: {}", answer.code);
            }
        }
    });
}

#[test]
fn streams_that_are_reset_as_fast_as_they_are_opened_do_no_harm() {
    run(async {
        let (world, server) = World::limited(Limits::default(), true).await;
        let mut watch = world.watch(&format!("{MAPS}?watch=true")).await;
        for _ in 0..5 {
            let io = hyper_util::rt::TokioIo::new(
                tokio::net::TcpStream::connect(world.address).await.unwrap(),
            );
            let executor = hyper_util::rt::TokioExecutor::new();
            let (mut sender, connection) =
                hyper::client::conn::http2::handshake(executor, io).await.unwrap();
            let connection = tokio::spawn(connection);
            for _ in 0..500 {
                let request = http::Request::builder()
                    .uri(format!("http://{}{MAPS}?watch=true", world.address))
                    .header("authorization", format!("Bearer {TOKEN}"))
                    .body(http_body_util::Empty::<hyper::body::Bytes>::new())
                    .unwrap();
                let mut sending = Box::pin(sender.send_request(request));
                // Polled once, so that it goes out; then dropped, which resets it.
                let _ = tokio::time::timeout(std::time::Duration::ZERO, sending.as_mut()).await;
                if sender.is_closed() {
                    break;
                }
            }
            connection.abort();
        }
        world.until("/statz", |answer| answer.json()["watches"] == 1).await;
        world.set("after", "1").await;
        assert!(watch.short().await.starts_with("ADDED after@"));
        server.shutdown().await;
    });
}

#[test]
fn head_answers_with_the_head_of_a_get_and_without_a_body() {
    run(async {
        let (world, server) = World::limited(Limits::default(), false).await;
        world.set("a", "1").await;
        let object = format!("{MAPS}/a");
        let watch = format!("{MAPS}?watch=true");
        let missing = format!("{MAPS}/missing");
        for (path, expected) in [
            ("/version", 200),
            ("/readyz", 200),
            (object.as_str(), 200),
            (MAPS, 200),
            (watch.as_str(), 200),
            (missing.as_str(), 404),
            ("/nowhere", 404),
        ] {
            let head = |method: &str| {
                format!(
                    "{method} {path} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {TOKEN}\r\n\
                     connection: close\r\n\r\n"
                )
            };
            let answer = world.raw(head("HEAD").as_bytes()).await;
            assert_eq!(code(&answer), expected, "{path}: {answer}");
            let (headers, body) = answer.split_once("\r\n\r\n").unwrap();
            assert_eq!(body, "", "{path}");
            if path != watch {
                let got = world.raw(head("GET").as_bytes()).await;
                let (_, body) = got.split_once("\r\n\r\n").unwrap();
                if !got.to_ascii_lowercase().contains("transfer-encoding: chunked") {
                    let length = format!("content-length: {}", body.len());
                    assert!(headers.to_ascii_lowercase().contains(&length), "{path}: {headers}");
                }
            }
        }
        world.until("/statz", |answer| answer.json()["watches"] == 0).await;
        server.shutdown().await;
    });
}
