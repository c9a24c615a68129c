//! Variants: the servers this dialect has, one row each, and which of them a request is for.

use std::fmt;

use http::HeaderMap;

use super::DIALECT;
use super::openrouter;
use crate::dialect::Dialect;
use crate::openai;
use crate::refusal::Refusal;

/// A server that the chat dialect can pretend to be.
pub struct Variant {
    pub(crate) name: &'static str,
    /// OpenAI's own rules hold: unknown parameters and unfit models are refused.
    pub(crate) official: bool,
    /// Where a reply has its reasoning.
    pub(crate) shows: Shows,
    /// What becomes of reasoning that comes back.
    pub(crate) back: Back,
    /// How thinking is switched; the first that says something decides.
    pub(crate) switches: &'static [Switch],
    /// Whether it thinks when nobody says anything; OpenAI's models have their own rules.
    pub(crate) thinks: bool,
    /// The values of `reasoning_effort`.
    pub(crate) efforts: &'static [&'static str],
    /// How tool calls are signed.
    pub(crate) signs_calls: SignsCalls,
    /// The prompt's template reads the arguments of earlier calls, so they must be JSON.
    pub(crate) reads_arguments: bool,
    /// Ids of calls have nine letters and digits.
    pub(crate) nine_letters: bool,
    /// `completion_tokens` is without the reasoning, only `total_tokens` has it.
    pub(crate) counts_apart: bool,
    /// The last chunk counts, whether it was asked to or not.
    pub(crate) counts_unasked: bool,
    /// A delta of reasoning has an empty content beside it.
    pub(crate) empty_content: bool,
    /// A call comes in one delta.
    pub(crate) whole_calls: bool,
    /// Reasoning is counted apart from the rest of the output.
    pub(crate) counts_thinking: bool,
    /// How the end of a reply with calls is named.
    pub(crate) called: &'static str,
    /// Whose envelope refusals come in.
    pub(crate) dialect: &'static Dialect,
}

/// Where a reply has its reasoning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shows {
    /// It is only counted.
    Nowhere,
    /// In a string beside the content.
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

/// What becomes of reasoning that comes back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Back {
    /// There is no such member, and no such chunk.
    Unknown,
    /// There is no such member; the content may have it.
    InContent,
    /// It may come and may be left out.
    Free,
    /// Every assistant message must have it while the model thinks.
    Required,
    /// No message may have it.
    Forbidden,
    /// `reasoning_details` are verified.
    Details,
    /// `thinking_blocks` are verified.
    Blocks,
}

/// A setting of thinking.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Switch {
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
pub(crate) enum SignsCalls {
    Never,
    /// In `extra_content.google.thought_signature`.
    ExtraContent,
    /// In `provider_specific_fields.thought_signature` and the id, for Gemini models.
    ProviderFields,
}

use Switch::{Effort, Enable, Object, PromptMode, Template, Thinking};

/// Every effort there is.
pub(crate) const EFFORTS: &[&str] = &["none", "minimal", "low", "medium", "high", "xhigh", "max"];

const OPENAI: Variant = Variant {
    name: "openai",
    official: true,
    shows: Shows::Nowhere,
    back: Back::Unknown,
    switches: &[Effort],
    thinks: false,
    efforts: EFFORTS,
    signs_calls: SignsCalls::Never,
    reads_arguments: false,
    nine_letters: false,
    counts_apart: false,
    counts_unasked: false,
    empty_content: false,
    whole_calls: false,
    counts_thinking: true,
    called: "tool_calls",
    dialect: &DIALECT,
};

/// What most servers besides OpenAI's have in common.
const COMPATIBLE: Variant = Variant {
    official: false,
    shows: Shows::Field("reasoning_content"),
    back: Back::Free,
    thinks: true,
    reads_arguments: true,
    ..OPENAI
};

/// Servers people run themselves.
const SELF_HOSTED: Variant = Variant { switches: &[Template, Effort], ..COMPATIBLE };

/// The rows.
static VARIANTS: &[Variant] = &[
    OPENAI,
    Variant {
        name: "deepseek-v4",
        back: Back::Required,
        switches: &[Thinking, Effort],
        // Their own three, and the two they read as one of these.
        efforts: &["low", "medium", "high", "xhigh", "max"],
        ..COMPATIBLE
    },
    Variant { name: "deepseek-r1", back: Back::Forbidden, switches: &[], ..COMPATIBLE },
    Variant { name: "think-tags", shows: Shows::Tags, back: Back::InContent, ..SELF_HOSTED },
    Variant { name: "reasoning-field", shows: Shows::Field("reasoning"), ..SELF_HOSTED },
    Variant { name: "vllm", shows: Shows::Field("reasoning"), ..SELF_HOSTED },
    Variant { name: "sglang", ..SELF_HOSTED },
    Variant { name: "llamacpp", ..SELF_HOSTED },
    Variant {
        name: "ollama",
        shows: Shows::Field("reasoning"),
        switches: &[Effort],
        efforts: &["none", "minimal", "low", "medium", "high", "xhigh", "ultra", "max"],
        empty_content: true,
        whole_calls: true,
        counts_thinking: false,
        ..COMPATIBLE
    },
    Variant { name: "qwen", switches: &[Enable, Template], ..COMPATIBLE },
    Variant {
        name: "glm",
        switches: &[Thinking, Effort],
        efforts: &["low", "medium", "high", "max"],
        ..COMPATIBLE
    },
    Variant {
        name: "mistral",
        shows: Shows::Chunks,
        back: Back::InContent,
        switches: &[Effort, PromptMode],
        nine_letters: true,
        counts_unasked: true,
        ..COMPATIBLE
    },
    Variant {
        name: "openrouter",
        shows: Shows::Details,
        back: Back::Details,
        switches: &[Object, Effort],
        dialect: &openrouter::DIALECT,
        ..COMPATIBLE
    },
    Variant {
        name: "litellm",
        shows: Shows::Blocks,
        back: Back::Blocks,
        switches: &[Thinking, Effort],
        thinks: false,
        signs_calls: SignsCalls::ProviderFields,
        ..COMPATIBLE
    },
    Variant {
        name: "google",
        shows: Shows::Nowhere,
        signs_calls: SignsCalls::ExtraContent,
        counts_apart: true,
        called: "stop",
        ..COMPATIBLE
    },
    Variant { name: "xai", counts_apart: true, ..COMPATIBLE },
    Variant {
        name: "groq",
        shows: Shows::Field("reasoning"),
        efforts: &["none", "default", "low", "medium", "high"],
        ..COMPATIBLE
    },
];

/// A variant that does not exist.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no variant is called `{0}`; there are {names}", names = names())]
pub struct UnknownVariant(String);

fn names() -> String {
    let names: Vec<&str> = VARIANTS.iter().map(|variant| variant.name).collect();
    names.join(", ")
}

impl Variant {
    /// Finds a variant.
    ///
    /// # Errors
    /// When none is called so; the error names those there are.
    pub fn named(name: &str) -> Result<&'static Self, UnknownVariant> {
        let name = name.trim();
        let found = VARIANTS.iter().find(|variant| variant.name == name);
        found.ok_or_else(|| UnknownVariant(name.to_owned()))
    }

    /// What it is called.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// The one a request is for: the header's, the simulator's, or the model's.
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
        // Resellers write the maker before the name.
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
    fn a_models_name_tells_its_server() {
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

    #[test]
    fn a_header_wins_over_the_option_and_that_over_the_model() {
        let qwen = Variant::named("qwen").unwrap();
        let mut headers = HeaderMap::new();
        assert_eq!(Variant::of(&headers, Some(qwen), "o3").unwrap().name, "qwen");
        headers.insert("x-simulator-variant", " glm ".parse().unwrap());
        assert_eq!(Variant::of(&headers, Some(qwen), "o3").unwrap().name, "glm");
        headers.insert("x-simulator-variant", "klingon".parse().unwrap());
        let refusal = Variant::of(&headers, None, "o3").unwrap_err();
        assert!(refusal.message.starts_with("x-simulator-variant: no variant is called `klingon`"));
    }
}
