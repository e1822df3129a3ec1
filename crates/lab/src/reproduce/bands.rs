//! The acceptance bands: how many cells of a group lie within 25 % of the published figure, and which effects hold.

use serde::Serialize;

use super::{Cell, Effect};

/// One line of the check.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Band {
    /// What is counted.
    pub name: String,
    /// Cells, without fitted ones; or 1 for an effect.
    pub cells: usize,
    /// Cells within 25 %, the worst of the seeds.
    pub within: usize,
    /// What is asked for.
    pub wanted: usize,
}

impl Band {
    /// Whether it is reached.
    #[must_use]
    pub fn is_reached(&self) -> bool {
        self.within >= self.wanted
    }
}

/// (table, group, cells within 25 % of the prototype). Source: lab.md section 9. Where fitted cells are in a group, the
/// number asked for is less by them: they do not count.
const WANTED: [(&str, &str, usize); 12] = [
    ("gmirror-rebuild", "rate", 4),
    ("gmirror-rebuild", "iostat", 23),
    ("random-read", "random 16 KiB", 3),
    ("vinum", "block write", 6),
    ("vinum", "rewrite", 5),
    ("vinum", "block read", 7),
    ("vinum", "seeks", 6),
    ("howto", "RAID-0", 18),
    ("howto", "RAID-5", 9),
    ("howto", "RAID-10", 4),
    ("article", "dd writes, single disk", 6),
    ("ratios", "stated ratios", 5),
];

/// Counts over all seeds that are in `cells` and `effects`; the worst seed counts.
#[must_use]
pub fn check(cells: &[Cell], effects: &[Effect]) -> Vec<Band> {
    let mut seeds: Vec<u64> = cells.iter().map(|cell| cell.seed).collect();
    seeds.sort_unstable();
    seeds.dedup();
    let mut bands = Vec::new();
    for (table, group, wanted) in WANTED {
        let of_group = |seed: u64| {
            cells
                .iter()
                .filter(move |cell| cell.table == table && cell.group == group && cell.seed == seed)
        };
        let Some(first) = seeds.iter().find(|seed| of_group(**seed).next().is_some()) else {
            continue; // this table was not run
        };
        let fitted = of_group(*first).filter(|cell| cell.is_fitted).count();
        let counted = |seed: u64| {
            let good = of_group(seed).filter(|cell| !cell.is_fitted && cell.is_within(25.0));
            good.count()
        };
        bands.push(Band {
            name: format!("{table}: {group} within 25 %"),
            cells: of_group(*first).count() - fitted,
            within: seeds.iter().map(|seed| counted(*seed)).min().unwrap_or(0),
            wanted: wanted.saturating_sub(fitted),
        });
    }
    let mut names: Vec<(&str, &str)> = Vec::new();
    for effect in effects.iter().filter(|effect| effect.must_hold) {
        if !names.contains(&(effect.table, effect.name)) {
            names.push((effect.table, effect.name));
        }
    }
    for (table, name) in names {
        let all = effects
            .iter()
            .filter(|effect| effect.table == table && effect.name == name);
        let holds = all.clone().all(|effect| effect.is_right);
        bands.push(Band {
            name: format!("{table}: {name}"),
            cells: 1,
            within: usize::from(holds),
            wanted: 1,
        });
    }
    bands
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cell(ours: f64, is_fitted: bool, seed: u64) -> Cell {
        Cell {
            table: "vinum",
            group: "seeks",
            name: String::new(),
            published: 100.0,
            ours,
            unit: "1/s",
            is_fitted,
            seed,
        }
    }

    #[test]
    fn fitted_cells_do_not_count_and_the_worst_seed_does() {
        let mut cells: Vec<Cell> = (0..7).map(|_| cell(110.0, false, 1)).collect();
        cells.push(cell(100.0, true, 1));
        let bands = check(&cells, &[]);
        assert_eq!(
            (bands[0].cells, bands[0].within, bands[0].wanted),
            (7, 7, 5)
        );
        cells.extend((0..8).map(|n| cell(if n < 4 { 100.0 } else { 200.0 }, false, 2)));
        assert!(!check(&cells, &[])[0].is_reached());
    }

    #[test]
    fn an_effect_must_hold_in_every_seed() {
        let effect = |is_right, seed| Effect {
            table: "vinum",
            name: "e",
            published: String::new(),
            ours: String::new(),
            is_right,
            must_hold: true,
            seed,
        };
        assert!(check(&[], &[effect(true, 1), effect(true, 2)])[0].is_reached());
        assert!(!check(&[], &[effect(true, 1), effect(false, 2)])[0].is_reached());
    }
}
