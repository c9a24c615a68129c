//! The differences between servers of this dialect: one row each.

use std::sync::LazyLock;

use throughline_canonical::Effort;

use crate::dialects::profile::{BreakpointRules, Models, Profile, Server};

use Effort::{High, Low, Max, Medium, Minimal};

/// One kind of server. Many fields: each one is a column of the table.
#[derive(Clone, Copy, Debug)]
pub struct Variant {
    /// Its name in the configuration.
    pub name: &'static str,
    /// The path, relative to the base address.
    pub path: &'static str,
    /// The path of the model list.
    pub models_path: &'static str,
    /// The role of system messages.
    pub system_role: &'static str,
    /// It accepts one system message only, at the start.
    pub joins_system: bool,
    /// The member that limits the output.
    pub limit: &'static str,
    /// The member for the seed.
    pub seed: &'static str,
    /// How thinking is sent back.
    pub replay: Replay,
    /// It rejects messages with reasoning next to their content.
    pub refuses_reasoning: bool,
    /// How the thinking setting is written.
    pub setting: Setting,
    /// The effort levels it accepts.
    pub efforts: &'static [Effort],
    /// The effort for "on" if there is no other way to say it.
    pub usual: Effort,
    /// The members it accepts; `None` if it ignores or passes on unknown ones.
    pub members: Option<&'static [&'static str]>,
    /// It accepts refusals and choices among some tools, which only OpenAI's own models have.
    pub official: bool,
    /// It accepts a JSON Schema for the answer.
    pub schemas: bool,
    /// It accepts text in several parts.
    pub text_parts: bool,
    /// It accepts video.
    pub video: bool,
    /// It parses the arguments of earlier calls and rejects malformed JSON.
    pub parses_arguments: bool,
    /// Tools must have a parameter schema.
    pub needs_parameters: bool,
    /// Call ids must have nine letters and digits.
    pub nine_letters: bool,
    /// It counts thinking tokens separately from the output.
    pub counts_thinking_apart: bool,
    /// Its text may be raw model output, with reasoning and calls inside.
    pub raw_text: bool,
    /// Maximum number of stop sequences.
    pub stops: usize,
    /// It honours the tool choice.
    pub chooses_tools: bool,
    /// Where the signature of a call goes.
    pub call_signature: CallSignature,
    /// The tag that encloses thinking in the text, if thinking was requested.
    pub thinking_tags: Option<&'static str>,
    /// The breakpoints of the prompt cache.
    pub cache_breakpoints: BreakpointRules,
}

/// How thinking is sent back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Replay {
    /// Not at all.
    Nothing,
    /// As `reasoning_content`.
    ReasoningContent,
    /// As `reasoning_content` in every assistant message while it thinks; empty if unknown.
    ReasoningContentAlways,
    /// As `reasoning`.
    Reasoning,
    /// As `reasoning` and as `reasoning_content`: servers ignore the one that they do not know.
    BothMembers,
    /// As `reasoning_details`.
    Details,
    /// As chunks of the content.
    Chunks,
    /// As `<think>` in the text.
    Tags,
    /// As `thinking_blocks`.
    Blocks,
}

impl Replay {
    /// The members of a message that hold reasoning as a string.
    pub(super) fn members(self) -> &'static [&'static str] {
        match self {
            Self::ReasoningContent | Self::ReasoningContentAlways | Self::Blocks => &MEMBERS[..1],
            Self::Reasoning | Self::Details => &MEMBERS[1..],
            Self::BothMembers => &MEMBERS,
            Self::Nothing | Self::Tags | Self::Chunks => &[],
        }
    }

    /// The same as plain text in this member, if servers of this row differ only in its name.
    fn in_member(self, member: &str) -> Option<Self> {
        let is_plain = matches!(self, Self::ReasoningContent | Self::Reasoning | Self::BothMembers);
        match member {
            REASONING_CONTENT if is_plain => Some(Self::ReasoningContent),
            REASONING if is_plain => Some(Self::Reasoning),
            _ => None,
        }
    }
}

/// The names of the member for reasoning.
const MEMBERS: [&str; 2] = [REASONING_CONTENT, REASONING];
pub(super) const REASONING_CONTENT: &str = "reasoning_content";
pub(super) const REASONING: &str = "reasoning";

/// How the thinking setting is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Setting {
    /// `reasoning_effort`
    Effort,
    /// `thinking: {type}` and `reasoning_effort`
    Switch,
    /// `enable_thinking` and `thinking_budget`
    Enable,
    /// `chat_template_kwargs: {enable_thinking}` and `reasoning_effort`
    Template,
    /// `reasoning: {effort, max_tokens, enabled, exclude, summary}`
    Object,
    /// `reasoning_effort`, or `thinking: {type, budget_tokens}`
    Blocks,
    /// `reasoning_effort`, which is only on or off for some models, and `reasoning_format`
    Format,
    /// `reasoning_effort`, or `extra_body.google.thinking_config` where thoughts are to be shown
    Config,
    /// Not at all: the model always thinks.
    Always,
}

/// Where the signature of a call goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallSignature {
    /// Nowhere.
    Nowhere,
    /// `extra_content.google.thought_signature`
    ExtraContent,
    /// `provider_specific_fields.thought_signature`
    ProviderFields,
}

/// Finds a variant by its name.
#[cfg(test)]
pub(super) fn find(name: &str) -> &'static Variant {
    use crate::dialects::UpstreamDialect;
    super::OpenAiChat.profile(name).chat()
}

/// Members that all servers of this dialect accept.
const COMMON: &[&str] = &[
    "model",
    "messages",
    "stream",
    "temperature",
    "top_p",
    "stop",
    "tools",
    "tool_choice",
    "response_format",
];

const OPENAI_MEMBERS: &[&str] = &[
    "audio",
    "frequency_penalty",
    "logit_bias",
    "logprobs",
    "max_completion_tokens",
    "metadata",
    "modalities",
    "moderation",
    "parallel_tool_calls",
    "prediction",
    "presence_penalty",
    "prompt_cache_key",
    "prompt_cache_options",
    "prompt_cache_retention",
    "reasoning_effort",
    "safety_identifier",
    "seed",
    "service_tier",
    "store",
    "stream_options",
    "top_logprobs",
    "user",
    "verbosity",
    "web_search_options",
];

const DEEPSEEK_MEMBERS: &[&str] = &[
    "frequency_penalty",
    "logprobs",
    "max_tokens",
    "presence_penalty",
    "reasoning_effort",
    "stream_options",
    "thinking",
    "top_logprobs",
];

const GLM_MEMBERS: &[&str] = &[
    "do_sample",
    "max_tokens",
    "reasoning_effort",
    "request_id",
    "stream_options",
    "thinking",
    "tool_stream",
    "user_id",
];

const MISTRAL_MEMBERS: &[&str] = &[
    "frequency_penalty",
    "guardrails",
    "max_tokens",
    "metadata",
    "parallel_tool_calls",
    "prediction",
    "presence_penalty",
    "prompt_mode",
    "random_seed",
    "reasoning_effort",
    "safe_prompt",
];

const XAI_MEMBERS: &[&str] = &[
    "deferred",
    "frequency_penalty",
    "logprobs",
    "max_completion_tokens",
    "parallel_tool_calls",
    "presence_penalty",
    "reasoning_effort",
    "search_parameters",
    "seed",
    "stream_options",
    "top_logprobs",
    "user",
    "web_search_options",
];

const GROQ_MEMBERS: &[&str] = &[
    "compound_custom",
    "disable_tool_validation",
    "documents",
    "frequency_penalty",
    "include_reasoning",
    "max_completion_tokens",
    "metadata",
    "parallel_tool_calls",
    "presence_penalty",
    "reasoning_effort",
    "reasoning_format",
    "search_settings",
    "seed",
    "service_tier",
    "stream_options",
    "user",
];

const OLLAMA_MEMBERS: &[&str] = &[
    "frequency_penalty",
    "logprobs",
    "max_tokens",
    "presence_penalty",
    "reasoning_effort",
    "seed",
    "stream_options",
    "top_logprobs",
];

const GOOGLE_MEMBERS: &[&str] = &[
    "extra_body",
    "frequency_penalty",
    "logprobs",
    "max_tokens",
    "modalities",
    "parallel_tool_calls",
    "presence_penalty",
    "reasoning_effort",
    "seed",
    "stream_options",
    "top_logprobs",
    "user",
];

/// Finds a member that some kind of server accepts.
pub(super) fn known_member(name: &str) -> Option<&'static str> {
    let lists = VARIANTS.iter().filter_map(|variant| variant.members);
    lists.flatten().copied().find(|known| *known == name)
}

impl Profile {
    /// The row of a profile of this dialect.
    pub(super) fn chat(&self) -> &'static Variant {
        match self.server {
            Server::Chat(variant) => variant,
            _ => &VARIANTS[0],
        }
    }
}

/// The rows whose servers have named the member for reasoning, each with that name.
pub(super) static NAMED: LazyLock<Vec<(&'static str, Variant)>> = LazyLock::new(|| {
    let named = |member: &'static str| {
        VARIANTS.iter().filter_map(move |variant| {
            let replay = variant.replay.in_member(member)?;
            Some((member, Variant { replay, ..*variant }))
        })
    };
    MEMBERS.into_iter().flat_map(named).collect()
});

impl Variant {
    /// Whether a member may be sent.
    pub fn takes(&self, member: &str) -> bool {
        self.members.is_none_or(|members| members.contains(&member) || COMMON.contains(&member))
    }
}

const OPENAI: Variant = Variant {
    name: "openai",
    path: "/v1/chat/completions",
    models_path: "/v1/models",
    system_role: "developer",
    joins_system: false,
    limit: "max_completion_tokens",
    seed: "seed",
    replay: Replay::Nothing,
    refuses_reasoning: true,
    setting: Setting::Effort,
    efforts: &Effort::ALL,
    usual: Medium,
    members: Some(OPENAI_MEMBERS),
    official: true,
    schemas: true,
    text_parts: true,
    video: false,
    parses_arguments: false,
    needs_parameters: false,
    nine_letters: false,
    counts_thinking_apart: false,
    raw_text: false,
    stops: 4,
    chooses_tools: true,
    call_signature: CallSignature::Nowhere,
    thinking_tags: None,
    cache_breakpoints: BreakpointRules::OPENAI,
};

/// Common to most servers other than OpenAI's.
const COMPATIBLE: Variant = Variant {
    system_role: "system",
    limit: "max_tokens",
    refuses_reasoning: false,
    members: None,
    official: false,
    parses_arguments: true,
    needs_parameters: true,
    stops: usize::MAX,
    cache_breakpoints: BreakpointRules::NONE,
    ..OPENAI
};

/// Servers in front of several providers. One of these caches up to breakpoints only.
const PASSED_BREAKPOINTS: BreakpointRules = BreakpointRules {
    taken_by: Models::All,
    needed_by: Models::Named(&["claude", "anthropic"]),
    ..BreakpointRules::NONE
};

/// Self-hosted servers: the template of the model decides what is supported.
const SELF_HOSTED: Variant = Variant {
    joins_system: true,
    setting: Setting::Template,
    replay: Replay::ReasoningContent,
    video: true,
    raw_text: true,
    ..COMPATIBLE
};

const DEEPSEEK: Variant = Variant {
    efforts: &[Low, High, Max],
    members: Some(DEEPSEEK_MEMBERS),
    schemas: false,
    text_parts: false,
    stops: 16,
    ..COMPATIBLE
};

/// The table of variants.
pub static VARIANTS: &[Variant] = &[
    OPENAI,
    // An unknown server.
    Variant { name: "compatible", replay: Replay::BothMembers, ..COMPATIBLE },
    Variant { name: "deepseek-r1", refuses_reasoning: true, setting: Setting::Always, ..DEEPSEEK },
    Variant {
        name: "deepseek-v4",
        replay: Replay::ReasoningContentAlways,
        setting: Setting::Switch,
        ..DEEPSEEK
    },
    // Also an unknown server in a private network. Older versions have the other name.
    Variant { name: "vllm", replay: Replay::BothMembers, ..SELF_HOSTED },
    Variant { name: "sglang", ..SELF_HOSTED },
    Variant { name: "llamacpp", ..SELF_HOSTED },
    Variant {
        name: "ollama",
        replay: Replay::Reasoning,
        efforts: &[Low, Medium, High, Max],
        members: Some(OLLAMA_MEMBERS),
        text_parts: false,
        raw_text: true,
        chooses_tools: false,
        ..COMPATIBLE
    },
    Variant { name: "think-tags", replay: Replay::Tags, ..SELF_HOSTED },
    Variant {
        name: "qwen",
        replay: Replay::ReasoningContent,
        setting: Setting::Enable,
        video: true,
        ..COMPATIBLE
    },
    Variant {
        name: "glm",
        path: "/v4/chat/completions",
        models_path: "/v4/models",
        replay: Replay::ReasoningContent,
        setting: Setting::Switch,
        efforts: &[Low, Medium, High, Max],
        members: Some(GLM_MEMBERS),
        schemas: false,
        video: true,
        ..COMPATIBLE
    },
    Variant {
        name: "mistral",
        joins_system: true,
        seed: "random_seed",
        replay: Replay::Chunks,
        refuses_reasoning: true,
        nine_letters: true,
        usual: High,
        members: Some(MISTRAL_MEMBERS),
        ..COMPATIBLE
    },
    Variant {
        name: "openrouter",
        replay: Replay::Details,
        setting: Setting::Object,
        video: true,
        cache_breakpoints: PASSED_BREAKPOINTS,
        ..COMPATIBLE
    },
    Variant {
        name: "xai",
        limit: "max_completion_tokens",
        members: Some(XAI_MEMBERS),
        counts_thinking_apart: true,
        ..COMPATIBLE
    },
    Variant {
        name: "groq",
        limit: "max_completion_tokens",
        replay: Replay::Reasoning,
        setting: Setting::Format,
        efforts: &[Low, Medium, High],
        members: Some(GROQ_MEMBERS),
        text_parts: false,
        raw_text: true,
        stops: 4,
        ..COMPATIBLE
    },
    Variant {
        name: "litellm",
        replay: Replay::Blocks,
        setting: Setting::Blocks,
        call_signature: CallSignature::ProviderFields,
        cache_breakpoints: BreakpointRules { tools: true, ..PASSED_BREAKPOINTS },
        ..COMPATIBLE
    },
    Variant {
        name: "google",
        path: "/v1beta/openai/chat/completions",
        models_path: "/v1beta/openai/models",
        efforts: &[Minimal, Low, Medium, High],
        setting: Setting::Config,
        members: Some(GOOGLE_MEMBERS),
        counts_thinking_apart: true,
        call_signature: CallSignature::ExtraContent,
        thinking_tags: Some("thought"),
        ..COMPATIBLE
    },
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_configured_name_has_a_row() {
        for name in [
            "openai",
            "deepseek-r1",
            "deepseek-v4",
            "vllm",
            "sglang",
            "llamacpp",
            "ollama",
            "qwen",
            "glm",
            "mistral",
            "openrouter",
            "xai",
            "groq",
            "litellm",
            "google",
        ] {
            assert_eq!(find(name).name, name);
        }
        assert_eq!(find("").name, "openai");
        assert_eq!(find("who knows").name, "openai");
    }

    #[test]
    fn every_row_accepts_the_members_it_writes() {
        for variant in VARIANTS {
            assert!(variant.takes(variant.limit), "{}", variant.name);
            let setting = match variant.setting {
                Setting::Effort | Setting::Template | Setting::Blocks | Setting::Format => {
                    "reasoning_effort"
                }
                Setting::Config => "extra_body",
                Setting::Switch => "thinking",
                Setting::Enable => "enable_thinking",
                Setting::Object => "reasoning",
                Setting::Always => "model",
            };
            assert!(variant.takes(setting), "{}", variant.name);
            assert!(!variant.efforts.is_empty(), "{}", variant.name);
        }
    }
}
