//! Modes: whether the model thinks, what is seen of it, and which settings go together.

use serde_json::Value;

use super::ask::{Ask, list};
use super::marks;
use super::shape::{self, ANTHROPIC_SWITCH};
use super::variants::{Shows, SignsCalls, Switch, Variant};
use crate::ollama;
use crate::openai::refused;
use crate::refusal::Refusal;
use crate::shape::Shape::{Boolean, Integer, Open, When, Word};
use crate::shape::{Checker, Shape, optional};

/// What was decided about thinking.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Plan {
    pub(crate) thinks: bool,
    pub(crate) shows: Shows,
    /// The client wants to see it.
    pub(crate) shown: bool,
}

impl Plan {
    pub(crate) fn read(ask: &Ask, variant: &Variant) -> Self {
        let told = variant.switches.iter().find_map(|switch| told(ask, *switch));
        let usual = match Rules::of(ask.model()) {
            rules if variant.official => rules.thinks,
            _ => variant.thinks,
        };
        let never = variant.official && !Rules::of(ask.model()).can_think;
        // This model only thinks less.
        let always = variant.name == "glm" && ask.model().to_lowercase().contains("glm-5.3");
        let hidden = ask.get("reasoning")["exclude"] == Value::Bool(true)
            || ask.get("include_reasoning") == &Value::Bool(false)
            || ask.get("reasoning_format") == "hidden";
        let raw = variant.name == "llamacpp" && ask.get("reasoning_format") == "none";
        let shows = match variant.shows {
            _ if raw => Shows::Tags,
            _ if variant.name == "groq" && writes_raw(ask) => Shows::Tags,
            _ if config(ask)["include_thoughts"] == Value::Bool(true) => Shows::Thoughts,
            // Blocks are Claude's; Gemini signs its calls instead.
            Shows::Blocks if marks::signs_calls(variant, ask.model()) != SignsCalls::Never => {
                Shows::Field("reasoning_content")
            }
            shows => shows,
        };
        Self { thinks: always || told.unwrap_or(usual) && !never, shows, shown: !hidden }
    }
}

/// What a setting says about thinking, if anything.
fn told(ask: &Ask, switch: Switch) -> Option<bool> {
    let effort = |value: &Value| value.as_str().map(|effort| effort != "none");
    match switch {
        Switch::Effort => effort(ask.get("reasoning_effort")),
        Switch::Thinking => {
            let kind = ask.get("thinking")["type"].as_str()?;
            Some(kind != "disabled")
        }
        Switch::Enable => ask.get("enable_thinking").as_bool(),
        Switch::Template => {
            let arguments = ask.get("chat_template_kwargs");
            let enable = arguments["enable_thinking"].as_bool();
            enable.or_else(|| arguments["thinking"].as_bool())
        }
        Switch::Object => {
            let reasoning = ask.get("reasoning").as_object()?;
            let enabled = reasoning.get("enabled").and_then(Value::as_bool);
            enabled.or_else(|| reasoning.get("effort").and_then(effort))
        }
        Switch::PromptMode => (ask.get("prompt_mode") == "reasoning").then_some(true),
    }
}

/// What OpenAI's models take here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Rules {
    can_think: bool,
    /// It thinks unless told otherwise.
    thinks: bool,
    /// Tools go with `reasoning_effort: none` only.
    tools: Tools,
    /// Sampling goes with `reasoning_effort: none` only.
    sampling: bool,
    max_tokens: bool,
}

/// Which tools a model of OpenAI takes here.
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
            // From 5.1 to 5.x the usual effort is none.
            thinks: version == (5, 0) || version.0 >= 6,
            tools,
            sampling: version.0 < 6,
            max_tokens: true,
        }
    }
}

/// Refuses settings that do not go together, or not with this model.
pub(crate) fn check(ask: &Ask, variant: &Variant, plan: &Plan) -> Result<(), Refusal> {
    let checker = shape::checker(variant, plan);
    for switch in variant.switches {
        check_switch(ask, *switch, variant, &checker)?;
    }
    match variant.name {
        "groq" => check_groq(ask, &checker)?,
        "google" => check_google(ask, &checker)?,
        _ => {}
    }
    if variant.official {
        check_official(ask, plan)?;
    }
    let told = told(ask, Switch::Effort) == Some(true);
    if variant.name == "ollama" && told && !ollama::thinks(ask.model()) {
        return Err(ollama::refuse_thinking(ask.model()));
    }
    Ok(())
}

/// Whether Groq leaves reasoning in the content: unless it is told otherwise, or has tools to offer.
fn writes_raw(ask: &Ask) -> bool {
    let format = ask.get("reasoning_format");
    let usual = format.is_null() && list(ask.get("tools")).is_empty();
    !has_efforts(ask) && (usual || format == "raw")
}

/// Whether a model at Groq has efforts; the others are on or off.
fn has_efforts(ask: &Ask) -> bool {
    ask.model().contains("gpt-oss")
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

fn check_groq(ask: &Ask, checker: &Checker) -> Result<(), Refusal> {
    let efforts: &[&str] = match ask.model() {
        _ if has_efforts(ask) => &["low", "medium", "high"],
        model if model.contains("qwen") => &["none", "default"],
        _ => &["none", "default", "low", "medium", "high"],
    };
    checker.check_at(&["reasoning_effort"], ask.get("reasoning_effort"), &Word(efforts))?;
    checker.check(ask.body(), &GROQ)?;
    let format = ask.get("reasoning_format");
    if !format.is_null() && has_efforts(ask) {
        return Err(unsupported("reasoning_format", ""));
    }
    if format == "raw" && !list(ask.get("tools")).is_empty() {
        let message = "reasoning_format must be set to parsed or hidden when using tools";
        return Err(refused("reasoning_format", None, message));
    }
    if !format.is_null() && !ask.get("include_reasoning").is_null() {
        let message = "cannot specify both include_reasoning and reasoning_format";
        return Err(refused("reasoning_format", None, message));
    }
    Ok(())
}

/// Google's own setting, beside those of the dialect.
fn config(ask: &Ask) -> &Value {
    &ask.get("extra_body")["google"]["thinking_config"]
}

fn check_google(ask: &Ask, checker: &Checker) -> Result<(), Refusal> {
    let (path, config) = ("extra_body.google.thinking_config", config(ask));
    checker.check(ask.body(), &GOOGLE)?;
    let (level, budget) = (&config["thinking_level"], &config["thinking_budget"]);
    let effort = ask.get("reasoning_effort");
    let said = [level, budget, effort];
    if said.iter().filter(|said| !said.is_null()).count() > 1 {
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
    ask: &Ask,
    switch: Switch,
    variant: &Variant,
    checker: &Checker,
) -> Result<(), Refusal> {
    let body = ask.body();
    let effort =
        |names: &[&str], value: &Value| checker.check_at(names, value, &Word(variant.efforts));
    match switch {
        Switch::Effort => effort(&["reasoning_effort"], ask.get("reasoning_effort")),
        Switch::Thinking => checker.check(body, &THINKING),
        Switch::Enable => checker.check(body, &ENABLE),
        Switch::Template => checker.check(body, &TEMPLATE),
        Switch::Object => {
            checker.check(body, &REASONING)?;
            effort(&["reasoning", "effort"], &ask.get("reasoning")["effort"])
        }
        Switch::PromptMode => checker.check(body, &PROMPT_MODE),
    }
}

/// Members that decide by chance.
const SAMPLING: &[&str] = &["temperature", "top_p", "logprobs", "top_logprobs"];

fn check_official(ask: &Ask, plan: &Plan) -> Result<(), Refusal> {
    let model = ask.model();
    let rules = Rules::of(model);
    let given = |key: &str| !ask.get(key).is_null();
    let tools = !list(ask.get("tools")).is_empty() || !list(ask.get("functions")).is_empty();
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
    fn the_newer_a_model_the_less_it_takes_here() {
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
