//! Who owns the bytes of a disk: its partitions, the set itself, or another set on the same bytes.

use std::fs::File;
use std::os::unix::fs::FileExt;

use plexum_format::gmirror::MirrorLabel;
use plexum_testkit::unpack_zfs_case;

use crate::common::{Place, Run};
use crate::inputs::{unpack_story, wrong_blocks};

/// A folder with the story's inputs in it.
fn story(name: &str) -> Place {
    let place = Place::new(&format!("bytes-{name}"));
    let unpacked = unpack_story(name);
    for entry in std::fs::read_dir(unpacked.folder()).unwrap() {
        let path = entry.unwrap().path();
        std::fs::copy(&path, place.folder.join(path.file_name().unwrap())).unwrap();
    }
    place
}

/// Serves, copies the volume out, and stops: what `serve` said, and the numbers of the wrong blocks.
fn read(place: &Place, words: &str, seed: u64, blocks: u64) -> (Run, Vec<u64>) {
    let run = place.plexum(&format!("serve --background --read-only --name v {words}"));
    assert_eq!(run.exit, 0, "{words}: {}{}", run.out, run.err);
    let uri = format!(
        "nbd+unix:///v?socket={}",
        place.file("plexum/v.nbd").display()
    );
    let copied = place.tool("nbdcopy", &format!("{uri} copy"));
    assert_eq!(copied.exit, 0, "{}", copied.err);
    assert_eq!(place.plexum("stop v").exit, 0);
    (run, wrong_blocks(&place.file("copy"), seed, blocks))
}

/// The first line that holds these words.
fn line<'a>(text: &'a str, words: &str) -> &'a str {
    let found = text.lines().find(|line| line.contains(words));
    found.unwrap_or_else(|| panic!("no line with {words:?} in:\n{text}"))
}

/// The command that a line advises.
fn advised(line: &str) -> &str {
    line.split_once("plexum ").expect("a command").1
}

#[test]
fn a_superblock_in_the_last_partition_is_the_partitions_and_not_the_disks() {
    let place = story("md-disk-image-taken-for-its-last-partition");
    let disks = "disk0.img disk1.img disk2.img disk3.img disk4.img";
    let before = place.snapshot();
    let scan = place.plexum(&format!("scan {disks}"));
    let command = advised(line(&scan.out, "plexum serve"));
    assert!(
        command.contains("disk0.img:p1 disk1.img:p1"),
        "{}",
        scan.out
    );
    let (_, wrong) = read(&place, command.trim_start_matches("serve "), 0x24, 2256);
    assert!(wrong.is_empty(), "by the partitions");
    let (run, wrong) = read(&place, disks, 0x24, 2256);
    assert!(wrong.is_empty(), "by the disks");
    assert!(run.err.contains("disk0.img:p1 is meant"), "{}", run.err);
    std::fs::remove_file(place.file("copy")).unwrap();
    assert_eq!(place.snapshot(), before);
    // A resync of the partitions writes nothing outside of them.
    let served = place.plexum(&format!("serve --background --name v {disks}"));
    assert_eq!(served.exit, 0, "{}", served.err);
    assert_eq!(place.plexum("stop v").exit, 0);
    for ((path, old), (_, new)) in before.iter().zip(place.snapshot()) {
        assert_eq!(old[..1 << 20], new[..1 << 20], "{}", path.display());
    }
    let (_, wrong) = read(&place, disks, 0x24, 2256);
    assert!(wrong.is_empty());
}

#[test]
fn arrays_in_partitions_of_images_are_found_and_served_beside_each_other() {
    let place = story("md-nas-disk-images-with-partitions");
    let scan = place.plexum("scan disk0 disk1");
    for (part, seed, blocks) in [("p1", 0x91, 1008), ("p2", 0x92, 496), ("p3", 0x93, 3840)] {
        let words = format!("disk0:{part} disk1:{part}");
        let command = advised(line(&scan.out, &format!("plexum serve {words}")));
        let (_, wrong) = read(&place, command.trim_start_matches("serve "), seed, blocks);
        assert!(wrong.is_empty(), "{part}");
    }
    let examined = place.plexum("examine disk0:p3 disk1:p3");
    assert_eq!(examined.exit, 0, "{}", examined.out);
    let whole = place.plexum("examine disk0");
    assert_eq!(whole.exit, 0, "{}", whole.out);
    line(&whole.out, "partition p3 (GPT)");
    // Which of the three is not said: it is asked, with commands that work.
    let asked = place.plexum("serve --read-only disk0 disk1");
    assert_eq!(asked.exit, 4, "{}", asked.err);
    line(&asked.err, "plexum serve disk0:p2 disk1:p2");
    // Two partitions of one image are members of two volumes at the same time.
    for (name, part) in [("one", "p1"), ("two", "p3")] {
        let words = format!("serve --background --name {name} disk0:{part} disk1:{part}");
        let run = place.plexum(&words);
        assert_eq!(run.exit, 0, "{}", run.err);
    }
    let again = place.plexum("serve --background --name three disk0:p3 disk1:p3");
    assert_eq!(again.exit, 6, "{}", again.err);
    assert_eq!(place.plexum("stop one").exit, 0);
    assert_eq!(place.plexum("stop two").exit, 0);
    let none = place.plexum("serve disk0:p9");
    assert_eq!(none.exit, 4, "{}", none.err);
    line(&none.err, "it has:   p1 p2 p3");
}

#[test]
fn arrays_on_arrays_are_served_only_when_it_is_said_which() {
    let place = story("md-nested-arrays-outer-superblock-wins");
    let before = place.snapshot();
    for words in ["a b", "a c", "--force a c", "a b c d"] {
        let run = place.plexum(&format!("serve --background {words}"));
        assert_eq!(run.exit, 3, "{words}: {}", run.err);
        line(&run.err, "--format md-1.0");
    }
    let scan = place.plexum("scan a b c d");
    line(&scan.out, "md-1.2");
    line(&scan.out, "several sets claim the same bytes");
    let command = advised(line(&scan.out, "plexum serve --format md-1.0 a b"));
    assert_eq!(place.snapshot(), before);
    let run = place.plexum(&format!("{command} --background --name lower"));
    assert_eq!(run.exit, 0, "{}", run.err);
    assert_eq!(place.plexum("stop lower").exit, 0);
    let examined = place.plexum("examine a b");
    for words in ["md-1.0", "md-1.2", "written last", "--format"] {
        line(&examined.out, words);
    }
    let other = place.plexum("serve --format md-1.1 a b");
    assert_eq!(other.exit, 4, "{}", other.err);
}

#[test]
fn an_old_superblock_on_a_living_pool_is_not_served_until_it_is_named() {
    let place = story("leftover-md-superblock-on-zfs-is-served");
    let before = place.snapshot();
    for words in ["d0 d1 d2", "--force d0 d1 d2", "--scan ."] {
        let run = place.plexum(&format!("serve --background {words}"));
        assert_eq!(run.exit, 3, "{words}: {}", run.err);
        line(&run.err, "written last: ");
    }
    let scan = place.plexum("scan .");
    line(&scan.out, "several sets claim the same bytes");
    line(&scan.out, "zfs pool");
    let examined = place.plexum("examine d0 d1 d2");
    line(&examined.out, "plexum serve d0 d1 d2 --format md-1.2");
    assert_eq!(place.snapshot(), before);
    let scrub = place.plexum("pool scrub --read-only d0 d1 d2");
    assert_eq!(scrub.exit, 0, "{}{}", scrub.out, scrub.err);
    let told = place.plexum("serve --read-only --background --format md-1.2 --name v d0 d1 d2");
    assert_eq!(told.exit, 0, "{}", told.err);
    assert_eq!(place.plexum("stop v").exit, 0);
}

#[test]
fn members_of_containers_are_named_with_who_reads_them() {
    let place = story("md-ddf-and-intel-containers");
    for (member, name) in [("d", "DDF"), ("g", "Intel")] {
        let examined = place.plexum(&format!("examine {member}"));
        assert_eq!(examined.exit, 4);
        line(&examined.out, name);
        line(&examined.out, "mdadm reads such members");
        let served = place.plexum(&format!("serve --read-only {member}"));
        assert_eq!(served.exit, 4);
        line(&served.err, "mdadm --examine");
    }
    let scan = place.plexum("scan d e g h");
    line(&scan.out, "e: a member of a DDF container");
    line(&scan.out, "h: a member of an Intel container");
    let created = place.plexum("create x --level 1 d e --dry-run");
    line(&created.out, "DDF container");
}

/// A disk with one partition of an MBR from sector 63 on, which ends with the disk.
fn disk_around(place: &Place, name: &str, part: &str) {
    let content = std::fs::read(place.file(part)).unwrap();
    let mut disk = vec![0; 63 * 512 + content.len()];
    disk[63 * 512..].copy_from_slice(&content);
    disk[446 + 4] = 0xa5;
    disk[446 + 8..446 + 12].copy_from_slice(&63_u32.to_le_bytes());
    disk[446 + 12..446 + 16].copy_from_slice(&(content.len() as u32 / 512).to_le_bytes());
    disk[510..512].copy_from_slice(&[0x55, 0xaa]);
    std::fs::write(place.file(name), disk).unwrap();
    std::fs::remove_file(place.file(part)).unwrap();
}

#[test]
fn sets_of_freebsd_in_partitions_are_found_and_served() {
    let cases = [
        ("gmirror", "1"),
        ("gstripe", "0"),
        ("gconcat", "linear"),
        ("gvinum", "0"),
    ];
    for (format, level) in cases {
        let place = Place::new(&format!("bytes-{format}"));
        let made = place.plexum(&format!(
            "create data --level {level} --format {format} --member-size 4M a b -y"
        ));
        assert_eq!(made.exit, 0, "{}", made.err);
        disk_around(&place, "ada0", "a");
        disk_around(&place, "ada1", "b");
        let scan = place.plexum("scan .");
        line(&scan.out, format);
        let command = advised(line(&scan.out, "plexum serve"));
        for command in [command, "serve ada0 ada1"] {
            let run = place.plexum(&format!("{command} --background"));
            assert_eq!(run.exit, 0, "{format}: {command}: {}", run.err);
            let stopped = place.plexum("stop data");
            assert_eq!(stopped.exit, 0, "{format}: {command}: {}", stopped.err);
        }
        let listed = match format {
            "gvinum" => place.plexum("gvinum list --in ."),
            _ => place.plexum("examine ada0:p1 ada1:p1"),
        };
        assert_eq!(listed.exit, 0, "{format}: {}{}", listed.out, listed.err);
        line(&listed.out, "data");
    }
}

#[test]
fn an_old_label_of_the_last_slice_is_not_the_disks() {
    let place = Place::new("bytes-old-label");
    let made = place.plexum("create data --level 1 --format gmirror --member-size 4M a b -y");
    assert_eq!(made.exit, 0, "{}", made.err);
    for (disk, part) in [("ad0", "a"), ("ad1", "b")] {
        // Of FreeBSD 5 and 6: without the size of what it is on.
        let mut bytes = std::fs::read(place.file(part)).unwrap();
        let (size, at) = (bytes.len() as u64, bytes.len() - 512);
        let mut label = MirrorLabel::parse(&bytes[at..], at as u64, size).unwrap();
        label.version = 2;
        bytes[at..].copy_from_slice(&label.encode());
        std::fs::write(place.file(part), &bytes).unwrap();
        disk_around(&place, disk, part);
    }
    let run = place.plexum("serve --background ad0 ad1 --json");
    assert_eq!(run.exit, 0, "{}", run.err);
    assert_eq!(run.objects()[0]["size_bytes"], (4 << 20) - 512);
    line(&run.err, "ad0:p1 is meant");
    assert_eq!(place.plexum("stop data").exit, 0);
}

/// A slice with a label of BSD, whose partition `d` begins 16 sectors into it, where the member is put.
fn write_bsd_disk(file: &File, member: &[u8]) {
    let sectors = member.len() as u32 / 512;
    let mut mbr = [0; 512];
    mbr[446 + 4] = 0xa5;
    mbr[446 + 8..446 + 12].copy_from_slice(&64_u32.to_le_bytes());
    mbr[446 + 12..446 + 16].copy_from_slice(&(sectors + 16).to_le_bytes());
    mbr[510..].copy_from_slice(&[0x55, 0xaa]);
    file.write_all_at(&mbr, 0).unwrap();
    let mut label = [0; 512];
    for at in [0, 132] {
        label[at..at + 4].copy_from_slice(&0x8256_4557_u32.to_le_bytes());
    }
    label[138] = 8;
    for (number, (start, count)) in [(2, (0, sectors + 16)), (3, (16, sectors))] {
        let at = 148 + 16 * number;
        label[at..at + 4].copy_from_slice(&count.to_le_bytes());
        label[at + 4..at + 8].copy_from_slice(&u32::to_le_bytes(start));
    }
    let pairs = label[..148 + 16 * 8].chunks_exact(2);
    let sum = pairs.fold(0, |sum, pair| sum ^ u16::from_le_bytes([pair[0], pair[1]]));
    label[136..138].copy_from_slice(&sum.to_le_bytes());
    file.write_all_at(&label, 65 * 512).unwrap();
    file.write_all_at(member, 80 * 512).unwrap();
}

#[test]
fn a_pool_is_found_in_a_label_of_bsd_and_when_the_tables_are_gone() {
    let place = Place::new("bytes-zfs-tables");
    let unpacked = unpack_zfs_case("z01_single_a12");
    let member = unpacked.read("d0");
    for (name, start) in [("slice", 80 * 512), ("lost", 1 << 20), ("older", 63 * 512)] {
        let file = File::create(place.file(name)).unwrap();
        let size = start + member.len() + if name == "slice" { 0 } else { 1 << 20 };
        file.set_len(size as u64).unwrap();
        match name {
            "slice" => write_bsd_disk(&file, &member),
            _ => file.write_all_at(&member, start as u64).unwrap(),
        }
        for command in ["pool list", "examine", "scan"] {
            let run = place.plexum(&format!("{command} {name}"));
            assert_eq!(run.exit, 0, "{name}: {command}: {}{}", run.out, run.err);
            line(&run.out, "z01_single_a12");
        }
    }
    place.sparse("blank", 16 << 20);
    let none = place.plexum("pool list blank");
    line(&none.err, "nor where partitions usually begin");
}
