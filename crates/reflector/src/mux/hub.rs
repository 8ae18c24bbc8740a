//! What a multiplexer knows: its lanes, and the events that it keeps for them.

use std::collections::VecDeque;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};

use masthead_cache::{Lane, Progress};
use masthead_core::{Resource, Revision, Status};
use tokio::sync::mpsc;

use super::UpstreamItem;
use crate::{Failure, WatchItem};

/// Guarded by one lock; nothing in here waits.
pub(super) struct Hub {
    /// Everything up to here has been handed out; none before the first watch.
    position: Option<Revision>,
    /// Every event after this revision is in `kept`.
    oldest: Revision,
    /// Revision, lane, event.
    kept: VecDeque<(Revision, usize, WatchItem)>,
    kept_max: usize,
    lanes: Vec<LaneState>,
    batches_max: usize,
    serial: u64,
    /// Where the last change belonged: changes of one resource often come together.
    last: usize,
}

struct LaneState {
    resource: Resource,
    /// Its events after this revision were looked at; before, nobody had asked for them.
    since: Revision,
    lane: Arc<Lane>,
    open: Option<Open>,
}

/// A lane that somebody reads.
struct Open {
    serial: u64,
    sender: mpsc::Sender<Vec<WatchItem>>,
    ending: Arc<OnceLock<Failure>>,
    /// The reader has been told everything up to here.
    told: Revision,
    /// Events of the batch that is being handed out.
    batch: Vec<WatchItem>,
}

/// The reader's end of a lane.
pub(super) struct LaneStream {
    serial: u64,
    receiver: mpsc::Receiver<Vec<WatchItem>>,
    ending: Arc<OnceLock<Failure>>,
    over: bool,
}

impl Hub {
    pub(super) fn new(kept_max: usize, batches_max: usize) -> Self {
        Self {
            position: None,
            oldest: Revision::ZERO,
            kept: VecDeque::new(),
            kept_max,
            lanes: Vec::new(),
            batches_max,
            serial: 0,
            last: 0,
        }
    }

    pub(super) fn position(&self) -> Option<Revision> {
        self.position
    }

    /// The watch begins here.
    pub(super) fn begin(&mut self, position: Revision) {
        (self.position, self.oldest) = (Some(position), position);
    }

    /// The upstream's history is gone: every lane has to list again.
    pub(super) fn expire(&mut self) {
        self.position = None;
        self.kept.clear();
        for lane in &mut self.lanes {
            lane.end(Status::of_response(410, b"").into());
        }
    }

    pub(super) fn lane(
        &mut self,
        resource: &Resource,
        progress: &Arc<Progress>,
    ) -> (usize, Arc<Lane>) {
        if let Some(number) = self.find(resource) {
            return (number, self.lanes[number].lane.clone());
        }
        let lane = Lane::new(progress);
        let (resource, since) = (resource.clone(), self.position.unwrap_or_default());
        self.lanes.push(LaneState { resource, since, lane: lane.clone(), open: None });
        (self.lanes.len() - 1, lane)
    }

    fn find(&mut self, resource: &Resource) -> Option<usize> {
        if self.lanes.get(self.last).is_some_and(|lane| lane.resource == *resource) {
            return Some(self.last);
        }
        let found = self.lanes.iter().position(|lane| lane.resource == *resource)?;
        self.last = found;
        Some(found)
    }

    /// Begins to read a lane after `from`, with what is kept of it.
    pub(super) fn open(&mut self, number: usize, from: Revision) -> Result<LaneStream, Failure> {
        let oldest = self.oldest.max(self.lanes[number].since);
        if from < oldest || self.position.is_none() {
            return Err(Status::of_response(410, b"").into());
        }
        let replay: Vec<WatchItem> = self
            .kept
            .iter()
            .filter(|(revision, lane, _)| *lane == number && *revision > from)
            .map(|(_, _, item)| item.clone())
            .collect();
        let last = self.kept.iter().rev().find(|(_, lane, _)| *lane == number);
        let last = last.map_or(from, |(revision, ..)| from.max(*revision));
        self.serial += 1;
        let (sender, receiver) = mpsc::channel(self.batches_max);
        let ending = Arc::new(OnceLock::new());
        let serial = self.serial;
        let stream = LaneStream { serial, receiver, ending: ending.clone(), over: false };
        let told = from.max(self.position.unwrap_or(from));
        let lane = &mut self.lanes[number];
        lane.open = Some(Open { serial, sender, ending, told, batch: replay });
        lane.lane.route(last);
        lane.send();
        Ok(stream)
    }

    pub(super) fn close(&mut self, number: usize, serial: u64) {
        let lane = &mut self.lanes[number];
        if lane.open.as_ref().is_some_and(|open| open.serial == serial) {
            lane.open = None;
            lane.lane.suspend();
        }
    }

    /// Sorts changes into their lanes. Says how far it got and whom it had to cut off.
    pub(super) fn hand_out(&mut self, items: Vec<UpstreamItem>) -> (Revision, Vec<Resource>) {
        let before = self.position.unwrap_or_default();
        let mut position = before;
        for item in items {
            match item {
                UpstreamItem::Progress(revision) => position = position.max(revision),
                UpstreamItem::Change { revision, .. } if revision <= before => {}
                UpstreamItem::Change { resource, revision, item } => {
                    position = position.max(revision);
                    if let Some(number) = self.find(&resource) {
                        self.lanes[number].push(revision, &item);
                        self.keep(revision, number, item);
                    }
                }
            }
        }
        self.position = Some(position);
        let oldest = self.oldest;
        let mut cut = Vec::new();
        for lane in &mut self.lanes {
            // A quiet lane hears of the others before it could not resume any more.
            lane.bookmark_if(position, |told| told < oldest);
            if !lane.send() {
                cut.push(lane.resource.clone());
            }
        }
        (position, cut)
    }

    fn keep(&mut self, revision: Revision, number: usize, item: WatchItem) {
        if self.kept.len() >= self.kept_max
            && let Some((evicted, ..)) = self.kept.pop_front()
        {
            self.oldest = self.oldest.max(evicted);
        }
        self.kept.push_back((revision, number, item));
    }

    /// Tells every lane where the upstream is.
    pub(super) fn bookmark_all(&mut self) {
        let Some(position) = self.position else { return };
        for lane in &mut self.lanes {
            lane.bookmark_if(position, |_| true);
            lane.send();
        }
    }
}

impl LaneState {
    /// A change for this lane, unless its reader has it from a list.
    fn push(&mut self, revision: Revision, item: &WatchItem) {
        if let Some(open) = self.open.as_mut().filter(|open| revision > open.told) {
            open.told = revision;
            // Before the shared number moves past it: the cache does not have it yet.
            self.lane.route(revision);
            open.batch.push(item.clone());
        }
    }

    fn bookmark_if(&mut self, position: Revision, due: impl FnOnce(Revision) -> bool) {
        if let Some(open) = self.open.as_mut().filter(|open| due(open.told)) {
            // A reader that is ahead, from a list of its own, learns nothing from it.
            open.told = open.told.max(position);
            let resource_version = open.told.to_string();
            open.batch.push(WatchItem::Bookmark { resource_version, initial_events_end: false });
        }
    }

    /// Sends what has gathered. False if the reader is too slow for it and was cut off.
    fn send(&mut self) -> bool {
        let Some(open) = self.open.as_mut().filter(|open| !open.batch.is_empty()) else {
            return true;
        };
        let sent = open.sender.try_send(std::mem::take(&mut open.batch));
        let full = matches!(sent, Err(mpsc::error::TrySendError::Full(_)));
        if full {
            self.end(Failure::CutOff);
        }
        !full
    }

    /// Ends the lane's stream behind what is already on its way.
    fn end(&mut self, failure: Failure) {
        if let Some(open) = self.open.take() {
            self.lane.suspend();
            // The only place that sets it, and the sender is dropped after it.
            let _ = open.ending.set(failure);
        }
    }
}

impl LaneStream {
    pub(super) fn serial(&self) -> u64 {
        self.serial
    }

    pub(super) fn poll_next(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Vec<WatchItem>, Failure>>> {
        if self.over {
            return Poll::Ready(None);
        }
        self.receiver.poll_recv(cx).map(|batch| {
            Some(batch.map_or_else(
                || {
                    self.over = true;
                    Err(self.ending.get().cloned().unwrap_or(Failure::Ended))
                },
                Ok,
            ))
        })
    }
}
