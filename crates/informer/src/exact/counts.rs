//! How many elements the arrays of a document have.

use std::cell::Cell;

use memchr::memchr2;

/// The lengths of all arrays, in the order in which they begin, and which one is next.
pub(super) struct Counts {
    lengths: Vec<u32>,
    next: Cell<usize>,
}

/// An array or an object that has begun.
struct Open {
    /// Which array it is; none for an object.
    array: Option<usize>,
    /// Whether the array has elements.
    filled: bool,
}

impl Counts {
    /// Of JSON. Of anything else it says something, too: a wrong count is a vector of another size.
    pub(super) fn of(text: &str) -> Self {
        let bytes = text.as_bytes();
        let mut lengths: Vec<u32> = Vec::new();
        let mut open: Vec<Open> = Vec::new();
        let mut at = 0;
        while let Some(&byte) = bytes.get(at) {
            at += 1;
            match byte {
                b'[' | b'{' => {
                    note(&mut open, &mut lengths);
                    let array = (byte == b'[').then_some(lengths.len());
                    lengths.extend(array.map(|_| 0));
                    open.push(Open { array, filled: false });
                }
                b']' | b'}' => drop(open.pop()),
                b',' => {
                    if let Some(Open { array: Some(array), .. }) = open.last() {
                        lengths[*array] += 1;
                    }
                }
                b' ' | b'\t' | b'\r' | b'\n' | b':' => {}
                b'"' => {
                    note(&mut open, &mut lengths);
                    at = end_of_string(bytes, at);
                }
                _ => note(&mut open, &mut lengths),
            }
        }
        Self { lengths, next: Cell::new(0) }
    }

    /// The length of the array that begins next.
    pub(super) fn next(&self) -> usize {
        let next = self.next.get();
        self.next.set(next + 1);
        self.lengths.get(next).map_or(0, |length| *length as usize)
    }
}

/// Something stands in the innermost one: the first element has no comma before it.
fn note(open: &mut [Open], lengths: &mut [u32]) {
    if let Some(Open { array: Some(array), filled: filled @ false }) = open.last_mut() {
        *filled = true;
        lengths[*array] += 1;
    }
}

/// Behind the quote that ends a string.
fn end_of_string(bytes: &[u8], mut at: usize) -> usize {
    while let Some(found) = bytes.get(at..).and_then(|rest| memchr2(b'"', b'\\', rest)) {
        at += found + 1;
        if bytes[at - 1] == b'"' {
            return at;
        }
        // What follows the backslash is no end.
        at += 1;
    }
    bytes.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arrays_are_counted_in_the_order_in_which_they_begin() {
        let cases: [(&str, &[u32]); 8] = [
            ("[]", &[0]),
            ("[ 1 ]", &[1]),
            ("[1, [2, 3], []]", &[3, 2, 0]),
            (r#"{"a": {"b": 1, "c": 2}, "d": [{"e": 1, "f": [1, 2]}, {}]}"#, &[2, 2]),
            (r#"["a,b", "[", "]\"],", "\\"]"#, &[4]),
            (r#"{"k,": ["v"]}"#, &[1]),
            ("[[[1]]]", &[1, 1, 1]),
            (r#"["\"#, &[1]),
        ];
        for (text, lengths) in cases {
            let counts = Counts::of(text);
            assert_eq!(counts.lengths, lengths, "{text}");
        }
    }
}
