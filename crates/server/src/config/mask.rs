//! Masks API keys in messages. A message shows a line of the file, that line may contain a key, and
//! messages end up in logs and bug reports.
//!
//! Works on text rather than on parsed values, because the line may not parse.

use super::suggest;

/// Characters that separate keys from values, or start and end a value. `:` is a habit from YAML; a
/// setting that is commented out with `#` can still contain a real key.
const DELIMITERS: [char; 5] = ['=', ':', '"', '\'', '#'];

/// Masks everything in a line that may be an API key, character by character, so that a caret below
/// still points at the right column.
pub(super) fn line(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    let mut rest = text;
    let mut key = "";
    while let Some(start) = rest.find(DELIMITERS) {
        let (before, found) = rest.split_at(start);
        shown.push_str(before);
        // A quoted name was stored when it was read; a bare name is right before the delimiter.
        if let Some(word) =
            before.split([' ', '\t', ',', '.', '{', '[', '}', ']']).rfind(|word| !word.is_empty())
        {
            key = word;
        }
        if found.starts_with(['"', '\'']) {
            let (quoted, after) = quoted(found);
            let inner = quoted.trim_matches(['"', '\'']);
            rest = after;
            if after.trim_start().starts_with('=') {
                key = inner;
                shown.push_str(quoted);
            } else if is_secret(key, inner) {
                mask(&mut shown, quoted);
            } else {
                shown.push_str(quoted);
            }
            continue;
        }
        let value = found[1..].trim_start();
        shown.push_str(&found[..found.len() - value.len()]);
        rest = value;
        // Without quotes, the end of a key is unknown.
        if !found.starts_with('#')
            && !value.starts_with(['"', '\'', '[', '{'])
            && is_secret(key, value)
        {
            mask(&mut shown, value);
            rest = "";
        }
    }
    if let Some((word, value)) = rest.trim_start().split_once([' ', '\t'])
        && is_secret(word, value)
    {
        shown.push_str(&rest[..rest.len() - value.len()]);
        mask(&mut shown, value);
        return shown;
    }
    shown.push_str(rest);
    shown
}

/// Whether a value of any setting looks like an API key.
pub(super) fn looks_secret(value: &str) -> bool {
    const STARTS: [&str; 7] = ["sk-", "sk_", "gsk_", "xai-", "AIza", "Bearer ", "Basic "];
    let credentials_in_url =
        |(_, rest): (&str, &str)| rest.split('/').next().is_some_and(|host| host.contains('@'));
    STARTS.iter().any(|start| value.starts_with(start))
        || value.split_once("://").is_some_and(credentials_in_url)
}

/// Whether a string can be the name of an environment variable. A pasted key usually cannot.
pub(super) fn is_variable_name(text: &str) -> bool {
    !text.is_empty()
        && !text.starts_with(|letter: char| letter.is_ascii_digit())
        && text.chars().all(|letter| letter.is_ascii_alphanumeric() || letter == '_')
}

fn is_secret(key: &str, value: &str) -> bool {
    if key == "api_key_env" {
        return !is_variable_name(value);
    }
    let folded = key.to_ascii_lowercase();
    let secret_names = ["secret", "token", "password", "apikey"];
    looks_secret(value)
        || secret_names.iter().any(|name| folded.contains(name))
        || suggest::nearest(&folded, ["api_key"]).is_some()
}

/// Splits a quoted string from the text after it.
fn quoted(text: &str) -> (&str, &str) {
    let quote = text.chars().next().unwrap_or('"');
    let mut escaped = false;
    for (at, letter) in text.char_indices().skip(1) {
        match letter {
            _ if escaped => escaped = false,
            '\\' if quote == '"' => escaped = true,
            letter if letter == quote => return text.split_at(at + quote.len_utf8()),
            _ => {}
        }
    }
    (text, "")
}

fn mask(shown: &mut String, hidden: &str) {
    shown.extend(hidden.chars().map(|letter| match letter {
        '"' | '\'' => letter,
        _ => '*',
    }));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn api_keys_are_masked() {
        for (text, shown) in [
            (r#"api_key = "abc""#, r#"api_key = "***""#),
            (r#"api_key = "ab\"c" # mine"#, r#"api_key = "***"*" # mine"#),
            (r#"api_key = abc def"#, r#"api_key = *******"#),
            (r#"api_key = "abc"#, r#"api_key = "***"#),
            (r#""api_key" = 'abc'"#, r#""api_key" = '***'"#),
            (r#"# api_key = "abc""#, r#"# api_key = "***""#),
            (r#"api_key: "abc""#, r#"api_key: "***""#),
            (r#"api_key: abc"#, r#"api_key: ***"#),
            (r#"api_key "abc""#, r#"api_key "***""#),
            (r#"  api_key abc"#, r#"  api_key ***"#),
            (r#"apikey = "abc""#, r#"apikey = "***""#),
            (r#"api_kye = "abc""#, r#"api_kye = "***""#),
            (
                r#"backend = [{ name = "a", api_key = "abc", retries = 1 }]"#,
                r#"backend = [{ name = "a", api_key = "***", retries = 1 }]"#,
            ),
            (r#"auth = "sk-ant-1""#, r#"auth = "********""#),
            (r#"auth = sk-ant-1"#, r#"auth = ********"#),
            (r#"api_key_env = "ant-1""#, r#"api_key_env = "*****""#),
            (r#"base_url = "http://u:p@h/""#, r#"base_url = "*************""#),
        ] {
            assert_eq!(line(text), shown, "{text}");
        }
    }

    #[test]
    fn other_lines_are_unchanged() {
        for text in [
            "",
            "[thinking]",
            r#"polcy = "session" # 'why"#,
            r#"api_key_env = "ANTHROPIC_API_KEY""#,
            "share_caller_key = true",
            "retries = many",
            "listen = localhost:8484",
            r#"rules = [{ model = "gpt-*", backend = "b", fallback = ["a"] }]"#,
            r#"models = { "claude-*" = "glm-5" }"#,
            r#"base_url = "https://api.anthropic.com/@x""#,
        ] {
            assert_eq!(line(text), text);
        }
    }
}
