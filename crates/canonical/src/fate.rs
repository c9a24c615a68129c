//! What became of a thinking block on its way to a model, and why.

use serde::Serialize;

use crate::{Origin, ThinkingKind};

/// What became of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Fate {
    /// It went out as the client sent it.
    Sent,
    /// It stayed behind.
    LeftOut,
    /// The client had lost it and it was put back.
    Restored,
    /// It went out in a poorer form.
    Degraded,
    /// Nobody knew it; it went out to see whether the model reads it.
    Tried,
}

/// Why a block did not go out as it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Reason {
    /// It was made by somebody whose signatures this target does not read.
    Origin,
    /// It belongs to an older session, and the policy is `session`.
    Session,
    /// It was never seen before.
    Unknown,
    /// It is bound to a conversation that has changed since.
    Prefix,
    /// It was cut off while it was made.
    Cut,
    /// The configuration asks for it.
    Policy,
    /// It is malformed, or would make its message malformed.
    Shape,
}

impl Reason {
    /// The word used in headers and reports.
    pub fn word(self) -> &'static str {
        match self {
            Self::Origin => "origin",
            Self::Session => "session",
            Self::Unknown => "unknown",
            Self::Prefix => "prefix",
            Self::Cut => "cut",
            Self::Policy => "policy",
            Self::Shape => "shape",
        }
    }
}

/// One line of the replay report.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct BlockReport {
    /// Where the block stands in the client's request, such as `messages.1.content.0`.
    pub path: String,
    /// Its kind.
    pub kind: ThinkingKind,
    /// What became of it.
    pub fate: Fate,
    /// Why, where it did not simply go out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<Reason>,
    /// Who made it, where that is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub origin: Option<Origin>,
}
