//! A list that has to be read again, as its watch was away for longer than the server remembers: what it
//! costs a client that has almost all of it already, against client-go.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Command, Stdio};

use anyhow::Context as _;
use clap::Args;
use tokio::runtime::Runtime;

use super::process::{Process, Served, Side};
use super::proxy::Proxy;
use super::report::{Figure, Findings, median};
use super::{Common, peers};

/// Changes that the server remembers, and those that happen while the client is away.
const REMEMBERED: u32 = 10;
const MISSED: u32 = 100;

#[derive(Args)]
pub(crate) struct RelistArguments {
    /// Pods at the server
    #[arg(long, default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(1_000..=200_000))]
    pods: u32,
    /// Rounds; the median of each side counts
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=20))]
    rounds: u32,
    #[command(flatten)]
    common: Common,
}

pub(super) fn run(arguments: &RelistArguments) -> anyhow::Result<()> {
    let runtime = Runtime::new()?;
    let measure = |command: &dyn Fn(&str, &str) -> anyhow::Result<Command>| {
        let once = || relist(&runtime, arguments.pods, command);
        let costs = (0..arguments.rounds).map(|_| once()).collect::<anyhow::Result<Vec<_>>>()?;
        anyhow::Ok(median(costs))
    };
    let ours = measure(&|address, token| {
        let mut command = peers::ours(address, token, "raw", "automatic")?;
        command.arg("--again");
        Ok(command)
    })?;
    let theirs = arguments.common.peer(|| {
        measure(&|address, token| {
            let mut command = Command::new(peers::client_go_program()?);
            command.args(["-again", "-sync", address, "-token", token]);
            Ok(command)
        })
    })?;
    let params = [("pods", arguments.pods.into()), ("rounds", arguments.rounds.into())];
    let mut found = Findings::new("relist", &params);
    let against = ("client-go", theirs.map(|it| it * 1e3));
    found.figures = vec![Figure::new("processor of a relist", ours * 1e3, "ms", against, 0.2)];
    found.show(arguments.common.output);
    Ok(())
}

/// Processor seconds of a client from the moment that it is cut off until it has everything again.
fn relist(
    runtime: &Runtime,
    pods: u32,
    command: &dyn Fn(&str, &str) -> anyhow::Result<Command>,
) -> anyhow::Result<f64> {
    let more = [format!("--history={REMEMBERED}")];
    let mut served = Served::start_with(Side::Plain, pods, 0, &more)?;
    let way = runtime.block_on(Proxy::to(served.hello.address, None))?;
    let mut command = command(&way.address.to_string(), &served.hello.token)?;
    let child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
    let mut client = Process(child.context("cannot start a client")?);
    let mut input = client.0.stdin.take().context("its input is ours")?;
    let mut lines = BufReader::new(client.0.stdout.take().context("its output is ours")?).lines();
    let mut hear = || lines.next().context("the client ended")?.context("no text");
    hear().context("it never synced")?;
    way.cut();
    served.update(10_000, MISSED)?;
    let before = client.usage().processor;
    writeln!(input, "{}", served.hello.revision + u64::from(MISSED))?;
    way.heal();
    hear().context("it never listed again")?;
    Ok(client.usage().processor - before)
}
