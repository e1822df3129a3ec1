//! `plexum pool create`, `create-volume`, `check` and `serve --write --dataset`, with OpenZFS as the judge.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};

use crate::common::Place;

/// What zdb of OpenZFS says of the pool `tank` in a folder.
#[track_caller]
pub(super) fn assert_sound(place: &Place) {
    assert_complete(place, &["--complete"]);
}

#[track_caller]
fn assert_complete(place: &Place, more: &[&str]) {
    let oracle = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../oracle/zfs-oracle");
    let folder = place.file("d").display().to_string();
    let words = ["check", &folder, "tank", "--version", "21"];
    let run = Command::new("python3")
        .arg(oracle)
        .args(words)
        .args(more)
        .output()
        .unwrap();
    let text =
        String::from_utf8_lossy(&run.stdout).into_owned() + &String::from_utf8_lossy(&run.stderr);
    assert!(run.status.success(), "{text}");
}

/// A server of `tank/vol`, and its address.
fn serve(place: &Place, words: &str) -> (std::process::Child, String) {
    let mut server = place
        .command(env!("CARGO_BIN_EXE_plexum"))
        .args(format!("serve {words}").split_whitespace())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(server.stdout.as_mut().unwrap())
        .read_line(&mut line)
        .unwrap();
    let uri = line
        .split_whitespace()
        .last()
        .unwrap_or_default()
        .to_owned();
    (server, uri)
}

/// The volume through NBD holds this.
#[track_caller]
fn assert_served(place: &Place, words: &str, data: &[u8]) {
    let (mut server, uri) = serve(place, words);
    let back = place.tool("nbdcopy", &format!("{uri} back"));
    assert_eq!(back.exit, 0, "{}", back.err);
    assert_eq!(place.plexum("stop vol").exit, 0);
    assert_eq!(server.wait().unwrap().code(), Some(0));
    let back = std::fs::read(place.file("back")).unwrap();
    assert!(back == data, "{words}: other bytes came back");
}

#[test]
fn a_pool_lives_through_snapshots_a_lost_member_and_a_new_one() {
    let place = Place::new("zfs-life");
    std::fs::create_dir(place.file("d")).unwrap();
    let done = |words: &str| {
        let run = place.plexum(words);
        assert_eq!(run.exit, 0, "{words}: {}{}", run.out, run.err);
        run.out
    };
    done("pool create tank raidz1 --member-size 96M d/a d/b d/c");
    done("pool create-volume tank/vol 8M d/a d/b d/c");
    let write = |words: &str, value: u8| {
        let data = vec![value; 8 << 20];
        std::fs::write(place.file("data"), &data).unwrap();
        let (mut server, uri) = serve(&place, &format!("--write --dataset tank/vol {words}"));
        let copy = place.tool("nbdcopy", &format!("--flush data {uri}"));
        assert_eq!(copy.exit, 0, "{}", copy.err);
        assert_eq!(place.plexum("stop vol").exit, 0);
        assert_eq!(server.wait().unwrap().code(), Some(0));
        data
    };
    let first = write("d/a d/b d/c", 1);
    done("pool snapshot tank/vol@first d/a d/b d/c");
    // A member is away.
    std::fs::rename(place.file("d/b"), place.file("away")).unwrap();
    let refused = place.plexum("serve --write --dataset tank/vol d/a d/c");
    assert!(refused.err.contains("`missing`"), "{}", refused.err);
    let second = write("d/a d/c missing", 2);
    assert_served(&place, "--dataset tank/vol d/a d/c", &second);
    assert_served(
        &place,
        "--name vol --dataset tank/vol@first d/a d/c",
        &first,
    );
    assert_complete(&place, &[]);
    let status = place.plexum("pool status d/a d/c missing");
    assert!(
        status.exit == 1 && status.out.contains("is missing"),
        "{}",
        status.out
    );
    // It comes back, is given what it missed while the volume is served, and another one goes.
    std::fs::rename(place.file("away"), place.file("d/b")).unwrap();
    let status = place.plexum("pool status d/a d/b d/c");
    assert!(status.out.contains("missed"), "{}", status.out);
    let (mut server, _) = serve(&place, "--write --dataset tank/vol d/a d/b d/c");
    while place.plexum("status vol").out.contains("rebuilding") {
        std::thread::yield_now();
    }
    assert_eq!(place.plexum("stop vol").exit, 0);
    assert_eq!(server.wait().unwrap().code(), Some(0));
    done("pool status d/a d/b d/c");
    assert_sound(&place);
    done("pool replace d/a d/new d/a d/b d/c --member-size 96M");
    std::fs::remove_file(place.file("d/a")).unwrap();
    assert_sound(&place);
    let members = "d/new d/b d/c";
    assert!(done(&format!("pool scrub --repair {members}")).contains("lost 0 blocks"));
    done(&format!("pool offline d/c {members}"));
    let third = write(members, 3);
    done(&format!("pool online d/c {members}"));
    assert_sound(&place);
    assert_served(&place, &format!("--dataset tank/vol {members}"), &third);
    // Snapshots.
    done(&format!("pool clone tank/vol@first tank/twin {members}"));
    assert_served(
        &place,
        &format!("--name vol --dataset tank/twin {members}"),
        &first,
    );
    // Two volumes of the pool in one server.
    let both = format!("--write --dataset tank/vol --dataset tank/twin {members}");
    let (mut server, uri) = serve(&place, &both);
    let copy = place.tool(
        "nbdcopy",
        &format!("--flush data {}", uri.replace("vol", "twin")),
    );
    assert_eq!(copy.exit, 0, "{}", copy.err);
    let shown = done("status twin");
    assert!(shown.contains("raidz1"), "{shown}");
    assert_eq!(place.plexum("stop twin").exit, 0);
    assert_eq!(server.wait().unwrap().code(), Some(0));
    for name in ["vol", "twin"] {
        assert_served(
            &place,
            &format!("--name vol --dataset tank/{name} {members}"),
            &third,
        );
    }
    let kept = place.plexum(&format!("pool destroy-volume tank/twin {members}"));
    assert!(
        kept.exit == 3 && kept.err.contains("--force"),
        "{} {}",
        kept.exit,
        kept.err
    );
    done(&format!(
        "pool destroy-volume --force -y tank/twin {members}"
    ));
    done(&format!(
        "pool rollback --force -y tank/vol@first {members}"
    ));
    done(&format!(
        "pool destroy-snapshot --force -y tank/vol@first {members}"
    ));
    done(&format!("pool rename tank/vol tank/old {members}"));
    done(&format!("pool resize tank/old 12M {members}"));
    let mut longer = first.clone();
    longer.resize(12 << 20, 0);
    assert_served(
        &place,
        &format!("--name vol --dataset tank/old {members}"),
        &longer,
    );
    assert_sound(&place);
    done(&format!("pool check {members}"));
    let history = done("history");
    assert!(
        history.contains("pool create tank") && history.contains("pool replace"),
        "{history}"
    );
}

#[test]
fn a_pool_gets_a_side_and_a_group_and_loses_a_side() {
    let place = Place::new("zfs-sides");
    std::fs::create_dir(place.file("d")).unwrap();
    let done = |words: &str| {
        let run = place.plexum(words);
        assert_eq!(run.exit, 0, "{words}: {}{}", run.out, run.err);
        run.out
    };
    done("pool create tank --member-size 96M d/a");
    done("pool create-volume tank/vol 8M d/a");
    let data = vec![7; 8 << 20];
    std::fs::write(place.file("data"), &data).unwrap();
    let (mut server, uri) = serve(&place, "--write --dataset tank/vol d/a");
    assert_eq!(
        place.tool("nbdcopy", &format!("--flush data {uri}")).exit,
        0
    );
    done("stop vol");
    assert_eq!(server.wait().unwrap().code(), Some(0));
    let refused = place.plexum("pool detach d/a d/a");
    assert!(refused.err.contains("the only one"), "{}", refused.err);
    done("pool attach d/a d/b d/a --member-size 96M");
    assert_sound(&place);
    let status = done("pool status d/a d/b");
    assert!(
        status.contains("mirror") || status.contains("d/b"),
        "{status}"
    );
    done("pool detach d/a d/a d/b");
    // The one that is left holds everything; the other one is no member of anything.
    std::fs::remove_file(place.file("d/a")).unwrap();
    assert_served(&place, "--dataset tank/vol d/b", &data);
    assert_sound(&place);
    let refused = place.plexum("pool add mirror d/c d/e --to d/b --member-size 96M");
    assert!(refused.err.contains("--mixed"), "{}", refused.err);
    assert!(!place.file("d/c").exists(), "a refusal leaves no file");
    done("pool add d/c --to d/b --member-size 96M");
    assert_sound(&place);
    assert_served(&place, "--dataset tank/vol d/b d/c", &data);
    done("pool check d/b d/c");
    let history = done("history");
    for word in ["pool attach", "pool detach", "pool add"] {
        assert!(history.contains(word), "{history}");
    }
}

#[test]
fn a_pool_is_made_served_written_checked_and_taken_up_again() {
    let place = Place::new("zfs-make");
    std::fs::create_dir(place.file("d")).unwrap();
    let members = "d/a d/b d/c d/d d/e";
    let shown =
        place.plexum("pool create -n tank raidz1 --member-size 96M d/a d/b d/c mirror d/d d/e");
    assert_eq!(shown.exit, 0, "{}", shown.err);
    assert!(shown.out.contains("MEMBERS READ"), "{}", shown.out);
    assert_eq!(
        std::fs::read_dir(place.file("d")).unwrap().count(),
        0,
        "a dry run made files"
    );
    let made = place.plexum("pool create tank raidz1 --member-size 96M d/a d/b d/c mirror d/d d/e");
    assert_eq!(made.exit, 0, "{}", made.err);
    let again = place.plexum("pool create tank mirror d/a d/b");
    assert!(
        again.exit != 0 && again.err.contains("not empty"),
        "{}",
        again.err
    );
    let volume = place.plexum(&format!("pool create-volume tank/vol 24M {members}"));
    assert_eq!(volume.exit, 0, "{}", volume.err);
    let twice = place.plexum(&format!("pool create-volume tank/vol 24M {members}"));
    assert!(twice.err.contains("there already"), "{}", twice.err);
    assert_sound(&place);
    let data: Vec<u8> = (0..24 << 18)
        .flat_map(|n: u32| n.wrapping_mul(2_654_435_761).to_le_bytes())
        .collect();
    std::fs::write(place.file("data"), &data).unwrap();
    for round in 0..2 {
        let mut server = place
            .command(env!("CARGO_BIN_EXE_plexum"))
            .args(format!("serve --write --dataset tank/vol {members}").split_whitespace())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(server.stdout.as_mut().unwrap())
            .read_line(&mut line)
            .unwrap();
        let uri = line.split_whitespace().last().unwrap().to_owned();
        if round == 0 {
            let copy = place.tool("nbdcopy", &format!("--flush data {uri}"));
            assert_eq!(copy.exit, 0, "{}", copy.err);
        }
        let back = place.tool("nbdcopy", &format!("{uri} back{round}"));
        assert_eq!(back.exit, 0, "{}", back.err);
        let back = std::fs::read(place.file(&format!("back{round}"))).unwrap();
        assert!(back == data, "round {round}: other bytes came back");
        if round == 1 {
            // Killed: what was flushed is there, and the pool goes on.
            server.kill().unwrap();
            server.wait().unwrap();
            continue;
        }
        assert_eq!(place.plexum("stop vol").exit, 0);
        assert_eq!(server.wait().unwrap().code(), Some(0));
    }
    assert_sound(&place);
    let check = place.plexum(&format!("pool check {members}"));
    assert_eq!(check.exit, 0, "{}{}", check.out, check.err);
    let short = place.plexum("serve --write --dataset tank/vol d/a d/b d/c d/d");
    assert!(
        short.exit != 0 && short.err.contains("missing"),
        "{}",
        short.err
    );
}

#[test]
fn the_members_of_a_pool_are_found_by_its_name() {
    let place = Place::new("zfs-scan");
    std::fs::create_dir(place.file("d")).unwrap();
    std::fs::create_dir(place.file("e")).unwrap();
    let done = |words: &str| {
        let run = place.plexum(words);
        assert_eq!(run.exit, 0, "{words}: {}{}", run.out, run.err);
        run.out
    };
    let refused = |words: &str, code: &str| {
        let run = place.plexum(&format!("--json {words}"));
        assert_ne!(run.exit, 0, "{words}: {}", run.out);
        let said = format!("{}{}", run.out, run.err);
        assert!(said.contains(code), "{words}: {said}");
    };
    done("pool create tank raidz1 --member-size 96M d/a d/b d/c");
    done("pool create-volume tank/vol 8M --scan d");
    done("pool snapshot tank/vol@monday --scan d");
    done("pool status --scan d");
    assert!(done("pool list tank --scan d").contains("tank/vol@monday"));
    done("pool scrub --scan d");
    done("pool offline d/b tank --scan d");
    done("pool online d/b tank --scan d");
    done("pool replace d/b e/new tank --member-size 96M --scan d");
    std::fs::remove_file(place.file("d/b")).unwrap();
    std::fs::rename(place.file("e/new"), place.file("d/new")).unwrap();
    assert_served(&place, "--dataset tank/vol --scan d", &vec![0; 8 << 20]);
    assert_sound(&place);

    refused("pool status other --scan d", "no_such_volume");
    refused("pool status d/a d/c --scan d", "usage");
    refused("pool status --scan e", "no_such_volume");
    refused("pool status", "usage");
    refused("pool ls tank/vol:/", "usage");
    refused("pool create other e/x --scan d", "usage");
    refused("serve --dataset tank/vol d/a --scan d", "usage");
    done("pool create tank --member-size 96M e/x");
    refused("pool status tank --scan d e", "ambiguous_volume");
    refused(
        "pool snapshot tank/vol@tuesday --scan d e",
        "ambiguous_volume",
    );
}

#[test]
fn members_are_free_before_the_server_is_seen_to_be_gone() {
    let place = Place::new("zfs-freed");
    let done = |words: &str| {
        let run = place.plexum(words);
        assert_eq!(run.exit, 0, "{words}: {}{}", run.out, run.err);
    };
    done("pool create tank mirror --member-size 64M a b");
    done("pool create-volume tank/vol 1M a b");
    let mut server = place
        .command("strace")
        .args("-f -y -e trace=close,unlink,unlinkat -o trace".split(' '))
        .arg(env!("CARGO_BIN_EXE_plexum"))
        .args("serve --write --dataset tank/vol a b".split(' '))
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut line = String::new();
    let mut said = BufReader::new(server.stdout.as_mut().unwrap());
    said.read_line(&mut line).unwrap();
    done("stop vol");
    assert!(server.wait().unwrap().success());
    let trace = std::fs::read_to_string(place.file("trace")).unwrap();
    let last = |what: &str| {
        let lines = trace.lines().enumerate();
        let found = lines.filter(|(_, line)| line.contains(what)).last();
        found.unwrap_or_else(|| panic!("no {what}")).0
    };
    let gone = last("vol.control");
    for member in ["a", "b"] {
        let path = place.file(member).display().to_string();
        assert!(
            last(&format!("<{path}>")) < gone,
            "{member} is closed behind it"
        );
    }
}
