//! One word per thing: the words of other projects stay in `format`, where their tables are.
//!
//! Fine everywhere: `slice::chunks` and its relatives with their closures, NBD's reply chunks, the `--chunk` alias.
//! Tests that give scripts to the kernel or to mdadm may use its words inside literals.

use std::ops::Range;

use super::Finding;
use crate::source::{Source, words};
use crate::tree::Tree;

/// Rooms that translate, or that speak to the kernel.
const TRANSLATORS: [&str; 14] = [
    "crates/format/",
    "crates/md/", // the model's words on one side, the format's on the other
    "crates/freebsd/",
    "crates/pool/", // keys of ZFS's configuration
    "crates/fuzz/", // speaks with each format in its own words
    "crates/oracle/",
    "crates/ublk/src/wire.rs",     // the kernel's names of its commands
    "crates/testkit/",             // manifests of recorded md images
    "crates/cli/src/args/make.rs", // aliases
    "crates/cli/src/args.rs",      // aliases
    "crates/cli/src/habits.rs",    // answers to what people type from habit
    "crates/bench/src/pool.rs",    // makes a ZFS pool to be read
    "crates/model/tests/",
    "xtask/src/tidy/words.rs",
];

/// Part of an identifier or a word, and what Plexum says.
const FOREIGN: [(&str, &str); 5] = [
    ("chunk", "strip"),
    ("recovery", "rebuild (or reconstruct, restart, the way out)"),
    ("bdev", "member, drive or device"),
    ("resilver", "rebuild"),
    ("vdev", "plex, drive or member"),
];

/// Methods and types of `std`, and words of HTTP, with a foreign word in them.
const STANDARD: [&str; 16] = [
    "chunked", // HTTP's transfer encoding
    "is_chunked",
    "chunks",
    "chunks_mut",
    "chunks_exact",
    "chunks_exact_mut",
    "rchunks",
    "rchunks_exact",
    "as_chunks",
    "as_chunks_mut",
    "as_rchunks",
    "array_chunks",
    "chunk_by",
    "Chunks",
    "ChunksExact",
    "utf8_chunks",
];

/// Foreign words in code, comments and, outside tests, literals.
pub fn foreign_words(tree: &Tree) -> Vec<Finding> {
    let is_translator = |path: &str| TRANSLATORS.iter().any(|room| path.starts_with(room));
    let mut found = Vec::new();
    for source in tree
        .sources
        .iter()
        .filter(|source| !is_translator(&source.path))
    {
        for (at, word) in words(&source.text) {
            let Some((foreign, ours)) = foreign(word) else {
                continue;
            };
            if !is_fine(source, at, word) {
                let message =
                    format!("`{word}`: \"{foreign}\" is a word of others, Plexum says {ours}");
                found.push(Finding::new(
                    "words",
                    &source.path,
                    source.line(at),
                    message,
                ));
            }
        }
    }
    found
}

fn foreign(word: &str) -> Option<(&'static str, &'static str)> {
    let lower = word.to_lowercase();
    FOREIGN
        .into_iter()
        .find(|(foreign, _)| lower.contains(foreign))
}

fn is_fine(source: &Source, at: usize, word: &str) -> bool {
    let span = at..at + word.len();
    let is_chunk = word.to_lowercase().contains("chunk");
    if is_chunk && (source.path.starts_with("crates/nbd/") || STANDARD.contains(&word)) {
        return true;
    }
    if !is_blank(&source.literals, &span) || !is_blank(&source.comments, &span) {
        let is_test = source.is_test_file()
            || source
                .inline_tests()
                .iter()
                .any(|tests| tests.contains(&at));
        let is_option =
            source.text[..at].ends_with("--") || source.text[..at].ends_with("--bitmap-");
        return is_test || (is_chunk && is_option) || source.text[..at].ends_with("base:");
    }
    // What is read from a format's struct keeps its name there.
    let is_field = source.text[..at].ends_with('.') && !source.text[span.end..].starts_with('(');
    if is_field && source.is_test_file() {
        return true;
    }
    // A closure's or a loop's name for what `chunks` gives, in the file that calls it.
    (word == "chunk" || word == "chunks") && source.code.contains("chunks")
        || word == "chunk"
            && source.literals.contains("chunk")
            && source.path.starts_with("crates/cli/")
}

fn is_blank(part: &str, span: &Range<usize>) -> bool {
    part[span.clone()].trim().is_empty()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn count(path: &str, text: &str) -> usize {
        foreign_words(&Tree::of(&[(path, text)])).len()
    }

    #[test]
    fn foreign_words_are_found_in_names_comments_and_messages() {
        for text in [
            "fn chunk_size() {}",
            "struct ChunkSize;",
            "// the recovery goes on",
            "const A: &str = \"chunk of 64 KiB\";",
            "fn a(base_bdev: u8) {}",
            "fn f() { start_recovery() }",
        ] {
            assert_eq!(count("crates/engine/src/a.rs", text), 1, "{text}");
        }
    }

    #[test]
    fn slices_nbd_options_and_kernel_scripts_are_fine() {
        assert_eq!(
            count(
                "crates/engine/src/a.rs",
                "for chunk in data.chunks_exact(8) { a(chunk) }"
            ),
            0
        );
        assert_eq!(count("crates/nbd/src/wire.rs", "struct ReplyChunk;"), 0);
        assert_eq!(
            count(
                "crates/cli/src/a.rs",
                "const A: &str = \"--chunk\"; // as --chunk"
            ),
            0
        );
        assert_eq!(
            count("crates/format/src/md.rs", "struct ChunkSize; // recovery"),
            0
        );
        assert_eq!(
            count("crates/sim/tests/a.rs", "const A: &str = \"recovery\";"),
            0
        );
        assert_eq!(count("crates/sim/tests/a.rs", "fn recovery() {}"), 1);
        assert_eq!(
            count("crates/sim/tests/a.rs", "fn a() { b(case.chunk_bytes) }"),
            0
        );
        assert_eq!(
            count("crates/sim/src/a.rs", "fn a() { b(case.chunk_bytes) }"),
            1
        );
    }
}
