//! Lists and watch lines taken apart: where the objects are, and what is around them.

use std::ops::Range;

use super::INITIAL_EVENTS_END;
use crate::EventType;
use crate::json::{JsonError, Scanner, TOO_DEEP, unescape};
use crate::limits::{LIST_BYTES_MAX, LIST_ITEMS_MAX, WATCH_LINE_BYTES_MAX};

/// A page of a list, as a server answered it.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct ListPage {
    /// Such as `PodList`; empty if absent. A `Status` has no items and is refused before.
    pub kind: String,
    /// `metadata.resourceVersion` as it stands there; empty if absent.
    pub resource_version: String,
    /// The token for the next page; empty on the last one.
    pub continue_token: String,
    /// `metadata.remainingItemCount`, if the server told.
    pub remaining: Option<u64>,
    /// Where in the page each item is.
    pub items: Vec<Range<usize>>,
}

/// One line of a watch, as a server sent it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct WatchLine {
    /// What happened.
    pub event: EventType,
    /// Where in the line the object is.
    pub object: Range<usize>,
}

/// What a `BOOKMARK` event's object says.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Bookmark {
    /// `metadata.resourceVersion` as it stands there.
    pub resource_version: String,
    /// Whether the bookmark ends the initial events (W21).
    pub initial_events_end: bool,
}

/// Why a text is no list or watch line.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SplitError {
    /// The text is cut off, is not JSON or has another shape.
    #[error("not valid at byte {at}: {what}")]
    Json {
        /// What was found or missing.
        what: &'static str,
        /// Offset in the text.
        at: usize,
    },
    /// The text is JSON as far as it was read, and nested deeper than what is parsed.
    #[error("nested too deeply at byte {at}")]
    TooDeep {
        /// Offset in the text.
        at: usize,
    },
    /// The text is not UTF-8.
    #[error("not UTF-8 at byte {at}")]
    Utf8 {
        /// Offset in the text.
        at: usize,
    },
    /// A member that must be there is not.
    #[error("no member {member:?}")]
    Missing {
        /// Its name.
        member: &'static str,
    },
    /// An event of a type that does not exist.
    #[error("unknown event type {found:?}")]
    EventType {
        /// What stands there.
        found: String,
    },
    /// Longer or with more parts than the named limit.
    #[error("more than {limit} {what}")]
    TooLarge {
        /// What there is too much of.
        what: &'static str,
        /// The limit that was passed.
        limit: usize,
    },
}

impl From<JsonError> for SplitError {
    fn from(JsonError { what, at }: JsonError) -> Self {
        if what == TOO_DEEP { Self::TooDeep { at } } else { Self::Json { what, at } }
    }
}

impl SplitError {
    /// Returns `true` if the text was sent as it is: what cannot be used is one event or one object, and
    /// what follows it can be read. Otherwise the text is cut off or damaged.
    pub const fn is_of_one_item(&self) -> bool {
        matches!(self, Self::TooDeep { .. } | Self::Missing { .. } | Self::EventType { .. })
    }
}

type Scan<T> = Result<T, JsonError>;

impl ListPage {
    /// Finds the items of a page, in one pass. Members may stand in any order; of a member that
    /// stands twice the last counts.
    ///
    /// ```
    /// use masthead_core::ListPage;
    ///
    /// let text = br#"{"kind":"PodList","metadata":{"resourceVersion":"9"},"items":[{"a":1},{}]}"#;
    /// let page = ListPage::split(text)?;
    /// assert_eq!(page.resource_version, "9");
    /// assert_eq!(&text[page.items[0].clone()], br#"{"a":1}"#);
    /// # Ok::<(), masthead_core::SplitError>(())
    /// ```
    pub fn split(page: &[u8]) -> Result<Self, SplitError> {
        split_page(page, LIST_BYTES_MAX, LIST_ITEMS_MAX)
    }
}

fn split_page(page: &[u8], bytes: usize, items: usize) -> Result<ListPage, SplitError> {
    let text = checked(page, bytes)?;
    let mut found = ListPage::default();
    let (mut saw_items, mut too_many) = (false, false);
    let mut scanner = Scanner::around(text, 2);
    let walked = scanner.object(|scanner, key| {
        match key.span.of(text) {
            "kind" => found.kind = string(scanner)?,
            "metadata" => found.metadata(scanner)?,
            "items" => {
                saw_items = true;
                found.items.clear();
                // What Go makes of no items at all.
                if scanner.null()? {
                    return Ok(());
                }
                scanner.array(|scanner| {
                    too_many = found.items.len() == items;
                    let at = object(scanner)?;
                    if too_many {
                        return Err(JsonError { what: "too many items", at: at.start });
                    }
                    found.items.push(at);
                    Ok(())
                })?;
            }
            _ => drop(scanner.skip()?),
        }
        Ok(())
    });
    if too_many {
        return Err(SplitError::TooLarge { what: "items", limit: items });
    }
    walked.and_then(|_| scanner.end())?;
    if saw_items { Ok(found) } else { Err(SplitError::Missing { member: "items" }) }
}

impl ListPage {
    fn metadata(&mut self, scanner: &mut Scanner<'_>) -> Scan<()> {
        if scanner.null()? {
            return Ok(());
        }
        let text = scanner.text();
        scanner.object(|scanner, key| {
            match key.span.of(text) {
                "resourceVersion" => self.resource_version = string(scanner)?,
                "continue" => self.continue_token = string(scanner)?,
                "remainingItemCount" => self.remaining = scanner.skip()?.of(text).parse().ok(),
                _ => drop(scanner.skip()?),
            }
            Ok(())
        })?;
        Ok(())
    }
}

impl WatchLine {
    /// Finds type and object of a line, with or without its line break.
    ///
    /// ```
    /// use masthead_core::{EventType, WatchLine};
    ///
    /// let line = b"{\"type\":\"ADDED\",\"object\":{\"kind\":\"Pod\"}}\n";
    /// let split = WatchLine::split(line)?;
    /// assert_eq!(split.event, EventType::Added);
    /// assert_eq!(&line[split.object], br#"{"kind":"Pod"}"#);
    /// # Ok::<(), masthead_core::SplitError>(())
    /// ```
    pub fn split(line: &[u8]) -> Result<Self, SplitError> {
        let text = checked(line, WATCH_LINE_BYTES_MAX)?;
        let (mut event, mut found) = (None, None);
        let mut scanner = Scanner::around(text, 1);
        scanner.object(|scanner, key| {
            match key.span.of(text) {
                "type" => event = Some(string(scanner)?),
                "object" => found = Some(object(scanner)?),
                _ => drop(scanner.skip()?),
            }
            Ok(())
        })?;
        scanner.end()?;
        let event = event.ok_or(SplitError::Missing { member: "type" })?;
        let event = match event.as_str() {
            "ADDED" => EventType::Added,
            "MODIFIED" => EventType::Modified,
            "DELETED" => EventType::Deleted,
            "BOOKMARK" => EventType::Bookmark,
            "ERROR" => EventType::Error,
            _ => return Err(SplitError::EventType { found: event }),
        };
        Ok(Self { event, object: found.ok_or(SplitError::Missing { member: "object" })? })
    }
}

impl Bookmark {
    /// Reads the object of a `BOOKMARK` event, which is no whole object and has no name.
    pub fn parse(object: &[u8]) -> Result<Self, SplitError> {
        let text = checked(object, WATCH_LINE_BYTES_MAX)?;
        let mut found = Self::default();
        let mut scanner = Scanner::new(text);
        scanner.object(|scanner, key| match key.span.of(text) {
            "metadata" if !scanner.null()? => found.metadata(scanner),
            "metadata" => Ok(()),
            _ => scanner.skip().map(drop),
        })?;
        scanner.end()?;
        if found.resource_version.is_empty() {
            return Err(SplitError::Missing { member: "metadata.resourceVersion" });
        }
        Ok(found)
    }

    fn metadata(&mut self, scanner: &mut Scanner<'_>) -> Scan<()> {
        let text = scanner.text();
        scanner.object(|scanner, key| match key.span.of(text) {
            "resourceVersion" => {
                self.resource_version = string(scanner)?;
                Ok(())
            }
            "annotations" if !scanner.null()? => {
                scanner.object(|scanner, key| {
                    if key.span.of(text) == INITIAL_EVENTS_END {
                        self.initial_events_end = string(scanner)? == "true";
                        return Ok(());
                    }
                    scanner.skip().map(drop)
                })?;
                Ok(())
            }
            "annotations" => Ok(()),
            _ => scanner.skip().map(drop),
        })?;
        Ok(())
    }
}

fn checked(bytes: &[u8], limit: usize) -> Result<&str, SplitError> {
    if bytes.len() > limit {
        return Err(SplitError::TooLarge { what: "bytes", limit });
    }
    str::from_utf8(bytes).map_err(|e| SplitError::Utf8 { at: e.valid_up_to() })
}

/// A string's value; empty for `null`.
fn string(scanner: &mut Scanner<'_>) -> Scan<String> {
    if scanner.null()? {
        return Ok(String::new());
    }
    let found = scanner.string()?;
    let content = found.span.of(scanner.text());
    if !found.escaped {
        return Ok(content.to_owned());
    }
    let at = found.span.range().start;
    unescape(content).ok_or(JsonError { what: "escapes name no character", at })
}

/// Passes over an object and says where it was.
fn object(scanner: &mut Scanner<'_>) -> Scan<Range<usize>> {
    scanner.object(|scanner, _| scanner.skip().map(drop)).map(crate::json::Span::range)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_hold_at_n_and_break_at_n_plus_one() {
        let page = |n: usize| format!(r#"{{"items":[{}]}}"#, vec!["{}"; n].join(","));
        let bytes = page(3).len();
        assert_eq!(split_page(page(3).as_bytes(), bytes, 3).unwrap().items.len(), 3);
        let items = split_page(page(4).as_bytes(), 1000, 3);
        assert_eq!(items, Err(SplitError::TooLarge { what: "items", limit: 3 }));
        let long = split_page(page(3).as_bytes(), bytes - 1, 3);
        assert_eq!(long, Err(SplitError::TooLarge { what: "bytes", limit: bytes - 1 }));
        let event = r#"{"type":"ADDED","object":{}}"#;
        let line = |n: usize| event.to_owned() + &" ".repeat(n - event.len());
        assert!(WatchLine::split(line(WATCH_LINE_BYTES_MAX).as_bytes()).is_ok());
        let long = WatchLine::split(line(WATCH_LINE_BYTES_MAX + 1).as_bytes());
        assert!(matches!(long, Err(SplitError::TooLarge { .. })));
    }
}
