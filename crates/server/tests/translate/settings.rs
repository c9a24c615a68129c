//! Settings and parts of a request other than text, and how upstreams of other dialects receive
//! them.

use serde_json::{Value, json};

use crate::support::{BedOptions, CLIENTS, Mismatches, TestBed, new_client, upstream};
use crate::test_client::{ClientRequest, list, parameters, send, text};

const ROWS: [&str; 4] = ["anthropic, adaptive", "gemini 3", "openai_responses", "vllm"];

const PIXEL: &str = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==";

fn schema() -> Value {
    json!({"type": "object", "properties": {"row": {"type": "string"}}, "required": ["row"], "additionalProperties": false})
}

/// Returns a request with every setting of its dialect, and their names.
fn request_with_settings(dialect: &str) -> (Value, &'static [&'static str]) {
    let picture = format!("data:image/png;base64,{PIXEL}");
    match dialect {
        "anthropic" => (
            json!({
                "model": "some-model", "max_tokens": 500, "system": "Be terse.",
                "stop_sequences": ["END"],
                "output_config": {"format": {"type": "json_schema", "schema": schema()}},
                "tools": [{"name": "lookup", "input_schema": parameters()}],
                "tool_choice": {"type": "auto", "disable_parallel_tool_use": true},
                "messages": [
                    {"role": "user", "content": [
                        {"type": "text", "text": "look"},
                        {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PIXEL}},
                    ]},
                    {"role": "assistant", "content": [{"type": "tool_use", "id": "toolu_1", "name": "lookup", "input": {"key": "7"}}]},
                    {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "toolu_1", "content": "no such row", "is_error": true}]},
                    {"role": "assistant", "content": "Blue."},
                    {"role": "user", "content": "plain, please"},
                    {"role": "system", "content": "In French now."},
                ],
            }),
            &["system", "limit", "stop", "schema", "image", "error", "single", "aside"],
        ),
        "openai_chat" => (
            json!({
                "model": "some-model", "max_completion_tokens": 500, "stop": ["END"],
                "response_format": {"type": "json_schema", "json_schema": {"name": "row", "schema": schema(), "strict": true}},
                "tools": [{"type": "function", "function": {"name": "lookup", "parameters": parameters()}}],
                "parallel_tool_calls": false,
                "messages": [
                    {"role": "system", "content": "Be terse."},
                    {"role": "user", "content": [
                        {"type": "text", "text": "look"}, {"type": "image_url", "image_url": {"url": picture}},
                    ]},
                    {"role": "assistant", "content": null, "tool_calls": [
                        {"id": "call_1", "type": "function", "function": {"name": "lookup", "arguments": "{\"key\":\"7\"}"}},
                    ]},
                    {"role": "tool", "tool_call_id": "call_1", "content": "no such row"},
                    {"role": "assistant", "content": "Blue."},
                    {"role": "user", "content": "plain, please"},
                    {"role": "developer", "content": "In French now."},
                ],
            }),
            &["system", "limit", "stop", "schema", "image", "single", "aside"],
        ),
        "openai_responses" => (
            json!({
                "model": "some-model", "max_output_tokens": 500, "instructions": "Be terse.", "store": false,
                "text": {"format": {"type": "json_schema", "name": "row", "schema": schema(), "strict": true}},
                "tools": [{"type": "function", "name": "lookup", "parameters": parameters(), "strict": false}],
                "parallel_tool_calls": false,
                "input": [
                    {"role": "user", "content": [
                        {"type": "input_text", "text": "look"}, {"type": "input_image", "image_url": picture, "detail": "auto"},
                    ]},
                    {"type": "function_call", "call_id": "call_1", "name": "lookup", "arguments": "{\"key\":\"7\"}"},
                    {"type": "function_call_output", "call_id": "call_1", "output": "no such row"},
                    {"role": "assistant", "content": "Blue."},
                    {"role": "user", "content": "plain, please"},
                    {"role": "developer", "content": "In French now."},
                ],
            }),
            &["system", "limit", "schema", "image", "single", "aside"],
        ),
        _ => (
            json!({
                "system_instruction": {"parts": [{"text": "Be terse."}]},
                "generation_config": {
                    "max_output_tokens": 500, "stop_sequences": ["END"],
                    "response_mime_type": "application/json", "response_json_schema": schema(),
                },
                "tools": [{"function_declarations": [{"name": "lookup", "parameters_json_schema": parameters()}]}],
                "contents": [
                    {"role": "user", "parts": [{"text": "look"}, {"inline_data": {"mime_type": "image/png", "data": PIXEL}}]},
                    {"role": "model", "parts": [{"function_call": {"name": "lookup", "args": {"key": "7"}}}]},
                    {"role": "user", "parts": [{"function_response": {"name": "lookup", "response": {"error": "no such row"}}}]},
                    {"role": "model", "parts": [{"text": "Blue."}]},
                    {"role": "user", "parts": [{"text": "plain, please"}]},
                ],
            }),
            &["system", "limit", "stop", "schema", "image", "error"],
        ),
    }
}

/// Whether a setting arrived in an upstream request, or `None` if the dialect has no such setting.
fn setting_arrived(dialect: &str, setting: &str, body: &Value) -> Option<bool> {
    let at = |pointer: &str| body.pointer(pointer).cloned().unwrap_or_default();
    let any = |pointer: &str, test: &dyn Fn(&Value) -> bool| list(&at(pointer)).any(test);
    let url = format!("data:image/png;base64,{PIXEL}");
    let whole = body.to_string();
    Some(match (dialect, setting) {
        ("anthropic", "system") => at("/system/0/text") == "Be terse.",
        ("anthropic", "limit") => at("/max_tokens") == 500,
        ("anthropic", "stop") => at("/stop_sequences") == json!(["END"]),
        ("anthropic", "schema") => at("/output_config/format/schema") == schema(),
        ("anthropic", "image") => at("/messages/0/content/1/source/data") == PIXEL,
        ("anthropic", "error") => at("/messages/2/content/0/is_error") == true,
        ("anthropic", "single") => at("/tool_choice/disable_parallel_tool_use") == true,
        ("anthropic", "aside") => any("/messages", &|message| {
            message["role"] == "system" && message.to_string().contains("In French now.")
        }),
        ("gemini", "system") => at("/systemInstruction/parts/0/text") == "Be terse.",
        ("gemini", "limit") => at("/generationConfig/maxOutputTokens") == 500,
        ("gemini", "stop") => at("/generationConfig/stopSequences") == json!(["END"]),
        ("gemini", "schema") => at("/generationConfig/responseJsonSchema") == schema(),
        ("gemini", "image") => at("/contents/0/parts/1/inlineData/data") == PIXEL,
        ("gemini", "error") => whole.contains("\"response\":{\"error\":\"no such row\"}"),
        ("gemini", "aside") => {
            let last = list(&at("/contents")).last().cloned().unwrap_or_default();
            last.to_string().contains("In French now.")
        }
        ("openai_responses", "system") => at("/instructions") == "Be terse.",
        ("openai_responses", "limit") => at("/max_output_tokens") == 500,
        ("openai_responses", "schema") => at("/text/format/schema") == schema(),
        ("openai_responses", "image") => at("/input/0/content/1/image_url") == url.as_str(),
        ("openai_responses", "single") => at("/parallel_tool_calls") == false,
        ("openai_responses", "aside") => any("/input", &|item| {
            item["role"] == "developer" && item.to_string().contains("In French now.")
        }),
        ("openai_chat", "system") => at("/messages/0/content") == "Be terse.",
        ("openai_chat", "limit") => at("/max_tokens") == 500,
        ("openai_chat", "stop") => at("/stop") == json!(["END"]),
        ("openai_chat", "schema") => at("/response_format/json_schema/schema") == schema(),
        ("openai_chat", "image") => whole.contains(&format!("\"image_url\":{{\"url\":\"{url}\"}}")),
        ("openai_chat", "single") => at("/parallel_tool_calls") == false,
        ("openai_chat", "aside") => any("/messages", &|message| {
            text(&message["role"]) == "system" && message["content"] == "In French now."
        }),
        _ => return None,
    })
}

#[tokio::test]
async fn every_setting_reaches_every_upstream_or_is_reported_as_lost() {
    let mut mismatches = Mismatches::default();
    for row in ROWS {
        let to = upstream(row).dialect;
        let bed = TestBed::over(&[row]).await;
        for dialect in CLIENTS {
            if dialect == to {
                continue;
            }
            let mut test_client = new_client(dialect);
            test_client.push_user("plain");
            let (body, settings) = request_with_settings(dialect);
            let ClientRequest { path, mut headers, .. } =
                test_client.next_request("some-model", false);
            headers.push(("x-throughline-accept-loss", "stop"));
            let request = ClientRequest { path, headers, body };
            let answer = send(&request, &bed.gateway.client).await;
            let case = format!("{dialect} over {row}");
            mismatches.check(answer.status == 200, format!("{case}: {}", answer.text()));
            let body = bed.last_received(0).await.json();
            let losses = answer.header("x-throughline-loss");
            for setting in settings {
                let reported = match *setting {
                    "stop" => losses.contains("part_omitted=stop;"),
                    "error" => losses.contains("part_omitted=tool_result.is_error;"),
                    "single" => losses.contains("part_omitted=parallel_tool_calls;"),
                    _ => false,
                };
                let got = setting_arrived(to, setting, &body).unwrap_or(reported);
                mismatches.check(got, format!("{case}: {setting} ({losses}) {body}"));
            }
            // The reply contains the client's name of the tool.
            let named = ["model", "modelVersion"].map(|name| answer.json()[name].clone());
            let named = named.contains(&"some-model".into());
            mismatches.check(named, format!("{case}: {}", answer.text()));
        }
        bed.expect_no_refusals().await;
    }
    mismatches.assert_none();
}

/// A model that thinks by default still has to be asked to show its thinking.
#[tokio::test]
async fn request_for_visible_thinking_without_an_amount_shows_it() {
    let mut mismatches = Mismatches::default();
    let thoughts = json!({"google": {"thinking_config": {"include_thoughts": true}}});
    for (row, tools, expected) in [
        ("google", true, json!({"extra_body": thoughts})),
        ("google", false, json!({"extra_body": thoughts})),
        ("groq", true, json!({"reasoning_effort": "default", "reasoning_format": "parsed"})),
        ("groq", false, json!({"reasoning_effort": "default", "reasoning_format": "parsed"})),
    ] {
        for stream in [true, false] {
            let bed = TestBed::over(&[row]).await;
            let mut test_client = new_client("anthropic");
            test_client.push_user("ponder this");
            let mut request = test_client.next_request("some-model", stream);
            request.body["thinking"] = json!({"type": "adaptive"});
            if !tools {
                request.body.as_object_mut().expect("a body").remove("tools");
            }
            let answer = send(&request, &bed.gateway.client).await.expect_ok();
            let content = test_client.read(&answer.text(), stream);
            let case = format!("{row}, tools: {tools}, streamed: {stream}");
            mismatches.check_equal(&case, content.reasoning.as_str(), "First this, then that.");
            mismatches.check_equal(&case, content.text.as_str(), "I have thought.");
            let body = bed.last_received(0).await.json();
            let members = ["extra_body", "reasoning_effort", "reasoning_format"];
            let sent: serde_json::Map<_, _> = members
                .into_iter()
                .filter_map(|name| Some((name.to_owned(), body.get(name)?.clone())))
                .collect();
            mismatches.check_equal(&case, Value::Object(sent), expected.clone());
            bed.expect_no_refusals().await;
        }
    }
    mismatches.assert_none();
}

#[tokio::test]
async fn schema_is_adapted_for_a_provider_that_refuses_bounds_and_open_objects() {
    let bed = TestBed::over(&["anthropic, adaptive"]).await;
    let body = json!({"contents": [{"role": "user", "parts": [{"text": "plain, please"}]}], "generationConfig": {
        "responseMimeType": "application/json",
        "responseSchema": {"type": "OBJECT", "properties": {"age": {"type": "INTEGER", "minimum": 0}}, "required": ["age"]},
    }});
    let headers = [("content-type", "application/json")];
    let path = "/v1beta/models/m:generateContent";
    let sent = bed.gateway.client.send(http::Method::POST, path, &headers, body.to_string());
    let answer = sent.await.expect_ok();
    assert_eq!(answer.header("x-throughline-loss"), "setting_adapted=output;reason=schema");
    let seen: Value = serde_json::from_str(&bed.last_received(0).await.body).expect("JSON");
    assert_eq!(
        seen["output_config"]["format"]["schema"],
        json!({"type": "object", "properties": {"age": {"type": "integer", "description": "{minimum: 0}"}},
            "required": ["age"], "additionalProperties": false})
    );
    bed.expect_no_refusals().await;
}

#[tokio::test]
async fn tool_name_refused_by_the_provider_is_mapped_and_restored() {
    let says = r#"
[[step]]
when = { contains = "look" }
say = [{ thinking = "I need a row." }, { tool = { name = "rows_lookup_2", input = { key = "7" } } }]
[[step]]
when = { contains = "blue" }
say = [{ text = "It is blue." }]
"#;
    for row in ["anthropic, adaptive", "openai_responses", "openai"] {
        let bed = TestBed::build(&BedOptions {
            upstreams: &[row],
            scenario: says,
            ..BedOptions::default()
        })
        .await;
        let declare = |name: &str| json!({"name": name, "parametersJsonSchema": parameters()});
        let mut body = json!({
            "contents": [{"role": "user", "parts": [{"text": "look"}]}],
            "tools": [{"functionDeclarations": [declare("rows_lookup"), declare("rows.lookup")]}],
        });
        let headers = [("content-type", "application/json")];
        let send = |body: &Value| {
            let path = "/v1beta/models/m:generateContent";
            let body = body.to_string();
            bed.gateway.client.send(http::Method::POST, path, &headers, body)
        };
        let answer = send(&body).await.expect_ok();
        let lost = answer.header("x-throughline-loss");
        assert!(lost.contains("setting_adapted=tool.name;reason=characters"), "{lost}");
        let answer = answer.json();
        let content = answer["candidates"][0]["content"].clone();
        let call = list(&content["parts"]).find(|part| part.get("functionCall").is_some());
        let call = call.expect("a call")["functionCall"].clone();
        assert_eq!(call["name"], "rows.lookup", "{row}: {answer}");

        let given = json!({"functionResponse": {"id": call["id"], "name": "rows.lookup", "response": {"row": "blue"}}});
        let contents = body["contents"].as_array_mut().expect("contents");
        contents.extend([content, json!({"role": "user", "parts": [given]})]);
        let answer = send(&body).await.expect_ok().text();
        assert!(answer.contains("It is blue."), "{row}: {answer}");
        let seen = bed.last_received(0).await.body;
        assert!(!seen.contains("rows.lookup"), "{row}: {seen}");
        bed.expect_no_refusals().await;
    }
}
