//! Arguments with one element per parameter, whose value is plain text.
//!
//! A value ends at its own closer, or at the next call or the end of the section if the closer is
//! missing. Text that can only be a string is emitted at
//! once. Other text waits in [`Value`] until its type is known.

use std::borrow::Cow;

use super::super::schema::JsonTypes;
use super::arguments::JsonArguments;
use super::boundary::Boundary;
use super::parameters::{JsonBody, Parameters, Tag};
use super::sink::Sink;
use super::value::{Value, ValueType};
use super::{MAX_FRAMING, MAX_NAME, Progress, TagStep, prefix_up_to};
use crate::json::escape;
use crate::text::marker::{Match, compare};

/// Reads the arguments of one call, up to and including its end.
#[derive(Debug)]
pub(crate) struct TagArguments {
    row: &'static Parameters,
    state: State,
    /// Whether a parameter was read.
    has_parameters: bool,
    value: Value,
    /// What closes the current value.
    close: Cow<'static, str>,
    /// The last byte of the current value, or 0.
    previous_byte: u8,
    scratch: String,
}

#[derive(Debug)]
enum State {
    /// Where a parameter or the end can follow.
    Between,
    /// At the start of a value.
    ValueStart,
    /// Inside a value.
    Value,
    /// Inside the `<![CDATA[` of a value.
    CharacterData,
    /// After the `]]>` of a value.
    AfterCharacterData,
    /// Inside a JSON object with all arguments.
    Json(JsonArguments),
    /// After that object.
    AfterJson,
}

/// Limit for the tag of a parameter.
const MAX_TAG: usize = MAX_NAME;

/// Limit for the white space around `<![CDATA[` that is dropped.
const MAX_SPACE: usize = MAX_FRAMING;

const CHARACTER_DATA: &str = "<![CDATA[";
const CHARACTER_DATA_END: &str = "]]>";

/// What can follow between parameters.
enum TagKind {
    Parameter,
    /// An element with all arguments. Its tag starts with this.
    Json(&'static str),
    End(usize),
    ImplicitEnd,
    Nothing(usize),
}

impl TagArguments {
    /// Creates a reader for this format.
    pub(crate) fn new(row: &'static Parameters) -> Self {
        Self {
            row,
            state: State::Between,
            has_parameters: false,
            value: Value::new(),
            close: Cow::Borrowed(row.close),
            previous_byte: 0,
            scratch: String::new(),
        }
    }

    /// Reads the next text. `last` means that no text follows.
    pub(crate) fn read(&mut self, text: &str, last: bool, sink: &mut Sink<'_>) -> Progress {
        let mut at = 0;
        loop {
            let step = match &mut self.state {
                State::Between => self.between(text, at, last, sink),
                State::ValueStart => self.value_start(text, at, last),
                State::Value | State::CharacterData => self.value(text, at, last, sink),
                State::AfterCharacterData => self.after_character_data(text, at, last, sink),
                State::Json(arguments) => match arguments.read(&text[at..], last, sink) {
                    Progress::Ended(used)
                    | Progress::Called(used)
                    | Progress::Stray(used)
                    | Progress::Text(used) => {
                        self.state = State::AfterJson;
                        TagStep::To(at + used)
                    }
                    progress => TagStep::Stop(progress.offset_by(at)),
                },
                State::AfterJson => self.after_json(text, at, last),
            };
            match step {
                TagStep::To(next) => at = next,
                TagStep::Stop(progress) => return progress,
            }
        }
    }

    fn between(&mut self, text: &str, at: usize, last: bool, sink: &mut Sink<'_>) -> TagStep {
        let rest = text[at..].trim_ascii_start();
        let at = text.len() - rest.len();
        if rest.is_empty() {
            return TagStep::Stop(Progress::More(at));
        }
        if matches!(self.row.json, JsonBody::Bare) && !self.has_parameters && rest.starts_with('{')
        {
            self.state = State::Json(JsonArguments::new(self.row.end));
            return TagStep::To(at);
        }
        let (tag, is_partial) = self.find_tag(rest);
        if is_partial && !last {
            return TagStep::Stop(Progress::More(at));
        }
        TagStep::Stop(match tag {
            Some(TagKind::Parameter) => return self.parameter(text, at, last, sink),
            Some(TagKind::Json(open)) => return self.json_start(open, text, at, last),
            Some(TagKind::Nothing(length)) => return TagStep::To(at + length),
            Some(TagKind::End(length)) => {
                self.end(sink);
                Progress::Ended(at + length)
            }
            Some(TagKind::ImplicitEnd) => {
                self.end(sink);
                Progress::Ended(at)
            }
            // A parameter may be missing, so a call without its whole end marker is cut.
            None if is_partial => Progress::More(text.len()),
            None => Progress::Broken(at, "neither a parameter nor the end of the call"),
        })
    }

    /// Finds the tag at the start of `rest`. Also returns whether it may be a partial one.
    fn find_tag(&self, rest: &str) -> (Option<TagKind>, bool) {
        let row = self.row;
        let (mut tag, mut longest, mut is_partial) = (None, 0, false);
        let mut try_marker =
            |marker: &str, kind: fn(usize) -> TagKind| match row.compare_marker(rest, marker) {
                Match::Full(length) if length > longest => {
                    longest = length;
                    tag = Some(kind(length));
                }
                Match::Partial => is_partial = true,
                _ => {}
            };
        try_marker(row.open, |_| TagKind::Parameter);
        for marker in row.end {
            try_marker(marker, TagKind::End);
        }
        for marker in row.implicit_end {
            try_marker(marker, |_| TagKind::ImplicitEnd);
        }
        for marker in row.wrapper {
            try_marker(marker, TagKind::Nothing);
        }
        if let JsonBody::Element { open, .. } = row.json
            && !self.has_parameters
        {
            match row.compare_marker(rest, open) {
                Match::Full(_) => tag = Some(TagKind::Json(open)),
                Match::Partial => is_partial = true,
                Match::No => {}
            }
        }
        (tag, is_partial)
    }

    /// Ends the call.
    fn end(&mut self, sink: &mut Sink<'_>) {
        sink.write_arguments(if self.has_parameters { "}" } else { "{}" });
    }

    fn parameter(&mut self, text: &str, at: usize, last: bool, sink: &mut Sink<'_>) -> TagStep {
        match self.row.tag(prefix_up_to(&text[at..], MAX_TAG)) {
            Tag::Full { length, key, text: is_text, suffix } if !key.is_empty() => {
                self.begin_parameter(key, is_text, suffix, sink);
                TagStep::To(at + length)
            }
            Tag::Closed { length, key } if !key.is_empty() => {
                self.begin_parameter(key, None, "", sink);
                self.value.end(sink);
                self.state = State::Between;
                TagStep::To(at + length)
            }
            tag => TagStep::Stop(handle_incomplete(tag, text, at, last)),
        }
    }

    fn begin_parameter(
        &mut self,
        key: &str,
        is_text: Option<bool>,
        suffix: &str,
        sink: &mut Sink<'_>,
    ) {
        // The key is needed twice: escaped in the output, and unescaped for the schema.
        self.scratch.clear();
        self.row.decode(key, |piece| self.scratch.push_str(piece));
        let types = match (sink.tools(), sink.current_name()) {
            (Some(tools), Some(tool)) if is_text.is_none() => tools.types(tool, &self.scratch),
            _ => JsonTypes::UNKNOWN,
        };
        let value_type = match is_text {
            Some(true) => ValueType::TEXT,
            Some(false) => ValueType::Json,
            None => ValueType::Schema(types),
        };
        let key_end = self.scratch.len();
        self.scratch.push_str(if self.has_parameters { ",\"" } else { "{\"" });
        self.row.decode(key, |piece| escape(piece, &mut self.scratch));
        self.scratch.push_str("\":");
        sink.write_arguments(&self.scratch[key_end..]);
        if self.row.suffixed {
            let close = self.row.close.strip_suffix('>').unwrap_or(self.row.close);
            self.close = Cow::Owned([close, suffix, ">"].concat());
        }
        self.has_parameters = true;
        self.previous_byte = 0;
        self.value.begin(value_type, sink);
        self.state = if self.row.framed || self.row.character_data {
            State::ValueStart
        } else {
            State::Value
        };
    }

    fn value_start(&mut self, text: &str, at: usize, last: bool) -> TagStep {
        let rest = &text[at..];
        if self.row.framed {
            let length = match rest.as_bytes() {
                [] if !last => return TagStep::Stop(Progress::More(at)),
                [b'\r'] if !last => return TagStep::Stop(Progress::More(at)),
                [b'\n', ..] => 1,
                [b'\r', b'\n', ..] => 2,
                _ => 0,
            };
            self.state = State::Value;
            return TagStep::To(at + length);
        }
        match compare_after_space(rest, CHARACTER_DATA) {
            Match::Partial if !last => TagStep::Stop(Progress::More(at)),
            Match::Full(length) => {
                self.state = State::CharacterData;
                TagStep::To(at + length)
            }
            _ => {
                self.state = State::Value;
                TagStep::To(at)
            }
        }
    }

    fn value(&mut self, text: &str, at: usize, last: bool, sink: &mut Sink<'_>) -> TagStep {
        let character_data = matches!(self.state, State::CharacterData);
        let row = self.row;
        let compare = |text: &str, marker: &str| row.compare_marker(text, marker);
        let boundary = match character_data {
            true => Boundary::closer(CHARACTER_DATA_END),
            false => Boundary {
                close: &self.close,
                outer: row.implicit_end,
                call_end: row.end,
                no_section: row.no_section,
                framed: row.framed,
                compare: &compare,
            },
        };
        let (end, after) = boundary.find(&text[at..], self.previous_byte, last);
        let inside = &text[at..at + end];
        self.previous_byte = inside.bytes().last().unwrap_or(self.previous_byte);
        self.value.text(inside, sink);
        match after {
            Some(after) if character_data => {
                self.state = State::AfterCharacterData;
                TagStep::To(at + after)
            }
            Some(after) => {
                self.value.end(sink);
                self.state = State::Between;
                TagStep::To(at + after)
            }
            None => {
                if last {
                    self.value.cut(sink);
                }
                TagStep::Stop(Progress::More(at + end))
            }
        }
    }

    fn after_character_data(
        &mut self,
        text: &str,
        at: usize,
        last: bool,
        sink: &mut Sink<'_>,
    ) -> TagStep {
        let rest = &text[at..];
        let close = compare_after_space(rest, &self.close);
        let again = compare(CHARACTER_DATA, rest);
        match (close, again) {
            (Match::Full(length), _) => {
                self.value.end(sink);
                self.state = State::Between;
                TagStep::To(at + length)
            }
            (_, Match::Full(length)) => {
                self.state = State::CharacterData;
                TagStep::To(at + length)
            }
            (Match::Partial, _) | (_, Match::Partial) if !last => TagStep::Stop(Progress::More(at)),
            _ => {
                self.state = State::Value;
                TagStep::To(at)
            }
        }
    }

    fn json_start(&mut self, open: &str, text: &str, at: usize, last: bool) -> TagStep {
        let rest = prefix_up_to(&text[at..], MAX_TAG);
        match self.row.json_tag(open, rest) {
            Tag::Full { length, .. } => {
                self.state = State::Json(JsonArguments::new(self.row.end));
                TagStep::To(at + length)
            }
            tag => TagStep::Stop(handle_incomplete(tag, text, at, last)),
        }
    }

    /// The arguments are complete. The markers after them may be missing.
    fn after_json(&mut self, text: &str, at: usize, last: bool) -> TagStep {
        let rest = text[at..].trim_ascii_start();
        let at = text.len() - rest.len();
        let mut is_partial = rest.is_empty();
        if let JsonBody::Element { close, .. } = self.row.json {
            match compare(close, rest) {
                Match::Full(length) => return TagStep::To(at + length),
                Match::Partial => is_partial = true,
                Match::No => {}
            }
        }
        for marker in self.row.end {
            match self.row.compare_marker(rest, marker) {
                Match::Full(length) => return TagStep::Stop(Progress::Ended(at + length)),
                Match::Partial => is_partial = true,
                Match::No => {}
            }
        }
        TagStep::Stop(match (is_partial, last) {
            (true, false) => Progress::More(at),
            (true, true) => Progress::Ended(text.len()),
            (false, _) => Progress::Ended(at),
        })
    }
}

/// Handles a tag that is incomplete or invalid.
fn handle_incomplete(tag: Tag<'_>, text: &str, at: usize, last: bool) -> Progress {
    match tag {
        Tag::Wrong(why) => Progress::Broken(at, why),
        Tag::Full { key: "", .. } | Tag::Closed { key: "", .. } => {
            Progress::Broken(at, "a tag has no name")
        }
        Tag::Partial if text.len() - at < MAX_TAG => {
            Progress::More(if last { text.len() } else { at })
        }
        _ => Progress::Broken(at, "a tag is too long"),
    }
}

/// Compares the start of a text with a marker, after some white space.
fn compare_after_space(text: &str, marker: &str) -> Match {
    let rest = text.trim_ascii_start();
    let space = text.len() - rest.len();
    match compare(marker, rest) {
        _ if space > MAX_SPACE => Match::No,
        Match::Full(length) => Match::Full(space + length),
        other => other,
    }
}

#[cfg(test)]
mod tests;
