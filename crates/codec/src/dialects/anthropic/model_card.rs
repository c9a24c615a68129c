//! What a server of this dialect tells of its models: `GET /v1/models/{id}`, or the whole list.

use serde_json::{Value, json};

use super::EFFORTS;
use crate::dialects::{ModelCard, Models};

/// Reads one model, or the list of them.
pub fn read(answer: &Value) -> Vec<ModelCard> {
    match answer.get("data").and_then(Value::as_array) {
        Some(models) => models.iter().filter_map(read_one).collect(),
        None => read_one(answer).into_iter().collect(),
    }
}

/// Writes one model, or the list of them. When a model was made nobody tells us.
pub fn write(models: Models<'_>) -> Value {
    match models {
        Models::One(card) => write_one(card),
        Models::All(cards) => json!({
            "data": cards.iter().map(write_one).collect::<Vec<_>>(),
            "has_more": false,
            "first_id": cards.first().map(|card| &card.name),
            "last_id": cards.last().map(|card| &card.name),
        }),
    }
}

fn write_one(card: &ModelCard) -> Value {
    let mut model = json!({
        "type": "model",
        "id": card.name,
        "display_name": card.name,
        "created_at": "1970-01-01T00:00:00Z",
    });
    for (member, count) in [
        ("max_tokens", card.max_output),
        ("max_input_tokens", card.context),
    ] {
        if let Some(count) = count {
            model[member] = count.into();
        }
    }
    model
}

fn read_one(model: &Value) -> Option<ModelCard> {
    let thinking = &model["capabilities"]["thinking"];
    let effort = &model["capabilities"]["effort"];
    let takes = |mode: &str| thinking["types"][mode]["supported"].as_bool();
    Some(ModelCard {
        name: model.get("id")?.as_str()?.to_owned(),
        max_output: model["max_tokens"].as_u64(),
        context: model["max_input_tokens"].as_u64(),
        thinks: thinking["supported"].as_bool(),
        adaptive: takes("adaptive"),
        budget: takes("enabled"),
        off: takes("disabled"),
        between_tools: takes("between_tools"),
        efforts: EFFORTS
            .into_iter()
            .filter(|step| effort[step.word()]["supported"] == true)
            .collect(),
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use throughline_canonical::Effort;

    use super::*;

    #[test]
    fn a_model_tells_what_it_takes() {
        let model = json!({
            "type": "model", "id": "claude-next", "display_name": "Next",
            "max_tokens": 64000, "max_input_tokens": 500000,
            "capabilities": {
                "thinking": {"supported": true, "types": {
                    "adaptive": {"supported": true}, "enabled": {"supported": false},
                    "disabled": {"supported": false}, "between_tools": {"supported": true}}},
                "effort": {"supported": true, "low": {"supported": true},
                    "high": {"supported": true}, "max": {"supported": false}},
            },
        });
        let card = ModelCard {
            name: "claude-next".to_owned(),
            max_output: Some(64000),
            context: Some(500_000),
            thinks: Some(true),
            adaptive: Some(true),
            budget: Some(false),
            off: Some(false),
            between_tools: Some(true),
            efforts: vec![Effort::Low, Effort::High],
        };
        assert_eq!(read(&model), std::slice::from_ref(&card));
        let bare = ModelCard {
            name: "old".to_owned(),
            ..ModelCard::default()
        };
        let list = json!({"data": [model, {"id": "old"}, {"type": "model"}, 7], "has_more": false});
        assert_eq!(read(&list), [card, bare]);
        for nothing in [json!(null), json!([]), json!({"id": 7}), json!("x")] {
            assert_eq!(read(&nothing), []);
        }
    }
}
