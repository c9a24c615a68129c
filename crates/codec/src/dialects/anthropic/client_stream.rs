//! Writes a reply for a client, streamed or whole.
//!
//! Clients keep one block open at a time and count blocks without gaps. So blocks are renumbered,
//! and a block that starts while another is open waits for the end of that block.

use std::collections::VecDeque;

use serde_json::{Value, json};
use throughline_canonical::{
    Block, BlockStart, Delta, EndDetails, EndReason, Event, Fault, FaultKind, Reply, Usage,
};

use super::NAME;
use super::client_reply::{PING, error_event};
use super::upstream_request::messages::write_arguments;
use crate::dialects::{ReplyIdentity, ReplyWriter};
use crate::json::{ObjectWriter, escape_bytes, quote_bytes};

/// Writes one reply.
#[derive(Debug, Default)]
pub struct StreamWriter {
    id: String,
    model: String,
    usage: Usage,
    state: Progress,
    /// Index of the next block.
    next: u32,
    /// The block that is being written, then the blocks that wait for it.
    open: VecDeque<OpenBlock>,
    called: bool,
    details: EndDetails,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Progress {
    /// The message has not started. It waits for the first block, because many providers report the
    /// input tokens in between.
    #[default]
    Fresh,
    Begun,
    Ended,
}

/// A block that has started and not ended.
#[derive(Debug)]
struct OpenBlock {
    /// Its index in the incoming events.
    number: u32,
    kind: BlockKind,
    /// The JSON that starts it, without the index.
    start: Vec<u8>,
    /// The JSON before the text of each delta; empty until the block is written.
    head: Vec<u8>,
    /// Text that arrived while it waited.
    waiting: String,
    signature: String,
    /// Citation deltas that are not written yet.
    citations: Vec<Vec<u8>>,
    /// Whether it ended while it waited.
    ended: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum BlockKind {
    Text,
    Thinking,
    Redacted,
    ToolCall,
    /// A block that only this dialect has. Its JSON waits until it is complete.
    Opaque,
    /// A block that this dialect cannot express.
    Unknown,
}

impl StreamWriter {
    /// Creates a writer for the reply to a request that named this model.
    pub fn new(model: &str, identity: &ReplyIdentity) -> Self {
        Self { id: format!("msg_{}", identity.id), model: model.to_owned(), ..Self::default() }
    }

    fn begin(&mut self, out: &mut Vec<u8>) {
        if self.state != Progress::Fresh {
            return;
        }
        self.state = Progress::Begun;
        open_event("message_start", out);
        out.extend_from_slice(br#","message":"#);
        let mut message = self.message(out);
        message.raw("content", b"[]");
        write_stop("null", &EndDetails::default(), &mut message);
        write_usage(&self.usage, &mut message);
        message.end();
        out.extend_from_slice(b"}\n\n");
    }

    /// Writes the members that every message starts with.
    fn message<'a>(&self, out: &'a mut Vec<u8>) -> ObjectWriter<'a> {
        let mut message = ObjectWriter::new(out);
        message
            .text("id", &self.id)
            .text("type", "message")
            .text("role", "assistant")
            .text("model", &self.model);
        message
    }

    fn start_block(&mut self, number: u32, block: &BlockStart<'_>, out: &mut Vec<u8>) {
        self.begin(out);
        let mut start = Vec::new();
        let (mut waiting, mut held) = (String::new(), String::new());
        let kind = match block {
            BlockStart::Text { text } | BlockStart::Refusal { text } => {
                waiting.push_str(text);
                ObjectWriter::new(&mut start).text("type", "text").text("text", "").end();
                BlockKind::Text
            }
            BlockStart::Thinking { text, signature } => {
                waiting.push_str(text);
                held.push_str(signature);
                ObjectWriter::new(&mut start)
                    .text("type", "thinking")
                    .text("thinking", "")
                    .text("signature", "")
                    .end();
                BlockKind::Thinking
            }
            BlockStart::Redacted { data } => {
                write_redacted(&mut start, data);
                BlockKind::Redacted
            }
            BlockStart::ToolCall { id, name } => {
                self.called = true;
                ObjectWriter::new(&mut start)
                    .text("type", "tool_use")
                    .text("id", id)
                    .text("name", name)
                    .raw("input", b"{}")
                    .end();
                BlockKind::ToolCall
            }
            BlockStart::Opaque { dialect, .. } if dialect == NAME => BlockKind::Opaque,
            BlockStart::Opaque { .. } => BlockKind::Unknown,
        };
        self.open.push_back(OpenBlock {
            number,
            kind,
            start,
            head: Vec::new(),
            waiting,
            signature: held,
            citations: Vec::new(),
            ended: false,
        });
        self.proceed(out);
    }

    fn grow_block(&mut self, number: u32, delta: &Delta<'_>, out: &mut Vec<u8>) {
        // Nearly always the block that is being written, which is first.
        let mut growing = self.open.iter_mut();
        let Some(open) = growing.find(|open| open.number == number && !open.ended) else {
            return;
        };
        let more = match (open.kind, delta) {
            (BlockKind::Text, Delta::Text(more))
            // Providers may send plain text inside a reasoning block.
            | (BlockKind::Thinking, Delta::Thinking(more) | Delta::Text(more))
            | (BlockKind::ToolCall, Delta::ToolArguments(more)) => more,
            (BlockKind::Thinking, Delta::Signature(signature)) => {
                // Clients keep the last signature, so it is sent once, at the end.
                open.signature.clear();
                open.signature.push_str(signature);
                return;
            }
            (BlockKind::Text, Delta::Citation(citation)) => {
                if let Some(own) = citation.written_by(NAME) {
                    let mut written = br#"{"type":"citations_delta","citation":"#.to_vec();
                    written.extend_from_slice(own.to_string().as_bytes());
                    written.push(b'}');
                    open.citations.push(written);
                    self.proceed(out);
                }
                return;
            }
            (BlockKind::Opaque, Delta::Opaque(more)) => {
                open.waiting.push_str(more);
                return;
            }
            // This dialect has no signature on calls. The gateway stores it by the id of the call.
            _ => return,
        };
        if open.head.is_empty() {
            // The block waits, or is a text block that is still empty.
            open.waiting.push_str(more);
            self.proceed(out);
            return;
        }
        write_delta(&open.head, more, out);
    }

    fn end_block(&mut self, number: u32, out: &mut Vec<u8>) {
        if let Some(open) = self.open.iter_mut().find(|open| open.number == number && !open.ended) {
            open.ended = true;
            self.proceed(out);
        }
    }

    /// Writes as much as possible: the first block, and the next ones after it is complete.
    fn proceed(&mut self, out: &mut Vec<u8>) {
        while let Some(open) = self.open.front_mut() {
            if open.kind == BlockKind::Opaque {
                if !open.ended {
                    return;
                }
                open.settle();
            }
            // Providers reject empty text blocks that clients send back, so the block waits for
            // text.
            let writes = match open.kind {
                BlockKind::Text => !open.waiting.is_empty(),
                BlockKind::Opaque => !open.start.is_empty(),
                BlockKind::Unknown => false,
                _ => true,
            };
            if open.head.is_empty() && writes {
                open.begin(self.next, out);
                self.next = self.next.saturating_add(1);
            }
            if !open.head.is_empty() && !open.waiting.is_empty() {
                write_delta(&open.head, &open.waiting, out);
                open.waiting = String::new();
            }
            if !open.head.is_empty() {
                for citation in std::mem::take(&mut open.citations) {
                    open_event("content_block_delta", out);
                    write_index(self.next.saturating_sub(1), out);
                    out.extend_from_slice(br#","delta":"#);
                    out.extend_from_slice(&citation);
                    out.extend_from_slice(b"}\n\n");
                }
            }
            if !open.ended {
                return;
            }
            if !open.head.is_empty() {
                open.close(self.next.saturating_sub(1), out);
            }
            self.open.pop_front();
        }
    }

    fn fail(&mut self, fault: &Fault, out: &mut Vec<u8>) {
        self.state = Progress::Ended;
        out.extend_from_slice(&error_event(fault, None));
    }

    fn end(&mut self, reason: &EndReason, out: &mut Vec<u8>) {
        match reason {
            EndReason::Failed => {
                let fault = Fault::new(FaultKind::Internal, "the provider reported an error");
                return self.fail(&fault, out);
            }
            // Several clients take a clean end for a complete answer.
            EndReason::Cut => {
                let fault = Fault::new(FaultKind::Unreachable, "the provider's reply was cut off");
                return self.fail(&fault, out);
            }
            _ => {}
        }
        self.begin(out);
        for open in &mut self.open {
            open.ended = true;
        }
        self.proceed(out);
        open_event("message_delta", out);
        out.extend_from_slice(br#","delta":"#);
        let mut delta = ObjectWriter::new(out);
        let word = quoted(stop_reason(reason, self.called));
        write_stop(&word, &self.details, &mut delta);
        delta.end();
        out.extend_from_slice(br#","usage":"#);
        write_counts(&self.usage, out);
        out.extend_from_slice(b"}\n\n");
        open_event("message_stop", out);
        out.extend_from_slice(b"}\n\n");
        self.state = Progress::Ended;
    }
}

impl ReplyWriter for StreamWriter {
    fn push(&mut self, event: &Event<'_>, out: &mut Vec<u8>) {
        if self.state == Progress::Ended {
            return;
        }
        match event {
            Event::BlockDelta { index, delta } => self.grow_block(*index, delta, out),
            Event::BlockStarted { index, block } => self.start_block(*index, block, out),
            Event::BlockEnded { index } => self.end_block(*index, out),
            Event::Usage(usage) => self.usage.update(*usage),
            Event::EndExplained(details) => self.details.clone_from(details),
            Event::Fault(fault) => self.fail(fault, out),
            Event::Ended { reason } => self.end(reason, out),
            // The gateway reports these: the indexes refer to the request that the provider
            // received, not to the client's.
            Event::MessageStarted { .. }
            | Event::Transformed { .. }
            | Event::Lost { .. }
            // Only conversations run tools.
            | Event::RoundEnded(_)
            | Event::ToolStarted { .. }
            | Event::ApprovalNeeded { .. }
            | Event::ToolResult { .. } => {}
        }
    }

    fn keep_alive(&mut self, out: &mut Vec<u8>) {
        if self.state != Progress::Ended {
            out.extend_from_slice(PING);
        }
    }

    fn whole(&self, reply: &Reply) -> Vec<u8> {
        let mut out = Vec::new();
        let mut message = self.message(&mut out);
        let content = message.key("content");
        content.push(b'[');
        let (mut first, mut called) = (true, false);
        for block in &reply.content {
            let before = content.len();
            if !first {
                content.push(b',');
            }
            called |= matches!(block, Block::ToolCall { .. });
            if write_block(content, block) {
                first = false;
            } else {
                content.truncate(before);
            }
        }
        content.push(b']');
        let reason = reply.reason.as_ref().unwrap_or(&EndReason::Stop);
        let word = quoted(stop_reason(reason, called));
        write_stop(&word, &reply.details, &mut message);
        write_usage(&reply.usage, &mut message);
        message.end();
        out
    }
}

impl OpenBlock {
    /// Builds the start of a block from its complete JSON. The input of a call follows as a delta,
    /// because some clients read it only there.
    fn settle(&mut self) {
        let json = std::mem::take(&mut self.waiting);
        let Ok(Value::Object(mut block)) = serde_json::from_str(&json) else {
            return;
        };
        let kind = block.get("type").and_then(Value::as_str);
        let calls = kind.is_some_and(|kind| kind.ends_with("tool_use"));
        if let Some(Value::Object(input)) = block.get_mut("input").filter(|_| calls)
            && !input.is_empty()
        {
            self.waiting = Value::Object(std::mem::take(input)).to_string();
        }
        self.start = Value::Object(block).to_string().into_bytes();
    }

    fn begin(&mut self, index: u32, out: &mut Vec<u8>) {
        let delta: &[u8] = match self.kind {
            BlockKind::Text => br#"{"type":"text_delta","text":""#,
            BlockKind::Thinking => br#"{"type":"thinking_delta","thinking":""#,
            _ => br#"{"type":"input_json_delta","partial_json":""#,
        };
        open_event("content_block_delta", &mut self.head);
        write_index(index, &mut self.head);
        self.head.extend_from_slice(br#","delta":"#);
        self.head.extend_from_slice(delta);
        open_event("content_block_start", out);
        write_index(index, out);
        out.extend_from_slice(br#","content_block":"#);
        out.extend_from_slice(&self.start);
        out.extend_from_slice(b"}\n\n");
    }

    fn close(&self, index: u32, out: &mut Vec<u8>) {
        if !self.signature.is_empty() {
            open_event("content_block_delta", out);
            write_index(index, out);
            out.extend_from_slice(br#","delta":{"type":"signature_delta","signature":"#);
            quote_bytes(&self.signature, out);
            out.extend_from_slice(b"}}\n\n");
        }
        open_event("content_block_stop", out);
        write_index(index, out);
        out.extend_from_slice(b"}\n\n");
    }
}

/// Writes the lines of an event up to its data. Clients skip events whose name is not in both
/// places.
fn open_event(name: &str, out: &mut Vec<u8>) {
    out.extend_from_slice(b"event: ");
    out.extend_from_slice(name.as_bytes());
    out.extend_from_slice(b"\ndata: {\"type\":\"");
    out.extend_from_slice(name.as_bytes());
    out.push(b'"');
}

fn write_index(index: u32, out: &mut Vec<u8>) {
    out.extend_from_slice(br#","index":"#);
    out.extend_from_slice(index.to_string().as_bytes());
}

fn write_delta(head: &[u8], text: &str, out: &mut Vec<u8>) {
    if !text.is_empty() {
        out.reserve(head.len() + text.len() + 8);
        out.extend_from_slice(head);
        escape_bytes(text, out);
        out.extend_from_slice(b"\"}}\n\n");
    }
}

/// Writes the stop reason and its details.
fn write_stop(reason: &str, details: &EndDetails, object: &mut ObjectWriter<'_>) {
    object.raw("stop_reason", reason.as_bytes());
    object.value("stop_sequence", &details.sequence.as_deref().into());
    let category = category(details);
    let refusal =
        json!({"type": "refusal", "category": category, "explanation": details.explanation});
    match category.is_some() || details.explanation.is_some() {
        true => object.value("stop_details", &refusal),
        false => object.raw("stop_details", b"null"),
    };
}

/// The category of a refusal, if this dialect has it.
pub(super) fn category(details: &EndDetails) -> Option<&str> {
    let category = details.category.as_deref()?;
    CATEGORIES.contains(&category).then_some(category)
}

const CATEGORIES: [&str; 5] =
    ["cyber", "bio", "frontier_llm", "reasoning_extraction", "general_harms"];

fn write_usage(usage: &Usage, object: &mut ObjectWriter<'_>) {
    write_counts(usage, object.key("usage"));
}

/// Writes the token counts. Two of them are always present because clients fail without them.
fn write_counts(usage: &Usage, out: &mut Vec<u8>) {
    let mut counts = ObjectWriter::new(out);
    counts.count("input_tokens", usage.input.unwrap_or_default());
    if let Some(tokens) = usage.cache_write {
        counts.count("cache_creation_input_tokens", tokens);
    }
    if let Some(tokens) = usage.cache_read {
        counts.count("cache_read_input_tokens", tokens);
    }
    if let (Some(all), Some(hour)) = (usage.cache_write, usage.cache_write_1h) {
        let mut written = counts.object("cache_creation");
        written.count("ephemeral_5m_input_tokens", all.saturating_sub(hour));
        written.count("ephemeral_1h_input_tokens", hour).end();
    }
    counts.count("output_tokens", usage.output.unwrap_or_default());
    if let Some(tokens) = usage.thinking {
        let mut details = counts.object("output_tokens_details");
        details.count("thinking_tokens", tokens).end();
    }
    counts.end();
}

fn write_redacted(out: &mut Vec<u8>, data: &str) {
    ObjectWriter::new(out).text("type", "redacted_thinking").text("data", data).end();
}

/// Writes a block of a whole reply. Returns whether it wrote anything.
fn write_block(out: &mut Vec<u8>, block: &Block) -> bool {
    match block {
        Block::Text { text, .. } | Block::Refusal { text } => {
            if text.is_empty() {
                return false;
            }
            let mut written = ObjectWriter::new(out);
            written.text("type", "text").text("text", text);
            if let Block::Text { citations, .. } = block {
                let own = citations.iter().filter_map(|one| one.written_by(NAME));
                let own: Vec<Value> = own.cloned().collect();
                if !own.is_empty() {
                    written.value("citations", &own.into());
                }
            }
            written.end();
        }
        Block::Thinking { text, signature } => ObjectWriter::new(out)
            .text("type", "thinking")
            .text("thinking", text)
            .text("signature", signature.as_deref().unwrap_or_default())
            .end(),
        Block::Redacted { data } => write_redacted(out, data),
        Block::ToolCall { id, name, arguments, .. } => {
            let mut call = ObjectWriter::new(out);
            call.text("type", "tool_use").text("id", id).text("name", name);
            write_arguments(call.key("input"), arguments);
            call.end();
        }
        Block::Opaque { dialect, value } if dialect == NAME && value.is_object() => {
            out.extend_from_slice(value.to_string().as_bytes());
        }
        Block::Opaque { .. } | Block::Media { .. } | Block::ToolResult { .. } => return false,
    }
    true
}

/// The one stop reason of this provider that is not canonical.
const COMPACTION: &str = "compaction";

/// The stop reason. Clients run tools because of `tool_use`, whatever reason the provider gave.
fn stop_reason(reason: &EndReason, called: bool) -> &str {
    match reason {
        EndReason::Stop | EndReason::ToolCalls if called => "tool_use",
        EndReason::Stop | EndReason::ToolCalls => "end_turn",
        EndReason::Length => "max_tokens",
        EndReason::StopSequence => "stop_sequence",
        EndReason::Pause => "pause_turn",
        EndReason::Refusal => "refusal",
        EndReason::Other(word) if word == COMPACTION => word,
        // Clients do not know the reasons of other providers.
        EndReason::Other(_) => "end_turn",
        // Replies with a fault are written as errors, so this is not reached.
        EndReason::Failed | EndReason::Cut => "end_turn",
    }
}

fn quoted(text: &str) -> String {
    let mut quoted = Vec::new();
    quote_bytes(text, &mut quoted);
    String::from_utf8(quoted).unwrap_or_default()
}
