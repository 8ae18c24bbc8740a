//! What a list or watch request asks for (W1–W9).

use std::num::NonZeroUsize;
use std::time::Duration;

use crate::{
    ContinueToken, FieldSelector, LabelSelector, Resource, Revision, Selectors, ShardSelector,
    Status, StatusCause,
};

mod params;

use params::Params;

/// A request for a collection, understood and checked.
///
/// ```
/// use masthead_core::{ListAt, Query, Resource, Revision};
///
/// let query = Query::parse("resourceVersion=7&limit=500", &Resource::pods(), "")?;
/// let Query::List(list) = query else { panic!("no watch was asked for") };
/// assert_eq!(list.at, ListAt::Exact(Revision(7)), "with a limit, the old meaning");
/// # Ok::<(), masthead_core::Status>(())
/// ```
#[derive(Clone, PartialEq, Debug)]
pub enum Query {
    /// The objects, once.
    List(ListOptions),
    /// The objects or their changes, as they happen.
    Watch(WatchOptions),
}

/// What a list shows.
#[derive(Clone, PartialEq, Debug)]
pub struct ListOptions {
    /// Which objects.
    pub selectors: Selectors,
    /// Of which moment.
    pub at: ListAt,
    /// At most how many on a page; none where the whole list is to come at once.
    pub limit: Option<NonZeroUsize>,
    /// How long the answer may take, if the client says so.
    pub timeout: Option<Duration>,
}

/// What a watch shows.
#[derive(Clone, PartialEq, Debug)]
pub struct WatchOptions {
    /// Which objects.
    pub selectors: Selectors,
    /// From where on.
    pub from: WatchFrom,
    /// Whether the client understands bookmarks.
    pub bookmarks: bool,
    /// When the stream ends, if the client says so (W3).
    pub timeout: Option<Duration>,
}

/// The moment that a list shows (W7).
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ListAt {
    /// Now: nothing acknowledged before the request may be missing.
    MostRecent,
    /// Whatever is cached, however old.
    Cached,
    /// This revision or a later one.
    NotOlderThan(Revision),
    /// This very revision.
    Exact(Revision),
    /// The next page of the list that the token names.
    Continue(ContinueToken),
}

/// Where a watch begins (W9).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WatchFrom {
    /// With the state, as `ADDED` events, and then its changes.
    State {
        /// How new the state must be.
        fresh: Freshness,
        /// Whether a marked bookmark follows the state (W21).
        initial_events_end: bool,
    },
    /// With the changes after the state that is there when the watch begins, without that state.
    Now(Freshness),
    /// With the changes after this revision.
    After(Revision),
}

/// How new a state must be.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Freshness {
    /// Nothing acknowledged before the request may be missing.
    MostRecent,
    /// However old.
    Cached,
    /// At least this revision.
    NotOlderThan(Revision),
}

const EXACT: &str = "Exact";
const NOT_OLDER_THAN: &str = "NotOlderThan";
const MATCH: &str = "resourceVersionMatch";
const MATCH_WITH_TOKEN: &str = "resourceVersionMatch is forbidden when continue is provided";

impl Query {
    /// Reads the query of a URL (without its question mark) for a collection of one namespace or
    /// (empty) of all. The error is the answer: 400 or 422.
    pub fn parse(query: &str, resource: &Resource, namespace: &str) -> Result<Self, Status> {
        let params = Params::parse(query)?;
        if params.flag("watch")? == Some(true) {
            return WatchOptions::from_params(&params, resource).map(Self::Watch);
        }
        ListOptions::from_params(&params, resource, namespace).map(Self::List)
    }

    /// Does the query ask for a watch? Also answers for a query that [`Query::parse`] would refuse,
    /// since rights are checked first and the verb decides over them.
    pub fn is_watch(query: &str) -> bool {
        let params = Params::parse(query);
        // What is neither yes nor no is refused either way; a watch is the more that could be
        // asked.
        params.is_ok_and(|params| params.flag("watch").unwrap_or(Some(true)) == Some(true))
    }
}

impl ListOptions {
    /// Reads a query as that of a list, whatever it says of `watch`.
    pub fn from_query(query: &str, resource: &Resource, namespace: &str) -> Result<Self, Status> {
        Self::from_params(&Params::parse(query)?, resource, namespace)
    }

    fn from_params(
        params: &Params<'_>,
        resource: &Resource,
        namespace: &str,
    ) -> Result<Self, Status> {
        let labels = labels(params)?;
        let asked = Asked::new(params)?;
        let limit = params.integer("limit")?.and_then(|it| usize::try_from(it).ok());
        let limit = limit.and_then(NonZeroUsize::new);
        let seconds = params.seconds("timeoutSeconds")?;
        let timeout = seconds.into_iter().chain(params.duration("timeout")?).min();
        refuse(asked.list_causes())?;
        let selectors = selectors(labels, params, resource)?;
        let at = asked.list_at(limit.is_some(), namespace)?;
        // Whatever is cached comes at once: there is no moment to go on from.
        let limit = limit.filter(|_| at != ListAt::Cached);
        Ok(Self { selectors, at, limit, timeout })
    }
}

impl WatchOptions {
    /// Reads a query as that of a watch, whatever it says of `watch`: for the old `/watch/` paths.
    pub fn from_query(query: &str, resource: &Resource) -> Result<Self, Status> {
        Self::from_params(&Params::parse(query)?, resource)
    }

    fn from_params(params: &Params<'_>, resource: &Resource) -> Result<Self, Status> {
        let labels = labels(params)?;
        let asked = Asked::new(params)?.with_watch_defaults();
        let bookmarks = params.flag("allowWatchBookmarks")?.unwrap_or(false);
        let timeout = params.seconds("timeoutSeconds")?;
        // Without meaning here, but what does not parse is a mistake all the same.
        params.integer("limit")?;
        refuse(asked.watch_causes())?;
        let selectors = selectors(labels, params, resource)?;
        Ok(Self { selectors, from: asked.watch_from(bookmarks), bookmarks, timeout })
    }
}

fn labels(params: &Params<'_>) -> Result<LabelSelector, Status> {
    LabelSelector::parse(params.text("labelSelector")).map_err(Status::bad_request)
}

fn selectors(
    labels: LabelSelector,
    params: &Params<'_>,
    resource: &Resource,
) -> Result<Selectors, Status> {
    let fields = FieldSelector::parse(params.text("fieldSelector"), resource);
    let fields = fields.map_err(Status::bad_request)?;
    let shard = ShardSelector::parse(params.text("shardSelector")).map_err(Status::bad_request)?;
    Ok(Selectors { labels, fields, shard })
}

fn refuse(causes: Vec<StatusCause>) -> Result<(), Status> {
    if causes.is_empty() { Ok(()) } else { Err(Status::invalid_options(causes)) }
}

/// The parameters that say which moment is meant, as they stand in the query.
struct Asked<'a> {
    version: &'a str,
    /// None for a version that is absent or no number.
    revision: Option<Revision>,
    matching: &'a str,
    token: &'a str,
    initial_events: Option<bool>,
}

impl<'a> Asked<'a> {
    fn new(params: &'a Params<'_>) -> Result<Self, Status> {
        let version = params.text("resourceVersion");
        Ok(Self {
            version,
            revision: version.parse().ok(),
            matching: params.text(MATCH),
            token: params.text("continue"),
            initial_events: params.flag("sendInitialEvents")?,
        })
    }

    fn is_zero(&self) -> bool {
        self.revision == Some(Revision::ZERO)
    }

    /// W4.
    fn with_watch_defaults(mut self) -> Self {
        let nothing_said = self.matching.is_empty() && self.initial_events.is_none();
        if nothing_said && (self.version.is_empty() || self.is_zero()) {
            self.initial_events = Some(true);
            self.matching = NOT_OLDER_THAN;
        }
        self
    }

    /// In kube-apiserver's order, as are those of a watch.
    fn list_causes(&self) -> Vec<StatusCause> {
        let forbid = StatusCause::forbidden;
        let mut causes = Vec::new();
        if !self.matching.is_empty() {
            if self.version.is_empty() {
                let why = "resourceVersionMatch is forbidden unless resourceVersion is provided";
                causes.push(forbid(MATCH, why));
            }
            if !self.token.is_empty() {
                causes.push(forbid(MATCH, MATCH_WITH_TOKEN));
            }
            if !matches!(self.matching, EXACT | NOT_OLDER_THAN) {
                let supported = [EXACT, NOT_OLDER_THAN, ""];
                causes.push(StatusCause::not_supported(MATCH, self.matching, &supported));
            }
            if self.matching == EXACT && self.is_zero() {
                let why = r#"resourceVersionMatch "exact" is forbidden for resourceVersion "0""#;
                causes.push(forbid(MATCH, why));
            }
        }
        if self.initial_events.is_some() {
            let why = "sendInitialEvents is forbidden for list";
            causes.push(forbid("sendInitialEvents", why));
        }
        causes
    }

    fn watch_causes(&self) -> Vec<StatusCause> {
        let forbid = |why| StatusCause::forbidden(MATCH, why);
        let mut causes = Vec::new();
        if self.initial_events.is_some() && self.matching != NOT_OLDER_THAN {
            let why = "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan";
            causes.push(forbid(why));
        }
        if !self.matching.is_empty() {
            if self.initial_events.is_none() {
                let why = "resourceVersionMatch is forbidden for watch unless sendInitialEvents is \
                           provided";
                causes.push(forbid(why));
            }
            if self.matching != NOT_OLDER_THAN {
                causes.push(StatusCause::not_supported(MATCH, self.matching, &[NOT_OLDER_THAN]));
            }
            if !self.token.is_empty() {
                causes.push(forbid(MATCH_WITH_TOKEN));
            }
        }
        if !self.version.is_empty() && self.revision.is_none() {
            let why = "must be a decimal number";
            causes.push(StatusCause::invalid("resourceVersion", self.version, why));
        }
        causes
    }

    /// W7, after [`Asked::list_causes`] found nothing.
    fn list_at(&self, limited: bool, namespace: &str) -> Result<ListAt, Status> {
        if !self.token.is_empty() {
            if !matches!(self.version, "" | "0") {
                let why = "specifying resource version is not allowed when using continue";
                return Err(Status::bad_request(why));
            }
            let token = ContinueToken::decode(self.token, namespace);
            return token.map(ListAt::Continue).map_err(Status::bad_request);
        }
        Ok(match (self.revision, self.matching) {
            (None, _) if self.version.is_empty() => ListAt::MostRecent,
            (None, _) => {
                let why =
                    format!("invalid resource version: {:?} is no decimal number", self.version);
                return Err(Status::bad_request(why));
            }
            (Some(Revision::ZERO), _) => ListAt::Cached,
            (Some(revision), EXACT) => ListAt::Exact(revision),
            (Some(revision), "") if limited => ListAt::Exact(revision),
            (Some(revision), _) => ListAt::NotOlderThan(revision),
        })
    }

    /// W9, after [`Asked::watch_causes`] found nothing.
    fn watch_from(&self, bookmarks: bool) -> WatchFrom {
        let fresh = match self.revision {
            None => Freshness::MostRecent,
            Some(Revision::ZERO) => Freshness::Cached,
            Some(revision) => Freshness::NotOlderThan(revision),
        };
        match (self.initial_events, fresh) {
            (Some(true), _) => WatchFrom::State { fresh, initial_events_end: bookmarks },
            (_, Freshness::NotOlderThan(revision)) => WatchFrom::After(revision),
            _ => WatchFrom::Now(fresh),
        }
    }
}
