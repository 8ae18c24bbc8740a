//! The lines of a watch, as they arrive.

use masthead_core::limits::WATCH_LINE_BYTES_MAX;
use masthead_reflector::Failure;
use memchr::memchr;

use crate::limits::KEPT_BUFFER_BYTES;

/// Cuts a stream of chunks into lines. Only a line that lies across two chunks is copied.
#[derive(Default)]
pub(crate) struct Lines {
    /// The beginning of a line whose end has not come.
    partial: Vec<u8>,
}

impl Lines {
    /// Hands out every line that a chunk completes, without its break. Empty ones are left out.
    pub(crate) fn feed(
        &mut self,
        mut chunk: &[u8],
        mut line: impl FnMut(&[u8]) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        while let Some(end) = memchr(b'\n', chunk) {
            let (head, rest) = (&chunk[..end], &chunk[end + 1..]);
            if self.partial.is_empty() {
                some(head, &mut line)?;
            } else {
                self.keep(head)?;
                some(&self.partial, &mut line)?;
                self.clear();
            }
            chunk = rest;
        }
        self.keep(chunk)
    }

    /// The stream is over: a last line may do without its break.
    pub(crate) fn finish(
        self,
        mut line: impl FnMut(&[u8]) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        some(&self.partial, &mut line)
    }

    fn keep(&mut self, bytes: &[u8]) -> Result<(), Failure> {
        if self.partial.len() + bytes.len() > WATCH_LINE_BYTES_MAX {
            let what = format!("a line of the watch is longer than {WATCH_LINE_BYTES_MAX} bytes");
            return Err(Failure::Decode(what));
        }
        self.partial.extend_from_slice(bytes);
        Ok(())
    }

    fn clear(&mut self) {
        self.partial.clear();
        self.partial.shrink_to(KEPT_BUFFER_BYTES);
    }
}

fn some(bytes: &[u8], line: &mut impl FnMut(&[u8]) -> Result<(), Failure>) -> Result<(), Failure> {
    if bytes.iter().all(u8::is_ascii_whitespace) { Ok(()) } else { line(bytes) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cut(text: &[u8], step: usize) -> Vec<String> {
        let mut found = Vec::new();
        let mut take = |line: &[u8]| {
            found.push(String::from_utf8_lossy(line).into_owned());
            Ok(())
        };
        let mut lines = Lines::default();
        for chunk in text.chunks(step) {
            lines.feed(chunk, &mut take).unwrap();
        }
        lines.finish(&mut take).unwrap();
        found
    }

    #[test]
    fn lines_are_the_same_wherever_the_chunks_end() {
        let text = b"one\n\ntwo\r\n  \nthree\nfour";
        for step in 1..=text.len() {
            assert_eq!(cut(text, step), ["one", "two\r", "three", "four"], "{step}");
        }
    }

    #[test]
    fn a_line_holds_at_the_limit_and_breaks_above_it() {
        let mut lines = Lines::default();
        let long = vec![b'x'; WATCH_LINE_BYTES_MAX];
        lines.feed(&long, |_| Ok(())).unwrap();
        assert!(matches!(lines.feed(b"x", |_| Ok(())), Err(Failure::Decode(_))));
        let mut taken = 0;
        let take = |line: &[u8]| {
            taken = line.len();
            Ok(())
        };
        lines.feed(b"\n", take).unwrap();
        assert_eq!(taken, WATCH_LINE_BYTES_MAX);
    }
}
