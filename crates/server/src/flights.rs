//! Answers under way: what bounds them, and what ends them.
//!
//! A watch is a cursor and costs no buffer, and the objects of a list are those of the cache. What an
//! unread answer does cost is what it pins; so the bytes of all lists under way have one budget, and
//! an answer that does not move is let go.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, AtomicUsize, Ordering};
use std::task::{Wake, Waker};
use std::time::{Duration, Instant};

use atomic_waker::AtomicWaker;
use masthead_core::{Reason, Resource, Status};
use parking_lot::Mutex;
use std::collections::HashMap;
use tokio::sync::Notify;

use crate::authn::User;
use crate::budget::{Budget, Share};
use crate::limits::{Limits, SHORT_QUERY_BYTES, WIDE_WATCHES_MAX};
use crate::listing::Listed;

/// Milliseconds since the server was made; never zero.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock(Instant);

impl Clock {
    pub(crate) fn start() -> Self {
        Self(Instant::now())
    }

    pub(crate) fn now(self) -> u64 {
        u64::try_from(self.0.elapsed().as_millis()).unwrap_or(u64::MAX).max(1)
    }
}

/// A client's connection, as its answers see it.
#[derive(Debug)]
pub(crate) struct Connection {
    pub(crate) clock: Clock,
    /// Many answers share it, so each has a window of its own and stalls alone.
    multiplexed: AtomicBool,
    /// When bytes last went out.
    wrote: AtomicU64,
    /// The last write found no room.
    blocked: AtomicBool,
    watches: AtomicUsize,
    cut: Notify,
}

impl Connection {
    pub(crate) fn new(clock: Clock) -> Arc<Self> {
        let (wrote, multiplexed) = (AtomicU64::new(clock.now()), AtomicBool::new(false));
        let (watches, cut) = (AtomicUsize::new(0), Notify::new());
        let blocked = AtomicBool::new(false);
        Arc::new(Self { clock, multiplexed, wrote, blocked, watches, cut })
    }

    pub(crate) fn note_multiplexed(&self) {
        self.multiplexed.store(true, Ordering::Relaxed);
    }

    pub(crate) fn note_write(&self) {
        self.wrote.store(self.clock.now(), Ordering::Relaxed);
    }

    /// When bytes last went out, or the connection began, on its clock.
    pub(crate) fn last_write(&self) -> u64 {
        self.wrote.load(Ordering::Relaxed)
    }

    pub(crate) fn note_blocked(&self, blocked: bool) {
        self.blocked.store(blocked, Ordering::Relaxed);
    }

    /// Returns `true` if the last write found no room.
    pub(crate) fn is_blocked(&self) -> bool {
        self.blocked.load(Ordering::Relaxed)
    }

    /// Resolves when the connection is to be dropped.
    pub(crate) async fn cut(&self) {
        self.cut.notified().await;
    }
}

/// Why a watch ends before its time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Ending {
    /// The server goes down: a last bookmark, and a clean end.
    Shutdown = 1,
    /// The client does not read.
    Stalled = 2,
    /// The resource is no longer served.
    Gone = 3,
    /// The store went back: what was sent does not hold any more.
    Rewound = 4,
}

/// One answer under way.
#[derive(Debug)]
pub(crate) struct Flight {
    connection: Arc<Connection>,
    resource: Resource,
    is_watch: bool,
    /// Since when what was handed out waits to be written; 0 if nothing does.
    waiting: AtomicU64,
    /// What it has of the budget; given back before its end if it no longer pins anything.
    bytes: Mutex<Option<Share>>,
    ending: AtomicU8,
    /// Something happened to it that is not an event of its watch.
    stirred: AtomicBool,
    waker: AtomicWaker,
    /// What a list still has to send.
    list: Mutex<Option<Listed>>,
}

impl Flight {
    /// Something was handed to the connection.
    pub(crate) fn handed_out(&self) {
        self.waiting.store(self.connection.clock.now(), Ordering::Relaxed);
    }

    /// What was handed out cannot be written yet.
    pub(crate) fn held_up(&self) {
        if self.waiting.load(Ordering::Relaxed) == 0 {
            self.handed_out();
        }
    }

    /// The connection asks for more: what it had is written, or on its way. Says how many
    /// milliseconds that took.
    pub(crate) fn asked(&self) -> u64 {
        match self.waiting.load(Ordering::Relaxed) {
            0 => 0,
            since => {
                self.waiting.store(0, Ordering::Relaxed);
                self.connection.clock.now().saturating_sub(since)
            }
        }
    }

    /// Has it been given up? Wakes when it is.
    pub(crate) fn is_stalled(&self, cx: &mut std::task::Context<'_>) -> bool {
        self.waker.register(cx.waker());
        self.ending() == Some(Ending::Stalled)
    }

    pub(crate) fn ending(&self) -> Option<Ending> {
        match self.ending.load(Ordering::Acquire) {
            0 => None,
            1 => Some(Ending::Shutdown),
            2 => Some(Ending::Stalled),
            3 => Some(Ending::Gone),
            _ => Some(Ending::Rewound),
        }
    }

    /// Has something happened since it was calm that is not an event: an end, or what was polled with
    /// [`Ticket::stirs`]? Those who only have events to send need not look at all the rest each time.
    pub(crate) fn is_stirred(&self) -> bool {
        self.stirred.load(Ordering::Acquire)
    }

    /// Has everything looked at once more.
    pub(crate) fn stir(&self) {
        self.stirred.store(true, Ordering::Release);
    }

    /// Everything is about to be looked at. Wakes when something happens from here on.
    pub(crate) fn calm(&self, waker: &Waker) {
        self.waker.register(waker);
        self.stirred.swap(false, Ordering::AcqRel);
    }

    pub(crate) fn multiplexed(&self) -> bool {
        self.connection.multiplexed.load(Ordering::Relaxed)
    }

    /// Looks at what a list still has to send; none if it was taken away.
    pub(crate) fn with_list<T>(&self, look: impl FnOnce(&mut Listed) -> T) -> Option<T> {
        self.list.lock().as_mut().map(look)
    }

    fn end(&self, ending: Ending) {
        self.ending.store(ending as u8, Ordering::Release);
        self.stir();
        self.waker.wake();
    }

    /// Lets go of an answer that has not moved since `before`.
    fn end_if_stalled(&self, before: u64) -> bool {
        let waiting = self.waiting.load(Ordering::Relaxed);
        // A watch that ends with the server may still stall.
        if waiting == 0 || waiting > before || self.ending() == Some(Ending::Stalled) {
            return false;
        }
        // On a connection of its own a slow client is seen by the bytes that do go out.
        if !self.multiplexed() && self.connection.last_write() > before {
            return false;
        }
        *self.list.lock() = None;
        self.end(Ending::Stalled);
        if !self.multiplexed() {
            self.connection.cut.notify_one();
        }
        true
    }
}

impl Wake for Flight {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.stir();
        self.waker.wake();
    }
}

/// All answers under way.
#[derive(Debug)]
pub(crate) struct Flights {
    limits: Arc<Limits>,
    all: Mutex<Vec<Option<Arc<Flight>>>>,
    free: Mutex<Vec<usize>>,
    users: Mutex<HashMap<String, usize>>,
    watches: AtomicUsize,
    wide: AtomicUsize,
    bytes: Arc<Budget>,
    selectors: Arc<Budget>,
    /// Watches and lists that were let go because nobody read them.
    pub(crate) stalled: AtomicU64,
}

/// A place among the answers under way. Dropping it gives back what it took.
#[derive(Debug)]
pub(crate) struct Ticket {
    flights: Arc<Flights>,
    flight: Arc<Flight>,
    number: usize,
    /// The user of a watch.
    watch_of: Option<Arc<User>>,
    /// What the selectors of a watch hold of their budget, if they are long.
    selectors: Option<Box<Share>>,
}

impl std::ops::Deref for Ticket {
    type Target = Flight;

    fn deref(&self) -> &Flight {
        &self.flight
    }
}

impl Ticket {
    /// A number below `among`, so that those who began together act apart.
    pub(crate) fn spread(&self, among: u32) -> u32 {
        u32::try_from(self.number % among as usize).expect("is below a u32")
    }

    /// Asks for the right to have the kernel take much at a time; there are not many of it.
    pub(crate) fn widen(&self) -> Option<Wide> {
        self.flights.widen()
    }

    /// What wakes the one that sends it, and has it look at more than events.
    pub(crate) fn stirs(&self) -> Waker {
        self.flight.clone().into()
    }

    /// The part that pins memory is over: its bytes may be used by others.
    pub(crate) fn landed(&self) {
        drop(self.flight.bytes.lock().take());
    }
}

/// The right to have the kernel take much at a time. Dropping it gives it back.
#[derive(Debug)]
pub(crate) struct Wide(Arc<Flights>);

impl Drop for Wide {
    fn drop(&mut self) {
        self.0.wide.fetch_sub(1, Ordering::AcqRel);
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        self.landed();
        if let Some(user) = self.watch_of.take() {
            self.flights.watches.fetch_sub(1, Ordering::AcqRel);
            self.flight.connection.watches.fetch_sub(1, Ordering::AcqRel);
            let mut users = self.flights.users.lock();
            if let Some(count) = users.get_mut(&user.name) {
                *count -= 1;
                if *count == 0 {
                    users.remove(&user.name);
                }
            }
        }
        self.flights.all.lock()[self.number] = None;
        self.flights.free.lock().push(self.number);
    }
}

/// What a watch costs besides its place.
#[derive(Clone, Copy)]
pub(crate) struct WatchCost {
    /// Bytes of its initial events, about.
    pub(crate) initial_bytes: usize,
    /// Bytes of its query, of which the selectors are kept and looked at for each event.
    pub(crate) query_bytes: usize,
}

impl Flights {
    pub(crate) fn new(limits: Arc<Limits>) -> Arc<Self> {
        Arc::new(Self {
            bytes: Budget::new(
                limits.response_bytes_in_flight,
                "bytes of lists and initial events",
                "max-response-bytes-in-flight",
            ),
            selectors: Budget::new(
                limits.selector_bytes,
                "bytes of long selectors of watches",
                "max-selector-bytes",
            ),
            limits,
            all: Mutex::default(),
            free: Mutex::default(),
            users: Mutex::default(),
            watches: AtomicUsize::new(0),
            wide: AtomicUsize::new(0),
            stalled: AtomicU64::new(0),
        })
    }

    /// How many watches are open.
    pub(crate) fn watches(&self) -> usize {
        self.watches.load(Ordering::Acquire)
    }

    /// Bytes of lists and initial events under way.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes.used()
    }

    fn widen(self: &Arc<Self>) -> Option<Wide> {
        let more = |used: usize| (used < WIDE_WATCHES_MAX).then_some(used + 1);
        let taken = self.wide.fetch_update(Ordering::AcqRel, Ordering::Acquire, more);
        taken.is_ok().then(|| Wide(self.clone()))
    }

    /// Begins to send a list of so many bytes.
    pub(crate) fn list(
        self: &Arc<Self>,
        connection: &Arc<Connection>,
        resource: &Resource,
        user: &Arc<User>,
        list: Listed,
        bytes: usize,
    ) -> Result<Ticket, Status> {
        let share = self.bytes.take(user, connection, bytes)?;
        Ok(self.ticket(connection, resource, Some(list), Some(share), None))
    }

    /// Begins a watch.
    pub(crate) fn watch(
        self: &Arc<Self>,
        connection: &Arc<Connection>,
        resource: &Resource,
        user: &Arc<User>,
        cost: WatchCost,
    ) -> Result<Ticket, Status> {
        let limits = &*self.limits;
        take(&self.watches, limits.watches, "max-watches", "on this server")?;
        let refused = take(
            &connection.watches,
            limits.watches_per_connection,
            "max-watches-per-connection",
            "on this connection",
        )
        .and_then(|()| {
            let of_user = self.take_user(user);
            if of_user.is_err() {
                connection.watches.fetch_sub(1, Ordering::AcqRel);
            }
            of_user
        });
        if let Err(status) = refused {
            self.watches.fetch_sub(1, Ordering::AcqRel);
            return Err(status);
        }
        // From here on the ticket gives back what was taken.
        let mut ticket = self.ticket(connection, resource, None, None, Some(user.clone()));
        if cost.initial_bytes > 0 {
            let share = self.bytes.take(user, connection, cost.initial_bytes)?;
            *ticket.flight.bytes.lock() = Some(share);
        }
        if cost.query_bytes > SHORT_QUERY_BYTES {
            let share = self.selectors.take(user, connection, cost.query_bytes)?;
            ticket.selectors = Some(Box::new(share));
        }
        Ok(ticket)
    }

    fn take_user(&self, user: &User) -> Result<(), Status> {
        let mut users = self.users.lock();
        let limit = self.limits.watches_per_user;
        let count = users.entry(user.name.clone()).or_default();
        if *count >= limit {
            return Err(too_many_watches(limit, "max-watches-per-user", "of this user"));
        }
        *count += 1;
        Ok(())
    }

    /// Bytes of an answer that is put together as a whole.
    pub(crate) fn reserve(
        &self,
        user: &Arc<User>,
        connection: &Arc<Connection>,
        bytes: usize,
    ) -> Result<Share, Status> {
        self.bytes.take(user, connection, bytes)
    }

    fn ticket(
        self: &Arc<Self>,
        connection: &Arc<Connection>,
        resource: &Resource,
        list: Option<Listed>,
        bytes: Option<Share>,
        watch_of: Option<Arc<User>>,
    ) -> Ticket {
        let flight = Arc::new(Flight {
            connection: connection.clone(),
            resource: resource.clone(),
            is_watch: watch_of.is_some(),
            waiting: AtomicU64::new(0),
            bytes: Mutex::new(bytes),
            ending: AtomicU8::new(0),
            stirred: AtomicBool::new(true),
            waker: AtomicWaker::new(),
            list: Mutex::new(list),
        });
        let free = self.free.lock().pop();
        let mut all = self.all.lock();
        let number = free.unwrap_or_else(|| {
            all.push(None);
            all.len() - 1
        });
        all[number] = Some(flight.clone());
        Ticket { flights: self.clone(), flight, number, watch_of, selectors: None }
    }

    /// Lets go of every answer that has not moved for so long.
    pub(crate) fn end_stalled(&self, clock: Clock, timeout: Duration) {
        let timeout = u64::try_from(timeout.as_millis()).unwrap_or(u64::MAX);
        let before = clock.now().saturating_sub(timeout);
        let flights: Vec<_> = self.all.lock().iter().flatten().cloned().collect();
        for flight in flights.iter().filter(|flight| flight.end_if_stalled(before)) {
            drop(flight.bytes.lock().take());
            self.stalled.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Ends all watches; lists go on.
    pub(crate) fn end_all(&self) {
        self.end_part(0, 1);
    }

    /// Ends one part of all watches.
    pub(crate) fn end_part(&self, part: u32, parts: u32) {
        let all = self.all.lock();
        let of_it = all.iter().skip(part as usize).step_by(parts as usize).flatten();
        of_it.for_each(|flight| flight.end(Ending::Shutdown));
    }

    /// Ends all watches with the word that what they know does not hold any more.
    pub(crate) fn rewind_all(&self) {
        self.all.lock().iter().flatten().for_each(|flight| flight.end(Ending::Rewound));
    }

    /// Lets go of everything that is still under way.
    pub(crate) fn cut_all(&self) {
        self.all.lock().iter().flatten().for_each(|flight| flight.end(Ending::Stalled));
    }

    /// Lets go of the watches that are still under way.
    pub(crate) fn cut_watches(&self) {
        let all = self.all.lock();
        let watches = all.iter().flatten().filter(|flight| flight.is_watch);
        watches.for_each(|flight| flight.end(Ending::Stalled));
    }

    /// Ends the watches of one resource.
    pub(crate) fn end_resource(&self, resource: &Resource) {
        let all = self.all.lock();
        let of_it = all.iter().flatten().filter(|flight| flight.resource == *resource);
        of_it.for_each(|flight| flight.end(Ending::Gone));
    }
}

fn take(counter: &AtomicUsize, limit: usize, flag: &str, place: &str) -> Result<(), Status> {
    let more = |used: usize| (used < limit).then_some(used + 1);
    let taken = counter.fetch_update(Ordering::AcqRel, Ordering::Acquire, more);
    taken.map(|_| ()).map_err(|_| too_many_watches(limit, flag, place))
}

/// So many seconds or up to twice as many: those who are sent away together do not come back together.
pub(crate) fn spread_retry(seconds: u32) -> u32 {
    seconds + getrandom::u32().unwrap_or(0) % (seconds + 1)
}

fn too_many_watches(limit: usize, flag: &str, place: &str) -> Status {
    let message =
        format!("{limit} watches are open {place}, which is the limit ({flag}); close some first");
    Status::with(429, Reason::TooManyRequests, message).with_retry_after(spread_retry(5))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn so_many_watches_have_much_on_its_way_and_the_next_waits_for_one_of_them() {
        let flights = Flights::new(Arc::new(Limits::default()));
        let mut wide: Vec<_> = (0..WIDE_WATCHES_MAX).map_while(|_| flights.widen()).collect();
        assert_eq!(wide.len(), WIDE_WATCHES_MAX);
        assert!(flights.widen().is_none());
        wide.pop();
        assert!(flights.widen().is_some());
    }
}
