//! The formats of FreeBSD: what is on members, how they fit together, and opening them to be served.
//!
//! Invariants:
//! - they are found on disks that were somebody else's: nothing is written unless the user says so;
//! - a system of Vinum drives is opened as a whole: each of its volumes is served.

pub mod convert;
pub mod create;
mod halves;
pub mod offline;

use plexum_block::buf::BufPool;
use plexum_block::wait::join_all;
use plexum_engine::balance::Policy;
use plexum_engine::detect::detect_on;
use plexum_engine::volume::VolumeOptions;
use plexum_format::{Detection, FormatError, Found};
use plexum_freebsd::gmirror::{ComponentState, Mirror, MirrorRequest, Refusal, open_mirror};
use plexum_freebsd::gvinum::{OpenedSystem, OpenedVolume, SystemRequest, open_system};
use plexum_freebsd::labels::ForeignError;
use plexum_freebsd::stripe_concat::{BoundNames, JoinedFormat, join_devices, volume_of};
use plexum_runtime::Handle;
use plexum_runtime::clock::RealClock;
use plexum_runtime::file::OpenOptions;

use crate::assembly::{AssembleRequest, Assembled, Body, RealVolume, of_format};
use crate::open::{AnyDevice, MemberWord, problem_of_io};
use crate::owners;
use crate::problem::{Code, Problem};
use crate::volume::facts::{Facts, VolumeFormat};

/// Which of the formats.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// gmirror.
    Gmirror,
    /// gstripe.
    Gstripe,
    /// gconcat.
    Gconcat,
    /// Vinum and gvinum.
    Gvinum,
}

impl Kind {
    /// The format of a member, when it is one of these.
    #[must_use]
    pub fn of(detection: &Detection) -> Option<Self> {
        match detection.best()? {
            Found::Gmirror(_) => Some(Self::Gmirror),
            Found::Gstripe(_) => Some(Self::Gstripe),
            Found::Gconcat(_) => Some(Self::Gconcat),
            Found::Vinum(header) if !header.is_removed => Some(Self::Gvinum),
            _ => None,
        }
    }

    /// The format that a damaged label was of.
    fn of_damage(error: &FormatError) -> Option<Self> {
        let all = [Self::Gmirror, Self::Gstripe, Self::Gconcat, Self::Gvinum];
        let name = |kind: &Self| match kind {
            Self::Gvinum => "vinum",
            kind => kind.name(),
        };
        all.into_iter()
            .find(|kind| error.structure.starts_with(name(kind)))
    }

    /// FreeBSD's name of it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Gmirror => "gmirror",
            Self::Gstripe => "gstripe",
            Self::Gconcat => "gconcat",
            Self::Gvinum => "gvinum",
        }
    }
}

/// The format of the first member that carries one of these; `None` sends the members on to Linux md.
///
/// # Errors
/// Of opening and reading.
pub async fn kind_of(
    handle: &Handle,
    pool: &BufPool,
    words: &[String],
) -> Result<Option<Kind>, Problem> {
    let mut damaged = None;
    for word in words {
        let parsed = MemberWord::parse(word);
        if !matches!(parsed, MemberWord::Path(_) | MemberWord::Partition(..)) {
            continue;
        }
        let device = AnyDevice::open(handle, &parsed, &OpenOptions::read_only()).await?;
        let detection = detect_on(&device, pool)
            .await
            .map_err(|error| problem_of_io(error, "reading its metadata", word))?;
        match detection.best() {
            // Another member may be whole; if none is, this says what they were.
            Some(Found::DamagedLabel { error }) => damaged = damaged.or(Kind::of_damage(error)),
            Some(_) => return Ok(Kind::of(&detection)),
            None => {}
        }
    }
    Ok(damaged)
}

/// The same, of members that are no files here; all have to be.
///
/// # Errors
/// Of opening and reading.
pub async fn kind_of_remote(
    handle: &Handle,
    pool: &BufPool,
    words: &[String],
) -> Result<Option<Kind>, Problem> {
    let parsed: Vec<MemberWord> = words.iter().map(|word| MemberWord::parse(word)).collect();
    let is_remote = |word: &MemberWord| !matches!(word, MemberWord::Path(_) | MemberWord::Missing);
    let Some(first) = parsed.first().filter(|_| parsed.iter().all(is_remote)) else {
        return Ok(None);
    };
    let device = AnyDevice::open(handle, first, &OpenOptions::read_only()).await?;
    let detection = detect_on(&device, pool)
        .await
        .map_err(|error| problem_of_io(error, "reading its metadata", &words[0]))?;
    Ok(Kind::of(&detection))
}

type Opened = Vec<(String, AnyDevice)>;

/// Opens members of one of these formats.
///
/// # Errors
/// Of opening; what keeps them from making a volume.
pub async fn open(
    handle: &Handle,
    pool: &BufPool,
    mut request: AssembleRequest,
    kind: Kind,
) -> Result<Vec<Assembled>, Problem> {
    let is_read_only = request.options.read_only || !request.may_write;
    let access = if is_read_only {
        OpenOptions::read_only()
    } else {
        OpenOptions::read_write()
    };
    let mut notes = Vec::new();
    let devices = open_members(handle, pool, &request, &access, &mut notes).await?;
    let names: Vec<String> = devices.iter().map(|(name, _)| name.clone()).collect();
    // Whoever was left out may be why the others are not enough.
    let left_out = notes.clone();
    let tell = |error| {
        let left_out = left_out.iter().cloned();
        left_out.fold(problem_of(error, kind, &names), Problem::why)
    };
    if is_read_only && !request.options.read_only {
        notes.push(format!(
            "a {} volume is served read-only until --write is given",
            kind.name()
        ));
    }
    let volume = VolumeOptions {
        is_read_only,
        ..request.volume.clone()
    };
    match kind {
        Kind::Gmirror => {
            prefer_half(&mut request, &devices, pool, &mut notes, !is_read_only).await?;
            let opened = mirror(handle, pool, &request, devices, volume, notes);
            opened.await.map_err(tell)
        }
        Kind::Gstripe | Kind::Gconcat => {
            let format = match kind {
                Kind::Gstripe => JoinedFormat::Stripe,
                _ => JoinedFormat::Concat,
            };
            let opened = joined(handle, pool, &request, devices, volume, notes, format);
            opened.await.map_err(tell)
        }
        Kind::Gvinum => {
            let system = SystemRequest {
                force: request.options.force,
                run_degraded: request.options.run_degraded,
                volume,
                balance: request.balance,
            };
            let opened = open_system(devices, handle.clock(), pool.clone(), system).await;
            system_bodies(opened.map_err(&tell)?, notes, &tell)
        }
    }
}

/// Halves that were written apart: one of them is read, never a mix of both, and none is written to.
async fn prefer_half(
    request: &mut AssembleRequest,
    devices: &Opened,
    pool: &BufPool,
    notes: &mut Vec<String>,
    may_write: bool,
) -> Result<(), Problem> {
    let Some(halves) = halves::written_apart(devices, pool).await else {
        return Ok(());
    };
    if may_write && !request.options.force {
        return Err(halves.problem());
    }
    notes.push(format!(
        "{}; all is read from {}",
        halves.text(),
        halves.first
    ));
    request.balance = Some(Policy::Prefer);
    Ok(())
}

/// Opens all members. Damaged ones are left out with a note, as long as others are there.
async fn open_members(
    handle: &Handle,
    pool: &BufPool,
    request: &AssembleRequest,
    access: &OpenOptions,
    notes: &mut Vec<String>,
) -> Result<Opened, Problem> {
    // All at once: of disks that sleep, each takes seconds to answer.
    let given = request.members.iter();
    let given = given.filter(|word| MemberWord::parse(word) != MemberWord::Missing);
    let opened = join_all(given.map(async |word: &String| {
        let parsed = MemberWord::parse(word);
        let device = AnyDevice::open(handle, &parsed, access).await?;
        owners::check(&device, pool, word, request.choice).await?;
        let detection = detect_on(&device, pool)
            .await
            .map_err(|error| problem_of_io(error, "reading its metadata", word))?;
        let damage = match detection.best() {
            Some(Found::DamagedLabel { error }) => Some(of_format(error, word)),
            _ => None,
        };
        Ok::<_, Problem>((crate::assembly::shown(&parsed), device, damage))
    }));
    let mut devices: Opened = Vec::new();
    let mut damage = None;
    for opened in opened.await {
        match opened? {
            (name, device, None) => devices.push((name, device)),
            (.., Some(problem)) => {
                notes.push(format!("{}; it is left out", problem.message));
                damage.get_or_insert(problem);
            }
        }
    }
    if let (true, Some(problem)) = (devices.is_empty(), damage) {
        return Err(problem);
    }
    Ok(devices)
}

/// Components that are behind, and are not filled by themselves.
fn note_waiting(mirror: &Mirror, names: &[String], notes: &mut Vec<String>) {
    for component in &mirror.components {
        if component.state == ComponentState::Stale {
            let name = &names[component.key.0];
            notes.push(format!(
                "{name} is behind and is not used: synchronisation by itself is off (NOAUTOSYNC)"
            ));
            let places: Vec<String> = names.iter().map(|name| format!("--in {name}")).collect();
            notes.push(format!(
                "to fill it, while {0} is not served:   plexum gmirror rebuild {0} {name} {1}",
                mirror.name,
                places.join(" ")
            ));
        }
    }
}

async fn mirror(
    handle: &Handle,
    pool: &BufPool,
    request: &AssembleRequest,
    devices: Opened,
    volume: VolumeOptions,
    mut notes: Vec<String>,
) -> Result<Vec<Assembled>, ForeignError> {
    let names: Vec<String> = devices.iter().map(|(name, _)| name.clone()).collect();
    let mirror = MirrorRequest {
        run_degraded: request.options.run_degraded,
        ignores_names: request.options.force,
        volume,
        balance: request.balance,
        name: request.name.clone(),
    };
    let (volume, assembled) = open_mirror(devices, handle.clock(), pool.clone(), mirror).await?;
    for (key, reason) in &assembled.refused {
        let way_out = match reason {
            Refusal::OtherProvider { .. } => "; with --force it is used under another name",
            _ => "",
        };
        notes.push(format!("{} is not used: {reason}{way_out}", names[key.0]));
    }
    if let Some(mirror) = &assembled.mirror {
        note_waiting(mirror, &names, &mut notes);
    }
    if let Some(mirror) = assembled
        .mirror
        .as_ref()
        .filter(|_| !request.options.run_degraded)
    {
        let (here, all) = (mirror.components.len(), mirror.component_count);
        let text = format!("{}: {here} of {all} components are here", mirror.name);
        if here < usize::from(all) && request.options.read_only {
            return Err(ForeignError::Degraded(text));
        }
        if here < usize::from(all) {
            notes.push(format!("{text}; what is missing may be newer"));
        }
    }
    let id = assembled
        .mirror
        .as_ref()
        .map_or(0, |mirror| mirror.mirror_id);
    let facts = facts_of(&volume, Kind::Gmirror, format!("{id:08x}"));
    Ok(vec![Assembled {
        body: Body::Whole(Box::new(volume)),
        facts,
        tally: None,
        notes,
    }])
}

async fn joined(
    handle: &Handle,
    pool: &BufPool,
    request: &AssembleRequest,
    devices: Opened,
    volume: VolumeOptions,
    notes: Vec<String>,
    format: JoinedFormat,
) -> Result<Vec<Assembled>, ForeignError> {
    let (clock, name) = (handle.clock(), request.name.clone());
    let names = if request.options.force {
        BoundNames::Ignored
    } else {
        BoundNames::Kept
    };
    let joined = join_devices(&devices, format, pool, names).await?;
    let (volume, joined) = volume_of(devices, joined, format, (clock, pool.clone()), volume, name);
    let kind = match format {
        JoinedFormat::Stripe => Kind::Gstripe,
        JoinedFormat::Concat => Kind::Gconcat,
    };
    let facts = facts_of(&volume, kind, format!("{:08x}", joined.id));
    Ok(vec![Assembled {
        body: Body::Whole(Box::new(volume)),
        facts,
        tally: None,
        notes,
    }])
}

/// All volumes of a system that can be served; those that cannot are a note, unless none can.
fn system_bodies(
    opened: OpenedSystem<AnyDevice, RealClock>,
    mut notes: Vec<String>,
    tell: &impl Fn(ForeignError) -> Problem,
) -> Result<Vec<Assembled>, Problem> {
    notes.extend(opened.system.notes);
    let mut refused = opened.refused.into_iter();
    if opened.volumes.is_empty() {
        let first = refused.next();
        let error = first.map_or_else(
            || ForeignError::Missing("the drives hold no volume".to_owned()),
            |(_, error)| error,
        );
        return Err(tell(error));
    }
    notes.extend(refused.map(|(name, error)| format!("{name} is not served: {error}")));
    let mut assembled = Vec::new();
    for OpenedVolume {
        volume,
        plexes,
        growing,
        tally,
        read_only_reason,
    } in opened.volumes
    {
        let facts = facts_of(&volume, Kind::Gvinum, String::new());
        let mut own = std::mem::take(&mut notes); // once, with the first one
        own.extend(read_only_reason);
        let volume = Box::new(volume);
        let body = match growing {
            Some(growing) => {
                let (moved, all) = growing.progress();
                own.push(format!(
                    "{} is growing: {moved} of {all} bytes have moved; the new size shows when it is served again",
                    volume.name()
                ));
                Body::Growing(volume, growing)
            }
            None if plexes.is_empty() => Body::Whole(volume),
            None => Body::Plexes(volume, plexes),
        };
        assembled.push(Assembled {
            body,
            facts,
            tally: Some(tally),
            notes: own,
        });
    }
    Ok(assembled)
}

fn facts_of(volume: &RealVolume, kind: Kind, uuid: String) -> Facts {
    let geometry = volume.geometry();
    let organisation = geometry.organisation();
    let has_redundancy = organisation.level().has_redundancy();
    Facts {
        level: organisation.level(),
        layout: organisation.layout_name(),
        strip_bytes: (geometry.strip_bytes() > 0).then(|| geometry.strip_bytes()),
        format: VolumeFormat::Other(kind.name()),
        uuid,
        member_bytes: has_redundancy.then(|| geometry.component_bytes()),
        slots: geometry.member_count() as u32, // at most MEMBERS_MAX
        io: String::new(),
        findings: Vec::new(),
        choice: crate::owners::Choice::Only,
    }
}

/// The problem that a refusal means.
#[must_use]
pub fn problem_of(error: ForeignError, kind: Kind, names: &[String]) -> Problem {
    let name = |index: usize| names.get(index).cloned().unwrap_or_default();
    match error {
        ForeignError::Io(index, error) => {
            problem_of_io(error, "reading its metadata", &name(index))
        }
        ForeignError::NothingFound(index) => {
            let word = name(index);
            Problem::new(
                Code::ForeignMember,
                format!(
                    "{word} carries no {} metadata as the others do",
                    kind.name()
                ),
            )
            .member(word.clone())
            .hint(format!("to see what is on it:   plexum examine {word}"))
        }
        ForeignError::Format(index, error) => of_format(&error, &name(index)),
        ForeignError::Unfit(index, text) => {
            let problem = Problem::new(Code::ForeignMember, text);
            match index {
                Some(index) => problem.member(name(index)),
                None => problem,
            }
        }
        ForeignError::Bound(index, text) => Problem::new(Code::ForeignMember, text)
            .member(name(index))
            .why("the label is used on a disk of that name only, so that no copy is taken for it")
            .hint("if it is that disk under another name, add:   --force"),
        ForeignError::Degraded(text) => Problem::new(Code::DegradedStart, text)
            .why("what is missing may be newer: what is served then would be old data")
            .hint("to start without it, add:   --run-degraded"),
        ForeignError::DirtyDegraded(text) => Problem::new(Code::DirtyDegraded, text)
            .why("parity that was being written cannot give back what is missing")
            .hint("to read what is certain, add:   --read-only")
            .hint("to start all the same, add:   --force"),
        ForeignError::Missing(text) => Problem::new(Code::TooFewMembers, text)
            .hint("name all members; those of a folder are found with:   plexum scan DIR"),
        other => Problem::new(Code::Bug, other.to_string()),
    }
}

/// What `--balance` says, for formats that record one of their own.
#[must_use]
pub fn asked_balance(word: Option<&str>) -> Option<Policy> {
    word.and_then(|word| word.parse().ok())
}
