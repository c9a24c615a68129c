//! The reply on the wire: one JSON document, or the same as chunks.

use bytes::Bytes;
use serde_json::{Map, Value, json};

use super::logprobs::Logprobs;
use super::openrouter::Format;
use super::variants::{CallSigning, ReasoningOutput};
use crate::draft;
use crate::fault::Frame;
use crate::openai::CREATED;
use crate::style::SignatureStyle;

/// A finished reply.
pub(crate) struct Reply {
    pub(crate) id: String,
    pub(crate) model: String,
    pub(crate) choices: Vec<Choice>,
    pub(crate) usage: Value,
    pub(crate) form: Form,
}

/// One choice of the reply.
pub(crate) struct Choice {
    pub(crate) parts: Vec<Part>,
    pub(crate) finish_reason: &'static str,
}

/// The parts of the reply, in order.
pub(crate) enum Part {
    Thought {
        text: String,
        /// Where thoughts are signed.
        signature: Option<String>,
        /// Whether the thought is complete.
        closed: bool,
    },
    /// Redacted thinking.
    Sealed {
        data: String,
        id: Option<String>,
    },
    Text(String),
    Call {
        id: String,
        name: String,
        arguments: String,
        signature: Option<String>,
    },
}

/// How a reply is written.
pub(crate) struct Form {
    pub(crate) reasoning_output: ReasoningOutput,
    pub(crate) format: Format,
    pub(crate) style: SignatureStyle,
    pub(crate) call_signing: CallSigning,
    /// Calls are written as the old `function_call`.
    pub(crate) legacy: bool,
    /// A reasoning delta also has an empty `content`.
    pub(crate) sends_empty_content: bool,
    /// A call is sent in one delta.
    pub(crate) sends_whole_calls: bool,
    /// It has the members that only OpenAI sends.
    pub(crate) official: bool,
    /// The stream ends with a usage chunk.
    pub(crate) usage: bool,
    /// The last chunk of a stream includes the usage.
    pub(crate) usage_at_end: bool,
    /// Chunks are padded.
    pub(crate) obfuscation: bool,
    /// The probabilities of the tokens, if the request asks for them.
    pub(crate) logprobs: Option<Logprobs>,
}

/// The members of one delta, without the braces.
struct Delta {
    members: String,
    tokens: u32,
    /// The probabilities of its tokens, or null.
    logprobs: Value,
}

impl Reply {
    /// The reply as one document.
    pub(crate) fn json(&self) -> Value {
        let choice = |(index, choice): (usize, &Choice)| {
            json!({ "index": index, "message": self.form.message(&choice.parts),
                    "logprobs": self.form.logprobs(&choice.parts),
                    "finish_reason": choice.finish_reason })
        };
        let choices: Vec<Value> = self.choices.iter().enumerate().map(choice).collect();
        let mut reply = json!({
            "id": self.id, "object": "chat.completion", "created": CREATED, "model": self.model,
            "choices": choices, "usage": self.usage,
        });
        if self.form.official {
            reply["service_tier"] = "default".into();
            reply["system_fingerprint"] = Value::Null;
        }
        reply
    }

    /// The reply as chunks.
    pub(crate) fn frames(&self) -> Vec<Frame> {
        let mut frames = Vec::new();
        for index in 0..self.choices.len() {
            let role = "\"role\":\"assistant\",\"content\":\"\"";
            frames.push(self.chunk(index, &Delta::head(role), None));
        }
        for (index, choice) in self.choices.iter().enumerate() {
            for delta in self.form.deltas(&choice.parts) {
                frames.push(self.chunk(index, &delta, None));
            }
            frames.push(self.chunk(index, &Delta::head(""), Some(choice.finish_reason)));
        }
        if self.form.usage {
            let tail = format!("\"choices\":[],\"usage\":{}}}\n\n", self.usage);
            frames.push(self.frame(&tail, 0));
        }
        frames.push(Frame { bytes: Bytes::from_static(b"data: [DONE]\n\n"), tokens: 0 });
        frames
    }

    fn frame(&self, rest: &str, tokens: u32) -> Frame {
        let (id, model) = (&self.id, Value::from(self.model.as_str()));
        let official = if self.form.official {
            "\"service_tier\":\"default\",\"system_fingerprint\":null,"
        } else {
            ""
        };
        Frame {
            bytes: Bytes::from(format!(
                "data: {{\"id\":\"{id}\",\"object\":\"chat.completion.chunk\",\"created\":{CREATED},\"model\":{model},{official}{rest}"
            )),
            tokens,
        }
    }

    /// Chunks are formatted by hand because a bench sends 200,000 of them.
    fn chunk(&self, index: usize, delta: &Delta, end: Option<&str>) -> Frame {
        let Delta { members, tokens, logprobs } = delta;
        let finish_reason = Value::from(end);
        let usage = match end {
            Some(_) if self.form.usage_at_end => format!(",\"usage\":{}", self.usage),
            _ if self.form.usage => ",\"usage\":null".to_owned(),
            _ => String::new(),
        };
        let padding = if self.form.obfuscation {
            // Padding gives all short chunks one length.
            let missing = 16 - members.len() % 16;
            format!(",\"obfuscation\":\"{}\"", "x".repeat(missing))
        } else {
            String::new()
        };
        let rest = format!(
            "\"choices\":[{{\"index\":{index},\"delta\":{{{members}}},\"logprobs\":{logprobs},\"finish_reason\":{finish_reason}}}]{usage}{padding}}}\n\n"
        );
        self.frame(&rest, *tokens)
    }
}

impl Form {
    /// The probabilities of a whole reply: of its content, and where the server has them, of its
    /// reasoning.
    fn logprobs(&self, parts: &[Part]) -> Value {
        let Some(logprobs) = &self.logprobs else {
            return Value::Null;
        };
        let deltas = self.deltas(parts);
        logprobs.join(deltas.iter().map(|delta| &delta.logprobs))
    }

    /// The message of a choice.
    fn message(&self, parts: &[Part]) -> Value {
        let mut message = Map::new();
        message.insert("role".to_owned(), "assistant".into());
        message.insert("content".to_owned(), self.content(parts));
        if self.official {
            message.insert("refusal".to_owned(), Value::Null);
            message.insert("annotations".to_owned(), json!([]));
        }
        let thoughts: String = parts.iter().filter_map(Part::thought).collect();
        if self.reasoning_output == ReasoningOutput::Thoughts && !thoughts.is_empty() {
            let block = json!({"google": {"thought": true}});
            message.insert("extra_content".to_owned(), block);
        }
        if let Some(member) = self.member()
            && !thoughts.is_empty()
        {
            message.insert(member.to_owned(), thoughts.into());
        }
        let blocks: Vec<Value> = match self.reasoning_output {
            ReasoningOutput::Details => {
                numbered(parts).map(|(at, part)| self.detail(part, at)).collect()
            }
            ReasoningOutput::Blocks => numbered(parts).map(|(_, part)| block(part)).collect(),
            _ => Vec::new(),
        };
        if !blocks.is_empty() {
            message.insert(self.signature_member().to_owned(), blocks.into());
        }
        let calls: Vec<Value> = parts.iter().filter_map(|part| self.call(part)).collect();
        match calls.first() {
            Some(call) if self.legacy => {
                message.insert("function_call".to_owned(), call["function"].clone());
            }
            Some(_) => {
                message.insert("tool_calls".to_owned(), calls.into());
            }
            None => {}
        }
        message.into()
    }

    fn content(&self, parts: &[Part]) -> Value {
        let thought = |part: &Part| matches!(part, Part::Thought { .. });
        if self.reasoning_output == ReasoningOutput::Chunks && parts.iter().any(thought) {
            let chunk = |part: &Part| match part {
                Part::Thought { text, closed, .. } => Some(json!({
                    "type": "thinking", "thinking": [{"type": "text", "text": text}],
                    "signature": null, "closed": closed,
                })),
                Part::Text(text) => Some(json!({"type": "text", "text": text})),
                _ => None,
            };
            return parts.iter().filter_map(chunk).collect();
        }
        let texts = parts.iter().filter_map(|part| match part {
            Part::Text(text) => Some(text.clone()),
            Part::Thought { text, .. } if self.reasoning_output == ReasoningOutput::Thoughts => {
                Some(format!("<thought>{text}</thought>"))
            }
            _ => None,
        });
        let text: String = texts.collect();
        let calls = parts.iter().any(|part| matches!(part, Part::Call { .. }));
        if text.is_empty() && calls { Value::Null } else { text.into() }
    }

    /// The member with the reasoning as a string.
    fn member(&self) -> Option<&'static str> {
        match self.reasoning_output {
            ReasoningOutput::Field(member) => Some(member),
            ReasoningOutput::Details => Some("reasoning"),
            ReasoningOutput::Blocks => Some("reasoning_content"),
            ReasoningOutput::Nowhere
            | ReasoningOutput::Chunks
            | ReasoningOutput::Tags
            | ReasoningOutput::Thoughts => None,
        }
    }

    /// The member with the signed reasoning.
    fn signature_member(&self) -> &'static str {
        match self.reasoning_output {
            ReasoningOutput::Blocks => "thinking_blocks",
            _ => "reasoning_details",
        }
    }

    /// An entry of `reasoning_details`.
    fn detail(&self, part: &Part, index: usize) -> Value {
        let format = &self.format;
        match part {
            Part::Sealed { data, id } => {
                let mut detail = json!({"type": "reasoning.encrypted", "data": data,
                                        "format": format.name, "index": index});
                if let Some(id) = id {
                    detail["id"] = id.as_str().into();
                }
                detail
            }
            part => {
                let mut detail = json!({"type": format.kind});
                detail[format.member] = part.thought().unwrap_or_default().into();
                if let Part::Thought { signature: Some(signature), .. } = part {
                    detail["signature"] = signature.as_str().into();
                }
                detail["format"] = format.name.into();
                detail["index"] = index.into();
                detail
            }
        }
    }

    /// A call in a message.
    fn call(&self, part: &Part) -> Option<Value> {
        let Part::Call { id, name, arguments, signature } = part else {
            return None;
        };
        let function = json!({"name": name, "arguments": arguments});
        let mut call = json!({"id": id, "type": "function", "function": function});
        if let Some(signature) = signature {
            let block = json!({"thought_signature": signature});
            match self.call_signing {
                CallSigning::Never => {}
                CallSigning::ExtraContent => call["extra_content"] = json!({"google": block}),
                CallSigning::ProviderFields => call["provider_specific_fields"] = block,
            }
        }
        Some(call)
    }

    fn deltas(&self, parts: &[Part]) -> Vec<Delta> {
        let mut deltas = Vec::new();
        let mut calls = 0;
        let mut blocks = 0;
        let mut thinks = false;
        for part in parts {
            match part {
                Part::Text(text) => {
                    // Google closes a thought where the answer begins.
                    let text = match std::mem::take(&mut thinks) {
                        true => format!("</thought>{text}"),
                        false => text.clone(),
                    };
                    let texts = draft::deltas(&text);
                    deltas.extend(texts.map(|text| self.content_delta(text)));
                }
                Part::Thought { text, .. }
                    if self.reasoning_output == ReasoningOutput::Thoughts =>
                {
                    let end = if thinks { "</thought>" } else { "" };
                    let text = format!("{end}<thought>{text}");
                    deltas.extend(draft::deltas(&text).map(thought_delta));
                    thinks = true;
                }
                _ if std::mem::take(&mut thinks) => {
                    deltas.push(thought_delta("</thought>"));
                    if let Part::Call { .. } = part {
                        self.call_deltas(part, calls, &mut deltas);
                        calls += 1;
                    }
                }
                Part::Call { .. } => {
                    self.call_deltas(part, calls, &mut deltas);
                    calls += 1;
                }
                Part::Thought { .. } | Part::Sealed { .. } => {
                    self.thought_deltas(part, blocks, &mut deltas);
                    blocks += 1;
                }
            }
        }
        deltas
    }

    /// A piece of the answer.
    fn content_delta(&self, text: &str) -> Delta {
        let logprobs =
            self.logprobs.as_ref().map_or(Value::Null, |logprobs| logprobs.content(text));
        Delta { logprobs, ..Delta::new(member("content", text)) }
    }

    fn thought_deltas(&self, part: &Part, index: usize, deltas: &mut Vec<Delta>) {
        let Part::Thought { text, signature, closed } = part else {
            deltas.extend(self.signature_delta(part, index));
            return;
        };
        let signed = |text: &str, signature: Option<&str>| Part::Thought {
            text: text.to_owned(),
            signature: signature.map(str::to_owned),
            closed: *closed,
        };
        let early = match self.style {
            SignatureStyle::Start => signature.as_deref(),
            _ => None,
        };
        let mut pieces = draft::deltas(text).enumerate().peekable();
        while let Some((at, piece)) = pieces.next() {
            let mut members = Vec::new();
            if self.sends_empty_content {
                members.push(member("content", ""));
            }
            if let Some(name) = self.member() {
                members.push(member(name, piece));
            }
            if self.reasoning_output == ReasoningOutput::Chunks {
                let closed = *closed && pieces.peek().is_none();
                members.push(format!(
                    "\"content\":[{{\"type\":\"thinking\",\"thinking\":[{{\"type\":\"text\",{}}}],\"closed\":{closed}}}]",
                    member("text", piece)
                ));
            }
            let early = early.filter(|_| at == 0);
            let block = self.signature_delta(&signed(piece, early), index);
            members.extend(block.map(|block| block.members));
            let logprobs =
                self.logprobs.as_ref().map_or(Value::Null, |logprobs| logprobs.reasoning(piece));
            deltas.push(Delta { logprobs, ..Delta::new(members.join(",")) });
        }
        if let (Some(signature), None) = (signature, early)
            && let Some(block) = self.signature_delta(&signed("", Some(signature)), index)
        {
            let late = self.style == SignatureStyle::Late;
            deltas.push(Delta { tokens: if late { 10 } else { 0 }, ..block });
        }
    }

    /// A delta with signed reasoning. An empty text is left out.
    fn signature_delta(&self, part: &Part, index: usize) -> Option<Delta> {
        let mut block = match self.reasoning_output {
            ReasoningOutput::Details => self.detail(part, index),
            ReasoningOutput::Blocks => {
                let mut block = block(part);
                block["index"] = index.into();
                block
            }
            _ => return None,
        };
        if let (ReasoningOutput::Details, Some("")) = (self.reasoning_output, part.thought())
            && let Some(members) = block.as_object_mut()
        {
            members.shift_remove(self.format.member);
        }
        Some(Delta::head(&format!("\"{}\":[{block}]", self.signature_member())))
    }

    fn call_deltas(&self, part: &Part, index: usize, deltas: &mut Vec<Delta>) {
        let Some(mut call) = self.call(part) else {
            return;
        };
        // Google's calls have no index, so each one is sent in one delta.
        if self.call_signing == CallSigning::ExtraContent {
            deltas.push(Delta::new(format!("\"tool_calls\":[{call}]")));
            return;
        }
        if self.sends_whole_calls && !self.legacy {
            call["index"] = index.into();
            deltas.push(Delta::new(format!("\"tool_calls\":[{call}]")));
            return;
        }
        let arguments = call["function"]["arguments"].take();
        call["function"]["arguments"] = "".into();
        let first = if self.legacy {
            format!("\"function_call\":{}", call["function"])
        } else {
            let mut numbered = json!({"index": index});
            if let (Some(numbered), Value::Object(members)) = (numbered.as_object_mut(), call) {
                numbered.extend(members);
            }
            format!("\"tool_calls\":[{numbered}]")
        };
        deltas.push(Delta::new(first));
        let arguments = match arguments.as_str().unwrap_or_default() {
            // Only OpenAI's own models write an empty object in a stream.
            "{}" if !self.official => "",
            arguments => arguments,
        };
        for piece in draft::deltas(arguments) {
            let piece = member("arguments", piece);
            deltas.push(Delta::new(if self.legacy {
                format!("\"function_call\":{{{piece}}}")
            } else {
                format!("\"tool_calls\":[{{\"index\":{index},\"function\":{{{piece}}}}}]")
            }));
        }
    }
}

impl Part {
    /// A readable thought.
    pub(crate) fn thought(&self) -> Option<&str> {
        match self {
            Self::Thought { text, .. } => Some(text),
            _ => None,
        }
    }
}

impl Delta {
    fn new(members: String) -> Self {
        Self { members, tokens: 1, logprobs: Value::Null }
    }

    /// A delta without a token of the model.
    fn head(members: &str) -> Self {
        Self { tokens: 0, ..Self::new(members.to_owned()) }
    }
}

/// The thoughts of a reply, numbered.
fn numbered(parts: &[Part]) -> impl Iterator<Item = (usize, &Part)> {
    let thoughts =
        parts.iter().filter(|part| matches!(part, Part::Thought { .. } | Part::Sealed { .. }));
    thoughts.enumerate()
}

/// An entry of `thinking_blocks`.
fn block(part: &Part) -> Value {
    match part {
        Part::Sealed { data, .. } => json!({"type": "redacted_thinking", "data": data}),
        Part::Thought { text, signature, .. } => {
            let signature = signature.as_deref().unwrap_or_default();
            json!({"type": "thinking", "thinking": text, "signature": signature})
        }
        _ => Value::Null,
    }
}

/// A piece of a thought in the content.
fn thought_delta(text: &str) -> Delta {
    let content = member("content", text);
    let block = json!({"google": {"thought": true}});
    Delta::new(format!("{content},\"extra_content\":{block}"))
}

fn member(name: &str, text: &str) -> String {
    format!("\"{name}\":{}", Value::from(text))
}
