//! The responses that were stored: what `previous_response_id` and item references lead to.

use std::collections::VecDeque;

use parking_lot::Mutex;
use serde_json::Value;

/// So many responses are kept; the oldest goes first.
const MOST: usize = 64;

/// The last stored responses of one simulator.
#[derive(Default)]
pub(crate) struct Memory(Mutex<VecDeque<Stored>>);

struct Stored {
    id: String,
    response: Value,
    /// Everything that was said up to its end.
    items: Vec<Value>,
}

impl Memory {
    /// Keeps a response. The same request gives the same response, so it may be there already.
    pub(crate) fn keep(&self, id: &str, response: Value, items: Vec<Value>) {
        let mut stored = self.0.lock();
        stored.retain(|one| one.id != id);
        if stored.len() == MOST {
            stored.pop_front();
        }
        stored.push_back(Stored { id: id.to_owned(), response, items });
    }

    /// The response of this id.
    pub(crate) fn response(&self, id: &str) -> Option<Value> {
        self.look(id, |stored| stored.response.clone())
    }

    /// What was said up to the end of a response.
    pub(crate) fn conversation(&self, id: &str) -> Option<Vec<Value>> {
        self.look(id, |stored| stored.items.clone())
    }

    /// An item of any stored conversation.
    pub(crate) fn item(&self, id: &str) -> Option<Value> {
        let stored = self.0.lock();
        let mut items = stored.iter().rev().flat_map(|one| &one.items);
        items.find(|item| item["id"] == id).cloned()
    }

    /// Forgets a response; says whether it was there.
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
    fn the_oldest_response_is_forgotten_first() {
        let memory = Memory::default();
        for number in 0..=MOST {
            let items = vec![json!({"id": format!("rs_{number}")})];
            memory.keep(&format!("resp_{number}"), json!(number), items);
        }
        memory.keep("resp_1", json!("again"), Vec::new());
        assert_eq!(memory.response("resp_0"), None);
        assert_eq!(memory.response("resp_1"), Some(json!("again")));
        assert_eq!(memory.conversation("resp_2").unwrap().len(), 1);
        assert_eq!(memory.item("rs_0"), None);
        assert!(memory.item("rs_64").is_some());
        assert!(memory.forget("resp_64"));
        assert!(!memory.forget("resp_64"));
    }
}
