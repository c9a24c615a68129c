//! The many spellings of "think this much" in OpenAI-shaped requests.

use serde_json::{Map, Value};
use throughline_canonical::{
    Amount, Effort, Fault, Loss, LossReason, LossSubject, Show, ThinkingSetting,
};

use super::fields::{count, flag};
use crate::json::Node;

/// What a request says about thinking, collected from all members that can say it.
#[derive(Default)]
pub(crate) struct ThinkingOptions {
    pub(crate) switch: Option<bool>,
    pub(crate) adaptive: bool,
    pub(crate) effort: Option<Effort>,
    pub(crate) budget: Option<u64>,
    pub(crate) show: Option<Show>,
}

impl ThinkingOptions {
    /// Resolves the options. Off wins, then a budget, then an effort, then a plain "on".
    pub(crate) fn resolve(self, losses: &mut Vec<Loss>) -> ThinkingSetting {
        if self.budget.is_some() && self.effort.is_some() && self.switch != Some(false) {
            losses.push(Loss::SettingAdapted {
                setting: LossSubject::Thinking,
                reason: LossReason::Budget,
            });
        }
        let amount = match self {
            Self { switch: Some(false), .. } | Self { budget: Some(0), .. } => Some(Amount::Off),
            Self { budget: Some(tokens), .. } => Some(Amount::Budget { tokens }),
            Self { adaptive: true, effort, .. } => Some(Amount::Adaptive { effort }),
            Self { effort: Some(effort), .. } => Some(Amount::Effort { effort }),
            Self { switch: Some(true), .. } => Some(Amount::On),
            _ => None,
        };
        ThinkingSetting { amount, show: self.show }
    }
}

/// Reads all members about thinking. `reasoning` takes precedence over `thinking`, and both over the
/// top-level members.
pub(crate) fn read_thinking(
    root: &Node<'_>,
    extra: &mut Map<String, Value>,
    losses: &mut Vec<Loss>,
) -> Result<ThinkingSetting, Fault> {
    let mut options = ThinkingOptions::default();
    if let Some(object) = root.get("reasoning") {
        object.object()?;
        read_effort(&object, "effort", &mut options)?;
        options.budget = count(&object, "max_tokens")?;
        options.switch = options.switch.or(flag(&object, "enabled")?);
        if let Some(summary) = object.get("summary") {
            options.show = match summary.text()? {
                "none" => Some(Show::Hidden),
                _ => Some(Show::Summary),
            };
        }
        if flag(&object, "exclude")? == Some(true) {
            options.show = Some(Show::Hidden);
        }
    }
    if let Some(thinking) = root.get("thinking") {
        read_switch(&thinking, &mut options, losses)?;
    }
    if let Some(enable) = flag(root, "enable_thinking")? {
        options.switch = options.switch.or(Some(enable));
    }
    options.budget = options.budget.or(count(root, "thinking_budget")?);
    read_effort(root, "reasoning_effort", &mut options)?;
    if flag(root, "include_reasoning")? == Some(false) {
        options.show = Some(Show::Hidden);
    }
    if let Some(template) = root.get("chat_template_kwargs") {
        let mut rest = template.object()?.clone();
        for name in ["enable_thinking", "thinking"] {
            // These two are known template flags. Other members belong to the template.
            if let Some(Value::Bool(value)) = rest.get(name) {
                options.switch = options.switch.or(Some(*value));
                rest.shift_remove(name);
            }
        }
        if !rest.is_empty() {
            extra.insert("chat_template_kwargs".to_owned(), Value::Object(rest));
        }
    }
    Ok(options.resolve(losses))
}

/// Reads an effort, or the words that switch thinking off or on.
pub(crate) fn read_effort(
    node: &Node<'_>,
    name: &str,
    options: &mut ThinkingOptions,
) -> Result<(), Fault> {
    let Some(effort) = node.get(name) else {
        return Ok(());
    };
    match effort.text()? {
        "none" => options.switch = options.switch.or(Some(false)),
        // Groq's spelling.
        "default" => options.switch = options.switch.or(Some(true)),
        word => match Effort::read(word) {
            Some(read) => options.effort = options.effort.or(Some(read)),
            None => {
                return Err(effort.refuse(
                    "expected `none`, `minimal`, `low`, `medium`, `high`, `xhigh` or `max`",
                ));
            }
        },
    }
    Ok(())
}

/// Reads `thinking`: a boolean, or an object with a `type`.
pub(crate) fn read_switch(
    thinking: &Node<'_>,
    options: &mut ThinkingOptions,
    losses: &mut Vec<Loss>,
) -> Result<(), Fault> {
    let on = match thinking.value() {
        Value::Bool(on) => Some(*on),
        Value::Object(_) => {
            let kind = thinking.need("type")?;
            options.budget = options.budget.or(count(thinking, "budget_tokens")?);
            if let Some(display) = thinking.get("display") {
                options.show = match display.text()? {
                    "omitted" => Some(Show::Hidden),
                    "summarized" => Some(Show::Summary),
                    _ => options.show,
                };
            }
            if thinking.get("clear_thinking").is_some() {
                losses.push(Loss::PartOmitted {
                    part: LossSubject::ThinkingClearThinking,
                    reason: LossReason::NoWord,
                });
            }
            match kind.text()? {
                "enabled" => Some(true),
                "disabled" => Some(false),
                "adaptive" | "auto" => {
                    options.adaptive = true;
                    None
                }
                _ => return Err(kind.refuse("expected `enabled`, `disabled` or `adaptive`")),
            }
        }
        _ => return Err(thinking.wrong("true, false or an object")),
    };
    options.switch = options.switch.or(on);
    Ok(())
}
