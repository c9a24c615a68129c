//! `GET /protocol`: what a client that expects a gateway can rely on. Which endpoints there are, which
//! headers and members of a request reach a backend of the client's dialect unchanged, and which ones
//! the gateway consumes.

use axum::Json;
use serde_json::{Value, json};
use throughline_codec::dialects::client_headers::{KEYS, SESSIONS};
use throughline_codec::dialects::{CLIENT, Operation, anthropic};
use throughline_gateway::headers::{HOP_BY_HOP, OWN_PREFIX, OWN_VALUES};

/// The public page of the contract.
const CONTRACT: &str = "https://code.claude.com/docs/en/llm-gateway-protocol";

/// Answers `GET /protocol`.
pub async fn protocol() -> Json<Value> {
    let endpoints = CLIENT.iter().find(|dialect| dialect.name() == anthropic::NAME);
    let paths = endpoints.map_or(&[][..], |dialect| dialect.defaults().paths);
    let endpoint = |(path, operation): &(&str, Operation)| {
        let optional = *operation != Operation::Generate;
        json!({"method": "POST", "path": path, "optional": optional})
    };
    let mut endpoints: Vec<Value> = paths.iter().map(endpoint).collect();
    endpoints.push(json!({"method": "GET", "path": "/v1/models", "optional": true}));
    let own = format!("{OWN_PREFIX}*");
    let consumed = HOP_BY_HOP.iter().chain(&OWN_VALUES).copied().chain([own.as_str()]);
    Json(json!({
        "name": "throughline",
        "version": env!("CARGO_PKG_VERSION"),
        "contract": CONTRACT,
        "formats": [{
            "format": "anthropic_messages",
            "client_setting": "ANTHROPIC_BASE_URL",
            "endpoints": endpoints,
            "matched_by": "path; the query is forwarded",
        }],
        "applies_to": "backends of the Anthropic dialect; for others the request is translated, and \
                       the header `x-throughline-loss` lists what could not be carried",
        "request_headers": {
            "forward_unchanged": ["anthropic-beta", "anthropic-version"],
            "others": "forwarded unchanged, unless they are consumed",
            "consume": consumed.collect::<Vec<_>>(),
            "consume_if_the_backend_has_its_own_key": KEYS,
            "read_and_forward": SESSIONS,
            "add": ["a value of `anthropic-beta`, where the prefix guard asks the provider to drop \
                     thinking that it would refuse"],
        },
        "request_body": {
            "forward_unchanged": "every member and every byte that is not listed below, the line of \
                                  the system text about billing too",
            "consume": [{
                "member": "thread",
                "why": "message threads are kept here; a backend gets the whole conversation",
            }],
            "edit": [
                {"member": "model", "when": "`models` of the backend maps its name"},
                {"member": "thinking", "when": "`thinking_compat` of the backend, an open tool loop \
                    without its thinking, or the prefix guard"},
                {"member": "messages", "when": "thinking that the backend cannot read is left out, \
                    thinking that the client dropped in an open tool loop is put back"},
            ],
        },
        "response": {
            "forward_unchanged": "all bytes; a keep-alive may be added between two events, and an \
                                  error event if the provider stops early",
            "add_headers": [own],
        },
    }))
}
