//! Runs of AG-UI over the whole gateway: where they come in, and what is told while an upstream is silent or
//! after it broke.

use http::Method;
use serde_json::{Value, json};
use throughline_testkit::Answer;

use crate::ag_ui::AgUi;
use crate::silence::{ANSWER, PAUSES, THOUGHT};
use crate::speaker::{Speaker, events, list, text};
use crate::support::{House, Plan, Wrong, fates};

const BREAKS: &str = r#"
[[step]]
fault = "cut:event=6"
say = [{ thinking = "One by one they come in." }, { text = "All of them are there." }]
"#;

/// The kinds of events in a stream.
fn kinds(answer: &Answer) -> Vec<String> {
    let events = events(&answer.text());
    let kinds = events.iter().map(|event| text(&event["type"]).to_owned());
    kinds.collect()
}

fn speaker(old: bool) -> AgUi {
    let mut speaker = AgUi::new(old);
    speaker.think(true);
    speaker.offer_tool();
    speaker
}

async fn post(house: &House, path: &str, body: &Value) -> Answer {
    let headers = [("content-type", "application/json")];
    let client = &house.gateway.client;
    client.send(Method::POST, path, &headers, body.to_string()).await
}

/// Covers: S2-47
#[tokio::test]
async fn a_silent_upstream_is_told_as_an_activity_and_nothing_is_lost() {
    let mut wrong = Wrong::default();
    for row in ["anthropic, budget", "openai_responses", "deepseek-v4"] {
        let house = House::build(&Plan {
            upstreams: &[row],
            scenario: PAUSES,
            settings: "keep_alive = \"40ms\"",
            ..Plan::default()
        })
        .await;
        for old in [false, true] {
            let what = format!("{row}, old: {old}");
            let mut speaker = speaker(old);
            speaker.user("think slowly");
            let (said, answer) = house.hear(&mut speaker).await;
            wrong.unless_equal(&what, said.reasoning.as_str(), THOUGHT);
            let told = |kind: &str| kinds(&answer).iter().filter(|it| *it == kind).count();
            let comments = answer.text().matches(": keep-alive\n\n").count();
            let signs = told("ACTIVITY_DELTA");
            wrong.unless_equal(&what, told("ACTIVITY_SNAPSHOT"), usize::from(!old));
            wrong.unless((signs >= 4) != old, format!("{what}: {signs} deltas"));
            wrong.unless((comments >= 4) == old, format!("{what}: {comments} comments"));
            speaker.results(&said.calls, "row");
            let (said, _) = house.hear(&mut speaker).await;
            wrong.unless_equal(&what, said.text.trim(), ANSWER);
            let turn = house.gateway.turns().await.swap_remove(0);
            let fate = if old { "restored" } else { "sent" };
            wrong.unless_equal(&what, fates(&turn), [fate]);
        }
        house.end_in_peace().await;
    }
    wrong.end();
}

#[tokio::test]
async fn an_upstream_that_breaks_off_ends_the_run_with_an_error() {
    for row in ["anthropic, budget", "gemini 3", "openai_responses", "deepseek-v4"] {
        let house =
            House::build(&Plan { upstreams: &[row], scenario: BREAKS, ..Plan::default() }).await;
        let mut speaker = speaker(false);
        speaker.user("break off");
        let ask = speaker.ask("some-model", true);
        let answer = post(&house, &ask.path, &ask.body).await.good();
        let told = kinds(&answer);
        assert_eq!(told.first().map(String::as_str), Some("RUN_STARTED"), "{row}");
        assert_eq!(told.last().map(String::as_str), Some("RUN_ERROR"), "{row}");
        let ends = told.iter().filter(|kind| kind.starts_with("RUN_")).count();
        assert_eq!(ends, 2, "{row}: {told:?}");
        house.end_in_peace().await;
    }
}

#[tokio::test]
async fn a_run_names_its_backend_by_path_header_or_body() {
    let house = House::over(&["anthropic, budget", "deepseek-v4"]).await;
    let run = |backend: Option<&str>| {
        let mut speaker = speaker(false);
        speaker.user("ponder this");
        let mut body = speaker.ask("some-model", true).body;
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
        let answer = post(&house, path, &run(named)).await.good();
        assert_eq!(answer.header("x-throughline-backend"), answers, "{path}");
        let kind = answer.header("content-type");
        assert!(kind.starts_with("text/event-stream"), "{kind}");
        // A proxy would hold back events to fill its buffer.
        assert_eq!(answer.header("x-accel-buffering"), "no");
    }
    let answer = post(&house, "/ag-ui/glm", &run(None)).await;
    assert_eq!(answer.status, 400);
    let message = "there is no backend `glm`; the configured ones are `a`, `b`";
    let expected = json!({"type": "RUN_ERROR", "message": message, "code": "invalid_request"});
    assert_eq!(answer.json(), expected);
    house.end_in_peace().await;
}

/// What clients of one thread ask belongs together, whatever they say of themselves.
#[tokio::test]
async fn a_thread_is_a_session_and_context_is_told_above_the_conversation() {
    let house = House::over(&["anthropic, budget"]).await;
    let mut body = {
        let mut speaker = speaker(false);
        speaker.user("ponder this");
        speaker.ask("some-model", true).body
    };
    body["context"] = json!([{"description": "The page", "value": "/rows/7"}]);
    let mut lineages = Vec::new();
    for thread in ["one", "two", "one"] {
        body["threadId"] = thread.into();
        post(&house, "/ag-ui", &body).await.good();
        let turn = house.gateway.turns().await.swap_remove(0);
        lineages.push(text(&turn["lineage"]).to_owned());
    }
    assert_eq!(lineages[0], lineages[2]);
    assert_ne!(lineages[0], lineages[1]);
    let seen = house.last(0).await.json();
    let system = match seen["system"].as_str() {
        Some(system) => system.to_owned(),
        None => list(&seen["system"]).map(|part| text(&part["text"])).collect(),
    };
    assert!(system.contains("The page: /rows/7"), "{seen}");
    house.end_in_peace().await;
}

/// No backend has such a path, so none is asked.
#[tokio::test]
async fn probes_go_no_further_than_us() {
    let house = House::over(&["anthropic, budget"]).await;
    for (method, status) in [(Method::OPTIONS, 204), (Method::HEAD, 405), (Method::GET, 405)] {
        let answer = house.gateway.client.send(method, "/ag-ui", &[], "").await;
        assert_eq!(answer.status, status);
    }
    assert!(house.simulators[0].seen().await.is_empty());
    house.end_in_peace().await;
}

/// Whoever goes on without a tool is not stuck: no provider takes a call without its result.
#[tokio::test]
async fn a_conversation_goes_on_behind_a_call_that_nobody_answered() {
    for row in ["anthropic, budget", "gemini 3", "openai_responses", "deepseek-v4", "ollama"] {
        let house = House::over(&[row]).await;
        let mut speaker = speaker(false);
        speaker.user("use lookup in parallel");
        let (said, _) = house.hear(&mut speaker).await;
        assert_eq!(said.calls.len(), 2, "{row}");
        speaker.results(&said.calls[..1], "row");
        speaker.user("never mind the other one");
        let (_, answer) = house.hear(&mut speaker).await;
        let losses = answer.header("x-throughline-loss");
        let told = "part_omitted=tool_result;reason=missing";
        assert!(losses.contains(told), "{row}: {losses}");
        house.end_in_peace().await;
    }
}
