//! What a server of this dialect tells of its models: `GET /v1beta/models`, or one of them.

use serde_json::Value;

use crate::dialects::ModelCard;

/// Reads one model, or the list of them.
pub fn read(answer: &Value) -> Vec<ModelCard> {
    match answer.get("models").and_then(Value::as_array) {
        Some(models) => models.iter().filter_map(read_one).collect(),
        None => read_one(answer).into_iter().collect(),
    }
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
