//! Where values end, in text that may go on.

use crate::search::find_byte;

/// How much of a value's text is certain, and where it goes on behind its closer, if that is there.
/// What may begin the closer, and a line break before it that may belong to it, is not certain.
pub(crate) fn find(text: &str, close: &str, framed: bool, last: bool) -> (usize, Option<usize>) {
    let (bytes, marker) = (text.as_bytes(), close.as_bytes());
    let mut from = 0;
    let (end, after) = loop {
        let Some(at) = find_byte(marker[0], &bytes[from..]).map(|at| from + at) else {
            break (bytes.len(), None);
        };
        let rest = &bytes[at..];
        if rest.starts_with(marker) {
            break (at, Some(at + marker.len()));
        }
        if marker.starts_with(rest) {
            break (at, None);
        }
        from = at + 1;
    };
    if after.is_none() && last {
        return (text.len(), None);
    }
    let framing = match &bytes[..end] {
        _ if !framed => 0,
        [.., b'\r', b'\n'] => 2,
        [.., b'\n'] => 1,
        // The rest of a line break may follow.
        [.., b'\r'] if end == bytes.len() => 1,
        _ => 0,
    };
    (end - framing, after)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_closer_is_found_and_its_beginning_waits() {
        let find = |text: &str| find(text, "</p>", false, false);
        assert_eq!(find("abc"), (3, None));
        assert_eq!(find("a<b"), (3, None));
        assert_eq!(find("a</"), (1, None));
        assert_eq!(find("a</p>b"), (1, Some(5)));
        assert_eq!(find("<</p>"), (1, Some(5)));
        assert_eq!(find("a\n"), (2, None));
    }

    #[test]
    fn one_line_break_before_a_closer_belongs_to_it() {
        let find = |text: &str| find(text, "</p>", true, false);
        assert_eq!(find("a\n"), (1, None));
        assert_eq!(find("a\r"), (1, None));
        assert_eq!(find("a\r\n"), (1, None));
        assert_eq!(find("a\r\n</"), (1, None));
        assert_eq!(find("a\r</"), (2, None));
        assert_eq!(find("a\n\n</p>"), (2, Some(7)));
        assert_eq!(find("a\n\nb"), (4, None));
    }

    #[test]
    fn nothing_waits_at_the_end() {
        assert_eq!(find("a\n</", "</p>", true, true), (4, None));
        assert_eq!(find("a\n</p>", "</p>", true, true), (1, Some(6)));
    }
}
