//! The help of the program itself: commands in groups, so that thirty of them can be looked over.

use clap::CommandFactory;

use crate::args::Cli;

/// Commands by what they are for; each that is not hidden stands in one group.
const GROUPS: [(&str, &[&str]); 6] = [
    (
        "Make and look",
        &[
            "demo", "create", "examine", "scan", "explain", "history", "undo",
        ],
    ),
    (
        "Serve and watch",
        &[
            "serve", "status", "top", "stop", "attach", "detach", "scrub", "set", "stats",
            "events", "daemon", "forget", "disks", "locate", "incident", "ack", "alert", "metrics",
            "doctor", "debug",
        ],
    ),
    (
        "Members of a running volume",
        &["fail", "add", "remove", "re-add", "replace", "grow"],
    ),
    (
        "Other formats",
        &["convert", "config", "gmirror", "gvinum", "pool"],
    ),
    ("Try out and measure", &["sim", "lab", "bench"]),
    ("For the shell", &["completions", "man"]),
];

/// The command line with its grouped help.
#[must_use]
pub fn command() -> clap::Command {
    let command = Cli::command();
    let mut text = String::from("{about-with-newline}\n{usage-heading} {usage}\n");
    for (title, names) in GROUPS {
        text.push_str(&format!("\n{title}:\n"));
        for name in names {
            let about = command
                .find_subcommand(name)
                .and_then(clap::Command::get_about);
            let about = about.map(ToString::to_string).unwrap_or_default();
            text.push_str(&format!("  {name:<12} {about}\n"));
        }
    }
    text.push_str("\nOptions:\n{options}\n\n{after-help}");
    command.help_template(text)
}

/// The command line without what is hidden: for completions.
#[must_use]
pub fn visible() -> clap::Command {
    let command = Cli::command();
    let shown = command.get_subcommands().filter(|sub| !sub.is_hide_set());
    clap::Command::new("plexum")
        .args(command.get_arguments().cloned())
        .subcommands(shown.cloned().collect::<Vec<_>>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_command_stands_in_one_group() {
        let command = Cli::command();
        let shown = command.get_subcommands().filter(|sub| !sub.is_hide_set());
        let mut names: Vec<&str> = shown.map(clap::Command::get_name).collect();
        let mut grouped: Vec<&str> = GROUPS
            .iter()
            .flat_map(|(_, names)| *names)
            .copied()
            .collect();
        names.sort_unstable();
        grouped.sort_unstable();
        assert_eq!(names, grouped);
    }

    #[test]
    fn hidden_commands_are_not_completed() {
        let mut text = Vec::new();
        clap_complete::generate(
            clap_complete::Shell::Bash,
            &mut visible(),
            "plexum",
            &mut text,
        );
        let text = String::from_utf8(text).unwrap();
        assert!(text.contains("re-add") && !text.contains("attach-process"));
    }
}
