//! `cargo xtask beside-md`: what a request costs through Plexum's ways to a block device, beside the kernel's md over
//! the same members in the same boot, in counted instructions of the whole guest (`oracle/vm-oracle run --count`).
//!
//! Each load runs with N and with 2 N requests: the difference is free of its start. Counts do not depend on how busy
//! the machine is. An instruction is no nanosecond: use them for ratios.

use std::fmt::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::ci;

const SCRIPT: &str = include_str!("beside_md.sh");

/// Levels, and how many members each has.
const LEVELS: [(&str, &str); 4] = [("1", "2"), ("10", "4"), ("5", "4"), ("6", "6")];
/// What is asked for when no way is named.
const WAYS: [&str; 3] = ["ublk", "nbd", "fuse"];
/// The loads of the script, in its order, as the table calls them.
const LOADS: [(&str, &str); 6] = [
    ("randread 4k 1", "read, depth 1"),
    ("randwrite 4k 1", "write, depth 1"),
    ("randread 4k 32", "read, 32"),
    ("randwrite 4k 32", "write, 32"),
    ("read 1M 8", "1 MiB read"),
    ("write 1M 8", "1 MiB write"),
];

/// One figure: who, which load, thousands of instructions a request.
#[derive(Debug, PartialEq)]
struct Figure {
    name: String,
    load: String,
    thousands: f64,
}

/// Counts and prints a table. `arguments` are levels and ways; none of a kind means all of it.
///
/// # Errors
/// A word that is neither; the guest cannot be run, or what it runs fails.
pub fn run(root: &Path, arguments: &[&str]) -> Result<(), String> {
    let (levels, ways) = chosen(arguments)?;
    ci::cargo(
        root,
        &[
            "build",
            "--release",
            "--locked",
            "--package",
            "plexum-cli",
            "--bin",
            "plexum",
        ],
    )?;
    let plexum = ci::target(root).join("release/plexum");
    for (level, members) in levels {
        let words = [&[level, members], &ways[..]].concat();
        let text = count(root, &plexum, &words)?;
        println!("\nRAID-{level} of {members}\n\n{}", table(&figures(&text))?);
    }
    Ok(())
}

type Chosen<'a> = (Vec<(&'static str, &'static str)>, Vec<&'a str>);

fn chosen<'a>(arguments: &[&'a str]) -> Result<Chosen<'a>, String> {
    let (mut levels, mut ways) = (Vec::new(), Vec::new());
    for word in arguments {
        match LEVELS.iter().find(|(level, _)| level == word) {
            Some(level) => levels.push(*level),
            None if WAYS.contains(word) => ways.push(*word),
            None => {
                return Err(format!(
                    "{word}: levels are 1, 10, 5, 6; ways are {}",
                    WAYS.join(", ")
                ));
            }
        }
    }
    if levels.is_empty() {
        levels = LEVELS.to_vec();
    }
    if ways.is_empty() {
        ways = WAYS.to_vec();
    }
    Ok((levels, ways))
}

/// What the script prints in a guest.
fn count(root: &Path, plexum: &Path, words: &[&str]) -> Result<String, String> {
    let output = Command::new(root.join("oracle/vm-oracle"))
        .args(["run", "--kernel", "13", "--count", "--module", "ublk_drv"])
        .args(["--mem", "1536M", "--timeout", "3600", "--with"])
        .arg(plexum)
        .arg("-c")
        .arg(format!("set -- {}\n{SCRIPT}", words.join(" ")))
        .stderr(Stdio::inherit())
        .output()
        .map_err(|error| format!("oracle/vm-oracle: {error}"))?;
    match output.status.success() {
        true => Ok(String::from_utf8_lossy(&output.stdout).into_owned()),
        false => Err(format!("the guest ended with {}", output.status)),
    }
}

fn figures(text: &str) -> Vec<Figure> {
    let figure = |line: &str| {
        let (name, rest) = line.split_once(' ')?;
        let (load, thousands) = rest.rsplit_once(' ')?;
        Some(Figure {
            name: name.to_owned(),
            load: load.to_owned(),
            thousands: thousands.parse().ok()?,
        })
    };
    text.lines().filter_map(figure).collect()
}

/// A row for each that was counted, each figure with its ratio to md's.
fn table(figures: &[Figure]) -> Result<String, String> {
    let find = |name: &str, load: &str| {
        let mut all = figures.iter();
        let found = all.find(|one| one.name == name && one.load == load);
        let found = found.ok_or_else(|| format!("no figure of {name} for {load}"))?;
        Ok::<f64, String>(found.thousands)
    };
    let mut names: Vec<&str> = figures.iter().map(|one| one.name.as_str()).collect();
    names.dedup();
    let heads: Vec<&str> = LOADS.iter().map(|(_, head)| *head).collect();
    let mut out = format!(
        "| | {} |\n|---|{}\n",
        heads.join(" | "),
        "---|".repeat(LOADS.len())
    );
    for name in names {
        let _ = write!(out, "| {name} |");
        for (load, _) in LOADS {
            let (own, md) = (find(name, load)?, find("md", load)?);
            let digits = usize::from(own < 1000.0);
            let _ = match name {
                "md" => write!(out, " {own:.digits$} |"),
                _ => write!(out, " {own:.digits$} ({:.2}) |", own / md),
            };
        }
        out.push('\n');
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_stand_beside_md_with_their_ratio() {
        let mut text = "fio says something\n".to_owned();
        for (load, _) in LOADS {
            let _ = writeln!(text, "md {load} 20");
        }
        for (load, _) in LOADS {
            let _ = writeln!(text, "ublk {load} 36.04");
        }
        let table = table(&figures(&text)).unwrap();
        let last = table.lines().last().unwrap();
        assert!(last.starts_with("| ublk | 36.0 (1.80) |"), "{table}");
        let missing = super::table(&figures("ublk read 1M 8 5\n")).unwrap_err();
        assert_eq!(missing, "no figure of ublk for randread 4k 1");
    }

    #[test]
    fn levels_and_ways_are_chosen_by_their_words() {
        let (levels, ways) = chosen(&["5", "ublk"]).unwrap();
        assert_eq!((levels, ways), (vec![("5", "4")], vec!["ublk"]));
        assert_eq!(chosen(&[]).unwrap().0.len(), LEVELS.len());
        assert!(chosen(&["4"]).unwrap_err().starts_with("4: levels are"));
    }
}
