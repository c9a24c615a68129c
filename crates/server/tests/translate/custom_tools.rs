//! Custom tools with free-text input, over providers that only have functions.

use http::Method;
use serde_json::{Value, json};
use throughline_testkit::Answer;

use crate::support::{BedOptions, TestBed, thinking_in};
use crate::test_client::{list, text};

const PATCH: &str = "*** Begin Patch\n+ \"one\"\n*** End Patch";

const SCENARIO: &str = r#"
[[step]]
when = { contains = "mend it" }
say = [{ thinking = "A patch is due." }, { tool = { name = "apply_patch", input = { input = "*** Begin Patch\n+ \"one\"\n*** End Patch" } } }]
[[step]]
when = { contains = "patched" }
say = [{ thinking = "It is mended." }, { text = "Done." }]
"#;

async fn over(row: &str) -> TestBed {
    TestBed::build(&BedOptions { upstreams: &[row], scenario: SCENARIO, ..BedOptions::default() })
        .await
}

async fn post(bed: &TestBed, path: &str, body: &Value) -> Answer {
    let headers = [("content-type", "application/json")];
    let body = body.to_string();
    let sent = bed.gateway.client.send(Method::POST, path, &headers, body);
    sent.await.expect_ok()
}

/// Returns the output items of a reply, streamed or not.
fn output(answer: &Answer, streamed: bool) -> Vec<Value> {
    if !streamed {
        return list(&answer.json()["output"]).cloned().collect();
    }
    let stream = answer.text();
    let data = stream.lines().filter_map(|line| line.strip_prefix("data: "));
    let events = data.map(|data| serde_json::from_str::<Value>(data).expect("JSON"));
    let done = events.filter(|event| event["type"] == "response.output_item.done");
    done.map(|event| event["item"].clone()).collect()
}

#[tokio::test]
async fn custom_tool_works_with_every_upstream() {
    let grammar = json!({"type": "grammar", "syntax": "lark", "definition": "start: /.+/"});
    let tool = json!({"type": "custom", "name": "apply_patch", "description": "Mends files.", "format": grammar});
    for row in ["anthropic, adaptive", "gemini 3", "vllm", "mistral"] {
        for streamed in [true, false] {
            let bed = over(row).await;
            let request = |input: &[Value]| {
                json!({"model": "m", "store": false, "stream": streamed, "input": input, "tools": [tool],
                    "tool_choice": "auto", "reasoning": {"effort": "high", "summary": "auto"},
                    "include": ["reasoning.encrypted_content"]})
            };
            let mut input = vec![json!({"role": "user", "content": "mend it"})];
            let answer = post(&bed, "/v1/responses", &request(&input)).await;
            let lost = answer.header("x-throughline-loss");
            assert!(lost.contains("setting_adapted=tool;reason=as_function"), "{row}: {lost}");
            let output_items = output(&answer, streamed);
            let call = output_items.last().expect("an item");
            assert_eq!(
                (&call["type"], &call["name"], &call["input"]),
                (&json!("custom_tool_call"), &json!("apply_patch"), &json!(PATCH)),
                "{row}: {output_items:?}"
            );
            let offered = bed.last_received(0).await.body;
            assert!(
                offered.contains("start: /.+/") && offered.contains("Mends files."),
                "{offered}"
            );

            let id = call["call_id"].clone();
            input.extend(output_items);
            input.push(json!({"type": "custom_tool_call_output", "call_id": id, "output": [
                {"type": "input_text", "text": "patched"},
                {"type": "input_image", "image_url": "data:image/png;base64,iVBORw0KGgo="},
            ]}));
            let answer = post(&bed, "/v1/responses", &request(&input)).await;
            let output_items = output(&answer, streamed);
            let done = |item: &Value| text(&item["content"][0]["text"]) == "Done.";
            assert!(output_items.iter().any(done), "{row}: {output_items:?}");
            let seen = bed.last_received(0).await.body;
            assert!(seen.contains("iVBORw0KGgo="), "{row}: {seen}");
            let seen: Value = serde_json::from_str(&seen).expect("JSON");
            assert!(thinking_in(&seen) > 0, "{row}: {seen}");
            bed.expect_no_refusals().await;
        }
    }
}

#[tokio::test]
async fn chat_client_can_force_a_custom_tool_by_name() {
    let bed = over("anthropic, adaptive").await;
    let tool =
        json!({"type": "custom", "custom": {"name": "apply_patch", "description": "Mends files."}});
    let mut body = json!({
        "model": "m", "messages": [{"role": "user", "content": "mend it"}], "tools": [tool],
        "tool_choice": {"type": "custom", "custom": {"name": "apply_patch"}},
    });
    let answer = post(&bed, "/v1/chat/completions", &body).await.json();
    let message = &answer["choices"][0]["message"];
    let call = &message["tool_calls"][0];
    assert_eq!(call["custom"], json!({"name": "apply_patch", "input": PATCH}), "{answer}");
    assert_eq!(answer["choices"][0]["finish_reason"], "tool_calls");
    let seen: Value = serde_json::from_str(&bed.last_received(0).await.body).expect("JSON");
    assert_eq!(seen["tool_choice"], json!({"type": "tool", "name": "apply_patch"}));

    let result = json!({"role": "tool", "tool_call_id": call["id"], "content": "patched"});
    let messages = body["messages"].as_array_mut().expect("messages");
    messages.extend([message.clone(), result]);
    body["tool_choice"] = "auto".into();
    let answer = post(&bed, "/v1/chat/completions", &body).await.json();
    assert_eq!(answer["choices"][0]["message"]["content"], "Done.");
    bed.expect_no_refusals().await;
}
