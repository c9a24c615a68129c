//! Rounds: what is stored, what is sent in the next round and in the next turn.

use serde_json::{Value, json};

use super::{SCENARIO, api, newest, of_type, results, server};
use crate::support::{ANTHROPIC, Api, CHAT, GEMINI, RESPONSES, done, kinds, lines, run_of, text};

/// Covers: S3-20, S3-21, C-4, S2-44
#[tokio::test]
async fn one_answer_has_all_rounds_in_order() {
    for backend in [ANTHROPIC, GEMINI, RESPONSES, CHAT] {
        let api = Api::with(&[backend], SCENARIO, &server("calc", &[], "")).await;
        let project = api.project(json!({"title": "t"})).await;
        let ask = json!({"message": "the sum", "tools": ["calc"]});
        let lines = api.chat(&project, ask).await;
        assert_eq!(done(&lines)["reason"], "completed", "{}: {lines:#?}", backend.0);
        let shown: Vec<&str> = lines
            .iter()
            .map(|line| text(&line["type"]))
            .filter(|kind| !kind.starts_with("thinking_signature"))
            .collect();
        let shown: Vec<&str> = shown.chunk_by(|one, next| one == next).map(|run| run[0]).collect();
        let expected = ["thinking", "text", "tool_call", "tool_result", "thinking", "text", "done"];
        assert_eq!(shown, expected, "{}", backend.0);
        let result = of_type(&lines, "tool_result")[0];
        assert_eq!((&result["content"], &result["isError"]), (&json!("5"), &json!(false)));

        let nodes = api.nodes(&project, "main").await;
        assert_eq!(nodes.len(), 2, "{nodes:#?}");
        let expected = ["thinking", "text", "tool_call", "tool_result", "thinking", "text"];
        let found = kinds(&nodes[1]);
        // Gemini signs an empty text at the end.
        let found: Vec<&str> =
            found.chunk_by(|one, next| one == next).map(|run| &*run[0]).collect();
        assert_eq!(found, expected, "{}", backend.0);
        // Both rounds count.
        let usage = &nodes[1]["usage"];
        assert_eq!(*usage, done(&lines)["usage"], "{}", backend.0);

        // The next turn has both rounds in the provider's own form, and the preview shows it.
        let next = json!({"message": "plain", "tools": ["calc"]});
        let preview =
            api.post(&format!("{project}/preview"), next.clone()).await.expect_ok().json();
        let lines = api.chat(&project, next).await;
        assert_eq!(done(&lines)["reason"], "completed", "{}: {lines:#?}", backend.0);
        let sent = api.simulators[0].last_received().await.json();
        assert_eq!(preview["body"], sent, "{}", backend.0);
        assert_eq!(preview["nodes"][1]["form"], "raw", "{preview}");
        assert_eq!(api.refusals().await, [""; 0], "{}", backend.0);
        let received = api.simulators[0].received().await;
        assert_eq!(received.len(), 3, "two rounds and a turn");
        // What was sent in the second round is the beginning of what is sent in the next turn.
        let (second, third) = (messages(&received[1].json()), messages(&sent));
        assert_eq!(third[..second.len()], second[..], "{}", backend.0);
    }
}

/// The messages of a request in any dialect, without marks for caches.
fn messages(body: &Value) -> Vec<Value> {
    let list = ["messages", "contents", "input"].into_iter().find_map(|key| body[key].as_array());
    let mut messages = list.cloned().expect("messages");
    for block in
        messages.iter_mut().filter_map(|message| message["content"].as_array_mut()).flatten()
    {
        if let Some(block) = block.as_object_mut() {
            block.remove("cache_control");
        }
    }
    messages
}

#[tokio::test]
async fn second_round_gets_the_signed_thinking_of_the_first() {
    let api = api(&server("calc", &[], "")).await;
    let project = api.project(json!({"title": "t"})).await;
    let ask =
        json!({"message": "then again", "tools": ["calc/echo", "calc/add"], "thinking": true});
    let lines = api.chat(&project, ask).await;
    assert_eq!(done(&lines)["reason"], "completed", "{lines:#?}");
    let node = newest(&api, &project).await;
    let expected = [
        "thinking",
        "tool_call",
        "tool_result",
        "thinking",
        "tool_call",
        "tool_result",
        "thinking",
        "text",
    ];
    assert_eq!(kinds(&node), expected);
    let received = api.simulators[0].received().await;
    let thinking: Vec<usize> = received.iter().map(|request| request.thinking().len()).collect();
    assert_eq!(thinking, [0, 1, 2]);
    let stored = &node["contentBlocks"][0]["signature"];
    assert_eq!(received[2].thinking()[0]["signature"], *stored);
    let offered = received[0].json()["tools"].as_array().map(Vec::len);
    assert_eq!(offered, Some(2), "only the tools that were named");
    assert_eq!(api.refusals().await, [""; 0]);
}

/// Covers: S2-45
#[tokio::test]
async fn parallel_calls_give_a_result_each() {
    let api = api(&server("calc", &[], "")).await;
    let project = api.project(json!({"title": "t"})).await;
    let lines = api.chat(&project, json!({"message": "both at once", "tools": ["calc"]})).await;
    assert_eq!(done(&lines)["reason"], "completed", "{lines:#?}");
    let mut found = results(&newest(&api, &project).await);
    found.sort();
    assert_eq!(found, ["5", "echo"]);
    assert_eq!(api.refusals().await, [""; 0]);
}

#[tokio::test]
async fn clients_calls_end_the_run_after_the_servers() {
    let api = api(&server("calc", &[], "")).await;
    let project = api.project(json!({"title": "t"})).await;
    let own = json!({"name": "own", "parameters": {"type": "object", "properties": {}}});
    let ask = json!({"message": "mixed", "tools": ["calc", own]});
    let lines = api.chat(&project, ask).await;
    assert_eq!(done(&lines)["stop_reason"], "tool_calls", "{lines:#?}");
    let results = of_type(&lines, "tool_result");
    assert_eq!((results.len(), &results[0]["content"]), (1, &json!("5")));
    let calls = of_type(&lines, "tool_call");
    let (own_call, server_call) = (calls[0]["id"].clone(), calls[1]["id"].clone());
    let answer = |id: &Value| json!({"toolResults": [{"id": id, "content": "row 7"}], "tools": ["calc", own]});
    let refused = api.post(&format!("{project}/chat"), answer(&server_call)).await;
    assert_eq!(refused.status, 400, "{}", refused.text());
    let lines = api.chat(&project, answer(&own_call)).await;
    assert_eq!(done(&lines)["reason"], "completed", "{lines:#?}");
    assert_eq!(api.refusals().await, [""; 0]);
}

///
#[tokio::test]
async fn limits_end_the_loop_with_their_name() {
    for (limit, reason, status) in [
        ("max_rounds = 2", "max_rounds", "completed"),
        ("max_time = \"1s\"", "timeout", "interrupted"),
    ] {
        let settings = format!("{}[tools]\n{limit}\n", server("calc", &[], ""));
        let api = api(&settings).await;
        let project = api.project(json!({"title": "t"})).await;
        let said = if reason == "timeout" { "please wait" } else { "forever" };
        let ask = json!({"message": said, "tools": ["calc"]});
        let answer = api.open(http::Method::POST, &format!("{project}/chat"), &ask).await;
        let run = run_of(&answer);
        let shown = lines(&answer.read_all().await);
        assert_eq!(done(&shown)["reason"], reason, "{shown:#?}");
        let nodes = api.nodes(&project, "main").await;
        let run = api.get(&format!("/api/runs/{run}")).await;
        assert_eq!(run["status"], status);
        let results = results(&nodes[1]);
        let (last, expected) = match reason {
            "timeout" => (results.last(), "this call was interrupted; it may have run"),
            _ => (results.last(), "the run ended before this call was made"),
        };
        assert!(last.is_some_and(|last| last.starts_with(expected)), "{results:?}");
        // The branch goes on.
        let lines = api.chat(&project, json!({"message": "plain", "tools": ["calc"]})).await;
        assert_eq!(done(&lines)["reason"], "completed", "{lines:#?}");
        assert_eq!(api.refusals().await, [""; 0]);
    }
}

#[tokio::test]
async fn forced_call_is_forced_only_once() {
    let api = api(&server("calc", &[], "")).await;
    let project = api.project(json!({"title": "t"})).await;
    let ask = json!({"message": "the sum", "tools": ["calc"], "tool_choice": "required", "thinking": false});
    let lines = api.chat(&project, ask).await;
    assert_eq!(done(&lines)["reason"], "completed", "{lines:#?}");
    let choices: Vec<Value> = api.simulators[0]
        .received()
        .await
        .iter()
        .map(|seen| seen.json()["tool_choice"]["type"].clone())
        .collect();
    assert_eq!(choices, [json!("any"), json!("auto")]);
}
