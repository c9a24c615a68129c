//! The state of a run, and the events that start and end the run.

use std::collections::BTreeSet;

use serde_json::{Value, json};
use throughline_canonical::{EndReason, Fault, Request, Usage, WaitingCall};

use super::client_reply::frames::event;
use super::errors;
use super::interrupts::{self, AnsweredCall, RunCall};
use crate::dialects::ReplyIdentity;
use crate::dialects::shared::reply_end::EndReport;
use crate::json::{ObjectWriter, quote_bytes};

/// The protocol version of the events.
const VERSION: &str = "1.0";

/// One run.
#[derive(Clone, Debug, Default)]
pub(super) struct Run {
    pub(super) thread: String,
    pub(super) id: String,
    pub(super) parent: Option<String>,
    /// Whether the client supports version 1.0.
    pub(super) modern: bool,
    pub(super) reasoning: ReasoningForm,
    /// Tools whose calls need approval.
    pub(super) approvals: BTreeSet<String>,
    /// Answers to earlier interrupts that the client has no messages for yet.
    pub(super) answered: Vec<AnsweredCall>,
    /// The application's state, unchanged.
    pub(super) state: Option<Value>,
    /// The conversation, unchanged, if the client asks for snapshots.
    pub(super) messages: Option<Value>,
    /// Whether the client asks for snapshots.
    pub(super) snapshots: bool,
}

/// The kind of events that carry reasoning.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum ReasoningForm {
    /// `REASONING_*`, with encrypted values that come back.
    #[default]
    Reasoning,
    /// `THINKING_*`, which have no ids and return nothing.
    Thinking,
    /// No events.
    None,
}

impl ReasoningForm {
    /// Parses the name of a form.
    pub(super) fn read(word: &str) -> Option<Self> {
        match word {
            "reasoning" => Some(Self::Reasoning),
            "thinking" => Some(Self::Thinking),
            "none" => Some(Self::None),
            _ => None,
        }
    }
}

impl Run {
    /// The run of a request of another dialect, with all features.
    pub(super) fn of(request: &Request, identity: &ReplyIdentity) -> Self {
        Self {
            thread: request.thread.clone().unwrap_or_else(|| format!("thread_{}", identity.id)),
            id: format!("run_{}", identity.id),
            modern: true,
            ..Self::default()
        }
    }

    /// Starts the run.
    pub(super) fn start(&self, identity: &str, out: &mut Vec<u8>) {
        event(out, |event| {
            event.text("type", "RUN_STARTED");
            self.name(event);
            if self.modern {
                event.text("protocolVersion", VERSION);
            }
            if let Some(parent) = &self.parent {
                event.text("parentRunId", parent);
            }
        });
        if let Some(state) = self.state.as_ref().filter(|_| self.snapshots) {
            snapshot("STATE_SNAPSHOT", "snapshot", state, out);
        }
        if let Some(messages) = &self.messages {
            snapshot("MESSAGES_SNAPSHOT", "messages", messages, out);
        }
        for (number, answered) in self.answered.iter().enumerate() {
            // The client's next run must bring this result.
            event(out, |event| {
                event
                    .text("type", "TOOL_CALL_RESULT")
                    .text("messageId", &format!("result_{identity}_{number}"))
                    .text("toolCallId", &answered.call)
                    .text("content", &answered.content)
                    .text("role", "tool");
            });
        }
    }

    /// Ends the run with success.
    pub(super) fn finish(
        &self,
        reason: &EndReason,
        calls: &[RunCall],
        report: &EndReport,
        model: &str,
        out: &mut Vec<u8>,
    ) {
        let EndReport { usage, details, losses } = report;
        let interrupted = self.modern && calls.iter().any(|call| call.waits);
        if let Some(state) = self.state.as_ref().filter(|_| interrupted) {
            snapshot("STATE_SNAPSHOT", "snapshot", state, out);
        }
        event(out, |event| {
            event.text("type", "RUN_FINISHED");
            self.name(event);
            let mut result = event.object("result");
            result.text("finishReason", finish_word(reason, !calls.is_empty()));
            for (name, value) in [
                ("sequence", &details.sequence),
                ("category", &details.category),
                ("explanation", &details.explanation),
            ] {
                if let Some(value) = value {
                    result.text(name, value);
                }
            }
            if !losses.is_empty() {
                result.value("losses", &json!(losses));
            }
            result.end();
            if !self.modern {
                return;
            }
            let mut outcome = event.object("outcome");
            if interrupted {
                interrupts::write_outcome(calls, &mut outcome);
            } else {
                outcome.text("type", "success");
                if !calls.is_empty() {
                    write_pending(calls, outcome.key("pendingToolCallIds"));
                }
            }
            outcome.end();
            write_usage(usage, model, event);
        });
    }

    /// Ends the run because the server waits for a person. It goes on with the same id.
    pub(super) fn interrupt(
        &self,
        waiting: &[WaitingCall],
        report: &EndReport,
        model: &str,
        out: &mut Vec<u8>,
    ) {
        if let Some(state) = &self.state {
            snapshot("STATE_SNAPSHOT", "snapshot", state, out);
        }
        event(out, |event| {
            event.text("type", "RUN_FINISHED");
            self.name(event);
            event.object("result").text("finishReason", "tool_calls").end();
            let mut outcome = event.object("outcome");
            interrupts::write_waiting(waiting, &mut outcome);
            outcome.end();
            write_usage(&report.usage, model, event);
        });
    }

    /// Ends the run with an error. No event follows.
    pub(super) fn fail(&self, fault: &Fault, report: &EndReport, model: &str, out: &mut Vec<u8>) {
        event(out, |event| {
            errors::write_members(fault, event);
            if !self.modern {
                return;
            }
            write_usage(&report.usage, model, event);
            if fault.retry_after.is_none() && report.losses.is_empty() {
                return;
            }
            let mut metadata = event.object("metadata");
            if let Some(seconds) = fault.retry_after {
                metadata.count("retryAfter", seconds);
            }
            if !report.losses.is_empty() {
                metadata.value("losses", &json!(report.losses));
            }
            metadata.end();
        });
    }

    fn name(&self, event: &mut ObjectWriter<'_>) {
        event.text("threadId", &self.thread);
        event.text("runId", &self.id);
    }
}

fn snapshot(kind: &str, member: &str, value: &Value, out: &mut Vec<u8>) {
    event(out, |event| {
        event.text("type", kind).value(member, value);
    });
}

fn write_pending(calls: &[RunCall], out: &mut Vec<u8>) {
    out.push(b'[');
    for (number, call) in calls.iter().enumerate() {
        if number > 0 {
            out.push(b',');
        }
        quote_bytes(&call.id, out);
    }
    out.push(b']');
}

/// The finish reason. Clients look here for calls.
fn finish_word(reason: &EndReason, called: bool) -> &str {
    match reason {
        EndReason::Length => "length",
        EndReason::Refusal => "refusal",
        EndReason::Pause => "pause",
        EndReason::Other(word) => word,
        EndReason::Failed | EndReason::Cut => "error",
        EndReason::ToolCalls => "tool_calls",
        EndReason::Stop | EndReason::StopSequence if called => "tool_calls",
        EndReason::StopSequence => "stop_sequence",
        EndReason::Stop => "stop",
    }
}

/// Writes token counts: totals and their parts. Unknown counts are omitted.
fn write_usage(usage: &Usage, model: &str, event: &mut ObjectWriter<'_>) {
    if *usage == Usage::default() {
        return;
    }
    let input = [usage.input, usage.cache_read, usage.cache_write];
    let input = total(&input);
    let out = event.key("usage");
    out.push(b'[');
    let mut entry = ObjectWriter::new(out);
    if !model.is_empty() {
        entry.text("model", model);
    }
    for (name, count) in [
        ("inputTokens", input),
        ("outputTokens", usage.output),
        ("totalTokens", total(&[input, usage.output])),
        ("reasoningTokens", usage.thinking),
        ("cachedInputTokens", usage.cache_read),
        ("cacheWriteInputTokens", usage.cache_write),
    ] {
        if let Some(count) = count {
            entry.count(name, count.min(MAX_SAFE_INTEGER));
        }
    }
    entry.end();
    out.push(b']');
}

/// The largest integer that JavaScript represents exactly.
const MAX_SAFE_INTEGER: u64 = (1 << 53) - 1;

/// The sum of the known counts; `None` if none is known.
fn total(counts: &[Option<u64>]) -> Option<u64> {
    counts.iter().flatten().copied().reduce(u64::saturating_add)
}
