//! Tables of on-disk layouts, made from the structs that decode them, so that no copied layout can drift.
//!
//! Every `#[repr(C)]` struct in `crates/format` with fields of fixed size gives a table in `docs/formats.md`. The
//! offset in a field's comment is checked against the sum of the sizes before it.

use crate::source::Source;
use crate::tidy::Finding;
use crate::tree::Tree;

/// Where the tables go.
pub const PAGE: &str = "docs/formats.md";

const HEAD: &str = "\
# On-disk layouts

Made by `cargo xtask gen` from the structs in `crates/format/`; a test fails when they differ. Integers are little-endian unless
the struct says otherwise. What the fields mean: [reference/linux-md.md](reference/linux-md.md) and
[reference/freebsd-geom.md](reference/freebsd-geom.md).
";

struct Field {
    name: String,
    kind: String,
    offset_bytes: usize,
    size_bytes: usize,
    note: String,
    line: usize,
    written_offset: Option<usize>,
}

struct Layout {
    name: String,
    about: String,
    fields: Vec<Field>,
}

/// The page of all layouts; empty when there is none.
pub fn page(tree: &Tree) -> String {
    let mut text = String::from(HEAD);
    for source in sources(tree) {
        for layout in layouts(source) {
            text.push_str(&format!("\n## {}\n\n{}", layout.name, layout.about));
            text.push_str(&format!(" In `{}`.\n\n", source.path));
            text.push_str("| offset | bytes | field | type | note |\n|---:|---:|---|---|---|\n");
            for field in &layout.fields {
                text.push_str(&format!(
                    "| {} | {} | `{}` | `{}` | {} |\n",
                    field.offset_bytes, field.size_bytes, field.name, field.kind, field.note
                ));
            }
        }
    }
    text
}

/// Offsets in comments that are wrong, and a page that is out of date.
pub fn check(tree: &Tree) -> Vec<Finding> {
    let mut found = Vec::new();
    for source in sources(tree) {
        for field in layouts(source).iter().flat_map(|layout| &layout.fields) {
            if field
                .written_offset
                .is_some_and(|written| written != field.offset_bytes)
            {
                let message = format!("`{}` is at byte {}", field.name, field.offset_bytes);
                found.push(Finding::new("layouts", &source.path, field.line, message));
            }
        }
    }
    let has_layouts = sources(tree).any(|source| !layouts(source).is_empty());
    let is_current = tree.text(PAGE).is_some_and(|file| file.text == page(tree));
    if has_layouts && !is_current {
        found.push(Finding::new(
            "layouts",
            PAGE,
            0,
            "out of date: run `cargo xtask gen`",
        ));
    }
    found
}

fn sources(tree: &Tree) -> impl Iterator<Item = &Source> {
    tree.sources
        .iter()
        .filter(|source| source.path.starts_with("crates/format/src/"))
}

/// The `#[repr(C)]` structs of a file whose fields all have a known size.
fn layouts(source: &Source) -> Vec<Layout> {
    let starts = source.code.match_indices("#[repr(C)]");
    starts.filter_map(|(at, _)| layout(source, at)).collect()
}

fn layout(source: &Source, at: usize) -> Option<Layout> {
    let open = at + source.code[at..].find('{')?;
    let close = crate::source::closing(&source.code, open);
    let name = source.code[at..open]
        .split("struct ")
        .nth(1)?
        .trim()
        .to_owned();
    let mut fields = Vec::new();
    let (mut offset_bytes, mut start) = (0, open + 1);
    let mut documentation = String::new();
    for text in source.text[open + 1..close - 1].split_inclusive('\n') {
        let (line, end) = (source.line(start), start + text.len());
        let code = source.code[start..end].trim().trim_end_matches(',');
        let comment = source.comments[start..end]
            .trim()
            .trim_start_matches('/')
            .trim();
        start = end;
        if code.is_empty() {
            documentation.push_str(comment);
            continue;
        }
        let (name, kind) = code.strip_prefix("pub ").unwrap_or(code).split_once(':')?;
        let size_bytes = size_of_kind(kind.trim())?;
        let (written, note) = comment.split_once(", ").unwrap_or((comment, ""));
        let note = if note.is_empty() {
            documentation.as_str()
        } else {
            note
        };
        fields.push(Field {
            name: name.trim().to_owned(),
            kind: kind.trim().to_owned(),
            offset_bytes,
            size_bytes,
            note: note.to_owned(),
            line,
            written_offset: written.parse().ok(),
        });
        offset_bytes += size_bytes;
        documentation.clear();
    }
    Some(Layout {
        name,
        about: about(source, at),
        fields,
    })
}

/// The documentation above the struct, as one paragraph.
fn about(source: &Source, at: usize) -> String {
    let mut lines: Vec<&str> = Vec::new();
    for line in source.text[..at].lines().rev() {
        match line.trim().strip_prefix("///") {
            Some(text) => lines.push(text.trim()),
            None if line.trim().starts_with("#[") => {}
            None => break,
        }
    }
    lines.reverse();
    lines.join(" ")
}

/// Bytes of a field's type; `None` for types that only the compiler knows.
fn size_of_kind(kind: &str) -> Option<usize> {
    if let Some(inside) = kind
        .strip_prefix('[')
        .and_then(|rest| rest.strip_suffix(']'))
    {
        let (kind, count) = inside.rsplit_once(';')?;
        return Some(
            size_of_kind(kind.trim())? * count.trim().replace('_', "").parse::<usize>().ok()?,
        );
    }
    let kind = kind.rsplit("::").next()?.split('<').next()?;
    match kind {
        "u8" | "i8" => Some(1),
        "U16" | "I16" => Some(2),
        "U32" | "I32" => Some(4),
        "U64" | "I64" => Some(8),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STRUCT: &str = "/// A label. Source: a page.\n#[derive(Clone)]\n#[repr(C)]\nstruct RawLabel {\n    magic: U32, // 0\n    \
        /// Kept.\n    rest: [u8; 12], // 4\n    size: U64, // 16, sectors\n}\n";

    fn tree(text: &str, page: &str) -> Tree {
        Tree::of(&[("crates/format/src/a.rs", text), (PAGE, page)])
    }

    #[test]
    fn a_struct_becomes_a_table() {
        let page = page(&tree(STRUCT, ""));
        assert!(
            page.contains("## RawLabel\n\nA label. Source: a page. In `crates/format/src/a.rs`.")
        );
        assert!(page.contains(
            "| 4 | 12 | `rest` | `[u8; 12]` | Kept. |\n| 16 | 8 | `size` | `U64` | sectors |"
        ));
        assert!(check(&tree(STRUCT, &page)).is_empty());
    }

    #[test]
    fn a_wrong_offset_and_an_old_page_are_found() {
        let lines = |text: &str, page: &str| {
            check(&tree(text, page))
                .iter()
                .map(|finding| finding.line)
                .collect::<Vec<_>>()
        };
        assert_eq!(lines(STRUCT, "old"), [0]);
        let wrong = STRUCT.replace("// 16", "// 20");
        let page = page(&tree(&wrong, ""));
        assert_eq!(lines(&wrong, &page), [8]);
    }
}
