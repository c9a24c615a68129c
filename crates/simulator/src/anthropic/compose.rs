//! Builds the message that answers an accepted request.

use serde_json::{Value, json};

use super::compaction;
use super::models::Model;
use super::modes::{Mode, ThinkingPlan};
use super::prefix::Prefix;
use super::reply::{Block, Reply, Usage};
use super::request::{ApiHeaders, ParsedRequest, kind_of, result_text};
use super::verify::Verified;
use crate::draft::{Draft, Ending, Limits, identifier, user_words};
use crate::exchange::Exchange;
use crate::prompt_cache::CacheUse;
use crate::script::{Piece, Random, Situation};
use crate::signing::{Claim, Hash, SignatureKind, hash};
use crate::style::SignatureStyle;

/// The trigger word for texts with citations.
const CITES: &str = "cite sources";

/// What a reply depends on, apart from the request.
pub(crate) struct Composer<'a> {
    pub(crate) exchange: &'a Exchange<'a>,
    pub(crate) model: &'a Model,
    pub(crate) plan: &'a ThinkingPlan,
    pub(crate) api_headers: &'a ApiHeaders,
    pub(crate) cache_use: CacheUse,
}

impl Composer<'_> {
    /// Builds the reply.
    pub(crate) fn compose(&self, request: &ParsedRequest, mut verified: Verified) -> Reply {
        let seed = self.exchange.seed(&request.model, &verified.prefix.whole());
        let (words, signer) = (user_text(request), self.exchange.signer());
        let summary = compaction::write(request, &words, signer, self.model, &verified.boundaries);
        let pauses = request.compaction.as_ref().is_some_and(|edit| edit.pauses);
        if let Some(block) = &summary {
            // The summary replaces everything before the reply.
            verified.prefix = Prefix::new(request);
            verified.prefix.begin_response();
            verified.prefix.push_block("assistant", &block.json());
        }
        let budget = || request.thinking["budget_tokens"].as_u64();
        let limits = Limits {
            stop_sequences: &request.stop_sequences,
            tokens: request.max_tokens,
            thinking: (self.plan.mode == Mode::Manual).then(budget).flatten(),
        };
        let draft = Draft::write(self.exchange, &seed, limits, || self.situation(request));
        let usage = Usage {
            input: self.cache_use,
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
        let only_summary = summary.is_some() && pauses;
        let pieces = if only_summary { Vec::new() } else { draft.pieces };
        let blocks = summary.into_iter().chain(self.sign(pieces, request, verified, &seed));
        Reply {
            id: format!("msg_{}", identifier(&seed, "message", 0)),
            model: self.exchange.answer_model(&request.model),
            blocks: blocks.collect(),
            stop_reason: if only_summary { compaction::KIND } else { stop_reason },
            stop_sequence,
            usage,
            input_transformations: self.api_headers.has_binding_controls().then_some(dropped),
            style: self.exchange.style(),
        }
    }

    fn situation(&self, request: &ParsedRequest) -> Situation {
        let results: Vec<String> = request
            .last_user_turns()
            .flat_map(|turn| &turn.blocks)
            .filter(|block| kind_of(block) == "tool_result")
            .map(result_text)
            .collect();
        Situation {
            user_text: user_text(request),
            rounds: rounds(request),
            tools: request.callable(),
            choice: request.choice(),
            parallel: request.parallel(),
            thinks: self.plan.thinks(!results.is_empty()),
            format: request.format(),
            deltas: self.exchange.deltas(),
            results,
        }
    }

    fn sign(
        &self,
        pieces: Vec<Piece>,
        request: &ParsedRequest,
        verified: Verified,
        seed: &Hash,
    ) -> Vec<Block> {
        let mut prefix = verified.prefix;
        prefix.begin_response();
        let signer = self.exchange.signer();
        let style = self.exchange.style();
        let mut nonces = Random::new(&hash(&[seed, b"nonces"]));
        let mut blocks = Vec::with_capacity(pieces.len());
        let mut ordinal = 0;
        let words = user_text(request).to_lowercase();
        for (index, piece) in pieces.into_iter().enumerate() {
            let claim = |shown, hidden, nonce| Claim {
                family: self.model.family,
                shown,
                hidden,
                prefix: prefix.binding(),
                nonce,
                ordinal,
            };
            let block = match piece {
                Piece::Thinking(text) => {
                    let shown = if self.plan.shows_text { text.as_str() } else { "" };
                    let signature = match style {
                        SignatureStyle::Empty => String::new(),
                        _ => signer
                            .sign(SignatureKind::Thinking, &claim(shown, &text, nonces.next())),
                    };
                    Block::Thinking { text: shown.to_owned(), signature }
                }
                Piece::Redacted(text) => Block::Redacted {
                    data: signer.sign(SignatureKind::Redacted, &claim("", &text, nonces.next())),
                },
                Piece::Text(text) => Block::Text { citations: citations(&words, &text), text },
                // The seed depends on the whole conversation, so no later call gets this id.
                Piece::Tool { name, input } => Block::ToolUse {
                    id: format!("toolu_{}", identifier(seed, "tool", index + request.turns.len())),
                    name,
                    input,
                },
            };
            if let Block::Thinking { .. } | Block::Redacted { .. } = block {
                ordinal = ordinal.saturating_add(1);
            }
            prefix.push_block("assistant", &block.json());
            blocks.push(block);
        }
        blocks
    }
}

/// The sources of a text, if the user asks for them.
fn citations(words: &str, text: &str) -> Vec<Value> {
    let source = json!({
        "type": "search_result_location",
        "source": "https://example.com/report",
        "title": "A report",
        "cited_text": text,
        "search_result_index": 0,
        "start_block_index": 0,
        "end_block_index": 1,
    });
    if words.contains(CITES) { vec![source] } else { Vec::new() }
}

/// All text of the user's last entries, for scenarios.
pub(crate) fn last_said(request: &ParsedRequest) -> String {
    let blocks = request.last_user_turns().flat_map(|turn| &turn.blocks);
    let texts = blocks.map(|block| match kind_of(block) {
        "tool_result" => result_text(block),
        _ => block["text"].as_str().unwrap_or_default().to_owned(),
    });
    texts.collect::<Vec<_>>().join("\n")
}

/// The user's last text, without tool results.
fn user_text(request: &ParsedRequest) -> String {
    let text = |block: &Value| {
        let text = user_words(block["text"].as_str()?)?;
        (kind_of(block) == "text").then(|| text.to_owned())
    };
    let asking = |turn: &&super::request::Turn| turn.role == "user" && !turn.holds("tool_result");
    request
        .turns
        .iter()
        .rev()
        .filter(asking)
        .map(|turn| turn.blocks.iter().filter_map(text).collect::<Vec<_>>().join("\n"))
        .find(|text| !text.is_empty())
        .unwrap_or_default()
}

/// How many assistant turns with calls followed the user's last text.
fn rounds(request: &ParsedRequest) -> usize {
    let since = request.turns.iter().rev();
    since
        .take_while(|turn| turn.role != "user" || turn.holds("tool_result"))
        .filter(|turn| turn.is_assistant() && turn.holds("tool_use"))
        .count()
}
