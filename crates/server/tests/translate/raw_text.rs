//! Backends whose models write reasoning and tool calls into plain text: every client gets them
//! separately.

use serde_json::json;
use throughline_testkit::block_fates;

use crate::stream_reading::{error_message, read_stream};
use crate::support::{CLIENTS, Mismatches, TestBed, new_client, thinking_in};
use crate::test_client::{send, send_turn};

const SCENARIO: &str = r#"
[[step]]
when = { contains = "one tool" }
say = [
  { thinking = "I need a row." }, { text = "I look." },
  { tool = { name = "lookup", input = { key = "7" } } },
]
[[step]]
when = { contains = "row green" }
say = [{ thinking = "That is all." }, { text = "Blue, then green." }]
[[step]]
when = { contains = "half a call" }
say = [
  { thinking = "I need a row." },
  { text = "I look. <tool_call>{\"key\": 7]</tool_call> So." },
]
[[step]]
when = { contains = "strange tags" }
say = [{ text = "[THINK]It is odd.[/THINK]Yes." }]
[[step]]
when = { contains = "stops inside a call" }
say = [{ text = '''
<tool_call>
<function=lookup>
<parameter=key>
7
</parameter>
''' }]
[[step]]
when = { contains = "closes with broken JSON" }
say = [{ text = '<tool_call>{"name":"lookup","arguments":{"key":7]</tool_call>' }]
"#;

/// Models by the format of their text, with the configuration of their backend.
const MODELS: [(&str, &str); 6] = [
    ("qwen3-think-tags", "variant = \"think-tags\""),
    ("qwen3-think-tags-raw-tools", "variant = \"think-tags\""),
    ("qwen3-think-tags-raw-tools", "variant = \"vllm\""),
    ("house-think-tags-raw-tools", "variant = \"vllm\"\nfamily = \"qwen3\""),
    (
        "qwen3-think-tags-implicit-raw-tools",
        "variant = \"think-tags\"\nfamily = \"qwen3-thinking\"",
    ),
    ("qwen3-think-tags-implicit-raw-tools", "variant = \"vllm\"\nfamily = \"qwen3-thinking\""),
];

/// Covers: X-10
#[tokio::test]
async fn raw_text_is_separated_for_every_client() {
    let mut mismatches = Mismatches::default();
    for (model, backend) in MODELS {
        let bed = TestBed::of_model(model, SCENARIO, backend).await;
        for dialect in CLIENTS {
            for stream in [true, false] {
                let case = format!("{dialect} over {model}, {backend:?}, {stream}");
                let mut test_client = new_client(dialect);
                test_client.push_user("use one tool");
                let sent = &bed.gateway.client;
                let (view, _) = send_turn(test_client.as_mut(), sent, "some-model", stream).await;
                mismatches.check_equal(&case, view.reasoning.as_str(), "I need a row.");
                mismatches.check_equal(&case, view.text.trim(), "I look.");
                let calls: Vec<_> = view
                    .calls
                    .iter()
                    .map(|call| (call.name.as_str(), call.arguments.to_string()))
                    .collect();
                mismatches.check_equal(&case, calls, [("lookup", "{\"key\":\"7\"}".to_owned())]);
                // This server has no member for reasoning, and would be configured accordingly.
                if backend.contains("vllm") {
                    continue;
                }
                test_client.push_results(&view.calls, "row green");
                let (view, _) = send_turn(test_client.as_mut(), sent, "some-model", stream).await;
                mismatches.check_equal(&case, view.reasoning.as_str(), "That is all.");
                mismatches.check_equal(&case, view.text.trim(), "Blue, then green.");
                // Inside a tool loop the model gets its reasoning back.
                let seen = bed.last_received(0).await;
                mismatches.check_equal(&case, thinking_in(&seen.json()), 1);
                let turn = bed.gateway.turns().await.swap_remove(0);
                let fate = if dialect == "openai_chat" { "restored" } else { "sent" };
                mismatches.check_equal(&case, block_fates(&turn), [fate]);
            }
        }
        bed.expect_no_refusals().await;
    }
    mismatches.assert_none();
}

/// The settings for the reasoning format and for its tags.
#[tokio::test]
async fn raw_text_settings_take_effect() {
    let mut mismatches = Mismatches::default();
    let whole = "<think>\nI need a row.\n</think>";
    for (key, prompt, reasoning, text) in [
        ("", "use one tool", "I need a row.", "I look."),
        ("reasoning_format = \"split\"", "use one tool", "I need a row.", "I look."),
        ("reasoning_format = \"raw\"", "use one tool", whole, "I look."),
        ("reasoning_format = \"none\"", "use one tool", "", "<think>"),
        ("family = \"none\"", "use one tool", "", "<think>"),
        ("", "strange tags", "", "[THINK]It is odd.[/THINK]Yes."),
        ("family = \"magistral\"", "strange tags", "It is odd.", "Yes."),
    ] {
        let backend = format!("variant = \"vllm\"\n{key}");
        let bed = TestBed::of_model("qwen3-think-tags", SCENARIO, &backend).await;
        for dialect in CLIENTS {
            let case = format!("{dialect}: {prompt}, {key}");
            let mut test_client = new_client(dialect);
            test_client.push_user(prompt);
            let (view, _) = bed.send(test_client.as_mut()).await;
            let same = |found: &str, wanted: &str| {
                let plain = |text: &str| text.replace(['\n', ' '], "");
                plain(found) == plain(wanted)
            };
            let right = same(&view.reasoning, reasoning)
                && (same(&view.text, text) || text == "<think>" && view.text.contains(text));
            mismatches.check(right, format!("{case}: {view:?}"));
        }
        bed.expect_no_refusals().await;
    }
    mismatches.assert_none();
}

/// Covers: S2-29, C-24
#[tokio::test]
async fn invalid_tool_call_is_an_error_or_text_as_configured() {
    let mut mismatches = Mismatches::default();
    for (policy, fails) in [
        ("", true),
        ("on_tool_parse_error = \"error\"", true),
        ("on_tool_parse_error = \"text\"", false),
    ] {
        let backend = format!("variant = \"think-tags\"\n{policy}");
        let bed = TestBed::of_model("qwen3-think-tags-raw-tools", SCENARIO, &backend).await;
        for dialect in CLIENTS {
            let case = format!("{dialect}: {policy:?}");
            let mut test_client = new_client(dialect);
            test_client.push_user("half a call");
            let request = test_client.next_request("some-model", true);
            let answer = send(&request, &bed.gateway.client).await;
            let reading = read_stream(dialect, &answer.text());
            mismatches.check_equal(&case, reading.reasoning.as_str(), "I need a row.");
            mismatches.check_equal(&case, reading.errors, usize::from(fails));
            let named = answer.text().contains("tool_call_parse_error");
            mismatches.check(
                named == (fails && dialect == "openai_chat"),
                format!("{case}: {}", answer.text()),
            );
            mismatches.check(reading.complete != fails, format!("{case}: {}", answer.text()));
            let view = match fails {
                true => reading.text.trim() == "I look.",
                false => reading.text.contains("<tool_call>{\"key\": 7]</tool_call> So."),
            };
            mismatches.check(view, format!("{case}: {reading:?}"));
            let request = test_client.next_request("some-model", false);
            let answer = send(&request, &bed.gateway.client).await;
            mismatches.check_equal(&case, answer.status == 200, !fails);
            if fails {
                let message = error_message(dialect, &answer.json());
                mismatches.check(message.contains("call"), format!("{case}: {message}"));
            }
        }
        bed.expect_no_refusals().await;
    }
    mismatches.assert_none();
}

/// A model can stop between two parameters of a call, or close it with broken JSON. No client may take that
/// call for complete.
#[tokio::test]
async fn incomplete_call_ends_as_cut_for_every_client() {
    let mut mismatches = Mismatches::default();
    for (family, question) in
        [("qwen3-coder", "stops inside a call"), ("qwen3", "closes with broken JSON")]
    {
        check_incomplete_call(&mut mismatches, family, question).await;
    }
    mismatches.assert_none();
}

async fn check_incomplete_call(mismatches: &mut Mismatches, family: &str, question: &str) {
    let backend =
        format!("variant = \"vllm\"\nfamily = \"{family}\"\non_tool_parse_error = \"text\"");
    let bed = TestBed::of_model("qwen3-think-tags", SCENARIO, &backend).await;
    for dialect in CLIENTS {
        let (cut, complete) = match dialect {
            "anthropic" => ("\"stop_reason\":\"max_tokens\"", "\"stop_reason\":\"tool_use\""),
            "openai_chat" => ("\"finish_reason\":\"length\"", "\"finish_reason\":\"tool_calls\""),
            "openai_responses" => ("max_output_tokens\"}", "response.completed"),
            _ => ("\"finishReason\":\"MAX_TOKENS\"", "\"finishReason\":\"STOP\""),
        };
        for stream in [true, false] {
            let mut test_client = new_client(dialect);
            test_client.push_user(question);
            let request = test_client.next_request("some-model", stream);
            let answer = send(&request, &bed.gateway.client).await.text();
            let case = format!("{dialect}, stream {stream}: {answer}");
            mismatches.check(answer.contains(cut), format!("not cut, {case}"));
            mismatches.check(!answer.contains(complete), format!("complete, {case}"));
        }
    }
    bed.expect_no_refusals().await;
}

/// A model may write a call although its client does not allow one.
#[tokio::test]
async fn call_in_text_stays_text_if_the_client_allows_no_call() {
    const CALL: &str = r#"<tool_call>{"name": "lookup", "arguments": {"key": "7"}}</tool_call>"#;
    let scenario = format!(
        "[[step]]\nwhen = {{ contains = \"row\" }}\n\
         say = [{{ thinking = \"I need a row.\" }}, {{ text = '{CALL}' }}]"
    );
    let mut mismatches = Mismatches::default();
    for variant in ["think-tags", "llamacpp", "vllm"] {
        let backend = format!("variant = \"{variant}\"");
        let bed = TestBed::of_model("qwen3-think-tags", &scenario, &backend).await;
        for dialect in CLIENTS {
            for stream in [true, false] {
                let case = format!("{dialect} over {variant}, stream {stream}");
                let mut test_client = new_client(dialect);
                test_client.push_user("which row");
                let mut request = test_client.next_request("some-model", stream);
                let (member, no_call) = match dialect {
                    "anthropic" => ("tool_choice", json!({"type": "none"})),
                    "gemini" => ("toolConfig", json!({"functionCallingConfig": {"mode": "NONE"}})),
                    _ => ("tool_choice", json!("none")),
                };
                request.body[member] = no_call;
                let answer = send(&request, &bed.gateway.client).await;
                let view = test_client.read(&answer.text(), stream);
                mismatches.check_equal(&case, view.reasoning.as_str(), "I need a row.");
                mismatches.check_equal(&case, view.text.trim(), CALL);
                mismatches.check_equal(&case, view.calls.len(), 0);
            }
        }
        bed.expect_no_refusals().await;
    }
    mismatches.assert_none();
}

/// Answers with and without reasoning.
const SEPARATED_SCENARIO: &str = r#"
[[step]]
when = { contains = "ponder" }
say = [{ thinking = "I ponder." }, { text = "Green." }]
[[step]]
when = { contains = "plain" }
say = [{ text = "Just green." }]
"#;

/// The model's template opens the reasoning, and the server separates it.
#[tokio::test]
async fn content_is_the_answer_when_the_server_separates_reasoning() {
    let mut mismatches = Mismatches::default();
    for variant in ["vllm", "sglang", "llamacpp", "groq"] {
        let backend = format!("variant = \"{variant}\"");
        for dialect in CLIENTS {
            for stream in [true, false] {
                let bed =
                    TestBed::of_server(variant, "qwq-32b", SEPARATED_SCENARIO, &backend).await;
                let case = format!("{dialect} over {variant}, stream {stream}");
                for (prompt, reasoning, text) in
                    [("ponder", "I ponder.", "Green."), ("plain", "", "Just green.")]
                {
                    let mut test_client = new_client(dialect);
                    test_client.push_user(prompt);
                    let sent = &bed.gateway.client;
                    let (view, _) =
                        send_turn(test_client.as_mut(), sent, "some-model", stream).await;
                    mismatches.check_equal(&case, view.reasoning.as_str(), reasoning);
                    mismatches.check_equal(&case, view.text.as_str(), text);
                }
                bed.expect_no_refusals().await;
            }
        }
    }
    mismatches.assert_none();
}

/// The model's template opens the reasoning, and the model answers without closing it.
#[tokio::test]
async fn unclosed_reasoning_becomes_the_answer_and_is_reported() {
    const SCENARIO: &str = r#"
[[step]]
when = { contains = "green" }
say = [{ text = "Just green." }]
"#;
    let mut mismatches = Mismatches::default();
    let backend = "variant = \"think-tags\"\nfamily = \"qwen3-thinking\"";
    let bed = TestBed::of_model("qwen3-think-tags", SCENARIO, backend).await;
    for dialect in CLIENTS {
        for stream in [true, false] {
            let case = format!("{dialect}, stream {stream}");
            let mut test_client = new_client(dialect);
            test_client.push_user("what is green");
            let sent = &bed.gateway.client;
            let (view, answer) = send_turn(test_client.as_mut(), sent, "some-model", stream).await;
            mismatches.check_equal(&case, view.text.as_str(), "Just green.");
            let turn = bed.gateway.turns().await.swap_remove(0);
            mismatches.check_equal(
                &case,
                turn["losses"].to_string().contains("reasoning_unclosed"),
                true,
            );
            let header = answer.header("x-throughline-loss");
            mismatches.check_equal(&case, header.contains("reasoning_unclosed=1"), !stream);
        }
    }
    bed.expect_no_refusals().await;
    mismatches.assert_none();
}

/// Covers: S2-16
#[tokio::test]
async fn separated_reasoning_is_remembered_across_a_restart() {
    let mut bed =
        TestBed::of_server("vllm", "qwq-32b", SEPARATED_SCENARIO, "variant = \"vllm\"").await;
    for (prompt, reasoning, text) in
        [("ponder", "I ponder.", "Green."), ("plain", "", "Just green.")]
    {
        let mut test_client = new_client("openai_chat");
        test_client.push_user(prompt);
        let (view, _) = bed.send(test_client.as_mut()).await;
        assert_eq!((view.reasoning.as_str(), view.text.as_str()), (reasoning, text));
        bed.stop().await;
        bed.gateway.restart().await;
    }
    bed.expect_no_refusals().await;
}
