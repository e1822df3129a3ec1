//! Commands of gvinum that stop, check, dump, reset: for old scripts, by what does it here.
//!
//! Invariants: what destroys a configuration asks for gvinum's own words, or for -f.

use std::io::BufRead;

use plexum_daemon::changes::Reverse;
use plexum_daemon::examine::examine_path;
use plexum_daemon::foreign::create::{Edit, carry_out};
use plexum_daemon::foreign::offline::Found;
use plexum_daemon::problem::{Code, Problem};
use plexum_format::vinum::{CONFIG_BYTES, CONFIG_OFFSETS_BYTES, DriveHeader, HEADER_OFFSET_BYTES};
use plexum_freebsd::gvinum::System;
use plexum_freebsd::gvinum::edit::{Depth, remove_on_drive};

use super::{VOCABULARY, refused, systems};
use crate::args::{Cli, Command, Common};
use crate::client::Client;
use crate::errors::Outcome;
use crate::fields::fields_json;
use crate::foreign::check_owners;
use crate::history::{noted, tell};
use crate::offline::runtime;
use crate::output::{Screen, object};
use crate::words::Words;

/// What gvinum wants to read before it forgets a configuration.
const NO_FUTURE: &str = "NO FUTURE";

/// The volume of a plex or subdisk: what is before its first dot that a number follows.
pub fn volume_of(object: &str) -> &str {
    let end = object.find(".p").unwrap_or(object.len());
    &object[..end]
}

/// Commands on a volume that is served.
///
/// # Errors
/// `NoSuchVolume` when it is not served; of the command that does it.
pub fn on_served(
    command: &'static str,
    words: &Words,
    common: &Common,
    screen: &Screen,
) -> Outcome {
    let mut code = 0;
    for object in &words.rest {
        let volume = volume_of(object);
        let typed: &[&str] = match command {
            "stop" if words.has('f') => &["plexum", "stop", "--force", volume],
            "stop" => &["plexum", "stop", volume],
            "checkparity" => &["plexum", "scrub", volume, "--wait"],
            "rebuildparity" => &["plexum", "scrub", volume, "--repair", "--wait"],
            _ => {
                start(volume, screen)?;
                continue;
            }
        };
        let cli = <Cli as clap::Parser>::try_parse_from(typed)
            .map_err(|error| VOCABULARY.wrong(command, error.to_string()))?;
        let outcome = match &cli.command {
            Command::Stop(args) => crate::stop::run(args, common, screen)?,
            Command::Scrub(args) => crate::scrub::run(args, common, screen)?,
            _ => return Err(Problem::new(Code::Bug, "a command is another one")),
        };
        code = code.max(outcome);
    }
    Ok(code)
}

/// What is stale is filled by itself as soon as the volume is served.
fn start(volume: &str, screen: &Screen) -> Result<(), Problem> {
    let client = Client::find(Some(volume)).map_err(|problem| {
        problem
            .hint("it starts, and what is stale is filled, with:   plexum serve --write DRIVE...")
    })?;
    let status = client.status()?;
    for job in &status.jobs {
        let (done, all) = (job.done_bytes, job.total_bytes.max(1));
        let percent = u128::from(done) * 100 / u128::from(all);
        screen.line(format!("{volume}: {} {percent}%", job.kind.word()));
    }
    Ok(())
}

/// Every field of headers and configurations.
///
/// # Errors
/// `NoMetadata` for what is no drive.
pub fn dump(words: &Words, screen: &Screen) -> Outcome {
    let mut paths = words.rest.clone();
    if paths.is_empty() {
        let found = systems(&words.places)?.into_iter();
        paths.extend(found.flat_map(|(_, paths)| paths));
    }
    for path in &paths {
        let examined = examine_path(std::path::Path::new(path), path)?;
        let Some(drive @ Found::Drive(_)) = examined.foreign else {
            return Err(
                Problem::new(Code::NoMetadata, format!("{path} is no Vinum drive")).member(path),
            );
        };
        screen.line(format!("Metadata on {path}:"));
        let mut value = serde_json::json!({"member": path});
        for (part, fields) in drive.fields() {
            for field in &fields {
                screen.line(format!("{:>14}: {}", field.name, field.value));
            }
            value[part] = fields_json(&fields);
        }
        screen.object(&object("drive", None, value));
    }
    Ok(0)
}

/// Marks a drive as removed. What is on it goes with it or forbids it.
///
/// # Errors
/// A sentence: subdisks are on it, or it is not there.
pub fn remove_drive(system: &mut System, name: &str, depth: Depth) -> Result<(), Problem> {
    let on_drive = system
        .config
        .subdisks
        .iter()
        .filter(|one| one.drive == name);
    let names: Vec<String> = on_drive.map(|one| one.name.clone()).collect();
    if !names.is_empty() && depth == Depth::One {
        return Err(refused(format!(
            "{name} holds {}; -r removes them, too",
            names.join(" ")
        )));
    }
    remove_on_drive(&mut system.config, name).map_err(refused)?;
    for drive in system.drives.iter_mut().filter(|drive| drive.name == name) {
        if let Some(header) = &mut drive.header {
            header.is_removed = true;
        }
    }
    Ok(())
}

/// Gives a drive another name: in its header, and where its subdisks and hot spares name it.
///
/// # Errors
/// A sentence: the name is taken, does not fit, or the drive is not there to be written to.
pub fn rename_drive(system: &mut System, name: &str, new: &str) -> Result<(), Problem> {
    if system.drive(new).is_some() {
        return Err(refused(format!("{new} exists")));
    }
    let Some(drive) = system.drives.iter_mut().find(|drive| drive.name == name) else {
        return Err(refused(format!("there is no {name}")));
    };
    let Some(header) = &mut drive.header else {
        return Err(refused(format!(
            "{name} is not there: its header keeps its name"
        )));
    };
    let mut made = DriveHeader::create(&header.host, new, header.created)
        .map_err(|error| refused(error.to_string()))?;
    made.mark = header.mark;
    *header = made;
    new.clone_into(&mut drive.name);
    for subdisk in system
        .config
        .subdisks
        .iter_mut()
        .filter(|one| one.drive == name)
    {
        new.clone_into(&mut subdisk.drive);
    }
    for spare in system
        .config
        .spares
        .iter_mut()
        .filter(|spare| *spare == name)
    {
        new.clone_into(spare);
    }
    Ok(())
}

/// Forgets a whole configuration: its drives are free.
///
/// # Errors
/// `NotConfirmed` without the words.
pub fn reset(words: &Words, common: &Common, screen: &Screen) -> Outcome {
    let mut paths = Vec::new();
    for (_, members) in systems(&words.places)? {
        paths.extend(members);
    }
    if !words.has('f') && !common.dry_run {
        screen.line("This command completely wipes the configuration of these drives:");
        screen.line(format!("  {}", paths.join(" ")));
        screen.line(format!("Enter the text \"{NO_FUTURE}\" to go on."));
        let mut answer = String::new();
        let _ = std::io::stdin().lock().read_line(&mut answer);
        if answer.trim() != NO_FUTURE {
            return Err(Problem::new(Code::NotConfirmed, "nothing was done"));
        }
    }
    wipe(paths, common, screen)
}

/// Takes header and configuration off drives that are named.
///
/// # Errors
/// `NoMetadata` for what is no drive.
pub fn clear(words: &Words, common: &Common, screen: &Screen) -> Outcome {
    for path in &words.rest {
        let examined = examine_path(std::path::Path::new(path), path)?;
        if !matches!(examined.foreign, Some(Found::Drive(_))) {
            return Err(
                Problem::new(Code::NoMetadata, format!("{path} is no Vinum drive")).member(path),
            );
        }
    }
    wipe(words.rest.clone(), common, screen)
}

fn wipe(paths: Vec<String>, common: &Common, screen: &Screen) -> Outcome {
    let lines: Vec<String> = paths
        .iter()
        .map(|path| format!("would wipe header and configuration of {path}"))
        .collect();
    check_owners(&paths, common)?;
    let edits = paths.into_iter().map(|member| {
        let zeroes = vec![0; CONFIG_BYTES as usize]; // a constant of the format
        let mut writes = vec![(HEADER_OFFSET_BYTES, vec![0; 512])];
        writes.extend(CONFIG_OFFSETS_BYTES.map(|at| (at, zeroes.clone())));
        Edit { member, writes }
    });
    let edits = edits.collect();
    let mut runtime = runtime()?;
    let handle = runtime.handle();
    if common.dry_run {
        handle.rehearse();
    }
    let noted = noted(common, Reverse::Refused);
    let written = runtime.block_on(carry_out(&handle, edits, noted.as_ref()))?;
    tell(&written, screen);
    for line in lines.iter().filter(|_| common.dry_run) {
        screen.line(line);
    }
    Ok(0)
}
