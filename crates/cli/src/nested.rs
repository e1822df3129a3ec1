//! Sets whose members are mirrors: gstripe over gmirror, as FreeBSD makes RAID-10 of four disks.
//!
//! Invariants: nothing is written; a mirror is looked into at its first component that is whole.

use std::os::unix::fs::FileExt;

use plexum_daemon::foreign::offline::{Found, judge, look, mirror_of};
use plexum_daemon::runtime_dir::Kind;
use plexum_daemon::serve::ServeRequest;
use plexum_format::detect;
use plexum_freebsd::gmirror::ComponentState;
use serde_json::json;

use crate::control::runtime_dir;
use crate::output::{Screen, object};
use crate::sets::{FoundSet, find_sets};
use crate::units::show_bytes;

/// A mirror by its name, with its members.
type Named = (String, Vec<String>);

/// A set inside of mirrors.
pub struct SetInMirrors {
    /// Its line in the table.
    pub row: Vec<String>,
    /// The same for programs.
    pub object: serde_json::Value,
    /// It cannot be served as it is.
    pub is_lacking: bool,
    is_bound: bool,
    name: String,
    /// The mirrors by name, each with its members.
    mirrors: Vec<Named>,
}

impl SetInMirrors {
    /// How it is served: its mirrors first, then it over them.
    pub fn way(&self) -> Vec<String> {
        let members: Vec<&str> = self
            .mirrors
            .iter()
            .flat_map(|(_, members)| members)
            .map(String::as_str)
            .collect();
        let names: Vec<&str> = self.mirrors.iter().map(|(name, _)| name.as_str()).collect();
        vec![
            format!("  {}: inside of the mirrors {}", self.name, names.join(" ")),
            "    to serve it, first its mirrors, then itself:".to_owned(),
            format!("    plexum serve --background {}", members.join(" ")),
            format!("    {}", self.command()),
        ]
    }

    fn command(&self) -> String {
        let folder = runtime_dir();
        let uri = |name: &str| {
            let socket = folder.file(name, Kind::Nbd);
            format!("'nbd+unix:///{name}?socket={}'", socket.display())
        };
        let uris: Vec<String> = self.mirrors.iter().map(|(name, _)| uri(name)).collect();
        // A mirror has another name here than the disk that a label may be bound to.
        let force = if self.is_bound { " --force" } else { "" };
        format!("plexum serve --background{force} {}", uris.join(" "))
    }
}

/// The sets inside of mirrors that were found.
pub fn inside(sets: &[FoundSet]) -> Vec<SetInMirrors> {
    let mut groups: Vec<(Vec<Found>, Vec<Named>)> = Vec::new();
    for set in sets {
        let Some((name, found)) = within(set) else {
            continue;
        };
        let mirror = (name, set.members.clone());
        let fits = |group: &&mut (Vec<Found>, _)| found.fits(&group.0.iter().collect::<Vec<_>>());
        match groups.iter_mut().find(fits) {
            Some((all, mirrors)) => {
                all.push(found);
                mirrors.push(mirror);
            }
            None => groups.push((vec![found], vec![mirror])),
        }
    }
    groups
        .into_iter()
        .flat_map(|(found, mirrors)| tell_group(&found, &mirrors))
        .collect()
}

fn tell_group(found: &[Found], mirrors: &[Named]) -> Vec<SetInMirrors> {
    let is_bound = found.iter().any(|one| match one {
        Found::Stripe(member) => !member.label.provider.is_empty(),
        Found::Concat(member) => !member.label.provider.is_empty(),
        Found::Mirror(provider) => !provider.label.provider.is_empty(),
        Found::Drive(_) => false,
    });
    let all: Vec<&Found> = found.iter().collect();
    let judged = judge(&all).into_iter();
    let told = judged.map(|judged| SetInMirrors {
        row: vec![
            judged.name.clone(),
            judged.level.clone(),
            judged.kind.name().to_owned(),
            show_bytes(judged.size_bytes),
            format!("{} found", mirrors.len()),
            judged.state.clone(),
        ],
        object: object(
            "set",
            Some(&judged.name),
            json!({
                "level": judged.level, "format": judged.kind.name(), "size_bytes": judged.size_bytes,
                "members": mirrors.iter().map(|(name, _)| format!("mirror/{name}")).collect::<Vec<_>>(),
                "state": judged.state,
                "problem": judged.problem.as_ref().map(|problem| problem.to_json()["error"].clone()),
            }),
        ),
        is_lacking: judged.problem.is_some() && !is_bound,
        is_bound,
        name: judged.name,
        mirrors: mirrors.to_vec(),
    });
    told.collect()
}

/// What a mirror holds, when that is a member of something, with the mirror's name.
fn within(set: &FoundSet) -> Option<(String, Found)> {
    let found = set.foreign();
    if !matches!(found.first(), Some(Found::Mirror(_))) {
        return None;
    }
    let mut assembled = mirror_of(&found);
    assembled.start_degraded();
    let mirror = assembled.mirror?;
    let is_whole = |state| state == ComponentState::Active;
    let component = mirror.components.iter().find(|one| is_whole(one.state))?;
    let file = std::fs::File::open(set.members.get(component.key.0)?).ok()?;
    let size_bytes = mirror.volume_bytes;
    let mut read = |at: u64, buffer: &mut [u8]| {
        let is_inside = at
            .checked_add(buffer.len() as u64)
            .is_some_and(|end| end <= size_bytes);
        match is_inside {
            true => file.read_exact_at(buffer, at),
            false => Err(std::io::Error::from(std::io::ErrorKind::UnexpectedEof)),
        }
    };
    let detection = detect(size_bytes / 512, &mut read).ok()?;
    let inner = look(
        &mut read,
        size_bytes,
        &detection,
        &format!("mirror/{}", mirror.name),
    )?;
    Some((mirror.name, inner))
}

/// Says of mirrors that are about to be served what is in them, and how that is served.
pub fn tell(request: &ServeRequest, screen: &Screen) {
    let members: Vec<String> = request
        .volumes
        .iter()
        .flat_map(|volume| volume.members.clone())
        .collect();
    let is_file = |member: &String| std::path::Path::new(member).exists();
    if !members.iter().all(is_file) {
        return;
    }
    for inner in inside(&find_sets(&members).unwrap_or_default()) {
        let names: Vec<&str> = inner
            .mirrors
            .iter()
            .map(|(name, _)| name.as_str())
            .collect();
        let (name, command) = (&inner.name, inner.command());
        screen.note(format!(
            "{} hold {name}; to serve it, too:   {command}",
            names.join(" and ")
        ));
    }
}
