//! Leads through a format: markers in sequence, and a machine for each body.
//!
//! A format is a list of steps. Each step is tried on the text after the previous one. White space
//! before a marker is framing.

use std::ops::ControlFlow;

use super::arguments::JsonArguments;
use super::dict_calls::DictCalls;
use super::echo::{Echo, MAX_ECHO};
use super::json::{JsonCalls, Keys};
use super::literal::Syntax;
use super::literal_arguments::LiteralArguments;
use super::lookahead::{
    Attributes, Lookahead, Word, find_marker, find_next_call, is_partial_marker, read_attributes,
    read_word,
};
use super::nested::NestedArguments;
use super::parameters::Parameters;
use super::pythonic::{Layout, PythonCalls};
use super::tags::TagArguments;
use super::{MAX_FRAMING, MAX_NAME, Progress, Sink, leading_white_space};
use crate::text::channels::Channels;
use crate::text::marker::{Match, compare};

/// A format for calls.
#[derive(Debug)]
pub struct ToolFormat {
    /// The name of the format.
    pub name: &'static str,
    /// Markers that open a block, and the step each one leads to.
    pub(crate) openers: &'static [(&'static str, usize)],
    /// What opens a block at the start of an answer, without a marker.
    pub(crate) starts: &'static [(Start, usize)],
    /// The step for a list of calls in fenced code that ends the answer.
    pub(crate) fenced: Option<usize>,
    /// The steps through a block.
    pub(crate) steps: &'static [Step],
    /// Markers that end a malformed block.
    pub(crate) closers: &'static [&'static str],
    /// Markers of this format without a meaning of their own. They are removed.
    pub(crate) noise: &'static [&'static str],
    /// Tokens that end a turn of its models. At the end of a text they are removed.
    pub(crate) turn_ends: &'static [&'static str],
    /// Whether models write `NAME.NAME` for the tool `NAME`.
    pub(crate) doubled_names: bool,
    /// For models that write calls in messages with headers.
    pub(crate) channels: Option<&'static Channels>,
}

/// One step through a block.
#[derive(Debug)]
pub(crate) enum Step {
    /// One of these markers must follow.
    Expect(&'static [&'static str]),
    /// One of these markers may follow.
    Optional(&'static [&'static str]),
    /// A word without meaning.
    Ignore(&'static [Terminator]),
    /// The name of the tool.
    Name(NameStyle, &'static [Terminator]),
    /// The model's id of the call.
    Id(&'static [Terminator]),
    /// Arguments in JSON. They may be missing.
    Arguments,
    /// The attributes of a tag, one of which is the name. A tag that ends with `/>` ends the call.
    Attributes {
        /// The attribute with the name.
        name: &'static str,
        /// The attribute with the model's id of the call.
        id: Option<&'static str>,
        /// What ends the tag.
        end: &'static str,
    },
    /// Arguments with one tag per parameter.
    Tags(&'static Parameters),
    /// Arguments with nested tags.
    Nested,
    /// Arguments in a syntax that is not JSON.
    Literal(&'static Syntax),
    /// Calls in JSON that name themselves.
    Calls(&'static Keys),
    /// Calls in Python syntax.
    Python(Layout),
    /// Calls in Python dicts that name themselves.
    Dicts {
        /// No marker comes before them.
        bare: bool,
    },
    /// The list of calls again, up to one of these markers, if the previous step found its marker.
    Echo(&'static [&'static str]),
    /// Continues at another step if the text starts like this.
    If(Start, usize),
    /// Continues at another step if one of these markers follows. The marker stays unread.
    Repeat(&'static [&'static str], usize),
    /// Continues at another step if such a call follows, after an optional separator.
    Another(&'static [&'static str], Start, usize),
    /// The block is complete.
    Done,
}

impl Step {
    /// Whether the step reads a list of calls after a marker, which may be empty.
    fn may_be_empty(&self) -> bool {
        matches!(
            self,
            Self::Calls(Keys { bare: false, .. })
                | Self::Python(Layout::List { declared_only: false })
                | Self::Dicts { bare: false }
        )
    }
}

/// What ends a name or an id.
#[derive(Debug)]
pub(crate) struct Terminator {
    /// The marker.
    pub marker: &'static str,
    /// Whether the marker stays unread for the next step.
    pub kept: bool,
    /// The next step.
    pub next_step: usize,
}

/// How a name is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NameStyle {
    /// A word.
    Word,
    /// Anything on one line.
    Line,
    /// `functions.NAME:N`. All of it is the id.
    Numbered,
}

/// What a text can start with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Start {
    /// `{"`
    Object,
    /// `[{"`
    ObjectList,
    /// `[{'`
    DictList,
    /// `[name`
    NameList,
    /// `[]`
    EmptyList,
    /// This text.
    Text(&'static str),
}

impl Start {
    /// Compares the start of a text.
    pub(crate) fn compare(self, text: &str) -> Match {
        let (brackets, accepts): (&[u8], fn(u8) -> bool) = match self {
            Self::Text(marker) => return compare(marker, text),
            Self::Object => (b"{", |byte| byte == b'"'),
            Self::ObjectList => (b"[{", |byte| byte == b'"'),
            Self::DictList => (b"[{", |byte| byte == b'\''),
            Self::NameList => (b"[", |byte| byte.is_ascii_alphabetic() || byte == b'_'),
            Self::EmptyList => (b"[", |byte| byte == b']'),
        };
        let bytes = text.as_bytes();
        let mut at = 0;
        for bracket in brackets {
            match bytes.get(at) {
                None => return Match::Partial,
                Some(byte) if byte != bracket => return Match::No,
                Some(_) => at += 1,
            }
            let white = leading_white_space(&text[at..]);
            if white > MAX_FRAMING {
                return Match::No;
            }
            at += white;
        }
        match bytes.get(at) {
            None => Match::Partial,
            Some(&byte) if accepts(byte) => Match::Full(at + 1),
            Some(_) => Match::No,
        }
    }
}

/// The last step at which the first call of a section may be expected. Openers of a single call lead
/// past it.
const MAX_SECTION_STEP: usize = 1;

/// Leads through one block.
#[derive(Debug)]
pub(crate) struct Script {
    format: &'static ToolFormat,
    step: usize,
    machine: Option<Machine>,
    name: Option<String>,
    id: Option<String>,
    /// A call was emitted.
    has_calls: bool,
    /// The block contains an empty list, or is an empty section.
    has_empty_list: bool,
    /// The text of the list, if the format looks for its echo. `None` if it is too long.
    list: Option<String>,
    /// The last optional marker was there.
    found_marker: bool,
}

#[derive(Debug)]
enum Machine {
    Arguments(JsonArguments),
    Tags(Box<TagArguments>),
    Nested(Box<NestedArguments>),
    Literal(Box<LiteralArguments>),
    Calls(Box<JsonCalls>),
    Python(Box<PythonCalls>),
    Dicts(Box<DictCalls>),
    Echo(Box<Echo>),
}

impl Machine {
    fn read(&mut self, text: &str, last: bool, sink: &mut Sink<'_>) -> Progress {
        match self {
            Self::Arguments(arguments) => arguments.read(text, last, sink),
            Self::Tags(arguments) => arguments.read(text, last, sink),
            Self::Nested(arguments) => arguments.read(text, last, sink),
            Self::Literal(arguments) => arguments.read(text, last, sink),
            Self::Calls(calls) => calls.read(text, last, sink),
            Self::Python(calls) => calls.read(text, last, sink),
            Self::Dicts(calls) => calls.read(text, last, sink),
            Self::Echo(echo) => echo.read(text, last),
        }
    }
}

impl Script {
    /// Starts after an opening marker.
    pub(crate) fn new(format: &'static ToolFormat, step: usize) -> Self {
        Self {
            format,
            step,
            machine: None,
            name: None,
            id: None,
            has_calls: false,
            has_empty_list: false,
            list: format.steps.iter().any(|step| matches!(step, Step::Echo(_))).then(String::new),
            found_marker: false,
        }
    }

    /// Starts with a known name.
    pub(crate) fn named(format: &'static ToolFormat, name: &str) -> Self {
        Self { name: Some(name.to_owned()), ..Self::new(format, 0) }
    }

    /// Whether the block contains an empty list instead of calls.
    pub(crate) fn has_empty_list(&self) -> bool {
        self.has_empty_list
    }

    /// The format.
    pub(crate) fn format(&self) -> &'static ToolFormat {
        self.format
    }

    /// Reads the next text.
    pub(crate) fn read(&mut self, text: &str, last: bool, sink: &mut Sink<'_>) -> Progress {
        let mut at = 0;
        loop {
            // Most pieces are inside a body, and only its machine needs to see them.
            let Some(machine) = &mut self.machine else {
                match self.walk(text, at, last, sink) {
                    ControlFlow::Continue(body) => at = body,
                    ControlFlow::Break(progress) => return progress,
                }
                continue;
            };
            let ended = sink.ended_count();
            let progress = machine.read(&text[at..], last, sink).offset_by(at);
            if let Some(list) = &mut self.list {
                list.push_str(&text[at..progress.used()]);
                if list.len() > MAX_ECHO {
                    self.list = None;
                }
            }
            match progress {
                Progress::Ended(end) => {
                    sink.end();
                    self.machine = None;
                    self.step += 1;
                    self.has_calls |= sink.ended_count() > ended;
                    if self.has_calls {
                        return Progress::Called(end);
                    }
                    at = end;
                }
                progress => {
                    self.has_calls |= matches!(progress, Progress::Called(_));
                    return progress;
                }
            }
        }
    }

    /// Runs steps up to the start of a body.
    fn walk(
        &mut self,
        text: &str,
        mut at: usize,
        last: bool,
        sink: &mut Sink<'_>,
    ) -> ControlFlow<Progress, usize> {
        loop {
            let Some(step) = self.format.steps.get(self.step) else {
                return ControlFlow::Break(Progress::Ended(at));
            };
            match self.try_step(step, &text[at..], last, sink) {
                StepResult::GoTo(used, next) => {
                    at += used;
                    self.step = next;
                }
                // The text ends after a name: that is a call.
                StepResult::Wait if last && self.name.is_some() => {
                    if let Some(name) = self.name.take() {
                        let id = self.id.take();
                        sink.prepare(self.tool_name(&name, sink), id.as_deref());
                    }
                    return ControlFlow::Break(Progress::More(text.len()));
                }
                StepResult::Wait => return ControlFlow::Break(Progress::More(at)),
                StepResult::Broken(used, why) => {
                    return ControlFlow::Break(Progress::Broken(at + used, why));
                }
                StepResult::Called(used, next) => {
                    self.step = next;
                    return ControlFlow::Break(Progress::Called(at + used));
                }
                StepResult::Done => return ControlFlow::Break(Progress::Ended(at)),
                StepResult::Body => return ControlFlow::Continue(at),
            }
        }
    }

    /// Tries one step on the text.
    fn try_step(
        &mut self,
        step: &'static Step,
        text: &str,
        last: bool,
        sink: &mut Sink<'_>,
    ) -> StepResult {
        let next = self.step + 1;
        if step.may_be_empty()
            && let Some(result) = self.try_empty_list(text, last)
        {
            return result;
        }
        match step {
            Step::Expect(markers) => match find_marker(markers, text, last) {
                Lookahead::Found(used) => StepResult::GoTo(used, next),
                Lookahead::Wait => StepResult::Wait,
                Lookahead::Other(at) => self.try_empty_section(at, text, last),
            },
            Step::Optional(markers) => self.try_optional(markers, text, last),
            Step::Ignore(terminators) => {
                match read_word(NameStyle::Word, terminators, text, last) {
                    Word::Found { used, next_step, .. } => StepResult::GoTo(used, next_step),
                    Word::Wait => StepResult::Wait,
                    Word::Broken(at) => StepResult::Broken(at, "a marker is missing"),
                }
            }
            Step::Name(style, terminators) => match read_word(*style, terminators, text, last) {
                Word::Found { text, used, next_step } => {
                    self.set_name(*style, text);
                    StepResult::GoTo(used, next_step)
                }
                Word::Wait => StepResult::Wait,
                Word::Broken(at) => StepResult::Broken(at, "the name is not valid"),
            },
            Step::Id(terminators) => match read_word(NameStyle::Word, terminators, text, last) {
                Word::Found { text, used, next_step } => {
                    self.id = Some(text.to_owned());
                    StepResult::GoTo(used, next_step)
                }
                Word::Wait => StepResult::Wait,
                Word::Broken(at) => StepResult::Broken(at, "the id is not valid"),
            },
            Step::If(start, target) => self.try_start(*start, *target, text, last),
            Step::Repeat(markers, target) => match find_marker(markers, text, last) {
                // The white space before the marker belongs to the previous call.
                Lookahead::Found(_) => StepResult::Called(leading_white_space(text), *target),
                Lookahead::Wait => StepResult::Wait,
                Lookahead::Other(_) => StepResult::GoTo(0, next),
            },
            Step::Another(separators, start, target) => {
                match find_next_call(separators, *start, text, last) {
                    Lookahead::Found(used) => StepResult::GoTo(used, *target),
                    Lookahead::Wait => StepResult::Wait,
                    Lookahead::Other(_) => StepResult::GoTo(0, next),
                }
            }
            Step::Attributes { name, id, end } => self.try_attributes(name, *id, end, text, sink),
            Step::Echo(_) if self.list.is_none() || !self.found_marker => StepResult::GoTo(0, next),
            Step::Done => StepResult::Done,
            Step::Arguments
            | Step::Tags(_)
            | Step::Nested
            | Step::Literal(_)
            | Step::Calls(_)
            | Step::Python(_)
            | Step::Dicts { .. }
            | Step::Echo(_) => {
                self.begin_body(step, sink);
                StepResult::Body
            }
        }
    }

    /// Looks for a marker that may be missing.
    fn try_optional(
        &mut self,
        markers: &'static [&'static str],
        text: &str,
        last: bool,
    ) -> StepResult {
        let next = self.step + 1;
        match find_marker(markers, text, last) {
            Lookahead::Found(used) => {
                self.found_marker = true;
                StepResult::GoTo(used, next)
            }
            // A partial end marker at the end of the text is no content.
            _ if last && is_partial_marker(markers, text) => StepResult::GoTo(text.len(), next),
            Lookahead::Wait => StepResult::Wait,
            Lookahead::Other(_) => StepResult::GoTo(0, next),
        }
    }

    /// Continues at the target if the text starts like this.
    fn try_start(&self, start: Start, target: usize, text: &str, last: bool) -> StepResult {
        let white = leading_white_space(text).min(MAX_FRAMING + 1);
        match start.compare(&text[white..]) {
            Match::Full(_) => StepResult::GoTo(0, target),
            Match::Partial if !last => StepResult::Wait,
            _ => StepResult::GoTo(0, self.step + 1),
        }
    }

    /// Looks for an empty list after white space. `None` if the text is something else.
    fn try_empty_list(&mut self, text: &str, last: bool) -> Option<StepResult> {
        let white = leading_white_space(text);
        match Start::EmptyList.compare(&text[white..]) {
            _ if white > MAX_FRAMING => None,
            Match::Full(length) => {
                self.has_empty_list = true;
                Some(StepResult::GoTo(white + length, self.step + 1))
            }
            Match::Partial if !last => Some(StepResult::Wait),
            _ => None,
        }
    }

    /// The first call of a section is missing. Looks for the end of the section instead, after this
    /// much white space.
    fn try_empty_section(&mut self, white: usize, text: &str, last: bool) -> StepResult {
        let is_first = self.step <= MAX_SECTION_STEP && !self.has_calls;
        match find_marker(self.format.closers, text, last) {
            Lookahead::Found(used) if is_first => {
                self.has_empty_list = true;
                StepResult::GoTo(used, self.format.steps.len())
            }
            Lookahead::Wait if is_first => StepResult::Wait,
            _ => StepResult::Broken(white, "a marker is missing"),
        }
    }

    /// Reads the attributes of a tag: the name, and the model's id if the format has one.
    fn try_attributes(
        &mut self,
        name: &'static str,
        id: Option<&'static str>,
        end: &'static str,
        text: &str,
        sink: &mut Sink<'_>,
    ) -> StepResult {
        match read_attributes(name, end, text) {
            Attributes::Wait if text.len() > MAX_NAME => StepResult::Broken(0, "a tag is too long"),
            Attributes::Wait => StepResult::Wait,
            Attributes::Wrong(why) => StepResult::Broken(0, why),
            Attributes::Found { name, used, closed: true } => {
                sink.start(self.tool_name(&name, sink), None);
                sink.write_arguments("{}");
                sink.end();
                // Skips the step that would have read the arguments.
                StepResult::Called(used, self.step + 2)
            }
            Attributes::Found { name, used, closed: false } => {
                self.name = Some(name);
                self.id = id.and_then(|id| match read_attributes(id, end, text) {
                    Attributes::Found { name, .. } => Some(name),
                    _ => None,
                });
                StepResult::GoTo(used, self.step + 1)
            }
        }
    }

    /// Creates the machine that reads the body of a step.
    fn begin_body(&mut self, step: &'static Step, sink: &mut Sink<'_>) {
        let mut default = None;
        if let Some(name) = self.name.take() {
            match step {
                // These may name themselves.
                Step::Calls(_) => default = Some(name),
                _ => {
                    let id = self.id.take();
                    sink.prepare(self.tool_name(&name, sink), id.as_deref());
                }
            }
        }
        let closers = self.format.closers;
        self.machine = Some(match step {
            Step::Calls(keys) => Machine::Calls(Box::new(JsonCalls::new(keys, closers, default))),
            Step::Tags(row) => Machine::Tags(Box::new(TagArguments::new(row))),
            Step::Nested => Machine::Nested(Box::new(NestedArguments::new())),
            Step::Literal(syntax) => Machine::Literal(Box::new(LiteralArguments::new(syntax))),
            Step::Python(layout) => Machine::Python(Box::new(PythonCalls::new(*layout))),
            Step::Echo(ends) => {
                Machine::Echo(Box::new(Echo::new(&self.list.take().unwrap_or_default(), ends)))
            }
            Step::Dicts { bare } => Machine::Dicts(Box::new(DictCalls::new(*bare))),
            _ => Machine::Arguments(JsonArguments::optional(closers)),
        });
    }

    /// The name of the offered tool, if the model wrote it twice.
    fn tool_name<'n>(&self, name: &'n str, sink: &Sink<'_>) -> &'n str {
        let half = name.len() / 2;
        match (sink.tools(), name.split_at_checked(half)) {
            (Some(tools), Some((tool, rest)))
                if self.format.doubled_names
                    && rest.strip_prefix('.') == Some(tool)
                    && tools.declares(tool)
                    && !tools.declares(name) =>
            {
                tool
            }
            _ => name,
        }
    }

    /// Sets the name, and the id if the name contains it.
    fn set_name(&mut self, style: NameStyle, text: &str) {
        match style {
            NameStyle::Numbered => {
                let name = text.rsplit_once(':').map_or(text, |(name, _)| name);
                let name = name.strip_prefix("functions.").unwrap_or(name);
                self.name = Some(name.to_owned());
                self.id = Some(text.to_owned());
            }
            NameStyle::Word | NameStyle::Line => self.name = Some(text.to_owned()),
        }
    }
}

/// The result of a step.
enum StepResult {
    /// Continue after this many bytes, at that step.
    GoTo(usize, usize),
    /// More text is needed.
    Wait,
    /// The byte at this position does not fit. With the reason.
    Broken(usize, &'static str),
    /// A call is complete after this many bytes. That step follows.
    Called(usize, usize),
    /// The block is complete.
    Done,
    /// A machine reads the body from here on.
    Body,
}
