//! Restores the client's assistant messages as their maker wrote them.
//!
//! Clients return what their dialect can hold. Missing parts come from the envelope in an opaque
//! field, or from the vault. The memory, the envelope and the vault know who made a block.

use std::sync::Arc;

use parking_lot::Mutex;
use throughline_canonical::{
    Block, BlockKey, KeyHasher, Message, Origin, Prefix, Reason, Request, Role, ThinkingKind,
};
use throughline_codec::dialects::SKIP_SIGNATURE;
use throughline_codec::dialects::blocks::prefix::after_block;
use throughline_codec::dialects::client_defaults::ClientDefaults;

use crate::gateway::Gateway;
use crate::history::replay_table::Maker;
use crate::history::turn_position::TurnPosition;
use crate::history::vault_lookup::{
    FoundTurn, LookupBudget, StoredCall, has_call_ids, is_same_turn,
};
use crate::settings::{Policy, Thinking};
use crate::thinking::envelope::{Envelope, EnvelopeKind, Envelopes, OpenResult};
use crate::thinking::guard::PrefixRecord;
use crate::thinking::memory::{TargetIdentity, Verdict};
use crate::thinking::vault::{Scope, StoredTurn};

/// One block of an assistant message, as its maker wrote it.
#[derive(Clone, Debug)]
pub(crate) struct PastBlock {
    pub(crate) block: Block,
    /// Whether the target made it.
    pub(crate) maker: Maker,
    /// Why it cannot go to the target.
    pub(crate) reason: Reason,
    /// Its maker, if known.
    pub(crate) origin: Option<Arc<Origin>>,
    /// Whether its maker is unknown and the block is only tried.
    pub(crate) tried: bool,
    /// Whether the client had lost it.
    pub(crate) restored: bool,
    /// The key by which a refusal can be remembered.
    pub(crate) key: Option<BlockKey>,
    /// The prefix it was made after, if known.
    pub(crate) prefix_record: PrefixRecord,
}

/// The key of a thinking block as the client sends it. The key of an envelope depends on the
/// envelope alone, because some clients return it with another text or as another kind.
pub(crate) fn key_of(block: &Block) -> Option<BlockKey> {
    let name = |kind, text: &str, signature: &str| {
        let mut hasher = KeyHasher::new(kind);
        hasher.push(text.as_bytes());
        hasher.finish(signature)
    };
    match block {
        Block::Thinking { signature: Some(signature), .. }
        | Block::Redacted { data: signature }
            if Envelopes::looks_ours(signature) =>
        {
            Some(name(ThinkingKind::Thinking, "", signature))
        }
        Block::Thinking { text, signature } => {
            Some(name(ThinkingKind::Thinking, text, signature.as_deref().unwrap_or_default()))
        }
        Block::Redacted { data } => Some(name(ThinkingKind::Redacted, data, "")),
        _ => None,
    }
}

/// The key of a thinking block as a client sends it. Where a signature does not bind the text, it is
/// the key, because clients may drop parts of the text.
pub(crate) fn client_key(block: &Block, binds_text: bool) -> Option<BlockKey> {
    match block {
        Block::Thinking { signature: Some(signature), .. }
            if !binds_text && !signature.is_empty() && !Envelopes::looks_ours(signature) =>
        {
            Some(KeyHasher::new(ThinkingKind::Thinking).finish(signature))
        }
        block => key_of(block),
    }
}

/// Whether a block is thinking, and so has a key.
pub(crate) fn is_thinking(block: &Block) -> bool {
    matches!(block, Block::Thinking { .. } | Block::Redacted { .. })
}

/// The kind of a thinking block.
pub(crate) fn kind_of(block: &Block) -> ThinkingKind {
    match block {
        Block::Redacted { .. } => ThinkingKind::Redacted,
        _ => ThinkingKind::Thinking,
    }
}

/// A call's or text's signature, as a block that the memory can key.
pub(crate) fn signature_block(signature: &str) -> Block {
    Block::Thinking { text: String::new(), signature: Some(signature.to_owned()) }
}

/// The keys by which the memory knows the thinking of a client's request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ClientKeys<'a> {
    /// Whether a signature in the client's dialect belongs to the text of its block.
    pub(crate) binds_text: bool,
    /// Opens the envelopes of a client that keeps turns. It got the block without one, so the
    /// memory knows the block inside.
    pub(crate) wrapped_by: Option<&'a Envelopes>,
    /// Whether there are any keys. The memory knows nothing of private turns, so theirs are not hashed.
    pub(crate) are_known: bool,
}

impl<'a> ClientKeys<'a> {
    /// The keys of a client's blocks.
    pub(crate) fn new(client: &ClientDefaults, envelopes: &'a Envelopes) -> Self {
        Self {
            binds_text: client.signature_binds_text,
            wrapped_by: client.keeps_turns.then_some(envelopes),
            are_known: true,
        }
    }

    /// The same for a turn that is private or not.
    pub(crate) fn for_turn(self, is_private: bool) -> Self {
        Self { are_known: self.are_known && !is_private, ..self }
    }

    /// The key of a thinking block.
    pub(crate) fn of(&self, block: &Block) -> Option<BlockKey> {
        if !self.are_known {
            return None;
        }
        if is_thinking(block)
            && let Some(envelopes) = self.wrapped_by
            && let OpenResult::Ours(envelope) = envelopes.open(signature_of(block))
            && let Ok(native) = native_block(block.clone(), &envelope)
        {
            return client_key(&native, self.binds_text);
        }
        client_key(block, self.binds_text)
    }

    /// The keys of all thinking blocks of a request, in order.
    pub(crate) fn of_request(&self, request: &Request) -> Vec<Option<BlockKey>> {
        assistant_blocks(request).filter_map(|block| self.of(block)).map(Some).collect()
    }
}

fn assistant_blocks(request: &Request) -> impl Iterator<Item = &Block> {
    request
        .messages
        .iter()
        .filter(|message| message.role == Role::Assistant)
        .flat_map(|message| &message.content)
}

/// Restores the history of one request.
pub(crate) struct Recall<'a> {
    pub(crate) gateway: &'a Gateway,
    pub(crate) target: &'a TargetIdentity,
    pub(crate) scope: &'a Scope,
    /// Counts the vault lookups of this request.
    pub(crate) lookups: Mutex<LookupBudget>,
    /// The scopes of other conversations that the request continues, as its call ids show.
    pub(crate) resumed: Mutex<Vec<Scope>>,
    /// The session of the request.
    pub(crate) session: u64,
    pub(crate) rules: Thinking,
    /// Whether client and upstream use the same dialect, so that a plain signature may be the
    /// upstream's own.
    pub(crate) same_dialect: bool,
    /// Whether the vault is asked for what the client may have dropped. It is asked for every upstream:
    /// one that reads no thinking still loses that of other makers.
    pub(crate) asks_vault: bool,
    /// The keys of the client's thinking.
    pub(crate) keys: ClientKeys<'a>,
}

impl Recall<'_> {
    /// Restores the content of one assistant message at its position in the conversation. `verdicts`
    /// are the memory's verdicts on its thinking.
    pub(crate) async fn message(
        &self,
        content: Vec<Block>,
        turn_position: &TurnPosition,
        is_repeated: bool,
        verdicts: &[Verdict],
    ) -> Vec<PastBlock> {
        let found = match self.asks_vault && self.lookups.lock().count_lookup() {
            true => self.find(turn_position, &content, is_repeated).await,
            false => FoundTurn::None,
        };
        let kept = match found {
            FoundTurn::None => None,
            FoundTurn::One(kept) => Some(kept),
            FoundTurn::Ambiguous(kept) => return self.ambiguous(content, kept, verdicts),
            FoundTurn::Sealed if content.iter().any(is_thinking) => None,
            FoundTurn::Sealed => {
                let mut past = self.restore_changed(content, None, verdicts);
                past.insert(0, sealed_thinking());
                return past;
            }
        };
        // Restore a turn once, even if the request names it more than once.
        let kept = kept.filter(|kept| self.lookups.lock().is_new(&kept.blocks));
        match kept {
            Some(kept) if is_same_turn(&content, &kept.blocks) => {
                self.restore_unchanged(&content, kept, verdicts)
            }
            kept => self.restore_changed(content, kept, verdicts),
        }
    }

    /// Finds out which conversation the request continues, by its first stored call. A resumed session
    /// may have another id and another system text.
    pub(crate) async fn find_resumed(&self, messages: &[Message]) {
        let calls =
            |message: &&Message| message.role == Role::Assistant && has_call_ids(&message.content);
        if let Some(message) = messages.iter().find(calls).filter(|_| self.asks_vault) {
            self.find(&TurnPosition::default(), &message.content, false).await;
        }
    }

    /// Finds a turn in this conversation, or else in those that it continues.
    async fn find(
        &self,
        turn_position: &TurnPosition,
        content: &[Block],
        is_repeated: bool,
    ) -> FoundTurn {
        let reader = &self.target.domain;
        let find = async |scope| {
            self.gateway.find_turn(scope, reader, turn_position, content, is_repeated).await
        };
        let found = find(self.scope).await;
        match &found {
            FoundTurn::None if !has_call_ids(content) => {}
            FoundTurn::None | FoundTurn::Ambiguous(_) | FoundTurn::Sealed => return found,
            FoundTurn::One(kept) => {
                let other = self.scope.resumed(kept);
                let mut resumed = self.resumed.lock();
                let is_new = |other: &Scope| {
                    resumed.iter().all(|known| known.conversation() != other.conversation())
                };
                if let Some(other) = other.filter(is_new) {
                    resumed.push(other);
                }
                drop(resumed);
                return found;
            }
        }
        let resumed = self.resumed.lock().clone();
        for scope in &resumed {
            let found = find(scope).await;
            if !matches!(found, FoundTurn::None) {
                return found;
            }
        }
        FoundTurn::None
    }

    /// A turn that may be one of several. The parts that the client sent go on. Thinking that it may
    /// have dropped is reported: thinking of another turn must not replace it.
    fn ambiguous(
        &self,
        content: Vec<Block>,
        kept: StoredTurn,
        verdicts: &[Verdict],
    ) -> Vec<PastBlock> {
        let mut past = Vec::new();
        if !content.iter().any(is_thinking) {
            let thinking = kept.blocks.into_iter().filter(is_thinking);
            past.extend(thinking.map(|block| PastBlock {
                restored: true,
                ..foreign(block, Reason::Unknown, None)
            }));
        }
        past.extend(self.restore_changed(content, None, verdicts));
        past
    }

    /// Restores the signature of a call or a text that the client sent in the upstream's dialect.
    pub(crate) fn signature(&self, signature: &str, verdict: Option<&Verdict>) -> PastBlock {
        match self.gateway.envelopes.open(signature) {
            OpenResult::Ours(envelope) => {
                let native = Block::Thinking { text: String::new(), signature: envelope.signature };
                self.known(native, &Arc::new(envelope.origin), verdict)
            }
            OpenResult::Altered | OpenResult::Sealed | OpenResult::NotOurs => {
                self.thinking(signature_block(signature), verdict)
            }
        }
    }

    /// Restores thinking that the client sent.
    pub(crate) fn thinking(&self, block: Block, verdict: Option<&Verdict>) -> PastBlock {
        match self.gateway.envelopes.open(signature_of(&block)) {
            OpenResult::Altered => foreign(block, Reason::Origin, None),
            OpenResult::Sealed => foreign(block, Reason::Sealed, None),
            OpenResult::Ours(envelope) => self.enveloped(block, &envelope, verdict),
            OpenResult::NotOurs => match verdict {
                Some(verdict @ Verdict::Send { origin, .. }) => PastBlock {
                    origin: origin.clone(),
                    prefix_record: prefix_record(verdict),
                    ..same(block)
                },
                Some(verdict @ Verdict::Try { .. }) if self.same_dialect => PastBlock {
                    tried: true,
                    reason: Reason::Unknown,
                    prefix_record: prefix_record(verdict),
                    ..same(block)
                },
                Some(Verdict::LeaveOut { reason, origin }) => {
                    foreign(block, *reason, origin.clone())
                }
                // An unknown block was made by a backend of the client's dialect.
                Some(Verdict::Try { .. }) | None => foreign(block, Reason::Unknown, None),
            },
        }
    }

    fn enveloped(&self, block: Block, envelope: &Envelope, verdict: Option<&Verdict>) -> PastBlock {
        let origin = Arc::new(envelope.origin.clone());
        let native = match native_block(block, envelope) {
            Ok(native) => native,
            Err(block) => return foreign(block, Reason::Shape, Some(origin)),
        };
        if envelope.cut {
            return foreign(native, Reason::Cut, Some(origin));
        }
        self.known(native, &origin, verdict)
    }

    /// Restores a call or a text with its signature.
    pub(crate) fn signed(
        &self,
        block: Block,
        lost: Option<(&StoredCall, &Arc<Origin>, u64)>,
    ) -> PastBlock {
        let (Block::ToolCall { signature, .. } | Block::Text { signature, .. }) = &block else {
            return plain(block);
        };
        let signature = signature.as_deref().filter(|signature| *signature != SKIP_SIGNATURE);
        match signature.map(|signature| self.gateway.envelopes.open(signature)) {
            Some(OpenResult::Ours(envelope)) => {
                let signed = with_signature(block, envelope.signature);
                self.stored(signed, &Arc::new(envelope.origin), self.session)
            }
            Some(OpenResult::NotOurs) if self.same_dialect => match lost {
                // The vault knows its maker.
                Some((_, origin, session)) => self.stored(block, origin, session),
                None => same(block),
            },
            Some(OpenResult::Altered | OpenResult::NotOurs) => {
                foreign(with_signature(block, None), Reason::Origin, None)
            }
            Some(OpenResult::Sealed) => foreign(with_signature(block, None), Reason::Sealed, None),
            None => match lost {
                Some((signed, origin, session)) if signed.matches(&block) => {
                    let block = with_signature(block, signed.signature.clone());
                    self.stored(block, origin, session)
                }
                _ => foreign(with_signature(block, None), Reason::Origin, None),
            },
        }
    }

    /// A block from an envelope or the vault. The memory has no verdict on it.
    pub(crate) fn stored(&self, block: Block, origin: &Arc<Origin>, session: u64) -> PastBlock {
        let key = own_key(&block, self.keys);
        let refused = key.is_some_and(|key| self.gateway.memory.has_refused(self.target, &key));
        let old = self.rules.policy == Policy::Session && session != self.session;
        let past = match (refused, old) {
            (true, _) => foreign(block, Reason::Origin, Some(origin.clone())),
            (false, true) => foreign(block, Reason::Session, Some(origin.clone())),
            (false, false) => self.known(block, origin, None),
        };
        PastBlock { key, ..past }
    }

    /// A block whose maker is known.
    pub(crate) fn known(
        &self,
        block: Block,
        origin: &Arc<Origin>,
        verdict: Option<&Verdict>,
    ) -> PastBlock {
        let target = self.target;
        let reason = match verdict {
            // The envelope or the vault knows blocks that the memory does not know.
            Some(Verdict::LeaveOut { reason, .. }) if *reason != Reason::Unknown => Some(*reason),
            Some(Verdict::Send { .. }) => None,
            _ if !target.reads(origin) => Some(Reason::Origin),
            _ => {
                let of_session = origin.backend == *target.backend;
                (self.rules.policy == Policy::Session && !of_session).then_some(Reason::Session)
            }
        };
        match reason {
            Some(reason) => foreign(block, reason, Some(origin.clone())),
            None => PastBlock {
                origin: Some(origin.clone()),
                prefix_record: verdict.map(prefix_record).unwrap_or_default(),
                ..same(block)
            },
        }
    }
}

/// The thinking of a turn that the keyring cannot open. How much it was is not known.
fn sealed_thinking() -> PastBlock {
    let block = Block::Redacted { data: String::new() };
    PastBlock { restored: true, ..foreign(block, Reason::Sealed, None) }
}

/// The prefix that the memory knows for a block.
fn prefix_record(verdict: &Verdict) -> PrefixRecord {
    match verdict {
        Verdict::Send { prefix, dropped, .. } => PrefixRecord { made: *prefix, dropped: *dropped },
        Verdict::Try { dropped } => PrefixRecord { made: None, dropped: *dropped },
        Verdict::LeaveOut { .. } => PrefixRecord::default(),
    }
}

/// Moves `prefix` past one block of a turn. Returns the prefix that the block was made after.
pub(crate) fn pass_block(prefix: &mut Option<Prefix>, block: &Block) -> Option<Prefix> {
    let (made, key) = ((*prefix)?, key_of(block)?);
    *prefix = Some(after_block(made, &key));
    Some(made)
}

pub(crate) fn with_signature(mut block: Block, new: Option<String>) -> Block {
    if let Block::ToolCall { signature, .. } | Block::Text { signature, .. } = &mut block {
        *signature = new;
    }
    block
}

/// The key of a signed part, from its own signature.
fn own_key(block: &Block, keys: ClientKeys<'_>) -> Option<BlockKey> {
    if !keys.are_known {
        return None;
    }
    match block {
        Block::ToolCall { signature, .. } | Block::Text { signature, .. } => {
            let signature = signature.as_deref()?;
            Some(KeyHasher::new(ThinkingKind::Thinking).finish(signature))
        }
        thinking => client_key(thinking, keys.binds_text),
    }
}

/// The verdict, unless the memory does not know the block. The vault knows more in that case.
pub(crate) fn known_verdict(verdict: &Verdict) -> Option<&Verdict> {
    let unknown =
        matches!(verdict, Verdict::Try { .. } | Verdict::LeaveOut { reason: Reason::Unknown, .. });
    (!unknown).then_some(verdict)
}

/// The opaque field that a client returns with its thinking.
pub(crate) fn signature_of(block: &Block) -> &str {
    match block {
        Block::Thinking { signature, .. } => signature.as_deref().unwrap_or_default(),
        Block::Redacted { data } => data,
        _ => "",
    }
}

/// The block of an envelope as its maker wrote it, or the client's block if its text was changed.
fn native_block(block: Block, envelope: &Envelope) -> Result<Block, Block> {
    match (&envelope.kind, block) {
        (EnvelopeKind::Redacted { data }, _) => Ok(Block::Redacted { data: data.clone() }),
        (_, Block::Thinking { text, .. }) if !is_changed(&text, envelope) => {
            Ok(Block::Thinking { text, signature: envelope.signature.clone() })
        }
        (_, block) => Err(block),
    }
}

/// Whether a text differs from the signed one.
fn is_changed(text: &str, envelope: &Envelope) -> bool {
    envelope.signature.is_some() && Envelopes::content_hash(text) != envelope.content
}

/// A part that has no maker.
pub(crate) fn plain(block: Block) -> PastBlock {
    same(block)
}

fn same(block: Block) -> PastBlock {
    PastBlock {
        block,
        maker: Maker::Same,
        reason: Reason::Policy,
        origin: None,
        tried: false,
        restored: false,
        key: None,
        prefix_record: PrefixRecord::default(),
    }
}

pub(crate) fn foreign(block: Block, reason: Reason, origin: Option<Arc<Origin>>) -> PastBlock {
    PastBlock { maker: Maker::Foreign, reason, origin, ..same(block) }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use throughline_codec::dialects::ClientDialect;
    use throughline_codec::dialects::stored::Stored;
    use throughline_sealing::Keyring;

    use super::*;

    /// Covers: C-33
    #[test]
    fn blocks_of_a_private_turn_have_no_keys() {
        let envelopes = Envelopes::new(Arc::new(Keyring::new([1; 32])));
        let thinking = Block::Thinking { text: "hm".to_owned(), signature: Some("s".to_owned()) };
        let call = Block::ToolCall {
            id: "c".to_owned(),
            name: "read".to_owned(),
            arguments: String::new(),
            signature: Some("s".to_owned()),
        };
        let content = vec![thinking.clone(), call.clone()];
        let messages = vec![Message::new(Role::Assistant, content)];
        let request = Request { messages, ..Request::default() };
        for (is_private, count) in [(false, 1), (true, 0)] {
            let keys = ClientKeys::new(Stored.defaults(), &envelopes).for_turn(is_private);
            assert_eq!(keys.of_request(&request).len(), count, "{is_private}");
            for block in [&thinking, &call] {
                assert_eq!(own_key(block, keys).is_some(), !is_private, "{block:?}");
            }
        }
    }
}
