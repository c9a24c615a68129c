//! Delivery: performs the steps of a reply on the connection, at the set pace.

use std::io;
use std::time::Duration;

use axum::body::Body;
use bytes::{Bytes, BytesMut};
use futures_util::stream;
use tokio::time::{Instant, sleep, sleep_until};

use crate::fault::Step;

/// Unpaced events are joined up to this size, as from a fast provider.
const MAX_JOINED_BYTES: usize = 16 * 1024;

/// The time for written bytes to leave the process before the connection breaks.
const FLUSH_TIME: Duration = Duration::from_millis(20);

/// A response body that performs `steps`.
pub(crate) fn body(steps: Vec<Step>, tokens_per_second: u32) -> Body {
    let state = BodyWriter {
        steps: join(steps, tokens_per_second).into_iter(),
        began: Instant::now(),
        tokens: 0,
        tokens_per_second,
    };
    Body::from_stream(stream::unfold(state, BodyWriter::next))
}

struct BodyWriter {
    steps: std::vec::IntoIter<Step>,
    began: Instant,
    tokens: u64,
    tokens_per_second: u32,
}

impl BodyWriter {
    async fn next(mut self) -> Option<(Result<Bytes, io::Error>, Self)> {
        loop {
            match self.steps.next()? {
                Step::Send(bytes) if bytes.is_empty() => {}
                Step::Send(bytes) => return Some((Ok(bytes), self)),
                Step::Flush => tokio::task::yield_now().await,
                Step::Wait(time) => {
                    sleep(time).await;
                    // A stall shifts all later deadlines.
                    self.began += time;
                }
                Step::Pace(tokens) => {
                    self.tokens += u64::from(tokens);
                    // Deadlines count from the start, so that timer slack does not add up.
                    let due = self.tokens as f64 / f64::from(self.tokens_per_second.max(1));
                    sleep_until(self.began + Duration::from_secs_f64(due)).await;
                }
                Step::Abort => {
                    sleep(FLUSH_TIME).await;
                    let cut = io::Error::new(io::ErrorKind::ConnectionAborted, "cut on demand");
                    self.steps = Vec::new().into_iter();
                    return Some((Err(cut), self));
                }
            }
        }
    }
}

/// Joins adjacent events if replies are not paced.
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
                if held.len() >= MAX_JOINED_BYTES {
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
