//! What a reply is made of, in order. A whole reply is the same events, folded.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};

use crate::{Citation, Fault, Usage};

/// One step of a reply. Text is borrowed from the bytes it was read from where it can be.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Event<'a> {
    /// The model began to answer.
    MessageStarted {
        /// The provider's id of this answer.
        id: Cow<'a, str>,
        /// The model, as the provider calls it.
        model: Cow<'a, str>,
    },
    /// A block began.
    BlockStarted {
        /// Its place in the message.
        index: u32,
        /// What it is, with whatever came along at once.
        block: BlockStart<'a>,
    },
    /// A block grew.
    BlockDelta {
        /// Its place in the message.
        index: u32,
        /// What was added.
        delta: Delta<'a>,
    },
    /// A block is complete.
    BlockEnded {
        /// Its place in the message.
        index: u32,
    },
    /// The provider left out, or let pass, thinking that was bound to something else.
    Transformed {
        /// One entry for each block it speaks of.
        transformations: Vec<Transformation>,
    },
    /// Token counts so far; fields that are absent keep their earlier value.
    Usage(Usage),
    /// More about the end that follows.
    EndExplained(EndDetails),
    /// Something failed after the reply began.
    Fault(Fault),
    /// The last event of every reply, also of one that was cut.
    Ended {
        /// Why it ended.
        reason: EndReason,
    },
}

/// The beginning of a block.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum BlockStart<'a> {
    /// Answer text.
    Text {
        /// Text that came with the start.
        text: Cow<'a, str>,
    },
    /// Reasoning.
    Thinking {
        /// Text that came with the start.
        text: Cow<'a, str>,
        /// A signature that came with the start; usually empty.
        signature: Cow<'a, str>,
    },
    /// The model declines, in words that come as text.
    Refusal {
        /// Words that came with the start.
        text: Cow<'a, str>,
    },
    /// Reasoning the provider encrypted.
    Redacted {
        /// The whole of it.
        data: Cow<'a, str>,
    },
    /// A call of a tool the client offered.
    ToolCall {
        /// The call's id.
        id: Cow<'a, str>,
        /// The tool.
        name: Cow<'a, str>,
    },
    /// A block of a kind this vocabulary has no word for.
    Opaque {
        /// Whose word it is.
        dialect: Cow<'a, str>,
        /// The provider's name of it.
        name: Cow<'a, str>,
    },
}

/// What a block grew by.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", content = "value", rename_all = "snake_case")]
pub enum Delta<'a> {
    /// Answer text.
    Text(Cow<'a, str>),
    /// Reasoning text.
    Thinking(Cow<'a, str>),
    /// The block's signature; a later one replaces an earlier one.
    Signature(Cow<'a, str>),
    /// A source that the text refers to. Boxed, since nearly every delta is a piece of text.
    Citation(Box<Citation>),
    /// A piece of a tool call's arguments, as JSON text.
    ToolArguments(Cow<'a, str>),
    /// A piece of the JSON of a block this vocabulary has no word for. All pieces together are one
    /// object; of a member that comes twice the last counts, so that one can grow.
    Opaque(Cow<'a, str>),
}

/// What a provider says it did to one thinking block of the request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Transformation {
    /// What was done, in the provider's word.
    pub action: String,
    /// Where the block stood in the request the provider received: message, then block.
    pub at: Option<(usize, usize)>,
    /// Why, in the provider's word.
    pub reason: String,
}

/// What a provider says about the end of its reply, besides the reason.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct EndDetails {
    /// Of a stop sequence: which one was written.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sequence: Option<String>,
    /// Of a refusal: what it is about, in the provider's word.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub category: Option<String>,
    /// Of a refusal: what a person is told.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub explanation: Option<String>,
}

impl EndDetails {
    /// Whether there is nothing to say.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// Why a reply ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EndReason {
    /// The model said all it had to say.
    Stop,
    /// The caller's limit of tokens was reached.
    Length,
    /// A stop sequence was written.
    StopSequence,
    /// The model waits for tool results.
    ToolCalls,
    /// The model wants the same content sent back to go on.
    Pause,
    /// The model declined.
    Refusal,
    /// A reason this vocabulary has no word for.
    Other(String),
    /// The provider reported an error in mid-reply.
    Failed,
    /// The bytes stopped before the end.
    Cut,
}
