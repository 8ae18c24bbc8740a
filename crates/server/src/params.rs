//! The parameters of a query that are about writes.

use std::borrow::Cow;

use masthead_core::{Freshness, Revision, Status, StatusCause};
use percent_encoding::percent_decode_str;

/// What a write is to do besides writing (W38).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct WriteOptions {
    /// Do everything but store it.
    pub(crate) dry_run: bool,
    pub(crate) field_validation: FieldValidation,
}

/// What happens to members that stand twice.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum FieldValidation {
    Ignore,
    Warn,
    Strict,
}

impl WriteOptions {
    pub(crate) fn from_query(query: &str) -> Result<Self, Status> {
        let dry_run = dry_run(find(query, "dryRun")?.as_deref())?;
        let field_validation = match find(query, "fieldValidation")?.as_deref() {
            None | Some("" | "Warn") => FieldValidation::Warn,
            Some("Ignore") => FieldValidation::Ignore,
            Some("Strict") => FieldValidation::Strict,
            Some(other) => {
                let supported = ["", "Ignore", "Strict", "Warn"];
                return Err(invalid("fieldValidation", other, &supported));
            }
        };
        Ok(Self { dry_run, field_validation })
    }
}

/// `All`, or nothing.
pub(crate) fn dry_run(text: Option<&str>) -> Result<bool, Status> {
    match text {
        None | Some("") => Ok(false),
        Some("All") => Ok(true),
        Some(other) => Err(invalid("dryRun", other, &["All"])),
    }
}

fn invalid(field: &str, value: &str, supported: &[&str]) -> Status {
    let cause = StatusCause::not_supported(field, value, supported);
    Status::invalid("meta.k8s.io", "CreateOptions", "", vec![cause])
}

/// The moment that a GET of one object asks for (W6).
pub(crate) fn freshness(query: &str) -> Result<Freshness, Status> {
    let version = find(query, "resourceVersion")?.unwrap_or_default();
    match &*version {
        "" => Ok(Freshness::MostRecent),
        "0" => Ok(Freshness::Cached),
        text => {
            let revision: Result<Revision, _> = text.parse();
            revision.map(Freshness::NotOlderThan).map_err(|_| {
                Status::bad_request(format!(
                    "invalid resource version: {text:?} is no decimal number"
                ))
            })
        }
    }
}

/// The first value of a parameter.
pub(crate) fn find<'a>(query: &'a str, name: &str) -> Result<Option<Cow<'a, str>>, Status> {
    let pairs = query.split('&').map(|pair| pair.split_once('=').unwrap_or((pair, "")));
    let Some((_, value)) = pairs.into_iter().find(|(key, _)| *key == name) else {
        return Ok(None);
    };
    let spaced: Cow<'a, str> =
        if value.contains('+') { value.replace('+', " ").into() } else { value.into() };
    let decoded = match spaced {
        Cow::Borrowed(text) => percent_decode_str(text).decode_utf8(),
        Cow::Owned(ref text) => {
            percent_decode_str(text).decode_utf8().map(|it| Cow::Owned(it.into_owned()))
        }
    };
    decoded
        .map(Some)
        .map_err(|_| Status::bad_request(format!("{name}: {value:?} is not percent-encoded UTF-8")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn w38_options_of_writes_are_read_or_refused() {
        let read = |query: &str| WriteOptions::from_query(query).map_err(|status| status.code());
        assert!(read("dryRun=All").expect("is known").dry_run);
        assert!(!read("").expect("is known").dry_run);
        assert_eq!(read("dryRun=Some"), Err(422));
        assert_eq!(read("fieldValidation=Loose"), Err(422));
        let strict = read("a=b&fieldValidation=Strict").expect("is known");
        assert_eq!(strict.field_validation, FieldValidation::Strict);
    }

    #[test]
    fn w6_a_resource_version_is_empty_zero_or_a_number() {
        assert_eq!(freshness(""), Ok(Freshness::MostRecent));
        assert_eq!(freshness("resourceVersion=0"), Ok(Freshness::Cached));
        assert_eq!(freshness("resourceVersion=7"), Ok(Freshness::NotOlderThan(Revision(7))));
        assert!(freshness("resourceVersion=x").is_err());
        assert_eq!(find("a=%ff", "a").map_err(|it| it.code()), Err(400));
        assert_eq!(find("a=x+y%20z", "a").expect("is UTF-8").as_deref(), Some("x y z"));
    }
}
