//! The prompt cache of the upstream behind the gateway: a session of a coding agent is as well cached
//! as without the gateway, and the history is written the same from turn to turn. The hit rates
//! are in docs/caching.md.

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
use crate::table::{BLESS, ONLY, compare_with_docs, panic_text};
use crate::test_client::{ClientRequest, TestClient};
use crate::upstreams::{UPSTREAMS, Upstream};

/// The least share of the direct hit rate that every client reaches.
const MIN_SHARE: f64 = 0.95;
/// The column of the upstream's own client.
const OWN: &str = "same client";
/// The lines around the table in docs/caching.md.
const TABLE_BEGIN: &str = "<!-- hit rates, written by the test -->";
const TABLE_END: &str = "<!-- end of the hit rates -->";
/// The first column with a share, after the name and the direct hit rate.
const FIRST_SHARE: usize = 3;
/// The cell of a pair that did not send the whole session.
const NOT_MEASURED: &str = "not measured";
/// How many sessions run at the same time.
const AT_ONCE: usize = 4;
/// How many requests a pair sends that is not in [`WHOLE_SESSIONS`]: a tool loop with parallel calls and a
/// call without arguments, its end, the next question, and the first results after it.
const SHORT_SESSION: usize = 10;
/// The pairs that send the whole session in every run. The others do so if [`BLESS`] is set: what they
/// send is longer then, and has no new shapes.
const WHOLE_SESSIONS: &[(&str, &str)] = &[
    (OWN, "anthropic, budget"),
    ("openai_chat, reasoning dropped", "anthropic, budget"),
    ("openai_responses, history kept here", "anthropic, bound"),
    (OWN, "gemini 3"),
    ("anthropic", "gemini 3"),
    (OWN, "openai_responses"),
    ("anthropic", "openai_responses"),
    (OWN, "openai"),
    ("gemini, all dropped", "vllm"),
    (OWN, "think-tags"),
    ("ui_stream", "openrouter"),
];

/// What the simulator saw of one session.
struct SeenSession {
    shares: Vec<CacheShare>,
    bodies: Vec<String>,
}

impl SeenSession {
    async fn of(simulator: &Simulator) -> Self {
        let mut seen = Self { shares: Vec::new(), bodies: Vec::new() };
        for request in simulator.received().await {
            assert!(request.refusal.is_empty(), "refused: {}", request.refusal);
            seen.shares.push(request.cache);
            seen.bodies.push(request.body);
        }
        seen
    }

    /// The share of the first requests.
    fn share(&self, requests: usize) -> CacheShare {
        let mut sum = CacheShare::default();
        self.shares.iter().take(requests).for_each(|share| sum.add(*share));
        sum
    }
}

/// One session of a client over the gateway, with a simulator and a backend of its own.
struct GatewaySession {
    client: &'static str,
    /// The name of the backend.
    backend: String,
    simulator: Simulator,
    /// How many requests it sends.
    requests: usize,
}

/// The clients over one upstream, behind one gateway.
struct CacheBed<'a> {
    upstream: &'a Upstream,
    session: &'a AgentSession,
    gateway: Gateway,
    sessions: Vec<GatewaySession>,
}

impl<'a> CacheBed<'a> {
    async fn start(
        upstream: &'a Upstream,
        session: &'a AgentSession,
        clients: Vec<&'static str>,
    ) -> Self {
        let mut sessions = Vec::new();
        let mut config = String::new();
        for (at, client) in clients.into_iter().enumerate() {
            let backend = backend_name(at);
            let simulator = upstream.start_with(&backend, &session.scenario()).await;
            config.push_str(&upstream.backend(&backend, &simulator.url));
            let requests = session_length(upstream, client, session);
            sessions.push(GatewaySession { client, backend, simulator, requests });
        }
        let gateway = Gateway::start_with_configured_log(BINARY, &config).await;
        Self { upstream, session, gateway, sessions }
    }

    /// Sends one session. The upstream's own client sends what it would send without the gateway.
    async fn run(&self, run: &GatewaySession) -> SeenSession {
        let (mut client, model) = match run.client {
            OWN => (own_client(self.upstream), self.upstream.model),
            name => (test_client(name), "some-model"),
        };
        if run.client != OWN {
            client.history().sets_breakpoints = self.upstream.gets_breakpoints_of(run.client);
        }
        let adjust = |request: &mut ClientRequest| {
            if run.client == OWN {
                adjust(self.upstream, &mut request.body);
            }
            request.path = format!("/b/{}{}", run.backend, request.path);
        };
        let to = &self.gateway.client;
        self.session.replay(&mut *client, to, model, &run.backend, run.requests, adjust).await;
        SeenSession::of(&run.simulator).await
    }
}

/// The name of the backend for the client at this index. All names have the same length, because the cache
/// counts tokens.
fn backend_name(index: usize) -> String {
    format!("backend-{index:02}")
}

/// How many requests of the session a client sends over an upstream.
fn session_length(upstream: &Upstream, client: &str, session: &AgentSession) -> usize {
    let is_whole =
        std::env::var_os(BLESS).is_some() || WHOLE_SESSIONS.contains(&(client, upstream.name));
    if is_whole { session.len() } else { SHORT_SESSION }
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

/// The session of the upstream's own client, without the gateway.
async fn direct(upstream: &Upstream, session: &AgentSession, requests: usize) -> SeenSession {
    let simulator = upstream.start_with("one", &session.scenario()).await;
    let mut client = own_client(upstream);
    let adjust = |request: &mut ClientRequest| adjust(upstream, &mut request.body);
    let to = &simulator.client;
    session.replay(&mut *client, to, upstream.model, &backend_name(0), requests, adjust).await;
    SeenSession::of(&simulator).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn agent_session_is_cached_over_the_gateway_as_without_it() {
    std::panic::set_hook(Box::new(|_| {}));
    let only = std::env::var(ONLY).unwrap_or_default();
    let session = AgentSession::read();
    let mut mismatches = String::new();
    let mut table = table_head();
    let is_measured = |upstream: &&Upstream| upstream.has_cache() && !upstream.template_opens;
    for upstream in UPSTREAMS.iter().filter(is_measured) {
        let clients: Vec<&str> = [OWN]
            .into_iter()
            .chain(measured_clients())
            .filter(|client| format!("{client} > {}", upstream.name).contains(&only))
            .collect();
        if !clients.is_empty() {
            table.push_str(&run_upstream(upstream, &session, clients, &mut mismatches).await);
        }
    }
    let _ = std::panic::take_hook();
    println!("{table}");
    assert!(mismatches.is_empty(), "{mismatches}");
    if only.is_empty() {
        compare_with_docs("caching.md", |page| with_table(page, &table));
    }
}

/// The clients with a column. A client that replaces its history by summaries changes it on purpose.
/// That of a message thread becomes the body that the client `anthropic` sends.
fn measured_clients() -> impl Iterator<Item = &'static str> {
    let is_measured = |client: &&str| {
        !client.ends_with("compaction") && *client != "anthropic, history kept here"
    };
    CLIENTS.iter().copied().filter(is_measured)
}

/// Runs the sessions of all clients over an upstream, and returns the line of the table.
async fn run_upstream(
    upstream: &Upstream,
    session: &AgentSession,
    clients: Vec<&'static str>,
    mismatches: &mut String,
) -> String {
    let bed = CacheBed::start(upstream, session, clients).await;
    let most = bed.sessions.iter().map(|run| run.requests).max().unwrap_or_default();
    let direct = AssertUnwindSafe(direct(upstream, session, most)).catch_unwind().await;
    let direct = match direct.map_err(panic_text) {
        Ok(direct) => direct,
        Err(panic) => {
            let _ = writeln!(mismatches, "{} directly: {panic}", upstream.name);
            return String::new();
        }
    };
    let run = async |run: &GatewaySession| {
        AssertUnwindSafe(bed.run(run)).catch_unwind().await.map_err(panic_text)
    };
    let runs = futures_util::stream::iter(&bed.sessions).map(run).buffered(AT_ONCE);
    let runs: Vec<Result<SeenSession, String>> = runs.collect().await;
    let cell = |requests: usize, share: f64| match requests == session.len() {
        true => percent(share),
        false => NOT_MEASURED.to_owned(),
    };
    let direct_rate = direct.share(most).hit_rate();
    let mut line = format!("| {} | {} |", upstream.name, cell(most, direct_rate));
    for (run, seen) in bed.sessions.iter().zip(runs) {
        let direct = direct.share(run.requests);
        let found = match &seen {
            Ok(seen) => find_mismatches(upstream, run.client, direct, seen),
            Err(panic) => vec![panic.clone()],
        };
        for mismatch in found {
            let _ = writeln!(mismatches, "{} > {}: {mismatch}", run.client, upstream.name);
        }
        let rate = seen.map_or(0.0, |seen| seen.share(run.requests).hit_rate());
        let _ = write!(line, " {} |", cell(run.requests, rate / direct.hit_rate()));
    }
    line.push('\n');
    line
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

/// Whether the table in the docs has the cells of the other one, and percentages that differ by at most a
/// half. Ids differ from run to run, and with them a few tokens. A share that this run did not measure must
/// at least be one that a run may write.
fn is_close(documented: &str, table: &str) -> bool {
    let number = |cell: &str| cell.trim().strip_suffix(" %")?.parse::<f64>().ok();
    let is_close = |column: usize, one: &str, other: &str| match (number(one), number(other)) {
        (Some(one), Some(other)) => (one - other).abs() <= 0.5,
        (Some(one), None) => {
            other.trim() == NOT_MEASURED && (column < FIRST_SHARE || one >= 100.0 * MIN_SHARE)
        }
        _ => one == other,
    };
    let is_close_line = |(one, other): (&str, &str)| {
        let cells = one.split('|').zip(other.split('|')).enumerate();
        one.split('|').count() == other.split('|').count()
            && cells.into_iter().all(|(column, (one, other))| is_close(column, one, other))
    };
    documented.lines().count() == table.lines().count()
        && documented.lines().zip(table.lines()).all(is_close_line)
}

#[test]
fn documented_share_that_no_run_may_write_is_not_accepted() {
    let line = |direct: &str, share: &str| format!("| a | {direct} | {share} |");
    let other = line(NOT_MEASURED, NOT_MEASURED);
    for (direct, share, accepted) in
        [("91.0 %", "95.0 %", true), ("99.0 %", "94.9 %", false), ("99.0 %", "whole", false)]
    {
        assert_eq!(is_close(&line(direct, share), &other), accepted, "{direct}, {share}");
    }
    assert!(!is_close(&line("99.0 %", "97.0 %"), &line("99.0 %", "98.0 %")));
}

fn find_mismatches(
    upstream: &Upstream,
    client: &str,
    direct: CacheShare,
    run: &SeenSession,
) -> Vec<String> {
    let mut found = Vec::new();
    let share = run.share(run.shares.len());
    let (rate, direct_rate) = (share.hit_rate(), direct.hit_rate());
    // Some caches begin late in a short session.
    if direct_rate < 0.5 && run.shares.len() > SHORT_SESSION {
        found.push(format!("the direct hit rate is only {}", percent(direct_rate)));
    }
    // The end of a tool loop is a miss here, see `is_as_direct`. It weighs too much in a short session.
    let is_rated = upstream.name != "think-tags" || run.shares.len() > SHORT_SESSION;
    if is_rated && client == OWN && !is_as_direct(upstream, direct, share) {
        found.push(format!("{share:?} is not the direct {direct:?}"));
    }
    if is_rated && rate < MIN_SHARE * direct_rate {
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
    let clients: Vec<&str> = measured_clients().collect();
    let lines = "---|".repeat(clients.len() + 3);
    format!("| upstream | directly | {OWN} | {} |\n|{lines}\n", clients.join(" | "))
}
