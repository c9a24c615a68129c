//! The Redis server is lost while models answer, and comes back.

use http::Method;
use serde_json::{Value, json};
use throughline_testkit::{StreamedAnswer, wait_until};

use super::{Cluster, make_room};
use crate::rooms::{Events, say};
use crate::support::{Api, done, joined, lines, run_of};

/// The answers are slow, so that readers come and go while they are written.
const SCENARIO: &str = r#"
[[step]]
when = { contains = "plain" }
say = [{ text = "Just a text." }]
[[step]]
when = { contains = "slow" }
fault = "stall:event=8,ms=2500"
say = [
  { thinking = "One. Two. Three. Four. Five. Six." },
  { text = "Seven. Eight. Nine. Ten. Eleven. Twelve." },
]
"#;

async fn is_connected(api: &Api) -> bool {
    api.gateway.metrics().await.sum("throughline_bus_connected", &[]) > 0.5
}

async fn answer_of(stream: StreamedAnswer) -> Vec<Value> {
    lines(&stream.read_all().await)
}

/// Reads an answer at both instances. They must be the same, and complete.
async fn check_answer(cluster: &Cluster, project: &str, during: impl AsyncFnOnce()) {
    let [one, two] = &cluster.apis;
    let chat = json!({"message": "slow", "thinking": "medium"});
    let here = one.open(Method::POST, &format!("{project}/chat"), &chat).await;
    let path = format!("/api/runs/{}/events", run_of(&here));
    let mut there = two.open(Method::GET, &path, &Value::Null).await;
    let begun = there.next().await.expect("a line").to_vec();
    during().await;
    let (here, there) = tokio::join!(answer_of(here), there.read_all());
    let there =
        throughline_testkit::Answer { body: [begun, there.body.to_vec()].concat().into(), ..there };
    let there = lines(&there);
    assert_eq!(there, here, "both readers get everything once");
    assert_eq!(done(&here)["reason"], "completed");
    assert_eq!(joined(&here, "text"), "Seven. Eight. Nine. Ten. Eleven. Twelve.");
}

/// Covers: X-1
#[tokio::test]
async fn readers_get_everything_once_while_redis_is_lost_and_comes_back() {
    let cluster = Cluster::start(SCENARIO).await;
    let [one, two] = &cluster.apis;
    let (redis, project) = (&cluster.redis, one.project(json!({"title": "t"})).await);
    let room = make_room(one).await;
    let mut events = Events::open(two, &room, "").await;
    check_answer(&cluster, &project, async || {
        redis.stop();
        // A room goes on without a bus.
        say(one, &room, "@tutor plain").await;
        assert_eq!(events.answer_of("tutor").await["content"], "Just a text.");
    })
    .await;
    for api in &cluster.apis {
        wait_until("the loss is known", async || !is_connected(api).await).await;
        let ready = api.gateway.client.get("/readyz").await;
        assert_eq!(ready.status, 200, "{}", ready.text());
        let warnings = ready.json()["warnings"].to_string();
        assert!(warnings.contains("the bus is not connected"), "{warnings}");
    }
    check_answer(&cluster, &project, async || {
        redis.restart();
        for api in &cluster.apis {
            wait_until("the bus is connected again", async || is_connected(api).await).await;
        }
        say(two, &room, "@tutor plain").await;
        assert_eq!(events.answer_of("tutor").await["content"], "Just a text.");
    })
    .await;
    let dropped = one.gateway.metrics().await.sum("throughline_bus_dropped_total", &[]);
    assert!(dropped > 0.0, "the writer had something to tell");
    // An outage is one line of the log.
    for api in &cluster.apis {
        let log = api.gateway.log();
        assert_eq!(log.matches("readers use the store meanwhile").count(), 1);
        assert_eq!(log.matches("the bus is connected again").count(), 1);
        assert_eq!(api.gateway.client.get("/readyz").await.json()["warnings"], json!([]));
    }
    // From now on the bus is used again.
    let heard = async || two.gateway.metrics().await.sum("throughline_bus_heard_total", &[]);
    let before = heard().await;
    check_answer(&cluster, &project, async || {}).await;
    assert!(heard().await > before);
}
