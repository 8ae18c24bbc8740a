//! Watches: a position in the log.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use futures_core::Stream;
use masthead_core::Revision;
use tokio::sync::watch;

use crate::tail::{Next, Tail};
use crate::{Batch, BoxFuture, Event, Events, StoreError};

/// The log beyond what is in memory.
pub(crate) trait History: Send + Sync + 'static {
    /// The first of the events after a revision that is kept and not the newest: at least one.
    fn read(&self, after: Revision) -> BoxFuture<Result<Vec<Event>, StoreError>>;
}

/// The events after a revision.
pub(crate) fn follow(
    tail: &Arc<Tail>,
    history: impl History,
    from: Revision,
) -> Result<Events, StoreError> {
    tail.check_kept(from)?;
    let follow = Follow { news: tail.news(), tail: tail.clone(), history, position: from };
    Ok(Box::pin(Steps { step: Some(Box::pin(follow.step())) }))
}

struct Follow<H> {
    tail: Arc<Tail>,
    history: H,
    news: watch::Receiver<Revision>,
    /// Everything up to here has been told.
    position: Revision,
}

type Step<H> = (Follow<H>, Result<Batch, StoreError>);

impl<H: History> Follow<H> {
    async fn step(mut self) -> Step<H> {
        let batch = self.next().await;
        (self, batch)
    }

    async fn next(&mut self) -> Result<Batch, StoreError> {
        loop {
            let events = match self.tail.next(self.position)? {
                Next::Events(events) => events,
                Next::Older => self.history.read(self.position).await?,
                Next::Wait => {
                    self.news.changed().await.map_err(|_| StoreError::Closed)?;
                    continue;
                }
            };
            let reached = events.last().expect("a batch has at least one event").revision;
            self.position = reached;
            return Ok(Batch { events, reached });
        }
    }
}

/// A stream made of one future after the other.
struct Steps<H> {
    step: Option<BoxFuture<Step<H>>>,
}

impl<H: History> Stream for Steps<H> {
    type Item = Result<Batch, StoreError>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let Some(step) = &mut self.step else { return Poll::Ready(None) };
        let (follow, batch) = ready!(step.as_mut().poll(cx));
        self.step = batch.is_ok().then(|| Box::pin(follow.step()) as BoxFuture<Step<H>>);
        Poll::Ready(Some(batch))
    }
}
