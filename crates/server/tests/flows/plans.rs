//! `POST /v1/plan` says what would happen, and then it happens.

use serde_json::{Value, json};
use throughline_testkit::Conversation;

use crate::support::{POLICIES, Pair, binding, fates, talk};

/// Asks for a plan, then takes the turn: both tell the same, and the plan changed nothing.
async fn check(pair: &Pair, talk: &mut Conversation, expected: &[&str], name: &str) -> Value {
    talk.user("bench 1");
    let headers: Vec<(&str, &str)> =
        talk.headers.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
    let before = pair.gateway.statistics().await;
    let plan = pair.client().post("/v1/plan", &headers, &talk.body).await;
    let plan = plan.good().json();
    assert_eq!(pair.gateway.statistics().await, before, "{name}");

    let answer = talk.send(pair.client()).await.good();
    let turn = pair.turn(&answer).await;
    assert_eq!(fates(&plan), expected, "{name}");
    for same in ["backend", "lane", "blocks", "losses"] {
        assert_eq!(plan[same], turn[same], "{name}: {same}");
    }
    assert_eq!(plan["model"], turn["upstream_model"], "{name}");
    let simulator = if plan["backend"] == "a" { &pair.a } else { &pair.b };
    let seen = simulator.last().await.json();
    let asked = json!({"asked": talk.body["thinking"], "sent": seen["thinking"]});
    assert_eq!(plan["thinking"], asked, "{name}");
    let messages = talk.body["messages"].as_array_mut().unwrap();
    messages.pop();
    plan
}

/// Covers: S1-18
#[tokio::test]
async fn a_plan_is_what_then_happens() {
    for policy in POLICIES {
        let pair = Pair::under(policy).await;
        let mut talk = talk("planned", true);
        talk.say(pair.client(), "one").await;
        let plan = check(&pair, &mut talk, &["1.0 sent"], "same backend").await;
        let origin = json!({"domain": "a", "backend": "a", "model": "claude-sonnet-4-5"});
        for (name, value) in origin.as_object().unwrap() {
            assert_eq!(&plan["blocks"][0]["origin"][name], value);
        }

        pair.gateway.switch("b").await;
        let left_out = [&*format!("1.0 left_out {policy}")];
        check(&pair, &mut talk, &left_out, "after a switch").await;
        pair.gateway.switch("a").await;
        let back = match policy {
            "session" => "1.0 left_out session",
            _ => "1.0 sent",
        };
        check(&pair, &mut talk, &[back], "back again").await;
        talk.headers.push(("x-throughline-backend".into(), "b".into()));
        check(&pair, &mut talk, &left_out, "pinned").await;

        let mut outside = crate::support::talk("made outside", true);
        outside.say(&pair.a.client, "hello").await;
        let tried = ["1.0 tried unknown"];
        check(&pair, &mut outside, &tried, "never seen").await;
        assert_eq!(pair.refusals().await, [""; 0]);
    }
}

#[tokio::test]
async fn a_plan_tells_of_adapted_settings_and_bound_blocks() {
    let a = binding("a").await;
    let pair = Pair::of(a, binding("b").await, "", ["", ""]).await;
    let mut open = talk("open loop", true);
    open.offer_tool();
    open.say(pair.client(), "use a tool").await;
    pair.gateway.switch("b").await;
    let call = open.body["messages"][1]["content"][2]["id"].clone();
    let result = json!([{"type": "tool_result", "tool_use_id": call, "content": "42"}]);
    open.user(result);
    let plan = pair.client().post("/v1/plan", &[], &open.body).await;
    let plan = plan.good().json();
    assert_eq!(
        plan["losses"],
        json!([
            {"kind": "thinking_omitted", "count": 1, "reason": "origin"},
            {"kind": "setting_adapted", "setting": "thinking", "reason": "open_tool_loop"},
        ])
    );
    assert_eq!(plan["thinking"]["sent"], json!({"type": "disabled"}));
    let answer = open.send(pair.client()).await.good();
    assert_eq!(pair.turn(&answer).await["losses"], plan["losses"]);

    pair.gateway.switch("a").await;
    let mut bound = talk("bound", true);
    bound.body["model"] = "claude-opus-5-5".into();
    bound.body["thinking"] = json!({"type": "adaptive"});
    bound.say(pair.client(), "hello").await;
    bound.body["system"] = "You are verbose.".into();
    let dropped = ["1.0 left_out prefix"];
    check(&pair, &mut bound, &dropped, "another system text").await;
    assert_eq!(pair.refusals().await, [""; 0]);
}

#[tokio::test]
async fn a_plan_can_be_asked_for_any_backend() {
    let pair = Pair::start("").await;
    let mut talk = talk("elsewhere", true);
    talk.say(pair.client(), "hello").await;
    talk.user("more");
    for (query, backend, fate) in [
        ("?dialect=anthropic&backend=a", "a", "1.0 sent"),
        ("?dialect=anthropic&backend=b", "b", "1.0 left_out origin"),
        ("", "a", "1.0 sent"),
    ] {
        let path = format!("/v1/plan{query}");
        let plan = pair.client().post(&path, &[], &talk.body).await;
        let plan = plan.good().json();
        assert_eq!(
            (plan["backend"].as_str(), fates(&plan)),
            (Some(backend), vec![fate.to_owned()])
        );
    }
    let unknown = pair.client().post("/v1/plan?backend=c", &[], &talk.body);
    assert_eq!(unknown.await.status, 400);
    assert_eq!(pair.a.seen().await.len(), 1);
    assert_eq!(pair.b.seen().await.len(), 0);
}
