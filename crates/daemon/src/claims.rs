//! Whose a set is before anybody serves it: what udev is told of disks, so that the kernel's md leaves the sets of the
//! daemon alone.
//!
//! Invariants:
//! - a set is Plexum's from when the daemon was given it until it is forgotten, also while it is stopped;
//! - what cannot be read claims nothing, and keeps no disk from its way: all others are whose they were;
//! - the lists are plain text, a set a line, so that an initramfs needs no Plexum to read them.

use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::{self, Read, Write as _};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use crate::expected::Expected;
use crate::marks::read_marks;
use crate::memory::StateDir;
use crate::runtime_dir::RuntimeDir;

/// The list's name, in the folder that outlives the daemon and in the one that does not.
pub const LIST_NAME: &str = "claims";
/// Longest list that is read, in bytes: some thousand sets.
const LIST_BYTES_MAX: u64 = 1 << 20;
/// What udev calls a member of md.
const MD_MEMBER: &str = "linux_raid_member";

/// A set that is Plexum's.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Claim {
    /// The UUID of an md array in blkid's form, `6c1ab72b-6fd8-437a-9138-d1cd3f0c0324`.
    pub uuid: String,
    /// The volume's name.
    pub volume: String,
}

impl Claim {
    /// Of an expected volume; none where md has no such sets.
    #[must_use]
    pub fn of(expected: &Expected) -> Option<Self> {
        let is_md = expected.format.starts_with("md-");
        Some(Self {
            uuid: blkid_uuid(&expected.uuid).filter(|_| is_md)?,
            volume: expected.volume.clone(),
        })
    }
}

/// An md UUID in blkid's form, from either form; none for what is no UUID.
#[must_use]
pub fn blkid_uuid(text: &str) -> Option<String> {
    let digits: String = text.chars().filter(|c| !matches!(c, ':' | '-')).collect();
    let is_uuid = digits.len() == 32 && digits.bytes().all(|digit| digit.is_ascii_hexdigit());
    let digits = is_uuid.then(|| digits.to_ascii_lowercase())?;
    let groups = [0..8, 8..12, 12..16, 16..20, 20..32].map(|group| &digits[group]);
    Some(groups.join("-"))
}

/// All sets that are Plexum's: those that the daemon expects, and those of the list in the runtime folder, which an
/// initramfs has left there or `create` has put there.
#[must_use]
pub fn claims(state: Option<&StateDir>, runtime: &RuntimeDir) -> Vec<Claim> {
    let (expected, _) = state.map_or_else(Default::default, StateDir::expected);
    let mut claims: Vec<Claim> = expected.iter().filter_map(Claim::of).collect();
    claims.extend(read_list(&runtime.path().join(LIST_NAME)));
    claims.sort();
    claims.dedup_by(|one, other| one.uuid == other.uuid);
    claims
}

/// The sets in a list; lines that make no sense are passed over.
#[must_use]
pub fn read_list(path: &Path) -> Vec<Claim> {
    let mut text = String::new();
    let read =
        File::open(path).and_then(|file| file.take(LIST_BYTES_MAX).read_to_string(&mut text));
    if read.is_err() {
        return Vec::new();
    }
    let lines = text.lines().filter_map(|line| {
        let (uuid, volume) = line.split_once(' ').unwrap_or((line, ""));
        Some(Claim {
            uuid: blkid_uuid(uuid)?,
            volume: volume.to_owned(),
        })
    });
    lines.collect()
}

/// A list as text.
#[must_use]
pub(crate) fn list_text(claims: &[Claim]) -> String {
    let mut text = String::new();
    for claim in claims {
        // A name comes from a disk that anybody may have written.
        let volume: String = claim.volume.chars().filter(|c| !c.is_control()).collect();
        let _ = writeln!(text, "{} {volume}", claim.uuid);
    }
    text
}

/// Where the list of the daemon is.
#[must_use]
pub fn list_path(state: &StateDir) -> PathBuf {
    state.path().join(LIST_NAME)
}

/// Claims a set until the next start of the machine: one that is being made while a daemon runs, which is nobody's
/// until the daemon is given it.
///
/// # Errors
/// Of the file.
pub fn claim_for_now(runtime: &RuntimeDir, claim: &Claim) -> io::Result<()> {
    let mut options = File::options();
    let path = runtime.path().join(LIST_NAME);
    let mut file = options.append(true).create(true).mode(0o600).open(path)?;
    file.write_all(list_text(std::slice::from_ref(claim)).as_bytes())
}

/// Takes such a claim back.
///
/// # Errors
/// Of the file.
pub fn unclaim_for_now(runtime: &RuntimeDir, uuid: &str) -> io::Result<()> {
    let path = runtime.path().join(LIST_NAME);
    let mut claims = read_list(&path);
    let before = claims.len();
    claims.retain(|claim| Some(&claim.uuid) != blkid_uuid(uuid).as_ref());
    match claims.len() == before {
        true => Ok(()),
        false => fs::write(path, list_text(&claims)),
    }
}

/// What udev has found on a device.
#[derive(Clone, Debug, Default)]
pub struct Blkid {
    /// `ID_FS_TYPE`.
    pub kind: Option<String>,
    /// `ID_FS_UUID`: of a member of md the UUID of its array.
    pub uuid: Option<String>,
}

/// Which claim holds for a device: by what udev has found on it, else by what is on it.
#[must_use]
pub fn claim_on(device: &Path, blkid: &Blkid, claims: &[Claim]) -> Option<Claim> {
    let by_uuid = |uuid: &str| {
        let uuid = blkid_uuid(uuid)?;
        claims.iter().find(|claim| claim.uuid == uuid).cloned()
    };
    match (&blkid.kind, &blkid.uuid) {
        (Some(kind), Some(uuid)) if kind == MD_MEMBER => by_uuid(uuid),
        (Some(_), _) => None, // somebody else's
        _ if claims.is_empty() => None,
        _ => {
            let found = read_marks(device).ok()?;
            found.marks.iter().find_map(|mark| by_uuid(&mark.set))
        }
    }
}

/// What udev is told of a device: lines for `IMPORT{program}`. Nothing for what is not claimed.
#[must_use]
pub fn udev_lines(claim: &Claim) -> String {
    // udev takes what is in quotes as it is; a name with quotes in it is cut there.
    let volume = claim
        .volume
        .chars()
        .take_while(|c| !matches!(c, '"' | '\'' | '\\'));
    let volume: String = volume.filter(|c| !c.is_control()).collect();
    format!(
        "ID_FS_TYPE=plexum_member\nPLEXUM_VOLUME=\"{volume}\"\nPLEXUM_UUID={}\nUDISKS_IGNORE=1\n",
        claim.uuid
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    const MD: &str = "6c1ab72b:6fd8437a:9138d1cd:3f0c0324";
    const BLKID: &str = "6c1ab72b-6fd8-437a-9138-d1cd3f0c0324";

    fn claim(uuid: &str, volume: &str) -> Claim {
        Claim {
            uuid: uuid.into(),
            volume: volume.into(),
        }
    }

    #[test]
    fn a_uuid_is_the_same_in_both_forms_and_nothing_else_is_one() {
        assert_eq!(blkid_uuid(MD).as_deref(), Some(BLKID));
        assert_eq!(blkid_uuid(BLKID).as_deref(), Some(BLKID));
        assert_eq!(blkid_uuid(&MD.to_uppercase()).as_deref(), Some(BLKID));
        for wrong in [
            "",
            "0",
            "9af01c44",
            &MD[1..],
            &format!("{MD}0"),
            "zz1ab72b:6fd8437a:9138d1cd:3f0c0324",
        ] {
            assert_eq!(blkid_uuid(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn only_members_of_claimed_arrays_are_told_to_udev() {
        let claims = [claim(BLKID, "nas")];
        let on = |kind: &str, uuid: &str| {
            let blkid = Blkid {
                kind: Some(kind.into()),
                uuid: Some(uuid.into()),
            };
            claim_on(Path::new("/nowhere"), &blkid, &claims)
        };
        assert_eq!(on("linux_raid_member", BLKID), Some(claims[0].clone()));
        assert_eq!(
            on("linux_raid_member", "00000000-0000-0000-0000-000000000000"),
            None
        );
        assert_eq!(on("ext4", BLKID), None);
        let unknown = claim_on(Path::new("/nowhere"), &Blkid::default(), &claims);
        assert_eq!(unknown, None, "what cannot be read is nobody's");
    }

    #[test]
    fn a_name_from_a_disk_adds_no_line_of_its_own() {
        let evil = claim(BLKID, "nas\"\nSYSTEMD_WANTS=evil.service");
        assert_eq!(udev_lines(&evil).lines().count(), 4);
        assert!(udev_lines(&evil).contains("PLEXUM_VOLUME=\"nas\"\n"));
        assert_eq!(list_text(&[evil]).lines().count(), 1);
    }

    #[test]
    fn a_set_that_is_being_made_is_claimed_until_that_is_taken_back() {
        let home = tempfile::tempdir().unwrap();
        let runtime = RuntimeDir::at(home.path().to_owned());
        assert_eq!(claims(None, &runtime), []);
        claim_for_now(&runtime, &claim(BLKID, "nas")).unwrap();
        claim_for_now(&runtime, &claim(&BLKID.replace('6', "7"), "attic")).unwrap();
        let list = home.path().join(LIST_NAME);
        let text = fs::read_to_string(&list).unwrap();
        fs::write(&list, format!("{text}no uuid\n")).unwrap();
        assert_eq!(claims(None, &runtime).len(), 2);
        unclaim_for_now(&runtime, MD).unwrap();
        assert_eq!(
            claims(None, &runtime),
            [claim(&BLKID.replace('6', "7"), "attic")]
        );
    }
}
