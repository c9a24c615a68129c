//! Life of a block: registered, confirmed, evicted, and how the statistics count it.

use serde_json::json;

use crate::support::{
    NO_BLOCKS, POLICIES, Pair, cut_thinking, fates, held, new_conversation, pass_threshold,
    thinking_in, truncate_to,
};

/// Covers: S1-3
#[tokio::test]
async fn only_a_request_to_another_backend_starts_a_new_session() {
    for policy in POLICIES {
        let pair = Pair::with_policy(policy).await;
        let mut conversation = new_conversation("sessions", true);
        for (to, session) in [
            (&["a"][..], 1),
            (&["b"], 2),
            (&["b"], 2),
            // Switches without a request in between do not count.
            (&["a", "b"], 2),
            (&["a"], 3),
            (&["b", "a"], 3),
        ] {
            for backend in to {
                pair.gateway.switch(backend).await;
            }
            conversation.ask(pair.client(), "bench 1").await;
            assert_eq!(pair.held().await, held(0, 0, session), "{policy} {to:?}");
        }
    }
}

/// Covers: S1-5, S1-29
#[tokio::test]
async fn statistics_count_blocks_by_state() {
    let pair = Pair::start("[thinking]\norphan_threshold = \"1ms\"").await;
    let mut conversation = new_conversation("looked at", true);
    conversation.ask(pair.client(), "hello").await;
    conversation.ask(pair.client(), "more").await;
    let mut statistics = pair.gateway.statistics().await;
    let bytes = statistics["bytes"].take();
    assert!(bytes.as_u64().unwrap() > 0, "{bytes}");
    let expected = json!({
        "total": 2, "confirmed": 1, "unconfirmed": 1, "current_session": 2, "old_session": 0,
        "session": 1, "lineages": 1, "bytes": null, "restored": 0, "tried": 0, "refused": 0,
    });
    assert_eq!(statistics, expected);

    assert_eq!(pair.gateway.switch("b").await, json!({"active": "b", "previous": "a"}));
    let backends = pair.client().get("/admin/backends").await.expect_ok().json();
    assert_eq!(backends["active"], "b");
    let none = pair.client().get("/admin/thinking?lineage=none").await;
    assert_eq!(none.status, 404);
    let metrics = pair.gateway.metrics().await;
    assert_eq!(metrics.sum("throughline_memory_blocks", &[]), 2.0);
}

/// Covers: S1-29
#[tokio::test]
async fn other_lineage_counts_as_old_session_until_its_next_request() {
    for policy in POLICIES {
        let pair = Pair::with_policy(policy).await;
        let (mut main, mut agent) =
            (new_conversation("shared", true), new_conversation("shared", true));
        agent.body["system"] = "You are a sub-agent.".into();
        main.ask(pair.client(), "hello").await;
        agent.ask(pair.client(), "look").await;
        pair.gateway.switch("b").await;
        main.ask(pair.client(), "bench 1").await;
        let mut expected = held(0, 1, 2);
        expected["current_session"] = 0.into();
        expected["old_session"] = 1.into();
        assert_eq!(pair.held().await, expected, "{policy}");

        agent.ask(pair.client(), "bench 1").await;
        assert_eq!(pair.held().await, held(0, 0, 2), "{policy}");
    }
}

/// Covers: case 4, S1-15
#[tokio::test]
async fn block_past_the_threshold_survives_in_a_request_that_contains_it() {
    for policy in POLICIES {
        let settings = format!("[thinking]\npolicy = \"{policy}\"\norphan_threshold = \"1ms\"");
        let pair = Pair::start(&settings).await;
        let mut conversation = new_conversation("in time", true);
        let (one, _) = conversation.ask(pair.client(), "hello").await;
        pass_threshold().await;
        let (_, answer) = conversation.ask(pair.client(), "bench 1").await;
        assert_eq!(fates(&pair.turn(&answer).await), ["1.0 sent"]);
        assert_eq!(pair.a.last_received().await.thinking(), thinking_in(&[&one]));
        assert_eq!(pair.held().await, held(1, 0, 1), "{policy}");
    }
}

/// Covers: S1-12
#[tokio::test]
async fn each_block_ages_separately() {
    let pair = Pair::start("[thinking]\norphan_threshold = \"1s\"").await;
    let mut conversation = new_conversation("ages", true);
    conversation.ask(pair.client(), "hello").await;
    conversation.clone().ask(pair.client(), "an old one").await;
    // The test is about this threshold, so it waits for it.
    tokio::time::sleep(std::time::Duration::from_millis(1100)).await;
    conversation.clone().ask(pair.client(), "a young one").await;
    assert_eq!(pair.held().await, held(1, 1, 1), "the old one is gone");
    conversation.clone().ask(pair.client(), "bench 1").await;
    assert_eq!(pair.held().await, held(1, 1, 1), "the young one stays");
}

/// Covers: case 6
#[tokio::test]
async fn request_with_only_user_messages_evicts_nothing() {
    for policy in POLICIES {
        let pair = Pair::with_policy(policy).await;
        let mut conversation = new_conversation("counted", true);
        conversation.ask(pair.client(), "hello").await;
        conversation.ask(pair.client(), "bench 1").await;
        assert_eq!(pair.held().await, held(1, 0, 1));

        let mut probe = conversation.clone();
        truncate_to(&mut probe, 1);
        probe.body["max_tokens"] = 1.into();
        probe.body.as_object_mut().unwrap().remove("thinking");
        probe.send(pair.client()).await.expect_ok();
        assert_eq!(pair.held().await, held(1, 0, 1), "{policy}");

        let (_, answer) = conversation.ask(pair.client(), "bench 1").await;
        assert_eq!(fates(&pair.turn(&answer).await), ["1.0 sent"], "{policy}");
        assert_eq!(pair.held().await, held(1, 0, 1), "{policy}");
    }
}

/// Covers: case 7, C-7
#[tokio::test]
async fn helper_request_without_thinking_evicts_nothing() {
    for policy in POLICIES {
        let pair = Pair::with_policy(policy).await;
        let mut conversation = new_conversation("helped", true);
        for text in ["one", "two", "bench 1"] {
            conversation.ask(pair.client(), text).await;
        }
        assert_eq!(pair.held().await, held(2, 0, 1));

        let mut helper = conversation.clone();
        cut_thinking(&mut helper, 1);
        cut_thinking(&mut helper, 3);
        helper.ask(pair.client(), "bench 1").await;
        assert_eq!(pair.a.last_received().await.thinking(), NO_BLOCKS);

        let (_, answer) = conversation.ask(pair.client(), "bench 1").await;
        let turn = pair.turn(&answer).await;
        assert_eq!(fates(&turn), ["1.0 sent", "3.0 sent"], "{policy}");
        assert_eq!(pair.held().await, held(2, 0, 1), "{policy}");
    }
}
