//! The tour of docs/freebsd.md does what it says: a Vinum configuration of 1999, made, served, broken, mended, grown.
#![allow(clippy::unwrap_used)] // a failed unwrap is a failed test

use std::path::Path;
use std::process::Command;

/// Runs the lines of the tour one by one and compares exit codes; stops the servers whatever happens.
const RUNNER: &str = r#"
trap 'for v in src obj home log; do plexum stop $v; done' EXIT
set -o pipefail
while IFS= read -r line <&3; do
  case $line in ''|'#'*) continue ;; esac
  want=0
  case $line in *'# exit code '*) want=${line##*'# exit code '}; want=${want%%[!0-9]*} ;; esac
  echo "$ $line"
  eval "$line"
  code=$?
  if [ $code != $want ]; then echo "exit code $code, the page says $want"; exit 1; fi
done 3<tour
trap - EXIT
"#;

fn blocks(page: &str, kind: &str) -> String {
    let start = format!("```{kind}\n");
    let blocks = page.split(&start).skip(1);
    blocks
        .map(|rest| rest.split("```").next().unwrap())
        .collect()
}

#[test]
fn the_vinum_tour_works() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/freebsd.md");
    let page = std::fs::read_to_string(page).unwrap();
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("vinum.conf"), blocks(&page, "text")).unwrap();
    std::fs::write(folder.path().join("tour"), blocks(&page, "sh")).unwrap();
    let program = Path::new(env!("CARGO_BIN_EXE_plexum"));
    let path = std::env::var("PATH").unwrap_or_default();
    let output = Command::new("timeout")
        .args(["200", "bash", "-c", RUNNER])
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
    for words in ["4 volumes:", "no differences", "5 drives:", " multistripe,"] {
        assert!(text.contains(words), "{words}: {text}\n{errors}");
    }
    let read = |name: &str| std::fs::read(folder.path().join(name)).unwrap();
    assert_eq!(
        read("copy").len(),
        4 << 20,
        "what is in the mirrored volume"
    );
}
