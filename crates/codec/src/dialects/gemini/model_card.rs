//! The model list: `GET /v1beta/models`, or one model of it.

use serde_json::{Value, json};
use throughline_canonical::Fault;

use crate::dialects::shared::model_card::{index_of, page_length};
use crate::dialects::{ModelCard, Models};

/// Reads one model or a list.
pub fn read(answer: &Value) -> Vec<ModelCard> {
    match answer.get("models").and_then(Value::as_array) {
        Some(models) => models.iter().filter_map(read_one).collect(),
        None => read_one(answer).into_iter().collect(),
    }
}

/// Writes one model, or the page of the list that `pageSize` and `pageToken` select. A token is the
/// name of the last model of the previous page.
pub fn write(models: Models<'_>, query: &str) -> Result<Value, Fault> {
    let cards = match models {
        Models::One(card) => return Ok(write_one(card)),
        Models::All(cards) => cards,
    };
    let mut length = page_length(query, "pageSize", 0)?.min(page_length(query, "page_size", 0)?);
    if length == 0 {
        // As if absent.
        length = usize::MAX;
    }
    let after = match index_of(cards, query, "pageToken")? {
        None => index_of(cards, query, "page_token")?,
        after => after,
    };
    let rest = &cards[after.map_or(0, |after| after + 1)..];
    let page = &rest[..length.min(rest.len())];
    let mut list = json!({"models": page.iter().map(write_one).collect::<Vec<_>>()});
    if let Some(last) = page.last().filter(|_| page.len() < rest.len()) {
        list["nextPageToken"] = last.name.as_str().into();
    }
    Ok(list)
}

fn write_one(card: &ModelCard) -> Value {
    let mut model = json!({
        "name": format!("models/{}", card.name),
        "displayName": card.name,
        "supportedGenerationMethods": ["generateContent", "streamGenerateContent", "countTokens"],
    });
    for (member, count) in
        [("outputTokenLimit", card.max_output), ("inputTokenLimit", card.context)]
    {
        if let Some(count) = count {
            model[member] = count.into();
        }
    }
    if let Some(thinks) = card.thinks {
        model["thinking"] = thinks.into();
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

/// Reads a number, which may be a string.
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
    fn model_limits_are_read() {
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
        let bare = ModelCard { name: "tunedModels/mine".to_owned(), ..ModelCard::default() };
        let list = json!({"models": [model, {"name": "tunedModels/mine"}, {}]});
        assert_eq!(read(&list), [card, bare]);
        assert_eq!(read(&json!({"models": 7})), []);
    }

    #[test]
    fn model_list_has_pages() {
        let card = |name: &str| ModelCard { name: name.to_owned(), ..ModelCard::default() };
        let cards = ["a", "b", "c"].map(card);
        let page = |query: &str| {
            let list = write(Models::All(&cards), query)?;
            let names: Vec<String> = read(&list).into_iter().map(|card| card.name).collect();
            let next = list["nextPageToken"].as_str().unwrap_or_default();
            Ok::<_, Fault>(format!("{} {next}", names.join(",")))
        };
        for (query, expected) in [
            ("", "a,b,c "),
            ("pageSize=0", "a,b,c "),
            ("pageSize=99999", "a,b,c "),
            ("pageSize=2", "a,b b"),
            ("page_size=2&page_token=b", "c "),
            ("pageToken=a&pageSize=1", "b b"),
            ("pageToken=c", " "),
        ] {
            assert_eq!(page(query).as_deref(), Ok(expected), "{query}");
        }
        assert!(page("pageSize=-1").is_err());
        assert!(page("pageToken=z").is_err());
    }
}
