//! `throughline serve`: the gateway.

use tokio::net::TcpListener;

use super::{Failure, load, print};
use crate::cli::Serve;
use crate::config::Overrides;
use crate::server;
use crate::signals::Signals;
use crate::telemetry;
use crate::wiring::House;

/// Runs it until it is stopped.
pub async fn run(options: Serve) -> Result<(), Failure> {
    let overrides =
        || Overrides { listen: options.listen.clone(), data_dir: options.data_dir.clone() };
    let config = load(options.config.as_deref(), overrides())?;
    telemetry::start(&config);
    let listener = TcpListener::bind(&config.listen).await.map_err(|error| {
        Failure::Failed(format!(
            "cannot listen on `{}`: {error}; another address can be given with --listen",
            config.listen
        ))
    })?;
    let address = listener.local_addr().map_err(|error| Failure::Failed(error.to_string()))?;
    let house =
        House::build(&config, address).await.map_err(|error| Failure::Failed(error.to_string()))?;
    let signals = Signals::catch().map_err(|error| Failure::Failed(error.to_string()))?;
    for note in &config.notes {
        tracing::warn!("{note}");
    }
    print(&format!("throughline listening on http://{address}"));
    tracing::info!(
        %address,
        data_dir = %config.data_dir.display(),
        active = &*house.gateway.active(),
        backends = house.gateway.settings().names(),
        "serving"
    );
    let reload = || load(options.config.as_deref(), overrides());
    server::serve(listener, house, signals, reload)
        .await
        .map_err(|error| Failure::Failed(error.to_string()))
}
