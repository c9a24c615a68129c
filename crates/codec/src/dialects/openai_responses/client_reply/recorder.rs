//! Writes a reply that is also stored: its events for the client, and the response to store.

use serde_json::Value;
use throughline_canonical::{Event, Reply};

use super::super::state::{Step, mark_unstored};
use super::{Progress, Writer};
use crate::dialects::ReplyWriter;

/// Writes a reply and reports what each part contributes to the stored response.
pub struct Recorder {
    writer: Writer,
    /// How many completed items were reported.
    reported: usize,
}

/// An event as clients get it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WrittenEvent {
    /// The sequence number.
    pub number: u64,
    /// The whole server-sent event.
    pub text: String,
}

/// The start of the data line of an event.
const DATA: &str = "\ndata: ";

impl WrittenEvent {
    /// The JSON of the event.
    pub fn data(&self) -> &str {
        self.text.split_once(DATA).map_or("", |(_, data)| data.trim_end())
    }

    /// Marks the response in the event, if it has one, as [`mark_unstored`] does.
    pub fn mark_unstored(&mut self) {
        let mut event = parse(self.data());
        if let Some(response) = event.get_mut("response")
            && let Some((head, _)) = self.text.split_once(DATA)
        {
            mark_unstored(response);
            self.text = format!("{head}{DATA}{event}\n\n");
        }
    }
}

/// What was written for one canonical event.
#[derive(Debug, Default)]
pub struct Written {
    /// The events for the client.
    pub events: Vec<WrittenEvent>,
    /// What they contribute to the stored response.
    pub steps: Vec<Step>,
}

impl Recorder {
    pub(in super::super) fn new(writer: Writer) -> Self {
        Self { writer, reported: 0 }
    }

    /// The response before its first event.
    pub fn queued(&self, status: &str) -> Value {
        parse(&self.writer.response(status, "null", "null", "", "null"))
    }

    /// Writes the next event.
    pub fn push(&mut self, event: &Event<'_>, written: &mut Written) {
        self.write(written, |writer, out| writer.push(event, out));
    }

    /// Writes a keep-alive.
    pub fn keep_alive(&mut self, written: &mut Written) {
        self.write(written, Writer::keep_alive);
    }

    /// Writes a whole reply.
    pub fn whole(&self, reply: &Reply) -> Vec<u8> {
        self.writer.whole(reply)
    }

    fn write(&mut self, written: &mut Written, write: impl FnOnce(&mut Writer, &mut Vec<u8>)) {
        let writer = &mut self.writer;
        let (first, was_waiting) = (writer.sequence, writer.progress == Progress::Waiting);
        let mut out = Vec::new();
        write(writer, &mut out);
        let text = String::from_utf8_lossy(&out);
        // JSON has no line breaks of its own, so an empty line ends an event.
        let events = (first..).zip(text.split_inclusive("\n\n"));
        written
            .events
            .extend(events.map(|(number, text)| WrittenEvent { number, text: text.to_owned() }));
        if was_waiting && writer.progress != Progress::Waiting {
            written.steps.push(Step::Began(self.queued("in_progress")));
        }
        if let Some(last) = self.writer.last.take() {
            written.steps.push(Step::Ended(parse(&last)));
            return;
        }
        let new = self.writer.done.get(self.reported..).unwrap_or_default();
        let items = new.iter().map(|(position, item)| Step::Item((*position).into(), parse(item)));
        written.steps.extend(items);
        self.reported = self.writer.done.len();
    }
}

/// Parses JSON of our own.
fn parse(json: &str) -> Value {
    serde_json::from_str(json).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use std::borrow::Cow;

    use throughline_canonical::{BlockStart, Delta, EndReason, Request};

    use super::super::super::RepeatedMembers;
    use super::super::super::state::{Progress, step};
    use super::*;
    use crate::dialects::ReplyIdentity;

    #[test]
    fn steps_are_those_that_a_reader_of_the_events_finds() {
        let (request, identity) = (Request::default(), ReplyIdentity::new("7", 5));
        let mut recorder =
            Recorder::new(Writer::new(&request, &RepeatedMembers::default(), &identity));
        let text = |text: &'static str| Cow::Borrowed(text);
        let events = [
            Event::MessageStarted { id: text("x"), model: text("m") },
            Event::BlockStarted { index: 0, block: BlockStart::Text { text: text("a\n\nb") } },
            Event::BlockDelta { index: 0, delta: Delta::Text(text("\u{2028}c")) },
            Event::BlockEnded { index: 0 },
            Event::BlockStarted {
                index: 1,
                block: BlockStart::ToolCall { id: text("c"), name: text("f") },
            },
            Event::BlockEnded { index: 1 },
            Event::Ended { reason: EndReason::ToolCalls },
        ];
        let (mut recorded, mut read) = (Progress::default(), Progress::default());
        let mut number = 0;
        for event in &events {
            let mut written = Written::default();
            recorder.push(event, &mut written);
            recorder.keep_alive(&mut written);
            for event in &written.events {
                assert!(event.text.ends_with("}\n\n"), "{}", event.text);
                assert!(event.data().starts_with('{') && event.data().ends_with('}'));
                let (found, step) = step(event.data().as_bytes());
                assert_eq!(found, Some(number));
                assert_eq!(event.number, number);
                number += 1;
                read.take(step);
            }
            for event in &mut written.events {
                let (number, has_response) = (event.number, event.data().contains("\"response\":"));
                event.mark_unstored();
                assert!(event.text.starts_with("event: ") && event.text.ends_with("}\n\n"));
                let data = parse(event.data());
                assert_eq!(data["sequence_number"], number);
                assert_eq!(data["response"]["store"] == false, has_response, "{data}");
            }
            written.steps.into_iter().for_each(|step| recorded.take(step));
            assert_eq!(recorded.so_far("failed", None), read.so_far("failed", None));
        }
        assert_eq!(recorded.ended().unwrap()["output"].as_array().unwrap().len(), 2);
    }
}
