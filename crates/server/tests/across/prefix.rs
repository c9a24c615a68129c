//! Models that sign a block together with all that stood before it.

use serde_json::{Value, json};
use throughline_simulator::{Options, Scenario};
use throughline_testkit::{Answer, Gateway, Simulator};

use crate::speaker::{Said, Speaker, send, text};
use crate::support::{BINARY, House, Wrong, client, fates, thinking_in, upstream};
use crate::upstreams::SAYS;

/// A client of each dialect that is not the models' own.
const CLIENTS: [&str; 3] = ["openai_chat", "openai_responses", "gemini"];

/// A gateway over a simulator that binds whatever it signs.
async fn bound(row: &str) -> House {
    let simulator = Simulator::with(Options {
        prefix_binding: true,
        scenario: Some(Scenario::from_toml(SAYS).expect("a scenario")),
        ..Options::default()
    })
    .await;
    let config = upstream(row).backend("a", &simulator.url);
    House { gateway: Gateway::start(BINARY, &config).await, simulators: vec![simulator] }
}

/// Sends the conversation under another beginning, and keeps the answer.
async fn hear_after(
    house: &House,
    dialect: &str,
    speaker: &mut dyn Speaker,
    beginning: &str,
) -> (Said, Answer) {
    let mut ask = speaker.ask("some-model", true);
    let body = &mut ask.body;
    match dialect {
        _ if beginning.is_empty() => {}
        "openai_chat" => {
            let messages = body["messages"].as_array_mut().expect("a list");
            messages.insert(0, json!({"role": "system", "content": beginning}));
        }
        "openai_responses" => body["instructions"] = beginning.into(),
        _ => body["systemInstruction"] = json!({"parts": [{"text": beginning}]}),
    }
    let answer = send(&ask, &house.gateway.client).await.good();
    let said = speaker.read(&answer.text(), true);
    (said, answer)
}

/// What is asked of blocks that are bound to something else.
fn asked(body: &Value) -> &str {
    text(&body["thinking"]["block_binding"]["prefix_mismatch_behavior"])
}

/// A history that is written anew for every request comes out the same.
///
/// Covers: C-1
#[tokio::test]
async fn thinking_that_is_bound_to_its_beginning_holds_over_a_tool_loop() {
    let mut wrong = Wrong::default();
    for row in ["anthropic, budget", "anthropic, adaptive", "anthropic, bound"] {
        for dialect in CLIENTS {
            let house = bound(row).await;
            let what = format!("{dialect} over {row}");
            let mut speaker = client(dialect);
            speaker.user("use one tool");
            let mut sent = Vec::new();
            for result in ["row blue", "row green", ""] {
                let (said, answer) = house.hear(speaker.as_mut()).await;
                sent.push(thinking_in(&house.last(0).await.json()));
                let losses = answer.header("x-throughline-loss").to_owned();
                wrong.unless(!losses.contains("thinking_omitted"), format!("{what}: {losses}"));
                if !result.is_empty() {
                    speaker.results(&said.calls, result);
                }
            }
            speaker.user("ponder this");
            house.hear(speaker.as_mut()).await;
            let last = house.last(0).await.json();
            sent.push(thinking_in(&last));
            wrong.unless_equal(&what, sent, [0, 1, 2, 3]);
            wrong.unless_equal(&what, asked(&last), "");
            wrong.unless_equal(&what, house.end().await, [""; 0]);
        }
    }
    wrong.end();
}

/// Of a model that is known to bind, what will not hold is known before it is sent.
#[tokio::test]
async fn thinking_that_will_not_hold_is_dropped_without_a_refusal() {
    let mut wrong = Wrong::default();
    for dialect in CLIENTS {
        let house = bound("anthropic, bound").await;
        let mut speaker = client(dialect);
        speaker.user("use one tool");
        let (said, _) = house.hear(speaker.as_mut()).await;
        speaker.results(&said.calls, "row green");
        let terse = "Be terse.";
        let (said, answer) = hear_after(&house, dialect, speaker.as_mut(), terse).await;
        wrong.unless_equal(dialect, said.text.trim(), "Blue, then green.");
        wrong.unless_equal(dialect, asked(&house.last(0).await.json()), "drop_block");
        let losses = answer.header("x-throughline-loss").to_owned();
        let told = losses.contains("thinking_omitted=1;reason=prefix");
        wrong.unless(told, format!("{dialect}: {losses}"));
        let turn = house.gateway.turns().await.swap_remove(0);
        wrong.unless_equal(dialect, fates(&turn), ["left_out prefix"]);
        speaker.user("ponder this");
        hear_after(&house, dialect, speaker.as_mut(), terse).await;
        let turn = house.gateway.turns().await.swap_remove(0);
        wrong.unless_equal(dialect, fates(&turn).pop().as_deref(), Some(goes(dialect)));
        wrong.unless_equal(dialect, house.end().await, [""; 0]);
    }
    wrong.end();
}

/// How thinking goes that its client still has, or has lost.
fn goes(dialect: &str) -> &'static str {
    match dialect {
        "openai_chat" => "restored",
        _ => "sent",
    }
}

/// A backend of which nobody knew says so once. What was refused then was not bad: under its own
/// beginning it goes again.
#[tokio::test]
async fn a_backend_is_learnt_to_bind_and_no_block_is_condemned_for_it() {
    let mut wrong = Wrong::default();
    for dialect in CLIENTS {
        let house = bound("anthropic, adaptive").await;
        let mut speaker = client(dialect);
        speaker.user("use one tool");
        let (said, _) = house.hear(speaker.as_mut()).await;
        speaker.results(&said.calls, "row green");
        let (_, answer) = hear_after(&house, dialect, speaker.as_mut(), "Be terse.").await;
        wrong.unless_equal(dialect, house.simulators[0].seen().await.len(), 3);
        wrong.unless_equal(dialect, asked(&house.last(0).await.json()), "drop_block");
        let losses = answer.header("x-throughline-loss").to_owned();
        let told = losses.contains("thinking_omitted=1;reason=prefix");
        wrong.unless(told, format!("{dialect}: {losses}"));

        speaker.user("ponder once more");
        house.hear(speaker.as_mut()).await;
        let turn = house.gateway.turns().await.swap_remove(0);
        let expected: &[&str] = match dialect {
            // It has lost what it answered under another beginning.
            "openai_chat" => &["sent"],
            _ => &["sent", "left_out prefix"],
        };
        wrong.unless_equal(dialect, fates(&turn), expected);
        wrong.unless_equal(dialect, house.end().await.len(), 1);
    }
    wrong.end();
}
