//! A list of calls that the model writes again, after the end of the block.

use super::lookahead::{Lookahead, find_marker};
use super::{MAX_FRAMING, Progress, leading_white_space};

/// Limit for a list that is kept to find its echo.
pub(super) const MAX_ECHO: usize = 1 << 16;

/// Reads an echo and the marker after it. Anything else is content.
#[derive(Debug)]
pub(super) struct Echo {
    /// The list.
    list: String,
    /// Markers that end the echo.
    ends: &'static [&'static str],
    /// How much of the list was repeated.
    matched: usize,
    state: State,
}

#[derive(Debug)]
enum State {
    Begin,
    Reading,
    /// The text is no echo.
    Failed,
}

impl Echo {
    pub(super) fn new(list: &str, ends: &'static [&'static str]) -> Self {
        Self { list: list.trim().to_owned(), ends, matched: 0, state: State::Begin }
    }

    pub(super) fn read(&mut self, text: &str, last: bool) -> Progress {
        match self.state {
            // The text before belongs to the calls.
            State::Begin => {
                self.state = State::Reading;
                return Progress::Called(0);
            }
            State::Failed => return Progress::Ended(0),
            State::Reading => {}
        }
        let white = if self.matched == 0 { leading_white_space(text) } else { 0 };
        let rest = &text[white..];
        let missing = &self.list.as_bytes()[self.matched..];
        let pairs = rest.bytes().zip(missing);
        let same = pairs.take_while(|(byte, expected)| byte == *expected).count();
        let same = rest.floor_char_boundary(same);
        if self.list.is_empty() || white > MAX_FRAMING || (self.matched == 0 && same == 0) {
            if rest.is_empty() && !last && white <= MAX_FRAMING {
                return Progress::More(0);
            }
            return Progress::Ended(0);
        }
        self.matched += same;
        let end = match self.matched == self.list.len() {
            true => find_marker(self.ends, &rest[same..], last),
            false if same == rest.len() && !last => Lookahead::Wait,
            false => Lookahead::Other(0),
        };
        match end {
            Lookahead::Found(used) => Progress::Ended(white + same + used),
            Lookahead::Wait => Progress::More(white + same),
            Lookahead::Other(_) => {
                self.state = State::Failed;
                Progress::Text(white + same)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::every_cut::{Read, read_every_cut};
    use super::*;

    /// The content and the progress.
    fn read(text: &str) -> (String, Progress) {
        let machine = || -> Read<'static> {
            let mut echo = Echo::new(" [f(a='é')] ", &["</c>"]);
            Box::new(move |text, last, _| echo.read(text, last))
        };
        read_every_cut(machine, text, None)
    }

    #[test]
    fn an_echo_ends_with_its_marker() {
        let echo = "[f(a='é')]</c>";
        assert_eq!(read(echo), (String::new(), Progress::Ended(echo.len())));
        let more = read(&format!("\n{echo} more"));
        assert_eq!(more, (String::new(), Progress::Ended(echo.len() + 1)));
    }

    #[test]
    fn other_text_is_no_echo() {
        for (text, content) in [
            ("", ""),
            (" more", ""),
            ("[f(a='è')]</c>", "[f(a='"),
            ("\n[f(a='é')]", "\n[f(a='é')]"),
            ("[f(a='é')] </d>", "[f(a='é')]"),
        ] {
            assert_eq!(read(text), (content.to_owned(), Progress::Ended(content.len())), "{text}");
        }
    }
}
