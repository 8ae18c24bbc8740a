//! Random histories: correct ones pass, and one wrong line is always caught.

#![allow(clippy::unwrap_used, reason = "a test may fail by panicking, also in its helpers")]

use std::collections::BTreeMap;

use masthead_sim::history::{
    Cache, Call, Commit, CommitOp, Frame, FrameType, Handler, Informer, Item, List, ListResp,
    Match, Open, Relisted, RunEnd, Scope, Synced,
};
use masthead_sim::{Event, History, Log, Query, Record, check};
use proptest::prelude::*;

const KEYS: [&str; 6] = ["a/x", "a/y", "a/z", "ab/x", "b/x", "b/y"];
const SELECTORS: [&str; 4] = ["", "app=web", "app!=web", "app in (web, db)"];

/// How long after the last commit the run ends: long enough for every deadline but the idle
/// bookmark's.
const SETTLE_MS: u64 = 40_000;

/// One change: which key, update or delete if it exists, which label, how far the counter and
/// the clock move: 40 steps and the settling stay below the time for an idle bookmark.
type Step = (usize, bool, usize, u64, u64);

fn step() -> impl Strategy<Value = Step> {
    (0..KEYS.len(), prop::bool::weighted(0.3), 0..3_usize, 1..4_u64, 1..800_u64)
}

#[derive(Clone, Debug)]
struct Plan {
    scope: usize,
    selector: usize,
    begin: Begin,
    /// Places in the log: what the client knew, and where the log was when it asked.
    known: prop::sample::Index,
    now: prop::sample::Index,
    /// After which frames a bookmark follows.
    bookmarks: u64,
    page: usize,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Begin {
    Resume,
    Marked,
    Unmarked,
}

fn plan() -> impl Strategy<Value = Plan> {
    let begin = prop_oneof![Just(Begin::Resume), Just(Begin::Marked), Just(Begin::Unmarked)];
    let places = (any::<prop::sample::Index>(), any::<prop::sample::Index>());
    (0..4_usize, 0..SELECTORS.len(), begin, places, any::<u64>(), 0..4_usize).prop_map(
        |(scope, selector, begin, (known, now), bookmarks, page)| Plan {
            scope,
            selector,
            begin,
            known,
            now,
            bookmarks,
            page,
        },
    )
}

fn log_of(steps: &[Step]) -> Log {
    let mut log = Log::default();
    let (mut rv, mut t) = (0, 0);
    for (place, (key, delete, label, more, later)) in steps.iter().enumerate() {
        (rv, t) = (rv + more, t + later);
        let before = log.object_at(KEYS[*key], rv);
        let op = match (before.is_some(), delete) {
            (false, _) => CommitOp::Create,
            (true, false) => CommitOp::Update,
            (true, true) => CommitOp::Delete,
        };
        let uid = before.map_or_else(|| format!("u{place}"), |before| before.uid.clone());
        let hash = match (op, before) {
            (CommitOp::Delete, Some(before)) => before.hash,
            _ => 1_000 + place as u64,
        };
        let labels = ["web", "db"].get(*label).map(|app| ("app".to_owned(), (*app).to_owned()));
        let labels = labels.into_iter().collect();
        let fields = BTreeMap::new();
        assert!(log.push(Commit { rv, t, key: KEYS[*key].into(), uid, op, hash, labels, fields }));
    }
    log
}

fn scope_of(plan: &Plan) -> Scope {
    let namespace = |name: &str| Scope::Namespace(name.to_owned());
    [Scope::All, namespace("a"), namespace("b"), Scope::Name("a/x".into())][plan.scope].clone()
}

/// The revision and time of a place in the log.
fn moment(log: &Log, place: prop::sample::Index) -> (u64, u64) {
    let commit = &log.commits()[place.index(log.commits().len())];
    (commit.rv, commit.t)
}

fn history_of(log: &Log, plans: &[Plan]) -> Vec<Record> {
    let mut records: Vec<Record> = log.commits().iter().cloned().map(Record::from).collect();
    for (number, plan) in plans.iter().enumerate() {
        let query = Query::new(scope_of(plan), SELECTORS[plan.selector], "").unwrap();
        let (known, now) = (moment(log, plan.known), moment(log, plan.now));
        let (known, now) = (known.min(now), known.max(now));
        let who = format!("c{number}");
        if plan.begin == Begin::Resume {
            list(log, &query, plan, &who, known, &mut records);
        }
        watch(log, &query, plan, &who, known.0, now, &mut records);
    }
    informer(log, &mut records);
    let end = log.commits().last().map_or(0, |commit| commit.t) + SETTLE_MS;
    records.push(RunEnd { t: end }.into());
    records
}

fn list(
    log: &Log,
    query: &Query,
    plan: &Plan,
    who: &str,
    (rv, t): (u64, u64),
    records: &mut Vec<Record>,
) {
    let items: Vec<Item> = log.select(query, rv).into_values().map(item).collect();
    let pages: Vec<&[Item]> = match plan.page {
        0 => vec![&items],
        _ if items.is_empty() => vec![&[]],
        page => items.chunks(page).collect(),
    };
    for (number, page) in pages.iter().enumerate() {
        let id = format!("{who}-{number}");
        let token = |number: usize| format!("{who}-after-{number}");
        let first = number == 0;
        records.push(Record::List(List {
            id: id.clone(),
            who: who.to_owned(),
            scope: query.scope().clone(),
            selector: SELECTORS[plan.selector].to_owned(),
            fields: String::new(),
            rv: first.then_some(rv),
            matching: first.then_some(Match::Exact),
            limit: plan.page as u64,
            token: number.checked_sub(1).map(token),
            t0: t,
        }));
        records.push(Record::ListResp(ListResp {
            id,
            code: 200,
            reason: String::new(),
            rv,
            items: page.to_vec(),
            token: (number + 1 < pages.len()).then(|| token(number)),
            retry_after_ms: None,
            injected: false,
            t1: t + 1,
        }));
    }
}

fn item(commit: &Commit) -> Item {
    Item { key: commit.key.clone(), uid: commit.uid.clone(), rv: commit.rv, hash: commit.hash }
}

fn watch(
    log: &Log,
    query: &Query,
    plan: &Plan,
    who: &str,
    known: u64,
    (now, t0): (u64, u64),
    records: &mut Vec<Record>,
) {
    let initial = plan.begin != Begin::Resume;
    let bookmarks = plan.begin != Begin::Unmarked;
    records.push(Record::Open(Open {
        sid: who.to_owned(),
        who: who.to_owned(),
        scope: query.scope().clone(),
        selector: SELECTORS[plan.selector].to_owned(),
        fields: String::new(),
        from: (!initial).then_some(known),
        initial,
        bookmarks,
        oldest: Some(known),
        current: Some(now),
        injected: false,
        t0,
    }));
    let bookmark = |rv, t, initial_end| {
        let frame = frame(who, FrameType::Bookmark, None, rv, t);
        Record::Frame(Frame { initial_end, ..frame })
    };
    if initial {
        for commit in log.select(query, now).into_values() {
            records.push(frame(who, FrameType::Added, Some(commit), commit.rv, t0 + 1).into());
        }
    }
    if plan.begin == Begin::Marked {
        records.push(bookmark(now, t0 + 1, true));
    }
    let begin = if initial { now } else { known };
    let events = log.proj(query, begin, u64::MAX);
    for (place, event) in events.iter().enumerate() {
        let Event { kind, commit, object } = *event;
        let t = commit.t.max(t0) + 1;
        records.push(frame(who, kind, Some(object), commit.rv, t).into());
        let next = events.get(place + 1).map_or(commit.rv + 5, |next| next.commit.rv);
        match plan.bookmarks >> (2 * place % 64) & 3 {
            1 if bookmarks => records.push(bookmark(commit.rv, t, false)),
            2 if bookmarks => records.push(bookmark(next - 1, t, false)),
            _ => {}
        }
    }
}

fn frame(sid: &str, kind: FrameType, object: Option<&Commit>, rv: u64, t: u64) -> Frame {
    let (key, uid, hash) =
        object.map_or_else(Default::default, |it| (it.key.clone(), it.uid.clone(), it.hash));
    Frame { sid: sid.to_owned(), kind, key, uid, rv, hash, initial_end: false, t }
}

/// An informer over everything, with one handler, that lists in the middle of the log.
fn informer(log: &Log, records: &mut Vec<Record>) {
    let iid = "i".to_owned();
    let middle = &log.commits()[log.commits().len() / 2];
    let (rv, t) = (middle.rv, middle.t);
    let query = Query::default();
    records.push(Record::Informer(Informer {
        iid: iid.clone(),
        generation: 0,
        who: None,
        scope: Scope::All,
        selector: String::new(),
        fields: String::new(),
        saved: None,
        t,
    }));
    let mut told = BTreeMap::new();
    for commit in log.select(&query, rv).into_values() {
        told.insert(commit.key.clone(), commit.rv);
        records.extend(change(&iid, Call::Add, commit, None, Some(commit.rv), t));
    }
    records.push(Relisted { iid: iid.clone(), rv, t }.into());
    records.push(Synced { iid: iid.clone(), hid: None, rv, t }.into());
    for Event { kind, commit, .. } in log.proj(&query, rv, u64::MAX) {
        let (call, new) = match kind {
            FrameType::Added => (Call::Add, Some(commit.rv)),
            FrameType::Modified => (Call::Update, Some(commit.rv)),
            _ => (Call::Delete, None),
        };
        let old = told.remove(&commit.key);
        told.extend(new.map(|rv| (commit.key.clone(), rv)));
        records.extend(change(&iid, call, commit, old, new, commit.t + 1));
    }
}

fn change(
    iid: &str,
    call: Call,
    commit: &Commit,
    old_rv: Option<u64>,
    new_rv: Option<u64>,
    t: u64,
) -> [Record; 2] {
    let (iid, key) = (iid.to_owned(), commit.key.clone());
    let cache = Cache { iid: iid.clone(), generation: 0, t, key: key.clone(), rv: new_rv };
    [cache.into(), Handler { iid, hid: "h".to_owned(), call, key, old_rv, new_rv, t }.into()]
}

#[derive(Clone, Copy, Debug)]
enum Mutation {
    Drop,
    Duplicate,
    SwapWithNext,
    ChangeType,
    ChangeRevision(u64),
    ChangeHash,
    BookmarkTooEarly,
    DropHandlerCall,
    DropItem,
}

fn mutation() -> impl Strategy<Value = Mutation> {
    prop_oneof![
        Just(Mutation::Drop),
        Just(Mutation::Duplicate),
        Just(Mutation::SwapWithNext),
        Just(Mutation::ChangeType),
        (1..4_u64).prop_map(Mutation::ChangeRevision),
        Just(Mutation::ChangeHash),
        Just(Mutation::BookmarkTooEarly),
        Just(Mutation::DropHandlerCall),
        Just(Mutation::DropItem),
    ]
}

/// Applies the mutation at one of the places where it makes the history wrong; `false` if there
/// is none.
fn mutate(
    records: &mut Vec<Record>,
    plans: &[Plan],
    mutation: Mutation,
    choice: prop::sample::Index,
) -> bool {
    let fits = |place: &usize| fits(records, plans, mutation, *place);
    let places: Vec<usize> = (0..records.len()).filter(fits).collect();
    if places.is_empty() {
        return false;
    }
    let place = *choice.get(&places);
    match (mutation, &mut records[place]) {
        (Mutation::Drop | Mutation::DropHandlerCall, _) => {
            records.remove(place);
        }
        (Mutation::Duplicate, record) => {
            let again = record.clone();
            records.insert(place + 1, again);
        }
        (Mutation::SwapWithNext, _) => records.swap(place, place + 1),
        (Mutation::ChangeType, Record::Frame(frame)) => {
            frame.kind = match frame.kind {
                FrameType::Added => FrameType::Modified,
                FrameType::Modified => FrameType::Deleted,
                _ => FrameType::Added,
            };
        }
        (Mutation::ChangeRevision(by), Record::Frame(frame)) => frame.rv += by,
        (Mutation::ChangeHash, Record::Frame(frame)) => frame.hash += 1,
        (Mutation::BookmarkTooEarly, Record::Frame(frame)) => {
            let early = self::frame(&frame.sid, FrameType::Bookmark, None, frame.rv, frame.t);
            records.insert(place, early.into());
        }
        (Mutation::DropItem, Record::ListResp(answer)) => {
            answer.items.pop();
        }
        (mutation, record) => panic!("{mutation:?} does not fit {record:?}"),
    }
    true
}

fn fits(records: &[Record], plans: &[Plan], mutation: Mutation, place: usize) -> bool {
    let event = |place: usize| match records.get(place) {
        Some(Record::Frame(frame)) if frame.kind != FrameType::Bookmark => Some(frame),
        _ => None,
    };
    match mutation {
        // An update just before a delete may be left out: the delete speaks for both.
        Mutation::DropHandlerCall => {
            matches!(&records[place], Record::Handler(it) if it.call != Call::Update)
        }
        Mutation::DropItem => {
            matches!(&records[place], Record::ListResp(answer) if !answer.items.is_empty())
        }
        // The order of initial events is free, and without a mark it is not known where they end.
        Mutation::SwapWithNext => {
            let pair = event(place).zip(event(place + 1));
            pair.is_some_and(|(one, two)| one.sid == two.sid && one.rv < two.rv)
                && event(place).is_some_and(|frame| {
                    let number: usize = frame.sid[1..].parse().unwrap();
                    match plans[number].begin {
                        Begin::Resume => true,
                        Begin::Marked => marked_before(records, place),
                        Begin::Unmarked => false,
                    }
                })
        }
        // Before the mark any bookmark is wrong, and without initial events every early one.
        _ => event(place).is_some(),
    }
}

fn marked_before(records: &[Record], place: usize) -> bool {
    let before = records[..place].iter().rev();
    before
        .map_while(|record| match record {
            Record::Frame(frame) => Some(frame.initial_end),
            _ => None,
        })
        .any(|mark| mark)
}

/// At least 2,000 cases, more with `PROPTEST_CASES`.
fn config() -> ProptestConfig {
    let default = ProptestConfig::default();
    let cases = default.cases.max(2_000);
    // About one mutation in six finds no place to be made.
    let max_global_rejects = cases;
    ProptestConfig { cases, max_global_rejects, failure_persistence: None, ..default }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn a_correct_history_breaks_no_rule(
        steps in prop::collection::vec(step(), 1..40),
        plans in prop::collection::vec(plan(), 1..6),
    ) {
        let history: History = history_of(&log_of(&steps), &plans).into_iter().collect();
        let found = check(&history);
        prop_assert!(found.is_empty(), "{found:#?}");
    }

    #[test]
    fn one_wrong_line_is_caught(
        steps in prop::collection::vec(step(), 5..40),
        plans in prop::collection::vec(plan(), 1..4),
        mutation in mutation(),
        choice in any::<prop::sample::Index>(),
    ) {
        let mut records = history_of(&log_of(&steps), &plans);
        prop_assume!(mutate(&mut records, &plans, mutation, choice));
        let history: History = records.into_iter().collect();
        let mut bytes = Vec::new();
        history.write(&mut bytes).unwrap();
        prop_assert!(!check(&history).is_empty(), "{}", String::from_utf8(bytes).unwrap());
    }
}
