//! Refusals of a thinking setting: what a model says it does not accept. Providers have no error code
//! for them, only texts, which servers in between pass on.

use throughline_canonical::{Effort, ThinkingForm};

/// A thinking setting that a model refuses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RefusedSetting {
    /// Any: the model cannot think.
    Thinking,
    /// Off: it always thinks.
    Off {
        /// Whether it can be off except between tool calls.
        between_tools: bool,
    },
    /// A form of the setting.
    Form {
        /// The refused form.
        refused: ThinkingForm,
        /// The form that it accepts.
        instead: ThinkingForm,
    },
    /// An effort or a level.
    Effort {
        /// The refused one, if it is known.
        refused: Option<Effort>,
        /// Those that it accepts. Empty if the error does not say.
        accepted: Vec<Effort>,
        /// Whether it cannot be turned off by an effort either.
        always_thinks: bool,
    },
    /// A budget outside of its range.
    BudgetRange {
        /// The smallest budget.
        least: u64,
        /// The largest budget.
        most: u64,
    },
}

/// Recognises a refusal in Anthropic's error texts.
pub(crate) fn in_anthropic_text(message: &str) -> Option<RefusedSetting> {
    let refuses = |kind: &str| {
        message.contains(&format!("\"thinking.type.{kind}\" is not supported for this model."))
    };
    let form = |refused, instead| Some(RefusedSetting::Form { refused, instead });
    if refuses("disabled") {
        let between_tools = message.contains("\"thinking.type.between_tools\"");
        return Some(RefusedSetting::Off { between_tools });
    }
    let no_adaptive = ["adaptive thinking is not supported", "not support the effort parameter"];
    if refuses("adaptive") || no_adaptive.iter().any(|words| message.contains(words)) {
        return form(ThinkingForm::Adaptive, ThinkingForm::Budget);
    }
    if refuses("enabled") {
        return form(ThinkingForm::Budget, ThinkingForm::Adaptive);
    }
    let (refused, accepted) = message.split_once("not support effort level")?;
    let (word, accepted) = accepted.split_once("Supported levels:").unwrap_or((accepted, refused));
    Some(RefusedSetting::Effort {
        refused: quoted(word).find_map(Effort::read),
        accepted: accepted.split([',', '.', ' ']).filter_map(Effort::read).collect(),
        always_thinks: false,
    })
}

/// Recognises a refusal in Gemini's error texts.
pub(crate) fn in_gemini_text(message: &str) -> Option<RefusedSetting> {
    let form = |refused, instead| Some(RefusedSetting::Form { refused, instead });
    if message.starts_with("Thinking is not supported") {
        return Some(RefusedSetting::Thinking);
    }
    if message.contains("only works in thinking mode") {
        return Some(RefusedSetting::Off { between_tools: false });
    }
    if message.starts_with("Thinking budget is not supported") {
        return form(ThinkingForm::Budget, ThinkingForm::Level);
    }
    if message.starts_with("Thinking level is not supported") {
        return form(ThinkingForm::Level, ThinkingForm::Budget);
    }
    if let Some((_, range)) = message.split_once("choose a value between ")
        && message.contains("thinking budget")
    {
        let mut numbers = range.split([' ', '.']).filter_map(|word| word.parse().ok());
        return Some(RefusedSetting::BudgetRange { least: numbers.next()?, most: numbers.next()? });
    }
    let level = message.strip_prefix("Thinking level ")?;
    let (level, _) = level.split_once(" is not supported")?;
    let refused = Some(Effort::read(level)?);
    Some(RefusedSetting::Effort { refused, accepted: Vec::new(), always_thinks: false })
}

/// Recognises a refusal in OpenAI's error texts. `parameter` is the member that the error names.
pub(crate) fn in_openai_text(parameter: &str, message: &str) -> Option<RefusedSetting> {
    if !["reasoning", "reasoning_effort", "reasoning.effort", "reasoning.summary"]
        .contains(&parameter)
    {
        return None;
    }
    if message.starts_with("Unsupported parameter") {
        return Some(RefusedSetting::Thinking);
    }
    let (refused, accepted) = message.split_once("Supported values are:")?;
    let off = |word: &str| word == "none";
    let known =
        quoted(accepted).any(off) || quoted(accepted).any(|word| Effort::read(word).is_some());
    Some(RefusedSetting::Effort {
        refused: quoted(refused).find_map(Effort::read),
        accepted: quoted(accepted).filter_map(Effort::read).collect(),
        always_thinks: known && !quoted(accepted).any(off),
    })
}

/// Recognises Ollama's words for a model that does not think. Ollama uses them in all its dialects.
pub(crate) fn in_ollama_text(message: &str) -> Option<RefusedSetting> {
    message.contains("does not support thinking").then_some(RefusedSetting::Thinking)
}

/// The words between single quotes.
fn quoted(text: &str) -> impl Iterator<Item = &str> {
    text.split('\'').skip(1).step_by(2)
}
