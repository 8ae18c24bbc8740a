//! A list that is being read in pages (R3, R4).

use masthead_core::{Object, ObjectKey, planted};

use crate::{ListAt, Page};

/// What one attempt has gathered. It belongs to the attempt: dropped with it, or an object that was
/// deleted between two attempts would come back to life.
#[derive(Debug)]
pub(super) struct Pages {
    /// The next page to ask for.
    pub(super) at: ListAt,
    /// How often that page has been asked for in vain.
    pub(super) tries: u32,
    /// Is it a list that counts for R11?
    pub(super) consistent: bool,
    /// The resource version that all of `staged` is of.
    resource_version: Option<String>,
    staged: Vec<Object>,
    bytes: usize,
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
    /// All of it, and its resource version.
    Whole(Vec<Object>, String),
    /// The pages do not fit together: begin again.
    Misfit(&'static str),
}

impl Pages {
    pub(super) fn new(at: ListAt) -> Self {
        Self {
            consistent: at != ListAt::Cached,
            at,
            tries: 0,
            resource_version: None,
            staged: Vec::new(),
            bytes: 0,
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

    /// Objects so far and how many it may become.
    pub(super) fn progress(&self) -> (u64, Option<u64>) {
        let rest = if let Part::Beginning(_, rest) = &self.part { rest.len() } else { 0 };
        ((self.staged.len() + rest) as u64, self.about)
    }

    /// Bytes of memory that the gathered objects hold.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Takes in a page.
    pub(super) fn take(&mut self, page: Page) -> Step {
        self.tries = 0;
        let last = page.continue_token.is_empty() || planted::on("synced_after_one_page");
        let version = self.resource_version.get_or_insert_with(|| page.resource_version.clone());
        if *version != page.resource_version && !planted::on("pages_of_two_revisions_mixed") {
            if !self.moved_on() {
                return Step::Misfit("pages of two revisions");
            }
            self.resource_version = Some(page.resource_version);
        }
        let before = self.staged.len();
        self.about = page.remaining.map(|more| (before + page.objects.len()) as u64 + more);
        let passed = self.stage(page.objects);
        self.at = ListAt::Continue(page.continue_token);
        if last || passed { self.end_of_part() } else { Step::More }
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
            Part::Rest(_) if version.is_empty() => Step::Misfit("no revision to read again at"),
            Part::Rest(_) if planted::on("beginning_not_read_again") => {
                Step::Whole(staged, version)
            }
            Part::Rest(boundary) => {
                self.at = ListAt::Exact(version);
                self.part = Part::Beginning(boundary, staged);
                Step::More
            }
            Part::Beginning(_, mut rest) => {
                let mut whole = staged;
                whole.append(&mut rest);
                Step::Whole(whole, version)
            }
        }
    }

    /// The token expired: goes on with a fresh one. False if that cannot lead to a whole list.
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

    /// What follows is of a newer revision. False if there is no place to tell it from what was read.
    fn moved_on(&mut self) -> bool {
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
