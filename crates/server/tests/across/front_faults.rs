//! What goes wrong upstream, told at the front doors: after the first byte in the words of the format behind
//! what had arrived, before it as a status.

use http::Method;
use serde_json::{Value, json};

use crate::faults::{ANSWER, BREAKS, ROWS, THOUGHT, scenario};
use crate::speaker::text;
use crate::support::{House, Plan, Wrong};

const DOORS: [&str; 3] = ["/ui/chat", "/ndjson/chat", "/v1/stream"];
const JSON: (&str, &str) = ("content-type", "application/json");

/// A stream, as its client reads it.
#[derive(Debug, Default)]
struct Heard {
    reasoning: String,
    text: String,
    /// Messages of errors.
    errors: Vec<String>,
    /// Why it ended, as its last word says.
    end: String,
    /// What is open, of what has to be closed.
    open: usize,
    /// Calls, signatures and the like vouch for what they stand by.
    signed: usize,
}

/// The objects of a stream, in their order; whatever else is in it fails.
fn objects(door: &str, stream: &str) -> Vec<Value> {
    let read = |text: &str| -> Value {
        serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text:?} in {stream}"))
    };
    if door == "/ndjson/chat" {
        let lines = stream.lines().filter(|line| !line.is_empty());
        return lines.map(read).collect();
    }
    let mut objects = Vec::new();
    let mut done = false;
    for event in stream.split_terminator("\n\n") {
        assert!(!done, "something behind the end: {stream}");
        let data = event.lines().find_map(|line| line.strip_prefix("data: "));
        match data {
            Some("[DONE]") if door == "/ui/chat" => done = true,
            Some(data) => objects.push(read(data)),
            None => assert!(event.starts_with(':'), "{event:?} in {stream}"),
        }
    }
    assert_eq!(done, door == "/ui/chat", "{stream}");
    objects
}

fn hear(door: &str, stream: &str) -> Heard {
    let mut heard = Heard::default();
    for object in objects(door, stream) {
        assert_eq!(heard.end, "", "something behind the end: {stream}");
        match text(&object["type"]) {
            // The UI message stream.
            "reasoning-start" | "text-start" => heard.open += 1,
            "reasoning-end" | "text-end" => {
                heard.open -= 1;
                heard.signed += usize::from(!object["providerMetadata"].is_null());
            }
            "reasoning-delta" => heard.reasoning.push_str(text(&object["delta"])),
            "text-delta" => heard.text.push_str(text(&object["delta"])),
            "finish-step" => assert_eq!(heard.open, 0, "{stream}"),
            "finish" => text(&object["finishReason"]).clone_into(&mut heard.end),
            // Lines.
            "thinking" => heard.reasoning.push_str(text(&object["content"])),
            "thinking_signature" => heard.signed += 1,
            "text" => heard.text.push_str(text(&object["content"])),
            "done" => text(&object["reason"]).clone_into(&mut heard.end),
            // Canonical events.
            "block_started" => {
                let block = &object["block"];
                match text(&block["kind"]) {
                    "thinking" => heard.reasoning.push_str(text(&block["text"])),
                    _ => heard.text.push_str(text(&block["text"])),
                }
            }
            "block_delta" => match text(&object["delta"]["kind"]) {
                "thinking" => heard.reasoning.push_str(text(&object["delta"]["value"])),
                "text" => heard.text.push_str(text(&object["delta"]["value"])),
                _ => heard.signed += 1,
            },
            "ended" => text(&object["reason"]).clone_into(&mut heard.end),
            "error" => {
                let message = object.get("errorText").unwrap_or(&object["message"]);
                heard.errors.push(text(message).to_owned());
            }
            "fault" => heard.errors.push(text(&object["message"]).to_owned()),
            _ => {}
        }
    }
    heard
}

fn asking(words: &str) -> String {
    json!({
        "model": "some-model", "thinking": "medium",
        "messages": [{"role": "user", "content": words}],
    })
    .to_string()
}

#[tokio::test]
async fn a_stream_that_breaks_ends_in_one_error_at_every_front_door() {
    let mut wrong = Wrong::default();
    let scenario = scenario(BREAKS.map(|(word, fault, _)| (word, fault)));
    for row in ROWS {
        let house = House::build(&Plan {
            upstreams: &[row],
            scenario: &scenario,
            backend: "timeouts = { idle = \"400ms\" }",
            ..Plan::default()
        })
        .await;
        for door in DOORS {
            for (word, _, end) in BREAKS {
                let what = format!("{door} over {row}: {word}");
                let client = &house.gateway.client;
                let answer = client.send(Method::POST, door, &[JSON], asking(word)).await;
                wrong.unless_equal(&what, answer.status, 200);
                let stream = answer.text();
                let heard = hear(door, &stream);
                let told = heard.errors.iter().filter(|message| !message.is_empty());
                wrong.unless_equal(&what, (heard.errors.len(), told.count()), (1, 1));
                let failed = match (door, word) {
                    ("/v1/stream", _) => "failed",
                    ("/ndjson/chat", "fall silent") => "timeout",
                    ("/ndjson/chat", _) if end == "cut" => "interrupted",
                    _ => "error",
                };
                wrong.unless_equal(&what, heard.end.as_str(), failed);
                wrong.unless(
                    THOUGHT.starts_with(&heard.reasoning) && ANSWER.starts_with(&heard.text),
                    format!("{what}: {heard:?}"),
                );
                // What was cut has nobody who vouches for it.
                wrong.unless(
                    heard.signed == 0 || heard.reasoning == THOUGHT,
                    format!("{what}: {stream}"),
                );
                let arrived = !heard.reasoning.is_empty() || !heard.text.is_empty();
                wrong.unless(
                    !word.ends_with("late") || arrived,
                    format!("{what}: nothing of what had arrived"),
                );
                let turn = house.gateway.turns().await.swap_remove(0);
                wrong.unless_equal(&what, turn["end"].as_str(), Some(end));
            }
        }
        house.end_in_peace().await;
    }
    wrong.end();
}

#[tokio::test]
async fn a_refusal_before_the_first_byte_is_a_status_at_every_front_door() {
    let mut wrong = Wrong::default();
    let refusals = [
        ("too many", "status:429,retry-after=7", 429),
        ("who is it", "status:401", 401),
        ("oh dear", "status:500", 500),
        ("not now", "status:503,retry-after=9", 503),
    ];
    let scenario = scenario(refusals.map(|(word, fault, _)| (word, fault)));
    for row in ROWS {
        let house =
            House::build(&Plan { upstreams: &[row], scenario: &scenario, ..Plan::default() }).await;
        for door in DOORS.into_iter().chain(["/ag-ui"]) {
            for (word, fault, status) in refusals {
                let what = format!("{door} over {row}: {word}");
                let body = match door {
                    "/ag-ui" => json!({
                        "threadId": "t", "runId": "r", "protocolVersion": "1.0", "model": "some-model",
                        "messages": [{"id": "u", "role": "user", "content": word}],
                    })
                    .to_string(),
                    _ => asking(word),
                };
                let client = &house.gateway.client;
                let answer = client.send(Method::POST, door, &[JSON], body).await;
                wrong.unless_equal(&what, answer.status, status);
                let patience = fault.split("retry-after=").nth(1).unwrap_or_default();
                wrong.unless_equal(&what, answer.header("retry-after"), patience);
                let said = match door {
                    // A sentence that front ends show to people.
                    "/ui/chat" => answer.text(),
                    _ => text(&answer.json()["message"]).to_owned(),
                };
                wrong.unless(!said.is_empty(), format!("{what}: {}", answer.text()));
            }
        }
        house.end().await;
    }
    wrong.end();
}
