//! A request on its way out.

use bytes::Bytes;
use http::header::{ACCEPT, ACCEPT_ENCODING, CONTENT_TYPE, HOST, USER_AGENT};
use http::uri::{PathAndQuery, Scheme};
use http::{HeaderMap, HeaderValue, Method, Request, Uri};
use http_body_util::Full;
use masthead_core::Status;
use masthead_reflector::Failure;

use crate::address::Address;
use crate::connector::Payload;

/// A request, apart from who sends it and how.
#[derive(Clone, Debug)]
pub(crate) struct Outgoing {
    method: Method,
    path: PathAndQuery,
    pub(crate) headers: HeaderMap,
    body: Bytes,
}

impl Outgoing {
    /// A request for this path and query, below what stands before all paths of the server.
    pub(crate) fn new(prefix: &str, path: &str, accept: &'static str) -> Result<Self, Failure> {
        let path = PathAndQuery::try_from(format!("{prefix}{path}")).ok();
        let path = path.filter(|it| it.path().starts_with('/'));
        let path = path.ok_or_else(|| Status::bad_request("the path cannot be asked for"))?;
        let headers = HeaderMap::from_iter([(ACCEPT, HeaderValue::from_static(accept))]);
        Ok(Self { method: Method::GET, path, headers, body: Bytes::new() })
    }

    /// The same as a POST of JSON.
    pub(crate) fn posting(mut self, body: Bytes) -> Self {
        self.headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        Self { method: Method::POST, body, ..self }
    }

    /// How the answer may be packed, and who asks.
    pub(crate) fn with(mut self, gzip: bool, user_agent: HeaderValue) -> Self {
        let encoding = HeaderValue::from_static(if gzip { "gzip" } else { "identity" });
        self.headers.insert(ACCEPT_ENCODING, encoding);
        self.headers.insert(USER_AGENT, user_agent);
        self
    }

    /// Returns `true` if sending the request twice does no harm.
    pub(crate) fn is_safe(&self) -> bool {
        self.method.is_safe()
    }

    pub(crate) fn for_http1(&self, address: &Address) -> Request<Payload> {
        let mut request = self.request(Full::new(self.body.clone()));
        if let Ok(host) = HeaderValue::from_str(&address.authority) {
            request.headers_mut().insert(HOST, host);
        }
        request
    }

    pub(crate) fn for_http2(&self, address: &Address) -> Request<Payload> {
        let mut request = self.request(Full::new(self.body.clone()));
        let scheme = if address.secure { Scheme::HTTPS } else { Scheme::HTTP };
        let whole = Uri::builder().scheme(scheme).authority(&*address.authority);
        if let Ok(uri) = whole.path_and_query(self.path.clone()).build() {
            *request.uri_mut() = uri;
        }
        request
    }

    pub(crate) fn for_client(&self) -> Request<kube_client::client::Body> {
        self.request(self.body.clone().into())
    }

    fn request<B>(&self, body: B) -> Request<B> {
        let mut request = Request::new(body);
        *request.method_mut() = self.method.clone();
        *request.uri_mut() = self.path.clone().into();
        *request.headers_mut() = self.headers.clone();
        request
    }
}
