//! Random scripts, and one run of them on a store and on the model.

use masthead_core::Revision;
use masthead_store::{
    CommitError, Condition, Event, Range, ResourceName, Store, StoreError, Write,
};
use proptest::prelude::*;

use crate::lab::{Lab, events_up_to, keys, object, resources};
use crate::model::Model;

#[derive(Clone, Debug)]
pub(crate) enum Step {
    /// Calls that are made before any is waited for.
    Commit(Vec<Vec<WriteStep>>),
    /// A position between the oldest and one past the newest revision, in eighths.
    Compact(u64),
    Reopen,
    /// Everything that can be read is compared.
    Audit {
        page: usize,
    },
}

#[derive(Clone, Debug)]
pub(crate) struct WriteStep {
    slot: (usize, usize),
    condition: ConditionStep,
    /// None deletes.
    text: Option<String>,
}

#[derive(Clone, Debug)]
enum ConditionStep {
    Any,
    Absent,
    Present,
    /// What the model has before the call.
    AtCurrent,
    At(u64),
}

pub(crate) fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        6 => prop::collection::vec(prop::collection::vec(write(), 1..4), 1..4).prop_map(Step::Commit),
        1 => (0..=9_u64).prop_map(Step::Compact),
        1 => Just(Step::Reopen),
        1 => (1..5_usize).prop_map(|page| Step::Audit { page }),
    ];
    prop::collection::vec(step, 1..12)
}

fn write() -> impl Strategy<Value = WriteStep> {
    let condition = prop_oneof![
        4 => Just(ConditionStep::Any),
        2 => Just(ConditionStep::Absent),
        2 => Just(ConditionStep::Present),
        2 => Just(ConditionStep::AtCurrent),
        1 => (0..20_u64).prop_map(ConditionStep::At),
    ];
    let text = prop_oneof![3 => "[a-z]{0,80}".prop_map(Some), 1 => Just(None)];
    let slot = (0..resources().len(), 0..keys().len());
    (slot, condition, text).prop_map(|(slot, condition, text)| WriteStep { slot, condition, text })
}

/// Runs a script, with an audit at the end.
pub(crate) async fn run(mut lab: Lab, steps: &[Step]) {
    let mut model = Model::new();
    for step in
        steps.iter().chain([&Step::Audit { page: 2 }, &Step::Reopen, &Step::Audit { page: 9 }])
    {
        match step {
            Step::Commit(calls) if lab.is_ordered() => commit(&*lab.store, &mut model, calls).await,
            Step::Commit(calls) => {
                for write in calls.iter().flatten() {
                    commit(&*lab.store, &mut model, &[vec![write.clone()]]).await;
                }
            }
            Step::Compact(eighths) => compact(&*lab.store, &mut model, *eighths).await,
            Step::Reopen => lab.reopen().await,
            Step::Audit { page } => audit(&*lab.store, &model, *page).await,
        }
    }
}

async fn commit(store: &dyn Store, model: &mut Model, calls: &[Vec<WriteStep>]) {
    let calls: Vec<Vec<(WriteStep, Condition)>> = calls
        .iter()
        .map(|call| call.iter().map(|write| (write.clone(), condition(model, write))).collect())
        .collect();
    let answers: Vec<_> = calls
        .iter()
        .map(|call| store.commit(call.iter().map(|(write, on)| real(write, *on)).collect()))
        .collect();
    for (call, answer) in calls.iter().zip(answers) {
        let results = answer.await;
        assert_eq!(results.len(), call.len());
        for ((write, on), result) in call.iter().zip(results) {
            match (model.write(write.slot, *on, write.text.as_deref()), result) {
                (Ok(revision), Ok(committed)) => {
                    let line = model.log.last().unwrap();
                    assert_eq!((committed.revision, line.revision), (revision, revision));
                    assert_eq!(committed.value.revision(), revision);
                    assert_eq!(committed.value.body(), line.body().as_bytes());
                }
                (Err(expected), Err(CommitError::Conflict { current })) => {
                    assert_eq!(current, expected);
                }
                (expected, result) => panic!("{write:?}: expected {expected:?}, got {result:?}"),
            }
        }
    }
    assert_eq!(store.current().await.unwrap(), model.current());
}

fn condition(model: &Model, write: &WriteStep) -> Condition {
    match write.condition {
        ConditionStep::Any => Condition::Any,
        ConditionStep::Absent => Condition::Absent,
        ConditionStep::Present => Condition::Present,
        ConditionStep::AtCurrent => {
            Condition::At(model.revision_of(write.slot.0, write.slot.1).unwrap_or_default())
        }
        ConditionStep::At(revision) => Condition::At(Revision(revision)),
    }
}

fn real(write: &WriteStep, condition: Condition) -> Write {
    let (resource, key) = (&resources()[write.slot.0], &keys()[write.slot.1]);
    match &write.text {
        Some(text) => Write::put(resource.into(), object(resource, key, text), condition),
        None => Write::delete(resource.into(), key.clone(), condition),
    }
}

async fn compact(store: &dyn Store, model: &mut Model, eighths: u64) {
    let (oldest, current) = (model.oldest.0, model.current().0);
    let before = Revision(oldest + (current - oldest) * eighths / 8);
    model.oldest = model.oldest.max(before.min(model.current()));
    assert_eq!(store.compact(before).await.unwrap(), model.oldest);
}

async fn audit(store: &dyn Store, model: &Model, page: usize) {
    let (oldest, current) = (model.oldest, model.current());
    assert_eq!((store.oldest(), store.current().await.unwrap()), (oldest, current));
    for resource in 0..resources().len() {
        audit_gets(store, model, resource).await;
        for at in oldest.0..=current.0 {
            audit_range(store, model, resource, Revision(at), page).await;
        }
        let early = range(store, resource, None, 1, Revision(oldest.0 - 1)).await;
        assert!(matches!(early, Err(StoreError::Expired { .. })), "{early:?}");
        let late = range(store, resource, None, 1, current.next()).await;
        assert!(matches!(late, Err(StoreError::Future { .. })), "{late:?}");
    }
    for from in oldest.0..current.0 {
        audit_watch(store, model, Revision(from)).await;
    }
    let early = store.watch(Revision(oldest.0 - 1)).map(|_| ());
    assert!(matches!(early, Err(StoreError::Expired { .. })), "{early:?}");
}

async fn audit_gets(store: &dyn Store, model: &Model, resource: usize) {
    let state = model.state(resource, Revision::MAX);
    for key in keys() {
        let value = store.get(&name(resource), &key).await.unwrap();
        let expected = state.get(&key).map(|line| line.body());
        assert_eq!(value.map(|value| value.body().to_vec()), expected.map(String::into_bytes));
    }
}

async fn audit_range(
    store: &dyn Store,
    model: &Model,
    resource: usize,
    at: Revision,
    limit: usize,
) {
    let (mut after, mut bodies) = (None, Vec::new());
    loop {
        let page = range(store, resource, after, limit, at).await.unwrap();
        assert!(page.values.len() <= limit);
        assert!(!page.more() || page.values.len() == limit, "pages of small objects are full");
        bodies.extend(page.values.iter().map(|value| value.body().to_vec()));
        after = page.next;
        if after.is_none() {
            break;
        }
    }
    let expected: Vec<_> =
        model.state(resource, at).values().map(|line| line.body().into_bytes()).collect();
    assert_eq!(bodies, expected, "{} at {at}", name(resource));
}

async fn range(
    store: &dyn Store,
    resource: usize,
    after: Option<masthead_core::ObjectKey>,
    limit: usize,
    at: Revision,
) -> Result<masthead_store::RangePage, StoreError> {
    store.range(Range { resource: name(resource), after, limit, at }).await
}

async fn audit_watch(store: &dyn Store, model: &Model, from: Revision) {
    let mut watch = store.watch(from).unwrap();
    let events = events_up_to(&mut watch, model.current()).await;
    let expected: Vec<_> = model.log.iter().filter(|line| line.revision > from).collect();
    assert_eq!(events.len(), expected.len());
    for (event, line) in events.iter().zip(expected) {
        let Event { resource, key, revision, kind, value } = event;
        assert_eq!((*revision, *kind), (line.revision, line.kind));
        assert_eq!((resource, key), (&name(line.resource), &keys()[line.key]));
        assert_eq!(value.body(), line.body().as_bytes());
        let object = value.object(&resources()[line.resource]).unwrap();
        assert_eq!((object.revision(), object.key()), (*revision, key));
    }
}

fn name(resource: usize) -> ResourceName {
    (&resources()[resource]).into()
}
