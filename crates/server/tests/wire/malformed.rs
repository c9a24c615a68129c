//! Requests that are wrong, in every dialect: refused in that dialect's own envelope with the path of
//! what is wrong, noted, and never sent on.
//!
//! The cases are those of `corpus/<dialect>/malformed`. Each dialect stands before a backend of
//! another one, where nobody but the gateway could judge.

use std::fs;
use std::path::Path;

use http::Method;
use serde_json::{Value, json};
use throughline_codec::dialects::{CLIENT, ClientDialect, upstream};
use throughline_testkit::{Answer, Gateway, Simulator};

use crate::support::BINARY;

/// A dialect's client, and a gateway over a backend of another dialect.
struct Door {
    dialect: &'static dyn ClientDialect,
    gateway: Gateway,
    simulator: Simulator,
}

/// A refusal as a client should see it.
struct Refused<'a> {
    status: u16,
    /// The path of what is wrong; empty if it is no member.
    at: &'a str,
    message: &'a str,
}

/// The headers by which a client is known where its path does not tell.
fn marks(dialect: &str) -> &'static [(&'static str, &'static str)] {
    match dialect {
        "anthropic" => &[("anthropic-version", "2023-06-01")],
        "gemini" => &[("x-goog-api-key", "k")],
        _ => &[("authorization", "Bearer k")],
    }
}

/// The whole body of a refusal: every member the dialect's own clients read.
fn envelope(dialect: &str, refused: &Refused<'_>, turn: &str) -> Value {
    let Refused { status, message, at } = *refused;
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

/// The body of a refusal; some dialects have a sentence and no more.
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

/// Every dialect, before a backend of another.
async fn doors(settings: &str) -> Vec<Door> {
    let mut doors = Vec::new();
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
        doors.push(Door { dialect, gateway: Gateway::start(BINARY, &config).await, simulator });
    }
    doors
}

impl Door {
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
        headers.extend_from_slice(marks(self.dialect.name()));
        headers.extend_from_slice(more);
        self.gateway.client.send(method, path, &headers, body).await
    }

    async fn post(&self, more: &[(&str, &str)], body: impl Into<bytes::Bytes>) -> Answer {
        self.send(Method::POST, &self.path(), more, body).await
    }

    /// Checks all a client sees of a refusal. Gives the turn's id.
    fn check(&self, answer: &Answer, refused: &Refused<'_>) -> String {
        let name = self.dialect.name();
        assert_eq!(answer.status, refused.status, "{name}: {}", answer.text());
        let kind = self.dialect.fault_type();
        assert_eq!(answer.header("content-type"), kind);
        let turn = answer.header("x-throughline-turn");
        assert!(turn.starts_with("turn_"), "{name}: {:?}", answer.headers);
        assert_eq!(answer.header("request-id"), turn);
        let expected = envelope(name, refused, turn);
        assert_eq!(body(answer), expected, "{name}");
        turn.to_owned()
    }

    /// As [`Door::check`], where the message says these words and speaks of no member.
    fn check_words(&self, answer: &Answer, status: u16, words: &str) {
        let message = message(answer);
        let name = self.dialect.name();
        assert!(message.contains(words), "{name}: {message}\nlacks: {words}");
        let refused = Refused { status, at: "", message: &message };
        self.check(answer, &refused);
    }

    /// Whether its clients are known on any path. Those of dialects no provider speaks have one path.
    fn is_known_by_headers(&self) -> bool {
        upstream(self.dialect.name()).is_some()
    }

    /// A request with nothing wrong about it.
    fn right(&self) -> Value {
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

    /// Nothing went up; what is right does, and is answered.
    async fn check_unharmed(&self) {
        let name = self.dialect.name();
        let seen = self.simulator.seen().await;
        assert!(seen.is_empty(), "{name}: {seen:?}");
        self.post(&[], self.right().to_string()).await.good();
        assert_eq!(self.simulator.seen().await.len(), 1, "{name}");
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
async fn a_wrong_request_gets_its_dialects_envelope_with_the_path_and_goes_nowhere() {
    for door in doors("").await {
        let name = door.dialect.name();
        let mut noted = Vec::new();
        for case in cases(name) {
            let [at, says] = ["at", "says"].map(|member| case[member].as_str().unwrap());
            let message = match at {
                "" => says.to_owned(),
                _ => format!("{at}: {says}"),
            };
            let answer = door.post(&[], case["body"].to_string()).await;
            let refused = Refused { status: 400, at, message: &message };
            let turn = door.check(&answer, &refused);
            noted.push(json!([turn, 400, name, "failed", message]));
        }
        assert!(noted.len() >= 30, "{name}");
        let turns = door.gateway.turns().await;
        let turns = turns.iter().rev().map(|turn| {
            let members = ["id", "status", "client_dialect", "end", "error"];
            Value::from(members.map(|member| turn[member].clone()).to_vec())
        });
        assert_eq!(turns.collect::<Vec<_>>(), noted, "{name}");
        assert_eq!(door.gateway.statistics().await["lineages"], 0, "{name}");
        door.check_unharmed().await;
    }
}

#[tokio::test]
async fn what_is_no_request_at_all_is_refused_in_every_dialect() {
    let settings = "[limits]\nbody = \"4KiB\"\njson_depth = 20\n";
    for door in doors(settings).await {
        let right = door.right().to_string();
        let deep = format!("{{\"x\":{}{}}}", "[".repeat(20), "]".repeat(20));
        let rows: [(&[u8], &str); 8] = [
            (b"", ""),
            (b"hello", ""),
            (&right.as_bytes()[..right.len() - 1], ""),
            (b"{\"model\":\"\xff\xfe\"}", "UTF-8"),
            (b"null", "expected a JSON object as the body, found null"),
            (b"7", "expected a JSON object as the body, found a number"),
            (b"\"text\"", "expected a JSON object as the body, found a string"),
            (deep.as_bytes(), "nested too deeply"),
        ];
        for (body, words) in rows {
            let answer = door.post(&[], body.to_vec()).await;
            door.check_words(&answer, 400, words);
        }
        let large = format!("{right}{}", " ".repeat(4096));
        let answer = door.post(&[], large).await;
        door.check_words(&answer, 413, "`limits.body`");
        for (encoding, words) in [
            ("gzip", "not valid for its content encoding"),
            ("zstd", "not valid for its content encoding"),
            ("sdch", "gzip, deflate, br and zstd are"),
        ] {
            let answer = door.post(&[("content-encoding", encoding)], right.clone()).await;
            door.check_words(&answer, 400, words);
        }
        // Each of them is a turn that can be looked up.
        let turns = door.gateway.turns().await;
        let statuses: Vec<_> = turns.iter().rev().map(|turn| &turn["status"]).collect();
        assert_eq!(statuses[..8], [400; 8], "{turns:?}");
        assert_eq!(statuses[8..], [413, 400, 400, 400], "{turns:?}");
        door.check_unharmed().await;
    }
}

#[tokio::test]
async fn a_pin_to_no_backend_is_refused_with_those_there_are() {
    for door in doors("").await {
        let right = door.right().to_string();
        let path = format!("/b/glm{}", door.path());
        for answer in [
            door.post(&[("x-throughline-backend", "glm")], right.clone()).await,
            door.send(Method::POST, &path, &[], right.clone()).await,
        ] {
            let message = "there is no backend `glm`; the configured ones are `a`";
            door.check_words(&answer, 400, message);
            let turn = &door.gateway.turns().await[0];
            assert_eq!(turn["status"], 400);
            assert_eq!(turn["error"], message);
        }
        door.check_unharmed().await;
    }
}

#[tokio::test]
async fn a_path_nobody_serves_and_a_wrong_method_are_told_in_every_dialect() {
    for door in doors("").await {
        let path = door.path();
        // One dialect is known by its paths alone.
        let nowhere = match door.dialect.name() {
            "ollama" => "/api/none",
            _ => "/v7/none",
        };
        if door.is_known_by_headers() {
            let answer = door.send(Method::POST, nowhere, &[], "{}").await;
            let words = format!("no such path `{nowhere}`");
            door.check_words(&answer, 404, &words);
        }
        for method in [Method::GET, Method::PUT, Method::DELETE] {
            let words = format!("`{path}` does not accept {method}; use POST");
            let answer = door.send(method, &path, &[], "").await;
            door.check_words(&answer, 405, &words);
            assert_eq!(answer.header("allow"), "POST");
        }
        if let Some(bare) = path.strip_prefix("/v1").filter(|bare| bare.starts_with('/')) {
            let answer = door.send(Method::POST, bare, &[], "{}").await;
            let words = format!("no such path `{bare}`; did you mean `{path}`?");
            door.check_words(&answer, 404, &words);
        }
        door.check_unharmed().await;
    }
}

/// Other paths go to the backend, which may have them. What it says if it has not is told to the
/// client in words it reads.
#[tokio::test]
async fn a_path_the_backend_does_not_have_is_told_in_the_clients_dialect() {
    for door in doors("").await {
        if !door.is_known_by_headers() {
            continue;
        }
        let path = match door.dialect.name() {
            "gemini" => "/v1beta/models/m:dream",
            // What stands beside this one's paths is nobody's but ours.
            "ollama" => continue,
            _ => "/v1/dreams",
        };
        let answer = door.send(Method::POST, path, &[], "{}").await;
        door.check_words(&answer, 404, "");
        assert_eq!(door.simulator.seen().await.len(), 1);
    }
}
