//! The clock of the prompt cache. A test can move it forward instead of waiting.

use std::time::{Duration, Instant};

use parking_lot::Mutex;

/// The time since the start of the simulator, and the time it was moved forward.
pub(crate) struct Clock {
    started: Instant,
    moved: Mutex<Duration>,
}

impl Clock {
    pub(crate) fn start() -> Self {
        Self { started: Instant::now(), moved: Mutex::default() }
    }

    pub(crate) fn now(&self) -> Duration {
        self.started.elapsed().saturating_add(*self.moved.lock())
    }

    /// Moves the clock forward.
    pub(crate) fn advance(&self, time: Duration) {
        let mut moved = self.moved.lock();
        *moved = moved.saturating_add(time);
    }
}
