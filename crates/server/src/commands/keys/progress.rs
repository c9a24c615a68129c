//! A bar on the terminal that shows how far a long command is.

use std::io::{IsTerminal, Write};
use std::time::{Duration, Instant};

/// The letters of the bar.
const WIDTH: u64 = 30;
/// How often the bar is drawn.
const INTERVAL: Duration = Duration::from_millis(100);

/// A bar on stderr. It draws nothing if stderr is not a terminal.
pub(super) struct Progress {
    total: u64,
    done: u64,
    last: Option<Instant>,
    is_terminal: bool,
}

impl Progress {
    pub(super) fn new(total: u64) -> Self {
        Self { total, done: 0, last: None, is_terminal: std::io::stderr().is_terminal() }
    }

    /// Counts rows, and draws the bar from time to time.
    pub(super) fn add(&mut self, rows: u64, damaged: u64) {
        self.done += rows;
        let is_due = self.last.is_none_or(|last| last.elapsed() >= INTERVAL);
        if self.is_terminal && is_due {
            self.last = Some(Instant::now());
            // A closed stderr is not an error.
            let _ = write!(std::io::stderr(), "\r{}", line(self.done, self.total, damaged));
        }
    }

    /// Removes the bar, so that something else can be printed.
    pub(super) fn clear(&mut self) {
        if self.is_terminal {
            let _ = write!(std::io::stderr(), "\r\x1b[2K");
            self.last = None;
        }
    }
}

/// The bar with its numbers. A server that runs may add rows meanwhile.
fn line(done: u64, total: u64, damaged: u64) -> String {
    let total = total.max(done).max(1);
    let filled = done * WIDTH / total;
    let bar: String = (0..WIDTH).map(|at| if at < filled { '#' } else { '-' }).collect();
    format!("[{bar}] {:3} %  {done} of {total} rows, {damaged} damaged", done * 100 / total)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bar_grows_and_never_exceeds_its_width() {
        assert_eq!(line(0, 0, 0), format!("[{}]   0 %  0 of 1 rows, 0 damaged", "-".repeat(30)));
        let half = format!("[{}{}]  50 %  5 of 10 rows, 2 damaged", "#".repeat(15), "-".repeat(15));
        assert_eq!(line(5, 10, 2), half);
        let more = format!("[{}] 100 %  12 of 12 rows, 0 damaged", "#".repeat(30));
        assert_eq!(line(12, 10, 0), more);
    }
}
