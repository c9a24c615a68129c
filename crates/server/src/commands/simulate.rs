//! `throughline simulate` and `throughline simulate-mcp`: run the strict provider, and the strict MCP
//! server.

use std::time::Duration;

use throughline_simulator::{McpOptions, Options, Scenario, serve_mcp, serve_mcp_on_stdio};
use tokio::net::TcpListener;

use super::{Failure, print};
use crate::cli::{McpProtocol, OnOff, Simulate, SimulateMcp};
use crate::signals::Signals;

/// How long the provider keeps a message thread after its last use.
const THREAD_LIFETIME: Duration = Duration::from_secs(300);

/// Runs the simulator until a stop signal.
pub async fn run(options: Simulate) -> Result<(), Failure> {
    let scenario = options.scenario.as_deref().map(Scenario::load);
    let scenario = scenario.transpose().map_err(|error| Failure::Usage(error.to_string()))?;
    let listener = bind(&options.listen).await?;
    let address = listener.local_addr().map_err(|error| Failure::Failed(error.to_string()))?;
    let signals = Signals::install().map_err(|error| Failure::Failed(error.to_string()))?;
    print(&format!("simulator `{}` listening on http://{address}", options.identity));
    let simulator = Options {
        dialects: options.dialect,
        variant: options.variant,
        identity: options.identity,
        seed: options.seed,
        tokens_per_second: options.tokens_per_second,
        prefix_binding: options.prefix_binding,
        threads: options.threads.then_some(THREAD_LIFETIME),
        strict: options.strict == OnOff::On,
        require_key: options.require_key,
        scenario,
        ..Options::default()
    };
    let stop = async move { signals.stop().await };
    throughline_simulator::serve(listener, simulator, stop)
        .await
        .map_err(|error| Failure::Failed(error.to_string()))
}

/// Runs the MCP server until a stop signal, or until its standard input is closed.
pub async fn run_mcp(options: SimulateMcp) -> Result<(), Failure> {
    let failed = |error: std::io::Error| Failure::Failed(error.to_string());
    let server = McpOptions {
        stateless: options.protocol != McpProtocol::Handshake,
        handshake: options.protocol != McpProtocol::Stateless,
        log: options.log,
        page: options.page,
    };
    let Some(listen) = options.listen else {
        serve_mcp_on_stdio(server).await;
        return Ok(());
    };
    let listener = bind(&listen).await?;
    let address = listener.local_addr().map_err(failed)?;
    let signals = Signals::install().map_err(failed)?;
    print(&format!("MCP server listening on http://{address}/mcp"));
    serve_mcp(listener, server, async move { signals.stop().await }).await.map_err(failed)
}

async fn bind(address: &str) -> Result<TcpListener, Failure> {
    TcpListener::bind(address).await.map_err(|error| {
        Failure::Failed(format!(
            "cannot listen on `{address}`: {error}; choose another address with --listen"
        ))
    })
}
