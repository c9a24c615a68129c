//! Looks ahead on the way through a format: for a marker, a word or a tag, after optional white
//! space. The script decides what follows from it.

use super::parameters::{Parameters, Tag};
use super::script::{NameStyle, Start, Terminator};
use super::{MAX_FRAMING, MAX_NAME, leading_white_space, prefix_up_to};
use crate::text::marker::{Match, compare};

/// The result of looking for a marker.
pub(super) enum Lookahead {
    /// It is there, and ends after this many bytes.
    Found(usize),
    Wait,
    /// Something else is there.
    Other(usize),
}

/// Looks for one of these markers after white space.
pub(super) fn find_marker(markers: &'static [&'static str], text: &str, last: bool) -> Lookahead {
    let white = leading_white_space(text);
    let rest = &text[white..];
    if white > MAX_FRAMING {
        return Lookahead::Other(0);
    }
    if rest.is_empty() {
        return if last { Lookahead::Other(0) } else { Lookahead::Wait };
    }
    let mut found: Option<usize> = None;
    for marker in markers {
        match compare(marker, rest) {
            Match::Full(length) => found = found.max(Some(white + length)),
            Match::Partial if !last => return Lookahead::Wait,
            _ => {}
        }
    }
    found.map_or(Lookahead::Other(white), Lookahead::Found)
}

/// Whether the text is the start of one of these markers, after white space.
pub(super) fn is_partial_marker(markers: &'static [&'static str], text: &str) -> bool {
    let rest = &text[leading_white_space(text)..];
    !rest.is_empty() && markers.iter().any(|marker| compare(marker, rest) == Match::Partial)
}

/// Looks for another call without a marker, after an optional separator.
pub(super) fn find_next_call(
    separators: &'static [&'static str],
    start: Start,
    text: &str,
    last: bool,
) -> Lookahead {
    let mut at = match find_marker(separators, text, last) {
        Lookahead::Found(used) => used,
        Lookahead::Wait => return Lookahead::Wait,
        Lookahead::Other(_) => 0,
    };
    let white = leading_white_space(&text[at..]);
    if white > MAX_FRAMING {
        return Lookahead::Other(0);
    }
    at += white;
    match start.compare(&text[at..]) {
        Match::Full(_) => Lookahead::Found(at),
        Match::Partial if !last => Lookahead::Wait,
        _ => Lookahead::Other(0),
    }
}

/// The attributes of a tag.
pub(super) enum Attributes {
    Wait,
    Wrong(&'static str),
    Found {
        name: String,
        used: usize,
        /// The tag closed itself.
        closed: bool,
    },
}

/// Reads the attributes of a tag, up to its end.
pub(super) fn read_attributes(
    attribute: &'static str,
    end: &'static str,
    text: &str,
) -> Attributes {
    let row = Parameters::named(attribute, end);
    let (key, used, closed) = match row.tag(prefix_up_to(text, MAX_NAME)) {
        Tag::Partial => return Attributes::Wait,
        Tag::Wrong(why) => return Attributes::Wrong(why),
        Tag::Full { length, key, .. } => (key, length, false),
        Tag::Closed { length, key } => (key, length, true),
    };
    if key.is_empty() {
        return Attributes::Wrong("the name is empty");
    }
    let mut name = String::new();
    row.decode(key, |piece| name.push_str(piece));
    Attributes::Found { name, used, closed }
}

/// A word, and the step that follows it.
pub(super) enum Word<'a> {
    Found { text: &'a str, used: usize, next_step: usize },
    Wait,
    Broken(usize),
}

/// Limit for a word. It is read again with every piece until it ends.
const MAX_WORD: usize = 256;

/// Reads a word between white space, and the marker after it.
pub(super) fn read_word<'a>(
    style: NameStyle,
    terminators: &'static [Terminator],
    text: &'a str,
    last: bool,
) -> Word<'a> {
    let begin = leading_white_space(text);
    if begin > MAX_FRAMING {
        return Word::Broken(0);
    }
    let is_inside = |character: char| match style {
        NameStyle::Line => !matches!(character, '<' | '>' | '\n' | '\r'),
        NameStyle::Word | NameStyle::Numbered => {
            !character.is_whitespace()
                && !character.is_control()
                && !"<>{}[]()\"'`,;=\\|".contains(character)
        }
    };
    let rest = &text[begin..];
    let length = rest.find(|character| !is_inside(character)).unwrap_or(rest.len());
    if length > MAX_WORD {
        return Word::Broken(0);
    }
    let word = rest[..length].trim_end();
    if word.is_empty() && length < rest.len() {
        return Word::Broken(begin);
    }
    let end = begin + length;
    // The terminator may be white space, or come after some.
    let white = leading_white_space(&text[end..]);
    for at in [end, end + white] {
        let rest = &text[at..];
        if rest.is_empty() {
            return Word::Wait;
        }
        for Terminator { marker, kept, next_step } in terminators {
            match compare(marker, rest) {
                Match::Full(length) => {
                    return Word::Found {
                        text: word,
                        used: if *kept { at } else { at + length },
                        next_step: *next_step,
                    };
                }
                Match::Partial if !last => return Word::Wait,
                _ => {}
            }
        }
        if white > MAX_FRAMING {
            break;
        }
    }
    Word::Broken(if white > MAX_FRAMING { end } else { end + white })
}
