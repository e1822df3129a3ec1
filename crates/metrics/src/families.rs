//! All metrics: their names, what they are and which labels their samples have.
//!
//! A name that was published is never changed or taken for something else: rules and pages of others ask for it.

/// How a value may change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Up and down.
    Gauge,
    /// Up only, or back to the beginning.
    Counter,
    /// A count of durations, and their sum.
    Summary,
}

impl Kind {
    /// The word of the text format.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Gauge => "gauge",
            Self::Counter => "counter",
            Self::Summary => "summary",
        }
    }
}

/// Metrics of one name.
#[derive(Debug, PartialEq, Eq)]
pub struct Family {
    /// Its name, which begins with `plexum_` and ends with the unit.
    pub name: &'static str,
    /// How its values change.
    pub kind: Kind,
    /// Names of the labels that each sample has.
    pub labels: &'static [&'static str],
    /// What it is, in one sentence.
    pub help: &'static str,
}

/// All of them, in the order of a page.
pub static ALL: [&Family; 35] = [
    &BUILD_INFO,
    &JUDGED_TIMESTAMP_SECONDS,
    &INCIDENTS,
    &ALERT_DELIVERY_FAILURES_TOTAL,
    &VOLUME_SERVED,
    &VOLUME_INFO,
    &VOLUME_VERDICT,
    &VOLUME_STATE,
    &VOLUME_SPARE_FAILURES,
    &VOLUME_DESIGNED_SPARE_FAILURES,
    &VOLUME_SIZE_BYTES,
    &VOLUME_READ_ONLY,
    &VOLUME_DOUBTFUL_BYTES,
    &MEMBERS,
    &MEMBER_INFO,
    &MEMBER_ERRORS_TOTAL,
    &MEMBER_IO_SECONDS,
    &MEMBER_IO_BYTES_TOTAL,
    &MEMBER_LATENCY_SECONDS,
    &MEMBER_PEER_RATIO,
    &MEMBER_SLOW,
    &MEMBER_BAD_BYTES,
    &JOB_PROGRESS_RATIO,
    &JOB_RATE_BYTES,
    &JOB_ETA_SECONDS,
    &SCRUB_LAST_SUCCESS_TIMESTAMP_SECONDS,
    &SCRUB_OLDEST_BYTE_AGE_SECONDS,
    &SCRUB_DUE_AFTER_SECONDS,
    &SCRUB_NEXT_TIMESTAMP_SECONDS,
    &SCRUB_MISMATCH_BYTES,
    &CLIENT_CONNECTIONS,
    &REQUESTS_TOTAL,
    &REQUEST_ERRORS_TOTAL,
    &REQUEST_SECONDS,
    &REQUEST_BYTES_TOTAL,
];

/// Always 1; the version of the server.
pub static BUILD_INFO: Family = Family {
    name: "plexum_build_info",
    kind: Kind::Gauge,
    labels: &["version"],
    help: "Always 1; the version of the server.",
};

/// When the state of all volumes was looked at last.
pub static JUDGED_TIMESTAMP_SECONDS: Family = Family {
    name: "plexum_judged_timestamp_seconds",
    kind: Kind::Gauge,
    labels: &[],
    help: "When the state of all volumes was looked at last.",
};

/// Incidents that are open.
pub static INCIDENTS: Family = Family {
    name: "plexum_incidents",
    kind: Kind::Gauge,
    labels: &["severity", "code"],
    help: "Incidents that are open.",
};

/// Messages that a channel did not take.
pub static ALERT_DELIVERY_FAILURES_TOTAL: Family = Family {
    name: "plexum_alert_delivery_failures_total",
    kind: Kind::Counter,
    labels: &["channel"],
    help: "Messages that a channel did not take.",
};

/// Whether a volume that should be served is.
pub static VOLUME_SERVED: Family = Family {
    name: "plexum_volume_served",
    kind: Kind::Gauge,
    labels: &["volume"],
    help: "Whether a volume that should be served is.",
};

/// Always 1; what a volume is.
pub static VOLUME_INFO: Family = Family {
    name: "plexum_volume_info",
    kind: Kind::Gauge,
    labels: &["volume", "uuid", "level", "format"],
    help: "Always 1; what a volume is.",
};

/// 0 healthy, 1 something is wrong and all data are there, 2 failed.
pub static VOLUME_VERDICT: Family = Family {
    name: "plexum_volume_verdict",
    kind: Kind::Gauge,
    labels: &["volume"],
    help: "0 healthy, 1 something is wrong and all data are there, 2 failed.",
};

/// 1 for the state that the volume is in, 0 for all others.
pub static VOLUME_STATE: Family = Family {
    name: "plexum_volume_state",
    kind: Kind::Gauge,
    labels: &["volume", "state"],
    help: "1 for the state that the volume is in, 0 for all others.",
};

/// Further members that may be lost, any of them, without losing data.
pub static VOLUME_SPARE_FAILURES: Family = Family {
    name: "plexum_volume_spare_failures",
    kind: Kind::Gauge,
    labels: &["volume"],
    help: "Further members that may be lost, any of them, without losing data.",
};

/// Members that may be lost when none is missing.
pub static VOLUME_DESIGNED_SPARE_FAILURES: Family = Family {
    name: "plexum_volume_designed_spare_failures",
    kind: Kind::Gauge,
    labels: &["volume"],
    help: "Members that may be lost when none is missing.",
};

/// Size as clients see it.
pub static VOLUME_SIZE_BYTES: Family = Family {
    name: "plexum_volume_size_bytes",
    kind: Kind::Gauge,
    labels: &["volume"],
    help: "Size as clients see it.",
};

/// Whether writes are refused.
pub static VOLUME_READ_ONLY: Family = Family {
    name: "plexum_volume_read_only",
    kind: Kind::Gauge,
    labels: &["volume"],
    help: "Whether writes are refused.",
};

/// Bytes whose copies or parity may differ, in whole regions of the bitmap; absent without one.
pub static VOLUME_DOUBTFUL_BYTES: Family = Family {
    name: "plexum_volume_doubtful_bytes",
    kind: Kind::Gauge,
    labels: &["volume"],
    help: "Bytes whose copies or parity may differ, in whole regions of the bitmap; absent without one.",
};

/// Members in each state, missing ones included.
pub static MEMBERS: Family = Family {
    name: "plexum_members",
    kind: Kind::Gauge,
    labels: &["volume", "state"],
    help: "Members in each state, missing ones included.",
};

/// Always 1; which device a member is, or was before its slot was empty.
pub static MEMBER_INFO: Family = Family {
    name: "plexum_member_info",
    kind: Kind::Gauge,
    labels: &["volume", "slot", "member", "serial"],
    help: "Always 1; which device a member is, or was before its slot was empty.",
};

/// Errors of a member: reads, writes, and reads that were mended from redundancy.
pub static MEMBER_ERRORS_TOTAL: Family = Family {
    name: "plexum_member_errors_total",
    kind: Kind::Counter,
    labels: &["volume", "slot", "member", "kind"],
    help: "Errors of a member: reads, writes, and reads that were mended from redundancy.",
};

/// Reads and writes of a member, and how long they took.
pub static MEMBER_IO_SECONDS: Family = Family {
    name: "plexum_member_io_seconds",
    kind: Kind::Summary,
    labels: &["volume", "slot", "member", "direction"],
    help: "Reads and writes of a member, and how long they took.",
};

/// Bytes read from and written to a member.
pub static MEMBER_IO_BYTES_TOTAL: Family = Family {
    name: "plexum_member_io_bytes_total",
    kind: Kind::Counter,
    labels: &["volume", "slot", "member", "direction"],
    help: "Bytes read from and written to a member.",
};

/// How long I/O of a member took in the last minutes, so many of 100 at most.
pub static MEMBER_LATENCY_SECONDS: Family = Family {
    name: "plexum_member_latency_seconds",
    kind: Kind::Gauge,
    labels: &["volume", "slot", "member", "direction", "percentile"],
    help: "How long I/O of a member took in the last minutes, so many of 100 at most.",
};

/// How long a member takes beside its peers; 1 is as long as they.
pub static MEMBER_PEER_RATIO: Family = Family {
    name: "plexum_member_peer_ratio",
    kind: Kind::Gauge,
    labels: &["volume", "slot", "member"],
    help: "How long a member takes beside its peers; 1 is as long as they.",
};

/// Whether a member is slow beside its peers.
pub static MEMBER_SLOW: Family = Family {
    name: "plexum_member_slow",
    kind: Kind::Gauge,
    labels: &["volume", "slot", "member"],
    help: "Whether a member is slow beside its peers.",
};

/// Bytes on a member's list of bad blocks.
pub static MEMBER_BAD_BYTES: Family = Family {
    name: "plexum_member_bad_bytes",
    kind: Kind::Gauge,
    labels: &["volume", "slot", "member"],
    help: "Bytes on a member's list of bad blocks.",
};

/// How far a job is, from 0 to 1; absent while none runs.
pub static JOB_PROGRESS_RATIO: Family = Family {
    name: "plexum_job_progress_ratio",
    kind: Kind::Gauge,
    labels: &["volume", "kind"],
    help: "How far a job is, from 0 to 1; absent while none runs.",
};

/// Bytes a second of a job in the last seconds.
pub static JOB_RATE_BYTES: Family = Family {
    name: "plexum_job_rate_bytes",
    kind: Kind::Gauge,
    labels: &["volume", "kind"],
    help: "Bytes a second of a job in the last seconds.",
};

/// Time left of a job: likely, earliest, latest.
pub static JOB_ETA_SECONDS: Family = Family {
    name: "plexum_job_eta_seconds",
    kind: Kind::Gauge,
    labels: &["volume", "kind", "bound"],
    help: "Time left of a job: likely, earliest, latest.",
};

/// End of the last scrub that compared everything.
pub static SCRUB_LAST_SUCCESS_TIMESTAMP_SECONDS: Family = Family {
    name: "plexum_scrub_last_success_timestamp_seconds",
    kind: Kind::Gauge,
    labels: &["volume"],
    help: "End of the last scrub that compared everything.",
};

/// How long ago the byte was compared that has waited longest.
pub static SCRUB_OLDEST_BYTE_AGE_SECONDS: Family = Family {
    name: "plexum_scrub_oldest_byte_age_seconds",
    kind: Kind::Gauge,
    labels: &["volume"],
    help: "How long ago the byte was compared that has waited longest.",
};

/// How old that may become; absent where scrubs are on no schedule.
pub static SCRUB_DUE_AFTER_SECONDS: Family = Family {
    name: "plexum_scrub_due_after_seconds",
    kind: Kind::Gauge,
    labels: &["volume"],
    help: "How old that may become; absent where scrubs are on no schedule.",
};

/// When the schedule goes on with a scrub.
pub static SCRUB_NEXT_TIMESTAMP_SECONDS: Family = Family {
    name: "plexum_scrub_next_timestamp_seconds",
    kind: Kind::Gauge,
    labels: &["volume"],
    help: "When the schedule goes on with a scrub.",
};

/// Bytes that a scrub found different and that nobody has mended.
pub static SCRUB_MISMATCH_BYTES: Family = Family {
    name: "plexum_scrub_mismatch_bytes",
    kind: Kind::Gauge,
    labels: &["volume"],
    help: "Bytes that a scrub found different and that nobody has mended.",
};

/// Connections of clients.
pub static CLIENT_CONNECTIONS: Family = Family {
    name: "plexum_client_connections",
    kind: Kind::Gauge,
    labels: &["volume"],
    help: "Connections of clients.",
};

/// Requests of clients.
pub static REQUESTS_TOTAL: Family = Family {
    name: "plexum_requests_total",
    kind: Kind::Counter,
    labels: &["volume", "request"],
    help: "Requests of clients.",
};

/// Requests of clients that were answered with an error.
pub static REQUEST_ERRORS_TOTAL: Family = Family {
    name: "plexum_request_errors_total",
    kind: Kind::Counter,
    labels: &["volume"],
    help: "Requests of clients that were answered with an error.",
};

/// Reads and writes of clients, and how long they took.
pub static REQUEST_SECONDS: Family = Family {
    name: "plexum_request_seconds",
    kind: Kind::Summary,
    labels: &["volume", "direction"],
    help: "Reads and writes of clients, and how long they took.",
};

/// Bytes that clients read and wrote.
pub static REQUEST_BYTES_TOTAL: Family = Family {
    name: "plexum_request_bytes_total",
    kind: Kind::Counter,
    labels: &["volume", "direction"],
    help: "Bytes that clients read and wrote.",
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_ours_and_unique_and_those_of_counters_alone_end_as_such() {
        let mut names: Vec<&str> = ALL.iter().map(|family| family.name).collect();
        for family in ALL {
            assert!(family.name.starts_with("plexum_"), "{}", family.name);
            let is_counter = family.kind == Kind::Counter;
            assert_eq!(
                is_counter,
                family.name.ends_with("_total"),
                "{}",
                family.name
            );
            assert!(family.help.ends_with('.'), "{}", family.name);
        }
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), ALL.len());
    }
}
