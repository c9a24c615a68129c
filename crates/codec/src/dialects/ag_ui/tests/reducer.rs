//! The messages that a client of version 1.0 builds from a run and sends with its next one. Strict: a
//! message that the library would silently lose or mix up is an error here.

use serde_json::{Value, json};

/// A client's messages.
#[derive(Debug, Default)]
pub(super) struct Messages(Vec<Value>);

impl Messages {
    /// The messages at the start of a run.
    pub(super) fn new(messages: Vec<Value>) -> Self {
        Self(messages)
    }

    /// The messages that the client sends with its next run.
    pub(super) fn sent(&self) -> Value {
        let kept = self.0.iter().filter(|message| message["role"] != "activity");
        kept.cloned().collect()
    }

    /// The activities of the run.
    pub(super) fn activity(&self) -> Value {
        let mut messages = self.0.iter();
        let found = messages.find(|message| message["role"] == "activity");
        found.map_or(Value::Null, |message| message["content"].clone())
    }

    /// Takes the events of a run.
    pub(super) fn take(&mut self, events: &[Value]) -> Result<(), String> {
        for event in events {
            self.reduce(event).map_err(|wrong| format!("{wrong}: {event}"))?;
        }
        Ok(())
    }

    fn message(&mut self, id: &Value) -> Result<&mut Value, String> {
        let mut messages = self.0.iter_mut();
        let found = messages.find(|message| message["id"] == *id);
        found.ok_or("no such message".to_owned())
    }

    fn call(&mut self, id: &Value) -> Result<&mut Value, String> {
        let lists = self.0.iter_mut().filter_map(|message| message.get_mut("toolCalls"));
        let mut calls = lists.filter_map(Value::as_array_mut).flatten();
        let found = calls.find(|call| call["id"] == *id);
        found.ok_or("no such call".to_owned())
    }

    fn add(&mut self, message: Value) -> Result<(), String> {
        // All messages share their ids: a second one would be written into the first.
        if self.message(&message["id"]).is_ok() {
            return Err("the id is taken".to_owned());
        }
        self.0.push(message);
        Ok(())
    }

    fn reduce(&mut self, event: &Value) -> Result<(), String> {
        let id = &event["messageId"];
        match event["type"].as_str().unwrap_or_default() {
            "REASONING_MESSAGE_START" => {
                self.add(json!({"id": id, "role": "reasoning", "content": ""}))
            }
            "TEXT_MESSAGE_START" => {
                let mut message = json!({"id": id, "role": "assistant", "content": ""});
                if let Some(metadata) = event.get("metadata") {
                    message["metadata"] = metadata.clone();
                }
                self.add(message)
            }
            "REASONING_MESSAGE_CONTENT" => append(self.message(id)?, "reasoning", event),
            "TEXT_MESSAGE_CONTENT" => append(self.message(id)?, "assistant", event),
            "TOOL_CALL_START" => self.begin_call(event),
            "TOOL_CALL_ARGS" => {
                let arguments = &mut self.call(&event["toolCallId"])?["function"]["arguments"];
                *arguments = joined(arguments, &event["delta"]);
                Ok(())
            }
            "TOOL_CALL_RESULT" => self.add(json!({
                "id": id, "role": "tool", "toolCallId": event["toolCallId"], "content": event["content"],
            })),
            "REASONING_ENCRYPTED_VALUE" => {
                let sealed = match event["subtype"].as_str() {
                    Some("tool-call") => self.call(&event["entityId"])?,
                    _ => self.message(&event["entityId"])?,
                };
                sealed["encryptedValue"] = event["encryptedValue"].clone();
                Ok(())
            }
            "ACTIVITY_SNAPSHOT" => self.add(json!({
                "id": id, "role": "activity", "activityType": event["activityType"], "content": event["content"],
            })),
            "ACTIVITY_DELTA" => {
                let content = &mut self.message(id)?["content"];
                for step in event["patch"].as_array().into_iter().flatten() {
                    let path = step["path"].as_str().unwrap_or_default();
                    let place = content.pointer_mut(path).ok_or("a patch of nothing")?;
                    *place = step["value"].clone();
                }
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn begin_call(&mut self, event: &Value) -> Result<(), String> {
        if self.call(&event["toolCallId"]).is_ok() {
            return Err("the call is known".to_owned());
        }
        let parent = &event["parentMessageId"];
        if self.message(parent).is_err() {
            self.0.push(json!({"id": parent, "role": "assistant"}));
        }
        let mut spoken = self.0.iter().rev();
        let last = spoken.find(|message| message["role"] != "activity");
        let last = last.is_some_and(|message| message["id"] == *parent);
        let message = self.message(parent)?;
        if message["role"] != "assistant" {
            return Err("calls of another message".to_owned());
        }
        if !last {
            // Older clients look at the last message only.
            return Err("a call behind another message".to_owned());
        }
        if message["toolCalls"].is_null() {
            message["toolCalls"] = json!([]);
        }
        let call = json!({
            "id": event["toolCallId"],
            "type": "function",
            "function": {"name": event["toolCallName"], "arguments": ""},
        });
        let calls = message["toolCalls"].as_array_mut();
        calls.ok_or("calls are no list")?.push(call);
        Ok(())
    }
}

fn append(message: &mut Value, role: &str, event: &Value) -> Result<(), String> {
    if message["role"] != role {
        return Err("words of another message".to_owned());
    }
    let content = &mut message["content"];
    *content = joined(content, &event["delta"]);
    Ok(())
}

fn joined(text: &Value, more: &Value) -> Value {
    let [text, more] = [text, more].map(|text| text.as_str().unwrap_or_default());
    format!("{text}{more}").into()
}

#[test]
fn reducer_rejects_lost_and_mixed_messages() {
    let message = |kind: &str, id: &str| json!({"type": kind, "messageId": id, "delta": "x"});
    let sealed = |subtype: &str| json!({"type": "REASONING_ENCRYPTED_VALUE", "subtype": subtype, "entityId": "m", "encryptedValue": "v"});
    let call = json!({"type": "TOOL_CALL_START", "toolCallId": "c", "toolCallName": "f", "parentMessageId": "m"});
    for (wrong, events) in [
        ("no such message", vec![sealed("message")]),
        ("no such call", vec![sealed("tool-call")]),
        (
            "taken",
            vec![message("REASONING_MESSAGE_START", "m"), message("TEXT_MESSAGE_START", "m")],
        ),
        (
            "another message",
            vec![message("REASONING_MESSAGE_START", "m"), message("TEXT_MESSAGE_CONTENT", "m")],
        ),
        ("another message", vec![message("REASONING_MESSAGE_START", "m"), call.clone()]),
        ("known", vec![call.clone(), call.clone()]),
        (
            "another message",
            vec![message("TEXT_MESSAGE_START", "m"), message("REASONING_MESSAGE_START", "r"), call],
        ),
    ] {
        let found = Messages::default().take(&events).unwrap_err();
        assert!(found.contains(wrong), "{found} is not: {wrong}");
    }
}
