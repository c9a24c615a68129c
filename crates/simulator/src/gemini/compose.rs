//! Builds the reply to an accepted request.

use serde_json::Value;

use super::models::Model;
use super::modes::ThinkingPlan;
use super::reply::{Data, Part, Reply, Usage};
use super::request::{ParsedRequest, result_text};
use super::verify::bound_to;
use crate::draft::{Draft, Ending, Limits, identifier};
use crate::exchange::Exchange;
use crate::prompt_cache::CacheUse;
use crate::script::{Piece, Random, Situation};
use crate::signing::{Claim, Hash, SignatureKind, hash};
use crate::style::SignatureStyle;

/// What a reply depends on, apart from the request.
pub(crate) struct Composer<'a> {
    pub(crate) exchange: &'a Exchange<'a>,
    pub(crate) model: &'a Model,
    pub(crate) plan: &'a ThinkingPlan,
    pub(crate) cache_use: CacheUse,
}

impl Composer<'_> {
    /// Builds the reply.
    pub(crate) fn compose(&self, request: &ParsedRequest) -> Reply {
        let seed = self.exchange.seed(&request.model, &conversation(request));
        let stop_sequences = request.stop_sequences();
        let limits = Limits {
            stop_sequences: &stop_sequences,
            tokens: request.config["maxOutputTokens"].as_u64(),
            // -1 lets the model decide.
            thinking: request.config["thinkingConfig"]["thinkingBudget"].as_u64(),
        };
        let draft = Draft::write(self.exchange, &seed, limits, || self.situation(request));
        let thoughts = draft.thinking_tokens();
        Reply {
            id: identifier(&seed, "response", 0),
            model: self.exchange.answer_model(&request.model),
            usage: Usage {
                prompt: self.cache_use.total,
                cached: self.cache_use.read,
                candidates: draft.tokens() - thoughts,
                thoughts,
            },
            // A reply with calls has the same finish reason as any other.
            finish_reason: match draft.ending {
                Ending::Limit => "MAX_TOKENS",
                Ending::StopSequence(_) | Ending::Calls | Ending::Done => "STOP",
            },
            shows_thoughts: self.plan.shows,
            style: self.exchange.style(),
            parts: self.sign(draft, &seed),
        }
    }

    fn situation(&self, request: &ParsedRequest) -> Situation {
        Situation {
            user_text: request.user_text(),
            results: request.last_user_parts().filter_map(result_text).collect(),
            rounds: request.rounds(),
            tools: request.callable(),
            choice: request.choice(),
            parallel: true,
            thinks: self.plan.thinks,
            format: request.format(),
            deltas: self.exchange.deltas(),
        }
    }

    /// The parts. The first call carries the signature; in a reply without calls it comes after the
    /// text.
    fn sign(&self, draft: Draft, seed: &Hash) -> Vec<Part> {
        let mut parts: Vec<Part> = Vec::with_capacity(draft.pieces.len());
        let mut signing = Signing {
            composer: self,
            nonces: Random::new(&hash(&[seed, b"nonces"])),
            thoughts: String::new(),
        };
        let mut called = false;
        for (index, piece) in draft.pieces.into_iter().enumerate() {
            match piece {
                // This dialect has no redacted thinking, so it is an ordinary thought.
                Piece::Thinking(text) | Piece::Redacted(text) => {
                    signing.thoughts += &text;
                    if self.plan.shows {
                        say(&mut parts, Data::Thought(text));
                    }
                }
                Piece::Text(text) => say(&mut parts, Data::Text(text)),
                Piece::Tool { name, input } => {
                    let signature =
                        (!called).then(|| signing.sign(&bound_to(&name, &input))).flatten();
                    called = true;
                    let id = format!("fc_{}", identifier(seed, "call", index));
                    parts.push(Part {
                        data: Data::Call { id: self.model.ids.then_some(id), name, args: input },
                        signature,
                    });
                }
            }
        }
        // A reply that the limit cut has no end, and so no signature.
        let ends = draft.ending != Ending::Limit && !signing.thoughts.is_empty();
        if !called && ends {
            self.sign_text(&mut parts, signing.sign(""));
        }
        parts
    }

    fn sign_text(&self, parts: &mut Vec<Part>, signature: Option<String>) {
        if signature.is_none() {
            return;
        }
        match parts.last_mut() {
            Some(last) if self.exchange.style() == SignatureStyle::Start => {
                last.signature = signature;
            }
            _ => parts.push(Part { data: Data::Text(String::new()), signature }),
        }
    }
}

/// Signs the parts of one reply.
struct Signing<'a> {
    composer: &'a Composer<'a>,
    nonces: Random,
    /// All thoughts so far, visible or not.
    thoughts: String,
}

impl Signing<'_> {
    fn sign(&mut self, bound_to: &str) -> Option<String> {
        let Composer { exchange, model, plan, .. } = self.composer;
        let thinks = plan.thinks || !self.thoughts.is_empty();
        if !thinks || exchange.style() == SignatureStyle::Empty {
            return None;
        }
        let claim = Claim {
            family: model.family,
            shown: bound_to,
            hidden: &self.thoughts,
            prefix: Hash::default(),
            nonce: self.nonces.next(),
            ordinal: 0,
        };
        Some(exchange.signer().sign(SignatureKind::Thought, &claim))
    }
}

/// Adds a text. Adjacent texts of one kind become one part, because a stream does not separate
/// them.
fn say(parts: &mut Vec<Part>, data: Data) {
    match (parts.last_mut().map(|part| &mut part.data), &data) {
        (Some(Data::Thought(before)), Data::Thought(text))
        | (Some(Data::Text(before)), Data::Text(text)) => before.push_str(text),
        _ => parts.push(Part { data, signature: None }),
    }
}

/// All text of the user's last entries, for scenarios.
pub(crate) fn last_said(request: &ParsedRequest) -> String {
    let text = |part: &Value| result_text(part).or_else(|| Some(part["text"].as_str()?.to_owned()));
    let texts = request.last_user_parts().filter_map(text);
    texts.collect::<Vec<_>>().join("\n")
}

/// A hash of the conversation.
fn conversation(request: &ParsedRequest) -> Hash {
    let mut all = vec![request.system.to_string()];
    all.extend(request.tools.iter().map(Value::to_string));
    for content in &request.contents {
        all.push(content.role.clone());
        all.extend(content.parts.iter().map(Value::to_string));
    }
    let all: Vec<&[u8]> = all.iter().map(String::as_bytes).collect();
    hash(&all)
}
