//! How far the source has told everything, and which lists may follow (R9–R12).

use masthead_core::{Object, Revision, planted};

use crate::Failure;
use crate::limits::OLDER_LISTS_MAX;

/// Where a watch can go on from.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub(super) enum Position {
    /// Nowhere: nothing was listed yet.
    #[default]
    None,
    /// The highest revision seen.
    Seen,
    /// A text that is no number.
    Text(String),
    /// The list had no resource version: a watch begins with the state, and until an event that
    /// cannot be part of that state there is nothing to go on from (R12).
    Unversioned,
}

/// The high-water mark and all that is judged by it.
#[derive(Clone, Default, Debug)]
pub(super) struct Marks {
    /// The highest revision that was handed to the cache. For an opaque source a count of its events.
    seen: Revision,
    position: Position,
    opaque: bool,
    /// From where a watch was refused as expired, until a list leads past it (R9).
    expired: Option<String>,
    older_lists: u32,
    /// The source went back, and its list has not been whole yet.
    rewinding: bool,
}

/// What to do with a list of some resource version.
pub(super) enum Verdict {
    Accept,
    Refuse(Failure),
    /// It is too old for the third time: the source really went back.
    Rewind(Revision),
}

impl Marks {
    /// Nothing below `seen` may be applied, and nothing is there yet.
    pub(super) fn not_before(seen: Revision) -> Self {
        Self { seen, ..Self::default() }
    }

    /// Everything up to this resource version is there.
    pub(super) fn at(resource_version: &str) -> Self {
        let mut marks = Self::default();
        marks.listed(resource_version);
        marks
    }

    pub(super) fn seen(&self) -> Revision {
        self.seen
    }

    pub(super) fn opaque(&self) -> bool {
        self.opaque
    }

    pub(super) fn rewinding(&self) -> bool {
        self.rewinding
    }

    /// The resource version to watch from; none if only a list helps.
    pub(super) fn watch_from(&self) -> Option<String> {
        match &self.position {
            Position::None => None,
            Position::Seen => Some(self.seen.to_string()),
            Position::Text(text) => Some(text.clone()),
            Position::Unversioned => Some(String::new()),
        }
    }

    /// Returns `true` if a watch can go on from here without a gap.
    pub(super) fn resumable(&self) -> bool {
        matches!(self.position, Position::Seen | Position::Text(_))
    }

    /// The watch was refused: its history is gone.
    pub(super) fn expire(&mut self) {
        if planted::on("expired_revision_forgotten") {
            return;
        }
        self.expired = self.watch_from();
    }

    /// May a list of this resource version be applied? `consistent` lists count for R11.
    pub(super) fn judge(&mut self, resource_version: &str, consistent: bool) -> Verdict {
        let Some(failure) = self.objection(resource_version) else { return Verdict::Accept };
        if planted::on("older_list_accepted") {
            return Verdict::Accept;
        }
        self.older_lists += u32::from(consistent);
        if self.older_lists < OLDER_LISTS_MAX {
            return Verdict::Refuse(failure);
        }
        self.rewinding = true;
        Verdict::Rewind(resource_version.parse().unwrap_or(self.seen))
    }

    fn objection(&self, resource_version: &str) -> Option<Failure> {
        if self.rewinding {
            return None;
        }
        let list = resource_version.to_owned();
        let number = number(resource_version).filter(|_| !self.opaque);
        if number.is_some_and(|number| number < self.seen) {
            return Some(Failure::Older { list, seen: self.seen.to_string() });
        }
        let expired = self.expired.clone()?;
        let leads_back = match (number, expired.parse::<Revision>()) {
            (Some(number), Ok(expired)) => number <= expired,
            _ => expired == list,
        };
        leads_back.then_some(Failure::Loop { list, expired })
    }

    /// A whole list was accepted; its revision for the cache.
    pub(super) fn listed(&mut self, resource_version: &str) -> Revision {
        self.expired = None;
        self.older_lists = 0;
        self.rewinding = false;
        if let Some(number) = number(resource_version).filter(|_| !self.opaque) {
            let gap = u64::from(planted::on("watch_skips_one_revision"));
            self.seen = Revision(number.0 + gap);
            self.position = Position::Seen;
            return number;
        }
        self.opaque = true;
        self.seen = self.seen.next();
        self.position = match resource_version {
            "" | "0" => Position::Unversioned,
            text => Position::Text(text.to_owned()),
        };
        self.seen
    }

    /// An event; its revision for the cache, or none if it is not news. `may_be_state`: it could be
    /// part of the state that an unversioned watch begins with.
    pub(super) fn event(&mut self, object: &Object, may_be_state: bool) -> Option<Revision> {
        let revision = object.revision();
        if revision.is_zero() {
            self.opaque = true;
        }
        if self.opaque {
            self.seen = self.seen.next();
            if self.position != Position::Unversioned || !may_be_state {
                self.position = Position::Text(object.resource_version().to_owned());
            }
            return Some(self.seen);
        }
        (revision > self.seen).then(|| {
            self.seen = revision;
            revision
        })
    }

    /// A bookmark; the revision that it moves the cache to, or none if it moves nothing.
    pub(super) fn bookmark(&mut self, resource_version: &str) -> Option<Revision> {
        match number(resource_version).filter(|_| !self.opaque) {
            Some(number) => (number > self.seen).then(|| {
                self.seen = number;
                number
            }),
            None if resource_version.is_empty() => None,
            None => {
                self.opaque = true;
                self.position = Position::Text(resource_version.to_owned());
                None
            }
        }
    }
}

/// A resource version that orders; `0` and the empty one do not.
fn number(resource_version: &str) -> Option<Revision> {
    resource_version.parse().ok().filter(|number: &Revision| !number.is_zero())
}
