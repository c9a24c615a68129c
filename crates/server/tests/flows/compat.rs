//! What a backend is told differently, because it was configured so: thinking settings, model
//! names, how much is replayed.

use serde_json::{Value, json};
use throughline_testkit::Conversation;

use crate::support::{NOTHING, Pair, fates, loss, talk, thinking};

const BETAS: &str = "adaptive-thinking-2026-01-28,context-1m-2025-08-07";
const MANUAL_BETAS: &str = "context-1m-2025-08-07,interleaved-thinking-2025-05-14";

async fn pair(a: &str, b: &str) -> Pair {
    let plain = Pair::start("").await;
    Pair::of(plain.a, plain.b, "", [a, b]).await
}

fn pinned(backend: &str) -> Conversation {
    let mut talk = talk("compat", false);
    talk.headers.push(("x-throughline-backend".into(), backend.into()));
    talk.headers.push(("anthropic-beta".into(), BETAS.into()));
    talk
}

/// Covers: case 15, case 16, X-7
#[tokio::test]
async fn adaptive_thinking_becomes_a_budget_that_fits() {
    let pair = pair(
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
        // There is no budget below 1024, and none of 0.
        ("a", 1024, None, no_room),
        ("a", 1, None, no_room),
        ("b", 1, None, no_room),
        ("b", 0, None, no_room),
    ] {
        let mut talk = pinned(backend);
        talk.body["thinking"] = json!({"type": "adaptive"});
        talk.body["max_tokens"] = max_tokens.into();
        talk.user("hello");
        let answer = talk.send(pair.client()).await.good();
        let simulator = if backend == "a" { &pair.a } else { &pair.b };
        let seen = simulator.last().await;
        let mut expected = talk.body.clone();
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
async fn each_way_to_adapt_thinking_changes_only_what_it_must() {
    let pair = pair(
        "thinking_compat = { mode = \"adaptive\" }\nmodels = { \"*\" = \"glm-5\" }",
        "thinking_compat = { mode = \"off\" }",
    )
    .await;
    let manual = |budget: u64| json!({"type": "enabled", "budget_tokens": budget});
    for (backend, asked, sent, effort, lost) in [
        ("a", manual(2048), json!({"type": "adaptive"}), json!("low"), true),
        ("a", manual(8192), json!({"type": "adaptive"}), json!("medium"), true),
        ("a", manual(20_000), json!({"type": "adaptive"}), json!("high"), true),
        ("a", json!({"type": "adaptive"}), json!({"type": "adaptive"}), Value::Null, false),
        ("a", json!({"type": "disabled"}), json!({"type": "disabled"}), Value::Null, false),
        ("b", manual(2048), Value::Null, Value::Null, true),
    ] {
        let mut talk = pinned(backend);
        talk.body["max_tokens"] = 32_000.into();
        talk.body["thinking"] = asked.clone();
        talk.user("hello");
        let answer = talk.send(pair.client()).await.good();
        let simulator = if backend == "a" { &pair.a } else { &pair.b };
        let seen = simulator.last().await;
        let body = seen.json();
        assert_eq!(body["thinking"], sent, "{backend} {asked}");
        assert_eq!(body["output_config"]["effort"], effort, "{backend} {asked}");
        assert_eq!(seen.header("anthropic-beta"), Some(BETAS));
        let told = "setting_adapted=thinking;reason=thinking_compat";
        assert_eq!(loss(&answer), if lost { told } else { "" }, "{backend} {asked}");
    }
    assert_eq!(pair.refusals().await, [""; 0]);
}

///
#[tokio::test]
async fn settings_are_made_to_fit_a_model_that_another_name_stands_for() {
    let names = "models = { \"never-off\" = \"claude-opus-5-5\", \"notes\" = \"claude-sonnet-5-5\", \
        \"budget\" = \"claude-sonnet-4-5\", \"adaptive\" = \"claude-opus-4-7\", \"none\" = \"claude-3-5-haiku\", \
        \"both\" = \"claude-opus-4-6\", \"house\" = \"house-model\" }";
    let pair = pair(
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
    for (backend, name, asked, sent, lost) in [
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
        let mut talk = talk(name, false);
        talk.headers.push(("x-throughline-backend".into(), backend.into()));
        talk.offer_tool();
        talk.body["model"] = name.into();
        talk.body["max_tokens"] = 32_000.into();
        talk.body.as_object_mut().unwrap().remove("thinking");
        talk.user("hello");
        for (member, value) in asked.as_object().unwrap() {
            talk.body[member] = value.clone();
        }
        let answer = talk.send(pair.client()).await.good();
        let simulator = if backend == "a" { &pair.a } else { &pair.b };
        let seen = simulator.last().await.json();
        let mut expected = talk.body.clone();
        expected["model"] = seen["model"].clone();
        for (member, value) in sent.as_object().unwrap() {
            match value {
                Value::Null => drop(expected.as_object_mut().unwrap().remove(member)),
                value => expected[member] = value.clone(),
            }
        }
        assert_eq!(seen, expected, "{name} {asked}");
        let told = match lost {
            "" => String::new(),
            lost => format!("setting_adapted={lost}"),
        };
        assert_eq!(loss(&answer), told, "{name} {asked}");
    }
    assert_eq!(pair.refusals().await, [""; 0]);
}

/// Covers: case 17, X-8
#[tokio::test]
async fn the_client_sees_the_model_name_it_asked_for() {
    let pair = pair("models = { \"claude-*\" = \"glm-5\" }", "").await;
    for stream in [true, false] {
        let mut talk = talk("names", stream);
        let (one, answer) = talk.say(pair.client(), "hello").await;
        assert_eq!(one["model"], "claude-sonnet-4-5");
        assert_eq!(pair.a.last().await.json()["model"], "glm-5");
        assert!(!answer.text().contains("glm-5"), "{}", answer.text());
        let turn = pair.turn(&answer).await;
        let names = (&turn["model"], &turn["upstream_model"]);
        assert_eq!(names, (&json!("claude-sonnet-4-5"), &json!("glm-5")));

        // A name we did not put there is not ours to change.
        let mut other = talk.clone();
        other.headers.push(("x-simulator-model".into(), "glm-5-turbo".into()));
        let (two, _) = other.say(pair.client(), "hello").await;
        assert_eq!(two["model"], "glm-5-turbo");
        // Nor is one on a backend without a map.
        pair.gateway.switch("b").await;
        let (three, _) = talk.say(pair.client(), "more").await;
        assert_eq!(three["model"], "claude-sonnet-4-5");
        assert_eq!(pair.b.last().await.json()["model"], "claude-sonnet-4-5");
        pair.gateway.switch("a").await;
    }
    assert_eq!(pair.refusals().await, [""; 0]);
}

/// Covers: S1-44, C-1
#[tokio::test]
async fn how_much_is_replayed_is_the_operators_choice() {
    let pair = pair("replay = \"latest_turn\"", "replay = \"none\"").await;
    for stream in [true, false] {
        let mut talk = talk("replayed", stream);
        talk.offer_tool();
        talk.say(pair.client(), "hello").await;
        let (two, _) = talk.say(pair.client(), "use a tool twice").await;
        let (three, _) = talk.answer_tools(pair.client(), "41").await;
        let (_, answer) = talk.answer_tools(pair.client(), "42").await;
        assert_eq!(pair.a.last().await.thinking(), thinking(&[&two, &three]));
        assert_eq!(loss(&answer), "thinking_omitted=1;reason=policy");
        let turn = pair.turn(&answer).await;
        assert_eq!(fates(&turn), ["1.0 left_out policy", "3.0 sent", "5.0 sent"]);
    }
    pair.gateway.switch("b").await;
    for stream in [true, false] {
        let mut talk = talk("nothing", stream);
        talk.say(pair.client(), "hello").await;
        let (_, answer) = talk.say(pair.client(), "more").await;
        assert_eq!(pair.b.last().await.thinking(), NOTHING);
        assert_eq!(loss(&answer), "thinking_omitted=1;reason=policy");
    }
    assert_eq!(pair.refusals().await, [""; 0]);
}
