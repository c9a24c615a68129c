//! What the gateway has to know about this dialect.

use throughline_canonical::{Effort, ThinkingForm};

use super::{MAX_TOOL_NAME, Variant};
use crate::dialects::profile::{
    BEARER, BlockRules, BreakpointRules, BudgetFor, MessageOrder, Profile, Replay, Server, Shows,
    ThinkingControls, ToolNames, Treatment,
};

/// Google's own API and Vertex, which has other paths. Some servers repeat the answer in every chunk.
pub(super) static PROFILES: [Profile; 4] = [
    PLAIN,
    Profile { name: "cumulative", server: server(false, true), ..PLAIN },
    VERTEX,
    Profile { name: "vertex cumulative", server: server(true, true), ..VERTEX },
];

const VERTEX: Profile = Profile {
    name: "vertex",
    server: server(true, false),
    models_path: "/publishers/google/models",
    key_header: BEARER,
    ..PLAIN
};

const fn server(vertex: bool, cumulative: bool) -> Server {
    Server::Gemini(Variant { vertex, cumulative })
}

/// Signatures on their own parts. The thoughts are summaries that the model never reads again.
const PLAIN: Profile = Profile {
    name: "",
    server: server(false, false),
    models_path: "/v1beta/models",
    key_header: "x-goog-api-key",
    headers: &[],
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
    keeps_responses: false,
    signs_calls: true,
    tool_names: ToolNames::Dotted { max: MAX_TOOL_NAME },
    raw_text: false,
    thinking_tags: None,
    model_in_path: true,
    reasoning_dialect: None,
    cache_breakpoints: BreakpointRules::NONE,
    has_response_ids: false,
    for_unsigned: None,
};
