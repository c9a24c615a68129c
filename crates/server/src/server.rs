//! The HTTP server: its routes, its guards, and how it stops.

use std::future::IntoFuture;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::{Request, State};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::serve::ListenerExt;
use http::StatusCode;
use tokio::net::TcpListener;

use crate::commands::Failure;
use crate::config::Config;
use crate::signals::Signals;
use crate::wiring::House;
use crate::{admin_api, client_api, cors};

/// How long streams in progress may go on after a stop.
const DRAIN: Duration = Duration::from_secs(25);

/// Serves until a stop signal, then lets streams in progress end and writes what is remembered.
/// `SIGHUP` reads the configuration again.
pub async fn serve(
    listener: TcpListener,
    house: House,
    signals: Signals,
    reload: impl Fn() -> Result<Config, Failure>,
) -> std::io::Result<()> {
    let house = Arc::new(house);
    let app = routes(house.clone());
    // Every event goes out at once; waiting to fill packets would hold up a stream.
    let listener = listener.tap_io(|stream| {
        if let Err(error) = stream.set_nodelay(true) {
            tracing::debug!(%error, "cannot set TCP_NODELAY");
        }
    });
    let mut draining = house.stopping.subscribe();
    let served = axum::serve(listener, app)
        .with_graceful_shutdown(async move {
            let _ = draining.wait_for(|stop| *stop).await;
        })
        .into_future();
    tokio::pin!(served);
    loop {
        tokio::select! {
            result = &mut served => return result,
            () = signals.stop() => break,
            () = signals.reload() => reconfigure(&house, reload()).await,
        }
    }
    tracing::info!(in_progress = house.gateway.in_progress(), "stopping");
    house.stopping.send_replace(true);
    let drained = async {
        let result = (&mut served).await;
        // Some turns outlive their connections, or have none that is waited for.
        house.gateway.idle().await;
        house.responses.runs_ended().await;
        result
    };
    tokio::select! {
        result = drained => result?,
        () = tokio::time::sleep(DRAIN) => {
            tracing::warn!(in_progress = house.gateway.in_progress(), "streams cut to stop");
        }
        () = signals.stop() => tracing::warn!("stopped at once"),
    }
    house.gateway.flush().await;
    Ok(())
}

fn routes(house: Arc<House>) -> Router {
    Router::new()
        .route("/admin/backends", get(admin_api::backends))
        .route("/admin/switch", post(admin_api::switch))
        .route("/admin/thinking", get(admin_api::thinking))
        .route("/admin/turns", get(admin_api::turns))
        .route("/admin/turns/stream", get(admin_api::turns_stream))
        .route("/healthz", get(admin_api::healthy))
        .route("/readyz", get(admin_api::ready))
        .route("/metrics", get(admin_api::numbers))
        .fallback(client_api::any)
        .layer(middleware::from_fn_with_state(house.clone(), cors::permit))
        .layer(middleware::from_fn_with_state(house.clone(), guard))
        .with_state(house)
}

/// Turns away what was not meant for this server.
async fn guard(State(house): State<Arc<House>>, request: Request, next: Next) -> Response {
    if !house.meant(request.uri(), request.headers()) {
        let hint = "this server does not answer to that Host; add it to `allowed_hosts`\n";
        return (StatusCode::MISDIRECTED_REQUEST, hint).into_response();
    }
    if admin_api::is_operators(request.uri().path()) && house.foreign_page(request.headers()) {
        return (StatusCode::FORBIDDEN, "pages from elsewhere may not do this\n").into_response();
    }
    if cors::comes_unasked(request.method(), request.headers())
        && house.uninvited_page(request.headers())
    {
        let hint = "pages from elsewhere may not ask this way; send `content-type: application/json`, \
                    or add their origin to `cors_origins`\n";
        return (StatusCode::FORBIDDEN, hint).into_response();
    }
    next.run(request).await
}

async fn reconfigure(house: &House, config: Result<Config, Failure>) {
    match config {
        Ok(config) => match house.configure(&config).await {
            Ok(()) => tracing::info!(
                backends = house.gateway.settings().names(),
                "configuration read again"
            ),
            Err(error) => {
                tracing::error!(%error, "the new configuration could not be used; the old one stays");
            }
        },
        Err(failure) => {
            tracing::error!("the new configuration has mistakes; the old one stays\n{failure}");
        }
    }
}
