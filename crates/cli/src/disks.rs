//! `plexum disks`: which disk is in which slot, where it sits, whether a light is on, and how it is.

use std::time::{SystemTime, UNIX_EPOCH};

use plexum_daemon::disk::{DiskHealth, DiskSettings, DiskStatus, FormerDisk};
use plexum_daemon::memory::{self, StateDir};
use plexum_daemon::status::{MemberState, MemberStatus, VolumeStatus};
use plexum_inventory::{BayAddress, Light, Lit, Roots, read_light};
use serde_json::json;

use crate::args::Disks;
use crate::client::{Client, running_volumes};
use crate::errors::Outcome;
use crate::output::{Screen, object, table};
use crate::units::{show_seconds, show_time};

/// Runs the command.
///
/// # Errors
/// `NoSuchVolume` when the named one does not run and nothing was kept of its disks.
pub fn run(args: &Disks, screen: &Screen) -> Outcome {
    let mut listing = Listing::new(screen);
    match &args.volume {
        None => {
            for (_, status) in running_volumes() {
                listing.add_served(&status);
            }
        }
        Some(name) => match Client::find(Some(name)).and_then(|client| client.status()) {
            Ok(status) => listing.add_served(&status),
            Err(problem) => {
                let kept = kept_disks(name);
                if kept.is_empty() {
                    return Err(problem);
                }
                listing.add(name, &kept_lines(&kept));
            }
        },
    }
    listing.print();
    Ok(0)
}

/// The disks of a volume that is not served, as they were kept.
#[must_use]
pub fn kept_disks(volume: &str) -> Vec<FormerDisk> {
    let state = StateDir::locate(&memory::Surroundings::of_this_process());
    state.map_or_else(Vec::new, |state| state.disks_of(volume))
}

/// The same as lines.
#[must_use]
pub fn kept_lines(kept: &[FormerDisk]) -> Vec<Line<'_>> {
    let mut found: Vec<Line> = Vec::new();
    for former in kept {
        let line = Line::of_former(former, "not served");
        // Behind the one that counts stand those that had its slot before.
        let is_beside = found.iter().any(|before| before.slot == line.slot);
        found.push(Line { is_beside, ..line });
    }
    found
}

/// What is to be printed.
struct Listing<'a> {
    screen: &'a Screen,
    roots: Roots,
    rows: Vec<Vec<String>>,
    twins: Vec<String>,
}

impl<'a> Listing<'a> {
    fn new(screen: &'a Screen) -> Self {
        let head = [
            "VOLUME", "SLOT", "MEMBER", "STATE", "MODEL", "SERIAL", "BAY", "LIGHT", "HEALTH",
        ];
        Self {
            screen,
            roots: DiskSettings::of_this_process().roots,
            rows: vec![head.map(str::to_owned).to_vec()],
            twins: Vec::new(),
        }
    }

    fn add_served(&mut self, status: &VolumeStatus) {
        self.add(&status.volume, &lines(status));
        let findings = status.findings.iter();
        let twins = findings.filter(|finding| finding.code == "serial_not_unique");
        self.twins
            .extend(twins.map(|finding| format!("! {}", finding.message)));
    }

    fn add(&mut self, volume: &str, lines: &[Line]) {
        for line in lines {
            let light = line.disk.and_then(|disk| lights(&self.roots, disk));
            let fields = json!({"slot": line.slot, "state": line.state,
                "member": line.member, "disk": line.disk, "light": light});
            self.screen.object(&object("disk", Some(volume), fields));
            self.rows.push(line.cells(volume, light));
        }
    }

    fn print(&self) {
        match self.rows.len() {
            1 => self.screen.line("no volume is served, so no disk is known"),
            _ => table(&self.rows)
                .iter()
                .for_each(|line| self.screen.line(line)),
        }
        self.twins.iter().for_each(|line| self.screen.line(line));
    }
}

/// A member of a volume and its disk, or what was known of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Line<'a> {
    /// Slot; none for spares.
    pub slot: Option<u32>,
    /// Path, also the one that a member had which is gone.
    pub member: Option<&'a str>,
    /// State in a word.
    pub state: &'static str,
    /// Whether another one is in the slot, which counts.
    pub is_beside: bool,
    /// The disk.
    pub disk: Option<&'a DiskStatus>,
}

/// The members of a volume, and behind them the disks that were in its slots before.
#[must_use]
pub fn lines(status: &VolumeStatus) -> Vec<Line<'_>> {
    let members = status
        .members
        .iter()
        .filter(|one| !is_repeated(one, status));
    let members = members.map(|member| Line {
        slot: member.slot,
        member: member.path.as_deref().or(member.was.as_deref()),
        state: member.state.word(),
        is_beside: member.is_replacement,
        disk: member.disk.as_ref(),
    });
    let is_shown = |path: &str| {
        status
            .members
            .iter()
            .any(|one| one.path.as_deref() == Some(path))
    };
    let former = status
        .former_disks
        .iter()
        .filter(|former| !is_shown(&former.member));
    let former = former.map(|former| Line::of_former(former, "replaced"));
    members.chain(former).collect()
}

/// Whether an empty slot tells of the same disk: a member that failed stands beside the slot that it had.
fn is_repeated(member: &MemberStatus, status: &VolumeStatus) -> bool {
    let mut others = status.members.iter();
    member.slot.is_none()
        && member.state == MemberState::Faulty
        && others.any(|other| other.was.is_some() && other.was == member.path)
}

impl<'a> Line<'a> {
    /// A disk that is known from before, which was in its slot before the member that is in it now.
    fn of_former(former: &'a FormerDisk, state: &'static str) -> Self {
        Self {
            slot: Some(former.slot),
            member: Some(former.member.as_str()),
            state,
            is_beside: true,
            disk: Some(&former.disk),
        }
    }

    fn cells(&self, volume: &str, light: Option<&'static str>) -> Vec<String> {
        let disk = self.disk;
        let shown = |text: Option<String>| text.unwrap_or_else(|| "-".to_owned());
        vec![
            volume.to_owned(),
            shown(self.slot.map(|slot| slot.to_string())),
            shown(self.member.map(str::to_owned)),
            match disk.and_then(last_seen) {
                Some(seen) => format!("{}, {seen}", self.state),
                None => self.state.to_owned(),
            },
            shown(disk.and_then(|disk| disk.model.clone())),
            shown(disk.and_then(|disk| disk.serial.clone())),
            shown(disk.and_then(bay)),
            shown(light.map(str::to_owned)),
            shown(disk.and_then(|disk| disk.health.as_ref().map(health))),
        ]
    }
}

/// When a disk that is gone was last seen, in words.
#[must_use]
pub fn last_seen(disk: &DiskStatus) -> Option<String> {
    let at = disk.last_seen_s.filter(|_| disk.is_gone)?;
    Some(format!("last seen {} UTC", show_time(at)))
}

/// What the bay is called in a table.
#[must_use]
pub fn bay(disk: &DiskStatus) -> Option<String> {
    let bay = disk.bay.as_ref()?;
    match bay.address {
        // The way to a disk is long and tells nobody where it is: it is in the JSON.
        BayAddress::Path { .. } => None,
        _ => Some(bay.number.clone()),
    }
}

/// The verdict, and how old it is.
fn health(health: &DiskHealth) -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let now_s = now.map_or(0, |since| since.as_secs());
    let age = show_seconds(now_s.saturating_sub(health.read_s));
    format!("{} ({age} ago)", health.words)
}

/// Which lights are on; none where no light can be reached.
fn lights(roots: &Roots, disk: &DiskStatus) -> Option<&'static str> {
    let bay = disk.bay.as_ref()?;
    let is_on = |light| read_light(roots, &bay.address, light).map(|lit| lit == Lit::On);
    match (is_on(Light::Locate), is_on(Light::Fault)) {
        (Err(_), Err(_)) => None,
        (Ok(true), Ok(true)) => Some("locate, fault"),
        (Ok(true), _) => Some("locate"),
        (_, Ok(true)) => Some("fault"),
        _ => Some("off"),
    }
}
