//! Clients that drop thinking in an open tool loop. The gateway puts it back in place, and the rest
//! of the client's bytes stay the same. What may not go back is reported.

use serde_json::{Value, json};
use throughline_testkit::{Answer, Conversation, Simulator};

use crate::support::{
    POLICIES, Pair, binding_simulator, cut_thinking, fates, loss, new_conversation, thinking_in,
};

/// A reply with every kind of thinking, between texts and several calls.
const INTERLEAVED: &str = r#"
[[step]]
when = { contains = "interleave" }
say = [
  { redacted = true }, { thinking = "First." }, { text = "I look." }, { thinking = "Second." },
  { tool = { name = "lookup", input = { key = "7" } } }, { thinking = "Third." },
  { tool = { name = "lookup", input = { key = "8" } } },
]
"#;

/// The two thinking modes, with a model for each.
fn modes() -> [(&'static str, Value); 2] {
    [
        ("claude-sonnet-4-5", json!({"type": "enabled", "budget_tokens": 2048})),
        ("claude-opus-4-6", json!({"type": "adaptive"})),
    ]
}

/// Creates a conversation with a tool, in one of the modes.
fn conversation_in((model, thinking): &(&str, Value), stream: bool) -> Conversation {
    let mut conversation = new_conversation("drops thinking", stream);
    conversation.body["model"] = (*model).into();
    conversation.body["thinking"] = thinking.clone();
    conversation.offer_tool();
    conversation
}

/// Appends the results of the last message's calls, and sends the conversation as spaced bytes.
/// Returns the bytes and the answer.
async fn send_results(conversation: &mut Conversation, pair: &Pair) -> (String, Answer) {
    let last = conversation.body["messages"].as_array().unwrap().last().unwrap().clone();
    let calls = last["content"].as_array().unwrap().iter();
    let results: Vec<Value> = calls
        .filter(|block| block["type"] == "tool_use")
        .map(|call| json!({"type": "tool_result", "tool_use_id": call["id"], "content": "41"}))
        .collect();
    conversation.push_user(results);
    // White space and an escape show whether the body was written again.
    let bytes =
        conversation.body.to_string().replacen("\"max_tokens\":8192", "\"max_tokens\" : 8192 ", 1);
    let bytes = bytes.replace("terse", "t\\u0065rse");
    let headers = [("x-claude-code-session-id", "drops thinking")];
    let answer = pair.client().post_bytes("/v1/messages", &headers, bytes.clone()).await;
    (bytes, answer)
}

/// Returns the body without the thinking blocks, as text. The blocks stand before other blocks.
fn without(body: &str, blocks: &[Value]) -> String {
    let mut rest = body.to_owned();
    for block in blocks {
        let written = match block["type"].as_str() {
            Some("thinking") => format!(
                "{{\"type\":\"thinking\",\"thinking\":{},\"signature\":{}}},",
                block["thinking"], block["signature"]
            ),
            _ => format!("{{\"type\":\"redacted_thinking\",\"data\":{}}},", block["data"]),
        };
        assert!(rest.contains(&written), "{written} is not in {rest}");
        rest = rest.replacen(&written, "", 1);
    }
    rest
}

#[tokio::test]
async fn dropped_thinking_is_put_back_and_all_other_bytes_stay() {
    for mode in modes() {
        for stream in [true, false] {
            let pair = Pair::start("").await;
            let mut conversation = conversation_in(&mode, stream);
            let (one, _) = conversation.ask(pair.client(), "use a tool twice, redacted").await;
            assert_eq!(thinking_in(&[&one]).len(), 2);
            cut_thinking(&mut conversation, 1);
            let (sent, answer) = send_results(&mut conversation, &pair).await;
            assert_eq!(answer.status, 200, "{mode:?}: {}", answer.text());
            let seen = pair.a.last_received().await;
            assert_eq!(seen.thinking(), thinking_in(&[&one]), "{mode:?} {stream}");
            assert_eq!(without(&seen.body, &thinking_in(&[&one])), sent, "{mode:?} {stream}");
            assert_eq!(loss(&answer), "");
            let turn = pair.turn(&answer).await;
            assert_eq!(fates(&turn), ["1 restored"; 2]);
            assert_eq!(turn["lane"], "through");
            assert_eq!(pair.gateway.statistics().await["restored"], 2);
            assert_eq!(pair.refusals().await, [""; 0]);
        }
    }
}

#[tokio::test]
async fn every_round_of_the_loop_gets_its_thinking_back() {
    for mode in modes() {
        let mut pair = Pair::start("").await;
        let mut conversation = conversation_in(&mode, true);
        let (one, _) = conversation.ask(pair.client(), "use a tool twice").await;
        cut_thinking(&mut conversation, 1);
        let (two, _) = conversation.answer_tools(pair.client(), "41").await;
        assert_eq!(two["stop_reason"], "tool_use");
        cut_thinking(&mut conversation, 3);
        // What is put back survives a restart.
        pair.gateway.signal("TERM").await;
        pair.gateway.wait_for_exit().await;
        pair.gateway.restart().await;
        let (three, _) = conversation.answer_tools(pair.client(), "42").await;
        assert_eq!(pair.a.last_received().await.thinking(), thinking_in(&[&one, &two]));
        // The loop is over. Its rounds keep what they got, because the provider's prompt cache finds only
        // what does not change. The answer after it never got its thinking back.
        cut_thinking(&mut conversation, 5);
        conversation.ask(pair.client(), "thanks").await;
        assert_eq!(pair.a.last_received().await.thinking(), thinking_in(&[&one, &two]));
        assert_eq!(thinking_in(&[&three]).len(), 1);
        assert_eq!(pair.refusals().await, [""; 0], "{mode:?}");
    }
}

/// Every subset of the blocks is dropped once.
#[tokio::test]
async fn each_dropped_block_returns_to_its_place() {
    let a = Simulator::with_scenario("a", INTERLEAVED).await;
    let b = Simulator::start("b").await;
    let pair = Pair::with_simulators(a, b, "", ["", ""]).await;
    for mode in modes() {
        let mut whole = conversation_in(&mode, true);
        let (one, _) = whole.ask(pair.client(), "interleave").await;
        let thinking = thinking_in(&[&one]);
        assert_eq!(thinking.len(), 4);
        for dropped in 0..16_usize {
            let mut conversation = whole.clone();
            let content = conversation.body["messages"][1]["content"].as_array_mut().unwrap();
            content.retain(|block| {
                let at = thinking.iter().position(|thought| thought == block);
                at.is_none_or(|at| dropped & (1 << at) == 0)
            });
            let (sent, answer) = send_results(&mut conversation, &pair).await;
            let case = format!("{mode:?}, dropped {dropped:04b}");
            assert_eq!(answer.status, 200, "{case}: {}", answer.text());
            let seen = pair.a.last_received().await;
            assert_eq!(seen.json()["messages"][1]["content"], one["content"], "{case}");
            let lost: Vec<Value> = (0..4)
                .filter(|at| dropped & (1 << at) > 0)
                .map(|at| thinking[at].clone())
                .collect();
            assert_eq!(without(&seen.body, &lost), sent, "{case}");
            let turn = pair.turn(&answer).await;
            let restored = fates(&turn).iter().filter(|fate| fate.ends_with("restored")).count();
            assert_eq!((restored, fates(&turn).len()), (lost.len(), 4), "{case}");
            assert_eq!(loss(&answer), "", "{case}");
        }
    }
    assert_eq!(pair.refusals().await, [""; 0]);
}

/// A block that came back without its signature, or without its text, is made whole again.
#[tokio::test]
async fn damaged_thinking_is_made_whole() {
    for mode in modes() {
        for (member, value) in
            [("signature", json!("")), ("signature", Value::Null), ("thinking", json!(""))]
        {
            let pair = Pair::start("").await;
            let mut conversation = conversation_in(&mode, true);
            let (one, _) = conversation.ask(pair.client(), "use a tool").await;
            let block = &mut conversation.body["messages"][1]["content"][0];
            block[member] = value.clone();
            if value.is_null() {
                block.as_object_mut().unwrap().remove(member);
            }
            let (_, answer) = send_results(&mut conversation, &pair).await;
            let case = format!("{mode:?} {member} {value}");
            assert_eq!(answer.status, 200, "{case}: {}", answer.text());
            assert_eq!(pair.a.last_received().await.thinking(), thinking_in(&[&one]), "{case}");
            assert_eq!(fates(&pair.turn(&answer).await), ["1.0 restored"], "{case}");
            assert_eq!(pair.refusals().await, [""; 0], "{case}");
        }
    }
}

/// Some clients send a turn as several messages. Nothing is missing then.
#[tokio::test]
async fn turn_in_several_messages_passes_unchanged() {
    let pair = Pair::start("").await;
    let mut conversation = conversation_in(&modes()[0], true);
    conversation.ask(pair.client(), "use a tool").await;
    let messages = conversation.body["messages"].as_array_mut().unwrap();
    let thinking = messages[1]["content"].as_array_mut().unwrap().remove(0);
    messages.insert(1, json!({"role": "assistant", "content": [thinking]}));
    let (sent, answer) = send_results(&mut conversation, &pair).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    assert_eq!(pair.a.last_received().await.body, sent);
    assert_eq!(fates(&pair.turn(&answer).await), ["1.0 sent"]);
}

/// Thinking belongs to the calls that it led to.
#[tokio::test]
async fn thinking_of_a_changed_call_is_not_put_back() {
    let pair = Pair::start("").await;
    let mut conversation = conversation_in(&modes()[1], true);
    conversation.ask(pair.client(), "use a tool").await;
    cut_thinking(&mut conversation, 1);
    conversation.body["messages"][1]["content"][1]["input"] = json!({"key": "another"});
    let (sent, answer) = send_results(&mut conversation, &pair).await;
    assert_eq!(pair.a.last_received().await.body, sent);
    assert_eq!(loss(&answer), "thinking_omitted=1;reason=shape");
    assert_eq!(fates(&pair.turn(&answer).await), ["1 left_out shape"]);
}

#[tokio::test]
async fn nothing_is_put_back_while_thinking_is_off() {
    for thinking in [json!({"type": "disabled"}), Value::Null] {
        let pair = Pair::start("").await;
        let mut conversation = conversation_in(&modes()[0], true);
        conversation.ask(pair.client(), "use a tool").await;
        cut_thinking(&mut conversation, 1);
        conversation.body["thinking"] = thinking.clone();
        if thinking.is_null() {
            conversation.body.as_object_mut().unwrap().remove("thinking");
        }
        let (sent, answer) = send_results(&mut conversation, &pair).await;
        assert_eq!(answer.status, 200, "{}", answer.text());
        assert_eq!(pair.a.last_received().await.body, sent, "{thinking}");
        assert_eq!(loss(&answer), "");
    }
}

/// A caller that wants an error for a changed history gets nothing added to it.
#[tokio::test]
async fn nothing_is_put_back_for_a_caller_that_wants_prefix_errors() {
    let a = binding_simulator("a").await;
    let pair = Pair::with_simulators(a, Simulator::start("b").await, "", ["", ""]).await;
    let mut conversation = new_conversation("wants errors", true);
    conversation
        .headers
        .push(("anthropic-beta".into(), "thinking-binding-controls-2026-08-01".into()));
    conversation.body["model"] = "claude-opus-5-5".into();
    conversation.body["thinking"] =
        json!({"type": "adaptive", "block_binding": {"prefix_mismatch_behavior": "error"}});
    conversation.offer_tool();
    conversation.ask(pair.client(), "use a tool").await;
    cut_thinking(&mut conversation, 1);
    let (_, answer) = conversation.answer_tools(pair.client(), "41").await;
    assert_eq!(pair.a.last_received().await.thinking(), [Value::Null; 0]);
    assert_eq!(loss(&answer), "thinking_omitted=1;reason=policy");
    assert_eq!(fates(&pair.turn(&answer).await), ["1 left_out policy"]);
    assert_eq!(pair.refusals().await, [""; 0]);
}

/// Thinking that is bound to what comes before it returns to exactly that place.
#[tokio::test]
async fn bound_thinking_is_put_back_where_it_is_valid() {
    let a = binding_simulator("a").await;
    let pair = Pair::with_simulators(a, Simulator::start("b").await, "", ["", ""]).await;
    let mut conversation = new_conversation("bound", true);
    conversation.body["model"] = "claude-opus-5-5".into();
    conversation.body["thinking"] = json!({"type": "adaptive"});
    conversation.offer_tool();
    let (one, _) = conversation.ask(pair.client(), "use a tool twice").await;
    cut_thinking(&mut conversation, 1);
    let (two, _) = conversation.answer_tools(pair.client(), "41").await;
    cut_thinking(&mut conversation, 3);
    let (_, answer) = conversation.answer_tools(pair.client(), "42").await;
    let seen = pair.a.last_received().await;
    assert_eq!(seen.thinking(), thinking_in(&[&one, &two]));
    assert_eq!(seen.json()["thinking"], json!({"type": "adaptive"}), "nothing had to be dropped");
    assert_eq!(fates(&pair.turn(&answer).await), ["1 restored", "3 restored"]);
    assert_eq!(pair.refusals().await, [""; 0]);
}

/// The number of lost blocks is the same in the header, the turn, the log and the metrics.
async fn assert_one_number(pair: &Pair, turn: &Value, reason: &str) {
    let counted =
        turn["losses"].as_array().unwrap().iter().filter(|loss| loss["kind"] == "thinking_omitted");
    let counted: Vec<&Value> = counted.collect();
    assert_eq!(counted, [&json!({"kind": "thinking_omitted", "count": 1, "reason": reason})]);
    let log = pair.gateway.log();
    let line = log.lines().rfind(|line| line.contains("Turn ended")).unwrap();
    assert!(line.contains(&format!("thinking_omitted=1;reason={reason}")), "{line}");
    let metrics = pair.gateway.metrics().await;
    assert_eq!(metrics.sum("throughline_losses_total", &[("kind", "thinking_omitted")]), 1.0);
}

#[tokio::test]
async fn dropped_thinking_of_another_backend_is_reported() {
    for policy in POLICIES {
        for mode in modes() {
            let pair = Pair::with_policy(policy).await;
            let mut conversation = conversation_in(&mode, true);
            conversation.ask(pair.client(), "use a tool").await;
            cut_thinking(&mut conversation, 1);
            pair.gateway.switch("b").await;
            let (_, answer) = conversation.answer_tools(pair.client(), "41").await;
            let omitted = format!("thinking_omitted=1;reason={policy}");
            let manual = mode.1["type"] == "enabled";
            let expected = match manual {
                true => format!("{omitted}, setting_adapted=thinking;reason=open_tool_loop"),
                false => omitted,
            };
            assert_eq!(loss(&answer), expected);
            assert_eq!(pair.b.last_received().await.thinking(), [Value::Null; 0]);
            let turn = pair.turn(&answer).await;
            assert_eq!(fates(&turn), [format!("1 left_out {policy}")]);
            assert_one_number(&pair, &turn, policy).await;
            assert_eq!(pair.refusals().await, [""; 0]);
        }
    }
}

/// A block that the backend has refused never goes there again.
#[tokio::test]
async fn refused_thinking_is_not_put_back() {
    // The configuration says that `b` reads what `a` signs, but `b` does not.
    let shared = "signature_domain = \"shared\"";
    let (a, b) = (Simulator::start("a").await, Simulator::start("b").await);
    let pair = Pair::with_simulators(a, b, "", [shared, shared]).await;
    let mut conversation = conversation_in(&modes()[1], true);
    conversation.ask(pair.client(), "use a tool twice").await;
    cut_thinking(&mut conversation, 1);
    pair.gateway.switch("b").await;
    let (_, answer) = conversation.answer_tools(pair.client(), "41").await;
    let seen = pair.b.received().await;
    assert_eq!(seen.len(), 2, "one refusal, one answer");
    assert!(seen[0].refusal.contains("Invalid `signature`"), "{}", seen[0].refusal);
    assert_eq!(loss(&answer), "thinking_omitted=1;reason=origin");
    let (_, answer) = conversation.answer_tools(pair.client(), "42").await;
    assert_eq!(pair.b.received().await.len(), 3, "no second refusal");
    assert_eq!(loss(&answer), "thinking_omitted=1;reason=origin");
    let turn = pair.turn(&answer).await;
    assert_eq!(fates(&turn), ["1 left_out origin", "3.0 sent"]);
}

/// Thinking that the `session` policy has evicted is not put back.
#[tokio::test]
async fn evicted_thinking_is_not_put_back() {
    for policy in POLICIES {
        let b = Simulator::start("b").await;
        let a = Simulator::with_scenario("a", INTERLEAVED).await;
        let settings = format!("[thinking]\npolicy = \"{policy}\"");
        let pair = Pair::with_simulators(a, b, &settings, ["", ""]).await;
        let mut conversation = conversation_in(&modes()[1], true);
        conversation.ask(pair.client(), "interleave").await;
        // The client has sent every block back once. Then it drops one of them.
        let mut again = conversation.clone();
        send_results(&mut again, &pair).await.1.expect_ok();
        let content = conversation.body["messages"][1]["content"].as_array_mut().unwrap();
        content.retain(|block| block["thinking"] != "Third.");
        let (_, answer) = send_results(&mut conversation, &pair).await;
        let expected = match policy {
            "session" => (3, "thinking_omitted=1;reason=session"),
            _ => (4, ""),
        };
        let seen = pair.a.last_received().await.thinking().len();
        assert_eq!((seen, loss(&answer)), expected, "{policy}");
    }
}

/// The ids of calls are not secret, so another caller gets nothing.
#[tokio::test]
async fn other_caller_gets_nothing_put_back() {
    let pair = Pair::start("").await;
    let mut conversation = conversation_in(&modes()[1], true);
    conversation.headers.push(("x-api-key".into(), "one".into()));
    conversation.ask(pair.client(), "use a tool").await;
    cut_thinking(&mut conversation, 1);
    conversation.headers.pop();
    conversation.headers.push(("x-api-key".into(), "another".into()));
    let (_, answer) = conversation.answer_tools(pair.client(), "41").await;
    assert_eq!(pair.a.last_received().await.thinking(), [Value::Null; 0]);
    assert_eq!(loss(&answer), "");
}

/// A plan reports what a request would do, and a token count is taken of what would be sent.
#[tokio::test]
async fn plans_and_counts_include_what_is_put_back() {
    let pair = Pair::start("").await;
    let mut conversation = conversation_in(&modes()[0], true);
    conversation.ask(pair.client(), "use a tool").await;
    cut_thinking(&mut conversation, 1);
    let call = conversation.body["messages"][1]["content"][1]["id"].clone();
    conversation.push_user(json!([{"type": "tool_result", "tool_use_id": call, "content": "42"}]));
    let headers = [("x-claude-code-session-id", "drops thinking")];
    let plan = "/v1/plan?dialect=anthropic&backend=a";
    let plan = pair.client().post(plan, &headers, &conversation.body).await.expect_ok().json();
    assert_eq!(fates(&plan), ["1 restored"]);
    let mut count = conversation.body.clone();
    count.as_object_mut().unwrap().remove("max_tokens");
    let path = "/v1/messages/count_tokens";
    pair.client().post(path, &headers, &count).await.expect_ok();
    assert_eq!(pair.a.last_received().await.thinking().len(), 1);
    assert_eq!(pair.gateway.statistics().await["restored"], 0);
}
