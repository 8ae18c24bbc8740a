//! Whether there is room on the disk of a store.

use std::fs;
use std::io::{self, Write as _};
use std::path::Path;

use super::directory::private;
use super::failure::WriteError;
use crate::limits::{FOLD_ROOM_BYTES, ROOM_PROBE_BYTES};

const PROBE: &str = "ROOM";

/// Writes a file and removes it. That also meets quotas, which the free space does not tell of.
pub(crate) fn probe(dir: &Path) -> Result<(), WriteError> {
    let written = write(&dir.join(PROBE));
    clean(dir).map_err(WriteError::Broken)?;
    written.map_err(WriteError::before_sync)
}

/// Removes what a crash in the midst of [`probe`] left behind.
pub(crate) fn clean(dir: &Path) -> io::Result<()> {
    match fs::remove_file(dir.join(PROBE)) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// The file has nothing that is needed, so a sync that fails for lack of room says no more than that.
fn write(path: &Path) -> io::Result<()> {
    let mut file = private().write(true).create(true).truncate(true).open(path)?;
    file.write_all(&vec![0x6d; ROOM_PROBE_BYTES])?;
    file.sync_all()
}

/// Returns `true` if there is room for a fold. A file system that does not tell how much it has is taken to have
/// enough.
pub(crate) fn is_enough_for_fold(dir: &Path) -> bool {
    let Ok(found) = rustix::fs::statvfs(dir) else { return true };
    found.f_blocks == 0 || found.f_bavail.saturating_mul(found.f_frsize) >= FOLD_ROOM_BYTES
}
