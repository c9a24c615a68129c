//! `POST /v1/plan` reports what a turn would do, without doing it.

use serde_json::{Value, json};
use throughline_testkit::Conversation;

use crate::support::{POLICIES, Pair, binding_simulator, fates, new_conversation};

/// Requests a plan and then sends the turn. Both reports must match, and the plan must change no
/// state.
async fn check_plan(
    pair: &Pair,
    conversation: &mut Conversation,
    expected: &[&str],
    name: &str,
) -> Value {
    conversation.push_user("bench 1");
    let headers: Vec<(&str, &str)> =
        conversation.headers.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
    let before = pair.gateway.statistics().await;
    let plan = pair.client().post("/v1/plan", &headers, &conversation.body).await;
    let plan = plan.expect_ok().json();
    assert_eq!(pair.gateway.statistics().await, before, "{name}");

    let answer = conversation.send(pair.client()).await.expect_ok();
    let turn = pair.turn(&answer).await;
    assert_eq!(fates(&plan), expected, "{name}");
    for same in ["backend", "lane", "blocks", "losses"] {
        assert_eq!(plan[same], turn[same], "{name}: {same}");
    }
    assert_eq!(plan["model"], turn["upstream_model"], "{name}");
    let simulator = if plan["backend"] == "a" { &pair.a } else { &pair.b };
    let seen = simulator.last_received().await.json();
    let asked = json!({"asked": conversation.body["thinking"], "sent": seen["thinking"]});
    assert_eq!(plan["thinking"], asked, "{name}");
    let messages = conversation.body["messages"].as_array_mut().unwrap();
    messages.pop();
    plan
}

/// Covers: S1-18
#[tokio::test]
async fn plan_matches_the_turn_that_follows() {
    for policy in POLICIES {
        let pair = Pair::with_policy(policy).await;
        let mut conversation = new_conversation("planned", true);
        conversation.ask(pair.client(), "one").await;
        let plan = check_plan(&pair, &mut conversation, &["1.0 sent"], "same backend").await;
        let origin = json!({"domain": "a", "backend": "a", "model": "claude-sonnet-4-5"});
        for (name, value) in origin.as_object().unwrap() {
            assert_eq!(&plan["blocks"][0]["origin"][name], value);
        }

        pair.gateway.switch("b").await;
        let left_out = [&*format!("1.0 left_out {policy}")];
        check_plan(&pair, &mut conversation, &left_out, "after a switch").await;
        pair.gateway.switch("a").await;
        let back = match policy {
            "session" => "1.0 left_out session",
            _ => "1.0 sent",
        };
        check_plan(&pair, &mut conversation, &[back], "back again").await;
        conversation.headers.push(("x-throughline-backend".into(), "b".into()));
        check_plan(&pair, &mut conversation, &left_out, "pinned").await;

        let mut outside = crate::support::new_conversation("made outside", true);
        outside.ask(&pair.a.client, "hello").await;
        let tried = ["1.0 tried unknown"];
        check_plan(&pair, &mut outside, &tried, "never seen").await;
        assert_eq!(pair.refusals().await, [""; 0]);
    }
}

#[tokio::test]
async fn plan_reports_adapted_settings_and_bound_blocks() {
    let a = binding_simulator("a").await;
    let pair = Pair::with_simulators(a, binding_simulator("b").await, "", ["", ""]).await;
    let mut open = new_conversation("open loop", true);
    open.offer_tool();
    open.ask(pair.client(), "use a tool").await;
    pair.gateway.switch("b").await;
    let call = open.body["messages"][1]["content"][2]["id"].clone();
    let result = json!([{"type": "tool_result", "tool_use_id": call, "content": "42"}]);
    open.push_user(result);
    let plan = pair.client().post("/v1/plan", &[], &open.body).await;
    let plan = plan.expect_ok().json();
    assert_eq!(
        plan["losses"],
        json!([
            {"kind": "thinking_omitted", "count": 1, "reason": "origin"},
            {"kind": "setting_adapted", "setting": "thinking", "reason": "open_tool_loop"},
        ])
    );
    assert_eq!(plan["thinking"]["sent"], json!({"type": "disabled"}));
    let answer = open.send(pair.client()).await.expect_ok();
    assert_eq!(pair.turn(&answer).await["losses"], plan["losses"]);

    pair.gateway.switch("a").await;
    let mut bound = new_conversation("bound", true);
    bound.body["model"] = "claude-opus-5-5".into();
    bound.body["thinking"] = json!({"type": "adaptive"});
    bound.ask(pair.client(), "hello").await;
    bound.body["system"] = "You are verbose.".into();
    let dropped = ["1.0 left_out prefix"];
    check_plan(&pair, &mut bound, &dropped, "another system text").await;
    assert_eq!(pair.refusals().await, [""; 0]);
}

#[tokio::test]
async fn plan_accepts_any_backend() {
    let pair = Pair::start("").await;
    let mut conversation = new_conversation("elsewhere", true);
    conversation.ask(pair.client(), "hello").await;
    conversation.push_user("more");
    for (query, backend, fate) in [
        ("?dialect=anthropic&backend=a", "a", "1.0 sent"),
        ("?dialect=anthropic&backend=b", "b", "1.0 left_out origin"),
        ("", "a", "1.0 sent"),
    ] {
        let path = format!("/v1/plan{query}");
        let plan = pair.client().post(&path, &[], &conversation.body).await;
        let plan = plan.expect_ok().json();
        assert_eq!(
            (plan["backend"].as_str(), fates(&plan)),
            (Some(backend), vec![fate.to_owned()])
        );
    }
    let unknown = pair.client().post("/v1/plan?backend=c", &[], &conversation.body);
    assert_eq!(unknown.await.status, 400);
    assert_eq!(pair.a.received().await.len(), 1);
    assert_eq!(pair.b.received().await.len(), 0);
}
