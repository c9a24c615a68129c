//! Conversations with more than one refusal: each must succeed in the end, with few requests.

use serde_json::{Value, json};
use throughline_testkit::{Conversation, Gateway, Simulator};

use crate::support::{Pair, backend, binding_simulator, fates, loss, new_conversation};

async fn bound_pair() -> Pair {
    Pair::with_simulators(binding_simulator("a").await, binding_simulator("b").await, "", ["", ""])
        .await
}

fn adaptive_conversation(session: &str, model: &str) -> Conversation {
    let mut conversation = new_conversation(session, true);
    conversation.body["model"] = model.into();
    conversation.body["thinking"] = json!({"type": "adaptive"});
    conversation
}

/// Returns a history with blocks of both backends that the gateway never saw, made under another
/// system text.
async fn unseen_history(pair: &Pair, model: &str) -> Conversation {
    let mut conversation = adaptive_conversation("strange", model);
    let (first, _) = conversation.ask(&pair.a.client, "one").await;
    let mut elsewhere = adaptive_conversation("strange", model);
    let (second, _) = elsewhere.ask(&pair.b.client, "two").await;
    conversation.push_user("two");
    let messages = conversation.body["messages"].as_array_mut().unwrap();
    messages.push(json!({"role": "assistant", "content": second["content"]}));
    assert!(first["content"][0]["signature"].is_string());
    conversation.body["system"] = "You are verbose.".into();
    pair.a.clear_received().await;
    pair.b.clear_received().await;
    conversation
}

#[tokio::test]
async fn tried_blocks_bound_to_another_prefix_are_all_dropped_at_once() {
    for model in ["claude-opus-5-5", "some-model"] {
        let pair = bound_pair().await;
        let mut conversation = unseen_history(&pair, model).await;
        let (_, answer) = conversation.ask(pair.client(), "three").await;
        assert_eq!(loss(&answer), "thinking_omitted=2;reason=origin", "{model}");
        assert_eq!(pair.a.received().await.len(), 2, "{model}: one refusal, one answer");
        // The refusals are remembered: the next turn needs one request.
        let (_, answer) = conversation.ask(pair.client(), "four").await;
        assert_eq!(pair.a.received().await.len(), 3, "{model}");
        let fates = fates(&pair.turn(&answer).await);
        assert_eq!(fates, ["1.0 left_out origin", "3.0 left_out origin", "5.0 sent"]);
    }
}

#[tokio::test]
async fn foreign_block_before_a_bound_one_does_not_block_the_conversation() {
    let pair = bound_pair().await;
    // The catalog does not list this model as binding, so the gateway must learn it.
    let mut conversation = adaptive_conversation("mixed", "some-model");
    conversation.ask(pair.client(), "one").await;
    let mut foreign = adaptive_conversation("mixed", "some-model");
    let (made_by_b, _) = foreign.ask(&pair.b.client, "zero").await;
    let messages = conversation.body["messages"].as_array_mut().unwrap();
    messages.insert(0, json!({"role": "user", "content": "zero"}));
    messages.insert(1, json!({"role": "assistant", "content": made_by_b["content"]}));
    conversation.push_user("two");
    // The two refusals come one after the other. The gateway retries once, and the second one
    // passes to the client.
    let first = conversation.send(pair.client()).await;
    assert_eq!(first.status, 400, "{}", first.text());
    // The client repeats its request, and it succeeds at once.
    let before = pair.a.received().await.len();
    let second = conversation.send(pair.client()).await;
    assert_eq!(second.status, 200, "{}", second.text());
    assert_eq!(pair.a.received().await.len(), before + 1);
}

#[tokio::test]
async fn block_dropped_by_the_provider_is_predicted_afterwards() {
    let pair = bound_pair().await;
    let mut conversation = adaptive_conversation("dropped", "claude-opus-5-5");
    conversation.ask(&pair.a.client, "one").await;
    conversation.body["system"] = "You are verbose.".into();
    // The caller itself requests the drop, so the provider drops the unknown block instead of
    // refusing it.
    conversation.body["thinking"] =
        json!({"type": "adaptive", "block_binding": {"prefix_mismatch_behavior": "drop_block"}});
    conversation
        .headers
        .push(("anthropic-beta".into(), "thinking-binding-controls-2026-08-01".into()));
    let (_, answer) = conversation.ask(pair.client(), "two").await;
    assert_eq!(fates(&pair.turn(&answer).await), ["1.0 left_out prefix"]);
    let (_, answer) = conversation.ask(pair.client(), "three").await;
    assert_eq!(loss(&answer), "thinking_omitted=1;reason=prefix");
    let turn = pair.turn(&answer).await;
    assert_eq!(fates(&turn), ["1.0 left_out prefix", "3.0 sent"]);
}

#[tokio::test]
async fn valid_block_is_doubted_only_once() {
    let pair = bound_pair().await;
    let mut conversation = adaptive_conversation("doubted", "some-model");
    conversation.ask(pair.client(), "one").await;
    conversation.ask(pair.client(), "two").await;
    // Another conversation shows that this backend binds its blocks.
    let mut teacher = adaptive_conversation("teacher", "some-model");
    teacher.ask(pair.client(), "one").await;
    teacher.body["system"] = "You are verbose.".into();
    teacher.ask(pair.client(), "two").await;
    // The blocks of the first conversation are doubtful now. The gateway requests their drop, and
    // they are valid.
    let (three, _) = conversation.ask(pair.client(), "three").await;
    assert_eq!(three["input_transformations"], json!([]));
    let (_, answer) = conversation.ask(pair.client(), "four").await;
    assert_eq!(loss(&answer), "");
    let body = pair.a.last_received().await.json();
    assert_eq!(body["thinking"]["block_binding"], Value::Null);
}

/// Twice the blocks may take twice the time plus a margin for a busy machine, but not four times.
#[tokio::test]
async fn planning_is_linear_in_messages_and_in_blocks() {
    let pair = Pair::start("[thinking]\nunknown = \"drop\"").await;
    let block = r#"{"type":"thinking","thinking":"x","signature":"y"}"#;
    let wide = |count: usize| {
        let blocks = vec![block; count].join(",");
        format!(r#"{{"messages":[{{"role":"assistant","content":[{blocks}]}}]}}"#)
    };
    let long = |count: usize| {
        let message = format!(r#"{{"role":"assistant","content":[{block}]}}"#);
        format!(r#"{{"messages":[{}]}}"#, vec![message; count].join(","))
    };
    for (name, body) in [("wide", &wide as &dyn Fn(usize) -> String), ("long", &long)] {
        let mut times = Vec::new();
        for count in [10_000, 80_000] {
            let body = body(count);
            let began = std::time::Instant::now();
            pair.client().post_bytes("/v1/plan", &[], body).await.expect_ok();
            times.push(began.elapsed());
        }
        assert!(times[1] < times[0] * 32, "{name}: {times:?}");
    }
}

#[tokio::test]
async fn callers_key_goes_to_one_operator_only() {
    let (own, one, two) = (
        Simulator::start("own").await,
        Simulator::start("one").await,
        Simulator::start("two").await,
    );
    let config = |first: &str| {
        let route = format!("[route]\ndefault = \"{first}\"\nfallback = [\"one\", \"two\"]\n");
        route
            + &backend("own", &own, "api_key = \"sk-own\"")
            + &backend("one", &one, "auth = \"passthrough\"")
            + &backend("two", &two, "auth = \"passthrough\"")
    };
    let gateway = Gateway::start(crate::support::BINARY, &config("own")).await;
    let mut conversation = new_conversation("key", true);
    conversation.headers.push(("x-api-key".into(), "sk-caller".into()));
    conversation.headers.push(("x-simulator-fault".into(), "status:500".into()));
    conversation.push_user("hello");
    assert_eq!(conversation.send(&gateway.client).await.status, 500);
    assert_eq!(own.last_received().await.header("x-api-key"), Some("sk-own"));
    assert_eq!(one.last_received().await.header("x-api-key"), Some("sk-caller"));
    assert_eq!(two.received().await.len(), 0);

    // A switch through a backend with its own key still counts as a switch between the two.
    let gateway = Gateway::start(crate::support::BINARY, &config("one")).await;
    gateway.switch("own").await;
    let body = json!({"backend": "two"});
    let answer = gateway.client.post("/admin/switch", &[], &body).await;
    assert_eq!(answer.status, 409, "{}", answer.text());
    assert!(answer.text().contains("share_caller_key"));
    gateway.switch("one").await;
}
