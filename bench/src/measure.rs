//! Measures readers: time, allocations, and whether the output is right.

use std::time::{Duration, Instant};

use crate::allocations;
use crate::inputs::Input;
use crate::sink::{Collected, Nothing, Sink};
use crate::subjects::{Format, Reading, Subject, dynamo_v1, dynamo_v2, floor, ours, smg};

/// How much is measured.
#[derive(Clone, Copy)]
pub(crate) struct Effort {
    /// Runs of each reader, in turn with the others; the best time counts.
    pub(crate) rounds: u32,
    /// A run that takes longer is stopped.
    pub(crate) cap: Duration,
}

/// A reader and its input.
pub(crate) struct Entry<'a> {
    /// The reader.
    pub(crate) subject: Subject,
    /// The format of the calls in the text.
    pub(crate) format: Format,
    /// The text and its meaning.
    pub(crate) input: &'a Input,
    /// The text in pieces.
    pub(crate) pieces: &'a [&'a str],
    /// A remark for the table.
    pub(crate) note: &'static str,
}

/// The results of one reader.
pub(crate) struct Figures {
    /// The best time for all pieces it read.
    pub(crate) time: Duration,
    /// How many pieces it read: not all of them if it was stopped.
    pub(crate) pieces: usize,
    /// Whether it read the whole text.
    pub(crate) complete: bool,
    /// How its output differs, if it read the whole text.
    pub(crate) difference: Option<&'static str>,
    /// The number of parts in which it returned arguments.
    pub(crate) deltas: usize,
    /// The number of allocations, and of the pieces they were counted over.
    pub(crate) allocations: (u64, usize),
}

impl Figures {
    /// Nanoseconds per piece.
    pub(crate) fn nanoseconds(&self) -> f64 {
        self.time.as_secs_f64() * 1e9 / self.pieces as f64
    }
}

/// Measures all entries, in turn.
pub(crate) fn all(entries: &[Entry<'_>], effort: Effort) -> Vec<Figures> {
    let mut figures: Vec<Option<Figures>> = entries.iter().map(|_| None).collect();
    for _ in 0..effort.rounds {
        for (entry, best) in entries.iter().zip(&mut figures) {
            match best {
                Some(best) if !best.complete => {}
                Some(best) => best.time = best.time.min(timed(entry, effort.cap).1.time),
                None => {
                    let (found, run) = timed(entry, effort.cap);
                    *best = Some(Figures {
                        time: run.time,
                        pieces: run.pieces,
                        complete: run.complete,
                        difference: run
                            .complete
                            .then(|| entry.input.truth.difference(&found))
                            .flatten(),
                        deltas: found.deltas(),
                        allocations: allocations(entry, effort.cap),
                    });
                }
            }
        }
    }
    figures.into_iter().flatten().collect()
}

/// One run over some pieces.
pub(crate) struct Run {
    /// From the first piece to the end of the text.
    pub(crate) time: Duration,
    pieces: usize,
    complete: bool,
}

fn timed(entry: &Entry<'_>, cap: Duration) -> (Collected, Run) {
    let calls = entry.input.truth.calls.len().max(1);
    let mut found = Collected::with_room(entry.input.text.len() + 1024, calls);
    let run =
        opened(entry.subject, entry.format, Drive { pieces: entry.pieces, sink: &mut found, cap });
    (found, run)
}

/// One run whose output is dropped.
pub(crate) fn run_without_output(
    subject: Subject,
    format: Format,
    pieces: &[&str],
    cap: Duration,
) -> Run {
    let sink = &mut Nothing;
    opened(subject, format, Drive { pieces, sink, cap })
}

/// Reads all pieces and returns the output.
pub(crate) fn collected(subject: Subject, format: Format, pieces: &[&str]) -> Collected {
    let mut found = Collected::default();
    let cap = Duration::MAX;
    let sink = &mut found;
    opened(subject, format, Drive { pieces, sink, cap });
    found
}

/// Work on an opened reader; each reader has its own type.
trait Work {
    type Result;
    fn with(self, reading: impl Reading) -> Self::Result;
}

fn opened<W: Work>(subject: Subject, format: Format, work: W) -> W::Result {
    match subject {
        Subject::Floor => work.with(floor::Floor),
        Subject::Ours => work.with(ours::open(format)),
        Subject::DynamoV1 => work.with(dynamo_v1::open(format)),
        Subject::DynamoV2 => match dynamo_v2::open(format) {
            Some(reading) => work.with(reading),
            None => panic!("dynamo-parsers-v2 has nothing like {format:?}"),
        },
        Subject::Smg => work.with(smg::open(format)),
    }
}

/// The timed loop. Opening a reader is not part of it.
struct Drive<'a, S> {
    pieces: &'a [&'a str],
    sink: &'a mut S,
    cap: Duration,
}

impl<S: Sink> Work for Drive<'_, S> {
    type Result = Run;

    fn with(self, mut reading: impl Reading) -> Run {
        let start = Instant::now();
        let pieces = push_all(&mut reading, self.pieces, self.sink, self.cap);
        let complete = pieces == self.pieces.len();
        if complete {
            reading.finish(self.sink);
        }
        Run { time: start.elapsed(), pieces, complete }
    }
}

/// Pushes pieces until the time is over; returns how many.
fn push_all(
    reading: &mut impl Reading,
    pieces: &[&str],
    sink: &mut impl Sink,
    cap: Duration,
) -> usize {
    let start = Instant::now();
    let mut pushed = 0;
    // The clock is read rarely: it costs less than half a nanosecond per piece.
    for some in pieces.chunks(64) {
        for piece in some {
            reading.push(piece, sink);
        }
        pushed += some.len();
        if start.elapsed() > cap {
            break;
        }
    }
    pushed
}

/// The first tenth of the text is not counted: buffers may grow there.
fn allocations(entry: &Entry<'_>, cap: Duration) -> (u64, usize) {
    let pieces = entry.pieces;
    opened(entry.subject, entry.format, Count { pieces, cap })
}

struct Count<'a> {
    pieces: &'a [&'a str],
    cap: Duration,
}

impl Work for Count<'_> {
    type Result = (u64, usize);

    fn with(self, mut reading: impl Reading) -> (u64, usize) {
        let (first, rest) = self.pieces.split_at(self.pieces.len() / 10);
        push_all(&mut reading, first, &mut Nothing, self.cap);
        let mut pushed = 0;
        let count = allocations::during(|| {
            pushed = push_all(&mut reading, rest, &mut Nothing, self.cap);
        });
        (count, pushed)
    }
}
