//! Going to another backend and coming back.

use serde_json::json;

use throughline_simulator::{Options, SignatureStyle};
use throughline_testkit::Simulator;

use crate::support::{
    NOTHING, POLICIES, Pair, WAYS, backend, fates, held, loss, scripted, talk, thinking,
};

/// Covers: S1-1, S1-2, S1-10
#[tokio::test]
async fn the_first_backends_blocks_come_back_with_it() {
    for (policy, stream) in WAYS {
        let pair = Pair::under(policy).await;
        let mut talk = talk("there and back", stream);
        let (a1, _) = talk.say(pair.client(), "one").await;
        let (a2, _) = talk.say(pair.client(), "two").await;
        pair.gateway.switch("b").await;
        let (b1, _) = talk.say(pair.client(), "three").await;
        let (b2, answer) = talk.say(pair.client(), "four").await;
        assert_eq!(loss(&answer), format!("thinking_omitted=2;reason={policy}"));
        assert_eq!(pair.b.last().await.thinking(), thinking(&[&b1]));

        pair.gateway.switch("a").await;
        let (a3, answer) = talk.say(pair.client(), "five").await;
        // The letter of the rules: a switch makes everything older invalid, for good.
        let (sent, lost) = match policy {
            "session" => (vec![], "thinking_omitted=4;reason=session".to_owned()),
            _ => (thinking(&[&a1, &a2]), format!("thinking_omitted=2;reason={policy}")),
        };
        assert_eq!(pair.a.last().await.thinking(), sent, "{policy} {stream}");
        assert_eq!(loss(&answer), lost, "{policy} {stream}");
        assert_eq!(answer.header("x-throughline-backend"), "a");

        // What was decided for a target stays so.
        talk.say(pair.client(), "bench 1").await;
        let more = [sent, thinking(&[&a3])].concat();
        assert_eq!(pair.a.last().await.thinking(), more, "{policy} {stream}");
        pair.gateway.switch("b").await;
        let (_, answer) = talk.say(pair.client(), "bench 1").await;
        let back = match policy {
            "session" => vec![],
            _ => thinking(&[&b1, &b2]),
        };
        assert_eq!(pair.b.last().await.thinking(), back, "{policy} {stream}");
        assert_eq!(pair.turn(&answer).await["session"], 4);

        // Neither ever saw what the other made.
        let foreign = thinking(&[&b1, &b2]);
        for seen in pair.a.seen().await {
            assert!(!seen.thinking().iter().any(|block| foreign.contains(block)));
        }
        let foreign = thinking(&[&a1, &a2, &a3]);
        for seen in pair.b.seen().await {
            assert!(!seen.thinking().iter().any(|block| foreign.contains(block)));
        }
        assert_eq!(pair.refusals().await, [""; 0]);
    }
}

/// Covers: S1-23
#[tokio::test]
async fn the_memory_hears_of_the_backend_before_the_request_goes_out() {
    for policy in POLICIES {
        let pair = Pair::under(policy).await;
        let mut talk = talk("announced", true);
        talk.say(pair.client(), "hello").await;
        pair.gateway.switch("b").await;
        // A reply that does not come yet: what the memory says now, it said before sending.
        talk.headers.push(("x-simulator-fault".into(), "head-delay:ms=3000".into()));
        talk.user("more");
        let client = pair.client().clone();
        let request = tokio::spawn(async move { talk.send(&client).await });
        while pair.b.seen().await.is_empty() {
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
async fn a_backend_nobody_configured_is_refused_with_the_names_of_the_others() {
    let pair = Pair::start("").await;
    let client = pair.client();
    let answer = client.post("/admin/switch", &[], &json!({"backend": "c"})).await;
    assert_eq!(answer.status, 404);
    assert!(answer.text().contains("`a`, `b`"), "{}", answer.text());
    let mut talk = talk("nowhere", true);
    talk.headers.push(("x-throughline-backend".into(), "c".into()));
    talk.user("hello");
    let answer = talk.send(client).await;
    assert_eq!(answer.status, 400);
    assert!(answer.text().contains("`a`, `b`"), "{}", answer.text());
    assert_eq!(pair.a.seen().await.len() + pair.b.seen().await.len(), 0);
}

/// Covers: S1-44
#[tokio::test]
async fn nothing_is_stripped_that_the_operator_did_not_ask_for() {
    // By default: no block falls for its empty signature, for its look, or for a switch that came
    // back.
    let pair = Pair::start("").await;
    let mut unsigned = talk("unsigned", true);
    unsigned.headers.push(("x-simulator-signature".into(), "empty".into()));
    let (one, _) = unsigned.say(pair.client(), "hello").await;
    pair.gateway.switch("b").await;
    pair.gateway.switch("a").await;
    unsigned.say(pair.client(), "bench 1").await;
    assert_eq!(pair.a.last().await.thinking(), thinking(&[&one]));

    // Asked for: everything, each time.
    let (a, b) = (pair.a, pair.b);
    let pair = Pair::of(a, b, "", ["replay = \"none\"", ""]).await;
    let mut talk = talk("asked for", true);
    talk.say(pair.client(), "hello").await;
    let (_, answer) = talk.say(pair.client(), "bench 1").await;
    assert_eq!(pair.a.last().await.thinking(), NOTHING);
    assert_eq!(fates(&pair.turn(&answer).await), ["1.0 left_out policy"]);
    assert_eq!(loss(&answer), "thinking_omitted=1;reason=policy");
    assert_eq!(pair.refusals().await, [""; 0]);
}

/// Covers: S1-41
#[tokio::test]
async fn the_policy_can_be_changed_while_running() {
    let pair = Pair::under("origin").await;
    let mut talk = talk("reloaded", true);
    let (one, _) = talk.say(pair.client(), "hello").await;
    for backend in ["b", "a"] {
        pair.gateway.switch(backend).await;
        talk.say(pair.client(), "bench 1").await;
    }
    assert_eq!(pair.a.last().await.thinking(), thinking(&[&one]));

    let backends = backend("a", &pair.a, "") + &backend("b", &pair.b, "");
    let config = format!("[thinking]\npolicy = \"session\"\n{backends}");
    pair.gateway.configure(&config);
    pair.gateway.signal("HUP").await;
    while !pair.gateway.log().contains("configuration reloaded") {
        tokio::task::yield_now().await;
    }
    // Sent in this session, it stands in it; the next switch ends that.
    talk.say(pair.client(), "bench 1").await;
    assert_eq!(pair.a.last().await.thinking(), thinking(&[&one]));
    for backend in ["b", "a"] {
        pair.gateway.switch(backend).await;
        talk.say(pair.client(), "bench 1").await;
    }
    assert_eq!(pair.a.last().await.thinking(), NOTHING);
    assert_eq!(pair.refusals().await, [""; 0]);
}

/// Covers: S1-30, S1-33
#[tokio::test]
async fn no_backend_needs_a_setting() {
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
        let pair = Pair::of(a, b, "", ["", ""]).await;
        let mut talk = talk("unconfigured", true);
        let (one, _) = talk.say(pair.client(), "one").await;
        pair.gateway.switch("b").await;
        let (two, _) = talk.say(pair.client(), "two").await;
        assert_eq!(pair.b.last().await.thinking(), NOTHING, "{styles:?}");
        talk.say(pair.client(), "bench 1").await;
        assert_eq!(pair.b.last().await.thinking(), thinking(&[&two]), "{styles:?}");
        pair.gateway.switch("a").await;
        talk.say(pair.client(), "bench 1").await;
        assert_eq!(pair.a.last().await.thinking(), thinking(&[&one]), "{styles:?}");
        assert_eq!(pair.refusals().await, [""; 0]);
    }
}

/// Covers: S1-2
#[tokio::test]
async fn a_fallback_is_no_switch_and_gets_no_foreign_block() {
    for policy in POLICIES {
        let broken = "[[step]]\nwhen = { contains = \"trouble\" }\nfault = \"status:529\"";
        let a = scripted("a", broken).await;
        let b = Simulator::start("b").await;
        let route = "[route]\ndefault = \"a\"\nfallback = [\"b\"]";
        let settings = format!("{route}\n[thinking]\npolicy = \"{policy}\"");
        let pair = Pair::of(a, b, &settings, ["", ""]).await;
        let mut talk = talk("fallback", true);
        let (one, _) = talk.say(pair.client(), "hello").await;
        let (two, answer) = talk.say(pair.client(), "trouble").await;
        assert_eq!(answer.header("x-throughline-backend"), "b");
        assert_eq!(loss(&answer), "thinking_omitted=1;reason=origin");
        assert_eq!(pair.b.last().await.thinking(), NOTHING);
        assert_eq!(pair.held().await, held(1, 1, 1), "{policy}");

        let (_, answer) = talk.say(pair.client(), "bench 1").await;
        assert_eq!(answer.header("x-throughline-backend"), "a");
        assert_eq!(pair.a.last().await.thinking(), thinking(&[&one]), "{policy}");
        talk.say(pair.client(), "more trouble").await;
        assert_eq!(pair.b.last().await.thinking(), thinking(&[&two]), "{policy}");
        assert_eq!(pair.gateway.statistics().await["session"], 1, "{policy}");
        for seen in pair.b.seen().await {
            assert_eq!(seen.refusal, "");
        }
    }
}

#[tokio::test]
async fn another_model_on_the_same_backend_keeps_the_thinking() {
    for policy in POLICIES {
        let pair = Pair::under(policy).await;
        let mut talk = talk("models", true);
        let (one, _) = talk.say(pair.client(), "hello").await;
        talk.body["model"] = "claude-opus-4-5".into();
        let (_, answer) = talk.say(pair.client(), "bench 1").await;
        assert_eq!((loss(&answer), pair.a.last().await.thinking()), ("", thinking(&[&one])));
        assert_eq!(pair.held().await, held(1, 0, 1), "{policy}");
    }
}

#[tokio::test]
async fn thinking_that_is_bound_to_an_account_stays_with_its_key() {
    for policy in POLICIES {
        let (a, b) = (Simulator::start("a").await, Simulator::start("b").await);
        let settings = format!("[thinking]\npolicy = \"{policy}\"");
        let pair = Pair::of(a, b, &settings, ["auth = \"passthrough\"", ""]).await;
        let mut talk = talk("accounts", true);
        talk.body["model"] = "claude-haiku-5-5".into();
        talk.body["thinking"] = json!({"type": "adaptive"});
        let key = |key: &str| ("x-api-key".to_owned(), key.to_owned());
        talk.headers.push(key("one"));
        let (one, _) = talk.say(pair.client(), "hello").await;
        talk.say(pair.client(), "bench 1").await;
        assert_eq!(pair.a.last().await.thinking(), thinking(&[&one]));
        talk.headers[1] = key("two");
        let (_, answer) = talk.say(pair.client(), "bench 1").await;
        assert_eq!(pair.a.last().await.thinking(), NOTHING, "{policy}");
        assert_eq!(loss(&answer), "thinking_omitted=1;reason=origin");
        talk.headers[1] = key("one");
        talk.say(pair.client(), "bench 1").await;
        assert_eq!(pair.a.last().await.thinking(), thinking(&[&one]), "{policy}");
        assert_eq!(pair.refusals().await, [""; 0]);
    }
}
