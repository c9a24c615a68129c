//! Instances with a bus on a real Redis server.

mod channels;
mod delay;
mod outage;
mod rooms;

use serde_json::json;
use throughline_testkit::{PostgresDatabase, Redis};

use crate::support::{ANTHROPIC, Api};

/// Two instances on one database, with a bus.
struct Cluster {
    apis: [Api; 2],
    redis: Redis,
    _database: PostgresDatabase,
}

impl Cluster {
    async fn start(scenario: &str) -> Self {
        let (database, redis) = (PostgresDatabase::new(), Redis::start());
        let settings = redis_settings(&redis);
        let apis = Api::instances(&database, &[ANTHROPIC], scenario, &settings).await;
        Self { apis, redis, _database: database }
    }
}

/// The configuration of the bus.
pub(crate) fn redis_settings(redis: &Redis) -> String {
    format!("[redis]\nurl = \"{}\"\n", redis.url)
}

/// A room in which `tutor` answers.
async fn make_room(api: &Api) -> String {
    let made = api.post("/api/channels", json!({"id": "tutor", "thinkingBudget": 2048})).await;
    assert!([201, 409].contains(&made.status), "{}", made.text());
    let made = api.post("/api/rooms", json!({"title": "A room"})).await.json();
    let room = format!("/api/rooms/{}", crate::support::text(&made["id"]));
    crate::rooms::bind(api, &room, "tutor", "intelligence", json!({})).await;
    room
}
