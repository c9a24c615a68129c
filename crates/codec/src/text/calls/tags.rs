//! Arguments written as one element for each parameter, whose value is plain text.
//!
//! A value ends at its own closer and nowhere else. What may be a text goes out as it comes; what
//! may be something else waits in [`Value`] until that is known.

use std::borrow::Cow;

use super::super::schema::Kinds;
use super::arguments::JsonArguments;
use super::boundary::find;
use super::parameters::{JsonBody, Parameters, Tag};
use super::sink::Sink;
use super::value::{Typing, Value};
use super::{FRAME, NAME, Progress, within};
use crate::json::escape;
use crate::text::marker::{Match, compare};

/// Reads the arguments of one call, up to and including what ends it.
#[derive(Debug)]
pub(crate) struct TagArguments {
    row: &'static Parameters,
    state: State,
    /// Whether a parameter was read.
    begun: bool,
    value: Value,
    /// What closes the value that is read.
    close: Cow<'static, str>,
    scratch: String,
}

#[derive(Debug)]
enum State {
    /// Where a parameter, or the end, can stand.
    Between,
    /// At the very beginning of a value.
    ValueBegins,
    /// Inside a value.
    Value,
    /// Inside a value, and there inside `<![CDATA[`.
    CharacterData,
    /// Behind the `]]>` of it.
    AfterCharacterData,
    /// Inside a JSON object that has all arguments.
    Json(JsonArguments),
    /// Behind it.
    AfterJson,
}

/// The longest tag of a parameter.
const LONGEST_TAG: usize = NAME;

/// The longest white space around `<![CDATA[` that is dropped. It has to wait.
const LONGEST_SPACE: usize = FRAME;

const CHARACTER_DATA: &str = "<![CDATA[";
const CHARACTER_DATA_END: &str = "]]>";

/// What stands where a parameter can.
enum Next {
    Parameter,
    /// An element with all arguments, whose tag begins with this.
    Json(&'static str),
    End(usize),
    ImplicitEnd,
    Nothing(usize),
}

/// One step.
enum Step {
    /// Go on here.
    To(usize),
    Stop(Progress),
}

impl TagArguments {
    /// For a format that is written so.
    pub(crate) fn new(row: &'static Parameters) -> Self {
        Self {
            row,
            state: State::Between,
            begun: false,
            value: Value::new(),
            close: Cow::Borrowed(row.close),
            scratch: String::new(),
        }
    }

    /// Reads on. `last` says that no text follows.
    pub(crate) fn read(&mut self, text: &str, last: bool, sink: &mut Sink<'_>) -> Progress {
        let mut at = 0;
        loop {
            let step = match &mut self.state {
                State::Between => self.between(text, at, last, sink),
                State::ValueBegins => self.value_begins(text, at, last),
                State::Value | State::CharacterData => self.value(text, at, last, sink),
                State::AfterCharacterData => self.after_character_data(text, at, last, sink),
                State::Json(arguments) => match arguments.read(&text[at..], last, sink) {
                    Progress::Ended(used) | Progress::Called(used) | Progress::Stray(used) => {
                        self.state = State::AfterJson;
                        Step::To(at + used)
                    }
                    progress => Step::Stop(progress.behind(at)),
                },
                State::AfterJson => self.after_json(text, at, last),
            };
            match step {
                Step::To(place) => at = place,
                Step::Stop(progress) => return progress,
            }
        }
    }

    fn between(&mut self, text: &str, at: usize, last: bool, sink: &mut Sink<'_>) -> Step {
        let rest = text[at..].trim_ascii_start();
        let at = text.len() - rest.len();
        if rest.is_empty() {
            // Servers take end markers out that end the text: what is there is whole.
            if last && self.begun {
                self.end(sink);
                return Step::Stop(Progress::Ended(at));
            }
            return Step::Stop(Progress::More(at));
        }
        if matches!(self.row.json, JsonBody::Bare) && !self.begun && rest.starts_with('{') {
            self.state = State::Json(JsonArguments::new(self.row.end));
            return Step::To(at);
        }
        let (next, partly) = self.next(rest);
        if partly && !last {
            return Step::Stop(Progress::More(at));
        }
        Step::Stop(match next {
            Some(Next::Parameter) => return self.parameter(text, at, last, sink),
            Some(Next::Json(open)) => return self.json_begins(open, text, at, last),
            Some(Next::Nothing(length)) => return Step::To(at + length),
            Some(Next::End(length)) => {
                self.end(sink);
                Progress::Ended(at + length)
            }
            Some(Next::ImplicitEnd) => {
                self.end(sink);
                Progress::Ended(at)
            }
            // A text that ends inside the marker of the end lacks nothing else.
            None if partly && !self.may_be_parameter(rest) => {
                self.end(sink);
                let own = |marker: &&str| self.row.beginning(rest, marker) == Match::Begun;
                Progress::Ended(if self.row.end.iter().any(own) { text.len() } else { at })
            }
            None if partly => Progress::More(text.len()),
            None => Progress::Broken(at, "neither a parameter nor the end of the call"),
        })
    }

    /// What stands next, and whether a marker may have begun there that is not complete.
    fn next(&self, rest: &str) -> (Option<Next>, bool) {
        let row = self.row;
        let (mut next, mut longest, mut partly) = (None, 0, false);
        let mut look = |marker: &str, what: fn(usize) -> Next| match row.beginning(rest, marker) {
            Match::Whole(length) if length > longest => {
                longest = length;
                next = Some(what(length));
            }
            Match::Begun => partly = true,
            _ => {}
        };
        look(row.open, |_| Next::Parameter);
        for marker in row.end {
            look(marker, Next::End);
        }
        for marker in row.implicit_end {
            look(marker, |_| Next::ImplicitEnd);
        }
        for marker in row.wrapper {
            look(marker, Next::Nothing);
        }
        if let JsonBody::Element { open, .. } = row.json
            && !self.begun
        {
            match row.beginning(rest, open) {
                Match::Whole(_) => next = Some(Next::Json(open)),
                Match::Begun => partly = true,
                Match::No => {}
            }
        }
        (next, partly)
    }

    /// Whether what begins here may become something else than an end.
    fn may_be_parameter(&self, rest: &str) -> bool {
        let begun = |marker| self.row.beginning(rest, marker) == Match::Begun;
        let json = match self.row.json {
            JsonBody::Element { open, .. } => begun(open),
            _ => false,
        };
        json || begun(self.row.open) || self.row.wrapper.iter().any(|marker| begun(marker))
    }

    /// The call is complete.
    fn end(&mut self, sink: &mut Sink<'_>) {
        sink.arguments(if self.begun { "}" } else { "{}" });
    }

    fn parameter(&mut self, text: &str, at: usize, last: bool, sink: &mut Sink<'_>) -> Step {
        match self.row.tag(within(&text[at..], LONGEST_TAG)) {
            Tag::Whole { length, key, text: is_text, suffix } if !key.is_empty() => {
                self.begin(key, is_text, suffix, sink);
                Step::To(at + length)
            }
            Tag::Closed { length, key } if !key.is_empty() => {
                self.begin(key, None, "", sink);
                self.value.end(sink);
                self.state = State::Between;
                Step::To(at + length)
            }
            tag => Step::Stop(unfinished(tag, text, at, last)),
        }
    }

    fn begin(&mut self, key: &str, is_text: Option<bool>, suffix: &str, sink: &mut Sink<'_>) {
        // The key twice: in its place it is escaped, the schema has it as it is.
        self.scratch.clear();
        self.row.decode(key, |piece| self.scratch.push_str(piece));
        let kinds = match (sink.tools(), sink.open()) {
            (Some(tools), Some(tool)) if is_text.is_none() => tools.kinds(tool, &self.scratch),
            _ => Kinds::UNKNOWN,
        };
        let typing = match is_text {
            Some(true) => Typing::TEXT,
            Some(false) => Typing::Json,
            None => Typing::Schema(kinds),
        };
        let key_end = self.scratch.len();
        self.scratch.push_str(if self.begun { ",\"" } else { "{\"" });
        self.row.decode(key, |piece| escape(piece, &mut self.scratch));
        self.scratch.push_str("\":");
        sink.arguments(&self.scratch[key_end..]);
        if self.row.suffixed {
            let close = self.row.close.strip_suffix('>').unwrap_or(self.row.close);
            self.close = Cow::Owned([close, suffix, ">"].concat());
        }
        self.begun = true;
        self.value.begin(typing, sink);
        self.state = if self.row.framed || self.row.character_data {
            State::ValueBegins
        } else {
            State::Value
        };
    }

    fn value_begins(&mut self, text: &str, at: usize, last: bool) -> Step {
        let rest = &text[at..];
        if self.row.framed {
            let length = match rest.as_bytes() {
                [] if !last => return Step::Stop(Progress::More(at)),
                [b'\r'] if !last => return Step::Stop(Progress::More(at)),
                [b'\n', ..] => 1,
                [b'\r', b'\n', ..] => 2,
                _ => 0,
            };
            self.state = State::Value;
            return Step::To(at + length);
        }
        match spaced(rest, CHARACTER_DATA) {
            Match::Begun if !last => Step::Stop(Progress::More(at)),
            Match::Whole(length) => {
                self.state = State::CharacterData;
                Step::To(at + length)
            }
            _ => {
                self.state = State::Value;
                Step::To(at)
            }
        }
    }

    fn value(&mut self, text: &str, at: usize, last: bool, sink: &mut Sink<'_>) -> Step {
        let character_data = matches!(self.state, State::CharacterData);
        let marker = if character_data { CHARACTER_DATA_END } else { &self.close };
        let framed = self.row.framed && !character_data;
        let (end, after) = find(&text[at..], marker, framed, last);
        self.value.text(&text[at..at + end], sink);
        match after {
            Some(after) if character_data => {
                self.state = State::AfterCharacterData;
                Step::To(at + after)
            }
            Some(after) => {
                self.value.end(sink);
                self.state = State::Between;
                Step::To(at + after)
            }
            None => {
                if last {
                    self.value.cut(sink);
                }
                Step::Stop(Progress::More(at + end))
            }
        }
    }

    fn after_character_data(
        &mut self,
        text: &str,
        at: usize,
        last: bool,
        sink: &mut Sink<'_>,
    ) -> Step {
        let rest = &text[at..];
        let close = spaced(rest, &self.close);
        let again = compare(CHARACTER_DATA, rest);
        match (close, again) {
            (Match::Whole(length), _) => {
                self.value.end(sink);
                self.state = State::Between;
                Step::To(at + length)
            }
            (_, Match::Whole(length)) => {
                self.state = State::CharacterData;
                Step::To(at + length)
            }
            (Match::Begun, _) | (_, Match::Begun) if !last => Step::Stop(Progress::More(at)),
            _ => {
                self.state = State::Value;
                Step::To(at)
            }
        }
    }

    fn json_begins(&mut self, open: &str, text: &str, at: usize, last: bool) -> Step {
        let rest = within(&text[at..], LONGEST_TAG);
        match self.row.json_tag(open, rest) {
            Tag::Whole { length, .. } => {
                self.state = State::Json(JsonArguments::new(self.row.end));
                Step::To(at + length)
            }
            tag => Step::Stop(unfinished(tag, text, at, last)),
        }
    }

    /// The arguments are complete, whether or not the markers behind them are.
    fn after_json(&mut self, text: &str, at: usize, last: bool) -> Step {
        let rest = text[at..].trim_ascii_start();
        let at = text.len() - rest.len();
        let mut partly = rest.is_empty();
        if let JsonBody::Element { close, .. } = self.row.json {
            match compare(close, rest) {
                Match::Whole(length) => return Step::To(at + length),
                Match::Begun => partly = true,
                Match::No => {}
            }
        }
        for marker in self.row.end {
            match self.row.beginning(rest, marker) {
                Match::Whole(length) => return Step::Stop(Progress::Ended(at + length)),
                Match::Begun => partly = true,
                Match::No => {}
            }
        }
        Step::Stop(match (partly, last) {
            (true, false) => Progress::More(at),
            (true, true) => Progress::Ended(text.len()),
            (false, _) => Progress::Ended(at),
        })
    }
}

/// What to say of a tag that is not complete, or none.
fn unfinished(tag: Tag<'_>, text: &str, at: usize, last: bool) -> Progress {
    match tag {
        Tag::Wrong(why) => Progress::Broken(at, why),
        Tag::Whole { key: "", .. } | Tag::Closed { key: "", .. } => {
            Progress::Broken(at, "a tag has no name")
        }
        Tag::Begun if text.len() - at < LONGEST_TAG => {
            Progress::More(if last { text.len() } else { at })
        }
        _ => Progress::Broken(at, "a tag is too long"),
    }
}

/// Whether a text begins with a marker, after some white space.
fn spaced(text: &str, marker: &str) -> Match {
    let rest = text.trim_ascii_start();
    let space = text.len() - rest.len();
    match compare(marker, rest) {
        _ if space > LONGEST_SPACE => Match::No,
        Match::Whole(length) => Match::Whole(space + length),
        other => other,
    }
}

#[cfg(test)]
mod tests;
