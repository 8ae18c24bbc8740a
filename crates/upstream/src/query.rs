//! The query of a list or watch, as text.

use std::fmt::{self, Write};

use masthead_core::Selectors;
use masthead_reflector::{ListRequest, WatchRequest};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

/// What may stand in a query or a path as it is.
const ESCAPED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// Percent-encoded.
pub(crate) fn encoded(text: &str) -> impl fmt::Display {
    utf8_percent_encode(text, ESCAPED)
}

#[derive(Clone, Default, Debug)]
pub(crate) struct Query(String);

impl Query {
    /// What every request of a source has.
    pub(crate) fn selecting(selectors: &Selectors) -> Self {
        let mut query = Self::default();
        let Selectors { labels, fields, shard } = selectors;
        if !labels.is_everything() {
            query.add("labelSelector", labels);
        }
        if !fields.is_everything() {
            query.add("fieldSelector", fields);
        }
        if !shard.is_everything() {
            query.add("shardSelector", shard);
        }
        query
    }

    /// A page. After the first it carries no resource version, only the token (R3).
    pub(crate) fn list(mut self, request: &ListRequest) -> Self {
        if request.limit > 0 {
            self.add("limit", request.limit);
        }
        let at = &request.at;
        self.add_some("resourceVersion", at.resource_version());
        self.add_some("resourceVersionMatch", at.resource_version_match());
        self.add_some("continue", at.continue_token());
        self
    }

    /// A watch (R2, R5).
    pub(crate) fn watch(mut self, request: &WatchRequest) -> Self {
        self.add("watch", true);
        self.add("allowWatchBookmarks", true);
        self.add("timeoutSeconds", request.timeout.as_secs());
        let version = Some(request.resource_version()).filter(|it| !it.is_empty());
        self.add_some("resourceVersion", version);
        if request.initial_events() {
            self.add("sendInitialEvents", true);
            self.add("resourceVersionMatch", "NotOlderThan");
        }
        self
    }

    fn add_some(&mut self, name: &str, value: Option<&str>) {
        if let Some(value) = value {
            self.add(name, value);
        }
    }

    fn add(&mut self, name: &str, value: impl fmt::Display) {
        let between = if self.0.is_empty() { "" } else { "&" };
        let value = value.to_string();
        write!(self.0, "{between}{name}={}", encoded(&value)).expect("a text takes any text");
    }
}

impl fmt::Display for Query {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use masthead_core::{FieldSelector, Resource};
    use masthead_reflector::{ListAt, WatchFrom};

    use super::*;

    fn list(at: ListAt) -> String {
        Query::default()
            .list(&ListRequest { at, limit: 500, bytes_max: usize::MAX, elsewhere: false })
            .0
    }

    fn watch(from: WatchFrom) -> String {
        let timeout = Duration::from_secs(300);
        Query::default().watch(&WatchRequest { from, timeout, elsewhere: false }).0
    }

    #[test]
    fn r03_pages_after_the_first_carry_only_the_token() {
        assert_eq!(list(ListAt::Latest), "limit=500");
        assert_eq!(list(ListAt::Cached), "limit=500&resourceVersion=0");
        let exact = "limit=500&resourceVersion=7&resourceVersionMatch=Exact";
        assert_eq!(list(ListAt::Exact("7".into())), exact);
        assert_eq!(list(ListAt::Continue("a=/+".into())), "limit=500&continue=a%3D%2F%2B");
    }

    #[test]
    fn r05_watches_ask_for_bookmarks_and_an_end() {
        let all = "watch=true&allowWatchBookmarks=true&timeoutSeconds=300";
        assert_eq!(watch(WatchFrom::After("7".into())), format!("{all}&resourceVersion=7"));
        assert_eq!(watch(WatchFrom::After(String::new())), all);
        let initial = "sendInitialEvents=true&resourceVersionMatch=NotOlderThan";
        assert_eq!(watch(WatchFrom::State { cached: false }), format!("{all}&{initial}"));
        let cached = watch(WatchFrom::State { cached: true });
        assert_eq!(cached, format!("{all}&resourceVersion=0&{initial}"));
    }

    #[test]
    fn what_is_sent_is_what_a_server_reads() {
        let pods = Resource::pods();
        let selectors = Selectors {
            labels: "app in (web,api),!old,n!=ü".parse().unwrap_or_default(),
            fields: FieldSelector::parse(r"metadata.name=a\,b,status.phase!=Failed", &pods)
                .unwrap(),
            shard: "shardRange(object.metadata.uid,'0x0','0x8000000000000000')"
                .parse()
                .unwrap_or_default(),
        };
        let query = Query::selecting(&selectors).list(&ListRequest {
            at: ListAt::Latest,
            limit: 10,
            bytes_max: usize::MAX,
            elsewhere: false,
        });
        let read = masthead_core::ListOptions::from_query(&query.0, &pods, "").unwrap();
        assert_eq!((read.selectors, read.limit.map_or(0, usize::from)), (selectors, 10));
    }
}
