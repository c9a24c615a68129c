//! Writes the chunks of a reply. An unknown chunk breaks the whole message in the client, so only
//! chunks are used that major versions 5, 6 and 7 know. Absent members are omitted, never null.

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};
use throughline_canonical::{
    Block, BlockStart, Citation, Delta, EndReason, Event, Fault, Reply, Request, Show, Tool, Usage,
    WaitingCall,
};

use self::step::{Part, PartKind};
use crate::dialects::content_blocks::result_content;
use crate::dialects::shared::keep_alive;
use crate::dialects::shared::reply_end::{EndReport, fault_of_end, may_cut_a_call};
use crate::dialects::{ReplyIdentity, ReplyWriter};
use crate::json::{ObjectWriter, quote_bytes};

mod step;

/// Writes one reply.
#[derive(Default)]
pub(super) struct Writer {
    form: ClientView,
    open: Vec<Part>,
    /// A call that has ended and may have been cut. The next event shows it.
    held: Option<Part>,
    /// Number of parts so far.
    parts: usize,
    sources: usize,
    called: bool,
    /// Whether the results of calls were written: the next block begins another step.
    step_is_over: bool,
    report: EndReport,
    state: Progress,
}

/// The progress of the reply.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum Progress {
    #[default]
    New,
    Begun,
    Failed,
    Ended,
}

/// What the client knows and wants to see.
#[derive(Clone, Default)]
struct ClientView {
    message_id: String,
    /// The client's name of the model.
    model: String,
    /// Whether the client wants no reasoning, only signatures.
    hidden: bool,
    /// The tools in the request.
    tools: BTreeSet<String>,
}

impl ClientView {
    fn new(request: &Request, continued: Option<String>, identity: &ReplyIdentity) -> Self {
        let tools = request.tools.iter().filter_map(|tool| match tool {
            Tool::Function { name, .. } => Some(name.clone()),
            Tool::Opaque { .. } => None,
        });
        Self {
            message_id: continued.unwrap_or_else(|| format!("msg_{}", identity.id)),
            model: identity.model(request).to_owned(),
            hidden: request.thinking.show == Some(Show::Hidden),
            tools: tools.collect(),
        }
    }

    /// Whether a call of this tool needs a dynamic part.
    fn is_dynamic(&self, name: &str) -> bool {
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"_-".contains(&byte);
        !self.tools.contains(name) || !name.bytes().all(plain)
    }
}

impl Writer {
    pub(super) fn new(
        request: &Request,
        continued: Option<String>,
        identity: &ReplyIdentity,
    ) -> Self {
        Self::with(ClientView::new(request, continued, identity))
    }

    fn with(form: ClientView) -> Self {
        Self { form, ..Self::default() }
    }

    /// Writes the start, once. `theirs` is the provider's name of the model.
    fn begin(&mut self, theirs: &str, out: &mut Vec<u8>) {
        if self.state != Progress::New {
            return;
        }
        self.state = Progress::Begun;
        let model = match self.form.model.as_str() {
            "" => theirs,
            requested => requested,
        };
        out.extend_from_slice(b"data: ");
        let mut start = ObjectWriter::new(out);
        start.text("type", "start");
        start.text("messageId", &self.form.message_id);
        if !model.is_empty() {
            start.object("messageMetadata").text("model", model).end();
        }
        start.end();
        out.extend_from_slice(b"\n\ndata: {\"type\":\"start-step\"}\n\n");
    }

    fn part(&mut self, index: u32, kind: PartKind) -> Part {
        self.parts += 1;
        Part::new(index, kind, self.parts)
    }

    fn start(&mut self, index: u32, block: &BlockStart<'_>, out: &mut Vec<u8>) {
        self.begin("", out);
        if std::mem::take(&mut self.step_is_over) {
            out.extend_from_slice(
                b"data: {\"type\":\"finish-step\"}\n\ndata: {\"type\":\"start-step\"}\n\n",
            );
        }
        self.stop(index, out);
        // Parts keep the order of their starts, even if their text arrives later.
        for part in &mut self.open {
            part.begin(out);
        }
        let part = match block {
            // There is no part for refusals; the finish reason shows it.
            BlockStart::Text { text } | BlockStart::Refusal { text } => {
                let mut part = self.part(index, PartKind::Text);
                part.grow(text, out);
                part
            }
            BlockStart::Thinking { text, signature } => {
                let mut part = self.part(index, PartKind::Reasoning);
                part.begin(out);
                if !self.form.hidden {
                    part.grow(text, out);
                }
                part.sign(signature);
                part
            }
            BlockStart::Redacted { data } => {
                return self.part(index, PartKind::Reasoning).redacted(data, out);
            }
            BlockStart::ToolCall { id, name } => {
                self.called = true;
                let mut part = Part::call(index, id, name, self.form.is_dynamic(name));
                part.begin(out);
                part
            }
            BlockStart::Opaque { .. } => return,
        };
        self.open.push(part);
    }

    fn delta(&mut self, index: u32, delta: &Delta<'_>, out: &mut Vec<u8>) {
        let Some(part) = self.open.iter_mut().rfind(|part| part.index == index) else {
            return;
        };
        match (part.kind, delta) {
            (PartKind::Text, Delta::Text(text)) | (PartKind::Call, Delta::ToolArguments(text)) => {
                part.grow(text, out);
            }
            // Providers may send plain text inside a reasoning block.
            (PartKind::Reasoning, Delta::Thinking(text) | Delta::Text(text))
                if !self.form.hidden =>
            {
                part.grow(text, out);
            }
            (_, Delta::Signature(signature)) => part.sign(signature),
            (PartKind::Text, Delta::Citation(citation)) => self.source(citation, out),
            _ => {}
        }
    }

    /// Writes a source, which is a part of its own.
    fn source(&mut self, citation: &Citation, out: &mut Vec<u8>) {
        let Some(url) = &citation.url else {
            return;
        };
        self.sources += 1;
        out.extend_from_slice(b"data: ");
        let mut source = ObjectWriter::new(out);
        source.text("type", "source-url");
        source.text("sourceId", &format!("source_{}", self.sources));
        source.text("url", url);
        if let Some(title) = &citation.title {
            source.text("title", title);
        }
        source.end();
        out.extend_from_slice(b"\n\n");
    }

    fn stop(&mut self, index: u32, out: &mut Vec<u8>) {
        let Some(at) = self.open.iter().rposition(|part| part.index == index) else {
            return;
        };
        let mut part = self.open.remove(at);
        if part.may_be_cut() {
            self.held = Some(part);
        } else {
            part.end(out);
        }
    }

    /// Ends a call that was held back, because more output followed it.
    fn release(&mut self, out: &mut Vec<u8>) {
        if let Some(mut call) = self.held.take() {
            call.end(out);
        }
    }

    /// Writes calls that wait for a person, as parts of our own: older clients refuse the chunk that
    /// the newest ones have for this.
    fn waiting(&mut self, calls: &[WaitingCall], out: &mut Vec<u8>) {
        for call in calls {
            let data = json!({"toolCallId": call.id, "toolName": call.name,
                "arguments": call.arguments, "message": call.message, "schema": call.schema});
            out.extend_from_slice(b"data: ");
            let mut part = ObjectWriter::new(out);
            part.text("type", "data-approval").text("id", &call.id).value("data", &data);
            part.end();
            out.extend_from_slice(b"\n\n");
        }
    }

    /// Writes the result of a call that the server ran. What follows is another step.
    fn result(&mut self, id: &str, name: &str, result: (&[Block], bool), out: &mut Vec<u8>) {
        let (content, is_error) = result;
        self.step_is_over = true;
        self.called = false;
        let content = result_content(content);
        out.extend_from_slice(b"data: ");
        let mut output = ObjectWriter::new(out);
        match is_error {
            true => {
                let text = content.as_str().map_or_else(|| content.to_string(), str::to_owned);
                output.text("type", "tool-output-error").text("toolCallId", id);
                output.text("errorText", &text);
            }
            false => {
                output.text("type", "tool-output-available").text("toolCallId", id);
                output.value("output", &content);
            }
        }
        if self.form.is_dynamic(name) {
            output.raw("dynamic", b"true");
        }
        output.end();
        out.extend_from_slice(b"\n\n");
    }

    fn fault(&mut self, fault: &Fault, out: &mut Vec<u8>) {
        if self.state == Progress::Failed {
            return;
        }
        self.begin("", out);
        let open = std::mem::take(&mut self.open);
        for mut part in self.held.take().into_iter().chain(open) {
            part.give_up(out);
        }
        self.state = Progress::Failed;
        out.extend_from_slice(b"data: {\"type\":\"error\",\"errorText\":");
        quote_bytes(&fault.message, out);
        out.extend_from_slice(b"}\n\n");
    }

    fn end(&mut self, reason: &EndReason, out: &mut Vec<u8>) {
        self.begin("", out);
        if let Some(fault) = fault_of_end(reason) {
            self.fault(&fault, out);
        }
        let cuts = may_cut_a_call(reason);
        let open = std::mem::take(&mut self.open);
        for mut part in self.held.take().into_iter().chain(open) {
            if cuts && part.may_be_cut() {
                part.give_up(out);
            } else {
                part.end(out);
            }
        }
        out.extend_from_slice(b"data: {\"type\":\"finish-step\"}\n\ndata: ");
        let failed = self.state == Progress::Failed;
        self.state = Progress::Ended;
        let mut finish = ObjectWriter::new(out);
        finish
            .text("type", "finish")
            .text("finishReason", if failed { "error" } else { finish_word(reason, self.called) });
        let EndReport { usage, details, losses } = &self.report;
        let counts = counts(usage);
        if !counts.is_empty() || !details.is_empty() || !losses.is_empty() {
            let mut metadata = finish.object("messageMetadata");
            if !counts.is_empty() {
                metadata.value("usage", &counts.into());
            }
            if !details.is_empty() {
                metadata.value("finish", &json!(details));
            }
            if !losses.is_empty() {
                metadata.value("losses", &json!(losses));
            }
            metadata.end();
        }
        finish.end();
        out.extend_from_slice(b"\n\ndata: [DONE]\n\n");
    }
}

/// The finish reason. Clients look here for calls.
fn finish_word(reason: &EndReason, called: bool) -> &'static str {
    match reason {
        EndReason::Length => "length",
        EndReason::Refusal => "content-filter",
        EndReason::Failed | EndReason::Cut => "error",
        EndReason::ToolCalls => "tool-calls",
        reason if reason.is_cancelled() => "other",
        _ if called => "tool-calls",
        EndReason::Stop | EndReason::StopSequence => "stop",
        EndReason::Pause | EndReason::Other(_) => "other",
    }
}

/// Token counts in the AI SDK's form, where input includes cached tokens.
fn counts(usage: &Usage) -> Map<String, Value> {
    let parts = [usage.input, usage.cache_read, usage.cache_write];
    let mut known = parts.into_iter().flatten();
    let input = known.next().map(|first| known.fold(first, u64::saturating_add));
    let total = input.zip(usage.output).map(|(input, output)| input.saturating_add(output));
    let mut counts = known_counts([
        ("inputTokens", input),
        ("outputTokens", usage.output),
        ("totalTokens", total),
        ("reasoningTokens", usage.thinking),
        ("cachedInputTokens", usage.cache_read),
    ]);
    if usage.cache_read.is_some() || usage.cache_write.is_some() {
        let details = known_counts([
            ("noCacheTokens", usage.input),
            ("cacheReadTokens", usage.cache_read),
            ("cacheWriteTokens", usage.cache_write),
        ]);
        counts.insert("inputTokenDetails".to_owned(), details.into());
    }
    counts
}

fn known_counts<const N: usize>(counts: [(&str, Option<u64>); N]) -> Map<String, Value> {
    let known = counts.into_iter().filter_map(|(name, count)| Some((name, count?)));
    known.map(|(name, count)| (name.to_owned(), count.into())).collect()
}

impl ReplyWriter for Writer {
    fn push(&mut self, event: &Event<'_>, out: &mut Vec<u8>) {
        if self.report.record(event) {
            return;
        }
        if !matches!(event, Event::Fault(_) | Event::Ended { .. }) {
            self.release(out);
        }
        match (event, self.state) {
            (_, Progress::Ended) => {}
            (Event::Ended { reason }, _) => self.end(reason, out),
            // After an error, only the end matters.
            (_, Progress::Failed) => {}
            (Event::MessageStarted { model, .. }, _) => self.begin(model, out),
            (Event::BlockStarted { index, block }, _) => self.start(*index, block, out),
            (Event::BlockDelta { index, delta }, _) => self.delta(*index, delta, out),
            (Event::BlockEnded { index }, _) => self.stop(*index, out),
            (Event::ApprovalNeeded { calls }, _) => self.waiting(calls, out),
            (Event::ToolResult { id, name, content, is_error }, _) => {
                self.result(id, name, (content, *is_error), out);
            }
            (Event::Fault(fault), _) => self.fault(fault, out),
            (
                Event::RoundEnded(_)
                | Event::ToolStarted { .. }
                | Event::Transformed { .. }
                | Event::Usage(_)
                | Event::EndExplained(_)
                | Event::Lost { .. },
                _,
            ) => {}
        }
    }

    fn keep_alive(&mut self, out: &mut Vec<u8>) {
        if self.state != Progress::Ended {
            out.extend_from_slice(keep_alive::COMMENT);
        }
    }

    /// Clients read streams only, so a whole reply is a stream in one piece.
    fn whole(&self, reply: &Reply) -> Vec<u8> {
        let mut writer = Self::with(self.form.clone());
        let mut out = Vec::new();
        reply.emit_events(&mut |event| writer.push(event, &mut out));
        out
    }
}
