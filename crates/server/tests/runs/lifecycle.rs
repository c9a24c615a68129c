//! How runs go on, stop and end.

use http::Method;
use serde_json::json;
use throughline_testkit::{Exchange, Gateway, RawUpstream, StreamedAnswer, wait_until};

use crate::support::{
    ADA, Door, EVE, begin_reply, end_reply, gateway_over, get, read_until, run_of, start,
};

/// A reply that has begun.
async fn begun(
    gateway: &Gateway,
    upstream: &RawUpstream,
    door: Door,
    run: &str,
) -> (StreamedAnswer, Exchange) {
    let body = door.body("t", run, "x");
    tokio::join!(start(&gateway.client, door, ADA, &body), async {
        let mut exchange = upstream.next().await;
        begin_reply(&mut exchange, "A heron ").await;
        exchange
    })
}

async fn status(gateway: &Gateway, id: &str) -> String {
    let state = get(&gateway.client, &format!("/runs/{id}"), ADA).await.expect_ok().json();
    state["status"].as_str().expect("a status").to_owned()
}

#[tokio::test]
async fn run_without_a_client_goes_on_and_is_cancelled_after_the_limit() {
    let upstream = RawUpstream::start().await;
    let gateway = gateway_over(&upstream, "[runs]\ndetached = \"400ms\"\n").await;
    for door in Door::ALL {
        let (mut answer, exchange) = begun(&gateway, &upstream, door, "gone").await;
        read_until(&mut answer, "A heron ").await;
        let id = run_of(&answer);
        drop(answer);
        assert_eq!(status(&gateway, &id).await, "running", "{door:?}");
        exchange.wait_until_closed().await;
        wait_until("the run ends", async || status(&gateway, &id).await == "cancelled").await;
        let log = get(&gateway.client, &format!("/runs/{id}/events?format=ndjson"), ADA).await;
        let log = log.expect_ok().text();
        let last = log.lines().last().unwrap();
        assert!(last.contains("\"reason\":\"cancelled\""), "{door:?}: {last}");
    }
    // One that is read again goes on.
    let (answer, mut exchange) = begun(&gateway, &upstream, Door::AgUi, "back").await;
    let id = run_of(&answer);
    let path = Door::AgUi.resume_path("t", "back", &id);
    let mut again = gateway.client.open(Method::GET, &path, &[ADA], "").await;
    drop(answer);
    read_until(&mut again, "A heron ").await;
    end_reply(&mut exchange, "flies.").await;
    read_until(&mut again, "RUN_FINISHED").await;
    wait_until("the run ends", async || status(&gateway, &id).await == "completed").await;
}

#[tokio::test]
async fn stopped_run_ends_as_cancelled_in_every_format() {
    let upstream = RawUpstream::start().await;
    let gateway = gateway_over(&upstream, "").await;
    for (door, end) in [
        (Door::NdJson, "\"reason\":\"cancelled\""),
        (Door::Events, "\"reason\":{\"other\":\"cancelled\"}"),
        (Door::AgUi, "RUN_FINISHED"),
        (Door::Ui, "\"type\":\"finish\""),
    ] {
        let (mut answer, exchange) = begun(&gateway, &upstream, door, "stopped").await;
        read_until(&mut answer, "A heron ").await;
        let path = format!("/runs/{}/stop", run_of(&answer));
        let foreign = gateway.client.send(Method::POST, &path, &[EVE], "").await;
        assert_eq!(foreign.status, 404, "{door:?}");
        let state = gateway.client.send(Method::POST, &path, &[ADA], "").await.expect_ok().json();
        assert_eq!(state["status"], "cancelled", "{door:?}");
        read_until(&mut answer, end).await;
        while answer.next().await.is_some() {}
        exchange.wait_until_closed().await;
        let again = gateway.client.send(Method::POST, &path, &[ADA], "").await.expect_ok().json();
        assert_eq!(again["status"], "cancelled", "{door:?}");
        assert_eq!(get(&gateway.client, &path, ADA).await.status, 405, "{door:?}");
    }
}

#[tokio::test]
async fn repeated_run_is_refused_with_its_state_and_asks_no_model() {
    let upstream = RawUpstream::start().await;
    let gateway = gateway_over(&upstream, "[runs]\nretention = \"2s\"\n").await;
    let (mut answer, mut exchange) = begun(&gateway, &upstream, Door::AgUi, "once").await;
    let id = run_of(&answer);
    let body = Door::AgUi.body("t", "once", "x");
    let refused = async || start(&gateway.client, Door::AgUi, ADA, &body).await.read_all().await;
    let running = refused().await;
    assert_eq!(running.status, 409);
    let state = running.json()["run"].clone();
    assert_eq!((&state["id"], &state["status"]), (&json!(id), &json!("running")));
    assert_eq!((&state["threadId"], &state["runId"]), (&json!("t"), &json!("once")));
    end_reply(&mut exchange, "flies.").await;
    read_until(&mut answer, "RUN_FINISHED").await;
    assert_eq!(refused().await.json()["run"]["status"], "completed");
    // Names belong to one caller, and may be used again later.
    for (key, wait) in [(EVE, false), (ADA, true)] {
        if wait {
            let path = format!("/runs/{id}");
            wait_until("the run expires", async || {
                get(&gateway.client, &path, ADA).await.status == 404
            })
            .await;
        }
        let (answer, _exchange) =
            tokio::join!(start(&gateway.client, Door::AgUi, key, &body), async {
                let mut exchange = upstream.next().await;
                begin_reply(&mut exchange, "A heron ").await;
                exchange
            });
        assert_eq!(answer.status, 200);
        assert_ne!(run_of(&answer), id);
    }
}

///
#[tokio::test]
async fn killed_server_leaves_an_interrupted_run_with_a_readable_log() {
    for (door, end) in [
        (Door::NdJson, "\"reason\":\"interrupted\""),
        (Door::Events, "\"reason\":\"cut\""),
        (Door::AgUi, "RUN_ERROR"),
        (Door::Ui, "\"type\":\"error\""),
    ] {
        let upstream = RawUpstream::start().await;
        let mut gateway = gateway_over(&upstream, "").await;
        let (mut answer, _exchange) = begun(&gateway, &upstream, door, "killed").await;
        let id = run_of(&answer);
        let part = read_until(&mut answer, "A heron ").await;
        let (seen, cursor) = door.complete_frames(&part);
        gateway.kill().await;
        gateway.restart().await;
        assert_eq!(status(&gateway, &id).await, "interrupted", "{door:?}");
        let path = door.resume_path("t", "killed", &id);
        let whole = get(&gateway.client, &path, ADA).await.expect_ok().text();
        assert!(whole.contains(end), "{door:?}: {whole}");
        let path = format!("{path}?after={}", cursor.unwrap());
        let rest = get(&gateway.client, &path, ADA).await.expect_ok().text();
        assert_eq!(format!("{seen}{rest}"), whole, "{door:?}");
        // A run whose server died is not active.
        assert_eq!(get(&gateway.client, "/ui/chat/t/stream", ADA).await.status, 204);
    }
}

#[tokio::test]
async fn follower_stays_over_two_runs_and_resumes_between_them() {
    let upstream = RawUpstream::start().await;
    let gateway = gateway_over(&upstream, "keep_alive = \"50ms\"").await;
    let path = "/ag-ui/t?follow=true";
    let mut follower = gateway.client.open(Method::GET, path, &[ADA], "").await;
    // Nothing runs yet.
    read_until(&mut follower, ": keep-alive\n\n").await;
    let mut stream = String::new();
    for run in ["one", "two"] {
        let (_answer, mut exchange) = begun(&gateway, &upstream, Door::AgUi, run).await;
        stream.push_str(&read_until(&mut follower, "A heron ").await);
        end_reply(&mut exchange, "flies.").await;
        stream.push_str(&read_until(&mut follower, "RUN_FINISHED").await);
    }
    let ids: Vec<&str> = stream.lines().filter_map(|line| line.strip_prefix("id: ")).collect();
    let mut unique = ids.clone();
    unique.sort_unstable();
    unique.dedup();
    let repeated = stream.matches("ACTIVITY_").count();
    assert!(ids.len() - unique.len() <= repeated, "{stream}");
    assert_eq!(stream.matches("RUN_STARTED").count(), 2);
    // From the end of the first run on, only the second one follows.
    let first = stream.split("\n\n").find(|frame| frame.contains("RUN_FINISHED")).unwrap();
    let cursor = first.lines().find_map(|line| line.strip_prefix("id: ")).unwrap();
    let headers = [ADA, ("last-event-id", cursor)];
    let mut resumed = gateway.client.open(Method::GET, path, &headers, "").await;
    let rest = read_until(&mut resumed, "RUN_FINISHED").await;
    assert_eq!(rest.matches("RUN_STARTED").count(), 1);
    assert!(rest.contains("\"runId\":\"two\"") && !rest.contains("\"runId\":\"one\""), "{rest}");
    for unknown in ["12", "run_x:1", "x"] {
        let headers = [ADA, ("last-event-id", unknown)];
        let answer = gateway.client.open(Method::GET, path, &headers, "").await;
        assert_eq!(answer.status, 400, "{unknown}");
    }
    // A server that stops ends the stream.
    gateway.signal("TERM").await;
    while resumed.next().await.is_some() {}
}

#[tokio::test]
async fn follower_that_comes_late_gets_the_active_run_from_its_first_event() {
    let upstream = RawUpstream::start().await;
    let gateway = gateway_over(&upstream, "").await;
    for run in ["ended", "active"] {
        let (mut answer, mut exchange) = begun(&gateway, &upstream, Door::AgUi, run).await;
        let seen = read_until(&mut answer, "A heron ").await;
        let path = "/ag-ui/t?follow=true";
        let mut follower = gateway.client.open(Method::GET, path, &[ADA], "").await;
        let followed = read_until(&mut follower, "A heron ").await;
        let first = followed.lines().find_map(|line| line.strip_prefix("data: ")).expect("data");
        assert!(first.contains("RUN_STARTED") && first.contains(run), "{followed}");
        assert!(seen.contains(first), "{followed}\n{seen}");
        assert_eq!(followed.matches("RUN_STARTED").count(), 1, "{followed}");
        let stranger = gateway.client.open(Method::GET, path, &[EVE], "").await;
        drop(stranger);
        end_reply(&mut exchange, "flies.").await;
        read_until(&mut answer, "RUN_FINISHED").await;
    }
}

#[tokio::test]
async fn chat_resumes_the_newest_of_its_active_runs() {
    let upstream = RawUpstream::start().await;
    let gateway = gateway_over(&upstream, "").await;
    let (_first, _older) = begun(&gateway, &upstream, Door::Ui, "").await;
    let body = Door::Ui.body("t", "", "y");
    let (second, mut newer) = tokio::join!(start(&gateway.client, Door::Ui, ADA, &body), async {
        let mut exchange = upstream.next().await;
        begin_reply(&mut exchange, "A stork ").await;
        exchange
    });
    let path = "/ui/chat/t/stream";
    let mut resumed = gateway.client.open(Method::GET, path, &[ADA], "").await;
    assert_eq!(run_of(&resumed), run_of(&second));
    end_reply(&mut newer, "flies.").await;
    let shown = read_until(&mut resumed, "[DONE]\n\n").await;
    assert!(shown.contains("A stork ") && !shown.contains("heron"), "{shown}");
}

/// The limit is longer than any test, or there is none. Both go on until the provider has ended.
#[tokio::test]
async fn run_without_a_client_goes_on_to_its_end_if_the_operator_wants_it() {
    let upstream = RawUpstream::start().await;
    let short = gateway_over(&upstream, "[runs]\ndetached = \"100ms\"\n").await;
    let endless = gateway_over(&upstream, "[runs]\ndetached = \"until_end\"\n").await;
    let (answer, mut kept) = begun(&endless, &upstream, Door::NdJson, "kept").await;
    let id = run_of(&answer);
    drop(answer);
    // The same time is too long for the other gateway.
    for _ in 0..2 {
        let (answer, exchange) = begun(&short, &upstream, Door::NdJson, "gone").await;
        drop(answer);
        exchange.wait_until_closed().await;
    }
    assert_eq!(status(&endless, &id).await, "running");
    end_reply(&mut kept, "flies.").await;
    wait_until("the run ends", async || status(&endless, &id).await == "completed").await;
}

#[tokio::test]
async fn without_a_log_a_reply_ends_with_its_connection() {
    let upstream = RawUpstream::start().await;
    let gateway = gateway_over(&upstream, "[runs]\nlog = false\n").await;
    for door in Door::ALL {
        let (mut answer, exchange) = begun(&gateway, &upstream, door, "unlogged").await;
        read_until(&mut answer, "A heron ").await;
        assert!(!answer.headers.contains_key("x-throughline-run"), "{door:?}");
        drop(answer);
        exchange.wait_until_closed().await;
    }
}
