//! `masthead watch`.

use std::io;
use std::process::ExitCode;

use anyhow::Context;
use clap::{Args, ValueEnum};
use futures_util::{FutureExt, StreamExt};
use masthead_core::{Resource, Scope};
use masthead_informer::upstream::kube_client::core::DynamicObject;
use masthead_informer::upstream::{Settings, Upstream};
use masthead_informer::{
    Event, Factory, HandlerOptions, Informer, Projection, Subscription, SyncError,
};
use tokio::io::AsyncWriteExt;

use crate::client::limits::{HISTORY, ROWS};
use crate::client::{self, ClusterArguments, INTERRUPTED, SelectionArguments, rights, usage};

mod columns;
mod pods;
mod printer;
mod troubles;

use printer::Printer;
use troubles::Troubles;

/// What `masthead watch` takes.
#[derive(Args)]
#[command(after_help = "Examples:
  masthead watch pods                       of the context's namespace, and what becomes of them
  masthead watch deploy web -n shop         one object
  masthead watch po -A -l app=web -o wide   some of all namespaces
  masthead watch nodes --output-watch-events --watch-only
                                            only what changes from now on, and how
  masthead watch cm -A -o json --output-watch-events | jq -c '[.type, .object.metadata.name]'

Prints what is there, then each change once, in order for each object. Where kubectl get -w
ends, this goes on: a connection that is lost is made again and resumes where it was. Only if the
server no longer knows what happened in between, or if the output was not read for so long that
100,000 changes or 256 MiB were waiting, all changes of an object in that time are printed as one.

Ends with 130 when it is interrupted, 0 when nobody reads its output any more, 1 if the server
refuses, 2 if it was asked for something that cannot be.")]
pub(crate) struct WatchArguments {
    /// What to watch, for example pods, deploy, certificates.cert-manager.io
    #[arg(value_name = "RESOURCE")]
    resource: String,
    /// One object; it need not be there yet
    #[arg(value_name = "NAME")]
    name: Option<String>,
    #[command(flatten)]
    place: PlaceArguments,
    #[command(flatten)]
    selection: SelectionArguments,
    /// How to print objects
    #[arg(short, long, value_enum, default_value_t = Output::Table)]
    output: Output,
    /// Print what happened: ADDED, MODIFIED or DELETED
    #[arg(long)]
    output_watch_events: bool,
    /// Print only what changes, not what is there
    #[arg(long)]
    watch_only: bool,
    /// Print also who wrote which field, in json and yaml
    #[arg(long)]
    show_managed_fields: bool,
    #[command(flatten)]
    cluster: ClusterArguments,
}

/// Where to look.
#[derive(Args)]
struct PlaceArguments {
    /// All namespaces
    #[arg(short = 'A', long, conflicts_with = "namespace")]
    all_namespaces: bool,
    /// One namespace [default: the context's]
    #[arg(short = 'n', long, value_name = "NAME")]
    namespace: Option<String>,
}

/// How objects are printed.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Output {
    /// A line each
    Table,
    /// A longer line each
    Wide,
    /// JSON, one after the other; with --output-watch-events a line each
    Json,
    /// YAML documents
    Yaml,
    /// resource/name
    Name,
}

/// Prints until it is interrupted.
pub(crate) fn run(arguments: &WatchArguments) -> anyhow::Result<ExitCode> {
    client::block_on(async {
        tokio::select! {
            done = watch(arguments) => done.map(|()| ExitCode::SUCCESS),
            _ = tokio::signal::ctrl_c() => Ok(INTERRUPTED.into()),
        }
    })
}

async fn watch(arguments: &WatchArguments) -> anyhow::Result<()> {
    let upstream = arguments.cluster.connect(Settings::default()).await?;
    let mut found = client::find(&upstream, &[arguments.resource.as_str()]).await?;
    let resource = found.pop().context("one name is one resource")?;
    let namespace = arguments.place.namespace(&resource, &upstream);
    let factory = Factory::new(upstream);
    let mut troubles = Troubles::of(&factory);
    let informer = arguments.informer(&factory, &resource, namespace.as_deref())?;
    factory.start();
    first_sync(&informer, namespace.as_deref(), &mut troubles).await?;
    let events = informer.events(&HandlerOptions::default().named("watch"))?;
    let printer = Printer::new(&resource, arguments, namespace.is_none());
    let done = tokio::select! {
        done = print(events, printer, arguments.watch_only, &informer, &mut troubles) => done,
        ended = factory.task_ended() => return Err(ended.into()),
    };
    match done {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        done => done.context("the output cannot be written"),
    }
}

impl PlaceArguments {
    /// One namespace, or none for all and for what belongs to none.
    fn namespace(&self, resource: &Resource, upstream: &Upstream) -> Option<String> {
        if self.all_namespaces || resource.scope() == Scope::Cluster {
            return None;
        }
        Some(self.namespace.clone().unwrap_or_else(|| upstream.default_namespace().to_owned()))
    }
}

impl WatchArguments {
    fn informer(
        &self,
        factory: &Factory,
        resource: &Resource,
        namespace: Option<&str>,
    ) -> anyhow::Result<Informer<DynamicObject>> {
        let name = self.name.as_ref().map(|name| format!("metadata.name={name}"));
        let fields = Some(self.selection.field_selector.clone()).filter(|it| !it.is_empty());
        let fields: Vec<_> = name.into_iter().chain(fields).collect();
        let mut builder = factory
            .dynamic(resource)
            .labels(&self.selection.selector)
            .fields(&fields.join(","))
            .history(HISTORY);
        if let Some(namespace) = namespace {
            builder = builder.namespace(namespace);
        }
        if !self.show_managed_fields {
            builder = builder.project(Projection::dropping(["metadata.managedFields"]));
        }
        builder.build().map_err(usage)
    }
}

/// Waits for the state to begin with, for as long as it takes. A refusal ends it.
async fn first_sync(
    informer: &Informer<DynamicObject>,
    namespace: Option<&str>,
    troubles: &mut Troubles,
) -> anyhow::Result<()> {
    loop {
        tokio::select! {
            synced = informer.wait_for_sync() => match synced {
                Ok(_) => break,
                Err(SyncError::Refused { .. }) => return Err(refused(informer, namespace)),
                Err(error @ SyncError::Ended { .. }) => return Err(error.into()),
                Err(_) => {}
            },
            told = troubles.news(informer) => troubles::tell(&told),
        }
    }
    if let Some(told) = troubles.all_is_well(&troubles::report_of(informer)) {
        troubles::tell(&told);
    }
    Ok(())
}

fn refused(informer: &Informer<DynamicObject>, namespace: Option<&str>) -> anyhow::Error {
    match troubles::report_of(informer).last_error {
        Some(error) => {
            let advice = rights::advice(informer.resource(), namespace, error.class);
            anyhow::anyhow!("{}\n  {advice}", error.text)
        }
        None => anyhow::anyhow!("the server refuses {}", informer.resource()),
    }
}

/// Prints events and troubles as they come. Ends when the output does.
async fn print(
    mut events: Subscription<DynamicObject>,
    mut printer: Printer,
    watch_only: bool,
    informer: &Informer<DynamicObject>,
    troubles: &mut Troubles,
) -> io::Result<()> {
    let mut output = tokio::io::stdout();
    loop {
        let first = tokio::select! {
            event = events.next() => event,
            told = troubles.news(informer) => {
                troubles::tell(&told);
                continue;
            }
        };
        let Some(first) = first else { return Ok(()) };
        let mut ready = vec![first];
        while ready.len() < ROWS
            && let Some(Some(event)) = events.next().now_or_never()
        {
            ready.push(event);
        }
        let initial = |it: &Event<_>| matches!(it, Event::Added { initial: true, .. });
        ready.retain(|it| !(watch_only && initial(it)));
        output.write_all(printer.print(&ready).as_bytes()).await?;
        output.flush().await?;
    }
}
