//! The recording: the requests that the simulator received, byte for byte.
//!
//! Credentials are recorded unchanged, because a gateway's tests must see which key went upstream.
//! Do not send real keys to a simulator that others can read.

use std::collections::VecDeque;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http::{HeaderMap, Method, StatusCode, Uri};
use parking_lot::Mutex;
use serde_json::{Value, json};

use crate::prompt_cache::CacheUse;

const MAX_REQUESTS: usize = 256;
const MAX_BODY_BYTES: usize = 64 * 1024 * 1024;

/// The refusal's text, attached to a response for the recording.
#[derive(Clone)]
pub(crate) struct RefusalText(pub(crate) String);

/// The last requests.
#[derive(Default)]
pub(crate) struct Recording {
    recorded: Mutex<RecordedRequests>,
}

#[derive(Default)]
struct RecordedRequests {
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
    answer: Option<Answer>,
}

struct Answer {
    status: StatusCode,
    refusal: Option<String>,
    /// What the prompt took from the cache, if it got a reply.
    cache_use: Option<CacheUse>,
}

impl Recording {
    /// Records a request. `record_answer` adds the answer to the returned id.
    pub(crate) fn record(&self, method: Method, uri: Uri, headers: HeaderMap, body: Bytes) -> u64 {
        let mut recorded = self.recorded.lock();
        recorded.last += 1;
        let id = recorded.last;
        recorded.body_bytes += body.len();
        recorded.entries.push_back(Entry { id, method, uri, headers, body, answer: None });
        while recorded.entries.len() > MAX_REQUESTS || recorded.body_bytes > MAX_BODY_BYTES {
            let Some(oldest) = recorded.entries.pop_front() else {
                break;
            };
            recorded.body_bytes -= oldest.body.len();
        }
        id
    }

    /// Records the answer to a request.
    pub(crate) fn record_answer(
        &self,
        id: u64,
        status: StatusCode,
        refusal: Option<String>,
        cache_use: Option<CacheUse>,
    ) {
        let mut recorded = self.recorded.lock();
        if let Some(entry) = recorded.entries.iter_mut().rev().find(|entry| entry.id == id) {
            entry.answer = Some(Answer { status, refusal, cache_use });
        }
    }

    /// Drops all requests. Ids continue, so `after` stays valid.
    pub(crate) fn clear(&self) {
        let mut recorded = self.recorded.lock();
        recorded.entries.clear();
        recorded.body_bytes = 0;
    }

    /// The requests with an id above `after`, oldest first.
    pub(crate) fn after(&self, after: u64) -> Value {
        let recorded = self.recorded.lock();
        let requests: Vec<Value> =
            recorded.entries.iter().filter(|entry| entry.id > after).map(Entry::json).collect();
        json!({ "requests": requests, "last": recorded.last })
    }
}

impl Entry {
    fn json(&self) -> Value {
        // A list of pairs keeps the order and repeated headers; an object would not.
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
            "status": self.answer.as_ref().map(|answer| answer.status.as_u16()),
            "refusal": self.answer.as_ref().and_then(|answer| answer.refusal.clone()),
            "cache": self.answer.as_ref().and_then(|answer| answer.cache_use).map(|used| json!({
                "prompt": used.total, "read": used.read, "write": used.write,
                "write_1h": used.write_1h,
            })),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(recording: &Recording, size: usize) -> u64 {
        let body = Bytes::from(vec![b'x'; size]);
        recording.record(Method::POST, Uri::from_static("/a?b=c"), HeaderMap::new(), body)
    }

    fn ids(recording: &Recording, after: u64) -> Vec<u64> {
        let listed = recording.after(after);
        let requests = listed["requests"].as_array().unwrap();
        requests.iter().map(|entry| entry["id"].as_u64().unwrap()).collect()
    }

    #[test]
    fn recording_keeps_the_last_256_requests() {
        let recording = Recording::default();
        for _ in 0..300 {
            record(&recording, 1);
        }
        assert_eq!(ids(&recording, 0), (45..=300).collect::<Vec<_>>());
        assert_eq!(ids(&recording, 298), [299, 300]);
        recording.clear();
        assert_eq!(record(&recording, 1), 301);
    }

    #[test]
    fn recording_limits_the_size_of_all_bodies() {
        let recording = Recording::default();
        for _ in 0..4 {
            record(&recording, MAX_BODY_BYTES / 2);
        }
        assert_eq!(ids(&recording, 0), [3, 4]);
    }

    #[test]
    fn recording_includes_the_refusal_text() {
        let recording = Recording::default();
        let id = record(&recording, 2);
        recording.record_answer(id, StatusCode::BAD_REQUEST, Some("no".into()), None);
        let listed = recording.after(0);
        assert_eq!(
            listed["requests"][0],
            json!({"id": 1, "method": "POST", "path": "/a", "query": "b=c", "headers": [],
                   "body_base64": "eHg=", "body_text": "xx", "status": 400, "refusal": "no",
                   "cache": null})
        );
    }
}
