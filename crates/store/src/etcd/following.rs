//! The watch: one for the whole prefix, resumed from where it was when a member goes away.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use futures_util::stream;
use masthead_core::Revision;
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};
use tracing::{debug, info};

use super::cluster::WatchStream;
use super::messages::{
    Happened, WatchCreateRequest, WatchEvent, WatchProgressRequest, WatchRequest, WatchResponse,
    Watching,
};
use super::{Goal, Shared, revision, stamp};
use crate::limits::{ETCD_NUDGE_AGAIN, ETCD_NUDGE_FIRST, ETCD_NUDGES_MAX, EVENTS_BATCH_MAX};
use crate::{Batch, Event, EventKind, Events, StoreError};

/// Everything after a revision.
pub(super) fn follow(shared: Arc<Shared>, from: Revision) -> Events {
    let goal = shared.goal.subscribe();
    let epoch = goal.borrow().epoch;
    let following = Following {
        shared,
        goal,
        epoch,
        position: from,
        open: None,
        heard: VecDeque::new(),
        more: false,
        over: false,
    };
    Box::pin(stream::unfold(following, |mut following| async {
        if following.over {
            return None;
        }
        let batch = following.next().await;
        following.over = batch.is_err();
        Some((batch, following))
    }))
}

struct Following {
    shared: Arc<Shared>,
    goal: watch::Receiver<Goal>,
    epoch: u64,
    /// Everything up to here has been told.
    position: Revision,
    open: Option<Open>,
    /// What was heard and not told yet.
    heard: VecDeque<WatchEvent>,
    /// Is there more of the response? Then the last revision that was heard may not be complete.
    more: bool,
    over: bool,
}

struct Open {
    stream: WatchStream,
    /// Can it be asked how far it is? Before 3.4.31 and 3.5.13 the answer could be ahead of events.
    tells: bool,
}

/// What came of reading once.
enum Heard {
    Batch(Batch),
    Nothing,
    /// The stream is of no use any more.
    Lost(String),
}

impl Following {
    async fn next(&mut self) -> Result<Batch, StoreError> {
        let mut losses = 0;
        loop {
            if let Some(batch) = self.take()? {
                return Ok(batch);
            }
            self.check()?;
            if self.open.is_none() {
                self.open = Some(self.open().await?);
            }
            match self.hear().await? {
                Heard::Batch(batch) => return Ok(batch),
                Heard::Nothing => {}
                Heard::Lost(why) => {
                    info!(%why, position = %self.position, "the etcd watch was lost; resuming it");
                    if let Some(open) = self.open.take() {
                        self.shared.cluster.pass_over(open.stream.member);
                    }
                    self.heard.clear();
                    losses += 1;
                    if losses > self.shared.cluster.len() {
                        return Err(StoreError::unavailable(why));
                    }
                }
            }
        }
    }

    async fn open(&self) -> Result<Open, StoreError> {
        // An etcd that was restored is noticed here: it would wait for our position in silence.
        self.shared.current().await?;
        self.check()?;
        let keys = self.shared.layout.all();
        let create = WatchCreateRequest {
            key: keys.start,
            range_end: keys.end,
            start_revision: i64::try_from(self.position.0.saturating_add(1)).unwrap_or(i64::MAX),
            prev_kv: true,
            fragment: true,
        };
        let stream = self.shared.cluster.watch(create).await?;
        let tells = tells_progress(&self.shared.cluster.version(stream.member).await?);
        debug!(from = %self.position, tells, "watching etcd");
        Ok(Open { stream, tells })
    }

    /// The goal, or an error if the store is no longer what it was.
    fn check(&self) -> Result<Goal, StoreError> {
        let goal = *self.goal.borrow();
        match goal {
            Goal { closed: true, .. } => Err(StoreError::Closed),
            Goal { epoch, .. } if epoch != self.epoch => Err(StoreError::Rewound),
            goal => Ok(goal),
        }
    }

    /// Reads once. If somebody waits for a revision that does not come, asks for it.
    async fn hear(&mut self) -> Result<Heard, StoreError> {
        let mut nudges = 0;
        let mut nudge_at = Instant::now() + ETCD_NUDGE_FIRST;
        loop {
            self.goal.mark_unchanged();
            let behind = self.check()?.revision > self.position;
            let Some(open) = &mut self.open else { return Ok(Heard::Nothing) };
            tokio::select! {
                response = open.stream.responses.message() => {
                    return match response {
                        Ok(Some(response)) => self.handle(response),
                        Ok(None) => Ok(Heard::Lost("etcd ended it".to_owned())),
                        Err(status) => Ok(Heard::Lost(status.message().to_owned())),
                    };
                }
                changed = self.goal.changed() => {
                    changed.map_err(|_| StoreError::Closed)?;
                    if !behind {
                        nudge_at = Instant::now() + ETCD_NUDGE_FIRST;
                    }
                }
                () = sleep_until(nudge_at), if behind => {
                    nudges += 1;
                    if nudges > ETCD_NUDGES_MAX {
                        return Ok(Heard::Lost("it does not move".to_owned()));
                    }
                    nudge_at = Instant::now() + ETCD_NUDGE_AGAIN;
                    if let Some(reached) = self.nudge(nudges).await {
                        return Ok(self.reach(reached));
                    }
                }
            }
        }
    }

    /// Finds out how far the watch is. A revision may belong to a key outside of the prefix, and then
    /// no event comes for it. Of one that is asked the answer comes with the events; of another one
    /// it is found out here that there are none.
    async fn nudge(&mut self, nudges: usize) -> Option<Revision> {
        let open = self.open.as_ref()?;
        if open.tells {
            let progress = Watching::Progress(WatchProgressRequest {});
            // If the stream is gone or full, something will be heard of it.
            let _ = open.stream.requests.try_send(WatchRequest { request: Some(progress) });
            return None;
        }
        let goal = self.goal.borrow().revision;
        if nudges == 1 {
            return None;
        }
        match self.shared.is_quiet(self.position, goal).await {
            Ok(quiet) => quiet.then_some(goal),
            Err(error) => {
                debug!(%error, "cannot find out how far the watch is");
                None
            }
        }
    }

    fn reach(&mut self, reached: Revision) -> Heard {
        self.position = reached.max(self.position);
        self.shared.saw(self.position);
        Heard::Batch(Batch { events: Vec::new(), reached: self.position })
    }

    fn handle(&mut self, response: WatchResponse) -> Result<Heard, StoreError> {
        let header = response.header.unwrap_or_default();
        if let Err(fault) = self.shared.cluster.recognise_id(header.cluster_id) {
            return Ok(Heard::Lost(fault.to_string()));
        }
        if response.compact_revision > 0 {
            let (asked, oldest) = (self.position, revision(response.compact_revision));
            self.shared.forget(oldest);
            return Err(StoreError::Expired { asked, oldest });
        }
        if response.canceled {
            return Ok(Heard::Lost(response.cancel_reason));
        }
        if response.created {
            return Ok(Heard::Nothing);
        }
        if response.events.is_empty() {
            // The rest of a response is still to come: nothing is reached before that.
            if !self.heard.is_empty() {
                return Ok(Heard::Nothing);
            }
            return Ok(self.reach(revision(header.revision)));
        }
        self.more = response.fragment;
        self.heard.extend(response.events);
        Ok(Heard::Nothing)
    }

    /// The next events that were heard: whole revisions.
    fn take(&mut self) -> Result<Option<Batch>, StoreError> {
        let unfinished = self.heard.back().filter(|_| self.more).map(modified);
        let (mut events, mut reached, mut count) = (Vec::new(), None, 0);
        while let Some(event) = self.heard.front() {
            let at = modified(event);
            let same = reached == Some(at);
            if unfinished == Some(at) || (count >= EVENTS_BATCH_MAX && !same) {
                break;
            }
            events.extend(self.event(event)?);
            (reached, count) = (Some(at), count + 1);
            self.heard.pop_front();
        }
        let Some(reached) = reached.map(revision) else { return Ok(None) };
        self.position = reached;
        self.shared.saw(reached);
        Ok(Some(Batch { events, reached }))
    }

    /// An event in the store's words; none if it is of no object.
    fn event(&self, event: &WatchEvent) -> Result<Option<Event>, StoreError> {
        let Some(kv) = &event.kv else { return Ok(None) };
        let Some((resource, key)) = self.shared.layout.read(&kv.key) else { return Ok(None) };
        let at = revision(kv.mod_revision);
        let (kind, body) = if event.happened == i32::from(Happened::Delete) {
            let Some(last) = &event.prev_kv else {
                // It was compacted while it was on its way: only a new list helps.
                let oldest = Revision(self.shared.oldest.load(Ordering::Acquire)).max(at);
                return Err(StoreError::Expired { asked: self.position, oldest });
            };
            (EventKind::Deleted, &last.value)
        } else if kv.create_revision == kv.mod_revision {
            (EventKind::Added, &kv.value)
        } else {
            (EventKind::Modified, &kv.value)
        };
        let value = stamp::stamped(&key, body, at);
        Ok(Some(Event { resource, key, revision: at, kind, value }))
    }
}

fn modified(event: &WatchEvent) -> i64 {
    event.kv.as_ref().map_or(0, |kv| kv.mod_revision)
}

/// Returns `true` if answers to progress requests of this version are never ahead of the events.
fn tells_progress(version: &str) -> bool {
    let mut parts = version.split('.').map(|part| {
        let digits = part.split(|it: char| !it.is_ascii_digit()).next().unwrap_or_default();
        digits.parse::<u32>().unwrap_or(0)
    });
    let mut next = || parts.next().unwrap_or(0);
    match (next(), next(), next()) {
        (3, 4, patch) => patch >= 31,
        (3, 5, patch) => patch >= 13,
        (major, minor, _) => (major, minor) >= (3, 6),
    }
}

#[cfg(test)]
mod tests {
    use super::tells_progress;

    #[test]
    fn progress_is_asked_of_those_who_tell_it_right() {
        for version in ["3.4.31", "3.5.13", "3.5.21", "3.6.0", "3.6.0-rc.1", "3.7.3", "4.0.0"] {
            assert!(tells_progress(version), "{version}");
        }
        for version in ["3.4.23", "3.4.30", "3.5.0", "3.5.12", "3.3.27", "", "x"] {
            assert!(!tells_progress(version), "{version}");
        }
    }
}
