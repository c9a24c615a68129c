//! Shared by the wire tests: request bodies, replies, gateways over raw upstreams, and metrics.

use http::Method;
use serde_json::{Value, json};
pub(crate) use throughline_testkit::wait_until;
use throughline_testkit::{Answer, Client, Exchange, Gateway, RawUpstream, StreamedAnswer};

pub(crate) const BINARY: &str = env!("CARGO_BIN_EXE_throughline");

/// A complete stream with one thinking block.
pub(crate) const STREAM: &str = "event: message_start\n\
data: {\"type\":\"message_start\",\"message\":{\"id\":\"msg_1\",\"type\":\"message\",\"role\":\"assistant\",\"model\":\"claude-sonnet-4-5\",\"content\":[],\"stop_reason\":null,\"stop_sequence\":null,\"usage\":{\"input_tokens\":1,\"output_tokens\":1}}}\n\n\
event: ping\n\
data: {\"type\": \"ping\"}\n\n\
event: content_block_start\n\
data: {\"type\":\"content_block_start\",\"index\":0,\"content_block\":{\"type\":\"thinking\",\"thinking\":\"\",\"signature\":\"\"}}\n\n\
event: content_block_delta\n\
data: {\"type\":\"content_block_delta\",\"index\":0,\"delta\":{\"type\":\"thinking_delta\",\"thinking\":\"Hm \u{1F914}.\"}}\n\n\
event: content_block_delta\n\
data: {\"type\":\"content_block_delta\",\"index\":0,\"delta\":{\"type\":\"signature_delta\",\"signature\":\"c2ln\"}}\n\n\
event: content_block_stop\n\
data: {\"type\":\"content_block_stop\",\"index\":0}\n\n\
event: content_block_start\n\
data: {\"type\":\"content_block_start\",\"index\":1,\"content_block\":{\"type\":\"text\",\"text\":\"\"}}\n\n\
event: content_block_delta\n\
data: {\"type\":\"content_block_delta\",\"index\":1,\"delta\":{\"type\":\"text_delta\",\"text\":\"Yes.\"}}\n\n\
event: content_block_stop\n\
data: {\"type\":\"content_block_stop\",\"index\":1}\n\n\
event: message_delta\n\
data: {\"type\":\"message_delta\",\"delta\":{\"stop_reason\":\"end_turn\",\"stop_sequence\":null},\"usage\":{\"output_tokens\":5}}\n\n\
event: message_stop\n\
data: {\"type\":\"message_stop\"}\n\n";

/// A whole reply with one thinking block.
pub(crate) const REPLY: &str = r#"{ "id":"msg_1","type":"message","role":"assistant","model":"claude-sonnet-4-5","content":[{"type":"thinking","thinking":"Hm \u00e9.","signature":"c2ln"},{"type":"text","text":"Yes."}],"stop_reason":"end_turn","stop_sequence":null,"usage":{"input_tokens":1,"output_tokens":5 }}"#;

/// Returns a message request.
pub(crate) fn message_request(text: &str, stream: bool) -> Value {
    json!({
        "model": "claude-sonnet-4-5",
        "max_tokens": 4096,
        "stream": stream,
        "thinking": {"type": "enabled", "budget_tokens": 1024},
        "messages": [{"role": "user", "content": text}],
    })
}

/// Returns a message request with this block in its history.
pub(crate) fn request_after(block: &Value, stream: bool) -> Value {
    let mut body = message_request("First.", stream);
    let messages = body["messages"].as_array_mut().unwrap();
    let text = json!({"type": "text", "text": "Yes."});
    messages.push(json!({"role": "assistant", "content": [block, text]}));
    messages.push(json!({"role": "user", "content": "Second."}));
    body
}

/// A `[[backend]]` table.
pub(crate) fn backend(name: &str, url: &str, more: &str) -> String {
    format!(
        "\n[[backend]]\nname = \"{name}\"\ndialect = \"anthropic\"\nbase_url = \"{url}\"\n{more}\n"
    )
}

/// Starts a gateway over one backend `a` at this address.
pub(crate) async fn gateway_over(url: &str, settings: &str, more: &str) -> Gateway {
    Gateway::start(BINARY, &format!("{settings}{}", backend("a", url, more))).await
}

/// Starts a gateway over one raw upstream, named `a`.
pub(crate) async fn gateway_over_raw_upstream(
    settings: &str,
    more: &str,
) -> (RawUpstream, Gateway) {
    let upstream = RawUpstream::start().await;
    let gateway = gateway_over(&upstream.url, settings, more).await;
    (upstream, gateway)
}

/// Sends a message. The upstream answers with these bytes. Returns the answer to the client.
pub(crate) async fn exchange(
    upstream: &RawUpstream,
    client: &Client,
    body: &Value,
    answer: &[u8],
) -> Answer {
    let (answered, ()) = tokio::join!(client.post("/v1/messages", &[], body), async {
        upstream.next().await.answer(answer).await;
    });
    answered
}

/// Opens a stream. The upstream has sent only its head.
pub(crate) async fn open_stream(
    upstream: &RawUpstream,
    client: &Client,
) -> (StreamedAnswer, Exchange) {
    let headers = [("content-type", "application/json"), ("anthropic-version", "2023-06-01")];
    let body = message_request("Hello.", true).to_string();
    let opened = client.open(Method::POST, "/v1/messages", &headers, body);
    let (streamed, exchange) = tokio::join!(opened, async {
        let mut exchange = upstream.next().await;
        exchange.begin_events().await;
        exchange
    });
    assert_eq!(streamed.status, 200);
    (streamed, exchange)
}

/// Reads at least `count` bytes.
pub(crate) async fn read_exactly(streamed: &mut StreamedAnswer, count: usize) -> Vec<u8> {
    let mut bytes = Vec::new();
    while bytes.len() < count {
        let piece = streamed.next().await.expect("more");
        bytes.extend_from_slice(&piece);
    }
    bytes
}

/// Returns a value of `/metrics`, whatever its labels.
pub(crate) async fn metric(gateway: &Gateway, name: &str) -> u64 {
    gateway.metrics().await.sum(name, &[]) as u64
}

/// Polls `/metrics` until a value is reached.
pub(crate) async fn wait_until_metric(gateway: &Gateway, name: &str, wanted: u64) {
    wait_until(&format!("{name} is {wanted}"), async || metric(gateway, name).await == wanted)
        .await;
}

/// Checks an error made by the gateway in the Anthropic dialect, and returns its message.
pub(crate) fn expect_gateway_error(answer: &Answer, status: u16, kind: &str) -> String {
    assert_eq!(answer.status, status, "{}", answer.text());
    let body = answer.json();
    assert_eq!(body["type"], "error", "{body}");
    assert_eq!(body["error"]["type"], kind, "{body}");
    assert_eq!(answer.header("content-type"), "application/json");
    let turn = answer.header("x-throughline-turn");
    assert!(turn.starts_with("turn_"), "{:?}", answer.headers);
    assert_eq!(body["request_id"], turn, "{body}");
    assert_eq!(answer.header("request-id"), turn);
    let message = body["error"]["message"].as_str().unwrap();
    assert!(!message.is_empty());
    message.to_owned()
}
