//! Connects to a server: as a process that speaks over its standard streams, or over HTTP.
//!
//! Servers of the stateless protocol (2026-07-28) answer `server/discover`; older ones want the
//! `initialize` handshake. The client asks first, and falls back.

use std::collections::VecDeque;
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use process_wrap::tokio::{CommandWrap, ProcessGroup};
use rmcp::model::{
    ClientCapabilities, ClientConfig, ElicitationCapability, FormElicitationCapability,
    Implementation, ProtocolVersion, SubscriptionFilter,
};
use rmcp::service::{
    ClientCacheConfig, ClientLifecycleMode, ClientServiceExt, MAX_CLIENT_CACHE_TTL, RunningService,
};
use rmcp::transport::streamable_http_client::StreamableHttpClientTransportConfig;
use rmcp::transport::{StreamableHttpClientTransport, TokioChildProcess};
use rmcp::{ClientHandler, RoleClient};
use tokio::io::{AsyncBufReadExt, AsyncRead, BufReader};
use tokio::process::Command;

use crate::server::{ServerConfig, ToolsError, Transport};

/// How long a connection may take.
const MAX_CONNECT: Duration = Duration::from_secs(30);
/// The variables that a process inherits. Keys of providers are not among them.
const INHERITED: &[&str] = &[
    "HOME",
    "LANG",
    "LC_ALL",
    "LOGNAME",
    "PATH",
    "SHELL",
    "TERM",
    "TMPDIR",
    "TZ",
    "USER",
    "XDG_CACHE_HOME",
    "XDG_CONFIG_HOME",
    "XDG_DATA_HOME",
];
/// How many of the last lines of a process are shown if it cannot be used.
const MAX_LINES: usize = 5;
/// The longest such line, in characters.
const MAX_LINE: usize = 300;
/// How many bytes of a line are kept until its end. A character has four at most.
const MAX_LINE_BYTES: usize = 4 * MAX_LINE;

/// How a connection begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lifecycle {
    /// With the stateless protocol if the server has it.
    Auto,
    /// With the handshake of older versions.
    Handshake,
}

/// This client.
#[derive(Clone, Debug)]
pub(crate) struct Handler;

impl ClientHandler for Handler {
    fn get_info(&self) -> ClientConfig {
        let mut capabilities = ClientCapabilities::default();
        let forms = ElicitationCapability::new().with_form(FormElicitationCapability::default());
        capabilities.elicitation = Some(forms);
        ClientConfig::new(
            capabilities,
            Implementation::new("throughline", env!("CARGO_PKG_VERSION")),
        )
    }
}

/// An open connection.
#[derive(Debug)]
pub(crate) struct Connection {
    pub(crate) service: RunningService<RoleClient, Handler>,
    /// The version of the protocol.
    pub(crate) protocol: String,
}

impl Connection {
    pub(crate) fn is_closed(&self) -> bool {
        self.service.is_closed() || self.service.peer().is_transport_closed()
    }

    /// Whether it began with the handshake of older versions.
    pub(crate) fn has_handshake(&self) -> bool {
        self.protocol.as_str() < ProtocolVersion::V_2026_07_28.as_str()
    }
}

/// Connects to a server.
pub(crate) async fn connect(
    config: &ServerConfig,
    lifecycle: Lifecycle,
) -> Result<Connection, ToolsError> {
    let last_lines = LastLines::default();
    let failed = |why: String| ToolsError::Unreachable { server: config.name.clone(), why };
    let connecting = open(config, lifecycle, &last_lines);
    let service = match tokio::time::timeout(MAX_CONNECT, connecting).await {
        Ok(opened) => opened.map_err(|why| failed(why + &last_lines.text()))?,
        Err(_) => {
            return Err(failed(format!("no answer within {MAX_CONNECT:?}{}", last_lines.text())));
        }
    };
    let peer = service.peer();
    // Older servers give no time: their list is good until they say that it has changed.
    let cache = ClientCacheConfig::default().with_default_ttl(MAX_CLIENT_CACHE_TTL);
    peer.set_response_cache_config(cache).await;
    let info = peer.peer_info();
    let protocol = info.as_ref().map(|info| info.protocol_version.to_string()).unwrap_or_default();
    let tells_changes = info
        .and_then(|info| info.capabilities.tools.clone())
        .is_some_and(|tools| tools.list_changed == Some(true));
    let connection = Connection { service, protocol };
    if tells_changes && !connection.has_handshake() {
        listen_for_changes(&connection);
    }
    Ok(connection)
}

/// Asks a server of the stateless protocol to report changes of its tools. The SDK then forgets
/// its list.
fn listen_for_changes(connection: &Connection) {
    let peer = connection.service.peer().clone();
    tokio::spawn(async move {
        let filter = SubscriptionFilter::builder().tools_list_changed().build();
        if let Ok(mut changes) = peer.listen(filter).await {
            while let Ok(Some(_)) = changes.next().await {}
        }
    });
}

async fn open(
    config: &ServerConfig,
    lifecycle: Lifecycle,
    last_lines: &LastLines,
) -> Result<RunningService<RoleClient, Handler>, String> {
    let first = serve(config, lifecycle, last_lines).await;
    match first {
        // Some servers end when they get a request before the handshake, or refuse it in their own way.
        Err(_) if lifecycle == Lifecycle::Auto => {
            last_lines.clear();
            serve(config, Lifecycle::Handshake, last_lines).await
        }
        first => first,
    }
}

async fn serve(
    config: &ServerConfig,
    lifecycle: Lifecycle,
    last_lines: &LastLines,
) -> Result<RunningService<RoleClient, Handler>, String> {
    match &config.transport {
        Transport::Process { command, environment } => {
            let process = spawn(command, environment, last_lines)?;
            Handler.serve_with_lifecycle(process, mode(lifecycle)).await
        }
        Transport::Http { url, token } => {
            // Fails if there is one already, which is as good.
            let _ = rustls::crypto::ring::default_provider().install_default();
            let mut settings = StreamableHttpClientTransportConfig::with_uri(url.as_str());
            settings.auth_header.clone_from(token);
            let transport = StreamableHttpClientTransport::from_config(settings);
            Handler.serve_with_lifecycle(transport, mode(lifecycle)).await
        }
    }
    .map_err(|error| reason(&error))
}

fn mode(lifecycle: Lifecycle) -> ClientLifecycleMode {
    match lifecycle {
        Lifecycle::Handshake => ClientLifecycleMode::Initialize,
        Lifecycle::Auto => ClientLifecycleMode::Auto {
            preferred_versions: vec![ProtocolVersion::V_2026_07_28],
            legacy_version: Some(ProtocolVersion::V_2025_11_25),
        },
    }
}

/// An error with its causes.
fn reason(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let cause_text = cause.to_string();
        if !text.contains(&cause_text) {
            text = format!("{text}: {cause_text}");
        }
        source = cause.source();
    }
    text
}

fn spawn(
    command: &[String],
    environment: &[(String, String)],
    last_lines: &LastLines,
) -> Result<TokioChildProcess, String> {
    let [program, arguments @ ..] = command else {
        return Err("its `command` is empty".to_owned());
    };
    let mut process = Command::new(program);
    process.args(arguments).env_clear();
    process.envs(INHERITED.iter().filter_map(|name| Some((name, std::env::var_os(name)?))));
    process.envs(environment.iter().map(|(name, value)| (name, value)));
    let mut wrapped = CommandWrap::from(process);
    // Launchers such as `npx` start the server as a child of theirs: both end together.
    wrapped.wrap(ProcessGroup::leader());
    let spawned = TokioChildProcess::builder(wrapped).stderr(Stdio::piped()).spawn();
    let (transport, stderr) =
        spawned.map_err(|error| format!("cannot run `{program}`: {error}"))?;
    if let Some(stderr) = stderr {
        last_lines.follow(stderr);
    }
    Ok(transport)
}

/// The last lines that a process has written to its standard error.
#[derive(Clone, Debug, Default)]
struct LastLines(Arc<Mutex<VecDeque<String>>>);

impl LastLines {
    fn follow(&self, stderr: impl AsyncRead + Send + Unpin + 'static) {
        let lines = self.clone();
        tokio::spawn(async move { lines.read(stderr).await });
    }

    /// Reads all of it, because a process stops if no one does. A line may be no text, or endless.
    async fn read(&self, stderr: impl AsyncRead + Unpin) {
        let mut stderr = BufReader::new(stderr);
        let mut line = Vec::new();
        loop {
            let piece = match stderr.fill_buf().await {
                Ok(piece) if !piece.is_empty() => piece,
                _ => break,
            };
            let end = piece.iter().position(|byte| *byte == b'\n');
            let text = &piece[..end.unwrap_or(piece.len())];
            let room = MAX_LINE_BYTES.saturating_sub(line.len());
            line.extend_from_slice(&text[..text.len().min(room)]);
            let taken = text.len() + usize::from(end.is_some());
            stderr.consume(taken);
            if end.is_some() {
                self.push(&line);
                line.clear();
            }
        }
        if !line.is_empty() {
            self.push(&line);
        }
    }

    fn push(&self, line: &[u8]) {
        let line = String::from_utf8_lossy(line);
        let mut lines = self.0.lock();
        lines.push_back(line.trim_end_matches('\r').chars().take(MAX_LINE).collect());
        if lines.len() > MAX_LINES {
            lines.pop_front();
        }
    }

    fn clear(&self) {
        self.0.lock().clear();
    }

    fn text(&self) -> String {
        let lines = self.0.lock();
        let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
        match lines.is_empty() {
            true => String::new(),
            false => format!("; its last lines: {}", lines.join(" | ")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A process stops if it writes to a pipe that is not read.
    #[tokio::test]
    async fn all_of_standard_error_is_read_in_bounded_lines() {
        let lines = LastLines::default();
        let long = [b"long ".as_slice(), &b"x".repeat(1 << 20)].concat();
        let written =
            [b"\xff\xfe not UTF-8\n".as_slice(), &long, b"\n\nlast, without an end"].concat();
        let mut rest = written.as_slice();
        lines.read(&mut rest).await;
        assert_eq!(rest.len(), 0, "all of it is read");
        let held: Vec<String> = lines.0.lock().iter().cloned().collect();
        let long: String = String::from_utf8_lossy(&long).chars().take(MAX_LINE).collect();
        assert_eq!(held, ["\u{fffd}\u{fffd} not UTF-8", long.as_str(), "", "last, without an end"]);
    }
}
