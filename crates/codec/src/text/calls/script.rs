//! Leading through a format: markers in a row, and a machine where a body stands.
//!
//! A format is a list of steps. Each is tried on the text behind the one before; white space in
//! front of a marker is framing.

use std::ops::ControlFlow;

use super::ahead::{Attributes, Next, Word, another, begins, next, tag, word};
use super::arguments::JsonArguments;
use super::dict_calls::DictCalls;
use super::json::{JsonCalls, Keys};
use super::literal::Syntax;
use super::literal_arguments::LiteralArguments;
use super::nested::NestedArguments;
use super::parameters::Parameters;
use super::pythonic::{PythonCalls, Shape};
use super::tags::TagArguments;
use super::{FRAME, NAME, Progress, Sink, white_space};
use crate::text::channels::Channels;
use crate::text::marker::{Match, compare};

/// How calls are written.
#[derive(Debug)]
pub struct ToolFormat {
    /// What people call it.
    pub name: &'static str,
    /// What opens a block, and the step it leads to.
    pub(crate) openers: &'static [(&'static str, usize)],
    /// What opens one at the beginning of an answer, without a marker.
    pub(crate) starts: &'static [(Start, usize)],
    /// The way through a block.
    pub(crate) steps: &'static [Step],
    /// What ends a block that is broken.
    pub(crate) closers: &'static [&'static str],
    /// Markers of this format that mean nothing by themselves and are taken out.
    pub(crate) noise: &'static [&'static str],
    /// For models that write calls in messages with headers.
    pub(crate) channels: Option<&'static Channels>,
}

/// One step of the way.
#[derive(Debug)]
pub(crate) enum Step {
    /// One of these must stand next.
    Expect(&'static [&'static str]),
    /// One of these may stand next.
    Maybe(&'static [&'static str]),
    /// A word that means nothing.
    Ignore(&'static [Until]),
    /// The tool's name.
    Name(Spelling, &'static [Until]),
    /// The model's id of the call.
    Id(&'static [Until]),
    /// Arguments in JSON, which may be missing.
    Arguments,
    /// The attributes of a tag up to its end, one of which is the name. An end of `/>` ends the call.
    Attributes {
        /// The attribute.
        name: &'static str,
        /// The one that is the model's id of the call.
        id: Option<&'static str>,
        /// What ends the tag.
        end: &'static str,
    },
    /// Arguments with a tag for each parameter.
    Tags(&'static Parameters),
    /// Arguments with tags in tags.
    Nested,
    /// Arguments in another notation.
    Literal(&'static Syntax),
    /// Calls that name themselves, in JSON.
    Calls(&'static Keys),
    /// Calls as Python writes them.
    Python(Shape),
    /// Calls that name themselves, as Python writes data; without a marker if so.
    Dicts {
        /// No marker stands before them.
        bare: bool,
    },
    /// On to another step if this stands next.
    If(Start, usize),
    /// On to another step if one of these stands next; it is not used up.
    Repeat(&'static [&'static str], usize),
    /// On to another step if such a call stands next, maybe behind one of these.
    Another(&'static [&'static str], Start, usize),
    /// The block is complete.
    Done,
}

/// What ends a name or an id.
#[derive(Debug)]
pub(crate) struct Until {
    /// The marker.
    pub marker: &'static str,
    /// Whether it belongs to what follows.
    pub kept: bool,
    /// The step that follows.
    pub to: usize,
}

/// How a name is spelled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Spelling {
    /// A word.
    Word,
    /// Anything on one line.
    Line,
    /// `functions.NAME:N`, which is the id as well.
    Numbered,
}

/// What can stand at the beginning of a text.
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
    /// Just this.
    Text(&'static str),
}

impl Start {
    /// Whether the text begins so.
    pub(crate) fn compare(self, text: &str) -> Match {
        let (brackets, then): (&[u8], fn(u8) -> bool) = match self {
            Self::Text(marker) => return compare(marker, text),
            Self::Object => (b"{", |byte| byte == b'"'),
            Self::ObjectList => (b"[{", |byte| byte == b'"'),
            Self::DictList => (b"[{", |byte| byte == b'\''),
            Self::NameList => (b"[", |byte| byte.is_ascii_alphabetic() || byte == b'_'),
        };
        let bytes = text.as_bytes();
        let mut at = 0;
        for bracket in brackets {
            match bytes.get(at) {
                None => return Match::Begun,
                Some(byte) if byte != bracket => return Match::No,
                Some(_) => at += 1,
            }
            let white = white_space(&text[at..]);
            if white > FRAME {
                return Match::No;
            }
            at += white;
        }
        match bytes.get(at) {
            None => Match::Begun,
            Some(&byte) if then(byte) => Match::Whole(at + 1),
            Some(_) => Match::No,
        }
    }
}

/// One block on its way.
#[derive(Debug)]
pub(crate) struct Script {
    format: &'static ToolFormat,
    step: usize,
    machine: Option<Machine>,
    name: Option<String>,
    id: Option<String>,
    /// A call has been told.
    called: bool,
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
        }
    }
}

impl Script {
    /// Begins behind an opener.
    pub(crate) fn new(format: &'static ToolFormat, step: usize) -> Self {
        Self { format, step, machine: None, name: None, id: None, called: false }
    }

    /// Begins with a name that is known.
    pub(crate) fn named(format: &'static ToolFormat, name: &str) -> Self {
        Self { name: Some(name.to_owned()), ..Self::new(format, 0) }
    }

    /// The format.
    pub(crate) fn format(&self) -> &'static ToolFormat {
        self.format
    }

    /// Reads on.
    pub(crate) fn read(&mut self, text: &str, last: bool, sink: &mut Sink<'_>) -> Progress {
        let mut at = 0;
        loop {
            // Most pieces lie inside a body, and only its machine has a say there.
            let Some(machine) = &mut self.machine else {
                match self.walk(text, at, last, sink) {
                    ControlFlow::Continue(body) => at = body,
                    ControlFlow::Break(progress) => return progress,
                }
                continue;
            };
            let ended = sink.ended();
            match machine.read(&text[at..], last, sink).behind(at) {
                Progress::Ended(behind) => {
                    sink.end();
                    self.machine = None;
                    self.step += 1;
                    self.called |= sink.ended() > ended;
                    if self.called {
                        return Progress::Called(behind);
                    }
                    at = behind;
                }
                progress => {
                    self.called |= matches!(progress, Progress::Called(_));
                    return progress;
                }
            }
        }
    }

    /// Goes from marker to marker, up to where a body begins.
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
            let rest = &text[at..];
            let moved = match step {
                Step::Expect(markers) => match next(markers, rest, last) {
                    Next::Found(used) => Move::On(used, self.step + 1),
                    Next::Wait => Move::Wait,
                    Next::Other(at) => Move::Broken(at, "a marker is missing"),
                },
                Step::Maybe(markers) => match next(markers, rest, last) {
                    Next::Found(used) => Move::On(used, self.step + 1),
                    // Half an end marker, and then the text ended: it is no text.
                    _ if last && begins(markers, rest) => Move::On(rest.len(), self.step + 1),
                    Next::Wait => Move::Wait,
                    Next::Other(_) => Move::On(0, self.step + 1),
                },
                Step::Ignore(until) => match word(Spelling::Word, until, rest, last) {
                    Word::Found { used, to, .. } => Move::On(used, to),
                    Word::Wait => Move::Wait,
                    Word::Broken(at) => Move::Broken(at, "a marker is missing"),
                },
                Step::Name(spelling, until) => match word(*spelling, until, rest, last) {
                    Word::Found { text, used, to } => {
                        self.name(*spelling, text);
                        Move::On(used, to)
                    }
                    Word::Wait => Move::Wait,
                    Word::Broken(at) => Move::Broken(at, "the name is no name"),
                },
                Step::Id(until) => match word(Spelling::Word, until, rest, last) {
                    Word::Found { text, used, to } => {
                        self.id = Some(text.to_owned());
                        Move::On(used, to)
                    }
                    Word::Wait => Move::Wait,
                    Word::Broken(at) => Move::Broken(at, "the id is no id"),
                },
                Step::If(start, to) => {
                    let white = white_space(rest).min(FRAME + 1);
                    match start.compare(&rest[white..]) {
                        Match::Whole(_) => Move::On(0, *to),
                        Match::Begun if !last => Move::Wait,
                        _ => Move::On(0, self.step + 1),
                    }
                }
                Step::Repeat(markers, to) => match next(markers, rest, last) {
                    Next::Found(_) => {
                        // What stands before it belongs to the call before.
                        self.step = *to;
                        let before = at + white_space(rest);
                        return ControlFlow::Break(Progress::Called(before));
                    }
                    Next::Wait => Move::Wait,
                    Next::Other(_) => Move::On(0, self.step + 1),
                },
                Step::Another(separators, start, to) => {
                    match another(separators, *start, rest, last) {
                        Next::Found(used) => Move::On(used, *to),
                        Next::Wait => Move::Wait,
                        Next::Other(_) => Move::On(0, self.step + 1),
                    }
                }
                Step::Attributes { name, id, end } => match tag(name, end, rest) {
                    Attributes::Wait if rest.len() > NAME => Move::Broken(0, "a tag is too long"),
                    Attributes::Wait => Move::Wait,
                    Attributes::Wrong(why) => Move::Broken(0, why),
                    Attributes::Found { name, used, closed } => {
                        if closed {
                            sink.start(&name, None);
                            sink.arguments("{}");
                            sink.end();
                            // Behind the step that would have read the arguments.
                            self.step += 2;
                            return ControlFlow::Break(Progress::Called(at + used));
                        }
                        self.name = Some(name);
                        self.id = id.and_then(|id| match tag(id, end, rest) {
                            Attributes::Found { name, .. } => Some(name),
                            _ => None,
                        });
                        Move::On(used, self.step + 1)
                    }
                },
                Step::Done => return ControlFlow::Break(Progress::Ended(at)),
                Step::Arguments
                | Step::Tags(_)
                | Step::Nested
                | Step::Literal(_)
                | Step::Calls(_)
                | Step::Python(_)
                | Step::Dicts { .. } => {
                    self.begin_body(step, sink);
                    return ControlFlow::Continue(at);
                }
            };
            match moved {
                Move::On(used, to) => {
                    at += used;
                    self.step = to;
                }
                // The text ends behind a name: that is a call.
                Move::Wait if last && self.name.is_some() => {
                    if let Some(name) = self.name.take() {
                        sink.ready(&name, self.id.take().as_deref());
                    }
                    return ControlFlow::Break(Progress::More(text.len()));
                }
                Move::Wait => return ControlFlow::Break(Progress::More(at)),
                Move::Broken(used, why) => {
                    return ControlFlow::Break(Progress::Broken(at + used, why));
                }
            }
        }
    }

    /// Sets up the machine that reads the body of a step.
    fn begin_body(&mut self, step: &'static Step, sink: &mut Sink<'_>) {
        let mut default = None;
        if let Some(name) = self.name.take() {
            match step {
                // These may name themselves.
                Step::Calls(_) => default = Some(name),
                _ => sink.ready(&name, self.id.take().as_deref()),
            }
        }
        let closers = self.format.closers;
        self.machine = Some(match step {
            Step::Calls(keys) => Machine::Calls(Box::new(JsonCalls::new(keys, closers, default))),
            Step::Tags(row) => Machine::Tags(Box::new(TagArguments::new(row))),
            Step::Nested => Machine::Nested(Box::new(NestedArguments::new())),
            Step::Literal(syntax) => Machine::Literal(Box::new(LiteralArguments::new(syntax))),
            Step::Python(shape) => Machine::Python(Box::new(PythonCalls::new(*shape))),
            Step::Dicts { bare } => Machine::Dicts(Box::new(DictCalls::new(*bare))),
            _ => Machine::Arguments(JsonArguments::optional(closers)),
        });
    }

    fn name(&mut self, spelling: Spelling, text: &str) {
        match spelling {
            Spelling::Numbered => {
                let name = text.rsplit_once(':').map_or(text, |(name, _)| name);
                let name = name.strip_prefix("functions.").unwrap_or(name);
                self.name = Some(name.to_owned());
                self.id = Some(text.to_owned());
            }
            Spelling::Word | Spelling::Line => self.name = Some(text.to_owned()),
        }
    }
}

enum Move {
    /// So many bytes on, to that step.
    On(usize, usize),
    Wait,
    Broken(usize, &'static str),
}
