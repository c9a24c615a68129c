//! The rule that decides how to retry after a backend refused thinking. It is the same for both
//! lanes; each lane builds the changed request itself.

use throughline_canonical::Fate;
use throughline_codec::dialects::RefusalKind;

/// How a request is changed before it is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RetryPlan {
    /// The first try: nothing is changed.
    First,
    /// The settings are adapted to what the refusal says. The messages stay the same.
    AdaptSettings,
    /// The provider has lost the reply from which the request continues, so it gets the whole history.
    WholeHistory,
    /// Blocks with an unknown maker are dropped.
    DropTried,
    /// All thinking before the last user turn is dropped, and blocks with an unknown maker.
    DropEarlierThinking,
    /// All thinking is dropped.
    DropAllThinking,
    /// The provider is asked to drop blocks that are bound to another conversation.
    DropBound,
    /// A missing signature is replaced, or thinking is turned off.
    ThinkingOff,
    /// Summaries of earlier turns are sent as text.
    SummaryAsText,
}

impl RetryPlan {
    /// Whether the backend has refused a part of the history.
    pub(crate) fn follows_refused_history(self) -> bool {
        !matches!(self, Self::First | Self::AdaptSettings | Self::WholeHistory)
    }

    /// Whether a request that was changed like this, and that the backend refused again, may be changed
    /// once more. A request from which the memory learns nothing would be refused each time, so all
    /// thinking is dropped after earlier thinking.
    pub(crate) fn may_follow(self, earlier: Self) -> bool {
        match earlier {
            Self::First | Self::WholeHistory => self != Self::AdaptSettings,
            Self::DropEarlierThinking => self == Self::DropAllThinking,
            Self::SummaryAsText => !matches!(self, Self::AdaptSettings | Self::SummaryAsText),
            _ => false,
        }
    }
}

/// Which blocks the target cannot read from now on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RejectedBlocks {
    /// Blocks with an unknown maker that were tried.
    Tried,
    /// The block that the refusal names, if it names one.
    Named,
    /// All blocks that were sent.
    All,
    /// None.
    None,
}

/// What the retry rule needs to know about a refusal.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RefusedRequest {
    pub(crate) kind: RefusalKind,
    /// The fate of the block that the provider names.
    pub(crate) named: Option<Fate>,
    /// Whether the named block would go out again if earlier thinking is dropped: it belongs to the
    /// present turn, and the memory learns nothing from this request.
    pub(crate) named_stays: bool,
    /// Whether blocks with an unknown maker were sent.
    pub(crate) tried: bool,
    /// Whether known blocks from before the last user turn were sent.
    pub(crate) old: bool,
    /// Whether the provider can be asked to drop bound blocks and was not asked yet.
    pub(crate) can_ask: bool,
    /// Whether the gateway can supply what the model misses.
    pub(crate) ours: bool,
}

impl RefusedRequest {
    /// Decides how to retry, and which blocks are rejected. `None` if the client must get the
    /// refusal.
    pub(crate) fn plan_retry(self) -> Option<(RetryPlan, RejectedBlocks)> {
        let a_try_failed = self.tried && self.named.is_none_or(|fate| fate == Fate::Tried);
        match self.kind {
            RefusalKind::Signature | RefusalKind::Bound if a_try_failed => {
                Some((RetryPlan::DropTried, RejectedBlocks::Tried))
            }
            RefusalKind::Signature if !self.named_stays && (self.named.is_some() || self.old) => {
                Some((RetryPlan::DropEarlierThinking, RejectedBlocks::Named))
            }
            // A block of the present turn is meant.
            RefusalKind::Signature => Some((RetryPlan::DropAllThinking, RejectedBlocks::All)),
            RefusalKind::Bound => {
                self.can_ask.then_some((RetryPlan::DropBound, RejectedBlocks::None))
            }
            RefusalKind::MissingThinking => {
                self.ours.then_some((RetryPlan::ThinkingOff, RejectedBlocks::None))
            }
            RefusalKind::Compaction => Some((RetryPlan::SummaryAsText, RejectedBlocks::None)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOTHING: RefusedRequest = RefusedRequest {
        kind: RefusalKind::Signature,
        named: None,
        named_stays: false,
        tried: false,
        old: false,
        can_ask: true,
        ours: true,
    };

    /// Covers: C-38
    #[test]
    fn refused_try_drops_all_tried_blocks_and_no_known_block() {
        for kind in [RefusalKind::Signature, RefusalKind::Bound] {
            for named in [None, Some(Fate::Tried)] {
                let refused = RefusedRequest { kind, named, tried: true, old: true, ..NOTHING };
                let expected = Some((RetryPlan::DropTried, RejectedBlocks::Tried));
                assert_eq!(refused.plan_retry(), expected);
            }
        }
    }

    #[test]
    fn refused_known_block_drops_all_earlier_thinking() {
        let (named, old) = (Some(Fate::Sent), true);
        for refused in [
            RefusedRequest { named, tried: true, ..NOTHING },
            RefusedRequest { named, ..NOTHING },
            RefusedRequest { old, ..NOTHING },
        ] {
            let expected = Some((RetryPlan::DropEarlierThinking, RejectedBlocks::Named));
            assert_eq!(refused.plan_retry(), expected);
        }
        let expected = Some((RetryPlan::DropAllThinking, RejectedBlocks::All));
        assert_eq!(NOTHING.plan_retry(), expected);
        let stays = RefusedRequest { named, old, named_stays: true, ..NOTHING };
        assert_eq!(stays.plan_retry(), expected);
    }

    #[test]
    fn adapted_settings_and_a_lost_reply_are_no_refusal_of_the_history() {
        for retry in [RetryPlan::First, RetryPlan::AdaptSettings, RetryPlan::WholeHistory] {
            assert!(!retry.follows_refused_history(), "{retry:?}");
        }
        assert!(RetryPlan::DropTried.follows_refused_history());
    }

    #[test]
    fn bound_or_missing_thinking_rejects_no_block() {
        for (kind, retry) in [
            (RefusalKind::Bound, RetryPlan::DropBound),
            (RefusalKind::MissingThinking, RetryPlan::ThinkingOff),
        ] {
            let refused = RefusedRequest { kind, old: true, ..NOTHING };
            assert_eq!(refused.plan_retry(), Some((retry, RejectedBlocks::None)));
            let hopeless = RefusedRequest { can_ask: false, ours: false, ..refused };
            assert_eq!(hopeless.plan_retry(), None);
        }
    }
}
