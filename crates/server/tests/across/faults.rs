//! What goes wrong upstream, told in the client's own words: after the first byte as one error behind
//! what had arrived, before it as a status.

use serde_json::{Value, json};
use throughline_testkit::Gateway;

use crate::bare::Upstream;
use crate::heard::{hear, refusal};
use crate::speaker::{Ask, send};
use crate::support::{BINARY, CLIENTS, House, Plan, Wrong, client, fates, thinking_in, upstream};

/// One upstream of each dialect.
pub(crate) const ROWS: [&str; 4] =
    ["anthropic, budget", "gemini 3", "openai_responses", "deepseek-v4"];

pub(crate) const THOUGHT: &str =
    "First I look at the left side, then I look at the right side of it.";
pub(crate) const ANSWER: &str = "It is the left one, since the right one was never there at all.";

/// What breaks a stream: the words that ask for it, the fault, and how the turn is noted.
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
             say = [{{ thinking = \"{THOUGHT}\" }}, {{ text = \"{ANSWER}\" }}]\n"
        )
    });
    steps.collect()
}

/// Every client over one upstream of each other dialect.
fn pairs() -> impl Iterator<Item = (&'static str, Vec<&'static str>)> {
    ROWS.into_iter().map(|row| {
        let clients = CLIENTS.into_iter();
        let others = clients.filter(move |client| *client != upstream(row).dialect);
        (row, others.collect())
    })
}

fn asking(dialect: &str, words: &str, stream: bool) -> Ask {
    let mut speaker = client(dialect);
    speaker.user(words);
    speaker.ask("some-model", stream)
}

#[tokio::test]
async fn a_stream_that_breaks_ends_in_one_error_behind_what_had_arrived() {
    let mut wrong = Wrong::default();
    let scenario = scenario(BREAKS.map(|(word, fault, _)| (word, fault)));
    for (row, clients) in pairs() {
        let house = House::build(&Plan {
            upstreams: &[row],
            scenario: &scenario,
            backend: "timeouts = { idle = \"400ms\" }",
            ..Plan::default()
        })
        .await;
        for dialect in clients {
            for (word, _, end) in BREAKS {
                let what = format!("{dialect} over {row}: {word}");
                let answer = send(&asking(dialect, word, true), &house.gateway.client).await;
                wrong.unless_equal(&what, answer.status, 200);
                let heard = hear(dialect, &answer.text());
                wrong.unless_equal(&what, heard.errors, 1);
                wrong.unless(heard.ends_in_error, format!("{what}: {}", answer.text()));
                wrong.unless(!heard.complete, format!("{what}: {}", answer.text()));
                wrong.unless(
                    THOUGHT.starts_with(&heard.reasoning) && ANSWER.starts_with(&heard.text),
                    format!("{what}: {heard:?}"),
                );
                let late = word.ends_with("late");
                wrong.unless(
                    !late || !heard.reasoning.is_empty() || !heard.text.is_empty(),
                    format!("{what}: nothing of what had arrived"),
                );
                let turn = house.gateway.turns().await.swap_remove(0);
                wrong.unless_equal(&what, turn["end"].as_str(), Some(end));
            }
        }
        house.end_in_peace().await;
    }
    wrong.end();
}

/// Without events a stream of this dialect is one list, which has to close all the same.
#[tokio::test]
async fn a_list_that_breaks_is_a_list_that_ends_in_an_error() {
    let mut wrong = Wrong::default();
    let scenario = scenario(BREAKS.map(|(word, fault, _)| (word, fault)));
    for row in ["anthropic, budget", "deepseek-v4"] {
        let house = House::build(&Plan {
            upstreams: &[row],
            scenario: &scenario,
            backend: "timeouts = { idle = \"400ms\" }",
            ..Plan::default()
        })
        .await;
        for (word, ..) in BREAKS {
            let mut ask = asking("gemini", word, true);
            ask.path = ask.path.replace("?alt=sse", "");
            let answer = send(&ask, &house.gateway.client).await;
            let chunks = answer.json();
            let chunks = chunks.as_array().cloned().unwrap_or_default();
            let stream: String = chunks.iter().map(|chunk| format!("data: {chunk}\n\n")).collect();
            let heard = hear("gemini", &stream);
            let ends = heard.errors == 1 && heard.ends_in_error && !heard.complete;
            wrong.unless(ends, format!("{row}: {word}: {}", answer.text()));
        }
        house.end_in_peace().await;
    }
    wrong.end();
}

#[tokio::test]
async fn a_whole_reply_that_breaks_is_an_error_and_no_answer() {
    let mut wrong = Wrong::default();
    let breaks = [
        ("break off", "cut:event=2"),
        ("end early", "end:event=2"),
        ("err now", "error:event=2"),
        ("say garbage", "garbage"),
        ("fall silent", "stall:event=2,ms=60000"),
    ];
    for (row, clients) in pairs() {
        let house = House::build(&Plan {
            upstreams: &[row],
            scenario: &scenario(breaks),
            backend: "timeouts = { idle = \"400ms\", total = \"800ms\" }",
            ..Plan::default()
        })
        .await;
        for dialect in clients {
            for (word, _) in breaks {
                let what = format!("{dialect} over {row}: {word}");
                let answer = send(&asking(dialect, word, false), &house.gateway.client).await;
                wrong.unless(answer.status >= 500, format!("{what}: {}", answer.status));
                let message = refusal(dialect, &answer.json());
                wrong.unless(!message.is_empty(), what.clone());
                let turn = house.gateway.turns().await.swap_remove(0);
                let end = turn["end"].as_str().unwrap_or_default();
                wrong.unless(end == "cut" || end == "failed", format!("{what}: {end:?}"));
            }
        }
        house.end().await;
    }
    wrong.end();
}

/// The class of a status survives, and when to come back, whatever the client's words for it are.
#[tokio::test]
async fn a_refusal_before_the_first_byte_keeps_its_status_and_its_patience() {
    let mut wrong = Wrong::default();
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
        let house =
            House::build(&Plan { upstreams: &[row], scenario: &scenario, ..Plan::default() }).await;
        for dialect in clients {
            for (word, fault, statuses) in refusals {
                for stream in [true, false] {
                    let what = format!("{dialect} over {row}: {word} {stream}");
                    let ask = asking(dialect, word, stream);
                    let answer = send(&ask, &house.gateway.client).await;
                    let at = CLIENTS.iter().position(|known| *known == dialect);
                    let status = statuses[at.unwrap_or_default()];
                    wrong.unless_equal(&what, answer.status, status);
                    let patience = fault.split("retry-after=").nth(1).unwrap_or_default();
                    wrong.unless_equal(&what, answer.header("retry-after"), patience);
                    let message = refusal(dialect, &answer.json());
                    wrong.unless(!message.is_empty(), what.clone());
                    let turn = house.gateway.turns().await.swap_remove(0);
                    wrong.unless_equal(&what, turn["status"].as_u64(), Some(status.into()));
                    wrong.unless_equal(&what, turn["end"].as_str(), Some("failed"));
                }
            }
        }
        house.end().await;
    }
    wrong.end();
}

/// When to come back may be told as a moment, or to the millisecond.
#[tokio::test]
async fn every_form_of_patience_is_passed_on() {
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
            let url = Upstream::always(refusing).await;
            let gateway = Gateway::start(BINARY, &upstream(row).backend("a", &url)).await;
            for dialect in ["openai_responses", "gemini"] {
                let answer = send(&asking(dialect, "hello", true), &gateway.client).await;
                assert_eq!(answer.status, 429);
                assert_eq!(answer.header(name), value, "{dialect} over {row}");
            }
        }
    }
}

#[tokio::test]
async fn a_backend_nobody_answers_at_is_502_and_one_that_is_late_504() {
    let mut wrong = Wrong::default();
    let late = scenario([("hello", "head-delay:ms=60000")]);
    for (row, clients) in pairs() {
        let house = House::build(&Plan {
            upstreams: &[row],
            scenario: &late,
            backend: "timeouts = { first_byte = \"300ms\" }",
            ..Plan::default()
        })
        .await;
        let nobody = upstream(row).backend("a", "http://127.0.0.1:1");
        let nobody = Gateway::start(BINARY, &nobody).await;
        for dialect in clients {
            for stream in [true, false] {
                let ask = asking(dialect, "hello", stream);
                for (gateway, status) in [(&nobody, 502), (&house.gateway, 504)] {
                    // A whole reply has no first byte to wait for.
                    if status == 504 && !stream {
                        continue;
                    }
                    let answer = send(&ask, &gateway.client).await;
                    let what = format!("{dialect} over {row}: {status} {stream}");
                    wrong.unless_equal(&what, answer.status, status);
                    let message = refusal(dialect, &answer.json());
                    wrong.unless(message.contains("`a`"), format!("{what}: {message}"));
                }
            }
        }
        house.end_in_peace().await;
    }
    wrong.end();
}

/// What a model had thought when it was cut off is no thought of its, whoever sends it back.
#[tokio::test]
async fn thinking_that_was_cut_is_never_sent_back() {
    let mut wrong = Wrong::default();
    let scenario = scenario([("break off", "cut:event=5"), ("again", "no-ping")]);
    for (dialect, row) in [
        ("anthropic", "deepseek-v4"),
        ("anthropic", "vllm"),
        ("openai_chat", "anthropic, budget"),
        ("gemini", "anthropic, budget"),
        ("gemini", "deepseek-v4"),
    ] {
        let house =
            House::build(&Plan { upstreams: &[row], scenario: &scenario, ..Plan::default() }).await;
        let what = format!("{dialect} over {row}");
        let answer = send(&asking(dialect, "break off", true), &house.gateway.client).await;
        let heard = hear(dialect, &answer.text());
        let part = heard.reasoning;
        wrong.unless(!part.is_empty() && part != THOUGHT, format!("{what}: {part:?} was not cut"));
        let mut ask = asking(dialect, "break off", true);
        remember(dialect, &mut ask.body, &part);
        let answer = send(&ask, &house.gateway.client).await;
        wrong.unless_equal(&what, answer.status, 200);
        wrong.unless_equal(&what, thinking_in(&house.last(0).await.json()), 0);
        let turn = house.gateway.turns().await.swap_remove(0);
        wrong.unless_equal(&what, fates(&turn), ["left_out cut"]);
        let losses = answer.header("x-throughline-loss");
        let told = losses.contains("thinking_omitted=1;reason=cut");
        wrong.unless(told, format!("{what}: {losses}"));
        house.end_in_peace().await;
    }
    wrong.end();
}

/// Adds an answer that was cut to a request, as the client kept it, and what the user says then.
fn remember(dialect: &str, body: &mut Value, part: &str) {
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
