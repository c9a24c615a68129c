//! What the gateway has to know about this dialect.

use throughline_canonical::{Effort, ThinkingForm};

use super::{MAX_TOOL_NAME, VERSION_WITH_SAMPLING};
use crate::dialects::profile::{
    BlockRules, BreakpointRules, BudgetFor, MessageOrder, Models, Profile, Replay, Server, Shows,
    ThinkingControls, ToolNames,
};

/// The provider itself, and servers that accept thinking without a signature.
pub(super) static PROFILES: [Profile; 2] =
    [Profile { for_unsigned: Some(&UNSIGNED), ..PLAIN }, UNSIGNED];

const UNSIGNED: Profile = Profile { name: "unsigned", server: Server::Unsigned, ..PLAIN };

/// Signed blocks, and a thinking setting with modes and an effort.
const PLAIN: Profile = Profile {
    name: "",
    server: Server::Plain,
    models_path: "/v1/models",
    key_header: "x-api-key",
    headers: &[("anthropic-version", VERSION_WITH_SAMPLING)],
    replay: Replay::SIGNED_BLOCKS,
    thinking: ThinkingControls {
        between_tools: true,
        automatic: &[None, Some(ThinkingForm::Adaptive)],
        efforts: Effort::ALL.split_at(1).1,
        // Models of other makers that are only on or off take a budget here.
        budget: BudgetFor::BudgetedOrSwitches,
        modes: true,
        needs_max_tokens: true,
        min_budget: 1024,
        budget_below_limit: true,
        no_sampling_while_thinking: true,
        shows: Shows::SummaryOrModel,
        ..ThinkingControls::OFF
    },
    order: MessageOrder::Turns,
    blocks: BlockRules::Native,
    misses_earlier_thinking: false,
    keeps_responses: false,
    signs_calls: false,
    tool_names: ToolNames::Plain { max: MAX_TOOL_NAME },
    raw_text: false,
    thinking_tags: None,
    model_in_path: false,
    reasoning_dialect: None,
    has_response_ids: false,
    cache_breakpoints: BreakpointRules {
        taken_by: Models::All,
        needed_by: Models::All,
        tools: true,
        ..BreakpointRules::NONE
    },
    for_unsigned: None,
};
