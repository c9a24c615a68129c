//! Delivery: carries out the steps of a reply on the connection, in its own time.

use std::io;
use std::time::Duration;

use axum::body::Body;
use bytes::{Bytes, BytesMut};
use futures_util::stream;
use tokio::time::{Instant, sleep, sleep_until};

use crate::fault::Step;

/// Unpaced events travel together up to this size, as they do from a fast provider.
const TOGETHER: usize = 16 * 1024;

/// How long written bytes get to leave the process before the connection is broken.
const BEFORE_ABORT: Duration = Duration::from_millis(20);

/// A response body that performs `steps`.
pub(crate) fn body(steps: Vec<Step>, tokens_per_second: u32) -> Body {
    let state = State {
        steps: join(steps, tokens_per_second).into_iter(),
        began: Instant::now(),
        tokens: 0,
        tokens_per_second,
    };
    Body::from_stream(stream::unfold(state, State::next))
}

struct State {
    steps: std::vec::IntoIter<Step>,
    began: Instant,
    tokens: u64,
    tokens_per_second: u32,
}

impl State {
    async fn next(mut self) -> Option<(Result<Bytes, io::Error>, Self)> {
        loop {
            match self.steps.next()? {
                Step::Send(bytes) if bytes.is_empty() => {}
                Step::Send(bytes) => return Some((Ok(bytes), self)),
                Step::Flush => tokio::task::yield_now().await,
                Step::Wait(time) => {
                    sleep(time).await;
                    // The silence does not make the rest faster.
                    self.began += time;
                }
                Step::Pace(tokens) => {
                    self.tokens += u64::from(tokens);
                    // Deadlines count from the start, so that timer slack does not add up.
                    let due = self.tokens as f64 / f64::from(self.tokens_per_second.max(1));
                    sleep_until(self.began + Duration::from_secs_f64(due)).await;
                }
                Step::Abort => {
                    sleep(BEFORE_ABORT).await;
                    let cut = io::Error::new(io::ErrorKind::ConnectionAborted, "cut on demand");
                    self.steps = Vec::new().into_iter();
                    return Some((Err(cut), self));
                }
            }
        }
    }
}

/// Drops the pace where there is none and joins neighbouring events then.
fn join(steps: Vec<Step>, tokens_per_second: u32) -> Vec<Step> {
    if tokens_per_second > 0 {
        return steps;
    }
    let mut joined = Vec::new();
    let mut held = BytesMut::new();
    for step in steps {
        match step {
            Step::Pace(_) => {}
            Step::Send(bytes) => {
                held.extend_from_slice(&bytes);
                if held.len() >= TOGETHER {
                    joined.push(Step::Send(held.split().freeze()));
                }
            }
            other => {
                joined.push(Step::Send(held.split().freeze()));
                joined.push(other);
            }
        }
    }
    joined.push(Step::Send(held.freeze()));
    joined
}
