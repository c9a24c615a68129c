//! Clients of the Ollama dialect: they send the whole message back, or only the members that their
//! library has, which are no ids, or no thinking either.

use serde_json::{Value, json};

use crate::test_client::{Call, ClientRequest, ClientView, History, TestClient, list, text};

pub(crate) struct Ollama {
    history: History,
    /// Whether it sends call ids back.
    keeps_ids: bool,
    /// Whether it sends thinking back.
    keeps_thinking: bool,
}

impl Ollama {
    pub(crate) fn new(keeps_ids: bool, keeps_thinking: bool) -> Self {
        Self { history: History::default(), keeps_ids, keeps_thinking }
    }
}

impl TestClient for Ollama {
    fn history(&mut self) -> &mut History {
        &mut self.history
    }

    fn push_each_result(&mut self, results: &[(&Call, &str)]) {
        for (call, result) in results {
            let mut message = json!({"role": "tool", "tool_name": call.name, "content": result});
            if self.keeps_ids {
                message["tool_call_id"] = call.id.as_str().into();
            }
            self.history.messages.push(message);
        }
    }

    fn next_request(&self, model: &str, stream: bool) -> ClientRequest {
        let mut body = json!({
            "model": model, "messages": self.history.messages, "stream": stream, "think": self.history.thinking,
        });
        if !self.history.system.is_empty() {
            let system = json!({"role": "system", "content": self.history.system});
            body["messages"].as_array_mut().expect("a list").insert(0, system);
        }
        if !self.history.tools.is_empty() {
            body["tools"] = self.history.tools(|tool| {
                json!({"type": "function", "function": {
                    "name": tool.name, "description": tool.description,
                    "parameters": tool.parameters,
                }})
            });
        }
        ClientRequest { path: "/api/chat".to_owned(), headers: Vec::new(), body }
    }

    fn read(&mut self, body: &str, stream: bool) -> ClientView {
        let lines: Vec<Value> = match stream {
            true => body.split_terminator('\n').map(json).collect(),
            false => vec![json(body)],
        };
        let mut view = ClientView::default();
        let mut calls = Vec::new();
        for (position, line) in lines.iter().enumerate() {
            assert!(line.get("error").is_none(), "{line}");
            assert_eq!(line["done"], position + 1 == lines.len(), "{body}");
            let message = &line["message"];
            view.reasoning.push_str(text(&message["thinking"]));
            view.text.push_str(text(&message["content"]));
            calls.extend(list(&message["tool_calls"]).cloned());
        }
        view.calls = calls
            .iter()
            .map(|call| Call {
                id: text(&call["id"]).to_owned(),
                name: text(&call["function"]["name"]).to_owned(),
                arguments: call["function"]["arguments"].clone(),
            })
            .collect();
        let mut message = json!({"role": "assistant", "content": view.text});
        if self.keeps_thinking {
            message["thinking"] = view.reasoning.as_str().into();
        }
        if !calls.is_empty() {
            for call in &mut calls {
                if !self.keeps_ids {
                    let function = &call["function"];
                    *call = json!({"function": {
                        "name": function["name"], "arguments": function["arguments"],
                    }});
                }
            }
            message["tool_calls"] = calls.into();
        }
        self.history.messages.push(message);
        view
    }
}

fn json(text: &str) -> Value {
    serde_json::from_str(text).expect("a line of JSON")
}
