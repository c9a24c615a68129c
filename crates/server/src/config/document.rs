//! The tree that file, environment and flags become: values, each with its position. Only this file
//! knows the TOML parser.

use std::ops::Range;

use toml_edit::{Document, Item, Table, TableLike};

use super::diagnostic::{Problem, Report};
use super::paths::Source;

/// Where a value comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Position {
    /// Bytes of the file.
    File(Range<usize>),
    /// An environment variable, by name.
    Variable(String),
    /// A command-line flag, by name.
    Flag(&'static str),
}

/// A value and its position.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Node {
    pub(super) value: Value,
    pub(super) position: Position,
}

/// A TOML value; inline and other tables and lists look the same.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Value {
    Text(String),
    Integer(i64),
    Bool(bool),
    List(Vec<Node>),
    Table(Vec<Entry>),
    /// A type that no key has, by its name.
    Other(&'static str),
}

/// A key of a table and its value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) key: String,
    pub(super) position: Position,
    pub(super) node: Node,
}

impl Node {
    /// Parses a file. The parser stops at the first syntax error.
    pub(super) fn of_source(source: &Source, report: &mut Report<'_>) -> Option<Self> {
        match Document::parse(source.text.as_str()) {
            Ok(document) => Some(Self::of_table(document.as_table(), &SpanSource::File(0..0))),
            Err(error) => {
                let span = error.span().unwrap_or(0..0);
                let key =
                    source.text.get(span.clone()).filter(|_| error.message() == "duplicate key");
                let message = match key {
                    Some(key) => format!("duplicate key `{key}`"),
                    None => format!("not valid TOML: {}", error.message()),
                };
                report.add(&Position::File(span), Problem::new(message));
                None
            }
        }
    }

    /// Parses a single value, as in a variable; every part of it has the same position.
    pub(super) fn of_value(text: &str, position: &Position) -> Option<Self> {
        let value: toml_edit::Value = text.trim().parse().ok()?;
        Some(Self::of_toml(&value, &SpanSource::Fixed(position.clone())))
    }

    /// An empty table.
    pub(super) fn empty(position: Position) -> Self {
        Self { value: Value::Table(Vec::new()), position }
    }

    pub(super) fn text(text: impl Into<String>, position: Position) -> Self {
        Self { value: Value::Text(text.into()), position }
    }

    /// The value under a key of a table; `None` for other values.
    pub(super) fn get(&self, key: &str) -> Option<&Self> {
        let entries = self.entries();
        entries.iter().find(|entry| entry.key == key).map(|entry| &entry.node)
    }

    /// The entries of a table; none for other values.
    pub(super) fn entries(&self) -> &[Entry] {
        match &self.value {
            Value::Table(entries) => entries,
            _ => &[],
        }
    }

    /// The elements of a list; none for other values.
    pub(super) fn elements(&self) -> &[Self] {
        match &self.value {
            Value::List(elements) => elements,
            _ => &[],
        }
    }

    /// The string, if the value is one.
    pub(super) fn as_text(&self) -> Option<&str> {
        match &self.value {
            Value::Text(text) => Some(text),
            _ => None,
        }
    }

    /// Sets the value at a path. A parent that is not a table stays unchanged: it is reported as a
    /// mistake of its own.
    pub(super) fn set(&mut self, path: &[&str], node: Self) {
        let (Some((key, rest)), Value::Table(entries)) = (path.split_first(), &mut self.value)
        else {
            return;
        };
        let at = match entries.iter().position(|entry| entry.key == *key) {
            Some(at) => at,
            None => {
                let position = node.position.clone();
                let empty = Self::empty(position.clone());
                entries.push(Entry { key: (*key).to_owned(), position, node: empty });
                entries.len() - 1
            }
        };
        let entry = &mut entries[at];
        if rest.is_empty() {
            entry.position = node.position.clone();
            entry.node = node;
        } else {
            entry.node.set(rest, node);
        }
    }

    fn of_item(item: &Item, spans: &SpanSource) -> Self {
        match item {
            Item::None => Self::empty(spans.position(None)),
            Item::Table(table) => Self::of_table(table, spans),
            Item::ArrayOfTables(tables) => {
                let elements = tables.iter().map(|table| Self::of_table(table, spans));
                Self {
                    value: Value::List(elements.collect()),
                    position: spans.position(tables.span()),
                }
            }
            Item::Value(value) => Self::of_toml(value, spans),
        }
    }

    fn of_table(table: &Table, spans: &SpanSource) -> Self {
        let position = spans.position(table.span());
        let key_span = |key: &str| table.get_key_value(key)?.0.span();
        Self { value: entries(table, &spans.within(&position), key_span), position }
    }

    fn of_toml(value: &toml_edit::Value, spans: &SpanSource) -> Self {
        let position = spans.position(value.span());
        let spans = spans.within(&position);
        let value = match value {
            toml_edit::Value::String(text) => Value::Text(text.value().clone()),
            toml_edit::Value::Integer(whole) => Value::Integer(*whole.value()),
            toml_edit::Value::Boolean(flag) => Value::Bool(*flag.value()),
            toml_edit::Value::Float(_) => Value::Other("a float"),
            toml_edit::Value::Datetime(_) => Value::Other("a date or time"),
            toml_edit::Value::Array(values) => {
                Value::List(values.iter().map(|value| Self::of_toml(value, &spans)).collect())
            }
            toml_edit::Value::InlineTable(table) => {
                entries(table, &spans, |key| table.get_key_value(key)?.0.span())
            }
        };
        Self { value, position }
    }
}

impl Value {
    /// The name of the type, for messages.
    pub(super) fn type_name(&self) -> &'static str {
        match self {
            Self::Text(_) => "a string",
            Self::Integer(_) => "an integer",
            Self::Bool(_) => "a boolean",
            Self::List(_) => "a list",
            Self::Table(_) => "a table",
            Self::Other(name) => name,
        }
    }
}

/// Spots while a tree is built: positions where there are any, else those of the parent.
enum SpanSource {
    File(Range<usize>),
    Fixed(Position),
}

impl SpanSource {
    fn position(&self, span: Option<Range<usize>>) -> Position {
        match self {
            Self::File(parent) => Position::File(span.unwrap_or_else(|| parent.clone())),
            Self::Fixed(position) => position.clone(),
        }
    }

    fn within(&self, position: &Position) -> Self {
        match (self, position) {
            (Self::File(_), Position::File(span)) => Self::File(span.clone()),
            _ => Self::Fixed(position.clone()),
        }
    }
}

fn entries(
    table: &dyn TableLike,
    spans: &SpanSource,
    key_span: impl Fn(&str) -> Option<Range<usize>>,
) -> Value {
    let entries = table.iter().map(|(key, item)| Entry {
        key: key.to_owned(),
        position: spans.position(key_span(key)),
        node: Node::of_item(item, spans),
    });
    Value::Table(entries.collect())
}
