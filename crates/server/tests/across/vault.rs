//! The vault: clients that drop reasoning get it back, and nobody reads it at rest.

use std::time::{Duration, Instant};

use http::Method;
use serde_json::Value;
use throughline_testkit::until;

use crate::chat::Chat;
use crate::speaker::{Said, Speaker, go_on, list, send, text};
use crate::support::{House, Plan, Wrong, client, fates, files, thinking_in};

/// Upstreams that want reasoning back which a plain chat client drops.
const UPSTREAMS: [&str; 4] =
    ["anthropic, budget", "openai_responses", "gemini 3", "anthropic, bound"];

/// A chat client in the middle of a tool loop.
async fn in_a_loop(house: &House) -> (Box<dyn Speaker>, Said) {
    let mut speaker = client("openai_chat");
    speaker.user("use one tool");
    let (said, _) = house.hear(speaker.as_mut()).await;
    speaker.results(&said.calls, "row green");
    (speaker, said)
}

#[tokio::test]
async fn a_client_that_drops_reasoning_gets_it_back_after_a_restart() {
    let mut wrong = Wrong::default();
    for row in UPSTREAMS {
        let mut house = House::over(&[row]).await;
        let (mut speaker, _) = in_a_loop(&house).await;
        house.stop().await;
        house.gateway.start_again().await;
        let (said, _) = house.hear(speaker.as_mut()).await;
        wrong.unless_equal(row, said.text.trim(), "Blue, then green.");
        wrong.unless_equal(row, thinking_in(&house.last(0).await.json()), 1);
        // What a signature on a call brings back is no block.
        let fate = if row == "gemini 3" { "left_out policy" } else { "restored" };
        wrong.unless_equal(row, fates(&house.gateway.turns().await[0]), [fate]);
        // The plain answer is found by its text, as the call was by its id.
        speaker.user("ponder this");
        house.hear(speaker.as_mut()).await;
        wrong.unless_equal(row, thinking_in(&house.last(0).await.json()), 2);
        let restored = house.gateway.statistics().await["restored"].as_u64();
        let blocks = if row == "gemini 3" { 0 } else { 3 };
        wrong.unless_equal(row, restored, Some(blocks));
        house.end_in_peace().await;
    }
    wrong.end();
}

/// A turn is safe as soon as a write takes, and not at the end of some interval.
///
/// Covers: X-27
#[tokio::test]
async fn a_turn_outlives_a_kill_that_follows_it() {
    // Large enough to be seen in the store's file.
    let thought = "I need a row. ".repeat(5000);
    let scenario = format!(
        r#"
[[step]]
when = {{ contains = "row green" }}
say = [{{ text = "Blue, then green." }}]
[[step]]
when = {{ contains = "one tool" }}
say = [{{ thinking = "{thought}" }}, {{ tool = {{ name = "lookup", input = {{ key = "7" }} }} }}]
"#
    );
    let mut house = House::build(&Plan {
        upstreams: &["anthropic, budget"],
        scenario: &scenario,
        ..Plan::default()
    })
    .await;
    let log = house.gateway.folder().join("data/memory.db-wal");
    let length = || std::fs::metadata(&log).map_or(0, |file| file.len());
    let (mut quickest, mut outlived) = (Duration::MAX, 0);
    for round in 0..5 {
        let mut speaker = client("openai_chat");
        speaker.user(&format!("use one tool, round {round}"));
        let sent = &house.gateway.client;
        let before = length();
        let (said, _) = go_on(speaker.as_mut(), sent, "some-model", false).await;
        let heard = Instant::now();
        until("the turn is in the store", async || length() >= before + thought.len() as u64).await;
        quickest = quickest.min(heard.elapsed());
        house.gateway.kill().await;
        house.gateway.start_again().await;
        speaker.results(&said.calls, "row green");
        let (said, _) = house.hear(speaker.as_mut()).await;
        assert_eq!(said.text.trim(), "Blue, then green.");
        outlived += thinking_in(&house.last(0).await.json());
    }
    // The file grows before the write is committed, so a kill may fall between the two. Others may take the
    // processor from us, but hardly five times in a row; a writer with an interval takes 100 ms.
    assert!(outlived >= 3, "{outlived} of 5");
    assert!(quickest < Duration::from_millis(90), "{quickest:?}");
    house.end_in_peace().await;
}

/// Ids and words are no secret, so they alone bring back nobody's thinking.
#[tokio::test]
async fn another_caller_gets_nothing_back_whatever_it_repeats() {
    for row in UPSTREAMS {
        let house = House::over(&[row]).await;
        let (speaker, _) = in_a_loop(&house).await;
        let ask = speaker.ask("some-model", false);
        let client = &house.gateway.client;
        for (key, blocks) in [("Bearer another", 0), ("Bearer key", 1), ("bearer key", 1)] {
            let headers = [("content-type", "application/json"), ("authorization", key)];
            let body = ask.body.to_string();
            let answer = client.send(Method::POST, &ask.path, &headers, body).await;
            answer.good();
            let sent = house.last(0).await.json();
            assert_eq!(thinking_in(&sent), blocks, "{row} with {key}");
        }
    }
}

/// A turn comes back once, however often a request names it.
#[tokio::test]
async fn a_request_cannot_make_more_of_a_turn_than_it_was() {
    let house = House::over(&["anthropic, adaptive"]).await;
    let (speaker, _) = in_a_loop(&house).await;
    let mut ask = speaker.ask("some-model", false);
    let messages = ask.body["messages"].as_array_mut().expect("messages");
    let (call, result) = (messages[1].clone(), messages[2].clone());
    for _ in 0..20 {
        messages.extend([call.clone(), result.clone()]);
    }
    let plan = "/v1/plan?dialect=openai_chat&backend=a";
    let client = &house.gateway.client;
    let told = client.post(plan, &ask.headers, &ask.body).await.good();
    assert_eq!(fates(&told.json()), ["restored"]);
}

#[tokio::test]
async fn without_its_keyring_the_vault_gives_nothing_and_nothing_breaks() {
    let mut wrong = Wrong::default();
    for row in UPSTREAMS {
        let mut house = House::over(&[row]).await;
        let (mut speaker, _) = in_a_loop(&house).await;
        house.stop().await;
        let keyring = house.gateway.folder().join("data/keyring");
        std::fs::remove_file(keyring).expect("a keyring");
        house.gateway.start_again().await;
        let (said, _) = house.hear(speaker.as_mut()).await;
        wrong.unless_equal(row, said.text.trim(), "Blue, then green.");
        wrong.unless_equal(row, thinking_in(&house.last(0).await.json()), 0);
        let turn = house.gateway.turns().await.swap_remove(0);
        wrong.unless_equal(row, fates(&turn), [""; 0]);
        let restored = house.gateway.statistics().await["restored"].as_u64();
        wrong.unless_equal(row, restored, Some(0));
        house.end_in_peace().await;
    }
    wrong.end();
}

/// What a client says its model called is what the next one hears, and no signature covers another.
#[tokio::test]
async fn a_call_that_the_client_changed_stays_as_the_client_has_it() {
    for dialect in ["openai_chat", "anthropic", "openai_responses"] {
        let house = House::over(&["gemini 3"]).await;
        let mut speaker = client(dialect);
        speaker.user("use one tool");
        let (said, _) = house.hear(speaker.as_mut()).await;
        speaker.results(&said.calls, "row green");
        for (spelling, key, signed) in [
            // Written anew is not changed.
            ("{ \"key\" : \"7\" }", "7", 1),
            ("{\"key\":\"eight\"}", "eight", 0),
        ] {
            let mut ask = speaker.ask("some-model", false);
            let body = match dialect {
                "anthropic" => ask.body.to_string().replace("{\"key\":\"7\"}", spelling),
                _ => {
                    let spelling = Value::from(spelling).to_string();
                    let written = Value::from("{\"key\":\"7\"}").to_string();
                    ask.body.to_string().replace(&written, &spelling)
                }
            };
            assert!(body.contains(key), "{body}");
            ask.body = serde_json::from_str(&body).expect("JSON");
            send(&ask, &house.gateway.client).await.good();
            let seen = house.last(0).await.json();
            let call = &seen["contents"][1]["parts"];
            let call = list(call).find(|part| part.get("functionCall").is_some());
            let call = call.expect("a call");
            assert_eq!(call["functionCall"]["args"]["key"], key, "{dialect}: {seen}");
            assert_eq!(thinking_in(&seen), signed, "{dialect}: {seen}");
        }
        house.end_in_peace().await;
    }
}

/// Many answers are `Done.`; what was thought before each is its own.
#[tokio::test]
async fn answers_in_the_same_words_get_their_own_thinking_back() {
    const SAYS: &str = r#"
[[step]]
when = { contains = "one" }
say = [{ thinking = "Thought of the first." }, { text = "Done." }]
[[step]]
when = { contains = "two" }
say = [{ thinking = "Thought of the second." }, { text = "Done." }]
[[step]]
when = { contains = "three" }
say = [{ thinking = "Thought of the third." }, { text = "Done." }]
"#;
    for row in ["anthropic, budget", "openai_responses"] {
        for unknown in ["try", "drop"] {
            // One that drops reasoning, and one that gives back its text.
            for returns in [false, true] {
                let house = House::build(&Plan {
                    upstreams: &[row],
                    scenario: SAYS,
                    settings: &format!("[thinking]\nunknown = \"{unknown}\"\n"),
                    ..Plan::default()
                })
                .await;
                let mut speaker = Chat::new(returns);
                speaker.think(true);
                for words in ["one", "two", "three"] {
                    speaker.user(words);
                    let (said, _) = house.hear(&mut speaker).await;
                    assert_eq!(said.text, "Done.");
                }
                let seen = house.last(0).await;
                let found: Vec<usize> = ["of the first", "of the second"]
                    .iter()
                    .map(|words| seen.body.matches(words).count())
                    .collect();
                let what = format!("{row}, {unknown}, {returns}: {}", seen.body);
                assert_eq!(found, [1, 1], "{what}");
                let order = seen.body.find("of the first") < seen.body.find("of the second");
                assert!(order, "{what}");
                house.end_in_peace().await;
            }
        }
    }
}

/// Covers: X-24
#[tokio::test]
async fn nothing_at_rest_and_no_log_holds_what_was_thought() {
    const MARKED: &str = "the heron counts nine silver coins";
    let scenario = format!(
        "[[step]]\nsay = [{{ thinking = \"{MARKED}\" }}, {{ text = \"Some {MARKED} text.\" }}, \
         {{ tool = {{ name = \"lookup\", input = {{ key = \"{MARKED}\" }} }} }}]\n"
    );
    for (dialect, row) in [
        ("openai_chat", "anthropic, budget"),
        ("anthropic", "openai_responses"),
        ("openai_responses", "deepseek-v4"),
        ("gemini", "think-tags"),
    ] {
        let mut house =
            House::build(&Plan { upstreams: &[row], scenario: &scenario, ..Plan::default() }).await;
        let mut speaker = client(dialect);
        speaker.user("go on");
        let (said, _) = house.hear(speaker.as_mut()).await;
        assert_eq!(said.reasoning, MARKED, "{dialect} over {row}");
        speaker.results(&said.calls, MARKED);
        house.hear(speaker.as_mut()).await;
        let log = house.gateway.log();
        assert!(log.contains("Registered new thinking block"), "{log}");
        assert!(!log.contains("heron"), "{dialect} over {row}: {log}");
        for written in ["while it runs", "when it has ended"] {
            let data = files(&house.gateway.folder().join("data"));
            assert!(data.len() > 2, "{data:?}");
            for (path, bytes) in data {
                let found = bytes.windows(5).any(|window| window == b"heron");
                assert!(!found, "{path} {written}");
            }
            if written == "while it runs" {
                house.stop().await;
            }
        }
        house.end_in_peace().await;
    }
}

/// A reply that thinks, speaks, thinks again and calls.
const INTERLEAVED: &str = r#"
[[step]]
when = { contains = "interleave" }
say = [
  { thinking = "First." }, { text = "I look." }, { thinking = "Second." },
  { tool = { name = "lookup", input = { key = "7" } } },
]
[[step]]
when = { contains = "row green" }
say = [{ thinking = "That is all." }, { text = "Green." }]
"#;

/// What stands in the assistant's turn that a backend got: kinds, and the thoughts in them.
async fn turn_of(house: &House) -> Vec<String> {
    let body = house.last(0).await.json();
    let turn = list(&body["messages"]).find(|message| message["role"] == "assistant");
    list(&turn.expect("a turn")["content"])
        .map(|block| match block["type"].as_str() {
            Some("thinking") => text(&block["thinking"]).to_owned(),
            Some(kind) => kind.to_owned(),
            None => String::new(),
        })
        .collect()
}

/// Covers: S0-65
#[tokio::test]
async fn what_a_client_lost_of_a_turn_comes_back_to_its_place() {
    let whole = ["First.", "text", "Second.", "tool_use"];
    let mut wrong = Wrong::default();
    for (dialect, gone, changes, fates_told) in [
        // One of two is still there, and goes as it is.
        ("openai_responses", "First.", false, ["restored", "sent"]),
        ("openai_responses", "Second.", false, ["sent", "restored"]),
        ("openai_responses", "First.", true, ["restored", "sent"]),
        ("openai_responses", "Second.", true, ["sent", "restored"]),
        ("openai_chat", "", false, ["restored", "restored"]),
        ("openai_chat", "", true, ["restored", "restored"]),
    ] {
        let house = House::build(&Plan {
            upstreams: &["anthropic, adaptive"],
            scenario: INTERLEAVED,
            ..Plan::default()
        })
        .await;
        let mut speaker = client(dialect);
        speaker.user("interleave");
        let (said, _) = house.hear(speaker.as_mut()).await;
        speaker.results(&said.calls, "row green");
        let mut ask = speaker.ask("some-model", false);
        if let Some(input) = ask.body["input"].as_array_mut() {
            let before = input.len();
            input.retain(|item| {
                item["type"] != "reasoning" || !item["summary"].to_string().contains(gone)
            });
            assert_eq!(input.len() + 1, before, "{input:?}");
        }
        if changes {
            let body = ask.body.to_string().replace("I look.", "I do look.");
            ask.body = serde_json::from_str(&body).expect("JSON");
        }
        let answer = send(&ask, &house.gateway.client).await.good();
        let what = format!("{dialect} without {gone}, changed: {changes}");
        wrong.unless_equal(&what, turn_of(&house).await, whole);
        let turn = house.gateway.turns().await.swap_remove(0);
        wrong.unless_equal(&what, fates(&turn), fates_told);
        let losses = answer.header("x-throughline-loss");
        let told = losses.contains("thinking_omitted");
        wrong.unless(!told, format!("{what}: {losses}"));
        house.end_in_peace().await;
    }
    wrong.end();
}

/// Thinking belongs to the calls it led to. Where the client tells of others it stays behind, and that
/// is told.
#[tokio::test]
async fn thinking_that_led_elsewhere_is_told_as_lost() {
    let house = House::build(&Plan {
        upstreams: &["anthropic, adaptive"],
        scenario: INTERLEAVED,
        ..Plan::default()
    })
    .await;
    let mut speaker = client("openai_chat");
    speaker.user("interleave");
    let (said, _) = house.hear(speaker.as_mut()).await;
    speaker.results(&said.calls, "row green");
    let mut ask = speaker.ask("some-model", false);
    let body = ask.body.to_string().replace("\\\"7\\\"", "\\\"8\\\"");
    assert_ne!(body, ask.body.to_string());
    ask.body = serde_json::from_str(&body).expect("JSON");
    let answer = send(&ask, &house.gateway.client).await.good();
    assert_eq!(turn_of(&house).await, ["text", "tool_use"]);
    let losses = answer.header("x-throughline-loss").to_owned();
    assert!(losses.contains("thinking_omitted=2;reason=shape"), "{losses}");
    house.end_in_peace().await;
}
