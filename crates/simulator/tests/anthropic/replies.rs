//! Replies: streams, trigger words and models.

use crate::common::{Server, adaptive, append, assemble, lookup, manual, say};
use serde_json::{Value, json};
use throughline_simulator::Options;

const OPUS: &str = "claude-opus-5-5";

fn kinds(message: &Value) -> Vec<&str> {
    let content = message["content"].as_array().unwrap();
    content.iter().map(|block| block["type"].as_str().unwrap()).collect()
}

fn streamed(body: &Value) -> Value {
    let mut body = body.clone();
    body["stream"] = true.into();
    body
}

#[tokio::test]
async fn every_trigger_streams_correctly_and_equals_its_json() {
    let server = Server::strict().await;
    let table: [(&str, &[&str]); 9] = [
        ("hello", &["thinking", "text"]),
        ("something redacted", &["redacted_thinking", "thinking", "text"]),
        ("think twice", &["thinking", "text", "thinking", "text"]),
        ("only think", &["thinking", "text"]),
        ("use a tool", &["thinking", "text", "tool_use"]),
        ("LOOKUP row 7", &["thinking", "text", "tool_use"]),
        ("use a tool in parallel", &["thinking", "text", "tool_use", "tool_use"]),
        ("use a tool, think twice", &["thinking", "text", "thinking", "tool_use"]),
        ("bench 25", &["text"]),
    ];
    for (text, expected) in table {
        for style in ["delta", "start", "late", "empty"] {
            let header = [("x-simulator-signature", style)];
            let body = adaptive(OPUS, text);
            let whole = server.accept_with(&body, &header).await;
            assert_eq!(kinds(&whole), expected, "{text}");
            let answer = server.post(&streamed(&body), &header).await;
            assert_eq!(answer.header("content-type"), Some("text/event-stream; charset=utf-8"));
            assert!(answer.complete);
            let events = answer.events();
            assert_eq!(events[1], json!({"type": "ping"}));
            assert_eq!(assemble(&events), whole, "{text} {style}");
            let usage = &whole["usage"];
            assert!(
                usage["output_tokens"].as_u64()
                    > usage["output_tokens_details"]["thinking_tokens"].as_u64()
            );
            let stop = if expected.contains(&"tool_use") { "tool_use" } else { "end_turn" };
            assert_eq!(whole["stop_reason"], stop);
        }
    }
}

#[tokio::test]
async fn signature_style_decides_where_the_signature_streams() {
    let server = Server::strict().await;
    let body = streamed(&adaptive(OPUS, "hello"));
    for (style, at_start, deltas) in
        [("delta", false, 1), ("start", true, 0), ("empty", false, 1), ("late", false, 1)]
    {
        let events = server.post(&body, &[("x-simulator-signature", style)]).await.events();
        let start = events.iter().find(|event| event["type"] == "content_block_start").unwrap();
        let early = start["content_block"]["signature"].as_str().unwrap();
        assert_eq!(!early.is_empty(), at_start, "{style}");
        let signatures: Vec<&Value> =
            events.iter().filter(|event| event["delta"]["type"] == "signature_delta").collect();
        assert_eq!(signatures.len(), deltas, "{style}");
        if style == "empty" {
            assert_eq!(signatures[0]["delta"]["signature"], "");
        }
        let pings = events.iter().filter(|event| event["type"] == "ping").count();
        assert_eq!(pings, if style == "late" { 2 } else { 1 });
    }
}

#[tokio::test]
async fn omitted_thinking_is_empty_text_with_a_signature() {
    let server = Server::strict().await;
    let mut body = adaptive(OPUS, "hello");
    for (display, shown) in [(Some("summarized"), true), (Some("omitted"), false), (None, false)] {
        body["thinking"] = match display {
            Some(display) => json!({"type": "adaptive", "display": display}),
            None => json!({"type": "adaptive"}),
        };
        let message = server.accept(&body).await;
        let block = &message["content"][0];
        assert_eq!(block["thinking"] != "", shown, "{display:?}");
        assert!(block["signature"].as_str().unwrap().len() > 200);
        assert!(message["usage"]["output_tokens_details"]["thinking_tokens"].as_u64() > Some(10));
        let events = server.post(&streamed(&body), &[]).await.events();
        assert_eq!(assemble(&events), message);
    }
    let old = server.accept(&manual("claude-sonnet-4-5", "hello")).await;
    assert_ne!(old["content"][0]["thinking"], "", "older models show their thinking");
}

#[tokio::test]
async fn tool_loop_thinks_in_every_round_without_repeated_ids() {
    let server = Server::binding().await;
    for body in [adaptive(OPUS, "use a tool twice"), manual("claude-sonnet-4-5", "use two tools")] {
        let mut body = server.play(body).await;
        say(&mut body, "use a tool in parallel");
        let body = server.play(body).await;
        let messages = body["messages"].as_array().unwrap();
        let answers: Vec<&Value> =
            messages.iter().filter(|message| message["role"] == "assistant").collect();
        let shapes: Vec<Vec<&str>> = answers.iter().map(|answer| kinds(answer)).collect();
        assert_eq!(
            shapes,
            [
                vec!["thinking", "text", "tool_use"],
                vec!["thinking", "tool_use"],
                vec!["thinking", "text"],
                vec!["thinking", "text", "tool_use", "tool_use"],
                vec!["thinking", "text"],
            ]
        );
        let blocks = answers.iter().flat_map(|answer| answer["content"].as_array().unwrap());
        let mut ids: Vec<&str> = blocks.filter_map(|block| block["id"].as_str()).collect();
        assert!(ids.iter().all(|id| id.starts_with("toolu_")));
        let count = ids.len();
        ids.sort_unstable();
        ids.dedup();
        assert_eq!((ids.len(), count), (4, 4));
        let last = answers.last().unwrap()["content"][1]["text"].as_str().unwrap();
        assert!(last.contains("21 degrees"), "{last}");
    }
}

#[tokio::test]
async fn seed_decides_the_reply() {
    let seeded = |seed| Server::start(Options { seed, ..Options::default() });
    let (one, same, other) = (seeded(1).await, seeded(1).await, seeded(2).await);
    let body = adaptive(OPUS, "use a tool in parallel, redacted");
    let said = one.accept(&body).await;
    assert_eq!(said, one.accept(&body).await);
    assert_eq!(said, same.accept(&body).await);
    assert_ne!(said, other.accept(&body).await);
    assert_ne!(said["id"], one.accept(&adaptive(OPUS, "use a tool, redacted!")).await["id"]);
}

#[tokio::test]
async fn thinking_follows_the_mode_and_the_default_of_the_model() {
    let server = Server::strict().await;
    let thinks = async |model: &str, thinking: Value| {
        let mut body = json!({"model": model, "max_tokens": 4096, "messages": [{"role": "user", "content": "hi"}]});
        if !thinking.is_null() {
            body["thinking"] = thinking;
        }
        kinds(&server.accept(&body).await).contains(&"thinking")
    };
    for (model, default) in [
        ("claude-sonnet-4-5", false),
        ("claude-opus-4-6", false),
        ("claude-opus-4-8", false),
        ("claude-opus-5", true),
        ("claude-sonnet-5", true),
        ("claude-haiku-5-5", true),
        ("claude-fable-5-1", true),
        ("glm-5", false),
    ] {
        assert_eq!(thinks(model, Value::Null).await, default, "{model}");
    }
    assert!(!thinks("claude-sonnet-5", json!({"type": "disabled"})).await);
    assert!(thinks("glm-5", json!({"type": "adaptive"})).await);
    assert!(thinks("glm-5", json!({"type": "enabled", "budget_tokens": 1024})).await);
}

#[tokio::test]
async fn between_tools_mode_thinks_only_after_results() {
    let server = Server::strict().await;
    let mut body = json!({"model": "claude-sonnet-5-5", "max_tokens": 4096, "tools": [lookup()],
        "thinking": {"type": "between_tools"}, "messages": [{"role": "user", "content": "use a tool"}]});
    let first = server.accept(&body).await;
    assert_eq!(kinds(&first), ["text", "tool_use"]);
    append(&mut body, &first);
    assert_eq!(kinds(&server.accept(&body).await), ["thinking", "text"]);
}

#[tokio::test]
async fn tool_choice_forces_and_forbids_calls() {
    let server = Server::strict().await;
    let mut body = adaptive("claude-opus-5", "hello");
    for (choice, called) in [
        (json!({"type": "any"}), true),
        (json!({"type": "tool", "name": "lookup"}), true),
        (json!({"type": "auto"}), false),
        (json!({"type": "none"}), false),
    ] {
        body["tool_choice"] = choice;
        let message = server.accept(&body).await;
        assert_eq!(kinds(&message).contains(&"tool_use"), called, "{}", body["tool_choice"]);
    }
    let mut body = adaptive("claude-opus-5", "use a tool in parallel");
    body["tool_choice"] = json!({"type": "auto", "disable_parallel_tool_use": true});
    assert_eq!(kinds(&server.accept(&body).await), ["thinking", "text", "tool_use"]);
}

#[tokio::test]
async fn max_tokens_and_stop_sequences_end_a_reply() {
    let server = Server::strict().await;
    let mut body = adaptive(OPUS, "hello");
    body["max_tokens"] = 0.into();
    let message = server.accept(&body).await;
    assert_eq!((&message["content"], &message["stop_reason"]), (&json!([]), &json!("max_tokens")));
    assert_eq!(assemble(&server.post(&streamed(&body), &[]).await.events())["content"], json!([]));
    body["max_tokens"] = 5.into();
    let message = server.accept(&body).await;
    assert_eq!(message["usage"]["output_tokens"], 5);
    assert_eq!(message["stop_reason"], "max_tokens");
    body["max_tokens"] = 4096.into();
    body["stop_sequences"] = json!(["hello"]);
    let message = server.accept(&body).await;
    assert_eq!(message["stop_reason"], "stop_sequence");
    assert_eq!(message["stop_sequence"], "hello");
    assert!(!message["content"][1]["text"].as_str().unwrap().contains("hello"));
}

#[tokio::test]
async fn headers_set_the_deltas_and_the_model_name() {
    let server = Server::strict().await;
    let body = streamed(&adaptive(OPUS, "hello"));
    let more = [("x-simulator-deltas", "5000"), ("x-simulator-model", "backend-name")];
    let events = server.post(&body, &more).await.events();
    let deltas = events.iter().filter(|event| event["type"] == "content_block_delta").count();
    assert_eq!(deltas, 5000);
    assert_eq!(assemble(&events)["model"], "backend-name");
    server.refuse_with(&body, &[("x-simulator-deltas", "many")], "x-simulator-deltas").await;
}

#[tokio::test]
async fn tokens_per_second_paces_the_stream() {
    let options = Options { tokens_per_second: 100, ..Options::default() };
    let server = Server::start(options).await;
    let mut body = json!({"model": "glm-5", "max_tokens": 99, "messages": [{"role": "user", "content": "bench 20"}]});
    body["stream"] = true.into();
    let answer = server.post(&body, &[]).await;
    assemble(&answer.events());
    let (first, last) = (answer.arrivals.first().unwrap(), answer.arrivals.last().unwrap());
    assert!(answer.arrivals.len() > 10, "{}", answer.arrivals.len());
    assert!((last.0 - first.0).as_millis() >= 150, "{:?}", last.0 - first.0);
}

#[tokio::test]
async fn models_describe_their_thinking() {
    let server = Server::strict().await;
    let list = server.get("/v1/models?limit=1000").await.json();
    let ids: Vec<&str> = list["data"]
        .as_array()
        .unwrap()
        .iter()
        .map(|model| model["id"].as_str().unwrap())
        .collect();
    assert!(ids.contains(&OPUS) && ids.contains(&"claude-sonnet-4-5"));
    let types = async |name: &str| {
        let model = server.get(&format!("/v1/models/{name}")).await.json();
        assert_eq!(model["id"], name);
        let types = &model["capabilities"]["thinking"]["types"];
        ["adaptive", "enabled", "disabled", "between_tools"]
            .map(|kind| types[kind]["supported"].as_bool().unwrap())
    };
    assert_eq!(types("claude-sonnet-4-5").await, [false, true, true, false]);
    assert_eq!(types("claude-opus-4-6").await, [true, true, true, false]);
    assert_eq!(types("claude-opus-5-5").await, [true, false, false, false]);
    assert_eq!(types("claude-sonnet-5-5").await, [true, false, false, true]);
    let effort = &server.get("/v1/models/claude-opus-5-5").await.json()["capabilities"]["effort"];
    assert_eq!(effort["max"]["supported"], true);
}

#[tokio::test]
async fn every_response_has_a_request_id() {
    let server = Server::strict().await;
    for (method, path, status) in [
        ("GET", "/", 200),
        ("HEAD", "/", 200),
        ("GET", "/v1/models", 200),
        ("GET", "/api/hello", 404),
        ("GET", "/v1/messages", 405),
        ("POST", "/v1/messages/batches", 404),
    ] {
        let answer = server.send(method, path, &[], b"").await;
        assert_eq!(answer.status, status, "{method} {path}");
        assert!(answer.header("request-id").unwrap().starts_with("req_"));
    }
    server.get("/api/hello").await.assert_refused(404, "not_found_error", "Not found");
}

#[tokio::test]
async fn count_tokens_returns_input_tokens() {
    let server = Server::strict().await;
    let body = json!({"model": OPUS, "messages": [{"role": "user", "content": "foo"}], "tools": [lookup()]});
    let counted = server.post_to("/v1/messages/count_tokens?beta=true", &body, &[]).await;
    assert!(counted.json()["input_tokens"].as_u64().unwrap() > 20);
}
