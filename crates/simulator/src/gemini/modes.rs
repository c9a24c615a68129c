//! Thinking modes: what the request asks for and what its model allows.

use serde_json::Value;

use super::models::{Control, Model};
use super::request::{JSON_TYPE, ParsedRequest};
use crate::refusal::Refusal;

/// The thinking of one request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ThinkingPlan {
    pub(crate) thinks: bool,
    /// Whether the client sees its thoughts.
    pub(crate) shows: bool,
}

/// The `thinkingConfig` of a request.
struct ThinkingConfig<'a> {
    level: Option<&'a str>,
    budget: Option<i64>,
    shows: bool,
}

impl<'a> ThinkingConfig<'a> {
    fn read(request: &'a ParsedRequest) -> Self {
        let config = &request.config["thinkingConfig"];
        Self {
            level: config["thinkingLevel"]
                .as_str()
                .filter(|level| *level != "THINKING_LEVEL_UNSPECIFIED"),
            budget: config["thinkingBudget"].as_i64(),
            shows: config["includeThoughts"] == Value::Bool(true),
        }
    }
}

impl ThinkingPlan {
    /// Reads the plan of a request, valid or not.
    pub(crate) fn read(request: &ParsedRequest, model: &Model) -> Self {
        let config = ThinkingConfig::read(request);
        let configured = config.level.is_some() || config.shows;
        let thinks = match (model.control, config.budget) {
            (Control::Levels { .. }, _) => true,
            (Control::Never, _) => false,
            (_, Some(budget)) => budget != 0,
            (_, None) => model.thinks_by_default || configured,
        };
        Self { thinks, shows: thinks && config.shows }
    }
}

/// A schema needs the media type of JSON.
fn check_format(config: &Value) -> Result<(), Refusal> {
    let schemas = ["responseSchema", "responseJsonSchema"];
    let given: Vec<&str> = schemas.into_iter().filter(|name| !config[*name].is_null()).collect();
    if given.len() > 1 {
        return Err(Refusal::invalid(
            "Only one of response_schema and response_json_schema may be set.",
        ));
    }
    if !given.is_empty() && config["responseMimeType"] != JSON_TYPE {
        return Err(Refusal::invalid(
            "Response schema only supports application/json response mime type.",
        ));
    }
    Ok(())
}

/// Refuses what the model does not allow.
pub(crate) fn check(request: &ParsedRequest, model: &Model) -> Result<(), Refusal> {
    check_format(&request.config)?;
    let config = ThinkingConfig::read(request);
    let refuse = |message: &str| Err(Refusal::invalid(message));
    if config.level.is_some() && config.budget.is_some() {
        return refuse("You can only set only one of thinking budget and thinking level.");
    }
    match model.control {
        Control::Any => Ok(()),
        Control::Never if config.level.is_some() || config.budget.is_some_and(|most| most != 0) => {
            refuse("Thinking is not supported for this model.")
        }
        Control::Never if config.shows => refuse(
            "Unable to submit request because Thinking_config.include_thoughts is only enabled when thinking is enabled.",
        ),
        Control::Never => Ok(()),
        Control::Levels { budgets: false, .. } if config.budget.is_some() => {
            refuse("Thinking budget is not supported for this model. Use thinking level instead.")
        }
        Control::Levels { minimal: false, .. } if config.level == Some("MINIMAL") => refuse(
            "Thinking level MINIMAL is not supported for this model. Please retry with other thinking level.",
        ),
        Control::Levels { .. } => check_budget(config.budget, 1, i64::from(i32::MAX), false),
        Control::Budgets { .. } if config.level.is_some() => {
            refuse("Thinking level is not supported for this model.")
        }
        Control::Budgets { least, most, off } => check_budget(config.budget, least, most, off),
    }
}

fn check_budget(budget: Option<i64>, least: i64, most: i64, off: bool) -> Result<(), Refusal> {
    match budget {
        None | Some(-1) => Ok(()),
        Some(0) if off => Ok(()),
        Some(0) => {
            Err(Refusal::invalid("Budget 0 is invalid. This model only works in thinking mode."))
        }
        Some(budget) if (least..=most).contains(&budget) => Ok(()),
        Some(budget) => Err(Refusal::invalid(format!(
            "The thinking budget {budget} is invalid. Please choose a value between {least} and {most}."
        ))),
    }
}
