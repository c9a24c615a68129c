//! A client of the Anthropic dialect: it sends every block back unchanged.

use serde_json::{Value, json};
use throughline_testkit::message_from_sse;

use crate::test_client::{Call, ClientRequest, ClientView, History, TestClient, list, text};

#[derive(Default)]
pub(crate) struct Anthropic {
    history: History,
}

impl TestClient for Anthropic {
    fn history(&mut self) -> &mut History {
        &mut self.history
    }

    fn push_each_result(&mut self, results: &[(&Call, &str)]) {
        let results: Vec<Value> = results
            .iter()
            .map(|(call, result)| {
                json!({"type": "tool_result", "tool_use_id": call.id, "content": result})
            })
            .collect();
        self.history.messages.push(json!({"role": "user", "content": results}));
    }

    fn next_request(&self, model: &str, stream: bool) -> ClientRequest {
        let mut body = json!({
            "model": model,
            "max_tokens": 8192,
            "messages": self.history.messages,
            "stream": stream,
        });
        if self.history.thinking {
            body["thinking"] = json!({"type": "enabled", "budget_tokens": 4096});
        }
        if !self.history.system.is_empty() {
            body["system"] = json!([{"type": "text", "text": self.history.system}]);
        }
        if !self.history.tools.is_empty() {
            body["tools"] = self.history.tools(|tool| {
                json!({
                    "name": tool.name, "description": tool.description,
                    "input_schema": tool.parameters,
                })
            });
        }
        if self.history.sets_breakpoints {
            set_breakpoints(&mut body);
        }
        ClientRequest {
            path: "/v1/messages".to_owned(),
            headers: vec![("anthropic-version", "2023-06-01")],
            body,
        }
    }

    fn read(&mut self, body: &str, stream: bool) -> ClientView {
        let message =
            if stream { message_from_sse(body) } else { serde_json::from_str(body).expect("JSON") };
        let mut view = ClientView::default();
        for block in list(&message["content"]) {
            match text(&block["type"]) {
                "thinking" => {
                    let signed = !text(&block["signature"]).is_empty();
                    assert!(signed, "clients drop thinking without a signature: {block}");
                    view.reasoning.push_str(text(&block["thinking"]));
                }
                "text" => view.text.push_str(text(&block["text"])),
                "tool_use" => view.calls.push(Call {
                    id: text(&block["id"]).to_owned(),
                    name: text(&block["name"]).to_owned(),
                    arguments: block["input"].clone(),
                }),
                _ => {}
            }
        }
        self.history.messages.push(json!({"role": "assistant", "content": message["content"]}));
        view
    }
}

/// Ends prefixes after the tools, after the system text and at the end of the last two turns, as coding
/// agents do.
fn set_breakpoints(body: &mut Value) {
    for list in ["tools", "system"] {
        if let Some(parts) = body.get_mut(list) {
            mark_last(parts);
        }
    }
    let messages = body["messages"].as_array_mut().into_iter().flatten();
    let users = messages.rev().filter(|message| message["role"] == "user");
    for (turn, message) in users.enumerate() {
        // A text keeps its form when its breakpoint moves on.
        if let Value::String(text) = &message["content"] {
            message["content"] = json!([{"type": "text", "text": text}]);
        }
        if turn < 2 {
            mark_last(&mut message["content"]);
        }
    }
}

fn mark_last(parts: &mut Value) {
    if let Some(last) = parts.as_array_mut().and_then(|parts| parts.last_mut()) {
        last["cache_control"] = json!({"type": "ephemeral"});
    }
}
