//! Every command and option that a message advises is one that the parser takes.

use std::path::{Path, PathBuf};

use clap::{CommandFactory, Parser};

use crate::args::Cli;

/// What introduces a command or an option that a reader is to copy.
const MARK: &str = ":   ";

/// String literals of the sources that print messages, with the file that each is in.
fn literals() -> Vec<(PathBuf, String)> {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut found = Vec::new();
    for part in ["cli/src", "daemon/src"] {
        let mut folders = vec![crates.join(part)];
        while let Some(folder) = folders.pop() {
            for entry in std::fs::read_dir(folder).unwrap() {
                let path = entry.unwrap().path();
                if path.is_dir() {
                    folders.push(path);
                } else if path.extension().is_some_and(|ext| ext == "rs") {
                    let text = std::fs::read_to_string(&path).unwrap();
                    // Tests have answers of all kinds in them, and lie at the end.
                    let text = text.split("#[cfg(test)]").next().unwrap_or_default();
                    let all = literals_of(text).into_iter();
                    found.extend(all.map(|literal| (path.clone(), literal)));
                }
            }
        }
    }
    found
}

/// The string literals of a source: enough of Rust's rules for those that are printed.
fn literals_of(text: &str) -> Vec<String> {
    let mut found = Vec::new();
    for line in text
        .lines()
        .filter(|line| !line.trim_start().starts_with("//"))
    {
        let mut parts = line.split('"').skip(1);
        while let (Some(literal), rest) = (parts.next(), parts.next()) {
            found.push(literal.to_owned());
            if rest.is_none() {
                break;
            }
        }
    }
    found
}

/// What is behind the mark, or what is between backticks, up to where prose goes on.
fn advised(literal: &str) -> Vec<String> {
    let behind = literal.split(MARK).skip(1);
    let quoted = literal.split('`').skip(1).step_by(2);
    let cut = |text: &str| {
        let ends = ["   ", "\\n", "`", " (", ", "];
        let end = ends.iter().filter_map(|end| text.find(end)).min();
        text[..end.unwrap_or(text.len())].trim().to_owned()
    };
    let quoted = quoted.filter(|text| text.starts_with("plexum "));
    behind.chain(quoted).map(cut).collect()
}

/// The words as a reader would type them: something in every place that is left open.
fn filled(command: &str) -> Vec<String> {
    let mut text = String::new();
    let mut depth = 0;
    for letter in command.chars() {
        match letter {
            '{' if depth == 0 => {
                depth += 1;
                text.push_str("PLACE");
            }
            '{' => depth += 1,
            '}' => depth -= 1,
            letter if depth == 0 => text.push(letter),
            _ => {}
        }
    }
    let mut words: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        let is_open = |word: &str| {
            let word = word.trim_end_matches("...");
            !word.is_empty() && word.chars().all(|c| c.is_ascii_uppercase())
        };
        let before = words.last().map_or("", String::as_str);
        let filler = match before {
            "--level" => "5",
            "--member-size" | "--data-offset" => "1G",
            "--format" | "--to" => "md-1.2",
            "--balance" => "load",
            "--interval" | "--txg" | "undo" => "1",
            "--strip" | "--sector" | "--block" => "64K",
            "--listen" => "127.0.0.1:1",
            _ => "x",
        };
        match word {
            "..." => {}
            "COMMAND" => words.push("status".to_owned()),
            "NAME=VALUE" => words.push("balance=load".to_owned()),
            word if is_open(word) => words.push(filler.to_owned()), // PLACE too
            word => words.push(word.replace("PLACE", "x")),
        }
    }
    words
}

fn options_of(command: &clap::Command, found: &mut Vec<String>) {
    let longs = command.get_arguments().filter_map(|arg| arg.get_long());
    found.extend(longs.map(|long| format!("--{long}")));
    for inner in command.get_subcommands() {
        options_of(inner, found);
    }
}

#[test]
fn every_command_and_option_that_is_advised_is_accepted() {
    let mut options = Vec::new();
    options_of(&Cli::command(), &mut options);
    // Of `gmirror` and `gvinum`, which have a grammar of their own.
    options.push("--in".to_owned());
    let (mut commands, mut wrong) = (0, Vec::new());
    for (path, literal) in literals() {
        for advice in advised(&literal) {
            let words = filled(&advice);
            let told = |why: &str| format!("{}: {advice}: {why}", path.display());
            match words.first().map(String::as_str) {
                Some("plexum") if words.len() > 1 => {
                    commands += 1;
                    if let Err(error) = Cli::try_parse_from(&words) {
                        use clap::error::ErrorKind::{DisplayHelp, MissingRequiredArgument};
                        let is_cut = advice == "plexum" || words.len() == 2;
                        match error.kind() {
                            DisplayHelp => {}
                            // A command is often named by its word alone.
                            MissingRequiredArgument if is_cut => {}
                            kind => wrong.push(told(&format!("{kind:?}"))),
                        }
                    }
                }
                Some(option) if option.starts_with("--") => {
                    let long = option.split('=').next().unwrap_or_default().to_owned();
                    if !options.contains(&long) {
                        wrong.push(told("no such option"));
                    }
                }
                _ => {}
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(commands > 100, "only {commands} were found");
}

#[test]
fn a_command_that_nobody_takes_and_an_open_place_are_seen() {
    let advice = advised("to look:   plexum examine {}   and   plexum nothing");
    assert_eq!(advice, ["plexum examine {}"]);
    let words = filled("plexum add {volume} MEMBER... --level {}");
    assert_eq!(words, ["plexum", "add", "x", "x", "--level", "5"]);
    assert!(Cli::try_parse_from(filled("plexum exmine {}")).is_err());
    assert!(Cli::try_parse_from(filled("plexum add {volume} {} --nothing")).is_err());
}
