//! One value: from a node of the tree to a Rust type, judged by its row of the schema.
//! Checks that need more than the one value live with their section.

use std::time::Duration;

use super::diagnostic::{Report, Trouble, one_of, shown};
use super::document::{Node, Spot, Value};
use super::schema::{self, Initial, Kind, Row};
use super::settings::{Secret, Word};
use super::{suggest, units};

const TEXT: &str = "text in quotes";
const LIST: &str = r#"a list of texts, as in ["a", "b"]"#;

/// A table of the tree together with its place in the schema.
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

    /// What stands under a key, unread.
    pub(super) fn node(self, key: &str) -> Option<&'a Node> {
        self.node?.get(key)
    }

    /// The value of a key that has no default.
    pub(super) fn optional<T: Readable>(self, key: &str, report: &mut Report<'_>) -> Option<T> {
        let row = schema::row(self.path, key)?;
        let node = self.node(key)?;
        T::read(node, row, report)
    }

    /// The value of a key, or its default. After a mistake it is the default too: somebody
    /// has to go on reading, and nobody will use the result.
    pub(super) fn value<T: Readable + Default>(self, key: &str, report: &mut Report<'_>) -> T {
        if let Some(value) = self.optional(key, report) {
            return value;
        }
        let initial = || {
            let row = schema::row(self.path, key)?;
            let Initial::Value(toml) = row.initial else {
                return None;
            };
            let node = Node::of_value(toml, &Spot::Flag("default"))?;
            T::read(&node, row, &mut Report::new(None))
        };
        initial().unwrap_or_default()
    }

    /// The value of a key that must be there; what is missing is reported at the table's head.
    pub(super) fn required<T: Readable>(self, key: &str, report: &mut Report<'_>) -> Option<T> {
        if let (Some(table), None) = (self.node, self.node(key)) {
            let place = schema::header(self.path).unwrap_or_default();
            let expected = match schema::row(self.path, key).map(|row| row.kind) {
                Some(Kind::Words { now, .. }) => {
                    format!("`{key}` to be {}", one_of(now.iter().copied()))
                }
                Some(Kind::Text("URL")) => format!("a line `{key} = \"https://...\"`"),
                _ => format!("a line `{key} = \"...\"`"),
            };
            let trouble = Trouble::new(format!("`{key}` is missing in {place}"));
            report.add(&table.spot, trouble.expected(expected));
        }
        self.optional(key, report)
    }
}

/// A type that a key can have.
pub(super) trait Readable: Sized {
    /// Reads a node, or reports what is wrong with it.
    fn read(node: &Node, row: &Row, report: &mut Report<'_>) -> Option<Self>;
}

/// A text and where it stands, for checks that follow.
#[derive(Debug, Clone)]
pub(super) struct Located {
    pub(super) text: String,
    pub(super) spot: Spot,
}

/// Bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Size(pub(super) u64);

impl Readable for Located {
    fn read(node: &Node, row: &Row, report: &mut Report<'_>) -> Option<Self> {
        let text = String::read(node, row, report)?;
        Some(Self { text, spot: node.spot.clone() })
    }
}

impl Readable for String {
    fn read(node: &Node, row: &Row, report: &mut Report<'_>) -> Option<Self> {
        match node.as_text() {
            Some("") => fail(
                report,
                node,
                Trouble::new(format!("`{}` is empty", row.key())).expected(row.holds()),
            ),
            Some(text) => Some(text.to_owned()),
            None => wrong_type(report, node, row, TEXT),
        }
    }
}

impl Readable for Secret {
    fn read(node: &Node, row: &Row, report: &mut Report<'_>) -> Option<Self> {
        let text = String::read(node, row, report)?;
        match secret(&text) {
            Some(secret) => Some(secret),
            None => fail(report, node, unusable_key(&format!("`{}`", row.key()))),
        }
    }
}

impl Readable for bool {
    fn read(node: &Node, row: &Row, report: &mut Report<'_>) -> Option<Self> {
        match node.value {
            Value::Flag(flag) => Some(flag),
            _ => wrong_type(report, node, row, "`true` or `false`, without quotes"),
        }
    }
}

impl Readable for u64 {
    fn read(node: &Node, row: &Row, report: &mut Report<'_>) -> Option<Self> {
        whole(node, row, report)
    }
}

impl Readable for u32 {
    fn read(node: &Node, row: &Row, report: &mut Report<'_>) -> Option<Self> {
        whole(node, row, report)
    }
}

impl Readable for usize {
    fn read(node: &Node, row: &Row, report: &mut Report<'_>) -> Option<Self> {
        whole(node, row, report)
    }
}

impl Readable for Duration {
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
                        Trouble::new(message).expected("a duration longer than nothing"),
                    );
                }
                None => shown(text),
            },
            Value::Whole(number) => {
                let message = format!("`{}` is `{number}`, without a unit", row.key());
                let hint = format!(r#"if seconds are meant, write "{number}s""#);
                return fail(report, node, Trouble::new(message).expected(expected).hint(hint));
            }
            _ => return wrong_type(report, node, row, expected),
        };
        fail(report, node, Trouble::new(format!("`{}` is {found}", row.key())).expected(expected))
    }
}

impl Readable for Size {
    fn read(node: &Node, row: &Row, report: &mut Report<'_>) -> Option<Self> {
        let expected = r#"a size: bytes, or a number and one of `KiB`, `MiB`, `GiB`, `kB`, `MB`, `GB`, as in "64MiB""#;
        let Kind::Size { least } = row.kind else {
            return wrong_type(report, node, row, expected);
        };
        let (found, bytes) = match &node.value {
            Value::Text(text) => (shown(text), units::size(text)),
            Value::Whole(bytes) => (format!("`{bytes}`"), u64::try_from(*bytes).ok()),
            _ => return wrong_type(report, node, row, expected),
        };
        let trouble = Trouble::new(format!("`{}` is {found}", row.key()));
        match bytes {
            Some(bytes) if bytes >= least => Some(Self(bytes)),
            Some(_) => fail(
                report,
                node,
                trouble.expected(format!("at least `{}`", units::show_size(least))),
            ),
            None => fail(report, node, trouble.expected(expected)),
        }
    }
}

impl Readable for Vec<Located> {
    fn read(node: &Node, row: &Row, report: &mut Report<'_>) -> Option<Self> {
        let Value::List(elements) = &node.value else {
            return wrong_type(report, node, row, LIST);
        };
        Some(elements.iter().filter_map(|element| Located::read(element, row, report)).collect())
    }
}

/// Keys of the user's choice with their texts; the key's spot comes along for checks.
impl Readable for Vec<(Located, Located)> {
    fn read(node: &Node, row: &Row, report: &mut Report<'_>) -> Option<Self> {
        let Value::Table(entries) = &node.value else {
            return wrong_type(report, node, row, r#"a table of texts, as in { "a" = "b" }"#);
        };
        let pairs = entries.iter().filter_map(|entry| {
            let key = Located { text: entry.key.clone(), spot: entry.spot.clone() };
            Some((key, Located::read(&entry.node, row, report)?))
        });
        Some(pairs.collect())
    }
}

impl<T: Word> Readable for T {
    fn read(node: &Node, row: &Row, report: &mut Report<'_>) -> Option<Self> {
        let (now, later, verb) = match row.kind {
            Kind::Words { now, later } => (now, later, "is"),
            Kind::WordList(now) => (now, &[][..], "has"),
            _ => return wrong_type(report, node, row, "a word"),
        };
        let expected = one_of(now.iter().copied());
        let Some(word) = node.as_text() else {
            return wrong_type(report, node, row, &expected);
        };
        if let Some(value) = T::of(word) {
            return Some(value);
        }
        if later.contains(&word) {
            let message = format!("{} `{word}` is not available yet", row.key());
            return fail(report, node, Trouble::new(message).expected(expected));
        }
        let meant = suggest::nearest(word, now.iter().copied());
        let message = format!("`{}` {verb} {}", row.key(), shown(word));
        fail(report, node, Trouble::new(message).expected(expected).meant(meant))
    }
}

/// Words, each once however often it is written.
impl<T: Word + PartialEq> Readable for Vec<T> {
    fn read(node: &Node, row: &Row, report: &mut Report<'_>) -> Option<Self> {
        let Value::List(elements) = &node.value else {
            return wrong_type(report, node, row, LIST);
        };
        let mut words = Self::new();
        for element in elements {
            if let Some(word) = T::read(element, row, report)
                && !words.contains(&word)
            {
                words.push(word);
            }
        }
        Some(words)
    }
}

/// A key that can go into a header; white space around it came with copying.
pub(super) fn secret(text: &str) -> Option<Secret> {
    let text = text.trim();
    let fits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_graphic() || byte == b' ');
    fits.then(|| Secret::new(text))
}

/// What to say of a key that cannot; never the key itself.
pub(super) fn unusable_key(holder: &str) -> Trouble {
    Trouble::new(format!("the key in {holder} is blank or has characters that no header can carry"))
        .hint("copy it again, on one line")
}

fn whole<T: TryFrom<i64>>(node: &Node, row: &Row, report: &mut Report<'_>) -> Option<T> {
    let Value::Whole(number) = node.value else {
        return wrong_type(report, node, row, "a whole number, without quotes");
    };
    let bounds = match row.kind {
        Kind::Whole { least, most } => least..=most,
        _ => i64::MIN..=i64::MAX,
    };
    match T::try_from(number) {
        Ok(value) if bounds.contains(&number) => Some(value),
        _ => {
            let message = format!("`{}` is `{number}`", row.key());
            fail(report, node, Trouble::new(message).expected(format!("a {}", row.holds())))
        }
    }
}

fn wrong_type<T>(report: &mut Report<'_>, node: &Node, row: &Row, expected: &str) -> Option<T> {
    // What is wrong may be one element rather than the whole.
    let verb = match (row.kind, &node.value) {
        (Kind::Texts | Kind::TextMap, _) if expected == TEXT => "holds",
        (Kind::WordList(_), _) if expected != LIST => "holds",
        _ => "is",
    };
    let message = format!("`{}` {verb} {}", row.key(), node.value.kind());
    fail(report, node, Trouble::new(message).expected(expected))
}

fn fail<T>(report: &mut Report<'_>, node: &Node, trouble: Trouble) -> Option<T> {
    report.add(&node.spot, trouble);
    None
}
