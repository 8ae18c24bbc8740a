//! Cursors as watches over the network, written down frame by frame.

use masthead_cache::{Batch, Cursor, Event, From, Gaps, Interest, SubscribeError};
use masthead_core::{EventType, ObjectKey, Revision};
use masthead_sim::Query;
use masthead_sim::history::{self, End, Frame, FrameType, Open};

use crate::script::{self, Watch, queries};
use crate::world::{World, hash};

pub(crate) struct Reader {
    sid: String,
    cursor: Cursor,
    batch: Batch,
    idle: bool,
}

fn interest(world: &World, query: usize) -> Interest {
    let (scope, labels, fields) = queries()[query].clone();
    let interest = match scope {
        history::Scope::All => Interest::all(),
        history::Scope::Namespace(namespace) => Interest::namespace(&namespace),
        history::Scope::Name(key) => {
            let (namespace, name) = key.split_once('/').expect("keys have a namespace");
            Interest::object(ObjectKey::new(namespace, name).expect("a valid key"))
        }
    };
    interest.with(world.selectors(labels, fields))
}

fn frame_type(kind: EventType) -> FrameType {
    match kind {
        EventType::Added => FrameType::Added,
        EventType::Modified => FrameType::Modified,
        EventType::Deleted => FrameType::Deleted,
        other => panic!("cursors give no {other:?}"),
    }
}

impl Reader {
    pub(crate) fn open(world: &mut World, watch: &Watch, sid: usize) -> Option<Self> {
        let current = world.cache.revision().0;
        let (from, rv) = match watch.from {
            script::From::State => (From::State, None),
            script::From::Back(back) => {
                let rv = current.saturating_sub(back);
                (From::After(Revision(rv)), Some(rv))
            }
            script::From::Ahead(ahead) => {
                (From::After(Revision(current + ahead)), Some(current + ahead))
            }
        };
        let (scope, labels, fields) = queries()[watch.query].clone();
        let sid = format!("w{sid}");
        let oldest = world.cache.oldest().0;
        let t0 = world.now;
        world.record(Open {
            sid: sid.clone(),
            who: sid.clone(),
            scope,
            selector: labels.into(),
            fields: fields.into(),
            from: rv,
            initial: rv.is_none(),
            bookmarks: true,
            oldest: Some(oldest),
            current: Some(current),
            injected: false,
            t0,
        });
        match world.cache.subscribe(interest(world, watch.query), from, Gaps::End) {
            Ok(cursor) => Some(Self { sid, cursor, batch: Batch::default(), idle: false }),
            Err(SubscribeError::Expired { oldest, .. }) => {
                end(world, &sid, "expired", Some(oldest.0));
                None
            }
            Err(other) => panic!("{other}"),
        }
    }

    pub(crate) fn is_idle(&self) -> bool {
        self.idle
    }

    /// Reads once; `false` if the stream has ended.
    pub(crate) fn read(&mut self, world: &mut World, max: usize) -> bool {
        match self.cursor.try_read(&mut self.batch, max) {
            Err(overtaken) => {
                self.end(world, "expired", Some(overtaken.oldest.0));
                return false;
            }
            Ok(any) => self.idle = !any,
        }
        for event in std::mem::take(&mut self.batch.events) {
            let frame = self.frame(&event, world.now);
            world.record(frame);
        }
        if let Some(rv) = self.batch.initial_end {
            self.bookmark(world, rv, true);
        }
        true
    }

    fn frame(&self, event: &Event, t: u64) -> Frame {
        let object = &event.object;
        Frame {
            sid: self.sid.clone(),
            kind: frame_type(event.kind),
            key: object.key().to_string(),
            uid: object.uid().to_owned(),
            rv: event.revision.0,
            hash: hash(object),
            initial_end: false,
            t,
        }
    }

    fn bookmark(&self, world: &mut World, rv: Revision, initial_end: bool) {
        let (key, uid, t) = (String::new(), String::new(), world.now);
        let kind = FrameType::Bookmark;
        world.record(Frame {
            sid: self.sid.clone(),
            kind,
            key,
            uid,
            rv: rv.0,
            hash: 0,
            initial_end,
            t,
        });
    }

    /// Asks how far it is, as a server does before it sends a bookmark.
    pub(crate) fn ask(&mut self, world: &mut World) -> bool {
        if let Some(rv) = self.cursor.progress() {
            self.bookmark(world, rv, false);
        }
        true
    }

    pub(crate) fn end(&mut self, world: &mut World, reason: &str, oldest: Option<u64>) {
        end(world, &self.sid, reason, oldest);
    }

    /// A cursor from a revision reads exactly what the log has after it.
    pub(crate) fn compare_from(world: &World, query: usize, rv: u64) -> Result<(), String> {
        let (scope, labels, fields) = queries()[query].clone();
        let naive = Query::new(scope, labels, fields).expect("a valid query");
        let expected = world.log.proj(&naive, rv, world.cache.revision().0);
        let from = From::After(Revision(rv));
        let subscribed = world.cache.subscribe(interest(world, query), from, Gaps::End);
        let mut cursor = subscribed.map_err(|refused| format!("watch from {rv}: {refused}"))?;
        let mut batch = Batch::default();
        let mut seen = Vec::new();
        while cursor.try_read(&mut batch, 3).map_err(|overtaken| overtaken.to_string())? {
            seen.extend(
                batch
                    .events
                    .drain(..)
                    .map(|event| (event.revision.0, frame_type(event.kind), hash(&event.object))),
            );
        }
        let expected: Vec<_> =
            expected.iter().map(|event| (event.commit.rv, event.kind, event.object.hash)).collect();
        if seen == expected {
            return Ok(());
        }
        Err(format!("watch {query} from {rv}: {seen:?} instead of {expected:?}"))
    }
}

fn end(world: &mut World, sid: &str, reason: &str, oldest: Option<u64>) {
    let code = oldest.map(|_| 410);
    let t = world.now;
    let (sid, reason) = (sid.to_owned(), reason.to_owned());
    world.record(End { sid, reason, code, retry_after_ms: None, oldest, injected: false, t });
}
