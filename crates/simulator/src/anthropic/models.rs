//! The models: one table with the thinking rules of each family.
//!
//! Refusals and `/v1/models` use the same table, so they agree.

use serde_json::{Value, json};

use self::Disabled::{Allowed, LowEffort, Refused};

/// Whether thinking can be switched off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Disabled {
    Allowed,
    /// Not together with effort `xhigh` or `max`.
    LowEffort,
    Refused,
}

/// When `tool_choice` may not force a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ForcedTool {
    Allowed,
    NotWithThinking,
    NotWithManual,
    Never,
}

/// When sampling parameters are accepted under version 2023-06-01.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sampling {
    Free,
    WithoutThinking,
    Deprecated,
}

/// The rules of one family of models.
#[derive(Debug)]
pub(crate) struct Model {
    /// The name that thinking is bound to.
    pub(crate) family: &'static str,
    /// Parts of model names; a digit after them means another version.
    names: &'static [&'static str],
    pub(crate) adaptive: bool,
    pub(crate) enabled: bool,
    pub(crate) disabled: Disabled,
    pub(crate) between_tools: bool,
    pub(crate) thinks_by_default: bool,
    pub(crate) sampling: Sampling,
    pub(crate) forced_tool: ForcedTool,
    /// The thinking text is omitted by default.
    pub(crate) omits_text: bool,
    /// The conversation may end on an assistant turn.
    pub(crate) prefill: bool,
    /// Thinking is bound to the model and the prefix.
    pub(crate) preserved: bool,
    /// Other families whose preserved thinking it accepts.
    reads: &'static [&'static str],
    /// The supported efforts; empty if there is no such setting.
    pub(crate) efforts: &'static [&'static str],
    listed: &'static [&'static str],
}

const ALL_EFFORTS: &[&str] = &["low", "medium", "high", "xhigh", "max"];

/// The defaults of models of late 2026.
const CURRENT: Model = Model {
    family: "",
    names: &[],
    adaptive: true,
    enabled: false,
    disabled: Allowed,
    between_tools: false,
    thinks_by_default: true,
    sampling: Sampling::Deprecated,
    forced_tool: ForcedTool::Allowed,
    omits_text: true,
    prefill: false,
    preserved: false,
    reads: &[],
    efforts: ALL_EFFORTS,
    listed: &[],
};

/// The first row with a fitting name counts.
static MODELS: &[Model] = &[
    Model {
        family: "fable-5-1",
        names: &["fable-5-1", "fable-5-2", "mythos-5-1", "mythos-5-2"],
        disabled: Refused,
        forced_tool: ForcedTool::Never,
        preserved: true,
        reads: &["opus-5", "opus-5-5"],
        listed: &["claude-fable-5-2", "claude-fable-5-1", "claude-mythos-5-2", "claude-mythos-5-1"],
        ..CURRENT
    },
    Model {
        family: "fable-5",
        names: &["fable-5", "mythos-5"],
        disabled: Refused,
        listed: &["claude-fable-5", "claude-mythos-5"],
        ..CURRENT
    },
    Model {
        family: "opus-5-5",
        names: &["opus-5-5"],
        disabled: Refused,
        forced_tool: ForcedTool::Never,
        preserved: true,
        listed: &["claude-opus-5-5"],
        ..CURRENT
    },
    Model {
        family: "sonnet-5-5",
        names: &["sonnet-5-5"],
        disabled: Refused,
        between_tools: true,
        forced_tool: ForcedTool::Never,
        preserved: true,
        listed: &["claude-sonnet-5-5"],
        ..CURRENT
    },
    Model {
        family: "haiku-5-5",
        names: &["haiku-5-5"],
        disabled: LowEffort,
        preserved: true,
        listed: &["claude-haiku-5-5"],
        ..CURRENT
    },
    Model {
        family: "opus-5",
        names: &["opus-5"],
        disabled: LowEffort,
        listed: &["claude-opus-5"],
        ..CURRENT
    },
    Model { family: "sonnet-5", names: &["sonnet-5"], listed: &["claude-sonnet-5"], ..CURRENT },
    Model {
        family: "opus-4-7",
        names: &["opus-4-7", "opus-4-8"],
        thinks_by_default: false,
        listed: &["claude-opus-4-8", "claude-opus-4-7"],
        ..CURRENT
    },
    Model {
        family: "claude-4-6",
        names: &["opus-4-6", "sonnet-4-6"],
        efforts: &["low", "medium", "high", "max"],
        enabled: true,
        thinks_by_default: false,
        sampling: Sampling::WithoutThinking,
        forced_tool: ForcedTool::NotWithManual,
        omits_text: false,
        listed: &["claude-opus-4-6", "claude-sonnet-4-6"],
        ..CURRENT
    },
    Model {
        family: "claude-4-5",
        names: &["claude"],
        adaptive: false,
        enabled: true,
        thinks_by_default: false,
        sampling: Sampling::WithoutThinking,
        forced_tool: ForcedTool::NotWithThinking,
        omits_text: false,
        prefill: true,
        efforts: &[],
        listed: &["claude-opus-4-5", "claude-sonnet-4-5", "claude-haiku-4-5"],
        ..CURRENT
    },
];

/// Models of other vendors support every mode and think when asked.
static OTHER: Model = OTHER_RULES;

const OTHER_RULES: Model = Model {
    family: "other",
    enabled: true,
    between_tools: true,
    thinks_by_default: false,
    sampling: Sampling::Free,
    omits_text: false,
    prefill: true,
    ..CURRENT
};

/// Models that no table of a gateway knows, and that support less than others.
static UNKNOWN: &[Model] = &[
    Model {
        family: "always-adaptive",
        names: &["always-adaptive"],
        enabled: false,
        disabled: Refused,
        between_tools: false,
        efforts: &["low", "medium", "high"],
        ..OTHER_RULES
    },
    Model {
        family: "always-budget",
        names: &["always-budget"],
        adaptive: false,
        disabled: Refused,
        between_tools: false,
        efforts: &[],
        ..OTHER_RULES
    },
    Model {
        family: "between-tools",
        names: &["between-tools"],
        enabled: false,
        disabled: Refused,
        ..OTHER_RULES
    },
];

impl Model {
    /// The rules for a model name, known or not.
    pub(crate) fn named(name: &str) -> &'static Self {
        let name = name.to_lowercase().replace('.', "-");
        let mut rows = MODELS.iter().chain(UNKNOWN);
        rows.find(|model| model.names.iter().any(|part| holds(&name, part))).unwrap_or(&OTHER)
    }

    /// Whether this model accepts thinking of that family.
    pub(crate) fn reads(&self, family: &str) -> bool {
        !self.preserved || self.family == family || self.reads.contains(&family)
    }

    fn describe(&self, name: &str) -> Value {
        let supported = |yes: bool| json!({ "supported": yes });
        let effort = |level: &str| supported(self.efforts.contains(&level));
        json!({
            "type": "model",
            "id": name,
            "display_name": display_name(name),
            "created_at": "2026-01-01T00:00:00Z",
            "max_input_tokens": 1_000_000,
            "max_tokens": 128_000,
            "capabilities": {
                "thinking": {
                    "supported": true,
                    "types": {
                        "adaptive": supported(self.adaptive),
                        "enabled": supported(self.enabled),
                        "disabled": supported(self.disabled != Refused),
                        "between_tools": supported(self.between_tools),
                    },
                },
                "effort": {
                    "supported": !self.efforts.is_empty(),
                    "low": effort("low"),
                    "medium": effort("medium"),
                    "high": effort("high"),
                    "xhigh": effort("xhigh"),
                    "max": effort("max"),
                },
            },
        })
    }
}

/// The answer of `GET /v1/models`.
pub(crate) fn list() -> Value {
    let names = || MODELS.iter().flat_map(|model| model.listed);
    let data: Vec<Value> = names().map(|name| describe(name)).collect();
    json!({
        "data": data,
        "has_more": false,
        "first_id": names().next(),
        "last_id": names().next_back(),
    })
}

/// The answer of `GET /v1/models/{name}`; every name has one.
pub(crate) fn describe(name: &str) -> Value {
    Model::named(name).describe(name)
}

/// `fable-5-2` is in `fable-5-2` and `fable-5-2-20261001`, not in `fable-5-20260901`.
fn holds(name: &str, part: &str) -> bool {
    name.match_indices(part).any(|(at, _)| {
        let next = name.as_bytes().get(at + part.len());
        !next.is_some_and(u8::is_ascii_digit)
    })
}

fn display_name(name: &str) -> String {
    let words = name.split('-').map(|word| {
        let mut letters = word.chars();
        let first = letters.next().map(|letter| letter.to_uppercase().to_string());
        first.unwrap_or_default() + letters.as_str()
    });
    words.collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn model_name_selects_its_row() {
        for (name, family) in [
            ("claude-fable-5-2", "fable-5-1"),
            ("claude-fable-5-20260601", "fable-5"),
            ("claude-opus-5-5", "opus-5-5"),
            ("claude-opus-5", "opus-5"),
            ("claude-opus-5-20260701", "opus-5"),
            ("anthropic/claude-opus-4.6", "claude-4-6"),
            ("claude-sonnet-4-5-20250929", "claude-4-5"),
            ("claude-3-5-sonnet-20241022", "claude-4-5"),
            ("claude-opus-4-8", "opus-4-7"),
            ("glm-5", "other"),
            ("always-adaptive", "always-adaptive"),
            ("", "other"),
        ] {
            assert_eq!(Model::named(name).family, family, "{name}");
        }
    }

    #[test]
    fn newer_model_reads_thinking_of_older_ones_but_not_the_reverse() {
        let fable = Model::named("claude-fable-5-1");
        let opus = Model::named("claude-opus-5-5");
        assert!(fable.reads("opus-5-5") && fable.reads("opus-5") && fable.reads("fable-5-1"));
        assert!(!opus.reads("fable-5-1"));
        assert!(Model::named("claude-sonnet-4-5").reads("fable-5-1"));
    }

    #[test]
    fn listed_model_name_selects_its_own_row() {
        for model in MODELS {
            for name in model.listed {
                assert_eq!(Model::named(name).family, model.family, "{name}");
            }
        }
    }
}
