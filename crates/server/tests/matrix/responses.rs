//! Clients of the Responses dialect: one sends every item back unchanged and stores nothing, the
//! other sends only new items and names the previous response.

use serde_json::{Value, json};
use throughline_testkit::open_responses;

use crate::test_client::{
    Call, ClientRequest, ClientView, History, TestClient, events, list, text,
};

#[derive(Default)]
pub(crate) struct Responses {
    history: History,
    /// Whether the gateway stores the conversation.
    stateful: bool,
    previous: Option<String>,
}

impl Responses {
    /// Creates a client that keeps only the id of the last response.
    pub(crate) fn stateful() -> Self {
        Self { stateful: true, ..Self::default() }
    }
}

impl TestClient for Responses {
    fn history(&mut self) -> &mut History {
        &mut self.history
    }

    fn push_each_result(&mut self, results: &[(&Call, &str)]) {
        let results = results.iter().map(|(call, result)| {
            json!({"type": "function_call_output", "call_id": call.id, "output": result})
        });
        self.history.messages.extend(results);
    }

    fn next_request(&self, model: &str, stream: bool) -> ClientRequest {
        let reasoning = if self.history.thinking {
            json!({"effort": "medium", "summary": "auto"})
        } else {
            json!({"effort": "none"})
        };
        let mut body = json!({
            "model": model,
            "input": self.history.messages,
            "stream": stream,
            "store": self.stateful,
            "include": ["reasoning.encrypted_content"],
            "reasoning": reasoning,
        });
        if let Some(previous) = &self.previous {
            body["previous_response_id"] = previous.as_str().into();
        }
        if !self.history.system.is_empty() {
            body["instructions"] = self.history.system.as_str().into();
        }
        if !self.history.tools.is_empty() {
            body["tools"] = self.history.tools(|tool| {
                json!({
                    "type": "function", "name": tool.name, "description": tool.description,
                    "parameters": tool.parameters, "strict": false,
                })
            });
        }
        ClientRequest {
            path: "/v1/responses".to_owned(),
            headers: vec![("authorization", "Bearer key")],
            body,
        }
    }

    fn read(&mut self, body: &str, stream: bool) -> ClientView {
        let response = if stream {
            open_responses::check_events(&events(body))
        } else {
            let response = serde_json::from_str(body).expect("JSON");
            open_responses::check_response(&response);
            response
        };
        assert_eq!(response["status"], "completed", "{response}");
        let messages = list(&response["output"]).filter(|item| item["type"] == "message");
        let empty =
            |item: &Value| list(&item["content"]).all(|part| text(&part["text"]).is_empty());
        assert_eq!(messages.filter(|item| empty(item)).count(), 0, "{response}");
        let mut view = ClientView::default();
        for item in list(&response["output"]) {
            match text(&item["type"]) {
                "reasoning" => {
                    let sealed = !text(&item["encrypted_content"]).is_empty();
                    assert!(sealed, "clients drop such an item: {item}");
                    let parts = list(&item["summary"]).map(|part| text(&part["text"]));
                    view.reasoning.extend(parts);
                }
                "message" => {
                    let parts = list(&item["content"]).map(|part| text(&part["text"]));
                    view.text.extend(parts);
                }
                "function_call" => view.calls.push(Call {
                    id: text(&item["call_id"]).to_owned(),
                    name: text(&item["name"]).to_owned(),
                    arguments: serde_json::from_str(text(&item["arguments"])).expect("arguments"),
                }),
                other => panic!("an item of type {other}"),
            }
            self.history.messages.push(item.clone());
        }
        if self.stateful {
            self.history.messages.clear();
            self.previous = Some(text(&response["id"]).to_owned());
        }
        view
    }
}
