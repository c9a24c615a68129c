//! Which blocks are recognised: every kind, every signature, whole and cut, and nothing else.

use serde_json::{Value, json};
use throughline_simulator::Options;
use throughline_testkit::{Simulator, sse_events};

use crate::support::{NOTHING, POLICIES, Pair, WAYS, fates, held, loss, scripted, talk, thinking};

fn strictly(policy: &str) -> String {
    format!("[thinking]\npolicy = \"{policy}\"\nunknown = \"drop\"")
}

/// Covers: case 8, S1-25, S1-26, S1-30
#[tokio::test]
async fn a_block_is_recognised_whatever_its_signature() {
    for (policy, stream) in WAYS {
        let pair = Pair::start(&strictly(policy)).await;
        for style in ["delta", "start", "empty", "late"] {
            let mut talk = talk(style, stream);
            talk.headers.push(("x-simulator-signature".into(), style.into()));
            let (one, _) = talk.say(pair.client(), "hello").await;
            let signature = one["content"][0]["signature"].as_str().unwrap();
            assert_eq!(signature.is_empty(), style == "empty");
            let (_, answer) = talk.say(pair.client(), "bench 1").await;
            assert_eq!(pair.a.last().await.thinking(), thinking(&[&one]), "{style}");
            assert_eq!(fates(&pair.turn(&answer).await), ["1.0 sent"], "{style}");
            assert_eq!(pair.held_by(&answer).await, held(1, 0, 1), "{style}");
        }
        assert_eq!(pair.refusals().await, [""; 0]);
    }
}

/// Covers: case 9, S1-27, C-1
#[tokio::test]
async fn redacted_thinking_goes_back_verbatim_and_not_elsewhere() {
    for (policy, stream) in WAYS {
        let pair = Pair::start(&strictly(policy)).await;
        let mut talk = talk("redacted", stream);
        let (one, _) = talk.say(pair.client(), "something redacted").await;
        assert_eq!(one["content"][0]["type"], "redacted_thinking");
        assert_eq!(one["content"][1]["type"], "thinking");
        talk.say(pair.client(), "bench 1").await;
        assert_eq!(pair.a.last().await.thinking(), thinking(&[&one]));
        assert_eq!(pair.held().await, held(2, 0, 1));

        pair.gateway.switch("b").await;
        let (_, answer) = talk.say(pair.client(), "bench 1").await;
        assert_eq!(pair.b.last().await.thinking(), NOTHING);
        assert_eq!(loss(&answer), format!("thinking_omitted=2;reason={policy}"));
        assert_eq!(pair.refusals().await, [""; 0]);
    }
}

/// Covers: case 10
#[tokio::test]
async fn a_block_that_was_cut_is_never_sent() {
    for policy in POLICIES {
        let pair = Pair::under(policy).await;
        let mut talk = talk("cut", true);
        talk.headers.push(("x-simulator-fault".into(), "cut:event=6".into()));
        talk.user("hello");
        let answer = talk.send(pair.client()).await.good();
        let events = sse_events(&answer.text());
        let partial: String =
            events.iter().filter_map(|(_, data)| data["delta"]["thinking"].as_str()).collect();
        assert!(!partial.is_empty(), "{events:?}");
        assert_eq!(events.last().unwrap().0, "error", "{events:?}");
        let turn = pair.turn(&answer).await;
        assert_eq!(turn["end"], "cut", "{turn}");

        talk.headers.pop();
        talk.body["messages"].as_array_mut().unwrap().push(json!({
            "role": "assistant",
            "content": [
                {"type": "thinking", "thinking": partial, "signature": ""},
                {"type": "text", "text": "(cut)"},
            ],
        }));
        let (_, answer) = talk.say(pair.client(), "go on").await;
        assert_eq!(pair.a.last().await.thinking(), NOTHING);
        assert_eq!(loss(&answer), "thinking_omitted=1;reason=cut");
        assert_eq!(pair.refusals().await, [""; 0]);
    }
}

/// Covers: case 12
#[tokio::test]
async fn content_that_is_no_list_is_left_alone_and_malformed_thinking_goes() {
    // Nothing but JSON is asked of the request here, since the provider would refuse a null.
    let lenient = Options { strict: false, ..Options::default() };
    let a = Simulator::with(lenient.clone()).await;
    let b = Simulator::with(lenient).await;
    let pair = Pair::of(a, b, "", ["", ""]).await;
    let body = |thinking: &str| {
        format!(
            r#"{{"model":"m","max_tokens":99, "messages":[{{"role":"user","content":"a string"}},{{"role":"assistant","content":null}},{{"role":"user","content":[{{"type":"text","text":"x"}}]}},{{"role":"assistant","content":[{thinking}{{"type":"text","text":"kept"}}]}},{{"role":"user","content":"bench 1"}}]}}"#
        )
    };
    let malformed = body(r#"{"type":"thinking","signature":"s"}, "#);
    let answer = pair.client().post_bytes("/v1/messages", &[], malformed);
    let answer = answer.await.good();
    assert_eq!(pair.a.last().await.body, body(""));
    assert_eq!(loss(&answer), "thinking_omitted=1;reason=shape");
    let turn = pair.turn(&answer).await;
    assert_eq!(fates(&turn), ["3.0 left_out shape"]);
}

/// Covers: case 13, S1-13, S1-14, S1-18, S1-43
#[tokio::test]
async fn blocks_with_the_same_ends_are_told_apart() {
    // Multi-byte characters stand across bytes 256 from either end.
    let ends = "x🧠".repeat(60);
    let scenario =
        format!("[[step]]\nsay = [{{ thinking = \"{ends}one{ends}\" }}, {{ text = \"Yes.\" }}]");
    for (policy, stream) in WAYS {
        let a = scripted("a", &scenario).await;
        let b = Simulator::start("b").await;
        let pair = Pair::of(a, b, &strictly(policy), ["", ""]).await;
        let mut talk = talk("ends", stream);
        let (one, _) = talk.say(pair.client(), "hello").await;
        talk.clone().say(pair.client(), "bench 1").await;
        assert_eq!(pair.a.last().await.thinking(), thinking(&[&one]));

        let text = one["content"][0]["thinking"].as_str().unwrap();
        let other = text.replace("one", "two");
        assert_eq!(other.len(), text.len());
        talk.body["messages"][1]["content"][0]["thinking"] = other.into();
        let (_, answer) = talk.say(pair.client(), "bench 1").await;
        assert_eq!(fates(&pair.turn(&answer).await), ["1.0 left_out unknown"]);
        assert_eq!(pair.a.last().await.thinking(), NOTHING);
        assert_eq!(pair.refusals().await, [""; 0]);
    }
}

/// A provider that shows no thinking signs it all the same. Such a block is known by its signature
/// alone, and one that somebody else has emptied is not taken for it.
///
/// Covers: C-1, C-6
#[tokio::test]
async fn thinking_without_its_text_goes_back_if_it_came_so() {
    for (policy, stream) in WAYS {
        let pair = Pair::start(&strictly(policy)).await;
        let mut talk = talk("omitted", stream);
        talk.body["thinking"]["display"] = "omitted".into();
        let (one, _) = talk.say(pair.client(), "hello").await;
        let (two, _) = talk.say(pair.client(), "more").await;
        let blocks = thinking(&[&one, &two]);
        assert_eq!(blocks.len(), 2);
        assert!(blocks.iter().all(|block| block["thinking"] == ""));
        assert_ne!(blocks[0]["signature"], blocks[1]["signature"]);

        talk.body["thinking"]["display"] = "summarized".into();
        let (shown, _) = talk.say(pair.client(), "and more").await;
        assert_eq!(pair.a.last().await.thinking(), blocks, "{policy} {stream}");
        assert_ne!(thinking(&[&shown])[0]["thinking"], "");
        talk.body["messages"][5]["content"][0]["thinking"] = "".into();
        let (_, answer) = talk.say(pair.client(), "bench 1").await;
        assert_eq!(pair.a.last().await.thinking(), blocks, "{policy} {stream}");
        let expected = ["1.0 sent", "3.0 sent", "5.0 left_out unknown"];
        assert_eq!(fates(&pair.turn(&answer).await), expected);
        assert_eq!(pair.refusals().await, [""; 0]);
    }
}

/// Covers: S1-24, S1-28
#[tokio::test]
async fn every_other_byte_of_the_body_stays() {
    for policy in POLICIES {
        let pair = Pair::under(policy).await;
        let mut talk = talk("bytes", true);
        let (one, _) = talk.say(pair.client(), "hello").await;
        let block = one["content"][0].to_string();
        // Odd on purpose: order, white space, escapes, numbers, kinds of blocks, cache marks.
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
        send(with.clone()).await.good();
        assert_eq!(pair.a.last().await.body, with, "{policy}");

        pair.gateway.switch("b").await;
        send(with).await.good();
        assert_eq!(pair.b.last().await.body, body(""), "{policy}");
        assert_eq!(pair.refusals().await, [""; 0]);
    }
}

/// Covers: S1-26
#[tokio::test]
async fn a_whole_reply_is_remembered_before_the_client_has_it() {
    let pair = Pair::start(&strictly("session")).await;
    let turns: Vec<_> = (0..40)
        .map(|number| {
            let client = pair.client().clone();
            tokio::spawn(async move {
                let mut talk = talk(&format!("at once {number}"), false);
                for _ in 0..5 {
                    let (_, answer) = talk.say(&client, &format!("hello {number}")).await;
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
async fn several_blocks_of_one_message_keep_their_places() {
    for (policy, stream) in WAYS {
        let pair = Pair::start(&strictly(policy)).await;
        let mut talk = talk("two of them", stream);
        let (one, _) = talk.say(pair.client(), "please think twice").await;
        let kinds: Vec<&Value> =
            one["content"].as_array().unwrap().iter().map(|block| &block["type"]).collect();
        assert_eq!(kinds, ["thinking", "text", "thinking", "text"]);
        talk.say(pair.client(), "bench 1").await;
        let sent = pair.a.last().await.json();
        assert_eq!(sent["messages"][1]["content"], one["content"]);

        pair.gateway.switch("b").await;
        talk.say(pair.client(), "bench 1").await;
        let sent = pair.b.last().await.json();
        let texts = json!([one["content"][1], one["content"][3]]);
        assert_eq!(sent["messages"][1]["content"], texts, "{policy} {stream}");
        assert_eq!(pair.refusals().await, [""; 0]);
    }
}
