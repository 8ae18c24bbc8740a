//! Which encoding an answer has, and which a body came in (W23).

use http::HeaderMap;
use http::header::{ACCEPT, ACCEPT_ENCODING, CONTENT_TYPE};
use masthead_core::{Projection, Status};

use crate::document::Format;

/// How an answer is written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Encoding {
    pub(crate) format: Format,
    pub(crate) projection: Projection,
}

impl Encoding {
    pub(crate) const JSON: Self = Self { format: Format::Json, projection: Projection::Whole };

    pub(crate) fn content_type(self) -> &'static str {
        match self.format {
            Format::Json => "application/json",
            Format::Yaml => "application/yaml",
        }
    }
}

/// The types that are served, for the answer to everybody else.
const SERVED: [&str; 2] = ["application/json", "application/yaml"];

/// The first clause of `Accept` that can be served.
///
/// Clauses without a projection that we know are passed over: a client that asks for a Table, or
/// else for JSON, gets JSON.
pub(crate) fn accept(headers: &HeaderMap, watch: bool) -> Result<Encoding, Status> {
    let mut clauses = headers.get_all(ACCEPT).iter().filter_map(|it| it.to_str().ok()).peekable();
    if clauses.peek().is_none() {
        return Ok(Encoding::JSON);
    }
    let clauses = clauses.flat_map(|it| it.split(',')).filter(|it| !it.trim().is_empty());
    let found = clauses.filter_map(encoding).find(|it| !(watch && it.format == Format::Yaml));
    let served = if watch { &SERVED[..1] } else { &SERVED[..] };
    found.ok_or_else(|| Status::not_acceptable(served))
}

fn encoding(clause: &str) -> Option<Encoding> {
    let mut parts = clause.split(';').map(str::trim);
    let format = match parts.next()? {
        "application/json" | "application/*" | "*/*" => Format::Json,
        "application/yaml" => Format::Yaml,
        _ => return None,
    };
    let (mut what, mut group, mut version) = ("", "", "");
    for (name, value) in parts.filter_map(|part| part.split_once('=')) {
        match name.trim() {
            "as" => what = value.trim(),
            "g" => group = value.trim(),
            "v" => version = value.trim(),
            "q" if value.trim().parse() == Ok(0.0) => return None,
            _ => {}
        }
    }
    let projection = match what {
        "" => Projection::Whole,
        "PartialObjectMetadata" | "PartialObjectMetadataList"
            if group == "meta.k8s.io" && version == "v1" =>
        {
            Projection::Metadata
        }
        _ => return None,
    };
    Some(Encoding { format, projection })
}

/// Returns `true` if the client takes a compressed answer (W24).
pub(crate) fn takes_gzip(headers: &HeaderMap) -> bool {
    let values = headers.get_all(ACCEPT_ENCODING).iter().filter_map(|it| it.to_str().ok());
    values.flat_map(|it| it.split(',')).any(|clause| {
        let mut parts = clause.split(';').map(str::trim);
        let named = parts.next().is_some_and(|it| it.eq_ignore_ascii_case("gzip"));
        named && !parts.any(|it| it.strip_prefix("q=").is_some_and(|q| q.parse() == Ok(0.0)))
    })
}

/// The media type of a body, without its parameters; JSON if none is named.
pub(crate) fn content_type(headers: &HeaderMap) -> Result<String, Status> {
    let Some(value) = headers.get(CONTENT_TYPE) else { return Ok(SERVED[0].to_owned()) };
    let text = value.to_str().map_err(|_| Status::unsupported_media_type(&SERVED))?;
    let media = text.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    Ok(if media.is_empty() { SERVED[0].to_owned() } else { media })
}

/// How a body that is an object is written.
pub(crate) fn body_format(headers: &HeaderMap) -> Result<Format, Status> {
    match content_type(headers)?.as_str() {
        "application/json" => Ok(Format::Json),
        "application/yaml" | "text/yaml" | "application/x-yaml" => Ok(Format::Yaml),
        _ => Err(Status::unsupported_media_type(&SERVED)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ask(accept_header: &str, watch: bool) -> Result<Encoding, u16> {
        let mut headers = HeaderMap::new();
        headers.insert(ACCEPT, accept_header.parse().expect("is a header"));
        accept(&headers, watch).map_err(|status| status.code())
    }

    #[test]
    fn w23_clauses_are_tried_in_order() {
        let table = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json";
        let metadata = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1";
        let partial = Encoding { projection: Projection::Metadata, ..Encoding::JSON };
        let yaml = Encoding { format: Format::Yaml, ..Encoding::JSON };
        assert_eq!(ask(table, false), Ok(Encoding::JSON));
        assert_eq!(ask(metadata, true), Ok(partial));
        assert_eq!(ask("application/vnd.kubernetes.protobuf, */*", false), Ok(Encoding::JSON));
        assert_eq!(ask("application/yaml", false), Ok(yaml));
        assert_eq!(ask("application/yaml", true), Err(406));
        assert_eq!(ask("application/yaml, application/json", true), Ok(Encoding::JSON));
        assert_eq!(ask("text/html", false), Err(406));
        assert_eq!(ask("application/json;q=0", false), Err(406));
        assert_eq!(accept(&HeaderMap::new(), true), Ok(Encoding::JSON));
    }

    #[test]
    fn w24_gzip_is_used_only_where_it_is_asked_for() {
        let takes = |value: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(ACCEPT_ENCODING, value.parse().expect("is a header"));
            takes_gzip(&headers)
        };
        assert!(takes("gzip") && takes("deflate, GZIP;q=0.5"));
        assert!(!takes("identity") && !takes("gzip;q=0"));
    }
}
