//! `plexum top` on a terminal that a program looks at.

use super::common::served::{done, wait_until};
use super::common::{Place, Run};
use super::daemon::{Daemon, two_sets};

/// A terminal of 100 columns and 30 lines that runs `plexum top`.
struct Terminal<'a> {
    place: &'a Place,
}

impl<'a> Terminal<'a> {
    fn start(place: &'a Place) -> Self {
        let program = env!("CARGO_BIN_EXE_plexum");
        let terminal = Self { place };
        let made = terminal.tmux(&["new-session", "-d", "-x", "100", "-y", "30", program, "top"]);
        assert_eq!(made.exit, 0, "{}", made.err);
        // What it showed last stays in sight when it has ended.
        terminal.tmux(&["set-option", "-g", "remain-on-exit", "on"]);
        terminal
    }

    /// A server of its own, of the test's folder.
    fn tmux(&self, words: &[&str]) -> Run {
        let output = self
            .place
            .command("tmux")
            .args(["-f", "/dev/null", "-S", "tmux"])
            .env("LC_ALL", "C.UTF-8")
            .args(words)
            .output()
            .expect("tmux must be installed");
        Run {
            exit: output.status.code().unwrap_or(-1),
            out: String::from_utf8_lossy(&output.stdout).into_owned(),
            err: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }

    fn text(&self) -> String {
        self.tmux(&["capture-pane", "-p"]).out
    }

    /// Whether the program has. What the terminal shows of it depends on which of two messages tmux gets first.
    fn has_ended(&self) -> bool {
        self.tmux(&["list-panes", "-F", "#{pane_dead}"]).out.trim() == "1"
    }

    fn press(&self, key: &str) {
        self.tmux(&["send-keys", key]);
    }

    fn wait_for(&self, words: &str) {
        wait_until(self.place, words, || self.text().contains(words));
    }
}

impl Drop for Terminal<'_> {
    fn drop(&mut self) {
        self.tmux(&["kill-server"]);
    }
}

#[test]
fn one_frame_as_text_has_verdict_members_and_incidents() {
    let place = two_sets("top-once");
    let _daemon = Daemon::start(&place, "");
    done(&place, "serve a b");
    done(&place, "serve c d e");
    done(&place, "fail vault d");
    let frame = done(&place, "top --once").out;
    let first = frame.lines().next().unwrap();
    assert!(
        first.contains("CRITICAL ONE MORE FAILURE LOSES vault"),
        "{frame}"
    );
    for words in [
        ">nas",
        " vault",
        "DEGRADED",
        "0 of 1",
        "- nas, members -",
        "[q] quit",
    ] {
        assert!(frame.contains(words), "{words}: {frame}");
    }
    let objects = place.plexum("top --once --json").objects();
    assert_eq!(objects[0]["volumes"], serde_json::json!(["nas", "vault"]));
}

#[test]
fn without_a_terminal_it_says_what_to_do_instead() {
    let place = Place::new("top-none");
    let run = place.plexum("top");
    assert_eq!(run.exit, 2, "{}", run.err);
    assert!(run.err.contains("plexum top --once"), "{}", run.err);
}

#[test]
fn on_a_terminal_it_is_live_and_its_keys_show_plans_and_do_them() {
    let place = two_sets("top-keys");
    let _daemon = Daemon::start(&place, "");
    done(&place, "serve a b");
    done(&place, "serve c d e");
    let top = Terminal::start(&place);
    top.wait_for("WELL all 2 volumes are whole");
    top.press("j");
    top.wait_for("- vault, members -");
    done(&place, "fail vault d");
    top.wait_for("CRITICAL ONE MORE FAILURE LOSES vault");
    top.press("k");
    top.wait_for("- nas, members -");
    top.press("?");
    top.wait_for("?           this");
    top.press("Escape");
    // A key right behind Escape would arrive as one with Alt.
    wait_until(&place, "the help has gone", || {
        !top.text().contains("?           this")
    });
    top.press("s");
    top.wait_for("as a command: plexum scrub nas");
    top.press("Enter");
    top.wait_for("[enter] go on");
    top.press("Enter");
    wait_until(&place, "the scrub has ended", || {
        let told = place.plexum("status nas --json").objects();
        told[0]["last_scrub"]["is_complete"] == true
    });
    // What it says of the scrub may lie over everything yet: the first key only takes that away.
    wait_until(&place, "it has ended", || {
        top.press("q");
        top.has_ended()
    });
}
