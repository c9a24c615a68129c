//! The admin API: backends, switch, statistics, turns, health, metrics.

use http::Method;
use serde_json::{Value, json};
use throughline_testkit::{Conversation, Gateway, RawUpstream, Simulator, sse_events};

use crate::support::{
    BINARY, STREAM, backend, gateway_over_raw_upstream, message_request, open_stream,
};

fn keys(value: &Value) -> Vec<&str> {
    let mut keys: Vec<&str> = value.as_object().unwrap().keys().map(String::as_str).collect();
    keys.sort_unstable();
    keys
}

#[tokio::test]
async fn backends_are_listed_without_their_keys() {
    let a = Simulator::start("a").await;
    let config = [
        backend(
            "a",
            &a.url,
            "api_key = \"sk-secret\"\nsignature_domain = \"d\"\nmodels = { \"x-*\" = \"y\" }",
        ),
        backend("gone", "http://127.0.0.1:1/v1", ""),
    ];
    let gateway = Gateway::start(BINARY, &config.concat()).await;
    gateway.client.get("/b/gone/v1/models").await;
    let answer = gateway.client.get("/admin/backends").await.expect_ok().json();
    assert_eq!(answer["active"], "a");
    let expected = json!({
        "name": "a", "dialect": "anthropic", "variant": "", "base_url": a.url, "domain": "d",
        "healthy": true, "models": {"x-*": "y"}, "default_model": null,
    });
    assert_eq!(answer["backends"][0], expected);
    assert_eq!(answer["backends"][1]["name"], "gone");
    assert_eq!(answer["backends"][1]["healthy"], false);
    assert_eq!(answer["backends"][1]["domain"], "gone");
    assert!(!answer.to_string().contains("secret"));
}

#[tokio::test]
async fn switch_reports_both_backends_or_the_mistake() {
    let (a, b) = (Simulator::start("a").await, Simulator::start("b").await);
    let gateway = Gateway::over_simulators(BINARY, &[("a", &a), ("b", &b)], "").await;
    let client = &gateway.client;
    assert_eq!(gateway.switch("b").await, json!({"active": "b", "previous": "a"}));
    assert_eq!(gateway.switch("b").await, json!({"active": "b", "previous": "b"}));
    let unknown = client.post("/admin/switch", &[], &json!({"backend": "glm"})).await;
    assert_eq!(unknown.status, 404);
    let message = unknown.json()["error"]["message"].to_string();
    assert!(message.contains("`a`, `b`"), "{message}");
    for body in ["", "{", "{}", "[]", "{\"backend\":7}", "{\"backend\":null}", "b"] {
        let answer = client.post_bytes("/admin/switch", &[], body).await;
        assert_eq!(answer.status, 400, "{body}: {}", answer.text());
        assert!(answer.text().contains("expected"), "{}", answer.text());
    }
    assert_eq!(client.get("/admin/switch").await.status, 405);
    assert_eq!(client.get("/admin/backends").await.json()["active"], "b");
}

/// Covers: S1-29
#[tokio::test]
async fn statistics_have_exactly_the_documented_members() {
    let a = Simulator::start("a").await;
    let gateway = Gateway::over_simulators(BINARY, &[("a", &a)], "").await;
    let names = [
        "bytes",
        "confirmed",
        "current_session",
        "lineages",
        "old_session",
        "refused",
        "restored",
        "session",
        "total",
        "tried",
        "unconfirmed",
    ];
    let empty = gateway.statistics().await;
    assert_eq!(keys(&empty), names);
    assert!(empty.as_object().unwrap().values().all(Value::is_u64));
    let mut one = Conversation::new("one");
    one.ask(&gateway.client, "Hello.").await;
    one.ask(&gateway.client, "Again.").await;
    let mut two = Conversation::new("two");
    two.ask(&gateway.client, "Hello.").await;
    let all = gateway.statistics().await;
    assert_eq!(all["total"], 3);
    assert_eq!(all["confirmed"], 1);
    assert_eq!(all["unconfirmed"], 2);
    assert_eq!(all["lineages"], 2);
    let turns = gateway.turns().await;
    let lineage = |at: usize| turns[at]["lineage"].as_str().unwrap().to_owned();
    assert_ne!(lineage(0), lineage(1));
    assert_eq!(lineage(1), lineage(2));
    for (at, total) in [(0, 1), (1, 2)] {
        let path = format!("/admin/thinking?lineage={}", lineage(at));
        let of = gateway.client.get(&path).await.expect_ok().json();
        assert_eq!(keys(&of), names);
        assert_eq!(of["total"], total);
        assert_eq!(of["lineages"], 1);
    }
    for unknown in ["nobody", "", "%20", "ffffffffffffffff"] {
        let path = format!("/admin/thinking?lineage={unknown}");
        let answer = gateway.client.get(&path).await;
        assert_eq!(answer.status, 404, "{unknown}");
    }
}

#[tokio::test]
async fn turn_report_has_every_member() {
    let a = Simulator::start("a").await;
    let gateway = Gateway::over_simulators(BINARY, &[("a", &a)], "").await;
    let mut conversation = Conversation::new("s");
    conversation.ask(&gateway.client, "Hello.").await;
    let (_, answer) = conversation.ask(&gateway.client, "Again.").await;
    let turn = &gateway.turns().await[0];
    let expected = [
        "backend",
        "blocks",
        "blocks_omitted",
        "client_dialect",
        "cost",
        "end",
        "id",
        "lane",
        "lineage",
        "losses",
        "model",
        "ms",
        "path",
        "session",
        "status",
        "stream",
        "time",
        "upstream_dialect",
        "upstream_model",
        "usage",
    ];
    assert_eq!(keys(turn), expected);
    assert_eq!(turn["id"], answer.header("x-throughline-turn"));
    for (name, value) in [
        ("backend", json!("a")),
        ("client_dialect", json!("anthropic")),
        ("upstream_dialect", json!("anthropic")),
        ("lane", json!("through")),
        ("model", json!("claude-sonnet-4-5")),
        ("status", json!(200)),
        ("stream", json!(true)),
        ("session", json!(1)),
        ("losses", json!([])),
        ("end", json!("completed")),
        ("path", json!("/v1/messages")),
    ] {
        assert_eq!(turn[name], value, "{name}");
    }
    let block = json!({
        "path": "messages.1.content.0", "kind": "thinking", "fate": "sent",
    });
    for (name, value) in block.as_object().unwrap() {
        assert_eq!(turn["blocks"][0][name], *value, "{name}");
    }
    assert_eq!(turn["blocks"][0]["origin"]["backend"], "a");
    let times = &turn["ms"];
    assert_eq!(keys(times), ["first_byte", "first_text", "first_thinking", "total"]);
    let order = ["first_byte", "first_thinking", "first_text", "total"]
        .map(|name| times[name].as_u64().unwrap());
    assert!(order.is_sorted(), "{times}");
    assert!(turn["usage"]["output"].as_u64().unwrap() > 0, "{turn}");
}

/// A turn keeps only a part of a long report, so that a thousand turns fit in memory.
#[tokio::test]
async fn turn_report_keeps_the_last_of_many_blocks() {
    let a = Simulator::start("a").await;
    let gateway =
        Gateway::over_simulators(BINARY, &[("a", &a)], "[thinking]\nunknown = \"drop\"\n").await;
    let mut body = message_request("First.", false);
    let messages = body["messages"].as_array_mut().unwrap();
    for at in 0..250 {
        messages.push(json!({"role": "assistant", "content": [
            {"type": "thinking", "thinking": format!("{at}"), "signature": "c2ln"},
            {"type": "text", "text": "Yes."},
        ]}));
        messages.push(json!({"role": "user", "content": "Next."}));
    }
    gateway.client.post("/v1/messages", &[], &body).await.expect_ok();
    let turn = &gateway.turns().await[0];
    let blocks = turn["blocks"].as_array().unwrap();
    assert_eq!(blocks.len(), 200);
    assert_eq!(turn["blocks_omitted"], 50);
    assert_eq!(blocks[199]["path"], "messages.499.content.0");
    assert_eq!(blocks[199]["fate"], "left_out");
    assert_eq!(turn["losses"][0]["count"], 250);
}

/// Even if contents may be recorded, a long body is cut.
#[tokio::test]
async fn long_body_is_recorded_in_part() {
    let a = Simulator::start("a").await;
    let settings = "[debug_log]\nenabled = true\nfull_body = true\n";
    let gateway = Gateway::over_simulators(BINARY, &[("a", &a)], settings).await;
    let body = message_request(&"x".repeat(6 << 20), false);
    gateway.client.post("/v1/messages", &[], &body).await.expect_ok();
    let turn = &gateway.turns().await[0];
    let sent = turn["sent"].as_str().unwrap();
    assert!(sent.len() < (4 << 20) + 100, "{}", sent.len());
    assert!(sent.ends_with(" more bytes]"));
    let parts = turn["shape"].as_array().unwrap();
    let text = parts.iter().find(|part| part["section"] == "messages").unwrap();
    assert_eq!(text["bytes"], (6 << 20) + 2, "the shape is that of the whole body");
}

/// The shape of a request is kept without any content, and only while an operator reads turns.
#[tokio::test]
async fn turn_shows_the_shape_of_its_request_while_an_operator_looks() {
    let a = Simulator::start("a").await;
    let gateway = Gateway::over_simulators(BINARY, &[("a", &a)], "").await;
    let ask = async |text: &str| {
        let mut body = message_request(text, false);
        body["system"] = json!("A secret instruction.");
        gateway.client.post("/v1/messages", &[], &body).await.expect_ok();
    };
    ask("A secret question?").await;
    assert_eq!(gateway.turns().await[0].get("shape"), None, "nobody has looked yet");
    ask("A secret question?").await;
    ask("Another question?").await;
    let turns = gateway.turns().await;
    let shown = Value::from(turns.clone()).to_string();
    assert!(!shown.contains("secret"), "{shown}");
    let part = |turn: usize, section: &str| {
        let parts = turns[turn]["shape"].as_array().unwrap();
        parts.iter().find(|part| part["section"] == section).unwrap().clone()
    };
    assert_eq!(part(0, "system"), part(1, "system"));
    assert_ne!(part(0, "messages")["fingerprint"], part(1, "messages")["fingerprint"]);
    assert_eq!(part(1, "messages")["role"], "user");
    assert_eq!(part(1, "messages")["bytes"], "A secret question?".len() + 2);
    let list = gateway.client.get("/admin/turns?bodies=false").await.json();
    assert_eq!(list["turns"][0].get("shape"), None, "lists are short");
}

/// No reply is written, so only the turn log can show it.
#[tokio::test]
async fn client_gone_before_the_reply_is_recorded_as_a_turn() {
    let (upstream, gateway) = gateway_over_raw_upstream("", "").await;
    let headers = [("content-type", "application/json")];
    let body = message_request("Hello.", true).to_string();
    let asked = gateway.client.open(Method::POST, "/v1/messages", &headers, body);
    let exchange = tokio::select! {
        _ = asked => unreachable!("the upstream does not answer"),
        exchange = upstream.next() => exchange,
    };
    exchange.wait_until_closed().await;
    crate::support::wait_until("the turn is there", async || !gateway.turns().await.is_empty())
        .await;
    let turn = &gateway.turns().await[0];
    assert_eq!(turn["end"], "client_gone");
    assert_eq!(turn["backend"], "a");
    assert_eq!(turn["status"], 0);
    assert!(turn["ms"]["total"].is_u64());
    let log = gateway.log();
    let line = log.lines().find(|line| line.contains("Turn ended"));
    assert!(line.is_some_and(|line| line.contains("client_gone")), "{log}");
    let backends = gateway.client.get("/admin/backends").await.json();
    assert_eq!(backends["backends"][0]["healthy"], true);
}

/// The provider's message may quote the request, so only the kind of refusal is recorded.
#[tokio::test]
async fn refused_turn_reports_the_kind_of_refusal() {
    let refusal = r#"{"type":"error","error":{"type":"rate_limit_error","message":"secret"}}"#;
    let head = format!("HTTP/1.1 429 No\r\ncontent-length: {}\r\n", refusal.len());
    let (upstream, gateway) = gateway_over_raw_upstream("", "").await;
    for (answer, error) in [
        (
            format!("{head}connection: close\r\n\r\n{refusal}"),
            "the backend refused the request: 429 rate_limited",
        ),
        (
            "HTTP/1.1 500 No\r\ncontent-length: 4\r\nconnection: close\r\n\r\noops".to_owned(),
            "the backend refused the request: 500 internal",
        ),
    ] {
        let body = message_request("Hello.", false);
        let client = &gateway.client;
        crate::support::exchange(&upstream, client, &body, answer.as_bytes()).await;
        let turn = &gateway.turns().await[0];
        assert_eq!(turn["error"], error);
        assert_eq!(turn["end"], "failed");
    }
}

#[tokio::test]
async fn turns_are_listed_in_pages() {
    let url = RawUpstream::always_answering(
        "HTTP/1.1 400 No\r\ncontent-length: 2\r\nconnection: close\r\n\r\n{}",
    )
    .await;
    let gateway = crate::support::gateway_over(&url, "", "").await;
    let mut ids = Vec::new();
    for _ in 0..5 {
        let answer =
            gateway.client.post("/v1/messages", &[], &message_request("Hello.", false)).await;
        ids.push(answer.header("x-throughline-turn").to_owned());
    }
    ids.reverse();
    let listed = async |query: &str| -> Vec<String> {
        let answer = gateway.client.get(&format!("/admin/turns{query}")).await;
        let answer = answer.expect_ok().json();
        let turns = answer["turns"].as_array().unwrap().iter();
        turns.map(|turn| turn["id"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(listed("").await, ids);
    assert_eq!(listed("?limit=2").await, ids[..2]);
    assert_eq!(listed("?limit=0").await, [""; 0]);
    assert_eq!(listed(&format!("?after={}", ids[2])).await, ids[..2]);
    assert_eq!(listed(&format!("?after={}", ids[0])).await, [""; 0]);
    assert_eq!(gateway.client.get("/admin/turns?limit=x").await.status, 400);
}

#[tokio::test]
async fn one_turn_is_read_with_its_bodies() {
    let refusal = "HTTP/1.1 400 No\r\ncontent-length: 2\r\nconnection: close\r\n\r\n{}";
    let url = RawUpstream::always_answering(refusal).await;
    let full_body = "[debug_log]\nenabled = true\nfull_body = true\n";
    let gateway = crate::support::gateway_over(&url, full_body, "").await;
    let body = message_request("Whispered.", false);
    let answer = gateway.client.post("/v1/messages", &[], &body).await;
    let id = answer.header("x-throughline-turn").to_owned();
    let turn = gateway.client.get(&format!("/admin/turns/{id}")).await.expect_ok().json();
    assert_eq!(turn["id"], id);
    assert_eq!(turn["client_body"], body.to_string());
    assert!(turn["sent"].as_str().unwrap().contains("Whispered."));
    let listed = gateway.client.get("/admin/turns?bodies=false").await.expect_ok();
    assert!(listed.text().contains(&id));
    assert!(!listed.text().contains("Whispered."));
    assert_eq!(gateway.client.get("/admin/turns/turn_0").await.status, 404);
}

/// Turns are ordered by the time they end, not by the time they begin.
#[tokio::test]
async fn slow_turn_does_not_hide_later_turns() {
    let (upstream, gateway) = gateway_over_raw_upstream("", "").await;
    let refusal = b"HTTP/1.1 400 No\r\ncontent-length: 2\r\nconnection: close\r\n\r\n{}";
    let body = message_request("Hello.", false);
    let mut ids = Vec::new();
    let slow = gateway.client.post("/v1/messages", &[], &body);
    let ((), slow) = tokio::join!(
        async {
            let waiting = upstream.next().await;
            for _ in 0..2 {
                let answer =
                    crate::support::exchange(&upstream, &gateway.client, &body, refusal).await;
                ids.push(answer.header("x-throughline-turn").to_owned());
            }
            waiting.answer(refusal).await;
        },
        slow
    );
    assert!(*slow.header("x-throughline-turn") < *ids[0]);
    let path = format!("/admin/turns?after={}", ids[0]);
    let answer = gateway.client.get(&path).await.json();
    assert_eq!(answer["turns"].as_array().unwrap().len(), 1, "{answer}");
    assert_eq!(answer["turns"][0]["id"], ids[1]);
}

#[tokio::test]
async fn turn_stream_sends_each_turn_when_it_ends() {
    let (upstream, gateway) = gateway_over_raw_upstream("", "").await;
    let mut watching = gateway.client.open(Method::GET, "/admin/turns/stream", &[], "").await;
    assert_eq!(watching.headers["content-type"], "text/event-stream");
    let (mut streamed, mut exchange) = open_stream(&upstream, &gateway.client).await;
    exchange.write(STREAM).await;
    exchange.close().await;
    streamed.read_to_break().await;
    let mut text = String::new();
    while !text.contains("\n\n") {
        text.push_str(&String::from_utf8_lossy(&watching.next().await.unwrap()));
    }
    let (name, turn) = &sse_events(&text)[0];
    assert_eq!(name, "turn");
    assert_eq!(turn["end"], "completed");
    assert_eq!(turn["id"].as_str().unwrap(), streamed.headers["x-throughline-turn"]);
    assert!(text.contains(&format!("id: {}", turn["id"].as_str().unwrap())));
    assert_eq!(*turn, gateway.turns().await[0]);
}

#[tokio::test]
async fn health_and_readiness_answer_200() {
    let (_upstream, gateway) = gateway_over_raw_upstream("", "").await;
    gateway.client.get("/healthz").await.expect_ok();
    let ready = gateway.client.get("/readyz").await.expect_ok().json();
    assert_eq!(ready, json!({"ready": true, "reasons": []}));
}
