//! `throughline simulate`: runs the strict provider.

use std::time::Duration;

use throughline_simulator::{Options, Scenario};
use tokio::net::TcpListener;

use super::{Failure, print};
use crate::cli::{OnOff, Simulate};
use crate::signals::Signals;

/// How long the provider keeps a message thread after its last use.
const THREAD_LIFETIME: Duration = Duration::from_secs(300);

/// Runs the simulator until a stop signal.
pub async fn run(options: Simulate) -> Result<(), Failure> {
    let scenario = options.scenario.as_deref().map(Scenario::load);
    let scenario = scenario.transpose().map_err(|error| Failure::Usage(error.to_string()))?;
    let listener = TcpListener::bind(&options.listen).await.map_err(|error| {
        Failure::Failed(format!(
            "cannot listen on `{}`: {error}; choose another address with --listen",
            options.listen
        ))
    })?;
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
