//! What of the past goes into the next request: raw for the same model, text before a break.

use http::Method;
use serde_json::{Value, json};
use throughline_simulator::{Options, Scenario, Variant};
use throughline_testkit::{Gateway, Simulator};

use crate::support::{ANTHROPIC, Api, BINARY, CHAT, GEMINI, RESPONSES, STORING, done, kinds, text};
use crate::upstreams::SCENARIO;

/// Asks for the preview of a turn, runs the turn, and checks that the provider received exactly
/// what the preview said.
async fn previewed_chat(api: &Api, backend: usize, project: &str, chat: Value) -> (Value, Value) {
    let answer = api.post(&format!("{project}/preview"), chat.clone()).await.expect_ok();
    let preview = answer.json();
    let before = api.count(project).await;
    let lines = api.chat(project, chat).await;
    assert_eq!(done(&lines)["reason"], "completed", "{lines:#?}");
    assert_eq!(api.count(project).await, before + 2);
    let received = api.simulators[backend].last_received().await;
    assert!(answer.text().contains(&received.body), "{preview:#}\n{}", received.body);
    assert_eq!(preview["path"], received.path);
    (preview, received.json())
}

fn thinking_chat(branch: &str, message: &str) -> Value {
    json!({"branch": branch, "message": message, "thinking": "medium"})
}

fn forms(preview: &Value) -> Vec<(String, String)> {
    let nodes = preview["nodes"].as_array().expect("a list of nodes");
    let pair = |node: &Value| (text(&node["form"]).to_owned(), text(&node["reason"]).to_owned());
    nodes.iter().map(pair).collect()
}

/// Covers: S4-20, S4-23, S4-24, S4-25, S4-26, S4-39, S4-59, S4-60, case 41
#[tokio::test]
async fn only_turns_after_the_last_break_go_back_with_their_thinking() {
    let api = Api::over(&[ANTHROPIC, RESPONSES, GEMINI]).await;
    let project = api.project(json!({"title": "t"})).await;
    previewed_chat(&api, 0, &project, thinking_chat("main", "ponder one")).await;
    let (_, body) = previewed_chat(&api, 0, &project, thinking_chat("main", "ponder two")).await;
    // The same model gets its own blocks back.
    assert_eq!(body["messages"][1]["content"][0]["thinking"], "First this, then that.");
    assert!(text(&body["messages"][1]["content"][0]["signature"]).len() > 8);

    let branch = json!({"name": "second", "provider": "openai_responses"});
    api.branch(&project, branch).await;
    let (preview, _) = previewed_chat(&api, 1, &project, thinking_chat("second", "ponder")).await;
    let text_form = ("text".to_owned(), "model_break".to_owned());
    let raw_form = ("raw".to_owned(), "same_model".to_owned());
    assert_eq!(forms(&preview), [vec![text_form.clone(); 4], vec![raw_form.clone()]].concat());
    let (_, body) = previewed_chat(&api, 1, &project, thinking_chat("second", "ponder")).await;
    let items = body["input"].as_array().expect("items");
    assert!(items.iter().any(|item| item["type"] == "reasoning"), "{body:#}");
    let messages = items.iter().filter(|item| item["type"] == "message");
    let said = messages.map(ToString::to_string).collect::<String>();
    assert!(!said.contains("First this"), "thinking is sent as text: {body:#}");

    let branch = json!({"name": "third", "fromRef": "second", "provider": "gemini"});
    api.branch(&project, branch).await;
    previewed_chat(&api, 2, &project, thinking_chat("third", "ponder")).await;
    previewed_chat(&api, 2, &project, thinking_chat("third", "ponder")).await;

    let branch = json!({"name": "fourth", "fromRef": "third", "provider": "claude"});
    api.branch(&project, branch).await;
    let (preview, body) =
        previewed_chat(&api, 0, &project, thinking_chat("fourth", "ponder")).await;
    assert_eq!(forms(&preview), [vec![text_form.clone(); 12], vec![raw_form.clone()]].concat());
    assert!(!body.to_string().contains("signature"), "{body:#}");
    let (preview, body) =
        previewed_chat(&api, 0, &project, thinking_chat("fourth", "ponder")).await;
    assert_eq!(forms(&preview), [vec![text_form; 12], vec![raw_form; 3]].concat());
    assert_eq!(body.to_string().matches("\"signature\"").count(), 1, "{body:#}");
    assert_eq!(api.refusals().await, [""; 0]);
}

/// The blocks of a report that are in no message, and how many blocks its losses count.
fn omitted(report: &Value) -> (Vec<Value>, u64) {
    let blocks = report["blocks"].as_array().expect("a list of blocks");
    let is_outside = |block: &&Value| text(&block["path"]).starts_with("nodes.");
    let losses = report["losses"].as_array().expect("a list of losses").iter();
    let counted = losses.filter(|loss| loss["kind"] == "thinking_omitted");
    let counted = counted.filter_map(|loss| loss["count"].as_u64());
    (blocks.iter().filter(is_outside).cloned().collect(), counted.sum())
}

/// How many thinking blocks these nodes have.
fn thinking_in(nodes: &[Value]) -> usize {
    let thinks = |kind: &String| matches!(kind.as_str(), "thinking" | "redacted");
    nodes.iter().map(|node| kinds(node).iter().filter(|kind| thinks(kind)).count()).sum()
}

/// Every dialect as the provider that the chain comes back to, with two others in between.
///
/// Covers: S4-24, S4-25, S4-26, C-28, C-37, case 41
#[tokio::test]
async fn chain_over_three_providers_returns_to_each_dialect() {
    let bound = ("bound", "anthropic, bound");
    let ollama = ("ollama", "ollama");
    for chain in [
        [ANTHROPIC, RESPONSES, GEMINI],
        [bound, GEMINI, RESPONSES],
        [GEMINI, ANTHROPIC, RESPONSES],
        [RESPONSES, GEMINI, ANTHROPIC],
        [CHAT, ANTHROPIC, RESPONSES],
        [ollama, ANTHROPIC, GEMINI],
    ] {
        let name = chain[0].0;
        let api = Api::over(&chain).await;
        let project = api.project(json!({"title": "t", "system": "Be brief."})).await;
        // A tool loop, so that calls and results have to be told to the others.
        let tools = json!([{"name": "lookup", "description": "Reads a row.",
            "parameters": {"type": "object", "properties": {"key": {"type": "string"}}}}]);
        let ask = json!({"message": "one tool", "tools": tools, "thinking": "medium"});
        let lines = api.chat(&project, ask).await;
        let call = lines.iter().find(|line| line["type"] == "tool_call").expect("a call");
        let results = json!([{"id": call["id"], "content": "row green"}]);
        let next = json!({"toolResults": results, "tools": tools, "thinking": "medium"});
        previewed_chat(&api, 0, &project, next).await;
        for (at, branch, from) in
            [(1, "second", "main"), (2, "third", "second"), (0, "fourth", "third")]
        {
            let new = json!({"name": branch, "fromRef": from, "provider": chain[at].0});
            api.branch(&project, new).await;
            let past = api.nodes(&project, branch).await;
            for turn in 0..2 {
                let chat = thinking_chat(branch, "ponder");
                let (preview, body) = previewed_chat(&api, at, &project, chat).await;
                let (outside, counted) = omitted(&preview["report"]);
                // Everything before the branch was made by others, or before their answers.
                let expected = thinking_in(&past);
                assert!(expected > 0, "{name}");
                assert_eq!(outside.len(), expected, "{name}, {branch}: {preview:#}");
                assert_eq!(counted, expected as u64, "{name}, {branch}: {preview:#}");
                let own = |block: &Value| block["origin"]["backend"] == chain[at].0;
                for block in &outside {
                    let reason = if own(block) { "policy" } else { "origin" };
                    assert_eq!(block["reason"], reason, "{name}, {branch}: {block}");
                    assert_eq!(block["fate"], "left_out");
                }
                assert!(branch != "fourth" || outside.iter().any(own), "{name}");
                // The turn, its stream and its node report the same.
                let turn_log = api.get("/admin/turns?limit=1").await["turns"][0].clone();
                assert_eq!(turn_log["blocks"], preview["report"]["blocks"], "{name}, {branch}");
                assert_eq!(turn_log["losses"], preview["report"]["losses"], "{name}, {branch}");
                let node = api.nodes(&project, branch).await.pop().expect("a node");
                assert_eq!(node["losses"], preview["report"]["losses"], "{name}, {branch}");
                // Nothing that only its maker reads is in the part before the break.
                let raw = preview["nodes"].as_array().expect("nodes").iter();
                let raw = raw.filter(|node| node["form"] == "raw").count();
                assert_eq!(raw, 1 + 2 * turn, "{name}, {branch}");
                assert!(!body.to_string().contains("I need a row."), "{name}: {body:#}");
                assert!(body.to_string().contains("[called tool lookup with"), "{name}: {body:#}");
                assert!(body.to_string().contains("[tool lookup returned: row green]"), "{name}");
            }
        }
        assert_eq!(api.refusals().await, [""; 0], "{name}");
    }
}

/// Covers: S4-57
#[tokio::test]
async fn tool_loop_returns_the_signatures_of_its_calls() {
    let tools = json!([{"name": "lookup", "description": "Reads a row.",
        "parameters": {"type": "object", "properties": {"key": {"type": "string"}}}}]);
    for backend in [ANTHROPIC, GEMINI, RESPONSES] {
        let api = Api::over(&[backend]).await;
        let project = api.project(json!({"title": "t"})).await;
        let ask = json!({"message": "two tools", "tools": tools, "thinking": "medium"});
        let lines = api.chat(&project, ask).await;
        let calls: Vec<&Value> = lines.iter().filter(|line| line["type"] == "tool_call").collect();
        assert_eq!(calls.len(), 2, "{}: {lines:#?}", backend.0);
        let node = api.nodes(&project, "main").await[1].clone();
        assert!(kinds(&node).ends_with(&["tool_call".to_owned(), "tool_call".to_owned()]));
        let wrong = json!({"toolResults": [{"id": "nobody", "content": "x"}], "tools": tools});
        let refused = api.post(&format!("{project}/chat"), wrong).await;
        assert_eq!(refused.status, 400, "{}", refused.text());
        let results = json!([
            {"id": calls[0]["id"], "content": "row blue"},
            {"id": calls[1]["id"], "content": "no such row", "isError": true},
        ]);
        let next = json!({"toolResults": results, "tools": tools, "thinking": "medium"});
        let (_, body) = previewed_chat(&api, 0, &project, next).await;
        assert!(body.to_string().contains("ignature") || body.to_string().contains("encrypted"));
        let call = api.nodes(&project, "main").await[3]["contentBlocks"].clone();
        let call = call.as_array().unwrap().iter().find(|block| block["type"] == "tool_call");
        let results = json!([{"id": call.expect("a call")["id"], "content": "row green"}]);
        let next = json!({"toolResults": results, "tools": tools, "thinking": "medium"});
        previewed_chat(&api, 0, &project, next).await;
        let last = api.nodes(&project, "main").await.pop().expect("a node");
        assert_eq!(last["content"], "Blue, then green.", "{}", backend.0);
        assert_eq!(api.refusals().await, [""; 0], "{}", backend.0);
    }
}

/// Covers: S4-61, S4-62, S4-63, C-27, case 38
#[tokio::test]
async fn stored_reply_replaces_the_history_of_its_branch() {
    let settings = "projects = { previous_response = \"branch\" }";
    let api = Api::with(&[STORING], SCENARIO, settings).await;
    let project = api.project(json!({"title": "t", "system": "Be brief."})).await;
    let (_, first) = previewed_chat(&api, 0, &project, thinking_chat("main", "ponder one")).await;
    assert_eq!((&first["store"], first.get("previous_response_id")), (&json!(true), None));
    let id = api.get(&project).await["branches"][0]["previousResponseId"].clone();
    assert!(text(&id).starts_with("resp_"), "{id}");

    // Only what is new goes out. The instructions are not part of what the provider stores.
    let (_, second) = previewed_chat(&api, 0, &project, thinking_chat("main", "ponder two")).await;
    assert_eq!(second["previous_response_id"], id);
    assert_eq!(second["instructions"], "Be brief.");
    let items = second["input"].as_array().expect("items");
    assert_eq!(items.len(), 1, "{second:#}");
    assert!(items[0].to_string().contains("ponder two"));

    // An edit makes a branch, which has no stored reply.
    let question = api.nodes(&project, "main").await[2]["id"].clone();
    let edit = json!({"nodeId": question, "message": "ponder again", "branch": "edited"});
    api.post(&format!("{project}/edit"), edit).await.expect_ok();
    let edited = api.simulators[0].last_received().await.json();
    assert_eq!(edited.get("previous_response_id"), None, "{edited:#}");
    assert!(edited["input"].to_string().contains("ponder one"));

    // A request can say that nothing is stored. The next one then has the whole history.
    let mut unstored = thinking_chat("main", "ponder three");
    unstored["store"] = json!(false);
    let (_, third) = previewed_chat(&api, 0, &project, unstored).await;
    assert_eq!((&third["store"], third.get("previous_response_id")), (&json!(false), None));
    let branches = api.get(&project).await["branches"].clone();
    assert_eq!(branches[0]["previousResponseId"], Value::Null);
    let (_, fourth) = previewed_chat(&api, 0, &project, thinking_chat("main", "ponder four")).await;
    assert_eq!(fourth.get("previous_response_id"), None);
    assert!(fourth["input"].to_string().contains("ponder one"));
    assert_eq!(api.refusals().await, [""; 0]);
}

/// Covers: S4-63
#[tokio::test]
async fn lost_stored_reply_is_replaced_by_the_whole_history() {
    let settings = "projects = { previous_response = \"fork\" }";
    let api = Api::with(&[STORING], SCENARIO, settings).await;
    let project = api.project(json!({"title": "t"})).await;
    previewed_chat(&api, 0, &project, thinking_chat("main", "ponder one")).await;
    api.branch(&project, json!({"name": "second"})).await;
    let (_, forked) =
        previewed_chat(&api, 0, &project, thinking_chat("second", "ponder two")).await;
    let id = forked["previous_response_id"].clone();
    assert!(text(&id).starts_with("resp_"), "{forked:#}");

    let lost = api.get(&project).await["branches"][1]["previousResponseId"].clone();
    let path = format!("/v1/responses/{}", text(&lost));
    let gone = api.simulators[0].client.send(Method::DELETE, &path, &[], "").await;
    assert_eq!(gone.status, 200, "{}", gone.text());
    let lines = api.chat(&project, thinking_chat("second", "ponder three")).await;
    assert_eq!(done(&lines)["reason"], "completed", "{lines:#?}");
    let resent = api.simulators[0].last_received().await.json();
    assert_eq!(resent.get("previous_response_id"), None, "{resent:#}");
    for said in ["ponder one", "ponder two", "ponder three"] {
        assert!(resent["input"].to_string().contains(said), "{resent:#}");
    }
    assert_eq!(api.refusals().await.len(), 1);
}

/// A server of the Responses dialect that stores nothing ignores the id of an earlier reply, and would
/// answer from the newest message alone.
///
/// Covers: S4-63, S4-64
#[tokio::test]
async fn server_that_stores_nothing_gets_the_whole_history() {
    let simulator = Simulator::with(Options {
        variant: Some(Variant::named("vllm").expect("a variant of the simulator")),
        scenario: Some(Scenario::from_toml(SCENARIO).expect("a scenario")),
        ..Options::default()
    })
    .await;
    let config = format!(
        "projects = {{ previous_response = \"fork\" }}\n[[backend]]\nname = \"vllm\"\n\
         dialect = \"openai_responses\"\nbase_url = \"{}\"\ndefault_model = \"qwen3-32b\"\n",
        simulator.url
    );
    let mut api = Api::of(Gateway::start(BINARY, &config).await);
    api.simulators.push(simulator);
    let project = api.project(json!({"title": "t"})).await;
    let mut asked = thinking_chat("main", "ponder one");
    previewed_chat(&api, 0, &project, asked.clone()).await;
    // Not even if the caller asks for it.
    asked["store"] = json!(true);
    for chat in [thinking_chat("main", "ponder two"), asked] {
        let (_, body) = previewed_chat(&api, 0, &project, chat).await;
        assert_eq!((&body["store"], body.get("previous_response_id")), (&json!(false), None));
        assert!(body["input"].to_string().contains("ponder one"), "{body:#}");
        assert!(body["input"].to_string().contains("\"reasoning_text\""), "{body:#}");
        let branch = api.get(&project).await["branches"][0].clone();
        assert_eq!(branch["previousResponseId"], Value::Null);
    }
    assert_eq!(api.refusals().await, [""; 0]);
}

#[tokio::test]
async fn turns_without_room_are_left_out_and_reported() {
    let models =
        std::env::temp_dir().join(format!("throughline-window-{}.toml", std::process::id()));
    let row = "[[model]]\npattern = \"claude-sonnet-4-5\"\nmax_output = 4000\ncontext = 12000\n";
    std::fs::write(&models, row).expect("a file");
    let settings = format!("models_file = \"{}\"\n", models.display());
    let api = Api::with(&[ANTHROPIC], SCENARIO, &settings).await;
    let project = api.project(json!({"title": "t", "system": "Be brief."})).await;
    let mut dropped = 0;
    for turn in 0..6 {
        // Two thousand tokens, as the simulator counts.
        let message = format!("ponder number {turn} {}", "a b c d ".repeat(1_000));
        let (preview, body) =
            previewed_chat(&api, 0, &project, thinking_chat("main", &message)).await;
        assert!(preview["tokens"].as_u64() <= Some(8_000), "{turn}: {}", preview["tokens"]);
        let (outside, counted) = omitted(&preview["report"]);
        let forms = forms(&preview);
        let without_room = forms.iter().filter(|(_, reason)| reason == "budget").count();
        // Whole turns: a question and its answer, which has one thinking block.
        assert_eq!((without_room % 2, outside.len()), (0, without_room / 2), "{turn}");
        assert_eq!(counted, outside.len() as u64);
        assert!(outside.iter().all(|block| block["reason"] == "policy"), "{outside:?}");
        let has_first = body.to_string().contains("number 0 ");
        assert_eq!(has_first, without_room == 0, "{turn}");
        assert!(without_room >= dropped, "{turn}");
        dropped = without_room;
    }
    assert!(dropped > 0, "everything had room");
    assert_eq!(api.refusals().await, [""; 0]);
    std::fs::remove_file(models).expect("the file");
}
