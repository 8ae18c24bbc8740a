//! What can happen in a run.

use masthead_sim::history::Scope;
use proptest::prelude::*;

#[derive(Clone, Debug)]
pub(crate) struct Script {
    /// Changes that the history keeps.
    pub(crate) changes: usize,
    pub(crate) steps: Vec<Step>,
}

#[derive(Clone, Debug)]
pub(crate) enum Step {
    /// A write to the store: the key's number, and what it becomes.
    Write {
        key: usize,
        to: Option<State>,
    },
    /// All writes since the last time reach the cache, in one batch.
    Apply,
    /// The source says how far it has told everything, some revisions on.
    Bookmark(u64),
    /// The source was away: writes since the last time come as a list.
    Relist,
    /// A list from before what the cache has seen.
    OldList(u64),
    /// Time passes, in seconds.
    Pass(u64),
    Open(Watch),
    Read {
        reader: usize,
        max: usize,
    },
    /// A reader is asked how far it is.
    Ask {
        reader: usize,
    },
    Close {
        reader: usize,
    },
    /// A list in pages, at so many revisions back, with writes between the pages.
    List {
        back: Option<u64>,
        query: usize,
        limit: usize,
    },
    /// Takes a snapshot and keeps it.
    Hold {
        back: u64,
    },
    Release {
        held: usize,
    },
    /// Looks at everything at every revision.
    Audit {
        query: usize,
    },
    AddIndex,
}

#[derive(Clone, Debug)]
pub(crate) struct State {
    pub(crate) app: Option<&'static str>,
    pub(crate) tier: Option<&'static str>,
    pub(crate) node: Option<&'static str>,
    /// A new object under the name, if one is there.
    pub(crate) recreate: bool,
}

#[derive(Clone, Debug)]
pub(crate) struct Watch {
    pub(crate) query: usize,
    pub(crate) from: From,
}

#[derive(Clone, Debug)]
pub(crate) enum From {
    State,
    /// So many revisions before the present, or after it.
    Back(u64),
    Ahead(u64),
}

pub(crate) const KEYS: [&str; 7] = ["a/x", "a/y", "ab/x", "a-b/x", "b/x", "b/y", "b/z"];

/// Scopes with selectors of every kind.
pub(crate) fn queries() -> Vec<(Scope, &'static str, &'static str)> {
    let ns = |name: &str| Scope::Namespace(name.to_owned());
    vec![
        (Scope::All, "", ""),
        (ns("a"), "", ""),
        (ns("ab"), "", ""),
        (Scope::Name("a/x".to_owned()), "", ""),
        (Scope::All, "app=web", ""),
        (ns("b"), "app=web", ""),
        (Scope::All, "app in (web,db)", ""),
        (Scope::All, "app!=web", ""),
        (Scope::All, "app notin (web,db),tier", ""),
        (Scope::All, "!app", ""),
        (Scope::All, "tier>1", ""),
        (Scope::All, "tier<2,app=web", ""),
        (Scope::All, "", "spec.nodeName=n1"),
        (Scope::All, "", "spec.nodeName="),
        (Scope::All, "", "spec.nodeName!=n1"),
        (Scope::All, "app=db", "spec.nodeName=n2"),
        (Scope::All, "", "metadata.name=x"),
        (Scope::All, "", "metadata.namespace=a"),
        (ns("b"), "", "metadata.name=y,spec.nodeName=n1"),
    ]
}

fn state() -> impl Strategy<Value = State> {
    let app = prop_oneof![Just(None), Just(Some("web")), Just(Some("db"))];
    let tier = prop_oneof![3 => Just(None), 1 => Just(Some("1")), 1 => Just(Some("2"))];
    let node = prop_oneof![Just(None), Just(Some("n1")), Just(Some("n2"))];
    (app, tier, node, prop::bool::weighted(0.1)).prop_map(|(app, tier, node, recreate)| State {
        app,
        tier,
        node,
        recreate,
    })
}

fn watch() -> impl Strategy<Value = Watch> {
    let from = prop_oneof![
        2 => Just(From::State),
        4 => (0_u64..12).prop_map(From::Back),
        1 => (1_u64..4).prop_map(From::Ahead),
    ];
    (0..queries().len(), from).prop_map(|(query, from)| Watch { query, from })
}

fn step() -> impl Strategy<Value = Step> {
    let query = || 0..queries().len();
    let write = (0..KEYS.len(), prop::option::weighted(0.8, state()))
        .prop_map(|(key, to)| Step::Write { key, to });
    prop_oneof![
        30 => write,
        12 => Just(Step::Apply),
        2 => (0_u64..3).prop_map(Step::Bookmark),
        2 => Just(Step::Relist),
        1 => (1_u64..5).prop_map(Step::OldList),
        1 => (1_u64..90).prop_map(Step::Pass),
        8 => watch().prop_map(Step::Open),
        12 => (0_usize..8, 1_usize..6).prop_map(|(reader, max)| Step::Read { reader, max }),
        5 => (0_usize..8).prop_map(|reader| Step::Ask { reader }),
        1 => (0_usize..8).prop_map(|reader| Step::Close { reader }),
        3 => (prop::option::of(0_u64..8), query(), 0_usize..4)
            .prop_map(|(back, query, limit)| Step::List { back, query, limit }),
        3 => (0_u64..8).prop_map(|back| Step::Hold { back }),
        2 => (0_usize..6).prop_map(|held| Step::Release { held }),
        1 => query().prop_map(|query| Step::Audit { query }),
        1 => Just(Step::AddIndex),
    ]
}

pub(crate) fn script() -> impl Strategy<Value = Script> {
    (1_usize..16, prop::collection::vec(step(), 1..120))
        .prop_map(|(changes, steps)| Script { changes, steps })
}
