//! The fate of a thinking block on its way to a model.

use serde::{Deserialize, Serialize};

use crate::{Origin, ThinkingKind};

/// The fate of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Fate {
    /// Sent unchanged.
    Sent,
    /// Not sent.
    LeftOut,
    /// The client had lost it; the gateway put it back.
    Restored,
    /// Sent with less information.
    Degraded,
    /// Of unknown origin; sent to find out whether the model accepts it.
    Tried,
}

/// Why a block was not sent unchanged.
#[cfg_attr(test, derive(ts_rs::TS))]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reason {
    /// Its maker's signatures are not readable by this target.
    Origin,
    /// It belongs to an earlier session and the policy is `session`.
    Session,
    /// The gateway has never seen it.
    Unknown,
    /// It is bound to a conversation prefix that has changed.
    Prefix,
    /// It was interrupted while the model wrote it.
    Cut,
    /// The configuration requires it.
    Policy,
    /// It is malformed, or would make its message malformed.
    Shape,
    /// The keyring cannot open it.
    Sealed,
}

impl Reason {
    /// The name in headers and reports.
    pub fn word(self) -> &'static str {
        match self {
            Self::Origin => "origin",
            Self::Session => "session",
            Self::Unknown => "unknown",
            Self::Prefix => "prefix",
            Self::Cut => "cut",
            Self::Policy => "policy",
            Self::Shape => "shape",
            Self::Sealed => "sealed",
        }
    }
}

/// One line of the replay report.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct BlockReport {
    /// Path of the block in the client's request, such as `messages.1.content.0`.
    pub path: String,
    /// The kind of block.
    pub kind: ThinkingKind,
    /// The fate of the block.
    pub fate: Fate,
    /// The reason, unless the block was sent unchanged.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<Reason>,
    /// The origin, if known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub origin: Option<Origin>,
}
