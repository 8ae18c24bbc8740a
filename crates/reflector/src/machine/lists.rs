//! Lists: begun, gathered, judged, handed to the cache.

use std::collections::BTreeMap;
use std::time::Duration;

use masthead_core::{Object, Time, planted};
use tracing::{debug, warn};

use super::marks::Verdict;
use super::pages::{Pages, Step, cost};
use super::{Pending, Reflector, State, Then};
use crate::limits::{QUICK_PAGE, TINY_PAGE_BYTES, TINY_PAGE_PAUSE, TINY_PAGES_MAX};
use crate::report::{Relists, Rewound};
use crate::{Failure, FirstList, ListAt, ListRequest, Output, Page, Strategy, WatchFrom};

impl Reflector {
    /// Begins a list, and with it a new attempt.
    pub(super) fn list(&mut self, now: Time) {
        self.report.attempts += 1;
        // Only the very first list may be less than consistent (R1, R8).
        let first = !self.report.synced && self.marks.seen().is_zero();
        let cached = (first && self.settings.first_list == FirstList::Cached)
            || (!first && planted::on("relist_from_a_cache"));
        let streaming = self.settings.strategy == Strategy::Streaming
            && !self.pages_next
            && !self.memory.refuses_streaming();
        if streaming {
            return self.stream(cached, now);
        }
        let at = if cached { ListAt::Cached } else { ListAt::Latest };
        self.page(Pages::new(at, self.settings.list_bytes_max), now);
    }

    pub(super) fn page(&mut self, pages: Pages, now: Time) {
        let pending = self.ask(now, Duration::ZERO);
        let request = ListRequest {
            at: pages.at.clone(),
            limit: self.limit,
            bytes_max: pages.bytes_left(),
            elsewhere: self.elsewhere,
        };
        debug!(id = %pending.id, at = ?request.at, request.limit, "listing");
        self.emit(Output::List { id: pending.id, request });
        self.state = State::Paging { pending, pages };
    }

    fn stream(&mut self, cached: bool, now: Time) {
        let pending = self.open(WatchFrom::State { cached }, now);
        let staged = BTreeMap::new();
        self.state = State::Streaming { pending, consistent: !cached, staged, bytes: 0, came: 0 };
    }

    pub(super) fn take_page(&mut self, pending: Pending, mut pages: Pages, page: Page, now: Time) {
        self.report.pages += 1;
        self.report.skipped += page.skipped as u64;
        self.resize(&pending, &page, now);
        if pages.is_first() && !self.may_apply(&page.resource_version, pages.consistent, now) {
            return;
        }
        let consistent = pages.consistent;
        let objects = page.objects.len();
        let bytes = page.objects.iter().map(cost).sum();
        match pages.take(page) {
            Step::More => self.next_page(pages, objects, bytes, now),
            Step::Beginning => self.page(pages, now),
            Step::Whole(objects, version) => {
                // The pages may have moved on to another revision than the first one's.
                if self.may_apply(&version, consistent, now) {
                    self.whole(objects, &version, now);
                    self.watch(now);
                }
            }
            Step::Misfit(failure) => {
                warn!(%failure, "list given up");
                self.report.failed(&failure, now);
                self.count(|relists| relists.rejected += 1);
                self.wait(None, Then::List, now);
            }
        }
    }

    /// Asks for the page after one with this many objects and bytes. A page without objects is no progress
    /// and is followed by a wait, and so are tiny pages once there were many of them (I7).
    fn next_page(&mut self, mut pages: Pages, objects: usize, bytes: usize, now: Time) {
        if objects == 0 {
            pages.tries += 1;
            let failure = "a page has no objects, and a token for more".to_owned();
            self.report.failed(&Failure::Decode(failure), now);
            return self.wait(None, Then::Page(pages), now);
        }
        let is_tiny = objects < self.settings.page_objects_min && bytes < TINY_PAGE_BYTES;
        pages.tiny += u32::from(is_tiny);
        let is_paced = is_tiny && pages.tiny > TINY_PAGES_MAX;
        if is_paced && !planted::on("tiny_pages_not_paced") {
            self.state = State::Waiting { until: now + TINY_PAGE_PAUSE, then: Then::Page(pages) };
            return;
        }
        self.page(pages, now);
    }

    /// A quick, full page lets the next one be larger (R4), as far as that takes no longer than a page
    /// should.
    fn resize(&mut self, pending: &Pending, page: &Page, now: Time) {
        let (objects, took) = (page.objects.len() + page.skipped, now.since(pending.asked));
        if objects < self.limit {
            return;
        }
        if took < QUICK_PAGE {
            self.limit = (self.limit * 2).min(self.settings.page_objects_max);
        }
        self.fit(objects, took);
    }

    /// Makes pages small enough for the time that they have, at the rate at which objects came.
    pub(super) fn fit(&mut self, objects: usize, took: Duration) {
        let Some(page_time) = self.page_time else { return };
        let fits = objects as u128 * page_time.as_millis() / took.as_millis().max(1);
        let fits = usize::try_from(fits).unwrap_or(usize::MAX);
        self.limit = self.limit.min(fits).max(self.settings.page_objects_min);
    }

    /// May a list of this resource version be applied? If not, what follows has been arranged.
    pub(super) fn may_apply(&mut self, version: &str, consistent: bool, now: Time) -> bool {
        let from = self.marks.seen();
        match self.marks.judge(version, consistent) {
            Verdict::Accept => true,
            Verdict::Refuse(failure) => {
                warn!(%failure, "list refused");
                self.report.failed(&failure, now);
                self.count(|relists| relists.older += 1);
                self.elsewhere = true;
                self.wait(None, Then::List, now);
                false
            }
            Verdict::Rewind(to) => {
                warn!(%from, %to, "source went back in time");
                // No wait follows, and still it was a failure: the next wait is longer.
                self.backoff.fail(now, None, &mut self.random);
                self.report.rewinds += 1;
                self.report.rewound = Some(Rewound { from, to, at: now });
                if !planted::on("rewound_silently") {
                    self.emit(Output::Rewound { from, to });
                }
                true
            }
        }
    }

    /// Hands a whole list to the cache.
    pub(super) fn whole(&mut self, objects: Vec<Object>, version: &str, now: Time) {
        let back = self.marks.rewinding();
        let revision = self.marks.listed(version);
        self.report.objects = objects.len() as u64;
        (self.elsewhere, self.pages_next) = (false, false);
        debug!(%revision, objects = objects.len(), back, "list applied");
        self.emit(if back {
            Output::Rewind { objects, revision }
        } else {
            Output::Replace { objects, revision }
        });
        self.synced(now);
    }

    pub(super) fn synced(&mut self, now: Time) {
        if !self.report.synced {
            self.report.synced = true;
            self.report.elapsed = now.since(self.began);
        }
    }

    pub(super) fn count(&mut self, cause: impl FnOnce(&mut Relists)) {
        cause(&mut self.report.relists);
    }
}
