//! Composing: from an accepted request to a finished reply.

use serde_json::{Value, json};

use super::ask::{Ask, CALL};
use super::marks::{self, ANYWHERE, IN_ID};
use super::modes::Plan;
use super::openrouter::Format;
use super::reply::{Choice, Form, Part, Reply};
use super::variants::{Shows, SignsCalls, Variant};
use crate::draft::{Draft, Ending, Limits, identifier};
use crate::exchange::Exchange;
use crate::script::{Piece, Random, Situation};
use crate::signing::{Hash, hash};
use crate::style::SignatureStyle;

/// Everything a reply depends on, besides the request.
pub(crate) struct Composer<'a> {
    pub(crate) exchange: &'a Exchange<'a>,
    pub(crate) variant: &'static Variant,
    pub(crate) plan: Plan,
}

impl Composer<'_> {
    /// Makes the reply.
    pub(crate) fn compose(&self, ask: &Ask) -> Reply {
        let seed = self.exchange.seed(ask.model(), &ask.conversation());
        let mut counts = Counts { input: ask.tokens(), ..Counts::default() };
        let choice = |index: u64| {
            let seed = match index {
                0 => seed,
                _ => hash(&[&seed, &index.to_be_bytes()]),
            };
            self.choice(ask, &seed, &mut counts)
        };
        let choices = (0..ask.choices()).map(choice).collect();
        let streams_usage = ask.wants_usage();
        Reply {
            id: format!("chatcmpl-{}", identifier(&seed, "completion", 0)),
            model: self.exchange.answer_model(ask.model()),
            choices,
            usage: self.usage(counts),
            form: Form {
                shows: self.plan.shows,
                format: Format::of(ask.model()),
                style: self.exchange.style(),
                signs_calls: marks::signs_calls(self.variant, ask.model()),
                legacy: ask.is_legacy(),
                empty_content: self.variant.empty_content,
                whole_calls: self.variant.whole_calls,
                official: self.variant.official,
                usage: streams_usage && !self.variant.counts_unasked,
                usage_at_end: self.variant.counts_unasked,
                obfuscation: self.variant.official && ask.wants_obfuscation(),
            },
        }
    }

    fn choice(&self, ask: &Ask, seed: &Hash, counts: &mut Counts) -> Choice {
        let stop_sequences = ask.stop_sequences();
        let limits = Limits { stop_sequences: &stop_sequences, tokens: ask.limit() };
        let draft = Draft::write(self.exchange, seed, limits, || self.situation(ask));
        counts.output += draft.tokens();
        counts.reasoning += draft.thinking_tokens();
        let cut = draft.ending == Ending::Limit;
        let finish_reason = match draft.ending {
            Ending::Limit => "length",
            Ending::Calls if self.writes_calls(ask) => "stop",
            Ending::Calls if ask.is_legacy() => "function_call",
            Ending::Calls => self.variant.called,
            Ending::StopSequence(_) | Ending::Done => "stop",
        };
        let parts = match self.plan.shows {
            Shows::Tags => self.tagged(ask, draft.pieces, cut, seed),
            _ => self.parts(ask, draft.pieces, cut, seed),
        };
        Choice { parts, finish_reason }
    }

    fn situation(&self, ask: &Ask) -> Situation {
        Situation {
            user_text: ask.user_text(),
            results: ask.results(),
            rounds: ask.rounds(),
            tools: ask.callable(),
            choice: ask.choice(),
            parallel: ask.parallel(),
            thinks: self.plan.thinks,
            deltas: self.exchange.deltas(),
        }
    }

    fn redacts(&self) -> bool {
        matches!(self.plan.shows, Shows::Details | Shows::Blocks)
    }

    /// Calls are text here, as of a server that was not told how its model writes them.
    fn writes_calls(&self, ask: &Ask) -> bool {
        self.plan.shows == Shows::Tags && ask.model().contains("raw-tools")
    }

    fn parts(&self, ask: &Ask, pieces: Vec<Piece>, cut: bool, seed: &Hash) -> Vec<Part> {
        let signs = self.exchange.style() != SignatureStyle::Empty;
        let format = Format::of(ask.model());
        let mut signing = Signing {
            composer: self,
            nonces: Random::new(&hash(&[seed, b"nonces"])),
            place: ANYWHERE,
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
                    let signs_calls = marks::signs_calls(self.variant, ask.model());
                    let signature = (signed && signs_calls != SignsCalls::Never)
                        .then(|| signing.sign(&marks::of_call(&name, &arguments), &thoughts));
                    let mut id = self.call_id(ask, seed, calls);
                    if let (SignsCalls::ProviderFields, Some(signature)) = (signs_calls, &signature)
                    {
                        id = format!("{id}{IN_ID}{signature}");
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
                    if self.plan.shows == Shows::Nowhere {
                        continue;
                    }
                    let readable = match self.plan.shows {
                        Shows::Details => format.signs,
                        Shows::Blocks => true,
                        _ => false,
                    };
                    let signature = (signs && readable).then(|| signing.sign(&text, &text));
                    let mark = signature.as_deref().unwrap_or_default();
                    signing.pass(format.kind, &text, mark);
                    let sealed = (signs && self.plan.shows == Shows::Details && !readable)
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

    /// The reply of a server that does not tell reasoning from text.
    fn tagged(&self, ask: &Ask, pieces: Vec<Piece>, cut: bool, seed: &Hash) -> Vec<Part> {
        // The prompt's template has written the first tag already.
        let mut opened = ask.model().contains("implicit");
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
                Piece::Text(said) => text.push_str(&said),
                Piece::Tool { name, input } if self.writes_calls(ask) => {
                    let call = json!({"name": name, "arguments": input});
                    text.push_str(&format!("\n{CALL}{call}</tool_call>"));
                }
                Piece::Tool { name, input } => parts.push(Part::Call {
                    id: self.call_id(ask, seed, parts.len()),
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

    /// The seed holds the whole conversation, so no later call gets the same id, except from a
    /// server that numbers the calls of each reply anew.
    fn call_id(&self, ask: &Ask, seed: &Hash, index: usize) -> String {
        if self.repeats_ids(ask) {
            return "call_0".to_owned();
        }
        let index = index + ask.messages().len();
        let id = identifier(seed, "call", index);
        match id.len().checked_sub(9) {
            Some(start) if self.variant.nine_letters => id[start..].to_owned(),
            _ => format!("call_{id}"),
        }
    }

    fn repeats_ids(&self, ask: &Ask) -> bool {
        self.variant.name == "reasoning-field" && ask.model().contains("repeat-ids")
    }

    fn usage(&self, counts: Counts) -> Value {
        let Counts { input, output, reasoning } = counts;
        let completion =
            if self.variant.counts_apart { output.saturating_sub(reasoning) } else { output };
        let mut usage = json!({
            "prompt_tokens": input,
            "completion_tokens": completion,
            "total_tokens": input + output,
            "prompt_tokens_details": { "cached_tokens": 0 },
        });
        if self.variant.official {
            usage["prompt_tokens_details"] =
                json!({ "cached_tokens": 0, "cache_write_tokens": 0, "audio_tokens": 0 });
            usage["completion_tokens_details"] = json!({
                "reasoning_tokens": reasoning, "audio_tokens": 0,
                "accepted_prediction_tokens": 0, "rejected_prediction_tokens": 0,
            });
        } else if (self.plan.shows != Shows::Tags || self.variant.name == "groq")
            && self.variant.counts_thinking
        {
            // Who cannot tell reasoning from text cannot count it either.
            usage["completion_tokens_details"] = json!({ "reasoning_tokens": reasoning });
        }
        if self.variant.name.starts_with("deepseek") {
            usage["prompt_cache_hit_tokens"] = 0.into();
            usage["prompt_cache_miss_tokens"] = input.into();
        }
        usage
    }
}

#[derive(Clone, Copy, Default)]
struct Counts {
    input: usize,
    output: usize,
    reasoning: usize,
}

/// The signing of one reply, thought by thought.
struct Signing<'a> {
    composer: &'a Composer<'a>,
    nonces: Random,
    place: Hash,
}

impl Signing<'_> {
    fn sign(&mut self, shown: &str, hidden: &str) -> String {
        let Composer { exchange, variant, .. } = self.composer;
        let nonce = self.nonces.next();
        marks::sign(exchange.signer(), variant, shown, hidden, self.place, nonce)
    }

    /// Only the list of details is bound in its order.
    fn pass(&mut self, kind: &str, text: &str, mark: &str) {
        if self.composer.plan.shows == Shows::Details {
            self.place = marks::next(self.place, kind, text, mark);
        }
    }
}
