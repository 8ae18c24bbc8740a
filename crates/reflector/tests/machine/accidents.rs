//! Known accidents of list-and-watch clients. Each test plays the accident against a few lines that
//! follow client-go's rule, and against the machine.

use masthead_core::{Revision, Status, Time};
use masthead_reflector::{
    Class, Failure, ListRequest, Output, Page, Reflector, Settings, Start, Strategy, WatchRequest,
};

/// What a server does with a watch, all at once.
enum Watched {
    Refused(Failure),
    ClosedAtOnce,
    Stays,
}

/// A server as a few rules.
trait Server {
    fn list(&mut self, resource_version: Option<&str>, elsewhere: bool) -> Result<u64, Failure>;
    fn watch(&mut self, from: u64) -> Watched;
}

/// client-go's reflector reduced to its choice of resource versions: the last one seen, or `0` at
/// the start; the empty one after an answer that says that it is not available. A watch that fails,
/// or ends within a second, leads to a list.
#[derive(Default)]
struct ClientGo {
    last: Option<u64>,
    unavailable: bool,
    lists: Vec<String>,
    watches: u32,
    refused: u32,
    seen: Vec<u64>,
}

impl ClientGo {
    /// One turn of its loop: a list and a watch.
    fn turn(&mut self, server: &mut impl Server) {
        let version = match (self.unavailable, self.last) {
            (true, _) => String::new(),
            (false, last) => last.unwrap_or(0).to_string(),
        };
        let asked = Some(version.as_str()).filter(|version| !version.is_empty());
        let answer = server.list(asked, false);
        self.lists.push(version);
        let Ok(rv) = answer else {
            self.refused += 1;
            self.unavailable = true;
            return;
        };
        (self.last, self.unavailable) = (Some(rv), false);
        self.seen.push(rv);
        self.watches += 1;
        if let Watched::Refused(failure) = server.watch(rv) {
            self.refused += 1;
            self.unavailable = failure.class() == Class::Expired;
        }
    }
}

/// The machine on the same server, for at most so many requests.
struct Ours {
    machine: Reflector,
    now: Time,
    lists: u32,
    watches: u32,
    refused: u32,
    applied: Vec<Revision>,
    rewound: u32,
    stays: bool,
}

impl Ours {
    fn run(server: &mut impl Server, start: Start, requests: u32) -> Self {
        let settings = Settings { strategy: Strategy::Pages, ..Settings::default() };
        let machine = Reflector::new(settings, start, 1, Time(0));
        let mut ours = Self {
            machine,
            now: Time(0),
            lists: 0,
            watches: 0,
            refused: 0,
            applied: Vec::new(),
            rewound: 0,
            stays: false,
        };
        while ours.lists + ours.watches < requests && !ours.stays {
            ours.step(server);
        }
        ours
    }

    fn step(&mut self, server: &mut impl Server) {
        match self.machine.poll_output() {
            Some(Output::List { id, request }) => {
                let ListRequest { at, elsewhere, .. } = request;
                self.lists += 1;
                match server.list(at.resource_version(), elsewhere) {
                    Ok(rv) => {
                        let resource_version = rv.to_string();
                        let page = Page { resource_version, ..Page::default() };
                        self.machine.handle_page(id, page, self.now);
                    }
                    Err(failure) => {
                        self.refused += 1;
                        self.machine.handle_failure(id, &failure, self.now);
                    }
                }
            }
            Some(Output::Watch { id, request }) => {
                self.watches += 1;
                let WatchRequest { .. } = request;
                match server.watch(request.resource_version().parse().unwrap()) {
                    Watched::Refused(failure) => {
                        self.refused += 1;
                        self.machine.handle_failure(id, &failure, self.now);
                    }
                    Watched::ClosedAtOnce => self.machine.handle_end(id, self.now),
                    Watched::Stays => self.stays = true,
                }
            }
            Some(Output::Replace { revision, .. } | Output::Rewind { revision, .. }) => {
                self.applied.push(revision);
            }
            Some(Output::Rewound { .. }) => self.rewound += 1,
            Some(_) => {}
            None => {
                self.now = self.machine.poll_timeout().unwrap();
                self.machine.handle_timeout(self.now);
            }
        }
    }
}

fn expired() -> Failure {
    Failure::from_response(410, b"", None)
}

/// One of two servers is stuck: lists of it are of revision 100, from where it allows no watch.
struct Stuck {
    /// Whether there is a healthy server beside it.
    healthy: bool,
}

impl Server for Stuck {
    fn list(&mut self, _: Option<&str>, elsewhere: bool) -> Result<u64, Failure> {
        Ok(if elsewhere && self.healthy { 200 } else { 100 })
    }

    fn watch(&mut self, from: u64) -> Watched {
        if from > 100 { Watched::Stays } else { Watched::Refused(expired()) }
    }
}

#[test]
fn kubernetes_133810_no_client_stays_on_an_expired_revision_for_ever() {
    let mut theirs = ClientGo::default();
    (0..100).for_each(|_| theirs.turn(&mut Stuck { healthy: true }));
    assert_eq!((theirs.watches, theirs.refused), (100, 100), "the same revision, again and again");

    let ours = Ours::run(&mut Stuck { healthy: true }, Start::Empty, 100);
    assert!(ours.stays, "the list that leads back is refused, and the other server asked");
    assert_eq!((ours.lists, ours.watches, ours.applied.as_slice()), (3, 2, &REVISIONS[..]));

    // Nobody else to ask: it is reported, announced, and ever less often tried.
    let ours = Ours::run(&mut Stuck { healthy: false }, Start::Empty, 100);
    let report = ours.machine.report(ours.now);
    assert_eq!(report.last_error.unwrap().class, Class::RvLoop);
    assert!(ours.watches <= 26, "one watch for three lists, not one for each: {}", ours.watches);
    assert!(ours.rewound >= 20 && ours.now.since(Time(0)).as_secs() > 1_000);
}

const REVISIONS: [Revision; 2] = [Revision(100), Revision(200)];

/// The server that answers first is far behind the one that was asked before.
struct Behind;

impl Server for Behind {
    fn list(&mut self, _: Option<&str>, elsewhere: bool) -> Result<u64, Failure> {
        Ok(if elsewhere { 105 } else { 40 })
    }

    fn watch(&mut self, _: u64) -> Watched {
        Watched::Stays
    }
}

#[test]
fn kubernetes_59848_a_stale_server_does_not_take_a_client_back_in_time() {
    // Both saw revision 100 before they were restarted.
    let mut theirs = ClientGo { seen: vec![100], ..ClientGo::default() };
    theirs.turn(&mut Behind);
    assert_eq!(theirs.seen, [100, 40], "back in time");

    let ours = Ours::run(&mut Behind, Start::NotBefore(Revision(100)), 100);
    assert_eq!((ours.applied.as_slice(), ours.rewound), (&[Revision(105)][..], 0));
}

/// The store is at 200, of which the server's own cache has heard nothing since 100, for want of
/// changes to this resource. A middlebox closes idle watches.
struct Idle {
    closes: u32,
}

impl Server for Idle {
    fn list(&mut self, resource_version: Option<&str>, _: bool) -> Result<u64, Failure> {
        match resource_version {
            None => Ok(200),
            Some("0") => Ok(100),
            Some(_) => Err(Status::too_large_resource_version(Revision(200), Revision(100)).into()),
        }
    }

    fn watch(&mut self, _: u64) -> Watched {
        self.closes = self.closes.saturating_sub(1);
        if self.closes > 0 { Watched::ClosedAtOnce } else { Watched::Stays }
    }
}

#[test]
fn kubernetes_107133_a_quiet_resource_leads_to_no_loop_over_too_large_versions() {
    let mut server = Idle { closes: u32::MAX };
    let mut theirs = ClientGo { last: Some(200), ..ClientGo::default() };
    (0..100).for_each(|_| theirs.turn(&mut server));
    assert_eq!(theirs.refused, 50, "every other request asks for what the server does not have");

    let ours = Ours::run(&mut Idle { closes: 100 }, Start::At("200".into()), 200);
    assert!(ours.stays);
    assert_eq!(ours.refused, 0, "no list asks for a revision of its own");
}

#[test]
fn a_storm_of_very_short_watches_is_no_storm_of_lists() {
    let mut server = Idle { closes: u32::MAX };
    let mut theirs = ClientGo { unavailable: true, ..ClientGo::default() };
    for _ in 0..30 {
        theirs.turn(&mut server);
        theirs.unavailable = true;
    }
    assert_eq!((theirs.watches, theirs.lists.len()), (30, 30), "a list for each");

    let ours = Ours::run(&mut Idle { closes: 31 }, Start::At("200".into()), 100);
    assert_eq!((ours.watches, ours.lists), (31, 10), "a list for three");
    assert!(ours.now.since(Time(0)).as_secs() > 600, "and a wait after each watch");
}

#[test]
fn i07_a_thousand_clients_come_back_spread_after_an_outage() {
    let mut arrivals = vec![0_u32; 1_200];
    for seed in 0..1_000 {
        let settings = Settings { strategy: Strategy::Pages, ..Settings::default() };
        let mut machine = Reflector::new(settings, Start::Empty, seed, Time(0));
        let mut now = Time(0);
        // A minute without a server.
        while now < Time(60_000) {
            if let Some(Output::List { id, .. }) = machine.poll_output() {
                machine.handle_failure(id, &Failure::Refused("outage".into()), now);
            }
            now = machine.poll_timeout().unwrap();
            machine.handle_timeout(now);
        }
        arrivals[usize::try_from(now.0 / 100).unwrap()] += 1;
    }
    assert_eq!(arrivals.iter().sum::<u32>(), 1_000);
    let peak = arrivals.iter().max().unwrap();
    assert!(*peak <= 100, "{peak} in a tenth of a second, 1000 without jitter");
}
