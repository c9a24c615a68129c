//! Limits how often a passphrase or a name can be guessed: for each address, for each name at an
//! address, and for each name at all addresses together.
//!
//! One address cannot lock a user out: a caller who fails there too often for a name is refused before the
//! attempt counts for the name, and the name has more attempts than one address can use up. A guess that is
//! spread over many addresses is limited by the name.
//!
//! Every subject has a number of free attempts, and gets one back after a fixed time. The caller has
//! the clock. The memory is bounded: subjects that have all their attempts back are forgotten first.

use std::collections::HashMap;
use std::hash::Hash;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

/// Subjects that are remembered, of each kind.
const MAX_SUBJECTS: usize = 10_000;

/// What an attempt is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Attempt {
    /// Asks how a passphrase is stretched.
    Settings,
    /// Proves a passphrase or a recovery code, or takes a name.
    Proof,
}

/// How many attempts a subject has.
#[derive(Clone, Copy, Debug)]
struct Rate {
    /// Attempts at once.
    burst: u32,
    /// The time after which one comes back.
    interval: Duration,
}

impl Attempt {
    fn per_address(self) -> Rate {
        match self {
            Self::Settings => Rate { burst: 240, interval: Duration::from_millis(500) },
            Self::Proof => Rate { burst: 120, interval: Duration::from_secs(1) },
        }
    }

    /// For a name at one address.
    fn per_pair(self) -> Rate {
        match self {
            Self::Settings => Rate { burst: 60, interval: Duration::from_secs(1) },
            Self::Proof => Rate { burst: 10, interval: Duration::from_secs(6) },
        }
    }

    /// For a name at all addresses. It must allow more than one address can use, at once and in the long
    /// run.
    fn per_name(self) -> Rate {
        match self {
            Self::Settings => Rate { burst: 600, interval: Duration::from_millis(100) },
            Self::Proof => Rate { burst: 60, interval: Duration::from_secs(2) },
        }
    }
}

/// The attempts so far.
#[derive(Debug, Default)]
pub struct Attempts {
    addresses: Mutex<Subjects<(Attempt, String)>>,
    pairs: Mutex<Subjects<(Attempt, String, String)>>,
    names: Mutex<Subjects<(Attempt, String)>>,
}

impl Attempts {
    /// Counts an attempt. If there were too many, it returns when the next one is allowed.
    pub fn count(
        &self,
        attempt: Attempt,
        address: &str,
        unique_name: &str,
        now: Instant,
    ) -> Result<(), Duration> {
        let pair = (attempt, address.to_owned(), unique_name.to_owned());
        let address = (attempt, address.to_owned());
        self.addresses.lock().count(address, attempt.per_address(), now)?;
        self.pairs.lock().count(pair, attempt.per_pair(), now)?;
        let name = (attempt, unique_name.to_owned());
        self.names.lock().count(name, attempt.per_name(), now)
    }

    /// Gives an attempt back that has succeeded: only failures count.
    pub fn forgive(&self, attempt: Attempt, address: &str, unique_name: &str) {
        let pair = (attempt, address.to_owned(), unique_name.to_owned());
        let address = (attempt, address.to_owned());
        self.addresses.lock().forgive(&address, attempt.per_address());
        self.pairs.lock().forgive(&pair, attempt.per_pair());
        let name = (attempt, unique_name.to_owned());
        self.names.lock().forgive(&name, attempt.per_name());
    }
}

/// The time at which each subject has all its attempts back.
#[derive(Debug)]
struct Subjects<K>(HashMap<K, Instant>);

impl<K> Default for Subjects<K> {
    fn default() -> Self {
        Self(HashMap::new())
    }
}

impl<K: Clone + Eq + Hash> Subjects<K> {
    fn count(&mut self, subject: K, rate: Rate, now: Instant) -> Result<(), Duration> {
        let full = self.0.get(&subject).map_or(now, |full| (*full).max(now));
        let after = full + rate.interval;
        let most = rate.interval * rate.burst;
        match (after - now).checked_sub(most) {
            Some(wait) if wait > Duration::ZERO => Err(wait),
            _ => {
                self.make_room(now);
                self.0.insert(subject, after);
                Ok(())
            }
        }
    }

    fn forgive(&mut self, subject: &K, rate: Rate) {
        if let Some(full) = self.0.get_mut(subject) {
            // A time before now means the same as now.
            *full = full.checked_sub(rate.interval).unwrap_or(*full);
        }
    }

    /// Forgets subjects that have all their attempts back, and else those that get them back first.
    fn make_room(&mut self, now: Instant) {
        if self.0.len() < MAX_SUBJECTS {
            return;
        }
        self.0.retain(|_, full| *full > now);
        if self.0.len() < MAX_SUBJECTS {
            return;
        }
        let mut times: Vec<Instant> = self.0.values().copied().collect();
        times.sort_unstable();
        let limit = times[times.len() / 4];
        self.0.retain(|_, full| *full > limit);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn name_has_ten_attempts_at_an_address_and_gets_one_back_after_six_seconds() {
        let (attempts, now) = (Attempts::default(), Instant::now());
        let count = |name, now| attempts.count(Attempt::Proof, "192.0.2.1", name, now);
        for _ in 0..10 {
            assert_eq!(count("ada", now), Ok(()));
        }
        assert_eq!(count("ada", now), Err(SECOND * 6));
        assert_eq!(count("ada", now + SECOND * 2), Err(SECOND * 4));
        assert_eq!(count("bob", now), Ok(()), "another name has its own attempts");
        let settings = attempts.count(Attempt::Settings, "192.0.2.1", "ada", now);
        assert_eq!(settings, Ok(()), "another kind of attempt too");
        assert_eq!(count("ada", now + SECOND * 6), Ok(()));
        assert_eq!(count("ada", now + SECOND * 6), Err(SECOND * 6));
        for _ in 0..10 {
            assert_eq!(count("ada", now + SECOND * 600), Ok(()), "all come back, and no more");
        }
        assert_eq!(count("ada", now + SECOND * 600), Err(SECOND * 6));
    }

    #[test]
    fn one_address_cannot_lock_a_name_at_others() {
        let (attempts, start) = (Attempts::default(), Instant::now());
        // A stubborn guesser takes every attempt that it gets, for an hour.
        for second in 0..3600 {
            for _ in 0..20 {
                let now = start + SECOND * second;
                let _ = attempts.count(Attempt::Proof, "192.0.2.66", "ada", now);
            }
        }
        let now = start + SECOND * 3599;
        assert!(attempts.count(Attempt::Proof, "192.0.2.66", "ada", now).is_err());
        for _ in 0..10 {
            assert_eq!(attempts.count(Attempt::Proof, "192.0.2.1", "ada", now), Ok(()));
        }
    }

    #[test]
    fn guess_from_many_addresses_is_limited_by_the_name() {
        let (attempts, now) = (Attempts::default(), Instant::now());
        let allowed = (0..1000).filter(|number| {
            let address = format!("198.51.100.{}", number % 250);
            attempts.count(Attempt::Proof, &address, "ada", now).is_ok()
        });
        assert_eq!(allowed.count(), 60);
        assert_eq!(attempts.count(Attempt::Proof, "192.0.2.9", "ada", now), Err(SECOND * 2));
        assert_eq!(attempts.count(Attempt::Proof, "192.0.2.9", "bob", now), Ok(()));
    }

    #[test]
    fn address_is_limited_whatever_names_it_tries() {
        let (attempts, now) = (Attempts::default(), Instant::now());
        let count = |address, name: usize| {
            attempts.count(Attempt::Proof, address, &format!("name {name}"), now)
        };
        for name in 0..120 {
            assert_eq!(count("192.0.2.1", name), Ok(()), "{name}");
        }
        assert_eq!(count("192.0.2.1", 120), Err(SECOND));
        assert_eq!(count("192.0.2.2", 120), Ok(()));
    }

    #[test]
    fn success_is_not_counted() {
        let (attempts, now) = (Attempts::default(), Instant::now());
        for _ in 0..500 {
            assert_eq!(attempts.count(Attempt::Proof, "192.0.2.1", "ada", now), Ok(()));
            attempts.forgive(Attempt::Proof, "192.0.2.1", "ada");
        }
    }

    #[test]
    fn memory_is_bounded_and_the_most_active_stay() {
        let (mut subjects, now) = (Subjects::default(), Instant::now());
        let rate = Rate { burst: 3, interval: SECOND };
        for _ in 0..3 {
            assert_eq!(subjects.count(usize::MAX, rate, now), Ok(()));
        }
        for subject in 0..5 * MAX_SUBJECTS {
            let _ = subjects.count(subject, rate, now);
            assert!(subjects.0.len() <= MAX_SUBJECTS);
        }
        assert_eq!(subjects.count(usize::MAX, rate, now), Err(SECOND));
        // Later all of them have their attempts back, and are forgotten.
        for subject in 0..MAX_SUBJECTS {
            let _ = subjects.count(subject, rate, now + SECOND * 60);
        }
        assert!(!subjects.0.contains_key(&usize::MAX));
    }
}
