//! What stands next on the way through a format: a marker, a word or a tag, maybe behind white space.
//! Which of them is wanted, and what follows from it, is the script's business.

use super::parameters::{Parameters, Tag};
use super::script::{Spelling, Start, Until};
use super::{FRAME, NAME, white_space, within};
use crate::text::marker::{Match, compare};

/// What stands next, of a few markers.
pub(super) enum Next {
    /// One stood there, and ends after so many bytes.
    Found(usize),
    Wait,
    /// Something else stands there.
    Other(usize),
}

/// Looks for one of these behind white space.
pub(super) fn next(markers: &'static [&'static str], text: &str, last: bool) -> Next {
    let white = white_space(text);
    let rest = &text[white..];
    if white > FRAME {
        return Next::Other(0);
    }
    if rest.is_empty() {
        return if last { Next::Other(0) } else { Next::Wait };
    }
    let mut found: Option<usize> = None;
    for marker in markers {
        match compare(marker, rest) {
            Match::Whole(length) => found = found.max(Some(white + length)),
            Match::Begun if !last => return Next::Wait,
            _ => {}
        }
    }
    found.map_or(Next::Other(white), Next::Found)
}

/// Whether the text is the beginning of one of these, behind white space.
pub(super) fn begins(markers: &'static [&'static str], text: &str) -> bool {
    let rest = &text[white_space(text)..];
    !rest.is_empty() && markers.iter().any(|marker| compare(marker, rest) == Match::Begun)
}

/// Looks for another call without a marker, maybe behind a separator.
pub(super) fn another(
    separators: &'static [&'static str],
    start: Start,
    text: &str,
    last: bool,
) -> Next {
    let mut at = match next(separators, text, last) {
        Next::Found(used) => used,
        Next::Wait => return Next::Wait,
        Next::Other(_) => 0,
    };
    let white = white_space(&text[at..]);
    if white > FRAME {
        return Next::Other(0);
    }
    at += white;
    match start.compare(&text[at..]) {
        Match::Whole(_) => Next::Found(at),
        Match::Begun if !last => Next::Wait,
        _ => Next::Other(0),
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

/// The attributes of a tag, up to its end.
pub(super) fn tag(attribute: &'static str, end: &'static str, text: &str) -> Attributes {
    let row = Parameters::named(attribute, end);
    let (key, used, closed) = match row.tag(within(text, NAME)) {
        Tag::Begun => return Attributes::Wait,
        Tag::Wrong(why) => return Attributes::Wrong(why),
        Tag::Whole { length, key, .. } => (key, length, false),
        Tag::Closed { length, key } => (key, length, true),
    };
    if key.is_empty() {
        return Attributes::Wrong("the name is empty");
    }
    let mut name = String::new();
    row.decode(key, |piece| name.push_str(piece));
    Attributes::Found { name, used, closed }
}

/// A word, and where it leads.
pub(super) enum Word<'a> {
    Found { text: &'a str, used: usize, to: usize },
    Wait,
    Broken(usize),
}

/// How long a word may be. It is looked at again with every piece until it ends.
const WORD: usize = 256;

/// A word between white space, and what stands behind it.
pub(super) fn word<'a>(
    spelling: Spelling,
    until: &'static [Until],
    text: &'a str,
    last: bool,
) -> Word<'a> {
    let begin = white_space(text);
    if begin > FRAME {
        return Word::Broken(0);
    }
    let belongs = |character: char| match spelling {
        Spelling::Line => !matches!(character, '<' | '>' | '\n' | '\r'),
        Spelling::Word | Spelling::Numbered => {
            !character.is_whitespace()
                && !character.is_control()
                && !"<>{}[]()\"'`,;=\\|".contains(character)
        }
    };
    let rest = &text[begin..];
    let length = rest.find(|character| !belongs(character)).unwrap_or(rest.len());
    if length > WORD {
        return Word::Broken(0);
    }
    let word = rest[..length].trim_end();
    if word.is_empty() && length < rest.len() {
        return Word::Broken(begin);
    }
    let end = begin + length;
    // What ends it may be white space itself, or stand behind some.
    let white = white_space(&text[end..]);
    for at in [end, end + white] {
        let rest = &text[at..];
        if rest.is_empty() {
            return Word::Wait;
        }
        for Until { marker, kept, to } in until {
            match compare(marker, rest) {
                Match::Whole(length) => {
                    return Word::Found {
                        text: word,
                        used: if *kept { at } else { at + length },
                        to: *to,
                    };
                }
                Match::Begun if !last => return Word::Wait,
                _ => {}
            }
        }
        if white > FRAME {
            break;
        }
    }
    Word::Broken(if white > FRAME { end } else { end + white })
}
