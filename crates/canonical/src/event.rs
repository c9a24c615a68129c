//! The events of a reply. A whole reply is the fold of its events.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{Block, Citation, Fault, Loss, NativeTurn, Origin, Usage};

/// Takes the events of a reply.
pub type Out<'o> = &'o mut dyn FnMut(Event<'_>);

/// One step of a reply. Text is borrowed from the input where possible.
#[cfg_attr(test, derive(ts_rs::TS))]
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Event<'a> {
    /// The reply starts.
    MessageStarted {
        /// The provider's id of the reply.
        id: Cow<'a, str>,
        /// The provider's name of the model.
        model: Cow<'a, str>,
    },
    /// A block starts.
    BlockStarted {
        /// Index of the block in the message.
        index: u32,
        /// The kind of block, with any content that came with the start.
        block: BlockStart<'a>,
    },
    /// A block grows.
    BlockDelta {
        /// Index of the block in the message.
        index: u32,
        /// The addition.
        delta: Delta<'a>,
    },
    /// A block ends.
    BlockEnded {
        /// Index of the block in the message.
        index: u32,
    },
    /// A round of a tool loop has ended, and the server runs calls of it. Only logs have this: it
    /// never reaches clients.
    #[cfg_attr(test, ts(skip))]
    RoundEnded(Box<RoundFacts>),
    /// The server begins to run a tool call. This is stored before the call is made.
    ToolStarted {
        /// The id of the call.
        id: Cow<'a, str>,
    },
    /// Calls wait for a person: for an approval, or for input that the tool asks for.
    ApprovalNeeded {
        /// The calls.
        calls: Vec<WaitingCall>,
    },
    /// The result of a call that the server ran. What the model says next is another round.
    ToolResult {
        /// The id of the call.
        id: Cow<'a, str>,
        /// The name of the tool.
        name: Cow<'a, str>,
        /// Texts and media.
        #[cfg_attr(test, ts(type = "Array<Record<string, unknown>>"))]
        content: Vec<Block>,
        /// Whether the call failed, or was not made.
        is_error: bool,
    },
    /// The provider dropped or accepted thinking that was bound to another conversation.
    Transformed {
        /// One entry per affected block.
        transformations: Vec<Transformation>,
    },
    /// Token counts so far. Absent fields keep their earlier value.
    Usage(Usage),
    /// Details about the end that follows.
    EndExplained(EndDetails),
    /// An error after the reply began.
    Fault(Fault),
    /// What was lost between client and provider. A reader reports what it could not read; clients
    /// get all losses of the turn in one event before the end.
    Lost {
        /// The losses.
        #[cfg_attr(test, ts(as = "Vec<crate::loss::LossReport>"))]
        losses: Vec<Loss>,
    },
    /// The last event of every reply, also of an interrupted one.
    Ended {
        /// Why the reply ended.
        reason: EndReason,
    },
}

/// The start of a block.
#[cfg_attr(test, derive(ts_rs::TS))]
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
        /// The signature, if it came with the start; usually empty.
        signature: Cow<'a, str>,
    },
    /// The model declines. Its words follow as text.
    Refusal {
        /// Text that came with the start.
        text: Cow<'a, str>,
    },
    /// Encrypted reasoning.
    Redacted {
        /// All its data.
        data: Cow<'a, str>,
    },
    /// A tool call.
    ToolCall {
        /// The id of the call.
        id: Cow<'a, str>,
        /// The name of the tool.
        name: Cow<'a, str>,
    },
    /// A block that the vocabulary has no type for.
    Opaque {
        /// The dialect it belongs to.
        dialect: Cow<'a, str>,
        /// The provider's name of the block type.
        name: Cow<'a, str>,
    },
}

/// The growth of a block.
#[cfg_attr(test, derive(ts_rs::TS))]
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", content = "value", rename_all = "snake_case")]
pub enum Delta<'a> {
    /// Answer text.
    Text(Cow<'a, str>),
    /// Reasoning text.
    Thinking(Cow<'a, str>),
    /// The signature; a later one replaces an earlier one.
    Signature(Cow<'a, str>),
    /// A source. Boxed because nearly every delta is text.
    Citation(Box<Citation>),
    /// A piece of the JSON arguments of a tool call. A call without arguments may have none.
    ToolArguments(Cow<'a, str>),
    /// A piece of the JSON of an opaque block. All pieces form one object. If a member occurs
    /// twice, the last one counts, so members can grow.
    Opaque(Cow<'a, str>),
}

/// What is known about a round of a tool loop when the model has finished it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct RoundFacts {
    /// The calls that the server runs.
    pub calls: Vec<String>,
    /// The maker of the blocks.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub origin: Option<Origin>,
    /// What the blocks lack of the form in which their maker wrote them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub native: Option<NativeTurn>,
    /// The token counts of the round.
    pub usage: Usage,
}

/// A call that waits for a person.
#[cfg_attr(test, derive(ts_rs::TS))]
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, ts(optional_fields))]
pub struct WaitingCall {
    /// The id of the call.
    pub id: String,
    /// The name of the tool.
    pub name: String,
    /// The arguments, as the model wrote them.
    pub arguments: String,
    /// What the tool asks, if it runs already.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// The JSON Schema of the answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(test, ts(type = "Record<string, unknown>"))]
    pub schema: Option<Value>,
}

/// What the provider did to one thinking block of the request.
#[cfg_attr(test, derive(ts_rs::TS))]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Transformation {
    /// The action, as the provider names it.
    pub action: String,
    /// Indexes of the message and of the block in the request that the provider received.
    pub at: Option<(usize, usize)>,
    /// The reason, as the provider names it.
    pub reason: String,
}

/// Details about the end of a reply.
#[cfg_attr(test, derive(ts_rs::TS))]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
#[cfg_attr(test, ts(optional_fields))]
pub struct EndDetails {
    /// The stop sequence that the model wrote.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sequence: Option<String>,
    /// The category of a refusal, as the provider names it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub category: Option<String>,
    /// The explanation of a refusal for people.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub explanation: Option<String>,
}

impl EndDetails {
    /// Whether there are no details.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// Why a reply ended.
#[cfg_attr(test, derive(ts_rs::TS))]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EndReason {
    /// The model finished its answer.
    Stop,
    /// The token limit was reached.
    Length,
    /// A stop sequence was written.
    StopSequence,
    /// The model waits for tool results.
    ToolCalls,
    /// The model continues if the same content is sent back.
    Pause,
    /// The model declined.
    Refusal,
    /// A reason that the vocabulary has no variant for.
    Other(String),
    /// The provider reported an error in the middle of the reply.
    Failed,
    /// The connection ended before the reply did.
    Cut,
}

impl EndReason {
    /// The caller stopped the reply.
    const CANCELLED: &'static str = "cancelled";
    /// The limits of a tool loop.
    const MAX_ROUNDS: &'static str = "max_rounds";
    const TIMEOUT: &'static str = "timeout";

    /// The reason of a reply that its caller stopped.
    pub fn cancelled() -> Self {
        Self::Other(Self::CANCELLED.to_owned())
    }

    /// The reason of a reply whose tool loop has had as many rounds as it may have.
    pub fn max_rounds() -> Self {
        Self::Other(Self::MAX_ROUNDS.to_owned())
    }

    /// The reason of a reply whose tool loop has taken as long as it may take.
    pub fn timeout() -> Self {
        Self::Other(Self::TIMEOUT.to_owned())
    }

    /// Whether the time of the tool loop was up. The model may have been cut in the middle.
    pub fn is_timeout(&self) -> bool {
        self.limit() == Some(Self::TIMEOUT)
    }

    /// The name of the limit that ended the reply.
    pub fn limit(&self) -> Option<&'static str> {
        let limits = [Self::MAX_ROUNDS, Self::TIMEOUT];
        limits.into_iter().find(|limit| matches!(self, Self::Other(reason) if reason == limit))
    }

    /// Whether the caller stopped the reply.
    pub fn is_cancelled(&self) -> bool {
        matches!(self, Self::Other(reason) if reason == Self::CANCELLED)
    }
}

impl Event<'_> {
    /// The same event with its own copies of all texts.
    pub fn to_owned_event(&self) -> Event<'static> {
        match self {
            Self::MessageStarted { id, model } => {
                Event::MessageStarted { id: owned(id), model: owned(model) }
            }
            Self::BlockStarted { index, block } => {
                Event::BlockStarted { index: *index, block: block.to_owned_start() }
            }
            Self::BlockDelta { index, delta } => {
                Event::BlockDelta { index: *index, delta: delta.to_owned_delta() }
            }
            Self::BlockEnded { index } => Event::BlockEnded { index: *index },
            Self::RoundEnded(facts) => Event::RoundEnded(facts.clone()),
            Self::ToolStarted { id } => Event::ToolStarted { id: owned(id) },
            Self::ApprovalNeeded { calls } => Event::ApprovalNeeded { calls: calls.clone() },
            Self::ToolResult { id, name, content, is_error } => Event::ToolResult {
                id: owned(id),
                name: owned(name),
                content: content.clone(),
                is_error: *is_error,
            },
            Self::Transformed { transformations } => {
                Event::Transformed { transformations: transformations.clone() }
            }
            Self::Usage(usage) => Event::Usage(*usage),
            Self::EndExplained(details) => Event::EndExplained(details.clone()),
            Self::Fault(fault) => Event::Fault(fault.clone()),
            Self::Lost { losses } => Event::Lost { losses: losses.clone() },
            Self::Ended { reason } => Event::Ended { reason: reason.clone() },
        }
    }
}

impl BlockStart<'_> {
    fn to_owned_start(&self) -> BlockStart<'static> {
        match self {
            Self::Text { text } => BlockStart::Text { text: owned(text) },
            Self::Thinking { text, signature } => {
                BlockStart::Thinking { text: owned(text), signature: owned(signature) }
            }
            Self::Refusal { text } => BlockStart::Refusal { text: owned(text) },
            Self::Redacted { data } => BlockStart::Redacted { data: owned(data) },
            Self::ToolCall { id, name } => {
                BlockStart::ToolCall { id: owned(id), name: owned(name) }
            }
            Self::Opaque { dialect, name } => {
                BlockStart::Opaque { dialect: owned(dialect), name: owned(name) }
            }
        }
    }
}

impl Delta<'_> {
    fn to_owned_delta(&self) -> Delta<'static> {
        match self {
            Self::Text(text) => Delta::Text(owned(text)),
            Self::Thinking(text) => Delta::Thinking(owned(text)),
            Self::Signature(signature) => Delta::Signature(owned(signature)),
            Self::Citation(citation) => Delta::Citation(citation.clone()),
            Self::ToolArguments(json) => Delta::ToolArguments(owned(json)),
            Self::Opaque(json) => Delta::Opaque(owned(json)),
        }
    }
}

fn owned(text: &str) -> Cow<'static, str> {
    Cow::Owned(text.to_owned())
}
