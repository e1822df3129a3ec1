//! Where in a Rust file its mutants are: syntax tree and list brought together.
//!
//! Invariant: sites lie beside each other or inside each other, and no two begin and end at the same place.

use std::collections::BTreeMap;
use std::ops::Range;

use syn::spanned::Spanned;
use syn::visit::{self, Visit};
use syn::{BinOp, Block, Expr};

use super::list::{Genre, Mutant, Position};

/// A place that some mutants change.
#[derive(Debug, PartialEq)]
pub struct Site {
    /// Its bytes in the file.
    pub range: Range<usize>,
    /// What is there.
    pub kind: Kind,
}

/// What is at a site; numbers are those of mutants.
#[derive(Debug, PartialEq)]
pub enum Kind {
    /// The brace that opens a function's body, and the values that the function may give instead.
    Body(Vec<(u32, String)>),
    /// `left && right` or `left || right`: each is the other's mutant.
    Lazy {
        /// The mutant.
        number: u32,
        /// Whether it is `&&`.
        is_and: bool,
        /// Left operand.
        left: Range<usize>,
        /// Right operand.
        right: Range<usize>,
    },
    /// Any other operator between two operands, and what may stand there instead.
    Binary {
        /// Mutants with their operators.
        others: Vec<(u32, String)>,
        /// Left operand.
        left: Range<usize>,
        /// Right operand.
        right: Range<usize>,
    },
    /// An operator before its operand that a mutant leaves out.
    Unary {
        /// The mutant.
        number: u32,
        /// Operand.
        operand: Range<usize>,
    },
    /// The arrow of an arm that a mutant leaves out.
    Arrow(u32),
    /// The guard of an arm that is `true` or `false` in a mutant.
    Guard(Vec<(u32, String)>),
    /// A struct expression with the fields that mutants leave out.
    Struct(Vec<(u32, Range<usize>)>),
}

/// Mutants that cannot be chosen at run time, with the reason.
pub type Unfit = Vec<(u32, &'static str)>;

/// Finds the sites of `mutants` (numbers and mutants of this one file) in `text`, in the order of their places, and
/// those that do not fit.
///
/// # Errors
/// When the file is no Rust.
pub fn find(text: &str, mutants: &[(u32, &Mutant)]) -> Result<(Vec<Site>, Unfit), String> {
    let file = syn::parse_file(text).map_err(|error| error.to_string())?;
    let mut wanted: BTreeMap<(Genre, Position), Vec<(u32, String)>> = BTreeMap::new();
    for (number, mutant) in mutants {
        let entry = wanted.entry((mutant.genre, mutant.start)).or_default();
        entry.push((*number, mutant.replacement.clone()));
    }
    let mut finder = Finder {
        wanted,
        sites: Vec::new(),
        dropped: Vec::new(),
        constants: 0,
    };
    finder.visit_file(&file);
    let mut dropped = finder.dropped;
    for (number, _) in finder.wanted.into_values().flatten() {
        dropped.push((number, "its place was not found"));
    }
    let mut sites = finder.sites;
    sites.sort_by_key(|site| (site.range.start, std::cmp::Reverse(site.range.end)));
    Ok((sites, dropped))
}

struct Finder {
    wanted: BTreeMap<(Genre, Position), Vec<(u32, String)>>,
    sites: Vec<Site>,
    dropped: Unfit,
    /// How many expressions around here are computed by the compiler.
    constants: usize,
}

fn bytes(node: &impl Spanned) -> Range<usize> {
    node.span().byte_range()
}

/// Whether an expression is a condition with `let` in it, which has no value.
fn has_let(expr: &Expr) -> bool {
    match expr {
        Expr::Let(_) => true,
        Expr::Binary(binary) => has_let(&binary.left) || has_let(&binary.right),
        _ => false,
    }
}

impl Finder {
    /// The mutants of a genre that begin where `node` does.
    fn take(&mut self, genre: Genre, node: &impl Spanned) -> Vec<(u32, String)> {
        let start = node.span().start();
        let found = self.wanted.remove(&(genre, (start.line, start.column + 1)));
        let found = found.unwrap_or_default();
        if self.constants == 0 {
            return found;
        }
        self.drop_all(&found, "a constant");
        Vec::new()
    }

    fn drop_all(&mut self, mutants: &[(u32, String)], reason: &'static str) {
        let numbers = mutants.iter().map(|(number, _)| (*number, reason));
        self.dropped.extend(numbers);
    }

    fn put(&mut self, range: Range<usize>, kind: Kind) {
        self.sites.push(Site { range, kind });
    }

    fn constant(&mut self, visit: impl FnOnce(&mut Self)) {
        self.constants += 1;
        visit(self);
        self.constants -= 1;
    }

    /// A function: its values, and whether the compiler may have to compute it.
    fn function(&mut self, is_const: bool, block: &Block, visit: impl FnOnce(&mut Self)) {
        let outer = std::mem::replace(&mut self.constants, usize::from(is_const));
        if let Some(first) = block.stmts.first() {
            let values = self.take(Genre::FnValue, first);
            if !values.is_empty() {
                self.put(bytes(&block.brace_token.span.open()), Kind::Body(values));
            }
        }
        visit(self);
        self.constants = outer;
    }
}

impl<'ast> Visit<'ast> for Finder {
    fn visit_item_fn(&mut self, item: &'ast syn::ItemFn) {
        let is_const = item.sig.constness.is_some();
        self.function(is_const, &item.block, |finder| {
            visit::visit_item_fn(finder, item);
        });
    }

    fn visit_impl_item_fn(&mut self, item: &'ast syn::ImplItemFn) {
        let is_const = item.sig.constness.is_some();
        self.function(is_const, &item.block, |finder| {
            visit::visit_impl_item_fn(finder, item);
        });
    }

    fn visit_trait_item_fn(&mut self, item: &'ast syn::TraitItemFn) {
        if let Some(block) = &item.default {
            self.function(false, block, |finder| {
                visit::visit_trait_item_fn(finder, item);
            });
        }
    }

    fn visit_item_const(&mut self, item: &'ast syn::ItemConst) {
        self.constant(|finder| visit::visit_item_const(finder, item));
    }

    fn visit_item_static(&mut self, item: &'ast syn::ItemStatic) {
        self.constant(|finder| visit::visit_item_static(finder, item));
    }

    fn visit_impl_item_const(&mut self, item: &'ast syn::ImplItemConst) {
        self.constant(|finder| visit::visit_impl_item_const(finder, item));
    }

    fn visit_type_array(&mut self, item: &'ast syn::TypeArray) {
        self.constant(|finder| visit::visit_type_array(finder, item));
    }

    fn visit_expr_const(&mut self, item: &'ast syn::ExprConst) {
        self.constant(|finder| visit::visit_expr_const(finder, item));
    }

    fn visit_expr_repeat(&mut self, item: &'ast syn::ExprRepeat) {
        self.visit_expr(&item.expr);
        self.constant(|finder| finder.visit_expr(&item.len));
    }

    fn visit_expr_binary(&mut self, expr: &'ast syn::ExprBinary) {
        let others = self.take(Genre::Binary, &expr.op);
        let (left, right) = (bytes(&*expr.left), bytes(&*expr.right));
        match (others.first(), &expr.op) {
            (None, _) => {}
            (Some(_), BinOp::And(_) | BinOp::Or(_))
                if has_let(&expr.left) || has_let(&expr.right) =>
            {
                self.drop_all(&others, "`let` in a condition");
            }
            (Some((number, _)), BinOp::And(_) | BinOp::Or(_)) => {
                let kind = Kind::Lazy {
                    number: *number,
                    is_and: matches!(expr.op, BinOp::And(_)),
                    left,
                    right,
                };
                self.put(bytes(expr), kind);
            }
            (Some(_), _) => {
                let kind = Kind::Binary {
                    others,
                    left,
                    right,
                };
                self.put(bytes(expr), kind);
            }
        }
        visit::visit_expr_binary(self, expr);
    }

    fn visit_expr_unary(&mut self, expr: &'ast syn::ExprUnary) {
        if let [(number, _)] = self.take(Genre::Unary, &expr.op)[..] {
            let operand = bytes(&*expr.expr);
            self.put(bytes(expr), Kind::Unary { number, operand });
        }
        visit::visit_expr_unary(self, expr);
    }

    fn visit_arm(&mut self, arm: &'ast syn::Arm) {
        if let [(number, _)] = self.take(Genre::Arm, arm)[..] {
            self.put(bytes(&arm.fat_arrow_token), Kind::Arrow(number));
        }
        if let Some((_, guard)) = &arm.guard {
            let values = self.take(Genre::Guard, &**guard);
            if has_let(guard) {
                self.drop_all(&values, "`let` in a condition");
            } else if !values.is_empty() {
                // A guard that is one operator is a site itself: this one is taken with the blank before it.
                let range = bytes(&**guard);
                self.put(range.start - 1..range.end, Kind::Guard(values));
            }
        }
        visit::visit_arm(self, arm);
    }

    fn visit_expr_struct(&mut self, expr: &'ast syn::ExprStruct) {
        let mut fields = Vec::new();
        for pair in expr.fields.pairs() {
            let field = bytes(*pair.value());
            let end = pair.punct().map_or(field.end, |comma| bytes(*comma).end);
            for (number, _) in self.take(Genre::Field, *pair.value()) {
                fields.push((number, field.start..end));
            }
        }
        if !fields.is_empty() {
            self.put(bytes(expr), Kind::Struct(fields));
        }
        visit::visit_expr_struct(self, expr);
    }
}
