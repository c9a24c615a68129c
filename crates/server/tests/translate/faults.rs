//! Upstream failures in the client's dialect: after the first byte as one error after the received
//! part, before it as a status.

use serde_json::{Value, json};
use throughline_testkit::{Gateway, RawUpstream, block_fates};

use crate::stream_reading::{error_message, read_stream};
use crate::support::{
    BINARY, BedOptions, CLIENTS, Mismatches, TestBed, new_client, thinking_in, upstream,
};
use crate::test_client::{ClientRequest, send};

/// One upstream of each dialect.
pub(crate) const ROWS: [&str; 4] =
    ["anthropic, budget", "gemini 3", "openai_responses", "deepseek-v4"];

pub(crate) const THINKING: &str =
    "First I look at the left side, then I look at the right side of it.";
pub(crate) const ANSWER: &str = "It is the left one, since the right one was never there at all.";

/// Faults that break a stream: the words that trigger it, the fault, and the recorded end of the
/// turn.
pub(crate) const BREAKS: [(&str, &str, &str); 10] = [
    ("break at once", "cut:event=0", "cut"),
    ("break early", "cut:event=4", "cut"),
    ("break late", "cut:event=12", "cut"),
    ("end at once", "end:event=0", "cut"),
    ("end early", "end:event=4", "cut"),
    ("end late", "end:event=12", "cut"),
    ("err early", "error:event=4", "failed"),
    ("err late", "error:event=12", "failed"),
    ("say garbage", "garbage", "cut"),
    ("fall silent", "stall:event=6,ms=60000", "cut"),
];

pub(crate) fn scenario<'a>(faults: impl IntoIterator<Item = (&'a str, &'a str)>) -> String {
    let steps = faults.into_iter().map(|(word, fault)| {
        format!(
            "[[step]]\nwhen = {{ contains = \"{word}\" }}\nfault = \"{fault}\"\n\
             say = [{{ thinking = \"{THINKING}\" }}, {{ text = \"{ANSWER}\" }}]\n"
        )
    });
    steps.collect()
}

/// Returns every client with one upstream of each other dialect.
fn pairs() -> impl Iterator<Item = (&'static str, Vec<&'static str>)> {
    ROWS.into_iter().map(|row| {
        let clients = CLIENTS.into_iter();
        let others = clients.filter(move |client| *client != upstream(row).dialect);
        (row, others.collect())
    })
}

fn request_with_words(dialect: &str, words: &str, stream: bool) -> ClientRequest {
    let mut test_client = new_client(dialect);
    test_client.push_user(words);
    test_client.next_request("some-model", stream)
}

#[tokio::test]
async fn broken_stream_ends_in_one_error_after_the_received_part() {
    let mut mismatches = Mismatches::default();
    let scenario = scenario(BREAKS.map(|(word, fault, _)| (word, fault)));
    for (row, clients) in pairs() {
        let bed = TestBed::build(&BedOptions {
            upstreams: &[row],
            scenario: &scenario,
            backend: "timeouts = { idle = \"400ms\" }",
            ..BedOptions::default()
        })
        .await;
        for dialect in clients {
            for (word, _, end) in BREAKS {
                let case = format!("{dialect} over {row}: {word}");
                let answer =
                    send(&request_with_words(dialect, word, true), &bed.gateway.client).await;
                mismatches.check_equal(&case, answer.status, 200);
                let reading = read_stream(dialect, &answer.text());
                mismatches.check_equal(&case, reading.errors, 1);
                mismatches.check(reading.ends_in_error, format!("{case}: {}", answer.text()));
                mismatches.check(!reading.complete, format!("{case}: {}", answer.text()));
                mismatches.check(
                    THINKING.starts_with(&reading.reasoning) && ANSWER.starts_with(&reading.text),
                    format!("{case}: {reading:?}"),
                );
                let late = word.ends_with("late");
                mismatches.check(
                    !late || !reading.reasoning.is_empty() || !reading.text.is_empty(),
                    format!("{case}: nothing of what had arrived"),
                );
                let turn = bed.gateway.turns().await.swap_remove(0);
                mismatches.check_equal(&case, turn["end"].as_str(), Some(end));
                mismatches.check(turn["error"].is_string(), format!("{case}: no error in {turn}"));
            }
        }
        bed.expect_no_refusals().await;
    }
    mismatches.assert_none();
}

/// Without SSE, a Gemini stream is one JSON array, which must still be closed.
#[tokio::test]
async fn broken_json_array_stream_ends_in_an_error() {
    let mut mismatches = Mismatches::default();
    let scenario = scenario(BREAKS.map(|(word, fault, _)| (word, fault)));
    for row in ["anthropic, budget", "deepseek-v4"] {
        let bed = TestBed::build(&BedOptions {
            upstreams: &[row],
            scenario: &scenario,
            backend: "timeouts = { idle = \"400ms\" }",
            ..BedOptions::default()
        })
        .await;
        for (word, ..) in BREAKS {
            let mut request = request_with_words("gemini", word, true);
            request.path = request.path.replace("?alt=sse", "");
            let answer = send(&request, &bed.gateway.client).await;
            let chunks = answer.json();
            let chunks = chunks.as_array().cloned().unwrap_or_default();
            let stream: String = chunks.iter().map(|chunk| format!("data: {chunk}\n\n")).collect();
            let reading = read_stream("gemini", &stream);
            let ends = reading.errors == 1 && reading.ends_in_error && !reading.complete;
            mismatches.check(ends, format!("{row}: {word}: {}", answer.text()));
        }
        bed.expect_no_refusals().await;
    }
    mismatches.assert_none();
}

#[tokio::test]
async fn broken_whole_reply_becomes_an_error() {
    let mut mismatches = Mismatches::default();
    let breaks = [
        ("break off", "cut:event=2"),
        ("end early", "end:event=2"),
        ("err now", "error:event=2"),
        ("say garbage", "garbage"),
        ("fall silent", "stall:event=2,ms=60000"),
    ];
    for (row, clients) in pairs() {
        let bed = TestBed::build(&BedOptions {
            upstreams: &[row],
            scenario: &scenario(breaks),
            backend: "timeouts = { idle = \"400ms\", total = \"800ms\" }",
            ..BedOptions::default()
        })
        .await;
        for dialect in clients {
            for (word, _) in breaks {
                let case = format!("{dialect} over {row}: {word}");
                let answer =
                    send(&request_with_words(dialect, word, false), &bed.gateway.client).await;
                mismatches.check(answer.status >= 500, format!("{case}: {}", answer.status));
                let message = error_message(dialect, &answer.json());
                mismatches.check(!message.is_empty(), case.clone());
                let turn = bed.gateway.turns().await.swap_remove(0);
                let recorded = (turn["status"].as_u64(), turn["end"].as_str());
                let expected = (Some(u64::from(answer.status)), Some("failed"));
                mismatches.check(recorded == expected, format!("{case}: {recorded:?}"));
            }
        }
        bed.into_refusals().await;
    }
    mismatches.assert_none();
}

/// The class of the status and the time to retry survive in every dialect.
#[tokio::test]
async fn refusal_keeps_its_status_and_retry_after() {
    let mut mismatches = Mismatches::default();
    let refusals = [
        ("too many", "status:429,retry-after=7", [429, 429, 429, 429]),
        ("who is it", "status:401", [401, 401, 401, 401]),
        ("not allowed", "status:403", [403, 403, 403, 403]),
        ("oh dear", "status:500", [500, 500, 500, 500]),
        ("too busy", "status:529,retry-after=9", [529, 503, 503, 503]),
        ("not now", "status:503,retry-after=9", [529, 503, 503, 503]),
        ("too large", "status:413", [413, 413, 413, 413]),
        ("what is it", "status:404", [404, 404, 404, 404]),
    ];
    let scenario = scenario(refusals.map(|(word, fault, _)| (word, fault)));
    for (row, clients) in pairs() {
        let bed = TestBed::build(&BedOptions {
            upstreams: &[row],
            scenario: &scenario,
            ..BedOptions::default()
        })
        .await;
        for dialect in clients {
            for (word, fault, statuses) in refusals {
                for stream in [true, false] {
                    let case = format!("{dialect} over {row}: {word} {stream}");
                    let request = request_with_words(dialect, word, stream);
                    let answer = send(&request, &bed.gateway.client).await;
                    let at = CLIENTS.iter().position(|known| *known == dialect);
                    let status = statuses[at.unwrap_or_default()];
                    mismatches.check_equal(&case, answer.status, status);
                    let patience = fault.split("retry-after=").nth(1).unwrap_or_default();
                    mismatches.check_equal(&case, answer.header("retry-after"), patience);
                    let message = error_message(dialect, &answer.json());
                    mismatches.check(!message.is_empty(), case.clone());
                    let turn = bed.gateway.turns().await.swap_remove(0);
                    mismatches.check_equal(&case, turn["status"].as_u64(), Some(status.into()));
                    mismatches.check_equal(&case, turn["end"].as_str(), Some("failed"));
                }
            }
        }
        bed.into_refusals().await;
    }
    mismatches.assert_none();
}

/// The time to retry may be a date or in milliseconds.
#[tokio::test]
async fn every_form_of_retry_after_is_passed_on() {
    let body = "{\"error\":{\"message\":\"slow down\",\"type\":\"rate_limit_error\",\"code\":429}}";
    let head = format!(
        "HTTP/1.1 429 X\r\ncontent-type: application/json\r\nconnection: close\r\ncontent-length: {}\r\n",
        body.len()
    );
    for (name, value) in [
        ("retry-after", "7"),
        ("retry-after", "Wed, 21 Oct 2026 07:28:00 GMT"),
        ("retry-after-ms", "1500"),
    ] {
        for row in ["anthropic, budget", "vllm"] {
            let refusing = format!("{head}{name}: {value}\r\n\r\n{body}");
            let url = RawUpstream::always_answering(refusing).await;
            let gateway = Gateway::start(BINARY, &upstream(row).backend("a", &url)).await;
            for dialect in ["openai_responses", "gemini"] {
                let answer =
                    send(&request_with_words(dialect, "hello", true), &gateway.client).await;
                assert_eq!(answer.status, 429);
                assert_eq!(answer.header(name), value, "{dialect} over {row}");
            }
        }
    }
}

#[tokio::test]
async fn unreachable_backend_is_502_and_late_backend_504() {
    let mut mismatches = Mismatches::default();
    let late = scenario([("hello", "head-delay:ms=60000")]);
    for (row, clients) in pairs() {
        let bed = TestBed::build(&BedOptions {
            upstreams: &[row],
            scenario: &late,
            backend: "timeouts = { first_byte = \"300ms\" }",
            ..BedOptions::default()
        })
        .await;
        let unreachable = upstream(row).backend("a", "http://127.0.0.1:1");
        let unreachable = Gateway::start(BINARY, &unreachable).await;
        for dialect in clients {
            for stream in [true, false] {
                let request = request_with_words(dialect, "hello", stream);
                for (gateway, status) in [(&unreachable, 502), (&bed.gateway, 504)] {
                    // A whole reply has no first byte to wait for.
                    if status == 504 && !stream {
                        continue;
                    }
                    let answer = send(&request, &gateway.client).await;
                    let case = format!("{dialect} over {row}: {status} {stream}");
                    mismatches.check_equal(&case, answer.status, status);
                    let message = error_message(dialect, &answer.json());
                    mismatches.check(message.contains("`a`"), format!("{case}: {message}"));
                }
            }
        }
        bed.expect_no_refusals().await;
    }
    mismatches.assert_none();
}

/// Thinking that was cut off is incomplete, so it is not sent back, in whatever form the client
/// returns it.
#[tokio::test]
async fn cut_thinking_is_never_sent_back() {
    let mut mismatches = Mismatches::default();
    let scenario = scenario([("break off", "cut:event=5"), ("again", "no-ping")]);
    for (dialect, row) in [
        ("anthropic", "deepseek-v4"),
        ("anthropic", "vllm"),
        ("openai_chat", "anthropic, budget"),
        ("gemini", "anthropic, budget"),
        ("gemini", "deepseek-v4"),
    ] {
        let bed = TestBed::build(&BedOptions {
            upstreams: &[row],
            scenario: &scenario,
            ..BedOptions::default()
        })
        .await;
        let case = format!("{dialect} over {row}");
        let answer =
            send(&request_with_words(dialect, "break off", true), &bed.gateway.client).await;
        let reading = read_stream(dialect, &answer.text());
        let part = reading.reasoning;
        mismatches
            .check(!part.is_empty() && part != THINKING, format!("{case}: {part:?} was not cut"));
        let mut request = request_with_words(dialect, "break off", true);
        append_cut_answer(dialect, &mut request.body, &part);
        let answer = send(&request, &bed.gateway.client).await;
        mismatches.check_equal(&case, answer.status, 200);
        mismatches.check_equal(&case, thinking_in(&bed.last_received(0).await.json()), 0);
        let turn = bed.gateway.turns().await.swap_remove(0);
        mismatches.check_equal(&case, block_fates(&turn), ["left_out cut"]);
        let losses = answer.header("x-throughline-loss");
        let reported = losses.contains("thinking_omitted=1;reason=cut");
        mismatches.check(reported, format!("{case}: {losses}"));
        bed.expect_no_refusals().await;
    }
    mismatches.assert_none();
}

/// Appends a cut answer to a request, as the client kept it, and the next user message.
fn append_cut_answer(dialect: &str, body: &mut Value, part: &str) {
    let (list, more) = match dialect {
        "anthropic" => (
            "messages",
            json!([
                {"role": "assistant", "content": [{"type": "thinking", "thinking": part, "signature": ""}]},
                {"role": "user", "content": "again"},
            ]),
        ),
        "openai_chat" => (
            "messages",
            json!([
                {"role": "assistant", "content": "", "reasoning_content": part},
                {"role": "user", "content": "again"},
            ]),
        ),
        _ => (
            "contents",
            json!([
                {"role": "model", "parts": [{"text": part, "thought": true}]},
                {"role": "user", "parts": [{"text": "again"}]},
            ]),
        ),
    };
    let list = body[list].as_array_mut().expect("a list");
    list.extend(more.as_array().cloned().unwrap_or_default());
}
