//! Reads the conversation of a run.
//!
//! One turn of a model is several messages here: reasoning, then an assistant message with text and
//! calls, possibly repeated. They arrive in the order they were written and become one message
//! again.

use std::mem;

use serde_json::Value;
use throughline_canonical::{Block, Fault, Loss, LossReason, LossSubject, Message, Role};

use super::super::{METADATA, REDACTED, REFUSAL};
use super::content;
use crate::dialects::shared::fields::string;
use crate::dialects::shared::hidden_reasoning::NOTICE;
use crate::json::Node;

/// The conversation read so far.
#[derive(Debug, Default)]
pub(super) struct Conversation {
    /// System texts.
    pub(super) system: Vec<String>,
    pub(super) messages: Vec<Message>,
    pub(super) losses: Vec<Loss>,
    /// Whether the last message holds tool results and can take more.
    in_results: bool,
}

impl Conversation {
    /// Reads the next message.
    pub(super) fn read(&mut self, message: &Node<'_>) -> Result<(), Fault> {
        message.object()?;
        let role = message.need("role")?;
        let was_in_results = mem::take(&mut self.in_results);
        match role.text()? {
            "system" | "developer" => {
                self.omit(message, &["content"]);
                let text = content::read_text(&message.need("content")?)?;
                if self.messages.is_empty() {
                    self.system.push(text);
                } else {
                    self.push_message(Role::System, vec![Block::text(text)]);
                }
            }
            "user" => {
                self.omit(message, &["content"]);
                let content = content::read(&message.need("content")?)?;
                self.push_message(Role::User, content);
            }
            "assistant" => {
                self.omit(message, &["content", "toolCalls", "encryptedValue"]);
                let content = read_assistant(message)?;
                self.write(content);
            }
            "reasoning" => {
                self.omit(message, &["content", "encryptedValue"]);
                let content = read_reasoning(message)?;
                self.write(content.into_iter().collect());
            }
            "tool" => {
                self.omit(message, &["content", "toolCallId", "error"]);
                let result = read_result(message)?;
                self.answer(result, was_in_results);
            }
            // Activity messages are display only.
            "activity" => self.in_results = was_in_results,
            _ => {
                return Err(role.refuse(
                    "expected `developer`, `system`, `user`, `assistant`, `tool`, `reasoning` or `activity`",
                ));
            }
        }
        Ok(())
    }

    fn push_message(&mut self, role: Role, content: Vec<Block>) {
        self.messages.push(Message::new(role, content));
    }

    /// Adds content to the turn of the model.
    fn write(&mut self, content: Vec<Block>) {
        match self.messages.last_mut() {
            Some(message) if message.role == Role::Assistant => message.content.extend(content),
            _ if content.is_empty() => {}
            _ => self.push_message(Role::Assistant, content),
        }
    }

    /// Adds a tool result. Consecutive results are one message.
    fn answer(&mut self, result: Block, joins: bool) {
        self.in_results = true;
        match self.messages.last_mut() {
            Some(message) if joins => message.content.push(result),
            _ => self.push_message(Role::User, vec![result]),
        }
    }

    /// Reports unknown members. Private notes of front ends are not reported.
    fn omit(&mut self, message: &Node<'_>, known: &[&str]) {
        const NOTES: [&str; 5] = ["id", "role", "metadata", "subagentRunId", "createdAt"];
        for (name, value) in message.others(known) {
            if value.is_null() || NOTES.contains(&name.as_str()) {
                continue;
            }
            let part = match name.as_str() {
                "name" => LossSubject::MessageName,
                "encryptedValue" => LossSubject::MessageEncryptedValue,
                _ => LossSubject::Member,
            };
            let loss = Loss::of_part(part, LossReason::NoWord);
            if !self.losses.contains(&loss) {
                self.losses.push(loss);
            }
        }
    }
}

fn read_assistant(message: &Node<'_>) -> Result<Vec<Block>, Fault> {
    let text = match message.get("content") {
        Some(content) => content::read_text(&content)?,
        None => String::new(),
    };
    let signature = string(message, "encryptedValue")?;
    let mut blocks = Vec::new();
    let declined = message.value().pointer(&format!("/metadata/{METADATA}/{REFUSAL}"));
    if declined == Some(&Value::Bool(true)) {
        if !text.is_empty() {
            blocks.push(Block::Refusal { text });
        }
    } else if !text.is_empty() || signature.is_some() {
        blocks.push(Block::Text { text, signature, citations: Vec::new() });
    }
    if let Some(calls) = message.get("toolCalls") {
        for call in calls.elements()? {
            call.object()?;
            let function = call.need("function")?;
            function.object()?;
            let (id, name) = (call.need("id")?, function.need("name")?);
            blocks.push(Block::ToolCall {
                id: filled(&id)?,
                name: filled(&name)?,
                arguments: string(&function, "arguments")?.unwrap_or_default(),
                signature: string(&call, "encryptedValue")?,
            });
        }
    }
    Ok(blocks)
}

fn read_reasoning(message: &Node<'_>) -> Result<Option<Block>, Fault> {
    let signature = string(message, "encryptedValue")?;
    let mut text = match message.get("content") {
        Some(content) => content::read_text(&content)?,
        None => String::new(),
    };
    if signature.is_none() {
        // The notice for older clients is not part of the reasoning.
        text = text.replace(NOTICE, "");
    }
    let id = string(message, "id")?.unwrap_or_default();
    Ok(match signature {
        Some(data) if text.is_empty() && id.starts_with(REDACTED) => Some(Block::Redacted { data }),
        None if text.is_empty() => None,
        signature => Some(Block::Thinking { text, signature }),
    })
}

/// Reads a tool result. A failed tool reports the error next to its content or instead of it.
fn read_result(message: &Node<'_>) -> Result<Block, Fault> {
    let id = message.need("toolCallId")?;
    let error = string(message, "error")?;
    let mut content = match message.get("content") {
        None if error.is_some() => Vec::new(),
        _ => content::read(&message.need("content")?)?,
    };
    if let Some(error) = &error {
        let repeats = |block: &Block| matches!(block, Block::Text { text, .. } if text == error);
        content.retain(|block| !matches!(block, Block::Text { text, .. } if text.is_empty()));
        if !content.iter().any(repeats) && !error.is_empty() {
            content.push(Block::text(&**error));
        }
    }
    Ok(Block::ToolResult { id: filled(&id)?, name: None, content, is_error: error.is_some() })
}

/// Reads a non-empty string.
pub(super) fn filled(node: &Node<'_>) -> Result<String, Fault> {
    match node.text()? {
        "" => Err(node.refuse("is empty")),
        text => Ok(text.to_owned()),
    }
}
