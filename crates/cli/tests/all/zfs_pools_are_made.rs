//! `plexum pool create`, `create-volume`, `check` and `serve --write --dataset`, with OpenZFS as the judge.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};

use crate::common::Place;

/// What zdb of OpenZFS says of the pool `tank` in a folder.
#[track_caller]
fn assert_sound(place: &Place) {
    let oracle = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../oracle/zfs-oracle");
    let folder = place.file("d").display().to_string();
    let words = ["check", &folder, "tank", "--version", "21", "--complete"];
    let run = Command::new("python3")
        .arg(oracle)
        .args(words)
        .output()
        .unwrap();
    let text =
        String::from_utf8_lossy(&run.stdout).into_owned() + &String::from_utf8_lossy(&run.stderr);
    assert!(run.status.success(), "{text}");
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
