//! Counts of tokens, plans and the list of turns: each is told for every pair, and the first two leave
//! no trace.

use std::io::Write;

use flate2::Compression;
use flate2::write::GzEncoder;
use http::Method;
use serde_json::{Value, json};
use throughline_testkit::Gateway;

use crate::bare::{Upstream, whole};
use crate::speaker::{Ask, Speaker, list, send, text};
use crate::support::{BINARY, CLIENTS, House, Wrong, client, fates, upstream};

const ROWS: [&str; 4] = ["anthropic, budget", "gemini 3", "openai_responses", "deepseek-v4"];

/// A conversation with one turn behind it.
async fn begun(house: &House, dialect: &str) -> Box<dyn Speaker> {
    let mut speaker = client(dialect);
    speaker.user("ponder this");
    house.hear(speaker.as_mut()).await;
    speaker.user("ponder that");
    speaker
}

/// A request for a count, where the dialect has one, and where in the answer it stands.
fn counting(dialect: &str, ask: &Ask) -> Option<(String, Value, &'static str)> {
    let mut body = ask.body.clone();
    let members = body.as_object_mut().expect("an object");
    let (path, place) = match dialect {
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
    Some((path, body, place))
}

#[tokio::test]
async fn tokens_are_counted_for_every_pair_or_estimated() {
    let mut wrong = Wrong::default();
    for row in ROWS {
        let house = House::over(&[row]).await;
        for dialect in CLIENTS {
            if dialect == upstream(row).dialect {
                continue;
            }
            let speaker = begun(&house, dialect).await;
            let ask = speaker.ask("some-model", false);
            let Some((path, body, place)) = counting(dialect, &ask) else {
                continue;
            };
            let what = format!("{dialect} over {row}");
            let before = house.gateway.statistics().await;
            let asked = house.simulators[0].seen().await.len();
            let mut headers = vec![("content-type", "application/json")];
            headers.extend(&ask.headers);
            let sent = &house.gateway.client;
            let answer = sent.send(Method::POST, &path, &headers, body.to_string()).await;
            wrong.unless_equal(&what, answer.status, 200);
            let tokens = answer.json()[place].as_u64().unwrap_or_default();
            wrong.unless(tokens > 5, format!("{what}: {}", answer.text()));
            let estimated = row == "deepseek-v4";
            let losses = answer.header("x-throughline-loss");
            let told = losses.contains("setting_adapted=count_tokens;reason=estimated");
            wrong.unless(told == estimated, format!("{what}: {losses}"));
            let after = house.simulators[0].seen().await;
            wrong.unless_equal(&what, after.len(), asked + usize::from(!estimated));
            if !estimated {
                let path = after.last().map(|seen| seen.path.as_str()).unwrap_or_default();
                let counts = path.contains("ount") || path.ends_with("input_tokens");
                wrong.unless(counts, format!("{what}: {path}"));
            }
            wrong.unless_equal(&what, house.gateway.statistics().await, before);
            let turn = house.gateway.turns().await.swap_remove(0);
            wrong.unless_equal(&what, text(&turn["end"]), "completed");
            wrong.unless_equal(&what, text(&turn["client_dialect"]), dialect);
            let told = text(&turn["losses"][0]["kind"]).to_owned();
            wrong.unless(!estimated || !told.is_empty(), format!("{what}: {turn}"));
        }
        house.end_in_peace().await;
    }
    wrong.end();
}

/// Some servers compress what they were asked not to.
#[tokio::test]
async fn a_compressed_count_and_list_are_read() {
    let packed = |text: &str| {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
        encoder.write_all(text.as_bytes()).expect("memory");
        let body = encoder.finish().expect("memory");
        whole("application/json", "content-encoding: gzip\r\n", body)
    };
    let upstream = Upstream::start().await;
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
async fn a_plan_says_for_every_pair_what_would_go_and_changes_nothing() {
    let mut wrong = Wrong::default();
    for row in ROWS {
        let other = if row == "anthropic, budget" { "deepseek-v4" } else { "anthropic, budget" };
        let house = House::over(&[row, other]).await;
        for dialect in CLIENTS {
            if [row, other].map(|row| upstream(row).dialect).contains(&dialect) {
                continue;
            }
            let speaker = begun(&house, dialect).await;
            let ask = speaker.ask("some-model", false);
            let before = house.gateway.statistics().await;
            let turns = house.gateway.turns().await.len();
            let asked: Vec<usize> = seen(&house).await;
            for (backend, row_of) in [("a", row), ("b", other)] {
                let what = format!("{dialect} over {row_of}, made by {row}");
                let path = format!("/v1/plan?dialect={dialect}&backend={backend}&model=some-model");
                // Of the same caller: others get nothing of its thinking.
                let sent = &house.gateway.client;
                let plan = sent.post(&path, &ask.headers, &ask.body).await;
                wrong.unless_equal(&what, plan.status, 200);
                let plan = plan.json();
                wrong.unless_equal(&what, text(&plan["lane"]), "across");
                wrong.unless_equal(&what, text(&plan["backend"]), backend);
                wrong.unless_equal(&what, text(&plan["model"]), upstream(row_of).model);
                let fate = match (backend, row, dialect) {
                    ("b", ..) => "left_out origin",
                    (_, "gemini 3", _) => "left_out policy",
                    (_, _, "openai_chat") => "restored",
                    _ => "sent",
                };
                wrong.unless_equal(&what, fates(&plan), [fate]);
                let lost = list(&plan["losses"]).any(|loss| loss["kind"] == "thinking_omitted");
                wrong.unless(lost == (backend == "b"), format!("{what}: {plan}"));
                wrong.unless_equal(&what, text(&plan["blocks"][0]["origin"]["backend"]), "a");
                let path = text(&plan["blocks"][0]["path"]);
                let place = match dialect {
                    "anthropic" => "messages.1.content.0",
                    "openai_chat" => "messages.1",
                    "openai_responses" => "input.1",
                    _ => "contents.1.parts.0",
                };
                wrong.unless_equal(&what, path, place);
                for side in ["asked", "sent"] {
                    let amount = &plan["thinking"][side]["amount"];
                    wrong.unless(!amount.is_null(), format!("{what}: {plan}"));
                }
            }
            wrong.unless_equal(dialect, house.gateway.statistics().await, before);
            wrong.unless_equal(dialect, house.gateway.turns().await.len(), turns);
            wrong.unless_equal(dialect, seen(&house).await, asked);
        }
        house.end_in_peace().await;
    }
    wrong.end();
}

async fn seen(house: &House) -> Vec<usize> {
    let mut counts = Vec::new();
    for simulator in &house.simulators {
        counts.push(simulator.seen().await.len());
    }
    counts
}

#[tokio::test]
async fn a_turn_tells_both_dialects_its_lane_its_tokens_and_its_times() {
    let mut wrong = Wrong::default();
    for row in ROWS {
        let house = House::over(&[row]).await;
        for dialect in CLIENTS {
            if dialect == upstream(row).dialect {
                continue;
            }
            for stream in [true, false] {
                let what = format!("{dialect} over {row}, {stream}");
                let mut speaker = client(dialect);
                speaker.user("ponder this");
                let ask = speaker.ask("some-model", stream);
                let answer = send(&ask, &house.gateway.client).await.good();
                let turn = house.gateway.turns().await.swap_remove(0);
                let id = answer.header("x-throughline-turn");
                for (member, told) in [
                    ("id", id),
                    ("client_dialect", dialect),
                    ("upstream_dialect", upstream(row).dialect),
                    ("lane", "across"),
                    ("model", "some-model"),
                    ("upstream_model", upstream(row).model),
                    ("backend", "a"),
                    ("end", "completed"),
                ] {
                    wrong.unless_equal(&format!("{what}: {member}"), text(&turn[member]), told);
                }
                wrong.unless_equal(&what, turn["stream"].as_bool(), Some(stream));
                wrong.unless_equal(&what, turn["status"].as_u64(), Some(200));
                for count in ["input", "output"] {
                    let some = turn["usage"][count].as_u64() > Some(0);
                    wrong.unless(some, format!("{what}: {}", turn["usage"]));
                }
                // Some tell how much of the output was thought.
                if row != "anthropic, budget" {
                    let thought = turn["usage"]["thinking"].as_u64();
                    let part = thought > Some(0) && thought <= turn["usage"]["output"].as_u64();
                    wrong.unless(part, format!("{what}: {}", turn["usage"]));
                }
                for time in ["first_byte", "first_thinking", "first_text", "total"] {
                    let known = turn["ms"][time].is_u64();
                    wrong.unless(known, format!("{what}: {time} {}", turn["ms"]));
                }
            }
        }
        house.end_in_peace().await;
    }
    wrong.end();
}

/// Requests with words of the system before and between, and turns the client keeps in pieces: what a
/// report names is where the client finds it, on either lane.
#[tokio::test]
async fn a_report_counts_as_the_client_does() {
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
    let house = House::over(&["anthropic, budget", "gemini 3", "openai_responses"]).await;
    for (dialect, body, places) in [
        ("openai_chat", chat, &["messages.3", "messages.7"][..]),
        ("openai_responses", responses, &["input.2", "input.4", "input.7"]),
        ("gemini", gemini, &["contents.1.parts.0", "contents.4.parts.1"]),
        ("anthropic", anthropic, &["messages.2.content.1"]),
    ] {
        for backend in ["a", "b", "c"] {
            let path = format!("/v1/plan?dialect={dialect}&backend={backend}&model=m");
            let client = &house.gateway.client;
            let plan = client.post(&path, &[], &body).await.good().json();
            let found: Vec<&str> =
                list(&plan["blocks"]).map(|block| text(&block["path"])).collect();
            assert_eq!(found, places, "{dialect} over {backend}: {plan}");
        }
    }
}

/// What was brought back stands in no body; its message does.
#[tokio::test]
async fn a_report_names_the_message_of_what_was_brought_back() {
    let house = House::over(&["anthropic, budget"]).await;
    let mut speaker = client("openai_chat");
    speaker.user("ponder this");
    house.hear(speaker.as_mut()).await;
    speaker.user("ponder that");
    let ask = speaker.ask("some-model", false);
    let path = "/v1/plan?dialect=openai_chat&backend=a";
    let client = &house.gateway.client;
    let plan = client.post(path, &ask.headers, &ask.body).await.good();
    let plan = plan.json();
    assert_eq!(fates(&plan), ["restored"], "{plan}");
    assert_eq!(plan["blocks"][0]["path"], "messages.1", "{plan}");
}
