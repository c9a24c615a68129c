//! Model text in a reply: what a dialect reads as text is read once more, and becomes reasoning,
//! text and calls.

use std::collections::HashMap;

use throughline_canonical::{BlockStart, Delta, EndReason, Event, Fault, FaultKind, Loss, Out};

use super::event::{EndReason as TextEnd, Event as TextEvent};
use super::reader::Reader;
use super::recipe::{Options, Recipe};
use crate::dialects::ReplyReader;
use crate::dialects::shared::block_emitter::{BlockEmitter, Growing};

/// Wraps the reader of an upstream dialect whose servers send model text unparsed.
///
/// Blocks other than text pass as they are, under new numbers; their order among the text stays.
#[derive(Debug)]
pub struct Stage {
    reader: Reader,
    blocks: Blocks,
    /// The dialect has sent reasoning of its own.
    separates_reasoning: bool,
    delivery: Delivery,
}

/// How the reply arrives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Delivery {
    /// Piece by piece. An event that was emitted cannot be taken back.
    Streamed,
    /// As one body. Doubtful text can wait until the end.
    Whole,
}

/// The blocks that go out.
#[derive(Debug, Default)]
struct Blocks {
    emitter: BlockEmitter,
    /// The dialect's text blocks that are open.
    text: Vec<u32>,
    /// The numbers of the dialect's other blocks, and ours for them.
    others: HashMap<u32, u32>,
    calls: bool,
    /// Reasoning that the prompt opened and the model has not closed yet.
    unclosed: Option<Unclosed>,
}

/// Text that counts as reasoning only if its block is closed: the model's template has opened the block,
/// or the server separates reasoning itself. If the model stops without closing it, the text was the answer.
#[derive(Debug)]
struct Unclosed {
    text: String,
    /// The text has not been emitted as reasoning yet.
    held: bool,
}

impl Unclosed {
    fn new(delivery: Delivery) -> Self {
        Self { text: String::new(), held: delivery == Delivery::Whole }
    }
}

impl Stage {
    /// For one reply.
    pub fn new(recipe: &Recipe, options: Options, delivery: Delivery) -> Self {
        let reader = Reader::new(recipe, options);
        let unclosed = reader.begins_in_reasoning().then(|| Unclosed::new(delivery));
        Self {
            reader,
            blocks: Blocks { unclosed, ..Blocks::default() },
            separates_reasoning: false,
            delivery,
        }
    }

    /// For a reply of a server that has sent reasoning of its own before, with the same model: the text is
    /// the answer, but for a complete block of reasoning at its start.
    pub fn expecting_answer(mut self) -> Self {
        self.reader.begin_answer(|_| {});
        self.blocks.unclosed = Some(Unclosed::new(self.delivery));
        self
    }

    /// Whether the dialect has sent reasoning of its own, apart from the text.
    pub fn separates_reasoning(&self) -> bool {
        self.separates_reasoning
    }

    /// The server separates reasoning itself, so the text is the answer, whatever the model's family. Some
    /// servers leave one complete block of reasoning at its start.
    fn expect_answer(&mut self, out: Out<'_>) {
        if !std::mem::replace(&mut self.separates_reasoning, true) {
            let blocks = &mut self.blocks;
            self.reader.begin_answer(|event| blocks.emit(event, out));
            blocks.resolve_unclosed(out);
            blocks.unclosed = Some(Unclosed::new(self.delivery));
        }
    }

    /// Takes the dialect's next event.
    pub fn push(&mut self, event: Event<'_>, out: Out<'_>) {
        let (reader, blocks) = (&mut self.reader, &mut self.blocks);
        match event {
            Event::BlockStarted { index, block: BlockStart::Text { text } } => {
                blocks.text.push(index);
                reader.push_str(&text, |event| blocks.emit(event, out));
            }
            Event::BlockDelta { index, delta: Delta::Text(text) }
                if blocks.text.contains(&index) =>
            {
                reader.push_str(&text, |event| blocks.emit(event, out));
            }
            Event::BlockDelta { index, delta: Delta::Citation(mut citation) }
                if blocks.text.contains(&index) =>
            {
                // The text is cut otherwise here: where in it the citation stood is not known.
                citation.span = None;
                let index = blocks.emitter.block_of(Growing::Text, out);
                out(Event::BlockDelta { index, delta: Delta::Citation(citation) });
            }
            Event::BlockEnded { index } if blocks.text.contains(&index) => {
                blocks.text.retain(|open| *open != index);
            }
            Event::BlockStarted { index, block } => {
                let thinks =
                    matches!(block, BlockStart::Thinking { .. } | BlockStart::Redacted { .. });
                if thinks {
                    self.expect_answer(out);
                }
                let (reader, blocks) = (&mut self.reader, &mut self.blocks);
                reader.flush(|event| blocks.emit(event, out));
                let has_begun =
                    blocks.unclosed.as_ref().is_some_and(|unclosed| !unclosed.text.is_empty());
                if has_begun || !thinks {
                    blocks.resolve_unclosed(out);
                }
                blocks.emitter.close(out);
                blocks.calls |= matches!(block, BlockStart::ToolCall { .. });
                let ours = blocks.emitter.start(block, out);
                blocks.others.insert(index, ours);
            }
            Event::BlockDelta { index, delta } => {
                let index = blocks.others.get(&index).copied().unwrap_or(index);
                out(Event::BlockDelta { index, delta });
            }
            Event::BlockEnded { index } => {
                let index = blocks.others.remove(&index).unwrap_or(index);
                out(Event::BlockEnded { index });
            }
            Event::Ended { reason } => {
                let mut end = TextEnd::Stop;
                reader.finish(|event| match event {
                    TextEvent::Ended(reason) => end = reason,
                    event => blocks.emit(event, out),
                });
                let repeated = reason == EndReason::Stop
                    && end == TextEnd::UnclosedReasoning
                    && blocks.repeat_as_answer(out);
                blocks.resolve_unclosed(out);
                // A call that the text leaves incomplete has no end.
                if blocks.emitter.index_of(Growing::Call).is_none() {
                    blocks.emitter.close(out);
                }
                if repeated {
                    out(Event::Lost { losses: vec![Loss::ReasoningUnclosed] });
                }
                let reason = match (reason, end) {
                    (EndReason::Stop | EndReason::ToolCalls, TextEnd::Error) => EndReason::Failed,
                    // No client may run a call that is incomplete.
                    (EndReason::Stop | EndReason::ToolCalls, TextEnd::UnclosedToolCall) => {
                        EndReason::Length
                    }
                    (EndReason::Stop, _) if blocks.calls => EndReason::ToolCalls,
                    (reason, _) => reason,
                };
                out(Event::Ended { reason });
            }
            event => out(event),
        }
    }
}

/// The reader of a dialect whose replies hold a model's text, with the reader of that text behind it.
pub struct RawTextReader {
    reader: Box<dyn ReplyReader>,
    stage: Stage,
}

impl RawTextReader {
    /// Puts the stage behind a dialect's reader.
    pub fn new(reader: Box<dyn ReplyReader>, stage: Stage) -> Self {
        Self { reader, stage }
    }
}

impl ReplyReader for RawTextReader {
    fn push(&mut self, bytes: &[u8], out: Out<'_>) {
        let stage = &mut self.stage;
        self.reader.push(bytes, &mut |event| stage.push(event, out));
    }

    fn finish(&mut self, out: Out<'_>) {
        let stage = &mut self.stage;
        self.reader.finish(&mut |event| stage.push(event, out));
    }

    fn summarizes(&self) -> Option<bool> {
        self.reader.summarizes()
    }

    fn separates_reasoning(&self) -> bool {
        self.stage.separates_reasoning()
    }

    fn is_stored(&self) -> bool {
        self.reader.is_stored()
    }

    fn reasoning_member(&self) -> Option<&'static str> {
        self.reader.reasoning_member()
    }
}

impl Blocks {
    /// The block that the prompt opened was closed, so its text was reasoning.
    fn resolve_unclosed(&mut self, out: Out<'_>) {
        if let Some(unclosed) = self.unclosed.take()
            && unclosed.held
            && !unclosed.text.is_empty()
        {
            self.emitter.grow(Growing::Thinking, unclosed.text.into(), out);
        }
    }

    /// The block that the prompt opened was never closed, so its text was the answer. Returns false
    /// if there is no such text.
    fn repeat_as_answer(&mut self, out: Out<'_>) -> bool {
        let Some(unclosed) = self.unclosed.take().filter(|unclosed| !unclosed.text.is_empty())
        else {
            return false;
        };
        self.emitter.grow(Growing::Text, unclosed.text.into(), out);
        true
    }

    fn emit(&mut self, event: TextEvent<'_>, out: Out<'_>) {
        match (&event, &mut self.unclosed) {
            (TextEvent::Reasoning(text), Some(unclosed)) => {
                unclosed.text.push_str(text);
                if unclosed.held {
                    return;
                }
            }
            (TextEvent::Ended(_), _) | (_, None) => {}
            (_, Some(_)) => self.resolve_unclosed(out),
        }
        match event {
            TextEvent::Reasoning(text) => self.emitter.grow(Growing::Thinking, text.into(), out),
            TextEvent::Content(text) => self.emitter.grow(Growing::Text, text.into(), out),
            TextEvent::CallStarted { id, name, .. } => {
                self.calls = true;
                let block = BlockStart::ToolCall { id: id.into(), name: name.into() };
                self.emitter.start_growing(Growing::Call, block, out);
            }
            TextEvent::CallArguments { delta, .. } => {
                if let Some(index) = self.emitter.index_of(Growing::Call) {
                    out(Event::BlockDelta { index, delta: Delta::ToolArguments(delta.into()) });
                }
            }
            TextEvent::CallEnded { .. } => self.emitter.close(out),
            TextEvent::Fault { message } => {
                self.emitter.close(out);
                let kind = FaultKind::ToolCallUnreadable;
                out(Event::Fault(Fault::new(kind, message)));
            }
            TextEvent::Ended(_) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use std::borrow::Cow;

    use throughline_canonical::{Block, Fold, Reply, Request};

    use super::super::recipe::OnError;
    use super::*;
    use crate::dialects::{CLIENT, ReplyIdentity, Target, UPSTREAM, UpstreamDialect};

    fn text(text: &str) -> Cow<'_, str> {
        Cow::Borrowed(text)
    }

    /// The events a dialect reads, as lines.
    fn through(options: Options, events: Vec<Event<'_>>) -> Vec<String> {
        let recipe = Recipe::family("qwen3").unwrap();
        lines(&mut Stage::new(&recipe, options, Delivery::Streamed), events)
    }

    /// A stage for a family whose template opens the reasoning.
    fn opened_by_template(delivery: Delivery) -> Stage {
        Stage::new(&Recipe::family("qwq").unwrap(), Options::default(), delivery)
    }

    fn lines(stage: &mut Stage, events: Vec<Event<'_>>) -> Vec<String> {
        let mut lines = Vec::new();
        for event in events {
            stage.push(event, &mut |event| {
                lines.push(match event {
                    Event::BlockStarted { index, block } => match block {
                        BlockStart::Text { .. } => format!("{index} text"),
                        BlockStart::Thinking { .. } => format!("{index} thinking"),
                        BlockStart::ToolCall { id, name } => format!("{index} call {id} {name}"),
                        other => format!("{index} {other:?}"),
                    },
                    Event::BlockDelta { index, delta } => match delta {
                        Delta::Text(text) | Delta::Thinking(text) | Delta::ToolArguments(text) => {
                            format!("{index} + {text}")
                        }
                        other => format!("{index} {other:?}"),
                    },
                    Event::BlockEnded { index } => format!("{index} ended"),
                    Event::Fault(fault) => format!("fault {:?}", fault.kind),
                    Event::Lost { losses } => format!("lost {}", Loss::header(&losses)),
                    Event::Ended { reason } => format!("ended {reason:?}"),
                    other => format!("{other:?}"),
                });
            });
        }
        lines
    }

    fn model_text(pieces: &[&'static str]) -> Vec<Event<'static>> {
        let mut events =
            vec![Event::BlockStarted { index: 0, block: BlockStart::Text { text: text("") } }];
        events.extend(
            pieces
                .iter()
                .map(|piece| Event::BlockDelta { index: 0, delta: Delta::Text(text(piece)) }),
        );
        events.push(Event::BlockEnded { index: 0 });
        events.push(Event::Ended { reason: EndReason::Stop });
        events
    }

    /// Covers: S2-22, S2-43
    #[test]
    fn text_becomes_blocks_in_the_order_of_the_model() {
        let pieces = [
            "<thi",
            "nk>plan</think>",
            "Look: <tool_call>{\"name\":\"f\",\"argu",
            "ments\":{\"a\":",
            "1}}</tool_call>",
        ];
        assert_eq!(
            through(Options::default(), model_text(&pieces)),
            [
                "0 thinking",
                "0 + plan",
                "0 ended",
                "1 text",
                "1 + Look: ",
                "1 ended",
                "2 call call_0 f",
                "2 + {\"a\":",
                "2 + 1}",
                "2 ended",
                "ended ToolCalls",
            ]
        );
    }

    /// Covers: S2-29, case 27
    #[test]
    fn a_call_that_cannot_be_read_is_a_fault_and_a_failed_end() {
        let options = Options { on_error: OnError::Error, ..Options::default() };
        let pieces = ["<tool_call>{\"name\":\"get_weather\",\"arguments\":{\"location\":\"NYC\"}"];
        let lines = through(options, model_text(&pieces));
        assert_eq!(lines[lines.len() - 2..], ["fault ToolCallUnreadable", "ended Failed"]);
    }

    #[test]
    fn cut_call_has_no_end_and_ends_the_reply_as_cut() {
        let call = ["<tool_call>\n<function=write_file>\n", "<parameter=path>\na\n</parameter>\n"];
        let recipe = Recipe::family("qwen3-coder").unwrap();
        let options = Options { on_error: OnError::Text, ..Options::default() };
        for reason in [EndReason::Stop, EndReason::ToolCalls, EndReason::Length] {
            let mut events = model_text(&call);
            events.pop();
            events.push(Event::Ended { reason });
            let mut stage = Stage::new(&recipe, options.clone(), Delivery::Streamed);
            let lines = lines(&mut stage, events);
            let joined = lines.join("\n");
            assert!(joined.starts_with("0 call call_0 write_file\n"), "{joined}");
            assert!(!lines.contains(&"0 ended".to_owned()), "{joined}");
            assert_eq!(lines.last().unwrap(), "ended Length", "{joined}");
        }
    }

    /// Covers: case 22, X-23
    #[test]
    fn thoughts_that_leak_into_text_join_those_of_the_server() {
        let mut events = vec![
            Event::BlockStarted {
                index: 0,
                block: BlockStart::Thinking { text: text("given"), signature: text("") },
            },
            Event::BlockEnded { index: 0 },
            Event::BlockStarted {
                index: 1,
                block: BlockStart::Text { text: text("<think>leaked</think>clean") },
            },
        ];
        events.push(Event::BlockEnded { index: 1 });
        events.push(Event::Ended { reason: EndReason::Length });
        assert_eq!(
            through(Options::default(), events),
            [
                "0 thinking",
                "0 ended",
                "1 thinking",
                "1 + leaked",
                "1 ended",
                "2 text",
                "2 + clean",
                "2 ended",
                "ended Length",
            ]
        );
    }

    /// The joined reasoning and text of a reply whose server has sent reasoning of its own before this text,
    /// and the losses.
    fn after_reasoning_of_the_server(
        pieces: &[&'static str],
        delivery: Delivery,
    ) -> (String, String, Vec<Loss>) {
        let mut stage = Stage::new(&Recipe::family("qwen3").unwrap(), Options::default(), delivery);
        let block = BlockStart::Thinking { text: text(""), signature: text("") };
        let (mut reasoning, mut answer, mut losses) = (String::new(), String::new(), Vec::new());
        let events = [Event::BlockStarted { index: 9, block }, Event::BlockEnded { index: 9 }];
        for event in events.into_iter().chain(model_text(pieces)) {
            stage.push(event, &mut |event| match event {
                Event::BlockDelta { delta: Delta::Thinking(text), .. } => reasoning += &text,
                Event::BlockDelta { delta: Delta::Text(text), .. } => answer += &text,
                Event::Lost { losses: lost } => losses.extend(lost),
                _ => {}
            });
        }
        (reasoning, answer, losses)
    }

    /// Covers: S2-16, case 22
    #[test]
    fn only_a_block_at_the_start_is_reasoning_where_the_server_separates_it() {
        for (pieces, reasoning, answer) in [
            (&["\n<think>a", "</think>\n\nb"][..], "a", "b"),
            (&["</think>\n\nb"], "", "b"),
            (&["Write <th", "ink>a</think> here."], "", "Write <think>a</think> here."),
            (&["<think>a</think><think>b</think>c"], "a", "<think>b</think>c"),
            (&["<think>a</think>b <think>c</think>"], "a", "b <think>c</think>"),
        ] {
            for delivery in [Delivery::Streamed, Delivery::Whole] {
                let read = after_reasoning_of_the_server(pieces, delivery);
                assert_eq!(read, (reasoning.to_owned(), answer.to_owned(), vec![]), "{pieces:?}");
            }
        }
    }

    #[test]
    fn block_at_the_start_that_is_never_closed_is_the_answer() {
        for (delivery, reasoning) in
            [(Delivery::Whole, ""), (Delivery::Streamed, "is what I write.")]
        {
            let pieces = ["<think>is what ", "I write."];
            let (thought, answer, losses) = after_reasoning_of_the_server(&pieces, delivery);
            assert_eq!((&*thought, &*answer), (reasoning, "is what I write."), "{delivery:?}");
            assert_eq!(losses, [Loss::ReasoningUnclosed]);
        }
    }

    /// Covers: S2-16
    #[test]
    fn text_is_the_answer_once_the_server_has_sent_reasoning_of_its_own() {
        let block = BlockStart::Thinking { text: text("given"), signature: text("") };
        let mut events =
            vec![Event::BlockStarted { index: 0, block }, Event::BlockEnded { index: 0 }];
        for event in model_text(&["The ans", "wer."]) {
            events.push(match event {
                Event::BlockStarted { block, .. } => Event::BlockStarted { index: 1, block },
                Event::BlockDelta { delta, .. } => Event::BlockDelta { index: 1, delta },
                Event::BlockEnded { .. } => Event::BlockEnded { index: 1 },
                event => event,
            });
        }
        let mut stage = opened_by_template(Delivery::Streamed);
        let answer =
            ["0 thinking", "0 ended", "1 text", "1 + The ans", "1 + wer.", "1 ended", "ended Stop"];
        assert_eq!(lines(&mut stage, events), answer);
        assert!(stage.separates_reasoning());
    }

    /// Covers: S2-16
    #[test]
    fn text_is_the_answer_where_the_server_is_known_to_separate_reasoning() {
        let mut stage = opened_by_template(Delivery::Streamed).expecting_answer();
        let answer = ["0 text", "0 + Hello.", "0 ended", "ended Stop"];
        assert_eq!(lines(&mut stage, model_text(&["Hello."])), answer);
        assert!(!stage.separates_reasoning());
    }

    #[test]
    fn unclosed_reasoning_of_a_stream_is_repeated_as_the_answer() {
        let mut stage = opened_by_template(Delivery::Streamed);
        let repeated = [
            "0 thinking",
            "0 + The ans",
            "0 + wer.",
            "0 ended",
            "1 text",
            "1 + The answer.",
            "1 ended",
            "lost reasoning_unclosed=1",
            "ended Stop",
        ];
        assert_eq!(lines(&mut stage, model_text(&["The ans", "wer."])), repeated);
    }

    #[test]
    fn unclosed_reasoning_of_a_whole_reply_is_the_answer() {
        let mut stage = opened_by_template(Delivery::Whole);
        let answer =
            ["0 text", "0 + The answer.", "0 ended", "lost reasoning_unclosed=1", "ended Stop"];
        assert_eq!(lines(&mut stage, model_text(&["The answer."])), answer);
    }

    #[test]
    fn unclosed_reasoning_that_a_limit_cut_stays_reasoning() {
        for delivery in [Delivery::Streamed, Delivery::Whole] {
            let mut events = model_text(&["A long thought"]);
            events.pop();
            events.push(Event::Ended { reason: EndReason::Length });
            let mut stage = opened_by_template(delivery);
            let thought = ["0 thinking", "0 + A long thought", "0 ended", "ended Length"];
            assert_eq!(lines(&mut stage, events), thought, "{delivery:?}");
        }
    }

    #[test]
    fn reasoning_that_the_template_opens_ends_at_its_closing_tag() {
        for delivery in [Delivery::Streamed, Delivery::Whole] {
            let mut stage = opened_by_template(delivery);
            let apart = [
                "0 thinking",
                "0 + plan",
                "0 ended",
                "1 text",
                "1 + Yes.",
                "1 ended",
                "ended Stop",
            ];
            assert_eq!(
                lines(&mut stage, model_text(&["plan</think>\n\nYes."])),
                apart,
                "{delivery:?}"
            );
        }
    }

    /// What a dialect's bytes say, read in pieces of this size with the stage behind.
    fn behind(upstream: &dyn UpstreamDialect, bytes: &[u8], size: usize) -> Reply {
        let recipe = Recipe::family("qwen3").unwrap();
        let target = Target { model: "qwen3-8b", profile: upstream.profile("") };
        let stage = Stage::new(&recipe, Options::default(), Delivery::Streamed);
        let mut reader = RawTextReader::new(upstream.reply_reader(&target, true), stage);
        let mut fold = Fold::default();
        for piece in bytes.chunks(size) {
            reader.push(piece, &mut |event| fold.push(&event));
        }
        reader.finish(&mut |event| fold.push(&event));
        fold.finish()
    }

    /// Covers: S3-14, S3-15, case 18, case 23
    #[test]
    fn raw_text_is_read_behind_every_dialect() {
        let pieces = [
            "<thi",
            "nk>plan</think>Look.<tool_call>{\"name\":\"f\",\"argu",
            "ments\":{\"a\":1}}</tool",
            "_call>",
        ];
        let identity = ReplyIdentity::new("0", 0);
        for upstream in UPSTREAM {
            let client = CLIENT.iter().find(|client| client.name() == upstream.name());
            let mut writer = client.unwrap().session().reply_writer(&Request::default(), &identity);
            let mut bytes = Vec::new();
            for event in model_text(&pieces) {
                writer.push(&event, &mut bytes);
            }
            for size in [1, 7, usize::MAX] {
                let reply = behind(*upstream, &bytes, size);
                let at = format!("{}, in pieces of {size}: {reply:?}", upstream.name());
                let [thinking, text, call] = &reply.content[..] else {
                    panic!("{at}");
                };
                assert!(matches!(thinking, Block::Thinking { text, .. } if text == "plan"), "{at}");
                assert_eq!(text, &Block::text("Look."), "{at}");
                assert!(
                    matches!(call, Block::ToolCall { name, arguments, .. }
                        if name == "f" && arguments == "{\"a\":1}"),
                    "{at}"
                );
                assert_eq!(reply.reason, Some(EndReason::ToolCalls), "{at}");
            }
        }
    }

    #[test]
    fn a_block_of_the_dialect_lets_go_of_what_waits() {
        let events = vec![
            Event::BlockStarted { index: 0, block: BlockStart::Text { text: text("a <thi") } },
            Event::BlockStarted {
                index: 1,
                block: BlockStart::ToolCall { id: text("x"), name: text("f") },
            },
            Event::BlockDelta { index: 1, delta: Delta::ToolArguments(text("{}")) },
            Event::BlockEnded { index: 1 },
            Event::Ended { reason: EndReason::Stop },
        ];
        assert_eq!(
            through(Options::default(), events),
            [
                "0 text",
                "0 + a ",
                "0 + <thi",
                "0 ended",
                "1 call x f",
                "1 + {}",
                "1 ended",
                "ended ToolCalls",
            ]
        );
    }
}
