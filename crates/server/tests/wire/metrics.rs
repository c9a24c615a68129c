//! `/metrics`: valid Prometheus text, the names and labels that operators rely on, and limits.

use serde_json::json;
use throughline_testkit::{Conversation, Gateway, RawUpstream, Simulator};

use crate::support::{BINARY, backend, message_request};

/// Names that dashboards rely on, with their types.
const FIXED_NAMES: [(&str, &str); 9] = [
    ("throughline_turns_total", "counter"),
    ("throughline_turn_duration_seconds", "histogram"),
    ("throughline_time_to_first_token_seconds", "histogram"),
    ("throughline_losses_total", "counter"),
    ("throughline_tokens_total", "counter"),
    ("throughline_upstream_requests_total", "counter"),
    ("throughline_turns_failed_total", "counter"),
    ("throughline_streams_active", "gauge"),
    ("throughline_build_info", "gauge"),
];

///
#[tokio::test]
async fn turns_are_counted_with_their_labels() {
    let a = Simulator::start("a").await;
    let gateway = Gateway::over_simulators(BINARY, &[("a", &a)], "").await;
    let answer = gateway.client.get("/metrics").await.expect_ok();
    assert_eq!(answer.header("content-type"), "text/plain; version=0.0.4");
    // The names are there before the first turn.
    let metrics = gateway.metrics().await;
    for (name, kind) in FIXED_NAMES {
        assert_eq!(metrics.types.get(name).map(String::as_str), Some(kind), "{name}");
    }
    let version = [("version", env!("CARGO_PKG_VERSION"))];
    assert_eq!(metrics.sum("throughline_build_info", &version), 1.0);

    let mut conversation = Conversation::new("s");
    conversation.ask(&gateway.client, "Hello.").await;
    conversation.ask(&gateway.client, "Again.").await;
    let whole = message_request("Whole.", false);
    gateway.client.post("/v1/messages", &[], &whole).await.expect_ok();
    let metrics = gateway.metrics().await;
    let labels = [
        ("backend", "a"),
        ("model", "claude-sonnet-4-5"),
        ("client_dialect", "anthropic"),
        ("upstream_dialect", "anthropic"),
        ("status", "200"),
    ];
    assert_eq!(metrics.sum("throughline_turns_total", &labels), 3.0);
    let model = &labels[..2];
    for (name, expected) in [
        ("throughline_turn_duration_seconds_count", 3.0),
        // Only streams have a first token.
        ("throughline_time_to_first_token_seconds_count", 2.0),
    ] {
        assert_eq!(metrics.sum(name, model), expected, "{name}");
    }
    for (name, expected) in [
        ("throughline_turns_failed_total", 0.0),
        ("throughline_blocks_remembered_total", 3.0),
        ("throughline_memory_blocks", 3.0),
        ("throughline_memory_lineages", 2.0),
        ("throughline_first_byte_seconds_count", 3.0),
        ("throughline_first_thinking_seconds_count", 3.0),
        ("throughline_first_text_seconds_count", 3.0),
    ] {
        assert_eq!(metrics.sum(name, &[]), expected, "{name}");
    }
    let answered = [("backend", "a"), ("status", "200")];
    assert_eq!(metrics.sum("throughline_upstream_requests_total", &answered), 3.0);
}

#[tokio::test]
async fn tokens_are_counted_by_kind() {
    let reply = json!({
        "id": "msg_1", "type": "message", "role": "assistant", "model": "m",
        "content": [{"type": "text", "text": "Yes."}], "stop_reason": "end_turn",
        "usage": {
            "input_tokens": 3, "cache_read_input_tokens": 20, "cache_creation_input_tokens": 7,
            "output_tokens": 11, "output_tokens_details": {"thinking_tokens": 5},
        },
    });
    let reply = throughline_testkit::ok_reply("application/json", "", reply.to_string());
    let url = RawUpstream::always_answering(reply).await;
    let gateway = crate::support::gateway_over(&url, "", "").await;
    let body = message_request("Hello.", false);
    for _ in 0..2 {
        gateway.client.post("/v1/messages", &[], &body).await.expect_ok();
    }
    let metrics = gateway.metrics().await;
    for (kind, tokens) in [
        ("input", 6.0),
        ("output", 22.0),
        ("reasoning", 10.0),
        ("cache_read", 40.0),
        ("cache_write", 14.0),
    ] {
        let found = metrics.sum("throughline_tokens_total", &[("kind", kind), ("backend", "a")]);
        assert_eq!(found, tokens, "{kind}");
    }
}

#[tokio::test]
async fn failures_are_counted_by_status_and_backend() {
    let refusing = RawUpstream::always_answering(
        "HTTP/1.1 429 No\r\ncontent-length: 2\r\nconnection: close\r\n\r\n{}",
    )
    .await;
    let config = [backend("a", &refusing, ""), backend("gone", "http://127.0.0.1:1", "")];
    let gateway = Gateway::start(BINARY, &config.concat()).await;
    let body = message_request("Hello.", false);
    gateway.client.post("/v1/messages", &[], &body).await;
    gateway.client.post("/b/gone/v1/messages", &[], &body).await;
    gateway.client.post("/v1/messages", &[], &json!({"messages": 7})).await;
    let metrics = gateway.metrics().await;
    for (labels, expected) in [
        ([("backend", "a"), ("status", "429")], 1.0),
        ([("backend", "gone"), ("status", "502")], 1.0),
        ([("backend", ""), ("status", "400")], 1.0),
    ] {
        assert_eq!(metrics.sum("throughline_turns_total", &labels), expected, "{labels:?}");
        let failed = metrics.sum("throughline_turns_failed_total", &labels[..1]);
        assert_eq!(failed, expected, "{labels:?}");
    }
    for (labels, expected) in [
        ([("backend", "a"), ("status", "429")], 1.0),
        ([("backend", "gone"), ("status", "unreachable")], 1.0),
    ] {
        let found = metrics.sum("throughline_upstream_requests_total", &labels);
        assert_eq!(found, expected, "{labels:?}");
    }
}

/// Clients can send any number of names, and any characters.
#[tokio::test]
async fn invented_model_names_share_one_label() {
    let a = RawUpstream::always_answering(throughline_testkit::ok_reply(
        "application/json",
        "",
        crate::support::REPLY,
    ))
    .await;
    let gateway = crate::support::gateway_over(&a, "", "models = { \"x\" = \"known\" }").await;
    let ask = async |model: &str| {
        let mut body = message_request("Hello.", false);
        body["model"] = model.into();
        gateway.client.post("/v1/messages", &[], &body).await.expect_ok();
    };
    ask("with \"quotes\" \\ and\nlines").await;
    for at in 0..120 {
        ask(&format!("invented-{at}")).await;
    }
    ask("x").await;
    let metrics = gateway.metrics().await;
    let by_model = metrics.by_label("throughline_turns_total", "model");
    assert_eq!(by_model.len(), 102, "{by_model:?}");
    assert_eq!(by_model["other"], 21.0);
    assert_eq!(by_model["known"], 1.0);
    assert_eq!(by_model["with \"quotes\" \\ and\nlines"], 1.0);
}
