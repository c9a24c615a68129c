//! Finding markers in text that arrives in pieces.
//!
//! A set of markers is fixed for a state of a stream. Looking for it costs one pass over the new
//! text: a search for the few bytes a marker can begin with, and a comparison only there.

/// One marker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Marker {
    /// Its spelling.
    pub(crate) text: &'static str,
    /// Whether letters match in either case.
    pub(crate) any_case: bool,
}

impl Marker {
    /// A marker that is spelled just so.
    pub(crate) const fn exact(text: &'static str) -> Self {
        Self { text, any_case: false }
    }

    /// A marker whose letters match in either case.
    pub(crate) const fn any_case(text: &'static str) -> Self {
        Self { text, any_case: true }
    }

    /// Whether the text begins with it: wholly, not at all, or as far as the text goes.
    pub(crate) fn compare(&self, text: &[u8]) -> Match {
        if !self.any_case {
            return compare_bytes(self.text, text);
        }
        let marker = self.text.as_bytes();
        let common = marker.len().min(text.len());
        if !marker[..common].eq_ignore_ascii_case(&text[..common]) {
            Match::No
        } else if common == marker.len() {
            Match::Whole(common)
        } else {
            Match::Begun
        }
    }
}

/// How a text compares with a marker.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Match {
    /// It does not begin with it.
    No,
    /// It is too short to say, and fits so far.
    Begun,
    /// It begins with it, and it has so many bytes.
    Whole(usize),
}

/// In a marker, this stands for nothing or for a suffix such as `:opensource`.
pub(crate) const SUFFIX: char = '\u{1}';

/// The longest suffix.
const LONGEST_SUFFIX: usize = 32;

/// How a text compares with a marker that is spelled just so.
pub(crate) fn compare(marker: &str, text: &str) -> Match {
    compare_bytes(marker, text.as_bytes())
}

fn compare_bytes(marker: &str, text: &[u8]) -> Match {
    if let Some((head, tail)) = marker.split_once(SUFFIX) {
        return match compare_bytes(head, text) {
            Match::Whole(length) => compare_suffix(length, tail, &text[length..]),
            other => other,
        };
    }
    let marker = marker.as_bytes();
    if text.starts_with(marker) {
        Match::Whole(marker.len())
    } else if marker.starts_with(text) {
        Match::Begun
    } else {
        Match::No
    }
}

/// Goes on behind the head of a marker, where a suffix may stand before its tail.
fn compare_suffix(head: usize, tail: &str, rest: &[u8]) -> Match {
    let belongs = |byte: &&u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-');
    let suffix = match rest {
        [b':', word @ ..] => 1 + word.iter().take_while(belongs).count(),
        _ => 0,
    };
    match compare_bytes(tail, &rest[suffix..]) {
        _ if suffix > LONGEST_SUFFIX => Match::No,
        Match::Whole(length) => Match::Whole(head + suffix + length),
        other => other,
    }
}

/// What was found in a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Found {
    /// No marker, and no beginning of one at the end.
    Nothing,
    /// From here on, the text may be the beginning of a marker.
    Begun {
        /// Where.
        at: usize,
    },
    /// A marker.
    Marker {
        /// Where it begins.
        at: usize,
        /// Where it ends.
        end: usize,
        /// Which of the set.
        which: usize,
    },
}

/// A set of markers to look for.
#[derive(Clone, Debug)]
pub(crate) struct Markers {
    markers: Vec<Marker>,
    first: FirstBytes,
}

/// The bytes a marker can begin with.
#[derive(Clone, Debug)]
struct FirstBytes {
    table: Box<[bool; 256]>,
    bytes: Vec<u8>,
}

/// Below this length setting up a vector search costs more than it saves.
const SHORT: usize = 24;

impl FirstBytes {
    fn of(markers: &[Marker]) -> Self {
        let mut table = Box::new([false; 256]);
        for marker in markers {
            let byte = marker.text.as_bytes()[0];
            table[usize::from(byte)] = true;
            if marker.any_case {
                table[usize::from(byte.to_ascii_lowercase())] = true;
                table[usize::from(byte.to_ascii_uppercase())] = true;
            }
        }
        let bytes = (0..=255).filter(|byte| table[usize::from(*byte)]).collect();
        Self { table, bytes }
    }

    fn find(&self, text: &[u8]) -> Option<usize> {
        if text.len() < SHORT {
            return self.one_by_one(text);
        }
        match *self.bytes {
            [] => None,
            [one] => memchr::memchr(one, text),
            [one, two] => memchr::memchr2(one, two, text),
            [one, two, three] => memchr::memchr3(one, two, three, text),
            [one, two, three, four] => self.in_blocks(text, [one, two, three, four]),
            [one, two, three, four, five] => self.in_blocks(text, [one, two, three, four, five]),
            _ => self.one_by_one(text),
        }
    }

    fn one_by_one(&self, text: &[u8]) -> Option<usize> {
        text.iter().position(|byte| self.table[usize::from(*byte)])
    }

    /// By blocks that the compiler turns into vector code.
    fn in_blocks<const N: usize>(&self, text: &[u8], bytes: [u8; N]) -> Option<usize> {
        let mut rest = text;
        while let Some((block, after)) = rest.split_first_chunk::<32>() {
            let hit = block.iter().fold(false, |hit, byte| {
                bytes.iter().fold(hit, |hit, wanted| hit | (byte == wanted))
            });
            if hit {
                break;
            }
            rest = after;
        }
        let at = text.len() - rest.len();
        self.one_by_one(rest).map(|found| at + found)
    }
}

impl Markers {
    /// A set. Where several fit at one place, the longest counts.
    pub(crate) fn new(markers: impl IntoIterator<Item = Marker>) -> Self {
        let markers: Vec<Marker> =
            markers.into_iter().filter(|marker| !marker.text.is_empty()).collect();
        let first = FirstBytes::of(&markers);
        Self { markers, first }
    }

    /// The first marker in a text, or the place where one may have begun at its end. Nothing begins
    /// in a text that will not go on (`last`).
    pub(crate) fn find(&self, text: &[u8], last: bool) -> Found {
        let mut from = 0;
        while let Some(found) = self.first.find(&text[from..]) {
            let at = from + found;
            match self.at(&text[at..], last) {
                Found::Nothing => from = at + 1,
                Found::Begun { .. } => return Found::Begun { at },
                Found::Marker { end, which, .. } => {
                    return Found::Marker { at, end: at + end, which };
                }
            }
        }
        Found::Nothing
    }

    /// As [`Markers::find`], for a marker that stands right at the beginning.
    pub(crate) fn at(&self, text: &[u8], last: bool) -> Found {
        let mut whole: Option<(usize, usize)> = None;
        for (which, marker) in self.markers.iter().enumerate() {
            match marker.compare(text) {
                Match::No => {}
                // A longer marker may still come where a shorter one is whole.
                Match::Begun if !last => return Found::Begun { at: 0 },
                Match::Begun => {}
                Match::Whole(end) => {
                    if whole.is_none_or(|(longest, _)| end > longest) {
                        whole = Some((end, which));
                    }
                }
            }
        }
        whole.map_or(Found::Nothing, |(end, which)| Found::Marker { at: 0, end, which })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn tags() -> Markers {
        Markers::new([
            Marker::any_case("<think>"),
            Marker::exact("</think>"),
            Marker::exact("<tool_call>"),
            Marker::exact("[THINK]"),
            Marker::exact("◁think▷"),
        ])
    }

    #[test]
    fn markers_and_their_beginnings_are_found() {
        let find = |text: &str| tags().find(text.as_bytes(), false);
        assert_eq!(find("plain"), Found::Nothing);
        assert_eq!(find("a < b"), Found::Nothing);
        assert_eq!(find("a <"), Found::Begun { at: 2 });
        assert_eq!(find("a </thi"), Found::Begun { at: 2 });
        let marker = |at, end, which| Found::Marker { at, end, which };
        assert_eq!(find("a<THINK>b"), marker(1, 8, 0));
        assert_eq!(find("<<think>"), marker(1, 8, 0));
        assert_eq!(find("x◁think▷"), marker(1, 12, 4));
        assert_eq!(find("</THINK>"), Found::Nothing);
    }

    #[test]
    fn the_longest_marker_counts() {
        let set = Markers::new([Marker::exact("<a>"), Marker::exact("<a>b")]);
        assert_eq!(set.find(b"<a>", false), Found::Begun { at: 0 });
        assert_eq!(set.find(b"<a>", true), Found::Marker { at: 0, end: 3, which: 0 });
        assert_eq!(set.find(b"<a>b", false), Found::Marker { at: 0, end: 4, which: 1 });
        assert_eq!(set.find(b"<a>c", false), Found::Marker { at: 0, end: 3, which: 0 });
    }

    #[test]
    fn a_suffix_may_stand_in_a_marker() {
        let compare = |text: &str| compare("<think\u{1}>", text);
        assert_eq!(compare("<think>x"), Match::Whole(7));
        assert_eq!(compare("<think:open-source_1>x"), Match::Whole(21));
        assert_eq!(compare("<think:open"), Match::Begun);
        assert_eq!(compare("<think"), Match::Begun);
        assert_eq!(compare("<thinks>"), Match::No);
        assert_eq!(compare("<think:a b>"), Match::No);
        assert_eq!(compare(&format!("<think:{}>", "a".repeat(32))), Match::No);
    }

    proptest! {
        /// Whatever is cut off and held back, the same markers are found in the end.
        #[test]
        fn any_cut_finds_the_same(text in "[<>/a-kT\\[\\]]{0,12}(<think>|</think>|<tool_call>|\\[THINK\\])?[<a]{0,3}", cut in 0usize..30) {
            let bytes = text.as_bytes();
            let cut = cut.min(bytes.len());
            let whole = tags().find(bytes, true);
            let first = tags().find(&bytes[..cut], false);
            // No marker that is found later begins before what was let through.
            let let_through = match first {
                Found::Marker { .. } => {
                    prop_assert_eq!(first, whole);
                    0
                }
                Found::Begun { at } => at,
                Found::Nothing => cut,
            };
            if let Found::Marker { at, .. } = whole {
                prop_assert!(at >= let_through);
            }
        }
    }
}
