//! The signals that end the server.

use std::io;

use tokio::signal::unix::{Signal, SignalKind, signal};

/// SIGINT, SIGTERM, and SIGHUP, which comes when the terminal is closed. A program that was started with
/// SIGHUP ignored, as `nohup` does, goes on ignoring it.
pub(super) struct StopSignals {
    interrupt: Signal,
    terminate: Signal,
    hangup: Option<Signal>,
}

impl StopSignals {
    pub(super) fn new() -> io::Result<Self> {
        let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
        let hangup =
            if ignores_hangup(&status) { None } else { Some(signal(SignalKind::hangup())?) };
        let interrupt = signal(SignalKind::interrupt())?;
        let terminate = signal(SignalKind::terminate())?;
        Ok(Self { interrupt, terminate, hangup })
    }

    /// Returns when one of them has come.
    pub(super) async fn recv(&mut self) {
        let hangup = async {
            match &mut self.hangup {
                Some(hangup) => hangup.recv().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
            _ = hangup => {}
        }
    }
}

/// Whether SIGHUP, the first signal, is in the mask of ignored ones of `/proc/self/status`.
fn ignores_hangup(status: &str) -> bool {
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    mask.is_some_and(|mask| mask & 1 == 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_ignored_hangup_is_seen_in_the_status_of_the_process() {
        assert!(ignores_hangup("Name:\tx\nSigIgn:\t0000000000001001\n"));
        assert!(!ignores_hangup("Name:\tx\nSigIgn:\t0000000000001000\n"));
        assert!(!ignores_hangup(""));
    }
}
