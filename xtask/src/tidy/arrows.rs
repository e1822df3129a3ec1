//! The arrows of the house point down only, and the pure rooms know no operating system.
//!
//! The picture is in `ARCHITECTURE.md`. Dependencies of tests are free: they may look at everything.

use super::Finding;
use crate::source::{Source, closing};
use crate::tree::Tree;

/// Each crate and the crates of the workspace it may stand on.
const ARROWS: &[(&str, &[&str])] = &[
    // pure
    ("parity", &[]),
    ("format", &[]),
    ("exec", &[]),
    ("block", &[]),
    ("layout", &[]),
    ("metrics", &[]),
    ("schedule", &[]),
    ("incidents", &[]), // plain facts in, messages out: whoever has the facts translates them
    ("model", &[]),     // the slow reference: shares nothing with what it judges
    // engine
    ("engine", &["block", "exec", "format", "layout", "parity"]),
    // formats: each opens itself; the engine knows none of them
    ("md", &["block", "engine", "format", "layout"]),
    ("freebsd", &["block", "engine", "format", "layout"]),
    ("zfs", &["block", "format", "layout", "parity"]),
    ("pool", &["block", "format", "layout", "parity", "zfs"]),
    ("disks", &["block"]),
    // edges
    ("inventory", &[]), // reads sysfs; knows nothing of volumes
    ("front", &["block"]),
    ("nbd", &["block", "front"]),
    ("ublk", &["block", "front"]),
    ("nvme", &["block", "front"]),
    ("vhost", &["block", "front"]),
    ("export", &["block", "front", "nbd"]),
    // nbd for its Transport trait, ublk for the kernel's commands, vhost for its Peer trait
    (
        "runtime",
        &["block", "exec", "front", "nbd", "ublk", "vhost"],
    ),
    (
        "sim",
        &[
            "block", "disks", "engine", "exec", "format", "freebsd", "front", "layout", "md",
            "model", "nbd", "parity", "pool", "zfs",
        ],
    ),
    // programs
    (
        "daemon",
        &[
            "block",
            "engine",
            "exec",
            "export",
            "format",
            "freebsd",
            "front",
            "incidents",
            "metrics",
            "schedule",
            "inventory",
            "layout",
            "md",
            "nbd",
            "nvme",
            "parity",
            "pool",
            "runtime",
            "ublk",
            "vhost",
            "zfs",
        ],
    ),
    (
        "lab",
        &[
            "block", "disks", "engine", "exec", "format", "freebsd", "layout", "md", "nbd",
            "parity", "runtime",
        ],
    ),
    (
        "cli",
        &[
            "block",
            "daemon",
            "disks",
            "engine",
            "exec",
            "export",
            "format",
            "freebsd",
            "front",
            "inventory",
            "lab",
            "layout",
            "md",
            "nbd",
            "nvme",
            "parity",
            "pool",
            "runtime",
            "zfs",
        ],
    ),
    // the command with what its developers need
    ("developer", &["bench", "cli", "daemon", "sim"]),
    (
        "bench",
        &[
            "block", "daemon", "disks", "engine", "exec", "format", "freebsd", "front", "layout",
            "md", "nbd", "parity", "pool", "runtime", "zfs",
        ],
    ),
    // for tests and checks alone; nothing stands on them
    ("oracle", &[]),
    (
        "fuzz",
        &[
            "block", "daemon", "format", "front", "nbd", "nvme", "testkit", "vhost", "zfs",
        ],
    ),
    (
        "testkit",
        &["engine", "exec", "format", "model", "parity", "sim"],
    ),
    ("xtask", &[]),
];

/// Rooms that know no operating system, no runtime, no clock and no random source.
const PURE: [&str; 12] = [
    "parity",
    "format",
    "block",
    "layout",
    "engine",
    "md",
    "freebsd",
    "pool",
    "zfs",
    "incidents",
    "metrics",
    "schedule",
];

/// Libraries the pure rooms may use.
const PURE_LIBRARIES: [&str; 14] = [
    "zerocopy",
    "thiserror",
    // short lists of a request that need no memory of their own
    "smallvec",
    // one piece of memory, cut into parts that are owned one by one
    "bytes",
    "serde",
    // text in memory: what is kept and sent, and a part of the configuration
    "serde_json",
    "toml",
    // calendars and time zones; whoever calls says which zone and what time it is
    "jiff",
    "crc-fast",
    "twox-hash",
    // hashes and decompressors of blocks in a ZFS pool
    "sha2",
    "lz4_flex",
    "miniz_oxide",
    "zstd",
];

/// General runtimes and what brings one; only programs may have them, on threads of their own.
const RUNTIMES: [&str; 6] = ["tokio", "axum", "hyper", "async-std", "smol", "tower"];
const RUNTIME_ROOMS: [&str; 3] = ["daemon", "lab", "cli"];

/// Parts of `std` that are the outside world.
const OUTSIDE: [&str; 9] = [
    "std::env",
    "std::fs",
    "std::io::stdin",
    "std::net",
    "std::os",
    "std::process",
    "std::thread",
    "std::time::Instant",
    "std::time::SystemTime",
];

/// `std` parts whose order changes from run to run: a simulation could not be replayed.
const RANDOM: [&str; 3] = [
    "std::collections::HashMap",
    "std::collections::HashSet",
    "std::hash::RandomState",
];

/// Dependencies that are not drawn.
pub fn arrows(tree: &Tree) -> Vec<Finding> {
    let known: Vec<&str> = ARROWS.iter().map(|(name, _)| *name).collect();
    let mut found = Vec::new();
    for package in &tree.packages {
        let name = package.name.as_str();
        let path = if name == "xtask" {
            "xtask/Cargo.toml".to_owned()
        } else {
            format!("crates/{name}/Cargo.toml")
        };
        let mut say = |message: String| found.push(Finding::new("arrows", &path, 0, message));
        let Some((_, allowed)) = ARROWS.iter().find(|(known, _)| *known == name) else {
            say(format!(
                "crate `{name}` has no place in the picture: draw it in ARCHITECTURE.md and xtask/src/tidy/arrows.rs"
            ));
            continue;
        };
        for to in package.dependencies.iter().map(String::as_str) {
            if known.contains(&to) {
                if !allowed.contains(&to) {
                    say(format!("`{name}` -> `{to}` is not drawn"));
                }
            } else if PURE.contains(&name) && !PURE_LIBRARIES.contains(&to) {
                say(format!("`{name}` is pure and may not use `{to}`"));
            } else if RUNTIMES.contains(&to) && !RUNTIME_ROOMS.contains(&name) {
                say(format!(
                    "`{to}` is a general runtime: only {RUNTIME_ROOMS:?} may use one"
                ));
            }
        }
    }
    found
}

/// Uses of the outside world in the pure rooms, tests apart.
pub fn no_operating_system(tree: &Tree) -> Vec<Finding> {
    let is_pure = |path: &str| {
        PURE.iter()
            .any(|name| path.starts_with(&format!("crates/{name}/src/")))
    };
    let mut found = Vec::new();
    for source in tree
        .sources
        .iter()
        .filter(|source| is_pure(&source.path) && !source.is_test_file())
    {
        let tests = source.inline_tests();
        for (at, path) in std_paths(source) {
            if tests.iter().any(|span| span.contains(&at)) {
                continue;
            }
            let inside =
                |outer: &&&str| path == ***outer || path.starts_with(&format!("{outer}::"));
            let reason = if OUTSIDE.iter().any(|outer| inside(&outer)) {
                "is the outside world"
            } else if RANDOM.iter().any(|outer| inside(&outer)) {
                "has another order in each run (use BTreeMap, BTreeSet or an index)"
            } else if ["std::time::*", "std::collections::*", "std::*"].contains(&path.as_str()) {
                "may bring a clock or a random order: name what you need"
            } else {
                continue;
            };
            found.push(Finding::new(
                "os-free",
                &source.path,
                source.line(at),
                format!("`{path}` {reason}"),
            ));
        }
    }
    found
}

/// All paths that begin with `std`, those inside the braces of a `use` written out.
fn std_paths(source: &Source) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    for (at, word) in source.identifiers() {
        let is_start = !source.code[..at].trim_end().ends_with("::");
        if word == "std" && is_start {
            expand(&source.code, at, String::new(), &mut found);
        }
    }
    found
}

/// Follows the path (or tree of paths) that goes on at `at` with `prefix` before it.
fn expand(code: &str, at: usize, prefix: String, found: &mut Vec<(usize, String)>) {
    let skipped = code[at..].len() - code[at..].trim_start().len();
    let at = at + skipped;
    let rest = &code[at..];
    if rest.starts_with('{') {
        let inside = at + 1..closing(code, at).saturating_sub(1).max(at + 1);
        let mut start = inside.start;
        let mut depth = 0usize;
        for (n, byte) in code.bytes().enumerate().take(inside.end).skip(inside.start) {
            match byte {
                b'{' => depth += 1,
                b'}' => depth = depth.saturating_sub(1),
                b',' if depth == 0 => {
                    expand(code, start, prefix.clone(), found);
                    start = n + 1;
                }
                _ => {}
            }
        }
        if start < inside.end {
            expand(&code[..inside.end], start, prefix, found);
        }
        return;
    }
    let length = match rest.strip_prefix('*') {
        Some(_) => 1,
        None => rest
            .find(|c: char| !c.is_alphanumeric() && c != '_')
            .unwrap_or(rest.len()),
    };
    if length == 0 {
        return;
    }
    let path = if prefix.is_empty() {
        rest[..length].to_owned()
    } else {
        format!("{prefix}::{}", &rest[..length])
    };
    let after = rest[length..].trim_start();
    match after.strip_prefix("::") {
        Some(next) if !next.trim_start().starts_with('<') => {
            expand(code, code.len() - next.len(), path, found)
        }
        _ => found.push((at, path)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree::{Package, package_of};

    fn arrow(from: &str, to: &str) -> Vec<Finding> {
        let package = Package {
            name: from.into(),
            dependencies: vec![to.into()],
            ..Package::default()
        };
        arrows(&Tree {
            packages: vec![package],
            ..Tree::default()
        })
    }

    #[test]
    fn arrows_point_down_only() {
        for (from, to) in [
            ("engine", "format"),
            ("engine", "exec"),
            ("md", "engine"),
            ("daemon", "md"),
            ("daemon", "runtime"),
            ("cli", "clap"),
            ("daemon", "axum"),
        ] {
            assert_eq!(arrow(from, to), []);
        }
        for (from, to) in [
            ("format", "engine"),
            ("engine", "md"),
            ("engine", "freebsd"),
            ("md", "freebsd"),
            ("zfs", "engine"),
            ("engine", "sim"),
            ("engine", "runtime"),
            ("engine", "libc"),
            ("parity", "tokio"),
            ("sim", "runtime"),
            ("nbd", "tokio"),
            ("exec", "oracle"),
            ("attic", "engine"),
        ] {
            assert_eq!(arrow(from, to).len(), 1, "{from} -> {to}");
        }
    }

    #[test]
    fn dependencies_of_tests_are_free() {
        let data = serde_json::json!({"name": "plexum-engine", "targets": [], "dependencies": [
            {"name": "proptest", "kind": "dev"}, {"name": "plexum-format", "kind": null}]});
        assert_eq!(package_of(&data, "/r").dependencies, ["format"]);
    }

    #[test]
    fn the_pure_rooms_know_no_clock_thread_file_or_random_order() {
        let world =
            |text: &str| no_operating_system(&Tree::of(&[("crates/engine/src/a.rs", text)])).len();
        for bad in [
            "use std::time::Instant;",
            "use std::{rc::Rc, fs};",
            "use std::{time::{Duration, SystemTime}, rc::Rc};",
            "fn a() { std::thread::sleep(d) }",
            "use std::net::*;",
            "use std::time::*;",
            "use std::collections::{BTreeMap, HashMap};",
            "fn a() -> std::collections::HashSet<u8> { b }",
        ] {
            assert_eq!(world(bad), 1, "{bad}");
        }
        for good in [
            "use std::time::Duration;",
            "use std::{rc::Rc, collections::{BTreeMap, VecDeque}};",
            "// std::fs",
            "use crate::std::fs;",
            "#[cfg(test)]\nmod tests { use std::fs; use std::collections::HashMap; }",
        ] {
            assert_eq!(world(good), 0, "{good}");
        }
        assert!(
            no_operating_system(&Tree::of(&[("crates/runtime/src/a.rs", "use std::fs;")]))
                .is_empty()
        );
    }
}
