//! Finds where a value ends, in text that may continue.

use super::{MAX_FRAMING, MAX_NAME, leading_white_space, prefix_up_to};
use crate::search::find_byte;
use crate::text::marker::{Match, compare};

/// What ends a value. All markers start with the same byte.
pub(crate) struct Boundary<'a> {
    /// Closes the value, and is read with it.
    pub(crate) close: &'a str,
    /// End the value if its closer is missing, and stay unread: the next call, and the end of the
    /// section.
    pub(crate) outer: &'a [&'a str],
    /// End the call. They end a value without a closer only if one of `outer` follows, or if there
    /// is `no_section` and the closer does not follow soon.
    pub(crate) call_end: &'a [&'a str],
    /// Whether calls have no section around them.
    pub(crate) no_section: bool,
    /// Whether one line break before the end belongs to it.
    pub(crate) framed: bool,
    /// Compares the start of a text with a marker of `outer` or `call_end`.
    pub(crate) compare: &'a dyn Fn(&str, &str) -> Match,
}

impl<'a> Boundary<'a> {
    /// Only this marker ends the value.
    pub(crate) fn closer(close: &'a str) -> Self {
        Self {
            close,
            outer: &[],
            call_end: &[],
            no_section: false,
            framed: false,
            compare: &|text, marker| compare(marker, text),
        }
    }

    /// Returns how much of the text surely belongs to the value, and where to read on, if its end is
    /// there. A partial marker, and a line break before it that may belong to it, are not sure yet.
    /// `previous` is the byte before the text, or 0.
    pub(crate) fn find(&self, text: &str, previous: u8, last: bool) -> (usize, Option<usize>) {
        let bytes = text.as_bytes();
        let first = self.close.as_bytes()[0];
        let mut from = 0;
        let (end, after) = loop {
            let Some(at) = find_byte(first, &bytes[from..]).map(|at| from + at) else {
                break (bytes.len(), None);
            };
            let before = if at > 0 { bytes[at - 1] } else { previous };
            match self.compare_end(&text[at..], before, last) {
                End::Here(length) => break (at, Some(at + length)),
                End::Partial if !last => break (at, None),
                End::Partial | End::No => from = at + 1,
                End::Quoted(length) => from = at + length,
            }
        };
        if after.is_none() && last {
            return (text.len(), None);
        }
        let framing = match &bytes[..end] {
            _ if !self.framed => 0,
            [.., b'\r', b'\n'] => 2,
            [.., b'\n'] => 1,
            // The rest of a line break may follow.
            [.., b'\r'] if end == bytes.len() => 1,
            _ => 0,
        };
        (end - framing, after)
    }

    /// Compares the start of a text with everything that ends the value.
    fn compare_end(&self, text: &str, before: u8, last: bool) -> End {
        let mut end = match compare(self.close, text) {
            Match::Full(length) => return End::Here(length),
            Match::Partial => End::Partial,
            Match::No => End::No,
        };
        for marker in self.outer {
            end = end.max(match (self.compare)(text, marker) {
                Match::Full(length) => check_quotes(text, length, before, last),
                Match::Partial => End::Partial,
                Match::No => End::No,
            });
        }
        for marker in self.call_end {
            end = end.max(match (self.compare)(text, marker) {
                Match::Full(length) if self.no_section => {
                    self.look_for_closer(text, length, before, last)
                }
                Match::Full(length) => self.compare_after_call(text, length, before, last),
                Match::Partial => End::Partial,
                Match::No => End::No,
            });
        }
        end
    }

    /// Whether one of `outer` follows the end of the call, which has this length.
    fn compare_after_call(&self, text: &str, length: usize, before: u8, last: bool) -> End {
        let white = leading_white_space(&text[length..]);
        let rest = &text[length + white..];
        if white > MAX_FRAMING {
            return End::No;
        }
        let follows = self.outer.iter().map(|marker| match (self.compare)(rest, marker) {
            Match::Full(outer) => check_quotes(text, length + white + outer, before, last),
            Match::Partial => End::Partial,
            Match::No => End::No,
        });
        follows.max().unwrap_or(End::No)
    }

    /// Whether the value ends before the end of the call, which has this length. It does not if its
    /// closer follows before the next call: then the end of the call is a part of the value. If the text
    /// was cut before that closer, nothing tells the two apart.
    fn look_for_closer(&self, text: &str, length: usize, before: u8, last: bool) -> End {
        let end = check_quotes(text, length, before, last);
        if !matches!(end, End::Here(_)) {
            return end;
        }
        let rest = &text[length..];
        let near = prefix_up_to(rest, MAX_LOOKAHEAD);
        let closer = near.find(self.close);
        let next_call = self.outer.iter().filter_map(|marker| near.find(marker)).min();
        match (closer, next_call) {
            (Some(closer), next_call) if next_call.is_none_or(|next| closer < next) => End::No,
            (None, None) if !last && near.len() == rest.len() => End::Partial,
            _ => End::Here(0),
        }
    }
}

/// How far to look for the closer of a value after the end of its call. Text is held so long.
const MAX_LOOKAHEAD: usize = MAX_NAME;

/// What the text at some position means for the value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum End {
    /// It belongs to the value.
    No,
    /// This many bytes are markers between quotes, and belong to the value.
    Quoted(usize),
    /// It may be an end.
    Partial,
    /// The value ends before it. This many bytes are read with the value.
    Here(usize),
}

/// Markers of this length end the value, unless they are part of a string in code: a quote or a
/// backslash follows them directly.
fn check_quotes(text: &str, length: usize, before: u8, last: bool) -> End {
    match text.as_bytes().get(length) {
        Some(b'`' | b'"' | b'\'' | b'\\') => End::Quoted(length),
        Some(_) => End::Here(0),
        None if !last => End::Partial,
        // The quote after it may have been cut.
        None if matches!(before, b'`' | b'"' | b'\'') => End::Quoted(length),
        None => End::Here(0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn framed() -> Boundary<'static> {
        Boundary { framed: true, ..Boundary::closer("</p>") }
    }

    fn nested() -> Boundary<'static> {
        Boundary { outer: &["<f>", "</s>"], call_end: &["</f>"], ..framed() }
    }

    #[test]
    fn the_next_call_or_the_outer_closer_ends_an_unclosed_value() {
        let find = |text: &str| nested().find(text, 0, false);
        assert_eq!(find("a\n<f>x"), (1, Some(2)));
        assert_eq!(find("a\n</s>\n"), (1, Some(2)));
        assert_eq!(find("a\n</s>"), (1, None));
        assert_eq!(find("a\n</f>\n</s>\n"), (1, Some(2)));
        assert_eq!(nested().find("a\n</f>\n</s>", 0, true), (1, Some(2)));
        assert_eq!(find("a</f> b</p>"), (7, Some(11)));
        assert_eq!(find("a</f>"), (1, None));
        assert_eq!(find("a</f>\n<"), (1, None));
        assert_eq!(nested().find("a</f>", 0, true), (5, None));
    }

    #[test]
    fn end_of_a_call_without_a_section_ends_an_unclosed_value() {
        let boundary = Boundary { outer: &["<f>"], no_section: true, ..nested() };
        let find = |text: &str| boundary.find(text, 0, false);
        assert_eq!(find("a</f> b</p>"), (7, Some(11)));
        assert_eq!(find("a</f> b"), (1, None));
        assert_eq!(find("a</f> b<f> c</p>"), (1, Some(1)));
        assert_eq!(find("a \"</f>\" b"), (10, None));
        assert_eq!(boundary.find("a</f> b", 0, true), (1, Some(1)));
        assert_eq!(boundary.find("a</f>", 0, true), (1, Some(1)));
        // More text is not held.
        let long = ["a</f>", &"b".repeat(MAX_LOOKAHEAD + 1), "</p>"].concat();
        assert_eq!(find(&long), (1, Some(1)));
    }

    #[test]
    fn a_quoted_marker_is_part_of_the_value() {
        let find = |text: &str| nested().find(text, 0, false);
        assert_eq!(find("a `</s>` b"), (10, None));
        assert_eq!(find("a \"</f></s>\" b"), (14, None));
        assert_eq!(find("a `</s>"), (3, None));
        assert_eq!(find("a `</s>b"), (3, Some(3)));
        // Strings of a template.
        assert_eq!(find(r"'\n</s>' b"), (10, None));
        assert_eq!(find(r#""</f></s>\n" b"#), (14, None));
        assert_eq!(nested().find("</s>'", b'\'', false), (5, None));
        assert_eq!(nested().find("a `</s>", 0, true), (7, None));
        assert_eq!(nested().find("a `</f></s>", 0, true), (11, None));
    }

    #[test]
    fn finds_a_closer_and_holds_a_partial_one() {
        let find_closer = |text: &str| Boundary::closer("</p>").find(text, 0, false);
        assert_eq!(find_closer("abc"), (3, None));
        assert_eq!(find_closer("a<b"), (3, None));
        assert_eq!(find_closer("a</"), (1, None));
        assert_eq!(find_closer("a</p>b"), (1, Some(5)));
        assert_eq!(find_closer("<</p>"), (1, Some(5)));
        assert_eq!(find_closer("a\n"), (2, None));
    }

    #[test]
    fn one_line_break_before_a_closer_belongs_to_it() {
        let find_closer = |text: &str| framed().find(text, 0, false);
        assert_eq!(find_closer("a\n"), (1, None));
        assert_eq!(find_closer("a\r"), (1, None));
        assert_eq!(find_closer("a\r\n"), (1, None));
        assert_eq!(find_closer("a\r\n</"), (1, None));
        assert_eq!(find_closer("a\r</"), (2, None));
        assert_eq!(find_closer("a\n\n</p>"), (2, Some(7)));
        assert_eq!(find_closer("a\n\nb"), (4, None));
    }

    #[test]
    fn holds_nothing_at_the_end() {
        assert_eq!(framed().find("a\n</", 0, true), (4, None));
        assert_eq!(framed().find("a\n</p>", 0, true), (1, Some(6)));
    }
}
