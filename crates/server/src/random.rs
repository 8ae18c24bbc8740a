//! Random content for the tests of views: whatever bodies have in them, a view of them has to be right.

use bytes::Bytes;
use masthead_core::{Object, Resource};

/// Number of random cases that each kept view is compared with a fresh one for. `MASTHEAD_CASES` sets another
/// for a long run.
pub(crate) fn cases() -> u64 {
    let given = std::env::var("MASTHEAD_CASES").ok().and_then(|text| text.parse().ok());
    given.unwrap_or(2_000)
}

/// A source of repeatable random numbers (xorshift).
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// A number below a bound.
    pub(crate) fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 % bound as u64).expect("is below a usize")
    }

    /// Text of one of the kinds that bodies are made of: random over many letters or few, all alike, or
    /// repeated in pieces.
    pub(crate) fn text(&mut self, bytes: usize) -> Vec<u8> {
        const BASE64: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
        match self.below(5) {
            0 => vec![b'x'; bytes],
            1 => (0..bytes).map(|_| u8::try_from(self.below(256)).expect("a byte")).collect(),
            2 => b"\"name\":\"a pod\",".iter().copied().cycle().take(bytes).collect(),
            kind => {
                let letters = if kind == 3 { BASE64.len() } else { 8 };
                (0..bytes).map(|_| BASE64[self.below(letters)]).collect()
            }
        }
    }

    /// Slices of texts, from empty ones to some larger than the window of a compressor, of no more than
    /// `left` bytes together.
    pub(crate) fn slices(&mut self, mut left: usize) -> Vec<Bytes> {
        const LENGTHS: [usize; 5] = [2, 300, 10_000, 60_000, 150_000];
        let longest = LENGTHS[self.below(LENGTHS.len())];
        let count = self.below(40);
        let mut slices = Vec::new();
        for _ in 0..count {
            let bytes = self.below(longest).min(left);
            left -= bytes;
            slices.push(self.text(bytes).into());
        }
        slices
    }

    /// A pod at a revision with random content, from none to a few hundred KB.
    pub(crate) fn object(&mut self, revision: u64) -> Object {
        let longest = [1, 100, 5_000, 200_000][self.below(4)];
        let bytes = self.below(longest);
        let text = self.text(bytes);
        let text = serde_json::Value::from(String::from_utf8_lossy(&text));
        let body = format!(
            r#"{{"kind":"Pod","apiVersion":"v1","metadata":{{"name":"a","namespace":"b","uid":"u","resourceVersion":"{revision}","annotations":{{"a":{text}}}}},"spec":{{"x":{text}}}}}"#
        );
        Object::parse(&Resource::pods(), body.into()).expect("is a pod")
    }
}
