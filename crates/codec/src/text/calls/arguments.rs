//! Arguments that the model wrote as JSON. They are passed on byte for byte.

use std::ops::ControlFlow;

use super::hex::{Hex, read_hex, read_low_surrogate};
use super::scan::{JsonScanner, ScanResult};
use super::{MAX_FRAMING, Progress, Sink, leading_white_space};
use crate::json::decode;
use crate::search::special;
use crate::text::marker::{Match, compare};

/// Reads one JSON value: the arguments of the open call.
#[derive(Debug)]
pub(crate) struct JsonArguments {
    position: Position,
    /// Markers that end the call if its JSON is malformed.
    closers: &'static [&'static str],
    /// A closer may follow instead of arguments. Then the call has none.
    optional: bool,
    /// The value was malformed, and a closer ended it.
    ended_by_closer: bool,
}

#[derive(Debug)]
enum Position {
    Before,
    Value(JsonScanner),
    /// In a string that contains the arguments. Its decoded text is emitted.
    Unwrapped(DecodedText),
}

/// Checks the decoded text of a string that contains the arguments.
#[derive(Debug, Default)]
struct DecodedText {
    scanner: JsonScanner,
    /// The value is complete. Only white space may follow.
    complete: bool,
    malformed: bool,
}

impl DecodedText {
    /// Reads more of the text. Returns how many bytes are valid.
    fn read(&mut self, text: &str) -> usize {
        if self.malformed {
            return text.len();
        }
        let mut value = 0;
        if !self.complete {
            match self.scanner.read(text.as_bytes()) {
                ScanResult::All => return text.len(),
                ScanResult::Ended(used) => (value, self.complete) = (used, true),
                ScanResult::Broken(used) => {
                    self.malformed = true;
                    return used;
                }
            }
        }
        let valid = value + leading_white_space(&text[value..]);
        self.malformed = valid < text.len();
        valid
    }
}

impl JsonArguments {
    /// Creates a reader for required arguments.
    pub(crate) fn new(closers: &'static [&'static str]) -> Self {
        Self { position: Position::Before, closers, optional: false, ended_by_closer: false }
    }

    /// Creates a reader for arguments that may be missing.
    pub(crate) fn optional(closers: &'static [&'static str]) -> Self {
        Self { optional: true, ..Self::new(closers) }
    }

    /// Whether a closer ended a malformed value.
    pub(crate) fn ended_by_closer(&self) -> bool {
        self.ended_by_closer
    }

    /// Reads the next text. A call with malformed arguments is left incomplete, so that no client runs it.
    pub(crate) fn read(&mut self, text: &str, last: bool, sink: &mut Sink<'_>) -> Progress {
        let mut at = 0;
        loop {
            match &mut self.position {
                Position::Before => match self.begin(text, at, last, sink) {
                    ControlFlow::Continue(value) => at = value,
                    ControlFlow::Break(progress) => return progress,
                },
                Position::Value(scanner) if scanner.is_tolerant() => {
                    let progress = self.read_tolerant(text, at, last, sink);
                    if let Progress::Ended(_) = progress {
                        sink.abandon();
                    }
                    return progress;
                }
                Position::Value(scanner) => match scanner.read(&text.as_bytes()[at..]) {
                    ScanResult::All => {
                        sink.write_arguments(&text[at..]);
                        return if last && scanner.may_end() {
                            Progress::Ended(text.len())
                        } else {
                            Progress::More(text.len())
                        };
                    }
                    ScanResult::Ended(used) => {
                        sink.write_arguments(&text[at..at + used]);
                        return Progress::Ended(at + used);
                    }
                    ScanResult::Broken(used) => {
                        sink.write_arguments(&text[at..at + used]);
                        at += used;
                        if !sink.is_tolerant() {
                            return Progress::Broken(at, "the arguments are not valid JSON");
                        }
                        scanner.tolerate();
                    }
                },
                Position::Unwrapped(decoded) => {
                    return read_unwrapped(decoded, text, at, last, sink);
                }
            }
        }
    }

    /// Reads up to the start of the value, and decides how to read it. Calls without arguments end
    /// here.
    fn begin(
        &mut self,
        text: &str,
        from: usize,
        last: bool,
        sink: &mut Sink<'_>,
    ) -> ControlFlow<Progress, usize> {
        let at = from + leading_white_space(&text[from..]);
        let rest = &text[at..];
        let wait = ControlFlow::Break(Progress::More(at));
        let broken = |why| ControlFlow::Break(Progress::Broken(at, why));
        let mut empty_until = |end| {
            sink.write_arguments("{}");
            ControlFlow::Break(Progress::Ended(end))
        };
        match rest.as_bytes().first() {
            None => return wait,
            Some(b'n') => {
                return match compare("null", rest) {
                    Match::Full(length) => empty_until(at + length),
                    Match::Partial if !last => wait,
                    _ => broken("the arguments are not JSON"),
                };
            }
            Some(b'"') => {
                let inside = rest[1..].trim_start_matches(' ');
                let start = text.len() - inside.len();
                match inside.as_bytes().first() {
                    None if !last => return wait,
                    Some(b'"') => return empty_until(start + 1),
                    Some(b'{') => {
                        self.position = Position::Unwrapped(DecodedText::default());
                        return ControlFlow::Continue(start);
                    }
                    _ => {}
                }
            }
            Some(b'{') => match looks_like_object(rest) {
                Match::Partial if !last => return wait,
                Match::No => return broken("the arguments are not JSON"),
                _ => {}
            },
            Some(b'[') => {}
            Some(_) => {
                let ends = self.closers.iter().map(|closer| compare(closer, rest));
                return match ends.max().unwrap_or(Match::No) {
                    Match::Full(_) if self.optional => empty_until(at),
                    Match::Partial if self.optional && !last => wait,
                    _ => broken("the arguments are no JSON object"),
                };
            }
        }
        self.position = Position::Value(JsonScanner::default());
        ControlFlow::Continue(at)
    }

    /// Follows brackets and strings only, and looks for a closer.
    fn read_tolerant(
        &mut self,
        text: &str,
        mut at: usize,
        last: bool,
        sink: &mut Sink<'_>,
    ) -> Progress {
        let Position::Value(scanner) = &mut self.position else {
            return Progress::More(at);
        };
        let bytes = text.as_bytes();
        let from = at;
        loop {
            let candidate = self
                .closers
                .iter()
                .filter_map(|closer| memchr::memchr(closer.as_bytes()[0], &bytes[at..]))
                .min()
                .map_or(bytes.len(), |found| at + found);
            match scanner.read(&bytes[at..candidate]) {
                ScanResult::Ended(used) => {
                    sink.write_arguments(&text[from..at + used]);
                    return Progress::Ended(at + used);
                }
                ScanResult::All | ScanResult::Broken(_) => at = candidate,
            }
            if at == bytes.len() {
                sink.write_arguments(&text[from..]);
                return Progress::More(at);
            }
            if !scanner.in_string() {
                let matched = self.closers.iter().map(|closer| compare(closer, &text[at..]));
                match matched.max().unwrap_or(Match::No) {
                    Match::Full(_) => {
                        sink.write_arguments(&text[from..at]);
                        self.ended_by_closer = true;
                        return Progress::Ended(at);
                    }
                    Match::Partial if !last => {
                        sink.write_arguments(&text[from..at]);
                        return Progress::More(at);
                    }
                    _ => {}
                }
            }
            // Closers start with an ASCII byte or a complete character. Scanning only its first
            // byte does not affect the rest.
            match scanner.read(&bytes[at..=at]) {
                ScanResult::Ended(used) => {
                    sink.write_arguments(&text[from..at + used]);
                    return Progress::Ended(at + used);
                }
                ScanResult::All | ScanResult::Broken(_) => at += 1,
            }
        }
    }
}

/// Whether the text after an opening brace can be an object. A call starts with that, and cannot be
/// taken back.
fn looks_like_object(text: &str) -> Match {
    let white = leading_white_space(&text[1..]);
    match text.as_bytes().get(1 + white) {
        _ if white > MAX_FRAMING => Match::Full(1),
        None => Match::Partial,
        // Python quotes are malformed JSON, but written on purpose.
        Some(b'"' | b'}' | b'\'') => Match::Full(1),
        Some(_) => Match::No,
    }
}

/// Reads the decoded text of a JSON string, up to its closing quote.
fn read_unwrapped(
    decoded: &mut DecodedText,
    text: &str,
    mut at: usize,
    last: bool,
    sink: &mut Sink<'_>,
) -> Progress {
    const MALFORMED: &str = "the arguments are not valid JSON";
    let bytes = text.as_bytes();
    loop {
        let plain = special(bytes, at);
        let valid = at + decoded.read(&text[at..plain]);
        if decoded.malformed && !sink.is_tolerant() {
            sink.write_arguments(&text[at..valid]);
            return Progress::Broken(valid, MALFORMED);
        }
        sink.write_arguments(&text[at..plain]);
        at = plain;
        let (piece, length) = match bytes.get(at) {
            None => return Progress::More(at),
            Some(b'"') if decoded.complete && !decoded.malformed => return Progress::Ended(at + 1),
            Some(b'"') if sink.is_tolerant() => {
                sink.abandon();
                return Progress::Ended(at + 1);
            }
            Some(b'"') => return Progress::Broken(at, MALFORMED),
            Some(b'\\') => match escape(&bytes[at..]) {
                Escape::Full(length) => (decode(&bytes[at..at + length]), length),
                Escape::Partial if last => {
                    sink.write_arguments(&text[at..]);
                    return Progress::More(text.len());
                }
                Escape::Partial => return Progress::More(at),
                Escape::Wrong => ("\\".into(), 1),
            },
            // A control character that should have been escaped.
            Some(_) => (text[at..=at].into(), 1),
        };
        let is_escaped = length > 1;
        decoded.read(&piece);
        if !sink.is_tolerant() && (decoded.malformed || !is_escaped) {
            return Progress::Broken(at, MALFORMED);
        }
        sink.write_arguments(&piece);
        at += length;
    }
}

enum Escape {
    /// The rest is missing.
    Partial,
    /// It has this many bytes. A surrogate pair is one escape.
    Full(usize),
    /// It is not a valid escape.
    Wrong,
}

/// The escape at the start of a text.
fn escape(bytes: &[u8]) -> Escape {
    match bytes {
        [_] => Escape::Partial,
        [_, b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't', ..] => Escape::Full(2),
        [_, b'u', digits @ ..] => match read_hex(digits, 4) {
            Hex::Code(0xd800..=0xdbff) => match read_low_surrogate(&digits[4..]) {
                Hex::Code(_) => Escape::Full(12),
                Hex::Partial => Escape::Partial,
                Hex::No => Escape::Full(6),
            },
            Hex::Code(_) => Escape::Full(6),
            Hex::Partial => Escape::Partial,
            Hex::No => Escape::Wrong,
        },
        _ => Escape::Wrong,
    }
}
