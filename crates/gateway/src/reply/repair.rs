//! Completes the replies of servers that leave out what clients of their dialect require. Most are
//! complete; their bytes pass unchanged.

use std::collections::HashSet;
use std::sync::Arc;

use parking_lot::RwLock;
use throughline_codec::dialects::passthrough::ReplyRepair;
use throughline_codec::dialects::{Accepted, ReplyIdentity};

use crate::reply::edits::{EditedEvent, ReplyEdit, read_event};

/// How many bytes of an event are held back. The last event repeats the whole reply.
const MAX_HELD_EVENT_BYTES: usize = 16 << 20;

/// The backends whose replies were complete.
#[derive(Debug, Default)]
pub(crate) struct CompleteBackends(RwLock<HashSet<String>>);

impl CompleteBackends {
    /// Whether a reply of this backend was complete.
    pub(crate) fn contains(&self, backend: &str) -> bool {
        self.0.read().contains(backend)
    }

    fn learn(&self, backend: &str) {
        if !self.contains(backend) {
            self.0.write().insert(backend.to_owned());
        }
    }
}

/// Completes one reply, if its beginning shows that this is needed.
#[derive(Debug)]
pub(crate) struct RepairReply {
    /// The request.
    pub(crate) accepted: Arc<Accepted>,
    pub(crate) identity: ReplyIdentity,
    pub(crate) backend: String,
    pub(crate) complete: Arc<CompleteBackends>,
    /// `None` before the first event.
    pub(crate) repair: Option<Box<dyn ReplyRepair>>,
}

impl RepairReply {
    /// Decides from the first event, or from a whole reply, whether the reply needs a repair.
    fn begin(&mut self, first: &[u8]) -> Option<&mut Box<dyn ReplyRepair>> {
        if self.repair.is_none() {
            let Accepted { session, request, .. } = &*self.accepted;
            self.repair = session.repair(request, &self.identity, first);
            match &self.repair {
                Some(_) => tracing::debug!(
                    backend = self.backend,
                    "the backend left out what clients require; completing its reply"
                ),
                None => self.complete.learn(&self.backend),
            }
        }
        self.repair.as_mut()
    }
}

impl ReplyEdit for RepairReply {
    fn event(&mut self, event: &[u8]) -> EditedEvent {
        let (_, Some(data)) = read_event(event) else {
            return EditedEvent::default();
        };
        let data = event[data].trim_ascii();
        match self.begin(data) {
            Some(repair) => {
                let mut out = Vec::new();
                repair.event(data, &mut out);
                EditedEvent { bytes: Some(out), last: false }
            }
            None => EditedEvent { bytes: None, last: true },
        }
    }

    fn whole(&mut self, reply: &[u8]) -> Option<Vec<u8>> {
        self.begin(reply).map(|repair| repair.whole(reply))
    }

    fn may_be_skipped(&self) -> bool {
        true
    }

    fn max_event_bytes(&self) -> usize {
        MAX_HELD_EVENT_BYTES
    }
}
