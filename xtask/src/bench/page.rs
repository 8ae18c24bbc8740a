//! The figures for people: a table on the terminal, and their part of docs/performance.md.

use std::fmt::Write as _;
use std::fs;

use anyhow::Context as _;

use super::again::{Expected, Scatter};
use super::figures::{Figure, Figures, Scenario, Spread};
use super::plot;

const PAGE: &str = "docs/performance.md";
const BEGIN: &str = "<!-- Written by `cargo xtask bench --report`, from here -->\n";
const END: &str = "<!-- to here. -->\n";

/// Three digits, and all of them before the point.
fn rounded(value: f64) -> String {
    let places = match value.abs() {
        10.0..100.0 => 1,
        0.0005..10.0 => 2,
        _ => 0,
    };
    format!("{value:.places$}")
}

fn spread(it: Spread) -> String {
    let [least, median, most] = [it.least, it.median, it.most].map(rounded);
    if least == most { median } else { format!("{median} ({least}–{most})") }
}

fn again(it: Expected) -> String {
    format!("{}–{}", rounded(it.least), rounded(it.most))
}

fn median(values: &[f64], unit: &str) -> String {
    let median = Spread::of(values.iter().copied());
    median.map_or("–".to_owned(), |it| format!("{} {unit}", rounded(it.median)))
}

fn verdict(figure: &Figure) -> &'static str {
    match figure.holds() {
        Some(true) => "holds",
        Some(false) => "missed",
        None => "",
    }
}

fn target(figure: &Figure) -> String {
    figure.at_most.map_or(String::new(), |it| format!("≤ {}", rounded(it)))
}

fn ratio(figure: &Figure) -> String {
    figure.ratio().map_or("–".to_owned(), spread)
}

/// For a terminal.
pub(super) fn table(figures: &Figures) -> String {
    let mut text = format!("{}, {}, {} rounds\n", figures.machine, figures.commit, figures.rounds);
    for scenario in &figures.scenarios {
        let _ = writeln!(text, "\n{}", scenario.name);
        for it in &scenario.figures {
            let (ours, theirs) = (median(&it.ours, &it.unit), median(&it.theirs, &it.unit));
            let against = format!("{} {theirs}", it.against);
            let (ratio, target, verdict) = (ratio(it), target(it), verdict(it));
            let _ = writeln!(
                text,
                "  {:<58} {ours:>11} {against:>32} {ratio:>19} {target:>7} {verdict}",
                it.name
            );
        }
        for it in &scenario.growth {
            let (name, with, power) = (&it.name, &it.with, it.exponent);
            let _ = writeln!(text, "  {name}, by {with}: power {power:.2}");
        }
    }
    text
}

/// Which ratios are not what an earlier run has one expect.
pub(super) fn changes(before: &Figures, now: &Figures) -> String {
    let scatter = Scatter::of(before);
    let expected = |scenario: &Scenario, figure: &Figure| {
        let scenario = before.scenarios.iter().find(|it| it.name == scenario.name)?;
        let mut figures = scenario.figures.iter();
        let known = figures.find(|it| it.name == figure.name && it.against == figure.against)?;
        scatter.expects(scenario, known)
    };
    let (mut count, mut beside) = (0, Vec::new());
    for (scenario, it) in
        now.scenarios.iter().flat_map(|all| all.figures.iter().map(move |it| (all, it)))
    {
        let (Some(expected), Some(is)) = (expected(scenario, it), it.ratio()) else { continue };
        count += 1;
        if !expected.has(is.median) {
            let (scenario, name, against) = (&scenario.name, &it.name, &it.against);
            let (is, was) = (spread(is), again(expected));
            beside.push(format!("  {scenario}: {name}, against {against}: {is}, not {was}\n"));
        }
    }
    let within = count - beside.len();
    format!(
        "\n{within} of {count} ratios lie where the earlier run has them; beside it:\n{}",
        if beside.is_empty() { "  none\n".to_owned() } else { beside.concat() }
    )
}

/// Puts the figures into their page, and the plots beside it.
pub(super) fn write(figures: &Figures) -> anyhow::Result<()> {
    let page = fs::read_to_string(PAGE).with_context(|| format!("{PAGE} is not there"))?;
    fs::write(PAGE, with_figures(&page, figures)?)?;
    fs::write("docs/performance/ratios.svg", plot::ratios(figures))?;
    for scenario in figures.scenarios.iter().filter(|it| !it.growth.is_empty()) {
        fs::write("docs/performance/growth.svg", plot::growth(&scenario.growth))?;
    }
    Ok(())
}

fn with_figures(page: &str, figures: &Figures) -> anyhow::Result<String> {
    let lines = (page.split_once(BEGIN)).zip(page.split_once(END));
    let ((before, _), (_, after)) =
        lines.with_context(|| format!("{PAGE} has lost the lines that the figures go between"))?;
    Ok(format!("{before}{BEGIN}\n{}{END}{after}", markdown(figures)))
}

fn markdown(figures: &Figures) -> String {
    let Figures { machine, commit, rounds, .. } = figures;
    let mut text = format!(
        "{machine}; commit `{commit}`; up to {rounds} rounds, of which the medians are shown, with the least \
         and the most of the ratios, and where the median of another run is to be expected.\n\n![Ratios to the peers](performance/ratios.svg)\n"
    );
    let scatter = Scatter::of(figures);
    for scenario in &figures.scenarios {
        let params = scenario.params.iter().map(|(name, value)| format!("{name} {value}"));
        let params = params.collect::<Vec<_>>().join(", ");
        let runs = || scenario.figures.iter().map(|it| it.ours.len());
        let runs = match (runs().min().unwrap_or(0), runs().max().unwrap_or(0)) {
            (least, most) if least < most => format!("{least} to {most}"),
            (_, most) => most.to_string(),
        };
        let _ = write!(text, "\n### {}\n\n{params}; runs: {runs}.\n", scenario.name);
        if !scenario.figures.is_empty() {
            text.push_str("\n| | ours | against | theirs | ratio | another run | target | |\n");
            text.push_str("|---|---|---|---|---|---|---|---|\n");
        }
        for it in &scenario.figures {
            let (ours, theirs) = (median(&it.ours, &it.unit), median(&it.theirs, &it.unit));
            let (ratio, target, verdict) = (ratio(it), target(it), verdict(it));
            let again = scatter.expects(scenario, it).map_or(String::new(), again);
            let (name, against) = (&it.name, &it.against);
            let _ = writeln!(
                text,
                "| {name} | {ours} | {against} | {theirs} | {ratio} | {again} | {target} | {verdict} |"
            );
        }
        if !scenario.growth.is_empty() {
            text.push_str("\n![How costs grow](performance/growth.svg)\n");
            text.push_str("\n| | with | power | from | to |\n|---|---|---|---|---|\n");
        }
        for it in &scenario.growth {
            let point = |at: Option<&(f64, f64)>| {
                at.map_or(String::new(), |(x, y)| format!("{x}: {} {}", rounded(*y), it.unit))
            };
            let (from, to) = (point(it.points.first()), point(it.points.last()));
            let (name, with, power) = (&it.name, &it.with, it.exponent);
            let _ = writeln!(text, "| {name} | {with} | {power:.2} | {from} | {to} |");
        }
        if !scenario.notes.is_empty() {
            text.push('\n');
        }
        for note in &scenario.notes {
            let _ = writeln!(text, "- {note}");
        }
    }
    text.push('\n');
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_lies_between_the_marks_is_written() {
        let page = format!("# Title\n\n{BEGIN}old\n{END}\nwords\n");
        let written = with_figures(&page, &Figures::new("abc")).unwrap();
        assert!(written.starts_with("# Title\n") && written.ends_with("\nwords\n"), "{written}");
        assert!(written.contains("commit `abc`") && !written.contains("old"), "{written}");
        assert_eq!(with_figures(&written, &Figures::new("abc")).unwrap(), written);
        assert!(with_figures("no marks", &Figures::new("abc")).is_err());
    }
}
