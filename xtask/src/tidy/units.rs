//! A public number says its unit: `offset_bytes`, not `offset`.
//!
//! Looked at: public fields, parameters and results of public functions and of public traits, when their type is an
//! integer or a float (bare or in an `Option`). `usize` lengths of things in memory are left to the reader.

use std::ops::Range;

use super::Finding;
use crate::source::{Source, closing};
use crate::tree::Tree;

/// Last words of a name that ask for a unit.
const ASKING: [&str; 10] = [
    "size", "offset", "length", "len", "timeout", "latency", "interval", "delay", "rate",
    "deadline",
];

const NUMBERS: [&str; 11] = [
    "u8", "u16", "u32", "u64", "u128", "i16", "i32", "i64", "i128", "f32", "f64",
];

/// Public numbers without a unit.
pub fn units(tree: &Tree) -> Vec<Finding> {
    let mut found = Vec::new();
    for source in tree.sources.iter().filter(|source| !source.is_test_file()) {
        let tests = source.inline_tests();
        let names = fields(source).into_iter().chain(of_functions(source));
        for (at, name) in names.filter(|(at, _)| !tests.iter().any(|span| span.contains(at))) {
            let message = format!(
                "`{name}` needs its unit as the last word (`{name}_bytes`, `_sectors`, `_us`, ...)"
            );
            found.push(Finding::new(
                "units",
                &source.path,
                source.line(at),
                message,
            ));
        }
    }
    found
}

fn lacks_unit(name: &str, kind: &str) -> bool {
    let kind = kind.trim();
    let inner = kind
        .strip_prefix("Option<")
        .and_then(|rest| rest.strip_suffix('>'))
        .unwrap_or(kind);
    let last = name.rsplit('_').next().unwrap_or(name);
    NUMBERS.contains(&inner.trim()) && ASKING.contains(&last)
}

/// Public fields: lines of `pub name: type,`.
fn fields(source: &Source) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    let mut at = 0;
    for line in source.code.split_inclusive('\n') {
        let field = line
            .trim()
            .strip_prefix("pub ")
            .and_then(|rest| rest.split_once(':'));
        if let Some((name, kind)) = field
            && lacks_unit(name.trim(), kind.trim().trim_end_matches(','))
        {
            found.push((at, name.trim().to_owned()));
        }
        at += line.len();
    }
    found
}

/// Parameters and results of public functions.
fn of_functions(source: &Source) -> Vec<(usize, String)> {
    let traits = public_traits(source);
    let mut found = Vec::new();
    for function in source.functions() {
        let before = source.code[..function.span.start]
            .lines()
            .last()
            .unwrap_or("");
        let in_trait = traits
            .iter()
            .any(|span| span.contains(&function.span.start));
        if !in_trait && !before.trim_start().starts_with("pub ") {
            continue;
        }
        let signature = &source.code[function.signature.clone()];
        let Some(open) = signature.find('(') else {
            continue;
        };
        let close = closing(signature, open);
        let inside = signature
            .get(open + 1..close.saturating_sub(1))
            .unwrap_or("");
        for parameter in inside.split(',') {
            if let Some((name, kind)) = parameter.split_once(':')
                && lacks_unit(name.trim(), kind)
            {
                found.push((function.span.start, name.trim().to_owned()));
            }
        }
        let result = signature[close..].trim().strip_prefix("->").unwrap_or("");
        if lacks_unit(&function.name, result.split(" where").next().unwrap_or("")) {
            found.push((function.span.start, function.name.clone()));
        }
    }
    found
}

fn public_traits(source: &Source) -> Vec<Range<usize>> {
    let starts = source.code.match_indices("pub trait ");
    starts
        .filter_map(|(at, _)| {
            source.code[at..]
                .find('{')
                .map(|open| at..closing(&source.code, at + open))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(text: &str) -> Vec<String> {
        let found = units(&Tree::of(&[("crates/engine/src/a.rs", text)]));
        found
            .iter()
            .map(|finding| finding.message.split('`').nth(1).unwrap_or("").to_owned())
            .collect()
    }

    #[test]
    fn public_numbers_without_a_unit_are_found() {
        assert_eq!(
            names("pub struct A {\n    pub offset: u64,\n    pub strip_size: Option<u32>,\n}"),
            ["offset", "strip_size"]
        );
        assert_eq!(
            names("pub fn a(data_offset: u64, x: u8) {}"),
            ["data_offset"]
        );
        assert_eq!(
            names("pub(crate) fn z(len: u8) {}\npub async fn a(timeout: u32) -> u8 { 0 }"),
            ["timeout"]
        );
        assert_eq!(
            names("pub trait A {\n    fn size(&self) -> u64;\n}"),
            ["size"]
        );
    }

    #[test]
    fn units_types_and_private_numbers_are_fine() {
        assert!(names("pub struct A {\n    pub offset_bytes: u64,\n    pub size: Sectors,\n    length: u64,\n}").is_empty());
        assert!(names("fn a(offset: u64) {}\npub fn b(len: usize, size_bytes: u64) {}").is_empty());
    }
}
