//! Pacing with any events, any paces and any split: nothing is lost, the order stays the same, and
//! deltas end where their pace allows.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::time::Duration;

use proptest::prelude::*;
use throughline_canonical::{Delta, EndReason, Event, Usage};
use throughline_codec::pacing::{Pace, Pacer, Pacing};

/// The kinds of delta that are joined.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum DeltaKind {
    Text,
    Thinking,
    ToolArguments,
}

fn delta(index: u32, kind: DeltaKind, text: &str) -> Event<'static> {
    let text = text.to_owned().into();
    let delta = match kind {
        DeltaKind::Text => Delta::Text(text),
        DeltaKind::Thinking => Delta::Thinking(text),
        DeltaKind::ToolArguments => Delta::ToolArguments(text),
    };
    Event::BlockDelta { index, delta }
}

fn parts<'a>(event: &'a Event<'_>) -> Option<(u32, DeltaKind, &'a str)> {
    let Event::BlockDelta { index, delta } = event else {
        return None;
    };
    match delta {
        Delta::Text(text) => Some((*index, DeltaKind::Text, text)),
        Delta::Thinking(text) => Some((*index, DeltaKind::Thinking, text)),
        Delta::ToolArguments(text) => Some((*index, DeltaKind::ToolArguments, text)),
        Delta::Signature(_) | Delta::Citation(_) | Delta::Opaque(_) => None,
    }
}

fn owned(event: &Event<'_>) -> Event<'static> {
    match (parts(event), event) {
        (Some((index, kind, text)), _) => delta(index, kind, text),
        (_, Event::Usage(usage)) => Event::Usage(*usage),
        (_, Event::BlockEnded { index }) => Event::BlockEnded { index: *index },
        (_, Event::BlockDelta { index, .. }) => signature(*index),
        (_, Event::Ended { reason }) => Event::Ended { reason: reason.clone() },
        (_, other) => panic!("{other:?} was not sent"),
    }
}

fn signature(index: u32) -> Event<'static> {
    Event::BlockDelta { index, delta: Delta::Signature("s".into()) }
}

fn window(milliseconds: u64, bytes: usize) -> Pace {
    Pace::Window { after: Duration::from_millis(milliseconds), bytes }
}

fn any_pace() -> impl Strategy<Value = Pace> {
    prop_oneof![
        Just(Pace::Immediate),
        Just(Pace::Sentence),
        Just(Pace::Paragraph),
        Just(Pace::JsonBoundary),
        (0u64..50, 0usize..20).prop_map(|(after, bytes)| window(after, bytes)),
    ]
}

fn any_event() -> impl Strategy<Value = Event<'static>> {
    let kind = prop_oneof![
        Just(DeltaKind::Text),
        Just(DeltaKind::Thinking),
        Just(DeltaKind::ToolArguments)
    ];
    prop_oneof![
        12 => (0u32..2, kind, "[a1 .?。…\n\r)\"{}\\\\ä€]{0,8}")
            .prop_map(|(index, kind, text)| delta(index, kind, &text)),
        1 => Just(Event::Usage(Usage::default())),
        1 => (0u32..2).prop_map(|index| Event::BlockEnded { index }),
        1 => (0u32..2).prop_map(signature),
        1 => Just(Event::Ended { reason: EndReason::Stop }),
    ]
}

/// Joins neighbouring deltas, as a reader of the whole reply would.
fn joined(events: &[Event<'_>]) -> Vec<Event<'static>> {
    let mut all: Vec<Event<'static>> = Vec::new();
    for event in events {
        let Some((index, kind, more)) = parts(event) else {
            all.push(owned(event));
            continue;
        };
        if more.is_empty() {
            continue;
        }
        let longer = match all.last().and_then(parts) {
            Some((before, same, start)) if (before, same) == (index, kind) => {
                Some([start, more].concat())
            }
            _ => None,
        };
        match longer {
            Some(longer) => *all.last_mut().unwrap() = delta(index, kind, &longer),
            None => all.push(delta(index, kind, more)),
        }
    }
    all
}

/// Whether a delta may end here if another one of its block follows.
fn may_end_here(pace: Pace, piece: &str) -> bool {
    let bare = piece.trim_end();
    let space = &piece[bare.len()..];
    let start = bare.trim_end_matches(['.', '?', '…', '。', '"', ')', '}']);
    let stop = &bare[start.len()..];
    match pace {
        Pace::Immediate => true,
        Pace::Sentence => {
            let stopped = stop.contains(['.', '?', '…']) && !space.is_empty();
            stopped || stop.contains('。') || space.contains('\n')
        }
        Pace::Paragraph => {
            let blank = piece.replace(['\r', ' '], "");
            piece.ends_with(['\n', '\r']) && blank.ends_with("\n\n")
        }
        Pace::JsonBoundary => piece.ends_with(['{', '}', '"']),
        Pace::Window { bytes, .. } => piece.len() <= bytes || piece.chars().count() == 1,
    }
}

/// The deltas of one block whose text arrives in these pieces.
fn paced(pace: Pace, pieces: &[&str]) -> Vec<String> {
    let mut out = Vec::new();
    let mut gather = |event: Event<'_>| out.push(parts(&event).unwrap().2.to_owned());
    let mut pacer = Pacer::new(Pacing { thinking: pace, ..Pacing::IMMEDIATE });
    for piece in pieces {
        let event = delta(0, DeltaKind::Thinking, piece);
        pacer.push(event, Duration::ZERO, &mut gather);
    }
    pacer.finish(&mut gather);
    out
}

/// The last boundary that a pass over the whole text finds.
fn last_boundary(json: &str) -> usize {
    let (mut last, mut in_string, mut escaped) = (0, false, false);
    for (at, letter) in json.char_indices() {
        if std::mem::take(&mut escaped) {
            continue;
        }
        match letter {
            '\\' if in_string => escaped = true,
            '"' => (in_string, last) = (!in_string, at + 1),
            '{' | '}' | '[' | ']' if !in_string => last = at + 1,
            _ => {}
        }
    }
    last
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 2000,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn pacing_keeps_all_events_in_order(
        events in proptest::collection::vec((any_event(), 0u64..30, any::<bool>()), 0..30),
        text in any_pace(),
        thinking in any_pace(),
        tool_args in any_pace(),
    ) {
        let mut pacer = Pacer::new(Pacing { text, thinking, tool_args });
        let (mut out, mut now) = (Vec::new(), Duration::ZERO);
        let mut gather = |event: Event<'_>| out.push(owned(&event));
        for (event, wait, tick) in &events {
            now += Duration::from_millis(*wait);
            if *tick {
                pacer.tick(now, &mut gather);
                prop_assert!(pacer.deadline().is_none_or(|deadline| deadline > now));
            }
            pacer.push(event.clone(), now, &mut gather);
            prop_assert!(pacer.deadline().is_none_or(|deadline| deadline > now));
        }
        pacer.finish(&mut gather);
        let expected: Vec<Event<'_>> = events.into_iter().map(|(event, ..)| event).collect();
        prop_assert_eq!(joined(&out), joined(&expected));
        for (position, event) in out.iter().enumerate() {
            let Some((index, kind, piece)) = parts(event) else { continue };
            prop_assert!(!piece.is_empty());
            let pace = match kind {
                DeltaKind::Text => text,
                DeltaKind::Thinking => thinking,
                DeltaKind::ToolArguments => tool_args,
            };
            // Before another event a delta may end anywhere. A window still limits its size.
            let continues = out.get(position + 1).and_then(parts);
            let continues = continues.is_some_and(|next| (next.0, next.1) == (index, kind));
            if continues || matches!(pace, Pace::Window { .. }) {
                prop_assert!(may_end_here(pace, piece), "{:?} {:?}", pace, piece);
            }
        }
    }

    #[test]
    fn sentences_paragraphs_and_windows_do_not_depend_on_the_split(
        pieces in proptest::collection::vec("[a1 .?。…\n\r)\"ä€]{0,6}", 0..12),
    ) {
        let whole = pieces.concat();
        let pieces: Vec<&str> = pieces.iter().map(String::as_str).collect();
        for pace in [Pace::Sentence, Pace::Paragraph, window(1000, 7)] {
            prop_assert_eq!(paced(pace, &pieces), paced(pace, &[&whole]));
        }
    }

    /// After each piece, only the text after the last boundary is held.
    ///
    /// Covers: S2-39
    #[test]
    fn arguments_are_held_only_up_to_the_next_boundary(
        pieces in proptest::collection::vec("[a1{}\\[\\]\"\\\\ä]{0,6}", 0..12),
    ) {
        let mut pacer = Pacer::new(Pacing::default());
        let (mut pushed, mut released) = (String::new(), String::new());
        for piece in &pieces {
            pushed.push_str(piece);
            let event = delta(0, DeltaKind::ToolArguments, piece);
            pacer.push(event, Duration::ZERO, &mut |event| {
                released.push_str(parts(&event).unwrap().2);
            });
            prop_assert_eq!(released.len(), last_boundary(&pushed), "{}", pushed);
        }
    }
}
