//! The same small controller three times: lines of code, time to converge, processor time and memory.
//!
//! Each deployment is to have a config map with an owner reference, and a status that says that this was seen
//! to: two writes an object. Each controller has a server of its own, with nothing in it but the deployments.

use std::fs;
use std::future::Future;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use clap::Args;
use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::ConfigMap;
use masthead_informer::upstream::kube_client::api::{ListParams, PostParams};
use masthead_informer::upstream::kube_client::config::{KubeConfigOptions, Kubeconfig};
use masthead_informer::upstream::kube_client::{Api, Client, Config};
use serde_json::json;
use tokio::runtime::Runtime;
use tokio::time::{sleep, timeout};

use super::place::Place;
use super::process::Process;
use super::report::{Figure, Findings, number};
use super::{Common, peers};

mod ours;

#[derive(Args)]
pub(crate) struct ControllerArguments {
    /// Deployments at the server
    #[arg(long, default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    objects: u32,
    #[command(flatten)]
    common: Common,
}

/// Reconciles at a time, as in the controllers.
const WORKERS: u64 = 8;
/// Deployments that are made at the same time.
const MAKERS: usize = 32;
/// Between two looks at what a controller has done.
const PAUSE: Duration = Duration::from_millis(50);
/// How long a controller, or a server's start, may take.
const PATIENCE: Duration = Duration::from_secs(600);
/// After it has converged this long until memory is looked at, as after a sync.
const REST: Duration = Duration::from_secs(1);

/// What a controller takes.
struct Cost {
    lines: f64,
    /// Seconds from its start until all is as it should be.
    wall: f64,
    processor: f64,
    /// Bytes.
    resident: f64,
}

#[derive(Clone, Copy)]
enum Who {
    Ours,
    KubeRs,
    ControllerRuntime,
}

impl Who {
    fn name(self) -> &'static str {
        match self {
            Self::Ours => "ours",
            Self::KubeRs => "kube-rs",
            Self::ControllerRuntime => "controller-runtime",
        }
    }

    fn command(self) -> anyhow::Result<Command> {
        Ok(match self {
            Self::Ours => {
                let mut command = Command::new(std::env::current_exe()?);
                command.args(["bench", "controller-child"]);
                command
            }
            Self::KubeRs => Command::new(peers::kube_rs_controller()?),
            Self::ControllerRuntime => Command::new(peers::controller_runtime()?),
        })
    }

    /// The lines of its source that are neither blank nor comments.
    fn lines(self) -> anyhow::Result<f64> {
        let source = match self {
            Self::Ours => include_str!("controller/ours.rs").to_owned(),
            Self::KubeRs => peers::source("kube-rs/src/bin/controller.rs")?,
            Self::ControllerRuntime => peers::source("controller-runtime/main.go")?,
        };
        Ok(number(lines_of_code(&source)))
    }
}

/// The controller in this process, until it is told to stop.
pub(super) fn child() -> anyhow::Result<()> {
    Runtime::new()?.block_on(ours::run())
}

pub(super) fn run(arguments: &ControllerArguments) -> anyhow::Result<()> {
    let place = Place::new(&std::env::temp_dir())?;
    let runtime = Runtime::new()?;
    let measure = |who: Who| {
        // What is built is built before anything is measured.
        let (command, lines) = (who.command()?, who.lines()?);
        let directory = place.path(who.name());
        let cost = runtime.block_on(converge(command, lines, &directory, arguments.objects));
        cost.with_context(|| format!("the controller of {}", who.name()))
    };
    let ours = measure(Who::Ours)?;
    // No limit on requests a second: that of controller-runtime is lifted.
    let params =
        [("objects", arguments.objects.into()), ("workers", WORKERS), ("requests_limited", 0)];
    let mut found = Findings::new("controller", &params);
    for peer in [Who::KubeRs, Who::ControllerRuntime] {
        let theirs = arguments.common.peer(|| measure(peer))?;
        found.figures.extend(compare(peer, &ours, theirs.as_ref()));
    }
    found.notes = vec![format!(
        "{} deployments, a config map for each; {WORKERS} reconciles at a time, no limit on \
         requests a second (controller-runtime's default of 20 is lifted)",
        arguments.objects
    )];
    found.show(arguments.common.output);
    Ok(())
}

fn compare(peer: Who, ours: &Cost, theirs: Option<&Cost>) -> [Figure; 4] {
    let figure = |name, of: fn(&Cost) -> f64, unit| {
        Figure::new(name, of(ours), unit, (peer.name(), theirs.map(of)), 1.0)
    };
    [
        figure("lines of code", |it| it.lines, "lines"),
        figure("time to converge", |it| it.wall, "s"),
        figure("processor", |it| it.processor, "s"),
        figure("memory after", |it| it.resident / 1e6, "MB"),
    ]
}

/// Has a controller see to the deployments of a new server.
async fn converge(
    mut command: Command,
    lines: f64,
    directory: &Path,
    objects: u32,
) -> anyhow::Result<Cost> {
    let server = Server::start(directory).await?;
    server.fill(objects).await?;
    let began = Instant::now();
    command.env("KUBECONFIG", &server.kubeconfig).stdin(Stdio::null()).stdout(Stdio::null());
    let mut controller = Process(command.spawn().context("cannot start it")?);
    server.until_converged(objects, &mut controller).await?;
    let wall = began.elapsed().as_secs_f64();
    let processor = controller.usage().processor;
    sleep(REST).await;
    Ok(Cost { lines, wall, processor, resident: number(controller.usage().resident) })
}

/// `masthead serve` with a store in memory.
struct Server {
    _process: Process,
    client: Client,
    kubeconfig: PathBuf,
}

impl Server {
    async fn start(directory: &Path) -> anyhow::Result<Self> {
        fs::create_dir(directory)?;
        let kubeconfig = directory.join("kubeconfig");
        let text = |path: &Path| path.to_str().map(str::to_owned).context("no text for a path");
        let arguments = ["serve", "--store=memory", "--listen=127.0.0.1:0", "--data-dir"];
        let mut arguments: Vec<_> = arguments.map(str::to_owned).into();
        arguments.extend([text(directory)?, "--write-kubeconfig".to_owned(), text(&kubeconfig)?]);
        let mut process = Process::start(&arguments)?;
        // What it says is for people; it must not fill the pipe.
        let mut output = process.0.stdout.take().context("its output is ours")?;
        std::thread::spawn(move || std::io::copy(&mut output, &mut std::io::sink()));
        let client = patiently("the server", || connect(&kubeconfig)).await?;
        Ok(Self { _process: process, client, kubeconfig })
    }

    async fn fill(&self, objects: u32) -> anyhow::Result<()> {
        let api: Api<Deployment> = Api::namespaced(self.client.clone(), "default");
        let made = stream::iter(0..objects).map(|number| {
            let api = api.clone();
            async move {
                api.create(&PostParams::default(), &deployment(number)?).await?;
                anyhow::Ok(())
            }
        });
        made.buffer_unordered(MAKERS).try_for_each(async |()| Ok(())).await
    }

    async fn until_converged(&self, objects: u32, controller: &mut Process) -> anyhow::Result<()> {
        let maps: Api<ConfigMap> = Api::namespaced(self.client.clone(), "default");
        let deployments: Api<Deployment> = Api::namespaced(self.client.clone(), "default");
        let converged = async {
            // The maps are counted without being sent; the deployments are looked at when all are there.
            while count(&maps).await? < u64::from(objects) || !all_seen_to(&deployments).await? {
                let ended = controller.0.try_wait()?;
                ensure!(ended.is_none(), "it ended too soon: {ended:?}");
                sleep(PAUSE).await;
            }
            Ok(())
        };
        timeout(PATIENCE, converged).await.context("it did not converge")?
    }
}

/// Tries until it goes well.
async fn patiently<T, F: Future<Output = anyhow::Result<T>>>(
    what: &str,
    mut tried: impl FnMut() -> F,
) -> anyhow::Result<T> {
    let end = Instant::now() + PATIENCE;
    loop {
        match tried().await {
            Err(_) if Instant::now() < end => sleep(PAUSE).await,
            done => return done.with_context(|| format!("{what} is not ready")),
        }
    }
}

async fn connect(kubeconfig: &Path) -> anyhow::Result<Client> {
    let file = Kubeconfig::read_from(kubeconfig)?;
    let config = Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await?;
    let client = Client::try_from(config)?;
    client.apiserver_version().await?;
    Ok(client)
}

fn deployment(number: u32) -> Result<Deployment, serde_json::Error> {
    let app = json!({"app": format!("app-{number}")});
    serde_json::from_value(json!({
        "metadata": {"name": format!("deployment-{number}"), "labels": app},
        "spec": {"replicas": 1, "selector": {"matchLabels": app}, "template": {
            "metadata": {"labels": app},
            "spec": {"containers": [{"name": "main", "image": "registry.example/main:1"}]}}},
    }))
}

async fn count(maps: &Api<ConfigMap>) -> anyhow::Result<u64> {
    let page = maps.list_metadata(&ListParams::default().limit(1)).await?;
    let rest = page.metadata.remaining_item_count.unwrap_or_default();
    Ok(page.items.len() as u64 + u64::try_from(rest)?)
}

async fn all_seen_to(deployments: &Api<Deployment>) -> anyhow::Result<bool> {
    let all = deployments.list(&ListParams::default()).await?;
    let observed = |it: &Deployment| it.status.as_ref().and_then(|it| it.observed_generation);
    Ok(all.items.iter().all(|it| observed(it) == it.metadata.generation))
}

/// Lines that are neither blank nor comments, which in these sources are all of lines.
fn lines_of_code(source: &str) -> u64 {
    let code = |line: &&str| !line.trim().is_empty() && !line.trim().starts_with("//");
    source.lines().filter(code).count() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blank_lines_and_comments_are_no_code() {
        assert_eq!(lines_of_code("//! About.\n\nuse it;\n\t// Why.\n\n    it(); // How.\n"), 2);
    }

    #[test]
    fn all_three_have_a_source() {
        for who in [Who::Ours, Who::KubeRs, Who::ControllerRuntime] {
            assert!(who.lines().unwrap() > 20.0, "{}", who.name());
        }
    }
}
