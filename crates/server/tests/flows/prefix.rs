//! Thinking that is bound to the conversation before it.

use serde_json::{Value, json};
use throughline_testkit::{Conversation, Simulator};

use crate::support::{POLICIES, Pair, binding, fates, loss, talk, thinking};

const CONTROLS: &str = "thinking-binding-controls-2026-08-01";

async fn bound(settings: &str) -> Pair {
    Pair::of(binding("a").await, binding("b").await, settings, ["", ""]).await
}

/// A conversation with a model whose thinking is bound.
fn bound_talk(session: &str, stream: bool) -> Conversation {
    let mut talk = talk(session, stream);
    talk.body["model"] = "claude-opus-5-5".into();
    talk.body["thinking"] = json!({"type": "adaptive"});
    talk
}

fn binding_asked(body: &Value) -> &Value {
    &body["thinking"]["block_binding"]
}

/// Covers: S1-2
#[tokio::test]
async fn going_away_and_coming_back_keeps_every_bound_block() {
    for stream in [true, false] {
        let pair = bound("").await;
        let mut talk = bound_talk("bound", stream);
        let (a1, _) = talk.say(pair.client(), "one").await;
        let (a2, _) = talk.say(pair.client(), "please think twice").await;
        pair.gateway.switch("b").await;
        let (b1, _) = talk.say(pair.client(), "three").await;
        let (b2, _) = talk.say(pair.client(), "four").await;
        pair.gateway.switch("a").await;
        let (a3, _) = talk.say(pair.client(), "five").await;
        talk.say(pair.client(), "six").await;
        let seen = pair.a.last().await;
        assert_eq!(seen.thinking(), thinking(&[&a1, &a2, &a3]), "{stream}");
        pair.gateway.switch("b").await;
        let (_, answer) = talk.say(pair.client(), "seven").await;
        let seen = pair.b.last().await;
        assert_eq!(seen.thinking(), thinking(&[&b1, &b2]), "{stream}");
        assert!(loss(&answer).ends_with(";reason=origin"), "{}", loss(&answer));

        // Nothing had to be asked of either: no field, no beta, no refusal.
        for seen in [pair.a.seen().await, pair.b.seen().await].concat() {
            assert_eq!(binding_asked(&seen.json()), &Value::Null);
            assert_eq!(seen.header("anthropic-beta"), None);
        }
        assert_eq!(pair.refusals().await, [""; 0]);
    }
}

#[tokio::test]
async fn a_changed_system_text_asks_for_the_bound_blocks_to_be_dropped() {
    for policy in POLICIES {
        for stream in [true, false] {
            let pair = bound(&format!("[thinking]\npolicy = \"{policy}\"")).await;
            let mut talk = bound_talk("changed", stream);
            talk.headers.push(("anthropic-beta".into(), "other".into()));
            talk.say(pair.client(), "one").await;
            talk.say(pair.client(), "two").await;
            talk.body["system"] = "You are verbose.".into();
            let (three, answer) = talk.say(pair.client(), "three").await;

            let seen = pair.a.last().await;
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
                .map(|told| (told["type"].clone(), told["path"].clone()))
                .collect();
            let told = |path: &str| (json!("thinking_dropped"), json!(path));
            assert_eq!(dropped, [told("messages.1.content.0"), told("messages.3.content.0")]);
            assert_eq!(loss(&answer), "thinking_omitted=2;reason=prefix");
            let turn = pair.turn(&answer).await;
            assert_eq!(fates(&turn), ["1.0 left_out prefix", "3.0 left_out prefix"]);

            // What was made under the new text holds; the rest stays dropped.
            let (_, answer) = talk.say(pair.client(), "four").await;
            let turn = pair.turn(&answer).await;
            let expected = ["1.0 left_out prefix", "3.0 left_out prefix", "5.0 sent"];
            assert_eq!(fates(&turn), expected, "{policy} {stream}");
            assert_eq!(pair.refusals().await, [""; 0]);
        }
    }
}

#[tokio::test]
async fn the_callers_own_word_on_binding_is_left_alone() {
    for behaviour in ["drop_block", "error"] {
        let pair = bound("").await;
        let mut talk = bound_talk("own word", false);
        talk.body["thinking"]["block_binding"] = json!({"prefix_mismatch_behavior": behaviour});
        talk.headers.push(("anthropic-beta".into(), CONTROLS.into()));
        talk.say(pair.client(), "one").await;
        talk.body["system"] = "You are verbose.".into();
        talk.user("two");
        let answer = talk.send(pair.client()).await;
        let seen = pair.a.last().await;
        assert_eq!(seen.body, talk.body.to_string());
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
            }
        }
        assert_eq!(pair.a.seen().await.len(), 2, "sent once each");
    }
}

#[tokio::test]
async fn a_backend_that_binds_unmarked_models_is_learnt_from_its_first_refusal() {
    let pair = bound("").await;
    // Nothing is known of this model, so its bodies go as they are.
    let mut talk = talk("learnt", false);
    talk.say(pair.client(), "one").await;
    talk.body["system"] = "You are verbose.".into();
    let (two, answer) = talk.say(pair.client(), "two").await;
    assert_eq!(loss(&answer), "thinking_omitted=1;reason=prefix");
    assert_eq!(fates(&pair.turn(&answer).await), ["1.0 left_out prefix"]);
    let seen = pair.a.seen().await;
    let statuses: Vec<u64> = seen.iter().map(|seen| seen.status).collect();
    assert_eq!(statuses, [200, 400, 200]);
    assert!(seen[1].refusal.contains("bound to a different conversation"));
    let asked = json!({"prefix_mismatch_behavior": "drop_block"});
    assert_eq!(binding_asked(&seen[1].json()), &Value::Null);
    assert_eq!(binding_asked(&seen[2].json()), &asked);

    // From now on it is known beforehand, and what holds is not given up.
    pair.a.forget().await;
    let (_, answer) = talk.say(pair.client(), "three").await;
    let turn = pair.turn(&answer).await;
    assert_eq!(fates(&turn), ["1.0 left_out prefix", "3.0 sent"]);
    let [seen] = &pair.a.seen().await[..] else {
        panic!("the next turn goes out once");
    };
    assert_eq!((seen.status, binding_asked(&seen.json())), (200, &asked));
    assert!(seen.thinking().contains(&two["content"][0]));

    // A conversation whose blocks all hold is not touched, even here.
    pair.a.forget().await;
    let mut other = crate::support::talk("untouched", false);
    other.say(pair.client(), "one").await;
    other.user("two");
    other.send(pair.client()).await.good();
    assert_eq!(pair.a.last().await.body, other.body.to_string());
}

#[tokio::test]
async fn a_body_whose_blocks_hold_is_byte_identical() {
    let pair = Pair::of(binding("a").await, Simulator::start("b").await, "", ["", ""]).await;
    let mut talk = bound_talk("identical", false);
    talk.offer_tool();
    talk.say(pair.client(), "use a tool").await;
    talk.answer_tools(pair.client(), "42").await;
    talk.user("thanks");
    // The same values in another dress: the provider compares values, and so does the gateway.
    let body = serde_json::to_string_pretty(&talk.body).unwrap();
    let body = body.replace("\"thanks\"", "[{\"type\": \"text\", \"text\": \"th\\u0061nks\"}]");
    let headers = [("x-claude-code-session-id", "identical")];
    let send = pair.client().post_bytes("/v1/messages", &headers, body.clone());
    let answer = send.await.good();
    assert_eq!(pair.a.last().await.body, body);
    assert_eq!(loss(&answer), "");
    assert_eq!(fates(&pair.turn(&answer).await), ["1.0 sent", "3.0 sent"]);
    assert_eq!(pair.refusals().await, [""; 0]);
}
