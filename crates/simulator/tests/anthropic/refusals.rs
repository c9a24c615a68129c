//! Requests of the wrong shape, each with one that passes.

use crate::common::{Server, adaptive, append, lookup, manual, say};
use serde_json::{Value, json};
use throughline_simulator::Options;

const SONNET: &str = "claude-sonnet-4-5";
const BETA: [(&str, &str); 1] =
    [("anthropic-beta", "claude-code-20250219, context-management-2025-06-27")];

fn plain(model: &str) -> Value {
    json!({"model": model, "max_tokens": 4096, "messages": [{"role": "user", "content": "hi"}]})
}

fn talk(messages: impl Into<Value>) -> Value {
    json!({"model": SONNET, "max_tokens": 64, "messages": messages.into()})
}

fn set(mut body: Value, key: &str, value: Value) -> Value {
    body[key] = value;
    body
}

#[tokio::test]
async fn missing_and_mistyped_members_are_rejected() {
    let server = Server::strict().await;
    server.accept(&plain(SONNET)).await;
    for key in ["model", "max_tokens", "messages"] {
        let mut body = plain(SONNET);
        body.as_object_mut().unwrap().remove(key);
        server.refuse(&body, &format!("{key}: Field required")).await;
    }
    for (key, value, text) in [
        ("messages", json!([]), "messages: at least one message is required"),
        ("messages", json!("hi"), "messages: Input should be a valid list"),
        ("model", json!(""), "model: String should have at least 1 character"),
        ("max_tokens", json!(-1), "max_tokens: Input should be greater than or equal to 0"),
        ("max_tokens", json!("many"), "max_tokens: Input should be a valid integer"),
        ("stream", json!("yes"), "stream: Input should be a valid boolean"),
        ("system", json!(7), "system: Input should be a valid list"),
        (
            "system",
            json!([{"type": "text", "text": ""}]),
            "system: text content blocks must be non-empty",
        ),
        ("tools", json!({}), "tools: Input should be a valid list"),
        ("tools", json!([lookup(), lookup()]), "tools: Tool names must be unique."),
        ("tools", json!([{}]), "tools.0.custom.name: Field required"),
        ("tool_choice", json!({"type": "tool", "name": "x"}), "Tool 'x' not found"),
        ("tool_choice", json!("auto"), "tool_choice: Input should be"),
        ("output_config", json!({"effort": "huge"}), "output_config.effort: Input should be"),
        (
            "output_config",
            json!({"other": 1}),
            "output_config.other: Extra inputs are not permitted",
        ),
    ] {
        server.refuse(&set(plain(SONNET), key, value), text).await;
    }
    server.accept(&set(plain(SONNET), "max_tokens", json!(0))).await;
}

#[tokio::test]
async fn unknown_members_are_rejected_and_beta_members_need_a_beta() {
    let server = Server::strict().await;
    server
        .refuse(&set(plain(SONNET), "foo", json!(1)), "foo: Extra inputs are not permitted")
        .await;
    server.refuse_with(&set(plain(SONNET), "foo", json!(1)), &BETA, "foo: Extra inputs").await;
    let edits = set(plain(SONNET), "context_management", json!({"edits": []}));
    server.refuse(&edits, "context_management: Extra inputs are not permitted").await;
    server.accept_with(&edits, &BETA).await;
    let known = json!({"metadata": {"user_id": "u"}, "service_tier": "auto", "speed": "standard",
        "cache_control": {"type": "ephemeral"}, "stop_sequences": ["zzz"], "temperature": 0.5});
    let mut body = plain(SONNET);
    body.as_object_mut().unwrap().extend(known.as_object().unwrap().clone());
    server.accept(&body).await;
    let mut counted = plain(SONNET);
    let path = "/v1/messages/count_tokens";
    let answer = server.post_to(path, &counted, &[]).await;
    answer.assert_refused(
        400,
        "invalid_request_error",
        "max_tokens: Extra inputs are not permitted",
    );
    counted.as_object_mut().unwrap().remove("max_tokens");
    assert_eq!(server.post_to(path, &counted, &[]).await.status, 200);
}

#[tokio::test]
async fn missing_version_and_key_are_rejected() {
    let server = Server::strict().await;
    let body = plain(SONNET).to_string();
    let answer = server.send("POST", "/v1/messages", &[], body.as_bytes()).await;
    answer.assert_refused(400, "invalid_request_error", "anthropic-version: header is required");
    let wrong = [("anthropic-version", "1999-01-01")];
    server.refuse_with(&plain(SONNET), &wrong, "\"1999-01-01\" is not a valid version").await;
    let keyed = Server::start(Options { require_key: true, ..Options::default() }).await;
    let answer = keyed.post(&plain(SONNET), &[]).await;
    answer.assert_refused(401, "authentication_error", "x-api-key header is required");
    for key in [("x-api-key", "any"), ("authorization", "Bearer any")] {
        keyed.accept_with(&plain(SONNET), &[key]).await;
    }
}

#[tokio::test]
async fn new_version_rejects_sampling() {
    let server = Server::strict().await;
    let new = [("anthropic-version", "2026-10-21")];
    server.accept_with(&plain(SONNET), &new).await;
    for (key, value) in [("temperature", json!(1)), ("top_p", json!(1)), ("top_k", json!(40))] {
        let body = set(plain(SONNET), key, value.clone());
        server.accept(&body).await;
        server.refuse_with(&body, &new, &format!("{key}: Extra inputs are not permitted")).await;
        server
            .refuse(&set(plain("claude-opus-5"), key, value), "is deprecated for this model")
            .await;
    }
    let thinking = manual(SONNET, "hi");
    server
        .refuse(
            &set(thinking.clone(), "temperature", json!(0.5)),
            "`temperature` may only be set to 1",
        )
        .await;
    server.accept(&set(thinking.clone(), "temperature", json!(1))).await;
    server.refuse(&set(thinking.clone(), "top_k", json!(5)), "`top_k` must be unset").await;
    server.refuse(&set(thinking, "top_p", json!(0.5)), "`top_p` must be greater").await;
    let cited = talk(
        json!([{"role": "user", "content": [{"type": "text", "text": "a", "citations": [{}]}]}]),
    );
    server.accept(&cited).await;
    server.refuse_with(&cited, &new, "citations: Extra inputs are not permitted").await;
    let document = talk(json!([{"role": "user", "content": "a"},
        {"role": "assistant", "content": [{"type": "document", "source": {}}]}, {"role": "user", "content": "b"}]));
    server.accept(&document).await;
    server.refuse_with(&document, &new, "messages.1.content.0: `document`").await;
}

#[tokio::test]
async fn model_decides_which_thinking_modes_are_valid() {
    let server = Server::strict().await;
    let adaptive = json!({"type": "adaptive"});
    let enabled = json!({"type": "enabled", "budget_tokens": 1024});
    let disabled = json!({"type": "disabled"});
    let between = json!({"type": "between_tools"});
    // Per model: adaptive, enabled, disabled, disabled at max effort, between_tools.
    let table = [
        ("claude-haiku-4-5", [false, true, true, true, false]),
        ("claude-sonnet-4-6", [true, true, true, true, false]),
        ("claude-opus-4-7", [true, false, true, true, false]),
        ("claude-opus-4-8", [true, false, true, true, false]),
        ("claude-sonnet-5", [true, false, true, true, false]),
        ("claude-opus-5", [true, false, true, false, false]),
        ("claude-haiku-5-5", [true, false, true, false, false]),
        ("claude-fable-5", [true, false, false, false, false]),
        ("claude-mythos-5-1", [true, false, false, false, false]),
        ("claude-opus-5-5", [true, false, false, false, false]),
        ("claude-sonnet-5-5", [true, false, false, false, true]),
        ("kimi-k3", [true, true, true, true, true]),
    ];
    for (model, allowed) in table {
        let max = match model {
            // It has no efforts.
            "claude-haiku-4-5" => plain(model),
            _ => set(plain(model), "output_config", json!({"effort": "max"})),
        };
        let bodies = [
            ("adaptive", set(plain(model), "thinking", adaptive.clone())),
            ("enabled", set(plain(model), "thinking", enabled.clone())),
            ("disabled", set(plain(model), "thinking", disabled.clone())),
            ("disabled", set(max, "thinking", disabled.clone())),
            ("between_tools", set(plain(model), "thinking", between.clone())),
        ];
        for ((kind, body), allowed) in bodies.into_iter().zip(allowed) {
            if allowed {
                server.accept(&body).await;
            } else {
                server
                    .refuse(
                        &body,
                        &format!("\"thinking.type.{kind}\" is not supported for this model"),
                    )
                    .await;
            }
        }
    }
    let words = "\"thinking.type.enabled\" is not supported for this model. Use \"thinking.type.adaptive\" and \"output_config.effort\" to control thinking behavior.";
    server.refuse(&set(plain("claude-opus-5"), "thinking", enabled), words).await;
    let max = set(plain("claude-sonnet-5-5"), "output_config", json!({"effort": "max"}));
    server.refuse(&set(max, "thinking", between), "requires \"output_config.effort\"").await;
}

#[tokio::test]
async fn budget_has_a_minimum_and_is_below_max_tokens() {
    let server = Server::strict().await;
    let budget = |budget: Value| {
        set(plain(SONNET), "thinking", json!({"type": "enabled", "budget_tokens": budget}))
    };
    server.accept(&budget(json!(1024))).await;
    server.accept(&budget(json!(4095))).await;
    server
        .refuse(
            &budget(json!(1023)),
            "thinking.enabled.budget_tokens: Input should be greater than or equal to 1024",
        )
        .await;
    server.refuse(&budget(json!(0)), "greater than or equal to 1024").await;
    server
        .refuse(&budget(json!(4096)), "`max_tokens` must be greater than `thinking.budget_tokens`")
        .await;
    server.refuse(&budget(json!("all")), "budget_tokens: Input should be a valid integer").await;
    server
        .refuse(
            &set(plain(SONNET), "thinking", json!({"type": "enabled"})),
            "budget_tokens: Field required",
        )
        .await;
}

#[tokio::test]
async fn thinking_rejects_members_of_other_modes() {
    let server = Server::strict().await;
    for (thinking, text) in [
        (
            json!({"type": "adaptive", "budget_tokens": 1024}),
            "thinking.adaptive.budget_tokens: Extra inputs",
        ),
        (
            json!({"type": "disabled", "display": "omitted"}),
            "thinking.disabled.display: Extra inputs",
        ),
        (
            json!({"type": "adaptive", "display": "loud"}),
            "thinking.adaptive.display: Input should be",
        ),
        (
            json!({"type": "adaptive", "display": "updates"}),
            "thinking.adaptive.display: Input should be",
        ),
        (json!({"type": "sometimes"}), "Input tag 'sometimes'"),
        (json!({}), "thinking.type: Field required"),
        (json!("on"), "thinking: Input should be a valid dictionary"),
    ] {
        server.refuse(&set(plain("claude-opus-5"), "thinking", thinking), text).await;
    }
    let updates =
        set(plain("claude-opus-5"), "thinking", json!({"type": "adaptive", "display": "updates"}));
    server
        .accept_with(&updates, &[("anthropic-beta", "thinking-display-updates-2026-08-18")])
        .await;
    let bare = set(plain("claude-opus-5-5"), "thinking", json!({"block_binding": {}}));
    server.accept_with(&bare, &[("anthropic-beta", "thinking-binding-controls-2026-08-01")]).await;
}

#[tokio::test]
async fn model_decides_whether_a_forced_tool_is_valid() {
    let server = Server::strict().await;
    let text = "Thinking may not be enabled when tool_choice forces tool use.";
    for choice in [json!({"type": "any"}), json!({"type": "tool", "name": "lookup"})] {
        let forced =
            |body: Value| set(set(body, "tools", json!([lookup()])), "tool_choice", choice.clone());
        for model in [
            SONNET,
            "claude-opus-4-6",
            "claude-opus-4-8",
            "claude-opus-5",
            "claude-haiku-5-5",
            "glm-5",
        ] {
            server.accept(&forced(plain(model))).await;
        }
        server.accept(&forced(adaptive("claude-opus-4-6", "hi"))).await;
        for body in [
            manual(SONNET, "hi"),
            manual("claude-opus-4-6", "hi"),
            plain("claude-fable-5-1"),
            plain("claude-opus-5-5"),
            plain("claude-sonnet-5-5"),
        ] {
            server.refuse(&forced(body), text).await;
        }
    }
}

#[tokio::test]
async fn messages_need_valid_content() {
    let server = Server::strict().await;
    let user = |content: Value| json!({"role": "user", "content": content});
    let assistant = |content: Value| json!({"role": "assistant", "content": content});
    let text = |text: &str| json!([{"type": "text", "text": text}]);
    server.accept(&talk(json!([user(text("a")), assistant(text("b")), user(json!("c"))]))).await;
    server.accept(&talk(json!([user(json!("a")), user(json!("b"))]))).await;
    server.accept(&talk(json!([user(json!("a")), {"role": "system", "content": "note"}]))).await;
    server.accept(&talk(json!([user(json!("a")), assistant(json!(""))]))).await;
    let empty = "messages.1: all messages must have non-empty content except for the optional final assistant message";
    for (messages, expected) in [
        (json!([user(json!("a")), assistant(json!([])), user(json!("c"))]), empty),
        (json!([user(json!("a")), assistant(json!("")), user(json!("c"))]), empty),
        (json!([user(text(""))]), "messages: text content blocks must be non-empty"),
        (
            json!([user(text(" \n"))]),
            "messages: text content blocks must contain non-whitespace text",
        ),
        (json!([user(Value::Null)]), "messages.0.content: Input should be a valid list"),
        (json!([{"role": "user"}]), "messages.0.content: Field required"),
        (json!([{"role": "tool", "content": "a"}]), "messages.0.role: Input should be"),
        (json!(["a"]), "messages.0: Input should be a valid dictionary"),
        (
            json!([{"role": "user", "content": "a", "name": "x"}]),
            "messages.0.name: Extra inputs are not permitted",
        ),
        (json!([user(json!([{"text": "a"}]))]), "messages.0.content.0.type: Field required"),
        (json!([user(json!([{"type": "song"}]))]), "Input tag 'song'"),
        (
            json!([user(json!([{"type": "thinking", "thinking": "", "signature": ""}]))]),
            "not allowed in `user` messages",
        ),
        (
            json!([{"role": "system", "content": [{"type": "image"}]}]),
            "not allowed in `system` messages",
        ),
    ] {
        server.refuse(&talk(messages), expected).await;
    }
}

#[tokio::test]
async fn prefill_is_rejected_from_4_6_on() {
    let server = Server::strict().await;
    let mut body = plain(SONNET);
    body["messages"].as_array_mut().unwrap().push(json!({"role": "assistant", "content": "Well"}));
    for (model, allowed) in
        [(SONNET, true), ("glm-5", true), ("claude-sonnet-4-6", false), ("claude-opus-5-5", false)]
    {
        let body = set(body.clone(), "model", model.into());
        if allowed {
            server.accept(&body).await;
        } else {
            server.refuse(&body, "does not support assistant message prefill").await;
        }
    }
}

#[tokio::test]
async fn every_call_needs_exactly_one_result() {
    let server = Server::strict().await;
    let mut body = manual("glm-5", "use a tool in parallel");
    body.as_object_mut().unwrap().remove("thinking");
    let message = server.accept(&body).await;
    append(&mut body, &message);
    server.accept(&body).await;
    let first = body["messages"][2]["content"][0]["tool_use_id"].as_str().unwrap().to_owned();
    let second = body["messages"][2]["content"][1]["tool_use_id"].as_str().unwrap().to_owned();

    let mut foreign = body.clone();
    foreign["messages"][2]["content"][1]["tool_use_id"] = "toolu_x".into();
    server.refuse(&foreign, "messages.2.content.1: unexpected `tool_use_id` found in `tool_result` blocks: toolu_x. Each `tool_result` block must have a corresponding `tool_use` block in the previous message.").await;
    let mut lacking = body.clone();
    lacking["messages"][2]["content"].as_array_mut().unwrap().pop();
    server.refuse(&lacking, &format!("messages.1: `tool_use` ids were found without `tool_result` blocks immediately after: {second}. Each `tool_use` block must have a corresponding `tool_result` block in the next message.")).await;
    let mut double = body.clone();
    let result = double["messages"][2]["content"][0].clone();
    double["messages"][2]["content"].as_array_mut().unwrap().push(result);
    server.refuse(&double, &format!("Found multiple `tool_result` blocks with id: {first}")).await;
    let mut repeated = body.clone();
    repeated["messages"][1]["content"][2]["id"] = first.into();
    server.refuse(&repeated, "messages: `tool_use` ids must be unique").await;
    let mut late = body.clone();
    let results = late["messages"].as_array_mut().unwrap().pop().unwrap();
    server.refuse(&late, "ids were found without `tool_result` blocks").await;
    say(&mut late, "wait");
    server.refuse(&late, "ids were found without `tool_result` blocks").await;
    late["messages"].as_array_mut().unwrap().push(results.clone());
    server.accept(&late).await;
    late["messages"]
        .as_array_mut()
        .unwrap()
        .insert(3, json!({"role": "assistant", "content": "hm"}));
    server.refuse(&late, "ids were found without `tool_result` blocks").await;
    let mut noted = body.clone();
    noted["messages"]
        .as_array_mut()
        .unwrap()
        .insert(2, json!({"role": "system", "content": "note"}));
    server.accept(&noted).await;
}

#[tokio::test]
async fn invalid_json_is_rejected() {
    let server = Server::strict().await;
    let headers = [("anthropic-version", "2023-06-01")];
    let deep = "[".repeat(5000);
    for body in ["", "{", "nonsense", "\u{0}", deep.as_str()] {
        let answer = server.send("POST", "/v1/messages", &headers, body.as_bytes()).await;
        answer.assert_refused(400, "invalid_request_error", "not valid JSON");
    }
    let answer = server.send("POST", "/v1/messages", &headers, b"[1]").await;
    answer.assert_refused(400, "invalid_request_error", "valid dictionary");
}

#[tokio::test]
async fn anthropic_accepts_any_json_object_without_strict() {
    let server = Server::start(Options { strict: false, ..Options::default() }).await;
    for body in [
        json!({}),
        json!({"messages": "x", "tools": 3, "thinking": [], "tool_choice": 1, "system": {}}),
        json!({"model": 7, "messages": [null, 1, "a", {"role": "assistant", "content": [{"type": "thinking"}]}]}),
        json!({"model": "claude-opus-5-5", "thinking": {"type": "enabled"}, "tools": [null, {}],
               "messages": [{"role": "user", "content": "use a tool"}]}),
    ] {
        let answer = server.send("POST", "/v1/messages", &[], body.to_string().as_bytes()).await;
        assert_eq!(answer.status, 200, "{body}");
        assert_eq!(answer.json()["role"], "assistant");
        // The strict simulator refuses all of them without a panic.
        let strict = Server::strict().await;
        assert_eq!(strict.post(&body, &[]).await.status, 400);
    }
    let answer = server.send("POST", "/v1/messages", &[], b"{").await;
    answer.assert_refused(400, "invalid_request_error", "not valid JSON");
}

#[tokio::test]
async fn effort_that_a_model_lacks_is_rejected() {
    let server = Server::strict().await;
    let with =
        |model: &str, effort: &str| set(plain(model), "output_config", json!({"effort": effort}));
    server.accept(&with("claude-opus-4-6", "max")).await;
    let levels = "This model does not support effort level 'xhigh'. Supported levels: high, low, max, medium.";
    server.refuse(&with("claude-opus-4-6", "xhigh"), levels).await;
    let none = "This model does not support the effort parameter.";
    server.refuse(&with(SONNET, "low"), none).await;
}

#[tokio::test]
async fn model_that_no_table_knows_rejects_its_thinking_settings() {
    let server = Server::strict().await;
    let with = |model: &str, thinking: Value| set(plain(model), "thinking", thinking);
    let (adaptive, budget) =
        (json!({"type": "adaptive"}), json!({"type": "enabled", "budget_tokens": 1024}));
    let off = json!({"type": "disabled"});
    server.accept(&with("always-adaptive", adaptive.clone())).await;
    server.accept(&with("always-budget", budget.clone())).await;
    server.accept(&with("between-tools", json!({"type": "between_tools"}))).await;
    for (model, setting, kind) in [
        ("always-adaptive", &budget, "enabled"),
        ("always-adaptive", &off, "disabled"),
        ("always-budget", &adaptive, "adaptive"),
        ("always-budget", &off, "disabled"),
        ("between-tools", &off, "disabled"),
    ] {
        let words = format!("\"thinking.type.{kind}\" is not supported for this model.");
        server.refuse(&with(model, setting.clone()), &words).await;
    }
}
