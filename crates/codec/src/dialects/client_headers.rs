//! Headers and query members in which clients of all dialects present a key or name a session.

use super::segments::query_value;

/// Headers that carry an API key. The first one present counts.
pub const KEYS: [&str; 3] = ["x-api-key", "x-goog-api-key", "authorization"];

/// Headers by which clients name a session. The first one present counts.
pub const SESSIONS: [&str; 4] =
    ["x-claude-code-session-id", "x-session-id", "session-id", "thread-id"];

/// The session in a user id. Some clients put a JSON record there, with the session inside.
pub fn session_in_user(user: &str) -> String {
    serde_json::from_str::<serde_json::Value>(user)
        .ok()
        .and_then(|record| Some(record.get("session_id")?.as_str()?.to_owned()))
        .unwrap_or_else(|| user.to_owned())
}

/// The API key in a query, where Gemini's clients may put it.
pub fn key_in_query(query: &str) -> Option<String> {
    query_value(query, "key")
}

/// A query without its API key.
pub fn without_key(query: &str) -> String {
    let others = query.split('&').filter(|pair| *pair != "key" && !pair.starts_with("key="));
    others.collect::<Vec<_>>().join("&")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn key_is_read_from_the_query() {
        assert_eq!(key_in_query("alt=sse&key=a%2Bb%3D"), Some("a+b=".to_owned()));
        assert_eq!(key_in_query("alt=sse&monkey=a"), None);
    }
}
