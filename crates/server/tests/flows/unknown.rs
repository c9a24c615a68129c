//! Blocks the gateway never saw, and blocks a backend refuses: tried once, remembered, reported.

use serde_json::{Value, json};
use throughline_testkit::{Conversation, Simulator};

use crate::support::{NOTHING, POLICIES, Pair, WAYS, fates, held, loss, talk, thinking};

/// A conversation that began without the gateway.
async fn outside(simulator: &Simulator, stream: bool) -> (Conversation, Vec<Value>) {
    let mut talk = talk("outside", stream);
    let (one, _) = talk.say(&simulator.client, "hello").await;
    let (two, _) = talk.say(&simulator.client, "more").await;
    simulator.forget().await;
    (talk, thinking(&[&one, &two]))
}

#[tokio::test]
async fn an_unknown_block_that_is_accepted_is_known_from_then_on() {
    for (policy, stream) in WAYS {
        let pair = Pair::under(policy).await;
        let (mut talk, blocks) = outside(&pair.a, stream).await;
        let (_, answer) = talk.say(pair.client(), "bench 1").await;
        assert_eq!(loss(&answer), "");
        let turn = pair.turn(&answer).await;
        assert_eq!(fates(&turn), ["1.0 tried unknown", "3.0 tried unknown"]);
        assert_eq!(pair.a.last().await.thinking(), blocks);
        assert_eq!(pair.held().await, held(2, 0, 1), "{policy} {stream}");
        assert_eq!(pair.gateway.statistics().await["tried"], 2);

        let (_, answer) = talk.say(pair.client(), "bench 1").await;
        assert_eq!(fates(&pair.turn(&answer).await), ["1.0 sent", "3.0 sent"]);
        // What one backend took says nothing of the other: there it is tried, and refused; or it
        // stays behind with its session.
        pair.gateway.switch("b").await;
        let (_, answer) = talk.say(pair.client(), "bench 1").await;
        assert_eq!(loss(&answer), format!("thinking_omitted=2;reason={policy}"));
        assert_eq!(pair.a.seen().await.len(), 2);
    }
}

/// Covers: S1-2
#[tokio::test]
async fn an_unknown_block_that_is_refused_goes_once_and_never_again() {
    for (policy, stream) in WAYS {
        let pair = Pair::under(policy).await;
        let (mut talk, blocks) = outside(&pair.b, stream).await;
        let (own, answer) = talk.say(pair.client(), "and you?").await;
        assert_eq!(loss(&answer), "thinking_omitted=2;reason=origin");
        let turn = pair.turn(&answer).await;
        assert_eq!(fates(&turn), ["1.0 left_out origin", "3.0 left_out origin"]);
        let seen = pair.a.seen().await;
        let sent: Vec<_> = seen.iter().map(|seen| (seen.status, seen.thinking())).collect();
        assert_eq!(sent, [(400, blocks), (200, vec![])], "{policy} {stream}");
        assert!(seen[0].refusal.contains("Invalid `signature`"));
        let statistics = pair.gateway.statistics().await;
        assert_eq!((&statistics["tried"], &statistics["refused"]), (&json!(2), &json!(2)));

        pair.a.forget().await;
        let (_, answer) = talk.say(pair.client(), "bench 1").await;
        assert_eq!(loss(&answer), "thinking_omitted=2;reason=origin");
        let [seen] = &pair.a.seen().await[..] else {
            panic!("the next turn goes out once");
        };
        assert_eq!((seen.status, seen.thinking()), (200, thinking(&[&own])));
    }
}

#[tokio::test]
async fn a_refused_stranger_takes_no_known_block_with_it() {
    for (policy, stream) in WAYS {
        let pair = Pair::under(policy).await;
        let mut talk = talk("mixed", stream);
        let (own, _) = talk.say(pair.client(), "hello").await;
        let stranger = {
            let mut elsewhere = talk.clone();
            crate::support::cut_thinking(&mut elsewhere, 1);
            let (message, _) = elsewhere.say(&pair.b.client, "and you?").await;
            message
        };
        talk.user("and you?");
        let messages = talk.body["messages"].as_array_mut().unwrap();
        messages.push(json!({"role": "assistant", "content": stranger["content"]}));
        let (_, answer) = talk.say(pair.client(), "bench 1").await;
        assert_eq!(loss(&answer), "thinking_omitted=1;reason=origin");
        let turn = pair.turn(&answer).await;
        assert_eq!(fates(&turn), ["1.0 sent", "3.0 left_out origin"]);
        assert_eq!(pair.a.last().await.thinking(), thinking(&[&own]), "{policy} {stream}");
    }
}

/// Covers: S1-18
#[tokio::test]
async fn unknown_blocks_stay_behind_where_the_operator_wants_it() {
    for (policy, stream) in WAYS {
        let settings = format!("[thinking]\npolicy = \"{policy}\"\nunknown = \"drop\"");
        let pair = Pair::start(&settings).await;
        let (mut talk, _) = outside(&pair.a, stream).await;
        let (own, answer) = talk.say(pair.client(), "still there?").await;
        assert_eq!(loss(&answer), "thinking_omitted=2;reason=unknown");
        assert_eq!(pair.a.last().await.thinking(), NOTHING);
        let log = pair.gateway.log();
        assert!(log.contains("filtered_from_request=2"), "{log}");

        let (_, answer) = talk.say(pair.client(), "bench 1").await;
        assert_eq!(loss(&answer), "thinking_omitted=2;reason=unknown");
        assert_eq!(pair.a.last().await.thinking(), thinking(&[&own]));
        assert_eq!(pair.gateway.statistics().await["tried"], 0);
        assert_eq!(pair.refusals().await, [""; 0]);
    }
}

#[tokio::test]
async fn a_caller_that_wants_the_error_gets_it() {
    for policy in POLICIES {
        let pair = Pair::under(policy).await;
        let (mut talk, _) = outside(&pair.b, true).await;
        talk.body["model"] = "claude-opus-5-5".into();
        talk.body["thinking"] = json!({
            "type": "adaptive", "block_binding": {"prefix_mismatch_behavior": "error"},
        });
        talk.headers.push(("anthropic-beta".into(), "thinking-binding-controls-2026-08-01".into()));
        talk.user("and you?");
        let answer = talk.send(pair.client()).await;
        assert_eq!(answer.status, 400, "{policy}");
        let seen = pair.a.seen().await;
        assert_eq!(seen.len(), 1);
        assert_eq!(answer.json()["error"]["message"], seen[0].refusal);
        assert_eq!(pair.turn(&answer).await["end"], "failed");
    }
}

/// Covers: S1-2, C-38
#[tokio::test]
async fn a_refusal_of_a_known_block_takes_all_older_thinking_out_once() {
    for policy in POLICIES {
        // Two that are said to read each other's signatures, and do not.
        let (a, b) = (Simulator::start("a").await, Simulator::start("b").await);
        let settings = format!("[thinking]\npolicy = \"{policy}\"");
        let shared = "signature_domain = \"shared\"";
        let pair = Pair::of(a, b, &settings, [shared, shared]).await;
        let mut talk = talk("shared", true);
        let (one, _) = talk.say(pair.client(), "one").await;
        let (two, _) = talk.say(pair.client(), "two").await;
        pair.gateway.switch("b").await;
        let (own, answer) = talk.say(pair.client(), "three").await;
        let sent: Vec<_> =
            pair.b.seen().await.iter().map(|seen| (seen.status, seen.thinking())).collect();
        let (expected, lost) = match policy {
            // The session ended, so nothing was tried.
            "session" => (vec![(200, vec![])], "thinking_omitted=2;reason=session"),
            _ => (
                vec![(400, thinking(&[&one, &two])), (200, vec![])],
                "thinking_omitted=2;reason=origin",
            ),
        };
        assert_eq!(sent, expected, "{policy}");
        assert_eq!(loss(&answer), lost, "{policy}");

        pair.b.forget().await;
        talk.say(pair.client(), "bench 1").await;
        let [seen] = &pair.b.seen().await[..] else {
            panic!("the next turn goes out once");
        };
        assert_eq!((seen.status, seen.thinking()), (200, thinking(&[&own])));
    }
}

#[tokio::test]
async fn a_refusal_that_nothing_can_mend_is_passed_on_unchanged() {
    let pair = Pair::start("").await;
    let mut talk = talk("broken", true);
    talk.body["thinking"]["budget_tokens"] = 1.into();
    talk.user("hello");
    let answer = talk.send(pair.client()).await;
    let seen = pair.a.seen().await;
    assert_eq!((answer.status, seen.len()), (400, 1));
    assert_eq!(answer.json()["error"]["message"], seen[0].refusal);
    assert_eq!(answer.header("x-throughline-backend"), "a");
}
