//! `throughline serve`: runs the gateway.

use tokio::net::TcpListener;

use super::{Failure, load, print};
use crate::cli::Serve;
use crate::config::Overrides;
use crate::panic_hook;
use crate::server;
use crate::signals::Signals;
use crate::telemetry;
use crate::wiring::App;

/// Runs the gateway until a stop signal.
pub async fn run(options: Serve) -> Result<(), Failure> {
    let overrides =
        || Overrides { listen: options.listen.clone(), data_dir: options.data_dir.clone() };
    let config = load(options.config.as_deref(), overrides())?;
    telemetry::start(&config);
    panic_hook::install();
    let listener = TcpListener::bind(&config.listen).await.map_err(|error| {
        Failure::Failed(format!(
            "cannot listen on `{}`: {error}; choose another address with --listen",
            config.listen
        ))
    })?;
    let address = listener.local_addr().map_err(|error| Failure::Failed(error.to_string()))?;
    let app = App::build(&config, address, options.new_keyring)
        .await
        .map_err(|error| Failure::Failed(error.to_string()))?;
    let signals = Signals::install().map_err(|error| Failure::Failed(error.to_string()))?;
    for note in &config.notes {
        tracing::warn!("{note}");
    }
    print(&format!("throughline listening on http://{address}"));
    tracing::info!(
        %address,
        data_dir = %config.data_dir.display(),
        active = &*app.gateway.active(),
        backends = app.gateway.settings().names(),
        "serving"
    );
    let reload = || load(options.config.as_deref(), overrides());
    server::serve(listener, app, signals, reload)
        .await
        .map_err(|error| Failure::Failed(error.to_string()))
}
