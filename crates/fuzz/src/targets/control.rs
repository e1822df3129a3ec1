//! What a client asks for over the control socket.

use plexum_daemon::control::Action;

use super::{Target, as_it_is};
use crate::mutate::Hints;

/// The body of a request that changes something.
pub const ACTION: Target = Target {
    name: "control",
    check: |input| {
        let Ok(first) = serde_json::from_slice::<Action>(&input.bytes) else {
            return Ok(false);
        };
        let _ = first.route();
        let text = serde_json::to_vec(&first).map_err(|error| error.to_string())?;
        let again: Action = serde_json::from_slice(&text).map_err(|error| error.to_string())?;
        if first != again {
            return Err(format!("{first:?} became {again:?}"));
        }
        Ok(true)
    },
    write_back: |input| {
        let action = serde_json::from_slice::<Action>(&input.bytes).ok()?;
        serde_json::to_vec(&action).ok()
    },
    repair: as_it_is,
    hints: Hints {
        soft: &[],
        is_text: true,
        words: &[
            b"\"action\":\"fail\"",
            b"\"member\":\"0\"",
            b"\"force\":true",
            b"{",
            b"}",
            b"[",
            b"null",
            b"1e999",
            b"\\u0000",
            b"\\ud800",
        ],
    },
    length_max_bytes: 4096,
};
