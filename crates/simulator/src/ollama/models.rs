//! Models: which there are, what each can do, and what is refused for it.

use serde_json::{Value, json};

use super::ask::Ask;
use crate::refusal::Refusal;

/// Names that stand for the kinds there are; every other name is answered too.
const LISTED: &[&str] = &["qwen3:8b", "gpt-oss:20b", "llama3.2:3b"];

/// What a model does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// It thinks, unless it is told not to.
    Thinks,
    /// It always thinks, more or less.
    Levels,
    /// It does not think.
    Plain,
}

impl Kind {
    pub(super) fn of(model: &str) -> Self {
        let model = model.to_lowercase();
        let has = |words: &[&str]| words.iter().any(|word| model.contains(word));
        if has(&["gpt-oss"]) {
            Self::Levels
        } else if has(&["qwen3", "deepseek-r1", "deepseek-v3.1", "magistral", "think"]) {
            Self::Thinks
        } else {
            Self::Plain
        }
    }
}

/// Whether a model thinks.
pub(crate) fn thinks(model: &str) -> bool {
    Kind::of(model) != Kind::Plain
}

/// What is said where a model is told to think that does not.
pub(crate) fn refuse_thinking(model: &str) -> Refusal {
    Refusal::invalid(format!("\"{model}\" does not support thinking"))
}

/// Refuses what the model cannot do.
pub(super) fn check(ask: &Ask) -> Result<(), Refusal> {
    let asked = match ask.get("think") {
        Value::Bool(wanted) => *wanted,
        Value::String(_) => true,
        _ => false,
    };
    match asked && !thinks(ask.model()) {
        true => Err(refuse_thinking(ask.model())),
        false => Ok(()),
    }
}

/// The list of models.
pub(super) fn list() -> Value {
    let one = |name: &&str| {
        json!({
            "name": name, "model": name, "modified_at": super::reply::CREATED,
            "size": 1, "digest": "0", "details": details(name),
        })
    };
    json!({ "models": LISTED.iter().map(one).collect::<Vec<_>>() })
}

/// What is told of one model.
pub(super) fn show(name: &str) -> Value {
    let mut can = vec!["completion", "tools"];
    if thinks(name) {
        can.push("thinking");
    }
    let family = family(name);
    let mut info = json!({ "general.architecture": family });
    info[format!("{family}.context_length")] = 40_960.into();
    json!({
        "modelfile": "", "parameters": "", "template": "", "details": details(name),
        "model_info": info, "capabilities": can, "modified_at": super::reply::CREATED,
    })
}

fn details(name: &str) -> Value {
    json!({
        "parent_model": "", "format": "gguf", "family": family(name), "families": [family(name)],
        "parameter_size": "8B", "quantization_level": "Q4_K_M",
    })
}

fn family(name: &str) -> &str {
    name.split([':', '.']).next().unwrap_or_default()
}
