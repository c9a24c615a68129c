//! Token counts and finish reasons in each client dialect.

use serde_json::{Value, json};
use throughline_testkit::{Gateway, RawUpstream, ok_reply, sse_events};

use crate::support::{BINARY, CLIENTS, Mismatches, TestBed, foreign_clients, new_client, upstream};
use crate::test_client::send;

const ROWS: [&str; 4] = ["anthropic, adaptive", "gemini 3", "openai_responses", "vllm"];

/// The finish reasons.
const REASONS: [&str; 4] = ["done", "length", "call", "filtered"];

/// Returns a whole reply with this finish reason. Of 130 input tokens 30 came from a cache, of 50
/// output tokens 20 were thinking.
fn reply(dialect: &str, reason: &str) -> Value {
    let calls = reason == "call";
    match dialect {
        "anthropic" => {
            let stop = match reason {
                "done" => "end_turn",
                "length" => "max_tokens",
                "call" => "tool_use",
                _ => "refusal",
            };
            let call = json!({"type": "tool_use", "id": "toolu_01A2b3C4d5", "name": "lookup", "input": {"key": "7"}});
            let text = json!({"type": "text", "text": "Well."});
            json!({
                "id": "msg_1", "type": "message", "role": "assistant", "model": "m",
                "content": [if calls { call } else { text }],
                "stop_reason": stop, "stop_sequence": null,
                "usage": {"input_tokens": 100, "cache_read_input_tokens": 30, "cache_creation_input_tokens": 0,
                    "output_tokens": 50, "output_tokens_details": {"thinking_tokens": 20}},
            })
        }
        "gemini" => {
            let finish = match reason {
                "length" => "MAX_TOKENS",
                "filtered" => "SAFETY",
                _ => "STOP",
            };
            let part = match calls {
                true => {
                    json!({"functionCall": {"id": "a1b2c3d4", "name": "lookup", "args": {"key": "7"}}})
                }
                false => json!({"text": "Well."}),
            };
            json!({
                "candidates": [{"content": {"role": "model", "parts": [part]}, "finishReason": finish, "index": 0}],
                "usageMetadata": {"promptTokenCount": 130, "cachedContentTokenCount": 30, "candidatesTokenCount": 30,
                    "thoughtsTokenCount": 20, "totalTokenCount": 180},
                "modelVersion": "m", "responseId": "r",
            })
        }
        "openai_responses" => {
            let why = match reason {
                "length" => json!({"reason": "max_output_tokens"}),
                "filtered" => json!({"reason": "content_filter"}),
                _ => Value::Null,
            };
            let item = match calls {
                true => {
                    json!({"type": "function_call", "id": "fc_1", "call_id": "call_a1b2c3d4", "name": "lookup",
                    "arguments": "{\"key\":\"7\"}", "status": "completed"})
                }
                false => {
                    json!({"type": "message", "id": "msg_1", "role": "assistant", "status": "completed",
                    "content": [{"type": "output_text", "text": "Well.", "annotations": []}]})
                }
            };
            json!({
                "id": "resp_1", "object": "response", "created_at": 1, "model": "m", "output": [item],
                "status": if why.is_null() { "completed" } else { "incomplete" }, "incomplete_details": why, "error": null,
                "usage": {"input_tokens": 130, "input_tokens_details": {"cached_tokens": 30},
                    "output_tokens": 50, "output_tokens_details": {"reasoning_tokens": 20}, "total_tokens": 180},
            })
        }
        _ => {
            let finish = match reason {
                "done" => "stop",
                "length" => "length",
                "call" => "tool_calls",
                _ => "content_filter",
            };
            let message = match calls {
                true => json!({"role": "assistant", "content": null, "tool_calls": [
                    {"id": "call_a1b2c3d4", "type": "function", "function": {"name": "lookup", "arguments": "{\"key\":\"7\"}"}}]}),
                false => json!({"role": "assistant", "content": "Well."}),
            };
            json!({
                "id": "c1", "object": "chat.completion", "created": 1, "model": "m",
                "choices": [{"index": 0, "message": message, "finish_reason": finish}],
                "usage": {"prompt_tokens": 130, "prompt_tokens_details": {"cached_tokens": 30}, "completion_tokens": 50,
                    "completion_tokens_details": {"reasoning_tokens": 20}, "total_tokens": 180},
            })
        }
    }
}

/// Returns the expected members of the client's reply: JSON pointers and values.
fn expected(dialect: &str, reason: &str) -> Vec<(&'static str, Value)> {
    let at = REASONS.iter().position(|known| *known == reason);
    let word = |words: [&'static str; 4]| json!(words[at.unwrap_or_default()]);
    match dialect {
        "anthropic" => vec![
            ("/usage/input_tokens", json!(100)),
            ("/usage/cache_read_input_tokens", json!(30)),
            ("/usage/output_tokens", json!(50)),
            ("/stop_reason", word(["end_turn", "max_tokens", "tool_use", "refusal"])),
        ],
        "gemini" => vec![
            ("/usageMetadata/promptTokenCount", json!(130)),
            ("/usageMetadata/cachedContentTokenCount", json!(30)),
            ("/usageMetadata/candidatesTokenCount", json!(30)),
            ("/usageMetadata/thoughtsTokenCount", json!(20)),
            ("/usageMetadata/totalTokenCount", json!(180)),
            ("/candidates/0/finishReason", word(["STOP", "MAX_TOKENS", "STOP", "SAFETY"])),
        ],
        "openai_responses" => vec![
            ("/usage/input_tokens", json!(130)),
            ("/usage/input_tokens_details/cached_tokens", json!(30)),
            ("/usage/output_tokens", json!(50)),
            ("/usage/output_tokens_details/reasoning_tokens", json!(20)),
            ("/usage/total_tokens", json!(180)),
            ("/status", word(["completed", "incomplete", "completed", "incomplete"])),
            (
                "/incomplete_details",
                match reason {
                    "length" => json!({"reason": "max_output_tokens"}),
                    "filtered" => json!({"reason": "content_filter"}),
                    _ => Value::Null,
                },
            ),
        ],
        _ => vec![
            ("/usage/prompt_tokens", json!(130)),
            ("/usage/prompt_tokens_details/cached_tokens", json!(30)),
            ("/usage/completion_tokens", json!(50)),
            ("/usage/completion_tokens_details/reasoning_tokens", json!(20)),
            ("/usage/total_tokens", json!(180)),
            ("/choices/0/finish_reason", word(["stop", "length", "tool_calls", "content_filter"])),
        ],
    }
}

/// Covers: S0-57, C-22, C-23
#[tokio::test]
async fn tokens_and_finish_reason_match_the_clients_dialect() {
    let mut mismatches = Mismatches::default();
    for row in ROWS {
        let of = upstream(row).dialect;
        for reason in REASONS {
            let body = reply(of, reason).to_string();
            let url = RawUpstream::always_answering(ok_reply("application/json", "", body)).await;
            let gateway = Gateway::start(BINARY, &upstream(row).backend("a", &url)).await;
            for dialect in CLIENTS {
                if dialect == of {
                    continue;
                }
                let mut test_client = new_client(dialect);
                test_client.push_user("hello");
                let request = test_client.next_request("some-model", false);
                let answer = send(&request, &gateway.client).await.expect_ok().json();
                for (pointer, value) in expected(dialect, reason) {
                    let case = format!("{dialect} over {row}, {reason}: {pointer}");
                    let found = answer.pointer(pointer).cloned().unwrap_or_default();
                    mismatches.check_equal(&case, found, value);
                }
                let case = format!("{dialect} over {row}, {reason}: the turn");
                let reported = gateway.turns().await[0]["usage"].clone();
                let counts = ["input", "cache_read", "output", "thinking"];
                let reported = counts.map(|count| reported[count].as_u64());
                mismatches.check_equal(&case, reported, [100, 30, 50, 20].map(Some));
            }
        }
    }
    mismatches.assert_none();
}

/// A stream counts as the whole reply does, and a client that requests no counts gets none.
#[tokio::test]
async fn stream_has_the_same_counts_as_the_whole_reply() {
    let mut mismatches = Mismatches::default();
    for row in ROWS {
        let bed = TestBed::over(&[row]).await;
        for dialect in foreign_clients(row) {
            let case = format!("{dialect} over {row}");
            let mut test_client = new_client(dialect);
            test_client.push_user("ponder this");
            let whole = test_client.next_request("some-model", false);
            let whole = send(&whole, &bed.gateway.client).await.expect_ok().json();
            let mut streamed = test_client.next_request("some-model", true);
            if dialect == "openai_chat" {
                let silent = send(&streamed, &bed.gateway.client).await.expect_ok().text();
                mismatches.check(!silent.contains("prompt_tokens"), format!("{case}: {silent}"));
                streamed.body["stream_options"] = json!({"include_usage": true});
            }
            let streamed = send(&streamed, &bed.gateway.client).await.expect_ok().text();
            let mut counts = sse_events(&streamed).into_iter().map(|(_, event)| match dialect {
                "openai_responses" => event["response"]["usage"].clone(),
                "gemini" => event["usageMetadata"].clone(),
                _ => event["usage"].clone(),
            });
            let last = counts.rfind(|usage| !usage.is_null());
            let counted = match dialect {
                "gemini" => &whole["usageMetadata"],
                _ => &whole["usage"],
            };
            mismatches.check(!counted.is_null(), format!("{case}: {whole}"));
            mismatches.check_equal(&case, last.as_ref(), Some(counted));
        }
        bed.expect_no_refusals().await;
    }
    mismatches.assert_none();
}

/// Parts that only the provider's dialect has are reported, not dropped in silence.
#[tokio::test]
async fn untranslatable_parts_are_reported_as_lost() {
    let mut body = reply("anthropic", "done");
    let search =
        json!({"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {}});
    body["content"].as_array_mut().expect("content").insert(0, search);
    let url =
        RawUpstream::always_answering(ok_reply("application/json", "", body.to_string())).await;
    let gateway = Gateway::start(BINARY, &upstream(ROWS[0]).backend("a", &url)).await;
    for dialect in ["gemini", "openai_chat", "openai_responses"] {
        let mut test_client = new_client(dialect);
        test_client.push_user("hello");
        let answer = send(&test_client.next_request("some-model", false), &gateway.client).await;
        let reported = answer.expect_ok().header("x-throughline-loss").to_owned();
        let loss = "part_omitted=server_tool_use;reason=foreign_dialect";
        assert!(reported.contains(loss), "{dialect}: {reported}");
        let noted = gateway.turns().await[0]["losses"].to_string();
        assert!(noted.contains("server_tool_use"), "{dialect}: {noted}");
    }
}

/// Sources reach every client whose dialect supports them. For the others the loss is reported.
#[tokio::test]
async fn citations_are_translated_or_reported_as_lost() {
    let mut body = reply("anthropic", "done");
    let citation = json!({"type": "web_search_result_location", "url": "https://example.org/a", "title": "A",
        "encrypted_index": "Eo8B", "cited_text": "so"});
    let content = body["content"].as_array_mut().expect("content");
    let text = content.iter_mut().find(|block| block["type"] == "text");
    text.expect("text")["citations"] = json!([citation]);
    let url =
        RawUpstream::always_answering(ok_reply("application/json", "", body.to_string())).await;
    let gateway = Gateway::start(BINARY, &upstream(ROWS[0]).backend("a", &url)).await;
    let quote = "part_omitted=citations.quote;reason=no_word";
    for (dialect, loss) in [("gemini", quote), ("openai_chat", ""), ("openai_responses", quote)] {
        let mut test_client = new_client(dialect);
        test_client.push_user("hello");
        let answer = send(&test_client.next_request("some-model", false), &gateway.client).await;
        let answer = answer.expect_ok();
        assert!(answer.text().contains("https://example.org/a"), "{dialect}");
        let reported = answer.header("x-throughline-loss");
        assert!(reported.contains(loss), "{dialect}: {reported}");
        assert_eq!(reported.contains("citations"), !loss.is_empty(), "{dialect}");
    }
}

/// A model that declines in text declines in the client's dialect too.
#[tokio::test]
async fn refusal_text_stays_a_refusal() {
    let chat = json!({
        "id": "c", "object": "chat.completion", "created": 1, "model": "m",
        "choices": [{"index": 0, "message": {"role": "assistant", "content": null, "refusal": "I will not."}, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 1, "completion_tokens": 2, "total_tokens": 3},
    });
    let url =
        RawUpstream::always_answering(ok_reply("application/json", "", chat.to_string())).await;
    let gateway = Gateway::start(BINARY, &upstream("vllm").backend("a", &url)).await;
    for (dialect, pointer, end) in [
        ("openai_responses", "/output/0/content/0/refusal", "/status=completed"),
        ("anthropic", "/content/0/text", "/stop_reason=refusal"),
        ("gemini", "/candidates/0/content/parts/0/text", "/candidates/0/finishReason=SAFETY"),
        ("openai_chat", "/choices/0/message/refusal", "/choices/0/finish_reason=stop"),
    ] {
        let mut test_client = new_client(dialect);
        test_client.push_user("hello");
        let answer = send(&test_client.next_request("some-model", false), &gateway.client).await;
        let answer = answer.expect_ok().json();
        assert_eq!(answer.pointer(pointer), Some(&json!("I will not.")), "{answer}");
        let (pointer, word) = end.split_once('=').expect("a pointer and a value");
        assert_eq!(answer.pointer(pointer), Some(&json!(word)), "{answer}");
    }
}
