//! A client of one dialect, with its conversation: it sends back what real clients of it send back.

use http::Method;
use serde_json::{Value, json};
use throughline_testkit::{Answer, Client};

/// What a client sees of an answer.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Said {
    pub(crate) reasoning: String,
    pub(crate) text: String,
    pub(crate) calls: Vec<Call>,
}

/// A call of a tool.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Call {
    pub(crate) id: String,
    pub(crate) name: String,
    pub(crate) arguments: Value,
}

/// A request of some dialect.
pub(crate) struct Ask {
    pub(crate) path: String,
    pub(crate) headers: Vec<(&'static str, &'static str)>,
    pub(crate) body: Value,
}

/// What clients of all dialects keep of a conversation.
#[derive(Default)]
pub(crate) struct Talk {
    /// In the dialect's words.
    pub(crate) messages: Vec<Value>,
    pub(crate) thinks: bool,
    pub(crate) tools: bool,
}

/// A client with its conversation.
pub(crate) trait Speaker: Send {
    /// Its conversation so far.
    fn talk(&mut self) -> &mut Talk;
    /// Asks the model for thinking, or not.
    fn think(&mut self, wanted: bool) {
        self.talk().thinks = wanted;
    }
    /// Offers the tool `lookup`.
    fn offer_tool(&mut self) {
        self.talk().tools = true;
    }
    /// Says something.
    fn user(&mut self, text: &str) {
        let said = json!({"role": "user", "content": text});
        self.talk().messages.push(said);
    }
    /// Answers calls.
    fn results(&mut self, calls: &[Call], result: &str);
    /// The next request.
    fn ask(&self, model: &str, stream: bool) -> Ask;
    /// Reads an answer, and keeps of it what a client sends back.
    fn read(&mut self, body: &str, stream: bool) -> Said;
}

/// Sends the conversation, and keeps the answer.
pub(crate) async fn go_on(
    speaker: &mut dyn Speaker,
    client: &Client,
    model: &str,
    stream: bool,
) -> (Said, Answer) {
    let answer = send(&speaker.ask(model, stream), client).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    let said = speaker.read(&answer.text(), stream);
    (said, answer)
}

/// Sends a request as it stands.
pub(crate) async fn send(ask: &Ask, client: &Client) -> Answer {
    let mut headers = vec![("content-type", "application/json")];
    headers.extend(&ask.headers);
    let body = ask.body.to_string();
    client.send(Method::POST, &ask.path, &headers, body).await
}

/// The tool's parameters.
pub(crate) fn parameters() -> Value {
    json!({
        "type": "object",
        "properties": {"key": {"type": "string"}},
        "required": ["key"],
    })
}

/// The data of a stream's events.
pub(crate) fn events(stream: &str) -> Vec<Value> {
    stream
        .split("\n\n")
        .filter_map(|event| event.lines().find_map(|line| line.strip_prefix("data: ")))
        .filter(|data| *data != "[DONE]")
        .map(|data| {
            let event: Value = serde_json::from_str(data).expect("JSON in an event");
            assert!(event.get("error").is_none_or(Value::is_null), "{event}");
            event
        })
        .collect()
}

pub(crate) fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

pub(crate) fn list(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}
