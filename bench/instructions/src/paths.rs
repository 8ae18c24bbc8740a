//! The hot paths. Each makes what it needs, and counts only what it is about.

use std::hint::black_box;

use masthead_cache::{
    Batch, Cache, Config, Cursor, From, Gaps, HistoryLimits, Index, Interest, Writer,
};
use masthead_core::{
    EventType, FieldSelector, Frame, ListBody, ListMeta, Mutation, Object, Projection, Resource,
    Revision, Selectors, Time,
};
use masthead_reflector::Decoder;

use crate::{count, pods};

/// Each path and its name in the baseline.
pub(crate) const ALL: [(&str, fn()); 7] = [
    ("apply", apply),
    ("deliver", deliver),
    ("deliver-node", deliver_node),
    ("frame", frame),
    ("frame-bytes", frame_bytes),
    ("list", list),
    ("decode", decode),
];

const PODS: u32 = 2_000;
/// Changes in one call of `apply`, as a busy watch delivers them.
const BATCH: u32 = 100;
/// Every so many updates, a pod is found on another node: an index value changes.
const MOVES: u32 = 10;
/// Pods in a page of a list.
const PAGE: u32 = 500;
/// Events in one read of a cursor.
const READ: usize = 256;

/// Updates of every pod; half of them push an older one out of the history.
fn apply() {
    let (mut writer, _cache) = filled(PODS as usize / 2);
    let mut batches = updates();
    count(|| {
        for batch in batches.drain(..) {
            black_box(writer.apply(batch, Time(0)));
        }
    });
}

/// A cursor that follows everything reads every update.
fn deliver() {
    read_updates(Interest::all(), PODS as usize);
}

/// A cursor that follows one node looks through every update for its own.
fn deliver_node() {
    let fields = format!("spec.nodeName={}", pods::node(0));
    let fields = FieldSelector::parse(&fields, &Resource::pods()).expect("pods have the field");
    let interest = Interest::all().with(Selectors { fields, ..Selectors::default() });
    read_updates(interest, pods::on_a_node(PODS));
}

fn read_updates(interest: Interest, at_least: usize) {
    let (mut writer, cache) = filled(2 * PODS as usize);
    let from = From::After(cache.revision());
    let mut cursor = cache.subscribe(interest, from, Gaps::End).expect("it begins at the head");
    for batch in updates() {
        writer.apply(batch, Time(0));
    }
    let mut seen = 0;
    count(|| seen = read_all(&mut cursor));
    assert!(seen >= at_least, "{seen} events were read, {at_least} were expected");
}

fn read_all(cursor: &mut Cursor) -> usize {
    let mut batch = Batch::default();
    let mut seen = 0;
    while cursor.try_read(&mut batch, READ).expect("the history holds all of it") {
        seen += black_box(&batch.events).len();
    }
    seen
}

/// The slices of an event, half of them with another revision than their object.
fn frame() {
    let objects = objects();
    count(|| {
        for object in &objects {
            for (event, revision) in events(object) {
                let frame = Frame::event(event, object, revision, Projection::Whole);
                black_box(frame.len());
                frame.into_iter().for_each(|piece| drop(black_box(piece)));
            }
        }
    });
}

/// The same in one piece, for transports that cannot write slices: the copy is most of it.
fn frame_bytes() {
    let objects = objects();
    count(|| {
        for object in &objects {
            for (event, revision) in events(object) {
                let frame = Frame::event(event, object, revision, Projection::Whole);
                black_box(frame.to_bytes());
            }
        }
    });
}

fn events(object: &Object) -> [(EventType, Revision); 2] {
    let later = Revision(object.revision().0 + 1);
    [(EventType::Modified, object.revision()), (EventType::Deleted, later)]
}

/// A list to its end, slice by slice.
fn list() {
    // The cache has them, too.
    let kept = objects();
    let mut objects = kept.clone();
    let meta = ListMeta { revision: Revision(u64::from(PODS)), ..ListMeta::default() };
    count(|| {
        let objects = std::mem::take(&mut objects);
        let list = ListBody::new(&Resource::pods(), &meta, objects, Projection::Whole);
        black_box(list.bytes());
        list.for_each(|slice| drop(black_box(slice)));
    });
}

/// The items of a page, as they are cut out of it.
fn decode() {
    let items: Vec<String> = (0..PAGE).map(|i| pods::json(i, u64::from(i) + 1, 0)).collect();
    let decoder = Decoder::new(Resource::pods());
    let mut objects = Vec::with_capacity(items.len());
    count(|| {
        objects.extend(items.iter().map(|item| decoder.item(item.as_bytes())));
    });
    assert!(objects.iter().all(|it| matches!(it, Ok(Some(_)))), "a pod was not understood");
}

fn objects() -> Vec<Object> {
    (0..PODS).map(|i| pods::pod(i, u64::from(i) + 1, 0)).collect()
}

/// A cache of all pods, by owner and by node.
fn filled(changes: usize) -> (Writer, Cache) {
    let node = Resource::pods().field_index("spec.nodeName").expect("pods have it");
    let by_node = Index::new("node", move |pod, values| {
        values.extend(pod.field(node));
        Ok(())
    });
    let history = HistoryLimits { changes, ..HistoryLimits::default() };
    let indexes = vec![Index::owner(), by_node];
    let (mut writer, cache) = Cache::new(Config { history, indexes, ..Config::default() });
    writer.replace(objects(), Revision(u64::from(PODS)), Time(0)).expect("the first list");
    (writer, cache)
}

/// One update of every pod, scattered.
fn updates() -> Vec<Vec<Mutation>> {
    let update = |at: u32| {
        let revision = u64::from(PODS + at) + 1;
        let moved = u32::from(at.is_multiple_of(MOVES));
        let object = pods::pod(at.wrapping_mul(7919) % PODS, revision, moved);
        Mutation::Put { revision: Revision(revision), object }
    };
    (0..PODS).step_by(BATCH as usize).map(|at| (at..at + BATCH).map(update).collect()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_path_runs_to_its_end() {
        for (_, run) in ALL {
            run();
        }
    }
}
