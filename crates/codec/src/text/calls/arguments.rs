//! Arguments that the model wrote as JSON: passed on as they come, byte for byte.

use super::scan::{Scan, Scanned};
use super::{FRAME, Progress, Sink, white_space};
use crate::json::decode;
use crate::search::special;
use crate::text::marker::{Match, compare};

/// One JSON value that is the arguments of the open call.
#[derive(Debug)]
pub(crate) struct JsonArguments {
    place: Place,
    /// What ends the call once its JSON is broken.
    closers: &'static [&'static str],
    /// A closer may stand where the arguments would: then there are none.
    optional: bool,
    /// The value was broken, and one of the closers ended it.
    resynced: bool,
}

#[derive(Debug)]
enum Place {
    Before,
    Value(Scan),
    /// A string that holds the arguments: its text is what counts.
    Unwrapped,
}

impl JsonArguments {
    /// Arguments that must follow.
    pub(crate) fn new(closers: &'static [&'static str]) -> Self {
        Self { place: Place::Before, closers, optional: false, resynced: false }
    }

    /// Arguments that may be missing.
    pub(crate) fn optional(closers: &'static [&'static str]) -> Self {
        Self { optional: true, ..Self::new(closers) }
    }

    /// Whether a closer ended a value that was broken.
    pub(crate) fn resynced(&self) -> bool {
        self.resynced
    }

    /// Reads on.
    pub(crate) fn read(&mut self, text: &str, last: bool, sink: &mut Sink<'_>) -> Progress {
        let mut at = 0;
        loop {
            match &mut self.place {
                Place::Before => {
                    at += white_space(&text[at..]);
                    let rest = &text[at..];
                    match rest.as_bytes().first() {
                        None => return Progress::More(at),
                        Some(b'n') => match compare("null", rest) {
                            Match::Whole(_) => {
                                sink.arguments("{}");
                                return Progress::Ended(at + 4);
                            }
                            Match::Begun if !last => return Progress::More(at),
                            _ => return Progress::Broken(at, "the arguments are not JSON"),
                        },
                        Some(b'"') => {
                            let inside = rest[1..].trim_start_matches(' ');
                            match inside.as_bytes().first() {
                                None if !last => return Progress::More(at),
                                Some(b'"') => {
                                    sink.arguments("{}");
                                    return Progress::Ended(text.len() - inside.len() + 1);
                                }
                                Some(b'{') => {
                                    at = text.len() - inside.len();
                                    self.place = Place::Unwrapped;
                                }
                                _ => self.place = Place::Value(Scan::default()),
                            }
                        }
                        Some(b'{') => match opens_object(rest) {
                            Match::Begun if !last => return Progress::More(at),
                            Match::No => return Progress::Broken(at, "the arguments are not JSON"),
                            _ => self.place = Place::Value(Scan::default()),
                        },
                        Some(b'[') => self.place = Place::Value(Scan::default()),
                        Some(_) => {
                            let ends = self.closers.iter().map(|closer| compare(closer, rest));
                            match ends.max().unwrap_or(Match::No) {
                                Match::Whole(_) if self.optional => {
                                    sink.arguments("{}");
                                    return Progress::Ended(at);
                                }
                                Match::Begun if self.optional && !last => {
                                    return Progress::More(at);
                                }
                                _ => {
                                    return Progress::Broken(
                                        at,
                                        "the arguments are no JSON object",
                                    );
                                }
                            }
                        }
                    }
                }
                Place::Value(scan) if scan.is_tolerant() => {
                    return self.tolerant(text, at, last, sink);
                }
                Place::Value(scan) => match scan.read(&text.as_bytes()[at..]) {
                    Scanned::All => {
                        sink.arguments(&text[at..]);
                        return if last && scan.may_end() {
                            Progress::Ended(text.len())
                        } else {
                            Progress::More(text.len())
                        };
                    }
                    Scanned::Ended(used) => {
                        sink.arguments(&text[at..at + used]);
                        return Progress::Ended(at + used);
                    }
                    Scanned::Broken(used) => {
                        sink.arguments(&text[at..at + used]);
                        at += used;
                        if !sink.is_tolerant() {
                            return Progress::Broken(at, "the arguments are not valid JSON");
                        }
                        scan.tolerate();
                    }
                },
                Place::Unwrapped => return unwrap(text, at, last, sink),
            }
        }
    }

    /// Follows brackets and strings only, and looks for what ends the call.
    fn tolerant(&mut self, text: &str, mut at: usize, last: bool, sink: &mut Sink<'_>) -> Progress {
        let Place::Value(scan) = &mut self.place else {
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
            match scan.read(&bytes[at..candidate]) {
                Scanned::Ended(used) => {
                    sink.arguments(&text[from..at + used]);
                    return Progress::Ended(at + used);
                }
                Scanned::All | Scanned::Broken(_) => at = candidate,
            }
            if at == bytes.len() {
                sink.arguments(&text[from..]);
                return Progress::More(at);
            }
            if !scan.in_string() {
                let matched = self.closers.iter().map(|closer| compare(closer, &text[at..]));
                match matched.max().unwrap_or(Match::No) {
                    Match::Whole(_) => {
                        sink.arguments(&text[from..at]);
                        self.resynced = true;
                        return Progress::Ended(at);
                    }
                    Match::Begun if !last => {
                        sink.arguments(&text[from..at]);
                        return Progress::More(at);
                    }
                    _ => {}
                }
            }
            // Closers begin with an ASCII byte or a whole character; scanning its first byte alone
            // changes nothing for the rest.
            match scan.read(&bytes[at..=at]) {
                Scanned::Ended(used) => {
                    sink.arguments(&text[from..at + used]);
                    return Progress::Ended(at + used);
                }
                Scanned::All | Scanned::Broken(_) => at += 1,
            }
        }
    }
}

/// Whether an object that begins a text goes on as objects do. A call begins with that, and cannot be
/// taken back.
fn opens_object(text: &str) -> Match {
    let white = white_space(&text[1..]);
    match text.as_bytes().get(1 + white) {
        _ if white > FRAME => Match::Whole(1),
        None => Match::Begun,
        // Python's quotes are broken JSON, but no accident.
        Some(b'"' | b'}' | b'\'') => Match::Whole(1),
        Some(_) => Match::No,
    }
}

/// The text of a JSON string, up to its closing quote.
fn unwrap(text: &str, mut at: usize, last: bool, sink: &mut Sink<'_>) -> Progress {
    let bytes = text.as_bytes();
    loop {
        let plain = special(bytes, at);
        sink.arguments(&text[at..plain]);
        at = plain;
        match bytes.get(at) {
            None => return Progress::More(at),
            Some(b'"') => return Progress::Ended(at + 1),
            Some(b'\\') => match escape(&bytes[at..]) {
                Escape::Whole(length) => {
                    sink.arguments(&decode(&bytes[at..at + length]));
                    at += length;
                }
                Escape::Begun if last => {
                    sink.arguments(&text[at..]);
                    return Progress::More(text.len());
                }
                Escape::Begun => return Progress::More(at),
                Escape::Wrong if !sink.is_tolerant() => {
                    return Progress::Broken(at, "the arguments are not valid JSON");
                }
                Escape::Wrong => {
                    sink.arguments("\\");
                    at += 1;
                }
            },
            // A control character that should have been escaped.
            Some(_) => {
                if !sink.is_tolerant() {
                    return Progress::Broken(at, "the arguments are not valid JSON");
                }
                sink.arguments(&text[at..=at]);
                at += 1;
            }
        }
    }
}

enum Escape {
    /// Its rest is missing.
    Begun,
    /// It has so many bytes; a pair of surrogates is one.
    Whole(usize),
    /// It is none.
    Wrong,
}

/// The escape at the beginning of a text.
fn escape(bytes: &[u8]) -> Escape {
    match bytes {
        [_] => Escape::Begun,
        [_, b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't', ..] => Escape::Whole(2),
        [_, b'u', digits @ ..] => match unit(digits) {
            Ok(0xd800..=0xdbff) => match &digits[4..] {
                // The other half follows, or it does not.
                [] | [b'\\'] => Escape::Begun,
                [b'\\', b'u', digits @ ..] => match unit(digits) {
                    Ok(0xdc00..=0xdfff) => Escape::Whole(12),
                    Err(Escape::Begun) => Escape::Begun,
                    _ => Escape::Whole(6),
                },
                _ => Escape::Whole(6),
            },
            Ok(_) => Escape::Whole(6),
            Err(escape) => escape,
        },
        _ => Escape::Wrong,
    }
}

/// The number of four digits.
fn unit(digits: &[u8]) -> Result<u32, Escape> {
    let mut unit = 0;
    for place in 0..4 {
        let digit = digits.get(place).ok_or(Escape::Begun)?;
        let digit = char::from(*digit).to_digit(16).ok_or(Escape::Wrong)?;
        unit = unit << 4 | digit;
    }
    Ok(unit)
}
