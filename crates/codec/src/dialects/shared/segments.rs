//! Path segments and queries: percent-encoding, and detection of dot segments.

use std::fmt::Write;

/// Appends a percent-encoded name. Slashes stay because some servers use them in model names. The
/// result cannot leave its directory because names with dot segments are rejected.
pub(crate) fn encode(name: &str, path: &mut String) {
    for byte in name.bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' => path.push(char::from(byte)),
            b'-' | b'.' | b'_' | b'~' | b'@' | b'/' => path.push(char::from(byte)),
            _ => {
                let _ = write!(path, "%{byte:02X}");
            }
        }
    }
}

/// Decodes percent-encoding.
pub fn decode(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, after @ ..] = rest {
        let byte = match (first, after) {
            (b'%', [high, low, ..]) => hex(*high).zip(hex(*low)),
            _ => None,
        };
        match byte {
            Some((high, low)) => {
                bytes.push(high << 4 | low);
                rest = &after[2..];
            }
            None => {
                bytes.push(*first);
                rest = after;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Reads a query parameter.
pub fn query_value(query: &str, name: &str) -> Option<String> {
    let mut pairs = query.split('&').filter_map(|pair| pair.split_once('='));
    pairs.find(|(found, _)| *found == name).map(|(_, value)| decode(value))
}

/// Whether a path or a name in it contains a `.` or `..` segment, also percent-encoded. Servers
/// remove such a segment together with the one before it.
pub fn has_dot_segments(path: &str) -> bool {
    let dots = |path: &str| path.split(['/', '\\']).any(|segment| matches!(segment, "." | ".."));
    dots(path) || path.contains('%') && dots(&decode(path))
}

fn hex(digit: u8) -> Option<u8> {
    char::from(digit).to_digit(16).map(|value| value as u8)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dot_segments_are_found_in_every_encoding() {
        for path in [
            "..",
            ".",
            "../x",
            "a/..",
            "a/./b",
            "%2e%2E",
            ".%2e/x",
            "a%2f..%2fb",
            "..\\x",
            "/v1/a/%2e/b",
        ] {
            assert!(has_dot_segments(path), "{path}");
        }
        for path in ["gemini-2.5", "a..b", ".hidden", "...", "/v1/a.b/c", "%2", "a/b"] {
            assert!(!has_dot_segments(path), "{path}");
        }
    }

    #[test]
    fn encoded_name_stays_within_its_segment() {
        let name = "a/b?c#d%2e é:\\";
        let mut path = String::new();
        encode(name, &mut path);
        assert!(path.is_ascii() && !path.contains(['?', '#', ' ', ':', '\\']));
        assert_eq!(decode(&path), name);
    }
}
