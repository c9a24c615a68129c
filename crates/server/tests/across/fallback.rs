//! Another backend steps in before the first byte, in another dialect, and never after it.

use crate::heard::hear;
use crate::speaker::{list, send, text};
use crate::support::{House, Plan, Wrong, client, fates, thinking_in};

/// The first backend answers once, and is overloaded or breaks after that.
const SAYS: &str = r#"
[[step]]
when = { contains = "use one tool" }
say = [{ thinking = "I need a row." }, { tool = { name = "lookup", input = { key = "7" } } }]
[[step]]
when = { contains = "row green" }
say = [{ thinking = "That is all." }, { text = "Blue, then green." }]
"#;

const CHAIN: &str = "[route]\nfallback = [\"b\", \"c\"]\n";

/// The scenario of all, where the first backend's second answer has this fault.
fn first_breaks(model: &str, fault: &str) -> String {
    format!(
        "[[step]]\nwhen = {{ contains = \"row green\", model = \"{model}\" }}\nfault = \"{fault}\"\n\
         say = [{{ thinking = \"Let me see what that was.\" }}, {{ text = \"It was this.\" }}]\n{SAYS}"
    )
}

#[tokio::test]
async fn a_backend_of_another_dialect_steps_in_with_the_thinking_made_fit() {
    let mut wrong = Wrong::default();
    for (dialect, rows, model) in [
        ("openai_chat", ["anthropic, budget", "gemini 3"], "claude-*"),
        ("anthropic", ["openai_responses", "deepseek-v4"], "gpt-*"),
        ("anthropic", ["gemini 3", "anthropic, budget"], "gemini-*"),
        ("gemini", ["openai_responses", "gemini 3"], "gpt-*"),
        ("openai_responses", ["gemini 3", "vllm"], "gemini-*"),
        ("gemini", ["deepseek-v4", "anthropic, adaptive"], "deepseek-*"),
        ("gemini", ["anthropic, budget", "openai_responses"], "claude-*"),
    ] {
        for fault in ["status:529", "status:429,retry-after=3", "status:500"] {
            let house = House::build(&Plan {
                upstreams: &rows,
                scenario: &first_breaks(model, fault),
                settings: "[route]\nfallback = [\"b\"]\n",
                ..Plan::default()
            })
            .await;
            let what = format!("{dialect} over {rows:?}: {fault}");
            let mut speaker = client(dialect);
            speaker.user("use one tool");
            let (said, answer) = house.hear(speaker.as_mut()).await;
            wrong.unless_equal(&what, answer.header("x-throughline-backend"), "a");
            speaker.results(&said.calls, "row green");
            let (said, answer) = house.hear(speaker.as_mut()).await;
            wrong.unless_equal(&what, said.text.trim(), "Blue, then green.");
            wrong.unless_equal(&what, answer.header("x-throughline-backend"), "b");
            let losses = answer.header("x-throughline-loss");
            let told = losses.contains("thinking_omitted=1;reason=origin");
            wrong.unless(told, format!("{what}: {losses}"));
            wrong.unless_equal(&what, thinking_in(&house.last(1).await.json()), 0);
            let turn = house.gateway.turns().await.swap_remove(0);
            wrong.unless_equal(&what, turn["backend"].as_str(), Some("b"));
            wrong.unless_equal(&what, turn["status"].as_u64(), Some(200));
            wrong.unless_equal(&what, fates(&turn), ["left_out origin"]);
            let refused = house.end().await;
            wrong.unless_equal(&what, refused.len(), 1);
        }
    }
    wrong.end();
}

#[tokio::test]
async fn nobody_steps_in_after_the_first_byte_or_for_a_request_that_is_wrong() {
    let mut wrong = Wrong::default();
    for (dialect, rows, model) in [
        ("openai_chat", ["anthropic, budget", "gemini 3"], "claude-*"),
        ("anthropic", ["gemini 3", "deepseek-v4"], "gemini-*"),
        ("openai_responses", ["deepseek-v4", "anthropic, budget"], "deepseek-*"),
        ("gemini", ["openai_responses", "deepseek-v4"], "gpt-*"),
    ] {
        for (fault, begins) in [
            ("cut:event=0", true),
            ("error:event=4", true),
            ("status:401", false),
            ("status:400", false),
        ] {
            let house = House::build(&Plan {
                upstreams: &rows,
                scenario: &first_breaks(model, fault),
                settings: "[route]\nfallback = [\"b\"]\n",
                ..Plan::default()
            })
            .await;
            let what = format!("{dialect} over {rows:?}: {fault}");
            let mut speaker = client(dialect);
            speaker.user("row green");
            let ask = speaker.ask("some-model", true);
            let answer = send(&ask, &house.gateway.client).await;
            wrong.unless_equal(&what, answer.status == 200, begins);
            if begins {
                let heard = hear(dialect, &answer.text());
                wrong.unless_equal(&what, (heard.errors, heard.complete), (1, false));
            }
            wrong.unless_equal(&what, answer.header("x-throughline-backend"), "a");
            let asked = house.simulators[1].seen().await.len();
            wrong.unless_equal(&what, asked, 0);
            house.end().await;
        }
    }
    wrong.end();
}

/// A chain of three dialects: each is asked in its own words, and the losses are those of the last.
#[tokio::test]
async fn a_chain_of_three_dialects_ends_with_the_one_that_answers() {
    let steps = ["claude-*", "gemini-*"].map(|model| {
        format!(
            "[[step]]\nwhen = {{ contains = \"row green\", model = \"{model}\" }}\nfault = \"status:529\"\n\
             say = [{{ text = \"no\" }}]\n"
        )
    });
    let house = House::build(&Plan {
        upstreams: &["anthropic, budget", "gemini 3", "deepseek-v4"],
        scenario: &format!("{}{SAYS}", steps.concat()),
        settings: CHAIN,
        ..Plan::default()
    })
    .await;
    let mut speaker = client("openai_responses");
    speaker.user("row green");
    let (said, answer) = house.hear(speaker.as_mut()).await;
    assert_eq!(said.text, "Blue, then green.");
    assert_eq!(answer.header("x-throughline-backend"), "c");
    let turns = house.gateway.turns().await;
    assert_eq!(turns.len(), 1, "one turn, however many were asked");
    assert_eq!(turns[0]["upstream_dialect"], "openai_chat");
    assert_eq!(text(&turns[0]["upstream_model"]), "deepseek-v4");
    let losses: Vec<&str> = list(&turns[0]["losses"]).map(|loss| text(&loss["reason"])).collect();
    let told = answer.header("x-throughline-loss");
    assert!(losses.iter().all(|loss| told.contains(loss)), "{told}");
    assert!(!told.contains("as_budget"), "a loss of the first: {told}");
    assert_eq!(house.end().await.len(), 2);
}
