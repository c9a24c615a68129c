//! What a server of this dialect tells of its models: `GET /v1beta/models`, or one of them.

use serde_json::{Value, json};

use crate::dialects::{ModelCard, Models};

/// Reads one model, or the list of them.
pub fn read(answer: &Value) -> Vec<ModelCard> {
    match answer.get("models").and_then(Value::as_array) {
        Some(models) => models.iter().filter_map(read_one).collect(),
        None => read_one(answer).into_iter().collect(),
    }
}

/// Writes one model, or the list of them.
pub fn write(models: Models<'_>) -> Value {
    match models {
        Models::One(card) => write_one(card),
        Models::All(cards) => json!({"models": cards.iter().map(write_one).collect::<Vec<_>>()}),
    }
}

fn write_one(card: &ModelCard) -> Value {
    let mut model = json!({
        "name": format!("models/{}", card.name),
        "displayName": card.name,
        "supportedGenerationMethods": ["generateContent", "streamGenerateContent", "countTokens"],
    });
    for (member, count) in [
        ("outputTokenLimit", card.max_output),
        ("inputTokenLimit", card.context),
    ] {
        if let Some(count) = count {
            model[member] = count.into();
        }
    }
    model
}

fn read_one(model: &Value) -> Option<ModelCard> {
    let name = model.get("name")?.as_str()?;
    Some(ModelCard {
        name: name.strip_prefix("models/").unwrap_or(name).to_owned(),
        max_output: count(&model["outputTokenLimit"]),
        context: count(&model["inputTokenLimit"]),
        thinks: model["thinking"].as_bool(),
        ..ModelCard::default()
    })
}

/// Large numbers may come as text.
fn count(value: &Value) -> Option<u64> {
    match value {
        Value::String(text) => text.parse().ok(),
        value => value.as_u64(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_model_tells_its_limits() {
        let model = json!({"name": "models/gemini-next", "inputTokenLimit": 2000000,
            "outputTokenLimit": "99000", "thinking": true});
        let card = ModelCard {
            name: "gemini-next".to_owned(),
            max_output: Some(99_000),
            context: Some(2_000_000),
            thinks: Some(true),
            ..ModelCard::default()
        };
        assert_eq!(read(&model), std::slice::from_ref(&card));
        let bare = ModelCard {
            name: "tunedModels/mine".to_owned(),
            ..ModelCard::default()
        };
        let list = json!({"models": [model, {"name": "tunedModels/mine"}, {}]});
        assert_eq!(read(&list), [card, bare]);
        assert_eq!(read(&json!({"models": 7})), []);
    }
}
