//! Requests of this dialect, and a reader of its chunks.

use serde_json::{Map, Value, json};

use crate::common::{Answer, Server};

/// Every variant, with one of its models.
pub(crate) const VARIANTS: [(&str, &str); 17] = [
    ("openai", "gpt-5"),
    ("deepseek-v4", "deepseek-v4-pro"),
    ("deepseek-r1", "deepseek-reasoner"),
    ("think-tags", "qwen3-think-tags"),
    ("reasoning-field", "open-model"),
    ("vllm", "qwen3"),
    ("sglang", "qwen3"),
    ("llamacpp", "qwen3"),
    ("ollama", "qwen3"),
    ("qwen", "qwen3.7-max"),
    ("glm", "glm-5.3"),
    ("mistral", "magistral-medium"),
    ("openrouter", "anthropic/claude-sonnet-5"),
    ("litellm", "claude-sonnet-5"),
    ("google", "gemini-3.8-flash"),
    ("xai", "grok-5"),
    ("groq", "gpt-oss-20b"),
];

/// A tool with one required string.
pub(crate) fn lookup() -> Value {
    json!({"type": "function", "function": {"name": "lookup", "description": "Finds a row",
        "parameters": {"type": "object", "properties": {"k": {"type": "string"}}, "required": ["k"]}}})
}

/// A request with thinking and a tool.
pub(crate) fn asking(model: &str, text: &str) -> Value {
    json!({"model": model, "tools": [lookup()], "reasoning_effort": "high",
           "messages": [{"role": "system", "content": "You are terse."},
                        {"role": "user", "content": text}]})
}

/// A request without settings.
pub(crate) fn plain(model: &str, text: &str) -> Value {
    json!({"model": model, "messages": [{"role": "user", "content": text}]})
}

pub(crate) fn set(mut body: Value, key: &str, value: impl Into<Value>) -> Value {
    body[key] = value.into();
    body
}

pub(crate) fn streamed(body: &Value) -> Value {
    let body = set(body.clone(), "stream", true);
    set(body, "stream_options", json!({"include_usage": true}))
}

pub(crate) async fn ask(server: &Server, variant: &str, body: &Value) -> Answer {
    let mut headers = vec![("content-type", "application/json"), ("authorization", "Bearer k")];
    if !variant.is_empty() {
        headers.push(("x-simulator-variant", variant));
    }
    let body = body.to_string();
    server.send("POST", "/v1/chat/completions", &headers, body.as_bytes()).await
}

/// Sends a request and expects a reply.
pub(crate) async fn accept(server: &Server, variant: &str, body: &Value) -> Value {
    let answer = ask(server, variant, body).await;
    assert_eq!(answer.status, 200, "{variant}: {}", answer.text());
    answer.json()
}

/// Sends a request and returns the message of its only choice.
pub(crate) async fn message(server: &Server, variant: &str, body: &Value) -> Value {
    accept(server, variant, body).await["choices"][0]["message"].clone()
}

/// Sends a request, expects a 400 with this text, and returns the error.
pub(crate) async fn refuse(server: &Server, variant: &str, body: &Value, text: &str) -> Value {
    let answer = ask(server, variant, body).await;
    assert_eq!(answer.status, 400, "{variant}: {} (wanted {text})", answer.text());
    let error = answer.json()["error"].clone();
    let said = error["message"].as_str().unwrap();
    assert!(said.contains(text), "{variant}: {said:?} lacks {text:?}");
    if variant == "openrouter" {
        assert_eq!(error["code"], 400);
    } else {
        assert_eq!(error["type"], "invalid_request_error");
        assert!(error.get("param").is_some() && error.get("code").is_some());
    }
    error
}

/// Appends a message and the results of its calls. Returns the number of calls.
pub(crate) fn append(body: &mut Value, message: &Value) -> usize {
    let none = Vec::new();
    let calls = message["tool_calls"].as_array().unwrap_or(&none);
    let messages = body["messages"].as_array_mut().unwrap();
    messages.push(message.clone());
    for call in calls {
        let result = json!({"role": "tool", "tool_call_id": call["id"], "content": "21 degrees"});
        messages.push(result);
    }
    calls.len()
}

pub(crate) fn say(body: &mut Value, text: &str) {
    let messages = body["messages"].as_array_mut().unwrap();
    messages.push(json!({"role": "user", "content": text}));
}

/// The chunks, without the final `[DONE]`.
pub(crate) fn chunks(answer: &Answer) -> Vec<Value> {
    let text = answer.text().replace("\r\n", "\n");
    let mut frames: Vec<&str> = text.split("\n\n").filter(|one| !one.is_empty()).collect();
    assert_eq!(frames.pop(), Some("data: [DONE]"));
    frames
        .iter()
        .map(|frame| serde_json::from_str(frame.strip_prefix("data: ").unwrap()).unwrap())
        .collect()
}

/// Checks every rule of a stream with usage, and assembles the reply as an SDK does.
pub(crate) fn assemble(chunks: &[Value]) -> Value {
    let (counted, chunks) = chunks.split_last().unwrap();
    assert_eq!(counted["choices"], json!([]));
    let mut messages: Vec<Value> = Vec::new();
    let mut reasons: Vec<Value> = Vec::new();
    for chunk in chunks {
        for key in ["id", "created", "model"] {
            assert_eq!(chunk[key], counted[key]);
        }
        assert_eq!(chunk["object"], "chat.completion.chunk");
        assert_eq!(chunk.get("usage"), Some(&Value::Null));
        let choice = &chunk["choices"][0];
        let index = choice["index"].as_u64().unwrap() as usize;
        let delta = choice["delta"].as_object().unwrap();
        if index == messages.len() {
            assert_eq!(choice["delta"], json!({"role": "assistant", "content": ""}));
            messages.push(json!({"role": "assistant", "content": ""}));
            reasons.push(Value::Null);
            continue;
        }
        assert!(reasons[index].is_null(), "something follows the end");
        assert_eq!(delta.is_empty(), !choice["finish_reason"].is_null());
        reasons[index] = choice["finish_reason"].clone();
        merge(&mut messages[index], delta);
    }
    let choices = messages.into_iter().zip(reasons).enumerate();
    let choices: Vec<Value> = choices
        .map(|(index, (message, reason))| {
            json!({"index": index, "message": settle(message), "finish_reason": reason})
        })
        .collect();
    json!({"id": counted["id"], "model": counted["model"], "choices": choices, "usage": counted["usage"]})
}

fn merge(message: &mut Value, delta: &Map<String, Value>) {
    for (key, value) in delta {
        match (key.as_str(), value) {
            ("content", Value::Array(pieces)) => {
                for piece in pieces {
                    chunk_of_content(message, piece);
                }
            }
            ("content", piece) if message["content"].is_array() => {
                chunk_of_content(message, &json!({"type": "text", "text": piece}));
            }
            // Ollama sends one with every reasoning delta.
            ("content", Value::String(text)) if text.is_empty() => {
                assert!(delta.contains_key("reasoning"), "content is empty");
            }
            (_, Value::String(text)) => {
                assert!(!text.is_empty(), "{key} is empty");
                let before = message[key].as_str().unwrap_or_default().to_owned();
                message[key] = (before + text).into();
            }
            ("function_call", Value::Object(piece)) => {
                if message["function_call"].is_null() {
                    message["function_call"] = json!({});
                }
                merge_strings(&mut message["function_call"], piece);
            }
            (_, Value::Array(pieces)) => {
                if message[key].is_null() {
                    message[key] = json!([]);
                }
                for piece in pieces {
                    merge_item(message[key].as_array_mut().unwrap(), piece);
                }
            }
            other => panic!("{other:?}"),
        }
    }
}

fn merge_item(items: &mut Vec<Value>, piece: &Value) {
    let mut piece = piece.as_object().unwrap().clone();
    let index = match piece.get("index") {
        Some(index) => index.as_u64().unwrap() as usize,
        None => items.len(),
    };
    if index == items.len() {
        items.push(json!({}));
    }
    let item = &mut items[index];
    if let Some(function) = piece.remove("function") {
        if item["function"].is_null() {
            item["function"] = json!({});
        }
        merge_strings(&mut item["function"], function.as_object().unwrap());
    }
    merge_strings(item, &piece);
}

fn merge_strings(item: &mut Value, piece: &Map<String, Value>) {
    for (key, value) in piece {
        let grows = ["text", "summary", "thinking", "arguments"].contains(&key.as_str());
        match value {
            Value::String(text) if grows => {
                let before = item[key].as_str().unwrap_or_default().to_owned();
                item[key] = (before + text).into();
            }
            Value::String(text) if text.is_empty() => {}
            other => item[key] = other.clone(),
        }
    }
}

fn chunk_of_content(message: &mut Value, piece: &Value) {
    if message["content"] == "" {
        message["content"] = json!([]);
    }
    let content = message["content"].as_array_mut().unwrap();
    let grows = content
        .last()
        .is_some_and(|last| last["type"] == piece["type"] && last["closed"] != Value::Bool(true));
    if !grows {
        let mut first = piece.clone();
        if first["type"] == "thinking" {
            first["signature"] = Value::Null;
        }
        content.push(first);
        return;
    }
    let last = content.last_mut().unwrap();
    let (before, after) = if piece["type"] == "text" {
        (&mut last["text"], &piece["text"])
    } else {
        last["closed"] = piece["closed"].clone();
        (&mut last["thinking"][0]["text"], &piece["thinking"][0]["text"])
    };
    *before = (before.as_str().unwrap().to_owned() + after.as_str().unwrap()).into();
}

/// Adapts an assembled stream to the form of a whole reply.
fn settle(mut message: Value) -> Value {
    let calls = message.get("tool_calls").is_some() || message.get("function_call").is_some();
    if message["content"] == "" && calls {
        message["content"] = Value::Null;
    }
    for (key, keeps) in
        [("tool_calls", false), ("thinking_blocks", false), ("reasoning_details", true)]
    {
        for item in message.get_mut(key).and_then(Value::as_array_mut).into_iter().flatten() {
            if !keeps {
                item.as_object_mut().unwrap().shift_remove("index");
            }
        }
    }
    message
}

/// A whole reply without the members that streams do not have.
pub(crate) fn essence(reply: &Value) -> Value {
    let choices = reply["choices"].as_array().unwrap().iter().map(|choice| {
        let mut message = choice["message"].clone();
        for key in ["refusal", "annotations"] {
            message.as_object_mut().unwrap().shift_remove(key);
        }
        json!({"index": choice["index"], "message": message, "finish_reason": choice["finish_reason"]})
    });
    let choices: Vec<Value> = choices.collect();
    json!({"id": reply["id"], "model": reply["model"], "choices": choices, "usage": reply["usage"]})
}
