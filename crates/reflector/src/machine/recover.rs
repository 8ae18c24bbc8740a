//! What follows a failure, in each state.

use std::time::Duration;

use masthead_core::{Time, planted};
use tracing::debug;

use super::pages::Pages;
use super::{Pending, Reflector, State, Then};
use crate::limits::{
    BRIEF_WATCHES_MAX, PAGE_TIME_PART, PAGE_TRIES_MAX, QUICK_PAGE, SHORT_WATCH, SHORT_WATCHES_MAX,
};
use crate::{Class, Failure, Recovery};

impl Reflector {
    /// The request that is under way has failed.
    pub(super) fn fail(&mut self, failure: &Failure, now: Time) {
        debug!(class = %failure.class(), %failure, "failed");
        let waiting = State::Waiting { until: now, then: Then::List };
        match std::mem::replace(&mut self.state, waiting) {
            State::Paging { pending, pages } => {
                self.report.failed(failure, now);
                self.page_failed(pending, pages, failure, now);
            }
            State::Streaming { pending, staged, .. } => {
                self.report.failed(failure, now);
                let staged = staged.into_values();
                self.stream_failed(pending, staged, failure, now);
            }
            State::Watching { pending } => self.watch_failed(pending, failure, now),
            waiting @ State::Waiting { .. } => self.state = waiting,
        }
    }

    /// Waits with the backoff, then goes on.
    pub(super) fn wait(&mut self, at_least: Option<Duration>, then: Then, now: Time) {
        self.hurried = None;
        let until = self.backoff.fail(now, at_least, &mut self.random);
        let until = if planted::on("failure_not_waited_for") { now } else { until };
        debug!(wait = ?until.since(now), "waiting");
        self.state = State::Waiting { until, then };
    }

    /// A page did not come; the pages before it are kept (R4).
    fn page_failed(&mut self, pending: Pending, mut pages: Pages, failure: &Failure, now: Time) {
        let smallest = self.limit == self.settings.page_objects_min;
        let late = failure.class().is_time_out();
        // A server can also claim at once that it took too long.
        let has_waited = now.since(pending.asked) >= QUICK_PAGE.min(self.settings.progress);
        if late {
            self.limit = (self.limit / 2).max(self.settings.page_objects_min);
        }
        pages.tries += 1;
        match failure.recovery() {
            Recovery::Relist => self.page_expired(pages, failure, now),
            Recovery::Reconsider => {
                self.count(|relists| relists.rejected += 1);
                self.wait(None, Then::List, now);
            }
            // The time-out itself was the wait.
            Recovery::Resume if late && has_waited && !smallest => self.page(pages, now),
            // Pages do arrive in between: the link is cut, and not the server in trouble.
            Recovery::Resume if pages.tries == 1 && !pages.is_first() => self.page(pages, now),
            Recovery::Resume => self.page_later(pages, None, now),
            Recovery::Backoff { at_least } => self.page_later(pages, at_least, now),
        }
    }

    fn page_later(&mut self, pages: Pages, at_least: Option<Duration>, now: Time) {
        let worn_out = pages.tries >= PAGE_TRIES_MAX && !pages.is_first();
        let then = if worn_out { Then::List } else { Then::Page(pages) };
        self.wait(at_least, then, now);
    }

    /// The token is too old. The rest is read with the fresh one, if there is one (R3): at once if a page
    /// has arrived since the last token expired, otherwise after a wait.
    fn page_expired(&mut self, mut pages: Pages, failure: &Failure, now: Time) {
        self.count(|relists| relists.expired += 1);
        pages.expired += 1;
        if !failure.fresh_token().is_some_and(|token| pages.go_on_with(token)) {
            return self.relist(now);
        }
        if pages.expired == 1 || planted::on("expired_pages_not_waited_for") {
            return self.page(pages, now);
        }
        self.page_later(pages, None, now);
    }

    /// The initial events broke off. There is no point to resume from: what came is dropped, and the
    /// next list is read in pages, which can be kept one by one (R2).
    fn stream_failed(
        &mut self,
        pending: Pending,
        staged: impl ExactSizeIterator<Item = masthead_core::Object>,
        failure: &Failure,
        now: Time,
    ) {
        let progress = staged.len() > 0;
        if progress && failure.class() == Class::Broken {
            self.stream_cut(staged.len(), now.since(pending.asked));
        }
        self.pages_next |= progress || failure.class().is_time_out();
        if progress && planted::on("staged_list_kept_after_break") {
            let pages = Pages::new(crate::ListAt::Latest, usize::MAX).keeping(staged.collect());
            return self.page(pages, now);
        }
        match failure.recovery() {
            Recovery::Reconsider if pending.items == 0 => {
                self.memory.refused_streaming();
                self.list(now);
            }
            Recovery::Relist => {
                self.count(|relists| relists.expired += 1);
                self.relist(now);
            }
            Recovery::Resume if self.pages_next => self.relist(now),
            Recovery::Resume | Recovery::Reconsider => self.wait(None, Then::List, now),
            Recovery::Backoff { at_least } => self.wait(at_least, Then::List, now),
        }
    }

    /// A stream that was cut after so many objects tells how fast they come and how long requests live.
    fn stream_cut(&mut self, objects: usize, lived: Duration) {
        if lived < QUICK_PAGE {
            return;
        }
        let page_time = lived / PAGE_TIME_PART;
        self.page_time = Some(self.page_time.map_or(page_time, |it| it.min(page_time)));
        self.fit(objects, lived);
    }

    fn watch_failed(&mut self, pending: Pending, failure: &Failure, now: Time) {
        let recovery = failure.recovery();
        let lived = now.since(pending.asked);
        let brief = recovery == Recovery::Resume && lived < SHORT_WATCH;
        let idle = brief && !pending.news;
        let short = idle && pending.items == 0;
        self.brief_watches = if brief && !idle { self.brief_watches + 1 } else { 0 };
        self.short_watches = if short { self.short_watches + 1 } else { 0 };
        if idle || *failure != Failure::Ended {
            self.report.failed(failure, now);
        }
        match recovery {
            Recovery::Relist if planted::on("expired_watch_retried") => {
                self.wait(None, Then::Watch, now);
            }
            Recovery::Relist => {
                self.marks.expire();
                self.count(|relists| relists.expired += 1);
                self.relist(now);
            }
            Recovery::Reconsider => {
                self.count(|relists| relists.rejected += 1);
                self.wait(None, Then::List, now);
            }
            Recovery::Resume if short => self.short_watch(now),
            // It said what was known and closed: at once again would be again and again.
            Recovery::Resume if idle => self.wait(None, self.then_watch(), now),
            Recovery::Resume
                if self.brief_watches > BRIEF_WATCHES_MAX && self.marks.resumable() =>
            {
                self.report.failed(failure, now);
                self.state =
                    State::Waiting { until: pending.asked + SHORT_WATCH, then: Then::Watch };
            }
            Recovery::Resume => self.again_at_once(&pending, now),
            Recovery::Backoff { at_least } => self.wait(at_least, self.then_watch(), now),
        }
    }

    /// A watch that ended as soon as it began. Once is an accident; three times over, from the same
    /// place, something is wrong with the place (R7).
    fn short_watch(&mut self, now: Time) {
        if self.short_watches >= SHORT_WATCHES_MAX || planted::on("short_watch_relists") {
            self.short_watches = 0;
            self.count(|relists| relists.short_watches += 1);
            return self.wait(None, Then::List, now);
        }
        self.wait(None, self.then_watch(), now);
    }

    fn then_watch(&self) -> Then {
        if self.marks.resumable() { Then::Watch } else { Then::List }
    }
}
