//! A client of AG-UI: its messages become what the library's reducer makes of the events.

use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::{Value, json};

use crate::speaker::{Ask, Call, Said, Speaker, Talk, events, list, parameters, text};

/// How many threads there were: no two conversations share one.
static THREADS: AtomicUsize = AtomicUsize::new(0);

pub(crate) struct AgUi {
    talk: Talk,
    runs: usize,
    thread: String,
    /// Whether it is a client of before version 1.0, which keeps no reasoning.
    old: bool,
}

impl AgUi {
    pub(crate) fn new(old: bool) -> Self {
        Self {
            talk: Talk::default(),
            runs: 0,
            thread: format!("thread-{}", THREADS.fetch_add(1, Ordering::Relaxed)),
            old,
        }
    }

    fn message(&mut self, id: &Value) -> &mut Value {
        let known = |message: &Value| &message["id"] == id;
        let place = self.talk.messages.iter().position(known);
        let place = place.unwrap_or_else(|| panic!("no message {id}"));
        &mut self.talk.messages[place]
    }

    fn call(&mut self, id: &Value) -> &mut Value {
        let mut calls = self.talk.messages.iter_mut().filter_map(|message| {
            let calls = message.get_mut("toolCalls")?.as_array_mut()?;
            calls.iter_mut().find(|call| &call["id"] == id)
        });
        calls.next().unwrap_or_else(|| panic!("no call {id}"))
    }

    /// What the library's reducer does with one event.
    fn reduce(&mut self, event: &Value) {
        let id = &event["messageId"];
        match text(&event["type"]) {
            "REASONING_MESSAGE_START" => {
                let message = json!({"id": id, "role": event["role"], "content": ""});
                self.talk.messages.push(message);
            }
            "TEXT_MESSAGE_START" => {
                let mut message = json!({"id": id, "role": "assistant", "content": ""});
                if event["metadata"].is_object() {
                    message["metadata"] = event["metadata"].clone();
                }
                self.talk.messages.push(message);
            }
            "REASONING_MESSAGE_CONTENT" | "TEXT_MESSAGE_CONTENT" => {
                let content = &mut self.message(id)["content"];
                *content = format!("{}{}", text(content), text(&event["delta"])).into();
            }
            "TOOL_CALL_START" => {
                let parent = &event["parentMessageId"];
                if !self.talk.messages.iter().any(|message| &message["id"] == parent) {
                    self.talk.messages.push(json!({"id": parent, "role": "assistant"}));
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

impl Speaker for AgUi {
    fn talk(&mut self) -> &mut Talk {
        &mut self.talk
    }

    fn user(&mut self, text: &str) {
        let id = format!("user-{}", self.talk.messages.len());
        self.talk.messages.push(json!({"id": id, "role": "user", "content": text}));
    }

    fn results(&mut self, calls: &[Call], result: &str) {
        for call in calls {
            let id = format!("result-{}", self.talk.messages.len());
            self.talk
                .messages
                .push(json!({"id": id, "role": "tool", "toolCallId": call.id, "content": result}));
        }
    }

    fn ask(&self, model: &str, _: bool) -> Ask {
        let effort = if self.talk.thinks { "medium" } else { "none" };
        let mut body = json!({
            "threadId": self.thread,
            "runId": format!("run-{}", self.runs),
            "state": {},
            "messages": self.talk.messages,
            "tools": [],
            "context": [],
            "forwardedProps": {"model": model, "reasoning_effort": effort},
        });
        if !self.old {
            body["protocolVersion"] = "1.0".into();
        }
        if self.talk.tools {
            let tool = json!({"name": "lookup", "description": "", "parameters": parameters()});
            body["tools"] = json!([tool]);
        }
        Ask { path: "/ag-ui".to_owned(), headers: vec![("accept", "text/event-stream")], body }
    }

    fn read(&mut self, body: &str, _: bool) -> Said {
        self.runs += 1;
        let known = self.talk.messages.len();
        let mut said = Said::default();
        let events = events(body);
        for event in &events {
            let kind = text(&event["type"]);
            if kind == "THINKING_TEXT_MESSAGE_CONTENT" {
                said.reasoning.push_str(text(&event["delta"]));
            }
            let new = kind.starts_with("REASONING") || event.get("outcome").is_some();
            assert!(!(self.old && new), "an old client gets {event}");
            self.reduce(event);
        }
        let last = events.last().map_or("", |event| text(&event["type"]));
        assert_eq!(last, "RUN_FINISHED", "{body}");
        for message in &self.talk.messages[known..] {
            let shown = match text(&message["role"]) {
                "reasoning" => &mut said.reasoning,
                _ => &mut said.text,
            };
            shown.push_str(text(&message["content"]));
            said.calls.extend(list(&message["toolCalls"]).map(|call| Call {
                id: text(&call["id"]).to_owned(),
                name: text(&call["function"]["name"]).to_owned(),
                arguments:
                    serde_json::from_str(text(&call["function"]["arguments"])).expect("arguments"),
            }));
        }
        said
    }
}
