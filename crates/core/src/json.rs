//! A JSON scanner that finds where things are and builds nothing.
//!
//! It accepts exactly RFC 8259 (checked against `serde_json` by property tests), nested no deeper than
//! [`JSON_DEPTH_MAX`], and gives out [`Span`]s of the text instead of values.

use crate::limits::JSON_DEPTH_MAX;

/// What a [`JsonError`] says of a text that is nested deeper than [`JSON_DEPTH_MAX`].
pub(crate) const TOO_DEEP: &str = "nested too deeply";

/// A range of bytes in a text.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct Span {
    pub(crate) start: u32,
    pub(crate) len: u32,
}

impl Span {
    pub(crate) fn new(start: usize, end: usize) -> Self {
        let fits = |n: usize| u32::try_from(n).expect("texts are limited below 4 GiB");
        Self { start: fits(start), len: fits(end - start) }
    }

    pub(crate) const fn range(self) -> std::ops::Range<usize> {
        self.start as usize..(self.start + self.len) as usize
    }

    pub(crate) fn of(self, text: &str) -> &str {
        &text[self.range()]
    }
}

/// A string's content between its quotes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Str {
    pub(crate) span: Span,
    /// It has escapes: the content is not the string's value as it stands.
    pub(crate) escaped: bool,
}

/// What is wrong with a JSON text, and where.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct JsonError {
    pub(crate) what: &'static str,
    pub(crate) at: usize,
}

pub(crate) struct Scanner<'a> {
    text: &'a str,
    at: usize,
    depth: usize,
    depth_max: usize,
}

type Result<T, E = JsonError> = std::result::Result<T, E>;

impl<'a> Scanner<'a> {
    pub(crate) fn new(text: &'a str) -> Self {
        Self::around(text, 0)
    }

    /// For a text that has objects this many levels inside: each may be as deep as one that stands
    /// alone.
    pub(crate) fn around(text: &'a str, levels: usize) -> Self {
        Self { text, at: 0, depth: 0, depth_max: JSON_DEPTH_MAX + levels }
    }

    pub(crate) fn text(&self) -> &'a str {
        self.text
    }

    fn fail<T>(&self, what: &'static str) -> Result<T> {
        Err(JsonError { what, at: self.at })
    }

    fn byte(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    /// Skips white space and shows the next byte.
    pub(crate) fn peek(&mut self) -> Option<u8> {
        while let Some(b' ' | b'\n' | b'\r' | b'\t') = self.byte() {
            self.at += 1;
        }
        self.byte()
    }

    fn expect(&mut self, byte: u8, what: &'static str) -> Result<()> {
        if self.peek() != Some(byte) {
            return self.fail(what);
        }
        self.at += 1;
        Ok(())
    }

    /// Nothing but white space may follow.
    pub(crate) fn end(&mut self) -> Result<()> {
        if self.peek().is_some() { self.fail("text after the value") } else { Ok(()) }
    }

    fn deeper(&mut self) -> Result<()> {
        if self.depth == self.depth_max {
            return self.fail(TOO_DEEP);
        }
        self.depth += 1;
        Ok(())
    }

    /// Walks an object; `member` gets each key and must consume the value. Returns its span.
    pub(crate) fn object(
        &mut self,
        mut member: impl FnMut(&mut Self, Str) -> Result<()>,
    ) -> Result<Span> {
        self.expect(b'{', "expected an object")?;
        let start = self.at - 1;
        self.deeper()?;
        if self.peek() == Some(b'}') {
            self.at += 1;
        } else {
            loop {
                if self.peek() != Some(b'"') {
                    return self.fail("expected a key");
                }
                let key = self.string()?;
                self.expect(b':', "expected ':'")?;
                member(self, key)?;
                match self.peek() {
                    Some(b',') => self.at += 1,
                    Some(b'}') => break self.at += 1,
                    _ => return self.fail("expected ',' or '}'"),
                }
            }
        }
        self.depth -= 1;
        Ok(Span::new(start, self.at))
    }

    /// Walks an array; `item` must consume each element.
    pub(crate) fn array(&mut self, mut item: impl FnMut(&mut Self) -> Result<()>) -> Result<()> {
        self.expect(b'[', "expected an array")?;
        self.deeper()?;
        if self.peek() == Some(b']') {
            self.at += 1;
        } else {
            loop {
                item(self)?;
                match self.peek() {
                    Some(b',') => self.at += 1,
                    Some(b']') => break self.at += 1,
                    _ => return self.fail("expected ',' or ']'"),
                }
            }
        }
        self.depth -= 1;
        Ok(())
    }

    /// Passes over any value and says where it was.
    pub(crate) fn skip(&mut self) -> Result<Span> {
        let next = self.peek();
        let start = self.at;
        match next {
            Some(b'{') => return self.object(|scanner, _| scanner.skip().map(drop)),
            Some(b'[') => self.array(|scanner| scanner.skip().map(drop))?,
            Some(b'"') => drop(self.string()?),
            Some(b'-' | b'0'..=b'9') => self.number()?,
            Some(b't') => self.literal("true")?,
            Some(b'f') => self.literal("false")?,
            Some(b'n') => self.literal("null")?,
            _ => return self.fail("expected a value"),
        }
        Ok(Span::new(start, self.at))
    }

    /// Passes over `null` if that is the value.
    pub(crate) fn null(&mut self) -> Result<bool> {
        if self.peek() != Some(b'n') {
            return Ok(false);
        }
        self.literal("null").map(|()| true)
    }

    fn literal(&mut self, word: &'static str) -> Result<()> {
        if !self.text.as_bytes()[self.at..].starts_with(word.as_bytes()) {
            return self.fail("expected a value");
        }
        self.at += word.len();
        Ok(())
    }

    fn digits(&mut self) -> Result<()> {
        let start = self.at;
        while let Some(b'0'..=b'9') = self.byte() {
            self.at += 1;
        }
        if self.at == start { self.fail("expected a digit") } else { Ok(()) }
    }

    fn number(&mut self) -> Result<()> {
        if self.byte() == Some(b'-') {
            self.at += 1;
        }
        if self.byte() == Some(b'0') {
            self.at += 1;
        } else {
            self.digits()?;
        }
        if self.byte() == Some(b'.') {
            self.at += 1;
            self.digits()?;
        }
        if let Some(b'e' | b'E') = self.byte() {
            self.at += 1;
            if let Some(b'+' | b'-') = self.byte() {
                self.at += 1;
            }
            self.digits()?;
        }
        Ok(())
    }

    /// Passes over a string; the scanner stands at its quote or at white space before it.
    pub(crate) fn string(&mut self) -> Result<Str> {
        self.expect(b'"', "expected a string")?;
        let start = self.at;
        let mut escaped = false;
        loop {
            self.at += plain_prefix(&self.text.as_bytes()[self.at..]);
            match self.byte() {
                Some(b'"') => break,
                Some(b'\\') => {
                    escaped = true;
                    self.escape()?;
                }
                Some(_) => return self.fail("control character in a string"),
                None => return self.fail("string without an end"),
            }
        }
        let span = Span::new(start, self.at);
        self.at += 1;
        Ok(Str { span, escaped })
    }

    fn escape(&mut self) -> Result<()> {
        self.at += 1;
        match self.byte() {
            Some(b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't') => self.at += 1,
            Some(b'u') => {
                let hex = self.text.as_bytes().get(self.at + 1..self.at + 5);
                if !hex.is_some_and(|hex| hex.iter().all(u8::is_ascii_hexdigit)) {
                    return self.fail("expected four hexadecimal digits");
                }
                self.at += 5;
            }
            _ => return self.fail("unknown escape"),
        }
        Ok(())
    }
}

/// How many bytes from the start need no look: neither quote, backslash nor control character.
/// Eight at a time, since bodies are mostly strings.
fn plain_prefix(bytes: &[u8]) -> usize {
    const ONES: u64 = 0x0101_0101_0101_0101;
    const HIGH: u64 = 0x8080_8080_8080_8080;
    // The high bit of each byte that is zero (exact for the lowest such byte, which is all we use).
    let zero = |word: u64| word.wrapping_sub(ONES) & !word & HIGH;
    let mut at = 0;
    for chunk in bytes.chunks_exact(8) {
        let word = u64::from_le_bytes(chunk.try_into().expect("chunks of eight"));
        let control = word.wrapping_sub(ONES * 0x20) & !word & HIGH;
        let quote = zero(word ^ (ONES * u64::from(b'"')));
        let backslash = zero(word ^ (ONES * u64::from(b'\\')));
        let found = control | quote | backslash;
        if found != 0 {
            return at + (found.trailing_zeros() / 8) as usize;
        }
        at += 8;
    }
    let special = |&b: &u8| b == b'"' || b == b'\\' || b < 0x20;
    at + bytes[at..].iter().position(special).unwrap_or(bytes.len() - at)
}

/// The value of a string whose content has escapes; none if they name no characters.
pub(crate) fn unescape(content: &str) -> Option<String> {
    serde_json::from_str(&format!("\"{content}\"")).ok()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn accepts(text: &str) -> bool {
        let mut scanner = Scanner::new(text);
        scanner.skip().and_then(|_| scanner.end()).is_ok()
    }

    #[test]
    fn depth_holds_at_the_limit_and_breaks_above_it() {
        let nested = |n: usize| "[".repeat(n) + &"]".repeat(n);
        assert!(accepts(&nested(JSON_DEPTH_MAX)));
        assert!(!accepts(&nested(JSON_DEPTH_MAX + 1)));
    }

    #[test]
    fn plain_prefix_stops_at_every_special_byte_at_every_offset() {
        for length in 0..40 {
            for at in 0..length {
                for special in [b'"', b'\\', 0, 0x1f] {
                    let mut text = vec![b'a'; length];
                    text[at] = special;
                    assert_eq!(plain_prefix(&text), at);
                }
            }
            assert_eq!(plain_prefix(&vec![0xc3; length]), length);
            assert_eq!(plain_prefix(&vec![b' '; length]), length);
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2000))]

        #[test]
        fn accepts_what_serde_json_accepts(text in r#"[\[\]{}",:0-9a-ftrunls\\. eE+-]{0,24}"#) {
            let theirs = serde_json::from_str::<serde::de::IgnoredAny>(&text).is_ok();
            prop_assert_eq!(accepts(&text), theirs, "{}", text);
        }

        #[test]
        fn accepts_every_value_that_serde_json_prints(text in json_value()) {
            prop_assert!(accepts(&text), "{}", text);
            if !text.is_empty() {
                let cut = &text[..text.len() - 1];
                let theirs = serde_json::from_str::<serde::de::IgnoredAny>(cut).is_ok();
                prop_assert_eq!(accepts(cut), theirs, "{}", cut);
            }
        }
    }

    fn json_value() -> impl Strategy<Value = String> {
        let leaf = prop_oneof![
            Just(serde_json::Value::Null),
            any::<bool>().prop_map(Into::into),
            any::<i64>().prop_map(Into::into),
            any::<f64>().prop_map(Into::into),
            "\\PC{0,20}|[\"\\\\\u{0}-\u{20}]{0,6}".prop_map(Into::into),
        ];
        leaf.prop_recursive(4, 32, 6, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..6).prop_map(Into::into),
                prop::collection::vec(("\\PC{0,8}", inner), 0..6)
                    .prop_map(|members| serde_json::Value::Object(members.into_iter().collect())),
            ]
        })
        .prop_map(|value| value.to_string())
    }
}
