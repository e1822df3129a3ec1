//! What `status` says of a volume that is scrubbed by itself.

use plexum_daemon::status::ScrubPlanStatus;

use crate::units::{show_seconds, show_time};

/// One line; `now_s` in seconds since 1970.
#[must_use]
pub fn scrub_line(plan: &ScrubPlanStatus, now_s: u64) -> String {
    let every = show_seconds(plan.every_s);
    let age = show_seconds(now_s.saturating_sub(plan.oldest_byte_s));
    let known = match plan.is_partly_unknown {
        true => "not all is compared yet".to_owned(),
        false => format!("all is compared within {age}"),
    };
    let ended = plan.last_success_s.map(show_time);
    let ended = ended.map_or(String::new(), |time| format!(", last whole round {time}"));
    let done = plan.round_done_bytes.map(|done| {
        let percent = u128::from(done) * 100 / u128::from(plan.total_bytes.max(1));
        format!(", round at {percent} %")
    });
    let next = match (&plan.waits_because, plan.next_s) {
        (None, _) => ", runs now".to_owned(),
        (Some(_), Some(next)) => format!(", next {}", show_time(next)),
        (Some(why), None) => format!(", waits: {why}"),
    };
    format!(
        "  Scrub every {every}: {known}{ended}{}{next}",
        done.unwrap_or_default()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_says_how_old_the_oldest_byte_is_and_when_it_goes_on() {
        let new = ScrubPlanStatus {
            every_s: 30 * 86_400,
            is_partly_unknown: true,
            round_done_bytes: Some(61),
            total_bytes: 100,
            ..ScrubPlanStatus::default()
        };
        let line = scrub_line(&new, 1_000);
        assert_eq!(
            line,
            "  Scrub every 30d00h: not all is compared yet, round at 61 %, runs now"
        );
        let waits = ScrubPlanStatus {
            waits_because: Some("another job runs".into()),
            ..new
        };
        assert!(scrub_line(&waits, 1_000).ends_with("round at 61 %, waits: another job runs"));
        let done = ScrubPlanStatus {
            every_s: 3_600,
            last_success_s: Some(700),
            oldest_byte_s: 400,
            next_s: Some(4_000),
            waits_because: Some("everything was compared lately".into()),
            ..ScrubPlanStatus::default()
        };
        let line = scrub_line(&done, 1_000);
        let [last, next] = [700, 4_000].map(show_time);
        let expected =
            format!("all is compared within 10m00s, last whole round {last}, next {next}");
        assert_eq!(line, format!("  Scrub every 1h00m: {expected}"));
    }
}
