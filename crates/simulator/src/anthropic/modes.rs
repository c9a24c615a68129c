//! Thinking modes: what the request asks for and what its model allows.

use serde_json::Value;

use super::models::{Disabled, ForcedTool, Model, Sampling};
use super::request::{ApiHeaders, ParsedRequest};
use crate::refusal::Refusal;

/// The thinking mode of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    Off,
    Adaptive,
    /// `enabled` with a budget.
    Manual,
    /// No thinking at first, only after tool results.
    BetweenTools,
}

/// What happens to a block whose prefix has changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OnMismatch {
    Refuse,
    Drop,
}

/// The thinking of one request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ThinkingPlan {
    pub(crate) mode: Mode,
    /// Whether the client sees the text of its thinking.
    pub(crate) shows_text: bool,
    /// Set when the request controls the binding of its blocks.
    pub(crate) binding: Option<OnMismatch>,
}

impl ThinkingPlan {
    /// Reads the plan of a request, valid or not.
    pub(crate) fn read(request: &ParsedRequest, model: &Model) -> Self {
        let mode = match request.thinking["type"].as_str() {
            Some("adaptive") => Mode::Adaptive,
            Some("enabled") => Mode::Manual,
            Some("between_tools") => Mode::BetweenTools,
            Some(_) => Mode::Off,
            None if model.thinks_by_default => Mode::Adaptive,
            None => Mode::Off,
        };
        let binding = &request.thinking["block_binding"];
        Self {
            mode,
            shows_text: match request.thinking["display"].as_str() {
                Some("omitted") => false,
                Some(_) => true,
                None => !model.omits_text,
            },
            binding: binding.is_object().then(|| {
                match binding["prefix_mismatch_behavior"].as_str() {
                    Some("drop_block") => OnMismatch::Drop,
                    _ => OnMismatch::Refuse,
                }
            }),
        }
    }

    /// Whether the reply starts with thinking.
    pub(crate) fn thinks(&self, after_results: bool) -> bool {
        match self.mode {
            Mode::Off => false,
            Mode::Adaptive | Mode::Manual => true,
            Mode::BetweenTools => after_results,
        }
    }
}

/// Refuses what the model does not allow.
pub(crate) fn check(
    request: &ParsedRequest,
    plan: &ThinkingPlan,
    model: &Model,
) -> Result<(), Refusal> {
    check_type(request, model)?;
    check_effort(request, model)?;
    check_budget(request)?;
    check_forced_tool(request, plan, model)
}

fn check_type(request: &ParsedRequest, model: &Model) -> Result<(), Refusal> {
    let Some(kind) = request.thinking["type"].as_str() else {
        return Ok(());
    };
    let high_effort = matches!(request.effort.as_deref(), Some("xhigh" | "max"));
    let hint = match kind {
        "adaptive" if !model.adaptive => {
            "Use \"thinking.type.enabled\" and \"budget_tokens\" to control thinking behavior."
        }
        "enabled" if !model.enabled => {
            "Use \"thinking.type.adaptive\" and \"output_config.effort\" to control thinking behavior."
        }
        "disabled" if model.disabled == Disabled::Refused && model.between_tools => {
            "Use \"thinking.type.between_tools\" to turn off thinking before the first tool call."
        }
        "disabled" if model.disabled == Disabled::Refused => {
            "Use \"output_config.effort\" to control thinking behavior."
        }
        "disabled" if model.disabled == Disabled::LowEffort && high_effort => {
            return Err(Refusal::invalid(
                "\"thinking.type.disabled\" is not supported for this model with \"output_config.effort\" above \"high\".",
            ));
        }
        "between_tools" if !model.between_tools => {
            "Use \"thinking.type.adaptive\" to control thinking behavior."
        }
        "between_tools" if high_effort => {
            return Err(Refusal::invalid(
                "\"thinking.type.between_tools\" requires \"output_config.effort\" to be \"low\", \"medium\" or \"high\".",
            ));
        }
        _ => return Ok(()),
    };
    Err(Refusal::invalid(format!(
        "\"thinking.type.{kind}\" is not supported for this model. {hint}"
    )))
}

fn check_effort(request: &ParsedRequest, model: &Model) -> Result<(), Refusal> {
    let Some(effort) = request.effort.as_deref() else {
        return Ok(());
    };
    if model.efforts.is_empty() {
        return Err(Refusal::invalid("This model does not support the effort parameter."));
    }
    if !model.efforts.contains(&effort) {
        let mut levels = model.efforts.to_vec();
        levels.sort_unstable();
        return Err(Refusal::invalid(format!(
            "This model does not support effort level '{effort}'. Supported levels: {}.",
            levels.join(", ")
        )));
    }
    Ok(())
}

fn check_budget(request: &ParsedRequest) -> Result<(), Refusal> {
    let budget = match request.thinking["type"].as_str() {
        Some("enabled") => request.thinking["budget_tokens"].as_u64(),
        _ => None,
    };
    // Token counting has no max_tokens to compare with.
    if budget.zip(request.max_tokens).is_some_and(|(budget, max_tokens)| budget >= max_tokens) {
        return Err(Refusal::invalid(
            "`max_tokens` must be greater than `thinking.budget_tokens`.",
        ));
    }
    Ok(())
}

fn check_forced_tool(
    request: &ParsedRequest,
    plan: &ThinkingPlan,
    model: &Model,
) -> Result<(), Refusal> {
    if !matches!(request.tool_choice["type"].as_str(), Some("any" | "tool")) {
        return Ok(());
    }
    let refused = match model.forced_tool {
        ForcedTool::Allowed => false,
        ForcedTool::NotWithThinking => plan.mode != Mode::Off,
        ForcedTool::NotWithManual => plan.mode == Mode::Manual,
        ForcedTool::Never => true,
    };
    if refused {
        return Err(Refusal::invalid(
            "Thinking may not be enabled when tool_choice forces tool use.",
        ));
    }
    Ok(())
}

/// Refuses sampling parameters that the version or model does not have, or that conflict with
/// thinking.
pub(crate) fn check_sampling(
    body: &serde_json::Map<String, Value>,
    plan: &ThinkingPlan,
    model: &Model,
    api_headers: &ApiHeaders,
) -> Result<(), Refusal> {
    for key in ["temperature", "top_p", "top_k"] {
        let Some(value) = body.get(key) else {
            continue;
        };
        if api_headers.is_new_version() {
            return Err(Refusal::extra(key));
        }
        match model.sampling {
            Sampling::Deprecated => {
                return Err(Refusal::invalid(format!("`{key}` is deprecated for this model.")));
            }
            Sampling::WithoutThinking if plan.mode != Mode::Off => {
                let refused = match key {
                    "temperature" if value.as_f64() != Some(1.0) => {
                        "`temperature` may only be set to 1 when thinking is enabled."
                    }
                    "top_p" if value.as_f64().is_none_or(|share| share < 0.95) => {
                        "`top_p` must be greater than or equal to 0.95 or unset when thinking is enabled."
                    }
                    "top_k" => "`top_k` must be unset when thinking is enabled.",
                    _ => continue,
                };
                return Err(Refusal::invalid(refused));
            }
            _ => {}
        }
    }
    Ok(())
}
