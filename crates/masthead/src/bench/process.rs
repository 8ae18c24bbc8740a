//! The child from its parent's side.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use anyhow::Context as _;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::child::{Answer, Hello, Order};
use super::machine::{Usage, usage};

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
#[derive(Clone, Copy)]
pub(super) enum Side {
    Plain,
    Tls,
    /// The floor.
    Bare,
}

/// A child that has said hello.
pub(super) struct Served {
    process: Process,
    input: ChildStdin,
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
        let mut arguments: Vec<String> = ["bench", "serve-child"].map(str::to_owned).into();
        arguments.extend([format!("--pods={pods}"), format!("--nodes={nodes}")]);
        match side {
            Side::Plain => {}
            Side::Tls => arguments.push("--tls".to_owned()),
            Side::Bare => arguments.push("--bare".to_owned()),
        }
        arguments.extend_from_slice(more);
        let mut process = Process::start(&arguments)?;
        let input = process.0.stdin.take().context("its input is ours")?;
        let mut output = BufReader::new(process.0.stdout.take().context("its output is ours")?);
        let hello = hear(&mut output)?;
        Ok(Self { process, input, output, hello })
    }

    pub(super) fn usage(&self) -> Usage {
        self.process.usage()
    }

    /// How many watches it has.
    pub(super) fn watches(&mut self) -> anyhow::Result<usize> {
        self.tell(&Order::Watches)?;
        match hear(&mut self.output)? {
            Answer::Watches(count) => Ok(count),
            Answer::Updated(_) => anyhow::bail!("the child answers something else"),
        }
    }

    /// Has it update pods at a pace; gives the time of each update once all are made.
    pub(super) fn update(&mut self, rate: u32, count: u32) -> anyhow::Result<Vec<u64>> {
        self.tell(&Order::Update { rate, count })?;
        match hear(&mut self.output)? {
            Answer::Updated(times) => Ok(times),
            Answer::Watches(_) => anyhow::bail!("the child answers something else"),
        }
    }

    fn tell(&mut self, order: &impl Serialize) -> anyhow::Result<()> {
        let mut line = serde_json::to_vec(order)?;
        line.push(b'\n');
        Ok(self.input.write_all(&line)?)
    }
}

fn hear<T: DeserializeOwned>(output: &mut BufReader<ChildStdout>) -> anyhow::Result<T> {
    let mut line = String::new();
    output.read_line(&mut line)?;
    serde_json::from_str(&line).with_context(|| format!("the other side says {line:?}"))
}
