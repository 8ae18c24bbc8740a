//! Bodies that are compressed with a dictionary of their kind.

use std::fmt;
use std::sync::Arc;

use masthead_core::CommonStrings;
use parking_lot::Mutex;
use zstd::bulk::{Compressor, Decompressor};

use crate::limits::{
    COMPACT_LEVEL, DECOMPRESSORS_MAX, DICTIONARIES_AT, DICTIONARY_SAMPLES, SAMPLE_BYTES_MAX,
};

/// Compresses the bodies of one cache. The first ones without help; then some of them are the help.
#[derive(Default)]
pub struct Compactor {
    state: Mutex<State>,
    /// What the heads of the objects have in common.
    pub(crate) common: Mutex<CommonStrings>,
}

#[derive(Default)]
struct State {
    compressor: Option<Compressor<'static>>,
    samples: Samples,
    dictionary: Arc<Dictionary>,
    /// What is being compressed, so that only the result is allocated.
    scratch: Vec<u8>,
}

/// Some of what was seen, spread evenly over all of it.
#[derive(Default)]
struct Samples {
    bodies: Vec<Box<[u8]>>,
    seen: usize,
    /// One of so many is taken, as a power of two.
    stride: u32,
}

/// What both ends know, and decompressors that know it.
#[derive(Default)]
struct Dictionary {
    bytes: Vec<u8>,
    idle: Mutex<Vec<Decompressor<'static>>>,
}

/// A compressed body.
pub struct Packed {
    bytes: Box<[u8]>,
    /// Bytes of the body.
    length: usize,
    dictionary: Arc<Dictionary>,
}

impl Compactor {
    /// None if it cannot be compressed, which is no reason not to have the object.
    pub fn pack(&self, body: &[u8]) -> Option<Packed> {
        let state = &mut *self.state.lock();
        if let Some(bytes) = state.samples.take(body) {
            state.compressor = None;
            state.dictionary = Arc::new(Dictionary { bytes, idle: Mutex::default() });
        }
        let dictionary = state.dictionary.clone();
        let compressor = match &mut state.compressor {
            Some(compressor) => compressor,
            none => {
                none.insert(Compressor::with_dictionary(COMPACT_LEVEL, &dictionary.bytes).ok()?)
            }
        };
        state.scratch.clear();
        state.scratch.reserve(zstd::zstd_safe::compress_bound(body.len()));
        compressor.compress_to_buffer(body, &mut state.scratch).ok()?;
        let bytes = state.scratch.as_slice().into();
        Some(Packed { bytes, length: body.len(), dictionary })
    }
}

impl Samples {
    /// Looks at a body; a dictionary, if it is time for one.
    fn take(&mut self, body: &[u8]) -> Option<Vec<u8>> {
        if self.seen == DICTIONARIES_AT[DICTIONARIES_AT.len() - 1] {
            return None;
        }
        if self.seen.is_multiple_of(1 << self.stride) {
            self.bodies.push(body[..body.len().min(SAMPLE_BYTES_MAX)].into());
        }
        if self.bodies.len() == 2 * DICTIONARY_SAMPLES {
            let mut position = 0..;
            self.bodies.retain(|_| position.next().is_some_and(|it: usize| it.is_multiple_of(2)));
            self.stride += 1;
        }
        self.seen += 1;
        let due = DICTIONARIES_AT.contains(&self.seen).then(|| self.bodies.concat());
        if self.seen == DICTIONARIES_AT[DICTIONARIES_AT.len() - 1] {
            self.bodies = Vec::new();
        }
        due
    }
}

impl Dictionary {
    fn open(&self, packed: &[u8], length: usize) -> std::io::Result<Vec<u8>> {
        let idle = self.idle.lock().pop();
        let mut decompressor = match idle {
            Some(decompressor) => decompressor,
            None => Decompressor::with_dictionary(&self.bytes)?,
        };
        let body = decompressor.decompress(packed, length);
        let mut idle = self.idle.lock();
        if idle.len() < DECOMPRESSORS_MAX {
            idle.push(decompressor);
        }
        body
    }
}

impl Packed {
    /// The body as it was.
    pub fn open(&self) -> std::io::Result<Vec<u8>> {
        self.dictionary.open(&self.bytes, self.length)
    }

    /// What it takes in memory.
    pub fn bytes(&self) -> usize {
        self.bytes.len() + size_of::<Self>()
    }

    #[cfg(test)]
    pub(crate) fn damaged(body: &[u8]) -> Self {
        let mut packed = Compactor::default().pack(body).expect("can be packed");
        packed.bytes[0] ^= 0xff;
        packed
    }
}

impl fmt::Debug for Packed {
    /// Lengths, never content: bodies may hold secrets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes in {}", self.length, self.bytes.len())
    }
}

impl fmt::Debug for Compactor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Compactor").finish_non_exhaustive()
    }
}
