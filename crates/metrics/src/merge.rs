//! Pages of several servers as one.

use std::collections::BTreeSet;

use crate::families::ALL;

/// One page of several: each family once, and of samples with the same labels the first.
#[must_use]
pub fn merged(pages: &[String]) -> String {
    let mut text = String::new();
    for family in ALL {
        let mut known = BTreeSet::new();
        for page in pages {
            for line in block(page, family.name) {
                // What is behind the last blank is the value; a comment is no sample, and is the same everywhere.
                let key = match line.starts_with('#') {
                    true => line,
                    false => line.rsplit_once(' ').map_or(line, |(sample, _)| sample),
                };
                if known.insert(key) {
                    text.push_str(line);
                    text.push('\n');
                }
            }
        }
    }
    text
}

/// The lines of one family: from its help to that of the next one.
fn block<'a>(page: &'a str, name: &str) -> impl Iterator<Item = &'a str> {
    let help = format!("# HELP {name} ");
    let mut lines = page.lines();
    let first = lines.by_ref().find(|line| line.starts_with(&help));
    let rest = lines.take_while(|line| !line.starts_with("# HELP "));
    first.into_iter().chain(rest)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Page, families};

    #[test]
    fn pages_become_one_in_which_each_family_and_each_sample_stands_once() {
        let page = |volumes: &[&str]| {
            let mut page = Page::new();
            page.set(&families::BUILD_INFO, &["1"], 1_u64);
            for volume in volumes {
                page.set(&families::VOLUME_SIZE_BYTES, &[volume], 7_u64);
            }
            page.text()
        };
        let pages = [page(&["a", "b c"]), page(&["b c"]), page(&["z"])];
        assert_eq!(merged(&pages), page(&["a", "b c", "z"]));
        assert_eq!(merged(&[]), "");
    }
}
