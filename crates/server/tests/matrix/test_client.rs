//! The interface of all test clients. Each client sends back what real clients of its dialect send
//! back.

use http::Method;
use serde_json::{Value, json};
use throughline_testkit::{Answer, Client};

/// The content of an answer that a client sees.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct ClientView {
    pub(crate) reasoning: String,
    pub(crate) text: String,
    pub(crate) calls: Vec<Call>,
}

/// A tool call.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Call {
    pub(crate) id: String,
    pub(crate) name: String,
    pub(crate) arguments: Value,
}

/// A request in any dialect.
pub(crate) struct ClientRequest {
    pub(crate) path: String,
    pub(crate) headers: Vec<(&'static str, &'static str)>,
    pub(crate) body: Value,
}

/// The history that clients of all dialects keep.
#[derive(Default)]
pub(crate) struct History {
    /// Messages in the client's dialect.
    pub(crate) messages: Vec<Value>,
    /// The system text, or an empty string.
    pub(crate) system: String,
    pub(crate) thinking: bool,
    pub(crate) tools: Vec<OfferedTool>,
    /// Whether a client that can say it marks the prefixes that are worth caching.
    pub(crate) sets_breakpoints: bool,
    /// The name of the conversation, for the gateway.
    pub(crate) session: Option<&'static str>,
}

/// A tool in the requests.
#[derive(Clone, Debug)]
pub(crate) struct OfferedTool {
    pub(crate) name: String,
    pub(crate) description: String,
    /// The JSON schema of its parameters.
    pub(crate) parameters: Value,
}

impl History {
    /// Returns the tools as a client writes them.
    pub(crate) fn tools(&self, write: impl Fn(&OfferedTool) -> Value) -> Value {
        self.tools.iter().map(write).collect()
    }
}

/// A client with its conversation.
pub(crate) trait TestClient: Send {
    /// Returns the conversation so far.
    fn history(&mut self) -> &mut History;
    /// Sets whether requests ask for thinking.
    fn set_thinking(&mut self, wanted: bool) {
        self.history().thinking = wanted;
    }
    /// Adds the tool `lookup` to the requests.
    fn offer_tool(&mut self) {
        self.history().tools = vec![OfferedTool {
            name: "lookup".to_owned(),
            description: "Finds a row".to_owned(),
            parameters: parameters(),
        }];
    }
    /// Appends a user message.
    fn push_user(&mut self, text: &str) {
        let view = json!({"role": "user", "content": text});
        self.history().messages.push(view);
    }
    /// Appends the same result for every tool call.
    fn push_results(&mut self, calls: &[Call], result: &str) {
        let results: Vec<(&Call, &str)> = calls.iter().map(|call| (call, result)).collect();
        self.push_each_result(&results);
    }
    /// Appends the results of tool calls.
    fn push_each_result(&mut self, results: &[(&Call, &str)]);
    /// Returns a request that comes before the next one, such as one that compacts the conversation.
    fn request_before(&self, _: &str) -> Option<ClientRequest> {
        None
    }
    /// Reads the answer to that request.
    fn read_before(&mut self, _: &str) {}
    /// Returns the next request.
    fn next_request(&self, model: &str, stream: bool) -> ClientRequest;
    /// Reads an answer, and appends what a client sends back.
    fn read(&mut self, body: &str, stream: bool) -> ClientView;
}

/// Sends the conversation and appends the answer.
pub(crate) async fn send_turn(
    test_client: &mut dyn TestClient,
    client: &Client,
    model: &str,
    stream: bool,
) -> (ClientView, Answer) {
    let answer = try_turn(test_client, client, model, stream).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    let view = test_client.read(&answer.text(), stream);
    (view, answer)
}

/// Sends the conversation. Returns the first answer that is an error, or the answer of the model.
pub(crate) async fn try_turn(
    test_client: &mut dyn TestClient,
    client: &Client,
    model: &str,
    stream: bool,
) -> Answer {
    if let Some(before) = test_client.request_before(model) {
        let answer = send(&before, client).await;
        if answer.status != 200 {
            return answer;
        }
        test_client.read_before(&answer.text());
    }
    let mut request = test_client.next_request(model, stream);
    let session = test_client.history().session;
    request.headers.extend(session.map(|session| ("x-throughline-conversation", session)));
    send(&request, client).await
}

/// Sends a request.
pub(crate) async fn send(request: &ClientRequest, client: &Client) -> Answer {
    let mut headers = vec![("content-type", "application/json")];
    headers.extend(&request.headers);
    let body = request.body.to_string();
    client.send(Method::POST, &request.path, &headers, body).await
}

/// Returns the JSON schema of the parameters of `lookup`.
pub(crate) fn parameters() -> Value {
    json!({
        "type": "object",
        "properties": {"key": {"type": "string"}},
        "required": ["key"],
    })
}

/// Returns the data of the events in a stream.
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
