//! The tree all sources become: values with the spot each one comes from.
//! Reading TOML ends here; nothing below this file knows the parser.

use std::ops::Range;

use toml_edit::{Document, Item, Table, TableLike};

use super::diagnostic::{Report, Trouble};
use super::paths::Source;

/// Where a value comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Spot {
    /// Bytes of the file.
    File(Range<usize>),
    /// An environment variable, by name.
    Variable(String),
    /// A command-line flag, by name.
    Flag(&'static str),
}

/// A value and its spot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Node {
    pub(super) value: Value,
    pub(super) spot: Spot,
}

/// A TOML value; tables and lists look the same however they were written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Value {
    Text(String),
    Whole(i64),
    Flag(bool),
    List(Vec<Node>),
    Table(Vec<Entry>),
    /// A type no key has, by its name.
    Other(&'static str),
}

/// A key of a table, and what it holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) key: String,
    pub(super) spot: Spot,
    pub(super) node: Node,
}

impl Node {
    /// The tree of a file; the parser stops at the first thing that is not TOML.
    pub(super) fn of_source(source: &Source, report: &mut Report<'_>) -> Option<Self> {
        match Document::parse(source.text.as_str()) {
            Ok(document) => Some(Self::of_table(document.as_table(), &Origin::File(0..0))),
            Err(error) => {
                let span = error.span().unwrap_or(0..0);
                let named =
                    source.text.get(span.clone()).filter(|_| error.message() == "duplicate key");
                let message = match named {
                    Some(key) => format!("duplicate key `{key}`"),
                    None => format!("not TOML: {}", error.message()),
                };
                report.add(&Spot::File(span), Trouble::new(message));
                None
            }
        }
    }

    /// A value that stands alone, as in a variable; every part of it has the same spot.
    pub(super) fn of_value(text: &str, spot: &Spot) -> Option<Self> {
        let value: toml_edit::Value = text.trim().parse().ok()?;
        Some(Self::of_toml(&value, &Origin::Fixed(spot.clone())))
    }

    /// A table that holds nothing yet.
    pub(super) fn empty(spot: Spot) -> Self {
        Self { value: Value::Table(Vec::new()), spot }
    }

    pub(super) fn text(text: impl Into<String>, spot: Spot) -> Self {
        Self { value: Value::Text(text.into()), spot }
    }

    /// What a table holds under a key; nothing for other values.
    pub(super) fn get(&self, key: &str) -> Option<&Self> {
        let entries = self.entries();
        entries.iter().find(|entry| entry.key == key).map(|entry| &entry.node)
    }

    /// A table's entries; none for other values.
    pub(super) fn entries(&self) -> &[Entry] {
        match &self.value {
            Value::Table(entries) => entries,
            _ => &[],
        }
    }

    /// A list's elements; none for other values.
    pub(super) fn elements(&self) -> &[Self] {
        match &self.value {
            Value::List(elements) => elements,
            _ => &[],
        }
    }

    /// The text, if it is one.
    pub(super) fn as_text(&self) -> Option<&str> {
        match &self.value {
            Value::Text(text) => Some(text),
            _ => None,
        }
    }

    /// Puts a value at a path, in place of what is there. A parent that is no table is left
    /// alone: it is a mistake of its own.
    pub(super) fn set(&mut self, path: &[&str], node: Self) {
        let (Some((key, rest)), Value::Table(entries)) = (path.split_first(), &mut self.value)
        else {
            return;
        };
        let at = match entries.iter().position(|entry| entry.key == *key) {
            Some(at) => at,
            None => {
                let spot = node.spot.clone();
                let empty = Self::empty(spot.clone());
                entries.push(Entry { key: (*key).to_owned(), spot, node: empty });
                entries.len() - 1
            }
        };
        let entry = &mut entries[at];
        if rest.is_empty() {
            entry.spot = node.spot.clone();
            entry.node = node;
        } else {
            entry.node.set(rest, node);
        }
    }

    fn of_item(item: &Item, origin: &Origin) -> Self {
        match item {
            Item::None => Self::empty(origin.spot(None)),
            Item::Table(table) => Self::of_table(table, origin),
            Item::ArrayOfTables(tables) => {
                let elements = tables.iter().map(|table| Self::of_table(table, origin));
                Self { value: Value::List(elements.collect()), spot: origin.spot(tables.span()) }
            }
            Item::Value(value) => Self::of_toml(value, origin),
        }
    }

    fn of_table(table: &Table, origin: &Origin) -> Self {
        let spot = origin.spot(table.span());
        let key_span = |key: &str| table.get_key_value(key)?.0.span();
        Self { value: entries(table, &origin.within(&spot), key_span), spot }
    }

    fn of_toml(value: &toml_edit::Value, origin: &Origin) -> Self {
        let spot = origin.spot(value.span());
        let origin = origin.within(&spot);
        let value = match value {
            toml_edit::Value::String(text) => Value::Text(text.value().clone()),
            toml_edit::Value::Integer(whole) => Value::Whole(*whole.value()),
            toml_edit::Value::Boolean(flag) => Value::Flag(*flag.value()),
            toml_edit::Value::Float(_) => Value::Other("a number with a fraction"),
            toml_edit::Value::Datetime(_) => Value::Other("a date or time"),
            toml_edit::Value::Array(values) => {
                Value::List(values.iter().map(|value| Self::of_toml(value, &origin)).collect())
            }
            toml_edit::Value::InlineTable(table) => {
                entries(table, &origin, |key| table.get_key_value(key)?.0.span())
            }
        };
        Self { value, spot }
    }
}

impl Value {
    /// The type's name in a message.
    pub(super) fn kind(&self) -> &'static str {
        match self {
            Self::Text(_) => "text",
            Self::Whole(_) => "a whole number",
            Self::Flag(_) => "true or false",
            Self::List(_) => "a list",
            Self::Table(_) => "a table",
            Self::Other(kind) => kind,
        }
    }
}

/// Spots while a tree is built: positions where there are any, else those of the parent.
enum Origin {
    File(Range<usize>),
    Fixed(Spot),
}

impl Origin {
    fn spot(&self, span: Option<Range<usize>>) -> Spot {
        match self {
            Self::File(parent) => Spot::File(span.unwrap_or_else(|| parent.clone())),
            Self::Fixed(spot) => spot.clone(),
        }
    }

    fn within(&self, spot: &Spot) -> Self {
        match (self, spot) {
            (Self::File(_), Spot::File(span)) => Self::File(span.clone()),
            _ => Self::Fixed(spot.clone()),
        }
    }
}

fn entries(
    table: &dyn TableLike,
    origin: &Origin,
    key_span: impl Fn(&str) -> Option<Range<usize>>,
) -> Value {
    let entries = table.iter().map(|(key, item)| Entry {
        key: key.to_owned(),
        spot: origin.spot(key_span(key)),
        node: Node::of_item(item, origin),
    });
    Value::Table(entries.collect())
}
