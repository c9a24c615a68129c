//! The activity message that is sent while a provider is silent. Clients show it and never send it
//! back. There is one per run: it says what the run waits for and for how long.

use std::time::Duration;

use serde_json::{Value, json};

use super::frames::event;
use crate::json::ObjectWriter;

/// The activity type, which front ends use to choose how to show it.
const KIND: &str = "WAITING";

/// The activity of one run.
#[derive(Debug, Default)]
pub(super) struct Activity {
    id: String,
    written: bool,
    waits: bool,
}

impl Activity {
    /// Creates an activity with this id.
    pub(super) fn new(id: String) -> Self {
        Self { id, written: false, waits: false }
    }

    /// Whether the client knows that the run waits.
    pub(super) fn waits(&self) -> bool {
        self.waits
    }

    /// Reports that the provider has been silent for this long.
    pub(super) fn wait(&mut self, silent: Duration, within: &str, out: &mut Vec<u8>) {
        let seconds = silent.as_secs();
        self.waits = true;
        if std::mem::replace(&mut self.written, true) {
            let patch = json!([
                replaced("/status", "waiting"),
                replaced("/for", within),
                replaced("/elapsedSeconds", seconds),
            ]);
            self.write("ACTIVITY_DELTA", "patch", &patch, out);
        } else {
            let content = json!({"status": "waiting", "for": within, "elapsedSeconds": seconds});
            self.write("ACTIVITY_SNAPSHOT", "content", &content, out);
        }
    }

    /// Reports that the provider continues.
    pub(super) fn go_on(&mut self, out: &mut Vec<u8>) {
        self.waits = false;
        let patch = json!([replaced("/status", "done")]);
        self.write("ACTIVITY_DELTA", "patch", &patch, out);
    }

    fn write(&self, kind: &str, member: &str, value: &Value, out: &mut Vec<u8>) {
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
