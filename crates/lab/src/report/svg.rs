//! Charts as SVG text, without a script: bars with margins, and lines over a logarithmic axis.
//!
//! Invariant: the same data give the same bytes.

use super::table::escape;
use crate::stats::Spread;

/// Narrow enough for a phone: text stays readable when the chart fills its screen.
const WIDTH: f64 = 420.0;
const LEFT: f64 = 4.0;
const RIGHT: f64 = 66.0;
/// A bar with its name above.
const BAR: f64 = 36.0;
/// Letters of a name that fit.
const NAME_LETTERS: usize = 60;
const COLORS: [&str; 8] = [
    "#2b6cb0", "#c05621", "#2f855a", "#6b46c1", "#b83280", "#718096", "#975a16", "#285e61",
];

fn open(height: f64, title: &str) -> String {
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH:.0} {height:.0}\" role=\"img\" \
         font-family=\"sans-serif\" font-size=\"12\"><title>{0}</title>\
         <text x=\"4\" y=\"16\" font-weight=\"bold\">{0}</text>",
        escape(title)
    )
}

/// A name that fits; what is left out is in the middle.
fn fitting(name: &str) -> String {
    let letters: Vec<char> = name.chars().collect();
    if letters.len() <= NAME_LETTERS {
        return name.to_owned();
    }
    let half = NAME_LETTERS / 2;
    let first: String = letters[..half].iter().collect();
    let last: String = letters[letters.len() - half + 1..].iter().collect();
    format!("{first}\u{2026}{last}")
}

fn short(value: f64) -> String {
    if value.abs() >= 100.0 {
        format!("{value:.0}")
    } else {
        format!("{value:.2}")
    }
}

/// One bar for each name, its mean with the margin as a whisker.
#[must_use]
pub fn bars(title: &str, unit: &str, rows: &[(String, Spread)]) -> String {
    let height = 30.0 + rows.len() as f64 * BAR + 10.0;
    let highest = rows
        .iter()
        .map(|(_, spread)| spread.mean + spread.margin)
        .fold(1e-12f64, f64::max);
    let scale = (WIDTH - LEFT - RIGHT) / highest;
    let mut svg = open(height, &format!("{title} ({unit})"));
    for (index, (name, spread)) in rows.iter().enumerate() {
        let y = 28.0 + index as f64 * BAR;
        let length = (spread.mean * scale).max(0.0);
        let (low, high) = (
            LEFT + ((spread.mean - spread.margin) * scale).max(0.0),
            LEFT + (spread.mean + spread.margin) * scale,
        );
        svg += &format!(
            "<text x=\"{LEFT:.1}\" y=\"{:.1}\">{}</text>\
             <rect x=\"{LEFT:.1}\" y=\"{:.1}\" width=\"{length:.1}\" height=\"14\" fill=\"{}\"/>\
             <path d=\"M{low:.1} {:.1}H{high:.1}\" stroke=\"#000\"/>\
             <text x=\"{:.1}\" y=\"{:.1}\">{}</text>",
            y + 10.0,
            escape(&fitting(name)),
            y + 14.0,
            COLORS[index % COLORS.len()],
            y + 21.0,
            high + 5.0,
            y + 26.0,
            short(spread.mean),
        );
    }
    svg + "</svg>\n"
}

/// Places of the axis that have a point, ascending.
fn ticks<'a>(points: impl Iterator<Item = &'a (f64, Spread)>) -> Vec<f64> {
    let mut ticks: Vec<f64> = points.map(|(x, _)| *x).collect();
    ticks.sort_by(f64::total_cmp);
    ticks.dedup();
    ticks
}

/// A line for each name over a logarithmic axis (base 2).
#[must_use]
pub fn lines(
    title: &str,
    unit: &str,
    axis: &str,
    series: &[(String, Vec<(f64, Spread)>)],
) -> String {
    const TOP: f64 = 30.0;
    const HEIGHT: f64 = 220.0;
    let points = || series.iter().flat_map(|(_, points)| points);
    let logs = || points().map(|(x, _)| x.max(1e-9).log2());
    let (low, high) = (
        logs().fold(f64::INFINITY, f64::min),
        logs().fold(f64::NEG_INFINITY, f64::max),
    );
    let top = points()
        .map(|(_, spread)| spread.mean + spread.margin)
        .fold(1e-12f64, f64::max);
    let width = WIDTH - 80.0;
    let x = |value: f64| 60.0 + (value.max(1e-9).log2() - low) / (high - low).max(1e-9) * width;
    let y = |value: f64| TOP + HEIGHT - value / top * HEIGHT;
    let legend = TOP + HEIGHT + 52.0;
    let mut svg = open(
        legend + series.len() as f64 * 16.0,
        &format!("{title} ({unit})"),
    );
    svg += &format!(
        "<path d=\"M60 {TOP}V{0}H{1:.1}\" fill=\"none\" stroke=\"#888\"/>\
         <text x=\"56\" y=\"{2}\" text-anchor=\"end\">{3}</text><text x=\"56\" y=\"{0}\" text-anchor=\"end\">0</text>\
         <text x=\"{1:.1}\" y=\"{4}\" text-anchor=\"end\">{5}</text>",
        TOP + HEIGHT,
        60.0 + width,
        TOP + 8.0,
        short(top),
        TOP + HEIGHT + 34.0,
        escape(axis)
    );
    for tick in ticks(points()) {
        svg += &format!(
            "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>",
            x(tick),
            TOP + HEIGHT + 16.0,
            short_bytes(tick)
        );
    }
    for (index, (name, points)) in series.iter().enumerate() {
        let color = COLORS[index % COLORS.len()];
        let place = |(at, spread): &(f64, Spread)| format!("{:.1} {:.1}", x(*at), y(spread.mean));
        let path: Vec<String> = points.iter().map(place).collect();
        svg += &format!(
            "<path d=\"M{}\" fill=\"none\" stroke=\"{color}\" stroke-width=\"2\"/>",
            path.join("L")
        );
        for (at, spread) in points {
            svg += &format!(
                "<path d=\"M{0:.1} {1:.1}V{2:.1}\" stroke=\"{color}\"/><circle cx=\"{0:.1}\" cy=\"{3:.1}\" r=\"3\" fill=\"{color}\"/>",
                x(*at),
                y((spread.mean - spread.margin).max(0.0)),
                y(spread.mean + spread.margin),
                y(spread.mean)
            );
        }
        svg += &format!(
            "<text x=\"{:.1}\" y=\"{:.1}\" fill=\"{color}\">{}</text>",
            LEFT,
            legend + index as f64 * 16.0,
            escape(&fitting(name))
        );
    }
    svg + "</svg>\n"
}

fn short_bytes(value: f64) -> String {
    for (unit, name) in [(1048576.0, "M"), (1024.0, "K")] {
        if value >= unit && (value / unit).fract() == 0.0 {
            return format!("{:.0}{name}", value / unit);
        }
    }
    format!("{value:.0}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stats::spread;

    #[test]
    fn a_bar_is_as_long_as_its_value_and_names_are_escaped() {
        let rows = vec![
            ("a<b".to_owned(), spread(&[10.0])),
            ("c".to_owned(), spread(&[20.0])),
        ];
        let svg = bars("T", "1/s", &rows);
        assert!(svg.contains("a&lt;b") && !svg.contains("a<b"));
        assert!(
            svg.contains("width=\"175.0\"") && svg.contains("width=\"350.0\""),
            "{svg}"
        );
    }

    #[test]
    fn a_long_name_keeps_its_ends() {
        let long = "x".repeat(100) + "end";
        let shown = fitting(&long);
        assert_eq!(shown.chars().count(), NAME_LETTERS);
        assert!(shown.starts_with("xx") && shown.ends_with("end"), "{shown}");
        assert_eq!(fitting("short"), "short");
    }

    #[test]
    fn lines_show_every_point_with_its_unit() {
        let series = vec![(
            "x".to_owned(),
            vec![(4096.0, spread(&[1.0])), (65536.0, spread(&[2.0]))],
        )];
        let svg = lines("T", "1/s", "strip", &series);
        assert!(svg.contains(">4K<") && svg.contains(">64K<"));
        assert_eq!(svg.matches("<circle").count(), 2);
    }
}
