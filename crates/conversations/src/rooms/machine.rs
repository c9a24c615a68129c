//! Decides what happens in a room. It is a value: it has no clock, no store and no model, so everything
//! that it promises is tested with inputs and effects alone.
//!
//! - A member answers messages that address it, one answer at a time. It answers later ones next.
//! - Models that answer each other are stopped after some answers: the *loop guard*.
//! - A span of thinking has one start and one end, and both are shown before its answer is.

use std::collections::HashMap;

use serde_json::Value;
use throughline_canonical::{Block, BlockStart, Delta, Event, Usage, WaitingCall};

use crate::projects::content::REDACTED_NOTICE;

/// When a member answers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ReplyRule {
    /// When a message has its name, as in `@tutor`.
    #[default]
    Addressed,
    /// To every message of others.
    Always,
}

/// A member that answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    /// The id of its channel.
    pub channel: String,
    /// When it answers.
    pub reply: ReplyRule,
}

/// Who says something.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Author {
    /// A person, or a program that speaks for one.
    Person(String),
    /// A member: the id of its channel.
    Member(String),
}

/// A message that is stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// Who said it.
    pub author: Author,
    /// The text.
    pub text: String,
    /// How many answers of models led to it without a person in between. 0 for a person.
    pub chain: u32,
}

/// What has happened.
#[derive(Debug)]
pub enum Input<'a> {
    /// The members that answer are these.
    Members(Vec<Member>),
    /// A person said something.
    Message(Message),
    /// The answer of a member has begun, here or at another instance.
    Began {
        /// The run.
        run: String,
        /// The member.
        member: String,
    },
    /// The answer of a member could not begin.
    NotBegun {
        /// The member.
        member: String,
    },
    /// The log of a run has an event.
    Event {
        /// The run.
        run: &'a str,
        /// The event.
        event: &'a Event<'a>,
    },
    /// A run has ended, and its answer is stored if there is one.
    Ended {
        /// The run.
        run: String,
        /// The answer.
        answer: Option<Message>,
        /// What others said that the answer does not take into account.
        unread: Vec<Message>,
    },
}

/// What to do.
#[derive(Clone, Debug, PartialEq)]
pub enum Effect {
    /// Ask a member for an answer. Its chain has this length then.
    Answer {
        /// The member.
        member: String,
        /// The length of the chain.
        chain: u32,
    },
    /// Record that a member is not asked, because models have answered each other too often.
    Guard {
        /// The member.
        member: String,
        /// How many answers followed each other.
        chain: u32,
    },
    /// Show something that is not stored.
    Show {
        /// The run.
        run: String,
        /// The member.
        member: String,
        /// What is shown.
        what: Shown,
    },
    /// Record a step of a tool loop.
    Record {
        /// The run.
        run: String,
        /// The member.
        member: String,
        /// The step.
        step: Step,
    },
}

/// What is shown and not stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Shown {
    /// The member begins or stops to write.
    Typing {
        /// Whether it writes.
        active: bool,
    },
    /// Thinking begins.
    ThinkingStarted,
    /// Thinking goes on.
    ThinkingDelta {
        /// What it adds.
        text: String,
    },
    /// Thinking ends.
    ThinkingEnded {
        /// All of it.
        text: String,
        /// The tokens of all thinking of the run so far, if the provider has said.
        tokens: Option<u64>,
    },
}

/// A step of a tool loop.
#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    /// The model calls a tool.
    Called {
        /// The id of the call.
        id: String,
        /// The name of the tool.
        name: String,
        /// The arguments, as JSON if they are.
        arguments: Value,
    },
    /// A call waits for a person.
    Waits {
        /// How many times the run has asked people, with this one. A tool may ask several times.
        question: u32,
        /// The call.
        call: WaitingCall,
    },
    /// A call has a result.
    Returned {
        /// The id of the call.
        id: String,
        /// Texts and media.
        content: Vec<Block>,
        /// Whether it failed.
        is_error: bool,
    },
}

/// A run that is followed.
#[derive(Debug)]
struct RunState {
    member: String,
    span: Option<Span>,
    calls: HashMap<u32, (String, String, String)>,
    /// How many times it has asked people.
    questions: u32,
    usage: Usage,
}

/// Thinking that has not ended.
#[derive(Debug)]
struct Span {
    index: u32,
    text: String,
}

/// What is known about a room.
#[derive(Debug)]
pub struct Room {
    /// How many answers of models may follow each other.
    max_chain: u32,
    members: Vec<Member>,
    /// Members that were asked, and whose run has not begun.
    pending: Vec<String>,
    runs: HashMap<String, RunState>,
}

impl Room {
    /// A room without members. `max_chain` answers of models may follow each other.
    pub fn new(max_chain: u32) -> Self {
        Self { max_chain, members: Vec::new(), pending: Vec::new(), runs: HashMap::new() }
    }

    /// Takes an input, and says what to do.
    pub fn apply(&mut self, input: Input<'_>) -> Vec<Effect> {
        match input {
            Input::Members(members) => {
                self.members = members;
                Vec::new()
            }
            Input::Message(message) => self.answers_to(&message),
            Input::Began { run, member } => self.begin(run, member),
            Input::NotBegun { member } => {
                self.pending.retain(|pending| *pending != member);
                Vec::new()
            }
            Input::Event { run, event } => self.event(run, event),
            Input::Ended { run, answer, unread } => self.end(&run, answer.as_ref(), &unread),
        }
    }

    fn is_busy(&self, member: &str) -> bool {
        self.pending.iter().any(|pending| pending == member)
            || self.runs.values().any(|run| run.member == member)
    }

    fn answers_to(&mut self, message: &Message) -> Vec<Effect> {
        let addressed = self.members.iter().filter(|member| is_addressed(message, member));
        let members: Vec<String> = addressed.map(|member| member.channel.clone()).collect();
        members.into_iter().filter_map(|member| self.ask(member, message.chain)).collect()
    }

    /// Asks a member that is free. One that is not gets the message as unread.
    fn ask(&mut self, member: String, chain: u32) -> Option<Effect> {
        if self.is_busy(&member) {
            return None;
        }
        if chain >= self.max_chain {
            return Some(Effect::Guard { member, chain });
        }
        self.pending.push(member.clone());
        Some(Effect::Answer { member, chain: chain + 1 })
    }

    fn begin(&mut self, run: String, member: String) -> Vec<Effect> {
        self.pending.retain(|pending| *pending != member);
        if self.runs.contains_key(&run) {
            return Vec::new();
        }
        let (span, calls, usage) = (None, HashMap::new(), Usage::default());
        let state = RunState { member: member.clone(), span, calls, questions: 0, usage };
        self.runs.insert(run.clone(), state);
        vec![Effect::Show { run, member, what: Shown::Typing { active: true } }]
    }

    fn event(&mut self, run: &str, event: &Event<'_>) -> Vec<Effect> {
        let Some(state) = self.runs.get_mut(run) else {
            return Vec::new();
        };
        let mut out = Out { run, member: state.member.clone(), effects: Vec::new() };
        state.take(event, &mut out);
        out.effects
    }

    fn end(&mut self, run: &str, answer: Option<&Message>, unread: &[Message]) -> Vec<Effect> {
        let Some(mut state) = self.runs.remove(run) else {
            return Vec::new();
        };
        let mut out = Out { run, member: state.member.clone(), effects: Vec::new() };
        state.end_span(&mut out);
        out.show(Shown::Typing { active: false });
        let Out { member, mut effects, .. } = out;
        if let Some(answer) = answer {
            effects.extend(self.answers_to(answer));
        }
        let own = self.members.iter().find(|known| known.channel == member);
        // The answer reads all of them, so a person among their authors counts.
        let chain = own.and_then(|own| {
            let addressed = unread.iter().filter(|message| is_addressed(message, own));
            addressed.map(|message| message.chain).min()
        });
        if let Some(chain) = chain {
            effects.extend(self.ask(member, chain));
        }
        effects
    }
}

/// The effects of one input on a run.
struct Out<'a> {
    run: &'a str,
    member: String,
    effects: Vec<Effect>,
}

impl Out<'_> {
    fn show(&mut self, what: Shown) {
        let (run, member) = (self.run.to_owned(), self.member.clone());
        self.effects.push(Effect::Show { run, member, what });
    }

    fn record(&mut self, step: Step) {
        let (run, member) = (self.run.to_owned(), self.member.clone());
        self.effects.push(Effect::Record { run, member, step });
    }
}

impl RunState {
    fn take(&mut self, event: &Event<'_>, out: &mut Out<'_>) {
        match event {
            Event::BlockStarted { index, block } => self.start_block(*index, block, out),
            Event::BlockDelta { index, delta } => self.grow(*index, delta, out),
            Event::BlockEnded { index } => self.end_block(*index, out),
            Event::ToolResult { id, content, is_error, .. } => {
                self.end_span(out);
                let (id, content) = (id.clone().into_owned(), content.clone());
                out.record(Step::Returned { id, content, is_error: *is_error });
            }
            Event::ApprovalNeeded { calls } => {
                self.end_span(out);
                self.questions += 1;
                for call in calls {
                    out.record(Step::Waits { question: self.questions, call: call.clone() });
                }
            }
            Event::Usage(usage) => self.usage.update(*usage),
            Event::Ended { .. } => self.end_span(out),
            _ => {}
        }
    }

    fn start_block(&mut self, index: u32, block: &BlockStart<'_>, out: &mut Out<'_>) {
        self.end_span(out);
        match block {
            BlockStart::Thinking { text, signature } => {
                self.think(index, text, out);
                if !signature.is_empty() {
                    self.end_span(out);
                }
            }
            BlockStart::Redacted { .. } => self.think(index, REDACTED_NOTICE, out),
            BlockStart::ToolCall { id, name } => {
                let call = (id.clone().into_owned(), name.clone().into_owned(), String::new());
                self.calls.insert(index, call);
            }
            _ => {}
        }
    }

    fn grow(&mut self, index: u32, delta: &Delta<'_>, out: &mut Out<'_>) {
        match delta {
            Delta::Thinking(text) => self.think(index, text, out),
            Delta::ToolArguments(piece) => {
                if let Some((_, _, arguments)) = self.calls.get_mut(&index) {
                    arguments.push_str(piece);
                }
            }
            // A signature is the last part of its thinking.
            _ => self.end_span(out),
        }
    }

    fn end_block(&mut self, index: u32, out: &mut Out<'_>) {
        if self.span.as_ref().is_some_and(|span| span.index == index) {
            self.end_span(out);
        }
        if let Some((id, name, arguments)) = self.calls.remove(&index) {
            let arguments = match arguments.trim() {
                "" => Value::Object(serde_json::Map::new()),
                text => serde_json::from_str(text).unwrap_or_else(|_| Value::from(text)),
            };
            out.record(Step::Called { id, name, arguments });
        }
    }

    /// Adds to the span, and begins one if there is none.
    fn think(&mut self, index: u32, text: &str, out: &mut Out<'_>) {
        if self.span.as_ref().is_some_and(|span| span.index != index) {
            self.end_span(out);
        }
        let span = self.span.get_or_insert_with(|| {
            out.show(Shown::ThinkingStarted);
            Span { index, text: String::new() }
        });
        if !text.is_empty() {
            span.text.push_str(text);
            out.show(Shown::ThinkingDelta { text: text.to_owned() });
        }
    }

    fn end_span(&mut self, out: &mut Out<'_>) {
        if let Some(Span { text, .. }) = self.span.take() {
            out.show(Shown::ThinkingEnded { text, tokens: self.usage.thinking });
        }
    }
}

/// Whether a member has to answer a message.
fn is_addressed(message: &Message, member: &Member) -> bool {
    let is_own = message.author == Author::Member(member.channel.clone());
    !is_own && (member.reply == ReplyRule::Always || has_name(&message.text, &member.channel))
}

/// Whether a text has `@name`, and not as part of a longer name.
fn has_name(text: &str, name: &str) -> bool {
    let continues = |next: char| next.is_alphanumeric() || matches!(next, '-' | '_');
    let mut rest = text;
    while let Some(at) = rest.find('@') {
        let before = rest[..at].chars().next_back();
        rest = &rest[at + 1..];
        let after = rest.strip_prefix(name).map(|after| after.chars().next());
        let is_whole = matches!(after, Some(next) if !next.is_some_and(continues));
        if is_whole && !before.is_some_and(continues) {
            return true;
        }
    }
    false
}

#[cfg(test)]
mod tests;
