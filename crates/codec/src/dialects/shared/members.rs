//! Members of JSON bodies.

use serde_json::{Map, Value};

/// Reduces a body to the wanted members and keeps their order.
pub(crate) fn keep_only(body: &[u8], wanted: &[&str]) -> Vec<u8> {
    let mut members: Map<String, Value> = serde_json::from_slice(body).unwrap_or_default();
    members.retain(|name, _| wanted.contains(&name.as_str()));
    Value::Object(members).to_string().into_bytes()
}

/// Reads a top-level number of a body.
pub(crate) fn read_count(body: &[u8], name: &str) -> Option<u64> {
    let value: Value = serde_json::from_slice(body).ok()?;
    value.get(name)?.as_u64()
}
