//! Composing: from an accepted request to a finished message.

use serde_json::Value;

use super::ask::{Ask, Terms, kind_of, result_text};
use super::models::Model;
use super::modes::Plan;
use super::reply::{Block, Reply, Usage};
use super::verify::Verified;
use crate::draft::{Draft, Ending, Limits, identifier, written};
use crate::exchange::Exchange;
use crate::script::{Piece, Random, Situation};
use crate::signing::{Claim, Hash, Kind, hash};
use crate::style::SignatureStyle;

/// Everything a reply depends on.
pub(crate) struct Composer<'a> {
    pub(crate) exchange: &'a Exchange<'a>,
    pub(crate) model: &'a Model,
    pub(crate) plan: &'a Plan,
    pub(crate) terms: &'a Terms,
    pub(crate) input_tokens: usize,
}

impl Composer<'_> {
    /// Makes the reply.
    pub(crate) fn compose(&self, ask: &Ask, verified: Verified) -> Reply {
        let seed = self.exchange.seed(&ask.model, &verified.prefix.whole());
        let limits = Limits { stop_sequences: &ask.stop_sequences, tokens: ask.max_tokens };
        let draft = Draft::write(self.exchange, &seed, limits, || self.situation(ask));
        let usage = Usage {
            input: self.input_tokens,
            output: draft.tokens(),
            thinking: draft.thinking_tokens(),
        };
        let dropped = verified.dropped.clone();
        let (stop_reason, stop_sequence) = match draft.ending {
            Ending::Limit => ("max_tokens", None),
            Ending::StopSequence(sequence) => ("stop_sequence", Some(sequence)),
            Ending::Calls => ("tool_use", None),
            Ending::Done => ("end_turn", None),
        };
        Reply {
            id: format!("msg_{}", identifier(&seed, "message", 0)),
            model: self.exchange.answer_model(&ask.model),
            blocks: self.sign(draft.pieces, ask, verified, &seed),
            stop_reason,
            stop_sequence,
            usage,
            input_transformations: self.terms.has_binding_controls().then_some(dropped),
            style: self.exchange.style(),
        }
    }

    fn situation(&self, ask: &Ask) -> Situation {
        let results: Vec<String> = ask
            .last_user_turns()
            .flat_map(|turn| &turn.blocks)
            .filter(|block| kind_of(block) == "tool_result")
            .map(result_text)
            .collect();
        Situation {
            user_text: user_text(ask),
            rounds: rounds(ask),
            tools: ask.callable(),
            choice: ask.choice(),
            parallel: ask.parallel(),
            thinks: self.plan.thinks(!results.is_empty()),
            deltas: self.exchange.deltas(),
            results,
        }
    }

    fn sign(&self, pieces: Vec<Piece>, ask: &Ask, verified: Verified, seed: &Hash) -> Vec<Block> {
        let mut prefix = verified.prefix;
        prefix.begin_response();
        let signer = self.exchange.signer();
        let style = self.exchange.style();
        let mut nonces = Random::new(&hash(&[seed, b"nonces"]));
        let mut blocks = Vec::with_capacity(pieces.len());
        for (index, piece) in pieces.into_iter().enumerate() {
            let claim = |shown, hidden, nonce| Claim {
                family: self.model.family,
                shown,
                hidden,
                prefix: prefix.here(),
                nonce,
            };
            let block = match piece {
                Piece::Thinking(text) => {
                    let shown = if self.plan.shows_text { text.as_str() } else { "" };
                    let signature = match style {
                        SignatureStyle::Empty => String::new(),
                        _ => signer.sign(Kind::Thinking, &claim(shown, &text, nonces.next())),
                    };
                    Block::Thinking { text: shown.to_owned(), signature }
                }
                Piece::Redacted(text) => Block::Redacted {
                    data: signer.sign(Kind::Redacted, &claim("", &text, nonces.next())),
                },
                Piece::Text(text) => Block::Text { text },
                // The seed holds the whole conversation, so no later call gets this id.
                Piece::Tool { name, input } => Block::ToolUse {
                    id: format!("toolu_{}", identifier(seed, "tool", index + ask.turns.len())),
                    name,
                    input,
                },
            };
            prefix.pass("assistant", &block.json());
            blocks.push(block);
        }
        blocks
    }
}

/// Everything the user's last entries say, for scenarios.
pub(crate) fn last_said(ask: &Ask) -> String {
    let blocks = ask.last_user_turns().flat_map(|turn| &turn.blocks);
    let texts = blocks.map(|block| match kind_of(block) {
        "tool_result" => result_text(block),
        _ => block["text"].as_str().unwrap_or_default().to_owned(),
    });
    texts.collect::<Vec<_>>().join("\n")
}

/// The last user text that is not about tool results.
fn user_text(ask: &Ask) -> String {
    let text = |block: &Value| {
        let text = written(block["text"].as_str()?)?;
        (kind_of(block) == "text").then(|| text.to_owned())
    };
    let asking = |turn: &&super::ask::Turn| turn.role == "user" && !turn.holds("tool_result");
    ask.turns
        .iter()
        .rev()
        .filter(asking)
        .map(|turn| turn.blocks.iter().filter_map(text).collect::<Vec<_>>().join("\n"))
        .find(|text| !text.is_empty())
        .unwrap_or_default()
}

/// How many assistant turns with calls there were since the user wrote.
fn rounds(ask: &Ask) -> usize {
    let since = ask.turns.iter().rev();
    since
        .take_while(|turn| turn.role != "user" || turn.holds("tool_result"))
        .filter(|turn| turn.is_assistant() && turn.holds("tool_use"))
        .count()
}
