//! Keeps keys out of messages. A message shows the line it is about, that line may hold a key,
//! and messages end up in logs and bug reports.
//!
//! Works on text rather than on parsed values, because the line may be the one that does not parse.

use super::suggest;

/// What separates keys from values, or starts and ends one. `:` is what a hand used to YAML types;
/// behind `#` a setting that is switched off is still somebody's key.
const MARKS: [char; 5] = ['=', ':', '"', '\'', '#'];

/// The line with everything that may be a key starred out, letter for letter, so that a caret
/// under it still points at the right place.
pub(super) fn line(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    let mut rest = text;
    let mut key = "";
    while let Some(start) = rest.find(MARKS) {
        let (before, found) = rest.split_at(start);
        shown.push_str(before);
        // A quoted key was noted when it was passed; only a bare one stands right here.
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
            } else if hides(key, inner) {
                stars(&mut shown, quoted);
            } else {
                shown.push_str(quoted);
            }
            continue;
        }
        let value = found[1..].trim_start();
        shown.push_str(&found[..found.len() - value.len()]);
        rest = value;
        // Without quotes there is no telling where a key ends.
        if !found.starts_with('#') && !value.starts_with(['"', '\'', '[', '{']) && hides(key, value)
        {
            stars(&mut shown, value);
            rest = "";
        }
    }
    if let Some((word, value)) = rest.trim_start().split_once([' ', '\t'])
        && hides(word, value)
    {
        shown.push_str(&rest[..rest.len() - value.len()]);
        stars(&mut shown, value);
        return shown;
    }
    shown.push_str(rest);
    shown
}

/// Is this value, wherever it stands, more likely a key than anything else?
pub(super) fn looks_secret(value: &str) -> bool {
    const STARTS: [&str; 7] = ["sk-", "sk_", "gsk_", "xai-", "AIza", "Bearer ", "Basic "];
    let credentials_in_url =
        |(_, rest): (&str, &str)| rest.split('/').next().is_some_and(|host| host.contains('@'));
    STARTS.iter().any(|start| value.starts_with(start))
        || value.split_once("://").is_some_and(credentials_in_url)
}

/// Can this be the name of an environment variable? A pasted key usually cannot.
pub(super) fn is_variable_name(text: &str) -> bool {
    !text.is_empty()
        && !text.starts_with(|letter: char| letter.is_ascii_digit())
        && text.chars().all(|letter| letter.is_ascii_alphanumeric() || letter == '_')
}

fn hides(key: &str, value: &str) -> bool {
    if key == "api_key_env" {
        return !is_variable_name(value);
    }
    let folded = key.to_ascii_lowercase();
    let named_so = ["secret", "token", "password", "apikey"];
    looks_secret(value)
        || named_so.iter().any(|name| folded.contains(name))
        || suggest::nearest(&folded, ["api_key"]).is_some()
}

fn quoted(text: &str) -> (&str, &str) {
    let mark = text.chars().next().unwrap_or('"');
    let mut escaped = false;
    for (at, letter) in text.char_indices().skip(1) {
        match letter {
            _ if escaped => escaped = false,
            '\\' if mark == '"' => escaped = true,
            letter if letter == mark => return text.split_at(at + mark.len_utf8()),
            _ => {}
        }
    }
    (text, "")
}

fn stars(shown: &mut String, hidden: &str) {
    shown.extend(hidden.chars().map(|letter| match letter {
        '"' | '\'' => letter,
        _ => '*',
    }));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_starred_out() {
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
    fn other_lines_stay_as_they_are() {
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
