//! Responses that a backend of the dialect keeps too: they pass as they come, and all that holds for others
//! holds for them.

use http::Method;
use serde_json::{Value, json};
use throughline_testkit::{Client, Gateway, until};

use crate::bare::{Upstream, whole};
use crate::speaker::{list, text};
use crate::support::{BINARY, House, Plan, thinking_in, upstream};

const ADA: [(&str, &str); 1] = [("authorization", "Bearer ada")];
const EVE: [(&str, &str); 1] = [("authorization", "Bearer eve")];
const PATH: &str = "/v1/responses";

/// A request under the model's own name, so that nothing of it has to change.
#[allow(clippy::needless_pass_by_value, reason = "it is made where it is given")]
fn asked(input: Value, more: Value) -> Value {
    let mut body = json!({
        "model": "gpt-6.1-sol",
        "input": input,
        "reasoning": {"effort": "medium", "summary": "auto"},
    });
    for (name, value) in more.as_object().into_iter().flatten() {
        body[name] = value.clone();
    }
    body
}

async fn create(client: &Client, input: &str, more: Value) -> Value {
    let body = asked(input.into(), more);
    client.post(PATH, &ADA, &body).await.good().json()
}

async fn status(client: &Client, method: Method, path: &str, key: &[(&str, &str)]) -> u16 {
    client.send(method, path, key, "").await.status
}

/// The backend is called with the operator's key and would tell everybody everything.
#[tokio::test]
async fn what_a_backend_keeps_too_is_its_callers_alone() {
    let house = House::over(&["openai_responses"]).await;
    let client = &house.gateway.client;
    let kept = create(client, "ponder this", json!({})).await;
    let path = format!("{PATH}/{}", text(&kept["id"]));
    let given = format!("{path}/input_items");
    let before = house.simulators[0].seen().await.len();
    for (method, path) in [(Method::GET, &path), (Method::GET, &given), (Method::DELETE, &path)] {
        assert_eq!(status(client, method, path, &EVE).await, 404);
    }
    let id = text(&kept["id"]);
    let (start, rest) = id.split_at(5);
    let (letter, rest) = rest.split_at(1);
    let encoded = format!("{start}%{:02X}{rest}", letter.as_bytes()[0]);
    for path in [
        format!("{PATH}/{encoded}"),
        format!("{PATH}/{encoded}/input_items"),
        format!("{PATH}//{id}"),
        format!("/v1//responses/{id}"),
        format!("/v1beta/responses/{id}"),
        format!("/v1/%72esponses/{id}"),
        format!("/b/a/v1/%72esponses/{id}"),
    ] {
        for method in [Method::GET, Method::DELETE] {
            assert_eq!(status(client, method, &path, &EVE).await, 404, "{path}");
        }
    }
    let spelled = asked("x".into(), json!({"previous_response_id": format!("{id} ")}));
    assert_eq!(client.post(PATH, &EVE, &spelled).await.status, 400);
    let spelled = asked("x".into(), json!({"conversation": "conv%5f1"}));
    assert_eq!(client.post(PATH, &EVE, &spelled).await.status, 404);
    let spelled = json!([{"type": "item_reference", "id": "rs%5f1"}]);
    let spelled = asked(spelled, json!({}));
    assert_eq!(client.post(PATH, &EVE, &spelled).await.status, 400);
    let on = asked("x".into(), json!({"previous_response_id": kept["id"]}));
    let pointing = json!([{"type": "item_reference", "id": kept["output"][0]["id"]}]);
    let compact = format!("{PATH}/compact");
    for stolen in [on, asked(pointing, json!({}))] {
        for path in [PATH, &compact] {
            assert_eq!(client.post(path, &EVE, &stolen).await.status, 400);
        }
    }
    let after = house.simulators[0].seen().await.len();
    assert_eq!(before, after, "nobody was asked");

    // There is a copy, so it does not matter what the backend can tell of it.
    let read = client.send(Method::GET, &path, &ADA, "").await;
    assert_eq!(read.good().json(), kept);
    let items = client.send(Method::GET, &given, &ADA, "").await;
    assert_eq!(list(&items.good().json()["data"]).count(), 1);
    assert_eq!(status(client, Method::DELETE, &path, &ADA).await, 200);
    assert_eq!(status(client, Method::GET, &path, &ADA).await, 404);
    let refused = house.end().await;
    assert_eq!(refused.len(), 1, "it is gone there too: {refused:?}");
}

/// Where reasoning came without a word of it, only its maker can go on from it.
#[tokio::test]
async fn reasoning_nobody_was_given_is_gone_on_from_where_it_is() {
    let house = House::over(&["openai_responses", "anthropic, budget"]).await;
    let client = &house.gateway.client;
    let tools = json!([{"type": "function", "name": "lookup", "strict": false,
        "parameters": {"type": "object", "properties": {"row": {"type": "integer"}}}}]);
    let result = |response: &Value| {
        let call = list(&response["output"]).find(|item| item["type"] == "function_call");
        let call = &call.expect("a call")["call_id"];
        json!([{"type": "function_call_output", "call_id": call, "output": "row green"}])
    };
    for (include, is_there) in [(json!([]), true), (json!(["reasoning.encrypted_content"]), false)]
    {
        let more = json!({"tools": tools, "include": include});
        let called = create(client, "use one tool", more).await;
        let more = json!({"previous_response_id": called["id"], "tools": tools});
        let on = asked(result(&called), more);
        let answer = client.post(PATH, &ADA, &on).await.good();
        assert_eq!(answer.header("x-throughline-loss"), "");
        let sent = house.last(0).await;
        match is_there {
            true => assert_eq!(sent.body, on.to_string(), "to the byte"),
            false => assert_eq!(thinking_in(&sent.json()), 1),
        }
        // There is a copy all the same, and it is whole but for that.
        let more = json!({"previous_response_id": answer.json()["id"], "tools": tools});
        let answer = client.post("/b/b/v1/responses", &ADA, &asked("and?".into(), more)).await;
        answer.good();
        let sent = house.last(1).await.json();
        assert_eq!(list(&sent["messages"]).count(), 5);
    }
    house.end_in_peace().await;
}

#[tokio::test]
async fn a_backend_of_another_dialect_that_stepped_in_keeps_nothing() {
    let house = House::build(&Plan {
        upstreams: &["openai_responses", "anthropic, budget"],
        scenario: "[[step]]\nwhen = { contains = \"ponder\", model = \"gpt-*\" }\n\
                   fault = \"status:500\"\nsay = [{ text = \"No.\" }]\n\
                   [[step]]\nwhen = { contains = \"ponder\" }\nsay = [{ text = \"Yes.\" }]\n",
        settings: "[route]\nfallback = [\"b\"]\n",
        ..Plan::default()
    })
    .await;
    let client = &house.gateway.client;
    let kept = create(client, "ponder this", json!({})).await;
    let path = format!("{PATH}/{}", text(&kept["id"]));
    let gone = client.send(Method::DELETE, &path, &ADA, "").await;
    assert_eq!(gone.good().json()["deleted"], true);
    let seen = house.simulators[1].seen().await.len();
    assert_eq!(seen, 1, "it is asked for the reply alone");
    house.end().await;
}

#[tokio::test]
async fn an_id_a_backend_uses_twice_leads_nobody_in_circles() {
    let told = json!({"id": "resp_1", "object": "response", "status": "completed",
        "output": [{"type": "reasoning", "id": "rs_1", "summary": []}]});
    let url = Upstream::always(whole("application/json", "", told.to_string())).await;
    let config = upstream("openai_responses").backend("a", &url);
    let gateway = Gateway::start(BINARY, &config).await;
    let client = &gateway.client;
    create(client, "ponder this", json!({})).await;
    let more = json!({"previous_response_id": "resp_1"});
    create(client, "ponder more", more).await;
    let path = format!("{PATH}/resp_1/input_items");
    let given = client.send(Method::GET, &path, &ADA, "").await.good();
    assert_eq!(list(&given.json()["data"]).count(), 1);
}

#[tokio::test]
async fn what_a_backend_does_not_delete_is_not_told_as_deleted() {
    let provider = Upstream::start().await;
    let config = upstream("openai_responses").backend("a", &provider.url);
    let gateway = Gateway::start(BINARY, &config).await;
    let answer = |status: &str, body: &Value| {
        let answer = whole("application/json", "", body.to_string());
        String::from_utf8_lossy(&answer).replacen("200 OK", status, 1)
    };
    let nothing = json!({});
    let client = &gateway.client;
    let told = json!({"id": "resp_1", "object": "response", "status": "completed", "output": []});
    let (_, kept) = tokio::join!(
        async {
            let asked = provider.next().await;
            asked.answer(answer("200 OK", &told).as_bytes()).await;
        },
        create(client, "ponder this", json!({}))
    );
    let path = format!("{PATH}/{}", text(&kept["id"]));
    for (said, deleted, left) in [
        ("401 Unauthorized", 401, 200),
        ("429 Too Many Requests", 429, 200),
        ("404 Not Found", 200, 404),
    ] {
        let (_, answered) = tokio::join!(
            async {
                let asked = provider.next().await;
                assert_eq!((&*asked.method, &*asked.target), ("DELETE", &*path));
                asked.answer(answer(said, &nothing).as_bytes()).await;
            },
            status(client, Method::DELETE, &path, &ADA)
        );
        assert_eq!(answered, deleted, "{said}");
        if left == 200 {
            assert_eq!(status(client, Method::GET, &path, &ADA).await, left, "{said}");
        }
    }
    // Nobody would be asked if it were still here.
    let (asked, _) = tokio::join!(
        async {
            let asked = provider.next().await;
            let target = asked.target.clone();
            asked.answer(answer("404 Not Found", &nothing).as_bytes()).await;
            target
        },
        status(client, Method::GET, &path, &ADA)
    );
    assert_eq!(asked, path);
}

/// Few servers of the dialect can do either, and after a switch it would be gone.
#[tokio::test]
async fn what_runs_for_nobody_and_what_has_a_name_is_kept_here() {
    let house = House::over(&["openai_responses"]).await;
    let client = &house.gateway.client;
    let run = create(client, "ponder this", json!({"background": true})).await;
    assert_eq!(run["status"], "queued");
    let path = format!("{PATH}/{}", text(&run["id"]));
    until("it has ended", async || {
        let read = client.send(Method::GET, &path, &ADA, "").await;
        read.json()["status"] == "completed"
    })
    .await;
    create(client, "ponder more", json!({"previous_response_id": run["id"]})).await;
    let sent = house.last(0).await.json();
    assert_eq!((list(&sent["input"]).count(), thinking_in(&sent)), (4, 1));

    let named = client.post("/v1/conversations", &ADA, &json!({})).await;
    let named = json!({"conversation": named.good().json()["id"]});
    for items in [1, 4] {
        create(client, "ponder this", named.clone()).await;
        let sent = house.last(0).await.json();
        assert_eq!(list(&sent["input"]).count(), items);
    }
    house.end_in_peace().await;
}

#[tokio::test]
async fn where_nothing_is_kept_nothing_is_promised() {
    for (row, native) in [("anthropic, budget", false), ("openai_responses", true)] {
        let house = House::build(&Plan {
            upstreams: &[row],
            settings: "responses = { limit = \"0B\" }",
            ..Plan::default()
        })
        .await;
        let client = &house.gateway.client;
        let wish = asked("ponder this".into(), json!({"background": true}));
        for (path, wish) in [(PATH, wish), ("/v1/conversations", json!({}))] {
            let answer = client.post(path, &ADA, &wish).await;
            let what = format!("{row}, {path}: {}", answer.text());
            let seen = house.simulators[0].seen().await.pop();
            if native {
                let seen = seen.expect("a request");
                assert_eq!((&*seen.path, seen.json()), (path, wish), "{what}");
            } else {
                assert_eq!(answer.status, 400, "{what}");
                assert!(answer.text().contains("responses.limit"), "{what}");
                assert!(seen.is_none(), "{what}");
            }
        }
        house.end().await;
    }
}
