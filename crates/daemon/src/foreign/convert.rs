//! `plexum convert`: a volume becomes one of another format, in place or onto new members.
//!
//! Invariants:
//! - in place: new metadata everywhere, then both forms are compared byte by byte, then the old ones are erased;
//! - onto new members: the journal says durably how far the copy is before anything relies on it, so that a copy that
//!   was killed goes on; what was copied is flushed before the journal says so;
//! - the old members are only read; the end is a comparison of both volumes, read from their members.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::pin::pin;

use futures_util::future::{Either, select};
use plexum_block::buf::BufPool;
use plexum_block::device::{Fua, IoError};
use plexum_block::wait::{join, join_all};
use plexum_engine::volume::VolumeOptions;
use plexum_format::md::MdVersion;
use plexum_freebsd::in_place::{self, InPlace, look};
use plexum_md::assemble::Options;
use plexum_runtime::Handle;
use plexum_runtime::file::OpenOptions;
use serde::{Deserialize, Serialize};

use super::{Kind, problem_of};
use crate::assembly::{AssembleRequest, Assembled, Body, DeviceWish, open};
use crate::changes::{ChangeState, Noted, Writes, Written};
use crate::create::now_seconds;
use crate::open::{AnyDevice, MemberWord, problem_of_io};
use crate::owners::{Choice, check_conversion};
use crate::problem::{Code, Problem};

/// Bytes that one transfer copies or compares.
const PIECE_BYTES: u64 = 1 << 20;
/// Transfers under way at once.
const PIECES: u64 = 4;
/// Buffers that are kept.
const KEEP_BYTES: usize = 16 << 20;

/// What a volume shall become in place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Goal {
    /// A Linux array.
    Md(MdVersion),
    /// A gmirror.
    Gmirror,
    /// A volume of gvinum.
    Gvinum,
}

/// What is being done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    /// Bytes are copied.
    Copying,
    /// Both volumes are compared.
    Comparing,
}

impl Phase {
    /// The word that people see.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Copying => "copy",
            Self::Comparing => "compare",
        }
    }
}

/// How far it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    /// What is done.
    pub phase: Phase,
    /// Bytes done.
    pub done_bytes: u64,
    /// Bytes in all.
    pub total_bytes: u64,
}

/// Hears of every step; `false` gives up at once, as a kill would.
pub type Listener<'a> = &'a mut dyn FnMut(Step) -> bool;

fn given_up() -> Problem {
    Problem::new(Code::NotConfirmed, "the conversion was given up")
}

fn forms(goal: Goal) -> impl Fn(&[in_place::Seen], u64) -> Result<InPlace, String> {
    move |seen, now| match goal {
        Goal::Md(version) => in_place::to_md(seen, version, now),
        Goal::Gmirror => in_place::to_mirror(seen),
        Goal::Gvinum => in_place::to_system(seen),
    }
}

async fn open_devices(
    handle: &Handle,
    members: &[String],
    options: &OpenOptions,
) -> Result<Vec<AnyDevice>, Problem> {
    let mut devices = Vec::new();
    for member in members {
        devices.push(AnyDevice::open(handle, &MemberWord::parse(member), options).await?);
    }
    Ok(devices)
}

/// Plans a conversion in place; nothing is written.
///
/// # Errors
/// Of opening; `WrongState` with the reason why the data cannot stay where they are.
pub async fn plan_in_place(
    handle: &Handle,
    members: &[String],
    goal: Goal,
) -> Result<InPlace, Problem> {
    let devices = open_devices(handle, members, &OpenOptions::read_only()).await?;
    plan_on(&devices, members, goal).await
}

async fn plan_on(
    devices: &[AnyDevice],
    members: &[String],
    goal: Goal,
) -> Result<InPlace, Problem> {
    let pool = BufPool::new(0);
    let mut seen = Vec::new();
    for (index, (device, member)) in devices.iter().zip(members).enumerate() {
        check_conversion(device, &pool, member).await?;
        let looked = look(device, &pool, index, member).await;
        seen.push(looked.map_err(|error| problem_of(error, Kind::Gmirror, members))?);
    }
    forms(goal)(&seen, now_seconds()?).map_err(|reason| Problem::new(Code::WrongState, reason))
}

/// Carries a conversion in place out: make, compare, erase. A second call after a kill goes on. `noted`: where the
/// change is kept.
///
/// # Errors
/// As `plan_in_place`; of writing; `Bug` when both forms do not read the same (the old one stays then).
pub async fn run_in_place(
    handle: &Handle,
    members: &[String],
    goal: Goal,
    noted: Option<&Noted>,
    listener: Listener<'_>,
) -> Result<(InPlace, Written), Problem> {
    let pool = BufPool::new(KEEP_BYTES);
    let tell = |(index, error): (usize, IoError)| {
        problem_of_io(error, "writing metadata", &members[index])
    };
    let (plan, begun) = {
        let devices = open_devices(handle, members, &OpenOptions::read_write()).await?;
        let plan = plan_on(&devices, members, goal).await?;
        let writes = Writes {
            members: members.iter().map(String::as_str).zip(&devices).collect(),
            phases: vec![plan.make.clone(), plan.erase.clone()],
        };
        let (_, begun) = writes.begin(&pool, noted).await?;
        let written = in_place::carry_out(&plan.make, &devices, &pool).await;
        written.map_err(tell)?;
        (plan, begun)
    };
    // Without anything to make the comparison was made before the first old metadata were erased.
    if !plan.make.is_empty() {
        let (old, new) = match goal {
            Goal::Gmirror => (None, Some(Kind::Gmirror)),
            Goal::Gvinum => (None, Some(Kind::Gvinum)),
            Goal::Md(_) if plan.from == "gmirror" => (Some(Kind::Gmirror), None),
            Goal::Md(_) => (Some(Kind::Gvinum), None),
        };
        let old = open_as(handle, &pool, members, old).await?;
        let new = open_as(handle, &pool, members, new).await?;
        compare(&old, &new, &plan.name, listener).await?;
    }
    let devices = open_devices(handle, members, &OpenOptions::read_write()).await?;
    let rest = plan_on(&devices, members, goal).await?;
    let erased = in_place::carry_out(&rest.erase, &devices, &pool).await;
    erased.map_err(tell)?;
    Ok((plan, begun.end(ChangeState::Done)))
}

/// Opens members to be read: as what they are found to be, or as one of FreeBSD's formats although there is another.
async fn open_as(
    handle: &Handle,
    pool: &BufPool,
    members: &[String],
    kind: Option<Kind>,
) -> Result<Body, Problem> {
    let mut request = request(members, false);
    request.options.read_only = true;
    let assembled = match kind {
        Some(kind) => super::open(handle, pool, request, kind).await?,
        None => open(handle, pool, request).await?,
    };
    pick(assembled, None)
}

fn request(members: &[String], may_write: bool) -> AssembleRequest {
    AssembleRequest {
        members: members.to_vec(),
        name: None,
        options: Options {
            read_only: !may_write,
            ..Options::default()
        },
        volume: VolumeOptions::default(),
        balance: None,
        may_write,
        backup_file: None,
        choice: Choice::Newest,
        planned: Vec::new(),
        change: crate::assembly::Change::None,
        goal: None,
        device: DeviceWish::TakeOver,
        vhost_user: None,
    }
}

/// The volume of that name, or the only one.
fn pick(assembled: Vec<Assembled>, name: Option<&str>) -> Result<Body, Problem> {
    let names: Vec<String> = assembled
        .iter()
        .map(|one| one.body.name().to_owned())
        .collect();
    let mut bodies = assembled.into_iter().map(|one| one.body);
    let found = match name {
        Some(name) => bodies.find(|body| body.name() == name),
        None if names.len() == 1 => bodies.next(),
        None => {
            return Err(
                Problem::new(Code::AmbiguousVolume, "the members hold several volumes")
                    .hint(format!("name one of {}:   --volume NAME", names.join(" "))),
            );
        }
    };
    found.ok_or_else(|| {
        let name = name.unwrap_or_default();
        Problem::new(Code::NoSuchVolume, format!("the members hold no {name}"))
    })
}

/// What a volume is that shall be copied.
#[derive(Clone, Debug)]
pub struct Source {
    /// Its name.
    pub name: String,
    /// Its size.
    pub size_bytes: u64,
    /// Its level in a word that `create --level` takes.
    pub level: String,
    /// Its strip size, where it has one.
    pub strip_bytes: Option<u64>,
}

/// Looks at the volume to be copied.
///
/// # Errors
/// Of opening; `AmbiguousVolume`.
pub async fn source_of(
    handle: &Handle,
    members: &[String],
    volume: Option<&str>,
) -> Result<Source, Problem> {
    let assembled = open(handle, &BufPool::new(0), request(members, false)).await?;
    let body = pick(assembled, volume)?;
    let geometry = body.geometry();
    let level = geometry.organisation().level();
    Ok(Source {
        name: body.name().to_owned(),
        size_bytes: body.volume_bytes(),
        level: level.to_string().trim_start_matches("raid").to_owned(),
        strip_bytes: (geometry.strip_bytes() > 0).then(|| geometry.strip_bytes()),
    })
}

/// What a copy has to remember, in a file of its own.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Journal {
    /// Version of this file.
    pub version: u32,
    /// Members of the old volume, as written.
    pub source: Vec<String>,
    /// Which volume of theirs.
    pub volume: Option<String>,
    /// Members of the new one, as written.
    pub target: Vec<String>,
    /// Size of the old volume.
    pub size_bytes: u64,
    /// What is being done.
    pub phase: Phase,
    /// Bytes that are durable on the new members.
    pub copied_bytes: u64,
}

impl Journal {
    /// Reads a journal; `None` when there is none.
    ///
    /// # Errors
    /// `IoError`; `DamagedMetadata` for a file that is none.
    pub fn load(path: &Path) -> Result<Option<Self>, Problem> {
        let shown = path.display().to_string();
        let text = match std::fs::read(path) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(Problem::from_io(&error, "reading", &shown)),
        };
        let journal: Self = serde_json::from_slice(&text).map_err(|error| {
            let text = format!("{shown} is no journal of a conversion: {error}");
            Problem::new(Code::DamagedMetadata, text).hint("give another name:   --journal FILE")
        })?;
        if journal.version != 1 || journal.copied_bytes > journal.size_bytes {
            let text = format!("{shown} says what this version does not understand");
            return Err(Problem::new(Code::DamagedMetadata, text));
        }
        Ok(Some(journal))
    }

    /// Makes it durable: a new file takes the place of the old one.
    ///
    /// # Errors
    /// `IoError`, `NoSpace`.
    pub fn save(&self, path: &Path) -> Result<(), Problem> {
        let shown = path.display().to_string();
        let tell = |error: std::io::Error| Problem::from_io(&error, "writing", &shown);
        let draft = PathBuf::from(format!("{shown}.new"));
        let text =
            serde_json::to_vec(self).map_err(|error| Problem::new(Code::Bug, error.to_string()))?;
        let mut file = std::fs::File::create(&draft).map_err(tell)?;
        file.write_all(&text).map_err(tell)?;
        file.sync_all().map_err(tell)?;
        std::fs::rename(&draft, path).map_err(tell)?;
        let folder = path.parent().filter(|path| !path.as_os_str().is_empty());
        if let Ok(folder) = std::fs::File::open(folder.unwrap_or(Path::new("."))) {
            let _ = folder.sync_all(); // not every file system can
        }
        Ok(())
    }
}

/// Copies what the journal says and compares; the journal is removed at the end. `save_bytes`: how much is copied
/// between two notes in the journal.
///
/// # Errors
/// Of opening, reading and writing; `MemberTooSmall` when the new volume is smaller; `IoError` at the first difference.
pub async fn copy(
    handle: &Handle,
    journal: &mut Journal,
    path: &Path,
    save_bytes: u64,
    listener: Listener<'_>,
) -> Result<(), Problem> {
    let pool = BufPool::new(KEEP_BYTES);
    let volume = journal.volume.clone();
    let source = open(handle, &pool, request(&journal.source, false)).await?;
    let source = pick(source, volume.as_deref())?;
    if source.volume_bytes() != journal.size_bytes {
        let text = format!(
            "the old volume has {} bytes, and had {} when the conversion began",
            source.volume_bytes(),
            journal.size_bytes
        );
        return Err(Problem::new(Code::WrongState, text));
    }
    if journal.phase != Phase::Comparing {
        let target = open(handle, &pool, request(&journal.target, true)).await?;
        let target = pick(target, None)?;
        if target.volume_bytes() < source.volume_bytes() {
            let (new, old) = (target.volume_bytes(), source.volume_bytes());
            let text = format!("the new volume has {new} bytes, the old one {old}");
            return Err(Problem::new(Code::MemberTooSmall, text));
        }
        let copying = async {
            copy_all(&source, &target, journal, path, save_bytes, listener).await?;
            let ended = target.stop().await;
            ended.map_err(|error| problem_of_io(error, "flushing", target.name()))
        };
        match select(pin!(copying), pin!(target.run_background())).await {
            Either::Left((result, _)) => result?,
            Either::Right(((), copying)) => copying.await?,
        }
        journal.phase = Phase::Comparing;
        journal.save(path)?;
    }
    let target = open_as(handle, &pool, &journal.target, None).await?;
    compare(&source, &target, source.name(), listener).await?;
    std::fs::remove_file(path)
        .map_err(|error| Problem::from_io(&error, "removing", &path.display().to_string()))
}

async fn copy_all(
    source: &Body,
    target: &Body,
    journal: &mut Journal,
    path: &Path,
    save_bytes: u64,
    listener: Listener<'_>,
) -> Result<(), Problem> {
    let total_bytes = journal.size_bytes;
    let mut at = journal.copied_bytes;
    while at < total_bytes {
        let batch = (PIECE_BYTES * PIECES).min(save_bytes.max(1));
        let end = (at + batch).min(total_bytes);
        let pieces = (at..end).step_by(PIECE_BYTES as usize).map(|from| {
            let length = PIECE_BYTES.min(end - from);
            copy_piece(source, target, from, length)
        });
        for result in join_all(pieces).await {
            result?;
        }
        at = end;
        if at - journal.copied_bytes >= save_bytes || at == total_bytes {
            let flushed = target.flush().await;
            flushed.map_err(|error| problem_of_io(error, "flushing", target.name()))?;
            journal.copied_bytes = at;
            journal.save(path)?;
        }
        let step = Step {
            phase: Phase::Copying,
            done_bytes: at,
            total_bytes,
        };
        if !listener(step) {
            return Err(given_up());
        }
    }
    Ok(())
}

async fn copy_piece(source: &Body, target: &Body, at: u64, length: u64) -> Result<(), Problem> {
    let read = source.read_bytes(at, length as usize).await; // at most PIECE_BYTES
    let rope = read.map_err(|error| problem_at(error, "reading", source, at))?;
    let mut to = at;
    for piece in rope.pieces {
        let length = piece.len() as u64;
        let written = target.write(to, piece, Fua::No).await;
        written.map_err(|error| problem_at(error, "writing", target, to))?;
        to += length;
    }
    Ok(())
}

fn problem_at(error: IoError, doing: &str, body: &Body, at: u64) -> Problem {
    problem_of_io(error, &format!("{doing} byte {at}"), body.name())
}

/// Compares as much as the old volume has.
async fn compare(
    old: &Body,
    new: &Body,
    name: &str,
    listener: Listener<'_>,
) -> Result<(), Problem> {
    let total_bytes = old.volume_bytes();
    let mut at = 0;
    while at < total_bytes {
        let length = PIECE_BYTES.min(total_bytes - at) as usize;
        let (was, is) = join(old.read_bytes(at, length), new.read_bytes(at, length)).await;
        let was = was.map_err(|error| problem_at(error, "reading", old, at))?;
        let is = is.map_err(|error| problem_at(error, "reading", new, at))?;
        let (was, is) = (was.to_vec(), is.to_vec());
        if was != is {
            let same = was.iter().zip(&is).take_while(|(was, is)| was == is);
            let place = at + same.count() as u64;
            let text = format!("{name}: byte {place} reads otherwise from the new members");
            return Err(Problem::new(Code::IoError, text).why("the old volume is as it was"));
        }
        at += length as u64;
        let step = Step {
            phase: Phase::Comparing,
            done_bytes: at,
            total_bytes,
        };
        if !listener(step) {
            return Err(given_up());
        }
    }
    Ok(())
}
