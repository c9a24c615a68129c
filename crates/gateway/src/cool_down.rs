//! Which backends fail, and for how long other backends answer for them.
//!
//! A backend that cannot be reached fails for all requests. One that answers too late, with 429 or
//! with 5xx may do so for one model only. Such a backend *cools down*: requests that have another
//! backend to go to do not wait for it. Then one request tries it again.

use std::collections::HashMap;
use std::fmt;
use std::time::{Duration, Instant};

use http::StatusCode;
use parking_lot::RwLock;

/// The longest pause after repeated failures, unless the backend asks for a longer one.
const MAX_PAUSE: Duration = Duration::from_secs(60);
/// The longest pause that a backend can ask for.
const MAX_RETRY_AFTER: Duration = Duration::from_secs(60 * 60);
/// How many failures are remembered. Clients choose the names of models.
const MAX_FAILURES: usize = 1000;

/// What a backend failed with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    /// There was no connection, or it broke before the reply.
    Unreachable,
    /// The reply did not begin in time.
    TimedOut,
    /// 429 or 5xx.
    Status(StatusCode),
}

impl fmt::Display for Failure {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unreachable => formatter.write_str("unreachable"),
            Self::TimedOut => formatter.write_str("timeout"),
            Self::Status(status) => write!(formatter, "status {}", status.as_u16()),
        }
    }
}

/// The failures of all backends.
#[derive(Debug, Default)]
pub(crate) struct FailingBackends {
    failing: RwLock<HashMap<Part, Failing>>,
}

/// The part of a backend that fails: all of it, or one of its models.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Part {
    backend: String,
    model: Option<String>,
}

/// A failing backend or model.
#[derive(Clone, Copy, Debug)]
struct Failing {
    failure: Failure,
    /// How many requests in a row have failed.
    count: u32,
    pause: Duration,
    /// When it is tried again.
    until: Instant,
}

/// A backend or one of its models that is not tried at the moment, if there is another one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CoolDown {
    /// The model, if only that one fails.
    pub model: Option<String>,
    /// What it failed with.
    pub failure: Failure,
    /// How many requests in a row have failed.
    pub failures: u32,
    /// How long it is not tried.
    pub remaining: Duration,
}

/// One failed request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FailedRequest {
    pub(crate) failure: Failure,
    /// How long the request took to fail.
    pub(crate) waited: Duration,
    /// The pause that the backend asks for.
    pub(crate) retry_after: Option<Duration>,
}

impl FailingBackends {
    /// Remembers that a backend failed, for a model or for all of them. `first` is the pause after a
    /// first failure. The pause doubles with each further one, and is at least as long as the
    /// request waited, so that at most every second request waits.
    pub(crate) fn record_failure(
        &self,
        backend: &str,
        model: Option<&str>,
        failed: FailedRequest,
        first: Duration,
        now: Instant,
    ) {
        let mut failing = self.failing.write();
        if failing.len() >= MAX_FAILURES {
            failing.retain(|_, failing| failing.until > now);
        }
        let part = Part { backend: backend.to_owned(), model: model.map(str::to_owned) };
        let known = failing.get(&part).map_or(0, |known| known.count);
        if known == 0 && failing.len() >= MAX_FAILURES {
            return;
        }
        let doubled = first.saturating_mul(1 << known.min(16)).min(MAX_PAUSE.max(first));
        let requested = failed.retry_after.unwrap_or_default().min(MAX_RETRY_AFTER);
        let pause = doubled.max(failed.waited).max(requested);
        let count = known.saturating_add(1);
        let until = now + pause;
        failing.insert(part, Failing { failure: failed.failure, count, pause, until });
    }

    /// Remembers that a backend answered, for a model or for all of them.
    pub(crate) fn record_success(&self, backend: &str, model: Option<&str>) {
        if self.failing.read().is_empty() {
            return;
        }
        let part = Part { backend: backend.to_owned(), model: model.map(str::to_owned) };
        if self.failing.write().remove(&part).is_some() {
            tracing::info!(backend, model, "the backend answers again");
        }
    }

    /// Why a backend is not to be tried now; `None` if it is.
    pub(crate) fn cooling(&self, backend: &str, model: &str, now: Instant) -> Option<Failure> {
        let failing = self.failing.read();
        if failing.is_empty() {
            return None;
        }
        let parts = parts(backend, model);
        let mut found = parts.iter().filter_map(|part| failing.get(part));
        found.find(|failing| failing.until > now).map(|failing| failing.failure)
    }

    /// Lets one request try a backend that has cooled down. Others wait for its result.
    pub(crate) fn probe(&self, backend: &str, model: &str, now: Instant) {
        if self.failing.read().is_empty() {
            return;
        }
        let mut failing = self.failing.write();
        for part in parts(backend, model) {
            if let Some(failing) = failing.get_mut(&part) {
                failing.until = now + failing.pause;
            }
        }
    }

    /// Whether the last requests to a backend succeeded. A rate limit is not a failure.
    pub(crate) fn healthy(&self, backend: &str) -> bool {
        let limited = Failure::Status(StatusCode::TOO_MANY_REQUESTS);
        let failing = self.failing.read();
        !failing.iter().any(|(part, failing)| part.backend == backend && failing.failure != limited)
    }

    /// The parts of a backend that cool down.
    pub(crate) fn cool_downs(&self, backend: &str, now: Instant) -> Vec<CoolDown> {
        let failing = self.failing.read();
        let of_backend = failing.iter().filter(|(part, _)| part.backend == backend);
        let mut cool_downs: Vec<CoolDown> = of_backend
            .filter(|(_, failing)| failing.until > now)
            .map(|(part, failing)| CoolDown {
                model: part.model.clone(),
                failure: failing.failure,
                failures: failing.count,
                remaining: failing.until - now,
            })
            .collect();
        cool_downs.sort_by(|one, other| one.model.cmp(&other.model));
        cool_downs
    }
}

fn parts(backend: &str, model: &str) -> [Part; 2] {
    [None, Some(model.to_owned())].map(|model| Part { backend: backend.to_owned(), model })
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIRST: Duration = Duration::from_secs(2);

    fn failed(failure: Failure, waited: u64, retry_after: Option<u64>) -> FailedRequest {
        let retry_after = retry_after.map(Duration::from_secs);
        FailedRequest { failure, waited: Duration::from_secs(waited), retry_after }
    }

    fn pause(failing: &FailingBackends, now: Instant) -> u64 {
        failing.cool_downs("a", now)[0].remaining.as_secs()
    }

    #[test]
    fn pause_doubles_and_covers_the_wait_and_the_retry_after() {
        let (failing, now) = (FailingBackends::default(), Instant::now());
        let overloaded = Failure::Status(StatusCode::SERVICE_UNAVAILABLE);
        let record = |failed| failing.record_failure("a", None, failed, FIRST, now);
        for expected in [2, 4, 8, 16, 32, 60, 60] {
            record(failed(overloaded, 0, None));
            assert_eq!(pause(&failing, now), expected);
        }
        record(failed(overloaded, 0, Some(90)));
        assert_eq!(pause(&failing, now), 90);
        record(failed(overloaded, 0, Some(1 << 40)));
        assert_eq!(pause(&failing, now), 3600);
        failing.record_success("a", None);
        record(failed(Failure::TimedOut, 120, None));
        assert_eq!(pause(&failing, now), 120);
    }

    #[test]
    fn one_request_probes_after_the_pause() {
        let (failing, now) = (FailingBackends::default(), Instant::now());
        failing.record_failure("a", None, failed(Failure::Unreachable, 0, None), FIRST, now);
        assert_eq!(failing.cooling("a", "m", now), Some(Failure::Unreachable));
        assert_eq!(failing.cooling("b", "m", now), None);
        let later = now + FIRST;
        assert_eq!(failing.cooling("a", "m", later), None);
        failing.probe("a", "m", later);
        assert_eq!(failing.cooling("a", "m", later), Some(Failure::Unreachable));
        assert!(!failing.healthy("a"));
        failing.record_success("a", None);
        assert_eq!(failing.cooling("a", "m", later), None);
        assert!(failing.healthy("a"));
    }

    #[test]
    fn failing_model_leaves_the_others_alone() {
        let (failing, now) = (FailingBackends::default(), Instant::now());
        let limited = Failure::Status(StatusCode::TOO_MANY_REQUESTS);
        failing.record_failure("a", Some("m"), failed(limited, 0, None), FIRST, now);
        assert_eq!(failing.cooling("a", "m", now), Some(limited));
        assert_eq!(failing.cooling("a", "n", now), None);
        assert!(failing.healthy("a"), "a rate limit is not a failure");
    }

    #[test]
    fn number_of_remembered_failures_is_limited() {
        let (failing, now) = (FailingBackends::default(), Instant::now());
        let failed = failed(Failure::TimedOut, 0, None);
        for at in 0..=MAX_FAILURES {
            failing.record_failure("a", Some(&format!("m{at}")), failed, FIRST, now);
        }
        assert_eq!(failing.cool_downs("a", now).len(), MAX_FAILURES);
        let later = now + FIRST;
        failing.record_failure("a", Some("new"), failed, FIRST, later);
        assert_eq!(failing.cool_downs("a", later).len(), 1);
    }
}
