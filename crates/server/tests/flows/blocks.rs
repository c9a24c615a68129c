//! Which blocks are recognised: every kind, with any signature, complete or cut.

use serde_json::{Value, json};
use throughline_simulator::Options;
use throughline_testkit::{Simulator, sse_events};

use crate::support::{
    NO_BLOCKS, POLICIES, POLICIES_AND_STREAMING, Pair, fates, held, loss, new_conversation,
    thinking_in,
};

fn policy_and_drop_unknown(policy: &str) -> String {
    format!("[thinking]\npolicy = \"{policy}\"\nunknown = \"drop\"")
}

/// Covers: case 8, S1-25, S1-26, S1-30
#[tokio::test]
async fn block_is_recognised_with_any_signature() {
    for (policy, stream) in POLICIES_AND_STREAMING {
        let pair = Pair::start(&policy_and_drop_unknown(policy)).await;
        for style in ["delta", "start", "empty", "late"] {
            let mut conversation = new_conversation(style, stream);
            conversation.headers.push(("x-simulator-signature".into(), style.into()));
            let (one, _) = conversation.ask(pair.client(), "hello").await;
            let signature = one["content"][0]["signature"].as_str().unwrap();
            assert_eq!(signature.is_empty(), style == "empty");
            let (_, answer) = conversation.ask(pair.client(), "bench 1").await;
            assert_eq!(pair.a.last_received().await.thinking(), thinking_in(&[&one]), "{style}");
            assert_eq!(fates(&pair.turn(&answer).await), ["1.0 sent"], "{style}");
            assert_eq!(pair.held_in_lineage_of(&answer).await, held(1, 0, 1), "{style}");
        }
        assert_eq!(pair.refusals().await, [""; 0]);
    }
}

/// Covers: case 9, S1-27, C-1
#[tokio::test]
async fn redacted_thinking_goes_back_only_to_its_origin() {
    for (policy, stream) in POLICIES_AND_STREAMING {
        let pair = Pair::start(&policy_and_drop_unknown(policy)).await;
        let mut conversation = new_conversation("redacted", stream);
        let (one, _) = conversation.ask(pair.client(), "something redacted").await;
        assert_eq!(one["content"][0]["type"], "redacted_thinking");
        assert_eq!(one["content"][1]["type"], "thinking");
        conversation.ask(pair.client(), "bench 1").await;
        assert_eq!(pair.a.last_received().await.thinking(), thinking_in(&[&one]));
        assert_eq!(pair.held().await, held(2, 0, 1));

        pair.gateway.switch("b").await;
        let (_, answer) = conversation.ask(pair.client(), "bench 1").await;
        assert_eq!(pair.b.last_received().await.thinking(), NO_BLOCKS);
        assert_eq!(loss(&answer), format!("thinking_omitted=2;reason={policy}"));
        assert_eq!(pair.refusals().await, [""; 0]);
    }
}

/// Covers: case 10
#[tokio::test]
async fn cut_block_is_never_sent() {
    for policy in POLICIES {
        let pair = Pair::with_policy(policy).await;
        let mut conversation = new_conversation("cut", true);
        conversation.headers.push(("x-simulator-fault".into(), "cut:event=6".into()));
        conversation.push_user("hello");
        let answer = conversation.send(pair.client()).await.expect_ok();
        let events = sse_events(&answer.text());
        let partial: String =
            events.iter().filter_map(|(_, data)| data["delta"]["thinking"].as_str()).collect();
        assert!(!partial.is_empty(), "{events:?}");
        assert_eq!(events.last().unwrap().0, "error", "{events:?}");
        let turn = pair.turn(&answer).await;
        assert_eq!(turn["end"], "cut", "{turn}");

        conversation.headers.pop();
        conversation.body["messages"].as_array_mut().unwrap().push(json!({
            "role": "assistant",
            "content": [
                {"type": "thinking", "thinking": partial, "signature": ""},
                {"type": "text", "text": "(cut)"},
            ],
        }));
        let (_, answer) = conversation.ask(pair.client(), "go on").await;
        assert_eq!(pair.a.last_received().await.thinking(), NO_BLOCKS);
        assert_eq!(loss(&answer), "thinking_omitted=1;reason=cut");
        assert_eq!(pair.refusals().await, [""; 0]);
    }
}

/// Covers: case 12
#[tokio::test]
async fn malformed_thinking_is_dropped_and_other_content_stays() {
    // The test checks only that the body is JSON, because a provider would refuse `null`.
    let lenient = Options { strict: false, ..Options::default() };
    let a = Simulator::with(lenient.clone()).await;
    let b = Simulator::with(lenient).await;
    let pair = Pair::with_simulators(a, b, "", ["", ""]).await;
    let body = |thinking: &str| {
        format!(
            r#"{{"model":"m","max_tokens":99, "messages":[{{"role":"user","content":"a string"}},{{"role":"assistant","content":null}},{{"role":"user","content":[{{"type":"text","text":"x"}}]}},{{"role":"assistant","content":[{thinking}{{"type":"text","text":"kept"}}]}},{{"role":"user","content":"bench 1"}}]}}"#
        )
    };
    let malformed = body(r#"{"type":"thinking","signature":"s"}, "#);
    let answer = pair.client().post_bytes("/v1/messages", &[], malformed);
    let answer = answer.await.expect_ok();
    assert_eq!(pair.a.last_received().await.body, body(""));
    assert_eq!(loss(&answer), "thinking_omitted=1;reason=shape");
    let turn = pair.turn(&answer).await;
    assert_eq!(fates(&turn), ["3.0 left_out shape"]);
}

/// Covers: case 13, S1-13, S1-14, S1-18, S1-43
#[tokio::test]
async fn blocks_with_equal_beginning_and_end_are_distinguished() {
    // Multi-byte characters cross byte 256, counted from either end.
    let ends = "x🧠".repeat(60);
    let scenario =
        format!("[[step]]\nsay = [{{ thinking = \"{ends}one{ends}\" }}, {{ text = \"Yes.\" }}]");
    for (policy, stream) in POLICIES_AND_STREAMING {
        let a = Simulator::with_scenario("a", &scenario).await;
        let b = Simulator::start("b").await;
        let pair = Pair::with_simulators(a, b, &policy_and_drop_unknown(policy), ["", ""]).await;
        let mut conversation = new_conversation("ends", stream);
        let (one, _) = conversation.ask(pair.client(), "hello").await;
        conversation.clone().ask(pair.client(), "bench 1").await;
        assert_eq!(pair.a.last_received().await.thinking(), thinking_in(&[&one]));

        let text = one["content"][0]["thinking"].as_str().unwrap();
        let other = text.replace("one", "two");
        assert_eq!(other.len(), text.len());
        conversation.body["messages"][1]["content"][0]["thinking"] = other.into();
        let (_, answer) = conversation.ask(pair.client(), "bench 1").await;
        assert_eq!(fates(&pair.turn(&answer).await), ["1.0 left_out unknown"]);
        assert_eq!(pair.a.last_received().await.thinking(), NO_BLOCKS);
        assert_eq!(pair.refusals().await, [""; 0]);
    }
}

/// A provider that hides its thinking still signs it. The gateway recognises such a block by its
/// signature, and rejects a known block whose text was removed later.
///
/// Covers: C-1, C-6
#[tokio::test]
async fn thinking_without_text_goes_back_only_if_received_so() {
    for (policy, stream) in POLICIES_AND_STREAMING {
        let pair = Pair::start(&policy_and_drop_unknown(policy)).await;
        let mut conversation = new_conversation("omitted", stream);
        conversation.body["thinking"]["display"] = "omitted".into();
        let (one, _) = conversation.ask(pair.client(), "hello").await;
        let (two, _) = conversation.ask(pair.client(), "more").await;
        let blocks = thinking_in(&[&one, &two]);
        assert_eq!(blocks.len(), 2);
        assert!(blocks.iter().all(|block| block["thinking"] == ""));
        assert_ne!(blocks[0]["signature"], blocks[1]["signature"]);

        conversation.body["thinking"]["display"] = "summarized".into();
        let (shown, _) = conversation.ask(pair.client(), "and more").await;
        assert_eq!(pair.a.last_received().await.thinking(), blocks, "{policy} {stream}");
        assert_ne!(thinking_in(&[&shown])[0]["thinking"], "");
        conversation.body["messages"][5]["content"][0]["thinking"] = "".into();
        let (_, answer) = conversation.ask(pair.client(), "bench 1").await;
        assert_eq!(pair.a.last_received().await.thinking(), blocks, "{policy} {stream}");
        let expected = ["1.0 sent", "3.0 sent", "5.0 left_out unknown"];
        assert_eq!(fates(&pair.turn(&answer).await), expected);
        assert_eq!(pair.refusals().await, [""; 0]);
    }
}

/// Covers: S1-24, S1-28
#[tokio::test]
async fn dropping_a_block_changes_no_other_byte() {
    for policy in POLICIES {
        let pair = Pair::with_policy(policy).await;
        let mut conversation = new_conversation("bytes", true);
        let (one, _) = conversation.ask(pair.client(), "hello").await;
        let block = one["content"][0].to_string();
        // The body has unusual order, white space, escapes, numbers, block types and cache markers.
        let body = |block: &str| {
            format!(
                r#" {{ "max_tokens" : 1024, "messages":[{{"content":"hello","role":"user"}},
  {{"role":"assistant","content":[ {block}{{"text":"caf\u00e9 \/ \ud83e\udde0","type":"text"}},
    {{"type":"tool_use","id":"toolu_1","name":"lookup","input":{{"b":1.50,"a":null,"b2":[ ]}}}}]}},
  {{"role":"user","content":[{{"type":"tool_result","tool_use_id":"toolu_1","content":[{{"type":"text","text":"row"}}],"is_error":false}},
    {{"type":"image","source":{{"type":"base64","media_type":"image/png","data":"AAAA"}}}},
    {{"type":"text","text":"bench 1","cache_control":{{"type":"ephemeral"}}}}]}}],
 "model":"claude-sonnet-4-5", "metadata": {{"user_id":"u"}},"stream"  : true,
 "tools":[{{"name":"lookup","input_schema":{{"type":"object"}}}}]}}
"#
            )
        };
        let with = body(&format!("{block} , "));
        let send = |body: String| pair.client().post_bytes("/v1/messages", &[], body);
        send(with.clone()).await.expect_ok();
        assert_eq!(pair.a.last_received().await.body, with, "{policy}");

        pair.gateway.switch("b").await;
        send(with).await.expect_ok();
        assert_eq!(pair.b.last_received().await.body, body(""), "{policy}");
        assert_eq!(pair.refusals().await, [""; 0]);
    }
}

/// Covers: S1-26
#[tokio::test]
async fn whole_reply_is_remembered_before_the_client_receives_it() {
    let pair = Pair::start(&policy_and_drop_unknown("session")).await;
    let turns: Vec<_> = (0..40)
        .map(|number| {
            let client = pair.client().clone();
            tokio::spawn(async move {
                let mut conversation = new_conversation(&format!("at once {number}"), false);
                for _ in 0..5 {
                    let (_, answer) = conversation.ask(&client, &format!("hello {number}")).await;
                    assert_eq!(loss(&answer), "");
                }
            })
        })
        .collect();
    for turn in turns {
        turn.await.unwrap();
    }
    assert_eq!(pair.refusals().await, [""; 0]);
}

/// Covers: S1-27
#[tokio::test]
async fn several_blocks_of_one_message_keep_their_order() {
    for (policy, stream) in POLICIES_AND_STREAMING {
        let pair = Pair::start(&policy_and_drop_unknown(policy)).await;
        let mut conversation = new_conversation("two of them", stream);
        let (one, _) = conversation.ask(pair.client(), "please think twice").await;
        let kinds: Vec<&Value> =
            one["content"].as_array().unwrap().iter().map(|block| &block["type"]).collect();
        assert_eq!(kinds, ["thinking", "text", "thinking", "text"]);
        conversation.ask(pair.client(), "bench 1").await;
        let sent = pair.a.last_received().await.json();
        assert_eq!(sent["messages"][1]["content"], one["content"]);

        pair.gateway.switch("b").await;
        conversation.ask(pair.client(), "bench 1").await;
        let sent = pair.b.last_received().await.json();
        let texts = json!([one["content"][1], one["content"][3]]);
        assert_eq!(sent["messages"][1]["content"], texts, "{policy} {stream}");
        assert_eq!(pair.refusals().await, [""; 0]);
    }
}
