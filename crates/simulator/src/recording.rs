//! The recording: what the simulator was really sent, byte for byte.
//!
//! Credentials are kept as they came, because a test of a gateway has to see
//! which key went upstream. Do not point real keys at a simulator others can read.

use std::collections::VecDeque;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http::{HeaderMap, Method, StatusCode, Uri};
use parking_lot::Mutex;
use serde_json::{Value, json};

const REQUESTS: usize = 256;
const BODY_BYTES: usize = 64 * 1024 * 1024;

/// The refusal's text, put on a response so that the recording can keep it.
#[derive(Clone)]
pub(crate) struct RefusalText(pub(crate) String);

/// The last requests.
#[derive(Default)]
pub(crate) struct Recording {
    kept: Mutex<Kept>,
}

#[derive(Default)]
struct Kept {
    entries: VecDeque<Entry>,
    body_bytes: usize,
    last: u64,
}

struct Entry {
    id: u64,
    method: Method,
    uri: Uri,
    headers: HeaderMap,
    body: Bytes,
    answer: Option<(StatusCode, Option<String>)>,
}

impl Recording {
    /// Keeps a request as it arrived; its answer follows under the returned id.
    pub(crate) fn begin(&self, method: Method, uri: Uri, headers: HeaderMap, body: Bytes) -> u64 {
        let mut kept = self.kept.lock();
        kept.last += 1;
        let id = kept.last;
        kept.body_bytes += body.len();
        kept.entries.push_back(Entry { id, method, uri, headers, body, answer: None });
        while kept.entries.len() > REQUESTS || kept.body_bytes > BODY_BYTES {
            let Some(oldest) = kept.entries.pop_front() else {
                break;
            };
            kept.body_bytes -= oldest.body.len();
        }
        id
    }

    /// Notes what was answered.
    pub(crate) fn answered(&self, id: u64, status: StatusCode, refusal: Option<String>) {
        let mut kept = self.kept.lock();
        if let Some(entry) = kept.entries.iter_mut().rev().find(|entry| entry.id == id) {
            entry.answer = Some((status, refusal));
        }
    }

    /// Forgets all requests; ids go on, so that `after` stays meaningful.
    pub(crate) fn clear(&self) {
        let mut kept = self.kept.lock();
        kept.entries.clear();
        kept.body_bytes = 0;
    }

    /// The requests with an id above `after`, oldest first.
    pub(crate) fn after(&self, after: u64) -> Value {
        let kept = self.kept.lock();
        let requests: Vec<Value> =
            kept.entries.iter().filter(|entry| entry.id > after).map(Entry::json).collect();
        json!({ "requests": requests, "last": kept.last })
    }
}

impl Entry {
    fn json(&self) -> Value {
        // A list of pairs keeps order and repetition, which an object would not.
        let headers: Vec<Value> = self
            .headers
            .iter()
            .map(|(name, value)| json!([name.as_str(), String::from_utf8_lossy(value.as_bytes())]))
            .collect();
        json!({
            "id": self.id,
            "method": self.method.as_str(),
            "path": self.uri.path(),
            "query": self.uri.query(),
            "headers": headers,
            "body_base64": STANDARD.encode(&self.body),
            "body_text": std::str::from_utf8(&self.body).ok(),
            "status": self.answer.as_ref().map(|(status, _)| status.as_u16()),
            "refusal": self.answer.as_ref().and_then(|(_, refusal)| refusal.clone()),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn begin(recording: &Recording, size: usize) -> u64 {
        let body = Bytes::from(vec![b'x'; size]);
        recording.begin(Method::POST, Uri::from_static("/a?b=c"), HeaderMap::new(), body)
    }

    fn ids(recording: &Recording, after: u64) -> Vec<u64> {
        let listed = recording.after(after);
        let requests = listed["requests"].as_array().unwrap();
        requests.iter().map(|entry| entry["id"].as_u64().unwrap()).collect()
    }

    #[test]
    fn the_recording_keeps_the_last_256_requests() {
        let recording = Recording::default();
        for _ in 0..300 {
            begin(&recording, 1);
        }
        assert_eq!(ids(&recording, 0), (45..=300).collect::<Vec<_>>());
        assert_eq!(ids(&recording, 298), [299, 300]);
        recording.clear();
        assert_eq!(begin(&recording, 1), 301);
    }

    #[test]
    fn the_recording_bounds_its_bodies() {
        let recording = Recording::default();
        for _ in 0..4 {
            begin(&recording, BODY_BYTES / 2);
        }
        assert_eq!(ids(&recording, 0), [3, 4]);
    }

    #[test]
    fn an_answer_is_noted_with_its_refusal() {
        let recording = Recording::default();
        let id = begin(&recording, 2);
        recording.answered(id, StatusCode::BAD_REQUEST, Some("no".into()));
        let listed = recording.after(0);
        assert_eq!(
            listed["requests"][0],
            json!({"id": 1, "method": "POST", "path": "/a", "query": "b=c", "headers": [],
                   "body_base64": "eHg=", "body_text": "xx", "status": 400, "refusal": "no"})
        );
    }
}
