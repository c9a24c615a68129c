//! Variants: the servers this dialect can imitate, one row each, and the choice of a variant for a
//! request.

use std::fmt;

use http::HeaderMap;

use super::DIALECT;
use super::openrouter;
use crate::dialect::Dialect;
use crate::openai;
use crate::refusal::Refusal;

/// A server that the chat dialect can imitate. Many fields: each one is a column of the table.
pub struct Variant {
    pub(crate) name: &'static str,
    /// OpenAI's own rules hold: unknown parameters are refused, and models have their own limits.
    pub(crate) official: bool,
    /// Where a reply puts its reasoning.
    pub(crate) reasoning_output: ReasoningOutput,
    /// What the server does with reasoning that a client sends back.
    pub(crate) reasoning_input: ReasoningInput,
    /// The settings that switch thinking; the first one that is set decides.
    pub(crate) switches: &'static [ThinkingSwitch],
    /// Whether it thinks by default; OpenAI's models have their own rules.
    pub(crate) thinks_by_default: bool,
    /// The values of `reasoning_effort`.
    pub(crate) efforts: &'static [&'static str],
    /// How tool calls are signed.
    pub(crate) call_signing: CallSigning,
    /// The prompt's template reads the arguments of earlier calls, so they must be JSON.
    pub(crate) needs_json_arguments: bool,
    /// The answer can be JSON, but no schema of it can be given.
    pub(crate) refuses_schemas: bool,
    /// Ids of calls have nine letters and digits.
    pub(crate) nine_character_ids: bool,
    /// `completion_tokens` does not include reasoning; only `total_tokens` does.
    pub(crate) reasoning_outside_completion: bool,
    /// The last chunk includes the usage even if the request does not ask for it.
    pub(crate) always_sends_usage: bool,
    /// A reasoning delta also has an empty `content`.
    pub(crate) sends_empty_content: bool,
    /// A call is sent in one delta.
    pub(crate) sends_whole_calls: bool,
    /// The usage reports reasoning tokens separately.
    pub(crate) reports_reasoning_tokens: bool,
    /// The tokens of the reasoning have probabilities, too.
    pub(crate) logprobs_of_reasoning: bool,
    /// The finish reason of a reply with calls.
    pub(crate) calls_finish_reason: &'static str,
    /// The dialect row with the error body of its refusals.
    pub(crate) dialect: &'static Dialect,
}

/// Where a reply puts its reasoning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReasoningOutput {
    /// It is only counted.
    Nowhere,
    /// In a string member next to the content.
    Field(&'static str),
    /// In `reasoning`, and signed in `reasoning_details`.
    Details,
    /// In `reasoning_content`, and signed in `thinking_blocks`.
    Blocks,
    /// In chunks of the content.
    Chunks,
    /// Between `<think>` and `</think>` in the content.
    Tags,
    /// Between `<thought>` and `</thought>` in the content, marked in `extra_content`.
    Thoughts,
}

/// What the server does with reasoning that a client sends back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReasoningInput {
    /// No member and no content part for it exists.
    Unknown,
    /// No member for it exists, but it may be part of the content.
    InContent,
    /// It may be sent back or left out.
    Optional,
    /// Every assistant message needs it while the model thinks.
    Required,
    /// No message may have it.
    Forbidden,
    /// `reasoning_details` are verified.
    Details,
    /// `thinking_blocks` are verified.
    Blocks,
}

/// A setting that switches thinking.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ThinkingSwitch {
    /// `reasoning_effort`
    Effort,
    /// `thinking: {type}`
    Thinking,
    /// `enable_thinking`, `thinking_budget`, `preserve_thinking`
    Enable,
    /// `chat_template_kwargs: {enable_thinking}`
    Template,
    /// `reasoning: {effort, max_tokens, enabled, exclude}`
    Object,
    /// `prompt_mode`
    PromptMode,
}

/// How tool calls are signed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CallSigning {
    Never,
    /// In `extra_content.google.thought_signature`.
    ExtraContent,
    /// In `provider_specific_fields.thought_signature` and the id, for Gemini models.
    ProviderFields,
}

use ThinkingSwitch::{Effort, Enable, Object, PromptMode, Template, Thinking};

/// All efforts.
pub(crate) const EFFORTS: &[&str] = &["none", "minimal", "low", "medium", "high", "xhigh", "max"];

const OPENAI: Variant = Variant {
    name: "openai",
    official: true,
    reasoning_output: ReasoningOutput::Nowhere,
    reasoning_input: ReasoningInput::Unknown,
    switches: &[Effort],
    thinks_by_default: false,
    efforts: EFFORTS,
    call_signing: CallSigning::Never,
    needs_json_arguments: false,
    refuses_schemas: false,
    nine_character_ids: false,
    reasoning_outside_completion: false,
    always_sends_usage: false,
    sends_empty_content: false,
    sends_whole_calls: false,
    reports_reasoning_tokens: true,
    logprobs_of_reasoning: false,
    calls_finish_reason: "tool_calls",
    dialect: &DIALECT,
};

/// The defaults of servers other than OpenAI's.
const COMPATIBLE: Variant = Variant {
    official: false,
    reasoning_output: ReasoningOutput::Field("reasoning_content"),
    reasoning_input: ReasoningInput::Optional,
    thinks_by_default: true,
    needs_json_arguments: true,
    ..OPENAI
};

/// Self-hosted servers.
const SELF_HOSTED: Variant = Variant { switches: &[Template, Effort], ..COMPATIBLE };

/// The rows.
static VARIANTS: &[Variant] = &[
    OPENAI,
    Variant {
        name: "deepseek-v4",
        reasoning_input: ReasoningInput::Required,
        refuses_schemas: true,
        switches: &[Thinking, Effort],
        // Their own three, and two aliases.
        efforts: &["low", "medium", "high", "xhigh", "max"],
        logprobs_of_reasoning: true,
        ..COMPATIBLE
    },
    Variant {
        name: "deepseek-r1",
        reasoning_input: ReasoningInput::Forbidden,
        refuses_schemas: true,
        switches: &[],
        logprobs_of_reasoning: true,
        ..COMPATIBLE
    },
    Variant {
        name: "think-tags",
        reasoning_output: ReasoningOutput::Tags,
        reasoning_input: ReasoningInput::InContent,
        ..SELF_HOSTED
    },
    Variant {
        name: "reasoning-field",
        reasoning_output: ReasoningOutput::Field("reasoning"),
        ..SELF_HOSTED
    },
    Variant { name: "vllm", reasoning_output: ReasoningOutput::Field("reasoning"), ..SELF_HOSTED },
    Variant { name: "sglang", ..SELF_HOSTED },
    Variant { name: "llamacpp", ..SELF_HOSTED },
    Variant {
        name: "ollama",
        reasoning_output: ReasoningOutput::Field("reasoning"),
        switches: &[Effort],
        efforts: &["none", "minimal", "low", "medium", "high", "xhigh", "ultra", "max"],
        sends_empty_content: true,
        sends_whole_calls: true,
        reports_reasoning_tokens: false,
        ..COMPATIBLE
    },
    Variant { name: "qwen", switches: &[Enable, Template], ..COMPATIBLE },
    Variant {
        name: "glm",
        refuses_schemas: true,
        switches: &[Thinking, Effort],
        efforts: &["low", "medium", "high", "max"],
        ..COMPATIBLE
    },
    Variant {
        name: "mistral",
        reasoning_output: ReasoningOutput::Chunks,
        reasoning_input: ReasoningInput::InContent,
        switches: &[Effort, PromptMode],
        nine_character_ids: true,
        always_sends_usage: true,
        ..COMPATIBLE
    },
    Variant {
        name: "openrouter",
        reasoning_output: ReasoningOutput::Details,
        reasoning_input: ReasoningInput::Details,
        switches: &[Object, Effort],
        dialect: &openrouter::DIALECT,
        ..COMPATIBLE
    },
    Variant {
        name: "litellm",
        reasoning_output: ReasoningOutput::Blocks,
        reasoning_input: ReasoningInput::Blocks,
        switches: &[Thinking, Effort],
        thinks_by_default: false,
        call_signing: CallSigning::ProviderFields,
        ..COMPATIBLE
    },
    Variant {
        name: "google",
        reasoning_output: ReasoningOutput::Nowhere,
        call_signing: CallSigning::ExtraContent,
        reasoning_outside_completion: true,
        calls_finish_reason: "stop",
        ..COMPATIBLE
    },
    Variant { name: "xai", reasoning_outside_completion: true, ..COMPATIBLE },
    Variant {
        name: "groq",
        reasoning_output: ReasoningOutput::Field("reasoning"),
        efforts: &["none", "default", "low", "medium", "high"],
        ..COMPATIBLE
    },
];

/// The error for an unknown variant name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unknown variant `{0}`; use one of {names}", names = names())]
pub struct UnknownVariant(String);

fn names() -> String {
    let names: Vec<&str> = VARIANTS.iter().map(|variant| variant.name).collect();
    names.join(", ")
}

impl Variant {
    /// Finds a variant.
    ///
    /// # Errors
    /// If the name is unknown; the error lists the known names.
    pub fn named(name: &str) -> Result<&'static Self, UnknownVariant> {
        let name = name.trim();
        let found = VARIANTS.iter().find(|variant| variant.name == name);
        found.ok_or_else(|| UnknownVariant(name.to_owned()))
    }

    /// The name, as in options and headers.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// The variant of a request: from the header, else the options, else the model name.
    pub(crate) fn of(
        headers: &HeaderMap,
        usual: Option<&'static Self>,
        model: &str,
    ) -> Result<&'static Self, Refusal> {
        const HEADER: &str = "x-simulator-variant";
        match headers.get(HEADER) {
            Some(name) => {
                let name = String::from_utf8_lossy(name.as_bytes());
                Self::named(&name)
                    .map_err(|error| openai::refused(HEADER, None, format!("{HEADER}: {error}")))
            }
            None => Ok(usual.unwrap_or_else(|| Self::of_model(model))),
        }
    }

    fn of_model(model: &str) -> &'static Self {
        let model = model.to_lowercase();
        // Resellers put the vendor before the name.
        let name = model.rsplit('/').next().unwrap_or_default();
        let starts = |starts: &[&str]| starts.iter().any(|start| name.starts_with(start));
        let numbered = name
            .strip_prefix('o')
            .is_some_and(|rest| rest.starts_with(|letter: char| letter.is_ascii_digit()));
        let found = if name.contains("think-tags") {
            "think-tags"
        } else if starts(&["deepseek-v4", "deepseek-flash", "deepseek-pro"]) {
            "deepseek-v4"
        } else if starts(&["deepseek-reasoner", "deepseek-r1"]) {
            "deepseek-r1"
        } else if numbered || starts(&["gpt-"]) && !starts(&["gpt-oss"]) {
            "openai"
        } else {
            "reasoning-field"
        };
        Self::named(found).unwrap_or(&VARIANTS[0])
    }
}

impl fmt::Debug for Variant {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn model_name_selects_the_variant() {
        for (model, variant) in [
            ("gpt-6-luna", "openai"),
            ("openai/gpt-5.6-luna", "openai"),
            ("o3-mini", "openai"),
            ("o4", "openai"),
            ("olmo-3", "reasoning-field"),
            ("gpt-oss-120b", "reasoning-field"),
            ("deepseek-v4-pro", "deepseek-v4"),
            ("deepseek-flash", "deepseek-v4"),
            ("DeepSeek-Pro-2", "deepseek-v4"),
            ("deepseek-reasoner", "deepseek-r1"),
            ("deepseek-ai/DeepSeek-R1", "deepseek-r1"),
            ("deepseek-r1-think-tags", "think-tags"),
            ("claude-sonnet-5", "reasoning-field"),
            ("", "reasoning-field"),
        ] {
            assert_eq!(Variant::of_model(model).name, variant, "{model}");
        }
    }
}
