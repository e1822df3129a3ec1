//! The alert rules and the Grafana page that are shipped: Prometheus itself evaluates them, and they name only metrics
//! that exist.
#![allow(clippy::unwrap_used)]

use std::collections::BTreeSet;
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use plexum_metrics::families::ALL;
use plexum_metrics::{Family, Kind, Page};
use serde_json::Value;

fn shipped(file: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../packaging")
        .join(file)
}

fn text(file: &str) -> String {
    std::fs::read_to_string(shipped(file)).unwrap()
}

/// Runs promtool, which comes with Prometheus (scripts/packages.txt).
fn promtool(words: &[&str], folder: &Path) {
    let told = Command::new("promtool")
        .args(words)
        .current_dir(folder)
        .output();
    let told = told.expect("promtool can be started");
    let said = [told.stdout, told.stderr].concat();
    assert!(told.status.success(), "{}", String::from_utf8_lossy(&said));
}

/// Every name of a metric in a text.
fn names(text: &str) -> BTreeSet<&str> {
    let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let words = text.split(|c: char| !is_part(c));
    words.filter(|word| word.starts_with("plexum_")).collect()
}

fn is_known(name: &str) -> bool {
    ALL.iter().any(|family| match family.kind {
        Kind::Summary => ["_sum", "_count"]
            .iter()
            .any(|end| name.strip_suffix(end) == Some(family.name)),
        Kind::Gauge | Kind::Counter => name == family.name,
    })
}

#[test]
fn every_metric_in_the_rules_and_on_the_page_exists() {
    for file in [
        "prometheus/plexum.rules.yml",
        "prometheus/plexum.rules.test.yml",
        "grafana/plexum.json",
    ] {
        let text = text(file);
        let names = names(&text);
        assert!(names.len() > 5, "{file}");
        for name in names {
            assert!(is_known(name), "{file}: {name}");
        }
    }
    assert!(!is_known("plexum_request_seconds") && !is_known("plexum_member"));
}

#[test]
fn prometheus_takes_the_rules_and_each_alert_fires_holds_and_clears() {
    let folder = shipped("prometheus");
    promtool(&["check", "rules", "plexum.rules.yml"], &folder);
    promtool(&["test", "rules", "plexum.rules.test.yml"], &folder);
}

#[test]
fn every_alert_has_a_test_in_which_it_fires_and_one_in_which_it_does_not() {
    let (rules, tests) = (
        text("prometheus/plexum.rules.yml"),
        text("prometheus/plexum.rules.test.yml"),
    );
    let alerts: Vec<&str> = rules
        .lines()
        .filter_map(|line| line.trim().strip_prefix("- alert: "))
        .collect();
    assert!(alerts.len() >= 13, "{alerts:?}");
    for alert in alerts {
        let asked = tests
            .split("alertname: ")
            .filter_map(|part| part.strip_prefix(alert)?.strip_prefix('\n'));
        let (silent, firing): (Vec<&str>, Vec<&str>) =
            asked.partition(|part| part.trim_start().starts_with("exp_alerts: []"));
        assert!(firing.len() >= 2 && !silent.is_empty(), "{alert}");
    }
}

/// Values that labels have.
fn values(label: &str) -> &'static [&'static str] {
    match label {
        "volume" => &["home"],
        "state" => &["active", "missing", "spare", "ok"],
        "kind" => &["read", "write", "rebuild"],
        "direction" => &["read", "write"],
        "request" => &["read", "write", "flush"],
        "percentile" => &["50", "99"],
        "bound" => &["likely", "earliest", "latest"],
        "level" => &["raid6"],
        "severity" => &["critical"],
        "code" => &["redundancy"],
        _ => &["x"],
    }
}

/// All samples that a family can have with these values.
fn set_all(page: &mut Page, family: &'static Family) {
    let mut all: Vec<Vec<&str>> = vec![Vec::new()];
    for label in family.labels {
        let longer = all.iter().flat_map(|known| {
            values(label)
                .iter()
                .map(|value| [known.as_slice(), &[*value]].concat())
        });
        all = longer.collect();
    }
    for labels in all {
        match family.kind {
            Kind::Summary => page.summary(family, &labels, 1, Duration::from_secs(1)),
            Kind::Gauge | Kind::Counter => page.set(family, &labels, 1_u64),
        }
    }
}

/// Names of series as Prometheus has them, with the target that it adds.
fn series() -> Vec<String> {
    let mut page = Page::new();
    for family in ALL {
        set_all(&mut page, family);
    }
    let text = page.text();
    let samples = text.lines().filter(|line| !line.starts_with('#'));
    let named = samples.map(|line| line.rsplit_once(' ').unwrap().0);
    let target = "instance=\"nas:9837\",job=\"plexum\"";
    let with_target = named.map(|name| match name.split_once('{') {
        Some((name, labels)) => format!("{name}{{{target},{labels}"),
        None => format!("{name}{{{target}}}"),
    });
    with_target.collect()
}

/// Expressions of the page, as it asks them for all machines and volumes.
fn expressions() -> Vec<String> {
    let page: Value = serde_json::from_str(&text("grafana/plexum.json")).unwrap();
    let panels = page["panels"].as_array().unwrap();
    let targets = panels
        .iter()
        .flat_map(|panel| panel["targets"].as_array().unwrap());
    let asked = targets.map(|target| {
        let text = target["expr"].as_str().unwrap();
        let text = text.replace("$instance", ".*").replace("$volume", ".*");
        text.replace("$__rate_interval", "5m")
    });
    asked.collect()
}

#[test]
fn every_expression_of_the_page_has_an_answer() {
    let folder = std::env::temp_dir().join(format!("plexum-page-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let mut test = String::from(
        "rule_files: []\nevaluation_interval: 1m\ntests:\n  - interval: 1m\n    input_series:\n",
    );
    for name in series() {
        writeln!(test, "      - series: '{name}'\n        values: '1+2x60'").unwrap();
    }
    test.push_str("    promql_expr_test:\n");
    let expressions = expressions();
    assert!(expressions.len() > 20);
    for expression in &expressions {
        assert!(!expression.contains('$'), "{expression}");
        // What is asked for all is asked of our target alone: what there would be without one is no answer.
        let asked = match expression.split_once(" or vector(0)") {
            Some((asked, "")) if !asked.contains("== 0") => asked,
            _ => expression,
        };
        let asked = asked.replace('\'', "''");
        writeln!(
            test,
            "      - expr: 'count({asked}) > bool 0'\n        eval_time: 50m"
        )
        .unwrap();
        test.push_str("        exp_samples:\n          - labels: '{}'\n            value: 1\n");
    }
    std::fs::write(folder.join("page.yml"), test).unwrap();
    promtool(&["test", "rules", "page.yml"], &folder);
    std::fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn the_panels_of_the_page_do_not_overlap_and_each_says_what_it_asks() {
    let page: Value = serde_json::from_str(&text("grafana/plexum.json")).unwrap();
    let mut taken = BTreeSet::new();
    for panel in page["panels"].as_array().unwrap() {
        let at = |name: &str| panel["gridPos"][name].as_u64().unwrap();
        assert!(at("x") + at("w") <= 24, "{}", panel["title"]);
        for x in at("x")..at("x") + at("w") {
            for y in at("y")..at("y") + at("h") {
                assert!(taken.insert((x, y)), "{} is over another", panel["title"]);
            }
        }
        assert!(!panel["title"].as_str().unwrap().is_empty());
    }
}
