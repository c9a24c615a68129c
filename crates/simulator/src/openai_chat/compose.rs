//! Builds the reply to an accepted request.

use serde_json::{Value, json};

use super::logprobs::Logprobs;
use super::modes::ThinkingPlan;
use super::openrouter::Format;
use super::prompt;
use super::reply::{Choice, Form, Part, Reply};
use super::request::{CALL, ParsedRequest};
use super::signatures::{self, ID_SEPARATOR, NO_PREFIX};
use super::variants::{CallSigning, ReasoningOutput, Variant};
use crate::draft::{Draft, Ending, Limits, identifier};
use crate::exchange::Exchange;
use crate::openai;
use crate::prompt_cache::CacheUse;
use crate::script::{Piece, Random, Situation};
use crate::signing::{Hash, hash};
use crate::style::SignatureStyle;

/// What a reply depends on, apart from the request.
pub(crate) struct Composer<'a> {
    pub(crate) exchange: &'a Exchange<'a>,
    pub(crate) variant: &'static Variant,
    pub(crate) plan: ThinkingPlan,
}

impl Composer<'_> {
    /// Builds the reply.
    pub(crate) fn compose(&self, request: &ParsedRequest) -> Reply {
        let seed = self.exchange.seed(request.model(), &request.conversation());
        let input = self.exchange.cached(
            request.model(),
            request.get("prompt_cache_key").as_str().unwrap_or_default(),
            &prompt::parts(request, self.variant),
            prompt::caching(request, self.variant),
        );
        let mut counts = Counts { input, ..Counts::default() };
        let choice = |index: u64| {
            let seed = match index {
                0 => seed,
                _ => hash(&[&seed, &index.to_be_bytes()]),
            };
            self.choice(request, &seed, &mut counts)
        };
        let choices = (0..request.choices()).map(choice).collect();
        let streams_usage = request.wants_usage();
        Reply {
            id: format!("chatcmpl-{}", identifier(&seed, "completion", 0)),
            model: self.exchange.answer_model(request.model()),
            choices,
            usage: self.usage(request.model(), counts),
            form: Form {
                reasoning_output: self.plan.reasoning_output,
                format: Format::of(request.model()),
                style: self.exchange.style(),
                call_signing: signatures::call_signing(self.variant, request.model()),
                legacy: request.is_legacy(),
                sends_empty_content: self.variant.sends_empty_content,
                sends_whole_calls: self.variant.sends_whole_calls,
                official: self.variant.official,
                usage: streams_usage && !self.variant.always_sends_usage,
                usage_at_end: self.variant.always_sends_usage,
                obfuscation: self.variant.official && request.wants_obfuscation(),
                logprobs: Logprobs::read(request, self.variant),
            },
        }
    }

    fn choice(&self, request: &ParsedRequest, seed: &Hash, counts: &mut Counts) -> Choice {
        let stop_sequences = request.stop_sequences();
        let budget = [request.get("thinking_budget"), &request.get("reasoning")["max_tokens"]];
        let limits = Limits {
            stop_sequences: &stop_sequences,
            tokens: request.limit(),
            thinking: budget.into_iter().find_map(Value::as_u64),
        };
        let draft = Draft::write(self.exchange, seed, limits, || self.situation(request));
        counts.output += draft.tokens();
        counts.reasoning += draft.thinking_tokens();
        let cut = draft.ending == Ending::Limit;
        let finish_reason = match draft.ending {
            Ending::Limit => "length",
            Ending::Calls if self.writes_calls(request) => "stop",
            Ending::Calls if request.is_legacy() => "function_call",
            Ending::Calls => self.variant.calls_finish_reason,
            Ending::StopSequence(_) | Ending::Done => "stop",
        };
        let parts = match self.plan.reasoning_output {
            ReasoningOutput::Tags => self.tagged(request, draft.pieces, cut, seed),
            _ => self.parts(request, draft.pieces, cut, seed),
        };
        Choice { parts, finish_reason }
    }

    fn situation(&self, request: &ParsedRequest) -> Situation {
        Situation {
            user_text: request.user_text(),
            results: request.results(),
            rounds: request.rounds(),
            tools: request.callable(),
            choice: request.choice(),
            parallel: request.parallel(),
            thinks: self.plan.thinks,
            format: request.format(),
            deltas: self.exchange.deltas(),
        }
    }

    fn redacts(&self) -> bool {
        matches!(self.plan.reasoning_output, ReasoningOutput::Details | ReasoningOutput::Blocks)
    }

    /// Whether calls are written as text, as by a server without a tool parser.
    fn writes_calls(&self, request: &ParsedRequest) -> bool {
        self.plan.reasoning_output == ReasoningOutput::Tags && request.model().contains("raw-tools")
    }

    fn parts(
        &self,
        request: &ParsedRequest,
        pieces: Vec<Piece>,
        cut: bool,
        seed: &Hash,
    ) -> Vec<Part> {
        let signs = self.exchange.style() != SignatureStyle::Empty;
        let format = Format::of(request.model());
        let mut signing = Signing {
            composer: self,
            nonces: Random::new(&hash(&[seed, b"nonces"])),
            prefix: NO_PREFIX,
        };
        let last = pieces.len().saturating_sub(1);
        let mut parts = Vec::new();
        let mut calls = 0;
        let mut thoughts = String::new();
        for (index, piece) in pieces.into_iter().enumerate() {
            match piece {
                Piece::Text(text) => parts.push(Part::Text(text)),
                Piece::Tool { name, input } => {
                    let arguments = input.to_string();
                    let signed = signs && calls == 0;
                    let call_signing = signatures::call_signing(self.variant, request.model());
                    let signature = (signed && call_signing != CallSigning::Never)
                        .then(|| signing.sign(&signatures::of_call(&name, &arguments), &thoughts));
                    let mut id = self.call_id(request, seed, calls);
                    if let (CallSigning::ProviderFields, Some(signature)) =
                        (call_signing, &signature)
                    {
                        id = format!("{id}{ID_SEPARATOR}{signature}");
                    }
                    calls += 1;
                    parts.push(Part::Call { id, name, arguments, signature });
                }
                Piece::Thinking(text) | Piece::Redacted(text) if !self.plan.shown => {
                    thoughts.push_str(&text);
                }
                Piece::Redacted(text) if self.redacts() => {
                    let data = signing.sign("", &text);
                    signing.pass("reasoning.encrypted", "", &data);
                    parts.push(Part::Sealed { data, id: None });
                }
                Piece::Thinking(text) | Piece::Redacted(text) => {
                    thoughts.push_str(&text);
                    if self.plan.reasoning_output == ReasoningOutput::Nowhere {
                        continue;
                    }
                    let readable = match self.plan.reasoning_output {
                        ReasoningOutput::Details => format.signs,
                        ReasoningOutput::Blocks => true,
                        _ => false,
                    };
                    let signature = (signs && readable).then(|| signing.sign(&text, &text));
                    let signed = signature.as_deref().unwrap_or_default();
                    signing.pass(format.kind, &text, signed);
                    let sealed = (signs
                        && self.plan.reasoning_output == ReasoningOutput::Details
                        && !readable)
                        .then(|| signing.sign("", &text));
                    parts.push(Part::Thought { text, signature, closed: !(cut && index == last) });
                    if let Some(data) = sealed {
                        signing.pass("reasoning.encrypted", "", &data);
                        let id = format!("rs_{}", identifier(seed, "reasoning", index));
                        parts.push(Part::Sealed { data, id: Some(id) });
                    }
                }
            }
        }
        parts
    }

    /// The reply of a server that does not separate reasoning from text.
    fn tagged(
        &self,
        request: &ParsedRequest,
        pieces: Vec<Piece>,
        cut: bool,
        seed: &Hash,
    ) -> Vec<Part> {
        // The prompt's template already contains the first tag.
        let mut opened = request.model().contains("implicit");
        let last = pieces.len().saturating_sub(1);
        let mut text = String::new();
        let mut parts = Vec::new();
        for (index, piece) in pieces.into_iter().enumerate() {
            match piece {
                Piece::Thinking(thought) | Piece::Redacted(thought) => {
                    if !std::mem::take(&mut opened) {
                        text.push_str("<think>\n");
                    }
                    text.push_str(&thought);
                    if !(cut && index == last) {
                        text.push_str("\n</think>\n\n");
                    }
                }
                Piece::Text(piece) => text.push_str(&piece),
                Piece::Tool { name, input } if self.writes_calls(request) => {
                    let call = json!({"name": name, "arguments": input});
                    text.push_str(&format!("\n{CALL}{call}</tool_call>"));
                }
                Piece::Tool { name, input } => parts.push(Part::Call {
                    id: self.call_id(request, seed, parts.len()),
                    name,
                    arguments: input.to_string(),
                    signature: None,
                }),
            }
        }
        if !text.is_empty() {
            parts.insert(0, Part::Text(text));
        }
        parts
    }

    /// The seed depends on the whole conversation, so no later call gets the same id, except from a
    /// server that restarts its numbering with each reply.
    fn call_id(&self, request: &ParsedRequest, seed: &Hash, index: usize) -> String {
        if self.repeats_ids(request) {
            return "call_0".to_owned();
        }
        let index = index + request.messages().len();
        let id = identifier(seed, "call", index);
        match id.len().checked_sub(9) {
            Some(start) if self.variant.nine_character_ids => id[start..].to_owned(),
            _ => format!("call_{id}"),
        }
    }

    fn repeats_ids(&self, request: &ParsedRequest) -> bool {
        self.variant.name == "reasoning-field" && request.model().contains("repeat-ids")
    }

    fn usage(&self, model: &str, counts: Counts) -> Value {
        let Counts { input, output, reasoning } = counts;
        let completion = if self.variant.reasoning_outside_completion {
            output.saturating_sub(reasoning)
        } else {
            output
        };
        let mut usage = json!({
            "prompt_tokens": input.total,
            "completion_tokens": completion,
            "total_tokens": input.total + output,
        });
        self.report_cache(model, input, &mut usage);
        if self.variant.official {
            usage["completion_tokens_details"] = json!({
                "reasoning_tokens": reasoning, "audio_tokens": 0,
                "accepted_prediction_tokens": 0, "rejected_prediction_tokens": 0,
            });
        } else if (self.plan.reasoning_output != ReasoningOutput::Tags
            || self.variant.name == "groq")
            && self.variant.reports_reasoning_tokens
        {
            // A server that does not separate reasoning from text cannot count it.
            usage["completion_tokens_details"] = json!({ "reasoning_tokens": reasoning });
        }
        usage
    }

    /// Adds what came from the cache, in the members of this server.
    fn report_cache(&self, model: &str, used: CacheUse, usage: &mut Value) {
        let CacheUse { total, read, write, write_1h } = used;
        let mut details = json!({ "cached_tokens": read });
        match self.variant.name {
            _ if self.variant.official => {
                let written = if openai::counts_writes(model) { write } else { 0 };
                details["cache_write_tokens"] = written.into();
                details["audio_tokens"] = 0.into();
            }
            "openrouter" => details["cache_write_tokens"] = write.into(),
            "litellm" => {
                details["cache_creation_tokens"] = write.into();
                details["cache_creation_token_details"] = json!({
                    "ephemeral_5m_input_tokens": write - write_1h,
                    "ephemeral_1h_input_tokens": write_1h,
                });
                usage["cache_read_input_tokens"] = read.into();
                usage["cache_creation_input_tokens"] = write.into();
            }
            name if name.starts_with("deepseek") => {
                usage["prompt_cache_hit_tokens"] = read.into();
                usage["prompt_cache_miss_tokens"] = (total - read).into();
            }
            _ => {}
        }
        usage["prompt_tokens_details"] = details;
    }
}

#[derive(Clone, Copy, Default)]
struct Counts {
    input: CacheUse,
    output: usize,
    reasoning: usize,
}

/// Signs one reply, thought by thought.
struct Signing<'a> {
    composer: &'a Composer<'a>,
    nonces: Random,
    prefix: Hash,
}

impl Signing<'_> {
    fn sign(&mut self, shown: &str, hidden: &str) -> String {
        let Composer { exchange, variant, .. } = self.composer;
        let nonce = self.nonces.next();
        signatures::sign(exchange.signer(), variant, shown, hidden, self.prefix, nonce)
    }

    /// Only `reasoning_details` are bound to their order.
    fn pass(&mut self, kind: &str, text: &str, signature: &str) {
        if self.composer.plan.reasoning_output == ReasoningOutput::Details {
            self.prefix = signatures::next(self.prefix, kind, text, signature);
        }
    }
}
