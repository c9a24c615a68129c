//! MCP over standard streams: one JSON message per line.

use std::collections::HashMap;
use std::io::Write;
use std::sync::Arc;

use parking_lot::Mutex;
use serde_json::Value;
use tokio::sync::mpsc;
use tokio::task::AbortHandle;

use super::session::{Answered, Handshake, acknowledged, answer, changed};
use super::{McpOptions, Shared};

/// Serves one client on the standard streams, until they are closed.
pub async fn serve(options: McpOptions) {
    let shared = Arc::new(Shared::new(options));
    let (out, mut written) = mpsc::channel::<Value>(64);
    // The standard streams block, so each has a thread of its own.
    std::thread::spawn(move || {
        let mut stdout = std::io::stdout();
        while let Some(message) = written.blocking_recv() {
            let written = writeln!(stdout, "{message}").and_then(|()| stdout.flush());
            if written.is_err() {
                return;
            }
        }
    });
    let (read, mut lines) = mpsc::channel::<String>(64);
    std::thread::spawn(move || {
        for line in std::io::stdin().lines().map_while(Result::ok) {
            if read.blocking_send(line).is_err() {
                return;
            }
        }
    });
    let mut handshake = Handshake::None;
    let running: Arc<Mutex<HashMap<String, AbortHandle>>> = Arc::default();
    while let Some(line) = lines.recv().await {
        let Ok(message) = serde_json::from_str::<Value>(&line) else { continue };
        match message["method"].as_str() {
            Some("notifications/initialized") if handshake == Handshake::Begun => {
                handshake = Handshake::Done;
                let (shared, out) = (shared.clone(), out.clone());
                tokio::spawn(async move { report_changes(&shared, None, &out).await });
            }
            Some("notifications/cancelled") => {
                let id = message["params"]["requestId"].to_string();
                if let Some(call) = running.lock().remove(&id) {
                    call.abort();
                }
            }
            // The handshake is answered before anything else is read.
            Some("initialize") => {
                if let Answered::Reply(reply) = answer(&shared, &mut handshake, &message).await {
                    let _ = out.send(reply).await;
                }
            }
            Some(_) if !message["id"].is_null() => {
                let (shared, out, state) = (shared.clone(), out.clone(), handshake);
                let id = message["id"].to_string();
                let task =
                    tokio::spawn(async move { respond(&shared, state, &message, &out).await });
                running.lock().insert(id, task.abort_handle());
            }
            _ => {}
        }
    }
    for (_, task) in running.lock().drain() {
        task.abort();
    }
}

async fn respond(
    shared: &Shared,
    mut handshake: Handshake,
    message: &Value,
    out: &mpsc::Sender<Value>,
) {
    match answer(shared, &mut handshake, message).await {
        Answered::Reply(reply) => {
            let _ = out.send(reply).await;
        }
        Answered::Subscription(id) => {
            let _ = out.send(acknowledged(&id)).await;
            report_changes(shared, Some(&id), out).await;
        }
        Answered::Never => std::future::pending().await,
    }
}

/// Reports changes of the list of tools as they happen.
async fn report_changes(shared: &Shared, subscription: Option<&Value>, out: &mpsc::Sender<Value>) {
    let mut changes = shared.changes.subscribe();
    while changes.changed().await.is_ok() {
        if out.send(changed(subscription)).await.is_err() {
            return;
        }
    }
}
