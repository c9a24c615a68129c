//! The reply on the wire: one document, or chunks as events or as a growing array.

use bytes::Bytes;
use serde_json::{Value, json};

use crate::draft;
use crate::fault::Frame;
use crate::style::SignatureStyle;

/// A finished reply.
#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) id: String,
    pub(crate) model: String,
    pub(crate) parts: Vec<Part>,
    pub(crate) finish_reason: &'static str,
    pub(crate) usage: Usage,
    /// Whether thoughts are visible parts, so that their token count grows with the stream.
    pub(crate) shows_thoughts: bool,
    pub(crate) style: SignatureStyle,
}

/// One part and its signature.
#[derive(Debug)]
pub(crate) struct Part {
    pub(crate) data: Data,
    pub(crate) signature: Option<String>,
}

/// The content of a part.
#[derive(Debug)]
pub(crate) enum Data {
    Thought(String),
    Text(String),
    Call { id: Option<String>, name: String, args: Value },
}

/// Token counts, so far or in total.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Usage {
    pub(crate) prompt: usize,
    /// The part of the prompt that came from the cache.
    pub(crate) cached: usize,
    /// Without the thoughts.
    pub(crate) candidates: usize,
    pub(crate) thoughts: usize,
}

/// A chunk of a stream, before it is known to be the last.
struct Chunk {
    part: Option<String>,
    usage: Usage,
    tokens: u32,
}

impl Part {
    fn json(&self) -> Value {
        let mut part = match &self.data {
            Data::Thought(text) => json!({"text": text, "thought": true}),
            Data::Text(text) => json!({ "text": text }),
            Data::Call { id, name, args } => {
                let mut call = json!({"name": name});
                // A call without arguments has no member for them.
                if args.as_object().is_none_or(|args| !args.is_empty()) {
                    call["args"] = args.clone();
                }
                if let (Some(id), Some(members)) = (id, call.as_object_mut()) {
                    members.insert("id".to_owned(), id.as_str().into());
                }
                json!({ "functionCall": call })
            }
        };
        if let (Some(signature), Some(members)) = (&self.signature, part.as_object_mut()) {
            members.insert("thoughtSignature".to_owned(), signature.as_str().into());
        }
        part
    }
}

impl Usage {
    fn json(self) -> String {
        let Self { prompt, cached, candidates, thoughts } = self;
        let total = prompt + candidates + thoughts;
        let mut json = format!("{{\"promptTokenCount\":{prompt}");
        // The provider leaves out counts that are still zero.
        if cached > 0 {
            json += &format!(",\"cachedContentTokenCount\":{cached}");
        }
        if candidates > 0 {
            json += &format!(",\"candidatesTokenCount\":{candidates}");
        }
        if thoughts > 0 {
            json += &format!(",\"thoughtsTokenCount\":{thoughts}");
        }
        json + &format!(
            ",\"totalTokenCount\":{total},\"promptTokensDetails\":[{{\"modality\":\"TEXT\",\"tokenCount\":{prompt}}}]}}"
        )
    }
}

impl Reply {
    /// The whole reply as one document.
    pub(crate) fn json(&self) -> Bytes {
        let parts: Vec<String> = self.parts.iter().map(|part| part.json().to_string()).collect();
        let parts = (!parts.is_empty()).then(|| parts.join(","));
        self.response(parts.as_deref(), Some(self.finish_reason), self.usage).into()
    }

    /// The reply as events.
    pub(crate) fn events(&self) -> Vec<Frame> {
        let frame = |(response, tokens): (String, u32)| Frame {
            bytes: format!("data: {response}\n\n").into(),
            tokens,
        };
        self.responses().map(frame).collect()
    }

    /// The reply as one array that grows.
    pub(crate) fn array(&self) -> Vec<Frame> {
        let mut frames: Vec<Frame> = Vec::new();
        for (response, tokens) in self.responses() {
            let before = if frames.is_empty() { "[" } else { ",\r\n" };
            frames.push(Frame { bytes: format!("{before}{response}").into(), tokens });
        }
        frames.push(Frame { bytes: Bytes::from_static(b"\n]"), tokens: 0 });
        frames
    }

    /// The chunks, each a response, with its tokens for the pace. The last one has the finish
    /// reason.
    fn responses(&self) -> impl Iterator<Item = (String, u32)> {
        let chunks = self.chunks();
        let last = chunks.len().saturating_sub(1);
        chunks.into_iter().enumerate().map(move |(at, chunk)| {
            let (finish, usage) = match at == last {
                true => (Some(self.finish_reason), self.usage),
                false => (None, chunk.usage),
            };
            let response = self.response(chunk.part.as_deref(), finish, usage);
            (response, chunk.tokens)
        })
    }

    fn chunks(&self) -> Vec<Chunk> {
        let mut chunks = Vec::new();
        let (mut thought, mut answered) = (0, 0);
        for part in &self.parts {
            let usage = |thought: usize, answered: usize| Usage {
                candidates: answered / 4,
                thoughts: match self.shows_thoughts {
                    true => thought / 4,
                    false => self.usage.thoughts,
                },
                ..self.usage
            };
            let (text, is_thought) = match &part.data {
                Data::Thought(text) => (text, true),
                Data::Text(text) if !text.is_empty() => (text, false),
                Data::Text(_) | Data::Call { .. } => {
                    if let Data::Call { name, args, .. } = &part.data {
                        answered += name.len() + args.to_string().len();
                    }
                    let late = self.style == SignatureStyle::Late && part.signature.is_some();
                    chunks.push(Chunk {
                        part: Some(part.json().to_string()),
                        usage: usage(thought, answered),
                        tokens: if late { 10 } else { 1 },
                    });
                    continue;
                }
            };
            let mut signature = part.signature.as_deref();
            for delta in draft::deltas(text) {
                let counted = if is_thought { &mut thought } else { &mut answered };
                *counted += delta.len();
                chunks.push(Chunk {
                    part: Some(text_part(delta, is_thought, signature.take())),
                    usage: usage(thought, answered),
                    tokens: 1,
                });
            }
        }
        if chunks.is_empty() {
            chunks.push(Chunk { part: None, usage: self.usage, tokens: 1 });
        }
        chunks
    }

    /// Chunks are formatted by hand because a bench sends 200,000 of them.
    fn response(&self, parts: Option<&str>, finish: Option<&str>, usage: Usage) -> String {
        let parts = parts.map(|parts| format!("\"parts\":[{parts}],"));
        let finish = finish.map(|reason| format!(",\"finishReason\":\"{reason}\""));
        format!(
            "{{\"candidates\":[{{\"content\":{{{}\"role\":\"model\"}}{},\"index\":0}}],\"usageMetadata\":{},\"modelVersion\":{},\"responseId\":{}}}",
            parts.unwrap_or_default(),
            finish.unwrap_or_default(),
            usage.json(),
            Value::from(self.model.as_str()),
            Value::from(self.id.as_str()),
        )
    }
}

fn text_part(text: &str, thought: bool, signature: Option<&str>) -> String {
    let thought = if thought { ",\"thought\":true" } else { "" };
    let signature = signature.map(|signature| format!(",\"thoughtSignature\":\"{signature}\""));
    format!("{{\"text\":{}{thought}{}}}", Value::from(text), signature.unwrap_or_default())
}
