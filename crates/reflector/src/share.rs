//! Lists that repeat what a cache already has.

use masthead_cache::Snapshot;
use masthead_core::Object;

/// Replaces each object that the cache already has, byte for byte, by the cached one, so that a list
/// that is being gathered holds only what is new (I8). The bytes are compared, not just the
/// versions: a store that was restored from a backup gives the same numbers out twice.
pub fn share_unchanged(snapshot: &Snapshot, objects: &mut [Object]) {
    for object in objects {
        if let Some(cached) = snapshot.get(object.key())
            && cached.resource_version() == object.resource_version()
            && cached.body() == object.body()
        {
            *object = cached;
        }
    }
}
