//! The response as events. They are numbered from 0; an item is sent whole when it is done, and the
//! last event repeats the whole response.

use bytes::Bytes;
use serde_json::{Value, json};

use super::reply::{Content, Ending, Output, Reply, raw_part, said_part, summary_part};
use crate::draft;
use crate::fault::Frame;
use crate::style::SignatureStyle;

/// The length of `encrypted_content` in an item that is not done yet. Clients must not store this
/// early value.
const EARLY_CHARACTERS: usize = 16;

/// With the `late` style, a reasoning item is done after this many token times.
const LATE_TOKENS: u32 = 10;

/// Writes a response.
pub(crate) fn write(reply: &Reply, style: SignatureStyle) -> Vec<Frame> {
    let mut writer = Writer { frames: Vec::new(), style };
    let start = reply.json_at_start();
    writer.event(json!({"type": "response.created", "response": start}));
    writer.event(json!({"type": "response.in_progress", "response": start}));
    for (index, output) in reply.outputs.iter().enumerate() {
        let broken = reply.ending == Ending::Failed && !output.whole;
        writer.output(index, output, broken);
    }
    let last = match reply.ending {
        Ending::Completed => "response.completed",
        Ending::Incomplete(_) => "response.incomplete",
        Ending::Failed => "response.failed",
    };
    writer.event(json!({"type": last, "response": reply.json()}));
    writer.frames
}

struct Writer {
    frames: Vec<Frame>,
    style: SignatureStyle,
}

/// The position of a text within its item.
struct PartPosition<'a> {
    item: &'a str,
    output: usize,
    /// The member with the index of the part, if the item has parts.
    part: Option<(&'static str, usize)>,
}

impl PartPosition<'_> {
    /// The members of an event for this position.
    fn event(&self, kind: &str, more: Value) -> Value {
        let mut event = json!({"type": kind, "item_id": self.item, "output_index": self.output});
        if let Value::Object(members) = &mut event {
            members.extend(self.part.map(|(key, index)| (key.to_owned(), index.into())));
            if let Value::Object(more) = more {
                members.extend(more);
            }
        }
        event
    }
}

impl Writer {
    fn event(&mut self, mut event: Value) {
        event["sequence_number"] = self.frames.len().into();
        let frame = Frame::event(event["type"].as_str(), &event);
        self.frames.push(frame);
    }

    fn output(&mut self, index: usize, output: &Output, broken: bool) {
        let item = self.item_at_start(output);
        self.event(
            json!({"type": "response.output_item.added", "output_index": index, "item": item}),
        );
        let position = |part| PartPosition { item: &output.id, output: index, part };
        match &output.content {
            Content::Reasoning { summary, raw, .. } => {
                for (at, text) in summary.iter().enumerate() {
                    self.summary(&position(Some(("summary_index", at))), text, broken);
                }
                if let Some(raw) = raw {
                    self.part(&position(Some(("content_index", 0))), &RAW, (raw, &[]), broken);
                }
            }
            Content::Message { text, refusal, annotations, .. } => {
                let kind = if *refusal { &REFUSAL } else { &TEXT };
                let sources: &[Value] = if *refusal { &[] } else { annotations };
                self.part(&position(Some(("content_index", 0))), kind, (text, sources), broken);
            }
            Content::Call { arguments, .. } => {
                let position = position(None);
                let name = "response.function_call_arguments";
                self.deltas(&position, name, arguments, "");
                if !broken {
                    let done = json!({ "arguments": arguments });
                    self.event(position.event(&format!("{name}.done"), done));
                }
            }
        }
        if !broken {
            self.event(json!({"type": "response.output_item.done", "output_index": index,
                              "item": output.json()}));
            let late = matches!(output.content, Content::Reasoning { .. })
                && self.style == SignatureStyle::Late;
            if let Some(frame) = self.frames.last_mut().filter(|_| late) {
                frame.tokens = LATE_TOKENS;
            }
        }
    }

    /// An item with only its id.
    fn item_at_start(&self, output: &Output) -> Value {
        let mut item = output.json();
        match &output.content {
            Content::Reasoning { encrypted, raw, .. } => {
                item["summary"] = json!([]);
                if raw.is_some() {
                    item["content"] = json!([]);
                }
                if let Some(whole) = encrypted
                    && self.style != SignatureStyle::Start
                {
                    item["encrypted_content"] = whole.get(..EARLY_CHARACTERS).unwrap_or("").into();
                }
                if let Value::Object(members) = &mut item {
                    members.remove("status");
                }
                return item;
            }
            Content::Message { .. } => item["content"] = json!([]),
            Content::Call { .. } => item["arguments"] = "".into(),
        }
        item["status"] = "in_progress".into();
        item
    }

    fn summary(&mut self, position: &PartPosition<'_>, text: &str, broken: bool) {
        let part = json!({ "part": summary_part("") });
        self.event(position.event("response.reasoning_summary_part.added", part));
        self.deltas(position, "response.reasoning_summary_text", text, "");
        if !broken {
            let done = json!({ "text": text });
            self.event(position.event("response.reasoning_summary_text.done", done));
            let done = json!({ "part": summary_part(text) });
            self.event(position.event("response.reasoning_summary_part.done", done));
        }
    }

    fn part(
        &mut self,
        position: &PartPosition<'_>,
        kind: &Part,
        (text, annotations): (&str, &[Value]),
        broken: bool,
    ) {
        let added = json!({ "part": (kind.part)("") });
        self.event(position.event("response.content_part.added", added));
        self.deltas(position, kind.event, text, kind.extra);
        for (at, annotation) in annotations.iter().enumerate() {
            let added = json!({"annotation_index": at, "annotation": annotation});
            self.event(position.event(&format!("{}.annotation.added", kind.event), added));
        }
        if !broken {
            let mut done = json!({ kind.member: text });
            if !kind.extra.is_empty() {
                done["logprobs"] = json!([]);
            }
            self.event(position.event(&format!("{}.done", kind.event), done));
            let mut part = (kind.part)(text);
            if !annotations.is_empty() {
                part["annotations"] = annotations.into();
            }
            self.event(position.event("response.content_part.done", json!({ "part": part })));
        }
    }

    /// Deltas are formatted by hand because a bench sends 200,000 of them.
    fn deltas(&mut self, position: &PartPosition<'_>, event: &str, text: &str, extra: &str) {
        let (item, output) = (Value::from(position.item), position.output);
        let part =
            position.part.map(|(key, index)| format!(",\"{key}\":{index}")).unwrap_or_default();
        for piece in draft::deltas(text) {
            let number = self.frames.len();
            let piece = Value::from(piece);
            let bytes = format!(
                "event: {event}.delta\ndata: {{\"type\":\"{event}.delta\",\"item_id\":{item},\"output_index\":{output}{part},\"delta\":{piece}{extra},\"sequence_number\":{number}}}\n\n"
            );
            self.frames.push(Frame { bytes: Bytes::from(bytes), tokens: 1 });
        }
    }
}

/// A kind of content part: the names of its events and of its text member.
struct Part {
    event: &'static str,
    member: &'static str,
    /// Further members of each delta, as JSON.
    extra: &'static str,
    part: fn(&str) -> Value,
}

static TEXT: Part = Part {
    event: "response.output_text",
    member: "text",
    extra: ",\"logprobs\":[]",
    part: |text| said_part(text, false),
};
static REFUSAL: Part = Part {
    event: "response.refusal",
    member: "refusal",
    extra: "",
    part: |text| said_part(text, true),
};
static RAW: Part =
    Part { event: "response.reasoning_text", member: "text", extra: "", part: raw_part };
