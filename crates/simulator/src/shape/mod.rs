//! Shapes: what a JSON body may hold, as static tables. `check` walks a body along its table.
//!
//! Each dialect has its tables and one function that writes a problem as the provider reports it.
//! Rules that compare several members, such as the order of messages, are code in the dialect.

mod check;

use serde_json::{Map, Value};

pub(crate) use self::check::Checker;
use crate::refusal::Refusal;

/// Conditions of one request that change its table, as bits. Each dialect names its own.
pub(crate) type Flags = u16;

/// What a JSON value must be.
pub(crate) enum Shape {
    Any,
    /// The member or tag does not exist under these conditions: it is refused as unknown.
    Refused,
    Null,
    Boolean,
    /// An integer within inclusive bounds.
    Integer(i64, i64),
    /// A number within inclusive bounds.
    Number(f64, f64),
    Text,
    /// Text that passes a test. `Problem::Pattern` repeats the name.
    Pattern(&'static str, fn(&str) -> bool),
    /// One of these values.
    Word(&'static [&'static str]),
    /// One of these values, in upper or lower case.
    WordAnyCase(&'static [&'static str]),
    /// Any object.
    Object,
    /// An object whose unlisted members are ignored.
    Open(&'static [Member]),
    /// An object without unlisted members.
    Closed(&'static [Member]),
    /// An object that is closed under this condition and open otherwise.
    ClosedWhen(Flags, &'static [Member]),
    /// An object whose members depend on one of them.
    Tagged(&'static Tagged),
    List(&'static Shape),
    /// A list whose length is within inclusive bounds.
    ListOf(usize, usize, &'static Shape),
    /// The first of these shapes that has the value's JSON type.
    Either(&'static [Shape]),
    /// A shape with the provider's own name for it.
    Named(&'static str, &'static Shape),
    /// The first shape under this condition, else the second.
    When(Flags, &'static Shape, &'static Shape),
    /// A shape and a rule about the value that no table can state.
    Rule(&'static Shape, fn(&Value, &[Step<'_>]) -> Result<(), Refusal>),
}

/// An integer without bounds.
pub(crate) const INTEGER: Shape = Shape::Integer(i64::MIN, i64::MAX);

/// A number without bounds.
pub(crate) const NUMBER: Shape = Shape::Number(f64::MIN, f64::MAX);

/// One member of an object.
pub(crate) struct Member {
    name: &'static str,
    shape: Shape,
    presence: Presence,
    needs: Flags,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Presence {
    Optional,
    Required,
    /// Required, and null is a value of the wrong type.
    NotNull,
}

impl Member {
    /// The member exists only under these conditions.
    pub(crate) const fn needs(self, flags: Flags) -> Self {
        Self { needs: flags, ..self }
    }

    /// Null is a value of the wrong type, also where the dialect takes null for absence.
    pub(crate) const fn not_null(self) -> Self {
        Self { presence: Presence::NotNull, ..self }
    }

    pub(crate) fn name(&self) -> &'static str {
        self.name
    }

    pub(crate) fn shape(&self) -> &Shape {
        &self.shape
    }
}

pub(crate) const fn optional(name: &'static str, shape: Shape) -> Member {
    Member { name, shape, presence: Presence::Optional, needs: 0 }
}

pub(crate) const fn required(name: &'static str, shape: Shape) -> Member {
    Member { name, shape, presence: Presence::Required, needs: 0 }
}

/// An object whose members depend on the value of one of them, the tag.
pub(crate) struct Tagged {
    pub(crate) tag: &'static str,
    /// Finds the case of an object without the tag.
    pub(crate) untagged: fn(&Map<String, Value>) -> Option<&'static str>,
    pub(crate) cases: &'static [(&'static str, Shape)],
    /// The shape of objects with any other tag.
    pub(crate) others: Shape,
    /// The provider writes the tag's value into the paths below it.
    pub(crate) in_path: bool,
}

/// The most common kind: `type` is required and no other value is known.
pub(crate) const BY_TYPE: Tagged =
    Tagged { tag: "type", untagged: |_| None, cases: &[], others: Shape::Refused, in_path: false };

/// One step from the body down to a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step<'a> {
    Member(&'a str),
    Index(usize),
    /// The value of a tag, where the provider writes it into the path.
    Tag(&'a str),
}

/// What is wrong with a value. The path leads to the value itself.
pub(crate) enum Problem<'a> {
    Missing,
    Unknown,
    Type {
        expected: &'a Shape,
        found: &'a Value,
    },
    Word {
        expected: &'a Shape,
        words: &'a [&'static str],
        found: &'a str,
    },
    Pattern {
        name: &'static str,
        found: &'a str,
    },
    Range {
        expected: &'a Shape,
        found: &'a Value,
    },
    Length {
        max: usize,
        found: usize,
    },
    /// The path leads to the object, not to its tag.
    Tag {
        tag: &'static str,
        known: Vec<&'static str>,
        found: &'a str,
    },
}

/// A path with its indexes in brackets: `messages[0].content`.
pub(crate) fn bracketed(path: &[Step<'_>]) -> String {
    let mut spelled = String::new();
    for step in path {
        match step {
            Step::Member(name) if spelled.is_empty() => spelled.push_str(name),
            Step::Member(name) => spelled.extend([".", name]),
            Step::Index(index) => spelled.push_str(&format!("[{index}]")),
            Step::Tag(_) => {}
        }
    }
    spelled
}
