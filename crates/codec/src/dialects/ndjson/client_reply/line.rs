//! The lines of a reply. The TypeScript types in `docs/front-ends/ndjson.d.ts` are generated from them.

use serde::{Serialize, Serializer};
use serde_json::Value;
use serde_json::value::RawValue;
use throughline_canonical::{EndDetails, EndReason, FaultKind, Loss, Usage};

use crate::dialects::shared::arguments::or_empty_object;
use crate::json::OneLine;

/// One line of a reply. Ignore lines of an unknown type.
#[derive(Serialize)]
#[cfg_attr(test, derive(ts_rs::TS))]
#[serde(tag = "type", rename_all = "snake_case")]
#[cfg_attr(test, ts(optional_fields))]
pub(in crate::dialects::ndjson) enum Line<'a> {
    /// More reasoning. `append` is false if it starts a new block.
    Thinking { content: &'a str, append: bool, block: usize, seq: usize },
    /// The signature of a block. Keep it and send it back.
    ThinkingSignature { content: &'a str, block: usize, seq: usize },
    /// Reasoning that cannot be shown. Keep it and send it back.
    RedactedThinking { content: &'a str, block: usize, seq: usize },
    /// More text of the answer. `refusal` is true if the model refuses with it.
    Text {
        content: &'a str,
        #[serde(skip_serializing_if = "Option::is_none")]
        refusal: Option<bool>,
        block: usize,
        seq: usize,
    },
    /// The address of a source of the text.
    Source {
        content: &'a str,
        #[serde(skip_serializing_if = "Option::is_none")]
        title: Option<&'a str>,
        block: usize,
        seq: usize,
    },
    /// A complete tool call. The arguments are a string if they are not valid JSON.
    ToolCall {
        id: &'a str,
        name: &'a str,
        #[cfg_attr(test, ts(type = "unknown"))]
        arguments: Arguments<'a>,
        #[serde(skip_serializing_if = "Option::is_none")]
        signature: Option<&'a str>,
        block: usize,
        seq: usize,
    },
    /// Calls that wait for a person's decision.
    ApprovalNeeded { calls: Vec<WaitingCall<'a>>, seq: usize },
    /// The result of a call that the server ran: a text, or a list of blocks.
    ToolResult {
        id: &'a str,
        name: &'a str,
        #[cfg_attr(test, ts(type = "string | Array<Record<string, unknown>>"))]
        content: Value,
        #[serde(rename = "isError")]
        is_error: bool,
        block: usize,
        seq: usize,
    },
    /// A failure. `done` follows.
    Error {
        message: &'a str,
        #[cfg_attr(test, ts(type = "FaultKind"))]
        kind: FaultKind,
        seq: usize,
    },
    /// The last line.
    Done {
        reason: DoneReason,
        stop_reason: &'a str,
        model: &'a str,
        #[cfg_attr(test, ts(type = "Usage"))]
        usage: &'a Usage,
        #[serde(skip_serializing_if = "Option::is_none")]
        #[cfg_attr(test, ts(optional, type = "EndDetails"))]
        details: Option<&'a EndDetails>,
        #[serde(skip_serializing_if = "<[Loss]>::is_empty")]
        #[cfg_attr(test, ts(optional, type = "Array<Loss>"))]
        losses: &'a [Loss],
        seq: usize,
    },
}

/// A call that waits for a person.
#[derive(Serialize)]
#[cfg_attr(test, derive(ts_rs::TS))]
#[cfg_attr(test, ts(optional_fields))]
pub(in crate::dialects::ndjson) struct WaitingCall<'a> {
    pub(super) id: &'a str,
    pub(super) name: &'a str,
    #[cfg_attr(test, ts(type = "unknown"))]
    pub(super) arguments: Arguments<'a>,
    /// What the tool asks, if it runs already.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) message: Option<&'a str>,
    /// The JSON Schema of the answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(test, ts(optional, type = "Record<string, unknown>"))]
    pub(super) schema: Option<&'a Value>,
}

/// The arguments of a call: JSON on one line, or a string if they are malformed.
pub(in crate::dialects::ndjson) struct Arguments<'a>(pub(super) &'a str);

impl Serialize for Arguments<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let text = or_empty_object(self.0);
        let json = OneLine::of(text).and_then(|line| {
            let mut bytes = Vec::with_capacity(text.len());
            line.write(&mut bytes);
            RawValue::from_string(String::from_utf8(bytes).ok()?).ok()
        });
        match json {
            Some(json) => json.serialize(serializer),
            None => text.serialize(serializer),
        }
    }
}

/// The outcome of a turn.
#[derive(Clone, Copy, Serialize)]
#[cfg_attr(test, derive(ts_rs::TS))]
#[serde(rename_all = "snake_case")]
pub(in crate::dialects::ndjson) enum DoneReason {
    Completed,
    Truncated,
    Empty,
    Timeout,
    MaxRounds,
    Cancelled,
    Interrupted,
    Error,
}

impl DoneReason {
    /// The outcome of a reply that ended for this reason. `answered`: there was text or a call.
    pub(super) fn of(reason: &EndReason, answered: bool, failed: Option<FaultKind>) -> Self {
        match (failed, reason) {
            (_, EndReason::Cut) => Self::Interrupted,
            (Some(FaultKind::TimedOut), _) => Self::Timeout,
            (Some(FaultKind::Unreachable), _) => Self::Interrupted,
            (Some(_), _) | (None, EndReason::Failed) => Self::Error,
            (None, EndReason::Length) => Self::Truncated,
            (None, EndReason::Refusal) => Self::Completed,
            (None, reason) if reason.is_cancelled() => Self::Cancelled,
            (None, reason) if reason.is_timeout() => Self::Timeout,
            (None, reason) if reason.limit().is_some() => Self::MaxRounds,
            (None, _) if !answered => Self::Empty,
            (None, _) => Self::Completed,
        }
    }
}

impl Line<'_> {
    /// Writes the line.
    pub(super) fn write(&self, out: &mut Vec<u8>) {
        // Writing to memory does not fail, and all keys are strings.
        let _ = serde_json::to_writer(&mut *out, self);
        out.push(b'\n');
    }
}
