//! `masthead sync`.

use std::io::{self, Write};
use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, ValueEnum};
use futures_util::future::join_all;
use masthead_core::{Resource, Scope};
use masthead_informer::upstream::kube_client::core::DynamicObject;
use masthead_informer::upstream::{FindError, Settings, Upstream};
use masthead_informer::{Factory, FactorySettings, Informer, Representation, Startup, Timeouts};
use masthead_reflector::{SettingsError, Strategy};
use tokio::time::Instant;

use crate::client::{self, ClusterArguments, INTERRUPTED, SelectionArguments, usage};
use crate::serve::values::duration;

mod outcome;
mod progress;

use outcome::Outcome;
use progress::Progress;

/// The exit code if something that is required did not sync.
const NOT_SYNCED: u8 = 3;
/// What most controllers read, if nothing is named.
const USUAL: [&str; 5] = ["pods", "nodes", "services", "deployments.apps", "configmaps"];

/// What `masthead sync` takes.
#[derive(Args)]
#[command(after_help = "Examples:
  masthead sync                                 what most controllers read, in all namespaces
  masthead sync pods,secrets -n shop            two resources of one namespace
  masthead sync po deploy --critical po         pods first, deployments when they have synced
  masthead sync po crontabs --optional crontabs succeeds without the second
  masthead sync pods --gzip --request-timeout 20s
                                                across a slow link that cuts requests
  masthead sync -o json | jq '.resources[] | select(.synced | not)'

Ends with 0 if everything required has synced, 3 if not, 2 if it was asked for something that
cannot be, 130 if it was interrupted. It prints how far everything came, and what to do.")]
pub(crate) struct SyncArguments {
    /// What to sync, for example pods, deploy, certificates.cert-manager.io
    /// [default: pods, nodes, services, deployments.apps, configmaps]
    #[arg(value_name = "RESOURCE", value_delimiter = ',')]
    resources: Vec<String>,
    /// All namespaces: the default, as for a controller
    #[arg(short = 'A', long, conflicts_with = "namespace")]
    all_namespaces: bool,
    /// One namespace
    #[arg(short = 'n', long, value_name = "NAME")]
    namespace: Option<String>,
    #[command(flatten)]
    selection: SelectionArguments,
    /// Of the resources, those that come first; the others begin when these have synced
    #[arg(long, value_name = "RESOURCE", value_delimiter = ',')]
    critical: Vec<String>,
    /// Of the resources, those that may fail
    #[arg(long, value_name = "RESOURCE", value_delimiter = ',')]
    optional: Vec<String>,
    /// How objects are held in memory
    #[arg(long, value_enum, default_value_t = Held::Raw)]
    representation: Held,
    /// How lists are read [default: streaming, or pages with --gzip]
    #[arg(long, value_enum)]
    strategy: Option<Reading>,
    /// Ask for compressed answers: less to send, more for the server to do. Lists are read in pages,
    /// as most servers send a streamed list uncompressed
    #[arg(long)]
    gzip: bool,
    /// How to show the result
    #[arg(short, long, value_enum, default_value_t = Output::Table)]
    output: Output,
    /// Show nothing before the result
    #[arg(long)]
    no_progress: bool,
    #[command(flatten)]
    times: TimeArguments,
    #[command(flatten)]
    cluster: ClusterArguments,
}

/// The time-outs. Those that are not given fit those that are.
#[derive(Args)]
#[command(next_help_heading = "Time-outs, each shorter than the next")]
struct TimeArguments {
    /// Without a byte of an answer [default: 30s]
    #[arg(long = "progress-timeout", value_name = "TIME", value_parser = duration)]
    progress: Option<Duration>,
    /// For one request: lists are read in pages that fit [default: 50s]
    #[arg(long = "request-timeout", value_name = "TIME", value_parser = duration)]
    request: Option<Duration>,
    /// For one resource [default: 5m]
    #[arg(long = "sync-timeout", value_name = "TIME", value_parser = duration)]
    sync: Option<Duration>,
}

/// How objects are held.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Held {
    /// Their JSON
    Raw,
    /// Their JSON, compressed with a dictionary of their kind
    Compact,
    /// Only metadata, which is also all that the server sends
    Metadata,
}

/// How lists are read.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Reading {
    /// As a watch that begins with the state; in pages where the server does not have that
    Streaming,
    /// In pages
    Pages,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Output {
    /// A table, and advice below it
    Table,
    /// One JSON document
    Json,
}

/// One resource to be synced.
struct Wanted {
    resource: Resource,
    namespace: Option<String>,
    critical: bool,
    required: bool,
}

/// An optional resource that the server does not have.
struct Absent {
    name: String,
    why: String,
}

/// Syncs and says how it went.
pub(crate) fn run(arguments: &SyncArguments) -> anyhow::Result<ExitCode> {
    client::block_on(sync(arguments))
}

async fn sync(arguments: &SyncArguments) -> anyhow::Result<ExitCode> {
    let settings = arguments.settings()?;
    let connect_timeout = settings.timeouts.connect;
    let upstream = Settings { gzip: arguments.gzip, connect_timeout, ..Settings::default() };
    let upstream = arguments.cluster.connect(upstream).await?;
    let (wanted, absent) = arguments.wanted(&upstream).await?;
    let factory = Factory::with_settings(upstream, settings).map_err(flags_named)?;
    let informers = wanted.iter().map(|it| arguments.informer(&factory, it));
    let informers = informers.collect::<anyhow::Result<Vec<_>>>()?;
    let began = Instant::now();
    factory.start();
    let mut progress = Progress::new(&wanted, !arguments.no_progress);
    if arguments.resources.is_empty() {
        progress.say(&format!("syncing what most controllers read: {}", USUAL.join(", ")));
    }
    let interrupted = tokio::select! {
        () = settle(&wanted, &informers) => false,
        () = progress.show(&factory) => false,
        _ = tokio::signal::ctrl_c() => true,
    };
    progress.clear();
    let report = factory.report();
    let took = began.elapsed();
    let outcome = Outcome { wanted: &wanted, absent: &absent, report: &report, took, interrupted };
    let text = match arguments.output {
        Output::Table => outcome.table(),
        Output::Json => outcome.json(),
    };
    // Whoever reads this may have seen enough.
    let _ = io::stdout().write_all(text.as_bytes());
    Ok(match outcome.succeeded() {
        _ if interrupted => INTERRUPTED.into(),
        true => ExitCode::SUCCESS,
        false => NOT_SYNCED.into(),
    })
}

/// Waits until each has synced, was refused, or has used up its time, which begins when it may.
async fn settle(wanted: &[Wanted], informers: &[Informer<DynamicObject>]) {
    for critical in [true, false] {
        let turn = wanted.iter().zip(informers).filter(|(it, _)| it.critical == critical);
        // How it ended is in the report.
        join_all(turn.map(|(_, informer)| informer.wait_for_sync())).await;
    }
}

impl SyncArguments {
    fn settings(&self) -> anyhow::Result<FactorySettings> {
        let usual = if self.gzip { Reading::Pages } else { Reading::Streaming };
        let strategy = match self.strategy.unwrap_or(usual) {
            Reading::Streaming => Strategy::Streaming,
            Reading::Pages => Strategy::Pages,
        };
        let startup = if self.critical.is_empty() { Startup::Beside } else { Startup::After };
        let timeouts = self.times.timeouts();
        let settings =
            FactorySettings { timeouts, strategy, startup, ..FactorySettings::default() };
        settings.validate().map_err(flags_named)?;
        Ok(settings)
    }

    /// What is to be synced, and which optional resources the server does not have.
    async fn wanted(&self, upstream: &Upstream) -> anyhow::Result<(Vec<Wanted>, Vec<Absent>)> {
        let named: Vec<&str> = match self.resources.as_slice() {
            [] => USUAL.to_vec(),
            names => texts(names),
        };
        let critical = texts(&self.critical);
        let optional = texts(&self.optional);
        let all = [named.as_slice(), &critical, &optional].concat();
        let mut found = Vec::new();
        let mut absent = Vec::new();
        for (name, served) in all.iter().zip(client::find_each(upstream, &all).await?) {
            match served {
                Err(error @ FindError::Unknown { .. }) if optional.contains(name) => {
                    // A resource that is named and optional is looked up twice.
                    if absent.iter().all(|known: &Absent| known.name != *name) {
                        absent.push(Absent { name: (*name).to_owned(), why: error.to_string() });
                    }
                    found.push(None);
                }
                served => found.push(Some(client::followable(served.map_err(usage)?)?)),
            }
        }
        let optional_found = found.split_off(named.len() + critical.len());
        let critical_found = found.split_off(named.len());
        for (flag, names, of) in
            [("--critical", &critical, &critical_found), ("--optional", &optional, &optional_found)]
        {
            let stray = names.iter().zip(of).find(|(name, resource)| match resource {
                Some(_) => !found.contains(resource),
                None => !named.contains(name),
            });
            if let Some((name, _)) = stray {
                return Err(usage(format_args!(
                    "{flag} {name} is not among what is synced: name it as RESOURCE too"
                )));
            }
        }
        let mut wanted = Vec::<Wanted>::new();
        for resource in found.into_iter().flatten() {
            if wanted.iter().all(|it| it.resource != resource) {
                let is_namespaced = resource.scope() == Scope::Namespaced;
                let known = Some(resource.clone());
                wanted.push(Wanted {
                    namespace: self.namespace.clone().filter(|_| is_namespaced),
                    critical: critical_found.contains(&known),
                    required: !optional_found.contains(&known),
                    resource,
                });
            }
        }
        Ok((wanted, absent))
    }

    fn informer(
        &self,
        factory: &Factory,
        wanted: &Wanted,
    ) -> anyhow::Result<Informer<DynamicObject>> {
        let mut builder = factory
            .dynamic(&wanted.resource)
            .labels(&self.selection.selector)
            .fields(&self.selection.field_selector)
            .representation(match self.representation {
                Held::Raw => Representation::Raw,
                Held::Compact => Representation::Compact,
                Held::Metadata => Representation::Metadata,
            });
        if let Some(namespace) = &wanted.namespace {
            builder = builder.namespace(namespace);
        }
        if wanted.critical {
            builder = builder.critical();
        }
        if !wanted.required {
            builder = builder.optional();
        }
        builder.build().map_err(usage)
    }
}

impl TimeArguments {
    fn timeouts(&self) -> Timeouts {
        let usual = Timeouts::default();
        let resource_sync = self.sync.unwrap_or(usual.resource_sync);
        let request = self.request.unwrap_or(usual.request.min(resource_sync / 2));
        let progress = self.progress.unwrap_or(usual.progress.min(request * 3 / 5));
        let connect = usual.connect.min(progress / 2);
        Timeouts { connect, progress, request, resource_sync, whole_sync: resource_sync * 2 }
    }
}

fn texts(names: &[String]) -> Vec<&str> {
    names.iter().map(String::as_str).collect()
}

/// The same error in the words of the command line.
fn flags_named(error: SettingsError) -> anyhow::Error {
    let flag = |name: &'static str| match name {
        "progress" => "--progress-timeout",
        "request" => "--request-timeout",
        "resource_sync" => "--sync-timeout",
        other => other,
    };
    usage(match error {
        SettingsError::TimeOrder { shorter, short, longer, long } => {
            let (shorter, longer) = (flag(shorter), flag(longer));
            SettingsError::TimeOrder { shorter, short, longer, long }
        }
        other => other,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn times(progress: Option<u64>, request: Option<u64>, sync: Option<u64>) -> Timeouts {
        let [progress, request, sync] =
            [progress, request, sync].map(|it| it.map(Duration::from_secs));
        TimeArguments { progress, request, sync }.timeouts()
    }

    #[test]
    fn r27_times_that_are_not_given_fit_those_that_are() {
        assert_eq!(times(None, None, None), Timeouts::default());
        for (request, sync) in [(None, Some(4)), (Some(1), None), (Some(2), Some(4))] {
            assert_eq!(times(None, request, sync).validate(), Ok(()));
        }
    }

    #[test]
    fn r27_times_that_contradict_each_other_are_both_named() {
        let error = times(Some(20), Some(10), None).validate().unwrap_err();
        let text = flags_named(error).to_string();
        let named =
            "--progress-timeout is 20s, --request-timeout is 10s: the first must be shorter";
        assert!(text.contains(named), "{text}");
    }
}
