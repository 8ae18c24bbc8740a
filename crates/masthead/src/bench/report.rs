//! Figures with what they are compared to.

use std::collections::BTreeMap;

use serde::Serialize;

/// One measured thing.
pub(super) struct Figure {
    /// What was measured.
    pub(super) name: &'static str,
    pub(super) ours: f64,
    pub(super) unit: &'static str,
    /// Whom it is compared to: a peer, a floor, or a limit.
    pub(super) against: &'static str,
    pub(super) theirs: Option<f64>,
    /// `ours / theirs` must not be above this.
    pub(super) at_most: f64,
}

/// A count as a number to divide by. What is counted here stays far below 2^52.
#[expect(clippy::cast_precision_loss, reason = "counts of bytes and objects on one machine")]
pub(super) fn number(count: u64) -> f64 {
    count as f64
}

impl Figure {
    pub(super) fn new(
        name: &'static str,
        ours: f64,
        unit: &'static str,
        (against, theirs): (&'static str, Option<f64>),
        at_most: f64,
    ) -> Self {
        Self { name, ours, unit, against, theirs, at_most }
    }

    fn ratio(&self) -> Option<f64> {
        self.theirs.map(|theirs| self.ours / theirs)
    }

    fn holds(&self) -> Option<bool> {
        self.ratio().map(|ratio| ratio <= self.at_most)
    }
}

/// Three digits, and all of them before the point.
fn rounded(value: f64) -> String {
    let places = match value {
        10.0..100.0 => 1,
        0.001..10.0 => 2,
        _ => 0,
    };
    format!("{value:.places$}")
}

/// By the name of a figure, and by what it is set against: a figure may have several peers.
type Against<'a> = BTreeMap<&'a str, BTreeMap<&'a str, f64>>;

/// A scenario's result, in the form that all scenarios share.
#[derive(Serialize)]
struct Json<'a> {
    scenario: &'a str,
    machine: &'a str,
    params: BTreeMap<&'a str, u64>,
    ours: BTreeMap<&'a str, f64>,
    floor: Against<'a>,
    peers: Against<'a>,
    ratio: Against<'a>,
}

#[expect(clippy::print_stdout, reason = "the figures are what the command is for")]
pub(super) fn json(
    scenario: &str,
    machine: &str,
    params: &[(&'static str, u64)],
    figures: &[Figure],
) {
    println!("{}", json_text(scenario, machine, params, figures));
}

fn json_text(
    scenario: &str,
    machine: &str,
    params: &[(&'static str, u64)],
    figures: &[Figure],
) -> String {
    let is_peer = |f: &&Figure| {
        matches!(f.against, "client-go" | "controller-runtime" | "kube-apiserver" | "kube-rs")
    };
    let json = Json {
        scenario,
        machine,
        params: params.iter().copied().collect(),
        ours: figures.iter().map(|f| (f.name, f.ours)).collect(),
        floor: against(figures.iter().filter(|f| !is_peer(f)), |f| f.theirs),
        peers: against(figures.iter().filter(is_peer), |f| f.theirs),
        ratio: against(figures.iter(), Figure::ratio),
    };
    serde_json::to_string(&json).expect("plain numbers and text")
}

fn against<'a>(
    figures: impl Iterator<Item = &'a Figure>,
    value: impl Fn(&Figure) -> Option<f64>,
) -> Against<'a> {
    let mut all = Against::new();
    for figure in figures {
        if let Some(value) = value(figure) {
            all.entry(figure.name).or_default().insert(figure.against, value);
        }
    }
    all
}

#[expect(clippy::print_stdout, reason = "the figures are what the command is for")]
pub(super) fn table(machine: &str, notes: &[String], figures: &[Figure]) {
    println!("{machine}\n");
    println!("{:<50} {:>12} {:>29} {:>7} {:>7}", "", "ours", "against", "ratio", "limit");
    for figure in figures {
        let ours = format!("{} {}", rounded(figure.ours), figure.unit);
        let against = match figure.theirs {
            Some(theirs) => format!("{} {} {}", figure.against, rounded(theirs), figure.unit),
            None => format!("{} –", figure.against),
        };
        let ratio = figure.ratio().map_or("–".to_owned(), |ratio| format!("{ratio:.2}"));
        let verdict = match figure.holds() {
            Some(true) | None => "",
            Some(false) => "  missed",
        };
        println!(
            "{:<50} {ours:>12} {against:>29} {ratio:>7} {:>7.2}{verdict}",
            figure.name, figure.at_most
        );
    }
    for note in notes {
        println!("\n{note}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_figure_with_two_peers_has_both_in_the_json() {
        let figure = |against, theirs| Figure::new("memory", 3.0, "MB", (against, theirs), 1.0);
        let figures = [
            figure("kube-rs", Some(6.0)),
            figure("client-go", Some(4.0)),
            figure("bare loop", Some(1.5)),
            figure("kube-apiserver", None),
        ];
        let text = json_text("sync", "a machine", &[("pods", 7)], &figures);
        let json: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!(
            json,
            serde_json::json!({
                "scenario": "sync", "machine": "a machine", "params": {"pods": 7},
                "ours": {"memory": 3.0},
                "floor": {"memory": {"bare loop": 1.5}},
                "peers": {"memory": {"kube-rs": 6.0, "client-go": 4.0}},
                "ratio": {"memory": {"kube-rs": 0.5, "client-go": 0.75, "bare loop": 2.0}},
            })
        );
    }
}
