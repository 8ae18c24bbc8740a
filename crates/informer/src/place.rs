//! Where a reader is in the life of a cache, and what it missed (R20).
//!
//! A reader that keeps up needs nothing but its cursor. One that does not is overtaken when the history
//! it has not read is gone; then what it was told last is compared with what is there now, and it hears
//! the difference: one step for each key.

use std::collections::BTreeMap;

use masthead_cache::{Query, Snapshot};
use masthead_core::{Object, ObjectKey, planted};

/// What a reader has been told.
#[derive(Debug, Default)]
pub(crate) enum Place {
    /// Nothing yet.
    #[default]
    Nowhere,
    /// Everything of this state.
    At(Snapshot),
    /// It is being told what lies between two states.
    Between(Walk),
    /// It is being told this state once more (R22).
    Again(Snapshot, Option<ObjectKey>),
    /// The state could not be kept any longer; these names with their uids are left of it.
    Lost(Names),
}

pub(crate) type Names = BTreeMap<ObjectKey, Box<str>>;

/// The way from what was told to what is there.
#[derive(Debug)]
pub(crate) struct Walk {
    told: Told,
    now: Snapshot,
    /// Up to this key the reader has been told what is there now.
    after: Option<ObjectKey>,
}

#[derive(Debug)]
enum Told {
    State(Snapshot),
    Names(Names),
}

/// One key on the way.
#[derive(Debug)]
pub(crate) struct Step {
    pub(crate) key: ObjectKey,
    /// The state that was delivered before, if there was one.
    pub(crate) told: Option<Before>,
    pub(crate) now: Option<Object>,
    /// Another object of the same name (R15).
    pub(crate) replaced: bool,
}

/// What is left of what was told of a key.
#[derive(Debug)]
pub(crate) enum Before {
    /// All of it.
    Known(Object),
    /// That it was there.
    Named,
}

impl Place {
    /// The way from here to a state.
    pub(crate) fn walk_to(&mut self, now: Snapshot) {
        let told = match std::mem::take(self) {
            Self::Nowhere => Told::Names(Names::new()),
            Self::At(snapshot) | Self::Again(snapshot, _) => Told::State(snapshot),
            Self::Lost(names) => Told::Names(names),
            Self::Between(_) => unreachable!("nothing is read from the cursor on the way"),
        };
        *self = Self::Between(Walk { told, now, after: None });
    }

    /// Returns `true` if events are missing between what was delivered and where the cursor goes on.
    pub(crate) fn is_between(&self) -> bool {
        matches!(self, Self::Between(_))
    }

    /// The revision of the state that is kept for the reader.
    pub(crate) fn keeps(&self) -> Option<masthead_core::Revision> {
        match self {
            Self::At(snapshot)
            | Self::Again(snapshot, _)
            | Self::Between(Walk { told: Told::State(snapshot), .. }) => Some(snapshot.revision()),
            Self::Nowhere | Self::Between(_) | Self::Lost(_) => None,
        }
    }

    /// Gives up the state and keeps the names. What the reader did not see is not among them.
    pub(crate) fn lose(&mut self, saw: impl Fn(&Object) -> bool) {
        match self {
            Self::At(_) if planted::on("lost_names_forgotten") => *self = Self::Lost(Names::new()),
            Self::At(snapshot) | Self::Again(snapshot, _) => {
                *self = Self::Lost(names(snapshot.iter().filter(saw)));
            }
            // It goes on to where it was going, and has forgotten where from.
            Self::Between(Walk { told: told @ Told::State(_), .. }) => {
                let known = told.after(None).filter(|known| known.was_seen(&saw));
                let names = known.map(|it| (it.key().clone(), it.uid().into())).collect();
                *told = Told::Names(names);
            }
            Self::Nowhere | Self::Between(_) | Self::Lost(_) => {}
        }
    }
}

fn names(objects: impl Iterator<Item = Object>) -> Names {
    objects.map(|object| (object.key().clone(), object.uid().into())).collect()
}

/// The query for what follows a key.
fn start(after: Option<&ObjectKey>) -> Option<String> {
    after.map(|key| format!("{key}\0"))
}

/// The objects of a state behind a key.
pub(crate) fn objects_after<'a>(
    snapshot: &'a Snapshot,
    start: Option<&'a str>,
) -> impl Iterator<Item = Object> + 'a {
    snapshot.list(Query { start, ..Query::default() })
}

impl Walk {
    /// The next steps, up to `max` keys that differ; none when the walk is over. The reader saw of the old state
    /// what `saw` says, and sees of the new one what `sees` says.
    pub(crate) fn steps(
        &mut self,
        max: usize,
        saw: impl Fn(&Object) -> bool,
        sees: impl Fn(&Object) -> bool,
    ) -> Vec<Step> {
        let start = start(self.after.as_ref());
        let mut new = objects_after(&self.now, start.as_deref()).peekable();
        let mut old = self.told.after(start.as_deref()).peekable();
        let mut steps = Vec::new();
        while steps.len() < max {
            let (told, now) = match (old.peek(), new.peek()) {
                (None, None) => break,
                (Some(_), None) => (old.next(), None),
                (None, Some(_)) => (None, new.next()),
                (Some(told), Some(object)) => match told.key().cmp(object.key()) {
                    std::cmp::Ordering::Less => (old.next(), None),
                    std::cmp::Ordering::Equal => (old.next(), new.next()),
                    std::cmp::Ordering::Greater => (None, new.next()),
                },
            };
            // Most of what is there did not change: nothing else of it is looked at.
            if let (Some(Known::State(old)), Some(new)) = (&told, &now)
                && old.ptr_eq(new)
            {
                continue;
            }
            // The old state first: to look at the new one may change what is known of it.
            let told = told.filter(|known| known.was_seen(&saw));
            steps.extend(step(told, now.filter(&sees)));
        }
        drop((old, new));
        if let Some(last) = steps.last() {
            self.after = Some(last.key.clone());
        }
        steps
    }

    /// Where the walk leads to.
    pub(crate) fn end(&self) -> Snapshot {
        self.now.clone()
    }
}

/// What is left of what was told of a key.
enum Known<'a> {
    State(Object),
    Name(&'a ObjectKey, &'a str),
}

impl Known<'_> {
    fn key(&self) -> &ObjectKey {
        match self {
            Self::State(object) => object.key(),
            Self::Name(key, _) => key,
        }
    }

    fn uid(&self) -> &str {
        match self {
            Self::State(object) => object.uid(),
            Self::Name(_, uid) => uid,
        }
    }

    /// Returns `true` if the reader heard of it. Only names that it heard of are kept.
    fn was_seen(&self, saw: impl Fn(&Object) -> bool) -> bool {
        match self {
            Self::State(object) => saw(object),
            Self::Name(..) => true,
        }
    }

    fn before(self) -> Before {
        match self {
            Self::State(object) => Before::Known(object),
            Self::Name(..) => Before::Named,
        }
    }
}

fn step(told: Option<Known<'_>>, now: Option<Object>) -> Option<Step> {
    if now.is_none() && planted::on("missed_delete_not_told") {
        return None;
    }
    let replaced = matches!((&told, &now), (Some(told), Some(new)) if told.uid() != new.uid());
    let key = now.as_ref().map(|object| object.key().clone());
    let key = key.or_else(|| told.as_ref().map(|told| told.key().clone()))?;
    let replaced = replaced && !planted::on("replaced_told_as_update");
    Some(Step { key, told: told.map(Known::before), now, replaced })
}

impl Told {
    fn after<'a>(&'a self, start: Option<&'a str>) -> Box<dyn Iterator<Item = Known<'a>> + 'a> {
        match self {
            Self::State(state) => Box::new(objects_after(state, start).map(Known::State)),
            Self::Names(names) => {
                let behind = names
                    .iter()
                    .filter(move |(key, _)| start.is_none_or(|start| key.as_str() >= start));
                Box::new(behind.map(|(key, uid)| Known::Name(key, uid)))
            }
        }
    }
}
