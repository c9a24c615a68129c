//! Clients that drop the ids of calls, signatures or all reasoning: the turn is found by the envelope
//! of its call, by its thoughts, or by what it called.

use serde_json::{Value, json};
use throughline_testkit::block_fates;

use crate::chat::Chat;
use crate::gemini::{Dropped, Gemini};
use crate::support::{
    BedOptions, Mismatches, TestBed, lost_parts, new_client, thinking_in, upstream,
};
use crate::test_client::{ClientRequest, TestClient, list, send, text};

/// Upstreams of all dialects that take their own thinking back.
const UPSTREAMS: [&str; 6] =
    ["anthropic, budget", "anthropic, bound", "openai_responses", "deepseek-v4", "vllm", "ollama"];

fn gemini(dropped: Dropped) -> Gemini {
    let mut test_client = Gemini::dropping(dropped);
    test_client.set_thinking(true);
    test_client.offer_tool();
    test_client
}

/// opencode with the `google` provider sends thoughts without signatures and calls without ids.
#[tokio::test]
async fn thinking_is_restored_for_gemini_clients_that_drop_ids_and_signatures() {
    let mut mismatches = Mismatches::default();
    for row in UPSTREAMS {
        for dropped in [Dropped::IdsAndSignatures, Dropped::All] {
            let bed = TestBed::over(&[row]).await;
            let mut test_client = gemini(dropped);
            test_client.push_user("use two tools");
            let (view, _) = bed.send(&mut test_client).await;
            test_client.push_results(&view.calls, "row blue");
            let (view, _) = bed.send(&mut test_client).await;
            test_client.push_results(&view.calls, "row green");
            let (view, answer) = bed.send(&mut test_client).await;
            let all = dropped == Dropped::All;
            let case = format!("{row}, all dropped: {all}");
            mismatches.check_equal(&case, view.text.trim(), "Blue, then green.");
            mismatches.check_equal(&case, lost_parts(&answer), [""; 0]);
            let sent = bed.last_received(0).await.json();
            mismatches.check_equal(&case, thinking_in(&sent).max(thoughts_in(&sent)), 2);
            mismatches.check_equal(&case, bed.into_refusals().await, [""; 0]);
        }
    }
    mismatches.assert_none();
}

/// Counts the thinking in a recorded request of Ollama's dialect.
fn thoughts_in(body: &Value) -> usize {
    list(&body["messages"]).filter(|message| !text(&message["thinking"]).is_empty()).count()
}

/// The envelope of a call is enough: what was asked before it has changed, and so has the session.
#[tokio::test]
async fn envelope_of_a_call_finds_its_turn_in_another_conversation() {
    let bed = TestBed::over(&["anthropic, budget"]).await;
    let mut test_client = gemini(Dropped::IdsAndSignatures);
    test_client.push_user("use two tools");
    let (view, _) = bed.send(&mut test_client).await;
    test_client.push_results(&view.calls, "row green");
    let mut request = test_client.next_request("some-model", false);
    request.body["contents"][0]["parts"][0]["text"] = "use two other tools".into();
    request.body["systemInstruction"] = json!({"parts": [{"text": "Be brief."}]});
    let answer = send(&request, &bed.gateway.client).await.expect_ok();
    assert_eq!(lost_parts(&answer), [""; 0]);
    assert_eq!(thinking_in(&bed.last_received(0).await.json()), 1);
    bed.expect_no_refusals().await;
}

/// Without envelope and id, the text of the thought tells two equal calls apart.
#[tokio::test]
async fn thought_finds_its_turn_when_the_question_has_changed() {
    const SCENARIO: &str = r#"
[[step]]
when = { contains = "first" }
say = [{ thinking = "Thought of the first." }, { tool = { name = "lookup", input = {} } }]
[[step]]
when = { contains = "second" }
say = [{ thinking = "Thought of the second." }, { tool = { name = "lookup", input = {} } }]
[[step]]
when = { contains = "row green" }
say = [{ text = "Green." }]
[[step]]
when = { contains = "go on" }
say = [{ text = "So it is." }]
"#;
    let bed = TestBed::build(&BedOptions {
        upstreams: &["openai_responses"],
        scenario: SCENARIO,
        ..BedOptions::default()
    })
    .await;
    let mut test_client = gemini(Dropped::IdsAndSignatures);
    for words in ["first", "second"] {
        test_client.push_user(words);
        let (view, _) = bed.send(&mut test_client).await;
        test_client.push_results(&view.calls, "row green");
        bed.send(&mut test_client).await;
    }
    test_client.push_user("go on");
    let mut request = test_client.next_request("some-model", false);
    let contents = request.body["contents"].as_array_mut().expect("contents");
    for content in contents {
        for part in content["parts"].as_array_mut().expect("parts") {
            part.as_object_mut().expect("a part").shift_remove("thoughtSignature");
            if part["text"] == "second" {
                part["text"] = "the second".into();
            }
        }
    }
    send(&request, &bed.gateway.client).await.expect_ok();
    let sent = bed.last_received(0).await.body;
    let found = ["of the first", "of the second"].map(|words| sent.matches(words).count());
    assert_eq!(found, [1, 1], "{sent}");
    bed.expect_no_refusals().await;
}

/// Thoughts without signatures do not say who made them. Gemini must not get those of others.
#[tokio::test]
async fn thoughts_of_other_makers_do_not_reach_gemini() {
    for (row, dropped) in
        [("anthropic, budget", Dropped::IdsAndSignatures), ("vllm", Dropped::IdsAndSignatures)]
    {
        let bed = TestBed::over(&[row, "gemini 3"]).await;
        let mut test_client = gemini(dropped);
        test_client.push_user("use one tool");
        let (view, _) = bed.send(&mut test_client).await;
        bed.gateway.switch("b").await;
        test_client.push_results(&view.calls, "row blue");
        let sent_to = |request: &mut Value| {
            request["generationConfig"] = json!({"thinkingConfig": {"includeThoughts": true}});
        };
        // The name of the backend's own model, so that the body passes.
        let mut request = test_client.next_request("gemini-3-pro-preview", false);
        sent_to(&mut request.body);
        let answer = send(&request, &bed.gateway.client).await.expect_ok();
        assert_eq!(answer.header("x-throughline-loss"), "thinking_omitted=1;reason=origin");
        test_client.read(&answer.text(), false);
        let sent = bed.last_received(1).await.body;
        assert!(!sent.contains("I need a row."), "{row}: {sent}");
        let turn = bed.gateway.turns().await.swap_remove(0);
        assert_eq!(turn["lane"], "through", "{turn}");
        // Its own thoughts go on.
        let mut request = test_client.next_request("gemini-3-pro-preview", false);
        sent_to(&mut request.body);
        let parts =
            json!([{"functionResponse": {"name": "lookup", "response": {"output": "row green"}}}]);
        let contents = request.body["contents"].as_array_mut().expect("contents");
        contents.push(json!({"role": "user", "parts": parts}));
        send(&request, &bed.gateway.client).await.expect_ok();
        let sent = bed.last_received(1).await.body;
        assert!(sent.contains("Another row.") && !sent.contains("I need a row."), "{sent}");
        bed.expect_no_refusals().await;
    }
}

/// A stream without arguments gives no text, and clients write an empty object.
#[tokio::test]
async fn thinking_before_a_call_without_arguments_is_restored() {
    let mut mismatches = Mismatches::default();
    for row in ["anthropic, budget", "gemini 3", "openai_responses", "litellm", "deepseek-v4"] {
        for dialect in ["openai_chat", "gemini"] {
            let bed = TestBed::over(&[row]).await;
            let mut test_client: Box<dyn TestClient> = match dialect {
                "gemini" => Box::new(gemini(Dropped::All)),
                _ => new_client(dialect),
            };
            test_client.push_user("no arguments, please");
            let (view, _) = bed.send(test_client.as_mut()).await;
            let case = format!("{dialect} over {row}");
            mismatches.check_equal(&case, view.calls[0].arguments.clone(), json!({}));
            test_client.push_results(&view.calls, "row green");
            let (_, answer) = bed.send(test_client.as_mut()).await;
            mismatches.check_equal(&case, lost_parts(&answer), [""; 0]);
            mismatches.check_equal(&case, bed.into_refusals().await, [""; 0]);
        }
    }
    mismatches.assert_none();
}

const SAME_ANSWER: &str = r#"
[[step]]
when = { contains = "again" }
say = [{ thinking = "I do it." }, { text = "Done." }]
[[step]]
when = { contains = "count" }
say = [{ thinking = "I count." }, { text = "Three." }]
"#;

/// Two backends give the same answer to the same question in one conversation. Each gets its own
/// thinking back, and never that of the other.
#[tokio::test]
async fn equal_answers_of_two_backends_are_distinguished_by_position() {
    let bed = TestBed::build(&BedOptions {
        upstreams: &["anthropic, budget", "anthropic, adaptive"],
        scenario: SAME_ANSWER,
        ..BedOptions::default()
    })
    .await;
    let mut test_client = Chat::new(false);
    test_client.set_thinking(true);
    for backend in ["a", "b", "a"] {
        bed.gateway.switch(backend).await;
        test_client.push_user("again");
        bed.send(&mut test_client).await;
    }
    // The simulators refuse each other's signatures.
    for (backend, fates) in [
        ("a", ["restored", "left_out origin", "restored"]),
        ("b", ["left_out origin", "restored", "left_out origin"]),
    ] {
        bed.gateway.switch(backend).await;
        let mut asked = test_client.next_request("some-model", false);
        let messages = asked.body["messages"].as_array_mut().expect("messages");
        messages.push(json!({"role": "user", "content": "count"}));
        send(&asked, &bed.gateway.client).await.expect_ok();
        let turn = bed.gateway.turns().await.swap_remove(0);
        assert_eq!(block_fates(&turn), fates, "{backend}");
    }
    bed.expect_no_refusals().await;
}

/// The history has changed, so nothing tells the two turns apart. Neither gets thinking, and that is
/// reported.
#[tokio::test]
async fn answer_that_two_backends_gave_gets_no_thinking_if_its_place_is_unknown() {
    let bed = TestBed::build(&BedOptions {
        upstreams: &["anthropic, budget", "anthropic, adaptive"],
        scenario: SAME_ANSWER,
        ..BedOptions::default()
    })
    .await;
    let mut test_client = Chat::new(false);
    test_client.set_thinking(true);
    for backend in ["a", "b"] {
        bed.gateway.switch(backend).await;
        test_client.push_user("again");
        bed.send(&mut test_client).await;
    }
    for backend in ["a", "b"] {
        bed.gateway.switch(backend).await;
        let mut request = test_client.next_request("some-model", false);
        let messages = request.body["messages"].as_array_mut().expect("messages");
        // The client has cut an exchange, so that what was said before is new.
        messages.insert(1, json!({"role": "assistant", "content": "Well."}));
        messages.insert(2, json!({"role": "user", "content": "again"}));
        messages.push(json!({"role": "user", "content": "count"}));
        let answer = send(&request, &bed.gateway.client).await.expect_ok();
        let losses = answer.header("x-throughline-loss");
        assert!(losses.contains("thinking_omitted=2;reason=unknown"), "{backend}: {losses}");
        let sent = bed.last_received(usize::from(backend == "b")).await.json();
        assert_eq!(thinking_in(&sent), 0, "{sent}");
    }
    bed.expect_no_refusals().await;
}

/// Two conversations with the same beginning and the same answer, of two backends. Without ids, only
/// the target tells them apart: it gets the thinking that it can read, and never the other.
#[tokio::test]
async fn answer_that_two_backends_gave_gets_the_thinking_of_the_target() {
    let mut mismatches = Mismatches::default();
    for (client, upstreams) in [
        ("openai_chat", ["deepseek-v4", "deepseek-v4", "deepseek-v4"]),
        ("openai_chat", ["anthropic, budget", "anthropic, adaptive", "anthropic, budget"]),
        ("openai_responses", ["openai_responses", "openai_responses", "openai_responses"]),
        ("anthropic", ["openai_responses", "deepseek-v4", "deepseek-v4"]),
    ] {
        let bed = TestBed::build(&BedOptions {
            upstreams: &upstreams,
            scenario: SAME_ANSWER,
            ..BedOptions::default()
        })
        .await;
        for (at, backend) in ["a", "b"].into_iter().enumerate() {
            bed.gateway.switch(backend).await;
            let request = again(client, upstreams[at], &[]);
            send(&request, &bed.gateway.client).await.expect_ok();
        }
        for (at, (backend, expected)) in [
            ("a", ("", 1)),
            ("b", ("", 1)),
            // It can read neither.
            ("c", ("thinking_omitted=1;reason=unknown", 0)),
        ]
        .into_iter()
        .enumerate()
        {
            bed.gateway.switch(backend).await;
            let request = again(client, upstreams[at], &["Done.", "count"]);
            let answer = send(&request, &bed.gateway.client).await.expect_ok();
            let case = format!("{client}, {upstreams:?}, {backend}");
            mismatches.check_equal(&case, lost_parts(&answer).join(", "), expected.0);
            let sent = bed.last_received(at).await.json();
            mismatches.check_equal(&case, thinking_in(&sent), expected.1);
            let turn = bed.gateway.turns().await.swap_remove(0);
            let omitted =
                block_fates(&turn).iter().filter(|fate| fate.starts_with("left_out")).count();
            mismatches.check_equal(&case, omitted, 1 - expected.1);
        }
        mismatches.check_equal(&format!("{upstreams:?}"), bed.into_refusals().await, [""; 0]);
    }
    mismatches.assert_none();
}

/// A conversation of a client that keeps no thinking: "again", then these texts. It names the backend's
/// own model, so that the body passes if the dialects are the same.
fn again(client: &str, row: &str, said: &[&str]) -> ClientRequest {
    let mut test_client = new_client(client);
    test_client.push_user("again");
    let mut request = test_client.next_request(upstream(row).model, false);
    let list = if client == "openai_responses" { "input" } else { "messages" };
    let messages = request.body[list].as_array_mut().expect("messages");
    for (at, text) in said.iter().enumerate() {
        let role = if at % 2 == 0 { "assistant" } else { "user" };
        messages.push(json!({"role": role, "content": text}));
    }
    request
}

/// A resumed session has another id and another system text. The ids of its calls show which
/// conversation it continues, so that its plain answers are found, too.
#[tokio::test]
async fn thinking_of_plain_answers_is_restored_in_a_resumed_session() {
    for row in ["anthropic, budget", "openai_responses"] {
        let bed = TestBed::over(&[row]).await;
        let mut test_client = new_client("openai_chat");
        test_client.push_user("ponder this");
        bed.send(test_client.as_mut()).await;
        test_client.push_user("use one tool");
        let (view, _) = bed.send(test_client.as_mut()).await;
        test_client.push_results(&view.calls, "row green");
        bed.send(test_client.as_mut()).await;
        test_client.push_user("plain, please");
        let mut request = test_client.next_request("some-model", false);
        let messages = request.body["messages"].as_array_mut().expect("messages");
        messages.insert(0, json!({"role": "system", "content": "Another day."}));
        send(&request, &bed.gateway.client).await.expect_ok();
        assert_eq!(thinking_in(&bed.last_received(0).await.json()), 3, "{row}");
        bed.expect_no_refusals().await;
    }
}

/// The client keeps an empty item, and the vault has the thinking.
#[tokio::test]
async fn emptied_reasoning_item_that_is_restored_is_no_loss() {
    let bed = TestBed::over(&["anthropic, budget"]).await;
    let mut test_client = new_client("openai_responses");
    test_client.push_user("use one tool");
    let (view, _) = bed.send(test_client.as_mut()).await;
    test_client.push_results(&view.calls, "row green");
    let mut request = test_client.next_request("some-model", false);
    let mut emptied = 0;
    for item in request.body["input"].as_array_mut().expect("items") {
        if item["type"] == "reasoning" {
            *item = json!({"type": "reasoning", "summary": []});
            emptied += 1;
        }
    }
    assert_eq!(emptied, 1);
    let answer = send(&request, &bed.gateway.client).await.expect_ok();
    assert_eq!(lost_parts(&answer), [""; 0]);
    assert_eq!(thinking_in(&bed.last_received(0).await.json()), 1);
    bed.expect_no_refusals().await;
}
