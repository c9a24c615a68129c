//! Message threads: the client sends new messages only, and the gateway sends every backend the
//! whole conversation.

use serde_json::{Value, json};
use throughline_simulator::{Options, Scenario};
use throughline_testkit::{Answer, Client, Gateway, Simulator, message_from_sse, wait_until};

use crate::support::{BINARY, BedOptions, Mismatches, TestBed, thinking_in};
use crate::test_client::{list, text};

const PATH: &str = "/v1/messages";
const BETA: (&str, &str) = ("anthropic-beta", "message-threads-2026-08-12");
const ADA: &[(&str, &str)] = &[("anthropic-version", "2023-06-01"), ("x-api-key", "ada"), BETA];
const EVE: &[(&str, &str)] = &[("anthropic-version", "2023-06-01"), ("x-api-key", "eve"), BETA];

/// A fact that only the first message has.
const FACT: &str = "the heron waits at gate 47";

fn request(thread: Value, messages: Value) -> Value {
    let mut body = json!({
        "model": "some-model",
        "max_tokens": 8192,
        "thinking": {"type": "enabled", "budget_tokens": 4096},
    });
    body["thread"] = thread;
    body["messages"] = messages;
    body
}

fn created(said: &str) -> Value {
    let mut body = request(json!({"type": "create"}), user(said));
    body["system"] = json!("You are terse.");
    body["tools"] =
        json!([{"name": "lookup", "input_schema": {"type": "object", "properties": {}}}]);
    body
}

fn continued(previous: &Value, said: &str) -> Value {
    let thread = json!({"type": "continue", "previous_message_id": previous});
    request(thread, user(said))
}

fn user(said: &str) -> Value {
    json!([{"role": "user", "content": said}])
}

async fn send(client: &Client, body: &Value) -> Value {
    client.post(PATH, ADA, body).await.expect_ok().json()
}

fn with(mut body: Value, member: &str, value: Value) -> Value {
    body[member] = value;
    body
}

/// The status and the error code of a refusal.
fn refusal(answer: &Answer) -> (u16, String) {
    let code = answer.json()["error"]["details"]["error_code"].as_str().map(str::to_owned);
    (answer.status, code.unwrap_or_default())
}

fn refused(status: u16, code: &str) -> (u16, String) {
    (status, code.to_owned())
}

#[tokio::test]
async fn thread_continues_over_any_backend_with_its_whole_history() {
    let mut mismatches = Mismatches::default();
    // Some servers get the thinking of the present turn only.
    for (row, earlier) in [
        ("anthropic, budget", 1),
        ("anthropic, bound", 1),
        ("gemini 3", 1),
        ("openai_responses", 1),
        ("deepseek-v4", 1),
        ("ollama", 0),
    ] {
        let bed = TestBed::over(&[row]).await;
        let client = &bed.gateway.client;
        let first = send(client, &created(&format!("ponder: {FACT}"))).await;
        let second = send(client, &continued(&first["id"], "ponder more")).await;
        let sent = bed.last_received(0).await;
        mismatches.check(sent.body.contains(FACT), format!("{row}: the fact is lost"));
        mismatches.check(sent.body.contains("You are terse."), format!("{row}: no system text"));
        mismatches.check(sent.body.contains("lookup"), format!("{row}: no tools"));
        mismatches.check(sent.json().get("thread").is_none(), format!("{row}: a thread was sent"));
        mismatches.check_equal(row, thinking_in(&sent.json()), earlier);
        let stream = with(continued(&second["id"], "ponder again"), "stream", json!(true));
        let answer = client.post(PATH, ADA, &stream).await.expect_ok().text();
        let third = message_from_sse(&answer);
        send(client, &continued(&third["id"], "plain, please")).await;
        let sent = bed.last_received(0).await;
        mismatches.check(sent.body.contains(FACT), format!("{row}: the fact is lost later"));
        mismatches.check_equal(row, thinking_in(&sent.json()), 3 * earlier);
        bed.expect_no_refusals().await;
    }
    mismatches.assert_none();
}

#[tokio::test]
async fn stored_thinking_is_sent_back_as_the_model_made_it() {
    let simulator = Simulator::start("one").await;
    let gateway = Gateway::over_simulators(BINARY, &[("one", &simulator)], "").await;
    let mut body = created("use the tool lookup twice");
    body["model"] = json!("claude-sonnet-4-5");
    for stream in [false, true] {
        let body = with(body.clone(), "stream", json!(stream));
        let answer = gateway.client.post(PATH, ADA, &body).await.expect_ok().text();
        let first = match stream {
            true => message_from_sse(&answer),
            false => serde_json::from_str(&answer).expect("JSON"),
        };
        let call = list(&first["content"]).find(|block| block["type"] == "tool_use");
        let call = call.expect("a call");
        let result = json!([{"type": "tool_result", "tool_use_id": call["id"], "content": "blue"}]);
        let messages = json!([{"role": "user", "content": result}]);
        let thread = json!({"type": "continue", "previous_message_id": first["id"]});
        let next = with(request(thread, messages), "model", json!("claude-sonnet-4-5"));
        send(&gateway.client, &next).await;
        let sent = simulator.last_received().await.json();
        assert_eq!(sent["messages"][1]["content"], first["content"]);
        assert_eq!(sent["messages"].as_array().map(Vec::len), Some(3));
    }
    for seen in simulator.received().await {
        assert_eq!(seen.refusal, "");
    }
}

#[tokio::test]
async fn thread_survives_a_switch_and_a_restart() {
    let mut bed = TestBed::over(&["anthropic, budget", "gemini 3"]).await;
    let client = bed.gateway.client.clone();
    let first = send(&client, &created(&format!("ponder: {FACT}"))).await;
    bed.gateway.switch("b").await;
    let second = send(&client, &continued(&first["id"], "keep it hidden")).await;
    let sent = bed.last_received(1).await;
    assert!(sent.body.contains(FACT));
    assert_eq!(thinking_in(&sent.json()), 0, "another model's thinking");
    bed.stop().await;
    bed.gateway.restart().await;
    let client = bed.gateway.client.clone();
    let third = send(&client, &continued(&second["id"], "ponder again")).await;
    let sent = bed.last_received(1).await;
    assert!(sent.body.contains(FACT));
    assert_eq!(thinking_in(&sent.json()), 1);
    bed.gateway.switch("a").await;
    send(&client, &continued(&third["id"], "plain, please")).await;
    let sent = bed.last_received(0).await;
    assert!(sent.body.contains(FACT));
    assert_eq!(thinking_in(&sent.json()), 1, "its own thinking");
    bed.expect_no_refusals().await;
}

#[tokio::test]
async fn thread_that_cannot_be_continued_is_refused_by_name() {
    let bed = TestBed::over(&["anthropic, budget"]).await;
    let client = &bed.gateway.client;
    let first = send(client, &created("ponder this")).await;
    let next = || continued(&first["id"], "ponder more");
    let received = bed.simulators[0].received().await.len();
    let tools = created("x")["tools"].clone();
    let mut mismatches = Mismatches::default();
    for (case, headers, body, expected) in [
        ("unknown", ADA, continued(&json!("msg_none"), "x"), refused(404, "thread_not_found")),
        ("foreign", EVE, next(), refused(404, "thread_not_found")),
        (
            "model",
            ADA,
            with(next(), "model", json!("other-model")),
            refused(400, "thread_fingerprint_mismatch"),
        ),
        (
            "other system",
            ADA,
            with(next(), "system", json!("You are long.")),
            refused(400, "thread_fingerprint_mismatch"),
        ),
        (
            "same system",
            ADA,
            with(next(), "system", json!([{"type": "text", "text": "You are terse."}])),
            refused(400, "thread_unsupported_request"),
        ),
        ("tools", ADA, with(next(), "tools", tools), refused(400, "thread_unsupported_request")),
        ("no messages", ADA, with(next(), "messages", json!([])), refused(400, "")),
        ("no type", ADA, with(next(), "thread", json!({})), refused(400, "")),
        ("no id", ADA, with(next(), "thread", json!({"type": "continue"})), refused(400, "")),
        ("no object", ADA, with(next(), "thread", json!("continue")), refused(400, "")),
    ] {
        let answer = client.post(PATH, headers, &body).await;
        mismatches.check_equal(case, refusal(&answer), expected);
    }
    mismatches.assert_none();
    // A backend would read an escaped name as the same member.
    let hidden = next().to_string().replace("\"thread\"", "\"thre\\u0061d\"");
    let answer = client.send(http::Method::POST, PATH, ADA, hidden).await;
    assert_eq!(refusal(&answer), refused(400, "thread_unsupported_request"));
    assert_eq!(bed.simulators[0].received().await.len(), received, "nothing was sent");

    // One client repeats its line about billing, and nothing else.
    let billing = json!([{"type": "text", "text": "x-anthropic-billing-header: cc_version=2"}]);
    let second = send(client, &with(next(), "system", billing)).await;
    let sent = bed.last_received(0).await.json();
    assert_eq!(sent["system"], "You are terse.");
    let again = client.post(PATH, ADA, &next()).await;
    assert_eq!(refusal(&again), refused(400, "thread_already_continued"));
    send(client, &continued(&second["id"], "and on")).await;
    bed.expect_no_refusals().await;
}

#[tokio::test]
async fn message_is_continued_by_one_request_at_a_time_and_again_after_a_failure() {
    let simulator = Simulator::start("one").await;
    let gateway = Gateway::over_simulators(BINARY, &[("one", &simulator)], "").await;
    let client = &gateway.client;
    let model = |body: Value| with(body, "model", json!("claude-sonnet-4-5"));
    let first = send(client, &model(created("hello"))).await;
    let next = model(continued(&first["id"], "go on"));
    let slow = [ADA, &[("x-simulator-fault", "head-delay:ms=1500")]].concat();
    let (slow, fast) = tokio::join!(client.post(PATH, &slow, &next), async {
        wait_until("the request arrives", async || simulator.received().await.len() == 2).await;
        client.post(PATH, ADA, &next).await
    });
    assert_eq!(refusal(&fast), refused(409, "thread_continue_in_flight"));
    let second = slow.expect_ok().json();
    let next = model(continued(&second["id"], "and on"));
    for fault in ["status:529", "error:event=6"] {
        let broken = [ADA, &[("x-simulator-fault", fault)]].concat();
        let stream = with(next.clone(), "stream", json!(true));
        client.post(PATH, &broken, &stream).await;
    }
    send(client, &next).await;
}

#[tokio::test]
async fn expired_thread_is_not_found() {
    let settings = "threads.retention = \"1s\"";
    let options = BedOptions { upstreams: &["gemini 3"], settings, ..BedOptions::default() };
    let bed = TestBed::build(&options).await;
    let client = &bed.gateway.client;
    let first = send(client, &created("ponder this")).await;
    let count = with(continued(&first["id"], "x"), "max_tokens", Value::Null);
    let path = "/v1/messages/count_tokens";
    // A count does not extend the life of a thread.
    wait_until("the thread expires", async || client.post(path, ADA, &count).await.status == 404)
        .await;
    let answer = client.post(PATH, ADA, &continued(&first["id"], "x")).await;
    assert_eq!(refusal(&answer), refused(404, "thread_not_found"));
}

#[tokio::test]
async fn thread_is_not_found_if_nothing_is_stored() {
    let settings = "responses.limit = \"0B\"";
    let options =
        BedOptions { upstreams: &["anthropic, budget"], settings, ..BedOptions::default() };
    let bed = TestBed::build(&options).await;
    let client = &bed.gateway.client;
    let first = send(client, &created("ponder this")).await;
    let answer = client.post(PATH, ADA, &continued(&first["id"], "x")).await;
    assert_eq!(refusal(&answer), refused(404, "thread_not_found"));
    bed.expect_no_refusals().await;
}

#[tokio::test]
async fn counts_and_plans_see_the_whole_thread() {
    let bed = TestBed::over(&["anthropic, budget"]).await;
    let client = &bed.gateway.client;
    let first = send(client, &created(&format!("ponder: {FACT}"))).await;
    let mut count = continued(&first["id"], "x");
    count.as_object_mut().expect("an object").remove("max_tokens");
    client.post("/v1/messages/count_tokens", ADA, &count).await.expect_ok();
    assert!(bed.last_received(0).await.body.contains(FACT));
    let plan = client.post("/v1/plan", ADA, &continued(&first["id"], "x")).await;
    let plan = plan.expect_ok().json();
    assert_eq!(plan["blocks"][0]["path"], "messages.1.content.0");
    send(client, &continued(&first["id"], "still the newest message")).await;
    bed.expect_no_refusals().await;
}

/// Starts a simulator that answers the first requests with these messages.
async fn replaying(messages: &[Value]) -> Simulator {
    let folder = tempfile::tempdir().expect("a folder");
    let mut scenario = String::new();
    for (number, message) in messages.iter().enumerate() {
        let name = format!("{number}.json");
        std::fs::write(folder.path().join(&name), message.to_string()).expect("a file");
        scenario.push_str(&format!("[[step]]\nreplay = \"{name}\"\n"));
    }
    let file = folder.path().join("scenario.toml");
    std::fs::write(&file, scenario).expect("a file");
    let scenario = Some(Scenario::load(&file).expect("a scenario"));
    Simulator::with(Options { scenario, ..Options::default() }).await
}

fn message(id: &str, said: &str, stop_reason: &str) -> Value {
    json!({
        "id": id, "type": "message", "role": "assistant", "model": "claude-sonnet-4-5",
        "content": [{"type": "text", "text": said}], "stop_reason": stop_reason,
        "stop_sequence": null, "usage": {"input_tokens": 5, "output_tokens": 3},
    })
}

fn short_request(thread: Value, messages: Value) -> Value {
    let mut body = json!({"model": "claude-sonnet-4-5", "max_tokens": 100});
    body["thread"] = thread;
    body["messages"] = messages;
    body
}

#[tokio::test]
async fn paused_thread_continues_without_a_message() {
    let simulator = replaying(&[message("msg_1", "I search.", "pause_turn")]).await;
    let gateway = Gateway::over_simulators(BINARY, &[("one", &simulator)], "").await;
    let body = short_request(json!({"type": "create"}), user("search"));
    let first = send(&gateway.client, &body).await;
    let thread = json!({"type": "continue", "previous_message_id": first["id"]});
    send(&gateway.client, &short_request(thread, json!([]))).await;
    let sent = simulator.last_received().await.json();
    assert_eq!(sent["messages"][1], json!({"role": "assistant", "content": first["content"]}));
    assert_eq!(list(&sent["messages"]).count(), 2);
}

#[tokio::test]
async fn message_id_used_twice_is_not_found() {
    let messages = ["one", "two"].map(|said| message("msg_1", said, "end_turn"));
    let simulator = replaying(&messages).await;
    let gateway = Gateway::over_simulators(BINARY, &[("one", &simulator)], "").await;
    for said in ["a", "b"] {
        let made = short_request(json!({"type": "create"}), user(said));
        assert_eq!(text(&send(&gateway.client, &made).await["id"]), "msg_1");
    }
    let thread = json!({"type": "continue", "previous_message_id": "msg_1"});
    let answer = gateway.client.post(PATH, ADA, &short_request(thread, user("c"))).await;
    assert_eq!(refusal(&answer), refused(404, "thread_not_found"));
}
