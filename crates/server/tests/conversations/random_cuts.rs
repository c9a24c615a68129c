//! Readers of runs whose connections are cut at random places, also inside a frame. Joined, the parts
//! of a stream are the stream that was not cut.

use std::sync::Arc;
use std::time::Duration;

use http::Method;
use serde_json::{Value, json};
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::support::{ANTHROPIC, Api, FORMATS, Random, check_cursors, cursors, run_of};

/// How many connections are cut for each format.
const CUTS: usize = 1_000;
/// Readers at the same time.
const READERS: usize = 8;
/// What readers ask for, besides the format.
const FILTERS: [&str; 4] = ["", "&kinds=text", "&kinds=thinking", "&kinds=tools,text"];

/// The reply of a live run stops after half of its events for a while, so that many readers are cut
/// while it is in progress.
const SCENARIO: &str = r#"
[[step]]
when = { contains = "live" }
fault = "stall:event=30,ms=1500"
say = [
  { thinking = "One thought. And äöü another. Then a third one, with \"quotes\" and a \\ in it." },
  { text = "A text of some words. 鷺は立つ。 It has\n\nlines, too, and it goes on for a while." },
  { tool = { name = "lookup", input = { key = "7" } } },
]
[[step]]
when = { contains = "ended" }
say = [
  { thinking = "One thought. And äöü another. Then a third one, with \"quotes\" and a \\ in it." },
  { text = "A text of some words. 鷺は立つ。 It has\n\nlines, too, and it goes on for a while." },
  { tool = { name = "lookup", input = { key = "7" } } },
]
"#;

/// Starts a run with thinking, text and a call.
async fn start(api: &Api, message: &str) -> String {
    let project = api.project(json!({"title": "t"})).await;
    let tool = json!({"name": "lookup", "parameters": {"type": "object",
        "properties": {"key": {"type": "string"}}}});
    let chat = json!({"message": message, "thinking": "medium", "tools": [tool]});
    // The answer is not read: nobody has to read a run.
    run_of(&api.open(Method::POST, &format!("{project}/chat"), &chat).await)
}

/// The stream of a run that nothing cuts.
async fn whole(api: &Api, run: &str, query: &str) -> String {
    let path = format!("/api/runs/{run}/events?{query}");
    api.send(Method::GET, &path, &Value::Null).await.expect_ok().text()
}

/// Reads a run with cuts at random places. Returns the joined stream, and the number of cuts.
async fn read_with_cuts(
    api: &Api,
    run: &str,
    (format, query): (&str, &str),
    random: &mut Random,
) -> (String, usize) {
    let (mut joined, mut cuts) = (String::new(), 0);
    loop {
        let known = cursors(format, &joined).pop().map(|(cursor, _)| cursor);
        let after = known.map_or_else(String::new, |cursor| format!("&after={cursor}"));
        let path = format!("/api/runs/{run}/events?{query}{after}");
        let mut stream = api.open(Method::GET, &path, &Value::Null).await;
        assert_eq!(stream.status, 200, "{path}");
        // A small step would make many cuts of one reader, a large one few.
        let most = random.below(900);
        // A connection is also cut while nothing arrives.
        let patience = Duration::from_millis(20 + random.below(60) as u64);
        let mut part = Vec::new();
        let ended = loop {
            match timeout(patience, stream.next()).await {
                Ok(None) => break true,
                Ok(Some(piece)) => part.extend_from_slice(&piece),
                Err(_) => break false,
            }
            if part.len() >= most {
                part.truncate(most);
                break false;
            }
        };
        drop(stream);
        // A client takes complete frames only. A character may be cut, too.
        let part = String::from_utf8_lossy(&part);
        let complete = cursors(format, &part).pop().map_or(0, |(_, length)| length);
        joined.push_str(&part[..complete]);
        if ended {
            return (joined, cuts);
        }
        cuts += 1;
    }
}

/// Covers: X-1, C-35, case 48
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn streams_that_are_cut_join_to_the_whole_one_in_every_format() {
    let api = Arc::new(Api::quiet(&[ANTHROPIC], SCENARIO).await);
    let ended = start(&api, "ended").await;
    whole(&api, &ended, "").await;
    for (at, format) in FORMATS.into_iter().enumerate() {
        let live = start(&api, "live").await;
        let state = api.get(&format!("/api/runs/{live}")).await;
        assert_eq!(state["status"], "running", "{format}");
        // One reader of each filter stays from the beginning to the end.
        let mut uncut = JoinSet::new();
        for filter in FILTERS {
            let (api, live) = (api.clone(), live.clone());
            uncut.spawn(async move {
                let query = format!("format={format}{filter}");
                let stream = whole(&api, &live, &query).await;
                (query, stream)
            });
        }
        let mut readers = JoinSet::new();
        for reader in 0..READERS {
            let (api, runs) = (api.clone(), [live.clone(), ended.clone()]);
            let seed = ((at * READERS + reader + 1) as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            readers.spawn(read_again_and_again(api, runs, format, Random(seed)));
        }
        let (mut cuts, mut cut_live) = (0, 0);
        while let Some(counts) = readers.join_next().await {
            let (all, while_live) = counts.expect("a reader");
            cuts += all;
            cut_live += while_live;
        }
        assert!(cuts >= CUTS && cut_live >= CUTS / 10, "{format}: {cuts} cuts, {cut_live} live");
        // Readers that stayed saw the same as those that came later.
        while let Some(stayed) = uncut.join_next().await {
            let (query, stream) = stayed.expect("a reader");
            check_cursors(format, &stream);
            assert_eq!(stream, whole(&api, &live, &query).await, "{query}");
        }
    }
}

/// Reads the runs again and again until it was cut often enough. Returns the number of cuts, and how
/// many of them were in a run in progress.
async fn read_again_and_again(
    api: Arc<Api>,
    [live, ended]: [String; 2],
    format: &'static str,
    mut random: Random,
) -> (usize, usize) {
    let (mut cuts, mut cut_live) = (0, 0);
    while cuts < CUTS.div_ceil(READERS) {
        let filter = FILTERS[random.below(FILTERS.len())];
        let query = format!("format={format}{filter}");
        let is_live = cut_live == 0 || random.below(2) == 0;
        let run = if is_live { &live } else { &ended };
        let path = format!("/api/runs/{run}");
        let was_running = is_live && api.get(&path).await["status"] == "running";
        let (joined, count) = read_with_cuts(&api, run, (format, &query), &mut random).await;
        assert_eq!(joined, whole(&api, run, &query).await, "{query}");
        cuts += count;
        cut_live += if was_running { count } else { 0 };
    }
    (cuts, cut_live)
}
