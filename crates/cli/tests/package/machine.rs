//! A machine with the package on it: a container that boots systemd over a copy-on-write view of this system, so that
//! nothing has to be fetched and nothing here changes.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{OnceLock, mpsc};
use std::time::Duration;

/// Looks before a test gives up; each starts a program, so that they take minutes.
const POLLS_MAX: usize = 6_000;

/// What boots that would not in an empty system: units and scripts that whoever keeps this one has enabled.
const FOREIGN: [&str; 3] = ["etc/systemd/system", "etc/init.d", "etc/rc2.d"];

/// A container has no devices but those that are made there: FUSE and loop devices, before anybody looks for them.
const DEVICES: &str = "\
[Unit]
DefaultDependencies=no
Before=plexum.service
[Service]
Type=oneshot
ExecStart=/bin/sh -c 'mknod /dev/fuse c 10 229; mknod /dev/loop-control c 10 237; \
    for number in $(seq 0 99); do mknod /dev/loop$number b 7 $number; done'
";

/// On its console when it is up.
const IS_UP: &str = "multi-user.target";

/// A boot takes three seconds on a machine that has nothing else to do.
const BOOT_MAX: Duration = Duration::from_secs(180);

/// The machine; its files are gone at the end.
pub struct Machine {
    /// Others run at the same time.
    name: String,
    folder: PathBuf,
    running: Option<Running>,
}

/// A machine that is switched on.
struct Running {
    container: Child,
    /// Its first process, as it is numbered here.
    leader: u32,
}

/// The package of the program that cargo has built, made once.
pub fn package() -> &'static Path {
    static PACKAGE: OnceLock<PathBuf> = OnceLock::new();
    PACKAGE.get_or_init(|| {
        let out = Path::new(env!("CARGO_TARGET_TMPDIR")).join("plexum.deb");
        make_package(&out);
        out
    })
}

/// Makes the package.
pub fn make_package(out: &Path) {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging/deb.sh");
    let mut command = Command::new("sh");
    command
        .arg(script)
        .arg(env!("CARGO_BIN_EXE_plexum"))
        .arg(out)
        .env("PLEXUM_DEB_COMPRESSION", "-Zgzip -z1");
    done(&mut command);
}

/// Runs a program, which must succeed; its output, without blanks at the ends.
pub fn done(command: &mut Command) -> String {
    let (is_ok, words) = tried(command);
    assert!(is_ok, "{command:?}\n{words}");
    words
}

/// Runs a program: whether it succeeded, and what it said.
pub fn tried(command: &mut Command) -> (bool, String) {
    let Output {
        status,
        stdout,
        stderr,
    } = command
        .stdin(Stdio::null())
        .output()
        .unwrap_or_else(|error| panic!("{command:?} must be installed: {error}"));
    let words = [stdout, stderr].concat();
    let words = String::from_utf8_lossy(&words).trim().to_owned();
    (status.success(), words)
}

impl Machine {
    /// A machine without the package, switched off.
    pub fn new(name: &str) -> Self {
        static MADE: AtomicUsize = AtomicUsize::new(0);
        let number = MADE.fetch_add(1, Ordering::Relaxed);
        let name = format!("plexum-{name}-{}-{number}", std::process::id());
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(&name);
        fs::create_dir_all(&folder).unwrap();
        let machine = Self {
            name,
            folder,
            running: None,
        };
        // In memory: flushes cost nothing, and a layer over the root must lie elsewhere.
        let memory = ["-t", "tmpfs", "-o", "size=2g,mode=755", "plexum-test"];
        done(Command::new("mount").args(memory).arg(&machine.folder));
        for part in ["upper", "work", "root", "disks"] {
            fs::create_dir(machine.folder.join(part)).unwrap();
        }
        let at = machine.folder.display();
        let layers = format!("lowerdir=/,upperdir={at}/upper,workdir={at}/work");
        let overlay = ["-t", "overlay", "-o", &layers, "plexum-test"];
        done(Command::new("mount").args(overlay).arg(machine.root()));
        for foreign in FOREIGN {
            let _ = fs::remove_dir_all(machine.file(foreign));
            fs::create_dir(machine.file(foreign)).unwrap();
        }
        for state in ["var/lib/plexum", "etc/plexum"] {
            let _ = fs::remove_dir_all(machine.file(state));
        }
        // Images that machines are made of forbid packages to start and stop anything.
        let _ = fs::remove_file(machine.file("usr/sbin/policy-rc.d"));
        machine.write("etc/fstab", "");
        machine.write("etc/machine-id", "");
        fs::create_dir_all(machine.file("var/log/journal")).unwrap();
        machine.write("etc/systemd/system/devices.service", DEVICES);
        let wanted = machine.file("etc/systemd/system/sysinit.target.wants");
        fs::create_dir(&wanted).unwrap();
        std::os::unix::fs::symlink("../devices.service", wanted.join("devices.service")).unwrap();
        machine
    }

    fn root(&self) -> PathBuf {
        self.folder.join("root")
    }

    /// A file of the machine, seen from here.
    pub fn file(&self, path: &str) -> PathBuf {
        self.root().join(path)
    }

    /// One of its disks, which are in `/disks` there.
    pub fn disk(&self, name: &str) -> PathBuf {
        self.folder.join("disks").join(name)
    }

    /// Where a disk is put that is to be away: nobody looks for it there.
    pub fn away(&self, name: &str) -> PathBuf {
        self.folder.join(format!("away-{name}"))
    }

    /// Writes a file; its folders are made.
    pub fn write(&self, path: &str, text: &str) {
        let path = self.file(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    fn container(&self) -> Command {
        let mut command = Command::new("systemd-nspawn");
        command.args(["--quiet", "--register=no", "--keep-unit"]);
        // Memory may be locked there, as on a machine.
        command.arg("--capability=CAP_IPC_LOCK");
        // It finds fault with a /run that is no file system of its own.
        command.env("SYSTEMD_LOG_LEVEL", "crit");
        command.arg(format!("--machine={}", self.name));
        command.arg("--directory").arg(self.root());
        command.arg(format!("--bind={}/disks:/disks", self.folder.display()));
        command
    }

    /// Runs a program on the machine that is switched off: whether it succeeded, and what it said.
    pub fn off(&self, words: &str) -> (bool, String) {
        assert!(self.running.is_none());
        tried(self.container().args(words.split_whitespace()))
    }

    /// Installs the package while the machine is off.
    pub fn install(&self) {
        let deb = self.file("plexum.deb");
        fs::copy(package(), &deb).unwrap();
        let (is_ok, words) = self.off("dpkg --no-triggers -i /plexum.deb");
        assert!(is_ok, "{words}");
        fs::remove_file(deb).unwrap();
    }

    /// What a volume holds while the machine is off, as a file.
    pub fn image(&self, volume: &str, disks: &[&str]) -> PathBuf {
        assert!(self.running.is_none());
        let plexum = |words: &[&str]| {
            let mut command = Command::new(env!("CARGO_BIN_EXE_plexum"));
            command.env("XDG_RUNTIME_DIR", &self.folder);
            command.env("XDG_STATE_HOME", self.folder.join("state"));
            command.args(words);
            command
        };
        let disks = disks.iter().map(|name| self.disk(name));
        let mut serve = plexum(&["serve", "--read-only", "--background"]);
        done(serve.args(disks));
        let socket = self.folder.join(format!("plexum/{volume}.nbd"));
        let uri = format!("nbd+unix:///{volume}?socket={}", socket.display());
        let image = self.folder.join("image");
        done(Command::new("nbdcopy").arg(uri).arg(&image));
        done(&mut plexum(&["stop", volume]));
        image
    }

    /// Switches it on, and waits until everything is started that is to be.
    pub fn boot(&mut self) {
        assert!(self.running.is_none());
        let mut command = self.container();
        command.args(["--boot", "systemd.log_level=info"]);
        command.stdin(Stdio::null()).stderr(Stdio::null());
        let mut container = command.stdout(Stdio::piped()).spawn().unwrap();
        let console = BufReader::new(container.stdout.take().unwrap());
        let (sender, lines) = mpsc::channel();
        // Read to its end: a console that nobody reads stops what writes to it.
        std::thread::spawn(move || {
            for line in console.split(b'\n').map_while(Result::ok) {
                let _ = sender.send(String::from_utf8_lossy(&line).into_owned());
            }
        });
        let mut shown = String::new();
        while !shown.contains(IS_UP) {
            match lines.recv_timeout(BOOT_MAX) {
                Ok(line) => shown = shown + &line + "\n",
                Err(error) => {
                    let _ = container.kill();
                    panic!("it does not boot, {error}:\n{shown}");
                }
            }
        }
        let leader = first_process(container.id());
        self.running = Some(Running { container, leader });
        let (_, state) = self.tried("systemctl is-system-running --wait");
        assert_eq!(state, "running", "{}", self.tried("systemctl --failed").1);
    }

    /// Switches it off as its button does.
    pub fn power_off(&mut self) {
        self.done("systemctl poweroff");
        let mut running = self.running.take().unwrap();
        let status = running.container.wait().unwrap();
        assert!(status.success(), "{status}");
    }

    fn command(&self) -> Command {
        let leader = self.running.as_ref().unwrap().leader.to_string();
        let mut command = Command::new("nsenter");
        command.args(["--target", &leader, "--mount", "--uts", "--ipc", "--pid"]);
        command.args(["--root", "--wd=/", "env", "-i", "LC_ALL=C.UTF-8"]);
        command.arg("PATH=/usr/sbin:/usr/bin:/sbin:/bin");
        command
    }

    /// Runs a program on the machine that is switched on: whether it succeeded, and what it said.
    pub fn tried(&self, words: &str) -> (bool, String) {
        tried(self.command().args(words.split_whitespace()))
    }

    /// Runs a program there, which must succeed; what it said.
    pub fn done(&self, words: &str) -> String {
        done(self.command().args(words.split_whitespace()))
    }

    /// Runs a script there, which must succeed; what it said.
    pub fn shell(&self, script: &str) -> String {
        done(self.command().args(["sh", "-euc", script]))
    }

    /// Waits until it is so.
    pub fn wait(&self, what: &str, mut is_so: impl FnMut(&Self) -> bool) {
        for _ in 0..POLLS_MAX {
            if is_so(self) {
                return;
            }
        }
        panic!("it never came: {what}\n{}", self.journal());
    }

    /// What it has logged since it was switched on last.
    pub fn journal(&self) -> String {
        let folder = self.file("var/log/journal");
        let words = ["--no-pager", "--boot", "--output=cat", "--directory"];
        done(Command::new("journalctl").args(words).arg(folder))
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        if self.running.is_some() {
            // Loop devices are everybody's: they are given back as at any other shutdown.
            let _ = self.tried("systemctl poweroff");
        }
        if let Some(mut running) = self.running.take() {
            let _ = running.container.wait();
        }
        for mounted in [self.root(), self.folder.clone()] {
            let _ = tried(Command::new("umount").arg(mounted));
        }
        let _ = fs::remove_dir(&self.folder);
        let _ = fs::remove_dir(Path::new("/run/systemd/nspawn/propagate").join(&self.name));
    }
}

/// The process that is the first one in its own space of numbers, among the children of `parent`.
fn first_process(parent: u32) -> u32 {
    let children = fs::read_to_string(format!("/proc/{parent}/task/{parent}/children")).unwrap();
    let is_first = |child: &u32| {
        let status = fs::read_to_string(format!("/proc/{child}/status")).unwrap_or_default();
        let numbers = status.lines().find(|line| line.starts_with("NSpid:"));
        numbers.is_some_and(|line| line.ends_with("\t1"))
    };
    let mut children = children
        .split_whitespace()
        .filter_map(|one| one.parse().ok());
    children
        .find(is_first)
        .expect("a container has a first process")
}
