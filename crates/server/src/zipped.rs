//! Lists compressed in pieces that are kept: what did not change since the last list is not compressed
//! again.
//!
//! A piece is some objects that follow each other. It is compressed without looking at what comes before
//! it and ends at a whole byte, so that pieces can be put one behind the other: together they are one
//! member of gzip, as every client reads it. Where a piece may end is decided by the name of its last
//! object, so updates move no borders, and objects that come and go only some beside them.

use std::collections::HashMap;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io::Read as _;
use std::mem;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use crc32fast::Hasher as Crc;
use flate2::read::DeflateDecoder;
use flate2::{Compress, Compression, FlushCompress};
use masthead_core::{ListBody, Object, Projection, planted};
use parking_lot::Mutex;

use crate::body::Slices;
use crate::limits::{
    FLUSH_ROOM_BYTES, PIECE_BORDERS, PIECE_BYTES_MAX, PIECE_CHECK_EVERY, PIECE_OBJECTS_MIN,
    SLICES_PER_WRITE,
};
use crate::self_check::GZIP_PIECES;

/// Deflated, no name, no time, made in a hurry, of no system in particular.
const HEAD: [u8; 10] = [0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 4, 0xff];
/// A last block with nothing in it.
const LAST: [u8; 2] = [3, 0];
/// Bytes of the largest block that is not compressed.
const STORED_BLOCK_BYTES_MAX: usize = 0xffff;

/// What a piece is made of: a keyed hash over the identity and revision of each of its objects.
type Key = u128;

/// The pieces of all lists.
#[derive(Debug)]
pub(crate) struct Pieces {
    kept: Mutex<Kept>,
    hashers: [RandomState; 2],
    /// Bytes that are kept at most.
    limit: usize,
    /// Pieces that were handed out.
    uses: AtomicU64,
    /// One in so many uses is compared with the text.
    check_every: u64,
}

/// Those that were used last, and those before them: when the young fill their half, they are the old
/// ones, and who was used by nobody since is gone.
#[derive(Debug, Default)]
struct Kept {
    young: HashMap<Key, Piece>,
    old: HashMap<Key, Piece>,
    /// Of the young.
    bytes: usize,
}

#[derive(Clone, Debug)]
struct Piece {
    zipped: Bytes,
    /// Of what is compressed.
    crc: u32,
    length: u64,
}

/// Objects that go into one piece.
#[derive(Debug)]
struct Group {
    objects: usize,
    key: Key,
}

impl Pieces {
    pub(crate) fn new(limit: usize) -> Self {
        let hashers = [RandomState::new(), RandomState::new()];
        let (uses, check_every) = (AtomicU64::new(0), PIECE_CHECK_EVERY);
        Self { kept: Mutex::default(), hashers, limit, uses, check_every }
    }

    /// Whether the piece that is handed out now is one of those that are checked.
    fn is_check_due(&self) -> bool {
        self.uses.fetch_add(1, Ordering::Relaxed).is_multiple_of(self.check_every)
    }

    /// Bytes that are kept.
    pub(crate) fn bytes(&self) -> usize {
        let kept = self.kept.lock();
        kept.bytes + kept.old.values().map(Piece::bytes).sum::<usize>()
    }

    /// Divides a list. Within what `served` names, an object is known by its key and revision.
    fn divide(&self, served: u64, projection: Projection, objects: &[Object]) -> Vec<Group> {
        let begin = || {
            self.hashers.each_ref().map(|it| {
                let mut hasher = it.build_hasher();
                hasher.write_u64(served);
                hasher.write_u8(u8::from(projection == Projection::Metadata));
                hasher
            })
        };
        let (mut groups, mut hashers, mut count, mut bytes) = (Vec::new(), begin(), 0, 0);
        for (at, object) in objects.iter().enumerate() {
            let key = object.key().as_str();
            for hasher in &mut hashers {
                hasher.write(key.as_bytes());
                hasher.write_u8(0xff);
                hasher.write(object.uid().as_bytes());
                hasher.write_u64(object.revision().0);
            }
            (count, bytes) = (count + 1, bytes + object.whole_bytes());
            let last = at + 1 == objects.len();
            let border = count >= PIECE_OBJECTS_MIN && is_border(key);
            if last || border || bytes >= PIECE_BYTES_MAX {
                // What stands behind the last object is not what stands between two.
                hashers[0].write_u8(u8::from(last));
                let [high, low] = mem::replace(&mut hashers, begin()).map(|it| it.finish());
                let key = u128::from(high) << 64 | u128::from(low);
                groups.push(Group { objects: count, key });
                (count, bytes) = (0, 0);
            }
        }
        groups
    }

    fn find(&self, key: Key) -> Option<Piece> {
        let mut kept = self.kept.lock();
        if let Some(piece) = kept.young.get(&key) {
            return Some(piece.clone());
        }
        let piece = kept.old.remove(&key)?;
        self.put(&mut kept, key, piece.clone());
        Some(piece)
    }

    fn keep(&self, key: Key, piece: Piece) {
        self.put(&mut self.kept.lock(), key, piece);
    }

    fn put(&self, kept: &mut Kept, key: Key, piece: Piece) {
        let bytes = piece.bytes();
        if bytes > self.limit / 2 {
            return;
        }
        if kept.bytes + bytes > self.limit / 2 {
            (kept.old, kept.bytes) = (mem::take(&mut kept.young), 0);
        }
        kept.bytes += bytes;
        if let Some(replaced) = kept.young.insert(key, piece) {
            kept.bytes -= replaced.bytes();
        }
    }
}

impl Piece {
    /// With what a map needs for it.
    fn bytes(&self) -> usize {
        self.zipped.len() + 2 * (size_of::<Key>() + size_of::<Self>())
    }

    /// Returns `true` if this is the piece of these slices.
    fn is_text_of(&self, slices: &[Bytes]) -> bool {
        let length = slices.iter().map(Bytes::len).sum::<usize>();
        let mut text = Vec::with_capacity(length);
        let mut reader = DeflateDecoder::new(self.zipped.chain(&LAST[..])).take(length as u64 + 1);
        if reader.read_to_end(&mut text).is_err() || text.len() != length {
            return false;
        }
        let mut crc = Crc::new();
        crc.update(&text);
        let mut rest = &text[..];
        let is_same = slices.iter().all(|slice| {
            let (begin, end) = rest.split_at(slice.len());
            rest = end;
            begin == slice
        });
        is_same && self.crc == crc.finalize() && self.length == length as u64
    }

    /// The piece without compression, for what the compressor does not get right.
    fn stored(slices: &[Bytes]) -> Self {
        let text = slices.concat();
        let mut zipped = Vec::with_capacity(text.len() + text.len() / 1024 + 8);
        for block in text.chunks(STORED_BLOCK_BYTES_MAX) {
            let length = u16::try_from(block.len()).expect("is within the largest block");
            zipped.push(0);
            zipped.extend(length.to_le_bytes());
            zipped.extend((!length).to_le_bytes());
            zipped.extend(block);
        }
        let mut crc = Crc::new();
        crc.update(&text);
        Self { zipped: zipped.into(), crc: crc.finalize(), length: text.len() as u64 }
    }
}

/// May a piece end with this object? One in some can, always the same.
fn is_border(key: &str) -> bool {
    let hash = key.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3)
    });
    // Names that differ in their last letters alone differ in the lower half; this spreads it.
    (hash.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32).is_multiple_of(PIECE_BORDERS)
}

/// A list on its way through compression.
#[derive(Debug)]
pub(crate) struct Zipper {
    pieces: Arc<Pieces>,
    groups: std::vec::IntoIter<Group>,
    /// Only who compresses has one: a quarter of a megabyte.
    deflate: Option<Compress>,
    crc: Crc,
    length: u64,
    stage: Stage,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Stage {
    Head,
    Items,
    Done,
}

impl Zipper {
    /// For a list of these objects; `served` is a number for the cache that they are from.
    pub(crate) fn new(
        pieces: &Arc<Pieces>,
        served: u64,
        projection: Projection,
        objects: &[Object],
    ) -> Self {
        let groups = pieces.divide(served, projection, objects).into_iter();
        let (pieces, crc) = (pieces.clone(), Crc::new());
        Self { pieces, groups, deflate: None, crc, length: 0, stage: Stage::Head }
    }

    /// The next part of the list, of about so many bytes; none at the end. No more than one piece is
    /// compressed, so that others get their turn.
    pub(crate) fn next(&mut self, list: &mut ListBody, bytes: usize) -> Option<Slices> {
        let mut part = Slices::with_capacity(SLICES_PER_WRITE.min(self.groups.len() + 2));
        if self.stage == Stage::Done {
            return None;
        }
        if mem::replace(&mut self.stage, Stage::Items) == Stage::Head {
            part.push(Bytes::from_static(&HEAD));
            let head = self.compress(&[list.next()?]);
            self.hand_out(&mut part, head);
        }
        while part.count() < SLICES_PER_WRITE && bytes::Buf::remaining(&part) < bytes {
            let Some(Group { objects, key }) = self.groups.next() else {
                // An empty list has an end all the same.
                if list.len() > 0 {
                    let rest = self.compress(&list.by_ref().collect::<Vec<_>>());
                    self.hand_out(&mut part, rest);
                }
                part.push(self.end());
                return Some(part);
            };
            let is_check_due = self.pieces.is_check_due();
            let known = self.pieces.find(key);
            if let Some(piece) = known.as_ref().filter(|_| !is_check_due) {
                list.skip_items(objects);
                self.hand_out(&mut part, piece.clone());
                continue;
            }
            // Each object, and what stands behind it.
            let slices: Vec<_> = list.by_ref().take(2 * objects).collect();
            if list.is_broken() {
                return None;
            }
            let piece = self.kept_or_new(key, &slices, known, is_check_due);
            self.hand_out(&mut part, piece);
            break;
        }
        Some(part)
    }

    /// The piece that is kept if it is right, else a new one, which is kept from now on.
    fn kept_or_new(
        &mut self,
        key: Key,
        slices: &[Bytes],
        known: Option<Piece>,
        is_check_due: bool,
    ) -> Piece {
        if let Some(known) = known.filter(|piece| checked(piece, slices)) {
            return known;
        }
        let mut piece = self.compress(slices);
        if is_check_due && !checked(&piece, slices) {
            piece = Piece::stored(slices);
        }
        self.pieces.keep(key, piece.clone());
        piece
    }

    fn hand_out(&mut self, part: &mut Slices, piece: Piece) {
        self.crc.combine(&Crc::new_with_initial_len(piece.crc, piece.length));
        self.length += piece.length;
        part.push(piece.zipped);
    }

    fn compress(&mut self, slices: &[Bytes]) -> Piece {
        let deflate = self.deflate.get_or_insert_with(|| Compress::new(Compression::new(1), false));
        deflate.reset();
        let (mut zipped, mut crc, mut length) = (Vec::new(), Crc::new(), 0);
        for slice in slices {
            crc.update(slice);
            length += slice.len() as u64;
            feed(deflate, slice, FlushCompress::None, &mut zipped);
        }
        feed(deflate, &[], FlushCompress::Sync, &mut zipped);
        zipped.shrink_to_fit();
        Piece { zipped: zipped.into(), crc: crc.finalize(), length }
    }

    /// What stands behind the last piece.
    fn end(&mut self) -> Bytes {
        self.stage = Stage::Done;
        let mut end = LAST.to_vec();
        end.extend(self.crc.clone().finalize().to_le_bytes());
        // As gzip has it: of what is longer, the lower half.
        #[expect(clippy::cast_possible_truncation, reason = "modulo 2^32")]
        end.extend((self.length as u32).to_le_bytes());
        end.into()
    }
}

/// Compares a piece with its text and notes the result.
fn checked(piece: &Piece, slices: &[Bytes]) -> bool {
    let is_right = piece.is_text_of(slices);
    GZIP_PIECES.record(is_right);
    is_right
}

/// Gives `input` to the compressor and appends what it puts out. With a flush, everything that it was
/// ever given has been put out when this returns.
///
/// A call that filled the room left output pending inside the compressor. The next call only drains
/// that: it takes no input and begins no flush, although it may leave room. So the work is done after a
/// call that began with nothing pending, which is one that follows a call that left room, and itself
/// left room.
fn feed(deflate: &mut Compress, mut input: &[u8], flush: FlushCompress, out: &mut Vec<u8>) {
    let mut pending = false;
    loop {
        out.reserve((input.len() / 4).max(FLUSH_ROOM_BYTES));
        let before = deflate.total_in();
        let done = deflate.compress_vec(input, out, flush);
        done.expect("compression has no bad input");
        let taken = usize::try_from(deflate.total_in() - before).expect("at most the input");
        input = &input[taken..];
        let drained = pending && !planted::on("gzip_flush_lost");
        pending = out.len() == out.capacity();
        if input.is_empty() && !pending && !drained {
            return;
        }
    }
}

#[cfg(test)]
mod tests;
