//! Reads the conversation of a client's request: items become messages.
//!
//! One turn of the model is several items here and one canonical message. Consecutive tool results
//! are one message too.

use serde_json::Value;
use throughline_canonical::{
    Block, CacheBreakpoints, CachePlace, CacheTime, Fault, LossReason, LossSubject, Lossy,
    MediaKind, Message, Role, Source,
};

use super::super::{AUTO_DETAIL, NAME, PHASE};
use crate::dialects::shared::cache_control::PROMPT_CACHE_BREAKPOINT;
use crate::dialects::shared::losses::Losses;
use crate::json::Node;

/// The conversation read so far.
pub(crate) struct Conversation<'l> {
    system: Vec<String>,
    messages: Vec<Message>,
    breakpoints: CacheBreakpoints,
    losses: &'l mut Losses,
}

impl<'l> Conversation<'l> {
    pub(crate) fn new(losses: &'l mut Losses) -> Self {
        Self {
            system: Vec::new(),
            messages: Vec::new(),
            breakpoints: CacheBreakpoints::default(),
            losses,
        }
    }

    /// Adds the instructions.
    pub(crate) fn instruct(&mut self, text: &str) {
        if !text.is_empty() {
            self.system.push(text.to_owned());
        }
    }

    /// Reads the conversation: one user text or a list of items.
    pub(crate) fn read(&mut self, input: &Node<'_>) -> Result<(), Fault> {
        if let Some(text) = input.value().as_str() {
            self.message(Role::User, vec![Block::text(text)]);
            return Ok(());
        }
        if !input.value().is_array() {
            return Err(input.wrong("a string or a list"));
        }
        for item in input.elements()? {
            self.item(&item)?;
        }
        Ok(())
    }

    pub(crate) fn finish(self) -> (Vec<String>, Vec<Message>, CacheBreakpoints) {
        (self.system, self.messages, self.breakpoints)
    }

    fn breakpoint(&mut self, position: CachePlace) {
        self.breakpoints.add(position, CacheTime::Minutes);
    }

    fn item(&mut self, item: &Node<'_>) -> Result<(), Fault> {
        item.object()?;
        let kind = match item.get("type") {
            Some(kind) => kind.text()?,
            // The short form of a message.
            None if item.get("role").is_some() => "message",
            None => item.need("type")?.text()?,
        };
        match kind {
            "message" => self.read_message(item),
            "reasoning" => self.read_reasoning(item),
            "function_call" => self.read_call(item),
            "function_call_output" => self.read_output(item),
            "item_reference" => {
                Err(item.refuse("no item of this id is kept; send the item itself"))
            }
            kind => {
                let block = Block::Opaque { dialect: NAME.to_owned(), value: item.value().clone() };
                match role_of(kind) {
                    Role::Assistant => self.push_block(block),
                    Role::User => self.push_result(block),
                    Role::System => self.message(Role::System, vec![block]),
                }
                Ok(())
            }
        }
    }

    /// Adds a message.
    fn message(&mut self, role: Role, content: Vec<Block>) {
        if content.is_empty() {
            self.losses.omit(LossSubject::Message, LossReason::Empty);
        } else {
            self.messages.push(Message::new(role, content));
        }
    }

    /// Adds a block to the turn of the model.
    fn push_block(&mut self, block: Block) {
        match self.messages.last_mut() {
            Some(message) if message.role == Role::Assistant => message.content.push(block),
            _ => self.message(Role::Assistant, vec![block]),
        }
    }

    /// Adds a tool result.
    fn push_result(&mut self, block: Block) {
        let result =
            |block: &Block| matches!(block, Block::ToolResult { .. } | Block::Opaque { .. });
        match self.messages.last_mut() {
            Some(message)
                if message.role == Role::User && message.content.last().is_some_and(result) =>
            {
                message.content.push(block);
            }
            _ => self.message(Role::User, vec![block]),
        }
    }

    fn read_message(&mut self, item: &Node<'_>) -> Result<(), Fault> {
        let role = item.need("role")?;
        let role = match role.text()? {
            "user" => Role::User,
            "assistant" => Role::Assistant,
            "system" | "developer" => Role::System,
            word => return Err(role.refuse(&format!("`{word}` is no role"))),
        };
        let phase = match item.get("phase") {
            Some(phase) => Some(format!("{PHASE}{}", phase.text()?)),
            None => None,
        };
        let (mut blocks, mut breakpoints) = (Vec::new(), Vec::new());
        // An assistant message may be empty.
        if role != Role::Assistant || !item.is_null("content") {
            let content = item.need("content")?;
            if let Some(text) = content.value().as_str() {
                blocks.push(Block::text(text));
            } else if content.value().is_array() {
                for part in content.elements()? {
                    breakpoints.extend(part.get(PROMPT_CACHE_BREAKPOINT).map(|_| blocks.len()));
                    blocks.push(self.read_part(&part, role)?);
                }
            } else {
                return Err(content.wrong("a string or a list"));
            }
        }
        match role {
            Role::Assistant => {
                if blocks.is_empty() {
                    self.losses.omit(LossSubject::Message, LossReason::Empty);
                }
                for mut block in blocks {
                    if let Block::Text { signature, .. } = &mut block {
                        signature.clone_from(&phase);
                    }
                    self.push_block(block);
                }
            }
            Role::System if self.messages.is_empty() && blocks.iter().all(is_text) => {
                // Before the first message, it is a system text.
                for (at, block) in blocks.into_iter().enumerate() {
                    if let Block::Text { text, .. } = block {
                        self.instruct(&text);
                    }
                    if let (true, Some(index)) =
                        (breakpoints.contains(&at), self.system.len().checked_sub(1))
                    {
                        self.breakpoint(CachePlace::System { index });
                    }
                }
            }
            _ => {
                let message = self.messages.len();
                for block in breakpoints {
                    self.breakpoint(CachePlace::Block { message, block });
                }
                self.message(role, blocks);
            }
        }
        Ok(())
    }

    fn read_part(&mut self, part: &Node<'_>, role: Role) -> Result<Block, Fault> {
        part.object()?;
        let kind = part.need("type")?;
        let block = match (kind.text()?, role) {
            ("input_text", Role::User | Role::System) | ("output_text", Role::Assistant) => {
                let list = |key| part.value().get(key).and_then(|list| list.as_array());
                if list("annotations").is_some_and(|list| !list.is_empty()) {
                    self.losses.omit(LossSubject::Citations, LossReason::NoWord);
                }
                Block::text(part.need("text")?.text()?)
            }
            ("refusal", Role::Assistant) => {
                Block::Refusal { text: part.need("refusal")?.text()?.to_owned() }
            }
            ("input_image", Role::User | Role::System) => self.read_image(part)?,
            ("input_file", Role::User | Role::System) => read_file(part)?,
            ("input_audio", Role::User | Role::System) => read_audio(part)?,
            (
                word @ ("input_text" | "output_text" | "refusal" | "input_image" | "input_file"
                | "input_audio"),
                _,
            ) => {
                let whose = match role {
                    Role::Assistant => "the assistant",
                    _ => "anybody but the assistant",
                };
                return Err(kind.refuse(&format!("`{word}` is no content of {whose}")));
            }
            (word, _) => return Err(kind.refuse(&format!("`{word}` is no kind of content"))),
        };
        Ok(block)
    }

    fn read_image(&mut self, part: &Node<'_>) -> Result<Block, Fault> {
        let detail = match part.get("detail") {
            Some(detail) => Some(detail.text()?).filter(|detail| *detail != AUTO_DETAIL),
            None => None,
        };
        let detail = detail.map(str::to_owned);
        let source = match part.get("file_id") {
            Some(id) => file(id.text()?),
            None => source(part.need("image_url")?.text()?),
        };
        Ok(Block::Media { kind: MediaKind::Image, source, name: None, detail })
    }

    fn read_reasoning(&mut self, item: &Node<'_>) -> Result<(), Fault> {
        let mut text = read_texts(&item.need("summary")?)?;
        if let Some(content) = item.get("content") {
            let raw = read_texts(&content)?;
            if text.is_empty() {
                text = raw;
            } else if !raw.is_empty() {
                self.losses.omit(LossSubject::ThinkingContent, LossReason::Summaries);
            }
        }
        let signature = match item.get("encrypted_content") {
            Some(content) => Some(content.text()?.to_owned()).filter(|text| !text.is_empty()),
            None => None,
        };
        if text.is_empty() && signature.is_none() {
            self.losses.omit(LossSubject::Thinking, LossReason::Empty);
        } else {
            self.push_block(Block::Thinking { text, signature });
        }
        Ok(())
    }

    fn read_call(&mut self, item: &Node<'_>) -> Result<(), Fault> {
        let known = ["type", "id", "call_id", "name", "arguments", "status"];
        if item.others(&known).values().any(|value| !value.is_null()) {
            self.losses.omit(LossSubject::ToolCallSettings, LossReason::NoWord);
        }
        self.push_block(Block::ToolCall {
            id: item.need("call_id")?.text()?.to_owned(),
            name: item.need("name")?.text()?.to_owned(),
            arguments: item.need("arguments")?.text()?.to_owned(),
            signature: None,
        });
        Ok(())
    }

    fn read_output(&mut self, item: &Node<'_>) -> Result<(), Fault> {
        let id = item.need("call_id")?.text()?.to_owned();
        let output = item.need("output")?;
        let (mut content, mut has_breakpoint) = (Vec::new(), false);
        if let Some(text) = output.value().as_str() {
            if !text.is_empty() {
                content.push(Block::text(text));
            }
        } else if output.value().is_array() {
            for part in output.elements()? {
                has_breakpoint |= part.get(PROMPT_CACHE_BREAKPOINT).is_some();
                content.push(self.read_part(&part, Role::User)?);
            }
        } else {
            return Err(output.wrong("a string or a list"));
        }
        self.push_result(Block::ToolResult { id, name: None, content, is_error: false });
        // A breakpoint inside a result counts at its end.
        if let (true, Some(last)) = (has_breakpoint, self.messages.last()) {
            let (message, block) = (self.messages.len() - 1, last.content.len() - 1);
            self.breakpoint(CachePlace::Block { message, block });
        }
        Ok(())
    }
}

/// Reads the result of a tool. All kinds of tools share this form.
pub(crate) fn read_result(item: &Value) -> Option<Lossy<Block>> {
    let mut losses = Losses::default();
    let mut conversation = Conversation::new(&mut losses);
    conversation.read_output(&Node::root(item)).ok()?;
    let (_, messages, _) = conversation.finish();
    let value = messages.into_iter().flat_map(|message| message.content).next()?;
    Some(Lossy { value, losses: losses.0 })
}

/// The author of an item that the vocabulary has no type for.
pub(crate) fn role_of(kind: &str) -> Role {
    match kind {
        "configuration_update" | "additional_tools" | "compaction_trigger" => Role::System,
        kind if kind.ends_with("_output") || kind.ends_with("_response") => Role::User,
        _ => Role::Assistant,
    }
}

fn is_text(block: &Block) -> bool {
    matches!(block, Block::Text { .. })
}

/// Joins parts of reasoning with blank lines.
fn read_texts(parts: &Node<'_>) -> Result<String, Fault> {
    let mut text = String::new();
    for (index, part) in parts.elements()?.enumerate() {
        part.object()?;
        if index > 0 {
            text.push_str("\n\n");
        }
        text.push_str(part.need("text")?.text()?);
    }
    Ok(text)
}

fn read_file(part: &Node<'_>) -> Result<Block, Fault> {
    let name = match part.get("filename") {
        Some(name) => Some(name.text()?.to_owned()),
        None => None,
    };
    let source = if let Some(id) = part.get("file_id") {
        file(id.text()?)
    } else if let Some(url) = part.get("file_url") {
        source(url.text()?)
    } else {
        let data = part.need("file_data")?.text()?;
        if data.starts_with("data:") {
            source(data)
        } else {
            // Bare base64: only the name shows the media type.
            let pdf = name.as_ref().is_some_and(|name| name.to_ascii_lowercase().ends_with(".pdf"));
            let media_type = if pdf { "application/pdf" } else { "application/octet-stream" };
            Source::Base64 { media_type: media_type.to_owned(), data: data.to_owned() }
        }
    };
    Ok(Block::Media { kind: MediaKind::Document, source, name, detail: None })
}

fn read_audio(part: &Node<'_>) -> Result<Block, Fault> {
    let audio = part.need("input_audio")?;
    audio.object()?;
    let format = audio.need("format")?;
    let media_type = match format.text()? {
        "wav" => "audio/wav",
        "mp3" => "audio/mpeg",
        word => return Err(format.refuse(&format!("`{word}` is no format of sound"))),
    };
    Ok(Block::Media {
        kind: MediaKind::Audio,
        source: Source::Base64 {
            media_type: media_type.to_owned(),
            data: audio.need("data")?.text()?.to_owned(),
        },
        name: None,
        detail: None,
    })
}

fn file(id: &str) -> Source {
    Source::File { dialect: NAME.to_owned(), id: id.to_owned() }
}

/// Reads an address, which may contain the data.
fn source(url: &str) -> Source {
    let inline = url.strip_prefix("data:").and_then(|rest| {
        let (media_type, data) = rest.split_once(',')?;
        Some((media_type.strip_suffix(";base64")?, data))
    });
    match inline {
        Some((media_type, data)) => {
            Source::Base64 { media_type: media_type.to_owned(), data: data.to_owned() }
        }
        None => Source::Url { url: url.to_owned(), media_type: None },
    }
}
