//! Reads one chunk of a provider's reply (a `GenerateContentResponse`). A whole reply is one chunk.

use std::borrow::Cow;
use std::collections::HashSet;

use serde_json::Value;
use throughline_canonical::{
    BlockStart, Delta, EndDetails, EndReason, Event, Fault, FaultKind, Out, Usage,
};

use super::super::grounding::{self, Grounded};
use super::super::{NAME, REFUSED, errors};
use super::cumulative::AnswerSoFar;
use super::finish_reason::{Finish, finish};
use super::partial_arguments::PartialArguments;
use super::repeats::{CompleteCall, Repeats};
use super::usage::{Counts, count};
use crate::dialects::shared::block_emitter::{BlockEmitter, Growing};
use crate::json::{Cursor, JsonError, Kind, Span, each_member, find_member, number, slice, text};

/// Deeper nesting is skipped.
const DEPTH: usize = 256;

/// The state of the reader.
#[derive(Debug, Default)]
pub(crate) struct Answer {
    started: bool,
    pub(crate) blocks: BlockEmitter,
    /// The arguments of the growing call.
    arguments: PartialArguments,
    /// Number of calls so far.
    calls: usize,
    repeats: Repeats,
    counts: Counts,
    emitted_usage: Option<Usage>,
    finish: Option<Finish>,
    /// Details about the end.
    details: EndDetails,
    /// Whether a candidate or a token count was seen: a whole reply needs no more.
    pub(crate) complete: bool,
    so_far: Option<AnswerSoFar>,
    /// The text of the last text block, and the number of bytes of the answer before it.
    text: String,
    before: usize,
    /// Sources that were read but not emitted, and keys of the emitted ones.
    grounded: Vec<Grounded>,
    cited: HashSet<String>,
}

/// The members of a part.
#[derive(Debug, Default)]
struct Part<'a> {
    whole: Span,
    text: Option<Span>,
    thought: bool,
    signature: Option<Span>,
    call: Option<Span>,
    /// The name of its data member, if the vocabulary has no type for it.
    other: Option<&'a [u8]>,
}

impl Answer {
    /// Creates a reader. `cumulative` providers repeat the answer in every chunk.
    pub(crate) fn new(cumulative: bool) -> Self {
        Self {
            so_far: cumulative.then(AnswerSoFar::default),
            repeats: Repeats::new(cumulative),
            ..Self::default()
        }
    }

    /// Reads a chunk. Malformed data affects only its own chunk.
    pub(crate) fn read(&mut self, json: &[u8], out: Out<'_>) {
        if !self.blocks.ended {
            let _ = self.read_piece(json, out);
        }
    }

    fn read_piece(&mut self, json: &[u8], out: Out<'_>) -> Result<(), JsonError> {
        let [mut candidates, mut usage, mut feedback, mut error]: [Option<Span>; 4] =
            Default::default();
        let [mut id, mut model]: [Option<Span>; 2] = Default::default();
        let mut total = None;
        each_member(json, 0, |key, kind, span| match (key, kind) {
            (b"candidates", Kind::Array) => candidates = Some(span),
            (b"usageMetadata" | b"usage_metadata", Kind::Object) => usage = Some(span),
            (b"promptFeedback" | b"prompt_feedback", Kind::Object) => feedback = Some(span),
            (b"error", Kind::Object | Kind::String) => error = Some(span),
            (b"responseId" | b"response_id", Kind::String) => id = Some(span),
            (b"modelVersion" | b"model_version", Kind::String) => model = Some(span),
            (b"totalTokens" | b"total_tokens", _) => total = count(json, &span),
            (b"cachedContentTokenCount", _) => self.counts.cached = count(json, &span),
            _ => {}
        })?;
        self.repeats.next_piece();
        if error.is_some() {
            self.fail(read_error(json), out);
            return Ok(());
        }
        if !self.started {
            self.started = true;
            let value = |span: &Option<Span>| match span {
                Some(span) => text(json, span),
                None => "".into(),
            };
            out(Event::MessageStarted { id: value(&id), model: value(&model) });
        }
        if let Some(total) = total {
            self.counts.prompt = Some(total);
            self.complete = true;
            self.emit_usage(out);
        }
        if let Some(usage) = usage {
            self.counts.read(json, &usage)?;
            if self.emitted_usage.is_none() {
                self.emit_usage(out);
            }
        }
        if let Some(feedback) = feedback {
            let [mut reason, mut message] = [None, None];
            each_member(json, feedback.start, |key, kind, span| match (key, kind) {
                (b"blockReason" | b"block_reason", Kind::String) => reason = Some(span),
                (b"blockReasonMessage" | b"block_reason_message", Kind::String) => {
                    message = Some(span);
                }
                _ => {}
            })?;
            let reason = reason.map(|span| text(json, &span));
            if let Some(word) = reason.filter(|word| word != "BLOCK_REASON_UNSPECIFIED") {
                self.finish = Some(Finish::Reason(EndReason::Refusal));
                self.explain(&word, message.map(|span| text(json, &span)).as_deref());
            }
        }
        if let Some(candidates) = candidates {
            let mut cursor = Cursor::at(json, candidates.start, DEPTH);
            cursor.enter_array()?;
            let mut first = true;
            while cursor.element(&mut first)? {
                if cursor.peek()? == Kind::Object {
                    let start = cursor.start();
                    self.read_candidate(json, start, out)?;
                }
                cursor.skip()?;
            }
        }
        Ok(())
    }

    fn read_candidate(&mut self, json: &[u8], start: usize, out: Out<'_>) -> Result<(), JsonError> {
        let [mut content, mut reason, mut message, mut signature]: [Option<Span>; 4] =
            Default::default();
        let [mut index, mut grounding, mut recited] = [None, None, None];
        each_member(json, start, |key, kind, span| match (key, kind) {
            (b"content", Kind::Object) => content = Some(span),
            (b"finishReason" | b"finish_reason", Kind::String) => reason = Some(span),
            (b"finishMessage" | b"finish_message", Kind::String) => message = Some(span),
            (b"thoughtSignature" | b"thought_signature", Kind::String) => signature = Some(span),
            (b"index", Kind::Number) => index = Some(span),
            (b"groundingMetadata" | b"grounding_metadata", Kind::Object) => grounding = Some(span),
            (b"citationMetadata" | b"citation_metadata", Kind::Object) => recited = Some(span),
            _ => {}
        })?;
        // We ask for one candidate only.
        let index = index.and_then(|span| number(json, &span));
        if index.unwrap_or_default() != 0 {
            return Ok(());
        }
        self.complete = true;
        for span in [grounding, recited].into_iter().flatten() {
            // They may be repeated while the answer grows.
            let mut read = grounding::read(slice(json, &span));
            read.retain(|one| self.cited.insert(one.key()));
            self.grounded.append(&mut read);
        }
        if let Some(content) = content
            && let Some(parts) = find_member(json, content.start, b"parts", Kind::Array)?
        {
            self.read_parts(json, &parts, out)?;
        }
        self.cite_rest(out);
        // Some servers put it next to the parts. It belongs to the last part.
        if let Some(signature) = signature {
            let signature = text(json, &signature);
            if !signature.is_empty() {
                let thinks = self.blocks.index_of(Growing::Thinking).is_some();
                self.text(thinks, "".into(), Some(signature), out);
            }
        }
        if let Some(reason) = reason {
            let word = text(json, &reason);
            let message = message.map(|span| text(json, &span));
            if let Some(finish) = finish(&word, message.as_deref()) {
                if let Finish::Reason(EndReason::Refusal) = finish {
                    self.explain(&word, message.as_deref());
                }
                self.finish = Some(finish);
            }
        }
        Ok(())
    }

    fn read_parts(&mut self, json: &[u8], parts: &Span, out: Out<'_>) -> Result<(), JsonError> {
        let mut cursor = Cursor::at(json, parts.start, DEPTH);
        cursor.enter_array()?;
        let mut first = true;
        let mut repeated = Vec::new();
        while cursor.element(&mut first)? {
            let object = cursor.peek()? == Kind::Object;
            let whole = cursor.skip()?;
            if !object {
                continue;
            }
            let part = read_part(json, whole)?;
            if self.so_far.is_some() {
                repeated.push(part);
            } else {
                self.part(json, &part, out)?;
            }
        }
        if !repeated.is_empty() {
            self.repeated(json, &repeated, out)?;
        }
        Ok(())
    }

    fn part(&mut self, json: &[u8], part: &Part<'_>, out: Out<'_>) -> Result<(), JsonError> {
        let signature = part.signature.as_ref().map(|span| text(json, span));
        let signature = signature.filter(|signature| !signature.is_empty());
        if let Some(call) = &part.call {
            self.call(json, call, signature, out)
        } else if let Some(name) = part.other {
            self.opaque(json, part, name, out);
            Ok(())
        } else {
            let words = match &part.text {
                Some(span) => text(json, span),
                None => "".into(),
            };
            self.text(part.thought, words, signature, out);
            Ok(())
        }
    }

    /// Reads the parts of a cumulative chunk: thoughts, then signatures, then text, then the rest.
    fn repeated(&mut self, json: &[u8], parts: &[Part<'_>], out: Out<'_>) -> Result<(), JsonError> {
        let Some(mut answer) = self.so_far.take() else {
            return Ok(());
        };
        let is_text = |part: &&Part<'_>| part.call.is_none() && part.other.is_none();
        for thought in [true, false] {
            let mut whole = String::new();
            let mut signatures = Vec::new();
            for part in parts.iter().filter(is_text) {
                let own = part.text.as_ref().map(|span| text(json, span));
                let own = own.unwrap_or_default();
                let bare = own.is_empty() && !part.thought;
                if part.thought == thought {
                    whole.push_str(&own);
                }
                if let Some(span) = &part.signature
                    && (part.thought || bare) == thought
                {
                    signatures.push((text(json, span), bare));
                }
            }
            let fresh = answer.new_text(thought, &whole);
            self.text(thought, fresh.into(), None, out);
            for (signature, bare) in signatures {
                if !signature.is_empty() && answer.is_new_signature(&signature) {
                    self.text(thought && !bare, "".into(), Some(signature), out);
                }
            }
        }
        let others = parts.iter().filter(|part| !is_text(part));
        let known = answer.parts;
        for part in others.skip(known) {
            answer.parts += 1;
            self.part(json, part, out)?;
        }
        self.so_far = Some(answer);
        Ok(())
    }

    /// Reads text or a thought. A signed text stays a separate block because its signature belongs
    /// to exactly this part. Thoughts are joined up to their signature.
    fn text(
        &mut self,
        thought: bool,
        words: Cow<'_, str>,
        signature: Option<Cow<'_, str>>,
        out: Out<'_>,
    ) {
        if words.is_empty() && signature.is_none() {
            return;
        }
        self.repeats.interrupt(out);
        let index = match self.blocks.open {
            Some((Growing::Thinking, index)) if thought => {
                if !words.is_empty() {
                    out(Event::BlockDelta { index, delta: Delta::Thinking(words) });
                }
                index
            }
            Some((Growing::Text, index)) if !thought && signature.is_none() => {
                self.text.push_str(&words);
                out(Event::BlockDelta { index, delta: Delta::Text(words) });
                index
            }
            _ if thought => {
                let block = BlockStart::Thinking { text: words, signature: "".into() };
                self.start(Some(Growing::Thinking), block, out)
            }
            _ => self.start(Some(Growing::Text), BlockStart::Text { text: words }, out),
        };
        if let Some(signature) = signature {
            out(Event::BlockDelta { index, delta: Delta::Signature(signature) });
            self.close(out);
        }
    }

    fn call(
        &mut self,
        json: &[u8],
        call: &Span,
        mut signature: Option<Cow<'_, str>>,
        out: Out<'_>,
    ) -> Result<(), JsonError> {
        let [mut id, mut name]: [Cow<'_, str>; 2] = Default::default();
        let [mut arguments, mut pieces]: [Option<Span>; 2] = Default::default();
        let mut goes_on = false;
        each_member(json, call.start, |key, kind, span| match (key, kind) {
            (b"id", Kind::String) => id = text(json, &span),
            (b"name", Kind::String) => name = text(json, &span),
            (b"args", Kind::Object) => arguments = Some(span),
            (b"partialArgs" | b"partial_args", Kind::Array) => pieces = Some(span),
            (b"willContinue" | b"will_continue", Kind::Bool) => {
                goes_on = slice(json, &span) == b"true";
            }
            _ => {}
        })?;
        let more = self.blocks.index_of(Growing::Call).is_some() && name.is_empty();
        if name.is_empty() && !more && arguments.is_none() {
            // The end of a call that has ended already.
            return Ok(());
        }
        if !more && !goes_on && pieces.is_none() {
            let arguments = match &arguments {
                Some(span) => String::from_utf8_lossy(slice(json, span)),
                None => "{}".into(),
            };
            self.whole_call(
                CompleteCall {
                    id: &id,
                    name: &name,
                    arguments: &arguments,
                    signature: signature.as_deref(),
                },
                out,
            );
            return Ok(());
        }
        if !more {
            self.repeats.interrupt(out);
            let id = self.call_id(id);
            let block = BlockStart::ToolCall { id, name };
            let index = self.start(Some(Growing::Call), block, out);
            if let Some(signature) = signature.take() {
                out(Event::BlockDelta { index, delta: Delta::Signature(signature) });
            }
            if let Some(span) = &arguments {
                self.arguments = PartialArguments::from(slice(json, span));
            }
        }
        if let Some(pieces) = pieces {
            self.arguments.take(slice(json, &pieces));
        }
        if let (Some(index), Some(signature)) = (self.blocks.index_of(Growing::Call), signature) {
            out(Event::BlockDelta { index, delta: Delta::Signature(signature) });
        }
        if !goes_on {
            self.close(out);
        }
        Ok(())
    }

    /// Reads a complete call. A repeated call is emitted once.
    fn whole_call(&mut self, call: CompleteCall<'_>, out: Out<'_>) {
        if self.repeats.is_repeat(call, out) {
            return;
        }
        self.close(out);
        self.repeats.end_earlier(out);
        let block =
            BlockStart::ToolCall { id: self.call_id(call.id.into()), name: call.name.into() };
        let index = self.start(None, block, out);
        if let Some(signature) = call.signature {
            out(Event::BlockDelta { index, delta: Delta::Signature(signature.into()) });
        }
        out(Event::BlockDelta { index, delta: Delta::ToolArguments(call.arguments.into()) });
        self.repeats.add(index, call, out);
    }

    /// The id of the next call.
    fn call_id<'i>(&mut self, given: Cow<'i, str>) -> Cow<'i, str> {
        let number = self.calls;
        self.calls += 1;
        match given.is_empty() {
            true => format!("call_{number}").into(),
            false => given,
        }
    }

    fn opaque(&mut self, json: &[u8], part: &Part<'_>, name: &[u8], out: Out<'_>) {
        let name = String::from_utf8_lossy(name);
        self.repeats.interrupt(out);
        self.close(out);
        let delta = Delta::Opaque(String::from_utf8_lossy(slice(json, &part.whole)));
        self.blocks.whole(BlockStart::Opaque { dialect: NAME.into(), name }, Some(delta), out);
    }

    /// Emits the citations of the growing text, or those that end before what follows.
    fn cite(&mut self, index: u32, all: bool, out: Out<'_>) {
        let (text, before) = (&self.text, self.before);
        let (of_it, rest) = std::mem::take(&mut self.grounded)
            .into_iter()
            .partition(|one| all || one.is_of(text, before));
        self.grounded = rest;
        for citation in grounding::cite(of_it, text, before) {
            out(Event::BlockDelta { index, delta: Delta::Citation(citation.into()) });
        }
    }

    /// Emits the remaining citations: with the last text, or with an empty text at the end.
    fn cite_rest(&mut self, out: Out<'_>) {
        if self.grounded.is_empty() {
            return;
        }
        let index = match self.blocks.index_of(Growing::Text) {
            Some(index) => index,
            None => self.start(Some(Growing::Text), BlockStart::Text { text: "".into() }, out),
        };
        self.cite(index, true, out);
    }

    /// Starts a block, which grows if it has a kind.
    fn start(&mut self, kind: Option<Growing>, block: BlockStart<'_>, out: Out<'_>) -> u32 {
        self.close(out);
        if let BlockStart::Text { text } = &block {
            self.before += self.text.len();
            self.text.clear();
            self.text.push_str(text);
        }
        match kind {
            Some(kind) => self.blocks.start_growing(kind, block, out),
            None => self.blocks.start(block, out),
        }
    }

    fn close(&mut self, out: Out<'_>) {
        match self.blocks.open {
            Some((Growing::Text, index)) if !self.grounded.is_empty() => {
                self.cite(index, false, out);
            }
            Some((Growing::Call, index)) => {
                let arguments = std::mem::take(&mut self.arguments).finish();
                out(Event::BlockDelta { index, delta: Delta::ToolArguments(arguments.into()) });
            }
            _ => {}
        }
        self.blocks.close(out);
    }

    /// Ends the reply with a fault.
    pub(crate) fn fail(&mut self, fault: Fault, out: Out<'_>) {
        if !self.blocks.ended {
            self.repeats.interrupt(out);
            self.blocks.fail(fault, out);
        }
    }

    /// Ends the input. This is the only sign of the end, because a finish reason may be repeated.
    pub(crate) fn end(&mut self, whole: bool, out: Out<'_>) {
        if self.blocks.ended {
            return;
        }
        let finish = match self.finish.take() {
            // A whole reply needs no finish reason.
            None if whole && self.complete => Some(Finish::Reason(EndReason::Stop)),
            finish => finish,
        };
        self.repeats.interrupt(out);
        if matches!(finish, Some(Finish::Reason(_))) {
            self.close(out);
        }
        if self.emitted_usage != self.counts.usage() {
            self.emit_usage(out);
        }
        let reason = match finish {
            Some(Finish::Fault(fault)) => return self.fail(fault, out),
            Some(Finish::Reason(EndReason::Stop)) if self.calls > 0 => EndReason::ToolCalls,
            Some(Finish::Reason(reason)) => reason,
            None => EndReason::Cut,
        };
        if reason == EndReason::Refusal && !self.details.is_empty() {
            out(Event::EndExplained(std::mem::take(&mut self.details)));
        }
        self.blocks.end(reason, out);
    }

    /// Keeps the details of a refusal. The usual reason has no details.
    fn explain(&mut self, word: &str, message: Option<&str>) {
        let message = message.filter(|message| !message.is_empty());
        self.details = EndDetails {
            sequence: None,
            category: (word != REFUSED).then(|| word.to_owned()),
            explanation: message.map(str::to_owned),
        };
    }

    fn emit_usage(&mut self, out: Out<'_>) {
        if let Some(usage) = self.counts.usage() {
            self.emitted_usage = Some(usage);
            out(Event::Usage(usage));
        }
    }
}

fn read_part(json: &[u8], whole: Span) -> Result<Part<'_>, JsonError> {
    let mut part = Part::default();
    let start = whole.start;
    each_member(json, start, |key, kind, span| match (key, kind) {
        (b"text", Kind::String) => part.text = Some(span),
        (b"thought", Kind::Bool) => part.thought = slice(json, &span) == b"true",
        (b"thoughtSignature" | b"thought_signature", Kind::String) => part.signature = Some(span),
        (b"functionCall" | b"function_call", Kind::Object) => part.call = Some(span),
        (b"partMetadata" | b"part_metadata" | b"mediaResolution" | b"videoMetadata", _) => {}
        (_, Kind::Object) if part.other.is_none() => part.other = Some(key),
        _ => {}
    })?;
    part.whole = whole;
    Ok(part)
}

/// Reads the error in a chunk. They are rare, so a tree is fine.
fn read_error(json: &[u8]) -> Fault {
    serde_json::from_slice::<Value>(json)
        .ok()
        .and_then(|value| errors::read_value(&value, FaultKind::Internal))
        .unwrap_or_else(|| Fault::new(FaultKind::Internal, "the provider failed"))
}
