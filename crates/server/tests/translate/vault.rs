//! The vault: reasoning that clients drop is restored, and it is encrypted on disk.

use http::Method;
use serde_json::{Value, json};
use sqlx::sqlite::SqliteConnectOptions;
use sqlx::{ConnectOptions, Connection};
use throughline_testkit::{block_fates, wait_until};

use crate::chat::Chat;
use crate::support::{BedOptions, Mismatches, TestBed, files, new_client, thinking_in};
use crate::test_client::{ClientView, TestClient, list, send, send_turn, text};

/// Upstreams that require reasoning which a plain chat client drops.
const UPSTREAMS: [&str; 4] =
    ["anthropic, budget", "openai_responses", "gemini 3", "anthropic, bound"];

/// Returns a chat client inside a tool loop.
pub(crate) async fn client_in_tool_loop(bed: &TestBed) -> (Box<dyn TestClient>, ClientView) {
    let mut test_client = new_client("openai_chat");
    test_client.push_user("use one tool");
    let (view, _) = bed.send(test_client.as_mut()).await;
    test_client.push_results(&view.calls, "row green");
    (test_client, view)
}

#[tokio::test]
async fn dropped_reasoning_is_restored_after_a_restart() {
    let mut mismatches = Mismatches::default();
    for row in UPSTREAMS {
        let mut bed = TestBed::over(&[row]).await;
        let (mut test_client, _) = client_in_tool_loop(&bed).await;
        bed.stop().await;
        bed.gateway.restart().await;
        let (view, _) = bed.send(test_client.as_mut()).await;
        mismatches.check_equal(row, view.text.trim(), "Blue, then green.");
        mismatches.check_equal(row, thinking_in(&bed.last_received(0).await.json()), 1);
        // A signature that is restored on a call is not a block, and thoughts do not go back there.
        let fates = if row == "gemini 3" { vec![] } else { vec!["restored"] };
        mismatches.check_equal(row, block_fates(&bed.gateway.turns().await[0]), fates);
        // The plain answer is found by its text, the call was found by its id.
        test_client.push_user("ponder this");
        bed.send(test_client.as_mut()).await;
        mismatches.check_equal(row, thinking_in(&bed.last_received(0).await.json()), 2);
        let restored = bed.gateway.statistics().await["restored"].as_u64();
        let blocks = if row == "gemini 3" { 0 } else { 3 };
        mismatches.check_equal(row, restored, Some(blocks));
        bed.expect_no_refusals().await;
    }
    mismatches.assert_none();
}

/// In a long tool loop the model may have thought at its beginning only.
#[tokio::test]
async fn first_thinking_of_a_long_tool_loop_is_restored() {
    let bed = TestBed::over(&["deepseek-v4"]).await;
    let (client, model) = (&bed.gateway.client, "deepseek-v4");
    let mut test_client = Chat::new(false);
    test_client.set_thinking(true);
    test_client.offer_tool();
    test_client.push_user("use one tool");
    let (view, answer) = send_turn(&mut test_client, client, model, false).await;
    // The request can pass, unless something must go back.
    assert_eq!(bed.gateway.turn_of(&answer).await["lane"], "through");
    test_client.push_results(&view.calls, "row blue");
    for at in 0..80 {
        let id = format!("call_without_thinking_{at}");
        let call = json!({"id": id, "type": "function",
            "function": {"name": "lookup", "arguments": "{\"key\":\"9\"}"}});
        let messages = &mut test_client.history().messages;
        messages.push(json!({"role": "assistant", "content": null, "tool_calls": [call]}));
        messages.push(json!({"role": "tool", "tool_call_id": id, "content": "row green"}));
    }
    send_turn(&mut test_client, client, model, false).await;
    let sent = bed.last_received(0).await.body;
    assert!(sent.contains("I need a row."), "{sent}");
    bed.expect_no_refusals().await;
}

/// Covers: X-27
#[tokio::test]
async fn turn_survives_a_kill_right_after_it_is_stored() {
    let scenario = r#"
[[step]]
when = { contains = "row green" }
say = [{ text = "Blue, then green." }]
[[step]]
when = { contains = "one tool" }
say = [{ thinking = "I need a row." }, { tool = { name = "lookup", input = { key = "7" } } }]
"#;
    let mut bed = TestBed::build(&BedOptions {
        upstreams: &["anthropic, budget"],
        scenario,
        ..BedOptions::default()
    })
    .await;
    let mut stored = stored_turns(&bed).await;
    for round in 0..3 {
        let mut test_client = new_client("openai_chat");
        test_client.push_user(&format!("use one tool, round {round}"));
        let sent = &bed.gateway.client;
        let (view, _) = send_turn(test_client.as_mut(), sent, "some-model", false).await;
        wait_until("the turn is in the store", async || stored_turns(&bed).await > stored).await;
        bed.gateway.kill().await;
        bed.gateway.restart().await;
        test_client.push_results(&view.calls, "row green");
        let (view, _) = bed.send(test_client.as_mut()).await;
        assert_eq!(view.text.trim(), "Blue, then green.");
        assert_eq!(thinking_in(&bed.last_received(0).await.json()), 1, "round {round}");
        stored = stored_turns(&bed).await;
    }
    bed.expect_no_refusals().await;
}

/// Counts the turns that another process finds in the vault's file.
async fn stored_turns(bed: &TestBed) -> i64 {
    let file = bed.gateway.folder().join("data/memory.db");
    let connection = SqliteConnectOptions::new().filename(file).read_only(true).connect().await;
    let mut connection = connection.expect("the file of the vault");
    let count = sqlx::query_scalar("SELECT records FROM vault_total");
    let count = count.fetch_one(&mut connection).await.expect("a count");
    connection.close().await.expect("a close");
    count
}

/// Ids and texts are not secret, so they alone must not restore the thinking of another caller.
#[tokio::test]
async fn other_caller_gets_nothing_restored() {
    for row in UPSTREAMS {
        let bed = TestBed::over(&[row]).await;
        let (test_client, _) = client_in_tool_loop(&bed).await;
        let request = test_client.next_request("some-model", false);
        let client = &bed.gateway.client;
        for (key, blocks) in [("Bearer another", 0), ("Bearer key", 1), ("bearer key", 1)] {
            let headers = [("content-type", "application/json"), ("authorization", key)];
            let body = request.body.to_string();
            let answer = client.send(Method::POST, &request.path, &headers, body).await;
            answer.expect_ok();
            let sent = bed.last_received(0).await.json();
            assert_eq!(thinking_in(&sent), blocks, "{row} with {key}");
        }
    }
}

/// A turn is restored once, however often a request repeats it.
#[tokio::test]
async fn repeated_turn_is_restored_only_once() {
    let bed = TestBed::over(&["anthropic, adaptive"]).await;
    let (test_client, _) = client_in_tool_loop(&bed).await;
    let mut request = test_client.next_request("some-model", false);
    let messages = request.body["messages"].as_array_mut().expect("messages");
    let (call, result) = (messages[1].clone(), messages[2].clone());
    for _ in 0..20 {
        messages.extend([call.clone(), result.clone()]);
    }
    let plan = "/v1/plan?dialect=openai_chat&backend=a";
    let client = &bed.gateway.client;
    let reported = client.post(plan, &request.headers, &request.body).await.expect_ok();
    assert_eq!(block_fates(&reported.json()), ["restored"]);
}

#[tokio::test]
async fn vault_without_its_keyring_restores_nothing_and_reports_it_as_sealed() {
    let mut mismatches = Mismatches::default();
    for row in UPSTREAMS {
        let mut bed = TestBed::over(&[row]).await;
        let (mut test_client, _) = client_in_tool_loop(&bed).await;
        bed.stop().await;
        let keyring = bed.gateway.folder().join("data/keyring");
        std::fs::remove_file(keyring).expect("a keyring");
        bed.gateway.restart_with(&["--new-keyring"]).await;
        let (view, answer) = bed.send(test_client.as_mut()).await;
        mismatches.check_equal(row, view.text.trim(), "Blue, then green.");
        mismatches.check_equal(row, thinking_in(&bed.last_received(0).await.json()), 0);
        let turn = bed.gateway.turns().await.swap_remove(0);
        mismatches.check_equal(row, block_fates(&turn), ["left_out sealed"]);
        let loss = answer.header("x-throughline-loss").to_owned();
        mismatches.check_equal(row, loss.contains("thinking_omitted=1;reason=sealed"), true);
        let restored = bed.gateway.statistics().await["restored"].as_u64();
        mismatches.check_equal(row, restored, Some(0));
        bed.expect_no_refusals().await;
    }
    mismatches.assert_none();
}

/// The client decides what the history contains, and no signature covers a changed call.
#[tokio::test]
async fn call_changed_by_the_client_stays_changed() {
    for dialect in ["openai_chat", "anthropic", "openai_responses"] {
        let bed = TestBed::over(&["gemini 3"]).await;
        let mut test_client = new_client(dialect);
        test_client.push_user("use one tool");
        let (view, _) = bed.send(test_client.as_mut()).await;
        test_client.push_results(&view.calls, "row green");
        for (spelling, key, signed) in [
            // Other formatting is not a change.
            ("{ \"key\" : \"7\" }", "7", 1),
            ("{\"key\":\"eight\"}", "eight", 0),
        ] {
            let mut request = test_client.next_request("some-model", false);
            let body = match dialect {
                "anthropic" => request.body.to_string().replace("{\"key\":\"7\"}", spelling),
                _ => {
                    let spelling = Value::from(spelling).to_string();
                    let written = Value::from("{\"key\":\"7\"}").to_string();
                    request.body.to_string().replace(&written, &spelling)
                }
            };
            assert!(body.contains(key), "{body}");
            request.body = serde_json::from_str(&body).expect("JSON");
            send(&request, &bed.gateway.client).await.expect_ok();
            let seen = bed.last_received(0).await.json();
            let call = &seen["contents"][1]["parts"];
            let call = list(call).find(|part| part.get("functionCall").is_some());
            let call = call.expect("a call");
            assert_eq!(call["functionCall"]["args"]["key"], key, "{dialect}: {seen}");
            assert_eq!(thinking_in(&seen), signed, "{dialect}: {seen}");
        }
        bed.expect_no_refusals().await;
    }
}

/// Many answers are `Done.`, and each has its own thinking.
#[tokio::test]
async fn equal_answers_get_their_own_thinking_back() {
    const SCENARIO: &str = r#"
[[step]]
when = { contains = "one" }
say = [{ thinking = "Thought of the first." }, { text = "Done." }]
[[step]]
when = { contains = "two" }
say = [{ thinking = "Thought of the second." }, { text = "Done." }]
[[step]]
when = { contains = "three" }
say = [{ thinking = "Thought of the third." }, { text = "Done." }]
"#;
    for row in ["anthropic, budget", "openai_responses"] {
        for unknown in ["try", "drop"] {
            // One client drops reasoning, and one returns its text.
            for returns in [false, true] {
                let bed = TestBed::build(&BedOptions {
                    upstreams: &[row],
                    scenario: SCENARIO,
                    settings: &format!("[thinking]\nunknown = \"{unknown}\"\n"),
                    ..BedOptions::default()
                })
                .await;
                let mut test_client = Chat::new(returns);
                test_client.set_thinking(true);
                for words in ["one", "two", "three"] {
                    test_client.push_user(words);
                    let (view, _) = bed.send(&mut test_client).await;
                    assert_eq!(view.text, "Done.");
                }
                let seen = bed.last_received(0).await;
                let found: Vec<usize> = ["of the first", "of the second"]
                    .iter()
                    .map(|words| seen.body.matches(words).count())
                    .collect();
                let case = format!("{row}, {unknown}, {returns}: {}", seen.body);
                assert_eq!(found, [1, 1], "{case}");
                let order = seen.body.find("of the first") < seen.body.find("of the second");
                assert!(order, "{case}");
                bed.expect_no_refusals().await;
            }
        }
    }
}

/// Covers: X-24
#[tokio::test]
async fn thinking_is_not_readable_on_disk_or_in_logs() {
    const UNIQUE_PHRASE: &str = "the heron counts nine silver coins";
    let scenario = format!(
        "[[step]]\nsay = [{{ thinking = \"{UNIQUE_PHRASE}\" }}, {{ text = \"Some {UNIQUE_PHRASE} text.\" }}, \
         {{ tool = {{ name = \"lookup\", input = {{ key = \"{UNIQUE_PHRASE}\" }} }} }}]\n"
    );
    for (dialect, row) in [
        ("openai_chat", "anthropic, budget"),
        ("anthropic", "openai_responses"),
        ("openai_responses", "deepseek-v4"),
        ("gemini", "think-tags"),
    ] {
        let mut bed = TestBed::build(&BedOptions {
            upstreams: &[row],
            scenario: &scenario,
            ..BedOptions::default()
        })
        .await;
        let mut test_client = new_client(dialect);
        test_client.push_user("go on");
        let (view, _) = bed.send(test_client.as_mut()).await;
        assert_eq!(view.reasoning, UNIQUE_PHRASE, "{dialect} over {row}");
        test_client.push_results(&view.calls, UNIQUE_PHRASE);
        bed.send(test_client.as_mut()).await;
        let log = bed.gateway.log();
        assert!(log.contains("Registered new thinking block"), "{log}");
        assert!(!log.contains("heron"), "{dialect} over {row}: {log}");
        for written in ["while it runs", "when it has ended"] {
            let data = files(&bed.gateway.folder().join("data"));
            assert!(data.len() > 2, "{data:?}");
            for (path, bytes) in data {
                let found = bytes.windows(5).any(|window| window == b"heron");
                assert!(!found, "{path} {written}");
            }
            if written == "while it runs" {
                bed.stop().await;
            }
        }
        bed.expect_no_refusals().await;
    }
}

/// A reply with thinking, text, more thinking and a call.
const INTERLEAVED: &str = r#"
[[step]]
when = { contains = "interleave" }
say = [
  { thinking = "First." }, { text = "I look." }, { thinking = "Second." },
  { tool = { name = "lookup", input = { key = "7" } } },
]
[[step]]
when = { contains = "row green" }
say = [{ thinking = "That is all." }, { text = "Green." }]
"#;

/// Returns the parts of the last assistant turn that a backend received, with the thinking in them.
async fn last_assistant_turn(bed: &TestBed) -> Vec<String> {
    let body = bed.last_received(0).await.json();
    let turn = list(&body["messages"]).find(|message| message["role"] == "assistant");
    list(&turn.expect("a turn")["content"])
        .map(|block| match block["type"].as_str() {
            Some("thinking") => text(&block["thinking"]).to_owned(),
            Some(kind) => kind.to_owned(),
            None => String::new(),
        })
        .collect()
}

/// Covers: S0-65
#[tokio::test]
async fn dropped_blocks_are_restored_at_their_position() {
    let whole = ["First.", "text", "Second.", "tool_use"];
    let mut mismatches = Mismatches::default();
    for (dialect, gone, changes, fates_told) in [
        // One of two blocks is still there, and is sent unchanged.
        ("openai_responses", "First.", false, ["restored", "sent"]),
        ("openai_responses", "Second.", false, ["sent", "restored"]),
        ("openai_responses", "First.", true, ["restored", "sent"]),
        ("openai_responses", "Second.", true, ["sent", "restored"]),
        ("openai_chat", "", false, ["restored", "restored"]),
        ("openai_chat", "", true, ["restored", "restored"]),
    ] {
        let bed = TestBed::build(&BedOptions {
            upstreams: &["anthropic, adaptive"],
            scenario: INTERLEAVED,
            ..BedOptions::default()
        })
        .await;
        let mut test_client = new_client(dialect);
        test_client.push_user("interleave");
        let (view, _) = bed.send(test_client.as_mut()).await;
        test_client.push_results(&view.calls, "row green");
        let mut request = test_client.next_request("some-model", false);
        if let Some(input) = request.body["input"].as_array_mut() {
            let before = input.len();
            input.retain(|item| {
                item["type"] != "reasoning" || !item["summary"].to_string().contains(gone)
            });
            assert_eq!(input.len() + 1, before, "{input:?}");
        }
        if changes {
            let body = request.body.to_string().replace("I look.", "I do look.");
            request.body = serde_json::from_str(&body).expect("JSON");
        }
        let answer = send(&request, &bed.gateway.client).await.expect_ok();
        let case = format!("{dialect} without {gone}, changed: {changes}");
        mismatches.check_equal(&case, last_assistant_turn(&bed).await, whole);
        let turn = bed.gateway.turns().await.swap_remove(0);
        mismatches.check_equal(&case, block_fates(&turn), fates_told);
        let losses = answer.header("x-throughline-loss");
        let reported = losses.contains("thinking_omitted");
        mismatches.check(!reported, format!("{case}: {losses}"));
        bed.expect_no_refusals().await;
    }
    mismatches.assert_none();
}

/// Thinking belongs to the calls that followed it. If the client sends other calls, it is left out,
/// and the loss is reported.
#[tokio::test]
async fn thinking_of_other_calls_is_reported_as_lost() {
    let bed = TestBed::build(&BedOptions {
        upstreams: &["anthropic, adaptive"],
        scenario: INTERLEAVED,
        ..BedOptions::default()
    })
    .await;
    let mut test_client = new_client("openai_chat");
    test_client.push_user("interleave");
    let (view, _) = bed.send(test_client.as_mut()).await;
    test_client.push_results(&view.calls, "row green");
    let mut request = test_client.next_request("some-model", false);
    let body = request.body.to_string().replace("\\\"7\\\"", "\\\"8\\\"");
    assert_ne!(body, request.body.to_string());
    request.body = serde_json::from_str(&body).expect("JSON");
    let answer = send(&request, &bed.gateway.client).await.expect_ok();
    assert_eq!(last_assistant_turn(&bed).await, ["text", "tool_use"]);
    let losses = answer.header("x-throughline-loss").to_owned();
    assert!(losses.contains("thinking_omitted=2;reason=shape"), "{losses}");
    bed.expect_no_refusals().await;
}
