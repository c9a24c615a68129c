//! `POST /v1/responses/compact`: the conversation as the user's messages and one encrypted summary.

use serde_json::{Value, json};

use super::models::Model;
use super::request::{Item, ItemKind, ParsedRequest};
use crate::draft::identifier;
use crate::exchange::Exchange;
use crate::openai::CREATED;
use crate::prompt_cache::PromptPart;
use crate::refusal::Refusal;
use crate::signing::{Claim, Hash, SignatureKind, Signer, hash};

/// The type of the summary's item.
const KIND: &str = "compaction";

/// Answers a request.
pub(crate) fn compact(exchange: &Exchange<'_>, request: &ParsedRequest) -> Value {
    let seed = exchange.seed(&request.model, &request.conversation());
    let id = format!("cmp_{}", identifier(&seed, KIND, 0));
    let all: Vec<String> = request.items.iter().map(|item| read(item, exchange.signer())).collect();
    let claim = Claim {
        family: Model::named(&request.model).family,
        shown: &id,
        hidden: &all.join("\n"),
        prefix: Hash::default(),
        nonce: 0,
        ordinal: 0,
    };
    let sealed = exchange.signer().sign(SignatureKind::Compaction, &claim);
    let users = request.items.iter().filter(|item| item.kind() == ItemKind::User);
    let ids = (0..).map(|index| format!("msg_{}", identifier(&seed, "message", index)));
    let mut output: Vec<Value> = users.zip(ids).map(|(item, id)| message(item, &id)).collect();
    output.push(json!({"type": KIND, "id": id, "encrypted_content": sealed}));
    let tokens = PromptPart::total(&request.prompt());
    json!({
        "id": format!("resp_{}", identifier(&seed, "response", 0)),
        "object": "response.compaction",
        "created_at": CREATED,
        "output": output,
        "usage": {
            "input_tokens": tokens, "input_tokens_details": {"cached_tokens": 0},
            "output_tokens": 16, "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": tokens + 16,
        },
    })
}

/// A message of the user as the provider writes it, whatever the client left out.
fn message(item: &Item, id: &str) -> Value {
    let content = match &item.value["content"] {
        Value::String(text) => json!([{"type": "input_text", "text": text}]),
        content => content.clone(),
    };
    let mut whole = json!({"type": "message", "id": item.get("id").unwrap_or(id),
        "status": "completed", "role": "user", "content": content});
    let parts = whole["content"].as_array_mut().into_iter().flatten();
    for part in parts.filter(|part| part["type"] == "input_image" && part["detail"].is_null()) {
        part["detail"] = "auto".into();
    }
    whole
}

/// What the model reads of an item. It reads the summary that is encrypted.
pub(crate) fn read(item: &Item, signer: &Signer) -> String {
    let sealed = item.get("encrypted_content").filter(|_| item.value["type"] == KIND);
    let opened = sealed.and_then(|sealed| signer.open(SignatureKind::Compaction, sealed));
    opened.map_or_else(|| item.value.to_string(), |opened| opened.hidden)
}

/// Refuses a summary that another identity wrote, or that was altered.
pub(crate) fn verify(item: &Item, signer: &Signer) -> Result<(), Refusal> {
    if item.value["type"] != KIND {
        return Ok(());
    }
    let sealed = item.get("encrypted_content").unwrap_or_default();
    let opened = signer.open(SignatureKind::Compaction, sealed);
    let is_its =
        |id: &str| opened.as_ref().is_some_and(|opened| opened.shown == hash(&[id.as_bytes()]));
    match (&opened, item.get("id")) {
        (Some(_), None) => Ok(()),
        (Some(_), Some(id)) if is_its(id) => Ok(()),
        _ => Err(super::verify::unreadable(sealed)),
    }
}
