//! The channels for other programs, as `redis-cli` receives them.

use base64::Engine;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use serde_json::{Value, json};
use throughline_sealing::{ChatKey, FieldPath};
use throughline_testkit::{Redis, RedisMessages};

use super::{make_room, redis_settings};
use crate::rooms::{Events, say};
use crate::sealed::CHAT_KEY;
use crate::support::{ANTHROPIC, Api, done, text};

const SCENARIO: &str = r#"
[[step]]
when = { contains = "the sum" }
say = [
  { thinking = "First this. Then that." }, { text = "I ask. " },
  { tool = { name = "add", input = { a = 2 } } },
]
[[step]]
when = { contains = "" }
say = [{ thinking = "First this. Then that." }, { text = "The answer is 42." }]
"#;

/// The messages of one run until its end, with their channels.
fn messages(listener: &mut RedisMessages) -> Vec<(String, Value)> {
    let mut seen = Vec::new();
    loop {
        let (channel, message) = listener.next_message();
        let message: Value = serde_json::from_str(&message).expect("JSON");
        seen.push((channel, message.clone()));
        if message["type"] == "done" {
            return seen;
        }
    }
}

/// Checks that each message is on its channel, belongs to the run and has a rising number.
fn check_channels(seen: &[(String, Value)], chat: &str, run: &str) {
    let mut last = 0;
    for (channel, message) in seen {
        let kind = text(&message["type"]);
        let expected = match kind.starts_with("thinking_") {
            true => format!("chat_stream_thinking::{chat}"),
            false => format!("chat_stream::{chat}"),
        };
        assert_eq!(*channel, expected, "{message}");
        assert_eq!(message["task_id"], run, "{message}");
        let number = message["seq"].as_u64().expect("a number");
        assert!(number >= last, "{seen:#?}");
        last = number;
    }
}

fn members(message: &Value) -> Vec<&str> {
    message.as_object().expect("an object").keys().map(String::as_str).collect()
}

fn joined(seen: &[(String, Value)], kind: &str, member: &str) -> String {
    let of_kind = seen.iter().filter(|(_, message)| message["type"] == kind);
    of_kind.map(|(_, message)| text(&message[member])).collect()
}

fn kinds(seen: &[(String, Value)]) -> Vec<&str> {
    let mut kinds: Vec<&str> = seen.iter().map(|(_, message)| text(&message["type"])).collect();
    kinds.dedup();
    kinds
}

/// Covers: S0-35, S0-36, S0-38, S0-39, S0-40, S0-41, S0-42, S0-43, C-12
#[tokio::test]
async fn chat_is_published_on_two_channels() {
    let redis = Redis::start();
    let api = Api::with(&[ANTHROPIC], SCENARIO, &redis_settings(&redis)).await;
    let mut listener = redis.listen("chat_stream*");
    let project = api.project(json!({"title": "t"})).await;
    let tools = json!([{"name": "add", "parameters": {"type": "object"}}]);
    let chat = json!({"message": "the sum", "thinking": "medium", "tools": tools});
    let answer = api.post(&format!("{project}/chat"), chat).await.expect_ok();
    let run = answer.header("x-throughline-run").to_owned();
    let node = api.nodes(&project, "main").await.remove(1);
    let seen = messages(&mut listener);
    check_channels(&seen, project.trim_start_matches("/api/projects/"), &run);
    let order = ["thinking_chunk", "thinking_complete", "text_chunk", "tool_call", "done"];
    assert_eq!(kinds(&seen), order);
    assert_eq!(joined(&seen, "thinking_chunk", "content"), "First this. Then that.");
    assert!(seen.iter().filter(|(_, message)| message["type"] == "thinking_chunk").count() > 1);
    assert_eq!(joined(&seen, "text_chunk", "content"), "I ask. ");
    let of_kind = |kind: &str| {
        let found = seen.iter().find(|(_, message)| message["type"] == kind);
        &found.expect("a message of this kind").1
    };
    assert_eq!(members(of_kind("thinking_chunk")), ["type", "content", "task_id", "seq"]);
    let complete = of_kind("thinking_complete");
    assert_eq!(members(complete), ["type", "total_tokens", "signature", "task_id", "seq"]);
    assert_eq!(complete["signature"], node["contentBlocks"][0]["signature"]);
    assert!(text(&complete["signature"]).len() > 20, "{complete}");
    let call = of_kind("tool_call");
    assert_eq!(call["name"], "add");
    assert_eq!(serde_json::from_str::<Value>(text(&call["arguments"])).unwrap(), json!({"a": 2}));
    assert_eq!(of_kind("done")["status"], "completed");
    assert_eq!(of_kind("done")["thinking_tokens"], node["thinking_token_count"]);
}

#[tokio::test]
async fn room_is_published_under_its_own_id() {
    let redis = Redis::start();
    let api = Api::with(&[ANTHROPIC], SCENARIO, &redis_settings(&redis)).await;
    let mut listener = redis.listen("chat_stream*");
    let room = make_room(&api).await;
    for _ in 0..2 {
        let (_, runs) = say(&api, &room, "@tutor hello").await;
        let seen = messages(&mut listener);
        check_channels(&seen, room.trim_start_matches("/api/rooms/"), &runs[0]);
        assert_eq!(joined(&seen, "thinking_chunk", "content"), "First this. Then that.");
        assert_eq!(joined(&seen, "text_chunk", "content"), "The answer is 42.");
        let completed = seen.iter().filter(|(_, seen)| seen["type"] == "thinking_complete");
        assert_eq!(completed.count(), 1, "{seen:#?}");
    }
}

/// The text of an answer that a hook may still refuse is in no channel.
#[tokio::test]
async fn text_that_a_hook_decides_about_is_not_published() {
    let redis = Redis::start();
    let hooks = "[hooks]\nallow_private = true\n";
    let settings = format!("{hooks}{}", redis_settings(&redis));
    let api = Api::with(&[ANTHROPIC], SCENARIO, &settings).await;
    let mut listener = redis.listen("chat_stream*");
    let room = make_room(&api).await;
    let hook = json!({"trigger": "before_broadcast", "url": "http://127.0.0.1:9/hook",
        "secret": "whsec_MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIz", "blocking": true,
        "onFailure": "closed", "timeoutMs": 500});
    let made = api.post(&format!("{room}/hooks"), hook).await;
    assert!(made.status < 300, "{}", made.text());
    let mut events = Events::open(&api, &room, "").await;
    say(&api, &room, "@tutor hello").await;
    events.until(|event| event["type"] == "ERROR").await;
    let seen = messages(&mut listener);
    assert_eq!(kinds(&seen), ["thinking_chunk", "thinking_complete", "done"]);
}

/// Covers: S0-3, C-33
#[tokio::test]
async fn channels_of_a_sealed_project_have_only_ciphertext() {
    let redis = Redis::start();
    let mut api = Api::with(&[ANTHROPIC], SCENARIO, &redis_settings(&redis)).await;
    let key = ChatKey::new([5; 32]);
    api.present(&[(CHAT_KEY, &key.write())]);
    let sealed = json!({"title": "t", "mode": "sealed", "keyCheck": key.key_check().to_string()});
    let project = api.project(sealed).await;
    let mut listener = redis.listen("chat_stream*");
    let chat = json!({"message": "hello", "thinking": "medium"});
    let answer = api.post(&format!("{project}/chat"), chat).await.expect_ok();
    let run = answer.header("x-throughline-run").to_owned();
    let lines = crate::support::lines(&answer);
    assert_eq!(done(&lines)["reason"], "completed");
    let seen = messages(&mut listener);
    let chat = project.trim_start_matches("/api/projects/");
    check_channels(&seen, chat, &run);
    for words in ["First", "that", "answer", "42"] {
        assert!(!json!(seen).to_string().contains(words), "{words}: {seen:#?}");
    }
    let opened = |kind: &str, member: &str| -> String {
        let of_kind = seen.iter().filter(|(_, message)| message["type"] == kind);
        let open = |message: &Value| {
            let envelope = text(&message[format!("encrypted_{member}")]);
            let envelope = BASE64_URL_SAFE_NO_PAD.decode(envelope).expect("base64url");
            let field = format!("stream {member} {}", message["seq"]);
            let path = FieldPath { chat: text(&message["project"]), node: &run, field: &field };
            String::from_utf8(key.open(path, &envelope).expect("the key opens it")).expect("text")
        };
        of_kind.map(|(_, message)| open(message)).collect()
    };
    assert_eq!(opened("thinking_chunk", "content"), "First this. Then that.");
    assert_eq!(opened("text_chunk", "content"), "The answer is 42.");
    assert!(opened("thinking_complete", "signature").len() > 20);
}
