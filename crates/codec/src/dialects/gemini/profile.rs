//! What the gateway has to know about this dialect.

use throughline_canonical::{Effort, ThinkingForm};

use super::MAX_TOOL_NAME;
use crate::dialects::profile::{
    BlockRules, BudgetFor, MessageOrder, Profile, Replay, Shows, ThinkingControls, ToolNames,
    Treatment,
};

/// Signatures on their own parts. The thoughts are summaries that the model never reads again.
pub(super) static PROFILE: Profile = Profile {
    replay: Replay { text: Treatment::Verbatim, ..Replay::NOTHING.with_signed_calls() },
    thinking: ThinkingControls {
        automatic: &[None, Some(ThinkingForm::Budget)],
        efforts: Effort::ALL.split_at(4).0,
        budget: BudgetFor::Budgeted,
        shares_limit: true,
        shows: Shows::Summary,
        ..ThinkingControls::OFF
    },
    order: MessageOrder::Turns,
    blocks: BlockRules::None,
    misses_earlier_thinking: false,
    signs_calls: true,
    tool_names: ToolNames::Dotted { max: MAX_TOOL_NAME },
    raw_text: false,
    thinking_tags: None,
    model_in_path: true,
    reasoning_dialect: None,
};
