//! Reads a client's request. Editing a request in place is in `rewrite`.

use std::collections::HashMap;

use serde_json::{Map, Value};
use throughline_canonical::{
    Amount, Block, CacheBreakpoints, CachePlace, CacheTime, Effort, Fault, Loss, LossReason,
    LossSubject, Lossy, MediaKind, Message, Output, Request, Role, Sampling, Show, Source, Tool,
    ToolChoice,
};

use super::{EFFORTS, NAME, record};
use crate::dialects::RequestParts;
use crate::dialects::shared::cache_control::{CACHE_CONTROL, read_breakpoint, without_breakpoint};
use crate::json::{JsonError, Kind, Node, Span, each_element, find_member, read_object, slice};

/// The members that the canonical request has a field for. All others are kept in `extra`.
pub(super) const KNOWN: &[&str] = &[
    "model",
    "max_tokens",
    "messages",
    "system",
    "stream",
    "stop_sequences",
    "tools",
    "tool_choice",
    "thinking",
    "output_config",
    "output_format",
    "metadata",
    "temperature",
    "top_p",
    "top_k",
    CACHE_CONTROL,
];

/// Reads a request.
pub(super) fn read(parts: &RequestParts<'_>) -> Result<Lossy<Request>, Fault> {
    let body = read_object(parts.body, parts.max_depth)?;
    let root = Node::dotted(&body);
    let mut reading = RequestReader {
        inputs: inputs(parts.body).unwrap_or_default(),
        ..RequestReader::default()
    };
    let mut request = Request {
        model: root.need("model")?.text()?.to_owned(),
        max_tokens: root.get("max_tokens").map(|node| node.count()).transpose()?,
        stream: flag(root.get("stream"))?.unwrap_or_default(),
        sampling: sampling(&root)?,
        stop: stop(&root)?,
        ..Request::default()
    };
    // A request that only counts tokens needs no limit.
    if request.max_tokens.is_none() && !parts.path.ends_with("/count_tokens") {
        root.need("max_tokens")?;
    }
    if let Some(system) = root.get("system") {
        request.system = reading.system(&system)?;
    }
    let messages = root.need("messages")?;
    for message in messages.elements()? {
        let read = reading.message(&message, request.messages.len(), parts.body)?;
        request.messages.push(read);
    }
    if request.messages.is_empty() {
        return Err(messages.refuse("at least one message is required"));
    }
    if let Some(tools) = root.get("tools") {
        for tool in tools.elements()? {
            if let Some(time) = read_breakpoint(&tool)? {
                reading.breakpoints.add(CachePlace::Tool { index: request.tools.len() }, time);
            }
            request.tools.push(reading.tool(&tool)?);
        }
    }
    if let Some(time) = read_breakpoint(&root)? {
        reading.breakpoints.add(CachePlace::End, time);
    }
    if let Some(choice) = root.get("tool_choice") {
        let (choice, parallel) = reading.tool_choice(&choice)?;
        request.tool_choice = Some(choice);
        request.parallel_calls = parallel;
    }
    reading.metadata(&root, &mut request)?;
    reading.output(&root, &mut request)?;
    reading.thinking(&root, &mut request)?;
    for (key, value) in root.others(KNOWN) {
        if !value.is_null() {
            reading.extra.insert(key, value);
        }
    }
    if !reading.extra.is_empty() {
        request.extra.insert(NAME.to_owned(), reading.extra);
    }
    request.cache_breakpoints = reading.breakpoints;
    Ok(Lossy { value: request, losses: reading.losses })
}

/// Reads one message of a request. `None` if it is malformed.
pub(super) fn read_message(json: &[u8]) -> Option<Message> {
    let message = read_object(json, None).ok()?;
    RequestReader::default().message(&Node::dotted(&message), 0, json).ok()
}

/// A block with its breakpoint for the prompt cache.
type BlockAndBreakpoint = (Block, Option<CacheTime>);

/// State while a request is read.
#[derive(Default)]
struct RequestReader {
    losses: Vec<Loss>,
    extra: Map<String, Value>,
    /// The effort of the last message that names one. It applies from there on.
    effort: Option<Effort>,
    /// Spans of the inputs of calls, by message and block. A tree of values would change the
    /// spelling of numbers.
    inputs: HashMap<(usize, usize), Span>,
    breakpoints: CacheBreakpoints,
}

impl RequestReader {
    fn system(&mut self, node: &Node<'_>) -> Result<Vec<String>, Fault> {
        let mut texts = Vec::new();
        for (block, breakpoint) in self.content(node)? {
            match block {
                Block::Text { text, .. } if text.is_empty() => {}
                Block::Text { text, .. } => {
                    self.breakpoint(CachePlace::System { index: texts.len() }, breakpoint);
                    texts.push(text);
                }
                _ => return Err(node.refuse("only text blocks can stand here")),
            }
        }
        Ok(texts)
    }

    fn message(&mut self, node: &Node<'_>, at: usize, body: &[u8]) -> Result<Message, Fault> {
        node.object()?;
        let role = node.need("role")?;
        let role = match role.text()? {
            "user" => Role::User,
            "assistant" => Role::Assistant,
            "system" => Role::System,
            other => return Err(none_of(&role, other, &["user", "assistant", "system"])),
        };
        let content = match role {
            // An assistant message may be empty.
            Role::Assistant if node.is_null("content") => Vec::new(),
            _ => self.content(&node.need("content")?)?,
        };
        let mut message = Message::new(role, Vec::with_capacity(content.len()));
        for (number, (mut block, breakpoint)) in content.into_iter().enumerate() {
            if let Block::ToolCall { arguments, .. } = &mut block
                && let Some(span) = self.inputs.get(&(at, number))
            {
                *arguments = String::from_utf8_lossy(slice(body, span)).into_owned();
            }
            self.breakpoint(CachePlace::Block { message: at, block: number }, breakpoint);
            message.content.push(block);
        }
        if let Some(config) = node.get("output_config") {
            config.object()?;
            if let Some(effort) = config.get("effort") {
                self.effort = Some(read_effort(&effort)?);
            }
            self.report_unknown(&config, &["effort"]);
        }
        self.report_unknown(node, &["role", "content", "output_config"]);
        Ok(message)
    }

    fn breakpoint(&mut self, position: CachePlace, breakpoint: Option<CacheTime>) {
        if let Some(time) = breakpoint {
            self.breakpoints.add(position, time);
        }
    }

    /// Reads a string or a list of blocks, each with its breakpoint for the prompt cache.
    fn content(&mut self, node: &Node<'_>) -> Result<Vec<BlockAndBreakpoint>, Fault> {
        match node.value() {
            Value::String(text) => Ok(vec![(Block::text(text), None)]),
            Value::Array(_) => node.elements()?.map(|block| self.block(&block)).collect(),
            _ => Err(node.wrong("a string or a list of blocks")),
        }
    }

    fn block(&mut self, node: &Node<'_>) -> Result<BlockAndBreakpoint, Fault> {
        node.object()?;
        let mut breakpoint = read_breakpoint(node)?;
        let text = |key| Ok::<_, Fault>(node.need(key)?.text()?.to_owned());
        let (block, known): (_, &[&str]) = match node.need("type")?.text()? {
            "text" => (Block::text(text("text")?), &["text", CACHE_CONTROL]),
            "thinking" => {
                let signature = optional_text(node, "signature")?;
                let block = Block::Thinking {
                    text: text("thinking")?,
                    // Some servers send an empty signature, and clients return it.
                    signature: signature.filter(|signature| !signature.is_empty()),
                };
                breakpoint = None;
                (block, &["thinking", "signature"])
            }
            "redacted_thinking" => {
                let data = text("data")?;
                breakpoint = None;
                (Block::Redacted { data }, &["data"])
            }
            "tool_use" => {
                let input = node.need("input")?;
                input.object()?;
                let block = Block::ToolCall {
                    id: text("id")?,
                    name: text("name")?,
                    arguments: input.value().to_string(),
                    signature: None,
                };
                (block, &["id", "name", "input", CACHE_CONTROL])
            }
            "tool_result" => {
                let parts = match node.get("content") {
                    Some(content) => self.content(&content)?,
                    None => Vec::new(),
                };
                // A breakpoint inside a result counts at its end.
                breakpoint = breakpoint
                    .or_else(|| parts.iter().rev().find_map(|(_, breakpoint)| *breakpoint));
                let content = parts.into_iter().map(|(part, _)| part).collect();
                let block = Block::ToolResult {
                    id: text("tool_use_id")?,
                    name: None,
                    content,
                    is_error: flag(node.get("is_error"))?.unwrap_or_default(),
                };
                (block, &["tool_use_id", "content", "is_error", CACHE_CONTROL])
            }
            kind @ ("image" | "document") => match source(&node.need("source")?)? {
                Some(source) => {
                    let document = kind == "document";
                    let block = Block::Media {
                        kind: match document {
                            true => MediaKind::Document,
                            false => MediaKind::Image,
                        },
                        source,
                        name: match document {
                            true => optional_text(node, "title")?,
                            false => None,
                        },
                        detail: None,
                    };
                    let known: &[&str] = match document {
                        true => &["source", "title", CACHE_CONTROL],
                        false => &["source", CACHE_CONTROL],
                    };
                    (block, known)
                }
                None => return Ok((opaque(node), breakpoint)),
            },
            _ => return Ok((opaque(node), breakpoint)),
        };
        self.report_unknown(node, known);
        Ok((block, breakpoint))
    }

    fn tool(&mut self, node: &Node<'_>) -> Result<Tool, Fault> {
        node.object()?;
        let kind = optional_text(node, "type")?;
        if kind.is_some_and(|kind| kind != "custom") {
            let value = without_breakpoint(node.value());
            return Ok(Tool::Opaque { dialect: NAME.to_owned(), value });
        }
        let schema = node.need("input_schema")?;
        schema.object()?;
        let tool = Tool::Function {
            name: node.need("name")?.text()?.to_owned(),
            description: optional_text(node, "description")?,
            parameters: schema.value().clone(),
            strict: flag(node.get("strict"))?,
        };
        let known = ["name", "description", "input_schema", "strict", CACHE_CONTROL];
        self.report_unknown(node, &known);
        Ok(tool)
    }

    fn tool_choice(&mut self, node: &Node<'_>) -> Result<(ToolChoice, Option<bool>), Fault> {
        node.object()?;
        let kind = node.need("type")?;
        let choice = match kind.text()? {
            "auto" => ToolChoice::Auto,
            "any" => ToolChoice::Required,
            "none" => ToolChoice::None,
            "tool" => ToolChoice::Named { name: node.need("name")?.text()?.to_owned() },
            other => return Err(none_of(&kind, other, &["auto", "any", "tool", "none"])),
        };
        let single = flag(node.get("disable_parallel_tool_use"))?;
        self.report_unknown(node, &["name", "disable_parallel_tool_use"]);
        Ok((choice, single.map(|single| !single)))
    }

    fn metadata(&mut self, root: &Node<'_>, request: &mut Request) -> Result<(), Fault> {
        let Some(metadata) = root.get("metadata") else {
            return Ok(());
        };
        metadata.object()?;
        request.user = optional_text(&metadata, "user_id")?;
        self.keep("metadata", metadata.others(&["user_id"]));
        Ok(())
    }

    fn output(&mut self, root: &Node<'_>, request: &mut Request) -> Result<(), Fault> {
        // The beta version of the API has it at the top level.
        if let Some(format) = root.get("output_format") {
            request.output = self.format(&format)?;
        }
        if let Some(config) = root.get("output_config") {
            config.object()?;
            if let Some(format) = config.get("format") {
                request.output = self.format(&format)?;
            }
            if let Some(effort) = config.get("effort") {
                let effort = read_effort(&effort)?;
                self.effort = self.effort.or(Some(effort));
            }
            self.keep("output_config", config.others(&["effort", "format"]));
        }
        Ok(())
    }

    fn format(&mut self, node: &Node<'_>) -> Result<Output, Fault> {
        node.object()?;
        let kind = node.need("type")?;
        match kind.text()? {
            "json_schema" => {
                let schema = node.need("schema")?;
                schema.object()?;
                self.report_unknown(node, &["schema"]);
                Ok(Output::Schema { name: None, schema: schema.value().clone(), strict: None })
            }
            other => Err(none_of(&kind, other, &["json_schema"])),
        }
    }

    fn thinking(&mut self, root: &Node<'_>, request: &mut Request) -> Result<(), Fault> {
        let effort = self.effort;
        let Some(thinking) = root.get("thinking") else {
            request.thinking.amount = effort.map(|effort| Amount::Effort { effort });
            return Ok(());
        };
        thinking.object()?;
        let mut rest = thinking.others(&["type", "budget_tokens", "display"]);
        // Only `block_binding` is allowed without a mode.
        let mode = match thinking.get("block_binding") {
            Some(_) => thinking.get("type"),
            None => Some(thinking.need("type")?),
        };
        request.thinking.amount = match &mode {
            None => effort.map(|effort| Amount::Effort { effort }),
            Some(mode) => Some(match mode.text()? {
                "adaptive" => Amount::Adaptive { effort },
                "enabled" => Amount::Budget { tokens: thinking.need("budget_tokens")?.count()? },
                "disabled" => Amount::Off,
                // This mode has no thinking before the answer and short notes between calls. It is
                // close to off, which some models do not have.
                "between_tools" => {
                    rest.insert("type".to_owned(), mode.value().clone());
                    Amount::Off
                }
                other => {
                    let modes = ["adaptive", "enabled", "disabled", "between_tools"];
                    return Err(none_of(mode, other, &modes));
                }
            }),
        };
        if let Some(display) = thinking.get("display") {
            request.thinking.show = Some(match display.text()? {
                "summarized" => Show::Summary,
                "omitted" => Show::Hidden,
                "updates" => {
                    rest.insert("display".to_owned(), display.value().clone());
                    Show::Summary
                }
                other => {
                    let displays = ["summarized", "omitted", "updates"];
                    return Err(none_of(&display, other, &displays));
                }
            });
        }
        self.keep("thinking", rest);
        // Effort also affects the answer, but the canonical setting cannot hold both.
        if let (Some(Amount::Budget { .. } | Amount::Off), Some(effort)) =
            (request.thinking.amount, effort)
        {
            let config = self.extra.entry("output_config").or_insert_with(|| Map::new().into());
            if let Value::Object(config) = config {
                config.insert("effort".to_owned(), effort.word().into());
            }
        }
        Ok(())
    }

    /// Keeps the unknown members of a nested object.
    fn keep(&mut self, key: &str, mut members: Map<String, Value>) {
        members.retain(|_, value| !value.is_null());
        if !members.is_empty() {
            self.extra.insert(key.to_owned(), members.into());
        }
    }

    /// Reports the unknown members of a known block.
    fn report_unknown(&mut self, node: &Node<'_>, known: &[&str]) {
        let Value::Object(members) = node.value() else {
            return;
        };
        for (key, value) in members {
            let nothing = match value {
                Value::Null => true,
                Value::Array(list) => list.is_empty(),
                // Calls are direct unless they say otherwise.
                Value::Object(members) => {
                    key == "caller" && members.get("type") == Some(&"direct".into())
                }
                _ => false,
            };
            if nothing || key == "type" || known.contains(&key.as_str()) {
                continue;
            }
            let part = match key.as_str() {
                CACHE_CONTROL => LossSubject::CacheControl,
                "citations" => LossSubject::Citations,
                "caller" => LossSubject::Caller,
                "context" => LossSubject::Context,
                "defer_loading" => LossSubject::DeferLoading,
                _ => LossSubject::Member,
            };
            let reason = LossReason::NoWord;
            record(&mut self.losses, Loss::PartOmitted { part, reason });
        }
    }
}

fn inputs(body: &[u8]) -> Result<HashMap<(usize, usize), Span>, JsonError> {
    let mut found = HashMap::new();
    let messages = find_member(body, 0, b"messages", Kind::Array)?;
    for (at, message) in objects(body, messages)?.into_iter().enumerate() {
        let content = find_in(body, message, b"content", Kind::Array)?;
        for (number, block) in objects(body, content)?.into_iter().enumerate() {
            if let Some(input) = find_in(body, block, b"input", Kind::Object)? {
                found.insert((at, number), input);
            }
        }
    }
    Ok(found)
}

/// The elements of a list that are objects.
fn objects(body: &[u8], list: Option<Span>) -> Result<Vec<Option<Span>>, JsonError> {
    let mut found = Vec::new();
    if let Some(list) = list {
        each_element(body, list.start, |kind, span| {
            found.push((kind == Kind::Object).then_some(span));
        })?;
    }
    Ok(found)
}

fn find_in(
    body: &[u8],
    object: Option<Span>,
    name: &[u8],
    kind: Kind,
) -> Result<Option<Span>, JsonError> {
    object.map_or(Ok(None), |object| find_member(body, object.start, name, kind))
}

fn opaque(node: &Node<'_>) -> Block {
    Block::Opaque { dialect: NAME.to_owned(), value: without_breakpoint(node.value()) }
}

/// Reads the source of an image or a document; `None` for unknown kinds of source.
fn source(node: &Node<'_>) -> Result<Option<Source>, Fault> {
    node.object()?;
    let text = |key| Ok::<_, Fault>(node.need(key)?.text()?.to_owned());
    Ok(Some(match node.need("type")?.text()? {
        "base64" => Source::Base64 { media_type: text("media_type")?, data: text("data")? },
        "text" => Source::Text { text: text("data")? },
        "url" => Source::Url { url: text("url")?, media_type: None },
        "file" => Source::File { dialect: NAME.to_owned(), id: text("file_id")? },
        _ => return Ok(None),
    }))
}

fn sampling(root: &Node<'_>) -> Result<Sampling, Fault> {
    let number = |key| root.get(key).map(|node| node.number()).transpose();
    Ok(Sampling {
        temperature: number("temperature")?,
        top_p: number("top_p")?,
        top_k: root.get("top_k").map(|node| node.count()).transpose()?,
        ..Sampling::default()
    })
}

fn stop(root: &Node<'_>) -> Result<Vec<String>, Fault> {
    match root.get("stop_sequences") {
        Some(list) => list.elements()?.map(|text| Ok(text.text()?.to_owned())).collect(),
        None => Ok(Vec::new()),
    }
}

fn read_effort(node: &Node<'_>) -> Result<Effort, Fault> {
    let word = node.text()?;
    let known = EFFORTS.into_iter().find(|effort| effort.word() == word);
    known.ok_or_else(|| none_of(node, word, &EFFORTS.map(Effort::word)))
}

fn optional_text(node: &Node<'_>, key: &str) -> Result<Option<String>, Fault> {
    match node.get(key) {
        Some(text) => Ok(Some(text.text()?.to_owned())),
        None => Ok(None),
    }
}

fn flag(node: Option<Node<'_>>) -> Result<Option<bool>, Fault> {
    node.map(|node| node.flag()).transpose()
}

fn none_of(node: &Node<'_>, word: &str, words: &[&str]) -> Fault {
    node.refuse(&format!("`{word}` is none of {}", words.join(", ")))
}
