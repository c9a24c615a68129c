//! The header that carries an API key.

/// The header most providers read a key from.
pub(crate) fn bearer(key: &str) -> (&'static str, String) {
    ("authorization", format!("Bearer {key}"))
}
