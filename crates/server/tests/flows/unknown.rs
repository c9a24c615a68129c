//! Blocks that the gateway never saw or that a backend refuses: tried once, remembered, reported.

use serde_json::{Value, json};
use throughline_testkit::{Conversation, Simulator};

use crate::support::{
    NO_BLOCKS, POLICIES, POLICIES_AND_STREAMING, Pair, fates, held, loss, new_conversation,
    thinking_in,
};

/// Starts a conversation directly with the simulator, without the gateway.
async fn conversation_without_gateway(
    simulator: &Simulator,
    stream: bool,
) -> (Conversation, Vec<Value>) {
    let mut conversation = new_conversation("outside", stream);
    let (one, _) = conversation.ask(&simulator.client, "hello").await;
    let (two, _) = conversation.ask(&simulator.client, "more").await;
    simulator.clear_received().await;
    (conversation, thinking_in(&[&one, &two]))
}

#[tokio::test]
async fn accepted_unknown_block_becomes_known() {
    for (policy, stream) in POLICIES_AND_STREAMING {
        let pair = Pair::with_policy(policy).await;
        let (mut conversation, blocks) = conversation_without_gateway(&pair.a, stream).await;
        let (_, answer) = conversation.ask(pair.client(), "bench 1").await;
        assert_eq!(loss(&answer), "");
        let turn = pair.turn(&answer).await;
        assert_eq!(fates(&turn), ["1.0 tried unknown", "3.0 tried unknown"]);
        assert_eq!(pair.a.last_received().await.thinking(), blocks);
        assert_eq!(pair.held().await, held(2, 0, 1), "{policy} {stream}");
        assert_eq!(pair.gateway.statistics().await["tried"], 2);

        let (_, answer) = conversation.ask(pair.client(), "bench 1").await;
        assert_eq!(fates(&pair.turn(&answer).await), ["1.0 sent", "3.0 sent"]);
        // Acceptance by one backend says nothing about the other: there the block is tried and
        // refused, or dropped with its session.
        pair.gateway.switch("b").await;
        let (_, answer) = conversation.ask(pair.client(), "bench 1").await;
        assert_eq!(loss(&answer), format!("thinking_omitted=2;reason={policy}"));
        assert_eq!(pair.a.received().await.len(), 2);
    }
}

/// Covers: S1-2
#[tokio::test]
async fn refused_unknown_block_is_tried_only_once() {
    for (policy, stream) in POLICIES_AND_STREAMING {
        let pair = Pair::with_policy(policy).await;
        let (mut conversation, blocks) = conversation_without_gateway(&pair.b, stream).await;
        let (own, answer) = conversation.ask(pair.client(), "and you?").await;
        assert_eq!(loss(&answer), "thinking_omitted=2;reason=origin");
        let turn = pair.turn(&answer).await;
        assert_eq!(fates(&turn), ["1.0 left_out origin", "3.0 left_out origin"]);
        let seen = pair.a.received().await;
        let sent: Vec<_> = seen.iter().map(|seen| (seen.status, seen.thinking())).collect();
        assert_eq!(sent, [(400, blocks), (200, vec![])], "{policy} {stream}");
        assert!(seen[0].refusal.contains("Invalid `signature`"));
        let statistics = pair.gateway.statistics().await;
        assert_eq!((&statistics["tried"], &statistics["refused"]), (&json!(2), &json!(2)));

        pair.a.clear_received().await;
        let (_, answer) = conversation.ask(pair.client(), "bench 1").await;
        assert_eq!(loss(&answer), "thinking_omitted=2;reason=origin");
        let [seen] = &pair.a.received().await[..] else {
            panic!("the next turn goes out once");
        };
        assert_eq!((seen.status, seen.thinking()), (200, thinking_in(&[&own])));
    }
}

#[tokio::test]
async fn refused_unknown_block_keeps_the_known_blocks() {
    for (policy, stream) in POLICIES_AND_STREAMING {
        let pair = Pair::with_policy(policy).await;
        let mut conversation = new_conversation("mixed", stream);
        let (own, _) = conversation.ask(pair.client(), "hello").await;
        let unknown = {
            let mut elsewhere = conversation.clone();
            crate::support::cut_thinking(&mut elsewhere, 1);
            let (message, _) = elsewhere.ask(&pair.b.client, "and you?").await;
            message
        };
        conversation.push_user("and you?");
        let messages = conversation.body["messages"].as_array_mut().unwrap();
        messages.push(json!({"role": "assistant", "content": unknown["content"]}));
        let (_, answer) = conversation.ask(pair.client(), "bench 1").await;
        assert_eq!(loss(&answer), "thinking_omitted=1;reason=origin");
        let turn = pair.turn(&answer).await;
        assert_eq!(fates(&turn), ["1.0 sent", "3.0 left_out origin"]);
        assert_eq!(
            pair.a.last_received().await.thinking(),
            thinking_in(&[&own]),
            "{policy} {stream}"
        );
    }
}

/// Covers: S1-18
#[tokio::test]
async fn unknown_blocks_are_dropped_if_configured() {
    for (policy, stream) in POLICIES_AND_STREAMING {
        let settings = format!("[thinking]\npolicy = \"{policy}\"\nunknown = \"drop\"");
        let pair = Pair::start(&settings).await;
        let (mut conversation, _) = conversation_without_gateway(&pair.a, stream).await;
        let (own, answer) = conversation.ask(pair.client(), "still there?").await;
        assert_eq!(loss(&answer), "thinking_omitted=2;reason=unknown");
        assert_eq!(pair.a.last_received().await.thinking(), NO_BLOCKS);
        let log = pair.gateway.log();
        assert!(log.contains("filtered_from_request=2"), "{log}");

        let (_, answer) = conversation.ask(pair.client(), "bench 1").await;
        assert_eq!(loss(&answer), "thinking_omitted=2;reason=unknown");
        assert_eq!(pair.a.last_received().await.thinking(), thinking_in(&[&own]));
        assert_eq!(pair.gateway.statistics().await["tried"], 0);
        assert_eq!(pair.refusals().await, [""; 0]);
    }
}

#[tokio::test]
async fn callers_error_behavior_setting_disables_the_retry() {
    for policy in POLICIES {
        let pair = Pair::with_policy(policy).await;
        let (mut conversation, _) = conversation_without_gateway(&pair.b, true).await;
        conversation.body["model"] = "claude-opus-5-5".into();
        conversation.body["thinking"] = json!({
            "type": "adaptive", "block_binding": {"prefix_mismatch_behavior": "error"},
        });
        conversation
            .headers
            .push(("anthropic-beta".into(), "thinking-binding-controls-2026-08-01".into()));
        conversation.push_user("and you?");
        let answer = conversation.send(pair.client()).await;
        assert_eq!(answer.status, 400, "{policy}");
        let seen = pair.a.received().await;
        assert_eq!(seen.len(), 1);
        assert_eq!(answer.json()["error"]["message"], seen[0].refusal);
        assert_eq!(pair.turn(&answer).await["end"], "failed");
    }
}

/// Covers: S1-2, C-38
#[tokio::test]
async fn refusal_of_a_known_block_drops_all_older_thinking_once() {
    for policy in POLICIES {
        // The two backends are configured to read each other's signatures, but they do not.
        let (a, b) = (Simulator::start("a").await, Simulator::start("b").await);
        let settings = format!("[thinking]\npolicy = \"{policy}\"");
        let shared = "signature_domain = \"shared\"";
        let pair = Pair::with_simulators(a, b, &settings, [shared, shared]).await;
        let mut conversation = new_conversation("shared", true);
        let (one, _) = conversation.ask(pair.client(), "one").await;
        let (two, _) = conversation.ask(pair.client(), "two").await;
        pair.gateway.switch("b").await;
        let (own, answer) = conversation.ask(pair.client(), "three").await;
        let sent: Vec<_> =
            pair.b.received().await.iter().map(|seen| (seen.status, seen.thinking())).collect();
        let (expected, lost) = match policy {
            // The session ended, so nothing was tried.
            "session" => (vec![(200, vec![])], "thinking_omitted=2;reason=session"),
            _ => (
                vec![(400, thinking_in(&[&one, &two])), (200, vec![])],
                "thinking_omitted=2;reason=origin",
            ),
        };
        assert_eq!(sent, expected, "{policy}");
        assert_eq!(loss(&answer), lost, "{policy}");

        pair.b.clear_received().await;
        conversation.ask(pair.client(), "bench 1").await;
        let [seen] = &pair.b.received().await[..] else {
            panic!("the next turn goes out once");
        };
        assert_eq!((seen.status, seen.thinking()), (200, thinking_in(&[&own])));
    }
}

#[tokio::test]
async fn unrepairable_refusal_passes_unchanged() {
    let pair = Pair::start("").await;
    let mut conversation = new_conversation("broken", true);
    conversation.body["thinking"]["budget_tokens"] = 1.into();
    conversation.push_user("hello");
    let answer = conversation.send(pair.client()).await;
    let seen = pair.a.received().await;
    assert_eq!((answer.status, seen.len()), (400, 1));
    assert_eq!(answer.json()["error"]["message"], seen[0].refusal);
    assert_eq!(answer.header("x-throughline-backend"), "a");
}
