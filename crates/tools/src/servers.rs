//! All configured servers, and the tools that a conversation asks for.

use std::collections::HashSet;
use std::sync::Arc;

use parking_lot::RwLock;
use serde::Serialize;
use serde_json::Value;
use throughline_canonical::Tool;

use crate::names::model_name;
use crate::server::{Server, ServerConfig, ToolsError, Transport};

/// All configured servers.
#[derive(Debug, Default)]
pub struct Servers {
    servers: RwLock<Vec<Arc<Server>>>,
}

/// A tool that is offered to a model.
#[derive(Clone, Debug)]
pub struct OfferedTool {
    /// The name under which the model sees it.
    pub name: String,
    /// The server.
    pub server: Arc<Server>,
    /// The server's name of it.
    pub tool: String,
    /// What it does.
    pub description: Option<String>,
    /// The JSON Schema of its arguments.
    pub parameters: Value,
    /// Whether calls need an approval.
    pub needs_approval: bool,
}

/// The tools that a conversation may use.
#[derive(Clone, Debug, Default)]
pub struct ToolSet {
    /// The tools, in the order in which they were asked for.
    pub tools: Vec<OfferedTool>,
}

impl ToolSet {
    /// The tool with this name.
    pub fn find(&self, name: &str) -> Option<&OfferedTool> {
        self.tools.iter().find(|tool| tool.name == name)
    }

    /// The tools as a request has them.
    pub fn requested(&self) -> impl Iterator<Item = Tool> {
        self.tools.iter().map(|tool| Tool::Function {
            name: tool.name.clone(),
            description: tool.description.clone(),
            parameters: tool.parameters.clone(),
            strict: None,
        })
    }
}

/// Whether a server is used now.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ServerState {
    /// It is connected.
    Connected,
    /// It is connected when it is needed.
    Idle,
    /// It could not be used the last time.
    Failed,
}

/// A server as the API shows it.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ServerView {
    /// The name.
    pub name: String,
    /// `stdio` or `http`.
    pub transport: &'static str,
    /// Whether it is used now.
    pub state: ServerState,
    /// Why it could not be used.
    pub error: Option<String>,
    /// The version of the protocol, if it was connected.
    pub protocol: Option<String>,
    /// The tools that may be called.
    pub tools: Vec<ToolView>,
}

/// A tool as the API shows it.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ToolView {
    /// The name for `tools` in requests: `server/tool`.
    pub name: String,
    /// The name under which models see it.
    pub model_name: String,
    /// What it does.
    pub description: Option<String>,
    /// The JSON Schema of its arguments.
    pub parameters: Value,
    /// Whether calls need an approval.
    pub needs_approval: bool,
}

impl Servers {
    /// Servers with these configurations. None is connected yet.
    pub fn new(configs: Vec<ServerConfig>) -> Self {
        let servers = configs.into_iter().map(|config| Arc::new(Server::new(config))).collect();
        Self { servers: RwLock::new(servers) }
    }

    /// Applies new configurations. A server whose configuration is the same stays connected; others
    /// end, as soon as their calls have.
    pub fn configure(&self, configs: Vec<ServerConfig>) {
        let mut servers = self.servers.write();
        let keep = |config: ServerConfig| {
            let same = servers.iter().find(|server| server.config == config);
            same.cloned().unwrap_or_else(|| Arc::new(Server::new(config)))
        };
        *servers = configs.into_iter().map(keep).collect();
    }

    /// The configured servers.
    pub fn all(&self) -> Vec<Arc<Server>> {
        self.servers.read().clone()
    }

    fn find(&self, name: &str) -> Result<Arc<Server>, ToolsError> {
        let servers = self.servers.read();
        let found = servers.iter().find(|server| server.config.name == name);
        found.cloned().ok_or_else(|| ToolsError::UnknownServer { name: name.to_owned() })
    }

    /// The tools with these names: `server` for all tools of a server, or `server/tool`.
    pub async fn resolve(&self, names: &[String]) -> Result<ToolSet, ToolsError> {
        let mut set = ToolSet::default();
        let mut taken = HashSet::new();
        for name in names {
            let (server, tool) = match name.split_once('/') {
                Some((server, tool)) => (server, Some(tool)),
                None => (name.as_str(), None),
            };
            let server = self.find(server)?;
            let listed = server.tools().await?;
            let before = set.tools.len();
            for found in listed.iter().filter(|listed| tool.is_none_or(|tool| tool == listed.name))
            {
                let is_known = |offered: &OfferedTool| {
                    Arc::ptr_eq(&offered.server, &server) && offered.tool == found.name
                };
                if set.tools.iter().any(is_known) {
                    continue;
                }
                let name = model_name(&server.config.name, &found.name, &taken);
                taken.insert(name.clone());
                set.tools.push(OfferedTool {
                    name,
                    server: server.clone(),
                    tool: found.name.clone(),
                    description: found.description.clone(),
                    parameters: found.parameters.clone(),
                    needs_approval: server.needs_approval(&found.name),
                });
            }
            let is_repeated = |tool: &str| {
                set.tools
                    .iter()
                    .any(|offered| Arc::ptr_eq(&offered.server, &server) && offered.tool == tool)
            };
            if let Some(tool) = tool
                && set.tools.len() == before
                && !is_repeated(tool)
            {
                let server = server.config.name.clone();
                return Err(ToolsError::UnknownTool { server, tool: tool.to_owned() });
            }
        }
        Ok(set)
    }

    /// All servers with their tools. Servers that are not connected are asked now.
    pub async fn views(&self) -> Vec<ServerView> {
        let servers = self.all();
        let mut views = Vec::with_capacity(servers.len());
        let listing: Vec<_> = servers
            .iter()
            .map(|server| {
                let server = server.clone();
                tokio::spawn(async move { server.tools().await })
            })
            .collect();
        for (server, listing) in servers.iter().zip(listing) {
            // What it said is in its last state.
            let _ = listing.await;
            views.push(view(server));
        }
        views
    }

    /// Ends all connections and processes.
    pub async fn close(&self) {
        let closing: Vec<_> = self
            .all()
            .into_iter()
            .map(|server| tokio::spawn(async move { server.close().await }))
            .collect();
        for closed in closing {
            let _ = closed.await;
        }
    }
}

fn view(server: &Server) -> ServerView {
    let last = server.last();
    let state = match (server.is_connected(), &last.error) {
        (_, Some(_)) => ServerState::Failed,
        (true, None) => ServerState::Connected,
        (false, None) => ServerState::Idle,
    };
    let mut taken = HashSet::new();
    let tools = last.tools.as_deref().map(Vec::as_slice).unwrap_or_default().iter().map(|tool| {
        let model_name = model_name(&server.config.name, &tool.name, &taken);
        taken.insert(model_name.clone());
        ToolView {
            name: format!("{}/{}", server.config.name, tool.name),
            model_name,
            description: tool.description.clone(),
            parameters: tool.parameters.clone(),
            needs_approval: server.needs_approval(&tool.name),
        }
    });
    ServerView {
        name: server.config.name.clone(),
        transport: match server.config.transport {
            Transport::Process { .. } => "stdio",
            Transport::Http { .. } => "http",
        },
        state,
        error: last.error,
        protocol: last.protocol,
        tools: tools.collect(),
    }
}
