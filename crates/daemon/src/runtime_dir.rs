//! Where sockets of running volumes live, and how they are found again.
//!
//! Invariants:
//! - the folder belongs to the user and nobody else may enter it (0700) when it is made here;
//! - a socket's path fits `sockaddr_un` (107 bytes): longer names are replaced by a hash of the name;
//! - a socket file without a server behind it is replaced, a live one never.

use std::ffi::OsString;
use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use plexum_runtime::socket::Peer;

use crate::problem::{Code, Problem};

/// Longest path that `sockaddr_un` takes with its terminating zero, in bytes.
pub const SOCKET_PATH_BYTES_MAX: usize = 107;

/// Kind of a file in the runtime folder; becomes its extension.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The control socket.
    Control,
    /// The default NBD socket.
    Nbd,
    /// What a server in the background writes to standard error.
    Log,
    /// How the server was started.
    Command,
}

impl Kind {
    /// Its extension.
    #[must_use]
    pub fn extension(self) -> &'static str {
        match self {
            Kind::Control => "control",
            Kind::Nbd => "nbd",
            Kind::Log => "log",
            Kind::Command => "command",
        }
    }
}

/// The runtime folder of this user. Made on first use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuntimeDir {
    path: PathBuf,
}

/// What decides where the folder is; read from the process in one place so that the choice can be tested.
#[derive(Clone, Debug, Default)]
pub struct Surroundings {
    /// `$XDG_RUNTIME_DIR`, when set and not empty.
    pub xdg_runtime_dir: Option<OsString>,
    /// Effective user number.
    pub user_id: u32,
}

impl Surroundings {
    /// Those of this process.
    #[must_use]
    pub fn of_this_process() -> Self {
        Self {
            xdg_runtime_dir: std::env::var_os("XDG_RUNTIME_DIR").filter(|value| !value.is_empty()),
            user_id: user_id(),
        }
    }
}

/// Effective user number of this process, as the owner of its own entry in /proc.
fn user_id() -> u32 {
    fs::metadata("/proc/self").map_or(u32::MAX, |meta| meta.uid())
}

impl RuntimeDir {
    /// Where the folder would be: `$XDG_RUNTIME_DIR/plexum`, for root `/run/plexum`, else `/tmp/plexum-UID`.
    #[must_use]
    pub fn locate(from: &Surroundings) -> Self {
        let path = match (&from.xdg_runtime_dir, from.user_id) {
            (Some(folder), _) => Path::new(folder).join("plexum"),
            (None, 0) => PathBuf::from("/run/plexum"),
            (None, user) => PathBuf::from(format!("/tmp/plexum-{user}")),
        };
        Self { path }
    }

    /// A folder at `path`; for tests and for `plexum demo`.
    #[must_use]
    pub fn at(path: PathBuf) -> Self {
        Self { path }
    }

    /// The folder.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Makes the folder (0700) or checks that the one there is a folder of this user that nobody else can write to.
    ///
    /// # Errors
    /// `NotPermitted` when it belongs to somebody else, is a link, or is open to others: a socket in it could be
    /// swapped.
    pub fn ensure(&self, from: &Surroundings) -> Result<(), Problem> {
        let shown = self.path.display().to_string();
        let made = fs::DirBuilder::new().mode(0o700).create(&self.path);
        match made {
            Ok(()) => Ok(()),
            Err(error) if error.kind() == ErrorKind::AlreadyExists => self.check(from),
            Err(error) if error.kind() == ErrorKind::NotFound => Err(no_parent(&error, &shown)),
            Err(error) => Err(Problem::from_io(
                &error,
                "making the runtime folder",
                &shown,
            )),
        }
    }

    /// As `ensure`, and makes nothing: the folder is there and good, or could be made.
    ///
    /// # Errors
    /// As `ensure`.
    pub fn check(&self, from: &Surroundings) -> Result<(), Problem> {
        let shown = self.path.display().to_string();
        let parent = self.path.parent().unwrap_or(Path::new("/"));
        if !self.path.exists() {
            return match fs::metadata(parent) {
                Ok(_) => Ok(()),
                Err(error) if error.kind() == ErrorKind::NotFound => Err(no_parent(&error, &shown)),
                Err(error) => Err(Problem::from_io(
                    &error,
                    "making the runtime folder",
                    &shown,
                )),
            };
        }
        let meta = fs::symlink_metadata(&self.path)
            .map_err(|error| Problem::from_io(&error, "looking at the runtime folder", &shown))?;
        let Some(what) = mistrust(&meta, from.user_id) else {
            return Ok(());
        };
        Err(
            Problem::new(Code::NotPermitted, format!("runtime folder {shown} {what}"))
                .why("somebody else could swap a socket in it")
                .hint("remove it, or set XDG_RUNTIME_DIR to a folder of your own"),
        )
    }

    /// Path of a volume's file of one kind. Always at most `SOCKET_PATH_BYTES_MAX` bytes when the folder itself leaves
    /// room, and always in the folder: names come from disks that anybody may have written.
    #[must_use]
    pub fn file(&self, volume: &str, kind: Kind) -> PathBuf {
        let plain = self.path.join(format!("{volume}.{}", kind.extension()));
        let is_plain =
            !volume.starts_with('.') && !volume.contains(|c: char| c == '/' || c.is_control());
        if is_plain && plain.as_os_str().len() <= SOCKET_PATH_BYTES_MAX {
            return plain;
        }
        self.path
            .join(format!("{:016x}.{}", fnv64(volume), kind.extension()))
    }

    /// The control socket of the daemon, which no volume's name leads to.
    #[must_use]
    pub fn daemon_socket(&self) -> PathBuf {
        self.path.join("daemon.socket")
    }

    /// All control sockets in the folder, sorted by path; whether somebody listens is not known yet.
    #[must_use]
    pub fn control_sockets(&self) -> Vec<PathBuf> {
        let mut found: Vec<PathBuf> = fs::read_dir(&self.path)
            .into_iter()
            .flatten()
            .flatten()
            .map(|entry| entry.path())
            .filter(|path| path.extension().is_some_and(|ext| ext == "control"))
            .collect();
        found.sort();
        found
    }
}

/// Why a user's folder cannot be trusted, as the end of a sentence that begins with it: it is a link or a file,
/// somebody else's, or open to others. `meta` is that of the folder itself, not of what a link leads to.
pub(crate) fn mistrust(meta: &fs::Metadata, user_id: u32) -> Option<String> {
    if !meta.is_dir() {
        return Some("is not a folder".into());
    }
    if meta.uid() != user_id {
        let found = meta.uid();
        return Some(format!("belongs to user {found}, expected {user_id}"));
    }
    let mode = meta.permissions().mode() & 0o777;
    (mode & 0o022 != 0).then(|| format!("has mode {mode:03o}, others may write to it"))
}

fn no_parent(error: &std::io::Error, shown: &str) -> Problem {
    Problem::from_io(error, "making the runtime folder", shown)
        .hint("set XDG_RUNTIME_DIR to a folder that exists")
}

/// FNV-1a, 64 bits: names are few and chosen by the user, so a short hash without a dependency is enough.
pub(crate) fn fnv64(text: &str) -> u64 {
    text.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}

/// What is at the path of a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SocketPath {
    /// Nothing.
    Free,
    /// A socket on which nobody listens any more.
    Stale,
}

/// Whether the path of a socket is free to bind, or could be made free. Changes nothing.
///
/// # Errors
/// `SocketInUse` when a server answers there, `Usage` when the path is too long or is something else than a socket.
pub fn check_socket_path(path: &Path) -> Result<SocketPath, Problem> {
    use std::os::unix::fs::FileTypeExt;
    let shown = path.display().to_string();
    if path.as_os_str().len() > SOCKET_PATH_BYTES_MAX {
        return Err(Problem::new(
            Code::Usage,
            format!(
                "socket path {shown} has {} bytes, the system takes {SOCKET_PATH_BYTES_MAX}",
                path.as_os_str().len()
            ),
        )
        .hint("choose a shorter one with --socket PATH"));
    }
    let meta = match fs::symlink_metadata(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(SocketPath::Free),
        Err(error) => return Err(Problem::from_io(&error, "looking at socket", &shown)),
        Ok(meta) => meta,
    };
    if !meta.file_type().is_socket() {
        return Err(
            Problem::new(Code::Usage, format!("{shown} exists and is not a socket"))
                .why("it is not replaced, because it may be somebody's data")
                .hint("choose another path with --socket PATH"),
        );
    }
    match UnixStream::connect(path) {
        Ok(stream) if has_ended(&stream) => Ok(SocketPath::Stale),
        Ok(_) => Err(Problem::new(
            Code::SocketInUse,
            format!("socket {shown} is in use by a running server"),
        )
        .hint("to see what runs:   plexum status")),
        Err(error) if error.kind() == ErrorKind::ConnectionRefused => Ok(SocketPath::Stale),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(SocketPath::Free),
        Err(error) => Err(Problem::from_io(&error, "trying socket", &shown)),
    }
}

/// Makes the path of a socket free to bind: a stale file is removed.
///
/// # Errors
/// As `check_socket_path`.
pub fn free_socket_path(path: &Path) -> Result<(), Problem> {
    if check_socket_path(path)? == SocketPath::Free {
        return Ok(());
    }
    let shown = path.display().to_string();
    fs::remove_file(path).map_err(|error| Problem::from_io(&error, "removing stale socket", &shown))
}

/// Whether the process that listens is no more. The kernel keeps the listening socket of a killed process alive until
/// it has wound up its ring, for tens of milliseconds, and connections to it succeed.
#[must_use]
pub fn has_ended(stream: &UnixStream) -> bool {
    // Without /proc, or for a process that we cannot see, it is taken for alive.
    let Ok(peer) = Peer::of(stream) else {
        return false;
    };
    if peer.pid == 0 || !Path::new("/proc/self").exists() {
        return false;
    }
    match fs::read_to_string(format!("/proc/{}/stat", peer.pid)) {
        // The state follows the name, which may have any characters: Z is ended and not yet waited for.
        Ok(text) => text
            .rsplit_once(") ")
            .is_some_and(|(_, rest)| rest.starts_with(['Z', 'X'])),
        Err(error) => error.kind() == ErrorKind::NotFound,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixListener;

    fn scratch(name: &str) -> PathBuf {
        let path = std::env::temp_dir().join(format!("plexum-rt-{}-{name}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        fs::create_dir_all(&path).unwrap();
        path
    }

    #[test]
    fn the_folder_follows_the_environment_then_root_then_the_user() {
        let at = |xdg: Option<&str>, user_id| {
            RuntimeDir::locate(&Surroundings {
                xdg_runtime_dir: xdg.map(OsString::from),
                user_id,
            })
            .path
        };
        assert_eq!(at(Some("/x"), 0), Path::new("/x/plexum"));
        assert_eq!(at(None, 0), Path::new("/run/plexum"));
        assert_eq!(at(None, 1000), Path::new("/tmp/plexum-1000"));
    }

    #[test]
    fn a_name_on_a_disk_never_leads_out_of_the_folder() {
        let dir = RuntimeDir::at(PathBuf::from("/x/plexum"));
        for name in [
            "../../etc/cron.d/x",
            "/etc/x",
            "a/b",
            "..",
            ".",
            "a\nb",
            "a\0",
        ] {
            let path = dir.file(name, Kind::Control);
            assert_eq!(path.parent(), Some(dir.path()), "{name:?}");
            let last = path.file_name().unwrap().to_str().unwrap();
            assert!(
                last.ends_with(".control") && !last.starts_with('.'),
                "{last}"
            );
            assert!(!last.contains(char::is_control), "{name:?}");
        }
        assert_ne!(dir.file("a/b", Kind::Nbd), dir.file("a/c", Kind::Nbd));
        assert_eq!(dir.file("gm0", Kind::Nbd), Path::new("/x/plexum/gm0.nbd"));
    }

    #[test]
    fn a_folder_open_to_others_or_of_another_user_is_refused() {
        let base = scratch("mode");
        let from = Surroundings::of_this_process();
        let dir = RuntimeDir::at(base.join("plexum"));
        dir.ensure(&from).unwrap();
        let mode = fs::metadata(dir.path()).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o700);
        dir.ensure(&from).unwrap();
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o777)).unwrap();
        assert_eq!(dir.ensure(&from).unwrap_err().code, Code::NotPermitted);
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o700)).unwrap();
        let stranger = Surroundings {
            user_id: from.user_id.wrapping_add(1),
            ..from
        };
        assert_eq!(dir.ensure(&stranger).unwrap_err().code, Code::NotPermitted);
        fs::remove_dir_all(base).unwrap();
    }

    #[test]
    fn a_link_in_place_of_the_folder_is_refused() {
        let base = scratch("link");
        fs::create_dir(base.join("real")).unwrap();
        std::os::unix::fs::symlink(base.join("real"), base.join("plexum")).unwrap();
        let dir = RuntimeDir::at(base.join("plexum"));
        let problem = dir.ensure(&Surroundings::of_this_process()).unwrap_err();
        assert_eq!(problem.code, Code::NotPermitted);
        fs::remove_dir_all(base).unwrap();
    }

    #[test]
    fn a_long_volume_name_gets_a_hashed_socket_that_fits() {
        let dir = RuntimeDir::at(PathBuf::from("/run/plexum"));
        assert_eq!(
            dir.file("home", Kind::Nbd),
            Path::new("/run/plexum/home.nbd")
        );
        let long = "x".repeat(200);
        let path = dir.file(&long, Kind::Control);
        assert!(path.as_os_str().len() <= SOCKET_PATH_BYTES_MAX);
        assert_ne!(path, dir.file(&"y".repeat(200), Kind::Control));
    }

    #[test]
    fn a_stale_socket_is_removed_and_a_live_one_is_busy() {
        let base = scratch("sock");
        let path = base.join("v.nbd");
        let listener = UnixListener::bind(&path).unwrap();
        let problem = free_socket_path(&path).unwrap_err();
        assert_eq!((problem.code, problem.code.exit()), (Code::SocketInUse, 6));
        drop(listener);
        free_socket_path(&path).unwrap();
        assert!(!path.exists());
        fs::write(&path, "data").unwrap();
        assert_eq!(free_socket_path(&path).unwrap_err().code, Code::Usage);
        assert!(path.exists());
        fs::remove_dir_all(base).unwrap();
    }
}
