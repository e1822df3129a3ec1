//! The published tables with one seed: every band of lab.md is reached, and a rerun gives the same bytes.

use plexum_lab::reproduce::{cells_table, check, run};

/// `plexum lab reproduce --check` runs five seeds; one is enough here.
fn bands_are_reached(table: &str) {
    let all = run(table, 1).expect("the table runs");
    for band in check(&all.cells, &all.effects) {
        assert!(
            band.is_reached(),
            "{band:?}\n{}",
            cells_table(&all.cells).text()
        );
    }
}

#[test]
fn a_gmirror_rebuild_has_the_published_rates_and_iostat_figures() {
    bands_are_reached("gmirror-rebuild");
    bands_are_reached("random-read");
}

#[test]
fn vinum_stripes_have_the_published_rates() {
    bands_are_reached("vinum");
}

#[test]
fn the_raids_of_the_howto_have_the_published_rates() {
    bands_are_reached("howto");
}

#[test]
fn the_article_has_the_published_writes_and_order() {
    bands_are_reached("article");
}

#[test]
fn the_ratios_of_2020_have_their_directions() {
    bands_are_reached("ratios");
}

#[test]
fn a_rerun_gives_the_same_bytes_and_another_seed_does_not() {
    let run = |seed| {
        let all = run("gmirror-rebuild", seed).expect("the table runs");
        cells_table(&all.cells).csv() + &all.notes.concat()
    };
    assert_eq!(run(7), run(7));
    assert_ne!(run(7), run(8));
}

#[test]
fn an_unknown_table_is_refused_with_the_names_of_all() {
    let error = run("a2", 1)
        .expect_err("there is no such table")
        .to_string();
    assert!(
        error.contains("vinum") && error.contains("gmirror-rebuild"),
        "{error}"
    );
}
