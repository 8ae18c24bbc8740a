//! gzip, unpacked as it arrives.

use std::io::Write;

use flate2::write::MultiGzDecoder;
use masthead_reflector::Failure;

/// Unpacks a body of any number of members: servers that flush between the items of a list begin a new
/// one with each flush.
pub(crate) struct Gunzip(MultiGzDecoder<Vec<u8>>);

impl Gunzip {
    pub(crate) fn new() -> Self {
        Self(MultiGzDecoder::new(Vec::new()))
    }

    /// Everything that can be unpacked so far. Give it no more than
    /// [`GUNZIP_BYTES`](crate::limits::GUNZIP_BYTES) at a time.
    pub(crate) fn unpack(&mut self, packed: &[u8]) -> Result<Vec<u8>, Failure> {
        self.0.write_all(packed).and_then(|()| self.0.flush()).map_err(|error| broken(&error))?;
        Ok(std::mem::take(self.0.get_mut()))
    }

    /// Ends the body, and fails if its last member is not whole.
    pub(crate) fn finish(mut self) -> Result<Vec<u8>, Failure> {
        self.0.try_finish().map_err(|error| broken(&error))?;
        Ok(std::mem::take(self.0.get_mut()))
    }
}

fn broken(error: &std::io::Error) -> Failure {
    Failure::Decode(format!("gzip is broken or cut off: {error}"))
}

#[cfg(test)]
mod tests {
    use flate2::Compression;
    use flate2::write::GzEncoder;

    use super::*;

    fn member(text: &[u8]) -> Vec<u8> {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
        encoder.write_all(text).unwrap();
        encoder.finish().unwrap()
    }

    fn unpacked(packed: &[u8], step: usize) -> Result<Vec<u8>, Failure> {
        let mut gunzip = Gunzip::new();
        let mut text = Vec::new();
        for piece in packed.chunks(step) {
            text.extend(gunzip.unpack(piece)?);
        }
        text.extend(gunzip.finish()?);
        Ok(text)
    }

    #[test]
    fn many_members_are_one_text_wherever_they_are_cut() {
        let packed = [member(b"one,"), member(b""), member(b"two"), member(b"!")].concat();
        for step in 1..=packed.len() {
            assert_eq!(unpacked(&packed, step).unwrap(), b"one,two!", "{step}");
        }
    }

    #[test]
    fn a_member_is_unpacked_before_the_next_one_comes() {
        let mut gunzip = Gunzip::new();
        assert_eq!(gunzip.unpack(&member(b"one")).unwrap(), b"one");
        assert_eq!(gunzip.unpack(&member(b"two")).unwrap(), b"two");
        assert_eq!(gunzip.finish().unwrap(), b"");
    }

    #[test]
    fn a_cut_or_broken_member_is_a_failure() {
        let packed = [member(b"one"), member(&[b'x'; 1000])].concat();
        let first = member(b"one").len();
        for end in (0..packed.len()).filter(|end| *end != first) {
            assert!(matches!(unpacked(&packed[..end], 7), Err(Failure::Decode(_))), "{end}");
        }
        let mut wrong = packed.clone();
        let last = wrong.len() - 1;
        wrong[last] ^= 1;
        assert!(matches!(unpacked(&wrong, 7), Err(Failure::Decode(_))));
        assert!(matches!(unpacked(b"no gzip at all", 100), Err(Failure::Decode(_))));
    }
}
