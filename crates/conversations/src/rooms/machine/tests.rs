//! What a room decides: tables of inputs and effects, and what holds in every order of inputs.

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
fn message_of_a_person_counts_although_a_model_spoke_later() {
    for unread in [
        vec![person("@a?"), answer_of("b", "@a!", MAX_CHAIN)],
        vec![answer_of("b", "@a!", MAX_CHAIN), person("@a?")],
    ] {
        let mut room = room();
        room.apply(Input::Message(person("@a")));
        room.apply(began("r1", "a"));
        let effects = room.apply(ended("r1", None, unread));
        assert_eq!(effects, [typing("r1", "a", false), ask("a", 1)]);
    }
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

/// Each row: the events of a run, and the words of what the room does.
#[test]
fn events_of_a_run_have_these_effects() {
    let started = |text: &'static str, signature: &'static str| {
        let block = BlockStart::Thinking { text: text.into(), signature: signature.into() };
        Event::BlockStarted { index: 0, block }
    };
    let counted = Event::Usage(Usage { thinking: Some(7), ..Usage::default() });
    let hidden = format!("start, more:{REDACTED_NOTICE}, end:{REDACTED_NOTICE}");
    let rows: Vec<(Vec<Event<'static>>, &str)> = vec![
        (vec![started("Hm", "s"), Event::BlockEnded { index: 0 }], "start, more:Hm, end:Hm"),
        (vec![started("", ""), Event::BlockEnded { index: 0 }], "start, end:"),
        (vec![redacted(0), Event::BlockEnded { index: 0 }], &hidden),
        (vec![started("Hm", ""), counted, text_block(1)], "start, more:Hm, end:Hm (7)"),
        (vec![started("Hm", ""), result()], "start, more:Hm, end:Hm, returned c1"),
        (
            vec![started("Hm", ""), Event::ApprovalNeeded { calls: vec![waiting()] }],
            "start, more:Hm, end:Hm, waits c1",
        ),
        (
            vec![started("Hm", ""), call_block(1), Event::BlockEnded { index: 1 }],
            "start, more:Hm, end:Hm, called c1",
        ),
        // A call that was cut is no step.
        (vec![call_block(0), Event::Ended { reason: EndReason::Cut }], ""),
        // A second end of a block says nothing new.
        (vec![Event::BlockEnded { index: 0 }, Event::BlockEnded { index: 0 }], ""),
        (vec![text_block(0), delta(0, Delta::Text("Yes".into()))], ""),
    ];
    for (events, expected) in rows {
        let mut room = room();
        room.apply(began("r", "a"));
        let effects = events.iter().flat_map(|event| room.apply(Input::Event { run: "r", event }));
        let words: Vec<String> = effects.map(|effect| words_of(&effect)).collect();
        assert_eq!(words.join(", "), expected, "{events:?}");
    }
    // What belongs to no run is left out.
    let stray = started("Hm", "");
    assert_eq!(room().apply(Input::Event { run: "unknown", event: &stray }), []);
    assert_eq!(room().apply(ended("unknown", None, vec![person("@a")])), []);
}

fn words_of(effect: &Effect) -> String {
    match effect {
        Effect::Show { what: Shown::ThinkingStarted, .. } => "start".to_owned(),
        Effect::Show { what: Shown::ThinkingDelta { text }, .. } => format!("more:{text}"),
        Effect::Show { what: Shown::ThinkingEnded { text, tokens }, .. } => {
            let tokens = tokens.map(|tokens| format!(" ({tokens})")).unwrap_or_default();
            format!("end:{text}{tokens}")
        }
        Effect::Record { step: Step::Called { id, .. }, .. } => format!("called {id}"),
        Effect::Record { step: Step::Waits { call, .. }, .. } => format!("waits {}", call.id),
        Effect::Record { step: Step::Returned { id, .. }, .. } => format!("returned {id}"),
        other => format!("{other:?}"),
    }
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
        index.clone().prop_map(redacted),
        index.clone().prop_map(call_block),
        index.prop_map(|index| Event::BlockEnded { index }),
        Just(Event::Ended { reason: EndReason::Stop }),
        Just(Event::Usage(Usage { thinking: Some(7), ..Usage::default() })),
        Just(Event::ApprovalNeeded { calls: vec![waiting()] }),
        Just(result()),
    ]
}

fn redacted(index: u32) -> Event<'static> {
    Event::BlockStarted { index, block: BlockStart::Redacted { data: "secret".into() } }
}

fn call_block(index: u32) -> Event<'static> {
    let block = BlockStart::ToolCall { id: "c1".into(), name: "add".into() };
    Event::BlockStarted { index, block }
}

fn result() -> Event<'static> {
    let (id, name) = ("c1".into(), "add".into());
    Event::ToolResult { id, name, content: Vec::new(), is_error: false }
}

fn waiting() -> WaitingCall {
    let (id, name, arguments) = ("c1".to_owned(), "add".to_owned(), String::new());
    WaitingCall { id, name, arguments, message: None, schema: None }
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
