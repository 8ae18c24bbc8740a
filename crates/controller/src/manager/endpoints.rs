//! Health and metrics over HTTP.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use http::header::{CONTENT_TYPE, HeaderValue};
use http::{Request, Response, StatusCode};
use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use prometheus_client::encoding::text::encode;
use prometheus_client::registry::Registry;
use tokio::net::TcpListener;
use tokio::sync::Semaphore;

use crate::limits::ENDPOINT_CONNECTIONS_MAX;

/// Answers until it is dropped.
pub(super) async fn serve(listener: TcpListener, registry: Registry, ready: Arc<AtomicBool>) {
    let registry = Arc::new(registry);
    let room = Arc::new(Semaphore::new(ENDPOINT_CONNECTIONS_MAX));
    let mut connections = tokio::task::JoinSet::new();
    while let Ok(place) = room.clone().acquire_owned().await {
        let Ok((stream, _)) = listener.accept().await else { continue };
        let (registry, ready) = (registry.clone(), ready.clone());
        connections.spawn(async move {
            let answer = service_fn(|request: Request<Incoming>| {
                let answer = answer(request.uri().path(), &registry, &ready);
                async { Ok::<_, Infallible>(answer) }
            });
            // Whoever asks for health and goes away is not worth a line in the log.
            let mut server = http1::Builder::new();
            let _ = server
                .timer(TokioTimer::new())
                .serve_connection(TokioIo::new(stream), answer)
                .await;
            drop(place);
        });
        while connections.try_join_next().is_some() {}
    }
}

const TEXT: &str = "text/plain; charset=utf-8";
const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

fn answer(path: &str, registry: &Registry, ready: &AtomicBool) -> Response<Full<Bytes>> {
    let (code, text) = match path {
        "/healthz" => (StatusCode::OK, "ok".to_owned()),
        "/readyz" if ready.load(Ordering::Relaxed) => (StatusCode::OK, "ok".to_owned()),
        "/readyz" => (StatusCode::SERVICE_UNAVAILABLE, "the caches have not synced".to_owned()),
        "/metrics" => {
            let mut text = String::new();
            match encode(&mut text, registry) {
                Ok(()) => (StatusCode::OK, text),
                Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()),
            }
        }
        _ => (StatusCode::NOT_FOUND, "there are /healthz, /readyz and /metrics".to_owned()),
    };
    let content = if path == "/metrics" && code == StatusCode::OK { OPEN_METRICS } else { TEXT };
    let mut response = Response::new(Full::from(text));
    *response.status_mut() = code;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(content));
    response
}
