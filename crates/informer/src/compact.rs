//! Bodies that are compressed with a dictionary learned from their kind.

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;
use zstd::bulk::{Compressor, Decompressor};

use crate::limits::{COMPACT_LEVEL, DECOMPRESSORS_MAX, DICTIONARY_BYTES, DICTIONARY_SAMPLES};

/// Compresses the bodies of one cache. The first ones without help, and from them it learns.
#[derive(Default)]
pub(crate) struct Compactor(Mutex<State>);

#[derive(Default)]
struct State {
    compressor: Option<Compressor<'static>>,
    samples: Vec<Bytes>,
    dictionary: Arc<Dictionary>,
    learned: bool,
}

/// What both ends know, and decompressors that know it.
#[derive(Default)]
struct Dictionary {
    bytes: Vec<u8>,
    idle: Mutex<Vec<Decompressor<'static>>>,
}

/// A compressed body.
pub(crate) struct Packed {
    bytes: Box<[u8]>,
    /// Bytes of the body.
    length: usize,
    dictionary: Arc<Dictionary>,
}

impl Compactor {
    /// None if it cannot be compressed, which is no reason not to have the object.
    pub(crate) fn pack(&self, body: &Bytes) -> Option<Packed> {
        let mut state = self.0.lock();
        if !state.learned {
            state.samples.push(body.clone());
            if state.samples.len() == DICTIONARY_SAMPLES {
                state.learn();
            }
        }
        let dictionary = state.dictionary.clone();
        let compressor = match &mut state.compressor {
            Some(compressor) => compressor,
            none => {
                none.insert(Compressor::with_dictionary(COMPACT_LEVEL, &dictionary.bytes).ok()?)
            }
        };
        let bytes = compressor.compress(body).ok()?.into_boxed_slice();
        Some(Packed { bytes, length: body.len(), dictionary })
    }
}

impl State {
    fn learn(&mut self) {
        self.learned = true;
        let samples = std::mem::take(&mut self.samples);
        // Too little to learn from, or too different: then without.
        let Ok(bytes) = zstd::dict::from_samples(&samples, DICTIONARY_BYTES) else { return };
        self.compressor = None;
        self.dictionary = Arc::new(Dictionary { bytes, idle: Mutex::default() });
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
    pub(crate) fn open(&self) -> std::io::Result<Vec<u8>> {
        self.dictionary.open(&self.bytes, self.length)
    }

    /// What it takes in memory.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes.len() + size_of::<Self>()
    }
}

impl fmt::Debug for Compactor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Compactor").finish_non_exhaustive()
    }
}
