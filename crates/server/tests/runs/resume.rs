//! Streams that are cut and resumed.

use http::Method;
use serde_json::json;
use throughline_simulator::Options;
use throughline_testkit::{Gateway, PostgresDatabase, RawUpstream, Simulator};

use crate::support::{
    ADA, BINARY, Door, EVE, begin_reply, end_reply, gateway_over, get, read_until, run_of, start,
};

/// How many streams of each format are cut.
const CUTS: usize = 60;

/// Covers: X-1, C-35
#[tokio::test]
async fn stream_that_is_cut_again_and_again_joins_to_the_whole_one() {
    let options =
        Options { identity: "a".to_owned(), tokens_per_second: 400, ..Options::default() };
    let simulator = Simulator::with(options).await;
    let gateway = Gateway::over_simulators(BINARY, &[("a", &simulator)], "").await;
    // The cuts differ from stream to stream, and are the same in each run of the test.
    let mut seed = 1_u32;
    let mut random = move |below: usize| {
        seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (seed >> 8) as usize % below
    };
    for door in Door::ALL {
        for number in 0..CUTS {
            let run = format!("r{number}");
            let body = door.body("t", &run, "ponder the heron");
            let mut answer = start(&gateway.client, door, ADA, &body).await;
            assert_eq!(answer.status, 200, "{door:?}");
            let id = run_of(&answer);
            let path = door.resume_path("t", &run, &id);
            let mut joined = String::new();
            let mut cuts = 0;
            loop {
                let pieces = random(12);
                let mut part = String::new();
                let mut ended = false;
                for _ in 0..pieces {
                    match answer.next().await {
                        Some(piece) => part.push_str(std::str::from_utf8(&piece).unwrap()),
                        None => {
                            ended = true;
                            break;
                        }
                    }
                }
                let (frames, cursor) = door.complete_frames(&part);
                joined.push_str(frames);
                if ended {
                    break;
                }
                drop(answer);
                cuts += 1;
                let known = cursor.or_else(|| door.complete_frames(&joined).1);
                let last = known.as_deref().map(|cursor| ("last-event-id", cursor));
                let headers: Vec<(&str, &str)> = last.into_iter().chain([ADA]).collect();
                answer = gateway.client.open(Method::GET, &path, &headers, "").await;
                assert_eq!(answer.status, 200, "{door:?} after {known:?}");
            }
            let whole = get(&gateway.client, &path, ADA).await.expect_ok().text();
            assert_eq!(joined, whole, "{door:?}, {cuts} cuts");
        }
    }
    assert!(gateway.metrics().await.sum("throughline_resumes_total", &[]) > 100.0);
}

/// Covers: X-1
#[tokio::test]
async fn reply_resumes_after_each_of_its_frames() {
    let simulator = Simulator::start("a").await;
    let gateway = Gateway::over_simulators(BINARY, &[("a", &simulator)], "").await;
    let client = &gateway.client;
    for door in Door::ALL {
        let mut answer = start(client, door, ADA, &door.body("t", "r", "ponder")).await;
        let id = run_of(&answer);
        let path = door.resume_path("t", "r", &id);
        let mut whole = String::new();
        while let Some(piece) = answer.next().await {
            whole.push_str(std::str::from_utf8(&piece).unwrap());
        }
        for (at, _) in whole.match_indices('\n') {
            let (seen, cursor) = door.complete_frames(&whole[..=at]);
            let Some(cursor) = cursor.filter(|_| seen.len() == at + 1) else {
                continue;
            };
            let rest = get(client, &format!("{path}?after={cursor}"), ADA).await.expect_ok();
            assert_eq!(format!("{seen}{}", rest.text()), whole, "{door:?} after {cursor}");
        }
        for unknown in ["x", "99999", "1.99", "-1"] {
            let answer = get(client, &format!("{path}?after={unknown}"), ADA).await;
            // JSON lines have one line for each event.
            let known = door == Door::NdJson && unknown == "1.99";
            assert_eq!(answer.status, if known { 200 } else { 400 }, "{door:?} after {unknown}");
        }
        // To others the run does not exist.
        for path in [path.as_str(), &format!("/runs/{id}"), &format!("/runs/{id}/events")] {
            assert_eq!(get(client, path, EVE).await.status, 404, "{door:?} {path}");
        }
        let stop = client.send(Method::POST, &format!("/runs/{id}/stop"), &[EVE], "").await;
        assert_eq!(stop.status, 404, "{door:?}");
        let state = get(client, &format!("/runs/{id}"), ADA).await.expect_ok().json();
        assert_eq!(state["status"], "completed");
    }
}

#[tokio::test]
async fn reader_gets_the_kinds_that_it_asks_for() {
    let upstream = RawUpstream::start().await;
    let gateway = gateway_over(&upstream, "").await;
    let body = Door::NdJson.body("", "", "x");
    let (answer, ()) = tokio::join!(start(&gateway.client, Door::NdJson, ADA, &body), async {
        let mut exchange = upstream.next().await;
        begin_reply(&mut exchange, "A heron ").await;
        end_reply(&mut exchange, "flies.").await;
    });
    let mut answer = answer;
    let id = run_of(&answer);
    while answer.next().await.is_some() {}
    let lines = async |query: &str| {
        let path = format!("/runs/{id}/events?{query}");
        get(&gateway.client, &path, ADA).await.expect_ok().text()
    };
    let whole = lines("").await;
    let text = lines("kinds=text").await;
    assert!(whole.contains("It is late.") && !text.contains("It is late."), "{text}");
    assert!(text.contains("flies.") && text.contains("\"reason\":\"completed\""), "{text}");
    assert!(text.lines().all(|line| whole.lines().any(|known| known == line)), "{text}");
    let thinking = lines("kinds=thinking").await;
    assert!(thinking.contains("thinking_signature") && !thinking.contains("heron"), "{thinking}");
    let sse = lines("format=sse&kinds=tools").await;
    assert!(sse.contains("event: ended") && !sse.contains("block_"), "{sse}");
    for query in ["kinds=words", "format=xml"] {
        let answer = get(&gateway.client, &format!("/runs/{id}/events?{query}"), ADA).await;
        assert_eq!(answer.status, 400, "{query}");
    }
}

#[tokio::test]
async fn chat_resumes_its_active_run_and_nothing_else() {
    let upstream = RawUpstream::start().await;
    let gateway = gateway_over(&upstream, "").await;
    let client = &gateway.client;
    let path = "/ui/chat/c1/stream";
    assert_eq!(get(client, path, ADA).await.status, 204);
    let body = Door::Ui.body("c1", "", "x");
    let (answer, exchange) = tokio::join!(start(client, Door::Ui, ADA, &body), async {
        let mut exchange = upstream.next().await;
        begin_reply(&mut exchange, "A heron ").await;
        exchange
    });
    let (mut answer, mut exchange) = (answer, exchange);
    let seen = read_until(&mut answer, "A heron ").await;
    let (seen, cursor) = Door::Ui.complete_frames(&seen);
    let (seen, cursor) = (seen.to_owned(), cursor.unwrap());
    drop(answer);
    assert_eq!(get(client, path, EVE).await.status, 204);
    let mut whole = client.open(Method::GET, path, &[ADA], "").await;
    assert_eq!(whole.headers["x-vercel-ai-ui-message-stream"], "v1");
    let last = ("last-event-id", cursor.as_str());
    let mut rest = client.open(Method::GET, path, &[ADA, last], "").await;
    end_reply(&mut exchange, "flies.").await;
    let whole = read_until(&mut whole, "[DONE]\n\n").await;
    let rest = read_until(&mut rest, "[DONE]\n\n").await;
    assert_eq!(format!("{seen}{rest}"), whole);
    assert_eq!(get(client, path, ADA).await.status, 204);
}

#[tokio::test]
async fn follower_gets_the_kinds_that_it_asks_for_over_all_runs() {
    let upstream = RawUpstream::start().await;
    let gateway = gateway_over(&upstream, "").await;
    let client = &gateway.client;
    let path = "/ag-ui/t?follow=true&kinds=text";
    let mut follower = client.open(Method::GET, path, &[ADA], "").await;
    let mut followed = String::new();
    for run in ["r1", "r2"] {
        let body = Door::AgUi.body("t", run, "x");
        let (mut answer, ()) = tokio::join!(start(client, Door::AgUi, ADA, &body), async {
            let mut exchange = upstream.next().await;
            begin_reply(&mut exchange, "A heron ").await;
            end_reply(&mut exchange, "flies.").await;
        });
        let whole = read_until(&mut answer, "RUN_FINISHED").await;
        assert!(whole.contains("REASONING_START") && whole.contains("It is late."), "{whole}");
        followed.push_str(&read_until(&mut follower, "RUN_FINISHED").await);
    }
    assert!(!followed.contains("REASONING") && !followed.contains("It is late."), "{followed}");
    assert_eq!(followed.matches("RUN_STARTED").count(), 2, "{followed}");
    assert_eq!(followed.matches("TEXT_MESSAGE_START").count(), 2, "{followed}");
    assert_eq!(followed.matches("TEXT_MESSAGE_END").count(), 2, "{followed}");
    // The same from a cursor on.
    let first = followed.lines().find_map(|line| line.strip_prefix("id: ")).expect("a cursor");
    let headers = [ADA, ("last-event-id", first)];
    let mut again = client.open(Method::GET, path, &headers, "").await;
    let mut rest = read_until(&mut again, "RUN_FINISHED").await;
    rest.push_str(&read_until(&mut again, "RUN_FINISHED").await);
    let (seen, _) = followed.split_once("\n\n").expect("a frame");
    assert_eq!(format!("{seen}\n\n{rest}"), followed);
    let refused = get(client, "/ag-ui/t?follow=true&kinds=words", ADA).await;
    assert_eq!(refused.status, 400, "{}", refused.text());
}

/// Databases have limits for what they can find again, and clients do not know them.
#[tokio::test]
async fn long_ids_of_threads_and_runs_work_on_every_store() {
    let database = PostgresDatabase::new();
    let simulator = Simulator::start("a").await;
    // Text that does not get shorter by compression, and a character that Postgres cannot store.
    let mut state = 7_u64;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        char::from_u32(0x4e00 + (state >> 40) as u32 % 20_000).expect("a character")
    };
    let mut name = |tail: &str| (0..9_000).map(|_| next()).collect::<String>() + tail;
    let (thread, run) = (name("\0"), name(""));
    for store in ["", &format!("[store]\nurl = \"{}\"\n", database.url)] {
        let gateway = Gateway::over_simulators(BINARY, &[("a", &simulator)], store).await;
        let client = &gateway.client;
        let body = Door::AgUi.body(&thread, &run, "ponder");
        let answer = start(client, Door::AgUi, ADA, &body).await;
        assert_eq!(answer.status, 200, "{store}");
        let id = run_of(&answer);
        let whole = answer.read_all().await.text();
        let state = get(client, &format!("/runs/{id}"), ADA).await.expect_ok().json();
        assert_eq!((&state["threadId"], &state["runId"]), (&json!(thread), &json!(run)), "{store}");
        let log = get(client, &format!("/runs/{id}/events"), ADA).await.expect_ok().text();
        assert_eq!(log, whole, "{store}");
        let again = start(client, Door::AgUi, ADA, &body).await;
        assert_eq!(again.status, 409, "{store}");
        let other = Door::AgUi.body(&thread, &format!("{run}2"), "ponder");
        assert_eq!(start(client, Door::AgUi, ADA, &other).await.status, 200, "{store}");
    }
}
