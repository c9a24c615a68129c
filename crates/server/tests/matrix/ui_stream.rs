//! A client of the UI message stream: it keeps the parts of a message as `useChat` does, and sends
//! the message back with the output of its tools.

use serde_json::{Value, json};

use crate::test_client::{Call, ClientRequest, ClientView, History, TestClient, events, text};

#[derive(Default)]
pub(crate) struct UiStream {
    history: History,
}

impl UiStream {
    /// Returns the parts of the assistant's message. A reply after tool results continues that
    /// message.
    fn parts(&mut self) -> &mut Vec<Value> {
        let continues =
            self.history.messages.last().is_some_and(|message| message["role"] == "assistant");
        if !continues {
            let id = format!("m{}", self.history.messages.len());
            self.history.messages.push(json!({"id": id, "role": "assistant", "parts": []}));
        }
        let message = self.history.messages.last_mut().expect("a message");
        message["parts"].as_array_mut().expect("parts")
    }
}

impl TestClient for UiStream {
    fn history(&mut self) -> &mut History {
        &mut self.history
    }

    fn push_user(&mut self, text: &str) {
        let id = format!("m{}", self.history.messages.len());
        let parts = json!([{"type": "text", "text": text}]);
        self.history.messages.push(json!({"id": id, "role": "user", "parts": parts}));
    }

    fn push_each_result(&mut self, results: &[(&Call, &str)]) {
        for part in self.parts() {
            let is_result = |(call, _): &&(&Call, &str)| part["toolCallId"] == *call.id;
            if let Some((_, result)) = results.iter().find(is_result) {
                part["state"] = "output-available".into();
                part["output"] = (*result).into();
            }
        }
    }

    fn next_request(&self, model: &str, _: bool) -> ClientRequest {
        let mut body = json!({
            "id": "chat-1",
            "trigger": "submit-message",
            "messages": self.history.messages,
            "model": model,
            "reasoning_effort": if self.history.thinking { "medium" } else { "none" },
        });
        if !self.history.system.is_empty() {
            let parts = json!([{"type": "text", "text": self.history.system}]);
            let system = json!({"id": "system", "role": "system", "parts": parts});
            body["messages"].as_array_mut().expect("a list").insert(0, system);
        }
        if !self.history.tools.is_empty() {
            let tools = self.history.tools.iter().map(|tool| {
                let written =
                    json!({"description": tool.description, "inputSchema": tool.parameters});
                (tool.name.clone(), written)
            });
            body["tools"] = Value::Object(tools.collect());
        }
        ClientRequest { path: "/ui/chat".to_owned(), headers: Vec::new(), body }
    }

    fn read(&mut self, body: &str, _: bool) -> ClientView {
        assert!(body.ends_with("data: [DONE]\n\n"), "{body}");
        let mut view = ClientView::default();
        let parts = self.parts();
        for chunk in events(body) {
            let kind = text(&chunk["type"]);
            match kind {
                "start" | "finish-step" => {}
                "start-step" => parts.push(json!({"type": "step-start"})),
                "text-start" | "reasoning-start" => {
                    let kind = kind.trim_end_matches("-start");
                    parts.push(json!({"type": kind, "id": chunk["id"], "text": ""}));
                }
                "text-delta" | "reasoning-delta" => {
                    let more = text(&chunk["delta"]);
                    let part = open(parts, &chunk);
                    part["text"] = format!("{}{more}", text(&part["text"])).into();
                    match kind {
                        "text-delta" => view.text.push_str(more),
                        _ => view.reasoning.push_str(more),
                    }
                }
                "text-end" | "reasoning-end" => {
                    let part = open(parts, &chunk);
                    part["state"] = "done".into();
                    if let Some(metadata) = chunk.get("providerMetadata") {
                        part["providerMetadata"] = metadata.clone();
                    }
                }
                "tool-input-start" | "tool-input-delta" => {}
                "tool-input-available" => {
                    let mut part = json!({
                        "type": format!("tool-{}", text(&chunk["toolName"])),
                        "toolCallId": chunk["toolCallId"],
                        "state": "input-available",
                        "input": chunk["input"],
                    });
                    if let Some(metadata) = chunk.get("providerMetadata") {
                        part["callProviderMetadata"] = metadata.clone();
                    }
                    parts.push(part);
                    view.calls.push(Call {
                        id: text(&chunk["toolCallId"]).to_owned(),
                        name: text(&chunk["toolName"]).to_owned(),
                        arguments: chunk["input"].clone(),
                    });
                }
                "finish" => {
                    let reason = if view.calls.is_empty() { "stop" } else { "tool-calls" };
                    assert_eq!(chunk["finishReason"], reason, "{chunk}");
                }
                other => panic!("a chunk of type {other}"),
            }
        }
        view
    }
}

/// Returns the open part that a chunk belongs to.
fn open<'a>(parts: &'a mut [Value], chunk: &Value) -> &'a mut Value {
    let (kind, _) = text(&chunk["type"]).split_once('-').expect("a kind");
    let is_open = |part: &Value| {
        part["type"] == kind && part["id"] == chunk["id"] && part.get("state").is_none()
    };
    let part = parts.iter_mut().rfind(|part| is_open(part));
    part.unwrap_or_else(|| panic!("no open part for {chunk}"))
}
