//! Settings that change a request for one backend: `thinking_compat`, `models` and `replay`.

use serde_json::{Value, json};
use throughline_testkit::Conversation;

use crate::support::{NO_BLOCKS, Pair, cut_thinking, fates, loss, new_conversation, thinking_in};

const BETAS: &str = "adaptive-thinking-2026-01-28,context-1m-2025-08-07";
const MANUAL_BETAS: &str = "context-1m-2025-08-07,interleaved-thinking-2025-05-14";

async fn pair_with(a: &str, b: &str) -> Pair {
    let plain = Pair::start("").await;
    Pair::with_simulators(plain.a, plain.b, "", [a, b]).await
}

fn pinned_conversation(backend: &str) -> Conversation {
    let mut conversation = new_conversation("compat", false);
    conversation.headers.push(("x-throughline-backend".into(), backend.into()));
    conversation.headers.push(("anthropic-beta".into(), BETAS.into()));
    conversation
}

/// Covers: case 15, case 16, X-7
#[tokio::test]
async fn adaptive_thinking_becomes_a_valid_budget() {
    let pair = pair_with(
        "thinking_compat = { mode = \"budget\", budget = 8000 }",
        "thinking_compat = { mode = \"budget\" }",
    )
    .await;
    let adapted = "setting_adapted=thinking;reason=thinking_compat";
    let no_room = "setting_adapted=thinking;reason=max_tokens";
    for (backend, max_tokens, budget, lost) in [
        ("a", 4096, Some(4095), adapted),
        ("a", 32_000, Some(8000), adapted),
        ("b", 4096, Some(4095), adapted),
        ("b", 1025, Some(1024), adapted),
        // The smallest budget is 1024, and 0 is not a budget.
        ("a", 1024, None, no_room),
        ("a", 1, None, no_room),
        ("b", 1, None, no_room),
        ("b", 0, None, no_room),
    ] {
        let mut conversation = pinned_conversation(backend);
        conversation.body["thinking"] = json!({"type": "adaptive"});
        conversation.body["max_tokens"] = max_tokens.into();
        conversation.push_user("hello");
        let answer = conversation.send(pair.client()).await.expect_ok();
        let simulator = if backend == "a" { &pair.a } else { &pair.b };
        let seen = simulator.last_received().await;
        let mut expected = conversation.body.clone();
        match budget {
            Some(budget) => {
                expected["thinking"] = json!({"type": "enabled", "budget_tokens": budget});
            }
            None => drop(expected.as_object_mut().unwrap().remove("thinking")),
        }
        assert_eq!(seen.json(), expected, "{backend} {max_tokens}");
        let betas = if budget.is_some() { MANUAL_BETAS } else { "context-1m-2025-08-07" };
        assert_eq!(seen.header("anthropic-beta"), Some(betas), "{backend} {max_tokens}");
        assert_eq!(loss(&answer), lost, "{backend} {max_tokens}");
    }
    assert_eq!(pair.refusals().await, [""; 0]);
}

/// Covers: case 15, X-7
#[tokio::test]
async fn thinking_compat_modes_change_only_the_thinking_setting() {
    let pair = pair_with(
        "thinking_compat = { mode = \"adaptive\" }\nmodels = { \"*\" = \"glm-5\" }",
        "thinking_compat = { mode = \"off\" }",
    )
    .await;
    let manual = |budget: u64| json!({"type": "enabled", "budget_tokens": budget});
    for (backend, requested, sent, effort, lost) in [
        ("a", manual(2048), json!({"type": "adaptive"}), json!("low"), true),
        ("a", manual(8192), json!({"type": "adaptive"}), json!("medium"), true),
        ("a", manual(20_000), json!({"type": "adaptive"}), json!("high"), true),
        ("a", json!({"type": "adaptive"}), json!({"type": "adaptive"}), Value::Null, false),
        ("a", json!({"type": "disabled"}), json!({"type": "disabled"}), Value::Null, false),
        ("b", manual(2048), Value::Null, Value::Null, true),
    ] {
        let mut conversation = pinned_conversation(backend);
        conversation.body["max_tokens"] = 32_000.into();
        conversation.body["thinking"] = requested.clone();
        conversation.push_user("hello");
        let answer = conversation.send(pair.client()).await.expect_ok();
        let simulator = if backend == "a" { &pair.a } else { &pair.b };
        let seen = simulator.last_received().await;
        let body = seen.json();
        assert_eq!(body["thinking"], sent, "{backend} {requested}");
        assert_eq!(body["output_config"]["effort"], effort, "{backend} {requested}");
        assert_eq!(seen.header("anthropic-beta"), Some(BETAS));
        let reported = "setting_adapted=thinking;reason=thinking_compat";
        assert_eq!(loss(&answer), if lost { reported } else { "" }, "{backend} {requested}");
    }
    assert_eq!(pair.refusals().await, [""; 0]);
}

///
#[tokio::test]
async fn settings_are_adapted_to_the_mapped_model() {
    let names = "models = { \"never-off\" = \"claude-opus-5-5\", \"notes\" = \"claude-sonnet-5-5\", \
        \"budget\" = \"claude-sonnet-4-5\", \"adaptive\" = \"claude-opus-4-7\", \"none\" = \"claude-3-5-haiku\", \
        \"both\" = \"claude-opus-4-6\", \"house\" = \"house-model\" }";
    let pair = pair_with(
        names,
        "thinking_compat = { mode = \"budget\" }\nmodels = { \"*\" = \"claude-sonnet-4-5\" }",
    )
    .await;
    let manual = json!({"type": "enabled", "budget_tokens": 2048});
    let adaptive = json!({"type": "adaptive"});
    let (off, notes) = (json!({"type": "disabled"}), json!({"type": "between_tools"}));
    let forced = json!({"type": "any", "disable_parallel_tool_use": true});
    let free = json!({"type": "auto", "disable_parallel_tool_use": true});
    let shown = json!({"type": "adaptive", "display": "summarized"});
    let low = json!({"effort": "low"});
    let nothing = Value::Null;
    for (backend, name, requested, sent, lost) in [
        (
            "a",
            "never-off",
            json!({"thinking": off}),
            json!({"thinking": {"type": "adaptive"}, "output_config": low}),
            "thinking;reason=always_thinks",
        ),
        (
            "a",
            "notes",
            json!({"thinking": off, "output_config": {"effort": "high"}}),
            json!({"thinking": notes, "output_config": {"effort": "high"}}),
            "thinking;reason=between_tools",
        ),
        ("a", "notes", json!({"thinking": notes}), json!({"thinking": notes}), ""),
        (
            "a",
            "budget",
            json!({"thinking": notes}),
            json!({"thinking": off}),
            "thinking;reason=disabled",
        ),
        ("a", "house", json!({"thinking": notes}), json!({"thinking": notes}), ""),
        (
            "a",
            "never-off",
            json!({"thinking": notes}),
            json!({"thinking": {"type": "adaptive"}, "output_config": low}),
            "thinking;reason=always_thinks",
        ),
        (
            "a",
            "never-off",
            json!({"tool_choice": forced}),
            json!({"tool_choice": free}),
            "tool_choice;reason=thinking",
        ),
        (
            "a",
            "budget",
            json!({"thinking": manual, "tool_choice": {"type": "tool", "name": "lookup"}}),
            json!({"thinking": manual, "tool_choice": {"type": "auto"}}),
            "tool_choice;reason=thinking",
        ),
        (
            "a",
            "budget",
            json!({"thinking": off, "tool_choice": forced}),
            json!({"thinking": off, "tool_choice": forced}),
            "",
        ),
        (
            "a",
            "adaptive",
            json!({"temperature": 0.2, "top_p": 0.9, "top_k": 4}),
            json!({"temperature": nothing, "top_p": nothing, "top_k": nothing}),
            "temperature;reason=model, setting_adapted=top_p;reason=model, setting_adapted=top_k;reason=model",
        ),
        (
            "a",
            "both",
            json!({"thinking": adaptive, "temperature": 0.2}),
            json!({"thinking": adaptive, "temperature": nothing}),
            "temperature;reason=thinking",
        ),
        ("a", "both", json!({"temperature": 0.2}), json!({"temperature": 0.2}), ""),
        (
            "a",
            "adaptive",
            json!({"thinking": manual}),
            json!({"thinking": shown, "output_config": low}),
            "thinking;reason=budget_as_effort",
        ),
        (
            "a",
            "budget",
            json!({"thinking": adaptive}),
            json!({"thinking": {"type": "enabled", "budget_tokens": 16_384}}),
            "thinking;reason=adaptive_as_budget",
        ),
        (
            "a",
            "budget",
            json!({"output_config": {"effort": "max"}}),
            json!({"output_config": nothing}),
            "effort;reason=not_known",
        ),
        (
            "a",
            "both",
            json!({"output_config": {"effort": "xhigh"}}),
            json!({"output_config": {"effort": "high"}}),
            "thinking;reason=effort",
        ),
        (
            "a",
            "none",
            json!({"thinking": manual, "max_tokens": 100_000}),
            json!({"thinking": nothing, "max_tokens": 8192}),
            "max_tokens;reason=max_output, setting_adapted=thinking;reason=model_does_not_think",
        ),
        (
            "b",
            "any",
            json!({"thinking": adaptive, "temperature": 0.5}),
            json!({"thinking": {"type": "enabled", "budget_tokens": 31_999}, "temperature": nothing}),
            "thinking;reason=thinking_compat, setting_adapted=temperature;reason=thinking",
        ),
        (
            "b",
            "any",
            json!({"thinking": notes}),
            json!({"thinking": off}),
            "thinking;reason=thinking_compat",
        ),
    ] {
        let mut conversation = new_conversation(name, false);
        conversation.headers.push(("x-throughline-backend".into(), backend.into()));
        conversation.offer_tool();
        conversation.body["model"] = name.into();
        conversation.body["max_tokens"] = 32_000.into();
        conversation.body.as_object_mut().unwrap().remove("thinking");
        conversation.push_user("hello");
        for (member, value) in requested.as_object().unwrap() {
            conversation.body[member] = value.clone();
        }
        let answer = conversation.send(pair.client()).await.expect_ok();
        let simulator = if backend == "a" { &pair.a } else { &pair.b };
        let seen = simulator.last_received().await.json();
        let mut expected = conversation.body.clone();
        expected["model"] = seen["model"].clone();
        for (member, value) in sent.as_object().unwrap() {
            match value {
                Value::Null => drop(expected.as_object_mut().unwrap().remove(member)),
                value => expected[member] = value.clone(),
            }
        }
        assert_eq!(seen, expected, "{name} {requested}");
        let reported = match lost {
            "" => String::new(),
            lost => format!("setting_adapted={lost}"),
        };
        assert_eq!(loss(&answer), reported, "{name} {requested}");
    }
    assert_eq!(pair.refusals().await, [""; 0]);
}

/// Covers: case 17, X-8
#[tokio::test]
async fn client_sees_the_model_name_it_sent() {
    let pair = pair_with("models = { \"claude-*\" = \"glm-5\" }", "").await;
    for stream in [true, false] {
        let mut conversation = new_conversation("names", stream);
        let (one, answer) = conversation.ask(pair.client(), "hello").await;
        assert_eq!(one["model"], "claude-sonnet-4-5");
        assert_eq!(pair.a.last_received().await.json()["model"], "glm-5");
        assert!(!answer.text().contains("glm-5"), "{}", answer.text());
        let turn = pair.turn(&answer).await;
        let names = (&turn["model"], &turn["upstream_model"]);
        assert_eq!(names, (&json!("claude-sonnet-4-5"), &json!("glm-5")));

        // The gateway did not map to this name, so it stays.
        let mut other = conversation.clone();
        other.headers.push(("x-simulator-model".into(), "glm-5-turbo".into()));
        let (two, _) = other.ask(pair.client(), "hello").await;
        assert_eq!(two["model"], "glm-5-turbo");
        // Names of a backend without a map also stay.
        pair.gateway.switch("b").await;
        let (three, _) = conversation.ask(pair.client(), "more").await;
        assert_eq!(three["model"], "claude-sonnet-4-5");
        assert_eq!(pair.b.last_received().await.json()["model"], "claude-sonnet-4-5");
        pair.gateway.switch("a").await;
    }
    assert_eq!(pair.refusals().await, [""; 0]);
}

/// Covers: S1-44, C-1
#[tokio::test]
async fn replay_setting_limits_which_thinking_is_sent() {
    let pair = pair_with("replay = \"latest_turn\"", "replay = \"none\"").await;
    for stream in [true, false] {
        let mut conversation = new_conversation("replayed", stream);
        conversation.offer_tool();
        conversation.ask(pair.client(), "hello").await;
        let (two, _) = conversation.ask(pair.client(), "use a tool twice").await;
        let (three, _) = conversation.answer_tools(pair.client(), "41").await;
        let (_, answer) = conversation.answer_tools(pair.client(), "42").await;
        assert_eq!(pair.a.last_received().await.thinking(), thinking_in(&[&two, &three]));
        assert_eq!(loss(&answer), "thinking_omitted=1;reason=policy");
        let turn = pair.turn(&answer).await;
        assert_eq!(fates(&turn), ["1.0 left_out policy", "3.0 sent", "5.0 sent"]);
    }
    pair.gateway.switch("b").await;
    for stream in [true, false] {
        let mut conversation = new_conversation("nothing", stream);
        conversation.ask(pair.client(), "hello").await;
        let (_, answer) = conversation.ask(pair.client(), "more").await;
        assert_eq!(pair.b.last_received().await.thinking(), NO_BLOCKS);
        assert_eq!(loss(&answer), "thinking_omitted=1;reason=policy");
    }
    assert_eq!(pair.refusals().await, [""; 0]);
}

/// The number is the same whether the client keeps its thinking or drops it.
#[tokio::test]
async fn dropped_thinking_that_the_replay_setting_leaves_out_is_counted() {
    let pair = pair_with("replay = \"latest_turn\"", "replay = \"none\"").await;
    for backend in ["a", "b"] {
        pair.gateway.switch(backend).await;
        let mut losses = Vec::new();
        for drops in [false, true] {
            let mut conversation = new_conversation(&format!("{backend} {drops}"), true);
            conversation.offer_tool();
            conversation.ask(pair.client(), "use a tool twice").await;
            conversation.answer_tools(pair.client(), "41").await;
            conversation.answer_tools(pair.client(), "42").await;
            conversation.ask(pair.client(), "hello").await;
            if drops {
                cut_thinking(&mut conversation, 1);
                cut_thinking(&mut conversation, 3);
            }
            let (_, answer) = conversation.ask(pair.client(), "more").await;
            losses.push(loss(&answer).to_owned());
        }
        assert!(losses[0].ends_with("reason=policy"), "{losses:?}");
        assert_eq!(losses[0], losses[1], "backend {backend}");
    }
    assert_eq!(pair.refusals().await, [""; 0]);
}
