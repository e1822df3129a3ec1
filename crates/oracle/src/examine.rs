//! What `mdadm -E` and `mdadm -X` say of a member.

/// A member's metadata as mdadm reads it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MemberState {
    /// `State :` of 1.x and 0.90, such as `clean`, `active`.
    pub state: String,
    /// `Events :`.
    pub event_count: Option<u64>,
    /// `Device Role :`, such as `Active device 1`, `spare`.
    pub role: String,
    /// Dirty bits of its bitmap; `None` without one.
    pub dirty_bits: Option<u64>,
    /// The whole text of both commands.
    pub text: String,
}

impl MemberState {
    /// Reads the texts of both commands.
    #[must_use]
    pub fn parse(examine: &str, bitmap: &str) -> MemberState {
        let field = |name: &str| {
            let lines = examine.lines().filter_map(|line| line.split_once(" : "));
            let mut values = lines.filter(|(key, _)| key.trim() == name);
            values.next().map(|(_, value)| value.trim().to_owned())
        };
        MemberState {
            state: field("State").unwrap_or_default(),
            event_count: field("Events").and_then(|text| event_count(&text)),
            role: field("Device Role").unwrap_or_default(),
            dirty_bits: dirty_bits(bitmap),
            text: format!("{examine}{bitmap}"),
        }
    }

    /// Whether the array was stopped cleanly, as this member knows it.
    #[must_use]
    pub fn is_clean(&self) -> bool {
        self.state == "clean"
    }
}

/// `17`, or `0.17` in metadata 0.90 (high and low half).
fn event_count(text: &str) -> Option<u64> {
    match text.split_once('.') {
        Some((high, low)) => Some(high.parse::<u64>().ok()? << 32 | low.parse::<u64>().ok()?),
        None => text.parse().ok(),
    }
}

/// From `Bitmap : 128 bits (chunks), 3 dirty (2.3%)`.
fn dirty_bits(text: &str) -> Option<u64> {
    let line = text
        .lines()
        .find(|line| line.trim_start().starts_with("Bitmap :"))?;
    let before = line.split(" dirty").next()?;
    before.rsplit(' ').next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fields_are_found() {
        let examine = "          Magic : a92b4efc\n    Array State : AAA ('A' == active)\n          State : clean\n         Events : 17\n   Device Role : Active device 1\n";
        let bitmap =
            "        Filename : /dev/ubda\n          Bitmap : 128 bits (chunks), 3 dirty (2.3%)\n";
        let state = MemberState::parse(examine, bitmap);
        assert!(state.is_clean());
        assert_eq!((state.event_count, state.dirty_bits), (Some(17), Some(3)));
        assert_eq!(state.role, "Active device 1");
    }

    #[test]
    fn old_event_counts_have_two_halves_and_no_bitmap_has_no_bits() {
        let state = MemberState::parse("  State : active\n  Events : 1.2\n", "mdadm: No bitmap\n");
        assert!(!state.is_clean());
        assert_eq!(
            (state.event_count, state.dirty_bits),
            (Some((1 << 32) + 2), None)
        );
    }
}
