//! Compressed lists: one gzip member with the text of the plain list, whatever the objects are.

use std::io::Read as _;

use flate2::read::{DeflateDecoder, GzDecoder};
use masthead_core::{ListMeta, Resource, Revision};

use super::*;
use crate::random::{Random, cases};

fn pod(name: u32, revision: u64) -> Object {
    let text = format!(
        r#"{{"kind":"Pod","apiVersion":"v1","metadata":{{"name":"pod-{name}","namespace":"a","uid":"{name}","resourceVersion":"{revision}"}},"spec":{{"nodeName":"node-{}"}}}}"#,
        u64::from(name) * revision
    );
    Object::parse(&Resource::pods(), text.into()).unwrap()
}

fn list(objects: &[Object], projection: Projection) -> ListBody {
    let meta = ListMeta { revision: Revision(9), ..ListMeta::default() };
    ListBody::new(&Resource::pods(), &meta, objects.to_vec(), projection)
}

/// The list as it is sent, and as it is read again.
fn zip(pieces: &Arc<Pieces>, objects: &[Object], projection: Projection) -> Vec<u8> {
    let mut zipper = Zipper::new(pieces, 1, projection, objects);
    let (mut body, mut sent) = (list(objects, projection), Vec::new());
    while let Some(mut part) = zipper.next(&mut body, 4096) {
        while bytes::Buf::has_remaining(&part) {
            let chunk = bytes::Buf::chunk(&part).to_vec();
            bytes::Buf::advance(&mut part, chunk.len());
            sent.extend(chunk);
        }
    }
    let (mut text, mut reader) = (Vec::new(), GzDecoder::new(&sent[..]));
    reader.read_to_end(&mut text).unwrap();
    assert!(reader.into_inner().is_empty(), "one member, and nothing behind it");
    text
}

fn plain(objects: &[Object], projection: Projection) -> Vec<u8> {
    list(objects, projection).collect::<Vec<_>>().concat()
}

#[test]
fn w24_a_list_in_pieces_is_one_gzip_member_with_the_same_text() {
    let pieces = Arc::new(Pieces::new(1 << 20));
    for count in [0, 1, 2, 7, 100, 1000] {
        let objects: Vec<_> = (0..count).map(|it| pod(it, 1)).collect();
        for projection in [Projection::Whole, Projection::Metadata] {
            for _ in 0..2 {
                let text = zip(&pieces, &objects, projection);
                assert!(text == plain(&objects, projection), "{count} objects");
            }
        }
    }
}

#[test]
fn what_did_not_change_is_not_compressed_again() {
    let pieces = Arc::new(Pieces::new(1 << 20));
    let mut objects: Vec<_> = (0..1000).map(|it| pod(it, 1)).collect();
    zip(&pieces, &objects, Projection::Whole);
    let count = || pieces.kept.lock().young.len();
    let all = count();
    assert!((40..=100).contains(&all), "{all} pieces of a thousand objects");
    zip(&pieces, &objects, Projection::Whole);
    assert_eq!(count(), all, "nothing changed");
    objects[500] = pod(500, 7);
    assert_eq!(zip(&pieces, &objects, Projection::Whole), plain(&objects, Projection::Whole));
    assert_eq!(count(), all + 1, "an update is in one piece");
    objects.remove(300);
    assert_eq!(zip(&pieces, &objects, Projection::Whole), plain(&objects, Projection::Whole));
    assert!(count() <= all + 1 + all / 4, "borders move only beside what is gone");
}

#[test]
fn the_same_revision_of_another_cache_is_something_else() {
    let pieces = Arc::new(Pieces::new(1 << 20));
    let objects: Vec<_> = (0..20).map(|it| pod(it, 1)).collect();
    let key = |served| pieces.divide(served, Projection::Whole, &objects)[0].key;
    assert_eq!(key(1), key(1));
    assert_ne!(key(1), key(2));
}

#[test]
fn no_more_is_kept_than_the_limit() {
    let piece = |bytes: usize| Piece { zipped: vec![0; bytes].into(), crc: 0, length: 0 };
    let one = piece(1000).bytes();
    let pieces = Pieces::new(4 * one);
    for key in 0..100 {
        pieces.keep(key, piece(1000));
        assert!(pieces.bytes() <= 4 * one, "{} after {key}", pieces.bytes());
    }
    assert!(pieces.find(99).is_some() && pieces.find(0).is_none());
    let pieces = Pieces::new(2 * one);
    pieces.keep(1, piece(1000));
    assert!(pieces.find(1).is_some(), "as large as half of the limit");
    pieces.keep(2, piece(1001));
    assert!(pieces.find(2).is_none(), "a byte larger");
    let none = Pieces::new(0);
    none.keep(1, piece(0));
    assert_eq!(none.bytes(), 0);
}

#[test]
fn what_is_used_outlives_what_is_not() {
    let piece = || Piece { zipped: vec![0; 1000].into(), crc: 0, length: 0 };
    let pieces = Pieces::new(20 * piece().bytes());
    pieces.keep(0, piece());
    for key in 1..100 {
        pieces.keep(key, piece());
        assert!(pieces.find(0).is_some(), "after {key}");
    }
    assert!(pieces.find(1).is_none());
}

/// Compresses so many random pieces one after the other, as a list does; says of each that is not the
/// text of its slices which one it is.
fn random_pieces(seed: u64, count: u64) -> Result<(), String> {
    let mut random = Random::new(seed);
    let mut zipper = Zipper::new(&Arc::new(Pieces::new(0)), 1, Projection::Whole, &[]);
    for number in 0..count {
        let slices = random.slices(PIECE_BYTES_MAX);
        let text = slices.concat();
        let piece = zipper.compress(&slices);
        let mut whole = piece.zipped.to_vec();
        whole.extend(LAST);
        let mut read = Vec::new();
        let inflated = DeflateDecoder::new(&*whole).read_to_end(&mut read);
        if inflated.is_err() || read != text {
            let (got, expected) = (read.len(), text.len());
            return Err(format!(
                "piece {number}: {got} of {expected} bytes are right, {inflated:?}"
            ));
        }
        if !piece.is_text_of(&slices) || !Piece::stored(&slices).is_text_of(&slices) {
            return Err(format!("piece {number}: a right piece is taken for a wrong one"));
        }
        let mut crc = Crc::new();
        crc.update(&text);
        if (piece.crc, piece.length) != (crc.finalize(), text.len() as u64) {
            return Err(format!("piece {number}: another checksum or length"));
        }
    }
    Ok(())
}

/// W24, V1.
#[test]
fn w24_every_compressed_piece_is_the_text_of_its_slices() {
    random_pieces(0x5eed, cases()).unwrap();
}

fn pieces_that_are_always_checked() -> Arc<Pieces> {
    Arc::new(Pieces { check_every: 1, ..Pieces::new(1 << 24) })
}

/// V1: what is kept is not believed for ever.
#[test]
fn v1_a_kept_piece_that_is_not_its_text_is_found_and_replaced() {
    let pieces = pieces_that_are_always_checked();
    let objects: Vec<_> = (0..100).map(|it| pod(it, 1)).collect();
    zip(&pieces, &objects, Projection::Whole);
    for damage in 0..3 {
        let (_, wrong) = GZIP_PIECES.counts();
        for piece in pieces.kept.lock().young.values_mut() {
            match damage {
                0 => piece.zipped = piece.zipped.slice(..piece.zipped.len() / 2),
                1 => piece.crc ^= 1,
                _ => *piece = Piece::stored(&[Bytes::from_static(b"{}")]),
            }
        }
        assert!(zip(&pieces, &objects, Projection::Whole) == plain(&objects, Projection::Whole));
        assert!(GZIP_PIECES.counts().1 > wrong, "counted");
        let again = zip(&pieces, &objects, Projection::Whole);
        assert!(again == plain(&objects, Projection::Whole), "and the right ones are kept");
    }
}

/// A flush is lost only where it fills the room for its output, which is in some pieces of a hundred.
#[cfg(planted)]
#[test]
fn planted_lost_flush_never_reaches_a_client_of_a_checked_list() {
    let pod = |number: u64| {
        let mut random = Random::new(number + 1);
        let bytes = PIECE_BYTES_MAX + random.below(50_000);
        let text: String = (0..bytes).map(|_| char::from(b'a' + random.below(26) as u8)).collect();
        let text = format!(
            r#"{{"metadata":{{"name":"pod-{number}","namespace":"a","uid":"{number}","resourceVersion":"1"}},"x":"{text}"}}"#
        );
        Object::parse(&Resource::pods(), text.into()).unwrap()
    };
    let (_, wrong) = GZIP_PIECES.counts();
    let is_lost = |list: u64| {
        let objects: Vec<_> = (0..10).map(|it| pod(10 * list + it)).collect();
        planted::with("gzip_flush_lost", || {
            let text = zip(&pieces_that_are_always_checked(), &objects, Projection::Whole);
            assert!(text == plain(&objects, Projection::Whole));
        });
        GZIP_PIECES.counts().1 > wrong
    };
    assert!((0..100).any(is_lost), "the flush was lost nowhere");
}

#[cfg(planted)]
#[test]
fn planted_lost_flush_is_caught() {
    let judged = planted::with("gzip_flush_lost", || random_pieces(0x5eed, 2_000));
    assert!(judged.is_err(), "a flush that loses the rest of a piece went unnoticed");
}
