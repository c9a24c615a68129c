//! Turns in the vault: the keys they are stored under, and which of their parts a client has lost.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use serde_json::{Map, Value};
use throughline_canonical::{
    Amount, Block, Fate, Message, Origin, Reason, Request, Role, ThinkingKind,
};
use throughline_codec::dialects::profile::Treatment;

use crate::gateway::Gateway;
use crate::history::adapt::open_turn;
use crate::history::recall::{is_thinking, key_of, kind_of, signature_of};
use crate::history::replay_table::{self, Maker, PastPart, Position};
use crate::history::turn_position::{RepeatedTexts, TurnPosition, TurnPositions};
use crate::relay::call_ids::looks_random;
use crate::thinking::vault::{Lookup, Scope, StoredTurn, VaultKey};
use crate::turn::Attempt;
use crate::turn::log::BlockRecord;

/// How many turns one request may look up. No real conversation has more, so this only limits
/// abuse.
pub(crate) const MAX_LOOKUPS: usize = 4096;
const MAX_RESTORED_BYTES: usize = 32 << 20;
/// How many calls of a turn are its keys. Each finds the turn, so a few of many are enough.
pub(crate) const MAX_KEYS_PER_TURN: usize = 4;

/// What a client has lost of the history, if the request could pass unchanged.
#[derive(Debug, Default)]
pub(crate) struct DroppedParts {
    /// Whether this backend needs parts that it made itself.
    pub(crate) is_restorable: bool,
    /// Thinking that cannot go back.
    pub(crate) withheld: Vec<WithheldPart>,
    /// The texts of thinking that lost its signature and that another backend made.
    pub(crate) foreign: HashMap<String, Arc<Origin>>,
    /// The position of the reply.
    pub(crate) turn_position: TurnPosition,
}

/// Thinking that the client dropped and that cannot go back.
#[derive(Clone, Debug)]
pub(crate) struct WithheldPart {
    /// The index of its message.
    pub(crate) message: usize,
    pub(crate) kind: ThinkingKind,
    pub(crate) reason: Reason,
    /// Its maker, unless the keyring cannot open it.
    pub(crate) origin: Option<Arc<Origin>>,
}

impl WithheldPart {
    /// The thinking of a turn that the keyring cannot open. How much it was is not known.
    pub(crate) fn sealed(message: usize) -> Self {
        Self { message, kind: ThinkingKind::Thinking, reason: Reason::Sealed, origin: None }
    }

    /// The block in the report. It has no position in the client's message.
    pub(crate) fn record(&self) -> BlockRecord {
        let outcome = (Fate::LeftOut, Some(self.reason));
        BlockRecord::new((self.message, None), self.kind, outcome, self.origin.clone())
    }
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

/// A message that may lack parts, or hold thoughts whose maker is not known.
struct Suspect {
    at: usize,
    turn_position: TurnPosition,
    lacks_thinking: bool,
    /// Whether this backend reads its own thinking in this position, so that it goes back.
    reads_thinking: bool,
    lacks_signature: bool,
    /// Thinking without a signature that the memory does not know.
    unknown: Vec<String>,
}

impl Gateway {
    /// Finds the parts that the client has lost. Those that this backend made go back if it needs
    /// them: in the model's present turn, or in all turns if the backend also needs the earlier ones.
    /// Earlier tool loops got their parts back while they were open. They get them again, because the
    /// provider's prompt cache finds only what does not change. Without `restores` the request has to
    /// pass as it is, so these parts cannot go back either. Thinking of other makers counts as lost in
    /// every turn, whatever this backend reads.
    pub(crate) async fn dropped_parts(
        &self,
        attempt: &Attempt<'_>,
        request: &Request,
        restores: bool,
    ) -> DroppedParts {
        let messages = self.with_call_ids(attempt, &request.messages).await;
        let open = open_turn(&messages);
        let (suspects, turn_position) = self.suspects(attempt, request, &messages, open);
        let mut dropped = DroppedParts { turn_position, ..DroppedParts::default() };
        if suspects.is_empty() {
            return dropped;
        }
        let repeated = RepeatedTexts::of(&messages);
        // Check the latest messages first, because the model needs them most.
        for suspect in suspects.into_iter().rev().take(MAX_LOOKUPS) {
            let Suspect { at, turn_position, lacks_thinking, unknown, .. } = suspect;
            let content = &messages[at].content;
            let is_repeated = repeated.contains(content);
            let scope = &attempt.request.scope;
            let reader = &attempt.backend.domain;
            let found = self.find_turn(scope, reader, &turn_position, content, is_repeated).await;
            let kept = match found {
                FoundTurn::One(kept) => kept,
                FoundTurn::None => continue,
                // How much the turn had is not known. A client that sends any has dropped none.
                FoundTurn::Sealed if !content.iter().any(is_thinking) => {
                    dropped.withheld.push(WithheldPart::sealed(at));
                    continue;
                }
                FoundTurn::Sealed => continue,
                FoundTurn::Ambiguous(kept) => {
                    dropped.withheld.extend(ambiguous_parts(at, content, &kept));
                    continue;
                }
            };
            let is_own = kept.origin.domain == attempt.backend.domain;
            let lost = LostParts::of(kept.blocks);
            let counts = lacks_thinking && (suspect.reads_thinking || !is_own);
            let missing = lost.missing_from(content).filter(|_| counts);
            if !is_own || !restores {
                let origin = Arc::new(kept.origin);
                if !is_own {
                    dropped.foreign.extend(unknown.into_iter().map(|text| (text, origin.clone())));
                }
                dropped.withheld.extend(missing.map(|block| WithheldPart {
                    message: at,
                    kind: kind_of(block),
                    reason: if is_own { Reason::Shape } else { Reason::Origin },
                    origin: Some(origin.clone()),
                }));
                continue;
            }
            let lacks_signature = suspect.lacks_signature;
            if missing.count() > 0 || lacks_signature && content.iter().any(|call| lost.signs(call))
            {
                dropped.is_restorable = true;
                return dropped;
            }
        }
        dropped.withheld.reverse();
        dropped
    }

    /// The messages to look up, and the position of the reply.
    fn suspects(
        &self,
        attempt: &Attempt<'_>,
        request: &Request,
        messages: &[Message],
        open: usize,
    ) -> (Vec<Suspect>, TurnPosition) {
        let profile = attempt.profile();
        let wants = |part, position| {
            let treatment = replay_table::treat(profile, part, Maker::Same, position);
            matches!(treatment, Treatment::Verbatim | Treatment::Text)
        };
        let thinks = request.thinking.amount != Some(Amount::Off);
        let is_call = |block: &Block| matches!(block, Block::ToolCall { .. });
        let mut turn_positions = TurnPositions::default();
        let mut suspects = Vec::new();
        for (at, message) in messages.iter().enumerate() {
            let content = &message.content;
            if message.role == Role::Assistant {
                let position = if at >= open { Position::OpenLoop } else { Position::Earlier };
                let is_checked = position == Position::OpenLoop
                    || profile.misses_earlier_thinking
                    || content.iter().any(is_call);
                let suspect = Suspect {
                    at,
                    turn_position: TurnPosition::default(),
                    lacks_thinking: self.may_lack_thinking(attempt, content),
                    reads_thinking: is_checked && thinks && wants(PastPart::Thinking, position),
                    lacks_signature: is_checked
                        && wants(PastPart::CallSignature, position)
                        && content.iter().any(is_bare_call),
                    unknown: self.unknown_thoughts(content),
                };
                if suspect.lacks_thinking || suspect.lacks_signature || !suspect.unknown.is_empty()
                {
                    suspects.push(Suspect { turn_position: turn_positions.next(), ..suspect });
                }
            }
            turn_positions.pass(message);
        }
        (suspects, turn_positions.next())
    }

    /// The thinking without a signature whose maker the memory does not know.
    fn unknown_thoughts(&self, content: &[Block]) -> Vec<String> {
        let bare = content.iter().filter_map(|block| match block {
            Block::Thinking { text, signature: None } if !text.is_empty() => Some((block, text)),
            _ => None,
        });
        let unknown = |block| key_of(block).is_some_and(|key| !self.memory.knows_maker(&key));
        bare.filter(|(block, _)| unknown(block)).map(|(_, text)| text.clone()).collect()
    }

    /// The messages, with the ids that the client does not return.
    async fn with_call_ids<'m>(
        &self,
        attempt: &Attempt<'_>,
        messages: &'m [Message],
    ) -> Cow<'m, [Message]> {
        let request = attempt.request;
        let returns_ids = request.incoming.dialect.defaults().returns_call_ids;
        if returns_ids || !messages.iter().any(|message| lacks_call_ids(&message.content)) {
            return messages.into();
        }
        let mut messages = messages.to_vec();
        self.restore_call_ids(&request.scope, &attempt.backend.domain, &mut messages).await;
        messages.into()
    }

    /// Whether the client may have lost some thinking of a message.
    fn may_lack_thinking(&self, attempt: &Attempt<'_>, content: &[Block]) -> bool {
        let present = content.iter().filter(|block| is_thinking(block)).count();
        let keys = call_id_keys(&attempt.request.scope, content);
        present == 0 || !keys.is_empty() && self.vault.may_have_more(&keys, present)
    }

    /// Finds a turn in the vault: by the ids of its calls, or by its content and its position. Of
    /// several turns that it may be, `reader` gets the one that it can read. `is_repeated` means that
    /// another turn of the request has the same content.
    pub(crate) async fn find_turn(
        &self,
        scope: &Scope,
        reader: &str,
        turn_position: &TurnPosition,
        content: &[Block],
        is_repeated: bool,
    ) -> FoundTurn {
        if has_call_ids(content) {
            return match self.vault.find(&call_id_keys(scope, content)).await {
                Lookup::Found(kept) => FoundTurn::One(kept),
                Lookup::Sealed => FoundTurn::Sealed,
                Lookup::Nothing => FoundTurn::None,
            };
        }
        let Some(text) = content_text(content) else {
            return FoundTurn::None;
        };
        // A text is stored with and without its position. If no turn has this text, the
        // other lookups find nothing.
        if !self.vault.may_have(&scope.text(&text)) {
            return FoundTurn::None;
        }
        let keys = content_keys(scope, turn_position, content, &text);
        self.find_by_content(&keys, reader, is_repeated).await
    }

    /// Finds the turn of the first known key. The first key is the position, the last one the content
    /// alone.
    async fn find_by_content(
        &self,
        keys: &[VaultKey],
        reader: &str,
        is_repeated: bool,
    ) -> FoundTurn {
        let (at, kept) = match self.vault.find_first(keys).await {
            Some((at, Lookup::Found(kept))) => (at, kept),
            Some((_, Lookup::Sealed)) => return FoundTurn::Sealed,
            Some((_, Lookup::Nothing)) | None => return FoundTurn::None,
        };
        let (key, is_alone) = (&keys[at], at + 1 == keys.len());
        if is_alone && is_repeated {
            return FoundTurn::Ambiguous(kept);
        }
        // Only the position tells two equal turns of one request apart.
        let may_choose = at == 0 || !is_repeated;
        let is_readable = may_choose && kept.origin.domain == reader;
        if is_readable || !self.has_another_maker(key, &kept).await {
            return FoundTurn::One(kept);
        }
        let own = match may_choose {
            true => self.vault.find(&[key.of_maker(reader)]).await.turn(),
            false => None,
        };
        own.map_or(FoundTurn::Ambiguous(kept), FoundTurn::One)
    }

    /// Whether another backend has given the same answer under this key.
    async fn has_another_maker(&self, key: &VaultKey, kept: &StoredTurn) -> bool {
        let settings = self.settings();
        let others = settings.backends.iter().map(|backend| &backend.domain);
        let others = others.filter(|domain| **domain != kept.origin.domain);
        let keys: Vec<VaultKey> = others.map(|domain| key.of_maker(domain)).collect();
        self.vault.find_first(&keys).await.is_some()
    }
}

/// What the vault has of a turn.
#[derive(Debug)]
pub(crate) enum FoundTurn {
    /// Nothing.
    None,
    /// The turn.
    One(StoredTurn),
    /// One of several turns that it may be.
    Ambiguous(StoredTurn),
    /// A turn that the keyring cannot open.
    Sealed,
}

/// The thinking of a turn that may be one of several. A client that sends any has dropped none.
fn ambiguous_parts(
    message: usize,
    content: &[Block],
    kept: &StoredTurn,
) -> impl Iterator<Item = WithheldPart> {
    let lost = kept.blocks.iter().filter(|block| is_thinking(block));
    let lost = lost.filter(|_| !content.iter().any(is_thinking));
    lost.map(move |block| WithheldPart {
        message,
        kind: kind_of(block),
        reason: Reason::Unknown,
        origin: None,
    })
}

fn is_bare_call(block: &Block) -> bool {
    matches!(block, Block::ToolCall { signature: None, .. })
}

/// The vault keys of a turn that this maker wrote: its call ids, or else its content. Clients that do
/// not return ids need both.
pub(crate) fn vault_keys(
    scope: &Scope,
    turn_position: &TurnPosition,
    content: &[Block],
    maker: &Origin,
    returns_call_ids: bool,
) -> Vec<VaultKey> {
    let mut keys = call_id_keys(scope, content);
    if (keys.is_empty() || !returns_call_ids)
        && let Some(text) = content_text(content)
    {
        for key in content_keys(scope, turn_position, content, &text) {
            keys.extend([key, key.of_maker(&maker.domain)]);
        }
    }
    keys
}

/// The keys of a turn by its content, the most certain one first.
fn content_keys(
    scope: &Scope,
    turn_position: &TurnPosition,
    content: &[Block],
    text: &str,
) -> Vec<VaultKey> {
    let [turn_position, question, alone] =
        scope.answer(&turn_position.before, &turn_position.question, text);
    let thoughts = content.iter().filter_map(|block| match block {
        Block::Thinking { text, .. } => Some(text.as_str()),
        _ => None,
    });
    let thoughts: String = thoughts.collect();
    match thoughts.trim() {
        "" => vec![turn_position, question, alone],
        thoughts => {
            let with_thoughts = scope.text(&format!("{text}\nthoughts {thoughts}"));
            vec![turn_position, question, with_thoughts, alone]
        }
    }
}

/// The content that identifies a turn: its text and what it called. `None` if it has neither.
fn content_text(content: &[Block]) -> Option<Cow<'_, str>> {
    let mut text = text_of(content);
    for block in content {
        if let Block::ToolCall { name, arguments, .. } = block {
            // Clients reformat the arguments, so compare them with sorted members.
            let mut arguments = read_arguments(arguments).unwrap_or_default();
            arguments.sort_all_objects();
            let trimmed = text.trim();
            text = format!("{trimmed}\n{name} {arguments}").into();
        }
    }
    (!text.trim().is_empty()).then_some(text)
}

/// Whether a call of a turn has no id that the gateway or a provider made.
pub(crate) fn lacks_call_ids(content: &[Block]) -> bool {
    content.iter().any(|block| matches!(block, Block::ToolCall { id, .. } if !looks_random(id)))
}

/// Whether the calls of a turn have ids that the gateway or a provider made. All of them look random.
/// A turn without calls has none.
pub(crate) fn has_call_ids(content: &[Block]) -> bool {
    content.iter().any(|block| matches!(block, Block::ToolCall { id, .. } if looks_random(id)))
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
    let value = |text: &str| read_arguments(text).ok();
    one == other || value(one).is_some_and(|one| Some(one) == value(other))
}

/// The arguments of a call. No text and `null` mean an empty object: a stream without any arguments
/// gives no text, and clients write an object for it.
pub(crate) fn read_arguments(text: &str) -> serde_json::Result<Value> {
    match text.trim() {
        "" | "null" => Ok(Value::Object(Map::new())),
        text => serde_json::from_str(text),
    }
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
