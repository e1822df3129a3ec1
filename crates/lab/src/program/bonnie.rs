//! bonnie++: its line of comma-separated values.

use super::unread;
use crate::error::LabError;
use crate::work::Figure;
use crate::workload::files::PHASES;

/// Columns of version 1.98 of the line, counted from 0, that are figures.
const COLUMNS: [(usize, &str, &str); 12] = [
    (11, "block write", "KiB/s"),
    (13, "rewrite", "KiB/s"),
    (17, "block read", "KiB/s"),
    (19, "seeks", "1/s"),
    (9, "characters written", "KiB/s"),
    (15, "characters read", "KiB/s"),
    (26, PHASES[0], "files/s"),
    (28, PHASES[1], "files/s"),
    (30, PHASES[2], "files/s"),
    (32, PHASES[3], "files/s"),
    (34, PHASES[4], "files/s"),
    (36, PHASES[5], "files/s"),
];

/// Figures of the phases that ran long enough: the program prints `+++++` for the others.
///
/// # Errors
/// `Io` when there is no such line.
pub fn parse(text: &str) -> Result<Vec<Figure>, LabError> {
    let line = text.lines().rfind(|line| line.starts_with("1.9"));
    let line = line.ok_or_else(|| unread("bonnie++", "no line of values"))?;
    let cells: Vec<&str> = line.split(',').collect();
    let mut figures = Vec::new();
    for (column, name, unit) in COLUMNS {
        match cells.get(column) {
            None => return Err(unread("bonnie++", line)),
            Some(cell) if cell.is_empty() || cell.starts_with('+') => {}
            Some(cell) => {
                let value = cell.parse().map_err(|_| unread("bonnie++", cell))?;
                figures.push(Figure::new(name, value, unit));
            }
        }
    }
    Ok(figures)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_read_and_phases_that_were_too_short_have_none() {
        let seen = parse(include_str!(
            "../../../../fixtures/lab/programs/bonnie++.csv"
        ))
        .unwrap();
        let named = |name: &str| {
            seen.iter()
                .find(|one| one.name == name)
                .map(|one| one.value)
        };
        assert_eq!(named("characters written"), Some(3830.0));
        assert_eq!(named("characters read"), Some(5423.0));
        assert_eq!(named("block write"), None, "+++++");
        let long = "1.98,2.00a,x,1,7,1G,,8192,5,800,99,70123,11,30456,7,900,98,91234,8,210.5,6,16,,,,,101,2,102,3,103,4,104,5,105,6,106,7,,,";
        let seen = parse(long).unwrap();
        let pairs: Vec<(&str, f64)> = seen.iter().map(|f| (f.name.as_str(), f.value)).collect();
        assert_eq!(
            pairs[..4],
            [
                ("block write", 70123.0),
                ("rewrite", 30456.0),
                ("block read", 91234.0),
                ("seeks", 210.5)
            ]
        );
        let files: Vec<f64> = seen[6..].iter().map(|one| one.value).collect();
        assert_eq!(files, [101.0, 102.0, 103.0, 104.0, 105.0, 106.0]);
        assert_eq!(
            (seen[11].name.as_str(), seen[11].unit.as_str()),
            ("random delete", "files/s")
        );
        for text in ["", "Version 2.00a", "1.98,2.00a,x"] {
            assert!(parse(text).is_err(), "{text}");
        }
    }
}
