//! The model list of OpenAI's dialects: `GET /v1/models`.

use serde_json::{Value, json};

use super::names;
use crate::dialects::{ModelCard, Models};

/// The dialects with this list.
pub(crate) const DIALECTS: [&str; 2] = [names::OPENAI_CHAT, names::OPENAI_RESPONSES];

/// Reads one model or a list.
pub(crate) fn read(answer: &Value) -> Vec<ModelCard> {
    let one = |model: &Value| {
        Some(ModelCard {
            name: model.get("id")?.as_str()?.to_owned(),
            // Servers other than OpenAI add the context length.
            context: model["context_length"].as_u64().or(model["max_model_len"].as_u64()),
            ..ModelCard::default()
        })
    };
    match answer.get("data").and_then(Value::as_array) {
        Some(models) => models.iter().filter_map(one).collect(),
        None => one(answer).into_iter().collect(),
    }
}

/// Writes one model or a list. We do not know when a model was created.
pub(crate) fn write(models: Models<'_>) -> Value {
    let one = |card: &ModelCard| json!({"id": card.name, "object": "model", "created": 0, "owned_by": "throughline"});
    match models {
        Models::One(card) => one(card),
        Models::All(cards) => {
            json!({"object": "list", "data": cards.iter().map(one).collect::<Vec<_>>()})
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn written_model_list_reads_back() {
        let card = |name: &str| ModelCard { name: name.to_owned(), ..ModelCard::default() };
        let cards = [card("one"), card("two")];
        assert_eq!(read(&write(Models::All(&cards))), cards);
        assert_eq!(read(&write(Models::One(&cards[1]))), cards[1..]);
        let answer = json!({"data": [{"id": "x", "max_model_len": 4096}, {}, 7]});
        assert_eq!(read(&answer)[0].context, Some(4096));
        assert_eq!(read(&answer).len(), 1);
    }
}
