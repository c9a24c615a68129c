//! The prompt cache of the upstream behind the gateway: a recorded session of a coding agent is as
//! well cached as without the gateway, and the history is written the same from turn to turn.
//! The hit rates are in docs/caching.md.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::panic::AssertUnwindSafe;

use futures_util::{FutureExt, StreamExt};
use serde_json::value::RawValue;
use serde_json::{Value, json};
use throughline_codec::dialects::cache_breakpoints;
use throughline_testkit::{CacheShare, Gateway, Simulator};

use crate::agent_session::AgentSession;
use crate::chat::Chat;
use crate::responses::Responses;
use crate::scenarios::{BINARY, CLIENTS, test_client};
use crate::table::{ONLY, compare_with_docs, panic_text};
use crate::test_client::TestClient;
use crate::upstreams::{UPSTREAMS, Upstream};

/// The least share of the direct hit rate that every client reaches.
const MIN_SHARE: f64 = 0.95;
/// The column of the upstream's own client.
const OWN: &str = "same client";
/// The lines around the table in docs/caching.md.
const TABLE_BEGIN: &str = "<!-- hit rates, written by the test -->";
const TABLE_END: &str = "<!-- end of the hit rates -->";
/// How many sessions run at the same time.
const AT_ONCE: usize = 4;

/// What the simulator saw of one session.
struct SeenSession {
    share: CacheShare,
    bodies: Vec<String>,
}

impl SeenSession {
    async fn of(simulator: &Simulator) -> Self {
        let mut seen = Self { share: CacheShare::default(), bodies: Vec::new() };
        for request in simulator.received().await {
            assert!(request.refusal.is_empty(), "refused: {}", request.refusal);
            seen.share.add(request.cache);
            seen.bodies.push(request.body);
        }
        seen
    }
}

/// Creates the client that a user of this upstream would take without a gateway, for requests as
/// [`adjust`] makes them.
fn own_client(upstream: &Upstream) -> Box<dyn TestClient> {
    let mut client: Box<dyn TestClient> = match (upstream.dialect, upstream.name) {
        ("openai_chat", "deepseek-r1") => Box::new(Chat::new(false)),
        // Its models take tools in the newer dialect only.
        ("openai_chat", "openai") => Box::new(Responses::default()),
        ("openai_chat", _) => Box::new(Chat::whole()),
        (dialect, _) => test_client(dialect),
    };
    client.history().sets_breakpoints = upstream.gets_breakpoints_of(upstream.dialect);
    client
}

/// Changes the settings of a body to those that the upstream's model takes.
fn adjust(upstream: &Upstream, body: &mut Value) {
    match upstream.name {
        "anthropic, adaptive" | "anthropic, bound" => {
            body["thinking"] = json!({"type": "adaptive"});
        }
        "gemini 2.5" => {
            body["generationConfig"]["thinkingConfig"] =
                json!({"includeThoughts": true, "thinkingBudget": 4096});
        }
        "groq" => body["reasoning_effort"] = "default".into(),
        _ => {}
    }
}

/// How the hit rate of the upstream's own client over the gateway compares with the direct one.
fn is_as_direct(upstream: &Upstream, direct: CacheShare, share: CacheShare) -> bool {
    match upstream.name {
        // The models of such a server must not see the reasoning of earlier turns, so the gateway drops it.
        "think-tags" => share.hit_rate() >= MIN_SHARE * direct.hit_rate(),
        // The answers have to be parsed, so the history is written anew.
        "vllm" | "sglang" | "llamacpp" | "groq" | "ollama, chat" | "openai" => {
            (share.hit_rate() - direct.hit_rate()).abs() < 0.002
        }
        _ => share == direct,
    }
}

async fn start(upstream: &Upstream, session: &AgentSession) -> Simulator {
    upstream.start_with("one", &session.scenario()).await
}

/// The session of the upstream's own client, without the gateway.
async fn direct(upstream: &Upstream, session: &AgentSession) -> SeenSession {
    let simulator = start(upstream, session).await;
    let mut client = own_client(upstream);
    let adjust = |body: &mut Value| adjust(upstream, body);
    session.replay(&mut *client, &simulator.client, upstream.model, adjust).await;
    SeenSession::of(&simulator).await
}

/// The session of a client over the gateway. The upstream's own client sends what it would send without
/// the gateway.
async fn through_gateway(upstream: &Upstream, name: &str, session: &AgentSession) -> SeenSession {
    let simulator = start(upstream, session).await;
    let gateway = Gateway::start(BINARY, &upstream.backend("one", &simulator.url)).await;
    if name == OWN {
        let mut client = own_client(upstream);
        let adjust = |body: &mut Value| adjust(upstream, body);
        session.replay(&mut *client, &gateway.client, upstream.model, adjust).await;
    } else {
        let mut client = test_client(name);
        client.history().sets_breakpoints = upstream.gets_breakpoints_of(name);
        session.replay(&mut *client, &gateway.client, "some-model", |_| {}).await;
    }
    SeenSession::of(&simulator).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn recorded_session_is_cached_over_the_gateway_as_without_it() {
    std::panic::set_hook(Box::new(|_| {}));
    let only = std::env::var(ONLY).unwrap_or_default();
    let session = AgentSession::read();
    let mut mismatches = String::new();
    let mut table = table_head();
    let is_measured = |upstream: &&Upstream| upstream.has_cache() && !upstream.template_opens;
    for upstream in UPSTREAMS.iter().filter(is_measured) {
        let clients: Vec<&str> = [OWN]
            .into_iter()
            .chain(CLIENTS.iter().copied())
            .filter(|client| format!("{client} > {}", upstream.name).contains(&only))
            .collect();
        if clients.is_empty() {
            continue;
        }
        let direct = AssertUnwindSafe(direct(upstream, &session)).catch_unwind().await;
        let direct = match direct {
            Ok(direct) => direct.share,
            Err(panic) => {
                let _ = writeln!(mismatches, "{} directly: {}", upstream.name, panic_text(panic));
                continue;
            }
        };
        let run = async |client: &&str| {
            let run = AssertUnwindSafe(through_gateway(upstream, client, &session));
            run.catch_unwind().await.map_err(panic_text)
        };
        let runs = futures_util::stream::iter(&clients).map(run).buffered(AT_ONCE);
        let runs: Vec<Result<SeenSession, String>> = runs.collect().await;
        let _ = write!(table, "| {} | {} |", upstream.name, percent(direct.hit_rate()));
        for (client, run) in clients.iter().zip(runs) {
            let cell = format!("{client} > {}", upstream.name);
            let share = match run {
                Ok(run) => {
                    for mismatch in find_mismatches(upstream, client, direct, &run) {
                        let _ = writeln!(mismatches, "{cell}: {mismatch}");
                    }
                    run.share
                }
                Err(panic) => {
                    let _ = writeln!(mismatches, "{cell}: {panic}");
                    CacheShare::default()
                }
            };
            let _ = write!(table, " {} |", percent(share.hit_rate() / direct.hit_rate()));
        }
        table.push('\n');
    }
    let _ = std::panic::take_hook();
    println!("{table}");
    assert!(mismatches.is_empty(), "{mismatches}");
    if only.is_empty() {
        compare_with_docs("caching.md", |page| with_table(page, &table));
    }
}

/// The page with this table in place of its own.
fn with_table(page: &str, table: &str) -> String {
    let (before, rest) = page.split_once(TABLE_BEGIN).expect("where the table begins");
    let (documented, after) = rest.split_once(TABLE_END).expect("where the table ends");
    if is_close(documented.trim(), table.trim()) {
        return page.to_owned();
    }
    format!("{before}{TABLE_BEGIN}\n{table}{TABLE_END}{after}")
}

/// Whether two tables have the same cells, and percentages that differ by at most a half. Ids differ from
/// run to run, and with them a few tokens.
fn is_close(one: &str, other: &str) -> bool {
    let number = |cell: &str| cell.trim().strip_suffix(" %")?.parse::<f64>().ok();
    let is_close = |one: &str, other: &str| match (number(one), number(other)) {
        (Some(one), Some(other)) => (one - other).abs() <= 0.5,
        _ => one == other,
    };
    one.split('|').count() == other.split('|').count()
        && one.split('|').zip(other.split('|')).all(|(one, other)| is_close(one, other))
}

fn find_mismatches(
    upstream: &Upstream,
    client: &str,
    direct: CacheShare,
    run: &SeenSession,
) -> Vec<String> {
    let mut found = Vec::new();
    let (rate, direct_rate) = (run.share.hit_rate(), direct.hit_rate());
    if direct_rate < 0.5 {
        found.push(format!("the direct hit rate is only {}", percent(direct_rate)));
    }
    if client == OWN && !is_as_direct(upstream, direct, run.share) {
        found.push(format!("{:?} is not the direct {direct:?}", run.share));
    }
    if rate < MIN_SHARE * direct_rate {
        found.push(format!("hit rate {}, directly {}", percent(rate), percent(direct_rate)));
    }
    let pairs = run.bodies.windows(2).enumerate();
    let changed = pairs.filter_map(|(turn, pair)| {
        // A question ends a tool loop, and its reasoning is dropped, see `is_as_direct`.
        if upstream.name == "think-tags" && !ends_with_results(&pair[1]) {
            return None;
        }
        let difference = history_difference(&pair[0], &pair[1])?;
        Some(format!("request {} changes what {} said: {difference}", turn + 2, turn + 1))
    });
    found.extend(changed.take(3));
    found
}

/// Compares two requests of one conversation: the second one repeats the first one up to the end of
/// its history, byte by byte, and has the same settings. Breakpoints move, so they are not compared.
fn history_difference(earlier: &str, later: &str) -> Option<String> {
    let [earlier, later] = [earlier, later].map(|body| {
        let without = cache_breakpoints::remove(body.as_bytes());
        without.map_or(body.to_owned(), |without| String::from_utf8(without).expect("UTF-8"))
    });
    let (earlier, settings) = split_at_end_of_history(&earlier);
    let (later, later_settings) = split_at_end_of_history(&later);
    let at = earlier.bytes().zip(later.bytes()).take_while(|(one, other)| one == other).count();
    let (kind, one, other, at) = if at < earlier.len() {
        ("history", earlier, later, at)
    } else if settings != later_settings {
        let at = settings.bytes().zip(later_settings.bytes());
        let at = at.take_while(|(one, other)| one == other).count();
        ("settings", settings, later_settings, at)
    } else {
        return None;
    };
    let around = |text: &str| {
        let bytes = text.as_bytes();
        let around = &bytes[at.saturating_sub(80)..bytes.len().min(at + 120)];
        String::from_utf8_lossy(around).into_owned()
    };
    Some(format!("{kind}\n    {}\n    {}", around(one), around(other)))
}

/// Whether the last message of a chat request is the result of a tool.
fn ends_with_results(body: &str) -> bool {
    let body: Value = serde_json::from_str(body).expect("an object");
    let last = body["messages"].as_array().and_then(|messages| messages.last());
    last.is_some_and(|message| message["role"] == "tool")
}

/// Splits a body where the next turn is appended.
fn split_at_end_of_history(body: &str) -> (&str, &str) {
    let members: HashMap<String, &RawValue> = serde_json::from_str(body).expect("an object");
    let history = ["messages", "input", "contents"].iter().find_map(|name| members.get(*name));
    let history = history.expect("a history").get();
    let start = history.as_ptr() as usize - body.as_ptr() as usize;
    body.split_at(start + history.trim_end_matches(']').len())
}

fn percent(share: f64) -> String {
    format!("{:.1} %", share * 100.0)
}

fn table_head() -> String {
    let clients = CLIENTS.join(" | ");
    format!("| upstream | directly | {OWN} | {clients} |\n|{}\n", "---|".repeat(CLIENTS.len() + 3))
}
