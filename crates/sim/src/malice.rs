//! A server that answers as badly as it can, and a reflector in front of it.
//!
//! Each seed draws a scheme: a few answers to lists and a few treatments of watches, repeated for as long as
//! the run lasts, since a client is driven mad by repetition and not by accident. Answers take no time, so
//! whatever waits there are, the client made them itself. Judged are the requests in any minute (I7) and
//! the memory of a list under way (I8).
//!
//! ```
//! let run = masthead_sim::malice::run(7);
//! assert_eq!(masthead_sim::malice::judge(&run), Ok(()));
//! ```

use std::collections::VecDeque;

use masthead_core::{Object, Resource, Scope, Status, Time};
use masthead_reflector::{
    Failure, ListAt, Output, Page, Reflector, Report, RequestId, Settings, Start, Strategy,
    WatchItem,
};

use crate::dice::Dice;

/// How long a run lasts on the virtual clock.
const RUN_MS: u64 = 240_000;
/// A run is over after this many requests: one that is not slowed down reaches it in no time.
const REQUESTS_MAX: u64 = 6_000;
/// The window in which requests are counted.
const WINDOW_MS: u64 = 60_000;
/// Requests in any window: ten tiny pages a second with a failure between each two, and some 200 for the full
/// pages of the attempts that the backoff leaves room for.
const WINDOW_REQUESTS_MAX: usize = 1_400;
/// Batches of a state without end: several times what a list may hold.
const ENDLESS_BATCHES: usize = 60;
/// What a list may hold in a run.
const LIST_BYTES_MAX: usize = 1024 * 1024;
/// The text of a large object: a full page of them is a good part of what a list may hold.
const LARGE_BYTES: usize = 8 * 1024;
/// What one page or event may add before it is noticed that a list is too large.
const ONE_ANSWER_BYTES_MAX: usize = 512 * 1024;

/// What came of a run.
#[derive(Debug)]
pub struct Run {
    /// The answers that the server chose from, for people.
    pub scheme: String,
    /// Requests in all.
    pub requests: u64,
    /// The most requests in any minute.
    pub busiest_minute: usize,
    /// The most memory that a list under way held.
    pub staged_bytes: usize,
    /// How the client sees itself at the end.
    pub report: Report,
    /// The client waits for nothing at all.
    pub hangs: bool,
}

/// Says what is wrong with a run.
pub fn judge(run: &Run) -> Result<(), String> {
    let Run { scheme, requests, busiest_minute, staged_bytes, report, hangs } = run;
    let wrong = if *hangs {
        "waits for nothing".to_owned()
    } else if *busiest_minute > WINDOW_REQUESTS_MAX {
        format!("I7: {busiest_minute} requests in a minute, {requests} in all")
    } else if *staged_bytes > LIST_BYTES_MAX + ONE_ANSWER_BYTES_MAX {
        format!("I8: a list held {staged_bytes} bytes")
    } else {
        return Ok(());
    };
    Err(format!("{wrong}\n  {scheme}\n  {report}"))
}

/// Runs the scheme of a seed.
pub fn run(seed: u64) -> Run {
    let mut dice = Dice::new(seed ^ 0x6d61_6c69_6365);
    let settings = Settings {
        strategy: dice.one_of(&[Strategy::Streaming, Strategy::Pages, Strategy::Pages]),
        page_objects: 20,
        page_objects_min: dice.one_of(&[5, 10]),
        page_objects_max: 40,
        list_bytes_max: LIST_BYTES_MAX,
        ..Settings::default()
    };
    let scheme = Scheme::draw(&mut dice);
    let text = format!("{scheme:?}, {:?}", settings.strategy);
    let machine = Reflector::new(settings, Start::Empty, seed, Time(0));
    let server = Server { scheme, revision: 10, key: 0, tokens: 0, lists: 0, watches: 0 };
    let mut world = World {
        machine,
        server,
        now: Time(0),
        recent: VecDeque::new(),
        requests: 0,
        busiest_minute: 0,
        staged_bytes: 0,
    };
    let hangs = !world.live();
    Run {
        scheme: text,
        requests: world.requests,
        busiest_minute: world.busiest_minute,
        staged_bytes: world.staged_bytes,
        report: world.machine.report(world.now),
        hangs,
    }
}

/// How a list is answered.
#[derive(Clone, Copy, Debug)]
enum ListAnswer {
    /// Keys that rise without end.
    Endless,
    /// The same keys on each page, under a token that may be the same too.
    SameKeys {
        same_token: bool,
    },
    /// Each page begins before the one before it.
    FallingKeys,
    /// No object, and a token for more.
    Empty,
    /// Objects of another kind, and a token for more.
    WrongKind,
    /// One small object a page.
    Tiny,
    /// A page of another revision than the one before.
    OtherRevision,
    /// The token is expired, with or without a fresh one.
    Expired {
        fresh: bool,
    },
    Code(u16),
    /// 429 with `Retry-After: 0`.
    RetryAtOnce,
    Cut,
    /// Claims to have timed out, in no time.
    TimedOut,
    /// A whole list at this resource version.
    At(&'static str),
    /// A whole list, newer than all before.
    Newer,
}

/// How a watch is treated: what it says, and how it ends.
#[derive(Clone, Copy, Debug)]
enum WatchAnswer {
    Refused(u16),
    Says(Word, Ending),
}

#[derive(Clone, Copy, Debug)]
enum Word {
    Nothing,
    News,
    Old,
    Unknown,
    Bookmark,
    OldBookmark,
    /// The end of the initial events, at once.
    InitialEnd,
    /// More initial events than anybody can hold.
    EndlessState,
    /// The same initial event again and again.
    SameState,
}

#[derive(Clone, Copy, Debug)]
enum Ending {
    Closed,
    Reset,
    Unreadable,
    Error(u16),
    /// It stays open and says nothing more.
    Stays,
}

const LIST_ANSWERS: [ListAnswer; 22] = [
    ListAnswer::Endless,
    ListAnswer::SameKeys { same_token: true },
    ListAnswer::SameKeys { same_token: false },
    ListAnswer::FallingKeys,
    ListAnswer::Empty,
    ListAnswer::WrongKind,
    ListAnswer::Tiny,
    ListAnswer::OtherRevision,
    ListAnswer::Expired { fresh: true },
    ListAnswer::Expired { fresh: false },
    ListAnswer::Code(400),
    ListAnswer::Code(410),
    ListAnswer::Code(500),
    ListAnswer::Code(504),
    ListAnswer::RetryAtOnce,
    ListAnswer::Cut,
    ListAnswer::TimedOut,
    ListAnswer::At("1"),
    ListAnswer::At(""),
    ListAnswer::At("junk"),
    ListAnswer::Newer,
    ListAnswer::Newer,
];

const WORDS: [Word; 9] = [
    Word::Nothing,
    Word::News,
    Word::Old,
    Word::Unknown,
    Word::Bookmark,
    Word::OldBookmark,
    Word::InitialEnd,
    Word::EndlessState,
    Word::SameState,
];

const ENDINGS: [Ending; 7] = [
    Ending::Closed,
    Ending::Reset,
    Ending::Unreadable,
    Ending::Error(410),
    Ending::Error(500),
    Ending::Error(400),
    Ending::Stays,
];

/// What a server does again and again.
#[derive(Debug)]
struct Scheme {
    lists: Vec<ListAnswer>,
    watches: Vec<WatchAnswer>,
}

impl Scheme {
    fn draw(dice: &mut Dice) -> Self {
        // Where no list is ever whole, no watch is opened after one.
        let always_whole = dice.chance(40);
        let lists = dice.between(1, 4);
        let watches = dice.between(1, 3);
        let mut list = || {
            if always_whole { ListAnswer::Newer } else { dice.one_of(&LIST_ANSWERS) }
        };
        Self {
            lists: (0..lists).map(|_| list()).collect(),
            watches: (0..watches).map(|_| WatchAnswer::draw(dice)).collect(),
        }
    }
}

impl WatchAnswer {
    fn draw(dice: &mut Dice) -> Self {
        if dice.chance(30) {
            return Self::Refused(dice.one_of(&[400, 401, 404, 410, 422, 429, 500, 504]));
        }
        Self::Says(dice.one_of(&WORDS), dice.one_of(&ENDINGS))
    }
}

struct World {
    machine: Reflector,
    server: Server,
    now: Time,
    /// When the requests of the last minute were made.
    recent: VecDeque<u64>,
    requests: u64,
    busiest_minute: usize,
    staged_bytes: usize,
}

impl World {
    /// Lives until the time is over or far too much was asked; false if the client hangs.
    fn live(&mut self) -> bool {
        while self.now.0 < RUN_MS && self.requests < REQUESTS_MAX {
            match self.machine.poll_output() {
                Some(Output::List { id, request }) => {
                    self.asked();
                    let answer = self.server.list(&request.at, request.limit);
                    match answer {
                        Ok(page) => self.machine.handle_page(id, page, self.now),
                        Err(failure) => self.machine.handle_failure(id, &failure, self.now),
                    }
                }
                Some(Output::Watch { id, .. }) => {
                    self.asked();
                    self.watch(id);
                }
                Some(_) => {}
                None => {
                    let Some(next) = self.machine.poll_timeout() else { return false };
                    self.now = self.now.max(next);
                    self.machine.handle_timeout(self.now);
                }
            }
            self.staged_bytes = self.staged_bytes.max(self.machine.staged_bytes());
        }
        true
    }

    fn asked(&mut self) {
        self.requests += 1;
        self.recent.push_back(self.now.0);
        while self.recent.front().is_some_and(|then| then + WINDOW_MS <= self.now.0) {
            self.recent.pop_front();
        }
        self.busiest_minute = self.busiest_minute.max(self.recent.len());
    }

    fn watch(&mut self, id: RequestId) {
        let (word, ending) = match self.server.watch() {
            WatchAnswer::Refused(code) => {
                let failure = Failure::from_response(code, b"", Some(0).filter(|_| code == 429));
                return self.machine.handle_failure(id, &failure, self.now);
            }
            WatchAnswer::Says(word, ending) => (word, ending),
        };
        self.machine.handle_watch_open(id, self.now);
        let many = matches!(word, Word::EndlessState | Word::SameState);
        for _ in 0..if many { ENDLESS_BATCHES } else { 1 } {
            let items = self.server.say(word);
            self.machine.handle_events(id, items, self.now);
            self.staged_bytes = self.staged_bytes.max(self.machine.staged_bytes());
        }
        match ending {
            Ending::Closed => self.machine.handle_end(id, self.now),
            Ending::Reset => {
                self.machine.handle_failure(id, &Failure::Reset("by peer".into()), self.now);
            }
            Ending::Unreadable => {
                self.machine.handle_failure(id, &Failure::Decode("no JSON".into()), self.now);
            }
            Ending::Error(code) => {
                let error = WatchItem::Error(Status::of_response(code, b""));
                self.machine.handle_events(id, vec![error], self.now);
            }
            Ending::Stays => {}
        }
    }
}

struct Server {
    scheme: Scheme,
    revision: u64,
    /// The greatest key given out.
    key: u64,
    tokens: u64,
    lists: usize,
    watches: usize,
}

impl Server {
    fn list(&mut self, at: &ListAt, limit: usize) -> Result<Page, Failure> {
        let answer = self.scheme.lists[self.lists % self.scheme.lists.len()];
        self.lists += 1;
        let first = !matches!(at, ListAt::Continue(_));
        let mut page = Page { resource_version: self.revision.to_string(), ..Page::default() };
        page.continue_token = self.token();
        match answer {
            ListAnswer::Endless => page.objects = self.rising(limit),
            ListAnswer::SameKeys { same_token } => {
                page.objects = (0..5).map(|key| object(key, 1)).collect();
                if same_token {
                    "the same".clone_into(&mut page.continue_token);
                }
            }
            ListAnswer::FallingKeys => {
                let from = u64::MAX / 2 - 100 * self.lists as u64;
                page.objects = (from..from + 5).map(|key| object(key, 1)).collect();
            }
            ListAnswer::Empty => {}
            ListAnswer::WrongKind => page.skipped = limit,
            ListAnswer::Tiny => page.objects = vec![object(self.next_key(), 1)],
            ListAnswer::OtherRevision => {
                self.revision += 1;
                page.resource_version = self.revision.to_string();
                page.objects = self.rising(limit);
            }
            ListAnswer::Expired { .. } | ListAnswer::Code(410) if first => {
                return Err(Failure::from_response(410, b"", None));
            }
            ListAnswer::Expired { fresh } => {
                let token = if fresh { page.continue_token } else { String::new() };
                let body = format!(
                    r#"{{"kind":"Status","metadata":{{"continue":"{token}"}},"reason":"Expired","code":410}}"#
                );
                return Err(Failure::from_response(410, body.as_bytes(), None));
            }
            ListAnswer::Code(code) => return Err(Failure::from_response(code, b"", None)),
            ListAnswer::RetryAtOnce => return Err(Failure::from_response(429, b"", Some(0))),
            ListAnswer::Cut => return Err(Failure::Reset("by peer".into())),
            ListAnswer::TimedOut => return Err(Failure::TimedOut { progress: true }),
            ListAnswer::At(version) => {
                page.continue_token.clear();
                version.clone_into(&mut page.resource_version);
            }
            ListAnswer::Newer => {
                self.revision += 1;
                page.continue_token.clear();
                page.resource_version = self.revision.to_string();
                page.objects = self.rising(2);
            }
        }
        Ok(page)
    }

    fn watch(&mut self) -> WatchAnswer {
        let answer = self.scheme.watches[self.watches % self.scheme.watches.len()];
        self.watches += 1;
        answer
    }

    fn say(&mut self, word: Word) -> Vec<WatchItem> {
        let bookmark = |revision: u64, initial_events_end| WatchItem::Bookmark {
            resource_version: revision.to_string(),
            initial_events_end,
        };
        match word {
            Word::Nothing => Vec::new(),
            Word::News => {
                self.revision += 1;
                vec![WatchItem::Modified(object(0, self.revision))]
            }
            Word::Old => vec![WatchItem::Modified(object(0, 1))],
            Word::Unknown => vec![WatchItem::Skipped; 10],
            Word::Bookmark => {
                self.revision += 1;
                vec![bookmark(self.revision, false)]
            }
            Word::OldBookmark => vec![bookmark(1, false)],
            Word::InitialEnd => vec![bookmark(self.revision, true)],
            Word::EndlessState => self.rising(10).into_iter().map(WatchItem::Added).collect(),
            Word::SameState => vec![WatchItem::Added(large(0)); 10],
        }
    }

    fn token(&mut self) -> String {
        self.tokens += 1;
        format!("t{}", self.tokens)
    }

    fn next_key(&mut self) -> u64 {
        self.key += 1;
        self.key
    }

    /// Large objects with keys that rise.
    fn rising(&mut self, count: usize) -> Vec<Object> {
        (0..count).map(|_| large(self.next_key())).collect()
    }
}

fn object(key: u64, revision: u64) -> Object {
    made(key, revision, "")
}

fn large(key: u64) -> Object {
    made(key, 1, &"x".repeat(LARGE_BYTES))
}

fn made(key: u64, revision: u64, text: &str) -> Object {
    let things = Resource::new("test", "v1", "things", "Thing", Scope::Cluster);
    let body = format!(
        r#"{{"metadata":{{"name":"n{key:020}","resourceVersion":"{revision}"}},"x":"{text}"}}"#
    );
    Object::parse(&things, body.into()).expect("is an object")
}
