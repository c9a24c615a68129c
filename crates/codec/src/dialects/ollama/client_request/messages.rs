//! Reads the messages of a client's request.

use serde_json::Value;
use throughline_canonical::{
    Block, Fault, Loss, LossReason, LossSubject, MediaKind, Message, Request, Role, Source,
};

use super::string;
use crate::dialects::shared::hidden_reasoning::NOTICE;
use crate::json::Node;

/// Reads the messages and system texts. Returns whether there are none.
pub(super) fn read(
    root: &Node<'_>,
    request: &mut Request,
    losses: &mut Vec<Loss>,
) -> Result<bool, Fault> {
    let Some(messages) = root.get("messages") else {
        return Ok(true);
    };
    let mut reader =
        MessageReader { request, losses, calls: 0, open: Vec::new(), in_results: false };
    let mut silent = true;
    for message in messages.elements()? {
        reader.message(&message)?;
        silent = false;
    }
    Ok(silent)
}

/// Reads images next to a text.
pub(super) fn images(node: &Node<'_>, content: &mut Vec<Block>) -> Result<(), Fault> {
    let Some(images) = node.get("images") else {
        return Ok(());
    };
    for image in images.elements()? {
        let (media_type, data) =
            picture(image.text()?).ok_or_else(|| image.refuse("expected a picture as base64"))?;
        content.push(Block::Media {
            kind: MediaKind::Image,
            source: Source::Base64 { media_type: media_type.to_owned(), data: data.to_owned() },
            name: None,
            detail: None,
        });
    }
    Ok(())
}

/// The first base64 characters of image formats.
const PICTURES: [(&str, &str); 4] = [
    ("iVBORw0KGgo", "image/png"),
    ("/9j/", "image/jpeg"),
    ("R0lGOD", "image/gif"),
    ("UklGR", "image/webp"),
];

/// The media type of an image, which this dialect does not send, and its data.
fn picture(text: &str) -> Option<(&str, &str)> {
    if let Some(rest) = text.strip_prefix("data:") {
        return rest.split_once(";base64,");
    }
    let of_base64 = |byte: u8| byte.is_ascii_alphanumeric() || b"+/=-_".contains(&byte);
    if text.is_empty() || !text.bytes().all(of_base64) {
        return None;
    }
    let known = PICTURES.iter().find(|(start, _)| text.starts_with(start));
    Some((known.map_or("image/png", |(_, kind)| kind), text))
}

struct MessageReader<'a> {
    request: &'a mut Request,
    losses: &'a mut Vec<Loss>,
    /// Number of calls so far.
    calls: usize,
    /// Calls without a result: id and tool.
    open: Vec<(String, String)>,
    /// Whether the last message holds tool results and can take more.
    in_results: bool,
}

impl MessageReader<'_> {
    fn message(&mut self, message: &Node<'_>) -> Result<(), Fault> {
        message.object()?;
        let role = message.need("role")?;
        let joins = std::mem::take(&mut self.in_results);
        // Servers of this dialect accept roles in any letter case.
        match role.text()?.to_lowercase().as_str() {
            "system" => {
                self.omit(message, &["role", "content"]);
                let text = string(message, "content")?.unwrap_or_default();
                if self.request.messages.is_empty() {
                    self.request.system.push(text);
                } else {
                    self.push_message(Role::System, vec![Block::text(text)]);
                }
            }
            "user" => {
                self.omit(message, &["role", "content", "images"]);
                let content = self.content(message)?;
                self.push_message(Role::User, content);
            }
            "assistant" => {
                let content = self.assistant(message)?;
                self.push_message(Role::Assistant, content);
            }
            "tool" => {
                self.omit(
                    message,
                    &["role", "content", "images", "tool_name", "tool_call_id", "name"],
                );
                self.result(message, joins)?;
            }
            _ => return Err(role.refuse("expected `system`, `user`, `assistant` or `tool`")),
        }
        Ok(())
    }

    fn push_message(&mut self, role: Role, content: Vec<Block>) {
        self.request.messages.push(Message::new(role, content));
    }

    /// Reports unknown members.
    fn omit(&mut self, node: &Node<'_>, known: &[&str]) {
        let empty = |value: &Value| match value {
            Value::Null => true,
            Value::String(text) => text.is_empty(),
            Value::Array(list) => list.is_empty(),
            Value::Object(members) => members.is_empty(),
            _ => false,
        };
        let loss = Loss::of_part(LossSubject::Member, LossReason::NoWord);
        if node.others(known).values().any(|value| !empty(value)) && !self.losses.contains(&loss) {
            self.losses.push(loss);
        }
    }

    /// Reads the content of a user or tool message: a text and images.
    fn content(&mut self, message: &Node<'_>) -> Result<Vec<Block>, Fault> {
        let mut content = Vec::new();
        let text = string(message, "content")?.unwrap_or_default();
        images(message, &mut content)?;
        if !text.is_empty() || content.is_empty() {
            content.insert(0, Block::text(text));
        }
        Ok(content)
    }

    /// Reads an assistant message: reasoning, then text, then calls. The dialect has no other
    /// order.
    fn assistant(&mut self, message: &Node<'_>) -> Result<Vec<Block>, Fault> {
        let known = ["role", "content", "thinking", "images", "tool_calls"];
        self.omit(message, &known);
        let mut content = Vec::new();
        // Removes the notice, which is display only.
        let thinking = string(message, "thinking")?.unwrap_or_default();
        let thinking = thinking.replace(NOTICE, "");
        if !thinking.is_empty() {
            content.push(Block::Thinking { text: thinking, signature: None });
        }
        let text = string(message, "content")?.unwrap_or_default();
        if !text.is_empty() {
            content.push(Block::text(text));
        }
        images(message, &mut content)?;
        self.open.clear();
        if let Some(calls) = message.get("tool_calls") {
            for call in calls.elements()? {
                content.push(self.call(&call)?);
            }
        }
        Ok(content)
    }

    fn call(&mut self, call: &Node<'_>) -> Result<Block, Fault> {
        call.object()?;
        self.calls += 1;
        let function = call.need("function")?;
        function.object()?;
        let name = function.need("name")?.text()?.to_owned();
        let arguments = match function.get("arguments") {
            None => String::new(),
            // Clients of other dialects may send arguments as text.
            Some(arguments) if arguments.value().is_string() => arguments.text()?.to_owned(),
            Some(arguments) => {
                arguments.object()?;
                arguments.value().to_string()
            }
        };
        // Libraries of this dialect drop call ids. Then the position identifies a call.
        let id = string(call, "id")?.filter(|id| !id.is_empty());
        let id = id.unwrap_or_else(|| format!("call_{}", self.calls));
        self.open.push((id.clone(), name.clone()));
        Ok(Block::ToolCall { id, name, arguments, signature: None })
    }

    /// Reads a tool result. Consecutive results are one message.
    fn result(&mut self, message: &Node<'_>, joins: bool) -> Result<(), Fault> {
        let name = match string(message, "tool_name")? {
            Some(name) => Some(name),
            None => string(message, "name")?,
        };
        let name = name.filter(|name| !name.is_empty());
        let id = string(message, "tool_call_id")?.filter(|id| !id.is_empty());
        let block = Block::ToolResult {
            id: self.answered(id, name.as_deref()),
            name,
            content: self.content(message)?,
            is_error: false,
        };
        self.in_results = true;
        match self.request.messages.last_mut() {
            Some(last) if joins => last.content.push(block),
            _ => self.push_message(Role::User, vec![block]),
        }
        Ok(())
    }

    /// Finds the call of a result: by id, else the first open call of the tool, else the first open
    /// call.
    fn answered(&mut self, id: Option<String>, name: Option<&str>) -> String {
        let by_id = self.open.iter().position(|(open, _)| Some(open) == id.as_ref());
        let by_name = || {
            let mut open = self.open.iter();
            open.position(|(_, tool)| Some(tool.as_str()) == name)
        };
        let first = || (!self.open.is_empty()).then_some(0);
        match by_id.or_else(by_name).or_else(first) {
            Some(at) => self.open.remove(at).0,
            None => id.unwrap_or_else(|| format!("call_{}", self.calls)),
        }
    }
}
