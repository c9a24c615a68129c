//! Servers that sign nothing: their reasoning goes back to them as they wrote it, whatever the client
//! speaks.

use serde_json::Value;
use throughline_simulator::{Options, Scenario, SignatureStyle, Variant};
use throughline_testkit::{Gateway, Simulator};

use crate::support::{BINARY, Mismatches, TestBed, new_client};
use crate::test_client::list;
use crate::upstreams::SCENARIO;

const DIALECTS: [&str; 4] = ["openai_chat", "anthropic", "gemini", "openai_responses"];

/// The reasoning that leads to the call.
const THOUGHT: &str = "I need a row.";

/// Starts a gateway over a server of this dialect that signs nothing.
async fn over_unsigned(dialect: &str, variant: Option<&str>) -> TestBed {
    let simulator = Simulator::with(Options {
        identity: "a".to_owned(),
        variant: variant.map(|name| Variant::named(name).expect("a variant")),
        scenario: Some(Scenario::from_toml(SCENARIO).expect("a scenario")),
        signature_style: SignatureStyle::Empty,
        ..Options::default()
    })
    .await;
    let config = format!(
        "[[backend]]\nname = \"a\"\ndialect = \"{dialect}\"\nbase_url = \"{}\"\n\
         models = {{ \"*\" = \"gpt-oss-120b\" }}\n",
        simulator.url
    );
    TestBed { gateway: Gateway::start(BINARY, &config).await, simulators: vec![simulator] }
}

/// The reasoning of earlier turns in a request of either dialect.
fn reasoning_in(body: &Value) -> Vec<String> {
    let items = list(&body["input"]).filter(|item| item["type"] == "reasoning");
    let texts = items.map(|item| &item["content"][0]["text"]);
    let messages = list(&body["messages"]).flat_map(|message| list(&message["content"]));
    let thinking = messages.filter(|block| block["type"] == "thinking");
    let blocks = thinking.map(|block| &block["thinking"]);
    texts.chain(blocks).map(|text| text.as_str().unwrap_or_default().to_owned()).collect()
}

#[tokio::test]
async fn unsigned_reasoning_goes_back_to_its_maker() {
    let mut mismatches = Mismatches::default();
    for (upstream, variant) in [
        ("openai_responses", Some("vllm")),
        ("openai_responses", Some("llamacpp")),
        ("anthropic", None),
    ] {
        // On the through lane an Anthropic client gets the empty signature itself.
        for dialect in DIALECTS
            .into_iter()
            .filter(|dialect| *dialect != "anthropic" || upstream != "anthropic")
        {
            let case = format!("{dialect} over {upstream} {variant:?}");
            let mut bed = over_unsigned(upstream, variant).await;
            let mut test_client = new_client(dialect);
            test_client.push_user("use one tool");
            let (view, _) = bed.send(test_client.as_mut()).await;
            mismatches.check_equal(&case, view.calls.len(), 1);
            test_client.push_results(&view.calls, "row green");
            let (_, answer) = bed.send(test_client.as_mut()).await;
            let seen = reasoning_in(&bed.last_received(0).await.json());
            mismatches.check_equal(&case, seen, vec![THOUGHT.to_owned()]);
            let loss = answer.header("x-throughline-loss").to_owned();
            mismatches.check(!loss.contains("thinking_omitted"), format!("{case}: {loss}"));
            // The next turn still has it, also after a restart.
            test_client.push_user("ponder this");
            bed.stop().await;
            bed.gateway.restart().await;
            bed.send(test_client.as_mut()).await;
            let seen = reasoning_in(&bed.last_received(0).await.json());
            mismatches.check(seen.contains(&THOUGHT.to_owned()), format!("{case}: {seen:?}"));
            let refusals = bed.into_refusals().await;
            mismatches.check(refusals.is_empty(), format!("{case}: {refusals:?}"));
        }
    }
    mismatches.assert_none();
}
