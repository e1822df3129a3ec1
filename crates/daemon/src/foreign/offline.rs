//! What is on members that are not opened to be served: for `examine`, `scan`, `config` and the commands of FreeBSD.
//!
//! Invariants: nothing is written.

use plexum_format::describe::Field;
use plexum_format::gconcat::{self, ConcatLabel};
use plexum_format::gmirror;
use plexum_format::gstripe::{self, StripeLabel};
use plexum_format::vinum::{self, CONFIG_BYTES, CONFIG_OFFSETS_BYTES, VolumeState};
use plexum_format::{Detection, Found as Detected};
use plexum_freebsd::gmirror::{Assembled, ComponentState, Key, Provider, assemble as join_mirror};
use plexum_freebsd::gvinum::{
    FoundDrive, System, SystemError, UNREADABLE_COPY, assemble as join_system, said_by,
    volume_bytes,
};
use plexum_freebsd::labels::provider_name;
use plexum_freebsd::stripe_concat::{Joined, Labelled, join_concat, join_stripe};

use super::Kind;
use crate::problem::{Code, Problem};

/// What one member carries.
#[derive(Clone, Debug)]
pub enum Found {
    /// A component of a gmirror.
    Mirror(Box<Provider>),
    /// A member of a gstripe.
    Stripe(Box<Labelled<StripeLabel>>),
    /// A member of a gconcat.
    Concat(Box<Labelled<ConcatLabel>>),
    /// A drive of Vinum.
    Drive(Box<FoundDrive>),
}

/// Looks at a member of one of FreeBSD's formats, called `word`.
#[must_use]
pub fn look(
    read: &mut dyn FnMut(u64, &mut [u8]) -> std::io::Result<()>,
    size_bytes: u64,
    detection: &Detection,
    word: &str,
) -> Option<Found> {
    // The label's place says how large the sector is.
    let mut sector = |magic: &[u8]| {
        let mut start = [0; 16];
        let at = size_bytes.checked_sub(512);
        let is_read = at.is_some_and(|at| read(at, &mut start).is_ok());
        if is_read && start.starts_with(magic) {
            512
        } else {
            4096
        }
    };
    let labelled = |sector_bytes: u64| (size_bytes - sector_bytes, word.to_owned());
    match detection.best()? {
        Detected::Gmirror(label) => Some(Found::Mirror(Box::new(Provider {
            key: Key(0), // counted when a set is put together
            name: provider_name(word, &label.provider).to_owned(),
            size_bytes,
            sector_bytes: sector(b"GEOM::MIRROR") as u32, // 512 or 4096
            label: (**label).clone(),
        }))),
        Detected::Gstripe(label) => {
            let (usable_bytes, name) = labelled(sector(b"GEOM::STRIPE"));
            Some(Found::Stripe(Box::new(Labelled {
                index: 0,
                name,
                size_bytes,
                usable_bytes,
                label: (**label).clone(),
            })))
        }
        Detected::Gconcat(label) => {
            let (usable_bytes, name) = labelled(sector(b"GEOM::CONCAT"));
            Some(Found::Concat(Box::new(Labelled {
                index: 0,
                name,
                size_bytes,
                usable_bytes,
                label: (**label).clone(),
            })))
        }
        Detected::Vinum(header) => {
            let copies = CONFIG_OFFSETS_BYTES.map(|at| {
                let mut copy = vec![0; CONFIG_BYTES as usize]; // a constant of the format
                match read(at, &mut copy) {
                    Ok(()) => copy,
                    Err(_) => UNREADABLE_COPY.to_vec(), // the other copy counts
                }
            });
            Some(Found::Drive(Box::new(FoundDrive {
                key: 0,
                device: word.to_owned(),
                size_bytes,
                header: (**header).clone(),
                copies,
            })))
        }
        _ => None,
    }
}

impl Found {
    /// Its format.
    #[must_use]
    pub fn kind(&self) -> Kind {
        match self {
            Self::Mirror(_) => Kind::Gmirror,
            Self::Stripe(_) => Kind::Gstripe,
            Self::Concat(_) => Kind::Gconcat,
            Self::Drive(_) => Kind::Gvinum,
        }
    }

    /// Every decoded field, by structure.
    #[must_use]
    pub fn fields(&self) -> Vec<(&'static str, Vec<Field>)> {
        match self {
            Self::Mirror(provider) => vec![("label", gmirror::describe(&provider.label))],
            Self::Stripe(member) => vec![("label", gstripe::describe(&member.label))],
            Self::Concat(member) => vec![("label", gconcat::describe(&member.label))],
            Self::Drive(drive) => {
                let mut all = vec![("header", vinum::header::describe(&drive.header))];
                if let Some(config) = said_by(&drive.copies) {
                    all.push(("configuration", vinum::config::describe(&config)));
                }
                all
            }
        }
    }

    /// What it is, in one line.
    #[must_use]
    pub fn headline(&self) -> String {
        match self {
            Self::Mirror(provider) => {
                let label = &provider.label;
                let state = match (label.is_inactive, label.is_rebuilding, label.is_dirty) {
                    (true, _, _) => "deactivated",
                    (_, true, _) => "being rebuilt",
                    (_, _, true) => "not stopped cleanly",
                    _ => "clean",
                };
                format!(
                    "component of gmirror {}, {state}, priority {}, generation {}, sync id {}",
                    label.name, label.priority, label.generation_id, label.sync_id
                )
            }
            Self::Stripe(member) => {
                let label = &member.label;
                let (slot, count) = (label.slot, label.member_count);
                format!("member {slot} of {count} of gstripe {}", label.name)
            }
            Self::Concat(member) => {
                let label = &member.label;
                let (slot, count) = (label.slot, label.member_count);
                format!("member {slot} of {count} of gconcat {}", label.name)
            }
            Self::Drive(drive) => {
                let header = &drive.header;
                let removed = if header.is_removed { ", removed" } else { "" };
                format!(
                    "Vinum drive {} of {}{removed}, saved {}.{:06}",
                    header.name, header.host, header.updated.0, header.updated.1
                )
            }
        }
    }

    /// Whether both may be of one set.
    #[must_use]
    pub fn fits(&self, others: &[&Found]) -> bool {
        let Some(other) = others.first() else {
            return true;
        };
        match (self, other) {
            (Self::Mirror(a), Self::Mirror(b)) => {
                a.label.mirror_id == b.label.mirror_id && a.label.name == b.label.name
            }
            (Self::Stripe(a), Self::Stripe(b)) => {
                a.label.volume_id == b.label.volume_id && a.label.name == b.label.name
            }
            (Self::Concat(a), Self::Concat(b)) => {
                a.label.volume_id == b.label.volume_id && a.label.name == b.label.name
            }
            (Self::Drive(a), Self::Drive(_)) => {
                let names = |drive: &FoundDrive| -> Vec<String> {
                    let subdisks = said_by(&drive.copies)
                        .map(|config| config.subdisks)
                        .unwrap_or_default();
                    subdisks
                        .into_iter()
                        .map(|subdisk| subdisk.name + "@" + &subdisk.drive)
                        .collect()
                };
                let own = names(a);
                others.iter().all(|other| match other {
                    Self::Drive(b) => {
                        let theirs = names(b);
                        // Both copies of one are empty: the other one knows it.
                        let knows = |names: &[String], drive: &FoundDrive| {
                            let end = format!("@{}", drive.header.name);
                            names.iter().any(|name| name.ends_with(&end))
                        };
                        let is_known = own.is_empty() && knows(&theirs, a)
                            || theirs.is_empty() && knows(&own, b);
                        a.header.name != b.header.name
                            && a.header.host == b.header.host
                            && (own == theirs
                                || is_known
                                || own.iter().any(|name| theirs.contains(name)))
                    }
                    _ => false,
                })
            }
            _ => false,
        }
    }
}

/// A volume that members make, as it would be served.
#[derive(Clone, Debug)]
pub struct Judged {
    /// Name of the volume.
    pub name: String,
    /// `mirror`, `striped`, ...
    pub level: String,
    /// Its format.
    pub kind: Kind,
    /// Size; 0 when it cannot be served.
    pub size_bytes: u64,
    /// State in words.
    pub state: String,
    /// What a member is and why it is not used: lines of a table.
    pub rows: Vec<[String; 3]>,
    /// What keeps it from being served.
    pub problem: Option<Problem>,
}

/// How members of one set fit together: one entry a volume.
#[must_use]
pub fn judge(found: &[&Found]) -> Vec<Judged> {
    match found.first() {
        None => Vec::new(),
        Some(Found::Mirror(_)) => vec![judge_mirror(found)],
        Some(Found::Stripe(_)) => {
            let members: Vec<Labelled<StripeLabel>> = found
                .iter()
                .filter_map(|found| match found {
                    Found::Stripe(member) => Some((**member).clone()),
                    _ => None,
                })
                .collect();
            let name = members[0].label.name.clone();
            let joined = join_stripe(&members).map_err(|error| error.message);
            vec![judge_joined(Kind::Gstripe, "striped", name, joined)]
        }
        Some(Found::Concat(_)) => {
            let members: Vec<Labelled<ConcatLabel>> = found
                .iter()
                .filter_map(|found| match found {
                    Found::Concat(member) => Some((**member).clone()),
                    _ => None,
                })
                .collect();
            let name = members[0].label.name.clone();
            let joined = join_concat(&members).map_err(|error| error.message);
            vec![judge_joined(Kind::Gconcat, "concat", name, joined)]
        }
        Some(Found::Drive(_)) => judge_system(found),
    }
}

/// The mirror that these components make, started as far as it goes.
#[must_use]
pub fn mirror_of(found: &[&Found]) -> Assembled {
    let providers = found
        .iter()
        .enumerate()
        .filter_map(|(index, found)| match found {
            Found::Mirror(provider) => Some(Provider {
                key: Key(index),
                ..(**provider).clone()
            }),
            _ => None,
        });
    join_mirror(providers.collect())
}

/// The system that these drives make.
///
/// # Errors
/// As the engine's.
pub fn system_of(found: &[&Found]) -> Result<System, SystemError> {
    let drives = found
        .iter()
        .enumerate()
        .filter_map(|(index, found)| match found {
            Found::Drive(drive) => Some(FoundDrive {
                key: index,
                ..(**drive).clone()
            }),
            _ => None,
        });
    let drives: Vec<FoundDrive> = drives.collect();
    join_system(&drives)
}

fn judge_mirror(found: &[&Found]) -> Judged {
    let mut assembled = mirror_of(found);
    let waits = assembled
        .mirror
        .as_ref()
        .is_some_and(|mirror| !mirror.is_running);
    assembled.start_degraded();
    let name = match found.first() {
        Some(Found::Mirror(provider)) => provider.label.name.clone(),
        _ => String::new(),
    };
    let provider_name = |key: Key| match found.get(key.0) {
        Some(Found::Mirror(provider)) => Some(provider.name.clone()),
        _ => None,
    };
    let mut rows: Vec<[String; 3]> = assembled
        .mirror
        .iter()
        .flat_map(|mirror| &mirror.components)
        .map(|component| {
            let detail = match component.state {
                ComponentState::Synchronizing => {
                    let at = component.label.sync_offset_bytes;
                    format!("to be filled from byte {at} on")
                }
                ComponentState::Stale => "waits for: gmirror rebuild".to_owned(),
                _ => format!("priority {}", component.label.priority),
            };
            [
                component.provider.clone(),
                component.state.name().to_owned(),
                detail,
            ]
        })
        .collect();
    rows.extend(assembled.refused.iter().map(|(key, reason)| {
        let name = provider_name(*key).unwrap_or_default();
        [name, "not used".to_owned(), reason.to_string()]
    }));
    let problem = mirror_problem(&assembled, &name, waits);
    Judged {
        state: assembled
            .mirror
            .as_ref()
            .map_or("cannot start".to_owned(), |mirror| {
                mirror.state().name().to_lowercase()
            }),
        size_bytes: assembled
            .mirror
            .as_ref()
            .map_or(0, |mirror| mirror.volume_bytes),
        name,
        level: "mirror".to_owned(),
        kind: Kind::Gmirror,
        rows,
        problem,
    }
}

fn mirror_problem(assembled: &Assembled, name: &str, waits: bool) -> Option<Problem> {
    match (&assembled.mirror, waits) {
        (None, _) => Some(Problem::new(
            Code::TooFewMembers,
            format!("{name}: no complete component is here"),
        )),
        (Some(mirror), true) => Some(
            Problem::new(
                Code::DegradedStart,
                format!(
                    "{name}: {} of {} components are here",
                    mirror.components.len(),
                    mirror.component_count
                ),
            )
            .hint("to start without the others, add:   --run-degraded"),
        ),
        _ => None,
    }
}

fn judge_joined(kind: Kind, level: &str, name: String, joined: Result<Joined, String>) -> Judged {
    let (size_bytes, problem) = match joined {
        Ok(joined) => (joined.geometry.volume_bytes(), None),
        Err(text) => (0, Some(Problem::new(Code::TooFewMembers, text))),
    };
    Judged {
        name,
        level: level.to_owned(),
        kind,
        size_bytes,
        state: if problem.is_none() {
            "up"
        } else {
            "cannot start"
        }
        .to_owned(),
        rows: Vec::new(),
        problem,
    }
}

fn judge_system(found: &[&Found]) -> Vec<Judged> {
    let system = match system_of(found) {
        Ok(system) => system,
        Err(error) => {
            return vec![Judged {
                name: String::new(),
                level: String::new(),
                kind: Kind::Gvinum,
                size_bytes: 0,
                state: "cannot start".to_owned(),
                rows: Vec::new(),
                problem: Some(Problem::new(Code::DamagedMetadata, error.to_string())),
            }];
        }
    };
    let volumes = system.config.volumes.iter();
    volumes
        .map(|volume| {
            let plexes = system.plexes_of(&volume.name);
            let mut rows = Vec::new();
            for plex in &plexes {
                let organisation = plex.organisation.name().to_owned();
                rows.push([
                    plex.name.clone(),
                    plex.state.name().to_owned(),
                    organisation,
                ]);
                for subdisk in plexum_freebsd::gvinum::subdisks_of(&system.config, &plex.name) {
                    let place = format!("on {}", subdisk.drive);
                    let name = format!("  {}", subdisk.name);
                    rows.push([name, subdisk.state.name().to_owned(), place]);
                }
            }
            let level = plexes.first().map_or("", |plex| plex.organisation.name());
            let level = if plexes.len() > 1 { "mirror" } else { level };
            let is_up = volume.state == VolumeState::Up;
            Judged {
                name: volume.name.clone(),
                level: level.to_owned(),
                kind: Kind::Gvinum,
                size_bytes: volume_bytes(&system.config, &volume.name),
                state: volume.state.name().to_owned(),
                rows,
                problem: (!is_up)
                    .then(|| Problem::new(Code::TooFewMembers, format!("{} is down", volume.name))),
            }
        })
        .collect()
}
