//! What a room costs, and budgets for thinking.

use http::Method;
use serde_json::{Value, json};

use super::{Events, bind, room, say};
use crate::support::{Api, text};

/// About 5,000 tokens of thinking.
fn long_thinking() -> String {
    let thinking = "I think about it. ".repeat(1_100);
    format!(
        "[[step]]\nwhen = {{ contains = \"\" }}\nsay = [{{ thinking = \"{thinking}\" }}, {{ text = \"Done.\" }}]\n"
    )
}

async fn answer(api: &Api, room: &str, channel: &str) -> (Value, Value) {
    let mut events = Events::open(api, room, "").await;
    let (_, runs) = say(api, room, &format!("@{channel} hello")).await;
    let answered = events.until(|event| event["type"] == "MESSAGE" && event["run"] == runs[0]);
    let node = answered.await["data"].clone();
    (node, api.get(&format!("/api/runs/{}", runs[0])).await)
}

/// Covers: S3-1, S3-2, S3-3
#[tokio::test]
async fn budget_reaches_every_provider_and_what_is_over_it_is_reported() {
    let budget = 1024;
    for (row, budget_at, is_enforced) in [
        ("anthropic, budget", "/thinking/budget_tokens", true),
        ("gemini 2.5", "/generationConfig/thinkingConfig/thinkingBudget", true),
        ("qwen", "/thinking_budget", true),
        // These have efforts. The nearest one is sent, and no provider enforces it.
        ("openai_responses", "/reasoning/effort", false),
        ("openai", "/reasoning/effort", false),
    ] {
        let api = Api::with(&[("own", row)], &long_thinking(), "").await;
        api.post("/api/channels", json!({"id": "tutor", "thinkingBudget": 4000})).await;
        let room = room(&api, &[]).await;
        bind(&api, &room, "tutor", "intelligence", json!({"thinking_budget": budget})).await;
        let (node, run) = answer(&api, &room, "tutor").await;
        let received = api.simulators[0].received().await;
        let body: Value =
            serde_json::from_str(&received.last().expect("a request").body).expect("JSON");
        let sent = body.pointer(budget_at).unwrap_or_else(|| panic!("{row}: {body:#}"));
        let thinking = node["usage"]["thinking"].as_u64().expect("a count");
        assert_eq!(run["thinkingBudget"], budget, "{row}");
        if is_enforced {
            assert_eq!(*sent, budget, "{row}: {body:#}");
            assert!((1..=budget).contains(&thinking), "{row}: {thinking}");
            assert_eq!(run["overBudget"], 0, "{row}: {run:#}");
        } else {
            assert!(sent.is_string(), "{row}: {body:#}");
            assert!(thinking > budget, "{row}: {thinking}");
            assert_eq!(run["overBudget"], thinking - budget, "{row}: {run:#}");
        }
        assert_eq!(api.refusals().await, [""; 0], "{row}");
    }
}

#[tokio::test]
async fn cost_of_a_room_has_the_part_of_each_member() {
    let api = super::api_with("").await;
    let room = room(&api, &[("one", json!({})), ("two", json!({}))]).await;
    let empty = api.get(&format!("{room}/cost")).await;
    assert_eq!((&empty["total"], &empty["currency"]), (&json!(0.0), &json!("USD")));
    let mut sums = [0.0; 2];
    for (member, channel) in ["one", "two", "one"].into_iter().enumerate() {
        let (node, run) = answer(&api, &room, channel).await;
        let cost = run["cost"].as_f64().expect("a cost");
        assert!(cost > 0.0 && node["cost"] == run["cost"], "{node:#}");
        sums[member % 2] += cost;
    }
    let cost = api.get(&format!("{room}/cost")).await;
    let is =
        |value: &Value, sum: f64| value.as_f64().is_some_and(|cost| (cost - sum).abs() < 1e-12);
    assert!(is(&cost["channels"]["one"], sums[0]), "{cost}");
    assert!(is(&cost["channels"]["two"], sums[1]), "{cost}");
    assert!(is(&cost["total"], sums[0] + sums[1]), "{cost}");
    // A second room on the same branch has costs of its own.
    let project = text(&api.get(&room).await["project"]).to_owned();
    let second = api.post("/api/rooms", json!({"title": "second", "project": project})).await;
    let second = format!("/api/rooms/{}", text(&second.json()["id"]));
    assert_eq!(api.get(&format!("{second}/cost")).await["total"], 0.0);
    assert_eq!(api.get(&format!("/api/projects/{project}/cost")).await["total"], cost["total"]);
    let stranger = api.with_key("eve");
    let path = format!("{room}/cost");
    assert_eq!(stranger.send(Method::GET, &path, &Value::Null).await.status, 404);
}

/// An answer that no reader sees is paid for too.
#[tokio::test]
async fn refused_answer_is_in_the_cost() {
    let api = super::api_with("").await;
    let room = room(&api, &[("tutor", json!({}))]).await;
    let refuser =
        super::hooks::Receiver::start(200, json!({"action": "refuse", "reason": "no"})).await;
    refuser.add(&api, &room, "before_broadcast", json!({"blocking": true})).await;
    let mut events = Events::open(&api, &room, "").await;
    say(&api, &room, "@tutor hello").await;
    let error = events.until(|event| event["type"] == "ERROR").await;
    assert_eq!(error["data"]["kind"], "refused", "{error:#}");
    let cost = api.get(&format!("{room}/cost")).await;
    assert!(cost["total"].as_f64() > Some(0.0), "{cost}");
    assert_eq!(cost["answers"], 1);
}
