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
    if args.wait {
        let status = wait(&client, screen)?;
        screen.done(format!(
            "{} has {} now",
            args.volume,
            show_bytes(status.size_bytes)
        ));
        follow(&asked["plan"], screen);
        return progress::outcome(&status);
    }
    screen.line(format!(
        "to see how far it is:   plexum status {}",
        args.volume
    ));
    Ok(0)
}

fn wait(client: &Client, screen: &Screen) -> Result<VolumeStatus, Problem> {
    let is_moving = |job: &&JobStatus| job.kind == JobKind::Reshape;
    progress::wait(client, screen, |status| {
        status.jobs.iter().find(is_moving).cloned()
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
            _ => screen.line(format!(
                "  {number}. it is called {} from then on; nothing moves",
                text(&station["to"])
            )),
        }
    }
    match (&plan["has_log"], &plan["gets_log_again"]) {
        (Value::Bool(true), Value::Bool(true)) => screen.line(
            "  the stripe log is off meanwhile, the bitmap stays; it is on again at the end",
        ),
        (Value::Bool(true), _) => screen.line(
            "  the stripe log is off from now on, the bitmap stays: there is no room for it afterwards",
        ),
        _ => {}
    }
    follow(plan, screen);
}

fn show_move(number: u32, station: &Value, screen: &Screen) {
    let shift = station["shift_bytes"].as_i64().unwrap_or_default();
    let (towards, from) = match shift < 0 {
        true => ("earlier", "beginning"),
        false => ("later", "end"),
    };
    let moved = station["moved_bytes"].as_u64().unwrap_or_default();
    screen.line(format!(
        "  {number}. all rows move, from the {from} on: data begin {} {towards} on each member",
        show_bytes(shift.unsigned_abs())
    ));
    let members = station["data_members"].as_u64().unwrap_or(1).max(1);
    let seconds = |rate: u64| moved / members / rate;
    let (slowest, fastest) = (seconds(MEMBER_RATES.0), seconds(MEMBER_RATES.1));
    let (least, most) = (minutes(fastest), minutes(slowest));
    let time = match least == most {
        true => format!("about {least}"),
        false => format!("{least} to {most}"),
    };
    screen.line(format!(
        "     {} are moved: {time} on disks, and clients go on",
        show_bytes(moved)
    ));
    screen.line("     a power cut: it goes on at the next start, here or with the Linux kernel");
    screen.line(
        "     a lost member: it goes on without it while redundancy lasts; else it stops, and goes on when it is back",
    );
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
