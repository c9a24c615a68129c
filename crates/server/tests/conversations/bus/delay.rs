//! How much later a reader at another instance gets what a model says.

use std::time::{Duration, Instant};

use http::Method;
use serde_json::{Value, json};
use throughline_testkit::{PostgresDatabase, StreamedAnswer};

use super::Cluster;
use crate::support::{ANTHROPIC, Api, run_of};

/// The answer comes in pieces, with pauses in between.
fn scenario() -> String {
    let stalls: Vec<String> = (5..25).map(|event| format!("stall:event={event},ms=110")).collect();
    let words: Vec<String> = (0..100).map(|word| format!("word {word}")).collect();
    format!(
        "[[step]]\nwhen = {{ contains = \"hello\" }}\nfault = \"{}\"\nsay = [{{ text = \"{}\" }}]\n",
        stalls.join(";"),
        words.join(", ")
    )
}

/// When each line of an answer arrived, by its number.
async fn arrivals(mut stream: StreamedAnswer) -> Vec<(u64, Instant)> {
    let (mut pending, mut seen) = (String::new(), Vec::new());
    while let Some(piece) = stream.next().await {
        let now = Instant::now();
        pending.push_str(std::str::from_utf8(&piece).expect("text"));
        while let Some((line, rest)) = pending.split_once('\n') {
            let line: Value = serde_json::from_str(line).expect("a line");
            if line["type"] == "text" {
                seen.push((line["seq"].as_u64().expect("a number"), now));
            }
            pending = rest.to_owned();
        }
    }
    seen
}

/// The median of how much later the second instance shows a piece of text.
async fn median_delay([one, two]: [&Api; 2]) -> Duration {
    let project = one.project(json!({"title": "t"})).await;
    let chat = json!({"message": "hello"});
    let writer = one.open(Method::POST, &format!("{project}/chat"), &chat).await;
    let path = format!("/api/runs/{}/events", run_of(&writer));
    let reader = two.open(Method::GET, &path, &Value::Null).await;
    let (here, there) = tokio::join!(arrivals(writer), arrivals(reader));
    let later = |(number, at): &(u64, Instant)| {
        let (_, shown) = here.iter().find(|(known, _)| known == number)?;
        Some(at.saturating_duration_since(*shown))
    };
    // What was there when the reader came is left out.
    let mut delays: Vec<Duration> = there.iter().skip(3).filter_map(later).collect();
    delays.sort();
    assert!(delays.len() > 5, "{delays:?}");
    delays[delays.len() / 2]
}

#[tokio::test]
async fn reader_at_another_instance_waits_less_with_a_bus() {
    let database = PostgresDatabase::new();
    let [one, two] = Api::instances(&database, &[ANTHROPIC], &scenario(), "").await;
    let asking = median_delay([&one, &two]).await;
    drop((one, two));
    let cluster = Cluster::start(&scenario()).await;
    let [one, two] = &cluster.apis;
    let hearing = median_delay([one, two]).await;
    eprintln!("median delay at the other instance: {asking:?} without a bus, {hearing:?} with one");
    assert!(2 * hearing < asking, "{hearing:?} with a bus, {asking:?} without one");
}
