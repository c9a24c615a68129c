//! Test helper: gives a body to a machine in every possible split, and returns the output.

use super::super::event::Event;
use super::super::schema::Tools;
use super::{MAX_NAME, Numbering, Progress, Sink};

/// The read function of a machine.
pub(super) type Read<'a> = Box<dyn FnMut(&str, bool, &mut Sink<'_>) -> Progress + 'a>;

/// Limit for unread text: a tag or a name, and the markers around it.
const MAX_LEFTOVER: usize = MAX_NAME + 76;

/// Reads pieces, the last of which ends the text. Writes calls as `name{"a":1};`, where the
/// semicolon is the end of the call. Also returns the final progress, counted from the start of all
/// pieces. Content is written as it is.
pub(super) fn read_pieces(
    read: Read<'_>,
    pieces: &[&str],
    tools: Option<&Tools>,
) -> (String, Progress) {
    read_partial(read, pieces, tools, true)
}

/// Like [`read_pieces`], for a text that may continue.
pub(super) fn read_partial(
    mut read: Read<'_>,
    pieces: &[&str],
    tools: Option<&Tools>,
    is_complete: bool,
) -> (String, Progress) {
    let (mut output, mut numbering) = (String::new(), Numbering::new("call_"));
    let mut out = |event: Event<'_>| match event {
        Event::CallStarted { name, .. } => output.push_str(name),
        Event::CallArguments { delta, .. } => output.push_str(delta),
        Event::CallEnded { .. } => output.push(';'),
        Event::Content(text) => output.push_str(text),
        _ => {}
    };
    let (mut left, mut used, mut pending) = (String::new(), 0, String::new());
    let mut progress = Progress::More(0);
    'pieces: for (index, piece) in pieces.iter().enumerate() {
        left.push_str(piece);
        let last = is_complete && index + 1 == pieces.len();
        loop {
            let mut sink = Sink::new(&mut out, &mut numbering, tools, true);
            progress = read(&left, last, &mut sink);
            match progress {
                Progress::Called(count) => {
                    pending.clear();
                    left.drain(..count);
                    used += count;
                }
                Progress::Text(count) => {
                    pending.extend(left.drain(..count));
                    used += count;
                    out(Event::Content(&pending));
                    pending.clear();
                }
                Progress::More(count) if !last => {
                    pending.extend(left.drain(..count));
                    used += count;
                    progress = Progress::More(0);
                    assert!(left.len() <= MAX_LEFTOVER, "{} bytes are left", left.len());
                    break;
                }
                _ => break 'pieces,
            }
        }
    }
    let progress = match progress {
        Progress::More(count) => Progress::More(used + count),
        Progress::Called(count) => Progress::Called(used + count),
        Progress::Stray(count) => Progress::Stray(used + count),
        Progress::Text(count) => Progress::Text(used + count),
        Progress::Ended(count) => Progress::Ended(used + count),
        Progress::Broken(count, why) => Progress::Broken(used + count, why),
    };
    (output, progress)
}

/// Reads a text as a whole, character by character, and cut at each position, with the end of the
/// text known with the last piece or after it. All must give the same output, which is returned.
pub(super) fn read_every_cut<'a>(
    machine: impl Fn() -> Read<'a>,
    text: &str,
    tools: Option<&Tools>,
) -> (String, Progress) {
    let whole = read_pieces(machine(), &[text], tools);
    for pieces in every_split(text) {
        let cut = read_pieces(machine(), &pieces, tools);
        assert_eq!(cut, whole, "{pieces:?}");
    }
    whole
}

/// The ways to split a text: at each position, at all of them, and with its end known afterwards.
pub(super) fn every_split(text: &str) -> Vec<Vec<&str>> {
    let positions = text.char_indices().map(|(at, _)| at);
    let mut splits: Vec<Vec<&str>> = positions.map(|at| vec![&text[..at], &text[at..]]).collect();
    splits.push(vec![text, ""]);
    let mut characters: Vec<&str> = text.split_inclusive(|_: char| true).collect();
    characters.push("");
    splits.push(characters);
    splits
}
