//! Replies: as lines, as one document, to a single prompt and to an empty prompt.

use serde_json::{Value, json};

use crate::common::Server;
use crate::{LEVELS, PLAIN, THINKS, accept, asking, lookup, post, set};

fn text<'a>(line: &'a Value, member: &str) -> &'a str {
    line["message"][member].as_str().unwrap_or_default()
}

#[tokio::test]
async fn joined_lines_equal_the_whole_reply() {
    let server = Server::strict().await;
    let body = set(asking(THINKS, "use a tool in parallel"), "tools", json!([lookup()]));
    let whole = accept(&server, &body).await;
    // Streaming is the default.
    let mut streamed = body;
    streamed.as_object_mut().unwrap().remove("stream");
    let answer = post(&server, "/api/chat", &streamed).await;
    assert_eq!(answer.header("content-type"), Some("application/x-ndjson"));
    let lines: Vec<Value> = answer
        .text()
        .split_terminator('\n')
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let joined = |member: &str| -> String { lines.iter().map(|line| text(line, member)).collect() };
    assert_eq!(joined("thinking"), text(&whole, "thinking"));
    assert_eq!(joined("content"), text(&whole, "content"));
    let calls: Vec<Value> = lines
        .iter()
        .filter_map(|line| line["message"]["tool_calls"].as_array())
        .flatten()
        .cloned()
        .collect();
    assert_eq!(Value::from(calls.clone()), whole["message"]["tool_calls"]);
    assert_eq!(calls.len(), 2);
    assert!(calls.iter().all(|call| call["function"]["arguments"].is_object()));
    assert_ne!(calls[0]["id"], calls[1]["id"]);
    // One line has both the end of the thinking and the start of the text.
    let both =
        |line: &&Value| !text(line, "thinking").is_empty() && !text(line, "content").is_empty();
    assert_eq!(lines.iter().filter(both).count(), 1);
    let (last, others) = lines.split_last().unwrap();
    assert!(others.iter().all(|line| line["done"] == false));
    assert_eq!((&last["done"], &last["done_reason"]), (&json!(true), &json!("stop")));
    assert_eq!(last["eval_count"], whole["eval_count"]);
    assert!(last["eval_count"].as_u64().unwrap() > 0);
}

#[tokio::test]
async fn thinking_follows_think_and_the_model() {
    let server = Server::strict().await;
    for (model, think, thinks) in [
        (THINKS, Value::Null, true),
        (THINKS, json!(false), false),
        (THINKS, json!("high"), true),
        (LEVELS, Value::Null, true),
        (LEVELS, json!(false), true),
        (PLAIN, Value::Null, false),
    ] {
        let reply = accept(&server, &set(asking(model, "hi"), "think", think.clone())).await;
        assert_eq!(reply["message"].get("thinking").is_some(), thinks, "{model} {think}");
    }
}

#[tokio::test]
async fn num_predict_and_stop_end_a_reply() {
    let server = Server::strict().await;
    let body = set(asking(PLAIN, "hi"), "options", json!({"num_predict": 2}));
    assert_eq!(accept(&server, &body).await["done_reason"], "length");
    let body = set(asking(PLAIN, "hi"), "options", json!({"stop": ["“hi”"]}));
    let reply = accept(&server, &body).await;
    assert_eq!(reply["done_reason"], "stop");
    assert!(!text(&reply, "content").contains("“hi”"));
}

#[tokio::test]
async fn generate_answers_a_prompt_and_an_empty_prompt() {
    let server = Server::strict().await;
    let body = json!({"model": THINKS, "prompt": "Why?", "stream": false});
    let reply = post(&server, "/api/generate", &body).await.json();
    assert!(reply["response"].as_str().unwrap().contains("Why?"));
    assert!(reply["thinking"].is_string() && reply.get("message").is_none());
    for (body, reason) in [
        (json!({"model": THINKS}), "load"),
        (json!({"model": THINKS, "messages": [], "keep_alive": 0}), "unload"),
    ] {
        let reply = accept(&server, &body).await;
        assert_eq!((&reply["done"], &reply["done_reason"]), (&json!(true), &json!(reason)));
    }
}

#[tokio::test]
async fn show_lists_the_capabilities_of_a_model() {
    let server = Server::strict().await;
    let list = server.get("/api/tags").await.json();
    let names: Vec<&str> = list["models"]
        .as_array()
        .unwrap()
        .iter()
        .map(|model| model["name"].as_str().unwrap())
        .collect();
    assert_eq!(names, [THINKS, LEVELS, PLAIN]);
    for (model, thinks) in [(THINKS, true), (LEVELS, true), (PLAIN, false)] {
        let shown = post(&server, "/api/show", &json!({"model": model})).await.json();
        let able = shown["capabilities"].as_array().unwrap();
        assert_eq!(able.contains(&json!("thinking")), thinks, "{model}");
    }
    assert_eq!(post(&server, "/api/show", &json!({})).await.status, 400);
    assert_eq!(server.get("/api/version").await.status, 200);
    assert_eq!(server.get("/api/ps").await.json(), json!({"models": []}));
}

#[tokio::test]
async fn faults_act_on_lines() {
    let server = Server::strict().await;
    let mut body = asking(THINKS, "hi");
    body["stream"] = true.into();
    let ask = async |fault: &str| {
        let headers = [("content-type", "application/json"), ("x-simulator-fault", fault)];
        let body = body.to_string();
        server.send("POST", "/api/chat", &headers, body.as_bytes()).await
    };
    let broken = ask("error:event=2").await;
    let lines: Vec<String> = broken.text().lines().map(str::to_owned).collect();
    assert_eq!(lines.len(), 3);
    assert!(lines[2].starts_with("{\"error\":"), "{}", lines[2]);
    assert_eq!(ask("end:event=1").await.text().lines().count(), 1);
    let busy = ask("status:503").await;
    assert_eq!(busy.status, 503);
    assert!(busy.json()["error"].is_string());
}
