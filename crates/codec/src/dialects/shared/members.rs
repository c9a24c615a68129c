//! Members of JSON bodies and of `Request::extra`.

use serde_json::{Map, Value};
use throughline_canonical::Request;

/// Removes members of a dialect from `Request::extra`.
pub(crate) fn remove_own(request: &mut Request, dialect: &str, members: &[&str]) {
    if let Some(extra) = request.extra.get_mut(dialect) {
        extra.retain(|name, _| !members.contains(&name.as_str()));
        if extra.is_empty() {
            request.extra.remove(dialect);
        }
    }
}

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
