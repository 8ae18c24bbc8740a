//! Events as watches are told of them, put together once for all.

use std::task::{Context, Poll, ready};

use bytes::{Buf as _, Bytes};
use masthead_cache::{Batch, Cursor, Event, Overtaken};
use masthead_core::{Frame, Projection, Revision, Status};

use crate::body::Slices;
use crate::limits::{FRAMES_CHECK_EVERY, SHARED_CHUNK_BYTES_MAX};
use crate::packing::whole_of_many;
use crate::self_check::SHARED_FRAMES;

/// What the watches of a thread are told, one after the other. What two in a row are told the same of, as
/// when many watch one resource, becomes one piece that they share.
#[derive(Default)]
pub(crate) struct Telling {
    batch: Batch,
    /// The events of the batch with their objects open, where some are held compressed.
    opened: Option<Vec<Event>>,
    chunk: Chunk,
    /// Chunks that were shared. One in so many is compared with a fresh one.
    shared: u64,
}

/// What the batch was made into.
#[derive(Default)]
enum Chunk {
    #[default]
    Nothing,
    /// Slices, once. Whoever is next makes the one piece.
    Slices(Projection),
    Piece(Projection, Bytes),
}

impl Telling {
    /// Reads what comes next for a watch.
    pub(crate) fn poll_read(
        &mut self,
        cx: &mut Context<'_>,
        cursor: &mut Cursor,
        max: usize,
    ) -> Poll<Result<(), Overtaken>> {
        ready!(cursor.poll_read(cx, &mut self.batch, max))?;
        if !self.batch.is_as_before() {
            (self.opened, self.chunk) = (None, Chunk::Nothing);
        }
        Poll::Ready(Ok(()))
    }

    /// Opens objects that are held compressed. Those after one that cannot be opened are left out.
    pub(crate) fn open(&mut self) -> Result<(), Status> {
        if self.opened.is_some() {
            return Ok(());
        }
        let mut opened = Vec::with_capacity(self.batch.events.len());
        let mut all = Ok(());
        for event in &self.batch.events {
            match whole_of_many(&event.object) {
                Ok(object) => opened.push(Event { object, ..event.clone() }),
                Err(status) => {
                    all = Err(status);
                    break;
                }
            }
        }
        if all.is_err() {
            // Whoever is next opens them again, and hears of it, too.
            self.batch.events.clear();
        }
        self.opened = Some(opened);
        all
    }

    fn events(&self) -> &[Event] {
        self.opened.as_ref().unwrap_or(&self.batch.events)
    }

    pub(crate) fn count(&self) -> usize {
        self.events().len()
    }

    /// The revision of the initial state, right after its last event.
    pub(crate) fn initial_end(&self) -> Option<Revision> {
        self.batch.initial_end
    }

    /// Events one after the other.
    pub(crate) fn frames(&mut self, projection: Projection) -> Slices {
        let frames = self.slices(projection);
        if frames.remaining() > SHARED_CHUNK_BYTES_MAX {
            self.forget();
        }
        frames
    }

    fn slices(&self, projection: Projection) -> Slices {
        let events = self.events();
        let mut frames = Slices::with_capacity(events.len() * 3 + 3);
        for event in events {
            frames.push_frame(Frame::event(event.kind, &event.object, event.revision, projection));
        }
        frames
    }

    /// The same as a chunk of HTTP/1.1.
    pub(crate) fn chunk(&mut self, projection: Projection) -> Slices {
        match &self.chunk {
            Chunk::Piece(of, piece) if *of == projection => {
                let piece = piece.clone();
                self.shared += 1;
                if !self.shared.is_multiple_of(FRAMES_CHECK_EVERY) {
                    return piece.into();
                }
                return self.checked(projection, piece).into();
            }
            Chunk::Slices(of) if *of == projection => {
                let piece = self.fresh_chunk(projection);
                self.chunk = Chunk::Piece(projection, piece.clone());
                return piece.into();
            }
            _ => {}
        }
        let frames = self.frames(projection);
        if self.count() > 0 {
            self.chunk = Chunk::Slices(projection);
        }
        frames.into_chunk()
    }

    /// The events as one piece that is made now.
    fn fresh_chunk(&self, projection: Projection) -> Bytes {
        let mut chunk = self.slices(projection).into_chunk();
        chunk.copy_to_bytes(chunk.remaining())
    }

    /// Compares a shared piece with a fresh one, which takes its place if it differs.
    fn checked(&mut self, projection: Projection, piece: Bytes) -> Bytes {
        let fresh = self.fresh_chunk(projection);
        let is_right = fresh == piece;
        SHARED_FRAMES.record(is_right);
        if is_right {
            return piece;
        }
        self.chunk = Chunk::Piece(projection, fresh.clone());
        fresh
    }

    /// Lets go of what was read: too much to be kept for somebody who may be told the same.
    fn forget(&mut self) {
        self.batch.events.clear();
        (self.opened, self.chunk) = (None, Chunk::Nothing);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use masthead_cache::{Cache, Config, From, Gaps, Interest, Writer};
    use masthead_core::{Mutation, Object, Resource, Time};

    fn pod(revision: u64, bytes: usize) -> Object {
        let uid = "a".repeat(bytes);
        let body = format!(
            r#"{{"kind":"Pod","apiVersion":"v1","metadata":{{"name":"a","namespace":"b","uid":"{uid}","resourceVersion":"{revision}"}}}}"#
        );
        Object::parse(&Resource::pods(), body.into()).expect("a pod")
    }

    /// Two watches of one cache, told in turn by one thread.
    struct Watched {
        writer: Writer,
        cursors: [Cursor; 2],
        telling: Telling,
        revision: u64,
    }

    impl Watched {
        fn new() -> Self {
            let (mut writer, cache) = Cache::new(Config::default());
            writer.replace(vec![pod(1, 1)], Revision(1), Time(0)).expect("the first list");
            let follow = || cache.subscribe(Interest::all(), From::After(Revision(1)), Gaps::End);
            let cursors = [(); 2].map(|()| follow().expect("the newest revision"));
            Self { writer, cursors, telling: Telling::default(), revision: 1 }
        }

        fn change(&mut self, bytes: usize) {
            self.change_to(pod(self.revision + 1, bytes));
        }

        fn change_to(&mut self, object: Object) {
            self.revision += 1;
            let revision = Revision(self.revision);
            self.writer.apply([Mutation::Put { revision, object }], Time(0));
        }

        fn read(&mut self, watch: usize) -> bool {
            let mut cx = Context::from_waker(std::task::Waker::noop());
            self.telling.poll_read(&mut cx, &mut self.cursors[watch], 64).is_ready()
        }

        fn chunk(&mut self, watch: usize, projection: Projection) -> Slices {
            assert!(self.read(watch), "there is something to tell");
            self.telling.chunk(projection)
        }
    }

    fn text(mut slices: Slices) -> Bytes {
        slices.copy_to_bytes(slices.remaining())
    }

    /// What a thread that tells nobody else would send.
    fn alone(watched: &Watched, projection: Projection) -> Bytes {
        text(watched.telling.slices(projection).into_chunk())
    }

    #[test]
    fn a_chunk_of_the_same_events_becomes_one_piece_and_of_others_is_made_anew() {
        let mut watched = Watched::new();
        for bytes in [1, 2, 3] {
            watched.change(bytes);
            let first = watched.chunk(0, Projection::Whole);
            let second = watched.chunk(1, Projection::Whole);
            assert_eq!((first.count(), second.count()), (5, 1));
            let expected = alone(&watched, Projection::Whole);
            assert_eq!((text(first), text(second)), (expected.clone(), expected));
        }
    }

    #[test]
    fn a_look_that_finds_nothing_does_not_part_those_who_are_told_the_same() {
        let mut watched = Watched::new();
        watched.change(1);
        assert_eq!(watched.chunk(0, Projection::Whole).count(), 5);
        assert!(!watched.read(0));
        assert_eq!(watched.chunk(1, Projection::Whole).count(), 1);
    }

    #[test]
    fn whoever_has_missed_an_event_is_told_of_both() {
        let mut watched = Watched::new();
        watched.change(1);
        let one = text(watched.chunk(0, Projection::Whole));
        watched.change(2);
        let both = text(watched.chunk(1, Projection::Whole));
        assert_eq!(both, alone(&watched, Projection::Whole));
        let other = text(watched.chunk(0, Projection::Whole));
        assert_eq!(other, alone(&watched, Projection::Whole));
        assert!(both.len() > one.len() && one != other);
    }

    #[test]
    fn a_piece_is_shared_only_by_those_who_see_the_same_of_it() {
        let mut watched = Watched::new();
        for projections in
            [[Projection::Whole, Projection::Metadata], [Projection::Metadata, Projection::Whole]]
        {
            watched.change(1);
            for (watch, projection) in projections.into_iter().enumerate() {
                let chunk = text(watched.chunk(watch, projection));
                assert_eq!(chunk, alone(&watched, projection));
            }
        }
    }

    #[test]
    fn frames_between_two_chunks_do_not_pass_for_them() {
        let mut watched = Watched::new();
        watched.change(1);
        for watch in [0, 1] {
            watched.chunk(watch, Projection::Whole);
        }
        watched.change(2);
        assert!(watched.read(0));
        let frames = watched.telling.frames(Projection::Whole).into_chunk();
        assert_eq!(text(watched.chunk(1, Projection::Whole)), text(frames));
    }

    /// V1: whatever the events have in them, what is shared is what a watch of its own would be sent.
    #[test]
    fn v1_shared_chunks_of_random_events_are_those_of_a_watch_alone() {
        let mut random = crate::random::Random::new(0x5eed);
        let mut watched = Watched::new();
        for round in 0..crate::random::cases() {
            let projection =
                if random.below(2) == 0 { Projection::Whole } else { Projection::Metadata };
            let mut expected = Slices::with_capacity(0);
            for _ in 0..=random.below(4) {
                let object = random.object(watched.revision + 1);
                watched.change_to(object.clone());
                let revision = Revision(watched.revision);
                let kind = masthead_core::EventType::Modified;
                expected.push_frame(Frame::event(kind, &object, revision, projection));
            }
            let expected = text(expected.into_chunk());
            for watch in [0, 1] {
                let chunk = text(watched.chunk(watch, projection));
                assert!(chunk == expected, "round {round}, watch {watch}");
            }
        }
    }

    #[test]
    fn v1_a_shared_chunk_that_is_not_its_events_is_found_and_replaced() {
        let mut watched = Watched::new();
        watched.change(1);
        let expected = text(watched.chunk(0, Projection::Whole));
        watched.telling.chunk = Chunk::Piece(Projection::Whole, Bytes::from_static(b"wrong"));
        watched.telling.shared = FRAMES_CHECK_EVERY - 1;
        let (_, wrong) = SHARED_FRAMES.counts();
        assert_eq!(text(watched.telling.chunk(Projection::Whole)), expected);
        assert!(SHARED_FRAMES.counts().1 > wrong, "counted");
        assert_eq!(text(watched.chunk(1, Projection::Whole)), expected, "and not kept");
    }

    #[test]
    fn a_piece_is_shared_up_to_the_limit_and_nothing_is_kept_above_it() {
        let mut watched = Watched::new();
        watched.change(0);
        assert!(watched.read(0));
        let least = watched.telling.frames(Projection::Whole).remaining();
        assert!(watched.read(1));
        for (bytes, count, kept) in
            [(SHARED_CHUNK_BYTES_MAX, 1, 1), (SHARED_CHUNK_BYTES_MAX + 1, 5, 0)]
        {
            watched.change(bytes - least);
            let chunks = [0, 1].map(|watch| watched.chunk(watch, Projection::Whole));
            assert_eq!(chunks[1].count(), count, "{bytes} bytes");
            assert_eq!(watched.telling.batch.events.len(), kept, "{bytes} bytes");
        }
    }
}
