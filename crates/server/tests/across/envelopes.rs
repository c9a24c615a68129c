//! Envelopes: what rides in a client's opaque fields needs no memory, and only what is ours and whole
//! is believed.

use serde_json::Value;
use throughline_testkit::{Answer, Gateway};

use crate::speaker::{Ask, Speaker, go_on, send};
use crate::support::{BINARY, House, Plan, Wrong, client, envelopes, fates, thinking_in, upstream};

/// Clients that send opaque fields back, over upstreams that want their thinking again.
const PAIRS: [(&str, &str); 9] = [
    ("anthropic", "openai_responses"),
    ("anthropic", "gemini 3"),
    ("anthropic", "deepseek-v4"),
    ("openai_responses", "anthropic, budget"),
    ("openai_responses", "gemini 3"),
    ("openai_responses", "openrouter"),
    ("gemini", "anthropic, adaptive"),
    ("gemini", "openai_responses"),
    ("gemini", "litellm"),
];

/// A conversation in the middle of a tool loop.
async fn in_a_loop(house: &House, dialect: &str) -> Box<dyn Speaker> {
    let mut speaker = client(dialect);
    speaker.user("use one tool");
    let (said, _) = house.hear(speaker.as_mut()).await;
    speaker.results(&said.calls, "row green");
    speaker
}

/// The loop's next request, with every envelope in it changed.
fn changed(speaker: &dyn Speaker, mut change: impl FnMut(&mut String)) -> Ask {
    let mut ask = speaker.ask("some-model", true);
    let mut found = 0;
    envelopes(&mut ask.body, &mut |envelope| {
        found += 1;
        change(envelope);
    });
    assert!(found > 0, "no envelope in {}", ask.body);
    ask
}

fn alter(envelope: &mut String) {
    let middle = envelope.len() / 2;
    let other = if envelope.as_bytes()[middle] == b'A' { "B" } else { "A" };
    envelope.replace_range(middle..=middle, other);
}

async fn told(gateway: &Gateway, answer: &Answer) -> Value {
    assert_eq!(answer.status, 200, "{}", answer.text());
    gateway.turns().await.swap_remove(0)
}

/// Covers: S0-65
#[tokio::test]
async fn envelopes_bring_thinking_back_where_nothing_else_is_kept() {
    let mut wrong = Wrong::default();
    for (dialect, row) in PAIRS {
        let mut house = House::over(&[row]).await;
        let mut speaker = in_a_loop(&house, dialect).await;
        house.forget().await;
        let (said, answer) = house.hear(speaker.as_mut()).await;
        let what = format!("{dialect} over {row}");
        wrong.unless_equal(&what, said.text.trim(), "Blue, then green.");
        wrong.unless_equal(&what, thinking_in(&house.last(0).await.json()), 1);
        let losses = answer.header("x-throughline-loss");
        wrong.unless(!losses.contains("thinking_omitted"), format!("{what}: {losses}"));
        house.end_in_peace().await;
    }
    wrong.end();
}

/// Some models sign their calls; clients of some dialects have no room for that, and their thinking has.
///
/// Covers: S0-65
#[tokio::test]
async fn the_signature_of_a_call_rides_with_the_thinking_before_it() {
    let mut wrong = Wrong::default();
    for row in ["gemini 3", "google"] {
        for dialect in ["anthropic", "openai_responses"] {
            for stream in [true, false] {
                let mut house = House::over(&[row]).await;
                let what = format!("{dialect} over {row}, streamed: {stream}");
                let mut speaker = client(dialect);
                speaker.user("use one tool");
                for (round, result) in ["row blue", "row green", ""].into_iter().enumerate() {
                    let client = &house.gateway.client;
                    let (said, _) = go_on(speaker.as_mut(), client, "some-model", stream).await;
                    let body = house.last(0).await.json();
                    wrong.unless_equal(&what, thinking_in(&body), round);
                    let skipped = body.to_string().contains("skip_thought_signature");
                    wrong.unless_equal(&what, skipped, false);
                    if !result.is_empty() {
                        speaker.results(&said.calls, result);
                    }
                    house.forget().await;
                }
                house.end_in_peace().await;
            }
        }
    }
    wrong.end();
}

/// The signature is that call's and no other's.
#[tokio::test]
async fn a_call_in_another_ones_place_gets_no_signature() {
    let mut house = House::over(&["gemini 3"]).await;
    let speaker = in_a_loop(&house, "anthropic").await;
    house.forget().await;
    let mut ask = speaker.ask("some-model", true);
    let body = ask.body.to_string();
    let id = body.split("\"tool_use_id\":\"").nth(1).expect("a result");
    let id = id.split('"').next().expect("an id");
    let body = body.replace(id, "toolu_another");
    ask.body = serde_json::from_str(&body).expect("JSON");
    let answer = send(&ask, &house.gateway.client).await;
    told(&house.gateway, &answer).await;
    assert_eq!(thinking_in(&house.last(0).await.json()), 0);
    house.end_in_peace().await;
}

#[tokio::test]
async fn an_envelope_with_one_altered_character_is_foreign() {
    let mut wrong = Wrong::default();
    for (dialect, row) in PAIRS {
        for forgets in [false, true] {
            let mut house = House::over(&[row]).await;
            let speaker = in_a_loop(&house, dialect).await;
            if forgets {
                house.forget().await;
            }
            let ask = changed(speaker.as_ref(), alter);
            let answer = send(&ask, &house.gateway.client).await;
            let what = format!("{dialect} over {row}, forgotten: {forgets}");
            let turn = told(&house.gateway, &answer).await;
            wrong.unless_equal(&what, fates(&turn), ["left_out origin"]);
            let losses = answer.header("x-throughline-loss");
            let lost = losses.contains("thinking_omitted=1;reason=origin");
            wrong.unless(lost, format!("{what}: {losses}"));
            let seen = house.last(0).await;
            // That of the call is the vault's, and nobody has altered it.
            let own = usize::from(row == "gemini 3" && !forgets);
            wrong.unless_equal(&what, thinking_in(&seen.json()), own);
            house.end_in_peace().await;
        }
    }
    wrong.end();
}

#[tokio::test]
async fn an_envelope_of_another_keyring_is_foreign() {
    let mut wrong = Wrong::default();
    for (dialect, row) in PAIRS {
        let stranger = House::over(&[row]).await;
        let speaker = in_a_loop(&stranger, dialect).await;
        let house = House::over(&[row]).await;
        let ask = changed(speaker.as_ref(), |_| {});
        let answer = send(&ask, &house.gateway.client).await;
        let turn = told(&house.gateway, &answer).await;
        let what = format!("{dialect} over {row}");
        wrong.unless_equal(&what, fates(&turn), ["left_out origin"]);
        wrong.unless_equal(&what, thinking_in(&house.last(0).await.json()), 0);
        house.end_in_peace().await;
    }
    wrong.end();
}

#[tokio::test]
async fn gateways_with_one_keyring_read_each_others_envelopes() {
    let keyring = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=";
    let mut wrong = Wrong::default();
    for (dialect, row) in [PAIRS[0], PAIRS[3], PAIRS[6]] {
        let house = House::build(&Plan {
            upstreams: &[row],
            environment: &[("THROUGHLINE_KEYRING", keyring)],
            ..Plan::default()
        })
        .await;
        let config = upstream(row).backend("a", &house.simulators[0].url);
        let other = Gateway::start_in(BINARY, &config, &[("THROUGHLINE_KEYRING", keyring)]).await;
        let speaker = in_a_loop(&house, dialect).await;
        let ask = speaker.ask("some-model", true);
        let answer = send(&ask, &other.client).await;
        let turn = told(&other, &answer).await;
        let what = format!("{dialect} over {row}");
        wrong.unless_equal(&what, fates(&turn), ["sent"]);
        wrong.unless_equal(&what, thinking_in(&house.last(0).await.json()), 1);
        house.end_in_peace().await;
    }
    wrong.end();
}

/// What a maker signed is its own text and no other.
#[tokio::test]
async fn text_that_was_changed_under_a_signature_stays_behind() {
    let mut wrong = Wrong::default();
    for (dialect, row) in [
        ("anthropic", "openai_responses"),
        ("anthropic", "openrouter"),
        ("openai_responses", "anthropic, budget"),
        ("openai_responses", "litellm"),
        ("gemini", "anthropic, adaptive"),
    ] {
        for forgets in [false, true] {
            let mut house = House::over(&[row]).await;
            let speaker = in_a_loop(&house, dialect).await;
            if forgets {
                house.forget().await;
            }
            let mut ask = speaker.ask("some-model", true);
            let body = ask.body.to_string();
            assert!(body.contains("I need a row."), "{body}");
            let body = body.replace("I need a row.", "I need a cow.");
            ask.body = serde_json::from_str(&body).expect("JSON");
            let answer = send(&ask, &house.gateway.client).await;
            let turn = told(&house.gateway, &answer).await;
            let what = format!("{dialect} over {row}, forgotten: {forgets}");
            wrong.unless_equal(&what, fates(&turn), ["left_out shape"]);
            let seen = house.last(0).await;
            wrong.unless_equal(&what, thinking_in(&seen.json()), 0);
            house.end_in_peace().await;
        }
    }
    wrong.end();
}
