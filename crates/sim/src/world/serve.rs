//! The servers' side of the world: requests come in, answers and events go out.

use masthead_reflector::{Failure, ListAt, ListRequest, WatchRequest};

use super::client::CallId;
use super::lists::{self, Answer};
use super::plan::{ListFault, WatchFault};
use super::streams::{self, Ending, Said, Stream};
use super::{CLIENT, Happening, ListCall, World};
use crate::history;

/// Bookmarks come about once a minute (W20).
const BOOKMARK_MS: (u64, u64) = (50_000, 60_000);

impl World {
    /// Which server answers, how far it is, and how fresh its most recent state is.
    fn server(&mut self, elsewhere: bool) -> (usize, u64, u64) {
        let server = match self.plan.lag {
            None => 0,
            Some(_) if elsewhere => 1 - self.last_server,
            Some(_) => usize::from(self.dice.chance(50)),
        };
        self.last_server = server;
        let current = self.current(server);
        let latest = if server == 1 && self.plan.lying { current } else { self.store.rv };
        (server, current, latest)
    }

    fn current(&self, server: usize) -> u64 {
        if server == 1 { self.second_at } else { self.store.rv }
    }

    pub(super) fn list(&mut self, call: CallId, request: &ListRequest) {
        self.calls += 1;
        let id = format!("l{}", self.calls);
        let record = lists::request_record(id.clone(), CLIENT, request, self.now.0);
        self.history.push(record);
        self.lists.insert(call, ListCall { id });
        if matches!(request.at, ListAt::Latest | ListAt::Cached) {
            self.paged_at = 0;
        }
        let (_, current, latest) = self.server(request.elsewhere);
        let fresh = self.dice.chance(80);
        let good = lists::answer(&self.store, request, (current, latest), fresh);
        let fault = if self.wild { self.plan.list_fault(&mut self.dice) } else { None };
        let delay = match fault {
            Some(ListFault::Slow(ms) | ListFault::TooLate(ms)) => ms,
            _ => self.dice.between(1, 40),
        };
        let answer = match fault {
            Some(fault) => lists::spoil(good, fault, request),
            None => Some(good),
        };
        let Some(answer) = answer else { return };
        if let Some(ListFault::Slow(..30_000)) = fault {
            self.after(delay / 2, Happening::Bytes(call, 100));
        }
        if let Some(ListFault::Twice) = fault {
            let again = self.dice.between(1, 5_000);
            self.after(delay + again, Happening::Answer(call, Box::new(answer.clone())));
        }
        self.after(delay, Happening::Answer(call, Box::new(answer)));
    }

    /// An answer arrives. If nobody waits for it any more, the machine has to see that.
    pub(super) fn deliver(&mut self, call: CallId, answer: Answer) {
        if call.0 != self.client.generation {
            return;
        }
        if let Some(ListCall { id }) = self.lists.remove(&call) {
            self.paged_at = self.paged_at.max(answer.record.rv);
            self.history.push(history::ListResp { id, t1: self.now.0, ..answer.record });
        }
        match answer.result {
            Ok(mut page) => {
                self.client.share(&mut page.objects);
                self.client.machine.handle_page(call.1, page, self.now);
            }
            Err(failure) => self.client.machine.handle_failure(call.1, &failure, self.now),
        }
    }

    pub(super) fn watch(&mut self, call: CallId, request: &WatchRequest) {
        self.calls += 1;
        let sid = format!("w{}", self.calls);
        self.paged_at = 0;
        let (server, current, latest) = self.server(request.elsewhere);
        let place = (self.store.oldest, current);
        self.history.push(streams::request_record(&sid, CLIENT, request, place, self.now.0));
        let mut stream = Stream::new(&self.store, sid, server, request, (current, latest));
        if let Some(refusal) = self.refusal(&stream, request) {
            let delay = self.dice.between(1, 40);
            self.streams.insert(call, stream);
            self.after(delay, Happening::Refused(call, Box::new(refusal)));
            return;
        }
        let fault = if self.wild { self.plan.watch_fault(&mut self.dice) } else { None };
        let delay = self.dice.between(1, 40);
        match fault {
            Some(WatchFault::Hang) => {
                stream.half_open = true;
                self.half_open(&stream.sid, true);
            }
            Some(WatchFault::HalfOpen) => {
                stream.half_open = true;
                self.half_open(&stream.sid, true);
                self.after(delay, Happening::Granted(call));
            }
            fault => {
                if let Some(WatchFault::Stall(ms)) = fault {
                    stream.stalled_until = self.now.0 + ms;
                }
                self.after(delay, Happening::Granted(call));
                self.arrange_end(call, &mut stream, fault, delay, request);
            }
        }
        self.streams.insert(call, stream);
    }

    /// A dead stream is the client's trouble, and nobody else's, until it notices.
    fn half_open(&mut self, sid: &str, on: bool) {
        self.fault(&format!("half-open {sid}"), on, Some(CLIENT));
    }

    /// When and how the stream is going to end.
    fn arrange_end(
        &mut self,
        call: CallId,
        stream: &mut Stream,
        fault: Option<WatchFault>,
        delay: u64,
        request: &WatchRequest,
    ) {
        let life = u64::try_from(request.timeout.as_millis()).unwrap_or(u64::MAX);
        self.after(life, Happening::End(call, Ending::TimeOver));
        if let Some(WatchFault::Empty) = fault {
            stream.stalled_until = u64::MAX;
            let ending = self.dice.one_of(&[Ending::Eof, Ending::Reset]);
            let soon = self.dice.skewed(1, 2_000);
            self.after(delay + soon, Happening::End(call, ending));
        } else if self.wild && self.dice.chance(self.plan.breaks) {
            let mut endings = vec![Ending::Eof, Ending::Reset, Ending::Truncated];
            let left = stream.initial_left();
            if let Some(left) = left {
                let at = self.dice.between(0, left as u64);
                stream.cut_at = usize::try_from(at).ok().filter(|at| *at < left);
            } else {
                endings.push(Ending::Expired);
            }
            let ending = self.dice.one_of(&endings);
            let later = self.dice.skewed(1, 60_000);
            self.after(delay + later, Happening::End(call, ending));
        }
    }

    /// The refusal with which the server, or a fault, answers the watch; none if it is served.
    fn refusal(
        &mut self,
        stream: &Stream,
        request: &WatchRequest,
    ) -> Option<(Failure, history::End)> {
        let sid = &stream.sid;
        let coded = |code: u16, after: Option<u32>, injected: bool| {
            let mut end = streams::end(sid, "refusal", Some(code), injected, 0);
            end.retry_after_ms = after.map(|seconds| u64::from(seconds) * 1000);
            (Failure::from_response(code, b"", after), end)
        };
        let initial = request.initial_events();
        if initial && self.plan.no_streaming {
            return Some(coded(422, None, false));
        }
        if !initial && stream.position < self.store.oldest {
            let (failure, mut end) = coded(410, None, false);
            end.oldest = Some(self.store.oldest);
            return Some((failure, end));
        }
        let mut dice = self.dice.clone();
        let fault = self.plan.watch_fault(&mut dice).filter(|_| self.wild)?;
        let refusal = match fault {
            WatchFault::Refused => {
                let end = streams::end(sid, "refused", None, true, 0);
                Some((Failure::Refused("nobody there".into()), end))
            }
            WatchFault::Code(code, after) => Some(coded(code, after, true)),
            WatchFault::Expired if !initial => Some(coded(410, None, true)),
            _ => None,
        };
        if refusal.is_some() {
            self.dice = dice;
        }
        refusal
    }

    pub(super) fn refused(&mut self, call: CallId, (failure, end): (Failure, history::End)) {
        if self.streams.remove(&call).is_some() {
            self.history.push(history::End { t: self.now.0, ..end });
            self.client.machine.handle_failure(call.1, &failure, self.now);
        }
    }

    pub(super) fn granted(&mut self, call: CallId) {
        if let Some(stream) = self.streams.get_mut(&call) {
            stream.granted = true;
            self.client.machine.handle_watch_open(call.1, self.now);
            self.pump(call);
            let next = self.dice.between(BOOKMARK_MS.0, BOOKMARK_MS.1);
            self.after(next, Happening::Bookmark(call));
        }
    }

    /// News for everybody, each after its own delay.
    pub(super) fn pump_all(&mut self) {
        let idle = self.streams.iter().filter(|(_, stream)| stream.granted && !stream.pump_due);
        let calls: Vec<_> = idle.map(|(call, _)| *call).collect();
        for call in calls {
            self.pump_soon(call);
        }
    }

    fn pump_soon(&mut self, call: CallId) {
        let delay = self.dice.between(1, 60);
        if let Some(stream) = self.streams.get_mut(&call) {
            stream.pump_due = true;
            self.after(delay, Happening::Pump(call));
        }
    }

    /// Sends what is there to be sent.
    pub(super) fn pump(&mut self, call: CallId) {
        let most = usize::try_from(self.dice.between(1, 8)).unwrap_or(1);
        let (late, marked) = (self.dice.chance(30), self.dice.chance(20));
        let Some(server) = self.streams.get(&call).map(|stream| stream.server) else { return };
        let current = self.current(server);
        let Some(stream) = self.streams.get_mut(&call) else { return };
        stream.pump_due = false;
        if stream.half_open || stream.stalled_until == u64::MAX {
            return;
        }
        if self.now.0 < stream.stalled_until {
            stream.pump_due = true;
            let wait = stream.stalled_until - self.now.0;
            return self.after(wait, Happening::Pump(call));
        }
        let mut said = stream.next(&self.store, current, most);
        match stream.initial_left() {
            Some(0) => {
                said.extend(stream.end_of_state(&self.store, current, late));
                self.pump_soon(call);
            }
            Some(left) if stream.cut_at.is_some_and(|at| left <= at) => {}
            Some(_) => self.pump_soon(call),
            None if marked => said.extend(stream.bookmark(current)),
            None => {}
        }
        self.say(call, &said);
    }

    pub(super) fn bookmark(&mut self, call: CallId) {
        let Some(server) = self.streams.get(&call).map(|stream| stream.server) else { return };
        let current = self.current(server);
        let next = self.dice.between(BOOKMARK_MS.0, BOOKMARK_MS.1);
        self.after(next, Happening::Bookmark(call));
        let Some(stream) = self.streams.get_mut(&call) else { return };
        if stream.half_open || self.now.0 < stream.stalled_until || stream.initial_left().is_some()
        {
            return;
        }
        let mut said = stream.next(&self.store, current, 0);
        said.extend(stream.bookmark(current));
        self.say(call, &said);
    }

    fn say(&mut self, call: CallId, said: &[Said]) {
        let Some(stream) = self.streams.get(&call) else { return };
        if said.is_empty() {
            return;
        }
        for said in said {
            self.history.push(said.frame(&stream.sid, self.now.0));
        }
        let items = said.iter().map(Said::item).collect();
        self.client.machine.handle_events(call.1, items, self.now);
    }

    pub(super) fn end_stream(&mut self, call: CallId, ending: Ending) {
        if self.streams.get(&call).is_none_or(|stream| stream.half_open) {
            return;
        }
        let Some(stream) = self.streams.remove(&call) else { return };
        self.history.push(ending.record(&stream.sid, self.now.0));
        match ending.told() {
            Ok(None) => self.client.machine.handle_end(call.1, self.now),
            Ok(Some(error)) => self.client.machine.handle_events(call.1, vec![error], self.now),
            Err(failure) => self.client.machine.handle_failure(call.1, &failure, self.now),
        }
    }

    /// The client gives a request up. Whatever is on its way still arrives.
    pub(super) fn cancel(&mut self, call: CallId) {
        if let Some(ListCall { id }) = self.lists.remove(&call) {
            let reason = "given up".to_owned();
            let t1 = self.now.0;
            self.history.push(history::ListResp { id, reason, t1, ..lists::empty() });
        }
        let Some(mut stream) = self.streams.remove(&call) else { return };
        self.history.push(streams::end(&stream.sid, "closed", None, false, self.now.0));
        if stream.half_open {
            self.half_open(&stream.sid, false);
        }
        if self.dice.chance(20) {
            let current = self.current(stream.server);
            let late = stream.next(&self.store, current, 4).iter().map(Said::item).collect();
            let delay = self.dice.between(1, 2_000);
            self.after(delay, Happening::Late(call, late));
        }
    }
}
