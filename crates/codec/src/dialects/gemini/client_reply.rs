//! Writes a reply for a client: chunks as events or as one growing list, or whole.
//!
//! Clients are strict about framing: no comments, no event names, a space after `data:`, nothing at
//! the end. So a keep-alive is a blank line.

use serde_json::{Map, Value, json};
use throughline_canonical::{
    Block, BlockStart, Citation, Delta, EndDetails, EndReason, Event, Fault, FaultKind, Reply,
    Request, Source, Usage,
};

use super::grounding::Grounding;
use super::upstream_request::contents::{call_into, text_part};
use super::{NAME, REFUSALS, REFUSED, errors, quote_into};
use crate::dialects::shared::open_blocks::OpenBlocks;
use crate::dialects::{ReplyIdentity, ReplyWriter};
use crate::json::{Kind, escape, validate};

const HEAD: &str = r#"{"candidates":[{"content":{"parts":["#;

/// A keep-alive between events: blank lines. Google's Python client fails on a comment. Both of its
/// clients keep an empty part in the conversation, or drop the turn if a chunk has no parts.
pub(super) const KEEP_ALIVE: &[u8] = b"\n\n";

/// Shown in place of hidden reasoning.
const HIDDEN: &str = "[Some reasoning was hidden for safety reasons]";

/// Writes one reply.
#[derive(Debug, Default)]
pub struct Writer {
    /// The bytes after the candidates of every chunk.
    tail: String,
    /// Buffer for a chunk.
    piece: String,
    framing: Framing,
    open: OpenBlocks<OpenBlock>,
    usage: Usage,
    /// Number of bytes of the answer so far, and its sources.
    answer_bytes: usize,
    /// Whether thoughts were written.
    thought: bool,
    grounding: Grounding,
    details: EndDetails,
    /// Whether a fault or the end was written.
    ended: bool,
}

/// The framing of a streamed reply.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Framing {
    /// Server-sent events.
    #[default]
    Events,
    /// One growing list.
    List {
        /// Whether an element was written.
        begun: bool,
    },
}

#[derive(Debug)]
enum OpenBlock {
    Text {
        signature: String,
        /// All of it: sources refer to bytes of the text.
        text: String,
        /// Number of bytes of the answer before it.
        before: usize,
        citations: Vec<Citation>,
    },
    Thinking {
        signature: String,
    },
    Call {
        id: String,
        name: String,
        arguments: String,
        signature: String,
    },
    Opaque {
        /// Whether it belongs to this dialect.
        own: bool,
        value: String,
    },
}

impl Writer {
    /// Creates a writer for the reply to this request.
    pub fn new(request: &Request, framing: Framing, identity: &ReplyIdentity) -> Self {
        let mut tail = String::from("\"modelVersion\":");
        quote_into(identity.model(request), &mut tail);
        tail.push_str(",\"responseId\":");
        quote_into(&identity.id, &mut tail);
        tail.push('}');
        Self { tail, framing, ..Self::default() }
    }

    /// Starts a chunk.
    fn begin(&mut self) {
        self.piece.clear();
        self.piece.push_str(match &mut self.framing {
            Framing::Events => "data: ",
            Framing::List { begun: true } => ",\r\n",
            Framing::List { begun } => {
                *begun = true;
                "["
            }
        });
    }

    /// Ends a chunk whose JSON is complete.
    fn send(&mut self, out: &mut Vec<u8>) {
        if self.framing == Framing::Events {
            self.piece.push_str("\n\n");
        }
        out.extend_from_slice(self.piece.as_bytes());
    }

    /// Ends a chunk with parts.
    fn send_parts(&mut self, out: &mut Vec<u8>) {
        self.piece.push_str(r#"],"role":"model"},"index":0}],"#);
        self.piece.push_str(&self.tail);
        self.send(out);
    }

    fn text(&mut self, text: &str, thought: bool, out: &mut Vec<u8>) {
        if text.is_empty() {
            return;
        }
        self.thought |= thought;
        self.begin();
        self.piece.push_str(HEAD);
        self.piece.push_str(r#"{"text":""#);
        escape(text, &mut self.piece);
        self.piece.push_str(if thought { r#"","thought":true}"# } else { r#""}"# });
        self.send_parts(out);
    }

    fn part(&mut self, part: &str, out: &mut Vec<u8>) {
        self.begin();
        self.piece.push_str(HEAD);
        self.piece.push_str(part);
        self.send_parts(out);
    }

    fn start(&mut self, index: u32, block: &BlockStart<'_>, out: &mut Vec<u8>) {
        let open = match block {
            BlockStart::Text { text } | BlockStart::Refusal { text } => {
                self.text(text, false, out);
                let before = self.answer_bytes;
                self.answer_bytes += text.len();
                OpenBlock::Text {
                    signature: String::new(),
                    text: text.clone().into_owned(),
                    before,
                    citations: Vec::new(),
                }
            }
            BlockStart::Thinking { text, signature } => {
                self.text(text, true, out);
                OpenBlock::Thinking { signature: signature.clone().into_owned() }
            }
            // Its data is sent as a signature, so that it comes back.
            BlockStart::Redacted { data } => {
                self.part(&hidden_part(data, self.thought), out);
                self.thought = true;
                return;
            }
            BlockStart::ToolCall { id, name } => OpenBlock::Call {
                id: id.clone().into_owned(),
                name: name.clone().into_owned(),
                arguments: String::new(),
                signature: String::new(),
            },
            BlockStart::Opaque { dialect, .. } => {
                OpenBlock::Opaque { own: dialect == NAME, value: String::new() }
            }
        };
        self.open.push(index, open);
    }

    fn delta(&mut self, index: u32, delta: &Delta<'_>, out: &mut Vec<u8>) {
        let Some(open) = self.open.get_mut(index) else {
            return;
        };
        match (open, delta) {
            (OpenBlock::Text { text, .. }, Delta::Text(more)) => {
                text.push_str(more);
                self.answer_bytes += more.len();
                self.text(more, false, out);
            }
            (OpenBlock::Text { citations, .. }, Delta::Citation(citation)) => {
                citations.push((**citation).clone());
            }
            // Providers may send plain text inside a reasoning block.
            (OpenBlock::Thinking { .. }, Delta::Thinking(text) | Delta::Text(text)) => {
                self.text(text, true, out);
            }
            (OpenBlock::Call { arguments, .. }, Delta::ToolArguments(more)) => {
                arguments.push_str(more);
            }
            (
                OpenBlock::Text { signature, .. }
                | OpenBlock::Thinking { signature }
                | OpenBlock::Call { signature, .. },
                Delta::Signature(value),
            ) => {
                signature.clear();
                signature.push_str(value);
            }
            (OpenBlock::Opaque { own: true, value }, Delta::Opaque(more)) => value.push_str(more),
            _ => {}
        }
    }

    fn write_end(&mut self, open: &OpenBlock, out: &mut Vec<u8>) {
        let mut part = String::new();
        if let OpenBlock::Text { text, before, citations, .. } = open
            && !citations.is_empty()
        {
            self.grounding.add(text, *before, citations);
        }
        match open {
            OpenBlock::Text { signature, .. } if !signature.is_empty() => {
                part = text_part("", Some(signature), false);
            }
            OpenBlock::Thinking { signature } if !signature.is_empty() => {
                part = text_part("", Some(signature), true);
            }
            OpenBlock::Call { id, name, arguments, signature } => {
                call_into(id, name, arguments, Some(signature), &mut part);
            }
            OpenBlock::Opaque { value, .. } if is_object(value) => {
                part = value.replace(['\n', '\r'], " ");
            }
            _ => {}
        }
        if !part.is_empty() {
            self.part(&part, out);
        }
    }

    fn end(&mut self, reason: &EndReason, out: &mut Vec<u8>) {
        match reason {
            EndReason::Failed => return self.fail(&broken("the provider failed"), out),
            EndReason::Cut => {
                return self.fail(&broken("the reply was cut before its end"), out);
            }
            _ => {}
        }
        // Blocks without an end are complete too.
        for open in self.open.take() {
            self.write_end(&open, out);
        }
        self.begin();
        self.piece.push_str(HEAD);
        self.piece.push_str(r#"{"text":""}],"role":"model"},"#);
        finish_into(reason, &self.details, &mut self.piece);
        self.grounding.write_into(&mut self.piece);
        self.piece.push_str("\"index\":0}],");
        if let Some(usage) = usage(&self.usage) {
            self.piece.push_str("\"usageMetadata\":");
            self.piece.push_str(&Value::Object(usage).to_string());
            self.piece.push(',');
        }
        self.piece.push_str(&self.tail);
        self.send(out);
        self.close(out);
    }

    fn fail(&mut self, fault: &Fault, out: &mut Vec<u8>) {
        self.begin();
        self.piece.push_str(&errors::value(fault).to_string());
        self.send(out);
        self.close(out);
    }

    fn close(&mut self, out: &mut Vec<u8>) {
        self.ended = true;
        if let Framing::List { .. } = self.framing {
            out.extend_from_slice(b"]\n");
        }
    }
}

impl ReplyWriter for Writer {
    fn push(&mut self, event: &Event<'_>, out: &mut Vec<u8>) {
        if self.ended {
            return;
        }
        match event {
            Event::MessageStarted { .. }
            | Event::Transformed { .. }
            | Event::Lost { .. }
            // Only conversations run tools.
            | Event::RoundEnded(_)
            | Event::ToolStarted { .. }
            | Event::ApprovalNeeded { .. }
            | Event::ToolResult { .. } => {}
            Event::BlockStarted { index, block } => self.start(*index, block, out),
            Event::BlockDelta { index, delta } => self.delta(*index, delta, out),
            Event::BlockEnded { index } => {
                if let Some(open) = self.open.remove(*index) {
                    self.write_end(&open, out);
                }
            }
            Event::Usage(usage) => self.usage.update(*usage),
            Event::EndExplained(details) => self.details.clone_from(details),
            Event::Fault(fault) => self.fail(fault, out),
            Event::Ended { reason } => self.end(reason, out),
        }
    }

    fn keep_alive(&mut self, out: &mut Vec<u8>) {
        if self.ended {
            return;
        }
        match self.framing {
            Framing::Events => out.extend_from_slice(KEEP_ALIVE),
            // White space in a list is ignored.
            Framing::List { .. } => out.push(b'\n'),
        }
    }

    fn whole(&self, reply: &Reply) -> Vec<u8> {
        let mut parts = Vec::new();
        let (mut grounding, mut before) = (Grounding::default(), 0);
        let mut thought = false;
        for block in &reply.content {
            parts.extend(whole_part(block, thought));
            thought |= thinks(block);
            match block {
                Block::Text { text, citations, .. } => {
                    if !citations.is_empty() {
                        grounding.add(text, before, citations);
                    }
                    before += text.len();
                }
                Block::Refusal { text } => before += text.len(),
                _ => {}
            }
        }
        let mut json = String::from(r#"{"candidates":[{"content":{"#);
        if !parts.is_empty() {
            json.push_str("\"parts\":[");
            json.push_str(&parts.join(","));
            json.push_str("],");
        }
        json.push_str(r#""role":"model"},"#);
        let reason = reply.reason.as_ref().unwrap_or(&EndReason::Stop);
        finish_into(reason, &reply.details, &mut json);
        grounding.write_into(&mut json);
        json.push_str("\"index\":0}],");
        if let Some(usage) = usage(&reply.usage) {
            json.push_str("\"usageMetadata\":");
            json.push_str(&Value::Object(usage).to_string());
            json.push(',');
        }
        json.push_str(&self.tail);
        json.into_bytes()
    }
}

fn broken(message: &str) -> Fault {
    Fault::new(FaultKind::Unreachable, message)
}

fn is_object(json: &str) -> bool {
    validate(json.as_bytes(), 100) == Ok(Kind::Object)
}

/// Whether a block shows thoughts.
fn thinks(block: &Block) -> bool {
    match block {
        Block::Thinking { text, .. } => !text.is_empty(),
        Block::Redacted { .. } => true,
        _ => false,
    }
}

/// A part for encrypted reasoning. Clients concatenate the texts of parts, so the separators are in
/// this part.
fn hidden_part(data: &str, thought: bool) -> String {
    let before = if thought { "\n\n" } else { "" };
    text_part(&format!("{before}{HIDDEN}\n\n"), Some(data), true)
}

/// A part of a whole reply. `thought` means that thoughts precede it.
fn whole_part(block: &Block, thought: bool) -> Option<String> {
    let inline = |source: &Source| match source {
        Source::Base64 { media_type, data } => {
            Some(json!({"inlineData": {"mimeType": media_type, "data": data}}).to_string())
        }
        Source::Url { url, media_type } => {
            Some(json!({"fileData": {"mimeType": media_type, "fileUri": url}}).to_string())
        }
        Source::Text { text } => Some(text_part(text, None, false)),
        Source::File { .. } => None,
    };
    match block {
        Block::Text { text, signature, .. } => (!text.is_empty() || signature.is_some())
            .then(|| text_part(text, signature.as_deref(), false)),
        Block::Thinking { text, signature } => (!text.is_empty() || signature.is_some())
            .then(|| text_part(text, signature.as_deref(), true)),
        Block::Redacted { data } => Some(hidden_part(data, thought)),
        Block::Refusal { text } => Some(text_part(text, None, false)),
        Block::ToolCall { id, name, arguments, signature } => {
            let mut part = String::new();
            call_into(id, name, arguments, signature.as_deref(), &mut part);
            Some(part)
        }
        Block::Media { source, .. } => inline(source),
        Block::Opaque { dialect, value } if dialect == NAME && value.is_object() => {
            Some(value.to_string())
        }
        Block::Opaque { .. } | Block::ToolResult { .. } => None,
    }
}

/// Writes the finish reason, with a message if the dialect has no matching reason.
fn finish_into(reason: &EndReason, details: &EndDetails, json: &mut String) {
    let (word, message) = match reason {
        EndReason::Stop | EndReason::StopSequence | EndReason::ToolCalls => ("STOP", None),
        EndReason::Length => ("MAX_TOKENS", None),
        EndReason::Refusal => {
            (category(details).unwrap_or(REFUSED), details.explanation.as_deref())
        }
        EndReason::Pause => {
            ("OTHER", Some("the model paused; send the conversation back to let it go on"))
        }
        EndReason::Other(word) => match FINISH_REASONS.into_iter().find(|known| known == word) {
            Some(known) => (known, None),
            None => ("OTHER", Some(word.as_str())),
        },
        EndReason::Failed | EndReason::Cut => ("OTHER", Some("the reply was cut before its end")),
    };
    json.push_str("\"finishReason\":");
    quote_into(word, json);
    json.push(',');
    if let Some(message) = message {
        json.push_str("\"finishMessage\":");
        quote_into(message, json);
        json.push(',');
    }
}

/// The category of a refusal, if this dialect has it.
pub(super) fn category(details: &EndDetails) -> Option<&'static str> {
    let category = details.category.as_deref()?;
    REFUSALS.into_iter().find(|known| *known == category)
}

/// Finish reasons that only this dialect has.
const FINISH_REASONS: [&str; 5] =
    ["OTHER", "LANGUAGE", "TOO_MANY_TOOL_CALLS", "NO_IMAGE", "IMAGE_OTHER"];

/// All input tokens, cached or not.
fn prompt(usage: &Usage) -> Option<u64> {
    [usage.input, usage.cache_read, usage.cache_write]
        .into_iter()
        .flatten()
        .reduce(u64::saturating_add)
}

/// Token counts of this dialect: the prompt includes cached tokens, candidates exclude thoughts.
fn usage(usage: &Usage) -> Option<Map<String, Value>> {
    if *usage == Usage::default() {
        return None;
    }
    let mut counts = Map::new();
    let mut set = |name: &str, count: Option<u64>| {
        if let Some(count) = count {
            counts.insert(name.to_owned(), count.into());
        }
    };
    let prompt = prompt(usage);
    set("promptTokenCount", prompt);
    set("cachedContentTokenCount", usage.cache_read);
    let thoughts = usage.thinking.unwrap_or(0);
    set("candidatesTokenCount", usage.output.map(|output| output.saturating_sub(thoughts)));
    set("thoughtsTokenCount", usage.thinking);
    let total = prompt.unwrap_or(0).saturating_add(usage.output.unwrap_or(0));
    set("totalTokenCount", Some(total));
    Some(counts)
}
