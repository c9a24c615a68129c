//! Prefix-bound thinking: a block is valid only after the conversation it was made in.

use serde_json::{Value, json};
use throughline_testkit::{Conversation, Simulator};

use crate::support::{
    POLICIES, Pair, binding_simulator, fates, loss, new_conversation, thinking_in,
};

const CONTROLS: &str = "thinking-binding-controls-2026-08-01";

async fn bound_pair(settings: &str) -> Pair {
    Pair::with_simulators(
        binding_simulator("a").await,
        binding_simulator("b").await,
        settings,
        ["", ""],
    )
    .await
}

/// Creates a conversation with a model that binds its thinking.
fn bound_conversation(session: &str, stream: bool) -> Conversation {
    let mut conversation = new_conversation(session, stream);
    conversation.body["model"] = "claude-opus-5-5".into();
    conversation.body["thinking"] = json!({"type": "adaptive"});
    conversation
}

fn binding_setting(body: &Value) -> &Value {
    &body["thinking"]["block_binding"]
}

/// Covers: S1-2
#[tokio::test]
async fn switching_back_keeps_every_bound_block() {
    for stream in [true, false] {
        let pair = bound_pair("").await;
        let mut conversation = bound_conversation("bound", stream);
        let (a1, _) = conversation.ask(pair.client(), "one").await;
        let (a2, _) = conversation.ask(pair.client(), "please think twice").await;
        pair.gateway.switch("b").await;
        let (b1, _) = conversation.ask(pair.client(), "three").await;
        let (b2, _) = conversation.ask(pair.client(), "four").await;
        pair.gateway.switch("a").await;
        let (a3, _) = conversation.ask(pair.client(), "five").await;
        conversation.ask(pair.client(), "six").await;
        let seen = pair.a.last_received().await;
        assert_eq!(seen.thinking(), thinking_in(&[&a1, &a2, &a3]), "{stream}");
        pair.gateway.switch("b").await;
        let (_, answer) = conversation.ask(pair.client(), "seven").await;
        let seen = pair.b.last_received().await;
        assert_eq!(seen.thinking(), thinking_in(&[&b1, &b2]), "{stream}");
        assert!(loss(&answer).ends_with(";reason=origin"), "{}", loss(&answer));

        // Neither backend needed a binding field, a beta header or a retry.
        for seen in [pair.a.received().await, pair.b.received().await].concat() {
            assert_eq!(binding_setting(&seen.json()), &Value::Null);
            assert_eq!(seen.header("anthropic-beta"), None);
        }
        assert_eq!(pair.refusals().await, [""; 0]);
    }
}

#[tokio::test]
async fn changed_system_text_makes_the_gateway_request_the_drop_of_bound_blocks() {
    for policy in POLICIES {
        for stream in [true, false] {
            let pair = bound_pair(&format!("[thinking]\npolicy = \"{policy}\"")).await;
            let mut conversation = bound_conversation("changed", stream);
            conversation.headers.push(("anthropic-beta".into(), "other".into()));
            conversation.ask(pair.client(), "one").await;
            conversation.ask(pair.client(), "two").await;
            conversation.body["system"] = "You are verbose.".into();
            let (three, answer) = conversation.ask(pair.client(), "three").await;

            let seen = pair.a.last_received().await;
            assert_eq!(
                seen.json()["thinking"],
                json!({"type": "adaptive", "block_binding": {"prefix_mismatch_behavior": "drop_block"}})
            );
            let beta = format!("other,{CONTROLS}");
            assert_eq!(seen.header("anthropic-beta"), Some(beta.as_str()));
            let dropped: Vec<_> = three["input_transformations"]
                .as_array()
                .unwrap()
                .iter()
                .map(|reported| (reported["type"].clone(), reported["path"].clone()))
                .collect();
            let reported = |path: &str| (json!("thinking_dropped"), json!(path));
            assert_eq!(
                dropped,
                [reported("messages.1.content.0"), reported("messages.3.content.0")]
            );
            assert_eq!(loss(&answer), "thinking_omitted=2;reason=prefix");
            let turn = pair.turn(&answer).await;
            assert_eq!(fates(&turn), ["1.0 left_out prefix", "3.0 left_out prefix"]);

            // Blocks made under the new system text are valid, and the others stay dropped.
            let (_, answer) = conversation.ask(pair.client(), "four").await;
            let turn = pair.turn(&answer).await;
            let expected = ["1.0 left_out prefix", "3.0 left_out prefix", "5.0 sent"];
            assert_eq!(fates(&turn), expected, "{policy} {stream}");
            assert_eq!(pair.refusals().await, [""; 0]);
        }
    }
}

#[tokio::test]
async fn callers_own_binding_setting_stays() {
    for behaviour in ["drop_block", "error"] {
        let pair = bound_pair("").await;
        let mut conversation = bound_conversation("own word", false);
        conversation.body["thinking"]["block_binding"] =
            json!({"prefix_mismatch_behavior": behaviour});
        conversation.headers.push(("anthropic-beta".into(), CONTROLS.into()));
        conversation.ask(pair.client(), "one").await;
        conversation.body["system"] = "You are verbose.".into();
        conversation.push_user("two");
        let answer = conversation.send(pair.client()).await;
        let seen = pair.a.last_received().await;
        assert_eq!(seen.body, conversation.body.to_string());
        assert_eq!(seen.header("anthropic-beta"), Some(CONTROLS));
        let turn = pair.turn(&answer).await;
        match behaviour {
            "error" => {
                assert_eq!(answer.status, 400);
                assert_eq!(answer.json()["error"]["message"], seen.refusal);
                assert_eq!(fates(&turn), ["1.0 sent prefix"]);
            }
            _ => {
                assert_eq!(answer.status, 200);
                assert_eq!(fates(&turn), ["1.0 left_out prefix"]);
                assert_eq!(loss(&answer), "thinking_omitted=1;reason=prefix");
            }
        }
        assert_eq!(pair.a.received().await.len(), 2, "sent once each");
    }
}

#[tokio::test]
async fn prefix_binding_is_learnt_from_the_first_refusal() {
    let pair = bound_pair("").await;
    // The catalog does not list this model as binding, so its bodies are not edited.
    let mut conversation = new_conversation("learnt", false);
    conversation.ask(pair.client(), "one").await;
    conversation.body["system"] = "You are verbose.".into();
    let (two, answer) = conversation.ask(pair.client(), "two").await;
    assert_eq!(loss(&answer), "thinking_omitted=1;reason=prefix");
    assert_eq!(fates(&pair.turn(&answer).await), ["1.0 left_out prefix"]);
    let seen = pair.a.received().await;
    let statuses: Vec<u64> = seen.iter().map(|seen| seen.status).collect();
    assert_eq!(statuses, [200, 400, 200]);
    assert!(seen[1].refusal.contains("bound to a different conversation"));
    let asked = json!({"prefix_mismatch_behavior": "drop_block"});
    assert_eq!(binding_setting(&seen[1].json()), &Value::Null);
    assert_eq!(binding_setting(&seen[2].json()), &asked);

    // The binding is known now, and valid blocks are kept.
    pair.a.clear_received().await;
    let (_, answer) = conversation.ask(pair.client(), "three").await;
    let turn = pair.turn(&answer).await;
    assert_eq!(fates(&turn), ["1.0 left_out prefix", "3.0 sent"]);
    let [seen] = &pair.a.received().await[..] else {
        panic!("the next turn goes out once");
    };
    assert_eq!((seen.status, binding_setting(&seen.json())), (200, &asked));
    assert!(seen.thinking().contains(&two["content"][0]));

    // A conversation whose blocks are all valid is not edited here either.
    pair.a.clear_received().await;
    let mut other = crate::support::new_conversation("untouched", false);
    other.ask(pair.client(), "one").await;
    other.push_user("two");
    other.send(pair.client()).await.expect_ok();
    assert_eq!(pair.a.last_received().await.body, other.body.to_string());
}

#[tokio::test]
async fn body_with_valid_blocks_stays_byte_identical() {
    let pair = Pair::with_simulators(
        binding_simulator("a").await,
        Simulator::start("b").await,
        "",
        ["", ""],
    )
    .await;
    let mut conversation = bound_conversation("identical", false);
    conversation.offer_tool();
    conversation.ask(pair.client(), "use a tool").await;
    conversation.answer_tools(pair.client(), "42").await;
    conversation.push_user("thanks");
    // The same values with other formatting. The provider compares values, and so does the gateway.
    let body = serde_json::to_string_pretty(&conversation.body).unwrap();
    let body = body.replace("\"thanks\"", "[{\"type\": \"text\", \"text\": \"th\\u0061nks\"}]");
    let headers = [("x-claude-code-session-id", "identical")];
    let send = pair.client().post_bytes("/v1/messages", &headers, body.clone());
    let answer = send.await.expect_ok();
    assert_eq!(pair.a.last_received().await.body, body);
    assert_eq!(loss(&answer), "");
    assert_eq!(fates(&pair.turn(&answer).await), ["1.0 sent", "3.0 sent"]);
    assert_eq!(pair.refusals().await, [""; 0]);
}
