//! One source for all mutants of a file: at each site the mutant's code stands beside the original, and a number chosen
//! at run time says which of them runs.
//!
//! Differences from a mutant that is compiled alone: operators change inside their brackets (`a && b && c` with the
//! first operator changed is `(a || b) && c`), and constants cannot be chosen at run time: they are listed, not woven.

use std::ops::Range;

use super::sites::{Kind, Site};

/// A file with its mutants woven in.
#[derive(Debug, Default)]
pub struct Woven {
    /// The new text.
    pub text: String,
    /// Which bytes of it stand for which mutants, so that an error of the compiler can be told to its mutants.
    pub regions: Vec<(Range<usize>, Vec<u32>)>,
}

impl Woven {
    /// The mutants of the smallest region around these bytes.
    pub fn owners(&self, bytes: &Range<usize>) -> &[u32] {
        self.regions
            .iter()
            .filter(|(region, _)| region.start <= bytes.start && bytes.end <= region.end)
            .min_by_key(|(region, _)| region.len())
            .map_or(&[], |(_, numbers)| numbers)
    }
}

/// Weaves `sites`, sorted by place, into `text`.
pub fn weave(text: &str, sites: &[Site]) -> Woven {
    let mut weaver = Weaver {
        text,
        woven: Woven::default(),
    };
    weaver.range(0..text.len(), sites);
    weaver.woven
}

/// The question a mutant's code asks first.
fn on(number: u32) -> String {
    format!("crate::woven::on({number})")
}

struct Weaver<'a> {
    text: &'a str,
    woven: Woven,
}

impl Weaver<'_> {
    fn say(&mut self, text: &str) {
        self.woven.text.push_str(text);
    }

    /// Writes something as the code of some mutants.
    fn region(&mut self, numbers: Vec<u32>, write: impl FnOnce(&mut Self)) {
        let start = self.woven.text.len();
        write(self);
        let end = self.woven.text.len();
        self.woven.regions.push((start..end, numbers));
    }

    /// Copies a part of the original, with the sites inside it.
    fn range(&mut self, range: Range<usize>, sites: &[Site]) {
        let mut at = range.start;
        for (index, site) in sites.iter().enumerate() {
            if site.range.start < at || site.range.end > range.end {
                continue;
            }
            self.say(&self.text[at..site.range.start]);
            at = site.range.end;
            self.site(site, &sites[index + 1..]);
        }
        self.say(&self.text[at..range.end]);
    }

    fn site(&mut self, site: &Site, inner: &[Site]) {
        let original = &self.text[site.range.clone()];
        match &site.kind {
            Kind::Body(values) => {
                self.say("{");
                for (number, value) in values {
                    let code = format!(" if {} {{ return {value}; }} ", on(*number));
                    self.region(vec![*number], |weaver| weaver.say(&code));
                }
            }
            Kind::Arrow(number) => {
                let code = format!(" if !{} {original}", on(*number));
                self.region(vec![*number], |weaver| weaver.say(&code));
            }
            Kind::Guard(values) => self.guard(&site.range, values, inner),
            Kind::Lazy {
                number,
                is_and,
                left,
                right,
            } => self.lazy(*number, *is_and, [left, right], inner),
            Kind::Binary {
                others,
                left,
                right,
            } => {
                let variants = others.iter().map(|(number, other)| {
                    let parts = vec![
                        Part::Code("("),
                        Part::Original(left.clone()),
                        Part::Code(") "),
                        Part::Code(other),
                        Part::Code(" ("),
                        Part::Original(right.clone()),
                        Part::Code(")"),
                    ];
                    (*number, parts)
                });
                let itself = [left.clone(), left.end..right.start, right.clone()];
                self.choice(variants.collect(), &itself, inner);
            }
            Kind::Unary { number, operand } => {
                let parts = vec![Part::Original(operand.clone())];
                let itself = [site.range.start..operand.start, operand.clone()];
                self.choice(vec![(*number, parts)], &itself, inner);
            }
            Kind::Struct(fields) => {
                let variants = fields.iter().map(|(number, hole)| {
                    let parts = vec![
                        Part::Original(site.range.start..hole.start),
                        Part::Original(hole.end..site.range.end),
                    ];
                    (*number, parts)
                });
                self.choice(variants.collect(), std::slice::from_ref(&site.range), inner);
            }
        }
    }

    /// `left && right`: the right side counts when the left one holds; in the mutant, when it does not.
    fn lazy(
        &mut self,
        number: u32,
        is_and: bool,
        [left, right]: [&Range<usize>; 2],
        inner: &[Site],
    ) {
        self.region(vec![number], |weaver| {
            let name = format!("woven_{number}");
            weaver.say(&format!("({{ let {name}: bool = "));
            weaver.range(left.clone(), inner);
            let compare = if is_and { "!=" } else { "==" };
            weaver.say(&format!("; if {name} {compare} {} {{ ", on(number)));
            weaver.range(right.clone(), inner);
            weaver.say(&format!(" }} else {{ {name} }} }})"));
        });
    }

    fn guard(&mut self, range: &Range<usize>, values: &[(u32, String)], inner: &[Site]) {
        let numbers = values.iter().map(|(number, _)| *number).collect();
        self.region(numbers, |weaver| {
            weaver.say(" (");
            for (number, value) in values {
                let code = if value == "true" {
                    format!("{} || (", on(*number))
                } else {
                    format!("!{} && (", on(*number))
                };
                weaver.say(&code);
            }
            weaver.range(range.start + 1..range.end, inner);
            weaver.say(&")".repeat(values.len()));
            weaver.say(")");
        });
    }

    /// One of several expressions, by the number that was chosen; else the original.
    fn choice(
        &mut self,
        variants: Vec<(u32, Vec<Part>)>,
        original: &[Range<usize>],
        inner: &[Site],
    ) {
        let numbers = variants.iter().map(|(number, _)| *number).collect();
        self.region(numbers, |weaver| {
            weaver.say("(");
            for (number, parts) in variants {
                weaver.say(&format!("if {} {{ ", on(number)));
                weaver.region(vec![number], |weaver| {
                    for part in parts {
                        match part {
                            Part::Code(code) => weaver.say(code),
                            Part::Original(range) => weaver.range(range, inner),
                        }
                    }
                });
                weaver.say(" } else ");
            }
            weaver.say("{ ");
            for range in original {
                weaver.range(range.clone(), inner);
            }
            weaver.say(" })");
        });
    }
}

/// A part of a mutant's expression.
enum Part<'a> {
    Code(&'a str),
    Original(Range<usize>),
}

#[cfg(test)]
mod tests {
    use super::super::list::{Genre, Mutant, Position};
    use super::super::sites::{Unfit, find};
    use super::*;

    fn mutant(genre: Genre, start: Position, replacement: &str) -> Mutant {
        Mutant {
            name: String::new(),
            file: String::new(),
            function: String::new(),
            genre,
            start,
            replacement: replacement.to_owned(),
        }
    }

    /// Weaves mutants 1, 2, ... into a text.
    fn woven(text: &str, mutants: &[Mutant]) -> (Woven, Unfit) {
        let numbered: Vec<(u32, &Mutant)> = (1..).zip(mutants).collect();
        let (sites, dropped) = find(text, &numbered).expect("the text is Rust");
        (weave(text, &sites), dropped)
    }

    /// The woven text, its questions short.
    fn asks(text: &str, mutants: &[Mutant]) -> String {
        woven(text, mutants).0.text.replace("crate::woven::", "")
    }

    #[test]
    fn a_function_gives_its_other_values_first() {
        let values = [
            mutant(Genre::FnValue, (1, 17), "0"),
            mutant(Genre::FnValue, (1, 17), "1"),
        ];
        assert_eq!(
            asks("fn f() -> u32 { 7 }", &values),
            "fn f() -> u32 { if on(1) { return 0; }  if on(2) { return 1; }  7 }"
        );
    }

    #[test]
    fn operators_inside_each_other_keep_their_brackets() {
        let text = "fn f() { a + b * c }";
        let both = [
            mutant(Genre::Binary, (1, 12), "-"),
            mutant(Genre::Binary, (1, 16), "/"),
        ];
        let inner = "(if on(2) { (b) / (c) } else { b * c })";
        assert_eq!(
            asks(text, &both),
            format!("fn f() {{ (if on(1) {{ (a) - ({inner}) }} else {{ a + {inner} }}) }}")
        );
    }

    #[test]
    fn the_right_side_of_a_lazy_operator_stands_there_once() {
        let and = [mutant(Genre::Binary, (1, 12), "||")];
        assert_eq!(
            asks("fn f() { a && b }", &and),
            "fn f() { ({ let woven_1: bool = a; if woven_1 != on(1) { b } else { woven_1 } }) }"
        );
        let or = [mutant(Genre::Binary, (1, 12), "&&")];
        assert!(asks("fn f() { a || b }", &or).contains("if woven_1 == on(1) { b }"));
    }

    #[test]
    fn arms_go_and_guards_are_fixed() {
        let text = "fn f() { match x { 1 => 2, n if n > 3 => 4, _ => 5 } }";
        let changes = [
            mutant(Genre::Arm, (1, 20), ""),
            mutant(Genre::Guard, (1, 33), "true"),
            mutant(Genre::Guard, (1, 33), "false"),
        ];
        assert_eq!(
            asks(text, &changes),
            "fn f() { match x { 1  if !on(1) => 2, n if (on(2) || (!on(3) && (n > 3))) => 4, _ => 5 } }"
        );
    }

    #[test]
    fn a_sign_and_a_field_are_left_out() {
        let text = "fn f() { S { a: !b, ..c } }";
        let changes = [
            mutant(Genre::Field, (1, 14), ""),
            mutant(Genre::Unary, (1, 17), ""),
        ];
        let sign = "(if on(2) { b } else { !b })";
        assert_eq!(
            asks(text, &changes),
            format!("fn f() {{ (if on(1) {{ S {{  ..c }} }} else {{ S {{ a: {sign}, ..c }} }}) }}")
        );
    }

    #[test]
    fn what_cannot_be_chosen_at_run_time_is_told() {
        let text = "const A: u32 = 1 + 2;\nfn f() { if a && let Some(b) = c {} }";
        let changes = [
            mutant(Genre::Binary, (1, 18), "-"),
            mutant(Genre::Binary, (2, 15), "||"),
            mutant(Genre::Unary, (9, 9), ""),
        ];
        let (woven, dropped) = woven(text, &changes);
        assert_eq!(woven.text, text);
        assert_eq!(
            dropped,
            [
                (1, "a constant"),
                (2, "`let` in a condition"),
                (3, "its place was not found")
            ]
        );
    }

    #[test]
    fn an_error_belongs_to_the_smallest_mutant_around_it() {
        let text = "fn f() { a + b * c }";
        let both = [
            mutant(Genre::Binary, (1, 12), "-"),
            mutant(Genre::Binary, (1, 16), "/"),
        ];
        let (woven, _) = woven(text, &both);
        let owner = |part: &str| {
            let at = woven.text.find(part).expect("it is there");
            woven.owners(&(at..at + part.len())).to_vec()
        };
        assert_eq!(owner(") - ("), [1]);
        assert_eq!(owner(") / ("), [2]);
        assert_eq!(owner("a + "), [1]);
        assert!(owner("fn f").is_empty());
    }
}
