//! Who may do what.
//!
//! **Invariant:** objects are reached only with an [`Authorized`] in hand, and only this module makes
//! one. A check that fails or cannot be made ends in 403.

use std::sync::Arc;

use masthead_core::{Reason, Status};

use crate::authn::User;
use crate::resources::Kind;
use crate::route::{Target, Verb};

/// May do everything, as in Kubernetes.
pub const MASTERS: &str = "system:masters";
/// May read everything.
pub const READERS: &str = "masthead:readers";

/// Proof that somebody may do one thing to one target.
#[derive(Debug)]
pub(crate) struct Authorized<S> {
    scope: S,
    verb: Verb,
}

impl<S> Authorized<S> {
    pub(crate) fn verb(&self) -> Verb {
        self.verb
    }
}

impl<S> std::ops::Deref for Authorized<S> {
    type Target = S;

    fn deref(&self) -> &S {
        &self.scope
    }
}

impl Authorized<Target> {
    /// For the server's own work: is there such a namespace, what is left in it, which definitions
    /// are there. What it reads goes to no client.
    pub(crate) fn internal(kind: &Arc<Kind>, namespace: &str, name: &str) -> Self {
        let (namespace, name) = (namespace.to_owned(), name.to_owned());
        let kind = kind.clone();
        let scope = Target { kind, namespace, name, subresource: None, watch_path: false };
        Self { scope, verb: Verb::Get }
    }
}

/// What a user may do at all.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Debug)]
enum Level {
    Nothing,
    Read,
    Everything,
}

fn level(user: &User) -> Level {
    let is = |group: &str| user.groups.iter().any(|it| it == group);
    if is(MASTERS) {
        Level::Everything
    } else if is(READERS) {
        Level::Read
    } else {
        Level::Nothing
    }
}

/// The proof that the user may do this to the target, or the refusal.
pub(crate) fn authorize(
    user: &User,
    verb: Verb,
    target: Target,
) -> Result<Authorized<Target>, Status> {
    let needed = if verb.reads() { Level::Read } else { Level::Everything };
    if level(user) >= needed {
        return Ok(Authorized { scope: target, verb });
    }
    let resource = &target.kind.resource;
    let place = match (target.kind.namespaced(), target.namespace.as_str()) {
        (true, "") | (false, _) => " at the cluster scope".to_owned(),
        (true, namespace) => format!(" in the namespace {namespace:?}"),
    };
    let part = target.subresource.map(|it| format!("/{}", it.as_str())).unwrap_or_default();
    let why = format!(
        "User {:?} cannot {} resource \"{}{part}\" in API group {:?}{place}",
        user.name,
        verb.as_str(),
        resource.plural(),
        resource.group(),
    );
    Err(Status::forbidden(resource, &target.name, why))
}

/// Paths, and what is below them, that tell what a server serves and nothing of what is in it. Whoever
/// is known may see them, as Kubernetes has it with its role `system:discovery`.
const DISCOVERY: [&str; 4] = ["/api", "/apis", "/openapi", "/version"];

fn is_discovery(path: &str) -> bool {
    let mut rest = DISCOVERY.iter().filter_map(|root| path.strip_prefix(root));
    rest.any(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// Fails unless the user may read a path that is no object: discovery, documents, metrics.
pub(crate) fn authorize_path(user: &User, path: &str) -> Result<(), Status> {
    if is_discovery(path) || level(user) >= Level::Read {
        return Ok(());
    }
    let why = format!("forbidden: User {:?} cannot get path {path:?}", user.name);
    Err(Status::with(403, Reason::Forbidden, why))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalog::Catalog;

    fn user(groups: &[&str]) -> User {
        let groups = groups.iter().map(|&it| it.to_owned()).collect();
        User { name: "alice".to_owned(), groups }
    }

    fn may(groups: &[&str], verb: Verb) -> Result<(), String> {
        let kinds = Catalog::new().now();
        let pods = kinds.find("", "v1", "pods").expect("is built in");
        let scope = Authorized::internal(pods, "shop", "").scope;
        let proof = authorize(&user(groups), verb, scope);
        proof.map(|_| ()).map_err(|status| format!("{} {}", status.code(), status.message()))
    }

    #[test]
    fn masters_do_everything_readers_read_and_nobody_else_does_anything() {
        for verb in [Verb::Get, Verb::List, Verb::Watch] {
            assert_eq!(may(&[MASTERS], verb), Ok(()));
            assert_eq!(may(&["others", READERS], verb), Ok(()));
            assert!(may(&["others"], verb).is_err());
        }
        for verb in [Verb::Create, Verb::Update, Verb::Patch, Verb::Delete, Verb::DeleteCollection]
        {
            assert_eq!(may(&[MASTERS], verb), Ok(()));
            assert!(may(&[READERS], verb).is_err());
        }
    }

    #[test]
    fn whoever_is_known_may_discover_and_only_readers_see_more() {
        for path in ["/api", "/apis/", "/apis/apps/v1", "/openapi/v3", "/version"] {
            assert!(authorize_path(&user(&[]), path).is_ok(), "{path}");
        }
        for path in ["/metrics", "/statz", "/", "/apisx", "/versions"] {
            assert!(authorize_path(&user(&[]), path).is_err(), "{path}");
            assert!(authorize_path(&user(&[READERS]), path).is_ok(), "{path}");
        }
    }

    #[test]
    fn a_refusal_says_who_what_and_where() {
        let expected = "403 pods is forbidden: User \"alice\" cannot list resource \"pods\" in API \
                        group \"\" in the namespace \"shop\"";
        assert_eq!(may(&[], Verb::List), Err(expected.to_owned()));
    }
}
