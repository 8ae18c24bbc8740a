//! The directory of a store: whose it is, and what format it has.

use std::fs::{self, DirBuilder, File, OpenOptions, Permissions, TryLockError};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use super::failure::WriteError;

/// Why a store cannot be opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// Somebody has it open.
    #[error(
        "{} is in use by another process or store: stop that one first, or give this one a directory of its own",
        dir.display()
    )]
    InUse {
        /// The store's directory.
        dir: PathBuf,
    },
    /// It is something else.
    #[error(
        "{} is not empty and not a store ({what}): give an empty directory or one that does not exist",
        dir.display()
    )]
    Foreign {
        /// The directory.
        dir: PathBuf,
        /// What was found there.
        what: String,
    },
    /// A newer program made it.
    #[error(
        "{} has format {found}, this program knows {known}: use the program that wrote it or a newer one",
        dir.display()
    )]
    Newer {
        /// The store's directory.
        dir: PathBuf,
        /// Its format.
        found: u32,
        /// The newest format that can be read.
        known: u32,
    },
    /// What it holds is not what was written.
    #[error("{} is damaged: {what}; {remedy}", dir.display())]
    Damaged {
        /// The store's directory.
        dir: PathBuf,
        /// What was found.
        what: String,
        /// What can be done about it.
        remedy: String,
    },
    /// The disk, or the right to use it.
    #[error("cannot open the store in {}", dir.display())]
    Io {
        /// The store's directory.
        dir: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
}

impl OpenError {
    /// Damage that only a backup helps against.
    pub(crate) fn damaged(dir: &Path, what: String) -> Self {
        let remedy = "restore it from a backup".to_owned();
        Self::Damaged { dir: dir.to_owned(), what, remedy }
    }
}

const LOCK: &str = "LOCK";
const FORMAT: &str = "FORMAT";
/// The format while it is written.
const FORMAT_NEW: &str = "FORMAT.new";
/// What a file is called while it is written, behind its own name.
const NEW: &str = ".new";
/// Only the owner of a store may enter its directories: what is in them may be secret.
const DIRECTORY_MODE: u32 = 0o700;
/// Only the owner of a store may read its files.
const FILE_MODE: u32 = 0o600;
/// The rights of everybody else.
const OTHERS: u32 = 0o077;
const FORMAT_NAME: &str = "masthead-store";
const FORMAT_VERSION: u32 = 1;

/// A store's directory, held for this process and against everybody else.
pub(crate) struct Directory {
    path: PathBuf,
    /// Locked for as long as this is held; the system unlocks it also after a crash.
    lock: File,
}

impl Directory {
    /// Takes a directory, and makes it one of a store if it is empty.
    pub(crate) fn claim(path: &Path) -> Result<Self, OpenError> {
        let io = |source| OpenError::Io { dir: path.to_owned(), source };
        make_directory(path, DIRECTORY_MODE).map_err(io)?;
        check_is_ours(path)?;
        let lock = lock(path)?;
        let directory = Self { path: path.to_owned(), lock };
        directory.tighten();
        write_format(path).map_err(io)?;
        Ok(directory)
    }

    /// Takes the rights of other users away, which stores of earlier versions gave them. The files of the
    /// base are reached through its directory only.
    fn tighten(&self) {
        let own = [self.path.clone(), self.log(), self.base()];
        let within = [&self.path, &self.log()].map(|dir| files(dir).unwrap_or_default());
        let mut changed = 0;
        for path in own.into_iter().chain(within.into_iter().flatten()) {
            match tighten(&path) {
                Ok(false) => {}
                Ok(true) => changed += 1,
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => {
                    let path = path.display();
                    tracing::warn!(%path, %error, "other users of this machine may be able to read this");
                }
            }
        }
        if changed > 0 {
            let dir = self.path.display();
            tracing::info!(%dir, changed, "other users of this machine can no longer read the store");
        }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn base(&self) -> PathBuf {
        self.path.join("base")
    }

    pub(crate) fn log(&self) -> PathBuf {
        self.path.join("log")
    }
}

impl Drop for Directory {
    /// Closing would not do: a process that another thread is just starting has all open files until
    /// it becomes another program, and the lock would live as long.
    fn drop(&mut self) {
        // If that fails, the lock ends with the last who has the file.
        let _ = self.lock.unlock();
    }
}

/// Makes the entries of a directory durable.
pub(crate) fn sync(path: &Path) -> io::Result<()> {
    File::open(path)?.sync_all()
}

/// Makes a directory that only its owner may enter, if it is not there.
pub(crate) fn make_private_directory(path: &Path) -> io::Result<()> {
    make_directory(path, DIRECTORY_MODE)
}

/// How a file is created that only its owner may read.
pub(crate) fn private() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.mode(FILE_MODE);
    options
}

/// Puts a file of the store there, or another one in its place, whole and durable. After a crash the file is
/// the new one or what it was before.
pub(crate) fn replace(dir: &Path, name: &str, content: &[u8]) -> Result<(), WriteError> {
    let new = dir.join(format!("{name}{NEW}"));
    let mut options = private();
    let opened = options.write(true).create(true).truncate(true).open(&new);
    let mut file = opened.map_err(WriteError::before_sync)?;
    file.write_all(content).map_err(WriteError::before_sync)?;
    file.sync_all().map_err(WriteError::Broken)?;
    fs::rename(new, dir.join(name)).map_err(WriteError::before_sync)?;
    sync(dir).map_err(WriteError::Broken)
}

/// Makes a directory, and those above it, durable. The mode is that of the last one.
fn make_directory(path: &Path, mode: u32) -> io::Result<()> {
    if path.is_dir() {
        return Ok(());
    }
    let above = path.parent().filter(|above| !above.as_os_str().is_empty());
    if let Some(above) = above {
        make_directory(above, 0o777)?;
    }
    match DirBuilder::new().mode(mode).create(path) {
        // Another process may be starting, too.
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists && path.is_dir() => {}
        done => done?,
    }
    match sync(above.unwrap_or(Path::new("."))) {
        // A directory that may be written to and not read cannot be synced.
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => Ok(()),
        synced => synced,
    }
}

/// The files of a directory, without the directories in it.
fn files(dir: &Path) -> io::Result<Vec<PathBuf>> {
    let entries = fs::read_dir(dir)?.collect::<Result<Vec<_>, _>>()?;
    let is_file = |entry: &fs::DirEntry| entry.file_type().is_ok_and(|kind| kind.is_file());
    Ok(entries.into_iter().filter(is_file).map(|entry| entry.path()).collect())
}

/// Takes the rights of others away. Says whether they had some.
fn tighten(path: &Path) -> io::Result<bool> {
    let mode = fs::metadata(path)?.permissions().mode();
    if mode & OTHERS == 0 {
        return Ok(false);
    }
    fs::set_permissions(path, Permissions::from_mode(mode & !OTHERS))?;
    Ok(true)
}

fn check_is_ours(dir: &Path) -> Result<(), OpenError> {
    let foreign = |what: String| OpenError::Foreign { dir: dir.to_owned(), what };
    let io = |source| OpenError::Io { dir: dir.to_owned(), source };
    match fs::read_to_string(dir.join(FORMAT)) {
        Ok(text) => check_format(dir, &text),
        // What was cut short while it was made has nothing but the lock.
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let mut entries = fs::read_dir(dir).map_err(io)?.filter_map(Result::ok);
            match entries.find(|entry| entry.file_name() != LOCK && entry.file_name() != FORMAT_NEW)
            {
                Some(entry) => {
                    let found = entry.file_name();
                    Err(foreign(format!("it has {} and no {FORMAT}", found.display())))
                }
                None => Ok(()),
            }
        }
        Err(error) if error.kind() == io::ErrorKind::InvalidData => {
            Err(foreign(format!("{FORMAT} is no text")))
        }
        Err(error) => Err(io(error)),
    }
}

fn check_format(dir: &Path, text: &str) -> Result<(), OpenError> {
    let version =
        text.trim_end().strip_prefix(FORMAT_NAME).and_then(|rest| rest.trim().parse().ok());
    match version {
        Some(FORMAT_VERSION) => Ok(()),
        Some(found) if found > FORMAT_VERSION => {
            Err(OpenError::Newer { dir: dir.to_owned(), found, known: FORMAT_VERSION })
        }
        _ => {
            let what = format!("{FORMAT} says something else");
            Err(OpenError::Foreign { dir: dir.to_owned(), what })
        }
    }
}

fn lock(dir: &Path) -> Result<File, OpenError> {
    let io = |source| OpenError::Io { dir: dir.to_owned(), source };
    let mut options = private();
    let file = options.create(true).truncate(false).write(true).open(dir.join(LOCK)).map_err(io)?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => Err(OpenError::InUse { dir: dir.to_owned() }),
        Err(TryLockError::Error(error)) => Err(io(error)),
    }
}

fn write_format(dir: &Path) -> io::Result<()> {
    if dir.join(FORMAT).exists() {
        return Ok(());
    }
    let text = format!("{FORMAT_NAME} {FORMAT_VERSION}\n");
    replace(dir, FORMAT, text.as_bytes()).map_err(WriteError::into_source)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_that_was_given_up_is_free_even_if_a_starting_process_has_its_files() {
        let place = tempfile::tempdir().unwrap();
        let held = Directory::claim(place.path()).unwrap();
        let inherited = held.lock.try_clone().unwrap();
        assert!(matches!(Directory::claim(place.path()), Err(OpenError::InUse { .. })));
        drop(held);
        Directory::claim(place.path()).unwrap();
        drop(inherited);
    }
}
