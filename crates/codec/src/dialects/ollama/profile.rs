//! What the gateway has to know about this dialect.

use super::LEVELS;
use crate::dialects::profile::{
    BEARER, BlockRules, BreakpointRules, MessageOrder, Profile, Replay, Server, SwitchOn,
    ThinkingControls, ToolNames,
};

/// Thinking as text. The server's templates drop thinking of earlier turns by themselves.
pub(super) static PROFILES: [Profile; 1] = [Profile {
    name: "",
    server: Server::Plain,
    models_path: "/api/tags",
    key_header: BEARER,
    headers: &[],
    replay: Replay::PRESENT_TURN,
    thinking: ThinkingControls {
        on: SwitchOn::Always,
        efforts: &LEVELS,
        always_written: true,
        ..ThinkingControls::OFF
    },
    order: MessageOrder::ResultsAfterCalls,
    blocks: BlockRules::None,
    misses_earlier_thinking: false,
    keeps_responses: false,
    signs_calls: false,
    tool_names: ToolNames::Any,
    raw_text: true,
    thinking_tags: None,
    model_in_path: false,
    reasoning_dialect: None,
    cache_breakpoints: BreakpointRules::NONE,
    has_response_ids: false,
    for_unsigned: None,
}];
