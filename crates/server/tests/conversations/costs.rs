//! What answers cost: computed from the token counts on the wire, and shown by the API.

use http::Method;
use serde_json::{Map, Value, json};
use throughline_testkit::wait_until;

use crate::support::{ANTHROPIC, Api, done, text};

/// The published prices of the simulated models, in dollars per million tokens: input, read from the cache,
/// written to it, output.
type Prices = [f64; 4];

const CLAUDE: Prices = [3.0, 0.3, 3.75, 15.0];
const GPT: Prices = [2.0, 0.1, 2.5, 10.0];
const GEMINI_FLASH: Prices = [0.3, 0.03, 0.3, 2.5];
const DEEPSEEK: Prices = [0.14, 0.0028, 0.14, 0.28];

/// The token counts in a provider's own reply: the last value of each member.
fn wire_usage(value: &Value, found: &mut Map<String, Value>) {
    match value {
        Value::Object(members) => {
            for (name, member) in members {
                match member {
                    Value::Object(usage) if name == "usage" || name == "usageMetadata" => {
                        let known = usage.iter().filter(|(_, count)| !count.is_null());
                        found.extend(known.map(|(name, count)| (name.clone(), count.clone())));
                    }
                    _ => wire_usage(member, found),
                }
            }
        }
        Value::Array(elements) => elements.iter().for_each(|element| wire_usage(element, found)),
        _ => {}
    }
}

/// The cost by the formula of the provider, in dollars, and how many tokens came from the cache.
fn formula(dialect: &str, usage: &Map<String, Value>, prices: Prices) -> (f64, u64) {
    let usage = Value::Object(usage.clone());
    let count = |path: &str| usage.pointer(path).and_then(Value::as_u64).unwrap_or_default();
    let counts = match dialect {
        // Input, cache reads and cache writes are counted apart.
        "anthropic" => [
            count("/input_tokens"),
            count("/cache_read_input_tokens"),
            count("/cache_creation_input_tokens"),
            count("/output_tokens"),
        ],
        // Input includes what came from the cache, and output includes reasoning.
        "openai_responses" => {
            let read = count("/input_tokens_details/cached_tokens");
            let written = count("/input_tokens_details/cache_write_tokens");
            [count("/input_tokens") - read - written, read, written, count("/output_tokens")]
        }
        "deepseek" => {
            let [hit, miss] =
                [count("/prompt_cache_hit_tokens"), count("/prompt_cache_miss_tokens")];
            [miss, hit, 0, count("/completion_tokens")]
        }
        "openai_chat" => {
            let read = count("/prompt_tokens_details/cached_tokens");
            let written = count("/prompt_tokens_details/cache_write_tokens");
            [count("/prompt_tokens") - read - written, read, written, count("/completion_tokens")]
        }
        // Prompt includes the cache; thoughts are output that is counted apart.
        "gemini" => {
            let read = count("/cachedContentTokenCount");
            let output = count("/candidatesTokenCount") + count("/thoughtsTokenCount");
            [count("/promptTokenCount") - read, read, 0, output]
        }
        other => panic!("{other}"),
    };
    let dollars = counts.iter().zip(prices).map(|(count, price)| *count as f64 * price);
    (dollars.sum::<f64>() / 1e6, counts[1])
}

fn is_close(one: f64, other: f64) -> bool {
    (one - other).abs() < 1e-10
}

#[tokio::test]
async fn cost_of_each_answer_follows_the_formula_of_its_provider() {
    // With thinking, this model of OpenAI is asked in the Responses dialect.
    for (row, dialect, thinking, prices) in [
        ("anthropic, budget", "anthropic", true, CLAUDE),
        ("openai_responses", "openai_responses", true, GPT),
        ("openai", "openai_chat", false, GPT),
        ("gemini 2.5", "gemini", true, GEMINI_FLASH),
        ("deepseek-r1", "deepseek", true, DEEPSEEK),
    ] {
        let api = Api::over(&[("own", row)]).await;
        let project = api.project(json!({"title": "t"})).await;
        // Long enough for every provider's cache.
        let long = format!("please ponder {}", "this long sentence of many words ".repeat(800));
        let mut total = 0.0;
        for (turn, message) in
            [&*long, "please ponder again", "please ponder more"].iter().enumerate()
        {
            let chat = json!({"branch": "main", "message": message, "thinking": thinking});
            let started = api.open(Method::POST, &format!("{project}/chat"), &chat).await;
            let run = crate::support::run_of(&started);
            let lines = crate::support::lines(&started.read_all().await);
            let node = format!("{project}/nodes/{}", text(&done(&lines)["nodeId"]));
            let raw = api.get(&format!("{node}/raw")).await;
            let mut usage = Map::new();
            wire_usage(&raw["payload"], &mut usage);
            let (expected, read) = formula(dialect, &usage, prices);
            assert_eq!(read > 0, turn > 0, "{row}, turn {turn}: {usage:?}");
            let run = api.get(&format!("/api/runs/{run}")).await;
            let cost = run["cost"].as_f64().expect("a cost");
            assert!(is_close(cost, expected), "{row}: {cost} is not {expected}: {usage:?}");
            assert_eq!(api.get(&node).await["cost"], run["cost"]);
            assert_eq!(run["unpricedTokens"], 0);
            total += expected;
        }
        let cost = api.get(&format!("{project}/cost")).await;
        assert!(is_close(cost["total"].as_f64().expect("a total"), total), "{row}: {cost}");
        assert_eq!((&cost["currency"], &cost["answers"]), (&json!("USD"), &json!(3)));
        assert_eq!(cost["unpricedAnswers"], 0);
        // A turn is recorded when the provider has said everything, which may be after the answer.
        let costs = async || -> Vec<f64> {
            let turns = api.get("/admin/turns?limit=50").await;
            let turns = turns["turns"].as_array().expect("a list").clone();
            turns.iter().filter_map(|turn| turn["cost"].as_f64()).collect()
        };
        wait_until("all turns have a cost", async || costs().await.len() == 3).await;
        let sum: f64 = costs().await.iter().sum();
        assert!(is_close(sum, total), "{row}: {sum} is not {total}");
        let metrics = api.send(Method::GET, "/metrics", &Value::Null).await.text();
        let metric = metrics.lines().find(|line| line.starts_with("throughline_cost_usd_total{"));
        let (_, value) = metric.expect("a metric").rsplit_once(' ').expect("a value");
        assert!(is_close(value.parse().expect("a number"), total), "{row}: {value}");
    }
}

#[tokio::test]
async fn unknown_price_gives_no_cost_and_is_counted() {
    let api = Api::over(&[("local", "vllm")]).await;
    let project = api.project(json!({"title": "t"})).await;
    let lines = api.say(&project, "main", "hello").await;
    let node = text(&done(&lines)["nodeId"]).to_owned();
    assert!(api.get(&format!("{project}/nodes/{node}")).await.get("cost").is_none());
    let cost = api.get(&format!("{project}/cost")).await;
    assert_eq!(cost["total"], Value::Null, "{cost}");
    assert_eq!((&cost["answers"], &cost["unpricedAnswers"]), (&json!(1), &json!(1)));
    assert!(cost["unpricedTokens"].as_u64() > Some(0), "{cost}");
    let empty = api.project(json!({"title": "empty"})).await;
    assert_eq!(api.get(&format!("{empty}/cost")).await["total"], 0.0);
}

#[tokio::test]
async fn stranger_reads_no_cost() {
    let api = Api::over(&[ANTHROPIC]).await;
    let project = api.project(json!({"title": "t"})).await;
    let stranger = api.with_key("eve");
    let answer = stranger.send(Method::GET, &format!("{project}/cost"), &Value::Null).await;
    assert_eq!(answer.status, 404);
}
