//! A list that is being read in pages (R3, R4).

use masthead_core::{Object, ObjectKey, planted};

use crate::limits::PAGE_MOVES_MAX;
use crate::{Failure, ListAt, Page, Phase};

/// What one attempt has gathered. It belongs to the attempt: dropped with it, or an object that was
/// deleted between two attempts would come back to life.
#[derive(Debug)]
pub(super) struct Pages {
    /// The next page to ask for.
    pub(super) at: ListAt,
    /// How often that page has been asked for in vain.
    pub(super) tries: u32,
    /// How often the token has expired since the last page with objects.
    pub(super) expired: u32,
    /// Tiny pages of this attempt.
    pub(super) tiny: u32,
    /// How often the pages went on at a newer revision.
    moves: u32,
    /// Whether the list is consistent, and so counts for R11.
    pub(super) consistent: bool,
    /// The resource version that all of `staged` is of.
    resource_version: Option<String>,
    staged: Vec<Object>,
    /// The last key of the part that is being read: the next must be greater.
    last: Option<ObjectKey>,
    bytes: usize,
    bytes_max: usize,
    about: Option<u64>,
    part: Part,
}

/// Which part of the key range is being read.
///
/// When a token expires the rest can be had, at a newer revision. What was read before is of an
/// older one and is void: mixed with the rest it would hide what was deleted in between. So the rest
/// is read first, and then the beginning once more, at exactly the revision of the rest.
#[derive(Debug)]
enum Part {
    /// From the first key to the last.
    All,
    /// What follows this key.
    Rest(ObjectKey),
    /// What does not follow this key; the rest has been read.
    Beginning(ObjectKey, Vec<Object>),
}

/// What a page leads to.
#[derive(Debug)]
pub(super) enum Step {
    /// Ask for the page that is in [`Pages::at`].
    More,
    /// All but the beginning has been read: ask for its first page, which is in [`Pages::at`].
    Beginning,
    /// All of it, and its resource version.
    Whole(Vec<Object>, String),
    /// The pages do not fit together: begin again.
    Misfit(Failure),
}

impl Pages {
    /// A list whose objects may hold `bytes_max` bytes of memory.
    pub(super) fn new(at: ListAt, bytes_max: usize) -> Self {
        Self {
            consistent: at != ListAt::Cached,
            at,
            tries: 0,
            expired: 0,
            tiny: 0,
            moves: 0,
            resource_version: None,
            staged: Vec::new(),
            last: None,
            bytes: 0,
            bytes_max,
            about: None,
            part: Part::All,
        }
    }

    /// A planted bug: begins with what a broken attempt had gathered.
    pub(super) fn keeping(mut self, staged: Vec<Object>) -> Self {
        self.bytes = staged.iter().map(cost).sum();
        self.staged = staged;
        self
    }

    pub(super) fn is_first(&self) -> bool {
        !matches!(self.at, ListAt::Continue(_) | ListAt::Exact(_))
    }

    /// How far the list is.
    pub(super) fn phase(&self) -> Phase {
        let rest = if let Part::Beginning(_, rest) = &self.part { rest.len() } else { 0 };
        match ((self.staged.len() + rest) as u64, self.about) {
            (0, None) => Phase::Connecting,
            (objects, about) => Phase::Listing { objects, about },
        }
    }

    /// Bytes of memory that the gathered objects hold.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Bytes of memory that the objects of the next page may hold.
    pub(super) fn bytes_left(&self) -> usize {
        self.bytes_max.saturating_sub(self.bytes)
    }

    /// Takes in a page.
    pub(super) fn take(&mut self, page: Page) -> Step {
        self.tries = 0;
        if let Err(failure) = self.check_order(&page) {
            return Step::Misfit(failure);
        }
        let last = page.continue_token.is_empty() || planted::on("synced_after_one_page");
        let version = self.resource_version.get_or_insert_with(|| page.resource_version.clone());
        if *version != page.resource_version && !planted::on("pages_of_two_revisions_mixed") {
            if !self.moved_on() {
                return Step::Misfit(Failure::Decode("pages of two revisions".to_owned()));
            }
            self.resource_version = Some(page.resource_version);
        }
        if !page.objects.is_empty() {
            self.expired = 0;
        }
        let before = self.staged.len();
        self.about = page.remaining.map(|more| (before + page.objects.len()) as u64 + more);
        let passed = self.stage(page.objects);
        if self.bytes > self.bytes_max {
            return Step::Misfit(Failure::TooLarge { limit: self.bytes_max });
        }
        self.at = ListAt::Continue(page.continue_token);
        if last || passed { self.end_of_part() } else { Step::More }
    }

    /// Checks that the keys of a list rise from the first page to the last: that a list in pages comes to
    /// an end, and that a part of it can be read again (R3), rests on it. A list in one piece may have
    /// another order, as some aggregated APIs do, but no key twice.
    fn check_order(&mut self, page: &Page) -> Result<(), Failure> {
        let unordered = |after: &ObjectKey, key: &ObjectKey| Failure::Unordered {
            key: key.to_string(),
            after: after.to_string(),
        };
        let keys = || page.objects.iter().map(Object::key);
        let before = self.last.iter().chain(keys());
        let fall = before.zip(keys().skip(usize::from(self.last.is_none()))).find(|(a, b)| a >= b);
        if let Some((after, key)) = fall.filter(|_| !planted::on("keys_of_pages_not_compared")) {
            if !self.is_first() || !page.continue_token.is_empty() {
                return Err(unordered(after, key));
            }
            let mut sorted: Vec<_> = keys().collect();
            sorted.sort_unstable();
            if let Some(twice) = sorted.windows(2).find(|pair| pair[0] == pair[1]) {
                return Err(unordered(twice[0], twice[1]));
            }
        }
        self.last = keys().next_back().cloned().or_else(|| self.last.take());
        Ok(())
    }

    /// Stages what belongs to the part; true if the part's end was passed.
    fn stage(&mut self, objects: Vec<Object>) -> bool {
        let count = objects.len();
        let staged = self.staged.len();
        match &self.part {
            Part::Beginning(boundary, _) => {
                self.staged.extend(objects.into_iter().filter(|object| object.key() <= boundary));
            }
            _ => self.staged.extend(objects),
        }
        self.bytes += self.staged[staged..].iter().map(cost).sum::<usize>();
        self.staged.len() - staged < count
    }

    fn end_of_part(&mut self) -> Step {
        let version = self.resource_version.clone().unwrap_or_default();
        let staged = std::mem::take(&mut self.staged);
        match std::mem::replace(&mut self.part, Part::All) {
            Part::All => Step::Whole(staged, version),
            Part::Rest(_) if version.is_empty() => {
                Step::Misfit(Failure::Decode("no revision to read again at".to_owned()))
            }
            Part::Rest(_) if planted::on("beginning_not_read_again") => {
                Step::Whole(staged, version)
            }
            Part::Rest(boundary) => {
                self.at = ListAt::Exact(version);
                self.part = Part::Beginning(boundary, staged);
                self.last = None;
                Step::Beginning
            }
            Part::Beginning(_, mut rest) => {
                let mut whole = staged;
                whole.append(&mut rest);
                Step::Whole(whole, version)
            }
        }
    }

    /// The token expired: goes on with a fresh one. Returns `false` if that cannot lead to a whole list.
    pub(super) fn go_on_with(&mut self, token: &str) -> bool {
        if planted::on("pages_of_two_revisions_mixed") {
            self.at = ListAt::Continue(token.to_owned());
            return true;
        }
        if !matches!(self.at, ListAt::Continue(_)) || !self.moved_on() {
            return false;
        }
        self.resource_version = None;
        self.at = ListAt::Continue(token.to_owned());
        true
    }

    /// What follows is of a newer revision. Returns `false` if no key divides it from what was read, or if
    /// that happened too often in one list.
    fn moved_on(&mut self) -> bool {
        self.moves += 1;
        if self.moves > PAGE_MOVES_MAX {
            return false;
        }
        let boundary = match (self.staged.last(), &self.part) {
            (_, Part::Beginning(..)) | (None, Part::All) => return false,
            (Some(last), _) => last.key().clone(),
            (None, Part::Rest(boundary)) => boundary.clone(),
        };
        if !planted::on("expired_pages_kept") {
            self.staged.clear();
            self.bytes = 0;
        }
        self.part = Part::Rest(boundary);
        self.about = None;
        true
    }
}

/// Bytes that an object holds.
pub(super) fn cost(object: &Object) -> usize {
    object.body_bytes() + object.head_bytes()
}
