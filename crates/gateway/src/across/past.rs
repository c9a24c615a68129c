//! What the client's assistant messages were when their maker wrote them.
//!
//! Clients send back what their dialect can hold. What is missing comes out of the envelope that rides
//! in an opaque field, or out of the vault; the memory and both say who made it.

use std::collections::HashMap;
use std::sync::Arc;

use throughline_canonical::{
    Block, BlockKey, KeyHasher, Message, Origin, Reason, Request, Role, ThinkingKind,
};
use throughline_codec::dialects::gemini::SKIP_SIGNATURE;

use super::replay::Maker;
use crate::gateway::Gateway;
use crate::settings::{Policy, Thinking};
use crate::thinking::envelope::{Carried, Envelope, Envelopes, Opened};
use crate::thinking::memory::{Target, Verdict};
use crate::thinking::vault::{Kept, VaultKey};
use crate::thinking::{Lineage, LineageId};

/// One block of an assistant message as its maker wrote it.
#[derive(Clone, Debug)]
pub(crate) struct PastBlock {
    pub(crate) block: Block,
    /// Who made it, as the target sees it.
    pub(crate) maker: Maker,
    /// Why it is not the target's.
    pub(crate) reason: Reason,
    /// Who made it, if that is known.
    pub(crate) origin: Option<Arc<Origin>>,
    /// Nobody knows it; it goes to see whether it is read.
    pub(crate) tried: bool,
    /// The client had lost it.
    pub(crate) restored: bool,
    /// Its name, where the client sent it.
    pub(crate) key: Option<BlockKey>,
}

/// The name of a thinking block as the client sends it. An envelope names its block by itself: some
/// clients give it back with another text, or as another kind.
pub(crate) fn key_of(block: &Block) -> Option<BlockKey> {
    let name = |kind, text: &str, signature: &str| {
        let mut hasher = KeyHasher::new(kind);
        hasher.push(text.as_bytes());
        hasher.finish(signature)
    };
    match block {
        Block::Thinking {
            signature: Some(mark),
            ..
        }
        | Block::Redacted { data: mark }
            if Envelopes::looks_ours(mark) =>
        {
            Some(name(ThinkingKind::Thinking, "", mark))
        }
        Block::Thinking { text, signature } => Some(name(
            ThinkingKind::Thinking,
            text,
            signature.as_deref().unwrap_or_default(),
        )),
        Block::Redacted { data } => Some(name(ThinkingKind::Redacted, data, "")),
        _ => None,
    }
}

/// Makes one message of what a model said in one turn, and one block of what was one: some clients
/// keep every piece of a stream as a message of its own.
pub(crate) fn join_turns(messages: &mut Vec<Message>) {
    let mut joined: Vec<Message> = Vec::with_capacity(messages.len());
    for message in messages.drain(..) {
        match joined.last_mut() {
            Some(last) if last.role == Role::Assistant && message.role == Role::Assistant => {
                for block in message.content {
                    append(&mut last.content, block);
                }
            }
            _ => joined.push(message),
        }
    }
    for message in &mut joined {
        let says = |block: &Block| match block {
            Block::Text { text, signature } => !text.is_empty() || signature.is_some(),
            _ => true,
        };
        if message.role == Role::Assistant {
            message.content.retain(says);
        }
    }
    *messages = joined;
}

/// Adds a block to a turn. A signature ends its block; until then, pieces of a kind are one.
fn append(content: &mut Vec<Block>, block: Block) {
    match (content.last_mut(), &block) {
        (
            Some(Block::Thinking {
                text,
                signature: mark @ None,
            }),
            Block::Thinking {
                text: more,
                signature,
            },
        )
        | (
            Some(Block::Text {
                text,
                signature: mark @ None,
            }),
            Block::Text {
                text: more,
                signature,
            },
        ) => {
            text.push_str(more);
            mark.clone_from(signature);
        }
        _ => content.push(block),
    }
}

/// The names of all thinking blocks of a request, in order.
pub(crate) fn keys(request: &Request) -> Vec<Option<BlockKey>> {
    assistant_blocks(request)
        .filter_map(key_of)
        .map(Some)
        .collect()
}

fn assistant_blocks(request: &Request) -> impl Iterator<Item = &Block> {
    request
        .messages
        .iter()
        .filter(|message| message.role == Role::Assistant)
        .flat_map(|message| &message.content)
}

/// Brings the past back.
pub(crate) struct Recall<'a> {
    pub(crate) gateway: &'a Gateway,
    pub(crate) target: &'a Target,
    pub(crate) lineage: Lineage,
    pub(crate) rules: Thinking,
    /// Whether client and upstream speak the same dialect, so that bare signatures may be its own.
    pub(crate) same_dialect: bool,
    /// Whether the upstream reads anything of the past.
    pub(crate) reads_past: bool,
}

impl Recall<'_> {
    /// An assistant message as its maker wrote it. `verdicts` are the memory's on its thinking.
    pub(crate) async fn message(&self, message: &Message, verdicts: &[Verdict]) -> Vec<PastBlock> {
        let kept = match self.reads_past {
            true => self.find(message).await,
            false => None,
        };
        match kept {
            Some(kept) if says_the_same(&message.content, &kept.blocks) => {
                self.whole(message, kept, verdicts)
            }
            kept => self.patched(message, kept, verdicts),
        }
    }

    async fn find(&self, message: &Message) -> Option<Kept> {
        self.gateway
            .vault
            .find(&names(self.lineage.id, &message.content))
            .await
    }

    /// The vault holds the very turn.
    fn whole(&self, message: &Message, kept: Kept, verdicts: &[Verdict]) -> Vec<PastBlock> {
        let origin = Arc::new(kept.origin);
        let mut sent = message
            .content
            .iter()
            .filter_map(key_of)
            .zip(verdicts)
            .map(|(key, verdict)| (key, Some(verdict)));
        let mut past: Vec<PastBlock> = kept
            .blocks
            .into_iter()
            .map(|block| {
                let thinks = matches!(block, Block::Thinking { .. } | Block::Redacted { .. });
                let sent = if thinks { sent.next() } else { None };
                let verdict = sent.and_then(|(_, verdict)| verdict);
                let mut past = self.known(block, &origin, verdict);
                past.restored = thinks && sent.is_none();
                past.key = sent.map(|(key, _)| key);
                past
            })
            .collect();
        // What the vault does not keep, the client brings.
        let rest = message.content.iter().filter(|block| {
            matches!(
                block,
                Block::Media { .. } | Block::Opaque { .. } | Block::Refusal { .. }
            )
        });
        past.extend(rest.cloned().map(plain));
        past
    }

    /// The client's own blocks, with what an envelope or the vault adds to them.
    fn patched(
        &self,
        message: &Message,
        kept: Option<Kept>,
        verdicts: &[Verdict],
    ) -> Vec<PastBlock> {
        let (lost, origin) = match kept {
            Some(kept) => (Lost::of(kept.blocks), Some(Arc::new(kept.origin))),
            None => (Lost::default(), None),
        };
        let mut verdicts = verdicts.iter();
        let mut past = Vec::with_capacity(message.content.len());
        let thinks = message.content.iter().any(|block| key_of(block).is_some());
        if let (Some(origin), false) = (&origin, thinks) {
            past.extend(lost.thinking.iter().map(|block| PastBlock {
                restored: true,
                ..self.known(block.clone(), origin, None)
            }));
        }
        for block in &message.content {
            past.push(match block {
                Block::Thinking { .. } | Block::Redacted { .. } => {
                    let verdict = verdicts.next();
                    PastBlock {
                        key: key_of(block),
                        ..self.thinking(block, verdict)
                    }
                }
                Block::ToolCall { id, .. } => {
                    self.signed(block, lost.calls.get(id).zip(origin.as_ref()))
                }
                Block::Text { .. } => self.signed(block, None),
                other => plain(other.clone()),
            });
        }
        past
    }

    /// Thinking the client sent.
    fn thinking(&self, block: &Block, verdict: Option<&Verdict>) -> PastBlock {
        let mark = match block {
            Block::Thinking { signature, .. } => signature.as_deref().unwrap_or_default(),
            Block::Redacted { data } => data,
            _ => "",
        };
        match self.gateway.envelopes.open(mark) {
            Opened::Altered => foreign(block.clone(), Reason::Origin, None),
            Opened::Ours(envelope) => self.enveloped(block, *envelope, verdict),
            Opened::NotOurs => match verdict {
                Some(Verdict::Send { origin, .. }) => PastBlock {
                    origin: origin.clone(),
                    ..same(block.clone())
                },
                Some(Verdict::Try { .. }) if self.same_dialect => PastBlock {
                    tried: true,
                    reason: Reason::Unknown,
                    ..same(block.clone())
                },
                Some(Verdict::LeaveOut { reason, origin }) => {
                    foreign(block.clone(), *reason, origin.clone())
                }
                // What nobody knows was made by somebody who speaks the client's dialect.
                Some(Verdict::Try { .. }) | None => foreign(block.clone(), Reason::Unknown, None),
            },
        }
    }

    fn enveloped(&self, block: &Block, envelope: Envelope, verdict: Option<&Verdict>) -> PastBlock {
        let origin = Arc::new(envelope.origin);
        let native = match (envelope.kind, block) {
            (Carried::Redacted { data }, _) => Block::Redacted { data },
            (_, Block::Thinking { text, .. }) => {
                // Whoever signed it signed this text and no other.
                let altered = Envelopes::content_hash(text) != envelope.content;
                if altered && envelope.signature.is_some() {
                    return foreign(block.clone(), Reason::Shape, Some(origin));
                }
                Block::Thinking {
                    text: text.clone(),
                    signature: envelope.signature,
                }
            }
            _ => return foreign(block.clone(), Reason::Shape, Some(origin)),
        };
        if envelope.cut {
            return foreign(native, Reason::Cut, Some(origin));
        }
        self.known(native, &origin, verdict)
    }

    /// A call or a text, with what its maker wants back with it.
    fn signed(&self, block: &Block, lost: Option<(&Signed, &Arc<Origin>)>) -> PastBlock {
        let (Block::ToolCall { signature, .. } | Block::Text { signature, .. }) = block else {
            return plain(block.clone());
        };
        let mark = signature.as_deref().filter(|mark| *mark != SKIP_SIGNATURE);
        match mark.map(|mark| self.gateway.envelopes.open(mark)) {
            Some(Opened::Ours(envelope)) => {
                let signed = with_signature(block, envelope.signature);
                self.known(signed, &Arc::new(envelope.origin), None)
            }
            Some(Opened::NotOurs) if self.same_dialect => match lost {
                // The vault knows whose it is.
                Some((_, origin)) => self.known(block.clone(), origin, None),
                None => same(block.clone()),
            },
            Some(Opened::Altered | Opened::NotOurs) => {
                foreign(with_signature(block, None), Reason::Origin, None)
            }
            None => match lost {
                Some((signed, origin)) if signed.is(block) => {
                    let block = with_signature(block, signed.signature.clone());
                    self.known(block, origin, None)
                }
                _ => foreign(with_signature(block, None), Reason::Origin, None),
            },
        }
    }

    /// A block whose maker is known.
    fn known(&self, block: Block, origin: &Arc<Origin>, verdict: Option<&Verdict>) -> PastBlock {
        let target = self.target;
        let readable = origin.domain == *target.domain
            && (!target.account_bound || origin.credential == target.credential);
        let reason = match verdict {
            Some(Verdict::LeaveOut { reason, .. }) => Some(*reason),
            Some(Verdict::Send { .. }) => None,
            Some(Verdict::Try { .. }) | None if !readable => Some(Reason::Origin),
            Some(Verdict::Try { .. }) | None => {
                let of_session = origin.backend == *target.backend;
                (self.rules.policy == Policy::Session && !of_session).then_some(Reason::Session)
            }
        };
        match reason {
            Some(reason) => foreign(block, reason, Some(origin.clone())),
            None => PastBlock {
                origin: Some(origin.clone()),
                ..same(block)
            },
        }
    }
}

/// Under which names a turn is kept: its calls, else its text.
pub(crate) fn names(lineage: LineageId, content: &[Block]) -> Vec<VaultKey> {
    let calls = content.iter().filter_map(|block| match block {
        Block::ToolCall { id, .. } => Some(VaultKey::of_call(id)),
        _ => None,
    });
    let mut names: Vec<VaultKey> = calls.collect();
    let text = text_of(content);
    if names.is_empty() && !text.trim().is_empty() {
        names.push(VaultKey::of_text(lineage, &text));
    }
    names
}

fn text_of(content: &[Block]) -> String {
    content
        .iter()
        .filter_map(|block| match block {
            Block::Text { text, .. } => Some(text.as_str()),
            _ => None,
        })
        .collect()
}

/// Whether two turns say the same to a person and call the same tools.
fn says_the_same(one: &[Block], other: &[Block]) -> bool {
    let calls = |content: &[Block]| -> Vec<String> {
        content
            .iter()
            .filter_map(|block| match block {
                Block::ToolCall { id, .. } => Some(id.clone()),
                _ => None,
            })
            .collect()
    };
    calls(one) == calls(other) && text_of(one).trim() == text_of(other).trim()
}

/// What the vault has of a turn the client has changed.
#[derive(Default)]
struct Lost {
    thinking: Vec<Block>,
    calls: HashMap<String, Signed>,
}

struct Signed {
    name: String,
    signature: Option<String>,
}

impl Signed {
    fn is(&self, block: &Block) -> bool {
        matches!(block, Block::ToolCall { name, .. } if *name == self.name)
    }
}

impl Lost {
    fn of(blocks: Vec<Block>) -> Self {
        let mut lost = Self::default();
        for block in blocks {
            match block {
                Block::Thinking { .. } | Block::Redacted { .. } => lost.thinking.push(block),
                Block::ToolCall {
                    id,
                    name,
                    signature,
                    ..
                } => {
                    lost.calls.insert(id, Signed { name, signature });
                }
                _ => {}
            }
        }
        lost
    }
}

fn with_signature(block: &Block, mark: Option<String>) -> Block {
    let mut block = block.clone();
    if let Block::ToolCall { signature, .. } | Block::Text { signature, .. } = &mut block {
        *signature = mark;
    }
    block
}

/// A part that has no maker to speak of.
fn plain(block: Block) -> PastBlock {
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
    }
}

fn foreign(block: Block, reason: Reason, origin: Option<Arc<Origin>>) -> PastBlock {
    PastBlock {
        maker: Maker::Foreign,
        reason,
        origin,
        ..same(block)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_of_a_turn_are_one_message_and_pieces_of_a_block_one_block() {
        let thinking = |text: &str, signature: Option<&str>| Block::Thinking {
            text: text.to_owned(),
            signature: signature.map(ToOwned::to_owned),
        };
        let said = |role, content| Message { role, content };
        let mut messages = vec![
            said(Role::User, vec![Block::text("hi")]),
            said(Role::Assistant, vec![thinking("A", None)]),
            said(Role::Assistant, vec![thinking("B", None)]),
            said(Role::Assistant, vec![thinking("", Some("s"))]),
            said(Role::Assistant, vec![thinking("C", None)]),
            said(Role::Assistant, vec![Block::text("Y")]),
            said(Role::Assistant, vec![Block::text("es")]),
            said(Role::Assistant, vec![Block::text("")]),
            said(Role::User, vec![Block::text("and?")]),
        ];
        join_turns(&mut messages);
        let turn = vec![
            thinking("AB", Some("s")),
            thinking("C", None),
            Block::text("Yes"),
        ];
        assert_eq!(
            messages,
            [
                said(Role::User, vec![Block::text("hi")]),
                said(Role::Assistant, turn),
                said(Role::User, vec![Block::text("and?")]),
            ]
        );
    }
}
