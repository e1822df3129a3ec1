//! Pages of made-up volumes.

use serde_json::json;

use super::*;

/// A RAID-6 that lacks a member, is being filled with a spare, and was never scrubbed.
fn degraded() -> VolumeStatus {
    let member = |slot: u32, state: &str| {
        json!({"slot": slot, "path": format!("/dev/sd{slot}"), "state": state, "read_errors": 2,
            "write_errors": 0, "corrected_errors": 1, "latency_vs_peers_percent": 460, "is_slow": slot == 1,
            "read_latency": {"samples": 9, "p50_us": 4100, "p99_us": 190_000}})
    };
    let gone = json!({"slot": 2, "path": null, "was": "/dev/sd2", "state": "missing", "read_errors": 0,
        "write_errors": 0, "corrected_errors": 0});
    serde_json::from_value(json!({
        "version": 1, "kind": "volume", "volume": "home", "verdict": "degraded", "level": "raid6", "layout": null,
        "strip_bytes": 65536, "format": "md-1.2", "uuid": "u", "size_bytes": 1 << 30, "member_bytes": 1 << 28,
        "slots": 4, "spare_failures": 1, "designed_spare_failures": 2, "event_count": 7, "is_dirty": true,
        "is_read_only": false, "balance": "load", "consistency": "bitmap",
        "bitmap": {"region_bytes": 4096, "regions": 9, "dirty_regions": 3, "doubtful_regions": 2}, "io": "uring",
        "exports": [{"uri": "a", "clients": 2}, {"uri": "b", "clients": 1}],
        "members": [member(0, "active"), member(1, "active"), gone],
        "jobs": [{"kind": "rebuild", "done_bytes": 25, "total_bytes": 100, "rate_bytes_per_s": 5, "eta_s": 15,
            "eta_range_s": [10, 20]}],
        "findings": [], "next": null, "server_pid": 1
    }))
    .unwrap()
}

fn facts(status: VolumeStatus) -> PageFacts {
    PageFacts {
        volumes: vec![(status, None)],
        judged_s: 1_000,
        ..PageFacts::default()
    }
}

fn has(page: &str, line: &str) -> bool {
    page.lines().any(|known| known == line)
}

#[test]
fn a_member_that_is_gone_is_counted_and_keeps_its_name() {
    let page = page(&facts(degraded()));
    for line in [
        r#"plexum_members{volume="home",state="missing"} 1"#,
        r#"plexum_members{volume="home",state="active"} 2"#,
        r#"plexum_members{volume="home",state="faulty"} 0"#,
        r#"plexum_member_info{volume="home",slot="2",member="/dev/sd2",serial=""} 1"#,
        r#"plexum_volume_spare_failures{volume="home"} 1"#,
        r#"plexum_volume_designed_spare_failures{volume="home"} 2"#,
        r#"plexum_volume_verdict{volume="home"} 1"#,
        r#"plexum_volume_state{volume="home",state="degraded"} 1"#,
        r#"plexum_volume_state{volume="home",state="ok"} 0"#,
        r#"plexum_volume_doubtful_bytes{volume="home"} 8192"#,
        r#"plexum_client_connections{volume="home"} 3"#,
        r#"plexum_member_peer_ratio{volume="home",slot="1",member="/dev/sd1"} 4.6"#,
        r#"plexum_job_progress_ratio{volume="home",kind="rebuild"} 0.25"#,
        r#"plexum_job_eta_seconds{volume="home",kind="rebuild",bound="latest"} 20"#,
        "plexum_judged_timestamp_seconds 1000",
    ] {
        assert!(has(&page, line), "{line}\n{page}");
    }
    assert!(!page.contains(r#"member_errors_total{volume="home",slot="2""#));
}

#[test]
fn what_nobody_knows_has_no_sample() {
    let mut status = degraded();
    status.bitmap = None;
    status.designed_spare_failures = None;
    status.jobs.clear();
    let page = page(&facts(status));
    for name in [
        "doubtful",
        "designed",
        "job_",
        "scrub_",
        "request",
        "incidents",
        "io_seconds",
    ] {
        assert!(!page.contains(name), "{name}\n{page}");
    }
}

#[test]
fn a_volume_that_should_be_served_and_is_not_has_a_zero() {
    let page = page(&PageFacts {
        not_served: vec!["nas".into()],
        ..facts(degraded())
    });
    assert!(has(&page, r#"plexum_volume_served{volume="home"} 1"#));
    assert!(has(&page, r#"plexum_volume_served{volume="nas"} 0"#));
}

#[test]
fn a_scrub_counts_as_a_success_only_when_it_has_compared_everything() {
    let scrub = |is_complete: bool, skipped: u64| {
        let mut status = degraded();
        let told = json!({"is_complete": is_complete, "is_repair": false, "mismatch_bytes": 4096,
            "skipped_bytes": skipped, "ranges": [], "finished_s": 600});
        status.last_scrub = serde_json::from_value(told).unwrap();
        page(&facts(status))
    };
    let success = r#"plexum_scrub_last_success_timestamp_seconds{volume="home"} 600"#;
    let age = r#"plexum_scrub_oldest_byte_age_seconds{volume="home"} 400"#;
    let whole = scrub(true, 0);
    assert!(has(&whole, success) && has(&whole, age), "{whole}");
    for page in [scrub(false, 0), scrub(true, 512)] {
        assert!(!page.contains("last_success") && !page.contains("oldest"));
        assert!(has(
            &page,
            r#"plexum_scrub_mismatch_bytes{volume="home"} 4096"#
        ));
    }
}

#[test]
fn a_schedule_tells_its_own_age_and_its_next_date() {
    let mut status = degraded();
    status.scrub_plan = Some(crate::volume::status::ScrubPlanStatus {
        every_s: 500,
        last_success_s: Some(700),
        oldest_byte_s: 650,
        next_s: Some(1_150),
        ..Default::default()
    });
    let page = page(&facts(status));
    for line in [
        r#"plexum_scrub_last_success_timestamp_seconds{volume="home"} 700"#,
        r#"plexum_scrub_oldest_byte_age_seconds{volume="home"} 350"#,
        r#"plexum_scrub_due_after_seconds{volume="home"} 500"#,
        r#"plexum_scrub_next_timestamp_seconds{volume="home"} 1150"#,
    ] {
        assert!(has(&page, line), "{line}\n{page}");
    }
}

#[test]
fn counters_of_clients_and_members_become_sums_and_counts() {
    let counters = json!({"total": {"reads": 3, "writes": 1, "flushes": 4, "errors": 5, "read_bytes": 300,
            "written_bytes": 100, "read_ns": 1_500_000_000_u64, "write_ns": 0, "busy_ns": 1},
        "members": [{"member": "/dev/sd1", "reads": 7, "writes": 0, "read_ns": 250_000_000, "write_ns": 0},
            {"member": null, "reads": 9, "writes": 9, "read_ns": 9, "write_ns": 9}]});
    let mut facts = facts(degraded());
    facts.volumes[0].1 = serde_json::from_value(counters).unwrap();
    let page = page(&facts);
    for line in [
        r#"plexum_request_seconds_sum{volume="home",direction="read"} 1.5"#,
        r#"plexum_request_seconds_count{volume="home",direction="read"} 3"#,
        r#"plexum_requests_total{volume="home",request="flush"} 4"#,
        r#"plexum_request_errors_total{volume="home"} 5"#,
        r#"plexum_member_io_seconds_sum{volume="home",slot="1",member="/dev/sd1",direction="read"} 0.25"#,
        r#"plexum_member_io_seconds_count{volume="home",slot="1",member="/dev/sd1",direction="read"} 7"#,
    ] {
        assert!(has(&page, line), "{line}\n{page}");
    }
}

#[test]
fn incidents_and_messages_that_did_not_arrive_are_told_as_they_were_given() {
    let mut facts = facts(degraded());
    facts.incidents.push(OpenIncidents {
        severity: "critical".into(),
        code: "redundancy".into(),
        count: 2,
    });
    facts.delivery_failures.push(DeliveryFailures {
        channel: "mail".into(),
        count: 3,
    });
    let page = page(&facts);
    assert!(has(
        &page,
        r#"plexum_incidents{severity="critical",code="redundancy"} 2"#
    ));
    assert!(has(
        &page,
        r#"plexum_alert_delivery_failures_total{channel="mail"} 3"#
    ));
}
