//! Figures of several runs.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// What `masthead bench -o json` says.
#[derive(Deserialize)]
pub(super) struct Run {
    scenario: String,
    machine: String,
    params: BTreeMap<String, u64>,
    figures: Vec<Once>,
    growth: Vec<Growth>,
    notes: Vec<String>,
}

#[derive(Deserialize)]
struct Once {
    name: String,
    unit: String,
    ours: f64,
    against: String,
    theirs: Option<f64>,
    at_most: Option<f64>,
}

/// How a cost grows, in one run.
#[derive(Clone, Serialize, Deserialize)]
pub(super) struct Growth {
    pub(super) name: String,
    pub(super) unit: String,
    pub(super) with: String,
    pub(super) points: Vec<(f64, f64)>,
    pub(super) exponent: f64,
}

/// Everything that was measured.
#[derive(Serialize, Deserialize)]
pub(super) struct Figures {
    pub(super) machine: String,
    /// What was measured.
    pub(super) commit: String,
    /// The last that was begun.
    pub(super) rounds: u32,
    pub(super) scenarios: Vec<Scenario>,
}

#[derive(Serialize, Deserialize)]
pub(super) struct Scenario {
    pub(super) name: String,
    pub(super) params: BTreeMap<String, u64>,
    pub(super) figures: Vec<Figure>,
    /// Of the last run.
    pub(super) growth: Vec<Growth>,
    /// Each of the last run that had it: some parts run only once.
    pub(super) notes: Vec<String>,
}

/// One figure, once for each run.
#[derive(Serialize, Deserialize)]
pub(super) struct Figure {
    pub(super) name: String,
    pub(super) unit: String,
    pub(super) against: String,
    pub(super) at_most: Option<f64>,
    pub(super) ours: Vec<f64>,
    /// As many as of ours, or none.
    pub(super) theirs: Vec<f64>,
}

/// Least, median and most.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Spread {
    pub(super) least: f64,
    pub(super) median: f64,
    pub(super) most: f64,
}

impl Spread {
    /// Nothing of nothing.
    pub(super) fn of(values: impl IntoIterator<Item = f64>) -> Option<Self> {
        let mut all: Vec<f64> = values.into_iter().collect();
        all.sort_by(f64::total_cmp);
        let (least, most) = (*all.first()?, *all.last()?);
        let middle = all.len() / 2;
        let below = if all.len() % 2 == 1 { all[middle] } else { all[middle - 1] };
        Some(Self { least, median: f64::midpoint(below, all[middle]), most })
    }
}

impl Figure {
    /// Of each run, ours by theirs.
    pub(super) fn ratios(&self) -> impl Iterator<Item = f64> {
        self.ours.iter().zip(&self.theirs).map(|(ours, theirs)| ours / theirs)
    }

    pub(super) fn ratio(&self) -> Option<Spread> {
        Spread::of(self.ratios())
    }

    /// By the median; nothing where there is nobody to compare with or no target.
    pub(super) fn holds(&self) -> Option<bool> {
        Some(self.ratio()?.median <= self.at_most?)
    }

    fn is(&self, once: &Once) -> bool {
        self.name == once.name && self.against == once.against
    }
}

impl Figures {
    pub(super) fn new(commit: &str) -> Self {
        let (commit, scenarios) = (commit.to_owned(), Vec::new());
        Self { machine: String::new(), commit, rounds: 0, scenarios }
    }

    /// Adds a run to those of its scenario.
    pub(super) fn add(&mut self, run: Run) {
        self.machine = run.machine;
        let known = self.scenarios.iter().position(|it| it.name == run.scenario);
        let at = known.unwrap_or_else(|| {
            let (figures, growth, notes) = (Vec::new(), Vec::new(), Vec::new());
            let (name, params) = (run.scenario, run.params);
            self.scenarios.push(Scenario { name, params, figures, growth, notes });
            self.scenarios.len() - 1
        });
        let scenario = &mut self.scenarios[at];
        scenario.growth = run.growth;
        scenario.note(run.notes);
        for once in run.figures {
            scenario.add(once);
        }
    }
}

impl Scenario {
    /// Takes the notes of a run for those before; what it has nothing to say of stays as it was noted.
    fn note(&mut self, notes: Vec<String>) {
        let subject = |note: &str| note.split_once(':').map(|(subject, _)| subject.to_owned());
        let said: Vec<_> = notes.iter().filter_map(|note| subject(note)).collect();
        self.notes.retain(|note| subject(note).is_some_and(|it| !said.contains(&it)));
        self.notes.extend(notes);
    }

    fn add(&mut self, once: Once) {
        let known = self.figures.iter().position(|it| it.is(&once));
        let at = known.unwrap_or_else(|| {
            let (name, unit, against) = (once.name, once.unit, once.against);
            let (at_most, ours, theirs) = (once.at_most, Vec::new(), Vec::new());
            self.figures.push(Figure { name, unit, against, at_most, ours, theirs });
            self.figures.len() - 1
        });
        self.figures[at].ours.push(once.ours);
        self.figures[at].theirs.extend(once.theirs);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(ours: f64, theirs: f64) -> Run {
        let text = format!(
            r#"{{"scenario":"list","machine":"m","params":{{}},"growth":[],"notes":[],"figures":[
                {{"name":"cost","unit":"ms","ours":{ours},"against":"peer","theirs":{theirs},"at_most":0.5}},
                {{"name":"cost","unit":"ms","ours":{ours},"against":"other","theirs":null,"at_most":null}}]}}"#
        );
        serde_json::from_str(&text).unwrap()
    }

    #[test]
    fn runs_of_a_scenario_add_up_and_the_median_of_the_ratios_decides() {
        let mut figures = Figures::new("abc");
        for (ours, theirs) in [(3.0, 10.0), (9.0, 10.0), (10.0, 25.0)] {
            figures.add(run(ours, theirs));
        }
        assert_eq!(figures.scenarios.len(), 1);
        let [peer, other] = &figures.scenarios[0].figures[..] else { panic!("two figures") };
        let spread = Spread { least: 0.3, median: 0.4, most: 0.9 };
        assert_eq!((peer.ratio(), peer.holds()), (Some(spread), Some(true)));
        assert_eq!((other.ratio(), other.holds()), (None, None));
    }

    #[test]
    fn notes_are_of_the_last_run_that_had_them() {
        let mut figures = Figures::new("abc");
        for notes in [["load: 1", "cost: 1", "1 MB"], ["cost: 2", "more: 2", "2 MB"]] {
            let notes = notes.map(str::to_owned).to_vec();
            figures.add(Run { notes, ..run(1.0, 1.0) });
        }
        assert_eq!(figures.scenarios[0].notes, ["load: 1", "cost: 2", "more: 2", "2 MB"]);
    }

    #[test]
    fn the_median_of_an_even_number_lies_in_the_middle() {
        let spread = Spread::of([4.0, 1.0, 2.0, 8.0]).unwrap();
        assert_eq!(spread, Spread { least: 1.0, median: 3.0, most: 8.0 });
        assert_eq!(Spread::of([]), None);
    }
}
