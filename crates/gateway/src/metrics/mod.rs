//! What `/metrics` shows. A turn is counted once, when it ends, under one short lock; nothing is
//! counted for each piece of a reply.

mod histogram;
mod labels;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use throughline_canonical::{Cost, Loss, Usage};

pub use self::histogram::Histogram;
use self::labels::Names;
pub use self::labels::{Label, OTHER};
use crate::turn::log::{Turn, TurnEnd};

/// The upper bounds of the buckets for the time to a first token, in milliseconds.
const FIRST_TOKEN_BOUNDS: &[u64] = &[
    10, 25, 50, 100, 200, 300, 500, 750, 1000, 1500, 2000, 3000, 5000, 10_000, 20_000, 30_000,
    60_000,
];
/// The upper bounds of the buckets for the time of a whole turn, in milliseconds.
const DURATION_BOUNDS: &[u64] = &[
    100, 250, 500, 1000, 2000, 5000, 10_000, 20_000, 30_000, 60_000, 120_000, 300_000, 600_000,
    1_800_000,
];

/// The kinds of tokens: the label, and the count of one reply.
pub const TOKEN_KINDS: [TokenKind; 5] = [
    ("input", |usage| usage.input),
    ("output", |usage| usage.output),
    ("reasoning", |usage| usage.thinking),
    ("cache_read", |usage| usage.cache_read),
    ("cache_write", |usage| usage.cache_write),
];
type TokenKind = (&'static str, fn(&Usage) -> Option<u64>);

/// A number that only increases.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// Adds one.
    pub fn increment(&self) {
        self.add(1);
    }

    /// Adds a number.
    pub fn add(&self, number: u64) {
        self.0.fetch_add(number, Ordering::Relaxed);
    }

    /// The current value.
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// The metrics of the gateway.
#[derive(Debug, Default)]
pub struct Metrics {
    /// Thinking blocks that were remembered.
    pub remembered: Counter,
    /// Requests that were retried because of refused thinking.
    pub retried: Counter,
    /// Keep-alives that were sent.
    pub keep_alives: Counter,
    /// Streams that continued a run.
    pub resumes: Counter,
    /// Readers of runs whose stream ended because they took nothing.
    pub detached_readers: Counter,
    labelled: Mutex<Labelled>,
}

#[derive(Debug, Default)]
struct Labelled {
    names: Names,
    recorded: Recorded,
}

/// The metrics with labels.
#[derive(Clone, Debug, Default)]
pub struct Recorded {
    /// Turns that have ended.
    pub turns: BTreeMap<TurnLabels, u64>,
    /// What was lost.
    pub losses: BTreeMap<LossLabels, u64>,
    /// Times and tokens, by backend and model.
    pub models: BTreeMap<(Label, Label), ModelMetrics>,
    /// Turns that another backend answered, by the one that was chosen first and the one that
    /// answered.
    pub fallbacks: BTreeMap<(Label, Label), u64>,
    /// Facts about each backend.
    pub backends: BTreeMap<Label, BackendMetrics>,
    /// The time to the head of a reply.
    pub first_byte: FirstTokenTimes,
    /// The time to the first thinking.
    pub first_thinking: FirstTokenTimes,
    /// The time to the first text.
    pub first_text: FirstTokenTimes,
}

impl Recorded {
    fn count_loss(&mut self, turn: &Turn, backend: Label, loss: &Loss) {
        let labels = LossLabels {
            kind: loss.kind(),
            backend,
            client_dialect: turn.client_dialect,
            upstream_dialect: turn.upstream_dialect,
        };
        *self.losses.entry(labels).or_default() += loss.count() as u64;
    }
}

/// The labels of a turn.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct TurnLabels {
    /// The backend that answered; empty if none was chosen.
    pub backend: Label,
    /// The model's name at the backend.
    pub model: Label,
    /// The dialect of the client.
    pub client_dialect: &'static str,
    /// The dialect of the backend; empty if none was chosen.
    pub upstream_dialect: &'static str,
    /// The status of the reply; 0 if the client left before it began.
    pub status: u16,
}

/// The labels of a loss.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct LossLabels {
    /// The kind of loss.
    pub kind: &'static str,
    /// The backend that the request was for.
    pub backend: Label,
    /// The dialect of the client.
    pub client_dialect: &'static str,
    /// The dialect of the backend.
    pub upstream_dialect: &'static str,
}

/// Times and tokens of one model at one backend.
#[derive(Clone, Debug)]
pub struct ModelMetrics {
    /// The time from the request to the end of its reply.
    pub duration: Histogram,
    /// The time from the request to the first thinking, text or tool call of a stream.
    pub first_token: Histogram,
    /// Token counts, as reported by the provider, for each of [`TOKEN_KINDS`].
    pub tokens: [u64; TOKEN_KINDS.len()],
    /// What the tokens cost.
    pub cost: Cost,
}

impl Default for ModelMetrics {
    fn default() -> Self {
        Self {
            duration: Histogram::new(DURATION_BOUNDS),
            first_token: Histogram::new(FIRST_TOKEN_BOUNDS),
            tokens: [0; TOKEN_KINDS.len()],
            cost: Cost::default(),
        }
    }
}

/// A histogram of times to a first byte or token.
#[derive(Clone, Debug)]
pub struct FirstTokenTimes(pub Histogram);

impl Default for FirstTokenTimes {
    fn default() -> Self {
        Self(Histogram::new(FIRST_TOKEN_BOUNDS))
    }
}

/// Facts about one backend.
#[derive(Clone, Debug, Default)]
pub struct BackendMetrics {
    /// Turns that ended in an error of the gateway or the provider.
    pub failed: u64,
    /// Replies that ended early.
    pub cut: u64,
    /// The results of the requests that were sent to it.
    pub answers: BTreeMap<Answer, u64>,
}

/// The result of a request to a backend.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Answer {
    /// A reply with this status.
    Status(u16),
    /// No reply in time.
    TimedOut,
    /// No connection, or it broke before the reply.
    Unreachable,
}

impl Metrics {
    /// Gives these models a label of their own, however many other names clients send.
    pub fn know_models<'a>(&self, models: impl Iterator<Item = &'a str>) {
        let names = &mut self.labelled.lock().names;
        models.for_each(|model| names.know(model));
    }

    /// Counts a turn that has ended.
    pub fn record_turn(&self, turn: &Turn, cost: Cost) {
        let Labelled { names, recorded } = &mut *self.labelled.lock();
        let backend = names.backend(&turn.backend);
        let model = names.model(&turn.upstream_model, (200..400).contains(&turn.status));
        for loss in &turn.losses {
            recorded.count_loss(turn, backend.clone(), loss);
        }
        if let (Some(_), Some(chosen)) = (&turn.fallback, turn.passed_over.first()) {
            let chain = (names.backend(&chosen.backend), backend.clone());
            *recorded.fallbacks.entry(chain).or_default() += 1;
        }
        let of_backend = recorded.backends.entry(backend.clone()).or_default();
        match turn.end {
            TurnEnd::Cut => of_backend.cut += 1,
            TurnEnd::Failed => of_backend.failed += 1,
            _ => {}
        }
        let times = &turn.ms;
        observe(&mut recorded.first_byte.0, times.first_byte);
        observe(&mut recorded.first_thinking.0, times.first_thinking);
        observe(&mut recorded.first_text.0, times.first_text);
        let of_model = recorded.models.entry((backend.clone(), model.clone())).or_default();
        observe(&mut of_model.duration, times.total);
        // A whole reply has no first token that anybody could see.
        observe(&mut of_model.first_token, times.first_token.filter(|_| turn.stream));
        for (total, (_, count)) in of_model.tokens.iter_mut().zip(TOKEN_KINDS) {
            *total += count(&turn.usage).unwrap_or_default();
        }
        of_model.cost = of_model.cost.plus(cost);
        let labels = TurnLabels {
            backend,
            model,
            client_dialect: turn.client_dialect,
            upstream_dialect: turn.upstream_dialect,
            status: turn.status,
        };
        *recorded.turns.entry(labels).or_default() += 1;
    }

    /// Counts a loss that happened after its turn was counted.
    pub fn record_loss(&self, turn: &Turn, loss: &Loss) {
        let Labelled { names, recorded } = &mut *self.labelled.lock();
        recorded.count_loss(turn, names.backend(&turn.backend), loss);
    }

    /// Counts the result of a request to a backend.
    pub fn record_answer(&self, backend: &str, answer: Answer) {
        let Labelled { names, recorded } = &mut *self.labelled.lock();
        let of_backend = recorded.backends.entry(names.backend(backend)).or_default();
        *of_backend.answers.entry(answer).or_default() += 1;
    }

    /// A copy of the metrics with labels, so that turns need not wait while it is written.
    pub fn recorded(&self) -> Recorded {
        self.labelled.lock().recorded.clone()
    }
}

fn observe(histogram: &mut Histogram, ms: Option<u64>) {
    if let Some(ms) = ms {
        histogram.observe(ms);
    }
}
