//! The spans of the parts of a chunk. A whole reply is read as one chunk: its `message` has the
//! members of a `delta`.

use crate::json::{Cursor, Found, JsonError, Kind, Span, number};

/// One chunk, or a whole reply.
#[derive(Debug, Default)]
pub(super) struct Chunk {
    pub(super) id: Found,
    pub(super) model: Found,
    pub(super) usage: Found,
    pub(super) error: Found,
    /// The `object` member; vLLM marks errors with it.
    pub(super) object: Found,
    /// The first choice.
    pub(super) choice: Option<Choice>,
    /// Number of choices.
    choices: usize,
}

/// A choice: the answer.
#[derive(Debug, Default)]
pub(super) struct Choice {
    /// The delta or message.
    delta: Option<Span>,
    pub(super) finish_reason: Found,
    /// OpenRouter reports errors of a provider here.
    pub(super) error: Found,
    pub(super) content: Found,
    pub(super) refusal: Found,
    pub(super) annotations: Found,
    pub(super) reasoning: Found,
    pub(super) reasoning_content: Found,
    pub(super) reasoning_details: Found,
    pub(super) thinking_blocks: Found,
    pub(super) tool_calls: Found,
    pub(super) function_call: Found,
}

impl Chunk {
    /// Reads a chunk in one pass.
    pub(super) fn read(data: &[u8]) -> Result<Self, JsonError> {
        let mut chunk = Self::default();
        // The cursor does not recurse, so the depth needs no limit.
        let mut cursor = Cursor::new(data, usize::MAX);
        cursor.enter_object()?;
        let mut first = true;
        while let Some(key) = cursor.key(&mut first)? {
            let kind = cursor.peek()?;
            if key == b"choices" && kind == Kind::Array {
                read_choices(data, &mut cursor, &mut chunk)?;
                continue;
            }
            let span = cursor.skip()?;
            let slot = match key {
                b"id" => &mut chunk.id,
                b"model" => &mut chunk.model,
                b"usage" => &mut chunk.usage,
                b"error" => &mut chunk.error,
                b"object" => &mut chunk.object,
                _ => continue,
            };
            put(slot, kind, span);
        }
        cursor.end()?;
        Ok(chunk)
    }
}

/// The bytes around the delta of a chunk. Nearly all chunks of a stream share them, and then only
/// the delta must be parsed.
#[derive(Debug, Default)]
pub(super) struct Frame {
    head: Vec<u8>,
    tail: Vec<u8>,
}

impl Frame {
    /// Keeps the bytes around this chunk's delta if they contain nothing to read.
    pub(super) fn keep(&mut self, data: &[u8], chunk: &Chunk) {
        let Chunk {
            usage: None,
            error: None,
            choice: Some(Choice { delta: Some(delta), finish_reason: None, error: None, .. }),
            choices: 1,
            ..
        } = chunk
        else {
            return;
        };
        if let (Some(head), Some(tail)) = (data.get(..delta.start), data.get(delta.end..)) {
            self.head.clear();
            self.head.extend_from_slice(head);
            self.tail.clear();
            self.tail.extend_from_slice(tail);
        }
    }

    /// Reads a chunk with the same bytes around its delta; `None` if they differ.
    pub(super) fn read(&self, data: &[u8]) -> Option<Choice> {
        let start = self.head.len();
        if start == 0 || !data.starts_with(&self.head) || !data.ends_with(&self.tail) {
            return None;
        }
        let mut choice = Choice::default();
        let mut cursor = Cursor::at(data, start, usize::MAX);
        read_delta(&mut cursor, &mut choice).ok()?;
        // Otherwise the delta has another length, and the rest differs.
        (cursor.position() + self.tail.len() == data.len()).then_some(choice)
    }
}

/// Null counts as absent.
fn put(slot: &mut Found, kind: Kind, span: Span) {
    *slot = (kind != Kind::Null).then_some((kind, span));
}

fn read_choices(data: &[u8], cursor: &mut Cursor<'_>, chunk: &mut Chunk) -> Result<(), JsonError> {
    cursor.enter_array()?;
    let mut first = true;
    while cursor.element(&mut first)? {
        if cursor.peek()? != Kind::Object {
            cursor.skip()?;
            continue;
        }
        let (index, choice) = read_choice(data, cursor)?;
        chunk.choices += 1;
        // We ask for one choice; of several, the first counts.
        if index == 0 && chunk.choice.is_none() {
            chunk.choice = Some(choice);
        }
    }
    Ok(())
}

fn read_choice(data: &[u8], cursor: &mut Cursor<'_>) -> Result<(u64, Choice), JsonError> {
    let (mut index, mut choice) = (0, Choice::default());
    cursor.enter_object()?;
    let mut first = true;
    while let Some(key) = cursor.key(&mut first)? {
        let kind = cursor.peek()?;
        if matches!(key, b"delta" | b"message") && kind == Kind::Object {
            let start = cursor.start();
            read_delta(cursor, &mut choice)?;
            choice.delta = Some(start..cursor.position());
            continue;
        }
        let span = cursor.skip()?;
        match key {
            b"index" => index = number(data, &span).unwrap_or_default(),
            b"finish_reason" => put(&mut choice.finish_reason, kind, span),
            b"error" => put(&mut choice.error, kind, span),
            _ => {}
        }
    }
    Ok((index, choice))
}

fn read_delta(cursor: &mut Cursor<'_>, choice: &mut Choice) -> Result<(), JsonError> {
    cursor.enter_object()?;
    let mut first = true;
    while let Some(key) = cursor.key(&mut first)? {
        let kind = cursor.peek()?;
        let span = cursor.skip()?;
        let slot = match key {
            b"content" => &mut choice.content,
            b"refusal" => &mut choice.refusal,
            b"annotations" => &mut choice.annotations,
            b"reasoning" => &mut choice.reasoning,
            b"reasoning_content" => &mut choice.reasoning_content,
            b"reasoning_details" => &mut choice.reasoning_details,
            b"thinking_blocks" => &mut choice.thinking_blocks,
            b"tool_calls" => &mut choice.tool_calls,
            b"function_call" => &mut choice.function_call,
            _ => continue,
        };
        put(slot, kind, span);
    }
    Ok(())
}
