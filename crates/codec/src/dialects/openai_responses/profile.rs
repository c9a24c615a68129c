//! What the gateway has to know about this dialect.

use throughline_canonical::Effort;

use crate::dialects::profile::{
    BEARER, BlockRules, BreakpointRules, EffortsFor, MessageOrder, Profile, Replay, Server, Shows,
    ThinkingControls, ToolNames, Treatment,
};
use crate::dialects::shared::tool_names::OPENAI_MAX_NAME;

/// Any server of the dialect, and those that are known to keep responses.
pub(super) static PROFILES: [Profile; 2] =
    [PLAIN, Profile { name: "openai", keeps_responses: true, ..PLAIN }];

/// Reasoning items go back unchanged.
const PLAIN: Profile = Profile {
    name: "",
    server: Server::Plain,
    models_path: "/v1/models",
    key_header: BEARER,
    headers: &[],
    replay: Replay { text: Treatment::Verbatim, ..Replay::SIGNED_BLOCKS },
    thinking: ThinkingControls {
        efforts: &Effort::ALL,
        efforts_for: EffortsFor::AllButSwitches,
        shows: Shows::Summary,
        has_details: true,
        ..ThinkingControls::OFF
    },
    order: MessageOrder::Turns,
    blocks: BlockRules::None,
    misses_earlier_thinking: true,
    keeps_responses: false,
    signs_calls: false,
    tool_names: ToolNames::Plain { max: OPENAI_MAX_NAME },
    raw_text: false,
    thinking_tags: None,
    model_in_path: false,
    reasoning_dialect: None,
    cache_breakpoints: BreakpointRules::OPENAI,
    has_response_ids: true,
    for_unsigned: None,
};
