//! A strict MCP server with a few tools, over standard streams or HTTP. It speaks the stateless
//! protocol of 2026-07-28 and the handshake of older versions, and refuses what the protocol forbids:
//! requests before the handshake, requests without metadata, wrong headers.
//!
//! - `tools`: what it offers; - `session`: answers one message; - `stdio`, `http`: the transports.

mod http;
mod session;
mod stdio;
mod tools;

use std::io::Write;
use std::path::PathBuf;
use std::sync::atomic::AtomicBool;

use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::sync::watch;

pub use self::http::serve as serve_mcp;
pub use self::stdio::serve as serve_mcp_on_stdio;

/// The stateless version.
const STATELESS: &str = "2026-07-28";
/// The versions with a handshake, newest first.
const WITH_HANDSHAKE: [&str; 4] = ["2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05"];

/// What the server speaks and does.
#[derive(Clone, Debug)]
pub struct McpOptions {
    /// Whether it answers `server/discover`.
    pub stateless: bool,
    /// Whether it answers `initialize`.
    pub handshake: bool,
    /// The file that gets one line of JSON per call, before the tool runs.
    pub log: Option<PathBuf>,
    /// How many tools one page of the list has.
    pub page: usize,
}

impl Default for McpOptions {
    fn default() -> Self {
        Self { stateless: true, handshake: true, log: None, page: 100 }
    }
}

/// What all connections of a server share.
#[derive(Debug)]
struct Shared {
    options: McpOptions,
    /// Whether the tool `grow` has added a tool.
    has_grown: AtomicBool,
    /// Counts the changes of the list of tools.
    changes: watch::Sender<u64>,
    log: Mutex<()>,
}

impl Shared {
    fn new(options: McpOptions) -> Self {
        let changes = watch::Sender::new(0);
        Self { options, has_grown: AtomicBool::new(false), changes, log: Mutex::new(()) }
    }

    /// Logs a call. A log that cannot be written is no reason to refuse it.
    fn record(&self, tool: &str, arguments: &Value) {
        let Some(path) = &self.options.log else { return };
        let _held = self.log.lock();
        let line = json!({"tool": tool, "arguments": arguments});
        if let Ok(mut file) = std::fs::OpenOptions::new().create(true).append(true).open(path) {
            let _ = writeln!(file, "{line}");
        }
    }
}

/// An error of JSON-RPC.
#[derive(Clone, Debug, PartialEq, Eq)]
struct RpcError {
    code: i64,
    message: String,
    data: Option<Value>,
}

impl RpcError {
    fn new(code: i64, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), data: None }
    }

    fn invalid(message: impl Into<String>) -> Self {
        Self::new(-32602, message)
    }

    fn write(&self) -> Value {
        let mut error = json!({"code": self.code, "message": self.message});
        if let Some(data) = &self.data {
            error["data"] = data.clone();
        }
        error
    }
}

/// The reply to a request.
fn reply(id: &Value, result: Result<Value, RpcError>) -> Value {
    match result {
        Ok(result) => json!({"jsonrpc": "2.0", "id": id, "result": result}),
        Err(error) => json!({"jsonrpc": "2.0", "id": id, "error": error.write()}),
    }
}
