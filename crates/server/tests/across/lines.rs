//! Ollama's clients and servers: what only they have.

use http::Method;
use serde_json::{Value, json};
use throughline_testkit::{Answer, Gateway};

use crate::ollama::Ollama;
use crate::speaker::{Speaker, go_on};
use crate::support::{BINARY, House, Plan, fates};

const SAYS: &str = r#"
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

async fn over(row: &str) -> House {
    House::build(&Plan {
        upstreams: &[row],
        scenario: SAYS,
        settings: "keep_alive = \"40ms\"",
        ..Plan::default()
    })
    .await
}

async fn post(gateway: &Gateway, path: &str, body: &Value) -> Answer {
    let headers = [("content-type", "application/json")];
    let body = body.to_string();
    gateway.client.send(Method::POST, path, &headers, body).await
}

fn asking(text: &str) -> Value {
    json!({"model": "m", "messages": [{"role": "user", "content": text}]})
}

fn lines(answer: &Answer) -> Vec<Value> {
    let text = answer.text();
    let lines = text.split_terminator('\n');
    lines.map(|line| serde_json::from_str(line).expect("a line of JSON")).collect()
}

#[tokio::test]
async fn a_reply_that_fails_ends_in_a_line_that_says_so() {
    for row in ["anthropic, adaptive", "ollama"] {
        let house = over(row).await;
        for word in ["break off", "fail"] {
            let answer = post(&house.gateway, "/api/chat", &asking(word)).await.good();
            assert_eq!(answer.header("content-type"), "application/x-ndjson");
            let lines = lines(&answer);
            let (last, said) = lines.split_last().expect("lines");
            assert!(last["error"].is_string(), "{row} {word}: {last}");
            assert!(!said.is_empty() && said.iter().all(|line| line["done"] == false));
            let mut body = asking(word);
            body["stream"] = false.into();
            let whole = post(&house.gateway, "/api/chat", &body).await;
            assert!(whole.status >= 500, "{row} {word}: {}", whole.text());
            assert!(whole.json()["error"].is_string(), "{row} {word}");
        }
    }
}

#[tokio::test]
async fn a_silent_upstream_gets_its_client_lines_that_say_nothing() {
    let house = over("anthropic, adaptive").await;
    for (path, body) in [
        ("/api/chat", asking("slowly")),
        ("/api/generate", json!({"model": "m", "prompt": "slowly"})),
    ] {
        let answer = post(&house.gateway, path, &body).await.good();
        let lines = lines(&answer);
        let text = |line: &Value| {
            let said = line["message"]["content"].as_str();
            said.or(line["response"].as_str()).unwrap_or_default().to_owned()
        };
        let empty = |line: &&Value| text(line).is_empty() && line["done"] == false;
        assert!(lines.iter().filter(empty).count() >= 2, "{}", answer.text());
        let said: String = lines.iter().map(text).collect();
        assert_eq!(said, "One by one they come.");
    }
    house.end_in_peace().await;
}

#[tokio::test]
async fn whoever_asks_nothing_is_told_that_the_model_is_there() {
    let house = over("anthropic, adaptive").await;
    for (path, body, reason) in [
        ("/api/chat", json!({"model": "m"}), "load"),
        ("/api/chat", json!({"model": "m", "messages": [], "keep_alive": 0}), "unload"),
        ("/api/generate", json!({"model": "m", "prompt": ""}), "load"),
    ] {
        let answer = post(&house.gateway, path, &body).await.good();
        assert_eq!(answer.header("content-type"), "application/json");
        let told = answer.json();
        assert_eq!(
            (&told["model"], &told["done"], &told["done_reason"]),
            (&json!("m"), &json!(true), &json!(reason))
        );
    }
    assert_eq!(house.gateway.turns().await[0]["end"], "completed");
    assert_eq!(house.simulators[0].seen().await.len(), 0);
    // A server that can load models is asked to.
    let house = over("ollama").await;
    let body = json!({"model": "m", "keep_alive": "0s", "stream": false});
    let told = post(&house.gateway, "/api/chat", &body).await.good().json();
    assert_eq!(told["done_reason"], "unload");
    assert_eq!(house.last(0).await.json()["keep_alive"], "0s");
    house.end_in_peace().await;
}

#[tokio::test]
async fn a_client_that_says_nothing_of_thinking_gets_it_of_models_that_can() {
    let check = async |row: &str, think: Option<bool>, thought: &str| {
        let house = over(row).await;
        let mut body = asking("ponder");
        body["stream"] = false.into();
        if let Some(think) = think {
            body["think"] = think.into();
        }
        let answer = post(&house.gateway, "/api/chat", &body).await.good();
        let told = answer.json();
        let thinking = told["message"]["thinking"].as_str().unwrap_or_default();
        assert_eq!(thinking, thought, "{row} {think:?}");
        let sent = house.last(0).await.json();
        house.end_in_peace().await;
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
async fn a_model_that_does_not_think_is_asked_once_more_and_then_known() {
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
        let ask = json!({
            "model": "house-model", "max_tokens": 999,
            "messages": [{"role": "user", "content": "hi"}],
            "thinking": {"type": "adaptive"},
        });
        let answer = gateway.client.post("/v1/messages", &[], &ask).await.good();
        let loss = "setting_adapted=thinking;reason=model_does_not_think";
        assert!(answer.header("x-throughline-loss").contains(loss), "{:?}", answer.headers);
        let seen = simulator.seen().await;
        assert_eq!(seen.len(), 2);
        assert_eq!(seen[0].refusal, "\"house-model\" does not support thinking");
        let wanted = seen[0].json()[think].clone();
        assert!(wanted == true || wanted == "medium", "{wanted}");
        let again = seen[1].json()[think].clone();
        assert!(again == false || again.is_null(), "{again}");
        // Now it is known.
        gateway.client.post("/v1/messages", &[], &ask).await.good();
        let seen = simulator.seen().await;
        assert_eq!((seen.len(), seen[2].status), (3, 200));
    }
}

#[tokio::test]
async fn how_much_to_think_is_told_in_any_case() {
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
        post(&gateway, "/v1/chat/completions", &body).await.good();
        let sent = simulator.last().await;
        assert_eq!(sent.refusal, "");
        assert_eq!(sent.json()["think"], think, "{model} {effort:?}");
    }
}

/// Covers: S3-14
#[tokio::test]
async fn reasoning_between_tags_in_the_text_comes_apart() {
    let house = over("ollama").await;
    for stream in [true, false] {
        let mut speaker = Ollama::new(true);
        speaker.think(true);
        speaker.user("tags");
        let client = &house.gateway.client;
        let (said, _) = go_on(&mut speaker, client, "m", stream).await;
        assert_eq!(said.reasoning, "It hides.");
        assert_eq!(said.text, "Yes.");
    }
    house.end_in_peace().await;
}

/// The library for Python knows no ids: what its calls were told under, the vault knows.
#[tokio::test]
async fn calls_that_lost_their_ids_get_them_back_with_their_signatures() {
    let house = House::over(&["gemini 3"]).await;
    let mut speaker = Ollama::new(false);
    speaker.think(true);
    speaker.offer_tool();
    speaker.user("use two tools");
    let (said, _) = house.hear(&mut speaker).await;
    assert_eq!(said.calls.len(), 2);
    // Out of order, as programs answer.
    let calls: Vec<_> = said.calls.iter().rev().cloned().collect();
    speaker.results(&calls, "row blue");
    let (said, _) = house.hear(&mut speaker).await;
    speaker.results(&said.calls, "row green");
    let (said, answer) = house.hear(&mut speaker).await;
    assert_eq!(said.text.trim(), "Blue, then green.");
    assert_eq!(answer.header("x-throughline-loss"), "");
    let sent = house.last(0).await.body;
    assert!(!sent.contains("skip_thought_signature"), "{sent}");
    assert_eq!(sent.matches("thoughtSignature").count(), 2, "{sent}");
    let turn = house.gateway.turns().await.swap_remove(0);
    assert_eq!(fates(&turn), ["left_out policy", "left_out policy"]);
    house.end_in_peace().await;
}

#[tokio::test]
async fn models_are_told_as_ollama_tells_them() {
    let simulator = throughline_testkit::Simulator::start("a").await;
    let url = &simulator.url;
    let config = format!(
        "[[backend]]\nname = \"a\"\ndialect = \"anthropic\"\nbase_url = \"{url}\"\n\
         [[backend]]\nname = \"o\"\ndialect = \"ollama\"\nbase_url = \"{url}\"\nmodels = {{ \"small\" = \"qwen3:8b\" }}\n\
         [route]\ndefault = \"a\"\nrules = [{{ model = \"small\", backend = \"o\" }}]\n"
    );
    let gateway = Gateway::start(BINARY, &config).await;
    let listed = gateway.client.get("/api/tags").await.good().json();
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
        answer.good().json()
    };
    let shown = show("claude-opus-5:latest").await;
    assert_eq!(shown["capabilities"], json!(["completion", "tools", "vision", "thinking"]));
    assert_eq!(show("claude-3-5-haiku-latest").await["capabilities"][2], "vision");
    // A backend of the dialect answers itself, under its own name of the model.
    let shown = show("small").await;
    assert_eq!(shown["details"]["family"], "qwen3");
    assert_eq!(simulator.last().await.json(), json!({"model": "qwen3:8b"}));
    // Nobody lists it, nobody knows it.
    let unknown = post(&gateway, "/api/show", &json!({"model": "nonesuch:1b"})).await;
    assert_eq!(
        (unknown.status, unknown.json()),
        (404, json!({"error": "model 'nonesuch:1b' not found"}))
    );
    let refused = post(&gateway, "/api/show", &json!({})).await;
    assert_eq!((refused.status, refused.json()), (400, json!({"error": "model: is required"})));
    assert_eq!(gateway.client.get("/api/ps").await.good().json(), json!({"models": []}));
    let version = gateway.client.get("/api/version").await.good().json();
    assert!(version["version"].is_string());
    let wrong = post(&gateway, "/api/tags", &json!({})).await;
    assert_eq!((wrong.status, wrong.header("allow")), (405, "GET"));
    let nothing = post(&gateway, "/api/embed", &json!({})).await;
    assert_eq!(nothing.status, 404);
    assert!(nothing.json()["error"].is_string());
}

#[tokio::test]
async fn a_model_is_shown_where_nobody_can_tell_that_there_is_none() {
    let simulator = throughline_testkit::Simulator::start("a").await;
    let url = &simulator.url;
    for backend in [
        // Any name is one of its models.
        format!("base_url = \"{url}\"\nmodels = {{ \"*\" = \"claude-opus-5\" }}"),
        format!("base_url = \"{url}\"\ndefault_model = \"nonesuch\""),
        // It lists none.
        format!("base_url = \"{url}/nowhere\""),
        // It does not answer.
        "base_url = \"http://127.0.0.1:9\"".to_owned(),
    ] {
        let config = format!("[[backend]]\nname = \"a\"\ndialect = \"anthropic\"\n{backend}\n");
        let gateway = Gateway::start(BINARY, &config).await;
        post(&gateway, "/api/show", &json!({"model": "nonesuch"})).await.good();
    }
}
