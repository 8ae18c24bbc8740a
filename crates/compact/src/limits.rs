//! Every bound of this crate, with its reason.

/// A kind's dictionary is this many of its bodies at least, and less than twice as many. Of pods, eight
/// leave 360 bytes of 9,400, and 32 not fewer.
pub const DICTIONARY_SAMPLES: usize = 8;
/// Bytes of a body that go into a dictionary at most: 128 KiB for all.
pub const SAMPLE_BYTES_MAX: usize = 16 * 1024;
/// After so many bodies a dictionary is made: soon, and again when more of the kind has been seen,
/// since neighbours in a list are often of one owner. Each is kept as long as something needs it.
pub const DICTIONARIES_AT: [usize; 3] = [16, 128, 1024];
/// How hard compact bodies are compressed: above this, more time and a megabyte of tables save a twentieth.
pub const COMPACT_LEVEL: i32 = 1;
/// Decompressors that wait for readers.
pub const DECOMPRESSORS_MAX: usize = 8;
