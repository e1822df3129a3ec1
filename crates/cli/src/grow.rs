//! `plexum grow`: another shape of a volume that is served.

use plexum_daemon::control::Action;
use plexum_daemon::host::GrowWish;
use plexum_daemon::problem::Problem;
use plexum_daemon::status::{JobKind, JobStatus, VolumeStatus};
use serde_json::Value;

use crate::args::{Common, Grow};
use crate::client::Client;
use crate::errors::Outcome;
use crate::member_ops::member_word;
use crate::output::{Screen, object};
use crate::progress;
use crate::units::show_bytes;

/// What members on disk do beside clients, in bytes a second: the time that a plan gives is a range.
const MEMBER_RATES: (u64, u64) = (50 << 20, 200 << 20);

/// `plexum grow`.
///
/// # Errors
/// Of the server: what speaks against it, before anything has moved.
pub fn run(args: &Grow, common: &Common, screen: &Screen) -> Outcome {
    let wish = GrowWish {
        add: args.add.iter().map(|word| member_word(word)).collect(),
        members: args.members,
        level: args.level.clone(),
        layout: args.layout.clone(),
        strip_bytes: args.strip,
        size: args.size.clone(),
        revert: args.revert,
        force: args.force,
    };
    let client = Client::find(Some(&args.volume))?;
    let action = Action::Grow { wish };
    let asked = client.rehearse(&action)?;
    show(&args.volume, &asked["plan"], screen);
    if common.dry_run {
        screen.object(&object("plan", Some(&args.volume), asked["plan"].clone()));
        return Ok(0);
    }
    let answer = client.act_because(&action, common.why.as_deref())?;
    screen.done(answer["message"].as_str().unwrap_or_default());
    screen.object(&object("grow", Some(&args.volume), answer["plan"].clone()));
    let plan = &asked["plan"];
    let job = job_of(plan);
    if let (true, Some(job)) = (args.wait, job) {
        let status = wait(&client, job, screen)?;
        screen.done(format!(
            "{} has {} now",
            args.volume,
            show_bytes(status.size_bytes)
        ));
        follow(plan, screen);
        return progress::outcome(&status);
    }
    if job.is_some() {
        screen.line(format!(
            "to see how far it is:   plexum status {}",
            args.volume
        ));
    }
    Ok(0)
}

/// What goes on when a plan has begun; none where it has ended at once.
fn job_of(plan: &Value) -> Option<JobKind> {
    let stations = plan["stations"].as_array()?;
    let has = |kind: &str| stations.iter().any(|station| station["kind"] == kind);
    let resyncs = stations.iter().any(|station| station["resyncs"] == true);
    match () {
        () if has("move") => Some(JobKind::Reshape),
        () if has("fill") => Some(JobKind::Rebuild),
        () => resyncs.then_some(JobKind::Resync),
    }
}

fn wait(client: &Client, kind: JobKind, screen: &Screen) -> Result<VolumeStatus, Problem> {
    let is_it = |job: &&JobStatus| job.kind == kind;
    progress::wait(client, screen, |status| {
        status.jobs.iter().find(is_it).cloned()
    })
}

/// The plan in words.
fn show(volume: &str, plan: &Value, screen: &Screen) {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let bytes = |name: &str| plan[name].as_u64().unwrap_or_default();
    screen.line(format!("{volume}: {}", text(&plan["from"])));
    screen.line(format!("   to  {}", text(&plan["to"])));
    screen.line(format!(
        "  size  {} -> {}",
        show_bytes(bytes("before_bytes")),
        show_bytes(bytes("after_bytes"))
    ));
    let stations = plan["stations"].as_array().cloned().unwrap_or_default();
    for (number, station) in (1..).zip(&stations) {
        match station["kind"].as_str() {
            Some("move") => show_move(number, station, screen),
            Some("size") => show_size(number, station, screen),
            Some("fill") => show_fill(number, station, screen),
            Some("let_go") => show_let_go(number, station, screen),
            _ => screen.line(format!(
                "  {number}. it is called {} from then on; nothing moves",
                text(&station["to"])
            )),
        }
    }
    let lets_go = stations.iter().any(|station| station["kind"] == "let_go");
    match (&plan["has_log"], &plan["gets_log_again"]) {
        (Value::Bool(true), Value::Bool(true)) => screen.line(
            "  the stripe log is off meanwhile, the bitmap stays; it is on again at the end",
        ),
        (Value::Bool(true), _) if lets_go => screen.line("  the stripe log is off from now on"),
        (Value::Bool(true), _) => screen.line(
            "  the stripe log is off from now on, the bitmap stays: there is no room for it afterwards",
        ),
        _ => {}
    }
    let is_at_once = |station: &Value| matches!(station["kind"].as_str(), Some("relabel" | "fill"));
    if plan["goal_kept_in"] == "server" && !stations.iter().all(is_at_once) {
        screen.line(
            "  its members have no room to say where it leads: this server remembers it, and no other",
        );
    }
    follow(plan, screen);
}

fn show_fill(number: u32, station: &Value, screen: &Screen) {
    let bytes = station["new_bytes"].as_u64().unwrap_or_default();
    screen.line(format!(
        "  {number}. new members are filled with {} each: {} on disks, and clients go on",
        show_bytes(bytes),
        time_for(bytes)
    ));
}

fn show_let_go(number: u32, station: &Value, screen: &Screen) {
    let members = station["members"].as_array().cloned().unwrap_or_default();
    let names: Vec<&str> = members.iter().filter_map(Value::as_str).collect();
    screen.line(format!(
        "  {number}. {} is let go of, and the bitmap: from then on no lost member is survived",
        names.join(", ")
    ));
}

fn show_size(number: u32, station: &Value, screen: &Screen) {
    screen.line(format!(
        "  {number}. from then on it is {}; data stay where they are",
        station["to"].as_str().unwrap_or_default()
    ));
    if station["resyncs"] == true {
        let bytes = station["new_bytes"].as_u64().unwrap_or_default();
        let time = time_for(bytes);
        screen.line(format!(
            "     {} more of each member are made to agree: {time} on disks, and clients go on",
            show_bytes(bytes)
        ));
        screen.line("     a power cut: the rest of it is made to agree after the next start");
    }
}

fn show_move(number: u32, station: &Value, screen: &Screen) {
    let moved = station["moved_bytes"].as_u64().unwrap_or_default();
    match station["shift_bytes"].as_i64() {
        Some(shift) => {
            let (towards, from) = match shift < 0 {
                true => ("earlier", "beginning"),
                false => ("later", "end"),
            };
            screen.line(format!(
                "  {number}. all rows move, from the {from} on: data begin {} {towards} on each member",
                show_bytes(shift.unsigned_abs())
            ));
        }
        None => screen.line(format!(
            "  {number}. the rows that have moved go back, to {}",
            station["to"].as_str().unwrap_or_default()
        )),
    }
    let members = station["data_members"].as_u64().unwrap_or(1).max(1);
    let time = time_for(moved / members);
    screen.line(format!(
        "     {} are moved: {time} on disks, and clients go on",
        show_bytes(moved)
    ));
    screen.line("     a power cut: it goes on at the next start, here or with the Linux kernel");
    screen.line(
        "     a lost member: it goes on without it while redundancy lasts; else it stops, and goes on when it is back",
    );
}

/// How long so many bytes of each member take, beside clients.
fn time_for(member_bytes: u64) -> String {
    let (slowest, fastest) = (member_bytes / MEMBER_RATES.0, member_bytes / MEMBER_RATES.1);
    let (least, most) = (minutes(fastest), minutes(slowest));
    match least == most {
        true => format!("about {least}"),
        false => format!("{least} to {most}"),
    }
}

fn minutes(seconds: u64) -> String {
    match seconds {
        0..60 => "a minute".to_owned(),
        60..7200 => format!("{} minutes", seconds.div_ceil(60)),
        _ => format!("{} hours", seconds.div_ceil(3600)),
    }
}

/// How what lies on the volume gets the new size.
fn follow(plan: &Value, screen: &Screen) {
    if plan["after_bytes"].as_u64() <= plan["before_bytes"].as_u64() {
        return;
    }
    let command = match plan["content"].as_str() {
        Some("ext file system") => "resize2fs DEVICE",
        Some("XFS file system") => "xfs_growfs MOUNTPOINT",
        Some("btrfs file system") => "btrfs filesystem resize max MOUNTPOINT",
        Some("partition table") => "sgdisk -e DEVICE",
        _ => return,
    };
    screen.line(format!(
        "  the new size shows when clients connect again; then:   {command}"
    ));
}

#[cfg(test)]
mod tests {
    use super::minutes;

    #[test]
    fn times_are_rounded_up_to_what_people_wait_for() {
        assert_eq!(minutes(3), "a minute");
        assert_eq!(minutes(61), "2 minutes");
        assert_eq!(minutes(7201), "3 hours");
    }
}
