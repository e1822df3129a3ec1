//! Group `engine`: what the engine itself costs, members that cost nothing, beside qemu's.
//!
//! CPU time of the whole process: the load generator is in it, as it is in `qemu-img bench`.

use std::path::Path as FilePath;
use std::process::Command;

use plexum_layout::{Organisation, Raid0Layout, Raid5Layout, Raid6Layout, Raid10Layout};

use crate::compare::{Probe, Role, Samples, take_turns};
use crate::load::{PATTERNS, Pattern};
use crate::process::{children_cpu_seconds, need_program, output};
use crate::setup::{Case, Consistency, MemberKind, Path};
use crate::{BenchError, BenchOptions, Progress, detail, layers};

/// Requests of one run of qemu: about a second, so that hundredths of it are fine enough.
const QEMU_REQUESTS: u32 = 500_000;

/// What stands beside a metric: qemu's image, and whether it is written.
type Beside = Option<(&'static str, String, bool)>;

/// Measures all rows by turns.
pub(crate) fn measure(options: &BenchOptions, samples: &mut Samples, progress: &mut Progress<'_>) {
    let qemu = need_program("qemu-img");
    let mut probes = Vec::new();
    for (metric, case, beside) in rows() {
        let name = "plexum".to_owned();
        probes.push(Probe {
            name,
            role: Role::Plexum,
            task: metric.to_owned(),
            measure: Box::new(move || {
                let figures = detail::once(options, &case)?;
                Ok(vec![(metric.to_owned(), "us CPU", figures.cpu_us_per_io)])
            }),
        });
        let Some((name, image, is_write)) = beside else {
            continue;
        };
        match &qemu {
            Ok(program) => probes.push(Probe {
                name: name.to_owned(),
                role: Role::Peer,
                task: metric.to_owned(),
                measure: Box::new(move || {
                    let cpu_us = qemu_cost(program, &image, is_write)?;
                    Ok(vec![(metric.to_owned(), "us CPU", cpu_us)])
                }),
            }),
            Err(error) => samples.skip(name, metric, error.to_string()),
        }
    }
    probes.extend(layers::probes(options));
    take_turns("engine", probes, options.rounds, samples, progress);
    samples.skip(
        "spdk",
        "engine",
        "no package; it needs a core of its own that it polls",
    );
}

fn rows() -> Vec<(&'static str, Case, Beside)> {
    let [read, write, ..] = PATTERNS;
    let row = Pattern {
        request_bytes: 192 << 10,
        depth: 8,
        is_write: true,
        is_sequential: true,
    };
    let stripe = Organisation::Raid0(Raid0Layout::Original);
    let raid10 = Organisation::Raid10(Raid10Layout::near(2));
    let raid5 = Organisation::Raid5(Raid5Layout::LeftSymmetric);
    let raid6 = Organisation::Raid6(Raid6Layout::LeftSymmetric);
    let single = |is_write| Some(("qemu, one member", null(""), is_write));
    let quorum = |is_write| Some(("qemu quorum", quorum_of_two(), is_write));
    let case = |organisation, member_count, pattern| Case {
        label: "engine alone",
        organisation,
        member_count,
        members: MemberKind::Null,
        path: Path::Direct,
        pattern,
        consistency: Consistency::Bitmap,
    };
    vec![
        ("stripe of 4: 4K read", case(stripe, 4, read), single(false)),
        (
            "stripe of 4: 4K write",
            case(stripe, 4, write),
            single(true),
        ),
        (
            "mirror of 2: 4K read",
            case(Organisation::Raid1, 2, read),
            quorum(false),
        ),
        (
            "mirror of 2: 4K write, bitmap",
            case(Organisation::Raid1, 2, write),
            quorum(true),
        ),
        ("RAID-10 of 4: 4K read", case(raid10, 4, read), None),
        (
            "RAID-10 of 4: 4K write, bitmap",
            case(raid10, 4, write),
            None,
        ),
        ("RAID-5 of 4: 4K write, bitmap", case(raid5, 4, write), None),
        ("RAID-6 of 6: 4K write, bitmap", case(raid6, 6, write), None),
        ("RAID-5 of 4: 192K row write", case(raid5, 4, row), None),
    ]
}

/// qemu's member that costs nothing, with this in front of its options.
fn null(prefix: &str) -> String {
    format!("{prefix}driver=null-co,{prefix}size=1G,{prefix}read-zeroes=off")
}

fn quorum_of_two() -> String {
    let (first, second) = (null("children.0."), null("children.1."));
    format!("driver=quorum,vote-threshold=1,read-pattern=fifo,{first},{second}")
}

/// CPU microseconds of one of qemu's requests.
fn qemu_cost(program: &FilePath, image: &str, is_write: bool) -> Result<f64, BenchError> {
    let mut command = Command::new(program);
    command.args(["bench", "-d", "32", "-s", "4096", "-c"]);
    command.arg(QEMU_REQUESTS.to_string());
    if is_write {
        command.arg("-w");
    }
    let before = children_cpu_seconds();
    output(command.args(["--image-opts", image]))?;
    Ok((children_cpu_seconds() - before) * 1e6 / f64::from(QEMU_REQUESTS))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn goals_of_this_group_name_what_is_measured_here() {
        let rows = rows();
        for goal in crate::goals::GOALS
            .iter()
            .filter(|goal| goal.group == "engine" && !goal.metric.starts_with(layers::ADDED))
        {
            let is_measured = rows.iter().any(|(metric, ..)| *metric == goal.metric);
            assert!(is_measured, "{}", goal.metric);
        }
    }
}
