//! Objects whose bodies the caches hold compressed, if the server is set up so.
//!
//! They are compressed where they come from the store, before anything keeps them, and opened where they
//! leave: one at a time, when they are sent or changed. Of what is small, or does not shrink, the JSON is
//! held as ever; so everything here takes both.

use std::cell::RefCell;
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use masthead_cache::Cache;
use masthead_compact::{Compactor, Packed, digest};
use masthead_core::{Object, Resource, Status};
use parking_lot::Mutex;
use tracing::error;

use crate::limits::{BODY_CHECK_EVERY, OPEN_BYTES_MAX, OPEN_OBJECTS_MAX};
use crate::self_check::COMPRESSED_BODIES;

/// What compresses the objects of each resource.
pub(crate) struct Packing {
    packers: Mutex<HashMap<Resource, Arc<Packer>>>,
    /// What is shorter stays as it is.
    bytes_min: usize,
}

/// Of one resource.
pub(crate) struct Packer {
    compactor: Compactor,
    cache: Cache,
    bytes_min: usize,
    /// Bodies that were compressed. One in so many is opened at once and compared.
    compressed: AtomicU64,
}

impl Packing {
    pub(crate) fn new(bytes_min: usize) -> Self {
        Self { packers: Mutex::default(), bytes_min }
    }

    pub(crate) fn open(&self, resource: &Resource, cache: Cache) {
        let (compactor, bytes_min) = (Compactor::default(), self.bytes_min);
        let compressed = AtomicU64::new(0);
        let packer = Packer { compactor, cache, bytes_min, compressed };
        self.packers.lock().insert(resource.clone(), Arc::new(packer));
    }

    pub(crate) fn close(&self, resource: &Resource) {
        self.packers.lock().remove(resource);
    }

    pub(crate) fn packer(&self, resource: &Resource) -> Option<Arc<Packer>> {
        self.packers.lock().get(resource).cloned()
    }
}

impl Packer {
    /// An object as it is to be held.
    pub(crate) fn pack(&self, object: Object) -> Object {
        if object.body().len() < self.bytes_min {
            return object;
        }
        let Some(held) = self.compactor.hold(&object) else { return object };
        if !self.compressed.fetch_add(1, Ordering::Relaxed).is_multiple_of(BODY_CHECK_EVERY) {
            return held;
        }
        let opened = masthead_compact::open(&held);
        let is_right = opened.is_ok_and(|opened| opened.body() == object.body());
        COMPRESSED_BODIES.record(is_right);
        if is_right { held } else { object }
    }

    /// One of a list, of which the cache may have most already: what is equal is not compressed again.
    pub(crate) fn pack_listed(&self, object: Object) -> Object {
        let known = self.cache.get(object.key()).filter(|it| {
            let same = if it.is_held() {
                it.has_digest(digest(&object))
            } else {
                it.body() == object.body()
            };
            same && it.resource_version() == object.resource_version()
        });
        known.unwrap_or_else(|| self.pack(object))
    }
}

/// An object with its JSON, however it is held.
pub(crate) fn whole(object: &Object) -> Result<Object, Status> {
    masthead_compact::open(object).map_err(|err| {
        COMPRESSED_BODIES.record(false);
        error!(key = %object.key(), %err, "an object in memory cannot be read");
        Status::internal(format!("the object {} cannot be read: {err}", object.key()))
    })
}

/// The same for lists, which can only be broken off.
pub(crate) fn open(object: &Object) -> Option<Object> {
    whole(object).ok()
}

/// The same for what is sent many times in a row: of the objects that a thread opened last, each is
/// opened once.
pub(crate) fn whole_of_many(object: &Object) -> Result<Object, Status> {
    let Some(packed) = object.content::<Packed>() else { return whole(object) };
    RECENT.with_borrow_mut(|recent| {
        let place = Arc::as_ptr(&packed) as usize;
        if let Some((_, known)) = recent.known.get(&place) {
            return Ok(known.clone());
        }
        let opened = whole(object)?;
        recent.keep(place, packed, opened.clone());
        Ok(opened)
    })
}

thread_local! {
    static RECENT: RefCell<Recent> = RefCell::default();
}

/// Objects that were opened last.
#[derive(Default)]
struct Recent {
    /// By where the compressed body is, which is held so that nothing else comes to lie there.
    known: HashMap<usize, (Arc<Packed>, Object)>,
    order: VecDeque<usize>,
    bytes: usize,
}

impl Recent {
    fn keep(&mut self, place: usize, packed: Arc<Packed>, opened: Object) {
        self.bytes += opened.body().len();
        self.known.insert(place, (packed, opened));
        self.order.push_back(place);
        // The last one stays, however large: it is the one that many are about to be sent.
        while self.order.len() > 1
            && (self.order.len() > OPEN_OBJECTS_MAX || self.bytes > OPEN_BYTES_MAX)
        {
            let oldest = self.order.pop_front();
            if let Some((_, gone)) = oldest.and_then(|it| self.known.remove(&it)) {
                self.bytes -= gone.body().len();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use masthead_cache::Config;
    use masthead_core::{Revision, Time};

    use super::*;

    fn pod(name: &str, bytes: usize) -> Object {
        let text = "x".repeat(bytes);
        let body = format!(
            r#"{{"metadata":{{"name":"{name}","namespace":"b","uid":"u","resourceVersion":"7"}},"text":"{text}"}}"#
        );
        Object::parse(&Resource::pods(), body.into()).unwrap()
    }

    fn packer() -> (masthead_cache::Writer, Packer) {
        let (writer, cache) = Cache::new(Config::default());
        (
            writer,
            Packer {
                compactor: Compactor::default(),
                cache,
                bytes_min: 600,
                compressed: AtomicU64::new(0),
            },
        )
    }

    #[test]
    fn what_is_listed_again_is_the_object_that_the_cache_has() {
        let (mut writer, packer) = packer();
        let (large, small) = (packer.pack(pod("large", 2000)), packer.pack(pod("small", 10)));
        assert_eq!((large.is_held(), small.is_held()), (true, false));
        writer.replace(vec![large.clone(), small.clone()], Revision(7), Time(0)).unwrap();
        assert!(packer.pack_listed(pod("large", 2000)).ptr_eq(&large));
        assert!(packer.pack_listed(pod("small", 10)).ptr_eq(&small));
        let other = packer.pack_listed(pod("large", 2001));
        assert!(!other.ptr_eq(&large));
        assert_eq!(whole(&other).unwrap().body(), pod("large", 2001).body());
        assert_eq!(packer.cache.memory().whole, {
            let bytes = |it: &Object| it.body().len();
            bytes(&pod("large", 2000)) + bytes(&pod("small", 10))
        });
    }

    /// V1: whatever a body has in it, it comes back as it was.
    #[test]
    fn v1_compressed_bodies_of_random_content_open_to_what_they_were() {
        let (_writer, packer) = packer();
        let mut random = crate::random::Random::new(0x5eed);
        for revision in 1..=crate::random::cases() {
            let object = random.object(revision);
            let opened = whole(&packer.pack(object.clone())).unwrap();
            assert_eq!(opened.body(), object.body(), "{revision}");
        }
    }

    #[test]
    fn what_is_shorter_than_the_limit_stays_as_it_is() {
        let (_writer, packer) = packer();
        let bytes = pod("a", 0).body().len();
        assert!(!packer.pack(pod("a", packer.bytes_min - bytes - 1)).is_held());
        assert!(packer.pack(pod("a", packer.bytes_min - bytes)).is_held());
    }

    #[test]
    fn what_many_are_sent_is_opened_once() {
        let (_writer, packer) = packer();
        let held = packer.pack(pod("a", 2000));
        let first = whole_of_many(&held).unwrap();
        assert!(whole_of_many(&held).unwrap().ptr_eq(&first));
        let equal = packer.pack(pod("a", 2000));
        assert!(!whole_of_many(&equal).unwrap().ptr_eq(&first), "the very object, not its like");
        let plain = pod("b", 10);
        assert!(whole_of_many(&plain).unwrap().ptr_eq(&plain));
    }

    #[test]
    fn no_more_is_kept_open_than_the_limits() {
        let (_writer, packer) = packer();
        let kept = |count: usize, bytes: usize| {
            let held: Vec<_> =
                (0..count).map(|it| packer.pack(pod(&it.to_string(), bytes))).collect();
            let first = whole_of_many(&held[0]).unwrap();
            held[1..].iter().for_each(|it| drop(whole_of_many(it).unwrap()));
            whole_of_many(&held[0]).unwrap().ptr_eq(&first)
        };
        assert!(kept(OPEN_OBJECTS_MAX, 600));
        assert!(!kept(OPEN_OBJECTS_MAX + 1, 600));
        assert!(kept(3, OPEN_BYTES_MAX / 4));
        assert!(!kept(5, OPEN_BYTES_MAX / 4));
        assert!(kept(1, 2 * OPEN_BYTES_MAX), "the last one, however large");
    }

    #[test]
    fn what_cannot_be_opened_is_an_error_of_the_server() {
        let broken = pod("a", 2000).held_as(Arc::new(()), 1, 1);
        assert_eq!(whole(&broken).unwrap_err().code(), 500);
        assert_eq!(whole_of_many(&broken).unwrap_err().code(), 500);
        assert!(open(&broken).is_none());
    }
}
