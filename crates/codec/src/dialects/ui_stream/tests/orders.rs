//! Random events in random order: clients accept any of them, and send back the same reply.

use std::borrow::Cow;

use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use serde_json::json;
use throughline_canonical::{
    Block, BlockStart, Delta, EndReason, Fault, FaultKind, Fold, Role, Tool, Usage,
};

use super::checker::build;
use super::*;

fn text() -> impl Strategy<Value = Cow<'static, str>> {
    r#"[a-z"\\\n\rä🧠{}]{0,6}"#.prop_map(Cow::Owned)
}

fn start() -> impl Strategy<Value = BlockStart<'static>> {
    prop_oneof![
        text().prop_map(|text| BlockStart::Text { text }),
        text().prop_map(|text| BlockStart::Refusal { text }),
        (text(), text()).prop_map(|(text, signature)| BlockStart::Thinking { text, signature }),
        text().prop_map(|data| BlockStart::Redacted { data }),
        (0..u64::MAX, "[a-z. ]{1,4}").prop_map(|(id, name)| BlockStart::ToolCall {
            id: format!("c{id}").into(),
            name: name.into(),
        }),
        text().prop_map(|name| BlockStart::Opaque { dialect: "theirs".into(), name }),
    ]
}

fn delta() -> impl Strategy<Value = Delta<'static>> {
    prop_oneof![
        text().prop_map(Delta::Text),
        text().prop_map(Delta::Thinking),
        text().prop_map(Delta::Signature),
        text().prop_map(Delta::ToolArguments),
        Just(Delta::ToolArguments("{\n}".into())),
        text().prop_map(Delta::Opaque),
    ]
}

fn event() -> impl Strategy<Value = Event<'static>> {
    let index = 0..4u32;
    prop_oneof![
        1 => Just(Event::MessageStarted { id: "m".into(), model: "x".into() }),
        6 => (index.clone(), start()).prop_map(|(index, block)| Event::BlockStarted { index, block }),
        8 => (index.clone(), delta()).prop_map(|(index, delta)| Event::BlockDelta { index, delta }),
        4 => index.prop_map(|index| Event::BlockEnded { index }),
        1 => Just(Event::Transformed { transformations: Vec::new() }),
        1 => option::of(0..9u64).prop_map(|output| Event::Usage(Usage { output, ..Usage::default() })),
        1 => text().prop_map(|message| Event::Fault(Fault::new(FaultKind::Internal, message))),
    ]
}

fn reason() -> impl Strategy<Value = EndReason> {
    prop_oneof![
        Just(EndReason::Stop),
        Just(EndReason::Length),
        Just(EndReason::StopSequence),
        Just(EndReason::ToolCalls),
        Just(EndReason::Pause),
        Just(EndReason::Refusal),
        Just(EndReason::Other("odd".to_owned())),
        Just(EndReason::Failed),
        Just(EndReason::Cut),
    ]
}

/// A block as a model writes it.
#[derive(Clone, Debug)]
enum Spoken {
    Text(Vec<Cow<'static, str>>, Option<String>),
    Thinking(Vec<Cow<'static, str>>, String),
    Redacted(String),
    Call(String, bool, Option<String>),
}

fn spoken() -> impl Strategy<Value = Vec<Spoken>> {
    let mark = || "[a-zA-Z0-9+/=]{1,9}";
    vec(
        prop_oneof![
            (vec(text(), 0..4), option::of(mark()))
                .prop_map(|(text, mark)| Spoken::Text(text, mark)),
            (vec(text(), 0..4), mark()).prop_map(|(text, mark)| Spoken::Thinking(text, mark)),
            mark().prop_map(Spoken::Redacted),
            ("[a-z]{1,3}", any::<bool>(), option::of(mark()))
                .prop_map(|(key, broken, mark)| Spoken::Call(key, broken, mark)),
        ],
        1..6,
    )
}

/// The events of each block, one after the other or all in turns.
fn events(spoken: &[Spoken], at_once: bool) -> Vec<Event<'static>> {
    let mut blocks: Vec<Vec<Event<'static>>> = Vec::new();
    for (index, spoken) in (0..).zip(spoken) {
        let delta = |delta| Event::BlockDelta { index, delta };
        let sign = |mark: &str| delta(Delta::Signature(mark.to_owned().into()));
        let (block, mut deltas) = match spoken.clone() {
            Spoken::Text(text, mark) => {
                let text = text.into_iter().map(|text| delta(Delta::Text(text)));
                let block = BlockStart::Text { text: "".into() };
                (block, text.chain(mark.as_deref().map(sign)).collect::<Vec<_>>())
            }
            Spoken::Thinking(text, mark) => {
                let text = text.into_iter().map(|text| delta(Delta::Thinking(text)));
                let (none, block) = (Cow::Borrowed(""), |none: Cow<'static, str>| {
                    BlockStart::Thinking { text: none.clone(), signature: none }
                });
                (block(none), text.chain([sign(&mark)]).collect())
            }
            Spoken::Redacted(data) => (BlockStart::Redacted { data: data.into() }, Vec::new()),
            Spoken::Call(key, broken, mark) => {
                let end = if broken { "" } else { "\"}" };
                let arguments = [format!("{{\n\"key\": \"{key}"), end.to_owned()];
                let arguments = arguments.map(|text| delta(Delta::ToolArguments(text.into())));
                let block = BlockStart::ToolCall {
                    id: format!("call_{index}").into(),
                    name: "lookup".into(),
                };
                (block, arguments.into_iter().chain(mark.as_deref().map(sign)).collect())
            }
        };
        deltas.insert(0, Event::BlockStarted { index, block });
        deltas.push(Event::BlockEnded { index });
        blocks.push(deltas);
    }
    if !at_once {
        return blocks.concat();
    }
    let longest = blocks.iter().map(Vec::len).max().unwrap_or_default();
    (0..longest)
        .flat_map(|turn| blocks.iter().filter_map(move |block| block.get(turn).cloned()))
        .collect()
}

/// The blocks that a front end sends back.
fn kept(events: &[Event<'_>]) -> Vec<Block> {
    let mut fold = Fold::default();
    events.iter().for_each(|event| fold.push(event));
    let mut content = fold.finish().content;
    content.retain(
        |block| !matches!(block, Block::Text { text, signature: None, .. } if text.is_empty()),
    );
    for block in &mut content {
        if let Block::ToolCall { arguments, .. } = block
            && let Ok(value) = serde_json::from_str::<Value>(arguments)
        {
            *arguments = value.to_string();
        }
    }
    content
}

proptest! {
    #[test]
    fn clients_accept_any_reply(mut events in vec(event(), 0..40), reason in reason()) {
        let failed = events.iter().any(|event| matches!(event, Event::Fault(_)));
        let failed = failed || matches!(reason, EndReason::Failed | EndReason::Cut);
        events.push(Event::Ended { reason });
        // Nothing is written after the end.
        events.push(Event::BlockStarted { index: 0, block: BlockStart::Text { text: "late".into() } });
        let built = build(&chunks(&write(&Request::default(), &events)));
        prop_assert_eq!(built.error.is_some(), failed);
        prop_assert_eq!(built.reason == "error", failed);
    }

    #[test]
    fn a_front_end_sends_back_the_written_reply(said in spoken(), at_once in any::<bool>()) {
        let mut events = events(&said, at_once);
        let expected = kept(&events);
        events.push(Event::Ended { reason: EndReason::Stop });
        let request = Request {
            tools: vec![Tool::Function {
                name: "lookup".to_owned(),
                description: None,
                parameters: Value::Null,
                strict: None,
            }],
            ..Request::default()
        };
        let mut built = build(&chunks(&write(&request, &events)));
        for part in &mut built.parts {
            if part["state"] == "input-available" {
                part["state"] = "output-available".into();
                part["output"] = "done".into();
            }
        }
        let question = json!({"id": "q", "role": "user", "parts": [{"type": "text", "text": "q"}]});
        let answer = json!({"id": "a", "role": "assistant", "parts": built.parts});
        let back = read(&json!({"messages": [question, answer]}));
        prop_assert_eq!(back.losses, vec![]);
        let messages = back.request.messages;
        let said = messages.get(1).filter(|message| message.role == Role::Assistant);
        prop_assert_eq!(said.map(|message| message.content.clone()).unwrap_or_default(), expected);
    }
}
