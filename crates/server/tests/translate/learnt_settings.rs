//! Models that no table knows and that refuse a thinking setting: the gateway learns it, repairs the
//! request, and never sends the refused setting again. What a caller sets itself passes.

use serde_json::{Value, json};
use throughline_testkit::{Answer, Gateway, Simulator, block_fates};

use crate::support::{BINARY, Mismatches};

/// The body of a request with this thinking setting.
type Body = fn() -> Value;

/// A case: the client's path and body, the upstream's dialect and model, the words of the refusal, and
/// a pointer into the repaired request with its value.
type Case = (&'static str, Body, &'static str, &'static str, &'static str, (&'static str, Value));

fn message() -> Value {
    json!([{"role": "user", "content": "ponder this"}])
}

fn chat_with_effort() -> Value {
    json!({"model": "m", "messages": message(), "reasoning_effort": "max"})
}

fn chat_without_thinking() -> Value {
    json!({"model": "m", "messages": message(), "reasoning_effort": "none"})
}

fn messages_with_budget() -> Value {
    json!({"model": "m", "max_tokens": 40_000, "messages": message(),
        "thinking": {"type": "enabled", "budget_tokens": 16_384}})
}

fn messages_without_thinking() -> Value {
    json!({"model": "m", "max_tokens": 40_000, "messages": message(),
        "thinking": {"type": "disabled"}})
}

fn adaptive_messages() -> Value {
    json!({"model": "m", "max_tokens": 40_000, "messages": message(),
        "thinking": {"type": "adaptive"}})
}

const CHAT: &str = "/v1/chat/completions";
const MESSAGES: &str = "/v1/messages";

fn cases() -> Vec<Case> {
    let unsupported = "is not supported for this model";
    vec![
        (
            CHAT,
            chat_without_thinking,
            "anthropic",
            "always-adaptive",
            unsupported,
            ("/output_config/effort", json!("low")),
        ),
        (
            CHAT,
            chat_with_effort,
            "anthropic",
            "always-adaptive",
            "does not support effort level 'max'",
            ("/output_config/effort", json!("high")),
        ),
        (
            CHAT,
            chat_with_effort,
            "anthropic",
            "always-budget",
            "\"thinking.type.adaptive\" is not supported",
            ("/thinking/type", json!("enabled")),
        ),
        (
            CHAT,
            chat_without_thinking,
            "anthropic",
            "between-tools",
            unsupported,
            ("/thinking/type", json!("between_tools")),
        ),
        (
            MESSAGES,
            messages_with_budget,
            "gemini",
            "only-levels",
            "budget is not supported",
            ("/generationConfig/thinkingConfig/thinkingLevel", json!("MEDIUM")),
        ),
        (
            MESSAGES,
            messages_with_budget,
            "gemini",
            "only-budgets",
            "between 2048 and 8192",
            ("/generationConfig/thinkingConfig/thinkingBudget", json!(8192)),
        ),
        (
            MESSAGES,
            messages_without_thinking,
            "gemini",
            "only-budgets",
            "only works in thinking mode",
            ("/generationConfig/thinkingConfig/thinkingBudget", json!(2048)),
        ),
        (
            MESSAGES,
            messages_without_thinking,
            "gemini",
            "only-levels",
            "budget is not supported",
            ("/generationConfig/thinkingConfig/thinkingLevel", json!("MINIMAL")),
        ),
        (
            CHAT,
            chat_with_effort,
            "openai_responses",
            "few-efforts",
            "Unsupported value: 'max'",
            ("/reasoning/effort", json!("high")),
        ),
        (
            MESSAGES,
            messages_without_thinking,
            "openai_responses",
            "few-efforts",
            "Unsupported value: 'none'",
            ("/reasoning/effort", json!("low")),
        ),
        (
            MESSAGES,
            adaptive_messages,
            "openai_responses",
            "never-thinks",
            "Unsupported parameter",
            ("/reasoning", Value::Null),
        ),
    ]
}

/// Starts a gateway over one simulator. Every name of the client means this model, or itself.
async fn gateway_over(simulator: &Simulator, dialect: &str, models: &str) -> Gateway {
    let config = format!(
        "[[backend]]\nname = \"a\"\ndialect = \"{dialect}\"\nbase_url = \"{}\"\n{models}\n",
        simulator.url
    );
    Gateway::start(BINARY, &config).await
}

fn mapped(model: &str) -> String {
    format!("models = {{ \"*\" = \"{model}\" }}")
}

/// The refusals among the requests after the first `skip`.
async fn refusals(simulator: &Simulator, skip: usize) -> Vec<String> {
    let received = simulator.received().await;
    received.into_iter().skip(skip).map(|seen| seen.refusal).collect()
}

#[tokio::test]
async fn refused_setting_is_repaired_and_remembered() {
    let mut mismatches = Mismatches::default();
    for (path, body, dialect, model, words, (pointer, expected)) in cases() {
        let case = format!("{path} over {dialect} {model} ({words})");
        let simulator = Simulator::start("a").await;
        let mut gateway = gateway_over(&simulator, dialect, &mapped(model)).await;
        let answer = gateway.client.post(path, &[], &body()).await;
        mismatches.check_equal(&case, answer.status, 200);
        let seen = refusals(&simulator, 0).await;
        // This one also has to learn the form and the range of its setting.
        let tries = if words.contains("thinking mode") { 4 } else { 2 };
        let refused = seen.first().is_some_and(|first| first.contains(words));
        mismatches.check(refused && seen.len() == tries, format!("{case}: {seen:?}"));
        let sent = simulator.last_received().await.json();
        let found = sent.pointer(pointer).cloned().unwrap_or_default();
        mismatches.check_equal(&case, found, expected);

        // It is known from now on, also after a restart.
        for restarts in [false, true] {
            if restarts {
                gateway.signal("TERM").await;
                gateway.wait_for_exit().await;
                gateway.restart().await;
            }
            gateway.client.post(path, &[], &body()).await.expect_ok();
        }
        mismatches.check_equal(&case, refusals(&simulator, tries).await, vec![String::new(); 2]);
    }
    mismatches.assert_none();
}

/// The client chose its setting for another model, so the gateway adapts it in place.
#[tokio::test]
async fn refused_setting_of_a_mapped_model_is_repaired_on_the_through_lane() {
    for (body, kind) in [
        (messages_without_thinking as Body, "adaptive"),
        (messages_with_budget, "adaptive"),
        (adaptive_messages, "adaptive"),
    ] {
        let simulator = Simulator::start("a").await;
        let gateway = gateway_over(&simulator, "anthropic", &mapped("always-adaptive")).await;
        let sent = body();
        let answer = gateway.client.post(MESSAGES, &[], &sent).await;
        assert_eq!(answer.status, 200, "{sent}: {}", answer.text());
        let received = simulator.last_received().await.json();
        assert_eq!(received["thinking"]["type"], kind, "{received}");
        let turn = gateway.turn_of(&answer).await;
        assert_eq!(turn["lane"], "through");
    }
}

/// The caller's own setting passes, and its refusal too.
#[tokio::test]
async fn callers_own_setting_is_refused_by_the_provider_alone() {
    let simulator = Simulator::start("a").await;
    let gateway = gateway_over(&simulator, "anthropic", "").await;
    let mut body = messages_without_thinking();
    body["model"] = "always-adaptive".into();
    for sent in 1..=2 {
        let answer = gateway.client.post(MESSAGES, &[], &body).await;
        assert_eq!(answer.status, 400, "{}", answer.text());
        assert!(answer.text().contains("thinking.type.disabled"), "{}", answer.text());
        let received = simulator.received().await;
        assert_eq!(received.len(), sent, "nothing is repaired");
        assert_eq!(received[sent - 1].json()["thinking"], body["thinking"]);
    }
}

/// Returns the reply's content and the results of its calls as the next messages.
fn continue_loop(body: &mut Value, answer: &Answer) {
    let content = answer.json()["content"].clone();
    let calls =
        content.as_array().expect("blocks").iter().filter(|block| block["type"] == "tool_use");
    let results: Vec<Value> = calls
        .map(|call| json!({"type": "tool_result", "tool_use_id": call["id"], "content": "row green"}))
        .collect();
    assert!(!results.is_empty(), "{content}");
    let messages = body["messages"].as_array_mut().expect("messages");
    messages.push(json!({"role": "assistant", "content": content}));
    messages.push(json!({"role": "user", "content": results}));
}

/// The loop began elsewhere, and its thinking cannot be read. The gateway turns thinking off, the model
/// refuses that, and the loop goes on as text.
#[tokio::test]
async fn open_loop_goes_on_at_a_model_that_refuses_off() {
    let (a, b) = (Simulator::start("a").await, Simulator::start("b").await);
    let gateway = Gateway::over_simulators(BINARY, &[("a", &a), ("b", &b)], "").await;
    let mut body = messages_with_budget();
    body["model"] = "always-budget".into();
    body["messages"][0]["content"] = "use one tool".into();
    body["tools"] = json!([{"name": "lookup", "input_schema": {"type": "object"}}]);
    let answer = gateway.client.post(MESSAGES, &[], &body).await.expect_ok();
    continue_loop(&mut body, &answer);
    gateway.switch("b").await;
    let answer = gateway.client.post(MESSAGES, &[], &body).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    assert_eq!(block_fates(&gateway.turn_of(&answer).await), ["left_out origin"]);
    let refused = refusals(&b, 0).await;
    assert_eq!(refused.len(), 2, "{refused:?}");
    assert!(refused[0].contains("thinking.type.disabled"), "{refused:?}");
    assert!(
        answer.header("x-throughline-loss").contains("tool_loop_closed"),
        "{:?}",
        answer.headers
    );
    let sent = b.last_received().await.json();
    assert_eq!(sent["thinking"], body["thinking"], "the caller's own setting stays");
    gateway.client.post(MESSAGES, &[], &body).await.expect_ok();
    assert_eq!(refusals(&b, 2).await, [""], "it is known now");
}
