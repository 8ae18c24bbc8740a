//! From a request to its answer.

use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::header::CONTENT_LENGTH;
use http::{Method, Request, Response, StatusCode, Version};
use http_body::Body as _;
use hyper::body::Incoming;
use masthead_core::{
    ListBody, ListMeta, ListOptions, Object, Query, Reason, Revision, Status, WatchOptions,
};
use masthead_store::{Health, Store};
use serde_json::Value;
use tokio::sync::watch;
use tokio::time::timeout;
use tracing::{debug, error};

use crate::authn::{Tokens, User, authenticate, refuse_impersonation};
use crate::authz::{Authorized, authorize, authorize_path};
use crate::body::Body;
use crate::budget::{Budget, Share};
use crate::catalog::Catalog;
use crate::definitions;
use crate::discovery;
use crate::document::{self, Document, Format, Members};
use crate::feed::Feed;
use crate::flights::{Connection, Flights, spread_retry};
use crate::limits::{ESTABLISH_WAIT, GZIP_BYTES_MIN, JSON_VALUE_BYTES, Limits, YAML_LIST_FACTOR};
use crate::listing::{ListStream, Listed};
use crate::metrics::{Metrics, RequestLabels};
use crate::negotiate::{self, Encoding};
use crate::packing;
use crate::params::{self, FieldValidation, WriteOptions};
use crate::patch::Patch;
use crate::reads::{Reads, Watcher};
use crate::respond::{self, Answer};
use crate::route::{Route, Subresource, Target, Verb};
use crate::scale;
use crate::tasks::Tasks;
use crate::writes::{Changed, DeleteOptions, Writes};
use crate::zipped::{Pieces, Zipper};

/// Everything that answers requests.
pub(crate) struct App {
    pub(crate) catalog: Arc<Catalog>,
    pub(crate) feed: Arc<Feed>,
    pub(crate) reads: Arc<Reads>,
    pub(crate) writes: Arc<Writes>,
    pub(crate) store: Arc<dyn Store>,
    pub(crate) flights: Arc<Flights>,
    pub(crate) pieces: Arc<Pieces>,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) limits: Arc<Limits>,
    pub(crate) tokens: Tokens,
    pub(crate) reading: Arc<Budget>,
    pub(crate) writing: Arc<Budget>,
    /// Bodies of requests.
    pub(crate) receiving: Arc<Budget>,
    pub(crate) defined: watch::Receiver<u64>,
    pub(crate) tasks: Arc<Tasks>,
    /// Whether everything exists that clients count on, such as the default namespaces.
    pub(crate) begun: watch::Receiver<bool>,
    pub(crate) address: String,
    pub(crate) began: Instant,
}

/// The one at the other end of a connection.
pub(crate) struct Peer {
    pub(crate) connection: Arc<Connection>,
    /// Who its certificate says it is.
    pub(crate) certificate: Option<Arc<User>>,
    /// Too many are connected: it gets no answer but that.
    pub(crate) refused: bool,
}

/// A request whose sender may do what it asks.
struct Asked {
    proof: Authorized<Target>,
    user: Arc<User>,
    connection: Arc<Connection>,
    request: Request<Incoming>,
    /// The body of a write, which has been received before anything else is done for it.
    body: Bytes,
    /// What the body holds of the budget for bodies.
    held: Option<Share>,
}

impl Asked {
    fn query(&self) -> &str {
        self.request.uri().query().unwrap_or_default()
    }

    /// Reads the body. What its values take in memory counts like its bytes.
    fn document(&mut self, format: Format) -> Result<Document, Status> {
        let document = Document::read(&self.body, format)?;
        if let Some(held) = &mut self.held {
            held.grow(document.values * JSON_VALUE_BYTES)?;
        }
        Ok(document)
    }

    fn gzip(&self) -> bool {
        negotiate::takes_gzip(self.request.headers())
    }

    fn accept(&self) -> Result<Encoding, Status> {
        negotiate::accept(self.request.headers(), self.proof.verb() == Verb::Watch)
    }
}

impl App {
    /// Answers a request, whatever it is.
    pub(crate) async fn handle(&self, request: Request<Incoming>, peer: &Peer) -> Response<Body> {
        let began = Instant::now();
        if request.version() == Version::HTTP_2 {
            peer.connection.note_multiplexed();
        }
        let mut labels = RequestLabels {
            verb: "other",
            group: String::new(),
            version: String::new(),
            resource: String::new(),
            subresource: "",
            code: 0,
        };
        let method = request.method().clone();
        let path = request.uri().path().to_owned();
        let answer = self.answer(request, peer, &mut labels).await;
        let response = answer.unwrap_or_else(|status| {
            // A revision of the future is the client's own affair. Why a store takes no writes, it logs once.
            let is_refused = status.code() == 503 && self.store.health() != Health::Writable;
            let is_known = status.is_too_large_resource_version() || is_refused;
            if status.code() >= 500 && !is_known {
                error!(%method, path, code = status.code(), error = status.message(), "failed");
            }
            respond::status(&status)
        });
        labels.code = response.status().as_u16();
        debug!(%method, path, code = labels.code, took = ?began.elapsed(), "answered");
        self.metrics.answered(&labels, began.elapsed().as_secs_f64());
        if method == Method::HEAD { respond::without_body(response) } else { response }
    }

    async fn answer(
        &self,
        request: Request<Incoming>,
        peer: &Peer,
        labels: &mut RequestLabels,
    ) -> Answer {
        let uri = request.uri();
        let length = uri.path().len() + uri.query().map_or(0, |it| it.len() + 1);
        if length > self.limits.uri_bytes {
            let limit = self.limits.uri_bytes;
            let why = format!("the URI has {length} bytes, the limit (max-uri-bytes) is {limit}");
            return Err(Status::with(414, Reason::Other("RequestURITooLong".to_owned()), why));
        }
        if peer.refused {
            let limit = self.limits.connections;
            let why = format!("{limit} connections are open, which is the limit (max-connections)");
            return Err(Status::too_many_requests(why, spread_retry(5)));
        }
        if let "/livez" | "/readyz" | "/healthz" = uri.path().trim_end_matches('/') {
            let (path, query) = (uri.path().trim_matches('/'), uri.query().unwrap_or_default());
            return self.health(path, query).await;
        }
        let user = authenticate(request.headers(), peer.certificate.as_ref(), &self.tokens)?;
        refuse_impersonation(request.headers())?;
        let kinds = self.catalog.now();
        let route = Route::parse(uri.path(), &kinds);
        let target = match route {
            Ok(Route::Resource(target)) => target,
            other => {
                authorize_path(&user, uri.path())?;
                if request.method() != Method::GET && request.method() != Method::HEAD {
                    let why = format!("{} is not served here", request.method());
                    return Err(Status::with(405, Reason::MethodNotAllowed, why));
                }
                return self.document(other?, request.headers()).await;
            }
        };
        let resource = &target.kind.resource;
        resource.group().clone_into(&mut labels.group);
        resource.version().clone_into(&mut labels.version);
        resource.plural().clone_into(&mut labels.resource);
        labels.subresource = target.subresource.map_or("", Subresource::as_str);
        let Some(verb) = target.verb(request.method(), uri.query().unwrap_or_default()) else {
            authorize_path(&user, uri.path())?;
            return Err(Status::method_not_allowed(resource, request.method().as_str()));
        };
        labels.verb = verb.as_str();
        let proof = authorize(&user, verb, target)?;
        let (connection, body) = (peer.connection.clone(), Bytes::new());
        self.dispatch(Asked { proof, user, connection, request, body, held: None }).await
    }

    /// Receives the body if there is one to receive, and answers: each in the time of a request.
    async fn dispatch(&self, mut asked: Asked) -> Answer {
        let verb = asked.proof.verb();
        let limit = self.limits.request_timeout;
        // A body that does not come holds nothing but what has come of it.
        if !verb.reads() {
            let received = timeout(limit, self.receive(&mut asked)).await;
            asked.held = Some(received.unwrap_or_else(|_| Err(late_body(limit)))?);
        }
        let answered = timeout(limit, self.carry_out(asked)).await;
        answered.unwrap_or_else(|_| Err(Status::timeout("the request took too long", 1)))
    }

    async fn carry_out(&self, asked: Asked) -> Answer {
        let verb = asked.proof.verb();
        if verb == Verb::Watch {
            return self.watch(&asked).await;
        }
        let writes = !verb.reads();
        let _counted = self.metrics.in_flight(writes);
        let budget = if writes { &self.writing } else { &self.reading };
        let _place = budget.take(&asked.user, &asked.connection, 1)?;
        match verb {
            Verb::Get => self.get(&asked).await,
            Verb::List => self.list(&asked).await,
            Verb::Create => self.create(asked).await,
            Verb::Update | Verb::Patch => self.change(asked).await,
            Verb::Delete => self.delete(asked).await,
            Verb::DeleteCollection => self.delete_collection(asked).await,
            Verb::Watch => unreachable!("answered above"),
        }
    }

    /// What is no object.
    async fn document(&self, route: Route, headers: &http::HeaderMap) -> Answer {
        let kinds = self.catalog.now();
        let value = match route {
            Route::Version => discovery::version(),
            Route::Metrics => {
                return self.metrics.text().map(respond::metrics).map_err(Status::internal);
            }
            Route::Statz => self.statistics(),
            Route::Groups { legacy: true } => discovery::legacy_versions(&self.address),
            Route::Groups { legacy: false } => discovery::groups(&kinds),
            Route::Group(group) => discovery::group(&kinds, &group)?,
            Route::GroupVersion(group, version) => discovery::resources(&kinds, &group, &version)?,
            Route::OpenApi(None) => discovery::openapi_index(&kinds),
            Route::OpenApi(Some(path)) => discovery::openapi_document(&kinds, &path)?,
            Route::Health(check) => return self.health(&check, "").await,
            Route::Resource(_) => return Err(Status::no_such_path()),
        };
        let encoding = negotiate::accept(headers, false)?;
        if encoding.format == Format::Json {
            return Ok(respond::json(&value));
        }
        respond::whole(StatusCode::OK, value.to_string().into(), encoding, false)
    }

    /// Answers the health checks: whether the server is alive, and whether it can answer.
    async fn health(&self, check: &str, query: &str) -> Answer {
        let (filled, replayed) = (self.reads.is_ready(), self.feed.is_replayed());
        let mut checks = vec![("ping", true, String::new())];
        if check != "livez" {
            checks.push(("caches", filled, "not all caches are filled yet".to_owned()));
            checks.push(("replay", replayed, "the kept history is being replayed".to_owned()));
            let begun = *self.begun.borrow();
            checks.push(("namespaces", begun, "default namespaces are being made".to_owned()));
            let lag = if filled && replayed { self.reads.lag().await } else { None };
            checks.push(("store", lag.is_none(), lag.unwrap_or_default()));
            let writable = self.store.health() == Health::Writable;
            // Nobody has to say who they are to ask this, so it does not say where the store is.
            let why = "the store takes no writes: /statz and the server's log say why".to_owned();
            checks.push(("writable", writable, why));
            let why =
                "a task of the server panicked: /statz and the server's log say which".to_owned();
            checks.push(("tasks", self.tasks.panics() == 0, why));
        }
        let failed = checks.iter().any(|(_, fine, _)| !fine);
        let code = if failed { StatusCode::SERVICE_UNAVAILABLE } else { StatusCode::OK };
        if !failed && params::find(query, "verbose")?.is_none() {
            return Ok(respond::text(code, "ok".to_owned()));
        }
        let line = |(name, fine, why): &(&str, bool, String)| {
            if *fine { format!("[+]{name} ok\n") } else { format!("[-]{name} failed: {why}\n") }
        };
        let mut lines: Vec<_> = checks.iter().map(line).collect();
        lines.push(format!("{check} check {}\n", if failed { "failed" } else { "passed" }));
        let text = lines.concat();
        Ok(respond::text(code, text))
    }

    async fn get(&self, asked: &Asked) -> Answer {
        let encoding = asked.accept()?;
        let object = self.reads.get(&asked.proof, params::freshness(asked.query())?).await?;
        show(StatusCode::OK, &object, asked, encoding)
    }

    async fn list(&self, asked: &Asked) -> Answer {
        let encoding = asked.accept()?;
        let proof = &asked.proof;
        let resource = &proof.kind.resource;
        let options = ListOptions::from_query(asked.query(), resource, &proof.namespace)?;
        let list = self.reads.list(proof, &options).await?;
        let (served, projection) = (list.served, encoding.projection);
        let bodies = || list.objects.iter().map(Object::whole_bytes).sum::<usize>();
        let gzip = asked.gzip() && encoding.format == Format::Json && bodies() >= GZIP_BYTES_MIN;
        let zipper = gzip.then(|| Zipper::new(&self.pieces, served, projection, &list.objects));
        let slices = if list.compressed {
            ListBody::opening(resource, &list.meta, list.objects, projection, packing::open)
        } else {
            ListBody::new(resource, &list.meta, list.objects, projection)
        };
        if encoding.format == Format::Yaml {
            let bytes = slices.bytes().saturating_mul(YAML_LIST_FACTOR);
            let share = self.flights.reserve(&asked.user, &asked.connection, bytes)?;
            let answer = respond::yaml_list(slices, asked.gzip())?;
            return Ok(respond::counted(answer, share));
        }
        let bytes = slices.bytes();
        let listed = Listed::new(slices, zipper);
        let ticket = self.flights.list(&asked.connection, resource, &asked.user, listed, bytes)?;
        Ok(respond::stream(Body::List(ListStream::new(ticket)), gzip))
    }

    async fn watch(&self, asked: &Asked) -> Answer {
        let projection = asked.accept()?.projection;
        let (resource, query) = (&asked.proof.kind.resource, asked.query());
        let options = if asked.proof.watch_path {
            WatchOptions::from_query(query, resource)?
        } else {
            match Query::parse(query, resource, &asked.proof.namespace)? {
                Query::Watch(options) => options,
                Query::List(_) => return Err(Status::bad_request("watch is not true")),
            }
        };
        let watcher = Watcher {
            user: &asked.user,
            connection: &asked.connection,
            projection,
            query_bytes: query.len(),
        };
        let stream = self.reads.watch(&asked.proof, options, watcher).await?;
        Ok(respond::stream(Body::Watch(Box::new(stream)), false))
    }

    async fn create(&self, mut asked: Asked) -> Answer {
        let encoding = asked.accept()?;
        let options = WriteOptions::from_query(asked.query())?;
        let (members, warnings) = read_object(&mut asked, options)?;
        let object = self.writes.create(&asked.proof, members, options.dry_run).await?;
        self.established(&asked.proof, object.revision()).await;
        let mut response = show(StatusCode::CREATED, &object, &asked, encoding)?;
        respond::warn(&mut response, &warnings);
        Ok(response)
    }

    /// A definition is served when its write is answered (W39).
    async fn established(&self, proof: &Authorized<Target>, revision: Revision) {
        if proof.kind.is(definitions::GROUP, "customresourcedefinitions") {
            let mut defined = self.defined.clone();
            let _ = timeout(ESTABLISH_WAIT, defined.wait_for(|it| *it >= revision.0)).await;
        }
    }

    async fn change(&self, mut asked: Asked) -> Answer {
        let encoding = asked.accept()?;
        let options = WriteOptions::from_query(asked.query())?;
        let (changed, warnings) = if asked.proof.verb() == Verb::Patch {
            let content_type = negotiate::content_type(asked.request.headers())?;
            let patch = Patch::read(&content_type, |format| asked.document(format))?;
            let changed = self.writes.patch(&asked.proof, &patch, options.dry_run).await?;
            (changed, Vec::new())
        } else {
            let (members, warnings) = read_object(&mut asked, options)?;
            let changed = self.writes.update(&asked.proof, members, options.dry_run).await?;
            (changed, warnings)
        };
        if let Changed::Put(object) = &changed {
            self.established(&asked.proof, object.revision()).await;
        }
        let mut response = show(StatusCode::OK, changed.object(), &asked, encoding)?;
        respond::warn(&mut response, &warnings);
        Ok(response)
    }

    async fn delete(&self, mut asked: Asked) -> Answer {
        let encoding = asked.accept()?;
        let options = delete_options(&mut asked)?;
        match self.writes.delete(&asked.proof, &options).await? {
            Changed::Deleted(object) => {
                let resource = &asked.proof.kind.resource;
                let status = Status::deleted(resource, &asked.proof.name, object.uid());
                respond::whole(StatusCode::OK, status.to_json().into(), encoding, false)
            }
            // Somebody holds it: this is what it looks like while it goes.
            kept => show(StatusCode::OK, kept.object(), &asked, encoding),
        }
    }

    async fn delete_collection(&self, mut asked: Asked) -> Answer {
        let encoding = asked.accept()?;
        let resource = asked.proof.kind.resource.clone();
        let list = ListOptions::from_query(asked.query(), &resource, &asked.proof.namespace)?;
        let options = delete_options(&mut asked)?;
        let objects = self.writes.delete_collection(&asked.proof, &list, &options).await?;
        let revision = self.reads.current().await?;
        let meta = ListMeta { revision, ..ListMeta::default() };
        let slices = ListBody::new(&resource, &meta, objects, encoding.projection);
        // They are deleted already, so the answer is made also if there is no room for it.
        let share = self.flights.reserve(&asked.user, &asked.connection, slices.bytes()).ok();
        let json: Vec<u8> = slices.flat_map(|it| it.to_vec()).collect();
        let answer = respond::whole(StatusCode::OK, json.into(), encoding, asked.gzip())?;
        Ok(match share {
            Some(share) => respond::counted(answer, share),
            None => answer,
        })
    }

    /// Receives the body of a request, within its limit (W38). It has a share of what all may have until
    /// the request is answered.
    async fn receive(&self, asked: &mut Asked) -> Result<Share, Status> {
        let limit = self.limits.body_bytes;
        let declared = asked.request.headers().get(CONTENT_LENGTH);
        let declared = declared.and_then(|it| it.to_str().ok()).and_then(|it| it.parse().ok());
        let declared: usize = declared.unwrap_or(0);
        let mut share = self.receiving.take(&asked.user, &asked.connection, 0)?;
        let mut parts = Vec::new();
        let mut length = 0;
        while let Some(part) = next_part(asked.request.body_mut()).await? {
            length += part.len();
            // What is too large is read on for a while: a client that is still writing does not
            // look at the answer.
            if length > 2 * limit {
                break;
            }
            if length.max(declared) <= limit {
                share.grow(part.len())?;
                parts.push(part);
            }
        }
        if length.max(declared) > limit {
            return Err(Status::request_too_large());
        }
        asked.body = if parts.len() == 1 { parts.swap_remove(0) } else { parts.concat().into() };
        Ok(share)
    }
}

/// The object in the body, and what is to be said about it.
fn read_object(asked: &mut Asked, options: WriteOptions) -> Result<(Members, Vec<String>), Status> {
    let format = negotiate::body_format(asked.request.headers())?;
    let document = asked.document(format)?;
    let twice: Vec<_> =
        document.duplicates.iter().map(|path| format!("duplicate field {path:?}")).collect();
    let warnings = match options.field_validation {
        FieldValidation::Strict if !twice.is_empty() => {
            let why = format!("strict decoding error: {}", twice.join(", "));
            return Err(Status::bad_request(why));
        }
        FieldValidation::Warn => twice,
        _ => Vec::new(),
    };
    Ok((document.into_members()?, warnings))
}

fn delete_options(asked: &mut Asked) -> Result<DeleteOptions, Status> {
    let format = negotiate::body_format(asked.request.headers());
    let dry_run = WriteOptions::from_query(asked.query())?.dry_run;
    let mut options = if asked.body.is_empty() {
        DeleteOptions::default()
    } else {
        DeleteOptions::read(&asked.document(format?)?.into_members()?)?
    };
    options.dry_run |= dry_run;
    Ok(options)
}

/// The answer to a client whose body does not arrive in time.
fn late_body(limit: Duration) -> Status {
    let why = format!("the body of the request did not arrive within {limit:?} (request-timeout)");
    Status::with(408, Reason::Other("RequestTimeout".to_owned()), why)
}

/// The next part of a body; none at its end.
async fn next_part(body: &mut Incoming) -> Result<Option<Bytes>, Status> {
    loop {
        let mut pinned = Pin::new(&mut *body);
        match std::future::poll_fn(|cx| pinned.as_mut().poll_frame(cx)).await {
            None => return Ok(None),
            Some(Ok(frame)) => {
                if let Ok(data) = frame.into_data() {
                    return Ok(Some(data));
                }
            }
            Some(Err(error)) => {
                let why = format!("the body of the request cannot be read: {error}");
                return Err(Status::bad_request(why));
            }
        }
    }
}

/// An object as its subresource shows it.
fn show(
    code: StatusCode,
    object: &masthead_core::Object,
    asked: &Asked,
    encoding: Encoding,
) -> Answer {
    let gzip = asked.gzip();
    match (asked.proof.subresource, &asked.proof.kind.scale) {
        (Some(Subresource::Scale), Some(scale)) => {
            let shown = scale::of(scale, &document::members(object)?);
            let json = Value::Object(shown).to_string();
            respond::whole(code, json.into(), encoding, gzip)
        }
        _ => respond::object(code, object, encoding, gzip),
    }
}
