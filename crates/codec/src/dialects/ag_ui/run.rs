//! What a reply has to know of the run it answers, kept with the request, and the events that begin and end a
//! run.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use throughline_canonical::{EndDetails, EndReason, Fault, Request, Usage};

use super::frames::event;
use super::interrupts::{self, Answered, Called};
use super::{NAME, errors};
use crate::dialects::ReplyIdentity;
use crate::json::{ObjectWriter, quote_bytes};

/// The version of the protocol these events are of.
const VERSION: &str = "1.0";

/// One run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Run {
    pub(super) thread: String,
    pub(super) id: String,
    pub(super) parent: Option<String>,
    /// Whether the client says that it knows version 1.0.
    pub(super) modern: bool,
    pub(super) reasoning: Form,
    /// Tools whose calls a person has to approve.
    pub(super) approvals: BTreeSet<String>,
    /// What was answered to the interrupts of the run before, and is no message of the client's yet.
    pub(super) answered: Vec<Answered>,
    /// The application's state, as it came.
    pub(super) state: Option<Value>,
    /// The conversation, as it came, where the client wants to hear it.
    pub(super) messages: Option<Value>,
    /// Whether it wants to hear its state, too.
    pub(super) snapshots: bool,
}

/// In which events a client reads reasoning.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Form {
    /// `REASONING_*`, with what comes back encrypted.
    #[default]
    Reasoning,
    /// `THINKING_*`, which have no ids and bring nothing back.
    Thinking,
    /// In none.
    None,
}

impl Form {
    /// The one of this word.
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
    /// Keeps it with its request.
    pub(super) fn keep(self, request: &mut Request) {
        if let Ok(Value::Object(members)) = serde_json::to_value(self) {
            request.extra.insert(NAME.to_owned(), members);
        }
    }

    /// The run of a request; one of a request in no other words is told to whoever reads all.
    pub(super) fn of(request: &Request, identity: &ReplyIdentity) -> Self {
        let kept = request.extra.get(NAME).cloned();
        let read = |members: Map<String, Value>| serde_json::from_value(members.into()).ok();
        kept.and_then(read).unwrap_or_else(|| Self {
            thread: request.thread.clone().unwrap_or_else(|| format!("thread_{}", identity.id)),
            id: format!("run_{}", identity.id),
            modern: true,
            ..Self::default()
        })
    }

    /// Begins the run.
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
            // The client's next run has to bring the result that this one was given.
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

    /// Ends the run well.
    pub(super) fn finish(
        &self,
        (reason, details): (&EndReason, &EndDetails),
        calls: &[Called],
        (usage, model): (&Usage, &str),
        out: &mut Vec<u8>,
    ) {
        let interrupted = self.modern && calls.iter().any(|call| call.waits);
        if let Some(state) = self.state.as_ref().filter(|_| interrupted) {
            snapshot("STATE_SNAPSHOT", "snapshot", state, out);
        }
        event(out, |event| {
            event.text("type", "RUN_FINISHED");
            self.name(event);
            let mut result = event.object("result");
            result.text("finishReason", finish_word(reason, !calls.is_empty()));
            for (name, said) in [
                ("sequence", &details.sequence),
                ("category", &details.category),
                ("explanation", &details.explanation),
            ] {
                if let Some(said) = said {
                    result.text(name, said);
                }
            }
            result.end();
            if !self.modern {
                return;
            }
            let mut outcome = event.object("outcome");
            if interrupted {
                interrupts::tell(calls, &mut outcome);
            } else {
                outcome.text("type", "success");
                if !calls.is_empty() {
                    tell_pending(calls, outcome.key("pendingToolCallIds"));
                }
            }
            outcome.end();
            tell_usage(usage, model, event);
        });
    }

    /// Ends the run with an error; nothing stands behind it.
    pub(super) fn fail(&self, fault: &Fault, (usage, model): (&Usage, &str), out: &mut Vec<u8>) {
        event(out, |event| {
            errors::say(fault, event);
            if !self.modern {
                return;
            }
            tell_usage(usage, model, event);
            if let Some(seconds) = fault.retry_after {
                event.object("metadata").count("retryAfter", seconds).end();
            }
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

fn tell_pending(calls: &[Called], out: &mut Vec<u8>) {
    out.push(b'[');
    for (number, call) in calls.iter().enumerate() {
        if number > 0 {
            out.push(b',');
        }
        quote_bytes(&call.id, out);
    }
    out.push(b']');
}

/// The word for an end, where clients look for what the model was about.
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

/// Writes what was counted: totals, and parts of them. What nobody told is not there.
fn tell_usage(usage: &Usage, model: &str, event: &mut ObjectWriter<'_>) {
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
            entry.count(name, count.min(MOST));
        }
    }
    entry.end();
    out.push(b']');
}

/// The largest number that clients take for a whole one.
const MOST: u64 = (1 << 53) - 1;

/// The sum of what was told; none if nothing was.
fn total(counts: &[Option<u64>]) -> Option<u64> {
    counts.iter().flatten().copied().reduce(u64::saturating_add)
}
