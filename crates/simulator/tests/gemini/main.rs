//! The Gemini dialect over HTTP.
#![allow(clippy::unwrap_used, reason = "helpers of tests may fail like tests")]

#[path = "../common/mod.rs"]
mod common;

mod dialogues;
mod refusals;
mod replies;
mod signatures;
mod streams;

use common::{Answer, Server};
use serde_json::{Value, json};

const PRO: &str = "gemini-3-pro-preview";
const FLASH: &str = "gemini-3-flash-preview";
const ARGON: &str = "gemini-4-argon";
const OLDER: &str = "gemini-2.5-flash";

/// A function with one required string.
fn lookup() -> Value {
    json!({"name": "lookup", "description": "Finds a row", "parametersJsonSchema":
        {"type": "object", "properties": {"k": {"type": "string"}}, "required": ["k"]}})
}

fn user(text: &str) -> Value {
    json!({"role": "user", "parts": [{"text": text}]})
}

/// A request with visible thoughts and a function.
fn ask(text: &str) -> Value {
    json!({"systemInstruction": {"parts": [{"text": "You are terse."}]},
           "contents": [user(text)], "tools": [{"functionDeclarations": [lookup()]}],
           "generationConfig": {"thinkingConfig": {"includeThoughts": true}}})
}

fn plain(text: &str) -> Value {
    json!({"contents": [user(text)]})
}

/// A request with its contents replaced.
fn with_contents(contents: impl Into<Value>) -> Value {
    let mut body = ask("");
    body["contents"] = contents.into();
    body
}

fn with(body: &Value, pointer: &str, value: Value) -> Value {
    let mut body = body.clone();
    *body.pointer_mut(pointer).unwrap() = value;
    body
}

fn without(body: &Value, pointer: &str, member: &str) -> Value {
    let mut body = body.clone();
    let holder = body.pointer_mut(pointer).unwrap().as_object_mut().unwrap();
    holder.remove(member).unwrap();
    body
}

fn signature(body: &Value, pointer: &str) -> String {
    let part = body.pointer(pointer).unwrap();
    part["thoughtSignature"].as_str().unwrap().to_owned()
}

async fn call(server: &Server, path: &str, body: &Value, headers: &[(&str, &str)]) -> Answer {
    let body = body.to_string();
    server.send("POST", path, headers, body.as_bytes()).await
}

async fn generate(server: &Server, model: &str, body: &Value) -> Answer {
    let path = format!("/v1beta/models/{model}:generateContent");
    call(server, &path, body, &[]).await
}

async fn accept(server: &Server, model: &str, body: &Value) -> Value {
    let answer = generate(server, model, body).await;
    assert_eq!(answer.status, 200, "{} for {body}", answer.text());
    answer.json()
}

async fn refuse(server: &Server, model: &str, body: &Value, text: &str) {
    assert_refused(&generate(server, model, body).await, text);
}

fn assert_refused(answer: &Answer, text: &str) {
    assert_eq!(answer.status, 400, "{} (wanted {text})", answer.text());
    let error = &answer.json()["error"];
    assert_eq!((&error["code"], &error["status"]), (&json!(400), &json!("INVALID_ARGUMENT")));
    let message = error["message"].as_str().unwrap();
    assert!(message.contains(text), "{message:?} lacks {text:?}");
}

/// The parts of a response.
fn parts(response: &Value) -> &Vec<Value> {
    let candidates = response["candidates"].as_array().unwrap();
    assert_eq!(candidates.len(), 1);
    assert_eq!(candidates[0]["content"]["role"], "model");
    candidates[0]["content"]["parts"].as_array().unwrap()
}

/// One letter per part: `t` for a thought, `x` for text, `c` for a call; upper case if it is
/// signed.
fn outline(response: &Value) -> String {
    let letter = |part: &Value| {
        let letter = match part {
            part if part["thought"] == true => 't',
            part if part["functionCall"].is_object() => 'c',
            _ => 'x',
        };
        match part["thoughtSignature"].is_string() {
            true => letter.to_ascii_uppercase(),
            false => letter,
        }
    };
    parts(response).iter().map(letter).collect()
}

/// Appends a response and the results of its calls. Returns the number of calls.
fn append(body: &mut Value, response: &Value) -> usize {
    let results: Vec<Value> = parts(response)
        .iter()
        .filter_map(|part| part.get("functionCall"))
        .map(|call| {
            let mut result = json!({"name": call["name"], "response": {"output": "21 degrees"}});
            if let Some(id) = call.get("id") {
                result["id"] = id.clone();
            }
            json!({ "functionResponse": result })
        })
        .collect();
    let count = results.len();
    let contents = body["contents"].as_array_mut().unwrap();
    contents.push(response["candidates"][0]["content"].clone());
    if count > 0 {
        contents.push(json!({"role": "user", "parts": results}));
    }
    count
}

fn say(body: &mut Value, text: &str) {
    body["contents"].as_array_mut().unwrap().push(user(text));
}

/// Plays a conversation until the answer calls nothing, and returns the body with the answer.
async fn play(server: &Server, model: &str, mut body: Value) -> Value {
    for _ in 0..8 {
        let response = accept(server, model, &body).await;
        if append(&mut body, &response) == 0 {
            return body;
        }
    }
    panic!("it never stops to call: {body}");
}

/// The chunks of a stream of events: nothing but lines that begin with `data: `.
fn events(answer: &Answer) -> Vec<Value> {
    assert_eq!(answer.status, 200, "{}", answer.text());
    assert_eq!(answer.header("content-type"), Some("text/event-stream; charset=utf-8"));
    let text = answer.text().replace("\r\n", "\n");
    let frames = text.split("\n\n").filter(|frame| !frame.is_empty());
    let data = |frame: &str| {
        assert!(!frame.contains('\n'), "{frame}");
        serde_json::from_str(frame.strip_prefix("data: ").unwrap()).unwrap()
    };
    frames.map(data).collect()
}

/// Joins chunks to one response, and checks that counts grow and the finish reason comes last.
fn assemble(chunks: &[Value]) -> Value {
    let mut joined: Vec<Value> = Vec::new();
    let mut total = 0;
    for (at, chunk) in chunks.iter().enumerate() {
        let candidate = &chunk["candidates"][0];
        let last = at + 1 == chunks.len();
        assert_eq!(candidate["finishReason"].is_string(), last, "{chunk}");
        let usage = &chunk["usageMetadata"];
        let count = |key: &str| usage[key].as_u64().unwrap_or_default();
        let now = count("totalTokenCount");
        let sum = count("promptTokenCount") + count("candidatesTokenCount");
        assert_eq!(now, sum + count("thoughtsTokenCount"), "{usage}");
        assert!(now >= total, "{usage}");
        total = now;
        for part in candidate["content"]["parts"].as_array().into_iter().flatten() {
            let same = |before: &Value| {
                before["text"].is_string()
                    && part["text"].is_string()
                    && before["thought"] == part["thought"]
                    && part["thoughtSignature"].is_null()
            };
            match joined.last_mut().filter(|before| same(before)) {
                Some(before) => {
                    let text = before["text"].as_str().unwrap().to_owned();
                    before["text"] = (text + part["text"].as_str().unwrap()).into();
                }
                None => joined.push(part.clone()),
            }
        }
    }
    let mut response = chunks.last().unwrap().clone();
    if !joined.is_empty() {
        response["candidates"][0]["content"]["parts"] = joined.into();
    }
    response
}
