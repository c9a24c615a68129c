//! Decides what happens in a room. It is a value: it has no clock, no store and no model, so everything
//! that it promises is tested with inputs and effects alone.
//!
//! - A member answers messages that address it, one answer at a time. It answers later ones next.
//! - Models that answer each other are stopped after some answers: the *loop guard*.
//! - A span of thinking has one start and one end, and both are shown before its answer is.

use std::collections::HashMap;

use serde_json::Value;
use throughline_canonical::{Block, BlockStart, Delta, Event, WaitingCall};

use crate::runs::thinking_spans::{SpanStep, ThinkingSpans};

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
    Waits(WaitingCall),
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
    spans: ThinkingSpans,
    calls: HashMap<u32, (String, String, String)>,
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
        let (spans, calls) = (ThinkingSpans::default(), HashMap::new());
        let state = RunState { member: member.clone(), spans, calls };
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
        state.spans.end(&mut |step| out.show_span(step));
        out.show(Shown::Typing { active: false });
        let Out { member, mut effects, .. } = out;
        if let Some(answer) = answer {
            effects.extend(self.answers_to(answer));
        }
        let own = self.members.iter().find(|known| known.channel == member);
        // The newest one counts: the answer reads all of them.
        let next = own.and_then(|own| unread.iter().rfind(|message| is_addressed(message, own)));
        if let Some(next) = next {
            effects.extend(self.ask(member, next.chain));
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

    fn show_span(&mut self, step: SpanStep) {
        self.show(match step {
            SpanStep::Started => Shown::ThinkingStarted,
            SpanStep::Grew { text } => Shown::ThinkingDelta { text },
            SpanStep::Ended { text, tokens, .. } => Shown::ThinkingEnded { text, tokens },
        });
    }

    fn record(&mut self, step: Step) {
        let (run, member) = (self.run.to_owned(), self.member.clone());
        self.effects.push(Effect::Record { run, member, step });
    }
}

impl RunState {
    fn take(&mut self, event: &Event<'_>, out: &mut Out<'_>) {
        self.spans.take(event, &mut |step| out.show_span(step));
        match event {
            Event::BlockStarted { index, block: BlockStart::ToolCall { id, name } } => {
                let call = (id.clone().into_owned(), name.clone().into_owned(), String::new());
                self.calls.insert(*index, call);
            }
            Event::BlockDelta { index, delta: Delta::ToolArguments(piece) } => {
                if let Some((_, _, arguments)) = self.calls.get_mut(index) {
                    arguments.push_str(piece);
                }
            }
            Event::BlockEnded { index } => self.end_call(*index, out),
            Event::ToolResult { id, content, is_error, .. } => {
                let (id, content) = (id.clone().into_owned(), content.clone());
                out.record(Step::Returned { id, content, is_error: *is_error });
            }
            Event::ApprovalNeeded { calls } => {
                for call in calls {
                    out.record(Step::Waits(call.clone()));
                }
            }
            _ => {}
        }
    }

    fn end_call(&mut self, index: u32, out: &mut Out<'_>) {
        if let Some((id, name, arguments)) = self.calls.remove(&index) {
            let arguments = match arguments.trim() {
                "" => Value::Object(serde_json::Map::new()),
                text => serde_json::from_str(text).unwrap_or_else(|_| Value::from(text)),
            };
            out.record(Step::Called { id, name, arguments });
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
mod tests {
    use proptest::prelude::*;
    use throughline_canonical::EndReason;

    use super::*;

    const MAX_CHAIN: u32 = 2;

    fn member(channel: &str, reply: ReplyRule) -> Member {
        Member { channel: channel.to_owned(), reply }
    }

    /// A room where `a` and `b` answer if they are addressed, and `c` answers always.
    fn room() -> Room {
        let mut room = Room::new(MAX_CHAIN);
        let rules =
            [("a", ReplyRule::Addressed), ("b", ReplyRule::Addressed), ("c", ReplyRule::Always)];
        let members = rules.map(|(channel, reply)| member(channel, reply));
        assert_eq!(room.apply(Input::Members(members.to_vec())), []);
        room
    }

    fn person(text: &str) -> Message {
        Message { author: Author::Person("ada".to_owned()), text: text.to_owned(), chain: 0 }
    }

    fn answer_of(channel: &str, text: &str, chain: u32) -> Message {
        Message { author: Author::Member(channel.to_owned()), text: text.to_owned(), chain }
    }

    fn ask(member: &str, chain: u32) -> Effect {
        Effect::Answer { member: member.to_owned(), chain }
    }

    fn began(run: &str, member: &str) -> Input<'static> {
        Input::Began { run: run.to_owned(), member: member.to_owned() }
    }

    fn ended(run: &str, answer: Option<Message>, unread: Vec<Message>) -> Input<'static> {
        Input::Ended { run: run.to_owned(), answer, unread }
    }

    fn show(run: &str, member: &str, what: Shown) -> Effect {
        Effect::Show { run: run.to_owned(), member: member.to_owned(), what }
    }

    fn typing(run: &str, member: &str, active: bool) -> Effect {
        show(run, member, Shown::Typing { active })
    }

    #[test]
    fn member_answers_when_its_whole_name_is_there() {
        for (text, expected) in [
            ("@a", true),
            ("Well, @a: what now?", true),
            ("(@a)", true),
            ("@a.", true),
            ("a", false),
            ("@ab", false),
            ("@a-b", false),
            ("@a_", false),
            ("me@a", false),
            ("@@a", true),
            ("@b @a", true),
            ("@ä @a", true),
        ] {
            assert_eq!(has_name(text, "a"), expected, "{text}");
        }
    }

    #[test]
    fn addressed_members_and_those_that_always_answer_are_asked() {
        for (text, expected) in [
            ("hello", vec![ask("c", 1)]),
            ("hello @b", vec![ask("b", 1), ask("c", 1)]),
            ("@a and @b", vec![ask("a", 1), ask("b", 1), ask("c", 1)]),
        ] {
            assert_eq!(room().apply(Input::Message(person(text))), expected, "{text}");
        }
    }

    #[test]
    fn member_gives_one_answer_at_a_time() {
        let mut room = room();
        assert_eq!(room.apply(Input::Message(person("@a"))), [ask("a", 1), ask("c", 1)]);
        assert_eq!(room.apply(Input::Message(person("@a again"))), [], "both are asked already");
        assert_eq!(room.apply(began("r1", "a")), [typing("r1", "a", true)]);
        assert_eq!(room.apply(began("r1", "a")), [], "another instance may say it again");
        assert_eq!(room.apply(Input::Message(person("@a @b"))), [ask("b", 1)]);
        let unread = vec![person("@a again"), person("@a @b")];
        let answer = Some(answer_of("a", "yes", 1));
        let effects = room.apply(ended("r1", answer, unread));
        assert_eq!(effects, [typing("r1", "a", false), ask("a", 1)]);
        assert_eq!(room.apply(Input::NotBegun { member: "a".to_owned() }), []);
        assert_eq!(room.apply(Input::Message(person("@a"))), [ask("a", 1)]);
    }

    #[test]
    fn models_that_answer_each_other_are_stopped() {
        let mut room = room();
        room.apply(Input::Message(person("@a")));
        room.apply(Input::NotBegun { member: "c".to_owned() });
        room.apply(began("r1", "a"));
        let effects = room.apply(ended("r1", Some(answer_of("a", "@b?", 1)), vec![]));
        assert_eq!(effects, [typing("r1", "a", false), ask("b", 2), ask("c", 2)]);
        room.apply(began("r2", "b"));
        room.apply(Input::NotBegun { member: "c".to_owned() });
        let effects = room.apply(ended("r2", Some(answer_of("b", "@a!", 2)), vec![]));
        let guard = |member: &str| Effect::Guard { member: member.to_owned(), chain: 2 };
        assert_eq!(effects, [typing("r2", "b", false), guard("a"), guard("c")]);
    }

    #[test]
    fn removed_member_is_not_asked_again() {
        let mut room = room();
        room.apply(Input::Message(person("@a")));
        room.apply(began("r1", "a"));
        room.apply(Input::Members(vec![]));
        let effects = room.apply(ended("r1", None, vec![person("@a")]));
        assert_eq!(effects, [typing("r1", "a", false)]);
    }

    fn thinking(index: u32, text: &'static str) -> Event<'static> {
        let block = BlockStart::Thinking { text: text.into(), signature: "".into() };
        Event::BlockStarted { index, block }
    }

    fn delta(index: u32, delta: Delta<'static>) -> Event<'static> {
        Event::BlockDelta { index, delta }
    }

    fn text_block(index: u32) -> Event<'static> {
        Event::BlockStarted { index, block: BlockStart::Text { text: "".into() } }
    }

    /// What is shown of the events of a run.
    fn shown(events: &[Event<'static>]) -> Vec<Shown> {
        let mut room = room();
        room.apply(began("r", "a"));
        let effects = events.iter().flat_map(|event| room.apply(Input::Event { run: "r", event }));
        let shown = effects.filter_map(|effect| match effect {
            Effect::Show { what, .. } => Some(what),
            _ => None,
        });
        shown.collect()
    }

    #[test]
    fn span_of_thinking_ends_at_the_first_sign_of_its_end() {
        let start = Shown::ThinkingStarted;
        let more = |text: &str| Shown::ThinkingDelta { text: text.to_owned() };
        let end = |text: &str| Shown::ThinkingEnded { text: text.to_owned(), tokens: None };
        let one = vec![start.clone(), more("Hm"), end("Hm")];
        let ends: Vec<Vec<Event<'static>>> = vec![
            vec![Event::BlockEnded { index: 0 }],
            vec![delta(0, Delta::Signature("s".into())), Event::BlockEnded { index: 0 }],
            vec![text_block(1), Event::BlockEnded { index: 0 }],
            vec![delta(1, Delta::Text("Yes".into()))],
            vec![Event::Ended { reason: EndReason::Stop }],
        ];
        for rest in ends {
            let mut events = vec![thinking(0, "Hm")];
            events.extend(rest);
            assert_eq!(shown(&events), one, "{events:?}");
        }
        let two = [thinking(0, "Hm"), thinking(1, ""), delta(1, Delta::Thinking("So".into()))];
        let expected = vec![start.clone(), more("Hm"), end("Hm"), start, more("So")];
        assert_eq!(shown(&two), expected);
    }

    #[test]
    fn steps_of_a_tool_loop_are_recorded() {
        let call = BlockStart::ToolCall { id: "c1".into(), name: "add".into() };
        let events = [
            Event::BlockStarted { index: 0, block: call },
            delta(0, Delta::ToolArguments("{\"x\":".into())),
            delta(0, Delta::ToolArguments("1}".into())),
            Event::BlockEnded { index: 0 },
            Event::ToolResult {
                id: "c1".into(),
                name: "add".into(),
                content: vec![Block::text("2")],
                is_error: false,
            },
        ];
        let mut room = room();
        room.apply(began("r", "a"));
        let effects = events.iter().flat_map(|event| room.apply(Input::Event { run: "r", event }));
        let steps = effects.filter_map(|effect| match effect {
            Effect::Record { step, .. } => Some(step),
            _ => None,
        });
        let arguments = serde_json::json!({"x": 1});
        let (id, name) = ("c1".to_owned(), "add".to_owned());
        let called = Step::Called { id: id.clone(), name, arguments };
        let content = vec![Block::text("2")];
        let returned = Step::Returned { id, content, is_error: false };
        assert_eq!(steps.collect::<Vec<_>>(), [called, returned]);
    }

    fn any_event() -> impl Strategy<Value = Event<'static>> {
        let index = 0_u32..3;
        prop_oneof![
            index.clone().prop_map(|index| thinking(index, "start ")),
            index.clone().prop_map(|index| delta(index, Delta::Thinking("more ".into()))),
            index.clone().prop_map(|index| delta(index, Delta::Signature("s".into()))),
            index.clone().prop_map(|index| delta(index, Delta::Text("text".into()))),
            index.clone().prop_map(text_block),
            index.prop_map(|index| Event::BlockEnded { index }),
            Just(Event::Ended { reason: EndReason::Stop }),
        ]
    }

    /// A step: what happens, to which member or run, with which event.
    fn any_step() -> impl Strategy<Value = (u8, u8, Event<'static>)> {
        (any::<u8>(), any::<u8>(), any_event())
    }

    proptest! {
        /// Whatever happens in whichever order: no run has two open spans, a span ends with all of its
        /// text, nothing is open after the end of its run, a member has one run at a time, and every
        /// message that addresses a member is answered, guarded or read by a later answer.
        #[test]
        fn room_keeps_its_promises(steps in prop::collection::vec(any_step(), 1..80)) {
            let names = ["a", "b", "c"];
            let mut room = room();
            let mut open: HashMap<String, String> = HashMap::new();
            let mut pending: Vec<(String, u32)> = Vec::new();
            let mut runs: Vec<(String, String, u32)> = Vec::new();
            // Messages that a run of a member has not read.
            let mut unread: HashMap<String, Vec<Message>> = HashMap::new();
            let mut number = 0;
            for (what, which, event) in steps {
                let mut gone = None;
                let effects = match what % 5 {
                    0 => {
                        let text = format!("@{}", names[usize::from(which) % 3]);
                        let message = person(&text);
                        for name in names {
                            let busy = runs.iter().any(|(_, member, _)| member == name)
                                || pending.iter().any(|(member, _)| member == name);
                            let rule = if name == "c" { ReplyRule::Always } else { ReplyRule::Addressed };
                            if busy && is_addressed(&message, &member(name, rule)) {
                                unread.entry(name.to_owned()).or_default().push(message.clone());
                            }
                        }
                        room.apply(Input::Message(message))
                    }
                    1 if !pending.is_empty() => {
                        let (member, chain) = pending.remove(usize::from(which) % pending.len());
                        number += 1;
                        let run = format!("r{number}");
                        runs.push((run.clone(), member.clone(), chain));
                        // It reads what was said until now.
                        unread.remove(&member);
                        room.apply(Input::Began { run, member })
                    }
                    2 | 3 if !runs.is_empty() => {
                        let (run, ..) = &runs[usize::from(which) % runs.len()];
                        room.apply(Input::Event { run, event: &event })
                    }
                    4 if !runs.is_empty() => {
                        let (run, member, chain) = runs.remove(usize::from(which) % runs.len());
                        let answer = answer_of(&member, "@a @b", chain);
                        for name in names.into_iter().filter(|name| *name != member) {
                            let busy = runs.iter().any(|(_, member, _)| member == name)
                                || pending.iter().any(|(member, _)| member == name);
                            if busy {
                                unread.entry(name.to_owned()).or_default().push(answer.clone());
                            }
                        }
                        let missed = unread.remove(&member).unwrap_or_default();
                        gone = Some((run.clone(), member.clone(), !missed.is_empty()));
                        room.apply(ended(&run, Some(answer), missed))
                    }
                    _ => Vec::new(),
                };
                let mut goes_on = false;
                for effect in effects {
                    match effect {
                        Effect::Show { run, what, .. } => match what {
                            Shown::ThinkingStarted => {
                                prop_assert!(open.insert(run, String::new()).is_none());
                            }
                            Shown::ThinkingDelta { text } => {
                                let span = open.get_mut(&run);
                                prop_assert!(span.is_some(), "a delta outside a span");
                                span.unwrap().push_str(&text);
                            }
                            Shown::ThinkingEnded { text, .. } => {
                                prop_assert_eq!(open.remove(&run), Some(text));
                            }
                            Shown::Typing { .. } => {}
                        },
                        Effect::Answer { member, chain } => {
                            prop_assert!((1..=MAX_CHAIN).contains(&chain));
                            let runs_now = runs.iter().any(|(_, running, _)| *running == member);
                            let is_asked = pending.iter().any(|(known, _)| *known == member);
                            prop_assert!(!runs_now && !is_asked, "{} is busy", member);
                            goes_on |= gone.as_ref().is_some_and(|(_, own, _)| *own == member);
                            pending.push((member, chain));
                        }
                        Effect::Guard { member, .. } => {
                            goes_on |= gone.as_ref().is_some_and(|(_, own, _)| *own == member);
                        }
                        Effect::Record { .. } => {}
                    }
                }
                if let Some((run, member, has_missed)) = gone {
                    prop_assert!(!open.contains_key(&run), "a span is open after the end");
                    prop_assert_eq!(goes_on, has_missed, "{} has not read all", member);
                }
            }
            // What is open ends with its run.
            for (run, ..) in runs {
                for effect in room.apply(ended(&run, None, vec![])) {
                    if let Effect::Show { run, what: Shown::ThinkingEnded { text, .. }, .. } = effect {
                        prop_assert_eq!(open.remove(&run), Some(text));
                    }
                }
            }
            prop_assert!(open.is_empty(), "{:?}", open);
        }
    }
}
