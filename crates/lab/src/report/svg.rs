//! Charts as SVG text, without a script: bars with margins, lines with bands over a logarithmic axis, distributions,
//! disks over time.
//!
//! Invariant: the same data give the same bytes.

use super::label::{self, LINE, TITLE_LETTERS, broken};
use super::table::escape;
use crate::inside::Timeline;
use crate::stats::Spread;

/// Narrow enough for a phone: text stays readable when the chart fills its screen.
const WIDTH: f64 = 420.0;
const LEFT: f64 = 4.0;
const RIGHT: f64 = 66.0;
/// A bar with its name above.
const BAR: f64 = 36.0;
/// Two bars with their name above.
const PAIR: f64 = 48.0;
/// Told from a white page and from a dark one.
const COLORS: [&str; 8] = [
    "#2f7fc4", "#c8641e", "#2f9461", "#8a63d2", "#cc4f9b", "#78828f", "#a3732a", "#2f8c92",
];
/// Ink and paper, by light and by dark.
const LIGHT: (&str, &str) = ("#1a1a1a", "#fff");
const DARK: (&str, &str) = ("#e4e4e4", "#16181c");

/// Ink and paper follow what the reader prefers, in a page and in a file of its own.
fn style() -> String {
    format!(
        "<style>svg{{color:{};background:{}}}@media (prefers-color-scheme:dark){{svg{{color:{};background:{}}}}}</style>",
        LIGHT.0, LIGHT.1, DARK.0, DARK.1
    )
}

/// The beginning: the title in as many lines as it needs, and what follows below it. `CLOSE` ends it.
fn open(height: f64, title: &str) -> String {
    let lines = broken(title, TITLE_LETTERS);
    let further = (lines.len() - 1) as f64 * LINE;
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH:.0} {:.0}\" role=\"img\" \
         font-family=\"sans-serif\" font-size=\"12\" fill=\"currentColor\"><title>{}</title>{}\
         <g font-weight=\"bold\">{}</g><g transform=\"translate(0 {further:.0})\">",
        height + further,
        escape(title),
        style(),
        label::text(4.0, 16.0, &lines)
    )
}

const CLOSE: &str = "</g></svg>\n";

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
    let further: f64 = rows.iter().map(|(name, _)| label::further(name)).sum();
    let height = 30.0 + rows.len() as f64 * BAR + further + 10.0;
    let highest = rows
        .iter()
        .map(|(_, spread)| spread.mean + spread.margin)
        .fold(1e-12f64, f64::max);
    let scale = (WIDTH - LEFT - RIGHT) / highest;
    let mut svg = open(height, &format!("{title} ({unit})"));
    let mut y = 28.0;
    for (index, (name, spread)) in rows.iter().enumerate() {
        let length = (spread.mean * scale).max(0.0);
        let (low, high) = (
            LEFT + ((spread.mean - spread.margin) * scale).max(0.0),
            LEFT + (spread.mean + spread.margin) * scale,
        );
        svg += &label::name(LEFT, y + 10.0, name);
        y += label::further(name);
        svg += &format!(
            "<rect x=\"{LEFT:.1}\" y=\"{:.1}\" width=\"{length:.1}\" height=\"14\" fill=\"{}\"/>\
             <path d=\"M{low:.1} {:.1}H{high:.1}\" stroke=\"currentColor\"/>\
             <text x=\"{:.1}\" y=\"{:.1}\">{}</text>",
            y + 14.0,
            COLORS[index % COLORS.len()],
            y + 21.0,
            high + 5.0,
            y + 26.0,
            short(spread.mean),
        );
        y += BAR;
    }
    svg + CLOSE
}

/// Pairs of bars with their error: name, published, ours, unit. Each pair has its own scale, as units differ.
#[must_use]
pub fn pairs(title: &str, rows: &[(String, f64, f64, &str)]) -> String {
    let further: f64 = rows.iter().map(|row| label::further(&row.0)).sum();
    let mut svg = open(30.0 + rows.len() as f64 * PAIR + further + 10.0, title);
    let mut y = 28.0;
    for (name, published, ours, unit) in rows {
        let scale = (WIDTH - LEFT - 2.0 * RIGHT) / published.max(*ours).max(1e-12);
        svg += &label::name(LEFT, y + 10.0, name);
        y += label::further(name);
        for (value, top, color, said) in [
            (
                *published,
                y + 14.0,
                COLORS[5],
                format!("{} {unit}", short(*published)),
            ),
            (
                *ours,
                y + 28.0,
                COLORS[0],
                format!(
                    "{} ({:+.0} %)",
                    short(*ours),
                    (ours / published - 1.0) * 100.0
                ),
            ),
        ] {
            let length = (value * scale).max(0.0);
            svg += &format!(
                "<rect x=\"{LEFT:.1}\" y=\"{top:.1}\" width=\"{length:.1}\" height=\"12\" fill=\"{color}\"/>\
                 <text x=\"{:.1}\" y=\"{:.1}\">{}</text>",
                LEFT + length + 4.0,
                top + 10.0,
                escape(&said)
            );
        }
        y += PAIR;
    }
    svg + CLOSE
}

/// Names with the colours of their lines, in their order, from `top` on; where it ends.
fn legend(top: f64, names: &[&str]) -> (String, f64) {
    let colors = COLORS.iter().cycle();
    let marked: Vec<(&str, &str)> = names
        .iter()
        .zip(colors)
        .map(|(name, color)| (*name, *color))
        .collect();
    label::legend(LEFT, top, &marked)
}

/// Places of the axis that have a point, ascending.
fn ticks<'a>(points: impl Iterator<Item = &'a (f64, Spread)>) -> Vec<f64> {
    let mut ticks: Vec<f64> = points.map(|(x, _)| *x).collect();
    ticks.sort_by(f64::total_cmp);
    ticks.dedup();
    ticks
}

/// A line with its points; the band is the confidence interval of the mean.
fn line_with_band(
    points: &[(f64, Spread)],
    color: &str,
    x: impl Fn(f64) -> f64,
    y: impl Fn(f64) -> f64,
) -> String {
    let place = |(at, value): (f64, f64)| format!("{:.1} {:.1}", x(at), y(value));
    let path: Vec<String> = points
        .iter()
        .map(|(at, one)| place((*at, one.mean)))
        .collect();
    let upper = points.iter().map(|(at, one)| (*at, one.mean + one.margin));
    let lower = points.iter().rev();
    let lower = lower.map(|(at, one)| (*at, (one.mean - one.margin).max(0.0)));
    let band: Vec<String> = upper.chain(lower).map(place).collect();
    let mut svg = format!(
        "<path d=\"M{}Z\" fill=\"{color}\" fill-opacity=\"0.15\"/><path d=\"M{}\" fill=\"none\" stroke=\"{color}\" stroke-width=\"2\"/>",
        band.join("L"),
        path.join("L")
    );
    for (at, one) in points {
        svg += &format!(
            "<circle cx=\"{:.1}\" cy=\"{:.1}\" r=\"3\" fill=\"{color}\"/>",
            x(*at),
            y(one.mean)
        );
    }
    svg
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
    let names: Vec<&str> = series.iter().map(|(name, _)| name.as_str()).collect();
    let (legend, bottom) = legend(TOP + HEIGHT + 52.0, &names);
    let mut svg = open(bottom, &format!("{title} ({unit})"));
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
    for (index, (_, points)) in series.iter().enumerate() {
        svg += &line_with_band(points, COLORS[index % COLORS.len()], x, y);
    }
    svg + &legend + CLOSE
}

/// A time as a label of an axis.
fn short_time(us: f64) -> String {
    if us >= 1e6 {
        format!("{:.0} s", us / 1e6)
    } else if us >= 1e3 {
        format!("{:.0} ms", us / 1e3)
    } else {
        format!("{us:.0} us")
    }
}

/// Points of a distribution: (microseconds, percent that took at most so long).
type Shares<'a> = &'a [(f64, f64)];

/// Distributions of times over a logarithmic axis (base 10): how many of a hundred took at most so long.
#[must_use]
pub fn distributions(title: &str, series: &[(String, Shares<'_>)]) -> String {
    const TOP: f64 = 30.0;
    const HEIGHT: f64 = 180.0;
    let logs = || {
        series
            .iter()
            .flat_map(|(_, points)| points.iter())
            .map(|(us, _)| us.max(1e-3).log10())
    };
    let low = logs().fold(f64::INFINITY, f64::min).floor();
    let high = logs()
        .fold(f64::NEG_INFINITY, f64::max)
        .ceil()
        .max(low + 1.0);
    let width = WIDTH - 80.0;
    let x = |us: f64| 44.0 + (us.max(1e-3).log10() - low) / (high - low) * width;
    let y = |percent: f64| TOP + HEIGHT - percent / 100.0 * HEIGHT;
    let names: Vec<&str> = series.iter().map(|(name, _)| name.as_str()).collect();
    let (legend, bottom) = legend(TOP + HEIGHT + 52.0, &names);
    let mut svg = open(bottom, title);
    for percent in [0.0, 50.0, 90.0, 100.0] {
        svg += &format!(
            "<path d=\"M44 {0:.1}H{1:.1}\" stroke=\"currentColor\" stroke-opacity=\"0.2\"/><text x=\"40\" y=\"{2:.1}\" text-anchor=\"end\">{percent:.0}</text>",
            y(percent),
            44.0 + width,
            y(percent) + 4.0
        );
    }
    for decade in low as i32..=high as i32 {
        let at = x(10f64.powi(decade));
        svg += &format!(
            "<path d=\"M{at:.1} {TOP}V{:.1}\" stroke=\"currentColor\" stroke-opacity=\"0.2\"/><text x=\"{at:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>",
            TOP + HEIGHT,
            TOP + HEIGHT + 16.0,
            short_time(10f64.powi(decade))
        );
    }
    svg += &format!(
        "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">percent that took at most so long</text>",
        44.0 + width,
        TOP + HEIGHT + 34.0
    );
    for (index, (_, points)) in series.iter().enumerate() {
        let color = COLORS[index % COLORS.len()];
        let mut path = String::new();
        let mut before = 0.0;
        for (us, percent) in *points {
            let word = if path.is_empty() { "M" } else { "L" };
            path += &format!("{word}{0:.1} {1:.1}V{2:.1}", x(*us), y(before), y(*percent));
            before = *percent;
        }
        svg += &format!("<path d=\"{path}\" fill=\"none\" stroke=\"{color}\" stroke-width=\"2\"/>");
    }
    svg + &legend + CLOSE
}

/// Disks over time: how busy each was (area), and where its head stood (line; the outermost cylinder is on top).
#[must_use]
pub fn timeline(title: &str, timeline: &Timeline) -> String {
    const TOP: f64 = 26.0;
    const ROW: f64 = 62.0;
    const HEIGHT: f64 = 42.0;
    let count = timeline
        .disks
        .iter()
        .map(|disk| disk.busy_percent.len())
        .max();
    let count = count.unwrap_or(0).max(1) as f64;
    let width = WIDTH - 2.0 * LEFT;
    let x = |index: f64| LEFT + index / count * width;
    let rows = timeline.disks.len() as f64;
    let mut svg = open(TOP + rows * ROW + 24.0, title);
    for (row, disk) in timeline.disks.iter().enumerate() {
        let bottom = TOP + row as f64 * ROW + ROW - 6.0;
        let mean = disk.busy_percent.iter().sum::<f64>() / disk.busy_percent.len().max(1) as f64;
        let mut area = format!("M{LEFT:.1} {bottom:.1}");
        for (index, busy) in disk.busy_percent.iter().enumerate() {
            let level = bottom - busy / 100.0 * HEIGHT;
            area += &format!(
                "L{:.1} {level:.1}H{:.1}",
                x(index as f64),
                x(index as f64 + 1.0)
            );
        }
        area += &format!("V{bottom:.1}Z");
        let head: Vec<String> = disk
            .head_percent
            .iter()
            .enumerate()
            .map(|(index, place)| {
                format!(
                    "{:.1} {:.1}",
                    x(index as f64 + 1.0),
                    bottom - HEIGHT + place / 100.0 * HEIGHT
                )
            })
            .collect();
        svg += &format!(
            "<text x=\"{LEFT:.1}\" y=\"{:.1}\">{}: busy {mean:.0} %</text><path d=\"{area}\" fill=\"{}\" fill-opacity=\"0.35\"/>",
            bottom - HEIGHT - 4.0,
            escape(&disk.device),
            COLORS[0],
        );
        if head.len() > 1 {
            svg += &format!(
                "<path d=\"M{}\" fill=\"none\" stroke=\"{}\"/>",
                head.join("L"),
                COLORS[1]
            );
        }
    }
    svg += &format!(
        "<text x=\"{LEFT:.1}\" y=\"{:.1}\">area: busy; line: head, outermost cylinder on top; {} in all</text>",
        TOP + rows * ROW + 14.0,
        short_time(timeline.interval_us * count)
    );
    svg + CLOSE
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
    fn arrangements_that_differ_in_the_middle_of_a_long_name_look_different() {
        let name = |word: &str| {
            let ends = "four disks of which each is of another make".repeat(2);
            format!("{ends} {word} {ends}")
        };
        let row = |word: &str| (name(word), spread(&[1.0]));
        let chart = bars("T", "1/s", &[row("one"), row("other")]);
        let line = |word: &str| {
            (
                name(word),
                vec![(1.0, spread(&[1.0])), (2.0, spread(&[1.0]))],
            )
        };
        let lines = lines("T", "1/s", "x", &[line("one"), line("other")]);
        for svg in [chart, lines] {
            assert!(svg.contains("one") && svg.contains("other"), "{svg}");
            assert!(!svg.contains('\u{2026}'), "{svg}");
        }
        let title = distributions(&"so long a title that it has to be broken".repeat(3), &[]);
        assert!(!title.contains('\u{2026}'), "{title}");
    }

    /// How bright a colour is (WCAG 2.1, relative luminance).
    fn brightness(color: &str) -> f64 {
        let digits = &color[1..];
        let wide = digits.len() / 3;
        let part = |index: usize| {
            let text = &digits[index * wide..][..wide];
            let value = u8::from_str_radix(&text.repeat(3 - wide), 16).unwrap();
            let value = f64::from(value) / 255.0;
            if value <= 0.03928 {
                value / 12.92
            } else {
                ((value + 0.055) / 1.055).powf(2.4)
            }
        };
        0.2126 * part(0) + 0.7152 * part(1) + 0.0722 * part(2)
    }

    #[test]
    fn every_colour_is_told_from_a_light_and_from_a_dark_page() {
        let contrast = |one: &str, other: &str| {
            let (one, other) = (brightness(one), brightness(other));
            (one.max(other) + 0.05) / (one.min(other) + 0.05)
        };
        assert!((contrast("#000", "#ffffff") - 21.0).abs() < 0.01);
        for paper in [LIGHT.1, DARK.1] {
            for color in COLORS {
                let seen = contrast(color, paper);
                assert!(seen >= 3.0, "{color} on {paper}: {seen:.2}"); // WCAG 2.1, 1.4.11
            }
        }
        for (ink, paper) in [LIGHT, DARK] {
            assert!(contrast(ink, paper) >= 7.0, "{ink} on {paper}");
        }
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
