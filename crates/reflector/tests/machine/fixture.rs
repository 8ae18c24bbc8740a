//! Transition tests as text: what happens (`> …`), a line, what the machine does about it.
//!
//! ```text
//! > page 1 rv=10 a@3 b@4 next=tok more=5     a page of request 1, with its token
//! > open 1                                   the watch is granted
//! > events 1 +a@11 ~a@12 -a@13 mark@14 end@14 error=410 skip
//! > end 1                                    the stream is over
//! > fail 1 503 after=5                       or refused, timeout, reset, cut, 410 token=t
//! > bytes 1 100
//! > at 2500                                  time passes, up to then
//! > next                                     time passes, up to the next deadline
//! ----
//! list 2 latest limit=500                    and so on; `wait` is printed while waiting
//! ```

use std::collections::BTreeMap;

use masthead_core::{Mutation, Object, Resource, Scope, Status, Time};
use masthead_reflector::{
    Failure, FirstList, ListAt, Output, Page, Reflector, RequestId, Settings, Start, Strategy,
    WatchFrom, WatchItem,
};

pub(crate) struct Fixture {
    pub(crate) machine: Reflector,
    pub(crate) now: Time,
    ids: BTreeMap<u64, RequestId>,
    said_waiting: bool,
}

/// Runs a script; panics at the first difference.
pub(crate) fn run(settings: &str, script: &str) -> Fixture {
    let mut fixture = Fixture::new(settings);
    fixture.script(script);
    fixture
}

pub(crate) fn things() -> Resource {
    Resource::new("test", "v1", "things", "Thing", Scope::Cluster)
}

/// `name@rv` or `name@rv/uid` as an object.
pub(crate) fn object(text: &str) -> Object {
    let (name, version) = text.split_once('@').expect("name@rv");
    let (version, uid) = version.split_once('/').unwrap_or((version, "u"));
    let body = format!(
        r#"{{"metadata":{{"name":"{name}","uid":"{uid}","resourceVersion":"{version}"}}}}"#
    );
    Object::parse(&things(), body.into()).unwrap()
}

impl Fixture {
    pub(crate) fn new(words: &str) -> Self {
        let mut settings = Settings { strategy: Strategy::Pages, ..Settings::default() };
        let mut start = Start::Empty;
        for word in words.split_whitespace() {
            match word.split_once('=') {
                None if word == "streaming" => settings.strategy = Strategy::Streaming,
                None if word == "cached" => settings.first_list = FirstList::Cached,
                Some(("limit", n)) => {
                    settings.page_objects = n.parse().unwrap();
                    settings.page_objects_min =
                        settings.page_objects_min.min(settings.page_objects);
                }
                Some(("bytes", bytes)) => settings.list_bytes_max = bytes.parse().unwrap(),
                Some(("request", seconds)) => {
                    settings.progress = std::time::Duration::from_secs(1);
                    let seconds = seconds.parse().unwrap();
                    settings.request = Some(std::time::Duration::from_secs(seconds));
                }
                Some(("start", n)) => start = Start::NotBefore(n.parse().unwrap()),
                Some(("at", version)) => start = Start::At(version.to_owned()),
                _ => panic!("setting {word}"),
            }
        }
        settings.validate().unwrap();
        let machine = Reflector::new(settings, start, 1, Time(0));
        Self { machine, now: Time(0), ids: BTreeMap::new(), said_waiting: false }
    }

    pub(crate) fn script(&mut self, script: &str) {
        let mut expected = Vec::new();
        let mut got = self.outputs();
        for line in script.lines().map(str::trim).filter(|line| !line.is_empty()) {
            if let Some(input) = line.strip_prefix('>') {
                assert_eq!(got, expected, "before `{line}`");
                expected.clear();
                self.input(input.trim());
                got = self.outputs();
            } else if line != "----" {
                expected.push(line.to_owned());
            }
        }
        assert_eq!(got, expected, "at the end");
    }

    pub(crate) fn input(&mut self, line: &str) {
        let words: Vec<&str> = line.split_whitespace().collect();
        let id = |place: usize| {
            let number: u64 = words[place].parse().unwrap();
            self.ids.get(&number).copied().unwrap_or_else(|| panic!("no request {number}"))
        };
        match words[0] {
            "page" => self.machine.handle_page(id(1), page(&words[2..]), self.now),
            "open" => self.machine.handle_watch_open(id(1), self.now),
            "events" => {
                let items = words[2..].iter().map(|word| item(word)).collect();
                self.machine.handle_events(id(1), items, self.now);
            }
            "end" => self.machine.handle_end(id(1), self.now),
            "fail" => self.machine.handle_failure(id(1), &failure(&words[2..]), self.now),
            "bytes" => self.machine.handle_bytes(id(1), words[2].parse().unwrap(), self.now),
            "at" => self.pass_to(Time(words[1].parse().unwrap())),
            "next" => self.pass_to(self.machine.poll_timeout().unwrap()),
            other => panic!("input {other}"),
        }
    }

    fn pass_to(&mut self, until: Time) {
        self.now = until;
        self.machine.handle_timeout(until);
    }

    pub(crate) fn outputs(&mut self) -> Vec<String> {
        let mut lines = Vec::new();
        while let Some(output) = self.machine.poll_output() {
            lines.push(self.line(output));
        }
        let waiting = self.machine.report(self.now).next_try.is_some();
        if waiting && (!self.said_waiting || !lines.is_empty()) {
            lines.push("wait".to_owned());
        }
        self.said_waiting = waiting;
        lines
    }

    /// How long the machine is going to wait.
    pub(crate) fn wait_ms(&self) -> u64 {
        self.machine.report(self.now).next_try.expect("it waits").0 - self.now.0
    }

    fn line(&mut self, output: Output) -> String {
        match output {
            Output::List { id, request } => {
                let n = self.number(id);
                let at = match request.at {
                    ListAt::Latest => "latest".to_owned(),
                    ListAt::Cached => "cached".to_owned(),
                    ListAt::Exact(version) => format!("exact={version}"),
                    ListAt::Continue(token) => format!("continue={token}"),
                };
                let elsewhere = if request.elsewhere { " elsewhere" } else { "" };
                format!("list {n} {at} limit={}{elsewhere}", request.limit)
            }
            Output::Watch { id, request } => {
                let n = self.number(id);
                let seconds = request.timeout.as_secs();
                assert!((300..600).contains(&seconds), "R5: {seconds}");
                match request.from {
                    WatchFrom::State { cached: false } => format!("watch {n} state"),
                    WatchFrom::State { cached: true } => format!("watch {n} cached state"),
                    WatchFrom::After(version) => format!("watch {n} from={version}"),
                }
            }
            Output::Cancel { id } => format!("cancel {}", self.number(id)),
            Output::Apply(batch) => {
                let words: Vec<_> = batch.iter().map(mutation).collect();
                format!("apply {}", words.join(" "))
            }
            Output::Replace { objects, revision } => {
                format!("replace {revision}:{}", names(&objects))
            }
            Output::Rewound { from, to } => format!("rewound {from} to {to}"),
            Output::Rewind { objects, revision } => {
                format!("rewind {revision}:{}", names(&objects))
            }
            Output::Bookmark(revision) => format!("bookmark {revision}"),
        }
    }

    fn number(&mut self, id: RequestId) -> u64 {
        let number = id.to_string().parse().unwrap();
        self.ids.insert(number, id);
        number
    }
}

fn names(objects: &[Object]) -> String {
    let all: Vec<_> = objects.iter().map(|object| format!(" {object:?}")).collect();
    all.concat()
}

fn mutation(mutation: &Mutation) -> String {
    match mutation {
        Mutation::Put { revision, object } if object.revision() == *revision => {
            format!("put {object:?}")
        }
        Mutation::Put { revision, object } => format!("put {object:?} as {revision}"),
        Mutation::Delete { revision, key, .. } => format!("delete {key}@{revision}"),
    }
}

fn page(words: &[&str]) -> Page {
    let mut page = Page::default();
    for word in words {
        match word.split_once('=') {
            Some(("rv", version)) => version.clone_into(&mut page.resource_version),
            Some(("next", token)) => token.clone_into(&mut page.continue_token),
            Some(("more", count)) => page.remaining = Some(count.parse().unwrap()),
            Some(("skipped", count)) => page.skipped = count.parse().unwrap(),
            None => page.objects.push(object(word)),
            _ => panic!("page {word}"),
        }
    }
    page
}

fn item(word: &str) -> WatchItem {
    if word == "skip" {
        return WatchItem::Skipped;
    }
    if let Some(code) = word.strip_prefix("error=") {
        return WatchItem::Error(Status::of_response(code.parse().unwrap(), b""));
    }
    for (prefix, initial_events_end) in [("mark@", false), ("end@", true)] {
        if let Some(version) = word.strip_prefix(prefix) {
            let resource_version = version.to_owned();
            return WatchItem::Bookmark { resource_version, initial_events_end };
        }
    }
    match word.split_at(1) {
        ("+", rest) => WatchItem::Added(object(rest)),
        ("~", rest) => WatchItem::Modified(object(rest)),
        ("-", rest) => WatchItem::Deleted(object(rest)),
        _ => panic!("item {word}"),
    }
}

fn failure(words: &[&str]) -> Failure {
    let option = |name: &str| {
        words[1..].iter().find_map(|word| word.split_once('=').filter(|(key, _)| *key == name))
    };
    match words[0] {
        "refused" => Failure::Refused("nobody there".into()),
        "timeout" => Failure::TimedOut { progress: false },
        "reset" => Failure::Reset("by peer".into()),
        "cut" => Failure::Decode("end of text".into()),
        "410" => {
            let token = option("token").map_or("", |(_, token)| token);
            let body = format!(
                r#"{{"kind":"Status","apiVersion":"v1","metadata":{{"continue":"{token}"}},
                "reason":"Expired","code":410}}"#
            );
            Failure::from_response(410, body.as_bytes(), None)
        }
        "future" => Status::too_large_resource_version(9.into_revision(), 5.into_revision()).into(),
        code => {
            let after = option("after").map(|(_, seconds)| seconds.parse().unwrap());
            Failure::from_response(code.parse().unwrap(), b"", after)
        }
    }
}

trait IntoRevision {
    fn into_revision(self) -> masthead_core::Revision;
}

impl IntoRevision for u64 {
    fn into_revision(self) -> masthead_core::Revision {
        masthead_core::Revision(self)
    }
}
