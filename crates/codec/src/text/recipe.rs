//! How to read the text of one model: which tags and which call formats.

use std::sync::Arc;

use super::calls::ToolFormat;
use super::channels::Channels;
use super::evidence::promises_reasoning;
use super::families::{self, FAMILIES, Family};
use super::formats::TOOL_FORMATS;
use super::reasoning::{TAG_SETS, TagSet};
use super::schema::Tools;

/// How to read the text of one model.
#[derive(Clone, Debug, Default)]
pub struct Recipe {
    /// The tags of the reasoning. `None`: do not look for reasoning.
    pub reasoning: Option<&'static TagSet>,
    /// The formats of calls. Empty: do not look for calls.
    pub tools: Vec<&'static ToolFormat>,
    /// The prompt already opened the reasoning, so the text begins inside it.
    pub implicit: bool,
    /// A call ends the reasoning: these models forget the closing tag.
    pub call_ends_reasoning: bool,
    /// The tokens that end a turn. One of them at the end of the text is removed.
    pub turn_ends: &'static [&'static str],
}

/// What the caller wants.
#[derive(Clone, Debug)]
pub struct Options {
    /// The offered tools. `None` if unknown.
    pub tools: Option<Arc<Tools>>,
    /// How to handle calls that cannot be read.
    pub on_error: OnError,
    /// Where reasoning goes.
    pub reasoning_format: ReasoningFormat,
    /// Prefix of generated call ids.
    pub id_prefix: String,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            tools: None,
            on_error: OnError::Text,
            reasoning_format: ReasoningFormat::Split,
            id_prefix: "call_".to_owned(),
        }
    }
}

/// How to handle calls that cannot be read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnError {
    /// Emit their text as content.
    #[default]
    Text,
    /// Emit a fault instead of their text.
    Error,
}

/// Where reasoning goes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ReasoningFormat {
    /// Its own events, without tags.
    #[default]
    Split,
    /// Its own events, with tags.
    Raw,
    /// The content, with tags.
    None,
}

/// A name that is not in the table.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unknown {what} `{name}`{}; known are: {}", nearest.map(|near| format!(" (did you mean `{near}`?)")).unwrap_or_default(), known.join(", "))]
pub struct UnknownName {
    /// The kind of thing that was looked up.
    pub what: &'static str,
    /// The name.
    pub name: String,
    /// A known name that is spelled similarly.
    pub nearest: Option<&'static str>,
    /// All known names.
    pub known: Vec<&'static str>,
}

impl Recipe {
    /// The recipe of a family, by its name in [`FAMILIES`].
    pub fn family(name: &str) -> Result<Self, UnknownName> {
        // A name of one of its models works too.
        let alias = FAMILIES
            .iter()
            .find(|family| family.models.iter().any(|model| is_same_name(model, name)));
        match (find("family", name, FAMILIES, |family| family.name), alias) {
            (Ok(family), _) | (Err(_), Some(family)) => Self::from_family(family),
            (Err(unknown), None) => Err(unknown),
        }
    }

    /// The recipe for a model, by its name. An unknown model gets the plain tags.
    pub fn for_model(model: &str) -> Self {
        let plain_tags = || Self::named(Some("plain"), &[]).unwrap_or_default();
        let Some(mut recipe) =
            families::find_for_model(model).and_then(|family| Self::from_family(family).ok())
        else {
            return plain_tags();
        };
        if recipe.reasoning.is_none() && promises_reasoning(model) {
            recipe.reasoning = plain_tags().reasoning;
        }
        recipe
    }

    /// A recipe of named parts. The name `none` is skipped.
    pub fn named(reasoning: Option<&str>, tool_formats: &[&str]) -> Result<Self, UnknownName> {
        let is_set = |name: &&str| !is_same_name("none", name);
        let reasoning = reasoning.filter(is_set).map(tag_set).transpose()?;
        Ok(Self {
            reasoning,
            implicit: reasoning.is_some_and(|tags| tags.implicit),
            call_ends_reasoning: reasoning.is_some_and(|tags| tags.call_ends),
            turn_ends: &[],
            tools: tool_formats
                .iter()
                .copied()
                .filter(is_set)
                .map(tool_format)
                .collect::<Result<_, _>>()?,
        })
    }

    fn from_family(family: &Family) -> Result<Self, UnknownName> {
        Ok(Self {
            implicit: family.implicit,
            call_ends_reasoning: family.call_ends_reasoning,
            turn_ends: family.turn_ends,
            ..Self::named(family.reasoning, family.tools)?
        })
    }

    /// The message headers that this recipe looks for.
    pub(crate) fn channels(&self) -> Option<&'static Channels> {
        self.reasoning
            .and_then(|tags| tags.channels)
            .or_else(|| self.tools.iter().find_map(|format| format.channels))
    }
}

/// Finds a tag set by its name.
fn tag_set(name: &str) -> Result<&'static TagSet, UnknownName> {
    find("tag set", name, TAG_SETS, |tags| tags.name)
}

/// Finds a tool format by its name.
fn tool_format(name: &str) -> Result<&'static ToolFormat, UnknownName> {
    find("tool format", name, TOOL_FORMATS, |format| format.name)
}

fn find<T>(
    what: &'static str,
    name: &str,
    rows: &'static [T],
    name_of: fn(&T) -> &'static str,
) -> Result<&'static T, UnknownName> {
    rows.iter().find(|row| is_same_name(name_of(row), name)).ok_or_else(|| {
        let known: Vec<&str> = rows.iter().map(name_of).collect();
        UnknownName { what, name: name.to_owned(), nearest: nearest(name, &known), known }
    })
}

/// Compares names without regard to letter case, and with `-`, `.` and space equal to `_`.
fn is_same_name(one: &str, other: &str) -> bool {
    normalize(one).eq(normalize(other))
}

fn normalize(name: &str) -> impl Iterator<Item = char> {
    name.trim().chars().map(|character| match character {
        '-' | '.' | ' ' => '_',
        _ => character.to_ascii_lowercase(),
    })
}

/// Finds the known name that shares the most pairs of letters.
fn nearest(name: &str, known: &[&'static str]) -> Option<&'static str> {
    let pairs = |name: &str| {
        let letters: Vec<char> = normalize(name).collect();
        letters.windows(2).map(<[char]>::to_vec).collect::<Vec<_>>()
    };
    let wanted = pairs(name);
    let similarity = |known: &str| {
        let known = pairs(known);
        let common = wanted.iter().filter(|pair| known.contains(pair)).count();
        2 * common * 100 / (wanted.len() + known.len()).max(1)
    };
    known
        .iter()
        .copied()
        .max_by_key(|known| similarity(known))
        .filter(|known| similarity(known) >= 50)
}
