//! Files that somebody else uses: a loop device on them, swap, a program that writes to them. They are never
//! overwritten, `--force` or not, and the refusal says how that use is ended.

use std::process::{Child, Stdio};

use super::common::Place;
use super::common::served::done;
use super::serving::Server;

/// A file under a loop device with a mounted file system, and one under swap.
struct Held {
    place: Place,
    device: String,
}

impl Held {
    fn new() -> Self {
        let place = Place::new("held-files");
        for name in ["looped", "free", "new"] {
            place.sparse(name, 24 << 20);
        }
        let tool = |program: &str, words: &str| {
            let run = place.tool(program, words);
            assert_eq!(run.exit, 0, "{program} {words}: {}", run.err);
            run.out.trim().to_owned()
        };
        // Nothing that the kernel would write later.
        let lazy = "lazy_itable_init=0,lazy_journal_init=0";
        tool("mkfs.ext4", &format!("-q -E {lazy} looped"));
        let device = tool("losetup", "--find --show looped");
        std::fs::create_dir(place.file("mnt")).unwrap();
        tool("mount", &format!("-o noatime {device} mnt"));
        std::fs::write(place.file("mnt/kept"), "kept").unwrap();
        tool("sync", "-f mnt");
        done(&place, "create nas --level 1 --member-size 24M a b");
        done(
            &place,
            "create gm0 --level 1 --format gmirror --member-size 24M gma gmb",
        );
        Self { place, device }
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        let _ = self.place.tool("umount", "mnt");
        let _ = self.place.tool("losetup", &format!("-d {}", self.device));
    }
}

/// A program that has a file open for writing, as a virtual machine has its disk.
fn writer(place: &Place, name: &str) -> Child {
    let mut child = place
        .command("sh")
        .args(["-c", "exec 3<>\"$1\"; echo open; read end", "sh", name])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    let out = child.stdout.as_mut().unwrap();
    std::io::BufRead::read_line(&mut std::io::BufReader::new(out), &mut line).unwrap();
    child
}

/// Every command that overwrites a member, with `FILE` as that.
const COMMANDS: [&str; 10] = [
    "create x --level 1 --force -y FILE new",
    "create x --level 1 --force -y --format gmirror FILE new",
    "add nas FILE --force -y",
    "replace nas a FILE --force -y",
    "convert gma gmb --to md-1.2 --onto FILE new --force -y",
    "gmirror label gm1 FILE --yes",
    "gmirror insert gm0 FILE --in gms",
    "gvinum concat FILE --in gv",
    "lab work random-write --on FILE --destroy FILE --requests 2",
    "lab work random-write --on FILE --destroy FILE --requests 2 --sync",
];

#[test]
fn a_file_that_others_use_is_overwritten_by_no_command_and_the_way_to_free_it_is_told() {
    let held = Held::new();
    let place = &held.place;
    let _server = Server::start(place, "a b");
    std::fs::create_dir(place.file("gms")).unwrap();
    std::fs::create_dir(place.file("gv")).unwrap();
    done(
        place,
        "create gm0 --level 1 --format gmirror --member-size 24M gms/c gms/d",
    );
    let text = "drive d0 device gv/d0\nvolume v\n  plex org concat\n    sd length 1m drive d0\n";
    std::fs::write(place.file("vinum.conf"), text).unwrap();
    done(place, "create -f vinum.conf --member-size 4M");
    let mut child = writer(place, "free");
    let by_program = format!("process {}", child.id());
    for (file, who) in [
        ("looped", held.device.as_str()),
        ("free", by_program.as_str()),
    ] {
        let before = std::fs::read(place.file(file)).unwrap();
        for command in COMMANDS {
            let words = command.replace("FILE", file);
            let run = place.plexum(&words);
            let is_lab = command.starts_with("lab");
            assert_eq!(
                run.exit,
                if is_lab { 2 } else { 6 },
                "{words}: {}{}",
                run.out,
                run.err
            );
            assert!(run.err.contains(who), "{words}: {}", run.err);
            assert!(run.err.contains("in use"), "{words}: {}", run.err);
        }
        assert!(
            std::fs::read(place.file(file)).unwrap() == before,
            "{file} was written to"
        );
    }
    let run = place.plexum("add nas looped --force -y");
    let advice = format!(
        "umount {} && losetup -d {}",
        place.file("mnt").display(),
        held.device
    );
    assert!(run.err.contains(&advice), "{}", run.err);
    assert_eq!(
        std::fs::read_to_string(place.file("mnt/kept")).unwrap(),
        "kept"
    );
    drop(child.stdin.take());
    child.wait().unwrap();
    done(place, "add nas free");
}

#[test]
fn a_members_file_is_in_use_through_a_loop_device_as_well_and_swap_is_named() {
    let place = Place::new("held-twice");
    done(&place, "create nas --level 1 --member-size 24M a b");
    let looped = place.tool("losetup", "--find --show a");
    let device = looped.out.trim();
    let server = Server::start(&place, "--read-only a b");
    let run = place.plexum(&format!("create x --level 1 --force -y {device} b"));
    assert_eq!(run.exit, 6, "{}", run.err);
    drop(server);
    // Served for writing, the file would change under the loop device.
    let run = place.plexum("serve a b");
    assert_eq!(run.exit, 6, "{}", run.err);
    assert!(
        run.err.contains(&format!("losetup -d {device}")),
        "{}",
        run.err
    );
    assert_eq!(place.tool("losetup", &format!("-d {device}")).exit, 0);
    let swap = place.file("swap");
    std::fs::write(&swap, vec![0; 24 << 20]).unwrap();
    assert_eq!(place.tool("chmod", "600 swap").exit, 0);
    assert_eq!(place.tool("mkswap", "swap").exit, 0);
    assert_eq!(place.tool("swapon", "swap").exit, 0);
    let run = place.plexum("create x --level 1 --force -y swap b");
    let off = place.tool("swapoff", "swap");
    assert_eq!(off.exit, 0, "{}", off.err);
    assert_eq!(run.exit, 6, "{}", run.err);
    let advice = format!("swapoff {}", swap.display());
    assert!(run.err.contains(&advice), "{}", run.err);
}
