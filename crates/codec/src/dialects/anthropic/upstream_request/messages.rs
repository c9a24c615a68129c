//! Writes the conversation of a request. Settings and tools are in `upstream_request`.

use std::borrow::Cow;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use serde_json::Value;
use throughline_canonical::{
    Block, CacheTime, Loss, LossReason, LossSubject, MediaKind, Message, Reason, Role, Source,
};

use super::super::NAME;
use super::{RequestWriter, list};
use crate::dialects::shared::arguments::{EMPTY_OBJECT, or_empty_object};
use crate::dialects::shared::cache_control::add_breakpoint;
use crate::dialects::shared::losses::foreign_block;
use crate::json::{Kind, ObjectWriter, validate};

/// Arguments with deeper nesting are sent as text.
const DEPTH: usize = 256;

/// Consecutive messages of one role, which the provider treats as one.
pub(crate) struct Turn<'a> {
    role: Role,
    /// Tool results, which must come first.
    results: Vec<u8>,
    /// The text before `rest`. It is not written yet, because alone it becomes a plain string.
    first: Option<&'a str>,
    rest: Vec<u8>,
    /// Every text is a block, even alone.
    only_blocks: bool,
}

impl<'a> Turn<'a> {
    fn push_text(&mut self, text: &'a str) {
        if self.is_empty() && !self.only_blocks {
            self.first = Some(text);
        } else {
            separate(&mut self.rest);
            write_text(&mut self.rest, text);
        }
    }

    /// Adds a block as its maker wrote it.
    fn push_native(&mut self, block: &str) {
        separate(&mut self.rest);
        self.rest.extend_from_slice(block.as_bytes());
    }

    fn is_empty(&self) -> bool {
        self.results.is_empty() && self.first.is_none() && self.rest.is_empty()
    }

    /// How much is written.
    fn written(&self) -> (usize, usize) {
        (self.results.len(), self.rest.len())
    }
}

impl RequestWriter {
    /// Joins consecutive messages of one role.
    pub(crate) fn turns<'a>(&mut self, messages: &'a [Message]) -> Vec<Turn<'a>> {
        let mut turns: Vec<Turn<'_>> = Vec::new();
        // A breakpoint needs a block. If only such texts were blocks, a text would change its form when
        // its breakpoint moves on.
        let only_blocks = !self.breakpoints.is_empty();
        for (at, message) in messages.iter().enumerate() {
            let mut turn = match turns
                .pop_if(|turn| turn.role == message.role && message.role != Role::System)
            {
                Some(turn) => turn,
                None => Turn {
                    role: message.role,
                    results: Vec::new(),
                    first: None,
                    rest: Vec::new(),
                    only_blocks,
                },
            };
            let native = message.native_parts(NAME);
            for (index, block) in message.content.iter().enumerate() {
                let before = turn.written();
                match native.part(index).filter(|_| self.takes_native(block)) {
                    Some(part) => turn.push_native(&part.json),
                    None => self.block(&mut turn, block),
                }
                if let Some(time) = self.breakpoints.at_block(at, index) {
                    self.breakpoint(&mut turn, block, before, time);
                }
            }
            if !turn.is_empty() {
                turns.push(turn);
            } else if !message.content.is_empty() {
                self.omitted(LossSubject::Message, LossReason::Empty);
            }
        }
        turns
    }

    /// Whether a block can be written as its maker wrote it. Providers refuse a text of white space
    /// alone, and the id of a call must match that of its result.
    fn takes_native(&self, block: &Block) -> bool {
        match block {
            Block::Text { text, .. } => !text.trim().is_empty(),
            Block::ToolCall { id, .. } => is_call_id(id),
            Block::Thinking { signature, .. } => {
                self.unsigned || signature.as_deref().is_some_and(|text| !text.is_empty())
            }
            _ => true,
        }
    }

    /// Adds a breakpoint to the block that was just written.
    fn breakpoint(
        &mut self,
        turn: &mut Turn<'_>,
        block: &Block,
        before: (usize, usize),
        time: CacheTime,
    ) {
        let (results, rest) = turn.written();
        match block {
            Block::Thinking { .. } | Block::Redacted { .. } => {
                self.omitted(LossSubject::CacheControl, LossReason::NoPlace);
            }
            _ if results > before.0 => add_breakpoint(&mut turn.results, time),
            _ if rest > before.1 => add_breakpoint(&mut turn.rest, time),
            _ => self.omitted(LossSubject::CacheControl, LossReason::Empty),
        }
    }

    fn block<'a>(&mut self, turn: &mut Turn<'a>, block: &'a Block) {
        let (role, rest) = (turn.role, &mut turn.rest);
        match (block, role) {
            (Block::ToolResult { id, content, is_error, .. }, Role::User) => {
                if turn.first.is_some() || !rest.is_empty() {
                    self.adapted(LossSubject::ToolResult, LossReason::GoesFirst);
                }
                separate(&mut turn.results);
                self.tool_result(&mut turn.results, id, content, *is_error);
            }
            (Block::Text { text, signature, .. }, _) => {
                if self.is_sendable_part(text, signature.as_deref()) {
                    turn.push_text(text);
                }
            }
            (Block::Refusal { text }, Role::Assistant) => {
                if self.is_sendable(text) {
                    self.adapted(LossSubject::Refusal, LossReason::AsText);
                    turn.push_text(text);
                }
            }
            (Block::Thinking { signature, .. }, Role::Assistant) => {
                let is_signed = signature.as_deref().is_some_and(|text| !text.is_empty());
                if !is_signed && !self.unsigned {
                    self.unsigned_thinking();
                    return;
                }
                separate(rest);
                write_thinking(rest, block);
            }
            (Block::Redacted { .. }, Role::Assistant) => {
                separate(rest);
                write_thinking(rest, block);
            }
            (Block::ToolCall { id, name, arguments, signature }, Role::Assistant) => {
                if signature.is_some() {
                    self.omitted(LossSubject::ToolCallSignature, LossReason::NoPlace);
                }
                let id = self.call_id(id);
                separate(rest);
                let mut block = ObjectWriter::new(rest);
                block.text("type", "tool_use").text("id", &id).text("name", name);
                if !write_arguments(block.key("input"), arguments) {
                    self.adapted(LossSubject::ToolCallArguments, LossReason::NotAnObject);
                }
                block.end();
            }
            (Block::Media { kind, source, name, detail }, Role::User) => {
                self.detail(detail.as_deref());
                self.media(rest, *kind, source, name.as_deref());
            }
            (Block::Opaque { dialect, value }, _) => self.opaque(rest, dialect, value),
            (Block::Media { .. }, _) => self.omitted(LossSubject::Media, LossReason::Role),
            (Block::Thinking { .. } | Block::Redacted { .. }, _) => {
                self.omitted(LossSubject::Thinking, LossReason::Role);
            }
            (Block::ToolCall { .. }, _) => self.omitted(LossSubject::ToolCall, LossReason::Role),
            (Block::ToolResult { .. }, _) => {
                self.omitted(LossSubject::ToolResult, LossReason::Role);
            }
            (Block::Refusal { .. }, _) => self.omitted(LossSubject::Refusal, LossReason::Role),
        }
    }

    /// A signature cannot be invented, and the provider rejects the request without one.
    fn unsigned_thinking(&mut self) {
        for loss in &mut self.losses {
            if let Loss::ThinkingOmitted { blocks, reason: Reason::Shape } = loss {
                *blocks += 1;
                return;
            }
        }
        self.losses.push(Loss::ThinkingOmitted { blocks: 1, reason: Reason::Shape });
    }

    fn tool_result(&mut self, out: &mut Vec<u8>, id: &str, content: &[Block], is_error: bool) {
        let id = self.call_id(id);
        let mut result = ObjectWriter::new(out);
        result.text("type", "tool_result").text("tool_use_id", &id);
        if let [Block::Text { text, signature: None, .. }] = content {
            // An empty text is allowed here.
            result.text("content", text);
        } else {
            let (mut parts, mut lone) = (Vec::new(), None);
            for part in content {
                let (first, before) = (parts.is_empty(), parts.len());
                self.result_part(&mut parts, part);
                if parts.len() > before {
                    lone = match part {
                        Block::Text { text, .. } if first => Some(text),
                        _ => None,
                    };
                }
            }
            match lone {
                Some(text) => {
                    result.text("content", text);
                }
                None if parts.is_empty() => {}
                None => {
                    let out = result.key("content");
                    out.push(b'[');
                    out.append(&mut parts);
                    out.push(b']');
                }
            }
        }
        if is_error {
            result.raw("is_error", b"true");
        }
        result.end();
    }

    fn result_part(&mut self, out: &mut Vec<u8>, part: &Block) {
        match part {
            Block::Text { text, signature, .. } => {
                if self.is_sendable_part(text, signature.as_deref()) {
                    separate(out);
                    write_text(out, text);
                }
            }
            Block::Media { kind, source, name, detail } => {
                self.detail(detail.as_deref());
                self.media(out, *kind, source, name.as_deref());
            }
            Block::Opaque { dialect, value } => self.opaque(out, dialect, value),
            _ => self.omitted(LossSubject::ToolResultPart, LossReason::NoPlace),
        }
    }

    fn is_sendable_part(&mut self, text: &str, signature: Option<&str>) -> bool {
        if signature.is_some() {
            self.omitted(LossSubject::TextSignature, LossReason::NoPlace);
        }
        self.is_sendable(text)
    }

    fn detail(&mut self, detail: Option<&str>) {
        if detail.is_some() {
            self.omitted(LossSubject::MediaSettings, LossReason::NoPlace);
        }
    }

    fn media(&mut self, out: &mut Vec<u8>, kind: MediaKind, source: &Source, name: Option<&str>) {
        let (word, types): (_, &[&str]) = match kind {
            MediaKind::Image => ("image", &["image/jpeg", "image/png", "image/gif", "image/webp"]),
            MediaKind::Document => ("document", &["application/pdf"]),
            MediaKind::Audio => return self.omitted(LossSubject::Media, LossReason::NoPlace),
            MediaKind::Video => return self.omitted(LossSubject::Media, LossReason::NoPlace),
        };
        let read = read_text(kind, source);
        let source = read.as_ref().unwrap_or(source);
        match source {
            Source::Base64 { media_type, .. } if !types.contains(&media_type.as_str()) => {
                return self.omitted(LossSubject::Media, LossReason::MediaType);
            }
            Source::Text { .. } if kind == MediaKind::Image => {
                return self.omitted(LossSubject::Media, LossReason::MediaType);
            }
            Source::File { dialect, .. } if dialect != NAME => {
                return self.omitted(LossSubject::MediaFile, LossReason::ForeignFile);
            }
            _ => {}
        }
        separate(out);
        let mut block = ObjectWriter::new(out);
        block.text("type", word);
        let mut member = block.object("source");
        match source {
            Source::Base64 { media_type, data } => {
                member.text("type", "base64").text("media_type", media_type).text("data", data);
            }
            Source::Text { text } => {
                member.text("type", "text").text("media_type", "text/plain").text("data", text);
            }
            // The provider detects the media type.
            Source::Url { url, .. } => {
                member.text("type", "url").text("url", url);
            }
            Source::File { id, .. } => {
                member.text("type", "file").text("file_id", id);
            }
        }
        member.end();
        match name {
            Some(name) if kind == MediaKind::Document => {
                block.text("title", name);
            }
            Some(_) => self.omitted(LossSubject::MediaName, LossReason::NoPlace),
            None => {}
        }
        block.end();
    }

    fn opaque(&mut self, out: &mut Vec<u8>, dialect: &str, value: &Value) {
        if dialect == NAME && value.is_object() {
            separate(out);
            out.extend_from_slice(value.to_string().as_bytes());
        } else {
            Loss::add(&mut self.losses, foreign_block(value));
        }
    }

    /// Whether a text can be sent: providers reject white space alone, and an empty text is
    /// pointless.
    pub(crate) fn is_sendable(&mut self, text: &str) -> bool {
        let blank = text.trim().is_empty();
        if blank && !text.is_empty() {
            self.omitted(LossSubject::Text, LossReason::Empty);
        }
        !blank
    }

    /// Ids may have letters, digits, `_` and `-`. Other ids are encoded deterministically, so that
    /// call and result still match, also in later turns.
    fn call_id<'a>(&mut self, id: &'a str) -> Cow<'a, str> {
        if is_call_id(id) {
            return Cow::Borrowed(id);
        }
        self.adapted(LossSubject::ToolCallId, LossReason::Characters);
        let mut spelled = String::from("call");
        for byte in id.bytes() {
            if is_id_byte(byte) {
                spelled.push(char::from(byte));
            } else {
                spelled.push_str(&format!("_{byte:02x}"));
            }
        }
        Cow::Owned(spelled)
    }
}

fn is_id_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-'
}

/// Whether providers accept the id of a call.
fn is_call_id(id: &str) -> bool {
    !id.is_empty() && id.bytes().all(is_id_byte)
}

/// Writes arguments as an object. Returns whether they were one; other arguments are sent as text.
pub(crate) fn write_arguments(out: &mut Vec<u8>, arguments: &str) -> bool {
    let arguments = or_empty_object(arguments).trim();
    match validate(arguments.as_bytes(), DEPTH) {
        Ok(Kind::Object) => out.extend_from_slice(arguments.as_bytes()),
        Ok(Kind::Null) => out.extend_from_slice(EMPTY_OBJECT.as_bytes()),
        _ => {
            ObjectWriter::new(out).text("arguments", arguments).end();
            return false;
        }
    }
    true
}

/// Writes the list of messages.
pub(crate) fn write_turns(turns: &[Turn<'_>], out: &mut Vec<u8>) {
    list(out, turns, |out, turn| {
        let mut message = ObjectWriter::new(out);
        message.text(
            "role",
            match turn.role {
                Role::System => "system",
                Role::User => "user",
                Role::Assistant => "assistant",
            },
        );
        match turn.first {
            Some(text) if turn.results.is_empty() && turn.rest.is_empty() => {
                message.text("content", text);
            }
            first => {
                let mut text = Vec::new();
                first.inspect(|first| write_text(&mut text, first));
                let parts = [&turn.results, &text, &turn.rest];
                let parts = parts.into_iter().filter(|part| !part.is_empty());
                list(message.key("content"), parts, |out, part| out.extend_from_slice(part));
            }
        }
        message.end();
    });
}

/// Reads a document of plain text, which the provider accepts only as text. `None` for other
/// documents or invalid bytes.
fn read_text(kind: MediaKind, source: &Source) -> Option<Source> {
    match source {
        Source::Base64 { media_type, data }
            if kind == MediaKind::Document && media_type.starts_with("text/") =>
        {
            let text = String::from_utf8(BASE64_STANDARD.decode(data).ok()?).ok()?;
            Some(Source::Text { text })
        }
        _ => None,
    }
}

/// Writes a text block.
pub(crate) fn write_text(out: &mut Vec<u8>, text: &str) {
    ObjectWriter::new(out).text("type", "text").text("text", text).end();
}

/// Writes a thinking block as its maker wrote it.
pub(crate) fn write_thinking(out: &mut Vec<u8>, block: &Block) {
    let mut object = ObjectWriter::new(out);
    match block {
        Block::Thinking { text, signature } => {
            object.text("type", "thinking").text("thinking", text);
            if let Some(signature) = signature {
                object.text("signature", signature);
            }
        }
        Block::Redacted { data } => {
            object.text("type", "redacted_thinking").text("data", data);
        }
        _ => debug_assert!(false, "not a thinking block: {block:?}"),
    }
    object.end();
}

/// Adds a comma if something precedes.
fn separate(out: &mut Vec<u8>) {
    if !out.is_empty() {
        out.push(b',');
    }
}
