//! The mutants that cargo-mutants would try: what it says of each of them.

use std::path::Path;
use std::process::Command;

use serde_json::Value;

/// What a mutant does to its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Genre {
    /// The body of a function gives a fixed value.
    FnValue,
    /// Another operator between two operands.
    Binary,
    /// `!` or `-` is left out.
    Unary,
    /// An arm of a match is left out.
    Arm,
    /// The guard of an arm is always true, or never.
    Guard,
    /// A field is left to the base of a struct expression.
    Field,
}

/// Line and column, both from 1, in characters.
pub type Position = (usize, usize);

/// One mutant.
#[derive(Clone, Debug)]
pub struct Mutant {
    /// File, line, column and what is changed: the name by which results are kept.
    pub name: String,
    /// Path from the root.
    pub file: String,
    /// The function around it.
    pub function: String,
    /// What kind of change.
    pub genre: Genre,
    /// Where the replaced text begins.
    pub start: Position,
    /// The new text.
    pub replacement: String,
}

/// Asks cargo-mutants for the mutants of the files that begin with one of `prefixes`.
///
/// # Errors
/// When cargo-mutants is not there or says what is not understood.
pub fn ask(root: &Path, package: &str, prefixes: &[String]) -> Result<Vec<Mutant>, String> {
    let mut command = Command::new("cargo");
    command.args(["mutants", "--list", "--json", "--package", package]);
    for prefix in prefixes {
        let pattern = if prefix.ends_with(".rs") {
            prefix.clone()
        } else {
            format!("{prefix}/**")
        };
        command.args(["--file", &pattern]);
    }
    let output = command
        .current_dir(root)
        .output()
        .map_err(|error| format!("cargo mutants: {error}"))?;
    if !output.status.success() {
        return Err(format!(
            "cargo mutants (cargo install cargo-mutants --locked): {}",
            String::from_utf8_lossy(&output.stderr).trim()
        ));
    }
    parse(&String::from_utf8_lossy(&output.stdout))
}

/// Reads the list.
///
/// # Errors
/// Where the list is not as expected.
pub fn parse(json: &str) -> Result<Vec<Mutant>, String> {
    let list: Value =
        serde_json::from_str(json).map_err(|error| format!("cargo mutants --json: {error}"))?;
    let list = list.as_array().ok_or("cargo mutants --json: no list")?;
    list.iter().map(mutant).collect()
}

fn mutant(value: &Value) -> Result<Mutant, String> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let name = text(&value["name"]);
    let number = |key: &str| value["span"]["start"][key].as_u64().map(|at| at as usize);
    let (Some(line), Some(column)) = (number("line"), number("column")) else {
        return Err(format!("cargo mutants --json: {name} has no span"));
    };
    let genre = match value["genre"].as_str().unwrap_or_default() {
        "FnValue" => Genre::FnValue,
        "BinaryOperator" => Genre::Binary,
        "UnaryOperator" => Genre::Unary,
        "MatchArm" => Genre::Arm,
        "MatchArmGuard" => Genre::Guard,
        "StructField" => Genre::Field,
        other => return Err(format!("{name}: genre `{other}` is not known")),
    };
    Ok(Mutant {
        name,
        file: text(&value["file"]),
        function: text(&value["function"]["function_name"]),
        genre,
        start: (line, column),
        replacement: text(&value["replacement"]),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mutant_is_read_with_its_place_and_its_change() {
        let list = r#"[{"file": "a.rs", "function": {"function_name": "f"}, "genre": "BinaryOperator",
            "name": "a.rs:3:7: replace < with > in f", "replacement": ">",
            "span": {"start": {"line": 3, "column": 7}, "end": {"line": 3, "column": 8}}}]"#;
        let mutants = parse(list).expect("the list is well-formed");
        assert_eq!(mutants.len(), 1);
        assert_eq!(mutants[0].start, (3, 7));
        assert_eq!(mutants[0].genre, Genre::Binary);
        assert_eq!(mutants[0].replacement, ">");
        assert!(parse(&list.replace("BinaryOperator", "Surprise")).is_err());
    }
}
