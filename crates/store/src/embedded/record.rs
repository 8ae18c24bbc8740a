//! Lines of the log as bytes.
//!
//! A record is its length, a checksum, and a payload: revision, time, history, what was synced before,
//! kind, the lengths of the two names, the names, the body. Numbers are little-endian. Records are
//! independent of each other: of a group that a crash has cut short, the records before the cut count.

use masthead_core::limits::{NAME_BYTES_MAX, NAMESPACE_BYTES_MAX, OBJECT_BYTES_MAX};
use masthead_core::{ObjectKey, Revision, Time};
use xxhash_rust::xxh3::xxh3_64;

use crate::ledger::Slot;
use crate::{Event, EventKind, ResourceName};

/// Length and checksum.
const FRAME_BYTES: usize = 4 + 8;
/// The payload before the names.
const FIXED_BYTES: usize = 8 + 8 + 8 + 8 + 1 + 2 + 2;
/// Everything before the names.
const PREFIX_BYTES: usize = FRAME_BYTES + FIXED_BYTES;
/// Longest name of a resource and longest key: each is two names with a mark between.
const NAMES_BYTES_MAX: usize = 2 * (NAME_BYTES_MAX + NAMESPACE_BYTES_MAX + 1);
/// What has to be read of most records to know all but the body.
pub(crate) const HEAD_BYTES_USUAL: usize = 256;
/// What has to be read of any record to know all but the body.
pub(crate) const HEAD_BYTES_MAX: usize = PREFIX_BYTES + NAMES_BYTES_MAX;
const PAYLOAD_BYTES_MAX: usize = FIXED_BYTES + NAMES_BYTES_MAX + OBJECT_BYTES_MAX;

/// All of a record but its body.
#[derive(Clone, Debug)]
pub(crate) struct Head {
    pub(crate) slot: Slot,
    pub(crate) revision: Revision,
    pub(crate) kind: EventKind,
    /// The wall clock's, made to never run backwards.
    pub(crate) time: Time,
    /// Bytes of history that were made from the beginning of the store to here.
    pub(crate) history: u64,
    /// A revision that was on disk when the record was made: a witness of what is before it.
    pub(crate) synced: Revision,
    /// Where the body begins, from the beginning of the record.
    pub(crate) body_at: usize,
    /// Length of the whole record.
    pub(crate) bytes: usize,
}

/// Length of the record of an event.
pub(crate) fn bytes(event: &Event) -> usize {
    let names = event.resource.as_str().len() + event.key.as_str().len();
    PREFIX_BYTES + names + event.value.body().len()
}

/// What a record says beside its event.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stamp {
    pub(crate) time: Time,
    pub(crate) history: u64,
    pub(crate) synced: Revision,
}

/// Appends a record; says what is in it.
pub(crate) fn encode(out: &mut Vec<u8>, event: &Event, stamp: Stamp) -> Head {
    let Stamp { time, history, synced } = stamp;
    let (name, key) = (event.resource.as_str(), event.key.as_str());
    let frame = out.len();
    out.resize(frame + FRAME_BYTES, 0);
    out.extend_from_slice(&event.revision.0.to_le_bytes());
    out.extend_from_slice(&time.0.to_le_bytes());
    out.extend_from_slice(&history.to_le_bytes());
    out.extend_from_slice(&synced.0.to_le_bytes());
    out.push(code(event.kind));
    out.extend_from_slice(&length_of(name).to_le_bytes());
    out.extend_from_slice(&length_of(key).to_le_bytes());
    out.extend_from_slice(name.as_bytes());
    out.extend_from_slice(key.as_bytes());
    let body_at = out.len() - frame;
    out.extend_from_slice(event.value.body());
    let payload = &out[frame + FRAME_BYTES..];
    let length = u32::try_from(payload.len()).expect("bodies are limited below 4 GiB");
    let check = xxh3_64(payload).to_le_bytes();
    out[frame..frame + 4].copy_from_slice(&length.to_le_bytes());
    out[frame + 4..frame + FRAME_BYTES].copy_from_slice(&check);
    let slot = Slot { resource: event.resource.clone(), key: event.key.clone() };
    let (revision, kind, bytes) = (event.revision, event.kind, out.len() - frame);
    Head { slot, revision, kind, time, history, synced, body_at, bytes }
}

fn length_of(name: &str) -> u16 {
    u16::try_from(name.len()).expect("names are limited below 64 KiB")
}

/// Reads a head from the beginning of a record, without looking at the checksum. None if this is no
/// record, or not enough of one.
pub(crate) fn head(bytes: &[u8]) -> Option<Head> {
    let length = u32::from_le_bytes(bytes.get(..4)?.try_into().ok()?) as usize;
    let fixed = bytes.get(FRAME_BYTES..PREFIX_BYTES)?;
    let number = |at: usize| Some(u64::from_le_bytes(fixed.get(at..at + 8)?.try_into().ok()?));
    let short =
        |at: usize| Some(usize::from(u16::from_le_bytes(fixed.get(at..at + 2)?.try_into().ok()?)));
    let (name_bytes, key_bytes) = (short(33)?, short(35)?);
    let body_at = PREFIX_BYTES + name_bytes + key_bytes;
    if length > PAYLOAD_BYTES_MAX || length + FRAME_BYTES < body_at {
        return None;
    }
    let names = str::from_utf8(bytes.get(PREFIX_BYTES..body_at)?).ok()?;
    let (name, key) = names.split_at_checked(name_bytes)?;
    let slot = Slot { resource: ResourceName::stored(name), key: object_key(key)? };
    Some(Head {
        slot,
        revision: Revision(number(0)?),
        time: Time(number(8)?),
        history: number(16)?,
        synced: Revision(number(24)?),
        kind: kind(fixed[32])?,
        body_at,
        bytes: FRAME_BYTES + length,
    })
}

/// Reads the head of a whole and undamaged record.
pub(crate) fn verified(bytes: &[u8]) -> Option<Head> {
    let head = head(bytes)?;
    (xxh3_64(bytes.get(FRAME_BYTES..head.bytes)?) == check(bytes)?).then_some(head)
}

/// Are these bytes the whole and undamaged record of a revision? Reads no names: who asks knows them.
pub(crate) fn is_record_of(bytes: &[u8], revision: Revision) -> bool {
    let says = bytes.get(FRAME_BYTES..FRAME_BYTES + 8);
    says == Some(&revision.0.to_le_bytes()) && check(bytes) == Some(xxh3_64(&bytes[FRAME_BYTES..]))
}

fn check(bytes: &[u8]) -> Option<u64> {
    Some(u64::from_le_bytes(bytes.get(4..FRAME_BYTES)?.try_into().ok()?))
}

/// A key from its text.
pub(crate) fn object_key(text: &str) -> Option<ObjectKey> {
    let (namespace, name) = text.split_once('/').unwrap_or(("", text));
    ObjectKey::new(namespace, name).ok()
}

fn code(kind: EventKind) -> u8 {
    match kind {
        EventKind::Added => 1,
        EventKind::Modified => 2,
        EventKind::Deleted => 3,
    }
}

fn kind(code: u8) -> Option<EventKind> {
    match code {
        1 => Some(EventKind::Added),
        2 => Some(EventKind::Modified),
        3 => Some(EventKind::Deleted),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use masthead_core::{Object, Resource};

    use super::*;

    fn event() -> Event {
        let body = r#"{"metadata":{"namespace":"shop","name":"web","resourceVersion":"7"}}"#;
        let object = Object::parse(&Resource::pods(), body.into()).unwrap();
        Event {
            resource: (&Resource::pods()).into(),
            key: object.key().clone(),
            revision: Revision(7),
            kind: EventKind::Modified,
            value: object.into(),
        }
    }

    fn record() -> Vec<u8> {
        let mut bytes = Vec::new();
        encode(&mut bytes, &event(), Stamp { time: Time(11), history: 13, synced: Revision(5) });
        bytes
    }

    #[test]
    fn a_record_comes_back() {
        let bytes = record();
        assert!(is_record_of(&bytes, Revision(7)) && !is_record_of(&bytes, Revision(8)));
        let head = verified(&bytes).unwrap();
        assert_eq!((head.revision, head.time, head.history), (Revision(7), Time(11), 13));
        assert_eq!(head.synced, Revision(5));
        assert_eq!((head.slot.key.as_str(), head.kind), ("shop/web", EventKind::Modified));
        assert_eq!((head.bytes, head.bytes), (bytes.len(), super::bytes(&event())));
        assert!(bytes[head.body_at..].starts_with(b"{\"metadata\""));
    }

    #[test]
    fn a_record_with_any_bit_changed_or_cut_anywhere_is_none() {
        let bytes = record();
        for at in 0..bytes.len() {
            assert!(verified(&bytes[..at]).is_none(), "cut at {at}");
            assert!(!is_record_of(&bytes[..at], Revision(7)), "cut at {at}");
            for bit in 0..8 {
                let mut bad = bytes.clone();
                bad[at] ^= 1 << bit;
                assert!(verified(&bad).is_none(), "bit {bit} of byte {at}");
                // The length is not asked: it is known from the index.
                assert!(at < 4 || !is_record_of(&bad, Revision(7)), "bit {bit} of byte {at}");
            }
        }
    }

    #[test]
    fn zeroes_are_no_record() {
        assert!(verified(&[0; 4096]).is_none());
    }
}
