//! A page of metrics in the text format of Prometheus, version 0.0.4.
//!
//! A writer of our own: that format is all that node_exporter's textfile collector takes. In OpenMetrics, which the
//! libraries write, the families of counters have other names than their samples, and there is an end mark.
//!
//! Source: "Exposition formats" in Prometheus's manual, and `promtool check metrics`.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::time::Duration;

use crate::families::{ALL, Family, Kind};

/// What an answer over HTTP says it is.
pub const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// A value: a number that is whole is written exactly.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Number {
    /// A count, bytes, a moment.
    Whole(u64),
    /// A ratio, seconds with a fraction. Never NaN or infinite: such a sample is left out.
    Real(f64),
}

impl From<u64> for Number {
    fn from(value: u64) -> Self {
        Self::Whole(value)
    }
}

impl From<u32> for Number {
    fn from(value: u32) -> Self {
        Self::Whole(value.into())
    }
}

impl From<usize> for Number {
    fn from(value: usize) -> Self {
        Self::Whole(value as u64)
    }
}

impl From<f64> for Number {
    fn from(value: f64) -> Self {
        Self::Real(value)
    }
}

/// Part of a sample's name behind its family's: of summaries alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Ending {
    None,
    Sum,
    Count,
}

impl Ending {
    fn text(self) -> &'static str {
        match self {
            Self::None => "",
            Self::Sum => "_sum",
            Self::Count => "_count",
        }
    }
}

/// Samples of one family by the values of their labels: two with the same would make the whole page worthless.
type Samples = BTreeMap<(Vec<String>, Ending), Number>;

/// Values of metrics at one moment.
#[derive(Clone, Debug, Default)]
pub struct Page {
    samples: BTreeMap<&'static str, Samples>,
}

impl Page {
    /// A page without any sample.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets one sample; `labels` are the values of the family's labels, in their order. A second value for the same
    /// labels takes the place of the first.
    ///
    /// # Panics
    /// When there are more or fewer values than labels, or the family is a summary.
    pub fn set(&mut self, family: &'static Family, labels: &[&str], value: impl Into<Number>) {
        assert_ne!(family.kind, Kind::Summary, "a summary has two values");
        self.insert(family, labels, Ending::None, value.into());
    }

    /// Sets a sample where there is a value.
    ///
    /// # Panics
    /// As `set`.
    pub fn set_known(
        &mut self,
        family: &'static Family,
        labels: &[&str],
        value: Option<impl Into<Number>>,
    ) {
        if let Some(value) = value {
            self.set(family, labels, value);
        }
    }

    /// Sets a summary: how many there were, and how long all of them took together.
    ///
    /// # Panics
    /// When there are more or fewer values than labels, or the family is no summary.
    pub fn summary(&mut self, family: &'static Family, labels: &[&str], count: u64, sum: Duration) {
        assert_eq!(family.kind, Kind::Summary, "{} has one value", family.name);
        self.insert(family, labels, Ending::Sum, sum.as_secs_f64().into());
        self.insert(family, labels, Ending::Count, count.into());
    }

    fn insert(&mut self, family: &'static Family, labels: &[&str], ending: Ending, value: Number) {
        assert_eq!(
            labels.len(),
            family.labels.len(),
            "one value for each label of {}",
            family.name
        );
        if matches!(value, Number::Real(value) if !value.is_finite()) {
            return;
        }
        let labels = labels.iter().map(|value| (*value).to_owned()).collect();
        let samples = self.samples.entry(family.name).or_default();
        samples.insert((labels, ending), value);
    }

    /// The page as text. Families without a sample are left out.
    #[must_use]
    pub fn text(&self) -> String {
        let mut text = String::new();
        for family in ALL {
            let Some(samples) = self.samples.get(family.name) else {
                continue;
            };
            let (name, kind) = (family.name, family.kind.word());
            let help = escaped(family.help, Quotes::Plain);
            // A String takes everything.
            let _ = writeln!(text, "# HELP {name} {help}\n# TYPE {name} {kind}");
            for ((values, ending), value) in samples {
                text.push_str(name);
                text.push_str(ending.text());
                write_labels(&mut text, family.labels, values);
                let _ = match value {
                    Number::Whole(value) => writeln!(text, " {value}"),
                    Number::Real(value) => writeln!(text, " {value}"),
                };
            }
        }
        text
    }
}

fn write_labels(text: &mut String, names: &[&str], values: &[String]) {
    let pairs = names.iter().zip(values);
    let pairs =
        pairs.map(|(name, value)| format!("{name}=\"{}\"", escaped(value, Quotes::Escaped)));
    let pairs: Vec<String> = pairs.collect();
    if !pairs.is_empty() {
        let _ = write!(text, "{{{}}}", pairs.join(","));
    }
}

/// Whether quotation marks are escaped: in values of labels they are.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Quotes {
    Plain,
    Escaped,
}

fn escaped(value: &str, quotes: Quotes) -> String {
    let mut text = String::with_capacity(value.len());
    for c in value.chars() {
        match c {
            '\\' => text.push_str("\\\\"),
            '\n' => text.push_str("\\n"),
            '"' if quotes == Quotes::Escaped => text.push_str("\\\""),
            c => text.push(c),
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::families;

    #[test]
    fn a_page_says_of_each_family_what_it_is_and_then_its_samples_in_order() {
        let mut page = Page::new();
        page.set(&families::VOLUME_SIZE_BYTES, &["b"], 7_u64);
        page.set(&families::VOLUME_SIZE_BYTES, &["a"], u64::MAX);
        page.set(&families::BUILD_INFO, &["0.1.0"], 1_u64);
        page.summary(
            &families::REQUEST_SECONDS,
            &["a", "read"],
            3,
            Duration::from_millis(1500),
        );
        let help = |family: &Family| format!("# HELP {} {}\n", family.name, family.help);
        let expected = format!(
            "{}# TYPE plexum_build_info gauge\nplexum_build_info{{version=\"0.1.0\"}} 1\n\
             {}# TYPE plexum_volume_size_bytes gauge\n\
             plexum_volume_size_bytes{{volume=\"a\"}} 18446744073709551615\n\
             plexum_volume_size_bytes{{volume=\"b\"}} 7\n\
             {}# TYPE plexum_request_seconds summary\n\
             plexum_request_seconds_sum{{volume=\"a\",direction=\"read\"}} 1.5\n\
             plexum_request_seconds_count{{volume=\"a\",direction=\"read\"}} 3\n",
            help(&families::BUILD_INFO),
            help(&families::VOLUME_SIZE_BYTES),
            help(&families::REQUEST_SECONDS),
        );
        assert_eq!(page.text(), expected);
    }

    #[test]
    fn whatever_a_name_holds_stays_inside_of_its_quotation_marks() {
        let mut page = Page::new();
        page.set(&families::VOLUME_SIZE_BYTES, &["a\"} 1\nb\\"], 7_u64);
        let line = page.text().lines().last().unwrap_or_default().to_owned();
        assert_eq!(line, r#"plexum_volume_size_bytes{volume="a\"} 1\nb\\"} 7"#);
    }

    #[test]
    fn a_value_that_is_no_number_is_left_out() {
        let mut page = Page::new();
        page.set(&families::MEMBER_PEER_RATIO, &["v", "0", "m"], f64::NAN);
        assert_eq!(page.text(), "");
    }

    #[test]
    fn the_same_labels_are_never_written_twice() {
        let mut page = Page::new();
        page.set(&families::VOLUME_SIZE_BYTES, &["a"], 1_u64);
        page.set(&families::VOLUME_SIZE_BYTES, &["a"], 2_u64);
        assert!(page.text().ends_with("{volume=\"a\"} 2\n"));
        assert_eq!(page.text().lines().count(), 3);
    }
}
