//! A Rust file split into code, comments and literals, without a full parser.
//!
//! Invariants:
//! - `code`, `comments` and `literals` have the length of the text and the same line breaks: an offset in one is an
//!   offset in all; what belongs to another part is blank;
//! - nothing here fails: a file that does not lex is the compiler's business.

use std::ops::Range;

/// One Rust file of the repository.
pub struct Source {
    /// Path from the repository's root, with `/`.
    pub path: String,
    /// The whole text.
    pub text: String,
    /// Code alone: comments and the insides of literals are blank.
    pub code: String,
    /// Comments alone, documentation comments included.
    pub comments: String,
    /// String and character literals alone, without quotes.
    pub literals: String,
}

/// A function with its body.
pub struct Function {
    /// Its name.
    pub name: String,
    /// From the word `fn` to the end of the body, in bytes.
    pub span: Range<usize>,
    /// Parameters and result, without the body.
    pub signature: Range<usize>,
}

#[derive(Clone, Copy, PartialEq)]
enum Part {
    Code,
    Comment,
    Literal,
}

impl Source {
    /// Splits `text`.
    pub fn new(path: &str, text: &str) -> Self {
        let parts = classify(text.as_bytes());
        Source {
            path: path.to_owned(),
            text: text.to_owned(),
            code: keep(text, &parts, Part::Code),
            comments: keep(text, &parts, Part::Comment),
            literals: keep(text, &parts, Part::Literal),
        }
    }

    /// Line number of a byte offset, from 1.
    pub fn line(&self, offset: usize) -> usize {
        line_of(&self.text, offset)
    }

    /// Spans of the inline `#[cfg(test)]` modules and functions.
    pub fn inline_tests(&self) -> Vec<Range<usize>> {
        let mut spans: Vec<Range<usize>> = Vec::new();
        let mut from = 0;
        while let Some(at) = self.code[from..].find("#[cfg(test)]") {
            let start = from + at;
            let end = item_end(&self.code, start + "#[cfg(test)]".len());
            spans.push(start..end);
            from = end;
        }
        spans
    }

    /// Whether all of the file is test code by its place.
    pub fn is_test_file(&self) -> bool {
        self.path.contains("/tests/")
            || self.path.starts_with("tests/")
            || self.path.ends_with("/tests.rs")
            || self.path.ends_with("_tests.rs")
            || self.path.contains("/benches/")
    }

    /// Identifiers of the code with their offsets.
    pub fn identifiers(&self) -> impl Iterator<Item = (usize, &str)> {
        words(&self.code).filter(|(_, word)| !word.starts_with(|c: char| c.is_ascii_digit()))
    }

    /// All functions with a body, nested ones too.
    pub fn functions(&self) -> Vec<Function> {
        let mut found = Vec::new();
        let mut names = self.identifiers().peekable();
        while let Some((at, word)) = names.next() {
            if word != "fn" {
                continue;
            }
            let Some(&(name_at, name)) = names.peek() else {
                break;
            };
            let between = &self.code[at + 2..name_at];
            if !between.trim().is_empty() {
                continue; // a function pointer type
            }
            let open = signature_end(&self.code, name_at + name.len());
            let end = if self.code[open..].starts_with('{') {
                closing(&self.code, open)
            } else {
                open
            };
            found.push(Function {
                name: name.to_owned(),
                span: at..end,
                signature: name_at + name.len()..open,
            });
        }
        found
    }
}

/// Line number of a byte offset in `text`, from 1.
pub fn line_of(text: &str, offset: usize) -> usize {
    1 + text.as_bytes()[..offset.min(text.len())]
        .iter()
        .filter(|&&b| b == b'\n')
        .count()
}

/// Words of letters, digits and underscores with their offsets.
pub fn words(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    let mut rest = 0;
    std::iter::from_fn(move || {
        let start = rest + text[rest..].find(is_word)?;
        let end = text[start..]
            .find(|c| !is_word(c))
            .map_or(text.len(), |n| start + n);
        rest = end;
        Some((start, &text[start..end]))
    })
}

/// Offset after the bracket that closes the one at `open`; the end of the code when none does.
pub fn closing(code: &str, open: usize) -> usize {
    let mut depth = 0usize;
    for (at, byte) in code.bytes().enumerate().skip(open) {
        match byte {
            b'{' | b'(' | b'[' => depth += 1,
            b'}' | b')' | b']' => {
                depth = depth.saturating_sub(1);
                if depth == 0 {
                    return at + 1;
                }
            }
            _ => {}
        }
    }
    code.len()
}

/// Offset of the `{` or `;` that ends the signature which goes on at `from`.
fn signature_end(code: &str, from: usize) -> usize {
    let mut depth = 0usize;
    for (at, byte) in code.bytes().enumerate().skip(from) {
        match byte {
            b'(' | b'[' => depth += 1,
            b')' | b']' => depth = depth.saturating_sub(1),
            b'{' | b';' if depth == 0 => return at,
            _ => {}
        }
    }
    code.len()
}

/// End of the item (attributes first) that begins at `from`: after its block or its semicolon.
fn item_end(code: &str, from: usize) -> usize {
    let open = signature_end(code, from);
    if code[open..].starts_with('{') {
        closing(code, open)
    } else {
        (open + 1).min(code.len())
    }
}

fn keep(text: &str, parts: &[Part], part: Part) -> String {
    let bytes = text
        .bytes()
        .zip(parts)
        .map(|(byte, of)| {
            if *of == part || byte == b'\n' {
                byte
            } else {
                b' '
            }
        })
        .collect();
    String::from_utf8(bytes).expect("parts begin and end between characters")
}

fn classify(text: &[u8]) -> Vec<Part> {
    let mut parts = vec![Part::Code; text.len()];
    let mut at = 0;
    while at < text.len() {
        let (part, inside, next) = token(text, at);
        for slot in &mut parts[inside] {
            *slot = part;
        }
        at = next;
    }
    parts
}

/// The token at `at`: what it is, which bytes of it belong to that part, and where the next one begins.
fn token(text: &[u8], at: usize) -> (Part, Range<usize>, usize) {
    let rest = &text[at..];
    let previous_is_word = at > 0 && (text[at - 1].is_ascii_alphanumeric() || text[at - 1] == b'_');
    if rest.starts_with(b"//") {
        let end = find(rest, b"\n").map_or(text.len(), |n| at + n);
        (Part::Comment, at..end, end)
    } else if rest.starts_with(b"/*") {
        let end = at + comment_length(rest);
        (Part::Comment, at..end, end)
    } else if rest[0] == b'"' {
        let end = at + quoted_length(rest, b'"');
        (Part::Literal, at + 1..(end - 1).max(at + 1), end)
    } else if let (false, Some((open, close))) = (previous_is_word, raw_string(rest)) {
        (
            Part::Literal,
            at + open..at + close,
            at + close + (open - raw_prefix(rest)),
        )
    } else if rest[0] == b'\'' && is_character(rest) {
        let end = at + quoted_length(rest, b'\'');
        (Part::Literal, at + 1..(end - 1).max(at + 1), end)
    } else {
        (Part::Code, at..at + 1, at + 1)
    }
}

fn find(text: &[u8], what: &[u8]) -> Option<usize> {
    text.windows(what.len()).position(|window| window == what)
}

fn comment_length(text: &[u8]) -> usize {
    let (mut depth, mut at) = (0, 0);
    while at < text.len() {
        if text[at..].starts_with(b"/*") {
            (depth, at) = (depth + 1, at + 2);
        } else if text[at..].starts_with(b"*/") {
            (depth, at) = (depth - 1, at + 2);
            if depth == 0 {
                return at;
            }
        } else {
            at += 1;
        }
    }
    text.len()
}

fn quoted_length(text: &[u8], quote: u8) -> usize {
    let mut at = 1;
    while at < text.len() {
        match text[at] {
            b'\\' => at += 2,
            byte if byte == quote => return at + 1,
            _ => at += 1,
        }
    }
    text.len()
}

/// Length of `r`, `br` or `cr` before a raw string.
fn raw_prefix(text: &[u8]) -> usize {
    if text[0] == b'r' { 1 } else { 2 }
}

/// Start and end of the inside of a raw string that begins here.
fn raw_string(text: &[u8]) -> Option<(usize, usize)> {
    if !(text[0] == b'r' || text.starts_with(b"br") || text.starts_with(b"cr")) {
        return None;
    }
    let prefix = raw_prefix(text);
    let hashes = text[prefix..].iter().take_while(|&&b| b == b'#').count();
    let open = prefix + hashes + 1;
    if text.get(open - 1) != Some(&b'"') {
        return None;
    }
    let mut end = vec![b'"'];
    end.extend(std::iter::repeat_n(b'#', hashes));
    let close = find(&text[open..], &end).map_or(text.len(), |n| open + n);
    Some((open, close))
}

/// Tells `'a'` from the lifetime `'a`.
fn is_character(text: &[u8]) -> bool {
    match text.get(1) {
        Some(b'\\') => true,
        Some(byte) if byte.is_ascii() => text.get(2) == Some(&b'\''),
        Some(_) => true,
        None => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn code_comments_and_literals_are_told_apart() {
        let text = concat!(
            "let a = \"X // Y\"; // C \"D\"\n",
            "/* E /* F */ G */ let b = r#\"H \" I\"#; 'J' fn k<'l>() {}"
        );
        let source = Source::new("a.rs", text);
        let has = |part: &str, words: &[&str]| words.iter().all(|word| part.contains(word));
        let upper = |part: &str| {
            part.chars()
                .filter(char::is_ascii_uppercase)
                .collect::<String>()
        };
        assert!(has(&source.code, &["let a", "let b", "fn k<'l>"]));
        assert!(has(&source.comments, &["C \"D\"", "E /* F */ G"]));
        assert!(has(&source.literals, &["X // Y", "H \" I", "J"]));
        assert_eq!(upper(&source.code), "");
        assert_eq!(upper(&source.comments), "CDEFG");
        assert_eq!(upper(&source.literals), "XYHIJ");
        for part in [&source.code, &source.comments, &source.literals] {
            assert_eq!(part.len(), text.len());
        }
    }

    #[test]
    fn an_escaped_quote_ends_nothing() {
        let source = Source::new(
            "a.rs",
            r#"let a = "b\"c"; let q = '\''; let e = '\\'; end()"#,
        );
        assert!(source.code.contains("end()") && !source.code.contains('c'));
    }

    #[test]
    fn functions_have_their_whole_body() {
        let source = Source::new(
            "a.rs",
            "fn a() -> [u8; 2] {\n  { fn b() {} }\n}\ntype T = fn(u8);\nfn c();",
        );
        let names: Vec<_> = source.functions().iter().map(|f| f.name.clone()).collect();
        assert_eq!(names, ["a", "b", "c"]);
        assert_eq!(source.line(source.functions()[0].span.end), 3);
    }

    #[test]
    fn inline_tests_are_found_with_their_extent() {
        let source = Source::new(
            "a.rs",
            "fn a() {}\n#[cfg(test)]\nmod tests { fn b() {} }\nfn c() {}",
        );
        let spans = source.inline_tests();
        assert_eq!(spans.len(), 1);
        assert!(source.text[spans[0].clone()].ends_with("fn b() {} }"));
    }
}
