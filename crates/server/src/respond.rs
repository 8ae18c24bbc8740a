//! Answers.

use std::io::Write;

use bytes::Bytes;
use flate2::Compression;
use flate2::write::GzEncoder;
use http::header::{
    CACHE_CONTROL, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE, HeaderValue, RETRY_AFTER, VARY,
    WARNING, WWW_AUTHENTICATE,
};
use http::{Response, StatusCode};
use http_body::Body as _;
use masthead_core::{ListBody, Object, Projection, Status};
use serde_json::Value;

use crate::body::Body;
use crate::budget::Share;
use crate::document::Format;
use crate::limits::GZIP_BYTES_MIN;
use crate::negotiate::Encoding;

/// An answer, or the status that is sent instead.
pub(crate) type Answer = Result<Response<Body>, Status>;

const NO_CACHE: HeaderValue = HeaderValue::from_static("no-cache, private");

fn with_type(code: StatusCode, content_type: &'static str, body: Body) -> Response<Body> {
    let mut response = Response::new(body);
    *response.status_mut() = code;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    headers.insert(CACHE_CONTROL, NO_CACHE);
    response
}

/// A text for people.
pub(crate) fn text(code: StatusCode, text: String) -> Response<Body> {
    with_type(code, "text/plain; charset=utf-8", text.into())
}

/// A text in the form that Prometheus reads.
pub(crate) fn metrics(text: String) -> Response<Body> {
    with_type(
        StatusCode::OK,
        "application/openmetrics-text; version=1.0.0; charset=utf-8",
        text.into(),
    )
}

/// A document that is no API object.
pub(crate) fn json(value: &Value) -> Response<Body> {
    with_type(StatusCode::OK, "application/json", value.to_string().into())
}

/// A status, with the headers that belong to it.
pub(crate) fn status(status: &Status) -> Response<Body> {
    let code = StatusCode::from_u16(status.code()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let mut response = with_type(code, "application/json", status.to_json().into());
    let headers = response.headers_mut();
    if code == StatusCode::UNAUTHORIZED {
        headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer realm=\"masthead\""));
    }
    if let Some(wait) = status.retry_after() {
        headers.insert(RETRY_AFTER, HeaderValue::from(wait.as_secs().max(1)));
    }
    response
}

/// One object.
pub(crate) fn object(code: StatusCode, object: &Object, encoding: Encoding, gzip: bool) -> Answer {
    let shown = match encoding.projection {
        Projection::Whole => object.body().clone(),
        Projection::Metadata => {
            let head = b"{\"kind\":\"PartialObjectMetadata\",\"apiVersion\":\"meta.k8s.io/v1\",\
                         \"metadata\":";
            [head.as_slice(), &object.metadata(), b"}"].concat().into()
        }
    };
    whole(code, shown, encoding, gzip)
}

/// A JSON text that is there as a whole, in the encoding that was asked for.
pub(crate) fn whole(code: StatusCode, json: Bytes, encoding: Encoding, gzip: bool) -> Answer {
    let body = match encoding.format {
        Format::Json => json,
        Format::Yaml => to_yaml(&json)?.into(),
    };
    let zip = gzip && body.len() >= GZIP_BYTES_MIN;
    let body = if zip { compressed(&body) } else { body };
    let mut response = with_type(code, encoding.content_type(), body.into());
    vary(&mut response, zip);
    Ok(response)
}

/// A list as YAML: the one place where a list is put together as a whole.
pub(crate) fn yaml_list(mut list: ListBody, gzip: bool) -> Answer {
    let json: Vec<u8> = list.by_ref().flat_map(|piece| piece.to_vec()).collect();
    if list.is_broken() {
        return Err(Status::internal("an object of the list cannot be read"));
    }
    let encoding = Encoding { format: Format::Yaml, ..Encoding::JSON };
    whole(StatusCode::OK, json.into(), encoding, gzip)
}

/// An answer that is there as a whole, and gives its share of a budget back when it is sent.
pub(crate) fn counted(answer: Response<Body>, share: Share) -> Response<Body> {
    answer.map(|body| match body {
        Body::Whole(whole) => Body::Counted(whole, share),
        other => other,
    })
}

/// A list or a watch, as it is read.
pub(crate) fn stream(body: Body, zipped: bool) -> Response<Body> {
    let mut response = with_type(StatusCode::OK, "application/json", body);
    vary(&mut response, zipped);
    response
}

fn vary(response: &mut Response<Body>, zipped: bool) {
    let headers = response.headers_mut();
    headers.insert(VARY, HeaderValue::from_static("Accept, Accept-Encoding"));
    if zipped {
        headers.insert(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
    }
}

fn compressed(body: &[u8]) -> Bytes {
    let mut gzip = GzEncoder::new(Vec::new(), Compression::new(1));
    gzip.write_all(body).expect("a vector takes everything");
    gzip.finish().expect("a vector takes everything").into()
}

fn to_yaml(json: &[u8]) -> Result<String, Status> {
    let value: Value = serde_json::from_slice(json).map_err(Status::internal)?;
    serde_saphyr::to_string(&value).map_err(Status::internal)
}

/// The answer to a HEAD request: the head that a GET would get, and no body.
pub(crate) fn without_body(response: Response<Body>) -> Response<Body> {
    let (mut head, body) = response.into_parts();
    if let Some(bytes) = body.size_hint().exact() {
        head.headers.insert(CONTENT_LENGTH, HeaderValue::from(bytes));
    }
    Response::from_parts(head, Bytes::new().into())
}

/// Tells the client what it should know, besides the answer (W38).
pub(crate) fn warn(response: &mut Response<Body>, warnings: &[String]) {
    for warning in warnings {
        let text = warning.replace('\\', "\\\\").replace('"', "\\\"");
        if let Ok(value) = HeaderValue::from_str(&format!("299 - \"{text}\"")) {
            response.headers_mut().append(WARNING, value);
        }
    }
}
