//! How a block stands in its conversation: registered, confirmed, deleted, and what counts.

use serde_json::json;

use crate::support::{
    NOTHING, POLICIES, Pair, cut_thinking, fates, go_back, grow_old, held, talk, thinking,
};

/// Covers: S1-3
#[tokio::test]
async fn only_a_request_that_goes_elsewhere_raises_the_session() {
    for policy in POLICIES {
        let pair = Pair::under(policy).await;
        let mut talk = talk("sessions", true);
        for (to, session) in [
            (&["a"][..], 1),
            (&["b"], 2),
            (&["b"], 2),
            // Where the switch went in between does not matter.
            (&["a", "b"], 2),
            (&["a"], 3),
            (&["b", "a"], 3),
        ] {
            for backend in to {
                pair.gateway.switch(backend).await;
            }
            talk.say(pair.client(), "bench 1").await;
            assert_eq!(pair.held().await, held(0, 0, session), "{policy} {to:?}");
        }
    }
}

/// Covers: S1-5, S1-29
#[tokio::test]
async fn the_registry_can_be_looked_at() {
    let pair = Pair::start("[thinking]\norphan_threshold = \"1ms\"").await;
    let mut talk = talk("looked at", true);
    talk.say(pair.client(), "hello").await;
    talk.say(pair.client(), "more").await;
    let mut statistics = pair.gateway.statistics().await;
    let bytes = statistics["bytes"].take();
    assert!(bytes.as_u64().unwrap() > 0, "{bytes}");
    let expected = json!({
        "total": 2, "confirmed": 1, "unconfirmed": 1, "current_session": 2, "old_session": 0,
        "session": 1, "lineages": 1, "bytes": null, "restored": 0, "tried": 0, "refused": 0,
    });
    assert_eq!(statistics, expected);

    assert_eq!(pair.gateway.switch("b").await, json!({"active": "b", "previous": "a"}));
    let backends = pair.client().get("/admin/backends").await.good().json();
    assert_eq!(backends["active"], "b");
    let none = pair.client().get("/admin/thinking?lineage=none").await;
    assert_eq!(none.status, 404);
    let metrics = pair.client().get("/metrics").await.good().text();
    assert!(metrics.contains("\nthroughline_memory_blocks 2\n"), "{metrics}");
}

/// Covers: S1-29
#[tokio::test]
async fn another_lineage_of_the_session_counts_as_old_until_it_speaks() {
    for policy in POLICIES {
        let pair = Pair::under(policy).await;
        let (mut main, mut agent) = (talk("shared", true), talk("shared", true));
        agent.body["system"] = "You are a sub-agent.".into();
        main.say(pair.client(), "hello").await;
        agent.say(pair.client(), "look").await;
        pair.gateway.switch("b").await;
        main.say(pair.client(), "bench 1").await;
        let mut expected = held(0, 1, 2);
        expected["current_session"] = 0.into();
        expected["old_session"] = 1.into();
        assert_eq!(pair.held().await, expected, "{policy}");

        agent.say(pair.client(), "bench 1").await;
        assert_eq!(pair.held().await, held(0, 0, 2), "{policy}");
    }
}

/// Covers: case 4, S1-15
#[tokio::test]
async fn a_block_past_the_threshold_survives_in_the_request_that_carries_it() {
    for policy in POLICIES {
        let settings = format!("[thinking]\npolicy = \"{policy}\"\norphan_threshold = \"1ms\"");
        let pair = Pair::start(&settings).await;
        let mut talk = talk("in time", true);
        let (one, _) = talk.say(pair.client(), "hello").await;
        grow_old().await;
        let (_, answer) = talk.say(pair.client(), "bench 1").await;
        assert_eq!(fates(&pair.turn(&answer).await), ["1.0 sent"]);
        assert_eq!(pair.a.last().await.thinking(), thinking(&[&one]));
        assert_eq!(pair.held().await, held(1, 0, 1), "{policy}");
    }
}

/// Covers: S1-12
#[tokio::test]
async fn each_block_has_an_age_of_its_own() {
    let pair = Pair::start("[thinking]\norphan_threshold = \"1s\"").await;
    let mut talk = talk("ages", true);
    talk.say(pair.client(), "hello").await;
    talk.clone().say(pair.client(), "an old one").await;
    // The threshold is what is being tested, so it is waited for.
    tokio::time::sleep(std::time::Duration::from_millis(1100)).await;
    talk.clone().say(pair.client(), "a young one").await;
    assert_eq!(pair.held().await, held(1, 1, 1), "the old one is gone");
    talk.clone().say(pair.client(), "bench 1").await;
    assert_eq!(pair.held().await, held(1, 1, 1), "the young one stays");
}

/// Covers: case 6
#[tokio::test]
async fn a_request_of_the_user_alone_evicts_nothing() {
    for policy in POLICIES {
        let pair = Pair::under(policy).await;
        let mut talk = talk("counted", true);
        talk.say(pair.client(), "hello").await;
        talk.say(pair.client(), "bench 1").await;
        assert_eq!(pair.held().await, held(1, 0, 1));

        let mut probe = talk.clone();
        go_back(&mut probe, 1);
        probe.body["max_tokens"] = 1.into();
        probe.body.as_object_mut().unwrap().remove("thinking");
        probe.send(pair.client()).await.good();
        assert_eq!(pair.held().await, held(1, 0, 1), "{policy}");

        let (_, answer) = talk.say(pair.client(), "bench 1").await;
        assert_eq!(fates(&pair.turn(&answer).await), ["1.0 sent"], "{policy}");
        assert_eq!(pair.held().await, held(1, 0, 1), "{policy}");
    }
}

/// Covers: case 7, C-7
#[tokio::test]
async fn a_helper_request_without_thinking_evicts_nothing() {
    for policy in POLICIES {
        let pair = Pair::under(policy).await;
        let mut talk = talk("helped", true);
        for text in ["one", "two", "bench 1"] {
            talk.say(pair.client(), text).await;
        }
        assert_eq!(pair.held().await, held(2, 0, 1));

        let mut helper = talk.clone();
        cut_thinking(&mut helper, 1);
        cut_thinking(&mut helper, 3);
        helper.say(pair.client(), "bench 1").await;
        assert_eq!(pair.a.last().await.thinking(), NOTHING);

        let (_, answer) = talk.say(pair.client(), "bench 1").await;
        let turn = pair.turn(&answer).await;
        assert_eq!(fates(&turn), ["1.0 sent", "3.0 sent"], "{policy}");
        assert_eq!(pair.held().await, held(2, 0, 1), "{policy}");
    }
}
