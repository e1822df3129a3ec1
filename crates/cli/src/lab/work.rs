//! `plexum lab work`: one workload, on simulated disks or on something real.

use plexum_daemon::problem::Problem;
use plexum_lab::iostat;
use plexum_lab::report::inside::checks_table;
use plexum_lab::report::table::Table;
use plexum_lab::setup::Setup;
use plexum_lab::work::program::{measure_program, rehearse_program};
use plexum_lab::work::real::{On, measure_on, rehearse_on};
use plexum_lab::work::{KINDS, Measurement, Work as LabWork, measure};
use serde_json::json;

use super::{print, problem};
use crate::args::Common;
use crate::args::lab::{ManyFiles, Work};
use crate::errors::Outcome;
use crate::output::{Screen, object};

/// Runs `plexum lab work`.
///
/// # Errors
/// `Usage` for what cannot be, `WouldDestroy` for a workload that would write to what was not named for it.
pub fn run(args: &Work, common: &Common, screen: &Screen) -> Outcome {
    if args.kind == "list" {
        let mut table = Table::new("", &["workload", "what it does"]);
        for (kind, about) in KINDS {
            table.push(vec![json!(kind), json!(about)]);
        }
        print(&table, "lab_workload", &args.format, screen)?;
        return Ok(0);
    }
    let work = work_of(args);
    let told = |error| problem(&error);
    if let Some(name) = &args.on {
        let on = On {
            name,
            destroy: args.destroy.as_deref(),
        };
        if common.dry_run {
            let checked = match args.real {
                true => rehearse_program(&on, &work),
                false => rehearse_on(&on, &work, args.seed),
            };
            checked.map_err(told)?;
            screen.line(format!("would run {} on {name}", work.kind));
            let fields =
                json!({"command": "lab work", "on": name, "destroy": args.destroy, "work": work});
            screen.object(&object("plan", None, fields));
            return Ok(0);
        }
        let seen = if args.real {
            measure_program(&on, &work, args.seed)
        } else {
            measure_on(&on, &work, args.seed)
        };
        let seen = seen.map_err(told)?;
        let head = json!({"on": name, "is_real_program": args.real, "work": work, "seed": args.seed, "result": seen});
        show_measurement(name, head, &work, &seen, args, screen)?;
        return Ok(0);
    }
    let setup = Setup {
        disks: args.disk.clone(),
        members: args.members,
        level: args.level.clone(),
        layout: args.layout.clone(),
        strip_bytes: args.strip,
        balance: args.balance.clone(),
        has_bitmap: !args.no_bitmap,
        consistency: args.consistency.clone().unwrap_or_default(),
        queue_depth: args.queue_depth,
        member_bytes: args.member_size_bytes.unwrap_or(0),
        ..Setup::default()
    };
    let seen = measure(&setup, &work, args.seed).map_err(told)?;
    let head = json!({"setup": setup, "work": work, "seed": args.seed, "result": seen});
    show_measurement(&setup.label(), head, &work, &seen, args, screen)?;
    Ok(0)
}

fn work_of(args: &Work) -> LabWork {
    let files = match args.kind.as_str() {
        "bonnie++" => args.files,
        _ => ManyFiles::default(),
    };
    LabWork {
        kind: args.kind.clone(),
        block_bytes: args.block,
        processes: args.processes,
        depth: args.depth,
        requests: args.requests,
        read_percent: args.read_percent,
        group_bytes: args.group,
        range_bytes: args.range.unwrap_or(0),
        is_sync: args.sync,
        has_vinum_mix: args.vinum_mix,
        file: args.file.clone(),
        host: args.host.clone(),
        files: files.count,
        files_bytes: files.bytes_max,
        files_bytes_min: files.bytes_min,
        file_folders: files.folders,
        is_auto: args.auto,
        ..LabWork::default()
    }
}

fn show_measurement(
    label: &str,
    fields: serde_json::Value,
    work: &LabWork,
    seen: &Measurement,
    args: &Work,
    screen: &Screen,
) -> Result<(), Problem> {
    for note in &seen.notes {
        screen.note(note);
    }
    screen.object(&object("lab_measurement", None, fields));
    if screen.is_json {
        return Ok(());
    }
    let mut table = Table::new("", &["arrangement", "workload", "figure", "value", "unit"]);
    for figure in &seen.figures {
        table.push(vec![
            json!(label),
            json!(work.kind),
            json!(figure.name),
            json!((figure.value * 100.0).round() / 100.0),
            json!(figure.unit),
        ]);
    }
    print(&table, "lab_figure", &args.format, screen)?;
    if args.format != "text" {
        return Ok(());
    }
    if !seen.classic.is_empty() {
        screen.line(format!("\n{}", seen.classic.trim_end()));
    }
    for (name, latency) in [("reads", &seen.reads), ("writes", &seen.writes)] {
        if latency.count > 0 {
            screen.line(format!(
                "\n{name}: {} requests, mean {:.0} us, median {:.0}, 90 % {:.0}, 99 % {:.0}, 99.9 % {:.0}, worst {:.0}",
                latency.count,
                latency.mean_us,
                latency.p50_us,
                latency.p90_us,
                latency.p99_us,
                latency.p999_us,
                latency.max_us
            ));
        }
    }
    if screen.verbosity > 0 && !seen.inside.checks.is_empty() {
        let checks: Vec<_> = seen.inside.checks.iter().collect();
        screen.line(format!("\n{}", checks_table(&checks).text().trim_end()));
    }
    if seen.members.is_empty() {
        return Ok(());
    }
    screen.line(format!("\n{}", iostat::freebsd(&seen.members).trim_end()));
    screen.line(format!("\n{}", iostat::linux(&seen.members).trim_end()));
    screen.line(format!("\n{}", iostat::reasons(&seen.members).trim_end()));
    Ok(())
}
