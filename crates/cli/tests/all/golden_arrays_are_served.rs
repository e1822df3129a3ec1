//! Arrays that the Linux kernel made, served read-only and read by a real NBD client.

use crate::common::Place;
use plexum_testkit::{md_cases, unpack_case};

/// Cases that need a word of the user: what the refusal is called.
fn refusal(id: &str) -> Option<&'static str> {
    match id {
        "s33_raid6_bad_checksum" => Some("degraded_start"),
        "s37_raid5_dirty_degraded" => Some("dirty_degraded"),
        _ => None,
    }
}

#[test]
fn every_golden_array_has_the_content_that_its_manifest_says() {
    let place = Place::new("golden");
    for case in md_cases() {
        let unpacked = unpack_case(&case.id);
        let path = |file: &str| unpacked.path(file).display().to_string();
        let files: Vec<String> = case.members.iter().map(|m| path(&m.file)).collect();
        let files = files.join(" ");
        let before: Vec<Vec<u8>> = case
            .members
            .iter()
            .map(|m| unpacked.read(&m.file))
            .collect();
        let backup = case.backup.as_ref().map(|backup| path(&backup.file));
        let backup = backup.map_or_else(String::new, |backup| format!(" --backup-file {backup}"));
        let serve = format!("serve --read-only --background --json --name g{backup}");
        let mut run = place.plexum(&format!("{serve} {files}"));
        if let Some(code) = refusal(&case.id) {
            assert_eq!(run.exit, 3, "{}: {}{}", case.id, run.out, run.err);
            let line = run.err.lines().last().unwrap();
            let error: serde_json::Value = serde_json::from_str(line).unwrap();
            assert_eq!(error["error"]["code"], code, "{}", case.id);
            run = place.plexum(&format!(
                "{serve} --run-degraded --force --force-data {files}"
            ));
        }
        assert_eq!(run.exit, 0, "{}: {}{}", case.id, run.out, run.err);
        let uri = format!(
            "nbd+unix:///g?socket={}/plexum/g.nbd",
            place.folder.display()
        );
        let copied = place.tool("nbdcopy", &format!("{uri} content"));
        assert_eq!(copied.exit, 0, "{}: {}", case.id, copied.err);
        let sum = place.tool("sha256sum", "content").out;
        assert!(
            sum.starts_with(&case.sha256),
            "{}: content differs",
            case.id
        );
        assert_eq!(place.plexum("stop g").exit, 0);
        for (member, before) in case.members.iter().zip(before) {
            assert!(
                unpacked.read(&member.file) == before,
                "{} {} was changed",
                case.id,
                member.file
            );
        }
    }
}
