//! Unsigned reasoning: where replies show it, and when requests must or must not have it.

use serde_json::{Value, json};
use throughline_simulator::Options;

use crate::common::Server;
use crate::support::{
    accept, append, ask, asking, chunks, message, plain, refuse, say, set, streamed,
};

#[tokio::test]
async fn openai_counts_reasoning_without_showing_it() {
    let server = Server::strict().await;
    for model in ["o3", "gpt-5", "gpt-6-luna"] {
        let body = plain(model, "think twice");
        let reply = accept(&server, "", &body).await;
        assert!(reply["usage"]["completion_tokens_details"]["reasoning_tokens"].as_u64() > Some(0));
        let said = reply["choices"][0]["message"].as_object().unwrap();
        let members: Vec<&str> = said.keys().map(String::as_str).collect();
        assert_eq!(members, ["role", "content", "refusal", "annotations"]);
        let text = ask(&server, "", &streamed(&body)).await.text();
        assert!(!text.contains("reasoning_content") && !text.contains("\"reasoning\""));
    }
    let reply =
        accept(&server, "", &set(plain("gpt-6-luna", "hello"), "reasoning_effort", "none")).await;
    assert_eq!(reply["usage"]["completion_tokens_details"]["reasoning_tokens"], 0);
}

#[tokio::test]
async fn servers_without_reasoning_members_reject_them_on_every_role() {
    let server = Server::strict().await;
    let mut body = plain("qwen3-think-tags", "hello");
    accept(&server, "", &body).await;
    body["messages"][0]["reasoning_content"] = json!("Hm.");
    let error = refuse(&server, "", &body, "messages[0].reasoning_content").await;
    assert_eq!(error["param"], "messages[0].reasoning_content");
}

#[tokio::test]
async fn openai_rejects_members_for_reasoning() {
    let server = Server::strict().await;
    let mut body = plain("gpt-5", "hello");
    let said = message(&server, "", &body).await;
    append(&mut body, &said);
    say(&mut body, "go on");
    accept(&server, "", &body).await;
    for (key, value) in [
        ("reasoning_content", json!("Hm.")),
        ("reasoning", json!("Hm.")),
        ("reasoning_details", json!([])),
        ("thinking", json!("Hm.")),
        ("thinking_blocks", json!([])),
    ] {
        let mut body = body.clone();
        body["messages"][1][key] = value;
        let path = format!("messages[1].{key}");
        let error = refuse(&server, "", &body, &format!("Unknown parameter: '{path}'.")).await;
        assert_eq!((&error["param"], &error["code"]), (&json!(path), &json!("unknown_parameter")));
    }
}

#[tokio::test]
async fn deepseek_v4_requires_reasoning_on_every_message_while_it_thinks() {
    let server = Server::strict().await;
    let words = "The `reasoning_content` in the thinking mode must be passed back to the API.";
    let mut body = asking("deepseek-v4-pro", "use a tool");
    let said = message(&server, "", &body).await;
    assert!(said["reasoning_content"].is_string() && said["tool_calls"].is_array());
    append(&mut body, &said);
    accept(&server, "", &body).await;
    for value in [None, Some(Value::Null)] {
        let mut body = body.clone();
        body["messages"][2].as_object_mut().unwrap().remove("reasoning_content");
        if let Some(value) = value {
            body["messages"][2]["reasoning_content"] = value;
        }
        refuse(&server, "", &body, words).await;
        // A request without thinking needs no reasoning.
        accept(&server, "", &set(body, "thinking", json!({"type": "disabled"}))).await;
    }
    let mut wrong = body.clone();
    wrong["messages"][2]["reasoning_content"] = json!(["Hm."]);
    refuse(&server, "", &wrong, "Invalid type for 'messages[2].reasoning_content'").await;
    // An empty string stands for a message of another model.
    let mut plain = plain("deepseek-flash", "hello");
    append(&mut plain, &json!({"role": "assistant", "content": "Hello."}));
    say(&mut plain, "go on");
    refuse(&server, "", &plain, words).await;
    plain["messages"][1]["reasoning_content"] = "".into();
    accept(&server, "", &plain).await;
}

#[tokio::test]
async fn deepseek_v4_thinks_unless_switched_off() {
    let server = Server::strict().await;
    for (thinking, thinks) in [
        (Value::Null, true),
        (json!({"type": "enabled"}), true),
        (json!({"type": "disabled"}), false),
    ] {
        let body = set(plain("deepseek-v4-pro", "hello"), "thinking", thinking);
        let said = message(&server, "", &body).await;
        assert_eq!(said.get("reasoning_content").is_some(), thinks);
    }
    let body = plain("deepseek-v4-pro", "hello");
    for effort in ["low", "medium", "high", "xhigh", "max"] {
        accept(&server, "", &set(body.clone(), "reasoning_effort", effort)).await;
    }
    refuse(
        &server,
        "",
        &set(body.clone(), "reasoning_effort", "minimal"),
        "Invalid value: 'minimal'",
    )
    .await;
    refuse(
        &server,
        "",
        &set(body.clone(), "thinking", json!({"type": "loud"})),
        "Invalid value: 'loud'",
    )
    .await;
    refuse(&server, "", &set(body, "thinking", true), "Invalid type for 'thinking'").await;
}

#[tokio::test]
async fn deepseek_r1_rejects_reasoning_in_messages() {
    let server = Server::strict().await;
    let mut body = plain("deepseek-reasoner", "hello");
    let said = message(&server, "", &body).await;
    assert!(said["reasoning_content"].is_string());
    append(&mut body, &said);
    say(&mut body, "go on");
    refuse(&server, "", &body, "must not be passed back").await;
    body["messages"][1].as_object_mut().unwrap().remove("reasoning_content");
    accept(&server, "", &body).await;
}

#[tokio::test]
async fn think_tags_variant_writes_reasoning_into_the_content() {
    let server = Server::strict().await;
    let text = async |model: &str, text: &str| {
        let said = message(&server, "", &asking(model, text)).await;
        assert!(said.get("reasoning").is_none() && said.get("reasoning_content").is_none());
        said["content"].as_str().unwrap().to_owned()
    };
    let tagged = text("qwen3-think-tags", "hello").await;
    assert!(tagged.starts_with("<think>\n") && tagged.contains("\n</think>\n\n"));
    let twice = text("qwen3-think-tags", "think twice").await;
    assert_eq!(twice.matches("<think>").count(), 2);
    let implicit = text("qwen3-think-tags-implicit", "think twice").await;
    assert!(!implicit.starts_with("<think>"));
    assert_eq!(implicit.matches("<think>").count(), 1);
    assert_eq!(implicit.matches("</think>").count(), 2);
    let cut = set(asking("qwen3-think-tags", "hello"), "max_tokens", 10);
    let cut = message(&server, "", &cut).await;
    assert!(!cut["content"].as_str().unwrap().contains("</think>"));
    let off = set(
        asking("qwen3-think-tags", "hello"),
        "chat_template_kwargs",
        json!({"enable_thinking": false}),
    );
    assert!(!message(&server, "", &off).await["content"].as_str().unwrap().contains("think>"));
    let raw = set(plain("m", "hello"), "reasoning_format", "none");
    assert!(
        message(&server, "llamacpp", &raw).await["content"]
            .as_str()
            .unwrap()
            .starts_with("<think>")
    );
}

#[tokio::test]
async fn think_tags_variant_accepts_reasoning_only_in_the_content() {
    let server = Server::strict().await;
    let mut body = asking("qwen3-think-tags", "use a tool");
    let said = message(&server, "", &body).await;
    assert!(said["tool_calls"].is_array());
    append(&mut body, &said);
    accept(&server, "", &body).await;
    for key in ["reasoning_content", "reasoning", "reasoning_details", "thinking_blocks"] {
        let mut body = body.clone();
        body["messages"][2][key] = json!("Hm.");
        refuse(&server, "", &body, &format!("Unknown parameter: 'messages[2].{key}'.")).await;
    }
}

#[tokio::test]
async fn raw_calls_are_text_and_results_may_be_text_or_messages() {
    let server = Server::strict().await;
    let mut body = asking("qwen3-think-tags-raw-tools", "use a tool in parallel");
    let reply = accept(&server, "", &body).await;
    let choice = &reply["choices"][0];
    assert_eq!(choice["finish_reason"], "stop");
    assert!(choice["message"].get("tool_calls").is_none());
    let text = choice["message"]["content"].as_str().unwrap();
    let calls: Vec<&str> = text.split("<tool_call>").skip(1).collect();
    assert_eq!(calls.len(), 2);
    let call: Value = serde_json::from_str(calls[0].split("</tool_call>").next().unwrap()).unwrap();
    assert_eq!(call["name"], "lookup");
    assert!(call["arguments"]["k"].is_string());
    append(&mut body, &choice["message"]);
    let results = [
        json!({"role": "tool", "tool_call_id": "any", "content": "21 degrees"}),
        json!({"role": "user", "content": "<tool_response>21 degrees</tool_response>"}),
    ];
    for result in results {
        let mut body = body.clone();
        body["messages"].as_array_mut().unwrap().push(result);
        let said = message(&server, "", &body).await;
        assert!(said["content"].as_str().unwrap().contains("The tool says"), "{said}");
    }
}

#[tokio::test]
async fn reasoning_field_is_optional_and_must_be_a_string() {
    let server = Server::strict().await;
    for (variant, field) in [
        ("reasoning-field", "reasoning"),
        ("vllm", "reasoning"),
        ("groq", "reasoning"),
        ("sglang", "reasoning_content"),
        ("llamacpp", "reasoning_content"),
        ("qwen", "reasoning_content"),
        ("glm", "reasoning_content"),
        ("xai", "reasoning_content"),
    ] {
        let mut body = plain("m", "hello");
        if variant == "groq" {
            body["reasoning_format"] = "parsed".into();
        }
        let said = message(&server, variant, &body).await;
        assert!(said[field].is_string(), "{variant}");
        append(&mut body, &said);
        say(&mut body, "go on");
        accept(&server, variant, &body).await;
        let members = body["messages"][1].as_object_mut().unwrap();
        let text = members.remove(field).unwrap();
        accept(&server, variant, &body).await;
        for other in ["reasoning", "reasoning_content"] {
            let mut body = body.clone();
            body["messages"][1][other] = text.clone();
            accept(&server, variant, &body).await;
            body["messages"][1][other] = json!({"text": "Hm."});
            refuse(&server, variant, &body, &format!("Invalid type for 'messages[1].{other}'"))
                .await;
        }
    }
}

#[tokio::test]
async fn groq_leaves_reasoning_in_the_content_by_default() {
    let server = Server::strict().await;
    let groq = |model: &str, key: &str, value: Value| set(plain(model, "hello"), key, value);
    let usual = message(&server, "groq", &plain("qwen/qwen3-32b", "hello")).await;
    let content = usual["content"].as_str().unwrap();
    assert!(content.starts_with("<think>"), "{content}");
    let parsed = groq("qwen/qwen3-32b", "reasoning_format", json!("parsed"));
    let parsed = message(&server, "groq", &parsed).await;
    assert!(parsed["reasoning"].is_string(), "{parsed}");
    let hidden = groq("qwen/qwen3-32b", "reasoning_format", json!("hidden"));
    let hidden = message(&server, "groq", &hidden).await;
    assert_eq!(hidden.get("reasoning"), None, "{hidden}");
    let offering = set(asking("qwen/qwen3-32b", "hello"), "reasoning_effort", "default");
    let tools = message(&server, "groq", &offering).await;
    assert!(tools["reasoning"].is_string(), "{tools}");
    let graded = message(&server, "groq", &plain("openai/gpt-oss-20b", "hello")).await;
    assert!(graded["reasoning"].is_string(), "{graded}");
    let raw = set(offering, "reasoning_format", "raw");
    for (body, words) in [
        (groq("qwen/qwen3-32b", "reasoning_effort", json!("low")), "'low'"),
        (groq("openai/gpt-oss-20b", "reasoning_effort", json!("none")), "'none'"),
        (groq("openai/gpt-oss-20b", "reasoning_format", json!("parsed")), "reasoning_format"),
        (raw, "when using tools"),
    ] {
        refuse(&server, "groq", &body, words).await;
    }
}

#[tokio::test]
async fn google_writes_thoughts_into_the_content_on_request() {
    let server = Server::strict().await;
    let google = |config: Value| {
        let extra = json!({"google": {"thinking_config": config}});
        set(plain("gemini-3-pro", "hello"), "extra_body", extra)
    };
    let hidden = message(&server, "google", &plain("gemini-3-pro", "hello")).await;
    assert!(!hidden["content"].as_str().unwrap().contains("<thought>"));
    let body = google(json!({"include_thoughts": true, "thinking_level": "low"}));
    let shown = message(&server, "google", &body).await;
    let content = shown["content"].as_str().unwrap();
    assert!(content.starts_with("<thought>"), "{content}");
    assert!(content.contains("</thought>"), "{content}");
    assert_eq!(shown["extra_content"]["google"]["thought"], true);
    let chunks = chunks(&ask(&server, "google", &streamed(&body)).await);
    let deltas = chunks.iter().map(|chunk| &chunk["choices"][0]["delta"]);
    let pieces: String = deltas.filter_map(|delta| delta["content"].as_str()).collect();
    assert_eq!(pieces, content);
    let both = set(body, "reasoning_effort", "low");
    refuse(&server, "google", &both, "Expected one of either").await;
}

#[tokio::test]
async fn each_variant_has_its_own_thinking_switch() {
    let server = Server::strict().await;
    let off = json!({"enable_thinking": false});
    for (variant, key, value) in [
        ("qwen", "enable_thinking", json!(false)),
        ("qwen", "chat_template_kwargs", off.clone()),
        ("glm", "thinking", json!({"type": "disabled"})),
        ("vllm", "chat_template_kwargs", off.clone()),
        ("sglang", "chat_template_kwargs", off),
        ("llamacpp", "reasoning_effort", json!("none")),
        ("mistral", "reasoning_effort", json!("none")),
        ("openrouter", "reasoning", json!({"effort": "none"})),
        ("openrouter", "reasoning", json!({"enabled": false})),
        ("litellm", "reasoning_effort", json!("none")),
        ("xai", "reasoning_effort", json!("none")),
        ("groq", "reasoning_effort", json!("none")),
    ] {
        let reply = accept(&server, variant, &set(plain("m", "hello"), key, value)).await;
        let count = &reply["usage"]["completion_tokens_details"]["reasoning_tokens"];
        assert_eq!(count, 0, "{variant} {key}");
    }
    // This model only thinks less.
    let body = set(plain("glm-5.3", "hello"), "thinking", json!({"type": "disabled"}));
    assert!(message(&server, "glm", &body).await["reasoning_content"].is_string());
    for (variant, key, value, words) in [
        ("qwen", "enable_thinking", json!("yes"), "expected a boolean"),
        ("qwen", "thinking_budget", json!("much"), "expected an integer"),
        ("qwen", "preserve_thinking", json!(1), "expected a boolean"),
        (
            "glm",
            "thinking",
            json!({"type": "enabled", "clear_thinking": "no"}),
            "expected a boolean",
        ),
        ("glm", "reasoning_effort", json!("xhigh"), "Invalid value: 'xhigh'"),
        ("vllm", "chat_template_kwargs", json!(true), "expected an object"),
        ("openrouter", "reasoning", json!("high"), "expected an object"),
        ("openrouter", "reasoning", json!({"effort": "huge"}), "Invalid value: 'huge'"),
        ("mistral", "prompt_mode", json!("loud"), "Invalid value: 'loud'"),
    ] {
        refuse(&server, variant, &set(plain("m", "hello"), key, value), words).await;
    }
    let hidden = set(plain("m", "hello"), "reasoning", json!({"exclude": true}));
    let reply = accept(&server, "openrouter", &hidden).await;
    assert!(reply["choices"][0]["message"].get("reasoning").is_none());
    assert!(reply["usage"]["completion_tokens_details"]["reasoning_tokens"].as_u64() > Some(0));
}

#[tokio::test]
async fn mistral_requires_thinking_chunks_and_nine_character_ids() {
    let server = Server::strict().await;
    let mut body = asking("magistral-medium", "use a tool");
    let said = message(&server, "mistral", &body).await;
    assert_eq!(said["content"][0]["type"], "thinking");
    append(&mut body, &said);
    accept(&server, "mistral", &body).await;
    // Ids of calls have their own rule.
    let id = said["tool_calls"][0]["id"].as_str().unwrap();
    let other = body.to_string().replace(id, "call_1");
    refuse(
        &server,
        "mistral",
        &serde_json::from_str(&other).unwrap(),
        "Tool call id was call_1 but must be",
    )
    .await;
    let mut wrong = body.clone();
    wrong["messages"][2]["content"][0]["thinking"] = "Hm.".into();
    refuse(&server, "mistral", &wrong, "Invalid type for 'messages[2].content[0].thinking'").await;
    let mut wrong = body.clone();
    wrong["messages"][2]["reasoning_content"] = "Hm.".into();
    refuse(&server, "mistral", &wrong, "Unknown parameter: 'messages[2].reasoning_content'").await;
    // Other variants reject such chunks.
    for variant in ["vllm", "qwen", "openai"] {
        refuse(
            &server,
            variant,
            &set(body.clone(), "reasoning_effort", "none"),
            "Invalid value: 'thinking'",
        )
        .await;
    }
}

#[tokio::test]
async fn reasoning_streams_before_the_text() {
    let server = Server::strict().await;
    let found = chunks(&ask(&server, "", &streamed(&plain("deepseek-v4-pro", "hello"))).await);
    let place = |key: &str| {
        let mut places = (0..found.len()).filter(|at| {
            found[*at]["choices"][0]["delta"][key].as_str().is_some_and(|text| !text.is_empty())
        });
        (places.next().unwrap(), places.next_back().unwrap())
    };
    assert!(place("reasoning_content").1 < place("content").0);
    // For many clients, content next to a thought ends the thought.
    for chunk in &found {
        let delta = &chunk["choices"][0]["delta"];
        assert!(delta.get("reasoning_content").is_none() || delta.get("content").is_none());
    }
}

#[tokio::test]
async fn chat_accepts_any_json_object_without_strict() {
    let server = Server::start(Options { strict: false, ..Options::default() }).await;
    for body in [
        json!({}),
        json!({"model": 7, "messages": "hi", "tools": {}, "stop": 3, "n": "x"}),
        json!({"model": "gpt-6-astra", "tools": [{}, 3], "messages": [3, {"role": "tool"}, {"role": "assistant", "content": [{}], "reasoning_details": "x", "tool_calls": [{}]}]}),
        json!({"model": "deepseek-v4", "messages": [{"role": "assistant", "content": "x"}]}),
    ] {
        accept(&server, "", &body).await;
    }
    refuse(&server, "", &json!([]), "could not parse the JSON body").await;
}
