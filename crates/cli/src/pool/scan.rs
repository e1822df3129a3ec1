//! `--scan`: a pool is named, and its members are found.

use plexum_daemon::problem::{Code, Problem};
use plexum_daemon::serve_dataset::pool_of;
use plexum_daemon::zfs::PoolView;

use super::PoolPath;
use super::args::PoolCommand;
use crate::sets::find_all;

/// The command with the members that are found in `places`.
///
/// # Errors
/// `Usage`: members are named as well; `NoSuchVolume`, `AmbiguousVolume`: no pool, or several of them; of looking.
pub(super) fn with_members(
    command: &PoolCommand,
    places: &[String],
) -> Result<PoolCommand, Problem> {
    let mut command = command.clone();
    let Some((members, of)) = members_of(&mut command) else {
        let text = "--scan finds the members of a pool that is there";
        return Err(Problem::new(Code::Usage, text).hint("name the members of the new one"));
    };
    let name = match (members.as_slice(), &of) {
        ([], None) => None,
        ([], Some(of)) => Some(pool_of(&PoolPath::parse(of).dataset.path).to_owned()),
        ([name], _) => Some(name.clone()),
        _ => {
            let text = "with --scan the pool is named, and none of its members";
            return Err(
                Problem::new(Code::Usage, text).hint("plexum pool status tank --scan disks/")
            );
        }
    };
    *members = found_members(places, name.as_deref())?;
    Ok(command)
}

/// Refuses a command without members, where nothing else says which pool is meant.
///
/// # Errors
/// `Usage`.
pub(super) fn check_members(command: &PoolCommand) -> Result<(), Problem> {
    let mut command = command.clone();
    // Those read a file of the pool: no server does that for them.
    let reads = matches!(
        command,
        PoolCommand::Ls(_) | PoolCommand::Cat(_) | PoolCommand::Cp(_)
    );
    match members_of(&mut command) {
        Some((members, of)) if members.is_empty() && (reads || of.is_none()) => {
            Err(Problem::new(Code::Usage, "no member of the pool is named")
                .hint("name all of them, or the places to look in:   --scan PLACE..."))
        }
        _ => Ok(()),
    }
}

/// Members of the pool of this name or identity that are found in `places`; without a name those of the only one.
///
/// # Errors
/// `NoSuchVolume`, `AmbiguousVolume`; of looking.
pub fn found_members(places: &[String], name: Option<&str>) -> Result<Vec<String>, Problem> {
    pick(&find_all(places)?.pools, name)
}

/// Members of the pool of this name or identity, or of the only one.
fn pick(pools: &[PoolView], name: Option<&str>) -> Result<Vec<String>, Problem> {
    let is_meant = |pool: &&PoolView| {
        name.is_none_or(|name| {
            pool.label.pool_name == name || pool.label.pool_guid.to_string() == name
        })
    };
    let meant: Vec<&PoolView> = pools.iter().filter(is_meant).collect();
    match meant.as_slice() {
        [pool] => Ok(pool.members.clone()),
        [] => {
            let named = name.map_or_else(|| "no pool".to_owned(), |name| format!("no pool {name}"));
            let text = format!("{named} is found there");
            Err(Problem::new(Code::NoSuchVolume, text)
                .hint("to see what there is:   plexum scan PLACE..."))
        }
        several => {
            let words = several.iter().map(|pool| {
                let (name, guid) = (&pool.label.pool_name, pool.label.pool_guid);
                format!("{name} ({guid})")
            });
            let words: Vec<String> = words.collect();
            let text = format!("several pools are found there: {}", words.join(", "));
            Err(Problem::new(Code::AmbiguousVolume, text)
                .hint("say which one is meant, by its name or by its number"))
        }
    }
}

/// Where the members of a command stand, and what of their pool is named besides; `None`: it makes a pool.
fn members_of(command: &mut PoolCommand) -> Option<(&mut Vec<String>, Option<String>)> {
    Some(match command {
        PoolCommand::Create(_) => return None,
        PoolCommand::List(args) => (&mut args.source.members, None),
        PoolCommand::Ls(args) => (&mut args.source.members, Some(args.place.clone())),
        PoolCommand::Cat(args) => (&mut args.source.members, Some(args.place.clone())),
        PoolCommand::Cp(args) => (&mut args.source.members, Some(args.place.clone())),
        PoolCommand::Scrub(args) => (&mut args.source.members, None),
        PoolCommand::Check(args) => (&mut args.source.members, None),
        PoolCommand::Status(args) => (&mut args.members, None),
        PoolCommand::CreateVolume(args) => (&mut args.members, Some(args.name.clone())),
        PoolCommand::Snapshot(args) => (&mut args.members, Some(args.name.clone())),
        PoolCommand::DestroySnapshot(args)
        | PoolCommand::DestroyVolume(args)
        | PoolCommand::Rollback(args) => (&mut args.members, Some(args.name.clone())),
        PoolCommand::Clone(args) | PoolCommand::Rename(args) => {
            (&mut args.members, Some(args.old.clone()))
        }
        PoolCommand::Resize(args) => (&mut args.members, Some(args.name.clone())),
        PoolCommand::Offline(args) | PoolCommand::Online(args) | PoolCommand::Detach(args) => {
            (&mut args.members, None)
        }
        PoolCommand::Replace(args) => (&mut args.coming.members, None),
        PoolCommand::Attach(args) => (&mut args.coming.members, None),
        PoolCommand::Add(args) => (&mut args.to, None),
    })
}
