//! Log messages and their fields, and what must never be logged.

use serde_json::{Value, json};
use throughline_testkit::{Gateway, Simulator};

use crate::support::{
    BINARY, Pair, backend, cut_thinking, new_conversation, pass_threshold, thinking_in, truncate_to,
};

const JSON_LOG: &str = "log = { format = \"json\" }";
const SECRET: &str = "the heron stands in cold water";

/// Returns the lines of a JSON log with this message, without the fields that vary.
fn log_lines(gateway: &Gateway, message: &str) -> Vec<Value> {
    let log = gateway.log();
    let log_lines = log.lines().map(|line| {
        serde_json::from_str::<Value>(line).unwrap_or_else(|error| panic!("{error}: {line}"))
    });
    log_lines
        .filter(|line| line["message"] == message)
        .map(|mut line| {
            let fields = line.as_object_mut().unwrap();
            for varies in ["timestamp", "target", "lineage", "message", "turn"] {
                fields.remove(varies);
            }
            line
        })
        .collect()
}

/// Covers: S1-34, S1-38, S1-40
#[tokio::test]
async fn switches_and_requests_are_logged_at_info() {
    let pair = Pair::start(&format!("{JSON_LOG}\n[thinking]\norphan_threshold = \"1ms\"")).await;
    let mut conversation = new_conversation("told", true);
    conversation.ask(pair.client(), "one").await;
    conversation.ask(pair.client(), "two").await;
    conversation.clone().ask(pair.client(), "three").await;
    pass_threshold().await;
    let mut shorter = conversation.clone();
    cut_thinking(&mut shorter, 1);
    shorter.ask(pair.client(), "bench 1").await;
    pair.gateway.switch("b").await;
    conversation.ask(pair.client(), "bench 1").await;

    let switch = json!({
        "level": "INFO", "old_backend": "a", "new_backend": "b", "old_session": 1, "new_session": 2,
    });
    let reported = log_lines(&pair.gateway, "Backend switch: incremented thinking session");
    assert_eq!(reported, [switch]);
    let summary = |session, [confirmed, old, unused, orphaned, filtered, after]: [u64; 6]| {
        json!({
            "level": "INFO", "session": session, "confirmed": confirmed,
            "cleanup_old_session": old, "cleanup_confirmed_unused": unused,
            "cleanup_orphaned": orphaned, "filtered_from_request": filtered,
            "cache_size_after": after,
        })
    };
    let expected = [
        summary(1, [0, 0, 0, 0, 0, 0]),
        summary(1, [1, 0, 0, 0, 0, 1]),
        summary(1, [1, 0, 0, 0, 0, 2]),
        summary(1, [0, 0, 1, 1, 0, 1]),
        summary(2, [0, 1, 0, 0, 2, 0]),
    ];
    assert_eq!(log_lines(&pair.gateway, "Request processing complete"), expected);
}

/// Covers: S1-35, S1-36, S1-39, C-33
#[tokio::test]
async fn block_events_are_logged_at_debug_and_trace() {
    let pair = Pair::start(&format!("{JSON_LOG}\n[thinking]\norphan_threshold = \"1ms\"")).await;
    let mut conversation = new_conversation("told", true);
    let (one, _) = conversation.ask(pair.client(), "one").await;
    conversation.ask(pair.client(), "bench 1").await;
    let registered = log_lines(&pair.gateway, "Registered new thinking block");
    let [reported] = &registered[..] else {
        panic!("{registered:?}");
    };
    let hash = &reported["hash"];
    assert!(hash.as_str().is_some_and(|hash| hash.len() >= 8), "{reported}");
    let length = one["content"][0]["thinking"].as_str().unwrap().len();
    // There is no preview, because contents are not logged by default.
    assert_eq!(
        *reported,
        json!({"level": "DEBUG", "hash": hash, "session": 1, "length": length, "cut": false})
    );
    assert_eq!(
        log_lines(&pair.gateway, "Confirmed thinking block"),
        [json!({"level": "DEBUG", "hash": hash, "session": 1})]
    );
    let decided = log_lines(&pair.gateway, "Decided on thinking block");
    let [decision] = &decided[..] else {
        panic!("{decided:?}");
    };
    assert_eq!(
        (&decision["level"], &decision["hash"], &decision["session"]),
        (&json!("TRACE"), hash, &json!(1))
    );
    assert!(decision["verdict"].as_str().unwrap().starts_with("Send"), "{decision}");

    conversation.ask(pair.client(), "two").await;
    conversation.ask(pair.client(), "three").await;
    pass_threshold().await;
    truncate_to(&mut conversation, 6);
    cut_thinking(&mut conversation, 1);
    conversation.ask(pair.client(), "bench 1").await;
    pair.gateway.switch("b").await;
    conversation.ask(pair.client(), "bench 1").await;
    let why: Vec<Value> = log_lines(&pair.gateway, "Evicted thinking block")
        .into_iter()
        .map(|line| {
            assert_eq!(line["level"], "DEBUG");
            line["why"].clone()
        })
        .collect();
    // Both blocks are in one request, in either order.
    let mut first = why[..2].to_vec();
    first.sort_by_key(ToString::to_string);
    assert_eq!(first, ["confirmed and no longer used", "never came back"]);
    assert_eq!(why[2..], ["old session"]);
}

/// Covers: S1-37, S1-39, S1-42, C-33, X-24
#[tokio::test]
async fn contents_are_logged_only_if_configured() {
    for (debug_log, shown) in [
        ("", false),
        ("[debug_log]\nenabled = true", false),
        ("[debug_log]\nfull_body = true", false),
        ("[debug_log]\nenabled = true\nfull_body = true", true),
    ] {
        let (a, b) = (Simulator::start("a").await, Simulator::start("b").await);
        let key = "api_key = \"sk-quite-private\"";
        let pair =
            Pair::with_simulators(a, b, &format!("{JSON_LOG}\n{debug_log}"), [key, key]).await;
        let mut conversation = new_conversation("whispered", true);
        conversation.headers.push(("x-api-key".into(), "sk-of-the-caller".into()));
        let (one, answer) =
            conversation.ask(pair.client(), &format!("why is it that {SECRET}?")).await;
        assert!(thinking_in(&[&one])[0].to_string().contains(SECRET));
        conversation.ask(pair.client(), "think twice").await;
        pair.gateway.switch("b").await;
        conversation.ask(pair.client(), "bench 1").await;
        assert_eq!(pair.a.last_received().await.header("x-api-key"), Some("sk-quite-private"));

        let log = pair.gateway.log();
        assert_eq!(log.contains(SECRET), shown, "{debug_log}");
        for key in ["sk-quite-private", "sk-of-the-caller"] {
            assert!(!log.contains(key), "{debug_log}: {key}");
        }
        let signature = one["content"][0]["signature"].as_str().unwrap();
        assert_eq!(log.contains(signature), shown, "{debug_log}");
        let registered = log_lines(&pair.gateway, "Registered new thinking block");
        assert_eq!(registered.len(), 3, "{debug_log}");
        let text = one["content"][0]["thinking"].as_str().unwrap();
        match registered[0]["content_preview"].as_str() {
            Some(preview) => {
                assert!(shown && text.starts_with(preview), "{preview}");
                let length = preview.chars().count();
                assert!((1..=64).contains(&length), "{length}");
            }
            None => assert!(!shown, "{debug_log}"),
        }
        let kept = pair.turn(&answer).await;
        assert_eq!(kept.to_string().contains(SECRET), shown, "{debug_log}");
    }
}

/// Covers: S1-37
#[tokio::test]
async fn debug_log_settings_select_the_detail() {
    let (a, b) = (Simulator::start("a").await, Simulator::start("b").await);
    let backends = backend("a", &a, "") + &backend("b", &b, "");
    for (settings, debug, bodies) in [
        ("", false, 0),
        ("[debug_log]\nenabled = true", true, 0),
        ("[debug_log]\nenabled = true\nfull_body = true", true, 1),
        ("[debug_log]\nenabled = true\nfull_body = true\npretty_print = true", true, 1),
    ] {
        let gateway =
            Gateway::start_with_configured_log(BINARY, &format!("{settings}\n{backends}")).await;
        new_conversation("said", true).ask(&gateway.client, "hello").await;
        let log = gateway.log();
        assert!(log.contains(" INFO "), "{settings}: {log}");
        assert_eq!(log.contains(" DEBUG "), debug, "{settings}");
        assert_eq!(log.matches("Request body").count(), bodies, "{settings}");
        // With `pretty_print` the body covers several lines.
        let spread = log.contains("\n  \"model\": \"claude-sonnet-4-5\"");
        assert_eq!(spread, settings.contains("pretty"), "{settings}: {log}");
    }
}

/// Covers: S1-38, S1-39, S1-40
#[tokio::test]
async fn text_log_uses_the_same_field_names() {
    let pair = Pair::start("[debug_log]\nenabled = true\nfull_body = true").await;
    let mut conversation = new_conversation("in text", true);
    conversation.ask(pair.client(), "hello").await;
    pair.gateway.switch("b").await;
    conversation.ask(pair.client(), "bench 1").await;
    let log = pair.gateway.log();
    for (level, expected) in [
        (
            " INFO ",
            "Backend switch: incremented thinking session old_backend=\"a\" new_backend=\"b\" old_session=1 new_session=2",
        ),
        (
            " INFO ",
            "confirmed=0 cleanup_old_session=1 cleanup_confirmed_unused=0 cleanup_orphaned=0 filtered_from_request=1 cache_size_after=0",
        ),
        ("DEBUG ", "Registered new thinking block hash="),
        ("DEBUG ", "content_preview=\""),
        ("TRACE ", "Decided on thinking block hash="),
    ] {
        let line = log.lines().find(|line| line.contains(expected));
        let line = line.unwrap_or_else(|| panic!("no line with {expected}:\n{log}"));
        assert!(line.contains(level), "{line}");
    }
}
