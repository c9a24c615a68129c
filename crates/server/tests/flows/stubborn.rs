//! Conversations that meet more than one refusal: each must get through in the end, and cheaply.

use serde_json::{Value, json};
use throughline_testkit::Conversation;

use crate::support::{Pair, backend, binding, fates, loss, talk};
use throughline_testkit::{Gateway, Simulator};

async fn bound() -> Pair {
    Pair::of(binding("a").await, binding("b").await, "", ["", ""]).await
}

fn adaptive(session: &str, model: &str) -> Conversation {
    let mut talk = talk(session, true);
    talk.body["model"] = model.into();
    talk.body["thinking"] = json!({"type": "adaptive"});
    talk
}

/// A history with blocks of both backends that the gateway never saw, under another system text.
async fn strange_history(pair: &Pair, model: &str) -> Conversation {
    let mut talk = adaptive("strange", model);
    let (first, _) = talk.say(&pair.a.client, "one").await;
    let mut elsewhere = adaptive("strange", model);
    let (second, _) = elsewhere.say(&pair.b.client, "two").await;
    talk.user("two");
    let messages = talk.body["messages"].as_array_mut().unwrap();
    messages.push(json!({"role": "assistant", "content": second["content"]}));
    assert!(first["content"][0]["signature"].is_string());
    talk.body["system"] = "You are verbose.".into();
    pair.a.forget().await;
    pair.b.forget().await;
    talk
}

#[tokio::test]
async fn tried_blocks_that_are_bound_elsewhere_all_go_at_once() {
    for model in ["claude-opus-5-5", "some-model"] {
        let pair = bound().await;
        let mut talk = strange_history(&pair, model).await;
        let (_, answer) = talk.say(pair.client(), "three").await;
        assert_eq!(loss(&answer), "thinking_omitted=2;reason=origin", "{model}");
        assert_eq!(pair.a.seen().await.len(), 2, "{model}: one refusal, one answer");
        // What was refused is remembered: the next turn costs one request.
        let (_, answer) = talk.say(pair.client(), "four").await;
        assert_eq!(pair.a.seen().await.len(), 3, "{model}");
        let fates = fates(&pair.turn(&answer).await);
        assert_eq!(fates, ["1.0 left_out origin", "3.0 left_out origin", "5.0 sent"]);
    }
}

#[tokio::test]
async fn a_foreign_block_before_a_bound_one_does_not_kill_the_conversation() {
    let pair = bound().await;
    // A model nobody knows to be bound: the gateway has to learn it.
    let mut talk = adaptive("mixed", "some-model");
    talk.say(pair.client(), "one").await;
    let mut foreign = adaptive("mixed", "some-model");
    let (made_by_b, _) = foreign.say(&pair.b.client, "zero").await;
    let messages = talk.body["messages"].as_array_mut().unwrap();
    messages.insert(0, json!({"role": "user", "content": "zero"}));
    messages.insert(1, json!({"role": "assistant", "content": made_by_b["content"]}));
    talk.user("two");
    // Both refusals are met, one after the other; the second one is passed on.
    let first = talk.send(pair.client()).await;
    assert_eq!(first.status, 400, "{}", first.text());
    // The client sends the same again, and now it goes through at once.
    let before = pair.a.seen().await.len();
    let second = talk.send(pair.client()).await;
    assert_eq!(second.status, 200, "{}", second.text());
    assert_eq!(pair.a.seen().await.len(), before + 1);
}

#[tokio::test]
async fn a_block_the_provider_dropped_is_predicted_from_then_on() {
    let pair = bound().await;
    let mut talk = adaptive("dropped", "claude-opus-5-5");
    talk.say(&pair.a.client, "one").await;
    talk.body["system"] = "You are verbose.".into();
    // The caller asks for the drop itself, so the strange block is dropped and not refused.
    talk.body["thinking"] =
        json!({"type": "adaptive", "block_binding": {"prefix_mismatch_behavior": "drop_block"}});
    talk.headers.push(("anthropic-beta".into(), "thinking-binding-controls-2026-08-01".into()));
    let (_, answer) = talk.say(pair.client(), "two").await;
    assert_eq!(fates(&pair.turn(&answer).await), ["1.0 left_out prefix"]);
    let (_, answer) = talk.say(pair.client(), "three").await;
    assert_eq!(loss(&answer), "thinking_omitted=1;reason=prefix");
    let turn = pair.turn(&answer).await;
    assert_eq!(fates(&turn), ["1.0 left_out prefix", "3.0 sent"]);
}

#[tokio::test]
async fn a_block_that_held_is_doubted_only_once() {
    let pair = bound().await;
    let mut talk = adaptive("doubted", "some-model");
    talk.say(pair.client(), "one").await;
    talk.say(pair.client(), "two").await;
    // Another conversation teaches that this backend binds its blocks.
    let mut teacher = adaptive("teacher", "some-model");
    teacher.say(pair.client(), "one").await;
    teacher.body["system"] = "You are verbose.".into();
    teacher.say(pair.client(), "two").await;
    // Now the first conversation's blocks are doubtful, asked about, and hold.
    let (three, _) = talk.say(pair.client(), "three").await;
    assert_eq!(three["input_transformations"], json!([]));
    let (_, answer) = talk.say(pair.client(), "four").await;
    assert_eq!(loss(&answer), "");
    let body = pair.a.last().await.json();
    assert_eq!(body["thinking"]["block_binding"], Value::Null);
}

/// Twice the blocks may take twice the time, and a margin for a busy machine; not four times.
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
            pair.client().post_bytes("/v1/plan", &[], body).await.good();
            times.push(began.elapsed());
        }
        assert!(times[1] < times[0] * 32, "{name}: {times:?}");
    }
}

#[tokio::test]
async fn a_callers_key_goes_to_one_operator_only() {
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
    let mut talk = talk("key", true);
    talk.headers.push(("x-api-key".into(), "sk-caller".into()));
    talk.headers.push(("x-simulator-fault".into(), "status:500".into()));
    talk.user("hello");
    assert_eq!(talk.send(&gateway.client).await.status, 500);
    assert_eq!(own.last().await.header("x-api-key"), Some("sk-own"));
    assert_eq!(one.last().await.header("x-api-key"), Some("sk-caller"));
    assert_eq!(two.seen().await.len(), 0);

    // A switch by way of a backend with its own key is a switch between the two all the same.
    let gateway = Gateway::start(crate::support::BINARY, &config("one")).await;
    gateway.switch("own").await;
    let body = json!({"backend": "two"});
    let answer = gateway.client.post("/admin/switch", &[], &body).await;
    assert_eq!(answer.status, 409, "{}", answer.text());
    assert!(answer.text().contains("share_caller_key"));
    gateway.switch("one").await;
}
