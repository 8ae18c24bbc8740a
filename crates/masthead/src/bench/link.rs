//! A sync over a slow link where requests are cut after a time: the case in which an informer may never get
//! there, and never say so.

use std::process::Command;

use clap::Args;
use tokio::runtime::Runtime;

use super::process::{Served, Side};
use super::proxy::Proxy;
use super::report::{Figure, Findings};
use super::sync::finish;
use super::{Common, peers};

/// When a request is cut, in seconds.
const CUT: u32 = 6;
/// How long a client has that may never get there.
const PATIENCE: u32 = 60;

#[derive(Args)]
pub(crate) struct LinkArguments {
    /// Pods at the server
    #[arg(long, default_value_t = 200, value_parser = clap::value_parser!(u32).range(50..=5_000))]
    pods: u32,
    /// Bytes a second that all answers have together
    #[arg(long, default_value_t = 200_000, value_parser = clap::value_parser!(u32).range(10_000..))]
    bytes: u32,
    #[command(flatten)]
    common: Common,
}

pub(super) fn run(arguments: &LinkArguments) -> anyhow::Result<()> {
    let runtime = Runtime::new()?;
    let served = Served::start(Side::Plain, arguments.pods, 0)?;
    let link = runtime.block_on(Proxy::to(served.hello.address, Some(arguments.bytes)))?;
    let (address, token) = (link.address.to_string(), served.hello.token.as_str());
    let ours = |seconds: Option<u32>| {
        let mut command = peers::ours(&address, token, "raw", "automatic")?;
        command.args(seconds.map(|it| format!("--request-seconds={it}")));
        finish(command)
    };
    let (free, cut) = (ours(None)?, ours(Some(CUT))?);
    let peer = arguments.common.peer(|| {
        let mut command = Command::new(peers::client_go_program()?);
        command.args(["-sync", &address, "-token", token, "-encoding", "application/json"]);
        command.args([format!("-timeout={CUT}s"), format!("-patience={PATIENCE}s")]);
        finish(command)
    })?;
    let params = [
        ("pods", arguments.pods.into()),
        ("bytes_a_second", arguments.bytes.into()),
        ("cut_seconds", CUT.into()),
    ];
    let mut found = Findings::new("link", &params);
    found.figures = vec![
        Figure::new("sync, requests cut", cut.wall, "s", ("never cut", Some(free.wall)), 1.3),
        Figure::new(
            "sync, requests cut",
            cut.wall,
            "s",
            ("client-go", peer.as_ref().map(|it| it.wall)),
            0.5,
        ),
    ];
    found.notes.extend(peer.filter(|it| it.objects == 0).map(|it| {
        format!(
            "client-go has no pods after {:.0} s and was given up: it may never get there",
            it.wall
        )
    }));
    found.show(arguments.common.output);
    Ok(())
}
