//! Stored responses, for `previous_response_id` and item references.

use std::collections::VecDeque;

use parking_lot::Mutex;
use serde_json::Value;

/// The store keeps this many responses and drops the oldest first.
const MAX_RESPONSES: usize = 64;

/// The last stored responses of one simulator.
#[derive(Default)]
pub(crate) struct ResponseStore(Mutex<VecDeque<Stored>>);

struct Stored {
    id: String,
    response: Value,
    /// The conversation up to the end of this response.
    items: Vec<Value>,
}

impl ResponseStore {
    /// Stores a response. The same request gives the same response, so it may be stored already.
    pub(crate) fn keep(&self, id: &str, response: Value, items: Vec<Value>) {
        let mut stored = self.0.lock();
        stored.retain(|one| one.id != id);
        if stored.len() == MAX_RESPONSES {
            stored.pop_front();
        }
        stored.push_back(Stored { id: id.to_owned(), response, items });
    }

    /// Finds a response.
    pub(crate) fn response(&self, id: &str) -> Option<Value> {
        self.look(id, |stored| stored.response.clone())
    }

    /// Finds the conversation up to the end of a response.
    pub(crate) fn conversation(&self, id: &str) -> Option<Vec<Value>> {
        self.look(id, |stored| stored.items.clone())
    }

    /// Finds an item in any stored conversation.
    pub(crate) fn item(&self, id: &str) -> Option<Value> {
        let stored = self.0.lock();
        let mut items = stored.iter().rev().flat_map(|one| &one.items);
        items.find(|item| item["id"] == id).cloned()
    }

    /// Drops a response. Returns whether it was stored.
    pub(crate) fn forget(&self, id: &str) -> bool {
        let mut stored = self.0.lock();
        let before = stored.len();
        stored.retain(|one| one.id != id);
        stored.len() < before
    }

    fn look<T>(&self, id: &str, read: impl FnOnce(&Stored) -> T) -> Option<T> {
        self.0.lock().iter().find(|one| one.id == id).map(read)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn store_drops_the_oldest_response_first() {
        let responses = ResponseStore::default();
        for number in 0..=MAX_RESPONSES {
            let items = vec![json!({"id": format!("rs_{number}")})];
            responses.keep(&format!("resp_{number}"), json!(number), items);
        }
        responses.keep("resp_1", json!("again"), Vec::new());
        assert_eq!(responses.response("resp_0"), None);
        assert_eq!(responses.response("resp_1"), Some(json!("again")));
        assert_eq!(responses.conversation("resp_2").unwrap().len(), 1);
        assert_eq!(responses.item("rs_0"), None);
        assert!(responses.item("rs_64").is_some());
        assert!(responses.forget("resp_64"));
        assert!(!responses.forget("resp_64"));
    }
}
