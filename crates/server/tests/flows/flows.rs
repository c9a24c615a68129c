//! The five example flows of a conversation: normal, truncated, switched, orphaned, concurrent
//! (the last one is in `concurrency`).

use crate::support::{
    POLICIES, Pair, WAYS, cut_thinking, fates, go_back, grow_old, held, loss, talk, thinking,
};

/// Covers: case 1, S1-1, S1-7, S1-8, S1-16, S1-19, S1-25, S1-26
#[tokio::test]
async fn a_normal_conversation_keeps_every_block() {
    for (policy, stream) in WAYS {
        let pair = Pair::under(policy).await;
        let mut talk = talk("normal", stream);
        let (one, _) = talk.say(pair.client(), "hello").await;
        assert_eq!(pair.held().await, held(0, 1, 1), "{policy} {stream}");

        let (two, _) = talk.say(pair.client(), "and more").await;
        assert_eq!(pair.a.last().await.thinking(), thinking(&[&one]));
        assert_eq!(pair.held().await, held(1, 1, 1), "{policy} {stream}");

        let (three, _) = talk.say(pair.client(), "and still more").await;
        assert_eq!(pair.a.last().await.thinking(), thinking(&[&one, &two]));

        let (_, answer) = talk.say(pair.client(), "bench 1").await;
        let all = thinking(&[&one, &two, &three]);
        assert_eq!(pair.a.last().await.thinking(), all);
        assert_eq!(pair.held().await, held(3, 0, 1), "{policy} {stream}");
        assert_eq!((loss(&answer), answer.header("x-throughline-backend")), ("", "a"));
        assert_eq!(pair.refusals().await, [""; 0]);
    }
}

/// Covers: case 3, S1-9, S1-11, S1-20
#[tokio::test]
async fn a_truncated_context_gives_its_block_up() {
    for (policy, stream) in WAYS {
        let pair = Pair::under(policy).await;
        let mut talk = talk("truncated", stream);
        for text in ["one", "two", "three", "bench 1"] {
            talk.say(pair.client(), text).await;
        }
        assert_eq!(pair.held().await, held(3, 0, 1));

        let before = talk.body["messages"][1].clone();
        cut_thinking(&mut talk, 1);
        talk.say(pair.client(), "bench 1").await;
        assert_eq!(pair.held().await, held(2, 0, 1), "{policy} {stream}");

        talk.body["messages"][1] = before;
        let (_, answer) = talk.say(pair.client(), "bench 1").await;
        let turn = pair.turn(&answer).await;
        // The letter of the rules forgets for good; provenance does not.
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
async fn a_switch_strips_the_old_backends_block() {
    for (policy, stream) in WAYS {
        let pair = Pair::under(policy).await;
        let mut talk = talk("switched", stream);
        talk.say(pair.client(), "hello").await;
        pair.gateway.switch("b").await;
        let (two, answer) = talk.say(pair.client(), "and you?").await;

        let sent = pair.b.last().await.json();
        let mut expected = talk.body["messages"].clone();
        expected.as_array_mut().unwrap().truncate(3);
        expected[1]["content"].as_array_mut().unwrap().remove(0);
        assert_eq!(sent["messages"], expected, "{policy} {stream}");
        assert_eq!(loss(&answer), format!("thinking_omitted=1;reason={policy}"));
        assert_eq!(answer.header("x-throughline-backend"), "b");
        // The old block is gone, the new one belongs to the new session.
        assert_eq!(pair.held().await, held(0, 1, 2), "{policy} {stream}");
        let log = pair.gateway.log();
        let summary = log.lines().rfind(|line| line.contains("Request processing"));
        let summary = summary.unwrap();
        assert!(
            summary.contains("confirmed=0 cleanup_old_session=1 cleanup_confirmed_unused=0 cleanup_orphaned=0 filtered_from_request=1 cache_size_after=0"),
            "{summary}"
        );

        talk.say(pair.client(), "bench 1").await;
        assert_eq!(pair.b.last().await.thinking(), thinking(&[&two]));
        assert_eq!(pair.held().await, held(1, 0, 2), "{policy} {stream}");
        assert_eq!(pair.refusals().await, [""; 0]);
    }
}

/// Covers: case 5, S1-6, S1-12, S1-22
#[tokio::test]
async fn a_block_that_never_comes_back_is_dropped_after_the_threshold() {
    for policy in POLICIES {
        for (threshold, old, after) in [
            ("orphan_threshold = \"1ms\"", true, held(1, 0, 1)),
            // Five minutes, if nothing is said.
            ("", false, held(1, 1, 1)),
        ] {
            let settings = format!("[thinking]\npolicy = \"{policy}\"\n{threshold}");
            let pair = Pair::start(&settings).await;
            let mut talk = talk("orphaned", true);
            talk.say(pair.client(), "hello").await;
            talk.say(pair.client(), "never mind").await;
            assert_eq!(pair.held().await, held(1, 1, 1));
            let given_up = talk.clone();

            grow_old().await;
            go_back(&mut talk, 2);
            talk.say(pair.client(), "bench 1").await;
            assert_eq!(pair.held().await, after, "{policy} {threshold}");

            let mut talk = given_up;
            let (_, answer) = talk.say(pair.client(), "bench 1").await;
            let second = match (policy, old) {
                ("session", true) => "3.0 left_out session",
                _ => "3.0 sent",
            };
            assert_eq!(fates(&pair.turn(&answer).await), ["1.0 sent", second]);
            assert_eq!(pair.refusals().await, [""; 0]);
        }
    }
}
