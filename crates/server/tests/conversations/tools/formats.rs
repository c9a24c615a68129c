//! The events of a tool loop in every format.

use http::Method;
use serde_json::{Value, json};

use super::{api, server};
use crate::support::{FORMATS, check_cursors, run_of, text};

/// The JSON data of the frames of a stream.
fn data(stream: &str) -> Vec<Value> {
    let lines = stream.lines().filter_map(|line| line.strip_prefix("data: "));
    lines.filter_map(|line| serde_json::from_str(line).ok()).collect()
}

fn types(events: &[Value]) -> Vec<&str> {
    let types: Vec<&str> = events.iter().map(|event| text(&event["type"])).collect();
    types.chunk_by(|one, next| one == next).map(|run| run[0]).collect()
}

#[tokio::test]
async fn every_format_shows_results_between_the_rounds() {
    let api = api(&server("calc", &[], "")).await;
    let project = api.project(json!({"title": "t"})).await;
    let ask = json!({"message": "the sum", "tools": ["calc"]});
    let answer = api.open(Method::POST, &format!("{project}/chat"), &ask).await;
    let run = run_of(&answer);
    answer.read_all().await;
    for format in FORMATS {
        let path = format!("/api/runs/{run}/events?format={format}");
        let stream = api.send(Method::GET, &path, &Value::Null).await.expect_ok().text();
        check_cursors(format, &stream);
        let events = data(&stream);
        match format {
            "ag-ui" => {
                let result = events.iter().find(|event| event["type"] == "TOOL_CALL_RESULT");
                let result = result.unwrap_or_else(|| panic!("{stream}"));
                assert_eq!((&result["content"], &result["role"]), (&json!("5"), &json!("tool")));
                let last = events.last().expect("an event");
                assert_eq!(last["outcome"], json!({"type": "success"}), "{last}");
                let starts = events.iter().filter(|event| event["type"] == "RUN_STARTED");
                assert_eq!(starts.count(), 1);
            }
            "ui" => {
                let found = types(&events);
                let at = |kind: &str| found.iter().position(|found| *found == kind);
                let (output, step) = (at("tool-output-available"), at("finish-step"));
                assert!(output.is_some() && output < step, "{found:?}");
                let steps = events.iter().filter(|event| event["type"] == "start-step");
                assert_eq!(steps.count(), 2);
                let last = events.last().expect("a chunk");
                assert_eq!(last["finishReason"], "stop", "{last}");
            }
            "sse" => {
                let found = types(&events);
                assert!(found.contains(&"tool_started") && found.contains(&"tool_result"));
                assert!(!stream.contains("round_ended"), "{stream}");
            }
            _ => {}
        }
    }
    let path = format!("/api/runs/{run}/events?kinds=text");
    let stream = api.send(Method::GET, &path, &Value::Null).await.expect_ok().text();
    assert!(!stream.contains("tool_"), "{stream}");
}

/// Covers: S3-20
#[tokio::test]
async fn ag_ui_client_gets_an_interrupt_and_goes_on_after_the_decision() {
    let api = api(&server("calc", &[], "approve = [\"add\"]")).await;
    let project = api.project(json!({"title": "t"})).await;
    let ask = json!({"message": "the sum", "tools": ["calc"]});
    let path = format!("{project}/chat?format=ag-ui");
    let answer = api.open(Method::POST, &path, &ask).await;
    let run = run_of(&answer);
    // The stream ends with the interrupt.
    let stream = answer.read_all().await.text();
    let events = data(&stream);
    let last = events.last().expect("an event");
    assert_eq!(last["type"], "RUN_FINISHED", "{stream}");
    let interrupt = &last["outcome"]["interrupts"][0];
    assert_eq!(last["outcome"]["type"], "interrupt", "{last}");
    let id = text(&interrupt["id"]).to_owned();
    assert_eq!(id, format!("approval_{}", text(&interrupt["toolCallId"])));
    // The client resumes with its decision.
    let resume = json!({"resume": [
        {"interruptId": id, "status": "resolved", "payload": {"approved": true}},
    ]});
    let rest = api.open(Method::POST, &path, &resume).await;
    assert_eq!(run_of(&rest), run);
    let stream = rest.read_all().await.text();
    let events = data(&stream);
    assert_eq!(events[0]["type"], "RUN_STARTED", "{stream}");
    assert!(events.iter().any(|event| event["type"] == "TOOL_CALL_RESULT"), "{stream}");
    assert_eq!(events.last().expect("an end")["outcome"]["type"], "success", "{stream}");
    let again = api.post(&path, resume).await;
    assert_eq!(again.status, 409, "{}", again.text());
}
