//! Where the ratios of another run are to be expected.
//!
//! The least and the most of three rounds say little: of two runs that differ by chance alone, two medians
//! in five lie outside of what the other run saw. So the rounds of a row are taken together with those of
//! its scenario, which share what disturbs them, and the width that follows is stated for 19 runs of 20.

use super::figures::{Figure, Figures, Scenario, Spread};

/// What the rounds of a scenario weigh beside those of one row, as so many rounds more.
const SHARED_ROUNDS: f64 = 4.0;
/// By how much runs differ beyond what their rounds show: they are hours apart, and a machine that is
/// shared is another one then.
const BETWEEN_RUNS: f64 = 0.05;
/// Of a median, beside the mean of as many; and both runs have one.
const MEDIANS: f64 = 1.3 * 2.0;
/// Standard deviations that 19 in 20 lie within.
const MOST: f64 = 2.0;

/// From where to where.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Expected {
    pub(super) least: f64,
    pub(super) most: f64,
}

impl Expected {
    pub(super) fn has(self, ratio: f64) -> bool {
        (self.least..=self.most).contains(&ratio)
    }
}

/// How much rounds differ.
pub(super) struct Scatter {
    everywhere: f64,
}

impl Scatter {
    pub(super) fn of(figures: &Figures) -> Self {
        let all = figures.scenarios.iter().flat_map(|it| &it.figures);
        Self { everywhere: mean(all.filter_map(variance)).unwrap_or_default() }
    }

    /// Nothing of a ratio that is zero, or that there is none of.
    pub(super) fn expects(&self, scenario: &Scenario, figure: &Figure) -> Option<Expected> {
        let logs = logs(figure)?;
        let median = Spread::of(figure.ratios())?.median;
        let shared = mean(scenario.figures.iter().filter_map(variance)).unwrap_or(self.everywhere);
        let (rounds, own) = (count(&logs), squares(&logs));
        let variance = (own + SHARED_ROUNDS * shared) / (rounds - 1.0 + SHARED_ROUNDS);
        let width = MOST * (variance * MEDIANS / rounds + BETWEEN_RUNS * BETWEEN_RUNS).sqrt();
        Some(Expected { least: median * (-width).exp(), most: median * width.exp() })
    }
}

/// Of ratios that differ by a factor rather than by an amount.
fn logs(figure: &Figure) -> Option<Vec<f64>> {
    let logs: Vec<f64> = figure.ratios().map(f64::ln).collect();
    (!logs.is_empty() && logs.iter().all(|it| it.is_finite())).then_some(logs)
}

/// Of one row; nothing of a single round.
fn variance(figure: &Figure) -> Option<f64> {
    let logs = logs(figure).filter(|it| it.len() > 1)?;
    Some(squares(&logs) / (count(&logs) - 1.0))
}

/// The squares of how far each is from their mean.
fn squares(values: &[f64]) -> f64 {
    let mean = mean(values.iter().copied()).unwrap_or_default();
    values.iter().map(|it| (it - mean).powi(2)).sum()
}

fn mean(values: impl Iterator<Item = f64>) -> Option<f64> {
    let all: Vec<f64> = values.collect();
    (!all.is_empty()).then(|| all.iter().sum::<f64>() / count(&all))
}

fn count(values: &[f64]) -> f64 {
    u32::try_from(values.len()).map_or(f64::MAX, f64::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figure(ratios: &[f64]) -> Figure {
        let text = |text: &str| text.to_owned();
        let theirs = vec![1.0; ratios.len()];
        let (name, unit, against) = (text("cost"), text("ms"), text("peer"));
        Figure { name, unit, against, at_most: None, ours: ratios.to_vec(), theirs }
    }

    fn scenario(figures: Vec<Figure>) -> Scenario {
        let (name, params) = ("list".to_owned(), std::collections::BTreeMap::new());
        Scenario { name, params, figures, growth: Vec::new(), notes: Vec::new() }
    }

    fn width(rows: &[&[f64]], of: usize) -> f64 {
        let mut figures = Figures::new("abc");
        figures.scenarios.push(scenario(rows.iter().map(|it| figure(it)).collect()));
        let all = &figures.scenarios[0];
        let expected = Scatter::of(&figures).expects(all, &all.figures[of]).unwrap();
        (expected.most / expected.least).sqrt()
    }

    #[test]
    fn rounds_that_agree_leave_what_runs_differ_by() {
        let width = width(&[&[0.5, 0.5, 0.5]], 0);
        assert!((width - (MOST * BETWEEN_RUNS).exp()).abs() < 1e-9, "{width}");
    }

    #[test]
    fn more_is_expected_of_a_row_that_scatters_and_of_one_beside_such() {
        let (calm, wild): (&[f64], &[f64]) = (&[0.5, 0.5, 0.5], &[0.4, 0.5, 0.6]);
        let (alone, beside) = (width(&[calm, calm], 0), width(&[calm, wild], 0));
        let scatters = width(&[calm, wild], 1);
        assert!(alone < beside && beside < scatters, "{alone} {beside} {scatters}");
    }

    #[test]
    fn less_is_expected_of_more_rounds() {
        let few = width(&[&[0.4, 0.5, 0.6]], 0);
        let many = width(&[&[0.4, 0.5, 0.6, 0.4, 0.5, 0.6]], 0);
        assert!(many < few, "{many} {few}");
    }

    #[test]
    fn of_nothing_and_of_zero_nothing_is_expected() {
        let all = scenario(vec![figure(&[]), figure(&[0.0, 0.5])]);
        let scatter = Scatter { everywhere: 0.1 };
        assert!(all.figures.iter().all(|it| scatter.expects(&all, it).is_none()));
    }

    #[test]
    fn a_single_round_is_expected_to_scatter_as_the_others_do() {
        let mut figures = Figures::new("abc");
        figures.scenarios.push(scenario(vec![figure(&[0.4, 0.5, 0.6])]));
        figures.scenarios.push(scenario(vec![figure(&[0.5])]));
        let once = &figures.scenarios[1];
        let expected = Scatter::of(&figures).expects(once, &once.figures[0]).unwrap();
        assert!(expected.has(0.45) && expected.has(0.55), "{expected:?}");
        assert!(!expected.has(0.2) && !expected.has(1.0), "{expected:?}");
    }
}
