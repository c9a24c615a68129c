//! A loss has one number: in the header, in `/admin/turns`, in the log and in the metrics, on both
//! lanes.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use throughline_testkit::Answer;

use crate::anthropic::Anthropic;
use crate::chat::Chat;
use crate::gemini::{Dropped, Gemini};
use crate::responses::Responses;
use crate::support::{BedOptions, Mismatches, TestBed, new_client};
use crate::test_client::{TestClient, list, send, text, try_turn};

/// Creates a client.
type NewClient = fn() -> Box<dyn TestClient>;

/// The loss of two blocks at a backend that cannot read them.
const TWO_BLOCKS: &str = "thinking_omitted=2;reason=origin";

const SCENARIO: &str = r#"
[[step]]
when = { contains = "ponder" }
say = [{ thinking = "First this, then that." }, { text = "I have thought." }]
[[step]]
when = { contains = "green" }
say = [{ text = "Just green." }]
"#;

async fn bed(upstreams: &[&str], backend: &str) -> TestBed {
    TestBed::build(&BedOptions {
        upstreams,
        backend,
        scenario: SCENARIO,
        settings: "log = { format = \"json\" }\n",
        ..BedOptions::default()
    })
    .await
}

/// Two turns at the first backend, and the answer of the second one to a third.
async fn answer_after_switch(bed: &TestBed, dialect: &str, stream: bool) -> Answer {
    answer_after_switch_by(bed, &mut *new_client(dialect), stream).await
}

async fn answer_after_switch_by(
    bed: &TestBed,
    test_client: &mut dyn TestClient,
    stream: bool,
) -> Answer {
    for question in ["ponder this", "ponder that"] {
        test_client.push_user(question);
        bed.send(test_client).await;
    }
    bed.gateway.switch("b").await;
    test_client.push_user("what is green");
    let answer = try_turn(test_client, &bed.gateway.client, "some-model", stream).await;
    if answer.status == 200 {
        test_client.read(&answer.text(), stream);
    }
    answer
}

/// The losses of a turn, in the form of the header.
fn reported(turn: &Value) -> String {
    let losses = list(&turn["losses"]).map(|loss| {
        let value = ["count", "part", "setting"].map(|name| &loss[name]);
        let value = value.into_iter().find(|value| !value.is_null()).expect("a value");
        let value = value.as_u64().map_or(text(value).to_owned(), |count| count.to_string());
        match text(&loss["reason"]) {
            "" => format!("{}={value}", text(&loss["kind"])),
            reason => format!("{}={value};reason={reason}", text(&loss["kind"])),
        }
    });
    losses.collect::<Vec<_>>().join(", ")
}

/// The numbers of all turns, by kind.
fn counted(turns: &[Value]) -> BTreeMap<String, f64> {
    let mut sums = BTreeMap::new();
    for loss in turns.iter().flat_map(|turn| list(&turn["losses"])) {
        let count = loss["count"].as_u64().unwrap_or(1) as f64;
        *sums.entry(text(&loss["kind"]).to_owned()).or_default() += count;
    }
    sums
}

/// The losses in the line that the log has about the end of a turn.
fn logged(bed: &TestBed, turn: &Value) -> Vec<String> {
    let log = bed.gateway.log();
    let lines = log.lines().map(|line| serde_json::from_str::<Value>(line).expect("JSON"));
    lines
        .filter(|line| line["message"] == "Turn ended" && line["turn"] == turn["id"])
        .map(|line| text(&line["losses"]).to_owned())
        .collect()
}

/// Checks that an answer lost what is expected, everywhere. `header` has only the losses that are
/// known before the reply begins.
async fn check(
    mismatches: &mut Mismatches,
    bed: &TestBed,
    (case, answer): (&str, &Answer),
    header: &str,
    expected: &str,
) {
    let turns = bed.gateway.turns().await;
    let id = answer.header("x-throughline-turn");
    let turn = turns.iter().find(|turn| turn["id"] == id).expect("the turn");
    mismatches.check_equal(&format!("{case}: turn"), reported(turn).as_str(), expected);
    let found = answer.header("x-throughline-loss");
    mismatches.check_equal(&format!("{case}: header"), found, header);
    mismatches.check_equal(&format!("{case}: log"), logged(bed, turn), [expected]);
    let metrics = bed.gateway.metrics().await;
    let found = metrics.by_label("throughline_losses_total", "kind");
    mismatches.check_equal(&format!("{case}: metrics"), found, counted(&turns));
    let ended = metrics.sum("throughline_turns_total", &[]);
    mismatches.check_equal(&format!("{case}: turns"), ended, turns.len() as f64);
}

#[tokio::test]
async fn lost_thinking_has_one_number_everywhere() {
    let mut mismatches = Mismatches::default();
    let and_setting = "thinking_omitted=2;reason=origin, \
                       setting_adapted=thinking;reason=effort_as_budget";
    for (dialect, rows, expected) in [
        ("anthropic", ["anthropic, budget", "anthropic, budget"], TWO_BLOCKS),
        ("openai_responses", ["openai_responses", "openai_responses"], TWO_BLOCKS),
        ("openai_chat", ["anthropic, budget", "openai_responses"], TWO_BLOCKS),
        ("gemini", ["deepseek-v4", "anthropic, budget"], and_setting),
    ] {
        for stream in [true, false] {
            let bed = bed(&rows, "").await;
            let answer = answer_after_switch(&bed, dialect, stream).await;
            let case = format!("{dialect} over {rows:?}, stream {stream}");
            mismatches.check_equal(&case, answer.status, 200);
            check(&mut mismatches, &bed, (&case, &answer), expected, expected).await;
        }
    }
    mismatches.assert_none();
}

/// Thinking of another maker counts, whether the client returns or drops it, and whatever the server
/// reads. Thinking of its own that a server never reads is no loss.
#[tokio::test]
async fn lost_thinking_counts_the_same_at_servers_that_read_none() {
    let mut mismatches = Mismatches::default();
    let clients: [(&str, NewClient); 6] = [
        ("chat", || Box::new(Chat::new(true))),
        ("chat, dropped", || Box::new(Chat::new(false))),
        ("responses, dropped", || Box::new(Responses::without_reasoning())),
        ("gemini", || Box::new(Gemini::default())),
        ("gemini, dropped", || Box::new(Gemini::dropping(Dropped::All))),
        ("anthropic", || Box::new(Anthropic::default())),
    ];
    for reader in ["deepseek-r1", "xai", "google", "gemini 3", "ollama", "vllm"] {
        let bed = bed(&["glm", reader], "").await;
        for (client, new_client) in clients {
            for stream in [true, false] {
                bed.gateway.switch("a").await;
                let mut test_client = new_client();
                // The thoughts and the answers of all conversations are the same.
                let session = format!("{client}, {stream}");
                test_client.history().session = Some(Box::leak(session.into()));
                test_client.set_thinking(true);
                let answer = answer_after_switch_by(&bed, test_client.as_mut(), stream).await;
                let case = format!("{client} at {reader}, stream {stream}");
                let found: Vec<&str> = answer.header("x-throughline-loss").split(", ").collect();
                let is_thinking = |loss: &&str| loss.starts_with("thinking_omitted");
                let found = found.into_iter().filter(is_thinking).collect::<Vec<_>>();
                mismatches.check_equal(&case, found, [TWO_BLOCKS]);
                // The reader's own thinking is no loss, so the number stays.
                test_client.push_user("ponder more");
                let client = &bed.gateway.client;
                let answer = try_turn(&mut *test_client, client, "some-model", stream).await;
                let turn = bed.gateway.turn_of(&answer).await;
                let found = reported(&turn);
                let found = found.split(", ").find(is_thinking).unwrap_or_default();
                mismatches.check_equal(&format!("{case}: again"), found, TWO_BLOCKS);
            }
        }
    }
    mismatches.assert_none();
}

/// A turn that fails has lost what its request lost.
#[tokio::test]
async fn losses_of_a_failed_turn_have_one_number_everywhere() {
    let mut mismatches = Mismatches::default();
    for (dialect, rows) in [
        ("anthropic", ["anthropic, budget", "anthropic, budget"]),
        ("openai_chat", ["anthropic, budget", "openai_responses"]),
    ] {
        let mut bed = bed(&rows, "").await;
        // No server listens at the address of the second backend.
        drop(bed.simulators.pop());
        let answer = answer_after_switch(&bed, dialect, true).await;
        let case = format!("{dialect}: unreachable");
        mismatches.check_equal(&case, answer.status, 502);
        check(&mut mismatches, &bed, (&case, &answer), TWO_BLOCKS, TWO_BLOCKS).await;
    }
    mismatches.assert_none();
}

#[tokio::test]
async fn changed_settings_and_parts_have_one_number_everywhere() {
    let mut mismatches = Mismatches::default();
    let messages = json!([{"role": "user", "content": "what is green"}]);
    let repeated = json!([
        {"role": "user", "content": "look"},
        {"role": "assistant", "content": [{"type": "tool_use", "id": "t", "name": "look", "input": {}}]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t", "content": "a"}]},
        {"role": "assistant", "content": [{"type": "tool_use", "id": "t", "name": "look", "input": {}}]},
        {"role": "user", "content": [
            {"type": "tool_result", "tool_use_id": "t", "content": "a"},
            {"type": "text", "text": "what is green"},
        ]},
    ]);
    let tools = json!([{"name": "look", "input_schema": {"type": "object"}}]);
    for (row, path, body, status, expected) in [
        (
            "anthropic, budget",
            "/v1/chat/completions",
            json!({"model": "m", "messages": messages, "max_tokens": 99, "seed": 7}),
            200,
            "part_omitted=seed;reason=no_place",
        ),
        // The backend refuses the request.
        (
            "anthropic, budget",
            "/v1/messages",
            json!({"model": "m", "max_tokens": 99, "messages": repeated, "tools": tools}),
            400,
            "tool_id_repeated=1",
        ),
        (
            "deepseek-v4",
            "/v1/messages/count_tokens",
            json!({"model": "m", "messages": messages}),
            200,
            "setting_adapted=count_tokens;reason=estimated",
        ),
        (
            "anthropic, budget",
            "/v1/responses",
            json!({"model": "m", "input": "what is green", "reasoning": {"effort": "medium"}}),
            200,
            "setting_adapted=thinking;reason=effort_as_budget",
        ),
    ] {
        let bed = bed(&[row], "").await;
        let answer = bed.gateway.client.post(path, &[], &body).await;
        mismatches.check_equal(path, answer.status, status);
        check(&mut mismatches, &bed, (path, &answer), expected, expected).await;
    }
    mismatches.assert_none();
}

/// Losses of the reply: a whole reply has them in its header, a stream cannot.
#[tokio::test]
async fn losses_of_the_reply_have_one_number_everywhere() {
    let mut mismatches = Mismatches::default();
    let backend = "family = \"qwen3-thinking\"";
    for dialect in ["openai_chat", "openai_responses", "anthropic"] {
        for stream in [true, false] {
            let bed = bed(&["think-tags"], backend).await;
            let mut test_client = new_client(dialect);
            test_client.push_user("what is green");
            let request = test_client.next_request("some-model", stream);
            let answer = send(&request, &bed.gateway.client).await;
            let case = format!("{dialect}, stream {stream}");
            let known = "setting_adapted=thinking;reason=on_or_off";
            let all = format!("{known}, reasoning_unclosed=1");
            let header = if stream { known } else { &all };
            check(&mut mismatches, &bed, (&case, &answer), header, &all).await;
        }
    }
    mismatches.assert_none();
}
