//! Reads the message of a reply from the bytes that its client gets, as the client would send it
//! back.

use super::string;
use crate::framing::sse::Framer;
use crate::framing::{MAX_EVENT_BYTES, MAX_REPLY_BYTES};
use crate::json::{
    EndDetector, Kind, ObjectWriter, Span, each_member, found_text, inside, slice, text, validate,
};

/// A complete message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AddedMessage {
    /// Its id.
    pub id: String,
    /// The JSON of its content.
    pub content: String,
    /// Why it ended.
    pub stop_reason: Option<String>,
}

/// Reads a message from the bytes of its reply.
#[derive(Debug)]
pub struct MessageReader {
    input: Input,
    /// The bytes so far. A message that is too long is not kept.
    length: usize,
}

#[derive(Debug)]
enum Input {
    Events { framer: Framer, message: Box<EventMessage> },
    Whole { bytes: Vec<u8>, end: EndDetector },
}

impl MessageReader {
    /// A reader of a stream of events or of one JSON object.
    pub fn new(streamed: bool) -> Self {
        let input = match streamed {
            true => Input::Events { framer: Framer::new(MAX_EVENT_BYTES), message: Box::default() },
            false => Input::Whole { bytes: Vec::new(), end: EndDetector::default() },
        };
        Self { input, length: 0 }
    }

    /// Takes the next bytes.
    pub fn push(&mut self, piece: &[u8]) {
        self.length = self.length.saturating_add(piece.len());
        let fits = self.length <= MAX_REPLY_BYTES;
        match &mut self.input {
            Input::Events { framer, message } => {
                framer.push(piece, |frame, _| message.take(frame.data, fits));
                message.is_whole &= !framer.is_skipping();
            }
            Input::Whole { bytes, end } => {
                if fits {
                    bytes.extend_from_slice(piece);
                }
                end.push(piece);
            }
        }
    }

    /// Whether the message is complete.
    pub fn has_ended(&self) -> bool {
        match &self.input {
            Input::Events { message, .. } => message.ended,
            Input::Whole { end, .. } => end.is_complete(),
        }
    }

    /// The message. `None` if it is incomplete, or if a part of it could not be read.
    pub fn message(&self) -> Option<AddedMessage> {
        match &self.input {
            _ if !self.has_ended() => None,
            Input::Events { message, .. } => message.finish(),
            Input::Whole { bytes, .. } if self.length == bytes.len() => read_whole(bytes),
            Input::Whole { .. } => None,
        }
    }
}

fn read_whole(bytes: &[u8]) -> Option<AddedMessage> {
    let (mut id, mut content, mut stop_reason) = (None, None, None);
    each_member(bytes, 0, |key, kind, span| match (key, kind) {
        (b"id", Kind::String) => id = Some(text(bytes, &span).into_owned()),
        (b"content", Kind::Array) => content = Some(string(slice(bytes, &span))),
        (b"stop_reason", Kind::String) => stop_reason = Some(text(bytes, &span).into_owned()),
        _ => {}
    })
    .ok()?;
    Some(AddedMessage { id: id?, content: content?, stop_reason })
}

/// A message that is built from its events.
#[derive(Debug)]
pub(crate) struct EventMessage {
    id: Option<String>,
    /// The JSON of each complete block.
    blocks: Vec<String>,
    open: Option<OpenBlock>,
    stop_reason: Option<String>,
    ended: bool,
    /// Whether all of it could be read.
    is_whole: bool,
}

impl Default for EventMessage {
    fn default() -> Self {
        Self {
            id: None,
            blocks: Vec::new(),
            open: None,
            stop_reason: None,
            ended: false,
            is_whole: true,
        }
    }
}

/// A block whose end has not arrived.
#[derive(Debug, Default)]
struct OpenBlock {
    /// Its JSON in the event that started it.
    start: Vec<u8>,
    /// The text of its deltas, for each member that they fill.
    texts: Vec<(&'static str, String)>,
    /// The JSON of its input.
    input: String,
    /// The JSON of each of its citations.
    citations: Vec<String>,
    /// Members that deltas replace, as JSON.
    replaced: Vec<(String, String)>,
}

impl EventMessage {
    /// Reads the data of an event.
    pub(crate) fn take(&mut self, data: &[u8], fits: bool) {
        self.is_whole &= fits && self.read(data).is_some();
    }

    /// Reads an event. `None` if it cannot be read.
    fn read(&mut self, data: &[u8]) -> Option<()> {
        let (mut kind, mut part) = (&b""[..], None);
        each_member(data, 0, |key, value, span| match (key, value) {
            (b"type", Kind::String) => kind = inside(data, &span),
            (b"message" | b"content_block" | b"delta", Kind::Object) => part = Some(span),
            _ => {}
        })
        .ok()?;
        match kind {
            b"message_start" => {
                let message = slice(data, &part?);
                let (mut id, mut content) = (None, None);
                each_member(message, 0, |key, kind, span| match (key, kind) {
                    (b"id", Kind::String) => id = Some(text(message, &span).into_owned()),
                    (b"content", Kind::Array) => content = Some(span),
                    _ => {}
                })
                .ok()?;
                self.id = id;
                // Calls of a program may be there from the start.
                if let Some(content) = content {
                    crate::json::each_element(message, content.start, |_, span| {
                        self.blocks.push(string(slice(message, &span)));
                    })
                    .ok()?;
                }
            }
            b"content_block_start" => {
                let start = slice(data, &part?).to_vec();
                self.open = Some(OpenBlock { start, ..OpenBlock::default() });
            }
            b"content_block_delta" => self.open.as_mut()?.grow(slice(data, &part?))?,
            b"content_block_stop" => {
                let block = self.open.take()?.finish()?;
                self.blocks.push(block);
            }
            b"message_delta" => {
                let delta = slice(data, &part?);
                each_member(delta, 0, |key, kind, span| {
                    if key == b"stop_reason" && kind == Kind::String {
                        self.stop_reason = Some(text(delta, &span).into_owned());
                    }
                })
                .ok()?;
            }
            b"message_stop" => self.ended = true,
            // After an error the message stays incomplete.
            _ => {}
        }
        Some(())
    }

    /// The JSON of each block. `None` if a part of the message could not be read.
    pub(crate) fn into_blocks(self) -> Option<Vec<String>> {
        (self.is_whole && self.open.is_none()).then_some(self.blocks)
    }

    fn finish(&self) -> Option<AddedMessage> {
        let whole = self.is_whole && self.open.is_none();
        Some(AddedMessage {
            id: self.id.clone().filter(|_| whole)?,
            content: format!("[{}]", self.blocks.join(",")),
            stop_reason: self.stop_reason.clone(),
        })
    }
}

impl OpenBlock {
    /// Adds a delta. `None` if its kind is unknown: the block would not be the one that was sent.
    fn grow(&mut self, delta: &[u8]) -> Option<()> {
        let (mut kind, mut members) = (&b""[..], Vec::new());
        each_member(delta, 0, |key, value, span| match (key, value) {
            (b"type", Kind::String) => kind = inside(delta, &span),
            (key, value) => members.push((key, value, span)),
        })
        .ok()?;
        let found = |name: &[u8]| {
            let member = members.iter().find(|(key, ..)| *key == name);
            member.map(|(_, value, span)| (*value, span.clone()))
        };
        let string_of = |name: &str| found_text(delta, &found(name.as_bytes()));
        match kind {
            b"text_delta" => self.append("text", &string_of("text")),
            b"thinking_delta" => self.append("thinking", &string_of("thinking")),
            b"input_json_delta" => self.input.push_str(&string_of("partial_json")),
            // Clients keep the last one.
            b"signature_delta" => {
                self.texts.retain(|(name, _)| *name != "signature");
                self.append("signature", &string_of("signature"));
            }
            b"citations_delta" => {
                let (_, span) = found(b"citation")?;
                self.citations.push(string(slice(delta, &span)));
            }
            b"compaction_delta" => {
                for (key, _, span) in &members {
                    let key = string(key);
                    self.replaced.retain(|(name, _)| *name != key);
                    self.replaced.push((key, string(slice(delta, span))));
                }
            }
            _ => return None,
        }
        Some(())
    }

    fn append(&mut self, name: &'static str, more: &str) {
        match self.texts.iter_mut().find(|(known, _)| *known == name) {
            Some((_, text)) => text.push_str(more),
            None => self.texts.push((name, more.to_owned())),
        }
    }

    /// The block as a client sends it back: its start, with what the deltas added.
    fn finish(mut self) -> Option<String> {
        let start = std::mem::take(&mut self.start);
        let mut added: Vec<(String, Vec<u8>)> = Vec::new();
        for (name, more) in std::mem::take(&mut self.texts) {
            let before = match name {
                "signature" => String::new(),
                _ => member_text(&start, name)?,
            };
            added.push((name.to_owned(), crate::json::quote(&format!("{before}{more}"))));
        }
        if !self.input.is_empty() {
            let checked = validate(self.input.as_bytes(), usize::MAX);
            checked.ok().filter(|kind| *kind == Kind::Object)?;
            added.push(("input".to_owned(), self.input.into_bytes()));
        }
        if !self.citations.is_empty() {
            let list = format!("[{}]", self.citations.join(","));
            added.push(("citations".to_owned(), list.into_bytes()));
        }
        let replaced = self.replaced.into_iter();
        added.extend(replaced.map(|(name, value)| (name, value.into_bytes())));
        let mut out = Vec::with_capacity(start.len());
        let mut block = ObjectWriter::new(&mut out);
        each_member(&start, 0, |key, _, span| {
            let name = string(key);
            let value = match added.iter().position(|(added, _)| *added == name) {
                Some(at) => added.remove(at).1,
                None => slice(&start, &span).to_vec(),
            };
            block.raw(&name, &value);
        })
        .ok()?;
        for (name, value) in added {
            block.raw(&name, &value);
        }
        block.end();
        Some(string(&out))
    }
}

/// A text member of a block. Empty if it is missing.
fn member_text(block: &[u8], name: &str) -> Option<String> {
    let mut found: Option<Span> = None;
    each_member(block, 0, |key, kind, span| {
        if key == name.as_bytes() && kind == Kind::String {
            found = Some(span);
        }
    })
    .ok()?;
    Some(found.map(|span| text(block, &span).into_owned()).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn events(events: &[Value]) -> String {
        let line = |event: &Value| {
            format!("event: {}\ndata: {event}\n\n", event["type"].as_str().unwrap_or_default())
        };
        events.iter().map(line).collect()
    }

    fn read(stream: &str, size: usize) -> Option<AddedMessage> {
        let mut reader = MessageReader::new(true);
        stream.as_bytes().chunks(size).for_each(|piece| reader.push(piece));
        reader.message()
    }

    fn start() -> Value {
        json!({"type": "message_start", "message": {"id": "msg_1", "content": []}})
    }

    fn delta(index: u64, delta: &Value) -> Value {
        json!({"type": "content_block_delta", "index": index, "delta": delta})
    }

    fn end() -> [Value; 2] {
        [
            json!({"type": "message_delta", "delta": {"stop_reason": "tool_use"}, "usage": {}}),
            json!({"type": "message_stop"}),
        ]
    }

    #[test]
    fn message_is_read_as_its_client_sends_it_back() {
        let mut all = vec![
            start(),
            json!({"type": "ping"}),
            json!({"type": "content_block_start", "index": 0,
                "content_block": {"type": "thinking", "thinking": "", "signature": ""}}),
            delta(0, &json!({"type": "thinking_delta", "thinking": "Ro\u{e9}"})),
            delta(0, &json!({"type": "thinking_delta", "thinking": "w \"7\""})),
            delta(0, &json!({"type": "signature_delta", "signature": "EqQB"})),
            json!({"type": "content_block_stop", "index": 0}),
            json!({"type": "content_block_start", "index": 1,
                "content_block": {"type": "tool_use", "id": "t", "name": "f", "input": {}, "caller": {"type": "direct"}}}),
            delta(1, &json!({"type": "input_json_delta", "partial_json": "{\"n\": 1.50"})),
            delta(1, &json!({"type": "input_json_delta", "partial_json": "}"})),
            json!({"type": "content_block_stop", "index": 1}),
            json!({"type": "content_block_start", "index": 2,
                "content_block": {"type": "compaction", "content": null}}),
            delta(2, &json!({"type": "compaction_delta", "content": "in short"})),
            json!({"type": "content_block_stop", "index": 2}),
            json!({"type": "content_block_start", "index": 3,
                "content_block": {"type": "text", "text": "", "citations": []}}),
            delta(3, &json!({"type": "citations_delta", "citation": {"url": "u"}})),
            delta(3, &json!({"type": "text_delta", "text": "so"})),
            json!({"type": "content_block_stop", "index": 3}),
        ];
        all.extend(end());
        let stream = events(&all);
        let whole = read(&stream, stream.len()).expect("a message");
        assert_eq!((whole.id.as_str(), whole.stop_reason.as_deref()), ("msg_1", Some("tool_use")));
        assert_eq!(
            whole.content,
            concat!(
                r#"[{"type":"thinking","thinking":"Roéw \"7\"","signature":"EqQB"},"#,
                r#"{"type":"tool_use","id":"t","name":"f","input":{"n": 1.50},"caller":{"type":"direct"}},"#,
                r#"{"type":"compaction","content":"in short"},"#,
                r#"{"type":"text","text":"so","citations":[{"url":"u"}]}]"#,
            )
        );
        for size in [1, 7, 64] {
            assert_eq!(read(&stream, size).as_ref(), Some(&whole));
        }
        let mut reader = MessageReader::new(false);
        let reply = json!({"id": "msg_1", "type": "message", "content": [{"type": "text", "text": "x"}],
            "stop_reason": "end_turn"});
        reader.push(reply.to_string().as_bytes());
        assert!(reader.has_ended());
        assert_eq!(reader.message().unwrap().content, r#"[{"type":"text","text":"x"}]"#);
    }

    #[test]
    fn incomplete_or_unreadable_message_is_not_kept() {
        let text = json!({"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}});
        let call = json!({"type": "content_block_start", "index": 0, "content_block": {"type": "tool_use", "id": "t", "input": {}}});
        let stop = json!({"type": "content_block_stop", "index": 0});
        let odd = delta(0, &json!({"type": "new_delta", "x": 1}));
        let broken = delta(0, &json!({"type": "input_json_delta", "partial_json": "{\"n\":"}));
        let [reason, last] = end();
        let failed =
            json!({"type": "error", "error": {"type": "overloaded_error", "message": "x"}});
        for (name, stream) in [
            ("cut", vec![start(), text.clone(), stop.clone(), reason.clone()]),
            ("failed", vec![start(), text.clone(), stop.clone(), failed]),
            ("open", vec![start(), text.clone(), reason.clone(), last.clone()]),
            ("unknown delta", vec![start(), text, odd, stop.clone(), reason.clone(), last.clone()]),
            ("cut call", vec![start(), call, broken, stop, reason, last]),
        ] {
            let stream = events(&stream);
            assert_eq!(read(&stream, stream.len()), None, "{name}");
        }
    }
}
