//! What a provider stores and a request names by id: files, cached contents, containers, spoken
//! answers. Nothing can be uploaded here, so only ids that begin as [`KNOWN`] says are found. A real
//! provider refuses the ids of another provider or account in the same way.

use http::StatusCode;
use serde_json::{Map, Value};

use crate::refusal::Refusal;

/// The beginning of the last part of ids that the simulator knows, as in `files/stored_1`.
const KNOWN: &str = "stored";

/// Members that name something stored, if their value is a string.
const MEMBERS: [&str; 5] = ["file_id", "fileUri", "file_uri", "cachedContent", "cached_content"];

/// Members whose `id` names something stored. Their value may also be the id.
const HOLDERS: [&str; 2] = ["container", "audio"];

/// Refuses a request that names something which is not stored here.
pub(crate) fn check(body: &Map<String, Value>) -> Result<(), Refusal> {
    body.iter().try_for_each(|(name, value)| {
        let id = match HOLDERS.contains(&name.as_str()) {
            true => value.as_str().or_else(|| value.get("id")?.as_str()),
            false => value.as_str().filter(|id| MEMBERS.contains(&name.as_str()) && is_id(id)),
        };
        match id {
            Some(id) if !is_known(id) => {
                let message = format!("{name}: `{id}` was not found");
                Err(Refusal::new(StatusCode::NOT_FOUND, message))
            }
            _ => check_value(value),
        }
    })
}

fn check_value(value: &Value) -> Result<(), Refusal> {
    match value {
        Value::Object(members) => check(members),
        Value::Array(values) => values.iter().try_for_each(check_value),
        _ => Ok(()),
    }
}

/// Whether a value is the id of a stored file. Public addresses are fetched instead.
fn is_id(value: &str) -> bool {
    !value.contains("://") || value.contains("/files/")
}

fn is_known(id: &str) -> bool {
    id.rsplit(['/', '-']).next().is_some_and(|last| last.starts_with(KNOWN))
        || id.split_once('_').is_some_and(|(_, name)| name.starts_with(KNOWN))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn only_known_ids_are_found() {
        for (value, is_found) in [
            (json!({"a": [{"file_id": "file_1"}]}), false),
            (json!({"a": [{"file_id": "file_stored_1"}]}), true),
            (json!({"file": {"file_id": "file-stored"}}), true),
            (json!({"fileData": {"fileUri": "https://example.test/v1beta/files/a"}}), false),
            (json!({"fileData": {"fileUri": "https://example.test/v1beta/files/stored"}}), true),
            (json!({"fileData": {"fileUri": "https://example.test/a.png"}}), true),
            (json!({"cachedContent": "cachedContents/a"}), false),
            (json!({"cachedContent": "cachedContents/stored"}), true),
            (json!({"container": "container_1"}), false),
            (json!({"container": {"id": "container_stored"}}), true),
            (json!({"container": {"skills": []}}), true),
            (json!({"messages": [{"audio": {"id": "audio_1"}}]}), false),
            (json!({"audio": {"voice": "alloy"}}), true),
        ] {
            let body = value.as_object().unwrap();
            assert_eq!(check(body).is_ok(), is_found, "{value}");
        }
    }
}
