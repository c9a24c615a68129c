//! Thinking modes: whether the model thinks, whether the client sees it, and which settings go
//! together.

use serde_json::Value;

use super::request::{ParsedRequest, list};
use super::shape::{self, ANTHROPIC_SWITCH};
use super::signatures;
use super::variants::{CallSigning, ReasoningOutput, ThinkingSwitch, Variant};
use crate::ollama;
use crate::openai::refused;
use crate::refusal::Refusal;
use crate::shape::Shape::{Boolean, Integer, Open, When, Word};
use crate::shape::{Checker, Shape, optional};

/// The thinking of one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ThinkingPlan {
    pub(crate) thinks: bool,
    pub(crate) reasoning_output: ReasoningOutput,
    /// Whether the client sees the reasoning.
    pub(crate) shown: bool,
}

impl ThinkingPlan {
    pub(crate) fn read(request: &ParsedRequest, variant: &Variant) -> Self {
        let switched = variant.switches.iter().find_map(|switch| switch_state(request, *switch));
        let default = match Rules::of(request.model()) {
            rules if variant.official => rules.thinks,
            _ => variant.thinks_by_default,
        };
        let never = variant.official && !Rules::of(request.model()).can_think;
        // This model cannot be switched off, it only thinks less.
        let always = variant.name == "glm" && request.model().to_lowercase().contains("glm-5.3");
        let hidden = request.get("reasoning")["exclude"] == Value::Bool(true)
            || request.get("include_reasoning") == &Value::Bool(false)
            || request.get("reasoning_format") == "hidden";
        let raw = variant.name == "llamacpp" && request.get("reasoning_format") == "none";
        let reasoning_output = match variant.reasoning_output {
            _ if raw => ReasoningOutput::Tags,
            _ if variant.name == "groq" && writes_raw(request) => ReasoningOutput::Tags,
            _ if config(request)["include_thoughts"] == Value::Bool(true) => {
                ReasoningOutput::Thoughts
            }
            // Only Claude has blocks; Gemini signs its calls instead.
            ReasoningOutput::Blocks
                if signatures::call_signing(variant, request.model()) != CallSigning::Never =>
            {
                ReasoningOutput::Field("reasoning_content")
            }
            reasoning_output => reasoning_output,
        };
        Self {
            thinks: always || switched.unwrap_or(default) && !never,
            reasoning_output,
            shown: !hidden,
        }
    }
}

/// Whether a setting switches thinking on or off; `None` if it is not set.
fn switch_state(request: &ParsedRequest, switch: ThinkingSwitch) -> Option<bool> {
    let effort = |value: &Value| value.as_str().map(|effort| effort != "none");
    match switch {
        ThinkingSwitch::Effort => effort(request.get("reasoning_effort")),
        ThinkingSwitch::Thinking => {
            let kind = request.get("thinking")["type"].as_str()?;
            Some(kind != "disabled")
        }
        ThinkingSwitch::Enable => request.get("enable_thinking").as_bool(),
        ThinkingSwitch::Template => {
            let arguments = request.get("chat_template_kwargs");
            let enable = arguments["enable_thinking"].as_bool();
            enable.or_else(|| arguments["thinking"].as_bool())
        }
        ThinkingSwitch::Object => {
            let reasoning = request.get("reasoning").as_object()?;
            let enabled = reasoning.get("enabled").and_then(Value::as_bool);
            enabled.or_else(|| reasoning.get("effort").and_then(effort))
        }
        ThinkingSwitch::PromptMode => (request.get("prompt_mode") == "reasoning").then_some(true),
    }
}

/// What this endpoint accepts for one of OpenAI's models.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Rules {
    can_think: bool,
    /// It thinks by default.
    thinks: bool,
    /// When tools are accepted.
    tools: Tools,
    /// Sampling settings are accepted while it thinks.
    sampling: bool,
    max_tokens: bool,
}

/// When one of OpenAI's models accepts tools here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Tools {
    Always,
    /// Not while it thinks.
    WithoutEffort,
    Never,
}

impl Rules {
    fn of(model: &str) -> Self {
        let model = model.to_lowercase();
        let name = model.rsplit('/').next().unwrap_or_default();
        let Some(rest) = name.strip_prefix("gpt-") else {
            let numbered = name.starts_with('o');
            return Self {
                can_think: numbered,
                thinks: numbered,
                tools: Tools::Always,
                sampling: true,
                max_tokens: !numbered,
            };
        };
        let version = rest.split('-').next().unwrap_or_default();
        let (major, minor) = version.split_once('.').unwrap_or((version, "0"));
        let version: (u32, u32) =
            (major.parse().unwrap_or_default(), minor.parse().unwrap_or_default());
        let tools = match version {
            (6, 0) if rest.contains("astra") => Tools::Never,
            (6, 1) if rest.contains("sol") => Tools::Never,
            version if version >= (5, 4) => Tools::WithoutEffort,
            _ => Tools::Always,
        };
        Self {
            can_think: version.0 >= 5,
            // From 5.1 to 5.x the default effort is none.
            thinks: version == (5, 0) || version.0 >= 6,
            tools,
            sampling: version.0 < 6,
            max_tokens: true,
        }
    }
}

/// Refuses settings that do not go together, or that the model does not support.
pub(crate) fn check(
    request: &ParsedRequest,
    variant: &Variant,
    plan: &ThinkingPlan,
) -> Result<(), Refusal> {
    let checker = shape::checker(variant, plan);
    for switch in variant.switches {
        check_switch(request, *switch, variant, &checker)?;
    }
    match variant.name {
        "groq" => check_groq(request, &checker)?,
        "google" => check_google(request, &checker)?,
        _ => {}
    }
    if variant.official {
        check_official(request, plan)?;
    }
    let wants_thinking = switch_state(request, ThinkingSwitch::Effort) == Some(true);
    if variant.name == "ollama" && wants_thinking && !ollama::thinks(request.model()) {
        return Err(ollama::refuse_thinking(request.model()));
    }
    Ok(())
}

/// Whether Groq leaves reasoning in the content. This is its default without tools.
fn writes_raw(request: &ParsedRequest) -> bool {
    let format = request.get("reasoning_format");
    let usual = format.is_null() && list(request.get("tools")).is_empty();
    !has_efforts(request) && (usual || format == "raw")
}

/// Whether a model at Groq has efforts; other models only have on and off.
fn has_efforts(request: &ParsedRequest) -> bool {
    request.model().contains("gpt-oss")
}

const GROQ: Shape = Open(&[
    optional("reasoning_format", Word(&["parsed", "raw", "hidden"])),
    optional("include_reasoning", Boolean),
]);

const GOOGLE: Shape = Open(&[optional(
    "extra_body",
    Open(&[optional("google", Open(&[optional("thinking_config", THINKING_CONFIG)]))]),
)]);

const THINKING_CONFIG: Shape = Open(&[
    optional("include_thoughts", Boolean),
    optional("thinking_level", Word(&["minimal", "low", "medium", "high"])),
]);

fn check_groq(request: &ParsedRequest, checker: &Checker) -> Result<(), Refusal> {
    let efforts: &[&str] = match request.model() {
        _ if has_efforts(request) => &["low", "medium", "high"],
        model if model.contains("qwen") => &["none", "default"],
        _ => &["none", "default", "low", "medium", "high"],
    };
    checker.check_at(&["reasoning_effort"], request.get("reasoning_effort"), &Word(efforts))?;
    checker.check(request.body(), &GROQ)?;
    let format = request.get("reasoning_format");
    if !format.is_null() && has_efforts(request) {
        return Err(unsupported("reasoning_format", ""));
    }
    if format == "raw" && !list(request.get("tools")).is_empty() {
        let message = "reasoning_format must be set to parsed or hidden when using tools";
        return Err(refused("reasoning_format", None, message));
    }
    if !format.is_null() && !request.get("include_reasoning").is_null() {
        let message = "cannot specify both include_reasoning and reasoning_format";
        return Err(refused("reasoning_format", None, message));
    }
    Ok(())
}

/// Google's own setting, in addition to those of the dialect.
fn config(request: &ParsedRequest) -> &Value {
    &request.get("extra_body")["google"]["thinking_config"]
}

fn check_google(request: &ParsedRequest, checker: &Checker) -> Result<(), Refusal> {
    let (path, config) = ("extra_body.google.thinking_config", config(request));
    checker.check(request.body(), &GOOGLE)?;
    let (level, budget) = (&config["thinking_level"], &config["thinking_budget"]);
    let effort = request.get("reasoning_effort");
    let settings = [level, budget, effort];
    if settings.iter().filter(|setting| !setting.is_null()).count() > 1 {
        let message = "Expected one of either `reasoning_effort` or custom `thinking_config`";
        return Err(refused(path, None, message));
    }
    Ok(())
}

const THINKING: Shape = Open(&[optional(
    "thinking",
    Open(&[
        optional(
            "type",
            When(
                ANTHROPIC_SWITCH,
                &Word(&["enabled", "disabled", "adaptive"]),
                &Word(&["enabled", "disabled"]),
            ),
        ),
        optional("budget_tokens", Integer(0, i64::MAX)),
        optional("clear_thinking", Boolean),
    ]),
)]);

const ENABLE: Shape = Open(&[
    optional("enable_thinking", Boolean),
    optional("preserve_thinking", Boolean),
    optional("thinking_budget", Integer(0, i64::MAX)),
]);

const TEMPLATE: Shape = Open(&[optional("chat_template_kwargs", Shape::Object)]);

const REASONING: Shape = Open(&[optional(
    "reasoning",
    Open(&[
        optional("max_tokens", Integer(0, i64::MAX)),
        optional("enabled", Boolean),
        optional("exclude", Boolean),
    ]),
)]);

const PROMPT_MODE: Shape = Open(&[optional("prompt_mode", Word(&["reasoning"]))]);

fn check_switch(
    request: &ParsedRequest,
    switch: ThinkingSwitch,
    variant: &Variant,
    checker: &Checker,
) -> Result<(), Refusal> {
    let body = request.body();
    let effort =
        |names: &[&str], value: &Value| checker.check_at(names, value, &Word(variant.efforts));
    match switch {
        ThinkingSwitch::Effort => effort(&["reasoning_effort"], request.get("reasoning_effort")),
        ThinkingSwitch::Thinking => checker.check(body, &THINKING),
        ThinkingSwitch::Enable => checker.check(body, &ENABLE),
        ThinkingSwitch::Template => checker.check(body, &TEMPLATE),
        ThinkingSwitch::Object => {
            checker.check(body, &REASONING)?;
            effort(&["reasoning", "effort"], &request.get("reasoning")["effort"])
        }
        ThinkingSwitch::PromptMode => checker.check(body, &PROMPT_MODE),
    }
}

/// Sampling settings.
const SAMPLING: &[&str] = &["temperature", "top_p", "logprobs", "top_logprobs"];

fn check_official(request: &ParsedRequest, plan: &ThinkingPlan) -> Result<(), Refusal> {
    let model = request.model();
    let rules = Rules::of(model);
    let given = |key: &str| !request.get(key).is_null();
    let tools =
        !list(request.get("tools")).is_empty() || !list(request.get("functions")).is_empty();
    match rules.tools {
        Tools::Never if tools => {
            return Err(refused(
                "tools",
                None,
                format!(
                    "Function tools are not supported for {model} in /v1/chat/completions. To use function tools, use /v1/responses."
                ),
            ));
        }
        Tools::WithoutEffort if tools && plan.thinks => {
            return Err(refused(
                "reasoning_effort",
                None,
                format!(
                    "Function tools with reasoning_effort are not supported for {model} in /v1/chat/completions. To use function tools, use /v1/responses or set reasoning_effort to 'none'."
                ),
            ));
        }
        _ => {}
    }
    if !rules.sampling && plan.thinks {
        for key in SAMPLING {
            if given(key) {
                return Err(unsupported(key, ""));
            }
        }
    }
    if given("top_logprobs") && request.get("logprobs") != &Value::Bool(true) {
        return Err(refused(
            "top_logprobs",
            None,
            "The 'top_logprobs' parameter is only allowed when 'logprobs' is enabled.",
        ));
    }
    if !rules.max_tokens && given("max_tokens") {
        return Err(unsupported("max_tokens", " Use 'max_completion_tokens' instead."));
    }
    if given("max_tokens") && given("max_completion_tokens") {
        return Err(refused(
            "max_tokens",
            Some("invalid_parameter_combination"),
            "Setting 'max_tokens' and 'max_completion_tokens' at the same time is not supported.",
        ));
    }
    Ok(())
}

fn unsupported(key: &str, hint: &str) -> Refusal {
    let message = format!("Unsupported parameter: '{key}' is not supported with this model.{hint}");
    refused(key, Some("unsupported_parameter"), message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn newer_openai_models_accept_fewer_settings() {
        for (model, tools, sampling, max_tokens) in [
            ("gpt-4o", Tools::Always, true, true),
            ("gpt-5", Tools::Always, true, true),
            ("gpt-5.3-codex", Tools::Always, true, true),
            ("gpt-5.4", Tools::WithoutEffort, true, true),
            ("openai/gpt-5.6-luna", Tools::WithoutEffort, true, true),
            ("gpt-6-luna", Tools::WithoutEffort, false, true),
            ("gpt-6-sol", Tools::WithoutEffort, false, true),
            ("gpt-6-astra", Tools::Never, false, true),
            ("gpt-6.1-sol", Tools::Never, false, true),
            ("o3-mini", Tools::Always, true, false),
        ] {
            let rules = Rules::of(model);
            let found = (rules.tools, rules.sampling, rules.max_tokens);
            assert_eq!(found, (tools, sampling, max_tokens), "{model}");
        }
    }
}
