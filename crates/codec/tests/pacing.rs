//! Pacing, for any events, any paces and any cuts: nothing is lost, nothing changes its place, and
//! deltas end where their pace says.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::time::Duration;

use proptest::prelude::*;
use throughline_canonical::{Delta, EndReason, Event, Usage};
use throughline_codec::pacing::{Pace, Pacer, Pacing};

/// Which of the three kinds that are gathered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Text,
    Thinking,
    ToolArguments,
}

fn delta(index: u32, kind: Kind, text: &str) -> Event<'static> {
    let text = text.to_owned().into();
    let delta = match kind {
        Kind::Text => Delta::Text(text),
        Kind::Thinking => Delta::Thinking(text),
        Kind::ToolArguments => Delta::ToolArguments(text),
    };
    Event::BlockDelta { index, delta }
}

fn parts<'a>(event: &'a Event<'_>) -> Option<(u32, Kind, &'a str)> {
    let Event::BlockDelta { index, delta } = event else {
        return None;
    };
    match delta {
        Delta::Text(text) => Some((*index, Kind::Text, text)),
        Delta::Thinking(text) => Some((*index, Kind::Thinking, text)),
        Delta::ToolArguments(text) => Some((*index, Kind::ToolArguments, text)),
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
    let kind = prop_oneof![Just(Kind::Text), Just(Kind::Thinking), Just(Kind::ToolArguments)];
    prop_oneof![
        12 => (0u32..2, kind, "[a1 .?。…\n\r)\"{}\\\\ä€]{0,8}")
            .prop_map(|(index, kind, text)| delta(index, kind, &text)),
        1 => Just(Event::Usage(Usage::default())),
        1 => (0u32..2).prop_map(|index| Event::BlockEnded { index }),
        1 => (0u32..2).prop_map(signature),
        1 => Just(Event::Ended { reason: EndReason::Stop }),
    ]
}

/// Neighbouring deltas joined: what a reader of the whole sees.
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
            Some((before, same, begun)) if (before, same) == (index, kind) => {
                Some([begun, more].concat())
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

/// Whether a delta that goes on may end here.
fn ends_well(pace: Pace, piece: &str) -> bool {
    let bare = piece.trim_end();
    let space = &piece[bare.len()..];
    let begun = bare.trim_end_matches(['.', '?', '…', '。', '"', ')', '}']);
    let stop = &bare[begun.len()..];
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

/// The deltas of one block in which these pieces came.
fn paced(pace: Pace, pieces: &[&str]) -> Vec<String> {
    let mut out = Vec::new();
    let mut gather = |event: Event<'_>| out.push(parts(&event).unwrap().2.to_owned());
    let mut pacer = Pacer::new(Pacing { thinking: pace, ..Pacing::IMMEDIATE });
    for piece in pieces {
        let event = delta(0, Kind::Thinking, piece);
        pacer.push(event, Duration::ZERO, &mut gather);
    }
    pacer.finish(&mut gather);
    out
}

/// Where a pass over the whole text would cut last.
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
    fn nothing_is_lost_and_nothing_changes_its_place(
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
        let came: Vec<Event<'_>> = events.into_iter().map(|(event, ..)| event).collect();
        prop_assert_eq!(joined(&out), joined(&came));
        for (place, event) in out.iter().enumerate() {
            let Some((index, kind, piece)) = parts(event) else { continue };
            prop_assert!(!piece.is_empty());
            let pace = match kind {
                Kind::Text => text,
                Kind::Thinking => thinking,
                Kind::ToolArguments => tool_args,
            };
            // What another event follows may end anywhere, and is no longer than a window.
            let goes_on = out.get(place + 1).and_then(parts);
            let goes_on = goes_on.is_some_and(|next| (next.0, next.1) == (index, kind));
            if goes_on || matches!(pace, Pace::Window { .. }) {
                prop_assert!(ends_well(pace, piece), "{:?} {:?}", pace, piece);
            }
        }
    }

    #[test]
    fn sentences_paragraphs_and_windows_do_not_depend_on_the_pieces(
        pieces in proptest::collection::vec("[a1 .?。…\n\r)\"ä€]{0,6}", 0..12),
    ) {
        let whole = pieces.concat();
        let pieces: Vec<&str> = pieces.iter().map(String::as_str).collect();
        for pace in [Pace::Sentence, Pace::Paragraph, window(1000, 7)] {
            prop_assert_eq!(paced(pace, &pieces), paced(pace, &[&whole]));
        }
    }

    /// After each piece all but what stands behind the last boundary has gone.
    ///
    /// Covers: S2-39
    #[test]
    fn arguments_wait_for_the_next_boundary_only(
        pieces in proptest::collection::vec("[a1{}\\[\\]\"\\\\ä]{0,6}", 0..12),
    ) {
        let mut pacer = Pacer::new(Pacing::default());
        let (mut pushed, mut gone) = (String::new(), String::new());
        for piece in &pieces {
            pushed.push_str(piece);
            let event = delta(0, Kind::ToolArguments, piece);
            pacer.push(event, Duration::ZERO, &mut |event| {
                gone.push_str(parts(&event).unwrap().2);
            });
            prop_assert_eq!(gone.len(), last_boundary(&pushed), "{}", pushed);
        }
    }
}
