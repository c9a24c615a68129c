//! A client of the Gemini dialect: it sends every part back as it came, signatures in the other
//! alphabet of base64.

use serde_json::{Value, json};

use crate::speaker::{Ask, Call, Said, Speaker, Talk, events, list, parameters, text};

#[derive(Default)]
pub(crate) struct Gemini {
    talk: Talk,
}

impl Speaker for Gemini {
    fn talk(&mut self) -> &mut Talk {
        &mut self.talk
    }

    fn user(&mut self, text: &str) {
        self.talk.messages.push(json!({"role": "user", "parts": [{"text": text}]}));
    }

    fn results(&mut self, calls: &[Call], result: &str) {
        let parts: Vec<Value> = calls
            .iter()
            .map(|call| {
                json!({"functionResponse": {"id": call.id, "name": call.name, "response": {"output": result}}})
            })
            .collect();
        self.talk.messages.push(json!({"role": "user", "parts": parts}));
    }

    fn ask(&self, model: &str, stream: bool) -> Ask {
        let mut body = json!({"contents": self.talk.messages});
        if self.talk.thinks {
            body["generationConfig"] =
                json!({"thinkingConfig": {"include_thoughts": true, "thinking_level": "MEDIUM"}});
        }
        if self.talk.tools {
            body["tools"] = json!([{"functionDeclarations": [
                {"name": "lookup", "parametersJsonSchema": parameters()},
            ]}]);
        }
        let method = if stream { "streamGenerateContent?alt=sse" } else { "generateContent" };
        Ask {
            path: format!("/v1beta/models/{model}:{method}"),
            headers: vec![("x-goog-api-key", "key")],
            body,
        }
    }

    fn read(&mut self, body: &str, stream: bool) -> Said {
        let chunks =
            if stream { events(body) } else { vec![serde_json::from_str(body).expect("JSON")] };
        let mut said = Said::default();
        let mut kept = Vec::new();
        for part in
            chunks.iter().flat_map(|chunk| list(&chunk["candidates"][0]["content"]["parts"]))
        {
            if let Some(call) = part.get("functionCall") {
                said.calls.push(Call {
                    id: text(&call["id"]).to_owned(),
                    name: text(&call["name"]).to_owned(),
                    arguments: call["args"].clone(),
                });
            } else if part["thought"] == true {
                said.reasoning.push_str(text(&part["text"]));
            } else {
                said.text.push_str(text(&part["text"]));
            }
            let mut part = part.clone();
            if let Some(signature) = part.get("thoughtSignature") {
                let url_safe = text(signature).replace('+', "-").replace('/', "_");
                part["thoughtSignature"] = url_safe.into();
            }
            join(&mut kept, part);
        }
        self.talk.messages.push(json!({"role": "model", "parts": kept}));
        said
    }
}

/// Clients join the pieces of one text.
fn join(kept: &mut Vec<Value>, part: Value) {
    if let Some(last) = kept.last_mut()
        && last["text"].is_string()
        && part["text"].is_string()
        && last["thought"] == part["thought"]
        && last.get("thoughtSignature").is_none()
    {
        let joined = format!("{}{}", text(&last["text"]), text(&part["text"]));
        last["text"] = joined.into();
        if let Some(signature) = part.get("thoughtSignature") {
            last["thoughtSignature"] = signature.clone();
        }
        return;
    }
    kept.push(part);
}
