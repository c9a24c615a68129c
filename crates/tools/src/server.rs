//! One server: its connection, its list of tools, its calls.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use rmcp::model::{CallToolRequestParams, CallToolResponse, PaginatedRequestParams};
use rmcp::service::ServiceError;
use serde_json::{Map, Value};
use tokio::sync::Mutex as AsyncMutex;
use tokio::time::{Instant, timeout, timeout_at};

use crate::connection::{Connection, Lifecycle, connect};
use crate::input::{Asked, InputAnswer, PendingInput};
use crate::output::ToolOutput;

/// How many pages of a list are read.
const MAX_PAGES: usize = 100;
/// How many tools of a server are offered.
const MAX_TOOLS: usize = 1_000;
/// How often a call goes on at once, because the server asks for nothing.
const MAX_REPEATS: usize = 8;
/// The pause before that.
const REPEAT_PAUSE: Duration = Duration::from_millis(200);
/// How long a server may take to end.
const MAX_CLOSE: Duration = Duration::from_secs(5);

/// A configured server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerConfig {
    /// The unique name.
    pub name: String,
    /// How it is reached.
    pub transport: Transport,
    /// The tools that may be called, with `*` for any run of characters.
    pub allow: Vec<String>,
    /// The tools whose calls need an approval.
    pub approve: Vec<String>,
    /// How long a call may take.
    pub timeout: Duration,
}

/// How a server is reached.
#[derive(Clone, PartialEq, Eq)]
pub enum Transport {
    /// A process that speaks over its standard streams.
    Process {
        /// The program and its arguments.
        command: Vec<String>,
        /// Additional variables of its environment.
        environment: Vec<(String, String)>,
    },
    /// Streamable HTTP.
    Http {
        /// The address.
        url: String,
        /// The bearer token.
        token: Option<String>,
    },
}

impl std::fmt::Debug for Transport {
    /// Tokens and variables may be secret.
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Process { command, .. } => {
                formatter.debug_tuple("Process").field(command).finish()
            }
            Self::Http { url, .. } => formatter.debug_tuple("Http").field(url).finish(),
        }
    }
}

/// A tool as its server describes it.
#[derive(Clone, Debug, PartialEq)]
pub struct ListedTool {
    /// The server's name of it.
    pub name: String,
    /// What it does.
    pub description: Option<String>,
    /// The JSON Schema of its arguments.
    pub parameters: Value,
}

/// Why tools cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ToolsError {
    /// The configuration has no such server.
    #[error("there is no MCP server `{name}`")]
    UnknownServer {
        /// The name.
        name: String,
    },
    /// The server has no such tool, or the configuration does not allow it.
    #[error("the MCP server `{server}` has no tool `{tool}` that is allowed")]
    UnknownTool {
        /// The server.
        server: String,
        /// The tool.
        tool: String,
    },
    /// The server cannot be used now.
    #[error("the MCP server `{server}` cannot be used: {why}")]
    Unreachable {
        /// The server.
        server: String,
        /// Why.
        why: String,
    },
}

/// How a call ended.
#[derive(Clone, Debug, PartialEq)]
pub enum CallOutcome {
    /// The tool returned, or the call failed.
    Done(ToolOutput),
    /// The server asks a person first.
    InputRequired(Box<PendingInput>),
}

/// One server. It is connected when it is first used, and again after it has died.
#[derive(Debug)]
pub struct Server {
    /// Its configuration.
    pub config: ServerConfig,
    connection: AsyncMutex<Option<Arc<Connection>>>,
    /// Whether it wanted the handshake of older versions.
    has_handshake: AtomicBool,
    /// What is known about it without asking.
    last: Mutex<LastState>,
}

/// What was last seen of a server.
#[derive(Clone, Debug, Default)]
pub(crate) struct LastState {
    /// The version of the protocol, if it was ever connected.
    pub(crate) protocol: Option<String>,
    /// Why it could not be used, unless it could since then.
    pub(crate) error: Option<String>,
    pub(crate) tools: Option<Arc<Vec<ListedTool>>>,
}

impl Server {
    /// A server that is not connected yet.
    pub fn new(config: ServerConfig) -> Self {
        Self {
            config,
            connection: AsyncMutex::default(),
            has_handshake: AtomicBool::new(false),
            last: Mutex::default(),
        }
    }

    pub(crate) fn last(&self) -> LastState {
        self.last.lock().clone()
    }

    /// Whether it is connected now.
    pub(crate) fn is_connected(&self) -> bool {
        let connection = self.connection.try_lock();
        connection.is_ok_and(|open| open.as_ref().is_some_and(|open| !open.is_closed()))
    }

    async fn connection(&self) -> Result<Arc<Connection>, ToolsError> {
        let mut slot = self.connection.lock().await;
        if let Some(open) = slot.as_ref().filter(|open| !open.is_closed()) {
            return Ok(open.clone());
        }
        *slot = None;
        let lifecycle = match self.has_handshake.load(Ordering::Relaxed) {
            true => Lifecycle::Handshake,
            false => Lifecycle::Auto,
        };
        let connected = connect(&self.config, lifecycle).await;
        let mut last = self.last.lock();
        match connected {
            Ok(connection) => {
                self.has_handshake.store(connection.has_handshake(), Ordering::Relaxed);
                last.error = None;
                last.protocol = Some(connection.protocol.clone());
                let connection = Arc::new(connection);
                *slot = Some(connection.clone());
                Ok(connection)
            }
            Err(error) => {
                // It may be another version when it is back.
                self.has_handshake.store(false, Ordering::Relaxed);
                last.error = Some(error.to_string());
                tracing::warn!(server = self.config.name, "{error}");
                Err(error)
            }
        }
    }

    /// Forgets a connection that failed, so that the next use connects again.
    async fn forget(&self, failed: &Arc<Connection>) {
        let mut slot = self.connection.lock().await;
        if slot.as_ref().is_some_and(|open| Arc::ptr_eq(open, failed)) {
            *slot = None;
        }
    }

    fn unreachable(&self, why: impl Into<String>) -> ToolsError {
        let error = ToolsError::Unreachable { server: self.config.name.clone(), why: why.into() };
        self.last.lock().error = Some(error.to_string());
        error
    }

    /// The tools that may be called. If the server is down, those that it had before.
    pub async fn tools(&self) -> Result<Arc<Vec<ListedTool>>, ToolsError> {
        match self.list().await {
            Ok(tools) => {
                let mut last = self.last.lock();
                let tools = match last.tools.take().filter(|known| **known == tools) {
                    Some(known) => known,
                    None => Arc::new(tools),
                };
                last.tools = Some(tools.clone());
                Ok(tools)
            }
            Err(error) => self.last.lock().tools.clone().ok_or(error),
        }
    }

    async fn list(&self) -> Result<Vec<ListedTool>, ToolsError> {
        let connection = self.connection().await?;
        let deadline = Instant::now() + self.config.timeout;
        let mut tools = Vec::new();
        let mut cursor = None;
        for _ in 0..MAX_PAGES {
            let params = PaginatedRequestParams::default().with_cursor(cursor.take());
            let page = timeout_at(deadline, connection.service.list_tools(Some(params))).await;
            let page = match page {
                Ok(Ok(page)) => page,
                Ok(Err(error)) => {
                    self.forget(&connection).await;
                    return Err(self.unreachable(format!("it did not list its tools: {error}")));
                }
                Err(_) => {
                    let limit = self.config.timeout;
                    let why = format!("it did not list its tools within {limit:?}");
                    return Err(self.unreachable(why));
                }
            };
            tools.extend(page.tools.into_iter().filter(|tool| self.allows(&tool.name)).map(
                |tool| ListedTool {
                    name: tool.name.into_owned(),
                    description: tool.description.map(std::borrow::Cow::into_owned),
                    parameters: Value::Object((*tool.input_schema).clone()),
                },
            ));
            cursor = page.next_cursor;
            if cursor.is_none() || tools.len() >= MAX_TOOLS {
                break;
            }
        }
        tools.truncate(MAX_TOOLS);
        Ok(tools)
    }

    fn allows(&self, tool: &str) -> bool {
        self.config.allow.iter().any(|pattern| matches(pattern, tool))
    }

    /// Whether calls of a tool need an approval.
    pub fn needs_approval(&self, tool: &str) -> bool {
        self.config.approve.iter().any(|pattern| matches(pattern, tool))
    }

    /// Calls a tool, once. The call is not repeated, whatever happens: its output then says that it
    /// may have run.
    pub async fn call(&self, tool: &str, arguments: Map<String, Value>) -> CallOutcome {
        self.send(CallToolRequestParams::new(tool.to_owned()).with_arguments(arguments)).await
    }

    /// Goes on with a call whose server asked a person.
    pub async fn call_with_input(
        &self,
        tool: &str,
        arguments: Map<String, Value>,
        pending: &PendingInput,
        answer: &InputAnswer,
    ) -> CallOutcome {
        let (answers, state) = pending.answer(answer);
        let mut params = CallToolRequestParams::new(tool.to_owned()).with_arguments(arguments);
        params.input_responses = Some(answers);
        params.request_state = state;
        self.send(params).await
    }

    async fn send(&self, mut params: CallToolRequestParams) -> CallOutcome {
        let failed = |what: String| CallOutcome::Done(ToolOutput::error(what));
        let connection = match self.connection().await {
            Ok(connection) => connection,
            Err(error) => return failed(format!("{error}; the tool was not run")),
        };
        let limit = self.config.timeout;
        let deadline = Instant::now() + limit;
        for _ in 0..MAX_REPEATS {
            let call = connection.service.peer().call_tool_once(params.clone());
            let response = match timeout_at(deadline, call).await {
                Ok(Ok(response)) => response,
                Ok(Err(error)) => return failed(self.failure(&connection, error).await),
                Err(_) => {
                    let what =
                        format!("the tool did not return within {limit:?}; it may still run");
                    return failed(what);
                }
            };
            let required = match response {
                CallToolResponse::Complete(result) => {
                    return CallOutcome::Done(ToolOutput::read(result));
                }
                CallToolResponse::InputRequired(required) => required,
                _ => {
                    return failed(
                        "the tool runs as a task, which this client does not follow".to_owned(),
                    );
                }
            };
            match PendingInput::read(required) {
                Asked::Person(pending) => return CallOutcome::InputRequired(pending),
                Asked::Unsupported(what) => {
                    return failed(format!(
                        "the tool needs {what}, which this client does not give"
                    ));
                }
                Asked::Nothing(answers, state) => {
                    params.input_responses = Some(answers);
                    params.request_state = state;
                    tokio::time::sleep(REPEAT_PAUSE).await;
                }
            }
        }
        failed("the tool asks again and again for nothing; it was given up".to_owned())
    }

    /// The words for a call that failed.
    async fn failure(&self, connection: &Arc<Connection>, error: ServiceError) -> String {
        match error {
            // The server's own words: it refused the call.
            ServiceError::McpError(error) => {
                format!("the server refused the call: {}", error.message)
            }
            error => {
                self.forget(connection).await;
                let error = self.unreachable(error.to_string());
                format!("{error}; the tool may have run")
            }
        }
    }

    /// Ends the connection, and the process if there is one.
    pub async fn close(&self) {
        let open = self.connection.lock().await.take();
        let Some(open) = open else { return };
        match Arc::try_unwrap(open) {
            Ok(mut connection) => {
                let _ = connection.service.close_with_timeout(MAX_CLOSE).await;
            }
            // A call is under way: its end drops the connection.
            Err(open) => {
                open.service.cancellation_token().cancel();
                let closed = async {
                    while !open.service.peer().is_transport_closed() {
                        tokio::time::sleep(Duration::from_millis(10)).await;
                    }
                };
                let _ = timeout(MAX_CLOSE, closed).await;
            }
        }
    }
}

/// Whether a pattern with `*` for any run of characters matches a name.
fn matches(pattern: &str, name: &str) -> bool {
    match pattern.split_once('*') {
        None => pattern == name,
        Some((start, rest)) => name.strip_prefix(start).is_some_and(|tail| {
            let mut ends = (0..=tail.len()).filter(|at| tail.is_char_boundary(*at));
            ends.any(|at| matches(rest, &tail[at..]))
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn star_matches_any_run_of_characters() {
        for (pattern, name, expected) in [
            ("*", "", true),
            ("*", "anything", true),
            ("read_*", "read_file", true),
            ("read_*", "write_file", false),
            ("*_file", "read_file", true),
            ("r*d*e", "read_file", true),
            ("read", "read_file", false),
            ("ü*", "üb", true),
        ] {
            assert_eq!(matches(pattern, name), expected, "{pattern} {name}");
        }
    }
}
