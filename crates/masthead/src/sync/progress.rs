//! How far everything is, while it runs: bars on a terminal, lines elsewhere, always on standard error.

use std::io::{IsTerminal, Write};
use std::time::Duration;

use indicatif::{MultiProgress, ProgressBar, ProgressStyle};
use masthead_informer::{Factory, ResourceReport};
use masthead_reflector::Phase;
use tokio::time::{Instant, interval};

use super::Wanted;
use crate::client::limits::{LINE, RATE, REDRAW};
use crate::client::units::{bytes, counted};

/// Shows the progress of some resources.
pub(super) struct Progress {
    names: Vec<String>,
    rates: Vec<Rate>,
    how: How,
}

enum How {
    Not,
    /// Those that were told to have synced.
    Lines(Vec<bool>),
    Bars(MultiProgress, Vec<ProgressBar>),
}

/// Bytes a second, over about [`RATE`].
#[derive(Clone, Copy)]
struct Rate {
    since: Instant,
    bytes: u64,
    per_second: u64,
}

impl Progress {
    pub(super) fn new(wanted: &[Wanted], shown: bool) -> Self {
        let names: Vec<_> = wanted.iter().map(|it| it.resource.to_string()).collect();
        let how = if !shown {
            How::Not
        } else if std::io::stderr().is_terminal() {
            let all = MultiProgress::new();
            let bars = names.iter().map(|name| all.add(bar(name, &names))).collect();
            How::Bars(all, bars)
        } else {
            How::Lines(vec![false; names.len()])
        };
        let rate = Rate { since: Instant::now(), bytes: 0, per_second: 0 };
        Self { rates: vec![rate; names.len()], names, how }
    }

    /// Says something besides, unless nothing is to be said.
    pub(super) fn say(&self, text: &str) {
        match &self.how {
            How::Not => {}
            How::Lines(_) => line(text),
            // A terminal that is gone is no reason to stop.
            How::Bars(all, _) => drop(all.println(text)),
        }
    }

    /// Shows what there is until it is dropped.
    pub(super) async fn show(&mut self, factory: &Factory) {
        let mut tick = interval(match self.how {
            How::Bars(..) => REDRAW,
            How::Lines(_) | How::Not => LINE,
        });
        tick.tick().await;
        loop {
            tick.tick().await;
            let report = factory.report();
            for (at, resource) in report.resources.iter().enumerate() {
                self.rates[at].measure(resource.report.bytes);
                self.show_one(at, resource);
            }
        }
    }

    fn show_one(&mut self, at: usize, resource: &ResourceReport) {
        let text = text(resource, self.rates[at].per_second);
        match &mut self.how {
            How::Not => {}
            How::Lines(told) if told[at] => {}
            How::Lines(told) => {
                told[at] = resource.synced();
                line(&format!("{}: {text}", self.names[at]));
            }
            How::Bars(_, bars) if bars[at].is_finished() => {}
            How::Bars(_, bars) if resource.synced() => {
                bars[at].set_length(1);
                bars[at].finish_with_message(text);
            }
            How::Bars(_, bars) => {
                let (done, all) = part(resource);
                bars[at].set_length(all.max(1));
                bars[at].set_position(done);
                bars[at].set_message(text);
                bars[at].tick();
            }
        }
    }

    /// Takes away what is drawn: the result says it all once more.
    pub(super) fn clear(&self) {
        if let How::Bars(all, bars) = &self.how {
            bars.iter().for_each(ProgressBar::finish_and_clear);
            let _ = all.clear();
        }
    }
}

impl Rate {
    fn measure(&mut self, bytes: u64) {
        let passed = self.since.elapsed();
        if passed >= RATE {
            self.per_second = per_second(bytes.saturating_sub(self.bytes), passed);
            (self.since, self.bytes) = (Instant::now(), bytes);
        }
    }
}

fn per_second(bytes: u64, time: Duration) -> u64 {
    let millis = u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
    bytes.saturating_mul(1000) / millis.max(1)
}

fn bar(name: &str, names: &[String]) -> ProgressBar {
    let width = names.iter().map(String::len).max().unwrap_or_default();
    let style = ProgressStyle::with_template("{spinner} {prefix} {bar:20} {wide_msg}");
    let style = style.expect("is a template").progress_chars("━╸ ").tick_chars("⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏✓");
    let bar = ProgressBar::new(1).with_style(style).with_prefix(format!("{name:width$}"));
    bar.with_message("connecting")
}

/// Objects that are there, and how many there may be in the end; none if nobody knows.
fn part(resource: &ResourceReport) -> (u64, u64) {
    match resource.report.phase {
        Phase::Listing { objects, about: Some(about) } => (objects, about),
        _ => (0, 0),
    }
}

/// Where one resource stands, in a line.
fn text(resource: &ResourceReport, per_second: u64) -> String {
    let report = &resource.report;
    let received = bytes(report.bytes);
    if resource.synced() {
        return format!("synced {}, {received}", counted(report.objects, "object"));
    }
    let phase = match report.phase {
        Phase::Failed => "waiting to try again".to_owned(),
        Phase::Connecting if report.attempts == 0 => return "waiting for its turn".to_owned(),
        Phase::Connecting if report.bytes > 0 => "receiving".to_owned(),
        phase => phase.to_string(),
    };
    let mut parts = vec![format!("{phase}, {received} at {}/s", bytes(per_second))];
    if report.pages > 0 {
        parts.push(counted(report.pages, "page"));
    }
    if report.attempts > 1 {
        parts.push(format!("attempt {}", report.attempts));
    }
    if let Some(error) = &report.last_error {
        parts.push(format!("last error {}: {}", error.class, error.text));
    }
    parts.join(", ")
}

fn line(text: &str) {
    // Whoever listened may be gone; the result counts.
    let _ = writeln!(std::io::stderr(), "{text}");
}
