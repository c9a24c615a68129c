//! The model list: `GET /v1/models/{id}` and `GET /v1/models`.

use serde_json::{Map, Value, json};
use throughline_canonical::Fault;

use super::EFFORTS;
use crate::dialects::shared::model_card::{index_of, page_length};
use crate::dialects::{ModelCard, Models};

/// Reads one model or a list.
pub fn read(answer: &Value) -> Vec<ModelCard> {
    match answer.get("data").and_then(Value::as_array) {
        Some(models) => models.iter().filter_map(read_one).collect(),
        None => read_one(answer).into_iter().collect(),
    }
}

/// Writes one model, or the page of the list that `limit`, `after_id` and `before_id` select. We do
/// not know when a model was created.
pub fn write(models: Models<'_>, query: &str) -> Result<Value, Fault> {
    let cards = match models {
        Models::One(card) => return Ok(write_one(card)),
        Models::All(cards) => cards,
    };
    let limit = page_length(query, "limit", 1)?;
    let after = index_of(cards, query, "after_id")?;
    let before = index_of(cards, query, "before_id")?;
    let (page, has_more) = match (after, before) {
        // The page before this model; clients follow it backwards.
        (None, Some(before)) => {
            let start = before.saturating_sub(limit);
            (&cards[start..before], start > 0)
        }
        (after, before) => {
            let start = after.map_or(0, |after| after + 1);
            let end = before.unwrap_or(cards.len()).max(start);
            let page = &cards[start..end];
            (&page[..limit.min(page.len())], limit < page.len())
        }
    };
    Ok(json!({
        "data": page.iter().map(write_one).collect::<Vec<_>>(),
        "has_more": has_more,
        "first_id": page.first().map(|card| &card.name),
        "last_id": page.last().map(|card| &card.name),
    }))
}

fn write_one(card: &ModelCard) -> Value {
    let mut model = json!({
        "type": "model",
        "id": card.name,
        "display_name": card.name,
        "created_at": "1970-01-01T00:00:00Z",
    });
    for (member, count) in [("max_tokens", card.max_output), ("max_input_tokens", card.context)] {
        if let Some(count) = count {
            model[member] = count.into();
        }
    }
    let mut capabilities = Map::new();
    if let Some(thinks) = card.thinks {
        let types: Map<String, Value> = [
            ("adaptive", card.adaptive),
            ("enabled", card.budget),
            ("disabled", card.off),
            ("between_tools", card.between_tools),
        ]
        .into_iter()
        .filter_map(|(mode, takes)| Some((mode.to_owned(), json!({"supported": takes?}))))
        .collect();
        let thinking = json!({"supported": thinks, "types": types});
        capabilities.insert("thinking".to_owned(), thinking);
    }
    if !card.efforts.is_empty() {
        let mut effort = json!({"supported": true});
        for step in EFFORTS {
            effort[step.word()] = json!({"supported": card.efforts.contains(&step)});
        }
        capabilities.insert("effort".to_owned(), effort);
    }
    if !capabilities.is_empty() {
        model["capabilities"] = capabilities.into();
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
    fn model_abilities_are_read() {
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
        let written = write(Models::One(&card), "").unwrap();
        assert_eq!(read(&written), std::slice::from_ref(&card));
        let bare = ModelCard { name: "old".to_owned(), ..ModelCard::default() };
        let list = json!({"data": [model, {"id": "old"}, {"type": "model"}, 7], "has_more": false});
        assert_eq!(read(&list), [card, bare]);
        for nothing in [json!(null), json!([]), json!({"id": 7}), json!("x")] {
            assert_eq!(read(&nothing), []);
        }
    }

    #[test]
    fn model_list_has_pages() {
        let card = |name: &str| ModelCard { name: name.to_owned(), ..ModelCard::default() };
        let cards = ["a", "b", "c d", "e"].map(card);
        let page = |query: &str| {
            let list = write(Models::All(&cards), query)?;
            let ids = list["data"].as_array().unwrap().iter();
            let ids: Vec<&str> = ids.map(|model| model["id"].as_str().unwrap()).collect();
            assert_eq!(list["first_id"].as_str(), ids.first().copied());
            assert_eq!(list["last_id"].as_str(), ids.last().copied());
            Ok::<_, Fault>(format!("{} {}", ids.join(","), list["has_more"]))
        };
        for (query, expected) in [
            ("", "a,b,c d,e false"),
            ("beta=true", "a,b,c d,e false"),
            ("limit=1000", "a,b,c d,e false"),
            ("limit=2", "a,b true"),
            ("limit=2&after_id=b", "c d,e false"),
            ("after_id=b&limit=1", "c d true"),
            ("after_id=e", " false"),
            ("before_id=c%20d&limit=1", "b true"),
            ("before_id=c%20d", "a,b false"),
            ("after_id=a&before_id=e&limit=1", "b true"),
            ("after_id=e&before_id=a", " false"),
        ] {
            assert_eq!(page(query).as_deref(), Ok(expected), "{query}");
        }
        for (query, says) in [
            ("limit=0", "limit: expected a whole number 1 to 1000"),
            ("limit=x", "limit: expected a whole number 1 to 1000"),
            ("after_id=z", "after_id: `z` is not in the list of models"),
        ] {
            assert_eq!(page(query).unwrap_err().message, says);
        }
    }
}
