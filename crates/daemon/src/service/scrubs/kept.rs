//! What is kept of a volume's scrubs, as it is read back.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use plexum_exec::mailbox::reply;
use plexum_schedule::State;

/// Largest file that is read, in bytes: a map of age has a thousand stretches at most.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// Reads it on a thread of its own: the folder may lie on a volume that is served, or hang. None where nothing is kept
/// that makes sense: then everything is compared anew.
pub(super) async fn read(path: PathBuf) -> Option<State> {
    let (told, answer) = reply();
    let thread = std::thread::Builder::new().name("scrubs".into());
    let started = thread.spawn(move || told.send(state_in(&path)));
    started.ok()?;
    answer.await.ok()?
}

fn state_in(path: &Path) -> Option<State> {
    let mut text = String::new();
    let file = File::open(path).ok()?;
    file.take(FILE_BYTES_MAX).read_to_string(&mut text).ok()?;
    let state: State = serde_json::from_str(&text).ok()?;
    state.is_understood().then_some(state)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_makes_no_sense_is_as_if_nothing_were_kept() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x.json");
        assert_eq!(state_in(&path), None);
        let state = State::new(1 << 30, 7);
        let text = serde_json::to_string(&state).unwrap();
        std::fs::write(&path, &text).unwrap();
        assert_eq!(state_in(&path), Some(state));
        for damaged in [
            text.replacen("\"version\":1", "\"version\":2", 1),
            text[..text.len() / 2].to_owned(),
            " ".repeat(2 << 20) + &text,
        ] {
            std::fs::write(&path, damaged).unwrap();
            assert_eq!(state_in(&path), None);
        }
    }
}
