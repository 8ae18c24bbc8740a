//! Who is asking.

use std::collections::HashMap;
use std::fmt;
use std::path::Path;
use std::sync::Arc;

use aws_lc_rs::digest::{SHA256, digest};
use http::HeaderMap;
use http::header::AUTHORIZATION;
use masthead_core::{Reason, Status};
use x509_parser::prelude::{FromDer, X509Certificate};

use crate::limits::{TOKEN_FILE_BYTES_MAX, TOKENS_MAX};

/// Somebody who has shown who they are.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct User {
    /// As rights and limits know them.
    pub name: String,
    /// What rights are given to.
    pub groups: Vec<String>,
}

/// The bearer tokens that are let in, and whom they stand for.
///
/// Only digests are kept: looking one up takes no time that depends on a token, and a dump of the
/// memory holds none.
#[derive(Default)]
pub struct Tokens(HashMap<[u8; 32], Arc<User>>);

impl fmt::Debug for Tokens {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} tokens", self.0.len())
    }
}

/// A token file that cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TokenFileError {
    /// It cannot be read.
    #[error("cannot read the token file {path}")]
    Read {
        /// Which file.
        path: String,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// A line is not what it should be. The line itself may hold a secret and is not shown.
    #[error("{path}, line {line}: expected `token,user,uid[,\"group,group\"]`: {what}")]
    Line {
        /// Which file.
        path: String,
        /// Which line, from 1.
        line: usize,
        /// What is wrong with it.
        what: &'static str,
    },
    /// There is more in it than there may be.
    #[error("{path} has more than {TOKENS_MAX} tokens or {TOKEN_FILE_BYTES_MAX} bytes")]
    TooMuch {
        /// Which file.
        path: String,
    },
}

impl Tokens {
    /// Lets a token in.
    pub fn add(&mut self, token: &str, user: User) {
        self.0.insert(fingerprint(token), Arc::new(user));
    }

    /// Lets in what a file of Kubernetes' form names: `token,user,uid,"group,group"` on each line.
    pub fn read(&mut self, path: &Path) -> Result<(), TokenFileError> {
        let name = path.display().to_string();
        let text = std::fs::read_to_string(path)
            .map_err(|source| TokenFileError::Read { path: name.clone(), source })?;
        if text.len() > TOKEN_FILE_BYTES_MAX {
            return Err(TokenFileError::TooMuch { path: name });
        }
        for (line, content) in text.lines().enumerate() {
            let content = content.trim();
            if content.is_empty() || content.starts_with('#') {
                continue;
            }
            let bad = |what| TokenFileError::Line { path: name.clone(), line: line + 1, what };
            let (token, user) = parse_line(content).map_err(bad)?;
            if self.0.contains_key(&fingerprint(token)) {
                return Err(bad("the token is there already"));
            }
            self.add(token, user);
            if self.0.len() > TOKENS_MAX {
                return Err(TokenFileError::TooMuch { path: name });
            }
        }
        Ok(())
    }

    fn find(&self, token: &str) -> Option<&Arc<User>> {
        self.0.get(&fingerprint(token))
    }
}

fn parse_line(line: &str) -> Result<(&str, User), &'static str> {
    let mut parts = line.splitn(4, ',');
    let (Some(token), Some(name), Some(_uid)) = (parts.next(), parts.next(), parts.next()) else {
        return Err("a part is missing");
    };
    if token.is_empty() || name.is_empty() {
        return Err("the token and the user must not be empty");
    }
    let groups = parts.next().unwrap_or("").trim().trim_matches('"');
    let groups = groups.split(',').map(str::trim).filter(|it| !it.is_empty());
    Ok((token, User { name: name.to_owned(), groups: groups.map(str::to_owned).collect() }))
}

fn fingerprint(token: &str) -> [u8; 32] {
    let mut bytes = [0; 32];
    bytes.copy_from_slice(digest(&SHA256, token.as_bytes()).as_ref());
    bytes
}

/// The user of a client certificate that has been verified: the common name, and the organizations
/// as groups.
pub(crate) fn user_of_certificate(der: &[u8]) -> Option<User> {
    let (_, certificate) = X509Certificate::from_der(der).ok()?;
    let subject = certificate.subject();
    let name = subject.iter_common_name().next()?.as_str().ok()?.to_owned();
    let groups = subject.iter_organization().filter_map(|it| it.as_str().ok());
    let groups = groups.map(str::to_owned).collect();
    (!name.is_empty()).then_some(User { name, groups })
}

/// Who sends a request: the bearer of a token, or else the owner of the connection's certificate.
///
/// A token that is there but wrong is refused, whatever the certificate says.
pub(crate) fn authenticate(
    headers: &HeaderMap,
    certificate: Option<&Arc<User>>,
    tokens: &Tokens,
) -> Result<Arc<User>, Status> {
    let mut authorization = headers.get_all(AUTHORIZATION).iter();
    match (authorization.next(), authorization.next()) {
        (None, _) => certificate.cloned().ok_or_else(Status::unauthorized),
        (Some(value), None) => {
            let text = value.to_str().map_err(|_| Status::unauthorized())?;
            let (scheme, token) = text.split_once(' ').ok_or_else(Status::unauthorized)?;
            let token = token.trim();
            if !scheme.eq_ignore_ascii_case("bearer") || token.is_empty() {
                return Err(Status::unauthorized());
            }
            tokens.find(token).cloned().ok_or_else(Status::unauthorized)
        }
        // Two of them could be read in two ways.
        (Some(_), Some(_)) => Err(Status::unauthorized()),
    }
}

/// Refuses requests in the name of another user. Passed over, the headers would let them be carried out
/// with the rights of the sender.
pub(crate) fn refuse_impersonation(headers: &HeaderMap) -> Result<(), Status> {
    if headers.keys().any(|name| name.as_str().starts_with("impersonate-")) {
        let why = "impersonation is not supported: send the request without --as, --as-group, \
                   --as-uid and --as-user-extra (the Impersonate-* headers)";
        return Err(Status::with(403, Reason::Forbidden, why));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_names_token_user_and_groups() {
        let (token, user) = parse_line(r#"s3cret,alice,1,"a,b""#).expect("is a line");
        assert_eq!((token, user.name.as_str()), ("s3cret", "alice"));
        assert_eq!(user.groups, ["a", "b"]);
        assert!(parse_line("token,alice").is_err());
        assert!(parse_line(",alice,1").is_err());
    }

    #[test]
    fn only_one_right_token_is_let_in() {
        let mut tokens = Tokens::default();
        tokens.add("right", User { name: "alice".to_owned(), groups: Vec::new() });
        let ask = |values: &[&str]| {
            let mut headers = HeaderMap::new();
            for value in values {
                headers.append(AUTHORIZATION, value.parse().expect("is a header"));
            }
            authenticate(&headers, None, &tokens).map(|user| user.name.clone()).ok()
        };
        assert_eq!(ask(&["Bearer right"]).as_deref(), Some("alice"));
        assert_eq!(ask(&["bearer  right"]).as_deref(), Some("alice"));
        for refused in [&["Bearer wrong"][..], &["right"], &["Basic right"], &["Bearer "], &[]] {
            assert_eq!(ask(refused), None, "{refused:?}");
        }
        assert_eq!(ask(&["Bearer right", "Bearer right"]), None);
    }
}
