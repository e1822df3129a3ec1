//! In the shell: what is completed.

use std::path::Path;

use super::common::Place;

/// What bash offers for the last of these words.
fn offered(place: &Place, words: &[&str]) -> Vec<String> {
    let last = words.len() - 1;
    let quoted: Vec<String> = words.iter().map(|word| format!("'{word}'")).collect();
    let script = format!(
        "source ./completions.bash; COMP_WORDS=({}); COMP_CWORD={last}; \
         \"$(complete -p plexum | sed 's/.*-F \\([^ ]*\\) .*/\\1/')\" plexum '{}' '{}'; printf '%s\\n' \"${{COMPREPLY[@]}}\"",
        quoted.join(" "),
        words[last],
        words[last - 1],
    );
    let program = Path::new(env!("CARGO_BIN_EXE_plexum"));
    let path = std::env::var("PATH").unwrap_or_default();
    let output = place
        .command("bash")
        .env(
            "PATH",
            format!("{}:{path}", program.parent().unwrap().display()),
        )
        .args(["-c", &script])
        .output()
        .expect("bash must be installed");
    let text = String::from_utf8(output.stdout).unwrap();
    text.lines()
        .map(str::to_owned)
        .filter(|line| !line.is_empty())
        .collect()
}

#[test]
fn the_shell_completes_the_names_of_the_volumes_that_are_served_now() {
    let place = Place::in_memory("completed");
    let script = place.plexum("completions bash");
    std::fs::write(place.file("completions.bash"), script.out).unwrap();
    assert!(!offered(&place, &["plexum", "status", ""]).contains(&"nas".to_owned()));
    // A name is on the disks, and disks come from anywhere: nothing in it is carried out.
    let evil = "n$(touch${IFS}touched)";
    for (name, members) in [("nas", "a b"), ("media", "c d"), (evil, "e f")] {
        for words in [
            format!("create {name} --level 1 --member-size 8M {members}"),
            format!("serve --background {members}"),
        ] {
            let run = place.plexum(&words);
            assert_eq!(run.exit, 0, "{words}: {}", run.err);
        }
    }
    assert_eq!(place.plexum("volume-names").out.lines().count(), 3);
    assert_eq!(offered(&place, &["plexum", "status", "na"]), ["nas"]);
    assert_eq!(offered(&place, &["plexum", "scrub", "-v", "m"]), ["media"]);
    assert_eq!(offered(&place, &["plexum", "fail", ""]).len(), 3);
    let options = offered(&place, &["plexum", "status", "--wa"]);
    assert_eq!(options, ["--watch"]);
    // Behind it comes a member, and where none is meant there is none.
    assert!(!offered(&place, &["plexum", "fail", "nas", "n"]).contains(&"nas".to_owned()));
    assert!(!offered(&place, &["plexum", "create", "n"]).contains(&"nas".to_owned()));
    assert!(!place.file("touched").exists());
    for name in ["nas", "media", evil] {
        assert_eq!(place.plexum(&format!("stop {name}")).exit, 0, "{name}");
    }
}
