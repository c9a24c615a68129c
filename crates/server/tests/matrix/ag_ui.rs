//! An AG-UI client: it builds its messages from the events as the library's reducer does.

use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::{Value, json};

use crate::test_client::{
    Call, ClientRequest, ClientView, History, TestClient, events, list, text,
};

/// Counts threads, so that no two conversations share a thread id.
static THREADS: AtomicUsize = AtomicUsize::new(0);

pub(crate) struct AgUi {
    history: History,
    runs: usize,
    thread: String,
    /// Whether the client is older than version 1.0, which keeps no reasoning.
    before_v1: bool,
}

impl AgUi {
    pub(crate) fn new(before_v1: bool) -> Self {
        Self {
            history: History::default(),
            runs: 0,
            thread: format!("thread-{}", THREADS.fetch_add(1, Ordering::Relaxed)),
            before_v1,
        }
    }

    fn message(&mut self, id: &Value) -> &mut Value {
        let known = |message: &Value| &message["id"] == id;
        let position = self.history.messages.iter().position(known);
        let position = position.unwrap_or_else(|| panic!("no message {id}"));
        &mut self.history.messages[position]
    }

    fn call(&mut self, id: &Value) -> &mut Value {
        let mut calls = self.history.messages.iter_mut().filter_map(|message| {
            let calls = message.get_mut("toolCalls")?.as_array_mut()?;
            calls.iter_mut().find(|call| &call["id"] == id)
        });
        calls.next().unwrap_or_else(|| panic!("no call {id}"))
    }

    /// Applies one event, as the library's reducer does.
    fn reduce(&mut self, event: &Value) {
        let id = &event["messageId"];
        match text(&event["type"]) {
            "REASONING_MESSAGE_START" => {
                let message = json!({"id": id, "role": event["role"], "content": ""});
                self.history.messages.push(message);
            }
            "TEXT_MESSAGE_START" => {
                let mut message = json!({"id": id, "role": "assistant", "content": ""});
                if event["metadata"].is_object() {
                    message["metadata"] = event["metadata"].clone();
                }
                self.history.messages.push(message);
            }
            "REASONING_MESSAGE_CONTENT" | "TEXT_MESSAGE_CONTENT" => {
                let content = &mut self.message(id)["content"];
                *content = format!("{}{}", text(content), text(&event["delta"])).into();
            }
            "TOOL_CALL_START" => {
                let parent = &event["parentMessageId"];
                if !self.history.messages.iter().any(|message| &message["id"] == parent) {
                    self.history.messages.push(json!({"id": parent, "role": "assistant"}));
                }
                let parent = self.message(parent);
                if parent["toolCalls"].is_null() {
                    parent["toolCalls"] = json!([]);
                }
                let call = json!({
                    "id": event["toolCallId"],
                    "type": "function",
                    "function": {"name": event["toolCallName"], "arguments": ""},
                });
                parent["toolCalls"].as_array_mut().expect("a list").push(call);
            }
            "TOOL_CALL_ARGS" => {
                let arguments = &mut self.call(&event["toolCallId"])["function"]["arguments"];
                *arguments = format!("{}{}", text(arguments), text(&event["delta"])).into();
            }
            "REASONING_ENCRYPTED_VALUE" => {
                let sealed = match text(&event["subtype"]) {
                    "tool-call" => self.call(&event["entityId"]),
                    _ => self.message(&event["entityId"]),
                };
                sealed["encryptedValue"] = event["encryptedValue"].clone();
            }
            _ => {}
        }
    }
}

impl TestClient for AgUi {
    fn history(&mut self) -> &mut History {
        &mut self.history
    }

    fn push_user(&mut self, text: &str) {
        let id = format!("user-{}", self.history.messages.len());
        self.history.messages.push(json!({"id": id, "role": "user", "content": text}));
    }

    fn push_each_result(&mut self, results: &[(&Call, &str)]) {
        for (call, result) in results {
            let id = format!("result-{}", self.history.messages.len());
            self.history
                .messages
                .push(json!({"id": id, "role": "tool", "toolCallId": call.id, "content": result}));
        }
    }

    fn next_request(&self, model: &str, _: bool) -> ClientRequest {
        let effort = if self.history.thinking { "medium" } else { "none" };
        let mut body = json!({
            "threadId": self.thread,
            "runId": format!("run-{}", self.runs),
            "state": {},
            "messages": self.history.messages,
            "context": [],
            "forwardedProps": {"model": model, "reasoning_effort": effort},
        });
        if !self.before_v1 {
            body["protocolVersion"] = "1.0".into();
        }
        if !self.history.system.is_empty() {
            let system = json!({"id": "system", "role": "system", "content": self.history.system});
            body["messages"].as_array_mut().expect("a list").insert(0, system);
        }
        body["tools"] = self.history.tools(|tool| {
            json!({
                "name": tool.name, "description": tool.description, "parameters": tool.parameters,
            })
        });
        ClientRequest {
            path: "/ag-ui".to_owned(),
            headers: vec![("accept", "text/event-stream")],
            body,
        }
    }

    fn read(&mut self, body: &str, _: bool) -> ClientView {
        self.runs += 1;
        let known = self.history.messages.len();
        let mut view = ClientView::default();
        let events = events(body);
        for event in &events {
            let kind = text(&event["type"]);
            if kind == "THINKING_TEXT_MESSAGE_CONTENT" {
                view.reasoning.push_str(text(&event["delta"]));
            }
            let new = kind.starts_with("REASONING") || event.get("outcome").is_some();
            assert!(!(self.before_v1 && new), "an old client gets {event}");
            self.reduce(event);
        }
        let last = events.last().map_or("", |event| text(&event["type"]));
        assert_eq!(last, "RUN_FINISHED", "{body}");
        for message in &self.history.messages[known..] {
            let shown = match text(&message["role"]) {
                "reasoning" => &mut view.reasoning,
                _ => &mut view.text,
            };
            shown.push_str(text(&message["content"]));
            view.calls.extend(list(&message["toolCalls"]).map(|call| Call {
                id: text(&call["id"]).to_owned(),
                name: text(&call["function"]["name"]).to_owned(),
                arguments:
                    serde_json::from_str(text(&call["function"]["arguments"])).expect("arguments"),
            }));
        }
        view
    }
}
