//! Finding markers in text that arrives in pieces.
//!
//! A set of markers is fixed for a state of a stream. Looking for it costs one pass over the new
//! text: a search for the few bytes a marker can begin with, and a comparison only there.

/// One marker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Marker {
    /// Its spelling.
    pub text: &'static str,
    /// Whether letters match in either case.
    pub any_case: bool,
}

impl Marker {
    /// A marker that is spelled just so.
    pub const fn exact(text: &'static str) -> Self {
        Self {
            text,
            any_case: false,
        }
    }

    /// A marker whose letters match in either case.
    pub const fn any_case(text: &'static str) -> Self {
        Self {
            text,
            any_case: true,
        }
    }

    /// Whether the text begins with it: wholly, not at all, or as far as the text goes.
    fn compare(&self, text: &[u8]) -> Match {
        let marker = self.text.as_bytes();
        let common = marker.len().min(text.len());
        let (marker_start, text_start) = (&marker[..common], &text[..common]);
        let equal = if self.any_case {
            marker_start.eq_ignore_ascii_case(text_start)
        } else {
            marker_start == text_start
        };
        match (equal, common == marker.len()) {
            (false, _) => Match::No,
            (true, true) => Match::Whole,
            (true, false) => Match::Begun,
        }
    }
}

enum Match {
    No,
    Begun,
    Whole,
}

/// What was found in a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found {
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
pub struct Markers {
    markers: Vec<Marker>,
    first: FirstBytes,
}

/// The bytes a marker can begin with. Up to three are searched for by vector code.
#[derive(Clone, Debug)]
enum FirstBytes {
    None,
    One(u8),
    Two(u8, u8),
    Three(u8, u8, u8),
    Many(Box<[bool; 256]>),
}

impl FirstBytes {
    fn find(&self, text: &[u8]) -> Option<usize> {
        match self {
            Self::None => None,
            Self::One(one) => memchr::memchr(*one, text),
            Self::Two(one, two) => memchr::memchr2(*one, *two, text),
            Self::Three(one, two, three) => memchr::memchr3(*one, *two, *three, text),
            Self::Many(table) => text.iter().position(|byte| table[usize::from(*byte)]),
        }
    }
}

impl Markers {
    /// A set. Where several fit at one place, the longest counts.
    pub fn new(markers: impl IntoIterator<Item = Marker>) -> Self {
        let markers: Vec<Marker> = markers
            .into_iter()
            .filter(|marker| !marker.text.is_empty())
            .collect();
        let mut table = [false; 256];
        for marker in &markers {
            let byte = marker.text.as_bytes()[0];
            table[usize::from(byte)] = true;
            if marker.any_case {
                table[usize::from(byte.to_ascii_lowercase())] = true;
                table[usize::from(byte.to_ascii_uppercase())] = true;
            }
        }
        let bytes: Vec<u8> = (0..=255).filter(|byte| table[usize::from(*byte)]).collect();
        let first = match *bytes {
            [] => FirstBytes::None,
            [one] => FirstBytes::One(one),
            [one, two] => FirstBytes::Two(one, two),
            [one, two, three] => FirstBytes::Three(one, two, three),
            _ => FirstBytes::Many(Box::new(table)),
        };
        Self { markers, first }
    }

    /// The markers, in the order they were given.
    pub fn all(&self) -> &[Marker] {
        &self.markers
    }

    /// The first marker in a text, or the place where one may have begun at its end.
    pub fn find(&self, text: &[u8]) -> Found {
        let mut from = 0;
        while let Some(found) = self.first.find(&text[from..]) {
            let at = from + found;
            let here = &text[at..];
            let (mut whole, mut begun) = (None, false);
            for (which, marker) in self.markers.iter().enumerate() {
                match marker.compare(here) {
                    Match::No => {}
                    Match::Begun => begun = true,
                    Match::Whole => {
                        let end = at + marker.text.len();
                        if whole.is_none_or(|(longest, _)| end > longest) {
                            whole = Some((end, which));
                        }
                    }
                }
            }
            // A longer marker may still come where a shorter one is whole.
            if begun {
                return Found::Begun { at };
            }
            if let Some((end, which)) = whole {
                return Found::Marker { at, end, which };
            }
            from = at + 1;
        }
        Found::Nothing
    }

    /// As [`Markers::find`], for a text that will not go on: what has only begun is no marker.
    pub fn find_at_end(&self, text: &[u8]) -> Found {
        let mut from = 0;
        while let Some(found) = self.first.find(&text[from..]) {
            let at = from + found;
            let whole = self
                .markers
                .iter()
                .enumerate()
                .filter(|(_, marker)| matches!(marker.compare(&text[at..]), Match::Whole))
                .max_by_key(|(_, marker)| marker.text.len());
            if let Some((which, marker)) = whole {
                return Found::Marker {
                    at,
                    end: at + marker.text.len(),
                    which,
                };
            }
            from = at + 1;
        }
        Found::Nothing
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
        let find = |text: &str| tags().find(text.as_bytes());
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
        assert_eq!(set.find(b"<a>"), Found::Begun { at: 0 });
        assert_eq!(
            set.find_at_end(b"<a>"),
            Found::Marker {
                at: 0,
                end: 3,
                which: 0
            }
        );
        assert_eq!(
            set.find(b"<a>b"),
            Found::Marker {
                at: 0,
                end: 4,
                which: 1
            }
        );
        assert_eq!(
            set.find(b"<a>c"),
            Found::Marker {
                at: 0,
                end: 3,
                which: 0
            }
        );
    }

    proptest! {
        /// Whatever is cut off and held back, the same markers are found in the end.
        #[test]
        fn any_cut_finds_the_same(text in "[<>/a-kT\\[\\]]{0,12}(<think>|</think>|<tool_call>|\\[THINK\\])?[<a]{0,3}", cut in 0usize..30) {
            let bytes = text.as_bytes();
            let cut = cut.min(bytes.len());
            let whole = tags().find_at_end(bytes);
            let first = tags().find(&bytes[..cut]);
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
