//! For tests: shows a body to a machine in every way it can be cut, and tells what came of it.

use super::super::event::Event;
use super::super::schema::Tools;
use super::{NAME, Numbering, Progress, Sink};

/// A machine's way to read.
pub(super) type Read<'a> = Box<dyn FnMut(&str, bool, &mut Sink<'_>) -> Progress + 'a>;

/// The most a machine may leave over: a tag or a name, and what stands around it.
const MOST_LEFT: usize = NAME + 76;

/// Reads pieces, the last of which ends the text. Calls come out as `name{"a":1};`, where the
/// semicolon is the end of the call; then how it ended, counted from the beginning of all pieces.
pub(super) fn read_pieces(
    read: Read<'_>,
    pieces: &[&str],
    tools: Option<&Tools>,
) -> (String, Progress) {
    read_on(read, pieces, tools, true)
}

/// As [`read_pieces`], of a text that may go on.
pub(super) fn read_on(
    mut read: Read<'_>,
    pieces: &[&str],
    tools: Option<&Tools>,
    ends: bool,
) -> (String, Progress) {
    let (mut told, mut numbering) = (String::new(), Numbering::new("call_"));
    let mut out = |event: Event<'_>| match event {
        Event::CallStarted { name, .. } => told.push_str(name),
        Event::CallArguments { delta, .. } => told.push_str(delta),
        Event::CallEnded { .. } => told.push(';'),
        _ => {}
    };
    let (mut left, mut used) = (String::new(), 0);
    let mut progress = Progress::More(0);
    'pieces: for (place, piece) in pieces.iter().enumerate() {
        left.push_str(piece);
        let last = ends && place + 1 == pieces.len();
        loop {
            let mut sink = Sink::new(&mut out, &mut numbering, tools, true);
            progress = read(&left, last, &mut sink);
            match progress {
                Progress::Called(now) => {
                    left.drain(..now);
                    used += now;
                }
                Progress::More(now) if !last => {
                    left.drain(..now);
                    used += now;
                    progress = Progress::More(0);
                    assert!(left.len() <= MOST_LEFT, "{} bytes are left", left.len());
                    break;
                }
                _ => break 'pieces,
            }
        }
    }
    let progress = match progress {
        Progress::More(now) => Progress::More(used + now),
        Progress::Called(now) => Progress::Called(used + now),
        Progress::Stray(now) => Progress::Stray(used + now),
        Progress::Ended(now) => Progress::Ended(used + now),
        Progress::Broken(now, why) => Progress::Broken(used + now, why),
    };
    (told, progress)
}

/// Reads a text whole, by characters, and cut at any one place, with the end of the text told with
/// the last piece and after it: all must come to the same, which is returned.
pub(super) fn read_every_cut<'a>(
    machine: impl Fn() -> Read<'a>,
    text: &str,
    tools: Option<&Tools>,
) -> (String, Progress) {
    let whole = read_pieces(machine(), &[text], tools);
    for pieces in every_way(text) {
        let cut = read_pieces(machine(), &pieces, tools);
        assert_eq!(cut, whole, "{pieces:?}");
    }
    whole
}

/// The ways to cut a text: at any one place, at all of them, and with its end told afterwards.
pub(super) fn every_way(text: &str) -> Vec<Vec<&str>> {
    let places = text.char_indices().map(|(at, _)| at);
    let mut ways: Vec<Vec<&str>> = places.map(|at| vec![&text[..at], &text[at..]]).collect();
    ways.push(vec![text, ""]);
    let mut characters: Vec<&str> = text.split_inclusive(|_: char| true).collect();
    characters.push("");
    ways.push(characters);
    ways
}
