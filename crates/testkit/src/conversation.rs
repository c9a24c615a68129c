//! A conversation as a client keeps it: the history contains every answer unchanged.

use serde_json::{Value, json};

use crate::client::{Answer, Client};

/// A conversation in the Anthropic dialect, with its history.
#[derive(Clone, Debug)]
pub struct Conversation {
    /// The body of the next request, without `stream`.
    pub body: Value,
    /// Headers sent with each request.
    pub headers: Vec<(String, String)>,
    /// Whether requests ask for a streamed answer.
    pub stream: bool,
}

impl Conversation {
    /// Creates a conversation with a thinking budget and this session id.
    pub fn new(session: &str) -> Self {
        Self {
            body: json!({
                "model": "claude-sonnet-4-5",
                "max_tokens": 8192,
                "thinking": {"type": "enabled", "budget_tokens": 2048},
                "system": "You are terse.",
                "messages": [],
            }),
            headers: vec![("x-claude-code-session-id".into(), session.into())],
            stream: true,
        }
    }

    /// Appends a user message.
    pub fn push_user(&mut self, content: impl Into<Value>) {
        self.push("user", &content.into());
    }

    fn push(&mut self, role: &str, content: &Value) {
        let messages = self.body["messages"].as_array_mut().expect("messages");
        messages.push(json!({"role": role, "content": content}));
    }

    /// Sends the conversation without changing it.
    pub async fn send(&self, client: &Client) -> Answer {
        let mut body = self.body.clone();
        if self.stream {
            body["stream"] = true.into();
        }
        let headers: Vec<(&str, &str)> =
            self.headers.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        client.post("/v1/messages", &headers, &body).await
    }

    /// Appends a user message, sends the conversation and appends the answer. Returns the message
    /// of the answer and the HTTP answer.
    ///
    /// # Panics
    /// If the status is not 200.
    pub async fn ask(&mut self, client: &Client, text: &str) -> (Value, Answer) {
        self.push_user(text);
        self.send_turn(client).await
    }

    /// Sends `result` for every tool call of the last message and appends the answer.
    ///
    /// # Panics
    /// If there is no tool call, or the status is not 200.
    pub async fn answer_tools(&mut self, client: &Client, result: &str) -> (Value, Answer) {
        let messages = self.body["messages"].as_array().expect("messages");
        let last = messages.last().expect("a message");
        let results: Vec<Value> = last["content"]
            .as_array()
            .into_iter()
            .flatten()
            .filter(|block| block["type"] == "tool_use")
            .map(|block| json!({"type": "tool_result", "tool_use_id": block["id"], "content": result}))
            .collect();
        assert!(!results.is_empty(), "no tool was called: {last}");
        self.push_user(results);
        self.send_turn(client).await
    }

    async fn send_turn(&mut self, client: &Client) -> (Value, Answer) {
        let answer = self.send(client).await.expect_ok();
        let message = if self.stream { message_from_sse(&answer.text()) } else { answer.json() };
        self.push("assistant", &message["content"]);
        (message, answer)
    }

    /// Adds the tool `lookup` to the requests.
    pub fn offer_tool(&mut self) {
        self.body["tools"] = json!([{
            "name": "lookup",
            "description": "Finds a row",
            "input_schema": {"type": "object", "properties": {"key": {"type": "string"}}, "required": ["key"]},
        }]);
    }
}

/// Parses an SSE stream into the name and the data of each event.
pub fn sse_events(stream: &str) -> Vec<(String, Value)> {
    stream
        .replace("\r\n", "\n")
        .split("\n\n")
        .filter_map(|event| {
            let field = |name: &str| event.lines().find_map(|line| line.strip_prefix(name));
            let data = serde_json::from_str(field("data: ")?).unwrap_or(Value::Null);
            Some((field("event: ").unwrap_or_default().to_owned(), data))
        })
        .collect()
}

/// Folds an Anthropic SSE stream into its message, as the official clients do.
///
/// # Panics
/// If the stream contains an error event.
pub fn message_from_sse(stream: &str) -> Value {
    let mut message = Value::Null;
    let mut arguments = String::new();
    for (name, data) in sse_events(stream) {
        let at = data["index"].as_u64().unwrap_or_default() as usize;
        match name.as_str() {
            "message_start" => message = data["message"].clone(),
            "content_block_start" => {
                let content = message["content"].as_array_mut().expect("a message");
                assert_eq!(content.len(), at, "indexes are dense");
                content.push(data["content_block"].clone());
                arguments.clear();
            }
            "content_block_delta" => {
                let block = &mut message["content"][at];
                let delta = &data["delta"];
                let mut append = |field: &str| {
                    let grown = format!(
                        "{}{}",
                        block[field].as_str().unwrap_or_default(),
                        delta[field].as_str().unwrap_or_default()
                    );
                    block[field] = grown.into();
                };
                match delta["type"].as_str().unwrap_or_default() {
                    "text_delta" => append("text"),
                    "thinking_delta" => append("thinking"),
                    "signature_delta" => block["signature"] = delta["signature"].clone(),
                    "compaction_delta" => block["content"] = delta["content"].clone(),
                    "input_json_delta" => {
                        arguments.push_str(delta["partial_json"].as_str().unwrap_or_default());
                    }
                    _ => {}
                }
            }
            "content_block_stop" if !arguments.is_empty() => {
                message["content"][at]["input"] =
                    serde_json::from_str(&arguments).expect("whole arguments");
                arguments.clear();
            }
            "message_delta" => message["stop_reason"] = data["delta"]["stop_reason"].clone(),
            "error" => panic!("the stream failed: {data}"),
            _ => {}
        }
    }
    message
}
