//! Writes the conversation of a request for a provider: messages become items.

use serde_json::{Value, json};
use throughline_canonical::{
    Alignment, Block, CachePlace, CacheTime, KeyHasher, LossReason, LossSubject, MediaKind,
    Message, Request, Role, Source, ThinkingKind,
};

use super::super::{AUTO_DETAIL, NAME, PHASE};
use crate::dialects::shared::arguments::or_empty_object;
use crate::dialects::shared::cache_control::PartBreakpoints;
use crate::dialects::shared::losses::{Losses, foreign_block};

/// OpenAI's file ids are valid in both of its dialects.
const FILE_DIALECTS: [&str; 2] = [NAME, "openai_chat"];

/// Writes the instructions and the conversation.
pub(super) fn write<'r>(
    request: &'r Request,
    breakpoints: &PartBreakpoints<'_>,
    losses: &mut Losses,
) -> (Option<&'r str>, Vec<String>) {
    let mut system = request.system.iter().enumerate();
    let instructions = system.next().map(|(_, text)| text.as_str());
    let positions = [CachePlace::System { index: 0 }];
    let tools = (0..request.tools.len()).map(|index| CachePlace::Tool { index });
    if positions.into_iter().chain(tools).any(|position| breakpoints.at(position).is_some()) {
        losses.omit(LossSubject::CacheControl, LossReason::NoPlace);
    }
    let mut items = Items {
        items: Vec::new(),
        parts: Vec::new(),
        phase: None,
        role: Role::System,
        breakpoints,
        breakpoint: None,
        losses,
    };
    for (index, text) in system {
        items.breakpoint = breakpoints.at(CachePlace::System { index });
        items.part(json!({"type": "input_text", "text": text}));
        items.flush();
    }
    for (at, message) in request.messages.iter().enumerate().skip(first_unstored(request)) {
        items.role = message.role;
        let mut native = message.native_parts(NAME);
        if native.lacks_thinking {
            // The provider refuses its own items without the reasoning that they came from.
            native = Alignment::default();
        }
        let mut written = 0;
        for (index, block) in message.content.iter().enumerate() {
            items.breakpoint = breakpoints.at(CachePlace::Block { message: at, block: index });
            match native.part(index) {
                _ if index < written => {}
                Some(part) => {
                    items.native(&part.json);
                    written = index + part.blocks;
                }
                None => items.block(block),
            }
            if items.breakpoint.take().is_some() {
                items.losses.omit(LossSubject::CacheControl, LossReason::NoPlace);
            }
        }
        items.flush();
    }
    (instructions, items.items)
}

/// The index of the first message that the provider has not stored.
fn first_unstored(request: &Request) -> usize {
    let is_reply = |message: &Message| message.role == Role::Assistant;
    match &request.provider_state.previous {
        Some(_) => request.messages.iter().rposition(is_reply).map_or(0, |at| at + 1),
        None => 0,
    }
}

/// Collects items, and the parts of the current message.
struct Items<'l> {
    /// Each item as JSON.
    items: Vec<String>,
    parts: Vec<Value>,
    phase: Option<String>,
    role: Role,
    breakpoints: &'l PartBreakpoints<'l>,
    /// The breakpoint for the prompt cache that the present block still needs.
    breakpoint: Option<CacheTime>,
    losses: &'l mut Losses,
}

impl Items<'_> {
    fn part(&mut self, mut part: Value) {
        if self.role != Role::Assistant {
            self.write_breakpoint(&mut part);
        }
        self.parts.push(part);
    }

    fn write_breakpoint(&mut self, part: &mut Value) {
        if let Some(time) = self.breakpoint.take() {
            self.breakpoints.write(part, time, &mut self.losses.0);
        }
    }

    /// Adds an item after the current message.
    fn item(&mut self, item: &Value) {
        self.native(&item.to_string());
    }

    /// Adds an item as its maker wrote it.
    fn native(&mut self, item: &str) {
        self.flush();
        self.items.push(item.to_owned());
    }

    /// Ends the current message.
    fn flush(&mut self) {
        let phase = self.phase.take();
        if self.parts.is_empty() {
            return;
        }
        let role = match self.role {
            Role::System => "developer",
            Role::User => "user",
            Role::Assistant => "assistant",
        };
        let parts = std::mem::take(&mut self.parts);
        let mut item = json!({"type": "message", "role": role, "content": parts});
        if let (Some(phase), Value::Object(members)) = (phase, &mut item) {
            members.insert("phase".to_owned(), phase.into());
        }
        self.items.push(item.to_string());
    }

    fn block(&mut self, block: &Block) {
        match block {
            Block::Text { text, signature, .. } => self.text(text, signature.as_deref()),
            Block::Refusal { text } if self.role == Role::Assistant => {
                self.part(json!({"type": "refusal", "refusal": text}));
            }
            Block::Refusal { text } => self.part(json!({"type": "input_text", "text": text})),
            Block::Media { .. } if self.role == Role::Assistant => {
                self.losses.omit(LossSubject::Media, LossReason::Role);
            }
            Block::Media { kind, source, name, detail } => {
                let part = media(*kind, source, name.as_deref(), self.losses);
                if let Some(part) = part.map(|part| with_detail(part, detail.as_deref())) {
                    self.part(part);
                }
            }
            Block::Thinking { text, signature } => self.thinking(text, signature.as_deref()),
            Block::Redacted { data } => self.thinking("", Some(data)),
            Block::ToolCall { id, name, arguments, signature } => {
                if signature.is_some() {
                    self.losses.omit(LossSubject::ToolCallSignature, LossReason::NoPlace);
                }
                self.item(&json!({
                    "type": "function_call",
                    "call_id": id,
                    "name": name,
                    "arguments": or_empty_object(arguments),
                }));
            }
            Block::ToolResult { id, content, is_error, .. } => {
                if *is_error {
                    self.losses.omit(LossSubject::ToolResultIsError, LossReason::NoPlace);
                }
                let output = self.output(content);
                self.item(&json!({
                    "type": "function_call_output",
                    "call_id": id,
                    "output": output,
                }));
            }
            Block::Opaque { dialect, value } if dialect == NAME => self.item(value),
            Block::Opaque { value, .. } => self.losses.add(foreign_block(value)),
        }
    }

    fn text(&mut self, text: &str, signature: Option<&str>) {
        if self.role != Role::Assistant {
            if signature.is_some() {
                self.losses.omit(LossSubject::TextSignature, LossReason::NoPlace);
            }
            self.part(json!({"type": "input_text", "text": text}));
            return;
        }
        let phase = match signature.map(|signature| signature.strip_prefix(PHASE)) {
            None => None,
            Some(Some(phase)) => Some(phase),
            Some(None) => {
                self.losses.omit(LossSubject::TextSignature, LossReason::ForeignDialect);
                None
            }
        };
        // A message has one phase.
        if self.phase.as_deref() != phase {
            self.flush();
            self.phase = phase.map(str::to_owned);
        }
        self.part(json!({"type": "output_text", "text": text, "annotations": []}));
    }

    /// Writes reasoning. Signed reasoning was a summary; unsigned reasoning can only be the
    /// reasoning itself.
    fn thinking(&mut self, text: &str, signature: Option<&str>) {
        let part = |kind: &str| match text {
            "" => json!([]),
            text => json!([{"type": kind, "text": text}]),
        };
        self.item(&match signature {
            Some(signature) => json!({
                "type": "reasoning",
                "summary": part("summary_text"),
                "encrypted_content": signature,
            }),
            None => json!({
                "type": "reasoning",
                "id": reasoning_id(text),
                "summary": [],
                "content": part("reasoning_text"),
            }),
        });
    }

    fn output(&mut self, content: &[Block]) -> Value {
        match content {
            [] => return "".into(),
            // If only results with breakpoints were lists, one would change its form when its breakpoint moves on.
            _ if self.breakpoints.any() => {}
            [Block::Text { text, .. }] => return text.as_str().into(),
            _ => {}
        }
        let mut parts = Vec::new();
        for block in content {
            match block {
                Block::Text { text, .. } | Block::Refusal { text } => {
                    parts.push(json!({"type": "input_text", "text": text}));
                }
                Block::Media { kind, source, name, detail } => {
                    let part = media(*kind, source, name.as_deref(), self.losses);
                    parts.extend(part.map(|part| with_detail(part, detail.as_deref())));
                }
                _ => self.losses.omit(LossSubject::ToolResultPart, LossReason::NoPlace),
            }
        }
        match parts.last_mut() {
            Some(last) => self.write_breakpoint(last),
            None => return "".into(),
        }
        parts.into()
    }
}

/// Sets how closely the model looks at an image.
fn with_detail(mut part: Value, detail: Option<&str>) -> Value {
    if let (Some(detail), Some(member)) = (detail, part.get_mut("detail")) {
        *member = detail.into();
    }
    part
}

/// An id for unsigned reasoning. Servers that sign nothing want one, and have no use for it. The same
/// text has the same id, so that a prompt stays the same.
fn reasoning_id(text: &str) -> String {
    let mut hasher = KeyHasher::new(ThinkingKind::Thinking);
    hasher.push(text.as_bytes());
    format!("rs_{}", hasher.finish("").short())
}

fn media(
    kind: MediaKind,
    source: &Source,
    name: Option<&str>,
    losses: &mut Losses,
) -> Option<Value> {
    let data_url = |media_type: &str, data: &str| format!("data:{media_type};base64,{data}");
    if let Source::File { dialect, .. } = source
        && !FILE_DIALECTS.contains(&dialect.as_str())
    {
        losses.omit(LossSubject::MediaFile, LossReason::ForeignFile);
        return None;
    }
    let part = match (kind, source) {
        (MediaKind::Image, Source::Base64 { media_type, data }) => {
            json!({"type": "input_image", "image_url": data_url(media_type, data), "detail": AUTO_DETAIL})
        }
        (MediaKind::Image, Source::Url { url, .. }) => {
            json!({"type": "input_image", "image_url": url, "detail": AUTO_DETAIL})
        }
        (MediaKind::Image, Source::File { id, .. }) => {
            json!({"type": "input_image", "file_id": id, "detail": AUTO_DETAIL})
        }
        (MediaKind::Document, Source::Base64 { media_type, data }) => {
            // The provider rejects a file without a name.
            let name = name.unwrap_or("document");
            json!({"type": "input_file", "filename": name, "file_data": data_url(media_type, data)})
        }
        (MediaKind::Document, Source::Url { url, .. }) => {
            json!({"type": "input_file", "file_url": url})
        }
        (MediaKind::Document, Source::File { id, .. }) => {
            json!({"type": "input_file", "file_id": id})
        }
        (_, Source::Text { text }) => {
            losses.adapt(LossSubject::Document, LossReason::AsText);
            json!({"type": "input_text", "text": text})
        }
        (MediaKind::Audio, Source::Base64 { media_type, data }) => {
            let format = match media_type.as_str() {
                "audio/wav" | "audio/x-wav" | "audio/wave" => "wav",
                "audio/mpeg" | "audio/mp3" => "mp3",
                _ => {
                    losses.omit(LossSubject::Media, LossReason::MediaType);
                    return None;
                }
            };
            json!({"type": "input_audio", "input_audio": {"data": data, "format": format}})
        }
        (MediaKind::Audio, _) => {
            losses.omit(LossSubject::Media, LossReason::NotInline);
            return None;
        }
        (MediaKind::Video, _) => {
            losses.omit(LossSubject::Media, LossReason::NoPlace);
            return None;
        }
    };
    // Only inline files have a name.
    if name.is_some() && part.get("filename").is_none() {
        losses.omit(LossSubject::MediaName, LossReason::NoPlace);
    }
    Some(part)
}
