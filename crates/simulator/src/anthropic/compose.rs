//! Composing: from an accepted request to a finished message.

use serde_json::Value;

use super::ask::{Ask, Terms, kind_of, result_text};
use super::models::Model;
use super::modes::Plan;
use super::reply::{Block, Reply, Usage};
use super::verify::Verified;
use crate::scenario::Step;
use crate::script::{self, Piece, Random, Script, Situation};
use crate::signing::{Claim, Hash, Kind, Signer, hash};
use crate::style::SignatureStyle;

/// Everything a reply depends on.
pub(crate) struct Composer<'a> {
    pub(crate) signer: &'a Signer,
    pub(crate) seed: u64,
    pub(crate) model: &'a Model,
    pub(crate) plan: &'a Plan,
    pub(crate) terms: &'a Terms,
    pub(crate) style: SignatureStyle,
    pub(crate) step: Option<&'a Step>,
    /// Asked for by header: a text of so many deltas, a name to answer under.
    pub(crate) deltas: Option<usize>,
    pub(crate) answer_model: Option<String>,
    pub(crate) input_tokens: usize,
}

impl Composer<'_> {
    /// Makes the reply.
    pub(crate) fn compose(&self, ask: &Ask, verified: Verified) -> Reply {
        let seed = hash(&[
            &self.seed.to_be_bytes(),
            ask.model.as_bytes(),
            &verified.prefix.whole(),
        ]);
        let Script {
            mut pieces,
            scripted,
        } = self.script(ask, &seed);
        let stop_sequence = stop_at(&mut pieces, &ask.stop_sequences);
        let most = match ask.max_tokens {
            Some(most) if most == 0 || !scripted => most,
            _ => u64::MAX,
        };
        let cut = script::limit(&mut pieces, most);
        let calls = pieces
            .iter()
            .any(|piece| matches!(piece, Piece::Tool { .. }));
        let usage = Usage {
            input: self.input_tokens,
            output: pieces.iter().map(|piece| tokens(&piece.text())).sum(),
            thinking: pieces
                .iter()
                .filter(|piece| matches!(piece, Piece::Thinking(_) | Piece::Redacted(_)))
                .map(|piece| tokens(&piece.text()))
                .sum(),
        };
        let named = self.step.and_then(|step| step.answer_model.clone());
        let dropped = verified.dropped.clone();
        Reply {
            id: format!("msg_{}", name(&seed, "message", 0)),
            model: self
                .answer_model
                .clone()
                .or(named)
                .unwrap_or_else(|| ask.model.clone()),
            blocks: self.sign(pieces, ask, verified, &seed),
            stop_reason: match (cut, &stop_sequence, calls) {
                (true, ..) => "max_tokens",
                (_, Some(_), _) => "stop_sequence",
                (.., true) => "tool_use",
                _ => "end_turn",
            },
            stop_sequence: stop_sequence.filter(|_| !cut),
            usage,
            input_transformations: self.terms.has_binding_controls().then_some(dropped),
            style: self.style,
        }
    }

    fn script(&self, ask: &Ask, seed: &Hash) -> Script {
        if let Some(pieces) = self.step.and_then(|step| step.say.clone()) {
            return Script {
                pieces,
                scripted: true,
            };
        }
        let results: Vec<String> = ask
            .last_user_turns()
            .flat_map(|turn| &turn.blocks)
            .filter(|block| kind_of(block) == "tool_result")
            .map(result_text)
            .collect();
        let situation = Situation {
            user_text: user_text(ask),
            rounds: rounds(ask),
            tools: ask.callable(),
            choice: ask.choice(),
            parallel: ask.parallel(),
            thinks: self.plan.thinks(!results.is_empty()),
            deltas: self.deltas,
            results,
        };
        script::write(&situation, &mut Random::new(seed))
    }

    fn sign(&self, pieces: Vec<Piece>, ask: &Ask, verified: Verified, seed: &Hash) -> Vec<Block> {
        let mut prefix = verified.prefix;
        prefix.begin_response();
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
                    let shown = if self.plan.shows_text {
                        text.as_str()
                    } else {
                        ""
                    };
                    let signature = match self.style {
                        SignatureStyle::Empty => String::new(),
                        _ => self
                            .signer
                            .sign(Kind::Thinking, &claim(shown, &text, nonces.next())),
                    };
                    Block::Thinking {
                        text: shown.to_owned(),
                        signature,
                    }
                }
                Piece::Redacted(text) => Block::Redacted {
                    data: self
                        .signer
                        .sign(Kind::Redacted, &claim("", &text, nonces.next())),
                },
                Piece::Text(text) => Block::Text { text },
                // The seed holds the whole conversation, so no later call gets this id.
                Piece::Tool { name: tool, input } => Block::ToolUse {
                    id: format!("toolu_{}", name(seed, "tool", index + ask.turns.len())),
                    name: tool,
                    input,
                },
            };
            prefix.pass("assistant", &block.json());
            blocks.push(block);
        }
        blocks
    }
}

/// About as many tokens as a text has.
pub(crate) fn tokens(text: &str) -> usize {
    text.len().div_ceil(4)
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

/// The last user text that is not about tool results. Reminders that clients
/// put around it are full of words that would trigger something.
fn user_text(ask: &Ask) -> String {
    let written = |block: &Value| {
        let text = block["text"].as_str()?.trim();
        (kind_of(block) == "text" && !text.starts_with("<system")).then(|| text.to_owned())
    };
    let asking = |turn: &&super::ask::Turn| turn.role == "user" && !turn.holds("tool_result");
    ask.turns
        .iter()
        .rev()
        .filter(asking)
        .map(|turn| {
            turn.blocks
                .iter()
                .filter_map(written)
                .collect::<Vec<_>>()
                .join("\n")
        })
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

/// Cuts the pieces at the first stop sequence in a text.
fn stop_at(pieces: &mut Vec<Piece>, sequences: &[String]) -> Option<String> {
    for index in 0..pieces.len() {
        let Some(Piece::Text(text)) = pieces.get_mut(index) else {
            continue;
        };
        let found = sequences
            .iter()
            .filter(|sequence| !sequence.is_empty())
            .filter_map(|sequence| Some((text.find(sequence.as_str())?, sequence)))
            .min();
        if let Some((at, sequence)) = found {
            text.truncate(at);
            let keep = index + usize::from(!text.is_empty());
            pieces.truncate(keep);
            return Some(sequence.clone());
        }
    }
    None
}

/// An identifier of the length and alphabet the provider uses.
fn name(seed: &Hash, kind: &str, index: usize) -> String {
    let digest = hash(&[seed, kind.as_bytes(), &index.to_be_bytes()]);
    let letters = b"123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz";
    let picked = digest.iter().take(22).map(|byte| {
        let at = usize::from(*byte) % letters.len();
        letters.get(at).copied().map_or('1', char::from)
    });
    std::iter::once('0').chain(['1']).chain(picked).collect()
}
