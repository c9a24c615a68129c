//! Clients of the Anthropic dialect: one sends every block back unchanged, the other sends only new
//! messages and names the previous one.

use serde_json::{Value, json};
use throughline_testkit::message_from_sse;

use crate::test_client::{
    Call, ClientRequest, ClientView, History, TestClient, list, parameters, text,
};

#[derive(Default)]
pub(crate) struct Anthropic {
    history: History,
    /// Whether the gateway keeps the conversation as a message thread.
    threaded: bool,
    previous: Option<String>,
}

impl Anthropic {
    /// Creates a client that keeps only the id of the last message.
    pub(crate) fn threaded() -> Self {
        Self { threaded: true, ..Self::default() }
    }
}

impl TestClient for Anthropic {
    fn history(&mut self) -> &mut History {
        &mut self.history
    }

    fn push_results(&mut self, calls: &[Call], result: &str) {
        let results: Vec<Value> = calls
            .iter()
            .map(|call| json!({"type": "tool_result", "tool_use_id": call.id, "content": result}))
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
        if self.history.tools && self.previous.is_none() {
            body["tools"] = json!([{"name": "lookup", "input_schema": parameters()}]);
        }
        let mut headers = vec![("anthropic-version", "2023-06-01")];
        if self.threaded {
            headers.push(("anthropic-beta", "message-threads-2026-08-12"));
            body["thread"] = match &self.previous {
                Some(id) => json!({"type": "continue", "previous_message_id": id}),
                None => json!({"type": "create"}),
            };
        }
        ClientRequest { path: "/v1/messages".to_owned(), headers, body }
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
        if self.threaded {
            self.history.messages.clear();
            self.previous = Some(text(&message["id"]).to_owned());
        } else {
            self.history.messages.push(json!({"role": "assistant", "content": message["content"]}));
        }
        view
    }
}
