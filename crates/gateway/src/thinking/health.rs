//! Whether a store accepts writes. Every writer of a store reports each result here; `/readyz`, the
//! metrics and the log show it.

use std::future::Future;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::{Instant, timeout};

use super::store::StoreError;
use crate::metrics::Counter;

/// How long the result of a write counts, before a check tries another one.
const RESULT_LASTS: Duration = Duration::from_secs(1);
/// How long a check may take.
const CHECK_TIMEOUT: Duration = Duration::from_secs(3);
/// How often a failure that goes on is logged.
const LOG_INTERVAL: Duration = Duration::from_secs(60);

/// What is known about the writes to one store.
#[derive(Debug)]
pub struct StoreHealth {
    name: &'static str,
    /// Writes that failed, including those that were retried.
    pub write_errors: Counter,
    /// Items that were never written.
    pub dropped: Counter,
    last: Mutex<LastWrite>,
    checking: tokio::sync::Mutex<()>,
}

#[derive(Debug, Default)]
struct LastWrite {
    at: Option<Instant>,
    /// Why it failed, if it did.
    failure: Option<String>,
    logged: Option<Instant>,
}

impl StoreHealth {
    /// A store that was not written yet. The name appears in metrics and in the log.
    pub fn new(name: &'static str) -> Self {
        Self {
            name,
            write_errors: Counter::default(),
            dropped: Counter::default(),
            last: Mutex::default(),
            checking: tokio::sync::Mutex::default(),
        }
    }

    /// The store's name.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// Records the result of a write.
    pub fn record<T>(&self, result: &Result<T, StoreError>) {
        match result {
            Ok(_) => self.record_success(),
            Err(error) => self.record_failure(error),
        }
    }

    fn record_success(&self) {
        let mut last = self.last.lock();
        last.at = Some(Instant::now());
        last.logged = None;
        if last.failure.take().is_some() {
            tracing::info!(store = self.name, "the store can be written again");
        }
    }

    fn record_failure(&self, error: &StoreError) {
        self.write_errors.increment();
        let mut last = self.last.lock();
        let now = Instant::now();
        last.at = Some(now);
        last.failure = Some(format!("{error}: {}", error.cause));
        // A full disk fails every write, many times a second.
        if last.logged.is_none_or(|at| now >= at + LOG_INTERVAL) {
            last.logged = Some(now);
            tracing::error!(
                store = self.name,
                write_errors = self.write_errors.get(),
                error = error as &dyn std::error::Error,
                "the store cannot be written"
            );
        }
    }

    /// Records that items will never be written.
    pub fn record_dropped(&self, items: usize, why: &str) {
        self.dropped.add(items as u64);
        tracing::error!(store = self.name, dropped = items, "not stored: {why}");
    }

    /// Why the last write failed, if it did.
    pub fn failure(&self) -> Option<String> {
        self.last.lock().failure.clone()
    }

    /// Why the store cannot be written. Tries a write with `check` unless the last result is recent.
    pub async fn check(
        &self,
        check: impl Future<Output = Result<(), StoreError>>,
    ) -> Option<String> {
        // Only one check at a time. Those that waited for it use its result.
        let _checking = self.checking.lock().await;
        if !self.is_recent() {
            let result = timeout(CHECK_TIMEOUT, check).await.unwrap_or_else(|elapsed| {
                Err(StoreError {
                    what: format!("cannot write the store `{}`", self.name),
                    cause: elapsed.into(),
                })
            });
            self.record(&result);
        }
        self.failure()
    }

    fn is_recent(&self) -> bool {
        self.last.lock().at.is_some_and(|at| Instant::now() < at + RESULT_LASTS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn full() -> Result<(), StoreError> {
        Err(StoreError { what: "cannot write the vault".into(), cause: "the disk is full".into() })
    }

    #[tokio::test]
    async fn check_tries_a_write_only_if_the_last_result_is_old() {
        let health = StoreHealth::new("vault");
        let no_check = || async { panic!("the last result is recent") };
        assert_eq!(
            health.check(async { full() }).await.unwrap(),
            "cannot write the vault: the disk is full"
        );
        assert!(health.check(no_check()).await.is_some());
        health.last.lock().at = None;
        assert_eq!(health.check(async { Ok(()) }).await, None);
        assert_eq!(health.check(no_check()).await, None);
        health.last.lock().at = None;
        assert!(health.check(async { full() }).await.is_some());
        assert_eq!(health.write_errors.get(), 2);
    }
}
