//! What is printed once the server is ready: the next thing to type.

use std::fmt;
use std::path::Path;
use std::time::Duration;

/// A server that is ready.
pub(super) struct Announcement<'a> {
    pub(super) url: &'a str,
    pub(super) kubeconfig: &'a Path,
    /// The file of the administrator's token.
    pub(super) token: &'a Path,
    /// Whether it serves plain HTTP.
    pub(super) is_plain: bool,
    /// Whether it listens on all addresses and the kubeconfig names only loopback.
    pub(super) is_for_this_machine: bool,
    pub(super) took: Duration,
}

impl fmt::Display for Announcement<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let url = self.url;
        writeln!(f, "masthead serves {url}, ready after {} ms\n", self.took.as_millis())?;
        if self.is_plain {
            let token = self.token.display();
            writeln!(
                f,
                "  curl -H \"Authorization: Bearer $(cat '{token}')\" {url}/api/v1/namespaces\n"
            )?;
            writeln!(
                f,
                "kubectl sends no credentials over plain HTTP, nor does any client that is built on client-go."
            )?;
            writeln!(f, "To use one, leave out --insecure-http.")?;
        } else {
            writeln!(f, "  export KUBECONFIG='{}'", self.kubeconfig.display())?;
            writeln!(f, "  kubectl get namespaces\n")?;
        }
        if self.is_for_this_machine {
            writeln!(
                f,
                "The kubeconfig and the certificate are good for this machine only. For clients on others, add"
            )?;
            writeln!(f, "--advertise-address with a name or an address of this machine.")?;
        }
        writeln!(f, "Ctrl-C stops it.")
    }
}
