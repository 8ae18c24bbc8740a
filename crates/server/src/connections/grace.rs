//! How long a connection is kept for which nothing happens: while the server runs, and once it stops.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::time::{Instant, Interval, MissedTickBehavior, Sleep, interval, sleep_until};

use crate::flights::Connection;
use crate::limits::{Limits, SHUTDOWN_GRACE, SHUTDOWN_PATIENCE};

/// The time that a connection has left once the server goes down. Requests under way have
/// [`SHUTDOWN_GRACE`]. A connection without one, on which nothing goes out either, has
/// [`SHUTDOWN_PATIENCE`]: its client has not finished a request, or does not read.
pub(super) struct Grace {
    connection: Arc<Connection>,
    began: u64,
    ticks: Interval,
}

impl Grace {
    pub(super) fn new(connection: Arc<Connection>) -> Self {
        let began = connection.clock.now();
        let mut ticks = interval(SHUTDOWN_PATIENCE / 2);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        Self { connection, began, ticks }
    }

    /// Ready when the time is over. `is_idle` says that no request is under way.
    pub(super) fn poll_over(&mut self, cx: &mut Context<'_>, is_idle: bool) -> Poll<()> {
        while self.ticks.poll_tick(cx).is_ready() {
            let now = self.connection.clock.now();
            let since = |then: u64| u128::from(now.saturating_sub(then));
            let quiet = since(self.began).min(since(self.connection.last_write()));
            let abandoned = is_idle && quiet >= SHUTDOWN_PATIENCE.as_millis();
            if abandoned || since(self.began) >= SHUTDOWN_GRACE.as_millis() {
                return Poll::Ready(());
            }
        }
        Poll::Pending
    }
}

/// Ends an HTTP/2 connection that has no request: answers to pings keep it open for nothing. The first
/// request has the time of a head, later ones the time that a connection may be idle.
pub(super) struct Idle {
    first: Duration,
    later: Duration,
    /// Requests up to the last look.
    seen: u64,
    deadline: Pin<Box<Sleep>>,
}

impl Idle {
    pub(super) fn new(limits: &Limits) -> Self {
        let deadline = Box::pin(sleep_until(Instant::now() + limits.header_timeout));
        Self { first: limits.header_timeout, later: limits.idle_timeout, seen: 0, deadline }
    }

    /// Ready when there has been no request for too long. Looks again at the end of each such time, so a
    /// connection is closed between one and two of them after its last request.
    pub(super) fn poll_over(
        &mut self,
        cx: &mut Context<'_>,
        has_requests: bool,
        requests: u64,
    ) -> Poll<()> {
        while self.deadline.as_mut().poll(cx).is_ready() {
            if !has_requests && requests == self.seen {
                return Poll::Ready(());
            }
            self.seen = requests;
            let wait = if requests == 0 { self.first } else { self.later };
            self.deadline.as_mut().reset(Instant::now() + wait);
        }
        Poll::Pending
    }
}
