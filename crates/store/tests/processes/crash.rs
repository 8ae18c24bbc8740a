//! What was acknowledged is there after a crash (K2).

use std::collections::BTreeMap;
use std::collections::hash_map::RandomState;
use std::hash::BuildHasher as _;
use std::path::Path;

use masthead_core::{ObjectKey, Revision};
use masthead_store::{EmbeddedStore, Op, Range, Store};

use crate::child::{Acknowledged, WRITERS, block_on, lines, pods, settings, start, write};

/// Everything that children were told, and what was seen of the store between them.
#[derive(Default)]
pub(crate) struct Witness {
    /// The revision of each object that was written; none if it was deleted last.
    objects: BTreeMap<ObjectKey, Option<Revision>>,
    newest: Revision,
    current: Revision,
    oldest: Revision,
}

#[test]
fn acknowledged_writes_survive_being_killed() {
    let rounds = std::env::var("MASTHEAD_ROUNDS").ok().and_then(|text| text.parse().ok());
    let dir = tempfile::tempdir().unwrap();
    let mut witness = Witness::default();
    for round in 0..rounds.unwrap_or(10) {
        let acknowledged = run_and_kill(dir.path(), round);
        witness.hear(round, &acknowledged);
        witness.check(dir.path(), round, &acknowledged);
    }
}

/// Runs a child until it has said a random number of things.
fn run_and_kill(dir: &Path, round: usize) -> Vec<Acknowledged> {
    let moment = RandomState::new().hash_one(round) % 1500;
    let mut child = start(dir, round, "");
    let mut lines = lines(&mut child);
    let mut heard: Vec<_> = lines.by_ref().take(usize::try_from(moment).unwrap()).collect();
    child.kill().unwrap();
    heard.extend(lines);
    child.wait().unwrap();
    heard.iter().filter_map(|line| Acknowledged::from_line(line)).collect()
}

impl Witness {
    /// Takes down what the child of a round was told.
    pub(crate) fn hear(&mut self, round: usize, acknowledged: &[Acknowledged]) {
        for it in acknowledged {
            let Some(revision) = it.revision else { continue };
            self.newest = self.newest.max(revision);
            let write = write(round, it.writer, it.n);
            let now = matches!(write.op, Op::Put(_)).then_some(revision);
            self.objects.insert(write.key, now);
        }
    }

    /// Opens the store and compares.
    pub(crate) fn check(&mut self, dir: &Path, round: usize, acknowledged: &[Acknowledged]) {
        let store = EmbeddedStore::open(dir, settings()).unwrap();
        let (oldest, current) = (store.oldest(), block_on(store.current()).unwrap());
        assert!(current >= self.newest, "at {current} after {} was acknowledged", self.newest);
        assert!(current >= self.current && oldest >= self.oldest, "never back in time");
        check_log(&store, oldest, current);
        self.settle_what_was_under_way(&store, round, acknowledged);
        let stored = stored(&store);
        let live = self.objects.iter().filter_map(|(key, at)| Some((key.clone(), (*at)?)));
        assert_eq!(stored, live.collect(), "round {round}");
        (self.oldest, self.current) = (store.oldest(), current);
    }

    /// Of each writer one more write may have happened than it was told of.
    fn settle_what_was_under_way(
        &mut self,
        store: &EmbeddedStore,
        round: usize,
        acknowledged: &[Acknowledged],
    ) {
        for writer in 0..WRITERS {
            let told = acknowledged.iter().filter(|it| it.writer == writer).count();
            let under_way = write(round, writer, told);
            let value = block_on(store.get(&pods(), &under_way.key)).unwrap();
            let now = value.as_ref().map(masthead_store::Value::revision);
            let known = self.objects.get(&under_way.key).copied().flatten();
            let text =
                value.map_or(String::new(), |it| String::from_utf8(it.body().to_vec()).unwrap());
            let happened = match under_way.op {
                Op::Put(_) => text.contains(&format!("\"n\":{told},")),
                Op::Delete => now.is_none(),
            };
            if happened && now != known {
                self.objects.insert(under_way.key, now);
            }
        }
    }
}

fn check_log(store: &EmbeddedStore, oldest: Revision, current: Revision) {
    let mut watch = store.watch(oldest).unwrap();
    let mut seen = oldest;
    while seen < current {
        let next = std::future::poll_fn(|cx| watch.as_mut().poll_next(cx));
        for event in block_on(next).unwrap().unwrap().events {
            assert_eq!(event.revision, seen.next(), "a gap in the log");
            seen = event.revision;
        }
    }
}

/// All objects of a store, with their revisions.
pub(crate) fn stored(store: &EmbeddedStore) -> BTreeMap<ObjectKey, Revision> {
    let at = block_on(store.current()).unwrap();
    let (mut after, mut all) = (None, BTreeMap::new());
    loop {
        let range = Range { resource: pods(), after, limit: 50, at };
        let page = block_on(store.range(range)).unwrap();
        for value in page.values {
            let object = value.object(&masthead_core::Resource::pods()).unwrap();
            assert_eq!(object.revision(), value.revision());
            all.insert(object.key().clone(), value.revision());
        }
        after = page.next;
        if after.is_none() {
            return all;
        }
    }
}
