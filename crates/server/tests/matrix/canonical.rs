//! Clients of the gateway's own formats. The NDJSON client sends the lines of a reply back, or the
//! blocks of a whole reply. The events client folds canonical events, and sends their blocks back.

use serde_json::{Value, json};
use throughline_canonical::{Event, Fold};

use crate::test_client::{Call, ClientRequest, ClientView, History, TestClient, list, text};

pub(crate) struct CanonicalClient {
    history: History,
    /// The path of the endpoint.
    path: &'static str,
}

impl CanonicalClient {
    pub(crate) fn new(path: &'static str) -> Self {
        Self { history: History::default(), path }
    }
}

impl TestClient for CanonicalClient {
    fn history(&mut self) -> &mut History {
        &mut self.history
    }

    fn push_each_result(&mut self, results: &[(&Call, &str)]) {
        let results = results
            .iter()
            .map(|(call, result)| json!({"type": "tool_result", "id": call.id, "content": result}));
        let results: Vec<Value> = results.collect();
        self.history.messages.push(json!({"role": "user", "content": results}));
    }

    fn next_request(&self, model: &str, stream: bool) -> ClientRequest {
        let mut body = json!({
            "model": model,
            "messages": self.history.messages,
            "thinking": if self.history.thinking { "medium" } else { "off" },
        });
        if !stream {
            body["stream"] = false.into();
        }
        if !self.history.system.is_empty() {
            body["system"] = self.history.system.as_str().into();
        }
        if !self.history.tools.is_empty() {
            body["tools"] = self.history.tools(|tool| {
                json!({
                    "name": tool.name, "description": tool.description,
                    "parameters": tool.parameters,
                })
            });
        }
        ClientRequest { path: self.path.to_owned(), headers: Vec::new(), body }
    }

    fn read(&mut self, body: &str, stream: bool) -> ClientView {
        let content = match (self.path, stream) {
            ("/ndjson/chat", true) => read_lines(body),
            (_, true) => read_events(body),
            (_, false) => {
                let whole: Value = serde_json::from_str(body).expect("JSON");
                let blocks = ["contentBlocks", "content"].map(|name| &whole[name]);
                let blocks = blocks.into_iter().find(|blocks| blocks.is_array());
                blocks.expect("blocks").clone()
            }
        };
        let view = read_blocks(&content);
        self.history.messages.push(json!({"role": "assistant", "content": content}));
        view
    }
}

/// Reads the numbered lines of a reply, and checks that the last line is `done`.
fn read_lines(body: &str) -> Value {
    let read = |line| serde_json::from_str::<Value>(line).expect("JSON in a line");
    let read_lines: Vec<Value> = body.lines().map(read).collect();
    let numbers: Vec<Option<u64>> = read_lines.iter().map(|line| line["seq"].as_u64()).collect();
    assert!(numbers.is_sorted_by(|one, next| one.is_some() && one < next), "{numbers:?}");
    let last = read_lines.last().expect("a line");
    assert_eq!((text(&last["type"]), text(&last["reason"])), ("done", "completed"));
    read_lines.into()
}

/// Folds the events of a reply into blocks.
fn read_events(body: &str) -> Value {
    let mut fold = Fold::default();
    for event in crate::test_client::events(body) {
        let event: Event<'static> = serde_json::from_value(event).expect("an event");
        fold.push(&event);
    }
    let reply = fold.finish();
    assert!(reply.reason.is_some() && reply.fault.is_none(), "{reply:?}");
    json!(reply.content)
}

fn read_blocks(content: &Value) -> ClientView {
    let mut view = ClientView::default();
    for block in list(content) {
        let content_text = ["thinking", "text", "content"].map(|name| text(&block[name]));
        let content_text = content_text.concat();
        match text(&block["type"]) {
            "thinking" => view.reasoning.push_str(&content_text),
            "text" => view.text.push_str(&content_text),
            "tool_call" => view.calls.push(Call {
                id: text(&block["id"]).to_owned(),
                name: text(&block["name"]).to_owned(),
                arguments: match &block["arguments"] {
                    Value::String(arguments) => serde_json::from_str(arguments).expect("arguments"),
                    arguments => arguments.clone(),
                },
            }),
            _ => {}
        }
    }
    view
}
