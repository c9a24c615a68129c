//! Writes a reply for a client, streamed or whole.
//!
//! The last event of a stream repeats every item, and the end of each item repeats its text. So
//! everything that was written is kept, in the same spelling.

use std::collections::BTreeMap;

use serde_json::Value;
use throughline_canonical::{
    Block, BlockStart, Citation, Delta, EndDetails, EndReason, Event, Fault, Reply, Request, Usage,
};

use self::items::{Item, OutputKind, escaped};
pub(super) use self::response::usage;
use self::response::{Ending, ResponseObject, error, settings};
use super::{NAME, RepeatedMembers};
use crate::dialects::shared::arguments::EMPTY_OBJECT;
use crate::dialects::shared::number::write_number;
use crate::dialects::{ReplyIdentity, ReplyWriter};
use crate::json::escape;

mod items;
pub(super) mod recorder;
pub(super) mod response;

/// Writes one reply.
#[derive(Default)]
pub(super) struct Writer {
    constants: Constants,
    sequence: u64,
    progress: Progress,
    /// Open items, by the index of their block.
    open: BTreeMap<u32, Item>,
    /// The item that ended last. Only the next event shows whether it is complete or the reply was
    /// cut.
    pending: Option<Item>,
    /// Completed items, by their index.
    done: Vec<(u32, String)>,
    items: u32,
    /// Open opaque items of this dialect, by the index of their block: their JSON so far.
    opaque: BTreeMap<u32, String>,
    /// Citations of open texts, by the index of their block.
    citations: BTreeMap<u32, Vec<Citation>>,
    details: EndDetails,
    usage: Usage,
    /// Whether the model declined in words.
    refused: bool,
    /// Whether a text ended without a character.
    had_empty_text: bool,
    /// The final response.
    last: Option<String>,
}

/// What is known of a response before its first event.
#[derive(Clone, Default)]
struct Constants {
    /// The id of the response.
    id: String,
    /// The unique part of it, which the ids of items share.
    identity: String,
    /// The constant members of the response, after its status.
    settings: String,
    created: u64,
    /// Reads the clock.
    now: Option<fn() -> u64>,
}

#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum Progress {
    #[default]
    Waiting,
    Writing,
    Ended,
}

impl Writer {
    pub(super) fn new(
        request: &Request,
        repeated: &RepeatedMembers,
        identity: &ReplyIdentity,
    ) -> Self {
        let constants = Constants {
            id: format!("resp_{}", escaped(&identity.id)),
            identity: escaped(&identity.id),
            settings: settings(request, identity.model(request), repeated),
            created: identity.created,
            now: Some(identity.now),
        };
        Self { constants, ..Self::default() }
    }

    fn event(&mut self, name: &str, members: &[&str], out: &mut Vec<u8>) {
        write_event(name, members, &mut self.sequence, out);
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
            BlockStart::Text { .. } => OutputKind::Text,
            BlockStart::Refusal { .. } => OutputKind::Refusal,
            BlockStart::Thinking { .. } | BlockStart::Redacted { .. } => OutputKind::Reasoning,
            BlockStart::ToolCall { .. } => OutputKind::Call,
            BlockStart::Opaque { dialect, .. } if dialect == NAME => {
                self.opaque.insert(number, String::new());
                return;
            }
            // Clients cannot use items of another dialect.
            BlockStart::Opaque { .. } => return,
        };
        self.refused |= kind == OutputKind::Refusal;
        // A repeated index is another block.
        self.end_block(number, "completed", out);
        let mut item = Item::new(kind);
        if let BlockStart::ToolCall { id, name } = block {
            item.call = escaped(id);
            item.name = escaped(name);
        }
        self.open.insert(number, item);
        // A text that stays empty only carries a signature, which this dialect has no member for.
        // Clients take the last message for the answer, so it must not become one.
        if kind != OutputKind::Text {
            self.announce(number, out);
        }
        match block {
            BlockStart::Text { text } | BlockStart::Refusal { text } => {
                self.grow(number, text, out);
            }
            BlockStart::Thinking { text, signature } => {
                self.grow(number, text, out);
                self.sign(number, signature);
            }
            BlockStart::Redacted { data } => self.sign(number, data),
            _ => {}
        }
    }

    /// Gives an open item its index and tells the client about it, once.
    fn announce(&mut self, number: u32, out: &mut Vec<u8>) {
        let Some(item) = self.open.get_mut(&number).filter(|item| item.id.is_empty()) else {
            return;
        };
        item.assign_index(&self.constants.identity, &mut self.items);
        let sequence = &mut self.sequence;
        let (at, json) = (item.at(), item.json("in_progress"));
        write_event("response.output_item.added", &[&at, ",\"item\":", &json], sequence, out);
        if matches!(item.kind, OutputKind::Text | OutputKind::Refusal) {
            let part = [&item.part_at(), ",\"part\":", &item.part()];
            write_event("response.content_part.added", &part, sequence, out);
        }
    }

    fn item(&mut self, kind: OutputKind) -> Item {
        let mut item = Item::new(kind);
        item.assign_index(&self.constants.identity, &mut self.items);
        item
    }

    /// Writes a delta. Long replies consist of these, so this only writes the bytes and the copy
    /// for the end.
    fn grow(&mut self, number: u32, text: &str, out: &mut Vec<u8>) {
        if text.is_empty() {
            return;
        }
        self.announce(number, out);
        let Some(item) = self.open.get_mut(&number) else {
            return;
        };
        if item.delta.is_empty() {
            let (name, at) = (item.kind.delta(), item.part_at());
            item.delta = format!("event: {name}\ndata: {{\"type\":\"{name}\"{at},\"delta\":\"");
            if item.kind == OutputKind::Reasoning {
                let (name, part) = ("response.reasoning_summary_part.added", item.part());
                write_event(name, &[&at, ",\"part\":", &part], &mut self.sequence, out);
            }
        }
        let before = item.text.len();
        escape(text, &mut item.text);
        out.reserve(item.delta.len() + item.text.len() - before + 64);
        out.extend_from_slice(item.delta.as_bytes());
        out.extend_from_slice(&item.text.as_bytes()[before..]);
        out.extend_from_slice(match item.kind {
            OutputKind::Text => b"\",\"logprobs\":[],\"sequence_number\":",
            _ => b"\",\"sequence_number\":",
        });
        write_number(self.sequence, out);
        self.sequence += 1;
        out.extend_from_slice(b"}\n\n");
    }

    fn sign(&mut self, number: u32, signature: &str) {
        if let Some(item) = self.open.get_mut(&number)
            && !signature.is_empty()
        {
            item.signature = escaped(signature);
        }
    }

    fn end_block(&mut self, number: u32, status: &str, out: &mut Vec<u8>) {
        if let Some(item) = self.take_item(number, out) {
            self.end_item(&item, status, out);
        }
    }

    /// Removes the item of a block that has ended.
    fn take_item(&mut self, number: u32, out: &mut Vec<u8>) -> Option<Item> {
        let empty = |item: &Item| item.kind == OutputKind::Call && item.text.is_empty();
        if self.open.get(&number).is_some_and(empty) {
            // Clients parse arguments as JSON, and an empty text is not JSON.
            self.grow(number, EMPTY_OBJECT, out);
        }
        let cited = self.citations.remove(&number).unwrap_or_default();
        if !cited.is_empty() {
            self.announce(number, out);
        }
        let mut item = self.open.remove(&number)?;
        if item.id.is_empty() {
            self.had_empty_text = true;
            return None;
        }
        item.cite(&cited);
        Some(item)
    }

    /// Writes the end of the item that ended last.
    fn release(&mut self, status: &str, out: &mut Vec<u8>) {
        if let Some(item) = self.pending.take() {
            self.end_item(&item, status, out);
        }
    }

    fn end_item(&mut self, item: &Item, status: &str, out: &mut Vec<u8>) {
        let at = item.part_at();
        let text = item.text.as_str();
        match item.kind {
            OutputKind::Text | OutputKind::Refusal => {
                if item.kind == OutputKind::Refusal {
                    let words = [&at, ",\"refusal\":\"", text, "\""];
                    self.event("response.refusal.done", &words, out);
                } else {
                    // The character ranges of citations are known only now.
                    for (number, annotation) in item.annotations.iter().enumerate() {
                        let number = number.to_string();
                        let cited = [
                            &at,
                            ",\"annotation_index\":",
                            &number,
                            ",\"annotation\":",
                            annotation,
                        ];
                        self.event("response.output_text.annotation.added", &cited, out);
                    }
                    let text = [&at, ",\"text\":\"", text, "\",\"logprobs\":[]"];
                    self.event("response.output_text.done", &text, out);
                }
                self.event("response.content_part.done", &[&at, ",\"part\":", &item.part()], out);
            }
            OutputKind::Reasoning if !item.delta.is_empty() => {
                let text = [&at, ",\"text\":\"", text, "\""];
                self.event("response.reasoning_summary_text.done", &text, out);
                let part = [&at, ",\"part\":", &item.part()];
                self.event("response.reasoning_summary_part.done", &part, out);
            }
            OutputKind::Reasoning => {}
            OutputKind::Call => {
                let call = [&at, ",\"name\":\"", &item.name, "\",\"arguments\":\"", text, "\""];
                self.event("response.function_call_arguments.done", &call, out);
            }
        }
        let json = item.json(status);
        self.event("response.output_item.done", &[&item.at(), ",\"item\":", &json], out);
        self.done.push((item.position, json));
    }

    /// Writes an opaque item of this dialect. Its original deltas are unknown, but clients count
    /// items when they are added, so it gets its index here.
    fn opaque_item(&mut self, json: &str, out: &mut Vec<u8>) {
        let Ok(Value::Object(mut item)) = serde_json::from_str(json) else {
            return;
        };
        let position = self.items;
        self.items += 1;
        let whole = Value::Object(item.clone()).to_string();
        if let Some(status) = item.get_mut("status") {
            *status = "in_progress".into();
        }
        let begun = Value::Object(item).to_string();
        let at = format!(",\"output_index\":{position},\"item\":");
        self.event("response.output_item.added", &[&at, &begun], out);
        self.event("response.output_item.done", &[&at, &whole], out);
        self.done.push((position, whole));
    }

    fn end(&mut self, reason: &EndReason, out: &mut Vec<u8>) {
        let ending = match Ending::of(reason, self.refused) {
            Ok(ending) => ending,
            Err(fault) => return self.fail(&fault, out),
        };
        let last = self.items.saturating_sub(1);
        let cut = self.pending.as_ref().is_some_and(|item| item.position == last);
        self.release(if cut { ending.status } else { "completed" }, out);
        while let Some((&number, _)) = self.open.first_key_value() {
            self.end_block(number, ending.status, out);
        }
        if let Some(words) = explained(reason, self.refused, &self.details) {
            let text = words.to_owned().into();
            self.begin(0, &BlockStart::Refusal { text }, out);
            self.end_block(0, "completed", out);
        } else if self.items == 0 && self.had_empty_text {
            // The model said nothing at all.
            self.open.insert(0, Item::new(OutputKind::Text));
            self.announce(0, out);
            self.end_block(0, ending.status, out);
        }
        self.progress = Progress::Ended;
        let output = self.output();
        let usage = usage(&self.usage);
        let response = self.response(ending.status, "null", ending.details, &output, &usage);
        self.event(ending.event, &[",\"response\":", &response], out);
        self.last = Some(response);
    }

    /// Ends the reply with a fault. Open items stay open: clients must not take them for complete.
    fn fail(&mut self, fault: &Fault, out: &mut Vec<u8>) {
        self.release("completed", out);
        self.progress = Progress::Ended;
        let error = error(fault);
        let output = self.output();
        let usage = usage(&self.usage);
        let response = self.response("failed", &error, "null", &output, &usage);
        self.event("response.failed", &[",\"response\":", &response], out);
        self.last = Some(response);
    }

    /// All completed items, in order.
    fn output(&mut self) -> String {
        self.done.sort_by_key(|(position, _)| *position);
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
        let Constants { id, settings, created, now, .. } = &self.constants;
        let clock = now.filter(|_| status == "completed");
        let completed = clock.map(|now| now().max(*created));
        let created = *created;
        ResponseObject { id, created, completed, status, error, details, settings, output, usage }
            .to_string()
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
                Delta::Text(text)
                    if self.takes(
                        *index,
                        &[OutputKind::Text, OutputKind::Refusal, OutputKind::Reasoning],
                    ) =>
                {
                    self.grow(*index, text, out);
                }
                Delta::Thinking(text) if self.takes(*index, &[OutputKind::Reasoning]) => {
                    self.grow(*index, text, out);
                }
                Delta::ToolArguments(text) if self.takes(*index, &[OutputKind::Call]) => {
                    self.grow(*index, text, out);
                }
                Delta::Signature(signature) => self.sign(*index, signature),
                Delta::Citation(citation) if self.takes(*index, &[OutputKind::Text]) => {
                    let cited = self.citations.entry(*index).or_default();
                    cited.push((**citation).clone());
                }
                Delta::Opaque(more) => {
                    if let Some(json) = self.opaque.get_mut(index) {
                        json.push_str(more);
                    }
                }
                _ => {}
            },
            Event::BlockStarted { index, block } => {
                self.release("completed", out);
                self.begin(*index, block, out);
            }
            Event::BlockEnded { index } => {
                if let Some(item) = self.take_item(*index, out) {
                    self.release("completed", out);
                    self.pending = Some(item);
                }
                if let Some(json) = self.opaque.remove(index) {
                    self.opaque_item(&json, out);
                }
            }
            Event::Usage(usage) => self.usage.update(*usage),
            Event::EndExplained(details) => self.details.clone_from(details),
            Event::Fault(fault) => self.fail(fault, out),
            Event::Ended { reason } => self.end(reason, out),
            Event::MessageStarted { .. }
            | Event::Transformed { .. }
            | Event::Lost { .. }
            // Only conversations run tools.
            | Event::RoundEnded(_)
            | Event::ToolStarted { .. }
            | Event::ApprovalNeeded { .. }
            | Event::ToolResult { .. } => {}
        }
    }

    fn keep_alive(&mut self, out: &mut Vec<u8>) {
        if self.progress == Progress::Ended {
            return;
        }
        // Clients reject a stream that starts with any other event.
        self.start(out);
        self.event("keepalive", &[], out);
    }

    fn whole(&self, reply: &Reply) -> Vec<u8> {
        let mut writer = Self {
            constants: self.constants.clone(),
            progress: Progress::Writing,
            usage: reply.usage,
            ..Self::default()
        };
        let reason = reply.reason.as_ref().unwrap_or(&EndReason::Cut);
        let declines = |block: &Block| matches!(block, Block::Refusal { .. });
        let ending = Ending::of(reason, reply.content.iter().any(declines));
        let (status, details) = match &ending {
            Ok(ending) => (ending.status, ending.details),
            Err(_) => ("failed", "null"),
        };
        let last = reply.content.len().saturating_sub(1);
        for (position, block) in reply.content.iter().enumerate() {
            if is_empty_text(block) {
                continue;
            }
            if let Block::Opaque { dialect, value } = block
                && dialect == NAME
                && value.is_object()
            {
                writer.done.push((writer.items, value.to_string()));
                writer.items += 1;
            } else if let Some(mut item) = writer.whole_item(block) {
                if item.kind == OutputKind::Call && item.text.is_empty() {
                    item.text.push_str(EMPTY_OBJECT);
                }
                // The last item was cut.
                let status = if position == last && status != "completed" {
                    "incomplete"
                } else {
                    "completed"
                };
                writer.done.push((item.position, item.json(status)));
            }
        }
        let refused = reply.content.iter().any(declines);
        if let Some(words) = explained(reason, refused, &reply.details) {
            let mut item = writer.item(OutputKind::Refusal);
            item.text = escaped(words);
            writer.done.push((item.position, item.json("completed")));
        } else if writer.items == 0 && reply.content.iter().any(is_empty_text) && ending.is_ok() {
            let item = writer.item(OutputKind::Text);
            writer.done.push((item.position, item.json(status)));
        }
        let error = match (ending, &reply.fault) {
            (_, Some(fault)) => error(fault),
            (Err(fault), None) => error(&fault),
            (Ok(_), None) => "null".to_owned(),
        };
        let output = writer.output();
        let usage = usage(&reply.usage);
        writer.response(status, &error, details, &output, &usage).into_bytes()
    }
}

impl Writer {
    fn takes(&self, number: u32, kinds: &[OutputKind]) -> bool {
        let item = self.open.get(&number);
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
            Block::Text { text, signature, citations } => {
                let mut item = with(self.item(OutputKind::Text), text, signed(signature))?;
                item.cite(citations);
                Some(item)
            }
            Block::Refusal { text } => with(self.item(OutputKind::Refusal), text, String::new()),
            Block::Thinking { text, signature } => {
                with(self.item(OutputKind::Reasoning), text, signed(signature))
            }
            Block::Redacted { data } => with(self.item(OutputKind::Reasoning), "", escaped(data)),
            Block::ToolCall { id, name, arguments, .. } => {
                let mut item = self.item(OutputKind::Call);
                item.call = escaped(id);
                item.name = escaped(name);
                with(item, arguments, String::new())
            }
            Block::ToolResult { .. } | Block::Media { .. } | Block::Opaque { .. } => None,
        }
    }
}

/// Whether a block is a text without a character or a source. See [`Writer::begin`].
fn is_empty_text(block: &Block) -> bool {
    matches!(block, Block::Text { text, citations, .. } if text.is_empty() && citations.is_empty())
}

/// The explanation of a refusal, if the model declined without words. It takes the place of those
/// words.
fn explained<'d>(reason: &EndReason, refused: bool, details: &'d EndDetails) -> Option<&'d str> {
    let explanation = details.explanation.as_deref();
    explanation.filter(|_| *reason == EndReason::Refusal && !refused)
}

/// Writes an event: its name, then `members`, which start with a comma.
fn write_event(name: &str, members: &[&str], sequence: &mut u64, out: &mut Vec<u8>) {
    for piece in ["event: ", name, "\ndata: {\"type\":\"", name, "\",\"sequence_number\":"] {
        out.extend_from_slice(piece.as_bytes());
    }
    write_number(*sequence, out);
    *sequence += 1;
    for member in members {
        out.extend_from_slice(member.as_bytes());
    }
    out.extend_from_slice(b"}\n\n");
}
