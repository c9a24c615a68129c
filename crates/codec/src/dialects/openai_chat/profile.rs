//! What the gateway has to know about the servers of this dialect. It follows from their rows.

use std::sync::LazyLock;

use super::variants::{self, CallSignature, Setting, VARIANTS, Variant};
use crate::dialects::profile::{
    BEARER, BlockRules, BudgetFor, EffortsFor, MessageOrder, Profile, Replay, Server, Shows,
    SwitchOn, ThinkingControls, ToolNames,
};
use crate::dialects::shared::tool_names::OPENAI_MAX_NAME;

pub(super) static PROFILES: LazyLock<Vec<Profile>> =
    LazyLock::new(|| VARIANTS.iter().map(profile_of).collect());

/// The profiles of servers that have named the member for reasoning.
static NAMED: LazyLock<Vec<(&'static str, Profile)>> = LazyLock::new(|| {
    variants::NAMED.iter().map(|(member, variant)| (*member, profile_of(variant))).collect()
});

/// The profile of the same server with this member for reasoning.
pub(super) fn with_member(profile: &'static Profile, member: &str) -> &'static Profile {
    let named = |(name, named): &&(&str, Profile)| *name == member && named.name == profile.name;
    NAMED.iter().find(named).map_or(profile, |(_, named)| named)
}

fn profile_of(variant: &'static Variant) -> Profile {
    let replay = replay(variant);
    let passes_blocks_on = variant.replay == variants::Replay::Blocks;
    Profile {
        name: variant.name,
        server: Server::Chat(variant),
        models_path: variant.models_path,
        key_header: BEARER,
        headers: &[],
        replay: match variant.call_signature {
            CallSignature::Nowhere => replay,
            CallSignature::ExtraContent | CallSignature::ProviderFields => {
                replay.with_signed_calls()
            }
        },
        thinking: thinking(variant),
        order: MessageOrder::ResultsAfterCalls,
        blocks: if passes_blocks_on { BlockRules::PassedOn } else { BlockRules::None },
        misses_earlier_thinking: variant.replay == variants::Replay::ReasoningContentAlways,
        // The same address serves the dialect of responses.
        keeps_responses: variant.official,
        signs_calls: variant.call_signature != CallSignature::Nowhere,
        tool_names: match variant.official {
            true => ToolNames::Plain { max: OPENAI_MAX_NAME },
            false => ToolNames::Any,
        },
        raw_text: variant.raw_text,
        thinking_tags: variant.thinking_tags,
        model_in_path: false,
        reasoning_dialect: variant.official.then_some("openai_responses"),
        cache_breakpoints: variant.cache_breakpoints,
        has_response_ids: false,
        for_unsigned: None,
    }
}

fn replay(variant: &Variant) -> Replay {
    match variant.replay {
        variants::Replay::Nothing => Replay::NOTHING,
        variants::Replay::ReasoningContent
        | variants::Replay::ReasoningContentAlways
        | variants::Replay::Reasoning
        | variants::Replay::BothMembers
        | variants::Replay::Chunks => Replay::FIELD,
        variants::Replay::Tags => Replay::PRESENT_TURN,
        variants::Replay::Details | variants::Replay::Blocks => Replay::SIGNED_BLOCKS,
    }
}

fn thinking(variant: &Variant) -> ThinkingControls {
    let controls = ThinkingControls {
        efforts: variant.efforts,
        shows: match variant.setting {
            // Reasoning is shown only in the newer dialect.
            _ if variant.official => Shows::Nothing,
            Setting::Object | Setting::Config => Shows::FullOrModel,
            _ => Shows::Full,
        },
        shares_limit: variant.setting == Setting::Config,
        passes_on: variant.setting == Setting::Blocks,
        ..ThinkingControls::OFF
    };
    let all = EffortsFor::AllButSwitches;
    match variant.setting {
        // A server in between knows what an effort is for a model that takes budgets.
        Setting::Effort => ThinkingControls { efforts_for: all, ..controls },
        // Models with efforts get one, all others are only switched on.
        Setting::Format => {
            ThinkingControls { on: SwitchOn::IfUngraded, writes_effort: true, ..controls }
        }
        Setting::Config => {
            ThinkingControls { on: SwitchOn::IfNotFixed, budget: BudgetFor::Budgeted, ..controls }
        }
        Setting::Switch | Setting::Template => {
            ThinkingControls { on: SwitchOn::IfNotFixed, ..controls }
        }
        Setting::Enable => ThinkingControls {
            on: SwitchOn::IfNotFixed,
            efforts: &[],
            budget: BudgetFor::Budgeted,
            ..controls
        },
        Setting::Object => ThinkingControls {
            on: SwitchOn::IfNotFixed,
            efforts_for: all,
            budget: BudgetFor::Budgeted,
            ..controls
        },
        Setting::Blocks => {
            ThinkingControls { efforts_for: all, budget: BudgetFor::Budgeted, ..controls }
        }
        Setting::Always => ThinkingControls { off: false, always: true, efforts: &[], ..controls },
    }
}
