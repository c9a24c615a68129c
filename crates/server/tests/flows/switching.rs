//! Switching to another backend and back.

use serde_json::json;

use throughline_simulator::{Options, SignatureStyle};
use throughline_testkit::Simulator;

use crate::support::{
    NO_BLOCKS, POLICIES, POLICIES_AND_STREAMING, Pair, backend, fates, held, loss,
    new_conversation, thinking_in,
};

/// Covers: S1-1, S1-2, S1-10
#[tokio::test]
async fn blocks_of_the_first_backend_return_after_switching_back() {
    for (policy, stream) in POLICIES_AND_STREAMING {
        let pair = Pair::with_policy(policy).await;
        let mut conversation = new_conversation("there and back", stream);
        let (a1, _) = conversation.ask(pair.client(), "one").await;
        let (a2, _) = conversation.ask(pair.client(), "two").await;
        pair.gateway.switch("b").await;
        let (b1, _) = conversation.ask(pair.client(), "three").await;
        let (b2, answer) = conversation.ask(pair.client(), "four").await;
        assert_eq!(loss(&answer), format!("thinking_omitted=2;reason={policy}"));
        assert_eq!(pair.b.last_received().await.thinking(), thinking_in(&[&b1]));

        pair.gateway.switch("a").await;
        let (a3, answer) = conversation.ask(pair.client(), "five").await;
        // Under policy `session` a switch invalidates all older blocks for good.
        let (sent, lost) = match policy {
            "session" => (vec![], "thinking_omitted=4;reason=session".to_owned()),
            _ => (thinking_in(&[&a1, &a2]), format!("thinking_omitted=2;reason={policy}")),
        };
        assert_eq!(pair.a.last_received().await.thinking(), sent, "{policy} {stream}");
        assert_eq!(loss(&answer), lost, "{policy} {stream}");
        assert_eq!(answer.header("x-throughline-backend"), "a");

        // The decision for a target does not change.
        conversation.ask(pair.client(), "bench 1").await;
        let more = [sent, thinking_in(&[&a3])].concat();
        assert_eq!(pair.a.last_received().await.thinking(), more, "{policy} {stream}");
        pair.gateway.switch("b").await;
        let (_, answer) = conversation.ask(pair.client(), "bench 1").await;
        let back = match policy {
            "session" => vec![],
            _ => thinking_in(&[&b1, &b2]),
        };
        assert_eq!(pair.b.last_received().await.thinking(), back, "{policy} {stream}");
        assert_eq!(pair.turn(&answer).await["session"], 4);

        // No backend received a block of the other one.
        let foreign = thinking_in(&[&b1, &b2]);
        for seen in pair.a.received().await {
            assert!(!seen.thinking().iter().any(|block| foreign.contains(block)));
        }
        let foreign = thinking_in(&[&a1, &a2, &a3]);
        for seen in pair.b.received().await {
            assert!(!seen.thinking().iter().any(|block| foreign.contains(block)));
        }
        assert_eq!(pair.refusals().await, [""; 0]);
    }
}

/// Covers: S1-23
#[tokio::test]
async fn memory_records_the_backend_before_the_request_is_sent() {
    for policy in POLICIES {
        let pair = Pair::with_policy(policy).await;
        let mut conversation = new_conversation("announced", true);
        conversation.ask(pair.client(), "hello").await;
        pair.gateway.switch("b").await;
        // The reply stalls, so the memory shows what was recorded before sending.
        conversation.headers.push(("x-simulator-fault".into(), "head-delay:ms=3000".into()));
        conversation.push_user("more");
        let client = pair.client().clone();
        let request = tokio::spawn(async move { conversation.send(&client).await });
        while pair.b.received().await.is_empty() {
            tokio::task::yield_now().await;
        }
        assert_eq!(pair.held().await, held(0, 0, 2), "{policy}");
        assert!(!request.is_finished());
        let log = pair.gateway.log();
        let places: Vec<_> =
            ["Active backend changed", "Backend switch", "filtered_from_request=1"]
                .iter()
                .map(|line| log.find(line))
                .collect();
        assert!(places.iter().all(Option::is_some) && places.is_sorted(), "{places:?}");
        request.abort();
    }
}

/// Covers: S1-1
#[tokio::test]
async fn unknown_backend_is_rejected_with_the_known_names() {
    let pair = Pair::start("").await;
    let client = pair.client();
    let answer = client.post("/admin/switch", &[], &json!({"backend": "c"})).await;
    assert_eq!(answer.status, 404);
    assert!(answer.text().contains("`a`, `b`"), "{}", answer.text());
    let mut conversation = new_conversation("nowhere", true);
    conversation.headers.push(("x-throughline-backend".into(), "c".into()));
    conversation.push_user("hello");
    let answer = conversation.send(client).await;
    assert_eq!(answer.status, 400);
    assert!(answer.text().contains("`a`, `b`"), "{}", answer.text());
    assert_eq!(pair.a.received().await.len() + pair.b.received().await.len(), 0);
}

/// Covers: S1-44
#[tokio::test]
async fn blocks_are_dropped_only_as_configured() {
    // By default no block is dropped for an empty signature, for its content, or for a switch that
    // was undone.
    let pair = Pair::start("").await;
    let mut unsigned = new_conversation("unsigned", true);
    unsigned.headers.push(("x-simulator-signature".into(), "empty".into()));
    let (one, _) = unsigned.ask(pair.client(), "hello").await;
    pair.gateway.switch("b").await;
    pair.gateway.switch("a").await;
    unsigned.ask(pair.client(), "bench 1").await;
    assert_eq!(pair.a.last_received().await.thinking(), thinking_in(&[&one]));

    // As configured here, every block is dropped each time.
    let (a, b) = (pair.a, pair.b);
    let pair = Pair::with_simulators(a, b, "", ["replay = \"none\"", ""]).await;
    let mut conversation = new_conversation("asked for", true);
    conversation.ask(pair.client(), "hello").await;
    let (_, answer) = conversation.ask(pair.client(), "bench 1").await;
    assert_eq!(pair.a.last_received().await.thinking(), NO_BLOCKS);
    assert_eq!(fates(&pair.turn(&answer).await), ["1.0 left_out policy"]);
    assert_eq!(loss(&answer), "thinking_omitted=1;reason=policy");
    assert_eq!(pair.refusals().await, [""; 0]);
}

/// Covers: S1-41
#[tokio::test]
async fn policy_can_change_while_running() {
    let pair = Pair::with_policy("origin").await;
    let mut conversation = new_conversation("reloaded", true);
    let (one, _) = conversation.ask(pair.client(), "hello").await;
    for backend in ["b", "a"] {
        pair.gateway.switch(backend).await;
        conversation.ask(pair.client(), "bench 1").await;
    }
    assert_eq!(pair.a.last_received().await.thinking(), thinking_in(&[&one]));

    let backends = backend("a", &pair.a, "") + &backend("b", &pair.b, "");
    let config = format!("[thinking]\npolicy = \"session\"\n{backends}");
    pair.gateway.configure(&config);
    pair.gateway.signal("HUP").await;
    while !pair.gateway.log().contains("configuration reloaded") {
        tokio::task::yield_now().await;
    }
    // Sending the block in this session made it part of the session. The next switch ends that.
    conversation.ask(pair.client(), "bench 1").await;
    assert_eq!(pair.a.last_received().await.thinking(), thinking_in(&[&one]));
    for backend in ["b", "a"] {
        pair.gateway.switch(backend).await;
        conversation.ask(pair.client(), "bench 1").await;
    }
    assert_eq!(pair.a.last_received().await.thinking(), NO_BLOCKS);
    assert_eq!(pair.refusals().await, [""; 0]);
}

/// Covers: S1-30, S1-33
#[tokio::test]
async fn backends_need_no_extra_settings() {
    for styles in [
        [SignatureStyle::Delta, SignatureStyle::Start],
        [SignatureStyle::Start, SignatureStyle::Empty],
        [SignatureStyle::Empty, SignatureStyle::Late],
    ] {
        let [a, b] = styles.map(|style| Options {
            identity: format!("{style:?}"),
            signature_style: style,
            ..Options::default()
        });
        let (a, b) = (Simulator::with(a).await, Simulator::with(b).await);
        let pair = Pair::with_simulators(a, b, "", ["", ""]).await;
        let mut conversation = new_conversation("unconfigured", true);
        let (one, _) = conversation.ask(pair.client(), "one").await;
        pair.gateway.switch("b").await;
        let (two, _) = conversation.ask(pair.client(), "two").await;
        assert_eq!(pair.b.last_received().await.thinking(), NO_BLOCKS, "{styles:?}");
        conversation.ask(pair.client(), "bench 1").await;
        assert_eq!(pair.b.last_received().await.thinking(), thinking_in(&[&two]), "{styles:?}");
        pair.gateway.switch("a").await;
        conversation.ask(pair.client(), "bench 1").await;
        assert_eq!(pair.a.last_received().await.thinking(), thinking_in(&[&one]), "{styles:?}");
        assert_eq!(pair.refusals().await, [""; 0]);
    }
}

/// Covers: S1-2
#[tokio::test]
async fn fallback_is_no_switch_and_gets_no_foreign_block() {
    for policy in POLICIES {
        let broken = "[[step]]\nwhen = { contains = \"trouble\" }\nfault = \"status:529\"";
        let a = Simulator::with_scenario("a", broken).await;
        let b = Simulator::start("b").await;
        let route = "[route]\ndefault = \"a\"\nfallback = [\"b\"]\ncool_down = \"1ms\"";
        let settings = format!("{route}\n[thinking]\npolicy = \"{policy}\"");
        let pair = Pair::with_simulators(a, b, &settings, ["", ""]).await;
        let mut conversation = new_conversation("fallback", true);
        let (one, _) = conversation.ask(pair.client(), "hello").await;
        let (two, answer) = conversation.ask(pair.client(), "trouble").await;
        assert_eq!(answer.header("x-throughline-backend"), "b");
        assert_eq!(loss(&answer), "thinking_omitted=1;reason=origin");
        assert_eq!(pair.b.last_received().await.thinking(), NO_BLOCKS);
        assert_eq!(pair.held().await, held(1, 1, 1), "{policy}");

        let (_, answer) = conversation.ask(pair.client(), "bench 1").await;
        assert_eq!(answer.header("x-throughline-backend"), "a");
        assert_eq!(pair.a.last_received().await.thinking(), thinking_in(&[&one]), "{policy}");
        conversation.ask(pair.client(), "more trouble").await;
        assert_eq!(pair.b.last_received().await.thinking(), thinking_in(&[&two]), "{policy}");
        assert_eq!(pair.gateway.statistics().await["session"], 1, "{policy}");
        for seen in pair.b.received().await {
            assert_eq!(seen.refusal, "");
        }
    }
}

#[tokio::test]
async fn other_model_on_the_same_backend_keeps_the_thinking() {
    for policy in POLICIES {
        let pair = Pair::with_policy(policy).await;
        let mut conversation = new_conversation("models", true);
        let (one, _) = conversation.ask(pair.client(), "hello").await;
        conversation.body["model"] = "claude-opus-4-5".into();
        let (_, answer) = conversation.ask(pair.client(), "bench 1").await;
        assert_eq!(
            (loss(&answer), pair.a.last_received().await.thinking()),
            ("", thinking_in(&[&one]))
        );
        assert_eq!(pair.held().await, held(1, 0, 1), "{policy}");
    }
}

#[tokio::test]
async fn thinking_bound_to_an_account_stays_with_its_key() {
    for policy in POLICIES {
        let (a, b) = (Simulator::start("a").await, Simulator::start("b").await);
        let settings = format!("[thinking]\npolicy = \"{policy}\"");
        let pair = Pair::with_simulators(a, b, &settings, ["auth = \"passthrough\"", ""]).await;
        let mut conversation = new_conversation("accounts", true);
        conversation.body["model"] = "claude-haiku-5-5".into();
        conversation.body["thinking"] = json!({"type": "adaptive"});
        let key = |key: &str| ("x-api-key".to_owned(), key.to_owned());
        conversation.headers.push(key("one"));
        let (one, _) = conversation.ask(pair.client(), "hello").await;
        conversation.ask(pair.client(), "bench 1").await;
        assert_eq!(pair.a.last_received().await.thinking(), thinking_in(&[&one]));
        conversation.headers[1] = key("two");
        let (_, answer) = conversation.ask(pair.client(), "bench 1").await;
        assert_eq!(pair.a.last_received().await.thinking(), NO_BLOCKS, "{policy}");
        assert_eq!(loss(&answer), "thinking_omitted=1;reason=origin");
        conversation.headers[1] = key("one");
        conversation.ask(pair.client(), "bench 1").await;
        assert_eq!(pair.a.last_received().await.thinking(), thinking_in(&[&one]), "{policy}");
        assert_eq!(pair.refusals().await, [""; 0]);
    }
}
