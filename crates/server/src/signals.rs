//! The signals a process listens to. They are caught before it says that it is ready: a signal that
//! comes too early would end it.

use std::io;

use tokio::sync::Mutex;

#[cfg(unix)]
use tokio::signal::unix::{Signal, SignalKind, signal};

/// Caught signals.
#[cfg(unix)]
#[derive(Debug)]
pub struct Signals {
    terminate: Mutex<Signal>,
    interrupt: Mutex<Signal>,
    hang_up: Mutex<Signal>,
}

#[cfg(unix)]
impl Signals {
    /// Catches them from now on.
    pub fn catch() -> io::Result<Self> {
        Ok(Self {
            terminate: Mutex::new(signal(SignalKind::terminate())?),
            interrupt: Mutex::new(signal(SignalKind::interrupt())?),
            hang_up: Mutex::new(signal(SignalKind::hangup())?),
        })
    }

    /// Waits until the process is asked to stop.
    pub async fn stop(&self) {
        let (mut terminate, mut interrupt) =
            (self.terminate.lock().await, self.interrupt.lock().await);
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
    }

    /// Waits until the process is asked to read its configuration again.
    pub async fn reload(&self) {
        self.hang_up.lock().await.recv().await;
    }
}
