//! The five example flows of a conversation: normal, truncated, switched, orphaned, concurrent
//! (the last one is in `concurrency`).

use crate::support::{
    POLICIES, POLICIES_AND_STREAMING, Pair, cut_thinking, fates, held, loss, new_conversation,
    pass_threshold, thinking_in, truncate_to,
};

/// Covers: case 1, S1-1, S1-7, S1-8, S1-16, S1-19, S1-25, S1-26
#[tokio::test]
async fn normal_conversation_keeps_every_block() {
    for (policy, stream) in POLICIES_AND_STREAMING {
        let pair = Pair::with_policy(policy).await;
        let mut conversation = new_conversation("normal", stream);
        let (one, _) = conversation.ask(pair.client(), "hello").await;
        assert_eq!(pair.held().await, held(0, 1, 1), "{policy} {stream}");

        let (two, _) = conversation.ask(pair.client(), "and more").await;
        assert_eq!(pair.a.last_received().await.thinking(), thinking_in(&[&one]));
        assert_eq!(pair.held().await, held(1, 1, 1), "{policy} {stream}");

        let (three, _) = conversation.ask(pair.client(), "and still more").await;
        assert_eq!(pair.a.last_received().await.thinking(), thinking_in(&[&one, &two]));

        let (_, answer) = conversation.ask(pair.client(), "bench 1").await;
        let all = thinking_in(&[&one, &two, &three]);
        assert_eq!(pair.a.last_received().await.thinking(), all);
        assert_eq!(pair.held().await, held(3, 0, 1), "{policy} {stream}");
        assert_eq!((loss(&answer), answer.header("x-throughline-backend")), ("", "a"));
        assert_eq!(pair.refusals().await, [""; 0]);
    }
}

/// Covers: case 3, S1-9, S1-11, S1-20
#[tokio::test]
async fn truncated_context_evicts_its_block() {
    for (policy, stream) in POLICIES_AND_STREAMING {
        let pair = Pair::with_policy(policy).await;
        let mut conversation = new_conversation("truncated", stream);
        for text in ["one", "two", "three", "bench 1"] {
            conversation.ask(pair.client(), text).await;
        }
        assert_eq!(pair.held().await, held(3, 0, 1));

        let before = conversation.body["messages"][1].clone();
        cut_thinking(&mut conversation, 1);
        conversation.ask(pair.client(), "bench 1").await;
        assert_eq!(pair.held().await, held(2, 0, 1), "{policy} {stream}");

        conversation.body["messages"][1] = before;
        let (_, answer) = conversation.ask(pair.client(), "bench 1").await;
        let turn = pair.turn(&answer).await;
        // Policy `session` forgets the block for good, policy `origin` still knows where it came
        // from.
        let (first, again) = match policy {
            "session" => ("1.0 left_out session", held(2, 0, 1)),
            _ => ("1.0 sent", held(3, 0, 1)),
        };
        assert_eq!(fates(&turn), [first, "3.0 sent", "5.0 sent"], "{policy}");
        assert_eq!(pair.held().await, again, "{policy} {stream}");
        assert_eq!(pair.refusals().await, [""; 0]);
    }
}

/// Covers: case 2, S1-2, S1-10, S1-17, S1-18, S1-21, S1-24
#[tokio::test]
async fn switch_drops_the_blocks_of_the_old_backend() {
    for (policy, stream) in POLICIES_AND_STREAMING {
        let pair = Pair::with_policy(policy).await;
        let mut conversation = new_conversation("switched", stream);
        conversation.ask(pair.client(), "hello").await;
        pair.gateway.switch("b").await;
        let (two, answer) = conversation.ask(pair.client(), "and you?").await;

        let sent = pair.b.last_received().await.json();
        let mut expected = conversation.body["messages"].clone();
        expected.as_array_mut().unwrap().truncate(3);
        expected[1]["content"].as_array_mut().unwrap().remove(0);
        assert_eq!(sent["messages"], expected, "{policy} {stream}");
        assert_eq!(loss(&answer), format!("thinking_omitted=1;reason={policy}"));
        assert_eq!(answer.header("x-throughline-backend"), "b");
        // The old block is gone, and the new one belongs to the new session.
        assert_eq!(pair.held().await, held(0, 1, 2), "{policy} {stream}");
        let log = pair.gateway.log();
        let summary = log.lines().rfind(|line| line.contains("Request processing"));
        let summary = summary.unwrap();
        assert!(
            summary.contains("confirmed=0 cleanup_old_session=1 cleanup_confirmed_unused=0 cleanup_orphaned=0 filtered_from_request=1 cache_size_after=0"),
            "{summary}"
        );

        conversation.ask(pair.client(), "bench 1").await;
        assert_eq!(pair.b.last_received().await.thinking(), thinking_in(&[&two]));
        assert_eq!(pair.held().await, held(1, 0, 2), "{policy} {stream}");
        assert_eq!(pair.refusals().await, [""; 0]);
    }
}

/// Covers: case 5, S1-6, S1-12, S1-22
#[tokio::test]
async fn block_that_never_comes_back_is_evicted_after_the_threshold() {
    for policy in POLICIES {
        for (threshold, old, after) in [
            ("orphan_threshold = \"1ms\"", true, held(1, 0, 1)),
            // The default threshold is five minutes.
            ("", false, held(1, 1, 1)),
        ] {
            let settings = format!("[thinking]\npolicy = \"{policy}\"\n{threshold}");
            let pair = Pair::start(&settings).await;
            let mut conversation = new_conversation("orphaned", true);
            conversation.ask(pair.client(), "hello").await;
            conversation.ask(pair.client(), "never mind").await;
            assert_eq!(pair.held().await, held(1, 1, 1));
            let given_up = conversation.clone();

            pass_threshold().await;
            truncate_to(&mut conversation, 2);
            conversation.ask(pair.client(), "bench 1").await;
            assert_eq!(pair.held().await, after, "{policy} {threshold}");

            let mut conversation = given_up;
            let (_, answer) = conversation.ask(pair.client(), "bench 1").await;
            let second = match (policy, old) {
                ("session", true) => "3.0 left_out session",
                _ => "3.0 sent",
            };
            assert_eq!(fates(&pair.turn(&answer).await), ["1.0 sent", second]);
            assert_eq!(pair.refusals().await, [""; 0]);
        }
    }
}
