//! What a failed write leaves behind.

use std::error::Error;
use std::io;

/// Why something was not written.
#[derive(Debug)]
pub(crate) enum WriteError {
    /// The disk, or the quota on it, has no room. Nothing is kept of what was to be written, and it may be tried
    /// again when there is room.
    NoRoom(io::Error),
    /// What the disk has of it is not known. Only a restart can tell, and nothing may be written before.
    Broken(io::Error),
}

impl WriteError {
    /// What a failure means that came before anything was handed to the disk to keep. A failed sync is always
    /// [`WriteError::Broken`]: after it the system may have dropped what it did not write.
    pub(crate) fn before_sync(error: io::Error) -> Self {
        if is_no_room(&error) { Self::NoRoom(error) } else { Self::Broken(error) }
    }

    pub(crate) fn into_source(self) -> io::Error {
        match self {
            Self::NoRoom(error) | Self::Broken(error) => error,
        }
    }
}

/// Whether an error says that the disk or the quota on it is used up.
pub(crate) fn is_no_room(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}

/// The innermost error that an error comes from.
pub(crate) fn root<'a>(error: &'a (dyn Error + 'static)) -> &'a (dyn Error + 'static) {
    let mut root = error;
    while let Some(source) = root.source() {
        root = source;
    }
    root
}
