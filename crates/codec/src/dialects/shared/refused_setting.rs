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

/// Words of an error that say that a setting is not accepted at all.
const REFUSING_WORDS: [&str; 9] = [
    "not supported",
    "not support",
    "unsupported",
    "not allowed",
    "not permitted",
    "not available",
    "not match any of the expected",
    "unrecognized",
    "unknown",
];

/// Whether an error says that a setting is not accepted, whatever else the request says. Servers word
/// this in many ways.
fn is_unconditional(message: &str) -> bool {
    let message = message.to_ascii_lowercase();
    let of_the_model = ["with this model", "with the model", "with model"];
    let message = of_the_model.iter().fold(message, |text, words| text.replace(words, ""));
    // Errors about blocks name a message.
    !message.starts_with("messages")
        && REFUSING_WORDS.iter().any(|words| message.contains(words))
        && ![" with ", " when ", " unless ", " if "].iter().any(|word| message.contains(word))
}

/// Recognises a refusal in Anthropic's error texts, and in those of servers that speak its dialect.
pub(crate) fn in_anthropic_text(message: &str) -> Option<RefusedSetting> {
    let form = |refused, instead| Some(RefusedSetting::Form { refused, instead });
    if let Some((refused, accepted)) = message.split_once("not support effort level") {
        let (word, accepted) =
            accepted.split_once("Supported levels:").unwrap_or((accepted, refused));
        return Some(RefusedSetting::Effort {
            refused: quoted(word).find_map(Effort::read),
            accepted: accepted.split([',', '.', ' ']).filter_map(Effort::read).collect(),
            always_thinks: false,
        });
    }
    if !is_unconditional(message) {
        return None;
    }
    match first_mode(message) {
        Some("disabled") => {
            return Some(RefusedSetting::Off { between_tools: message.contains("between_tools") });
        }
        Some("adaptive") => return form(ThinkingForm::Adaptive, ThinkingForm::Budget),
        Some("enabled") => return form(ThinkingForm::Budget, ThinkingForm::Adaptive),
        _ => {}
    }
    if ["effort", "output_config"].iter().any(|member| message.contains(member)) {
        return form(ThinkingForm::Adaptive, ThinkingForm::Budget);
    }
    names(message, |word| word.trim_end_matches('.') == "thinking")
        .then_some(RefusedSetting::Thinking)
}

/// Whether an error has such a word, in lower case. The name of a model is one word.
fn names(message: &str, is_wanted: impl Fn(&str) -> bool) -> bool {
    let is_border = |character: char| !character.is_alphanumeric() && !"._-/".contains(character);
    message.to_ascii_lowercase().split(is_border).any(is_wanted)
}

/// The mode of thinking that an error names first. Later ones are advice.
fn first_mode(message: &str) -> Option<&'static str> {
    let is_about_modes = ["thinking", "Input tag"].iter().any(|words| message.contains(words));
    let position = |mode: &str| {
        let quoted = ['"', '\'', '`'].map(|quote| format!("{quote}{mode}{quote}"));
        let named = [format!("thinking.type.{mode}"), format!("{mode} thinking")];
        quoted.iter().chain(&named).filter_map(|words| message.find(words.as_str())).min()
    };
    let modes = ["disabled", "adaptive", "enabled"].into_iter().filter(|_| is_about_modes);
    modes.filter_map(|mode| Some((position(mode)?, mode))).min().map(|(_, mode)| mode)
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

/// Members with which requests of OpenAI's dialects ask for thinking.
const OPENAI_MEMBERS: [&str; 7] = [
    "reasoning",
    "reasoning_effort",
    "reasoning.effort",
    "reasoning.summary",
    "chat_template_kwargs",
    "enable_thinking",
    "thinking",
];

/// Recognises a refusal in the error texts of OpenAI and of servers that speak its dialects.
/// `parameter` is the member that the error names, or empty: then the text may name it.
pub(crate) fn in_openai_text(parameter: &str, message: &str) -> Option<RefusedSetting> {
    let is_member = |word: &str| OPENAI_MEMBERS.contains(&word.trim_end_matches('.'));
    let is_named = is_member(parameter) || parameter.is_empty() && names(message, is_member);
    if !is_named {
        return None;
    }
    let Some((refused, accepted)) = message.split_once("Supported values are:") else {
        return is_unconditional(message).then_some(RefusedSetting::Thinking);
    };
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusal_is_recognised_in_many_words() {
        let off = |between_tools| Some(RefusedSetting::Off { between_tools });
        let adaptive = Some(RefusedSetting::Form {
            refused: ThinkingForm::Adaptive,
            instead: ThinkingForm::Budget,
        });
        let budget = Some(RefusedSetting::Form {
            refused: ThinkingForm::Budget,
            instead: ThinkingForm::Adaptive,
        });
        for (message, expected) in [
            (
                r#""thinking.type.disabled" is not supported for this model. Use "output_config.effort" to control thinking behavior."#,
                off(false),
            ),
            (
                r#""thinking.type.disabled" is not supported for this model. Use "thinking.type.between_tools" to turn off thinking."#,
                off(true),
            ),
            (r#"thinking.type: "disabled" is not allowed for this model"#, off(false)),
            (
                r#""thinking.type.enabled" is not supported for this model. Use "thinking.type.adaptive"."#,
                budget.clone(),
            ),
            (
                "thinking: Input tag 'adaptive' found using 'type' does not match any of the expected tags: 'disabled', 'enabled'",
                adaptive.clone(),
            ),
            ("adaptive thinking is not supported on this model", adaptive.clone()),
            ("output_config: Extra inputs are not permitted", adaptive.clone()),
            ("This model does not support the effort parameter.", adaptive.clone()),
            ("This model does not support extended thinking.", Some(RefusedSetting::Thinking)),
            ("thinking: Extra inputs are not permitted", Some(RefusedSetting::Thinking)),
            // Other settings of the request would have to change, or a message.
            (
                r#""thinking.type.disabled" is not supported for this model with "output_config.effort" above "high"."#,
                None,
            ),
            ("Thinking may not be enabled when tool_choice forces tool use.", None),
            ("`max_tokens` must be greater than `thinking.budget_tokens`.", None),
            ("messages.1.content.0: thinking blocks are not permitted here", None),
            ("The model `qwen3-thinking` is not supported", None),
        ] {
            assert_eq!(in_anthropic_text(message), expected, "{message}");
        }
        assert_eq!(in_anthropic_text("tools.0: Extra inputs are not permitted"), None);
    }

    #[test]
    fn openai_refusal_may_name_the_member_in_its_text() {
        let thinking = Some(RefusedSetting::Thinking);
        for (parameter, message, expected) in [
            (
                "reasoning_effort",
                "Unsupported parameter: 'reasoning_effort' is not supported with this model.",
                thinking.clone(),
            ),
            ("", "Unrecognized request argument supplied: reasoning_effort", thinking.clone()),
            ("", "`reasoning_effort` is not supported with this model", thinking.clone()),
            ("", "Unknown parameter: 'chat_template_kwargs'.", thinking.clone()),
            ("tools", "Unsupported value: 'tools'", None),
            ("", "Unknown model: qwen3-thinking", None),
            ("", "Unsupported parameter: 'logprobs' is not supported with reasoning models.", None),
            (
                "",
                "Function tools with reasoning_effort are not supported when tools are used",
                None,
            ),
        ] {
            assert_eq!(in_openai_text(parameter, message), expected, "{message}");
        }
        let message = "Unsupported value: 'reasoning_effort' does not support 'xhigh'. Supported values are: 'low' and 'high'.";
        let expected = RefusedSetting::Effort {
            refused: Effort::read("xhigh"),
            accepted: vec![Effort::Low, Effort::High],
            always_thinks: true,
        };
        assert_eq!(in_openai_text("", message), Some(expected));
    }
}
