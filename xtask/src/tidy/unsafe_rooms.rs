//! `unsafe` stays in its rooms, and every other crate forbids it.

use super::Finding;
use crate::tree::Tree;

/// Where `unsafe` may be: files, or folders with a final slash.
const ROOMS: [&str; 7] = [
    "crates/parity/src/",
    "crates/runtime/src/uring.rs",
    "crates/runtime/src/kernel.rs",
    "crates/runtime/src/ublk/",
    "crates/runtime/src/ticks.rs", // reads the processor's counter
    "crates/fuzz/src/alloc.rs",    // counts allocations
    "crates/runtime/src/vhost/",
];

/// `unsafe` outside its rooms, and crate roots that do not forbid it.
pub fn rooms(tree: &Tree) -> Vec<Finding> {
    let mut found = Vec::new();
    for source in &tree.sources {
        let is_room = |room: &str| {
            let rest = source.path.strip_prefix(room);
            rest.is_some_and(|rest| rest.is_empty() || room.ends_with('/'))
        };
        if !ROOMS.iter().any(|room| is_room(room)) {
            for (at, _) in source.identifiers().filter(|(_, word)| *word == "unsafe") {
                let message = "`unsafe` outside its rooms (xtask/src/tidy/unsafe_rooms.rs)";
                found.push(Finding::new(
                    "unsafe",
                    &source.path,
                    source.line(at),
                    message,
                ));
            }
        }
    }
    for root in tree
        .packages
        .iter()
        .flat_map(|package| &package.crate_roots)
    {
        let has_room = root
            .strip_suffix("lib.rs")
            .is_some_and(|folder| ROOMS.iter().any(|room| room.starts_with(folder)));
        let source = tree.sources.iter().find(|source| source.path == *root);
        if !has_room
            && !source.is_some_and(|source| source.code.contains("#![forbid(unsafe_code)]"))
        {
            found.push(Finding::new(
                "crate-root",
                root,
                1,
                "add `#![forbid(unsafe_code)]`",
            ));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree::Package;

    #[test]
    fn unsafe_is_found_in_code_only_and_only_outside_its_rooms() {
        let text = "// unsafe\nfn a() { unsafe { b() } }\nconst C: &str = \"unsafe\";";
        let found = rooms(&Tree::of(&[
            ("crates/engine/src/a.rs", text),
            ("crates/parity/src/avx2.rs", text),
            ("crates/runtime/src/uring.rs", text),
            ("crates/runtime/src/uring.rs/b.rs", text),
        ]));
        let places: Vec<_> = found
            .iter()
            .map(|finding| (finding.path.as_str(), finding.line))
            .collect();
        assert_eq!(
            places,
            [
                ("crates/engine/src/a.rs", 2),
                ("crates/runtime/src/uring.rs/b.rs", 2)
            ]
        );
    }

    #[test]
    fn a_crate_without_a_room_forbids_unsafe() {
        let mut tree = Tree::of(&[
            ("crates/engine/src/lib.rs", "// #![forbid(unsafe_code)]"),
            ("crates/nbd/src/lib.rs", "#![forbid(unsafe_code)]"),
            ("crates/parity/src/lib.rs", ""),
        ]);
        for root in [
            "crates/engine/src/lib.rs",
            "crates/nbd/src/lib.rs",
            "crates/parity/src/lib.rs",
        ] {
            tree.packages.push(Package {
                crate_roots: vec![root.into()],
                ..Package::default()
            });
        }
        let found = rooms(&tree);
        assert_eq!(found.len(), 1, "{found:?}");
        assert_eq!(
            (found[0].rule, found[0].path.as_str()),
            ("crate-root", "crates/engine/src/lib.rs")
        );
    }
}
