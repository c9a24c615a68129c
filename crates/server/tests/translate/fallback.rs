//! Fallback to a backend of another dialect: only before the first byte.

use serde_json::json;
use throughline_testkit::{Gateway, block_fates};

use crate::stream_reading::read_stream;
use crate::support::{BINARY, BedOptions, Mismatches, TestBed, new_client, thinking_in, upstream};
use crate::test_client::{list, send, text};

/// The first backend answers once, and is overloaded or breaks after that.
const SCENARIO: &str = r#"
[[step]]
when = { contains = "use one tool" }
say = [{ thinking = "I need a row." }, { tool = { name = "lookup", input = { key = "7" } } }]
[[step]]
when = { contains = "row green" }
say = [{ thinking = "That is all." }, { text = "Blue, then green." }]
"#;

const CHAIN: &str = "[route]\nfallback = [\"b\", \"c\"]\n";

/// Returns the scenario of all backends. The second answer of the first backend has this fault.
fn first_breaks(model: &str, fault: &str) -> String {
    format!(
        "[[step]]\nwhen = {{ contains = \"row green\", model = \"{model}\" }}\nfault = \"{fault}\"\n\
         say = [{{ thinking = \"Let me see what that was.\" }}, {{ text = \"It was this.\" }}]\n{SCENARIO}"
    )
}

#[tokio::test]
async fn fallback_to_another_dialect_adapts_the_thinking() {
    let mut mismatches = Mismatches::default();
    for (dialect, rows, model) in [
        ("openai_chat", ["anthropic, budget", "gemini 3"], "claude-*"),
        ("anthropic", ["openai_responses", "deepseek-v4"], "gpt-*"),
        ("anthropic", ["gemini 3", "anthropic, budget"], "gemini-*"),
        ("gemini", ["openai_responses", "gemini 3"], "gpt-*"),
        ("openai_responses", ["gemini 3", "vllm"], "gemini-*"),
        ("gemini", ["deepseek-v4", "anthropic, adaptive"], "deepseek-*"),
        ("gemini", ["anthropic, budget", "openai_responses"], "claude-*"),
    ] {
        for fault in ["status:529", "status:429,retry-after=3", "status:500"] {
            let bed = TestBed::build(&BedOptions {
                upstreams: &rows,
                scenario: &first_breaks(model, fault),
                settings: "[route]\nfallback = [\"b\"]\n",
                ..BedOptions::default()
            })
            .await;
            let case = format!("{dialect} over {rows:?}: {fault}");
            let mut test_client = new_client(dialect);
            test_client.push_user("use one tool");
            let (view, answer) = bed.send(test_client.as_mut()).await;
            mismatches.check_equal(&case, answer.header("x-throughline-backend"), "a");
            test_client.push_results(&view.calls, "row green");
            let (view, answer) = bed.send(test_client.as_mut()).await;
            mismatches.check_equal(&case, view.text.trim(), "Blue, then green.");
            mismatches.check_equal(&case, answer.header("x-throughline-backend"), "b");
            let losses = answer.header("x-throughline-loss");
            let reported = losses.contains("thinking_omitted=1;reason=origin");
            mismatches.check(reported, format!("{case}: {losses}"));
            mismatches.check_equal(&case, thinking_in(&bed.last_received(1).await.json()), 0);
            let turn = bed.gateway.turns().await.swap_remove(0);
            mismatches.check_equal(&case, turn["backend"].as_str(), Some("b"));
            mismatches.check_equal(&case, turn["status"].as_u64(), Some(200));
            mismatches.check_equal(&case, block_fates(&turn), ["left_out origin"]);
            let refused = bed.into_refusals().await;
            mismatches.check_equal(&case, refused.len(), 1);
        }
    }
    mismatches.assert_none();
}

#[tokio::test]
async fn no_fallback_after_the_first_byte_or_for_an_invalid_request() {
    let mut mismatches = Mismatches::default();
    for (dialect, rows, model) in [
        ("openai_chat", ["anthropic, budget", "gemini 3"], "claude-*"),
        ("anthropic", ["gemini 3", "deepseek-v4"], "gemini-*"),
        ("openai_responses", ["deepseek-v4", "anthropic, budget"], "deepseek-*"),
        ("gemini", ["openai_responses", "deepseek-v4"], "gpt-*"),
    ] {
        for (fault, begins) in [
            ("cut:event=0", true),
            ("error:event=4", true),
            ("status:401", false),
            ("status:400", false),
        ] {
            let bed = TestBed::build(&BedOptions {
                upstreams: &rows,
                scenario: &first_breaks(model, fault),
                settings: "[route]\nfallback = [\"b\"]\n",
                ..BedOptions::default()
            })
            .await;
            let case = format!("{dialect} over {rows:?}: {fault}");
            let mut test_client = new_client(dialect);
            test_client.push_user("row green");
            let request = test_client.next_request("some-model", true);
            let answer = send(&request, &bed.gateway.client).await;
            mismatches.check_equal(&case, answer.status == 200, begins);
            if begins {
                let reading = read_stream(dialect, &answer.text());
                mismatches.check_equal(&case, (reading.errors, reading.complete), (1, false));
            }
            mismatches.check_equal(&case, answer.header("x-throughline-backend"), "a");
            let requests = bed.simulators[1].received().await.len();
            mismatches.check_equal(&case, requests, 0);
            bed.into_refusals().await;
        }
    }
    mismatches.assert_none();
}

/// Each backend gets the request in its own dialect, and the losses are those of the last one.
#[tokio::test]
async fn fallback_chain_of_three_dialects_ends_with_the_one_that_answers() {
    let steps = ["claude-*", "gemini-*"].map(|model| {
        format!(
            "[[step]]\nwhen = {{ contains = \"row green\", model = \"{model}\" }}\nfault = \"status:529\"\n\
             say = [{{ text = \"no\" }}]\n"
        )
    });
    let bed = TestBed::build(&BedOptions {
        upstreams: &["anthropic, budget", "gemini 3", "deepseek-v4"],
        scenario: &format!("{}{SCENARIO}", steps.concat()),
        settings: CHAIN,
        ..BedOptions::default()
    })
    .await;
    let mut test_client = new_client("openai_responses");
    test_client.push_user("row green");
    let (view, answer) = bed.send(test_client.as_mut()).await;
    assert_eq!(view.text, "Blue, then green.");
    assert_eq!(answer.header("x-throughline-backend"), "c");
    let turns = bed.gateway.turns().await;
    assert_eq!(turns.len(), 1, "one turn, however many were asked");
    assert_eq!(turns[0]["upstream_dialect"], "openai_chat");
    assert_eq!(text(&turns[0]["upstream_model"]), "deepseek-v4");
    let losses: Vec<&str> = list(&turns[0]["losses"]).map(|loss| text(&loss["reason"])).collect();
    let reported = answer.header("x-throughline-loss");
    assert!(losses.iter().all(|loss| reported.contains(loss)), "{reported}");
    assert!(!reported.contains("as_budget"), "a loss of the first: {reported}");
    assert_eq!(bed.into_refusals().await.len(), 2);
}

/// A backend that fails, with fallbacks that cannot write several answers: they do not take its place,
/// and its failure, which will pass, does not become an invalid request.
#[tokio::test]
async fn fallback_that_cannot_take_the_request_is_passed_over() {
    let scenario = format!(
        "[[step]]\nwhen = {{ model = \"qwen3-32b\" }}\nfault = \"status:503\"\n\
         say = [{{ text = \"no\" }}]\n{SCENARIO}"
    );
    for (rows, answering) in [
        (vec!["vllm", "anthropic, budget"], None),
        (vec!["vllm", "anthropic, budget", "gemini 3"], None),
        (vec!["vllm", "anthropic, budget", "deepseek-v4"], Some("c")),
    ] {
        let fallbacks = if rows.len() == 2 { "[\"b\"]" } else { "[\"b\", \"c\"]" };
        let bed = TestBed::build(&BedOptions {
            upstreams: &rows,
            scenario: &scenario,
            settings: &format!("[route]\ncool_down = \"1h\"\nfallback = {fallbacks}\n"),
            ..BedOptions::default()
        })
        .await;
        // From the second request on, the first backend cools down.
        for round in 0..3 {
            let mut request = new_client("openai_chat").next_request("some-model", false);
            request.body["messages"] = json!([{"role": "user", "content": "row green"}]);
            request.body["n"] = 2.into();
            let answer = send(&request, &bed.gateway.client).await;
            let case = format!("{rows:?}, {round}: {}", answer.text());
            let status = if answering.is_some() { 200 } else { 503 };
            assert_eq!(answer.status, status, "{case}");
            let turn = bed.gateway.turn_of(&answer).await;
            assert_eq!(turn["backend"], answering.unwrap_or("a"), "{case}");
            assert_eq!(answer.header("x-throughline-fallback"), answering.unwrap_or(""), "{case}");
            let passed: Vec<_> =
                list(&turn["passed_over"]).map(|passed| text(&passed["backend"])).collect();
            let others = match answering {
                Some(_) => vec!["a", "b"],
                None => ["b", "c"][..rows.len() - 1].to_vec(),
            };
            assert_eq!(passed, others, "{case}");
            let reason = text(&turn["passed_over"][others.len() - 1]["reason"]);
            assert!(reason.contains("cannot be honoured"), "{case}: {reason}");
        }
        let tried = if answering.is_some() { 1 } else { 3 };
        assert_eq!(bed.simulators[0].received().await.len(), tried);
        assert!(bed.simulators[1].received().await.is_empty());
    }
}

/// An item that only its maker can open stays with it while it fails.
#[tokio::test]
async fn encrypted_summary_waits_for_its_maker() {
    let scenario = "[[step]]\nwhen = { contains = \"go on\", model = \"gpt-*\" }\nfault = \"status:503\"\n\
                    say = [{ text = \"no\" }]\n[[step]]\nsay = [{ text = \"yes\" }]\n";
    let bed = TestBed::build(&BedOptions {
        upstreams: &["openai_responses", "anthropic, budget"],
        scenario,
        settings: "[route]\ncool_down = \"1h\"\nfallback = [\"b\"]\n",
        ..BedOptions::default()
    })
    .await;
    let client = &bed.gateway.client;
    let key = [("authorization", "Bearer key")];
    let question = |said: &str| json!({"type": "message", "role": "user", "content": said});
    let body = json!({"model": "some-model", "input": [question("hello")]});
    let compacted = client.post("/v1/responses/compact", &key, &body).await.expect_ok().json();
    let item = list(&compacted["output"]).last().expect("an item").clone();
    let body = json!({"model": "some-model", "input": [item, question("go on")], "store": false});
    for _ in 0..2 {
        let answer = client.post("/v1/responses", &key, &body).await;
        assert_eq!(answer.status, 503, "{}", answer.text());
        assert_eq!(answer.header("x-throughline-backend"), "a");
    }
    assert!(bed.simulators[1].received().await.is_empty());
}

#[tokio::test]
async fn estimated_count_of_a_fallback_names_it() {
    let row = upstream("deepseek-v4");
    let simulator = row.start("b").await;
    let config = [
        "[route]\nfallback = [\"b\"]\n".to_owned(),
        upstream("anthropic, budget").backend("a", "http://127.0.0.1:1"),
        row.backend("b", &simulator.url),
    ];
    let gateway = Gateway::start(BINARY, &config.concat()).await;
    let headers = [("anthropic-version", "2023-06-01")];
    let body = json!({"model": "some-model", "messages": [{"role": "user", "content": "Hello."}]});
    let path = "/v1/messages/count_tokens";
    let answer = gateway.client.post(path, &headers, &body).await.expect_ok();
    assert!(answer.header("x-throughline-loss").contains("estimated"), "{}", answer.text());
    assert_eq!(answer.header("x-throughline-fallback"), "b");
    assert_eq!(gateway.turn_of(&answer).await["fallback"], "b");
}
