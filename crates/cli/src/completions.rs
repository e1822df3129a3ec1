//! `plexum completions`: completions for a shell, on standard output.
//!
//! bash, fish and zsh complete the names of volumes that are served at that moment: what `clap_complete` writes is
//! joined by a few lines that ask `plexum volume-names`.
//!
//! Invariant: a name is only ever compared and quoted, never evaluated. It may come from a foreign disk.

use clap_complete::Shell;

use crate::args::Completions;
use crate::client::running_volumes;
use crate::errors::Outcome;
use crate::help;
use crate::output::write_raw;

/// Behind the first words of these, bash asks for the names: `@COMMANDS@` is put in.
const BASH: &str = r#"
_plexum_volume() {
    _plexum "$@"
    case "${COMP_WORDS[1]}" in
        @COMMANDS@) ;;
        *) return ;;
    esac
    [[ "$2" == -* ]] && return
    local word name names=()
    for word in "${COMP_WORDS[@]:2:COMP_CWORD-2}"; do
        [[ "${word}" == -* ]] || return
    done
    while IFS= read -r name; do
        [[ "${name}" == "$2"* ]] && names+=("$(printf %q "${name}")")
    done < <(plexum volume-names 2>/dev/null)
    (( ${#names[@]} )) && COMPREPLY=("${names[@]}")
}

"#;

/// How `clap_complete` registers its function in bash, and how it is to be.
const BASH_REGISTERED: (&str, &str) = ("complete -F _plexum ", "complete -F _plexum_volume ");

const FISH: &str = r#"complete -c plexum -n "__fish_plexum_using_subcommand @COMMANDS@; and test (count (commandline -opc)) -eq 2" -f -a "(plexum volume-names 2>/dev/null)" -d 'Volume'
"#;

const ZSH: &str = r#"
_plexum_volumes() {
    local -a names
    names=("${(@f)$(plexum volume-names 2>/dev/null)}")
    names=("${(@)names:#}")
    compadd -a names
}

"#;

/// What `clap_complete` lets zsh do with an argument that it knows nothing about.
const ZSH_ANYTHING: &str = ":_default' \\";

/// Runs the command.
///
/// # Errors
/// None.
pub fn run(args: &Completions) -> Outcome {
    write_raw(script(args.shell).as_bytes());
    Ok(0)
}

/// `plexum volume-names`: the names of the volumes that are served, one a line.
///
/// # Errors
/// None.
pub fn volume_names() -> Outcome {
    let names = running_volumes()
        .into_iter()
        .map(|(_, status)| status.volume);
    let is_one_line = |name: &String| !name.chars().any(char::is_control);
    for name in names.filter(is_one_line) {
        write_raw(format!("{name}\n").as_bytes());
    }
    Ok(0)
}

/// The whole script of a shell.
fn script(shell: Shell) -> String {
    let mut command = help::visible();
    let mut text = Vec::new();
    clap_complete::generate(shell, &mut command, "plexum", &mut text);
    let text = String::from_utf8_lossy(&text).into_owned();
    let commands: Vec<&str> = command
        .get_subcommands()
        .filter(|sub| takes_volume(sub))
        .map(clap::Command::get_name)
        .collect();
    match shell {
        Shell::Bash => {
            let (own, ours) = BASH_REGISTERED;
            // The registration comes last, and calls what stands before it.
            let end = text.rfind("\nif [[").unwrap_or(text.len());
            let asked = BASH.replace("@COMMANDS@", &commands.join("|"));
            format!("{}{asked}{}", &text[..end], text[end..].replace(own, ours))
        }
        Shell::Fish => text + &FISH.replace("@COMMANDS@", &commands.join(" ")),
        Shell::Zsh => zsh(&text),
        _ => text,
    }
}

/// Whether its first word is the name of a volume that is served.
fn takes_volume(command: &clap::Command) -> bool {
    let first = command.get_positionals().next();
    first.is_some_and(|first| {
        let is_volume = ["volume", "what"].contains(&first.get_id().as_str());
        is_volume || command.get_name() == "set"
    })
}

/// zsh says of each argument who completes it.
fn zsh(text: &str) -> String {
    let begins = [
        "'::volume -- ",
        "':volume -- ",
        "'::what -- ",
        "'*::words -- Name of the volume ",
    ];
    let line = |line: &str| {
        let is_volume = begins.iter().any(|begin| line.starts_with(begin));
        match line.strip_suffix(ZSH_ANYTHING).filter(|_| is_volume) {
            Some(start) => format!("{start}:_plexum_volumes' \\\n"),
            None => format!("{line}\n"),
        }
    };
    let lines: String = text.lines().map(line).collect();
    // The last lines call the function, or register it.
    let end = lines
        .rfind("\nif [ \"$funcstack[1]\"")
        .unwrap_or(lines.len());
    format!("{}{ZSH}{}", &lines[..end], &lines[end..])
}

#[cfg(test)]
mod tests {
    use super::*;

    const WITH_VOLUMES: &str =
        "explain|status|stop|attach|detach|fail|add|remove|re-add|replace|scrub|set|stats|events";

    #[test]
    fn names_of_volumes_are_asked_for_where_a_command_takes_one() {
        let bash = script(Shell::Bash);
        assert!(bash.contains(WITH_VOLUMES), "{bash}");
        assert_eq!(bash.matches(BASH_REGISTERED.1).count(), 2);
        assert!(!bash.contains(BASH_REGISTERED.0));
        let fish = script(Shell::Fish);
        assert!(fish.contains(&WITH_VOLUMES.replace('|', " ")), "{fish}");
        let zsh = script(Shell::Zsh);
        let asked = zsh
            .lines()
            .filter(|line| line.ends_with(":_plexum_volumes' \\"));
        assert!(asked.count() >= WITH_VOLUMES.split('|').count(), "{zsh}");
        assert!(zsh.find("_plexum_volumes() {") < zsh.rfind("funcstack"));
    }
}
