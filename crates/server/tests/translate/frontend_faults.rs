//! Upstream failures at the frontend endpoints: after the first byte in the form of the format,
//! before it as a status.

use http::Method;
use serde_json::{Value, json};

use crate::faults::{ANSWER, BREAKS, ROWS, THINKING, scenario};
use crate::support::{BedOptions, Mismatches, TestBed};
use crate::test_client::text;

const ENDPOINTS: [&str; 3] = ["/ui/chat", "/ndjson/chat", "/v1/stream"];
const JSON: (&str, &str) = ("content-type", "application/json");

/// A stream as its client reads it.
#[derive(Debug, Default)]
struct StreamReading {
    reasoning: String,
    text: String,
    /// Messages of the error events.
    errors: Vec<String>,
    /// The end reason in the last event.
    end: String,
    /// The number of blocks that are open.
    open: usize,
    /// The number of signatures.
    signed: usize,
}

/// Parses the objects of a stream in order, and panics on anything else.
fn objects(endpoint: &str, stream: &str) -> Vec<Value> {
    let read = |text: &str| -> Value {
        serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text:?} in {stream}"))
    };
    if endpoint == "/ndjson/chat" {
        let lines = stream.lines().filter(|line| !line.is_empty());
        return lines.map(read).collect();
    }
    let mut objects = Vec::new();
    let mut done = false;
    for event in stream.split_terminator("\n\n") {
        assert!(!done, "an event after the end: {stream}");
        let data = event.lines().find_map(|line| line.strip_prefix("data: "));
        match data {
            Some("[DONE]") if endpoint == "/ui/chat" => done = true,
            Some(data) => objects.push(read(data)),
            None => assert!(event.starts_with(':'), "{event:?} in {stream}"),
        }
    }
    assert_eq!(done, endpoint == "/ui/chat", "{stream}");
    objects
}

fn read_stream(endpoint: &str, stream: &str) -> StreamReading {
    let mut reading = StreamReading::default();
    for object in objects(endpoint, stream) {
        assert_eq!(reading.end, "", "an event after the end: {stream}");
        match text(&object["type"]) {
            // Events of the UI message stream.
            "reasoning-start" | "text-start" => reading.open += 1,
            "reasoning-end" | "text-end" => {
                reading.open -= 1;
                reading.signed += usize::from(!object["providerMetadata"].is_null());
            }
            "reasoning-delta" => reading.reasoning.push_str(text(&object["delta"])),
            "text-delta" => reading.text.push_str(text(&object["delta"])),
            "finish-step" => assert_eq!(reading.open, 0, "{stream}"),
            "finish" => text(&object["finishReason"]).clone_into(&mut reading.end),
            // Lines of NDJSON.
            "thinking" => reading.reasoning.push_str(text(&object["content"])),
            "thinking_signature" => reading.signed += 1,
            "text" => reading.text.push_str(text(&object["content"])),
            "done" => text(&object["reason"]).clone_into(&mut reading.end),
            // Canonical events.
            "block_started" => {
                let block = &object["block"];
                match text(&block["kind"]) {
                    "thinking" => reading.reasoning.push_str(text(&block["text"])),
                    _ => reading.text.push_str(text(&block["text"])),
                }
            }
            "block_delta" => match text(&object["delta"]["kind"]) {
                "thinking" => reading.reasoning.push_str(text(&object["delta"]["value"])),
                "text" => reading.text.push_str(text(&object["delta"]["value"])),
                _ => reading.signed += 1,
            },
            "ended" => text(&object["reason"]).clone_into(&mut reading.end),
            "error" => {
                let message = object.get("errorText").unwrap_or(&object["message"]);
                reading.errors.push(text(message).to_owned());
            }
            "fault" => reading.errors.push(text(&object["message"]).to_owned()),
            _ => {}
        }
    }
    reading
}

fn request_body(words: &str) -> String {
    json!({
        "model": "some-model", "thinking": "medium",
        "messages": [{"role": "user", "content": words}],
    })
    .to_string()
}

#[tokio::test]
async fn broken_stream_ends_in_one_error_at_every_frontend_endpoint() {
    let mut mismatches = Mismatches::default();
    let scenario = scenario(BREAKS.map(|(word, fault, _)| (word, fault)));
    for row in ROWS {
        let bed = TestBed::build(&BedOptions {
            upstreams: &[row],
            scenario: &scenario,
            backend: "timeouts = { idle = \"400ms\" }",
            ..BedOptions::default()
        })
        .await;
        for endpoint in ENDPOINTS {
            for (word, _, end) in BREAKS {
                let case = format!("{endpoint} over {row}: {word}");
                let client = &bed.gateway.client;
                let answer = client.send(Method::POST, endpoint, &[JSON], request_body(word)).await;
                mismatches.check_equal(&case, answer.status, 200);
                let stream = answer.text();
                let reading = read_stream(endpoint, &stream);
                let reported = reading.errors.iter().filter(|message| !message.is_empty());
                mismatches.check_equal(&case, (reading.errors.len(), reported.count()), (1, 1));
                let failed = match (endpoint, word) {
                    ("/v1/stream", _) => "failed",
                    ("/ndjson/chat", "fall silent") => "timeout",
                    ("/ndjson/chat", _) if end == "cut" => "interrupted",
                    _ => "error",
                };
                mismatches.check_equal(&case, reading.end.as_str(), failed);
                mismatches.check(
                    THINKING.starts_with(&reading.reasoning) && ANSWER.starts_with(&reading.text),
                    format!("{case}: {reading:?}"),
                );
                // A cut block must have no signature.
                mismatches.check(
                    reading.signed == 0 || reading.reasoning == THINKING,
                    format!("{case}: {stream}"),
                );
                let arrived = !reading.reasoning.is_empty() || !reading.text.is_empty();
                mismatches.check(
                    !word.ends_with("late") || arrived,
                    format!("{case}: nothing of what had arrived"),
                );
                let turn = bed.gateway.turns().await.swap_remove(0);
                mismatches.check_equal(&case, turn["end"].as_str(), Some(end));
            }
        }
        bed.expect_no_refusals().await;
    }
    mismatches.assert_none();
}

#[tokio::test]
async fn refusal_becomes_a_status_at_every_frontend_endpoint() {
    let mut mismatches = Mismatches::default();
    let refusals = [
        ("too many", "status:429,retry-after=7", 429),
        ("who is it", "status:401", 401),
        ("oh dear", "status:500", 500),
        ("not now", "status:503,retry-after=9", 503),
    ];
    let scenario = scenario(refusals.map(|(word, fault, _)| (word, fault)));
    for row in ROWS {
        let bed = TestBed::build(&BedOptions {
            upstreams: &[row],
            scenario: &scenario,
            ..BedOptions::default()
        })
        .await;
        for endpoint in ENDPOINTS.into_iter().chain(["/ag-ui"]) {
            for (word, fault, status) in refusals {
                let case = format!("{endpoint} over {row}: {word}");
                let body = match endpoint {
                    "/ag-ui" => json!({
                        "threadId": "t", "runId": "r", "protocolVersion": "1.0", "model": "some-model",
                        "messages": [{"id": "u", "role": "user", "content": word}],
                    })
                    .to_string(),
                    _ => request_body(word),
                };
                let client = &bed.gateway.client;
                let answer = client.send(Method::POST, endpoint, &[JSON], body).await;
                mismatches.check_equal(&case, answer.status, status);
                let patience = fault.split("retry-after=").nth(1).unwrap_or_default();
                mismatches.check_equal(&case, answer.header("retry-after"), patience);
                let view = match endpoint {
                    // A sentence that front ends show to people.
                    "/ui/chat" => answer.text(),
                    _ => text(&answer.json()["message"]).to_owned(),
                };
                mismatches.check(!view.is_empty(), format!("{case}: {}", answer.text()));
            }
        }
        bed.into_refusals().await;
    }
    mismatches.assert_none();
}
