//! The table as a picture: for each goal how Plexum stands to the best peer, with the machine's description.

use std::fmt::Write as _;

use crate::goals::{Better, Verdict};
use crate::line::{Line, figure};
use crate::machine::Machine;

/// Sizes in pixels.
const WIDTH: f64 = 1000.0;
const ROW: f64 = 18.0;
const TOP: f64 = 76.0;
/// Where bars begin, and how long one of the longest is.
const BARS_AT: f64 = 400.0;
const BARS_WIDTH: f64 = 330.0;

/// Ratios from a sixteenth to sixteen times the best peer fit: each doubling takes as much room.
const DOUBLINGS: f64 = 4.0;

/// How many times better than the best peer.
fn gain(line: &Line) -> Option<f64> {
    let ratio = line.ratio?;
    (ratio > 0.0).then_some(match line.better {
        Better::Higher => ratio,
        Better::Lower => 1.0 / ratio,
    })
}

fn place(gain: f64) -> f64 {
    let doublings = gain.log2().clamp(-DOUBLINGS, DOUBLINGS);
    BARS_AT + (doublings + DOUBLINGS) / (2.0 * DOUBLINGS) * BARS_WIDTH
}

/// The chart as an SVG file. Lines without a peer are left to the table.
#[must_use]
pub fn chart(lines: &[Line], machine: &Machine) -> String {
    let bars: Vec<(&Line, f64)> = lines
        .iter()
        .filter(|line| !line.is_beside)
        .filter_map(|line| gain(line).map(|gain| (line, gain)))
        .collect();
    let height = TOP + ROW * bars.len() as f64 + 34.0;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{WIDTH}\" height=\"{height}\" viewBox=\"0 0 {WIDTH} {height}\" \
         font-family=\"sans-serif\" font-size=\"11\">\n<rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>\n"
    );
    let mut text = |x: f64, y: f64, rest: &str, words: &str| {
        let words = words.replace('&', "&amp;").replace('<', "&lt;");
        let _ = writeln!(svg, "<text x=\"{x}\" y=\"{y}\"{rest}>{words}</text>"); // a String takes everything
    };
    text(
        10.0,
        20.0,
        " font-size=\"15\" font-weight=\"bold\"",
        "Plexum beside the best peer of the same run",
    );
    for (index, words) in wrapped(&machine.words(), 170).iter().take(2).enumerate() {
        text(
            10.0,
            36.0 + 13.0 * index as f64,
            " fill=\"#555555\" font-size=\"10\"",
            words,
        );
    }
    for (gain, words) in [
        (1.0 / 8.0, "1/8"),
        (0.5, "1/2"),
        (1.0, "as fast"),
        (2.0, "2 x"),
        (8.0, "8 x"),
    ] {
        text(
            place(gain),
            TOP - 10.0,
            " fill=\"#555555\" text-anchor=\"middle\"",
            words,
        );
    }
    for (index, (line, gain)) in bars.iter().enumerate() {
        let y = TOP + ROW * index as f64 + 9.0;
        let words = format!("{}: {}, {}", line.group, line.metric, line.unit);
        text(BARS_AT - 10.0, y, " text-anchor=\"end\"", &words);
        text(BARS_AT + BARS_WIDTH + 10.0, y, "", &beside(line, *gain));
    }
    draw_bars(&mut svg, &bars);
    svg
}

/// The bars, the line of those who are as fast, and what the colours mean.
fn draw_bars(svg: &mut String, bars: &[(&Line, f64)]) {
    let bottom = TOP + ROW * bars.len() as f64;
    for (index, (line, gain)) in bars.iter().enumerate() {
        let y = TOP + ROW * index as f64;
        let (from, to) = (place(1.0).min(place(*gain)), place(1.0).max(place(*gain)));
        let (width, color) = ((to - from).max(1.0), color(&line.must.verdict));
        let _ = writeln!(
            svg,
            "<rect x=\"{from:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"12\" fill=\"{color}\"/>"
        );
    }
    let _ = writeln!(
        svg,
        "<line x1=\"{0:.1}\" y1=\"{1}\" x2=\"{0:.1}\" y2=\"{bottom}\" stroke=\"#333333\"/>",
        place(1.0),
        TOP - 6.0
    );
    let _ = writeln!(
        svg,
        "<text x=\"10\" y=\"{}\" fill=\"#555555\">Right is better. Green: what must be is reached; red: missed; grey: nothing is \
         demanded, or it could not be judged.</text>\n</svg>",
        bottom + 20.0
    );
}

fn beside(line: &Line, gain: f64) -> String {
    let own = line.plexum.map(figure).unwrap_or_default();
    let peer = line.best_peer.as_deref().unwrap_or("peer");
    format!("{} x {peer} ({own} {})", figure(gain), line.unit)
}

fn color(verdict: &Verdict) -> &'static str {
    match verdict {
        Verdict::Reached => "#3c8d40",
        Verdict::Missed => "#c23b33",
        Verdict::NotMeasured(_) | Verdict::NoGoal => "#8a8a8a",
    }
}

/// Words in lines of at most so many characters.
fn wrapped(text: &str, length_max: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split(' ') {
        let last = lines.len() - 1;
        if !lines[last].is_empty() && lines[last].len() + word.len() >= length_max {
            lines.push(word.to_owned());
        } else {
            let line = &mut lines[last];
            if !line.is_empty() {
                line.push(' ');
            }
            line.push_str(word);
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compare::{Role, Samples};
    use crate::line::lines;

    #[test]
    fn a_cost_below_the_peers_goes_to_the_right_and_a_missed_goal_is_red() {
        let mut samples = Samples::default();
        let metric = "raw: 4K read, depth 32";
        for (role, name, unit, value) in [
            (Role::Plexum, "plexum", "us CPU", 5.0),
            (Role::Peer, "nbdkit file", "us CPU", 10.0),
            (Role::Plexum, "plexum", "kIOPS", 5.0),
            (Role::Peer, "nbdkit file", "kIOPS", 10.0),
        ] {
            samples.add(role, name, (metric.to_owned(), unit, value));
        }
        let lines = lines("served", &samples);
        let svg = chart(&lines, &Machine::look());
        assert!(svg.contains("2.00 x nbdkit file (5.00 us CPU)"));
        assert!(svg.contains("0.500 x nbdkit file (5.00 kIOPS)"));
        assert_eq!(svg.matches("#c23b33").count(), 1);
        assert_eq!(svg.matches("#3c8d40").count(), 1);
    }

    #[test]
    fn words_are_wrapped_and_none_is_lost() {
        assert_eq!(wrapped("a bb ccc d", 5), ["a bb", "ccc d"]);
    }
}
