//! Who gets which set when the machine starts next, and why: Plexum, the kernel's md, or nobody.
//!
//! Invariants:
//! - it is a judgement of what lies in files; nothing is written and nobody is asked;
//! - a set that the daemon expects and that md would get is never told as well.

use std::fs;
use std::path::{Path, PathBuf};

use crate::claims::{Claim, blkid_uuid};

/// Where udev looks for rules; the first file of a name counts.
const RULE_FOLDERS: [&str; 4] = [
    "etc/udev/rules.d",
    "run/udev/rules.d",
    "usr/lib/udev/rules.d",
    "lib/udev/rules.d",
];
/// Plexum's rule.
const OWN_RULE: &str = "63-plexum.rules";
/// md's rule.
const MD_RULE: &str = "64-md-raid-assembly.rules";
/// Where mdadm's configuration is.
const CONFIGS: [&str; 2] = ["etc/mdadm/mdadm.conf", "etc/mdadm.conf"];

/// A rule of udev.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Rule {
    /// There is none.
    Absent,
    /// An empty file, or a link to `/dev/null`: somebody has switched it off.
    SwitchedOff(PathBuf),
    /// It counts.
    There(PathBuf),
}

impl Rule {
    fn is_there(&self) -> bool {
        matches!(self, Rule::There(_))
    }
}

/// What mdadm's configuration says of arrays.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MdConfig {
    /// The file, when there is one.
    pub path: Option<PathBuf>,
    /// UUIDs of the arrays that it lists, in blkid's form.
    pub listed: Vec<String>,
    /// UUIDs of those that it says are to be left alone.
    pub ignored: Vec<String>,
    /// Nothing is assembled that it does not list (`AUTO -all`).
    pub is_listed_only: bool,
}

/// Everything that decides.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rules {
    /// Plexum's rule.
    pub own: Rule,
    /// md's rule.
    pub md: Rule,
    /// mdadm's configuration.
    pub config: MdConfig,
    /// An initramfs is older than the list of sets, or has none of it.
    pub stale_initramfs: Option<PathBuf>,
}

/// A set on the disks of this machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FoundSet {
    /// Its name.
    pub name: String,
    /// UUID of the array in blkid's form.
    pub uuid: String,
    /// Where its members are.
    pub members: Vec<String>,
}

/// Who gets a set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Owner {
    /// Plexum's daemon.
    Plexum,
    /// The kernel's md.
    Md,
    /// Nobody takes it by itself.
    Nobody,
}

/// The judgement on one set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// Name of the set.
    pub name: String,
    /// UUID of the array in blkid's form.
    pub uuid: String,
    /// Who gets it.
    pub owner: Owner,
    /// The daemon expects it.
    pub is_expected: bool,
    /// Why, in one sentence.
    pub why: String,
    /// What to do where that is not what is wanted.
    pub hints: Vec<String>,
}

impl Verdict {
    /// The daemon expects it, and somebody else gets it.
    #[must_use]
    pub fn is_bad(&self) -> bool {
        self.is_expected && self.owner != Owner::Plexum
    }
}

/// Reads what decides, below `root`. `list`: the daemon's list of sets, which an initramfs should have.
#[must_use]
pub fn read_rules(root: &Path, list: &Path) -> Rules {
    Rules {
        own: rule(root, OWN_RULE),
        md: rule(root, MD_RULE),
        config: config(root),
        stale_initramfs: stale_initramfs(root, list),
    }
}

fn rule(root: &Path, name: &str) -> Rule {
    let paths = RULE_FOLDERS.map(|folder| root.join(folder).join(name));
    let Some(path) = paths
        .into_iter()
        .find(|path| path.symlink_metadata().is_ok())
    else {
        return Rule::Absent;
    };
    // A link to /dev/null reads as an empty file.
    match fs::read(&path) {
        Ok(text) if !text.is_empty() => Rule::There(path),
        _ => Rule::SwitchedOff(path),
    }
}

fn config(root: &Path) -> MdConfig {
    let mut found = MdConfig::default();
    for path in CONFIGS.map(|path| root.join(path)) {
        if let Ok(text) = fs::read_to_string(&path) {
            read_config(&text, &mut found);
            found.path = Some(path);
            break;
        }
    }
    found
}

/// Understands what matters of mdadm's configuration. A line that begins with blanks goes on with the one before.
fn read_config(text: &str, found: &mut MdConfig) {
    let mut lines: Vec<String> = Vec::new();
    for line in text.lines() {
        let line = line.split('#').next().unwrap_or_default();
        match lines.last_mut() {
            Some(last) if line.starts_with([' ', '\t']) => last.push_str(line),
            _ => lines.push(line.to_owned()),
        }
    }
    for line in lines {
        let mut words = line.split_whitespace();
        match words.next().map(str::to_ascii_lowercase).as_deref() {
            Some("array") => {
                let words: Vec<&str> = words.collect();
                let is_ignored = words
                    .first()
                    .is_some_and(|word| word.eq_ignore_ascii_case("<ignore>"));
                let uuids = words.iter().filter_map(|word| {
                    let (key, value) = word.split_once('=')?;
                    key.eq_ignore_ascii_case("uuid").then_some(value)
                });
                let uuids = uuids.filter_map(blkid_uuid);
                match is_ignored {
                    true => found.ignored.extend(uuids),
                    false => found.listed.extend(uuids),
                }
            }
            Some("auto") => {
                found.is_listed_only |= words.any(|word| word.eq_ignore_ascii_case("-all"))
            }
            _ => {}
        }
    }
}

/// The newest initramfs, when it is older than the list of sets. Where mdadm is not in it nothing is taken there.
fn stale_initramfs(root: &Path, list: &Path) -> Option<PathBuf> {
    let has_md = root.join("usr/share/initramfs-tools/hooks/mdadm").exists();
    let changed = fs::metadata(list).and_then(|meta| meta.modified()).ok()?;
    let entries = fs::read_dir(root.join("boot")).ok()?.flatten();
    let images = entries.filter(|entry| {
        entry
            .file_name()
            .to_string_lossy()
            .starts_with("initrd.img-")
    });
    let dated =
        images.filter_map(|entry| Some((entry.metadata().ok()?.modified().ok()?, entry.path())));
    let (made, path) = dated.max()?;
    (has_md && made < changed).then_some(path)
}

/// Who gets each set: those on the disks, and those that the daemon expects and that are not there.
#[must_use]
pub fn judge(rules: &Rules, claims: &[Claim], found: &[FoundSet]) -> Vec<Verdict> {
    let mut sets: Vec<FoundSet> = found.to_vec();
    for claim in claims {
        if found.iter().all(|set| set.uuid != claim.uuid) {
            sets.push(FoundSet {
                name: claim.volume.clone(),
                uuid: claim.uuid.clone(),
                members: Vec::new(),
            });
        }
    }
    let is_claimed = |set: &FoundSet| claims.iter().any(|claim| claim.uuid == set.uuid);
    sets.iter()
        .map(|set| judge_one(rules, set, is_claimed(set)))
        .collect()
}

fn judge_one(rules: &Rules, set: &FoundSet, is_expected: bool) -> Verdict {
    let config = &rules.config;
    let shown = config
        .path
        .as_ref()
        .map_or_else(|| "mdadm.conf".into(), |path| path.display().to_string());
    let is_listed = config.listed.contains(&set.uuid);
    let is_left = config.ignored.contains(&set.uuid) || config.is_listed_only && !is_listed;
    let by_rule = rules.md.is_there() && !is_left;
    let ignore = format!(
        "to keep md off it:   ARRAY <ignore> UUID={} in {shown}",
        set.uuid
    );
    let (owner, why, hints) = match is_expected {
        true if is_listed => (
            Owner::Md,
            format!(
                "the daemon expects it, but {shown} lists it, and mdadm assembles what is listed"
            ),
            vec![
                format!("to leave it to Plexum, take its ARRAY line out of {shown}"),
                forget_hint(set),
            ],
        ),
        true if rules.own.is_there() => (
            Owner::Plexum,
            format!("the daemon expects it, and {OWN_RULE} keeps md off it"),
            vec![],
        ),
        true if !by_rule => (
            Owner::Plexum,
            match rules.md.is_there() {
                true => format!("the daemon expects it, and {shown} keeps md off it"),
                false => {
                    "the daemon expects it, and md assembles nothing by itself here".to_owned()
                }
            },
            vec![],
        ),
        true => (
            Owner::Md,
            why_unprotected(&rules.own),
            vec![ignore, forget_hint(set)],
        ),
        false if is_listed || by_rule => (
            Owner::Md,
            match is_listed {
                true => format!("{shown} lists it, and the daemon does not expect it"),
                false => "the daemon does not expect it, and md's rule takes it".to_owned(),
            },
            vec![serve_hint(set)],
        ),
        false => (
            Owner::Nobody,
            "the daemon does not expect it, and md leaves it alone".to_owned(),
            vec![serve_hint(set)],
        ),
    };
    Verdict {
        name: set.name.clone(),
        uuid: set.uuid.clone(),
        owner,
        is_expected,
        why,
        hints,
    }
}

/// Why Plexum's rule keeps md off nothing.
fn why_unprotected(own: &Rule) -> String {
    match own {
        Rule::SwitchedOff(path) => {
            let path = path.display();
            format!("the daemon expects it, but {path} switches Plexum's rule off")
        }
        _ => format!("the daemon expects it, but there is no {OWN_RULE}, and md's rule takes it"),
    }
}

fn serve_hint(set: &FoundSet) -> String {
    let members = set.members.join(" ");
    format!("to have the daemon serve it:   plexum serve {members}")
}

fn forget_hint(set: &FoundSet) -> String {
    format!("to leave it to md:   plexum forget {}", set.name)
}

#[cfg(test)]
mod tests {
    use super::*;

    const UUID: &str = "6c1ab72b-6fd8-437a-9138-d1cd3f0c0324";
    const MD_UUID: &str = "6c1ab72b:6fd8437a:9138d1cd:3f0c0324";

    fn put(root: &Path, path: &str, text: &str) {
        let path = root.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    /// Who gets the set, expected and not.
    fn owners(root: &Path) -> [Owner; 2] {
        let set = FoundSet {
            name: "nas".into(),
            uuid: UUID.into(),
            members: vec!["/dev/sda".into()],
        };
        let claim = Claim {
            uuid: UUID.into(),
            volume: "nas".into(),
        };
        let rules = read_rules(root, &root.join("list"));
        [vec![claim], vec![]].map(|claims| {
            let verdicts = judge(&rules, &claims, std::slice::from_ref(&set));
            assert_eq!(verdicts.len(), 1);
            assert_eq!(verdicts[0].is_expected, !claims.is_empty());
            verdicts[0].owner
        })
    }

    #[test]
    fn who_gets_a_set_follows_from_rules_and_configuration() {
        use Owner::{Md, Nobody, Plexum};
        let home = tempfile::tempdir().unwrap();
        let root = home.path();
        assert_eq!(owners(root), [Plexum, Nobody], "no md here");
        put(root, "usr/lib/udev/rules.d/64-md-raid-assembly.rules", "x");
        assert_eq!(owners(root), [Md, Md], "Plexum's rule is missing");
        put(root, "usr/lib/udev/rules.d/63-plexum.rules", "x");
        assert_eq!(owners(root), [Plexum, Md]);
        put(root, "etc/udev/rules.d/63-plexum.rules", "");
        assert_eq!(owners(root), [Md, Md], "it is switched off");
        put(
            root,
            "etc/mdadm/mdadm.conf",
            &format!("# ARRAY x\nARRAY <ignore>\n   UUID={MD_UUID}\n"),
        );
        assert_eq!(owners(root), [Plexum, Nobody]);
        put(root, "etc/mdadm/mdadm.conf", "AUTO -all\n");
        assert_eq!(owners(root), [Plexum, Nobody]);
        let listed = format!(
            "AUTO -all\narray /dev/md0 metadata=1.2 UUID={}\n",
            MD_UUID.to_uppercase()
        );
        put(root, "etc/mdadm/mdadm.conf", &listed);
        fs::remove_file(root.join("etc/udev/rules.d/63-plexum.rules")).unwrap();
        assert_eq!(
            owners(root),
            [Md, Md],
            "a listed one is assembled whatever udev says"
        );
    }

    #[test]
    fn a_set_that_is_expected_and_not_there_is_judged_as_well() {
        let home = tempfile::tempdir().unwrap();
        let rules = read_rules(home.path(), &home.path().join("list"));
        let claim = Claim {
            uuid: UUID.into(),
            volume: "attic".into(),
        };
        let verdicts = judge(&rules, &[claim], &[]);
        assert_eq!(
            (verdicts[0].name.as_str(), verdicts[0].is_bad()),
            ("attic", false)
        );
    }

    #[test]
    fn an_initramfs_that_is_older_than_the_list_is_told() {
        let home = tempfile::tempdir().unwrap();
        let root = home.path();
        put(root, "usr/share/initramfs-tools/hooks/mdadm", "x");
        put(root, "boot/initrd.img-6.1", "x");
        put(root, "list", "x");
        let date = |path: &str, seconds| {
            let time = std::time::SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(seconds);
            fs::File::options()
                .write(true)
                .open(root.join(path))
                .unwrap()
                .set_modified(time)
                .unwrap();
        };
        date("list", 100);
        for (seconds, is_stale) in [(99, true), (101, false)] {
            date("boot/initrd.img-6.1", seconds);
            let stale = read_rules(root, &root.join("list")).stale_initramfs;
            assert_eq!(stale.is_some(), is_stale);
        }
    }
}
