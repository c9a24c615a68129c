//! The front doors as their clients see them, and an upstream whose reply the test writes.

use http::Method;
use serde_json::{Value, json};
use throughline_testkit::{Answer, Client, Exchange, Gateway, RawUpstream, StreamedAnswer};

pub(crate) const BINARY: &str = env!("CARGO_BIN_EXE_throughline");

/// A caller's key. Backends have none, so it stays here.
pub(crate) const ADA: (&str, &str) = ("authorization", "Bearer ada");
pub(crate) const EVE: (&str, &str) = ("authorization", "Bearer eve");

/// A front door.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Door {
    NdJson,
    Events,
    AgUi,
    Ui,
}

impl Door {
    pub(crate) const ALL: [Self; 4] = [Self::NdJson, Self::Events, Self::AgUi, Self::Ui];

    pub(crate) fn path(self) -> &'static str {
        match self {
            Self::NdJson => "/ndjson/chat",
            Self::Events => "/v1/stream",
            Self::AgUi => "/ag-ui",
            Self::Ui => "/ui/chat",
        }
    }

    pub(crate) fn body(self, thread: &str, run: &str, said: &str) -> Value {
        match self {
            Self::NdJson | Self::Events => {
                json!({"model": "m", "messages": [{"role": "user", "content": said}], "stream": true})
            }
            Self::AgUi => json!({
                "threadId": thread,
                "runId": run,
                "protocolVersion": "1.0",
                "state": {},
                "messages": [{"id": "u1", "role": "user", "content": said}],
                "tools": [],
                "context": [],
                "forwardedProps": {"model": "m"},
            }),
            Self::Ui => json!({
                "id": thread,
                "model": "m",
                "messages": [{"id": "u1", "role": "user", "parts": [{"type": "text", "text": said}]}],
            }),
        }
    }

    /// The path of the stream of a run, for clients that resume.
    pub(crate) fn resume_path(self, thread: &str, run: &str, id: &str) -> String {
        match self {
            Self::AgUi => format!("/ag-ui/{thread}/runs/{run}"),
            _ => format!("/runs/{id}/events"),
        }
    }

    /// The bytes between two frames.
    fn separator(self) -> &'static str {
        if self == Self::NdJson { "\n" } else { "\n\n" }
    }

    /// The complete frames at the beginning of a stream, and the cursor of the last one.
    pub(crate) fn complete_frames(self, stream: &str) -> (&str, Option<String>) {
        let Some(end) = stream.rfind(self.separator()) else {
            return ("", None);
        };
        let frames = &stream[..end + self.separator().len()];
        let last = frames.split(self.separator()).filter(|frame| !frame.is_empty()).last();
        let cursor = last.map(|frame| match self {
            Self::NdJson => {
                let line: Value = serde_json::from_str(frame).expect("a line of JSON");
                line["seq"].to_string()
            }
            _ => {
                let mut ids = frame.lines().filter_map(|line| line.strip_prefix("id: "));
                ids.next().expect("a frame with an id").to_owned()
            }
        });
        (frames, cursor)
    }
}

/// Starts a reply.
pub(crate) async fn start(
    client: &Client,
    door: Door,
    key: (&str, &str),
    body: &Value,
) -> StreamedAnswer {
    let headers = [("content-type", "application/json"), key];
    client.open(Method::POST, door.path(), &headers, body.to_string()).await
}

pub(crate) async fn get(client: &Client, path: &str, key: (&str, &str)) -> Answer {
    client.send(Method::GET, path, &[key], "").await
}

pub(crate) fn run_of(answer: &StreamedAnswer) -> String {
    let id = answer.headers.get("x-throughline-run").expect("a run");
    id.to_str().expect("an id").to_owned()
}

/// Reads a stream until it contains a text.
pub(crate) async fn read_until(answer: &mut StreamedAnswer, text: &str) -> String {
    let mut stream = String::new();
    while !stream.contains(text) {
        let piece = answer.next().await.expect("more of the stream");
        stream.push_str(std::str::from_utf8(&piece).expect("text"));
    }
    stream
}

/// A gateway over an upstream whose replies the test writes.
pub(crate) async fn gateway_over(upstream: &RawUpstream, settings: &str) -> Gateway {
    let config = format!(
        "{settings}\n[[backend]]\nname = \"a\"\ndialect = \"anthropic\"\nbase_url = \"{}\"\n\
         api_key = \"k\"\n",
        upstream.url
    );
    Gateway::start(BINARY, &config).await
}

fn event(name: &str, data: &Value) -> String {
    format!("event: {name}\ndata: {data}\n\n")
}

/// Writes the head of a reply, some thinking, and the beginning of a text.
pub(crate) async fn begin_reply(exchange: &mut Exchange, text: &str) {
    exchange.begin_events().await;
    let message = json!({"id": "msg_1", "type": "message", "role": "assistant", "model": "m",
        "content": [], "stop_reason": null, "usage": {"input_tokens": 1, "output_tokens": 1}});
    let start = |index, block| json!({"type": "content_block_start", "index": index, "content_block": block});
    let delta =
        |index, delta| json!({"type": "content_block_delta", "index": index, "delta": delta});
    let stop = |index| json!({"type": "content_block_stop", "index": index});
    for (name, data) in [
        ("message_start", json!({"type": "message_start", "message": message})),
        (
            "content_block_start",
            start(0, json!({"type": "thinking", "thinking": "", "signature": ""})),
        ),
        (
            "content_block_delta",
            delta(0, json!({"type": "thinking_delta", "thinking": "It is late."})),
        ),
        ("content_block_delta", delta(0, json!({"type": "signature_delta", "signature": "c2ln"}))),
        ("content_block_stop", stop(0)),
        ("content_block_start", start(1, json!({"type": "text", "text": ""}))),
        ("content_block_delta", delta(1, json!({"type": "text_delta", "text": text}))),
    ] {
        exchange.write(event(name, &data)).await;
    }
}

/// Writes the rest of a reply.
pub(crate) async fn end_reply(exchange: &mut Exchange, text: &str) {
    let delta = json!({"type": "content_block_delta", "index": 1,
        "delta": {"type": "text_delta", "text": text}});
    let end = json!({"type": "message_delta", "delta": {"stop_reason": "end_turn"},
        "usage": {"output_tokens": 9}});
    for (name, data) in [
        ("content_block_delta", delta),
        ("content_block_stop", json!({"type": "content_block_stop", "index": 1})),
        ("message_delta", end),
        ("message_stop", json!({"type": "message_stop"})),
    ] {
        exchange.write(event(name, &data)).await;
    }
    exchange.shut_down().await;
}
