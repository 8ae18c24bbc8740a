//! What broke underneath, as a failure of the one classifier.

use std::error::Error;
use std::io;

use http::HeaderMap;
use http::header::RETRY_AFTER;
use masthead_core::{Reason, Status};
use masthead_reflector::Failure;

/// An error and everything that it comes from, in a line.
pub(crate) fn chain(error: &(dyn Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let next = error.to_string();
        // Some errors repeat what they come from.
        if !text.ends_with(&next) {
            text = format!("{text}: {next}");
        }
        cause = error.source();
    }
    text
}

/// The failure that an error of the transport is.
pub(crate) fn of_transport(error: &(dyn Error + 'static)) -> Failure {
    let text = chain(error);
    let mut cause = Some(error);
    while let Some(it) = cause {
        if let Some(failure) = of_cause(it, &text) {
            return failure;
        }
        cause = it.source();
    }
    Failure::Reset(text)
}

fn of_cause(error: &(dyn Error + 'static), text: &str) -> Option<Failure> {
    if error.is::<rustls::Error>() {
        return Some(Failure::Tls(text.to_owned()));
    }
    if error.downcast_ref::<hyper::Error>().is_some_and(hyper::Error::is_timeout) {
        return Some(Failure::TimedOut { progress: true });
    }
    if let Some(kube_client::Error::Auth(_)) = error.downcast_ref() {
        return Some(unauthorized(text));
    }
    let error = error.downcast_ref::<io::Error>()?;
    // An error inside of an I/O error is not among its sources.
    if let Some(tls) = error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>()) {
        return Some(Failure::Tls(tls.to_string()));
    }
    is_refusal(error.kind()).then(|| Failure::Refused(text.to_owned()))
}

fn is_refusal(kind: io::ErrorKind) -> bool {
    use io::ErrorKind as Kind;
    matches!(
        kind,
        Kind::ConnectionRefused
            | Kind::HostUnreachable
            | Kind::NetworkUnreachable
            | Kind::NetworkDown
            | Kind::AddrNotAvailable
    )
}

/// The failure of credentials that cannot be had: nobody was asked, and nobody would have let us in.
pub(crate) fn unauthorized(why: &str) -> Failure {
    let message = format!("the credentials cannot be loaded: {why}");
    Status::with(401, Reason::Unauthorized, message).into()
}

/// `Retry-After` in seconds. A date is not used by API servers and is left out.
pub(crate) fn retry_after(headers: &HeaderMap) -> Option<u32> {
    headers.get(RETRY_AFTER)?.to_str().ok()?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use masthead_reflector::Class;

    use super::*;

    fn class(error: &(dyn Error + 'static)) -> Class {
        of_transport(error).class()
    }

    #[test]
    fn r25_what_breaks_underneath_has_its_class() {
        let refused = io::Error::from(io::ErrorKind::ConnectionRefused);
        assert_eq!(class(&refused), Class::Refused);
        assert_eq!(class(&io::Error::from(io::ErrorKind::ConnectionReset)), Class::Broken);
        let tls = io::Error::other(rustls::Error::HandshakeNotComplete);
        assert_eq!(class(&tls), Class::Tls);
        let wrapped = kube_client::Error::Service(Box::new(refused));
        assert_eq!(class(&wrapped), Class::Refused);
    }

    #[test]
    fn retry_after_is_seconds_and_nothing_else() {
        let of = |text: &'static str| {
            let value = http::HeaderValue::from_static(text);
            retry_after(&HeaderMap::from_iter([(RETRY_AFTER, value)]))
        };
        assert_eq!(of("7"), Some(7));
        assert_eq!(of("Wed, 21 Oct 2015 07:28:00 GMT"), None);
        assert_eq!(retry_after(&HeaderMap::new()), None);
    }
}
