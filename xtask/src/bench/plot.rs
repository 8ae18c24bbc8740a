//! Plots as SVG: by hand, so that they are the same for the same figures.

use std::fmt::Write as _;

use super::figures::{Figure, Figures, Growth};

/// Whom bars are drawn against.
const PEERS: [&str; 4] = ["kube-apiserver", "client-go", "kube-rs", "controller-runtime"];
const WIDTH: f64 = 900.0;
/// Where the names end and the bars begin.
const LEFT: f64 = 470.0;
const RIGHT: f64 = 850.0;
const ROW: f64 = 20.0;
const TOP: f64 = 34.0;
/// The least and the most that have a place of their own.
const LEAST: f64 = 0.01;
const MOST: f64 = 2.0;
const COLOURS: [&str; 6] = ["#1b6ac9", "#c9571b", "#2f8f4e", "#8a3fb0", "#a08a00", "#555555"];

fn open(height: f64) -> String {
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height:.0}\" \
         font-family=\"sans-serif\" font-size=\"10\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n"
    )
}

fn text(svg: &mut String, (x, y): (f64, f64), anchor: &str, colour: &str, text: &str) {
    let text = text.replace('&', "&amp;").replace('<', "&lt;");
    let _ = writeln!(
        svg,
        "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\" fill=\"{colour}\">{text}</text>"
    );
}

fn line(svg: &mut String, (x1, y1): (f64, f64), (x2, y2): (f64, f64), style: &str) {
    let _ = writeln!(svg, "<path d=\"M{x1:.1} {y1:.1}L{x2:.1} {y2:.1}\" fill=\"none\" {style}/>");
}

/// A bar for each ratio to a peer, on a logarithmic scale; a tick at the target, a line at 1.
pub(super) fn ratios(figures: &Figures) -> String {
    let rows: Vec<(&str, &Figure)> = figures
        .scenarios
        .iter()
        .flat_map(|it| it.figures.iter().map(|figure| (it.name.as_str(), figure)))
        .filter(|(_, it)| PEERS.iter().any(|peer| it.against.starts_with(peer)))
        .filter(|(_, it)| it.ratio().is_some())
        .collect();
    let bottom = TOP + ROW * count(rows.len());
    let mut svg = open(bottom + 10.0);
    text(&mut svg, (LEFT, 14.0), "end", "#000", "ours / the peer's: less is better");
    let place = |ratio: f64| {
        let share = (ratio.clamp(LEAST, MOST) / LEAST).ln() / (MOST / LEAST).ln();
        LEFT + share * (RIGHT - LEFT)
    };
    let (faint, strong) = ("stroke=\"#ddd\"", "stroke=\"#000\"");
    for (mark, style) in [(0.01, faint), (0.1, faint), (0.5, faint), (1.0, strong), (2.0, faint)] {
        line(&mut svg, (place(mark), TOP - 8.0), (place(mark), bottom), style);
        text(&mut svg, (place(mark), TOP - 12.0), "middle", "#555", &mark.to_string());
    }
    for (at, (scenario, figure)) in rows.iter().enumerate() {
        let y = TOP + ROW * count(at);
        let Some(ratio) = figure.ratio() else { continue };
        let name = format!("{scenario}: {}, {}", figure.name, figure.against);
        text(&mut svg, (LEFT - 6.0, y + 13.0), "end", "#000", &name);
        let colour = if figure.holds() == Some(false) { COLOURS[1] } else { COLOURS[0] };
        let (left, width) = (LEFT, place(ratio.median) - LEFT);
        let _ = writeln!(
            svg,
            "<rect x=\"{left:.1}\" y=\"{:.1}\" width=\"{width:.1}\" height=\"11\" fill=\"{colour}\"/>",
            y + 4.0
        );
        let (least, most) = (place(ratio.least), place(ratio.most));
        line(&mut svg, (least, y + 9.5), (most, y + 9.5), "stroke=\"#000\" stroke-width=\"1.5\"");
        if let Some(target) = figure.at_most {
            let x = place(target);
            line(&mut svg, (x, y + 1.0), (x, y + 18.0), "stroke=\"#d00\" stroke-width=\"2\"");
        }
        let x = most.max(place(ratio.median)) + 5.0;
        text(&mut svg, (x, y + 13.0), "start", "#000", &format!("{:.2}", ratio.median));
    }
    svg.push_str("</svg>\n");
    svg
}

/// A panel for each cost, both axes logarithmic.
pub(super) fn growth(all: &[Growth]) -> String {
    const PANEL: (f64, f64) = (280.0, 190.0);
    let rows = all.len().div_ceil(3);
    let mut svg = open(count(rows) * (PANEL.1 + 30.0) + 10.0);
    for (at, it) in all.iter().enumerate() {
        let corner =
            (15.0 + count(at % 3) * (PANEL.0 + 15.0), 10.0 + count(at / 3) * (PANEL.1 + 30.0));
        panel(&mut svg, it, corner, PANEL, COLOURS[at % COLOURS.len()]);
    }
    svg.push_str("</svg>\n");
    svg
}

fn panel(
    svg: &mut String,
    it: &Growth,
    (x, y): (f64, f64),
    (width, height): (f64, f64),
    colour: &str,
) {
    let title = format!("{}: power {:.2}", it.name, it.exponent);
    text(svg, (x, y + 10.0), "start", "#000", &title);
    let (top, bottom, left, right) = (y + 26.0, y + height - 14.0, x + 12.0, x + width - 12.0);
    let axes = "stroke=\"#999\"";
    line(svg, (left - 6.0, bottom + 4.0), (right + 6.0, bottom + 4.0), axes);
    line(svg, (left - 6.0, top - 4.0), (left - 6.0, bottom + 4.0), axes);
    let range = |of: fn(&(f64, f64)) -> f64| {
        let logs = || it.points.iter().map(|point| of(point).ln());
        (logs().fold(f64::INFINITY, f64::min), logs().fold(f64::NEG_INFINITY, f64::max))
    };
    let ((x0, x1), (y0, y1)) = (range(|it| it.0), range(|it| it.1));
    let share = |value: f64, from: f64, to: f64| (value.ln() - from) / (to - from).max(1e-9);
    let place = |(px, py): (f64, f64)| {
        (left + share(px, x0, x1) * (right - left), bottom - share(py, y0, y1) * (bottom - top))
    };
    let style = format!("stroke=\"{colour}\" stroke-width=\"2\"");
    for pair in it.points.windows(2) {
        line(svg, place(pair[0]), place(pair[1]), &style);
    }
    for point in &it.points {
        let (cx, cy) = place(*point);
        let _ = writeln!(svg, "<circle cx=\"{cx:.1}\" cy=\"{cy:.1}\" r=\"3\" fill=\"{colour}\"/>");
        let cost = format!("{:.3} {}", point.1, it.unit);
        text(svg, (cx, cy - 6.0), if cx > left + 100.0 { "end" } else { "start" }, "#333", &cost);
    }
    let (first, last) = (it.points.first(), it.points.last());
    if let (Some(first), Some(last)) = (first, last) {
        text(svg, (left, bottom + 16.0), "start", "#555", &format!("{} {}", first.0, it.with));
        text(svg, (right, bottom + 16.0), "end", "#555", &last.0.to_string());
    }
}

#[expect(clippy::cast_precision_loss, reason = "rows of a plot")]
fn count(rows: usize) -> f64 {
    rows as f64
}
