//! A reply for a client, streamed or whole.
//!
//! The last event of a stream repeats every item, and each item's end repeats its text: what was
//! written is kept, in the spelling it was written in.

use serde_json::{Map, Value, json};
use throughline_canonical::{
    Amount, Block, BlockStart, Delta, EndReason, Event, Fault, FaultKind, Output, Reply, Request,
    Show, ToolChoice, Usage,
};

use super::faults::reply_code;
use super::{NAME, PHASE};
use crate::dialects::{ReplyWriter, Stamp};
use crate::json::escape;

/// Writes one reply.
pub(super) struct Writer {
    /// What no other reply has.
    stamp: String,
    /// The members of the response that never change, behind its status.
    settings: String,
    created: u64,
    sequence: u64,
    progress: Progress,
    open: Vec<Item>,
    /// Items that are done, by their place.
    done: Vec<(u32, String)>,
    items: u32,
    usage: Usage,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Progress {
    Waiting,
    Writing,
    Ended,
}

/// An item that is not done. All its texts are kept as they stand between quotes.
struct Item {
    /// The number of the block in the canonical reply.
    block: u32,
    place: u32,
    kind: Kind,
    id: String,
    /// All of its deltas up to the text, once there was one.
    delta: String,
    text: String,
    signature: String,
    /// Of a call: its id.
    call: String,
    /// Of a call: the tool.
    name: String,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Text,
    Refusal,
    Reasoning,
    Call,
}

impl Writer {
    pub(super) fn new(request: &Request, stamp: &Stamp) -> Self {
        Self {
            stamp: escaped(&stamp.id),
            settings: settings(request),
            created: stamp.created,
            sequence: 0,
            progress: Progress::Waiting,
            open: Vec::new(),
            done: Vec::new(),
            items: 0,
            usage: Usage::default(),
        }
    }

    /// Writes an event: its name, then `members`, which begin with a comma.
    fn event(&mut self, name: &str, members: &[&str], out: &mut Vec<u8>) {
        for piece in [
            "event: ",
            name,
            "\ndata: {\"type\":\"",
            name,
            "\",\"sequence_number\":",
        ] {
            out.extend_from_slice(piece.as_bytes());
        }
        digits(self.sequence, out);
        self.sequence += 1;
        for member in members {
            out.extend_from_slice(member.as_bytes());
        }
        out.extend_from_slice(b"}\n\n");
    }

    fn start(&mut self, out: &mut Vec<u8>) {
        if self.progress == Progress::Waiting {
            self.progress = Progress::Writing;
            let response = self.response("in_progress", "null", "null", "", "null");
            self.event("response.created", &[",\"response\":", &response], out);
            self.event("response.in_progress", &[",\"response\":", &response], out);
        }
    }

    fn begin(&mut self, number: u32, block: &BlockStart<'_>, out: &mut Vec<u8>) {
        let kind = match block {
            BlockStart::Text { .. } => Kind::Text,
            BlockStart::Thinking { .. } | BlockStart::Redacted { .. } => Kind::Reasoning,
            BlockStart::ToolCall { .. } => Kind::Call,
            // No client knows what to do with another dialect's.
            BlockStart::Opaque { .. } => return,
        };
        let mut item = self.item(number, kind);
        if let BlockStart::ToolCall { id, name } = block {
            item.call = escaped(id);
            item.name = escaped(name);
        }
        let json = item.json("in_progress");
        self.event(
            "response.output_item.added",
            &[&item.at(), ",\"item\":", &json],
            out,
        );
        if kind == Kind::Text {
            self.event(
                "response.content_part.added",
                &[&item.part_at(), ",\"part\":", &item.part()],
                out,
            );
        }
        self.open.push(item);
        match block {
            BlockStart::Text { text } => self.grow(number, text, out),
            BlockStart::Thinking { text, signature } => {
                self.grow(number, text, out);
                self.sign(number, signature);
            }
            BlockStart::Redacted { data } => self.sign(number, data),
            _ => {}
        }
    }

    fn item(&mut self, number: u32, kind: Kind) -> Item {
        let place = self.items;
        self.items += 1;
        let sort = match kind {
            Kind::Text | Kind::Refusal => "msg",
            Kind::Reasoning => "rs",
            Kind::Call => "fc",
        };
        Item {
            block: number,
            place,
            kind,
            id: format!("{sort}_{}_{place}", self.stamp),
            delta: String::new(),
            text: String::new(),
            signature: String::new(),
            call: String::new(),
            name: String::new(),
        }
    }

    /// Writes a delta. This is what a long reply consists of: nothing is made here but its bytes
    /// and the copy that the end repeats.
    fn grow(&mut self, number: u32, text: &str, out: &mut Vec<u8>) {
        let Some(at) = self.open.iter().rposition(|item| item.block == number) else {
            return;
        };
        if text.is_empty() {
            return;
        }
        if self.open[at].delta.is_empty() {
            let item = &self.open[at];
            let (begin, part) = (item.part_at(), item.part());
            if item.kind == Kind::Reasoning {
                self.event(
                    "response.reasoning_summary_part.added",
                    &[&begin, ",\"part\":", &part],
                    out,
                );
            }
            let name = self.open[at].kind.delta();
            self.open[at].delta =
                format!("event: {name}\ndata: {{\"type\":\"{name}\"{begin},\"delta\":\"");
        }
        let Some(item) = self.open.get_mut(at) else {
            return;
        };
        let before = item.text.len();
        escape(text, &mut item.text);
        out.reserve(item.delta.len() + item.text.len() - before + 64);
        out.extend_from_slice(item.delta.as_bytes());
        out.extend_from_slice(&item.text.as_bytes()[before..]);
        out.extend_from_slice(match item.kind {
            Kind::Text => b"\",\"logprobs\":[],\"sequence_number\":",
            _ => b"\",\"sequence_number\":",
        });
        digits(self.sequence, out);
        self.sequence += 1;
        out.extend_from_slice(b"}\n\n");
    }

    fn sign(&mut self, number: u32, signature: &str) {
        let item = self.open.iter_mut().rev().find(|item| item.block == number);
        if let Some(item) = item
            && !signature.is_empty()
        {
            item.signature = escaped(signature);
        }
    }

    fn end_block(&mut self, number: u32, status: &str, out: &mut Vec<u8>) {
        let found = self.open.iter().rposition(|item| item.block == number);
        if let Some(at) = found {
            if self.open[at].kind == Kind::Call && self.open[at].text.is_empty() {
                // Clients read arguments as JSON, and no text is none.
                self.grow(number, "{}", out);
            }
            let item = self.open.remove(at);
            self.end_item(&item, status, out);
        }
    }

    fn end_item(&mut self, item: &Item, status: &str, out: &mut Vec<u8>) {
        let at = item.part_at();
        let text = item.text.as_str();
        match item.kind {
            Kind::Text | Kind::Refusal => {
                let text = [&at, ",\"text\":\"", text, "\",\"logprobs\":[]"];
                self.event("response.output_text.done", &text, out);
                self.event(
                    "response.content_part.done",
                    &[&at, ",\"part\":", &item.part()],
                    out,
                );
            }
            Kind::Reasoning if !item.delta.is_empty() => {
                let text = [&at, ",\"text\":\"", text, "\""];
                self.event("response.reasoning_summary_text.done", &text, out);
                let part = [&at, ",\"part\":", &item.part()];
                self.event("response.reasoning_summary_part.done", &part, out);
            }
            Kind::Reasoning => {}
            Kind::Call => {
                let call = [
                    &at,
                    ",\"name\":\"",
                    &item.name,
                    "\",\"arguments\":\"",
                    text,
                    "\"",
                ];
                self.event("response.function_call_arguments.done", &call, out);
            }
        }
        let json = item.json(status);
        self.event(
            "response.output_item.done",
            &[&item.at(), ",\"item\":", &json],
            out,
        );
        self.done.push((item.place, json));
    }

    fn end(&mut self, reason: &EndReason, out: &mut Vec<u8>) {
        let ending = match Ending::of(reason) {
            Ok(ending) => ending,
            Err(fault) => return self.fail(&fault, out),
        };
        while let Some(item) = self.open.first() {
            self.end_block(item.block, ending.status, out);
        }
        self.progress = Progress::Ended;
        let output = self.output();
        let usage = usage(&self.usage);
        let response = self.response(ending.status, "null", ending.details, &output, &usage);
        self.event(ending.event, &[",\"response\":", &response], out);
    }

    /// Ends the reply with a fault. Items that are open stay so: what a model did not finish must
    /// not be taken for finished.
    fn fail(&mut self, fault: &Fault, out: &mut Vec<u8>) {
        self.progress = Progress::Ended;
        let error = error(fault);
        let output = self.output();
        let usage = usage(&self.usage);
        let response = self.response("failed", &error, "null", &output, &usage);
        self.event("response.failed", &[",\"response\":", &response], out);
    }

    /// All items that are done, in their order.
    fn output(&mut self) -> String {
        self.done.sort_by_key(|(place, _)| *place);
        let items: Vec<&str> = self.done.iter().map(|(_, item)| item.as_str()).collect();
        items.join(",")
    }

    fn response(
        &self,
        status: &str,
        error: &str,
        details: &str,
        output: &str,
        usage: &str,
    ) -> String {
        let Self {
            stamp,
            created,
            settings,
            ..
        } = self;
        format!(
            "{{\"id\":\"resp_{stamp}\",\"object\":\"response\",\"created_at\":{created},\
             \"status\":\"{status}\",\"error\":{error},\"incomplete_details\":{details},{settings},\
             \"output\":[{output}],\"usage\":{usage}}}"
        )
    }
}

impl ReplyWriter for Writer {
    fn push(&mut self, event: &Event<'_>, out: &mut Vec<u8>) {
        if self.progress == Progress::Ended {
            return;
        }
        self.start(out);
        match event {
            Event::BlockDelta { index, delta } => match delta {
                Delta::Text(text) if self.takes(*index, &[Kind::Text, Kind::Reasoning]) => {
                    self.grow(*index, text, out);
                }
                Delta::Thinking(text) if self.takes(*index, &[Kind::Reasoning]) => {
                    self.grow(*index, text, out);
                }
                Delta::ToolArguments(text) if self.takes(*index, &[Kind::Call]) => {
                    self.grow(*index, text, out);
                }
                Delta::Signature(signature) => self.sign(*index, signature),
                _ => {}
            },
            Event::BlockStarted { index, block } => self.begin(*index, block, out),
            Event::BlockEnded { index } => self.end_block(*index, "completed", out),
            Event::Usage(usage) => self.usage.update(*usage),
            Event::Fault(fault) => self.fail(fault, out),
            Event::Ended { reason } => self.end(reason, out),
            Event::MessageStarted { .. } | Event::Transformed { .. } => {}
        }
    }

    fn keep_alive(&mut self, out: &mut Vec<u8>) {
        if self.progress == Progress::Ended {
            return;
        }
        // Clients refuse a stream that begins with anything else.
        self.start(out);
        self.event("keepalive", &[], out);
    }

    fn whole(&self, reply: &Reply) -> Vec<u8> {
        let mut writer = Self {
            stamp: self.stamp.clone(),
            settings: self.settings.clone(),
            created: self.created,
            sequence: 0,
            progress: Progress::Writing,
            open: Vec::new(),
            done: Vec::new(),
            items: 0,
            usage: reply.usage,
        };
        let reason = reply.reason.as_ref().unwrap_or(&EndReason::Cut);
        let ending = Ending::of(reason);
        let (status, details) = match &ending {
            Ok(ending) => (ending.status, ending.details),
            Err(_) => ("failed", "null"),
        };
        let last = reply.content.len().saturating_sub(1);
        for (place, block) in reply.content.iter().enumerate() {
            if let Some(mut item) = writer.whole_item(block) {
                if item.kind == Kind::Call && item.text.is_empty() {
                    item.text.push_str("{}");
                }
                // What was cut is the last of it.
                let status = if place == last && status != "completed" {
                    "incomplete"
                } else {
                    "completed"
                };
                writer.done.push((item.place, item.json(status)));
            }
        }
        let error = match (ending, &reply.fault) {
            (_, Some(fault)) => error(fault),
            (Err(fault), None) => error(&fault),
            (Ok(_), None) => "null".to_owned(),
        };
        let output = writer.output();
        let usage = usage(&reply.usage);
        writer
            .response(status, &error, details, &output, &usage)
            .into_bytes()
    }
}

impl Writer {
    fn takes(&self, number: u32, kinds: &[Kind]) -> bool {
        let item = self.open.iter().rev().find(|item| item.block == number);
        item.is_some_and(|item| kinds.contains(&item.kind))
    }

    fn whole_item(&mut self, block: &Block) -> Option<Item> {
        let signed =
            |signature: &Option<String>| signature.as_deref().map(escaped).unwrap_or_default();
        let with = |mut item: Item, text: &str, signature: String| {
            item.text = escaped(text);
            item.signature = signature;
            Some(item)
        };
        match block {
            Block::Text { text, signature } => {
                with(self.item(0, Kind::Text), text, signed(signature))
            }
            Block::Refusal { text } => with(self.item(0, Kind::Refusal), text, String::new()),
            Block::Thinking { text, signature } => {
                with(self.item(0, Kind::Reasoning), text, signed(signature))
            }
            Block::Redacted { data } => with(self.item(0, Kind::Reasoning), "", escaped(data)),
            Block::ToolCall {
                id,
                name,
                arguments,
                ..
            } => {
                let mut item = self.item(0, Kind::Call);
                item.call = escaped(id);
                item.name = escaped(name);
                with(item, arguments, String::new())
            }
            Block::ToolResult { .. } | Block::Media { .. } | Block::Opaque { .. } => None,
        }
    }
}

impl Kind {
    fn delta(self) -> &'static str {
        match self {
            Self::Text => "response.output_text.delta",
            Self::Refusal => "response.refusal.delta",
            Self::Reasoning => "response.reasoning_summary_text.delta",
            Self::Call => "response.function_call_arguments.delta",
        }
    }
}

impl Item {
    /// Where the item stands, as members of an event about it.
    fn at(&self) -> String {
        format!(",\"output_index\":{}", self.place)
    }

    /// Where its text stands, as members of an event about that.
    fn part_at(&self) -> String {
        let Self { id, place, .. } = self;
        let part = match self.kind {
            Kind::Text | Kind::Refusal => ",\"content_index\":0",
            Kind::Reasoning => ",\"summary_index\":0",
            Kind::Call => "",
        };
        format!(",\"item_id\":\"{id}\",\"output_index\":{place}{part}")
    }

    fn part(&self) -> String {
        let text = &self.text;
        match self.kind {
            Kind::Text => format!(
                "{{\"type\":\"output_text\",\"text\":\"{text}\",\"annotations\":[],\"logprobs\":[]}}"
            ),
            Kind::Refusal => format!("{{\"type\":\"refusal\",\"refusal\":\"{text}\"}}"),
            Kind::Reasoning | Kind::Call => {
                format!("{{\"type\":\"summary_text\",\"text\":\"{text}\"}}")
            }
        }
    }

    fn json(&self, status: &str) -> String {
        let Self {
            id,
            text,
            signature,
            call,
            name,
            ..
        } = self;
        // Nothing is in an item that has just begun.
        let begun = status != "in_progress";
        match self.kind {
            Kind::Text | Kind::Refusal => {
                let part = if begun { self.part() } else { String::new() };
                let phase = match signature.strip_prefix(PHASE) {
                    Some(phase) => format!(",\"phase\":\"{phase}\""),
                    None => String::new(),
                };
                format!(
                    "{{\"id\":\"{id}\",\"type\":\"message\",\"status\":\"{status}\",\
                     \"role\":\"assistant\",\"content\":[{part}]{phase}}}"
                )
            }
            Kind::Reasoning => {
                let part = if text.is_empty() {
                    String::new()
                } else {
                    self.part()
                };
                let encrypted = if signature.is_empty() {
                    "null".to_owned()
                } else {
                    format!("\"{signature}\"")
                };
                format!(
                    "{{\"id\":\"{id}\",\"type\":\"reasoning\",\"status\":\"{status}\",\
                     \"summary\":[{part}],\"encrypted_content\":{encrypted}}}"
                )
            }
            Kind::Call => format!(
                "{{\"id\":\"{id}\",\"type\":\"function_call\",\"status\":\"{status}\",\
                 \"call_id\":\"{call}\",\"name\":\"{name}\",\"arguments\":\"{text}\"}}"
            ),
        }
    }
}

/// How a reply ends that did not fail.
struct Ending {
    event: &'static str,
    status: &'static str,
    details: &'static str,
}

impl Ending {
    fn of(reason: &EndReason) -> Result<Self, Fault> {
        let incomplete = |details| Ending {
            event: "response.incomplete",
            status: "incomplete",
            details,
        };
        Ok(match reason {
            EndReason::Length => incomplete("{\"reason\":\"max_output_tokens\"}"),
            EndReason::Refusal => incomplete("{\"reason\":\"content_filter\"}"),
            EndReason::Other(word) if word == "content_filter" => {
                incomplete("{\"reason\":\"content_filter\"}")
            }
            EndReason::Stop
            | EndReason::StopSequence
            | EndReason::ToolCalls
            | EndReason::Pause
            | EndReason::Other(_) => Ending {
                event: "response.completed",
                status: "completed",
                details: "null",
            },
            EndReason::Failed => {
                return Err(Fault::new(FaultKind::Internal, "the reply failed"));
            }
            EndReason::Cut => {
                let message = "the provider's reply stopped before its end";
                return Err(Fault::new(FaultKind::Unreachable, message));
            }
        })
    }
}

fn error(fault: &Fault) -> String {
    json!({"code": reply_code(fault.kind), "message": fault.message}).to_string()
}

/// Strict clients want all counts, also where nobody counted.
fn usage(usage: &Usage) -> String {
    let count = |count: Option<u64>| count.unwrap_or_default();
    let (read, write) = (count(usage.cache_read), count(usage.cache_write));
    let input = count(usage.input)
        .saturating_add(read)
        .saturating_add(write);
    let output = count(usage.output);
    json!({
        "input_tokens": input,
        "input_tokens_details": {"cached_tokens": read, "cache_write_tokens": write},
        "output_tokens": output,
        "output_tokens_details": {"reasoning_tokens": count(usage.thinking)},
        "total_tokens": input.saturating_add(output),
    })
    .to_string()
}

/// What the response says of the request.
fn settings(request: &Request) -> String {
    let extra = request.extra.get(NAME);
    let own = |key: &str| extra.and_then(|extra| extra.get(key)).cloned();
    let choice = match &request.tool_choice {
        None | Some(ToolChoice::Auto) => "auto".into(),
        Some(ToolChoice::None) => "none".into(),
        Some(ToolChoice::Required) => "required".into(),
        Some(ToolChoice::Named { name }) => json!({"type": "function", "name": name}),
    };
    let effort = match request.thinking.amount {
        Some(Amount::Off) => Some("none"),
        Some(Amount::Effort { effort }) => Some(effort.word()),
        _ => None,
    };
    let summary = match request.thinking.show {
        Some(Show::Full) => Some("detailed"),
        Some(Show::Summary) => Some("auto"),
        _ => None,
    };
    let format = match &request.output {
        Output::Text => json!({"type": "text"}),
        Output::Json => json!({"type": "json_object"}),
        Output::Schema {
            name,
            schema,
            strict,
        } => json!({
            "type": "json_schema",
            "name": name.as_deref().unwrap_or("output"),
            "schema": schema,
            "strict": strict.unwrap_or(false),
        }),
    };
    let mut members = Map::new();
    for (key, value) in [
        ("model", request.model.as_str().into()),
        ("instructions", Value::Null),
        ("max_output_tokens", request.max_tokens.into()),
        ("metadata", own("metadata").unwrap_or_else(|| json!({}))),
        (
            "parallel_tool_calls",
            request.parallel_calls.unwrap_or(true).into(),
        ),
        ("previous_response_id", own("previous_response_id").into()),
        ("reasoning", json!({"effort": effort, "summary": summary})),
        ("store", false.into()),
        ("temperature", request.sampling.temperature.into()),
        ("text", json!({"format": format})),
        ("tool_choice", own("tool_choice").unwrap_or(choice)),
        // The client knows its tools; they may be as long as everything else.
        ("tools", json!([])),
        ("top_p", request.sampling.top_p.into()),
        (
            "truncation",
            own("truncation").unwrap_or_else(|| "disabled".into()),
        ),
    ] {
        members.insert(key.to_owned(), value);
    }
    let text = Value::Object(members).to_string();
    let inside = text
        .strip_prefix('{')
        .and_then(|text| text.strip_suffix('}'));
    inside.unwrap_or_default().to_owned()
}

fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    escape(text, &mut out);
    out
}

/// Writes a number.
fn digits(mut number: u64, out: &mut Vec<u8>) {
    let mut buffer = [0; 20];
    let mut at = buffer.len();
    loop {
        at -= 1;
        buffer[at] = b'0' + (number % 10) as u8;
        number /= 10;
        if number == 0 {
            break;
        }
    }
    out.extend_from_slice(&buffer[at..]);
}
