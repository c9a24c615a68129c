//! Keep-alives while an upstream is silent, in the form of each client dialect.

use throughline_testkit::block_fates;

use crate::stream_reading::read_stream;
use crate::support::{BedOptions, Mismatches, TestBed, foreign_clients, new_client};
use crate::test_client::send;

/// The thinking and the text of an answer with pauses.
pub(crate) const THINKING: &str = "One by one they come in, and one by one they go out again.";
pub(crate) const ANSWER: &str = "All of them are there, and they have been since the morning.";

/// Pauses before the first event, inside the thinking and inside the text, then a tool call.
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
async fn silent_upstream_causes_keep_alives_and_loses_nothing() {
    let mut mismatches = Mismatches::default();
    for row in ["anthropic, budget", "gemini 3", "openai_responses", "deepseek-v4"] {
        let bed = TestBed::build(&BedOptions {
            upstreams: &[row],
            scenario: PAUSES,
            settings: "keep_alive = \"40ms\"",
            ..BedOptions::default()
        })
        .await;
        for dialect in foreign_clients(row) {
            let case = format!("{dialect} over {row}");
            let mut test_client = new_client(dialect);
            test_client.push_user("think slowly");
            let request = test_client.next_request("some-model", true);
            let answer = send(&request, &bed.gateway.client).await.expect_ok();
            let reading = read_stream(dialect, &answer.text());
            mismatches.check(reading.signs_of_life >= 4, format!("{case}: {reading:?}"));
            mismatches
                .check(reading.complete && reading.errors == 0, format!("{case}: {reading:?}"));
            let form = match dialect {
                "anthropic" => "event: ping\ndata: {\"type\": \"ping\"}\n\n",
                "openai_chat" => ": ",
                "openai_responses" => {
                    "event: keepalive\ndata: {\"type\":\"keepalive\",\"sequence_number\":"
                }
                _ => "}\n\n\n\n",
            };
            mismatches.check(answer.text().contains(form), format!("{case}: {}", answer.text()));
            let view = test_client.read(&answer.text(), true);
            mismatches.check_equal(&case, view.reasoning.as_str(), THINKING);
            // The block is still one block in spite of the pause.
            test_client.push_results(&view.calls, "row");
            let (view, answer) = bed.send(test_client.as_mut()).await;
            mismatches.check_equal(&case, view.text.trim(), ANSWER);
            let turn = bed.gateway.turns().await.swap_remove(0);
            let fate = match (dialect, row) {
                // The client drops thoughts, and their own maker does not read them.
                ("openai_chat", "gemini 3") => None,
                (_, "gemini 3") => Some("left_out policy"),
                ("openai_chat", _) => Some("restored"),
                _ => Some("sent"),
            };
            mismatches.check_equal(&case, block_fates(&turn), Vec::from_iter(fate));
            let losses = answer.header("x-throughline-loss");
            mismatches.check(!losses.contains("omitted"), format!("{case}: {losses}"));
        }
        bed.expect_no_refusals().await;
    }
    mismatches.assert_none();
}
