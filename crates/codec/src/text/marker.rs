//! Finds markers in text that arrives in pieces.
//!
//! Each state of a stream has a fixed set of markers. A search makes one pass over the new text: it
//! looks for the few bytes a marker can start with, and compares only there.

/// One marker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Marker {
    /// The text of the marker.
    pub(crate) text: &'static str,
    /// Whether letters match in either case.
    pub(crate) any_case: bool,
}

impl Marker {
    /// A marker that must match exactly.
    pub(crate) const fn exact(text: &'static str) -> Self {
        Self { text, any_case: false }
    }

    /// A marker whose letters match in either case.
    pub(crate) const fn any_case(text: &'static str) -> Self {
        Self { text, any_case: true }
    }

    /// Compares the start of a text with the marker.
    pub(crate) fn compare(&self, text: &[u8]) -> Match {
        if !self.any_case {
            return compare_bytes(self.text, text);
        }
        let marker = self.text.as_bytes();
        let common = marker.len().min(text.len());
        if !marker[..common].eq_ignore_ascii_case(&text[..common]) {
            Match::No
        } else if common == marker.len() {
            Match::Full(common)
        } else {
            Match::Partial
        }
    }
}

/// How the start of a text compares with a marker.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Match {
    /// It differs.
    No,
    /// The text is shorter than the marker and matches so far.
    Partial,
    /// It matches, with this many bytes.
    Full(usize),
}

/// In a marker, this character stands for an optional suffix such as `:opensource`.
pub(crate) const SUFFIX: char = '\u{1}';

/// Maximum length of a suffix.
const MAX_SUFFIX: usize = 32;

/// Compares the start of a text with a marker that must match exactly.
pub(crate) fn compare(marker: &str, text: &str) -> Match {
    compare_bytes(marker, text.as_bytes())
}

fn compare_bytes(marker: &str, text: &[u8]) -> Match {
    if let Some((head, tail)) = marker.split_once(SUFFIX) {
        return match compare_bytes(head, text) {
            Match::Full(length) => compare_suffix(length, tail, &text[length..]),
            other => other,
        };
    }
    let marker = marker.as_bytes();
    if text.starts_with(marker) {
        Match::Full(marker.len())
    } else if marker.starts_with(text) {
        Match::Partial
    } else {
        Match::No
    }
}

/// Continues after the head of a marker. A suffix may come before its tail.
fn compare_suffix(head: usize, tail: &str, rest: &[u8]) -> Match {
    let is_suffix = |byte: &&u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-');
    let suffix = match rest {
        [b':', word @ ..] => 1 + word.iter().take_while(is_suffix).count(),
        _ => 0,
    };
    match compare_bytes(tail, &rest[suffix..]) {
        _ if suffix > MAX_SUFFIX => Match::No,
        Match::Full(length) => Match::Full(head + suffix + length),
        other => other,
    }
}

/// The result of a search.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Found {
    /// No marker, and no start of one at the end.
    Nothing,
    /// The text may contain the start of a marker from here on.
    Partial {
        /// Start of the possible marker.
        at: usize,
    },
    /// A marker.
    Marker {
        /// Start of the marker.
        at: usize,
        /// End of the marker.
        end: usize,
        /// Index of the marker in the set.
        which: usize,
    },
}

/// A set of markers to look for.
#[derive(Clone, Debug)]
pub(crate) struct Markers {
    markers: Vec<Marker>,
    first: FirstBytes,
}

/// The bytes a marker can start with.
#[derive(Clone, Debug)]
struct FirstBytes {
    table: Box<[bool; 256]>,
    bytes: Vec<u8>,
}

/// Below this length, the set-up of a vector search costs more than it saves.
const MIN_VECTOR_SEARCH: usize = 24;

impl FirstBytes {
    fn new(markers: &[Marker]) -> Self {
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
        if text.len() < MIN_VECTOR_SEARCH {
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

    /// Searches in blocks that the compiler turns into vector code.
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
    /// Creates a set. If several markers match at one position, the longest wins.
    pub(crate) fn new(markers: impl IntoIterator<Item = Marker>) -> Self {
        let markers: Vec<Marker> =
            markers.into_iter().filter(|marker| !marker.text.is_empty()).collect();
        let first = FirstBytes::new(&markers);
        Self { markers, first }
    }

    /// Finds the first marker in a text, or the position at its end where one may start. If no more
    /// text follows (`last`), a partial marker does not count.
    pub(crate) fn find(&self, text: &[u8], last: bool) -> Found {
        let mut from = 0;
        while let Some(found) = self.first.find(&text[from..]) {
            let at = from + found;
            match self.at(&text[at..], last) {
                Found::Nothing => from = at + 1,
                Found::Partial { .. } => return Found::Partial { at },
                Found::Marker { end, which, .. } => {
                    return Found::Marker { at, end: at + end, which };
                }
            }
        }
        Found::Nothing
    }

    /// Like [`Markers::find`], for a marker at the start of the text.
    pub(crate) fn at(&self, text: &[u8], last: bool) -> Found {
        let mut whole: Option<(usize, usize)> = None;
        for (which, marker) in self.markers.iter().enumerate() {
            match marker.compare(text) {
                Match::No => {}
                // A longer marker may still follow where a shorter one is complete.
                Match::Partial if !last => return Found::Partial { at: 0 },
                Match::Partial => {}
                Match::Full(end) => {
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
    fn finds_markers_and_their_starts() {
        let find = |text: &str| tags().find(text.as_bytes(), false);
        assert_eq!(find("plain"), Found::Nothing);
        assert_eq!(find("a < b"), Found::Nothing);
        assert_eq!(find("a <"), Found::Partial { at: 2 });
        assert_eq!(find("a </thi"), Found::Partial { at: 2 });
        let marker = |at, end, which| Found::Marker { at, end, which };
        assert_eq!(find("a<THINK>b"), marker(1, 8, 0));
        assert_eq!(find("<<think>"), marker(1, 8, 0));
        assert_eq!(find("x◁think▷"), marker(1, 12, 4));
        assert_eq!(find("</THINK>"), Found::Nothing);
    }

    #[test]
    fn the_longest_marker_wins() {
        let set = Markers::new([Marker::exact("<a>"), Marker::exact("<a>b")]);
        assert_eq!(set.find(b"<a>", false), Found::Partial { at: 0 });
        assert_eq!(set.find(b"<a>", true), Found::Marker { at: 0, end: 3, which: 0 });
        assert_eq!(set.find(b"<a>b", false), Found::Marker { at: 0, end: 4, which: 1 });
        assert_eq!(set.find(b"<a>c", false), Found::Marker { at: 0, end: 3, which: 0 });
    }

    #[test]
    fn a_marker_may_contain_a_suffix() {
        let compare = |text: &str| compare("<think\u{1}>", text);
        assert_eq!(compare("<think>x"), Match::Full(7));
        assert_eq!(compare("<think:open-source_1>x"), Match::Full(21));
        assert_eq!(compare("<think:open"), Match::Partial);
        assert_eq!(compare("<think"), Match::Partial);
        assert_eq!(compare("<thinks>"), Match::No);
        assert_eq!(compare("<think:a b>"), Match::No);
        assert_eq!(compare(&format!("<think:{}>", "a".repeat(32))), Match::No);
    }

    proptest! {
        /// A text that is cut and held back gives the same markers in the end.
        #[test]
        fn splits_do_not_change_the_markers(text in "[<>/a-kT\\[\\]]{0,12}(<think>|</think>|<tool_call>|\\[THINK\\])?[<a]{0,3}", cut in 0usize..30) {
            let bytes = text.as_bytes();
            let cut = cut.min(bytes.len());
            let whole = tags().find(bytes, true);
            let first = tags().find(&bytes[..cut], false);
            // No later marker starts before the released text ends.
            let released = match first {
                Found::Marker { .. } => {
                    prop_assert_eq!(first, whole);
                    0
                }
                Found::Partial { at } => at,
                Found::Nothing => cut,
            };
            if let Found::Marker { at, .. } = whole {
                prop_assert!(at >= released);
            }
        }
    }
}
