//! Answers the messages of one connection, whichever transport brings them.

use serde_json::{Value, json};

use super::tools::{self, Called};
use super::{RpcError, STATELESS, Shared, WITH_HANDSHAKE, reply};

const VERSION: &str = "io.modelcontextprotocol/protocolVersion";
const CAPABILITIES: &str = "io.modelcontextprotocol/clientCapabilities";
/// How long lists may be kept, in milliseconds. Changes are reported.
const LIFETIME: u64 = 3_600_000;

/// How far the handshake is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Handshake {
    #[default]
    None,
    Begun,
    Done,
}

/// What a request gets.
pub(super) enum Answered {
    /// A reply.
    Reply(Value),
    /// Notifications about changes, with this id, until it is cancelled.
    Subscription(Value),
    /// Nothing, ever.
    Never,
}

/// Checks a request, and answers it.
pub(super) async fn answer(
    shared: &Shared,
    handshake: &mut Handshake,
    message: &Value,
) -> Answered {
    let id = &message["id"];
    let method = message["method"].as_str().unwrap_or_default();
    let params = &message["params"];
    // An older server knows neither the metadata nor what it means.
    let stateless = shared.options.stateless && !params["_meta"][VERSION].is_null();
    let checked = match stateless {
        true => check_metadata(params),
        false => check_handshake(shared, *handshake, method),
    };
    if let Err(error) = checked {
        return Answered::Reply(reply(id, Err(error)));
    }
    let result = match method {
        "initialize" => initialize(handshake, params),
        "ping" if !stateless => Ok(json!({})),
        "server/discover" if stateless => Ok(json!({
            "supportedVersions": [STATELESS],
            "capabilities": {"tools": {"listChanged": true}},
            "_meta": {"io.modelcontextprotocol/serverInfo": {"name": "simulator", "version": "1"}},
        })),
        "subscriptions/listen" if stateless => return Answered::Subscription(id.clone()),
        "tools/list" => tools::list(shared, params["cursor"].as_str()),
        "tools/call" => match tools::call(shared, params, stateless).await {
            Ok(Called::Result(result)) => Ok(result),
            Ok(Called::Never) => return Answered::Never,
            Err(error) => Err(error),
        },
        unknown => Err(RpcError::new(-32601, format!("unknown method `{unknown}`"))),
    };
    let result = result.map(|result| if stateless { complete(method, result) } else { result });
    Answered::Reply(reply(id, result))
}

/// Adds what every result of the stateless protocol has.
fn complete(method: &str, mut result: Value) -> Value {
    if result["resultType"].is_null() {
        result["resultType"] = "complete".into();
    }
    if matches!(method, "tools/list" | "server/discover") {
        result["ttlMs"] = LIFETIME.into();
        result["cacheScope"] = "private".into();
    }
    result
}

fn check_metadata(params: &Value) -> Result<(), RpcError> {
    let meta = &params["_meta"];
    if meta[VERSION] != STATELESS {
        let data = json!({"supported": [STATELESS], "requested": meta[VERSION]});
        let message = "unsupported protocol version".to_owned();
        return Err(RpcError { code: -32022, message, data: Some(data) });
    }
    match meta[CAPABILITIES].is_object() {
        true => Ok(()),
        false => Err(RpcError::invalid(format!("`_meta` has no `{CAPABILITIES}`"))),
    }
}

fn check_handshake(shared: &Shared, handshake: Handshake, method: &str) -> Result<(), RpcError> {
    if !shared.options.handshake {
        return Err(RpcError::invalid(format!("`_meta` has no `{VERSION}`")));
    }
    match (method, handshake) {
        ("initialize", Handshake::None) | ("ping", _) | (_, Handshake::Done) => Ok(()),
        ("initialize", _) => Err(RpcError::new(-32600, "initialize was sent twice")),
        (_, _) => Err(RpcError::new(-32600, "the handshake is not complete")),
    }
}

fn initialize(handshake: &mut Handshake, params: &Value) -> Result<Value, RpcError> {
    let version = params["protocolVersion"].as_str().unwrap_or_default();
    if !params["clientInfo"]["name"].is_string() || !params["capabilities"].is_object() {
        return Err(RpcError::invalid("`clientInfo` and `capabilities` are required"));
    }
    *handshake = Handshake::Begun;
    let known = WITH_HANDSHAKE.into_iter().find(|known| *known == version);
    Ok(json!({
        "protocolVersion": known.unwrap_or(WITH_HANDSHAKE[0]),
        "capabilities": {"tools": {"listChanged": true}},
        "serverInfo": {"name": "simulator", "version": "1"},
    }))
}

/// The notification that acknowledges a subscription.
pub(super) fn acknowledged(id: &Value) -> Value {
    json!({"jsonrpc": "2.0", "method": "notifications/subscriptions/acknowledged", "params": {
        "_meta": {"io.modelcontextprotocol/subscriptionId": id},
        "notifications": {"toolsListChanged": true},
    }})
}

/// The notification about a change of the list. `subscription` is that of the stateless protocol.
pub(super) fn changed(subscription: Option<&Value>) -> Value {
    let mut message = json!({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"});
    if let Some(id) = subscription {
        message["params"] = json!({"_meta": {"io.modelcontextprotocol/subscriptionId": id}});
    }
    message
}
