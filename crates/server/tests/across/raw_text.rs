//! Backends whose models write reasoning and calls into plain text: every client gets them apart.

use crate::heard::{hear, refusal};
use crate::speaker::{go_on, send};
use crate::support::{CLIENTS, House, Wrong, client, fates, thinking_in};

const SAYS: &str = r#"
[[step]]
when = { contains = "one tool" }
say = [
  { thinking = "I need a row." }, { text = "I look." },
  { tool = { name = "lookup", input = { key = "7" } } },
]
[[step]]
when = { contains = "row green" }
say = [{ thinking = "That is all." }, { text = "Blue, then green." }]
[[step]]
when = { contains = "half a call" }
say = [
  { thinking = "I need a row." },
  { text = "I look. <tool_call>{\"key\": 7]</tool_call> So." },
]
[[step]]
when = { contains = "strange tags" }
say = [{ text = "[THINK]It is odd.[/THINK]Yes." }]
"#;

/// Models by what their servers write, and how the backend is configured for them.
const MODELS: [(&str, &str); 6] = [
    ("qwen3-think-tags", "variant = \"think-tags\""),
    ("qwen3-think-tags-raw-tools", "variant = \"think-tags\""),
    ("qwen3-think-tags-raw-tools", "variant = \"vllm\""),
    ("house-think-tags-raw-tools", "variant = \"vllm\"\nfamily = \"qwen3\""),
    (
        "qwen3-think-tags-implicit-raw-tools",
        "variant = \"think-tags\"\nfamily = \"qwen3-thinking\"",
    ),
    ("qwen3-think-tags-implicit-raw-tools", "variant = \"vllm\"\nfamily = \"qwen3-thinking\""),
];

/// Covers: X-10
#[tokio::test]
async fn reasoning_text_and_calls_in_raw_text_come_apart_for_every_client() {
    let mut wrong = Wrong::default();
    for (model, backend) in MODELS {
        let house = House::of_model(model, SAYS, backend).await;
        for dialect in CLIENTS {
            for stream in [true, false] {
                let what = format!("{dialect} over {model}, {backend:?}, {stream}");
                let mut speaker = client(dialect);
                speaker.user("use one tool");
                let sent = &house.gateway.client;
                let (said, _) = go_on(speaker.as_mut(), sent, "some-model", stream).await;
                wrong.unless_equal(&what, said.reasoning.as_str(), "I need a row.");
                wrong.unless_equal(&what, said.text.trim(), "I look.");
                let calls: Vec<_> = said
                    .calls
                    .iter()
                    .map(|call| (call.name.as_str(), call.arguments.to_string()))
                    .collect();
                wrong.unless_equal(&what, calls, [("lookup", "{\"key\":\"7\"}".to_owned())]);
                // A server of that kind takes no member for it, and would be configured as such.
                if backend.contains("vllm") {
                    continue;
                }
                speaker.results(&said.calls, "row green");
                let (said, _) = go_on(speaker.as_mut(), sent, "some-model", stream).await;
                wrong.unless_equal(&what, said.reasoning.as_str(), "That is all.");
                wrong.unless_equal(&what, said.text.trim(), "Blue, then green.");
                // In the middle of its work a model gets its reasoning back.
                let seen = house.last(0).await;
                wrong.unless_equal(&what, thinking_in(&seen.json()), 1);
                let turn = house.gateway.turns().await.swap_remove(0);
                let fate = if dialect == "openai_chat" { "restored" } else { "sent" };
                wrong.unless_equal(&what, fates(&turn), [fate]);
            }
        }
        house.end_in_peace().await;
    }
    wrong.end();
}

/// Where reasoning goes, and which tags are looked for.
#[tokio::test]
async fn the_keys_for_raw_text_have_their_effect() {
    let mut wrong = Wrong::default();
    let whole = "<think>\nI need a row.\n</think>";
    for (key, asked, reasoning, text) in [
        ("", "use one tool", "I need a row.", "I look."),
        ("reasoning_format = \"split\"", "use one tool", "I need a row.", "I look."),
        ("reasoning_format = \"raw\"", "use one tool", whole, "I look."),
        ("reasoning_format = \"none\"", "use one tool", "", "<think>"),
        ("family = \"none\"", "use one tool", "", "<think>"),
        ("", "strange tags", "", "[THINK]It is odd.[/THINK]Yes."),
        ("family = \"magistral\"", "strange tags", "It is odd.", "Yes."),
    ] {
        let backend = format!("variant = \"vllm\"\n{key}");
        let house = House::of_model("qwen3-think-tags", SAYS, &backend).await;
        for dialect in CLIENTS {
            let what = format!("{dialect}: {asked}, {key}");
            let mut speaker = client(dialect);
            speaker.user(asked);
            let (said, _) = house.hear(speaker.as_mut()).await;
            let same = |found: &str, wanted: &str| {
                let plain = |text: &str| text.replace(['\n', ' '], "");
                plain(found) == plain(wanted)
            };
            let right = same(&said.reasoning, reasoning)
                && (same(&said.text, text) || text == "<think>" && said.text.contains(text));
            wrong.unless(right, format!("{what}: {said:?}"));
        }
        house.end_in_peace().await;
    }
    wrong.end();
}

/// Covers: S2-29, C-24
#[tokio::test]
async fn a_call_that_does_not_parse_is_an_error_or_text_as_configured() {
    let mut wrong = Wrong::default();
    for (policy, fails) in [
        ("", true),
        ("on_tool_parse_error = \"error\"", true),
        ("on_tool_parse_error = \"text\"", false),
    ] {
        let backend = format!("variant = \"think-tags\"\n{policy}");
        let house = House::of_model("qwen3-think-tags-raw-tools", SAYS, &backend).await;
        for dialect in CLIENTS {
            let what = format!("{dialect}: {policy:?}");
            let mut speaker = client(dialect);
            speaker.user("half a call");
            let ask = speaker.ask("some-model", true);
            let answer = send(&ask, &house.gateway.client).await;
            let heard = hear(dialect, &answer.text());
            wrong.unless_equal(&what, heard.reasoning.as_str(), "I need a row.");
            wrong.unless_equal(&what, heard.errors, usize::from(fails));
            let named = answer.text().contains("tool_call_parse_error");
            wrong.unless(
                named == (fails && dialect == "openai_chat"),
                format!("{what}: {}", answer.text()),
            );
            wrong.unless(heard.complete != fails, format!("{what}: {}", answer.text()));
            let said = match fails {
                true => heard.text.trim() == "I look.",
                false => heard.text.contains("<tool_call>{\"key\": 7]</tool_call> So."),
            };
            wrong.unless(said, format!("{what}: {heard:?}"));
            let ask = speaker.ask("some-model", false);
            let answer = send(&ask, &house.gateway.client).await;
            wrong.unless_equal(&what, answer.status == 200, !fails);
            if fails {
                let message = refusal(dialect, &answer.json());
                wrong.unless(message.contains("call"), format!("{what}: {message}"));
            }
        }
        house.end_in_peace().await;
    }
    wrong.end();
}

/// A model whose template opens the reasoning, and a server that separates it.
#[tokio::test]
async fn separated_reasoning_makes_text_the_answer_for_every_client() {
    const SAYS: &str = r#"
[[step]]
when = { contains = "ponder" }
say = [{ thinking = "I ponder." }, { text = "Green." }]
[[step]]
when = { contains = "plain" }
say = [{ text = "Just green." }]
"#;
    let mut wrong = Wrong::default();
    for variant in ["vllm", "sglang", "llamacpp", "groq"] {
        let backend = format!("variant = \"{variant}\"");
        for dialect in CLIENTS {
            for stream in [true, false] {
                let house = House::of_server(variant, "qwq-32b", SAYS, &backend).await;
                let what = format!("{dialect} over {variant}, stream {stream}");
                for (asked, reasoning, text) in
                    [("ponder", "I ponder.", "Green."), ("plain", "", "Just green.")]
                {
                    let mut speaker = client(dialect);
                    speaker.user(asked);
                    let sent = &house.gateway.client;
                    let (said, _) = go_on(speaker.as_mut(), sent, "some-model", stream).await;
                    wrong.unless_equal(&what, said.reasoning.as_str(), reasoning);
                    wrong.unless_equal(&what, said.text.as_str(), text);
                }
                house.end_in_peace().await;
            }
        }
    }
    wrong.end();
}

/// The model's template opens the reasoning, and the model answers without closing it.
#[tokio::test]
async fn unclosed_reasoning_is_delivered_as_the_answer_and_reported() {
    const SAYS: &str = r#"
[[step]]
when = { contains = "green" }
say = [{ text = "Just green." }]
"#;
    let mut wrong = Wrong::default();
    let backend = "variant = \"think-tags\"\nfamily = \"qwen3-thinking\"";
    let house = House::of_model("qwen3-think-tags", SAYS, backend).await;
    for dialect in CLIENTS {
        for stream in [true, false] {
            let what = format!("{dialect}, stream {stream}");
            let mut speaker = client(dialect);
            speaker.user("what is green");
            let sent = &house.gateway.client;
            let (said, answer) = go_on(speaker.as_mut(), sent, "some-model", stream).await;
            wrong.unless_equal(&what, said.text.as_str(), "Just green.");
            let turn = house.gateway.turns().await.swap_remove(0);
            wrong.unless_equal(
                &what,
                turn["losses"].to_string().contains("reasoning_unclosed"),
                true,
            );
            let header = answer.header("x-throughline-loss");
            wrong.unless_equal(&what, header.contains("reasoning_unclosed=1"), !stream);
        }
    }
    house.end_in_peace().await;
    wrong.end();
}

/// Covers: S2-16
#[tokio::test]
async fn a_restart_remembers_that_a_server_separates_reasoning() {
    const SAYS: &str = r#"
[[step]]
when = { contains = "ponder" }
say = [{ thinking = "I ponder." }, { text = "Green." }]
[[step]]
when = { contains = "plain" }
say = [{ text = "Just green." }]
"#;
    let mut house = House::of_server("vllm", "qwq-32b", SAYS, "variant = \"vllm\"").await;
    for (asked, reasoning, text) in
        [("ponder", "I ponder.", "Green."), ("plain", "", "Just green.")]
    {
        let mut speaker = client("openai_chat");
        speaker.user(asked);
        let (said, _) = house.hear(speaker.as_mut()).await;
        assert_eq!((said.reasoning.as_str(), said.text.as_str()), (reasoning, text));
        house.stop().await;
        house.gateway.start_again().await;
    }
    house.end_in_peace().await;
}
