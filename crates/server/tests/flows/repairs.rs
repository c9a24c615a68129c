//! Repairs after blocks were dropped: open tool loops and messages that became empty.

use serde_json::{Value, json};
use throughline_testkit::Simulator;

use crate::support::{
    POLICIES, POLICIES_AND_STREAMING, Pair, fates, is_thinking, loss, new_conversation, thinking_in,
};

/// Returns the losses of a request whose tool loop continues without thinking. The reason is the
/// name of the policy, because a switch also ends a session.
fn losses_without_thinking(policy: &str) -> String {
    format!("thinking_omitted=1;reason={policy}, setting_adapted=thinking;reason=open_tool_loop")
}

/// Covers: S1-2, C-31
#[tokio::test]
async fn open_tool_loop_continues_on_another_backend_without_thinking() {
    for (policy, stream) in POLICIES_AND_STREAMING {
        let pair = Pair::with_policy(policy).await;
        let mut conversation = new_conversation("loop", stream);
        conversation.offer_tool();
        let (one, _) = conversation.ask(pair.client(), "use a tool twice").await;
        assert_eq!(one["stop_reason"], "tool_use");
        pair.gateway.switch("b").await;
        let (two, answer) = conversation.answer_tools(pair.client(), "41").await;
        assert_eq!(two["stop_reason"], "tool_use");
        assert_eq!(loss(&answer), losses_without_thinking(policy), "{policy} {stream}");
        let seen = pair.b.last_received().await.json();
        assert_eq!(seen["thinking"], json!({"type": "disabled"}));
        let roles = ["user", "assistant", "user"];
        let messages = seen["messages"].as_array().unwrap();
        assert!(messages.iter().map(|message| &message["role"]).eq(roles));
        let call = seen["messages"][1]["content"].as_array().unwrap();
        assert!(!call.iter().any(is_thinking));

        // Thinking stays off until the loop ends. The next turn uses the caller's setting again.
        let (three, answer) = conversation.answer_tools(pair.client(), "42").await;
        assert_eq!(three["stop_reason"], "end_turn");
        assert_eq!(loss(&answer), losses_without_thinking(policy), "{policy} {stream}");
        let (four, answer) = conversation.ask(pair.client(), "use a tool again").await;
        assert_eq!(loss(&answer), format!("thinking_omitted=1;reason={policy}"));
        assert_eq!(pair.b.last_received().await.json()["thinking"], conversation.body["thinking"]);
        let (five, _) = conversation.answer_tools(pair.client(), "43").await;
        assert_eq!(pair.b.last_received().await.thinking(), thinking_in(&[&four]));

        pair.gateway.switch("a").await;
        conversation.ask(pair.client(), "thanks").await;
        let back = match policy {
            "session" => vec![],
            _ => thinking_in(&[&one]),
        };
        assert_eq!(pair.a.last_received().await.thinking(), back, "{policy} {stream}");
        assert_eq!(thinking_in(&[&five]).len(), 1);
        assert_eq!(pair.refusals().await, [""; 0]);
    }
}

/// Covers: S1-2
#[tokio::test]
async fn open_tool_loop_can_switch_back() {
    for policy in POLICIES {
        let pair = Pair::with_policy(policy).await;
        let mut conversation = new_conversation("back in the middle", true);
        conversation.offer_tool();
        conversation.ask(pair.client(), "use a tool twice").await;
        pair.gateway.switch("b").await;
        let (two, _) = conversation.answer_tools(pair.client(), "41").await;
        assert_eq!(two["stop_reason"], "tool_use");
        pair.gateway.switch("a").await;
        // The last call was made without thinking, so the loop ends without it.
        let (three, answer) = conversation.answer_tools(pair.client(), "42").await;
        assert_eq!(three["stop_reason"], "end_turn");
        let losses_without_thinking = "setting_adapted=thinking;reason=open_tool_loop";
        assert!(loss(&answer).ends_with(losses_without_thinking), "{policy} {}", loss(&answer));
        let (_, answer) = conversation.ask(pair.client(), "thanks").await;
        assert_eq!(pair.a.last_received().await.json()["thinking"], conversation.body["thinking"]);
        assert!(!loss(&answer).contains("setting_adapted"), "{policy}");
    }
}

/// The gateway has not seen this loop, so it cannot know what is missing.
#[tokio::test]
async fn unknown_loop_without_thinking_gets_the_providers_refusal() {
    let pair = Pair::start("").await;
    let mut conversation = new_conversation("the caller's own", true);
    conversation.offer_tool();
    conversation.ask(&pair.a.client, "use a tool").await;
    crate::support::cut_thinking(&mut conversation, 1);
    let call = conversation.body["messages"][1]["content"][1]["id"].clone();
    conversation.push_user(json!([{"type": "tool_result", "tool_use_id": call, "content": "42"}]));
    let answer = conversation.send(pair.client()).await;
    assert_eq!(answer.status, 400);
    let seen = pair.a.received().await;
    assert_eq!(seen.len(), 2, "not sent again");
    assert_eq!(answer.json()["error"]["message"], seen[1].refusal);
}

#[tokio::test]
async fn parallel_calls_stay_together_across_a_switch() {
    for (policy, stream) in POLICIES_AND_STREAMING {
        let pair = Pair::with_policy(policy).await;
        let mut conversation = new_conversation("parallel", stream);
        conversation.offer_tool();
        let (one, _) = conversation.ask(pair.client(), "a tool in parallel").await;
        let calls = one["content"].as_array().unwrap()[2..].to_vec();
        assert_eq!(calls.len(), 2);
        pair.gateway.switch("b").await;
        let (_, answer) = conversation.answer_tools(pair.client(), "42").await;
        assert_eq!(loss(&answer), losses_without_thinking(policy), "{policy} {stream}");
        let seen = pair.b.last_received().await.json();
        assert_eq!(seen["messages"][1]["content"].as_array().unwrap()[1..], calls);
        assert_eq!(seen["messages"][2], conversation.body["messages"][2]);
        assert_eq!(pair.refusals().await, [""; 0]);
    }
}

#[tokio::test]
async fn adaptive_thinking_loop_needs_no_repair() {
    for policy in POLICIES {
        let pair = Pair::with_policy(policy).await;
        let mut conversation = new_conversation("adaptive", true);
        conversation.body["model"] = "claude-opus-4-6".into();
        conversation.body["thinking"] = json!({"type": "adaptive"});
        conversation.offer_tool();
        conversation.ask(pair.client(), "use a tool").await;
        pair.gateway.switch("b").await;
        let (two, answer) = conversation.answer_tools(pair.client(), "42").await;
        assert_eq!(loss(&answer), format!("thinking_omitted=1;reason={policy}"));
        assert_eq!(pair.b.last_received().await.json()["thinking"], json!({"type": "adaptive"}));
        assert_eq!(thinking_in(&[&two]).len(), 1, "{policy}");
        assert_eq!(pair.refusals().await, [""; 0]);
    }
}

#[tokio::test]
async fn loop_with_its_own_block_keeps_thinking() {
    for (policy, stream) in POLICIES_AND_STREAMING {
        let pair = Pair::with_policy(policy).await;
        let mut conversation = new_conversation("own loop", stream);
        conversation.offer_tool();
        conversation.ask(pair.client(), "hello").await;
        pair.gateway.switch("b").await;
        let (one, _) = conversation.ask(pair.client(), "use a tool twice, redacted").await;
        let (two, answer) = conversation.answer_tools(pair.client(), "41").await;
        assert_eq!(loss(&answer), format!("thinking_omitted=1;reason={policy}"));
        let (_, answer) = conversation.answer_tools(pair.client(), "42").await;
        assert_eq!(loss(&answer), format!("thinking_omitted=1;reason={policy}"));
        let seen = pair.b.last_received().await;
        assert_eq!(seen.thinking(), thinking_in(&[&one, &two]), "{policy} {stream}");
        assert_eq!(seen.json()["thinking"], conversation.body["thinking"]);
        assert_eq!(pair.refusals().await, [""; 0]);
    }
}

/// Covers: case 11, C-32
#[tokio::test]
async fn message_with_only_foreign_thinking_gets_a_placeholder() {
    let only =
        "[[step]]\nwhen = { nth = 1 }\nsay = [{ thinking = \"Hm.\" }, { thinking = \"Well.\" }]";
    for (policy, stream) in POLICIES_AND_STREAMING {
        let a = Simulator::with_scenario("a", only).await;
        let b = Simulator::start("b").await;
        let settings = format!("[thinking]\npolicy = \"{policy}\"");
        let pair = Pair::with_simulators(a, b, &settings, ["", ""]).await;
        let mut conversation = new_conversation("emptied", stream);
        let (one, _) = conversation.ask(pair.client(), "hello").await;
        assert_eq!(thinking_in(&[&one]).len(), 2);
        pair.gateway.switch("b").await;
        let (_, answer) = conversation.ask(pair.client(), "more").await;
        let messages = pair.b.last_received().await.json()["messages"].clone();
        let expected: Value = json!([
            {"role": "user", "content": "hello"},
            {"role": "assistant", "content": [{"type": "text", "text": "[reasoning omitted]"}]},
            {"role": "user", "content": "more"},
        ]);
        assert_eq!(messages, expected, "{policy} {stream}");
        let lost = format!("thinking_omitted=2;reason={policy}, message_filled=1;reason=empty");
        assert_eq!(loss(&answer), lost);
        let turn = pair.turn(&answer).await;
        assert_eq!(
            fates(&turn),
            [&*format!("1.0 left_out {policy}"), &*format!("1.1 left_out {policy}")]
        );
        assert_eq!(pair.refusals().await, [""; 0]);
    }
}
