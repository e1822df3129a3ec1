//! Vocabularies of other programs: the commands of one, what each is given, and how a line of words is taken apart.
//!
//! Invariants:
//! - what a usage line says is what is understood: options and the number of words are read from it;
//! - a command that is not known is never taken for one that found nothing.

use plexum_daemon::problem::{Code, Problem};

use crate::errors::Outcome;
use crate::output::Screen;

/// A command of a vocabulary.
pub struct Command {
    /// Its names; the first one is told.
    pub names: &'static [&'static str],
    /// What follows the name, as manual pages write it: `[-hv] [-p priority] name prov ...`.
    pub usage: &'static str,
}

/// The commands of another program.
pub struct Vocabulary {
    /// Its name.
    pub program: &'static str,
    /// All commands.
    pub commands: &'static [Command],
}

/// How many words a command takes.
#[derive(Debug, PartialEq, Eq)]
struct Shape {
    flags: String,
    with_value: String,
    least: usize,
    most: usize,
}

impl Command {
    fn shape(&self) -> Shape {
        let mut shape = Shape {
            flags: String::new(),
            with_value: String::new(),
            least: 0,
            most: 0,
        };
        let mut depth = 0_usize;
        let words: Vec<&str> = self.usage.split_whitespace().collect();
        for (at, word) in words.iter().enumerate() {
            let opens = word.starts_with('[');
            let letters = word.trim_start_matches('[').trim_end_matches(']');
            let is_option = letters.starts_with('-');
            depth += usize::from(opens);
            if *word == "..." || letters == "..." {
                shape.most = usize::MAX;
            } else if is_option && word.ends_with(']') {
                shape.flags.push_str(&letters[1..]);
            } else if is_option {
                shape.with_value.push_str(&letters[1..]);
            } else if at == 0 || !words[at - 1].starts_with("[-") || words[at - 1].ends_with(']') {
                shape.least += usize::from(depth == 0);
                shape.most = shape.most.saturating_add(1);
            }
            depth -= usize::from(word.ends_with(']')).min(depth);
        }
        shape
    }
}

/// Words of a command: options with their values, and what is left.
#[derive(Debug, Default)]
pub struct Words {
    /// Folders, files and devices in which members are looked for.
    pub places: Vec<String>,
    options: Vec<(char, Option<String>)>,
    /// Everything else, in order.
    pub rest: Vec<String>,
}

impl Words {
    /// No words but places.
    #[must_use]
    pub fn at(places: Vec<String>) -> Self {
        Self {
            places,
            ..Self::default()
        }
    }

    /// Whether an option was given.
    #[must_use]
    pub fn has(&self, option: char) -> bool {
        self.options.iter().any(|(known, _)| *known == option)
    }

    /// Whether an option was given that is none of `known`.
    #[must_use]
    pub fn has_other_than(&self, known: &str) -> bool {
        let mut options = self.options.iter();
        options.any(|(option, _)| !known.contains(*option))
    }

    /// The value of an option; the last one counts.
    #[must_use]
    pub fn value(&self, option: char) -> Option<&str> {
        let found = self
            .options
            .iter()
            .rev()
            .find(|(known, _)| *known == option);
        found.and_then(|(_, value)| value.as_deref())
    }
}

impl Vocabulary {
    /// Takes a line apart: the command's own name and its words.
    ///
    /// # Errors
    /// `Usage`: no such command, an option that it does not have, too few or too many words.
    pub fn parse(&self, words: &[String]) -> Result<(&'static str, Words), Problem> {
        let Some((typed, rest)) = words.split_first() else {
            return Err(self.list_of(Problem::new(Code::Usage, "a command is missing")));
        };
        let mut commands = self.commands.iter();
        let Some(command) = commands.find(|known| known.names.contains(&typed.as_str())) else {
            return Err(self.unknown(typed));
        };
        let name = command.names[0];
        let shape = command.shape();
        let words = self.split(name, &shape, rest)?;
        let count = words.rest.len();
        if count < shape.least {
            let text = format!("{typed} needs more words");
            return Err(self.wrong(name, text));
        }
        if count > shape.most {
            let text = format!("{typed}: {} is one word too many", words.rest[shape.most]);
            return Err(self.wrong(name, text));
        }
        Ok((name, words))
    }

    fn split(&self, name: &str, shape: &Shape, typed: &[String]) -> Result<Words, Problem> {
        let mut parsed = Words::default();
        let mut typed = typed.iter();
        let lacks = |option: &str| self.wrong(name, format!("{option} needs a value"));
        while let Some(word) = typed.next() {
            if word == "--" {
                parsed.rest.extend(typed.cloned());
                break;
            }
            if word == "--in" {
                let place = typed.next().ok_or_else(|| lacks(word))?;
                parsed.places.push(place.clone());
                continue;
            }
            if word == "--force" && shape.flags.contains('f') {
                parsed.options.push(('f', None)); // as the other commands of plexum call it
                continue;
            }
            let Some(letters) = word.strip_prefix('-').filter(|letters| !letters.is_empty()) else {
                parsed.rest.push(word.clone());
                continue;
            };
            for (at, letter) in letters.char_indices() {
                if shape.flags.contains(letter) {
                    parsed.options.push((letter, None));
                } else if shape.with_value.contains(letter) {
                    let joined = &letters[at + letter.len_utf8()..];
                    let value = match joined {
                        "" => typed.next().cloned().ok_or_else(|| lacks(word))?,
                        joined => joined.to_owned(),
                    };
                    parsed.options.push((letter, Some(value)));
                    break;
                } else {
                    let text = format!("{word} is no option of {} {name}", self.program);
                    return Err(self.wrong(name, text));
                }
            }
        }
        Ok(parsed)
    }

    /// A problem with the usage of a command.
    #[must_use]
    pub fn wrong(&self, name: &str, text: impl Into<String>) -> Problem {
        let problem = Problem::new(Code::Usage, text);
        let mut commands = self.commands.iter();
        match commands.find(|known| known.names.contains(&name)) {
            Some(command) => problem.hint(format!("usage:   {}", self.line(command))),
            None => problem,
        }
    }

    fn line(&self, command: &Command) -> String {
        let line = format!("{} {} {}", self.program, command.names[0], command.usage);
        line.trim_end().to_owned()
    }

    fn unknown(&self, typed: &str) -> Problem {
        let text = format!("{} has no command {typed}", self.program);
        let problem = Problem::new(Code::Usage, text);
        let names = self.commands.iter().flat_map(|command| command.names);
        let nearest = names
            .map(|name| (distance(name, typed), *name))
            .min()
            .filter(|(steps, name)| *steps <= 2 && *steps < name.len());
        let problem = match nearest {
            Some((_, name)) => problem.hint(format!("the nearest one is:   {name}")),
            None => problem,
        };
        self.list_of(problem)
    }

    fn list_of(&self, problem: Problem) -> Problem {
        let names: Vec<&str> = self.commands.iter().map(|known| known.names[0]).collect();
        problem
            .hint(format!("its commands are:   {}", names.join(" ")))
            .hint(format!("with what they take:   {} help", self.program))
    }

    /// Prints the usage of every command.
    ///
    /// # Errors
    /// None; an `Outcome` so that it can end a command.
    pub fn help(&self, screen: &Screen) -> Outcome {
        for (at, command) in self.commands.iter().enumerate() {
            let head = if at == 0 { "usage:" } else { "" };
            screen.line(format!("{head:<6} {}", self.line(command)));
        }
        screen.line(
            "--in DIR|FILE with any of them says where to look for members; otherwise all disks",
        );
        Ok(0)
    }
}

/// How many letters have to be put in, taken out or changed to come from one word to the other.
fn distance(from: &str, to: &str) -> usize {
    let to: Vec<char> = to.chars().collect();
    let mut row: Vec<usize> = (0..=to.len()).collect();
    for (number, letter) in from.chars().enumerate() {
        let mut before = row[0];
        row[0] = number + 1;
        for (at, other) in to.iter().enumerate() {
            let changed = before + usize::from(letter != *other);
            before = row[at + 1];
            row[at + 1] = changed.min(before + 1).min(row[at] + 1);
        }
    }
    row[to.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOME: Vocabulary = Vocabulary {
        program: "gmirror",
        commands: &[
            Command {
                names: &["insert"],
                usage: "[-hiv] [-p priority] name prov ...",
            },
            Command {
                names: &["move", "mv"],
                usage: "[-f] drive subdisk",
            },
            Command {
                names: &["status"],
                usage: "[-s] [name ...]",
            },
        ],
    };

    fn parse(line: &str) -> Result<(&'static str, Words), String> {
        let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
        SOME.parse(&words)
            .map_err(|problem| format!("{} | {}", problem.message, problem.hints.join(" | ")))
    }

    #[test]
    fn a_usage_line_says_what_is_understood() {
        let (name, words) = parse("insert -hp 7 gm0 --in x a b").unwrap();
        assert_eq!(
            (name, words.rest.as_slice()),
            ("insert", &["gm0", "a", "b"].map(str::to_owned)[..])
        );
        assert_eq!(
            (words.has('h'), words.has('i'), words.value('p')),
            (true, false, Some("7"))
        );
        assert_eq!(words.places, ["x"]);
        assert_eq!(parse("insert -p7 gm0 a").unwrap().1.value('p'), Some("7"));
        assert_eq!(parse("mv a b").unwrap().0, "move");
        assert_eq!(parse("status").unwrap().1.rest.len(), 0);
        assert_eq!(parse("status a b c").unwrap().1.rest.len(), 3);
        assert_eq!(parse("insert gm0 -- -a").unwrap().1.rest[1], "-a");
    }

    #[test]
    fn what_is_missing_or_too_much_is_told_with_the_usage_line() {
        let usage = "usage:   gmirror insert [-hiv] [-p priority] name prov ...";
        for (line, first) in [
            ("insert gm0", "insert needs more words"),
            ("insert", "insert needs more words"),
            ("insert -p", "-p needs a value"),
            ("insert -z gm0 a", "-z is no option of gmirror insert"),
        ] {
            assert_eq!(
                parse(line).unwrap_err(),
                format!("{first} | {usage}"),
                "{line}"
            );
        }
        let many = parse("move a b c").unwrap_err();
        assert!(many.starts_with("move: c is one word too many"), "{many}");
    }

    #[test]
    fn an_unknown_word_is_told_with_the_nearest_one() {
        let near = parse("isnert gm0 a").unwrap_err();
        assert!(
            near.starts_with("gmirror has no command isnert | the nearest one is:   insert"),
            "{near}"
        );
        let far = parse("frobnicate").unwrap_err();
        assert!(
            !far.contains("nearest") && far.contains("insert move status"),
            "{far}"
        );
    }
}
