//! What the commands that follow a cluster share: which cluster, what of it, and how they end.

use std::fmt;
use std::path::PathBuf;

use clap::Args;
use clap::error::ErrorKind;
use masthead_core::Resource;
use masthead_informer::upstream::{FindError, Served, Settings, Upstream};
use masthead_reflector::Class;

pub(crate) mod limits;
pub(crate) mod rights;
pub(crate) mod table;
pub(crate) mod units;

/// The exit code of a command that was interrupted, as shells have it: 128 and the signal's number.
pub(crate) const INTERRUPTED: u8 = 130;

/// What is missing where not even that is allowed.
const DISCOVERY: &str = "Grant get on /api and /apis to the account that asks; Kubernetes has the \
                         ClusterRole system:discovery for it.";

/// Which cluster.
#[derive(Args)]
#[command(next_help_heading = "Cluster")]
pub(crate) struct ClusterArguments {
    /// Kubeconfig file [default: of `KUBECONFIG`, `~/.kube/config`, or in a pod the cluster's own]
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// Context of the kubeconfig [default: its current one]
    #[arg(long, value_name = "NAME")]
    context: Option<String>,
}

/// Which objects of a resource.
#[derive(Args)]
pub(crate) struct SelectionArguments {
    /// Only what these labels match, for example app=web,tier!=test
    #[arg(
        short = 'l',
        long,
        value_name = "SELECTOR",
        default_value = "",
        hide_default_value = true
    )]
    pub(crate) selector: String,
    /// Only what these fields match, for example spec.nodeName=node-1
    #[arg(long, value_name = "SELECTOR", default_value = "", hide_default_value = true)]
    pub(crate) field_selector: String,
}

impl ClusterArguments {
    /// The server that is meant. Nothing is asked yet.
    pub(crate) async fn connect(&self, settings: Settings) -> anyhow::Result<Upstream> {
        let (file, context) = (self.kubeconfig.as_deref(), self.context.as_deref());
        let upstream = match (file, context) {
            (None, None) => Upstream::infer(settings).await?,
            _ => Upstream::from_kubeconfig(file, context, settings).await?,
        };
        Ok(upstream)
    }
}

/// The resources that are meant, all of which can be followed.
pub(crate) async fn find(upstream: &Upstream, names: &[&str]) -> anyhow::Result<Vec<Resource>> {
    let found = find_each(upstream, names).await?;
    found.into_iter().map(|served| followable(served.map_err(usage)?)).collect()
}

/// What the server serves under each name.
pub(crate) async fn find_each(
    upstream: &Upstream,
    names: &[&str],
) -> anyhow::Result<Vec<Result<Served, FindError>>> {
    upstream.find_each(names).await.map_err(|failure| {
        let advice = match failure.class() {
            Class::Forbidden => DISCOVERY,
            class => class.advice(),
        };
        anyhow::anyhow!("the server does not tell what it serves: {failure}. {advice}")
    })
}

pub(crate) fn followable(served: Served) -> anyhow::Result<Resource> {
    let Served { resource, verbs, .. } = served;
    if ["list", "watch"].iter().all(|verb| verbs.iter().any(|it| it == verb)) {
        return Ok(resource);
    }
    let verbs = verbs.join(", ");
    Err(usage(format_args!("{resource} cannot be listed and watched, the server has: {verbs}")))
}

/// What the user has to ask for in another way; it ends the command with the code for that.
pub(crate) fn usage(why: impl fmt::Display) -> anyhow::Error {
    clap::Error::raw(ErrorKind::ValueValidation, format!("{why}\n")).into()
}

/// Runs a command on all cores. What still waits when it is done is left behind: a terminal that takes
/// no output must not hold up the end.
pub(crate) fn block_on<T>(command: impl Future<Output = anyhow::Result<T>>) -> anyhow::Result<T> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let done = runtime.block_on(command);
    runtime.shutdown_background();
    done
}
