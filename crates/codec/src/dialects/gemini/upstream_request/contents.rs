//! Writes the conversation of a request as the provider's contents.
//!
//! It is written as text, not as a tree, so that the arguments of calls keep the model's spelling.

use std::collections::{HashMap, HashSet};

use throughline_canonical::{Block, Loss, LossReason, LossSubject, Message, Role, Source};

use super::super::native::has_call_id;
use super::super::{NAME, Variant, adapt, arguments_into, omit, quote_into};
use crate::dialects::shared::losses::foreign_block;

/// The contents as a JSON list, and the system texts before the conversation.
pub(crate) fn write(
    messages: &[Message],
    variant: Variant,
    losses: &mut Vec<Loss>,
) -> (String, Vec<String>) {
    let mut writer = ContentsWriter {
        variant,
        losses,
        names: HashMap::new(),
        unnamed: HashSet::new(),
        contents: Vec::new(),
        waiting: Vec::new(),
    };
    let mut system = Vec::new();
    for message in messages {
        match message.role {
            Role::System => writer.system(message, &mut system),
            Role::User => writer.message("user", message),
            Role::Assistant => writer.message("model", message),
        }
    }
    writer.fold_waiting();
    let mut json = String::from("[");
    for (index, content) in writer.contents.iter().enumerate() {
        if index > 0 {
            json.push(',');
        }
        json.push_str("{\"role\":");
        quote_into(content.role, &mut json);
        json.push_str(",\"parts\":[");
        json.push_str(&content.parts.join(","));
        json.push_str("]}");
    }
    json.push(']');
    (json, system)
}

struct Content {
    role: &'static str,
    /// Each part as JSON.
    parts: Vec<String>,
}

struct ContentsWriter<'a, 'l> {
    variant: Variant,
    losses: &'l mut Vec<Loss>,
    /// The tool of each call.
    names: HashMap<&'a str, &'a str>,
    /// The calls that go back without an id.
    unnamed: HashSet<&'a str>,
    contents: Vec<Content>,
    /// System texts that wait for the next user message.
    waiting: Vec<String>,
}

impl<'a> ContentsWriter<'a, '_> {
    /// Writes a system message in the conversation as part of a user message: there is no such
    /// role.
    fn system(&mut self, message: &'a Message, system: &mut Vec<String>) {
        let first = self.contents.is_empty() && self.waiting.is_empty();
        for block in &message.content {
            self.unsigned(block);
            match block {
                Block::Text { text, .. } if first => system.push(text.clone()),
                Block::Text { text, .. } => {
                    let part = text_part(text, None, false);
                    match self.contents.last_mut() {
                        Some(content) if content.role == "user" => content.parts.push(part),
                        // Nothing may come between a call and its result.
                        _ => self.waiting.push(part),
                    }
                }
                _ => omit(self.losses, LossSubject::SystemMessage, LossReason::NoPlace),
            }
        }
        let reason = if first { LossReason::SystemInstruction } else { LossReason::UserPart };
        adapt(self.losses, LossSubject::SystemMessage, reason);
    }

    fn fold_waiting(&mut self) {
        if !self.waiting.is_empty() {
            self.contents.push(Content { role: "user", parts: std::mem::take(&mut self.waiting) });
        }
    }

    fn message(&mut self, role: &'static str, message: &'a Message) {
        let mut parts = Vec::new();
        if role == "model" {
            self.fold_waiting();
        }
        let answers = |block: &Block| matches!(block, Block::ToolResult { .. });
        let behind = message.content.iter().any(answers);
        if !behind {
            parts.append(&mut self.waiting);
        }
        let native = message.native_parts(NAME);
        for (index, block) in message.content.iter().enumerate() {
            match native.part(index) {
                Some(part) => parts.push(self.native(block, &part.json)),
                None => parts.extend(self.part(role, block)),
            }
        }
        parts.append(&mut self.waiting);
        if parts.is_empty() {
            omit(self.losses, LossSubject::Message, LossReason::Empty);
        } else {
            self.contents.push(Content { role, parts });
        }
    }

    /// A part as its maker wrote it.
    fn native(&mut self, block: &'a Block, part: &str) -> String {
        if let Block::ToolCall { id, name, .. } = block {
            self.names.insert(id, name);
            if !has_call_id(part) {
                self.unnamed.insert(id);
            }
        }
        part.to_owned()
    }

    fn part(&mut self, role: &str, block: &'a Block) -> Option<String> {
        match block {
            // The provider may reject an empty text of the model.
            Block::Text { text, signature: None, .. } if text.is_empty() && role == "model" => None,
            Block::Text { text, signature, .. } => {
                Some(text_part(text, signature.as_deref(), false))
            }
            Block::Thinking { text, signature: None } if text.is_empty() => None,
            Block::Thinking { text, signature } => {
                Some(text_part(text, signature.as_deref(), true))
            }
            Block::Redacted { .. } => {
                omit(self.losses, LossSubject::RedactedThinking, LossReason::NoPlace);
                None
            }
            Block::Refusal { text } => {
                adapt(self.losses, LossSubject::Refusal, LossReason::AsText);
                Some(text_part(text, None, false))
            }
            Block::ToolCall { id, name, arguments, signature } => {
                self.names.insert(id, name);
                let mut part = String::new();
                if !call_into(id, name, arguments, signature.as_deref(), &mut part) {
                    adapt(self.losses, LossSubject::ToolCallArguments, LossReason::NotAnObject);
                }
                Some(part)
            }
            Block::ToolResult { id, name, content, is_error } => {
                Some(self.result(id, name.as_deref(), content, *is_error))
            }
            Block::Media { source, name, detail, .. } => {
                self.detail(detail.as_deref());
                self.media(source, name.as_deref())
            }
            Block::Opaque { dialect, value } if dialect == NAME && value.is_object() => {
                Some(value.to_string())
            }
            Block::Opaque { value, .. } => {
                Loss::add(self.losses, foreign_block(value));
                None
            }
        }
    }

    fn result(
        &mut self,
        id: &'a str,
        name: Option<&str>,
        content: &'a [Block],
        is_error: bool,
    ) -> String {
        let known = self.names.get(id).copied();
        if name.is_none() && known.is_none() {
            adapt(self.losses, LossSubject::ToolResultName, LossReason::NoCall);
        }
        let name = name.or(known).unwrap_or(id);
        let (mut output, mut texts, mut parts) = (String::new(), 0, Vec::new());
        for block in content {
            self.unsigned(block);
            let text = match block {
                Block::Text { text, .. } | Block::Refusal { text } => text,
                Block::Media { source: Source::Text { text }, .. } => {
                    adapt(self.losses, LossSubject::Document, LossReason::AsText);
                    text
                }
                Block::Media { source, name, detail, .. } => {
                    self.detail(detail.as_deref());
                    parts.extend(self.media(source, name.as_deref()));
                    continue;
                }
                _ => {
                    omit(self.losses, LossSubject::ToolResultPart, LossReason::NoPlace);
                    continue;
                }
            };
            if texts > 0 {
                output.push('\n');
                adapt(self.losses, LossSubject::ToolResult, LossReason::TextsJoined);
            } else if !parts.is_empty() {
                adapt(self.losses, LossSubject::ToolResult, LossReason::TextsFirst);
            }
            output.push_str(text);
            texts += 1;
        }
        let mut json = String::from("{\"functionResponse\":{");
        // A call without an id is answered by name and position.
        if !self.unnamed.contains(id) {
            json.push_str("\"id\":");
            quote_into(id, &mut json);
            json.push(',');
        }
        json.push_str("\"name\":");
        quote_into(name, &mut json);
        json.push_str(",\"response\":{");
        if texts > 0 || is_error {
            json.push_str(if is_error { "\"error\":" } else { "\"output\":" });
            quote_into(&output, &mut json);
        }
        json.push('}');
        if !parts.is_empty() {
            json.push_str(",\"parts\":[");
            json.push_str(&parts.join(","));
            json.push(']');
        }
        json.push_str("}}");
        json
    }

    /// Reports a signature that cannot be sent: only separate parts have one.
    fn unsigned(&mut self, block: &Block) {
        if let Block::Text { signature: Some(_), .. } = block {
            omit(self.losses, LossSubject::TextSignature, LossReason::NoPlace);
        }
    }

    fn detail(&mut self, detail: Option<&str>) {
        if detail.is_some() {
            omit(self.losses, LossSubject::MediaSettings, LossReason::NoPlace);
        }
    }

    fn media(&mut self, source: &Source, name: Option<&str>) -> Option<String> {
        let (mut json, media_type) = match source {
            Source::Base64 { media_type, data } => {
                let mut json = String::from("{\"inlineData\":{\"data\":");
                quote_into(data, &mut json);
                (json, Some(media_type.as_str()))
            }
            Source::Url { url, media_type } => (file_part(url), media_type.as_deref()),
            Source::File { dialect, id } if dialect == NAME => (file_part(id), None),
            Source::File { .. } => {
                omit(self.losses, LossSubject::MediaFile, LossReason::ForeignFile);
                return None;
            }
            Source::Text { text } => {
                adapt(self.losses, LossSubject::Document, LossReason::AsText);
                return Some(text_part(text, None, false));
            }
        };
        if let Some(media_type) = media_type {
            json.push_str(",\"mimeType\":");
            quote_into(media_type, &mut json);
        }
        match name {
            // The Developer API rejects a name.
            Some(name) if self.variant.vertex => {
                json.push_str(",\"displayName\":");
                quote_into(name, &mut json);
            }
            Some(_) => omit(self.losses, LossSubject::MediaName, LossReason::NoPlace),
            None => {}
        }
        json.push_str("}}");
        Some(json)
    }
}

fn file_part(url: &str) -> String {
    let mut json = String::from("{\"fileData\":{\"fileUri\":");
    quote_into(url, &mut json);
    json
}

/// Writes a text part.
pub(crate) fn text_part(text: &str, signature: Option<&str>, thought: bool) -> String {
    let mut json = String::from("{\"text\":");
    quote_into(text, &mut json);
    if thought {
        json.push_str(",\"thought\":true");
    }
    signature_into(signature, &mut json);
    json.push('}');
    json
}

/// Writes a call as a part. Returns whether its arguments were an object.
pub(crate) fn call_into(
    id: &str,
    name: &str,
    arguments: &str,
    signature: Option<&str>,
    json: &mut String,
) -> bool {
    json.push_str("{\"functionCall\":{\"id\":");
    quote_into(id, json);
    json.push_str(",\"name\":");
    quote_into(name, json);
    json.push_str(",\"args\":");
    let whole = arguments_into(arguments, json);
    json.push('}');
    signature_into(signature, json);
    json.push('}');
    whole
}

fn signature_into(signature: Option<&str>, json: &mut String) {
    if let Some(signature) = signature.filter(|signature| !signature.is_empty()) {
        json.push_str(",\"thoughtSignature\":");
        quote_into(signature, json);
    }
}
