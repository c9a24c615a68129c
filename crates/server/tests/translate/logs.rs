//! Log lines of a turn: each has the turn's id, and the last one says how the turn went.

use std::collections::BTreeSet;

use serde_json::{Value, json};
use throughline_testkit::{Gateway, RawUpstream, ok_reply, wait_until};

use crate::support::{BINARY, BedOptions, Mismatches, TestBed, new_client, upstream};
use crate::test_client::{send, text};

const JSON_LOG: &str = "log = { format = \"json\" }\n";
const SECRET: &str = "the heron stands in cold water";

fn lines(gateway: &Gateway) -> Vec<Value> {
    let parse = |line: &str| serde_json::from_str(line).expect("a line of JSON");
    gateway.log().lines().map(parse).collect()
}

/// The line about the end of a turn.
fn end_of(gateway: &Gateway, turn: &str) -> Value {
    let ended = |line: &Value| line["message"] == "Turn ended" && line["turn"] == turn;
    let mut found: Vec<Value> = lines(gateway).into_iter().filter(ended).collect();
    assert_eq!(found.len(), 1, "{turn} ends once");
    found.remove(0)
}

#[tokio::test]
async fn every_log_line_of_a_turn_has_its_id() {
    let mut mismatches = Mismatches::default();
    for (dialect, rows) in [
        ("anthropic", ["anthropic, budget", "anthropic, bound"]),
        ("openai_chat", ["deepseek-v4", "gemini 3"]),
        ("gemini", ["anthropic, budget", "think-tags"]),
        ("openai_responses", ["openai_responses", "anthropic, adaptive"]),
    ] {
        let mut bed = TestBed::build(&BedOptions {
            upstreams: &rows,
            settings: &format!("{JSON_LOG}[route]\nfallback = [\"a\"]\n"),
            ..BedOptions::default()
        })
        .await;
        let client = &bed.gateway.client.clone();
        let mut ids = BTreeSet::new();
        let mut test_client = new_client(dialect);
        test_client.push_user("use one tool");
        let (view, _) = bed.send(test_client.as_mut()).await;
        test_client.push_results(&view.calls, "row green");
        bed.gateway.switch("b").await;
        bed.send(test_client.as_mut()).await;
        test_client.push_user("ponder this");
        send(&test_client.next_request("some-model", false), client).await.expect_ok();
        // The backend is gone, and the other one answers.
        drop(bed.simulators.pop());
        let mut request = test_client.next_request("some-model", true);
        send(&request, client).await.expect_ok();
        request.body = json!({"model": 7});
        send(&request, client).await;
        for turn in bed.gateway.turns().await {
            ids.insert(text(&turn["id"]).to_owned());
            end_of(&bed.gateway, text(&turn["id"]));
        }
        let mut with_id = 0;
        for line in lines(&bed.gateway) {
            // The server's own lines are about its start. A switch is not part of a turn.
            let of_server = text(&line["target"]).starts_with("throughline::");
            if of_server || line["message"] == "Active backend changed" {
                continue;
            }
            let known = ids.contains(text(&line["turn"]));
            mismatches.check(known, format!("{dialect} over {rows:?}: {line}"));
            with_id += 1;
        }
        mismatches.check(with_id > 15, format!("{dialect} over {rows:?}: {with_id} lines"));
    }
    mismatches.assert_none();
}

#[tokio::test]
async fn last_line_says_how_the_turn_went() {
    let bed = TestBed::build(&BedOptions {
        upstreams: &["anthropic, budget"],
        settings: JSON_LOG,
        ..BedOptions::default()
    })
    .await;
    let trace = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    let headers = [("x-request-id", "req-of-client"), ("traceparent", trace)];
    let body = json!({
        "model": "some-model", "seed": 7, "stream": true,
        "messages": [{"role": "user", "content": "ponder this"}],
    });
    let answer = bed.gateway.client.post("/v1/chat/completions", &headers, &body).await.expect_ok();
    let id = answer.header("x-throughline-turn");
    let turn = bed.gateway.turn_of(&answer).await;
    assert_eq!(turn["request_id"], "req-of-client");
    assert_eq!(turn["traceparent"], trace);
    let line = end_of(&bed.gateway, id);
    for (name, expected) in [
        ("level", json!("INFO")),
        ("turn", turn["id"].clone()),
        ("client_dialect", json!("openai_chat")),
        ("upstream_dialect", json!("anthropic")),
        ("backend", json!("a")),
        ("model", json!("some-model")),
        ("upstream_model", json!("claude-sonnet-4-5")),
        ("status", json!(200)),
        ("end", json!("completed")),
        ("losses", json!("part_omitted=seed;reason=no_place")),
        ("request_id", json!("req-of-client")),
        ("traceparent", json!(trace)),
        ("first_byte_ms", turn["ms"]["first_byte"].clone()),
        ("total_ms", turn["ms"]["total"].clone()),
        ("input_tokens", turn["usage"]["input"].clone()),
        ("output_tokens", turn["usage"]["output"].clone()),
    ] {
        assert_eq!(line[name], expected, "{name}: {line}");
    }
    assert!(line["first_token_ms"].is_u64() && line["output_tokens"].is_u64(), "{line}");
    assert!(line.get("error").is_none(), "{line}");
}

/// Messages about a request, and messages of a provider, may quote contents.
#[tokio::test]
async fn errors_in_the_log_quote_no_contents() {
    let refusal = json!({"error": {"message": SECRET, "type": "invalid_request_error"}});
    let refusal = refusal.to_string();
    let events = format!("data: {{\"error\":{{\"message\":\"{SECRET}\",\"code\":500}}}}\n\n");
    let refused = format!(
        "HTTP/1.1 400 No\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{refusal}",
        refusal.len()
    );
    let good = json!({"role": "user", "content": "hello"});
    let both = &["/v1/messages", "/v1/chat/completions"][..];
    for (paths, answer, message, error) in [
        (both, refused.into_bytes(), &good, "the backend refused the request: 400 invalid"),
        (
            both,
            ok_reply("text/event-stream", "", &events),
            &good,
            "the backend reported an error: internal",
        ),
        // A backend of the same dialect may know other roles, so it gets them.
        (
            &["/v1/messages"],
            Vec::new(),
            &json!({"role": SECRET, "content": "hello"}),
            "invalid at messages[0].role",
        ),
    ] {
        let url = RawUpstream::always_answering(answer).await;
        let config = format!(
            "{JSON_LOG}[[backend]]\nname = \"a\"\ndialect = \"openai_chat\"\nvariant = \"openai\"\nbase_url = \"{url}\"\n"
        );
        let gateway = Gateway::start(BINARY, &config).await;
        for path in paths {
            let body =
                json!({"model": "m", "max_tokens": 99, "stream": true, "messages": [message]});
            let answer = gateway.client.post(path, &[], &body).await;
            let line = end_of(&gateway, answer.header("x-throughline-turn"));
            let logged = text(&line["error"]).replace("messages.0.role", "messages[0].role");
            assert_eq!(logged, error, "{path}");
        }
        assert!(!gateway.log().contains(SECRET), "{error}");
    }
}

/// A background response outlives its request, and its lines still belong to its turn.
#[tokio::test]
async fn log_lines_of_a_background_response_have_the_turns_id() {
    let provider = RawUpstream::start().await;
    let config = upstream("anthropic, budget").backend("a", &provider.url);
    let gateway = Gateway::start(BINARY, &format!("{JSON_LOG}{config}")).await;
    let wish = json!({"model": "some-model", "input": "ponder this", "background": true});
    let run = gateway.client.post("/v1/responses", &[], &wish).await.expect_ok().json();
    provider
        .next()
        .await
        .answer(b"HTTP/1.1 500 No\r\nconnection: close\r\ncontent-length: 0\r\n\r\n")
        .await;
    let path = format!("/v1/responses/{}", text(&run["id"]));
    wait_until("it has failed", async || {
        gateway.client.get(&path).await.json()["status"] == "failed"
    })
    .await;
    let turn = gateway.last_turn().await["id"].clone();
    let of_run = |line: &&Value| line["response"] == run["id"];
    let lines = lines(&gateway);
    let found: Vec<&Value> = lines.iter().filter(of_run).collect();
    assert!(!found.is_empty(), "{lines:?}");
    for line in found {
        assert_eq!(line["turn"], turn, "{line}");
    }
}

/// What is read before a turn begins belongs to it, too.
#[tokio::test]
async fn line_about_an_unreadable_response_has_the_turns_id() {
    let mut bed = TestBed::build(&BedOptions {
        upstreams: &["anthropic, budget"],
        settings: JSON_LOG,
        ..BedOptions::default()
    })
    .await;
    let first = json!({"model": "some-model", "input": "ponder this"});
    let first = bed.gateway.client.post("/v1/responses", &[], &first).await.expect_ok().json();
    bed.gateway.kill().await;
    std::fs::remove_file(bed.gateway.folder().join("data/keyring")).expect("a keyring");
    bed.gateway.restart_with(&["--new-keyring"]).await;
    let next =
        json!({"model": "some-model", "input": "go on", "previous_response_id": first["id"]});
    let answer = bed.gateway.client.post("/v1/responses", &[], &next).await;
    assert_eq!(answer.status, 400, "{}", answer.text());
    let unreadable = |line: &&Value| line["message"] == "cannot open a stored value";
    let lines = lines(&bed.gateway);
    let line = lines.iter().find(unreadable).expect("a line about the stored value");
    assert_eq!(line["turn"], answer.header("x-throughline-turn"), "{line}");
    end_of(&bed.gateway, answer.header("x-throughline-turn"));
}
