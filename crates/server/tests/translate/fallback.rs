//! Fallback to a backend of another dialect: only before the first byte.

use throughline_testkit::block_fates;

use crate::stream_reading::read_stream;
use crate::support::{BedOptions, Mismatches, TestBed, new_client, thinking_in};
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
