//! Adapts the history of a request to its target: applies [`replay_table`] to each block, fills
//! empty messages and repairs open tool loops. Every change is recorded as a loss.

use throughline_canonical::{
    Amount, Block, BlockKey, Fate, Loss, LossReason, LossSubject, Message, Prefix, Reason, Request,
    Role, ThinkingKind,
};
use throughline_codec::dialects::SKIP_SIGNATURE;
use throughline_codec::dialects::arguments::or_empty_object;
use throughline_codec::dialects::blocks::rewrite::PLACEHOLDER;
use throughline_codec::dialects::profile::{BlockRules, Profile, Treatment};

use crate::backend::Replay;
use crate::catalog::{Model, Off};
use crate::history::recall::PastBlock;
use crate::history::replay_table::{self, Maker, PastPart, Position};
use crate::thinking::guard::PrefixRecord;
use crate::turn::log::BlockRecord;
use crate::upstream::refusal_policy::RetryPlan;

/// A tool call was sent with a skip-validation signature because its original signature is unknown.
pub(crate) const CALL_UNSIGNED: Loss =
    Loss::PartOmitted { part: LossSubject::ToolCallSignature, reason: LossReason::Unknown };

/// The target's rules for the history.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HistoryRules<'a> {
    pub(crate) profile: &'static Profile,
    pub(crate) model: &'a Model,
    /// What to change, if the target has refused thinking in this request.
    pub(crate) retry: RetryPlan,
    /// The index of the message where the model's present turn begins.
    pub(crate) open: usize,
    /// The first message whose thinking is sent back, as configured.
    pub(crate) replays_from: usize,
}

/// The adapted history, with a report of every block.
#[derive(Debug, Default)]
pub(crate) struct AdaptedHistory {
    pub(crate) blocks: Vec<BlockRecord>,
    pub(crate) losses: Vec<Loss>,
    /// The signed parts that are sent, in order.
    pub(crate) sent: Vec<SentPart>,
    /// How many of them the gateway restored.
    pub(crate) restored: usize,
    /// Whether thinking without a signature is sent.
    pub(crate) unsigned: bool,
    omitted: Vec<(Reason, usize)>,
    /// Indexes of assistant messages that were empty from the start, in order.
    empty: Vec<usize>,
}

impl AdaptedHistory {
    /// Records that a sent block is stale: its prefix has changed.
    pub(crate) fn record_stale(&mut self, line: usize) {
        if let Some(block) = self.blocks.get_mut(line) {
            block.set_fate(Fate::LeftOut, Some(Reason::Prefix));
            self.omit(Reason::Prefix);
        }
    }
}

/// Replaces an empty message, which the target would reject.
const EMPTY_MESSAGE_TEXT: &str = "[nothing was said]";

/// A signed part that is sent back to its maker.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SentPart {
    /// The key by which a refusal can be remembered.
    pub(crate) key: Option<BlockKey>,
    /// Its index in the report. `None` for the signature of a call or a text.
    pub(crate) line: Option<usize>,
    /// The index of its message.
    pub(crate) message: usize,
    /// Whether its maker is unknown and the block is only tried.
    pub(crate) tried: bool,
    /// The prefix it was made after, if known.
    pub(crate) prefix_record: PrefixRecord,
    /// The prefix it follows now, if prefixes matter.
    pub(crate) prefix: Option<Prefix>,
    /// Whether it follows a summary that the provider wrote.
    pub(crate) after_summary: bool,
    /// Its position in the body: message index, block index.
    pub(crate) position: Option<(usize, usize)>,
}

/// Whether thinking has no signature. Some servers send an empty one.
fn is_unsigned(block: &Block) -> bool {
    match block {
        Block::Thinking { signature, .. } => signature.as_deref().is_none_or(str::is_empty),
        _ => false,
    }
}

/// Where the model's present turn begins: after the last message in which the user says something.
pub(crate) fn open_turn(messages: &[Message]) -> usize {
    let speaks = |message: &Message| {
        message.role == Role::User
            && message.content.iter().any(|block| !matches!(block, Block::ToolResult { .. }))
    };
    messages.iter().rposition(speaks).map_or(0, |at| at + 1)
}

/// The first message whose thinking is sent back, as configured.
pub(crate) fn replays_from(replay: Replay, messages: &[Message]) -> usize {
    match replay {
        Replay::Verbatim => 0,
        Replay::None => usize::MAX,
        Replay::LatestTurn => {
            let assistant = |message: &Message| message.role == Role::Assistant;
            let last = messages.iter().rposition(assistant).unwrap_or_default();
            open_turn(messages.get(..last).unwrap_or_default())
        }
    }
}

impl HistoryRules<'_> {
    /// Applies the table to one assistant message.
    pub(crate) fn message(
        &self,
        at: usize,
        past: Vec<PastBlock>,
        position: Position,
        adapted: &mut AdaptedHistory,
    ) -> Vec<Block> {
        if past.is_empty() {
            adapted.empty.push(at);
        }
        let mut content = Vec::with_capacity(past.len());
        let thinks = |past: &PastBlock| {
            matches!(past.block, Block::Thinking { .. } | Block::Redacted { .. })
        };
        let leads = past.iter().rposition(|past| !thinks(past));
        // One model wrote all blocks of a message.
        let unknown = past.iter().all(|past| past.origin.is_none());
        for (index, past) in past.into_iter().enumerate() {
            match past.block {
                Block::Thinking { .. } | Block::Redacted { .. } => {
                    // A reply that was cut may end in thinking. Its own maker would refuse that.
                    let last = leads.is_none_or(|leads| index > leads) && self.signs_blocks();
                    content.extend(self.thinking((at, index), past, (position, last), adapted));
                }
                _ => content.push(self.signed(at, past, position, adapted)),
            }
        }
        let needs_signature = position == Position::OpenLoop && self.wants_call_signatures();
        if needs_signature
            && skip_first(&mut content)
            && unknown
            && !adapted.losses.contains(&CALL_UNSIGNED)
        {
            adapted.losses.push(CALL_UNSIGNED);
        }
        content
    }

    /// Whether the target reads complete thinking blocks and refuses a message that ends in one.
    fn signs_blocks(&self) -> bool {
        self.profile.blocks != BlockRules::None
    }

    /// Whether the target would refuse a block because its signature is missing. Some servers sign
    /// nothing: if the maker of the block is known, it is as the maker wrote it. Servers of the
    /// Anthropic dialect that sign nothing accept any unsigned block.
    fn wants_signature(&self, past: &PastBlock, position: Position) -> bool {
        let bare = is_unsigned(&past.block) && past.origin.is_none();
        let verbatim = self.treat(PastPart::Thinking, Maker::Same, position) == Treatment::Verbatim;
        bare && verbatim && self.profile.blocks != BlockRules::Native
    }

    fn treat(&self, part: PastPart, maker: Maker, position: Position) -> Treatment {
        replay_table::treat(self.profile, part, maker, position)
    }

    fn thinking(
        &self,
        (message, index): (usize, usize),
        past: PastBlock,
        (position, last): (Position, bool),
        adapted: &mut AdaptedHistory,
    ) -> Option<Block> {
        let (part, kind) = match past.block {
            Block::Redacted { .. } => (PastPart::Redacted, ThinkingKind::Redacted),
            _ => (PastPart::Thinking, ThinkingKind::Thinking),
        };
        let (maker, reason) = match past.maker {
            _ if self.drops_thinking(message, past.tried) => (Maker::Foreign, Reason::Origin),
            Maker::Same if message < self.replays_from => (Maker::Foreign, Reason::Policy),
            Maker::Same if last => (Maker::Foreign, Reason::Cut),
            Maker::Same if self.wants_signature(&past, position) => (Maker::Foreign, Reason::Shape),
            maker => (maker, past.reason),
        };
        let treatment = self.treat(part, maker, position);
        if treatment == Treatment::Unneeded && past.restored {
            // The client dropped what its maker never reads.
            return None;
        }
        let going = match past.tried {
            true => (Fate::Tried, Some(Reason::Unknown)),
            false if past.restored => (Fate::Restored, None),
            false => (Fate::Sent, None),
        };
        let (block, (fate, reason)) = match (treatment, past.block) {
            (Treatment::Verbatim, block) => (Some(block), going),
            (Treatment::Text, Block::Thinking { text, .. }) => {
                (Some(Block::Thinking { text, signature: None }), going)
            }
            (Treatment::Unneeded, _) => (None, (Fate::LeftOut, Some(Reason::Policy))),
            _ => {
                adapted.omit(reason);
                (None, (Fate::LeftOut, Some(reason)))
            }
        };
        adapted.unsigned |= block.as_ref().is_some_and(is_unsigned);
        if block.is_some() {
            adapted.sent.push(SentPart {
                key: past.key,
                line: Some(adapted.blocks.len()),
                message,
                tried: past.tried,
                prefix_record: past.prefix_record,
                after_summary: false,
                prefix: None,
                position: None,
            });
        }
        adapted.restored += usize::from(fate == Fate::Restored);
        let position = (!past.restored).then_some(index);
        adapted.blocks.push(BlockRecord::new(
            (message, position),
            kind,
            (fate, reason),
            past.origin,
        ));
        block
    }

    /// A call or a text. Its signature goes only to its maker.
    fn signed(
        &self,
        message: usize,
        past: PastBlock,
        position: Position,
        adapted: &mut AdaptedHistory,
    ) -> Block {
        let mut block = past.block;
        let (part, signature) = match &mut block {
            Block::ToolCall { signature, .. } => (PastPart::CallSignature, signature),
            Block::Text { signature, .. } => (PastPart::TextSignature, signature),
            _ => return block,
        };
        let treatment = self.treat(part, past.maker, position);
        if self.drops_thinking(message, past.tried) || treatment != Treatment::Verbatim {
            *signature = None;
        } else if signature.is_some() {
            adapted.sent.push(SentPart {
                key: past.key,
                line: None,
                message,
                tried: past.tried,
                prefix_record: past.prefix_record,
                after_summary: false,
                prefix: None,
                position: None,
            });
        }
        block
    }

    /// Whether a retry drops the thinking of a message.
    fn drops_thinking(&self, message: usize, tried: bool) -> bool {
        match self.retry {
            RetryPlan::First
            | RetryPlan::AdaptSettings
            | RetryPlan::WholeHistory
            | RetryPlan::DropBound
            | RetryPlan::SummaryAsText => false,
            RetryPlan::DropTried => tried,
            RetryPlan::DropEarlierThinking => tried || message < self.open,
            RetryPlan::DropAllThinking => true,
            // Here the gateway cannot know what else is missing.
            RetryPlan::ThinkingOff => !self.signs_blocks() && !self.has_skip_signature(),
        }
    }

    fn wants_call_signatures(&self) -> bool {
        // A model that refused a call because of a missing signature needs signatures.
        let wants = self.model.signatures_enforced || self.retry.follows_refused_history();
        wants && self.has_skip_signature()
    }

    /// Whether the target accepts a skip-validation signature for calls of other makers.
    fn has_skip_signature(&self) -> bool {
        let foreign = self.treat(PastPart::CallSignature, Maker::Foreign, Position::OpenLoop);
        foreign == Treatment::Skipped
    }

    /// Fills empty messages, which the target would reject.
    pub(crate) fn fill_empty_messages(
        &self,
        messages: &mut [Message],
        adapted: &mut AdaptedHistory,
    ) {
        let mut filled = 0;
        for (at, message) in messages.iter_mut().enumerate() {
            if message.role == Role::Assistant && message.content.is_empty() {
                let filler = match adapted.empty.binary_search(&at).is_ok() {
                    true => EMPTY_MESSAGE_TEXT,
                    false => PLACEHOLDER,
                };
                message.content.push(Block::text(filler));
                filled += 1;
            }
        }
        if filled > 0 {
            adapted.losses.push(Loss::MessageFilled { messages: filled });
        }
    }

    /// With a thinking budget, an open tool loop must begin with thinking. If that thinking was
    /// dropped, this request goes without thinking, or the loop is rewritten as text.
    pub(crate) fn repair_open_loop(&self, request: &mut Request, adapted: &mut AdaptedHistory) {
        let manual = match self.profile.blocks {
            BlockRules::None => false,
            BlockRules::Native => {
                matches!(request.thinking.amount, Some(Amount::Budget { .. } | Amount::On))
            }
            // The provider after the proxy applies its own rule.
            BlockRules::PassedOn => request.thinking.is_wanted(),
        };
        let missed = self.retry == RetryPlan::ThinkingOff && self.signs_blocks();
        if !manual && !missed {
            return;
        }
        let start = open_turn(&request.messages);
        let turn = request.messages.get(start..).unwrap_or_default();
        let calls = |message: &&Message| {
            message.role == Role::Assistant
                && message.content.iter().any(|block| matches!(block, Block::ToolCall { .. }))
        };
        let bare = turn.iter().filter(calls).any(|message| {
            !matches!(
                message.content.first(),
                Some(Block::Thinking { .. } | Block::Redacted { .. })
            )
        });
        if !bare && !missed {
            return;
        }
        if self.model.off == Off::Disabled {
            request.thinking.amount = Some(Amount::Off);
            adapted.losses.push(Loss::SettingAdapted {
                setting: LossSubject::Thinking,
                reason: LossReason::OpenToolLoop,
            });
        } else {
            let calls = write_loop_as_text(&mut request.messages[start..]);
            adapted.losses.push(Loss::ToolLoopClosed { calls });
        }
    }
}

impl AdaptedHistory {
    fn omit(&mut self, reason: Reason) {
        match self.omitted.iter_mut().find(|(of, _)| *of == reason) {
            Some((_, count)) => *count += 1,
            None => self.omitted.push((reason, 1)),
        }
    }

    /// Writes the counted omissions to the losses, before all others.
    pub(crate) fn finish_losses(&mut self) {
        let omitted =
            self.omitted.drain(..).map(|(reason, blocks)| Loss::ThinkingOmitted { blocks, reason });
        self.losses.splice(0..0, omitted);
    }
}

/// Adds the skip-validation signature to the first call, if it has none. Returns whether it did.
fn skip_first(content: &mut [Block]) -> bool {
    let first = content.iter_mut().find_map(|block| match block {
        Block::ToolCall { signature, .. } => Some(signature),
        _ => None,
    });
    let Some(signature @ None) = first else {
        return false;
    };
    *signature = Some(SKIP_SIGNATURE.to_owned());
    true
}

/// Rewrites calls and results as text. Returns the number of calls.
fn write_loop_as_text(messages: &mut [Message]) -> usize {
    let mut calls = 0;
    for message in messages {
        for block in &mut message.content {
            let text = match block {
                Block::ToolCall { name, arguments, .. } => {
                    calls += 1;
                    let arguments = or_empty_object(arguments);
                    format!("[called {name} with {arguments}]")
                }
                Block::ToolResult { content, .. } => {
                    let texts = content.iter().filter_map(|part| match part {
                        Block::Text { text, .. } => Some(text.as_str()),
                        _ => None,
                    });
                    format!("[result: {}]", texts.collect::<Vec<_>>().join(" "))
                }
                _ => continue,
            };
            *block = Block::text(text);
        }
    }
    calls
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replay_setting_limits_the_history_that_is_sent_back() {
        let message = |role, content| Message::new(role, content);
        let result = Block::ToolResult {
            id: "c".to_owned(),
            name: None,
            content: Vec::new(),
            is_error: false,
        };
        let messages = [
            message(Role::User, vec![Block::text("hi")]),
            message(Role::Assistant, vec![Block::text("yes")]),
            message(Role::User, vec![Block::text("and?")]),
            message(Role::Assistant, vec![Block::text("a call")]),
            message(Role::User, vec![result]),
            message(Role::Assistant, vec![Block::text("done")]),
            message(Role::User, vec![Block::text("more")]),
        ];
        assert_eq!(replays_from(Replay::Verbatim, &messages), 0);
        assert_eq!(replays_from(Replay::LatestTurn, &messages), 3);
        assert_eq!(replays_from(Replay::LatestTurn, &messages[..3]), 1);
        assert_eq!(replays_from(Replay::None, &messages), usize::MAX);
        assert_eq!(replays_from(Replay::LatestTurn, &[]), 0);
        assert_eq!(open_turn(&messages), 7);
        assert_eq!(open_turn(&messages[..6]), 3);
    }
}
