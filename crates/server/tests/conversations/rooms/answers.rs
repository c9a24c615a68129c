//! What members answer, and when.

use serde_json::{Value, json};

use super::{Events, api, api_with, bind, room, say};
use crate::support::{Api, GEMINI, text};
use crate::tools::server;

/// The texts of the user messages that the model has got last.
async fn last_request(api: &Api) -> Value {
    let received = api.simulators[0].received().await;
    let body = &received.last().expect("a request").body;
    serde_json::from_str(body).expect("JSON")
}

/// Covers: C-16
#[tokio::test]
async fn addressed_member_thinks_and_answers() {
    let api = api().await;
    let room = room(&api, &[("tutor", json!({}))]).await;
    let mut events = Events::open(&api, &room, "").await;
    let (node, runs) = say(&api, &room, "Hello @tutor, what is it?").await;
    assert_eq!(runs.len(), 1);
    let answer = events.answer_of("tutor").await;
    assert_eq!(answer["content"], "The answer is 42.");
    assert_eq!(answer["parent"], json!(node));
    let expected = [
        "MESSAGE",
        "TYPING",
        "THINKING_START",
        "THINKING_DELTA",
        "THINKING_END",
        "TYPING",
        "MESSAGE",
    ];
    assert_eq!(events.types(), expected, "{:#?}", events.seen);
    let of = |kind: &str| -> Vec<Value> {
        events.seen.iter().filter(|event| event["type"] == kind).cloned().collect()
    };
    let deltas = of("THINKING_DELTA");
    let joined: String = deltas.iter().map(|event| text(&event["data"]["text"])).collect();
    let end = &of("THINKING_END")[0];
    assert_eq!(joined, "First thought. Second thought.");
    assert_eq!(end["data"]["text"], json!(joined));
    assert_eq!((&end["run"], &end["channel"]), (&json!(runs[0]), &json!("tutor")));
    assert!(end.get("seq").is_none(), "thinking is not stored: {end}");
    let numbers: Vec<Option<u64>> =
        of("MESSAGE").iter().map(|event| event["seq"].as_u64()).collect();
    assert_eq!(numbers, [Some(1), Some(2)]);
    let history = api.get(&format!("{room}/messages")).await;
    let shown: Vec<(&str, &str)> = history["nodes"]
        .as_array()
        .expect("nodes")
        .iter()
        .map(|node| (text(&node["role"]), text(&node["content"])))
        .collect();
    assert_eq!(shown, [("user", "Hello @tutor, what is it?"), ("assistant", "The answer is 42.")]);
    assert_eq!(history["nodes"][1]["channel"], "tutor");
    assert_eq!(history["nodes"][1]["thinking_content"], json!(joined));
    assert_eq!(api.refusals().await, [""; 0]);
}

#[tokio::test]
async fn member_that_is_not_addressed_says_nothing() {
    let api = api().await;
    let room = room(&api, &[("tutor", json!({})), ("critic", json!({"reply": "always"}))]).await;
    let (_, runs) = say(&api, &room, "tutor, not addressed").await;
    assert_eq!(runs.len(), 1, "only the critic answers always");
    let mut events = Events::open(&api, &room, "").await;
    events.answer_of("critic").await;
    bind(&api, &room, "critic", "observer", json!({})).await;
    let (_, runs) = say(&api, &room, "and now @critic?").await;
    assert_eq!(runs, [""; 0], "an observer does not answer");
    assert_eq!(api.simulators[0].received().await.len(), 1);
}

#[tokio::test]
async fn thinking_of_the_last_answer_goes_back_to_its_maker() {
    let api = api().await;
    let room = room(&api, &[("tutor", json!({}))]).await;
    let mut events = Events::open(&api, &room, "").await;
    say(&api, &room, "@tutor one").await;
    events.answer_of("tutor").await;
    say(&api, &room, "@tutor two").await;
    events.answer_of("tutor").await;
    let request = last_request(&api).await;
    let answer = &request["messages"][1];
    assert_eq!(answer["role"], "assistant", "{request:#}");
    assert_eq!(answer["content"][0]["type"], "thinking");
    assert!(!text(&answer["content"][0]["signature"]).is_empty());
    assert_eq!(api.refusals().await, [""; 0]);
}

#[tokio::test]
async fn members_see_who_speaks_and_what_others_said() {
    let api = api().await;
    let room = room(&api, &[("one", json!({})), ("two", json!({}))]).await;
    let mut events = Events::open(&api, &room, "").await;
    say(&api, &room, "@one, please ask two").await;
    let first = events.answer_of("one").await;
    assert_eq!(first["content"], "@two, what do you think?");
    events.answer_of("two").await;
    let request = last_request(&api).await;
    let said = request["messages"].to_string();
    assert_eq!(request["messages"].as_array().map(Vec::len), Some(1), "{said}");
    assert!(said.contains("ada: @one, please ask two"), "{said}");
    assert!(said.contains("one: @two, what do you think?"), "{said}");
    assert!(!said.contains("Two knows."), "thoughts of others are not sent: {said}");
    assert_eq!(api.refusals().await, [""; 0]);
}

#[tokio::test]
async fn models_that_talk_to_each_other_are_stopped() {
    let api = api_with("[rooms]\nmax_chain = 3\n").await;
    let always = json!({"reply": "always"});
    let room = room(&api, &[("one", always), ("two", json!({}))]).await;
    let mut events = Events::open(&api, &room, "").await;
    say(&api, &room, "please talk to each other").await;
    let guard = events.until(|event| event["type"] == "ERROR").await;
    assert_eq!(guard["data"]["kind"], "loop_guard", "{guard}");
    assert!(text(&guard["data"]["message"]).contains("3 answers of models"), "{guard}");
    let history = api.get(&format!("{room}/messages")).await;
    let answers = history["nodes"].as_array().expect("nodes").len() - 1;
    assert!((3..=4).contains(&answers), "{answers} answers: {history:#}");
    // A person starts anew.
    let (_, runs) = say(&api, &room, "@two again, quietly").await;
    assert_eq!(runs.len(), 2);
}

#[tokio::test]
async fn repeated_request_is_stored_once() {
    let api = api().await;
    let room = room(&api, &[("tutor", json!({}))]).await;
    let message = json!({"participant": "ada", "content": "@tutor once", "clientRequestId": "r-1"});
    let path = format!("{room}/messages");
    let first = api.post(&path, message.clone()).await;
    assert_eq!(first.status, 202, "{}", first.text());
    let mut events = Events::open(&api, &room, "").await;
    events.answer_of("tutor").await;
    let again = api.post(&path, message).await;
    assert_eq!((again.status, again.json()), (202, first.json()));
    let history = api.get(&path).await;
    assert_eq!(history["nodes"].as_array().map(Vec::len), Some(2));
}

/// A server that dies after it has stored a message asks no member. The client repeats its request.
#[tokio::test]
async fn repeated_request_without_a_run_asks_the_members() {
    let api = api().await;
    let room = room(&api, &[]).await;
    let message = json!({"participant": "ada", "content": "@tutor once", "clientRequestId": "r-1"});
    let path = format!("{room}/messages");
    let first = api.post(&path, message.clone()).await.json();
    assert_eq!(first["runs"], json!([]));
    assert_eq!(api.post("/api/channels", json!({"id": "tutor"})).await.status, 201);
    bind(&api, &room, "tutor", "intelligence", json!({})).await;
    let again = api.post(&path, message.clone()).await.json();
    assert_eq!(again["nodeId"], first["nodeId"]);
    assert_eq!(again["runs"].as_array().map(Vec::len), Some(1), "{again}");
    let mut events = Events::open(&api, &room, "").await;
    events.answer_of("tutor").await;
    assert_eq!(api.post(&path, message).await.json(), again, "it is answered");
    assert_eq!(api.get(&path).await["nodes"].as_array().map(Vec::len), Some(2));
}

#[tokio::test]
async fn people_talk_while_a_member_answers() {
    let api = api().await;
    let room = room(&api, &[("tutor", json!({}))]).await;
    let mut events = Events::open(&api, &room, "").await;
    let (_, runs) = say(&api, &room, "@tutor first").await;
    assert_eq!(runs.len(), 1);
    for number in 0..20 {
        say(&api, &room, &format!("aside {number}")).await;
    }
    say(&api, &room, "@tutor second").await;
    events.answer_of("tutor").await;
    // If the second message came while it answered, there is a second answer.
    let path = format!("{room}/messages");
    loop {
        let history = api.get(&path).await;
        let nodes = history["nodes"].as_array().expect("nodes").clone();
        let last = nodes.iter().rposition(|node| text(&node["content"]) == "@tutor second");
        let answered =
            nodes[last.expect("it is stored")..].iter().any(|node| node["role"] == "assistant");
        if answered {
            assert!(nodes.len() >= 24, "{nodes:#?}");
            break;
        }
        events.next().await.expect("an answer");
    }
    assert_eq!(api.refusals().await, [""; 0]);
}

#[tokio::test]
async fn member_uses_tools_and_waits_for_an_approval() {
    let api = api_with(&server("calc", &[], "approve = [\"add\"]")).await;
    api.post("/api/channels", json!({"id": "calculator", "tools": ["calc/add"]})).await;
    let room = room(&api, &[]).await;
    bind(&api, &room, "calculator", "intelligence", json!({})).await;
    let mut events = Events::open(&api, &room, "").await;
    say(&api, &room, "@calculator, the sum please").await;
    let waiting = events.until(|event| event["type"] == "APPROVAL_NEEDED").await;
    assert_eq!(waiting["data"]["arguments"], json!({"a": 2, "b": 3}), "{waiting}");
    let call = text(&waiting["data"]["id"]);
    let approved = api.post(&format!("{room}/approvals/{call}"), json!({"approve": true})).await;
    assert_eq!(approved.status, 204, "{}", approved.text());
    let result = events.until(|event| event["type"] == "TOOL_RESULT").await;
    assert_eq!(
        (&result["data"]["content"], &result["data"]["isError"]),
        (&json!("5"), &json!(false))
    );
    let answer = events.answer_of("calculator").await;
    assert_eq!(answer["contentBlocks"].as_array().map(Vec::len), Some(5), "{answer:#}");
    let stored: Vec<u64> = events.seen.iter().filter_map(|event| event["seq"].as_u64()).collect();
    assert_eq!(stored, (1..=stored.len() as u64).collect::<Vec<_>>(), "each once, in order");
    assert_eq!(api.refusals().await, [""; 0]);
}

#[tokio::test]
async fn members_may_have_models_of_several_providers() {
    let api = Api::with(&[super::ANTHROPIC, GEMINI], super::SCENARIO, "").await;
    for (id, provider) in [("one", "claude"), ("two", "gemini")] {
        let made = api.post("/api/channels", json!({"id": id, "provider": provider})).await;
        assert_eq!(made.status, 201, "{}", made.text());
    }
    let room = room(&api, &[]).await;
    for id in ["one", "two"] {
        bind(&api, &room, id, "intelligence", json!({})).await;
    }
    let mut events = Events::open(&api, &room, "").await;
    for round in ["@one", "@two", "@one @two", "@two @one"] {
        let (_, runs) = say(&api, &room, round).await;
        for _ in runs {
            let answer =
                events.until(|event| event["type"] == "MESSAGE" && !event["channel"].is_null());
            assert_eq!(answer.await["data"]["content"], "The answer is 42.");
        }
    }
    assert_eq!(api.refusals().await, [""; 0]);
}
