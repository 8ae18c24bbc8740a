//! Figures with what they are compared to.

use std::collections::BTreeMap;

use serde::Serialize;

use super::{Output, machine};

/// Programs that do the same as ours; all else that a figure is set against is a floor or a limit.
const PEERS: [&str; 5] =
    ["client-go", "client-go, protobuf", "controller-runtime", "kube-apiserver", "kube-rs"];

/// One measured thing. It is a cost: less is better.
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

/// How a cost grows.
pub(super) struct Growth {
    /// What was measured.
    pub(super) name: &'static str,
    pub(super) unit: &'static str,
    /// With what it grows.
    pub(super) with: &'static str,
    /// How many of those, and the cost.
    pub(super) points: Vec<(f64, f64)>,
}

/// What a scenario found.
pub(super) struct Findings {
    pub(super) scenario: &'static str,
    pub(super) params: Vec<(&'static str, u64)>,
    pub(super) figures: Vec<Figure>,
    pub(super) growth: Vec<Growth>,
    /// What the figures do not say, for people.
    pub(super) notes: Vec<String>,
}

/// A count as a number to divide by. What is counted here stays far below 2^52.
#[expect(clippy::cast_precision_loss, reason = "counts of bytes and objects on one machine")]
pub(super) fn number(count: u64) -> f64 {
    count as f64
}

/// The middle one, or the upper of the two in the middle.
pub(super) fn median(mut all: Vec<f64>) -> f64 {
    all.sort_by(f64::total_cmp);
    all.get(all.len() / 2).copied().unwrap_or(f64::NAN)
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

    fn is_to_peer(&self) -> bool {
        PEERS.contains(&self.against)
    }
}

impl Growth {
    /// The power of the number that the cost grows with, by least squares over the logarithms.
    pub(super) fn exponent(&self) -> f64 {
        let points = || self.points.iter().map(|(x, y)| (x.ln(), y.ln()));
        let count = number(self.points.len() as u64);
        let (x, y) = points().fold((0.0, 0.0), |sum, (x, y)| (sum.0 + x, sum.1 + y));
        let (x, y) = (x / count, y / count);
        let across: f64 = points().map(|it| (it.0 - x) * (it.1 - y)).sum();
        let along: f64 = points().map(|it| (it.0 - x).powi(2)).sum();
        across / along
    }
}

impl Findings {
    pub(super) fn new(scenario: &'static str, params: &[(&'static str, u64)]) -> Self {
        let (figures, growth, notes) = (Vec::new(), Vec::new(), Vec::new());
        Self { scenario, params: params.to_vec(), figures, growth, notes }
    }

    /// Prints what was found.
    #[expect(clippy::print_stdout, reason = "the figures are what the command is for")]
    pub(super) fn show(&self, output: Output) {
        let machine = machine::description();
        match output {
            Output::Table => println!("{}", self.table(&machine)),
            Output::Json => println!("{}", self.json(&machine)),
        }
    }

    fn table(&self, machine: &str) -> String {
        let mut lines = vec![machine.to_owned()];
        let head = ["", "ours", "against", "ratio", "limit"];
        lines.push(format!(
            "\n{:<50} {:>12} {:>31} {:>7} {:>7}",
            head[0], head[1], head[2], head[3], head[4]
        ));
        lines.extend(self.figures.iter().map(row));
        for it in &self.growth {
            let points = it.points.iter().map(|(x, y)| format!("{x}: {} {}", rounded(*y), it.unit));
            let points = points.collect::<Vec<_>>().join(", ");
            let (name, with, power) = (it.name, it.with, it.exponent());
            lines.push(format!("\n{name}, by {with}: {points}; power {power:.2}"));
        }
        lines.extend(self.notes.iter().map(|note| format!("\n{note}")));
        lines.join("\n")
    }

    fn json(&self, machine: &str) -> String {
        let json = Json {
            scenario: self.scenario,
            machine,
            params: self.params.iter().copied().collect(),
            ours: self.figures.iter().map(|it| (it.name, it.ours)).collect(),
            floor: against(self.figures.iter().filter(|it| !it.is_to_peer()), |it| it.theirs),
            peers: against(self.figures.iter().filter(|it| it.is_to_peer()), |it| it.theirs),
            ratio: against(self.figures.iter(), Figure::ratio),
            figures: self.figures.iter().map(JsonFigure::from).collect(),
            growth: self.growth.iter().map(JsonGrowth::from).collect(),
            notes: &self.notes,
        };
        serde_json::to_string(&json).expect("plain numbers and text")
    }
}

fn row(figure: &Figure) -> String {
    let ours = format!("{} {}", rounded(figure.ours), figure.unit);
    let against = match figure.theirs {
        Some(theirs) => format!("{} {} {}", figure.against, rounded(theirs), figure.unit),
        None => format!("{} –", figure.against),
    };
    let ratio = figure.ratio().map_or("–".to_owned(), |ratio| format!("{ratio:.2}"));
    let verdict = if figure.holds() == Some(false) { "  missed" } else { "" };
    let (name, limit) = (figure.name, figure.at_most);
    format!("{name:<50} {ours:>12} {against:>31} {ratio:>7} {limit:>7.2}{verdict}")
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
    /// The same in the order of the table, with units and limits.
    figures: Vec<JsonFigure<'a>>,
    growth: Vec<JsonGrowth<'a>>,
    notes: &'a [String],
}

#[derive(Serialize)]
struct JsonFigure<'a> {
    name: &'a str,
    unit: &'a str,
    ours: f64,
    against: &'a str,
    theirs: Option<f64>,
    /// Nothing where there is no limit.
    at_most: Option<f64>,
}

impl<'a> From<&'a Figure> for JsonFigure<'a> {
    fn from(figure: &'a Figure) -> Self {
        let &Figure { name, ours, unit, against, theirs, at_most } = figure;
        Self { name, unit, ours, against, theirs, at_most: at_most.is_finite().then_some(at_most) }
    }
}

#[derive(Serialize)]
struct JsonGrowth<'a> {
    name: &'a str,
    unit: &'a str,
    with: &'a str,
    points: &'a [(f64, f64)],
    exponent: f64,
}

impl<'a> From<&'a Growth> for JsonGrowth<'a> {
    fn from(growth: &'a Growth) -> Self {
        let (points, exponent) = (&growth.points[..], growth.exponent());
        Self { name: growth.name, unit: growth.unit, with: growth.with, points, exponent }
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_figure_with_two_peers_has_both_in_the_json() {
        let figure = |against, theirs| Figure::new("memory", 3.0, "MB", (against, theirs), 1.0);
        let mut found = Findings::new("sync", &[("pods", 7)]);
        found.figures = vec![
            figure("kube-rs", Some(6.0)),
            figure("client-go", Some(4.0)),
            figure("bare loop", Some(1.5)),
            figure("kube-apiserver", None),
        ];
        let json: serde_json::Value = serde_json::from_str(&found.json("a machine")).unwrap();
        assert_eq!(json["ours"], serde_json::json!({"memory": 3.0}));
        assert_eq!(json["floor"], serde_json::json!({"memory": {"bare loop": 1.5}}));
        let peers = serde_json::json!({"memory": {"kube-rs": 6.0, "client-go": 4.0}});
        assert_eq!(json["peers"], peers);
        let ratio = serde_json::json!({"kube-rs": 0.5, "client-go": 0.75, "bare loop": 2.0});
        assert_eq!(json["ratio"]["memory"], ratio);
        assert_eq!(json["figures"].as_array().unwrap().len(), 4);
    }

    #[test]
    fn a_cost_that_grows_with_the_square_has_the_power_two() {
        let points = [1.0, 10.0, 100.0].map(|x| (x, 3.0 * x * x)).to_vec();
        let growth = Growth { name: "cost", unit: "ms", with: "objects", points };
        assert!((growth.exponent() - 2.0).abs() < 1e-9, "{}", growth.exponent());
    }
}
