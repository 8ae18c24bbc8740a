//! From the path of a URL to what is meant (W1).

use std::sync::Arc;

use http::Method;
use masthead_core::{Query, Status};
use percent_encoding::percent_decode_str;

use crate::catalog::Kinds;
use crate::resources::Kind;

/// What a path names.
#[derive(Debug)]
pub(crate) enum Route {
    /// `/livez`, `/readyz`, `/healthz`.
    Health(String),
    Version,
    Metrics,
    Statz,
    /// `/api` and `/apis`.
    Groups {
        legacy: bool,
    },
    /// `/apis/{group}`.
    Group(String),
    /// `/api/v1` and `/apis/{group}/{version}`.
    GroupVersion(String, String),
    /// `/openapi/v3`, and the document of a group and version below it.
    OpenApi(Option<String>),
    /// Objects.
    Resource(Target),
}

/// A collection or an object of it.
#[derive(Debug)]
pub(crate) struct Target {
    pub(crate) kind: Arc<Kind>,
    /// Empty for cluster-scoped resources and for collections over all namespaces.
    pub(crate) namespace: String,
    /// Empty for collections.
    pub(crate) name: String,
    pub(crate) subresource: Option<Subresource>,
    /// Came by the old `/watch/` path (W1).
    pub(crate) watch_path: bool,
}

/// A part of an object with an address of its own (W37).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Subresource {
    Status,
    Scale,
    /// Of namespaces only.
    Finalize,
}

impl Subresource {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Status => "status",
            Self::Scale => "scale",
            Self::Finalize => "finalize",
        }
    }
}

/// What is to be done with a target, in Kubernetes' words.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Verb {
    Get,
    List,
    Watch,
    Create,
    Update,
    Patch,
    Delete,
    DeleteCollection,
}

impl Verb {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Get => "get",
            Self::List => "list",
            Self::Watch => "watch",
            Self::Create => "create",
            Self::Update => "update",
            Self::Patch => "patch",
            Self::Delete => "delete",
            Self::DeleteCollection => "deletecollection",
        }
    }

    pub(crate) fn reads(self) -> bool {
        matches!(self, Self::Get | Self::List | Self::Watch)
    }
}

impl Target {
    /// The verb of a request for it; none where the method has no meaning here.
    pub(crate) fn verb(&self, method: &Method, query: &str) -> Option<Verb> {
        let collection = self.name.is_empty();
        let creatable = !self.kind.namespaced() || !self.namespace.is_empty();
        Some(match *method {
            Method::GET | Method::HEAD if self.subresource.is_some() => Verb::Get,
            Method::GET | Method::HEAD if self.watch_path || Query::is_watch(query) => Verb::Watch,
            Method::GET | Method::HEAD if collection => Verb::List,
            Method::GET | Method::HEAD => Verb::Get,
            _ if self.watch_path => return None,
            Method::PUT if !collection => Verb::Update,
            Method::PATCH if !collection => Verb::Patch,
            _ if self.subresource.is_some() => return None,
            Method::POST if collection && creatable => Verb::Create,
            Method::DELETE if collection => Verb::DeleteCollection,
            Method::DELETE => Verb::Delete,
            _ => return None,
        })
    }
}

impl Route {
    /// Reads a path. What is not served is 404; what could mean two things is 400.
    pub(crate) fn parse(path: &str, kinds: &Kinds) -> Result<Self, Status> {
        let segments = segments(path)?;
        let parts: Vec<&str> = segments.iter().map(String::as_str).collect();
        let route = match parts[..] {
            [check @ ("livez" | "readyz" | "healthz")] => Self::Health(check.to_owned()),
            ["version"] => Self::Version,
            ["metrics"] => Self::Metrics,
            ["statz"] => Self::Statz,
            ["api"] => Self::Groups { legacy: true },
            ["apis"] => Self::Groups { legacy: false },
            ["apis", group] => Self::Group(group.to_owned()),
            ["api", version] => Self::GroupVersion(String::new(), version.to_owned()),
            ["apis", group, version] => Self::GroupVersion(group.to_owned(), version.to_owned()),
            ["api", version, ref rest @ ..] => Self::Resource(target("", version, rest, kinds)?),
            ["apis", group, version, ref rest @ ..] => {
                Self::Resource(target(group, version, rest, kinds)?)
            }
            ["openapi", "v3"] => Self::OpenApi(None),
            ["openapi", "v3", ref rest @ ..] => Self::OpenApi(Some(rest.join("/"))),
            _ => return Err(Status::no_such_path()),
        };
        Ok(route)
    }
}

fn target(group: &str, version: &str, rest: &[&str], kinds: &Kinds) -> Result<Target, Status> {
    let (watch_path, rest) = match rest {
        ["watch", rest @ ..] if !rest.is_empty() => (true, rest),
        rest => (false, rest),
    };
    let of_namespace = |it: &&str| matches!(*it, "status" | "finalize");
    let (namespace, plural, name, subresource) = match *rest {
        ["namespaces", namespace, plural] if !of_namespace(&plural) => (namespace, plural, "", ""),
        ["namespaces", namespace, plural, name] => (namespace, plural, name, ""),
        ["namespaces", namespace, plural, name, sub] => (namespace, plural, name, sub),
        [plural] => ("", plural, "", ""),
        [plural, name] => ("", plural, name, ""),
        [plural, name, sub] => ("", plural, name, sub),
        _ => return Err(Status::no_such_path()),
    };
    let kind = kinds.find(group, version, plural).ok_or_else(Status::no_such_path)?.clone();
    let placed = match (kind.namespaced(), namespace.is_empty()) {
        (true, in_all) => !in_all || name.is_empty(),
        (false, nowhere) => nowhere,
    };
    let subresource = match subresource {
        "" => None,
        "status" if kind.status => Some(Subresource::Status),
        "scale" if kind.scale.is_some() => Some(Subresource::Scale),
        "finalize" if kind.is("", "namespaces") => Some(Subresource::Finalize),
        _ => return Err(Status::no_such_path()),
    };
    if !placed || (watch_path && subresource.is_some()) {
        return Err(Status::no_such_path());
    }
    let (namespace, name) = (namespace.to_owned(), name.to_owned());
    Ok(Target { kind, namespace, name, subresource, watch_path })
}

/// The segments of a path, decoded. One slash at the end is let through.
///
/// Empty segments, `.`, `..` and encoded slashes are refused: a proxy before us may read them in
/// another way, and rights are given by path.
fn segments(path: &str) -> Result<Vec<String>, Status> {
    let unclear = |what: &str| Status::bad_request(format!("the path {path:?} {what}"));
    let inner = path.strip_prefix('/').ok_or_else(|| unclear("does not begin with a slash"))?;
    let inner = inner.strip_suffix('/').unwrap_or(inner);
    let mut segments = Vec::new();
    for segment in inner.split('/') {
        let decoded = percent_decode_str(segment)
            .decode_utf8()
            .map_err(|_| unclear("is not UTF-8 when decoded"))?;
        match &*decoded {
            "" if inner.is_empty() => {}
            "" => return Err(unclear("has an empty segment")),
            "." | ".." => return Err(unclear("has a segment of dots")),
            text if text.contains('/') => return Err(unclear("has an encoded slash")),
            text if text.contains(char::is_control) => {
                return Err(unclear("has a control character"));
            }
            text => segments.push(text.to_owned()),
        }
    }
    Ok(segments)
}

#[cfg(test)]
mod tests;
