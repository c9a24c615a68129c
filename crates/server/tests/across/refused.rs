//! Thinking that an upstream refuses: it goes once more without, and the refusal is remembered.

use serde_json::json;
use throughline_simulator::{Options, Scenario};
use throughline_testkit::{Gateway, Simulator};

use crate::speaker::{Speaker, send};
use crate::support::{BINARY, House, Plan, Wrong, client, fates, thinking_in, upstream};
use crate::upstreams::SAYS;

/// Two backends that claim to read each other's signatures, and do not.
const LIE: &str = "signature_domain = \"shared\"";

/// Covers: C-38
#[tokio::test]
async fn thinking_that_is_refused_is_taken_out_once_and_for_all() {
    let mut wrong = Wrong::default();
    for (dialect, row) in [
        ("openai_responses", "anthropic, budget"),
        ("openai_chat", "anthropic, budget"),
        ("gemini", "anthropic, adaptive"),
        ("anthropic", "openai_responses"),
        ("openai_chat", "openai_responses"),
        ("gemini", "openai_responses"),
        ("openai_chat", "gemini 3"),
        ("anthropic", "gemini 3"),
        ("anthropic", "openrouter"),
        ("openai_responses", "litellm"),
        ("anthropic", "google"),
    ] {
        let house = House::build(&Plan {
            upstreams: &[row, row],
            backend: LIE,
            ..Plan::default()
        })
        .await;
        let what = format!("{dialect} over {row}");
        let mut speaker = client(dialect);
        speaker.user("use one tool");
        let (said, _) = house.hear(speaker.as_mut()).await;
        house.gateway.switch("b").await;
        speaker.results(&said.calls, "row green");
        let (said, answer) = house.hear(speaker.as_mut()).await;
        wrong.unless_equal(&what, said.text.trim(), "Blue, then green.");
        let seen = house.simulators[1].seen().await;
        let bodies: Vec<usize> = seen.iter().map(|seen| thinking_in(&seen.json())).collect();
        wrong.unless_equal(&what, bodies, [1, 0]);
        let losses = answer.header("x-throughline-loss").to_owned();
        let turn = house.gateway.turns().await.swap_remove(0);
        if !matches!(row, "gemini 3" | "google") {
            let told = losses.contains("thinking_omitted=1;reason=origin");
            wrong.unless(told, format!("{what}: {losses}"));
            wrong.unless_equal(&what, fates(&turn), ["left_out origin"]);
        }

        speaker.user("ponder this");
        house.hear(speaker.as_mut()).await;
        let after = house.simulators[1].seen().await;
        wrong.unless_equal(&format!("{what}, learnt"), after.len(), seen.len() + 1);
        let refused = house.end().await;
        wrong.unless_equal(&format!("{what}, refusals"), refused.len(), 1);
    }
    wrong.end();
}

/// Some models sign a block together with all that stood before it. Where a client changes that, the
/// block is refused, and goes no more.
#[tokio::test]
async fn thinking_that_is_bound_to_another_beginning_is_taken_out_once_and_for_all() {
    let mut wrong = Wrong::default();
    for dialect in ["openai_chat", "openai_responses", "gemini"] {
        let simulator = Simulator::with(Options {
            prefix_binding: true,
            scenario: Some(Scenario::from_toml(SAYS).expect("a scenario")),
            ..Options::default()
        })
        .await;
        let config = upstream("anthropic, bound").backend("a", &simulator.url);
        let house = House {
            gateway: Gateway::start(BINARY, &config).await,
            simulators: vec![simulator],
        };
        let mut speaker = client(dialect);
        speaker.user("use one tool");
        let (said, _) = house.hear(speaker.as_mut()).await;
        speaker.results(&said.calls, "row green");
        let changed = |speaker: &dyn Speaker| {
            let mut ask = speaker.ask("some-model", true);
            let body = &mut ask.body;
            match dialect {
                "openai_chat" => {
                    let messages = body["messages"].as_array_mut().expect("a list");
                    messages.insert(0, json!({"role": "system", "content": "Be terse."}));
                }
                "openai_responses" => body["instructions"] = "Be terse.".into(),
                _ => body["systemInstruction"] = json!({"parts": [{"text": "Be terse."}]}),
            }
            ask
        };
        let answer = send(&changed(speaker.as_ref()), &house.gateway.client).await;
        let said = speaker.read(&answer.good().text(), true);
        wrong.unless_equal(dialect, said.text.trim(), "Blue, then green.");
        let seen = house.simulators[0].seen().await.len();
        wrong.unless_equal(dialect, seen, 3);
        speaker.user("ponder this");
        let answer = send(&changed(speaker.as_ref()), &house.gateway.client).await;
        speaker.read(&answer.good().text(), true);
        wrong.unless_equal(dialect, house.simulators[0].seen().await.len(), 4);
        // What was made since then is sent.
        wrong.unless_equal(dialect, thinking_in(&house.last(0).await.json()), 1);
        wrong.unless_equal(dialect, house.end().await.len(), 1);
    }
    wrong.end();
}
