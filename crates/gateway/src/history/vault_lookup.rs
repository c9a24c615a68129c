//! Turns in the vault: the keys they are stored under, and which of their parts a client has lost.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use serde_json::Value;
use throughline_canonical::{Amount, Block, Message, Origin, Request, Role, ThinkingKind};
use throughline_codec::dialects::profile::Treatment;

use crate::gateway::Gateway;
use crate::history::adapt::open_turn;
use crate::history::recall::{is_thinking, kind_of, signature_of};
use crate::history::replay_table::{self, Maker, Part, Position};
use crate::thinking::vault::{Scope, StoredTurn, VaultKey};
use crate::turn::Attempt;

/// How many turns one request may look up. No real conversation has more, so this only limits
/// abuse.
pub(crate) const MAX_LOOKUPS: usize = 4096;
/// How many recent messages are checked for lost parts. Most messages without thinking never had
/// any.
const MAX_RECENT_LOOKUPS: usize = 64;
const MAX_RESTORED_BYTES: usize = 32 << 20;
/// How many calls of a turn are its keys. Each finds the turn, so a few of many are enough.
pub(crate) const MAX_KEYS_PER_TURN: usize = 4;

/// What a client has lost of the history, if the request could pass unchanged.
#[derive(Debug, Default)]
pub(crate) struct DroppedParts {
    /// Whether this backend needs parts that it made itself.
    pub(crate) is_restorable: bool,
    /// Thinking that this backend cannot read: the index of its message, its kind and its maker.
    pub(crate) withheld: Vec<(usize, ThinkingKind, Arc<Origin>)>,
}

/// Counts the vault lookups of one request.
#[derive(Default)]
pub(crate) struct LookupBudget {
    lookups: usize,
    bytes: usize,
    turns: HashSet<String>,
}

impl LookupBudget {
    /// Counts a lookup. Returns whether the request is still within the limits.
    pub(crate) fn count_lookup(&mut self) -> bool {
        self.lookups += 1;
        self.lookups <= MAX_LOOKUPS && self.bytes <= MAX_RESTORED_BYTES
    }

    /// Whether a turn was not found before. Each turn is restored once, even if the request names
    /// it more than once.
    pub(crate) fn is_new(&mut self, blocks: &[Block]) -> bool {
        let call = blocks.iter().find_map(|block| match block {
            Block::ToolCall { id, .. } => Some(id.clone()),
            _ => None,
        });
        self.bytes += blocks.iter().map(size).sum::<usize>();
        // Two text answers may be equal. Their questions tell them apart.
        call.is_none_or(|call| self.turns.insert(call))
    }
}

fn size(block: &Block) -> usize {
    match block {
        Block::Thinking { text, signature } => {
            text.len() + signature.as_ref().map_or(0, String::len)
        }
        Block::Redacted { data } => data.len(),
        _ => 0,
    }
}

impl Gateway {
    /// Finds the parts that the client has lost and that this backend needs. Checks the model's
    /// present turn, or all turns if the backend also needs the earlier ones. Earlier tool loops got
    /// their parts back while they were open. They get them again, because the provider's prompt cache
    /// finds only what does not change.
    pub(crate) async fn dropped_parts(
        &self,
        attempt: &Attempt<'_>,
        request: &Request,
    ) -> DroppedParts {
        let profile = attempt.profile();
        let wants = |part, position| {
            let treatment = replay_table::treat(profile, part, Maker::Same, position);
            matches!(treatment, Treatment::Verbatim | Treatment::Text)
        };
        let thinks = request.thinking.amount != Some(Amount::Off);
        let open = open_turn(&request.messages);
        let mut dropped = DroppedParts::default();
        let mut answered = 0;
        let mut lacking = Vec::new();
        for (at, message) in request.messages.iter().enumerate() {
            if message.role != Role::Assistant {
                continue;
            }
            let questions = &request.messages[std::mem::replace(&mut answered, at + 1)..at];
            let content = &message.content;
            let position = if at >= open { Position::OpenLoop } else { Position::Earlier };
            let is_call = |block: &Block| matches!(block, Block::ToolCall { .. });
            let was_in_loop = position == Position::OpenLoop || content.iter().any(is_call);
            if !was_in_loop && !profile.misses_earlier_thinking {
                continue;
            }
            let lacks_thinking = thinks
                && wants(Part::Thinking, position)
                && self.may_lack_thinking(attempt, content);
            let lacks_signature =
                wants(Part::CallSignature, position) && content.iter().any(is_bare_call);
            if lacks_thinking || lacks_signature {
                lacking.push((at, questions, lacks_thinking, lacks_signature));
            }
        }
        // Check the latest messages first, because the model needs them most.
        for (at, questions, lacks_thinking, lacks_signature) in
            lacking.into_iter().rev().take(MAX_RECENT_LOOKUPS)
        {
            let content = &request.messages[at].content;
            let Some(kept) = self.find_turn(&attempt.request.scope, questions, content).await
            else {
                continue;
            };
            let is_own = kept.origin.domain == attempt.backend.domain;
            let lost = LostParts::of(kept.blocks);
            let missing = lost.missing_from(content).filter(|_| lacks_thinking);
            if !is_own {
                // Only in the open loop does the model need it.
                if at >= open {
                    let origin = Arc::new(kept.origin);
                    dropped
                        .withheld
                        .extend(missing.map(|block| (at, kind_of(block), origin.clone())));
                }
                continue;
            }
            if missing.count() > 0 || lacks_signature && content.iter().any(|call| lost.signs(call))
            {
                dropped.is_restorable = true;
                return dropped;
            }
        }
        dropped.withheld.reverse();
        dropped
    }

    /// Whether the client may have lost some thinking of a message.
    fn may_lack_thinking(&self, attempt: &Attempt<'_>, content: &[Block]) -> bool {
        let present = content.iter().filter(|block| is_thinking(block)).count();
        let keys = call_id_keys(&attempt.request.scope, content);
        present == 0 || !keys.is_empty() && self.vault.may_have_more(&keys, present)
    }

    /// Finds a turn in the vault. `questions` are the messages that it answers.
    pub(crate) async fn find_turn(
        &self,
        scope: &Scope,
        questions: &[Message],
        content: &[Block],
    ) -> Option<StoredTurn> {
        let mut keys = call_id_keys(scope, content);
        if keys.is_empty() {
            let text = text_of(content);
            // A text is stored with and without its question. If it is unknown alone, the question
            // need not be hashed.
            if text.trim().is_empty() || !self.vault.may_have(&scope.text(&text)) {
                return None;
            }
            keys.extend(scope.answer(&question(questions), &text));
        }
        self.vault.find(&keys).await
    }
}

fn is_bare_call(block: &Block) -> bool {
    matches!(block, Block::ToolCall { signature: None, .. })
}

/// The question that messages ask: their text, and the ids of the calls they answer.
pub(crate) fn question(messages: &[Message]) -> String {
    let mut question = String::new();
    for block in messages.iter().flat_map(|message| &message.content) {
        match block {
            Block::Text { text, .. } => question.push_str(text),
            Block::ToolResult { id, .. } => question.push_str(id),
            _ => {}
        }
    }
    question
}

/// The messages after the model's last one.
pub(crate) fn unanswered(messages: &[Message]) -> &[Message] {
    let answered = messages.iter().rposition(|message| message.role == Role::Assistant);
    &messages[answered.map_or(0, |at| at + 1)..]
}

/// The vault keys of a turn: its call ids, or else its text with the question before it.
pub(crate) fn vault_keys(scope: &Scope, question: &str, content: &[Block]) -> Vec<VaultKey> {
    let mut keys = call_id_keys(scope, content);
    let text = text_of(content);
    if keys.is_empty() && !text.trim().is_empty() {
        keys.extend(scope.answer(question, &text));
    }
    keys
}

fn call_id_keys(scope: &Scope, content: &[Block]) -> Vec<VaultKey> {
    let calls = content.iter().filter_map(|block| match block {
        Block::ToolCall { id, .. } => Some(scope.call(id)),
        _ => None,
    });
    calls.take(MAX_KEYS_PER_TURN).collect()
}

/// The text of a turn. It is only copied if it has several parts.
pub(crate) fn text_of(content: &[Block]) -> Cow<'_, str> {
    let mut texts = content.iter().filter_map(|block| match block {
        Block::Text { text, .. } => Some(text.as_str()),
        _ => None,
    });
    match (texts.next(), texts.next()) {
        (Some(first), Some(second)) => {
            [first, second].into_iter().chain(texts).collect::<String>().into()
        }
        (only, _) => only.unwrap_or_default().into(),
    }
}

/// Whether two turns have the same text and the same calls.
pub(crate) fn is_same_turn(one: &[Block], other: &[Block]) -> bool {
    fn calls(content: &[Block]) -> impl Iterator<Item = (&String, &String)> {
        content.iter().filter_map(|block| match block {
            Block::ToolCall { id, arguments, .. } => Some((id, arguments)),
            _ => None,
        })
    }
    let same = |(one, other): ((&String, &String), (&String, &String))| {
        one.0 == other.0 && are_equal(one.1, other.1)
    };
    calls(one).count() == calls(other).count()
        && calls(one).zip(calls(other)).all(same)
        && text_of(one).trim() == text_of(other).trim()
}

/// Whether two argument texts mean the same. Clients reformat them.
fn are_equal(one: &str, other: &str) -> bool {
    let value = |text: &str| serde_json::from_str::<Value>(text).ok();
    one == other || value(one).is_some_and(|one| Some(one) == value(other))
}

/// What the vault has of a turn that the client has changed.
#[derive(Default)]
pub(crate) struct LostParts {
    pub(crate) thinking: Vec<StoredThought>,
    pub(crate) calls: HashMap<String, StoredCall>,
}

/// A thinking block and its position in the turn.
pub(crate) struct StoredThought {
    pub(crate) block: Block,
    /// How many texts come before it.
    pub(crate) texts: usize,
    /// Whether a text follows before any call.
    pub(crate) leads_to_text: bool,
    /// The id of the first call after it.
    pub(crate) call: Option<String>,
}

/// A call as its maker wrote it.
pub(crate) struct StoredCall {
    name: String,
    arguments: String,
    pub(crate) signature: Option<String>,
}

impl StoredCall {
    /// Splits a call into its id and the rest. `None` for any other block.
    pub(crate) fn of(block: Block) -> Option<(String, Self)> {
        match block {
            Block::ToolCall { id, name, arguments, signature } => {
                Some((id, Self { name, arguments, signature }))
            }
            _ => None,
        }
    }

    /// Whether the client's call is unchanged.
    pub(crate) fn matches(&self, block: &Block) -> bool {
        let Block::ToolCall { name, arguments, .. } = block else {
            return false;
        };
        *name == self.name && are_equal(arguments, &self.arguments)
    }
}

impl LostParts {
    /// Whether all calls of a message are stored and unchanged. Thinking is restored only with the
    /// calls that it led to.
    pub(crate) fn led_to(&self, content: &[Block]) -> bool {
        let agrees = |block: &Block| match block {
            Block::ToolCall { id, .. } => {
                self.calls.get(id).is_some_and(|kept| kept.matches(block))
            }
            _ => true,
        };
        self.calls.is_empty() || content.iter().all(agrees)
    }

    /// The thinking that a client's message lacks. A message with any thinking lacks only signed
    /// blocks, because some dialects join the text of several blocks.
    fn missing_from<'a>(&'a self, content: &[Block]) -> impl Iterator<Item = &'a Block> {
        let theirs: Vec<&str> =
            content.iter().filter(|block| is_thinking(block)).map(signature_of).collect();
        let blocks = self.thinking.iter().map(|thought| &thought.block);
        blocks.filter(move |block| {
            let signature = signature_of(block);
            theirs.is_empty() || !signature.is_empty() && !theirs.contains(&signature)
        })
    }

    /// Whether the client has lost the signature of this call.
    fn signs(&self, block: &Block) -> bool {
        let Block::ToolCall { id, signature: None, .. } = block else {
            return false;
        };
        self.calls.get(id).is_some_and(|signed| signed.signature.is_some())
    }

    pub(crate) fn of(blocks: Vec<Block>) -> Self {
        let mut lost = Self::default();
        let (mut texts, mut settled, mut called) = (0, 0, 0);
        for block in blocks {
            match &block {
                Block::Text { .. } => {
                    texts += 1;
                    for thought in &mut lost.thinking[settled..] {
                        thought.leads_to_text = true;
                    }
                    settled = lost.thinking.len();
                }
                Block::ToolCall { id, .. } => {
                    for thought in &mut lost.thinking[called..] {
                        thought.call = Some(id.clone());
                    }
                    (settled, called) = (lost.thinking.len(), lost.thinking.len());
                }
                _ => {}
            }
            match block {
                block @ (Block::Thinking { .. } | Block::Redacted { .. }) => {
                    lost.thinking.push(StoredThought {
                        block,
                        texts,
                        leads_to_text: false,
                        call: None,
                    });
                }
                block => lost.calls.extend(StoredCall::of(block)),
            }
        }
        lost
    }
}
