//! Clients of the Gemini dialect: one sends every part back unchanged, but writes signatures in
//! URL-safe base64. Others drop parts of them.

use serde_json::{Value, json};

use crate::test_client::{
    Call, ClientRequest, ClientView, History, TestClient, events, list, text,
};

#[derive(Default)]
pub(crate) struct Gemini {
    history: History,
    dropped: Dropped,
}

/// What a client does not send back.
#[derive(Clone, Copy, Default, PartialEq)]
pub(crate) enum Dropped {
    #[default]
    Nothing,
    /// The ids of calls, and the signatures of thoughts and texts. The signatures of calls stay.
    IdsAndSignatures,
    /// Everything but texts and calls.
    All,
}

impl Gemini {
    pub(crate) fn dropping(dropped: Dropped) -> Self {
        Self { dropped, ..Self::default() }
    }

    /// A part as the client sends it back.
    fn kept(&self, part: &Value) -> Option<Value> {
        let mut part = part.clone();
        let calls = part.get("functionCall").is_some();
        let members = part.as_object_mut().expect("a part");
        if self.dropped != Dropped::Nothing {
            if let Some(call) = members.get_mut("functionCall") {
                call.as_object_mut().expect("a call").shift_remove("id");
            }
            if !calls || self.dropped == Dropped::All {
                members.shift_remove("thoughtSignature");
            }
            let is_empty = members.get("text").is_some_and(|text| text == "");
            if is_empty || self.dropped == Dropped::All && members.contains_key("thought") {
                return None;
            }
        }
        if let Some(signature) = members.get_mut("thoughtSignature") {
            *signature = text(signature).replace('+', "-").replace('/', "_").into();
        }
        Some(part)
    }
}

impl TestClient for Gemini {
    fn history(&mut self) -> &mut History {
        &mut self.history
    }

    fn push_user(&mut self, text: &str) {
        self.history.messages.push(json!({"role": "user", "parts": [{"text": text}]}));
    }

    fn push_each_result(&mut self, results: &[(&Call, &str)]) {
        let parts: Vec<Value> = results
            .iter()
            .map(|(call, result)| {
                let mut response = json!({"name": call.name, "response": {"output": result}});
                if self.dropped == Dropped::Nothing {
                    response["id"] = call.id.as_str().into();
                }
                json!({"functionResponse": response})
            })
            .collect();
        self.history.messages.push(json!({"role": "user", "parts": parts}));
    }

    fn next_request(&self, model: &str, stream: bool) -> ClientRequest {
        let mut body = json!({"contents": self.history.messages});
        if self.history.thinking {
            body["generationConfig"] =
                json!({"thinkingConfig": {"include_thoughts": true, "thinking_level": "MEDIUM"}});
        }
        if !self.history.system.is_empty() {
            body["systemInstruction"] = json!({"parts": [{"text": self.history.system}]});
        }
        if !self.history.tools.is_empty() {
            let tools = self.history.tools(|tool| {
                json!({
                    "name": tool.name, "description": tool.description,
                    "parametersJsonSchema": tool.parameters,
                })
            });
            body["tools"] = json!([{"functionDeclarations": tools}]);
        }
        let method = if stream { "streamGenerateContent?alt=sse" } else { "generateContent" };
        ClientRequest {
            path: format!("/v1beta/models/{model}:{method}"),
            headers: vec![("x-goog-api-key", "key")],
            body,
        }
    }

    fn read(&mut self, body: &str, stream: bool) -> ClientView {
        let chunks =
            if stream { events(body) } else { vec![serde_json::from_str(body).expect("JSON")] };
        let mut view = ClientView::default();
        let mut kept = Vec::new();
        for part in
            chunks.iter().flat_map(|chunk| list(&chunk["candidates"][0]["content"]["parts"]))
        {
            if let Some(call) = part.get("functionCall") {
                view.calls.push(Call {
                    id: text(&call["id"]).to_owned(),
                    name: text(&call["name"]).to_owned(),
                    arguments: call["args"].clone(),
                });
            } else if part["thought"] == true {
                view.reasoning.push_str(text(&part["text"]));
            } else {
                view.text.push_str(text(&part["text"]));
            }
            if let Some(part) = self.kept(part) {
                join(&mut kept, part);
            }
        }
        self.history.messages.push(json!({"role": "model", "parts": kept}));
        view
    }
}

/// Joins the pieces of one text, as clients do.
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
