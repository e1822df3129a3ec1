//! Figures of functions and types, from the parsed sources.

use std::fmt;

use syn::visit::{self, Visit};
use syn::{FnArg, Signature, Type, Visibility};

use super::product;
use crate::source::Source;
use crate::tree::Tree;

/// Names of types that say nothing of what they hold.
const EMPTY_NAMES: [&str; 4] = ["Place", "Inner", "Shared", "Request"];

const INTEGERS: [&str; 10] = [
    "u8", "u16", "u32", "u64", "usize", "i8", "i16", "i32", "i64", "isize",
];

/// What is counted.
#[derive(Clone, Copy, PartialEq)]
pub enum Kind {
    /// A `bool` parameter of a public function.
    BoolParameter,
    /// A function with two integers of one type in a row.
    IntegersInARow,
    /// A type whose name says nothing.
    EmptyName,
    /// A field of `Volume` that is not private.
    OpenField,
}

/// A place that counts: what, and its file with the name of the function or type.
pub struct Found {
    /// What.
    pub kind: Kind,
    place: String,
}

struct Counter<'a> {
    source: &'a Source,
    found: Vec<Found>,
}

/// All places.
pub fn found(tree: &Tree) -> Vec<Found> {
    let mut found = Vec::new();
    for source in product(tree) {
        let Ok(file) = syn::parse_file(&source.text) else {
            continue; // the compiler's business
        };
        let mut counter = Counter {
            source,
            found: Vec::new(),
        };
        counter.visit_file(&file);
        found.append(&mut counter.found);
    }
    found
}

impl fmt::Display for Found {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match self.kind {
            Kind::BoolParameter => "bool parameter",
            Kind::IntegersInARow => "integers in a row",
            Kind::EmptyName => "name that says nothing",
            Kind::OpenField => "open field of Volume",
        };
        write!(f, "{kind}: {}", self.place)
    }
}

impl Counter<'_> {
    fn note(&mut self, kind: Kind, name: &str) {
        let place = format!("{} {name}", self.source.path);
        self.found.push(Found { kind, place });
    }

    fn signature(&mut self, signature: &Signature, is_public: bool) {
        let types = || {
            signature
                .inputs
                .iter()
                .filter_map(|argument| match argument {
                    FnArg::Typed(typed) => Some(name_of(&typed.ty)),
                    FnArg::Receiver(_) => None,
                })
        };
        let name = signature.ident.to_string();
        if is_public {
            for _ in types().filter(|of| of == "bool") {
                self.note(Kind::BoolParameter, &name);
            }
        }
        let is_pair = |(one, two): (String, String)| one == two && INTEGERS.contains(&one.as_str());
        if types().zip(types().skip(1)).any(is_pair) {
            self.note(Kind::IntegersInARow, &name);
        }
    }

    fn named(&mut self, name: &syn::Ident) {
        if EMPTY_NAMES.iter().any(|empty| name == empty) {
            self.note(Kind::EmptyName, &name.to_string());
        }
    }
}

/// The type's name when it is one word.
fn name_of(of: &Type) -> String {
    match of {
        Type::Path(path) => path
            .path
            .get_ident()
            .map(ToString::to_string)
            .unwrap_or_default(),
        _ => String::new(),
    }
}

fn is_public(visibility: &Visibility) -> bool {
    !matches!(visibility, Visibility::Inherited)
}

/// Whether an item is there in tests alone.
pub fn is_test(attributes: &[syn::Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        let list = attribute.meta.require_list();
        attribute.path().is_ident("test")
            || attribute.path().is_ident("cfg")
                && list.is_ok_and(|list| list.tokens.to_string() == "test")
    })
}

impl<'ast> Visit<'ast> for Counter<'_> {
    fn visit_item_mod(&mut self, item: &'ast syn::ItemMod) {
        if !is_test(&item.attrs) {
            visit::visit_item_mod(self, item);
        }
    }

    fn visit_item_fn(&mut self, item: &'ast syn::ItemFn) {
        if !is_test(&item.attrs) {
            self.signature(&item.sig, is_public(&item.vis));
            visit::visit_item_fn(self, item);
        }
    }

    fn visit_impl_item_fn(&mut self, item: &'ast syn::ImplItemFn) {
        self.signature(&item.sig, is_public(&item.vis));
        visit::visit_impl_item_fn(self, item);
    }

    fn visit_trait_item_fn(&mut self, item: &'ast syn::TraitItemFn) {
        self.signature(&item.sig, true);
        visit::visit_trait_item_fn(self, item);
    }

    fn visit_item_struct(&mut self, item: &'ast syn::ItemStruct) {
        self.named(&item.ident);
        if item.ident == "Volume" && self.source.path.starts_with("crates/engine/") {
            for field in item.fields.iter().filter(|field| is_public(&field.vis)) {
                let name = field.ident.as_ref().map(ToString::to_string);
                self.note(Kind::OpenField, &name.unwrap_or_default());
            }
        }
    }

    fn visit_item_enum(&mut self, item: &'ast syn::ItemEnum) {
        self.named(&item.ident);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counted(text: &str, kind: Kind) -> usize {
        let found = found(&Tree::of(&[("crates/engine/src/a.rs", text)]));
        found.iter().filter(|found| found.kind == kind).count()
    }

    #[test]
    fn bools_count_where_the_function_is_public() {
        let text = "pub fn a(b: bool) {} fn c(d: bool) {} impl E { pub(crate) fn f(&self, g: u8, h: bool) {} }";
        assert_eq!(counted(text, Kind::BoolParameter), 2);
    }

    #[test]
    fn two_integers_of_one_type_count_when_they_are_neighbours() {
        let text =
            "fn a(b: u64, c: u64) {} fn d(e: u64, f: &str, g: u64) {} fn h(i: u64, j: u32) {}";
        assert_eq!(counted(text, Kind::IntegersInARow), 1);
    }

    #[test]
    fn open_fields_of_volume_and_empty_names_count() {
        let text = "pub struct Volume { a: u8, pub(crate) b: u8, pub c: u8 } struct Inner; enum Place { A }";
        assert_eq!(counted(text, Kind::OpenField), 2);
        assert_eq!(counted(text, Kind::EmptyName), 2);
    }

    #[test]
    fn tests_count_nothing() {
        let text = "#[cfg(test)]\nmod tests { pub fn a(b: bool) {} struct Inner; }\n#[test]\nfn c(d: u8, e: u8) {}";
        for kind in [Kind::BoolParameter, Kind::IntegersInARow, Kind::EmptyName] {
            assert_eq!(counted(text, kind), 0);
        }
    }
}
