//! Signs of life while an upstream is silent, in each client's own form.

use crate::heard::hear;
use crate::speaker::send;
use crate::support::{CLIENTS, House, Plan, Wrong, client, fates, upstream};

/// What is thought where it is silent in between, and what is said at the end.
pub(crate) const THOUGHT: &str = "One by one they come in, and one by one they go out again.";
pub(crate) const ANSWER: &str = "All of them are there, and they have been since the morning.";

/// Silence before the first event, within the thinking, and within the text; then a call.
pub(crate) const PAUSES: &str = r#"
[[step]]
when = { contains = "think slowly" }
fault = "stall:event=0,ms=160;stall:event=5,ms=160;stall:event=9,ms=160"
say = [
  { thinking = "One by one they come in, and one by one they go out again." },
  { tool = { name = "lookup", input = { key = "7" } } },
]
[[step]]
when = { contains = "row" }
say = [
  { thinking = "They are all there, so nothing more is to be done." },
  { text = "All of them are there, and they have been since the morning." },
]
"#;

#[tokio::test]
async fn a_silent_upstream_gets_its_client_a_sign_of_life_and_loses_nothing() {
    let mut wrong = Wrong::default();
    for row in ["anthropic, budget", "gemini 3", "openai_responses", "deepseek-v4"] {
        let house = House::build(&Plan {
            upstreams: &[row],
            scenario: PAUSES,
            settings: "keep_alive = \"40ms\"",
            ..Plan::default()
        })
        .await;
        for dialect in CLIENTS {
            if dialect == upstream(row).dialect {
                continue;
            }
            let what = format!("{dialect} over {row}");
            let mut speaker = client(dialect);
            speaker.user("think slowly");
            let ask = speaker.ask("some-model", true);
            let answer = send(&ask, &house.gateway.client).await.good();
            let heard = hear(dialect, &answer.text());
            wrong.unless(heard.signs_of_life >= 4, format!("{what}: {heard:?}"));
            wrong.unless(heard.complete && heard.errors == 0, format!("{what}: {heard:?}"));
            let form = match dialect {
                "anthropic" => "event: ping\ndata: {\"type\": \"ping\"}\n\n",
                "openai_chat" => ": ",
                "openai_responses" => {
                    "event: keepalive\ndata: {\"type\":\"keepalive\",\"sequence_number\":"
                }
                _ => "}\n\n\n\n",
            };
            wrong.unless(answer.text().contains(form), format!("{what}: {}", answer.text()));
            let said = speaker.read(&answer.text(), true);
            wrong.unless_equal(&what, said.reasoning.as_str(), THOUGHT);
            // What was silent in between is one block all the same.
            speaker.results(&said.calls, "row");
            let (said, answer) = house.hear(speaker.as_mut()).await;
            wrong.unless_equal(&what, said.text.trim(), ANSWER);
            let turn = house.gateway.turns().await.swap_remove(0);
            let fate = match (dialect, row) {
                (_, "gemini 3") => "left_out policy",
                ("openai_chat", _) => "restored",
                _ => "sent",
            };
            wrong.unless_equal(&what, fates(&turn), [fate]);
            let losses = answer.header("x-throughline-loss");
            wrong.unless(!losses.contains("omitted"), format!("{what}: {losses}"));
        }
        house.end_in_peace().await;
    }
    wrong.end();
}
