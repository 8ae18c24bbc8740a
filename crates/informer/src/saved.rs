//! Caches on disk, for a warm start.
//!
//! A file is a line of JSON that says what it is, then each object as its length and its bytes, then a
//! checksum of all before it. It is written beside its place and moved there whole.
//!
//! Only its owner may read it: objects may be secret.

use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, BufWriter, Read, Write};
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::Path;

use bytes::Bytes;
use masthead_cache::Snapshot;
use masthead_core::{Object, Revision};
use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::Xxh3;

use crate::connector::Wanted;
use crate::entry::json;
use crate::limits::SAVED_BYTES_MAX;

/// What a file holds.
#[derive(PartialEq, Serialize, Deserialize)]
struct Header {
    masthead: u32,
    resource: String,
    namespace: Option<String>,
    selectors: [String; 3],
    metadata_only: bool,
    revision: u64,
    objects: usize,
}

/// Why a file is not used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SavedError {
    /// It cannot be read or written.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// It is cut off or changed.
    #[error("the file is damaged; it is written anew")]
    Damaged,
    /// It is of another resource, other selectors or another version.
    #[error("the file is of something else; it is written anew")]
    Other,
    /// It is larger than what is read.
    #[error("the file has more than {SAVED_BYTES_MAX} bytes")]
    TooLarge,
}

const VERSION: u32 = 1;
/// Of a file of objects.
const FILE_MODE: u32 = 0o600;
/// The rights of everybody but the owner of a file.
const OTHERS: u32 = 0o077;

fn header(wanted: &Wanted, revision: Revision, objects: usize) -> Header {
    Header {
        masthead: VERSION,
        resource: wanted.resource.to_string(),
        namespace: wanted.namespace.clone(),
        selectors: crate::options::texts(&wanted.selectors),
        metadata_only: wanted.metadata_only,
        revision: revision.0,
        objects,
    }
}

/// A state to be written.
pub(crate) struct Saved<'a> {
    pub(crate) wanted: &'a Wanted,
    pub(crate) snapshot: Snapshot,
}

impl Saved<'_> {
    pub(crate) fn write(&self, path: &Path) -> Result<(), SavedError> {
        let mut beside = path.as_os_str().to_owned();
        beside.push(".new");
        let file = create_private(Path::new(&beside))?;
        let mut out = Checked { out: BufWriter::new(file), sum: Xxh3::new() };
        let header = header(self.wanted, self.snapshot.revision(), self.snapshot.len());
        serde_json::to_writer(&mut out, &header).map_err(io::Error::from)?;
        out.write_all(b"\n")?;
        for object in self.snapshot.iter() {
            // What is held decoded has no JSON to save: such caches are not given a place.
            let body = json(&object).map_err(io::Error::other)?;
            let length = u32::try_from(body.len()).map_err(io::Error::other)?;
            out.write_all(&length.to_le_bytes())?;
            out.write_all(&body)?;
        }
        let sum = out.sum.digest().to_le_bytes();
        out.out.write_all(&sum)?;
        let file = out.out.into_inner().map_err(io::IntoInnerError::into_error)?;
        file.sync_all()?;
        Ok(fs::rename(beside, path)?)
    }
}

/// Creates a file that only its owner may read, or empties one and makes it so.
fn create_private(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    let file = options.write(true).create(true).truncate(true).mode(FILE_MODE).open(path)?;
    tighten(&file)?;
    Ok(file)
}

/// Takes the rights of other users away.
fn tighten(file: &File) -> io::Result<()> {
    let mode = file.metadata()?.permissions().mode();
    if mode & OTHERS == 0 {
        return Ok(());
    }
    file.set_permissions(Permissions::from_mode(mode & !OTHERS))
}

struct Checked {
    out: BufWriter<File>,
    sum: Xxh3,
}

impl Write for Checked {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.out.write(bytes)?;
        self.sum.update(&bytes[..written]);
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

/// The objects of a file and their revision; none if there is no file.
pub(crate) fn read(
    path: &Path,
    wanted: &Wanted,
) -> Result<Option<(Vec<Object>, Revision)>, SavedError> {
    let mut file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error.into()),
    };
    // Earlier versions let others read it.
    if let Err(error) = tighten(&file) {
        let path = path.display();
        tracing::warn!(%path, %error, "other users of this machine may be able to read this cache");
    }
    if file.metadata()?.len() > SAVED_BYTES_MAX {
        return Err(SavedError::TooLarge);
    }
    let mut content = Vec::new();
    file.read_to_end(&mut content)?;
    parse(&content, wanted).map(Some)
}

fn parse(content: &[u8], wanted: &Wanted) -> Result<(Vec<Object>, Revision), SavedError> {
    let (content, sum) = content.split_last_chunk::<8>().ok_or(SavedError::Damaged)?;
    let mut hash = Xxh3::new();
    hash.update(content);
    if hash.digest().to_le_bytes() != *sum {
        return Err(SavedError::Damaged);
    }
    let end = content.iter().position(|byte| *byte == b'\n').ok_or(SavedError::Damaged)?;
    let found: Header = serde_json::from_slice(&content[..end]).map_err(|_| SavedError::Other)?;
    let (revision, count) = (Revision(found.revision), found.objects);
    if found != header(wanted, revision, count) {
        return Err(SavedError::Other);
    }
    let resource = wanted.held_resource();
    let (mut rest, mut objects) = (&content[end + 1..], Vec::with_capacity(count));
    while let Some((length, behind)) = rest.split_first_chunk::<4>() {
        let length = usize::try_from(u32::from_le_bytes(*length)).unwrap_or(usize::MAX);
        let body = behind.get(..length).ok_or(SavedError::Damaged)?;
        let object = Object::parse(&resource, Bytes::copy_from_slice(body));
        objects.push(object.map_err(|_| SavedError::Damaged)?);
        rest = &behind[length..];
    }
    if objects.len() == count { Ok((objects, revision)) } else { Err(SavedError::Damaged) }
}
