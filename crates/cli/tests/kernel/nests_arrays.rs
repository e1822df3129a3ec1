//! Arrays of arrays: what the real md driver nested is served by Plexum, and what Plexum nested assembles in the
//! driver.

use std::path::PathBuf;

use crate::common::Place;
use crate::common::served::{Server, content, done, fill, size_bytes, wait_until_clean};
use plexum_oracle::{Batch, Job, pattern_bytes, pattern_sha256};

const SEED: u64 = 0x5eed_000a;

/// Two inner arrays, which are the members of the outer one; all strips differ.
#[derive(Clone, Copy)]
struct Shape {
    name: &'static str,
    outer: &'static str,
    /// Level and strip of each inner array.
    inner: [(&'static str, &'static str); 2],
    /// Members of each inner array.
    inner_count: usize,
    /// Sectors that a check finds in the outer array and in the inner ones; nothing where there is no redundancy.
    differ: [&'static str; 3],
}

const SHAPES: [Shape; 2] = [
    Shape {
        name: "mirror-of-stripes",
        outer: "1",
        inner: [("0", "64"), ("0", "16")],
        inner_count: 2,
        differ: ["0", "", ""],
    },
    Shape {
        name: "stripes-of-raid5",
        outer: "0 128",
        inner: [("5", "16"), ("5", "32")],
        inner_count: 3,
        differ: ["", "0", "0"],
    },
];

/// Names of the inner volumes, and their devices in the guest.
const INNER: [(&str, &str); 2] = [("left", "/dev/md101"), ("right", "/dev/md102")];

struct Nested {
    place: Place,
    shape: Shape,
    files: Vec<PathBuf>,
}

impl Nested {
    fn new(maker: &str, shape: Shape) -> Self {
        let place = Place::new(&format!("nest-{maker}-{}", shape.name));
        let files = (0..2 * shape.inner_count)
            .map(|n| place.sparse(&format!("m{n}"), 8 << 20))
            .collect();
        Self {
            place,
            shape,
            files,
        }
    }

    /// Members of the inner array with this number, each after `prefix`.
    fn inner_members(&self, number: usize, prefix: &str) -> String {
        let first = number * self.shape.inner_count;
        let all = (first..first + self.shape.inner_count).map(|n| format!("{prefix}{n}"));
        all.collect::<Vec<_>>().join(" ")
    }

    /// Serves the inner arrays in the background and the outer one before us.
    fn serve_inner(&self) {
        for (number, (name, _)) in INNER.iter().enumerate() {
            let members = self.inner_members(number, "m");
            let words = format!("serve --name {name} {members} --background");
            done(&self.place, &words);
        }
    }

    fn stop_inner(&self) {
        for (name, _) in INNER {
            done(&self.place, &format!("stop {name}"));
        }
    }

    /// A line of shell for each inner array: `words` with its device and members.
    fn each_inner(&self, line: impl Fn(&str, &str, usize) -> String) -> String {
        let lines = INNER.iter().enumerate().map(|(number, (_, device))| {
            let members = self.inner_members(number, "$D");
            line(device, &members, number) + " || exit 3\n"
        });
        lines.collect()
    }

    /// In the guest: the kernel makes and fills it, and stops all three arrays.
    fn made_by_the_kernel(&self) -> Job {
        let create = |device: &str, level: &str, members: &str, more: &str| {
            let (level, strip) = level.split_once(' ').unwrap_or((level, ""));
            let strip = match strip {
                "" => String::new(),
                strip => format!("--chunk={strip}"),
            };
            let count = members.split(' ').count();
            format!(
                "mdadm --create {device} --run --force --homehost=any --metadata=1.2 --level={level} {strip} {more} \
                 --raid-devices={count} {members} </dev/null >>\"$OUT/mdadm\" 2>&1 && md_wait {device}"
            )
        };
        let inner = self.each_inner(|device, members, number| {
            let (level, strip) = self.shape.inner[number];
            create(device, &format!("{level} {strip}"), members, "")
        });
        let both = INNER.map(|(_, device)| device).join(" ");
        let more = match self.shape.outer {
            "1" => "--bitmap=internal",
            _ => "",
        };
        let outer = create("$MD", self.shape.outer, &both, more);
        let stop = self.each_inner(|device, _, _| format!("MD={device} stop"));
        let script = format!(
            "{inner}{outer} || exit 3\nfill {SEED} || exit 3\nput_content made\nstop || exit 3\n{stop}"
        );
        Job::script(self.shape.name, &self.files, &script).with_seeds(&[SEED])
    }

    /// In the guest: assembles inner arrays and the outer one, reads it, checks all of them.
    fn read_by_the_kernel(&self) -> Job {
        let start = self.each_inner(|device, members, _| format!("on {device} start {members}"));
        let scrub = self.each_inner(|device, _, number| {
            format!("on {device} scrub && on {device} put_sys inner.{number} mismatch_cnt")
        });
        let stop = self.each_inner(|device, _, _| format!("on {device} stop"));
        let both = INNER.map(|(_, device)| device).join(" ");
        let script = format!(
            "on() {{ local MD=$1 MD_SYS=/sys/block/${{1#/dev/}}/md; shift; \"$@\"; }}\n\
             {start}start {both} || exit 3\nput_content read\nscrub || exit 3\n\
             put_sys outer mismatch_cnt\nstop || exit 3\n{scrub}{stop}"
        );
        Job::script(self.shape.name, &self.files, &script)
    }
}

#[test]
fn what_the_kernel_nested_is_served() {
    let all = SHAPES.map(|shape| Nested::new("kernel", shape));
    let mut batch = Batch::new();
    for nested in &all {
        batch.add(nested.made_by_the_kernel());
    }
    let reports = batch.run_faultless();
    for (nested, report) in all.iter().zip(&reports) {
        let place = &nested.place;
        nested.serve_inner();
        let server = Server::start(place, "volume:left volume:right");
        let found = content(place);
        assert_eq!(found.len().to_string(), report.value("made.size_bytes"));
        assert!(
            found == pattern_bytes(SEED, 0, found.len()),
            "{}: content differs",
            nested.shape.name
        );
        server.stop(place);
        nested.stop_inner();
    }
}

#[test]
fn what_plexum_nested_assembles_in_the_kernel() {
    let mut batch = Batch::new();
    let mut sizes = Vec::new();
    let all = SHAPES.map(|shape| Nested::new("plexum", shape));
    for nested in &all {
        let place = &nested.place;
        for (number, (name, _)) in INNER.iter().enumerate() {
            let (level, strip) = nested.shape.inner[number];
            let members = nested.inner_members(number, "m");
            done(
                place,
                &format!("create {name} --level {level} --strip {strip}K {members}"),
            );
        }
        nested.serve_inner();
        let (level, strip) = match nested.shape.outer.split_once(' ') {
            Some((level, strip)) => (level, format!("--strip {strip}K")),
            None => (nested.shape.outer, String::new()),
        };
        done(
            place,
            &format!("create nas --level {level} {strip} volume:left volume:right"),
        );
        let server = Server::start(place, "volume:left volume:right");
        fill(place, SEED);
        wait_until_clean(place);
        sizes.push(size_bytes(place));
        server.stop(place);
        nested.stop_inner();
        batch.add(nested.read_by_the_kernel());
    }
    let reports = batch.run_faultless();
    for ((nested, size), report) in all.iter().zip(sizes).zip(&reports) {
        assert_eq!(report.value("read.size_bytes"), size.to_string());
        assert_eq!(report.value("read.sha256"), pattern_sha256(SEED, size));
        let differ = ["outer", "inner.0", "inner.1"].map(|key| report.value(key));
        assert_eq!(differ, nested.shape.differ, "{}", nested.shape.name);
    }
}
