//! The HTTP server: its routes, reloads and shutdown.

use std::future::IntoFuture;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::middleware;
use axum::routing::{get, post};
use axum::serve::ListenerExt;
use tokio::net::TcpListener;

use crate::commands::Failure;
use crate::config::Config;
use crate::signals::Signals;
use crate::wiring::App;
use crate::{admin_api, client_api, cors, guard, projects_api};

/// How long the clients of requests that were cut off may take to receive the error.
const CUT_TIMEOUT: Duration = Duration::from_secs(2);

/// Serves until a stop signal, then lets requests in progress end and writes the thinking memory.
/// After `shutdown_grace` or a second signal, those that are left end with an error. `SIGHUP` reloads
/// the configuration.
pub async fn serve(
    listener: TcpListener,
    app: App,
    signals: Signals,
    reload: impl Fn() -> Result<Config, Failure>,
) -> std::io::Result<()> {
    let app = Arc::new(app);
    let router = routes(app.clone());
    // Each event is sent at once; waiting to fill packets would delay a stream.
    let listener = listener.tap_io(|stream| {
        if let Err(error) = stream.set_nodelay(true) {
            tracing::debug!(%error, "cannot set TCP_NODELAY");
        }
    });
    let mut stopping = app.stopping.subscribe();
    // The router itself as a service would be copied for each connection.
    let served = axum::serve(listener, router.into_make_service_with_connect_info::<SocketAddr>())
        .with_graceful_shutdown(async move {
            let _ = stopping.wait_for(|stop| *stop).await;
        })
        .into_future();
    tokio::pin!(served);
    loop {
        tokio::select! {
            result = &mut served => return result,
            () = signals.stop() => break,
            () = signals.reload() => reconfigure(&app, reload()).await,
        }
    }
    tracing::info!(in_progress = app.gateway.in_progress(), "stopping");
    app.stopping.send_replace(true);
    let drained = async {
        let result = (&mut served).await;
        app.drained().await;
        result
    };
    tokio::pin!(drained);
    let ended = tokio::select! {
        result = &mut drained => Some(result),
        () = tokio::time::sleep(app.shutdown_grace()) => None,
        () = signals.stop() => {
            tracing::warn!("second stop signal, stopping without waiting");
            None
        }
    };
    let result = match ended {
        Some(result) => result,
        None => {
            let in_progress = app.gateway.in_progress();
            tracing::warn!(in_progress, "requests in progress are cut off by the shutdown");
            app.gateway.end_requests();
            tokio::time::timeout(CUT_TIMEOUT, drained).await.unwrap_or(Ok(()))
        }
    };
    app.gateway.close().await;
    app.tools.close().await;
    result
}

fn routes(app: Arc<App>) -> Router {
    let router = Router::new();
    #[cfg(feature = "web")]
    let router = router.merge(crate::web_page::routes());
    router
        .route("/admin/backends", get(admin_api::backends))
        .route("/admin/switch", post(admin_api::switch))
        .route("/admin/thinking", get(admin_api::thinking))
        .route("/admin/turns", get(admin_api::turns))
        .route("/admin/turns/stream", get(admin_api::turns_stream))
        .route("/admin/turns/{id}", get(admin_api::turn))
        .route("/protocol", get(client_api::protocol::protocol))
        .route("/healthz", get(admin_api::healthz))
        .route("/readyz", get(admin_api::readyz))
        .route("/metrics", get(admin_api::metrics))
        .merge(projects_api::routes())
        .fallback(client_api::dispatch)
        .layer(middleware::from_fn_with_state(app.clone(), cors::cors_layer))
        .layer(middleware::from_fn_with_state(app.clone(), guard::check_host_and_origin))
        .with_state(app)
}

async fn reconfigure(app: &App, config: Result<Config, Failure>) {
    match config {
        Ok(config) => match app.configure(&config).await {
            Ok(()) => {
                let backends = app.gateway.settings().names();
                tracing::info!(backends, "configuration reloaded");
            }
            Err(error) => {
                tracing::error!(%error, "cannot use the new configuration; the old one stays");
            }
        },
        Err(failure) => {
            tracing::error!("the new configuration has mistakes; the old one stays\n{failure}");
        }
    }
}
