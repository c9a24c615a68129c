//! Settings without which the caller would get something else, and parts that only a provider has:
//! they are honoured, refused by name, or given up because the caller or the operator accepts that.

use serde_json::{Value, json};
use throughline_testkit::{Answer, block_fates};

use crate::chat::Chat;
use crate::gemini::{Dropped, Gemini};
use crate::support::{BedOptions, Mismatches, TestBed, new_client};
use crate::test_client::{ClientRequest, TestClient, list, send, text};

const ACCEPT: &str = "x-throughline-accept-loss";

/// A client, a setting of its dialect, an upstream that cannot honour it, the member that the error
/// names, and the loss if it is accepted.
type Case = (&'static str, fn() -> Value, &'static str, &'static str, &'static str);

const CASES: &[Case] = &[
    (
        "openai_chat",
        || json!({"n": 2}),
        "anthropic, adaptive",
        "n",
        "setting_adapted=n;reason=one_answer",
    ),
    ("openai_chat", || json!({"n": 3}), "gemini 3", "n", "setting_adapted=n;reason=one_answer"),
    (
        "openai_chat",
        || json!({"logprobs": true, "top_logprobs": 2}),
        "gemini 3",
        "logprobs",
        "part_omitted=logprobs;reason=no_word",
    ),
    (
        "openai_chat",
        || json!({"stop": ["END"]}),
        "openai_responses",
        "stop",
        "part_omitted=stop;reason=no_place",
    ),
    (
        "openai_chat",
        || json!({"stop": "\n"}),
        "anthropic, adaptive",
        "stop",
        "part_omitted=stop;reason=characters",
    ),
    (
        "openai_chat",
        || json!({"response_format": {"type": "json_object"}}),
        "anthropic, adaptive",
        "response_format",
        "setting_adapted=output;reason=json_without_schema",
    ),
    (
        "openai_responses",
        || json!({"top_logprobs": 3}),
        "anthropic, adaptive",
        "top_logprobs",
        "part_omitted=logprobs;reason=no_word",
    ),
    (
        "openai_responses",
        || json!({"include": ["message.output_text.logprobs"]}),
        "ollama",
        "top_logprobs",
        "part_omitted=logprobs;reason=no_word",
    ),
    (
        "openai_responses",
        || json!({"text": {"format": {"type": "json_schema", "name": "row", "schema": {"type": "object"}}}}),
        "deepseek-v4",
        "text.format",
        "setting_adapted=output;reason=no_place",
    ),
    (
        "anthropic",
        || json!({"stop_sequences": ["END"]}),
        "openai_responses",
        "stop_sequences",
        "part_omitted=stop;reason=no_place",
    ),
    (
        "anthropic",
        || json!({"stop_sequences": ["1", "2", "3", "4", "5", "6"]}),
        "gemini 3",
        "stop_sequences",
        "setting_adapted=stop;reason=too_many",
    ),
    (
        "anthropic",
        || json!({"output_config": {"format": {"type": "json_schema", "schema": {"type": "object"}}}}),
        "glm",
        "output_config.format",
        "setting_adapted=output;reason=no_place",
    ),
    (
        "gemini",
        || json!({"generationConfig": {"candidateCount": 2}}),
        "vllm",
        "generationConfig.candidateCount",
        "setting_adapted=n;reason=one_answer",
    ),
    (
        "gemini",
        || json!({"generation_config": {"response_logprobs": true}}),
        "ollama",
        "generationConfig.responseLogprobs",
        "part_omitted=logprobs;reason=no_word",
    ),
    (
        "gemini",
        || json!({"generationConfig": {"stopSequences": ["END"]}}),
        "openai_responses",
        "generationConfig.stopSequences",
        "part_omitted=stop;reason=no_place",
    ),
    (
        "anthropic",
        || {
            json!({"messages": [{"role": "user", "content": [
                {"type": "text", "text": "plain, please"},
                {"type": "document", "source": {"type": "file", "file_id": "file_1"}},
            ]}]})
        },
        "gemini 3",
        "file_id",
        "part_omitted=media.file;reason=foreign_file",
    ),
    ("anthropic", container_upload, "gemini 3", "file_id", FOREIGN_FILE),
    ("anthropic", container_upload, "openai_responses", "file_id", FOREIGN_FILE),
    ("anthropic", container_upload, "deepseek-v4", "file_id", FOREIGN_FILE),
    ("anthropic", container_upload, "ollama", "file_id", FOREIGN_FILE),
    (
        "openai_chat",
        || {
            json!({"messages": [{"role": "user", "content": [
                {"type": "text", "text": "plain, please"},
                {"type": "file", "file": {"file_id": "file-1"}},
            ]}]})
        },
        "anthropic, adaptive",
        "file.file_id",
        "part_omitted=media.file;reason=foreign_file",
    ),
    (
        "openai_responses",
        || {
            json!({"input": [{"role": "user", "content": [
                {"type": "input_text", "text": "plain, please"},
                {"type": "input_image", "file_id": "file-1"},
            ]}]})
        },
        "deepseek-v4",
        "file_id",
        "part_omitted=media.file;reason=foreign_file",
    ),
    (
        "gemini",
        || {
            json!({"contents": [{"role": "user", "parts": [
                {"text": "plain, please"},
                {"fileData": {"fileUri": "https://generativelanguage.googleapis.com/v1beta/files/a"}},
            ]}]})
        },
        "ollama",
        "fileData.fileUri",
        "part_omitted=media.file;reason=foreign_file",
    ),
    (
        "gemini",
        || json!({"cachedContent": "cachedContents/a"}),
        "anthropic, adaptive",
        "cachedContent",
        "part_omitted=cached_content;reason=foreign_dialect",
    ),
    (
        "gemini",
        || json!({"cached_content": "cachedContents/a"}),
        "vllm",
        "cachedContent",
        "part_omitted=cached_content;reason=foreign_dialect",
    ),
    ("anthropic", || json!({"container": "container_1"}), "vllm", "container", CONTAINER),
    (
        "anthropic",
        || json!({"container": {"id": "container_1", "skills": []}}),
        "openai_responses",
        "container",
        CONTAINER,
    ),
    ("openai_chat", spoken_answer, "anthropic, adaptive", "audio.id", SPOKEN),
    ("openai_chat", spoken_answer, "gemini 3", "audio.id", SPOKEN),
    ("openai_chat", spoken_answer, "openai_responses", "audio.id", SPOKEN),
    ("openai_chat", spoken_answer, "ollama", "audio.id", SPOKEN),
    (
        "openai_chat",
        || json!({"modalities": ["text", "audio"]}),
        "anthropic, adaptive",
        "modalities",
        "part_omitted=modalities;reason=foreign_dialect",
    ),
    (
        "gemini",
        || json!({"generationConfig": {"responseModalities": ["TEXT", "IMAGE"]}}),
        "ollama",
        "generationConfig.responseModalities",
        "part_omitted=modalities;reason=foreign_dialect",
    ),
    (
        "openai_responses",
        || json!({"prompt": {"id": "pmpt_1"}}),
        "gemini 3",
        "prompt",
        "part_omitted=prompt;reason=foreign_dialect",
    ),
];

const CONTAINER: &str = "part_omitted=container;reason=foreign_dialect";
const SPOKEN: &str = "part_omitted=audio;reason=foreign_file";
const FOREIGN_FILE: &str = "part_omitted=media.file;reason=foreign_file";

/// A file for the tools of Anthropic's own servers.
fn container_upload() -> Value {
    json!({"messages": [{"role": "user", "content": [
        {"type": "text", "text": "plain, please"},
        {"type": "container_upload", "file_id": "file_1"},
    ]}]})
}

/// A conversation with an answer that its provider spoke and stores.
fn spoken_answer() -> Value {
    json!({"messages": [
        {"role": "user", "content": "sing"},
        {"role": "assistant", "audio": {"id": "audio_1"}},
        {"role": "user", "content": "plain, please"},
    ]})
}

/// A request with a setting.
fn request(dialect: &str, setting: &Value, accept: Option<&'static str>) -> ClientRequest {
    let mut test_client = new_client(dialect);
    test_client.set_thinking(false);
    test_client.push_user("plain, please");
    let mut request = test_client.next_request("some-model", false);
    let body = request.body.as_object_mut().expect("a body");
    body.remove("tools");
    body.remove("generationConfig");
    for (name, value) in setting.as_object().expect("settings") {
        body.insert(name.clone(), value.clone());
    }
    request.headers.extend(accept.map(|accept| (ACCEPT, accept)));
    request
}

/// The words of an error, in any dialect.
fn message(answer: &Answer) -> String {
    answer.json()["error"]["message"].as_str().unwrap_or_default().to_owned()
}

#[tokio::test]
async fn setting_that_cannot_be_honoured_is_refused_by_name_unless_the_caller_accepts() {
    let mut mismatches = Mismatches::default();
    for (dialect, setting, row, member, loss) in CASES {
        let bed = TestBed::over(&[row]).await;
        let case = format!("{dialect}: {} over {row}", setting());
        let term =
            loss.split_once('=').and_then(|(_, rest)| rest.split_once(';')).expect("a loss").0;
        let refused = send(&request(dialect, &setting(), None), &bed.gateway.client).await;
        mismatches.check_equal(&case, refused.status, 400);
        let words = message(&refused);
        let named = words.starts_with(&format!("{member}: ")) && words.contains(ACCEPT);
        mismatches.check(named, format!("{case}: {}", refused.text()));
        if dialect.starts_with("openai") {
            mismatches.check_equal(&case, &refused.json()["error"]["param"], &json!(member));
        }
        mismatches.check_equal(&case, bed.simulators[0].received().await.len(), 0);

        let names: [&'static str; 3] = ["*", term, member];
        for accept in names {
            let request = request(dialect, &setting(), Some(accept));
            let answer = send(&request, &bed.gateway.client).await;
            mismatches.check(answer.status == 200, format!("{case}: {}", answer.text()));
            let losses = answer.header("x-throughline-loss");
            mismatches.check(losses.contains(loss), format!("{case}, {accept}: {losses}"));
        }
        let other = send(&request(dialect, &setting(), Some("seed")), &bed.gateway.client).await;
        mismatches.check_equal(&case, other.status, 400);
        bed.expect_no_refusals().await;
    }
    mismatches.assert_none();
}

/// Every model answers in text, so asking for that is no loss.
#[tokio::test]
async fn answers_as_text_are_no_loss() {
    for (dialect, setting) in [
        ("openai_chat", json!({"modalities": ["text"]})),
        ("gemini", json!({"generationConfig": {"responseModalities": ["TEXT"]}})),
        ("anthropic", json!({"container": null})),
    ] {
        let bed = TestBed::over(&["vllm"]).await;
        let answer = send(&request(dialect, &setting, None), &bed.gateway.client).await.expect_ok();
        let losses = answer.header("x-throughline-loss");
        assert!(!losses.contains("odalities") && !losses.contains("container"), "{losses}");
        bed.expect_no_refusals().await;
    }
}

/// The provider knows what it stores; the gateway passes its refusal on.
#[tokio::test]
async fn stored_parts_pass_to_a_backend_of_the_same_dialect() {
    for (dialect, row, known, unknown) in [
        (
            "anthropic",
            "anthropic, adaptive",
            json!({"container": "container_stored"}),
            json!({"container": "container_1"}),
        ),
        (
            "gemini",
            "gemini 3",
            json!({"cachedContent": "cachedContents/stored"}),
            json!({"cachedContent": "cachedContents/a"}),
        ),
        ("openai_chat", "openai", stored_file("file-stored"), stored_file("file-1")),
    ] {
        let bed = TestBed::over(&[row]).await;
        let answer = send(&request(dialect, &known, None), &bed.gateway.client).await;
        assert_eq!(answer.status, 200, "{row}: {}", answer.text());
        let refused = send(&request(dialect, &unknown, None), &bed.gateway.client).await;
        assert_eq!(refused.status, 404, "{row}: {}", refused.text());
        assert_eq!(bed.into_refusals().await.len(), 1, "{row}");
    }
}

/// A question about a file of the chat dialect.
fn stored_file(id: &str) -> Value {
    json!({"messages": [{"role": "user", "content": [
        {"type": "text", "text": "plain, please"}, {"type": "file", "file": {"file_id": id}},
    ]}]})
}

#[tokio::test]
async fn operator_accepts_the_loss_for_a_backend() {
    let bed = TestBed::build(&BedOptions {
        upstreams: &["anthropic, adaptive"],
        backend: "strict_settings = false",
        ..BedOptions::default()
    })
    .await;
    let answer = send(&request("openai_chat", &json!({"n": 2}), None), &bed.gateway.client).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    assert!(answer.header("x-throughline-loss").contains("setting_adapted=n;"));
    bed.expect_no_refusals().await;
}

#[tokio::test]
async fn all_refused_settings_are_named_at_once() {
    let bed = TestBed::over(&["anthropic, adaptive"]).await;
    let setting = json!({"n": 2, "logprobs": true, "temperature": 0.1, "seed": 7});
    let refused = send(&request("openai_chat", &setting, None), &bed.gateway.client).await;
    assert_eq!(refused.status, 400);
    let words = message(&refused);
    assert!(words.starts_with("n: ") && words.contains("`logprobs`"), "{words}");
    assert!(words.contains("x-throughline-accept-loss: n, logprobs"), "{words}");
    let accepted = request("openai_chat", &setting, Some("n, logprobs"));
    let answer = send(&accepted, &bed.gateway.client).await.expect_ok();
    // Settings that only tune are adapted, and reported by name.
    assert!(answer.header("x-throughline-loss").contains("part_omitted=seed;"));
}

#[tokio::test]
async fn several_answers_and_probabilities_pass_to_a_server_of_the_same_dialect() {
    for row in ["vllm", "llamacpp", "openai"] {
        let bed = TestBed::over(&[row]).await;
        let setting = json!({"n": 2, "logprobs": true});
        let answer = send(&request("openai_chat", &setting, None), &bed.gateway.client).await;
        assert_eq!(answer.status, 200, "{row}: {}", answer.text());
        let sent = bed.last_received(0).await.json();
        assert_eq!((&sent["n"], &sent["logprobs"]), (&json!(2), &json!(true)), "{row}");
        assert_eq!(answer.json()["choices"].as_array().map(Vec::len), Some(2), "{row}");
        bed.expect_no_refusals().await;
    }
}

/// Dropped thinking goes back in a translated request, and that has neither several answers nor
/// probabilities. What the caller asks for is served, and the thinking is reported.
#[tokio::test]
async fn native_settings_are_honoured_if_the_client_dropped_its_thinking() {
    let mut mismatches = Mismatches::default();
    let omitted = "thinking_omitted=1;reason=shape";
    for (row, settings, pointer, loss) in [
        ("vllm", json!({"logprobs": true}), "/logprobs", omitted),
        ("deepseek-v4", json!({"n": 2}), "/n", omitted),
        (
            "gemini 3",
            json!({"generationConfig": {"responseLogprobs": true}}),
            "/generationConfig/responseLogprobs",
            "part_omitted=tool_call.signature;reason=unknown",
        ),
    ] {
        let bed = TestBed::over(&[row]).await;
        let mut test_client: Box<dyn TestClient> = match row {
            "gemini 3" => Box::new(Gemini::dropping(Dropped::All)),
            _ => Box::new(Chat::new(false)),
        };
        test_client.set_thinking(true);
        test_client.offer_tool();
        test_client.push_user("use one tool");
        let (view, _) = bed.send(test_client.as_mut()).await;
        test_client.push_results(&view.calls, "row green");
        let mut request = test_client.next_request("some-model", false);
        for (name, value) in settings.as_object().expect("settings") {
            request.body[name] = value.clone();
        }
        let answer = send(&request, &bed.gateway.client).await;
        mismatches.check(answer.status == 200, format!("{row}: {}", answer.text()));
        let sent = bed.last_received(0).await.json();
        mismatches.check_equal(row, sent.pointer(pointer), settings.pointer(pointer));
        let losses = answer.header("x-throughline-loss");
        mismatches.check_equal(row, losses, loss);
        let turn = bed.gateway.turn_of(&answer).await;
        mismatches.check_equal(row, text(&turn["lane"]), "through");
        if loss == omitted {
            mismatches.check_equal(row, block_fates(&turn), ["left_out shape"]);
        }
        bed.expect_no_refusals().await;
    }
    mismatches.assert_none();
}

/// The entries of the probabilities in a reply, streamed or whole.
fn probabilities(answer: &Answer) -> Vec<Value> {
    let text = answer.text();
    let events = text.lines().filter_map(|line| line.strip_prefix("data: {"));
    let mut replies: Vec<Value> =
        events.map(|event| serde_json::from_str(&format!("{{{event}")).expect("JSON")).collect();
    if replies.is_empty() {
        replies.push(answer.json());
    }
    let entries =
        replies.iter().flat_map(|reply| list(&reply["choices"][0]["logprobs"]["content"]));
    entries.cloned().collect()
}

#[tokio::test]
async fn probabilities_reach_the_client_streamed_and_whole() {
    for row in ["openai", "vllm", "llamacpp", "deepseek-v4", "think-tags"] {
        let bed = TestBed::over(&[row]).await;
        let ask = async |stream: bool| {
            let setting = json!({"logprobs": true, "top_logprobs": 2, "stream": stream});
            let mut request = request("openai_chat", &setting, None);
            // The body passes as it is, and this server has another switch for thinking.
            if row == "deepseek-v4" {
                request.body.as_object_mut().expect("a body").remove("reasoning_effort");
            }
            let answer = send(&request, &bed.gateway.client).await;
            assert_eq!(answer.status, 200, "{row}: {}", answer.text());
            answer
        };
        let whole = ask(false).await;
        let streamed = ask(true).await;
        let entries = probabilities(&whole);
        let tokens: String = entries.iter().map(|entry| text(&entry["token"])).collect();
        assert_eq!(whole.json()["choices"][0]["message"]["content"], tokens, "{row}");
        assert!(!tokens.is_empty(), "{row}");
        assert_eq!(probabilities(&streamed), entries, "{row}");
        bed.expect_no_refusals().await;
    }
}

#[tokio::test]
async fn members_that_only_another_dialect_has_are_reported_by_name() {
    let bed = TestBed::over(&["anthropic, adaptive"]).await;
    let setting = json!({"store": true, "logit_bias": {"5": 1}, "metadata": {"secret": "x"}});
    let request = request("openai_chat", &setting, None);
    let answer = send(&request, &bed.gateway.client).await.expect_ok();
    let losses = answer.header("x-throughline-loss");
    for name in ["store", "logit_bias", "metadata"] {
        let loss = format!("part_omitted={name};reason=foreign_dialect");
        assert!(losses.contains(&loss), "{losses}");
    }
    assert!(!losses.contains("secret"), "{losses}");
    bed.expect_no_refusals().await;
}

#[tokio::test]
async fn output_limit_is_never_raised() {
    for (row, dialect, setting, pointer) in [
        ("openai_responses", "anthropic", json!({"max_tokens": 20}), "/max_output_tokens"),
        (
            "anthropic, budget",
            "openai_chat",
            json!({"max_completion_tokens": 1500, "reasoning_effort": "high"}),
            "/max_tokens",
        ),
        (
            "anthropic, budget",
            "openai_responses",
            json!({"max_output_tokens": 900, "reasoning": {"effort": "high"}}),
            "/max_tokens",
        ),
        (
            "gemini 2.5",
            "openai_chat",
            json!({"max_completion_tokens": 600, "reasoning_effort": "high"}),
            "/generationConfig/maxOutputTokens",
        ),
    ] {
        let bed = TestBed::over(&[row]).await;
        let asked = setting.as_object().expect("settings").values().find_map(Value::as_u64);
        let answer = send(&request(dialect, &setting, None), &bed.gateway.client).await;
        assert_eq!(answer.status, 200, "{row}: {}", answer.text());
        let sent = bed.last_received(0).await.json();
        assert_eq!(sent.pointer(pointer).and_then(Value::as_u64), asked, "{row}: {sent}");
        bed.expect_no_refusals().await;
    }
}

#[tokio::test]
async fn structured_output_fits_its_schema_over_every_dialect() {
    let schema = json!({"type": "object", "additionalProperties": false, "required": ["city", "days"],
        "properties": {"city": {"type": "string"}, "days": {"type": "integer"}}});
    for row in ["anthropic, adaptive", "gemini 3", "openai_responses", "vllm", "ollama"] {
        // No step fits, so that the simulator answers by itself.
        let scenario = "[[step]]\nwhen = { contains = \"never\" }\nsay = [{ text = \"no\" }]";
        let options = BedOptions { upstreams: &[row], scenario, ..BedOptions::default() };
        let bed = TestBed::build(&options).await;
        for dialect in ["anthropic", "openai_chat", "openai_responses", "gemini"] {
            let setting = match dialect {
                "anthropic" => {
                    json!({"output_config": {"format": {"type": "json_schema", "schema": schema}}})
                }
                "openai_chat" => json!({"response_format": {"type": "json_schema", "json_schema":
                    {"name": "trip", "strict": true, "schema": schema}}}),
                "openai_responses" => {
                    json!({"text": {"format": {"type": "json_schema", "name": "trip",
                    "strict": true, "schema": schema}}})
                }
                _ => {
                    json!({"generationConfig": {"responseMimeType": "application/json", "responseJsonSchema": schema}})
                }
            };
            let mut test_client = new_client(dialect);
            test_client.set_thinking(false);
            let answer = send(&request(dialect, &setting, None), &bed.gateway.client).await;
            assert_eq!(answer.status, 200, "{dialect} over {row}: {}", answer.text());
            let text = test_client.read(&answer.text(), false).text;
            let value: Value = serde_json::from_str(&text)
                .unwrap_or_else(|error| panic!("{dialect} over {row}: {error}: {text}"));
            let fits = value["city"].is_string() && value["days"].is_i64();
            assert!(fits, "{dialect} over {row}: {value}");
        }
        bed.expect_no_refusals().await;
    }
}
