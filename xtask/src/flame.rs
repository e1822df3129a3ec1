//! `cargo xtask flame PATH > FILE.svg`: where the time of one hot path of the engine goes, as a flame graph.
//!
//! `hot` is built with frame pointers and names in a folder of its own, sampled by perf, and the stacks are drawn:
//! width is time, callers are below. A pointer over a frame shows its full name and share.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;
use std::process::Command;

use crate::ci;

/// Samples a second: a prime, so that nothing periodic hides between them.
const SAMPLES_PER_SECOND: &str = "1999";

/// Sizes in pixels.
const WIDTH: f64 = 1400.0;
const ROW: usize = 17;
/// Narrower frames are left out, and narrower texts.
const FRAME_MIN: f64 = 0.7;
const TEXT_MIN: f64 = 40.0;
const CHARACTER: f64 = 6.4;

/// Samples the path and prints the picture.
///
/// # Errors
/// No perf here, or no path.
pub fn run(root: &Path, words: &[&str]) -> Result<(), String> {
    if words.is_empty() {
        return Err(
            "which path? for example:   cargo xtask flame raid5 null bitmap write 4096 32 random 3000000 > flame.svg"
                .to_owned(),
        );
    }
    if Command::new("perf").arg("version").output().is_err() {
        return Err("perf is not installed".to_owned());
    }
    let folder = ci::target(root).join("flame");
    let status = Command::new("cargo")
        .current_dir(root)
        .args([
            "build",
            "--release",
            "--locked",
            "--package",
            "plexum-engine",
        ])
        .args(["--example", "hot"])
        .env("CARGO_TARGET_DIR", &folder)
        .env("CARGO_PROFILE_RELEASE_DEBUG", "line-tables-only")
        .env("RUSTFLAGS", "-C force-frame-pointers=yes")
        .status()
        .map_err(|error| format!("cargo: {error}"))?;
    if !status.success() {
        return Err("hot was not built".to_owned());
    }
    let data = folder.join("perf.data");
    let mut record = Command::new("perf");
    record.args([
        "record",
        "--quiet",
        "--event",
        "cpu-clock",
        "--call-graph",
        "fp",
    ]);
    record
        .args(["--freq", SAMPLES_PER_SECOND, "--output"])
        .arg(&data)
        .arg("--");
    record.arg(folder.join("release/examples/hot")).args(words);
    output(record.env("LC_ALL", "C"))?;
    let mut script = Command::new("perf");
    script
        .args(["script", "--fields", "comm,ip,sym", "--input"])
        .arg(&data);
    let stacks = output(&mut script)?;
    print!("{}", svg(&tree(&stacks), &words.join(" ")));
    Ok(())
}

fn output(command: &mut Command) -> Result<String, String> {
    let output = command.output().map_err(|error| format!("perf: {error}"))?;
    if !output.status.success() {
        let told = String::from_utf8_lossy(&output.stderr);
        return Err(format!("perf: {}", told.lines().next().unwrap_or("failed")));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// A frame: samples in it and in what it calls.
#[derive(Debug, Default, PartialEq)]
struct Frame {
    samples: u64,
    callees: BTreeMap<String, Frame>,
}

/// The frames of what `perf script` prints: one block a sample, innermost frame first, each line an address and a name.
fn tree(stacks: &str) -> Frame {
    let mut root = Frame::default();
    for block in stacks.split("\n\n") {
        let frames: Vec<&str> = block
            .lines()
            .filter(|line| line.starts_with([' ', '\t']))
            .filter_map(|line| line.trim().split_once(' '))
            .map(|(_, name)| plain(name))
            .collect();
        if frames.is_empty() {
            continue;
        }
        root.samples += 1;
        let mut at = &mut root;
        for name in frames.into_iter().rev() {
            at = at.callees.entry(name.to_owned()).or_default();
            at.samples += 1;
        }
    }
    root
}

/// A name without the compiler's hash and offset.
fn plain(name: &str) -> &str {
    let name = name.split("+0x").next().unwrap_or(name);
    match name.rsplit_once("::h") {
        Some((front, hash)) if hash.len() == 16 && hash.bytes().all(|b| b.is_ascii_hexdigit()) => {
            front
        }
        _ => name,
    }
}

fn depth(frame: &Frame) -> usize {
    1 + frame.callees.values().map(depth).max().unwrap_or(0)
}

fn svg(root: &Frame, title: &str) -> String {
    let rows = depth(root);
    let height = (rows + 2) * ROW;
    let mut text = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{WIDTH}\" height=\"{height}\" font-family=\"monospace\" \
         font-size=\"11\">\n<rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>\n\
         <text x=\"8\" y=\"14\" font-size=\"13\">hot {}: {} samples</text>\n",
        escaped(title),
        root.samples
    );
    let all = (root.samples as f64).max(1.0);
    draw(
        root,
        "all",
        0.0,
        0,
        &|row| height - (row + 1) * ROW,
        all,
        &mut text,
    );
    text += "</svg>\n";
    text
}

fn draw(
    frame: &Frame,
    name: &str,
    x: f64,
    row: usize,
    y_of: &dyn Fn(usize) -> usize,
    all: f64,
    text: &mut String,
) {
    let width = frame.samples as f64 / all * WIDTH;
    if width < FRAME_MIN {
        return;
    }
    let (y, share) = (y_of(row), frame.samples as f64 * 100.0 / all);
    let hue = name
        .bytes()
        .fold(0u32, |sum, byte| sum.wrapping_mul(31) + u32::from(byte))
        % 50;
    let shown: String = name.chars().take((width / CHARACTER) as usize).collect();
    let name = escaped(name);
    // A String takes everything.
    let _ = writeln!(
        text,
        "<g><title>{name}: {share:.1} %</title><rect x=\"{x:.1}\" y=\"{y}\" width=\"{width:.1}\" height=\"{}\" \
         fill=\"hsl({hue},80%,65%)\" stroke=\"#ffffff\"/>",
        ROW - 1
    );
    if width > TEXT_MIN {
        let _ = writeln!(
            text,
            "<text x=\"{:.1}\" y=\"{}\">{}</text>",
            x + 3.0,
            y + 12,
            escaped(&shown)
        );
    }
    *text += "</g>\n";
    let mut next = x;
    for (name, callee) in &frame.callees {
        draw(callee, name, next, row + 1, y_of, all, text);
        next += callee.samples as f64 / all * WIDTH;
    }
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_of_one_caller_are_one_frame_and_hashes_are_left_out() {
        let stacks = "hot\n\t  1a leaf::h0123456789abcdef\n\t  2b main\n\nhot\n\t  3c other+0x12\n\t  2b main\n\n";
        let root = tree(stacks);
        assert_eq!(root.samples, 2);
        let main = &root.callees["main"];
        assert_eq!(main.samples, 2);
        let names: Vec<&String> = main.callees.keys().collect();
        assert_eq!(names, ["leaf", "other"]);
        assert_eq!(depth(&root), 3);
        let svg = svg(&root, "a<b");
        assert!(svg.contains("leaf: 50.0 %") && svg.contains("hot a&lt;b: 2 samples"));
    }
}
