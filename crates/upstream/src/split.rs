//! The items of a list, cut out as it arrives.

use masthead_core::ListPage;
use masthead_core::limits::LIST_ITEMS_MAX;
use masthead_reflector::Failure;
use memchr::memchr2;

use crate::limits::{ENVELOPE_BYTES_MAX, ITEM_BYTES_MAX, KEPT_BUFFER_BYTES};

/// Cuts a list into its items without waiting for its end. Only an item that lies across two chunks is
/// copied; what stands around the items is kept, with none between the brackets, and read at the end.
///
/// It follows strings and brackets and no more: whoever takes an item parses it, and the envelope is
/// parsed by [`ListPage::split`]. So what is no JSON is found out there.
pub(crate) struct Splitter {
    place: Place,
    nesting: Nesting,
    envelope: Vec<u8>,
    /// The beginning of an item whose end has not come.
    partial: Vec<u8>,
    items: usize,
    saw_items: bool,
    item_bytes_max: usize,
}

/// Where in the list the next byte stands.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    Envelope,
    /// Right behind the bracket that opens the items.
    First,
    /// Behind an item.
    Behind,
    /// Behind a comma.
    Next,
    Item,
}

impl Splitter {
    pub(crate) fn new() -> Self {
        Self::with_item_bytes_max(ITEM_BYTES_MAX)
    }

    fn with_item_bytes_max(item_bytes_max: usize) -> Self {
        Self {
            place: Place::Envelope,
            nesting: Nesting::default(),
            envelope: Vec::new(),
            partial: Vec::new(),
            items: 0,
            saw_items: false,
            item_bytes_max,
        }
    }

    /// Hands out every item that a chunk completes.
    pub(crate) fn feed(
        &mut self,
        mut chunk: &[u8],
        mut item: impl FnMut(&[u8]) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        while !chunk.is_empty() {
            let used = match self.place {
                Place::Envelope => self.feed_envelope(chunk)?,
                Place::Item => self.feed_item(chunk, &mut item)?,
                Place::First | Place::Behind | Place::Next => self.feed_between(chunk)?,
            };
            chunk = &chunk[used..];
        }
        Ok(())
    }

    /// The list is over: what it says of itself.
    pub(crate) fn finish(self) -> Result<ListPage, Failure> {
        if self.place != Place::Envelope {
            return Err(broken("the list is cut off"));
        }
        ListPage::split(&self.envelope).map_err(|error| Failure::Decode(error.to_string()))
    }

    fn feed_envelope(&mut self, chunk: &[u8]) -> Result<usize, Failure> {
        let mut used = 0;
        for &byte in chunk {
            used += 1;
            if self.envelope.len() == ENVELOPE_BYTES_MAX {
                return Err(broken("there is more around the items than a list may have"));
            }
            let opens = byte == b'[' && self.nesting.is_member() && names_items(&self.envelope);
            self.envelope.push(byte);
            if opens {
                if std::mem::replace(&mut self.saw_items, true) {
                    return Err(broken("the list has its items twice"));
                }
                self.place = Place::First;
                break;
            }
            self.nesting.step(byte);
        }
        Ok(used)
    }

    fn feed_between(&mut self, chunk: &[u8]) -> Result<usize, Failure> {
        let space = chunk.iter().take_while(|byte| b" \t\r\n".contains(byte)).count();
        let Some(&byte) = chunk.get(space) else { return Ok(space) };
        let mut used = space + 1;
        self.place = match (self.place, byte) {
            (Place::First | Place::Behind, b']') => {
                self.envelope.push(b']');
                Place::Envelope
            }
            (Place::Behind, b',') => Place::Next,
            (Place::First | Place::Next, b'{') if self.items == LIST_ITEMS_MAX => {
                return Err(broken("the list has more items than a page may have"));
            }
            (Place::First | Place::Next, b'{') => {
                // The brace is the item's own.
                used -= 1;
                self.nesting = Nesting::default();
                Place::Item
            }
            _ => return Err(broken("the items of the list are not objects with commas between")),
        };
        if self.place == Place::Envelope {
            self.nesting = Nesting { depth: 1, ..Nesting::default() };
        }
        Ok(used)
    }

    fn feed_item(
        &mut self,
        chunk: &[u8],
        item: &mut impl FnMut(&[u8]) -> Result<(), Failure>,
    ) -> Result<usize, Failure> {
        let end = self.nesting.close(chunk);
        let used = end.unwrap_or(chunk.len());
        if self.partial.len() + used > self.item_bytes_max {
            let limit = self.item_bytes_max;
            return Err(Failure::Decode(format!("an item is longer than {limit} bytes")));
        }
        let whole = end.is_some();
        if whole && self.partial.is_empty() {
            item(&chunk[..used])?;
        } else {
            self.partial.extend_from_slice(&chunk[..used]);
            if whole {
                item(&self.partial)?;
                self.partial.clear();
                self.partial.shrink_to(KEPT_BUFFER_BYTES);
            }
        }
        if whole {
            self.items += 1;
            self.place = Place::Behind;
        }
        Ok(used)
    }
}

fn broken(what: &str) -> Failure {
    Failure::Decode(what.to_owned())
}

/// Does the text end with the key `"items"` and its colon? A quote inside of a string has a backslash
/// before it, so what stands before this one tells that it opens a key.
fn names_items(envelope: &[u8]) -> bool {
    let before = || {
        let key = envelope.trim_ascii_end().strip_suffix(b":")?.trim_ascii_end();
        key.strip_suffix(b"\"items\"")?.trim_ascii_end().last().copied()
    };
    matches!(before(), Some(b'{' | b','))
}

/// Brackets and strings, followed over chunks.
#[derive(Clone, Copy, Default)]
struct Nesting {
    depth: u32,
    string: bool,
    escape: bool,
}

impl Nesting {
    /// Returns `true` between the members of the outermost object.
    fn is_member(self) -> bool {
        self.depth == 1 && !self.string
    }

    fn step(&mut self, byte: u8) {
        match (self.string, byte) {
            (true, _) if self.escape => self.escape = false,
            (true, b'\\') => self.escape = true,
            (_, b'"') => self.string = !self.string,
            (false, b'{' | b'[') => self.depth = self.depth.saturating_add(1),
            (false, b'}' | b']') => self.depth = self.depth.saturating_sub(1),
            _ => {}
        }
    }

    /// Up to behind the bracket that closes the outermost one; none if it is not in here.
    fn close(&mut self, bytes: &[u8]) -> Option<usize> {
        let mut at = if self.string { self.leave_string(bytes, 0)? } else { 0 };
        while let Some(byte) = bytes.get(at) {
            at += 1;
            match byte {
                b'"' => at = self.leave_string(bytes, at)?,
                b'{' | b'[' => self.depth = self.depth.saturating_add(1),
                b'}' | b']' => {
                    self.depth = self.depth.saturating_sub(1);
                    if self.depth == 0 {
                        return Some(at);
                    }
                }
                _ => {}
            }
        }
        None
    }

    /// From inside of a string to behind its end; none if that is not in here.
    fn leave_string(&mut self, bytes: &[u8], mut at: usize) -> Option<usize> {
        self.string = true;
        loop {
            if self.escape {
                bytes.get(at)?;
                (self.escape, at) = (false, at + 1);
            }
            at += 1 + find_special(&bytes[at..])?;
            if bytes[at - 1] == b'"' {
                self.string = false;
                return Some(at);
            }
            self.escape = true;
        }
    }
}

/// The first quote or backslash. Most strings are short, and not worth a call.
#[inline]
fn find_special(bytes: &[u8]) -> Option<usize> {
    let special = |byte: &u8| matches!(byte, b'"' | b'\\');
    let near = bytes.len().min(SHORT_STRING);
    match bytes[..near].iter().position(special) {
        None => memchr2(b'"', b'\\', &bytes[near..]).map(|at| near + at),
        found => found,
    }
}

/// So many bytes are looked at one by one before the search in blocks begins.
const SHORT_STRING: usize = 16;

#[cfg(test)]
mod tests;
