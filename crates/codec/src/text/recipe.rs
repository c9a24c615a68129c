//! How to read the text of one model: which tags, which calls.

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
    /// How reasoning is marked; `None`: it is not looked for.
    pub reasoning: Option<&'static TagSet>,
    /// How calls are written; empty: they are not looked for.
    pub tools: Vec<&'static ToolFormat>,
    /// The prompt opened the reasoning already: the text begins inside it.
    pub implicit: bool,
    /// These models forget the closing tag: a call ends their reasoning.
    pub call_ends_reasoning: bool,
}

/// What the caller wants.
#[derive(Clone, Debug)]
pub struct Options {
    /// The tools that were offered; `None` if that is not known.
    pub tools: Option<Arc<Tools>>,
    /// What becomes of calls that cannot be read.
    pub on_error: OnError,
    /// Where reasoning goes.
    pub reasoning_format: ReasoningFormat,
    /// What ids begin with that the model did not give.
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

/// What becomes of calls that cannot be read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnError {
    /// Their text is content.
    #[default]
    Text,
    /// A fault stands in their place.
    Error,
}

/// Where reasoning goes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ReasoningFormat {
    /// Into its own events, without tags.
    #[default]
    Split,
    /// Into its own events, as written.
    Raw,
    /// Into the content, as written.
    None,
}

/// A name nobody knows.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unknown {what} `{name}`{}; known are: {}", nearest.map(|near| format!(" (did you mean `{near}`?)")).unwrap_or_default(), known.join(", "))]
pub struct UnknownName {
    /// What was looked for.
    pub what: &'static str,
    /// The name.
    pub name: String,
    /// One that is spelled nearly so.
    pub nearest: Option<&'static str>,
    /// All that are known.
    pub known: Vec<&'static str>,
}

impl Recipe {
    /// The recipe of a family, by its name in [`FAMILIES`].
    pub fn family(name: &str) -> Result<Self, UnknownName> {
        // A name of one of its models is as good.
        let alias =
            FAMILIES.iter().find(|family| family.models.iter().any(|model| same(model, name)));
        match (find("family", name, FAMILIES, |family| family.name), alias) {
            (Ok(family), _) | (Err(_), Some(family)) => Self::of(family),
            (Err(unknown), None) => Err(unknown),
        }
    }

    /// The recipe for a model, by its name. A model nobody knows gets the plain tags.
    pub fn for_model(model: &str) -> Self {
        let plain = || Self::named(Some("plain"), &[]).unwrap_or_default();
        let Some(mut recipe) = families::of_model(model).and_then(|family| Self::of(family).ok())
        else {
            return plain();
        };
        if recipe.reasoning.is_none() && promises_reasoning(model) {
            recipe.reasoning = plain().reasoning;
        }
        recipe
    }

    /// A recipe of these parts; `none` is no part.
    pub fn named(reasoning: Option<&str>, tool_formats: &[&str]) -> Result<Self, UnknownName> {
        let is_given = |name: &&str| !same("none", name);
        let reasoning = reasoning.filter(is_given).map(tag_set).transpose()?;
        Ok(Self {
            reasoning,
            implicit: reasoning.is_some_and(|tags| tags.implicit),
            call_ends_reasoning: reasoning.is_some_and(|tags| tags.call_ends),
            tools: tool_formats
                .iter()
                .copied()
                .filter(is_given)
                .map(tool_format)
                .collect::<Result<_, _>>()?,
        })
    }

    fn of(family: &Family) -> Result<Self, UnknownName> {
        Ok(Self {
            implicit: family.implicit,
            call_ends_reasoning: family.call_ends_reasoning,
            ..Self::named(family.reasoning, family.tools)?
        })
    }

    /// The messages with headers of this recipe.
    pub(crate) fn channels(&self) -> Option<&'static Channels> {
        self.reasoning
            .and_then(|tags| tags.channels)
            .or_else(|| self.tools.iter().find_map(|format| format.channels))
    }
}

/// A set of tags by its name.
fn tag_set(name: &str) -> Result<&'static TagSet, UnknownName> {
    find("tag set", name, TAG_SETS, |tags| tags.name)
}

/// A tool format by its name.
fn tool_format(name: &str) -> Result<&'static ToolFormat, UnknownName> {
    find("tool format", name, TOOL_FORMATS, |format| format.name)
}

fn find<T>(
    what: &'static str,
    name: &str,
    rows: &'static [T],
    name_of: fn(&T) -> &'static str,
) -> Result<&'static T, UnknownName> {
    rows.iter().find(|row| same(name_of(row), name)).ok_or_else(|| {
        let known: Vec<&str> = rows.iter().map(name_of).collect();
        UnknownName { what, name: name.to_owned(), nearest: nearest(name, &known), known }
    })
}

/// Names are the same in any letter case, and with `_` for `-`, `.` or a space.
fn same(one: &str, other: &str) -> bool {
    plain(one).eq(plain(other))
}

fn plain(name: &str) -> impl Iterator<Item = char> {
    name.trim().chars().map(|character| match character {
        '-' | '.' | ' ' => '_',
        _ => character.to_ascii_lowercase(),
    })
}

/// The known name that shares most of its pairs of letters.
fn nearest(name: &str, known: &[&'static str]) -> Option<&'static str> {
    let pairs = |name: &str| {
        let letters: Vec<char> = plain(name).collect();
        letters.windows(2).map(<[char]>::to_vec).collect::<Vec<_>>()
    };
    let asked = pairs(name);
    let likeness = |known: &str| {
        let known = pairs(known);
        let common = asked.iter().filter(|pair| known.contains(pair)).count();
        2 * common * 100 / (asked.len() + known.len()).max(1)
    };
    known.iter().copied().max_by_key(|known| likeness(known)).filter(|known| likeness(known) >= 50)
}
