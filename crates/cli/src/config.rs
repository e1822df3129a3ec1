//! `plexum config`: the configuration text of Vinum, from a file (checked) or from the drives that carry it; and the
//! check of Plexum's own configuration.

use std::path::{Path, PathBuf};

use plexum_daemon::config::{self, ConfigFiles};
use plexum_daemon::examine::examine_path;
use plexum_daemon::foreign::offline::{Found, system_of};
use plexum_daemon::problem::{Code, Problem};
use plexum_format::vinum::{HeaderFormat, Script};
use plexum_freebsd::gvinum::{System, print_config};
use serde_json::json;

use crate::args::Config;
use crate::daemon::own_files;
use crate::errors::Outcome;
use crate::output::{Screen, object};

/// Runs the command.
///
/// # Errors
/// `Usage` with the place in a text, `NoMetadata`, `DamagedMetadata`.
pub fn run(args: &Config, screen: &Screen) -> Outcome {
    match &args.members[..] {
        [check] if check == "check" => return check_own(&own_files(), screen),
        [check, file] if check == "check" => {
            return check_own(&ConfigFiles::named(PathBuf::from(file)), screen);
        }
        _ => {}
    }
    let mut found = Vec::new();
    for word in &args.members {
        let examined = examine_path(Path::new(word), word)?;
        match examined.foreign {
            Some(foreign @ Found::Drive(_)) => found.push(foreign),
            _ if args.members.len() == 1 => return check_text(word, screen),
            _ => {
                let text = format!("{word} is no Vinum drive");
                return Err(Problem::new(Code::NoMetadata, text).member(word.clone()));
            }
        }
    }
    let found: Vec<&Found> = found.iter().collect();
    let system = system_of(&found)
        .map_err(|error| Problem::new(Code::DamagedMetadata, error.to_string()))?;
    for note in &system.notes {
        screen.note(note);
    }
    for drive in &system.drives {
        if drive
            .header
            .as_ref()
            .is_some_and(|header| header.format != HeaderFormat::Current)
        {
            screen.note(format!("{} has a header from before 2009", drive.device));
        }
    }
    let text = text_of(&system);
    screen.object(&object("config", None, json!({"text": text})));
    for line in text.lines() {
        screen.line(line);
    }
    Ok(0)
}

/// The text of a system: what `create -f` would make it from, with every place written out.
#[must_use]
pub fn text_of(system: &System) -> String {
    let drives = system.drives.iter().map(|drive| {
        let device = if drive.device.is_empty() {
            "/dev/???"
        } else {
            &drive.device
        };
        (drive.name.clone(), device.to_owned())
    });
    let mut config = system.config.clone();
    // Objects before those that refer to them, the oldest first: the text can be read back.
    config.volumes.sort_by(|a, b| a.name.cmp(&b.name));
    config.plexes.sort_by(|a, b| a.name.cmp(&b.name));
    config.subdisks.sort_by(|a, b| {
        let place = |subdisk: &plexum_format::vinum::Subdisk| subdisk.plex.clone();
        place(a).cmp(&place(b)).then(a.name.cmp(&b.name))
    });
    print_config(&config, &drives.collect::<Vec<_>>())
}

/// Plexum's own configuration: one line for each thing that is wrong with it.
fn check_own(files: &ConfigFiles, screen: &Screen) -> Outcome {
    let shown = files.main().unwrap_or(Path::new("-")).display().to_string();
    let (config, problems) = config::Config::read(files);
    let channels = config.alarm.channels.iter().map(|one| one.name.as_str());
    let channels: Vec<&str> = channels.collect();
    let mut lines: Vec<String> = problems.iter().map(ToString::to_string).collect();
    lines.extend(config.lacking_programs());
    let fields = json!({"file": shown, "problems": lines, "channels": channels});
    screen.object(&object("config_check", None, fields));
    for line in &lines {
        screen.line(line);
    }
    if lines.is_empty() {
        screen.done(format!(
            "{shown}: fine; messages go to {}",
            channels.join(", ")
        ));
    }
    Ok(u8::from(!lines.is_empty()))
}

/// A file that is no drive is a text to be checked.
fn check_text(word: &str, screen: &Screen) -> Outcome {
    let text = std::fs::read(word).map_err(|error| Problem::from_io(&error, "reading", word))?;
    match Script::parse(&text) {
        Ok(script) => {
            screen.done(format!(
                "{word}: {} drives, {} volumes, {} plexes, {} subdisks",
                script.drives.len(),
                script.volumes.len(),
                script.plexes.len(),
                script.subdisks.len()
            ));
            Ok(0)
        }
        Err(errors) => {
            let mut texts = errors.iter().map(ToString::to_string);
            let first = texts.next().unwrap_or_default();
            let mut problem = Problem::new(Code::Usage, format!("{word}: {first}"));
            for text in texts {
                problem = problem.why(text);
            }
            Err(problem)
        }
    }
}
