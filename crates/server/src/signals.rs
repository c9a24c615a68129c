//! Signals that stop the process or reload its configuration. Their handlers are installed before the
//! process reports that it is ready: an earlier signal would kill it.

use std::io;

use tokio::sync::Mutex;

#[cfg(unix)]
use tokio::signal::unix::{Signal, SignalKind, signal};

/// Installed signal handlers.
#[cfg(unix)]
#[derive(Debug)]
pub struct Signals {
    terminate: Mutex<Signal>,
    interrupt: Mutex<Signal>,
    hang_up: Mutex<Signal>,
}

#[cfg(unix)]
impl Signals {
    /// Installs the handlers.
    pub fn install() -> io::Result<Self> {
        Ok(Self {
            terminate: Mutex::new(signal(SignalKind::terminate())?),
            interrupt: Mutex::new(signal(SignalKind::interrupt())?),
            hang_up: Mutex::new(signal(SignalKind::hangup())?),
        })
    }

    /// Waits for `SIGTERM` or `SIGINT`.
    pub async fn stop(&self) {
        let (mut terminate, mut interrupt) =
            (self.terminate.lock().await, self.interrupt.lock().await);
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
    }

    /// Waits for `SIGHUP`.
    pub async fn reload(&self) {
        self.hang_up.lock().await.recv().await;
    }
}
