//! What is told while a provider is silent: a message of its own kind, which clients show and never send
//! back. One for each run; it says for what the run waits and how long it has waited.

use std::time::Duration;

use serde_json::{Value, json};

use super::frames::event;
use crate::json::ObjectWriter;

/// Its kind, by which a front end chooses how to show it.
const KIND: &str = "WAITING";

/// The activity of one run.
#[derive(Debug, Default)]
pub(super) struct Activity {
    id: String,
    told: bool,
    waits: bool,
}

impl Activity {
    /// An activity under this id.
    pub(super) fn new(id: String) -> Self {
        Self { id, told: false, waits: false }
    }

    /// Whether a client was told that the run waits.
    pub(super) fn waits(&self) -> bool {
        self.waits
    }

    /// The provider has been silent for so long, in the middle of this.
    pub(super) fn wait(&mut self, silent: Duration, within: &str, out: &mut Vec<u8>) {
        let seconds = silent.as_secs();
        self.waits = true;
        if std::mem::replace(&mut self.told, true) {
            let patch = json!([
                replaced("/status", "waiting"),
                replaced("/for", within),
                replaced("/elapsedSeconds", seconds),
            ]);
            self.tell("ACTIVITY_DELTA", "patch", &patch, out);
        } else {
            let content = json!({"status": "waiting", "for": within, "elapsedSeconds": seconds});
            self.tell("ACTIVITY_SNAPSHOT", "content", &content, out);
        }
    }

    /// The provider goes on.
    pub(super) fn go_on(&mut self, out: &mut Vec<u8>) {
        self.waits = false;
        let patch = json!([replaced("/status", "done")]);
        self.tell("ACTIVITY_DELTA", "patch", &patch, out);
    }

    fn tell(&self, kind: &str, member: &str, value: &Value, out: &mut Vec<u8>) {
        event(out, |event: &mut ObjectWriter<'_>| {
            event
                .text("type", kind)
                .text("messageId", &self.id)
                .text("activityType", KIND)
                .value(member, value);
        });
    }
}

fn replaced(path: &str, value: impl Into<Value>) -> Value {
    json!({"op": "replace", "path": path, "value": value.into()})
}
