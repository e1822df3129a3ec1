//! bonnie++'s phases with many files: what the files are called, and in which order they are asked for. Pure.
//!
//! Invariants:
//! - a name is the file's number in ten hexadecimal digits, and up to twelve letters and digits: behind it in
//!   sequential order, before it in random order;
//! - files are created by number in both orders; in random order the list is shuffled before it is read, and again
//!   before it is deleted.
//!
//! Source: lab.md section 5, and the system calls of the program:
//! crates/lab/tests/requests_are_those_of_the_programs.rs.

use plexum_disks::rng::Rng;

/// Files in one unit of bonnie++'s `-n`.
pub const UNIT: u64 = 1024;

/// Letters and digits of a name beside its number, at most.
const EXTRA_MAX: u64 = 12;

const EXTRA: &[u8] = b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789";

/// In which order files are asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// By number; read and deleted in the order in which the folder lists them.
    Sequential,
    /// In no order.
    Random,
}

/// The six phases in their order, as figures are named.
pub const PHASES: [&str; 6] = [
    "sequential create",
    "sequential stat",
    "sequential delete",
    "random create",
    "random stat",
    "random delete",
];

/// The names of `count` files, in the order in which they are created.
#[must_use]
pub fn names(count: u64, order: Order, rng: &mut Rng) -> Vec<String> {
    let mut extra = || -> String {
        let length = rng.below(EXTRA_MAX + 1);
        (0..length).map(|_| char::from(*rng.pick(EXTRA))).collect()
    };
    let name = |number| match order {
        Order::Sequential => format!("{number:010x}{}", extra()),
        Order::Random => format!("{}{number:010x}", extra()),
    };
    (0..count).map(name).collect()
}

/// The order in which they are asked for next: in random order another one each time. In sequential order it is not
/// ours but the folder's.
pub fn rearrange(names: &mut [String], order: Order, rng: &mut Rng) {
    if order == Order::Random {
        rng.shuffle(names);
    }
}

/// Files that are shared out to folders: each has the next share, rounded up, so that the last ones may have fewer or
/// none.
#[derive(Clone, Copy, Debug)]
pub struct Spread {
    /// How many files.
    pub files: u64,
    /// How many folders; at least 1.
    pub folders: u64,
}

impl Spread {
    /// In which folder the file with this number is.
    ///
    /// # Panics
    /// Without a folder.
    #[must_use]
    pub fn folder_of(&self, number: u64) -> u64 {
        number / self.files.div_ceil(self.folders).max(1)
    }
}

/// What one phase did.
#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize)]
pub struct FilePhase {
    /// Its name.
    pub name: &'static str,
    /// Files a second.
    pub files_per_s: f64,
    /// The worst single file, in microseconds.
    pub worst_us: f64,
}

/// The lines that bonnie++ prints for these phases, of `count` files.
#[must_use]
pub fn classic(name: &str, count: u64, phases: &[FilePhase]) -> String {
    let mut text = String::from(
        "              ------Sequential Create------ --------Random Create--------\n\
         \x20             -Create-- --Read--- -Delete-- -Create-- --Read--- -Delete--\n\
         Machine files      /sec      /sec      /sec      /sec      /sec      /sec\n",
    );
    text += &format!("{name:<8}{count:>6}");
    for phase in phases {
        text += &format!("{:>9.0} ", phase.files_per_s);
    }
    text = text.trim_end().to_owned() + "\nLatency       ";
    for phase in phases {
        let worst = format!("{:.0}us", phase.worst_us);
        text += &format!("{worst:>9} ");
    }
    text.trim_end().to_owned() + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Number and extra characters of a name.
    fn parts(name: &str, order: Order) -> (u64, &str) {
        let (number, extra) = match order {
            Order::Sequential => name.split_at(10),
            Order::Random => {
                let (extra, number) = name.split_at(name.len() - 10);
                (number, extra)
            }
        };
        (u64::from_str_radix(number, 16).unwrap(), extra)
    }

    #[test]
    fn names_are_ten_digits_and_up_to_twelve_letters_before_or_behind() {
        for order in [Order::Sequential, Order::Random] {
            let names = names(2 * UNIT, order, &mut Rng::new(1));
            assert_eq!(names.len(), 2048);
            let mut lengths = [0u32; 13];
            for (at, name) in names.iter().enumerate() {
                let (number, extra) = parts(name, order);
                assert_eq!(number, at as u64, "created by number: {name}");
                assert!(extra.bytes().all(|one| EXTRA.contains(&one)), "{name}");
                lengths[extra.len()] += 1;
            }
            assert!(lengths.iter().all(|count| *count > 100), "{lengths:?}");
        }
        let first = names(2, Order::Sequential, &mut Rng::new(7));
        assert_eq!(first, names(2, Order::Sequential, &mut Rng::new(7)));
    }

    #[test]
    fn random_order_is_another_one_each_time_and_leaves_nothing_out() {
        let mut rng = Rng::new(1);
        let created = names(UNIT, Order::Random, &mut rng);
        let mut read = created.clone();
        rearrange(&mut read, Order::Random, &mut rng);
        let mut deleted = read.clone();
        rearrange(&mut deleted, Order::Random, &mut rng);
        let in_place = |a: &[String], b: &[String]| a.iter().zip(b).filter(|(a, b)| a == b).count();
        for (one, other) in [(&created, &read), (&read, &deleted), (&created, &deleted)] {
            assert!(in_place(one, other) < 20, "hardly any stays where it was");
        }
        deleted.sort_by_key(|name| parts(name, Order::Random).0);
        assert_eq!(deleted, created);
        let mut kept = created.clone();
        rearrange(&mut kept, Order::Sequential, &mut rng);
        assert_eq!(kept, created);
    }

    #[test]
    fn the_classic_lines_have_six_columns() {
        let phases = PHASES.map(|name| FilePhase {
            name,
            files_per_s: 12345.6,
            worst_us: 789.4,
        });
        let text = classic("disk", 16384, &phases);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(
            lines[3],
            "disk     16384    12346     12346     12346     12346     12346     12346"
        );
        assert_eq!(
            lines[4],
            "Latency           789us     789us     789us     789us     789us     789us"
        );
        assert_eq!(lines[2].len(), lines[3].len());
    }
}
