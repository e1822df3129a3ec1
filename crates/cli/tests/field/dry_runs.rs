//! A dry run goes the whole way to the first write and no further: it is refused for what the real thing is refused
//! for, in the same words, and where the real thing would go on nothing changes.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use plexum_testkit::{Unpacked, unpack_zfs_case};

use super::common::served::done;
use super::common::{Place, Run};
use super::serving::Server;

include!("dry_run_cases.rs");

const SMALL: &str = "name = \"small\"\nrepetitions = 1\n[setup]\nmembers = 2\nlevel = \"1\"\n[work]\nkind = \"random-read\"\nrequests = 5\n";

/// Volumes of every kind that the cases speak of.
struct Stage {
    place: Place,
    pool: Unpacked,
    looped: String,
    _servers: Vec<Server>,
}

impl Stage {
    fn new() -> Self {
        let place = Place::in_memory("dry-runs");
        let make = |words: &str| done(&place, &format!("create {words}"));
        make("nas --level 1 --member-size 24M --spare s.img a.img b.img");
        make("lame --level 1 --member-size 24M m.img n.img");
        make("flat --level 0 --member-size 24M f.img g.img");
        make("under --level 1 --member-size 24M u.img v.img");
        make("used --level 1 --member-size 24M used.img used2.img");
        for folder in ["gm", "gv", "mnt", "swap"] {
            std::fs::create_dir(place.file(folder)).unwrap();
        }
        make("gm0 --level 1 --format gmirror --member-size 2M gm/a gm/b");
        let text = "drive d0 device gv/d0\ndrive d1 device gv/d1\nvolume v\n  plex org concat\n    sd length 1m drive d0\n";
        std::fs::write(place.file("vinum.conf"), text).unwrap();
        make("-f vinum.conf --member-size 4M");
        done(&place, "pool create zp --member-size 64M zp.img");
        done(&place, "pool create-volume zp/old 1M zp.img");
        done(&place, "pool create-volume zp/free 1M zp.img");
        done(&place, "pool snapshot zp/old@s zp.img");
        done(
            &place,
            "pool create zm mirror --member-size 64M za.img zb.img",
        );
        for (name, size_bytes) in [
            ("new.img", 24 << 20),
            ("tiny.img", 1 << 20),
            ("looped.img", 24 << 20),
        ] {
            place.sparse(name, size_bytes);
        }
        std::fs::write(place.file("big.img"), vec![7; 80 << 20]).unwrap();
        std::fs::write(place.file("small.toml"), SMALL).unwrap();
        std::fs::write(place.file("wrong.toml"), "name = [\n").unwrap();
        done(&place, "lab run small.toml --out done");
        let looped = place.tool("losetup", "--find --show looped.img");
        let servers = [
            "a.img b.img s.img",
            "m.img n.img",
            "f.img g.img",
            "u.img v.img",
        ];
        let servers = servers.map(|words| Server::start(&place, words)).into();
        done(&place, "fail lame n.img");
        done(&place, "attach under --by fuse");
        Self {
            pool: unpack_zfs_case("z01_single_a12"),
            looped: looped.out.trim().to_owned(),
            place,
            _servers: servers,
        }
    }

    fn run(&self, words: &str) -> Run {
        let pool = self.pool.path("d0").display().to_string();
        let words = words
            .split(' ')
            .map(|word| if word == "Z" { &pool } else { word });
        self.place.plexum(&words.collect::<Vec<_>>().join(" "))
    }

    /// Everything in the folder.
    fn look(&self) -> BTreeMap<PathBuf, Look> {
        let mut found = BTreeMap::new();
        look_into(&self.place.folder, &mut found);
        found
    }
}

/// Size, space in use, and the parts of a file where metadata and the first data are.
type Look = (u64, u64, Vec<u8>);

const HEAD_BYTES: u64 = 2 << 20;
const TAIL_BYTES: u64 = 256 << 10;

fn look_into(folder: &Path, found: &mut BTreeMap<PathBuf, Look>) {
    for entry in std::fs::read_dir(folder).unwrap().flatten() {
        let path = entry.path();
        if path.ends_with("plexum/attach/under") {
            continue; // the volume itself
        }
        let meta = std::fs::symlink_metadata(&path).unwrap();
        let mut ends = Vec::new();
        if meta.is_file() {
            let mut file = File::open(&path).unwrap();
            (&mut file).take(HEAD_BYTES).read_to_end(&mut ends).unwrap();
            let tail = meta.size().saturating_sub(TAIL_BYTES);
            file.seek(SeekFrom::Start(tail)).unwrap();
            file.read_to_end(&mut ends).unwrap();
        }
        found.insert(path.clone(), (meta.size(), meta.blocks(), ends));
        if meta.is_dir() {
            look_into(&path, found);
        }
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        let _ = self.place.plexum("detach under");
        let _ = self.place.tool("losetup", &format!("-d {}", self.looped));
    }
}

/// The first line of a refusal, without what differs from run to run.
fn first_line(run: &Run) -> String {
    let line = run.err.lines().find(|line| line.starts_with("error"));
    let digits = |c: char| c.is_ascii_digit();
    let line = line.unwrap_or_default();
    match line.split_once(".plexum-") {
        Some((before, after)) => format!("{before}{}", after.trim_start_matches(digits)),
        None => line.to_owned(),
    }
}

#[test]
fn a_dry_run_of_every_command_is_refused_as_the_real_thing_and_changes_nothing() {
    let stage = Stage::new();
    let mut wrong = Vec::new();
    for case in CASES {
        for words in case.refused {
            assert!(words.starts_with(case.command), "{words}");
            let before = stage.look();
            let dry = stage.run(&format!("{words} --dry-run"));
            if stage.look() != before {
                wrong.push(format!("{words} --dry-run: something has changed"));
            }
            let real = stage.run(words);
            if real.exit == 0 || first_line(&real) != first_line(&dry) || real.exit != dry.exit {
                wrong.push(format!(
                    "{words}: {} {:?}, dry {} {:?}",
                    real.exit,
                    first_line(&real),
                    dry.exit,
                    first_line(&dry)
                ));
            }
        }
        for words in case.done {
            assert!(words.starts_with(case.command), "{words}");
            let before = stage.look();
            let dry = stage.run(&format!("{words} --dry-run"));
            if dry.exit > 1 {
                wrong.push(format!("{words} --dry-run: {} {}", dry.exit, dry.err));
            }
            let after = stage.look();
            for (path, looks) in &after {
                if before.get(path) != Some(looks) {
                    wrong.push(format!("{words} --dry-run: {} has changed", path.display()));
                }
            }
            if before.len() > after.len() {
                wrong.push(format!("{words} --dry-run: something is gone"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
