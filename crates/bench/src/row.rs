//! Rows of the table, and their medians.

use serde::Serialize;

use crate::load::Figures;
use crate::setup::{Case, MemberKind};

/// One row: what was measured, and the medians.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// One of [`crate::DETAILS`].
    pub group: &'static str,
    /// Organisation, or parity operation.
    pub what: String,
    /// `null`, `memory`, `file`; the instruction set for parity.
    pub members: String,
    /// Bytes of a request (a block).
    pub request_bytes: u64,
    /// Requests under way.
    pub depth: usize,
    /// `read`, `write`; empty for parity.
    pub direction: &'static str,
    /// Requests a second.
    pub iops: f64,
    /// Bytes a second.
    pub bytes_per_s: f64,
    /// CPU microseconds of a request, all of this process.
    pub cpu_us_per_io: f64,
    /// Measurements that the medians are of.
    pub rounds: usize,
}

impl Row {
    pub(crate) fn of(case: &Case, group: &'static str, figures: Vec<Figures>) -> Self {
        let members = match case.members {
            MemberKind::Null => "null",
            MemberKind::Memory => "memory",
            MemberKind::File => "file",
        };
        Self {
            group,
            what: case.label.to_owned(),
            members: members.to_owned(),
            request_bytes: case.pattern.request_bytes as u64,
            depth: case.pattern.depth,
            direction: if case.pattern.is_write {
                "write"
            } else {
                "read"
            },
            iops: median(figures.iter().map(|figure| figure.iops)),
            bytes_per_s: median(figures.iter().map(|figure| figure.bytes_per_s)),
            cpu_us_per_io: median(figures.iter().map(|figure| figure.cpu_us_per_io)),
            rounds: figures.len(),
        }
    }
}

/// Middle value; 0 of nothing.
pub(crate) fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(0.0)
}

/// The rows as an aligned text table.
#[must_use]
pub fn table(rows: &[Row]) -> String {
    let mut text = format!(
        "{:<12}{:<24}{:<10}{:>8}{:>7}  {:<6}{:>12}{:>10}{:>12}\n",
        "GROUP", "WHAT", "MEMBERS", "REQUEST", "DEPTH", "", "IOPS", "GB/s", "CPU us/IO"
    );
    for row in rows {
        let request = if row.request_bytes >= 1 << 20 {
            format!("{}M", row.request_bytes >> 20)
        } else {
            format!("{}K", row.request_bytes >> 10)
        };
        text += &format!(
            "{:<12}{:<24}{:<10}{:>8}{:>7}  {:<6}{:>12.0}{:>10.2}{:>12.2}\n",
            row.group,
            row.what,
            row.members,
            request,
            row.depth,
            row.direction,
            row.iops,
            row.bytes_per_s / 1e9,
            row.cpu_us_per_io
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::median;

    #[test]
    fn the_median_is_the_middle_and_not_the_mean() {
        assert_eq!(median([9.0, 1.0, 2.0].into_iter()), 2.0);
        assert_eq!(median(std::iter::empty()), 0.0);
    }
}
