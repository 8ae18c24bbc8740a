//! Health and metrics over HTTP.

use std::convert::Infallible;
use std::sync::Arc;

use http::header::{CONTENT_TYPE, HeaderValue};
use http::{Request, Response, StatusCode};
use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use masthead_core::{Panic, contain, planted};
use prometheus_client::encoding::text::encode;
use prometheus_client::registry::Registry;
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio::time::sleep;
use tracing::{error, warn};

use super::Readiness;
use crate::limits::{ACCEPT_RETRY, ENDPOINT_CONNECTIONS_MAX};

/// Answers until it is dropped.
pub(super) async fn serve(listener: TcpListener, registry: Registry, readiness: Arc<Readiness>) {
    let registry = Arc::new(registry);
    let room = Arc::new(Semaphore::new(ENDPOINT_CONNECTIONS_MAX));
    let mut connections = tokio::task::JoinSet::new();
    while let Ok(place) = room.clone().acquire_owned().await {
        let stream = match listener.accept().await {
            Ok((stream, _)) => stream,
            Err(error) => {
                warn!(%error, "a connection for health or metrics cannot be accepted");
                sleep(ACCEPT_RETRY).await;
                continue;
            }
        };
        let (registry, readiness) = (registry.clone(), readiness.clone());
        connections.spawn(async move {
            let answer = service_fn(|request: Request<Incoming>| {
                let answer = answered(request.uri().path(), &registry, &readiness);
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
        if planted::on("endpoints_return") {
            return;
        }
        while let Some(joined) = connections.try_join_next() {
            if let Some(payload) = joined.err().and_then(|error| error.try_into_panic().ok()) {
                error!(panic = %Panic::of_payload(payload), "a connection's task panicked");
            }
        }
    }
}

/// The answer, also if what collects it panics: the next request is answered all the same.
fn answered(path: &str, registry: &Registry, readiness: &Readiness) -> Response<Full<Bytes>> {
    contain(|| answer(path, registry, readiness)).unwrap_or_else(|panic| {
        error!(path, %panic, "an answer panicked");
        let mut response = Response::new(Full::from("a bug: see the log"));
        *response.status_mut() = StatusCode::INTERNAL_SERVER_ERROR;
        response
    })
}

const TEXT: &str = "text/plain; charset=utf-8";
const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

fn answer(path: &str, registry: &Registry, readiness: &Readiness) -> Response<Full<Bytes>> {
    let (code, text) = match path {
        "/healthz" => (StatusCode::OK, "ok".to_owned()),
        "/readyz" => match readiness.reason() {
            None => (StatusCode::OK, "ok".to_owned()),
            Some(reason) => (StatusCode::SERVICE_UNAVAILABLE, reason),
        },
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
