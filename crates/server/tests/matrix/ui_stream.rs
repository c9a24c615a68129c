//! A client of the UI message stream: it keeps the parts of a message as `useChat` does, and sends the
//! message back with the output of its tools in it.

use serde_json::{Value, json};

use crate::speaker::{Ask, Call, Said, Speaker, Talk, events, parameters, text};

#[derive(Default)]
pub(crate) struct UiStream {
    talk: Talk,
}

impl UiStream {
    /// The parts of the assistant's message: a reply that follows results goes on with it.
    fn parts(&mut self) -> &mut Vec<Value> {
        let goes_on =
            self.talk.messages.last().is_some_and(|message| message["role"] == "assistant");
        if !goes_on {
            let id = format!("m{}", self.talk.messages.len());
            self.talk.messages.push(json!({"id": id, "role": "assistant", "parts": []}));
        }
        let message = self.talk.messages.last_mut().expect("a message");
        message["parts"].as_array_mut().expect("parts")
    }
}

impl Speaker for UiStream {
    fn talk(&mut self) -> &mut Talk {
        &mut self.talk
    }

    fn user(&mut self, text: &str) {
        let id = format!("m{}", self.talk.messages.len());
        let parts = json!([{"type": "text", "text": text}]);
        self.talk.messages.push(json!({"id": id, "role": "user", "parts": parts}));
    }

    fn results(&mut self, calls: &[Call], result: &str) {
        for part in self.parts() {
            if calls.iter().any(|call| part["toolCallId"] == *call.id) {
                part["state"] = "output-available".into();
                part["output"] = result.into();
            }
        }
    }

    fn ask(&self, model: &str, _: bool) -> Ask {
        let mut body = json!({
            "id": "chat-1",
            "trigger": "submit-message",
            "messages": self.talk.messages,
            "model": model,
            "reasoning_effort": if self.talk.thinks { "medium" } else { "none" },
        });
        if self.talk.tools {
            body["tools"] = json!({"lookup": {"inputSchema": parameters()}});
        }
        Ask { path: "/ui/chat".to_owned(), headers: Vec::new(), body }
    }

    fn read(&mut self, body: &str, _: bool) -> Said {
        assert!(body.ends_with("data: [DONE]\n\n"), "{body}");
        let mut said = Said::default();
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
                        "text-delta" => said.text.push_str(more),
                        _ => said.reasoning.push_str(more),
                    }
                }
                "text-end" | "reasoning-end" => {
                    let part = open(parts, &chunk);
                    part["state"] = "done".into();
                    if let Some(mark) = chunk.get("providerMetadata") {
                        part["providerMetadata"] = mark.clone();
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
                    if let Some(mark) = chunk.get("providerMetadata") {
                        part["callProviderMetadata"] = mark.clone();
                    }
                    parts.push(part);
                    said.calls.push(Call {
                        id: text(&chunk["toolCallId"]).to_owned(),
                        name: text(&chunk["toolName"]).to_owned(),
                        arguments: chunk["input"].clone(),
                    });
                }
                "finish" => {
                    let reason = if said.calls.is_empty() { "stop" } else { "tool-calls" };
                    assert_eq!(chunk["finishReason"], reason, "{chunk}");
                }
                other => panic!("a chunk of type {other}"),
            }
        }
        said
    }
}

/// The part a chunk is about, which must be open.
fn open<'a>(parts: &'a mut [Value], chunk: &Value) -> &'a mut Value {
    let (kind, _) = text(&chunk["type"]).split_once('-').expect("a kind");
    let is_open = |part: &Value| {
        part["type"] == kind && part["id"] == chunk["id"] && part.get("state").is_none()
    };
    let part = parts.iter_mut().rfind(|part| is_open(part));
    part.unwrap_or_else(|| panic!("no open part for {chunk}"))
}
