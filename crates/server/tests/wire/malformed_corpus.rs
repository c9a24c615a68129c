//! Invalid requests in every dialect: each gets an error in its own dialect with the path of the
//! mistake, appears in the turn log, and is never sent.
//!
//! The cases are in `corpus/<dialect>/malformed`. Each client has a backend of another dialect, so
//! only the gateway can reject the request.

use std::fs;
use std::path::Path;

use http::Method;
use serde_json::{Value, json};
use throughline_codec::dialects::{CLIENT, ClientDialect, upstream};
use throughline_testkit::{Answer, Gateway, Simulator};

use crate::support::BINARY;

/// A client endpoint of one dialect, and a gateway over a backend of another dialect.
struct ClientEndpoint {
    dialect: &'static dyn ClientDialect,
    gateway: Gateway,
    simulator: Simulator,
}

/// The error a client should get.
struct ExpectedError<'a> {
    status: u16,
    /// The path of the mistake, or an empty string.
    at: &'a str,
    message: &'a str,
}

/// The headers that identify the dialect where the path does not.
fn dialect_headers(dialect: &str) -> &'static [(&'static str, &'static str)] {
    match dialect {
        "anthropic" => &[("anthropic-version", "2023-06-01")],
        "gemini" => &[("x-goog-api-key", "k")],
        _ => &[("authorization", "Bearer k")],
    }
}

/// Returns the whole error body, with every member that the dialect's clients read.
fn envelope(dialect: &str, expected_error: &ExpectedError<'_>, turn: &str) -> Value {
    let ExpectedError { status, message, at } = *expected_error;
    let (anthropic, code, google) = match status {
        400 => ("invalid_request_error", None, "INVALID_ARGUMENT"),
        404 => ("not_found_error", Some("not_found"), "NOT_FOUND"),
        405 => ("invalid_request_error", Some("method_not_allowed"), "INVALID_ARGUMENT"),
        413 => ("request_too_large", Some("request_too_large"), "INVALID_ARGUMENT"),
        _ => panic!("no words for {status}"),
    };
    let param = (!at.is_empty()).then_some(at);
    match dialect {
        "anthropic" => json!({
            "type": "error",
            "error": {"type": anthropic, "message": message},
            "request_id": turn,
        }),
        "gemini" => json!({"error": {"code": status, "message": message, "status": google}}),
        "ui_stream" => message.into(),
        "ndjson" | "events" => {
            let kind = match status {
                400 => "invalid",
                404 => "not_found",
                405 => "wrong_method",
                _ => "too_large",
            };
            let line = dialect == "ndjson";
            let mut body = json!({"type": if line { "error" } else { "fault" }, "kind": kind, "message": message});
            if let (true, Some(at)) = (line, param) {
                body["at"] = at.into();
            }
            body
        }
        "ag_ui" => {
            json!({"type": "RUN_ERROR", "message": message, "code": code.unwrap_or("invalid_request")})
        }
        "ollama" => json!({"error": message}),
        _ => json!({"error": {
            "message": message, "type": "invalid_request_error", "param": param, "code": code,
        }}),
    }
}

/// Returns the body of an error. Some dialects have only a sentence.
fn body(answer: &Answer) -> Value {
    match answer.header("content-type") {
        "application/json" => answer.json(),
        _ => answer.text().into(),
    }
}

fn message(answer: &Answer) -> String {
    let body = body(answer);
    let places = [&body["error"]["message"], &body["error"], &body["message"], &body];
    let message = places.into_iter().find_map(Value::as_str);
    message.unwrap_or_else(|| panic!("{body}")).to_owned()
}

/// Starts one gateway per dialect, over a backend of another dialect.
async fn client_endpoints(settings: &str) -> Vec<ClientEndpoint> {
    let mut client_endpoints = Vec::new();
    for &dialect in CLIENT {
        let simulator = Simulator::start("a").await;
        let (other, model) = match dialect.name() {
            "anthropic" => ("gemini", "gemini-3-pro-preview"),
            _ => ("anthropic", "claude-sonnet-4-5"),
        };
        let url = &simulator.url;
        let config = format!(
            "{settings}\n[[backend]]\nname = \"a\"\ndialect = \"{other}\"\nbase_url = \"{url}\"\napi_key = \"k\"\nmodels = {{ \"*\" = \"{model}\" }}\n"
        );
        client_endpoints.push(ClientEndpoint {
            dialect,
            gateway: Gateway::start(BINARY, &config).await,
            simulator,
        });
    }
    client_endpoints
}

impl ClientEndpoint {
    fn path(&self) -> String {
        self.dialect.path_for("m")
    }

    async fn send(
        &self,
        method: Method,
        path: &str,
        more: &[(&str, &str)],
        body: impl Into<bytes::Bytes>,
    ) -> Answer {
        let mut headers = vec![("content-type", "application/json")];
        headers.extend_from_slice(dialect_headers(self.dialect.name()));
        headers.extend_from_slice(more);
        self.gateway.client.send(method, path, &headers, body).await
    }

    async fn post(&self, more: &[(&str, &str)], body: impl Into<bytes::Bytes>) -> Answer {
        self.send(Method::POST, &self.path(), more, body).await
    }

    /// Checks everything a client sees of an error. Returns the id of the turn.
    fn check(&self, answer: &Answer, expected_error: &ExpectedError<'_>) -> String {
        let name = self.dialect.name();
        assert_eq!(answer.status, expected_error.status, "{name}: {}", answer.text());
        let kind = self.dialect.defaults().fault_type;
        assert_eq!(answer.header("content-type"), kind);
        let turn = answer.header("x-throughline-turn");
        assert!(turn.starts_with("turn_"), "{name}: {:?}", answer.headers);
        assert_eq!(answer.header("request-id"), turn);
        let expected = envelope(name, expected_error, turn);
        assert_eq!(body(answer), expected, "{name}");
        turn.to_owned()
    }

    /// Like [`ClientEndpoint::check`], for a message that contains these words and no path.
    fn check_words(&self, answer: &Answer, status: u16, words: &str) {
        let message = message(answer);
        let name = self.dialect.name();
        assert!(message.contains(words), "{name}: {message}\nlacks: {words}");
        let expected_error = ExpectedError { status, at: "", message: &message };
        self.check(answer, &expected_error);
    }

    /// Whether the headers identify the dialect on any path. Dialects without an upstream side have
    /// fixed paths.
    fn is_known_by_headers(&self) -> bool {
        upstream(self.dialect.name()).is_some()
    }

    /// Returns a valid request.
    fn valid_request(&self) -> Value {
        match self.dialect.name() {
            "gemini" => json!({"contents": [{"role": "user", "parts": [{"text": "Hi."}]}]}),
            "openai_responses" => json!({"model": "m", "input": "Hi."}),
            "ag_ui" => {
                let messages = json!([{"id": "u", "role": "user", "content": "Hi."}]);
                json!({"threadId": "t", "runId": "r", "model": "m", "messages": messages})
            }
            _ => {
                json!({"model": "m", "max_tokens": 99, "messages": [{"role": "user", "content": "Hi."}]})
            }
        }
    }

    /// Checks that nothing was sent, and that a valid request is answered.
    async fn check_unharmed(&self) {
        let name = self.dialect.name();
        let seen = self.simulator.received().await;
        assert!(seen.is_empty(), "{name}: {seen:?}");
        self.post(&[], self.valid_request().to_string()).await.expect_ok();
        assert_eq!(self.simulator.received().await.len(), 1, "{name}");
    }
}

fn cases(dialect: &str) -> Vec<Value> {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../corpus");
    let table = corpus.join(dialect).join("malformed/requests.jsonl");
    let table = fs::read_to_string(table).unwrap();
    let read = |line| serde_json::from_str(line).unwrap();
    table.lines().map(read).collect()
}

#[tokio::test]
async fn invalid_request_gets_an_error_of_its_dialect_with_the_path() {
    for endpoint in client_endpoints("").await {
        let name = endpoint.dialect.name();
        let mut noted = Vec::new();
        for case in cases(name) {
            let [at, says] = ["at", "says"].map(|member| case[member].as_str().unwrap());
            let message = match at {
                "" => says.to_owned(),
                _ => format!("{at}: {says}"),
            };
            let answer = endpoint.post(&[], case["body"].to_string()).await;
            let expected_error = ExpectedError { status: 400, at, message: &message };
            let turn = endpoint.check(&answer, &expected_error);
            noted.push(json!([turn, 400, name, "failed", message]));
        }
        assert!(noted.len() >= 30, "{name}");
        let turns = endpoint.gateway.turns().await;
        let turns = turns.iter().rev().map(|turn| {
            let members = ["id", "status", "client_dialect", "end", "error"];
            Value::from(members.map(|member| turn[member].clone()).to_vec())
        });
        assert_eq!(turns.collect::<Vec<_>>(), noted, "{name}");
        assert_eq!(endpoint.gateway.statistics().await["lineages"], 0, "{name}");
        endpoint.check_unharmed().await;
    }
}

#[tokio::test]
async fn rejects_bodies_that_are_no_request_in_every_dialect() {
    let settings = "[limits]\nbody = \"4KiB\"\njson_depth = 20\n";
    for endpoint in client_endpoints(settings).await {
        let valid_request = endpoint.valid_request().to_string();
        let deep = format!("{{\"x\":{}{}}}", "[".repeat(20), "]".repeat(20));
        let rows: [(&[u8], &str); 8] = [
            (b"", ""),
            (b"hello", ""),
            (&valid_request.as_bytes()[..valid_request.len() - 1], ""),
            (b"{\"model\":\"\xff\xfe\"}", "UTF-8"),
            (b"null", "expected a JSON object as the body, found null"),
            (b"7", "expected a JSON object as the body, found a number"),
            (b"\"text\"", "expected a JSON object as the body, found a string"),
            (deep.as_bytes(), "nested too deeply"),
        ];
        for (body, words) in rows {
            let answer = endpoint.post(&[], body.to_vec()).await;
            endpoint.check_words(&answer, 400, words);
        }
        let large = format!("{valid_request}{}", " ".repeat(4096));
        let answer = endpoint.post(&[], large).await;
        endpoint.check_words(&answer, 413, "`limits.body`");
        for (encoding, words) in [
            ("gzip", "not valid for its content encoding"),
            ("zstd", "not valid for its content encoding"),
            ("sdch", "gzip, deflate, br or zstd"),
        ] {
            let answer =
                endpoint.post(&[("content-encoding", encoding)], valid_request.clone()).await;
            endpoint.check_words(&answer, 400, words);
        }
        // Each of them appears in the turn log.
        let turns = endpoint.gateway.turns().await;
        let statuses: Vec<_> = turns.iter().rev().map(|turn| &turn["status"]).collect();
        assert_eq!(statuses[..8], [400; 8], "{turns:?}");
        assert_eq!(statuses[8..], [413, 400, 400, 400], "{turns:?}");
        endpoint.check_unharmed().await;
    }
}

#[tokio::test]
async fn rejects_an_unknown_pin_with_the_known_backends() {
    for endpoint in client_endpoints("").await {
        let valid_request = endpoint.valid_request().to_string();
        let path = format!("/b/glm{}", endpoint.path());
        for answer in [
            endpoint.post(&[("x-throughline-backend", "glm")], valid_request.clone()).await,
            endpoint.send(Method::POST, &path, &[], valid_request.clone()).await,
        ] {
            let message = "there is no backend `glm`; the configured ones are `a`";
            endpoint.check_words(&answer, 400, message);
            let turn = &endpoint.gateway.turns().await[0];
            assert_eq!(turn["status"], 400);
            assert_eq!(turn["error"], message);
        }
        endpoint.check_unharmed().await;
    }
}

#[tokio::test]
async fn unknown_path_and_wrong_method_get_an_error_of_the_dialect() {
    for endpoint in client_endpoints("").await {
        let path = endpoint.path();
        // This dialect is identified only by its paths.
        let nowhere = match endpoint.dialect.name() {
            "ollama" => "/api/none",
            _ => "/v7/none",
        };
        if endpoint.is_known_by_headers() {
            let answer = endpoint.send(Method::POST, nowhere, &[], "{}").await;
            let words = format!("no such path `{nowhere}`");
            endpoint.check_words(&answer, 404, &words);
        }
        for method in [Method::GET, Method::PUT, Method::DELETE] {
            let words = format!("`{path}` does not accept {method}; use POST");
            let answer = endpoint.send(method, &path, &[], "").await;
            endpoint.check_words(&answer, 405, &words);
            assert_eq!(answer.header("allow"), "POST");
        }
        if let Some(bare) = path.strip_prefix("/v1").filter(|bare| bare.starts_with('/')) {
            let answer = endpoint.send(Method::POST, bare, &[], "{}").await;
            let words = format!("no such path `{bare}`; did you mean `{path}`?");
            endpoint.check_words(&answer, 404, &words);
        }
        endpoint.check_unharmed().await;
    }
}

/// Other paths go to the backend, which may serve them. If it does not, the client gets the error
/// in its own dialect.
#[tokio::test]
async fn path_unknown_to_the_backend_gets_an_error_of_the_dialect() {
    for endpoint in client_endpoints("").await {
        if !endpoint.is_known_by_headers() {
            continue;
        }
        let path = match endpoint.dialect.name() {
            "gemini" => "/v1beta/models/m:dream",
            // Unknown paths next to these are answered by the gateway itself.
            "ollama" => continue,
            _ => "/v1/dreams",
        };
        let answer = endpoint.send(Method::POST, path, &[], "{}").await;
        endpoint.check_words(&answer, 404, "");
        assert_eq!(endpoint.simulator.received().await.len(), 1);
    }
}
