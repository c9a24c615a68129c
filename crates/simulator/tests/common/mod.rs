//! A simulator on port 0, a plain HTTP/1.1 client, and a reader of its events.
#![allow(dead_code, reason = "each test file uses its own part")]

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use serde_json::{Map, Value, json};
use throughline_simulator::{Options, Scenario};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

pub(crate) struct Server {
    address: SocketAddr,
}

pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
    /// Whether the body is complete.
    pub(crate) complete: bool,
    /// When each read returned, and how many bytes.
    pub(crate) arrivals: Vec<(Duration, usize)>,
}

impl Server {
    pub(crate) async fn start(options: Options) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(throughline_simulator::serve(listener, options, std::future::pending()));
        Self { address }
    }

    pub(crate) fn at(address: SocketAddr) -> Self {
        Self { address }
    }

    pub(crate) async fn strict() -> Self {
        Self::start(Options::default()).await
    }

    pub(crate) async fn binding() -> Self {
        Self::start(Options { prefix_binding: true, ..Options::default() }).await
    }

    pub(crate) async fn scenario(text: &str) -> Self {
        Self::start(Options {
            scenario: Some(Scenario::from_toml(text).unwrap()),
            ..Options::default()
        })
        .await
    }

    pub(crate) async fn send(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &[u8],
    ) -> Answer {
        let mut connection = TcpStream::connect(self.address).await.unwrap();
        let mut head = format!(
            "{method} {path} HTTP/1.1\r\nhost: simulator\r\nconnection: close\r\ncontent-length: {}\r\n",
            body.len()
        );
        for (name, value) in headers {
            head += &format!("{name}: {value}\r\n");
        }
        head += "\r\n";
        connection.write_all(head.as_bytes()).await.unwrap();
        connection.write_all(body).await.unwrap();
        let began = Instant::now();
        let (mut raw, mut arrivals, mut buffer) = (Vec::new(), Vec::new(), vec![0; 65536]);
        while let Ok(read @ 1..) = connection.read(&mut buffer).await {
            raw.extend_from_slice(&buffer[..read]);
            arrivals.push((began.elapsed(), read));
        }
        Answer::read(&raw, arrivals, method)
    }

    pub(crate) async fn get(&self, path: &str) -> Answer {
        self.send("GET", path, &[], b"").await
    }

    /// Posts a message with the headers every client sends, and more.
    pub(crate) async fn post(&self, body: &Value, more: &[(&str, &str)]) -> Answer {
        self.post_to("/v1/messages", body, more).await
    }

    pub(crate) async fn post_to(&self, path: &str, body: &Value, more: &[(&str, &str)]) -> Answer {
        let mut headers = vec![("content-type", "application/json")];
        if !more.iter().any(|(name, _)| *name == "anthropic-version") {
            headers.push(("anthropic-version", "2023-06-01"));
        }
        headers.extend_from_slice(more);
        self.send("POST", path, &headers, body.to_string().as_bytes()).await
    }

    /// Posts and expects a message.
    pub(crate) async fn accept(&self, body: &Value) -> Value {
        self.accept_with(body, &[]).await
    }

    pub(crate) async fn accept_with(&self, body: &Value, more: &[(&str, &str)]) -> Value {
        let answer = self.post(body, more).await;
        assert_eq!(answer.status, 200, "{}", answer.text());
        answer.json()
    }

    /// Posts and expects a 400 with this text in it.
    pub(crate) async fn refuse(&self, body: &Value, text: &str) {
        self.refuse_with(body, &[], text).await;
    }

    pub(crate) async fn refuse_with(&self, body: &Value, more: &[(&str, &str)], text: &str) {
        let answer = self.post(body, more).await;
        answer.assert_refused(400, "invalid_request_error", text);
    }

    /// Plays a conversation until the answer calls no tool, and returns the last body with
    /// the answer appended.
    pub(crate) async fn play(&self, mut body: Value) -> Value {
        loop {
            let message = self.accept(&body).await;
            let calls = append(&mut body, &message);
            if calls == 0 {
                return body;
            }
        }
    }
}

/// Appends an answer and the results of its calls. Returns the number of calls.
pub(crate) fn append(body: &mut Value, message: &Value) -> usize {
    let content = message["content"].as_array().unwrap();
    let results: Vec<Value> = content
        .iter()
        .filter(|block| block["type"] == "tool_use")
        .map(|block| json!({"type": "tool_result", "tool_use_id": block["id"], "content": "21 degrees"}))
        .collect();
    let count = results.len();
    let messages = body["messages"].as_array_mut().unwrap();
    messages.push(json!({"role": "assistant", "content": content}));
    if count > 0 {
        messages.push(json!({"role": "user", "content": results}));
    }
    count
}

/// Appends a user message.
pub(crate) fn say(body: &mut Value, text: &str) {
    let messages = body["messages"].as_array_mut().unwrap();
    messages.push(json!({"role": "user", "content": text}));
}

impl Answer {
    fn read(raw: &[u8], arrivals: Vec<(Duration, usize)>, method: &str) -> Self {
        let split = raw.windows(4).position(|window| window == b"\r\n\r\n");
        let split =
            split.unwrap_or_else(|| panic!("no head in {:?}", String::from_utf8_lossy(raw)));
        let head = std::str::from_utf8(&raw[..split]).unwrap();
        let mut lines = head.lines();
        let status = lines.next().unwrap().split(' ').nth(1).unwrap().parse().unwrap();
        let headers: Vec<(String, String)> = lines
            .filter_map(|line| line.split_once(": "))
            .map(|(name, value)| (name.to_lowercase(), value.to_owned()))
            .collect();
        let rest = &raw[split + 4..];
        let find = |name: &str| {
            headers.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
        };
        let (body, complete) = if method == "HEAD" {
            (Vec::new(), true)
        } else if find("transfer-encoding") == Some("chunked") {
            unchunk(rest)
        } else {
            let length =
                find("content-length").map_or(rest.len(), |length| length.parse().unwrap());
            (rest.to_vec(), rest.len() == length)
        };
        Self { status, headers, body, complete, arrivals }
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let found = self.headers.iter().find(|(key, _)| key == name);
        found.map(|(_, value)| value.as_str())
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body)
            .unwrap_or_else(|error| panic!("{error}: {}", self.text()))
    }

    pub(crate) fn assert_refused(&self, status: u16, kind: &str, text: &str) {
        assert_eq!(self.status, status, "{} (wanted {text})", self.text());
        let error = self.json();
        assert_eq!(error["type"], "error");
        assert_eq!(error["error"]["type"], kind);
        let message = error["error"]["message"].as_str().unwrap();
        assert!(message.contains(text), "{message:?} lacks {text:?}");
        assert_eq!(error["request_id"].as_str(), self.header("request-id"));
    }

    /// The events, each with a name equal to its type.
    pub(crate) fn events(&self) -> Vec<Value> {
        let text = self.text().replace("\r\n", "\n");
        let frames = text.split("\n\n").filter(|frame| !frame.is_empty());
        frames
            .map(|frame| {
                let (name, data) = frame.split_once('\n').unwrap();
                let data: Value =
                    serde_json::from_str(data.strip_prefix("data: ").unwrap()).unwrap();
                assert_eq!(name.strip_prefix("event: "), data["type"].as_str());
                data
            })
            .collect()
    }
}

fn unchunk(mut rest: &[u8]) -> (Vec<u8>, bool) {
    let mut body = Vec::new();
    loop {
        let Some(line) = rest.windows(2).position(|window| window == b"\r\n") else {
            return (body, false);
        };
        let size = usize::from_str_radix(std::str::from_utf8(&rest[..line]).unwrap(), 16).unwrap();
        rest = &rest[line + 2..];
        if size == 0 {
            return (body, true);
        }
        let Some(chunk) = rest.get(..size) else {
            body.extend_from_slice(rest);
            return (body, false);
        };
        body.extend_from_slice(chunk);
        rest = rest.get(size + 2..).unwrap_or_default();
    }
}

/// Checks the grammar of a stream and puts the message together as an SDK does.
pub(crate) fn assemble(events: &[Value]) -> Value {
    let mut events = events.iter().filter(|event| event["type"] != "ping");
    let start = events.next().unwrap();
    assert_eq!(start["type"], "message_start");
    let mut message = start["message"].clone();
    assert_eq!(message["content"], json!([]));
    assert_eq!(message["stop_reason"], Value::Null);
    let mut open: Option<(Value, String)> = None;
    let mut signatures = 0;
    let mut ended = false;
    for event in events.by_ref() {
        let index = message["content"].as_array().unwrap().len();
        match event["type"].as_str().unwrap() {
            "content_block_start" => {
                assert!(open.is_none() && !ended);
                assert_eq!(event["index"], index);
                signatures = 0;
                let block = event["content_block"].clone();
                match block["type"].as_str().unwrap() {
                    "thinking" => {
                        assert!(block["thinking"] == "" && block["signature"].is_string());
                    }
                    "text" => assert_eq!(block["text"], ""),
                    "tool_use" => assert_eq!(block["input"], json!({})),
                    "compaction" => assert_eq!(block["content"], Value::Null),
                    "redacted_thinking" => {
                        assert!(block["data"].as_str().unwrap().starts_with("++//"));
                    }
                    other => panic!("{other}"),
                }
                open = Some((block, String::new()));
            }
            "content_block_delta" => {
                assert_eq!(event["index"], index);
                let (block, input) = open.as_mut().unwrap();
                let delta = &event["delta"];
                let (kind, member) = match delta["type"].as_str().unwrap() {
                    "text_delta" => ("text", "text"),
                    "thinking_delta" => ("thinking", "thinking"),
                    "signature_delta" => ("thinking", "signature"),
                    "input_json_delta" => ("tool_use", "partial_json"),
                    "compaction_delta" => ("compaction", "content"),
                    other => panic!("{other}"),
                };
                assert_eq!(block["type"], kind);
                assert_eq!(signatures, 0, "the signature comes last");
                let piece = delta[member].as_str().unwrap();
                match member {
                    "signature" => {
                        signatures += 1;
                        block["signature"] = piece.into();
                    }
                    "partial_json" => input.push_str(piece),
                    "content" => block["content"] = piece.into(),
                    _ => {
                        block[member] = (block[member].as_str().unwrap().to_owned() + piece).into();
                    }
                }
            }
            "content_block_stop" => {
                assert_eq!(event["index"], index);
                let (mut block, input) = open.take().unwrap();
                if !input.is_empty() {
                    block["input"] = serde_json::from_str(&input).unwrap();
                }
                message["content"].as_array_mut().unwrap().push(block);
            }
            "message_delta" => {
                assert!(open.is_none() && !ended);
                ended = true;
                let usage: Map<String, Value> = event["usage"].as_object().unwrap().clone();
                message["usage"].as_object_mut().unwrap().extend(usage);
                for member in ["stop_reason", "stop_sequence"] {
                    message[member] = event["delta"][member].clone();
                }
            }
            "message_stop" => break,
            other => panic!("{other}"),
        }
    }
    assert!(ended, "no message_delta");
    assert_eq!(events.next(), None, "something follows message_stop");
    message
}

/// A tool with one required string.
pub(crate) fn lookup() -> Value {
    json!({"name": "lookup", "description": "Finds a row",
           "input_schema": {"type": "object", "properties": {"k": {"type": "string"}}, "required": ["k"]}})
}

/// A request with shown thinking for a model that has the adaptive mode.
pub(crate) fn adaptive(model: &str, text: &str) -> Value {
    json!({"model": model, "max_tokens": 4096, "system": "You are terse.", "tools": [lookup()],
           "thinking": {"type": "adaptive", "display": "summarized"},
           "messages": [{"role": "user", "content": text}]})
}

/// A request with a thinking budget.
pub(crate) fn manual(model: &str, text: &str) -> Value {
    json!({"model": model, "max_tokens": 4096, "tools": [lookup()],
           "thinking": {"type": "enabled", "budget_tokens": 2048},
           "messages": [{"role": "user", "content": text}]})
}
