//! Token counts, plans and turn reports for every pair. Counts and plans change no state.

use std::io::Write;

use flate2::Compression;
use flate2::write::GzEncoder;
use http::Method;
use serde_json::{Value, json};
use throughline_testkit::{Gateway, RawUpstream, block_fates, ok_reply};

use crate::support::{BINARY, CLIENTS, Mismatches, TestBed, foreign_clients, new_client, upstream};
use crate::test_client::{ClientRequest, TestClient, list, send, text};

const ROWS: [&str; 4] = ["anthropic, budget", "gemini 3", "openai_responses", "deepseek-v4"];

/// Returns a client that has completed one turn.
async fn client_after_one_turn(bed: &TestBed, dialect: &str) -> Box<dyn TestClient> {
    let mut test_client = new_client(dialect);
    test_client.push_user("ponder this");
    bed.send(test_client.as_mut()).await;
    test_client.push_user("ponder that");
    test_client
}

/// Returns the path and body of a count request, if the dialect has one, and the JSON pointer of
/// the count in the answer.
fn count_request(dialect: &str, request: &ClientRequest) -> Option<(String, Value, &'static str)> {
    let mut body = request.body.clone();
    let members = body.as_object_mut().expect("an object");
    let (path, member) = match dialect {
        "anthropic" => ("/v1/messages/count_tokens".to_owned(), "input_tokens"),
        "openai_responses" => ("/v1/responses/input_tokens".to_owned(), "input_tokens"),
        "gemini" => {
            let path = "/v1beta/models/some-model:countTokens".to_owned();
            (path, "totalTokens")
        }
        _ => return None,
    };
    if dialect != "gemini" {
        for only in ["stream", "max_tokens", "store", "include"] {
            members.remove(only);
        }
    }
    Some((path, body, member))
}

#[tokio::test]
async fn tokens_are_counted_or_estimated_for_every_pair() {
    let mut mismatches = Mismatches::default();
    for row in ROWS {
        let bed = TestBed::over(&[row]).await;
        for dialect in foreign_clients(row) {
            let test_client = client_after_one_turn(&bed, dialect).await;
            let request = test_client.next_request("some-model", false);
            let Some((path, body, member)) = count_request(dialect, &request) else {
                continue;
            };
            let case = format!("{dialect} over {row}");
            let before = bed.gateway.statistics().await;
            let requests_before = bed.simulators[0].received().await.len();
            let mut headers = vec![("content-type", "application/json")];
            headers.extend(&request.headers);
            let sent = &bed.gateway.client;
            let answer = sent.send(Method::POST, &path, &headers, body.to_string()).await;
            mismatches.check_equal(&case, answer.status, 200);
            let tokens = answer.json()[member].as_u64().unwrap_or_default();
            mismatches.check(tokens > 5, format!("{case}: {}", answer.text()));
            let estimated = row == "deepseek-v4";
            let losses = answer.header("x-throughline-loss");
            let reported = losses.contains("setting_adapted=count_tokens;reason=estimated");
            mismatches.check(reported == estimated, format!("{case}: {losses}"));
            let after = bed.simulators[0].received().await;
            mismatches.check_equal(&case, after.len(), requests_before + usize::from(!estimated));
            if !estimated {
                let path = after.last().map(|seen| seen.path.as_str()).unwrap_or_default();
                let counts = path.contains("ount") || path.ends_with("input_tokens");
                mismatches.check(counts, format!("{case}: {path}"));
            }
            mismatches.check_equal(&case, bed.gateway.statistics().await, before);
            let turn = bed.gateway.turns().await.swap_remove(0);
            mismatches.check_equal(&case, text(&turn["end"]), "completed");
            mismatches.check_equal(&case, text(&turn["client_dialect"]), dialect);
            let in_turn = list(&turn["losses"]).any(|loss| loss["setting"] == "count_tokens");
            mismatches.check_equal(&case, in_turn, estimated);
        }
        bed.expect_no_refusals().await;
    }
    mismatches.assert_none();
}

/// Some servers compress although they were asked not to.
#[tokio::test]
async fn compressed_count_and_model_list_are_read() {
    let packed = |text: &str| {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
        encoder.write_all(text.as_bytes()).expect("memory");
        let body = encoder.finish().expect("memory");
        ok_reply("application/json", "content-encoding: gzip\r\n", body)
    };
    let upstream = RawUpstream::start().await;
    let config = format!(
        "[[backend]]\nname = \"a\"\ndialect = \"gemini\"\nbase_url = \"{}\"\n",
        upstream.url
    );
    let gateway = Gateway::start(BINARY, &config).await;
    let body = json!({"model": "g", "messages": [{"role": "user", "content": "hi"}]});
    let counted = gateway.client.post("/v1/messages/count_tokens", &[], &body);
    let (answer, ()) = tokio::join!(counted, async {
        let count = packed(r#"{"totalTokens":4711}"#);
        upstream.next().await.answer(&count).await;
    });
    assert_eq!(answer.json()["input_tokens"], 4711, "{}", answer.text());
    assert_eq!(answer.header("x-throughline-loss"), "");

    let headers = [("anthropic-version", "2023-06-01")];
    let listed = gateway.client.send(Method::GET, "/v1/models", &headers, "");
    let (answer, ()) = tokio::join!(listed, async {
        let list = packed(r#"{"models":[{"name":"models/gemini-9"}]}"#);
        upstream.next().await.answer(&list).await;
    });
    assert_eq!(answer.json()["data"][0]["id"], "gemini-9", "{}", answer.text());
}

#[tokio::test]
async fn plan_reports_the_fates_for_every_pair_and_changes_no_state() {
    let mut mismatches = Mismatches::default();
    for row in ROWS {
        let other = if row == "anthropic, budget" { "deepseek-v4" } else { "anthropic, budget" };
        let bed = TestBed::over(&[row, other]).await;
        for dialect in CLIENTS {
            if [row, other].map(|row| upstream(row).dialect).contains(&dialect) {
                continue;
            }
            let test_client = client_after_one_turn(&bed, dialect).await;
            let request = test_client.next_request("some-model", false);
            let before = bed.gateway.statistics().await;
            let turns = bed.gateway.turns().await.len();
            let requests_before: Vec<usize> = received_counts(&bed).await;
            for (backend, row_of) in [("a", row), ("b", other)] {
                let case = format!("{dialect} over {row_of}, made by {row}");
                let path = format!("/v1/plan?dialect={dialect}&backend={backend}&model=some-model");
                // With the key of the same caller, because other callers get none of its thinking.
                let sent = &bed.gateway.client;
                let plan = sent.post(&path, &request.headers, &request.body).await;
                mismatches.check_equal(&case, plan.status, 200);
                let plan = plan.json();
                mismatches.check_equal(&case, text(&plan["lane"]), "across");
                mismatches.check_equal(&case, text(&plan["backend"]), backend);
                mismatches.check_equal(&case, text(&plan["model"]), upstream(row_of).model);
                let fate = match (backend, row, dialect) {
                    ("b", ..) => Some("left_out origin"),
                    // The client drops thoughts, and their own maker does not read them.
                    (_, "gemini 3", "openai_chat") => None,
                    (_, "gemini 3", _) => Some("left_out policy"),
                    (_, _, "openai_chat") => Some("restored"),
                    _ => Some("sent"),
                };
                mismatches.check_equal(&case, block_fates(&plan), Vec::from_iter(fate));
                let lost = list(&plan["losses"]).any(|loss| loss["kind"] == "thinking_omitted");
                mismatches.check(lost == (backend == "b"), format!("{case}: {plan}"));
                if fate.is_none() {
                    continue;
                }
                mismatches.check_equal(&case, text(&plan["blocks"][0]["origin"]["backend"]), "a");
                let path = text(&plan["blocks"][0]["path"]);
                let member = match dialect {
                    "anthropic" => "messages.1.content.0",
                    "openai_chat" => "messages.1",
                    "openai_responses" => "input.1",
                    _ => "contents.1.parts.0",
                };
                mismatches.check_equal(&case, path, member);
                for side in ["asked", "sent"] {
                    let amount = &plan["thinking"][side]["amount"];
                    mismatches.check(!amount.is_null(), format!("{case}: {plan}"));
                }
            }
            mismatches.check_equal(dialect, bed.gateway.statistics().await, before);
            mismatches.check_equal(dialect, bed.gateway.turns().await.len(), turns);
            mismatches.check_equal(dialect, received_counts(&bed).await, requests_before);
        }
        bed.expect_no_refusals().await;
    }
    mismatches.assert_none();
}

async fn received_counts(bed: &TestBed) -> Vec<usize> {
    let mut counts = Vec::new();
    for simulator in &bed.simulators {
        counts.push(simulator.received().await.len());
    }
    counts
}

#[tokio::test]
async fn turn_reports_dialects_lane_tokens_and_times() {
    let mut mismatches = Mismatches::default();
    for row in ROWS {
        let bed = TestBed::over(&[row]).await;
        for dialect in foreign_clients(row) {
            for stream in [true, false] {
                let case = format!("{dialect} over {row}, {stream}");
                let mut test_client = new_client(dialect);
                test_client.push_user("ponder this");
                let request = test_client.next_request("some-model", stream);
                let answer = send(&request, &bed.gateway.client).await.expect_ok();
                let turn = bed.gateway.turns().await.swap_remove(0);
                let id = answer.header("x-throughline-turn");
                for (member, reported) in [
                    ("id", id),
                    ("client_dialect", dialect),
                    ("upstream_dialect", upstream(row).dialect),
                    ("lane", "across"),
                    ("model", "some-model"),
                    ("upstream_model", upstream(row).model),
                    ("backend", "a"),
                    ("end", "completed"),
                ] {
                    mismatches.check_equal(
                        &format!("{case}: {member}"),
                        text(&turn[member]),
                        reported,
                    );
                }
                mismatches.check_equal(&case, turn["stream"].as_bool(), Some(stream));
                mismatches.check_equal(&case, turn["status"].as_u64(), Some(200));
                for count in ["input", "output"] {
                    let some = turn["usage"][count].as_u64() > Some(0);
                    mismatches.check(some, format!("{case}: {}", turn["usage"]));
                }
                // Some dialects also report how many output tokens were thinking.
                if row != "anthropic, budget" {
                    let thought = turn["usage"]["thinking"].as_u64();
                    let part = thought > Some(0) && thought <= turn["usage"]["output"].as_u64();
                    mismatches.check(part, format!("{case}: {}", turn["usage"]));
                }
                for time in ["first_byte", "first_thinking", "first_text", "total"] {
                    let known = turn["ms"][time].is_u64();
                    mismatches.check(known, format!("{case}: {time} {}", turn["ms"]));
                }
            }
        }
        bed.expect_no_refusals().await;
    }
    mismatches.assert_none();
}

/// Requests with system messages before and between, and turns that the client keeps in several
/// pieces: on either lane a path in the report is a path in the client's request.
#[tokio::test]
async fn report_paths_match_the_clients_request() {
    let chat = json!({"model": "m", "messages": [
        {"role": "system", "content": "be short"},
        {"role": "developer", "content": "be kind"},
        {"role": "user", "content": "hi"},
        {"role": "assistant", "content": "one", "reasoning_content": "first"},
        {"role": "system", "content": "go on"},
        {"role": "user", "content": "more"},
        {"role": "assistant", "content": "two"},
        {"role": "assistant", "content": "three", "reasoning_content": "second"},
        {"role": "user", "content": "more"},
    ]});
    let responses = json!({"model": "m", "store": false, "input": [
        {"role": "developer", "content": "be short"},
        {"role": "user", "content": "hi"},
        {"type": "reasoning", "id": "rs_1", "summary": [{"type": "summary_text", "text": "first"}]},
        {"role": "assistant", "content": "one"},
        {"type": "reasoning", "id": "rs_2", "summary": [{"type": "summary_text", "text": "then"}]},
        {"type": "function_call", "call_id": "c1", "name": "f", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c1", "output": "7"},
        {"type": "reasoning", "id": "rs_3", "summary": [{"type": "summary_text", "text": "last"}]},
        {"role": "assistant", "content": "two"},
        {"role": "user", "content": "more"},
    ]});
    let gemini = json!({"systemInstruction": {"parts": [{"text": "be short"}]}, "contents": [
        {"role": "user", "parts": [{"text": "hi"}]},
        {"role": "model", "parts": [{"text": "first", "thought": true}]},
        {"role": "model", "parts": [{"text": "one"}]},
        {"role": "user", "parts": [{"text": "more"}]},
        {"role": "model", "parts": [{"text": "two"}, {"text": "second", "thought": true}, {"text": "three"}]},
        {"role": "user", "parts": [{"text": "more"}]},
    ]});
    let anthropic = json!({"model": "m", "max_tokens": 99, "system": "be short", "messages": [
        {"role": "user", "content": "hi"},
        {"role": "assistant", "content": [{"type": "text", "text": "one"}]},
        {"role": "assistant", "content": [{"type": "text", "text": "two"}, {"type": "thinking", "thinking": "first", "signature": "x"}, {"type": "text", "text": "three"}]},
        {"role": "user", "content": "more"},
    ]});
    let bed = TestBed::over(&["anthropic, budget", "gemini 3", "openai_responses"]).await;
    for (dialect, body, places) in [
        ("openai_chat", chat, &["messages.3", "messages.7"][..]),
        ("openai_responses", responses, &["input.2", "input.4", "input.7"]),
        ("gemini", gemini, &["contents.1.parts.0", "contents.4.parts.1"]),
        ("anthropic", anthropic, &["messages.2.content.1"]),
    ] {
        for backend in ["a", "b", "c"] {
            let path = format!("/v1/plan?dialect={dialect}&backend={backend}&model=m");
            let client = &bed.gateway.client;
            let plan = client.post(&path, &[], &body).await.expect_ok().json();
            let found: Vec<&str> =
                list(&plan["blocks"]).map(|block| text(&block["path"])).collect();
            assert_eq!(found, places, "{dialect} over {backend}: {plan}");
        }
    }
}

/// A restored block is in no request of the client, so its path is that of its message.
#[tokio::test]
async fn report_path_of_a_restored_block_names_its_message() {
    let bed = TestBed::over(&["anthropic, budget"]).await;
    let mut test_client = new_client("openai_chat");
    test_client.push_user("ponder this");
    bed.send(test_client.as_mut()).await;
    test_client.push_user("ponder that");
    let request = test_client.next_request("some-model", false);
    let path = "/v1/plan?dialect=openai_chat&backend=a";
    let client = &bed.gateway.client;
    let plan = client.post(path, &request.headers, &request.body).await.expect_ok();
    let plan = plan.json();
    assert_eq!(block_fates(&plan), ["restored"], "{plan}");
    assert_eq!(plan["blocks"][0]["path"], "messages.1", "{plan}");
}

/// Many servers of a dialect have no path for counts. An unknown model is another error.
#[tokio::test]
async fn server_without_a_counter_gives_an_estimate_in_every_dialect() {
    let hello = json!([{"role": "user", "content": "Hello, how many words are this?"}]);
    let parts = json!([{"role": "user", "parts": [{"text": "Hello, how many words are this?"}]}]);
    let requests = [
        ("/v1/messages/count_tokens", json!({"model": "m-1", "messages": hello}), "input_tokens"),
        ("/v1/responses/input_tokens", json!({"model": "m-1", "input": hello}), "input_tokens"),
        ("/v1beta/models/m-1:countTokens", json!({"contents": parts}), "totalTokens"),
    ];
    for dialect in ["anthropic", "openai_responses", "gemini"] {
        let provider = RawUpstream::start().await;
        let config = format!(
            "[[backend]]\nname = \"a\"\ndialect = \"{dialect}\"\nbase_url = \"{}\"\n",
            provider.url
        );
        let gateway = Gateway::start(BINARY, &config).await;
        for (path, body, member) in &requests {
            for (error, status) in [
                ("{\"error\":{\"code\":404,\"message\":\"File Not Found\"}}", 200),
                ("{\"error\":{\"code\":404,\"message\":\"model: m-1\"}}", 404),
            ] {
                let refusal = format!(
                    "HTTP/1.1 404 Not Found\r\ncontent-type: application/json\r\n\
                     connection: close\r\ncontent-length: {}\r\n\r\n{error}",
                    error.len()
                );
                let (answer, ()) = tokio::join!(gateway.client.post(path, &[], body), async {
                    provider.next().await.answer(refusal.as_bytes()).await;
                });
                let case = format!("{path} over {dialect}: {}", answer.text());
                assert_eq!(answer.status, status, "{case}");
                if status == 200 {
                    assert!(answer.json()[member].as_u64() > Some(3), "{case}");
                    let loss = answer.header("x-throughline-loss");
                    assert!(loss.contains("count_tokens;reason=estimated"), "{case}: {loss}");
                }
            }
        }
    }
}
