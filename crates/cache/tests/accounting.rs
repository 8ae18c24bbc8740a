//! The books against the allocator.
#![allow(clippy::unwrap_used, reason = "helpers of tests fail like tests")]

use std::alloc::System;

use masthead_cache::{Batch, Cache, Config, Cursor, From, Gaps, HistoryLimits, Index, Interest};
use masthead_core::{LabelSelector, Labels, Mutation, Object, Resource, Revision, Selectors, Time};
use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

fn in_use(region: &Region<'_, System>) -> usize {
    let change = region.change();
    change.bytes_allocated - change.bytes_deallocated
}

fn pod(resource: &Resource, i: u64, rv: u64) -> Object {
    let filler = "x".repeat(600);
    let body = format!(
        r#"{{"kind":"Pod","apiVersion":"v1","metadata":{{"name":"frontend-{i:06}","namespace":"team-{:02}","uid":"{i}","resourceVersion":"{rv}","labels":{{"app":"a{}","pod":"p{i}"}},"ownerReferences":[{{"uid":"o{}"}}]}},"filler":"{filler}"}}"#,
        i % 40,
        i % 100,
        i / 3
    );
    Object::parse(resource, bytes::Bytes::copy_from_slice(body.as_bytes())).unwrap()
}

fn within(accounted: usize, real: usize, percent: usize, what: &str) {
    let difference = accounted.abs_diff(real);
    assert!(difference * 100 <= real * percent, "{what}: accounted {accounted}, in use {real}");
}

/// One test, since the allocator counts for the whole process.
#[test]
fn accounting_agrees_with_the_allocator() {
    let resource = Resource::pods();
    let by_app = Index::new("app", |object, values| {
        values.extend(object.label("app"));
        Ok(())
    });
    let history = HistoryLimits { changes: 5_000, ..HistoryLimits::default() };
    let region = Region::new(ALLOCATOR);
    let indexes = vec![Index::owner(), by_app];
    let (mut writer, cache) = Cache::new(Config { history, indexes, ..Config::default() });
    let objects = (0..20_000).map(|i| pod(&resource, i, i + 1)).collect();
    writer.replace(objects, Revision(20_000), Time(0)).unwrap();
    within(cache.memory().total(), in_use(&region), 8, "filled");

    for rv in 20_001..40_001 {
        let object = pod(&resource, rv * 7919 % 20_000, rv);
        writer.apply([Mutation::Put { revision: Revision(rv), object }], Time(0));
    }
    within(cache.memory().total(), in_use(&region), 8, "after updates, with history");

    let before = in_use(&region);
    let mut cursors: Vec<Cursor> = Vec::with_capacity(20_000);
    let vector = in_use(&region) - before;
    for i in 0..20_000 {
        let labels = LabelSelector::parse(&format!("pod=p{i}")).unwrap();
        let interest = Interest::all().with(Selectors { labels, ..Selectors::default() });
        let from = From::After(cache.revision());
        cursors.push(cache.subscribe(interest, from, Gaps::End).unwrap());
    }
    let mut batch = Batch::default();
    assert!(cursors.iter_mut().all(|cursor| !cursor.try_read(&mut batch, 1).unwrap()));
    // The cursors themselves stand in the vector.
    let real = in_use(&region) - before;
    assert_eq!(vector, 20_000 * size_of::<Cursor>());
    let accounted: usize = cursors.iter().map(Cursor::bytes).sum();
    within(accounted, real, 25, "cursors");
    assert!(real / 20_000 <= 256, "{} bytes a waiting cursor", real / 20_000);
}
