//! Writes the messages of a request to a provider.

use std::borrow::Cow;
use std::collections::HashMap;

use serde_json::{Map, Value, json};
use throughline_canonical::{
    Amount, Block, CachePlace, CacheTime, Loss, LossReason, LossSubject, MediaKind, Message,
    Reason, Request, Role, Source,
};

use super::super::detail_meta::DetailMeta;
use super::super::variants::{CallSignature, Replay, Variant};
use super::super::{NAME, ids};
use crate::dialects::shared::arguments::or_empty_object;
use crate::dialects::shared::cache_control::PartBreakpoints;
use crate::dialects::shared::losses::foreign_block;

/// Writes the system texts and the conversation.
pub(super) fn write(
    request: &Request,
    variant: &'static Variant,
    breakpoints: &PartBreakpoints<'_>,
    losses: &mut Vec<Loss>,
) -> Vec<Value> {
    let mut writer = MessageWriter {
        variant,
        breakpoints,
        thinks: request.thinking.amount != Some(Amount::Off),
        out: Vec::new(),
        losses,
        thinking_omitted: 0,
        names: HashMap::new(),
    };
    let role = variant.system_role;
    if variant.joins_system {
        if !request.system.is_empty() {
            let text = request.system.join("\n\n");
            writer.out.push(json!({"role": role, "content": text}));
        }
    } else {
        for (index, text) in request.system.iter().enumerate() {
            let mut part = json!({"type": "text", "text": text});
            writer.breakpoint(&mut part, breakpoints.at(CachePlace::System { index }));
            let content = writer.content(vec![part]);
            writer.out.push(json!({"role": role, "content": content}));
        }
    }
    for (at, message) in request.messages.iter().enumerate() {
        writer.message(at, message);
    }
    if writer.thinking_omitted > 0 {
        let loss = Loss::ThinkingOmitted { blocks: writer.thinking_omitted, reason: Reason::Shape };
        writer.losses.push(loss);
    }
    writer.out
}

/// A block with its breakpoint for the prompt cache.
type BlockAndBreakpoint<'a> = (&'a Block, Option<CacheTime>);

struct MessageWriter<'a> {
    variant: &'static Variant,
    breakpoints: &'a PartBreakpoints<'a>,
    /// Whether the model may think.
    thinks: bool,
    out: Vec<Value>,
    losses: &'a mut Vec<Loss>,
    /// Number of thinking blocks that could not be sent.
    thinking_omitted: usize,
    /// The tool of each call.
    names: HashMap<&'a str, &'a str>,
}

impl<'a> MessageWriter<'a> {
    fn omitted(&mut self, part: LossSubject, reason: LossReason) {
        let loss = Loss::PartOmitted { part, reason };
        if !self.losses.contains(&loss) {
            self.losses.push(loss);
        }
    }

    fn adapted(&mut self, setting: LossSubject, reason: LossReason) {
        let loss = Loss::SettingAdapted { setting, reason };
        if !self.losses.contains(&loss) {
            self.losses.push(loss);
        }
    }

    /// Adds a breakpoint to a part.
    fn breakpoint(&mut self, part: &mut Value, breakpoint: Option<CacheTime>) {
        if let Some(time) = breakpoint {
            self.breakpoints.write(part, time, self.losses);
        }
    }

    fn message(&mut self, at: usize, message: &'a Message) {
        match message.role {
            Role::System => {
                let parts = self.parts(self.with_breakpoints(at, &message.content));
                let role = self.variant.system_role;
                let content = self.content(parts);
                self.out.push(json!({"role": role, "content": content}));
            }
            Role::User => self.user(at, &message.content),
            Role::Assistant => {
                let message = self.assistant(at, &message.content);
                self.out.push(message);
            }
        }
    }

    /// The blocks of a message with their breakpoints.
    fn with_breakpoints(
        &self,
        message: usize,
        blocks: &'a [Block],
    ) -> impl Iterator<Item = BlockAndBreakpoint<'a>> + use<'a> {
        let breakpoints = self.breakpoints;
        let position = move |block| CachePlace::Block { message, block };
        blocks.iter().enumerate().map(move |(at, block)| (block, breakpoints.at(position(at))))
    }

    /// Writes a user message. Tool results are messages of their own and come first, because calls
    /// must be answered at once.
    fn user(&mut self, at: usize, blocks: &'a [Block]) {
        let mut moved = Vec::new();
        let mut results = 0;
        for (block, breakpoint) in self.with_breakpoints(at, blocks) {
            if let Block::ToolResult { id, name, content, is_error } = block {
                results += 1;
                if *is_error {
                    self.omitted(LossSubject::ToolResultIsError, LossReason::NoPlace);
                }
                let known = self.names.get(id.as_str()).copied();
                if let Some(name) = name
                    && known != Some(name.as_str())
                {
                    self.omitted(LossSubject::ToolResultName, LossReason::NoPlace);
                }
                // A result is text; its images follow as a user message.
                let (media, assistant_parts): (Vec<_>, Vec<_>) =
                    content.iter().partition(|block| matches!(block, Block::Media { .. }));
                let without = |block| (block, None);
                let mut parts = self.parts(assistant_parts.into_iter().map(without));
                match parts.last_mut() {
                    Some(last) => self.breakpoint(last, breakpoint),
                    None if breakpoint.is_some() => {
                        self.omitted(LossSubject::CacheControl, LossReason::Empty);
                    }
                    None => {}
                }
                let content = self.content(parts);
                if !media.is_empty() {
                    self.adapted(LossSubject::ToolResultMedia, LossReason::Moved);
                    moved.extend(self.parts(media.into_iter().map(without)));
                }
                let id = self.call_id(id);
                self.out.push(json!({"role": "tool", "tool_call_id": id, "content": content}));
            }
        }
        let is_other =
            |(block, _): &BlockAndBreakpoint<'_>| !matches!(block, Block::ToolResult { .. });
        let others = self.with_breakpoints(at, blocks).filter(is_other);
        moved.extend(self.parts(others));
        if !moved.is_empty() || results == 0 {
            let content = self.content(moved);
            self.out.push(json!({"role": "user", "content": content}));
        }
    }

    /// Plain text becomes a string, which every server accepts.
    fn content(&self, mut parts: Vec<Value>) -> Value {
        let text = |part: &Value| match part {
            Value::Object(members) if members.len() == 2 => {
                let kind = part.get("type").and_then(Value::as_str);
                let text = part.get("text").and_then(Value::as_str);
                text.filter(|_| kind == Some("text")).map(str::to_owned)
            }
            _ => None,
        };
        match parts.as_slice() {
            [] => return "".into(),
            // If only texts with breakpoints were parts, a text would change its form when its breakpoint moves on.
            _ if self.breakpoints.any() => {}
            [part] => {
                if let Some(text) = text(part) {
                    return text.into();
                }
            }
            _ if !self.variant.text_parts => {
                if let Some(texts) = parts.iter().map(text).collect::<Option<Vec<_>>>() {
                    return texts.join("\n").into();
                }
            }
            _ => {}
        }
        std::mem::take(&mut parts).into()
    }

    /// The parts of a user, tool or system message.
    fn parts(&mut self, blocks: impl Iterator<Item = BlockAndBreakpoint<'a>>) -> Vec<Value> {
        let mut parts = Vec::new();
        for (block, breakpoint) in blocks {
            let before = parts.len();
            match block {
                Block::Text { text, signature, .. } => {
                    self.text_signature(signature.as_deref());
                    parts.push(json!({"type": "text", "text": text}));
                }
                Block::Refusal { text } => {
                    parts.push(json!({"type": "text", "text": text}));
                    self.adapted(LossSubject::Refusal, LossReason::AsText);
                }
                Block::Media { kind, source, name, detail } => {
                    let mut part = self.media(*kind, source, name.as_deref());
                    let image = part.as_mut().and_then(|part| part.get_mut("image_url"));
                    if let (Some(image), Some(detail)) = (image, detail) {
                        image["detail"] = detail.as_str().into();
                    }
                    parts.extend(part);
                }
                Block::Opaque { dialect, value } if dialect == NAME => parts.push(value.clone()),
                Block::Opaque { value, .. } => Loss::add(self.losses, foreign_block(value)),
                Block::Thinking { .. } | Block::Redacted { .. } => self.thinking_omitted += 1,
                Block::ToolCall { .. } => self.omitted(LossSubject::ToolCall, LossReason::Role),
                Block::ToolResult { .. } => self.omitted(LossSubject::ToolResult, LossReason::Role),
            }
            if let Some(part) = parts.get_mut(before) {
                self.breakpoint(part, breakpoint);
            }
        }
        parts
    }

    fn text_signature(&mut self, signature: Option<&str>) {
        if signature.is_some() {
            self.omitted(LossSubject::TextSignature, LossReason::NoPlace);
        }
    }

    fn media(&mut self, kind: MediaKind, source: &Source, name: Option<&str>) -> Option<Value> {
        if name.is_some() && (kind != MediaKind::Document || matches!(source, Source::Text { .. }))
        {
            self.omitted(LossSubject::MediaName, LossReason::NoPlace);
        }
        let link = match source {
            Source::Base64 { media_type, data } => Some(format!("data:{media_type};base64,{data}")),
            Source::Url { url, .. } => Some(url.clone()),
            _ => None,
        };
        match (kind, source, link) {
            (MediaKind::Image, _, Some(url)) => {
                Some(json!({"type": "image_url", "image_url": {"url": url}}))
            }
            (MediaKind::Video, _, Some(url)) if self.variant.video => {
                Some(json!({"type": "video_url", "video_url": {"url": url}}))
            }
            (MediaKind::Audio, Source::Base64 { media_type, data }, _) => {
                let format = match media_type.strip_prefix("audio/").unwrap_or(media_type) {
                    "mpeg" => "mp3",
                    "x-wav" | "wave" => "wav",
                    other => other,
                };
                let audio = json!({"data": data, "format": format});
                Some(json!({"type": "input_audio", "input_audio": audio}))
            }
            (MediaKind::Document, Source::Text { text }, _) => {
                self.adapted(LossSubject::Document, LossReason::AsText);
                Some(json!({"type": "text", "text": text}))
            }
            (MediaKind::Document, Source::Base64 { .. }, Some(data)) => {
                Some(write_file("file_data", &data, name))
            }
            (MediaKind::Document, Source::File { dialect, id }, _) if dialect == NAME => {
                Some(write_file("file_id", id, name))
            }
            (_, Source::File { .. }, _) => {
                self.omitted(LossSubject::MediaFile, LossReason::ForeignFile);
                None
            }
            _ => {
                self.omitted(LossSubject::Media, LossReason::NoPlace);
                None
            }
        }
    }

    fn assistant(&mut self, at: usize, blocks: &'a [Block]) -> Value {
        let mut assistant_parts = AssistantParts::default();
        for (block, breakpoint) in self.with_breakpoints(at, blocks) {
            let before = assistant_parts.parts.len();
            match block {
                Block::Thinking { text, signature } => {
                    self.thinking(text, signature.as_deref(), &mut assistant_parts);
                }
                Block::Redacted { data } => self.redacted(data, &mut assistant_parts),
                Block::Text { text, signature, .. } => {
                    self.text_signature(signature.as_deref());
                    assistant_parts.parts.push(json!({"type": "text", "text": text}));
                }
                Block::Refusal { text } if !self.variant.official => {
                    self.adapted(LossSubject::Refusal, LossReason::AsText);
                    assistant_parts.parts.push(json!({"type": "text", "text": text}));
                }
                Block::Refusal { text } => match &mut assistant_parts.refusal {
                    Some(refusal) => {
                        refusal.push('\n');
                        refusal.push_str(text);
                    }
                    refusal => *refusal = Some(text.clone()),
                },
                Block::ToolCall { id, name, arguments, signature } => {
                    self.names.insert(id, name);
                    let call = self.call(id, name, arguments, signature.as_deref());
                    assistant_parts.calls.push(call);
                }
                Block::Opaque { dialect, value } if dialect == NAME => {
                    self.own(value, &mut assistant_parts);
                }
                Block::Opaque { value, .. } => Loss::add(self.losses, foreign_block(value)),
                Block::Media { .. } => self.omitted(LossSubject::Media, LossReason::Role),
                Block::ToolResult { .. } => self.omitted(LossSubject::ToolResult, LossReason::Role),
            }
            match (assistant_parts.parts.get_mut(before), breakpoint) {
                (Some(part), Some(_)) if !self.variant.official => {
                    self.breakpoint(part, breakpoint);
                }
                (_, Some(_)) => self.omitted(LossSubject::CacheControl, LossReason::NoPlace),
                (_, None) => {}
            }
        }
        self.assemble(assistant_parts)
    }

    /// Returns an opaque part of this dialect to its original member.
    fn own(&mut self, value: &Value, assistant_parts: &mut AssistantParts) {
        let kind = value.get("type").and_then(Value::as_str).unwrap_or_default();
        if kind == "audio" {
            assistant_parts.audio = value.get("audio").cloned();
        } else if kind.starts_with("reasoning.") {
            if self.variant.replay == Replay::Details {
                assistant_parts.details.push(value.clone());
            } else {
                self.thinking_omitted += 1;
            }
        } else if value.get("id").is_some() {
            assistant_parts.calls.push(value.clone());
        } else {
            assistant_parts.parts.push(value.clone());
        }
    }

    fn thinking(
        &mut self,
        text: &str,
        signature: Option<&str>,
        assistant_parts: &mut AssistantParts,
    ) {
        match self.variant.replay {
            Replay::Nothing => self.thinking_omitted += 1,
            Replay::ReasoningContent
            | Replay::ReasoningContentAlways
            | Replay::Reasoning
            | Replay::BothMembers => {
                if text.is_empty() {
                    self.thinking_omitted += 1;
                } else {
                    self.thinking_signature(signature);
                    assistant_parts.reasoning.push_str(text);
                }
            }
            Replay::Tags => {
                self.thinking_signature(signature);
                if !assistant_parts.reasoning.is_empty() {
                    assistant_parts.reasoning.push('\n');
                }
                assistant_parts.reasoning.push_str(text.trim_matches('\n'));
            }
            Replay::Details => {
                let meta = DetailMeta::unpack(signature.unwrap_or_default());
                // These formats reject unsigned reasoning.
                let signs = ["", "anthropic-claude-v1", "google-gemini-v1"];
                if !meta.summary && meta.signature.is_empty() && signs.contains(&&*meta.format) {
                    self.thinking_omitted += 1;
                    return;
                }
                let (kind, member) = if meta.summary {
                    ("reasoning.summary", "summary")
                } else {
                    ("reasoning.text", "text")
                };
                let mut detail = detail(kind, &meta, assistant_parts.details.len());
                detail.insert(member.to_owned(), text.into());
                if !meta.signature.is_empty() {
                    detail.insert("signature".to_owned(), meta.signature.into());
                }
                assistant_parts.details.push(detail.into());
                assistant_parts.reasoning.push_str(text);
            }
            Replay::Chunks => {
                let mut chunk = json!({
                    "type": "thinking",
                    "thinking": [{"type": "text", "text": text}],
                    "closed": true,
                });
                if let Some(signature) = signature {
                    chunk["signature"] = signature.into();
                }
                assistant_parts.parts.push(chunk);
            }
            Replay::Blocks => {
                let mut block = json!({"type": "thinking", "thinking": text});
                block["signature"] = signature.unwrap_or_default().into();
                assistant_parts.details.push(block);
                assistant_parts.reasoning.push_str(text);
            }
        }
    }

    fn thinking_signature(&mut self, signature: Option<&str>) {
        if signature.is_some() {
            self.omitted(LossSubject::ThinkingSignature, LossReason::NoPlace);
        }
    }

    fn redacted(&mut self, data: &str, assistant_parts: &mut AssistantParts) {
        match self.variant.replay {
            Replay::Details => {
                let meta = DetailMeta::unpack(data);
                let mut detail =
                    detail("reasoning.encrypted", &meta, assistant_parts.details.len());
                detail.insert("data".to_owned(), meta.signature.into());
                assistant_parts.details.push(detail.into());
            }
            Replay::Blocks => {
                assistant_parts.details.push(json!({"type": "redacted_thinking", "data": data}));
            }
            _ => self.thinking_omitted += 1,
        }
    }

    fn call(&mut self, id: &str, name: &str, arguments: &str, signature: Option<&str>) -> Value {
        let arguments = match or_empty_object(arguments) {
            arguments
                if self.variant.parses_arguments
                    && serde_json::from_str::<Map<String, Value>>(arguments).is_err() =>
            {
                self.adapted(LossSubject::ToolCallArguments, LossReason::NotJson);
                json!({"arguments": arguments}).to_string()
            }
            arguments => arguments.to_owned(),
        };
        let function = json!({"name": name, "arguments": arguments});
        let id = self.call_id(id);
        let mut call = json!({"id": id, "type": "function", "function": function});
        if let Some(signature) = signature {
            let member = json!({"thought_signature": signature});
            match self.variant.call_signature {
                CallSignature::Nowhere => {
                    self.omitted(LossSubject::ToolCallSignature, LossReason::NoPlace);
                }
                CallSignature::ExtraContent => call["extra_content"] = json!({"google": member}),
                CallSignature::ProviderFields => call["provider_specific_fields"] = member,
            }
        }
        call
    }

    fn call_id<'i>(&mut self, id: &'i str) -> Cow<'i, str> {
        if !self.variant.nine_letters {
            return Cow::Borrowed(id);
        }
        let spelled = ids::nine_letters(id);
        if spelled != id && !self.losses.contains(&ids::SPELLED) {
            self.losses.push(ids::SPELLED);
        }
        spelled
    }

    fn assemble(&self, assistant_parts: AssistantParts) -> Value {
        let mut message = Map::new();
        message.insert("role".to_owned(), "assistant".into());
        let mut content = self.content(assistant_parts.parts);
        let silent = content.as_str() == Some("");
        match self.variant.replay {
            Replay::Tags if !assistant_parts.reasoning.is_empty() => {
                let text = content.as_str().unwrap_or_default().trim_start_matches('\n');
                let wrapped = format!("<think>\n{}\n</think>\n\n", assistant_parts.reasoning);
                content = match content {
                    Value::Array(mut parts) => {
                        parts.insert(0, json!({"type": "text", "text": wrapped}));
                        parts.into()
                    }
                    _ => format!("{wrapped}{text}").into(),
                };
            }
            // There is no text next to the calls or the refusal.
            _ if silent
                && (!assistant_parts.calls.is_empty() || assistant_parts.refusal.is_some()) =>
            {
                content = Value::Null;
            }
            _ => {}
        }
        message.insert("content".to_owned(), content);
        let replay = self.variant.replay;
        let is_required = replay == Replay::ReasoningContentAlways && self.thinks;
        if is_required || !assistant_parts.reasoning.is_empty() {
            for name in replay.members() {
                message.insert((*name).to_owned(), assistant_parts.reasoning.as_str().into());
            }
        }
        if !assistant_parts.details.is_empty() {
            let name = match self.variant.replay {
                Replay::Blocks => "thinking_blocks",
                _ => "reasoning_details",
            };
            message.insert(name.to_owned(), assistant_parts.details.into());
        }
        if let Some(refusal) = assistant_parts.refusal {
            message.insert("refusal".to_owned(), refusal.into());
        }
        if let Some(audio) = assistant_parts.audio {
            message.insert("audio".to_owned(), audio);
        }
        if !assistant_parts.calls.is_empty() {
            message.insert("tool_calls".to_owned(), assistant_parts.calls.into());
        }
        message.into()
    }
}

/// The parts of an assistant message.
#[derive(Default)]
struct AssistantParts {
    reasoning: String,
    details: Vec<Value>,
    parts: Vec<Value>,
    refusal: Option<String>,
    audio: Option<Value>,
    calls: Vec<Value>,
}

fn detail(kind: &str, meta: &DetailMeta, number: usize) -> Map<String, Value> {
    let mut detail = Map::new();
    detail.insert("type".to_owned(), kind.into());
    detail.insert("index".to_owned(), number.into());
    for (name, value) in [("format", &meta.format), ("id", &meta.id)] {
        if !value.is_empty() {
            detail.insert(name.to_owned(), value.as_str().into());
        }
    }
    detail
}

fn write_file(member: &str, value: &str, name: Option<&str>) -> Value {
    let mut file = Map::new();
    file.insert(member.to_owned(), value.into());
    if let Some(name) = name {
        file.insert("filename".to_owned(), name.into());
    }
    json!({"type": "file", "file": file})
}
