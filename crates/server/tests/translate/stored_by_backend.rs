//! Responses that a backend of the same dialect also stores: they pass unchanged, and the same
//! rules hold for them.

use http::Method;
use serde_json::{Value, json};
use throughline_testkit::{Client, Gateway, RawUpstream, ok_reply, wait_until};

use crate::support::{BINARY, BedOptions, TestBed, thinking_in, upstream};
use crate::test_client::{list, text};

const ADA: [(&str, &str); 1] = [("authorization", "Bearer ada")];
const EVE: [(&str, &str); 1] = [("authorization", "Bearer eve")];
const PATH: &str = "/v1/responses";

/// Returns a request with the model's own name, so that nothing in it has to change.
#[allow(clippy::needless_pass_by_value, reason = "call sites pass a new value")]
fn response_request(input: Value, more: Value) -> Value {
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
    let body = response_request(input.into(), more);
    client.post(PATH, &ADA, &body).await.expect_ok().json()
}

async fn status(client: &Client, method: Method, path: &str, key: &[(&str, &str)]) -> u16 {
    client.send(method, path, key, "").await.status
}

/// The backend gets the operator's key, so it would show every response to every caller.
#[tokio::test]
async fn response_stored_by_the_backend_belongs_to_its_caller() {
    let bed = TestBed::over(&["openai_responses"]).await;
    let client = &bed.gateway.client;
    let kept = create(client, "ponder this", json!({})).await;
    let path = format!("{PATH}/{}", text(&kept["id"]));
    let given = format!("{path}/input_items");
    let before = bed.simulators[0].received().await.len();
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
    let spelled = response_request("x".into(), json!({"previous_response_id": format!("{id} ")}));
    assert_eq!(client.post(PATH, &EVE, &spelled).await.status, 400);
    let spelled = response_request("x".into(), json!({"conversation": "conv%5f1"}));
    assert_eq!(client.post(PATH, &EVE, &spelled).await.status, 404);
    let spelled = json!([{"type": "item_reference", "id": "rs%5f1"}]);
    let spelled = response_request(spelled, json!({}));
    assert_eq!(client.post(PATH, &EVE, &spelled).await.status, 400);
    let on = response_request("x".into(), json!({"previous_response_id": kept["id"]}));
    let pointing = json!([{"type": "item_reference", "id": kept["output"][0]["id"]}]);
    let compact = format!("{PATH}/compact");
    for stolen in [on, response_request(pointing, json!({}))] {
        for path in [PATH, &compact] {
            assert_eq!(client.post(path, &EVE, &stolen).await.status, 400);
        }
    }
    // A body that only the backend can read would reach it without a check of the owner.
    let nested = format!("{}1{}", "[".repeat(127), "]".repeat(127));
    for unreadable in [r#""\ud83d""#, "1e999", &nested] {
        let stolen = format!(
            r#"{{"model":"gpt-6.1-sol","input":"x","metadata":{{"a":{unreadable}}},"previous_response_id":"{id}"}}"#
        );
        let answer = client.post_bytes(PATH, &EVE, stolen).await;
        assert_eq!(answer.status, 400, "{unreadable}: {}", answer.text());
    }
    let after = bed.simulators[0].received().await.len();
    assert_eq!(before, after, "no backend was asked");

    // The gateway has its own copy, so the backend's copy does not matter.
    let read = client.send(Method::GET, &path, &ADA, "").await;
    assert_eq!(read.expect_ok().json(), kept);
    let items = client.send(Method::GET, &given, &ADA, "").await;
    assert_eq!(list(&items.expect_ok().json()["data"]).count(), 1);
    assert_eq!(status(client, Method::DELETE, &path, &ADA).await, 200);
    assert_eq!(status(client, Method::GET, &path, &ADA).await, 404);
    let refused = bed.into_refusals().await;
    assert_eq!(refused.len(), 1, "it is gone there too: {refused:?}");
}

/// Only the backend that made hidden reasoning can continue from it.
#[tokio::test]
async fn hidden_reasoning_continues_at_its_backend() {
    let bed = TestBed::over(&["openai_responses", "anthropic, budget"]).await;
    let client = &bed.gateway.client;
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
        let on = response_request(result(&called), more);
        let answer = client.post(PATH, &ADA, &on).await.expect_ok();
        assert_eq!(answer.header("x-throughline-loss"), "");
        let sent = bed.last_received(0).await;
        match is_there {
            true => assert_eq!(sent.body, on.to_string(), "to the byte"),
            false => assert_eq!(thinking_in(&sent.json()), 1),
        }
        // The gateway's copy is complete apart from the hidden reasoning.
        let more = json!({"previous_response_id": answer.json()["id"], "tools": tools});
        let answer =
            client.post("/b/b/v1/responses", &ADA, &response_request("and?".into(), more)).await;
        answer.expect_ok();
        let sent = bed.last_received(1).await.json();
        assert_eq!(list(&sent["messages"]).count(), 5);
    }
    bed.expect_no_refusals().await;
}

#[tokio::test]
async fn fallback_of_another_dialect_stores_nothing_upstream() {
    let bed = TestBed::build(&BedOptions {
        upstreams: &["openai_responses", "anthropic, budget"],
        scenario: "[[step]]\nwhen = { contains = \"ponder\", model = \"gpt-*\" }\n\
                   fault = \"status:500\"\nsay = [{ text = \"No.\" }]\n\
                   [[step]]\nwhen = { contains = \"ponder\" }\nsay = [{ text = \"Yes.\" }]\n",
        settings: "[route]\nfallback = [\"b\"]\n",
        ..BedOptions::default()
    })
    .await;
    let client = &bed.gateway.client;
    let kept = create(client, "ponder this", json!({})).await;
    let path = format!("{PATH}/{}", text(&kept["id"]));
    let gone = client.send(Method::DELETE, &path, &ADA, "").await;
    assert_eq!(gone.expect_ok().json()["deleted"], true);
    let seen = bed.simulators[1].received().await.len();
    assert_eq!(seen, 1, "it is asked for the reply alone");
    bed.into_refusals().await;
}

#[tokio::test]
async fn repeated_response_id_makes_no_cycle() {
    let stored = json!({"id": "resp_1", "object": "response", "status": "completed",
        "output": [{"type": "reasoning", "id": "rs_1", "summary": []}]});
    let url =
        RawUpstream::always_answering(ok_reply("application/json", "", stored.to_string())).await;
    let config = upstream("openai_responses").backend("a", &url);
    let gateway = Gateway::start(BINARY, &config).await;
    let client = &gateway.client;
    create(client, "ponder this", json!({})).await;
    let more = json!({"previous_response_id": "resp_1"});
    create(client, "ponder more", more).await;
    let path = format!("{PATH}/resp_1/input_items");
    let given = client.send(Method::GET, &path, &ADA, "").await.expect_ok();
    assert_eq!(list(&given.json()["data"]).count(), 1);
}

#[tokio::test]
async fn failed_upstream_delete_is_not_reported_as_deleted() {
    let provider = RawUpstream::start().await;
    let config = upstream("openai_responses").backend("a", &provider.url);
    let gateway = Gateway::start(BINARY, &config).await;
    let answer = |status: &str, body: &Value| {
        let answer = ok_reply("application/json", "", body.to_string());
        String::from_utf8_lossy(&answer).replacen("200 OK", status, 1)
    };
    let nothing = json!({});
    let client = &gateway.client;
    let stored = json!({"id": "resp_1", "object": "response", "status": "completed", "output": []});
    let (_, kept) = tokio::join!(
        async {
            let response_request = provider.next().await;
            response_request.answer(answer("200 OK", &stored).as_bytes()).await;
        },
        create(client, "ponder this", json!({}))
    );
    let path = format!("{PATH}/{}", text(&kept["id"]));
    for (view, deleted, left) in [
        ("401 Unauthorized", 401, 200),
        ("429 Too Many Requests", 429, 200),
        ("404 Not Found", 200, 404),
    ] {
        let (_, answered) = tokio::join!(
            async {
                let response_request = provider.next().await;
                assert_eq!(
                    (&*response_request.method, &*response_request.target),
                    ("DELETE", &*path)
                );
                response_request.answer(answer(view, &nothing).as_bytes()).await;
            },
            status(client, Method::DELETE, &path, &ADA)
        );
        assert_eq!(answered, deleted, "{view}");
        if left == 200 {
            assert_eq!(status(client, Method::GET, &path, &ADA).await, left, "{view}");
        }
    }
    // If the gateway still had a copy, it would not ask the backend.
    let (response_request, _) = tokio::join!(
        async {
            let response_request = provider.next().await;
            let target = response_request.target.clone();
            response_request.answer(answer("404 Not Found", &nothing).as_bytes()).await;
            target
        },
        status(client, Method::GET, &path, &ADA)
    );
    assert_eq!(response_request, path);
}

/// Requests that only a backend with this state could answer, and the code of their refusal.
fn requests_with_unknown_state() -> [(&'static str, Value, Value); 4] {
    let named = |more: Value| response_request("x".into(), more);
    let pointing =
        json!([{"role": "user", "content": "x"}, {"type": "item_reference", "id": "rs_9"}]);
    let previous = json!({"previous_response_id": "resp_9"});
    [
        (PATH, named(previous.clone()), json!("previous_response_not_found")),
        (PATH, named(json!({"conversation": "conv_9"})), json!("not_found")),
        (PATH, response_request(pointing, json!({})), Value::Null),
        ("/v1/responses/compact", named(previous), json!("previous_response_not_found")),
    ]
}

/// llama.cpp and others ignore the id of an earlier response and answer from the newest message.
#[tokio::test]
async fn state_that_is_unknown_here_does_not_reach_a_backend_that_never_stored_any() {
    let answered =
        json!({"id": "resp_1", "object": "response", "status": "completed", "output": []});
    let url =
        RawUpstream::always_answering(ok_reply("application/json", "", answered.to_string())).await;
    let gateway = Gateway::start(BINARY, &upstream("openai_responses").backend("a", &url)).await;
    // Its replies are completed for the client. That does not mean that it stores them.
    create(&gateway.client, "ponder this", json!({})).await;
    for (path, request, code) in requests_with_unknown_state() {
        let answer = gateway.client.post(path, &ADA, &request).await;
        assert!([400, 404].contains(&answer.status), "{request}: {}", answer.text());
        let found = answer.json()["error"]["code"].clone();
        assert_eq!(found, code, "{request}: {}", answer.text());
    }
}

/// OpenAI is known to store responses, and so is a server that has said so before.
#[tokio::test]
async fn state_that_is_unknown_here_reaches_a_backend_that_stores_it() {
    for (variant, is_known) in [("", false), ("variant = \"openai\"", true)] {
        let mut bed = TestBed::build(&BedOptions {
            upstreams: &["openai_responses"],
            backend: variant,
            ..BedOptions::default()
        })
        .await;
        let reaches = async |bed: &TestBed| {
            let before = bed.simulators[0].received().await.len();
            let mut reached = Vec::new();
            for (path, request, _) in requests_with_unknown_state() {
                let answer = bed.gateway.client.post(path, &ADA, &request).await;
                // The simulator has stored nothing of the kind.
                assert!([400, 404].contains(&answer.status), "{}", answer.text());
                reached.push(bed.simulators[0].received().await.len() - before);
            }
            reached
        };
        let all = [1, 2, 3, 4];
        assert_eq!(reaches(&bed).await, if is_known { all } else { [0; 4] }, "{variant}");
        create(&bed.gateway.client, "ponder this", json!({})).await;
        assert_eq!(reaches(&bed).await, all, "{variant}");
        bed.stop().await;
        bed.gateway.restart().await;
        assert_eq!(reaches(&bed).await, all, "{variant}");
    }
}

/// Few servers of this dialect support either, and a switch would lose them.
#[tokio::test]
async fn background_and_conversation_responses_are_stored_by_the_gateway() {
    let bed = TestBed::over(&["openai_responses"]).await;
    let client = &bed.gateway.client;
    let run = create(client, "ponder this", json!({"background": true})).await;
    assert_eq!(run["status"], "queued");
    let path = format!("{PATH}/{}", text(&run["id"]));
    wait_until("it has ended", async || {
        let read = client.send(Method::GET, &path, &ADA, "").await;
        read.json()["status"] == "completed"
    })
    .await;
    create(client, "ponder more", json!({"previous_response_id": run["id"]})).await;
    let sent = bed.last_received(0).await.json();
    assert_eq!((list(&sent["input"]).count(), thinking_in(&sent)), (4, 1));

    let named = client.post("/v1/conversations", &ADA, &json!({})).await;
    let named = json!({"conversation": named.expect_ok().json()["id"]});
    for items in [1, 4] {
        create(client, "ponder this", named.clone()).await;
        let sent = bed.last_received(0).await.json();
        assert_eq!(list(&sent["input"]).count(), items);
    }
    bed.expect_no_refusals().await;
}

#[tokio::test]
async fn disabled_store_stores_nothing_upstream() {
    for (row, native) in [("anthropic, budget", false), ("openai_responses", true)] {
        let bed = TestBed::build(&BedOptions {
            upstreams: &[row],
            settings: "responses = { limit = \"0B\" }",
            ..BedOptions::default()
        })
        .await;
        let client = &bed.gateway.client;
        let wish = response_request("ponder this".into(), json!({"background": true}));
        for (path, wish) in [(PATH, wish), ("/v1/conversations", json!({}))] {
            let answer = client.post(path, &ADA, &wish).await;
            let case = format!("{row}, {path}: {}", answer.text());
            let seen = bed.simulators[0].received().await.pop();
            if native {
                let seen = seen.expect("a request");
                assert_eq!((&*seen.path, seen.json()), (path, wish), "{case}");
            } else {
                assert_eq!(answer.status, 400, "{case}");
                assert!(answer.text().contains("responses.limit"), "{case}");
                assert!(seen.is_none(), "{case}");
            }
        }
        bed.into_refusals().await;
    }
}
