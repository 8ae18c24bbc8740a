//! The child from its parent's side.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::child::{self, Answer, Hello, Order, Restarted};
use super::machine::{Usage, usage};
use super::peers;
use super::place::Place;

/// How long the other side may take to end by itself.
const PATIENCE: Duration = Duration::from_secs(10);

/// A process that ends with its owner, whatever happens.
pub(super) struct Process(pub(super) Child);

impl Process {
    /// This program with other arguments and nothing of the environment's settings.
    pub(super) fn start(arguments: &[String]) -> anyhow::Result<Self> {
        let mut command = Command::new(std::env::current_exe()?);
        for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("MASTHEAD_")) {
            command.env_remove(name);
        }
        command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped());
        Ok(Self(command.spawn().context("cannot start the other side")?))
    }

    pub(super) fn usage(&self) -> Usage {
        usage(self.0.id())
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // It may be gone already; nobody waits for what it was.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// What the child serves.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Side {
    Plain,
    Tls,
    /// The floor.
    Bare,
    BareTls,
    /// The floor of delays: a thread for each core.
    BareTlsWide,
    /// The peer, over TLS as it always is.
    Apiserver,
}

/// A child that has said hello.
pub(super) struct Served {
    process: Process,
    /// Nothing once it is to end.
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
    pub(super) hello: Hello,
}

impl Served {
    pub(super) fn start(side: Side, pods: u32, nodes: u32) -> anyhow::Result<Self> {
        Self::start_with(side, pods, nodes, &[])
    }

    /// The same with more arguments for the child.
    pub(super) fn start_with(
        side: Side,
        pods: u32,
        nodes: u32,
        more: &[String],
    ) -> anyhow::Result<Self> {
        // What the peer reads of it, it has read when it says hello.
        let place = Place::new(&std::env::temp_dir())?;
        let mut process = if side == Side::Apiserver {
            Process(apiserver(pods, nodes, &place)?.spawn().context("cannot start the peer")?)
        } else {
            let mut arguments: Vec<String> = ["bench", "serve-child"].map(str::to_owned).into();
            arguments.extend([format!("--pods={pods}"), format!("--nodes={nodes}")]);
            arguments.extend(side.arguments().iter().map(|it| (*it).to_owned()));
            arguments.extend_from_slice(more);
            Process::start(&arguments)?
        };
        let input = Some(process.0.stdin.take().context("its input is ours")?);
        let mut output = BufReader::new(process.0.stdout.take().context("its output is ours")?);
        let hello = hear(&mut output)?;
        Ok(Self { process, input, output, hello })
    }

    /// Of the server, which may be a process of the child's.
    pub(super) fn usage(&self) -> Usage {
        usage(self.hello.process.unwrap_or(self.process.0.id()))
    }

    /// How many watches it has.
    pub(super) fn watches(&mut self) -> anyhow::Result<usize> {
        self.tell(&Order::Watches)?;
        match hear(&mut self.output)? {
            Answer::Watches(count) => Ok(count),
            _ => anyhow::bail!("the child answers something else"),
        }
    }

    /// Has it rewrite so many of a hundred pods.
    pub(super) fn touch(&mut self, percent: u32) -> anyhow::Result<u32> {
        self.tell(&Order::Touch { percent })?;
        match hear(&mut self.output)? {
            Answer::Touched(count) => Ok(count),
            _ => anyhow::bail!("the child answers something else"),
        }
    }

    /// Has the peer start again on what it has stored; gives the milliseconds until it was ready.
    pub(super) fn restart(&mut self) -> anyhow::Result<f64> {
        self.tell(&Order::Restart)?;
        match hear(&mut self.output)? {
            Answer::Restarted(Restarted { process, ready_ms }) => {
                self.hello.process = Some(process);
                Ok(ready_ms)
            }
            _ => anyhow::bail!("the child answers something else"),
        }
    }

    /// Has it update pods at a pace; gives the time of each update once all are made.
    pub(super) fn update(&mut self, rate: u32, count: u32) -> anyhow::Result<Vec<u64>> {
        self.tell(&Order::Update { rate, count })?;
        match hear(&mut self.output)? {
            Answer::Updated(times) => Ok(times),
            _ => anyhow::bail!("the child answers something else"),
        }
    }

    fn tell(&mut self, order: &impl Serialize) -> anyhow::Result<()> {
        let mut line = serde_json::to_vec(order)?;
        line.push(b'\n');
        Ok(self.input.as_mut().context("it is to end")?.write_all(&line)?)
    }
}

impl Drop for Served {
    /// It ends with its input, and tidies up; what does not is killed.
    fn drop(&mut self) {
        self.input = None;
        let deadline = Instant::now() + PATIENCE;
        while matches!(self.process.0.try_wait(), Ok(None)) && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

impl Side {
    fn arguments(self) -> &'static [&'static str] {
        match self {
            Self::Plain | Self::Apiserver => &[],
            Self::Tls => &["--tls"],
            Self::Bare => &["--bare"],
            Self::BareTls => &["--bare", "--tls"],
            Self::BareTlsWide => &["--bare", "--tls", "--wide"],
        }
    }
}

/// The peer with the same pods as ours.
fn apiserver(pods: u32, nodes: u32, place: &Place) -> anyhow::Result<Command> {
    let mut command = Command::new(peers::kube_apiserver()?);
    let file = place.path("pods");
    child::write_pods(pods, nodes, &file)?;
    command.args(["child", &format!("-pods={pods}"), "-from"]);
    command.arg(file).stdin(Stdio::piped()).stdout(Stdio::piped());
    Ok(command)
}

fn hear<T: DeserializeOwned>(output: &mut BufReader<ChildStdout>) -> anyhow::Result<T> {
    let mut line = String::new();
    output.read_line(&mut line)?;
    serde_json::from_str(&line).with_context(|| format!("the other side says {line:?}"))
}
