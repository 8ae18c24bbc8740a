//! Syncs all pods with an informer, in a program that does nothing else, as those of the peers do; prints one
//! JSON object: seconds on the clock and of processor, bytes resident afterwards and at the most.

use std::io::Write as _;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use clap::{Parser, ValueEnum};
use k8s_openapi::api::core::v1::Pod;
use masthead_core::Revision;
use masthead_informer::upstream::{Settings, Upstream, kube_client};
use masthead_informer::{Factory, FactorySettings, Representation, Timeouts};
use masthead_reflector::Strategy;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use serde_json::{Value, json};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// How long a list that is read again may take.
const AGAIN: Duration = Duration::from_secs(120);
/// After a sync this long until memory is looked at, as in the peers: allocators give back what they do not
/// need, ours after a second.
const REST: Duration = Duration::from_secs(3);

#[derive(Parser)]
struct Arguments {
    /// Where the server is
    #[arg(long)]
    address: String,
    /// Its token
    #[arg(long)]
    token: String,
    /// The authority of its certificate, if it talks TLS
    #[arg(long)]
    ca: Option<PathBuf>,
    /// How objects are held
    #[arg(long, value_enum)]
    representation: Held,
    /// How they are listed
    #[arg(long, value_enum)]
    listed: Listed,
    /// When a request is cut
    #[arg(long)]
    request_seconds: Option<u64>,
    /// Say when it has synced, and again when it has the revision that its input names
    #[arg(long)]
    again: bool,
}

#[derive(Clone, Copy, ValueEnum)]
enum Held {
    Raw,
    Typed,
    Compact,
}

#[derive(Clone, Copy, ValueEnum)]
enum Listed {
    /// As a stream of initial events
    Stream,
    Pages,
    /// As an informer does that is not told
    Automatic,
}

fn main() -> anyhow::Result<()> {
    #[cfg(target_os = "linux")]
    rustix::thread::disable_transparent_huge_pages(true)?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    say(&runtime.block_on(sync(&Arguments::parse()))?)
}

/// Syncs; gives what it took.
async fn sync(arguments: &Arguments) -> anyhow::Result<Value> {
    let scheme = if arguments.ca.is_some() { "https" } else { "http" };
    let url = format!("{scheme}://{}", arguments.address);
    let mut config = kube_client::Config::new(url.parse()?);
    if let Some(ca) = &arguments.ca {
        config.root_cert = Some(vec![CertificateDer::from_pem_file(ca)?.to_vec()]);
    }
    config.auth_info.token = Some(arguments.token.clone().into());
    let began = Instant::now();
    let upstream = Upstream::from_config(config, Settings::default()).await?;
    let strategy = match arguments.listed {
        Listed::Stream => Strategy::Streaming,
        Listed::Pages => Strategy::Pages,
        Listed::Automatic => Strategy::default(),
    };
    let mut settings = FactorySettings { strategy, ..FactorySettings::default() };
    if let Some(seconds) = arguments.request_seconds {
        let [connect, progress, request] = [4, 2, 1].map(|it| Duration::from_secs(seconds) / it);
        settings.timeouts = Timeouts { connect, progress, request, ..settings.timeouts };
    }
    let factory = Factory::with_settings(upstream, settings)?;
    let representation = match arguments.representation {
        Held::Raw => Representation::Raw,
        Held::Typed => Representation::Typed,
        Held::Compact => Representation::Compact,
    };
    let pods = factory.informer::<Pod>().representation(representation).build()?;
    factory.start();
    factory.wait_for_sync().await?;
    let (wall, processor) = (began.elapsed().as_secs_f64(), processor()?);
    if arguments.again {
        say(&json!("synced"))?;
        let mut line = String::new();
        std::io::stdin().read_line(&mut line)?;
        let key = &pods.lister().iter().next().context("there are no pods")?.key().clone();
        pods.get_at_least(key, Revision(line.trim().parse()?), AGAIN).await?;
        say(&json!("again"))?;
    }
    tokio::time::sleep(REST).await;
    Ok(json!({
        "objects": pods.lister().len(), "wall": wall, "processor": processor,
        "resident": status("VmRSS:")?, "peak": status("VmHWM:")?,
    }))
}

/// Seconds of processor so far: ticks of 10 ms, the 12th and 13th field after the name.
fn processor() -> anyhow::Result<f64> {
    let stat = std::fs::read_to_string("/proc/self/stat").context("this needs Linux")?;
    let (_, fields) = stat.rsplit_once(')').context("no name")?;
    let ticks = fields.split_whitespace().skip(11).take(2).map(str::parse::<f64>);
    Ok(ticks.sum::<Result<f64, _>>()? / 100.0)
}

/// Bytes from a line of this process's status.
fn status(name: &str) -> anyhow::Result<u64> {
    let status = std::fs::read_to_string("/proc/self/status").context("this needs Linux")?;
    let line = status.lines().find_map(|line| line.strip_prefix(name)).context("no such line")?;
    Ok(line.trim().trim_end_matches(" kB").parse::<u64>()? * 1024)
}

fn say(words: &Value) -> anyhow::Result<()> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{words}")?;
    Ok(out.flush()?)
}
