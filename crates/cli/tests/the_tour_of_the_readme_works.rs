//! The commands of the README's tour do what it says.
#![allow(clippy::unwrap_used)] // a failed unwrap is a failed test

use std::path::Path;
use std::process::Command;

/// Runs the lines of the tour one by one and compares exit codes; stops the server whatever happens.
const RUNNER: &str = r#"
trap 'plexum detach pool1; plexum stop' EXIT
set -o pipefail
while IFS= read -r line <&3; do
  case $line in ''|'#'*) continue ;; esac
  want=0
  case $line in *'# exit code '*) want=${line##*'# exit code '}; want=${want%%[!0-9]*} ;; esac
  echo "$ $line"
  eval "$line"
  code=$?
  if [ $code != $want ]; then echo "exit code $code, the README says $want"; exit 1; fi
done 3<tour
trap - EXIT
"#;

/// The shell blocks of the README's section "Tour".
fn tour(readme: &str) -> String {
    let section = readme
        .split("\n## ")
        .find(|section| section.starts_with("Tour\n"))
        .unwrap();
    let blocks = section
        .split("```sh\n")
        .skip(1)
        .map(|rest| rest.split("```").next().unwrap());
    blocks.collect()
}

#[test]
fn the_tour_of_the_readme_works() {
    let readme = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../README.md");
    let tour = tour(&std::fs::read_to_string(readme).unwrap());
    for word in [
        "create", "serve", "attach", "fail", "replace", "scrub", "stop",
    ] {
        assert!(
            tour.contains(&format!("plexum {word}")),
            "the tour shows {word}"
        );
    }
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("tour"), tour).unwrap();
    let program = Path::new(env!("CARGO_BIN_EXE_plexum"));
    let path = std::env::var("PATH").unwrap_or_default();
    let output = Command::new("timeout")
        .args(["300", "bash", "-c", RUNNER])
        .current_dir(&folder)
        .env(
            "PATH",
            format!("{}:{path}", program.parent().unwrap().display()),
        )
        .env("XDG_RUNTIME_DIR", folder.path())
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{text}\n{errors}");
    assert!(text.contains("no differences"), "{text}");
    assert!(text.contains("Raid Level : raid6"), "{text}");
}
