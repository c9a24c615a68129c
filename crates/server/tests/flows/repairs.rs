//! What is mended when blocks stay behind: open tool loops, emptied messages.

use serde_json::{Value, json};
use throughline_testkit::Simulator;

use crate::support::{POLICIES, Pair, WAYS, fates, is_thinking, loss, scripted, talk, thinking};

/// The losses of a request whose tool loop had to go on without thinking. The reason has the name of
/// the policy: a switch also ends a session.
fn off(policy: &str) -> String {
    format!("thinking_omitted=1;reason={policy}, setting_adapted=thinking;reason=open_tool_loop")
}

/// Covers: S1-2, C-31
#[tokio::test]
async fn an_open_tool_loop_goes_on_elsewhere_without_thinking() {
    for (policy, stream) in WAYS {
        let pair = Pair::under(policy).await;
        let mut talk = talk("loop", stream);
        talk.offer_tool();
        let (one, _) = talk.say(pair.client(), "use a tool twice").await;
        assert_eq!(one["stop_reason"], "tool_use");
        pair.gateway.switch("b").await;
        let (two, answer) = talk.answer_tools(pair.client(), "41").await;
        assert_eq!(two["stop_reason"], "tool_use");
        assert_eq!(loss(&answer), off(policy), "{policy} {stream}");
        let seen = pair.b.last().await.json();
        assert_eq!(seen["thinking"], json!({"type": "disabled"}));
        let roles = ["user", "assistant", "user"];
        let messages = seen["messages"].as_array().unwrap();
        assert!(messages.iter().map(|message| &message["role"]).eq(roles));
        let call = seen["messages"][1]["content"].as_array().unwrap();
        assert!(!call.iter().any(is_thinking));

        // The loop stays without it to its end, then thinking is as the caller asks.
        let (three, answer) = talk.answer_tools(pair.client(), "42").await;
        assert_eq!(three["stop_reason"], "end_turn");
        assert_eq!(loss(&answer), off(policy), "{policy} {stream}");
        let (four, answer) = talk.say(pair.client(), "use a tool again").await;
        assert_eq!(loss(&answer), format!("thinking_omitted=1;reason={policy}"));
        assert_eq!(pair.b.last().await.json()["thinking"], talk.body["thinking"]);
        let (five, _) = talk.answer_tools(pair.client(), "43").await;
        assert_eq!(pair.b.last().await.thinking(), thinking(&[&four]));

        pair.gateway.switch("a").await;
        talk.say(pair.client(), "thanks").await;
        let back = match policy {
            "session" => vec![],
            _ => thinking(&[&one]),
        };
        assert_eq!(pair.a.last().await.thinking(), back, "{policy} {stream}");
        assert_eq!(thinking(&[&five]).len(), 1);
        assert_eq!(pair.refusals().await, [""; 0]);
    }
}

/// Covers: S1-2
#[tokio::test]
async fn a_loop_that_comes_back_in_its_middle_does_not_stick() {
    for policy in POLICIES {
        let pair = Pair::under(policy).await;
        let mut talk = talk("back in the middle", true);
        talk.offer_tool();
        talk.say(pair.client(), "use a tool twice").await;
        pair.gateway.switch("b").await;
        let (two, _) = talk.answer_tools(pair.client(), "41").await;
        assert_eq!(two["stop_reason"], "tool_use");
        pair.gateway.switch("a").await;
        // The last call was made without thinking, so the loop ends without it.
        let (three, answer) = talk.answer_tools(pair.client(), "42").await;
        assert_eq!(three["stop_reason"], "end_turn");
        let off = "setting_adapted=thinking;reason=open_tool_loop";
        assert!(loss(&answer).ends_with(off), "{policy} {}", loss(&answer));
        let (_, answer) = talk.say(pair.client(), "thanks").await;
        assert_eq!(pair.a.last().await.json()["thinking"], talk.body["thinking"]);
        assert!(!loss(&answer).contains("setting_adapted"), "{policy}");
    }
}

#[tokio::test]
async fn a_loop_the_caller_sent_without_thinking_is_refused_as_it_would_be_without_us() {
    let pair = Pair::start("").await;
    let mut talk = talk("the caller's own", true);
    talk.offer_tool();
    talk.say(pair.client(), "use a tool").await;
    crate::support::cut_thinking(&mut talk, 1);
    let call = talk.body["messages"][1]["content"][1]["id"].clone();
    talk.user(json!([{"type": "tool_result", "tool_use_id": call, "content": "42"}]));
    let answer = talk.send(pair.client()).await;
    assert_eq!(answer.status, 400);
    let seen = pair.a.seen().await;
    assert_eq!(seen.len(), 2, "not sent again");
    assert_eq!(answer.json()["error"]["message"], seen[1].refusal);
}

#[tokio::test]
async fn parallel_calls_stay_together_across_a_switch() {
    for (policy, stream) in WAYS {
        let pair = Pair::under(policy).await;
        let mut talk = talk("parallel", stream);
        talk.offer_tool();
        let (one, _) = talk.say(pair.client(), "a tool in parallel").await;
        let calls = one["content"].as_array().unwrap()[2..].to_vec();
        assert_eq!(calls.len(), 2);
        pair.gateway.switch("b").await;
        let (_, answer) = talk.answer_tools(pair.client(), "42").await;
        assert_eq!(loss(&answer), off(policy), "{policy} {stream}");
        let seen = pair.b.last().await.json();
        assert_eq!(seen["messages"][1]["content"].as_array().unwrap()[1..], calls);
        assert_eq!(seen["messages"][2], talk.body["messages"][2]);
        assert_eq!(pair.refusals().await, [""; 0]);
    }
}

#[tokio::test]
async fn an_adaptive_loop_needs_no_repair() {
    for policy in POLICIES {
        let pair = Pair::under(policy).await;
        let mut talk = talk("adaptive", true);
        talk.body["model"] = "claude-opus-4-6".into();
        talk.body["thinking"] = json!({"type": "adaptive"});
        talk.offer_tool();
        talk.say(pair.client(), "use a tool").await;
        pair.gateway.switch("b").await;
        let (two, answer) = talk.answer_tools(pair.client(), "42").await;
        assert_eq!(loss(&answer), format!("thinking_omitted=1;reason={policy}"));
        assert_eq!(pair.b.last().await.json()["thinking"], json!({"type": "adaptive"}));
        assert_eq!(thinking(&[&two]).len(), 1, "{policy}");
        assert_eq!(pair.refusals().await, [""; 0]);
    }
}

#[tokio::test]
async fn a_loop_with_its_own_block_keeps_thinking() {
    for (policy, stream) in WAYS {
        let pair = Pair::under(policy).await;
        let mut talk = talk("own loop", stream);
        talk.offer_tool();
        talk.say(pair.client(), "hello").await;
        pair.gateway.switch("b").await;
        let (one, _) = talk.say(pair.client(), "use a tool twice, redacted").await;
        let (two, answer) = talk.answer_tools(pair.client(), "41").await;
        assert_eq!(loss(&answer), format!("thinking_omitted=1;reason={policy}"));
        let (_, answer) = talk.answer_tools(pair.client(), "42").await;
        assert_eq!(loss(&answer), format!("thinking_omitted=1;reason={policy}"));
        let seen = pair.b.last().await;
        assert_eq!(seen.thinking(), thinking(&[&one, &two]), "{policy} {stream}");
        assert_eq!(seen.json()["thinking"], talk.body["thinking"]);
        assert_eq!(pair.refusals().await, [""; 0]);
    }
}

/// Covers: case 11, C-32
#[tokio::test]
async fn a_message_of_nothing_but_foreign_thinking_is_filled() {
    let only =
        "[[step]]\nwhen = { nth = 1 }\nsay = [{ thinking = \"Hm.\" }, { thinking = \"Well.\" }]";
    for (policy, stream) in WAYS {
        let a = scripted("a", only).await;
        let b = Simulator::start("b").await;
        let settings = format!("[thinking]\npolicy = \"{policy}\"");
        let pair = Pair::of(a, b, &settings, ["", ""]).await;
        let mut talk = talk("emptied", stream);
        let (one, _) = talk.say(pair.client(), "hello").await;
        assert_eq!(thinking(&[&one]).len(), 2);
        pair.gateway.switch("b").await;
        let (_, answer) = talk.say(pair.client(), "more").await;
        let messages = pair.b.last().await.json()["messages"].clone();
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
