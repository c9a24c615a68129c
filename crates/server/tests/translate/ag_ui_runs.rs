//! AG-UI runs with the whole gateway: endpoints, silent upstreams and broken upstreams.

use http::Method;
use serde_json::{Value, json};
use throughline_testkit::{Answer, block_fates};

use crate::ag_ui::AgUi;
use crate::keep_alive::{ANSWER, PAUSES, THINKING};
use crate::support::{BedOptions, Mismatches, TestBed};
use crate::test_client::{TestClient, events, list, text};

const BREAKS: &str = r#"
[[step]]
fault = "cut:event=6"
say = [{ thinking = "One by one they come in." }, { text = "All of them are there." }]
"#;

/// Returns the types of the events in a stream.
fn kinds(answer: &Answer) -> Vec<String> {
    let events = events(&answer.text());
    let kinds = events.iter().map(|event| text(&event["type"]).to_owned());
    kinds.collect()
}

fn ag_ui_client(old: bool) -> AgUi {
    let mut test_client = AgUi::new(old);
    test_client.set_thinking(true);
    test_client.offer_tool();
    test_client
}

async fn post(bed: &TestBed, path: &str, body: &Value) -> Answer {
    let headers = [("content-type", "application/json")];
    let client = &bed.gateway.client;
    client.send(Method::POST, path, &headers, body.to_string()).await
}

/// Covers: S2-47
#[tokio::test]
async fn silent_upstream_causes_activity_events() {
    let mut mismatches = Mismatches::default();
    for row in ["anthropic, budget", "openai_responses", "deepseek-v4"] {
        let bed = TestBed::build(&BedOptions {
            upstreams: &[row],
            scenario: PAUSES,
            settings: "keep_alive = \"40ms\"",
            ..BedOptions::default()
        })
        .await;
        for old in [false, true] {
            let case = format!("{row}, old: {old}");
            let mut test_client = ag_ui_client(old);
            test_client.push_user("think slowly");
            let (view, answer) = bed.send(&mut test_client).await;
            mismatches.check_equal(&case, view.reasoning.as_str(), THINKING);
            let reported = |kind: &str| kinds(&answer).iter().filter(|it| *it == kind).count();
            let comments = answer.text().matches(": keep-alive\n\n").count();
            let signs = reported("ACTIVITY_DELTA");
            mismatches.check_equal(&case, reported("ACTIVITY_SNAPSHOT"), usize::from(!old));
            mismatches.check((signs >= 4) != old, format!("{case}: {signs} deltas"));
            mismatches.check((comments >= 4) == old, format!("{case}: {comments} comments"));
            test_client.push_results(&view.calls, "row");
            let (view, _) = bed.send(&mut test_client).await;
            mismatches.check_equal(&case, view.text.trim(), ANSWER);
            let turn = bed.gateway.turns().await.swap_remove(0);
            let fate = if old { "restored" } else { "sent" };
            mismatches.check_equal(&case, block_fates(&turn), [fate]);
        }
        bed.expect_no_refusals().await;
    }
    mismatches.assert_none();
}

#[tokio::test]
async fn broken_upstream_ends_the_run_with_an_error() {
    for row in ["anthropic, budget", "gemini 3", "openai_responses", "deepseek-v4"] {
        let bed = TestBed::build(&BedOptions {
            upstreams: &[row],
            scenario: BREAKS,
            ..BedOptions::default()
        })
        .await;
        let mut test_client = ag_ui_client(false);
        test_client.push_user("break off");
        let request = test_client.next_request("some-model", true);
        let answer = post(&bed, &request.path, &request.body).await.expect_ok();
        let reported = kinds(&answer);
        assert_eq!(reported.first().map(String::as_str), Some("RUN_STARTED"), "{row}");
        assert_eq!(reported.last().map(String::as_str), Some("RUN_ERROR"), "{row}");
        let ends = reported.iter().filter(|kind| kind.starts_with("RUN_")).count();
        assert_eq!(ends, 2, "{row}: {reported:?}");
        bed.expect_no_refusals().await;
    }
}

#[tokio::test]
async fn run_can_pin_a_backend_by_path_header_or_body() {
    let bed = TestBed::over(&["anthropic, budget", "deepseek-v4"]).await;
    let run = |backend: Option<&str>| {
        let mut test_client = ag_ui_client(false);
        test_client.push_user("ponder this");
        let mut body = test_client.next_request("some-model", true).body;
        if let Some(backend) = backend {
            body["forwardedProps"]["backend"] = backend.into();
        }
        body
    };
    for (path, named, answers) in [
        ("/ag-ui", None, "a"),
        ("/ag-ui", Some("b"), "b"),
        ("/ag-ui/b", None, "b"),
        ("/ag-ui/b", Some("a"), "b"),
        ("/b/b/ag-ui", None, "b"),
    ] {
        let answer = post(&bed, path, &run(named)).await.expect_ok();
        assert_eq!(answer.header("x-throughline-backend"), answers, "{path}");
        let kind = answer.header("content-type");
        assert!(kind.starts_with("text/event-stream"), "{kind}");
        // A proxy would buffer events.
        assert_eq!(answer.header("x-accel-buffering"), "no");
    }
    let answer = post(&bed, "/ag-ui/glm", &run(None)).await;
    assert_eq!(answer.status, 400);
    let message = "there is no backend `glm`; the configured ones are `a`, `b`";
    let expected = json!({"type": "RUN_ERROR", "message": message, "code": "invalid_request"});
    assert_eq!(answer.json(), expected);
    bed.expect_no_refusals().await;
}

/// Requests of one thread belong together, whatever their headers say.
#[tokio::test]
async fn thread_is_a_session_and_context_becomes_system_text() {
    let bed = TestBed::over(&["anthropic, budget"]).await;
    let mut body = {
        let mut test_client = ag_ui_client(false);
        test_client.push_user("ponder this");
        test_client.next_request("some-model", true).body
    };
    body["context"] = json!([{"description": "The page", "value": "/rows/7"}]);
    let mut lineages = Vec::new();
    for (run, thread) in ["one", "two", "one"].into_iter().enumerate() {
        body["threadId"] = thread.into();
        body["runId"] = format!("run-{run}").into();
        post(&bed, "/ag-ui", &body).await.expect_ok();
        let turn = bed.gateway.turns().await.swap_remove(0);
        lineages.push(text(&turn["lineage"]).to_owned());
    }
    assert_eq!(lineages[0], lineages[2]);
    assert_ne!(lineages[0], lineages[1]);
    let seen = bed.last_received(0).await.json();
    let system = match seen["system"].as_str() {
        Some(system) => system.to_owned(),
        None => list(&seen["system"]).map(|part| text(&part["text"])).collect(),
    };
    assert!(system.contains("The page: /rows/7"), "{seen}");
    bed.expect_no_refusals().await;
}

/// No backend has this path, so none is asked.
#[tokio::test]
async fn probes_are_not_sent_to_a_backend() {
    let bed = TestBed::over(&["anthropic, budget"]).await;
    for (method, status) in [(Method::OPTIONS, 204), (Method::HEAD, 405), (Method::GET, 405)] {
        let answer = bed.gateway.client.send(method, "/ag-ui", &[], "").await;
        assert_eq!(answer.status, status);
    }
    assert!(bed.simulators[0].received().await.is_empty());
    bed.expect_no_refusals().await;
}

/// No provider accepts a call without a result, so the gateway must repair the history.
#[tokio::test]
async fn conversation_continues_after_an_unanswered_tool_call() {
    for row in ["anthropic, budget", "gemini 3", "openai_responses", "deepseek-v4", "ollama"] {
        let bed = TestBed::over(&[row]).await;
        let mut test_client = ag_ui_client(false);
        test_client.push_user("use lookup in parallel");
        let (view, _) = bed.send(&mut test_client).await;
        assert_eq!(view.calls.len(), 2, "{row}");
        test_client.push_results(&view.calls[..1], "row");
        test_client.push_user("never mind the other one");
        let (_, answer) = bed.send(&mut test_client).await;
        let losses = answer.header("x-throughline-loss");
        let reported = "part_omitted=tool_result;reason=missing";
        assert!(losses.contains(reported), "{row}: {losses}");
        bed.expect_no_refusals().await;
    }
}
