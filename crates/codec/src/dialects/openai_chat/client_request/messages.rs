//! Reads the messages of a client's request.

use serde_json::{Value, json};
use throughline_canonical::{
    Block, CachePlace, CacheTime, Fault, Loss, LossReason, LossSubject, MediaKind, Message,
    Request, Role, Source,
};

use super::super::NAME;
use crate::dialects::shared::cache_control::{
    CACHE_CONTROL, PROMPT_CACHE_BREAKPOINT, read_breakpoint, without_breakpoint,
};
use crate::dialects::shared::fields::string;
use crate::dialects::shared::hidden_reasoning::without_notice;
use crate::dialects::shared::media::read_url;
use crate::json::Node;

/// Reads the messages and system texts.
pub(super) fn read(
    messages: &Node<'_>,
    request: &mut Request,
    losses: &mut Vec<Loss>,
) -> Result<(), Fault> {
    let mut reader = MessageReader {
        request,
        losses,
        calls: 0,
        last_call: String::new(),
        in_results: false,
        breakpoints: Vec::new(),
    };
    let mut any = false;
    for message in messages.elements()? {
        reader.message(&message)?;
        any = true;
    }
    if any { Ok(()) } else { Err(messages.refuse("is empty")) }
}

struct MessageReader<'a> {
    request: &'a mut Request,
    losses: &'a mut Vec<Loss>,
    /// Number of calls so far.
    calls: usize,
    /// The id of the last legacy call, which has no id of its own.
    last_call: String,
    /// Whether the last message holds tool results and can take more.
    in_results: bool,
    /// The breakpoints for the prompt cache in the message that is being read, by the index of the part.
    breakpoints: Vec<(usize, CacheTime)>,
}

impl MessageReader<'_> {
    fn message(&mut self, message: &Node<'_>) -> Result<(), Fault> {
        message.object()?;
        let role = message.need("role")?;
        let was_in_results = std::mem::take(&mut self.in_results);
        self.breakpoints.clear();
        match role.text()? {
            "system" | "developer" => {
                self.report_unknown(message, &["role", "content", CACHE_CONTROL]);
                let texts = self.texts(&message.need("content")?)?;
                self.end_at_last(message, texts.len())?;
                if self.request.messages.is_empty() {
                    let before = self.request.system.len();
                    self.add_breakpoints(|part| CachePlace::System { index: before + part });
                    self.request.system.extend(texts);
                } else {
                    let content = texts.into_iter().map(Block::text).collect();
                    self.push_message(Role::System, content);
                }
            }
            "user" => {
                self.report_unknown(message, &["role", "content", CACHE_CONTROL]);
                let content = self.content(&message.need("content")?)?;
                self.end_at_last(message, content.len())?;
                self.push_message(Role::User, content);
            }
            "assistant" => {
                let content = self.assistant(message)?;
                self.end_at_last(message, content.len())?;
                self.push_message(Role::Assistant, content);
            }
            "tool" => {
                let known = ["role", "content", "tool_call_id", "name", CACHE_CONTROL];
                self.report_unknown(message, &known);
                let id = message.need("tool_call_id")?.text()?.to_owned();
                self.result(message, id, was_in_results)?;
            }
            "function" => {
                message.need("name")?.text()?;
                let id = self.last_call.clone();
                self.result(message, id, was_in_results)?;
            }
            _ => {
                return Err(role.refuse(
                    "expected `developer`, `system`, `user`, `assistant`, `tool` or `function`",
                ));
            }
        }
        Ok(())
    }

    fn push_message(&mut self, role: Role, content: Vec<Block>) {
        let message = self.request.messages.len();
        self.add_breakpoints(|block| CachePlace::Block { message, block });
        self.request.messages.push(Message::new(role, content));
    }

    /// Adds the breakpoints of the message to the request.
    fn add_breakpoints(&mut self, position: impl Fn(usize) -> CachePlace) {
        for (part, time) in self.breakpoints.drain(..) {
            self.request.cache_breakpoints.add(position(part), time);
        }
    }

    /// A breakpoint on a message counts at its last part.
    fn end_at_last(&mut self, message: &Node<'_>, parts: usize) -> Result<(), Fault> {
        if let Some(time) = read_breakpoint(message)? {
            self.breakpoints.extend(parts.checked_sub(1).map(|last| (last, time)));
        }
        Ok(())
    }

    /// Reports unknown members.
    fn report_unknown(&mut self, node: &Node<'_>, known: &[&str]) {
        for (name, value) in node.others(known) {
            let empty = match &value {
                Value::Null => true,
                Value::Array(list) => list.is_empty(),
                Value::Object(members) => members.is_empty(),
                _ => false,
            };
            if empty {
                continue;
            }
            let part = match name.as_str() {
                "name" => LossSubject::MessageName,
                CACHE_CONTROL => LossSubject::CacheControl,
                "detail" => LossSubject::MediaSettings,
                "annotations" => LossSubject::Citations,
                _ => LossSubject::Member,
            };
            let loss = Loss::PartOmitted { part, reason: LossReason::NoWord };
            if !self.losses.contains(&loss) {
                self.losses.push(loss);
            }
        }
    }

    /// Adds a tool result. Consecutive results are one message.
    fn result(&mut self, message: &Node<'_>, id: String, joins: bool) -> Result<(), Fault> {
        let content = match message.get("content") {
            None if message.is_null("content") => Vec::new(),
            // The legacy form may omit it.
            None if message.need("role")?.text()? == "function" => Vec::new(),
            None => {
                return Err(message
                    .need("content")
                    .err()
                    .unwrap_or_else(|| message.wrong("content")));
            }
            Some(content) => self.content(&content)?,
        };
        self.end_at_last(message, content.len().max(1))?;
        // A breakpoint inside a result counts at its end.
        let breakpoint = self.breakpoints.drain(..).next_back();
        let block =
            Block::ToolResult { id, name: string(message, "name")?, content, is_error: false };
        self.in_results = true;
        match self.request.messages.last_mut() {
            Some(last) if joins => last.content.push(block),
            _ => self.push_message(Role::User, vec![block]),
        }
        let message = self.request.messages.len().saturating_sub(1);
        let results = self.request.messages.last().map_or(0, |last| last.content.len());
        if let (Some((_, time)), Some(block)) = (breakpoint, results.checked_sub(1)) {
            self.request.cache_breakpoints.add(CachePlace::Block { message, block }, time);
        }
        Ok(())
    }

    /// Reads the content of a user or tool message.
    fn content(&mut self, content: &Node<'_>) -> Result<Vec<Block>, Fault> {
        match content.value() {
            Value::String(text) => Ok(vec![Block::text(text.clone())]),
            Value::Array(_) => {
                let parts = content.elements()?.enumerate();
                parts.map(|(at, part)| self.part(&part, at)).collect()
            }
            _ => Err(content.wrong("a string or a list")),
        }
    }

    /// Reads the part at this index of its message.
    fn part(&mut self, part: &Node<'_>, at: usize) -> Result<Block, Fault> {
        if let Value::String(text) = part.value() {
            return Ok(Block::text(text.clone()));
        }
        part.object()?;
        self.breakpoints.extend(read_part_breakpoint(part)?.map(|time| (at, time)));
        let kind = part.need("type")?;
        let kind = kind.text()?;
        let known = match kind {
            "text" | "refusal" | "image_url" | "input_audio" | "file" | "video_url" => {
                [kind, "type", CACHE_CONTROL, PROMPT_CACHE_BREAKPOINT]
            }
            _ => {
                let value = without_breakpoint(part.value());
                return Ok(Block::Opaque { dialect: NAME.to_owned(), value });
            }
        };
        self.report_unknown(part, &known);
        let inner = part.need(kind)?;
        match kind {
            "text" => Ok(Block::text(inner.text()?)),
            "refusal" => Ok(Block::Refusal { text: inner.text()?.to_owned() }),
            "image_url" => self.link(&inner, MediaKind::Image),
            "video_url" => self.link(&inner, MediaKind::Video),
            "input_audio" => {
                inner.object()?;
                let format = inner.need("format")?.text()?;
                Ok(Block::Media {
                    kind: MediaKind::Audio,
                    source: Source::Base64 {
                        media_type: match format {
                            "mp3" => "audio/mpeg".to_owned(),
                            other => format!("audio/{other}"),
                        },
                        data: inner.need("data")?.text()?.to_owned(),
                    },
                    name: None,
                    detail: None,
                })
            }
            _ => read_file(&inner),
        }
    }

    fn link(&mut self, link: &Node<'_>, kind: MediaKind) -> Result<Block, Fault> {
        let mut detail = None;
        let url = match link.value() {
            Value::String(url) => url.as_str(),
            Value::Object(_) => {
                let given = string(link, "detail")?.filter(|detail| detail != "auto");
                match kind {
                    MediaKind::Image => detail = given,
                    _ if given.is_some() => self.report_unknown(link, &["url"]),
                    _ => {}
                }
                link.need("url")?.text()?
            }
            _ => return Err(link.wrong("an object")),
        };
        let source = read_url(url)
            .ok_or_else(|| link.refuse("expected `data:<type>;base64,<data>` or an address"))?;
        Ok(Block::Media { kind, source, name: None, detail })
    }

    /// Reads an assistant message: reasoning, then text, then calls. The dialect has no other
    /// order.
    fn assistant(&mut self, message: &Node<'_>) -> Result<Vec<Block>, Fault> {
        self.report_unknown(
            message,
            &[
                "role",
                "content",
                CACHE_CONTROL,
                "refusal",
                "audio",
                "tool_calls",
                "function_call",
                "reasoning",
                "reasoning_content",
                "reasoning_details",
                "thinking_blocks",
            ],
        );
        let mut blocks = Vec::new();
        read_reasoning(message, &mut blocks)?;
        let calls = message.get("tool_calls");
        let old_call = message.get("function_call");
        let before = blocks.len();
        match message.get("content") {
            Some(content) => match content.value() {
                Value::String(text) if text.is_empty() => {}
                Value::String(text) => blocks.push(Block::text(text.clone())),
                Value::Array(_) => {
                    for part in content.elements()? {
                        match part.get("type").map(|kind| kind.value()) {
                            Some(kind) if kind == "thinking" => read_chunk(&part, &mut blocks)?,
                            _ => blocks.push(self.part(&part, blocks.len())?),
                        }
                    }
                }
                _ => return Err(content.wrong("a string or a list")),
            },
            // The content of an empty answer is null.
            None if message.is_null("content") => {}
            None if calls.is_none()
                && old_call.is_none()
                && before == 0
                && message.get("refusal").is_none()
                && message.get("audio").is_none() =>
            {
                message.need("content")?;
            }
            None => {}
        }
        if let Some(refusal) = message.get("refusal") {
            let text = refusal.text()?.to_owned();
            blocks.push(Block::Refusal { text });
        }
        if let Some(audio) = message.get("audio") {
            audio.object()?;
            blocks.push(Block::Opaque {
                dialect: NAME.to_owned(),
                value: json!({"type": "audio", "audio": audio.value()}),
            });
        }
        if let Some(calls) = calls {
            for call in calls.elements()? {
                blocks.push(self.call(&call)?);
            }
        }
        if let Some(call) = old_call {
            call.object()?;
            self.calls += 1;
            self.last_call = format!("call_{}", self.calls);
            blocks.push(Block::ToolCall {
                id: self.last_call.clone(),
                name: call.need("name")?.text()?.to_owned(),
                arguments: call.need("arguments")?.text()?.to_owned(),
                signature: None,
            });
        }
        Ok(blocks)
    }

    fn call(&mut self, call: &Node<'_>) -> Result<Block, Fault> {
        call.object()?;
        self.calls += 1;
        let kind = call.get("type");
        match kind.as_ref().map(Node::text).transpose()? {
            // Some clients omit the type.
            None | Some("function") => {}
            Some(_) => {
                return Ok(Block::Opaque { dialect: NAME.to_owned(), value: call.value().clone() });
            }
        }
        let id = call.need("id")?.text()?.to_owned();
        let function = call.need("function")?;
        function.object()?;
        let arguments = match function.get("arguments") {
            // Clients that parse arguments may send them as an object.
            Some(arguments) if arguments.value().is_object() => arguments.value().to_string(),
            Some(arguments) => arguments.text()?.to_owned(),
            None => function.need("arguments")?.text()?.to_owned(),
        };
        let signature = [
            "/extra_content/google/thought_signature",
            "/extra_content/vertex/thought_signature",
            "/provider_specific_fields/thought_signature",
        ]
        .iter()
        .find_map(|pointer| call.value().pointer(pointer)?.as_str());
        Ok(Block::ToolCall {
            id,
            name: function.need("name")?.text()?.to_owned(),
            arguments,
            signature: signature.map(str::to_owned),
        })
    }

    /// Reads system texts.
    fn texts(&mut self, content: &Node<'_>) -> Result<Vec<String>, Fault> {
        let mut texts = Vec::new();
        match content.value() {
            Value::String(text) => texts.push(text.clone()),
            Value::Array(_) => {
                for part in content.elements()? {
                    if let Value::String(text) = part.value() {
                        texts.push(text.clone());
                        continue;
                    }
                    part.object()?;
                    let kind = part.need("type")?;
                    if kind.text()? != "text" {
                        return Err(kind.refuse("expected `text`"));
                    }
                    self.breakpoints
                        .extend(read_part_breakpoint(&part)?.map(|time| (texts.len(), time)));
                    texts.push(part.need("text")?.text()?.to_owned());
                }
            }
            _ => return Err(content.wrong("a string or a list")),
        }
        Ok(texts)
    }
}

/// Reads the breakpoint of a part, which is OpenAI's own or Anthropic's.
fn read_part_breakpoint(part: &Node<'_>) -> Result<Option<CacheTime>, Fault> {
    let breakpoint = part.get(PROMPT_CACHE_BREAKPOINT).map(|_| CacheTime::Minutes);
    Ok(read_breakpoint(part)?.or(breakpoint))
}

fn read_file(file: &Node<'_>) -> Result<Block, Fault> {
    file.object()?;
    let source = match (file.get("file_id"), file.get("file_data")) {
        (Some(id), _) => Source::File { dialect: NAME.to_owned(), id: id.text()?.to_owned() },
        (None, Some(data)) => read_url(data.text()?)
            .ok_or_else(|| data.refuse("expected `data:<type>;base64,<data>`"))?,
        (None, None) => return Err(file.refuse("expected `file_id` or `file_data`")),
    };
    let name = string(file, "filename")?;
    Ok(Block::Media { kind: MediaKind::Document, source, name, detail: None })
}

/// Reads earlier reasoning. Several members may repeat it; the most detailed one counts.
fn read_reasoning(message: &Node<'_>, blocks: &mut Vec<Block>) -> Result<(), Fault> {
    for name in ["reasoning_details", "thinking_blocks"] {
        if let Some(list) = message.get(name) {
            match list.value() {
                Value::Array(_) => read_details(&list, blocks)?,
                // opencode sends a string.
                Value::String(_) => push_plain(list.text()?, blocks),
                _ => return Err(list.wrong("a list or a string")),
            }
        }
        if !blocks.is_empty() {
            return Ok(());
        }
    }
    for name in ["reasoning_content", "reasoning"] {
        if let Some(text) = message.get(name) {
            push_plain(text.text()?, blocks);
        }
        if !blocks.is_empty() {
            break;
        }
    }
    Ok(())
}

/// Adds reasoning as plain text, without the notice.
fn push_plain(text: &str, blocks: &mut Vec<Block>) {
    let text = without_notice(text);
    if !text.is_empty() {
        blocks.push(Block::Thinking { text, signature: None });
    }
}

fn read_details(list: &Node<'_>, blocks: &mut Vec<Block>) -> Result<(), Fault> {
    let mut last: Option<(String, Option<u64>)> = None;
    for detail in list.elements()? {
        detail.object()?;
        let kind = detail.need("type")?.text()?.to_owned();
        let text = |name: &str| string(&detail, name);
        let number = detail.get("index").and_then(|index| index.value().as_u64());
        let signed = text("signature")?.filter(|signed| !signed.is_empty());
        let words = match kind.as_str() {
            "reasoning.text" => text("text")?,
            "thinking" => text("thinking")?,
            "reasoning.summary" => text("summary")?,
            "reasoning.encrypted" | "redacted_thinking" => {
                let data = detail.need("data")?.text()?.to_owned();
                blocks.push(Block::Redacted { data });
                last = None;
                continue;
            }
            _ => {
                blocks.push(Block::Opaque {
                    dialect: NAME.to_owned(),
                    value: detail.value().clone(),
                });
                last = None;
                continue;
            }
        };
        let words = words.unwrap_or_default();
        let here = Some((kind, number));
        // Some clients keep the pieces of a stream separately.
        if let Some(Block::Thinking { text, signature }) = blocks.last_mut()
            && last == here
            && (number.is_some() || signature.is_none())
        {
            text.push_str(&words);
            if signature.is_none() {
                *signature = signed;
            }
        } else if !words.is_empty() || signed.is_some() {
            blocks.push(Block::Thinking { text: words, signature: signed });
        }
        last = here;
    }
    Ok(())
}

/// Reads a reasoning chunk of the content.
fn read_chunk(part: &Node<'_>, blocks: &mut Vec<Block>) -> Result<(), Fault> {
    let thinking = part.need("thinking")?;
    let words = match thinking.value() {
        Value::String(text) => text.clone(),
        _ => {
            let mut joined = String::new();
            for piece in thinking.elements()? {
                if let Some(text) = piece.get("text") {
                    joined.push_str(text.text()?);
                }
            }
            joined
        }
    };
    blocks.push(Block::Thinking {
        text: words,
        signature: string(part, "signature")?.filter(|value| !value.is_empty()),
    });
    Ok(())
}
