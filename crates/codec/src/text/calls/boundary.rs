//! Finds where a value ends, in text that may continue.

use crate::search::find_byte;

/// Returns how much of the text surely belongs to the value, and the position after its closer, if
/// the closer is there. A partial closer, and a line break before it that may belong to it, are not
/// sure yet.
pub(crate) fn find_closer(
    text: &str,
    close: &str,
    framed: bool,
    last: bool,
) -> (usize, Option<usize>) {
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
    fn finds_a_closer_and_holds_a_partial_one() {
        let find_closer = |text: &str| find_closer(text, "</p>", false, false);
        assert_eq!(find_closer("abc"), (3, None));
        assert_eq!(find_closer("a<b"), (3, None));
        assert_eq!(find_closer("a</"), (1, None));
        assert_eq!(find_closer("a</p>b"), (1, Some(5)));
        assert_eq!(find_closer("<</p>"), (1, Some(5)));
        assert_eq!(find_closer("a\n"), (2, None));
    }

    #[test]
    fn one_line_break_before_a_closer_belongs_to_it() {
        let find_closer = |text: &str| find_closer(text, "</p>", true, false);
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
        assert_eq!(find_closer("a\n</", "</p>", true, true), (4, None));
        assert_eq!(find_closer("a\n</p>", "</p>", true, true), (1, Some(6)));
    }
}
