//! Reads the messages of a front end. An assistant message is a whole run: `step-start` separates
//! the replies of the model, and tool results are in the parts of their calls.

use serde_json::Value;
use throughline_canonical::{
    Block, CachePlace, CacheTime, Fault, Loss, LossReason, LossSubject, Message, Request, Role,
    Source,
};

use super::super::metadata::{self, ProviderValue};
use super::tool_parts;
use crate::dialects::shared::fields::string;
use crate::dialects::shared::losses::omit;
use crate::dialects::shared::media::{media_kind, read_url};
use crate::json::Node;

/// The answer to regenerate.
#[derive(Debug)]
pub(super) enum Regenerate {
    Nothing,
    /// The last answer.
    Last,
    /// The message with this id, or the answer to it.
    Message(String),
}

/// Reads the messages. Returns the id of the message that the reply continues, if any.
pub(super) fn read(
    messages: &Node<'_>,
    anew: &Regenerate,
    request: &mut Request,
    losses: &mut Vec<Loss>,
) -> Result<Option<String>, Fault> {
    let mut reader = MessageReader { request, losses, breakpoints: Vec::new() };
    let mut last = None;
    let count = messages.elements()?.count();
    for (index, message) in messages.elements()?.enumerate() {
        message.object()?;
        let id = string(&message, "id")?.filter(|id| !id.is_empty());
        let role = message.need("role")?;
        let assistant = role.text()? == "assistant";
        let is_meant = match anew {
            Regenerate::Nothing => false,
            Regenerate::Last => index + 1 == count,
            Regenerate::Message(named) => id.as_ref() == Some(named),
        };
        // An answer is regenerated from the messages before it, a question from all messages up to
        // it.
        if is_meant && assistant {
            break;
        }
        reader.message(&role, &message)?;
        last = id.filter(|_| assistant);
        if is_meant {
            break;
        }
    }
    if request.messages.is_empty() {
        return Err(messages.refuse("is empty"));
    }
    Ok(last)
}

struct MessageReader<'a> {
    request: &'a mut Request,
    losses: &'a mut Vec<Loss>,
    /// The breakpoints for the prompt cache in the message that is being read, by the index of the block.
    breakpoints: Vec<(usize, CacheTime)>,
}

impl MessageReader<'_> {
    fn message(&mut self, role: &Node<'_>, message: &Node<'_>) -> Result<(), Fault> {
        self.breakpoints.clear();
        match role.text()? {
            "system" => {
                let content = self.content(message)?;
                if self.request.messages.is_empty() {
                    for (at, block) in content.into_iter().enumerate() {
                        if let Block::Text { text, .. } = block {
                            let position = CachePlace::System { index: self.request.system.len() };
                            self.add_breakpoints(|found| (found == at).then_some(position));
                            self.request.system.push(text);
                        }
                    }
                } else {
                    self.push_message(Role::System, content);
                }
            }
            "user" => {
                let content = self.content(message)?;
                self.push_message(Role::User, content);
            }
            "assistant" => self.assistant(message)?,
            _ => return Err(role.refuse("expected `system`, `user` or `assistant`")),
        }
        Ok(())
    }

    /// Adds a message. Front ends keep an empty message for a reply that failed at once; it is
    /// skipped.
    fn push_message(&mut self, role: Role, content: Vec<Block>) {
        let message = self.request.messages.len();
        self.add_breakpoints(|block| Some(CachePlace::Block { message, block }));
        if !content.is_empty() {
            self.request.messages.push(Message::new(role, content));
        }
    }

    /// Adds the breakpoints of the message that have a place.
    fn add_breakpoints(&mut self, position: impl Fn(usize) -> Option<CachePlace>) {
        for (at, time) in &self.breakpoints {
            if let Some(position) = position(*at) {
                self.request.cache_breakpoints.add(position, *time);
            }
        }
    }

    /// Reads the content of a user or system message.
    fn content(&mut self, message: &Node<'_>) -> Result<Vec<Block>, Fault> {
        // Requests written by hand have `content`.
        if let (None, Some(content)) = (message.get("parts"), message.get("content")) {
            return Ok(vec![Block::text(content.text()?)]);
        }
        let parts = message.need("parts")?;
        let mut blocks = Vec::new();
        for part in parts.elements()? {
            part.object()?;
            let kind = part.need("type")?;
            let at = blocks.len();
            match kind.text()? {
                "text" => blocks.push(Block::text(part.need("text")?.text()?)),
                "file" => blocks.push(file(&part)?),
                kind => self.pass_over(kind),
            }
            if blocks.len() > at {
                self.breakpoints.extend(metadata::cache_breakpoint(&part).map(|time| (at, time)));
            }
        }
        Ok(blocks)
    }

    /// Reads an assistant message, reply by reply, each with the results of its calls.
    fn assistant(&mut self, message: &Node<'_>) -> Result<(), Fault> {
        if let (None, Some(content)) = (message.get("parts"), message.get("content")) {
            self.push_message(Role::Assistant, vec![Block::text(content.text()?)]);
            return Ok(());
        }
        let parts = message.need("parts")?;
        let (mut blocks_so_far, mut results) = (Vec::new(), Vec::new());
        for part in parts.elements()? {
            part.object()?;
            let kind = part.need("type")?;
            match kind.text()? {
                "step-start" => {
                    self.push_message(Role::Assistant, std::mem::take(&mut blocks_so_far));
                    self.push_message(Role::User, std::mem::take(&mut results));
                }
                "text" => {
                    let text = part.need("text")?.text()?.to_owned();
                    let signature = metadata::signature(&part, "providerMetadata");
                    if !text.is_empty() || signature.is_some() {
                        blocks_so_far.push(Block::Text { text, signature, citations: Vec::new() });
                    }
                }
                "reasoning" => blocks_so_far.extend(reasoning(&part)?),
                "file" => blocks_so_far.push(file(&part)?),
                kind => match tool_parts::name(kind, &part)? {
                    Some(name) => {
                        tool_parts::read(
                            &part,
                            name,
                            &mut blocks_so_far,
                            &mut results,
                            self.losses,
                        )?;
                    }
                    None => self.pass_over(kind),
                },
            }
        }
        self.push_message(Role::Assistant, blocks_so_far);
        self.push_message(Role::User, results);
        Ok(())
    }

    /// Skips parts that belong to the front end. Sources and data were never part of the model's
    /// output.
    fn pass_over(&mut self, kind: &str) {
        let own = ["data-", "source-"];
        if kind == "step-start" || own.iter().any(|start| kind.starts_with(start)) {
            return;
        }
        let part = match kind {
            "reasoning-file" => LossSubject::ReasoningFile,
            "custom" => LossSubject::Custom,
            _ => LossSubject::UnknownPart,
        };
        omit(self.losses, part, LossReason::NoWord);
    }
}

fn reasoning(part: &Node<'_>) -> Result<Option<Block>, Fault> {
    let text = part.need("text")?.text()?.to_owned();
    let signature = match metadata::read(part, "providerMetadata") {
        Some(ProviderValue::Redacted(data)) => {
            let data = data.to_owned();
            return Ok(Some(Block::Redacted { data }));
        }
        Some(ProviderValue::Signature(value)) => Some(value.to_owned()),
        None if text.is_empty() => return Ok(None),
        None => None,
    };
    Ok(Some(Block::Thinking { text, signature }))
}

fn file(part: &Node<'_>) -> Result<Block, Fault> {
    let media_type = part.need("mediaType")?.text()?.to_owned();
    let kind = media_kind(&media_type);
    let url = part.need("url")?;
    let mut source = read_url(url.text()?)
        .ok_or_else(|| url.refuse("expected `data:<type>;base64,<data>` or an address"))?;
    match &mut source {
        // The part is more precise than its address.
        Source::Base64 { media_type: of, .. } => *of = media_type,
        Source::Url { media_type: of, .. } => *of = Some(media_type),
        Source::Text { .. } | Source::File { .. } => {}
    }
    Ok(Block::Media { kind, source, name: string(part, "filename")?, detail: None })
}

/// The text form of a value.
pub(super) fn as_text(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        value => value.to_string(),
    }
}
