//! The commands of a page, one by one, as a reader would type them.

use std::path::Path;
use std::process::Command;

/// Runs the lines of the file `tour` and compares exit codes; `$CLEAN_UP` runs whatever happens.
const RUNNER: &str = r#"
trap "$CLEAN_UP" EXIT
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

/// The code blocks of `kind` of a page, joined.
pub fn blocks(page: &str, kind: &str) -> String {
    let start = format!("```{kind}\n");
    let blocks = page.split(&start).skip(1);
    blocks
        .map(|rest| rest.split("```").next().unwrap())
        .collect()
}

/// Runs `tour` in `folder`, within `limit_seconds`; its standard output and errors. Panics when a line ends otherwise
/// than the page says.
pub fn run(folder: &Path, tour: &str, clean_up: &str, limit_seconds: u32) -> (String, String) {
    std::fs::write(folder.join("tour"), tour).unwrap();
    let program = Path::new(env!("CARGO_BIN_EXE_plexum"));
    let path = std::env::var("PATH").unwrap_or_default();
    let path = format!("{}:{path}", program.parent().unwrap().display());
    let output = Command::new("timeout")
        .arg(limit_seconds.to_string())
        .args(["bash", "-c", RUNNER])
        .current_dir(folder)
        .env("PATH", path)
        .env("XDG_RUNTIME_DIR", folder)
        .env("XDG_STATE_HOME", folder)
        .env("CLEAN_UP", clean_up)
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{text}\n{errors}");
    (text, errors)
}
