//! The parameters of a query, as Go reads them.

use std::borrow::Cow;
use std::time::Duration;

use crate::Status;
use crate::limits::QUERY_BYTES_MAX;

/// All that have a meaning for lists and watches; others are ignored.
const NAMES: [&str; 12] = [
    "labelSelector",
    "fieldSelector",
    "shardSelector",
    "resourceVersion",
    "resourceVersionMatch",
    "limit",
    "continue",
    "watch",
    "timeoutSeconds",
    "timeout",
    "allowWatchBookmarks",
    "sendInitialEvents",
];

/// Of a parameter that stands twice the first counts.
pub(super) struct Params<'a>([Option<Cow<'a, str>>; NAMES.len()]);

impl<'a> Params<'a> {
    pub(super) fn parse(query: &'a str) -> Result<Self, Status> {
        if query.len() > QUERY_BYTES_MAX {
            let why = format!("the query is longer than {QUERY_BYTES_MAX} bytes");
            return Err(Status::bad_request(why));
        }
        let mut values = [const { None }; NAMES.len()];
        for pair in query.split('&') {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            let name = decode(name);
            let Some(at) = NAMES.iter().position(|known| name.as_deref() == Some(known)) else {
                continue;
            };
            if values[at].is_none() {
                // Go would drop the pair; a selector that is dropped shows what was not asked for.
                let value = decode(value).ok_or_else(|| {
                    let name = NAMES[at];
                    Status::bad_request(format!("{name}: {value:?} is not percent-encoded UTF-8"))
                })?;
                values[at] = Some(value);
            }
        }
        Ok(Self(values))
    }

    fn get(&self, name: &str) -> Option<&str> {
        let at = NAMES.iter().position(|known| *known == name);
        self.0[at.expect("one of the names")].as_deref()
    }

    /// Its text; empty if absent.
    pub(super) fn text(&self, name: &str) -> &str {
        self.get(name).unwrap_or_default()
    }

    /// Yes or no, in all the ways in which Go writes them. A name alone is a yes.
    pub(super) fn flag(&self, name: &str) -> Result<Option<bool>, Status> {
        Ok(Some(match self.get(name) {
            None => return Ok(None),
            Some("1" | "t" | "T" | "true" | "TRUE" | "True" | "") => true,
            Some("0" | "f" | "F" | "false" | "FALSE" | "False") => false,
            Some(other) => return refuse(name, other, "is not a boolean"),
        }))
    }

    pub(super) fn integer(&self, name: &str) -> Result<Option<i64>, Status> {
        self.parsed(name, "is not an integer", |text| text.parse().ok())
    }

    /// A number of seconds; what is not positive counts as absent.
    pub(super) fn seconds(&self, name: &str) -> Result<Option<Duration>, Status> {
        let seconds = self.integer(name)?.and_then(|it| u64::try_from(it).ok());
        Ok(seconds.filter(|&it| it > 0).map(Duration::from_secs))
    }

    /// A duration like `1m30s`; what is not positive counts as absent.
    pub(super) fn duration(&self, name: &str) -> Result<Option<Duration>, Status> {
        let parsed = self.parsed(name, "is not a duration like 30s", duration)?;
        Ok(parsed.filter(|it| !it.is_zero()))
    }

    fn parsed<T>(
        &self,
        name: &str,
        what: &str,
        parse: impl FnOnce(&str) -> Option<T>,
    ) -> Result<Option<T>, Status> {
        let Some(text) = self.get(name) else { return Ok(None) };
        match parse(text) {
            None => refuse(name, text, what),
            some => Ok(some),
        }
    }
}

fn refuse<T>(name: &str, text: &str, what: &str) -> Result<T, Status> {
    Err(Status::bad_request(format!("{name}: {text:?} {what}")))
}

/// Undoes percent-encoding; none if it is broken or does not give UTF-8.
fn decode(text: &str) -> Option<Cow<'_, str>> {
    if !text.contains(['%', '+']) {
        return Some(Cow::Borrowed(text));
    }
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&first, behind)) = rest.split_first() {
        rest = behind;
        bytes.push(match first {
            b'+' => b' ',
            b'%' => {
                let (digits, behind) = rest.split_at_checked(2)?;
                rest = behind;
                let digit = |b: u8| char::from(b).to_digit(16).and_then(|it| u8::try_from(it).ok());
                digit(digits[0])? << 4 | digit(digits[1])?
            }
            other => other,
        });
    }
    String::from_utf8(bytes).ok().map(Cow::Owned)
}

/// A duration as Go writes it: numbers, perhaps with a fraction, each with its unit. Negative ones
/// are zero.
fn duration(text: &str) -> Option<Duration> {
    let negative = text.starts_with('-');
    let mut rest = text.trim_start_matches(['-', '+']);
    if text.len() - rest.len() > 1 || rest.is_empty() {
        return None;
    }
    let mut seconds = 0.0_f64;
    while rest != "0" && !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit() && c != '.')?;
        let (number, behind) = rest.split_at(digits);
        let unit = behind.find(|c: char| c.is_ascii_digit() || c == '.').unwrap_or(behind.len());
        let (unit, behind) = behind.split_at(unit);
        rest = behind;
        let unit = match unit {
            "h" => 3600.0,
            "m" => 60.0,
            "s" => 1.0,
            "ms" => 1e-3,
            "us" | "µs" | "μs" => 1e-6,
            "ns" => 1e-9,
            _ => return None,
        };
        seconds += number.parse::<f64>().ok()? * unit;
    }
    if negative { Some(Duration::ZERO) } else { Duration::try_from_secs_f64(seconds).ok() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percent_encoding_is_undone() {
        for (text, expected) in [
            ("a", Some("a")),
            ("a%20b+c", Some("a b c")),
            ("%c3%A4", Some("ä")),
            ("%2B%26%3d", Some("+&=")),
            ("", Some("")),
            ("%", None),
            ("%2", None),
            ("%zz", None),
            ("%ff", None),
            ("%+1", None),
        ] {
            assert_eq!(decode(text).as_deref(), expected, "{text}");
        }
    }

    #[test]
    fn the_first_of_two_counts_and_unknown_ones_are_ignored() {
        let params = Params::parse("limit=1&limit=x&pretty=%zz&%6cimit=2&&=&watch").unwrap();
        assert_eq!(params.integer("limit").unwrap(), Some(1));
        assert_eq!(params.flag("watch").unwrap(), Some(true));
        assert_eq!(params.text("continue"), "");
    }

    #[test]
    fn durations_are_those_of_go() {
        let ms = |n| Some(Duration::from_millis(n));
        for (text, expected) in [
            ("30s", ms(30_000)),
            ("1m30s", ms(90_000)),
            ("1h", ms(3_600_000)),
            ("1.5s", ms(1500)),
            ("500ms", ms(500)),
            ("+1s", ms(1000)),
            ("0", ms(0)),
            ("-3s", ms(0)),
            ("", None),
            ("3", None),
            ("s", None),
            ("-", None),
            ("--1s", None),
            ("1s2", None),
            ("1..2s", None),
            ("1d", None),
            ("99999999999999999999999h", None),
        ] {
            assert_eq!(duration(text), expected, "{text:?}");
        }
    }

    #[test]
    fn the_query_is_limited() {
        let query = |n: usize| "x".repeat(n);
        assert!(Params::parse(&query(QUERY_BYTES_MAX)).is_ok());
        let long = Params::parse(&query(QUERY_BYTES_MAX + 1)).err().expect("refused");
        assert_eq!(long.code(), 400);
    }
}
