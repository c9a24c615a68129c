//! The models: their list, what each one can do, and what it refuses.

use serde_json::{Value, json};

use super::request::ParsedRequest;
use crate::refusal::Refusal;

/// One example name for each set of rules; every other name is accepted too.
const LISTED: &[&str] = &["qwen3:8b", "gpt-oss:20b", "llama3.2:3b"];

/// Whether a model thinks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ThinkingSupport {
    /// It thinks unless the request switches it off.
    Thinks,
    /// It always thinks; a level sets how much.
    Levels,
    /// It does not think.
    Plain,
}

impl ThinkingSupport {
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
    ThinkingSupport::of(model) != ThinkingSupport::Plain
}

/// The refusal of a request that asks a model to think which cannot.
pub(crate) fn refuse_thinking(model: &str) -> Refusal {
    Refusal::invalid(format!("\"{model}\" does not support thinking"))
}

/// Refuses what the model cannot do.
pub(super) fn check(request: &ParsedRequest) -> Result<(), Refusal> {
    let wants_thinking = match request.get("think") {
        Value::Bool(wanted) => *wanted,
        Value::String(_) => true,
        _ => false,
    };
    match wants_thinking && !thinks(request.model()) {
        true => Err(refuse_thinking(request.model())),
        false => Ok(()),
    }
}

/// The answer of `GET /api/tags`.
pub(super) fn list() -> Value {
    let one = |name: &&str| {
        json!({
            "name": name, "model": name, "modified_at": super::reply::CREATED,
            "size": 1, "digest": "0", "details": details(name),
        })
    };
    json!({ "models": LISTED.iter().map(one).collect::<Vec<_>>() })
}

/// The answer of `POST /api/show`.
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
