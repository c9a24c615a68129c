//! Reads metrics in the Prometheus text format, and panics on everything that the format forbids.

use std::collections::{BTreeMap, HashSet};

/// The metrics of one answer of `/metrics`.
#[derive(Debug)]
pub struct Metrics {
    /// The type of each family, by name.
    pub types: BTreeMap<String, String>,
    series: Vec<Series>,
}

#[derive(Debug)]
struct Series {
    name: String,
    labels: BTreeMap<String, String>,
    value: f64,
}

impl Metrics {
    /// Reads and checks the text.
    ///
    /// # Panics
    /// If the text is not valid.
    pub fn parse(text: &str) -> Self {
        assert!(text.ends_with('\n'), "the last line ends");
        let mut metrics = Self { types: BTreeMap::new(), series: Vec::new() };
        let (mut helped, mut family) = (HashSet::new(), String::new());
        for line in text.lines() {
            if let Some(rest) = line.strip_prefix("# HELP ") {
                let (name, help) = rest.split_once(' ').expect("a help text");
                assert!(!help.trim().is_empty() && helped.insert(name.to_owned()), "{line}");
                name.clone_into(&mut family);
            } else if let Some(rest) = line.strip_prefix("# TYPE ") {
                let (name, kind) = rest.split_once(' ').expect("a type");
                assert_eq!(name, family, "the type follows the help text: {line}");
                assert!(["counter", "gauge", "histogram"].contains(&kind), "{line}");
                assert_eq!(kind == "counter", name.ends_with("_total"), "{line}");
                let earlier = metrics.types.insert(name.to_owned(), kind.to_owned());
                assert_eq!(earlier, None, "{line} comes once");
            } else {
                let series = Series::parse(line);
                let kind = &metrics.types[&family];
                let ending = series.name.strip_prefix(&family).expect("a series of its family");
                let endings: &[&str] = match kind.as_str() {
                    "histogram" => &["_bucket", "_sum", "_count"],
                    _ => &[""],
                };
                assert!(endings.contains(&ending), "{line} in {family}");
                assert_eq!(ending == "_bucket", series.labels.contains_key("le"), "{line}");
                metrics.series.push(series);
            }
        }
        metrics.check_uniqueness();
        metrics.check_histograms();
        metrics
    }

    fn check_uniqueness(&self) {
        let mut seen = HashSet::new();
        for Series { name, labels, .. } in &self.series {
            assert!(seen.insert((name, labels)), "{name} {labels:?} comes once");
        }
    }

    /// Buckets rise, the last one is `+Inf`, and it has all values.
    fn check_histograms(&self) {
        let mut last = BTreeMap::<_, (f64, f64)>::new();
        for Series { name, labels, value } in &self.series {
            let of: BTreeMap<&str, &str> = labels
                .iter()
                .filter(|(label, _)| *label != "le")
                .map(|(label, value)| (label.as_str(), value.as_str()))
                .collect();
            if let Some(name) = name.strip_suffix("_bucket") {
                let bound = labels["le"].parse().expect("a bound");
                let before = last.insert((name, of), (bound, *value));
                let (lower, fewer) = before.unwrap_or((0.0, 0.0));
                assert!(lower < bound && fewer <= *value, "{name} {labels:?}");
            } else if let Some(histogram) = name.strip_suffix("_count") {
                let all = last.get(&(histogram, of)).expect("buckets before the count");
                assert_eq!(*all, (f64::INFINITY, *value), "{name} {labels:?}");
            }
        }
    }

    /// The sum of all series with this name and these labels, and any others.
    ///
    /// # Panics
    /// If no family has this name.
    pub fn sum(&self, name: &str, labels: &[(&str, &str)]) -> f64 {
        let family = ["_bucket", "_sum", "_count"].iter().find_map(|end| name.strip_suffix(end));
        let known = |name| self.types.contains_key(name);
        assert!(known(name) || family.is_some_and(known), "no {name} in {:?}", self.types.keys());
        let matches = |series: &&Series| {
            series.name == name
                && labels.iter().all(|(label, value)| {
                    series.labels.get(*label).is_some_and(|found| found == value)
                })
        };
        self.series.iter().filter(matches).map(|series| series.value).sum()
    }

    /// The sums of a family by one of its labels.
    pub fn by_label(&self, name: &str, label: &str) -> BTreeMap<String, f64> {
        let mut sums = BTreeMap::new();
        for series in self.series.iter().filter(|series| series.name == name) {
            *sums.entry(series.labels[label].clone()).or_default() += series.value;
        }
        sums
    }
}

impl Series {
    fn parse(line: &str) -> Self {
        let end = line.find(['{', ' ']).expect("the end of the name");
        let (name, rest) = line.split_at(end);
        assert!(name.starts_with("throughline_"), "{line}");
        assert!(is_name(name), "{line}");
        let (labels, rest) = match rest.strip_prefix('{') {
            Some(rest) => parse_labels(rest),
            None => (BTreeMap::new(), rest),
        };
        let value = rest.strip_prefix(' ').expect("a space before the value");
        let value = value.parse().unwrap_or_else(|error| panic!("{error}: {line}"));
        Self { name: name.to_owned(), labels, value }
    }
}

/// Reads labels up to the closing brace. Returns the rest of the line.
fn parse_labels(mut rest: &str) -> (BTreeMap<String, String>, &str) {
    let mut labels = BTreeMap::new();
    loop {
        let (name, after) = rest.split_once("=\"").expect("a label");
        assert!(is_name(name), "{rest}");
        let mut value = String::new();
        let mut letters = after.char_indices();
        let end = loop {
            match letters.next().expect("the end of a label") {
                (at, '"') => break at,
                (_, '\\') => match letters.next().expect("an escaped character").1 {
                    'n' => value.push('\n'),
                    escaped @ ('\\' | '"') => value.push(escaped),
                    other => panic!("\\{other} in {rest}"),
                },
                (_, letter) => value.push(letter),
            }
        };
        assert_eq!(labels.insert(name.to_owned(), value), None, "{name} comes once");
        match after[end + 1..].split_at(1) {
            (",", more) => rest = more,
            ("}", more) => return (labels, more),
            (other, _) => panic!("`{other}` after a label"),
        }
    }
}

fn is_name(name: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    name.bytes().all(plain) && name.bytes().next().is_some_and(|first| !first.is_ascii_digit())
}
