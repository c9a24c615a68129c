//! Patterns of model names.

use memchr::memmem;

/// Whether a pattern matches a name, or the part after the name's last slash: `openai/gpt-5` is
/// also a `gpt-5`. A `*` matches anything. Both must be in lower case.
pub(super) fn matches(pattern: &str, name: &str) -> bool {
    let last_segment = name.rsplit_once('/').map(|(_, last_segment)| last_segment);
    matches_whole(pattern, name) || last_segment.is_some_and(|name| matches_whole(pattern, name))
}

/// The first match of each piece leaves the most text for the later pieces, so no other match has
/// to be tried.
fn matches_whole(pattern: &str, name: &str) -> bool {
    let Some((start, rest)) = pattern.split_once('*') else {
        return pattern == name;
    };
    let (middle, end) = rest.rsplit_once('*').unwrap_or(("", rest));
    let Some(mut inner) =
        name.strip_prefix(start).and_then(|name| name.strip_suffix(end)).map(str::as_bytes)
    else {
        return false;
    };
    for piece in middle.split('*') {
        match memmem::find(inner, piece.as_bytes()) {
            Some(at) => inner = &inner[at + piece.len()..],
            None => return false,
        }
    }
    true
}

/// The weight of a pattern: its number of letters.
pub(super) fn weight(pattern: &str) -> usize {
    pattern.bytes().filter(|byte| *byte != b'*').count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn star_matches_anything() {
        for (pattern, name, expected) in [
            ("gpt-5", "gpt-5", true),
            ("gpt-5", "gpt-5.1", false),
            ("gpt-5*", "gpt-5", true),
            ("gpt-5*", "gpt-5.1-codex", true),
            ("gpt-5*", "my-gpt-5", false),
            ("gpt-5*", "openai/gpt-5-mini", true),
            ("gpt-5*", "a/b/gpt-5", true),
            ("*claude-opus-4*", "us.anthropic.claude-opus-4-1-v1:0", true),
            ("gpt-5*-codex*", "gpt-5.2-codex-max", true),
            ("gpt-5*-codex*", "gpt-5.2", false),
            ("*a*b*", "xbxa", false),
            ("*a*b*", "xaxbx", true),
            ("a*a", "a", false),
            ("a*a", "aa", true),
            ("*", "", true),
            ("", "", true),
            ("", "x", false),
            ("*ü*", "für", true),
        ] {
            assert_eq!(matches(pattern, name), expected, "{pattern} {name}");
        }
    }

    #[test]
    fn many_stars_are_matched_in_linear_time() {
        let pattern = "*a".repeat(2000) + "b*";
        let name = "a".repeat(20_000);
        assert!(!matches(&pattern, &name));
    }
}
