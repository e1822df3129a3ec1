//! A whole Debian with the package on it (`oracle/vm-oracle system`): installed, upgraded under load, cut off from its
//! power, unplugged, booted again. Minutes for each, so that `cargo xtask nightly` runs them and nobody else.
#![allow(clippy::unwrap_used)] // a failed unwrap fails the test

use std::path::{Path, PathBuf};
use std::process::Command;

/// Most that one boot may take, in seconds: twice what it takes on a busy machine.
const BOOT_S: &str = "1800";

/// What every boot finds: how it fails, and what it waits for.
const FUNCTIONS: &str = include_str!("functions.sh");

/// Made, mounted by a line of /etc/fstab, written to; upgraded meanwhile; the power goes.
const FIRST: &str = include_str!("first.sh");
/// What was told to be durable is there; a disk is pulled and comes back, under load; md's hook and Plexum's are in one
/// initramfs.
const AFTER_THE_CUT: &str = include_str!("after_the_cut.sh");
/// One disk is missing, and comes late; one says of itself that it fails; then the package goes.
const WITHOUT_A_DISK: &str = include_str!("without_a_disk.sh");

/// A machine, between its boots.
struct Machine {
    release: &'static str,
    folder: PathBuf,
}

impl Machine {
    fn new(release: &'static str) -> Self {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("system-{release}"));
        let _ = std::fs::remove_dir_all(&folder);
        std::fs::create_dir_all(&folder).unwrap();
        let machine = Self { release, folder };
        machine.make_package("plexum.deb", "0.1.0");
        machine.make_package("newer.deb", "0.1.0+newer");
        machine
    }

    fn make_package(&self, name: &str, version: &str) {
        let packaging = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging");
        let made = Command::new("sh")
            .arg(packaging.join("deb.sh"))
            .arg(env!("CARGO_BIN_EXE_plexum"))
            .args([self.folder.join(name).as_os_str(), version.as_ref()])
            .env("PLEXUM_DEB_COMPRESSION", "-Zzstd -z1")
            .status()
            .unwrap();
        assert!(made.success(), "the package is not made");
    }

    /// One boot: its script comes to its last line, and says so. `third` is how the third disk is there.
    fn boot(&self, name: &str, script: &str, third: &str, options: &[&str]) {
        let oracle = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../oracle/vm-oracle");
        let at = |name: &str| self.folder.join(name).display().to_string();
        let script = format!(
            "{FUNCTIONS}\n{script}\necho \"{name} is done\"; {}",
            match name {
                "first" => "vm_powercut",
                _ => "exit 0",
            }
        );
        let text = self.folder.join(name);
        std::fs::write(&text, script).unwrap();
        let mut command = Command::new(oracle);
        command.args(["system", "--kernel", self.release, "--timeout", BOOT_S]);
        command.args(["--state", &at("root.qcow2"), "--share", &at("")]);
        command.args(["--journal", &at(&format!("{name}.journal"))]);
        command.args(["--packages", "smartmontools,initramfs-tools"]);
        for (disk, how) in [
            ("STAYS", "bus=scsi"),
            ("PULLED", "bus=nvme"),
            ("LATE", third),
        ] {
            command.arg("--disk");
            command.arg(format!("{}:size=96M,name={disk},{how}", at(disk)));
        }
        let output = command.args(options).arg(text).output().unwrap();
        let said = String::from_utf8_lossy(&output.stdout);
        let errors = String::from_utf8_lossy(&output.stderr);
        let is_done = said.contains(&format!("{name} is done"));
        assert!(
            output.status.success() && is_done,
            "Debian {}, {name}: {}\n{said}\n{errors}",
            self.release,
            output.status
        );
    }
}

fn lives_with_plexum(release: &'static str) {
    let machine = Machine::new(release);
    let package = machine.folder.join("plexum.deb").display().to_string();
    machine.boot("first", FIRST, "bus=virtio", &["--deb", &package]);
    machine.boot("after_the_cut", AFTER_THE_CUT, "bus=virtio", &[]);
    machine.boot(
        "without_a_disk",
        WITHOUT_A_DISK,
        "bus=virtio,unplugged",
        &[],
    );
    let _ = std::fs::remove_dir_all(&machine.folder);
}

#[test]
#[ignore = "three boots of a whole Debian: cargo xtask nightly"]
fn debian_12_is_upgraded_under_load_loses_its_power_and_a_disk_and_keeps_what_was_durable() {
    lives_with_plexum("12");
}

#[test]
#[ignore = "three boots of a whole Debian: cargo xtask nightly"]
fn debian_13_is_upgraded_under_load_loses_its_power_and_a_disk_and_keeps_what_was_durable() {
    lives_with_plexum("13");
}
