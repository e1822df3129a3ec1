//! Tiny pools made by the tests: loops, gangs, things to refuse, and damage behind good checksums.

use std::collections::BTreeSet;

use crate::common::tiny::{Memory, open, open_all, open_with, spread};
use plexum_format::zfs::checksum::seal_embedded;
use plexum_format::zfs::{LABEL_BYTES, LabelArea};
use plexum_testkit::block_on;
use plexum_testkit::tiny_pool::{
    DIRECTORY, DIRECTORY_ENTRY, FILE, FILE_ENTRY, Pointer, Tiny, dnode, pointer_of, zap, znode,
};
use plexum_zfs::{DEPTH_MAX, DatasetName, OpenOptions, Pool, ZfsError};

fn simple(checksum: u64) -> Tiny {
    let mut tiny = Tiny::new(checksum);
    let file = tiny.block(&[7; 512], 0);
    let system = tiny.looped_system(file, 300);
    tiny.finish_with(system, None);
    tiny
}

fn read(pool: &Pool<Memory>, path: &str) -> Result<Vec<u8>, ZfsError> {
    let system = block_on(pool.file_system(&DatasetName::parse("tiny")))?;
    let node = block_on(system.lookup(path.as_bytes()))?;
    block_on(system.read(&node, 0, 1 << 20))
}

#[test]
fn loops_of_data_sets_and_directories_end() {
    let pool = open(simple(7).member).unwrap();
    let names: Vec<String> = block_on(pool.datasets())
        .unwrap()
        .iter()
        .map(|one| one.name.to_string())
        .collect();
    assert_eq!(names, ["tiny"]);
    assert_eq!(read(&pool, "/sub/up/self/sub/b").unwrap(), [7; 300]);
    let report = block_on(pool.scrub(&mut |_| {})).unwrap();
    assert!(report.is_clean(), "{:?}", report.spoilt);
}

/// All steps of a walk from the root: paths and whether something could be read there.
fn steps(pool: &Pool<Memory>) -> Vec<(String, Result<(), String>)> {
    let system = block_on(pool.file_system(&DatasetName::parse("tiny"))).unwrap();
    let mut walk = system.walk(system.root());
    let mut steps = Vec::new();
    while let Some((place, node)) = block_on(walk.next()) {
        steps.push((
            place.shown(),
            node.map(drop).map_err(|error| error.to_string()),
        ));
    }
    steps
}

#[test]
fn a_walk_enters_a_folder_once_and_names_the_place_where_it_is_linked_again() {
    let pool = open(simple(7).member).unwrap();
    let twice = |path: &str| Err(format!("tiny:{path}: it is linked into the tree twice"));
    let expected = [
        ("/", Ok(())),
        ("/a", Ok(())),
        ("/self", twice("/self")),
        ("/sub", Ok(())),
        ("/sub/b", Ok(())),
        ("/sub/up", twice("/sub/up")),
    ];
    let expected = expected.map(|(path, step)| (path.to_owned(), step));
    assert_eq!(steps(&pool), expected);
}

#[test]
fn a_walk_goes_down_to_a_depth_and_says_where_it_stopped() {
    let folders = DEPTH_MAX as u64 + 10;
    let mut tiny = Tiny::new(7);
    let mut objects = vec![vec![0; 512]];
    for number in 3..3 + folders {
        let below = tiny.block(&zap(&[("d", DIRECTORY_ENTRY | (number + 1))]), 0);
        objects.push(dnode(20, 512, &[below], 17, &znode(DIRECTORY, 1)));
    }
    let system = tiny.file_system(&objects);
    tiny.finish_with(system, None);
    let steps = steps(&open(tiny.member).unwrap());
    assert_eq!(steps.len(), DEPTH_MAX + 2, "the root, and one too deep");
    let (last, entered) = steps.split_last().unwrap();
    assert!(entered.iter().all(|(_, step)| step.is_ok()));
    let reason = last.1.as_ref().unwrap_err();
    assert!(
        reason.ends_with("it is below 1024 other folders"),
        "{reason}"
    );
}

#[test]
fn a_gang_block_is_put_together_from_its_parts() {
    for damage in [None, Some(0), Some(2 * 512)] {
        let mut tiny = Tiny::new(7);
        let bytes: Vec<u8> = (0..1024).map(|n| (n / 3) as u8).collect();
        let parts = [tiny.block(&bytes[..512], 0), tiny.block(&bytes[512..], 0)];
        let mut header = [parts[0].as_slice(), &parts[1], &[0; 128], &[0; 128]].concat();
        let at = tiny.used;
        seal_embedded(&mut header, [0, at as u64, 10, 0]);
        tiny.put(&header);
        let file = tiny.gang_pointer(at, &bytes, 0);
        let master = file_system_with_block_bytes(&mut tiny, file, 1024);
        tiny.finish_with(master, None);
        if let Some(offset) = damage {
            tiny.member[(4 << 20) + offset] ^= 1;
        }
        let pool = open(tiny.member.clone()).unwrap();
        match (read(&pool, "/a"), damage) {
            (Ok(read), None) => assert_eq!(read, bytes),
            (Err(ZfsError::Damaged { .. }), Some(_)) => {}
            (other, damage) => panic!("{damage:?}: {other:?}"),
        }
    }
}

fn file_system_with_block_bytes(tiny: &mut Tiny, file: Pointer, file_bytes: usize) -> Pointer {
    let root = tiny.block(&zap(&[("a", FILE_ENTRY | 4)]), 0);
    tiny.file_system(&[
        vec![0; 512],
        dnode(20, 512, &[root], 17, &znode(DIRECTORY, 1)),
        dnode(19, file_bytes, &[file], 17, &znode(FILE, file_bytes as u64)),
    ])
}

#[test]
fn what_is_refused_is_named_and_the_rest_stays_readable() {
    let mut tiny = Tiny::new(7);
    let file = tiny.block(&[7; 512], 0);
    let system = tiny.looped_system(file, 300);
    let mut encrypted = system;
    encrypted[55] |= 0x20; // bit 61 of word 6
    tiny.finish_with(system, Some(encrypted));
    let pool = open(tiny.member.clone()).unwrap();
    let datasets = block_on(pool.datasets()).unwrap();
    let problem = datasets[1].problem.as_ref().unwrap();
    assert!(
        problem.is_refusal() && problem.to_string().contains("tiny/other"),
        "{problem}"
    );
    assert!(problem.to_string().contains("encrypted"), "{problem}");
    assert_eq!(read(&pool, "/a").unwrap(), [7; 300]);

    let mut tiny = Tiny::new(7);
    let mut skein = tiny.block(&[7; 512], 0);
    skein[53] = 12; // bits 40 to 47 of word 6
    let system = tiny.looped_system(skein, 300);
    tiny.finish_with(system, None);
    let error = read(&open(tiny.member.clone()).unwrap(), "/a").unwrap_err();
    assert!(
        error.is_refusal() && error.to_string().contains("skein"),
        "{error}"
    );
}

#[test]
fn unknown_features_and_kinds_of_plexes_refuse_the_pool_by_name() {
    let mut tiny = Tiny::new(7);
    tiny.features = vec!["org.open-zfs:large_blocks", "com.example:from_the_future"];
    let file = tiny.block(&[7; 512], 0);
    let system = tiny.looped_system(file, 300);
    tiny.finish_with(system, None);
    let error = open(tiny.member.clone()).err().unwrap().to_string();
    assert!(
        error.contains("com.example:from_the_future") && !error.contains("large_blocks"),
        "{error}"
    );
    for (kind, words) in [
        ("draid", "dRAID"),
        ("indirect", "removed"),
        ("strange", "strange"),
    ] {
        tiny.features.clear();
        tiny.plex_kind = kind;
        let root = tiny.block(&[0; 1024], 0);
        tiny.finish(root);
        let error = open(tiny.member.clone()).err().unwrap().to_string();
        assert!(error.contains(words), "{kind}: {error}");
    }
}

/// Everything that a reader does, with limits: no answer is expected, only an end.
fn exercise(pool: &Pool<Memory>) {
    let _listed = block_on(pool.datasets());
    let _report = block_on(pool.scrub(&mut |_| {}));
    let Ok(system) = block_on(pool.file_system(&DatasetName::parse("tiny"))) else {
        return;
    };
    let mut work = vec![system.root()];
    let mut seen = BTreeSet::new();
    while let Some(number) = work.pop() {
        if seen.len() > 100 || !seen.insert(number) {
            continue;
        }
        let Ok(node) = block_on(system.node(number)) else {
            continue;
        };
        let _bytes = block_on(system.read(&node, 0, 4096));
        let _target = block_on(system.link_target(&node));
        work.extend(
            block_on(system.entries(&node))
                .unwrap_or_default()
                .iter()
                .map(|entry| entry.object),
        );
    }
}

struct Dice(u64);

impl Dice {
    fn below(&mut self, limit: usize) -> usize {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % limit
    }
}

#[test]
fn damage_behind_good_checksums_never_panics_or_hangs() {
    let tiny = simple(2); // no checksums: everything gets through
    let mut dice = Dice(1);
    let mut opened = 0;
    for _ in 0..500 {
        let mut member = tiny.member.clone();
        for _ in 0..1 + dice.below(6) {
            let at = (4 << 20) + dice.below(tiny.used);
            member[at] = match dice.below(3) {
                0 => 0xff,
                1 => member[at] ^ 1 << dice.below(8),
                _ => dice.below(256) as u8,
            };
        }
        if let Ok(pool) = open(member) {
            opened += 1;
            exercise(&pool);
        }
    }
    assert!(opened > 150, "{opened} pools could be opened");
}

#[test]
fn a_file_of_exabytes_and_pointers_to_themselves_end() {
    let mut tiny = Tiny::new(2);
    // An indirect block whose pointers all lead to itself.
    let at = tiny.used as u64 / 512;
    let prop = 1 | 1 << 16 | 2 << 32 | 2 << 40 | 19 << 48 | 1 << 56 | 1 << 63;
    let mut words = [0; 16];
    (words[0], words[1], words[6], words[10]) = (2, at, prop, 10);
    let own = pointer_of(&words);
    tiny.put(&own.repeat(8));
    let root = tiny.block(&zap(&[("a", FILE_ENTRY | 4)]), 0);
    let mut file = dnode(19, 512, &[own], 17, &znode(FILE, 1 << 62));
    (file[1], file[2]) = (10, 12);
    file[16..24].fill(0x7f);
    let system = tiny.file_system(&[
        vec![0; 512],
        dnode(20, 512, &[root], 17, &znode(DIRECTORY, 1)),
        file,
    ]);
    tiny.finish_with(system, None);
    let pool = open(tiny.member.clone()).unwrap();
    exercise(&pool);
    let system = block_on(pool.file_system(&DatasetName::parse("tiny"))).unwrap();
    let node = block_on(system.lookup(b"/a")).unwrap();
    assert!(block_on(system.reader(&node, "a").next()).is_err());
}

#[test]
fn damaged_labels_are_refused_without_harm() {
    let tiny = simple(7);
    let mut dice = Dice(2);
    let mut refused = 0;
    for round in 0..4000 {
        let mut label = tiny.member[..LABEL_BYTES].to_vec();
        for _ in 0..1 + dice.below(8) {
            let at = (16 << 10) + dice.below(700);
            label[at] = if round % 2 == 0 {
                dice.below(256) as u8
            } else {
                label[at] ^ 1 << dice.below(8)
            };
        }
        seal_embedded(&mut label[16 << 10..128 << 10], [16 << 10, 0, 0, 0]);
        refused += usize::from(LabelArea::parse(&label, 0).label.is_err());
    }
    assert!(refused > 100, "{refused}");
}

#[test]
fn a_member_in_a_partition_is_found() {
    let tiny = simple(7);
    let start = 1 << 20;
    let mut disk = vec![0; start + tiny.member.len() + (1 << 20)];
    disk[start..start + tiny.member.len()].copy_from_slice(&tiny.member);
    disk[512..520].copy_from_slice(b"EFI PART");
    disk[512 + 72] = 2;
    disk[512 + 80] = 128;
    disk[512 + 84] = 128;
    disk[1024] = 1;
    disk[1024 + 32..1024 + 40].copy_from_slice(&2048_u64.to_le_bytes());
    let last = (start + tiny.member.len()) as u64 / 512 - 1;
    disk[1024 + 40..1024 + 48].copy_from_slice(&last.to_le_bytes());
    let pool = open(disk).unwrap();
    assert_eq!(pool.report.members[0].name.as_deref(), Some("member0:p1"));
    assert_eq!(read(&pool, "/a").unwrap(), [7; 300]);
}

/// No recorded pool has sectors of 1, 2 or 8 KiB: this one is constructed.
#[test]
fn sectors_from_512_bytes_to_8_kib_are_read() {
    for ashift in 9..=13 {
        let mut tiny = Tiny::new(7);
        tiny.ashift = ashift;
        let file = tiny.block(&[ashift as u8; 512], 0);
        let system = tiny.looped_system(file, 300);
        tiny.finish_with(system, None);
        let pool = open(tiny.member.clone()).unwrap();
        assert_eq!(read(&pool, "/a").unwrap(), [ashift as u8; 300]);
        assert!(block_on(pool.scrub(&mut |_| {})).unwrap().is_clean());
    }
}

/// Constructed, by columns and bit loops: the recorded ones have sectors of 512 and 4096 bytes.
#[test]
fn raid_z_with_sectors_from_512_bytes_to_8_kib_is_read_without_as_many_members_as_parities() {
    for (ashift, parities) in (9..=13).flat_map(|ashift| [(ashift, 1), (ashift, 2), (ashift, 3)]) {
        let mut tiny = Tiny::new(7);
        (tiny.plex_kind, tiny.ashift) = ("raidz", ashift);
        (tiny.width, tiny.parities) = (parities + 3, parities);
        let bytes: Vec<u8> = (0..128_u32 << 10).map(|n| ((n / 7) ^ n) as u8).collect();
        let file = tiny.block(&bytes, 0);
        let system = file_system_with_block_bytes(&mut tiny, file, bytes.len());
        let root = tiny.finish_with(system, None);
        let members = spread(&mut tiny, root);
        let whole = open_all(members.clone()).unwrap();
        assert!(block_on(whole.scrub(&mut |_| {})).unwrap().is_clean());
        for first in 0..members.len() {
            let lost: Vec<usize> = (0..parities).map(|n| (first + n) % members.len()).collect();
            let left = (0..members.len()).filter(|slot| !lost.contains(slot));
            let pool = open_all(left.map(|slot| members[slot].clone()).collect()).unwrap();
            assert!(read(&pool, "/a").unwrap() == bytes, "{ashift} {lost:?}");
        }
    }
}

/// A pool with a younger root that needs all members and an older one that a single member has whole.
#[test]
fn an_older_root_is_not_taken_for_the_last_when_members_are_missing() {
    let unpacked = plexum_testkit::unpack_zfs_case("z03_raidz1_3_a12_gzip");
    let one = || vec![std::fs::read(unpacked.path("d0")).unwrap()];
    let error = open_all(one()).err().unwrap().to_string();
    assert!(
        error.contains("transaction group 37") && error.contains("too many members are missing"),
        "{error}"
    );
    let asked = OpenOptions { txg: Some(9) };
    let pool = open_with(one(), &asked).unwrap();
    assert_eq!(pool.report.root.txg, 9, "asked for, it is read");
}

/// Constructed: OpenZFS 2.1 cannot expand RAID-Z. The word of the uberblock says that an expansion is under way.
#[test]
fn raid_z_that_was_or_is_being_expanded_is_refused_by_name() {
    for (is_under_way, words) in [(false, "was expanded"), (true, "being expanded")] {
        let mut tiny = Tiny::new(7);
        let file = tiny.block(&[7; 512], 0);
        let system = tiny.looped_system(file, 300);
        tiny.plex_kind = "raidz";
        tiny.is_expanding = is_under_way;
        tiny.is_expanded = !is_under_way;
        tiny.finish_with(system, None);
        let error = open(tiny.member.clone()).err().unwrap().to_string();
        assert!(error.contains(words), "{error}");
    }
}

/// Constructed: a data set that lies on a plex that cannot be read, in a pool whose other plex is fine.
#[test]
fn what_lies_on_an_unreadable_plex_is_refused_and_the_rest_is_read() {
    let mut tiny = Tiny::new(7);
    let file = tiny.block(&[7; 512], 0);
    let system = tiny.looped_system(file, 300);
    let mut elsewhere = system;
    elsewhere[4] = 1; // the plex of the first copy
    tiny.plex_count = 2;
    tiny.finish_with(system, Some(elsewhere));
    let pool = open(tiny.member.clone()).unwrap();
    let datasets = block_on(pool.datasets()).unwrap();
    let problem = datasets[1].problem.as_ref().unwrap().to_string();
    assert!(
        problem.contains("tiny/other") && problem.contains("plex 1"),
        "{problem}"
    );
    assert!(pool.report.notes.iter().any(|note| note.contains("plex 1")));
    assert_eq!(read(&pool, "/a").unwrap(), [7; 300]);
}

/// Constructed: every recorded pool was exported.
#[test]
fn a_pool_that_was_not_exported_is_read_and_said_to_be_so() {
    let mut tiny = Tiny::new(7);
    tiny.state = 0;
    let file = tiny.block(&[7; 512], 0);
    let system = tiny.looped_system(file, 300);
    tiny.finish_with(system, None);
    let pool = open(tiny.member.clone()).unwrap();
    assert!(
        pool.report
            .notes
            .iter()
            .any(|note| note.contains("was not exported"))
    );
    assert_eq!(read(&pool, "/a").unwrap(), [7; 300]);
}

/// Constructed: no recorded pool has them.
#[test]
fn every_checksum_that_is_not_computed_is_refused_by_its_name() {
    for (number, name) in [
        (12, "skein"),
        (13, "edonr"),
        (14, "blake3"),
        (99, "unknown"),
    ] {
        let mut tiny = Tiny::new(7);
        let mut file = tiny.block(&[7; 512], 0);
        file[53] = number; // bits 40 to 47 of word 6
        let system = tiny.looped_system(file, 300);
        tiny.finish_with(system, None);
        let error = read(&open(tiny.member.clone()).unwrap(), "/a").unwrap_err();
        assert!(
            error.is_refusal() && error.to_string().contains(name),
            "{error}"
        );
    }
}

/// Constructed: fletcher2, SHA-256 and SHA-512/256 beside the default, right and with a flipped bit.
#[test]
fn blocks_are_verified_by_each_checksum_that_is_known() {
    use plexum_format::zfs::ChecksumKind;
    for number in [6, 7, 8, 11] {
        let bytes: Vec<u8> = (0..512_u32).map(|n| (n * 3) as u8).collect();
        let digest = ChecksumKind::of(number).compute(&bytes).unwrap();
        for is_flipped in [false, true] {
            let mut tiny = Tiny::new(7);
            let mut file = tiny.block(&bytes, 0);
            file[53] = number;
            for (word, at) in digest.iter().zip((96..).step_by(8)) {
                file[at..at + 8].copy_from_slice(&word.to_le_bytes());
            }
            if is_flipped {
                tiny.member[(4 << 20) + 77] ^= 4; // the file is the first block
            }
            let system = tiny.looped_system(file, 300);
            tiny.finish_with(system, None);
            match (read(&open(tiny.member.clone()).unwrap(), "/a"), is_flipped) {
                (Ok(read), false) => assert_eq!(read, bytes[..300]),
                (Err(ZfsError::Damaged { .. }), true) => {}
                (other, _) => panic!("{number} {is_flipped}: {other:?}"),
            }
        }
    }
}

/// Constructed: no recorded pool has extended attributes. These are files of a hidden directory.
#[test]
fn extended_attributes_of_a_hidden_directory_are_given() {
    let mut tiny = Tiny::new(7);
    let file = tiny.block(&[7; 512], 0);
    let value = tiny.block(&[b'v'; 512], 0);
    let root = tiny.block(&zap(&[("a", FILE_ENTRY | 4)]), 0);
    let hidden = tiny.block(&zap(&[("user.why", FILE_ENTRY | 6)]), 0);
    let mut with = znode(FILE, 300);
    with[104] = 5;
    let system = tiny.file_system(&[
        vec![0; 512],
        dnode(20, 512, &[root], 17, &znode(DIRECTORY, 1)),
        dnode(19, 512, &[file], 17, &with),
        dnode(20, 512, &[hidden], 17, &znode(DIRECTORY, 1)),
        dnode(19, 512, &[value], 17, &znode(FILE, 5)),
    ]);
    tiny.finish_with(system, None);
    let pool = open(tiny.member.clone()).unwrap();
    let system = block_on(pool.file_system(&DatasetName::parse("tiny"))).unwrap();
    let node = block_on(system.lookup(b"/a")).unwrap();
    let found = block_on(system.xattrs(&node)).unwrap();
    assert_eq!(found, [(b"user.why".to_vec(), b"vvvvv".to_vec())]);
    let root = block_on(system.lookup(b"/")).unwrap();
    assert_eq!(block_on(system.xattrs(&root)).unwrap(), []);
}
