//! `plexum doctor`: who gets which set at the next start of the machine, and why.

use std::path::PathBuf;

use plexum_daemon::claims::{blkid_uuid, claims, list_path};
use plexum_daemon::doctor::{FoundSet, Owner, Verdict, judge, read_rules};
use plexum_daemon::memory::{StateDir, Surroundings};
use serde_json::json;

use crate::args;
use crate::control::runtime_dir;
use crate::errors::Outcome;
use crate::output::{Screen, object, table};
use crate::sets::find_sets;

/// Runs the command. Exit code 1 when somebody else gets a set that the daemon expects.
///
/// # Errors
/// `NoSuchFile` for a place that does not exist.
pub fn run(args: &args::Doctor, screen: &Screen) -> Outcome {
    let state = StateDir::locate(&Surroundings::of_this_process());
    let list = state.as_ref().map(list_path).unwrap_or_default();
    let rules = read_rules(&args.root, &list);
    let claims = claims(state.as_ref(), &runtime_dir());
    let verdicts = judge(&rules, &claims, &found(&args.places)?);
    if verdicts.is_empty() {
        screen.line("no sets that both Plexum and md could take");
    } else {
        let head = ["SET", "GOES TO", "WHY"].map(str::to_owned).to_vec();
        let rows = verdicts.iter().map(row);
        let rows: Vec<Vec<String>> = std::iter::once(head).chain(rows).collect();
        for line in table(&rows) {
            screen.line(line);
        }
    }
    for verdict in &verdicts {
        for hint in &verdict.hints {
            screen.line(format!("  {}: {hint}", verdict.name));
        }
        let details = json!({"uuid": verdict.uuid, "owner": verdict.owner, "expected": verdict.is_expected,
            "why": verdict.why, "hints": verdict.hints});
        screen.object(&object("ownership", Some(&verdict.name), details));
    }
    if let Some(path) = &rules.stale_initramfs {
        let path: &PathBuf = path;
        screen.line(format!(
            "{} is older than the list of Plexum's sets: md may take them in it; to make it anew:   update-initramfs -u",
            path.display()
        ));
    }
    let ours = verdicts
        .iter()
        .filter(|verdict| verdict.owner == Owner::Plexum);
    if ours.count() > 0 {
        screen.line("when Plexum is removed from the machine, md gets these: they are arrays of its own format");
    }
    let is_bad = verdicts.iter().any(Verdict::is_bad) || rules.stale_initramfs.is_some();
    Ok(u8::from(is_bad))
}

fn row(verdict: &Verdict) -> Vec<String> {
    let owner = match verdict.owner {
        Owner::Plexum => "Plexum",
        Owner::Md if verdict.is_expected => "MD",
        Owner::Md => "md",
        Owner::Nobody => "nobody",
    };
    vec![verdict.name.clone(), owner.to_owned(), verdict.why.clone()]
}

/// md arrays on these places, or on all disks.
fn found(places: &[String]) -> Result<Vec<FoundSet>, plexum_daemon::problem::Problem> {
    let sets = find_sets(places)?.into_iter();
    let arrays = sets.filter_map(|set| {
        let first = &set.examined[0];
        let uuid = plexum_format::uuid::md_uuid_text(&first.superblock.as_ref()?.array_uuid);
        Some(FoundSet {
            name: first.volume_name(),
            uuid: blkid_uuid(&uuid)?,
            members: set.members.clone(),
        })
    });
    Ok(arrays.collect())
}
