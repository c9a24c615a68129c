//! The outline of a request. Reading it validates the body as JSON and inspects only what the
//! gateway decides about. Everything else is a span that is copied.

use std::borrow::Cow;

use throughline_canonical::{BlockKey, Fault, KeyHasher, ThinkingKind};

use super::super::client_request::read_message;
use crate::json::{
    Cursor, JsonError, Kind, Span, decode, decode_pieces, each_member, number, slice, text,
};

/// The outline of a request, as spans in its bytes.
#[derive(Clone, Debug, Default)]
pub struct Outline {
    /// The members of the body, each from its key to the end of its value.
    pub members: Vec<Span>,
    /// The whole object.
    pub body: Span,
    /// The requested model.
    pub model: Option<Model>,
    /// Whether the client asks for a stream.
    pub stream: bool,
    /// Maximum number of output tokens.
    pub max_tokens: Option<u64>,
    /// The thinking setting.
    pub thinking: Option<Thinking>,
    /// The value of `output_config`.
    pub output_config: Option<Span>,
    /// The effort in it.
    pub effort: Option<String>,
    /// The client's id of the user or session.
    pub user_id: Option<String>,
    /// The value of `system`.
    pub system: Option<Span>,
    /// The value of `tools`.
    pub tools: Option<Span>,
    /// The value of `thread`.
    pub thread: Option<Span>,
    /// The messages, in order.
    pub messages: Vec<Message>,
    /// Number of repeated tool-call ids in the conversation.
    pub repeated_tool_ids: usize,
}

/// The model member.
#[derive(Clone, Debug)]
pub struct Model {
    /// Its value, with quotes.
    pub span: Span,
    /// The name.
    pub name: String,
}

/// The thinking member.
#[derive(Clone, Debug)]
pub struct Thinking {
    /// Its index in `members`.
    pub member: usize,
    /// Its value.
    pub span: Span,
    /// Its `type`; empty if it has none.
    pub mode: String,
    /// Its budget.
    pub budget: Option<u64>,
    /// What to do with blocks that are bound to another conversation. `Some` (possibly empty) if
    /// the client mentions binding.
    pub binding: Option<String>,
}

/// The author of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// The user.
    User,
    /// The model.
    Assistant,
    /// A system message in the conversation, or an unknown role.
    Other,
}

/// One message.
#[derive(Clone, Debug)]
pub struct Message {
    /// The whole object.
    pub span: Span,
    /// The author.
    pub role: Role,
    /// The content.
    pub content: Content,
}

/// The content of a message.
#[derive(Clone, Debug)]
pub enum Content {
    /// A plain string; the span includes the quotes.
    Text(Span),
    /// A list of blocks.
    Blocks(Vec<Block>),
    /// Absent, null or malformed; not changed.
    Other,
}

/// One content block.
#[derive(Clone, Debug)]
pub struct Block {
    /// The whole object.
    pub span: Span,
    /// The kind of block.
    pub kind: BlockKind,
}

/// The kinds of blocks that the gateway distinguishes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BlockKind {
    /// Signed reasoning. The key is absent if the block lacks its text or data.
    Thinking {
        /// Plain or redacted.
        kind: ThinkingKind,
        /// The identity of the block.
        key: Option<BlockKey>,
    },
    /// A tool call.
    ToolUse,
    /// A tool result.
    ToolResult,
    /// A summary that the provider wrote. It replaces everything before it.
    Compaction,
    /// A summary that the provider failed to write. It means nothing.
    FailedCompaction,
    /// Any other block.
    Other,
}

impl Message {
    /// The blocks; empty if the content is not a list.
    pub fn blocks(&self) -> &[Block] {
        match &self.content {
            Content::Blocks(blocks) => blocks,
            _ => &[],
        }
    }

    /// Whether this is a user message with more than tool results.
    pub fn is_user_turn(&self) -> bool {
        self.role == Role::User
            && match &self.content {
                Content::Text(_) => true,
                Content::Blocks(blocks) => {
                    blocks.iter().any(|block| block.kind != BlockKind::ToolResult)
                }
                Content::Other => false,
            }
    }

    /// The number of thinking blocks.
    pub fn thinking_count(&self) -> usize {
        let thinks = |block: &&Block| matches!(block.kind, BlockKind::Thinking { .. });
        self.blocks().iter().filter(thinks).count()
    }

    /// The ids of the tool calls.
    pub fn call_ids<'a>(&self, body: &'a [u8]) -> impl Iterator<Item = Cow<'a, str>> {
        let calls = self.blocks().iter().filter(|block| block.kind == BlockKind::ToolUse);
        calls.filter_map(|call| string_member(body, &call.span, b"id"))
    }

    /// The message in canonical form, with one block for each of its blocks. `None` if it is
    /// malformed.
    pub fn canonical(&self, body: &[u8]) -> Option<throughline_canonical::Message> {
        read_message(slice(body, &self.span))
    }

    fn has(&self, kind: BlockKind) -> bool {
        self.blocks().iter().any(|block| block.kind == kind)
    }
}

impl Outline {
    /// Reads a body with at most `depth` levels of nesting.
    pub fn read(body: &[u8], depth: usize) -> Result<Self, Fault> {
        if let Err(error) = std::str::from_utf8(body) {
            return Err(malformed(JsonError::NotUtf8(error.valid_up_to())));
        }
        let mut reader = OutlineReader { body, outline: Self::default(), tool_ids: Vec::new() };
        reader.read(depth)?;
        let mut ids = reader.tool_ids;
        let all = ids.len();
        ids.sort_unstable();
        ids.dedup();
        reader.outline.repeated_tool_ids = all - ids.len();
        Ok(reader.outline)
    }

    /// All thinking blocks: message, block, kind, key.
    pub fn thinking_blocks(
        &self,
    ) -> impl Iterator<Item = (usize, usize, ThinkingKind, Option<BlockKey>)> {
        self.messages
            .iter()
            .enumerate()
            .filter(|(_, message)| message.role == Role::Assistant)
            .flat_map(|(at, message)| {
                message.blocks().iter().enumerate().filter_map(move |(index, block)| {
                    match block.kind {
                        BlockKind::Thinking { kind, key } => Some((at, index, kind, key)),
                        _ => None,
                    }
                })
            })
    }

    /// Index of the last message with a summary that the provider wrote.
    pub fn compacted_at(&self) -> Option<usize> {
        self.messages.iter().rposition(|message| message.has(BlockKind::Compaction))
    }

    /// Whether the conversation has a message of the model.
    pub fn has_assistant(&self) -> bool {
        self.messages.iter().any(|message| message.role == Role::Assistant)
    }

    /// Index of the first message after the last user turn that is more than tool results; 0 if
    /// there is none. The messages from there on are one turn of the model with its tool loop.
    pub fn after_last_user_turn(&self) -> usize {
        self.messages.iter().rposition(Message::is_user_turn).map_or(0, |at| at + 1)
    }

    /// Index of the assistant message whose tool calls the request answers, if it ends in tool
    /// results.
    pub fn open_tool_loop(&self) -> Option<usize> {
        let last = self.messages.iter().rposition(|message| message.role != Role::Other)?;
        if !self.messages[last].has(BlockKind::ToolResult) {
            return None;
        }
        let call =
            self.messages[..last].iter().rposition(|message| message.role == Role::Assistant)?;
        self.messages[call].has(BlockKind::ToolUse).then_some(call)
    }
}

fn malformed(error: JsonError) -> Fault {
    Fault::invalid(format!("the request body could not be read: {error}"))
}

fn twice(name: &str) -> Fault {
    Fault::at(name, "occurs more than once in the request")
}

/// Uses the same message as the full reader, so that a mistake gives one error on both lanes.
fn expected(path: &str, what: &str, found: Kind) -> Fault {
    let found = found.name();
    Fault::at(path, format!("expected {what}, found {found}"))
}

struct OutlineReader<'a> {
    body: &'a [u8],
    outline: Outline,
    tool_ids: Vec<&'a [u8]>,
}

impl<'a> OutlineReader<'a> {
    fn read(&mut self, depth: usize) -> Result<(), Fault> {
        let mut cursor = Cursor::new(self.body, depth);
        let start = cursor.start();
        let kind = cursor.peek().map_err(malformed)?;
        if kind != Kind::Object {
            // Distinguished from malformed JSON: the client may have wrapped the request in a list.
            cursor.skip().map_err(malformed)?;
            let found = kind.name();
            let what = format!("expected a JSON object as the body, found {found}");
            return Err(Fault::invalid(what));
        }
        cursor.enter_object().map_err(malformed)?;
        let mut first = true;
        while let Some(key) = cursor.key_span(&mut first).map_err(malformed)? {
            let kind = cursor.peek().map_err(malformed)?;
            // A backend reads a key with escapes as the same member.
            match decode(slice(self.body, &key)).as_bytes() {
                b"messages" if kind == Kind::Array => self.messages(&mut cursor)?,
                name => {
                    let value = cursor.skip().map_err(malformed)?;
                    self.member(name, kind, value)?;
                }
            }
            // The key's opening quote belongs to the member.
            self.outline.members.push(key.start - 1..cursor.position());
        }
        self.outline.body = start..cursor.position();
        cursor.end().map_err(malformed)
    }

    fn member(&mut self, name: &[u8], kind: Kind, span: Span) -> Result<(), Fault> {
        let outline = &mut self.outline;
        match (name, kind) {
            (b"model", _) if outline.model.is_some() => return Err(twice("model")),
            (b"thinking", _) if outline.thinking.is_some() => return Err(twice("thinking")),
            (b"thread", _) if outline.thread.is_some() => return Err(twice("thread")),
            (b"model", Kind::String) => {
                let name = text(self.body, &span).into_owned();
                outline.model = Some(Model { span, name });
            }
            (b"stream", Kind::Bool) => outline.stream = slice(self.body, &span) == b"true",
            (b"max_tokens", Kind::Number) => outline.max_tokens = number(self.body, &span),
            (b"thinking", Kind::Object) => {
                let member = outline.members.len();
                outline.thinking = Some(read_thinking(self.body, member, span));
            }
            (_, Kind::Null) => {}
            (b"messages", _) => return Err(expected("messages", "a list", kind)),
            (b"model", _) => return Err(expected("model", "a string", kind)),
            (b"stream", _) => return Err(expected("stream", "true or false", kind)),
            (b"max_tokens", _) => return Err(expected("max_tokens", "a whole number", kind)),
            (b"thinking", _) => return Err(expected("thinking", "an object", kind)),
            (b"output_config", Kind::Object) => {
                outline.effort = string_member(self.body, &span, b"effort").map(Cow::into_owned);
                outline.output_config = Some(span);
            }
            (b"metadata", Kind::Object) => {
                let user_id = string_member(self.body, &span, b"user_id");
                outline.user_id = user_id.map(Cow::into_owned);
            }
            (b"system", _) => outline.system = Some(span),
            (b"tools", _) => outline.tools = Some(span),
            (b"thread", _) => outline.thread = Some(span),
            _ => {}
        }
        Ok(())
    }

    fn messages(&mut self, cursor: &mut Cursor<'a>) -> Result<(), Fault> {
        if !self.outline.messages.is_empty() {
            return Err(twice("messages"));
        }
        cursor.enter_array().map_err(malformed)?;
        let mut first = true;
        while cursor.element(&mut first).map_err(malformed)? {
            let at = self.outline.messages.len();
            let kind = cursor.peek().map_err(malformed)?;
            if kind != Kind::Object {
                return Err(expected(&format!("messages.{at}"), "an object", kind));
            }
            let message = self.message(at, cursor)?;
            self.outline.messages.push(message);
        }
        Ok(())
    }

    fn message(&mut self, at: usize, cursor: &mut Cursor<'a>) -> Result<Message, Fault> {
        let start = cursor.start();
        cursor.enter_object().map_err(malformed)?;
        let (mut role, mut content) = (Role::Other, Content::Other);
        let mut first = true;
        while let Some(key) = cursor.key(&mut first).map_err(malformed)? {
            let kind = cursor.peek().map_err(malformed)?;
            match (key, kind) {
                (b"role", Kind::String) => {
                    let span = cursor.string().map_err(malformed)?;
                    role = match slice(self.body, &span) {
                        b"user" => Role::User,
                        b"assistant" => Role::Assistant,
                        _ => Role::Other,
                    };
                }
                (b"role", _) => {
                    return Err(expected(&format!("messages.{at}.role"), "a string", kind));
                }
                (b"content", Kind::String) => {
                    content = Content::Text(cursor.skip().map_err(malformed)?);
                }
                (b"content", Kind::Array) => content = Content::Blocks(self.blocks(cursor)?),
                _ => {
                    cursor.skip().map_err(malformed)?;
                }
            }
        }
        Ok(Message { span: start..cursor.position(), role, content })
    }

    fn blocks(&mut self, cursor: &mut Cursor<'a>) -> Result<Vec<Block>, Fault> {
        cursor.enter_array().map_err(malformed)?;
        let (mut first, mut blocks) = (true, Vec::new());
        while cursor.element(&mut first).map_err(malformed)? {
            blocks.push(self.block(cursor).map_err(malformed)?);
        }
        Ok(blocks)
    }

    fn block(&mut self, cursor: &mut Cursor<'a>) -> Result<Block, JsonError> {
        if cursor.peek()? != Kind::Object {
            return Ok(Block { span: cursor.skip()?, kind: BlockKind::Other });
        }
        let start = cursor.start();
        cursor.enter_object()?;
        let mut first = true;
        let mut fields = Fields::default();
        while let Some(key) = cursor.key(&mut first)? {
            let slot = match key {
                b"type" => &mut fields.kind,
                b"thinking" => &mut fields.thinking,
                b"signature" => &mut fields.signature,
                b"data" => &mut fields.data,
                b"id" => &mut fields.id,
                // Only a compaction has a string here that matters.
                b"content" => &mut fields.content,
                _ => {
                    cursor.skip()?;
                    continue;
                }
            };
            *slot = match cursor.peek()? {
                Kind::String => Some(slice(self.body, &cursor.string()?)),
                _ => {
                    cursor.skip()?;
                    None
                }
            };
        }
        let kind = match fields.kind {
            Some(b"thinking") => BlockKind::Thinking {
                kind: ThinkingKind::Thinking,
                key: fields.key(ThinkingKind::Thinking, fields.thinking),
            },
            Some(b"redacted_thinking") => BlockKind::Thinking {
                kind: ThinkingKind::Redacted,
                key: fields.key(ThinkingKind::Redacted, fields.data),
            },
            Some(b"tool_use") => {
                self.tool_ids.extend(fields.id);
                BlockKind::ToolUse
            }
            Some(b"tool_result") => BlockKind::ToolResult,
            Some(b"compaction") if fields.content.is_some() => BlockKind::Compaction,
            Some(b"compaction") => BlockKind::FailedCompaction,
            _ => BlockKind::Other,
        };
        Ok(Block { span: start..cursor.position(), kind })
    }
}

/// The raw fields of a block that may be needed.
#[derive(Default)]
struct Fields<'a> {
    kind: Option<&'a [u8]>,
    thinking: Option<&'a [u8]>,
    signature: Option<&'a [u8]>,
    data: Option<&'a [u8]>,
    id: Option<&'a [u8]>,
    content: Option<&'a [u8]>,
}

impl Fields<'_> {
    fn key(&self, kind: ThinkingKind, text: Option<&[u8]>) -> Option<BlockKey> {
        let mut hasher = KeyHasher::new(kind);
        decode_pieces(text?, |piece| hasher.push(piece));
        let signature = match kind {
            ThinkingKind::Thinking => self.signature.map(decode).unwrap_or_default(),
            ThinkingKind::Redacted => "".into(),
        };
        Some(hasher.finish(&signature))
    }
}

fn string_member<'a>(body: &'a [u8], object: &Span, name: &[u8]) -> Option<Cow<'a, str>> {
    let mut found = None;
    let checked = each_member(body, object.start, |key, kind, span| {
        if key == name && kind == Kind::String {
            found = Some(text(body, &span));
        }
    });
    debug_assert!(checked.is_ok(), "the body was checked before");
    found
}

fn read_thinking(body: &[u8], member: usize, span: Span) -> Thinking {
    let mut thinking =
        Thinking { member, span: span.clone(), mode: String::new(), budget: None, binding: None };
    let checked = each_member(body, span.start, |key, kind, value| match (key, kind) {
        (b"type", Kind::String) => thinking.mode = text(body, &value).into_owned(),
        (b"budget_tokens", Kind::Number) => thinking.budget = number(body, &value),
        (b"block_binding", Kind::Object) => {
            let choice = string_member(body, &value, b"prefix_mismatch_behavior");
            thinking.binding = Some(choice.unwrap_or_default().into_owned());
        }
        _ => {}
    });
    debug_assert!(checked.is_ok(), "the body was checked before");
    thinking
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(body: &str) -> Result<Outline, String> {
        Outline::read(body.as_bytes(), 32).map_err(|fault| fault.message)
    }

    #[test]
    fn outline_finds_the_parts_of_a_request() {
        let body = r#" {"model" : "claude-x","max_tokens":4096 , "thinking":{"type":"adaptive","block_binding":{"prefix_mismatch_behavior":"error"}},
            "metadata":{"user_id":"u\u0031"},"stream":true,"unknown":[1.50],"system":"s","tools":[],"output_config":{"effort":"low"},
            "messages":[{"role":"user","content":"hi"},{"role":"assistant","content":[{"type":"thinking","thinking":"a","signature":"s"},{"type":"tool_use","id":"t1"}]},{"role":"user","content":[{"type":"tool_result","tool_use_id":"t1"}]}]} "#;
        let outline = read(body).unwrap();
        assert_eq!(outline.model.as_ref().unwrap().name, "claude-x");
        assert_eq!(&body[outline.model.as_ref().unwrap().span.clone()], "\"claude-x\"");
        assert_eq!(outline.max_tokens, Some(4096));
        assert!(outline.stream);
        assert_eq!(outline.user_id.as_deref(), Some("u1"));
        assert_eq!(outline.effort.as_deref(), Some("low"));
        let thinking = outline.thinking.as_ref().unwrap();
        assert_eq!((thinking.mode.as_str(), thinking.member), ("adaptive", 2));
        assert_eq!(thinking.binding.as_deref(), Some("error"));
        assert_eq!(&body[outline.members[1].clone()], r#""max_tokens":4096"#);
        assert_eq!(outline.open_tool_loop(), Some(1));
        assert_eq!(outline.after_last_user_turn(), 1);
        let (at, index, kind, key) = outline.thinking_blocks().next().unwrap();
        assert_eq!((at, index, kind), (1, 0, ThinkingKind::Thinking));
        let mut hasher = KeyHasher::new(ThinkingKind::Thinking);
        hasher.push(b"a");
        assert_eq!(key, Some(hasher.finish("s")));
        assert_eq!(body[outline.body.clone()].trim(), body.trim());
    }

    #[test]
    fn escapes_do_not_change_the_block_key() {
        let key = |text: &str| {
            let body = format!(
                r#"{{"messages":[{{"role":"assistant","content":[{{"type":"thinking","thinking":"{text}"}}]}}]}}"#
            );
            read(&body).unwrap().thinking_blocks().next().unwrap().3.unwrap()
        };
        assert_eq!(key(r"na\u00efve \ud83e\udde0\n"), key("naïve 🧠\\n"));
        assert_ne!(key("a"), key("b"));
    }

    /// Covers: case 12
    #[test]
    fn odd_contents_are_accepted() {
        let outline = read(
            r#"{"messages":[{"role":"assistant","content":"text"},{"role":"assistant","content":null},
            {"role":"assistant","content":[{"type":"thinking"},{"type":"thinking","thinking":7},{"type":"redacted_thinking"},"odd",{"type":5}]}]}"#,
        )
        .unwrap();
        let found: Vec<_> =
            outline.thinking_blocks().map(|(at, index, _, key)| (at, index, key)).collect();
        assert_eq!(found, [(2, 0, None), (2, 1, None), (2, 2, None)]);
    }

    #[test]
    fn rejects_malformed_bodies_with_a_path() {
        let check = |body: &str, expected: &str| assert_eq!(read(body).unwrap_err(), expected);
        check("", "the request body could not be read: the JSON ends unexpectedly at byte 0");
        check(
            "{\"a\":",
            "the request body could not be read: the JSON ends unexpectedly at byte 5",
        );
        check("[]", "expected a JSON object as the body, found a list");
        check("{} x", "the request body could not be read: unexpected byte in the JSON at byte 3");
        check(r#"{"messages":"x"}"#, "messages: expected a list, found a string");
        check(r#"{"messages":[1]}"#, "messages.0: expected an object, found a number");
        check(r#"{"model":5}"#, "model: expected a string, found a number");
        check(r#"{"model":"a","model":"b"}"#, "model: occurs more than once in the request");
        let deep = format!("{{\"messages\":{}", "[".repeat(100));
        assert!(read(&deep).is_err());
    }

    #[test]
    fn repeated_tool_ids_are_counted() {
        let call = r#"{"role":"assistant","content":[{"type":"tool_use","id":"call_0"}]}"#;
        let outline = read(&format!(r#"{{"messages":[{call},{call},{call}]}}"#)).unwrap();
        assert_eq!(outline.repeated_tool_ids, 2);
    }
}
