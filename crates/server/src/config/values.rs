//! Reads one value: a node of the tree becomes a Rust type, checked by its row of the schema. Checks
//! that need more than one value live with their section.

use std::time::Duration;

use throughline_codec::pacing::Pace;

use super::config_enum::ConfigEnum;
use super::diagnostic::{Problem, Report, one_of, shown};
use super::document::{Node, Position, Value};
use super::schema::{self, DefaultValue, KeyType, Row};
use super::{suggest, units};

const TEXT: &str = "a string in quotes";
const LIST: &str = r#"a list of strings, as in ["a", "b"]"#;

/// A table of the tree together with its section of the schema.
#[derive(Clone, Copy)]
pub(super) struct Section<'a> {
    path: &'static str,
    node: Option<&'a Node>,
}

impl<'a> Section<'a> {
    pub(super) fn root(node: &'a Node) -> Self {
        Self { path: "", node: Some(node) }
    }

    /// The table under a key; if there is none, a section where everything is unset.
    pub(super) fn table(self, key: &str) -> Self {
        let path = schema::row(self.path, key).map_or("", |row| row.path);
        Self { path, node: self.node(key).filter(|node| matches!(node.value, Value::Table(_))) }
    }

    /// The tables of the list under a key.
    pub(super) fn tables(self, key: &str) -> Vec<Self> {
        let path = schema::row(self.path, key).map_or("", |row| row.path);
        let elements = self.node(key).map_or(&[][..], Node::elements);
        let tables = elements.iter().filter(|node| matches!(node.value, Value::Table(_)));
        tables.map(|node| Self { path, node: Some(node) }).collect()
    }

    /// The node under a key, not yet read.
    pub(super) fn node(self, key: &str) -> Option<&'a Node> {
        self.node?.get(key)
    }

    /// The value of a key that has no default.
    pub(super) fn optional<T: FromNode>(self, key: &str, report: &mut Report<'_>) -> Option<T> {
        let row = schema::row(self.path, key)?;
        let node = self.node(key)?;
        T::read(node, row, report)
    }

    /// The value of a key, or its default. A mistake also gives the default, so that reading can go
    /// on; the result is then not used.
    pub(super) fn value<T: FromNode + Default>(self, key: &str, report: &mut Report<'_>) -> T {
        self.value_or_default(key, report).unwrap_or_default()
    }

    /// The same for an enum.
    pub(super) fn choice<T: ConfigEnum>(self, key: &str, report: &mut Report<'_>) -> T {
        self.value_or_default(key, report).unwrap_or(T::FIRST)
    }

    fn value_or_default<T: FromNode>(self, key: &str, report: &mut Report<'_>) -> Option<T> {
        if let Some(value) = self.optional(key, report) {
            return Some(value);
        }
        let row = schema::row(self.path, key)?;
        let DefaultValue::Toml(toml) = row.default else {
            return None;
        };
        let node = Node::of_value(toml, &Position::Flag("default"))?;
        T::read(&node, row, &mut Report::new(None))
    }

    /// The value of a key that must be set; a missing key is reported at the table's header.
    pub(super) fn required<T: FromNode>(self, key: &str, report: &mut Report<'_>) -> Option<T> {
        if let (Some(table), None) = (self.node, self.node(key)) {
            let header = schema::header(self.path).unwrap_or_default();
            let expected = match schema::row(self.path, key).map(|row| row.key_type) {
                Some(KeyType::OneOf(names)) => {
                    format!("`{key}` to be {}", one_of(names()))
                }
                Some(KeyType::Text("URL")) => format!("a line `{key} = \"https://...\"`"),
                _ => format!("a line `{key} = \"...\"`"),
            };
            let problem = Problem::new(format!("`{key}` is missing in {header}"));
            report.add(&table.position, problem.expected(expected));
        }
        self.optional(key, report)
    }
}

/// A type that can be read from a node.
pub(super) trait FromNode: Sized {
    /// Reads a node, or reports what is wrong with it.
    fn read(node: &Node, row: &Row, report: &mut Report<'_>) -> Option<Self>;
}

/// A string and its position, for later checks.
#[derive(Debug, Clone)]
pub(super) struct LocatedText {
    pub(super) text: String,
    pub(super) position: Position,
}

/// A number of bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Size(pub(super) u64);

impl Size {
    /// The number for data that is kept in memory.
    pub(super) fn in_memory(self) -> usize {
        usize::try_from(self.0).unwrap_or(usize::MAX)
    }
}

impl FromNode for LocatedText {
    fn read(node: &Node, row: &Row, report: &mut Report<'_>) -> Option<Self> {
        let text = String::read(node, row, report)?;
        Some(Self { text, position: node.position.clone() })
    }
}

impl FromNode for String {
    fn read(node: &Node, row: &Row, report: &mut Report<'_>) -> Option<Self> {
        match node.as_text() {
            Some("") => fail(
                report,
                node,
                Problem::new(format!("`{}` is empty", row.key())).expected(row.type_name()),
            ),
            Some(text) => Some(text.to_owned()),
            None => wrong_type(report, node, row, TEXT),
        }
    }
}

/// The address of a Redis server; empty for none. It may contain a password.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct RedisUrl(pub String);

/// Never shows a password.
impl std::fmt::Debug for RedisUrl {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str(if self.0.is_empty() { "None" } else { "Redis" })
    }
}

impl FromNode for RedisUrl {
    fn read(node: &Node, row: &Row, report: &mut Report<'_>) -> Option<Self> {
        const SCHEMES: [&str; 2] = ["redis://", "rediss://"];
        let Some(text) = node.as_text() else {
            return wrong_type(report, node, row, TEXT);
        };
        if text.is_empty() || SCHEMES.iter().any(|scheme| text.starts_with(scheme)) {
            return Some(Self(text.to_owned()));
        }
        // The value is not shown, because it may contain a password.
        let problem = Problem::new(format!("`{}` names no Redis server", row.key()));
        fail(report, node, problem.expected(r#""redis://user:password@host:6379/0""#))
    }
}

/// An API key. It has no `Debug`, so that no message can show it.
pub(super) struct ApiKey(pub(super) String);

impl FromNode for ApiKey {
    fn read(node: &Node, row: &Row, report: &mut Report<'_>) -> Option<Self> {
        let text = String::read(node, row, report)?;
        match api_key(&text) {
            Some(key) => Some(key),
            None => fail(report, node, unusable_key(&format!("`{}`", row.key()))),
        }
    }
}

impl FromNode for bool {
    fn read(node: &Node, row: &Row, report: &mut Report<'_>) -> Option<Self> {
        match node.value {
            Value::Bool(flag) => Some(flag),
            _ => wrong_type(report, node, row, "`true` or `false`, without quotes"),
        }
    }
}

impl FromNode for u64 {
    fn read(node: &Node, row: &Row, report: &mut Report<'_>) -> Option<Self> {
        integer(node, row, report)
    }
}

impl FromNode for u32 {
    fn read(node: &Node, row: &Row, report: &mut Report<'_>) -> Option<Self> {
        integer(node, row, report)
    }
}

impl FromNode for usize {
    fn read(node: &Node, row: &Row, report: &mut Report<'_>) -> Option<Self> {
        integer(node, row, report)
    }
}

impl FromNode for Duration {
    fn read(node: &Node, row: &Row, report: &mut Report<'_>) -> Option<Self> {
        let expected = r#"a duration: a number and one of `ms`, `s`, `m`, `h`, `d`, as in "15s""#;
        let found = match &node.value {
            Value::Text(text) => match units::duration(text) {
                Some(duration) if !duration.is_zero() => return Some(duration),
                Some(_) => {
                    let message = format!("`{}` is {}", row.key(), shown(text));
                    return fail(
                        report,
                        node,
                        Problem::new(message).expected("a duration longer than zero"),
                    );
                }
                None => shown(text),
            },
            Value::Integer(number) => {
                let message = format!("`{}` is `{number}`, without a unit", row.key());
                let hint = format!(r#"for seconds, write "{number}s""#);
                return fail(report, node, Problem::new(message).expected(expected).hint(hint));
            }
            _ => return wrong_type(report, node, row, expected),
        };
        fail(report, node, Problem::new(format!("`{}` is {found}", row.key())).expected(expected))
    }
}

/// A duration, or the word for none.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct MaybeDuration(pub(super) Option<Duration>);

impl FromNode for MaybeDuration {
    fn read(node: &Node, row: &Row, report: &mut Report<'_>) -> Option<Self> {
        match row.key_type {
            KeyType::DurationOr(word) if node.as_text() == Some(word) => Some(Self(None)),
            _ => Duration::read(node, row, report).map(|duration| Self(Some(duration))),
        }
    }
}

/// How text is cut into pieces.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct PaceValue(pub(super) Pace);

impl Default for PaceValue {
    fn default() -> Self {
        Self(Pace::Immediate)
    }
}

impl FromNode for PaceValue {
    fn read(node: &Node, row: &Row, report: &mut Report<'_>) -> Option<Self> {
        let names = units::PACES.map(|(name, _)| name);
        let expected = format!("{}, or {{ window_ms = 80, bytes = 256 }}", one_of(names));
        if let Some(name) = node.as_text() {
            let known = units::PACES.iter().find(|(known, _)| *known == name);
            return known.map(|(_, pace)| Self(*pace)).or_else(|| {
                let message = format!("`{}` is {}", row.key(), shown(name));
                let nearest = suggest::nearest(name, names);
                fail(report, node, Problem::new(message).expected(expected).did_you_mean(nearest))
            });
        }
        let number = |key: &str| match node.get(key)?.value {
            Value::Integer(number) => u32::try_from(number).ok(),
            _ => None,
        };
        let (window, bytes) = (number("window_ms"), number("bytes").filter(|bytes| *bytes > 0));
        let (Some(window), Some(bytes), 2) = (window, bytes, node.entries().len()) else {
            return wrong_type(report, node, row, &expected);
        };
        let after = Duration::from_millis(window.into());
        Some(Self(Pace::Window { after, bytes: bytes as usize }))
    }
}

impl FromNode for Size {
    fn read(node: &Node, row: &Row, report: &mut Report<'_>) -> Option<Self> {
        let expected = r#"a size: bytes, or a number and one of `KiB`, `MiB`, `GiB`, `kB`, `MB`, `GB`, as in "64MiB""#;
        let KeyType::Size { min } = row.key_type else {
            return wrong_type(report, node, row, expected);
        };
        let (found, bytes) = match &node.value {
            Value::Text(text) => (shown(text), units::size(text)),
            Value::Integer(bytes) => (format!("`{bytes}`"), u64::try_from(*bytes).ok()),
            _ => return wrong_type(report, node, row, expected),
        };
        let problem = Problem::new(format!("`{}` is {found}", row.key()));
        match bytes {
            Some(bytes) if bytes >= min => Some(Self(bytes)),
            Some(_) => fail(
                report,
                node,
                problem.expected(format!("at least `{}`", units::show_size(min))),
            ),
            None => fail(report, node, problem.expected(expected)),
        }
    }
}

impl FromNode for Vec<LocatedText> {
    fn read(node: &Node, row: &Row, report: &mut Report<'_>) -> Option<Self> {
        let Value::List(elements) = &node.value else {
            return wrong_type(report, node, row, LIST);
        };
        Some(
            elements.iter().filter_map(|element| LocatedText::read(element, row, report)).collect(),
        )
    }
}

/// Strings under keys of the user's choice, each with its position.
impl FromNode for Vec<(LocatedText, LocatedText)> {
    fn read(node: &Node, row: &Row, report: &mut Report<'_>) -> Option<Self> {
        let Value::Table(entries) = &node.value else {
            return wrong_type(report, node, row, r#"a table of strings, as in { "a" = "b" }"#);
        };
        let pairs = entries.iter().filter_map(|entry| {
            let key = LocatedText { text: entry.key.clone(), position: entry.position.clone() };
            Some((key, LocatedText::read(&entry.node, row, report)?))
        });
        Some(pairs.collect())
    }
}

impl<T: ConfigEnum> FromNode for T {
    fn read(node: &Node, row: &Row, report: &mut Report<'_>) -> Option<Self> {
        let expected = one_of(T::names());
        let Some(name) = node.as_text() else {
            return wrong_type(report, node, row, &expected);
        };
        if let Some(value) = T::from_name(name) {
            return Some(value);
        }
        let verb = if matches!(row.key_type, KeyType::ListOf(_)) { "has" } else { "is" };
        let message = format!("`{}` {verb} {}", row.key(), shown(name));
        let nearest = suggest::nearest(name, T::names());
        fail(report, node, Problem::new(message).expected(expected).did_you_mean(nearest))
    }
}

/// A list of names; repetitions are dropped.
impl<T: ConfigEnum + PartialEq> FromNode for Vec<T> {
    fn read(node: &Node, row: &Row, report: &mut Report<'_>) -> Option<Self> {
        let Value::List(elements) = &node.value else {
            return wrong_type(report, node, row, LIST);
        };
        let mut values = Self::new();
        for element in elements {
            if let Some(value) = T::read(element, row, report)
                && !values.contains(&value)
            {
                values.push(value);
            }
        }
        Some(values)
    }
}

/// Checks that an API key fits into a header. White space around it is an accident of copying.
pub(super) fn api_key(text: &str) -> Option<ApiKey> {
    let text = text.trim();
    let fits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_graphic() || byte == b' ');
    fits.then(|| ApiKey(text.to_owned()))
}

/// The problem of a key that does not fit. It never shows the key.
pub(super) fn unusable_key(holder: &str) -> Problem {
    Problem::new(format!(
        "the key in {holder} is blank or has characters that are not allowed in a header"
    ))
    .hint("copy it again, on one line")
}

fn integer<T: TryFrom<i64>>(node: &Node, row: &Row, report: &mut Report<'_>) -> Option<T> {
    let Value::Integer(number) = node.value else {
        return wrong_type(report, node, row, "an integer, without quotes");
    };
    let bounds = match row.key_type {
        KeyType::Integer { min, max } => min..=max,
        _ => i64::MIN..=i64::MAX,
    };
    match T::try_from(number) {
        Ok(value) if bounds.contains(&number) => Some(value),
        _ => {
            let message = format!("`{}` is `{number}`", row.key());
            fail(report, node, Problem::new(message).expected(format!("an {}", row.type_name())))
        }
    }
}

fn wrong_type<T>(report: &mut Report<'_>, node: &Node, row: &Row, expected: &str) -> Option<T> {
    // One element may have the wrong type, rather than the whole list or table.
    let verb = match (row.key_type, &node.value) {
        (KeyType::TextList | KeyType::TextMap, _) if expected == TEXT => "holds",
        (KeyType::ListOf(_), _) if expected != LIST => "holds",
        _ => "is",
    };
    let message = format!("`{}` {verb} {}", row.key(), node.value.type_name());
    fail(report, node, Problem::new(message).expected(expected))
}

fn fail<T>(report: &mut Report<'_>, node: &Node, problem: Problem) -> Option<T> {
    report.add(&node.position, problem);
    None
}
