//! From member words to an open volume: open, leave out what is damaged, assemble.
//!
//! Invariants:
//! - all members are open and locked before anything is decided; whatever is not used is let go of again;
//! - a damaged member is left out with a note; a blank one, or one of another array, that was named is refused.

use std::path::{Path, PathBuf};

use plexum_block::buf::BufPool;
use plexum_block::device::IoError;
use plexum_block::wait::join_all;
use plexum_engine::balance::Policy;
use plexum_engine::volume::{Volume, VolumeOptions};
use plexum_format::Problem as FormatProblem;
use plexum_format::md::Superblock;
use plexum_freebsd::gvinum::tally::VolumeTally;
use plexum_freebsd::stacked::PlexMember;
use plexum_md::assemble::{
    AssembleCode, AssembleError, Assembly, BitmapUse, JournalUse, Options, StaleUse,
};
use plexum_md::open::{OpenError, OpenRequest, Pieces, examine_as, open_pieces, open_volume};
use plexum_md::reshape::{Alteration, Beginning, Goal, Reshaping, open_reshaping};
use plexum_runtime::Handle;
use plexum_runtime::clock::RealClock;
use plexum_runtime::file::{FileDevice, OpenOptions};

mod body;

pub use body::Body;

use crate::foreign;
use crate::open::{AnyDevice, MemberWord, problem_of, problem_of_io};
use crate::owners::{self, Choice, Format, expand};
use crate::problem::{Code, Problem};
use crate::volume::facts::Facts;
use crate::volume::status::Finding;

/// A member of this process: a device, which others may use too, or a plex.
pub type RealDevice = AnyDevice;
/// A plex of this process under a volume of several.
pub type RealPlex = PlexMember<AnyDevice, RealClock>;
/// The volume of this process.
pub type RealVolume = Volume<RealDevice, RealClock>;

/// Whether a volume gets a block device of the kernel through ublk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DeviceWish {
    /// Only one that its last server has left is taken over.
    #[default]
    TakeOver,
    /// One is made when none was left.
    Make,
}

/// What to assemble and how.
#[derive(Clone, Debug)]
pub struct AssembleRequest {
    /// Members as the user wrote them, in any order; `missing` is passed over.
    pub members: Vec<String>,
    /// Name instead of the one in the metadata.
    pub name: Option<String>,
    /// What the user insists on.
    pub options: Options,
    /// Settings of the volume.
    pub volume: VolumeOptions,
    /// How reads are spread, where the user says so: formats that record a policy use theirs otherwise.
    pub balance: Option<Policy>,
    /// Formats found on a foreign disk may be written to.
    pub may_write: bool,
    /// The backup file that `mdadm --grow` was given.
    pub backup_file: Option<PathBuf>,
    /// Which set is meant where members may be of several.
    pub choice: Choice,
    /// Superblocks by member, in place of those that are on them: an array that is tried before it is made.
    pub planned: Vec<Superblock>,
    /// What an array of md is to become.
    pub change: Change,
    /// Where that leads, as its members are to say from then on.
    pub goal: Option<Goal>,
    /// Whether it gets a block device of the kernel.
    pub device: DeviceWish,
    /// Where a virtual machine finds it (vhost-user-blk).
    pub vhost_user: Option<PathBuf>,
}

/// What an array becomes as it is opened.
#[derive(Clone, Debug, Default)]
pub enum Change {
    /// What it is; a reshape that is under way goes on.
    #[default]
    None,
    /// It begins to be reshaped.
    Begin(Box<Beginning>),
    /// It becomes something else, but for a reshape that begins.
    Alter(Box<Alteration>),
}

impl Change {
    /// What it becomes, but for a reshape that begins.
    fn alteration(&self) -> Option<Alteration> {
        match self {
            Change::Alter(alteration) => Some((**alteration).clone()),
            Change::None | Change::Begin(_) => None,
        }
    }
}

/// An open volume with what is known about it.
pub struct Assembled {
    /// What is to be served; nothing was written yet.
    pub body: Body,
    /// What does not change; `io` is filled in by whoever serves.
    pub facts: Facts,
    /// Counters by object, of a volume of Vinum.
    pub tally: Option<VolumeTally>,
    /// One sentence for each member that was left out, and other things worth knowing.
    pub notes: Vec<String>,
}

/// Opens and assembles.
///
/// # Errors
/// Of opening; `DamagedMetadata`, `NoMetadata`; everything that assembly refuses.
pub async fn open(
    handle: &Handle,
    pool: &BufPool,
    request: AssembleRequest,
) -> Result<Vec<Assembled>, Problem> {
    let words = request.members.clone();
    let opened = open_known(handle, pool, request).await;
    opened.map_err(|problem| owners::with_lost_end(problem, &words))
}

async fn open_known(
    handle: &Handle,
    pool: &BufPool,
    request: AssembleRequest,
) -> Result<Vec<Assembled>, Problem> {
    let choice = request.choice;
    if !request.planned.is_empty() {
        return Ok(vec![open_md(handle, pool, request).await?]);
    }
    let (members, notes) = expand(&request.members, request.choice)?;
    let request = AssembleRequest { members, ..request };
    let kind = match request.choice {
        Choice::Format(Format::Foreign(kind)) => Some(kind),
        Choice::Format(Format::Md(_)) => None,
        Choice::Format(Format::Zfs) => return Err(pools_are_read_otherwise()),
        Choice::Only | Choice::Newest => foreign::kind_of(handle, pool, &request.members).await?,
    };
    let mut assembled = match kind {
        Some(kind) => foreign::open(handle, pool, request, kind).await?,
        None => match open_md(handle, pool, request.clone()).await {
            Ok(assembled) => vec![assembled],
            // Members at other machines, or volumes of a server, are asked a second time only where md is not what they
            // are.
            Err(problem) => match foreign::kind_of_remote(handle, pool, &request.members).await {
                Ok(Some(kind)) => foreign::open(handle, pool, request, kind).await?,
                _ => return Err(problem),
            },
        },
    };
    for one in &mut assembled {
        one.facts.choice = choice;
    }
    if let Some(first) = assembled.first_mut() {
        first.notes.splice(0..0, notes);
    }
    Ok(assembled)
}

fn pools_are_read_otherwise() -> Problem {
    Problem::new(
        Code::Usage,
        "--format zfs: a pool is no volume that can be served as a whole",
    )
    .hint("to see what is in it:   plexum pool list MEMBER...")
    .hint("to serve a volume of it, read-only, add:   --dataset POOL/VOLUME")
}

async fn open_md(
    handle: &Handle,
    pool: &BufPool,
    request: AssembleRequest,
) -> Result<Assembled, Problem> {
    let access = match request.options.read_only {
        true => OpenOptions::read_only(),
        false => OpenOptions::read_write(),
    };
    let mut notes = Vec::new();
    let devices = open_members(handle, pool, &request, &access, &mut notes).await?;
    let names: Vec<String> = devices.iter().map(|(name, _)| name.clone()).collect();
    let is_read_only = request.options.read_only;
    let open_request = OpenRequest {
        assemble: Options {
            goes_on_reshaping: !is_read_only,
            ..request.options
        },
        volume: request.volume,
        name: request.name,
        version: request.choice.version(),
        planned: request.planned,
        alteration: request.change.alteration(),
        goal: request.goal,
    };
    let tell = |error| of_open(error, |index| names.get(index).cloned().unwrap_or_default());
    let (copy, clock, shared) = (open_request.clone(), handle.clock(), devices.clone());
    let backup = open_backup(handle, request.backup_file.as_deref())?;
    let opened = match (&backup, &request.change) {
        (Some(_), _) | (_, Change::Begin(_)) => Err(OpenError::InPieces),
        _ => open_volume(devices, clock.clone(), pool.clone(), open_request).await,
    };
    let (body, assembly) = match opened {
        Ok((volume, assembly)) => (Body::Whole(Box::new(volume)), assembly),
        Err(OpenError::InPieces) => {
            let shared = SeveralPlaces {
                devices: shared,
                clock,
                pool: pool.clone(),
                request: copy,
            };
            let opened = shared.open(backup, &request.change, &mut notes);
            opened.await.map_err(|failed| match failed {
                Failed::Open(error) => with_notes(tell(error), &notes),
                Failed::BackupOnlyRead => backup_only_read(&notes),
            })?
        }
        Err(error) => return Err(with_notes(tell(error), &notes)),
    };
    notes.extend(assembly.notes.iter().cloned());
    for member in &assembly.members {
        if let Some(reason) = &member.reason {
            notes.push(format!("{} is not used: {reason}", member.name));
        }
        if let Some(caution) = &member.caution {
            notes.push(format!("{} is used all the same: {caution}", member.name));
        }
    }
    note_limits(&assembly, &body, &request.options, &mut notes);
    let mut facts = Facts::of(&assembly, String::new());
    facts.findings = findings(&body, &assembly);
    Ok(Assembled {
        body,
        facts,
        tally: None,
        notes,
    })
}

/// Members of an array that is not in one piece.
struct SeveralPlaces {
    devices: Vec<(String, RealDevice)>,
    clock: RealClock,
    pool: BufPool,
    request: OpenRequest,
}

/// Why such an array is not opened.
enum Failed {
    Open(OpenError),
    BackupOnlyRead,
}

impl SeveralPlaces {
    /// Read-only it is read where it stands, otherwise its reshape goes on, or begins.
    async fn open(
        self,
        backup: Option<(String, RealDevice)>,
        change: &Change,
        notes: &mut Vec<String>,
    ) -> Result<(Body, Assembly), Failed> {
        let Self {
            devices,
            clock,
            pool,
            request,
        } = self;
        if request.assemble.read_only {
            let opened = open_pieces(devices, clock, pool, request, backup).await;
            let (pieces, assembly) = opened.map_err(Failed::Open)?;
            note_pieces(&pieces, &assembly, notes);
            return Ok((Body::Pieces(Box::new(pieces)), assembly));
        }
        if backup.is_some() {
            return Err(Failed::BackupOnlyRead);
        }
        let beginning = match change {
            Change::Begin(beginning) => Some(&**beginning),
            Change::None | Change::Alter(_) => None,
        };
        let opened = open_reshaping(devices, clock, pool, request, beginning).await;
        let (moving, assembly) = opened.map_err(Failed::Open)?;
        note_reshape(&moving, &assembly, notes);
        Ok((Body::Reshaping(Box::new(moving)), assembly))
    }
}

/// The backup file of a reshape in place, as a member is opened.
fn open_backup(
    handle: &Handle,
    path: Option<&Path>,
) -> Result<Option<(String, RealDevice)>, Problem> {
    let Some(path) = path else { return Ok(None) };
    let name = path.display().to_string();
    let file = FileDevice::open(handle, path, &OpenOptions::read_only())
        .map_err(|error| problem_of(error, &name))?;
    Ok(Some((name, file.into())))
}

/// An array whose reshape in place was interrupted is read with mdadm's backup file, and not written to.
fn backup_only_read(notes: &[String]) -> Problem {
    let problem = Problem::new(
        Code::UnsupportedFeature,
        "with mdadm's backup file an array can only be read",
    );
    with_notes(problem.hint("to read it, add:   --read-only"), notes)
}

/// What whoever writes to an array between two geometries has to know.
fn note_reshape(
    moving: &Reshaping<RealDevice, RealClock>,
    assembly: &Assembly,
    notes: &mut Vec<String>,
) {
    let (done, all) = moving.progress();
    if done == 0 && assembly.is_dirty() {
        notes.push(LIVE_START.to_owned());
    }
    notes.push(format!(
        "it is being reshaped: {done} of {all} bytes have moved; the size changes at the end"
    ));
}

/// What cannot be seen of a reshape that a kernel has begun.
const LIVE_START: &str = "a kernel that was cut off right after it began this reshape may have gone further than it has recorded: compare what is read";

/// What whoever reads an array in pieces has to know.
fn note_pieces(
    pieces: &Pieces<RealDevice, RealClock>,
    assembly: &Assembly,
    notes: &mut Vec<String>,
) {
    let patched = pieces.patched_bytes;
    if let Some(reshape) = &assembly.reshape {
        notes.push("a reshape was interrupted: both halves are read".into());
        let is_at_start = reshape.position_bytes == 0
            || reshape.is_backwards && reshape.position_bytes >= assembly.volume_bytes;
        if reshape.torn.is_none() && patched == 0 && (is_at_start || assembly.is_dirty()) {
            notes.push(LIVE_START.to_owned());
        }
    }
    if patched > 0 {
        let whence = match assembly.reshape {
            Some(_) => "mdadm's backup file, which has no checksums: compare what is read",
            None => "the write journal, which has not been replayed",
        };
        notes.push(format!("{patched} bytes are read from {whence}"));
    }
    if pieces.lost_bytes > 0 {
        notes.push(format!(
            "{} bytes are in doubt: they answer with errors, or with --force-data with what is there",
            pieces.lost_bytes
        ));
    }
}

/// What status says of an array in pieces for as long as it is served.
fn findings(body: &Body, assembly: &Assembly) -> Vec<Finding> {
    let finding = |code: &str, message: String| Finding {
        code: code.into(),
        message,
        commands: Vec::new(),
    };
    let mut findings = Vec::new();
    if let (Some(reshape), Body::Pieces(_)) = (&assembly.reshape, body) {
        let (old, new) = (&assembly.geometry, &reshape.after);
        findings.push(finding(
            "reshape_interrupted",
            format!(
                "a reshape from {} of {} to {} of {} stands at byte {}{}",
                old.organisation(),
                old.member_count(),
                new.organisation(),
                new.member_count(),
                reshape.position_bytes,
                if reshape.is_backwards {
                    ", going down"
                } else {
                    ""
                }
            ),
        ));
    }
    if let Body::Pieces(pieces) = body
        && assembly.journal == JournalUse::Here
    {
        let text = format!(
            "{} answered bytes are only in its write journal",
            pieces.patched_bytes
        );
        findings.push(finding("journal_not_replayed", text));
    }
    findings
}

/// What whoever reads or writes has to know.
fn note_limits(assembly: &Assembly, body: &Body, options: &Options, notes: &mut Vec<String>) {
    if assembly.journal == JournalUse::Absent {
        notes.push(
            "its write journal is not here: where the newest data are only there, old ones are read".into(),
        );
    }
    if assembly.mixes_two_times() {
        if let BitmapUse::Usable { .. } = &assembly.bitmap {
            let status = body.status();
            let region_bytes = status.bitmap_region_bytes.unwrap_or(0);
            notes.push(format!(
                "the bitmap marks {} regions of {region_bytes} bytes as written since the array was last whole",
                status.marked_regions
            ));
        }
        notes.push(
            "what is read may mix two times: compare it, and copy what you need before anything is written".into(),
        );
    }
    if assembly.is_read_only && !options.read_only {
        notes.push(
            if assembly.mixes_two_times() && options.stale == StaleUse::Read {
                "it can only be read; to write to it as well, add:   --write".into()
            } else {
                "it can only be read: this version does not write such an array".into()
            },
        );
    }
}

/// A refusal, and what is known of members that could not be used: often that is why.
fn with_notes(problem: Problem, notes: &[String]) -> Problem {
    notes
        .iter()
        .fold(problem, |problem, note| problem.why(note))
}

/// Opens all members. Damaged ones are left out with a note, as long as others are there.
async fn open_members(
    handle: &Handle,
    pool: &BufPool,
    request: &AssembleRequest,
    access: &OpenOptions,
    notes: &mut Vec<String>,
) -> Result<Vec<(String, RealDevice)>, Problem> {
    // All at once: of disks that sleep, each takes seconds to answer.
    let given = request.members.iter();
    let given = given.filter(|word| MemberWord::parse(word) != MemberWord::Missing);
    let opened = join_all(given.map(|word| open_member(handle, pool, request, access, word)));
    let mut devices = Vec::new();
    let mut damaged = None;
    for opened in opened.await {
        match opened? {
            Ok(device) => devices.push(device),
            Err(problem) => {
                notes.push(format!("{}; it is left out", problem.message));
                damaged.get_or_insert(problem);
            }
        }
    }
    if let (true, Some(problem)) = (devices.is_empty(), damaged) {
        return Err(problem);
    }
    Ok(devices)
}

/// Opens one of them. In the result: the problem of one whose metadata are damaged.
async fn open_member(
    handle: &Handle,
    pool: &BufPool,
    request: &AssembleRequest,
    access: &OpenOptions,
    word: &str,
) -> Result<Result<(String, RealDevice), Problem>, Problem> {
    let parsed = MemberWord::parse(word);
    let device = AnyDevice::open(handle, &parsed, access)
        .await
        .map_err(or_read_only)?;
    let opened = (shown(&parsed), device);
    if !request.planned.is_empty() {
        return Ok(Ok(opened)); // what is on it does not count
    }
    owners::check(&opened.1, pool, word, request.choice).await?;
    match examine_as(&opened.1, pool, 0, word, request.choice.version()).await {
        Ok(_) => Ok(Ok(opened)),
        Err(OpenError::Format { error, .. }) => Ok(Err(of_format(&error, word))),
        Err(error) => Err(of_open(error, |_| word.to_owned())),
    }
}

/// Members that cannot be written can be read.
fn or_read_only(problem: Problem) -> Problem {
    if problem.code != Code::MemberReadOnly {
        return problem;
    }
    problem.hint("to read what is there, add:   --read-only")
}

/// A member's name in status and messages: absolute, but with its links, so that stable names of devices stay.
pub(crate) fn shown(word: &MemberWord) -> String {
    match word {
        MemberWord::Path(path) => std::path::absolute(path)
            .unwrap_or_else(|_| path.clone())
            .display()
            .to_string(),
        MemberWord::Partition(path, part) => {
            let path = std::path::absolute(path).unwrap_or_else(|_| path.clone());
            format!("{}:{part}", path.display())
        }
        other => other.to_string(),
    }
}

/// The problem that damaged metadata means.
#[must_use]
pub fn of_format(error: &plexum_format::FormatError, word: &str) -> Problem {
    let code = match error.problem {
        FormatProblem::Unsupported => Code::UnsupportedFeature,
        _ => Code::DamagedMetadata,
    };
    Problem::new(code, format!("{word}: {error}"))
        .member(word)
        .hint(format!("for all that is on it:   plexum examine {word}"))
}

fn of_open(error: OpenError, name: impl Fn(usize) -> String) -> Problem {
    match error {
        OpenError::Io { index, error } => match error {
            IoError::OutOfRange => Problem::new(
                Code::MemberTooSmall,
                format!("{} is smaller than its metadata says", name(index)),
            )
            .member(name(index)),
            error => problem_of_io(error, "reading its metadata", &name(index)),
        },
        OpenError::NothingFound { index } => {
            let word = name(index);
            Problem::new(
                Code::NoMetadata,
                format!("{word}: nothing was found that plexum knows"),
            )
            .member(word.clone())
            .hint(format!("to see what is on it:   plexum examine {word}"))
        }
        OpenError::Format { index, error } => of_format(&error, &name(index)),
        OpenError::Assemble(error) => of_assemble(&error, name),
        OpenError::InPieces => Problem::new(Code::UnsupportedFeature, error.to_string())
            .why("finishing a reshape comes with a later version")
            .hint("to read it, add:   --read-only"),
        OpenError::Backup(reason) => Problem::new(Code::ReshapeTorn, reason)
            .why("what the reshape was moving when it was interrupted is whole only in the right backup file"),
        OpenError::NotSupported(reason) => Problem::new(Code::UnsupportedFeature, reason),
        other => Problem::new(Code::Bug, other.to_string()),
    }
}

/// The problem that a refusal of assembly means. `name` gives a member's word by its number.
#[must_use]
pub fn of_assemble(error: &AssembleError, name: impl Fn(usize) -> String) -> Problem {
    let code = match error.code {
        AssembleCode::NoMetadata => Code::NoMetadata,
        AssembleCode::ForeignMember => Code::ForeignMember,
        AssembleCode::DuplicateMember => Code::DuplicateMember,
        AssembleCode::SplitBrain => Code::SplitBrain,
        AssembleCode::DirtyDegraded => Code::DirtyDegraded,
        AssembleCode::DegradedStart => Code::DegradedStart,
        AssembleCode::LogLost => Code::LogLost,
        AssembleCode::ReshapeTorn => Code::ReshapeTorn,
        AssembleCode::TooFewMembers => Code::TooFewMembers,
        AssembleCode::UnsupportedFeature => Code::UnsupportedFeature,
        _ => Code::DamagedMetadata,
    };
    let mut problem = Problem::new(code, error.message.clone());
    problem.member = error.member.map(name);
    problem.why.clone_from(&error.why);
    problem.hints.clone_from(&error.hints);
    problem
}
