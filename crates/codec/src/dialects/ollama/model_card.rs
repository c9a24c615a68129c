//! The model list: `GET /api/tags` and `POST /api/show`.

use serde_json::{Map, Value, json};
use throughline_canonical::Fault;

use super::LATEST;
use crate::dialects::{Abilities, ModelCard, ModelDetailsFormat, Models};
use crate::json::{Node, read_object};

/// We do not know when a model was created, but clients expect a date.
const MADE: &str = "1970-01-01T00:00:00Z";

/// `POST /api/show`.
pub static DETAILS: ModelDetailsFormat = ModelDetailsFormat {
    read_request: read_name,
    write_request: |name| json!({"model": name}).to_string(),
    write_answer: write_details,
    // Clients look for this text before they offer to pull the model.
    not_found: |name| format!("model '{name}' not found"),
};

/// Reads the model list, or the description of one model, which does not contain its name.
pub(super) fn read(answer: &Value) -> Vec<ModelCard> {
    let named = |model: &Value| {
        let name = model.get("model").or_else(|| model.get("name"))?.as_str()?;
        Some(ModelCard { name: name.to_owned(), ..read_card(model) })
    };
    match answer.get("models").and_then(Value::as_array) {
        Some(models) => models.iter().filter_map(named).collect(),
        None => Vec::new(),
    }
}

/// Reads the description of a model.
fn read_card(model: &Value) -> ModelCard {
    let able = model.get("capabilities").and_then(Value::as_array);
    let context = model.get("model_info").and_then(Value::as_object).and_then(|info| {
        let mut lengths = info.iter();
        let (_, length) = lengths.find(|(name, _)| name.ends_with(".context_length"))?;
        length.as_u64()
    });
    ModelCard {
        thinks: able.map(|able| able.iter().any(|word| word == "thinking")),
        context,
        ..ModelCard::default()
    }
}

/// Writes one model or a list.
pub(super) fn write(models: Models<'_>) -> Value {
    let one = |card: &ModelCard| {
        json!({
            "name": card.name,
            "model": card.name,
            "modified_at": MADE,
            "size": 0,
            "digest": "",
            "details": details(),
        })
    };
    match models {
        Models::One(card) => one(card),
        Models::All(cards) => json!({"models": cards.iter().map(one).collect::<Vec<_>>()}),
    }
}

/// The model that a client asks about, without the default tag.
pub(super) fn read_name(body: &[u8]) -> Result<String, Fault> {
    let body = read_object(body, None)?;
    let root = Node::root(&body);
    // The older name of the member.
    let named = match root.get("model") {
        Some(named) => named,
        None => match root.get("name") {
            Some(named) => named,
            None => root.need("model")?,
        },
    };
    match named.text()? {
        "" => Err(named.refuse("is empty")),
        name => Ok(name.strip_suffix(LATEST).unwrap_or(name).to_owned()),
    }
}

/// Writes the description of a model.
pub(super) fn write_details(abilities: Abilities) -> Value {
    let mut can = vec!["completion", "tools"];
    if abilities.sees {
        can.push("vision");
    }
    if abilities.thinks {
        can.push("thinking");
    }
    let mut info = Map::new();
    info.insert("general.architecture".to_owned(), "throughline".into());
    if let Some(context) = abilities.context {
        info.insert("throughline.context_length".to_owned(), context.into());
    }
    json!({
        "modelfile": "",
        "parameters": "",
        "template": "",
        "details": details(),
        "model_info": info,
        "capabilities": can,
        "modified_at": MADE,
    })
}

fn details() -> Value {
    json!({
        "parent_model": "",
        "format": "",
        "family": "",
        "families": [],
        "parameter_size": "",
        "quantization_level": "",
    })
}
