//! From the words of a command line to devices: files, block devices, `missing`, remote exports, other volumes.
//!
//! Invariants:
//! - one type stands for whatever a member is, from the engine's I/O to the file;
//! - a member is opened once and locked as long as it is open;
//! - whatever cannot be opened becomes one problem that names the member as the user wrote it.

use std::fs::File;
use std::io::{Seek, SeekFrom};
use std::net::ToSocketAddrs;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::rc::Rc;
use std::time::Duration;

use futures_util::future::{Either, select};
use plexum_block::boxed::BoxedDevice;
use plexum_block::buf::{Buf, BufMut, BufPool};
use plexum_block::clock::Clock;
use plexum_block::device::{Device, DeviceInfo, Extent, Fua, FuaWay, IoError, ZeroMode};
use plexum_format::partition::{Partition, look_at};
use plexum_nbd::client::{ClientDevice, ConnectOptions, connect};
use plexum_nbd::tls::{Stream, TlsClient};
use plexum_nbd::uri::{Address, NbdUri, TlsOptions};
use plexum_runtime::Handle;
use plexum_runtime::file::{Access, FileDevice, OpenError, OpenOptions, Part};
use plexum_runtime::socket::{Socket, connect_tcp, connect_unix};
use plexum_runtime::users;

use crate::part::PartDevice;
use crate::problem::{Code, Problem};
use crate::runtime_dir::{Kind, RuntimeDir, Surroundings};

/// Longest time for connecting to a remote member, the handshake included.
const CONNECT_TIME_MAX: Duration = Duration::from_secs(10);
/// Buffers kept for each remote member, in bytes.
const REMOTE_KEEP_BYTES: usize = 4 << 20;

/// What a user wrote in the place of a member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MemberWord {
    /// An empty slot.
    Missing,
    /// A file or a block device.
    Path(PathBuf),
    /// A partition of a file or a block device: `disk.img:p1`.
    Partition(PathBuf, String),
    /// An export of an NBD server: `nbd://`, `nbds://`, `nbd+unix://`.
    Nbd(String),
    /// Another volume that is served.
    Volume(String),
}

impl MemberWord {
    /// Understands a word. `missing` is the empty slot; a file of that name is written `./missing`. `disk.img:p1` is
    /// partition 1 of `disk.img`, unless there is a file of the whole name.
    #[must_use]
    pub fn parse(word: &str) -> Self {
        if word == "missing" {
            MemberWord::Missing
        } else if let Some(name) = word.strip_prefix("volume:") {
            MemberWord::Volume(name.to_owned())
        } else if ["nbd://", "nbds://", "nbd+unix://", "nbds+unix://"]
            .iter()
            .any(|scheme| word.starts_with(scheme))
        {
            MemberWord::Nbd(word.to_owned())
        } else if let Some((disk, part)) = partition_of(word) {
            MemberWord::Partition(disk, part)
        } else {
            MemberWord::Path(PathBuf::from(word))
        }
    }
}

/// The disk and the name of its partition, when the word is of that form and means no file.
fn partition_of(word: &str) -> Option<(PathBuf, String)> {
    let (disk, part) = word.rsplit_once(':')?;
    let rest = part.strip_prefix('p')?;
    let label = rest.trim_start_matches(|letter: char| letter.is_ascii_digit());
    let slice = label.strip_prefix('s').unwrap_or_default();
    let is_letter =
        label.len() == 1 && label.starts_with(|letter: char| ('a'..='p').contains(&letter));
    let is_slice = !slice.is_empty() && slice.bytes().all(|digit| digit.is_ascii_digit());
    let is_name = !rest.is_empty() && (label.is_empty() || is_letter || is_slice);
    let is_meant = is_name && !Path::new(word).exists() && Path::new(disk).exists();
    is_meant.then(|| (disk.into(), part.to_owned()))
}

/// Where that partition is.
///
/// # Errors
/// Of reading the table; `NoSuchFile` when there is no such partition.
pub fn find_partition(disk: &Path, part: &str, word: &str) -> Result<Partition, Problem> {
    let tell = |error: std::io::Error| Problem::from_io(&error, "reading the partitions of", word);
    let mut file = File::open(disk).map_err(tell)?;
    let size_bytes = file.seek(SeekFrom::End(0)).map_err(tell)?;
    let mut read = |offset: u64, buffer: &mut [u8]| file.read_exact_at(buffer, offset);
    let all = look_at(size_bytes, &mut read);
    let names: Vec<String> = all.iter().map(|one| one.name.clone()).collect();
    all.into_iter().find(|one| one.name == part).ok_or_else(|| {
        let disk = disk.display();
        let problem = Problem::new(Code::NoSuchFile, format!("{disk} has no partition {part}"));
        let problem = problem.member(word);
        match names.is_empty() {
            true => problem.why("no table of partitions was found on it"),
            false => problem.why(format!("it has:   {}", names.join(" "))),
        }
    })
}

impl std::fmt::Display for MemberWord {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            MemberWord::Missing => f.write_str("missing"),
            MemberWord::Path(path) => write!(f, "{}", path.display()),
            MemberWord::Partition(disk, part) => write!(f, "{}:{part}", disk.display()),
            MemberWord::Nbd(uri) => f.write_str(uri),
            MemberWord::Volume(name) => write!(f, "volume:{name}"),
        }
    }
}

/// What a member of a volume can be. Clones are the same device.
#[derive(Clone)]
pub enum AnyDevice {
    /// A file or a block device.
    File(Rc<FileDevice>),
    /// A partition of one.
    Part(Rc<PartDevice>),
    /// An export of an NBD server, another volume among them.
    Remote(Rc<ClientDevice<Stream<Socket>>>),
    /// What a format puts between a volume and its drives: a plex, a drive that several volumes label.
    Stacked(BoxedDevice),
}

impl From<FileDevice> for AnyDevice {
    fn from(file: FileDevice) -> Self {
        AnyDevice::File(Rc::new(file))
    }
}

impl From<BoxedDevice> for AnyDevice {
    fn from(device: BoxedDevice) -> Self {
        AnyDevice::Stacked(device)
    }
}

impl AnyDevice {
    /// Opens the member that `word` names.
    ///
    /// # Errors
    /// `NotYet` for kinds that this version cannot open; `Usage` for an empty slot; what `problem_of` makes of the
    /// rest.
    pub async fn open(
        handle: &Handle,
        word: &MemberWord,
        options: &OpenOptions,
    ) -> Result<Self, Problem> {
        match word {
            MemberWord::Path(path) => FileDevice::open(handle, path, options)
                .map(AnyDevice::from)
                .map_err(|error| problem_of(error, &word.to_string())),
            MemberWord::Partition(disk, part) => {
                let shown = word.to_string();
                let place = find_partition(disk, part, &shown)?.place;
                let part = Part {
                    start_bytes: place.start,
                    length_bytes: place.end - place.start,
                };
                PartDevice::open(handle, disk, part, options)
                    .map(|part| AnyDevice::Part(Rc::new(part)))
                    .map_err(|error| problem_of(error, &shown))
            }
            MemberWord::Missing => Err(Problem::new(
                Code::Usage,
                "missing stands for an empty slot and cannot be opened",
            )),
            MemberWord::Nbd(uri) => {
                let parsed: NbdUri = uri.parse().map_err(|error| {
                    Problem::new(Code::Usage, format!("{word}: {error}")).member(uri.clone())
                })?;
                connect_remote(handle, &parsed, word)
                    .await
                    .and_then(|device| device.fit_for(options, word))
            }
            MemberWord::Volume(name) => {
                let from = Surroundings::of_this_process();
                let socket = RuntimeDir::locate(&from).file(name, Kind::Nbd);
                let uri = NbdUri {
                    address: Address::Unix(socket.display().to_string()),
                    export: name.clone(),
                    has_tls: false,
                    tls: TlsOptions::default(),
                };
                let connected = connect_remote(handle, &uri, word).await;
                let connected = connected.map_err(|problem| {
                    problem.hint(format!(
                        "the volume must be served first:   plexum status {name}"
                    ))
                });
                connected.and_then(|device| device.fit_for(options, word))
            }
        }
    }

    /// Refuses an export that cannot be written when it is to be.
    fn fit_for(self, options: &OpenOptions, word: &MemberWord) -> Result<Self, Problem> {
        match &self {
            AnyDevice::Remote(remote)
                if options.access == Access::ReadWrite && remote.is_read_only() =>
            {
                let why = "its server exports it for reading only";
                Err(read_only(&word.to_string(), why))
            }
            _ => Ok(self),
        }
    }

    /// The file below, when it is one.
    #[must_use]
    pub fn as_file(&self) -> Option<&FileDevice> {
        match self {
            AnyDevice::File(file) => Some(file),
            AnyDevice::Part(_) | AnyDevice::Remote(_) | AnyDevice::Stacked(_) => None,
        }
    }
}

impl Device for AnyDevice {
    fn info(&self) -> DeviceInfo {
        match self {
            AnyDevice::File(file) => file.info(),
            AnyDevice::Part(part) => part.info(),
            AnyDevice::Remote(remote) => remote.info(),
            AnyDevice::Stacked(device) => device.info(),
        }
    }
    // Past the `Rc`, whose own `read` and `write` would be one more future to poll.
    async fn read(&self, offset_bytes: u64, buf: BufMut) -> Result<BufMut, IoError> {
        match self {
            AnyDevice::File(file) => (**file).read(offset_bytes, buf).await,
            AnyDevice::Part(part) => (**part).read(offset_bytes, buf).await,
            AnyDevice::Remote(remote) => (**remote).read(offset_bytes, buf).await,
            AnyDevice::Stacked(device) => device.read(offset_bytes, buf).await,
        }
    }
    async fn write(&self, offset_bytes: u64, data: Buf, fua: Fua) -> Result<(), IoError> {
        match self {
            AnyDevice::File(file) => (**file).write(offset_bytes, data, fua).await,
            AnyDevice::Part(part) => (**part).write(offset_bytes, data, fua).await,
            AnyDevice::Remote(remote) => (**remote).write(offset_bytes, data, fua).await,
            AnyDevice::Stacked(device) => device.write(offset_bytes, data, fua).await,
        }
    }
    async fn flush(&self) -> Result<(), IoError> {
        match self {
            AnyDevice::File(file) => file.flush().await,
            AnyDevice::Part(part) => part.flush().await,
            AnyDevice::Remote(remote) => remote.flush().await,
            AnyDevice::Stacked(device) => device.flush().await,
        }
    }
    async fn zero(
        &self,
        offset_bytes: u64,
        length_bytes: u64,
        mode: ZeroMode,
    ) -> Result<(), IoError> {
        match self {
            AnyDevice::File(file) => file.zero(offset_bytes, length_bytes, mode).await,
            AnyDevice::Part(part) => part.zero(offset_bytes, length_bytes, mode).await,
            AnyDevice::Remote(remote) => remote.zero(offset_bytes, length_bytes, mode).await,
            AnyDevice::Stacked(device) => device.zero(offset_bytes, length_bytes, mode).await,
        }
    }
    async fn extents(
        &self,
        offset_bytes: u64,
        length_bytes: u64,
        extents_max: usize,
    ) -> Result<Vec<Extent>, IoError> {
        match self {
            AnyDevice::File(file) => {
                Device::extents(file, offset_bytes, length_bytes, extents_max).await
            }
            AnyDevice::Part(part) => part.extents(offset_bytes, length_bytes, extents_max).await,
            AnyDevice::Remote(remote) => {
                remote
                    .extents(offset_bytes, length_bytes, extents_max)
                    .await
            }
            AnyDevice::Stacked(device) => {
                device
                    .extents(offset_bytes, length_bytes, extents_max)
                    .await
            }
        }
    }
    fn fua_way(&self) -> FuaWay {
        match self {
            AnyDevice::File(file) => file.fua_way(),
            AnyDevice::Part(part) => part.fua_way(),
            AnyDevice::Remote(remote) => remote.fua_way(),
            AnyDevice::Stacked(device) => device.fua_way(),
        }
    }
    fn is_in_memory(&self) -> bool {
        match self {
            AnyDevice::File(file) => file.is_in_memory(),
            AnyDevice::Part(part) => part.is_in_memory(),
            AnyDevice::Remote(remote) => remote.is_in_memory(),
            AnyDevice::Stacked(device) => device.is_in_memory(),
        }
    }

    fn handle(&self) -> Option<u64> {
        match self {
            AnyDevice::File(file) => file.handle(),
            AnyDevice::Part(_) | AnyDevice::Remote(_) | AnyDevice::Stacked(_) => None,
        }
    }
    fn busy(&self) -> usize {
        match self {
            AnyDevice::File(file) => file.busy(),
            AnyDevice::Part(part) => part.busy(),
            AnyDevice::Remote(remote) => remote.busy(),
            AnyDevice::Stacked(device) => device.busy(),
        }
    }
    async fn check(&self) -> Result<(), IoError> {
        match self {
            AnyDevice::File(file) => file.check().await,
            AnyDevice::Part(part) => part.check().await,
            AnyDevice::Remote(remote) => remote.check().await,
            AnyDevice::Stacked(device) => device.check().await,
        }
    }
}

/// Connects to an export and gives it a driver task of its own.
///
/// A remote member has no lock: that nobody else writes to it is up to its server and its user.
async fn connect_remote(
    handle: &Handle,
    uri: &NbdUri,
    word: &MemberWord,
) -> Result<AnyDevice, Problem> {
    let clock = handle.clock();
    let connecting = pin!(shake_hands(handle, uri, word));
    let limit = pin!(clock.sleep(CONNECT_TIME_MAX));
    match select(connecting, limit).await {
        Either::Left((result, _)) => result,
        Either::Right(_) => Err(Problem::new(
            Code::DeviceGone,
            format!("{word}: no answer within {} s", CONNECT_TIME_MAX.as_secs()),
        )
        .member(word.to_string())),
    }
}

/// What a client needs for `nbds://`: a folder of certificates, as libnbd and nbdkit lay it out.
fn tls_of(uri: &NbdUri, word: &MemberWord) -> Result<TlsClient, Problem> {
    let usage = |text: &str| {
        Problem::new(Code::Usage, format!("{word}: {text}"))
            .member(word.to_string())
            .hint("for example:   nbds://HOST/EXPORT?tls-certificates=DIR")
            .hint("DIR has ca-cert.pem, and client-cert.pem with client-key.pem where the server asks for them")
    };
    let kind = uri.tls.kind.as_deref().unwrap_or("x509");
    if kind != "x509" || uri.tls.psk_file.is_some() || uri.tls.user.is_some() {
        return Err(usage(
            "TLS with X.509 certificates only, no pre-shared keys",
        ));
    }
    if uri.tls.verifies_peer == Some(false) {
        return Err(usage("a server that is not verified could be anybody"));
    }
    let Some(folder) = &uri.tls.certificates else {
        return Err(usage("TLS needs certificates"));
    };
    let host = match &uri.address {
        Address::Tcp { host, .. } => host.as_str(),
        Address::Unix(_) => "localhost",
    };
    let name = uri.tls.hostname.as_deref().unwrap_or(host);
    TlsClient::new(Path::new(folder), name).map_err(|error| usage(&error.to_string()))
}

async fn shake_hands(
    handle: &Handle,
    uri: &NbdUri,
    word: &MemberWord,
) -> Result<AnyDevice, Problem> {
    let shown = word.to_string();
    let refused = |text: String| {
        Problem::new(Code::DeviceGone, format!("{shown}: {text}")).member(shown.clone())
    };
    let system = |error: std::io::Error| refused(format!("cannot connect: {}", reason(&error)));
    let socket = match &uri.address {
        Address::Unix(path) => connect_unix(handle, Path::new(path))
            .await
            .map_err(system)?,
        Address::Tcp { host, port } => {
            let address = (host.as_str(), *port)
                .to_socket_addrs()
                .map_err(system)?
                .next()
                .ok_or_else(|| refused(format!("{host} has no address")))?;
            connect_tcp(handle, address).await.map_err(system)?
        }
    };
    let pool = BufPool::new(REMOTE_KEEP_BYTES);
    let mut options = ConnectOptions::new(&uri.export);
    options.tls = uri.has_tls.then(|| tls_of(uri, word)).transpose()?;
    let (client, driver) = connect(Stream::new(socket), pool.clone(), &options)
        .await
        .map_err(|error| refused(error.to_string()))?;
    let _driver = handle.spawn(async move { driver.run().await });
    let device = ClientDevice::new(client, pool).map_err(|error| refused(error.to_string()))?;
    Ok(AnyDevice::Remote(Rc::new(device)))
}

/// What helps where members are listed by slot and one does not exist.
pub const MISSING_HINT: &str = "write `missing` in its place to leave the slot empty";

/// Whether a member that is about to be overwritten is open for writing elsewhere, as a virtual machine's disk is.
///
/// # Errors
/// `Busy` with the process.
pub fn check_writers(parsed: &MemberWord, word: &str) -> Result<(), Problem> {
    let MemberWord::Path(path) = parsed else {
        return Ok(());
    };
    match users::writer(path) {
        None => Ok(()),
        Some(pid) => Err(Problem::new(
            Code::Busy,
            format!("{word} is in use by process {pid}, which has it open for writing"),
        )
        .member(word)
        .hint(format!("to see what it is:   ps -p {pid}"))),
    }
}

/// The problem that an error of opening means.
#[must_use]
pub fn problem_of(error: OpenError, word: &str) -> Problem {
    match error {
        OpenError::System {
            action, ref source, ..
        } => {
            let mut problem = Problem::from_io(source, &format!("cannot {action}:"), word);
            problem.message = format!("{word}: cannot {action}: {}", reason(source));
            match problem.code {
                Code::NoSuchFile => problem.hint(MISSING_HINT),
                _ => problem,
            }
        }
        OpenError::ReadOnly { why, .. } => read_only(word, why),
        OpenError::NotAMember { found, .. } => Problem::new(
            Code::Usage,
            format!("{word} is {found}; a member is a file or a block device"),
        )
        .member(word),
        OpenError::InUse { pid, .. } if pid == Some(std::process::id()) => Problem::new(
            Code::DuplicateMember,
            format!("{word} is given twice, perhaps by two paths"),
        )
        .member(word)
        .hint("give each member once"),
        OpenError::InUse { pid, .. } => {
            let who = pid.map_or(String::new(), |pid| format!(" (process {pid})"));
            Problem::new(
                Code::Busy,
                format!("{word} is in use by another process{who}"),
            )
            .member(word)
            .hint("to see what is served:   plexum status")
        }
        OpenError::Busy { holders, .. } => Problem::new(
            Code::Busy,
            format!("{word} is in use by {}", holders.join(", ")),
        )
        .member(word),
        other => Problem::new(Code::IoError, other.to_string()).member(word),
    }
}

/// A member that was to be written and cannot be.
fn read_only(word: &str, why: &str) -> Problem {
    Problem::new(Code::MemberReadOnly, format!("{word} is read-only"))
        .member(word)
        .why(why)
}

fn reason(error: &std::io::Error) -> String {
    let text = error.to_string();
    text.split(" (os error")
        .next()
        .unwrap_or(&text)
        .to_lowercase()
}

/// The problem that a failed transfer on a member means; `doing` is `reading the superblock`, ...
#[must_use]
pub fn problem_of_io(error: IoError, doing: &str, word: &str) -> Problem {
    let code = match error {
        IoError::NoSpace => Code::NoSpace,
        IoError::Gone => Code::DeviceGone,
        IoError::ReadOnly => Code::NotPermitted,
        _ => Code::IoError,
    };
    Problem::new(code, format!("{word}: {doing}: {error}")).member(word)
}

/// A path as it is compared and shown in status: absolute, links resolved where that is possible.
#[must_use]
pub fn full_path(path: &Path) -> PathBuf {
    std::fs::canonicalize(path)
        .or_else(|_| std::path::absolute(path))
        .unwrap_or_else(|_| path.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_paths_unless_they_say_otherwise() {
        for (word, expected) in [
            ("missing", MemberWord::Missing),
            ("./missing", MemberWord::Path("./missing".into())),
            ("a.img", MemberWord::Path("a.img".into())),
            ("volume:inner", MemberWord::Volume("inner".into())),
            (
                "nbd+unix:///x?socket=/s",
                MemberWord::Nbd("nbd+unix:///x?socket=/s".into()),
            ),
        ] {
            assert_eq!(MemberWord::parse(word), expected);
            assert_eq!(MemberWord::parse(word).to_string(), word);
        }
    }

    #[test]
    fn a_partition_is_named_behind_its_disk_unless_a_file_has_the_whole_name() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name).display().to_string();
        std::fs::write(path("disk"), "").unwrap();
        let part = |name: &str| MemberWord::Partition(path("disk").into(), name.to_owned());
        for name in ["p1", "p12", "p1h", "ph", "p2s0", "ps7"] {
            assert_eq!(
                MemberWord::parse(&path(&format!("disk:{name}"))),
                part(name)
            );
        }
        for name in [
            "disk:p",
            "disk:1",
            "disk:p1hh",
            "disk:p1s",
            "disk:px1",
            "other:p1",
        ] {
            let word = path(name);
            assert_eq!(MemberWord::parse(&word), MemberWord::Path(word.into()));
        }
        std::fs::write(path("disk:p1"), "").unwrap();
        let word = path("disk:p1");
        assert_eq!(MemberWord::parse(&word), MemberWord::Path(word.into()));
    }
}
