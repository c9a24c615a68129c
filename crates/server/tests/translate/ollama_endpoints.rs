//! Behaviour that only Ollama's clients and servers have.

use http::Method;
use serde_json::{Value, json};
use throughline_testkit::{Answer, Gateway, block_fates};

use crate::ollama::Ollama;
use crate::support::{BINARY, BedOptions, TestBed};
use crate::test_client::{TestClient, send_turn};

const SCENARIO: &str = r#"
[[step]]
when = { contains = "break off" }
fault = "end:event=4"
say = [{ text = "This will not come to its end." }]
[[step]]
when = { contains = "fail" }
fault = "error:event=6"
say = [{ text = "This will not come to its end." }]
[[step]]
when = { contains = "slowly" }
fault = "stall:event=3,ms=200"
say = [{ text = "One by one they come." }]
[[step]]
when = { contains = "tags" }
say = [{ text = "<think>\nIt hides.\n</think>\n\nYes." }]
[[step]]
when = { contains = "ponder" }
say = [{ thinking = "First this." }, { text = "I have thought." }]
"#;

async fn over(row: &str) -> TestBed {
    TestBed::build(&BedOptions {
        upstreams: &[row],
        scenario: SCENARIO,
        settings: "keep_alive = \"40ms\"",
        ..BedOptions::default()
    })
    .await
}

async fn post(gateway: &Gateway, path: &str, body: &Value) -> Answer {
    let headers = [("content-type", "application/json")];
    let body = body.to_string();
    gateway.client.send(Method::POST, path, &headers, body).await
}

fn chat_request(text: &str) -> Value {
    json!({"model": "m", "messages": [{"role": "user", "content": text}]})
}

fn lines(answer: &Answer) -> Vec<Value> {
    let text = answer.text();
    let lines = text.split_terminator('\n');
    lines.map(|line| serde_json::from_str(line).expect("a line of JSON")).collect()
}

#[tokio::test]
async fn failed_reply_ends_in_an_error_line() {
    for row in ["anthropic, adaptive", "ollama"] {
        let bed = over(row).await;
        for word in ["break off", "fail"] {
            let answer = post(&bed.gateway, "/api/chat", &chat_request(word)).await.expect_ok();
            assert_eq!(answer.header("content-type"), "application/x-ndjson");
            let lines = lines(&answer);
            let (last, content) = lines.split_last().expect("lines");
            assert!(last["error"].is_string(), "{row} {word}: {last}");
            assert!(!content.is_empty() && content.iter().all(|line| line["done"] == false));
            let mut body = chat_request(word);
            body["stream"] = false.into();
            let whole = post(&bed.gateway, "/api/chat", &body).await;
            assert!(whole.status >= 500, "{row} {word}: {}", whole.text());
            assert!(whole.json()["error"].is_string(), "{row} {word}");
        }
    }
}

#[tokio::test]
async fn silent_upstream_causes_empty_lines() {
    let bed = over("anthropic, adaptive").await;
    for (path, body) in [
        ("/api/chat", chat_request("slowly")),
        ("/api/generate", json!({"model": "m", "prompt": "slowly"})),
    ] {
        let answer = post(&bed.gateway, path, &body).await.expect_ok();
        let lines = lines(&answer);
        let text = |line: &Value| {
            let content = line["message"]["content"].as_str();
            content.or(line["response"].as_str()).unwrap_or_default().to_owned()
        };
        let empty = |line: &&Value| text(line).is_empty() && line["done"] == false;
        assert!(lines.iter().filter(empty).count() >= 2, "{}", answer.text());
        let content: String = lines.iter().map(text).collect();
        assert_eq!(content, "One by one they come.");
    }
    bed.expect_no_refusals().await;
}

#[tokio::test]
async fn request_without_messages_reports_a_loaded_model() {
    let bed = over("anthropic, adaptive").await;
    for (path, body, reason) in [
        ("/api/chat", json!({"model": "m"}), "load"),
        ("/api/chat", json!({"model": "m", "messages": [], "keep_alive": 0}), "unload"),
        ("/api/generate", json!({"model": "m", "prompt": ""}), "load"),
    ] {
        let answer = post(&bed.gateway, path, &body).await.expect_ok();
        assert_eq!(answer.header("content-type"), "application/json");
        let reply = answer.json();
        assert_eq!(
            (&reply["model"], &reply["done"], &reply["done_reason"]),
            (&json!("m"), &json!(true), &json!(reason))
        );
    }
    assert_eq!(bed.gateway.turns().await[0]["end"], "completed");
    assert_eq!(bed.simulators[0].received().await.len(), 0);
    // A server that can load models gets this request.
    let bed = over("ollama").await;
    let body = json!({"model": "m", "keep_alive": "0s", "stream": false});
    let reply = post(&bed.gateway, "/api/chat", &body).await.expect_ok().json();
    assert_eq!(reply["done_reason"], "unload");
    assert_eq!(bed.last_received(0).await.json()["keep_alive"], "0s");
    bed.expect_no_refusals().await;
}

#[tokio::test]
async fn thinking_is_on_by_default_for_models_that_support_it() {
    let check = async |row: &str, think: Option<bool>, thought: &str| {
        let bed = over(row).await;
        let mut body = chat_request("ponder");
        body["stream"] = false.into();
        if let Some(think) = think {
            body["think"] = think.into();
        }
        let answer = post(&bed.gateway, "/api/chat", &body).await.expect_ok();
        let reply = answer.json();
        let thinking = reply["message"]["thinking"].as_str().unwrap_or_default();
        assert_eq!(thinking, thought, "{row} {think:?}");
        let sent = bed.last_received(0).await.json();
        bed.expect_no_refusals().await;
        sent
    };
    let sent = check("anthropic, budget", None, "First this.").await;
    assert_eq!(sent["thinking"]["type"], "enabled");
    let sent = check("anthropic, budget", Some(false), "First this.").await;
    assert_eq!(sent["thinking"]["type"], "disabled");
    let sent = check("ollama", None, "First this.").await;
    assert_eq!(sent["think"], true);
    let sent = check("ollama", Some(false), "First this.").await;
    assert_eq!(sent["think"], false);
}

#[tokio::test]
async fn model_without_thinking_is_learnt_after_one_retry() {
    for (dialect, think) in [
        ("dialect = \"ollama\"", "think"),
        ("dialect = \"openai_chat\"\nvariant = \"ollama\"", "reasoning_effort"),
    ] {
        let chat = dialect.contains("openai_chat");
        let simulator = throughline_testkit::Simulator::with(throughline_simulator::Options {
            variant: chat.then(|| throughline_simulator::Variant::named("ollama").expect("a row")),
            ..Default::default()
        })
        .await;
        let config =
            format!("[[backend]]\nname = \"a\"\n{dialect}\nbase_url = \"{}\"\n", simulator.url);
        let gateway = Gateway::start(BINARY, &config).await;
        let request = json!({
            "model": "house-model", "max_tokens": 999,
            "messages": [{"role": "user", "content": "hi"}],
            "thinking": {"type": "adaptive"},
        });
        let answer = gateway.client.post("/v1/messages", &[], &request).await.expect_ok();
        let loss = "setting_adapted=thinking;reason=model_does_not_think";
        assert!(answer.header("x-throughline-loss").contains(loss), "{:?}", answer.headers);
        let seen = simulator.received().await;
        assert_eq!(seen.len(), 2);
        assert_eq!(seen[0].refusal, "\"house-model\" does not support thinking");
        let wanted = seen[0].json()[think].clone();
        assert!(wanted == true || wanted == "medium", "{wanted}");
        let again = seen[1].json()[think].clone();
        assert!(again == false || again.is_null(), "{again}");
        // The gateway knows it now.
        gateway.client.post("/v1/messages", &[], &request).await.expect_ok();
        let seen = simulator.received().await;
        assert_eq!((seen.len(), seen[2].status), (3, 200));
    }
}

#[tokio::test]
async fn thinking_effort_is_sent_in_any_case() {
    let simulator = throughline_testkit::Simulator::start("a").await;
    let config = format!(
        "[[backend]]\nname = \"a\"\ndialect = \"ollama\"\nbase_url = \"{}\"\n",
        simulator.url
    );
    let gateway = Gateway::start(BINARY, &config).await;
    for (model, effort, think) in [
        ("qwen3:8b", None, json!(true)),
        ("qwen3:8b", Some("none"), json!(false)),
        ("qwen3:8b", Some("high"), json!(true)),
        ("gpt-oss:20b", None, json!(true)),
        ("gpt-oss:20b", Some("high"), json!("high")),
        ("gpt-oss:20b", Some("none"), json!("low")),
        ("llama3.2:3b", None, json!(false)),
        ("llama3.2:3b", Some("high"), json!(false)),
        ("house-model", None, Value::Null),
    ] {
        let mut body = json!({"model": model, "messages": [{"role": "user", "content": "hi"}]});
        if let Some(effort) = effort {
            body["reasoning_effort"] = effort.into();
        }
        post(&gateway, "/v1/chat/completions", &body).await.expect_ok();
        let sent = simulator.last_received().await;
        assert_eq!(sent.refusal, "");
        assert_eq!(sent.json()["think"], think, "{model} {effort:?}");
    }
}

/// Covers: S3-14
#[tokio::test]
async fn reasoning_tags_in_the_text_are_separated() {
    let bed = over("ollama").await;
    for stream in [true, false] {
        let mut test_client = Ollama::new(true, true);
        test_client.set_thinking(true);
        test_client.push_user("tags");
        let client = &bed.gateway.client;
        let (content, _) = send_turn(&mut test_client, client, "m", stream).await;
        assert_eq!(content.reasoning, "It hides.");
        assert_eq!(content.text, "Yes.");
    }
    bed.expect_no_refusals().await;
}

/// The Python library has no ids. The vault knows the original ids of its calls.
#[tokio::test]
async fn dropped_call_ids_are_restored_with_their_signatures() {
    let bed = TestBed::over(&["gemini 3"]).await;
    let mut test_client = Ollama::new(false, true);
    test_client.set_thinking(true);
    test_client.offer_tool();
    test_client.push_user("use two tools");
    let (content, _) = bed.send(&mut test_client).await;
    assert_eq!(content.calls.len(), 2);
    // In another order, as programs may answer.
    let calls: Vec<_> = content.calls.iter().rev().cloned().collect();
    test_client.push_results(&calls, "row blue");
    let (content, _) = bed.send(&mut test_client).await;
    test_client.push_results(&content.calls, "row green");
    let (content, answer) = bed.send(&mut test_client).await;
    assert_eq!(content.text.trim(), "Blue, then green.");
    assert_eq!(answer.header("x-throughline-loss"), "");
    let sent = bed.last_received(0).await.body;
    assert!(!sent.contains("skip_thought_signature"), "{sent}");
    assert_eq!(sent.matches("thoughtSignature").count(), 2, "{sent}");
    let turn = bed.gateway.turns().await.swap_remove(0);
    assert_eq!(block_fates(&turn), ["left_out policy", "left_out policy"]);
    bed.expect_no_refusals().await;
}

#[tokio::test]
async fn models_are_listed_in_the_form_of_ollama() {
    let simulator = throughline_testkit::Simulator::start("a").await;
    let url = &simulator.url;
    let config = format!(
        "[[backend]]\nname = \"a\"\ndialect = \"anthropic\"\nbase_url = \"{url}\"\n\
         [[backend]]\nname = \"o\"\ndialect = \"ollama\"\nbase_url = \"{url}\"\nmodels = {{ \"small\" = \"qwen3:8b\" }}\n\
         [route]\ndefault = \"a\"\nrules = [{{ model = \"small\", backend = \"o\" }}]\n"
    );
    let gateway = Gateway::start(BINARY, &config).await;
    let listed = gateway.client.get("/api/tags").await.expect_ok().json();
    let names: Vec<&str> = listed["models"]
        .as_array()
        .expect("a list")
        .iter()
        .filter_map(|model| model["model"].as_str())
        .collect();
    for name in ["claude-opus-5", "qwen3:8b", "small"] {
        assert!(names.contains(&name), "{name}: {names:?}");
    }
    let show = async |name: &str| {
        let answer = post(&gateway, "/api/show", &json!({"model": name})).await;
        answer.expect_ok().json()
    };
    let shown = show("claude-opus-5:latest").await;
    assert_eq!(shown["capabilities"], json!(["completion", "tools", "vision", "thinking"]));
    assert_eq!(show("claude-3-5-haiku-latest").await["capabilities"][2], "vision");
    // An Ollama backend answers itself, under its own name of the model.
    let shown = show("small").await;
    assert_eq!(shown["details"]["family"], "qwen3");
    assert_eq!(simulator.last_received().await.json(), json!({"model": "qwen3:8b"}));
    // No backend lists or knows this model.
    let unknown = post(&gateway, "/api/show", &json!({"model": "nonesuch:1b"})).await;
    assert_eq!(
        (unknown.status, unknown.json()),
        (404, json!({"error": "model 'nonesuch:1b' not found"}))
    );
    let refused = post(&gateway, "/api/show", &json!({})).await;
    assert_eq!((refused.status, refused.json()), (400, json!({"error": "model: is required"})));
    assert_eq!(gateway.client.get("/api/ps").await.expect_ok().json(), json!({"models": []}));
    let version = gateway.client.get("/api/version").await.expect_ok().json();
    assert!(version["version"].is_string());
    let mismatches = post(&gateway, "/api/tags", &json!({})).await;
    assert_eq!((mismatches.status, mismatches.header("allow")), (405, "GET"));
    let nothing = post(&gateway, "/api/embed", &json!({})).await;
    assert_eq!(nothing.status, 404);
    assert!(nothing.json()["error"].is_string());
}

#[tokio::test]
async fn show_describes_a_model_unless_it_is_known_to_be_missing() {
    let simulator = throughline_testkit::Simulator::start("a").await;
    let url = &simulator.url;
    for backend in [
        // This backend accepts any name.
        format!("base_url = \"{url}\"\nmodels = {{ \"*\" = \"claude-opus-5\" }}"),
        format!("base_url = \"{url}\"\ndefault_model = \"nonesuch\""),
        // This backend lists no models.
        format!("base_url = \"{url}/nowhere\""),
        // This backend does not answer.
        "base_url = \"http://127.0.0.1:9\"".to_owned(),
    ] {
        let config = format!("[[backend]]\nname = \"a\"\ndialect = \"anthropic\"\n{backend}\n");
        let gateway = Gateway::start(BINARY, &config).await;
        post(&gateway, "/api/show", &json!({"model": "nonesuch"})).await.expect_ok();
    }
}
