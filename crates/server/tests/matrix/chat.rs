//! A client of the OpenAI chat dialect: it sends back at most the plain text of the reasoning.

use serde_json::{Value, json};

use crate::test_client::{
    Call, ClientRequest, ClientView, History, TestClient, events, list, parameters, text,
};

pub(crate) struct Chat {
    history: History,
    /// Whether it sends `reasoning_content` back. Many clients do not.
    pub(crate) returns_reasoning: bool,
}

impl Chat {
    pub(crate) fn new(returns_reasoning: bool) -> Self {
        Self { history: History::default(), returns_reasoning }
    }
}

impl TestClient for Chat {
    fn history(&mut self) -> &mut History {
        &mut self.history
    }

    fn push_results(&mut self, calls: &[Call], result: &str) {
        let results = calls
            .iter()
            .map(|call| json!({"role": "tool", "tool_call_id": call.id, "content": result}));
        self.history.messages.extend(results);
    }

    fn next_request(&self, model: &str, stream: bool) -> ClientRequest {
        let mut body = json!({"model": model, "messages": self.history.messages, "stream": stream});
        body["reasoning_effort"] = if self.history.thinking { "medium" } else { "none" }.into();
        if self.history.tools {
            body["tools"] = json!([{
                "type": "function",
                "function": {"name": "lookup", "parameters": parameters()},
            }]);
        }
        ClientRequest {
            path: "/v1/chat/completions".to_owned(),
            headers: vec![("authorization", "Bearer key")],
            body,
        }
    }

    fn read(&mut self, body: &str, stream: bool) -> ClientView {
        let mut view = ClientView::default();
        let mut calls: Vec<(String, String, String)> = Vec::new();
        let mut take = |message: &Value| {
            view.reasoning.push_str(text(&message["reasoning_content"]));
            view.text.push_str(text(&message["content"]));
            for (position, call) in list(&message["tool_calls"]).enumerate() {
                let at = call["index"].as_u64().map_or(position, |at| at as usize);
                if calls.len() <= at {
                    calls.resize(at + 1, Default::default());
                }
                calls[at].0.push_str(text(&call["id"]));
                calls[at].1.push_str(text(&call["function"]["name"]));
                calls[at].2.push_str(text(&call["function"]["arguments"]));
            }
        };
        if stream {
            let chunks = events(body);
            chunks.iter().for_each(|chunk| take(&chunk["choices"][0]["delta"]));
            let ended = |chunk: &Value| chunk["choices"][0]["finish_reason"].is_string();
            assert!(chunks.iter().any(ended), "no finish_reason: {body}");
        } else {
            let whole: Value = serde_json::from_str(body).expect("JSON");
            take(&whole["choices"][0]["message"]);
        }
        let mut message = json!({"role": "assistant", "content": view.text});
        if self.returns_reasoning && !view.reasoning.is_empty() {
            message["reasoning_content"] = view.reasoning.clone().into();
        }
        if !calls.is_empty() {
            message["tool_calls"] = calls
                .iter()
                .map(|(id, name, arguments)| {
                    json!({"id": id, "type": "function", "function": {"name": name, "arguments": arguments}})
                })
                .collect();
        }
        self.history.messages.push(message);
        view.calls = calls
            .into_iter()
            .map(|(id, name, arguments)| Call {
                id,
                name,
                arguments: serde_json::from_str(&arguments).expect("arguments"),
            })
            .collect();
        view
    }
}
